//! The `[eval]` section: which policies are let at the questions, in which modes, under which seeds.

use super::validate::{Check, path_problem};
use super::{ConfigError, Part, Source, TrainConfig};
use napmem_rollout::build::EndpointSettings;
use napmem_rollout::episode::Mode;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Most items of memory that a prompt of the passive mode shows.
const MAX_PASSIVE_ITEMS: usize = 20;

/// `[eval]` as typed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvalSection {
    /// Modes, a row of the table each.
    pub modes: Vec<Mode>,
    /// Seeds of sampling, a run each; `train.seed` when empty.
    pub seeds: Vec<u64>,
    /// Items of memory that a prompt of the passive mode shows.
    pub passive_items: usize,
    /// Questions between two writes: what a kill costs at most.
    pub questions_per_batch: usize,
    /// System prompts that replace those of a mode; `rollout.system_prompt` otherwise, and the built-in one where there is none.
    pub system_prompts: BTreeMap<Mode, PathBuf>,
    /// Policies; that of `[model]` when empty.
    pub policies: Vec<PolicySection>,
}

impl Default for EvalSection {
    fn default() -> Self {
        Self {
            modes: vec![Mode::Navigation],
            seeds: Vec::new(),
            passive_items: MAX_PASSIVE_ITEMS,
            questions_per_batch: 32,
            system_prompts: BTreeMap::new(),
            policies: Vec::new(),
        }
    }
}

/// One of `[[eval.policies]]`: a folder or an endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicySection {
    /// Its name in tables and files.
    pub name: String,
    /// Model folder, checkpoint or run folder (its best checkpoint).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// A chat-completions endpoint that is the policy; the tokenizer of `[model]` counts its tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<EndpointSettings>,
}

/// Where a policy is.
#[derive(Debug, Clone, PartialEq)]
pub enum PolicySource {
    /// A model folder.
    Folder(PathBuf),
    /// Behind an endpoint.
    Endpoint(EndpointSettings),
}

/// A policy with its name.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedPolicy {
    /// In tables and files.
    pub name: String,
    /// Where it is.
    pub source: PolicySource,
}

/// What is asked, and how often.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedConfig {
    /// Policy, data, sampling and scores; its temperature may be 0 (greedy).
    pub config: TrainConfig,
    /// Part of the users.
    pub part: Part,
    /// Ask at most this many questions.
    pub num_questions: Option<usize>,
    /// Attempts at each question; at least 1.
    pub num_attempts: usize,
}

/// Policies × modes × seeds on one part of one dataset.
#[derive(Debug, Clone, PartialEq)]
pub struct EvalConfig {
    /// The questions.
    pub asked: AskedConfig,
    /// Who answers.
    pub policies: Vec<NamedPolicy>,
    /// What they may do.
    pub modes: Vec<Mode>,
    /// Seeds of sampling.
    pub seeds: Vec<u64>,
    /// Items that a passive prompt shows.
    pub passive_items: usize,
    /// Questions between two writes.
    pub questions_per_batch: usize,
    /// System prompts that replace a mode's.
    pub system_prompts: BTreeMap<Mode, String>,
    /// Folder of trajectories, results and tables; the same command goes on with it after a stop.
    pub out: Option<PathBuf>,
}

