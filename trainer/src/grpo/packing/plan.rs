//! Which sequences go through the model together, and which of them share their beginning.
//!
//! The attempts of a group have the same prompt. It becomes one row of the micro-batch and each attempt a branch behind it, so
//! that the prompt is computed once. What is shared is what the ids say: all that the sequences have in common from the start, up
//! to the first token that one of them is scored on.

use super::TrainSequence;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A position of a shared row costs each branch this part of a token: attention keeps a copy of its key and value, where a token
/// keeps about 16 widths of the residual stream and 4 of the MLP.
const COPIES_A_TOKEN: usize = 4;

/// A row of a micro-batch, and the sequences that go on behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tree {
    /// Number of tokens of the row, at least 1.
    pub row_length: usize,
    /// Indices of the sequences. One alone is the row; several share the row, and each has its further tokens as a branch.
    pub sequences: Vec<usize>,
    /// Length of the longest branch, 0 where the row is a whole sequence.
    longest_branch: usize,
}

impl Tree {
    fn alone(index: usize, sequence: &TrainSequence) -> Self {
        Self { row_length: sequence.token_ids.len(), sequences: vec![index], longest_branch: 0 }
    }

    /// Whether the row is shared.
    pub fn is_shared(&self) -> bool {
        self.longest_branch > 0
    }

    /// Length of the longest sequence.
    pub fn longest_sequence(&self) -> usize {
        self.row_length + self.longest_branch
    }

    fn num_branches(&self) -> usize {
        if self.is_shared() { self.sequences.len() } else { 0 }
    }
}

/// Cuts the sequences at `indices` into micro-batches of at most `budget` padded tokens, as [`padded_tokens`] counts them. A
/// sequence longer than that is alone in its micro-batch.
///
/// Trees that share a row come before sequences that stand alone, each by length, longest first and ties by index, and are cut
/// greedily. The micro-batch with the longest sequence is the first.
pub(super) fn plan(sequences: &[TrainSequence], indices: &[usize], budget: usize) -> Vec<Vec<Tree>> {
    let (mut shared, mut alone) = (Vec::new(), Vec::new());
    for tree in trees(sequences, indices, budget) {
        if tree.is_shared() { shared.push(tree) } else { alone.push(tree) }
    }
    let mut micro_batches = Vec::new();
    for mut trees in [shared, alone] {
        trees.sort_by_key(|tree| (Reverse(tree.longest_branch), Reverse(tree.row_length), tree.sequences[0]));
        micro_batches.extend(cut(trees, budget));
    }
    let longest = |trees: &Vec<Tree>| trees.iter().map(Tree::longest_sequence).max();
    micro_batches.sort_by_key(|trees| Reverse(longest(trees)));
    micro_batches
}

/// The sequences as trees, none of which is over the budget but for a sequence alone.
fn trees(sequences: &[TrainSequence], indices: &[usize], budget: usize) -> Vec<Tree> {
    let mut trees = Vec::new();
    let mut groups: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for &index in indices {
        match sequences[index].group {
            Some(group) => groups.entry(group).or_default().push(index),
            None => trees.push(Tree::alone(index, &sequences[index])),
        }
    }
    for members in groups.into_values() {
        trees.extend(group_trees(sequences, members, budget));
    }
    trees
}

/// A group as one tree, or as several where its attempts do not fit beside each other.
fn group_trees(sequences: &[TrainSequence], mut members: Vec<usize>, budget: usize) -> Vec<Tree> {
    let row_length = shared_prefix(sequences, &members);
    let length = |index: usize| sequences[index].token_ids.len();
    members.sort_by_key(|&index| (Reverse(length(index)), index));
    let mut trees = Vec::new();
    let mut rest = &members[..];
    while let [first, ..] = rest {
        let longest_branch = length(*first) - row_length;
        let room = COPIES_A_TOKEN * budget.saturating_sub(row_length) / (COPIES_A_TOKEN * longest_branch + row_length);
        let room = if row_length == 0 { 1 } else { room };
        let (part, others) = rest.split_at(room.clamp(1, rest.len()));
        trees.push(match part {
            [one] => Tree::alone(*one, &sequences[*one]),
            several => Tree { row_length, sequences: several.to_vec(), longest_branch },
        });
        rest = others;
    }
    trees
}

/// How many leading ids all members have in common before any of them is scored. Each has a scored token, so it is longer.
fn shared_prefix(sequences: &[TrainSequence], members: &[usize]) -> usize {
    let first = sequences[members[0]].token_ids;
    let shared = |&index: &usize| {
        let sequence = &sequences[index];
        let pairs = first.iter().zip(sequence.token_ids).zip(sequence.loss_mask);
        pairs.take_while(|((a, b), mask)| a == b && **mask == 0).count()
    };
    members.iter().map(shared).min().unwrap_or(0)
}

/// Greedy runs of trees whose padded tokens are within the budget, or of one tree.
fn cut(trees: Vec<Tree>, budget: usize) -> Vec<Vec<Tree>> {
    let mut runs: Vec<Vec<Tree>> = Vec::new();
    let mut run: Vec<Tree> = Vec::new();
    for tree in trees {
        run.push(tree);
        if run.len() > 1 && padded_tokens(&run) > budget {
            let next = run.split_off(run.len() - 1);
            runs.push(std::mem::replace(&mut run, next));
        }
    }
    runs.extend((!run.is_empty()).then_some(run));
    runs
}

/// Tokens of the padded rows and branches of `trees`, and the branches' copies of their rows at their part of a token.
fn padded_tokens(trees: &[Tree]) -> usize {
    let longest = |length: fn(&Tree) -> usize| trees.iter().map(length).max().unwrap_or(0);
    let num_branches: usize = trees.iter().map(Tree::num_branches).sum();
    let (row, branch) = (longest(|tree| tree.row_length), longest(|tree| tree.longest_branch));
    trees.len() * row + num_branches * branch + (num_branches * row).div_ceil(COPIES_A_TOKEN)
}
