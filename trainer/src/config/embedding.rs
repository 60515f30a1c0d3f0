//! The embedder of the dense search, checked: which kind a folder holds, and how many dimensions its vectors keep.

use super::validate::path_problem;
use super::{ConfigError, Embedder, Source};
use crate::model::{BertConfig, ModelConfig, ModelFault, read_json};
use serde_json::Value;
use std::path::{Path, PathBuf};

const EMBEDDER: &str = "data.embedder";
const DIMENSION: &str = "data.embedder_dimension";

/// An embedder that can be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EmbedderConfig {
    /// Built-in hashed n-grams.
    Hashed,
    /// A Qwen3-Embedding folder.
    Qwen3 {
        /// The folder.
        dir: PathBuf,
        /// Leading dimensions that are kept; all when absent.
        dimension: Option<usize>,
    },
    /// A sentence encoder of the BERT family.
    Bert {
        /// The folder.
        dir: PathBuf,
    },
}

/// What is wrong with `data.embedder` or `data.embedder_dimension`.
struct Problem {
    key: &'static str,
    text: String,
}

impl EmbedderConfig {
    /// Checks both keys of a config; an embedder's `config.json` says which kind it is.
    ///
    /// # Errors
    /// A folder that is not there or holds no known embedder; a dimension where there is none to choose, or out of range.
    pub fn of_config(source: &Source, embedder: &Embedder, dimension: Option<usize>) -> Result<Self, ConfigError> {
        Self::check(embedder, dimension).map_err(|problem| source.error(problem.key, problem.text))
    }

    /// Checks what a command uses without a config at hand; `origin` says in messages where it is from.
    ///
    /// # Errors
    /// As [`EmbedderConfig::of_config`].
    pub fn of_origin(origin: &str, embedder: &Embedder, dimension: Option<usize>) -> Result<Self, ConfigError> {
        Self::check(embedder, dimension).map_err(|Problem { key, text }| ConfigError::Key {
            origin: origin.to_owned(),
            key: key.to_owned(),
            problem: text,
            line: None,
        })
    }

    fn check(embedder: &Embedder, dimension: Option<usize>) -> Result<Self, Problem> {
        let Embedder::Folder(dir) = embedder else {
            return refuse_dimension(dimension, "which is \"hashed\"").map(|()| Self::Hashed);
        };
        if let Some(text) = path_problem(dir, Path::is_dir, "folder (or \"hashed\")") {
            return Err(Problem { key: EMBEDDER, text });
        }
        let unusable = |fault: ModelFault| Problem { key: EMBEDDER, text: format!("cannot be used: {fault}") };
        match width_of_qwen(dir).map_err(unusable)? {
            None => {
                let found = format!("which is the BERT folder `{}`", dir.display());
                refuse_dimension(dimension, &found).map(|()| Self::Bert { dir: dir.clone() })
            }
            Some(width) => match dimension.filter(|dimension| !(1..=width).contains(dimension)) {
                None => Ok(Self::Qwen3 { dir: dir.clone(), dimension }),
                Some(got) => {
                    let text =
                        format!("must be at least 1 and at most {width}, the embedder's `hidden_size`, got {got}");
                    Err(Problem { key: DIMENSION, text })
                }
            },
        }
    }
}

/// Only Qwen3-Embedding is trained so that its leading dimensions alone make a vector.
fn refuse_dimension(dimension: Option<usize>, found: &str) -> Result<(), Problem> {
    let text = || format!("only goes with a Qwen3-Embedding folder in `{EMBEDDER}`, {found}");
    dimension.map_or(Ok(()), |_| Err(Problem { key: DIMENSION, text: text() }))
}

