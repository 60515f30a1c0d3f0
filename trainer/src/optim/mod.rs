//! AdamW over an ordered list of named parameters, and its learning-rate schedule.
//!
//! Own code rather than a library's, because its state must be saved and loaded exactly, because bf16 weights lose small
//! updates without fp32 masters or stochastic rounding, and because a run must know how many weights each step moved.

mod adamw;
mod error;
mod grad_norm;
mod rounding;
mod schedule;
mod state;

pub use adamw::{AdamW, AdamWOptions, Piece, StepReport, WeightUpdate};
pub use error::{OptimError, SkipReason};
pub use schedule::{LearningRate, Schedule};
pub use state::StateSource;
