//! `napmem train`: GRPO on a memory pyramid, and what can be known about a run before it starts.

use super::machine;
use crate::checkpoint::{RunFolder, RunFolderError, latest_complete};
use crate::config::{ConfigError, Device, ReferencePlace, TrainConfig, refuse_other_settings};
use crate::data::Dataset;
use crate::distributed::{LaunchOptions, Place, World, launch, watch_launcher};
use crate::interrupt::Interrupt;
use crate::model::ModelConfig;
use crate::plan::{check_weight_files, estimate, gibibytes};
use clap::Args;
use std::ffi::OsString;
use std::num::NonZero;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

/// Time that ranks have to end by themselves after one has: they learn of it when they next need it.
const GRACE: Duration = Duration::from_secs(10);

/// A config file and what is laid over it.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// The config file
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Override a key of the config, such as grpo.group_size=8; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub overrides: Vec<String>,
}

impl ConfigArgs {
    /// Reads and checks a training config.
    pub fn load_train(&self) -> Result<TrainConfig, ConfigError> {
        TrainConfig::load(&self.config, &self.overrides)
    }
}

/// Train a policy by GRPO
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// The config.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Go on with the run in train.run_dir, if there is one
    #[arg(long)]
    pub resume: bool,
    /// Check everything that can be known without starting, and estimate the memory
    #[arg(long)]
    pub dry_run: bool,
}

/// Checks or trains.
pub fn run(args: &TrainArgs) -> anyhow::Result<()> {
    let config = args.config.load_train()?;
    if args.dry_run { dry_run(&config, args.resume) } else { train(config, args.resume, &Interrupt::install()?) }
}

/// Trains as one rank of those that the environment speaks of, or starts the ranks of this host, or trains alone.
fn train(mut config: TrainConfig, resume: bool, interrupt: &Interrupt) -> anyhow::Result<()> {
    watch_launcher(interrupt);
    if let Some(place) = Place::from_environment()? {
        if matches!(config.model.device.resolve()?, tch::Device::Cuda(_)) {
            config.model.device = Device::Cuda(place.local_rank);
        }
        let world = World::join(&place, config.model.device.resolve()?, config.distributed.timeout())?;
        return crate::train::run(&config, Rc::new(world), resume, interrupt);
    }
    let size = config.distributed.num_processes(config.model.device, &config.file)?;
    if size == 1 {
        return crate::train::run(&config, Rc::new(World::single()), resume, interrupt);
    }
    // A second look at what every rank would refuse, so that it is said once and at once.
    if !resume && RunFolder::is_used(&config.train.run_dir)? {
        return Err(RunFolderError::NotEmpty(config.train.run_dir).into());
    }
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if config.model.threads.is_none() && matches!(config.model.device.resolve()?, tch::Device::Cpu) {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        arguments.extend(["--set".into(), format!("model.threads={}", (cores / size).max(1)).into()]);
    }
    let options = LaunchOptions {
        size,
        arguments,
        resume: "--resume".into(),
        log_dir: RunFolder::logs_dir(&config.train.run_dir),
        max_restarts: config.distributed.max_restarts,
        grace: GRACE.min(config.distributed.timeout()),
    };
    Ok(launch(&options, interrupt, &|line| crate::say!("{line}"))?)
}

fn dry_run(config: &TrainConfig, resume: bool) -> anyhow::Result<()> {
    crate::say!("{}: keys, ranges and files are right", config.file.display());
    run_folder(config, resume)?;
    let device = config.model.device.resolve()?;
    let rollout = &config.rollout;
    crate::say!(
        "a step: {} questions × {} attempts = {} trajectories of at most {} tokens, {} update(s)",
        rollout.questions_per_step,
        rollout.group_size,
        rollout.questions_per_step * rollout.group_size,
        rollout.budget.max_total_tokens,
        config.grpo.updates_per_batch
    );
    let [train, validation, test] = Dataset::count(&config.data)?;
    let num_steps = config.num_steps(train)?;
    crate::say!(
        "questions: {train} to train on, {validation} to validate on, {test} to test on; {num_steps} steps in all"
    );
    memory(config, device)
}

fn run_folder(config: &TrainConfig, resume: bool) -> anyhow::Result<()> {
    let run_dir = &config.train.run_dir;
    if !RunFolder::is_used(run_dir)? {
        let free =
            machine::free_disk(run_dir).map_or(String::new(), |free| format!(", {:.1} GiB free", gibibytes(free)));
        crate::say!("{}: a new run{free}", run_dir.display());
        return Ok(());
    }
    if !resume {
        return Err(RunFolderError::NotEmpty(run_dir.clone()).into());
    }
    refuse_other_settings(&run_dir.join("config.toml"), &config.to_toml())?;
    let found = latest_complete(run_dir)?;
    for skipped in &found.skipped {
        crate::say!("passed over: {skipped}");
    }
    match found.checkpoint {
        Some(checkpoint) => crate::say!("{}: goes on after step {}", run_dir.display(), checkpoint.meta().step),
        None => crate::say!("{}: no whole checkpoint yet, starts again", run_dir.display()),
    }
    Ok(())
}

fn memory(config: &TrainConfig, device: tch::Device) -> anyhow::Result<()> {
    check_weight_files(&config.model.path)?;
    let model = ModelConfig::load(&config.model.path)?;
    let num_ranks = config.distributed.num_processes(config.model.device, &config.file)?;
    let estimate = estimate(&model, config.raw(), num_ranks as u64);
    let ranks = if num_ranks == 1 { String::new() } else { format!(", on each of {num_ranks} ranks") };
    let billions = model.num_parameters() as f64 / 1e9;
    crate::say!("memory of {billions:.3} billion parameters on {device:?}{ranks}, estimated:");
    crate::say!("{}", estimate.to_string().trim_end());
    let (needed, there) = match device {
        tch::Device::Cuda(index) => (estimate.device_peak, machine::gpus().get(index).map(|gpu| gpu.memory)),
        _ => {
            let all = (estimate.device_peak + estimate.host) * num_ranks as u64;
            (all, machine::host_memory().map(|memory| memory.available))
        }
    };
    let Some(there) = there else { return Ok(()) };
    crate::say!("  {:<20} {:>9.3} GiB", "available", gibibytes(there));
    if needed > there {
        crate::say!("This does not fit. {}", advice(config));
    }
    Ok(())
}

fn advice(config: &TrainConfig) -> String {
    let mut options = vec!["a smaller `rollout.max_total_tokens`"];
    if !config.update.recompute {
        options.push("`update.recompute` true");
    }
    if config.grpo.kl_coefficient > 0.0 && config.grpo.reference == ReferencePlace::Device {
        options.push("`grpo.reference` \"reload\" or \"cpu\"");
    }
    if !config.optim.offload {
        options.push("`optim.offload` true on a GPU");
    }
    options.push("`optim.weights` \"bf16-stochastic\" with `model.dtype` \"bfloat16\"");
    format!("What helps: {}.", options.join(", "))
}
