//! The norm of all gradients together, in fp64 and in a fixed order.

use super::adamw::chunk_len;
use tch::{Kind, Tensor};

/// Σ g² of each gradient, in order; 0 where there is none. A NaN or infinity in a gradient makes its entry non-finite, and
/// nothing else does: squares of finite fp32 values do not overflow fp64.
pub fn squared_norms(grads: &[Option<Tensor>]) -> Vec<f64> {
    let (mut parts, mut owners) = (Vec::new(), Vec::new());
    for (index, grad) in grads.iter().enumerate() {
        let Some(grad) = grad else { continue };
        let flat = grad.detach().reshape([-1]);
        for chunk in flat.split(chunk_len(flat.device()), 0) {
            parts.push(chunk.to_dtype(Kind::Double, false, true).square_().sum(Kind::Double));
            owners.push(index);
        }
    }
    let mut sums = vec![0.0; grads.len()];
    if !parts.is_empty() {
        // One transfer from the device instead of one for each part.
        let values = Vec::<f64>::try_from(Tensor::stack(&parts, 0)).expect("f64 scalars of one device");
        for (value, owner) in values.into_iter().zip(owners) {
            sums[owner] += value;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_small_values_beside_large_ones_and_show_what_is_not_finite() {
        let large = Tensor::from_slice(&[1e15f32, 3.0]);
        let bf16 = Tensor::from_slice(&[3.0f32, -4.0]).to_kind(Kind::BFloat16);
        let grads = [Some(large), None, Some(bf16), Some(Tensor::from_slice(&[f32::MAX]))];
        let sums = squared_norms(&grads);
        assert_eq!((sums[1], sums[2]), (0.0, 25.0));
        assert!((sums[0] / (f64::from(1e15f32).powi(2)) - 1.0).abs() < 1e-15 && sums[3].is_finite());
        for bad in [f32::NAN, f32::INFINITY] {
            assert!(!squared_norms(&[Some(Tensor::from_slice(&[1.0, bad]))])[0].is_finite());
        }
        assert!(squared_norms(&[None]) == [0.0]);
    }
}
