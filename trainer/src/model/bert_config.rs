//! `config.json` of a BERT folder, read into what the encoder needs.

use super::config::{Keys, read_json};
use super::error::ModelFault;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A BERT encoder's configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct BertConfig {
    /// Where it was read from.
    pub file: PathBuf,
    /// Rows of the word embedding.
    pub vocab_size: i64,
    /// Width of the residual stream.
    pub hidden_size: i64,
    /// Width of the feed-forward part.
    pub intermediate_size: i64,
    /// Layers.
    pub num_hidden_layers: i64,
    /// Heads; they divide the width.
    pub num_attention_heads: i64,
    /// Rows of the position embedding: no text is longer.
    pub max_position_embeddings: i64,
    /// Rows of the token-type embedding.
    pub type_vocab_size: i64,
    /// LayerNorm's epsilon.
    pub layer_norm_eps: f64,
}

impl BertConfig {
    /// Reads `dir/config.json`.
    ///
    /// # Errors
    /// Another `model_type` than `bert`, another activation than the exact GELU, positions that are not absolute, a
    /// decoder; sizes that are missing or do not fit together.
    pub fn load(dir: &Path) -> Result<Self, ModelFault> {
        let file = dir.join("config.json");
        Self::from_json(&read_json(&file)?, &file)
    }

    /// Validates a parsed `config.json`; `file` is for messages.
    pub fn from_json(json: &Value, file: &Path) -> Result<Self, ModelFault> {
        let keys = Keys { file, object: json };
        if json.get("model_type").is_none() {
            return Err(keys.fault("model_type", "is missing; \"bert\" is needed"));
        }
        // What a config leaves out is as in transformers' `BertConfig`.
        for (key, needed) in [
            ("model_type", Value::from("bert")),
            ("hidden_act", Value::from("gelu")),
            ("position_embedding_type", Value::from("absolute")),
            ("is_decoder", Value::from(false)),
        ] {
            if let Some(found) = json.get(key).filter(|found| **found != needed) {
                return Err(keys.fault(key, format!("must be {needed}, found {found}")));
            }
        }
        let (hidden_size, num_attention_heads) = (keys.integer("hidden_size")?, keys.integer("num_attention_heads")?);
        if hidden_size % num_attention_heads != 0 {
            let message = format!("must divide `hidden_size` = {hidden_size}, found {num_attention_heads}");
            return Err(keys.fault("num_attention_heads", message));
        }
        let layer_norm_eps = keys.number_or("layer_norm_eps", 1e-12)?;
        if layer_norm_eps <= 0.0 {
            return Err(keys.fault("layer_norm_eps", format!("must be above 0, found {layer_norm_eps}")));
        }
        Ok(Self {
            file: file.to_path_buf(),
            vocab_size: keys.integer("vocab_size")?,
            hidden_size,
            intermediate_size: keys.integer("intermediate_size")?,
            num_hidden_layers: keys.integer("num_hidden_layers")?,
            num_attention_heads,
            max_position_embeddings: keys.integer("max_position_embeddings")?,
            type_vocab_size: keys.integer_or("type_vocab_size", 2)?,
            layer_norm_eps,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tiny() -> Value {
        json!({
            "model_type": "bert", "vocab_size": 60, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "max_position_embeddings": 24,
        })
    }

    #[test]
    fn what_is_left_out_is_berts_own() {
        let config = BertConfig::from_json(&tiny(), Path::new("config.json")).unwrap();
        assert_eq!((config.type_vocab_size, config.layer_norm_eps), (2, 1e-12));
    }

    #[test]
    fn other_models_are_refused_by_key() {
        let cases = [
            ("model_type", json!("roberta"), "`model_type` must be \"bert\", found \"roberta\""),
            ("hidden_act", json!("gelu_new"), "`hidden_act` must be \"gelu\", found \"gelu_new\""),
            (
                "position_embedding_type",
                json!("relative_key"),
                "`position_embedding_type` must be \"absolute\", found \"relative_key\"",
            ),
            ("is_decoder", json!(true), "`is_decoder` must be false, found true"),
            ("num_attention_heads", json!(5), "`num_attention_heads` must divide `hidden_size` = 32, found 5"),
            ("num_hidden_layers", json!("2"), "`num_hidden_layers` must be a positive integer, found \"2\""),
            ("layer_norm_eps", json!(0), "`layer_norm_eps` must be above 0, found 0"),
            ("layer_norm_eps", json!("small"), "`layer_norm_eps` must be a number, found \"small\""),
        ];
        for (key, value, expected) in cases {
            let mut json = tiny();
            json[key] = value;
            let message = BertConfig::from_json(&json, Path::new("dir/config.json")).unwrap_err().to_string();
            assert_eq!(message, format!("dir/config.json: {expected}"));
        }
    }

    #[test]
    fn sizes_have_no_defaults() {
        for key in ["model_type", "vocab_size", "hidden_size", "num_hidden_layers", "max_position_embeddings"] {
            let mut json = tiny();
            json.as_object_mut().unwrap().remove(key);
            let message = BertConfig::from_json(&json, Path::new("config.json")).unwrap_err().to_string();
            assert!(message.starts_with(&format!("config.json: `{key}` is missing")), "{message}");
        }
    }
}
