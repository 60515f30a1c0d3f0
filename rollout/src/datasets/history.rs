//! Level 1 from sessions: times filled in, order by time, ids that say nothing but the place.

use super::time::iso_minute;
use crate::pyramid::{Message, PyramidData};
use chrono::{Duration, NaiveDate, NaiveDateTime};

/// One message before it has a place.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Turn {
    /// The source's own id, if it is to be kept.
    pub(super) id: Option<String>,
    pub(super) role: String,
    pub(super) speaker: Option<String>,
    pub(super) content: String,
    pub(super) time: Option<NaiveDateTime>,
}

/// Messages that were said in one go.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Session {
    /// The source's own id, if it is to be kept.
    pub(super) id: Option<String>,
    pub(super) turns: Vec<Turn>,
}

impl Session {
    /// What was said, trimmed.
    pub(super) fn contents(&self) -> impl Iterator<Item = String> {
        self.turns.iter().map(|turn| turn.content.trim().to_owned())
    }
}

/// Level 1 of one user.
#[derive(Debug)]
pub(super) struct History {
    /// In the order of time.
    pub(super) messages: Vec<Message>,
    /// Ids of the messages, by position of the session and of the turn in what was handed in.
    pub(super) ids: Vec<Vec<String>>,
    /// Ids of the sessions, by position.
    pub(super) session_ids: Vec<String>,
    /// False when no turn had a time and all times are made up.
    pub(super) is_dated: bool,
}

impl History {
    /// Puts sessions in the order of time and gives ids: sessions `s001`, …, their messages `s001-m01`, ….
    ///
    /// Sessions of the same time keep their order, and so do messages. Where nothing has a time, sessions are a day
    /// apart from 2025-01-01 on and messages a minute: the order is right, and nothing else is claimed. Where some
    /// have one, the others take that of their neighbour before, else after.
    ///
    /// ```text
    /// [{turns: [(user, "Hi.", 2024-03-02T10:00)]}, {turns: [(user, "Bye.", 2024-02-01T09:00)]}]
    ///   → s001-m01 2024-02-01T09:00 "Bye.", s002-m01 2024-03-02T10:00 "Hi."; ids [["s002-m01"], ["s001-m01"]]
    /// ```
    pub(super) fn assemble(sessions: Vec<Session>) -> Self {
        let times = times(&sessions);
        let is_dated = times.is_some();
        let times = times.unwrap_or_else(|| invented_times(&sessions));
        let mut order: Vec<usize> = (0..sessions.len()).collect();
        // A session without messages has no time; it comes last, so that its number leaves no gap.
        order.sort_by_key(|&at| (times[at].is_empty(), times[at].first().copied()));
        let mut ids = vec![Vec::new(); sessions.len()];
        let mut session_ids = vec![String::new(); sessions.len()];
        let mut messages: Vec<(NaiveDateTime, Message)> = Vec::new();
        let mut sessions: Vec<Option<Session>> = sessions.into_iter().map(Some).collect();
        for (rank, &at) in order.iter().enumerate() {
            let session = sessions[at].take().unwrap_or_default();
            let place = format!("s{:03}", rank + 1);
            session_ids[at] = session.id.unwrap_or_else(|| place.clone());
            for (turn_at, turn) in session.turns.into_iter().enumerate() {
                let id = turn.id.unwrap_or_else(|| format!("{place}-m{:02}", turn_at + 1));
                ids[at].push(id.clone());
                let time = times[at][turn_at];
                let message = Message {
                    id,
                    session_id: session_ids[at].clone(),
                    time: iso_minute(time),
                    role: turn.role,
                    speaker: turn.speaker,
                    content: turn.content,
                };
                messages.push((time, message));
            }
        }
        messages.sort_by_key(|(time, _)| *time);
        let messages = messages.into_iter().map(|(_, message)| message).collect();
        Self { messages, ids, session_ids, is_dated }
    }

    /// A pyramid of this level alone; the upper ones are for a builder to make.
    pub(super) fn into_pyramid(self) -> PyramidData {
        PyramidData { messages: self.messages, ..PyramidData::default() }
    }
}

/// A time for each turn, or none when no turn has one.
fn times(sessions: &[Session]) -> Option<Vec<Vec<NaiveDateTime>>> {
    let mut last = sessions.iter().flat_map(|session| &session.turns).find_map(|turn| turn.time)?;
    let mut filled = Vec::new();
    for session in sessions {
        // A turn before the first dated one of its session belongs to that session's time, not to the one before.
        last = session.turns.iter().find_map(|turn| turn.time).unwrap_or(last);
        let mut session_times = Vec::new();
        for turn in &session.turns {
            last = turn.time.unwrap_or(last);
            session_times.push(last);
        }
        filled.push(session_times);
    }
    Some(filled)
}

