//! Between messages and token ids: the checkpoint's own tokenizer and chat template.
//!
//! Ids are append-only. A prompt is rendered once; what the policy samples stays as sampled; what follows a turn (tool
//! responses and the next opening) is derived from the template and appended. Sampled text is never encoded again.
//! Text that a person wrote or that comes out of memory can never produce a special token (see [`encoder`]).

mod encoder;
mod error;
#[cfg(test)]
pub(crate) mod fixture;
mod load;
mod message;
mod parse;
mod python;
mod template;
#[cfg(test)]
mod tests;

pub use encoder::{Encoder, SpecialToken};
pub use error::ChatError;
pub use message::{ChatMessage, Role, ToolCall};
pub use parse::{ParameterTypes, ParsedTurn, parse_turn};
pub use template::{ChatTemplate, RenderInput};

use crate::generate::TokenId;
use encoder::Guard;
use serde_json::{Map, Value};
use std::path::Path;

/// Ends an observation that was cut.
pub const CUT_MARK: &str = " …[cut]";

/// How a checkpoint talks: its tokenizer, template and stop tokens.
#[derive(Debug)]
pub struct ChatFormat {
    encoder: Encoder,
    template: ChatTemplate,
    stop_ids: Vec<TokenId>,
    turn_end: TokenId,
}

impl ChatFormat {
    /// Reads `tokenizer.json`, the chat template and the stop tokens of a checkpoint folder, and checks that they fit together:
    /// assistant turns close with a stop token, tool responses can be appended, markers that the template writes exist.
    pub fn load(dir: &Path) -> Result<Self, ChatError> {
        let encoder = Encoder::load(&dir.join("tokenizer.json"))?;
        let config = load::read_optional_json(&dir.join("tokenizer_config.json"))?;
        let template = load::read_template(dir, config.as_ref())?;
        let stop_ids = load::stop_ids(dir, &encoder, config.as_ref())?;
        let mut format = Self { encoder, template, stop_ids, turn_end: 0 };
        format.turn_end = format.find_turn_end()?;
        for enable_thinking in [true, false] {
            format.check_markers(enable_thinking)?;
            format.observation_suffix(&["a".to_owned(), "b".to_owned()], false, enable_thinking)?;
        }
        Ok(format)
    }

    /// Ids that end a turn, sorted.
    pub fn stop_ids(&self) -> &[TokenId] {
        &self.stop_ids
    }

    /// The stop token with which the template closes an assistant turn.
    pub fn turn_end(&self) -> TokenId {
        self.turn_end
    }

    /// The id of a special token by its text.
    pub fn special_id(&self, token: &str) -> Result<TokenId, ChatError> {
        self.encoder.special(token).map(|token| token.id).ok_or_else(|| ChatError::MissingSpecialToken {
            path: self.encoder.path().to_owned(),
            token: token.to_owned(),
            needed_by: "the caller".to_owned(),
        })
    }

    /// One more than the largest id that the tokenizer knows; the model's rows beyond it are padding.
    pub fn num_ids(&self) -> usize {
        self.encoder.num_ids()
    }

    /// Fails when the tokenizer can produce ids that a model with `vocab_size` embedding rows does not have.
    pub fn check_vocabulary(&self, vocab_size: usize) -> Result<(), ChatError> {
        let id = self.num_ids().saturating_sub(1) as TokenId;
        if (id as usize) < vocab_size {
            return Ok(());
        }
        Err(ChatError::Vocabulary {
            path: self.encoder.path().to_owned(),
            token: self.encoder.decode(&[id]),
            id,
            vocab_size,
        })
    }

    /// The tokenizer.
    pub fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// The conversation's text as transformers renders it.
    pub fn render(&self, input: &RenderInput) -> Result<String, ChatError> {
        self.template.render(input)
    }

    /// Ids of a conversation. Only the template's own text yields special tokens.
    pub fn encode(&self, input: &RenderInput) -> Result<Vec<TokenId>, ChatError> {
        let guard = self.guard_for(input);
        let text = self.render_guarded(&guard, input)?;
        Ok(self.encoder.encode_guarded(&text, &guard))
    }

    /// Ids of a prompt: the conversation and the opening of the assistant's turn.
    pub fn encode_prompt(
        &self,
        messages: &[ChatMessage],
        tools: &[Value],
        enable_thinking: bool,
    ) -> Result<Vec<TokenId>, ChatError> {
        self.encode(&RenderInput { messages, tools, add_generation_prompt: true, enable_thinking })
    }

    /// Ids of an assistant's turn as the template would write it after a generation prompt, its stop token included: what a
    /// policy ideally samples. The message's texts are untrusted like all others.
    pub fn encode_turn(&self, turn: &ChatMessage, enable_thinking: bool) -> Result<Vec<TokenId>, ChatError> {
        let conversation = [ChatMessage::new(Role::User, "x"), turn.clone()];
        let input = |messages, add_generation_prompt| RenderInput {
            messages,
            tools: &[],
            add_generation_prompt,
            enable_thinking,
        };
        let whole = input(&conversation, false);
        let guard = self.guard_for(&whole);
        let opening = self.render_guarded(&guard, &input(&conversation[..1], true))?;
        let whole = self.render_guarded(&guard, &whole)?;
        let written = self.strip(&whole, &opening, "an assistant turn after its generation prompt")?;
        let end = self.last_turn_end(written)?.1;
        Ok(self.encoder.encode_guarded(&written[..end], &guard))
    }

