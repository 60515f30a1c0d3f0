//! A batch packed by hand, refusals, and what must not depend on the cut.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const ALL: [LossAggregation; 4] = [
    LossAggregation::TokenMean,
    LossAggregation::SeqMeanTokenSum,
    LossAggregation::SeqMeanTokenMean,
    LossAggregation::SeqMeanTokenSumNorm,
];

fn options(micro_batch_tokens: usize, aggregation: LossAggregation) -> PackOptions {
    PackOptions { micro_batch_tokens, aggregation, sequence_norm: Some(16.0) }
}

/// A sequence from its mask: ids count up from `first_id`, logprobs are minus the position.
#[derive(Debug, Clone)]
struct Owned {
    ids: Vec<u32>,
    mask: Vec<u8>,
    logprobs: Vec<f32>,
    advantage: f64,
}

impl Owned {
    fn new(first_id: u32, mask: &[u8], advantage: f64) -> Self {
        Self {
            ids: (first_id..).take(mask.len()).collect(),
            mask: mask.to_vec(),
            logprobs: (0..mask.len()).map(|i| -(i as f32)).collect(),
            advantage,
        }
    }

    fn view(&self) -> TrainSequence<'_> {
        TrainSequence {
            token_ids: &self.ids,
            loss_mask: &self.mask,
            sampler_logprobs: &self.logprobs,
            advantage: self.advantage,
        }
    }
}

fn pack_all(owned: &[Owned], options: &PackOptions) -> Result<PackedBatch, PackError> {
    let views: Vec<_> = owned.iter().map(Owned::view).collect();
    pack(&views, GlobalCounts::of(&views), options)
}

fn ints(tensor: &Tensor) -> Vec<i64> {
    Vec::try_from(tensor).unwrap()
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    Vec::try_from(tensor).unwrap()
}

#[test]
fn a_worked_example() {
    let owned = [
        Owned::new(100, &[0, 0, 1, 1, 0, 0, 1, 1], 0.5),
        Owned::new(200, &[0, 1, 1], -0.5),
        Owned::new(300, &[0, 0, 0, 0, 0], 9.0),
        Owned::new(400, &[0, 0, 1], 0.25),
    ];
    let packed = pack_all(&owned, &options(7, LossAggregation::SeqMeanTokenMean)).unwrap();
    assert_eq!((packed.num_oversized, packed.num_unscored), (1, 1));
    assert_eq!(packed.counts, GlobalCounts { num_tokens: 7, num_sequences: 3 });
    let [long, short] = &packed.micro_batches[..] else { panic!("two micro-batches: {packed:?}") };
    assert_eq!((ints(&long.score_positions), ints(&long.target_ids)), (vec![1, 2, 5, 6], vec![102, 103, 106, 107]));
    assert_eq!(long.lengths, [8]);
    assert_eq!(floats(&long.token_weights), [1.0 / 12.0; 4]);
    assert_eq!(floats(&long.sampler_logprobs), [-2.0, -3.0, -6.0, -7.0]);
    assert_eq!(ints(&short.token_ids), [200, 201, 202, 400, 401, 402]);
    assert_eq!((short.lengths.as_slice(), ints(&short.score_positions)), ([3, 3].as_slice(), vec![0, 1, 4]));
    assert_eq!((ints(&short.target_ids), ints(&short.sequence_of)), (vec![201, 202, 402], vec![1, 1, 3]));
    assert_eq!(floats(&short.advantages), [-0.5, -0.5, 0.25]);
    assert_eq!(floats(&short.token_weights), [1.0 / 6.0, 1.0 / 6.0, 1.0 / 3.0]);
    assert_eq!((short.num_scored(), short.num_tokens()), (3, 6));
}

#[test]
fn cuts_keep_the_budget() {
    type Case = (&'static [usize], usize, &'static [Range<usize>]);
    let cases: [Case; 5] = [
        (&[], 4, &[]),
        (&[9, 2, 2, 2], 8, &[0..1, 1..4]),
        (&[4, 4, 4], 8, &[0..2, 2..3]),
        (&[4, 3, 1, 1, 1], 9, &[0..2, 2..5]),
        (&[5, 5], 1, &[0..1, 1..2]),
    ];
    for (lengths, budget, expected) in cases {
        assert_eq!(cut(lengths, budget), expected, "{lengths:?} at {budget}");
    }
}

