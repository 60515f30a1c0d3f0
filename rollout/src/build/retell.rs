//! What a removal leaves of records and tracks, told from what stays alone.

use super::forget::Removal;
use super::prompt::cut;
use super::records::{apply_change, unite_dates};
use super::reply::one_line;
use super::state::{Origin, OriginPart};
use super::upper::{day, free_name};
use crate::pyramid::{Message, Record, RecordKind, Track, terms};
use std::collections::{BTreeMap, BTreeSet};

/// Characters of a record that is told anew.
const MAX_QUOTE_CHARS: usize = 500;
/// Characters of a track's summary and narrative that are told anew.
const MAX_RETOLD_CHARS: [usize; 2] = [500, 3_000];

impl Removal {
    /// The record from those parts of it that came from kept messages alone. `record.sources` are those that are left.
    pub(super) fn rebuild(&self, record: &Record, origin: Option<&Origin>) -> (Record, Origin) {
        let mut rebuilt: Option<Record> = None;
        let mut parts: Vec<OriginPart> = Vec::new();
        let mut is_tainted = false;
        for part in origin.map_or(&[][..], |origin| &origin.parts) {
            if part.sources.iter().any(|source| self.ids.contains(source)) {
                is_tainted = true;
                continue;
            }
            let mut part = part.clone();
            // Later texts of the record may repeat the removed part, the candidate's own cannot.
            if is_tainted {
                part.result = match &rebuilt {
                    Some(known) if part.action == "merge" && !known.text.contains(&part.text) => {
                        cut(&format!("{} {}", known.text, part.text), MAX_QUOTE_CHARS)
                    }
                    _ => part.text.clone(),
                };
            }
            rebuilt = Some(with_part(rebuilt, record, &part));
            parts.push(part);
        }
        let parts_texts: Vec<&String> = parts.iter().flat_map(|part| [&part.text, &part.result]).collect();
        let is_dirty = parts_texts.into_iter().any(|text| self.holds_vanished(text));
        let is_clean = |record: &Record| !is_dirty && !record_texts(record).any(|text| self.holds_vanished(text));
        match rebuilt.filter(is_clean) {
            Some(rebuilt) => {
                let rebuilt = Record { sources: record.sources.clone(), ..rebuilt };
                (rebuilt, Origin { id: record.id.clone(), parts })
            }
            None => self.quote(record),
        }
    }

    /// A record of which only the messages that it still has are known.
    fn quote(&self, record: &Record) -> (Record, Origin) {
        let sources: Vec<&Message> = record.sources.iter().filter_map(|source| self.kept.get(source)).collect();
        let quotes: Vec<String> = sources
            .iter()
            .map(|source| {
                let speaker = source.speaker.as_deref().unwrap_or(&source.role);
                format!("{speaker}: {}", one_line(&source.content))
            })
            .collect();
        let text = cut(&quotes.join(" / "), MAX_QUOTE_CHARS);
        let time = |of: Option<&String>| of.cloned().unwrap_or_else(|| record.created.clone());
        let quoted = Record {
            // The dates of an event may have come from what is removed.
            kind: if record.kind == RecordKind::Event { RecordKind::Fact } else { record.kind },
            text: text.clone(),
            created: time(sources.iter().map(|source| &source.time).min()),
            updated: time(sources.iter().map(|source| &source.time).max()),
            event_start: None,
            event_end: None,
            history: vec![],
            ..record.clone()
        };
        let part = OriginPart {
            action: "store".to_owned(),
            time: quoted.updated.clone(),
            sources: record.sources.clone(),
            text: text.clone(),
            result: text,
            event_start: None,
            event_end: None,
        };
        (quoted, Origin { id: record.id.clone(), parts: vec![part] })
    }
}

/// The text of a record and those it had.
pub(super) fn record_texts(record: &Record) -> impl Iterator<Item = &str> {
    std::iter::once(record.text.as_str()).chain(record.history.iter().map(|change| change.previous_text.as_str()))
}

/// Adds a part to a record as its candidate was added.
fn with_part(rebuilt: Option<Record>, record: &Record, part: &OriginPart) -> Record {
    match rebuilt {
        Some(mut rebuilt) => {
            apply_change(&mut rebuilt, &part.action, part.result.clone(), &part.time, &part.sources);
            unite_dates(&mut rebuilt, part.action == "merge", part.event_start.clone(), part.event_end.clone());
            rebuilt
        }
        None => Record {
            text: part.result.clone(),
            created: part.time.clone(),
            updated: part.time.clone(),
            sources: part.sources.clone(),
            event_start: part.event_start.clone(),
            event_end: part.event_end.clone(),
            history: vec![],
            ..record.clone()
        },
    }
}

/// A track from its remaining records alone. Title and name stay only if those records speak of them.
pub(super) fn retell(track: &Track, records: &[&Record], others: &[Track]) -> Track {
    let mut ordered = records.to_vec();
    ordered.sort_by(|a, b| (&a.created, &a.id).cmp(&(&b.created, &b.id)));
    let words: BTreeSet<String> = ordered.iter().flat_map(|record| terms(&record.text)).collect();
    let is_said = |text: &str| terms(text).iter().all(|term| words.contains(term));
    let title = if is_said(&track.title) { track.title.clone() } else { topic(&ordered) };
    let stem = track.name.trim_end_matches(".md").replace(['-', '_'], " ");
    let name = if is_said(&stem) { track.name.clone() } else { free_name(&title, others) };
    let [max_summary, max_narrative] = MAX_RETOLD_CHARS;
    let lines = ordered.iter().map(|record| format!("- {}: {}", day(&record.updated), record.text));
    let mut narrative: Vec<String> = Vec::new();
    let mut num_chars = 0;
    for line in lines {
        num_chars += line.chars().count() + 1;
        if num_chars <= max_narrative || narrative.is_empty() {
            narrative.push(line);
        }
    }
    let latest = ordered.last().map_or("", |record| record.text.as_str());
    Track {
        name,
        title,
        created: ordered.iter().map(|record| day(&record.created)).min().unwrap_or_default(),
        updated: ordered.iter().map(|record| day(&record.updated)).max().unwrap_or_default(),
        summary: one_line(&cut(latest, max_summary)),
        narrative: narrative.iter().map(|line| one_line(line)).collect::<Vec<_>>().join("\n"),
        evidence: records.iter().map(|record| record.id.clone()).collect(),
    }
}

/// The longest of the most frequent terms of the records.
fn topic(records: &[&Record]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for term in records.iter().flat_map(|record| terms(&record.text)).filter(|term| term.chars().count() > 3) {
        *counts.entry(term).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(term, count)| (*count, term.chars().count()));
    most.map_or_else(|| "Topic".to_owned(), |(term, _)| term)
}
