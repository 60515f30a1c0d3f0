//! Splitting by user: no user's memory is in two parts.

use super::error::DatasetError;
use crate::question::Question;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

/// Users of each part, sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Learned from.
    pub train: BTreeSet<String>,
    /// Watched during a run.
    pub validation: BTreeSet<String>,
    /// Looked at once, at the end.
    pub test: BTreeSet<String>,
}

impl Split {
    /// The questions of a part's users, in file order.
    pub fn select(questions: &[Question], part: &BTreeSet<String>) -> Vec<Question> {
        questions.iter().filter(|question| part.contains(&question.user)).cloned().collect()
    }
}

/// Shuffles users with `seed` and cuts at the fractions of train, validation and test.
///
/// Sizes go by largest remainder; with at least as many users as parts of a positive fraction, none of these is empty.
pub fn split_by_user(users: &BTreeSet<String>, fractions: [f64; 3], seed: u64) -> Result<Split, DatasetError> {
    let is_sound = fractions.iter().all(|fraction| *fraction >= 0.0);
    if !is_sound || (fractions.iter().sum::<f64>() - 1.0).abs() > 1e-9 {
        return Err(DatasetError::Fractions(fractions));
    }
    let mut shuffled: Vec<String> = users.iter().cloned().collect();
    shuffled.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let [num_train, num_validation, _] = part_sizes(users.len(), fractions);
    let mut rest = shuffled.into_iter();
    let split = Split {
        train: rest.by_ref().take(num_train).collect(),
        validation: rest.by_ref().take(num_validation).collect(),
        test: rest.collect(),
    };
    assert!(
        split.train.is_disjoint(&split.validation)
            && split.train.is_disjoint(&split.test)
            && split.validation.is_disjoint(&split.test),
        "parts share users: {split:?}"
    );
    Ok(split)
}

fn part_sizes(num_users: usize, fractions: [f64; 3]) -> [usize; 3] {
    let exact = fractions.map(|fraction| fraction * num_users as f64);
    // 0.6 · 5 is a hair under 3; without the hair, floors would depend on rounding.
    let mut sizes = exact.map(|size| (size + 1e-9).floor() as usize);
    let mut by_remainder = [0, 1, 2];
    by_remainder.sort_by(|&a, &b| (exact[b] - sizes[b] as f64).total_cmp(&(exact[a] - sizes[a] as f64)));
    let num_left = num_users - sizes.iter().sum::<usize>();
    for part in by_remainder.into_iter().take(num_left) {
        sizes[part] += 1;
    }
    for part in 0..3 {
        let largest = (0..3).rev().max_by_key(|&other| sizes[other]).unwrap_or(0);
        if fractions[part] > 0.0 && sizes[part] == 0 && sizes[largest] > 1 {
            sizes[largest] -= 1;
            sizes[part] += 1;
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn users(count: usize) -> BTreeSet<String> {
        (0..count).map(|n| format!("u{n:03}")).collect()
    }

    #[test]
    fn sizes() {
        let cases = [
            (0, [0, 0, 0]),
            (1, [1, 0, 0]),
            (2, [1, 1, 0]),
            (3, [1, 1, 1]),
            (4, [2, 1, 1]),
            (5, [3, 1, 1]),
            (8, [5, 2, 1]),
            (10, [6, 2, 2]),
            (100, [60, 20, 20]),
        ];
        for (count, expected) in cases {
            assert_eq!(part_sizes(count, [0.6, 0.2, 0.2]), expected, "{count} users");
        }
        assert_eq!(part_sizes(3, [1.0, 0.0, 0.0]), [3, 0, 0]);
    }

    #[test]
    fn a_seed_decides_and_fractions_are_checked() {
        let all = users(10);
        let split = |seed| split_by_user(&all, [0.6, 0.2, 0.2], seed).unwrap();
        assert_eq!(split(1), split(1));
        assert_ne!(split(1), split(2));
        for bad in [[0.6, 0.2, 0.3], [1.2, -0.1, -0.1], [f64::NAN, 0.5, 0.5]] {
            assert!(split_by_user(&all, bad, 1).unwrap_err().to_string().contains("add up to 1"), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn parts_are_disjoint_and_cover(count in 0usize..60, seed in any::<u64>(), cut in 0.0f64..=1.0, share in 0.0f64..=1.0) {
            let all = users(count);
            let fractions = [cut, (1.0 - cut) * share, (1.0 - cut) * (1.0 - share)];
            let split = split_by_user(&all, fractions, seed).unwrap();
            let parts = [&split.train, &split.validation, &split.test];
            prop_assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), count);
            prop_assert_eq!(parts.into_iter().flatten().cloned().collect::<BTreeSet<_>>(), all);
            let wanted = fractions.iter().filter(|fraction| **fraction > 0.0).count();
            if count >= wanted {
                let filled = [&split.train, &split.validation, &split.test].into_iter().zip(fractions);
                prop_assert!(filled.filter(|(_, f)| *f > 0.0).all(|(part, _)| !part.is_empty()));
            }
        }
    }
}
