//! The decoder: embedding, layers, final norm, head.
//!
//! Dimensions: T packed tokens, N scored tokens.

use super::attention::Attention;
use super::cache::Cache;
use super::config::{LayerKind, ModelConfig, NormStyle};
use super::delta_net::GatedDeltaNet;
use super::error::ModelFault;
use super::layer::{BatchContext, DecoderLayer, Mixer, Mlp};
use super::layout::PackedLayout;
use super::linear::{Linear, matmul_weight};
use super::norm::RmsNorm;
use super::rope::Rotation;
use super::weights::{Parameter, WeightFiles};
use std::path::Path;
use tch::{Device, Kind, Tensor};

/// A decoder with its parameters.
#[derive(Debug)]
pub struct Decoder {
    /// Its configuration.
    pub config: ModelConfig,
    /// All parameters in a fixed order; the layers hold the same tensors.
    pub parameters: Vec<Parameter>,
    layers: Vec<DecoderLayer>,
    norm: RmsNorm,
    embedding: Tensor,
    head: Tensor,
    /// Rows of the head that are tokens; those above are padding and never scored.
    num_tokens: i64,
    kind: Kind,
    device: Device,
}

impl Decoder {
    /// Loads a Hugging Face folder in dtype `kind` onto `device`.
    pub fn load(dir: &Path, kind: Kind, device: Device) -> Result<Self, ModelFault> {
        let config = ModelConfig::load(dir)?;
        let parameters = WeightFiles::open(dir)?.load(&config, kind, device)?;
        Ok(Self::from_parameters(config, parameters, kind))
    }

    /// Builds the decoder from parameters in the order of the configuration's shapes.
    pub fn from_parameters(config: ModelConfig, parameters: Vec<Parameter>, kind: Kind) -> Self {
        let mut next = 0;
        let mut take = || {
            next += 1;
            parameters[next - 1].tensor.shallow_clone()
        };
        let embedding = take();
        let layers = (0..config.layers.len()).map(|i| build_layer(&config, config.layers[i], &mut take)).collect();
        let norm = RmsNorm::new(take(), config.norm_style, config.rms_norm_eps);
        let head = if config.tie_word_embeddings { embedding.shallow_clone() } else { take() };
        assert_eq!(next, parameters.len(), "parameters left over");
        let (num_tokens, device) = (config.vocab_size, embedding.device());
        Self { config, layers, norm, embedding, head, num_tokens, kind, device, parameters }
    }

    /// Limits scored and sampled ids to the tokenizer's: rows of the head from `num_tokens` on are padding.
    pub fn limit_vocabulary(&mut self, num_tokens: i64) {
        assert!(num_tokens > 0 && num_tokens <= self.config.vocab_size, "{num_tokens} of {}", self.config.vocab_size);
        self.num_tokens = num_tokens;
    }

    /// Dtype of the weights and of the residual stream.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Where the weights are.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The layers in order.
    pub fn layers(&self) -> &[DecoderLayer] {
        &self.layers
    }

    /// An empty cache for `num_rows` sequences.
    pub fn new_cache(&self, num_rows: i64) -> Cache {
        Cache::new(&self.config, num_rows, self.kind, self.device)
    }

    /// Embedding rows of `ids` i64 [T]: [T, hidden].
    pub fn embed(&self, ids_t: &Tensor) -> Tensor {
        self.embedding.index_select(0, ids_t)
    }

    /// Rotary tables for a layout.
    pub fn rotation(&self, layout: &PackedLayout) -> Rotation {
        Rotation::new(&self.config.attention, &layout.positions_t, self.kind)
    }

    /// The final norm: [.., hidden] to the same.
    pub fn final_norm(&self, x: &Tensor) -> Tensor {
        self.norm.forward(x)
    }

    /// Logits of hidden states after the final norm, [N, hidden] to fp32 [N, tokens].
    pub fn logits(&self, hidden_nh: &Tensor) -> Tensor {
        matmul_weight(hidden_nh, &self.head.narrow(0, 0, self.num_tokens)).to_kind(Kind::Float)
    }

