//! What can be wrong with a config.

use std::path::PathBuf;
use thiserror::Error;

/// A fault in a config file or in an override; its message is complete in itself.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read (the message names it).
    #[error("{0}")]
    Read(#[from] std::io::Error),
    /// The file is not TOML.
    #[error("{}:{line}:{column}: {message}", file.display())]
    Syntax {
        /// The config file.
        file: PathBuf,
        /// From 1.
        line: usize,
        /// From 1, in bytes.
        column: usize,
        /// What the parser found.
        message: String,
    },
    /// An override is not `key=value`, or its key does not lead into a table.
    #[error("--set {text}: {problem}")]
    Override {
        /// As typed.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A key is unknown or its value does not do.
    #[error("{origin}: `{key}` {problem}{}", line.map(|line| format!(" (line {line})")).unwrap_or_default())]
    Key {
        /// The config file, or the override that set the key.
        origin: String,
        /// Dotted path.
        key: String,
        /// What is wrong, what was found, what is allowed.
        problem: String,
        /// Line of the key in the file, where it is written there.
        line: Option<usize>,
    },
    /// A CUDA device that is not there.
    #[error("device \"cuda:{index}\" is not there: {num_usable} CUDA device(s) usable; `napmem doctor` says more")]
    NoDevice {
        /// What was asked for.
        index: usize,
        /// What there is.
        num_usable: usize,
    },
    /// A run is resumed with other settings than it was started with.
    #[error("{}: this run was started with other settings: {}", file.display(), list(differences))]
    Differs {
        /// The resolved config of the run.
        file: PathBuf,
        /// What differs.
        differences: Vec<super::Difference>,
    },
}

fn list(differences: &[super::Difference]) -> String {
    let texts: Vec<String> = differences.iter().map(ToString::to_string).collect();
    texts.join("; ")
}
