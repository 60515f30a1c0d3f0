//! `napmem sft`: supervised fine-tuning on trajectories, the warm start.

use crate::config::SftConfig;
use crate::interrupt::Interrupt;
use clap::Args;
use std::path::PathBuf;

/// Fine-tune a policy on trajectories
#[derive(Debug, Args)]
pub struct SftArgs {
    /// The config file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Override a key of the config, such as optim.learning_rate=1e-4; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Go on with the run in train.run_dir, if there is one
    #[arg(long)]
    resume: bool,
}

/// Fine-tunes.
pub fn run(args: &SftArgs) -> anyhow::Result<()> {
    let config = SftConfig::load(&args.config, &args.overrides)?;
    crate::sft::run(&config, args.resume, &Interrupt::install()?)
}
