//! Rotary position embedding, NeoX halves, over the first `rotary_dim` dimensions of a head.
//!
//! Dimensions: T packed tokens, H heads, D head dimension, R rotated dimensions.

use super::config::AttentionConfig;
use tch::{Kind, Tensor};

/// cos and sin of a batch's positions.
#[derive(Debug)]
pub struct Rotation {
    cos_tr: Tensor,
    sin_tr: Tensor,
}

impl Rotation {
    /// Tables for `positions` i64 [T], computed in fp32 and cast to `kind`.
    pub fn new(config: &AttentionConfig, positions_t: &Tensor, kind: Kind) -> Self {
        let inverse = inverse_frequencies(config);
        let inverse = Tensor::from_slice(&inverse).to_device(positions_t.device());
        let half = positions_t.to_kind(Kind::Float).unsqueeze(1) * inverse.unsqueeze(0);
        let angle = Tensor::cat(&[&half, &half], 1);
        Self { cos_tr: angle.cos().to_kind(kind), sin_tr: angle.sin().to_kind(kind) }
    }

    /// Rotates `x` [T, H, D].
    pub fn apply(&self, x_thd: &Tensor) -> Tensor {
        let (rotary, head_dim) = (self.cos_tr.size()[1], x_thd.size()[2]);
        let x = x_thd.narrow(2, 0, rotary);
        let half = rotary / 2;
        let turned = Tensor::cat(&[x.narrow(2, half, half).neg(), x.narrow(2, 0, half)], 2);
        let rotated = &x * self.cos_tr.unsqueeze(1) + turned * self.sin_tr.unsqueeze(1);
        if rotary == head_dim {
            return rotated;
        }
        Tensor::cat(&[rotated, x_thd.narrow(2, rotary, head_dim - rotary)], 2)
    }
}

/// `theta^(−2i/R)`, with Llama 3's scaling where configured (transformers `_compute_llama3_parameters`).
fn inverse_frequencies(config: &AttentionConfig) -> Vec<f32> {
    let plain = |i: i64| config.rope_theta.powf(-((2 * i) as f64) / config.rotary_dim as f64);
    let Some([factor, low, high, context]) = config.rope_scaling else {
        return (0..config.rotary_dim / 2).map(|i| plain(i) as f32).collect();
    };
    let scale = |frequency: f64| {
        let wavelength = std::f64::consts::TAU / frequency;
        if wavelength < context / high {
            frequency
        } else if wavelength > context / low {
            frequency / factor
        } else {
            let smooth = (context / wavelength - low) / (high - low);
            (1.0 - smooth) * frequency / factor + smooth * frequency
        }
    };
    (0..config.rotary_dim / 2).map(|i| scale(plain(i)) as f32).collect()
}
