//! The final answer's format: one JSON object with `answer` and `reason`, and nothing around it.

use serde_json::{Map, Value};
use thiserror::Error;

/// What the policy answered.
///
/// `{"answer": "the Galaxy", "reason": "m12 says it arrived on 20 February"}`, on its own or in a code fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinalAnswer {
    /// The answer; a number or a truth value in its JSON spelling.
    pub answer: String,
    /// Why.
    pub reason: String,
}

/// Why a text is not a final answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FormatFault {
    /// Nothing but white space after the thinking.
    #[error("the final answer is empty")]
    Empty,
    /// Not one JSON text, or something stands before or after it.
    #[error("the final answer is not a JSON object alone: {0}")]
    NotJson(String),
    /// JSON, but another type.
    #[error("the final answer must be a JSON object, got {0}")]
    NotAnObject(&'static str),
    /// A key is absent.
    #[error("the final answer has no `{0}`")]
    Missing(&'static str),
    /// A key holds a value of a type that it may not have.
    #[error("`{key}` must be {allowed}, got {found}")]
    WrongType {
        /// `answer` or `reason`.
        key: &'static str,
        /// JSON type that was found.
        found: &'static str,
        /// JSON types that are allowed.
        allowed: &'static str,
    },
}

/// Reads the last turn's text as a final answer.
///
/// Thinking up to the first `</think>` is skipped. The object may stand in a ```` ```json ```` fence and white space may
/// surround it; other keys than `answer` and `reason` are ignored. Never panics.
pub fn parse_final_answer(text: &str) -> Result<FinalAnswer, FormatFault> {
    let answer_text = text.split_once("</think>").map_or(text, |(_, after)| after);
    let json = strip_fence(answer_text.trim());
    if json.is_empty() {
        return Err(FormatFault::Empty);
    }
    match serde_json::from_str(json) {
        Ok(Value::Object(object)) => read_object(&object),
        Ok(other) => Err(FormatFault::NotAnObject(type_name(&other))),
        Err(error) => Err(FormatFault::NotJson(error.to_string())),
    }
}

fn strip_fence(text: &str) -> &str {
    let inside = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    match inside {
        Some(inside) => inside.strip_prefix("json").unwrap_or(inside).trim(),
        None => text,
    }
}

fn read_object(object: &Map<String, Value>) -> Result<FinalAnswer, FormatFault> {
    let answer = match object.get("answer").ok_or(FormatFault::Missing("answer"))? {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        other => {
            let allowed = "a string, a number or a truth value";
            return Err(FormatFault::WrongType { key: "answer", found: type_name(other), allowed });
        }
    };
    match object.get("reason").ok_or(FormatFault::Missing("reason"))? {
        Value::String(reason) => Ok(FinalAnswer { answer, reason: reason.clone() }),
        other => Err(FormatFault::WrongType { key: "reason", found: type_name(other), allowed: "a string" }),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accepted_forms() {
        let cases = [
            (r#"{"answer": "the Galaxy", "reason": "m12"}"#, "the Galaxy"),
            ("\n {\"answer\":\"b\",\"reason\":\"\"}\n", "b"),
            ("```json\n{\"answer\":\"b\",\"reason\":\"x\"}\n```", "b"),
            ("```\n{\"answer\":\"b\",\"reason\":\"x\"}\n```\n", "b"),
            ("I know {that}.\n</think>\n\n{\"answer\":\"b\",\"reason\":\"x\"}", "b"),
            (r#"{"answer": 3, "reason": "x"}"#, "3"),
            (r#"{"answer": 2.5, "reason": "x"}"#, "2.5"),
            (r#"{"answer": true, "reason": "x"}"#, "true"),
            (r#"x</think>{"reason": "x", "answer": "a</think>b", "sure": 1}"#, "a</think>b"),
        ];
        for (text, answer) in cases {
            assert_eq!(parse_final_answer(text).map(|a| a.answer).as_deref(), Ok(answer), "{text}");
        }
    }

    #[test]
    fn refused_forms() {
        use FormatFault::*;
        let wrong = |key, found, allowed| WrongType { key, found, allowed };
        let answer_types = "a string, a number or a truth value";
        let cases = [
            ("", Empty),
            ("thinking</think>  ", Empty),
            ("[1]", NotAnObject("an array")),
            (r#"{"answer": "x"}"#, Missing("reason")),
            (r#"{"reason": "x"}"#, Missing("answer")),
            (r#"{"answer": null, "reason": "x"}"#, wrong("answer", "null", answer_types)),
            (r#"{"answer": ["x"], "reason": "x"}"#, wrong("answer", "an array", answer_types)),
            (r#"{"answer": "x", "reason": 1}"#, wrong("reason", "a number", "a string")),
        ];
        for (text, fault) in cases {
            assert_eq!(parse_final_answer(text), Err(fault), "{text}");
        }
        let object = r#"{"answer": "x", "reason": "y"}"#;
        let around = [
            format!("Answer: {object}"),
            format!("{object} {object}"),
            format!("{object}."),
            format!("```json\n{object}\n``` done"),
            format!("<tool_call>{object}</tool_call>"),
            object.replace('"', "'"),
            "[".repeat(100_000),
        ];
        for text in around {
            let parsed = parse_final_answer(&text);
            assert!(matches!(parsed, Err(NotJson(_))), "{} → {parsed:?}", text.chars().take(60).collect::<String>());
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "(\\PC|[{}\":,`\\\\\n]|answer|reason|</think>|json){0,40}") {
            let _ = parse_final_answer(&text);
        }

        #[test]
        fn reads_what_json_writes(answer in any::<String>(), reason in any::<String>()) {
            prop_assume!(!answer.contains("</think>") && !reason.contains("</think>"));
            let text = serde_json::json!({"answer": answer, "reason": reason}).to_string();
            prop_assert_eq!(parse_final_answer(&text), Ok(FinalAnswer { answer, reason }));
        }
    }
}
