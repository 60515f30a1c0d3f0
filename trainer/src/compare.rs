//! Two policies on the same questions under the same random streams: what changed, and how sure that is.

use crate::config::EvalConfig;
use crate::data::Dataset;
use crate::eval::{answer, chosen_questions};
use crate::metrics::Metrics;
use crate::policy::Policy;
use crate::rollouts::evaluation_metrics;
use napmem_rollout::trajectory::{self, Trajectory};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Resamples of the bootstrap.
const RESAMPLES: usize = 10_000;

/// A comparison: `eval.config.model` is the policy before, `after` the one after.
#[derive(Debug, Clone, PartialEq)]
pub struct CompareConfig {
    /// Questions, data, sampling and the policy before.
    pub eval: EvalConfig,
    /// Model folder of the policy after.
    pub after: PathBuf,
    /// When the work that led from one to the other began, seconds since 1970; for `wall_s`.
    pub started_s: Option<u64>,
}

/// What is compared: name in the summary, heading, metric.
const COMPARED: [(&str, &str, &str); 6] = [
    ("score", "mean rubric score", "val/score_mean"),
    ("accuracy", "accuracy", "val/accuracy"),
    ("evidence_hit_ratio", "evidence hit ratio", "val/evidence_hit_ratio"),
    ("evidence_seen", "attempts that saw evidence", "val/evidence_seen"),
    ("calls", "tool calls per question", "val/tool_calls"),
    ("format", "readable answers", "val/format"),
];

/// Evaluates both, prints the table, writes `eval.out` and, beside it, both sets of trajectories.
pub fn run(compare: &CompareConfig) -> anyhow::Result<()> {
    let eval = &compare.eval;
    let before_policy = Policy::load(&eval.config.model)?;
    let dataset = Dataset::of_run(&eval.config, before_policy.decoder.device())?;
    let questions = chosen_questions(eval, &dataset)?;
    let before = answer(eval, &before_policy, &dataset, &questions)?;
    drop(before_policy);
    let mut after_model = eval.config.model.clone();
    after_model.path.clone_from(&compare.after);
    let after = answer(eval, &Policy::load(&after_model)?, &dataset, &questions)?;
    let interval = paired_interval(&before, &after, eval.num_attempts, eval.config.train.seed);
    let (old, new) = (evaluation_metrics(&before), evaluation_metrics(&after));
    crate::say!("{}", table(&old, &new, interval, questions.len()).trim_end());
    if let Some(file) = &eval.out {
        let wall_s = compare.started_s.map(seconds_since);
        let result = json!({
            "held_out": held_out(&old, &new, interval),
            "num_questions": questions.len(),
            "num_attempts": eval.num_attempts,
            "seed": eval.config.train.seed,
            "part": eval.part.name(),
            "before": eval.config.model.path,
            "after": compare.after,
            "wall_s": wall_s,
        });
        fs_err::write(file, serde_json::to_string_pretty(&result)? + "\n")?;
        trajectory::write_jsonl(&file.with_file_name("before.jsonl"), &before)?;
        trajectory::write_jsonl(&file.with_file_name("after.jsonl"), &after)?;
    }
    Ok(())
}

fn seconds_since(start_s: u64) -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs().saturating_sub(start_s))
}

/// 95% interval of the difference of mean scores, by resampling questions (with all their attempts) in pairs: percentile
/// bootstrap (Efron & Tibshirani 1993, ch. 13).
fn paired_interval(before: &[Trajectory], after: &[Trajectory], num_attempts: usize, seed: u64) -> (f64, f64) {
    let mean = |part: &[Trajectory]| part.iter().map(|t| t.reward.score).sum::<f64>() / part.len() as f64;
    let pairs = before.chunks(num_attempts).zip(after.chunks(num_attempts));
    let deltas: Vec<f64> = pairs.map(|(b, a)| mean(a) - mean(b)).collect();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            (0..deltas.len()).map(|_| deltas[random.random_range(0..deltas.len())]).sum::<f64>() / deltas.len() as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    (means[RESAMPLES * 25 / 1000], means[RESAMPLES * 975 / 1000 - 1])
}

fn held_out(old: &Metrics, new: &Metrics, interval: (f64, f64)) -> serde_json::Value {
    let mut parts = serde_json::Map::new();
    for (name, _, metric) in COMPARED {
        parts.insert(name.to_owned(), json!({"before": old.get(metric), "after": new.get(metric)}));
    }
    parts["score"]["delta_ci95"] = json!([interval.0, interval.1]);
    parts.into()
}

fn table(old: &Metrics, new: &Metrics, interval: (f64, f64), num_questions: usize) -> String {
    let mut text = format!("{num_questions} questions about users that were never trained on\n");
    text.push_str(&format!("{:<26} {:>8} {:>8} {:>8}\n", "", "before", "after", "change"));
    for (_, heading, metric) in COMPARED {
        let (b, a) = (old.get(metric).unwrap_or(f64::NAN), new.get(metric).unwrap_or(f64::NAN));
        text.push_str(&format!("{heading:<26} {b:>8.3} {a:>8.3} {:>+8.3}\n", a - b));
    }
    text + &format!("change of the score, 95% paired bootstrap interval: {:+.3} to {:+.3}\n", interval.0, interval.1)
}
