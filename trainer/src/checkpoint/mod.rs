//! The run's folder and its checkpoints.
//!
//! ```text
//! runs/quickstart/
//!   config.toml  lock  metrics.jsonl  events/  data/  logs/
//!   trajectories/train-000012.jsonl  trajectories/validation-000010.jsonl
//!   checkpoints/best.json
//!   checkpoints/step-000012/manifest.json  weights/…  optimizer.safetensors (or one a rank)
//! ```
//!
//! A checkpoint is written beside its place, every file is brought to disk and listed with its size and SHA-256 in
//! the manifest, which is written last; then the folder is renamed into place. A folder without a manifest, or with
//! other files than the manifest says, is no checkpoint: it is never loaded, and the one before it is.
//! What is in the files is the business of those who write them.

mod manifest;
mod run_folder;
mod store;
mod writer;

pub use manifest::{Checkpoint, CheckpointMeta, DataPosition, FileEntry};
pub use run_folder::{RunFolder, RunFolderError};
pub use store::{Best, Found, WEIGHTS, best, clean_stale, find, latest_complete, model_folder, prune, record_best};
pub use writer::CheckpointWriter;

use std::error::Error;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A checkpoint that cannot be written or read.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The checkpoint cannot be written; those before it are as they were.
    #[error("{}: cannot write the checkpoint: {source} (earlier checkpoints are untouched)", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The checkpoint is not whole.
    #[error("{}: {problem}", path.display())]
    Broken {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A file cannot be read (the message names it).
    #[error("{0}")]
    Read(#[from] std::io::Error),
}

impl CheckpointError {
    fn write(path: &Path, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Write { path: path.to_owned(), source: source.into() }
    }

    fn broken(path: &Path, problem: impl Into<String>) -> Self {
        Self::Broken { path: path.to_owned(), problem: problem.into() }
    }
}

/// Folder of a run's checkpoints.
pub fn checkpoints_dir(run_dir: &Path) -> PathBuf {
    run_dir.join("checkpoints")
}

/// Brings a folder's entries to disk.
fn sync_dir(dir: &Path) -> std::io::Result<()> {
    fs_err::File::open(dir)?.sync_all()
}

/// Writes a small file so that a reader sees the old one or the new one.
fn write_atomically(path: &Path, content: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    let aside = path.with_extension("tmp");
    let mut file = fs_err::File::create(&aside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs_err::rename(&aside, path)?;
    path.parent().map_or(Ok(()), sync_dir)
}
