//! The losses against an independent PyTorch computation in double precision (fixture `grpo_loss.safetensors`), and what must
//! hold for any input.

use super::*;
use crate::grpo::packing::{LossAggregation, PackOptions, PackedBatch, TokenPlace, TrainSequence, pack};
use std::collections::BTreeMap;
use tch::Device;

const KL_COEFFICIENT: f64 = 0.05;
const SEQUENCE_NORM: f64 = 128.0;
/// The fixture is rounded to fp32, and so are weights and advantages here.
const VALUE_TOLERANCE: f64 = 1e-6;
const GRADIENT_TOLERANCE: f64 = 1e-5;

const CLIPS: [(&str, f64, f64); 2] = [("clip20", 0.2, 0.2), ("clip28", 0.2, 0.28)];
const DUALS: [(&str, Option<f64>); 2] = [("plain", None), ("dual", Some(3.0))];
const ESTIMATORS: [(&str, KlEstimator); 3] =
    [("k1", KlEstimator::K1), ("k2", KlEstimator::K2), ("k3", KlEstimator::K3)];
const AGGREGATIONS: [(&str, LossAggregation); 4] = [
    ("token-mean", LossAggregation::TokenMean),
    ("seq-mean-token-sum", LossAggregation::SeqMeanTokenSum),
    ("seq-mean-token-mean", LossAggregation::SeqMeanTokenMean),
    ("seq-mean-token-sum-norm", LossAggregation::SeqMeanTokenSumNorm),
];

struct Fixture(BTreeMap<String, Tensor>);

impl Fixture {
    fn open() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/grpo_loss.safetensors");
        Self(Tensor::read_safetensors(path).unwrap().into_iter().collect())
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        Vec::try_from(self.0[name].reshape([-1]).to_kind(Kind::Float)).unwrap()
    }

    fn doubles(&self, name: &str) -> Vec<f64> {
        self.floats(name).into_iter().map(f64::from).collect()
    }

    fn indices(&self, name: &str) -> Vec<usize> {
        Vec::<i64>::try_from(&self.0[name]).unwrap().into_iter().map(|i| i as usize).collect()
    }
}

/// The fixture's tokens as sequences, each behind one prompt token, so that token `t` of sequence `s` is at `offsets[s] + t - 1`.
struct Batch {
    offsets: Vec<usize>,
    ids: Vec<Vec<u32>>,
    masks: Vec<Vec<u8>>,
    sampler: Vec<Vec<f32>>,
    advantages: Vec<f64>,
}

impl Batch {
    fn of(fixture: &Fixture) -> Self {
        let offsets = fixture.indices("offsets");
        let (mask, old) = (fixture.indices("loss_mask"), fixture.floats("old_logprobs"));
        let ranges: Vec<_> = offsets.windows(2).map(|pair| pair[0]..pair[1]).collect();
        Self {
            ids: ranges.iter().map(|r| vec![1; r.len() + 1]).collect(),
            masks: ranges
                .iter()
                .map(|r| std::iter::once(0).chain(mask[r.clone()].iter().map(|&m| m as u8)).collect())
                .collect(),
            sampler: ranges
                .iter()
                .map(|r| std::iter::once(f32::NAN).chain(old[r.clone()].iter().copied()).collect())
                .collect(),
            advantages: fixture.doubles("advantages.mean"),
            offsets,
        }
    }

    fn pack(&self, micro_batch_tokens: usize, aggregation: LossAggregation) -> PackedBatch {
        let sequences: Vec<TrainSequence> = (0..self.ids.len())
            .map(|i| TrainSequence {
                token_ids: &self.ids[i],
                loss_mask: &self.masks[i],
                sampler_logprobs: &self.sampler[i],
                advantage: self.advantages[i],
                group: None,
            })
            .collect();
        let options = PackOptions { micro_batch_tokens, aggregation, sequence_norm: Some(SEQUENCE_NORM) };
        pack(&sequences, GlobalCounts::of(&sequences), &options).unwrap()
    }

    /// Indices of a micro-batch's scored tokens in the fixture's flat tensors, i64 [N].
    fn flat(&self, targets: &[TokenPlace]) -> Tensor {
        let indices: Vec<i64> = targets.iter().map(|p| (self.offsets[p.sequence] + p.position - 1) as i64).collect();
        Tensor::from_slice(&indices)
    }
}

