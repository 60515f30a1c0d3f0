//! Two policies on the same questions under the same random streams: what changed, and how sure that is.

use crate::config::EvalConfig;
use crate::data::Dataset;
use crate::eval::figures::{Comparison, FIGURES, Summary, compare, summarize};
use crate::eval::{answer, chosen_questions};
use crate::policy::Policy;
use napmem_rollout::trajectory::{self, Trajectory};
use serde_json::json;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// A comparison: `eval.config.model` is the policy before, `after` the one after.
#[derive(Debug, Clone, PartialEq)]
pub struct CompareConfig {
    /// Questions, data, sampling and the policy before.
    pub eval: EvalConfig,
    /// Model folder of the policy after.
    pub after: PathBuf,
    /// When the work that led from one to the other began, seconds since 1970; for `wall_s`.
    pub started_s: Option<u64>,
    /// Results as JSON go here, and both sets of trajectories beside it.
    pub out: Option<PathBuf>,
}

/// Evaluates both, prints the table, writes what the config asks for.
pub fn run(config: &CompareConfig) -> anyhow::Result<()> {
    let eval = &config.eval;
    let before_policy = Policy::load(&eval.config.model)?;
    let dataset = Dataset::of_run(&eval.config, before_policy.decoder.device())?;
    let questions = chosen_questions(eval, &dataset)?;
    let before = answer(eval, &before_policy, &dataset, &questions)?;
    drop(before_policy);
    let mut after_model = eval.config.model.clone();
    after_model.path.clone_from(&config.after);
    let after = answer(eval, &Policy::load(&after_model)?, &dataset, &questions)?;
    let (old, new): (Vec<&Trajectory>, Vec<&Trajectory>) = (before.iter().collect(), after.iter().collect());
    let seed = eval.config.train.seed;
    let compared = Compared {
        before: summarize(&[&old], seed),
        after: summarize(&[&new], seed),
        comparison: compare(&[&old], &[&new], seed),
    };
    crate::say!("{}", compared.table(questions.len()).trim_end());
    if let Some(file) = &config.out {
        let result = json!({
            "held_out": compared.to_json(),
            "agreement": compared.comparison.agreement,
            "mcnemar_p": compared.comparison.mcnemar_p,
            "num_questions": questions.len(),
            "num_attempts": eval.num_attempts,
            "seed": seed,
            "part": eval.part.name(),
            "before": eval.config.model.path,
            "after": config.after,
            "wall_s": config.started_s.map(seconds_since),
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

type Summaries = Vec<(&'static str, Summary)>;

/// Both policies' figures and what changed.
struct Compared {
    before: Summaries,
    after: Summaries,
    comparison: Comparison,
}

fn mean_of(summaries: &Summaries, name: &str) -> Option<f64> {
    summaries.iter().find(|(found, _)| *found == name).map(|(_, summary)| summary.mean)
}

impl Compared {
    fn to_json(&self) -> serde_json::Value {
        let mut parts = serde_json::Map::new();
        for (name, difference) in &self.comparison.differences {
            let part = json!({
                "before": mean_of(&self.before, name),
                "after": mean_of(&self.after, name),
                "delta": difference.mean,
                "delta_ci95": difference.ci95,
            });
            parts.insert(name.clone(), part);
        }
        parts.into()
    }

    fn table(&self, num_questions: usize) -> String {
        let mut text = format!("{num_questions} questions about users that were never trained on\n");
        text.push_str(&format!(
            "{:<18} {:>9} {:>9} {:>9}   95% interval of the change\n",
            "", "before", "after", "change"
        ));
        for figure in &FIGURES {
            let (before, after) = (mean_of(&self.before, figure.name), mean_of(&self.after, figure.name));
            let difference = self.comparison.differences.get(figure.name);
            if let (Some(before), Some(after), Some(difference)) = (before, after, difference) {
                text.push_str(&format!(
                    "{:<18} {before:>9.3} {after:>9.3} {:>+9.3}   {:+.3} to {:+.3}\n",
                    figure.heading, difference.mean, difference.ci95.low, difference.ci95.high
                ));
            }
        }
        let right = self.comparison.agreement;
        text.push_str(&format!(
            "questions that both got right {}, only before {}, only after {}, neither {}; McNemar's exact p {:.4}\n",
            right.both, right.only_first, right.only_second, right.neither, self.comparison.mcnemar_p
        ));
        text + "changes are over questions that both have a value for; intervals by paired bootstrap over them\n"
    }
}
