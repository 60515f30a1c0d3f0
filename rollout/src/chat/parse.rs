//! What a turn says: thinking, content, tool calls. Accepts whatever a policy may write and never fails.
//!
//! The format is the one that Qwen3.5's template shows the policy:
//! ```text
//! <tool_call>
//! <function=search_records>
//! <parameter=query>
//! some text,
//! of several lines
//! </parameter>
//! </function>
//! </tool_call>
//! ```
//! Missing closing tags are tolerated, and so is the older form, a JSON object `{"name": …, "arguments": {…}}` between the
//! `tool_call` tags.

use super::message::ToolCall;
use serde_json::{Map, Number, Value};
use std::collections::BTreeMap;

const CALL: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";
const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";
const THINK: &str = "<think>";
const THINK_END: &str = "</think>";

/// A turn taken apart.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ParsedTurn {
    /// What stood before `</think>`, trimmed; `None` when the turn closed no thinking or thought nothing.
    pub thinking: Option<String>,
    /// What was said outside of thinking and tool calls, trimmed.
    pub content: String,
    /// Tool calls in order.
    pub calls: Vec<ToolCall>,
    /// For each attempt at a call that could not be read, why.
    pub malformed: Vec<String>,
}

/// JSON schema types of the tools' parameters, by which argument texts become values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParameterTypes {
    by_tool: BTreeMap<(String, String), ParameterType>,
    by_name: BTreeMap<String, ParameterType>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParameterType {
    String,
    Integer,
    Number,
    Boolean,
    Array,
    Object,
}

impl ParameterTypes {
    /// Reads the types out of tool schemas, flat or under `function`; a parameter without a plain type counts as a string.
    pub fn from_schemas(schemas: &[Value]) -> Self {
        let mut types = Self::default();
        for schema in schemas {
            let function = schema.get("function").unwrap_or(schema);
            let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
            let properties = function.pointer("/parameters/properties").and_then(Value::as_object);
            for (parameter, property) in properties.into_iter().flatten() {
                let kind = parameter_type(property);
                types.by_tool.insert((name.to_owned(), parameter.clone()), kind);
                types.by_name.entry(parameter.clone()).or_insert(kind);
            }
        }
        types
    }

    /// The type of a tool's parameter; under an unknown tool name (an alias, say) that of the first parameter of this name.
    fn of(&self, tool: &str, parameter: &str) -> ParameterType {
        let exact = self.by_tool.get(&(tool.to_owned(), parameter.to_owned()));
        exact.or_else(|| self.by_name.get(parameter)).copied().unwrap_or(ParameterType::String)
    }
}

fn parameter_type(property: &Value) -> ParameterType {
    let named = match property.get("type") {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).find(|&name| name != "null"),
        Some(name) => name.as_str(),
        None => None,
    };
    match named {
        Some("integer") => ParameterType::Integer,
        Some("number") => ParameterType::Number,
        Some("boolean") => ParameterType::Boolean,
        Some("array") => ParameterType::Array,
        Some("object") => ParameterType::Object,
        _ => ParameterType::String,
    }
}

/// Takes a decoded turn apart. `text` is without the stop token; a leading `<think>` may be absent, since the prompt opens it.
pub fn parse_turn(text: &str, types: &ParameterTypes) -> ParsedTurn {
    let mut parsed = ParsedTurn::default();
    let mut rest = text;
    if let Some((thinking, after)) = text.split_once(THINK_END) {
        let thinking = thinking.trim_start().strip_prefix(THINK).unwrap_or(thinking).trim();
        parsed.thinking = (!thinking.is_empty()).then(|| thinking.to_owned());
        rest = after;
    }
    let mut content = String::new();
    if !rest.contains(CALL) && rest.contains(FUNCTION) {
        let (before, block) = rest.split_at(rest.find(FUNCTION).unwrap_or(rest.len()));
        content.push_str(before);
        parse_block(block, types, &mut parsed);
        rest = "";
    }
    while let Some((before, after)) = rest.split_once(CALL) {
        content.push_str(before);
        let (block, after) = split_block(after);
        parse_block(block, types, &mut parsed);
        rest = after;
    }
    content.push_str(rest);
    parsed.content = content.trim().to_owned();
    parsed
}

/// A block ends at its closing tag, at the next opening tag, or with the turn.
fn split_block(text: &str) -> (&str, &str) {
    let next = text.find(CALL).unwrap_or(text.len());
    match text.find(CALL_END) {
        Some(end) if end < next => (&text[..end], &text[end + CALL_END.len()..]),
        _ => text.split_at(next),
    }
}

