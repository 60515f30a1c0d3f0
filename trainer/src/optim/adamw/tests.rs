//! Parity with `torch.optim.AdamW` (fixture `adamw.safetensors`), bf16 weights, clipping, skipped steps.

use super::*;
use std::collections::BTreeMap;

fn fixture() -> BTreeMap<String, Tensor> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/adamw.safetensors");
    Tensor::read_safetensors(path).unwrap().into_iter().collect()
}

fn full(shape: &[i64], value: f64, kind: Kind) -> Tensor {
    Tensor::full(shape, value, (Kind::Float, Device::Cpu)).to_kind(kind)
}

fn single(tensor: Tensor, options: AdamWOptions) -> AdamW {
    AdamW::new(vec![("w".to_owned(), tensor)], options).unwrap()
}

fn unclipped() -> AdamWOptions {
    AdamWOptions { max_grad_norm: None, ..AdamWOptions::default() }
}

#[test]
fn five_steps_equal_pytorch() {
    let fixture = fixture();
    // PyTorch decays both; here one-dimensional tensors do not decay, so the second becomes a row.
    let shaped = |name: &str| {
        let tensor = &fixture[name];
        if tensor.dim() == 1 { tensor.unsqueeze(0) } else { tensor.shallow_clone() }
    };
    let params = (0..2).map(|i| (format!("p{i}"), shaped(&format!("p{i}.init")).copy())).collect();
    let mut optimizer = AdamW::new(params, unclipped()).unwrap();
    for step in 1..=5 {
        let grads: Vec<_> = (0..2).map(|i| Some(shaped(&format!("p{i}.grad.{step}")))).collect();
        let report = optimizer.step(&grads, 1e-3).unwrap();
        assert_eq!((report.changed_weight_fraction(), report.clipped), (1.0, false));
        let state: BTreeMap<_, _> = optimizer.state_tensors().into_iter().collect();
        for (name, weights) in optimizer.params() {
            // fp32 with another order of the same operations: a few units in the last place.
            let close = |got: &Tensor, key: &str| {
                let expected = shaped(&format!("{name}.{key}.{step}"));
                assert!(got.allclose(&expected, 2e-6, 1e-12, false), "{name} {key} at {step}: {got:?} {expected:?}");
            };
            close(weights, "step");
            close(&state[&format!("exp_avg.{name}")], "exp_avg");
            close(&state[&format!("exp_avg_sq.{name}")], "exp_avg_sq");
        }
    }
}

#[test]
fn only_matrices_decay() {
    let params = vec![
        ("matrix".to_owned(), full(&[2, 2], 1.0, Kind::Float)),
        ("vector".to_owned(), full(&[2], 1.0, Kind::Float)),
    ];
    let options = AdamWOptions { weight_decay: 0.5, ..unclipped() };
    let mut optimizer = AdamW::new(params, options).unwrap();
    let zero = |shape: &[i64]| Some(full(shape, 0.0, Kind::Float));
    optimizer.step(&[zero(&[2, 2]), zero(&[2])], 0.1).unwrap();
    let means: Vec<f64> = optimizer.params().map(|(_, w)| w.mean(Kind::Double).double_value(&[])).collect();
    assert!((means[0] - 0.95).abs() < 1e-6 && means[1] == 1.0, "{means:?}");
}

#[test]
fn masters_keep_updates_that_bf16_would_lose() {
    // bf16 values just below 1 lie 2^-8 apart: a single step of 1e-4 is lost, forty are not.
    let options = AdamWOptions { weight_decay: 0.0, ..unclipped() };
    let mut optimizer = single(full(&[64, 8], 1.0, Kind::BFloat16), options);
    let grad = [Some(full(&[64, 8], 1.0, Kind::BFloat16))];
    let mut fractions = Vec::new();
    for _ in 0..40 {
        fractions.push(optimizer.step(&grad, 1e-4).unwrap().changed_weight_fraction());
    }
    assert_eq!(fractions[..10], [0.0; 10]);
    assert_eq!(fractions.iter().filter(|&&fraction| fraction == 1.0).count(), 1, "{fractions:?}");
    let weights = &optimizer.slots[0].weights;
    assert!(weights.equal(&full(&[512], 1.0 - 1.0 / 256.0, Kind::BFloat16)), "{weights:?}");
    let master = optimizer.slots[0].master.as_ref().unwrap();
    assert!(master.allclose(&full(&[512], 1.0 - 40e-4, Kind::Float), 1e-5, 0.0, false));
}

