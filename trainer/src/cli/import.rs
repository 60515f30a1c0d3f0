//! `napmem import`: a dataset's own annotations become pyramids and questions, without a language model.

use anyhow::Context;
use clap::{Args, Subcommand};
use napmem_rollout::datasets::locomo;
use std::path::PathBuf;

/// Turn a dataset into pyramids and questions
#[derive(Debug, Args)]
pub struct ImportArgs {
    #[command(subcommand)]
    dataset: Dataset,
}

#[derive(Debug, Subcommand)]
enum Dataset {
    /// LoCoMo: dated two-person conversations with observations, summaries and questions
    Locomo {
        /// The dataset's JSON file
        file: PathBuf,
        /// Folder for pyramids/ and questions.jsonl
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// Imports and prints what was made, and what the dataset had wrong.
pub fn run(args: &ImportArgs) -> anyhow::Result<()> {
    let Dataset::Locomo { file, out } = &args.dataset;
    let report = locomo::import(file, out).with_context(|| format!("importing {}", file.display()))?;
    print!("{report}");
    println!("written to {}", out.display());
    Ok(())
}
