//! `napmem show`: what is in a pyramid, level by level.

use super::pyramid_folder::{embedder, open};
use clap::Args;
use napmem_rollout::pyramid::{PyramidSummary, render_summary};
use std::path::PathBuf;

/// Show what a user's memory pyramid holds
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Folder of one user
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints the summary.
pub fn run(args: &ShowArgs) -> anyhow::Result<()> {
    let pyramid = open(&args.dir, &embedder())?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&PyramidSummary::of(&pyramid))?);
    } else {
        print!("{}", render_summary(&pyramid));
    }
    Ok(())
}
