//! What is told of a policy's answers: figures of an attempt, and their means over questions with spread and interval.

use crate::statistics::{Agreement, Interval, PairedDifference, bootstrap_means, mean, paired_bootstrap, sample_sd};
use napmem_rollout::trajectory::{StopReason, Trajectory};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One number of an attempt.
pub struct Figure {
    /// Key in JSON and CSV.
    pub name: &'static str,
    /// Heading of its column.
    pub heading: &'static str,
    /// The number; NaN where the attempt has none.
    value: fn(&Trajectory) -> f64,
}

impl Figure {
    /// The attempt's number; NaN where it has none.
    pub fn of(&self, trajectory: &Trajectory) -> f64 {
        (self.value)(trajectory)
    }
}

/// All figures, in the order of tables.
pub const FIGURES: [Figure; 15] = [
    Figure { name: "score", heading: "score", value: |t| t.reward.score },
    Figure { name: "accuracy", heading: "right", value: |t| flag(t.reward.outcome.correct) },
    Figure { name: "f1", heading: "F1", value: |t| t.reward.f1 },
    Figure { name: "format", heading: "readable", value: |t| flag(t.reward.outcome.format) },
    Figure { name: "calls", heading: "calls", value: |t| t.tool_steps().count() as f64 },
    Figure {
        name: "evidence_hit_ratio",
        heading: "hit ratio",
        value: |t| t.reward.evidence_hit_ratio.unwrap_or(f64::NAN),
    },
    Figure { name: "evidence_seen", heading: "saw evidence", value: |t| t.reward.evidence_seen.map_or(f64::NAN, flag) },
    Figure { name: "levels", heading: "levels", value: |t| levels(t).len() as f64 },
    Figure { name: "several_levels", heading: "several levels", value: |t| flag(levels(t).len() > 1) },
    Figure { name: "memory_used", heading: "used memory", value: |t| flag(t.reward.outcome.memory_used) },
    Figure { name: "right_without_memory", heading: "right unseen", value: right_without_memory },
    Figure { name: "unnecessary_calls", heading: "needless calls", value: unnecessary_calls },
    Figure { name: "turns", heading: "turns", value: |t| t.turns.len() as f64 },
    Figure { name: "prompt_tokens", heading: "prompt tokens", value: |t| t.num_prompt_tokens as f64 },
    Figure { name: "generated_tokens", heading: "generated tokens", value: |t| t.num_completion_tokens() as f64 },
];

fn flag(flag: bool) -> f64 {
    f64::from(u8::from(flag))
}

fn levels(trajectory: &Trajectory) -> BTreeSet<u8> {
    trajectory.tool_steps().filter_map(|step| step.level).collect()
}

/// Of questions that need memory: a right answer from an attempt that read none of it.
fn right_without_memory(trajectory: &Trajectory) -> f64 {
    let outcome = trajectory.reward.outcome;
    if trajectory.needs_memory { flag(outcome.correct && !outcome.memory_used) } else { f64::NAN }
}

/// Of questions that need no memory: whether a tool was called all the same.
fn unnecessary_calls(trajectory: &Trajectory) -> f64 {
    if trajectory.needs_memory { f64::NAN } else { flag(trajectory.tool_steps().next().is_some()) }
}

/// A figure over all questions, attempts and seeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Over all attempts of all seeds.
    pub mean: f64,
    /// Over the means of the seeds; none for one seed.
    pub sd: Option<f64>,
    /// Of the mean, over questions.
    pub ci95: Interval,
    /// Each seed's mean, in the order of the seeds; none for a seed without values.
    pub seeds: Vec<Option<f64>>,
}

/// What one attempt gave: a row of numbers, NaN where it has none.
#[derive(Debug, Clone, PartialEq)]
pub struct Row<'a> {
    /// At which question.
    pub question_id: &'a str,
    /// Of which run (seed), from 0.
    pub run: usize,
    /// One value a column.
    pub values: Vec<f64>,
}

/// The rows of [`FIGURES`] of trajectories, run by run.
pub fn rows<'a>(runs: impl IntoIterator<Item = &'a [Trajectory]>) -> Vec<Row<'a>> {
    let row = |run: usize, t: &'a Trajectory| Row {
        question_id: &t.question_id,
        run,
        values: FIGURES.iter().map(|figure| figure.of(t)).collect(),
    };
    runs.into_iter().enumerate().flat_map(|(run, part)| part.iter().map(move |t| row(run, t))).collect()
}

/// Each column over all rows; `None` for a column without values. `seed` is that of the resampling.
pub fn summarize(rows: &[Row], seed: u64) -> Vec<Option<Summary>> {
    let num_runs = rows.iter().map(|row| row.run + 1).max().unwrap_or(0);
    let intervals = bootstrap_means(&by_question(rows), seed);
    let of = |column: usize, run: Option<usize>| {
        let chosen = rows.iter().filter(|row| run.is_none_or(|run| row.run == run));
        mean(&chosen.map(|row| row.values[column]).collect::<Vec<_>>())
    };
    intervals
        .into_iter()
        .enumerate()
        .map(|(column, ci95)| {
            let seeds: Vec<Option<f64>> = (0..num_runs).map(|run| of(column, Some(run))).collect();
            let known: Vec<f64> = seeds.iter().copied().flatten().collect();
            Some(Summary { mean: of(column, None)?, sd: sample_sd(&known), ci95: ci95?, seeds })
        })
        .collect()
}

