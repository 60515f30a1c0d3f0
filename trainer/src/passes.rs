//! Forward and backward passes over packed micro-batches: where the model and the objective meet.
//!
//! Dimensions: T packed tokens, N scored tokens.
//!
//! Memory is bounded twice. Going backward, only each layer's input is kept and the layer is computed again (`recompute`). The
//! head sees a chunk of scored positions at a time, each with its own backward, so that the [chunk, vocabulary] logits never
//! exist for the whole micro-batch. Neither changes a gradient.

use crate::grpo::{LossOutput, LossSums, MicroBatch};
use crate::model::{Decoder, PackedLayout, Rotation, score_chunk};
use napmem_native::backward;
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

/// How passes are cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PassOptions {
    /// Divides the logits, as when sampling.
    pub temperature: f64,
    /// Scored positions whose logits exist at one time; at least 1.
    pub head_chunk_tokens: usize,
    /// Keep only layer inputs and compute layers again going backward.
    pub recompute: bool,
}

/// What a backward pass found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PassReport {
    /// The loss and its parts.
    pub sums: LossSums,
    /// Σ of the entropies at scored positions, in nats.
    pub entropy: f64,
}

impl PassReport {
    /// Adds another micro-batch's report.
    pub fn merge(&mut self, other: &Self) {
        self.sums.merge(&other.sums);
        self.entropy += other.entropy;
    }
}

/// ln p of each scored token, fp32 [N]; no gradient.
pub fn score(decoder: &Decoder, batch: &MicroBatch, options: &PassOptions) -> Tensor {
    let _guard = tch::no_grad_guard();
    let layout = layout_of(batch, decoder);
    let x = decoder.forward(&batch.token_ids, &layout, None, None);
    let x_nh = x.index_select(0, &batch.score_positions);
    let chunks: Vec<Tensor> = chunks(batch.num_scored(), options.head_chunk_tokens)
        .map(|(start, length)| {
            let targets = batch.target_ids.narrow(0, start, length);
            score_chunk(decoder, &x_nh.narrow(0, start, length), &targets, options.temperature).logprobs_n
        })
        .collect();
    Tensor::cat(&chunks, 0)
}

/// Adds the gradients of the micro-batch's loss to the parameters' `.grad`.
///
/// `loss` gets the log-probabilities of a chunk of scored tokens and the micro-batch cut to that chunk, with the first token's
/// place in the micro-batch. `layer_done` gets the index of each layer as soon as its gradients hold this micro-batch's part; without
/// `recompute` nobody is told.
pub fn accumulate(
    decoder: &Decoder,
    batch: &MicroBatch,
    options: &PassOptions,
    loss: &dyn Fn(&Tensor, &MicroBatch, usize) -> LossOutput,
    layer_done: &mut dyn FnMut(usize) -> anyhow::Result<()>,
) -> anyhow::Result<PassReport> {
    let layout = layout_of(batch, decoder);
    if !options.recompute {
        let x = decoder.forward(&batch.token_ids, &layout, None, None);
        let scored = x.index_select(0, &batch.score_positions);
        let (report, dscored) = head_backward(decoder, &scored.detach(), batch, options, loss);
        backward(&[scored], &[dscored])?;
        return Ok(report);
    }
    let rotation = decoder.rotation(&layout);
    let (inputs, last) = forward_keeping_inputs(decoder, batch, &layout, &rotation);
    let scored = last.index_select(0, &batch.score_positions);
    let (report, dscored) = head_backward(decoder, &scored, batch, options, loss);
    // Added, not copied: the last position of a shared prompt is scored once for each attempt.
    let mut dx = last.zeros_like().index_add(0, &batch.score_positions, &dscored);
    for (index, (layer, input)) in decoder.layers().iter().zip(inputs).enumerate().rev() {
        let input = input.detach().set_requires_grad(true);
        let output = decoder.run_layer(layer, &input, &layout, &rotation);
        backward(&[output], &[dx])?;
        dx = input.grad();
        layer_done(index)?;
    }
    backward(&[decoder.embed(&batch.token_ids)], &[dx])?;
    Ok(report)
}

fn layout_of(batch: &MicroBatch, decoder: &Decoder) -> PackedLayout {
    PackedLayout::with_branches(&batch.lengths, &batch.branches, decoder.device())
}

fn forward_keeping_inputs(
    decoder: &Decoder,
    batch: &MicroBatch,
    layout: &PackedLayout,
    rotation: &Rotation,
) -> (Vec<Tensor>, Tensor) {
    let _guard = tch::no_grad_guard();
    let mut inputs = Vec::new();
    let mut x = decoder.embed(&batch.token_ids);
    for layer in decoder.layers() {
        let next = decoder.run_layer(layer, &x, layout, rotation);
        inputs.push(std::mem::replace(&mut x, next));
    }
    (inputs, x)
}

/// Runs head and loss chunk by chunk over the scored residual stream [N, hidden]; returns its gradient beside the report.
fn head_backward(
    decoder: &Decoder,
    scored_nh: &Tensor,
    batch: &MicroBatch,
    options: &PassOptions,
    loss: &dyn Fn(&Tensor, &MicroBatch, usize) -> LossOutput,
) -> (PassReport, Tensor) {
    let leaf = scored_nh.detach().set_requires_grad(true);
    let mut report = PassReport::default();
    for (start, length) in chunks(batch.num_scored(), options.head_chunk_tokens) {
        let part = batch.scored_range(start, length);
        let scores = score_chunk(decoder, &leaf.narrow(0, start, length), &part.target_ids, options.temperature);
        let output = loss(&scores.logprobs_n, &part, start as usize);
        output.loss.backward();
        let entropy = scores.entropy_n.sum(Kind::Double).double_value(&[]);
        report.merge(&PassReport { sums: output.sums, entropy });
    }
    (report, leaf.grad())
}

/// Start and length of consecutive chunks.
fn chunks(total: usize, size: usize) -> impl Iterator<Item = (i64, i64)> {
    (0..total).step_by(size).map(move |start| (start as i64, size.min(total - start) as i64))
}
