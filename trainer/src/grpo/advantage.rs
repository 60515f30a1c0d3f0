//! Advantages from terminal rewards: how much better an attempt did than its group.
//!
//! Groups are named by an explicit id and their size is asserted: two prompts that look alike are never one group, and a
//! group is never silently short. A reward that is not finite drops its own sample and leaves the group's others alone.

use napmem_rollout::trajectory::Trajectory;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Added to a standard deviation before dividing by it (the field's value).
const STD_EPSILON: f64 = 1e-6;

/// What is taken from a score to make an advantage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Baseline {
    /// The group's mean (NapMem).
    #[default]
    Mean,
    /// The group's mean, then divided by the group's unbiased standard deviation; a group of one counts as mean 0,
    /// deviation 1.
    GroupStd,
    /// The group's mean, then divided by the batch's unbiased standard deviation.
    BatchStd,
    /// Nothing.
    None,
}

/// What happens to groups whose attempts all scored the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZeroVarianceGroups {
    /// They stay and still feel the KL penalty.
    #[default]
    Keep,
    /// They are left out of the update.
    Drop,
}

/// How rewards become advantages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdvantageOptions {
    /// What is subtracted and divided by.
    pub baseline: Baseline,
    /// Groups without variance.
    pub zero_variance_groups: ZeroVarianceGroups,
    /// Attempts that every group must have.
    pub group_size: usize,
}

/// The reward of one attempt and the group it belongs to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroupedReward {
    /// Group within the run.
    pub group_id: u64,
    /// Terminal reward; one that is not finite drops the attempt.
    pub reward: f64,
}

impl GroupedReward {
    /// Rewards of trajectories, in their order.
    pub fn of(trajectories: &[Trajectory]) -> Vec<Self> {
        trajectories.iter().map(|t| Self { group_id: t.group_id, reward: t.reward.score }).collect()
    }
}

/// Advantages of a batch and what was unusual about it.
///
/// Worked example, baseline mean, groups of two: rewards `7: 1.0, 8: -0.5, 7: 0.0, 8: NaN` give `0.5, 0.0, -0.5, dropped`;
/// group 8 has one usable reward left and so no variance.
#[derive(Debug, Clone, PartialEq)]
pub struct Advantages {
    /// One entry for each reward, in the same order; `None` for a sample that must not be trained on.
    pub values: Vec<Option<f64>>,
    /// Groups in the batch.
    pub num_groups: usize,
    /// Groups that have a usable reward but not two different ones.
    pub num_zero_variance_groups: usize,
    /// Samples dropped because their reward was NaN or infinite.
    pub num_non_finite_rewards: usize,
    /// Samples left out with their zero-variance group.
    pub num_dropped_with_group: usize,
}

impl Advantages {
    /// Positions and advantages of the samples to train on.
    pub fn kept(&self) -> impl Iterator<Item = (usize, f64)> {
        self.values.iter().enumerate().filter_map(|(index, value)| value.map(|v| (index, v)))
    }
}

/// Advantages of `rewards` under `options`. Samples of a group need not be neighbours.
///
/// # Panics
/// When a group does not have `group_size` samples: attempts were lost or groups mixed up before this point.
pub fn advantages(rewards: &[GroupedReward], options: &AdvantageOptions) -> Advantages {
    let groups = members_by_group(rewards, options.group_size);
    let finite: Vec<f64> = rewards.iter().map(|r| r.reward).filter(|r| r.is_finite()).collect();
    let batch_divisor = unbiased_std(&finite).unwrap_or(1.0) + STD_EPSILON;
    let mut result = Advantages {
        values: vec![None; rewards.len()],
        num_groups: groups.len(),
        num_zero_variance_groups: 0,
        num_non_finite_rewards: rewards.len() - finite.len(),
        num_dropped_with_group: 0,
    };
    for members in groups.values() {
        let usable: Vec<(usize, f64)> = members
            .iter()
            .map(|&index| (index, rewards[index].reward))
            .filter(|(_, reward)| reward.is_finite())
            .collect();
        let Some(&(_, first)) = usable.first() else {
            continue;
        };
        let flat = usable.iter().all(|&(_, reward)| reward == first);
        result.num_zero_variance_groups += usize::from(flat);
        if flat && options.zero_variance_groups == ZeroVarianceGroups::Drop {
            result.num_dropped_with_group += usable.len();
            continue;
        }
        let values: Vec<f64> = usable.iter().map(|&(_, reward)| reward).collect();
        let scaled = group_advantages(&values, options.baseline, batch_divisor);
        for (&(index, _), advantage) in usable.iter().zip(scaled) {
            result.values[index] = Some(advantage);
        }
    }
    result
}

