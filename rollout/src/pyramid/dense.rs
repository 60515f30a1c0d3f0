//! Exact vector search over rows of 12-bit numbers.
//!
//! A row x is kept as `scale · v` with whole numbers |v| ≤ 2039, in two planes: `high` = round(v / 16), one byte each, and
//! `low` = v − 16·high in −8..=7, half a byte. A search first scores every row by its high plane alone, in integers; how far
//! that can be from the row's score is known, so that rows which cannot be among the best are left out, and the rest are
//! scored with both planes. The result is that of scoring every row with both.

use super::lexical::best;
use rayon::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering as AtomicOrdering};

/// Rows that one task scores; smaller matrices are not worth more than one.
const ROWS_PER_TASK: usize = 1_024;
/// Partial sums of a dot product: a fixed number, so that the order of additions is fixed on every machine.
const LANES: usize = 8;
/// Largest whole number of a row: its high part must fit into a byte.
const MAX_VALUE: f32 = 2039.0;
/// Slack for the rounding of the fp32 sums, relative to the numbers summed.
const ROUNDING: f32 = 1e-5;

/// Rows of 12-bit numbers.
#[derive(Debug, Default)]
pub(super) struct Planes {
    high: Vec<i8>,
    low: Vec<u8>,
    scales: Vec<f32>,
    low_norms: Vec<f32>,
}

/// Rows of `dimension` numbers, wherever they lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlanesRef<'a> {
    /// Dimensions of a row.
    pub(super) dimension: usize,
    /// `dimension` bytes a row.
    pub(super) high: &'a [i8],
    /// `dimension.div_ceil(2)` bytes a row, first number in the low half of the first byte, plus 8.
    pub(super) low: &'a [u8],
    /// What a row's whole numbers are multiplied by.
    pub(super) scales: &'a [f32],
    /// Euclidean norm of a row's low numbers.
    pub(super) low_norms: &'a [f32],
}

impl Planes {
    /// Adds a row, rounded to 12 bits.
    pub(super) fn push(&mut self, row: &[f32]) {
        let largest = row.iter().fold(0f32, |largest, x| largest.max(x.abs()));
        let scale = largest / MAX_VALUE;
        let whole = |x: &f32| if scale > 0.0 { (x / scale).round().clamp(-MAX_VALUE, MAX_VALUE) as i32 } else { 0 };
        let values: Vec<i32> = row.iter().map(whole).collect();
        let low = |v: i32| v - 16 * ((v + 8) >> 4);
        self.high.extend(values.iter().map(|v| ((v + 8) >> 4) as i8));
        let half = |v: i32| (low(v) + 8) as u8;
        self.low.extend(values.chunks(2).map(|pair| half(pair[0]) | pair.get(1).map_or(0, |&v| half(v) << 4)));
        self.scales.push(scale);
        self.low_norms.push(values.iter().map(|&v| (low(v) * low(v)) as f32).sum::<f32>().sqrt());
    }

    /// Adds a row of other planes as it is.
    pub(super) fn push_from(&mut self, other: &PlanesRef<'_>, row: usize) {
        let (dimension, half) = (other.dimension, other.dimension.div_ceil(2));
        self.high.extend_from_slice(&other.high[row * dimension..][..dimension]);
        self.low.extend_from_slice(&other.low[row * half..][..half]);
        self.scales.push(other.scales[row]);
        self.low_norms.push(other.low_norms[row]);
    }

    pub(super) fn view(&self, dimension: usize) -> PlanesRef<'_> {
        let Self { high, low, scales, low_norms } = self;
        PlanesRef { dimension, high, low, scales, low_norms }
    }
}

/// A query with what the coarse pass needs of it.
struct Query<'a> {
    exact: &'a [f32],
    coarse: Vec<i16>,
    /// What `coarse` is multiplied by.
    scale: f32,
    norm: f32,
    /// Norm of `exact − scale · coarse`.
    rest_norm: f32,
}

impl<'a> Query<'a> {
    fn new(exact: &'a [f32]) -> Self {
        let norm = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt() as f32;
        // As fine as a sum of products with bytes in 32 bits, and 16 bits, allow.
        let most = (i32::MAX / (128 * exact.len().max(1) as i32)).min(i32::from(i16::MAX)) as f32;
        let scale = exact.iter().fold(0f32, |largest, x| largest.max(x.abs())) / most;
        let whole = |x: &f32| if scale > 0.0 { (x / scale).round() as i16 } else { 0 };
        let coarse: Vec<i16> = exact.iter().map(whole).collect();
        let mut rest = exact.iter().zip(&coarse).map(|(x, &q)| x - scale * f32::from(q));
        let rest_norm = norm(&mut rest);
        Self { norm: norm(&mut exact.iter().copied()), rest_norm, exact, coarse, scale }
    }
}

