//! Rows of 12-bit numbers in three planes, so that a search reads the leading bits of all rows and the others of few.
//!
//! A row x is kept as `scale · v` with whole numbers |v| ≤ 2039. Of v + 2048 the first plane has the 4 highest bits, the second
//! the 2 next ones, the third the last 6, as 4 and 2. What the planes that were read say of v is the middle of what it can be;
//! how far a row lies from that is known.

use super::packed::{BLOCK, GROUP, block_bytes, four_products, pack, unpacked};

/// Largest whole number of a row: so large that rounding never leaves 12 bits.
const MAX_VALUE: f32 = 2039.0;
/// What is added to a whole number to make it positive.
const ZERO: i32 = 2048;
/// Bits below the first plane, and below the second.
const BITS_BELOW: [u32; 2] = [8, 6];
/// Bytes of a block in each plane.
const PLANE_BYTES: [usize; 3] = [block_bytes(4), block_bytes(2), block_bytes(4) + block_bytes(2)];

/// Rows in memory.
#[derive(Debug, Default)]
pub(super) struct Planes {
    bits: [Vec<u8>; 3],
    scales: Vec<f32>,
    norms: Vec<f32>,
    rest_norms: [Vec<f32>; 2],
}

/// Rows of `dimension` numbers, wherever they lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlanesRef<'a> {
    /// Numbers of a row.
    pub(super) dimension: usize,
    /// The three planes, row after row, each row in blocks as `packed` describes.
    pub(super) bits: [&'a [u8]; 3],
    /// What a row's whole numbers are multiplied by.
    pub(super) scales: &'a [f32],
    /// Lengths of rows, in whole numbers.
    pub(super) norms: &'a [f32],
    /// How far rows are from what the first plane says, and from what the first two say, in whole numbers.
    pub(super) rest_norms: [&'a [f32]; 2],
}

impl Planes {
    /// Adds a row, rounded to 12 bits.
    pub(super) fn push(&mut self, row: &[f32]) {
        let largest = row.iter().fold(0f32, |largest, x| largest.max(x.abs()));
        let scale = largest / MAX_VALUE;
        let whole = |x: &f32| if scale > 0.0 { (x / scale).round().clamp(-MAX_VALUE, MAX_VALUE) as i32 } else { 0 };
        let values: Vec<i32> = row.iter().map(whole).collect();
        for values in values.chunks(BLOCK) {
            let at = |shift: u32, bits: u32| -> [u8; BLOCK] {
                std::array::from_fn(|i| values.get(i).map_or(0, |v| ((v + ZERO) >> shift & ((1 << bits) - 1)) as u8))
            };
            pack(4, &at(8, 4), &mut self.bits[0]);
            pack(2, &at(6, 2), &mut self.bits[1]);
            pack(4, &at(2, 4), &mut self.bits[2]);
            pack(2, &at(0, 2), &mut self.bits[2]);
        }
        let norm =
            |part: &dyn Fn(i32) -> i32| values.iter().map(|&v| f64::from(part(v)).powi(2)).sum::<f64>().sqrt() as f32;
        self.scales.push(scale);
        self.norms.push(norm(&|v| v));
        for (rest_norms, below) in self.rest_norms.iter_mut().zip(BITS_BELOW) {
            rest_norms.push(norm(&|v| v - known(v, below)));
        }
    }

    /// Adds a row of other planes as it is.
    pub(super) fn push_from(&mut self, other: &PlanesRef<'_>, row: usize) {
        for (plane, bits) in self.bits.iter_mut().enumerate() {
            bits.extend_from_slice(other.row(plane, row));
        }
        self.scales.push(other.scales[row]);
        self.norms.push(other.norms[row]);
        self.rest_norms.iter_mut().zip(other.rest_norms).for_each(|(norms, other)| norms.push(other[row]));
    }

    pub(super) fn view(&self, dimension: usize) -> PlanesRef<'_> {
        let Self { bits, scales, norms, rest_norms } = self;
        let (bits, rest_norms) = (bits.each_ref().map(Vec::as_slice), rest_norms.each_ref().map(Vec::as_slice));
        PlanesRef { dimension, bits, scales, norms, rest_norms }
    }
}

/// What a whole number of which all known bits are 0 is taken for, when only the first plane is known, and the first two.
pub(super) const LEAST: [i32; 2] = [known(-ZERO, BITS_BELOW[0]), known(-ZERO, BITS_BELOW[1])];
/// What a plane's numbers are multiplied by: the first's, the second's.
pub(super) const WEIGHTS: [i32; 2] = [1 << BITS_BELOW[0], 1 << BITS_BELOW[1]];

/// What a whole number is taken for when its last bits are not known.
const fn known(value: i32, bits_below: u32) -> i32 {
    ((value + ZERO) >> bits_below << bits_below) + (1 << (bits_below - 1)) - ZERO
}

