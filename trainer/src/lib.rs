//! The napmem trainer: policy model, sampling engine, GRPO, optimizer, checkpoints and the command line.

pub mod checkpoint;
pub mod cli;
pub mod config;
pub mod engine;
pub mod grpo;
pub mod metrics;
pub mod model;
pub mod optim;
