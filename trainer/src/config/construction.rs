//! Config of `napmem build`: histories in, pyramids out, and the language model between them.

use super::validate::Check;
use super::{ConfigError, Embedder, EmbedderConfig, ModelSection, Source};
use napmem_rollout::build::{BuildError, BuildSettings};
use napmem_rollout::generate::Sampling;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Who reads the conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LanguageKind {
    /// Fixed rules and no language model: to try the pipeline, not to use the pyramid.
    #[default]
    Rules,
    /// The chat-completions endpoint of `[build.endpoint]`.
    Endpoint,
    /// The model of `[model]`, in this process.
    Policy,
}

/// The `[language]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LanguageSection {
    /// Who reads.
    pub kind: LanguageKind,
    /// Divides the logits; 0 takes the most likely token. Of `kind = "policy"` alone, like all that follows.
    pub temperature: f64,
    /// Nucleus; 1 keeps all.
    pub top_p: f64,
    /// Most likely tokens kept; 0 keeps all.
    pub top_k: usize,
    /// Seed of sampling.
    pub seed: u64,
    /// Let the chat template open a thinking block.
    pub enable_thinking: bool,
}

impl Default for LanguageSection {
    fn default() -> Self {
        Self { kind: LanguageKind::Rules, temperature: 0.0, top_p: 1.0, top_k: 0, seed: 0, enable_thinking: false }
    }
}

/// The `[data]` section of a build.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct BuildDataSection {
    histories: PathBuf,
    pyramids: PathBuf,
    embedder: Embedder,
    embedder_dimension: Option<usize>,
    users: Vec<String>,
}

/// A build's config as typed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawBuild {
    model: Option<ModelSection>,
    data: BuildDataSection,
    language: LanguageSection,
    build: BuildSettings,
}

/// A checked build config.
#[derive(Debug, Clone, PartialEq)]
pub struct BuildConfig {
    /// Folder with one folder a user that has a `conversations.jsonl`, as `napmem import` writes it.
    pub histories: PathBuf,
    /// Folder that gets one pyramid a user.
    pub pyramids: PathBuf,
    /// The embedder of the dense search.
    pub embedder: EmbedderConfig,
    /// Only these users; all when empty.
    pub users: Vec<String>,
    /// Who reads.
    pub language: LanguageSection,
    /// The model of `kind = "policy"`.
    pub model: Option<ModelSection>,
    /// Limits, triggers, prompts, prices, endpoint.
    pub settings: BuildSettings,
}

impl BuildConfig {
    /// Reads and checks a config file with overrides on top.
    pub fn load(file: &Path, overrides: &[String]) -> Result<Self, ConfigError> {
        let source = Source::read(file, overrides)?;
        let raw: RawBuild = source.parse()?;
        check(&source, &raw)?;
        let BuildDataSection { histories, pyramids, embedder, embedder_dimension, users } = raw.data;
        let embedder = EmbedderConfig::of_config(&source, &embedder, embedder_dimension)?;
        Ok(Self { histories, pyramids, embedder, users, language: raw.language, model: raw.model, settings: raw.build })
    }

    /// How the policy draws its tokens.
    pub fn sampling(&self) -> Sampling {
        let LanguageSection { temperature, top_p, top_k, .. } = self.language;
        Sampling { temperature, top_p, top_k }
    }
}

fn check(source: &Source, raw: &RawBuild) -> Result<(), ConfigError> {
    let check = Check { source };
    let RawBuild { model, data, language, build } = raw;
    check.path("data.histories", &data.histories, Path::is_dir, "folder")?;
    if data.pyramids.as_os_str().is_empty() {
        return Err(source.error("data.pyramids", "must name the folder that gets the pyramids"));
    }
    if is_same(&data.histories, &data.pyramids) {
        let problem = "must be another folder than `data.histories`, whose levels no build made";
        return Err(source.error("data.pyramids", problem));
    }
    check.within("language.temperature", language.temperature, 0.0..)?;
    check.within("language.top_p", language.top_p, (std::ops::Bound::Excluded(0.0), std::ops::Bound::Included(1.0)))?;
    match (language.kind, model, &build.endpoint) {
        (LanguageKind::Policy, Some(model), _) => check.model(model)?,
        (LanguageKind::Policy, None, _) => {
            return Err(source.error("language.kind", "is \"policy\", which needs a `[model]` section"));
        }
        (LanguageKind::Endpoint, _, None) => {
            return Err(source.error("language.kind", "is \"endpoint\", which needs a `[build.endpoint]` section"));
        }
        _ => {}
    }
    build.check().map_err(|error| match error {
        BuildError::Setting { key, message } => source.error(&key, message),
        other => source.error("build", other.to_string()),
    })
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (fs_err::canonicalize(one), fs_err::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<BuildConfig, String> {
        let dir = tempfile::tempdir().expect("a scratch folder");
        fs_err::create_dir(dir.path().join("in")).expect("a folder");
        let file = dir.path().join("build.toml");
        fs_err::write(&file, text.replace("DIR", &dir.path().display().to_string())).expect("written");
        BuildConfig::load(&file, &[]).map_err(|error| error.to_string())
    }

    const DATA: &str = "[data]\nhistories = \"DIR/in\"\npyramids = \"DIR/out\"\n";

    #[test]
    fn rules_need_only_folders() {
        let config = load(DATA).expect("a whole config");
        assert_eq!((config.language.kind, config.settings), (LanguageKind::Rules, BuildSettings::default()));
    }

    #[test]
    fn complaints_name_key_and_what_is_allowed() {
        let cases = [
            ("[data]\nhistories = \"DIR/no\"\n".to_owned(), "data.histories"),
            ("[data]\nhistories = \"DIR/in\"\n".to_owned(), "`data.pyramids` must name"),
            (DATA.replace("DIR/out", "DIR/in"), "`data.pyramids` must be another folder"),
            (format!("{DATA}embedder = \"DIR/no\"\n"), "`data.embedder` must be an existing folder (or \"hashed\")"),
            (format!("{DATA}embedder = \"DIR/in\"\n"), "`data.embedder` cannot be used"),
            (
                format!("{DATA}embedder_dimension = 8\n"),
                "`data.embedder_dimension` only goes with a Qwen3-Embedding folder",
            ),
            (format!("{DATA}[language]\nkind = \"policy\"\n"), "needs a `[model]` section"),
            (format!("{DATA}[language]\nkind = \"endpoint\"\n"), "needs a `[build.endpoint]` section"),
            (format!("{DATA}[language]\nkind = \"oracle\"\n"), "language.kind"),
            (format!("{DATA}[language]\ntemperature = -1.0\n"), "language.temperature"),
            (format!("{DATA}[build]\nnum_neighbours = 5\n"), "num_neighbours"),
            (format!("{DATA}[build]\nnum_neighbors = 0\n"), "`build.num_neighbors` must be at least 1"),
        ];
        for (text, expected) in cases {
            let error = load(&text).expect_err(expected);
            assert!(error.contains(expected), "{error} / {expected}");
        }
    }
}
