//! What to log of a batch of trajectories, under the names that the field's trainers use.
//!
//! Everything is a mean, an extreme or a share over the batch, so that batches of different size compare. Names never come
//! from sampled text: tools that do not exist count as `unknown`.

use super::advantage::Advantages;
use napmem_rollout::trajectory::{StopReason, ToolStep, Trajectory};
use std::collections::{BTreeMap, BTreeSet};

/// Metric name → value, sorted by name.
pub type MetricMap = BTreeMap<String, f64>;

/// Stop reasons with their metric names.
const STOPS: [(StopReason, &str); 5] = [
    (StopReason::Answered, "stop/answered"),
    (StopReason::ToolStepLimit, "stop/tool_step_limit"),
    (StopReason::TurnLimit, "stop/turn_limit"),
    (StopReason::TurnTokenLimit, "stop/turn_token_limit"),
    (StopReason::TotalTokenLimit, "stop/total_token_limit"),
];

/// Levels of the pyramid.
const LEVELS: std::ops::RangeInclusive<u8> = 1..=4;

/// Name under which calls of tools that do not exist are counted.
const UNKNOWN_TOOL: &str = "unknown";
/// Name of the first tool of attempts that call none.
const NO_TOOL: &str = "none";

/// Metrics of sampled trajectories; empty for none. `tool_names` are the tools' canonical names.
///
/// `response_length/*` counts the policy's tokens of a trajectory, `response_length_turn/*` those of one turn; their
/// `clip_ratio` is the share that a token limit cut. Scores that are not finite are left out of `critic/*`.
pub fn rollout_metrics(trajectories: &[Trajectory], tool_names: &[&str]) -> MetricMap {
    let mut metrics = MetricMap::new();
    if trajectories.is_empty() {
        return metrics;
    }
    add_scores(&mut metrics, trajectories);
    add_lengths(&mut metrics, trajectories);
    add_tools(&mut metrics, trajectories, tool_names);
    for (reason, name) in STOPS {
        metrics.insert(name.to_owned(), share(trajectories, |t| t.stop == reason));
    }
    metrics
}

/// Metrics of a batch's advantages and groups.
pub fn advantage_metrics(advantages: &Advantages) -> MetricMap {
    let mut metrics = MetricMap::new();
    add_spread(&mut metrics, "critic/advantages", advantages.kept().map(|(_, value)| value));
    let groups = advantages.num_groups.max(1) as f64;
    let flat = advantages.num_zero_variance_groups as f64;
    metrics.insert("group/zero_variance_fraction".to_owned(), flat / groups);
    metrics.insert("group/num_non_finite_rewards".to_owned(), advantages.num_non_finite_rewards as f64);
    metrics.insert("group/num_dropped_samples".to_owned(), advantages.num_dropped_with_group as f64);
    metrics
}

