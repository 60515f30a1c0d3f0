//! The sections of a config as typed, with their defaults. What they mean together is decided in `validate`.

use super::{ConfigError, DistributedSection, EvalSection, JudgeSection};
use crate::grpo::{Baseline, KlEstimator, LossAggregation, ZeroVarianceGroups};
use crate::optim::{Schedule, WeightUpdate};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Number format of the policy's weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 4 bytes.
    #[default]
    Float32,
    /// 2 bytes: 8 bits of mantissa, the range of float32.
    Bfloat16,
}

impl Dtype {
    /// libtorch's name of it.
    pub fn kind(self) -> tch::Kind {
        match self {
            Self::Float32 => tch::Kind::Float,
            Self::Bfloat16 => tch::Kind::BFloat16,
        }
    }

    /// Bytes of one number.
    pub fn num_bytes(self) -> u64 {
        match self {
            Self::Float32 => 4,
            Self::Bfloat16 => 2,
        }
    }
}

impl FromStr for Dtype {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "float32" => Ok(Self::Float32),
            "bfloat16" => Ok(Self::Bfloat16),
            _ => Err(format!("must be float32 or bfloat16, got {text}")),
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Float32 => "float32",
            Self::Bfloat16 => "bfloat16",
        })
    }
}

/// Where the policy lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Device {
    /// The first CUDA device if there is one, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// This CUDA device.
    Cuda(usize),
}

impl Device {
    /// The libtorch device that is meant.
    ///
    /// # Errors
    /// A CUDA device that is not there, or that this build cannot use.
    pub fn resolve(self) -> Result<tch::Device, ConfigError> {
        let has_cuda = tch::Cuda::is_available();
        let num_usable = if has_cuda { usize::try_from(tch::Cuda::device_count()).unwrap_or(0) } else { 0 };
        match self {
            Self::Cpu => Ok(tch::Device::Cpu),
            Self::Auto if num_usable == 0 => Ok(tch::Device::Cpu),
            Self::Auto => Ok(tch::Device::Cuda(0)),
            Self::Cuda(index) if index < num_usable => Ok(tch::Device::Cuda(index)),
            Self::Cuda(index) => Err(ConfigError::NoDevice { index, num_usable }),
        }
    }
}

impl TryFrom<String> for Device {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match (text.as_str(), text.strip_prefix("cuda:").map(str::parse)) {
            ("auto", _) => Ok(Self::Auto),
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", _) => Ok(Self::Cuda(0)),
            (_, Some(Ok(index))) => Ok(Self::Cuda(index)),
            _ => Err(format!("must be one of `auto`, `cpu`, `cuda`, `cuda:N`, got `{text}`")),
        }
    }
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::try_from(text.to_owned())
    }
}

impl From<Device> for String {
    fn from(device: Device) -> Self {
        match device {
            Device::Auto => "auto".to_owned(),
            Device::Cpu => "cpu".to_owned(),
            Device::Cuda(index) => format!("cuda:{index}"),
        }
    }
}

/// `[model]`
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelSection {
    /// Hugging Face folder: config.json, safetensors, tokenizer.json, chat template.
    pub path: PathBuf,
    /// Number format of the weights in memory.
    pub dtype: Dtype,
    /// Where they live.
    pub device: Device,
    /// CPU threads of libtorch and rayon; all cores when absent.
    pub threads: Option<usize>,
}

/// Which embedder the dense half of the search uses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Embedder {
    /// Built-in hashed n-grams; needs no download.
    #[default]
    Hashed,
    /// A Qwen3-Embedding folder, or one of a BERT sentence encoder such as all-MiniLM-L6-v2.
    Folder(PathBuf),
}

impl From<String> for Embedder {
    fn from(text: String) -> Self {
        if text == "hashed" { Self::Hashed } else { Self::Folder(text.into()) }
    }
}

impl From<Embedder> for String {
    fn from(embedder: Embedder) -> Self {
        match embedder {
            Embedder::Hashed => "hashed".to_owned(),
            Embedder::Folder(path) => path.display().to_string(),
        }
    }
}

/// `[data.world]`: a sample world that the run writes for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorldSection {
    /// Seed of everything in it.
    pub seed: u64,
    /// Number of users.
    pub users: usize,
}

/// `[data.split]`: shares of the users, by user.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SplitSection {
    /// Share that is trained on.
    pub train: f64,
    /// Share that validation uses during training.
    pub validation: f64,
    /// Share that only an evaluation sees.
    pub test: f64,
    /// Seed of the shuffle.
    pub seed: u64,
}

