//! What the policy is told about the tools.

use super::Tool;
use serde_json::{Value, json};

/// The five tools in OpenAI's function format, for the chat template.
pub fn tool_schemas() -> Vec<Value> {
    Tool::ALL.into_iter().map(schema).collect()
}

/// One tool in OpenAI's function format.
pub fn schema(tool: Tool) -> Value {
    let ids = |what: &str| json!({"type": "array", "items": {"type": "string"}, "description": what});
    let text = |what: &str| json!({"type": "string", "description": what});
    let (description, key, argument) = match tool {
        Tool::SearchConversations => (
            "Search the raw messages. Returns the 5 best: id, time, session, role, text.",
            "query",
            text("what to look for"),
        ),
        Tool::GetConversations => ("Read messages by id, word for word.", "message_ids", ids("message ids")),
        Tool::SearchRecords => (
            "Search the records: facts, events, instructions, preferences. Returns the 5 best with source message ids.",
            "query",
            text("what to look for"),
        ),
        Tool::GetRecords => ("Read records by id, with earlier states.", "record_ids", ids("record ids")),
        Tool::ReadFile => {
            ("Read profile.md (who the user is) or a topic track (how a topic developed).", "name", text("file name"))
        }
    };
    json!({
        "type": "function",
        "function": {
            "name": tool.name(),
            "description": description,
            "parameters": {"type": "object", "properties": {key: argument}, "required": [key]},
        },
    })
}
