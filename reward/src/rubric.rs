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

    /// Names that [`Rubric::preset`] knows.
    pub const PRESETS: [&'static str; 2] = ["napmem", "symmetric"];

    /// The named scores, or `None` for a name that is not in [`Rubric::PRESETS`].
    pub fn preset(name: &str) -> Option<Self> {
        match name {
            "napmem" => Some(Self::NAPMEM),
            "symmetric" => Some(Self::SYMMETRIC),
            _ => None,
        }
    }

    /// The row that an outcome falls into and what it earns.
    ///
    /// Where a question needs no memory the expected U is the other way round: each row earns what the row with the
    /// opposite U earns on a question that needs memory. The row itself still names what happened.
    pub fn score(&self, outcome: Outcome, needs_memory: bool) -> (RubricCase, f64) {
        let case = RubricCase::of(outcome.format, outcome.correct, outcome.memory_used);
        let scored_as =
            if needs_memory { case } else { RubricCase::of(outcome.format, outcome.correct, !outcome.memory_used) };
        let score = match scored_as {
            RubricCase::CorrectWithMemory => self.correct_with_memory,
            RubricCase::CorrectWithoutMemory => self.correct_without_memory,
            RubricCase::WrongWithMemory => self.wrong_with_memory,
            RubricCase::WrongWithoutMemory => self.wrong_without_memory,
            RubricCase::BrokenFormat => self.broken_format,
        };
        (case, score)
    }
}

impl RubricCase {
    fn of(format: bool, correct: bool, memory_used: bool) -> Self {
        match (format, correct, memory_used) {
            (false, _, _) => Self::BrokenFormat,
            (true, true, true) => Self::CorrectWithMemory,
            (true, true, false) => Self::CorrectWithoutMemory,
            (true, false, true) => Self::WrongWithMemory,
            (true, false, false) => Self::WrongWithoutMemory,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F, C, U, row, then the scores: napmem, symmetric, and both where no memory is needed.
    #[test]
    fn every_row() {
        use RubricCase::*;
        let table = [
            (true, true, true, CorrectWithMemory, 1.0, 1.0, 0.0, 1.0),
            (true, true, false, CorrectWithoutMemory, 0.0, 1.0, 1.0, 1.0),
            (true, false, true, WrongWithMemory, -0.5, -0.5, -1.0, -1.0),
            (true, false, false, WrongWithoutMemory, -1.0, -1.0, -0.5, -0.5),
            (false, true, true, BrokenFormat, -1.0, -1.0, -1.0, -1.0),
            (false, true, false, BrokenFormat, -1.0, -1.0, -1.0, -1.0),
            (false, false, true, BrokenFormat, -1.0, -1.0, -1.0, -1.0),
            (false, false, false, BrokenFormat, -1.0, -1.0, -1.0, -1.0),
        ];
        for (format, correct, memory_used, case, napmem, symmetric, napmem_free, symmetric_free) in table {
            let outcome = Outcome { format, correct, memory_used };
            assert_eq!(Rubric::NAPMEM.score(outcome, true), (case, napmem), "{outcome:?}");
            assert_eq!(Rubric::SYMMETRIC.score(outcome, true), (case, symmetric), "{outcome:?}");
            assert_eq!(Rubric::NAPMEM.score(outcome, false), (case, napmem_free), "{outcome:?}");
            assert_eq!(Rubric::SYMMETRIC.score(outcome, false), (case, symmetric_free), "{outcome:?}");
        }
    }

    #[test]
    fn presets_by_name() {
        assert_eq!(Rubric::preset("napmem"), Some(Rubric::NAPMEM));
        assert_eq!(Rubric::preset("symmetric"), Some(Rubric::SYMMETRIC));
        assert_eq!(Rubric::preset("other"), None);
        assert!(Rubric::PRESETS.iter().all(|name| Rubric::preset(name).is_some()));
    }
}
