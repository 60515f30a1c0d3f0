//! What to change so that a run fits, in the order of what it costs.

use super::gpu::Gpu;
use super::memory::{MemoryEstimate, estimate};
use crate::config::{Dtype, RawTrain, ReferencePlace, WeightUpdate};
use crate::model::ModelConfig;

/// A config that fits, and how it differs from the one that was asked about.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The config.
    pub config: RawTrain,
    /// What it takes on each rank.
    pub memory: MemoryEstimate,
    /// Keys with their new values, as `--set` takes them; empty where nothing must change.
    pub changes: Vec<String>,
}

type Change = (&'static str, fn(&mut RawTrain));

/// Changes from the cheapest to the dearest; each is tried with all before it.
const CHANGES: [Change; 6] = [
    ("update.recompute=true", |c| c.update.recompute = true),
    ("model.dtype=bfloat16", |c| c.model.dtype = Dtype::Bfloat16),
    ("grpo.reference=reload", |c| c.grpo.reference = ReferencePlace::Reload),
    ("optim.weights=bf16-stochastic", |c| c.optim.weights = WeightUpdate::Bf16Stochastic),
    ("optim.offload=true", |c| c.optim.offload = true),
    ("update.head_chunk_tokens=128", |c| c.update.head_chunk_tokens = c.update.head_chunk_tokens.min(128)),
];

/// The first of the changes' combinations that fits on `num_ranks` of `gpu`: none, one, two, and so on, cheap ones first; then with
/// smaller micro-batches, down to one attempt of full length.
pub fn fit(model: &ModelConfig, config: &RawTrain, gpu: &Gpu, num_ranks: u64) -> Option<Fit> {
    let smallest = config.rollout.max_total_tokens;
    let sizes = [config.update.micro_batch_tokens, smallest];
    for size in sizes.into_iter().filter(|&size| size <= config.update.micro_batch_tokens) {
        let mut masks: Vec<u32> = (0..1 << CHANGES.len()).collect();
        // Fewer changes first; among as many, the cheaper ones, which have the lower bits.
        masks.sort_by_key(|mask| (mask.count_ones(), *mask));
        for mask in masks {
            let (mut changed, mut changes) = (config.clone(), Vec::new());
            if size != changed.update.micro_batch_tokens {
                changed.update.micro_batch_tokens = size;
                changes.push(format!("update.micro_batch_tokens={size}"));
            }
            for (bit, (name, apply)) in CHANGES.iter().enumerate() {
                let before = changed.clone();
                if mask & (1 << bit) != 0 {
                    apply(&mut changed);
                    if changed != before {
                        changes.push((*name).to_owned());
                    }
                }
            }
            let memory = estimate(model, &changed, num_ranks);
            if memory.device_peak <= gpu.usable_bytes() {
                return Some(Fit { config: changed, memory, changes });
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::shape::published;
    use super::*;
    use crate::config::Source;
    use std::path::Path;

    #[test]
    fn the_nine_billion_fit_where_they_should() {
        let model = published("Qwen3.5-9B").unwrap();
        let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../configs/napmem-qwen3.5-9b.toml"));
        let config: RawTrain = Source::read(file, &[]).unwrap().parse().unwrap();
        let fits = |gpu: &str, ranks| fit(&model, &config, &Gpu::named(gpu).unwrap(), ranks);
        // As shipped on one H200 and on eight of the smaller ones.
        for (gpu, ranks) in [("H200", 1), ("H20", 8), ("H100", 8), ("A100", 8)] {
            assert_eq!(fits(gpu, ranks).expect(gpu).changes, Vec::<String>::new(), "{ranks} × {gpu}");
        }
        let four = fits("H100", 4).expect("4 × 80 GB");
        assert!(four.memory.device_peak <= Gpu::named("H100").unwrap().usable_bytes());
        assert!(fits("H100", 1).is_none_or(|fit| fit.changes.contains(&"optim.offload=true".to_owned())));
        // Twice the weights' size in memory is the least there is.
        let large = published("Qwen3.5-27B").unwrap();
        assert!(fit(&large, &config, &Gpu::named("A100").unwrap(), 1).is_none());
    }
}
