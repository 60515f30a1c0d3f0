//! What the policy is told. The system prompt and the tools are the same for all questions; what differs is in the user message.

use super::Environment;
use crate::chat::{ChatMessage, Role};
use crate::question::Question;
use std::fmt::Write;

/// The default rules; `{max_tool_steps}` stands for the limit.
pub const SYSTEM_PROMPT: &str = include_str!("system_prompt.md");

/// The two messages that open an episode; `passages` is what of the memory they show, if anything.
pub fn opening(
    system_prompt: &str,
    max_tool_steps: usize,
    question: &Question,
    environment: &dyn Environment,
    passages: &str,
) -> Vec<ChatMessage> {
    let rules = system_prompt.replace("{max_tool_steps}", &max_tool_steps.to_string());
    vec![
        ChatMessage::new(Role::System, rules.trim()),
        ChatMessage::new(Role::User, user_message(question, &environment.files(), passages)),
    ]
}

/// Files, date, passages under "From the user's memory, best match first:", question, options:
/// ```text
/// Memory files: profile.md, phones.md
/// Today: 2024-06-30
/// Question: Which phone do I have?
/// A. a Galaxy
/// B. a Pixel
/// Answer with the letter of the right option.
/// ```
fn user_message(question: &Question, files: &[String], passages: &str) -> String {
    let mut text = String::new();
    let mut line = |line: std::fmt::Arguments| writeln!(text, "{line}").expect("writing to a string cannot fail");
    if !files.is_empty() {
        line(format_args!("Memory files: {}", files.join(", ")));
    }
    if let Some(date) = &question.date {
        line(format_args!("Today: {date}"));
    }
    if !passages.is_empty() {
        line(format_args!("From the user's memory, best match first:\n{passages}"));
    }
    line(format_args!("Question: {}", question.question.trim()));
    for (i, option) in question.options.iter().enumerate() {
        line(format_args!("{}. {}", option_letter(i), option.trim()));
    }
    if !question.options.is_empty() {
        line(format_args!("Answer with the letter of the right option."));
    }
    text.truncate(text.trim_end().len());
    text
}

/// A, B, …, Z; numbers from 27 on.
fn option_letter(i: usize) -> String {
    match u8::try_from(i) {
        Ok(i) if i < 26 => char::from(b'A' + i).to_string(),
        _ => (i + 1).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_user_message_lists_what_is_there() {
        let mut question: Question = serde_json::from_value(json!({
            "id": "q", "user": "u", "question": " Which phone do I have?\n", "rule": {"kind": "choice"}, "gold": ["A"],
            "options": ["a Galaxy", "a Pixel"], "date": "2024-06-30",
        }))
        .expect("valid");
        let files = ["profile.md".to_owned(), "phones.md".to_owned()];
        let expected = "Memory files: profile.md, phones.md\nToday: 2024-06-30\nQuestion: Which phone do I have?\n\
                        A. a Galaxy\nB. a Pixel\nAnswer with the letter of the right option.";
        assert_eq!(user_message(&question, &files, ""), expected);
        question.options.clear();
        question.date = None;
        assert_eq!(user_message(&question, &[], ""), "Question: Which phone do I have?");
        assert_eq!(
            user_message(&question, &[], "[r1] x\n[m2] y"),
            "From the user's memory, best match first:\n[r1] x\n[m2] y\nQuestion: Which phone do I have?"
        );
        assert_eq!([0, 25, 26].map(option_letter), ["A", "Z", "27"]);
    }
}
