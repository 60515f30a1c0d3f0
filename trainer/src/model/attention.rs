//! Grouped-query softmax attention, with Qwen3.5's output gate and q/k norms where configured.
//!
//! Dimensions: T packed tokens, R rows, L longest row, H query heads, K key/value heads, G = H / K, D head dimension,
//! P positions of keys and values: cached ones, or those of a row and a branch.

use super::cache::LayerCache;
use super::config::AttentionConfig;
use super::layer::BatchContext;
use super::layout::PackedLayout;
use super::linear::Linear;
use super::norm::RmsNorm;
use tch::{Kind, Tensor};

/// The projections and norms of one attention layer.
#[derive(Debug)]
pub struct Attention {
    /// Shape.
    pub config: AttentionConfig,
    /// [H·D, hidden], or [H·2D, hidden] with an output gate (per head: query, then gate).
    pub query: Linear,
    /// [K·D, hidden].
    pub key: Linear,
    /// [K·D, hidden].
    pub value: Linear,
    /// [hidden, H·D].
    pub output: Linear,
    /// Norms of query and key heads.
    pub qk_norms: Option<(RmsNorm, RmsNorm)>,
}

impl Attention {
    /// `x` [T, hidden] to [T, hidden].
    pub fn forward(&self, x_th: &Tensor, batch: &BatchContext, cache: Option<&mut LayerCache>) -> Tensor {
        let (heads, key_heads, dim) = (self.config.num_heads, self.config.num_key_value_heads, self.config.head_dim);
        let mut query = self.query.forward(x_th).view([-1, heads, self.query_width()]);
        let mut gate = None;
        if self.config.output_gate {
            let parts = query.split(dim, 2);
            gate = Some(parts[1].reshape([-1, heads * dim]));
            query = parts[0].shallow_clone();
        }
        let mut key = self.key.forward(x_th).view([-1, key_heads, dim]);
        let value = self.value.forward(x_th).view([-1, key_heads, dim]);
        if let Some((query_norm, key_norm)) = &self.qk_norms {
            query = query_norm.forward(&query);
            key = key_norm.forward(&key);
        }
        let (query, key) = (batch.rotation.apply(&query), batch.rotation.apply(&key));
        let mixed = match cache {
            None => self.uncached([query, key, value], batch.layout),
            Some(LayerCache::Full { keys, values }) => {
                let [query, key, value] = [query, key, value].map(|x| heads_first(batch.layout, &x));
                append(keys, &key, batch.layout);
                append(values, &value, batch.layout);
                heads_last(batch.layout, &self.cached(&query, keys, values, batch.layout))
            }
            Some(LayerCache::Linear { .. }) => panic!("an attention layer was handed a DeltaNet cache"),
        };
        let mixed = match gate {
            Some(gate) => mixed * gate.sigmoid(),
            None => mixed,
        };
        self.output.forward(&mixed)
    }

    fn query_width(&self) -> i64 {
        if self.config.output_gate { 2 * self.config.head_dim } else { self.config.head_dim }
    }

    fn scale(&self) -> f64 {
        (self.config.head_dim as f64).powf(-0.5)
    }

    /// Without a cache: packed query [T, H, D], key and value [T, K, D] to [T, H·D]. Branches see their row's keys and values
    /// before their own.
    fn uncached(&self, packed: [Tensor; 3], layout: &PackedLayout) -> Tensor {
        let [(query, branch_query), (key, branch_key), (value, branch_value)] = packed.map(|x| layout.split(&x));
        let [query, key, value] = [query, key, value].map(|x| heads_first(layout, &x));
        let mixed = heads_last(layout, &self.softmax(&query, &key, &value, None));
        let (Some(branches), Some(branch_query), Some(branch_key), Some(branch_value)) =
            (&layout.branches, branch_query, branch_key, branch_value)
        else {
            return mixed;
        };
        let behind =
            |row: &Tensor, own: &Tensor| Tensor::cat(&[branches.inherit(row), heads_first(&branches.rows, own)], 2);
        let (keys, values) = (behind(&key, &branch_key), behind(&value, &branch_value));
        let query = heads_first(&branches.rows, &branch_query);
        let continued = self.softmax(&query, &keys, &values, Some(&branches.visible));
        Tensor::cat(&[mixed, heads_last(&branches.rows, &continued)], 0)
    }

