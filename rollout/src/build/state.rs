//! What a build remembers between sessions, beside the levels.

use super::language::LanguageRole;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// Counters and pending work; changes in the same commit as the levels.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BuildState {
    /// Number of the latest record's id.
    pub(super) num_ids_given: u64,
    /// Records that no revision of the tracks has seen in their present state, in the order of their change.
    pub(super) pending: Vec<String>,
    /// Records stored since the tracks were revised.
    pub(super) num_new_since_tracks: usize,
    /// Records stored since the profile was revised.
    pub(super) num_new_since_profile: usize,
    /// Tracks were changed and the profile was not revised since.
    pub(super) is_profile_due: bool,
    /// Date of the latest extracted message, `YYYY-MM-DD`.
    pub(super) last_date: Option<String>,
    /// Hashes of the ids of removed messages, so that the same history does not bring them back.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) forgotten: BTreeSet<String>,
}

impl BuildState {
    /// Puts a stored or changed record at the end of what the tracks have to take in.
    pub(super) fn add_pending(&mut self, id: &str) {
        if !self.pending.iter().any(|known| known == id) {
            self.pending.push(id.to_owned());
        }
    }
}

/// What a message's id is remembered by once it was removed.
pub(super) fn id_hash(id: &str) -> String {
    Sha256::digest(id.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a record was made of: one part for each candidate that went into it, oldest first.
///
/// A record knows all its sources, but not which of its texts came from which. This does, so that a source can be
/// taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Origin {
    /// The record.
    pub(super) id: String,
    pub(super) parts: Vec<OriginPart>,
}

/// One candidate that became or changed a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OriginPart {
    /// `store`, `update` or `merge`.
    pub(super) action: String,
    /// Time of the candidate.
    pub(super) time: String,
    /// Messages that the candidate came from.
    pub(super) sources: Vec<String>,
    /// The candidate's text.
    pub(super) text: String,
    /// The record's text afterwards.
    pub(super) result: String,
    /// The candidate's own dates.
    pub(super) event_start: Option<String>,
    pub(super) event_end: Option<String>,
}

/// A line of `failures.jsonl`: what was skipped because no reply could be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// What the model was asked for.
    pub role: LanguageRole,
    /// Messages of the skipped call.
    pub messages: Vec<String>,
    /// Existing records of the skipped call.
    pub records: Vec<String>,
    /// Replies that were refused.
    pub num_attempts: u32,
    /// Why the last one was.
    pub error: String,
    /// Its beginning.
    pub reply: String,
}