/// Positions of each group's samples, groups by id and samples in order.
fn members_by_group(rewards: &[GroupedReward], group_size: usize) -> BTreeMap<u64, Vec<usize>> {
    let mut groups: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, reward) in rewards.iter().enumerate() {
        groups.entry(reward.group_id).or_default().push(index);
    }
    for (id, members) in &groups {
        assert_eq!(members.len(), group_size, "group {id} has {} samples, not {group_size}", members.len());
    }
    groups
}

/// Advantages within one group of finite rewards.
fn group_advantages(rewards: &[f64], baseline: Baseline, batch_divisor: f64) -> Vec<f64> {
    // Equal rewards are centred to exactly 0: the residue of a rounded mean would be blown up by a tiny deviation.
    let flat = rewards.iter().all(|r| r == &rewards[0]);
    let mean = if flat { rewards[0] } else { mean(rewards) };
    let centred = rewards.iter().map(|r| r - mean);
    match baseline {
        Baseline::None => rewards.to_vec(),
        Baseline::Mean => centred.collect(),
        Baseline::BatchStd => centred.map(|c| c / batch_divisor).collect(),
        Baseline::GroupStd => match unbiased_std(rewards) {
            Some(std) => centred.map(|c| c / (std + STD_EPSILON)).collect(),
            None => rewards.iter().map(|r| r / (1.0 + STD_EPSILON)).collect(),
        },
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Standard deviation with divisor n − 1; `None` for fewer than two values.
fn unbiased_std(values: &[f64]) -> Option<f64> {
    (values.len() >= 2).then(|| {
        let mean = mean(values);
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        (squares / (values.len() - 1) as f64).sqrt()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Kind, Tensor};

    fn grouped(pairs: &[(u64, f64)]) -> Vec<GroupedReward> {
        pairs.iter().map(|&(group_id, reward)| GroupedReward { group_id, reward }).collect()
    }

    fn options(baseline: Baseline, group_size: usize) -> AdvantageOptions {
        AdvantageOptions { baseline, zero_variance_groups: ZeroVarianceGroups::Keep, group_size }
    }

    #[test]
    fn baselines_give_hand_computed_values() {
        // Group means 0.25 and 0; unbiased deviations 1.0607 and 0.7071, of the whole batch 0.75.
        let rewards = grouped(&[(0, 1.0), (5, 0.5), (0, -0.5), (5, -0.5)]);
        let (group0, group5, batch) = (1.125f64.sqrt(), 0.5f64.sqrt(), 0.75);
        let cases = [
            (Baseline::Mean, [0.75, 0.5, -0.75, -0.5]),
            (Baseline::None, [1.0, 0.5, -0.5, -0.5]),
            (
                Baseline::GroupStd,
                [0.75 / (group0 + 1e-6), 0.5 / (group5 + 1e-6), -0.75 / (group0 + 1e-6), -0.5 / (group5 + 1e-6)],
            ),
            (Baseline::BatchStd, [0.75, 0.5, -0.75, -0.5].map(|a| a / (batch + 1e-6))),
        ];
        for (baseline, expected) in cases {
            let got = advantages(&rewards, &options(baseline, 2));
            for (value, expected) in got.values.iter().zip(expected) {
                assert!((value.unwrap() - expected).abs() < 1e-12, "{baseline:?}: {value:?} is not {expected}");
            }
            assert_eq!((got.num_groups, got.num_zero_variance_groups), (2, 0));
        }
    }

    #[test]
    fn a_reward_that_is_not_finite_drops_its_sample_only() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for baseline in [Baseline::Mean, Baseline::GroupStd, Baseline::BatchStd, Baseline::None] {
                let with = advantages(&grouped(&[(1, 1.0), (1, bad), (1, 0.0)]), &options(baseline, 3));
                let without = advantages(&grouped(&[(1, 1.0), (1, 0.0)]), &options(baseline, 2));
                assert_eq!([with.values[0], with.values[2]], [without.values[0], without.values[1]]);
                assert_eq!((with.values[1], with.num_non_finite_rewards), (None, 1));
            }
        }
        let hopeless = advantages(&grouped(&[(1, f64::NAN), (1, f64::NAN)]), &options(Baseline::Mean, 2));
        assert_eq!((hopeless.values, hopeless.num_zero_variance_groups), (vec![None, None], 0));
    }

    #[test]
    fn a_group_of_one_has_mean_zero_and_deviation_one_under_group_std() {
        let rewards = grouped(&[(1, -0.5), (1, f64::NAN)]);
        let got = advantages(&rewards, &options(Baseline::GroupStd, 2));
        assert_eq!(got.values, vec![Some(-0.5 / (1.0 + 1e-6)), None]);
        let centred = advantages(&rewards, &options(Baseline::Mean, 2));
        assert_eq!((centred.values[0], centred.num_zero_variance_groups), (Some(0.0), 1));
    }

    #[test]
    fn zero_variance_groups_are_counted_and_kept_or_dropped() {
        // 0.1 + 0.1 + 0.1 divided by 3 is not 0.1 in floating point.
        let rewards = grouped(&[(1, 0.1), (1, 0.1), (1, 0.1), (2, 1.0), (2, 0.0), (2, -1.0)]);
        for baseline in [Baseline::Mean, Baseline::GroupStd, Baseline::BatchStd] {
            let kept = advantages(&rewards, &options(baseline, 3));
            assert_eq!(kept.values[..3], [Some(0.0); 3], "{baseline:?}");
            assert_eq!((kept.num_zero_variance_groups, kept.kept().count()), (1, 6));
        }
        let drop = AdvantageOptions { zero_variance_groups: ZeroVarianceGroups::Drop, ..options(Baseline::Mean, 3) };
        let dropped = advantages(&rewards, &drop);
        assert_eq!(dropped.kept().collect::<Vec<_>>(), [(3, 1.0), (4, 0.0), (5, -1.0)]);
        assert_eq!((dropped.num_zero_variance_groups, dropped.num_dropped_with_group), (1, 3));
    }

    #[test]
    #[should_panic(expected = "group 9 has 1 samples, not 2")]
    fn a_short_group_is_refused() {
        advantages(&grouped(&[(1, 0.0), (1, 1.0), (9, 0.0)]), &options(Baseline::Mean, 2));
    }

    #[test]
    fn advantages_equal_those_of_pytorch() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/grpo_loss.safetensors");
        let fixture: BTreeMap<_, _> = Tensor::read_safetensors(path).unwrap().into_iter().collect();
        let flat = |name: &str| Vec::<f64>::try_from(fixture[name].reshape([-1]).to_kind(Kind::Double)).unwrap();
        let group_size = fixture["rewards"].size()[1] as usize;
        let rewards: Vec<GroupedReward> = flat("rewards")
            .into_iter()
            .enumerate()
            .map(|(i, reward)| GroupedReward { group_id: (i / group_size) as u64, reward })
            .collect();
        let baselines = [
            (Baseline::Mean, "advantages.mean"),
            (Baseline::GroupStd, "advantages.group-std"),
            (Baseline::BatchStd, "advantages.batch-std"),
            (Baseline::None, "advantages.none"),
        ];
        for (baseline, name) in baselines {
            let got = advantages(&rewards, &options(baseline, group_size));
            for (value, expected) in got.values.iter().zip(flat(name)) {
                assert!((value.unwrap() - expected).abs() < 1e-6, "{name}: {value:?} is not {expected}");
            }
            assert_eq!(got.num_zero_variance_groups, 1, "{name}");
        }
    }
}
