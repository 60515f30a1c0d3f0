//! BERT's encoder (Devlin et al. 2019; transformers `BertModel` without its pooler): forward only.
//!
//! Dimensions: T packed tokens, C width, I inner width, R rows, L longest row, H heads, D = C / H.
//!
//! Post-norm: each sublayer's output is added to its input and the sum is normalised. No dropout, no cache, no gradient: it
//! embeds texts and is not trained.

use super::bert_config::BertConfig;
use super::error::ModelFault;
use super::layout::PackedLayout;
use super::weights::WeightFiles;
use std::path::Path;
use tch::{Device, Kind, Tensor};

/// `y = x Wᵀ + b`.
#[derive(Debug)]
struct Dense {
    weight: Tensor,
    bias: Tensor,
}

impl Dense {
    fn forward(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight, Some(&self.bias))
    }
}

/// LayerNorm over the last dimension; libtorch computes it in fp32 and returns `x`'s dtype.
#[derive(Debug)]
struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
    eps: f64,
}

impl LayerNorm {
    fn forward(&self, x: &Tensor) -> Tensor {
        x.layer_norm(self.weight.size(), Some(&self.weight), Some(&self.bias), self.eps, true)
    }
}

/// One encoder layer.
#[derive(Debug)]
pub struct BertLayer {
    num_heads: i64,
    query: Dense,
    key: Dense,
    value: Dense,
    output: Dense,
    attention_norm: LayerNorm,
    up: Dense,
    down: Dense,
    norm: LayerNorm,
}

impl BertLayer {
    /// `x` [T, C] to the same shape and dtype: `x = norm(x + attention x)`, then `norm(x + down(gelu(up x)))`.
    pub fn forward(&self, x_tc: &Tensor, layout: &PackedLayout) -> Tensor {
        let mixed = self.output.forward(&self.attention(x_tc, layout));
        let x_tc = self.attention_norm.forward(&(x_tc + mixed));
        // "none": by the error function, not by tanh.
        let inner = self.up.forward(&x_tc).gelu("none");
        self.norm.forward(&(&x_tc + self.down.forward(&inner)))
    }

    /// Every token attends to all real tokens of its row.
    fn attention(&self, x_tc: &Tensor, layout: &PackedLayout) -> Tensor {
        let width = x_tc.size()[1];
        let (rows, longest, dim) = (layout.num_rows(), layout.longest, width / self.num_heads);
        let heads_first = |part: &Dense| {
            let x_rlc = layout.to_rows(&part.forward(x_tc));
            x_rlc.view([rows, longest, self.num_heads, dim]).transpose(1, 2)
        };
        let [query, key, value] = [&self.query, &self.key, &self.value].map(heads_first);
        let mask = layout.valid_rl.as_ref().map(|valid| valid.view([rows, 1, 1, longest]));
        let scale = (dim as f64).powf(-0.5);
        let mixed = Tensor::scaled_dot_product_attention(&query, &key, &value, mask, 0.0, false, scale, false);
        layout.to_packed(&mixed.transpose(1, 2).reshape([rows, longest, width]))
    }
}

/// An encoder with its weights.
#[derive(Debug)]
pub struct BertEncoder {
    /// Its configuration.
    pub config: BertConfig,
    words: Tensor,
    positions: Tensor,
    token_types: Tensor,
    norm: LayerNorm,
    layers: Vec<BertLayer>,
}

impl BertEncoder {
    /// Loads a Hugging Face folder in dtype `kind` onto `device`.
    ///
    /// # Errors
    /// A configuration that is not supported; tensors that are missing, misshapen or unknown. Only the pooler and the stored
    /// position numbers are passed over: mean pooling uses neither.
    pub fn load(dir: &Path, kind: Kind, device: Device) -> Result<Self, ModelFault> {
        let config = BertConfig::load(dir)?;
        let ignored = |name: &str| name.starts_with("pooler.") || name == "embeddings.position_ids";
        let tensors = WeightFiles::open(dir)?.load_named(&shapes(&config), ignored, kind, device)?;
        Ok(Self::from_tensors(config, tensors))
    }

