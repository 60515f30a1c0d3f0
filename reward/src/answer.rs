//! Whether an answer is right, by the question's own rule.

use serde::{Deserialize, Serialize};

/// How an answer is scored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Rule {
    /// Equal after normalisation (case, punctuation, articles, white space).
    Exact,
    /// The option's letter.
    Choice,
    /// SQuAD-style token F1 at least `threshold`.
    TokenF1 {
        /// 0 to 1.
        threshold: f64,
    },
    /// LoCoMo's official F1 with its rule for the category, at least `threshold`.
    LocomoF1 {
        /// LoCoMo category, 1 to 5.
        category: u8,
        /// 0 to 1.
        threshold: f64,
    },
    /// An LLM judge decides.
    Judge,
}
