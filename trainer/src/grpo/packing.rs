//! Cuts a batch into packed micro-batches whose losses add up to the batch's loss, however it is cut.
//!
//! Dimensions: T packed tokens, N scored tokens (those that the policy wrote).
//!
//! Every scored token gets its weight in the batch's loss before the cut, from counts of the *whole* batch: dividing by a
//! micro-batch's own count would weigh tokens by their neighbours. Tokens that the policy did not write are context only:
//! they have no place among the N, so no loss can reach them.
//!
//! Sequences of one group share their prompt: it is packed once, and what follows it in each of them goes on from there.

use napmem_rollout::trajectory::Trajectory;
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};
use thiserror::Error;

mod carry;
mod plan;

pub use carry::carry;
use plan::{Tree, plan};

/// How token losses become one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossAggregation {
    /// Mean over all completion tokens of the batch.
    #[default]
    TokenMean,
    /// Sum over a trajectory, mean over trajectories.
    SeqMeanTokenSum,
    /// Mean over a trajectory, mean over trajectories.
    SeqMeanTokenMean,
    /// Sum over a trajectory divided by `sequence_norm`, mean over trajectories (Dr. GRPO).
    SeqMeanTokenSumNorm,
}

/// How a batch is cut and weighed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PackOptions {
    /// Most padded tokens in a micro-batch, at least 1: sequences × the longest one. Where prompts are shared: prompts × the longest
    /// one, what follows them × the longest of these, and a quarter of a token for each position of a prompt that attention copies
    /// for a sequence.
    pub micro_batch_tokens: usize,
    /// How token losses are averaged.
    pub aggregation: LossAggregation,
    /// The divisor of [`LossAggregation::SeqMeanTokenSumNorm`], in tokens; unused otherwise.
    pub sequence_norm: Option<f64>,
}

/// A sequence to train on; the slices are equally long.
///
/// Worked example: ids `P P a S o o a S` with mask `0 0 1 1 0 0 1 1` is scored at positions 1, 2, 5 and 6, each of which
/// predicts the token after it.
#[derive(Debug, Clone, Copy)]
pub struct TrainSequence<'a> {
    /// Prompt, completions and observations.
    pub token_ids: &'a [u32],
    /// 1 where the policy wrote the token, 0 elsewhere.
    pub loss_mask: &'a [u8],
    /// ln p of each sampled token when it was sampled; read only where the mask is 1.
    pub sampler_logprobs: &'a [f32],
    /// The sequence's advantage; unused by supervised training.
    pub advantage: f64,
    /// Sequences of one group are computed behind one copy of their prompt; one of no group is computed as a whole.
    pub group: Option<u64>,
}

impl<'a> TrainSequence<'a> {
    /// What to train on of an attempt, as a sequence of no group.
    pub fn of(trajectory: &'a Trajectory, advantage: f64) -> Self {
        Self {
            token_ids: &trajectory.token_ids,
            loss_mask: &trajectory.loss_mask,
            sampler_logprobs: &trajectory.sampler_logprobs,
            advantage,
            group: None,
        }
    }

    /// Number of tokens that the policy wrote.
    pub fn num_scored(&self) -> usize {
        self.loss_mask.iter().filter(|&&mask| mask == 1).count()
    }
}

/// What the losses of one update are divided by: counts over all its sequences, on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GlobalCounts {
    /// Scored tokens.
    pub num_tokens: usize,
    /// Sequences with a scored token; one without has no loss to average.
    pub num_sequences: usize,
}

impl GlobalCounts {
    /// Counts of `sequences`.
    pub fn of(sequences: &[TrainSequence]) -> Self {
        let scored = sequences.iter().map(TrainSequence::num_scored);
        scored.filter(|&n| n > 0).fold(Self::default(), |counts, n| Self {
            num_tokens: counts.num_tokens + n,
            num_sequences: counts.num_sequences + 1,
        })
    }
}

/// A place in a batch: the token at `position` of sequence `sequence`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenPlace {
    /// Index into the slice given to [`pack`].
    pub sequence: usize,
    /// Position of the token in its sequence.
    pub position: usize,
}

