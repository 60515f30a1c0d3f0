//! How much memory one rank of a run takes, from the model's shape and the config alone.
//!
//! Each part is counted by its formula; `scripts/measure_memory.sh` puts the sum beside peaks of a process on a CPU.

use crate::config::{Dtype, RawTrain, ReferencePlace, WeightUpdate};
use crate::model::{LayerKind, ModelConfig};
use std::fmt;

/// fp32 numbers that one layer's backward pass holds at once for each token, as multiples of what the token has of each width.
const PER_HIDDEN: u64 = 12;
const PER_INNER: u64 = 6;
const PER_ATTENTION: u64 = 8;
const PER_DELTA_NET: u64 = 14;
/// fp32 copies of a chunk's logits that exist at once: logits, their log-softmax, their gradient.
const PER_LOGIT: u64 = 3;
/// Buckets of gradients that exist at once where gradients are summed over ranks: two on their way, sent and received.
const BUCKETS: u64 = 4;

/// Bytes of each part of a training run on one rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// The policy's weights.
    pub weights: u64,
    /// Gradients of all parameters.
    pub gradients: u64,
    /// This rank's summed gradients, and buckets on their way.
    pub reduction: u64,
    /// This rank's moments, and masters where there are some.
    pub optimizer: u64,
    /// The reference's weights.
    pub reference: u64,
    /// Key-value caches and recurrent states of this rank's attempts at full length.
    pub caches: u64,
    /// What the backward pass of one micro-batch keeps.
    pub activations: u64,
    /// Logits of one chunk of completion tokens.
    pub head_chunk: u64,
    /// Peak on the policy's device over the phases of a step.
    pub device_peak: u64,
    /// What lies in host memory besides.
    pub host: u64,
}

/// Estimates one of `num_ranks` ranks of a run on `model`.
pub fn estimate(model: &ModelConfig, config: &RawTrain, num_ranks: u64) -> MemoryEstimate {
    let (dtype, parameters) = (config.model.dtype, model.num_parameters() as u64);
    let weights = parameters * dtype.num_bytes();
    let master = match (dtype, config.optim.weights) {
        (Dtype::Bfloat16, WeightUpdate::Fp32Master) => 4,
        _ => 0,
    };
    let optimizer = parameters * (8 + master) / num_ranks;
    let place = (config.grpo.kl_coefficient > 0.0).then_some(config.grpo.reference);
    let reference = if place.is_some() { weights } else { 0 };
    let bucket = (config.distributed.bucket_mib as u64) << 20;
    let reduction = if num_ranks == 1 { 0 } else { parameters * 4 / num_ranks + BUCKETS * bucket };
    let (caches, activations) = (caches(model, config, num_ranks), activations(model, config));
    let head_chunk = PER_LOGIT * 4 * config.update.head_chunk_tokens as u64 * model.vocab_size as u64;
    let on_device = if config.optim.offload { 0 } else { optimizer };
    let resident = weights + on_device + if place == Some(ReferencePlace::Device) { reference } else { 0 };
    let rollout = resident + caches;
    // Gradients of a layer are dropped as they are summed, so the two never exist in full.
    let update = resident + weights.max(reduction) + activations + head_chunk;
    let scoring = resident + head_chunk + if place == Some(ReferencePlace::Reload) { reference } else { 0 };
    MemoryEstimate {
        weights,
        gradients: weights,
        reduction,
        optimizer,
        reference,
        caches,
        activations,
        head_chunk,
        device_peak: rollout.max(update).max(scoring),
        host: if config.optim.offload { optimizer } else { 0 }
            + if place == Some(ReferencePlace::Cpu) { reference } else { 0 },
    }
}

fn num_layers(model: &ModelConfig, kind: LayerKind) -> u64 {
    model.layers.iter().filter(|&&layer| layer == kind).count() as u64
}

/// Bytes of one sequence's recurrent and convolution states.
pub(super) fn state_bytes(model: &ModelConfig, dtype: Dtype) -> u64 {
    let Some(net) = &model.delta_net else { return 0 };
    let state = 4 * net.num_value_heads * net.key_head_dim * net.value_head_dim;
    let conv = dtype.num_bytes() as i64 * net.conv_channels() * (net.conv_kernel - 1);
    num_layers(model, LayerKind::LinearAttention) * (state + conv) as u64
}

/// Bytes of one token's keys and values.
pub(super) fn cache_bytes_per_token(model: &ModelConfig, dtype: Dtype) -> u64 {
    let numbers = 2 * model.attention.num_key_value_heads * model.attention.head_dim;
    num_layers(model, LayerKind::FullAttention) * numbers as u64 * dtype.num_bytes()
}

