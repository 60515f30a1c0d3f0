//! The five memory tools: what the policy may call, and what it sees of the result.
//!
//! Nothing here fails. An unknown tool, a bad argument, an unknown id or file becomes a short observation that says
//! what to do instead. No argument ever reaches the file system: files are looked up among the pyramid's names.
//! Observations are not cut here; the token cap is the episode's, which has the tokenizer.

mod arguments;
mod observe;
mod passages;
mod schema;

pub use passages::{Passage, passages};
pub use schema::{schema, tool_schemas};

use crate::pyramid::{Pyramid, PyramidError, SEARCH_LIMIT, SearchHit};
use arguments::{read_ids, read_text};
use observe::{message_line, message_snippet, record_line, record_with_history};
use serde_json::Value;

/// The tools by their canonical names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tool {
    /// Level 1 by query.
    SearchConversations,
    /// Level 1 by ids.
    GetConversations,
    /// Level 2 by query.
    SearchRecords,
    /// Level 2 by ids.
    GetRecords,
    /// Level 3 or 4 by file name.
    ReadFile,
}

impl Tool {
    /// All tools in the order of their schemas.
    pub const ALL: [Self; 5] =
        [Self::SearchConversations, Self::GetConversations, Self::SearchRecords, Self::GetRecords, Self::ReadFile];

    /// The canonical name.
    pub fn name(self) -> &'static str {
        match self {
            Self::SearchConversations => "search_conversations",
            Self::GetConversations => "get_conversations",
            Self::SearchRecords => "search_records",
            Self::GetRecords => "get_records",
            Self::ReadFile => "read_file",
        }
    }

    /// The tool of a canonical name or of its alias in the other grammatical number.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "search_conversations" | "search_conversation" => Some(Self::SearchConversations),
            "get_conversations" | "get_conversation" => Some(Self::GetConversations),
            "search_records" | "search_record" => Some(Self::SearchRecords),
            "get_records" | "get_record" => Some(Self::GetRecords),
            "read_file" | "read_files" => Some(Self::ReadFile),
            _ => None,
        }
    }
}

/// One item that an observation shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReturnedItem {
    /// Message id, record id or file name.
    pub id: String,
    /// What it directly rests on: a record's messages, a track's records, the profile's tracks; empty for a message.
    pub sources: Vec<String>,
}

/// What one tool call gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutcome {
    /// The canonical name, or what was asked for when there is no such tool.
    pub tool: String,
    /// The text for the policy.
    pub observation: String,
    /// The call named a tool, had usable arguments and, where it asked for ids or a file, found at least one.
    pub valid: bool,
    /// The items shown, in order.
    pub returned: Vec<ReturnedItem>,
    /// Level that was read, 1 to 4; `None` for an invalid call.
    pub level: Option<u8>,
}

/// What a tool shows, or the error text that the policy sees.
type Shown = Result<Observation, String>;

struct Observation {
    text: String,
    returned: Vec<ReturnedItem>,
    level: u8,
}

/// Runs the tool `name` with `arguments` (a JSON object) on a pyramid.
pub fn call(pyramid: &Pyramid, name: &str, arguments: &Value) -> ToolOutcome {
    call_among(pyramid, &Tool::ALL, name, arguments)
}

/// As [`call`], where there are no other tools than `among`.
pub fn call_among(pyramid: &Pyramid, among: &[Tool], name: &str, arguments: &Value) -> ToolOutcome {
    let tool = Tool::parse(name.trim()).filter(|tool| among.contains(tool));
    let shown = match tool {
        Some(Tool::SearchConversations) => search_conversations(pyramid, arguments),
        Some(Tool::GetConversations) => get_conversations(pyramid, arguments),
        Some(Tool::SearchRecords) => search_records(pyramid, arguments),
        Some(Tool::GetRecords) => get_records(pyramid, arguments),
        Some(Tool::ReadFile) => read_file(pyramid, arguments),
        None if among.is_empty() => Err("no such tool. There are no tools".to_owned()),
        None => {
            let names: Vec<&str> = among.iter().map(|tool| tool.name()).collect();
            Err(format!("no such tool. Tools: {}", names.join(", ")))
        }
    };
    let tool = tool.map_or_else(|| name.to_owned(), |tool| tool.name().to_owned());
    match shown {
        Ok(Observation { text, returned, level }) => {
            ToolOutcome { tool, observation: text, valid: true, returned, level: Some(level) }
        }
        Err(message) => ToolOutcome {
            tool,
            observation: format!("Error: {message}"),
            valid: false,
            returned: Vec::new(),
            level: None,
        },
    }
}

