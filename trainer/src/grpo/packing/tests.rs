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
    group: Option<u64>,
}

impl Owned {
    fn new(first_id: u32, mask: &[u8], advantage: f64) -> Self {
        Self {
            ids: (first_id..).take(mask.len()).collect(),
            mask: mask.to_vec(),
            logprobs: (0..mask.len()).map(|i| -(i as f32)).collect(),
            advantage,
            group: None,
        }
    }

    /// A member of `group`, whose first `num_prompt` ids count up from the group's number times 1000.
    fn member(group: u64, num_prompt: usize, first_id: u32, mask: &[u8], advantage: f64) -> Self {
        let prompt = (1000 * group as u32..).take(num_prompt);
        let ids = prompt.chain(first_id..).take(mask.len()).collect();
        Self { ids, group: Some(group), ..Self::new(0, mask, advantage) }
    }

    fn view(&self) -> TrainSequence<'_> {
        TrainSequence {
            token_ids: &self.ids,
            loss_mask: &self.mask,
            sampler_logprobs: &self.logprobs,
            advantage: self.advantage,
            group: self.group,
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
fn a_worked_example_with_a_group() {
    let owned = [
        Owned::member(7, 2, 50, &[0, 0, 1, 1], 0.5),
        Owned::new(200, &[0, 1, 1, 1], 0.0),
        Owned::member(7, 2, 60, &[0, 0, 1], -0.5),
        Owned::member(7, 2, 70, &[0, 0, 0, 1], 0.25),
    ];
    let packed = pack_all(&owned, &options(10, LossAggregation::TokenMean)).unwrap();
    let [group, alone] = &packed.micro_batches[..] else { panic!("two micro-batches: {packed:?}") };
    assert_eq!(ints(&group.token_ids), [7000, 7001, 50, 51, 70, 71, 60]);
    assert_eq!((group.lengths.as_slice(), group.branches.as_slice()), (&[2][..], &[(0, 2), (0, 2), (0, 1)][..]));
    assert_eq!((ints(&group.score_positions), ints(&group.target_ids)), (vec![1, 2, 4, 1], vec![50, 51, 71, 60]));
    assert_eq!((ints(&group.sequence_of), floats(&group.advantages)), (vec![0, 0, 3, 2], vec![0.5, 0.5, 0.25, -0.5]));
    assert_eq!((group.num_tokens(), group.num_shared_tokens()), (7, 4));
    assert_eq!((ints(&alone.token_ids), alone.branches.len()), (vec![200, 201, 202, 203], 0));
    assert_eq!((alone.num_tokens(), alone.num_shared_tokens()), (4, 0));
}

/// Rows and branches of each micro-batch: `[row, branch, ..]` for each row.
fn shape(packed: &PackedBatch) -> Vec<Vec<Vec<i64>>> {
    let rows_of = |micro: &MicroBatch| {
        let mut rows: Vec<Vec<i64>> = micro.lengths.iter().map(|&length| vec![length]).collect();
        micro.branches.iter().for_each(|&(row, length)| rows[row as usize].push(length));
        rows
    };
    packed.micro_batches.iter().map(rows_of).collect()
}

#[test]
fn cuts_keep_the_budget() {
    // For each sequence its group (0 is none), prompt and completion length; then the rows with their branches.
    type Case<'a> = (&'a [(u64, usize, usize)], usize, &'a [&'a [&'a [i64]]]);
    let cases: [Case; 12] = [
        (&[], 4, &[]),
        (&[(0, 1, 8), (0, 1, 1), (0, 1, 1), (0, 1, 1)], 8, &[&[&[9]], &[&[2], &[2], &[2]]]),
        (&[(0, 1, 3), (0, 2, 2), (0, 3, 1)], 8, &[&[&[4], &[4]], &[&[4]]]),
        (&[(0, 1, 3), (0, 1, 2), (0, 1, 1), (0, 1, 1)], 9, &[&[&[4], &[3]], &[&[2], &[2]]]),
        (&[(0, 1, 4), (0, 1, 4)], 1, &[&[&[5]], &[&[5]]]),
        // A group: 3 + 2 × 2 + 2 × 3 / 4, rounded up. Two beside each other, 2 × 3 + 4 × 2 + 4 × 3 / 4; two that do not fit.
        (&[(1, 3, 2), (1, 3, 1)], 9, &[&[&[3, 2, 1]]]),
        (&[(1, 3, 2), (2, 3, 1), (1, 3, 1), (2, 3, 2)], 17, &[&[&[3, 2, 1], &[3, 2, 1]]]),
        (&[(1, 3, 2), (2, 3, 1), (1, 3, 1), (2, 3, 2)], 16, &[&[&[3, 2, 1]], &[&[3, 2, 1]]]),
        // A group that is split computes its prompt once in each part; a part of one is a sequence alone.
        (&[(1, 3, 2), (1, 3, 2), (1, 3, 2), (1, 3, 1)], 9, &[&[&[3, 2, 2]], &[&[3, 2, 1]]]),
        (&[(1, 3, 2), (1, 3, 2), (1, 3, 2)], 9, &[&[&[3, 2, 2]], &[&[5]]]),
        // A member that does not fit is alone, the others are not.
        (&[(1, 3, 9), (1, 3, 2), (1, 3, 1)], 9, &[&[&[12]], &[&[3, 2, 1]]]),
        // A group of one.
        (&[(1, 3, 2), (0, 3, 3)], 99, &[&[&[6], &[5]]]),
    ];
    for (sequences, budget, expected) in cases {
        let build = |(i, &(group, prompt, completion)): (usize, &(u64, usize, usize))| {
            let mask = [vec![0; prompt], vec![1; completion]].concat();
            let member = Owned::member(group, prompt, 100 * i as u32, &mask, 0.0);
            Owned { group: (group > 0).then_some(group), ..member }
        };
        let owned: Vec<Owned> = sequences.iter().enumerate().map(build).collect();
        assert_eq!(shape(&pack_all(&owned, &options(budget, ALL[0])).unwrap()), expected, "{sequences:?} at {budget}");
    }
}

#[test]
fn what_is_shared_ends_where_ids_differ_or_one_is_scored() {
    let packed = |a: Owned, b: Owned| shape(&pack_all(&[a, b], &options(99, ALL[0])).unwrap());
    let same = |mask: &[u8]| Owned { group: Some(1), ..Owned::new(10, mask, 0.0) };
    assert_eq!(packed(same(&[0, 0, 0, 1]), same(&[0, 0, 0, 1, 0])), [[[3, 2, 1]]]);
    assert_eq!(packed(same(&[0, 0, 0, 1]), same(&[0, 1, 0, 0])), [[[1, 3, 3]]]);
    let mut other = same(&[0, 0, 0, 1]);
    other.ids[2] = 0;
    assert_eq!(packed(same(&[0, 0, 0, 1]), other.clone()), [[[2, 2, 2]]]);
    // Nothing in common: two sequences, each alone.
    other.ids[0] = 0;
    assert_eq!(packed(same(&[0, 0, 0, 1]), other), [[[4], [4]]]);
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

/// Sequences of no group, and groups of 1 to 5 with a prompt in common; the mask of a member may begin late or never.
fn batches() -> impl Strategy<Value = Vec<Owned>> {
    let mask = || prop::collection::vec(0u8..=1, 0..12);
    let members = prop::collection::vec((mask(), -2.0f64..2.0), 1..6);
    prop::collection::vec((prop::option::of(1usize..9), members), 1..5).prop_map(|groups| {
        let mut owned = Vec::new();
        for (group, (prompt, members)) in (1u64..).zip(groups) {
            for (tail, advantage) in members {
                let first_id = 100 * owned.len() as u32;
                let mask = [vec![0; prompt.unwrap_or(1)], tail].concat();
                owned.push(match prompt {
                    Some(num_prompt) => Owned::member(group, num_prompt, first_id, &mask, advantage),
                    None => Owned::new(first_id, &mask, advantage),
                });
            }
        }
        // Members of a group need not lie beside each other.
        let stride = owned.len() / 2 + 1;
        (0..stride).flat_map(|start| owned.iter().skip(start).step_by(stride).cloned()).collect()
    })
}

/// The sequences of a micro-batch, put together from its rows and branches in the order of its scored tokens: the index of each
/// and where its tokens lie.
fn unpack(micro: &MicroBatch) -> Vec<(usize, Vec<i64>)> {
    let starts = |first: i64, lengths: &[i64]| {
        lengths.iter().scan(first, |next, &n| Some(std::mem::replace(next, *next + n)..*next)).collect::<Vec<_>>()
    };
    let rows = starts(0, &micro.lengths);
    let branch_lengths: Vec<i64> = micro.branches.iter().map(|&(_, length)| length).collect();
    let branches = starts(micro.lengths.iter().sum(), &branch_lengths);
    let places: Vec<Vec<i64>> = if branches.is_empty() {
        rows.into_iter().map(Iterator::collect).collect()
    } else {
        let whole = |(&(row, _), branch): (&(i64, i64), std::ops::Range<i64>)| rows[row as usize].clone().chain(branch);
        micro.branches.iter().zip(branches).map(|pair| whole(pair).collect()).collect()
    };
    let mut sequences: Vec<usize> = micro.targets.iter().map(|place| place.sequence).collect();
    sequences.dedup();
    assert_eq!(sequences.len(), places.len(), "{micro:?}");
    sequences.into_iter().zip(places).collect()
}

/// Tokens of the padded rows and branches, and a quarter of one for each position of a row that a branch copies.
fn padded(micro: &MicroBatch) -> usize {
    let longest = |lengths: &mut dyn Iterator<Item = i64>| lengths.max().unwrap_or(0) as usize;
    let (row, branch) = (longest(&mut micro.lengths.iter().copied()), longest(&mut micro.branches.iter().map(|b| b.1)));
    let num_branches = micro.branches.len();
    micro.lengths.len() * row + num_branches * branch + (num_branches * row).div_ceil(4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_a_token_gets_does_not_depend_on_the_cut(owned in batches(), budget in 1usize..40, kind in 0usize..4) {
        let whole = pack_all(&owned, &options(10_000, ALL[kind])).unwrap();
        let cut = pack_all(&owned, &options(budget, ALL[kind])).unwrap();
        // One of groups, one of sequences alone.
        prop_assert!(whole.micro_batches.len() <= 2);
        prop_assert_eq!(by_place(&whole), by_place(&cut));
        for micro in &cut.micro_batches {
            prop_assert!(micro.lengths.len() + micro.branches.len() == 1 || padded(micro) <= budget, "{:?}", shape(&cut));
        }
    }

    #[test]
    fn every_token_is_in_its_place(owned in batches(), budget in 1usize..60) {
        let packed = pack_all(&owned, &options(budget, ALL[0])).unwrap();
        let mut found = Vec::new();
        for micro in &packed.micro_batches {
            let (ids, positions) = (ints(&micro.token_ids), ints(&micro.score_positions));
            let sequences = unpack(micro);
            for (index, places) in &sequences {
                let unpacked: Vec<u32> = places.iter().map(|&place| ids[place as usize] as u32).collect();
                prop_assert_eq!(&unpacked, &owned[*index].ids);
                found.push(*index);
            }
            let places: BTreeMap<usize, Vec<i64>> = sequences.into_iter().collect();
            for (target, &position) in micro.targets.iter().zip(&positions) {
                prop_assert_eq!(places[&target.sequence][target.position - 1], position);
            }
            let used: usize = places.values().map(Vec::len).sum();
            prop_assert_eq!(micro.num_tokens(), ids.len());
            prop_assert_eq!(micro.num_shared_tokens(), used - ids.len());
        }
        found.sort_unstable();
        let scored: Vec<usize> = (0..owned.len()).filter(|&i| owned[i].view().num_scored() > 0).collect();
        prop_assert_eq!(found, scored);
    }

    #[test]
    fn sharing_changes_nothing_else(owned in batches(), budget in 1usize..60, kind in 0usize..4) {
        let apart: Vec<Owned> = owned.iter().map(|o| Owned { group: None, ..o.clone() }).collect();
        let [shared, apart] = [&owned, &apart].map(|o| pack_all(o, &options(budget, ALL[kind])).unwrap());
        prop_assert_eq!(by_place(&shared), by_place(&apart));
        prop_assert_eq!((shared.counts, shared.num_oversized), (apart.counts, apart.num_oversized));
        let tokens = |packed: &PackedBatch| packed.micro_batches.iter().map(MicroBatch::num_tokens).sum::<usize>();
        let saved: usize = shared.micro_batches.iter().map(MicroBatch::num_shared_tokens).sum();
        prop_assert_eq!(tokens(&shared) + saved, tokens(&apart));
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
