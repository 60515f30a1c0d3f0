//! LongMemEval's JSON as it is published; oracle, S and M have the same form.

use crate::datasets::time::slashed;
use chrono::NaiveDateTime;
use serde::Deserialize;
use serde_json::Value;

/// What ids of questions end in that the haystack does not answer; a number may follow.
const ABSTENTION: &str = "_abs";

/// One question with its own haystack.
#[derive(Deserialize)]
pub(super) struct RawItem {
    pub(super) question_id: String,
    pub(super) question_type: String,
    pub(super) question: String,
    /// Text, or a number where the question asks how many.
    pub(super) answer: Value,
    pub(super) question_date: String,
    pub(super) haystack_dates: Vec<String>,
    pub(super) haystack_session_ids: Vec<String>,
    pub(super) haystack_sessions: Vec<Vec<RawTurn>>,
    /// Sessions that bear on the question, also where it cannot be answered.
    #[serde(default)]
    pub(super) answer_session_ids: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct RawTurn {
    pub(super) role: String,
    pub(super) content: String,
    #[serde(default)]
    pub(super) has_answer: bool,
}

/// A session of a haystack as an item lists it in three parallel lists.
#[derive(Clone, Copy)]
pub(super) struct RawSession<'a> {
    pub(super) id: &'a str,
    pub(super) time: NaiveDateTime,
    pub(super) turns: &'a [RawTurn],
}

impl RawItem {
    pub(super) fn is_abstention(&self) -> bool {
        self.question_id.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_').ends_with(ABSTENTION)
    }

    pub(super) fn asked(&self) -> Result<NaiveDateTime, String> {
        slashed(&self.question_date).map_err(|why| format!("`question_date`: {why}"))
    }

    /// The sessions in the file's order, which is not always that of time.
    pub(super) fn sessions(&self) -> Result<Vec<RawSession<'_>>, String> {
        let lengths = [self.haystack_dates.len(), self.haystack_session_ids.len(), self.haystack_sessions.len()];
        if lengths[0] != lengths[2] || lengths[1] != lengths[2] {
            let lists = "`haystack_dates`, `haystack_session_ids` and `haystack_sessions`";
            return Err(format!("{lists} must be equally long, got {lengths:?}"));
        }
        let mut sessions: Vec<RawSession<'_>> = Vec::new();
        for (at, date) in self.haystack_dates.iter().enumerate() {
            let time = slashed(date).map_err(|why| format!("`haystack_dates[{at}]`: {why}"))?;
            let session = RawSession { id: &self.haystack_session_ids[at], time, turns: &self.haystack_sessions[at] };
            if sessions.iter().any(|other| other.id == session.id && !other.says_the_same(&session)) {
                return Err(format!("`haystack_session_ids`: `{}` appears twice with different messages", session.id));
            }
            sessions.push(session);
        }
        Ok(sessions)
    }
}

impl RawSession<'_> {
    fn says_the_same(&self, other: &Self) -> bool {
        let said =
            |session: &Self| session.turns.iter().map(|t| (t.role.clone(), t.content.clone())).collect::<Vec<_>>();
        said(self) == said(other)
    }
}
