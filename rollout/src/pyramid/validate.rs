//! What makes a pyramid sound: ids, dates, limits, and links that lead somewhere.

use super::error::PyramidError;
use super::markdown::PROFILE_NAME;
use super::store::{CONVERSATIONS_FILE, PyramidData, RECORDS_FILE, TRACKS_DIR};
use chrono::{NaiveDate, NaiveDateTime};
use std::collections::BTreeMap;
use std::path::Path;

/// Tracks that a user may have.
pub const MAX_TRACKS: usize = 20;

/// Upward links, from what is cited to what cites it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Backlinks {
    /// Message id → ids of records that have it as a source.
    pub records_of_message: BTreeMap<String, Vec<String>>,
    /// Record id → names of tracks that have it as evidence.
    pub tracks_of_record: BTreeMap<String, Vec<String>>,
}

/// `YYYY-MM-DD`.
pub(crate) fn is_date(text: &str) -> bool {
    text.len() == 10 && NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok()
}

/// `YYYY-MM-DDTHH:MM`.
pub(super) fn is_minute(text: &str) -> bool {
    text.len() == 16 && NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M").is_ok()
}

/// Checks everything that needs more than one line or file to know, and turns the links round.
///
/// `dir` only names files in messages.
pub(super) fn validate(data: &PyramidData, dir: &Path) -> Result<Backlinks, PyramidError> {
    check_messages(data, dir)?;
    check_records(data, dir)?;
    check_tracks(data, dir)?;
    check_profile(data, dir)?;
    let mut links = Backlinks::default();
    for record in &data.records {
        for source in &record.sources {
            links.records_of_message.entry(source.clone()).or_default().push(record.id.clone());
        }
    }
    for track in &data.tracks {
        for record in &track.evidence {
            links.tracks_of_record.entry(record.clone()).or_default().push(track.name.clone());
        }
    }
    Ok(links)
}

fn fault(dir: &Path, file: &str, item: String, message: String) -> PyramidError {
    PyramidError::Item { path: dir.join(file), item, message }
}

fn check_id(id: &str) -> Result<(), String> {
    if id.is_empty() || id.chars().any(|c| c.is_whitespace() || c.is_control() || ",[]()\"".contains(c)) {
        return Err("an id must be non-empty and without white space, commas, quotes and brackets".to_owned());
    }
    Ok(())
}

fn check_messages(data: &PyramidData, dir: &Path) -> Result<(), PyramidError> {
    for message in &data.messages {
        let fail = |text: String| fault(dir, CONVERSATIONS_FILE, format!("message `{}`", message.id), text);
        check_id(&message.id).map_err(fail)?;
        if !is_minute(&message.time) {
            return Err(fail(format!("`time` must be YYYY-MM-DDTHH:MM, got {:?}", message.time)));
        }
        if message.session_id.is_empty() || message.role.is_empty() {
            return Err(fail("`session_id` and `role` must not be empty".to_owned()));
        }
    }
    reject_duplicates(data.messages.iter().map(|message| message.id.as_str()), &BTreeMap::new())
        .map_err(|(id, why)| fault(dir, CONVERSATIONS_FILE, format!("message `{id}`"), why))
}

/// The first id that repeats, or that `taken` already holds, with what it collides with.
fn reject_duplicates<'a>(
    ids: impl Iterator<Item = &'a str>,
    taken: &BTreeMap<&str, &str>,
) -> Result<(), (String, String)> {
    let mut seen = BTreeMap::new();
    for (position, id) in ids.enumerate() {
        if let Some(first) = seen.insert(id, position + 1) {
            return Err((id.to_owned(), format!("duplicate id: item {first} and item {}", position + 1)));
        }
        if let Some(other) = taken.get(id) {
            return Err((id.to_owned(), format!("the id is also that of a {other}")));
        }
    }
    Ok(())
}

fn check_records(data: &PyramidData, dir: &Path) -> Result<(), PyramidError> {
    let messages: BTreeMap<&str, &str> = data.messages.iter().map(|m| (m.id.as_str(), "message")).collect();
    for record in &data.records {
        let fail = |text: String| fault(dir, RECORDS_FILE, format!("record `{}`", record.id), text);
        check_id(&record.id).map_err(fail)?;
        for (key, value) in [("created", &record.created), ("updated", &record.updated)] {
            if !is_date(value) && !is_minute(value) {
                return Err(fail(format!("`{key}` must be YYYY-MM-DD or YYYY-MM-DDTHH:MM, got {value:?}")));
            }
        }
        for (key, value) in [("event_start", &record.event_start), ("event_end", &record.event_end)] {
            if let Some(value) = value.as_deref().filter(|value| !is_date(value)) {
                return Err(fail(format!("`{key}` must be YYYY-MM-DD, got {value:?}")));
            }
        }
        if record.sources.is_empty() {
            return Err(fail("`sources` must name at least one message".to_owned()));
        }
        if let Some(lost) = record.sources.iter().find(|source| !messages.contains_key(source.as_str())) {
            return Err(fail(format!("source `{lost}` is not a message of {CONVERSATIONS_FILE}")));
        }
    }
    reject_duplicates(data.records.iter().map(|record| record.id.as_str()), &messages)
        .map_err(|(id, why)| fault(dir, RECORDS_FILE, format!("record `{id}`"), why))
}

fn check_tracks(data: &PyramidData, dir: &Path) -> Result<(), PyramidError> {
    if data.tracks.len() > MAX_TRACKS {
        let message = format!("{} tracks, at most {MAX_TRACKS} are allowed", data.tracks.len());
        return Err(PyramidError::Markdown { path: dir.join(TRACKS_DIR), message });
    }
    let records: BTreeMap<&str, ()> = data.records.iter().map(|record| (record.id.as_str(), ())).collect();
    let mut names: BTreeMap<String, &str> = BTreeMap::new();
    for track in &data.tracks {
        let path = dir.join(TRACKS_DIR).join(&track.name);
        let fail = |message| PyramidError::Markdown { path: path.clone(), message };
        track.check().map_err(fail)?;
        if let Some(lost) = track.evidence.iter().find(|id| !records.contains_key(id.as_str())) {
            return Err(fail(format!("evidence `{lost}` is not a record of {RECORDS_FILE}")));
        }
        // Names that differ by case alone would be one file on some systems.
        if let Some(other) = names.insert(track.name.to_lowercase(), &track.name) {
            return Err(fail(format!("duplicate track name: `{other}` and `{}`", track.name)));
        }
    }
    Ok(())
}

fn check_profile(data: &PyramidData, dir: &Path) -> Result<(), PyramidError> {
    let fail = |message| PyramidError::Markdown { path: dir.join(PROFILE_NAME), message };
    data.profile.check().map_err(fail)?;
    let is_track = |name: &String| data.tracks.iter().any(|track| track.name == *name);
    match data.profile.evidence.iter().find(|name| !is_track(name)) {
        Some(lost) => Err(fail(format!("evidence `{lost}` is not a file of {TRACKS_DIR}/"))),
        None => Ok(()),
    }
}
