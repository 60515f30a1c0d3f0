//! verl's training rows: `prompt`, `reward_model.ground_truth`, `extra_info`.

use super::log::Log;
use super::mapping;
use crate::datasets::DatasetError;
use crate::datasets::output::Report;
use crate::datasets::source::{Fields, Row};
use crate::datasets::turns::{shown, turns};
use crate::question::Question;
use indexmap::IndexMap;
use napmem_reward::Rule;
use serde_json::Value;

/// The F1 from which an answer counts as right.
const F1_THRESHOLD: f64 = 0.5;
const PROMPT: &str = "prompt";
const REWARD: &str = "reward_model";
const EXTRA: &str = "extra_info";

/// The row's question; its earlier messages go to the user's log.
pub(super) fn add(
    row: &Row<'_>,
    number: usize,
    logs: &mut IndexMap<String, Log>,
    report: &mut Report,
) -> Result<Question, DatasetError> {
    let listed = row.nested(PROMPT)?.unwrap_or(Value::Null);
    let mut said: Vec<_> = turns(&listed).map_err(|why| row.fail(PROMPT, why))?.into_iter().flatten().collect();
    let num_messages = said.len();
    said.retain(|turn| turn.role != "system");
    report.note("system messages of prompts, left out", num_messages - said.len());
    let asked = said.pop().filter(|turn| turn.role == "user" && !turn.content.trim().is_empty());
    let asked = asked.ok_or_else(|| row.fail(PROMPT, "must end with a message of the user, which is the question"))?;
    let extra = mapping(row, EXTRA)?;
    let user = text(&extra, &["user", "user_id"]).unwrap_or_else(|| format!("row{number:05}"));
    let options = options(row, &extra)?;
    let needs_memory = extra.get("needs_memory").and_then(Value::as_bool).unwrap_or(!said.is_empty());
    logs.entry(user.clone()).or_default().add_history(said, report).map_err(|why| row.fail(PROMPT, why))?;
    Ok(Question {
        id: text(&extra, &["question_id", "id"]).unwrap_or_else(|| format!("{user}-q{number:05}")),
        user,
        question: asked.content.trim().to_owned(),
        rule: if options.is_empty() { Rule::TokenF1 { threshold: F1_THRESHOLD } } else { Rule::Choice },
        gold: gold(row)?,
        options,
        category: row.text("data_source")?.unwrap_or_default(),
        date: None,
        evidence: Vec::new(),
        needs_memory,
    })
}

/// The first of the keys that is a text or a number.
fn text(fields: &Fields, keys: &[&str]) -> Option<String> {
    keys.iter().find_map(|key| plain(fields.get(*key)?))
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// `ground_truth` as a text, a number, a list of these, or a mapping with such a `target`.
fn gold(row: &Row<'_>) -> Result<Vec<String>, DatasetError> {
    let reward = mapping(row, REWARD)?;
    let truth = reward.get("ground_truth");
    let inner = truth.and_then(|truth| truth.get("target")).or(truth);
    let listed = match inner {
        Some(Value::Array(items)) => items.iter().map(plain).collect(),
        Some(value) => plain(value).map(|text| vec![text]),
        None => None,
    };
    listed.filter(|gold| !gold.is_empty()).ok_or_else(|| {
        let allowed = "a text, a number, a list of these or a mapping with such a `target`";
        row.fail(REWARD, format!("`ground_truth` must be {allowed}, got {}", shown(truth)))
    })
}

fn options(row: &Row<'_>, extra: &Fields) -> Result<Vec<String>, DatasetError> {
    let listed = match extra.get("options") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) => items.iter().map(plain).collect(),
        Some(_) => None,
    };
    listed.ok_or_else(|| {
        row.fail(EXTRA, format!("`options` must be a list of texts, got {}", shown(extra.get("options"))))
    })
}
