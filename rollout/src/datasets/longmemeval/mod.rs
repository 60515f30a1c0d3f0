//! LongMemEval (xiaowu0162/LongMemEval): 500 questions, each about a history of its own.
//!
//! | LongMemEval | here |
//! |---|---|
//! | an item | a user of its name, with level 1 alone, and one question |
//! | `haystack_sessions`, `haystack_dates` | messages in the order of time, all of a session at its time |
//! | `has_answer` turns | the question's evidence; where an item has none, none is known |
//! | `question_type` | category |
//! | `answer` | gold of rule `token_f1`; of an `_abs` question: rule `locomo_f1` of category 5, nothing is known |
//!
//! Sessions and messages get ids by their place alone. The file's own ids begin with `answer_` where the answer is, and
//! would tell the policy where to look; [`SESSIONS_FILE`] keeps them for people.

mod distractors;
mod raw;
#[cfg(test)]
mod tests;

use super::error::DatasetError;
use super::history::{History, Session, Turn};
use super::output::{Import, Report};
use super::source::{self, fault};
use super::time::iso_day;
use crate::question::Question;
use distractors::Pool;
use fs_err as fs;
use napmem_reward::Rule;
use raw::{RawItem, RawSession};
use serde::Serialize;
use serde_json::Value;
use std::path::Path;

/// Where each session came from, one JSON object a line, inside the dataset's folder.
pub const SESSIONS_FILE: &str = "sessions.jsonl";

/// The F1 from which an answer counts as right.
const F1_THRESHOLD: f64 = 0.5;
/// LoCoMo's category whose right answer is that nothing is known.
const UNANSWERABLE: u8 = 5;

/// How many sessions of other items each item gets beside its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Distractors {
    /// Sessions an item; 0 leaves the haystack as the file has it.
    pub num_sessions: usize,
    /// Decides which, and when they were.
    pub seed: u64,
}

/// A line of [`SESSIONS_FILE`].
#[derive(Serialize)]
struct SessionOrigin<'a> {
    user: &'a str,
    session_id: String,
    source_session_id: &'a str,
    is_distractor: bool,
}

/// Reads a LongMemEval file and writes `out/pyramids/<question_id>/…`, `out/questions.jsonl`, the report and
/// [`SESSIONS_FILE`].
///
/// Everything is built and checked before anything is written.
pub fn import(file: &Path, out: &Path, distractors: Distractors) -> Result<Report, DatasetError> {
    let items: Vec<source::Item<RawItem>> = source::read(file)?;
    let pool = Pool::new(items.iter().map(|item| &item.value)).map_err(|why| fault(file, why))?;
    let mut import = Import::new("longmemeval", file, out);
    let mut origins = String::new();
    for source::Item { place, value: item } in &items {
        let named = |why: String| fault(file, format!("{place}: question `{}`: {why}", item.question_id));
        let own = item.sessions().map_err(named)?;
        note_untidiness(item, &own, &mut import.report).map_err(named)?;
        let mut sessions = own.clone();
        if distractors.num_sessions > 0 {
            sessions.extend(pool.draw(item, &own, distractors.num_sessions, distractors.seed).map_err(named)?);
        }
        let history = History::assemble(sessions.iter().map(session).collect());
        let question = question(item, &own, &history, &mut import.report).map_err(named)?;
        import.add_question(question)?;
        for (at, (session_id, session)) in history.session_ids.iter().zip(&sessions).enumerate() {
            let origin = SessionOrigin {
                user: &item.question_id,
                session_id: session_id.clone(),
                source_session_id: session.id,
                is_distractor: at >= own.len(),
            };
            origins.push_str(&serde_json::to_string(&origin).map_err(std::io::Error::from)?);
            origins.push('\n');
        }
        import.add_user(&item.question_id, history)?;
    }
    if distractors.num_sessions > 0 {
        import.report.seed = Some(distractors.seed);
        import.report.note("sessions of other items drawn as distractors", distractors.num_sessions * items.len());
    }
    let report = import.write()?;
    fs::write(out.join(SESSIONS_FILE), origins)?;
    Ok(report)
}

fn session(raw: &RawSession<'_>) -> Session {
    let turn = |turn: &raw::RawTurn| Turn {
        role: turn.role.clone(),
        content: turn.content.clone(),
        time: Some(raw.time),
        ..Turn::default()
    };
    Session { id: None, turns: raw.turns.iter().map(turn).collect() }
}

fn note_untidiness(item: &RawItem, own: &[RawSession<'_>], report: &mut Report) -> Result<(), String> {
    let asked = item.asked()?;
    report.note("abstentions: right when nothing is said to be known", usize::from(item.is_abstention()));
    report.note("answers are numbers, kept as text", usize::from(item.answer.is_number()));
    report.note("haystacks not in the order of time, sorted", usize::from(!own.is_sorted_by_key(|s| s.time)));
    report.note("sessions without messages", own.iter().filter(|session| session.turns.is_empty()).count());
    let num_late = own.iter().filter(|session| session.time > asked).count();
    if num_late > 0 {
        report.note("questions with sessions after their own date, kept", 1);
        report.warn(&item.question_id, format!("{num_late} sessions are after the question's date, kept"));
    }
    Ok(())
}

/// The item's question. Evidence is looked for in the item's own sessions, which come first in the history's ids.
fn question(
    item: &RawItem,
    own: &[RawSession<'_>],
    history: &History,
    report: &mut Report,
) -> Result<Question, String> {
    let gold = match &item.answer {
        Value::String(text) if !text.trim().is_empty() => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        other => return Err(format!("`answer` must be a text or a number, got {other}")),
    };
    if item.question.trim().is_empty() {
        return Err("`question` must not be empty".to_owned());
    }
    let turns = own.iter().zip(&history.ids).flat_map(|(session, ids)| session.turns.iter().zip(ids));
    let evidence: Vec<String> = turns.filter(|(turn, _)| turn.has_answer).map(|(_, id)| id.clone()).collect();
    if evidence.is_empty() && !item.is_abstention() {
        report.warn(&item.question_id, "no turn has `has_answer`, evidence is not known");
    }
    let rule = if item.is_abstention() {
        Rule::LocomoF1 { category: UNANSWERABLE, threshold: F1_THRESHOLD }
    } else {
        Rule::TokenF1 { threshold: F1_THRESHOLD }
    };
    Ok(Question {
        id: item.question_id.clone(),
        user: item.question_id.clone(),
        question: item.question.trim().to_owned(),
        rule,
        gold: vec![gold],
        options: Vec::new(),
        category: item.question_type.clone(),
        date: Some(iso_day(item.asked()?)),
        evidence,
        needs_memory: true,
    })
}
