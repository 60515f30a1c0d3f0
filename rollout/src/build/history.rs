//! A user's messages as sessions, turns and the batches that are extracted from.

use super::error::BuildError;
use super::folder::{Draft, read_lines};
use super::state::id_hash;
use crate::pyramid::{Message, PyramidData};
use indexmap::IndexMap;
use std::collections::HashMap;
use std::path::Path;

/// All that a user said and heard, in any order. A history may grow between builds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserHistory {
    /// The user's id, which is also the name of the pyramid's folder.
    pub user: String,
    /// The messages.
    pub messages: Vec<Message>,
}

impl UserHistory {
    /// Reads a JSON-lines file of messages, as a pyramid's `conversations.jsonl` is one.
    pub fn read(user: &str, file: &Path) -> Result<Self, BuildError> {
        // An absent file would read as an empty history.
        fs_err::metadata(file)?;
        Ok(Self { user: user.to_owned(), messages: read_lines(file)? })
    }
}

/// New messages of one session, in the order of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) messages: Vec<Message>,
}

/// What of a history is left to do.
#[derive(Debug, Default)]
pub(super) struct NewSessions {
    pub(super) sessions: Vec<Session>,
    /// Messages that were removed from this pyramid before and stay out.
    pub(super) num_forgotten: usize,
}

/// Sessions with messages that level 1 does not hold, in the order of their first new message.
///
/// An id that is there with the same text is done; one with another text is an error, as level 1 is never rewritten.
pub(super) fn new_sessions(history: &UserHistory, draft: &Draft, dir: &Path) -> Result<NewSessions, BuildError> {
    let fail = |message: String| BuildError::History { user: history.user.clone(), message };
    check_user(&history.user).map_err(fail)?;
    let mut known: HashMap<&str, &Message> = draft.data.messages.iter().map(|m| (m.id.as_str(), m)).collect();
    let mut new = NewSessions::default();
    let mut by_session: IndexMap<&str, Vec<&Message>> = IndexMap::new();
    for message in &history.messages {
        match known.insert(&message.id, message) {
            Some(first) if first != message => {
                return Err(fail(format!("message `{}` is there twice and not the same", message.id)));
            }
            Some(_) => {}
            None if draft.state.as_ref().is_some_and(|state| state.forgotten.contains(&id_hash(&message.id))) => {
                new.num_forgotten += 1;
            }
            None => by_session.entry(&message.session_id).or_default().push(message),
        }
    }
    let mut sessions: Vec<Vec<&Message>> = by_session.into_values().collect();
    for messages in &mut sessions {
        messages.sort_by(|a, b| a.time.cmp(&b.time));
    }
    sessions.sort_by(|a, b| a[0].time.cmp(&b[0].time));
    let owned = |messages: Vec<&Message>| Session { messages: messages.into_iter().cloned().collect() };
    new.sessions = sessions.into_iter().map(owned).collect();
    check_messages(&new.sessions, draft, dir)?;
    Ok(new)
}

/// Finds bad ids and times before the first call is paid for.
fn check_messages(sessions: &[Session], draft: &Draft, dir: &Path) -> Result<(), BuildError> {
    let new = sessions.iter().flat_map(|session| session.messages.iter().cloned());
    let messages = draft.data.messages.iter().cloned().chain(new).collect();
    let data = PyramidData { messages, records: draft.data.records.clone(), ..PyramidData::default() };
    data.validate(dir)?;
    Ok(())
}

/// The user's id becomes a folder's name.
pub(super) fn check_user(user: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if user.is_empty() || user.starts_with('.') || !user.chars().all(is_plain) {
        return Err(format!("a user's id must be letters, digits, `-`, `_` and inner `.`, got {user:?}"));
    }
    Ok(())
}

/// What the user said and what was answered: each begins with the first message of the user after an answer.
pub(super) fn turns(messages: &[Message]) -> Vec<&[Message]> {
    let mut starts = vec![];
    let (mut has_user, mut has_answer) = (false, false);
    for (at, message) in messages.iter().enumerate() {
        let is_user = message.role == "user";
        if at == 0 || (is_user && has_answer) {
            starts.push(at);
            (has_user, has_answer) = (false, false);
        }
        has_user |= is_user;
        // A greeting before the user's first word answers nothing.
        has_answer |= !is_user && has_user;
    }
    let ends = starts.iter().copied().skip(1).chain([messages.len()]);
    starts.iter().zip(ends).map(|(&start, end)| &messages[start..end]).collect()
}

