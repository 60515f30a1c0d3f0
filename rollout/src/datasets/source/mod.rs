//! Files of items, told apart by what is in them: JSON, JSONL, CSV, Parquet. What a file is called decides nothing.

mod table;
#[cfg(test)]
mod tests;

use super::error::DatasetError;
use super::python::json_or_literal;
use super::turns::shown;
use crate::pyramid::json_line_fault;
use fs_err as fs;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::path::Path;

/// First bytes of a Parquet file.
const PARQUET_MAGIC: &[u8] = b"PAR1";
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// An item and where it stands, as `item 3`, `line 7` or `row 2`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item<T> {
    pub(super) place: String,
    pub(super) value: T,
}

/// An item by its keys, the form that tables have.
pub(super) type Fields = Map<String, Value>;

/// The items of a file: elements of a JSON array, a single JSON object, one JSON object a line, rows of a table.
///
/// Fields of a CSV are texts, an empty one included.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<Item<T>>, DatasetError> {
    let bytes = fs::read(path)?;
    if bytes.starts_with(PARQUET_MAGIC) {
        return table::parquet(path);
    }
    let text = decode(path, &bytes)?;
    match text.trim_start().chars().next() {
        None => Err(fault(path, "is empty; items as JSON, JSONL, CSV or Parquet are needed".to_owned())),
        Some('[') => array(path, text),
        Some('{') => objects(path, text),
        Some(_) => table::csv(path, text),
    }
}

/// A whole file that is one JSON value.
pub(super) fn read_json(path: &Path) -> Result<Value, DatasetError> {
    let bytes = fs::read(path)?;
    serde_json::from_str(decode(path, &bytes)?).map_err(|error| fault(path, error.to_string()))
}

/// A fault of a source file.
pub(super) fn fault(path: &Path, message: String) -> DatasetError {
    DatasetError::Source { path: path.to_owned(), message }
}

fn decode<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a str, DatasetError> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    std::str::from_utf8(bytes)
        .map_err(|error| fault(path, format!("must be UTF-8, but byte {} is not", error.valid_up_to() + 1)))
}

fn array<T: DeserializeOwned>(path: &Path, text: &str) -> Result<Vec<Item<T>>, DatasetError> {
    // In two steps, so that a message can say which element is wrong and not only which column of a single long line.
    let elements: Vec<&RawValue> = serde_json::from_str(text).map_err(|error| fault(path, error.to_string()))?;
    let places = (1..).map(|number| format!("item {number}"));
    elements.into_iter().zip(places).map(|(element, place)| parse(path, place, element.get())).collect()
}

/// One object over any number of lines, or one object a line.
fn objects<T: DeserializeOwned>(path: &Path, text: &str) -> Result<Vec<Item<T>>, DatasetError> {
    let Err(whole) = serde_json::from_str::<&RawValue>(text) else {
        return Ok(vec![parse(path, "item 1".to_owned(), text)?]);
    };
    let mut items = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        if items.is_empty() && serde_json::from_str::<&RawValue>(line).is_err() {
            // The first line is no object of its own, so the file was meant as one.
            return Err(fault(path, whole.to_string()));
        }
        items.push(parse(path, format!("line {}", at + 1), line)?);
    }
    Ok(items)
}

fn parse<T: DeserializeOwned>(path: &Path, place: String, text: &str) -> Result<Item<T>, DatasetError> {
    match serde_json::from_str(text) {
        Ok(value) => Ok(Item { place, value }),
        Err(error) => Err(fault(path, format!("{place}: {}", json_line_fault(&error)))),
    }
}

/// One item of a file with the means to say what is wrong with it.
pub(super) struct Row<'a> {
    path: &'a Path,
    place: &'a str,
    fields: &'a Fields,
}

impl<'a> Row<'a> {
    pub(super) fn new(path: &'a Path, item: &'a Item<Fields>) -> Self {
        Self { path, place: &item.place, fields: &item.value }
    }

    /// ``questions.csv: line 3: `key`: message``.
    pub(super) fn fail(&self, key: &str, message: impl std::fmt::Display) -> DatasetError {
        fault(self.path, format!("{}: `{key}`: {message}", self.place))
    }

    /// The field, unless it is missing, null or blank.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        let value = self.fields.get(key)?;
        let is_blank = value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty());
        (!is_blank).then_some(value)
    }

    /// A text or a number as text, trimmed; none when it is missing or blank.
    pub(super) fn text(&self, key: &str) -> Result<Option<String>, DatasetError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.trim().to_owned())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            other => Err(self.fail(key, format!("must be a text, got {}", shown(other)))),
        }
    }

    /// A text that must be there.
    pub(super) fn required(&self, key: &str) -> Result<String, DatasetError> {
        let has = || format!("must not be empty; the fields are {}", names(self.fields));
        self.text(key)?.ok_or_else(|| self.fail(key, has()))
    }

    /// A value that a table holds as JSON or as a Python literal, and other files as it is.
    pub(super) fn nested(&self, key: &str) -> Result<Option<Value>, DatasetError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => {
                let parsed = json_or_literal(text.trim());
                parsed.map(Some).map_err(|why| self.fail(key, format!("is neither JSON nor a Python literal: {why}")))
            }
            Some(value) => Ok(Some(value.clone())),
        }
    }

    /// A list of texts, as [`Row::nested`] reads it.
    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>, DatasetError> {
        let wrong = |value: &Value| self.fail(key, format!("must be a list of texts, got {}", shown(Some(value))));
        let Some(list) = self.nested(key)? else {
            return Ok(Vec::new());
        };
        let items = list.as_array().ok_or_else(|| wrong(&list))?;
        items.iter().map(|item| Ok(item.as_str().ok_or_else(|| wrong(item))?.trim().to_owned())).collect()
    }
}

/// The keys of an item, for messages.
pub(super) fn names(fields: &Fields) -> String {
    let quoted: Vec<String> = fields.keys().map(|key| format!("`{key}`")).collect();
    if quoted.is_empty() { "none".to_owned() } else { quoted.join(", ") }
}
