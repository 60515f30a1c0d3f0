//! `napmem show`: what is in a pyramid, level by level.

use super::pyramid_folder::{embedder, open};
use clap::Args;
use napmem_rollout::pyramid::{PyramidSummary, render_page, render_summary};
use std::path::PathBuf;

/// Show what a user's memory pyramid holds
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Folder of one user
    dir: PathBuf,
    /// Print JSON
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Write one self-contained page for a browser, with links between levels and a search box
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Prints the summary.
pub fn run(args: &ShowArgs) -> anyhow::Result<()> {
    let pyramid = open(&args.dir, &embedder())?;
    if let Some(file) = &args.html {
        fs_err::write(file, render_page(&pyramid))?;
        crate::say!("{}", file.display());
    } else if args.json {
        crate::say!("{}", serde_json::to_string_pretty(&PyramidSummary::of(&pyramid))?);
    } else {
        crate::say!("{}", render_summary(&pyramid).trim_end());
    }
    Ok(())
}