/// Losses of all micro-batches added up, their sums, and the gradient of all the fixture's log-probabilities.
fn run(fixture: &Fixture, batch: &Batch, packed: &PackedBatch, options: &LossOptions) -> (f64, LossSums, Vec<f64>) {
    let leaf = fixture.0["logprobs"].copy().set_requires_grad(true);
    let (mut loss, mut sums) = (0.0, LossSums::default());
    for micro in &packed.micro_batches {
        let index = batch.flat(&micro.targets);
        let mut micro = micro.to_device(Device::Cpu);
        micro.old_logprobs = Some(fixture.0["old_logprobs"].index_select(0, &index));
        let reference = fixture.0["ref_logprobs"].index_select(0, &index);
        let output = grpo_loss(&leaf.index_select(0, &index), &micro, Some(&reference), options);
        output.loss.backward();
        loss += output.loss.double_value(&[]);
        sums.merge(&output.sums);
    }
    (loss, sums, Vec::try_from(leaf.grad().to_kind(Kind::Double)).unwrap())
}

fn assert_close(got: f64, expected: f64, tolerance: f64, what: &str) {
    let bound = tolerance * expected.abs().max(1.0);
    assert!((got - expected).abs() <= bound, "{what}: {got} is not {expected}");
}

/// Largest error relative to the largest expected value (no gradient is 0 by accident at this scale).
fn assert_gradients(got: &[f64], expected: &[f64], what: &str) {
    let scale = expected.iter().fold(0.0f64, |a, b| a.max(b.abs()));
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        let bound = GRADIENT_TOLERANCE * e.abs() + 1e-7 * scale;
        assert!((g - e).abs() <= bound, "{what}: gradient {i} is {g}, not {e}");
    }
}

fn all_options() -> Vec<(String, LossOptions)> {
    let mut list = Vec::new();
    for (kl_name, kl_estimator) in ESTIMATORS {
        for (dual_name, dual_clip) in DUALS {
            for (clip_name, clip_low, clip_high) in CLIPS {
                let options =
                    LossOptions { clip_low, clip_high, dual_clip, kl_coefficient: KL_COEFFICIENT, kl_estimator };
                list.push((format!("{kl_name}.{dual_name}.{clip_name}"), options));
            }
        }
    }
    list
}

#[test]
fn all_cases_equal_pytorch_at_every_cut() {
    let fixture = Fixture::open();
    let batch = Batch::of(&fixture);
    for (mode, aggregation) in AGGREGATIONS {
        for budget in [10_000, 60, 1] {
            let packed = batch.pack(budget, aggregation);
            for (suffix, options) in all_options() {
                let case = format!("case.{mode}.{suffix}");
                let (loss, sums, gradient) = run(&fixture, &batch, &packed, &options);
                let scalar = |name: &str| fixture.doubles(&format!("{case}.{name}"))[0];
                assert_close(loss, scalar("loss"), VALUE_TOLERANCE, &case);
                assert_close(sums.loss, scalar("loss"), VALUE_TOLERANCE, &case);
                assert_close(sums.pg_loss, scalar("pg_loss"), VALUE_TOLERANCE, &case);
                assert_close(sums.kl_loss, scalar("kl_loss"), VALUE_TOLERANCE, &case);
                assert_gradients(&gradient, &fixture.doubles(&format!("{case}.grad")), &case);
            }
        }
    }
}

#[test]
fn clip_share_and_ppo_kl_equal_pytorch() {
    let fixture = Fixture::open();
    let batch = Batch::of(&fixture);
    let packed = batch.pack(60, LossAggregation::TokenMean);
    for (suffix, options) in all_options() {
        let clip = suffix.rsplit('.').next().unwrap();
        let (_, sums, _) = run(&fixture, &batch, &packed, &options);
        let metrics = sums.policy_metrics(packed.counts);
        let expected = fixture.doubles(&format!("metric.pg_clipfrac.{clip}"))[0];
        assert_close(metrics["actor/pg_clipfrac"], expected, VALUE_TOLERANCE, clip);
        assert_close(metrics["actor/ppo_kl"], fixture.doubles("metric.ppo_kl")[0], VALUE_TOLERANCE, "ppo_kl");
        // The sampler's log-probabilities are the old ones here.
        let abs_sum: f64 = packed.micro_batches.iter().map(|m| mean_gap(&fixture, &batch, m)).sum();
        let mean = abs_sum / packed.counts.num_tokens as f64;
        assert_close(metrics["training/rollout_logprobs_diff_mean"], mean, VALUE_TOLERANCE, "logprobs diff");
    }
}

