//! `napmem ask`: one question to one policy about one user, with the tool steps as they happen.

use super::COMMAND_LINE;
use crate::checkpoint::model_folder;
use crate::config::{
    AskConfig, ConfigError, DataSection, Device, Dtype, Embedder, EmbedderConfig, RawTrain, load_resolved,
};
use clap::Args;
use napmem_rollout::generate::TokenBudget;
use std::path::PathBuf;

/// Ask a policy a question about a user's memory
#[derive(Debug, Args)]
pub struct AskArgs {
    /// Model folder, checkpoint or run folder (its best checkpoint)
    #[arg(long, value_name = "DIR")]
    model: PathBuf,
    /// Folder of one user
    #[arg(long, value_name = "DIR")]
    pyramid: PathBuf,
    /// What to ask
    question: String,
    /// Training config whose system prompt and limits hold; that of the run when --model is a run folder
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Number format of the weights: float32 or bfloat16
    #[arg(long)]
    dtype: Option<Dtype>,
    /// auto, cpu, cuda or cuda:N
    #[arg(long)]
    device: Option<Device>,
    /// hashed, or a folder of Qwen3-Embedding or MiniLM; the config's when absent
    #[arg(long)]
    embedder: Option<String>,
    /// Leading dimensions that Qwen3-Embedding's vectors keep; the config's when --embedder is absent
    #[arg(long, value_name = "N")]
    embedder_dimension: Option<usize>,
    /// Divides the logits; 0 takes the most likely token
    #[arg(long, default_value_t = 0.0)]
    temperature: f64,
    /// Seed of sampling
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Let the chat template open a thinking block
    #[arg(long)]
    thinking: bool,
}

impl AskArgs {
    /// Finds the model, the device, and the settings that the policy was trained under.
    fn plan(&self) -> anyhow::Result<AskConfig> {
        let config = self.settings()?;
        let rollout = &config.rollout;
        let system_prompt = rollout.system_prompt.as_ref().map(fs_err::read_to_string).transpose()?;
        Ok(AskConfig {
            model: model_folder(&self.model)?,
            pyramid: fs_err::canonicalize(&self.pyramid)?,
            question: self.question.clone(),
            dtype: self.dtype.unwrap_or(config.model.dtype),
            device: self.device.unwrap_or(config.model.device).resolve()?,
            embedder: self.embedder(&config.data)?,
            temperature: self.temperature,
            seed: self.seed,
            enable_thinking: self.thinking || rollout.enable_thinking,
            system_prompt,
            max_tool_steps: rollout.max_tool_steps,
            max_turns: rollout.max_turns,
            budget: TokenBudget {
                max_turn_tokens: rollout.max_turn_tokens,
                max_total_tokens: rollout.max_total_tokens,
            },
            max_observation_tokens: rollout.max_observation_tokens,
        })
    }

    /// What is typed, or the config's; another embedder than the config's does not get its dimension.
    fn embedder(&self, data: &DataSection) -> Result<EmbedderConfig, ConfigError> {
        let (embedder, dimension) = match self.embedder.clone() {
            Some(text) => (Embedder::from(text), None),
            None => (data.embedder.clone(), data.embedder_dimension),
        };
        let is_typed = self.embedder.is_some() || self.embedder_dimension.is_some();
        let origin = if is_typed { COMMAND_LINE } else { "the training config" };
        EmbedderConfig::of_origin(origin, &embedder, self.embedder_dimension.or(dimension))
    }

    /// The named config, the run's own, or the defaults.
    fn settings(&self) -> anyhow::Result<RawTrain> {
        let of_run = self.model.join("config.toml");
        match &self.config {
            Some(file) => Ok(load_resolved(file)?),
            None if of_run.is_file() => Ok(load_resolved(&of_run)?),
            None => Ok(RawTrain::default()),
        }
    }
}

/// Asks.
pub fn run(args: &AskArgs) -> anyhow::Result<()> {
    crate::ask::run(&args.plan()?)
}
