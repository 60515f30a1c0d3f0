//! What an evaluation found, as it is kept in `eval.json`: the source of every table and of the report.

use super::figures::{FIGURES, Row, Summary, column, compare, first_tools, level_shares, rows, stops, summarize};
use crate::config::EvalConfig;
use crate::statistics::{Agreement, PairedDifference};
use napmem_rollout::episode::Mode;
use napmem_rollout::question::Question;
use napmem_rollout::tools::Tool;
use napmem_rollout::trajectory::Trajectory;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Trajectories of one policy, mode and seed.
pub struct Run {
    /// The policy's name.
    pub policy: String,
    /// What it could do.
    pub mode: Mode,
    /// Of sampling.
    pub seed: u64,
    /// In the order of questions and attempts.
    pub trajectories: Vec<Trajectory>,
}

/// All rows of an evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvalResults {
    /// Version and commit of the program.
    pub program: String,
    /// Part of the users.
    pub part: String,
    /// Questions of the part.
    pub num_questions: usize,
    /// Attempts at each, under each seed.
    pub num_attempts: usize,
    /// Seeds, in the order of [`Summary::seeds`].
    pub seeds: Vec<u64>,
    /// Figures by name with their headings, in the order of tables.
    pub figures: Vec<(String, String)>,
    /// Policies × modes.
    pub rows: Vec<RowResult>,
    /// Each row but the first against the first.
    pub comparisons: Vec<RowComparison>,
}

/// One policy in one mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowResult {
    /// The policy's name.
    pub policy: String,
    /// What it could do.
    pub mode: Mode,
    /// Figures that have a value.
    pub figures: BTreeMap<String, Summary>,
    /// By the dataset's categories.
    pub categories: BTreeMap<String, CategoryResult>,
    /// Share of attempts by their first tool.
    pub first_tools: BTreeMap<String, f64>,
    /// Share of attempts that read each level.
    pub levels: BTreeMap<String, f64>,
    /// Share of attempts by the reason for their end.
    pub stops: BTreeMap<String, f64>,
}

/// A row's figures over one category.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CategoryResult {
    /// Its questions.
    pub num_questions: usize,
    /// Figures that have a value.
    pub figures: BTreeMap<String, Summary>,
}

/// A row against the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowComparison {
    /// The row's policy.
    pub policy: String,
    /// The row's mode.
    pub mode: Mode,
    /// Row minus first row, by figure.
    pub differences: BTreeMap<String, PairedDifference>,
    /// Right answers; "first" is the first row.
    pub agreement: Agreement,
    /// Exact McNemar test.
    pub mcnemar_p: f64,
}

impl EvalResults {
    /// Sums up `runs`, which come policy by policy, mode by mode, seed by seed.
    pub fn of(eval: &EvalConfig, questions: &[Question], runs: &[Run]) -> Self {
        let seed = eval.asked.config.train.seed;
        let groups: Vec<&[Run]> = runs.chunks(eval.seeds.len()).collect();
        let tables: Vec<Vec<Row>> =
            groups.iter().map(|group| rows(group.iter().map(|run| run.trajectories.as_slice()))).collect();
        let comparisons = groups.iter().zip(&tables).skip(1);
        Self {
            program: format!("napmem {} (commit {})", crate::config::version(), crate::config::commit()),
            part: eval.asked.part.name().to_owned(),
            num_questions: questions.len(),
            num_attempts: eval.asked.num_attempts,
            seeds: eval.seeds.clone(),
            figures: FIGURES.iter().map(|figure| (figure.name.to_owned(), figure.heading.to_owned())).collect(),
            rows: groups.iter().zip(&tables).map(|(group, table)| row_result(group, table, seed)).collect(),
            comparisons: comparisons.map(|(group, table)| comparison(group, &tables[0], table, seed)).collect(),
        }
    }
}

fn named(summaries: Vec<Option<Summary>>) -> BTreeMap<String, Summary> {
    let pairs = FIGURES.iter().zip(summaries);
    pairs.filter_map(|(figure, summary)| Some((figure.name.to_owned(), summary?))).collect()
}

fn row_result(group: &[Run], table: &[Row], seed: u64) -> RowResult {
    let all: Vec<&Trajectory> = group.iter().flat_map(|run| &run.trajectories).collect();
    let mut members: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for trajectory in &all {
        members.entry(&trajectory.category).or_default().insert(&trajectory.question_id);
    }
    let category = |ids: &BTreeSet<&str>| {
        let part: Vec<Row> = table.iter().filter(|row| ids.contains(row.question_id)).cloned().collect();
        CategoryResult { num_questions: ids.len(), figures: named(summarize(&part, seed)) }
    };
    RowResult {
        policy: group[0].policy.clone(),
        mode: group[0].mode,
        figures: named(summarize(table, seed)),
        categories: members.iter().map(|(name, ids)| ((*name).to_owned(), category(ids))).collect(),
        first_tools: first_tools(&all, &Tool::ALL.map(Tool::name)),
        levels: level_shares(&all),
        stops: stops(&all),
    }
}

fn comparison(group: &[Run], first: &[Row], table: &[Row], seed: u64) -> RowComparison {
    let found = compare(first, table, column("accuracy"), seed);
    let pairs = FIGURES.iter().zip(&found.differences);
    RowComparison {
        policy: group[0].policy.clone(),
        mode: group[0].mode,
        differences: pairs.filter_map(|(figure, change)| Some((figure.name.to_owned(), (*change)?))).collect(),
        agreement: found.agreement,
        mcnemar_p: found.mcnemar_p,
    }
}