fn parse_block(block: &str, types: &ParameterTypes, parsed: &mut ParsedTurn) {
    if block.trim_start().starts_with('{') {
        match parse_json_call(block) {
            Some(call) => parsed.calls.push(call),
            None => parsed.malformed.push("the JSON object has no `name` with an object of `arguments`".to_owned()),
        }
        return;
    }
    let mut rest = block;
    let mut found = false;
    while let Some((_, after)) = rest.split_once(FUNCTION) {
        found = true;
        let end = first_of(after, &[FUNCTION_END, FUNCTION]);
        match parse_function(&after[..end], types) {
            Ok(call) => parsed.calls.push(call),
            Err(reason) => parsed.malformed.push(reason),
        }
        rest = &after[end..];
    }
    if !found {
        parsed.malformed.push("no `<function=NAME>` inside `<tool_call>`".to_owned());
    }
}

/// Parses what follows `<function=`.
fn parse_function(text: &str, types: &ParameterTypes) -> Result<ToolCall, String> {
    let (name, mut rest) = split_tag_name(text).ok_or_else(|| "`<function=` is not followed by `NAME>`".to_owned())?;
    let mut arguments = Map::new();
    while let Some((_, after)) = rest.split_once(PARAMETER) {
        let (key, value) =
            split_tag_name(after).ok_or_else(|| format!("`<parameter=` of `{name}` is not followed by `NAME>`"))?;
        let end = first_of(value, &[PARAMETER_END, PARAMETER]);
        arguments.insert(key.to_owned(), coerce(strip_newlines(&value[..end]), types.of(name, key)));
        rest = &value[end..];
    }
    Ok(ToolCall { name: name.to_owned(), arguments })
}

/// Splits `NAME>rest`; the name is not empty and on one line.
fn split_tag_name(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.split_once('>')?;
    let name = name.trim();
    (!name.is_empty() && !name.contains(['\n', '<'])).then_some((name, rest))
}

fn first_of(text: &str, patterns: &[&str]) -> usize {
    patterns.iter().filter_map(|pattern| text.find(pattern)).min().unwrap_or(text.len())
}

fn strip_newlines(value: &str) -> &str {
    let value = value.strip_prefix('\n').unwrap_or(value);
    value.strip_suffix('\n').unwrap_or(value)
}

