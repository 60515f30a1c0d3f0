//! Faults of a model folder: what file, what tensor or key, what was found, what is allowed.

use std::path::PathBuf;
use thiserror::Error;

/// A model folder that cannot be used, or cannot be written.
#[derive(Debug, Error)]
pub enum ModelFault {
    /// A file cannot be read or written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A JSON file does not parse.
    #[error("{file}: not valid JSON: {source}")]
    Json {
        /// The file.
        file: PathBuf,
        /// What the parser says.
        source: serde_json::Error,
    },
    /// A key of `config.json` is missing, has the wrong type or a value that is not supported.
    #[error("{file}: `{key}` {message}")]
    Config {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
        /// What is wrong and what is allowed.
        message: String,
    },
    /// A safetensors file is damaged.
    #[error("{file}: not a readable safetensors file: {message}")]
    Shard {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// A tensor is missing, unknown or misshapen.
    #[error("{file}: tensor `{tensor}` {message}")]
    Tensor {
        /// The file or folder.
        file: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// What was expected and found.
        message: String,
    },
    /// libtorch refused an operation.
    #[error("libtorch: {0}")]
    Torch(#[from] tch::TchError),
}
