//! Configs in two stages: TOML as typed ([`sections`]), then checked into what the code uses ([`TrainConfig`],
//! [`SftConfig`]).
//!
//! Relative paths start at the current folder. Refuses: keys that it does not know, values out of range, files
//! that are not there; each with one message that names the file or override, the key, what was found and what is
//! allowed. It starts nothing, and of libtorch it only asks which devices there are.

mod construction;
mod distributed;
mod embedding;
mod error;
mod evaluation;
mod judge;
mod resolved;
pub mod sections;
mod source;
mod tasks;
mod validate;

pub use crate::grpo::{Baseline, KlEstimator, LossAggregation, ZeroVarianceGroups};
pub use crate::optim::{Schedule, WeightUpdate};
pub use construction::{BuildConfig, LanguageKind, LanguageSection};
pub use distributed::{DistributedSection, Processes};
pub use embedding::EmbedderConfig;
pub use error::ConfigError;
pub use evaluation::{AskedConfig, EvalConfig, EvalSection, NamedPolicy, PolicySection, PolicySource};
pub use judge::{JudgeConfig, JudgeModel, JudgeSection};
pub use resolved::{Difference, commit, load_resolved, refuse_other_settings, version};
pub use sections::{
    DataSection, Device, Dtype, Embedder, GrpoSection, ModelSection, OptimSection, RawSft, RawTrain, ReferencePlace,
    ScoredTokens, SplitSection, TrainSection, UpdateSection, WorldSection,
};
pub use source::Source;
pub use tasks::{AskConfig, Part};

use napmem_reward::Rubric;
use napmem_rollout::generate::{Sampling, TokenBudget};
use std::path::{Path, PathBuf};

/// Where users and questions come from.
#[derive(Debug, Clone, PartialEq)]
pub enum DataSource {
    /// They are on disk.
    Files {
        /// Folder with one pyramid folder a user.
        pyramids: PathBuf,
        /// `questions.jsonl` about those users.
        questions: PathBuf,
    },
    /// A sample world, written into the run's `data` folder when it is not there yet.
    World(WorldSection),
}

/// Users and questions of a training run.
#[derive(Debug, Clone, PartialEq)]
pub struct DataConfig {
    /// Where they come from.
    pub source: DataSource,
    /// The embedder of the dense search.
    pub embedder: EmbedderConfig,
    /// How users are split.
    pub split: SplitSection,
}

/// Sampling of episodes.
#[derive(Debug, Clone, PartialEq)]
pub struct RolloutConfig {
    /// Groups of a step.
    pub questions_per_step: usize,
    /// Attempts at each question; at least 2.
    pub group_size: usize,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Token limits.
    pub budget: TokenBudget,
    /// Tool calls of an attempt.
    pub max_tool_steps: usize,
    /// Assistant turns of an attempt.
    pub max_turns: usize,
    /// Tokens of one observation.
    pub max_observation_tokens: usize,
    /// Let the chat template open a thinking block.
    pub enable_thinking: bool,
    /// The system prompt's text, where it is not the built-in one.
    pub system_prompt: Option<String>,
}

/// A checked training config.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainConfig {
    /// The policy; its folder has a config, a tokenizer and weights.
    pub model: ModelSection,
    /// Users and questions.
    pub data: DataConfig,
    /// Sampling.
    pub rollout: RolloutConfig,
    /// Scores.
    pub rubric: Rubric,
    /// Who decides where no mechanical rule can.
    pub judge: Option<JudgeConfig>,
    /// The objective.
    pub grpo: GrpoSection,
    /// The optimizer.
    pub optim: OptimSection,
    /// The backward pass.
    pub update: UpdateSection,
    /// The run.
    pub train: TrainSection,
    /// Its processes.
    pub distributed: DistributedSection,
    /// The config file.
    pub file: PathBuf,
    raw: RawTrain,
}

impl TrainConfig {
    /// Reads and checks a config file with overrides on top.
    pub fn load(file: &Path, overrides: &[String]) -> Result<Self, ConfigError> {
        validate::train(&Source::read(file, overrides)?)
    }

    /// The sections as typed.
    pub fn raw(&self) -> &RawTrain {
        &self.raw
    }

    /// Every key with its value, defaults included, as a config file that gives this config again.
    pub fn to_toml(&self) -> String {
        resolved::to_toml(&self.raw)
    }

    /// `[eval]` as typed; the defaults where there is none.
    pub fn eval_section(&self) -> EvalSection {
        self.raw.eval.clone().unwrap_or_default()
    }

    /// Optimizer steps of the whole run over `num_questions` training questions. A rest that fills no step is left
    /// out of its epoch (each epoch has another order).
    ///
    /// # Errors
    /// There are fewer questions than a step takes.
    pub fn num_steps(&self, num_questions: usize) -> Result<usize, ConfigError> {
        let steps = self.steps_per_epoch(num_questions)? * self.train.epochs;
        Ok(self.train.max_steps.map_or(steps, |max| steps.min(max)))
    }

    /// Rollout steps of one epoch; at least 1.
    ///
    /// # Errors
    /// There are fewer questions than a step takes.
    pub fn steps_per_epoch(&self, num_questions: usize) -> Result<usize, ConfigError> {
        let per_step = self.rollout.questions_per_step;
        if num_questions >= per_step {
            return Ok(num_questions / per_step);
        }
        Err(ConfigError::Key {
            origin: self.file.display().to_string(),
            key: "rollout.questions_per_step".to_owned(),
            problem: format!("must not exceed the number of training questions, {num_questions}, got {per_step}"),
            line: None,
        })
    }
}

/// A checked config of supervised fine-tuning.
#[derive(Debug, Clone, PartialEq)]
pub struct SftConfig {
    /// The policy.
    pub model: ModelSection,
    /// Trajectories, one a line.
    pub trajectories: PathBuf,
    /// Share of them held out for validation.
    pub validation_fraction: f64,
    /// Trajectories of one optimizer step.
    pub trajectories_per_step: usize,
    /// Which tokens the loss is over.
    pub scored_tokens: ScoredTokens,
    /// Longer trajectories are left out.
    pub max_trajectory_tokens: Option<usize>,
    /// Trajectories whose answer is wrong are left out.
    pub only_correct: bool,
    /// The optimizer.
    pub optim: OptimSection,
    /// The backward pass.
    pub update: UpdateSection,
    /// The run.
    pub train: TrainSection,
    /// The config file.
    pub file: PathBuf,
    raw: RawSft,
}

impl SftConfig {
    /// Reads and checks a config file with overrides on top.
    pub fn load(file: &Path, overrides: &[String]) -> Result<Self, ConfigError> {
        validate::sft(&Source::read(file, overrides)?)
    }

    /// Every key with its value, defaults included, as a config file that gives this config again.
    pub fn to_toml(&self) -> String {
        resolved::to_toml(&self.raw)
    }
}
