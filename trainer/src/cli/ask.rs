//! `napmem ask`: one question to one policy about one user, with the tool steps as they happen.

use crate::checkpoint::model_folder;
use crate::config::{AskConfig, Device, Dtype, Embedder};
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
    /// Number format of the weights: float32 or bfloat16
    #[arg(long, default_value_t = Dtype::Float32)]
    dtype: Dtype,
    /// auto, cpu, cuda or cuda:N
    #[arg(long, default_value = "auto")]
    device: Device,
    /// hashed, or a Qwen3-Embedding folder
    #[arg(long, default_value = "hashed")]
    embedder: String,
    /// Divides the logits; 0 takes the most likely token
    #[arg(long, default_value_t = 0.0)]
    temperature: f64,
    /// Seed of sampling
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Let the chat template open a thinking block
    #[arg(long)]
    thinking: bool,
    /// Tokens of the whole sequence
    #[arg(long, value_name = "N", default_value_t = 4096)]
    max_total_tokens: usize,
    /// Tokens of one turn
    #[arg(long, value_name = "N", default_value_t = 512)]
    max_turn_tokens: usize,
    /// Tokens of one observation
    #[arg(long, value_name = "N", default_value_t = 1024)]
    max_observation_tokens: usize,
}

impl AskArgs {
    /// Finds the model and the device.
    fn plan(&self) -> anyhow::Result<AskConfig> {
        Ok(AskConfig {
            model: model_folder(&self.model)?,
            pyramid: fs_err::canonicalize(&self.pyramid)?,
            question: self.question.clone(),
            dtype: self.dtype,
            device: self.device.resolve()?,
            embedder: Embedder::from(self.embedder.clone()),
            temperature: self.temperature,
            seed: self.seed,
            enable_thinking: self.thinking,
            budget: TokenBudget {
                max_turn_tokens: self.max_turn_tokens,
                max_total_tokens: self.max_total_tokens,
            },
            max_observation_tokens: self.max_observation_tokens,
        })
    }
}

/// Asks.
pub fn run(args: &AskArgs) -> anyhow::Result<()> {
    crate::ask::run(&args.plan()?)
}
