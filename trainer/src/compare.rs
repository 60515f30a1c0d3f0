//! Two policies on the same questions under the same random streams: what changed, and how sure that is.

use crate::config::AskedConfig;
use crate::data::Dataset;
use crate::eval::figures::{Comparison, FIGURES, Figure, Summary, column, compare, rows, summarize};
use crate::eval::{answer, chosen_questions};
use crate::judging::OpenJudge;
use crate::policy::Policy;
use crate::statistics::PairedDifference;
use napmem_rollout::trajectory;
use serde_json::json;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// A comparison: `asked.config.model` is the policy before, `after` the one after.
#[derive(Debug, Clone, PartialEq)]
pub struct CompareConfig {
    /// Questions, data, sampling and the policy before.
    pub asked: AskedConfig,
    /// Model folder of the policy after.
    pub after: PathBuf,
    /// When the work that led from one to the other began, seconds since 1970; for `wall_s`.
    pub started_s: Option<u64>,
    /// Results as JSON go here, and both sets of trajectories beside it.
    pub out: Option<PathBuf>,
}

/// Evaluates both, prints the table, writes what the config asks for.
pub fn run(config: &CompareConfig) -> anyhow::Result<()> {
    let asked = &config.asked;
    let before_policy = Policy::load(&asked.config.model)?;
    let dataset = Dataset::of_run(&asked.config, before_policy.decoder.device())?;
    let questions = chosen_questions(asked, &dataset)?;
    let judge = OpenJudge::open(asked.config.judge.as_ref())?;
    let before = answer(asked, &before_policy, judge.as_ref(), &dataset, &questions)?;
    drop(before_policy);
    let mut after_model = asked.config.model.clone();
    after_model.path.clone_from(&config.after);
    let after = answer(asked, &Policy::load(&after_model)?, judge.as_ref(), &dataset, &questions)?;
    let seed = asked.config.train.seed;
    let (old, new) = (rows([before.as_slice()]), rows([after.as_slice()]));
    let compared = Compared {
        before: summarize(&old, seed),
        after: summarize(&new, seed),
        comparison: compare(&old, &new, column("accuracy"), seed),
    };
    crate::say!("{}", compared.table(questions.len()).trim_end());
    if let Some(file) = &config.out {
        let result = json!({
            "held_out": compared.to_json(),
            "agreement": compared.comparison.agreement,
            "mcnemar_p": compared.comparison.mcnemar_p,
            "num_questions": questions.len(),
            "num_attempts": asked.num_attempts,
            "seed": seed,
            "part": asked.part.name(),
            "before": asked.config.model.path,
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

/// Both policies' figures, in the order of [`FIGURES`], and what changed.
struct Compared {
    before: Vec<Option<Summary>>,
    after: Vec<Option<Summary>>,
    comparison: Comparison,
}

impl Compared {
    /// Every figure that both have: itself, its means, its change.
    fn changes(&self) -> impl Iterator<Item = (&'static Figure, f64, f64, PairedDifference)> {
        FIGURES.iter().enumerate().filter_map(|(at, figure)| {
            let (before, after) = (self.before[at].as_ref()?, self.after[at].as_ref()?);
            Some((figure, before.mean, after.mean, self.comparison.differences[at]?))
        })
    }

    fn to_json(&self) -> serde_json::Value {
        let part = |(figure, before, after, change): (&Figure, f64, f64, PairedDifference)| {
            let part = json!({"before": before, "after": after, "delta": change.mean, "delta_ci95": change.ci95});
            (figure.name.to_owned(), part)
        };
        serde_json::Value::Object(self.changes().map(part).collect())
    }

    fn table(&self, num_questions: usize) -> String {
        let mut text = format!("{num_questions} questions about users that were never trained on\n");
        let heads = ["", "before", "after", "change"];
        text.push_str(&format!(
            "{:<18} {:>9} {:>9} {:>9}   95% interval of the change\n",
            heads[0], heads[1], heads[2], heads[3]
        ));
        for (figure, before, after, change) in self.changes() {
            text.push_str(&format!(
                "{:<18} {before:>9.3} {after:>9.3} {:>+9.3}   {:+.3} to {:+.3}\n",
                figure.heading, change.mean, change.ci95.low, change.ci95.high
            ));
        }
        let right = self.comparison.agreement;
        text.push_str(&format!(
            "questions that both got right {}, only before {}, only after {}, neither {}; McNemar's exact p {}\n",
            right.both,
            right.only_first,
            right.only_second,
            right.neither,
            right.mcnemar_text()
        ));
        text + "changes are over questions that both have a value for; intervals by paired bootstrap over them\n"
    }
}
