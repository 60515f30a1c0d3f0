//! A user's memory pyramid: conversations, records, topic tracks, profile; each level links down to its evidence.
//!
//! [`PyramidData`] is the four levels as plain values and files; [`Pyramid`] is one that was checked and indexed. Text
//! in a pyramid is untrusted: this module never interprets it, and never opens a file that a text names.

mod best;
mod dense;
mod directory;
mod error;
mod fuse;
mod hashed;
mod index;
mod lexical;
mod markdown;
mod maxscore;
mod packed;
mod page;
mod planes;
mod postings;
mod segment;
mod store;
mod summary;
mod types;
mod validate;

pub use error::PyramidError;
pub(crate) use error::json_line_fault;
pub use fuse::{RRF_K, SearchHit, fuse};
pub use hashed::HashedNgramEmbedder;
pub(crate) use index::LevelIndex;
pub use lexical::{BM25_B, BM25_K1, LexicalIndex, terms};
pub use markdown::{MAX_PROFILE_CHARS, PROFILE_NAME, check_track_name};
pub use page::render_page;
pub use store::CONVERSATIONS_FILE;
pub use store::PyramidData;
pub(crate) use store::{RECORDS_FILE, TRACKS_DIR, parse_lines, render_lines};
pub use summary::{PyramidSummary, render_summary};
pub use types::{Message, Profile, Record, RecordChange, RecordKind, Track};
pub(crate) use validate::is_date;
pub use validate::{Backlinks, MAX_TRACKS};

use crate::generate::Embed;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Folder of the indexes' files, a cache.
pub(crate) const INDEX_DIR: &str = "index";
/// What the index files of level 1 below [`INDEX_DIR`] are called.
pub(crate) const MESSAGE_INDEX: &str = "conversations";
/// What the index files of level 2 below [`INDEX_DIR`] are called.
pub(crate) const RECORD_INDEX: &str = "records";
/// Items that one search returns to the policy.
pub const SEARCH_LIMIT: usize = 5;

/// A checked and indexed pyramid. Shared by threads; nothing in it changes.
pub struct Pyramid {
    user: String,
    data: PyramidData,
    backlinks: Backlinks,
    message_positions: HashMap<String, usize>,
    record_positions: HashMap<String, usize>,
    message_index: LevelIndex,
    record_index: LevelIndex,
}

impl Pyramid {
    /// Reads, checks and indexes the folder of one user; the folder's name is the user's.
    ///
    /// Indexes are kept under `index/`; what is new or changed since is indexed and added there.
    pub fn load(dir: &Path, embedder: &Arc<dyn Embed>) -> Result<Self, PyramidError> {
        let user = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let data = PyramidData::read(dir)?;
        let backlinks = data.validate(dir)?;
        Self::index(user, data, backlinks, embedder, Some(&dir.join(INDEX_DIR)))
    }

    /// Checks and indexes levels that are in memory.
    pub fn from_data(user: &str, data: PyramidData, embedder: &Arc<dyn Embed>) -> Result<Self, PyramidError> {
        let backlinks = data.validate(Path::new(user))?;
        Self::index(user.to_owned(), data, backlinks, embedder, None)
    }

    fn index(
        user: String,
        data: PyramidData,
        backlinks: Backlinks,
        embedder: &Arc<dyn Embed>,
        cache: Option<&Path>,
    ) -> Result<Self, PyramidError> {
        let messages = data.message_items();
        let records = data.record_items();
        let message_index = LevelIndex::build(&messages, embedder, cache.map(|dir| (dir, MESSAGE_INDEX)))?;
        let record_index = LevelIndex::build(&records, embedder, cache.map(|dir| (dir, RECORD_INDEX)))?;
        Ok(Self {
            user,
            message_positions: positions(&messages),
            record_positions: positions(&records),
            message_index,
            record_index,
            backlinks,
            data,
        })
    }

    /// The user's id.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The four levels.
    pub fn data(&self) -> &PyramidData {
        &self.data
    }

    /// The message of that id.
    pub fn message(&self, id: &str) -> Option<&Message> {
        self.message_positions.get(id).map(|&position| &self.data.messages[position])
    }

    /// The record of that id.
    pub fn record(&self, id: &str) -> Option<&Record> {
        self.record_positions.get(id).map(|&position| &self.data.records[position])
    }

    /// The track of that file name.
    pub fn track(&self, name: &str) -> Option<&Track> {
        self.data.tracks.iter().find(|track| track.name == name)
    }

    /// Names that `read_file` takes: the profile, then the tracks by name.
    pub fn file_names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(PROFILE_NAME).chain(self.data.tracks.iter().map(|track| track.name.as_str()))
    }

    /// Ids of the records that have this message as a source, in the order of records.
    pub fn records_of_message(&self, id: &str) -> &[String] {
        self.backlinks.records_of_message.get(id).map_or(&[], Vec::as_slice)
    }

    /// Names of the tracks that have this record as evidence, in the order of tracks.
    pub fn tracks_of_record(&self, id: &str) -> &[String] {
        self.backlinks.tracks_of_record.get(id).map_or(&[], Vec::as_slice)
    }

    /// Hybrid search over messages, best first.
    pub fn search_messages(&self, query: &str, limit: usize) -> Result<Vec<SearchHit>, PyramidError> {
        self.message_index.search(query, limit)
    }

    /// Hybrid search over records, best first.
    pub fn search_records(&self, query: &str, limit: usize) -> Result<Vec<SearchHit>, PyramidError> {
        self.record_index.search(query, limit)
    }
}

fn positions(items: &[(&str, String)]) -> HashMap<String, usize> {
    items.iter().enumerate().map(|(position, (id, _))| ((*id).to_owned(), position)).collect()
}

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