    /// Attention of rows: causal, or where `visible` is true. Padding lies behind the real tokens of a row, where a causal mask
    /// never looks.
    fn softmax(&self, query_rhld: &Tensor, key_rkpd: &Tensor, value_rkpd: &Tensor, visible: Option<&Tensor>) -> Tensor {
        let groups = self.config.num_heads / self.config.num_key_value_heads;
        let (key, value) = (repeat_heads(key_rkpd, groups), repeat_heads(value_rkpd, groups));
        let is_causal = visible.is_none();
        Tensor::scaled_dot_product_attention(query_rhld, &key, &value, visible, 0.0, is_causal, self.scale(), false)
    }

    /// Against the cache, whose rows hold `offset + length` positions. Softmax in fp32.
    fn cached(&self, query_rhld: &Tensor, keys: &Tensor, values: &Tensor, layout: &PackedLayout) -> Tensor {
        let (rows, heads, longest, dim) = query_rhld.size4().expect("query is [R, H, L, D]");
        let (key_heads, groups) = (self.config.num_key_value_heads, heads / self.config.num_key_value_heads);
        let num_positions = layout.offsets.iter().zip(&layout.lengths).map(|(a, b)| a + b).max().expect("not empty");
        let (keys, values) = (keys.narrow(2, 0, num_positions), values.narrow(2, 0, num_positions));
        let query = query_rhld.reshape([rows, key_heads, groups * longest, dim]);
        let scores = query.matmul(&keys.transpose(2, 3)).to_kind(Kind::Float) * self.scale();
        let hidden = future_mask(layout, num_positions);
        let scores = scores.view([rows, key_heads, groups, longest, num_positions]);
        let scores = scores.masked_fill(&hidden, f64::NEG_INFINITY);
        let weights = scores.softmax(-1, Kind::Float).to_kind(values.kind());
        let weights = weights.view([rows, key_heads, groups * longest, num_positions]);
        weights.matmul(&values).view([rows, heads, longest, dim])
    }
}

/// Packed [T, H, D] as rows [R, H, L, D].
fn heads_first(layout: &PackedLayout, x_thd: &Tensor) -> Tensor {
    let (heads, dim) = (x_thd.size()[1], x_thd.size()[2]);
    let rows = layout.to_rows(&x_thd.reshape([-1, heads * dim]));
    rows.view([layout.num_rows(), layout.longest, heads, dim]).transpose(1, 2)
}

/// Rows [R, H, L, D] as packed [T, H·D].
fn heads_last(layout: &PackedLayout, x_rhld: &Tensor) -> Tensor {
    let (rows, heads, longest, dim) = x_rhld.size4().expect("rows are [R, H, L, D]");
    layout.to_packed(&x_rhld.transpose(1, 2).reshape([rows, longest, heads * dim]))
}

/// Key or value heads repeated so that there is one for each query head.
fn repeat_heads(x_rkld: &Tensor, groups: i64) -> Tensor {
    if groups == 1 { x_rkld.shallow_clone() } else { x_rkld.repeat_interleave_self_int(groups, 1, None) }
}

/// Writes rows [R, K, L, D] behind what each row of `store` [R, K, P, D] already holds. Padding lands on positions that are
/// not counted yet and is overwritten by the tokens that come there.
fn append(store: &Tensor, rows_rkld: &Tensor, layout: &PackedLayout) {
    let (num_rows, longest) = (layout.num_rows(), layout.longest);
    let room = store.size()[2];
    assert!(layout.offsets.iter().zip(&layout.lengths).all(|(a, b)| a + b <= room), "cache has room for {room}");
    let offset = layout.offsets[0];
    if offset + longest <= room && layout.offsets.iter().all(|&o| o == offset) {
        store.narrow(2, offset, longest).copy_(rows_rkld);
        return;
    }
    for row in 0..num_rows {
        let (offset, length) = (layout.offsets[row as usize], layout.lengths[row as usize]);
        store.select(0, row).narrow(1, offset, length).copy_(&rows_rkld.select(0, row).narrow(1, 0, length));
    }
}

/// True where a cached position lies after the query's own, bool [R, 1, 1, L, P].
fn future_mask(layout: &PackedLayout, num_positions: i64) -> Tensor {
    let device = layout.lengths_r.device();
    let offsets = Tensor::from_slice(&layout.offsets).to_device(device);
    let steps = Tensor::arange(layout.longest, (Kind::Int64, device));
    let query = (offsets.unsqueeze(1) + steps.unsqueeze(0)).view([layout.num_rows(), 1, 1, layout.longest, 1]);
    Tensor::arange(num_positions, (Kind::Int64, device)).greater_tensor(&query)
}
