//! Level 2: extraction of candidates and their reconciliation with what is known.

use super::ask::{Asked, Subject};
use super::error::BuildError;
use super::language::LanguageRole;
use super::pipeline::UserBuild;
use super::progress::BuildEvent;
use super::prompt::cut;
use super::reply::{Candidate, ExtractReply, ReconcileReply, RecordAction};
use super::state::{Origin, OriginPart};
use crate::pyramid::{Message, Record, RecordChange};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ops::Range;

impl UserBuild<'_> {
    /// Extracts from the messages at these positions of level 1 and reconciles what is found.
    pub(super) fn extract(&mut self, new: Range<usize>) -> Result<(), BuildError> {
        let settings = self.caller.shared.settings;
        let messages = &self.draft.data.messages;
        let background = new.start.saturating_sub(settings.max_background_messages)..new.start;
        self.caller.event(&BuildEvent::Batch { num_messages: new.len(), num_background: background.len() });
        let records = &self.draft.data.records;
        let latest = &records[records.len().saturating_sub(settings.max_background_records)..];
        let shown = |range: &Range<usize>| -> Vec<Value> {
            messages[range.clone()].iter().map(|message| message_json(message, settings.max_message_chars)).collect()
        };
        let data = json!({
            "background_records": latest.iter().map(record_json).collect::<Vec<_>>(),
            "background": shown(&background),
            "new": shown(&new),
            "limits": {"max_records": settings.max_records_per_call, "max_chars": settings.max_record_chars},
        });
        let ids = |range: Range<usize>| messages[range].iter().map(|m| m.id.as_str()).collect::<BTreeSet<_>>();
        let (new_ids, background_ids) = (ids(new.clone()), ids(background));
        let subject = Subject {
            messages: messages[new.clone()].iter().map(|message| message.id.clone()).collect(),
            records: vec![],
        };
        let limits = (settings.max_records_per_call, settings.max_record_chars);
        let read = |reply: &str| ExtractReply::read(reply, &new_ids, &background_ids, limits);
        self.report.num_batches += 1;
        match self.caller.ask(LanguageRole::Extract, &data, subject, read)? {
            Asked::Skipped(failure) => self.fail(failure),
            Asked::Read((candidates, num_rejected)) => {
                self.report.num_rejected += num_rejected;
                for candidate in candidates {
                    let time = self.time_of(&candidate);
                    self.reconcile(candidate, &time)?;
                }
            }
        }
        Ok(())
    }

    /// The latest time of the messages that say so.
    fn time_of(&self, candidate: &Candidate) -> String {
        let sources = self.draft.data.messages.iter().filter(|message| candidate.sources.contains(&message.id));
        sources.map(|message| message.time.clone()).max().unwrap_or_default()
    }

    /// Brings a candidate together with the existing records that are most like it.
    fn reconcile(&mut self, candidate: Candidate, time: &str) -> Result<(), BuildError> {
        let settings = self.caller.shared.settings;
        let hits = self.record_index.search(&candidate.text, settings.num_neighbors)?;
        let found = |id: &str| self.draft.data.records.iter().find(|record| record.id == id);
        let neighbors: Vec<&Record> = hits.iter().filter_map(|hit| found(&hit.id)).collect();
        // With nothing to compare there is nothing to decide.
        if neighbors.is_empty() {
            return self.store(candidate, time);
        }
        let data = json!({
            "candidate": {
                "kind": candidate.kind, "text": candidate.text, "time": time,
                "event_start": candidate.event_start, "event_end": candidate.event_end,
            },
            "existing": neighbors.iter().map(|record| record_json(record)).collect::<Vec<_>>(),
            "limits": {"max_chars": settings.max_record_chars},
        });
        let ids: BTreeSet<&str> = neighbors.iter().map(|record| record.id.as_str()).collect();
        let subject = Subject {
            messages: candidate.sources.clone(),
            records: neighbors.iter().map(|record| record.id.clone()).collect(),
        };
        let read = |reply: &str| ReconcileReply::read(reply, &ids, settings.max_record_chars);
        match self.caller.ask(LanguageRole::Reconcile, &data, subject, read)? {
            Asked::Skipped(failure) => {
                self.fail(failure);
                Ok(())
            }
            Asked::Read(ReconcileReply { action, target: Some(target), text: Some(text) }) => {
                self.change(action, &target, text, candidate, time)
            }
            Asked::Read(ReconcileReply { action: RecordAction::Store, .. }) => self.store(candidate, time),
            Asked::Read(ReconcileReply { action, .. }) => {
                self.report.num_skipped += 1;
                self.caller.event(&BuildEvent::Reconciled(action));
                Ok(())
            }
        }
    }

    fn store(&mut self, candidate: Candidate, time: &str) -> Result<(), BuildError> {
        let id = self.next_id();
        let part = part(RecordAction::Store, &candidate, time, &candidate.text);
        self.draft.origins.insert(id.clone(), Origin { id: id.clone(), parts: vec![part] });
        let Candidate { kind, text, sources, event_start, event_end } = candidate;
        self.record_index.put(&[(&id, text.clone())])?;
        self.draft.data.records.push(Record {
            id: id.clone(),
            kind,
            text,
            created: time.to_owned(),
            updated: time.to_owned(),
            sources,
            event_start,
            event_end,
            history: vec![],
        });
        self.report.num_stored += 1;
        self.state.add_pending(&id);
        self.state.num_new_since_tracks += 1;
        self.state.num_new_since_profile += 1;
        self.caller.event(&BuildEvent::Reconciled(RecordAction::Store));
        Ok(())
    }

    /// `update` or `merge`: the id stays, sources and times are united, the old text goes into the history.
    fn change(
        &mut self,
        action: RecordAction,
        target: &str,
        text: String,
        candidate: Candidate,
        time: &str,
    ) -> Result<(), BuildError> {
        let part = part(action, &candidate, time, &text);
        let record = self.draft.data.records.iter_mut().find(|record| record.id == target);
        let record = record.unwrap_or_else(|| panic!("`{target}` was found by a search over records"));
        apply_change(record, action.name(), text, time, &candidate.sources);
        unite_dates(record, action == RecordAction::Merge, candidate.event_start, candidate.event_end);
        self.record_index.put(&[(target, record.text.clone())])?;
        let origin = self.draft.origins.entry(target.to_owned());
        origin.or_insert_with(|| Origin { id: target.to_owned(), parts: vec![] }).parts.push(part);
        match action {
            RecordAction::Merge => self.report.num_merged += 1,
            _ => self.report.num_updated += 1,
        }
        self.state.add_pending(target);
        self.caller.event(&BuildEvent::Reconciled(action));
        Ok(())
    }

    /// `r1`, `r2`, …; a number that a message's id has taken is passed over.
    fn next_id(&mut self) -> String {
        loop {
            self.state.num_ids_given += 1;
            let id = format!("r{}", self.state.num_ids_given);
            if !self.draft.data.messages.iter().any(|message| message.id == id) {
                return id;
            }
        }
    }
}

