//! `napmem sample-world`: synthetic users whose questions have their answers on different levels.

use clap::Args;
use napmem_rollout::world;
use std::path::PathBuf;

/// Write a synthetic world: users with pyramids, and questions about them
#[derive(Debug, Args)]
pub struct SampleWorldArgs {
    /// Seed of everything in it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of users
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    users: u32,
    /// Folder for pyramids/ and questions.jsonl
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Generates and writes.
pub fn run(args: &SampleWorldArgs) -> anyhow::Result<()> {
    let users = world::generate(args.seed, args.users as usize);
    world::write(&args.out, &users)?;
    let num_questions: usize = users.iter().map(|user| user.questions.len()).sum();
    crate::say!("{}: {} users, {num_questions} questions", args.out.display(), users.len());
    Ok(())
}
