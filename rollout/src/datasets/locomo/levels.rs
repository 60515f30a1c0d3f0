//! Levels 1 and 2 of one conversation; the upper ones are in `tracks`.

use super::evidence::resolve;
use super::raw::{RawMessage, RawSample, Session};
use super::{ImportReport, tracks};
use crate::pyramid::{Message, PyramidData, Record, RecordKind};
use std::collections::BTreeSet;

/// A record with what its tracks are chosen by.
pub(super) struct PlacedRecord {
    pub(super) record: Record,
    pub(super) session: usize,
    pub(super) speaker: String,
}

/// All four levels of one conversation.
pub(super) fn build(sample: &RawSample, report: &mut ImportReport) -> Result<PyramidData, String> {
    let user = &sample.sample_id;
    let speakers = sample.speakers()?;
    let (sessions, num_dates_alone) = sample.sessions()?;
    if num_dates_alone > 0 {
        report.num_dates_without_session += num_dates_alone;
        report.warn(user, format!("{num_dates_alone} session dates without a session, skipped"));
    }
    let mut messages = Vec::new();
    for session in &sessions {
        for raw in &session.messages {
            messages.push(message(raw, session, &speakers)?);
        }
    }
    let ids: BTreeSet<&str> = messages.iter().map(|message| message.id.as_str()).collect();
    let records = records(sample, &sessions, &ids, report);
    let tracks = tracks::tracks(sample, &sessions, &speakers, &records, report);
    let profile = tracks::profile(&speakers, &tracks);
    Ok(PyramidData {
        messages,
        records: records.into_iter().map(|placed| placed.record).collect(),
        tracks: tracks.into_iter().map(|placed| placed.track).collect(),
        profile,
    })
}

/// The first speaker takes the role of the user, the second that of the assistant; names stay beside them.
fn message(raw: &RawMessage, session: &Session, speakers: &[String; 2]) -> Result<Message, String> {
    let role = match speakers.iter().position(|speaker| *speaker == raw.speaker) {
        Some(0) => "user",
        Some(_) => "assistant",
        None => {
            return Err(format!("message `{}`: speaker `{}` is none of {speakers:?}", raw.dia_id, raw.speaker));
        }
    };
    let mut content = raw.text.trim().to_owned();
    if let Some(caption) = raw.blip_caption.as_deref().map(str::trim).filter(|caption| !caption.is_empty()) {
        content.push_str(&format!(" [image: {caption}]"));
    }
    Ok(Message {
        id: raw.dia_id.clone(),
        session_id: format!("s{}", session.number),
        time: session.time.format("%Y-%m-%dT%H:%M").to_string(),
        role: role.to_owned(),
        speaker: Some(raw.speaker.clone()),
        content: content.trim().to_owned(),
    })
}

fn records(
    sample: &RawSample,
    sessions: &[Session],
    message_ids: &BTreeSet<&str>,
    report: &mut ImportReport,
) -> Vec<PlacedRecord> {
    let mut records = Vec::new();
    for session in sessions {
        let Some(by_speaker) = sample.observation.get(&format!("session_{}_observation", session.number)) else {
            continue;
        };
        let entries = by_speaker.iter().flat_map(|(speaker, items)| items.iter().map(move |item| (speaker, item)));
        for (position, (speaker, (text, evidence))) in entries.enumerate() {
            let id = format!("R{}:{}", session.number, position + 1);
            let resolved = resolve(evidence.entries(), message_ids);
            report.num_evidence_normalized += resolved.num_normalized;
            let sources = resolved.known();
            if sources.is_empty() {
                report.num_observations_without_source += 1;
                report.warn(&sample.sample_id, format!("observation {id} names no message, left out: {text}"));
                continue;
            }
            records.push(PlacedRecord {
                record: fact(id, text.trim(), session, sources),
                session: session.number,
                speaker: speaker.clone(),
            });
        }
    }
    records
}

fn fact(id: String, text: &str, session: &Session, sources: Vec<String>) -> Record {
    let time = session.time.format("%Y-%m-%dT%H:%M").to_string();
    Record {
        id,
        kind: RecordKind::Fact,
        text: text.to_owned(),
        created: time.clone(),
        updated: time,
        sources,
        event_start: None,
        event_end: None,
        history: Vec::new(),
    }
}
