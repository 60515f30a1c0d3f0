//! Finds the chat files of a checkpoint folder.

use super::encoder::Encoder;
use super::error::ChatError;
use super::template::ChatTemplate;
use crate::generate::TokenId;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Names under which tokens that end a turn are known; used besides what the configuration files say.
const KNOWN_STOPS: [&str; 3] = ["<|im_end|>", "<|endoftext|>", "<|eot_id|>"];

/// Variables that transformers hands to templates.
const NAMED_TOKENS: [&str; 4] = ["bos_token", "eos_token", "pad_token", "unk_token"];

/// A JSON file of the folder; `None` when it is not there.
pub fn read_optional_json(path: &Path) -> Result<Option<Value>, ChatError> {
    if !path.exists() {
        return Ok(None);
    }
    let bytes = fs_err::read(path)?;
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| ChatError::Json { path: path.to_owned(), message: error.to_string() })
}

/// The template: `chat_template.jinja`, or `chat_template` of `tokenizer_config.json` (a text, or a list with a `default`).
pub fn read_template(dir: &Path, tokenizer_config: Option<&Value>) -> Result<ChatTemplate, ChatError> {
    let named = tokenizer_config.map(named_tokens).unwrap_or_default();
    let path = dir.join("chat_template.jinja");
    if path.exists() {
        let source = fs_err::read_to_string(&path)?;
        return ChatTemplate::new(path, source, named);
    }
    let stored = tokenizer_config.and_then(|config| config.get("chat_template"));
    let source = match stored {
        Some(Value::String(source)) => Some(source.as_str()),
        Some(Value::Array(list)) => list
            .iter()
            .find(|entry| entry.get("name").and_then(Value::as_str) == Some("default"))
            .and_then(|entry| entry.get("template").and_then(Value::as_str)),
        _ => None,
    };
    let source = source.ok_or_else(|| ChatError::MissingTemplate { dir: dir.to_owned() })?;
    ChatTemplate::new(dir.join("tokenizer_config.json"), source.to_owned(), named)
}

fn named_tokens(config: &Value) -> Vec<(String, String)> {
    let text = |name: &&str| token_text(config.get(*name)?).map(|text| ((*name).to_owned(), text.to_owned()));
    NAMED_TOKENS.iter().filter_map(text).collect()
}

/// A token is stored as its text or as an object with `content`.
fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

/// Ids that end a turn, sorted: `eos_token_id` of `generation_config.json`, `eos_token` of `tokenizer_config.json`, known names.
pub fn stop_ids(dir: &Path, encoder: &Encoder, tokenizer_config: Option<&Value>) -> Result<Vec<TokenId>, ChatError> {
    let mut stops = BTreeSet::new();
    let generation_path = dir.join("generation_config.json");
    if let Some(generation) = read_optional_json(&generation_path)? {
        stops.extend(generation_stops(&generation_path, &generation, encoder)?);
    }
    if let Some(eos) = tokenizer_config.and_then(|config| token_text(config.get("eos_token")?)) {
        let token = encoder.special(eos).ok_or_else(|| ChatError::MissingSpecialToken {
            path: encoder.path().to_owned(),
            token: eos.to_owned(),
            needed_by: "`eos_token` of tokenizer_config.json".to_owned(),
        })?;
        stops.insert(token.id);
    }
    stops.extend(KNOWN_STOPS.iter().filter_map(|name| encoder.special(name)).map(|token| token.id));
    if stops.is_empty() {
        let known = KNOWN_STOPS.map(|name| format!("`{name}`")).join(", ");
        return Err(ChatError::NoStopToken { dir: dir.to_owned(), known });
    }
    Ok(stops.into_iter().collect())
}

fn generation_stops(path: &Path, generation: &Value, encoder: &Encoder) -> Result<Vec<TokenId>, ChatError> {
    let listed = match generation.get("eos_token_id") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(ids)) => ids.clone(),
        Some(id) => vec![id.clone()],
    };
    let read = |value: &Value| {
        let id = value.as_u64().and_then(|id| TokenId::try_from(id).ok());
        id.filter(|&id| encoder.special_by_id(id).is_some()).ok_or_else(|| ChatError::Json {
            path: path.to_owned(),
            message: format!("`eos_token_id`: expected ids of special tokens of tokenizer.json, found {value}"),
        })
    };
    listed.iter().map(read).collect()
}
