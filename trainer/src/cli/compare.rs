//! `napmem compare`: two policies on the same held-out questions.

use super::eval::AskedArgs;
use crate::checkpoint::model_folder;
use crate::compare::CompareConfig;
use clap::Args;
use std::path::PathBuf;

/// Compare two policies on the same held-out questions
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Data, sampling and the policy before.
    #[command(flatten)]
    asked: AskedArgs,
    /// The policy before: model folder, checkpoint or run folder (its best checkpoint) instead of model.path
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// The policy after: model folder, checkpoint or run folder (its best checkpoint)
    #[arg(long, value_name = "DIR")]
    after: PathBuf,
    /// When the work began, in seconds since 1970; wall_s in the results counts from there
    #[arg(long, value_name = "SECONDS")]
    started: Option<u64>,
    /// Write the results as JSON, and before.jsonl and after.jsonl beside them
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Compares.
pub fn run(args: &CompareArgs) -> anyhow::Result<()> {
    crate::compare::run(&CompareConfig {
        asked: args.asked.plan(args.model.as_ref())?,
        after: model_folder(&args.after)?,
        started_s: args.started,
        out: args.out.clone(),
    })
}
