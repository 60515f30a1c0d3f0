//! The decoder against transformers, on small random models of each family (fixtures: `tests/fixtures`).

use crate::support::{Expected, fixture};
use napmem::model::{Decoder, PackedLayout, score_chunk};
use tch::{Device, Kind, Tensor};

/// fp32 logits and hidden states, absolute and relative as `allclose` adds them; transformers' own attention kernels differ by
/// 6e-6 on these models.
const LOGITS_TOLERANCE: f64 = 1e-5;
/// fp32 gradients, relative to the norm of the tensor's gradient.
const GRADIENT_TOLERANCE: f64 = 1e-4;
/// bf16 logits, mean absolute difference: both sides round every activation to 8 bits, at different places; the same
/// models' bf16 and fp32 logits differ by 0.026 to 0.028 on average.
const BF16_MEAN_TOLERANCE: f64 = 0.03;

const MODELS: [&str; 5] =
    ["qwen3_5_tiny", "qwen3_5_tiny_untied", "qwen3_5_tiny_sharded", "dense_qwen3_tiny", "dense_llama_tiny"];

/// The sharded folder has the tiny model's weights under other names, so it has the same results.
fn expected_of(model: &str) -> Expected {
    Expected::read(if model == "qwen3_5_tiny_sharded" { "qwen3_5_tiny" } else { model })
}

fn load(model: &str) -> Decoder {
    Decoder::load(&fixture(model), Kind::Float, Device::Cpu).unwrap()
}

/// Largest |a − b| / (1 + |b|).
fn max_difference(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.size(), b.size());
    ((a - b).abs() / (b.abs() + 1.0)).max().double_value(&[])
}

#[test]
fn every_layer_and_the_logits_equal_transformers() {
    let _guard = tch::no_grad_guard();
    for model in MODELS {
        let (decoder, expected) = (load(model), expected_of(model));
        let layout = PackedLayout::new(&expected.lengths(), Device::Cpu);
        let rotation = decoder.rotation(&layout);
        let mut x = decoder.embed(&expected.get("input_ids"));
        for (i, layer) in decoder.layers().iter().enumerate() {
            x = decoder.run_layer(layer, &x, &layout, &rotation);
            let difference = max_difference(&x, &expected.get(&format!("hidden.layer.{i}")));
            assert!(difference < LOGITS_TOLERANCE, "{model} layer {i}: {difference}");
        }
        let normal = decoder.final_norm(&x);
        let difference = max_difference(&normal, &expected.get("hidden.final_norm"));
        assert!(difference < LOGITS_TOLERANCE, "{model} final norm: {difference}");
        let difference = max_difference(&decoder.logits(&normal), &expected.get("logits"));
        assert!(difference < LOGITS_TOLERANCE, "{model} logits: {difference}");
    }
}

/// The packed positions whose successor is scored, and the successors.
fn scored(expected: &Expected) -> (Tensor, Tensor) {
    let ids = Vec::<i64>::try_from(expected.get("input_ids")).unwrap();
    let mask = Vec::<i64>::try_from(expected.get("loss_mask")).unwrap();
    let at: Vec<i64> = (1..ids.len()).filter(|&t| mask[t] == 1).map(|t| t as i64 - 1).collect();
    let targets: Vec<i64> = at.iter().map(|&t| ids[t as usize + 1]).collect();
    (Tensor::from_slice(&at), Tensor::from_slice(&targets))
}

#[test]
fn masked_logprobs_and_all_gradients_equal_transformers() {
    for model in MODELS {
        let (decoder, expected) = (load(model), expected_of(model));
        for parameter in &decoder.parameters {
            let _ = parameter.tensor.set_requires_grad(true);
        }
        let layout = PackedLayout::new(&expected.lengths(), Device::Cpu);
        let x = decoder.forward(&expected.get("input_ids"), &layout, None, None);
        let (at, targets) = scored(&expected);
        let scores = score_chunk(&decoder, &x.index_select(0, &at), &targets, 1.0);
        let reference = expected.get("logprobs").index_select(0, &(&at + 1));
        let difference = max_difference(&scores.logprobs_n.detach(), &reference);
        assert!(difference < LOGITS_TOLERANCE, "{model} logprobs: {difference}");
        (-scores.logprobs_n.mean(Kind::Float)).backward();
        for parameter in &decoder.parameters {
            let name = parameter.name.replace("model.language_model.", "model.");
            let reference = expected.get(&format!("grad.{name}"));
            let relative =
                (parameter.tensor.grad() - &reference).norm().double_value(&[]) / reference.norm().double_value(&[]);
            assert!(relative < GRADIENT_TOLERANCE, "{model} gradient of {name}: {relative}");
        }
    }
}

#[test]
fn greedy_tokens_equal_transformers_by_prefill_and_decode() {
    let _guard = tch::no_grad_guard();
    for model in MODELS {
        let (decoder, expected) = (load(model), expected_of(model));
        let prompt = expected.get("greedy.prompt_ids");
        let mut cache = decoder.new_cache(1);
        let mut logits = decoder.advance(&prompt, &[prompt.size()[0]], &mut cache, None);
        let mut tokens = Vec::new();
        for step in 0..64 {
            let difference = max_difference(&logits.squeeze_dim(0), &expected.get("greedy.logits").select(0, step));
            assert!(difference < LOGITS_TOLERANCE, "{model} step {step}: {difference}");
            let token = logits.argmax(-1, false);
            tokens.push(token.int64_value(&[0]));
            logits = decoder.advance(&token, &[1], &mut cache, None);
        }
        assert_eq!(tokens, Vec::<i64>::try_from(expected.get("greedy.ids")).unwrap(), "{model}");
    }
}

