//! Gated DeltaNet: a causal convolution, a gated delta rule with an fp32 state, a gated norm.
//!
//! Source of the equations: transformers 5.23 `models/qwen3_5/modeling_qwen3_5.py` and "Gated Delta Networks"
//! (arXiv 2412.06464); the chunked form is its section 3.3 with a triangular solve in place of an explicit inverse.
//!
//! Dimensions: T packed tokens, R rows, L longest row, H value heads, K and V head dimensions of keys and values,
//! N chunks, C tokens of a chunk, W window of the convolution.

use super::cache::LayerCache;
use super::config::DeltaNetConfig;
use super::layer::BatchContext;
use super::layout::PackedLayout;
use super::linear::Linear;
use super::norm::gated_rms_norm;
use tch::{Kind, Tensor};

/// Tokens of a chunk.
const CHUNK: i64 = 64;
/// Epsilon inside the q/k normalisation.
const L2_EPS: f64 = 1e-6;

/// The parameters of one DeltaNet layer.
#[derive(Debug)]
pub struct GatedDeltaNet {
    /// Shape.
    pub config: DeltaNetConfig,
    /// RMSNorm's epsilon.
    pub eps: f64,
    /// [channels of q, k, v, hidden].
    pub in_qkv: Linear,
    /// [H·V, hidden].
    pub in_z: Linear,
    /// [H, hidden].
    pub in_b: Linear,
    /// [H, hidden].
    pub in_a: Linear,
    /// [channels, 1, W + 1].
    pub conv: Tensor,
    /// [H], fp32.
    pub a_log: Tensor,
    /// [H], fp32.
    pub dt_bias: Tensor,
    /// [V], fp32.
    pub norm: Tensor,
    /// [hidden, H·V].
    pub output: Linear,
}

/// Inputs of the delta rule, heads before time: `q`, `k` [R, H, L, K], `v` [R, H, L, V], `g`, `beta` [R, H, L], all fp32;
/// q and k normalised, q scaled.
struct DeltaInputs {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
}

/// What rows leave for the tokens after them, and branches inherit.
struct Past {
    /// Last inputs of the convolution [R, W, C], in the model's dtype.
    window: Tensor,
    /// State [R, H, K, V], fp32.
    state: Tensor,
}

impl GatedDeltaNet {
    /// `x` [T, hidden] to [T, hidden].
    pub fn forward(&self, x_th: &Tensor, batch: &BatchContext, cache: Option<&mut LayerCache>) -> Tensor {
        let projected =
            [self.in_qkv.forward(x_th), self.in_b.forward(x_th).sigmoid(), self.gate(&self.in_a.forward(x_th))];
        let mixed = match cache {
            None => self.uncached(&projected, batch.layout),
            Some(LayerCache::Linear { window, state }) => {
                let past = Past { window: window.shallow_clone(), state: state.shallow_clone() };
                let (mixed, next) = self.mix(&projected, batch.layout, Some(&past), batch.active_r);
                *window = match batch.active_r {
                    Some(active) => next.window.where_self(&active.view([-1, 1, 1]), window),
                    None => next.window,
                };
                *state = next.state;
                mixed
            }
            Some(LayerCache::Full { .. }) => panic!("a DeltaNet layer was handed an attention cache"),
        };
        self.finish(&mixed, x_th)
    }

    /// Without a cache: rows first, then the branches behind what their rows left. Takes and gives what [`Self::mix`] does,
    /// for all T tokens.
    fn uncached(&self, projected: &[Tensor; 3], layout: &PackedLayout) -> Tensor {
        let Some(branches) = &layout.branches else { return self.mix(projected, layout, None, None).0 };
        let [(qkv, branch_qkv), (beta, branch_beta), (g, branch_g)] = projected.each_ref().map(|x| layout.split(x));
        let own = [branch_qkv, branch_beta, branch_g].map(|x| x.expect("a layout with branches has their tokens"));
        let (mixed, past) = self.mix(&[qkv, beta, g], layout, None, None);
        let past = Past { window: branches.inherit(&past.window), state: branches.inherit(&past.state) };
        let (continued, _) = self.mix(&own, &branches.rows, Some(&past), None);
        Tensor::cat(&[mixed, continued], 0)
    }

