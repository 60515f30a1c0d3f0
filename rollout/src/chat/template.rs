//! The checkpoint's own chat template, rendered as transformers renders it with jinja2.

use super::error::ChatError;
use super::message::ChatMessage;
use super::python;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, context};
use std::path::PathBuf;

/// Templates that print today's date print this one: a prompt must not depend on the day on which it is rendered.
const TEMPLATE_DATE: (i32, u32, u32) = (2026, 1, 1);

/// A compiled template with the variables that stay the same.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    path: PathBuf,
    source: String,
    named_tokens: Vec<(String, String)>,
}

/// What to render.
#[derive(Debug, Clone, Copy)]
pub struct RenderInput<'a> {
    /// The conversation.
    pub messages: &'a [ChatMessage],
    /// Tool schemas; empty for none.
    pub tools: &'a [serde_json::Value],
    /// End with the opening of an assistant turn.
    pub add_generation_prompt: bool,
    /// The template's own switch.
    pub enable_thinking: bool,
}

impl ChatTemplate {
    /// Compiles `source`, which came from `path`; `named_tokens` are variables such as `bos_token`.
    pub fn new(path: PathBuf, source: String, named_tokens: Vec<(String, String)>) -> Result<Self, ChatError> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_formatter(|out, state, value| match python_str(value) {
            Some(text) => out.write_str(&text).map_err(Error::from),
            None => minijinja::escape_formatter(out, state, value),
        });
        environment.add_filter("tojson", tojson);
        environment.add_filter("string", |value: &Value| python_str(value).unwrap_or_else(|| value.to_string()));
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment
            .add_template_owned("chat", source.clone())
            .map_err(|error| ChatError::Template { path: path.clone(), message: describe(&error) })?;
        Ok(Self { environment, path, source, named_tokens })
    }

    /// The file that the template came from.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation; fails where the template raises.
    pub fn render(&self, input: &RenderInput) -> Result<String, ChatError> {
        let tools = (!input.tools.is_empty()).then_some(input.tools);
        let named: Value = self.named_tokens.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let variables = context! {
            messages => Value::from_serialize(input.messages),
            tools => Value::from_serialize(tools),
            add_generation_prompt => input.add_generation_prompt,
            enable_thinking => input.enable_thinking,
            ..named
        };
        let template = self.environment.get_template("chat").expect("the constructor added this template");
        template
            .render(variables)
            .map_err(|error| ChatError::Template { path: self.path.clone(), message: describe(&error) })
    }
}

/// The engine's message with its line, on one line.
fn describe(error: &Error) -> String {
    let line = error.line().map(|line| format!("line {line}: ")).unwrap_or_default();
    format!("{line}{}", error.detail().map_or_else(|| error.kind().to_string(), str::to_owned))
}

/// Python's `str` where it differs from this engine's.
fn python_str(value: &Value) -> Option<String> {
    match value.kind() {
        ValueKind::None => Some("None".to_owned()),
        ValueKind::Bool => Some(if value.is_true() { "True" } else { "False" }.to_owned()),
        ValueKind::Number if !value.is_integer() => f64::try_from(value.clone()).ok().map(python::float_repr),
        _ => None,
    }
}

fn tojson(value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    if kwargs.get::<Option<bool>>("ensure_ascii")? == Some(true) {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson with ensure_ascii=true is not supported"));
    }
    kwargs.assert_all_used()?;
    let json =
        serde_json::to_value(value).map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    Ok(Value::from_safe_string(python::dumps(&json, indent)))
}

fn raise_exception(message: String) -> Result<String, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

fn strftime_now(format: &str) -> Result<String, Error> {
    use std::fmt::Write;
    let (year, month, day) = TEMPLATE_DATE;
    let date = chrono::NaiveDate::from_ymd_opt(year, month, day).expect("a constant date that exists");
    let mut text = String::new();
    write!(text, "{}", date.and_time(chrono::NaiveTime::MIN).format(format))
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: bad format `{format}`")))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::message::Role;
    use super::*;

    fn render(source: &str) -> Result<String, ChatError> {
        let named = vec![("bos_token".to_owned(), "<s>".to_owned())];
        let template = ChatTemplate::new(PathBuf::from("t.jinja"), source.to_owned(), named)?;
        let messages = [ChatMessage::new(Role::User, "hi\n")];
        let tools = [serde_json::json!({"b": 1, "a": ["<é>"]})];
        template.render(&RenderInput {
            messages: &messages,
            tools: &tools,
            add_generation_prompt: true,
            enable_thinking: false,
        })
    }

    #[test]
    fn renders_as_jinja2() {
        // Right-hand sides: jinja2 3.1 with trim_blocks, lstrip_blocks and loop controls.
        let cases = [
            ("{{ bos_token }}{{ messages[0].content|trim }}", "<s>hi"),
            ("{{ tools[0]|tojson }}", r#"{"b": 1, "a": ["<é>"]}"#),
            ("{{ true }} {{ none }} {{ 1e16 }} {{ false|string }}", "True None 1e+16 False"),
            ("  {% if enable_thinking is false %}\n  no\n  {% endif %}\n", "  no\n"),
            ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "1"),
            ("{{ 'a-b'.split('-')[-1] }}{{ messages[0].content.rstrip('\\n') }}", "bhi"),
            ("{{ strftime_now('%d %b %Y') }}", "01 Jan 2026"),
            ("{{ missing is defined }}|{{ messages[0].reasoning_content is string }}", "False|False"),
        ];
        for (source, expected) in cases {
            assert_eq!(render(source).expect(source), expected, "{source}");
        }
    }

    #[test]
    fn errors_name_file_and_reason() {
        for (source, expected) in [
            ("{{ raise_exception('No user query.') }}", "t.jinja: line 1: No user query."),
            ("\n{% if %}", "t.jinja: line 2:"),
        ] {
            let message = render(source).expect_err(source).to_string();
            assert!(message.starts_with(expected), "{message}");
        }
    }
}