impl PlanesRef<'_> {
    fn num_rows(&self) -> usize {
        self.scales.len()
    }

    /// The score of a row with both planes: products added in `LANES` running sums, then those from left to right.
    fn exact_score(&self, row: usize, query: &[f32]) -> f32 {
        let half = self.dimension.div_ceil(2);
        let high = &self.high[row * self.dimension..][..self.dimension];
        let low = &self.low[row * half..][..half];
        let mut sums = [0f32; LANES];
        let mut add = |high: &[i8], low: &[u8], query: &[f32]| {
            for (i, ((sum, &high), x)) in sums.iter_mut().zip(high).zip(query).enumerate() {
                let low = i32::from(low[i / 2] >> (4 * (i % 2)) & 15) - 8;
                *sum += (16 * i32::from(high) + low) as f32 * x;
            }
        };
        let (blocks, whole) = (high.chunks_exact(LANES), self.dimension / LANES * LANES);
        for ((high, low), query) in blocks.zip(low.chunks_exact(LANES / 2)).zip(query.chunks_exact(LANES)) {
            add(high, low, query);
        }
        add(&high[whole..], &low[whole / 2..], &query[whole..]);
        sums.iter().sum::<f32>() * self.scales[row]
    }

    /// Rows `start..end` that may be among the best `limit` and above `floor`, with their exact scores' bounds.
    ///
    /// `floor` is raised to what `limit` rows are sure to reach.
    fn candidates(
        &self,
        task: (usize, usize),
        live: &[bool],
        query: &Query<'_>,
        limit: usize,
        floor: &Floor,
    ) -> Vec<Candidate> {
        let (dimension, (start, end)) = (self.dimension, task);
        let mut sums = vec![0i32; end - start];
        coarse_sums(&self.high[start * dimension..end * dimension], &query.coarse, &mut sums);
        // Schwarz: |q·low| ≤ ‖q‖‖low‖, and |rest·16 high| ≤ ‖rest‖ · 16 ‖high‖ with |high| ≤ 127.
        let rest = query.rest_norm * 16.0 * 127.0 * (dimension as f32).sqrt();
        let slack = query.norm * MAX_VALUE;
        let (scales, low_norms) = (&self.scales[start..end], &self.low_norms[start..end]);
        let bounds = |((sum, scale), low_norm): ((&i32, &f32), &f32)| {
            let near = scale * query.scale * 16.0 * *sum as f32;
            let error = scale * (query.norm * low_norm + rest);
            (near, error + ROUNDING * (near.abs() + error + scale * slack))
        };
        let least = floor.get();
        let mut found = Vec::new();
        for (at, (near, error)) in sums.iter().zip(scales).zip(low_norms).map(bounds).enumerate() {
            if near + error > least && live[start + at] {
                found.push(Candidate { row: (start + at) as u32, lower: near - error, upper: near + error });
            }
        }
        floor.raise(keep_possible(&mut found, limit));
        found
    }
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    row: u32,
    lower: f32,
    upper: f32,
}

/// A score that enough rows are sure to reach, shared by tasks. Never below 0.
#[derive(Default)]
struct Floor(AtomicU32);

impl Floor {
    fn get(&self) -> f32 {
        f32::from_bits(self.0.load(AtomicOrdering::Relaxed))
    }

    fn raise(&self, value: f32) {
        // Bits of numbers that are not negative are in the numbers' order.
        self.0.fetch_max(value.max(0.0).to_bits(), AtomicOrdering::Relaxed);
    }
}

/// Drops what `limit` others surely beat, and returns what those reach: 0 where there are not as many.
fn keep_possible(candidates: &mut Vec<Candidate>, limit: usize) -> f32 {
    if limit == 0 || candidates.len() <= limit {
        return 0.0;
    }
    let mut lower: Vec<f32> = candidates.iter().map(|candidate| candidate.lower).collect();
    let (_, &mut worst, _) = lower.select_nth_unstable_by(limit - 1, |a, b| b.total_cmp(a));
    candidates.retain(|candidate| candidate.upper >= worst);
    worst
}

