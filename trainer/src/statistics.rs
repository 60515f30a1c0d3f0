//! How sure a number is: spread over seeds, bootstrap intervals over questions, paired comparisons, agreement.
//!
//! Pure functions: what is random in them follows from an explicit seed. The unit of every resampling is a question with all
//! its attempts and seeds, because attempts at one question depend on each other.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// Resamples of a bootstrap: its bounds are then known to about 0.03 standard errors.
pub const RESAMPLES: usize = 10_000;

/// A 95% interval; in JSON `[low, high]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "(f64, f64)", into = "(f64, f64)")]
pub struct Interval {
    /// 2.5th percentile.
    pub low: f64,
    /// 97.5th percentile.
    pub high: f64,
}

impl From<(f64, f64)> for Interval {
    fn from((low, high): (f64, f64)) -> Self {
        Self { low, high }
    }
}

impl From<Interval> for (f64, f64) {
    fn from(interval: Interval) -> Self {
        (interval.low, interval.high)
    }
}

/// Mean of the values that are not NaN; `None` where all are.
pub fn mean(values: &[f64]) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0usize);
    for value in values.iter().filter(|value| !value.is_nan()) {
        sum += value;
        count += 1;
    }
    (count > 0).then(|| sum / count as f64)
}

/// Standard deviation of a sample (divided by n − 1); `None` for fewer than two values.
pub fn sample_sd(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let center = values.iter().sum::<f64>() / values.len() as f64;
    let squares = values.iter().map(|value| (value - center).powi(2)).sum::<f64>();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// 95% intervals of the means of several columns with one row a question: percentile bootstrap (Efron & Tibshirani 1993, ch. 13).
///
/// All columns see the same resamples. NaN stands for a value that a question does not have: it is left out of its column's mean.
/// `None` for a column without values.
pub fn bootstrap_means(columns: &[Vec<f64>], seed: u64) -> Vec<Option<Interval>> {
    let num_rows = columns.first().map_or(0, Vec::len);
    assert!(columns.iter().all(|column| column.len() == num_rows), "columns differ in length");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut means: Vec<Vec<f64>> = vec![Vec::with_capacity(RESAMPLES); columns.len()];
    let mut drawn = vec![0usize; num_rows];
    for _ in 0..if num_rows == 0 { 0 } else { RESAMPLES } {
        drawn.fill_with(|| random.random_range(0..num_rows));
        for (column, means) in columns.iter().zip(&mut means) {
            let (mut sum, mut count) = (0.0, 0usize);
            for value in drawn.iter().map(|&row| column[row]).filter(|value| !value.is_nan()) {
                sum += value;
                count += 1;
            }
            if count > 0 {
                means.push(sum / count as f64);
            }
        }
    }
    means.into_iter().map(percentiles).collect()
}

fn percentiles(mut values: Vec<f64>) -> Option<Interval> {
    values.sort_by(f64::total_cmp);
    let low = quantile(&values, 0.025)?;
    Some(Interval { low, high: quantile(&values, 0.975)? })
}

/// Quantile of sorted values, linear between neighbours, as NumPy's default.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let position = share * sorted.len().checked_sub(1)? as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    Some(sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64))
}

/// What changed from one run to another, question by question.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PairedDifference {
    /// Mean of second minus first.
    pub mean: f64,
    /// 95% interval of it, by resampling questions in pairs.
    pub ci95: Interval,
}

/// The paired bootstrap over columns with one row a question: both runs' values of a question stay together. Questions that either
/// run has no value for (NaN) are left out of their column; `None` where none remains.
pub fn paired_bootstrap(first: &[Vec<f64>], second: &[Vec<f64>], seed: u64) -> Vec<Option<PairedDifference>> {
    let columns = first.iter().zip(second);
    assert!(columns.clone().all(|(a, b)| a.len() == b.len()), "a paired comparison needs the same questions");
    let differences: Vec<Vec<f64>> = columns.map(|(a, b)| a.iter().zip(b).map(|(a, b)| b - a).collect()).collect();
    let intervals = bootstrap_means(&differences, seed);
    let paired = differences.iter().zip(intervals);
    paired.map(|(column, ci95)| Some(PairedDifference { mean: mean(column)?, ci95: ci95? })).collect()
}

