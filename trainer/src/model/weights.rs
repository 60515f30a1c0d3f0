//! The tensors of a model folder: their names and shapes by configuration, mapped files, strict loading.

use super::config::{LayerKind, ModelConfig, read_json};
use super::error::ModelFault;
use indexmap::IndexMap;
use memmap2::Mmap;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorInfo};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tch::{Device, Kind, Tensor};

/// A named trainable tensor.
#[derive(Debug)]
pub struct Parameter {
    /// The Hugging Face key.
    pub name: String,
    /// The leaf tensor.
    pub tensor: Tensor,
}

/// Names (with the configuration's own prefix) and shapes of all parameters, in a fixed order: embedding, layers, norm, head.
pub fn shapes(config: &ModelConfig) -> Vec<(String, Vec<i64>)> {
    let mut list = vec![(format!("{}embed_tokens.weight", config.prefix), vec![config.vocab_size, config.hidden_size])];
    for (i, kind) in config.layers.iter().enumerate() {
        let mixer = match kind {
            LayerKind::FullAttention => attention_shapes(config),
            LayerKind::LinearAttention => delta_net_shapes(config),
        };
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let mut layer = vec![("input_layernorm.weight", vec![hidden])];
        layer.extend(mixer);
        layer.push(("post_attention_layernorm.weight", vec![hidden]));
        layer.push(("mlp.gate_proj.weight", vec![inner, hidden]));
        layer.push(("mlp.up_proj.weight", vec![inner, hidden]));
        layer.push(("mlp.down_proj.weight", vec![hidden, inner]));
        list.extend(layer.into_iter().map(|(name, shape)| (format!("{}layers.{i}.{name}", config.prefix), shape)));
    }
    list.push((format!("{}norm.weight", config.prefix), vec![config.hidden_size]));
    if !config.tie_word_embeddings {
        list.push(("lm_head.weight".to_owned(), vec![config.vocab_size, config.hidden_size]));
    }
    list
}

fn attention_shapes(config: &ModelConfig) -> Vec<(&'static str, Vec<i64>)> {
    let attention = &config.attention;
    let (hidden, dim) = (config.hidden_size, attention.head_dim);
    let query = attention.num_heads * dim * if attention.output_gate { 2 } else { 1 };
    let mut list = vec![
        ("self_attn.q_proj.weight", vec![query, hidden]),
        ("self_attn.k_proj.weight", vec![attention.num_key_value_heads * dim, hidden]),
        ("self_attn.v_proj.weight", vec![attention.num_key_value_heads * dim, hidden]),
        ("self_attn.o_proj.weight", vec![hidden, attention.num_heads * dim]),
    ];
    if attention.qk_norm {
        list.push(("self_attn.q_norm.weight", vec![dim]));
        list.push(("self_attn.k_norm.weight", vec![dim]));
    }
    list
}

fn delta_net_shapes(config: &ModelConfig) -> Vec<(&'static str, Vec<i64>)> {
    let net = config.delta_net.expect("a config with linear layers has their shape");
    let (hidden, heads, values) = (config.hidden_size, net.num_value_heads, net.num_value_heads * net.value_head_dim);
    vec![
        ("linear_attn.in_proj_qkv.weight", vec![net.conv_channels(), hidden]),
        ("linear_attn.in_proj_z.weight", vec![values, hidden]),
        ("linear_attn.in_proj_b.weight", vec![heads, hidden]),
        ("linear_attn.in_proj_a.weight", vec![heads, hidden]),
        ("linear_attn.conv1d.weight", vec![net.conv_channels(), 1, net.conv_kernel]),
        ("linear_attn.A_log", vec![heads]),
        ("linear_attn.dt_bias", vec![heads]),
        ("linear_attn.norm.weight", vec![net.value_head_dim]),
        ("linear_attn.out_proj.weight", vec![hidden, values]),
    ]
}

/// The dtype in which a parameter is held: the decay parameters and the DeltaNet's norm stay in fp32 whatever the model's.
pub fn kind_of(name: &str, model_kind: Kind) -> Kind {
    let fp32 = ["linear_attn.A_log", "linear_attn.dt_bias", "linear_attn.norm.weight"];
    if fp32.iter().any(|suffix| name.ends_with(suffix)) { Kind::Float } else { model_kind }
}