/// Whole-number inner products of the query with each row of `high`.
fn coarse_sums(high: &[i8], query: &[i16], sums: &mut [i32]) {
    assert_eq!(high.len(), sums.len() * query.len(), "rows of {}", query.len());
    let row = |at: usize| &high[at * query.len()..][..query.len()];
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // Four rows at a time from four places: one stream of memory does not keep a core busy.
        let quarter = sums.len() / 4;
        for at in 0..quarter {
            let places = [0, 1, 2, 3].map(|part| part * quarter + at);
            // Sound: the CPU has AVX2, and rows are as long as the query.
            #[allow(unsafe_code)]
            let found = unsafe { four_products_avx2(places.map(row), query) };
            places.iter().zip(found).for_each(|(&place, sum)| sums[place] = sum);
        }
        sums.iter_mut().enumerate().skip(4 * quarter).for_each(|(at, sum)| *sum = product(row(at), query));
        return;
    }
    sums.iter_mut().enumerate().for_each(|(at, sum)| *sum = product(row(at), query));
}

fn product(row: &[i8], query: &[i16]) -> i32 {
    row.iter().zip(query).map(|(&high, &q)| i32::from(high) * i32::from(q)).sum()
}

/// The products of four rows with the query; each row must be as long as the query.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[allow(unsafe_code)]
unsafe fn four_products_avx2(rows: [&[i8]; 4], query: &[i16]) -> [i32; 4] {
    use std::arch::x86_64::{
        __m256i, _mm_loadu_si128, _mm256_add_epi32, _mm256_cvtepi8_epi16, _mm256_loadu_si256, _mm256_madd_epi16,
        _mm256_setzero_si256, _mm256_storeu_si256,
    };
    const STEP: usize = 16;
    let whole = query.len() / STEP * STEP;
    let mut sums = [_mm256_setzero_si256(); 4];
    for at in (0..whole).step_by(STEP) {
        // Sound: `at + STEP` is at most the length of the query and of each row; loads need no alignment.
        let q = unsafe { _mm256_loadu_si256(query.as_ptr().add(at).cast()) };
        for (sum, row) in sums.iter_mut().zip(rows) {
            let bytes = unsafe { _mm_loadu_si128(row.as_ptr().add(at).cast()) };
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(_mm256_cvtepi8_epi16(bytes), q));
        }
    }
    let mut products = [0; 4];
    for ((product_of_row, sum), row) in products.iter_mut().zip(sums).zip(rows) {
        let mut lanes = [0i32; 8];
        // Sound: eight numbers of 32 bits.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast::<__m256i>(), sum) };
        *product_of_row = lanes.iter().sum::<i32>() + product(&row[whole..], &query[whole..]);
    }
    products
}

