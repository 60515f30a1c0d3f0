//! The chat-completions format: what is sent, and what of an answer is read.

use super::language::LanguageRequest;
use crate::generate::Sampling;
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

/// The body of a policy's request: messages and tools in OpenAI's format. `seed` is cut to the bits that all endpoints take.
pub(super) fn policy_body(
    model: &str,
    messages: &[Value],
    tools: &[Value],
    max_tokens: usize,
    sampling: &Sampling,
    seed: u64,
) -> Value {
    let mut body = json!({
        "model": model,
        "messages": messages,
        "max_tokens": max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": seed & 0x7FFF_FFFF,
    });
    if !tools.is_empty() {
        body["tools"] = tools.into();
    }
    if sampling.top_k > 0 {
        body["top_k"] = sampling.top_k.into();
    }
    body
}

/// A policy's turn as an endpoint gives it.
#[derive(Debug)]
pub(super) struct PolicyReply {
    pub(super) content: String,
    pub(super) reasoning: Option<String>,
    pub(super) calls: Vec<PolicyCall>,
    /// It reached the limit of tokens.
    pub(super) was_cut: bool,
}

/// One tool call of it.
#[derive(Debug)]
pub(super) struct PolicyCall {
    pub(super) id: String,
    pub(super) name: String,
    /// JSON, if the model wrote it well.
    pub(super) arguments: String,
}

/// Reads an answer as a policy's turn; one without text and calls is an empty turn.
pub(super) fn read_policy(text: &str) -> Result<PolicyReply, String> {
    let answer: Answer = serde_json::from_str(text)
        .map_err(|error| format!("the answer is not a chat completion: {error}; it begins {}", start(text)))?;
    let none = || format!("the answer has no choices; it begins {}", start(text));
    let Choice { message, finish_reason } = answer.choices.into_iter().next().ok_or_else(none)?;
    let calls = message.tool_calls.unwrap_or_default().into_iter().enumerate();
    Ok(PolicyReply {
        content: message.content.unwrap_or_default(),
        reasoning: message.reasoning_content.filter(|text| !text.trim().is_empty()),
        calls: calls
            .map(|(at, call)| PolicyCall {
                id: call.id.unwrap_or_else(|| format!("call_{at}")),
                name: call.function.name,
                arguments: call.function.arguments,
            })
            .collect(),
        was_cut: finish_reason.as_deref() == Some("length"),
    })
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
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct AnswerMessage {
    content: Option<String>,
    #[serde(default)]
    reasoning_content: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<AnswerCall>>,
}

#[derive(Deserialize)]
struct AnswerCall {
    #[serde(default)]
    id: Option<String>,
    function: AnswerFunction,
}

#[derive(Deserialize)]
struct AnswerFunction {
    name: String,
    #[serde(default)]
    arguments: String,
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