/// Bytes that a row of `dimension` numbers has in each plane.
pub(super) fn row_bytes(dimension: usize) -> [usize; 3] {
    PLANE_BYTES.map(|bytes| dimension.div_ceil(BLOCK).saturating_mul(bytes))
}

/// Numbers of a query for rows of `dimension` numbers: zeros fill the last block.
pub(super) fn padded(dimension: usize) -> usize {
    dimension.next_multiple_of(BLOCK)
}

impl<'a> PlanesRef<'a> {
    pub(super) fn num_rows(&self) -> usize {
        self.scales.len()
    }

    fn row(&self, plane: usize, row: usize) -> &'a [u8] {
        let length = row_bytes(self.dimension)[plane];
        &self.bits[plane][row * length..][..length]
    }

    /// Inner products of a query of signed bytes with a plane's numbers (4 bits in the first, 2 in the second) of four rows.
    #[inline]
    pub(super) fn products<const BITS: i32>(&self, rows: [usize; 4], query: &[i8]) -> [i32; 4] {
        let length = query.len() / BLOCK * block_bytes(BITS as usize);
        let bits = self.bits[if BITS == 4 { 0 } else { 1 }];
        let row = |row: usize| &bits[row * length..][..length];
        four_products::<BITS>([row(rows[0]), row(rows[1]), row(rows[2]), row(rows[3])], query)
    }

    /// The score of a row with all its bits: fp32 products added in 32 running sums, then those from left to right.
    pub(super) fn exact_score(&self, row: usize, query: &[f32]) -> f32 {
        let planes = [0, 1, 2].map(|plane| self.row(plane, row));
        assert_eq!(query.len(), padded(self.dimension), "a query in blocks");
        self.scales[row] * weighted_sum(planes, query)
    }

    /// How far rounding can take sums over a row, in its whole numbers and for a query of length 1, the norms' included.
    pub(super) fn rounding(&self) -> f32 {
        let num = padded(self.dimension);
        (num / GROUP + GROUP + 16) as f32 * f32::EPSILON * ZERO as f32 * (num as f32).sqrt()
    }
}

fn weighted_sum(planes: [&[u8]; 3], query: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // Sound: the CPU has AVX2.
        #[allow(unsafe_code)]
        return unsafe { weighted_sum_avx2(planes, query) };
    }
    weighted_sum_in_loops(planes, query)
}

/// Sums as the loops below build them: no multiplication is fused with an addition, so that the bits are the same. Planes must be
/// as long as the query asks for.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[allow(unsafe_code)]
fn weighted_sum_avx2([first, second, third]: [&[u8]; 3], query: &[f32]) -> f32 {
    use std::arch::x86_64::{
        __m256i, _mm256_add_ps, _mm256_and_si256, _mm256_castsi256_si128, _mm256_cvtepi16_epi32, _mm256_cvtepi32_ps,
        _mm256_extracti128_si256, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_mul_ps, _mm256_or_si256,
        _mm256_set1_epi8, _mm256_set1_epi16, _mm256_setzero_ps, _mm256_slli_epi16, _mm256_srli_epi16, _mm256_storeu_ps,
        _mm256_sub_epi16, _mm256_unpackhi_epi8, _mm256_unpacklo_epi8,
    };
    // Sound: blocks lie inside the planes and the query, by the caller's slices; loads need no alignment.
    let bytes =
        |plane: &[u8], at: usize| unsafe { _mm256_loadu_si256(plane[at..at + GROUP].as_ptr().cast::<__m256i>()) };
    let mut sums = [_mm256_setzero_ps(); 4];
    for (block, query) in query.chunks_exact(BLOCK).enumerate() {
        let mut pairs = bytes(second, block * PLANE_BYTES[1]);
        let mut last_pairs = bytes(third, block * PLANE_BYTES[2] + block_bytes(4));
        for (run, query) in query.chunks_exact(2 * GROUP).enumerate() {
            let mut high = bytes(first, block * PLANE_BYTES[0] + run * GROUP);
            let mut nibbles = bytes(third, block * PLANE_BYTES[2] + run * GROUP);
            for query in query.chunks_exact(GROUP) {
                let low = _mm256_or_si256(
                    _mm256_and_si256(_mm256_slli_epi16::<6>(pairs), _mm256_set1_epi8(0xC0u8 as i8)),
                    _mm256_or_si256(
                        _mm256_and_si256(_mm256_slli_epi16::<2>(nibbles), _mm256_set1_epi8(0x3C)),
                        _mm256_and_si256(last_pairs, _mm256_set1_epi8(0x03)),
                    ),
                );
                let top = _mm256_and_si256(high, _mm256_set1_epi8(0x0F));
                let zero = _mm256_set1_epi16(ZERO as i16);
                // Numbers 0 to 7 and 16 to 23, 8 to 15 and 24 to 31.
                let even = _mm256_sub_epi16(_mm256_unpacklo_epi8(low, top), zero);
                let odd = _mm256_sub_epi16(_mm256_unpackhi_epi8(low, top), zero);
                let values = [
                    _mm256_castsi256_si128(even),
                    _mm256_castsi256_si128(odd),
                    _mm256_extracti128_si256::<1>(even),
                    _mm256_extracti128_si256::<1>(odd),
                ];
                for ((sum, values), query) in sums.iter_mut().zip(values).zip(query.chunks_exact(8)) {
                    let query = unsafe { _mm256_loadu_ps(query.as_ptr()) };
                    let values = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(values));
                    *sum = _mm256_add_ps(*sum, _mm256_mul_ps(values, query));
                }
                (high, nibbles) = (_mm256_srli_epi16::<4>(high), _mm256_srli_epi16::<4>(nibbles));
                (pairs, last_pairs) = (_mm256_srli_epi16::<2>(pairs), _mm256_srli_epi16::<2>(last_pairs));
            }
        }
    }
    let mut lanes = [0f32; GROUP];
    for (lanes, sum) in lanes.chunks_exact_mut(8).zip(sums) {
        // Sound: eight numbers.
        unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), sum) };
    }
    lanes.iter().sum()
}

