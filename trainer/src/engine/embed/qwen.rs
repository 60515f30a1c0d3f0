//! Qwen3-Embedding as a text embedder: last-token pooling over the dense decoder (model card of Qwen3-Embedding-0.6B).

use super::{embed_in_batches, read_tokenizer, tokenizer_fault};
use crate::model::{Decoder, ModelFault};
use napmem_rollout::generate::{Embed, ModelError, TextRole};
use std::path::Path;
use std::sync::Mutex;
use tch::{Device, Kind};
use tokenizers::Tokenizer;

/// What queries are told to look for; documents stay raw.
const TASK: &str = "Given a question about a user, retrieve memory items that answer it";
/// The token that is appended and pooled.
const POOLED_TOKEN: &str = "<|endoftext|>";
/// Longest text in tokens; the rest is cut off.
const MAX_TOKENS: usize = 2048;

/// A Qwen3-Embedding checkpoint.
#[derive(Debug)]
pub struct QwenEmbedder {
    // libtorch tensors may be used from any thread but only one at a time.
    decoder: Mutex<Decoder>,
    tokenizer: Tokenizer,
    pooled_id: u32,
    dimension: usize,
    identity: String,
}

impl QwenEmbedder {
    /// Loads a Hugging Face folder onto `device` in dtype `kind`. Vectors keep their first `dimension` numbers, all when
    /// `None`: the model is trained so that leading numbers alone make a vector (matryoshka representations).
    ///
    /// # Errors
    /// A folder that cannot be read; a tokenizer without the pooled token; a dimension that is not 1 to the model's width.
    pub fn load(dir: &Path, dimension: Option<usize>, kind: Kind, device: Device) -> Result<Self, ModelFault> {
        let decoder = Decoder::load(dir, kind, device)?;
        let width = decoder.config.hidden_size as usize;
        let dimension = dimension.unwrap_or(width);
        if !(1..=width).contains(&dimension) {
            let message = format!("is {width}, so that vectors cannot have {dimension} dimensions");
            return Err(ModelFault::Config { file: decoder.config.file, key: "hidden_size".to_owned(), message });
        }
        let tokenizer = read_tokenizer(dir, decoder.config.vocab_size)?;
        let missing = || tokenizer_fault(dir, format!("has no token {POOLED_TOKEN}, which is pooled"));
        let pooled_id = tokenizer.token_to_id(POOLED_TOKEN).ok_or_else(missing)?;
        let identity = format!("qwen3-embedding:{}:{dimension}:{kind:?}", dir.display());
        Ok(Self { decoder: Mutex::new(decoder), tokenizer, pooled_id, dimension, identity })
    }

    fn encode(&self, text: &str, role: TextRole) -> Result<Vec<i64>, ModelError> {
        let text = match role {
            TextRole::Query => format!("Instruct: {TASK}\nQuery:{text}"),
            TextRole::Document => text.to_owned(),
        };
        let encoding = self.tokenizer.encode_fast(text, false)?;
        let mut ids: Vec<i64> = encoding.get_ids().iter().take(MAX_TOKENS - 1).map(|&id| i64::from(id)).collect();
        ids.push(i64::from(self.pooled_id));
        Ok(ids)
    }
}

impl Embed for QwenEmbedder {
    fn dimension(&self) -> usize {
        self.dimension
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn embed(&self, texts: &[&str], role: TextRole) -> Result<Vec<Vec<f32>>, ModelError> {
        let encoded: Vec<Vec<i64>> = texts.iter().map(|text| self.encode(text, role)).collect::<Result<_, _>>()?;
        let decoder = self.decoder.lock().map_err(|_| "the embedder failed in another thread")?;
        embed_in_batches(&encoded, self.dimension, decoder.device(), |ids, layout| {
            let x = decoder.forward(ids, layout, None, None);
            decoder.final_norm(&x.index_select(0, &layout.last_tokens()))
        })
    }
}