#[test]
fn stochastic_rounding_moves_the_mean_and_repeats_itself() {
    let run = |seed| {
        let weights = WeightUpdate::Bf16Stochastic;
        let options = AdamWOptions { weight_decay: 0.0, weights, seed, ..unclipped() };
        let mut optimizer = single(full(&[256, 1024], 1.0, Kind::BFloat16), options);
        let grad = [Some(full(&[256, 1024], 1.0, Kind::BFloat16))];
        let first = optimizer.step(&grad, 1e-4).unwrap().changed_weight_fraction();
        for _ in 1..10 {
            optimizer.step(&grad, 1e-4).unwrap();
        }
        (first, optimizer.slots[0].weights.copy())
    };
    let (first, weights) = run(1);
    // 1e-4 of the way 2^-8 down: 2.56% of the weights move.
    assert!((first - 0.0256).abs() < 0.002, "{first}");
    let mean = weights.mean(Kind::Double).double_value(&[]);
    assert!((mean - (1.0 - 10e-4)).abs() < 2e-5, "{mean}");
    assert!(run(1).1.equal(&weights) && !run(2).1.equal(&weights));
}

#[test]
fn changed_weights_are_counted_exactly_over_chunks() {
    let len = 3 * chunk_len(Device::Cpu) + 17;
    let mut optimizer = single(Tensor::zeros([len], (Kind::Float, Device::Cpu)), unclipped());
    let grad = Tensor::zeros([len], (Kind::Float, Device::Cpu));
    for index in [0, chunk_len(Device::Cpu), len - 1] {
        let _ = grad.narrow(0, index, 1).fill_(-2.0);
    }
    let report = optimizer.step(&[Some(grad.shallow_clone())], 0.5).unwrap();
    assert_eq!(report.changed_weight_fraction(), 3.0 / len as f64);
    assert!((report.grad_norm - 12f64.sqrt()).abs() < 1e-12);
    let expected = grad * -0.25;
    assert!(optimizer.slots[0].weights.allclose(&expected, 1e-6, 0.0, false));
}

#[test]
fn gradients_are_clipped_as_one_and_never_written() {
    let params =
        vec![("a".to_owned(), full(&[1, 1], 0.0, Kind::Float)), ("b".to_owned(), full(&[1, 1], 0.0, Kind::Float))];
    let mut optimizer = AdamW::new(params, AdamWOptions { max_grad_norm: Some(1.0), ..unclipped() }).unwrap();
    let grads = [Some(full(&[1, 1], 3.0, Kind::Float)), Some(full(&[1, 1], -4.0, Kind::Float))];
    let report = optimizer.step(&grads, 1e-3).unwrap();
    assert!((report.grad_norm - 5.0).abs() < 1e-12 && report.clipped);
    let firsts: Vec<f64> = optimizer.slots.iter().map(|slot| slot.exp_avg.double_value(&[0])).collect();
    assert!((firsts[0] - 0.06).abs() < 1e-6 && (firsts[1] + 0.08).abs() < 1e-6, "{firsts:?}");
    assert_eq!(grads[0].as_ref().unwrap().double_value(&[0, 0]), 3.0);
    let within = [Some(full(&[1, 1], 0.3, Kind::Float)), None];
    let before = optimizer.slots[1].weights.copy();
    assert!(!optimizer.step(&within, 1e-3).unwrap().clipped);
    assert!(optimizer.slots[1].weights.equal(&before), "a parameter without gradient moved");
}

#[test]
fn steps_that_are_not_finite_change_nothing_and_stop_after_the_limit() {
    for bad in [f64::NAN, f64::INFINITY] {
        let options = AdamWOptions { max_skipped_steps: 2, ..unclipped() };
        let mut optimizer = single(full(&[2, 2], 1.0, Kind::Float), options);
        let good = [Some(full(&[2, 2], 0.5, Kind::Float))];
        let broken = [Some(full(&[2, 2], bad, Kind::Float))];
        optimizer.step(&good, 1e-3).unwrap();
        let before: Vec<_> = optimizer.state_tensors()[2..].iter().map(|(_, t)| t.copy()).collect();
        let weights = optimizer.slots[0].weights.copy();
        let report = optimizer.step(&broken, 1e-3).unwrap();
        assert_eq!(report.skipped, Some(SkipReason::NonFiniteGradient { parameter: "w".to_owned() }));
        assert_eq!(report.changed_weight_fraction(), 0.0);
        assert!(!report.grad_norm.is_finite());
        assert_eq!(optimizer.num_steps(), 1);
        assert!(optimizer.slots[0].weights.equal(&weights));
        for (old, (name, new)) in before.iter().zip(&optimizer.state_tensors()[2..]) {
            assert!(old.equal(new), "{name} changed in a skipped step");
        }
        assert!(matches!(optimizer.skip_step(bad).unwrap().skipped, Some(SkipReason::NonFiniteLoss(_))));
        let error = optimizer.step(&broken, 1e-3).unwrap_err().to_string();
        assert!(error.contains("3 steps in a row") && error.contains("allowed: 2") && error.contains("`w`"), "{error}");
    }
}

