//! What can keep a pyramid from being built or from forgetting.

use super::language::LanguageError;
use crate::pyramid::PyramidError;
use std::path::PathBuf;
use thiserror::Error;

/// A construction that cannot start or go on. What was committed before stays.
#[derive(Debug, Error)]
pub enum BuildError {
    /// A file cannot be read or written; the message names it.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A level is not sound.
    #[error(transparent)]
    Pyramid(#[from] PyramidError),
    /// A setting is out of range.
    #[error("`{key}` {message}")]
    Setting {
        /// The key with its section.
        key: String,
        /// What is allowed and what was found.
        message: String,
    },
    /// A prompt template is not usable.
    #[error("{}: {message}", path.display())]
    Prompt {
        /// The template's file.
        path: PathBuf,
        /// What was found and what is allowed.
        message: String,
    },
    /// A user's messages cannot be taken.
    #[error("history of `{user}`: {message}")]
    History {
        /// The user.
        user: String,
        /// Which message, what was found and what is allowed.
        message: String,
    },
    /// Another build or another process works on this pyramid.
    #[error("{}: another process is building this pyramid", .0.display())]
    InUse(PathBuf),
    /// There are levels, but no build state beside them.
    #[error("{}: there is a pyramid that no build made, so it cannot be built on; choose another folder", .0.display())]
    NotBuilt(PathBuf),
    /// A file of the build state is not what it must be.
    #[error("{}: {message}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What was found and what is allowed.
        message: String,
    },
    /// The language model gave no reply.
    #[error("language model `{identity}`, asked to {role}: {source}")]
    Model {
        /// Which model.
        identity: String,
        /// What it was asked for.
        role: &'static str,
        /// Its own error.
        source: LanguageError,
    },
    /// Nothing in the pyramid is selected.
    #[error("{}: {message}", path.display())]
    Selection {
        /// The pyramid's folder.
        path: PathBuf,
        /// What was asked for and is not there.
        message: String,
    },
    /// After a removal something of the removed content is still there.
    #[error("{}: text of `{item}` is still in {found}", path.display())]
    Remains {
        /// The pyramid's folder.
        path: PathBuf,
        /// The removed message or record.
        item: String,
        /// The file or the search that shows it.
        found: String,
    },
}