/// Sequences that go through the model together.
///
/// Worked example: of the sequences `P P a a`, `P P b` and `Q c c c` the first two are of one group. Packed,
/// `P P Q c c c a a b` is rows of 2 and 4 tokens and two branches of row 0, of 2 and 1 tokens. Of the packed positions 1 and 6
/// are scored for the first sequence, 1 for the second, 2, 3 and 4 for the third.
#[derive(Debug)]
pub struct MicroBatch {
    /// Ids of all rows one after the other, then those of all branches, i64 \[T\].
    pub token_ids: Tensor,
    /// Length of each row: a whole sequence, or what the sequences of a group share.
    pub lengths: Vec<i64>,
    /// For each sequence that goes on behind a shared row, the row's index and the number of tokens that follow it.
    pub branches: Vec<(i64, i64)>,
    /// Packed positions whose hidden state predicts a scored token, i64 \[N\]. The last one of a shared row may stand there for
    /// each of its branches.
    pub score_positions: Tensor,
    /// The scored tokens, i64 \[N\].
    pub target_ids: Tensor,
    /// Index of each scored token's sequence in the batch, i64 \[N\].
    pub sequence_of: Tensor,
    /// Advantage of each scored token, f32 \[N\].
    pub advantages: Tensor,
    /// ln p when sampled, f32 \[N\].
    pub sampler_logprobs: Tensor,
    /// ln p under the weights before the batch's first update, f32 \[N\]; `None` when those are the weights being trained
    /// (the first update of a batch). The caller sets it.
    pub old_logprobs: Option<Tensor>,
    /// Factor of each token's loss in the batch's loss, f32 \[N\].
    pub token_weights: Tensor,
    /// Where each scored token lies in the batch, N entries.
    pub targets: Vec<TokenPlace>,
}

impl MicroBatch {
    /// The micro-batch with its tensors on `device`.
    pub fn to_device(&self, device: Device) -> Self {
        Self {
            token_ids: self.token_ids.to_device(device),
            lengths: self.lengths.clone(),
            branches: self.branches.clone(),
            score_positions: self.score_positions.to_device(device),
            target_ids: self.target_ids.to_device(device),
            sequence_of: self.sequence_of.to_device(device),
            advantages: self.advantages.to_device(device),
            sampler_logprobs: self.sampler_logprobs.to_device(device),
            old_logprobs: self.old_logprobs.as_ref().map(|old| old.to_device(device)),
            token_weights: self.token_weights.to_device(device),
            targets: self.targets.clone(),
        }
    }

    /// The same sequences with `length` of the scored tokens, from `start` on. Weights stay those of the whole batch.
    pub fn scored_range(&self, start: i64, length: i64) -> Self {
        let cut = |t: &Tensor| t.narrow(0, start, length);
        Self {
            token_ids: self.token_ids.shallow_clone(),
            lengths: self.lengths.clone(),
            branches: self.branches.clone(),
            score_positions: cut(&self.score_positions),
            target_ids: cut(&self.target_ids),
            sequence_of: cut(&self.sequence_of),
            advantages: cut(&self.advantages),
            sampler_logprobs: cut(&self.sampler_logprobs),
            old_logprobs: self.old_logprobs.as_ref().map(cut),
            token_weights: cut(&self.token_weights),
            targets: self.targets[start as usize..(start + length) as usize].to_vec(),
        }
    }

    /// N.
    pub fn num_scored(&self) -> usize {
        self.targets.len()
    }

    /// T: what linear layers compute.
    pub fn num_tokens(&self) -> usize {
        (self.lengths.iter().sum::<i64>() + self.branches.iter().map(|&(_, length)| length).sum::<i64>()) as usize
    }

    /// Tokens of prompts that are computed for one sequence and used by another.
    pub fn num_shared_tokens(&self) -> usize {
        let mut is_first = vec![true; self.lengths.len()];
        let used_again = self.branches.iter().filter(|&&(row, _)| !std::mem::take(&mut is_first[row as usize]));
        used_again.map(|&(row, _)| self.lengths[row as usize] as usize).sum()
    }
}

/// A batch, cut.
#[derive(Debug)]
pub struct PackedBatch {
    /// The micro-batches, that with the longest sequence first (so that what does not fit fails at once).
    pub micro_batches: Vec<MicroBatch>,
    /// What the weights were made from.
    pub counts: GlobalCounts,
    /// Sequences longer than the budget, each alone in its micro-batch.
    pub num_oversized: usize,
    /// Sequences left out because they have no scored token.
    pub num_unscored: usize,
}

