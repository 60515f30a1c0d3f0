//! Mimetic weights copy a repeated text before any training; plain random weights do not.

use crate::scene::{napmem, scene, scratch, succeed, text};
use napmem::model::{Decoder, PackedLayout};
use tch::{Device, Kind, Tensor};

/// Mean logarithm of the probability of the second copy's tokens over that of the first's, in a text of `n` different tokens, said twice.
fn gain_of_repetition(model: &std::path::Path) -> f64 {
    let decoder = Decoder::load(model, Kind::Float, Device::Cpu).unwrap();
    let n = 40;
    let once: Vec<i64> = (0..n).map(|i| 300 + (i * 37) % 600).collect();
    let ids: Vec<i64> = once.iter().chain(&once).copied().collect();
    let _guard = tch::no_grad_guard();
    let layout = PackedLayout::new(&[ids.len() as i64], Device::Cpu);
    let x = decoder.forward(&Tensor::from_slice(&ids), &layout, None, None);
    let logprobs = decoder.logits(&decoder.final_norm(&x)).log_softmax(-1, Kind::Float);
    let mean = |range: std::ops::Range<i64>| {
        let length = (range.end - range.start) as f64;
        range.map(|t| logprobs.double_value(&[t, ids[t as usize + 1]])).sum::<f64>() / length
    };
    // The first token of the second copy is no continuation of anything.
    mean(n..2 * n - 1) - mean(0..n - 1)
}

#[test]
fn repeated_text_is_expected_by_mimetic_weights_alone() {
    let [plain, mimetic] = ["mimetic-plain", "mimetic-copies"].map(scratch);
    for (out, more) in [(&plain, None), (&mimetic, Some("--mimetic"))] {
        let init = scene().init();
        let mut args = vec!["init", "--from", text(&init), "--out", text(out), "--seed", "5"];
        args.extend(more);
        succeed(&args);
    }
    let (without, with) = (gain_of_repetition(&plain), gain_of_repetition(&mimetic));
    assert!(without.abs() < 0.5, "plain random weights gain {without}");
    assert!(with > 1.0, "mimetic weights gain {with} nats a token");
}

#[test]
fn a_model_without_delta_net_is_refused() {
    let out = scratch("mimetic-dense");
    let dense = crate::support::fixture("dense_llama_tiny");
    let finished = napmem(&["init", "--from", text(&dense), "--out", text(&out), "--mimetic"]);
    assert_eq!(finished.code, Some(4), "{}", finished.stderr);
    assert!(finished.stderr.contains("linear_attention"), "{}", finished.stderr);
}