/// The best `limit` live rows with a similarity above 0, best first, ties by id. Rows of all parts are numbered one after the
/// other; `is_live` has one entry for each.
pub(super) fn search<'a>(
    parts: &[PlanesRef<'_>],
    is_live: &[bool],
    query: &[f32],
    limit: usize,
    id: impl Fn(u32) -> &'a str,
) -> Vec<(u32, f32)> {
    let query = Query::new(query);
    let mut tasks = Vec::new();
    let mut base = 0;
    for part in parts {
        let starts = (0..part.num_rows()).step_by(ROWS_PER_TASK);
        tasks.extend(starts.map(|start| (part, base, (start, (start + ROWS_PER_TASK).min(part.num_rows())))));
        base += part.num_rows();
    }
    let floor = Floor::default();
    let run = |&(part, base, rows): &(&PlanesRef<'_>, usize, (usize, usize))| -> Vec<Candidate> {
        let mut found = part.candidates(rows, &is_live[base..], &query, limit, &floor);
        found.iter_mut().for_each(|candidate| candidate.row += base as u32);
        found
    };
    let mut candidates: Vec<Candidate> = tasks.par_iter().flat_map_iter(run).collect();
    keep_possible(&mut candidates, limit);
    let exact = |candidate: &Candidate| {
        let (mut row, mut parts) = (candidate.row as usize, parts.iter());
        let part = parts.find(|part| {
            let is_here = row < part.num_rows();
            row -= if is_here { 0 } else { part.num_rows() };
            is_here
        });
        (candidate.row, part.expect("a row lies in a part").exact_score(row, query.exact))
    };
    let scored: Vec<(u32, f32)> = candidates.par_iter().with_min_len(64).map(exact).filter(|(_, s)| *s > 0.0).collect();
    best(scored, limit, f32::total_cmp, id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn planes(rows: &[Vec<f32>]) -> Planes {
        let mut planes = Planes::default();
        rows.iter().for_each(|row| planes.push(row));
        planes
    }

    fn names(num: usize) -> Vec<String> {
        (0..num).map(|row| format!("m{row}")).collect()
    }

    #[test]
    fn best_first_ties_by_id_negatives_out() {
        let planes = planes(&[vec![-1.0, 0.0], vec![0.6, 0.8], vec![0.6, -0.8], vec![1.0, 0.0], vec![0.0, 0.0]]);
        let ids = ["d", "b", "a", "c", "e"];
        let find = |live: [bool; 5], limit| -> Vec<&str> {
            let found = search(&[planes.view(2)], &live, &[1.0, 0.0], limit, |row| ids[row as usize]);
            found.into_iter().map(|(row, _)| ids[row as usize]).collect()
        };
        assert_eq!(find([true; 5], 5), ["c", "a", "b"]);
        assert_eq!(find([true; 5], 2), ["c", "a"]);
        assert_eq!(find([true, true, true, false, true], 1), ["a"]);
        assert!(search(&[], &[], &[1.0, 0.0], 5, |_| "").is_empty());
    }

    #[test]
    fn twelve_bits_keep_a_score_to_a_thousandth() {
        let row: Vec<f32> = (0..1024).map(|i| ((i * 37 % 101) as f32 - 50.0) / 1000.0).collect();
        let exact: f64 = row.iter().map(|x| f64::from(*x).powi(2)).sum();
        let found = f64::from(planes(std::slice::from_ref(&row)).view(1024).exact_score(0, &row));
        assert!((found / exact - 1.0).abs() < 1e-4, "{found} {exact}");
    }

    #[test]
    fn wide_products_are_those_of_plain_loops() {
        for (num_rows, dimension) in [(1, 5), (4, 16), (7, 19), (9, 64), (1027, 33)] {
            let high: Vec<i8> = (0..num_rows * dimension).map(|i| (i * 89 % 255) as u8 as i8).collect();
            let query: Vec<i16> = (0..dimension).map(|i| (i * 7919 % 60001) as i32 - 30000).map(|q| q as i16).collect();
            let mut found = vec![0; num_rows];
            coarse_sums(&high, &query, &mut found);
            let expected: Vec<i32> = high.chunks_exact(dimension).map(|row| product(row, &query)).collect();
            assert_eq!(found, expected, "{num_rows} rows of {dimension}");
        }
    }

    proptest! {
        /// Several parts, more rows than one task takes, clustered so that many scores are close; some rows dead.
        #[test]
        fn agrees_with_scoring_every_row(seed in any::<u64>(), spread in 0.001f32..1.0, limit in 1usize..80) {
            let mut state = seed | 1;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
            };
            const DIMENSION: usize = 19;
            let centre: Vec<f32> = (0..DIMENSION).map(|_| next()).collect();
            let sizes = [ROWS_PER_TASK + 37, 5, 0, 300];
            let total: usize = sizes.iter().sum();
            let rows: Vec<Vec<f32>> = (0..total).map(|_| centre.iter().map(|c| c + spread * next()).collect()).collect();
            let live: Vec<bool> = (0..total).map(|_| next() > -0.8).collect();
            let query: Vec<f32> = centre.iter().map(|c| c + 0.3 * next()).collect();
            let mut start = 0;
            let parts: Vec<Planes> = sizes.iter().map(|size| { start += size; planes(&rows[start - size..start]) }).collect();
            let views: Vec<PlanesRef<'_>> = parts.iter().map(|part| part.view(DIMENSION)).collect();
            let ids = names(total);
            let whole = planes(&rows);
            let mut expected: Vec<(u32, f32)> = (0..total)
                .filter(|&row| live[row])
                .map(|row| (row as u32, whole.view(DIMENSION).exact_score(row, &query)))
                .filter(|(_, score)| *score > 0.0)
                .collect();
            expected.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| ids[a.0 as usize].cmp(&ids[b.0 as usize])));
            expected.truncate(limit);
            prop_assert_eq!(search(&views, &live, &query, limit, |row| &ids[row as usize]), expected);
        }

        #[test]
        fn rounding_is_within_half_a_step(row in prop::collection::vec(-1f32..1.0, 1..70)) {
            let planes = planes(std::slice::from_ref(&row));
            let view = planes.view(row.len());
            for i in 0..row.len() {
                let mut unit = vec![0.0; row.len()];
                unit[i] = 1.0;
                prop_assert!((view.exact_score(0, &unit) - row[i]).abs() <= view.scales[0] * 0.501);
            }
        }
    }
}
