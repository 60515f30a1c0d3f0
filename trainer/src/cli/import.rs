//! `napmem import`: datasets and chats become pyramids and questions, without a language model.

use anyhow::Context;
use clap::{Args, Subcommand};
use napmem_rollout::datasets::longmemeval::Distractors;
use napmem_rollout::datasets::personamem::PersonaMem;
use napmem_rollout::datasets::{chat, locomo, longmemeval, personamem};
use std::fmt::Display;
use std::path::{Path, PathBuf};

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
    /// LongMemEval (oracle, S or M): a question each about a history of its own; conversations only
    Longmemeval {
        /// The dataset's JSON file
        file: PathBuf,
        /// Folder for pyramids/ and questions.jsonl
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Sessions of other items to put around each item's own
        #[arg(long, value_name = "N", default_value_t = 0)]
        distractors: usize,
        /// Decides which sessions are drawn, and their dates
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
    /// PersonaMem, version 1 or 2 by its columns: multiple-choice questions; conversations only
    Personamem {
        /// The table of questions
        questions: PathBuf,
        /// The file of contexts (version 1) or the folder that the table's links start from (version 2); looked for
        /// beside the questions when not given
        #[arg(long, value_name = "FILE|DIR")]
        contexts: Option<PathBuf>,
        /// Folder for pyramids/ and questions.jsonl
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Shuffles the options of version 2
        #[arg(long, default_value_t = 0)]
        seed: u64,
    },
    /// Chats (`messages`) or verl's training rows (`prompt`, `reward_model`), one a line; conversations only
    Chat {
        /// JSONL, JSON, CSV or Parquet
        file: PathBuf,
        /// Folder for pyramids/ and questions.jsonl
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// Imports and prints what was made, and what the dataset had wrong.
pub fn run(args: &ImportArgs) -> anyhow::Result<()> {
    let importing = |file: &Path| format!("importing {}", file.display());
    match &args.dataset {
        Dataset::Locomo { file, out } => {
            tell(&locomo::import(file, out).with_context(|| importing(file))?, out);
        }
        Dataset::Longmemeval { file, out, distractors, seed } => {
            let distractors = Distractors { num_sessions: *distractors, seed: *seed };
            tell(&longmemeval::import(file, out, distractors).with_context(|| importing(file))?, out);
        }
        Dataset::Personamem { questions, contexts, out, seed } => {
            let source = PersonaMem { questions: questions.clone(), contexts: contexts.clone(), seed: *seed };
            tell(&personamem::import(&source, out).with_context(|| importing(questions))?, out);
        }
        Dataset::Chat { file, out } => tell(&chat::import(file, out).with_context(|| importing(file))?, out),
    }
    Ok(())
}

fn tell(report: &dyn Display, out: &Path) {
    crate::say!("{}", report.to_string().trim_end());
    crate::say!("written to {}", out.display());
}
