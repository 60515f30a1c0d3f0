//! `napmem plan`: memory and time of a run on given GPUs, before anybody has them.

use super::train::ConfigArgs;
use crate::checkpoint::RunFolder;
use crate::config::{RawTrain, Source};
use crate::model::ModelConfig;
use crate::plan::{
    Assumptions, Fit, GPUS, Gpu, Lengths, Simulated, estimate, fit, gibibytes, published, simulate, step_time,
};
use clap::Args;
use napmem_rollout::trajectory;
use std::path::{Path, PathBuf};

/// Numbers of GPUs that are looked at unless some are named.
const COUNTS: [u64; 4] = [1, 2, 4, 8];
/// Numbers of GPUs that are simulated.
const SIMULATED: [u64; 8] = [1, 8, 16, 32, 64, 128, 256, 512];

/// Compute what a run takes on each GPU: bytes, what to change where they do not fit, and the time of a step
#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// A published shape, such as Qwen3.5-9B, in place of the config.json in model.path
    #[arg(long, value_name = "NAME")]
    shape: Option<String>,
    /// Only this GPU (H20, A100, H100, H200, B200)
    #[arg(long, value_name = "NAME")]
    gpu: Option<String>,
    /// Only this many GPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    gpus: Option<u64>,
    /// Simulate steps on 8 to 512 GPUs, stragglers included
    #[arg(long)]
    simulate: bool,
    /// Take the lengths of attempts from this run's trajectories (with --simulate)
    #[arg(long, value_name = "RUN", requires = "simulate")]
    run: Option<PathBuf>,
}

/// Prints the plan.
pub fn run(args: &PlanArgs) -> anyhow::Result<()> {
    let config: RawTrain = Source::read(&args.config.config, &args.config.overrides)?.parse()?;
    let model = match &args.shape {
        Some(name) => published(name)?,
        None => ModelConfig::load(&config.model.path)?,
    };
    let gpus = match &args.gpu {
        None => GPUS.to_vec(),
        Some(name) => vec![Gpu::named(name).ok_or_else(|| {
            let known = GPUS.map(|gpu| gpu.name).join(", ");
            anyhow::anyhow!("--gpu must be one of {known}, got {name}")
        })?],
    };
    crate::say!("{:.3} billion parameters; one rank alone, as configured:", model.num_parameters() as f64 / 1e9);
    crate::say!("{}", estimate(&model, &config, 1).to_string().trim_end());
    let counts = args.gpus.map_or(COUNTS.to_vec(), |count| vec![count]);
    table(&model, &config, &gpus, &counts);
    if args.simulate {
        let lengths = args.run.as_deref().map_or(Ok(Lengths::Assumed), lengths_of)?;
        gpus.iter().for_each(|gpu| simulation(&model, &config, gpu, &lengths));
    }
    assumptions();
    Ok(())
}

fn table(model: &ModelConfig, config: &RawTrain, gpus: &[Gpu], counts: &[u64]) {
    crate::say!("\n| GPUs | GiB a rank | usable | step | rollout | update | what to change |");
    crate::say!("|---|---|---|---|---|---|---|");
    for gpu in gpus {
        for &count in counts.iter().filter(|&&count| count <= config.rollout.questions_per_step as u64) {
            let usable = gibibytes(gpu.usable_bytes());
            match fit(model, config, gpu, count) {
                None => crate::say!("| {count} × {} | | {usable:.1} | | | | does not fit |", gpu.name),
                Some(Fit { config, memory, changes }) => {
                    let time = step_time(model, &config, gpu, &Assumptions::default(), count);
                    let changes = if changes.is_empty() { "nothing".to_owned() } else { changes.join(" ") };
                    crate::say!(
                        "| {count} × {} | {:.1} | {usable:.1} | {:.0} s | {:.0} s | {:.0} s | {changes} |",
                        gpu.name,
                        gibibytes(memory.device_peak),
                        time.total(),
                        time.prefill + time.decode,
                        time.reference + time.update
                    );
                }
            }
        }
    }
}

fn simulation(model: &ModelConfig, config: &RawTrain, gpu: &Gpu, lengths: &Lengths) {
    let questions = config.rollout.questions_per_step;
    crate::say!("\n{} GPUs with {questions} questions each, simulated:", gpu.name);
    crate::say!("| GPUs | step | waits for the slowest rollout | communication | efficiency |");
    crate::say!("|---|---|---|---|---|");
    let assume = Assumptions::default();
    for Simulated { num_ranks, step, waiting, communication, efficiency } in
        simulate(model, config, gpu, &assume, lengths, &SIMULATED)
    {
        crate::say!(
            "| {num_ranks} | {step:.1} s | {waiting:.1} s | {communication:.1} s | {:.0}% |",
            efficiency * 100.0
        );
    }
}

fn assumptions() {
    let Assumptions { compute, bandwidth, links, node_gbps, gpus_per_node, length, prompt, sampled, spread } =
        Assumptions::default();
    crate::say!(
        "\nComputed, not measured. Times assume {:.0}% of the data sheet's bf16 operations, {:.0}% of its memory bandwidth in \
         decode, {:.0}% of the links' bandwidth ({node_gbps:.0} GB/s a GPU between nodes of {gpus_per_node}), no overlap of \
         phases; attempts of {:.0}% of `rollout.max_total_tokens` on average (spread of ln length {spread}), of which {:.0}% are \
         prompt and {:.0}% sampled; tools take no time.",
        compute * 100.0,
        bandwidth * 100.0,
        links * 100.0,
        length * 100.0,
        prompt * 100.0,
        sampled * 100.0
    );
}

/// Whole, prompt and sampled tokens of every training attempt that a run has on disk.
fn lengths_of(run: &Path) -> anyhow::Result<Lengths> {
    let dir = RunFolder::trajectories_of(run);
    let mut lengths = Vec::new();
    for entry in fs_err::read_dir(&dir)? {
        let file = entry?.path();
        if !file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("train-")) {
            continue;
        }
        let of = |t: &trajectory::Trajectory| {
            [t.token_ids.len(), t.num_prompt_tokens, t.num_completion_tokens()].map(|n| n as f64)
        };
        lengths.extend(trajectory::read_jsonl(&file)?.iter().map(of));
    }
    anyhow::ensure!(!lengths.is_empty(), "{}: no training trajectories", dir.display());
    Ok(Lengths::Measured(lengths))
}