/// A file's tensors, mapped.
#[derive(Debug)]
struct Shard {
    file: PathBuf,
    map: Mmap,
    data_start: usize,
}

/// All safetensors files of a model folder.
#[derive(Debug)]
pub struct WeightFiles {
    dir: PathBuf,
    shards: Vec<Shard>,
    entries: IndexMap<String, (usize, TensorInfo)>,
}

impl WeightFiles {
    /// Maps `model.safetensors`, or the shards that `model.safetensors.index.json` names.
    pub fn open(dir: &Path) -> Result<Self, ModelFault> {
        let index = dir.join("model.safetensors.index.json");
        let single = dir.join("model.safetensors");
        let files =
            if index.exists() { shard_names(&index)?.iter().map(|n| dir.join(n)).collect() } else { vec![single] };
        Self::map(dir, files)
    }

    /// Maps these files of `dir`, whose tensors have different names.
    pub fn map(dir: &Path, files: Vec<PathBuf>) -> Result<Self, ModelFault> {
        let mut found = Self { dir: dir.to_path_buf(), shards: Vec::new(), entries: IndexMap::new() };
        for file in files {
            found.add(file)?;
        }
        Ok(found)
    }

    #[allow(unsafe_code)]
    fn add(&mut self, file: PathBuf) -> Result<(), ModelFault> {
        let handle = fs_err::File::open(&file)?;
        // SAFETY: the mapping is read-only; a file changed by someone else while mapped is outside what we can guard.
        let map = unsafe { Mmap::map(handle.file()) }?;
        let fault = |message: String| ModelFault::Shard { file: file.clone(), message };
        let (header, metadata) = SafeTensors::read_metadata(&map)
            .map_err(|e| fault(format!("truncated or damaged: {e}; the file has {} bytes", map.len())))?;
        let data_start = header + 8;
        for (name, info) in metadata.tensors() {
            if data_start + info.data_offsets.1 > map.len() {
                let message = format!(
                    "truncated: `{name}` ends at byte {}, the file has {}",
                    data_start + info.data_offsets.1,
                    map.len()
                );
                return Err(fault(message));
            }
            if self.entries.insert(name.clone(), (self.shards.len(), info.clone())).is_some() {
                return Err(fault(format!("tensor `{name}` is in two files")));
            }
        }
        self.shards.push(Shard { file, map, data_start });
        Ok(())
    }

    /// Loads every parameter of `config` onto `device`, in the order of [`shapes`].
    ///
    /// Refuses missing, misshapen and unknown tensors (vision and multi-token-prediction tensors are known and left out).
    pub fn load(&self, config: &ModelConfig, kind: Kind, device: Device) -> Result<Vec<Parameter>, ModelFault> {
        let mut used = BTreeSet::new();
        let mut list = Vec::new();
        for (name, shape) in shapes(config) {
            let key = self.find(&name, &config.prefix).ok_or_else(|| self.missing(&name, &shape))?;
            let tensor = self.read(&key, &shape)?.to_kind(kind_of(&name, kind)).to_device(device);
            used.insert(key);
            list.push(Parameter { name, tensor });
        }
        let tied_head = |name: &str| config.tie_word_embeddings && name == "lm_head.weight";
        self.refuse_others(|name| used.contains(name) || is_foreign(name) || tied_head(name))?;
        Ok(list)
    }

    /// Loads tensors of exactly these names and shapes onto `device` in dtype `kind`, in the order given.
    ///
    /// Refuses missing and misshapen tensors, and unknown ones unless `ignored` names them.
    pub fn load_named(
        &self,
        wanted: &[(String, Vec<i64>)],
        ignored: impl Fn(&str) -> bool,
        kind: Kind,
        device: Device,
    ) -> Result<Vec<Tensor>, ModelFault> {
        let read = |(name, shape): &(String, Vec<i64>)| {
            if !self.entries.contains_key(name) {
                return Err(self.missing(name, shape));
            }
            Ok(self.read(name, shape)?.to_kind(kind).to_device(device))
        };
        let tensors = wanted.iter().map(read).collect::<Result<_, _>>()?;
        let names: BTreeSet<&str> = wanted.iter().map(|(name, _)| name.as_str()).collect();
        self.refuse_others(|name| names.contains(name) || ignored(name))?;
        Ok(tensors)
    }

