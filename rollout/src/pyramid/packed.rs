//! Small whole numbers packed into bytes, and their inner products with a query.
//!
//! A row is cut into blocks of 128 numbers, the last one filled up with zeros, and a block into four groups of 32. Byte j of
//! a block's k-th run of 32 bytes holds the j-th number of several groups, the first one lowest: two groups where numbers
//! have 4 bits, all four where they have 2. So one shift and one mask unpack 32 numbers at once.

/// Numbers of a block.
pub(super) const BLOCK: usize = 128;
/// Numbers that lie at the same bits of neighbouring bytes.
pub(super) const GROUP: usize = 32;

/// Bytes of a block of numbers of `bits` bits.
pub(super) const fn block_bytes(bits: usize) -> usize {
    BLOCK * bits / 8
}

/// Where a block has the numbers of a group: the first of 32 bytes, and how far to shift.
const fn place(bits: usize, group: usize) -> (usize, usize) {
    (GROUP * (group * bits / 8), group * bits % 8)
}

/// Appends a block of numbers of `bits` bits.
pub(super) fn pack(bits: usize, values: &[u8; BLOCK], packed: &mut Vec<u8>) {
    let start = packed.len();
    packed.resize(start + block_bytes(bits), 0);
    for (group, values) in values.chunks_exact(GROUP).enumerate() {
        let (first, shift) = place(bits, group);
        packed[start + first..].iter_mut().zip(values).for_each(|(byte, value)| *byte |= value << shift);
    }
}

/// The numbers of one group of a block.
#[inline(always)]
pub(super) fn unpacked(bits: usize, block: &[u8], group: usize) -> [u8; GROUP] {
    let (first, shift) = place(bits, group);
    let mut values = [0; GROUP];
    let mask = (1u8 << bits) - 1;
    values.iter_mut().zip(&block[first..first + GROUP]).for_each(|(value, byte)| *value = byte >> shift & mask);
    values
}

/// Inner products of four rows of numbers of `BITS` (4 or 2) bits with as many signed bytes, none of them −128.
pub(super) fn four_products<const BITS: i32>(rows: [&[u8]; 4], query: &[i8]) -> [i32; 4] {
    let num_bytes = query.len() / BLOCK * block_bytes(BITS as usize);
    assert!(rows.iter().all(|row| row.len() == num_bytes), "rows of {} numbers", query.len());
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // Sound: the CPU has AVX2.
        #[allow(unsafe_code)]
        return unsafe { four_products_avx2::<BITS>(rows, query) };
    }
    rows.map(|row| product::<BITS>(row, query))
}

fn product<const BITS: i32>(row: &[u8], query: &[i8]) -> i32 {
    let blocks = row.chunks_exact(block_bytes(BITS as usize)).zip(query.chunks_exact(BLOCK));
    let group = |block, (at, query): (usize, &[i8])| -> i32 {
        let values = unpacked(BITS as usize, block, at);
        values.iter().zip(query).map(|(&value, &q)| i32::from(value) * i32::from(q)).sum()
    };
    blocks.map(|(block, query)| query.chunks_exact(GROUP).enumerate().map(|at| group(block, at)).sum::<i32>()).sum()
}

/// Rows must be as long as the query asks for.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[allow(unsafe_code)]
fn four_products_avx2<const BITS: i32>(rows: [&[u8]; 4], query: &[i8]) -> [i32; 4] {
    use std::arch::x86_64::{
        __m256i, _mm_add_epi32, _mm_storeu_si128, _mm256_add_epi16, _mm256_add_epi32, _mm256_and_si256,
        _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_hadd_epi32, _mm256_loadu_si256, _mm256_madd_epi16,
        _mm256_maddubs_epi16, _mm256_set1_epi8, _mm256_set1_epi16, _mm256_setzero_si256, _mm256_srli_epi16,
    };
    let (groups_per_byte, block) = (8 / BITS as usize, block_bytes(BITS as usize));
    let (mask, ones) = (_mm256_set1_epi8((1 << BITS) - 1), _mm256_set1_epi16(1));
    let mut sums = [_mm256_setzero_si256(); 4];
    for at in 0..query.len() / BLOCK {
        // Sound: block `at` lies inside the query and, by the callers' check, inside each row; loads need no alignment.
        let q: [__m256i; 4] = std::array::from_fn(|group| unsafe {
            _mm256_loadu_si256(query.as_ptr().add(at * BLOCK + group * GROUP).cast())
        });
        for (sum, row) in sums.iter_mut().zip(rows) {
            // At most 4 · 2 · 15 · 127 in a lane of 16 bits.
            let mut products = _mm256_setzero_si256();
            for run in 0..4 / groups_per_byte {
                let mut bytes = unsafe { _mm256_loadu_si256(row.as_ptr().add(at * block + run * GROUP).cast()) };
                for q in &q[run * groups_per_byte..(run + 1) * groups_per_byte] {
                    let values = _mm256_and_si256(bytes, mask);
                    products = _mm256_add_epi16(products, _mm256_maddubs_epi16(values, *q));
                    bytes = _mm256_srli_epi16::<BITS>(bytes);
                }
            }
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(products, ones));
        }
    }
    let halves = _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
    let products = _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves));
    let mut found = [0; 4];
    // Sound: four numbers of 32 bits.
    unsafe { _mm_storeu_si128(found.as_mut_ptr().cast(), products) };
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<const BITS: i32>() {
        for num_blocks in [1, 2, 8, 9] {
            let num = num_blocks * BLOCK;
            let value = |i: usize, row: usize| ((i * 89 + row * 57 + i / 7) % (1 << BITS)) as u8;
            let query: Vec<i8> = (0..num).map(|i| (i * 7919 % 255) as i32 - 127).map(|q| q as i8).collect();
            let rows: Vec<Vec<u8>> = (0..4)
                .map(|row| {
                    let mut packed = Vec::new();
                    (0..num_blocks).for_each(|block| {
                        pack(BITS as usize, &std::array::from_fn(|i| value(block * BLOCK + i, row)), &mut packed);
                    });
                    packed
                })
                .collect();
            let expected: Vec<i32> =
                (0..4).map(|row| (0..num).map(|i| i32::from(value(i, row)) * i32::from(query[i])).sum()).collect();
            let views: [&[u8]; 4] = std::array::from_fn(|row| rows[row].as_slice());
            assert_eq!(four_products::<BITS>(views, &query).to_vec(), expected, "{num_blocks} blocks of {BITS} bits");
            assert_eq!(views.map(|row| product::<BITS>(row, &query)).to_vec(), expected, "without AVX2");
            // The largest sums.
            let (full, ends) = (vec![0xFF; block_bytes(BITS as usize) * num_blocks], vec![127; num]);
            let most = 127 * ((1 << BITS) - 1) * num as i32;
            assert_eq!(four_products::<BITS>([&full; 4], &ends), [most; 4]);
            assert_eq!(four_products::<BITS>([&full; 4], &vec![-127; num]), [-most; 4]);
        }
    }

    #[test]
    fn products_are_those_of_plain_loops() {
        check::<4>();
        check::<2>();
    }
}