fn invented_times(sessions: &[Session]) -> Vec<Vec<NaiveDateTime>> {
    let mut day = NaiveDate::from_ymd_opt(2025, 1, 1).unwrap_or_default().and_hms_opt(0, 0, 0).unwrap_or_default();
    let mut invented = Vec::new();
    for session in sessions {
        let minutes = (0..session.turns.len()).map(|minute| day + Duration::minutes(minute as i64));
        invented.push(minutes.collect());
        // A session of more messages than a day has minutes takes as many days as it needs.
        day += Duration::days(1 + session.turns.len() as i64 / (24 * 60));
    }
    invented
}

/// A user's name is also a folder's: letters, digits, `-`, `_`, `.` and `@`, not starting with a dot.
pub(super) fn check_user(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        let allowed = "letters, digits, `-`, `_`, `.` and `@`, not starting with a dot";
        return Err(format!("a user's name becomes a folder's and must be {allowed}, got {name:?}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn at(text: &str) -> Option<NaiveDateTime> {
        NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M").ok()
    }

    fn turn(content: &str, time: &str) -> Turn {
        Turn { role: "user".to_owned(), content: content.to_owned(), time: at(time), ..Turn::default() }
    }

    fn session(turns: &[(&str, &str)]) -> Session {
        Session { id: None, turns: turns.iter().map(|(content, time)| turn(content, time)).collect() }
    }

    fn told(history: &History) -> Vec<(&str, &str, &str)> {
        history.messages.iter().map(|m| (m.id.as_str(), m.time.as_str(), m.content.as_str())).collect()
    }

    #[test]
    fn sessions_are_sorted_and_gaps_filled() {
        let history = History::assemble(vec![
            session(&[("c", ""), ("d", "2024-03-02T10:00"), ("e", "")]),
            session(&[("a", "2024-02-01T09:00"), ("b", "")]),
            session(&[("f", "")]),
        ]);
        let expected = [
            ("s001-m01", "2024-02-01T09:00", "a"),
            ("s001-m02", "2024-02-01T09:00", "b"),
            ("s002-m01", "2024-02-01T09:00", "f"),
            ("s003-m01", "2024-03-02T10:00", "c"),
            ("s003-m02", "2024-03-02T10:00", "d"),
            ("s003-m03", "2024-03-02T10:00", "e"),
        ];
        assert_eq!(told(&history), expected);
        assert_eq!(history.ids[1], ["s001-m01", "s001-m02"]);
        assert_eq!(history.session_ids, ["s003", "s001", "s002"]);
        assert!(history.is_dated);
        history.into_pyramid().validate(Path::new("u")).unwrap();
    }

    #[test]
    fn messages_of_sessions_that_overlap_are_in_order_of_time() {
        let history = History::assemble(vec![
            session(&[("a", "2024-01-01T10:00"), ("c", "2024-01-01T12:00")]),
            session(&[("b", "2024-01-01T11:00")]),
        ]);
        assert_eq!(told(&history).iter().map(|(_, _, content)| *content).collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn without_times_the_order_is_kept() {
        let long: Vec<(&str, &str)> = vec![("x", ""); 1500];
        let history = History::assemble(vec![session(&[("a", ""), ("b", "")]), session(&long), session(&[("z", "")])]);
        assert!(!history.is_dated);
        let told = told(&history);
        assert_eq!(
            told[..3].iter().map(|t| t.1).collect::<Vec<_>>(),
            ["2025-01-01T00:00", "2025-01-01T00:01", "2025-01-02T00:00"]
        );
        assert_eq!(told[1501].1, "2025-01-03T00:59");
        assert_eq!(told[1502], ("s003-m01", "2025-01-04T00:00", "z"));
    }

    #[test]
    fn a_history_may_be_empty() {
        for sessions in [vec![], vec![Session::default()]] {
            let history = History::assemble(sessions);
            assert!(history.messages.is_empty());
            history.into_pyramid().validate(Path::new("u")).unwrap();
        }
    }

    #[test]
    fn users_are_plain_names() {
        for good in ["ann", "p3@1f2e-57", "gpt4_2312f94c", "a.b"] {
            assert_eq!(check_user(good), Ok(()));
        }
        for bad in ["", ".", "..", ".x", "a/b", "a b", "é", "a\\b"] {
            assert!(check_user(bad).is_err(), "{bad}");
        }
    }
}
