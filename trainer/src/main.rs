//! The `napmem` command.

use clap::Parser;
use napmem::cli::{Cli, exit_code, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("napmem: {error:#}");
            ExitCode::from(exit_code(&error))
        }
    }
}
