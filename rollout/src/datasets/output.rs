//! What importers write: pyramids of level 1, questions, and a report that stays beside them.

use super::error::DatasetError;
use super::history::{History, check_user};
use super::source::fault;
use super::{pyramids_dir, questions, questions_file};
use crate::pyramid::PyramidData;
use crate::question::Question;
use fs_err as fs;
use indexmap::IndexMap;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::Path;

/// The report's file inside a dataset's folder.
pub const REPORT_FILE: &str = "import.json";

/// What an import found and wrote; also the content of [`REPORT_FILE`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Which form the source had, as `personamem-v2`.
    pub form: String,
    /// The seed of whatever was drawn, if anything was.
    pub seed: Option<u64>,
    /// Users, each with a pyramid of level 1.
    pub num_users: usize,
    /// Sessions of all users.
    pub num_sessions: usize,
    /// Messages of all users.
    pub num_messages: usize,
    /// Questions written.
    pub num_questions: usize,
    /// Evidence ids of all questions.
    pub num_evidence: usize,
    /// Questions whose evidence is not known.
    pub num_questions_without_evidence: usize,
    /// Questions by the dataset's own category.
    pub categories: BTreeMap<String, usize>,
    /// How often something happened that a reader may want to know of, by a phrase that says what.
    pub notes: IndexMap<String, usize>,
    /// One line for each thing that a reader may want to look up.
    pub warnings: Vec<String>,
}

impl Report {
    /// Counts `count` cases of what the phrase says; none leaves no trace.
    pub(super) fn note(&mut self, phrase: &str, count: usize) {
        if count > 0 {
            *self.notes.entry(phrase.to_owned()).or_default() += count;
        }
    }

    pub(super) fn warn(&mut self, item: &str, message: impl Display) {
        self.warnings.push(format!("{item}: {message}"));
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} users, {} sessions, {} messages, {} questions with {} pieces of evidence",
            self.form, self.num_users, self.num_sessions, self.num_messages, self.num_questions, self.num_evidence
        )?;
        if let Some(seed) = self.seed {
            writeln!(f, "seed {seed}")?;
        }
        for (category, count) in &self.categories {
            writeln!(f, "{count:>6} questions of category {category}")?;
        }
        if self.num_questions_without_evidence > 0 {
            writeln!(f, "{:>6} questions without known evidence", self.num_questions_without_evidence)?;
        }
        for (phrase, count) in &self.notes {
            writeln!(f, "{count:>6} {phrase}")?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        Ok(())
    }
}

/// An import as it grows: everything is built and checked before anything is written.
pub(super) struct Import<'a> {
    source: &'a Path,
    out: &'a Path,
    users: IndexMap<String, PyramidData>,
    questions: IndexMap<String, Question>,
    pub(super) report: Report,
}

impl<'a> Import<'a> {
    /// `source` is named in messages about users and questions.
    pub(super) fn new(form: &str, source: &'a Path, out: &'a Path) -> Self {
        let report = Report { form: form.to_owned(), ..Report::default() };
        Self { source, out, users: IndexMap::new(), questions: IndexMap::new(), report }
    }

    /// Adds a user, whose pyramid must be sound.
    pub(super) fn add_user(&mut self, user: &str, history: History) -> Result<(), DatasetError> {
        check_user(user).map_err(|why| fault(self.source, why))?;
        self.report.num_users += 1;
        self.report.num_sessions += history.session_ids.len();
        self.report.num_messages += history.messages.len();
        if !history.is_dated && !history.messages.is_empty() {
            self.report.note("histories without times: sessions a day apart from 2025-01-01, messages a minute", 1);
        }
        let data = history.into_pyramid();
        data.validate(&pyramids_dir(self.out).join(user))?;
        if self.users.insert(user.to_owned(), data).is_some() {
            return Err(fault(self.source, format!("user `{user}` appears twice")));
        }
        Ok(())
    }

    /// Adds a question; its id must be new.
    pub(super) fn add_question(&mut self, question: Question) -> Result<(), DatasetError> {
        self.report.num_questions += 1;
        self.report.num_evidence += question.evidence.len();
        self.report.num_questions_without_evidence += usize::from(question.evidence.is_empty());
        *self.report.categories.entry(question.category.clone()).or_default() += 1;
        let id = question.id.clone();
        if self.questions.insert(id.clone(), question).is_some() {
            return Err(fault(self.source, format!("question `{id}` appears twice")));
        }
        Ok(())
    }

    /// Checks the questions as their reader will, then writes pyramids, questions and the report.
    pub(super) fn write(self) -> Result<Report, DatasetError> {
        let names = self.users.keys().cloned().collect();
        for (id, question) in &self.questions {
            questions::check(question, &names).map_err(|why| fault(self.source, format!("question `{id}`: {why}")))?;
        }
        for (user, data) in &self.users {
            data.save(&pyramids_dir(self.out).join(user))?;
        }
        fs::create_dir_all(pyramids_dir(self.out))?;
        let all: Vec<Question> = self.questions.into_values().collect();
        questions::write(&questions_file(self.out), &all)?;
        let report = serde_json::to_string_pretty(&self.report).map_err(std::io::Error::from)?;
        fs::write(self.out.join(REPORT_FILE), report + "\n")?;
        Ok(self.report)
    }
}

/// The random stream of one item: a function of seed and name alone, so that other items do not disturb it.
pub(super) fn stream(seed: u64, name: &str) -> ChaCha8Rng {
    let digest = Sha256::new().chain_update(seed.to_le_bytes()).chain_update(name.as_bytes()).finalize();
    ChaCha8Rng::from_seed(digest.into())
}
