//! RMSNorm in its three uses. Dimensions: any leading, last is normalised.

use super::config::NormStyle;
use tch::{Kind, Tensor};

/// RMSNorm with a weight.
#[derive(Debug)]
pub struct RmsNorm {
    weight: Tensor,
    style: NormStyle,
    eps: f64,
}

impl RmsNorm {
    /// `weight` [C].
    pub fn new(weight: Tensor, style: NormStyle, eps: f64) -> Self {
        Self { weight, style, eps }
    }

    /// Normalises the last dimension in fp32; the result has `x`'s dtype. Qwen3.5 multiplies before the cast, Qwen3 and Llama
    /// after it (transformers `Qwen3_5RMSNorm`, `Qwen3RMSNorm`).
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let kind = x.kind();
        let normal = normalise(&x.to_kind(Kind::Float), self.eps);
        match self.style {
            NormStyle::OnePlusWeight => (normal * (self.weight.to_kind(Kind::Float) + 1.0)).to_kind(kind),
            NormStyle::Weight => normal.to_kind(kind) * &self.weight,
        }
    }
}

/// `x · rsqrt(mean x² + eps)` in fp32.
fn normalise(x: &Tensor, eps: f64) -> Tensor {
    let mean_square = x.square().mean_dim([-1i64].as_slice(), true, Kind::Float);
    x * (mean_square + eps).rsqrt()
}

/// The DeltaNet's gated norm (transformers `Qwen3_5RMSNormGated`): fp32 normalise, cast, times `weight`, times SiLU of the
/// gate in fp32, cast. `x` and `gate` [.., dv], `weight` [dv] fp32; the result has `x`'s dtype.
pub fn gated_rms_norm(x: &Tensor, gate: &Tensor, weight: &Tensor, eps: f64) -> Tensor {
    let kind = x.kind();
    let normal = normalise(&x.to_kind(Kind::Float), eps).to_kind(kind) * weight.to_kind(kind);
    (normal.to_kind(Kind::Float) * gate.to_kind(Kind::Float).silu()).to_kind(kind)
}