#[test]
fn a_finite_step_forgives_skipped_ones() {
    let mut optimizer = single(full(&[2], 1.0, Kind::Float), AdamWOptions { max_skipped_steps: 1, ..unclipped() });
    for _ in 0..3 {
        optimizer.skip_step(f64::NAN).unwrap();
        optimizer.step(&[Some(full(&[2], 0.5, Kind::Float))], 1e-3).unwrap();
    }
    assert_eq!(optimizer.num_steps(), 3);
}

#[test]
fn a_rate_of_zero_leaves_the_weights() {
    let mut optimizer = single(full(&[2, 2], 1.0, Kind::Float), unclipped());
    let report = optimizer.step(&[Some(full(&[2, 2], 0.0, Kind::Float))], 0.0).unwrap();
    assert_eq!(report.changed_weight_fraction(), 0.0);
    assert!(optimizer.slots[0].weights.equal(&full(&[4], 1.0, Kind::Float)));
}

#[test]
fn leaves_and_their_gradients_are_shared() {
    let leaf = full(&[2, 3], 0.5, Kind::Float).set_requires_grad(true);
    let mut optimizer = single(leaf.shallow_clone(), unclipped());
    assert!(optimizer.gradients()[0].is_none());
    (&leaf * 2.0).sum(Kind::Float).backward();
    let grads = optimizer.gradients();
    optimizer.step(&grads, 0.25).unwrap();
    assert!(leaf.detach().allclose(&full(&[2, 3], 0.5 * (1.0 - 0.0025) - 0.25, Kind::Float), 1e-5, 0.0, false));
}

#[test]
fn pieces_take_the_steps_of_the_whole() {
    for weights in [WeightUpdate::Fp32Master, WeightUpdate::Bf16Stochastic] {
        let leaf = || (Tensor::arange(12, (Kind::Float, Device::Cpu)).view([3, 4]) / 7.0).to_kind(Kind::BFloat16);
        let other = || full(&[5], 0.25, Kind::BFloat16);
        let params =
            |a: &Tensor, b: &Tensor| vec![("a".to_owned(), a.shallow_clone()), ("b".to_owned(), b.shallow_clone())];
        let options = AdamWOptions { weights, weight_decay: 0.1, ..AdamWOptions::default() };
        let (whole_a, whole_b, cut_a, cut_b) = (leaf(), other(), leaf(), other());
        let mut whole = AdamW::new(params(&whole_a, &whole_b), options).unwrap();
        let piece = |param, start, len| Piece { param, start, len };
        let cuts = [vec![piece(1, 0, 2), piece(0, 0, 7)], vec![piece(0, 7, 5), piece(1, 2, 3)]];
        let mut parts = cuts.clone().map(|cut| AdamW::of_pieces(params(&cut_a, &cut_b), &cut, options).unwrap());
        for step in 1..=4 {
            let grads = [full(&[12], 0.3 * f64::from(step), Kind::Float), full(&[5], -0.2, Kind::Float)];
            let report = whole.step(&grads.each_ref().map(|g| Some(g.shallow_clone())), 1e-2).unwrap();
            let of = |cut: &[Piece]| -> Vec<_> {
                cut.iter().map(|p| Some(grads[p.param].narrow(0, p.start, p.len))).collect()
            };
            let squares: Vec<Vec<f64>> =
                parts.iter().zip(&cuts).map(|(part, cut)| part.squared_norms(&of(cut))).collect();
            let sums: Vec<f64> = (0..2).map(|i| squares[0][i] + squares[1][i]).collect();
            let mut num_changed = 0;
            for (part, cut) in parts.iter_mut().zip(&cuts) {
                let one = part.step_with_norms(&of(cut), &sums, 1e-2).unwrap();
                assert!((one.grad_norm / report.grad_norm - 1.0).abs() < 1e-12 && one.clipped == report.clipped);
                num_changed += one.num_changed;
            }
            assert_eq!(num_changed, report.num_changed);
        }
        assert!(cut_a.equal(&whole_a) && cut_b.equal(&whole_b), "{weights:?}");
    }
}

#[test]
fn other_types_are_refused() {
    let params = vec![("w".to_owned(), full(&[2], 1.0, Kind::Half))];
    let error = AdamW::new(params, AdamWOptions::default()).unwrap_err().to_string();
    assert!(error.contains("`w`") && error.contains("Half"), "{error}");
}
