//! Text to ids, such that only trusted text can produce a special token.
//!
//! A tokenizer finds special tokens by their text, wherever that text comes from. Two things keep apart what the template
//! writes and what a person or a memory says:
//! 1. Before rendering, every character that can begin or end a special token (`<` and `>` for Qwen) is replaced in
//!    untrusted strings by a private-use stand-in. After rendering, a special token's text can only be the template's.
//! 2. The rendered text is cut at those occurrences, the stand-ins are put back, and what lies between is encoded by a
//!    second tokenizer that has no special tokens at all.
//!
//! Where no untrusted string holds a special token's text, the ids equal those of the plain encoding.

use super::error::ChatError;
use super::message::{ChatMessage, ToolCall};
use crate::generate::TokenId;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tokenizers::Tokenizer;

/// First candidate for a stand-in: plane 15 is private use.
const FIRST_STAND_IN: u32 = 0xF_0000;

/// An added token of the tokenizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecialToken {
    /// Its text.
    pub content: String,
    /// Its id.
    pub id: TokenId,
    /// It swallows white space before it.
    lstrip: bool,
    /// It swallows white space after it.
    rstrip: bool,
}

impl SpecialToken {
    /// Runs of white space are added tokens of some tokenizers; they are ordinary text.
    fn is_control(&self) -> bool {
        !self.content.trim().is_empty()
    }
}

/// A piece of text that was cut at special tokens.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Special(&'a SpecialToken),
}

/// A tokenizer that keeps special tokens and text apart.
#[derive(Debug)]
pub struct Encoder {
    path: PathBuf,
    full: Tokenizer,
    /// The same model and normalisation without added tokens.
    plain: Tokenizer,
    specials: Vec<SpecialToken>,
    guarded_chars: Vec<char>,
}

impl Encoder {
    /// Reads `tokenizer.json`; refuses one whose special tokens plain text can produce.
    pub fn load(path: &Path) -> Result<Self, ChatError> {
        let fault = |message: String| ChatError::Tokenizer { path: path.to_owned(), message };
        let bytes = fs_err::read(path)?;
        let mut full = Tokenizer::from_bytes(&bytes).map_err(|error| fault(error.to_string()))?;
        // A stored truncation or padding would change ids silently.
        full.with_truncation(None).map_err(|error| fault(error.to_string()))?;
        full.with_padding(None);
        let mut plain = Tokenizer::new(full.get_model().clone());
        plain.with_normalizer(full.get_normalizer().cloned());
        plain.with_pre_tokenizer(full.get_pre_tokenizer().cloned());
        let specials = special_tokens(&full);
        let ends = |token: &SpecialToken| [token.content.chars().next(), token.content.chars().next_back()];
        let guarded: BTreeSet<char> =
            specials.iter().filter(|token| token.is_control()).flat_map(ends).flatten().collect();
        let guarded_chars = guarded.into_iter().collect();
        let encoder = Self { path: path.to_owned(), full, plain, specials, guarded_chars };
        encoder.check_fitness()?;
        Ok(encoder)
    }

    /// The file that the tokenizer came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// One more than the largest id.
    pub fn num_ids(&self) -> usize {
        let largest_special = self.specials.iter().map(|token| token.id as usize + 1).max().unwrap_or(0);
        self.plain.get_vocab_size(false).max(largest_special)
    }

    /// The special token with this text.
    pub fn special(&self, content: &str) -> Option<&SpecialToken> {
        self.specials.iter().find(|token| token.content == content)
    }

    /// The special token with this id.
    pub fn special_by_id(&self, id: TokenId) -> Option<&SpecialToken> {
        self.specials.iter().find(|token| token.id == id)
    }

    /// All special tokens, longest text first.
    pub fn specials(&self) -> &[SpecialToken] {
        &self.specials
    }

    /// Ids of trusted text: the text of a special token means the token.
    pub fn encode_trusted(&self, text: &str) -> Vec<TokenId> {
        self.encode_pieces(self.cut(text, true), Cow::Borrowed)
    }

    /// Ids of untrusted text: no special token, whatever it says.
    pub fn encode_plain(&self, text: &str) -> Vec<TokenId> {
        self.encode_pieces(self.cut(text, false), Cow::Borrowed)
    }

    /// Ids of text rendered from strings that `guard` protected.
    pub fn encode_guarded(&self, text: &str, guard: &Guard) -> Vec<TokenId> {
        self.encode_pieces(self.cut(text, true), |text| guard.restore(text))
    }

    /// A guard whose stand-ins occur in none of `texts`.
    pub fn guard(&self, texts: &[&str]) -> Guard {
        let used: BTreeSet<char> =
            texts.iter().flat_map(|text| text.chars()).filter(|&c| u32::from(c) >= FIRST_STAND_IN).collect();
        let mut free = (FIRST_STAND_IN..).filter_map(char::from_u32).filter(|c| !used.contains(c));
        let pairs = self.guarded_chars.iter().map(|&c| {
            let stand_in = free.next().expect("plane 15 and 16 hold more characters than any text here");
            (c, stand_in)
        });
        Guard { pairs: pairs.collect() }
    }

    /// Text of ids, special tokens included; ids beyond the tokenizer are left out.
    pub fn decode(&self, ids: &[TokenId]) -> String {
        self.full.decode(ids, false).expect("decoding maps tokens to bytes and cannot fail")
    }

