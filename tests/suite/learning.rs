//! Gradients of whole updates: independent of how a batch is cut, of recompute and of head chunks; zero where masked.

use crate::support::fixture;
use napmem::grpo::{
    GlobalCounts, KlEstimator, LossAggregation, LossOptions, MicroBatch, PackOptions, TrainSequence, grpo_loss, pack,
};
use napmem::model::Decoder;
use napmem::passes::{PassOptions, PassReport, accumulate, score};
use tch::{Device, Kind, Tensor};

/// Sums of fp32 gradients in another order, relative to the tensor's norm.
const CUT_TOLERANCE: f64 = 2e-5;

const OPTIONS: LossOptions =
    LossOptions { clip_low: 0.2, clip_high: 0.2, dual_clip: None, kl_coefficient: 0.05, kl_estimator: KlEstimator::K3 };

struct Sequence {
    ids: Vec<u32>,
    mask: Vec<u8>,
    logprobs: Vec<f32>,
    advantage: f64,
}

fn sequences() -> Vec<Sequence> {
    let sequence = |n: u32, advantage| Sequence {
        ids: (0..n).map(|i| 8 + (i * 13 + n) % 80).collect(),
        mask: (0..n).map(|i| u8::from(i > 4 && i % 7 < 4)).collect(),
        logprobs: (0..n).map(|i| -0.5 - (i % 5) as f32).collect(),
        advantage,
    };
    vec![sequence(70, 0.75), sequence(12, -0.25), sequence(33, -0.5), sequence(64, 0.25), sequence(21, 0.1)]
}

fn load() -> Decoder {
    let decoder = Decoder::load(&fixture("qwen3_5_tiny"), Kind::Float, Device::Cpu).unwrap();
    for parameter in &decoder.parameters {
        let _ = parameter.tensor.set_requires_grad(true);
    }
    decoder
}

/// Loss and gradients of the batch under a cut.
fn gradients(decoder: &Decoder, micro_batch_tokens: usize, passes: &PassOptions) -> (PassReport, Vec<Tensor>) {
    let sequences = sequences();
    let train: Vec<TrainSequence> = sequences
        .iter()
        .map(|s| TrainSequence {
            token_ids: &s.ids,
            loss_mask: &s.mask,
            sampler_logprobs: &s.logprobs,
            advantage: s.advantage,
            group: None,
        })
        .collect();
    let options = PackOptions { micro_batch_tokens, aggregation: LossAggregation::TokenMean, sequence_norm: None };
    let batch = pack(&train, GlobalCounts::of(&train), &options).unwrap();
    let mut report = PassReport::default();
    for micro in &batch.micro_batches {
        let reference = score(decoder, micro, passes) - 0.3;
        let loss = |logprobs: &Tensor, part: &MicroBatch, start: usize| {
            let reference = reference.narrow(0, start as i64, part.num_scored() as i64);
            grpo_loss(logprobs, part, Some(&reference), &OPTIONS)
        };
        report.merge(&accumulate(decoder, micro, passes, &loss, &mut |_| Ok(())).unwrap());
    }
    let taken = decoder.parameters.iter().map(|p| {
        let gradient = p.tensor.grad().copy();
        let _ = p.tensor.grad().zero_();
        gradient
    });
    (report, taken.collect())
}

#[test]
fn gradients_do_not_depend_on_the_cut() {
    let decoder = load();
    let plain = PassOptions { temperature: 0.7, head_chunk_tokens: 10_000, recompute: false };
    let (whole, expected) = gradients(&decoder, 100_000, &plain);
    let cuts = [
        ("one sequence a micro-batch", 1, plain),
        ("two micro-batches", 150, plain),
        ("head chunks", 100_000, PassOptions { head_chunk_tokens: 7, ..plain }),
        ("recompute", 100_000, PassOptions { recompute: true, ..plain }),
        ("all of it", 80, PassOptions { recompute: true, head_chunk_tokens: 5, ..plain }),
    ];
    for (name, micro_batch_tokens, passes) in cuts {
        let (report, found) = gradients(&decoder, micro_batch_tokens, &passes);
        assert!(
            (report.sums.loss - whole.sums.loss).abs() < 1e-6,
            "{name}: {} against {}",
            report.sums.loss,
            whole.sums.loss
        );
        assert!((report.entropy - whole.entropy).abs() < 1e-3, "{name}: {} against {}", report.entropy, whole.entropy);
        for ((parameter, e), f) in decoder.parameters.iter().zip(&expected).zip(&found) {
            let relative = (e - f).norm().double_value(&[]) / e.norm().double_value(&[]).max(1e-12);
            assert!(relative < CUT_TOLERANCE, "{name}, {}: {relative}", parameter.name);
        }
    }
}

/// Only tokens that the policy wrote may push on the weights: with all advantages zero and no penalty there is no gradient at
/// all, and the gradient reaches the scored positions' logits alone.
#[test]
fn masked_tokens_have_exactly_zero_gradient() {
    let decoder = load();
    let sequences = sequences();
    let s = &sequences[0];
    let train = [TrainSequence {
        token_ids: &s.ids,
        loss_mask: &s.mask,
        sampler_logprobs: &s.logprobs,
        advantage: 1.0,
        group: None,
    }];
    let options =
        PackOptions { micro_batch_tokens: 1000, aggregation: LossAggregation::TokenMean, sequence_norm: None };
    let batch = pack(&train, GlobalCounts::of(&train), &options).unwrap();
    let micro = &batch.micro_batches[0];
    let n = s.ids.len() as i64;
    let all = Tensor::from_slice(&vec![-1.0f32; n as usize]).set_requires_grad(true);
    let scored = all.index_select(0, &(&micro.score_positions + 1));
    let no_penalty = LossOptions { kl_coefficient: 0.0, ..OPTIONS };
    grpo_loss(&scored, micro, None, &no_penalty).loss.backward();
    let gradient = Vec::<f32>::try_from(all.grad()).unwrap();
    for (t, (&g, &m)) in gradient.iter().zip(&s.mask).enumerate() {
        assert_eq!(g != 0.0, m == 1, "token {t} with mask {m} has gradient {g}");
    }
    let passes = PassOptions { temperature: 1.0, head_chunk_tokens: 16, recompute: true };
    let silent = [TrainSequence { advantage: 0.0, ..train[0] }];
    let batch = pack(&silent, GlobalCounts::of(&silent), &options).unwrap();
    let loss = |logprobs: &Tensor, part: &MicroBatch, _: usize| grpo_loss(logprobs, part, None, &no_penalty);
    accumulate(&decoder, &batch.micro_batches[0], &passes, &loss, &mut |_| Ok(())).unwrap();
    for parameter in &decoder.parameters {
        assert_eq!(parameter.tensor.grad().abs().max().double_value(&[]), 0.0, "{}", parameter.name);
    }
}
