//! One policy on one part of a dataset: a table for people, JSON for programs.

pub mod figures;

use crate::config::EvalConfig;
use crate::data::{Dataset, mix};
use crate::interrupt::{Interrupt, Interrupted};
use crate::metrics::{Metrics, Progress};
use crate::policy::Policy;
use crate::rollouts::{evaluate, evaluation_metrics};
use napmem_rollout::question::Question;
use napmem_rollout::trajectory::{self, Trajectory};
use serde_json::json;
use std::collections::BTreeMap;

/// Stream of evaluation seeds.
pub const EVALUATION_STREAM: u64 = 3;

/// Evaluates and prints; writes what the config asks for.
pub fn run(eval: &EvalConfig, interrupt: &Interrupt) -> anyhow::Result<()> {
    let policy = Policy::load(&eval.config.model)?;
    let dataset = Dataset::of_run(&eval.config, policy.decoder.device())?;
    let questions = chosen_questions(eval, &dataset)?;
    let trajectories = answer(eval, &policy, &dataset, &questions)?;
    if interrupt.is_requested() {
        return Err(Interrupted { step: 0 }.into());
    }
    crate::say!("{}", table(&trajectories).trim_end());
    if let Some(file) = &eval.trajectories {
        trajectory::write_jsonl(file, &trajectories)?;
    }
    if let Some(file) = &eval.out {
        let by_category: BTreeMap<&str, serde_json::Value> = by_category(&trajectories)
            .into_iter()
            .map(|(name, part)| (name, numbers(&evaluation_metrics(&part))))
            .collect();
        let result = json!({
            "model": eval.config.model.path,
            "part": eval.part.name(),
            "num_questions": questions.len(),
            "num_attempts": eval.num_attempts,
            "seed": eval.config.train.seed,
            "all": numbers(&evaluation_metrics(&trajectories)),
            "categories": by_category,
        });
        fs_err::write(file, serde_json::to_string_pretty(&result)? + "\n")?;
    }
    Ok(())
}

/// The questions that an evaluation asks.
pub fn chosen_questions(eval: &EvalConfig, dataset: &Dataset) -> anyhow::Result<Vec<Question>> {
    let mut questions = dataset.part(eval.part);
    questions.truncate(eval.num_questions.unwrap_or(usize::MAX));
    anyhow::ensure!(!questions.is_empty(), "part `{}` has no questions", eval.part.name());
    Ok(questions)
}

/// Lets a policy answer them, with a progress bar.
pub fn answer(
    eval: &EvalConfig,
    policy: &Policy,
    dataset: &Dataset,
    questions: &[Question],
) -> anyhow::Result<Vec<Trajectory>> {
    let progress = Progress::new();
    let phase = progress.phase("questions", questions.len() as u64, "questions");
    let seed = mix(eval.config.train.seed, EVALUATION_STREAM);
    let advance = |n, tokens| phase.advance(n, tokens);
    let trajectories = evaluate(&eval.config, policy, dataset, questions, (eval.num_attempts, seed), &advance)?;
    phase.finish();
    Ok(trajectories)
}

/// Trajectories by their question's category.
fn by_category(trajectories: &[Trajectory]) -> BTreeMap<&str, Vec<Trajectory>> {
    let mut parts: BTreeMap<&str, Vec<Trajectory>> = BTreeMap::new();
    for trajectory in trajectories {
        parts.entry(&trajectory.category).or_default().push(trajectory.clone());
    }
    parts
}

/// Metrics without their prefix, as a JSON object.
fn numbers(metrics: &Metrics) -> serde_json::Value {
    metrics.iter().map(|(name, value)| (name.trim_start_matches("val/").to_owned(), json!(value))).collect()
}

fn table(trajectories: &[Trajectory]) -> String {
    let mut text = format!(
        "{:<16} {:>5} {:>7} {:>9} {:>6} {:>7} {:>6} {:>9} {:>5}\n",
        "category", "n", "score", "accuracy", "F1", "format", "calls", "hit ratio", "seen"
    );
    let mut parts: Vec<(&str, Vec<Trajectory>)> = by_category(trajectories).into_iter().collect();
    parts.push(("all", trajectories.to_vec()));
    for (name, part) in &parts {
        let metrics = evaluation_metrics(part);
        let number = |name: &str| metrics.get(name).unwrap_or(f64::NAN);
        text.push_str(&format!(
            "{name:<16} {:>5} {:>+7.3} {:>9.3} {:>6.3} {:>7.3} {:>6.2} {:>9.3} {:>5.2}\n",
            part.len(),
            number("val/score_mean"),
            number("val/accuracy"),
            number("val/f1"),
            number("val/format"),
            number("val/tool_calls"),
            number("val/evidence_hit_ratio"),
            number("val/evidence_seen")
        ));
    }
    text
}
