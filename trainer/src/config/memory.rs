//! How much memory a run will take, from the model's shape and the config alone.
//!
//! An estimate for `--dry-run`: each part is counted by its formula, allocator waste is not.

use super::{Dtype, ReferencePlace, TrainConfig, WeightUpdate};
use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The sizes of a model that its memory depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelShape {
    /// Text parameters; vision and multi-token prediction are not loaded.
    pub num_parameters: u64,
    /// Width of the residual stream.
    pub hidden_size: u64,
    /// Width inside the MLP.
    pub intermediate_size: u64,
    /// Rows of the embedding and of the head.
    pub vocab_size: u64,
    /// Layers with a key-value cache.
    pub num_full_attention_layers: u64,
    /// Key and value numbers of one token in one such layer.
    pub kv_size: u64,
    /// Layers with a recurrent state.
    pub num_linear_attention_layers: u64,
    /// Numbers of one sequence's recurrent state in one such layer.
    pub linear_state_size: u64,
    /// Numbers of one sequence's convolution state in one such layer.
    pub conv_state_size: u64,
}

/// A model folder whose shape cannot be read.
#[derive(Debug, Error)]
pub enum ShapeError {
    /// A file cannot be read (the message names it).
    #[error("{0}")]
    Read(#[from] std::io::Error),
    /// A file does not hold what it should.
    #[error("{}: {problem}", file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

impl ModelShape {
    /// Reads `config.json` and the headers of the safetensors files of a Hugging Face folder.
    pub fn read(folder: &Path) -> Result<Self, ShapeError> {
        let file = folder.join("config.json");
        let config: Value = serde_json::from_str(&fs_err::read_to_string(&file)?)
            .map_err(|e| ShapeError::Content { file: file.clone(), problem: e.to_string() })?;
        let text = config.get("text_config").unwrap_or(&config);
        let number = |key: &str| text.get(key).and_then(Value::as_u64);
        let needed = |key: &str| {
            number(key).ok_or_else(|| ShapeError::Content {
                file: file.clone(),
                problem: format!("`{key}` must be a whole number"),
            })
        };
        let (hidden_size, num_heads) = (needed("hidden_size")?, needed("num_attention_heads")?);
        let head_dim = number("head_dim").unwrap_or(hidden_size / num_heads.max(1));
        let kv_heads = number("num_key_value_heads").unwrap_or(num_heads);
        let num_layers = needed("num_hidden_layers")?;
        let num_linear_attention_layers = num_linear_layers(text, num_layers);
        let linear = |key: &str| number(key).unwrap_or(0);
        let keys = linear("linear_num_key_heads") * linear("linear_key_head_dim");
        let values = linear("linear_num_value_heads") * linear("linear_value_head_dim");
        Ok(Self {
            num_parameters: num_parameters(folder)?,
            hidden_size,
            intermediate_size: needed("intermediate_size")?,
            vocab_size: needed("vocab_size")?,
            num_full_attention_layers: num_layers - num_linear_attention_layers,
            kv_size: 2 * kv_heads * head_dim,
            num_linear_attention_layers,
            linear_state_size: values * linear("linear_key_head_dim"),
            conv_state_size: (2 * keys + values) * linear("linear_conv_kernel_dim").saturating_sub(1),
        })
    }

    fn num_layers(&self) -> u64 {
        self.num_full_attention_layers + self.num_linear_attention_layers
    }
}

fn num_linear_layers(text: &Value, num_layers: u64) -> u64 {
    if let Some(kinds) = text.get("layer_types").and_then(Value::as_array) {
        let num = kinds.iter().filter(|kind| kind.as_str() == Some("linear_attention")).count();
        return (num as u64).min(num_layers);
    }
    let has_linear = text.get("linear_num_value_heads").is_some();
    match text.get("full_attention_interval").and_then(Value::as_u64) {
        Some(interval) if has_linear && interval > 0 => num_layers - num_layers / interval,
        _ => 0,
    }
}

/// Numbers in the safetensors of a folder, but for vision and multi-token prediction.
fn num_parameters(folder: &Path) -> Result<u64, ShapeError> {
    let mut total = 0;
    for entry in fs_err::read_dir(folder)? {
        let file = entry?.path();
        if file.extension().is_some_and(|ending| ending == "safetensors") {
            total += num_parameters_of(&file)?;
        }
    }
    Ok(total)
}

fn num_parameters_of(file: &Path) -> Result<u64, ShapeError> {
    use std::io::Read;
    let broken = |problem: String| ShapeError::Content { file: file.to_owned(), problem };
    let mut reader = fs_err::File::open(file)?;
    let num_bytes = reader.metadata()?.len();
    let mut length = [0; 8];
    reader.read_exact(&mut length).map_err(|_| broken(format!("truncated: {num_bytes} bytes, no header")))?;
    let length = u64::from_le_bytes(length);
    if length.saturating_add(8) > num_bytes {
        return Err(broken(format!("truncated: the header takes {length} bytes, the file has {num_bytes}")));
    }
    let mut header = Vec::new();
    reader.take(length).read_to_end(&mut header)?;
    let header: serde_json::Map<String, Value> =
        serde_json::from_slice(&header).map_err(|e| broken(format!("header is not JSON: {e}")))?;
    let end_of = |tensor: &Value| tensor.get("data_offsets")?.get(1)?.as_u64();
    let end = 8 + length + header.values().filter_map(end_of).max().unwrap_or(0);
    if end > num_bytes {
        return Err(broken(format!("truncated: the tensors end at byte {end}, the file has {num_bytes}")));
    }
    let is_text = |name: &str| !name.contains("visual.") && !name.starts_with("mtp.") && name != "__metadata__";
    Ok(header
        .iter()
        .filter(|(name, _)| is_text(name))
        .filter_map(|(_, tensor)| tensor.get("shape")?.as_array())
        .map(|shape| shape.iter().filter_map(Value::as_u64).product::<u64>())
        .sum())
}

/// Bytes of each part of a training run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// The policy's weights.
    pub weights: u64,
    /// Gradients of all parameters.
    pub gradients: u64,
    /// Moments, and masters where there are some.
    pub optimizer: u64,
    /// The reference's weights.
    pub reference: u64,
    /// Key-value caches and recurrent states of one step's attempts at full length.
    pub caches: u64,
    /// What the backward pass of one micro-batch keeps.
    pub activations: u64,
    /// Logits of one chunk of completion tokens.
    pub head_chunk: u64,
    /// Peak on the policy's device over the phases of a step.
    pub device_peak: u64,
    /// What lies in host memory besides.
    pub host: u64,
}

/// Estimates the memory of a run of `config` on a model of `shape`.
pub fn estimate(shape: &ModelShape, config: &TrainConfig) -> MemoryEstimate {
    let (dtype, parameters) = (config.model.dtype, shape.num_parameters);
    let weights = parameters * dtype.num_bytes();
    let gradients = weights;
    let master = match (dtype, config.optim.weights) {
        (Dtype::Bfloat16, WeightUpdate::Fp32Master) => 4,
        _ => 0,
    };
    let optimizer = parameters * (8 + master);
    let place = (config.grpo.kl_coefficient > 0.0).then_some(config.grpo.reference);
    let reference = if place.is_some() { weights } else { 0 };
    let (caches, activations) = (caches(shape, config), activations(shape, config));
    // Logits, their softmax and their gradient, in fp32.
    let head_chunk = 3 * 4 * config.update.head_chunk_tokens as u64 * shape.vocab_size;
    let resident = weights + optimizer + if place == Some(ReferencePlace::Device) { reference } else { 0 };
    let rollout = resident + caches;
    let update = resident + gradients + activations + head_chunk;
    let scoring = resident + head_chunk + if place == Some(ReferencePlace::Reload) { reference } else { 0 };
    MemoryEstimate {
        weights,
        gradients,
        optimizer,
        reference,
        caches,
        activations,
        head_chunk,
        device_peak: rollout.max(update).max(scoring),
        host: if place == Some(ReferencePlace::Cpu) { reference } else { 0 },
    }
}

fn caches(shape: &ModelShape, config: &TrainConfig) -> u64 {
    let num_sequences = (config.rollout.questions_per_step * config.rollout.group_size) as u64;
    let per_token = shape.num_full_attention_layers * shape.kv_size * config.model.dtype.num_bytes();
    let state = 4 * shape.linear_state_size + config.model.dtype.num_bytes() * shape.conv_state_size;
    let per_sequence = shape.num_linear_attention_layers * state;
    num_sequences * (config.rollout.budget.max_total_tokens as u64 * per_token + per_sequence)
}

/// One layer keeps about 16 rows of the residual width and 4 of the MLP's; with recompute that is held for one layer
/// at a time, and only the input of each other.
fn activations(shape: &ModelShape, config: &TrainConfig) -> u64 {
    let tokens = config.update.micro_batch_tokens as u64;
    // DeltaNet's inner numbers are fp32 whatever the weights are.
    let inner = 4 * (16 * shape.hidden_size + 4 * shape.intermediate_size);
    let input = config.model.dtype.num_bytes() * shape.hidden_size;
    let num_layers = shape.num_layers();
    tokens * if config.update.recompute { num_layers * input + inner } else { num_layers * inner }
}

impl fmt::Display for MemoryEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, bytes) in [
            ("weights", self.weights),
            ("gradients", self.gradients),
            ("optimizer", self.optimizer),
            ("reference", self.reference),
            ("caches", self.caches),
            ("activations", self.activations),
            ("head chunk", self.head_chunk),
            ("peak on the device", self.device_peak),
            ("host besides", self.host),
        ] {
            writeln!(f, "  {name:<20} {:>9.3} GiB", gibibytes(bytes))?;
        }
        Ok(())
    }
}

