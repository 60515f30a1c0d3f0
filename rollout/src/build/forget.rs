//! Taking content out of a pyramid: the messages, and at every level what comes from them.
//!
//! A record whose sources are all removed goes. One that keeps a source keeps only text that came from kept messages
//! (`origins.jsonl` knows which); where nothing is known, its text becomes a quotation of the messages it still has. A
//! track that rests on a record that went or changed is told anew from its remaining records; the profile keeps the lines
//! that rest on other tracks. All of it, with indexes and build state, is one commit; then it is searched for remains.
//!
//! This is the one place where level 1 is rewritten. Files are replaced, not overwritten: what the medium keeps of old
//! bytes is for the file system to say.

use super::disk::{Disk, RealDisk};
use super::error::BuildError;
use super::folder::{BuildFolder, Draft};
use super::journal::Changes;
use super::remains::{self, Vanished};
use super::retell::{record_texts, retell};
use super::state::id_hash;
use super::upper::{day, reduce_profile};
use crate::generate::Embed;
use crate::pyramid::{
    CONVERSATIONS_FILE, INDEX_DIR, LevelIndex, MESSAGE_INDEX, Message, PyramidData, RECORD_INDEX, Record, is_date,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// What stands where a failure's texts stood.
const PURGED: &str = "(removed)";

/// What is to be forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Messages of these ids.
    Messages(Vec<String>),
    /// All messages of the session of this id.
    Session(String),
    /// All messages of days before this one, `YYYY-MM-DD`.
    Before(String),
}

/// What was taken out, and how that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ForgetReport {
    /// Messages that went.
    pub num_messages: usize,
    /// Records that went with all their sources.
    pub num_records_removed: usize,
    /// Records that lost sources or text.
    pub num_records_changed: usize,
    /// Tracks that went with all their records.
    pub num_tracks_removed: usize,
    /// Tracks told anew from their remaining records.
    pub num_tracks_rebuilt: usize,
    /// The profile lost lines.
    pub is_profile_changed: bool,
    /// Lines of `failures.jsonl` that went or lost their texts.
    pub num_failures_purged: usize,
    /// Files that were searched for removed texts.
    pub num_files_searched: usize,
    /// Texts of removed messages and records that were searched for and not found.
    pub num_texts_gone: usize,
    /// Removed items whose text somebody said in a message that stays, so that finding it proves nothing.
    pub said_elsewhere: Vec<String>,
}

/// Removes what is selected, and everything that comes from it alone, from the pyramid in `dir`.
///
/// A selection of ids or of a session that is not there is an error, and nothing is changed. If remains are found
/// afterwards the removal stays, and the error says where they are.
pub fn forget(dir: &Path, selection: &Selection, embedder: &Arc<dyn Embed>) -> Result<ForgetReport, BuildError> {
    forget_on(&RealDisk, dir, selection, embedder)
}

pub(super) fn forget_on(
    disk: &dyn Disk,
    dir: &Path,
    selection: &Selection,
    embedder: &Arc<dyn Embed>,
) -> Result<ForgetReport, BuildError> {
    if !dir.join(CONVERSATIONS_FILE).exists() {
        let message = format!("there is no pyramid: `{CONVERSATIONS_FILE}` is missing");
        return Err(BuildError::Selection { path: dir.to_owned(), message });
    }
    let (mut folder, mut draft) = BuildFolder::open(dir, disk)?;
    let removed = selection
        .select(&draft.data.messages)
        .map_err(|message| BuildError::Selection { path: dir.to_owned(), message })?;
    if removed.is_empty() {
        return Ok(ForgetReport::default());
    }
    let mut removal = Removal::new(&draft.data, &removed);
    removal.messages(&mut draft);
    removal.records(&mut draft);
    removal.tracks(&mut draft);
    removal.profile(&mut draft);
    removal.state(&mut draft);
    folder.commit_with(&draft, indexes(&draft.data, embedder, dir)?)?;
    let Removal { mut report, vanished, ids, gone, .. } = removal;
    let removed_ids: BTreeSet<&str> = ids.iter().chain(&gone).map(String::as_str).collect();
    (report.num_files_searched, report.num_texts_gone) = remains::check(dir, &draft.data, &vanished, &removed_ids)?;
    Ok(report)
}