fn part(action: RecordAction, candidate: &Candidate, time: &str, result: &str) -> OriginPart {
    OriginPart {
        action: action.name().to_owned(),
        time: time.to_owned(),
        sources: candidate.sources.clone(),
        text: candidate.text.clone(),
        result: result.to_owned(),
        event_start: candidate.event_start.clone(),
        event_end: candidate.event_end.clone(),
    }
}

/// Gives a record a new text and unites its sources and times with those of the change.
pub(super) fn apply_change(record: &mut Record, action: &str, text: String, time: &str, sources: &[String]) {
    let previous_text = std::mem::replace(&mut record.text, text);
    record.history.push(RecordChange { time: time.to_owned(), action: action.to_owned(), previous_text });
    for source in sources {
        if !record.sources.contains(source) {
            record.sources.push(source.clone());
        }
    }
    // A late session may bring what is older than the record.
    record.created = record.created.clone().min(time.to_owned());
    record.updated = record.updated.clone().max(time.to_owned());
}

/// A merge spans both times; an update takes the new one where there is one.
pub(super) fn unite_dates(record: &mut Record, is_merge: bool, start: Option<String>, end: Option<String>) {
    let Some(start) = start else {
        return;
    };
    let last = end.clone().unwrap_or_else(|| start.clone());
    match (&record.event_start, is_merge) {
        (Some(known_start), true) => {
            let known_last = record.event_end.clone().unwrap_or_else(|| known_start.clone());
            let (first, last) = (start.min(known_start.clone()), last.max(known_last));
            record.event_end = (last != first).then_some(last);
            record.event_start = Some(first);
        }
        _ => {
            record.event_start = Some(start);
            record.event_end = end;
        }
    }
}

fn message_json(message: &Message, max_chars: usize) -> Value {
    json!({
        "id": message.id, "time": message.time, "role": message.role, "speaker": message.speaker,
        "text": cut(&message.content, max_chars),
    })
}

/// A record as prompts show it.
pub(super) fn record_json(record: &Record) -> Value {
    json!({
        "id": record.id, "kind": record.kind, "text": record.text, "created": record.created, "updated": record.updated,
        "event_start": record.event_start, "event_end": record.event_end,
    })
}
