//! How items look in an observation: one short line each.

use crate::pyramid::{Message, Record, RecordKind};

/// Characters of a message that search shows; `get_conversations` shows all.
const SNIPPET_CHARS: usize = 300;

/// `[m12] 2024-02-20T10:31 s3 user: text`, the text as it was said.
pub(super) fn message_line(message: &Message) -> String {
    with_head(message, &message.content)
}

/// The same on one line, a long text cut.
pub(super) fn message_snippet(message: &Message) -> String {
    with_head(message, &shorten(&message.content, SNIPPET_CHARS))
}

fn with_head(message: &Message, text: &str) -> String {
    let Message { id, time, session_id, role, speaker, .. } = message;
    match speaker {
        Some(speaker) => format!("[{id}] {time} {session_id} {role} {speaker}: {text}"),
        None => format!("[{id}] {time} {session_id} {role}: {text}"),
    }
}

/// `[r3] 2024-02-20 fact: text (sources: m1, m2)`; an event shows when it is, others when they last changed.
pub(super) fn record_line(record: &Record) -> String {
    let time = match (&record.event_start, &record.event_end) {
        (Some(start), Some(end)) if record.kind == RecordKind::Event && start != end => {
            format!("{start}..{end}")
        }
        (Some(start), _) if record.kind == RecordKind::Event => start.clone(),
        _ => day(&record.updated).to_owned(),
    };
    let Record { id, kind, text, sources, .. } = record;
    format!("[{id}] {time} {}: {text} (sources: {})", kind.name(), sources.join(", "))
}

/// The line, followed by what the record said before.
pub(super) fn record_with_history(record: &Record) -> String {
    let mut line = record_line(record);
    for change in record.history.iter().rev() {
        line.push_str(&format!("\n  until {}: {}", day(&change.time), change.previous_text));
    }
    line
}

fn day(time: &str) -> &str {
    time.split('T').next().unwrap_or(time)
}

/// On one line, with single spaces, at most `max_chars` characters and a mark where it was cut.
pub(super) fn shorten(text: &str, max_chars: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
