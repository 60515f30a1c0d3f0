//! Writes sample users as pyramids and a questions file.

use super::SampleUser;
use crate::pyramid::PyramidError;
use std::path::Path;

/// Why a world could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// A file or folder; the message names it.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A pyramid; the folder may hold that of another world, and conversations are append-only.
    #[error(transparent)]
    Pyramid(#[from] PyramidError),
}

/// Writes `DIR/pyramids/<user>/{conversations.jsonl,records.jsonl,tracks/*.md,profile.md}` and `DIR/questions.jsonl`.
///
/// # Errors
/// When a folder or file cannot be written, or when a user's folder holds other conversations.
pub fn write(dir: &Path, users: &[SampleUser]) -> Result<(), WorldError> {
    for user in users {
        user.pyramid.save(&dir.join("pyramids").join(&user.user))?;
    }
    let mut text = String::new();
    for question in users.iter().flat_map(|user| &user.questions) {
        text.push_str(&serde_json::to_string(question).map_err(std::io::Error::from)?);
        text.push('\n');
    }
    fs_err::write(dir.join("questions.jsonl"), text)?;
    Ok(())
}
