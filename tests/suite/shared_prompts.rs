//! Groups computed behind one copy of their prompt, against each sequence computed as a whole.

use crate::runs::{metrics, trajectories};
use crate::scene::{reference, run_settings, scene, scratch, train};
use crate::support::fixture;
use napmem::grpo::{
    GlobalCounts, KlEstimator, LossAggregation, LossOptions, MicroBatch, PackOptions, PackedBatch, TrainSequence,
    grpo_loss, pack,
};
use napmem::model::Decoder;
use napmem::passes::{PassOptions, PassReport, accumulate, score};
use serde_json::Value;
use std::collections::BTreeMap;
use tch::{Device, Kind, Tensor};

/// fp32 sums in another order: log-probabilities, absolute.
const LOGPROB_TOLERANCE: f64 = 2e-5;
/// The same for gradients, relative to the tensor's norm.
const GRADIENT_TOLERANCE: f64 = 5e-5;
/// The same for the metrics of a whole step, relative.
const METRIC_TOLERANCE: f64 = 1e-3;

/// Both layer kinds; dense layers with and without q/k norms.
const MODELS: [&str; 3] = ["qwen3_5_tiny", "dense_qwen3_tiny", "dense_llama_tiny"];

const OPTIONS: LossOptions =
    LossOptions { clip_low: 0.2, clip_high: 0.2, dual_clip: None, kl_coefficient: 0.05, kl_estimator: KlEstimator::K3 };

#[derive(Clone)]
struct Attempt {
    ids: Vec<u32>,
    mask: Vec<u8>,
    logprobs: Vec<f32>,
    advantage: f64,
    group: u64,
}

impl Attempt {
    fn view(&self, share: bool) -> TrainSequence<'_> {
        TrainSequence {
            token_ids: &self.ids,
            loss_mask: &self.mask,
            sampler_logprobs: &self.logprobs,
            advantage: self.advantage,
            group: share.then_some(self.group),
        }
    }
}

/// Attempts at one prompt; each of `completions` is a length. What follows the prompt is written in turns of four tokens with
/// three observed ones between, and differs from the first token on.
fn group(group: u64, num_prompt: usize, completions: &[usize]) -> Vec<Attempt> {
    let attempt = |(i, &length): (usize, &usize)| {
        let id = |t: usize| {
            let salt = if t < num_prompt { 0 } else { 1 + i };
            8 + ((t * 13 + t * t * 5 + salt * 29 + group as usize * 7) % 80) as u32
        };
        let total = num_prompt + length;
        Attempt {
            ids: (0..total).map(id).collect(),
            mask: (0..total).map(|t| u8::from(t >= num_prompt && (t - num_prompt) % 7 < 4)).collect(),
            logprobs: (0..total).map(|t| -3.5 - (t % 5) as f32 * 0.4).collect(),
            advantage: [0.75, -0.5, 0.25, -0.125][i % 4],
            group,
        }
    };
    completions.iter().enumerate().map(attempt).collect()
}

/// Name, attempts, budget of padded tokens.
fn cases() -> Vec<(&'static str, Vec<Attempt>, usize)> {
    let sixteen: Vec<usize> = (0..16).map(|i| 1 + (i * 11) % 37).collect();
    vec![
        ("one attempt", group(1, 20, &[30]), 10_000),
        ("four ragged attempts", group(1, 20, &[30, 1, 7, 18]), 10_000),
        ("a prompt of one token", group(1, 1, &[9, 70, 3]), 10_000),
        ("a prompt of two tokens, shorter than the convolution", group(1, 2, &[1, 1, 2, 66]), 10_000),
        ("branches of one token", group(1, 10, &[1, 1, 1]), 10_000),
        ("a prompt of one chunk", group(1, 64, &[64, 65]), 10_000),
        ("a prompt of more than two chunks", group(1, 150, &[12, 80, 5, 40]), 10_000),
        ("sixteen attempts", group(1, 90, &sixteen), 10_000),
        ("sixteen attempts in parts", group(1, 90, &sixteen), 400),
        (
            "ragged prompts side by side, and one alone",
            [group(1, 70, &[20, 33]), group(2, 9, &[40, 2, 17]), group(3, 1, &[5, 6]), group(4, 31, &[25])].concat(),
            10_000,
        ),
    ]
}

fn load(model: &str) -> Decoder {
    let decoder = Decoder::load(&fixture(model), Kind::Float, Device::Cpu).unwrap();
    for parameter in &decoder.parameters {
        let _ = parameter.tensor.set_requires_grad(true);
    }
    decoder
}

fn packed(attempts: &[Attempt], share: bool, micro_batch_tokens: usize) -> PackedBatch {
    let sequences: Vec<TrainSequence> = attempts.iter().map(|attempt| attempt.view(share)).collect();
    let options =
        PackOptions { micro_batch_tokens, aggregation: LossAggregation::SeqMeanTokenMean, sequence_norm: None };
    pack(&sequences, GlobalCounts::of(&sequences), &options).unwrap()
}

/// What passes over a batch find: ln p by sequence and position, report, gradients.
struct Found {
    logprobs: BTreeMap<(usize, usize), f32>,
    report: PassReport,
    gradients: Vec<Tensor>,
}

