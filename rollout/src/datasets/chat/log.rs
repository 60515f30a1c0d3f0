//! A user's sessions as they come in, each message and session once.

use crate::datasets::history::{Session, Turn};
use crate::datasets::output::Report;
use std::collections::HashMap;

/// What one user said, in the order of the file.
#[derive(Default)]
pub(super) struct Log {
    sessions: Vec<Session>,
    /// Session id → its turns as they came.
    known_sessions: HashMap<String, Vec<Turn>>,
    known_turns: HashMap<String, Turn>,
}

impl Log {
    /// Adds a session. What comes a second time under the same id must say the same, and is then left out.
    pub(super) fn add(&mut self, id: Option<String>, turns: Vec<Turn>, report: &mut Report) -> Result<(), String> {
        if let Some(known) = id.as_ref().and_then(|id| self.known_sessions.get(id)) {
            if *known != turns {
                let id = id.unwrap_or_default();
                return Err(format!("the session `{id}` came before with different messages"));
            }
            report.note("sessions that came twice, kept once", 1);
            return Ok(());
        }
        let mut kept = Vec::new();
        for turn in &turns {
            match turn.id.as_ref().and_then(|id| self.known_turns.get(id)) {
                Some(known) if (&known.role, &known.content) != (&turn.role, &turn.content) => {
                    let id = turn.id.as_deref().unwrap_or_default();
                    return Err(format!("the message `{id}` came before with a different text"));
                }
                Some(_) => report.note("messages that came twice, kept once", 1),
                None => {
                    if let Some(id) = &turn.id {
                        self.known_turns.insert(id.clone(), turn.clone());
                    }
                    kept.push(turn.clone());
                }
            }
        }
        if let Some(id) = &id {
            self.known_sessions.insert(id.clone(), turns);
        }
        self.sessions.push(Session { id, turns: kept });
        Ok(())
    }

    /// Adds a session without an id unless one that says the same is there.
    pub(super) fn add_history(&mut self, turns: Vec<Turn>, report: &mut Report) -> Result<(), String> {
        if turns.is_empty() || self.sessions.iter().any(|session| session.turns == turns) {
            return Ok(());
        }
        self.add(None, turns, report)
    }

    pub(super) fn into_sessions(self) -> Vec<Session> {
        self.sessions
    }
}