    /// Convolution and delta rule over the rows of `layout`, behind `past` where there is one: packed `qkv` [T, C], `beta` and
    /// `g` [T, H] to fp32 [T, H·V] and what the rows leave.
    fn mix(
        &self,
        projected: &[Tensor; 3],
        layout: &PackedLayout,
        past: Option<&Past>,
        active_r: Option<&Tensor>,
    ) -> (Tensor, Past) {
        let [qkv_rlc, beta_rlh, g_rlh] = projected.each_ref().map(|x| layout.to_rows(x));
        let (mixed, window) = self.convolve(&qkv_rlc, past.map(|past| &past.window), layout);
        let DeltaInputs { q, k, v, g, beta } = self.split(&mixed, &beta_rlh, &g_rlh, active_r);
        let state = past.map(|past| &past.state);
        // Shorter than any chunk pays for: one token of each sequence, as when decoding.
        let rule = if past.is_some() && layout.longest == 1 { recurrent_delta_rule } else { chunked_delta_rule };
        let (out_rhlv, state) = rule(&q, &k, &v, &g, &beta, state);
        let width = self.config.num_value_heads * self.config.value_head_dim;
        let rows = out_rhlv.transpose(1, 2).reshape([layout.num_rows(), layout.longest, width]);
        (layout.to_packed(&rows), Past { window, state })
    }

    /// `g = −exp(A_log) · softplus(a + dt_bias)`: fp32 [T, H].
    fn gate(&self, a_th: &Tensor) -> Tensor {
        -(self.a_log.exp() * (a_th.to_kind(Kind::Float) + &self.dt_bias).softplus())
    }

    /// Causal depthwise convolution and SiLU over rows [R, L, C]; also the inputs that the next tokens will need.
    ///
    /// Accumulates in fp32 and rounds once, as a convolution kernel does.
    fn convolve(&self, qkv_rlc: &Tensor, window: Option<&Tensor>, layout: &PackedLayout) -> (Tensor, Tensor) {
        let (rows, longest, channels) = qkv_rlc.size3().expect("rows are [R, L, C]");
        let reach = self.config.conv_kernel - 1;
        let blank = || Tensor::zeros([rows, reach, channels], (qkv_rlc.kind(), qkv_rlc.device()));
        let padded = Tensor::cat(&[&window.map_or_else(blank, Tensor::shallow_clone), qkv_rlc], 1);
        let weight = self.conv.to_kind(Kind::Float);
        let tap = |j: i64| padded.narrow(1, j, longest).to_kind(Kind::Float) * weight.select(2, j).view([1, 1, -1]);
        let sum = (1..=reach).fold(tap(0), |sum, j| sum + tap(j));
        let mixed = sum.to_kind(qkv_rlc.kind()).silu();
        // A row of n tokens ends at padded position n + reach: its last `reach` inputs start at n, whatever the padding.
        let starts = layout.lengths_r.view([-1, 1]);
        let index = starts + Tensor::arange(reach, (Kind::Int64, qkv_rlc.device())).view([1, -1]);
        let index = index.unsqueeze(2).expand([rows, reach, channels], false);
        (mixed, padded.gather(1, &index, false))
    }

