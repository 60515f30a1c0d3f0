//! `napmem doctor`: versions, devices, threads, what is missing and how to get it.

use super::machine;
use crate::config::{commit, version};
use crate::plan::gibibytes;
use clap::Args;
use std::fmt::Display;
use std::path::Path;
use std::process::Command;

/// Print versions, devices and threads, what is missing and how to get it
#[derive(Debug, Args)]
pub struct DoctorArgs {}

/// Something that is not there, and what to do about it.
struct Missing {
    what: String,
    remedy: &'static str,
}

/// Prints the report.
pub fn run(_args: &DoctorArgs) -> anyhow::Result<()> {
    let mut missing = Vec::new();
    row("napmem", format!("{} (commit {})", version(), commit()));
    row("rust", tool("rustc").unwrap_or_else(|| "not found (needed only to build)".to_owned()));
    row("python3", tool("python3").unwrap_or_else(|| "not found (needed only by scripts/setup.sh)".to_owned()));
    libtorch();
    processor();
    storage();
    gpus(&mut missing);
    files(&mut missing);
    if missing.is_empty() {
        crate::say!("\nNothing is missing.");
    } else {
        crate::say!("\nMissing:");
    }
    for Missing { what, remedy } in missing {
        crate::say!("  {what}\n      {remedy}");
    }
    Ok(())
}

fn row(name: &str, value: impl Display) {
    crate::say!("{name:<10} {value}");
}

fn tool(name: &str) -> Option<String> {
    let output = Command::new(name).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn libtorch() {
    let threads = tch::get_num_threads();
    match machine::libtorch() {
        Some((folder, version)) => row("libtorch", format!("{version} in {}", folder.display())),
        None => row("libtorch", "version unknown"),
    }
    let parts = [
        ("MKL", tch::utils::has_mkl()),
        ("oneDNN", tch::utils::has_mkldnn()),
        ("OpenMP", tch::utils::has_openmp()),
        ("CUDA", tch::utils::has_cuda()),
    ];
    let has: Vec<&str> = parts.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect();
    row("", format!("with {}", has.join(", ")));
    row("threads", format!("{threads} of libtorch, {} of rayon", rayon::current_num_threads()));
}

fn processor() {
    let cpu = machine::cpu();
    row("cpu", if cpu.model.is_empty() { "unknown".to_owned() } else { cpu.model });
    let features = if cpu.features.is_empty() { "none of AVX2, AVX-512".to_owned() } else { cpu.features.join(" ") };
    row("", features);
}

fn storage() {
    if let Some(memory) = machine::host_memory() {
        let (total, available) = (gibibytes(memory.total), gibibytes(memory.available));
        row("memory", format!("{total:.1} GiB, {available:.1} GiB available"));
    }
    if let Some(free) = machine::free_disk(Path::new(".")) {
        row("disk", format!("{:.1} GiB free in this folder", gibibytes(free)));
    }
}

fn gpus(missing: &mut Vec<Missing>) {
    let gpus = machine::gpus();
    let num_usable = if tch::Cuda::is_available() { tch::Cuda::device_count() } else { 0 };
    for (index, gpu) in gpus.iter().enumerate() {
        row(&format!("cuda:{index}"), format!("{}, {:.1} GiB", gpu.name, gibibytes(gpu.memory)));
    }
    row("devices", format!("cpu and {num_usable} CUDA device(s) usable by this build"));
    if !gpus.is_empty() && num_usable == 0 {
        missing.push(Missing {
            what: format!("{} NVIDIA GPU(s) are here, but libtorch cannot use them", gpus.len()),
            remedy: "run scripts/setup.sh --cuda, then build again; if it stays, the driver is too old for CUDA 13",
        });
    }
}

fn files(missing: &mut Vec<Missing>) {
    let tiny = Path::new("data/tiny/config.json");
    if Path::new("configs").is_dir() && !tiny.is_file() {
        missing.push(Missing {
            what: format!("{}: the quickstart's policy", tiny.display()),
            remedy: "it comes with the repository: git checkout data/tiny, or make it by scripts/make_tiny.sh",
        });
    }
    if !Path::new("configs").is_dir() {
        missing.push(Missing {
            what: "configs/: this folder is not the repository".to_owned(),
            remedy: "paths in the configs start at the repository; cd there first",
        });
    }
}
