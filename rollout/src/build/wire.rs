//! The chat-completions format: what is sent, and what of an answer is read.

use super::language::LanguageRequest;
use serde::Deserialize;
use serde_json::{Value, json};

/// Characters of a body that an error shows.
const MAX_BODY_CHARS: usize = 200;
/// Characters that a token stands for, where an endpoint reports no usage.
const CHARS_PER_TOKEN: usize = 4;

/// The body of a request.
pub(super) fn body(request: &LanguageRequest, model: &str, temperature: f64, json_mode: bool) -> Value {
    let mut body = json!({
        "model": model,
        "messages": [
            {"role": "system", "content": request.system},
            {"role": "user", "content": request.user},
        ],
        "max_tokens": request.max_tokens,
        "temperature": temperature,
    });
    if json_mode {
        body["response_format"] = json!({"type": "json_object"});
    }
    body
}

/// What is read of an answer; endpoints add keys of their own.
#[derive(Deserialize)]
struct Answer {
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    message: AnswerMessage,
}

#[derive(Deserialize)]
struct AnswerMessage {
    content: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

/// Text and tokens (prompt, reply) of an answer. Without usage they are estimated from the number of characters.
pub(super) fn read(text: &str, request: &LanguageRequest) -> Result<(String, u64, u64), String> {
    let answer: Answer = serde_json::from_str(text)
        .map_err(|error| format!("the answer is not a chat completion: {error}; it begins {}", start(text)))?;
    let choice = answer.choices.into_iter().next().and_then(|choice| choice.message.content);
    let content = choice.ok_or_else(|| format!("the answer has no text; it begins {}", start(text)))?;
    let estimate = |chars: usize| chars.div_ceil(CHARS_PER_TOKEN) as u64;
    let (num_input, num_output) = match answer.usage {
        Some(usage) => (usage.prompt_tokens, usage.completion_tokens),
        None => {
            let prompt = request.system.chars().count() + request.user.chars().count();
            (estimate(prompt), estimate(content.chars().count()))
        }
    };
    Ok((content, num_input, num_output))
}

/// The beginning of a body, quoted, for an error.
pub(super) fn start(body: &str) -> String {
    format!("{:?}", super::prompt::cut(body, MAX_BODY_CHARS))
}