    /// Splits q, k, v, repeats key heads for their value heads, normalises in fp32; g and beta are 0 at rows that do not
    /// advance, which leaves the state as it is.
    fn split(&self, mixed_rlc: &Tensor, beta_rlh: &Tensor, g_rlh: &Tensor, active_r: Option<&Tensor>) -> DeltaInputs {
        let net = &self.config;
        let (rows, longest, _) = mixed_rlc.size3().expect("rows are [R, L, C]");
        let keys = net.num_key_heads * net.key_head_dim;
        let repeat = net.num_value_heads / net.num_key_heads;
        let parts = mixed_rlc.split_with_sizes([keys, keys, net.num_value_heads * net.value_head_dim], 2);
        let head = |part: &Tensor, heads: i64, dim: i64| {
            part.to_kind(Kind::Float).reshape([rows, longest, heads, dim]).transpose(1, 2)
        };
        let spread = |x: Tensor| if repeat == 1 { x } else { x.repeat_interleave_self_int(repeat, 1, None) };
        let q =
            l2_normalise(&head(&parts[0], net.num_key_heads, net.key_head_dim)) * (net.key_head_dim as f64).powf(-0.5);
        let k = l2_normalise(&head(&parts[1], net.num_key_heads, net.key_head_dim));
        let v = head(&parts[2], net.num_value_heads, net.value_head_dim);
        let still = |x: Tensor| match active_r {
            Some(active) => x * active.view([-1, 1, 1]).to_kind(Kind::Float),
            None => x,
        };
        let by_head = |x: &Tensor| still(x.to_kind(Kind::Float)).transpose(1, 2);
        DeltaInputs { q: spread(q), k: spread(k), v, g: by_head(g_rlh), beta: by_head(beta_rlh) }
    }

    /// Gated norm and output projection of the mixed values, packed [T, H·V].
    fn finish(&self, mixed: &Tensor, x_th: &Tensor) -> Tensor {
        let (heads, dim) = (self.config.num_value_heads, self.config.value_head_dim);
        let out = mixed.to_kind(x_th.kind()).view([-1, heads, dim]);
        let z = self.in_z.forward(x_th).view([-1, heads, dim]);
        self.output.forward(&gated_rms_norm(&out, &z, &self.norm, self.eps).view([-1, heads * dim]))
    }
}

fn l2_normalise(x: &Tensor) -> Tensor {
    let square = x.square().sum_dim_intlist([-1i64].as_slice(), true, x.kind());
    x * (square + L2_EPS).rsqrt()
}

/// The gated delta rule one token at a time: the definition, and the decode path.
///
/// `S ← e^g S; δ = β (v − Sᵀk); S ← S + k ⊗ δ; o = Sᵀ q`. Arguments as in [`chunked_delta_rule`]; returns `o` [R, H, L, V]
/// and the state [R, H, K, V].
pub fn recurrent_delta_rule(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    g: &Tensor,
    beta: &Tensor,
    state: Option<&Tensor>,
) -> (Tensor, Tensor) {
    let (rows, heads, longest, key_dim) = k.size4().expect("k is [R, H, L, K]");
    let value_dim = v.size()[3];
    let blank = || Tensor::zeros([rows, heads, key_dim, value_dim], (k.kind(), k.device()));
    let mut state = state.map_or_else(blank, Tensor::shallow_clone);
    let mut out = Vec::with_capacity(longest as usize);
    for t in 0..longest {
        let at = |x: &Tensor| x.narrow(2, t, 1);
        let (q_t, k_t) = (at(q), at(k));
        // A new tensor at each step: the old one may still be a cache's, or needed by the backward pass.
        let decayed = &state * at(g).unsqueeze(3).exp();
        let delta = (at(v) - k_t.matmul(&decayed)) * at(beta).unsqueeze(3);
        state = decayed + k_t.transpose(2, 3).matmul(&delta);
        out.push(q_t.matmul(&state));
    }
    (Tensor::cat(&out, 2), state)
}