fn weighted_sum_in_loops([first, second, third]: [&[u8]; 3], query: &[f32]) -> f32 {
    let mut sums = [0f32; GROUP];
    let leading = first.chunks_exact(PLANE_BYTES[0]).zip(second.chunks_exact(PLANE_BYTES[1]));
    for (((first, second), third), query) in
        leading.zip(third.chunks_exact(PLANE_BYTES[2])).zip(query.chunks_exact(BLOCK))
    {
        let (third, fourth) = third.split_at(block_bytes(4));
        for (group, query) in query.chunks_exact(GROUP).enumerate() {
            let (first, second) = (unpacked(4, first, group), unpacked(2, second, group));
            let (third, fourth) = (unpacked(4, third, group), unpacked(2, fourth, group));
            for i in 0..GROUP {
                let low = second[i] << 6 | third[i] << 2 | fourth[i];
                let value = (i16::from(first[i]) << 8 | i16::from(low)) - ZERO as i16;
                sums[i] += f32::from(value) * query[i];
            }
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn planes(row: &[f32]) -> Planes {
        let mut planes = Planes::default();
        planes.push(row);
        planes
    }

    fn in_blocks(query: &[f32]) -> Vec<f32> {
        let mut query = query.to_vec();
        query.resize(padded(query.len()), 0.0);
        query
    }

    #[test]
    fn twelve_bits_keep_a_score_to_a_thousandth() {
        let row: Vec<f32> = (0..1024).map(|i| ((i * 37 % 101) as f32 - 50.0) / 1000.0).collect();
        let exact: f64 = row.iter().map(|x| f64::from(*x).powi(2)).sum();
        let found = f64::from(planes(&row).view(1024).exact_score(0, &row));
        assert!((found / exact - 1.0).abs() < 1e-4, "{found} {exact}");
    }

    proptest! {
        #[test]
        fn rounding_is_within_half_a_step(row in prop::collection::vec(-1f32..1.0, 1..300)) {
            let planes = planes(&row);
            let view = planes.view(row.len());
            for i in 0..row.len() {
                let mut unit = in_blocks(&vec![0.0; row.len()]);
                unit[i] = 1.0;
                prop_assert!((view.exact_score(0, &unit) - row[i]).abs() <= view.scales[0] * 0.501);
            }
        }

        /// Sums with and without AVX2 have the same bits; products with leading planes are off by what the norms allow.
        #[test]
        fn leading_planes_are_near(
            row in prop::collection::vec(-1f32..1.0, 1..300),
            query in prop::collection::vec(-127i8..=127, 300),
        ) {
            let planes = planes(&row);
            let view = planes.view(row.len());
            let mut query = query[..row.len()].to_vec();
            query.resize(padded(row.len()), 0);
            let total: i32 = query.iter().map(|&q| i32::from(q)).sum();
            let norm = query.iter().map(|&q| f32::from(q).powi(2)).sum::<f32>().sqrt();
            let exact: Vec<f32> = query.iter().map(|&q| f32::from(q)).collect();
            let bits = [0, 1, 2].map(|plane| view.row(plane, 0));
            let sum = weighted_sum(bits, &exact);
            prop_assert_eq!(sum.to_bits(), weighted_sum_in_loops(bits, &exact).to_bits());
            let first = WEIGHTS[0] * view.products::<4>([0; 4], &query)[3];
            let both = first + WEIGHTS[1] * view.products::<2>([0; 4], &query)[0];
            for ((product, least), rest) in [first, both].into_iter().zip(LEAST).zip(view.rest_norms) {
                let off = ((product + least * total) as f32 - sum).abs();
                let most = norm * (rest[0] + view.rounding());
                prop_assert!(off <= most, "{} {}", off, most);
            }
        }
    }
}
