//! Draws tokens and says how likely each was under the distribution it was drawn from.
//!
//! Dimensions: R rows, V tokens.

use napmem_rollout::generate::Sampling;
use tch::{Device, Kind, Tensor};

/// One drawn token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    /// The token.
    pub token: u32,
    /// ln p under the sampled distribution.
    pub logprob: f32,
}

/// Draws one token a row from `logits` fp32 [R, V]; `uniforms` has one number in [0, 1) a row.
///
/// Temperature, top-k and top-p shape the distribution first, so that log-probabilities are those of what was sampled. The
/// draw inverts the cumulative distribution in fp64: the first token whose cumulative probability exceeds the uniform, which
/// never is one of probability 0. Temperature 0 takes the most likely token, with its log-probability at temperature 1.
pub fn sample(logits_rv: &Tensor, sampling: &Sampling, uniforms: &[f64]) -> Vec<Draw> {
    let greedy = sampling.temperature == 0.0;
    let shaped =
        if greedy { logits_rv.shallow_clone() } else { truncate(&(logits_rv / sampling.temperature), sampling) };
    let logprobs_rv = shaped.log_softmax(-1, Kind::Float);
    let tokens_r = if greedy { logprobs_rv.argmax(-1, false) } else { invert(&logprobs_rv, uniforms) };
    let chosen_r = logprobs_rv.gather(1, &tokens_r.unsqueeze(1), false).squeeze_dim(1);
    let tokens = Vec::<i64>::try_from(tokens_r.to_device(Device::Cpu)).expect("i64 [R]");
    let chosen = Vec::<f32>::try_from(chosen_r.to_device(Device::Cpu)).expect("f32 [R]");
    tokens.into_iter().zip(chosen).map(|(token, logprob)| Draw { token: token as u32, logprob }).collect()
}

fn invert(logprobs_rv: &Tensor, uniforms: &[f64]) -> Tensor {
    let (rows, tokens) = logprobs_rv.size2().expect("logits are [R, V]");
    assert_eq!(rows as usize, uniforms.len(), "one uniform a row");
    let cumulative = logprobs_rv.to_kind(Kind::Double).exp().cumsum(1, Kind::Double);
    let total = cumulative.narrow(1, tokens - 1, 1);
    let target = Tensor::from_slice(uniforms).to_device(logprobs_rv.device()).unsqueeze(1) * total;
    let sorter = None::<&Tensor>;
    target.searchsorted(&cumulative, false, true, "right", sorter).squeeze_dim(1).clamp_max(tokens - 1)
}

/// Sets logits outside the top-k and top-p sets to −∞. Ties at the top-k boundary keep all equal tokens.
fn truncate(logits_rv: &Tensor, sampling: &Sampling) -> Tensor {
    let tokens = logits_rv.size()[1];
    let mut kept = logits_rv.shallow_clone();
    if sampling.top_k > 0 && (sampling.top_k as i64) < tokens {
        let (largest, _) = kept.topk(sampling.top_k as i64, -1, true, true);
        let floor = largest.narrow(1, sampling.top_k as i64 - 1, 1);
        kept = kept.masked_fill(&kept.less_tensor(&floor), f64::NEG_INFINITY);
    }
    if sampling.top_p < 1.0 {
        let (sorted, order) = kept.sort(-1, true);
        let probabilities = sorted.softmax(-1, Kind::Double);
        // A token is kept while the mass *before* it is below top_p: the first one always is.
        let before = probabilities.cumsum(-1, Kind::Double) - &probabilities;
        let dropped_sorted = before.greater_equal(sampling.top_p);
        let dropped = dropped_sorted.zeros_like().scatter(1, &order, &dropped_sorted);
        kept = kept.masked_fill(&dropped, f64::NEG_INFINITY);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(temperature: f64, top_p: f64, top_k: usize) -> Sampling {
        Sampling { temperature, top_p, top_k }
    }

    fn logits(probabilities: &[f64]) -> Tensor {
        Tensor::from_slice(probabilities).log().to_kind(Kind::Float).unsqueeze(0)
    }

    #[test]
    fn the_draw_inverts_the_cumulative_distribution() {
        let logits = logits(&[0.1, 0.0, 0.4, 0.5]);
        for (uniform, token) in [(0.0, 0), (0.09, 0), (0.11, 2), (0.49, 2), (0.51, 3), (0.999_999, 3)] {
            let draw = sample(&logits, &plain(1.0, 1.0, 0), &[uniform])[0];
            assert_eq!(draw.token, token, "u = {uniform}");
        }
    }

    #[test]
    fn logprobs_are_those_of_the_shaped_distribution() {
        let logits = logits(&[0.1, 0.2, 0.3, 0.4]);
        let cases = [
            (plain(1.0, 1.0, 0), 0.95, 3, 0.4f64),
            (plain(1.0, 1.0, 2), 0.0, 2, 0.3 / 0.7),
            (plain(1.0, 0.65, 0), 0.0, 2, 0.3 / 0.7),
            (plain(1.0, 0.1, 0), 0.5, 3, 1.0),
            (plain(0.5, 1.0, 0), 0.99, 3, 0.16 / 0.30),
            (plain(0.0, 1.0, 0), 0.1, 3, 0.4),
        ];
        for (sampling, uniform, token, probability) in cases {
            let draw = sample(&logits, &sampling, &[uniform])[0];
            assert_eq!(draw.token, token, "{sampling:?}");
            assert!((f64::from(draw.logprob) - probability.ln()).abs() < 1e-5, "{sampling:?}: {draw:?}");
        }
    }
}
