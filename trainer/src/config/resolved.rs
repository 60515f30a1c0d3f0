//! The config that a run was started with: as a file of its folder, and compared when the run is resumed.

use super::{ConfigError, RawTrain, Source};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use toml::{Table, Value};

/// Keys that may change between a run and its resumption, because no number of a step depends on them (but for rounding, on the
/// number of processes).
const MAY_DIFFER: [&str; 12] = [
    "train.run_dir",
    "train.validation_every",
    "train.validation_questions",
    "train.checkpoint_every",
    "train.keep_last",
    "model.threads",
    "optim.offload",
    "distributed.processes",
    "distributed.timeout_s",
    "distributed.max_restarts",
    "distributed.bucket_mib",
    "judge.cache",
];

/// The run's length: a falling learning rate depends on it, a constant one does not.
const LENGTH: [&str; 2] = ["train.max_steps", "train.epochs"];

/// Version of this program.
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Commit that this program was built from, `unknown` outside a repository.
pub fn commit() -> &'static str {
    option_env!("NAPMEM_COMMIT").unwrap_or("unknown")
}

/// One key with different values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Dotted path.
    pub key: String,
    /// Value of the run, where it has one.
    pub saved: Option<String>,
    /// Value now, where there is one.
    pub given: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".to_owned());
        write!(f, "`{}` was {}, is {}", self.key, text(&self.saved), text(&self.given))
    }
}

/// The config as TOML, under a comment with version and commit.
pub(super) fn to_toml(raw: &impl Serialize) -> String {
    let body = match toml::to_string(raw) {
        Ok(body) => body,
        Err(error) => panic!("a config of plain sections is TOML, but: {error}"),
    };
    format!("# napmem {}, commit {}\n\n{body}", version(), commit())
}

/// Reads a training config that a run saved.
pub fn load_resolved(file: &Path) -> Result<RawTrain, ConfigError> {
    Source::read(file, &[])?.parse()
}

/// Fails when `given`, a resolved config, has other values than the one in `saved_file` where that matters.
///
/// # Errors
/// [`ConfigError::Differs`] with every such key; unreadable files.
pub fn refuse_other_settings(saved_file: &Path, given: &str) -> Result<(), ConfigError> {
    let saved = fs_err::read_to_string(saved_file)?;
    let parse = |text: String| -> Result<BTreeMap<String, String>, ConfigError> {
        Ok(flatten(&Source::from_text(saved_file, text, &[])?.parse()?))
    };
    let differences = compare(&parse(saved)?, &parse(given.to_owned())?);
    if differences.is_empty() {
        return Ok(());
    }
    Err(ConfigError::Differs { file: saved_file.to_owned(), differences })
}

fn compare(saved: &BTreeMap<String, String>, given: &BTreeMap<String, String>) -> Vec<Difference> {
    let keys: std::collections::BTreeSet<&String> = saved.keys().chain(given.keys()).collect();
    let falls = saved.get("optim.schedule").is_some_and(|schedule| schedule != "\"constant\"");
    let may_differ =
        |key: &str| MAY_DIFFER.contains(&key) || key.starts_with("eval.") || (!falls && LENGTH.contains(&key));
    keys.into_iter()
        .filter(|key| !may_differ(key) && saved.get(*key) != given.get(*key))
        .map(|key| Difference { key: key.clone(), saved: saved.get(key).cloned(), given: given.get(key).cloned() })
        .collect()
}

fn flatten(table: &Table) -> BTreeMap<String, String> {
    let mut flat = BTreeMap::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) => {
                flat.extend(flatten(inner).into_iter().map(|(name, value)| (format!("{key}.{name}"), value)));
            }
            other => {
                flat.insert(key.clone(), other.to_string());
            }
        }
    }
    flat
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs_err::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn keys_that_steps_depend_on_must_be_the_same() {
        let file = saved("[grpo]\nclip_low = 0.2\n[train]\nseed = 1\nmax_steps = 4\n");
        let given = "[grpo]\nclip_low = 0.3\ndual_clip = 3.0\n[train]\nseed = 1\nmax_steps = 9\n";
        let message = refuse_other_settings(file.path(), given).unwrap_err().to_string();
        let expected = format!(
            "{}: this run was started with other settings: `grpo.clip_low` was 0.2, is 0.3; \
             `grpo.dual_clip` was not set, is 3.0",
            file.path().display()
        );
        assert_eq!(message, expected);
    }

    #[test]
    fn length_of_the_run_may_change_unless_the_learning_rate_falls_with_it() {
        let run = |schedule: &str, train: &str| format!("[optim]\nschedule = \"{schedule}\"\n[train]\n{train}\n");
        let file = saved(&run("constant", "max_steps = 4\nepochs = 1\nrun_dir = \"a\""));
        refuse_other_settings(file.path(), &run("constant", "epochs = 2\nrun_dir = \"b\"")).unwrap();
        let file = saved(&run("cosine", "epochs = 1"));
        let message = refuse_other_settings(file.path(), &run("cosine", "epochs = 2")).unwrap_err().to_string();
        assert!(message.ends_with("`train.epochs` was 1, is 2"), "{message}");
    }

    #[test]
    fn defaults_are_written_out() {
        let text = to_toml(&RawTrain::default());
        assert!(text.contains("[rollout]") && text.contains("group_size = 4"), "{text}");
        assert!(text.starts_with(&format!("# napmem {}", version())), "{text}");
    }
}
