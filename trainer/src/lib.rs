//! The napmem trainer: policy model, sampling engine, GRPO, optimizer, checkpoints and the command line.

// `println!` would end a run whose output nobody reads any more.
#![warn(clippy::print_stdout)]

mod say;
pub(crate) use say::say;

pub mod ask;
pub mod checkpoint;
pub mod cli;
pub mod compare;
pub mod config;
pub mod construct;
pub mod data;
pub mod distributed;
pub mod engine;
pub mod eval;
pub mod fault;
pub mod grpo;
pub mod interrupt;
pub mod judging;
pub mod language;
pub mod learner;
pub mod metrics;
pub mod model;
pub mod optim;
pub mod passes;
pub mod plan;
pub mod policy;
pub mod report;
pub mod rollouts;
pub mod score;
pub mod sft;
pub mod snapshot;
pub mod statistics;
pub mod train;