/// Adds `{prefix}/{mean,max,min}`; nothing where there are no values.
fn add_spread(metrics: &mut MetricMap, prefix: &str, values: impl Iterator<Item = f64>) {
    let values: Vec<f64> = values.collect();
    if values.is_empty() {
        return;
    }
    metrics.insert(format!("{prefix}/mean"), mean(&values));
    metrics.insert(format!("{prefix}/max"), values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
    metrics.insert(format!("{prefix}/min"), values.iter().copied().fold(f64::INFINITY, f64::min));
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Share of trajectories of which `holds` is true.
fn share(trajectories: &[Trajectory], holds: impl Fn(&Trajectory) -> bool) -> f64 {
    trajectories.iter().filter(|t| holds(t)).count() as f64 / trajectories.len() as f64
}

fn add_scores(metrics: &mut MetricMap, trajectories: &[Trajectory]) {
    let scores = || trajectories.iter().map(|t| t.reward.score).filter(|score| score.is_finite());
    add_spread(metrics, "critic/score", scores());
    // The penalty is in the loss, never in the reward: the two are the same.
    add_spread(metrics, "critic/rewards", scores());
    metrics.insert("rubric/format".to_owned(), share(trajectories, |t| t.reward.outcome.format));
    metrics.insert("rubric/correct".to_owned(), share(trajectories, |t| t.reward.outcome.correct));
    metrics.insert("rubric/memory_used".to_owned(), share(trajectories, |t| t.reward.outcome.memory_used));
    let f1: Vec<f64> = trajectories.iter().map(|t| t.reward.f1).collect();
    metrics.insert("rubric/f1".to_owned(), mean(&f1));
}

fn add_lengths(metrics: &mut MetricMap, trajectories: &[Trajectory]) {
    let each = |count: fn(&Trajectory) -> usize| trajectories.iter().map(move |t| count(t) as f64);
    add_spread(metrics, "response_length", each(Trajectory::num_completion_tokens));
    add_spread(metrics, "prompt_length", each(|t| t.num_prompt_tokens));
    add_spread(metrics, "num_turns", each(|t| t.turns.len()));
    add_spread(metrics, "tool_call_counts", each(|t| t.tool_steps().count()));
    let turns = trajectories.iter().flat_map(|t| &t.turns);
    let lengths = turns.map(|turn| (turn.completion.end - turn.completion.start) as f64);
    add_spread(metrics, "response_length_turn", lengths);
    let cut = |t: &Trajectory| matches!(t.stop, StopReason::TurnTokenLimit | StopReason::TotalTokenLimit);
    metrics.insert("response_length/clip_ratio".to_owned(), share(trajectories, cut));
    let num_turns: usize = trajectories.iter().map(|t| t.turns.len()).sum();
    let num_cut = trajectories.iter().filter(|t| cut(t)).count();
    metrics.insert("response_length_turn/clip_ratio".to_owned(), num_cut as f64 / num_turns.max(1) as f64);
    let num_tokens: usize = trajectories.iter().map(|t| t.token_ids.len()).sum();
    metrics.insert("perf/total_num_tokens".to_owned(), num_tokens as f64);
}

/// `tools/{name}/calls` is calls per trajectory, `tools/first/{name}` the share of trajectories that begin with the tool.
fn add_tools(metrics: &mut MetricMap, trajectories: &[Trajectory], tool_names: &[&str]) {
    let known = |step: &ToolStep| tool_names.iter().copied().find(|name| *name == step.tool).unwrap_or(UNKNOWN_TOOL);
    let mut calls: BTreeMap<&str, usize> = tool_names.iter().map(|name| (*name, 0)).collect();
    calls.insert(UNKNOWN_TOOL, 0);
    let mut first = calls.clone();
    first.insert(NO_TOOL, 0);
    let (mut num_calls, mut num_valid) = (0usize, 0usize);
    for trajectory in trajectories {
        for step in trajectory.tool_steps() {
            *calls.entry(known(step)).or_default() += 1;
            num_calls += 1;
            num_valid += usize::from(step.valid);
        }
        *first.entry(trajectory.tool_steps().next().map_or(NO_TOOL, known)).or_default() += 1;
    }
    let total = trajectories.len() as f64;
    metrics.extend(calls.iter().map(|(name, &count)| (format!("tools/{name}/calls"), count as f64 / total)));
    metrics.extend(first.iter().map(|(name, &count)| (format!("tools/first/{name}"), count as f64 / total)));
    if num_calls > 0 {
        metrics.insert("tools/valid_ratio".to_owned(), num_valid as f64 / num_calls as f64);
    }
    add_navigation(metrics, trajectories);
}

/// Mean evidence hit ratio and share of attempts that saw evidence, each over the attempts for which it is known; absent
/// where it is for none.
pub fn evidence_means(trajectories: &[Trajectory]) -> impl Iterator<Item = (&'static str, f64)> {
    let ratios: Vec<f64> = trajectories.iter().filter_map(|t| t.reward.evidence_hit_ratio).collect();
    let seen = trajectories.iter().filter_map(|t| t.reward.evidence_seen).map(|seen| f64::from(u8::from(seen)));
    let both = [("evidence_hit_ratio", ratios), ("evidence_seen", seen.collect())];
    both.into_iter().filter(|(_, values)| !values.is_empty()).map(|(name, values)| (name, mean(&values)))
}

/// Where in the pyramid the attempts looked, and whether what they saw was evidence.
fn add_navigation(metrics: &mut MetricMap, trajectories: &[Trajectory]) {
    metrics.extend(evidence_means(trajectories).map(|(name, value)| (format!("tools/{name}"), value)));
    let touched: Vec<BTreeSet<u8>> =
        trajectories.iter().map(|t| t.tool_steps().filter_map(|step| step.level).collect()).collect();
    let num_levels: Vec<f64> = touched.iter().map(|levels| levels.len() as f64).collect();
    metrics.insert("tools/levels_touched".to_owned(), mean(&num_levels));
    for level in LEVELS {
        let count = touched.iter().filter(|levels| levels.contains(&level)).count();
        metrics.insert(format!("tools/level_{level}/share"), count as f64 / touched.len() as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use napmem_reward::{Outcome, RubricCase};
    use napmem_rollout::trajectory::{RewardParts, Span, Turn};

    fn step(tool: &str, level: Option<u8>) -> ToolStep {
        ToolStep {
            tool: tool.to_owned(),
            arguments: serde_json::Value::Null,
            observation: String::new(),
            valid: level.is_some(),
            returned_ids: Vec::new(),
            evidence_ids: Vec::new(),
            level,
        }
    }

    /// Prompt of 4 tokens, then for each turn the given number of sampled tokens and 2 observed ones.
    fn trajectory(score: f64, stop: StopReason, turns: Vec<(usize, Vec<ToolStep>)>) -> Trajectory {
        let mut loss_mask = vec![0u8; 4];
        let mut built = Vec::new();
        for (num_sampled, tool_steps) in turns {
            let start = loss_mask.len();
            let end = start + num_sampled;
            loss_mask.resize(end, 1);
            loss_mask.resize(end + 2, 0);
            let spans = (Span { start, end }, Span { start: end, end: end + 2 });
            built.push(Turn { completion: spans.0, observation: spans.1, text: String::new(), tool_steps });
        }
        let correct = score > 0.0;
        Trajectory {
            question_id: "q".to_owned(),
            user: "u".to_owned(),
            category: "c".to_owned(),
            question: String::new(),
            gold: Vec::new(),
            needs_memory: true,
            given_ids: Vec::new(),
            group_id: 0,
            attempt: 0,
            policy_version: 0,
            token_ids: vec![0; loss_mask.len()],
            num_prompt_tokens: 4,
            sampler_logprobs: vec![0.0; loss_mask.len()],
            loss_mask,
            turns: built,
            stop,
            answer: None,
            reward: RewardParts {
                outcome: Outcome { format: true, correct, memory_used: score != 0.0 },
                case: RubricCase::CorrectWithMemory,
                score,
                f1: if correct { 1.0 } else { 0.25 },
                evidence_hit_ratio: correct.then_some(0.5),
                evidence_seen: Some(correct),
            },
        }
    }

    fn batch() -> Vec<Trajectory> {
        let found = vec![(3, vec![step("search_records", Some(2)), step("read_file", Some(3))]), (5, vec![])];
        let lost = vec![(1, vec![step("rm -rf", None)]), (2, vec![step("search_records", Some(2))])];
        vec![
            trajectory(1.0, StopReason::Answered, found),
            trajectory(-0.5, StopReason::TurnTokenLimit, lost),
            trajectory(0.0, StopReason::Answered, vec![(4, vec![])]),
            trajectory(f64::NAN, StopReason::Answered, vec![(1, vec![])]),
        ]
    }

    #[test]
    fn a_batch_by_hand() {
        let metrics = rollout_metrics(&batch(), &["search_records", "read_file", "read_profile"]);
        let expected = [
            ("critic/score/mean", 0.5 / 3.0),
            ("critic/score/max", 1.0),
            ("critic/score/min", -0.5),
            ("critic/rewards/mean", 0.5 / 3.0),
            ("rubric/format", 1.0),
            ("rubric/correct", 0.25),
            ("rubric/memory_used", 0.75),
            ("rubric/f1", (1.0 + 3.0 * 0.25) / 4.0),
            ("response_length/mean", (8.0 + 3.0 + 4.0 + 1.0) / 4.0),
            ("response_length/max", 8.0),
            ("response_length/clip_ratio", 0.25),
            ("response_length_turn/mean", 16.0 / 6.0),
            ("response_length_turn/min", 1.0),
            ("response_length_turn/clip_ratio", 1.0 / 6.0),
            ("prompt_length/mean", 4.0),
            ("num_turns/mean", 1.5),
            ("num_turns/max", 2.0),
            ("tool_call_counts/mean", 1.0),
            ("tool_call_counts/max", 2.0),
            ("perf/total_num_tokens", 16.0 + 4.0 * 4.0 + 6.0 * 2.0),
            ("tools/search_records/calls", 0.5),
            ("tools/read_file/calls", 0.25),
            ("tools/read_profile/calls", 0.0),
            ("tools/unknown/calls", 0.25),
            ("tools/first/search_records", 0.25),
            ("tools/first/unknown", 0.25),
            ("tools/first/none", 0.5),
            ("tools/first/read_profile", 0.0),
            ("tools/valid_ratio", 0.75),
            ("tools/evidence_hit_ratio", 0.5),
            ("tools/evidence_seen", 0.25),
            ("tools/levels_touched", 0.75),
            ("tools/level_2/share", 0.5),
            ("tools/level_1/share", 0.0),
            ("stop/answered", 0.75),
            ("stop/turn_token_limit", 0.25),
            ("stop/total_token_limit", 0.0),
        ];
        for (name, value) in expected {
            let got = metrics.get(name).unwrap_or_else(|| panic!("{name} is missing"));
            assert!((got - value).abs() < 1e-12, "{name}: {got} is not {value}");
        }
        assert!(metrics.keys().all(|name| !name.contains("rm -rf")), "sampled text became a metric name");
        assert!(metrics.values().all(|value| value.is_finite()));
    }

    #[test]
    fn nothing_sampled_logs_nothing() {
        assert!(rollout_metrics(&[], &["read_file"]).is_empty());
    }

    #[test]
    fn advantages_by_hand() {
        let metrics = advantage_metrics(&Advantages {
            values: vec![Some(0.5), None, Some(-1.5), Some(0.0)],
            num_groups: 4,
            num_zero_variance_groups: 1,
            num_non_finite_rewards: 1,
            num_dropped_with_group: 0,
        });
        let expected = [
            ("critic/advantages/max", 0.5),
            ("critic/advantages/mean", -1.0 / 3.0),
            ("critic/advantages/min", -1.5),
            ("group/num_dropped_samples", 0.0),
            ("group/num_non_finite_rewards", 1.0),
            ("group/zero_variance_fraction", 0.25),
        ];
        assert_eq!(metrics, expected.into_iter().map(|(k, v)| (k.to_owned(), v)).collect());
    }
}