/// The gated delta rule in chunks of 64 tokens, differentiable.
///
/// `q`, `k` [R, H, L, K] (normalised, q scaled), `v` [R, H, L, V], `g` ≤ 0 and `beta` [R, H, L], `state` [R, H, K, V]; all fp32.
/// Returns `o` [R, H, L, V] and the state after the last token. Positions with g = 0 and beta = 0 leave the state alone.
///
/// Within a chunk, with G the running sum of g and D_ij = e^(G_i − G_j) for j ≤ i: `(I + strict_lower(βKKᵀ∘D)) [U W] =
/// [βV, βK e^G]`; across chunks `V' = U − W S; O = (Q e^G) S + (QKᵀ∘D) V'; S ← e^(G_C) S + (K e^(G_C − G))ᵀ V'`.
pub fn chunked_delta_rule(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    g: &Tensor,
    beta: &Tensor,
    state: Option<&Tensor>,
) -> (Tensor, Tensor) {
    let (rows, heads, longest, key_dim) = k.size4().expect("k is [R, H, L, K]");
    let value_dim = v.size()[3];
    let chunk = CHUNK.min(longest);
    let num_chunks = (longest + chunk - 1) / chunk;
    let tail = num_chunks * chunk - longest;
    let cut = |x: &Tensor| {
        let dim = x.size()[3];
        let x = if tail == 0 { x.shallow_clone() } else { x.constant_pad_nd([0, 0, 0, tail]) };
        x.reshape([rows, heads, num_chunks, chunk, dim])
    };
    let (q, k, v) = (cut(q), cut(k), cut(v));
    let (beta, g) = (cut(&beta.unsqueeze(3)), cut(&g.unsqueeze(3)));
    let sum_g = g.cumsum(3, g.kind());
    let growth = sum_g.exp();
    let decay = pair_decay(&sum_g.squeeze_dim(4), chunk);
    let k_beta = &k * &beta;
    let k_t = k.transpose(3, 4);
    let lower = (k_beta.matmul(&k_t) * &decay).tril(-1);
    let right = Tensor::cat(&[&v * &beta, &k_beta * &growth], 4);
    let solved = lower.linalg_solve_triangular(&right, false, true, true);
    let [u, w] = split_in_two(&solved, value_dim);
    let scores = q.matmul(&k_t) * &decay;
    let q_growth = &q * &growth;
    let last = sum_g.narrow(3, chunk - 1, 1);
    let k_rest = (&k * (&last - &sum_g).exp()).transpose(3, 4);
    let last = last.exp();
    let blank = || Tensor::zeros([rows, heads, key_dim, value_dim], (k.kind(), k.device()));
    let mut state = state.map_or_else(blank, Tensor::shallow_clone);
    let mut out = Vec::with_capacity(num_chunks as usize);
    // Unbound rather than selected: the backward of a selection fills a tensor of the whole size for each chunk.
    let [u, w, q_growth, scores, k_rest, last] = [&u, &w, &q_growth, &scores, &k_rest, &last].map(|x| x.unbind(2));
    for n in 0..num_chunks as usize {
        let fresh = &u[n] - w[n].matmul(&state);
        out.push(q_growth[n].matmul(&state) + scores[n].matmul(&fresh));
        state = state * &last[n] + k_rest[n].matmul(&fresh);
    }
    (Tensor::cat(&out, 2).narrow(2, 0, longest), state)
}

/// The first `size` entries of the last dimension, and the rest.
fn split_in_two(x: &Tensor, size: i64) -> [Tensor; 2] {
    let total = x.size()[x.dim() - 1];
    x.split_with_sizes([size, total - size], -1).try_into().expect("two sizes give two parts")
}