#[test]
fn bad_sequences_are_named() {
    let good = Owned::new(0, &[0, 1], 0.0);
    let text = |bad: Owned| pack_all(&[good.clone(), bad], &options(8, ALL[0])).unwrap_err().to_string();
    let mut short = Owned::new(0, &[0, 1, 1], 0.0);
    short.mask.pop();
    assert!(text(short).contains("sequence 1") && text(Owned::new(0, &[], 0.0)).contains("got 0, 0 and 0"));
    assert!(text(Owned::new(0, &[0, 3], 0.0)).contains("got 3 at position 1"));
    assert!(text(Owned::new(0, &[1, 1], 0.0)).contains("0 at position 0"));
    assert!(text(Owned::new(0, &[0, 1], f64::NAN)).contains("must be finite, got NaN"));
    let without = PackOptions { sequence_norm: None, ..options(8, LossAggregation::SeqMeanTokenSumNorm) };
    assert_eq!(pack_all(&[good], &without).unwrap_err(), PackError::SequenceNorm(None));
}

/// What is said of every scored token, by its place: id, packed context, weight, advantage, sampler logprob.
fn by_place(packed: &PackedBatch) -> BTreeMap<TokenPlace, (i64, i64, u32, u32, u32)> {
    let mut map = BTreeMap::new();
    for micro in &packed.micro_batches {
        let (ids, positions) = (ints(&micro.token_ids), ints(&micro.score_positions));
        let (targets, weights) = (ints(&micro.target_ids), floats(&micro.token_weights));
        let (advantages, sampler) = (floats(&micro.advantages), floats(&micro.sampler_logprobs));
        for (n, &place) in micro.targets.iter().enumerate() {
            let context = ids[positions[n] as usize];
            let value = (targets[n], context, weights[n].to_bits(), advantages[n].to_bits(), sampler[n].to_bits());
            assert!(map.insert(place, value).is_none(), "{place:?} twice");
        }
    }
    map
}

fn batches() -> impl Strategy<Value = Vec<Owned>> {
    let mask = prop::collection::vec(0u8..=1, 0..12);
    prop::collection::vec((mask, -2.0f64..2.0), 1..9).prop_map(|items| {
        let build = |(i, (tail, advantage)): (usize, (Vec<u8>, f64))| {
            let mask: Vec<u8> = std::iter::once(0).chain(tail).collect();
            Owned::new(100 * i as u32, &mask, advantage)
        };
        items.into_iter().enumerate().map(build).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_a_token_gets_does_not_depend_on_the_cut(owned in batches(), budget in 1usize..40, kind in 0usize..4) {
        let whole = pack_all(&owned, &options(10_000, ALL[kind])).unwrap();
        let cut = pack_all(&owned, &options(budget, ALL[kind])).unwrap();
        prop_assert!(whole.micro_batches.len() <= 1);
        prop_assert_eq!(by_place(&whole), by_place(&cut));
        for micro in &cut.micro_batches {
            let longest = *micro.lengths.iter().max().unwrap() as usize;
            prop_assert!(micro.lengths.len() == 1 || micro.lengths.len() * longest <= budget);
        }
    }

    #[test]
    fn scored_tokens_are_exactly_the_masked_ones(owned in batches(), budget in 1usize..40) {
        let places = by_place(&pack_all(&owned, &options(budget, ALL[0])).unwrap());
        let masked: usize = owned.iter().map(|o| o.mask.iter().filter(|&&m| m == 1).count()).sum();
        prop_assert_eq!(places.len(), masked);
        for (place, (target, context, ..)) in places {
            let sequence = &owned[place.sequence];
            prop_assert_eq!(sequence.mask[place.position], 1);
            prop_assert_eq!(target, i64::from(sequence.ids[place.position]));
            prop_assert_eq!(context, i64::from(sequence.ids[place.position - 1]));
        }
    }

    #[test]
    fn weights_average_as_named(owned in batches(), budget in 1usize..40) {
        let sum = |kind: LossAggregation| -> (f64, GlobalCounts) {
            let packed = pack_all(&owned, &options(budget, kind)).unwrap();
            let sums = packed.micro_batches.iter().map(|m| m.token_weights.sum(Kind::Double).double_value(&[]));
            (sums.sum(), packed.counts)
        };
        let (token_mean, counts) = sum(LossAggregation::TokenMean);
        let (num_tokens, num_sequences) = (counts.num_tokens as f64, counts.num_sequences as f64);
        if counts.num_tokens > 0 {
            prop_assert!((token_mean - 1.0).abs() < 1e-5);
            prop_assert!((sum(LossAggregation::SeqMeanTokenMean).0 - 1.0).abs() < 1e-5);
            prop_assert!((sum(LossAggregation::SeqMeanTokenSum).0 - num_tokens / num_sequences).abs() < 1e-4);
            let norm = num_tokens / num_sequences / 16.0;
            prop_assert!((sum(LossAggregation::SeqMeanTokenSumNorm).0 - norm).abs() < 1e-5);
        }
    }
}
