//! Operations and bytes of a step, and the time they take on a GPU.
//!
//! Counted: matrix products of weights (two operations a weight and token), softmax attention (four a pair of positions and head
//! dimension), the delta rule in chunks. A forward pass and two backward count three; with recompute one more forward.

use super::gpu::Gpu;
use super::memory::{cache_bytes_per_token, state_bytes};
use crate::config::{RawTrain, ReferencePlace};
use crate::model::{LayerKind, ModelConfig};

/// What the times of a plan assume. All are shares of the data sheet's figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Assumptions {
    /// Of the peak operations, in update, scoring and prefill.
    pub compute: f64,
    /// Of the memory's bandwidth, in decode.
    pub bandwidth: f64,
    /// Of the links' bandwidth, in collectives.
    pub links: f64,
    /// Between nodes, 10^9 bytes a second for each GPU (400 Gbit/s InfiniBand).
    pub node_gbps: f64,
    /// GPUs of a node.
    pub gpus_per_node: u64,
    /// Mean length of an attempt, as a share of `rollout.max_total_tokens`, of which the prompt is `prompt` and sampled are `sampled`.
    pub length: f64,
    /// Share of an attempt's tokens that are its prompt.
    pub prompt: f64,
    /// Share of an attempt's tokens that the policy writes.
    pub sampled: f64,
    /// Standard deviation of ln(length).
    pub spread: f64,
}

impl Default for Assumptions {
    fn default() -> Self {
        Self {
            compute: 0.4,
            bandwidth: 0.6,
            links: 0.7,
            node_gbps: 50.0,
            gpus_per_node: 8,
            length: 0.4,
            prompt: 0.35,
            sampled: 0.35,
            spread: 0.4,
        }
    }
}

/// Seconds of the phases of one step, of the slowest rank.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepTime {
    /// Prompts and observations.
    pub prefill: f64,
    /// Sampling.
    pub decode: f64,
    /// The reference's log-probabilities.
    pub reference: f64,
    /// Forward and backward.
    pub update: f64,
    /// Summing gradients and sharing weights, not hidden behind anything.
    pub communication: f64,
}

impl StepTime {
    /// All phases one after the other.
    pub fn total(&self) -> f64 {
        self.prefill + self.decode + self.reference + self.update + self.communication
    }
}

/// Operations and bytes of one token, from a model's shape and the type of its weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenCost {
    /// Operations of a forward pass at position 0, without the head.
    base_flops: f64,
    /// Operations that each earlier position adds.
    flops_per_position: f64,
    /// Operations of the head.
    pub head_flops: f64,
    /// Bytes of weights that a decode step reads.
    weight_bytes: f64,
    /// Bytes of a sequence's states; a decode step reads and writes them.
    state_bytes: f64,
    /// Bytes of keys and values that a decode step reads for each earlier position.
    cache_bytes: f64,
}

impl TokenCost {
    /// Of a model in a config's number format.
    pub fn of(model: &ModelConfig, config: &RawTrain) -> Self {
        let dtype = config.model.dtype;
        let table = (model.vocab_size * model.hidden_size) as f64;
        let num_parameters = model.num_parameters() as f64;
        let is_tied = model.tie_word_embeddings;
        let count = |kind| model.layers.iter().filter(|&&layer| layer == kind).count() as f64;
        // Within a chunk of 64 and against the state: about six products of the state's size a token.
        let delta = model
            .delta_net
            .as_ref()
            .map_or(0.0, |net| 6.0 * 2.0 * (net.num_value_heads * net.key_head_dim * net.value_head_dim) as f64);
        let attention = (model.attention.num_heads * model.attention.head_dim) as f64;
        Self {
            base_flops: 2.0 * (num_parameters - table * if is_tied { 1.0 } else { 2.0 })
                + delta * count(LayerKind::LinearAttention),
            flops_per_position: 4.0 * attention * count(LayerKind::FullAttention),
            head_flops: 2.0 * table,
            weight_bytes: (num_parameters - if is_tied { 0.0 } else { table }) * dtype.num_bytes() as f64,
            state_bytes: state_bytes(model, dtype) as f64,
            cache_bytes: cache_bytes_per_token(model, dtype) as f64,
        }
    }

    /// Operations of a forward pass over one token at `position`, without the head.
    pub fn forward_flops(&self, position: f64) -> f64 {
        self.base_flops + self.flops_per_position * position
    }

    /// Seconds of one decode step of `rows` sequences of length `length`: weights, states and caches go through memory once.
    pub fn decode_step(&self, gpu: &Gpu, assume: &Assumptions, rows: f64, length: f64) -> f64 {
        let bytes = self.weight_bytes + rows * (2.0 * self.state_bytes + length * self.cache_bytes);
        let memory = bytes / (gpu.memory_tbps * 1e12 * assume.bandwidth);
        let flops = rows * (self.forward_flops(length) + self.head_flops);
        memory.max(flops / (gpu.tflops * 1e12 * assume.compute))
    }
}

