//! Messages as chat templates take them.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Rules for the policy.
    System,
    /// The person.
    User,
    /// The policy.
    Assistant,
    /// What a tool returned.
    Tool,
}

/// One message of a conversation, in the JSON form that chat templates are written for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// Who speaks.
    pub role: Role,
    /// What is said; JSON `null` reads as empty.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub content: String,
    /// The policy's thinking, apart from what it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Tools that the policy called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
}

impl ChatMessage {
    /// A message without thinking or tool calls.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into(), reasoning_content: None, tool_calls: Vec::new() }
    }
}

/// A tool's name and the arguments it was called with, in the order in which they were written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "ToolCallJson", into = "ToolCallJson")]
pub struct ToolCall {
    /// The tool.
    pub name: String,
    /// A mapping, never a JSON string.
    pub arguments: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

/// Both spellings that templates accept; the nested one is written.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum ToolCallJson {
    Nested {
        #[serde(rename = "type", default = "function_kind")]
        kind: String,
        function: Function,
    },
    Flat(Function),
}

fn function_kind() -> String {
    "function".to_owned()
}

impl From<ToolCallJson> for ToolCall {
    fn from(json: ToolCallJson) -> Self {
        let (ToolCallJson::Nested { function, .. } | ToolCallJson::Flat(function)) = json;
        Self { name: function.name, arguments: function.arguments }
    }
}

impl From<ToolCall> for ToolCallJson {
    fn from(call: ToolCall) -> Self {
        let function = Function { name: call.name, arguments: call.arguments };
        Self::Nested { kind: function_kind(), function }
    }
}

fn null_is_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_both_spellings_of_a_call_and_null_content() {
        let nested = json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": 2}}},
            {"name": "g"},
        ]});
        let message: ChatMessage = serde_json::from_value(nested).expect("valid");
        assert_eq!(message.content, "");
        assert_eq!(message.tool_calls[0].name, "f");
        assert_eq!(message.tool_calls[0].arguments.keys().collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(message.tool_calls[1], ToolCall { name: "g".into(), arguments: Map::new() });
        let written = serde_json::to_value(&message).expect("serialisable");
        assert_eq!(written["tool_calls"][0]["function"]["name"], "f");
        assert!(written.get("reasoning_content").is_none());
    }
}
