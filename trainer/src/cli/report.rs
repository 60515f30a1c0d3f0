//! `napmem report`: evaluations and training runs as one page.

use clap::Args;
use std::path::PathBuf;

/// Write evaluations and training runs as one self-contained HTML page
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Folders of evaluations (eval --out) and of training runs
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The page
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Writes.
pub fn run(args: &ReportArgs) -> anyhow::Result<()> {
    crate::report::run(&args.runs, &args.out)
}