/// Width of a Qwen3 folder, `None` for BERT; the folder's config is checked as a whole.
fn width_of_qwen(dir: &Path) -> Result<Option<usize>, ModelFault> {
    let file = dir.join("config.json");
    let json = read_json(&file)?;
    match json.get("model_type").and_then(Value::as_str) {
        Some("qwen3") => Ok(Some(ModelConfig::from_json(json, &file)?.hidden_size as usize)),
        Some("bert") => BertConfig::from_json(&json, &file).map(|_| None),
        other => {
            let found = other.map_or("nothing".to_owned(), |found| format!("\"{found}\""));
            let message = format!("must be \"qwen3\" or \"bert\", found {found}");
            Err(ModelFault::Config { file, key: "model_type".to_owned(), message })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn qwen3() -> Value {
        json!({
            "model_type": "qwen3", "vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3,
            "num_attention_heads": 4,
        })
    }

    fn bert() -> Value {
        json!({
            "model_type": "bert", "vocab_size": 60, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "max_position_embeddings": 24,
        })
    }

    fn folder(json: &Value) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs_err::write(dir.path().join("config.json"), json.to_string()).unwrap();
        dir
    }

    fn check(embedder: Embedder, dimension: Option<usize>) -> Result<EmbedderConfig, String> {
        let source = Source::from_text(Path::new("c.toml"), String::new(), &[]).unwrap();
        EmbedderConfig::of_config(&source, &embedder, dimension).map_err(|error| error.to_string())
    }

    #[test]
    fn the_folder_says_which_embedder_it_is() {
        assert_eq!(check(Embedder::Hashed, None), Ok(EmbedderConfig::Hashed));
        let (qwen3, bert) = (folder(&qwen3()), folder(&bert()));
        let dir = qwen3.path().to_owned();
        for dimension in [None, Some(1), Some(32)] {
            let found = check(Embedder::Folder(dir.clone()), dimension);
            assert_eq!(found, Ok(EmbedderConfig::Qwen3 { dir: dir.clone(), dimension }));
        }
        let dir = bert.path().to_owned();
        assert_eq!(check(Embedder::Folder(dir.clone()), None), Ok(EmbedderConfig::Bert { dir }));
    }

    #[test]
    fn dimensions_are_refused_where_there_are_none_to_choose() {
        let only = "c.toml: `data.embedder_dimension` only goes with a Qwen3-Embedding folder in `data.embedder`, ";
        assert_eq!(check(Embedder::Hashed, Some(8)).unwrap_err(), format!("{only}which is \"hashed\""));
        let dir = folder(&bert());
        let expected = format!("{only}which is the BERT folder `{}`", dir.path().display());
        assert_eq!(check(Embedder::Folder(dir.path().to_owned()), Some(8)).unwrap_err(), expected);
        let dir = folder(&qwen3());
        for got in [0, 33] {
            let message = check(Embedder::Folder(dir.path().to_owned()), Some(got)).unwrap_err();
            let allowed = "must be at least 1 and at most 32, the embedder's `hidden_size`";
            assert_eq!(message, format!("c.toml: `data.embedder_dimension` {allowed}, got {got}"));
        }
    }

    #[test]
    fn other_folders_are_refused() {
        let dir = folder(&json!({"model_type": "llama"}));
        let file = dir.path().join("config.json");
        let message = check(Embedder::Folder(dir.path().to_owned()), None).unwrap_err();
        let expected = "`model_type` must be \"qwen3\" or \"bert\", found \"llama\"";
        assert_eq!(message, format!("c.toml: `data.embedder` cannot be used: {}: {expected}", file.display()));
        let message = check(Embedder::Folder("/nowhere".into()), None).unwrap_err();
        assert_eq!(message, "c.toml: `data.embedder` must be an existing folder (or \"hashed\"), got `/nowhere`");
        let message = check(Embedder::Folder("".into()), None).unwrap_err();
        assert_eq!(message, "c.toml: `data.embedder` is missing; it names a folder (or \"hashed\")");
    }

    #[test]
    fn complaints_of_commands_say_where_from() {
        let error = EmbedderConfig::of_origin("the command line", &Embedder::Hashed, Some(8)).unwrap_err().to_string();
        assert!(error.starts_with("the command line: `data.embedder_dimension` only goes with"), "{error}");
    }
}
