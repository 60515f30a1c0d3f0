//! One user's build, session by session; each is committed as a whole.

use super::ask::{Caller, Shared};
use super::error::BuildError;
use super::folder::{BuildFolder, Draft};
use super::history::{Session, UserHistory, batches, new_sessions};
use super::journal::Changes;
use super::ledger::LedgerReport;
use super::progress::{BuildEvent, Trigger, UserReport};
use super::state::{BuildState, Failure};
use super::upper::day;
use crate::generate::Embed;
use crate::pyramid::{INDEX_DIR, LevelIndex, MESSAGE_INDEX, PyramidData, RECORD_INDEX};
use std::path::Path;
use std::sync::Arc;

/// The pieces of a build that its steps work on.
pub(super) struct UserBuild<'a> {
    pub(super) caller: Caller<'a>,
    pub(super) draft: Draft,
    pub(super) state: BuildState,
    pub(super) record_index: LevelIndex,
    message_index: LevelIndex,
    pub(super) report: UserReport,
    folder: BuildFolder<'a>,
}

/// Brings the pyramid in `dir` up to a history.
pub(super) fn build(
    shared: &Shared<'_>,
    history: &UserHistory,
    dir: &Path,
    embedder: &Arc<dyn Embed>,
) -> Result<UserReport, BuildError> {
    super::history::check_user(&history.user)
        .map_err(|message| BuildError::History { user: history.user.clone(), message })?;
    let (folder, draft) = BuildFolder::open(dir, shared.disk)?;
    if draft.state.is_none() && draft.data != PyramidData::default() {
        return Err(BuildError::NotBuilt(dir.to_owned()));
    }
    let new = new_sessions(history, &draft, dir)?;
    shared.count(|counts| counts.num_sessions += new.sessions.len());
    let index_dir = dir.join(INDEX_DIR);
    let index = |items: &[(&str, String)], level: &str| LevelIndex::build_read_only(items, embedder, &index_dir, level);
    let mut build = UserBuild {
        caller: Caller { shared, user: &history.user, dir, lines: vec![] },
        record_index: index(&draft.data.record_items(), RECORD_INDEX)?,
        message_index: index(&draft.data.message_items(), MESSAGE_INDEX)?,
        state: draft.state.clone().unwrap_or_default(),
        draft,
        report: UserReport { num_forgotten: new.num_forgotten, ..UserReport::default() },
        folder,
    };
    build.run(&new.sessions)?;
    build.report.ledger = LedgerReport::of(&build.caller.lines);
    Ok(build.report)
}

impl UserBuild<'_> {
    fn run(&mut self, sessions: &[Session]) -> Result<(), BuildError> {
        for session in sessions {
            self.session(session)?;
            self.commit()?;
            self.report.num_sessions += 1;
            self.caller.shared.count(|counts| counts.num_sessions_done += 1);
        }
        if !self.state.pending.is_empty() {
            self.revise(Trigger::EndOfHistory)?;
        } else if self.state.is_profile_due {
            self.revise_profile(Trigger::TracksUpdated)?;
        }
        self.commit()?;
        self.write_indexes()
    }

    fn session(&mut self, session: &Session) -> Result<(), BuildError> {
        if !self.state.pending.is_empty() {
            self.revise(Trigger::NewSession)?;
        }
        let settings = self.caller.shared.settings;
        let messages = &session.messages;
        let id = messages.first().map_or_else(String::new, |message| message.session_id.clone());
        self.caller.event(&BuildEvent::Session { id, num_messages: messages.len() });
        self.report.num_messages += messages.len();
        let start = self.draft.data.messages.len();
        self.draft.data.messages.extend(messages.iter().cloned());
        let items = self.draft.data.message_items();
        self.message_index.put(&items[start..])?;
        for batch in batches(messages, &settings.batch_turns, settings.max_new_messages) {
            let (first, last) = (day(&messages[batch.start].time), day(&messages[batch.end - 1].time));
            let is_new_day = self.state.last_date.as_ref().is_some_and(|date| *date != first);
            if is_new_day && !self.state.pending.is_empty() {
                self.revise(Trigger::DateBoundary)?;
            }
            self.extract(start + batch.start..start + batch.end)?;
            self.state.last_date = Some(last);
            if self.state.num_new_since_tracks > settings.tracks_after_records {
                self.revise(Trigger::ManyRecords)?;
            }
            if self.state.num_new_since_profile > settings.profile_after_records {
                self.revise_profile(Trigger::ManyRecords)?;
            }
        }
        Ok(())
    }

    /// Notes a skipped call.
    pub(super) fn fail(&mut self, failure: Failure) {
        self.report.num_failures += 1;
        self.draft.failures.push(failure);
    }

    fn commit(&mut self) -> Result<(), BuildError> {
        self.draft.state = Some(self.state.clone());
        self.folder.commit(&self.draft)?;
        self.caller.event(&BuildEvent::Committed);
        Ok(())
    }

    /// Leaves the indexes where a reader finds them, so that nothing is embedded twice.
    fn write_indexes(&mut self) -> Result<(), BuildError> {
        let (data, dir) = (&self.draft.data, self.folder.dir.join(INDEX_DIR));
        let mut files = self.message_index.files(&data.message_items(), &dir, MESSAGE_INDEX)?;
        files.extend(self.record_index.files(&data.record_items(), &dir, RECORD_INDEX)?);
        let changes: Changes = files.into_iter().map(|(name, bytes)| (format!("{INDEX_DIR}/{name}"), bytes)).collect();
        self.folder.commit_with(&self.draft, changes)
    }
}
