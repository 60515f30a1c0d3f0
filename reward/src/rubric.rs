//! The F/C/U rubric: three binary criteria become one score (NapMem, arXiv 2607.05794, reward section).

use serde::{Deserialize, Serialize};

/// The three binary criteria of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// F: a parsable final JSON answer within the budgets.
    pub format: bool,
    /// C: the answer is correct by the question's own rule.
    pub correct: bool,
    /// U: at least one valid memory-tool call.
    pub memory_used: bool,
}

/// The row of the rubric that an outcome falls into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RubricCase {
    /// Right, using memory.
    CorrectWithMemory,
    /// Right, without memory.
    CorrectWithoutMemory,
    /// Wrong after checking memory.
    WrongWithMemory,
    /// Wrong without checking.
    WrongWithoutMemory,
    /// Broken format or over budget.
    BrokenFormat,
}

/// Scores of the rubric's rows. `napmem` and `symmetric` are the named presets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rubric {
    /// Right, using memory.
    pub correct_with_memory: f64,
    /// Right, without memory, where the question needs memory.
    pub correct_without_memory: f64,
    /// Wrong after checking memory.
    pub wrong_with_memory: f64,
    /// Wrong without checking.
    pub wrong_without_memory: f64,
    /// Broken format or over budget.
    pub broken_format: f64,
}

impl Rubric {
    /// The paper's scores: +1 / 0 / −0.5 / −1 / −1.
    pub const NAPMEM: Self = Self {
        correct_with_memory: 1.0,
        correct_without_memory: 0.0,
        wrong_with_memory: -0.5,
        wrong_without_memory: -1.0,
        broken_format: -1.0,
    };

    /// A right answer scores the same with and without memory, so that memory is not forced.
    pub const SYMMETRIC: Self = Self { correct_without_memory: 1.0, ..Self::NAPMEM };
}
