//! The command line: one file a subcommand, each of which reads its arguments and calls what does the work.
//!
//! Exit codes: 0 done, 2 usage or config, 3 data, 4 model or weights, 5 failure while running, 6 files and disks,
//! 130 interrupted.

mod ask;
mod build;
mod checkpoint;
mod compare;
mod doctor;
mod eval;
mod exit;
mod fetch;
mod forget;
mod import;
mod init;
mod judge;
mod machine;
mod mechanical;
mod plan;
mod pyramid_folder;
mod report;
mod sample_world;
mod score;
mod search;
mod sft;
mod show;
mod train;

pub use exit::{error_text, exit_code, tell};

use clap::{Parser, Subcommand};
use std::sync::LazyLock;

/// Where a value is from that was typed and not read from a config, in messages.
const COMMAND_LINE: &str = "the command line";

/// Version and commit, as `--version` prints them.
static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{} (commit {})", crate::config::version(), crate::config::commit()));

/// Teaches a language-model agent to navigate a user's long-term memory, by GRPO.
#[derive(Debug, Parser)]
#[command(name = "napmem", version = VERSION.as_str(), max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Doctor(doctor::DoctorArgs),
    Fetch(fetch::FetchArgs),
    Import(import::ImportArgs),
    Build(build::BuildArgs),
    Forget(forget::ForgetArgs),
    Show(show::ShowArgs),
    Search(search::SearchArgs),
    SampleWorld(sample_world::SampleWorldArgs),
    Init(init::InitArgs),
    Mechanical(mechanical::MechanicalArgs),
    Train(train::TrainArgs),
    Plan(plan::PlanArgs),
    Checkpoint(checkpoint::CheckpointArgs),
    Sft(sft::SftArgs),
    Eval(eval::EvalArgs),
    Ask(ask::AskArgs),
    Compare(compare::CompareArgs),
    Judge(judge::JudgeArgs),
    Score(score::ScoreArgs),
    Report(report::ReportArgs),
}

/// Runs the subcommand.
pub fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Doctor(args) => doctor::run(&args),
        Command::Fetch(args) => fetch::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Build(args) => build::run(&args),
        Command::Forget(args) => forget::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Search(args) => search::run(&args),
        Command::SampleWorld(args) => sample_world::run(&args),
        Command::Init(args) => init::run(&args),
        Command::Mechanical(args) => mechanical::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Checkpoint(args) => checkpoint::run(&args),
        Command::Sft(args) => sft::run(&args),
        Command::Eval(args) => eval::run(&args),
        Command::Ask(args) => ask::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Judge(args) => judge::run(&args),
        Command::Score(args) => score::run(&args),
        Command::Report(args) => report::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_subcommand_says_what_it_does() {
        for command in Cli::command().get_subcommands() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
        }
    }
}