/// Ranges of messages that are extracted from together: batches of turns by the schedule, cut where a batch has more
/// messages than a call may see. The session's end completes its last batch.
pub(super) fn batches(messages: &[Message], batch_turns: &[usize], max_messages: usize) -> Vec<std::ops::Range<usize>> {
    let mut sizes = batch_turns.iter().chain(std::iter::repeat(&batch_turns[batch_turns.len() - 1]));
    let turns = turns(messages);
    let mut rest = turns.as_slice();
    let mut batches = Vec::new();
    let mut start = 0;
    while !rest.is_empty() {
        let size = sizes.next().map_or(1, |&size| size).min(rest.len());
        let end = start + rest[..size].iter().map(|turn| turn.len()).sum::<usize>();
        rest = &rest[size..];
        while start < end {
            let stop = end.min(start + max_messages);
            batches.push(start..stop);
            start = stop;
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: usize, role: &str) -> Message {
        Message {
            id: format!("m{id}"),
            session_id: "s1".to_owned(),
            time: "2024-01-01T10:00".to_owned(),
            role: role.to_owned(),
            speaker: None,
            content: format!("text {id}"),
        }
    }

    /// `u` and `a` as roles.
    fn said(roles: &str) -> Vec<Message> {
        let role = |c| if c == 'u' { "user" } else { "assistant" };
        roles.chars().enumerate().map(|(at, c)| message(at, role(c))).collect()
    }

    #[test]
    fn turns_are_complete() {
        let cases: [(&str, &[usize]); 7] = [
            ("", &[]),
            ("u", &[1]),
            ("uaua", &[2, 2]),
            ("auaua", &[3, 2]),
            ("uuaaua", &[4, 2]),
            ("aa", &[2]),
            ("uau", &[2, 1]),
        ];
        for (roles, expected) in cases {
            let messages = said(roles);
            let lengths: Vec<usize> = turns(&messages).iter().map(|turn| turn.len()).collect();
            assert_eq!(lengths, expected, "{roles}");
        }
    }

    #[test]
    fn the_schedule_grows_and_stays() {
        let sizes = |num_turns: usize| -> Vec<usize> {
            let messages = said(&"ua".repeat(num_turns));
            batches(&messages, &[1, 2, 4, 5], 10).into_iter().map(|batch| batch.len()).collect()
        };
        assert!(sizes(0).is_empty());
        assert_eq!(sizes(1), [2]);
        assert_eq!(sizes(4), [2, 4, 2]);
        assert_eq!(sizes(18), [2, 4, 8, 10, 10, 2]);
        // One long turn, and a batch that exceeds what a call may see.
        let messages = said(&format!("{}a", "u".repeat(24)));
        let long: Vec<usize> = batches(&messages, &[1, 2, 4, 5], 10).into_iter().map(|batch| batch.len()).collect();
        assert_eq!(long, [10, 10, 5]);
    }

    #[test]
    fn order_and_identity() {
        let at = |id: usize, session: &str, time: &str| Message {
            session_id: session.to_owned(),
            time: time.to_owned(),
            ..message(id, "user")
        };
        let messages = vec![
            at(1, "late", "2024-02-01T10:00"),
            at(2, "early", "2024-01-01T10:05"),
            at(3, "early", "2024-01-01T10:00"),
            at(1, "late", "2024-02-01T10:00"),
        ];
        let mut history = UserHistory { user: "ann".to_owned(), messages };
        let ids = |new: NewSessions| -> Vec<Vec<String>> {
            let of = |session: Session| session.messages.into_iter().map(|message| message.id).collect();
            new.sessions.into_iter().map(of).collect()
        };
        let new = new_sessions(&history, &Draft::default(), Path::new("ann")).expect("sound");
        assert_eq!(ids(new), [vec!["m3", "m2"], vec!["m1"]]);
        let mut draft = Draft::default();
        draft.data.messages = vec![history.messages[1].clone()];
        assert_eq!(ids(new_sessions(&history, &draft, Path::new("ann")).expect("grown")), [vec!["m3"], vec!["m1"]]);

        type Break = fn(&mut UserHistory);
        let cases: [(Break, &str); 4] = [
            (|h| h.messages[3].content = "other".to_owned(), "message `m1` is there twice"),
            (|h| h.messages[3].time = "2024".to_owned(), "message `m1` is there twice"),
            (|h| h.messages[1].time = "yesterday".to_owned(), "`time` must be"),
            (|h| h.user = "../ann".to_owned(), "\"../ann\""),
        ];
        for (breaks, expected) in cases {
            let mut broken = history.clone();
            breaks(&mut broken);
            let error = new_sessions(&broken, &Draft::default(), Path::new("ann")).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error} / {expected}");
        }
        history.messages.clear();
        assert!(new_sessions(&history, &Draft::default(), Path::new("ann")).expect("empty").sessions.is_empty());
    }
}
