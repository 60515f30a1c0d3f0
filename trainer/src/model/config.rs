//! `config.json` of a Hugging Face folder, read into what the decoder needs.

use super::error::ModelFault;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// How an RMSNorm uses its weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormStyle {
    /// `x̂ · (1 + w)`: Qwen3.5.
    OnePlusWeight,
    /// `x̂ · w`: Qwen3, Llama.
    Weight,
}

/// Kind of a layer's mixer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerKind {
    /// Softmax attention over all earlier tokens.
    FullAttention,
    /// Gated DeltaNet.
    LinearAttention,
}

/// Shape of the softmax attention.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionConfig {
    /// Query heads.
    pub num_heads: i64,
    /// Key and value heads.
    pub num_key_value_heads: i64,
    /// Dimension of a head.
    pub head_dim: i64,
    /// How many leading dimensions of a head are rotated.
    pub rotary_dim: i64,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Llama 3's piecewise frequency scaling: factor, low and high frequency factor, original context.
    pub rope_scaling: Option<[f64; 4]>,
    /// RMSNorm on each query and key head.
    pub qk_norm: bool,
    /// `q_proj` also yields a sigmoid gate on the output.
    pub output_gate: bool,
}

/// Shape of the gated DeltaNet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaNetConfig {
    /// Key heads.
    pub num_key_heads: i64,
    /// Value heads; a multiple of the key heads.
    pub num_value_heads: i64,
    /// Dimension of a key head.
    pub key_head_dim: i64,
    /// Dimension of a value head.
    pub value_head_dim: i64,
    /// Width of the causal convolution.
    pub conv_kernel: i64,
}

impl DeltaNetConfig {
    /// Channels of q, k and v together, which the convolution runs over.
    pub fn conv_channels(&self) -> i64 {
        2 * self.num_key_heads * self.key_head_dim + self.num_value_heads * self.value_head_dim
    }
}

/// A JSON file's value.
pub fn read_json(file: &Path) -> Result<Value, ModelFault> {
    let text = fs_err::read_to_string(file)?;
    serde_json::from_str(&text).map_err(|source| ModelFault::Json { file: file.to_path_buf(), source })
}

/// A decoder's configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The file as read, for writing it back unchanged.
    pub json: Value,
    /// Where it was read from.
    pub file: PathBuf,
    /// Rows of the embedding.
    pub vocab_size: i64,
    /// Width of the residual stream.
    pub hidden_size: i64,
    /// Width of the MLP.
    pub intermediate_size: i64,
    /// RMSNorm's epsilon.
    pub rms_norm_eps: f64,
    /// Kind of each layer.
    pub layers: Vec<LayerKind>,
    /// The head is the embedding.
    pub tie_word_embeddings: bool,
    /// Style of the block norms and of q/k norms.
    pub norm_style: NormStyle,
    /// Softmax attention.
    pub attention: AttentionConfig,
    /// Gated DeltaNet, where a layer has one.
    pub delta_net: Option<DeltaNetConfig>,
    /// Prefix of decoder tensors in files that we write: `model.language_model.` or `model.`.
    pub prefix: String,
}

/// Reader of one JSON object that names file and key in each fault.
pub(super) struct Keys<'a> {
    pub(super) file: &'a Path,
    pub(super) object: &'a Value,
}

impl Keys<'_> {
    pub(super) fn fault(&self, key: &str, message: impl Into<String>) -> ModelFault {
        ModelFault::Config { file: self.file.to_path_buf(), key: key.to_owned(), message: message.into() }
    }

    pub(super) fn integer(&self, key: &str) -> Result<i64, ModelFault> {
        let value = self.object.get(key).ok_or_else(|| self.fault(key, "is missing; a positive integer is needed"))?;
        match value.as_i64() {
            Some(n) if n > 0 => Ok(n),
            _ => Err(self.fault(key, format!("must be a positive integer, found {value}"))),
        }
    }

    pub(super) fn integer_or(&self, key: &str, default: i64) -> Result<i64, ModelFault> {
        match self.object.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(_) => self.integer(key),
        }
    }

    pub(super) fn number_or(&self, key: &str, default: f64) -> Result<f64, ModelFault> {
        match self.object.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => value.as_f64().ok_or_else(|| self.fault(key, format!("must be a number, found {value}"))),
        }
    }
}

