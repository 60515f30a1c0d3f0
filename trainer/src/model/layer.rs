//! One decoder layer: `h += mixer(norm(h)); h += mlp(norm(h))`.

use super::attention::Attention;
use super::cache::LayerCache;
use super::delta_net::GatedDeltaNet;
use super::layout::PackedLayout;
use super::linear::Linear;
use super::norm::RmsNorm;
use super::rope::Rotation;
use tch::Tensor;

/// What all layers of one forward share.
#[derive(Debug)]
pub struct BatchContext<'a> {
    /// Where the sequences lie.
    pub layout: &'a PackedLayout,
    /// Rotary tables of the packed positions.
    pub rotation: &'a Rotation,
    /// With a cache and one token a row: rows that advance, bool [R]; `None` when all do.
    pub active_r: Option<&'a Tensor>,
}

/// What mixes tokens in a layer.
#[derive(Debug)]
pub enum Mixer {
    /// Softmax attention.
    Attention(Attention),
    /// Gated DeltaNet.
    DeltaNet(GatedDeltaNet),
}

/// SwiGLU feed-forward: `down(silu(gate x) · up x)`.
#[derive(Debug)]
pub struct Mlp {
    /// [intermediate, hidden].
    pub gate: Linear,
    /// [intermediate, hidden].
    pub up: Linear,
    /// [hidden, intermediate].
    pub down: Linear,
}

impl Mlp {
    fn forward(&self, x_th: &Tensor) -> Tensor {
        self.down.forward(&(self.gate.forward(x_th).silu() * self.up.forward(x_th)))
    }
}

/// A decoder layer.
#[derive(Debug)]
pub struct DecoderLayer {
    /// Before the mixer.
    pub input_norm: RmsNorm,
    /// Attention or DeltaNet.
    pub mixer: Mixer,
    /// Before the MLP.
    pub post_norm: RmsNorm,
    /// Feed-forward.
    pub mlp: Mlp,
}

impl DecoderLayer {
    /// Residual stream `x` [T, hidden] to the same shape and dtype; reads and advances `cache` where there is one.
    pub fn forward(&self, x_th: &Tensor, batch: &BatchContext, cache: Option<&mut LayerCache>) -> Tensor {
        let normal = self.input_norm.forward(x_th);
        let mixed = match &self.mixer {
            Mixer::Attention(attention) => attention.forward(&normal, batch, cache),
            Mixer::DeltaNet(delta_net) => delta_net.forward(&normal, batch, cache),
        };
        let x_th = x_th + mixed;
        let fed = self.mlp.forward(&self.post_norm.forward(&x_th));
        x_th + fed
    }
}
