//! PersonaMem (bowen-upenn): multiple-choice questions about what a user implied, versions 1 and 2.
//!
//! | PersonaMem | here |
//! |---|---|
//! | v2: chat history of a persona | a user with level 1 alone, `p<persona_id>` |
//! | v1: context up to an end index | a user with level 1 alone, `p<persona_id>@<context>-<end>` |
//! | `user_query`, `user_question_or_message` | the question |
//! | `correct_answer`, `incorrect_answers`, `all_options` | options of rule `choice`; v2's are shuffled by the seed |
//! | `related_conversation_snippet` (v2) | evidence, where the history has these messages |
//! | `pref_type`, `question_type` | category |
//!
//! System messages are dropped: they hold the persona, which is what the questions ask about. What stands behind an
//! inner one is a session of its own. `preference` is the answer in other words and is not read.

mod choice;
mod contexts;
#[cfg(test)]
mod tests;
mod v1;
mod v2;

use super::error::DatasetError;
use super::history::{Session, Turn};
use super::output::Report;
use super::source::{self, Fields, Item, fault, names};
use std::path::{Path, PathBuf};

/// What to import, and how to shuffle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonaMem {
    /// The table of questions; its columns tell the version.
    pub questions: PathBuf,
    /// v1: the file of contexts or its folder. v2: the folder to which the table's links are relative. Looked for
    /// beside the questions when not given.
    pub contexts: Option<PathBuf>,
    /// Shuffles the options of v2, whose right answer comes first in the file.
    pub seed: u64,
}

/// Reads the questions and their histories and writes `out/pyramids/…`, `out/questions.jsonl` and the report.
///
/// Everything is built and checked before anything is written.
pub fn import(source: &PersonaMem, out: &Path) -> Result<Report, DatasetError> {
    let file = source.questions.as_path();
    let items: Vec<Item<Fields>> = source::read(file)?;
    let Some(first) = items.first() else {
        return Err(fault(file, "has no questions".to_owned()));
    };
    if first.value.contains_key("user_query") {
        v2::import(source, &items, out)
    } else if first.value.contains_key("shared_context_id") {
        v1::import(source, &items, out)
    } else {
        let wanted = "a column `user_query` (version 2) or `shared_context_id` (version 1) is needed";
        Err(fault(file, format!("{wanted}, found {}", names(&first.value))))
    }
}

/// A history without its system messages, cut into sessions where one stood; and where each turn went.
struct Dialogue {
    sessions: Vec<Session>,
    num_system: usize,
}

impl Dialogue {
    /// `turns` as they are in the file; those without content are left out.
    fn new(turns: Vec<Option<Turn>>) -> Self {
        let mut dialogue = Self { sessions: Vec::new(), num_system: 0 };
        let mut is_open = false;
        for turn in turns.into_iter().flatten() {
            if turn.role == "system" {
                dialogue.num_system += 1;
                is_open = false;
                continue;
            }
            if !is_open {
                dialogue.sessions.push(Session::default());
                is_open = true;
            }
            if let Some(session) = dialogue.sessions.last_mut() {
                session.turns.push(turn);
            }
        }
        dialogue
    }

    /// Counts what was dropped and what asks to be forgotten.
    fn note(&self, report: &mut Report) {
        report.note("system messages dropped, which hold the persona", self.num_system);
        let turns = self.sessions.iter().flat_map(|session| &session.turns);
        let asks = |turn: &&Turn| turn.role == "user" && turn.content.to_lowercase().contains("please forget");
        report.note("messages that ask to forget something, kept", turns.filter(asks).count());
    }
}