impl EvalConfig {
    /// Checks the `[eval]` section of a config that was checked otherwise.
    ///
    /// # Errors
    /// Values out of range, names that are given twice, files that are not there.
    pub fn check(source: &Source, asked: AskedConfig, section: &EvalSection) -> Result<Self, ConfigError> {
        let check = Check { source };
        check.at_least("eval.passive_items", section.passive_items, 1)?;
        if section.passive_items > MAX_PASSIVE_ITEMS {
            let problem = format!("must be at most {MAX_PASSIVE_ITEMS}, got {}", section.passive_items);
            return Err(source.error("eval.passive_items", problem));
        }
        check.at_least("eval.questions_per_batch", section.questions_per_batch, 1)?;
        check.at_least("eval.modes", section.modes.len(), 1)?;
        distinct(source, "eval.modes", section.modes.iter())?;
        distinct(source, "eval.seeds", section.seeds.iter())?;
        let mut system_prompts = BTreeMap::new();
        for (mode, file) in &section.system_prompts {
            check.path(&format!("eval.system_prompts.{mode}"), file, Path::is_file, "file")?;
            system_prompts.insert(*mode, fs_err::read_to_string(file)?);
        }
        let mut policies = section
            .policies
            .iter()
            .map(|policy| policy.check(source))
            .collect::<Result<Vec<NamedPolicy>, ConfigError>>()?;
        if policies.is_empty() {
            let source = PolicySource::Folder(asked.config.model.path.clone());
            policies.push(NamedPolicy { name: "policy".to_owned(), source });
        }
        distinct(source, "eval.policies", policies.iter().map(|policy| &policy.name))?;
        let seeds = if section.seeds.is_empty() { vec![asked.config.train.seed] } else { section.seeds.clone() };
        Ok(Self {
            asked,
            policies,
            modes: section.modes.clone(),
            seeds,
            passive_items: section.passive_items,
            questions_per_batch: section.questions_per_batch,
            system_prompts,
            out: None,
        })
    }
}

impl PolicySection {
    fn check(&self, source: &Source) -> Result<NamedPolicy, ConfigError> {
        let key = "eval.policies";
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if self.name.is_empty() || self.name.starts_with('.') || !self.name.chars().all(is_plain) {
            let problem = format!("must have names of letters, digits, `.`, `_` and `-`, got {:?}", self.name);
            return Err(source.error(key, problem));
        }
        let found = match (&self.path, &self.endpoint) {
            (Some(path), None) => {
                if let Some(problem) = path_problem(path, Path::is_dir, "folder") {
                    return Err(source.error(key, format!("(`{}`) path {problem}", self.name)));
                }
                let folder = crate::checkpoint::model_folder(path)
                    .map_err(|error| source.error(key, format!("(`{}`) cannot be used: {error}", self.name)))?;
                PolicySource::Folder(folder)
            }
            (None, Some(endpoint)) => {
                let fault = |(key, why): (String, String)| {
                    source.error("eval.policies", format!("(`{}`) `{key}` {why}", self.name))
                };
                endpoint.check().map_err(fault)?;
                PolicySource::Endpoint(endpoint.clone())
            }
            _ => {
                let problem = format!("(`{}`) must have either `path` or `endpoint`", self.name);
                return Err(source.error(key, problem));
            }
        };
        Ok(NamedPolicy { name: self.name.clone(), source: found })
    }
}

fn distinct<T: Ord + std::fmt::Display>(
    source: &Source,
    key: &str,
    values: impl Iterator<Item = T>,
) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    for value in values {
        let text = value.to_string();
        if !seen.insert(value) {
            return Err(source.error(key, format!("must not repeat, but has `{text}` twice")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_read_and_written_out_again() {
        let text = r#"
modes = ["navigation", "records-only"]
seeds = [1, 2]
passive_items = 10
[system_prompts]
passive = "p.md"
[[policies]]
name = "before"
path = "runs/a"
[[policies]]
name = "big"
endpoint = { base_url = "https://host/v1", model = "big", key_env = "KEY" }
"#;
        let section: EvalSection = toml::from_str(text).unwrap();
        assert_eq!(section.modes, [Mode::Navigation, Mode::RecordsOnly]);
        assert_eq!(section.system_prompts[&Mode::Passive], PathBuf::from("p.md"));
        assert_eq!(section.questions_per_batch, EvalSection::default().questions_per_batch);
        assert_eq!(section.policies[1].endpoint.as_ref().unwrap().key_env.as_deref(), Some("KEY"));
        let again: EvalSection = toml::from_str(&toml::to_string(&section).unwrap()).unwrap();
        assert_eq!(again, section);
        let error = toml::from_str::<EvalSection>("modes = [\"everything\"]").unwrap_err().to_string();
        assert!(error.contains("no-upper-levels"), "{error}");
    }
}
