//! The GRPO objective: advantages of groups, packed micro-batches, losses, and what to log of a batch.
//!
//! Knows token ids, masks and log-probabilities, and no model: the caller turns a [`MicroBatch`] into log-probabilities and
//! takes the gradient of the returned loss back through whatever made them.

pub mod advantage;
pub mod loss;
pub mod metrics;
pub mod packing;

pub use advantage::{AdvantageOptions, Advantages, Baseline, GroupedReward, ZeroVarianceGroups, advantages};
pub use loss::{KlEstimator, LossOptions, LossOutput, LossSums, grpo_loss, sft_loss};
pub use metrics::{MetricMap, advantage_metrics, evidence_means, rollout_metrics};
pub use packing::{
    GlobalCounts, LossAggregation, MicroBatch, PackError, PackOptions, PackedBatch, TrainSequence, carry, pack,
};
