//! Reading of tool arguments: forgiving about form, clear about what is missing.

use serde_json::Value;

/// Ids that one call may ask for.
const MAX_IDS: usize = 20;
/// Characters that a query or a name may have.
const MAX_TEXT_CHARS: usize = 1_000;

/// The value of `key` or of one of its other spellings.
fn find<'a>(arguments: &'a Value, key: &str, spellings: &[&str]) -> Result<&'a Value, String> {
    let object = arguments.as_object().ok_or_else(|| format!("arguments must be an object with `{key}`"))?;
    let value = std::iter::once(&key).chain(spellings).find_map(|name| object.get(*name));
    value.ok_or_else(|| format!("argument `{key}` is missing"))
}

/// A non-blank text, trimmed. A number counts as its digits.
pub(super) fn read_text(arguments: &Value, key: &str, spellings: &[&str]) -> Result<String, String> {
    let text = match find(arguments, key, spellings)? {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return Err(format!("argument `{key}` must be a string")),
    };
    if text.is_empty() {
        return Err(format!("argument `{key}` is empty"));
    }
    if text.chars().count() > MAX_TEXT_CHARS {
        return Err(format!("argument `{key}` has more than {MAX_TEXT_CHARS} characters"));
    }
    Ok(text)
}

/// Distinct ids in order: an array, an array written as text, or ids in one string apart by commas or spaces.
pub(super) fn read_ids(arguments: &Value, key: &str, spellings: &[&str]) -> Result<Vec<String>, String> {
    let must = || format!("argument `{key}` must be a list of ids");
    let value = find(arguments, key, spellings)?;
    let parsed = value.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let raw: Vec<String> = match parsed.filter(Value::is_array).as_ref().unwrap_or(value) {
        Value::Array(items) => items.iter().map(id_of).collect::<Option<_>>().ok_or_else(must)?,
        Value::String(text) => text.split([',', ' ', '\n', '\t', ';']).map(str::to_owned).collect(),
        other => vec![id_of(other).ok_or_else(must)?],
    };
    let mut ids: Vec<String> = Vec::new();
    for id in raw.iter().map(|id| id.trim().trim_matches(['[', ']', '"', '\''])) {
        if !id.is_empty() && !ids.iter().any(|known| known == id) {
            ids.push(id.to_owned());
        }
    }
    match ids.len() {
        0 => Err(format!("argument `{key}` is empty")),
        1..=MAX_IDS => Ok(ids),
        more => Err(format!("argument `{key}` has {more} ids, at most {MAX_IDS} a call")),
    }
}

fn id_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
