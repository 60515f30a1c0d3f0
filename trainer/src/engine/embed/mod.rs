//! Text embedders with weights, and what they share: reading a tokenizer, batches of like length, unit vectors.

mod bert;
mod pooling;
mod qwen;

pub use bert::BertEmbedder;
pub use qwen::QwenEmbedder;

use crate::model::{ModelFault, PackedLayout};
use napmem_rollout::generate::ModelError;
use std::path::Path;
use tch::{Device, Kind, Tensor};
use tokenizers::Tokenizer;

/// Padded tokens of one forward.
const MAX_BATCH_TOKENS: usize = 8192;

/// A fault of the folder's tokenizer.json.
fn tokenizer_fault(dir: &Path, message: String) -> ModelFault {
    ModelFault::Config { file: dir.join("tokenizer.json"), key: "tokenizer".to_owned(), message }
}

/// The folder's tokenizer, all of whose ids have a row among `vocab_size`. Padding and truncation that the file may ask for are
/// switched off: batches are made here.
fn read_tokenizer(dir: &Path, vocab_size: i64) -> Result<Tokenizer, ModelFault> {
    let fault = |message: String| tokenizer_fault(dir, message);
    let unreadable = |e: tokenizers::Error| fault(format!("cannot be read: {e}"));
    let mut tokenizer = Tokenizer::from_file(dir.join("tokenizer.json")).map_err(unreadable)?;
    tokenizer.with_padding(None).with_truncation(None).map_err(unreadable)?;
    let top = tokenizer.get_vocab(true).into_iter().map(|(token, id)| (id, token)).max();
    match top.filter(|(id, _)| i64::from(*id) >= vocab_size) {
        Some((id, token)) => Err(fault(format!("gives {token} the id {id}, but `vocab_size` is {vocab_size}"))),
        None => Ok(tokenizer),
    }
}

/// Vectors of encoded texts (none empty) in the texts' order, computed in batches of like length.
///
/// `pool` makes [R, C] of any dtype from packed ids i64 [T] and the layout of R texts. Of each row the first `dimension` numbers
/// are kept and scaled to norm 1 in fp32.
fn embed_in_batches(
    encoded: &[Vec<i64>],
    dimension: usize,
    device: Device,
    pool: impl Fn(&Tensor, &PackedLayout) -> Tensor,
) -> Result<Vec<Vec<f32>>, ModelError> {
    let mut order: Vec<usize> = (0..encoded.len()).collect();
    order.sort_by_key(|&i| (encoded[i].len(), i));
    let _guard = tch::no_grad_guard();
    let mut vectors = vec![Vec::new(); encoded.len()];
    let mut start = 0;
    while start < order.len() {
        // Sorted by length, so the last text of a batch is its longest.
        let fits = |end: &usize| encoded[order[*end]].len() * (end + 1 - start) <= MAX_BATCH_TOKENS;
        let end = (start + 1..order.len()).take_while(fits).last().map_or(start + 1, |last| last + 1);
        let batch = &order[start..end];
        let lengths: Vec<i64> = batch.iter().map(|&i| encoded[i].len() as i64).collect();
        let ids: Vec<i64> = batch.iter().flat_map(|&i| encoded[i].iter().copied()).collect();
        let pooled = pool(&Tensor::from_slice(&ids).to_device(device), &PackedLayout::new(&lengths, device));
        let pooled = pooled.to_kind(Kind::Float).narrow(1, 0, dimension as i64);
        let norm = pooled.square().sum_dim_intlist([1i64].as_slice(), true, Kind::Float).sqrt().clamp_min(1e-12);
        for (&i, row) in batch.iter().zip(Vec::<Vec<f32>>::try_from((pooled / norm).to_device(Device::Cpu))?) {
            vectors[i] = row;
        }
        start = end;
    }
    Ok(vectors)
}