impl Selection {
    fn select(&self, messages: &[Message]) -> Result<Vec<Message>, String> {
        let pick = |is_in: &dyn Fn(&Message) -> bool| messages.iter().filter(|m| is_in(m)).cloned().collect::<Vec<_>>();
        match self {
            Self::Messages(ids) => match ids.iter().find(|id| !messages.iter().any(|message| message.id == **id)) {
                Some(lost) => Err(format!("message `{lost}` is not there")),
                None => Ok(pick(&|message| ids.contains(&message.id))),
            },
            Self::Session(id) => match pick(&|message| message.session_id == *id) {
                picked if picked.is_empty() => Err(format!("session `{id}` is not there")),
                picked => Ok(picked),
            },
            Self::Before(date) if !is_date(date) => Err(format!("a date must be YYYY-MM-DD, got {date:?}")),
            Self::Before(date) => Ok(pick(&|message| day(&message.time) < *date)),
        }
    }
}

/// A removal on its way up the levels.
pub(super) struct Removal {
    pub(super) ids: BTreeSet<String>,
    /// Messages that stay.
    pub(super) kept: BTreeMap<String, Message>,
    /// Records that went.
    gone: BTreeSet<String>,
    /// Records that lost a source or a text.
    changed: BTreeSet<String>,
    /// Tracks that went or were told anew, by their old names.
    affected_tracks: BTreeSet<String>,
    /// Texts that must not be found any more.
    vanished: Vec<Vanished>,
    /// Everything that stays in level 1.
    kept_text: String,
    report: ForgetReport,
}

impl Removal {
    fn new(data: &PyramidData, removed: &[Message]) -> Self {
        let ids: BTreeSet<String> = removed.iter().map(|message| message.id.clone()).collect();
        let kept = data.messages.iter().filter(|message| !ids.contains(&message.id));
        let kept: BTreeMap<String, Message> = kept.map(|message| (message.id.clone(), message.clone())).collect();
        let kept_text = kept.values().map(|message| message.content.as_str()).collect::<Vec<_>>().join("\n\0\n");
        let report = ForgetReport { num_messages: removed.len(), ..ForgetReport::default() };
        let mut removal = Self {
            ids,
            kept,
            gone: BTreeSet::new(),
            changed: BTreeSet::new(),
            affected_tracks: BTreeSet::new(),
            vanished: vec![],
            kept_text,
            report,
        };
        for message in removed {
            removal.vanish(&format!("message {}", message.id), &message.content);
        }
        removal
    }

    /// Notes a text that has to be gone, unless a message that stays says it too.
    fn vanish(&mut self, item: &str, text: &str) {
        if text.trim().is_empty() {
            return;
        }
        if self.kept_text.contains(text) {
            if self.report.said_elsewhere.iter().all(|known| known != item) {
                self.report.said_elsewhere.push(item.to_owned());
            }
        } else {
            self.vanished.push(Vanished { item: item.to_owned(), text: text.to_owned() });
        }
    }

    pub(super) fn holds_vanished(&self, text: &str) -> bool {
        self.vanished.iter().any(|vanished| vanished.is_in(text))
    }

    fn messages(&self, draft: &mut Draft) {
        draft.data.messages.retain(|message| !self.ids.contains(&message.id));
    }

    fn records(&mut self, draft: &mut Draft) {
        let mut kept = Vec::new();
        let mut old_texts: Vec<(String, String)> = Vec::new();
        for mut record in std::mem::take(&mut draft.data.records) {
            let parts = draft.origins.get(&record.id).into_iter().flat_map(|origin| &origin.parts);
            let all = record_texts(&record).chain(parts.flat_map(|part| [part.text.as_str(), &part.result]));
            let texts: BTreeSet<String> = all.map(str::to_owned).collect();
            let num_sources = record.sources.len();
            record.sources.retain(|source| !self.ids.contains(source));
            let loses_text = texts.iter().any(|text| self.holds_vanished(text));
            if record.sources.is_empty() {
                draft.origins.remove(&record.id);
                self.gone.insert(record.id.clone());
            } else if record.sources.len() < num_sources || loses_text {
                let origin = draft.origins.remove(&record.id);
                let (rebuilt, origin) = self.rebuild(&record, origin.as_ref());
                draft.origins.insert(record.id.clone(), origin);
                self.changed.insert(record.id.clone());
                kept.push(rebuilt);
            } else {
                kept.push(record);
                continue;
            }
            old_texts.extend(texts.into_iter().map(|text| (record.id.clone(), text)));
        }
        draft.data.records = kept;
        if draft.state.is_none() {
            // In a folder that no build made nothing else is known of records.
            draft.origins.clear();
        }
        // What is left of origins came from messages that stay, too.
        let parts = draft.origins.values().flat_map(|origin| &origin.parts);
        let mut still: BTreeSet<&str> = parts.flat_map(|part| [part.text.as_str(), &part.result]).collect();
        still.extend(draft.data.records.iter().flat_map(record_texts));
        for (id, text) in
            old_texts.into_iter().filter(|(_, text)| !still.iter().any(|kept| kept.contains(text.as_str())))
        {
            self.vanish(&format!("record {id}"), &text);
        }
        self.report.num_records_removed = self.gone.len();
        self.report.num_records_changed = self.changed.len();
    }

