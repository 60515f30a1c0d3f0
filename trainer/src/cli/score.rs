//! `napmem score`: answers of another system, by the same rules.

use crate::config::JudgeConfig;
use crate::score::ScoreConfig;
use clap::Args;
use std::path::PathBuf;

/// Score the answers that another system gave
#[derive(Debug, Args)]
pub struct ScoreArgs {
    /// Answers, one JSON object a line: id, answer and, with several runs, seed
    #[arg(long, value_name = "FILE")]
    answers: PathBuf,
    /// questions.jsonl that they answer
    #[arg(long, value_name = "FILE")]
    questions: PathBuf,
    /// Answers of a second system, to compare the first with
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// A config whose [judge] section decides where no mechanical rule can
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Override a key of the config, such as judge.scope=all; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "config")]
    overrides: Vec<String>,
    /// Seed of the bootstrap
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Scores.
pub fn run(args: &ScoreArgs) -> anyhow::Result<()> {
    let judge = args.config.as_ref().map(|file| JudgeConfig::load(file, &args.overrides)).transpose()?;
    crate::score::run(&ScoreConfig {
        answers: args.answers.clone(),
        against: args.against.clone(),
        questions: args.questions.clone(),
        judge,
        seed: args.seed,
        out: args.out.clone(),
    })
}