/// A sequence that cannot be trained on, or options that leave a weight undefined.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum PackError {
    /// The slices of a sequence differ in length, or are empty.
    #[error(
        "sequence {sequence}: `token_ids`, `loss_mask` and `sampler_logprobs` must be equally long and not empty, \
         got {num_ids}, {num_mask} and {num_logprobs}"
    )]
    Lengths {
        /// Index of the sequence.
        sequence: usize,
        /// Length of `token_ids`.
        num_ids: usize,
        /// Length of `loss_mask`.
        num_mask: usize,
        /// Length of `sampler_logprobs`.
        num_logprobs: usize,
    },
    /// A mask value other than 0 and 1.
    #[error("sequence {sequence}: `loss_mask` must be 0 or 1, got {value} at position {position}")]
    MaskValue {
        /// Index of the sequence.
        sequence: usize,
        /// Position in it.
        position: usize,
        /// What was found.
        value: u8,
    },
    /// The first token is to be predicted from nothing.
    #[error("sequence {sequence}: `loss_mask` must be 0 at position 0: nothing predicts the first token")]
    FirstToken {
        /// Index of the sequence.
        sequence: usize,
    },
    /// A NaN or infinite advantage.
    #[error("sequence {sequence}: the advantage must be finite, got {value}")]
    Advantage {
        /// Index of the sequence.
        sequence: usize,
        /// What was found.
        value: f64,
    },
    /// A bad divisor of sequence sums.
    #[error("`sequence_norm` must be above 0 with the aggregation seq-mean-token-sum-norm, got {0:?}")]
    SequenceNorm(Option<f64>),
}

/// Cuts `sequences` into micro-batches of at most `micro_batch_tokens` padded tokens.
///
/// `counts` are those of the whole update: [`GlobalCounts::of`] these sequences, summed over ranks where there are several.
/// Sequences are sorted by length, longest first and ties by index, and cut greedily; those of a group stay together as far as
/// the budget lets them. Tensors are made on the CPU.
///
/// # Errors
/// A malformed sequence, or `sequence_norm` missing where it is needed.
pub fn pack(
    sequences: &[TrainSequence],
    counts: GlobalCounts,
    options: &PackOptions,
) -> Result<PackedBatch, PackError> {
    assert!(options.micro_batch_tokens > 0, "micro_batch_tokens must be at least 1");
    check_norm(options)?;
    for (index, sequence) in sequences.iter().enumerate() {
        check_sequence(index, sequence)?;
    }
    let scored: Vec<usize> = (0..sequences.len()).filter(|&i| sequences[i].num_scored() > 0).collect();
    let micro_batches = plan(sequences, &scored, options.micro_batch_tokens)
        .iter()
        .map(|trees| micro_batch(sequences, trees, counts, options))
        .collect();
    let is_oversized = |&&i: &&usize| sequences[i].token_ids.len() > options.micro_batch_tokens;
    Ok(PackedBatch {
        micro_batches,
        counts,
        num_oversized: scored.iter().filter(is_oversized).count(),
        num_unscored: sequences.len() - scored.len(),
    })
}

fn check_norm(options: &PackOptions) -> Result<(), PackError> {
    let usable = options.sequence_norm.is_some_and(|norm| norm.is_finite() && norm > 0.0);
    if options.aggregation == LossAggregation::SeqMeanTokenSumNorm && !usable {
        return Err(PackError::SequenceNorm(options.sequence_norm));
    }
    Ok(())
}

fn check_sequence(index: usize, sequence: &TrainSequence) -> Result<(), PackError> {
    let (num_ids, num_mask, num_logprobs) =
        (sequence.token_ids.len(), sequence.loss_mask.len(), sequence.sampler_logprobs.len());
    if num_ids == 0 || num_ids != num_mask || num_ids != num_logprobs {
        return Err(PackError::Lengths { sequence: index, num_ids, num_mask, num_logprobs });
    }
    if let Some(position) = sequence.loss_mask.iter().position(|&mask| mask > 1) {
        return Err(PackError::MaskValue { sequence: index, position, value: sequence.loss_mask[position] });
    }
    if sequence.loss_mask[0] == 1 {
        return Err(PackError::FirstToken { sequence: index });
    }
    if !sequence.advantage.is_finite() {
        return Err(PackError::Advantage { sequence: index, value: sequence.advantage });
    }
    Ok(())
}