    /// Cuts untrusted text to at most `max_tokens` tokens, `mark` included, between two characters.
    pub fn truncate(&self, text: &str, max_tokens: usize, mark: &str) -> String {
        let encoding = self.plain.encode(text, false).expect("encoding a string in memory cannot fail");
        if encoding.len() <= max_tokens {
            return text.to_owned();
        }
        let mut keep = max_tokens;
        loop {
            // Where a token splits a character, its offsets are those of the whole character.
            let mut end = encoding.get_offsets().get(keep).map_or(0, |offsets| offsets.0);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let cut = format!("{}{mark}", &text[..end]);
            if keep == 0 || self.encode_plain(&cut).len() <= max_tokens {
                return cut;
            }
            keep -= 1;
        }
    }

    /// Cuts text at special tokens, leftmost and longest first; in untrusted text only at runs of white space.
    fn cut<'a>(&'a self, text: &'a str, trusted: bool) -> Vec<Piece<'a>> {
        let mut pieces = Vec::new();
        let (mut start, mut at) = (0, 0);
        while at < text.len() {
            let rest = &text[at..];
            let found = self
                .specials
                .iter()
                .find(|token| (trusted || !token.is_control()) && rest.starts_with(token.content.as_str()));
            let Some(token) = found else {
                at += rest.chars().next().map_or(1, char::len_utf8);
                continue;
            };
            let before = &text[start..at];
            pieces.push(Piece::Text(if token.lstrip { before.trim_end() } else { before }));
            pieces.push(Piece::Special(token));
            at += token.content.len();
            if token.rstrip {
                at += text[at..].len() - text[at..].trim_start().len();
            }
            start = at;
        }
        pieces.push(Piece::Text(&text[start..]));
        pieces
    }

    fn encode_pieces<'a>(&self, pieces: Vec<Piece<'a>>, restore: impl Fn(&'a str) -> Cow<'a, str>) -> Vec<TokenId> {
        let mut ids = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Text("") => {}
                Piece::Text(text) => {
                    let encoding = self.plain.encode_fast(restore(text).as_ref(), false);
                    ids.extend_from_slice(encoding.expect("encoding a string in memory cannot fail").get_ids());
                }
                Piece::Special(token) => ids.push(token.id),
            }
        }
        ids
    }

    /// Cutting must change nothing for trusted text, and plain text must reach no special id.
    fn check_fitness(&self) -> Result<(), ChatError> {
        let fault = |message: String| Err(ChatError::Tokenizer { path: self.path.clone(), message });
        for token in self.specials.iter().filter(|token| token.is_control()) {
            let plain = self.encode_plain(&token.content);
            if let Some(special) = plain.iter().find_map(|&id| self.special_by_id(id)) {
                return fault(format!(
                    "the text `{}` encodes to the special token `{}` even as plain text",
                    token.content, special.content
                ));
            }
            let probe = format!("a {0}\nb  {0}{0} Zoë\n\n{0}\u{4F60}", token.content);
            let expected = self
                .full
                .encode_fast(probe.as_str(), false)
                .map_err(|error| ChatError::Tokenizer { path: self.path.clone(), message: error.to_string() })?;
            let found = self.encode_trusted(&probe);
            if found != expected.get_ids() {
                let expected = expected.get_ids();
                return fault(format!(
                    "text around `{}` does not encode piece by piece: {found:?} instead of {expected:?}",
                    token.content
                ));
            }
        }
        Ok(())
    }
}

fn special_tokens(tokenizer: &Tokenizer) -> Vec<SpecialToken> {
    let added = tokenizer.get_added_tokens_decoder();
    let mut specials: Vec<SpecialToken> = added
        .into_iter()
        .filter(|(_, token)| !token.content.is_empty())
        .map(|(id, token)| SpecialToken { content: token.content, id, lstrip: token.lstrip, rstrip: token.rstrip })
        .collect();
    specials.sort_by(|a, b| b.content.len().cmp(&a.content.len()).then(a.id.cmp(&b.id)));
    specials
}

/// Replaces the characters that begin or end special tokens by stand-ins, and puts them back.
#[derive(Debug)]
pub struct Guard {
    pairs: Vec<(char, char)>,
}

impl Guard {
    /// Protects one untrusted string.
    pub fn protect(&self, text: &str) -> String {
        text.chars().map(|c| self.pairs.iter().find(|pair| pair.0 == c).map_or(c, |pair| pair.1)).collect()
    }

    /// Puts the characters back.
    pub fn restore<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if text.chars().all(|c| u32::from(c) < FIRST_STAND_IN) {
            return Cow::Borrowed(text);
        }
        Cow::Owned(text.chars().map(|c| self.pairs.iter().find(|pair| pair.1 == c).map_or(c, |pair| pair.0)).collect())
    }

    /// Protects every string of a message but its role.
    pub fn protect_message(&self, message: &ChatMessage) -> ChatMessage {
        let call =
            |call: &ToolCall| ToolCall { name: self.protect(&call.name), arguments: self.protect_map(&call.arguments) };
        ChatMessage {
            role: message.role,
            content: self.protect(&message.content),
            reasoning_content: message.reasoning_content.as_deref().map(|text| self.protect(text)),
            tool_calls: message.tool_calls.iter().map(call).collect(),
        }
    }

    /// Protects every string of a JSON value, keys included.
    pub fn protect_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.protect(text)),
            Value::Array(items) => items.iter().map(|item| self.protect_value(item)).collect(),
            Value::Object(map) => Value::Object(self.protect_map(map)),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn protect_map(&self, map: &Map<String, Value>) -> Map<String, Value> {
        map.iter().map(|(key, value)| (self.protect(key), self.protect_value(value))).collect()
    }
}
