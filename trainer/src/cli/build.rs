//! `napmem build`: pyramids from conversations, by a language model or by rules.

use crate::config::BuildConfig;
use clap::Args;
use std::path::PathBuf;

/// Build or continue users' pyramids from their conversations
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// The config file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Override a key of the config, such as build.max_users_at_once=8; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// Builds.
pub fn run(args: &BuildArgs) -> anyhow::Result<()> {
    crate::construct::run(&BuildConfig::load(&args.config, &args.overrides)?)
}
