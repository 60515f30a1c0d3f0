//! A random start that already copies: what attention and DeltaNet layers of trained models do with a repeated text, written into
//! their first weights, so that a small model need not find it by itself before it can learn to read.
//!
//! The idea is mimetic initialization (Trockman & Kolter 2023, arXiv 2305.09828; for recurrent layers Trockman et al. 2024, arXiv
//! 2410.11135); the circuit is the induction head (Olsson et al. 2022, arXiv 2209.11895). Where the papers take products of
//! weights close to the identity, this writes shared orthonormal projections:
//!
//! - one channel of the residual stream is constant, so that gates have something to stand on;
//! - nothing is written to the stream but by what follows, so that it starts as the tokens themselves;
//! - the first DeltaNet layer forgets at once in the value heads of its first key head and writes the previous token there;
//! - the first attention layer after it looks for what came after an earlier occurrence of the current token, and copies it;
//! - further attention layers look at tokens like the current one, and copy them.
//!
//! Everything is trained afterwards like any other weight. Letters: h hidden, d head dimension, n channels of the previous token.

use super::config::{LayerKind, ModelConfig};
use super::error::ModelFault;
use super::weights::Parameter;
use tch::{Device, Kind, Tensor};

/// The constant channel of the embedding, in units of the other channels' standard deviation.
const CONSTANT: f64 = 4.0;
/// Weights from the constant channel, whose value after the norm is about 4, to the output gate (SiLU) and to the writing
/// strength (sigmoid) of a DeltaNet.
const GATE_FROM_CONSTANT: f64 = 0.5;
const STRENGTH_FROM_CONSTANT: f64 = 0.3;
/// Tap of a convolution that passes one token; the others are about 0.
const TAP: f64 = 0.5;
/// Decay rate of heads that remember, and of heads that forget within a token.
const SLOW: f64 = 1.5;
const FAST: f64 = 16.0;
/// Time step's bias of heads that forget: softplus(2) is about 2.
const LONG_STEP: f64 = 2.0;
/// Scale of what is written to the stream, which starts at about 0.06 a channel: the previous token, a token that is
/// copied by induction, one that is copied because it is alike.
const WRITE_PREVIOUS: f64 = 0.04;
const WRITE_FOLLOWING: f64 = 0.3;
const WRITE_ALIKE: f64 = 0.1;
/// Weight of the centred q and k norms of the induction layer: scores have to stand out among hundreds of positions.
const SHARPNESS: f64 = 0.5;

/// Writes the circuit into freshly drawn parameters. Draws from libtorch's generator, so that a seed decides it.
///
/// # Errors
/// The configuration has no DeltaNet layer that an attention layer follows, or its heads are wider than the stream.
pub fn imitate(parameters: &[Parameter], config: &ModelConfig, range: f64) -> Result<(), ModelFault> {
    let fault = |key: &str, message: &str| ModelFault::Config {
        file: config.file.clone(),
        key: key.to_owned(),
        message: message.to_owned(),
    };
    let first = config.layers.iter().position(|kind| *kind == LayerKind::LinearAttention);
    let next = first.and_then(|first| {
        config.layers.iter().skip(first).position(|kind| *kind == LayerKind::FullAttention).map(|more| first + more)
    });
    let (Some(first), Some(next)) = (first, next) else {
        return Err(fault("layer_types", "must have a linear_attention layer before a full_attention layer"));
    };
    let mimic = Mimic { parameters, config };
    if config.attention.rotary_dim == config.attention.head_dim {
        return Err(fault(
            "partial_rotary_factor",
            "must leave dimensions unrotated, by which tokens are found anywhere",
        ));
    }
    if mimic.previous_channels() > config.hidden_size || mimic.value_channels() > config.hidden_size {
        return Err(fault("head_dim", "must leave all value heads together within hidden_size"));
    }
    let _guard = tch::no_grad_guard();
    mimic.start_stream(range);
    let circuit = mimic.previous_token(first);
    for (layer, kind) in config.layers.iter().enumerate() {
        match kind {
            LayerKind::LinearAttention => mimic.steady_gates(layer, layer == first),
            LayerKind::FullAttention => mimic.attention(layer, (layer == next).then_some(&circuit), range),
        }
    }
    Ok(())
}

/// Where the previous token lies in the stream: read by `read_nh`, written by `write_hn`.
struct PreviousToken {
    read_nh: Tensor,
    write_hn: Tensor,
}

struct Mimic<'a> {
    parameters: &'a [Parameter],
    config: &'a ModelConfig,
}

