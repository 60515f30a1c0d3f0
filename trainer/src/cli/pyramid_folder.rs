//! Opens a pyramid for a person to look at.

use napmem_rollout::generate::Embed;
use napmem_rollout::pyramid::{HashedNgramEmbedder, Pyramid, PyramidError};
use std::path::Path;
use std::sync::Arc;

/// The embedder that needs no download.
pub fn embedder() -> Arc<dyn Embed> {
    Arc::new(HashedNgramEmbedder::default())
}

/// Reads, checks and indexes one user's folder.
pub fn open(dir: &Path, embedder: &Arc<dyn Embed>) -> Result<Pyramid, PyramidError> {
    // A folder such as `.` has no name of its own; the user's name is that of the real folder.
    Pyramid::load(&fs_err::canonicalize(dir)?, embedder)
}