    /// Ids to append after a sampled turn: the tool responses and the opening of the next assistant turn.
    ///
    /// `turn_was_cut` says that the turn ended without [`Self::turn_end`], which then comes first. The ids are derived from the
    /// template: a conversation that ends with the assistant's turn, and the same with tool messages, differ by them.
    pub fn observation_suffix(
        &self,
        tool_texts: &[String],
        turn_was_cut: bool,
        enable_thinking: bool,
    ) -> Result<Vec<TokenId>, ChatError> {
        assert!(!tool_texts.is_empty(), "a suffix needs at least one tool text");
        let call = ToolCall { name: "tool".to_owned(), arguments: Map::new() };
        let mut messages = vec![ChatMessage::new(Role::User, "x"), ChatMessage::new(Role::Assistant, "x")];
        messages[1].tool_calls = vec![call; tool_texts.len()];
        messages.extend(tool_texts.iter().map(|text| ChatMessage::new(Role::Tool, text.as_str())));
        let input = |messages, add_generation_prompt| RenderInput {
            messages,
            tools: &[],
            add_generation_prompt,
            enable_thinking,
        };
        let whole = input(&messages, true);
        let guard = self.guard_for(&whole);
        let turn = self.render_guarded(&guard, &input(&messages[..2], false))?;
        let whole = self.render_guarded(&guard, &whole)?;
        let appended = self.strip(&whole, &turn, "tool messages after an assistant turn")?;
        let (start, end) = self.last_turn_end(&turn)?;
        let suffix = format!("{}{appended}", &turn[if turn_was_cut { start } else { end }..]);
        Ok(self.encoder.encode_guarded(&suffix, &guard))
    }

    /// The text, or its beginning with [`CUT_MARK`] where it is longer than `max_tokens`.
    pub fn cap_observation(&self, text: &str, max_tokens: usize) -> String {
        self.encoder.truncate(text, max_tokens, CUT_MARK)
    }

    /// Text of ids with special tokens as they are written.
    pub fn decode(&self, ids: &[TokenId]) -> String {
        self.encoder.decode(ids)
    }

    /// Decodes a sampled turn without its stop token and takes it apart.
    pub fn parse_turn(&self, ids: &[TokenId], types: &ParameterTypes) -> ParsedTurn {
        let ids = match ids.split_last() {
            Some((last, rest)) if self.stop_ids.contains(last) => rest,
            _ => ids,
        };
        parse_turn(&self.decode(ids), types)
    }

    fn guard_for(&self, input: &RenderInput) -> Guard {
        let messages = serde_json::to_string(input.messages).expect("messages have string keys");
        let tools = serde_json::to_string(input.tools).expect("schemas have string keys");
        self.encoder.guard(&[&messages, &tools, self.template.source()])
    }

    fn render_guarded(&self, guard: &Guard, input: &RenderInput) -> Result<String, ChatError> {
        let messages: Vec<_> = input.messages.iter().map(|message| guard.protect_message(message)).collect();
        let tools: Vec<_> = input.tools.iter().map(|tool| guard.protect_value(tool)).collect();
        self.template.render(&RenderInput { messages: &messages, tools: &tools, ..*input })
    }

    fn strip<'a>(&self, whole: &'a str, start: &str, what: &str) -> Result<&'a str, ChatError> {
        whole.strip_prefix(start).ok_or_else(|| ChatError::NotAppendOnly {
            path: self.template.path().to_owned(),
            what: format!("{what} do not start with what stood there before: {start:?} against {whole:?}"),
        })
    }

    /// Byte range of the last turn-ending token in guarded text.
    fn last_turn_end(&self, text: &str) -> Result<(usize, usize), ChatError> {
        let stop = |&id: &TokenId| self.encoder.special_by_id(id);
        let ends = self.stop_ids.iter().filter_map(stop).filter_map(|token| {
            let start = text.rfind(&token.content)?;
            Some((start, start + token.content.len()))
        });
        ends.max_by_key(|range| range.0).ok_or_else(|| ChatError::NotAppendOnly {
            path: self.template.path().to_owned(),
            what: format!("no stop token closes an assistant turn: {text:?}"),
        })
    }

    fn find_turn_end(&self) -> Result<TokenId, ChatError> {
        let messages = [ChatMessage::new(Role::User, "x"), ChatMessage::new(Role::Assistant, "x")];
        let input =
            RenderInput { messages: &messages, tools: &[], add_generation_prompt: false, enable_thinking: true };
        let text = self.render(&input)?;
        let (start, end) = self.last_turn_end(&text)?;
        Ok(self.encoder.special(&text[start..end]).expect("the range is a special token's").id)
    }

    /// Every `<|name|>` in a rendered conversation must be a token; otherwise the policy would read it letter by letter.
    fn check_markers(&self, enable_thinking: bool) -> Result<(), ChatError> {
        let messages = [Role::System, Role::User].map(|role| ChatMessage::new(role, "x"));
        let input = RenderInput { messages: &messages, tools: &[], add_generation_prompt: true, enable_thinking };
        let text = self.render(&input)?;
        let mut rest = text.as_str();
        while let Some(start) = rest.find("<|") {
            let Some(length) = rest[start..].find("|>") else {
                break;
            };
            let marker = &rest[start..start + length + 2];
            if self.encoder.special(marker).is_none() {
                return Err(ChatError::MissingSpecialToken {
                    path: self.encoder.path().to_owned(),
                    token: marker.to_owned(),
                    needed_by: self.template.path().display().to_string(),
                });
            }
            rest = &rest[start + length + 2..];
        }
        Ok(())
    }
}
