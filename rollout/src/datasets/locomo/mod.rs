//! LoCoMo (snap-research/locomo): ten long conversations of two friends, brought to pyramids by their own annotations.
//!
//! | LoCoMo | here |
//! |---|---|
//! | `session_N`, `session_N_date_time` | messages, id = `dia_id`, all of a session at its time |
//! | `observation` | records of kind fact, id `R<session>:<n>`, sources = their `dia_id`s |
//! | `event_summary`, `session_summary` | one track per speaker and period, evidence = that speaker's records in it |
//! | tracks' summaries | the profile |
//! | `qa` | questions of rule `locomo_f1`, evidence = their `dia_id`s |
//!
//! No model is asked, so records, tracks and profile say what the annotators (or the dataset's own LLM) said.
//! What the dataset leaves untidy is kept where it can be, counted and warned of in [`ImportReport`].

mod evidence;
mod levels;
mod qa;
mod raw;
mod tracks;

use super::error::DatasetError;
use super::{pyramids_dir, questions, questions_file};
use fs_err as fs;
use raw::RawSample;
use serde::Serialize;
use std::fmt::{self, Display};
use std::path::Path;

/// What an import found and wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// Conversations, each one user.
    pub num_users: usize,
    /// Level 1 items of all users.
    pub num_messages: usize,
    /// Level 2 items of all users.
    pub num_records: usize,
    /// Level 3 items of all users.
    pub num_tracks: usize,
    /// Questions written.
    pub num_questions: usize,
    /// Category 5 questions; their right answer is that nothing is known.
    pub num_adversarial: usize,
    /// Category 5 questions that have no `answer`, only an `adversarial_answer`.
    pub num_adversarial_without_answer: usize,
    /// Category 5 questions that have an `answer` as well, which the official score does not look at.
    pub num_adversarial_with_answer: usize,
    /// Answers that are numbers, kept as text.
    pub num_number_answers: usize,
    /// Questions of category 1 to 4 without an answer, left out.
    pub num_unanswered: usize,
    /// Evidence strings that hold several ids or an odd spelling, brought to plain ids.
    pub num_evidence_normalized: usize,
    /// Evidence ids of questions that name no message, kept as they are.
    pub num_evidence_unresolved: usize,
    /// Questions that list no evidence.
    pub num_questions_without_evidence: usize,
    /// Session dates without a session, skipped.
    pub num_dates_without_session: usize,
    /// Observations none of whose evidence names a message, left out.
    pub num_observations_without_source: usize,
    /// Annotated events in a period without records of that speaker, which therefore have no track.
    pub num_events_without_track: usize,
    /// One line for each thing above that a reader may want to look up.
    pub warnings: Vec<String>,
}

impl ImportReport {
    fn warn(&mut self, user: &str, message: impl Display) {
        self.warnings.push(format!("{user}: {message}"));
    }
}

impl Display for ImportReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} users: {} messages, {} records, {} tracks, {} questions",
            self.num_users, self.num_messages, self.num_records, self.num_tracks, self.num_questions
        )?;
        let counts = [
            (self.num_adversarial, "category 5 questions, right when nothing is said to be known"),
            (self.num_adversarial_without_answer, "of them without an answer"),
            (self.num_adversarial_with_answer, "of them with an answer that the official score ignores"),
            (self.num_number_answers, "answers are numbers, kept as text"),
            (self.num_unanswered, "questions of category 1 to 4 without an answer, left out"),
            (self.num_evidence_normalized, "evidence entries with several ids or an odd spelling, split"),
            (self.num_evidence_unresolved, "evidence ids that name no message, kept"),
            (self.num_questions_without_evidence, "questions without evidence"),
            (self.num_dates_without_session, "session dates without a session, skipped"),
            (self.num_observations_without_source, "observations without a message, left out"),
            (self.num_events_without_track, "events without a record to rest on, left out"),
        ];
        for (count, what) in counts.iter().filter(|(count, _)| *count > 0) {
            writeln!(f, "{count:>6} {what}")?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        Ok(())
    }
}

/// Reads a LoCoMo file and writes `out/pyramids/<sample_id>/…` and `out/questions.jsonl`.
///
/// Everything is built and checked before anything is written.
pub fn import(file: &Path, out: &Path) -> Result<ImportReport, DatasetError> {
    let fail = |message: String| DatasetError::Source { path: file.to_owned(), message };
    let text = fs::read_to_string(file)?;
    let samples: Vec<RawSample> = serde_json::from_str(&text).map_err(|error| fail(error.to_string()))?;
    let mut report = ImportReport::default();
    let mut built = Vec::new();
    let mut all_questions = Vec::new();
    for sample in &samples {
        let user = sample.sample_id.as_str();
        let named = |message: String| fail(format!("sample `{user}`: {message}"));
        raw::check_sample_id(user).map_err(fail)?;
        if built.iter().any(|(known, _)| *known == user) {
            return Err(named("appears twice".to_owned()));
        }
        let data = levels::build(sample, &mut report).map_err(named)?;
        all_questions.extend(qa::questions(sample, &data.messages, &mut report).map_err(named)?);
        data.validate(&pyramids_dir(out).join(user))?;
        report.num_messages += data.messages.len();
        report.num_records += data.records.len();
        report.num_tracks += data.tracks.len();
        built.push((user, data));
    }
    report.num_users = built.len();
    report.num_questions = all_questions.len();
    for (user, data) in &built {
        data.save(&pyramids_dir(out).join(user))?;
    }
    fs::create_dir_all(out)?;
    questions::write(&questions_file(out), &all_questions)?;
    Ok(report)
}

#[cfg(test)]
mod tests;