fn mean_gap(fixture: &Fixture, batch: &Batch, micro: &MicroBatch) -> f64 {
    let index = batch.flat(&micro.targets);
    let (now, old) = (&fixture.0["logprobs"], &fixture.0["old_logprobs"]);
    (now.index_select(0, &index) - old.index_select(0, &index)).abs().sum(Kind::Double).double_value(&[])
}

#[test]
fn tokens_far_from_old_policy_and_reference_equal_pytorch() {
    let fixture = Fixture::open();
    let leaf = |name: &str| fixture.0[name].to_kind(Kind::Double);
    let check = |terms: &Tensor, leaf: &Tensor, value: &str, gradient: &str| {
        let got = Vec::<f64>::try_from(terms).unwrap();
        for (got, expected) in got.iter().zip(fixture.doubles(value)) {
            assert_close(*got, expected, VALUE_TOLERANCE, value);
        }
        terms.sum(Kind::Double).backward();
        for (got, expected) in Vec::<f64>::try_from(leaf.grad()).unwrap().iter().zip(fixture.doubles(gradient)) {
            assert_close(*got, expected, GRADIENT_TOLERANCE, gradient);
        }
    };
    for (suffix, options) in all_options().into_iter().filter(|(name, _)| name.starts_with("k3")) {
        let name = suffix.strip_prefix("k3.").unwrap();
        let logprobs = leaf("extreme.logprobs").set_requires_grad(true);
        let terms = policy_terms(&logprobs, &leaf("extreme.old_logprobs"), &leaf("extreme.advantages"), &options);
        check(&terms.losses, &logprobs, &format!("extreme.pg.{name}"), &format!("extreme.pg_grad.{name}"));
    }
    for (name, estimator) in ESTIMATORS {
        let logprobs = leaf("extreme.logprobs").set_requires_grad(true);
        let terms = kl_terms(&logprobs, &leaf("extreme.ref_logprobs"), estimator);
        check(&terms, &logprobs, &format!("extreme.kl.{name}"), &format!("extreme.kl_grad.{name}"));
    }
}

const ON_POLICY: LossOptions =
    LossOptions { clip_low: 0.2, clip_high: 0.2, dual_clip: None, kl_coefficient: 0.0, kl_estimator: KlEstimator::K3 };

#[test]
fn on_policy_gradient_is_minus_weighted_advantage() {
    let fixture = Fixture::open();
    let batch = Batch::of(&fixture);
    let packed = batch.pack(10_000, LossAggregation::TokenMean);
    let micro = &packed.micro_batches[0];
    let logprobs = fixture.0["logprobs"].index_select(0, &batch.flat(&micro.targets)).set_requires_grad(true);
    let output = grpo_loss(&logprobs, micro, None, &ON_POLICY);
    output.loss.backward();
    let expected = -(&micro.advantages * &micro.token_weights);
    assert!(logprobs.grad().allclose(&expected, 1e-6, 0.0, false));
    assert_eq!((output.sums.num_clipped, output.sums.ppo_kl, output.sums.ratio_max), (0.0, 0.0, 1.0));
    assert_eq!(output.sums.kl_loss, 0.0);
}

#[test]
fn counts_and_differences_by_hand() {
    let (ids, mask, logprobs) = ([1u32; 4], [0u8, 1, 1, 1], [0.0f32, 0.5f32.ln(), 0.25f32.ln(), 0.125f32.ln()]);
    let sequence =
        TrainSequence { token_ids: &ids, loss_mask: &mask, sampler_logprobs: &logprobs, advantage: -1.0, group: None };
    let options = PackOptions { micro_batch_tokens: 4, aggregation: LossAggregation::TokenMean, sequence_norm: None };
    let mut packed = pack(&[sequence], GlobalCounts::of(&[sequence]), &options).unwrap();
    let micro = &mut packed.micro_batches[0];
    micro.old_logprobs = Some(micro.sampler_logprobs.copy());
    // Ratios 0.5 (clipped: the larger loss is −A·0.8), 1 and 4 (over the dual bound 3).
    let now = Tensor::from_slice(&[0.25f32.ln(), 0.25f32.ln(), 0.5f32.ln()]);
    let options = LossOptions { dual_clip: Some(3.0), ..ON_POLICY };
    let sums = grpo_loss(&now, micro, None, &options).sums;
    let metrics = sums.policy_metrics(packed.counts);
    let ln2 = std::f64::consts::LN_2;
    let expected = [
        ("actor/pg_loss", (0.8 + 1.0 + 3.0) / 3.0),
        ("actor/pg_clipfrac", 1.0 / 3.0),
        ("actor/pg_clipfrac_lower", 1.0 / 3.0),
        ("actor/ppo_kl", (ln2 - 2.0 * ln2) / 3.0),
        ("actor/ratio_max", 4.0),
        ("training/rollout_probs_diff_mean", (0.25 + 0.375) / 3.0),
        ("training/rollout_probs_diff_max", 0.375),
        ("training/rollout_logprobs_diff_mean", ln2),
        ("training/rollout_kl", ((0.5 + ln2 - 1.0) + (4.0 - 2.0 * ln2 - 1.0)) / 3.0),
    ];
    for (name, value) in expected {
        assert_close(metrics[name], value, VALUE_TOLERANCE, name);
    }
}

