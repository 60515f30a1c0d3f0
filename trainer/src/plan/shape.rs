//! Which model is planned for: a folder's, or one of the published sizes by name; and whether a folder's files are whole.

use crate::model::ModelConfig;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A model whose shape cannot be read.
#[derive(Debug, Error)]
pub enum ShapeError {
    /// A file cannot be read (the message names it).
    #[error("{0}")]
    Read(#[from] std::io::Error),
    /// A file does not hold what it should.
    #[error("{}: {problem}", file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// No published model has this name.
    #[error("no known shape `{name}`; known are {}", NAMES.join(", "))]
    Name {
        /// What was asked for.
        name: String,
    },
}

/// Names that [`published`] knows.
pub const NAMES: [&str; 5] = ["Qwen3.5-0.8B", "Qwen3.5-2B", "Qwen3.5-4B", "Qwen3.5-9B", "Qwen3.5-27B"];

/// hidden, layers, heads, key-value heads, intermediate, DeltaNet key heads and value heads. The larger two have a head of their own.
const SIZES: [[u64; 7]; 5] = [
    [1024, 24, 8, 2, 3584, 16, 16],
    [2048, 24, 8, 2, 6144, 16, 16],
    [2560, 32, 16, 4, 9216, 16, 32],
    [4096, 32, 16, 4, 12288, 16, 32],
    [5120, 64, 24, 4, 17408, 16, 48],
];

/// The configuration of a published model, from the values of its `config.json` that shapes depend on.
///
/// # Errors
/// No such name.
pub fn published(name: &str) -> Result<ModelConfig, ShapeError> {
    let unknown = || ShapeError::Name { name: name.to_owned() };
    let index = NAMES.iter().position(|known| known.eq_ignore_ascii_case(name)).ok_or_else(unknown)?;
    let [hidden, layers, heads, kv_heads, inner, key_heads, value_heads] = SIZES[index];
    let json = json!({
        "model_type": "qwen3_5_text", "vocab_size": 248_320, "hidden_size": hidden, "num_hidden_layers": layers,
        "intermediate_size": inner, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": 256,
        "linear_num_key_heads": key_heads, "linear_num_value_heads": value_heads, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
        "tie_word_embeddings": index < 3, "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25},
    });
    Ok(ModelConfig::from_json(json, Path::new(name)).expect("a published shape is well-formed"))
}

/// Checks that no safetensors file of a folder is cut short, from their headers alone.
///
/// # Errors
/// One that is, or that cannot be read.
pub fn check_weight_files(folder: &Path) -> Result<(), ShapeError> {
    for entry in fs_err::read_dir(folder)? {
        let file = entry?.path();
        if file.extension().is_some_and(|ending| ending == "safetensors") {
            check_file(&file)?;
        }
    }
    Ok(())
}

fn check_file(file: &Path) -> Result<(), ShapeError> {
    use std::io::Read;
    let broken = |problem: String| ShapeError::Content { file: file.to_owned(), problem };
    let mut reader = fs_err::File::open(file)?;
    let num_bytes = reader.metadata()?.len();
    let mut length = [0; 8];
    reader.read_exact(&mut length).map_err(|_| broken(format!("truncated: {num_bytes} bytes, no header")))?;
    let length = u64::from_le_bytes(length);
    if length.saturating_add(8) > num_bytes {
        return Err(broken(format!("truncated: the header takes {length} bytes, the file has {num_bytes}")));
    }
    let mut header = Vec::new();
    reader.take(length).read_to_end(&mut header)?;
    let header: serde_json::Map<String, Value> =
        serde_json::from_slice(&header).map_err(|e| broken(format!("header is not JSON: {e}")))?;
    let end_of = |tensor: &Value| tensor.get("data_offsets")?.get(1)?.as_u64();
    let end = 8 + length + header.values().filter_map(end_of).max().unwrap_or(0);
    if end > num_bytes {
        return Err(broken(format!("truncated: the tensors end at byte {end}, the file has {num_bytes}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_models_have_their_published_sizes() {
        let billions = NAMES.map(|name| published(name).unwrap().num_parameters() as f64 / 1e9);
        for (found, expected) in billions.iter().zip([0.752, 1.882, 4.206, 8.954, 26.896]) {
            assert!((found - expected).abs() < 0.0006, "{billions:?}");
        }
        let message = published("Qwen3.5-10B").unwrap_err().to_string();
        assert!(message.starts_with("no known shape `Qwen3.5-10B`; known are Qwen3.5-0.8B, "), "{message}");
    }

    #[test]
    fn truncated_weights_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.safetensors");
        let header = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        let mut whole = (header.len() as u64).to_le_bytes().to_vec();
        whole.extend(header.as_bytes());
        whole.extend([0; 8]);
        fs_err::write(&file, &whole).unwrap();
        check_weight_files(folder.path()).unwrap();
        let num_bytes = whole.len();
        let cases = [
            (
                whole[..num_bytes - 1].to_vec(),
                format!("the tensors end at byte {num_bytes}, the file has {}", num_bytes - 1),
            ),
            (100u64.to_le_bytes().to_vec(), "the header takes 100 bytes, the file has 8".to_owned()),
        ];
        for (bytes, problem) in cases {
            fs_err::write(&file, bytes).unwrap();
            let message = check_weight_files(folder.path()).unwrap_err().to_string();
            assert_eq!(message, format!("{}: truncated: {problem}", file.display()));
        }
    }
}
