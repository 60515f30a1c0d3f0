//! Tables: CSV and Parquet, each row an object by column.

use super::{Item, fault};
use crate::datasets::DatasetError;
use fs_err as fs;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::path::Path;

/// Rows of a CSV with a header; each must have as many fields as the header.
pub(super) fn csv<T: DeserializeOwned>(path: &Path, text: &str) -> Result<Vec<Item<T>>, DatasetError> {
    let mut reader = csv::ReaderBuilder::new().from_reader(text.as_bytes());
    let mut lines = Lines { text: text.as_bytes(), counted: 0, line: 1 };
    let header = reader.headers().map_err(|error| fault(path, lines.fault(&error)))?.clone();
    for (at, name) in header.iter().enumerate() {
        if header.iter().take(at).any(|other| other == name) {
            return Err(fault(path, format!("line 1: the column `{name}` appears twice")));
        }
    }
    let mut items = Vec::new();
    for record in reader.into_records() {
        let record = record.map_err(|error| fault(path, lines.fault(&error)))?;
        let line = record.position().map_or(0, |start| lines.line_of(start));
        let fields = header.iter().zip(&record).map(|(name, field)| (name.to_owned(), Value::from(field)));
        items.push(item(path, format!("line {line}"), fields.collect())?);
    }
    Ok(items)
}

/// Lines of a text, counted on: the CSV reader's own count stands one line too early where lines end in CR LF.
struct Lines<'a> {
    text: &'a [u8],
    counted: usize,
    line: usize,
}

impl Lines<'_> {
    /// The line of a record, from 1. Records must come in their order.
    fn line_of(&mut self, start: &csv::Position) -> usize {
        let mut start = usize::try_from(start.byte()).unwrap_or(usize::MAX).clamp(self.counted, self.text.len());
        // A record may be said to start at the line break before it, or at blank lines.
        start += self.text[start..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        self.line += self.text[self.counted..start].iter().filter(|&&byte| byte == b'\n').count();
        self.counted = start;
        self.line
    }

    /// The line and what is wrong there.
    fn fault(&mut self, error: &csv::Error) -> String {
        match error.kind() {
            csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
                let line = pos.as_ref().map_or(0, |start| self.line_of(start));
                format!("line {line}: {len} fields, but the header has {expected_len}")
            }
            _ => error.to_string(),
        }
    }
}

/// Rows of a Parquet file.
pub(super) fn parquet<T: DeserializeOwned>(path: &Path) -> Result<Vec<Item<T>>, DatasetError> {
    let wrong = |error: ParquetError| fault(path, format!("as Parquet: {error}{}", hint(&error)));
    let file = fs::File::open(path)?.into_file();
    let reader = SerializedFileReader::new(file).map_err(wrong)?;
    let mut items = Vec::new();
    for row in reader.get_row_iter(None).map_err(wrong)? {
        let Value::Object(fields) = row.map_err(wrong)?.to_json_value() else {
            unreachable!("a Parquet row is an object");
        };
        items.push(item(path, format!("row {}", items.len() + 1), fields)?);
    }
    Ok(items)
}

/// What to do about a page that cannot be unpacked here.
fn hint(error: &ParquetError) -> &'static str {
    if error.to_string().contains("Disabled feature") {
        "; pages may be uncompressed or packed by Snappy or Zstandard: write the file again so, or as JSONL"
    } else {
        ""
    }
}

fn item<T: DeserializeOwned>(path: &Path, place: String, fields: Map<String, Value>) -> Result<Item<T>, DatasetError> {
    match serde_json::from_value(Value::Object(fields)) {
        Ok(value) => Ok(Item { place, value }),
        Err(error) => Err(fault(path, format!("{place}: {error}"))),
    }
}