/// Columns with one row a question, the mean over its attempts; questions in the order of their first appearance.
fn by_question(rows: &[Row]) -> Vec<Vec<f64>> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let place = *places.entry(row.question_id).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(row);
    }
    let num_columns = rows.first().map_or(0, |row| row.values.len());
    let of_group = |group: &Vec<&Row>, column: usize| {
        mean(&group.iter().map(|row| row.values[column]).collect::<Vec<_>>()).unwrap_or(f64::NAN)
    };
    (0..num_columns).map(|column| groups.iter().map(|group| of_group(group, column)).collect()).collect()
}

/// How often attempts ended for each reason, in shares.
pub fn stops(trajectories: &[&Trajectory]) -> BTreeMap<String, f64> {
    shares(trajectories, |t| {
        let name = match t.stop {
            StopReason::Answered => "answered",
            StopReason::ToolStepLimit => "tool_step_limit",
            StopReason::TurnLimit => "turn_limit",
            StopReason::TurnTokenLimit => "turn_token_limit",
            StopReason::TotalTokenLimit => "total_token_limit",
        };
        name.to_owned()
    })
}

/// How often attempts began with each tool, in shares; tools that do not exist are `unknown`, no call is `none`.
pub fn first_tools(trajectories: &[&Trajectory], names: &[&str]) -> BTreeMap<String, f64> {
    shares(trajectories, |t| match t.tool_steps().next() {
        None => "none".to_owned(),
        Some(step) => names.iter().find(|name| **name == step.tool).map_or("unknown", |name| *name).to_owned(),
    })
}

/// How often attempts read each level of the pyramid, in shares.
pub fn level_shares(trajectories: &[&Trajectory]) -> BTreeMap<String, f64> {
    let total = trajectories.len().max(1) as f64;
    let touched: Vec<BTreeSet<u8>> = trajectories.iter().map(|t| levels(t)).collect();
    let share = |level| touched.iter().filter(|levels| levels.contains(&level)).count() as f64 / total;
    (1..=4).map(|level| (level.to_string(), share(level))).collect()
}

fn shares(trajectories: &[&Trajectory], name: impl Fn(&Trajectory) -> String) -> BTreeMap<String, f64> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for trajectory in trajectories {
        *counts.entry(name(trajectory)).or_default() += 1;
    }
    let total = trajectories.len().max(1) as f64;
    counts.into_iter().map(|(name, count)| (name, count as f64 / total)).collect()
}

/// Two systems at the same questions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Change of each column that both have values of, second minus first.
    pub differences: Vec<Option<PairedDifference>>,
    /// Right answers; a system is right at a question when more than half of its attempts are.
    pub agreement: Agreement,
    /// Exact McNemar test on the questions that only one got right.
    pub mcnemar_p: f64,
}

/// Compares rows about the same questions in the same order; `accuracy` is the column that says which answers are right.
pub fn compare(first: &[Row], second: &[Row], accuracy: usize, seed: u64) -> Comparison {
    let (first, second) = (by_question(first), by_question(second));
    let differences = paired_bootstrap(&first, &second, seed);
    let right = first[accuracy].iter().zip(&second[accuracy]);
    let agreement = Agreement::count(right.map(|(a, b)| (*a > 0.5, *b > 0.5)));
    Comparison { differences, agreement, mcnemar_p: agreement.mcnemar_p() }
}

/// Place of a figure in [`FIGURES`].
pub fn column(name: &str) -> usize {
    FIGURES.iter().position(|figure| figure.name == name).unwrap_or_else(|| panic!("no figure `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Interval;

    fn row(question_id: &str, run: usize, value: f64) -> Row<'_> {
        Row { question_id, run, values: vec![value, f64::NAN] }
    }

    #[test]
    fn questions_are_the_unit_and_seeds_are_told_apart() {
        // Question a: right under both seeds and in one of two attempts more; b: never.
        let rows = [row("a", 0, 1.0), row("b", 0, 0.0), row("a", 1, 1.0), row("b", 1, 0.0), row("a", 1, 0.0)];
        let summaries = summarize(&rows, 1);
        assert_eq!(summaries.len(), 2);
        let summary = summaries[0].as_ref().unwrap();
        assert_eq!(summary.seeds, [Some(0.5), Some(1.0 / 3.0)]);
        assert!((summary.mean - 0.4).abs() < 1e-12);
        assert!((summary.sd.unwrap() - (1.0 / 6.0) / 2.0_f64.sqrt()).abs() < 1e-12);
        assert_eq!(summary.ci95, Interval { low: 0.0, high: 2.0 / 3.0 }, "means of the questions, two of them");
        assert_eq!(summaries[1], None, "no attempt has a value");
    }

    #[test]
    fn more_than_half_of_the_attempts_make_a_right_question() {
        let first = [row("a", 0, 1.0), row("a", 1, 1.0), row("b", 0, 1.0), row("b", 1, 0.0)];
        let second = [row("a", 0, 1.0), row("a", 1, 0.0), row("b", 0, 1.0), row("b", 1, 1.0)];
        let found = compare(&first, &second, 0, 1);
        assert_eq!(found.agreement, Agreement { both: 0, only_first: 1, only_second: 1, neither: 0 });
        assert_eq!((found.differences[0].unwrap().mean, found.differences[1]), (0.0, None));
        assert_eq!(found.mcnemar_p, 1.0);
    }
}
