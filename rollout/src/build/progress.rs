//! What a build tells whoever watches, and what it reports in the end.

use super::error::BuildError;
use super::ledger::{LedgerReport, LedgerTotals};
use super::reply::RecordAction;
use serde::Serialize;

/// Why tracks or profile are revised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// A session is about to begin, and records are pending.
    NewSession,
    /// The next messages are of another day, and records are pending.
    DateBoundary,
    /// Many new records have piled up.
    ManyRecords,
    /// The history ends here, and records are pending: what the next session would do first.
    EndOfHistory,
    /// Tracks were changed. Only the profile has this trigger.
    TracksUpdated,
}

/// One step of one user's build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildEvent {
    /// Messages of the session with this id are added to level 1.
    Session {
        /// The session.
        id: String,
        /// New messages.
        num_messages: usize,
    },
    /// Records are extracted from these messages.
    Batch {
        /// New messages.
        num_messages: usize,
        /// Messages shown beside them.
        num_background: usize,
    },
    /// A candidate was reconciled.
    Reconciled(RecordAction),
    /// Tracks are revised.
    Tracks(Trigger),
    /// The profile is revised.
    Profile(Trigger),
    /// Everything up to here lies on disk.
    Committed,
    /// A call was skipped after its last refusal.
    Skipped,
}

/// How far all users are together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BuildCounts {
    /// Users to build.
    pub num_users: usize,
    /// Users that ended, well or not.
    pub num_users_done: usize,
    /// Sessions with new messages, of users whose build has begun.
    pub num_sessions: usize,
    /// Sessions that were committed.
    pub num_sessions_done: usize,
    /// Calls, tokens and cost of this build.
    pub calls: LedgerTotals,
}

/// Watches a build. Calls come from several threads.
pub trait BuildProgress: Sync {
    /// The counts have changed.
    fn update(&self, _counts: &BuildCounts) {}

    /// A user's build made a step.
    fn event(&self, _user: &str, _event: &BuildEvent) {}
}

/// Watches nothing.
pub struct NoProgress;

impl BuildProgress for NoProgress {}

/// What one user's build did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct UserReport {
    /// Sessions with new messages.
    pub num_sessions: usize,
    /// Messages added to level 1.
    pub num_messages: usize,
    /// Messages left out because they were removed from this pyramid before.
    pub num_forgotten: usize,
    /// Extraction calls.
    pub num_batches: usize,
    /// Candidates left out because they cite background.
    pub num_rejected: usize,
    /// Candidates that became records.
    pub num_stored: usize,
    /// Candidates that were redundant.
    pub num_skipped: usize,
    /// Candidates that changed a record.
    pub num_updated: usize,
    /// Candidates that became part of a record.
    pub num_merged: usize,
    /// Revisions of the tracks.
    pub num_track_revisions: usize,
    /// Revisions of the profile.
    pub num_profile_revisions: usize,
    /// Calls skipped after their last refusal; `failures.jsonl` tells which.
    pub num_failures: usize,
    /// Calls of this build.
    pub ledger: LedgerReport,
}

/// How one user's build ended. An error does not stop the others.
pub struct UserOutcome {
    /// The user.
    pub user: String,
    /// What was done, or why it could not go on.
    pub result: Result<UserReport, BuildError>,
}
