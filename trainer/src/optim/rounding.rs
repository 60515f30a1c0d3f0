//! Stochastic rounding of fp32 values to bf16: up or down with probabilities that make the mean right.
//!
//! The random bits are a hash of (key, index) computed with tensor operations, not draws from libtorch's global generator: the
//! same seed and step give the same bits on any device, in chunks of any size, whatever else draws numbers.

use tch::{Kind, Tensor};

/// Bits of an fp32 value that bf16 does not have.
const NUM_DROPPED_BITS: i64 = 16;
/// They, as a mask.
const DROPPED_MASK: i64 = (1 << NUM_DROPPED_BITS) - 1;

/// Mixes two words into a key; neighbouring inputs give unrelated keys (SplitMix64's finaliser).
pub fn mix_key(a: u64, b: u64) -> u64 {
    let mut z = a.wrapping_add(b.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// `values` f32 \[n\], which are elements `offset..offset + n` of their parameter, rounded to bf16 \[n\].
pub fn round_to_bf16(values: &Tensor, key: u64, offset: i64) -> Tensor {
    let mut bits = values.view_dtype(Kind::Int).copy();
    // Sign and magnitude: adding to the bits moves away from 0, and masking moves back, whatever the sign.
    let _ = bits.g_add_(&random_words(values, key, offset).bitwise_and_(DROPPED_MASK));
    let _ = bits.bitwise_and_(!DROPPED_MASK);
    bits.view_dtype(Kind::Float).to_kind(Kind::BFloat16)
}

/// One well-mixed 32-bit word for each element, i32 \[n\].
fn random_words(values: &Tensor, key: u64, offset: i64) -> Tensor {
    let end = offset + values.size()[0];
    assert!(end <= i64::from(i32::MAX), "a parameter of {end} elements is too large for 32-bit indices");
    let (low, high) = (i64::from(key as u32 as i32), i64::from((key >> 32) as u32 as i32));
    let mut words = Tensor::arange_start(offset, end, (Kind::Int, values.device()));
    let _ = words.bitwise_xor_(low);
    // Multiply and xor-shift rounds of `lowbias32` (C. Wellons, "Prospecting for Hash Functions"), the key's other half between.
    xor_shift(&mut words, 16);
    let _ = words.g_mul_scalar_(0x7feb_352d_i64);
    xor_shift(&mut words, 15);
    let _ = words.bitwise_xor_(high);
    let _ = words.g_mul_scalar_(i64::from(0x846c_a68b_u32 as i32));
    xor_shift(&mut words, 16);
    words
}

/// x ^= x >> by, on unsigned words.
fn xor_shift(words: &mut Tensor, by: i64) {
    let mut shifted = words.bitwise_right_shift_tensor_scalar(by);
    // The shift of a signed word drags its sign along.
    let _ = shifted.bitwise_and_((1i64 << (32 - by)) - 1);
    let _ = words.bitwise_xor_tensor_(&shifted);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    #[test]
    fn the_mean_is_right_and_only_neighbours_occur() {
        // Neighbours in bf16 of 1.0 are 1 ± 2^-8 and 2^-7; a quarter of the way up must be rounded up a quarter of the time.
        let (n, step) = (1 << 16, 2f64.powi(-7));
        for value in [1.0 + 0.25 * step, -(1.0 + 0.25 * step), 3e-6, -1234.567] {
            let value = f64::from(value as f32);
            let values = Tensor::full([n], value, (Kind::Float, Device::Cpu));
            let rounded = round_to_bf16(&values, mix_key(7, 3), 0).to_kind(Kind::Double);
            let (low, high) = (rounded.min().double_value(&[]), rounded.max().double_value(&[]));
            assert!(low < value && value < high, "{value} is not between {low} and {high}");
            let mean = rounded.mean(Kind::Double).double_value(&[]);
            // Standard error is at most (high − low)/2/√n.
            let bound = 4.0 * (high - low) / 2.0 / (n as f64).sqrt();
            assert!((mean - value).abs() < bound, "{value}: mean {mean}");
            assert_eq!(rounded.unique_dim(0, true, false, false).0.size(), [2]);
        }
    }

    #[test]
    fn exact_values_stay() {
        let values = Tensor::from_slice(&[0.0f32, -0.0, 1.0, -2.5, 1e30, -1e-30]).to_kind(Kind::BFloat16);
        assert!(round_to_bf16(&values.to_kind(Kind::Float), 99, 0).equal(&values));
    }

    #[test]
    fn bits_depend_on_key_and_index_and_not_on_chunks() {
        let values = Tensor::full([4096], 1.003, (Kind::Float, Device::Cpu));
        let whole = round_to_bf16(&values, 5, 0);
        let parts = [(0, 1000), (1000, 3096)].map(|(start, n)| round_to_bf16(&values.narrow(0, start, n), 5, start));
        assert!(Tensor::cat(&parts, 0).equal(&whole));
        // Of the elements about half are rounded up; unrelated choices agree on half of them.
        for other in
            [round_to_bf16(&values, 6, 0), round_to_bf16(&values, 5 | (1 << 32), 0), round_to_bf16(&values, 5, 4096)]
        {
            let num_equal = other.eq_tensor(&whole).sum(Kind::Int64).int64_value(&[]);
            assert!((1700..3000).contains(&num_equal), "{num_equal} of 4096 rounded alike");
        }
    }
}
