//! A policy as it is used: weights, chat format, and the checks between them.

use crate::config::ModelSection;
use crate::engine::{Engine, EngineLimits};
use crate::model::Decoder;
use anyhow::Context;
use napmem_rollout::chat::ChatFormat;
use std::path::{Path, PathBuf};
use tch::{Device, Kind};

/// A model folder, loaded.
#[derive(Debug)]
pub struct Policy {
    /// The weights.
    pub decoder: Decoder,
    /// The folder's tokenizer and template.
    pub chat: ChatFormat,
    /// Where it was loaded from; its tokenizer and template travel with every checkpoint.
    pub source: PathBuf,
    /// Updates that the weights have seen.
    pub version: u64,
}

impl Policy {
    /// Loads what `[model]` names.
    pub fn load(model: &ModelSection) -> anyhow::Result<Self> {
        set_threads(model.threads);
        Self::load_folder(&model.path, model.dtype.kind(), model.device.resolve()?)
    }

    /// Loads a folder. Ids above the tokenizer's are padding rows of the embedding: they are neither sampled nor scored.
    pub fn load_folder(dir: &Path, kind: Kind, device: Device) -> anyhow::Result<Self> {
        let chat = ChatFormat::load(dir).with_context(|| format!("chat format of {}", dir.display()))?;
        Ok(Self { decoder: load_decoder(dir, &chat, kind, device)?, chat, source: dir.to_path_buf(), version: 0 })
    }

    /// An engine on the current weights.
    pub fn engine(&self) -> Engine<'_> {
        Engine::new(&self.decoder, self.chat.stop_ids().to_vec(), EngineLimits::default(), self.version)
    }
}

/// Weights of a folder, checked against a chat format and limited to its vocabulary.
pub fn load_decoder(dir: &Path, chat: &ChatFormat, kind: Kind, device: Device) -> anyhow::Result<Decoder> {
    let mut decoder = Decoder::load(dir, kind, device)?;
    chat.check_vocabulary(decoder.config.vocab_size as usize)?;
    decoder.limit_vocabulary(chat.num_ids() as i64);
    Ok(decoder)
}

/// Bounds libtorch's and rayon's threads; all cores without a bound.
fn set_threads(threads: Option<usize>) {
    let Some(threads) = threads else { return };
    tch::set_num_threads(threads as i32);
    // Fails only when the pool exists already, which then keeps its size.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
}
