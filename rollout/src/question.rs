//! Questions about a user's memory, as every dataset is brought to.

use napmem_reward::Rule;
use serde::{Deserialize, Serialize};

/// One line of a `questions.jsonl`.
///
/// ```json
/// {"id":"u0003-q07","user":"u0003","question":"On which date did my Galaxy arrive?","rule":{"kind":"exact"},
///  "gold":["2024-02-20"],"category":"raw_detail","date":"2024-06-30","evidence":["u0003-m0041"],"needs_memory":true}
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Unique within the file.
    pub id: String,
    /// The user whose pyramid answers it; also the folder name of that pyramid.
    pub user: String,
    /// What is asked.
    pub question: String,
    /// How an answer is scored.
    pub rule: Rule,
    /// Right answers; any of them counts. Empty for unanswerable questions of rules that allow it.
    pub gold: Vec<String>,
    /// Options of a multiple-choice question, in the order A, B, C, …
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// The dataset's own category.
    #[serde(default)]
    pub category: String,
    /// The day on which the question is asked, ISO 8601, where the dataset gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// Ids of messages or records that answer it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// False when a right answer needs nothing of the user's memory: then memory use is not asked for.
    #[serde(default = "yes")]
    pub needs_memory: bool,
}

fn yes() -> bool {
    true
}