/// Factor of each of a sequence's token losses in the loss of the whole batch.
fn token_weight(num_scored: usize, counts: GlobalCounts, options: &PackOptions) -> f64 {
    let num_sequences = counts.num_sequences as f64;
    match options.aggregation {
        LossAggregation::TokenMean => 1.0 / counts.num_tokens as f64,
        LossAggregation::SeqMeanTokenSum => 1.0 / num_sequences,
        LossAggregation::SeqMeanTokenMean => 1.0 / (num_sequences * num_scored as f64),
        LossAggregation::SeqMeanTokenSumNorm => 1.0 / (num_sequences * options.sequence_norm.expect("checked by pack")),
    }
}

/// A sequence's place among packed ids: its first `row_length` tokens from `row_start` on, the others from `branch_start` on.
struct Placement {
    sequence: usize,
    row_start: usize,
    row_length: usize,
    branch_start: usize,
}

impl Placement {
    fn of(&self, position: usize) -> i64 {
        let packed = match position.checked_sub(self.row_length) {
            None => self.row_start + position,
            Some(behind) => self.branch_start + behind,
        };
        packed as i64
    }
}

/// Rows and branches of a micro-batch.
#[derive(Default)]
struct Laid {
    ids: Vec<i64>,
    lengths: Vec<i64>,
    branches: Vec<(i64, i64)>,
    placements: Vec<Placement>,
}

/// Lays the rows of `trees` one after the other, then their branches.
fn lay(sequences: &[TrainSequence], trees: &[Tree]) -> Laid {
    let mut laid = Laid::default();
    let mut row_starts = Vec::new();
    for tree in trees {
        row_starts.push(laid.ids.len());
        laid.lengths.push(tree.row_length as i64);
        let row = &sequences[tree.sequences[0]].token_ids[..tree.row_length];
        laid.ids.extend(row.iter().map(|&id| i64::from(id)));
    }
    for ((row, tree), row_start) in trees.iter().enumerate().zip(row_starts) {
        for &sequence in &tree.sequences {
            let branch = &sequences[sequence].token_ids[tree.row_length..];
            let branch_start = laid.ids.len();
            laid.ids.extend(branch.iter().map(|&id| i64::from(id)));
            if tree.is_shared() {
                laid.branches.push((row as i64, branch.len() as i64));
            }
            laid.placements.push(Placement { sequence, row_start, row_length: tree.row_length, branch_start });
        }
    }
    laid
}

/// Packs the sequences of `trees`, in that order.
fn micro_batch(sequences: &[TrainSequence], trees: &[Tree], counts: GlobalCounts, options: &PackOptions) -> MicroBatch {
    let (mut positions, mut target_ids, mut targets) = (Vec::new(), Vec::new(), Vec::new());
    let (mut advantages, mut sampler, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    let laid = lay(sequences, trees);
    for placement in &laid.placements {
        let sequence = &sequences[placement.sequence];
        let weight = token_weight(sequence.num_scored(), counts, options) as f32;
        for position in (1..sequence.token_ids.len()).filter(|&p| sequence.loss_mask[p] == 1) {
            positions.push(placement.of(position - 1));
            target_ids.push(i64::from(sequence.token_ids[position]));
            advantages.push(sequence.advantage as f32);
            sampler.push(sequence.sampler_logprobs[position]);
            weights.push(weight);
            targets.push(TokenPlace { sequence: placement.sequence, position });
        }
    }
    let sequence_of: Vec<i64> = targets.iter().map(|place| place.sequence as i64).collect();
    MicroBatch {
        token_ids: Tensor::from_slice(&laid.ids),
        lengths: laid.lengths,
        branches: laid.branches,
        score_positions: Tensor::from_slice(&positions),
        target_ids: Tensor::from_slice(&target_ids),
        sequence_of: Tensor::from_slice(&sequence_of),
        advantages: Tensor::from_slice(&advantages).to_kind(Kind::Float),
        sampler_logprobs: Tensor::from_slice(&sampler),
        old_logprobs: None,
        token_weights: Tensor::from_slice(&weights),
        targets,
    }
}

#[cfg(test)]
mod tests;
