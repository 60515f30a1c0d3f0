//! Messages as chat files spell them: `role`, `content`, and what may stand beside them.

use super::history::Turn;
use super::time::any_time;
use serde_json::Value;

/// What stands for a part of a message that is no text.
const OTHER_PART: &str = "[image]";
const TIME_KEYS: [&str; 3] = ["timestamp", "time", "date"];
const SPEAKER_KEYS: [&str; 2] = ["speaker", "name"];

/// A message; none where it has no content, as one that only calls a tool.
pub(super) fn turn(message: &Value) -> Result<Option<Turn>, String> {
    let role = message.get("role").and_then(Value::as_str).map(str::trim).filter(|role| !role.is_empty());
    let role = role.ok_or_else(|| format!("`role` must be a text, got {}", shown(message.get("role"))))?;
    let Some(content) = content(message.get("content"))? else {
        return Ok(None);
    };
    let time = TIME_KEYS.iter().find_map(|key| Some((key, message.get(*key).filter(|value| !value.is_null())?)));
    let time = time.map(|(key, value)| any_time(value).map_err(|why| format!("`{key}`: {why}"))).transpose()?;
    let speaker = SPEAKER_KEYS.iter().find_map(|key| message.get(*key).and_then(Value::as_str));
    Ok(Some(Turn { id: id(message)?, role: role.to_lowercase(), speaker: speaker.map(str::to_owned), content, time }))
}

/// The list of messages under `value`, each with its position for faults.
pub(super) fn turns(value: &Value) -> Result<Vec<Option<Turn>>, String> {
    let list = value.as_array().ok_or_else(|| format!("must be a list of messages, got {}", shown(Some(value))))?;
    let numbered = list.iter().zip(1..);
    numbered.map(|(message, number)| turn(message).map_err(|why| format!("message {number}: {why}"))).collect()
}

/// Text, or the text of a list of parts; parts of other kinds leave a mark.
pub(super) fn content(value: Option<&Value>) -> Result<Option<String>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Array(parts)) => {
            let text = |part: &Value| part.as_str().or_else(|| part.get("text")?.as_str()).map(str::to_owned);
            let parts: Vec<String> = parts.iter().map(|part| text(part).unwrap_or(OTHER_PART.to_owned())).collect();
            Ok(Some(parts.join("\n")))
        }
        other => Err(format!("`content` must be a text or a list of parts, got {}", shown(other))),
    }
}

fn id(message: &Value) -> Result<Option<String>, String> {
    match message.get("id") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(id)) => Ok(Some(id.clone())),
        Some(Value::Number(id)) => Ok(Some(id.to_string())),
        other => Err(format!("`id` must be a text or a number, got {}", shown(other))),
    }
}

/// A value for a message about it, cut short: it may be a whole history.
pub(super) fn shown(value: Option<&Value>) -> String {
    const MAX_CHARS: usize = 80;
    let Some(value) = value else {
        return "nothing".to_owned();
    };
    let text = value.to_string();
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages() {
        let message =
            json!({"role": "User", "content": "Hi", "name": "Ann", "id": 7, "timestamp": "2024-01-02 03:04:05"});
        let read = turn(&message).unwrap().unwrap();
        assert_eq!((read.role.as_str(), read.content.as_str()), ("user", "Hi"));
        assert_eq!((read.speaker.as_deref(), read.id.as_deref()), (Some("Ann"), Some("7")));
        assert_eq!(read.time.map(|time| time.to_string()).as_deref(), Some("2024-01-02 03:04:05"));
        let parts = json!({"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image_url"}, "!"]});
        assert_eq!(turn(&parts).unwrap().unwrap().content, "See\n[image]\n!");
        assert!(turn(&json!({"role": "assistant", "content": null, "tool_calls": []})).unwrap().is_none());
        assert_eq!(turn(&json!({"role": "user", "content": "", "time": null})).unwrap().unwrap().content, "");
    }

    #[test]
    fn faults() {
        let long = format!("got [\"{}…", "x".repeat(78));
        let cases = [
            (json!([{"content": "x"}]), "message 1: `role` must be a text, got nothing"),
            (json!([{"role": "user", "content": "x"}, {"role": "user", "content": 3}]), "message 2: `content` must be"),
            (json!([{"role": "user", "content": "x", "time": "noon"}]), "message 1: `time`: must be an ISO 8601 time"),
            (json!([{"role": "user", "content": "x", "id": []}]), "`id` must be a text or a number, got []"),
            (json!({"a": ["x".repeat(200)]}), "must be a list of messages, got {\"a\":"),
            (json!([["x".repeat(200)]]), "message 1: `role` must be a text, got nothing"),
            (json!([{"role": ["x".repeat(200)], "content": ""}]), long.as_str()),
        ];
        for (value, expected) in cases {
            let fault = turns(&value).expect_err(expected);
            assert!(fault.contains(expected), "{fault} / {expected}");
        }
    }
}
