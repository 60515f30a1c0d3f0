//! Chats of any source, and questions in the form of verl's training rows.
//!
//! ```json
//! {"messages": [{"role": "user", "content": "Hi.", "timestamp": "2024-05-01T09:00"}],
//!  "user": "ann", "session_id": "s1"}
//! {"prompt": [{"role": "user", "content": "My cat is Io."}, {"role": "assistant", "content": "Noted."},
//!             {"role": "user", "content": "Who is my cat?"}],
//!  "data_source": "cats", "reward_model": {"ground_truth": "Io"}, "extra_info": {"user": "ann"}}
//! ```
//! A chat is a session of its user and asks nothing. Of a row, the last message is the question, system messages are
//! the agent's rules and left out, and what is left is a session of its user.

mod log;
mod row;
#[cfg(test)]
mod tests;

use super::error::DatasetError;
use super::history::History;
use super::output::{Import, Report};
use super::source::{self, Fields, Item, Row, fault, names};
use super::time::any_time;
use super::turns::{shown, turns};
use indexmap::IndexMap;
use log::Log;
use serde_json::Value;
use std::path::Path;

/// The user of chats that name none.
const DEFAULT_USER: &str = "user";

/// Reads chats or rows and writes `out/pyramids/…`, `out/questions.jsonl` and the report.
///
/// Everything is built and checked before anything is written.
pub fn import(file: &Path, out: &Path) -> Result<Report, DatasetError> {
    let items: Vec<Item<Fields>> = source::read(file)?;
    let mut import = Import::new("chat", file, out);
    let mut logs: IndexMap<String, Log> = IndexMap::new();
    for (item, number) in items.iter().zip(1..) {
        let row = Row::new(file, item);
        if item.value.contains_key("messages") {
            add_chat(&row, &mut logs, &mut import.report)?;
        } else if item.value.contains_key("prompt") {
            let question = row::add(&row, number, &mut logs, &mut import.report)?;
            import.add_question(question)?;
        } else {
            let message = format!("`messages` or `prompt` is needed, found {}", names(&item.value));
            return Err(fault(file, format!("{}: {message}", item.place)));
        }
    }
    for (user, log) in logs {
        import.add_user(&user, History::assemble(log.into_sessions()))?;
    }
    import.write()
}

/// A chat's messages as a session; its own time is that of messages that have none.
fn add_chat(row: &Row<'_>, logs: &mut IndexMap<String, Log>, report: &mut Report) -> Result<(), DatasetError> {
    const KEY: &str = "messages";
    let listed = row.nested(KEY)?.unwrap_or(Value::Array(Vec::new()));
    let mut said = turns(&listed).map_err(|why| row.fail(KEY, why))?;
    report.note("messages without content, left out", said.iter().filter(|turn| turn.is_none()).count());
    if let Some(time) = row.get("timestamp") {
        let time = any_time(time).map_err(|why| row.fail("timestamp", why))?;
        let undated = said.iter_mut().flatten().filter(|turn| turn.time.is_none());
        undated.for_each(|turn| turn.time = Some(time));
    }
    let user = row.text("user")?.unwrap_or_else(|| DEFAULT_USER.to_owned());
    let log = logs.entry(user).or_default();
    let session_id = row.text("session_id")?;
    log.add(session_id, said.into_iter().flatten().collect(), report).map_err(|why| row.fail(KEY, why))
}

/// The mapping under `key`, empty where there is none.
fn mapping(row: &Row<'_>, key: &str) -> Result<Fields, DatasetError> {
    match row.nested(key)? {
        None => Ok(Fields::new()),
        Some(Value::Object(fields)) => Ok(fields),
        Some(other) => Err(row.fail(key, format!("must be a mapping, got {}", shown(Some(&other))))),
    }
}