impl ModelConfig {
    /// Reads `dir/config.json`. Supported `model_type`s: `qwen3_5`, `qwen3_5_text`, `qwen3`, `llama`.
    pub fn load(dir: &Path) -> Result<Self, ModelFault> {
        let file = dir.join("config.json");
        Self::from_json(read_json(&file)?, &file)
    }

    /// Validates a parsed `config.json`; `file` is for messages.
    pub fn from_json(json: Value, file: &Path) -> Result<Self, ModelFault> {
        let nested = json.get("text_config").is_some_and(Value::is_object);
        let text = if nested { &json["text_config"] } else { &json };
        let keys = Keys { file, object: text };
        let family = Family::of(&keys)?;
        let layers = family.layer_kinds(&keys)?;
        let attention = family.attention(&keys)?;
        let delta_net = layers.contains(&LayerKind::LinearAttention).then(|| delta_net(&keys)).transpose()?;
        let tied = [text, &json].iter().find_map(|v| v.get("tie_word_embeddings").and_then(Value::as_bool));
        if let Some(act) = text.get("hidden_act").and_then(Value::as_str).filter(|act| *act != "silu") {
            return Err(keys.fault("hidden_act", format!("must be \"silu\", found \"{act}\"")));
        }
        for key in ["attention_bias", "mlp_bias"] {
            if text.get(key).and_then(Value::as_bool) == Some(true) {
                return Err(keys.fault(key, "must be false: biases are not supported"));
            }
        }
        Ok(Self {
            vocab_size: keys.integer("vocab_size")?,
            hidden_size: keys.integer("hidden_size")?,
            intermediate_size: keys.integer("intermediate_size")?,
            rms_norm_eps: keys.number_or("rms_norm_eps", 1e-6)?,
            layers,
            tie_word_embeddings: tied.unwrap_or(false),
            norm_style: family.norm_style(),
            attention,
            delta_net,
            prefix: if nested { "model.language_model." } else { "model." }.to_owned(),
            file: file.to_path_buf(),
            json,
        })
    }