/// The value that a text stands for; a text that is none of its type stays a string, for the tool to complain about.
fn coerce(text: &str, kind: ParameterType) -> Value {
    if kind == ParameterType::String {
        return Value::String(text.to_owned());
    }
    let word = text.trim();
    if word.eq_ignore_ascii_case("null") || word.eq_ignore_ascii_case("none") {
        return Value::Null;
    }
    let value = match kind {
        ParameterType::Integer => word.parse::<i64>().ok().map(Value::from),
        ParameterType::Number => parse_number(word),
        ParameterType::Boolean if word.eq_ignore_ascii_case("true") => Some(Value::Bool(true)),
        ParameterType::Boolean if word.eq_ignore_ascii_case("false") => Some(Value::Bool(false)),
        ParameterType::Array => serde_json::from_str(word).ok().filter(Value::is_array),
        ParameterType::Object => serde_json::from_str(word).ok().filter(Value::is_object),
        ParameterType::Boolean | ParameterType::String => None,
    };
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

fn parse_number(word: &str) -> Option<Value> {
    let integer = word.parse::<i64>().ok().map(Value::from);
    integer.or_else(|| word.parse::<f64>().ok().and_then(Number::from_f64).map(Value::Number))
}

fn parse_json_call(block: &str) -> Option<ToolCall> {
    let value: Value = serde_json::from_str(block.trim()).ok()?;
    let name = value.get("name")?.as_str()?.to_owned();
    let arguments = match value.get("arguments").or_else(|| value.get("parameters")) {
        Some(arguments) => arguments.as_object()?.clone(),
        None => Map::new(),
    };
    Some(ToolCall { name, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn types() -> ParameterTypes {
        let property = |kind: &str| json!({"type": kind});
        ParameterTypes::from_schemas(&[
            json!({"type": "function", "function": {"name": "f", "parameters": {"properties": {
                "s": property("string"), "i": property("integer"), "n": {"type": ["null", "number"]}, "b": property("boolean"),
                "a": property("array"), "o": property("object"),
            }}}}),
        ])
    }

    fn calls(text: &str) -> Vec<Value> {
        let call = |call: ToolCall| json!([call.name, call.arguments]);
        parse_turn(text, &types()).calls.into_iter().map(call).collect()
    }

    #[test]
    fn reads_calls_and_tolerates_what_is_missing() {
        let cases = [
            (
                "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</function>\n</tool_call>",
                json!([["f", {"s": "x"}]]),
            ),
            // one newline at each end goes, no more
            (
                "<tool_call><function=f><parameter=s>\n\n x\ny \n\n</parameter></function></tool_call>",
                json!([["f", {"s": "\n x\ny \n"}]]),
            ),
            // missing </parameter>, </function>, </tool_call>
            ("<tool_call>\n<function=f>\n<parameter=s>\nx\n<parameter=i>\n3\n", json!([["f", {"s": "x", "i": 3}]])),
            ("<tool_call>\n<function=f>\n<parameter=s>\nx\n</function>\n</tool_call>", json!([["f", {"s": "x"}]])),
            // two calls, the first one unclosed
            (
                "<tool_call><function=f></function><tool_call><function=g></function></tool_call>",
                json!([["f", {}], ["g", {}]]),
            ),
            // no tool_call tag
            ("I look.\n<function=f>\n<parameter=s>\nx\n</parameter>\n</function>", json!([["f", {"s": "x"}]])),
            // the JSON form
            (r#"<tool_call>{"name": "f", "arguments": {"i": 1}}</tool_call>"#, json!([["f", {"i": 1}]])),
            // coercion; what does not fit stays a string
            (
                "<tool_call><function=f><parameter=i>x</parameter><parameter=n>1.5</parameter><parameter=b>True</parameter>\
                 <parameter=a>[\"m1\", 2]</parameter><parameter=o>[1]</parameter><parameter=u>7</parameter>",
                json!([["f", {"i": "x", "n": 1.5, "b": true, "a": ["m1", 2], "o": "[1]", "u": "7"}]]),
            ),
            (
                "<tool_call><function=f><parameter=i>None</parameter><parameter=s>null</parameter>",
                json!([["f", {"i": null, "s": "null"}]]),
            ),
            // an alias finds its parameter's type by name
            ("<tool_call><function=ff><parameter=a>[]</parameter>", json!([["ff", {"a": []}]])),
        ];
        for (text, expected) in cases {
            assert_eq!(Value::from(calls(text)), expected, "{text}");
        }
    }

    #[test]
    fn says_what_is_malformed() {
        for text in [
            "<tool_call>\n</tool_call>",
            "<tool_call>search records please",
            "<tool_call><function=></function></tool_call>",
            "<tool_call><function=f",
            "<tool_call><function=f><parameter=s</parameter></function></tool_call>",
            "<tool_call>{\"name\": 3}</tool_call>",
            "<tool_call>{\"name\": \"f\", \"arguments\": \"{}\"}</tool_call>",
        ] {
            let parsed = parse_turn(text, &types());
            assert_eq!((parsed.calls.len(), parsed.malformed.len()), (0, 1), "{text}: {parsed:?}");
        }
    }

    #[test]
    fn separates_thinking_from_content() {
        let cases = [
            ("so\n</think>\n\nyes", Some("so"), "yes"),
            ("<think>\nso\n</think>\n\nyes </think>", Some("so"), "yes </think>"),
            ("\n\n</think>\n\nyes", None, "yes"),
            ("still thinking", None, "still thinking"),
            ("a</think>b <tool_call><function=f></tool_call> c", Some("a"), "b  c"),
        ];
        for (text, thinking, content) in cases {
            let parsed = parse_turn(text, &types());
            assert_eq!((parsed.thinking.as_deref(), parsed.content.as_str()), (thinking, content), "{text}");
        }
        let inside = parse_turn("<tool_call><function=f></tool_call></think>{}", &types());
        assert!(inside.calls.is_empty(), "a call inside closed thinking is not made");
    }

    proptest! {
        #[test]
        fn never_panics_on_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            parse_turn(&String::from_utf8_lossy(&bytes), &types());
        }

        #[test]
        fn never_panics_on_shuffled_markup(parts in proptest::collection::vec(prop_oneof![
            Just(CALL), Just(CALL_END), Just(FUNCTION), Just(FUNCTION_END), Just(PARAMETER), Just(PARAMETER_END),
            Just(THINK), Just(THINK_END), Just("f>"), Just("a>"), Just("\n"), Just("é"), Just("{"), Just("[1"), Just(">"),
        ], 0..40)) {
            let parsed = parse_turn(&parts.concat(), &types());
            for call in parsed.calls {
                prop_assert!(!call.name.is_empty());
            }
        }
    }
}
