//! A pyramid's four levels as files, read strictly and written aside before they take their names.

use super::error::{PyramidError, json_line_fault};
use super::markdown::PROFILE_NAME;
use super::types::{Message, Profile, Record, Track};
use super::validate::{Backlinks, validate};
use fs_err as fs;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

/// Level 1 inside a user's folder.
pub const CONVERSATIONS_FILE: &str = "conversations.jsonl";
pub(crate) const RECORDS_FILE: &str = "records.jsonl";
pub(crate) const TRACKS_DIR: &str = "tracks";

/// The four levels of one user without indexes: what builders fill and files hold.
///
/// On disk: `conversations.jsonl`, `records.jsonl`, `tracks/*.md`, `profile.md`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PyramidData {
    /// Level 1 in the order in which it was said.
    pub messages: Vec<Message>,
    /// Level 2.
    pub records: Vec<Record>,
    /// Level 3, sorted by name once read.
    pub tracks: Vec<Track>,
    /// Level 4.
    pub profile: Profile,
}

impl PyramidData {
    /// Reads the folder without checking links; [`PyramidData::validate`] does that.
    ///
    /// Missing records, tracks or profile are empty levels; a missing `conversations.jsonl` is an error.
    pub fn read(dir: &Path) -> Result<Self, PyramidError> {
        let messages_path = dir.join(CONVERSATIONS_FILE);
        let messages: Vec<(usize, Message)> = parse_lines(&fs::read_to_string(&messages_path)?, &messages_path)?;
        let records_path = dir.join(RECORDS_FILE);
        let records: Vec<(usize, Record)> = parse_lines(&read_if_there(&records_path)?, &records_path)?;
        reject_duplicate_lines(&messages, |message| &message.id, &messages_path)?;
        reject_duplicate_lines(&records, |record| &record.id, &records_path)?;
        let profile_path = dir.join(PROFILE_NAME);
        let profile = Profile::parse(&read_if_there(&profile_path)?)
            .map_err(|message| PyramidError::Markdown { path: profile_path, message })?;
        Ok(Self {
            messages: messages.into_iter().map(|(_, message)| message).collect(),
            records: records.into_iter().map(|(_, record)| record).collect(),
            tracks: read_tracks(&dir.join(TRACKS_DIR))?,
            profile,
        })
    }

    /// Checks ids, dates, limits and every link, and returns the links turned round; `dir` names files in messages.
    pub fn validate(&self, dir: &Path) -> Result<Backlinks, PyramidError> {
        validate(self, dir)
    }

    /// What is indexed of level 1: ids, and texts with who said them where two people talk.
    pub(crate) fn message_items(&self) -> Vec<(&str, String)> {
        self.messages.iter().map(|message| (message.id.as_str(), message.indexed_text())).collect()
    }

    /// What is indexed of level 2.
    pub(crate) fn record_items(&self) -> Vec<(&str, String)> {
        self.records.iter().map(|record| (record.id.as_str(), record.text.clone())).collect()
    }

    /// Validates and writes all levels, lower ones first. Nothing is written when validation fails.
    ///
    /// Each file is written aside and renamed. `conversations.jsonl` is append-only: what lies on disk must be the
    /// beginning of `messages`, and its bytes are kept. Track files that are not in `tracks` are removed last.
    pub fn save(&self, dir: &Path) -> Result<(), PyramidError> {
        self.validate(dir)?;
        let tracks_dir = dir.join(TRACKS_DIR);
        fs::create_dir_all(&tracks_dir)?;
        self.save_conversations(&dir.join(CONVERSATIONS_FILE))?;
        replace_file(&dir.join(RECORDS_FILE), render_lines(&self.records)?.as_bytes())?;
        for track in &self.tracks {
            replace_file(&tracks_dir.join(&track.name), track.render().as_bytes())?;
        }
        replace_file(&dir.join(PROFILE_NAME), self.profile.text.as_bytes())?;
        for name in track_file_names(&tracks_dir)? {
            if !self.tracks.iter().any(|track| track.name == name) {
                fs::remove_file(tracks_dir.join(name))?;
            }
        }
        Ok(())
    }

    fn save_conversations(&self, path: &Path) -> Result<(), PyramidError> {
        let mut text = read_if_there(path)?;
        let written: Vec<(usize, Message)> = parse_lines(&text, path)?;
        for (position, (line, message)) in written.iter().enumerate() {
            if self.messages.get(position) != Some(message) {
                let message = format!("message `{}` would be changed, but conversations are append-only", message.id);
                return Err(PyramidError::Line { path: path.to_owned(), line: *line, message });
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&render_lines(&self.messages[written.len()..])?);
        replace_file(path, text.as_bytes())
    }
}

fn read_if_there(path: &Path) -> Result<String, PyramidError> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        read => Ok(read?),
    }
}

/// One value a line with its line number from 1; blank lines are skipped.
pub(crate) fn parse_lines<T: DeserializeOwned>(text: &str, path: &Path) -> Result<Vec<(usize, T)>, PyramidError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| match serde_json::from_str(line) {
            Ok(value) => Ok((at + 1, value)),
            Err(error) => {
                Err(PyramidError::Line { path: path.to_owned(), line: at + 1, message: json_line_fault(&error) })
            }
        })
        .collect()
}

fn reject_duplicate_lines<T>(items: &[(usize, T)], id: impl Fn(&T) -> &str, path: &Path) -> Result<(), PyramidError> {
    let mut seen = BTreeMap::new();
    for (line, item) in items {
        if let Some(first) = seen.insert(id(item), *line) {
            let message = format!("duplicate id `{}`, first on line {first}", id(item));
            return Err(PyramidError::Line { path: path.to_owned(), line: *line, message });
        }
    }
    Ok(())
}

/// One value a line.
pub(crate) fn render_lines<T: Serialize>(items: &[T]) -> Result<String, PyramidError> {
    let mut text = String::new();
    for item in items {
        text.push_str(&serde_json::to_string(item).map_err(std::io::Error::from)?);
        text.push('\n');
    }
    Ok(text)
}

fn read_tracks(dir: &Path) -> Result<Vec<Track>, PyramidError> {
    let mut tracks = Vec::new();
    for name in track_file_names(dir)? {
        let path = dir.join(&name);
        let text = fs::read_to_string(&path)?;
        tracks.push(Track::parse(&name, &text).map_err(|message| PyramidError::Markdown { path, message })?);
    }
    Ok(tracks)
}

/// Names of the `.md` files, sorted; empty when there is no such folder.
fn track_file_names(dir: &Path) -> Result<Vec<String>, PyramidError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Writes aside in the same folder and renames, so that a reader sees the old bytes or the new ones.
pub(super) fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), PyramidError> {
    let aside = path.with_extension(format!("aside-{}", std::process::id()));
    fs::write(&aside, bytes)?;
    fs::rename(&aside, path)?;
    Ok(())
}