/// Seconds of summing gradients (fp32) and sharing weights over `num_ranks`.
pub fn communication(model: &ModelConfig, config: &RawTrain, gpu: &Gpu, assume: &Assumptions, num_ranks: u64) -> f64 {
    let share = (num_ranks - 1) as f64 / num_ranks as f64;
    let bytes = model.num_parameters() as f64 * (4 + config.model.dtype.num_bytes()) as f64 * share;
    let link = if num_ranks > assume.gpus_per_node { assume.node_gbps.min(gpu.link_gbps) } else { gpu.link_gbps };
    bytes / (link * 1e9 * assume.links)
}

/// Seconds of a step of `config` on `num_ranks` GPUs, for attempts of the assumed mean length.
pub fn step_time(model: &ModelConfig, config: &RawTrain, gpu: &Gpu, assume: &Assumptions, num_ranks: u64) -> StepTime {
    let groups = (config.rollout.questions_per_step as u64).div_ceil(num_ranks) as f64;
    let attempts = groups * config.rollout.group_size as f64;
    let length = assume.length * config.rollout.max_total_tokens as f64;
    let cost = TokenCost::of(model, config);
    let flops_per_s = gpu.tflops * 1e12 * assume.compute;
    let flops = |tokens: f64, passes: f64| tokens * passes * cost.forward_flops(length / 2.0) / flops_per_s;
    let head = |tokens: f64, passes: f64| tokens * passes * cost.head_flops / flops_per_s;
    let sampled = attempts * length * assume.sampled;
    // A prompt is computed once a group.
    let computed = groups * length * assume.prompt + attempts * length * (1.0 - assume.prompt);
    let observed = computed - sampled;
    let passes = if config.update.recompute { 4.0 } else { 3.0 };
    let with_reference = config.grpo.kl_coefficient > 0.0 && config.grpo.reference != ReferencePlace::Cpu;
    StepTime {
        prefill: flops(observed, 1.0),
        decode: length * assume.sampled * cost.decode_step(gpu, assume, attempts, length / 2.0),
        reference: if with_reference { flops(computed, 1.0) + head(sampled, 1.0) } else { 0.0 },
        update: flops(computed, passes) + head(sampled, 3.0),
        communication: if num_ranks > 1 { communication(model, config, gpu, assume, num_ranks) } else { 0.0 },
    }
}

#[cfg(test)]
mod tests {
    use super::super::shape::published;
    use super::*;

    #[test]
    fn operations_are_those_of_the_published_budget() {
        // 16.3 GFLOP a token at 4k of context, head included.
        let cost = TokenCost::of(&published("Qwen3.5-9B").unwrap(), &RawTrain::default());
        let flops = cost.forward_flops(4096.0) + cost.head_flops;
        assert!((flops / 1e9 / 16.3 - 1.0).abs() < 0.03, "{flops}");
    }

    #[test]
    fn decode_reads_the_weights_once_whatever_the_batch() {
        let mut config = RawTrain::default();
        config.model.dtype = crate::config::Dtype::Bfloat16;
        let cost = TokenCost::of(&published("Qwen3.5-9B").unwrap(), &config);
        let gpu = Gpu::named("h200").unwrap();
        let whole = Assumptions { bandwidth: 1.0, compute: 1.0, ..Assumptions::default() };
        // The published floors: 3.3 ms at one row, 6.4 ms at 64 rows of 4k.
        let step = |rows, length| cost.decode_step(&gpu, &whole, rows, length) * 1e3;
        assert!((step(1.0, 0.0) - 3.3).abs() < 0.1, "{}", step(1.0, 0.0));
        assert!((step(64.0, 4096.0) - 6.4).abs() < 0.4, "{}", step(64.0, 4096.0));
    }

    #[test]
    fn ranks_share_the_work_and_talk_for_it() {
        let (model, config) = (published("Qwen3.5-9B").unwrap(), RawTrain::default());
        let gpu = Gpu::named("H100").unwrap();
        let times: Vec<StepTime> =
            [1, 2, 4, 8].map(|n| step_time(&model, &config, &gpu, &Assumptions::default(), n)).to_vec();
        assert_eq!(times[0].communication, 0.0);
        for pair in times.windows(2) {
            assert!(pair[1].update < pair[0].update && pair[1].communication > pair[0].communication, "{times:?}");
            assert!(pair[1].decode < pair[0].decode && pair[1].decode > pair[0].decode / 2.0, "{times:?}");
        }
    }
}