/// `e^(G_i − G_j)` for j ≤ i and 0 above: [.., C] to [.., C, C]. Masked before the exponential, which would overflow there.
fn pair_decay(sum_g: &Tensor, chunk: i64) -> Tensor {
    let above = Tensor::ones([chunk, chunk], (Kind::Bool, sum_g.device())).triu(1);
    let difference = sum_g.unsqueeze(-1) - sum_g.unsqueeze(-2);
    difference.masked_fill(&above, f64::NEG_INFINITY).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    /// fp32 chunked against fp64 recurrent, relative to the largest value. The strongest decay brings running sums of g to
    /// hundreds, where fp32 leaves their differences about five digits.
    const TOLERANCE: f64 = 5e-5;

    /// q, k, v, g, beta and a state for R = 2, H = 3, K = V = `dim`; `gate` scales the decay.
    fn inputs(length: i64, dim: i64, gate: f64, seed: i64) -> [Tensor; 6] {
        tch::manual_seed(seed);
        let random = |shape: &[i64]| Tensor::randn(shape, (Kind::Double, Device::Cpu));
        let vectors = [2, 3, length, dim];
        let (q, k) = (l2_normalise(&random(&vectors)), l2_normalise(&random(&vectors)));
        let g = -(random(&[2, 3, length]).abs() * gate);
        [q, k, random(&vectors), g, random(&[2, 3, length]).sigmoid(), random(&[2, 3, dim, dim])]
    }

    fn relative(found: &Tensor, expected: &Tensor) -> f64 {
        let difference = (found.to_kind(Kind::Double) - expected).abs().max();
        difference.double_value(&[]) / expected.abs().max().double_value(&[]).max(1e-12)
    }

    /// Outputs, final state and gradients of all inputs for a fixed random loss.
    fn run(rule: DeltaRule, kind: Kind, inputs: &[Tensor; 6]) -> Vec<Tensor> {
        let leaves: Vec<Tensor> = inputs.iter().map(|t| t.to_kind(kind).detach().set_requires_grad(true)).collect();
        let [q, k, v, g, beta, state] = &leaves[..] else { unreachable!("six inputs") };
        let (out, last) = rule(q, k, v, g, beta, Some(state));
        tch::manual_seed(99);
        let weigh = |t: &Tensor| (t * Tensor::randn(t.size(), (Kind::Double, Device::Cpu)).to_kind(kind)).sum(kind);
        (weigh(&out) + weigh(&last)).backward();
        let gradients = leaves.iter().map(Tensor::grad);
        [out.detach(), last.detach()].into_iter().chain(gradients).collect()
    }

    type DeltaRule = fn(&Tensor, &Tensor, &Tensor, &Tensor, &Tensor, Option<&Tensor>) -> (Tensor, Tensor);

    #[test]
    fn chunks_equal_the_recurrence_in_values_and_gradients() {
        // Lengths around chunk boundaries; decay from none to a reset at nearly every token.
        for (i, length) in [1, 15, 16, 17, 64, 65, 130].into_iter().enumerate() {
            for (dim, gate) in [(8, 0.05), (32, 1.0), (8, 20.0), (128, 0.0)] {
                let inputs = inputs(length, dim, gate, i as i64);
                let expected = run(recurrent_delta_rule, Kind::Double, &inputs);
                let found = run(chunked_delta_rule, Kind::Float, &inputs);
                for (name, (f, e)) in
                    ["o", "state", "dq", "dk", "dv", "dg", "dbeta", "dstate"].iter().zip(found.iter().zip(&expected))
                {
                    let error = relative(f, e);
                    assert!(error < TOLERANCE, "{name} at length {length}, dim {dim}, gate {gate}: {error}");
                }
            }
        }
    }

    #[test]
    fn identical_keys_are_solved_without_loss() {
        let [q, k, v, g, _, state] = inputs(64, 16, 0.0, 5);
        let k = k.narrow(2, 0, 1).expand([2, 3, 64, 16], false).contiguous();
        let inputs = [q, k, v, &g * 0.0, &g * 0.0 + 0.999, state];
        let expected = run(recurrent_delta_rule, Kind::Double, &inputs);
        let found = run(chunked_delta_rule, Kind::Float, &inputs);
        assert!(relative(&found[0], &expected[0]) < TOLERANCE);
        assert!(relative(&found[1], &expected[1]) < TOLERANCE);
    }
}
