//! The `napmem` command.

use clap::Parser;
use napmem::cli::{Cli, exit_code, run, tell};
use std::process::ExitCode;

fn main() -> ExitCode {
    // Freed tensors stay in the process: giving their pages back and faulting them in again costs up to a quarter of a step.
    napmem_native::keep_freed_memory();
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&error);
            ExitCode::from(exit_code(&error))
        }
    }
}