    /// Number of parameters of the text model, by shape.
    pub fn num_parameters(&self) -> i64 {
        super::weights::shapes(self).iter().map(|(_, shape)| shape.iter().product::<i64>()).sum()
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Family {
    Qwen35,
    Qwen3,
    Llama,
}

impl Family {
    fn of(keys: &Keys) -> Result<Self, ModelFault> {
        match keys.object.get("model_type").and_then(Value::as_str) {
            Some("qwen3_5" | "qwen3_5_text") => Ok(Self::Qwen35),
            Some("qwen3") => Ok(Self::Qwen3),
            Some("llama") => Ok(Self::Llama),
            other => {
                let found = other.map_or("nothing".to_owned(), |t| format!("\"{t}\""));
                let allowed = "must be one of \"qwen3_5\", \"qwen3_5_text\", \"qwen3\", \"llama\"";
                Err(keys.fault("model_type", format!("{allowed}, found {found}")))
            }
        }
    }

    fn norm_style(self) -> NormStyle {
        if self == Self::Qwen35 { NormStyle::OnePlusWeight } else { NormStyle::Weight }
    }

    fn layer_kinds(self, keys: &Keys) -> Result<Vec<LayerKind>, ModelFault> {
        let num_layers = keys.integer("num_hidden_layers")?;
        if let Some(listed) = keys.object.get("layer_types").and_then(Value::as_array) {
            if listed.len() as i64 != num_layers {
                let message = format!("lists {} layers, `num_hidden_layers` is {num_layers}", listed.len());
                return Err(keys.fault("layer_types", message));
            }
            return listed.iter().map(|kind| self.layer_kind(keys, kind)).collect();
        }
        if self != Self::Qwen35 {
            return Ok(vec![LayerKind::FullAttention; num_layers as usize]);
        }
        let interval = keys.integer_or("full_attention_interval", 4)?;
        let kind = |i: i64| if (i + 1) % interval == 0 { LayerKind::FullAttention } else { LayerKind::LinearAttention };
        Ok((0..num_layers).map(kind).collect())
    }

    fn layer_kind(self, keys: &Keys, kind: &Value) -> Result<LayerKind, ModelFault> {
        match kind.as_str() {
            Some("full_attention") => Ok(LayerKind::FullAttention),
            Some("linear_attention") if self == Self::Qwen35 => Ok(LayerKind::LinearAttention),
            _ => Err(keys.fault("layer_types", format!("has the kind {kind}, which this model type does not support"))),
        }
    }

    fn attention(self, keys: &Keys) -> Result<AttentionConfig, ModelFault> {
        let num_heads = keys.integer("num_attention_heads")?;
        let num_key_value_heads = keys.integer_or("num_key_value_heads", num_heads)?;
        if num_heads % num_key_value_heads != 0 {
            let message = format!("must divide `num_attention_heads` = {num_heads}, found {num_key_value_heads}");
            return Err(keys.fault("num_key_value_heads", message));
        }
        let head_dim = keys.integer_or("head_dim", keys.integer("hidden_size")? / num_heads)?;
        let nested =
            ["rope_parameters", "rope_scaling"].iter().find_map(|k| keys.object.get(*k).filter(|v| v.is_object()));
        let rope = Keys { file: keys.file, object: nested.unwrap_or(keys.object) };
        let default_theta = if self == Self::Llama { 1e4 } else { 1e6 };
        let theta = rope.number_or("rope_theta", keys.number_or("rope_theta", default_theta)?)?;
        let default_partial = if self == Self::Qwen35 { 0.25 } else { 1.0 };
        let partial =
            rope.number_or("partial_rotary_factor", keys.number_or("partial_rotary_factor", default_partial)?)?;
        let rotary_dim = (head_dim as f64 * partial) as i64;
        if rotary_dim < 2 || rotary_dim % 2 != 0 || rotary_dim > head_dim {
            let message =
                format!("times `head_dim` = {head_dim} must be an even number of 2 or more, found {rotary_dim}");
            return Err(keys.fault("partial_rotary_factor", message));
        }
        Ok(AttentionConfig {
            num_heads,
            num_key_value_heads,
            head_dim,
            rotary_dim,
            rope_theta: theta,
            rope_scaling: rope_scaling(&rope)?,
            qk_norm: self != Self::Llama,
            output_gate: self == Self::Qwen35,
        })
    }
}

fn rope_scaling(rope: &Keys) -> Result<Option<[f64; 4]>, ModelFault> {
    let kind = ["rope_type", "type"].iter().find_map(|k| rope.object.get(*k).and_then(Value::as_str));
    match kind.unwrap_or("default") {
        "default" | "mrope" => Ok(None),
        "llama3" => Ok(Some([
            rope.number_or("factor", 8.0)?,
            rope.number_or("low_freq_factor", 1.0)?,
            rope.number_or("high_freq_factor", 4.0)?,
            rope.number_or("original_max_position_embeddings", 8192.0)?,
        ])),
        other => Err(rope.fault("rope_type", format!("must be \"default\" or \"llama3\", found \"{other}\""))),
    }
}

fn delta_net(keys: &Keys) -> Result<DeltaNetConfig, ModelFault> {
    let config = DeltaNetConfig {
        num_key_heads: keys.integer("linear_num_key_heads")?,
        num_value_heads: keys.integer("linear_num_value_heads")?,
        key_head_dim: keys.integer("linear_key_head_dim")?,
        value_head_dim: keys.integer("linear_value_head_dim")?,
        conv_kernel: keys.integer_or("linear_conv_kernel_dim", 4)?,
    };
    if config.num_value_heads % config.num_key_heads != 0 {
        let message = format!(
            "must be a multiple of `linear_num_key_heads` = {}, found {}",
            config.num_key_heads, config.num_value_heads
        );
        return Err(keys.fault("linear_num_value_heads", message));
    }
    Ok(config)
}
