//! What the files of sentence-transformers beside a BERT checkpoint ask for. Anything but the mean over a text's tokens, scaled
//! to norm 1, is refused: other vectors than the model was trained for would look as good and find less.

use crate::model::{BertConfig, ModelFault, read_json};
use serde_json::Value;
use std::path::{Path, PathBuf};

const POOLING_FILE: &str = "1_Pooling/config.json";
const LENGTH_FILE: &str = "sentence_bert_config.json";
const MODULES_FILE: &str = "modules.json";
/// Longest text in tokens where the folder names no length.
const DEFAULT_MAX_TOKENS: i64 = 256;

/// One file of the folder, if it is there.
struct Found {
    file: PathBuf,
    json: Value,
}

impl Found {
    fn read(dir: &Path, name: &str) -> Result<Option<Self>, ModelFault> {
        let file = dir.join(name);
        if !file.exists() {
            return Ok(None);
        }
        Ok(Some(Self { json: read_json(&file)?, file }))
    }

    fn fault(&self, key: &str, message: impl Into<String>) -> ModelFault {
        ModelFault::Config { file: self.file.clone(), key: key.to_owned(), message: message.into() }
    }
}

/// Refuses poolings other than the mean, and further layers on top of it. Absent files mean the mean.
pub fn check_modules(dir: &Path, config: &BertConfig) -> Result<(), ModelFault> {
    if let Some(modules) = Found::read(dir, MODULES_FILE)? {
        let list = modules.json.as_array().ok_or_else(|| modules.fault("modules", "must be a list"))?;
        for module in list {
            let kind = module.get("type").and_then(Value::as_str).unwrap_or_default();
            if !["Transformer", "Pooling", "Normalize"].contains(&kind.rsplit('.').next().unwrap_or_default()) {
                let allowed = "must be a Transformer, Pooling or Normalize of sentence_transformers";
                return Err(modules.fault("type", format!("{allowed}, found \"{kind}\"")));
            }
        }
    }
    let Some(pooling) = Found::read(dir, POOLING_FILE)? else {
        return Ok(());
    };
    check_pooling(&pooling)?;
    match pooling.json.get("word_embedding_dimension") {
        Some(found) if found.as_i64() != Some(config.hidden_size) => {
            let message = format!("must be `hidden_size` = {}, found {found}", config.hidden_size);
            Err(pooling.fault("word_embedding_dimension", message))
        }
        _ => Ok(()),
    }
}

/// Exactly the mean is switched on, in the older form (a flag a mode) or the newer one (`pooling_mode`).
fn check_pooling(pooling: &Found) -> Result<(), ModelFault> {
    let refusal = |key: &str, found: &Value| {
        Err(pooling.fault(key, format!("is {found}: only pooling by the mean over all tokens is supported")))
    };
    let keys = pooling.json.as_object().ok_or_else(|| pooling.fault("pooling", "must be an object"))?;
    for (key, value) in keys.iter().filter(|(key, _)| key.starts_with("pooling_mode")) {
        let needed = match key.as_str() {
            "pooling_mode" => Value::from("mean"),
            "pooling_mode_mean_tokens" => Value::from(true),
            _ => Value::from(false),
        };
        if *value != needed {
            return refusal(key, value);
        }
    }
    let is_mean = ["pooling_mode", "pooling_mode_mean_tokens"].iter().any(|key| keys.contains_key(*key));
    if is_mean { Ok(()) } else { Err(pooling.fault("pooling_mode_mean_tokens", "is missing; it must be true")) }
}

