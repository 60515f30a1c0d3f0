//! What can be wrong with a pyramid on disk or in memory.

use crate::generate::ModelError;
use std::path::PathBuf;
use thiserror::Error;

/// A pyramid that cannot be read, written, trusted or searched.
#[derive(Debug, Error)]
pub enum PyramidError {
    /// A file cannot be read or written; the message names it.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A line of a JSON-lines file is not what it must be.
    #[error("{}:{line}: {message}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What was found and what is allowed.
        message: String,
    },
    /// A Markdown file is not what it must be.
    #[error("{}: {message}", path.display())]
    Markdown {
        /// The file.
        path: PathBuf,
        /// What was found and what is allowed.
        message: String,
    },
    /// An item has a bad value or leads to one that is not there.
    #[error("{}: {item}: {message}", path.display())]
    Item {
        /// The file that holds the item.
        path: PathBuf,
        /// The item, as ``record `r3` ``.
        item: String,
        /// What was found and what is allowed.
        message: String,
    },
    /// The embedder failed.
    #[error("embedder `{identity}` failed: {source}")]
    Embed {
        /// Which embedder.
        identity: String,
        /// Its own error.
        source: ModelError,
    },
}

/// What a JSON error says of a single line: its place is the column, since the caller names the line.
pub(crate) fn json_line_fault(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}
