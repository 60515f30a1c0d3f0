//! Question files: one JSON object a line.

use super::error::DatasetError;
use crate::pyramid::json_line_fault;
use crate::question::Question;
use fs_err as fs;
use napmem_reward::Rule;
use napmem_reward::answer::chosen_option;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Reads questions and checks each: unique id, a user of `users`, a rule that the gold answers and options fit.
pub fn read(path: &Path, users: &BTreeSet<String>) -> Result<Vec<Question>, DatasetError> {
    read_about(path, Some(users))
}

/// As [`read`], for questions whose answers are at hand and need no pyramids: users are not checked.
pub fn read_alone(path: &Path) -> Result<Vec<Question>, DatasetError> {
    read_about(path, None)
}

fn read_about(path: &Path, users: Option<&BTreeSet<String>>) -> Result<Vec<Question>, DatasetError> {
    let text = fs::read_to_string(path)?;
    let mut questions: Vec<Question> = Vec::new();
    let mut first_lines: BTreeMap<String, usize> = BTreeMap::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line_number = at + 1;
        let fail = |message| DatasetError::Line { path: path.to_owned(), line: line_number, message };
        let question: Question = serde_json::from_str(line).map_err(|error| fail(json_line_fault(&error)))?;
        match users {
            Some(users) => check(&question, users),
            None => check_alone(&question),
        }
        .map_err(fail)?;
        if let Some(first) = first_lines.insert(question.id.clone(), line_number) {
            return Err(fail(format!("duplicate id `{}`, first on line {first}", question.id)));
        }
        questions.push(question);
    }
    Ok(questions)
}

/// Writes questions, one a line, through a file aside.
pub fn write(path: &Path, questions: &[Question]) -> Result<(), DatasetError> {
    let mut text = String::new();
    for question in questions {
        text.push_str(&serde_json::to_string(question).map_err(std::io::Error::from)?);
        text.push('\n');
    }
    let aside = path.with_extension(format!("aside-{}", std::process::id()));
    fs::write(&aside, text)?;
    fs::rename(&aside, path)?;
    Ok(())
}

/// Says what is wrong with a question, if anything is.
pub(super) fn check(question: &Question, users: &BTreeSet<String>) -> Result<(), String> {
    if !users.contains(&question.user) {
        return Err(format!("unknown user `{}`: there is no pyramid of that name", question.user));
    }
    check_alone(question)
}

/// As [`check`], without the user.
fn check_alone(question: &Question) -> Result<(), String> {
    if question.id.is_empty() || question.question.trim().is_empty() {
        return Err("`id` and `question` must not be empty".to_owned());
    }
    question.rule.check()?;
    let gold_may_be_empty = matches!(question.rule, Rule::LocomoF1 { category: 5, .. });
    if question.gold.is_empty() && !gold_may_be_empty {
        return Err(format!("`gold` is empty, which {:?} does not allow", question.rule));
    }
    if question.rule == Rule::Choice {
        if !(2..=26).contains(&question.options.len()) {
            return Err(format!("`options` must be 2 to 26 for a choice, got {}", question.options.len()));
        }
        if let Some(lost) = question.gold.iter().find(|gold| chosen_option(gold, &question.options).is_none()) {
            return Err(format!("gold `{lost}` names none of the {} options", question.options.len()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(id: &str, user: &str) -> Question {
        Question {
            id: id.to_owned(),
            user: user.to_owned(),
            question: "Where do I live?".to_owned(),
            rule: Rule::Exact,
            gold: vec!["Oslo".to_owned()],
            options: vec![],
            category: "update".to_owned(),
            date: Some("2024-06-30".to_owned()),
            evidence: vec!["m6".to_owned()],
            needs_memory: true,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("questions.jsonl");
        let users = BTreeSet::from(["ann".to_owned()]);
        let mut locomo = question("q2", "ann");
        locomo.rule = Rule::LocomoF1 { category: 5, threshold: 0.5 };
        locomo.gold.clear();
        locomo.needs_memory = false;
        let questions = vec![question("q1", "ann"), locomo];
        write(&path, &questions).unwrap();
        assert_eq!(read(&path, &users).unwrap(), questions);
    }

    #[test]
    fn bad_lines_are_named() {
        type Break = fn(&mut Question);
        let cases: [(Break, &str); 8] = [
            (|q| q.id = "q0".to_owned(), "questions.jsonl:2: duplicate id `q0`, first on line 1"),
            (|q| q.user = "bob".to_owned(), "questions.jsonl:2: unknown user `bob`"),
            (|q| q.gold.clear(), "questions.jsonl:2: `gold` is empty"),
            (|q| q.question = " ".to_owned(), "must not be empty"),
            (|q| q.rule = Rule::TokenF1 { threshold: 2.0 }, "`rule.threshold` must be above 0 and at most 1, got 2"),
            (|q| q.rule = Rule::LocomoF1 { category: 7, threshold: 0.5 }, "`rule.category` must be 1 to 5, got 7"),
            (|q| q.rule = Rule::Choice, "`options` must be 2 to 26 for a choice, got 0"),
            (
                |q| {
                    q.rule = Rule::Choice;
                    q.options = vec!["Oslo".to_owned(), "Bergen".to_owned()];
                    q.gold = vec!["C".to_owned()];
                },
                "gold `C` names none of the 2 options",
            ),
        ];
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("questions.jsonl");
        let users = BTreeSet::from(["ann".to_owned()]);
        for (breaks, expected) in cases {
            let mut bad = question("q1", "ann");
            breaks(&mut bad);
            write(&path, &[question("q0", "ann"), bad]).unwrap();
            let error = read(&path, &users).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error} / {expected}");
        }
        fs::write(&path, "{\"id\": 3}\n").unwrap();
        assert!(read(&path, &users).unwrap_err().to_string().contains("questions.jsonl:1: "));
    }
}
