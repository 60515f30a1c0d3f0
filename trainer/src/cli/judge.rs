//! `napmem judge`: how far a judge can be trusted.

use super::train::ConfigArgs;
use crate::config::JudgeConfig;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Hold a judge against answers that people labelled
#[derive(Debug, Args)]
pub struct JudgeArgs {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Accuracy, precision, recall and Cohen's kappa of the judge of a config's [judge] section
    Validate {
        #[command(flatten)]
        config: ConfigArgs,
        /// Labels, one JSON object a line: question, answer, gold, rule, correct
        #[arg(long, value_name = "FILE")]
        labels: PathBuf,
        /// Write the results as JSON, with the answers that judge and label disagree about
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

/// Judges.
pub fn run(args: &JudgeArgs) -> anyhow::Result<()> {
    let Task::Validate { config, labels, out } = &args.task;
    let judge = JudgeConfig::load(&config.config, &config.overrides)?;
    crate::judging::validate(&judge, labels, out.as_deref())
}
