//! Answers that people labelled, to hold a judge against.

use super::super::error::BuildError;
use crate::generate::JudgeCase;
use crate::pyramid::parse_lines;
use napmem_reward::JudgeRule;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// One line of a file of labels.
///
/// ```json
/// {"question":"Where do I live?","answer":"in Oslo","gold":["Oslo"],"rule":"same_meaning","correct":true}
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelledAnswer {
    /// What was asked.
    pub question: String,
    /// What was answered.
    pub answer: String,
    /// Right answers.
    #[serde(default)]
    pub gold: Vec<String>,
    /// What the judge goes by.
    #[serde(default)]
    pub rule: JudgeRule,
    /// What a person decided.
    pub correct: bool,
}

impl LabelledAnswer {
    /// The case that a judge gets.
    pub fn case(&self) -> JudgeCase<'_> {
        JudgeCase { question: &self.question, answer: &self.answer, gold: &self.gold, rule: self.rule }
    }
}

/// Reads labels; a file without any is an error, as is a line without right answers where its rule needs them.
pub fn read_labels(path: &Path) -> Result<Vec<LabelledAnswer>, BuildError> {
    let fault = |message: String| BuildError::State { path: path.to_owned(), message };
    let lines: Vec<(usize, LabelledAnswer)> = parse_lines(&fs_err::read_to_string(path)?, path)?;
    if lines.is_empty() {
        return Err(fault("has no labels; one JSON object a line: question, answer, gold, rule, correct".to_owned()));
    }
    let unsound = |label: &LabelledAnswer| label.gold.is_empty() && label.rule != JudgeRule::Abstention;
    if let Some((line, label)) = lines.iter().find(|(_, label)| unsound(label)) {
        let message = format!("line {line}: `gold` is empty, which rule `{}` does not allow", label.rule.name());
        return Err(fault(message));
    }
    Ok(lines.into_iter().map(|(_, label)| label).collect())
}