    fn refuse_others(&self, is_known: impl Fn(&str) -> bool) -> Result<(), ModelFault> {
        match self.entries.keys().find(|name| !is_known(name)) {
            Some(name) => Err(self.fault(name, "is not part of this architecture".to_owned())),
            None => Ok(()),
        }
    }

    /// Raw tensors of the folder that are not the text model's: vision and multi-token prediction.
    pub fn foreign(&self) -> impl Iterator<Item = (&str, Dtype, &[usize], &[u8])> {
        self.entries
            .iter()
            .filter(|(name, _)| is_foreign(name))
            .map(|(name, (shard, info))| (name.as_str(), info.dtype, info.shape.as_slice(), self.bytes(*shard, info)))
    }

    /// The name in the files of the parameter that we call `name`: as it is, or under one of the other prefixes in use.
    fn find(&self, name: &str, own_prefix: &str) -> Option<String> {
        let bare = name.strip_prefix(own_prefix);
        let others = bare.map(|b| ["model.language_model.", "model.", ""].map(|prefix| format!("{prefix}{b}")));
        let mut candidates = std::iter::once(name.to_owned()).chain(others.into_iter().flatten());
        candidates.find(|candidate| self.entries.contains_key(candidate))
    }

    fn bytes(&self, shard: usize, info: &TensorInfo) -> &[u8] {
        let shard = &self.shards[shard];
        &shard.map[shard.data_start + info.data_offsets.0..shard.data_start + info.data_offsets.1]
    }

    fn read(&self, key: &str, shape: &[i64]) -> Result<Tensor, ModelFault> {
        let tensor = self.read_any(key)?;
        if tensor.size() != shape {
            let message = format!("has shape {:?}, this configuration needs {shape:?}", tensor.size());
            return Err(self.fault(key, message));
        }
        Ok(tensor)
    }

    fn read_any(&self, key: &str) -> Result<Tensor, ModelFault> {
        let (shard, info) = &self.entries[key];
        let shape: Vec<i64> = info.shape.iter().map(|&n| n as i64).collect();
        let kind = match info.dtype {
            Dtype::F32 => Kind::Float,
            Dtype::BF16 => Kind::BFloat16,
            Dtype::F16 => Kind::Half,
            Dtype::F64 => Kind::Double,
            Dtype::I64 => Kind::Int64,
            other => return Err(self.fault(key, format!("has dtype {other:?}; allowed are F32, BF16, F16, F64, I64"))),
        };
        Ok(Tensor::f_from_data_size(self.bytes(*shard, info), &shape, kind)?)
    }

    /// Names of all tensors, in the files' order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The tensor of that name as it is, on the CPU.
    ///
    /// # Errors
    /// There is none, or it has a dtype that nobody here uses.
    pub fn tensor(&self, name: &str) -> Result<Tensor, ModelFault> {
        if self.entries.contains_key(name) { self.read_any(name) } else { Err(self.missing(name, &[])) }
    }

    fn missing(&self, name: &str, shape: &[i64]) -> ModelFault {
        let message = format!("is missing; expected shape {shape:?}");
        ModelFault::Tensor { file: self.dir.clone(), tensor: name.to_owned(), message }
    }

    fn fault(&self, key: &str, message: String) -> ModelFault {
        let file = self.entries.get(key).map_or(&self.dir, |(shard, _)| &self.shards[*shard].file);
        ModelFault::Tensor { file: file.clone(), tensor: key.to_owned(), message }
    }
}

/// Tensors that belong to the same checkpoint but not to the text model.
fn is_foreign(name: &str) -> bool {
    ["model.visual.", "visual.", "mtp.", "model.mtp."].iter().any(|prefix| name.starts_with(prefix))
}

fn shard_names(index: &Path) -> Result<BTreeSet<String>, ModelFault> {
    let json = read_json(index)?;
    let fault = |message: &str| ModelFault::Config {
        file: index.to_path_buf(),
        key: "weight_map".to_owned(),
        message: message.to_owned(),
    };
    let map = json.get("weight_map").and_then(Value::as_object).ok_or_else(|| fault("must be an object"))?;
    map.values().map(|v| v.as_str().map(str::to_owned).ok_or_else(|| fault("must map names to file names"))).collect()
}
