//! The best of many scored rows.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Keeps the `limit` best of the rows that it is offered, and all that tie with the last of them.
#[derive(Debug)]
pub(super) struct Best {
    limit: usize,
    offered: Vec<(u32, f64)>,
    /// Bits of the `limit` best scores: those of positive numbers are in the numbers' order.
    scores: BinaryHeap<Reverse<u64>>,
}

impl Best {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, offered: Vec::new(), scores: BinaryHeap::new() }
    }

    /// A row with a lower score is not among the best; 0 as long as fewer than `limit` are known.
    pub(super) fn floor(&self) -> f64 {
        let worst = self.scores.peek().filter(|_| self.scores.len() == self.limit);
        worst.map_or(0.0, |Reverse(bits)| f64::from_bits(*bits))
    }

    /// Takes a row into account; scores that are not above 0 do not count.
    pub(super) fn offer(&mut self, row: u32, score: f64) {
        if !(score > 0.0 && score >= self.floor()) || self.limit == 0 {
            return;
        }
        self.offered.push((row, score));
        self.scores.push(Reverse(score.to_bits()));
        if self.scores.len() > self.limit {
            self.scores.pop();
        }
    }

    /// The best, best first, ties by id.
    pub(super) fn ranking<'a>(self, id: impl Fn(u32) -> &'a str) -> Vec<(u32, f64)> {
        let floor = self.floor();
        // By score alone first: ids lie elsewhere in memory.
        let mut ranking: Vec<(u32, f64)> = self.offered.into_iter().filter(|(_, score)| *score >= floor).collect();
        ranking.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then_with(|| id(a.0).cmp(id(b.0))));
        ranking.truncate(self.limit);
        ranking
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn is_a_sorted_prefix(scores in prop::collection::vec(-2i8..9, 0..40), limit in 0usize..12) {
            let ids: Vec<String> = (0..scores.len()).map(|row| format!("m{row}")).collect();
            let mut best = Best::new(limit);
            let mut expected: Vec<(u32, f64)> = (0..).zip(scores.iter().map(|&score| f64::from(score))).collect();
            expected.iter().for_each(|&(row, score)| best.offer(row, score));
            expected.retain(|(_, score)| *score > 0.0);
            expected.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| ids[a.0 as usize].cmp(&ids[b.0 as usize])));
            expected.truncate(limit);
            prop_assert_eq!(best.ranking(|row| &ids[row as usize]), expected);
        }
    }
}