/// Bytes in GiB.
pub fn gibibytes(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Source;

    const TINY: &str = r#"{"text_config": {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 1000,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 4,
        "full_attention_interval": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4}}"#;

    fn model(header: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.resize(bytes.len() + HEADER_DATA_BYTES, 0);
        fs_err::write(folder.path().join("model.safetensors"), bytes).unwrap();
        fs_err::write(folder.path().join("config.json"), TINY).unwrap();
        fs_err::write(folder.path().join("tokenizer.json"), "{}").unwrap();
        folder
    }

    const HEADER: &str = r#"{"__metadata__":{"format":"pt"},"model.a":{"dtype":"BF16","shape":[10,100],
        "data_offsets":[0,2000]},"model.visual.b":{"dtype":"BF16","shape":[7],"data_offsets":[2000,2014]},
        "mtp.c":{"dtype":"BF16","shape":[9],"data_offsets":[2014,2032]}}"#;

    /// Where the last of its tensors ends.
    const HEADER_DATA_BYTES: usize = 2032;

    #[test]
    fn shape_comes_from_config_and_headers() {
        let shape = ModelShape::read(model(HEADER).path()).unwrap();
        let expected = ModelShape {
            num_parameters: 1000,
            hidden_size: 64,
            intermediate_size: 128,
            vocab_size: 1000,
            num_full_attention_layers: 1,
            kv_size: 64,
            num_linear_attention_layers: 3,
            linear_state_size: 256,
            conv_state_size: 192,
        };
        assert_eq!(shape, expected);
    }

    #[test]
    fn truncated_weights_are_named() {
        let folder = model(HEADER);
        let file = folder.path().join("model.safetensors");
        let whole = fs_err::read(&file).unwrap();
        let num_bytes = whole.len();
        let cases = [
            (
                whole[..num_bytes - 1].to_vec(),
                format!("the tensors end at byte {num_bytes}, the file has {}", num_bytes - 1),
            ),
            (100u64.to_le_bytes().to_vec(), "the header takes 100 bytes, the file has 8".to_owned()),
        ];
        for (bytes, problem) in cases {
            fs_err::write(&file, bytes).unwrap();
            let message = ModelShape::read(folder.path()).unwrap_err().to_string();
            assert_eq!(message, format!("{}: truncated: {problem}", file.display()));
        }
    }

    #[test]
    fn parts_follow_the_config() {
        let folder = model(HEADER);
        let shape = ModelShape::read(folder.path()).unwrap();
        let load = |sets: &[&str]| {
            let text = format!(
                "[model]\npath = {:?}\ndtype = \"bfloat16\"\n[data]\nworld = {{ seed = 1, users = 5 }}\n\
                 [train]\nrun_dir = \"r\"\n[update]\nmicro_batch_tokens = 8192\n",
                folder.path()
            );
            let sets: Vec<String> = sets.iter().map(|&s| s.to_owned()).collect();
            let source = Source::from_text(Path::new("c.toml"), text, &sets).unwrap();
            estimate(&shape, &super::super::validate::train(&source).unwrap())
        };
        let base = load(&[]);
        assert_eq!((base.weights, base.gradients, base.optimizer, base.reference), (2000, 2000, 12000, 2000));
        // 32 attempts of 8192 tokens at 64 bf16 numbers, and 3 layers of 256 fp32 and 192 bf16 numbers.
        assert_eq!(base.caches, 32 * (8192 * 128 + 3 * (1024 + 384)));
        assert_eq!(base.head_chunk, 12 * 512 * 1000);
        assert_eq!(load(&["optim.weights=bf16-stochastic"]).optimizer, 8000);
        assert_eq!(load(&["grpo.kl_coefficient=0"]).reference, 0);
        let on_cpu = load(&["grpo.reference=cpu"]);
        assert_eq!((on_cpu.host, base.device_peak - on_cpu.device_peak), (2000, 2000));
        assert!(load(&["update.recompute=false"]).activations > base.activations);
    }
}
