//! The proof of a removal: every file is searched for removed texts, and keyword search must not lead to removed items.

use super::error::BuildError;
use crate::pyramid::{LexicalIndex, PyramidData};
use fs_err as fs;
use std::collections::BTreeSet;
use std::path::Path;

/// Characters of a text that keyword search is asked for.
const MAX_QUERY_CHARS: usize = 2_000;
/// A single word shorter than this may be a key of our own files; it is looked for in the levels' texts only.
const MIN_WORD_CHARS: usize = 24;

/// A text that must be gone.
#[derive(Debug, Clone)]
pub(super) struct Vanished {
    /// `message m3`, `record r7`.
    pub(super) item: String,
    pub(super) text: String,
}

impl Vanished {
    /// Whether a text of an upper level still says it.
    ///
    /// A short text counts only as a whole: "tea" is no remain of a message "tea" in a record about steam.
    pub(super) fn is_in(&self, text: &str) -> bool {
        if self.is_distinct() { text.contains(&self.text) } else { text == self.text }
    }

    fn is_distinct(&self) -> bool {
        let is_sentence = self.text.trim().contains(char::is_whitespace) && self.text.chars().count() >= 8;
        is_sentence || self.text.chars().count() >= MIN_WORD_CHARS
    }
}

/// Searches everything below `dir`; gives the numbers of files and of texts.
pub(super) fn check(
    dir: &Path,
    data: &PyramidData,
    vanished: &[Vanished],
    removed_ids: &BTreeSet<&str>,
) -> Result<(usize, usize), BuildError> {
    let fault = |item: &str, found: String| BuildError::Remains { path: dir.to_owned(), item: item.to_owned(), found };
    let num_files = walk(dir, &mut |path, text| {
        for Vanished { item, text: gone } in vanished.iter().filter(|vanished| vanished.is_distinct()) {
            let escaped = serde_json::to_string(gone).map_err(std::io::Error::from)?;
            // Inside JSON a text stands with its line breaks and quotation marks escaped.
            if text.contains(gone.as_str()) || text.contains(escaped.trim_matches('"')) {
                return Err(fault(item, path.display().to_string()));
            }
        }
        Ok(())
    })?;
    for short in vanished.iter().filter(|vanished| !vanished.is_distinct()) {
        if let Some(found) = level_texts(data).find(|text| short.is_in(text)) {
            return Err(fault(&short.item, format!("a text of a level: {found:?}")));
        }
    }
    let (mut messages, mut records) = (LexicalIndex::default(), LexicalIndex::default());
    data.message_items().iter().for_each(|(id, text)| messages.add(id, text));
    data.record_items().iter().for_each(|(id, text)| records.add(id, text));
    for Vanished { item, text } in vanished {
        let query: String = text.chars().take(MAX_QUERY_CHARS).collect();
        let hits = messages.search(&query, usize::MAX).into_iter().chain(records.search(&query, usize::MAX));
        if let Some((id, _)) = hits.into_iter().find(|(id, _)| removed_ids.contains(id.as_str())) {
            return Err(fault(item, format!("a search, which finds `{id}`")));
        }
    }
    Ok((num_files, vanished.len()))
}

fn level_texts(data: &PyramidData) -> impl Iterator<Item = &str> {
    let messages = data.messages.iter().map(|message| message.content.as_str());
    let records = data.records.iter().flat_map(|record| {
        std::iter::once(record.text.as_str()).chain(record.history.iter().map(|change| change.previous_text.as_str()))
    });
    let tracks = data.tracks.iter().flat_map(|track| [track.title.as_str(), &track.summary, &track.narrative]);
    messages.chain(records).chain(tracks).chain([data.profile.text.as_str()])
}

/// Hands every file with its text to `visit`; links are not followed.
fn walk(dir: &Path, visit: &mut dyn FnMut(&Path, &str) -> Result<(), BuildError>) -> Result<usize, BuildError> {
    let mut num_files = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            num_files += walk(&entry.path(), visit)?;
        } else if kind.is_file() {
            num_files += 1;
            visit(&entry.path(), &String::from_utf8_lossy(&fs::read(entry.path())?))?;
        }
    }
    Ok(num_files)
}
