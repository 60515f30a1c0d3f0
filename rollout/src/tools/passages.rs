//! Retrieval without tools: what a fixed search would put into the prompt.

use super::observe::{message_line, record_line};
use super::{ReturnedItem, item};
use crate::pyramid::{Pyramid, PyramidError};

/// An item of memory as a prompt shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// The item in words, its id in brackets first.
    pub text: String,
    /// Which it is.
    pub item: ReturnedItem,
}

/// The best `limit` of both searchable levels for a query, by the same indexes that the tools search.
///
/// Ranks of the two levels are fused as reciprocal ranks; as no item is in both, that means in turn, records first.
pub fn passages(pyramid: &Pyramid, query: &str, limit: usize) -> Result<Vec<Passage>, PyramidError> {
    let records = pyramid.search_records(query, limit)?;
    let messages = pyramid.search_messages(query, limit)?;
    let record = |at: usize| {
        let record = pyramid.record(&records.get(at)?.id)?;
        Some(Passage { text: record_line(record), item: item(&record.id, &record.sources) })
    };
    let message = |at: usize| {
        let message = pyramid.message(&messages.get(at)?.id)?;
        Some(Passage { text: message_line(message), item: item(&message.id, &[]) })
    };
    let ranks = 0..records.len().max(messages.len());
    Ok(ranks.flat_map(|at| [record(at), message(at)]).flatten().take(limit).collect())
}