    /// One layer without a cache: residual stream [T, hidden] to the same. For callers that walk the layers themselves.
    pub fn run_layer(&self, layer: &DecoderLayer, x_th: &Tensor, layout: &PackedLayout, rotation: &Rotation) -> Tensor {
        layer.forward(x_th, &BatchContext { layout, rotation, active_r: None }, None)
    }

    /// Residual stream [T, hidden] after the last layer, before the final norm, for packed `ids` i64 [T].
    ///
    /// With a cache the tokens follow what it holds, and it is advanced; `active` then says which rows advance (one token each).
    pub fn forward(
        &self,
        ids_t: &Tensor,
        layout: &PackedLayout,
        cache: Option<&mut Cache>,
        active: Option<&[bool]>,
    ) -> Tensor {
        assert_eq!(ids_t.size(), [layout.num_tokens], "one id for each packed token");
        let rotation = self.rotation(layout);
        let active_r = active.map(|flags| Tensor::from_slice(flags).to_device(self.device));
        let batch = BatchContext { layout, rotation: &rotation, active_r: active_r.as_ref() };
        let mut x = self.embed(ids_t);
        let Some(cache) = cache else {
            for layer in &self.layers {
                x = layer.forward(&x, &batch, None);
            }
            return x;
        };
        assert_eq!(layout.offsets, cache.lengths, "the layout continues the cache");
        cache.reserve(layout.offsets.iter().zip(&layout.lengths).map(|(a, b)| a + b).max().unwrap_or(0));
        for (layer, state) in self.layers.iter().zip(&mut cache.layers) {
            x = layer.forward(&x, &batch, Some(state));
        }
        for (row, length) in layout.lengths.iter().enumerate() {
            if active.is_none_or(|flags| flags[row]) {
                cache.lengths[row] += length;
            }
        }
        x
    }

    /// Runs packed `ids` behind the cache and returns the logits of each row's last token, fp32 [R, tokens].
    pub fn advance(&self, ids_t: &Tensor, lengths: &[i64], cache: &mut Cache, active: Option<&[bool]>) -> Tensor {
        let layout = PackedLayout::with_offsets(lengths, &cache.lengths.clone(), self.device);
        let x = self.forward(ids_t, &layout, Some(cache), active);
        let last = if layout.longest == 1 { x } else { x.index_select(0, &layout.last_tokens()) };
        self.logits(&self.final_norm(&last))
    }
}

fn build_layer(config: &ModelConfig, kind: LayerKind, take: &mut impl FnMut() -> Tensor) -> DecoderLayer {
    let norm = |weight: Tensor, style: NormStyle| RmsNorm::new(weight, style, config.rms_norm_eps);
    let input_norm = norm(take(), config.norm_style);
    let mixer = match kind {
        LayerKind::FullAttention => {
            let [query, key, value, output] = [0; 4].map(|_| Linear::new(take()));
            let qk_norms =
                config.attention.qk_norm.then(|| (norm(take(), config.norm_style), norm(take(), config.norm_style)));
            Mixer::Attention(Attention { config: config.attention.clone(), query, key, value, output, qk_norms })
        }
        LayerKind::LinearAttention => Mixer::DeltaNet(GatedDeltaNet {
            config: config.delta_net.expect("a config with linear layers has their shape"),
            eps: config.rms_norm_eps,
            in_qkv: Linear::new(take()),
            in_z: Linear::new(take()),
            in_b: Linear::new(take()),
            in_a: Linear::new(take()),
            conv: take(),
            a_log: take(),
            dt_bias: take(),
            norm: take(),
            output: Linear::new(take()),
        }),
    };
    let post_norm = norm(take(), config.norm_style);
    let [gate, up, down] = [0; 3].map(|_| Linear::new(take()));
    DecoderLayer { input_norm, mixer, post_norm, mlp: Mlp { gate, up, down } }
}
