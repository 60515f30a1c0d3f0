//! Scoring of memory-navigation episodes.
//!
//! Everything here is a pure function of its arguments: no IO, no clock, no randomness, no tensors. A caller hands
//! in what the policy wrote and what the dataset expects, and gets back the parts of the reward.

pub mod answer;
pub mod evidence;
pub mod format;
pub mod judging;
pub mod porter;
pub mod rubric;
mod text;

pub use answer::{AnswerScore, Rule, Verdict, score_answer};
pub use evidence::{EvidenceHits, is_evidence};
pub use format::{FinalAnswer, FormatFault, parse_final_answer};
pub use judging::JudgeRule;
pub use rubric::{Outcome, Rubric, RubricCase};