#[test]
fn masked_tokens_get_exactly_zero_gradient_whatever_they_hold() {
    let fixture = Fixture::open();
    let batch = Batch::of(&fixture);
    let mask: Vec<usize> = fixture.indices("loss_mask");
    // What the policy did not write may be NaN or impossible: nothing of it may leak.
    let poison: Vec<f32> = mask.iter().map(|&m| if m == 1 { 0.0 } else { f32::NAN }).collect();
    let leaf = (&fixture.0["logprobs"] + Tensor::from_slice(&poison)).set_requires_grad(true);
    for micro in &batch.pack(60, LossAggregation::TokenMean).micro_batches {
        let logprobs = leaf.index_select(0, &batch.flat(&micro.targets));
        let reference = logprobs.detach() - 0.25;
        let options = LossOptions { kl_coefficient: 0.1, dual_clip: Some(3.0), ..ON_POLICY };
        grpo_loss(&logprobs, micro, Some(&reference), &options).loss.backward();
    }
    let gradient = Vec::<f32>::try_from(leaf.grad()).unwrap();
    for (index, (&mask, &g)) in mask.iter().zip(&gradient).enumerate() {
        assert!(g.is_finite() && (mask == 1) == (g != 0.0), "token {index} with mask {mask} has gradient {g}");
    }
}

#[test]
fn supervised_loss_is_the_mean_negative_logprob_at_every_cut() {
    let fixture = Fixture::open();
    let batch = Batch::of(&fixture);
    let mask = Tensor::from_slice(&fixture.indices("loss_mask").iter().map(|&m| m as f32).collect::<Vec<_>>());
    let count = mask.sum(Kind::Double);
    let expected = -(&fixture.0["logprobs"] * &mask).sum(Kind::Double) / &count;
    let expected_gradient = -mask / count;
    for budget in [10_000, 40, 1] {
        let leaf = fixture.0["logprobs"].copy().set_requires_grad(true);
        let mut sums = LossSums::default();
        for micro in &batch.pack(budget, LossAggregation::TokenMean).micro_batches {
            let output = sft_loss(&leaf.index_select(0, &batch.flat(&micro.targets)), micro);
            output.loss.backward();
            sums.merge(&output.sums);
        }
        assert_close(sums.loss, expected.double_value(&[]), VALUE_TOLERANCE, "negative log-likelihood");
        assert!(leaf.grad().allclose(&expected_gradient.to_kind(Kind::Float), 1e-6, 0.0, false));
    }
}

#[test]
fn merged_maxima_keep_a_nan() {
    let nan = LossSums { ratio_max: f64::NAN, ..LossSums::default() };
    let one = LossSums { ratio_max: 1.0, ..LossSums::default() };
    for (mut first, second) in [(nan, one), (one, nan)] {
        first.merge(&second);
        assert!(first.ratio_max.is_nan());
    }
}

#[test]
#[should_panic(expected = "a KL penalty needs a reference")]
fn a_penalty_without_reference_is_refused() {
    let fixture = Fixture::open();
    let batch = Batch::of(&fixture);
    let packed = batch.pack(10_000, LossAggregation::TokenMean);
    let micro = &packed.micro_batches[0];
    let logprobs = fixture.0["logprobs"].index_select(0, &batch.flat(&micro.targets));
    grpo_loss(&logprobs, micro, None, &LossOptions { kl_coefficient: 0.1, ..ON_POLICY });
}