/// Which of two runs was right at which questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Agreement {
    /// Both right.
    pub both: usize,
    /// Only the first.
    pub only_first: usize,
    /// Only the second.
    pub only_second: usize,
    /// Neither.
    pub neither: usize,
}

impl Agreement {
    /// Counts over pairs.
    pub fn count(pairs: impl IntoIterator<Item = (bool, bool)>) -> Self {
        let mut counts = Self::default();
        for pair in pairs {
            *match pair {
                (true, true) => &mut counts.both,
                (true, false) => &mut counts.only_first,
                (false, true) => &mut counts.only_second,
                (false, false) => &mut counts.neither,
            } += 1;
        }
        counts
    }

    /// Exact McNemar test: the two-sided probability of a split at least as uneven as that of the questions that only one run
    /// got right, if either run were as likely to be the one. 1 where there are none.
    pub fn mcnemar_p(&self) -> f64 {
        let (num, fewer) = (self.only_first + self.only_second, self.only_first.min(self.only_second));
        let log_factorials: Vec<f64> = std::iter::once(0.0)
            .chain((1..=num).scan(0.0, |sum, n| {
                *sum += (n as f64).ln();
                Some(*sum)
            }))
            .collect();
        let log_choose = |k: usize| log_factorials[num] - log_factorials[k] - log_factorials[num - k];
        let tail: f64 = (0..=fewer).map(|k| (log_choose(k) - num as f64 * std::f64::consts::LN_2).exp()).sum();
        (2.0 * tail).min(1.0)
    }

    /// [`Self::mcnemar_p`] as tables show it.
    pub fn mcnemar_text(&self) -> String {
        match self.mcnemar_p() {
            p if p < 1e-4 => "below 0.0001".to_owned(),
            p => format!("{p:.4}"),
        }
    }

    /// Cohen's kappa (Cohen 1960): agreement beyond what the two shares of "right" alone would give. `None` where both sides
    /// always say the same one thing, so that chance alone agrees fully, and for no pairs.
    pub fn kappa(&self) -> Option<f64> {
        let [both, only_first, only_second, neither] = self.as_f64();
        let total = both + only_first + only_second + neither;
        let observed = (both + neither) / total;
        let (first, second) = ((both + only_first) / total, (both + only_second) / total);
        let expected = first * second + (1.0 - first) * (1.0 - second);
        Some((observed - expected) / (1.0 - expected)).filter(|kappa| kappa.is_finite())
    }

    /// Share of pairs that agree; `None` for no pairs.
    pub fn accuracy(&self) -> Option<f64> {
        let [both, only_first, only_second, neither] = self.as_f64();
        share(both + neither, both + only_first + only_second + neither)
    }

    /// With the truth first and a verdict second: how many of the verdicts "right" are true; `None` where there is none.
    pub fn precision(&self) -> Option<f64> {
        let [both, _, only_second, _] = self.as_f64();
        share(both, both + only_second)
    }

    /// With the truth first and a verdict second: how much of what is right was found; `None` where nothing is right.
    pub fn recall(&self) -> Option<f64> {
        let [both, only_first, ..] = self.as_f64();
        share(both, both + only_first)
    }

    fn as_f64(&self) -> [f64; 4] {
        [self.both, self.only_first, self.only_second, self.neither].map(|count| count as f64)
    }
}

fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// What scipy and scikit-learn compute: `tests/fixtures/statistics_scipy.py`.
    fn fixture() -> Value {
        serde_json::from_str(include_str!("../../tests/fixtures/statistics.json")).unwrap()
    }

    fn numbers(value: &Value) -> Vec<f64> {
        value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap_or(f64::NAN)).collect()
    }

    fn near(found: f64, expected: &Value, tolerance: f64, what: &str) {
        let expected = expected.as_f64().unwrap_or_else(|| panic!("{what}: {expected}"));
        assert!((found - expected).abs() <= tolerance, "{what}: {found}, scipy says {expected}");
    }

    #[test]
    fn intervals_equal_scipys_but_for_chance() {
        for case in fixture()["samples"].as_array().unwrap() {
            let (name, first, second) = (case["name"].as_str().unwrap(), numbers(&case["a"]), numbers(&case["b"]));
            near(mean(&first).unwrap(), &case["mean"], 1e-12, name);
            near(sample_sd(&first).unwrap(), &case["sd"], 1e-12, name);
            // Bounds of 10,000 resamples scatter by 0.027 standard errors of the mean; on few questions they also move in steps.
            let slack = |values: &[f64]| 0.15 * sample_sd(values).unwrap() / (values.len() as f64).sqrt();
            let interval = bootstrap_means(std::slice::from_ref(&first), 1)[0].unwrap();
            near(interval.low, &case["ci95"][0], slack(&first), name);
            near(interval.high, &case["ci95"][1], slack(&first), name);
            let differences: Vec<f64> = first.iter().zip(&second).map(|(a, b)| b - a).collect();
            let paired = paired_bootstrap(&[first], &[second], 1)[0].unwrap();
            near(paired.mean, &case["difference"], 1e-12, name);
            near(paired.ci95.low, &case["difference_ci95"][0], slack(&differences), name);
            near(paired.ci95.high, &case["difference_ci95"][1], slack(&differences), name);
        }
    }

    #[test]
    fn mcnemar_equals_scipys_binomial_test() {
        for case in fixture()["mcnemar"].as_array().unwrap() {
            let count = |key: &str| usize::try_from(case[key].as_u64().unwrap()).unwrap();
            let (only_first, only_second) = (count("only_first"), count("only_second"));
            let p = Agreement { both: 3, only_first, only_second, neither: 1 }.mcnemar_p();
            near(p, &case["p"], 1e-10, &format!("{only_first} {only_second}"));
        }
    }

    #[test]
    fn kappa_equals_scikit_learns() {
        for case in fixture()["labels"].as_array().unwrap() {
            let flags = |key: &str| -> Vec<bool> {
                case[key].as_array().unwrap().iter().map(|v| v.as_i64() == Some(1)).collect()
            };
            let counts = Agreement::count(flags("truth").into_iter().zip(flags("verdict")));
            for (key, found) in [
                ("accuracy", counts.accuracy()),
                ("precision", counts.precision()),
                ("recall", counts.recall()),
                ("kappa", counts.kappa()),
            ] {
                match found {
                    Some(found) => near(found, &case[key], 1e-12, key),
                    None => assert!(case[key].is_null(), "{key}: scikit-learn says {}", case[key]),
                }
            }
        }
    }

    #[test]
    fn missing_values_are_left_out() {
        let nan = f64::NAN;
        assert_eq!(mean(&[1.0, nan, 3.0]), Some(2.0));
        assert_eq!((mean(&[nan]), mean(&[]), sample_sd(&[1.0])), (None, None, None));
        let columns = [vec![nan, nan], vec![nan, 0.25], vec![0.0, 1.0]];
        let intervals = bootstrap_means(&columns, 0);
        assert_eq!((intervals[0], intervals[1]), (None, Some(Interval { low: 0.25, high: 0.25 })));
        assert_eq!(intervals[2], Some(Interval { low: 0.0, high: 1.0 }));
        assert_eq!(paired_bootstrap(&[vec![nan, 1.0]], &[vec![1.0, nan]], 0), [None]);
        assert_eq!(bootstrap_means(&[vec![]], 0), [None]);
        assert_eq!(Agreement::default().kappa(), None);
        assert_eq!(Agreement::default().mcnemar_text(), "1.0000");
        assert_eq!(Agreement { only_first: 30, ..Agreement::default() }.mcnemar_text(), "below 0.0001");
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let values: Vec<f64> = (0..40).map(|i| f64::from(i % 7)).collect();
        let both = |seed| bootstrap_means(&[values.clone(), values.clone()], seed);
        assert_eq!(both(3), both(3));
        assert_eq!(both(3)[0], both(3)[1], "columns share their resamples");
        assert_ne!(both(3), both(4));
    }
}