impl Mimic<'_> {
    fn find(&self, name: &str) -> Tensor {
        let name = format!("{}{name}", self.config.prefix);
        let found = self.parameters.iter().find(|parameter| parameter.name == name);
        found.unwrap_or_else(|| panic!("the list of shapes has {name}")).tensor.shallow_clone()
    }

    /// Value heads that share the first key head, with their channels.
    fn previous_channels(&self) -> i64 {
        self.config.delta_net.map_or(0, |net| net.num_value_heads / net.num_key_heads * net.value_head_dim)
    }

    fn value_channels(&self) -> i64 {
        self.config.attention.num_key_value_heads * self.config.attention.head_dim
    }

    fn start_stream(&self, range: f64) {
        let _ = self.find("embed_tokens.weight").select(1, 0).fill_(CONSTANT * range);
        for parameter in self.parameters {
            if ["o_proj.weight", "out_proj.weight", "down_proj.weight"].iter().any(|end| parameter.name.ends_with(end))
            {
                let _ = parameter.tensor.shallow_clone().zero_();
            }
        }
    }

    /// Gates that are open whatever the token, and heads that remember (but for those that hold the previous token).
    fn steady_gates(&self, layer: usize, holds_previous: bool) {
        let name = |part: &str| self.find(&format!("layers.{layer}.linear_attn.{part}"));
        let _ = name("in_proj_a.weight").select(1, 0).zero_();
        let _ = name("in_proj_z.weight").select(1, 0).fill_(GATE_FROM_CONSTANT);
        let _ = name("in_proj_b.weight").select(1, 0).fill_(STRENGTH_FROM_CONSTANT);
        let net = self.config.delta_net.expect("a config with linear layers has their shape");
        let fast = if holds_previous { net.num_value_heads / net.num_key_heads } else { 0 };
        let mut rates = name("A_log");
        let _ = rates.fill_(SLOW.ln());
        let _ = rates.narrow(0, 0, fast).fill_(FAST.ln());
        let _ = name("dt_bias").narrow(0, 0, fast).fill_(LONG_STEP);
    }

    /// Keys equal queries, so that a head reads what it has just written, and values come one token late.
    fn previous_token(&self, layer: usize) -> PreviousToken {
        let net = self.config.delta_net.expect("a config with linear layers has their shape");
        let (keys, n) = (net.num_key_heads * net.key_head_dim, self.previous_channels());
        let part = |name: &str| self.find(&format!("layers.{layer}.linear_attn.{name}"));
        let (mixed, conv) = (part("in_proj_qkv.weight"), part("conv1d.weight"));
        let _ = mixed.select(1, 0).zero_();
        mixed.narrow(0, keys, keys).copy_(&mixed.narrow(0, 0, keys));
        let read_nh = without_first(orthonormal(n, self.config.hidden_size), 1);
        mixed.narrow(0, 2 * keys, n).copy_(&(&read_nh * TAP));
        let last = net.conv_kernel - 1;
        let _ = conv.select(2, last).fill_(TAP);
        let _ = conv.narrow(0, 2 * keys, n).zero_();
        let _ = conv.narrow(0, 2 * keys, n).select(2, last - 1).fill_(TAP);
        let write_hn = without_first(orthonormal(self.config.hidden_size, n), 0);
        part("out_proj.weight").narrow(1, 0, n).copy_(&(&write_hn * WRITE_PREVIOUS));
        PreviousToken { read_nh, write_hn }
    }

    /// The first query head of each group follows the circuit if there is one; all others look for what is alike.
    fn attention(&self, layer: usize, circuit: Option<&PreviousToken>, range: f64) {
        let shape = &self.config.attention;
        let (dim, hidden) = (shape.head_dim, self.config.hidden_size);
        let (groups, per_group) = (shape.num_key_value_heads, shape.num_heads / shape.num_key_value_heads);
        let part = |name: &str| self.find(&format!("layers.{layer}.self_attn.{name}"));
        let width = if shape.output_gate { 2 } else { 1 };
        let query = part("q_proj.weight").view([shape.num_heads, width, dim, hidden]);
        let (key, mut value) = (part("k_proj.weight"), part("v_proj.weight"));
        let output = part("o_proj.weight").view([hidden, shape.num_heads, dim]);
        let _ = query.select(3, 0).zero_();
        let _ = key.select(1, 0).zero_();
        value.copy_(&without_first(orthonormal(groups * dim, hidden), 1));
        for group in 0..groups {
            let own = |x: &Tensor| x.narrow(0, group * dim, dim);
            let copied = own(&value).transpose(0, 1);
            for head in group * per_group..(group + 1) * per_group {
                let follows = circuit.filter(|_| head == group * per_group);
                match follows {
                    Some(circuit) => {
                        let matching = self.matching(self.previous_channels());
                        own(&key).copy_(&matching.matmul(&circuit.write_hn.transpose(0, 1)));
                        query.select(0, head).select(0, 0).copy_(&matching.matmul(&circuit.read_nh));
                    }
                    // Beside the circuit keys hold the previous token, and there is nothing alike to look for.
                    None if circuit.is_some() => {}
                    None => {
                        let noise = without_first(Tensor::randn([dim, hidden], options()) * (range / 2.0), 1);
                        query.select(0, head).select(0, 0).copy_(&(own(&key) + noise));
                    }
                }
                let scale = if follows.is_some() { WRITE_FOLLOWING } else { WRITE_ALIKE };
                output.select(1, head).copy_(&(&copied * scale));
            }
        }
        if circuit.is_some() && shape.qk_norm {
            let _ = part("q_norm.weight").g_add_scalar_(SHARPNESS);
            let _ = part("k_norm.weight").g_add_scalar_(SHARPNESS);
        }
    }

    /// A projection of `n` channels to a head's dimensions that are not rotated by the position.
    fn matching(&self, n: i64) -> Tensor {
        let shape = &self.config.attention;
        let free = shape.head_dim - shape.rotary_dim;
        let rotated = Tensor::zeros([shape.rotary_dim, n], options());
        Tensor::cat(&[rotated, orthonormal(free, n)], 0)
    }
}

fn options() -> (Kind, Device) {
    (Kind::Float, Device::Cpu)
}

/// [rows, columns] with orthonormal rows or columns, whichever are fewer.
fn orthonormal(rows: i64, columns: i64) -> Tensor {
    let (long, short) = (rows.max(columns), rows.min(columns));
    let (q, _) = Tensor::linalg_qr(&Tensor::randn([long, short], options()), "reduced");
    if rows >= columns { q } else { q.transpose(0, 1).contiguous() }
}

/// Takes the constant channel out of a projection's input or output.
fn without_first(projection: Tensor, dim: i64) -> Tensor {
    let _ = projection.select(dim, 0).zero_();
    projection
}
