//! A sentence encoder of the BERT family (all-MiniLM-L6-v2 and the like) as a text embedder: masked mean pooling.
//!
//! Texts are embedded as they are, queries like documents.

use super::pooling::{check_modules, max_tokens};
use super::{embed_in_batches, read_tokenizer, tokenizer_fault};
use crate::model::{BertEncoder, ModelFault, PackedLayout};
use napmem_rollout::generate::{Embed, ModelError, TextRole};
use std::path::Path;
use std::sync::Mutex;
use tch::{Device, Kind, Tensor};
use tokenizers::{PostProcessor, Tokenizer, TruncationParams};

/// A BERT checkpoint that was trained to embed sentences.
#[derive(Debug)]
pub struct BertEmbedder {
    // libtorch tensors may be used from any thread but only one at a time.
    encoder: Mutex<BertEncoder>,
    tokenizer: Tokenizer,
    dimension: usize,
    identity: String,
}

impl BertEmbedder {
    /// Loads a Hugging Face folder onto `device` in dtype `kind`.
    ///
    /// # Errors
    /// A folder that cannot be read, or whose sentence-transformers files ask for something else than mean pooling and norm 1.
    pub fn load(dir: &Path, kind: Kind, device: Device) -> Result<Self, ModelFault> {
        let encoder = BertEncoder::load(dir, kind, device)?;
        check_modules(dir, &encoder.config)?;
        let mut tokenizer = read_tokenizer(dir, encoder.config.vocab_size)?;
        let num_added = tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
        if num_added == 0 {
            let message = "adds no special tokens to a text; BERT is trained with [CLS] and [SEP]".to_owned();
            return Err(tokenizer_fault(dir, message));
        }
        let max_tokens = max_tokens(dir, &encoder.config, num_added)?;
        let truncation = TruncationParams { max_length: max_tokens, ..TruncationParams::default() };
        let unusable =
            |e: tokenizers::Error| tokenizer_fault(dir, format!("cannot cut texts to {max_tokens} tokens: {e}"));
        tokenizer.with_truncation(Some(truncation)).map_err(unusable)?;
        // Spelt in a text, [SEP] is three words; only the post-processor adds the token.
        tokenizer.set_encode_special_tokens(true);
        let dimension = encoder.config.hidden_size as usize;
        let identity = format!("bert:{}:{dimension}:{max_tokens}:{kind:?}", dir.display());
        Ok(Self { encoder: Mutex::new(encoder), tokenizer, dimension, identity })
    }

    fn encode(&self, text: &str) -> Result<Vec<i64>, ModelError> {
        let encoding = self.tokenizer.encode_fast(text, true)?;
        Ok(encoding.get_ids().iter().map(|&id| i64::from(id)).collect())
    }
}

impl Embed for BertEmbedder {
    fn dimension(&self) -> usize {
        self.dimension
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn embed(&self, texts: &[&str], _role: TextRole) -> Result<Vec<Vec<f32>>, ModelError> {
        let encoded: Vec<Vec<i64>> = texts.iter().map(|text| self.encode(text)).collect::<Result<_, _>>()?;
        let encoder = self.encoder.lock().map_err(|_| "the embedder failed in another thread")?;
        embed_in_batches(&encoded, self.dimension, encoder.device(), |ids, layout| {
            mean_of_rows(&encoder.forward(ids, layout), layout)
        })
    }
}

/// Packed `x` [T, C] to each text's mean over its tokens, special ones included: fp32 [R, C].
fn mean_of_rows(x_tc: &Tensor, layout: &PackedLayout) -> Tensor {
    // Padding is zero in the row view, so that it adds nothing.
    let sums = layout.to_rows(&x_tc.to_kind(Kind::Float)).sum_dim_intlist([1i64].as_slice(), false, Kind::Float);
    sums / layout.lengths_r.to_kind(Kind::Float).unsqueeze(1)
}