fn search_conversations(pyramid: &Pyramid, arguments: &Value) -> Shown {
    let query = read_text(arguments, "query", &[])?;
    let hits = found(pyramid.search_messages(&query, SEARCH_LIMIT))?;
    let messages = hits.iter().filter_map(|hit| pyramid.message(&hit.id));
    let shown = messages.map(|message| (message_snippet(message), item(&message.id, &[])));
    Ok(list(shown.collect(), 1, "no message matches; try other words"))
}

fn get_conversations(pyramid: &Pyramid, arguments: &Value) -> Shown {
    let ids = read_ids(arguments, "message_ids", &["message_id", "ids", "id"])?;
    let (known, unknown) = ids.iter().partition::<Vec<_>, _>(|id| pyramid.message(id).is_some());
    if known.is_empty() {
        return Err(format!("no message {}. search_conversations shows ids", unknown_ids(&unknown)));
    }
    let messages = known.iter().filter_map(|id| pyramid.message(id));
    let shown = messages.map(|message| (message_line(message), item(&message.id, &[])));
    Ok(with_unknown(list(shown.collect(), 1, ""), &unknown))
}

fn search_records(pyramid: &Pyramid, arguments: &Value) -> Shown {
    let query = read_text(arguments, "query", &[])?;
    let hits = found(pyramid.search_records(&query, SEARCH_LIMIT))?;
    let records = hits.iter().filter_map(|hit| pyramid.record(&hit.id));
    let shown = records.map(|record| (record_line(record), item(&record.id, &record.sources)));
    Ok(list(shown.collect(), 2, "no record matches; try other words or search_conversations"))
}

fn get_records(pyramid: &Pyramid, arguments: &Value) -> Shown {
    let ids = read_ids(arguments, "record_ids", &["record_id", "ids", "id"])?;
    let (known, unknown) = ids.iter().partition::<Vec<_>, _>(|id| pyramid.record(id).is_some());
    if known.is_empty() {
        return Err(format!("no record {}. search_records shows ids", unknown_ids(&unknown)));
    }
    let records = known.iter().filter_map(|id| pyramid.record(id));
    let shown = records.map(|record| (record_with_history(record), item(&record.id, &record.sources)));
    Ok(with_unknown(list(shown.collect(), 2, ""), &unknown))
}

fn read_file(pyramid: &Pyramid, arguments: &Value) -> Shown {
    let name = read_text(arguments, "name", &["file", "file_name", "filename", "path"])?;
    if name == crate::pyramid::PROFILE_NAME {
        let profile = &pyramid.data().profile;
        let text = if profile.text.trim().is_empty() { "The profile is empty." } else { profile.text.trim() };
        let returned = vec![item(&name, &profile.evidence)];
        return Ok(Observation { text: text.to_owned(), returned, level: 4 });
    }
    match pyramid.track(&name) {
        Some(track) => Ok(Observation {
            text: track.render().trim().to_owned(),
            returned: vec![item(&name, &track.evidence)],
            level: 3,
        }),
        None => Err(format!("no such file. Files: {}", pyramid.file_names().collect::<Vec<_>>().join(", "))),
    }
}

fn found(hits: Result<Vec<SearchHit>, PyramidError>) -> Result<Vec<SearchHit>, String> {
    hits.map_err(|error| format!("search failed: {error}"))
}

fn item(id: &str, sources: &[String]) -> ReturnedItem {
    ReturnedItem { id: id.to_owned(), sources: sources.to_vec() }
}

fn list(shown: Vec<(String, ReturnedItem)>, level: u8, when_empty: &str) -> Observation {
    let (lines, returned): (Vec<String>, Vec<ReturnedItem>) = shown.into_iter().unzip();
    let text = if lines.is_empty() { when_empty.to_owned() } else { lines.join("\n") };
    Observation { text, returned, level }
}

fn with_unknown(mut observation: Observation, unknown: &[&String]) -> Observation {
    if !unknown.is_empty() {
        observation.text.push_str(&format!("\nnot found: {}", unknown_ids(unknown)));
    }
    observation
}

/// At most three of the ids, each at a readable length: they are the policy's own words and may be long.
fn unknown_ids(ids: &[&String]) -> String {
    let shown: Vec<String> = ids.iter().take(3).map(|id| observe::shorten(id, 40)).collect();
    let more = if ids.len() > shown.len() { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests;