    fn tracks(&mut self, draft: &mut Draft) {
        let records: BTreeMap<&str, &Record> = draft.data.records.iter().map(|r| (r.id.as_str(), r)).collect();
        let (mut kept, mut affected) = (Vec::new(), Vec::new());
        for track in std::mem::take(&mut draft.data.tracks) {
            let is_touched = track.evidence.iter().any(|id| self.gone.contains(id) || self.changed.contains(id));
            if is_touched || self.holds_vanished(&track.render()) {
                self.affected_tracks.insert(track.name.clone());
                affected.push(track);
            } else {
                kept.push(track);
            }
        }
        for track in affected {
            let left: Vec<&Record> = track.evidence.iter().filter_map(|id| records.get(id.as_str()).copied()).collect();
            match left.is_empty() {
                true => self.report.num_tracks_removed += 1,
                false => {
                    self.report.num_tracks_rebuilt += 1;
                    kept.push(retell(&track, &left, &kept));
                }
            }
        }
        kept.sort_by(|a, b| a.name.cmp(&b.name));
        draft.data.tracks = kept;
    }

    fn profile(&mut self, draft: &mut Draft) {
        let profile = &draft.data.profile;
        let lines = profile.text.lines().filter(|line| !self.holds_vanished(line));
        let mut reduced = profile.clone();
        reduced.text = lines.map(|line| format!("{line}\n")).collect();
        reduced = if self.affected_tracks.is_empty() && reduced.text == profile.text {
            profile.clone()
        } else {
            reduce_profile(&reduced, |name| !self.affected_tracks.contains(name))
        };
        if self.holds_vanished(&reduced.text) {
            reduced = crate::pyramid::Profile::default();
        }
        self.report.is_profile_changed = reduced != *profile;
        draft.data.profile = reduced;
    }

    fn state(&mut self, draft: &mut Draft) {
        let num_failures = draft.failures.len();
        // A reply may quote any record, whatever the call was about, so that no text of one is kept.
        draft.failures.retain_mut(|failure| {
            let num_subjects = failure.messages.len() + failure.records.len();
            failure.messages.retain(|id| !self.ids.contains(id));
            failure.records.retain(|id| !self.gone.contains(id));
            (failure.error, failure.reply) = (PURGED.to_owned(), PURGED.to_owned());
            num_subjects == 0 || failure.messages.len() + failure.records.len() > 0
        });
        self.report.num_failures_purged = num_failures;
        let last_date = draft.data.messages.iter().map(|message| day(&message.time)).max();
        if let Some(state) = &mut draft.state {
            state.pending.retain(|id| !self.gone.contains(id));
            state.last_date = last_date;
            state.is_profile_due |= self.report.is_profile_changed || !self.affected_tracks.is_empty();
            state.forgotten.extend(self.ids.iter().map(|id| id_hash(id)));
        }
    }
}

/// Both indexes written anew: a file that was only added to would still hold what is to be forgotten.
fn indexes(data: &PyramidData, embedder: &Arc<dyn Embed>, dir: &Path) -> Result<Changes, BuildError> {
    let (mut changes, dir) = (Changes::new(), dir.join(INDEX_DIR));
    for (level, items) in [(MESSAGE_INDEX, data.message_items()), (RECORD_INDEX, data.record_items())] {
        let files = LevelIndex::build_read_only(&items, embedder, &dir, level)?.rewritten(&items, &dir, level)?;
        changes.extend(files.into_iter().map(|(name, bytes)| (format!("{INDEX_DIR}/{name}"), bytes)));
    }
    Ok(changes)
}
