//! `napmem checkpoint verify`: is a checkpoint what it was when it was written?

use crate::checkpoint::{Checkpoint, FileEntry, find};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Look at checkpoints
#[derive(Debug, Args)]
pub struct CheckpointArgs {
    #[command(subcommand)]
    command: CheckpointCommand,
}

#[derive(Debug, Subcommand)]
enum CheckpointCommand {
    /// Compare size and SHA-256 of every file with the manifest
    Verify {
        /// A checkpoint, or a run, whose best or last one is meant
        dir: PathBuf,
    },
}

/// Verifies.
pub fn run(args: &CheckpointArgs) -> anyhow::Result<()> {
    let CheckpointCommand::Verify { dir } = &args.command;
    let checkpoint: Checkpoint = find(dir)?;
    let files = checkpoint.files()?;
    for FileEntry { path, num_bytes, sha256 } in &files {
        crate::say!("{sha256}  {num_bytes:>12}  {path}");
    }
    let total: u64 = files.iter().map(|file| file.num_bytes).sum();
    let step = checkpoint.meta().step;
    crate::say!("{}: step {step}, {} files, {total} bytes, whole", checkpoint.dir().display(), files.len());
    Ok(())
}