/// Tokens of a text that are embedded, special ones included; the rest is cut off. More than the `num_added` special ones.
pub fn max_tokens(dir: &Path, config: &BertConfig, num_added: usize) -> Result<usize, ModelFault> {
    let positions = config.max_position_embeddings;
    let mut limit = positions.min(DEFAULT_MAX_TOKENS);
    let mut origin = (config.file.clone(), "max_position_embeddings");
    if let Some(found) = Found::read(dir, LENGTH_FILE)? {
        if found.json.get("do_lower_case") == Some(&Value::from(true)) {
            return Err(found.fault("do_lower_case", "must be false: letter case is the tokenizer's to change"));
        }
        match found.json.get("max_seq_length") {
            None | Some(Value::Null) => {}
            Some(value) => {
                let length = value.as_i64().filter(|length| *length > 0);
                let needed = || found.fault("max_seq_length", format!("must be a positive integer, found {value}"));
                limit = length.ok_or_else(needed)?.min(positions);
                origin = (found.file, "max_seq_length");
            }
        }
    }
    let limit = limit as usize;
    if limit > num_added {
        return Ok(limit);
    }
    let message = format!("leaves no room for a text beside {num_added} special tokens: {limit}");
    Err(ModelFault::Config { file: origin.0, key: origin.1.to_owned(), message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(dir: &Path) -> BertConfig {
        let json = json!({
            "model_type": "bert", "vocab_size": 60, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "max_position_embeddings": 512,
        });
        BertConfig::from_json(&json, &dir.join("config.json")).unwrap()
    }

    fn folder(name: &str, json: &Value) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(name);
        fs_err::create_dir_all(file.parent().unwrap()).unwrap();
        fs_err::write(file, json.to_string()).unwrap();
        dir
    }

    #[test]
    fn only_the_mean_is_taken() {
        let fine = [
            json!({"word_embedding_dimension": 32, "pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false}),
            json!({"pooling_mode": "mean"}),
        ];
        for json in fine {
            let dir = folder(POOLING_FILE, &json);
            check_modules(dir.path(), &config(dir.path())).unwrap();
        }
        let refused = [
            (
                json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}),
                "`pooling_mode_cls_token` is true",
            ),
            (
                json!({"pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": true}),
                "`pooling_mode_max_tokens` is true",
            ),
            (json!({"pooling_mode_mean_tokens": false}), "`pooling_mode_mean_tokens` is false"),
            (json!({"pooling_mode": "cls"}), "`pooling_mode` is \"cls\": only pooling by the mean"),
            (json!({}), "`pooling_mode_mean_tokens` is missing; it must be true"),
            (
                json!({"pooling_mode_mean_tokens": true, "word_embedding_dimension": 64}),
                "`word_embedding_dimension` must be `hidden_size` = 32, found 64",
            ),
        ];
        for (json, expected) in refused {
            let dir = folder(POOLING_FILE, &json);
            let message = check_modules(dir.path(), &config(dir.path())).unwrap_err().to_string();
            assert!(message.starts_with(&dir.path().join(POOLING_FILE).display().to_string()), "{message}");
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_layer_on_top_of_the_mean_is_refused() {
        let modules = |kind: &str| json!([{"type": "sentence_transformers.models.Transformer"}, {"type": kind}]);
        let dir = folder(MODULES_FILE, &modules("sentence_transformers.models.Normalize"));
        check_modules(dir.path(), &config(dir.path())).unwrap();
        let dir = folder(MODULES_FILE, &modules("sentence_transformers.models.Dense"));
        let message = check_modules(dir.path(), &config(dir.path())).unwrap_err().to_string();
        assert!(message.ends_with("found \"sentence_transformers.models.Dense\""), "{message}");
    }

    #[test]
    fn texts_are_cut_at_the_shortest_limit() {
        let cases = [(json!({"max_seq_length": 128}), 128), (json!({"max_seq_length": 9999}), 512), (json!({}), 256)];
        for (json, expected) in cases {
            let dir = folder(LENGTH_FILE, &json);
            assert_eq!(max_tokens(dir.path(), &config(dir.path()), 2).unwrap(), expected, "{json}");
        }
        let nothing = tempfile::tempdir().unwrap();
        assert_eq!(max_tokens(nothing.path(), &config(nothing.path()), 2).unwrap(), 256);
        let refused = [
            (json!({"max_seq_length": 2}), "`max_seq_length` leaves no room for a text beside 2 special tokens: 2"),
            (json!({"max_seq_length": "x"}), "`max_seq_length` must be a positive integer, found \"x\""),
            (json!({"do_lower_case": true}), "`do_lower_case` must be false"),
        ];
        for (json, expected) in refused {
            let dir = folder(LENGTH_FILE, &json);
            let message = max_tokens(dir.path(), &config(dir.path()), 2).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
