//! Writes a Hugging Face folder that transformers and vLLM load.

use super::decoder::Decoder;
use super::error::ModelFault;
use super::weights::{Parameter, WeightFiles};
use safetensors::tensor::{Dtype, View};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use tch::{Device, Kind, Tensor};

/// Largest shard in bytes.
const MAX_SHARD_BYTES: usize = 4 << 30;

/// What travels with the weights: tokenizer, template, generation settings, processors.
const COMPANIONS: &[&str] = &[
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "processor_config.json",
];

/// Writes `config.json`, weights and what lies beside them in `source` (tokenizer, template, generation config, and tensors
/// that are not the text model's) into `dir`, which exists.
pub fn save_model(decoder: &Decoder, source: &Path, dir: &Path) -> Result<(), ModelFault> {
    let mut text = serde_json::to_string_pretty(&decoder.config.json).expect("a parsed JSON value prints");
    text.push('\n');
    fs_err::write(dir.join("config.json"), text)?;
    for name in COMPANIONS {
        let from = source.join(name);
        if from.exists() {
            fs_err::copy(&from, dir.join(name))?;
        }
    }
    let files = WeightFiles::open(source)?;
    write_parameters(&decoder.parameters, Some(&files), dir)
}

/// A tensor to be written: one of ours (copied to the host when its turn comes), or raw bytes of another file.
struct Entry<'a> {
    name: &'a str,
    dtype: Dtype,
    shape: Vec<usize>,
    num_bytes: usize,
    content: Content<'a>,
}

enum Content<'a> {
    Ours(&'a Tensor),
    Raw(&'a [u8]),
}

impl View for &Entry<'_> {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        match self.content {
            Content::Ours(tensor) => Cow::Owned(bytes_of(tensor)),
            Content::Raw(bytes) => Cow::Borrowed(bytes),
        }
    }

    fn data_len(&self) -> usize {
        self.num_bytes
    }
}

/// The raw little-endian bytes of a tensor.
fn bytes_of(tensor: &Tensor) -> Vec<u8> {
    let tensor = tensor.detach().to_device(Device::Cpu).contiguous();
    let mut bytes = vec![0; tensor.numel() * tensor.kind().elt_size_in_bytes()];
    tensor.copy_data_u8(&mut bytes, tensor.numel());
    bytes
}

fn entry_of<'a>(name: &'a str, tensor: &'a Tensor) -> Entry<'a> {
    let dtype = match tensor.kind() {
        Kind::Float => Dtype::F32,
        Kind::BFloat16 => Dtype::BF16,
        Kind::Half => Dtype::F16,
        other => panic!("tensors are floats, found {other:?}"),
    };
    Entry {
        name,
        dtype,
        shape: tensor.size().iter().map(|&n| n as usize).collect(),
        num_bytes: tensor.numel() * tensor.kind().elt_size_in_bytes(),
        content: Content::Ours(tensor),
    }
}

/// Writes named float tensors into one safetensors file.
pub fn write_tensors(tensors: &[(String, Tensor)], file: &Path) -> Result<(), ModelFault> {
    let entries: Vec<Entry> = tensors.iter().map(|(name, tensor)| entry_of(name, tensor)).collect();
    write_shard(&entries.iter().collect::<Vec<_>>(), file)
}

/// Writes `model.safetensors`, or shards of at most 4 GiB with an index, in the parameters' order; then foreign tensors.
pub fn write_parameters(parameters: &[Parameter], foreign: Option<&WeightFiles>, dir: &Path) -> Result<(), ModelFault> {
    let mut entries: Vec<Entry> = parameters.iter().map(|p| entry_of(&p.name, &p.tensor)).collect();
    let raw = foreign.into_iter().flat_map(WeightFiles::foreign).map(|(name, dtype, shape, bytes)| {
        let content = Content::Raw(bytes);
        Entry { name, dtype, shape: shape.to_vec(), num_bytes: bytes.len(), content }
    });
    entries.extend(raw);
    let shards = cut_shards(&entries);
    if let [only] = shards.as_slice() {
        return write_shard(only, &dir.join("model.safetensors"));
    }
    let mut weight_map = Map::new();
    for (i, shard) in shards.iter().enumerate() {
        let file = format!("model-{:05}-of-{:05}.safetensors", i + 1, shards.len());
        write_shard(shard, &dir.join(&file))?;
        weight_map.extend(shard.iter().map(|entry| (entry.name.to_owned(), Value::String(file.clone()))));
    }
    let total: usize = entries.iter().map(|entry| entry.num_bytes).sum();
    let index = json!({"metadata": {"total_size": total}, "weight_map": weight_map});
    let text = serde_json::to_string_pretty(&index).expect("a JSON value prints");
    Ok(fs_err::write(dir.join("model.safetensors.index.json"), text)?)
}

fn cut_shards<'a>(entries: &'a [Entry<'a>]) -> Vec<Vec<&'a Entry<'a>>> {
    let mut shards = vec![Vec::new()];
    let mut room = MAX_SHARD_BYTES;
    for entry in entries {
        if entry.num_bytes > room && !shards[shards.len() - 1].is_empty() {
            shards.push(Vec::new());
            room = MAX_SHARD_BYTES;
        }
        room = room.saturating_sub(entry.num_bytes);
        shards.last_mut().expect("never empty").push(entry);
    }
    shards
}

fn write_shard(entries: &[&Entry], file: &Path) -> Result<(), ModelFault> {
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let tensors = entries.iter().map(|entry| (entry.name, *entry));
    safetensors::serialize_to_file(tensors, Some(metadata), file)
        .map_err(|e| ModelFault::Shard { file: file.to_path_buf(), message: format!("cannot be written: {e}") })
}