impl Default for SplitSection {
    fn default() -> Self {
        Self { train: 0.6, validation: 0.2, test: 0.2, seed: 0 }
    }
}

/// `[data]` of a training run: `pyramids` and `questions`, or `world`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataSection {
    /// Folder with one pyramid folder a user.
    pub pyramids: Option<PathBuf>,
    /// `questions.jsonl` about those users.
    pub questions: Option<PathBuf>,
    /// The embedder of the dense search.
    pub embedder: Embedder,
    /// Leading dimensions that vectors of a Qwen3-Embedding folder keep; all when absent.
    pub embedder_dimension: Option<usize>,
    /// How users are split.
    pub split: SplitSection,
    /// A generated world instead of files.
    pub world: Option<WorldSection>,
}

/// `[rollout]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutSection {
    /// Groups of a step.
    pub questions_per_step: usize,
    /// Attempts at each question.
    pub group_size: usize,
    /// Divides the logits.
    pub temperature: f64,
    /// Nucleus; 1 keeps all.
    pub top_p: f64,
    /// Most likely tokens kept; 0 keeps all.
    pub top_k: usize,
    /// Tool calls of an attempt.
    pub max_tool_steps: usize,
    /// Assistant turns of an attempt.
    pub max_turns: usize,
    /// Tokens that the policy may write in one turn.
    pub max_turn_tokens: usize,
    /// Tokens of one observation, the rest is cut.
    pub max_observation_tokens: usize,
    /// Tokens of the whole sequence.
    pub max_total_tokens: usize,
    /// Let the chat template open a thinking block.
    pub enable_thinking: bool,
    /// A text file with the system prompt; the built-in one when absent.
    pub system_prompt: Option<PathBuf>,
}

impl Default for RolloutSection {
    fn default() -> Self {
        Self {
            questions_per_step: 8,
            group_size: 4,
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            max_tool_steps: 4,
            max_turns: 5,
            max_turn_tokens: 1024,
            max_observation_tokens: 1024,
            max_total_tokens: 8192,
            enable_thinking: false,
            system_prompt: None,
        }
    }
}

/// Named scores of the rubric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RewardPreset {
    /// The paper's.
    #[default]
    Napmem,
    /// A right answer without memory scores like one with it.
    Symmetric,
}

/// `[reward]`: a preset and scores that replace its own.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RewardSection {
    /// Where the scores start from.
    pub preset: RewardPreset,
    /// Right, using memory.
    pub correct_with_memory: Option<f64>,
    /// Right, without memory, where the question needs memory.
    pub correct_without_memory: Option<f64>,
    /// Wrong after checking memory.
    pub wrong_with_memory: Option<f64>,
    /// Wrong without checking.
    pub wrong_without_memory: Option<f64>,
    /// Broken format or over budget.
    pub broken_format: Option<f64>,
}

/// Where the reference weights are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReferencePlace {
    /// Beside the policy.
    #[default]
    Device,
    /// In host memory, computed there.
    Cpu,
    /// Read from disk for each use.
    Reload,
}

/// `[grpo]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GrpoSection {
    /// How scores become advantages.
    pub baseline: Baseline,
    /// The ratio is clipped below 1 − this.
    pub clip_low: f64,
    /// The ratio is clipped above 1 + this.
    pub clip_high: f64,
    /// Bounds the loss of negative advantages at this multiple; off when absent.
    pub dual_clip: Option<f64>,
    /// Weight β of the KL penalty; 0 needs no reference.
    pub kl_coefficient: f64,
    /// How the penalty is estimated.
    pub kl_estimator: KlEstimator,
    /// How token losses are averaged.
    pub loss_aggregation: LossAggregation,
    /// The divisor of `seq-mean-token-sum-norm`, in tokens.
    pub sequence_norm: Option<f64>,
    /// Groups without variance.
    pub zero_variance_groups: ZeroVarianceGroups,
    /// Optimizer steps of one batch, each on an equal number of whole groups.
    pub updates_per_batch: usize,
    /// Where the reference lives.
    pub reference: ReferencePlace,
    /// Compute the prompt of a group once for all its attempts. Without it each attempt computes its own; results are the same
    /// but for rounding.
    pub share_prompts: bool,
}

impl Default for GrpoSection {
    fn default() -> Self {
        Self {
            baseline: Baseline::Mean,
            clip_low: 0.2,
            clip_high: 0.2,
            dual_clip: None,
            kl_coefficient: 0.001,
            kl_estimator: KlEstimator::K3,
            loss_aggregation: LossAggregation::TokenMean,
            sequence_norm: None,
            zero_variance_groups: ZeroVarianceGroups::Keep,
            updates_per_batch: 1,
            reference: ReferencePlace::Device,
            share_prompts: true,
        }
    }
}