fn run(decoder: &Decoder, batch: &PackedBatch, passes: &PassOptions) -> Found {
    let (mut logprobs, mut report) = (BTreeMap::new(), PassReport::default());
    for micro in &batch.micro_batches {
        let scored = score(decoder, micro, passes);
        let values = Vec::<f32>::try_from(&scored).unwrap();
        logprobs.extend(micro.targets.iter().map(|place| (place.sequence, place.position)).zip(values));
        let reference = scored - 0.3;
        let loss = |logprobs: &Tensor, part: &MicroBatch, start: usize| {
            let reference = reference.narrow(0, start as i64, part.num_scored() as i64);
            grpo_loss(logprobs, part, Some(&reference), &OPTIONS)
        };
        report.merge(&accumulate(decoder, micro, passes, &loss, &mut |_| Ok(())).unwrap());
    }
    let gradients = decoder.parameters.iter().map(|parameter| {
        let gradient = parameter.tensor.grad().copy();
        let _ = parameter.tensor.grad().zero_();
        gradient
    });
    Found { logprobs, report, gradients: gradients.collect() }
}

fn assert_equal(name: &str, decoder: &Decoder, expected: &Found, found: &Found) {
    assert!(expected.logprobs.keys().eq(found.logprobs.keys()), "{name}: other tokens are scored");
    for (place, e) in &expected.logprobs {
        let f = found.logprobs[place];
        assert!(f64::from(e - f).abs() < LOGPROB_TOLERANCE, "{name}: ln p {f} against {e} at {place:?}");
    }
    for (key, e, f) in [
        ("loss", expected.report.sums.loss, found.report.sums.loss),
        ("entropy", expected.report.entropy, found.report.entropy),
    ] {
        assert!((e - f).abs() < 1e-5 * e.abs().max(1.0), "{name}: {key} {f} against {e}");
    }
    for ((parameter, e), f) in decoder.parameters.iter().zip(&expected.gradients).zip(&found.gradients) {
        let relative = (e - f).norm().double_value(&[]) / e.norm().double_value(&[]).max(1e-12);
        assert!(relative < GRADIENT_TOLERANCE, "{name}, {}: {relative}", parameter.name);
    }
}

#[test]
fn sharing_a_prompt_changes_no_logprob_no_loss_and_no_gradient() {
    for model in MODELS {
        let decoder = load(model);
        for (case, attempts, budget) in cases() {
            let plain = PassOptions { temperature: 0.7, head_chunk_tokens: 10_000, recompute: false };
            let expected = run(&decoder, &packed(&attempts, false, 10_000), &plain);
            assert!(expected.gradients.iter().all(|g| g.norm().double_value(&[]) > 0.0), "{case}: nothing to compare");
            for passes in [plain, PassOptions { recompute: true, head_chunk_tokens: 5, ..plain }] {
                let found = run(&decoder, &packed(&attempts, true, budget), &passes);
                assert_equal(&format!("{model}, {case}, {passes:?}"), &decoder, &expected, &found);
            }
        }
    }
}

/// What one attempt reads must not reach another: its log-probabilities do not change with its neighbours.
#[test]
fn attempts_do_not_see_each_other() {
    let passes = PassOptions { temperature: 1.0, head_chunk_tokens: 100, recompute: true };
    for model in MODELS {
        let decoder = load(model);
        let attempts = group(1, 70, &[20, 33, 12]);
        let mut other = attempts.clone();
        for attempt in &mut other[1..] {
            attempt.ids[70..].iter_mut().for_each(|id| *id = 8 + (*id + 31) % 80);
        }
        let [before, after] = [attempts, other].map(|attempts| {
            let batch = packed(&attempts, true, 10_000);
            let micro = &batch.micro_batches[0];
            let values = Vec::<f32>::try_from(score(&decoder, micro, &passes)).unwrap();
            micro.targets.iter().map(|place| place.sequence).zip(values).collect::<Vec<_>>()
        });
        let of = |all: &[(usize, f32)], first: bool| -> Vec<u32> {
            all.iter().filter(|(sequence, _)| (*sequence == 0) == first).map(|(_, value)| value.to_bits()).collect()
        };
        assert_eq!(of(&before, true), of(&after, true), "{model}");
        assert_ne!(of(&before, false), of(&after, false), "{model}");
    }
}

/// The linear layers of a group of G compute the prompt once instead of G times.
#[test]
fn a_group_computes_its_prompt_once() {
    for group_size in [4, 16] {
        let attempts = group(1, 150, &vec![30; group_size]);
        let tokens =
            |share| packed(&attempts, share, 10_000).micro_batches.iter().map(MicroBatch::num_tokens).sum::<usize>();
        assert_eq!((tokens(false), tokens(true)), (group_size * 180, 150 + group_size * 30));
    }
}

fn read(json_lines: &str) -> Vec<Value> {
    json_lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A whole run either way: the same attempts, and the same numbers but for rounding.
#[test]
fn a_run_is_the_same_either_way() {
    let run = scratch("prompts-apart");
    let mut sets = run_settings(&run, 2);
    sets.push("grpo.share_prompts=false".to_owned());
    train(&scene().train_config(), &sets, &[]);
    for ((name, expected), (_, found)) in trajectories(&run, 2).iter().zip(trajectories(reference(), 2)) {
        // The weights of the second step differ in their last digits, and with them ln p of what was sampled.
        let ids = |text: &str| read(text).iter().map(|t| t["token_ids"].clone()).collect::<Vec<_>>();
        assert!(ids(expected) == ids(&found), "{name}: other attempts");
    }
    let (shared, apart) = (metrics(reference(), 2), metrics(&run, 2));
    assert_eq!(shared.len(), apart.len());
    for (expected, found) in apart.iter().zip(&shared) {
        assert!(expected.keys().eq(found.keys()));
        for (name, value) in expected {
            let (e, f) = (value.as_f64().unwrap(), found[name].as_f64().unwrap());
            assert!((e - f).abs() <= METRIC_TOLERANCE * e.abs().max(1e-3), "{name}: {f} against {e}");
        }
    }
}
