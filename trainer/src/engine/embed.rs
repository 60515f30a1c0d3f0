//! Qwen3-Embedding as a text embedder: last-token pooling over the dense decoder (model card of Qwen3-Embedding-0.6B).

use crate::model::{Decoder, ModelFault, PackedLayout};
use napmem_rollout::generate::{Embed, ModelError, TextRole};
use std::path::Path;
use std::sync::Mutex;
use tch::{Device, Kind, Tensor};
use tokenizers::Tokenizer;

/// What queries are told to look for; documents stay raw.
const TASK: &str = "Given a question about a user, retrieve memory items that answer it";
/// The token that is appended and pooled.
const POOLED_TOKEN: &str = "<|endoftext|>";
/// Longest text in tokens; the rest is cut off.
const MAX_TOKENS: usize = 2048;
/// Padded tokens of one forward.
const MAX_BATCH_TOKENS: usize = 8192;

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
    /// Loads a Hugging Face folder onto `device` in dtype `kind`.
    pub fn load(dir: &Path, kind: Kind, device: Device) -> Result<Self, ModelFault> {
        let decoder = Decoder::load(dir, kind, device)?;
        let file = dir.join("tokenizer.json");
        let fault = |message: String| ModelFault::Config { file: file.clone(), key: "tokenizer".to_owned(), message };
        let tokenizer = Tokenizer::from_file(&file).map_err(|e| fault(format!("cannot be read: {e}")))?;
        let missing = || fault(format!("has no token {POOLED_TOKEN}, which is pooled"));
        let pooled_id = tokenizer.token_to_id(POOLED_TOKEN).ok_or_else(missing)?;
        let dimension = decoder.config.hidden_size as usize;
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
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|&i| (encoded[i].len(), i));
        let decoder = self.decoder.lock().map_err(|_| "the embedder failed in another thread")?;
        let _guard = tch::no_grad_guard();
        let mut vectors = vec![Vec::new(); texts.len()];
        let mut start = 0;
        while start < order.len() {
            // Sorted by length, so the last text of a batch is its longest.
            let fits = |end: &usize| encoded[order[*end]].len() * (end + 1 - start) <= MAX_BATCH_TOKENS;
            let end = (start + 1..order.len()).take_while(fits).last().map_or(start + 1, |last| last + 1);
            let batch = &order[start..end];
            let lengths: Vec<i64> = batch.iter().map(|&i| encoded[i].len() as i64).collect();
            let ids: Vec<i64> = batch.iter().flat_map(|&i| encoded[i].iter().copied()).collect();
            let layout = PackedLayout::new(&lengths, decoder.device());
            let x = decoder.forward(&Tensor::from_slice(&ids).to_device(decoder.device()), &layout, None, None);
            let pooled = decoder.final_norm(&x.index_select(0, &layout.last_tokens())).to_kind(Kind::Float);
            let norm = pooled.square().sum_dim_intlist([1i64].as_slice(), true, Kind::Float).sqrt().clamp_min(1e-12);
            for (&i, row) in batch.iter().zip(Vec::<Vec<f32>>::try_from((pooled / norm).to_device(Device::Cpu))?) {
                vectors[i] = row;
            }
            start = end;
        }
        Ok(vectors)
    }
}