/// `[optim]`: AdamW.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimSection {
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Gradients are scaled down to this norm.
    pub max_grad_norm: f64,
    /// Learning rate after warm-up.
    pub schedule: Schedule,
    /// Steps over which the learning rate rises from 0.
    pub warmup_steps: usize,
    /// How bf16 weights are updated.
    pub weights: WeightUpdate,
    /// Non-finite steps in a row before the run stops.
    pub max_skipped_steps: usize,
    /// Keep moments and masters in host memory and update there.
    pub offload: bool,
}

impl Default for OptimSection {
    fn default() -> Self {
        Self {
            learning_rate: 1e-6,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
            max_grad_norm: 1.0,
            schedule: Schedule::Constant,
            warmup_steps: 0,
            weights: WeightUpdate::Fp32Master,
            max_skipped_steps: 5,
            offload: false,
        }
    }
}

/// `[update]`: how the backward pass is cut. None of it changes the gradients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UpdateSection {
    /// Tokens packed into one forward and backward pass.
    pub micro_batch_tokens: usize,
    /// Keep only each layer's input and compute the layer again going backward.
    pub recompute: bool,
    /// Completion tokens whose logits exist at one time.
    pub head_chunk_tokens: usize,
}

impl Default for UpdateSection {
    fn default() -> Self {
        Self { micro_batch_tokens: 8192, recompute: true, head_chunk_tokens: 512 }
    }
}

/// `[train]`: the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainSection {
    /// Everything the run writes goes here.
    pub run_dir: PathBuf,
    /// Seed of sampling and of the order of questions.
    pub seed: u64,
    /// Passes over the training questions.
    pub epochs: usize,
    /// Stop after this many steps even if epochs remain.
    pub max_steps: Option<usize>,
    /// Validate every this many steps, before the first and after the last; 0 never.
    pub validation_every: usize,
    /// Validate on this many questions at most.
    pub validation_questions: Option<usize>,
    /// Stop after this many validations in a row without a new best.
    pub early_stop_patience: Option<usize>,
    /// Checkpoint every this many steps and after the last; 0 only when validation finds a new best or a signal comes.
    pub checkpoint_every: usize,
    /// Checkpoints kept besides the best.
    pub keep_last: usize,
}

impl Default for TrainSection {
    fn default() -> Self {
        Self {
            run_dir: PathBuf::new(),
            seed: 0,
            epochs: 5,
            max_steps: None,
            validation_every: 10,
            validation_questions: None,
            early_stop_patience: None,
            checkpoint_every: 10,
            keep_last: 2,
        }
    }
}

/// A training config as typed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawTrain {
    /// The policy.
    pub model: ModelSection,
    /// Users and questions.
    pub data: DataSection,
    /// Sampling.
    pub rollout: RolloutSection,
    /// Scores.
    pub reward: RewardSection,
    /// Who decides where no mechanical rule can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judge: Option<JudgeSection>,
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
    /// Rows of an evaluation; training does not look at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eval: Option<EvalSection>,
}

/// `[data]` of supervised fine-tuning.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SftDataSection {
    /// Trajectories, one a line.
    pub trajectories: PathBuf,
    /// Share of them held out for validation.
    pub validation_fraction: f64,
    /// Trajectories of one optimizer step.
    pub trajectories_per_step: usize,
    /// Which tokens the loss is over.
    pub scored_tokens: ScoredTokens,
    /// Longer trajectories are left out; all stay when absent.
    pub max_trajectory_tokens: Option<usize>,
    /// Leave out trajectories whose answer is wrong.
    pub only_correct: bool,
}

/// Which tokens of a trajectory supervised training learns to predict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScoredTokens {
    /// Those that the policy wrote.
    #[default]
    Completion,
    /// All, prompts and observations too: language modelling, for a model that is trained from nothing.
    All,
}

impl Default for SftDataSection {
    fn default() -> Self {
        Self {
            trajectories: PathBuf::new(),
            validation_fraction: 0.05,
            trajectories_per_step: 32,
            scored_tokens: ScoredTokens::Completion,
            max_trajectory_tokens: None,
            only_correct: false,
        }
    }
}

/// A supervised fine-tuning config as typed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawSft {
    /// The policy.
    pub model: ModelSection,
    /// Trajectories.
    pub data: SftDataSection,
    /// The optimizer.
    pub optim: OptimSection,
    /// The backward pass.
    pub update: UpdateSection,
    /// The run.
    pub train: TrainSection,
}
