//! LoCoMo's questions.

use super::ImportReport;
use super::evidence::resolve;
use super::raw::{RawQuestion, RawSample};
use crate::pyramid::Message;
use crate::question::Question;
use napmem_reward::Rule;
use serde_json::Value;
use std::collections::BTreeSet;

/// The F1 from which an answer counts as right.
const F1_THRESHOLD: f64 = 0.5;
const ADVERSARIAL: u8 = 5;
/// Names of categories 1 to 5 as the dataset's paper gives them.
const CATEGORIES: [&str; 5] = ["multi_hop", "temporal", "open_domain", "single_hop", "adversarial"];

/// The sample's questions, ids `<sample>-q<position>`.
pub(super) fn questions(
    sample: &RawSample,
    messages: &[Message],
    report: &mut ImportReport,
) -> Result<Vec<Question>, String> {
    let message_ids: BTreeSet<&str> = messages.iter().map(|message| message.id.as_str()).collect();
    let mut questions = Vec::new();
    for (position, raw) in sample.qa.iter().enumerate() {
        let id = format!("{}-q{:03}", sample.sample_id, position + 1);
        let category = usize::from(raw.category).checked_sub(1).and_then(|at| CATEGORIES.get(at));
        let category =
            category.ok_or_else(|| format!("question {id}: `category` must be 1 to 5, got {}", raw.category))?;
        let gold = gold(raw, &id, report)?;
        if gold.is_none() && raw.category != ADVERSARIAL {
            report.num_unanswered += 1;
            report.warn(&sample.sample_id, format!("question {id} has no answer, left out: {}", raw.question));
            continue;
        }
        let evidence = question_evidence(raw, &id, &sample.sample_id, &message_ids, report);
        questions.push(Question {
            id,
            user: sample.sample_id.clone(),
            question: raw.question.trim().to_owned(),
            rule: Rule::LocomoF1 { category: raw.category, threshold: F1_THRESHOLD },
            gold: gold.into_iter().collect(),
            options: Vec::new(),
            category: (*category).to_owned(),
            date: None,
            evidence,
            needs_memory: true,
        });
    }
    Ok(questions)
}

fn gold(raw: &RawQuestion, id: &str, report: &mut ImportReport) -> Result<Option<String>, String> {
    let gold = match &raw.answer {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        Some(Value::Number(number)) => {
            report.num_number_answers += 1;
            Some(number.to_string())
        }
        Some(other) => {
            return Err(format!("question {id}: `answer` must be a string or a number, got {other}"));
        }
    };
    if raw.category == ADVERSARIAL {
        report.num_adversarial += 1;
        match gold {
            Some(_) => report.num_adversarial_with_answer += 1,
            None => report.num_adversarial_without_answer += 1,
        }
    }
    Ok(gold)
}

fn question_evidence(
    raw: &RawQuestion,
    id: &str,
    user: &str,
    message_ids: &BTreeSet<&str>,
    report: &mut ImportReport,
) -> Vec<String> {
    let resolved = resolve(&raw.evidence, message_ids);
    report.num_evidence_normalized += resolved.num_normalized;
    report.num_questions_without_evidence += usize::from(resolved.ids.is_empty());
    for lost in &resolved.unresolved {
        report.num_evidence_unresolved += 1;
        report.warn(user, format!("question {id}: evidence `{lost}` names no message, kept"));
    }
    resolved.ids
}
