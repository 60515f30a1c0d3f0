//! Splitting by user: no user's memory is in two parts, and no person's.

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

/// The person that a user is: what stands before an `@`. Histories of one person, as it was at several times, are users
/// of their own, `p3@1f2e-57` and `p3@1f2e-90`; what was learned of one must not be asked of another.
pub fn person(user: &str) -> &str {
    user.split_once('@').map_or(user, |(person, _)| person)
}

/// Shuffles persons ([`person`]) with `seed` and cuts at the fractions of train, validation and test.
///
/// Sizes go by largest remainder; with at least as many persons as parts of a positive fraction, none of these is empty.
pub fn split_by_user(users: &BTreeSet<String>, fractions: [f64; 3], seed: u64) -> Result<Split, DatasetError> {
    let is_sound = fractions.iter().all(|fraction| *fraction >= 0.0);
    if !is_sound || (fractions.iter().sum::<f64>() - 1.0).abs() > 1e-9 {
        return Err(DatasetError::Fractions(fractions));
    }
    let persons: BTreeSet<&str> = users.iter().map(|user| person(user)).collect();
    let mut shuffled: Vec<&str> = persons.into_iter().collect();
    shuffled.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let [num_train, num_validation, _] = part_sizes(shuffled.len(), fractions);
    let (train, rest) = shuffled.split_at(num_train);
    let (validation, test) = rest.split_at(num_validation);
    let users_of = |part: &[&str]| -> BTreeSet<String> {
        users.iter().filter(|user| part.contains(&person(user))).cloned().collect()
    };
    let split = Split { train: users_of(train), validation: users_of(validation), test: users_of(test) };
    assert_disjoint(&split);
    Ok(split)
}

/// Whatever a name looks like, no person is in two parts.
fn assert_disjoint(split: &Split) {
    let persons = |part: &BTreeSet<String>| -> BTreeSet<String> { part.iter().map(|u| person(u).to_owned()).collect() };
    let [train, validation, test] = [&split.train, &split.validation, &split.test].map(persons);
    assert!(
        train.is_disjoint(&validation) && train.is_disjoint(&test) && validation.is_disjoint(&test),
        "parts share persons: {split:?}"
    );
}

fn part_sizes(num_persons: usize, fractions: [f64; 3]) -> [usize; 3] {
    let exact = fractions.map(|fraction| fraction * num_persons as f64);
    // 0.6 · 5 is a hair under 3; without the hair, floors would depend on rounding.
    let mut sizes = exact.map(|size| (size + 1e-9).floor() as usize);
    let mut by_remainder = [0, 1, 2];
    by_remainder.sort_by(|&a, &b| (exact[b] - sizes[b] as f64).total_cmp(&(exact[a] - sizes[a] as f64)));
    let num_left = num_persons - sizes.iter().sum::<usize>();
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

    #[test]
    fn histories_of_one_person_stay_together() {
        let names = ["p1@a-10", "p1@a-20", "p2@b-5", "p2", "p3@c-1"];
        let all: BTreeSet<String> = names.iter().map(|&name| name.to_owned()).collect();
        for seed in 0..20 {
            let split = split_by_user(&all, [0.4, 0.3, 0.3], seed).unwrap();
            let parts = [&split.train, &split.validation, &split.test];
            assert!(parts.iter().all(|part| part.contains("p1@a-10") == part.contains("p1@a-20")), "{split:?}");
            assert!(parts.iter().all(|part| part.contains("p2@b-5") == part.contains("p2")), "{split:?}");
            assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), 5);
        }
    }

    #[test]
    #[should_panic(expected = "parts share persons")]
    fn a_person_in_two_parts_is_a_broken_invariant() {
        let part = |name: &str| BTreeSet::from([name.to_owned()]);
        assert_disjoint(&Split { train: part("p1@a"), validation: part("p2"), test: part("p1@b") });
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
