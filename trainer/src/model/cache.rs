//! What a sequence leaves behind for its next tokens: keys and values, convolution window, delta-rule state.
//!
//! Dimensions: R rows (sequences), Hk key/value heads, P positions with room, D head dimension, W convolution window,
//! C channels, Hv value heads, K and V dimensions of the state.

use super::config::{LayerKind, ModelConfig};
use tch::{Device, Kind, Tensor};

/// Positions are added in blocks of this many, so that growing copies rarely.
const GROWTH: i64 = 256;

/// One layer's cache.
#[derive(Debug)]
pub enum LayerCache {
    /// Softmax attention: `keys` and `values` [R, Hk, P, D] in the model's dtype.
    Full {
        /// Rotated keys.
        keys: Tensor,
        /// Values.
        values: Tensor,
    },
    /// Gated DeltaNet.
    Linear {
        /// Last inputs of the convolution [R, W, C], in the model's dtype.
        window: Tensor,
        /// State [R, Hv, K, V] in fp32.
        state: Tensor,
    },
}

impl LayerCache {
    fn tensors(&self) -> [&Tensor; 2] {
        match self {
            Self::Full { keys, values } => [keys, values],
            Self::Linear { window, state } => [window, state],
        }
    }

    fn map(&self, f: impl Fn(&Tensor) -> Tensor) -> Self {
        match self {
            Self::Full { keys, values } => Self::Full { keys: f(keys), values: f(values) },
            Self::Linear { window, state } => Self::Linear { window: f(window), state: f(state) },
        }
    }
}

/// Caches of all layers for a set of rows.
#[derive(Debug)]
pub struct Cache {
    /// One a layer.
    pub layers: Vec<LayerCache>,
    /// Tokens that each row has seen.
    pub lengths: Vec<i64>,
    /// Positions with room in the attention layers.
    pub capacity: i64,
}

impl Cache {
    /// An empty cache for `num_rows` sequences.
    pub fn new(config: &ModelConfig, num_rows: i64, kind: Kind, device: Device) -> Self {
        let layer = |layer_kind: &LayerKind| match layer_kind {
            LayerKind::FullAttention => {
                let shape = [num_rows, config.attention.num_key_value_heads, 0, config.attention.head_dim];
                let empty = || Tensor::zeros(shape, (kind, device));
                LayerCache::Full { keys: empty(), values: empty() }
            }
            LayerKind::LinearAttention => {
                let net = config.delta_net.expect("a config with linear layers has their shape");
                let window = [num_rows, net.conv_kernel - 1, net.conv_channels()];
                let state = [num_rows, net.num_value_heads, net.key_head_dim, net.value_head_dim];
                LayerCache::Linear {
                    window: Tensor::zeros(window, (kind, device)),
                    state: Tensor::zeros(state, (Kind::Float, device)),
                }
            }
        };
        let layers = config.layers.iter().map(layer).collect();
        Self { layers, lengths: vec![0; num_rows as usize], capacity: 0 }
    }

    /// Number of rows.
    pub fn num_rows(&self) -> i64 {
        self.lengths.len() as i64
    }

    /// Copies the given rows, in order; a row may appear several times.
    pub fn select(&self, rows: &[i64]) -> Self {
        let index = Tensor::from_slice(rows);
        let pick = |t: &Tensor| t.index_select(0, &index.to_device(t.device()));
        Self {
            layers: self.layers.iter().map(|layer| layer.map(pick)).collect(),
            lengths: rows.iter().map(|&row| self.lengths[row as usize]).collect(),
            capacity: self.capacity,
        }
    }

    /// Overwrites the given rows with those of `other`, in order.
    pub fn assign(&mut self, rows: &[i64], other: &Self) {
        assert_eq!(rows.len() as i64, other.num_rows(), "one source row for each target row");
        self.reserve(other.capacity);
        let index = Tensor::from_slice(rows);
        for (mine, theirs) in self.layers.iter().zip(&other.layers) {
            for (target, source) in mine.tensors().into_iter().zip(theirs.tensors()) {
                let index = index.to_device(target.device());
                let is_attention = matches!(mine, LayerCache::Full { .. });
                let target = if is_attention { target.narrow(2, 0, other.capacity) } else { target.shallow_clone() };
                let _ = target.shallow_clone().index_copy_(0, &index, source);
            }
        }
        for (&row, &length) in rows.iter().zip(&other.lengths) {
            self.lengths[row as usize] = length;
        }
    }

    /// Makes room for `positions` tokens in each row.
    pub fn reserve(&mut self, positions: i64) {
        if positions <= self.capacity {
            return;
        }
        let capacity = (positions + GROWTH - 1) / GROWTH * GROWTH;
        let grow = |t: &Tensor| {
            let size = t.size();
            let room = Tensor::zeros([size[0], size[1], capacity - size[2], size[3]], (t.kind(), t.device()));
            Tensor::cat(&[t, &room], 2)
        };
        for layer in &mut self.layers {
            if matches!(layer, LayerCache::Full { .. }) {
                *layer = layer.map(grow);
            }
        }
        self.capacity = capacity;
    }
}