    /// Builds the encoder from tensors in the order of [`shapes`].
    fn from_tensors(config: BertConfig, tensors: Vec<Tensor>) -> Self {
        let mut tensors = tensors.into_iter();
        let mut take = || tensors.next().expect("as many tensors as shapes");
        let (words, positions, token_types) = (take(), take(), take());
        let norm = take_norm(&mut take, config.layer_norm_eps);
        let layers = (0..config.num_hidden_layers).map(|_| take_layer(&mut take, &config)).collect();
        assert_eq!(tensors.len(), 0, "tensors left over");
        Self { config, words, positions, token_types, norm, layers }
    }

    /// Where the weights are.
    pub fn device(&self) -> Device {
        self.words.device()
    }

    /// The layers in order.
    pub fn layers(&self) -> &[BertLayer] {
        &self.layers
    }

    /// `ids` i64 [T] to [T, C]: the sum of word, position and token-type embeddings, normalised. All tokens are of type 0, the
    /// first text's; there is no second.
    ///
    /// # Panics
    /// A row is longer than the position embedding.
    pub fn embed(&self, ids_t: &Tensor, layout: &PackedLayout) -> Tensor {
        let limit = self.config.max_position_embeddings;
        assert!(layout.longest <= limit, "a text of {} tokens, {limit} positions", layout.longest);
        let words = self.words.index_select(0, ids_t) + self.token_types.select(0, 0);
        self.norm.forward(&(words + self.positions.index_select(0, &layout.positions_t)))
    }

    /// Packed `ids` i64 [T] of ragged texts to the last layer's output [T, C], in the weights' dtype.
    ///
    /// # Panics
    /// A row is longer than the position embedding.
    pub fn forward(&self, ids_t: &Tensor, layout: &PackedLayout) -> Tensor {
        let x_tc = self.embed(ids_t, layout);
        self.layers.iter().fold(x_tc, |x_tc, layer| layer.forward(&x_tc, layout))
    }
}

fn take_dense(take: &mut impl FnMut() -> Tensor) -> Dense {
    Dense { weight: take(), bias: take() }
}

fn take_norm(take: &mut impl FnMut() -> Tensor, eps: f64) -> LayerNorm {
    LayerNorm { weight: take(), bias: take(), eps }
}

fn take_layer(take: &mut impl FnMut() -> Tensor, config: &BertConfig) -> BertLayer {
    BertLayer {
        num_heads: config.num_attention_heads,
        query: take_dense(take),
        key: take_dense(take),
        value: take_dense(take),
        output: take_dense(take),
        attention_norm: take_norm(take, config.layer_norm_eps),
        up: take_dense(take),
        down: take_dense(take),
        norm: take_norm(take, config.layer_norm_eps),
    }
}

/// Names and shapes of all tensors, in a fixed order: embeddings, then layers.
fn shapes(config: &BertConfig) -> Vec<(String, Vec<i64>)> {
    let (width, inner) = (config.hidden_size, config.intermediate_size);
    let mut list: Vec<(String, Vec<i64>)> = [
        ("word", config.vocab_size),
        ("position", config.max_position_embeddings),
        ("token_type", config.type_vocab_size),
    ]
    .map(|(name, rows)| (format!("embeddings.{name}_embeddings.weight"), vec![rows, width]))
    .into();
    let mut add = |name: String, weight: Vec<i64>| {
        let bias = vec![weight[0]];
        list.push((format!("{name}.weight"), weight));
        list.push((format!("{name}.bias"), bias));
    };
    add("embeddings.LayerNorm".to_owned(), vec![width]);
    for i in 0..config.num_hidden_layers {
        for (name, weight) in [
            ("attention.self.query", vec![width, width]),
            ("attention.self.key", vec![width, width]),
            ("attention.self.value", vec![width, width]),
            ("attention.output.dense", vec![width, width]),
            ("attention.output.LayerNorm", vec![width]),
            ("intermediate.dense", vec![inner, width]),
            ("output.dense", vec![width, inner]),
            ("output.LayerNorm", vec![width]),
        ] {
            add(format!("encoder.layer.{i}.{name}"), weight);
        }
    }
    list
}
