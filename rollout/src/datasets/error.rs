//! What can be wrong with a dataset.

use crate::pyramid::PyramidError;
use std::path::PathBuf;
use thiserror::Error;

/// A dataset that cannot be read, written or trusted.
#[derive(Debug, Error)]
pub enum DatasetError {
    /// A file cannot be read or written; the message names it.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A line of a questions file is not what it must be.
    #[error("{}:{line}: {message}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What was found and what is allowed.
        message: String,
    },
    /// A source file is not what it must be.
    #[error("{}: {message}", path.display())]
    Source {
        /// The file.
        path: PathBuf,
        /// Where in it, what was found and what is allowed.
        message: String,
    },
    /// A pyramid is not sound.
    #[error(transparent)]
    Pyramid(#[from] PyramidError),
    /// Users cannot be split as asked.
    #[error("split fractions must be non-negative and add up to 1, got {0:?}")]
    Fractions([f64; 3]),
}
