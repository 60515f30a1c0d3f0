//! Datasets brought to pyramids and questions.
//!
//! A dataset is a folder: `pyramids/<user>/…` ([`crate::pyramid`]) and `questions.jsonl` ([`crate::question`]).
//!
//! | source | levels |
//! |---|---|
//! | [`locomo`] | all four, from its own annotations |
//! | [`longmemeval`], [`personamem`], [`chat`] | conversations alone; a builder makes the others |

pub mod chat;
mod error;
mod history;
pub mod locomo;
pub mod longmemeval;
mod output;
pub mod personamem;
mod python;
pub mod questions;
mod source;
mod split;
mod time;
mod turns;

pub use error::DatasetError;
pub use output::{REPORT_FILE, Report};
pub use split::{Split, person, split_by_user};

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The folder of pyramids inside a dataset's.
pub fn pyramids_dir(dataset: &Path) -> PathBuf {
    dataset.join("pyramids")
}

/// The questions' file inside a dataset's folder.
pub fn questions_file(dataset: &Path) -> PathBuf {
    dataset.join("questions.jsonl")
}

/// Users that have a pyramid: the subfolders of `pyramids/`.
pub fn users(dataset: &Path) -> Result<BTreeSet<String>, DatasetError> {
    let mut users = BTreeSet::new();
    for entry in fs_err::read_dir(pyramids_dir(dataset))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            users.insert(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(users)
}
