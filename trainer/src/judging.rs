//! Opens the judge that a config names, and holds one against labels.

use crate::config::{JudgeConfig, JudgeModel};
use crate::language::{LanguageSettings, PolicyLanguageModel};
use crate::metrics::Metrics;
use crate::policy::Policy;
use crate::statistics::Agreement;
use anyhow::Context;
use napmem_rollout::answers::{JudgeScope, Judging};
use napmem_rollout::build::{ChatEndpoint, ChatJudge, LabelledAnswer, LanguageModel, RuleModel, read_labels};
use napmem_rollout::generate::{Judge, JudgeCase, Sampling};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// A judge and what it decides.
pub struct OpenJudge {
    judge: ChatJudge,
    scope: JudgeScope,
}

impl OpenJudge {
    /// Opens the judge of a config, if it names one. A model in this process is loaded here and never changes, whatever becomes of
    /// the policy.
    pub fn open(config: Option<&JudgeConfig>) -> anyhow::Result<Option<Self>> {
        let Some(config) = config else { return Ok(None) };
        let model: Arc<dyn LanguageModel> = match &config.model {
            JudgeModel::Rules => Arc::new(RuleModel),
            JudgeModel::Endpoint(endpoint) => Arc::new(ChatEndpoint::new(endpoint, "judge")?),
            JudgeModel::Policy(model) => {
                let sampling = Sampling { temperature: 0.0, top_p: 1.0, top_k: 0 };
                let settings = LanguageSettings { sampling, seed: 0, enable_thinking: false };
                Arc::new(PolicyLanguageModel::start(Policy::load(model)?, settings))
            }
        };
        let judge = ChatJudge::new(model, config.settings.clone())?;
        Ok(Some(Self { judge, scope: config.scope }))
    }

    /// For whoever scores answers.
    pub fn judging(&self) -> Judging<'_> {
        Judging { judge: &self.judge, scope: self.scope }
    }

    /// What the judge was asked so far, for a run's log.
    pub fn log(&self, metrics: &mut Metrics) {
        let totals = self.judge.totals();
        metrics.set("judge/num_calls", totals.calls.num_calls as f64);
        metrics.set("judge/num_failed", totals.calls.num_failed as f64);
        metrics.set("judge/num_cached", totals.num_cached as f64);
        metrics.set("judge/num_input_tokens", totals.calls.num_input_tokens as f64);
        metrics.set("judge/num_output_tokens", totals.calls.num_output_tokens as f64);
        metrics.set("judge/cost", totals.calls.cost());
    }

    /// What the judge was asked, in a line for people.
    pub fn told(&self) -> String {
        let totals = self.judge.totals();
        let calls = totals.calls;
        format!(
            "judge {}: {} calls ({} refused or failed), {} verdicts from the cache, {} + {} tokens, cost {:.4}",
            self.judge.identity(),
            calls.num_calls,
            calls.num_failed,
            totals.num_cached,
            calls.num_input_tokens,
            calls.num_output_tokens,
            calls.cost()
        )
    }
}

/// Lets a judge decide what people labelled, and prints how far the two agree; writes JSON to `out`.
pub fn validate(config: &JudgeConfig, labels: &Path, out: Option<&Path>) -> anyhow::Result<()> {
    let labels = read_labels(labels)?;
    let open = OpenJudge::open(Some(config))?.expect("a judge is configured");
    let cases: Vec<JudgeCase> = labels.iter().map(LabelledAnswer::case).collect();
    let verdicts = open
        .judge
        .judge(&cases)
        .into_iter()
        .zip(&labels)
        .map(|(verdict, label)| {
            verdict
                .map_err(|error| anyhow::anyhow!(error))
                .with_context(|| format!("the judge failed at the answer {:?}", label.answer))
        })
        .collect::<anyhow::Result<Vec<bool>>>()?;
    let pairs = labels.iter().map(|label| label.correct).zip(verdicts.iter().copied());
    let counts = Agreement::count(pairs.clone());
    let number = |value: Option<f64>| value.map_or("undefined".to_owned(), |value| format!("{value:.4}"));
    crate::say!("{} labelled answers", labels.len());
    for (name, value) in [
        ("accuracy", counts.accuracy()),
        ("precision", counts.precision()),
        ("recall", counts.recall()),
        ("Cohen's kappa", counts.kappa()),
    ] {
        crate::say!("{name:<14} {}", number(value));
    }
    crate::say!(
        "both say right {}, only the label {}, only the judge {}, neither {}",
        counts.both,
        counts.only_first,
        counts.only_second,
        counts.neither
    );
    crate::say!("{}", open.told());
    if let Some(file) = out {
        let disagreements: Vec<_> =
            labels.iter().zip(&verdicts).filter(|(l, v)| l.correct != **v).map(|(l, _)| l).collect();
        let result = json!({
            "num_labels": labels.len(),
            "counts": counts,
            "accuracy": counts.accuracy(),
            "precision": counts.precision(),
            "recall": counts.recall(),
            "kappa": counts.kappa(),
            "judge": open.judge.identity(),
            "disagreements": disagreements,
        });
        fs_err::write(file, serde_json::to_string_pretty(&result)? + "\n")?;
    }
    Ok(())
}