#[test]
fn packed_sequences_equal_separate_ones() {
    let _guard = tch::no_grad_guard();
    for model in MODELS {
        let (decoder, expected) = (load(model), expected_of(model));
        let (ids, lengths) = (expected.get("input_ids"), expected.lengths());
        let packed = decoder.forward(&ids, &PackedLayout::new(&lengths, Device::Cpu), None, None);
        let mut start = 0;
        for &length in &lengths {
            let alone =
                decoder.forward(&ids.narrow(0, start, length), &PackedLayout::new(&[length], Device::Cpu), None, None);
            let difference = max_difference(&alone, &packed.narrow(0, start, length));
            assert!(difference < LOGITS_TOLERANCE, "{model} length {length}: {difference}");
            start += length;
        }
    }
}

#[test]
fn ragged_prefill_then_decode_equals_the_full_forward() {
    let _guard = tch::no_grad_guard();
    for model in MODELS {
        let (decoder, expected) = (load(model), expected_of(model));
        let (ids, lengths) = (expected.get("input_ids"), expected.lengths());
        let full = decoder.forward(&ids, &PackedLayout::new(&lengths, Device::Cpu), None, None);
        let starts: Vec<i64> = lengths.iter().scan(0, |sum, n| Some(std::mem::replace(sum, *sum + n))).collect();
        // Each row in three pieces of different sizes: a third, then all but the last two tokens, then those one by one.
        let rows: Vec<usize> = (0..lengths.len()).filter(|&r| lengths[r] > 4).collect();
        let mut cache = decoder.new_cache(rows.len() as i64);
        let mut done = vec![0; rows.len()];
        let ends: [&dyn Fn(i64) -> i64; 4] = [&|n| n / 3, &|n| n - 2, &|n| n - 1, &|n| n];
        for end in ends {
            let pieces: Vec<i64> = rows.iter().zip(&done).map(|(&r, &d)| end(lengths[r]) - d).collect();
            let parts: Vec<Tensor> =
                rows.iter().enumerate().map(|(i, &r)| ids.narrow(0, starts[r] + done[i], pieces[i])).collect();
            let logits = decoder.advance(&Tensor::cat(&parts, 0), &pieces, &mut cache, None);
            for (i, &r) in rows.iter().enumerate() {
                done[i] += pieces[i];
                let reference = decoder.logits(&decoder.final_norm(&full.narrow(0, starts[r] + done[i] - 1, 1)));
                let difference = max_difference(&logits.narrow(0, i as i64, 1), &reference);
                assert!(difference < LOGITS_TOLERANCE, "{model} row {r} at {}: {difference}", done[i]);
            }
        }
    }
}

#[test]
fn rows_that_rest_keep_their_state() {
    let _guard = tch::no_grad_guard();
    for model in ["qwen3_5_tiny", "dense_qwen3_tiny"] {
        let (decoder, expected) = (load(model), expected_of(model));
        let prompt = expected.get("greedy.prompt_ids");
        let length = prompt.size()[0];
        let both = Tensor::cat(&[&prompt, &prompt], 0);
        let mut cache = decoder.new_cache(2);
        let first = decoder.advance(&both, &[length, length], &mut cache, None);
        let next = first.argmax(-1, false);
        for _ in 0..3 {
            let _ = decoder.advance(&next, &[1, 1], &mut cache, Some(&[true, false]));
        }
        assert_eq!(cache.lengths, [length + 3, length], "{model}");
        let late = decoder.advance(&next, &[1, 1], &mut cache, Some(&[false, true]));
        let mut alone = decoder.new_cache(1);
        let _ = decoder.advance(&prompt, &[length], &mut alone, None);
        let reference = decoder.advance(&next.narrow(0, 1, 1), &[1], &mut alone, None);
        let difference = max_difference(&late.narrow(0, 1, 1), &reference);
        assert!(difference < LOGITS_TOLERANCE, "{model}: {difference}");
    }
}

#[test]
fn bf16_logits_are_as_near_as_rounding_allows() {
    let _guard = tch::no_grad_guard();
    for model in ["qwen3_5_tiny", "qwen3_5_tiny_untied"] {
        let expected = Expected::read(model);
        let decoder = Decoder::load(&fixture(model), Kind::BFloat16, Device::Cpu).unwrap();
        let layout = PackedLayout::new(&expected.lengths(), Device::Cpu);
        let x = decoder.forward(&expected.get("input_ids"), &layout, None, None);
        let logits = decoder.logits(&decoder.final_norm(&x));
        let mean = (logits - expected.get("bf16.logits")).abs().mean(Kind::Float).double_value(&[]);
        assert!(mean < BF16_MEAN_TOLERANCE, "{model}: {mean}");
    }
}
