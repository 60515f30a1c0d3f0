//! `napmem eval`: policies, modes and seeds on one part of one dataset, as tables and as JSON.

use super::train::ConfigArgs;
use crate::checkpoint::model_folder;
use crate::config::{AskedConfig, EvalConfig, Part, PolicySection, Source, TrainConfig};
use crate::interrupt::Interrupt;
use clap::Args;
use napmem_rollout::episode::Mode;
use std::path::PathBuf;

/// What is asked, and how often.
#[derive(Debug, Args)]
pub(super) struct AskedArgs {
    /// The training config: data, split, sampling and scores are taken from it.
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    /// Part of the users: train, validation, test or all
    #[arg(long, default_value_t = Part::Test)]
    part: Part,
    /// Ask at most this many questions
    #[arg(long, value_name = "N")]
    num_questions: Option<usize>,
    /// Attempts at each question
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    attempts: u32,
    /// Take the most likely token instead of sampling
    #[arg(long)]
    greedy: bool,
}

impl AskedArgs {
    /// Reads the config; `model` is the policy's folder instead of `model.path`.
    pub(super) fn plan(&self, model: Option<&PathBuf>) -> anyhow::Result<AskedConfig> {
        let mut overrides = self.config.overrides.clone();
        if let Some(path) = model {
            let folder = toml::Value::String(model_folder(path)?.display().to_string());
            overrides.push(format!("model.path={folder}"));
        }
        let mut config = TrainConfig::load(&self.config.config, &overrides)?;
        if self.greedy {
            config.rollout.sampling.temperature = 0.0;
        }
        let num_attempts = self.attempts as usize;
        Ok(AskedConfig { config, part: self.part, num_questions: self.num_questions, num_attempts })
    }
}

/// Evaluate policies on held-out users
#[derive(Debug, Args)]
pub struct EvalArgs {
    #[command(flatten)]
    asked: AskedArgs,
    /// Model folder, checkpoint or run folder (its best checkpoint), with a name for tables; several times for several policies;
    /// instead of eval.policies
    #[arg(long = "model", value_name = "[NAME=]DIR")]
    models: Vec<String>,
    /// What the policy may do: navigation, passive, records-only, no-upper-levels, no-tools; several times for several rows;
    /// instead of eval.modes
    #[arg(long = "mode", value_name = "MODE")]
    modes: Vec<Mode>,
    /// Seed of sampling; several times for several runs; instead of eval.seeds
    #[arg(long = "seed", value_name = "N")]
    seeds: Vec<u64>,
    /// Folder of trajectories, results and tables; the same command goes on with it after a stop
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl EvalArgs {
    fn plan(&self) -> anyhow::Result<EvalConfig> {
        let asked = self.asked.plan(None)?;
        let mut section = asked.config.eval_section();
        if !self.models.is_empty() {
            section.policies = self.models.iter().map(|text| policy(text)).collect::<anyhow::Result<_>>()?;
        }
        if !self.modes.is_empty() {
            section.modes.clone_from(&self.modes);
        }
        if !self.seeds.is_empty() {
            section.seeds.clone_from(&self.seeds);
        }
        let source = Source::read(&self.asked.config.config, &self.asked.config.overrides)?;
        Ok(EvalConfig { out: self.out.clone(), ..EvalConfig::check(&source, asked, &section)? })
    }
}

/// `NAME=DIR`, or a folder alone, which is then called `policy`.
fn policy(text: &str) -> anyhow::Result<PolicySection> {
    let (name, path) = match text.split_once('=') {
        Some((name, path)) => (name.to_owned(), PathBuf::from(path)),
        None => ("policy".to_owned(), PathBuf::from(text)),
    };
    Ok(PolicySection { name, path: Some(model_folder(&path)?), endpoint: None })
}

/// Evaluates.
pub fn run(args: &EvalArgs) -> anyhow::Result<()> {
    crate::eval::run(&args.plan()?, &Interrupt::install()?)
}
