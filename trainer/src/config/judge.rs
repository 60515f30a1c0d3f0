//! The `[judge]` section: who decides where no mechanical rule can, and about which questions.

use super::validate::Check;
use super::{ConfigError, LanguageKind, ModelSection, Source};
use napmem_rollout::answers::JudgeScope;
use napmem_rollout::build::{EndpointSettings, JudgeSettings, Prices};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// `[judge]` as typed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JudgeSection {
    /// Who decides: rules (to try the path), the endpoint of `[judge.endpoint]`, or a model in this process that never changes.
    pub kind: LanguageKind,
    /// Only questions whose rule is `judge`, or all that a threshold of F1 would decide.
    pub scope: JudgeScope,
    /// Folder that keeps verdicts and the ledger; none keeps verdicts for this process alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<PathBuf>,
    /// Tokens that a verdict may have.
    pub max_reply_tokens: usize,
    /// Times that a refused reply is asked for again.
    pub max_refusals: u32,
    /// What tokens cost.
    pub prices: Prices,
    /// The endpoint of `kind = "endpoint"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<EndpointSettings>,
    /// The model of `kind = "policy"`; the config's `[model]` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelSection>,
}

impl Default for JudgeSection {
    fn default() -> Self {
        Self {
            kind: LanguageKind::Rules,
            scope: JudgeScope::Required,
            cache: None,
            max_reply_tokens: 128,
            max_refusals: 2,
            prices: Prices::default(),
            endpoint: None,
            model: None,
        }
    }
}

/// Who decides, checked.
#[derive(Debug, Clone, PartialEq)]
pub enum JudgeModel {
    /// Fixed rules.
    Rules,
    /// A chat-completions endpoint.
    Endpoint(EndpointSettings),
    /// A model in this process, taking the most likely token.
    Policy(ModelSection),
}

/// A judge, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgeConfig {
    /// Who decides.
    pub model: JudgeModel,
    /// About which questions.
    pub scope: JudgeScope,
    /// Limits, prices, cache.
    pub settings: JudgeSettings,
}

/// The sections of a config that a judge alone needs; others may stand beside them.
#[derive(Deserialize, Default)]
#[serde(default)]
struct JudgeFile {
    judge: Option<JudgeSection>,
    model: Option<ModelSection>,
}

impl JudgeConfig {
    /// Reads `[judge]` (and `[model]`, for a judge that uses it) of any config file; other sections are not looked at.
    ///
    /// # Errors
    /// There is no such section, or it does not hold.
    pub fn load(file: &Path, overrides: &[String]) -> Result<Self, ConfigError> {
        let source = Source::read(file, overrides)?;
        let JudgeFile { judge, model } = source.parse()?;
        let judge = judge.ok_or_else(|| source.error("judge", "is missing; the section says who decides"))?;
        Self::check(&source, &judge, model.as_ref())
    }

    /// Checks the section; `model` is the config's own `[model]`.
    pub(super) fn check(
        source: &Source,
        judge: &JudgeSection,
        model: Option<&ModelSection>,
    ) -> Result<Self, ConfigError> {
        let check = Check { source };
        check.at_least("judge.max_reply_tokens", judge.max_reply_tokens, 1)?;
        check.within("judge.max_refusals", f64::from(judge.max_refusals), 0.0..=20.0)?;
        for (key, price) in [
            ("judge.prices.input_per_million", judge.prices.input_per_million),
            ("judge.prices.output_per_million", judge.prices.output_per_million),
        ] {
            check.within(key, price, 0.0..=1e6)?;
        }
        if judge.cache.as_ref().is_some_and(|dir| dir.is_file()) {
            return Err(source.error("judge.cache", "must be a folder, but is a file"));
        }
        let model = match judge.kind {
            LanguageKind::Rules => JudgeModel::Rules,
            LanguageKind::Endpoint => {
                let missing =
                    || source.error("judge.kind", "is \"endpoint\", which needs a `[judge.endpoint]` section");
                let endpoint = judge.endpoint.as_ref().ok_or_else(missing)?;
                endpoint.check().map_err(|(key, why)| source.error(&format!("judge.{key}"), why))?;
                JudgeModel::Endpoint(endpoint.clone())
            }
            LanguageKind::Policy => {
                let missing =
                    || source.error("judge.kind", "is \"policy\", which needs a `[judge.model]` or `[model]` section");
                let (key, model) = match (&judge.model, model) {
                    (Some(own), _) => ("judge.model", own),
                    (None, Some(model)) => ("model", model),
                    (None, None) => return Err(missing()),
                };
                check.model_at(key, model)?;
                JudgeModel::Policy(model.clone())
            }
        };
        Ok(Self {
            model,
            scope: judge.scope,
            settings: JudgeSettings {
                max_reply_tokens: judge.max_reply_tokens,
                max_refusals: judge.max_refusals,
                prices: judge.prices,
                cache: judge.cache.clone(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<JudgeConfig, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        fs_err::write(&file, text).unwrap();
        JudgeConfig::load(&file, &[]).map_err(|error| error.to_string())
    }

    #[test]
    fn a_section_among_others_is_enough() {
        let config = load("[judge]\nscope = \"all\"\n[train]\nseed = 3\n").unwrap();
        assert_eq!((config.model, config.scope), (JudgeModel::Rules, JudgeScope::All));
        let text = "[judge]\nkind = \"endpoint\"\nmax_refusals = 4\n[judge.endpoint]\nmodel = \"m\"\n";
        let config = load(text).unwrap();
        assert!(matches!(&config.model, JudgeModel::Endpoint(endpoint) if endpoint.model == "m"));
        assert_eq!(config.settings.max_refusals, 4);
    }

    #[test]
    fn complaints_name_key_and_what_is_allowed() {
        let cases = [
            ("[train]\nseed = 1\n", "`judge` is missing"),
            ("[judge]\nkind = \"oracle\"\n", "judge.kind"),
            ("[judge]\nscopes = \"all\"\n", "did you mean `scope`?"),
            ("[judge]\nkind = \"endpoint\"\n", "needs a `[judge.endpoint]` section"),
            (
                "[judge]\nkind = \"endpoint\"\n[judge.endpoint]\nmodel = \"\"\n",
                "`judge.endpoint.model` must name a model",
            ),
            (
                "[judge]\nkind = \"endpoint\"\n[judge.endpoint]\nmodel = \"m\"\ntimeout_s = 0.0\n",
                "`judge.endpoint.timeout_s` must be 0.001 to 86400 seconds, got 0",
            ),
            ("[judge]\nkind = \"policy\"\n", "needs a `[judge.model]` or `[model]` section"),
            (
                "[judge]\nkind = \"policy\"\n[judge.model]\npath = \"/nowhere\"\n",
                "`judge.model.path` must be an existing",
            ),
            ("[judge]\nmax_reply_tokens = 0\n", "`judge.max_reply_tokens` must be at least 1, got 0"),
            ("[judge.prices]\ninput_per_million = -1.0\n", "`judge.prices.input_per_million`"),
            ("[judge]\ncache = \"/etc/passwd\"\n", "`judge.cache` must be a folder"),
        ];
        for (text, expected) in cases {
            let error = load(text).unwrap_err();
            assert!(error.contains(expected), "{error} / {expected}");
        }
    }
}
