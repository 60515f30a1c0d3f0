//! The four levels' items as they lie on disk.

use serde::{Deserialize, Serialize};

/// Level 1: one message, exactly as it was said. A line of `conversations.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Unique within the user.
    pub id: String,
    /// The session it belongs to.
    pub session_id: String,
    /// When it was said: ISO 8601 local time, `YYYY-MM-DDTHH:MM`.
    pub time: String,
    /// `user` or `assistant` (or a dataset's own role).
    pub role: String,
    /// The speaker's name, where there are two people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speaker: Option<String>,
    /// What was said.
    pub content: String,
}

impl Message {
    /// What is indexed of it: its text, and who said it where two people talk.
    pub(crate) fn indexed_text(&self) -> String {
        match &self.speaker {
            Some(speaker) => format!("{speaker}: {}", self.content),
            None => self.content.clone(),
        }
    }
}

/// The four kinds of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// Something that holds.
    Fact,
    /// Something that happened or will happen, at a time or over a span.
    Event,
    /// How the user wants things done; wins on conflict.
    Instruction,
    /// What the user likes.
    Preference,
}

/// What an earlier state of a record was, and when it was replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordChange {
    /// When the change was made, ISO 8601.
    pub time: String,
    /// `update` or `merge`.
    pub action: String,
    /// The text before the change.
    pub previous_text: String,
}

/// Level 2: one compact statement. A line of `records.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Persistent; unique within the user.
    pub id: String,
    /// Fact, event, instruction or preference.
    pub kind: RecordKind,
    /// The statement.
    pub text: String,
    /// When it was first recorded, ISO 8601.
    pub created: String,
    /// When it last changed, ISO 8601.
    pub updated: String,
    /// Ids of the messages that say so; never empty.
    pub sources: Vec<String>,
    /// Start of an event, ISO 8601 date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_start: Option<String>,
    /// End of an event that spans time, ISO 8601 date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_end: Option<String>,
    /// Earlier states, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<RecordChange>,
}

/// Level 3: one topic's story. `tracks/<name>.md`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    /// File name with the `.md` ending, the name that `read_file` takes.
    pub name: String,
    /// Front matter `title`.
    pub title: String,
    /// Front matter `created`, ISO 8601 date.
    pub created: String,
    /// Front matter `updated`, ISO 8601 date.
    pub updated: String,
    /// Section `## Summary`.
    pub summary: String,
    /// Section `## Narrative`.
    pub narrative: String,
    /// Section `## Evidence`: record ids, one `- id` a line; never empty.
    pub evidence: Vec<String>,
}

/// Level 4: who the user is. `profile.md`, at most 2,000 characters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    /// The Markdown text as `read_file("profile.md")` returns it.
    pub text: String,
    /// Section `## Evidence`: names of the tracks it rests on, one `- name` a line.
    pub evidence: Vec<String>,
}

impl RecordKind {
    /// The kind's name as files and observations spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fact => "fact",
            Self::Event => "event",
            Self::Instruction => "instruction",
            Self::Preference => "preference",
        }
    }
}
