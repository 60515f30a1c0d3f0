//! Log-probabilities of given tokens, a chunk of positions at a time.
//!
//! Dimensions: N scored tokens, V tokens of the vocabulary.

use super::decoder::Decoder;
use tch::{Kind, Tensor};

/// What the head says of a chunk of positions.
#[derive(Debug)]
pub struct HeadScores {
    /// ln p of each target, fp32 [N]; carries gradients where `hidden` does.
    pub logprobs_n: Tensor,
    /// Entropy of each position's distribution in nats, fp32 [N]; no gradient.
    pub entropy_n: Tensor,
}

/// Scores `targets` i64 [N] from the residual stream `x` [N, hidden] before the final norm, at `temperature`.
///
/// The [N, V] logits live only within this call (and its backward): callers choose N to bound memory.
pub fn score_chunk(decoder: &Decoder, x_nh: &Tensor, targets_n: &Tensor, temperature: f64) -> HeadScores {
    let logits_nv = decoder.logits(&decoder.final_norm(x_nh));
    let logits_nv = if temperature == 1.0 { logits_nv } else { logits_nv / temperature };
    let all_nv = logits_nv.log_softmax(-1, Kind::Float);
    let logprobs_n = all_nv.gather(1, &targets_n.unsqueeze(1), false).squeeze_dim(1);
    let entropy_n = tch::no_grad(|| {
        let detached = all_nv.detach();
        -(detached.exp() * detached).sum_dim_intlist([1i64].as_slice(), false, Kind::Float)
    });
    HeadScores { logprobs_n, entropy_n }
}
