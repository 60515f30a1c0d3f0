//! Which rank keeps the optimizer's state of which elements (ZeRO-1, Rajbhandari et al., arXiv 1910.02054).
//!
//! Parameters are put one after the other, by stage of the backward pass and by type, and cut into buckets. Each rank owns the
//! same share of every bucket, so that a bucket is one reduce-scatter of gradients and one all-gather of weights. The last shares of a
//! bucket may be cut short: what is missing to a whole number of shares is padding that nobody owns.

use crate::optim::Piece;
use tch::Kind;

/// Where in the backward pass a parameter's gradient is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// After this layer.
    Layer(usize),
    /// At the end: embedding, final norm and head.
    End,
}

impl Stage {
    /// The stage of a parameter, by its Hugging Face key.
    pub fn of(name: &str) -> Self {
        let after = name.split_once("layers.").and_then(|(_, rest)| rest.split('.').next());
        after.and_then(|index| index.parse().ok()).map_or(Self::End, Self::Layer)
    }
}

/// What the cut depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterSpec {
    /// When its gradient is complete.
    pub stage: Stage,
    /// Type of its weights.
    pub kind: Kind,
    /// Number of elements.
    pub len: i64,
}

/// Pieces that are communicated together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// When all of their gradients are complete.
    pub stage: Stage,
    /// Type of their weights.
    pub kind: Kind,
    /// One after the other.
    pub pieces: Vec<Piece>,
    /// Elements of one rank's share; ranks × this is the padded length.
    pub share: i64,
}

/// The cut of a model's parameters over a number of ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    buckets: Vec<Bucket>,
    num_ranks: usize,
}

impl Partition {
    /// Cuts `params` into buckets of at most `bucket_len` elements, and those into shares of `num_ranks`.
    ///
    /// # Panics
    /// On no ranks or a bucket length below 1.
    pub fn new(params: &[ParameterSpec], bucket_len: i64, num_ranks: usize) -> Self {
        assert!(bucket_len > 0 && num_ranks > 0, "buckets of {bucket_len} over {num_ranks} ranks");
        let mut groups: Vec<((Stage, Kind), Vec<Piece>)> = Vec::new();
        for (param, spec) in params.iter().enumerate() {
            let key = (spec.stage, spec.kind);
            let whole = Piece { param, start: 0, len: spec.len };
            match groups.iter_mut().find(|(found, _)| *found == key) {
                Some((_, pieces)) => pieces.push(whole),
                None => groups.push((key, vec![whole])),
            }
        }
        let mut buckets = Vec::new();
        for ((stage, kind), pieces) in groups {
            for pieces in cut(&pieces, bucket_len) {
                let len: i64 = pieces.iter().map(|piece| piece.len).sum();
                buckets.push(Bucket { stage, kind, pieces, share: (len as u64).div_ceil(num_ranks as u64) as i64 });
            }
        }
        Self { buckets, num_ranks }
    }

    /// All buckets, in the order of the parameters.
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// What `rank` owns, bucket by bucket.
    pub fn owned(&self, rank: usize) -> Vec<Piece> {
        assert!(rank < self.num_ranks, "rank {rank} of {}", self.num_ranks);
        self.buckets.iter().flat_map(|bucket| bucket.part(rank)).collect()
    }
}

impl Bucket {
    /// The pieces of one rank's share.
    pub fn part(&self, rank: usize) -> Vec<Piece> {
        let (from, to) = (rank as i64 * self.share, (rank as i64 + 1) * self.share);
        let mut offset = 0;
        let mut part = Vec::new();
        for piece in &self.pieces {
            let (start, end) = (from.max(offset), to.min(offset + piece.len));
            if start < end {
                part.push(Piece { param: piece.param, start: piece.start + start - offset, len: end - start });
            }
            offset += piece.len;
        }
        part
    }
}

/// Cuts a row of pieces every `len` elements.
fn cut(pieces: &[Piece], len: i64) -> Vec<Vec<Piece>> {
    let mut rows = vec![Vec::new()];
    let mut room = len;
    for piece in pieces {
        let mut rest = *piece;
        while rest.len > 0 {
            if room == 0 {
                rows.push(Vec::new());
                room = len;
            }
            let taken = rest.len.min(room);
            rows.last_mut().expect("there is a row").push(Piece { len: taken, ..rest });
            rest = Piece { start: rest.start + taken, len: rest.len - taken, ..rest };
            room -= taken;
        }
    }
    rows.retain(|row| !row.is_empty());
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stages_come_from_names() {
        assert_eq!(Stage::of("model.language_model.layers.12.mlp.up_proj.weight"), Stage::Layer(12));
        assert_eq!(Stage::of("model.embed_tokens.weight"), Stage::End);
        assert_eq!(Stage::of("lm_head.weight"), Stage::End);
    }

    #[test]
    fn a_cut_by_hand() {
        let spec = |stage, kind, len| ParameterSpec { stage, kind, len };
        let params = [
            spec(Stage::End, Kind::BFloat16, 3),
            spec(Stage::Layer(0), Kind::BFloat16, 5),
            spec(Stage::Layer(0), Kind::Float, 1),
            spec(Stage::Layer(0), Kind::BFloat16, 2),
        ];
        let partition = Partition::new(&params, 4, 2);
        let piece = |param, start, len| Piece { param, start, len };
        let pieces: Vec<_> = partition.buckets().iter().map(|b| (b.pieces.clone(), b.share)).collect();
        let expected = [
            (vec![piece(0, 0, 3)], 2),
            (vec![piece(1, 0, 4)], 2),
            (vec![piece(1, 4, 1), piece(3, 0, 2)], 2),
            (vec![piece(2, 0, 1)], 1),
        ];
        assert_eq!(pieces, expected);
        assert_eq!(
            partition.owned(0),
            [piece(0, 0, 2), piece(1, 0, 2), piece(1, 4, 1), piece(3, 0, 1), piece(2, 0, 1)]
        );
        assert_eq!(partition.owned(1), [piece(0, 2, 1), piece(1, 2, 2), piece(3, 1, 1)]);
    }

    proptest! {
        #[test]
        fn every_element_has_one_owner(
            lens in proptest::collection::vec((0usize..3, any::<bool>(), 1i64..50), 1..12),
            bucket_len in 1i64..40,
            num_ranks in 1usize..6,
        ) {
            let specs: Vec<ParameterSpec> = lens
                .iter()
                .map(|&(stage, is_half, len)| ParameterSpec {
                    stage: if stage == 2 { Stage::End } else { Stage::Layer(stage) },
                    kind: if is_half { Kind::BFloat16 } else { Kind::Float },
                    len,
                })
                .collect();
            let partition = Partition::new(&specs, bucket_len, num_ranks);
            let mut owners: Vec<Vec<usize>> = specs.iter().map(|spec| vec![0; spec.len as usize]).collect();
            for rank in 0..num_ranks {
                for piece in partition.owned(rank) {
                    prop_assert!(piece.len > 0);
                    (piece.start..piece.start + piece.len).for_each(|i| owners[piece.param][i as usize] += 1);
                }
            }
            prop_assert!(owners.iter().flatten().all(|&n| n == 1), "{owners:?}");
            for bucket in partition.buckets() {
                let len: i64 = bucket.pieces.iter().map(|piece| piece.len).sum();
                prop_assert!(len <= bucket_len && bucket.share * num_ranks as i64 >= len);
                let is_alike = |spec: &ParameterSpec| (spec.stage, spec.kind) == (bucket.stage, bucket.kind);
                prop_assert!(bucket.pieces.iter().all(|piece| is_alike(&specs[piece.param])));
            }
        }
    }
}