fn caches(model: &ModelConfig, config: &RawTrain, num_ranks: u64) -> u64 {
    let groups = (config.rollout.questions_per_step as u64).div_ceil(num_ranks);
    let num_sequences = groups * config.rollout.group_size as u64;
    let dtype = config.model.dtype;
    let length = config.rollout.max_total_tokens as u64;
    num_sequences * (length * cache_bytes_per_token(model, dtype) + state_bytes(model, dtype))
}

/// With recompute one layer's inner numbers exist at a time, and of every other layer its input alone.
fn activations(model: &ModelConfig, config: &RawTrain) -> u64 {
    let tokens = config.update.micro_batch_tokens as u64;
    let (hidden, inner) = (model.hidden_size as u64, model.intermediate_size as u64);
    let attention = (model.attention.num_heads + 2 * model.attention.num_key_value_heads) * model.attention.head_dim;
    let mixer = |kind| match (kind, &model.delta_net) {
        (LayerKind::LinearAttention, Some(net)) => PER_DELTA_NET * net.conv_channels() as u64,
        _ => PER_ATTENTION * attention as u64,
    };
    let of_layer = |kind| 4 * (PER_HIDDEN * hidden + PER_INNER * inner + mixer(kind));
    let inputs = model.layers.len() as u64 * config.model.dtype.num_bytes() * hidden;
    let layers = model.layers.iter().map(|&kind| of_layer(kind));
    tokens * if config.update.recompute { inputs + layers.max().unwrap_or(0) } else { layers.sum() }
}

impl fmt::Display for MemoryEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, bytes) in [
            ("weights", self.weights),
            ("gradients", self.gradients),
            ("sums over ranks", self.reduction),
            ("optimizer", self.optimizer),
            ("reference", self.reference),
            ("caches", self.caches),
            ("activations", self.activations),
            ("head chunk", self.head_chunk),
            ("peak on the device", self.device_peak),
            ("host besides", self.host),
        ] {
            writeln!(f, "  {name:<20} {:>9.3} GiB", gibibytes(bytes))?;
        }
        Ok(())
    }
}

/// Bytes in GiB.
pub fn gibibytes(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

#[cfg(test)]
mod tests {
    use super::super::shape::published;
    use super::*;
    use crate::config::Source;
    use std::path::Path;

    fn load(sets: &[&str]) -> RawTrain {
        let sets: Vec<String> = sets.iter().map(|&s| s.to_owned()).collect();
        let text = "[model]\ndtype = \"bfloat16\"\n".to_owned();
        Source::from_text(Path::new("c.toml"), text, &sets).unwrap().parse().unwrap()
    }

    #[test]
    fn parts_follow_the_config() {
        let model = published("Qwen3.5-9B").unwrap();
        let parameters = model.num_parameters() as u64;
        let base = estimate(&model, &load(&[]), 1);
        assert_eq!((base.weights, base.gradients, base.reference), (2 * parameters, 2 * parameters, 2 * parameters));
        assert_eq!((base.optimizer, base.reduction), (12 * parameters, 0));
        // The published budget: 32 KiB of keys and values a token, about 49 MiB of states a sequence.
        assert_eq!(cache_bytes_per_token(&model, Dtype::Bfloat16), 32 << 10);
        assert_eq!(state_bytes(&model, Dtype::Bfloat16) >> 20, 49);
        assert_eq!(base.caches, 32 * (8192 * (32 << 10) + state_bytes(&model, Dtype::Bfloat16)));
        assert_eq!(base.head_chunk, 12 * 512 * 248_320);
        assert_eq!(estimate(&model, &load(&["optim.weights=bf16-stochastic"]), 1).optimizer, 8 * parameters);
        assert_eq!(estimate(&model, &load(&["grpo.kl_coefficient=0"]), 1).reference, 0);
        let on_cpu = estimate(&model, &load(&["grpo.reference=cpu"]), 1);
        assert_eq!((on_cpu.host, base.device_peak - on_cpu.device_peak), (2 * parameters, 2 * parameters));
        let offloaded = estimate(&model, &load(&["optim.offload=true"]), 1);
        assert_eq!((offloaded.host, base.device_peak - offloaded.device_peak), (12 * parameters, 12 * parameters));
        assert!(estimate(&model, &load(&["update.recompute=false"]), 1).activations > base.activations);
        let eight = estimate(&model, &load(&[]), 8);
        assert_eq!((eight.optimizer, eight.caches), (12 * parameters / 8, base.caches / 8));
        assert_eq!(eight.reduction, parameters / 2 + ((4 * 64) << 20));
    }
}
