//! `napmem eval`: one checkpoint on one part of one dataset, as a table and as JSON.

use super::train::ConfigArgs;
use crate::checkpoint::model_folder;
use crate::config::{EvalConfig, Part, TrainConfig};
use crate::interrupt::Interrupt;
use clap::Args;
use std::path::PathBuf;

/// A policy, and what it is asked.
#[derive(Debug, Args)]
pub(super) struct AskedArgs {
    /// The training config: data, split, sampling and scores are taken from it.
    #[command(flatten)]
    config: ConfigArgs,
    /// Model folder, checkpoint or run folder (its best checkpoint) instead of model.path
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Part of the users: train, validation, test or all
    #[arg(long, default_value_t = Part::Test)]
    part: Part,
    /// Ask at most this many questions
    #[arg(long, value_name = "N")]
    num_questions: Option<usize>,
    /// Attempts at each question
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    attempts: u32,
    /// Take the most likely token instead of sampling
    #[arg(long)]
    greedy: bool,
}

/// Evaluate a policy on held-out users
#[derive(Debug, Args)]
pub struct EvalArgs {
    #[command(flatten)]
    asked: AskedArgs,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the trajectories as JSON lines
    #[arg(long, value_name = "FILE")]
    trajectories: Option<PathBuf>,
}

impl AskedArgs {
    /// Reads the config and puts the named model into it.
    pub(super) fn plan(&self) -> anyhow::Result<EvalConfig> {
        let mut overrides = self.config.overrides.clone();
        if let Some(path) = &self.model {
            let folder = toml::Value::String(model_folder(path)?.display().to_string());
            overrides.push(format!("model.path={folder}"));
        }
        let mut config = TrainConfig::load(&self.config.config, &overrides)?;
        if self.greedy {
            config.rollout.sampling.temperature = 0.0;
        }
        Ok(EvalConfig {
            config,
            part: self.part,
            num_questions: self.num_questions,
            num_attempts: self.attempts as usize,
            out: None,
            trajectories: None,
        })
    }
}

/// Evaluates.
pub fn run(args: &EvalArgs) -> anyhow::Result<()> {
    let (out, trajectories) = (args.out.clone(), args.trajectories.clone());
    crate::eval::run(&EvalConfig { out, trajectories, ..args.asked.plan()? }, &Interrupt::install()?)
}
