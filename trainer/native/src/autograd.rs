//! Backward with given output gradients, which tch does not expose.

use std::ffi::c_void;

use tch::Tensor;

use crate::{NativeError, ffi};

/// Propagates `grad_outputs` back from `outputs` and accumulates into the `.grad` of every leaf that requires one: the
/// gradient of `Σ_i ⟨outputs[i], grad_outputs[i]⟩`. The graph is freed.
///
/// Each gradient has its output's shape and device. It equals `(y * dy).sum().backward()` without the product and its
/// saved tensors, which is what layer-by-layer recomputation wants.
///
/// # Errors
/// Lists of different lengths, shapes that differ, an output that does not require a gradient, or whatever else libtorch
/// refuses.
pub fn backward(outputs: &[Tensor], grad_outputs: &[Tensor]) -> Result<(), NativeError> {
    if outputs.len() != grad_outputs.len() {
        return Err(NativeError::GradientCount { num_outputs: outputs.len(), num_grad_outputs: grad_outputs.len() });
    }
    for (index, (output, grad_output)) in outputs.iter().zip(grad_outputs).enumerate() {
        let (output, grad_output) = (output.size(), grad_output.size());
        if output != grad_output {
            return Err(NativeError::GradientShape { index, output, grad_output });
        }
    }
    let output_pointers = pointers(outputs);
    let grad_pointers = pointers(grad_outputs);
    // SAFETY: both lists hold `outputs.len()` pointers to live tensors; the shim copies the handles and keeps none.
    ffi::checked(unsafe { ffi::napmem_backward(output_pointers.as_ptr(), grad_pointers.as_ptr(), outputs.len()) })
}

/// Drops the gradient of a leaf with its memory; [`Tensor::zero_grad`] would keep it allocated.
///
/// # Errors
/// Whatever libtorch refuses.
pub fn clear_grad(leaf: &Tensor) -> Result<(), NativeError> {
    // SAFETY: a live tensor, whose gradient handle alone is changed.
    ffi::checked(unsafe { ffi::napmem_clear_grad(leaf.as_ptr().cast()) })
}

fn pointers(tensors: &[Tensor]) -> Vec<*const c_void> {
    tensors.iter().map(|tensor| tensor.as_ptr().cast()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind};

    fn leaf(values: &[f64]) -> Tensor {
        Tensor::from_slice(values).set_requires_grad(true)
    }

    #[test]
    fn backward_matches_the_analytic_gradient() {
        // y1 = x², y2 = 3x  →  dx = 2x·dy1 + 3·dy2
        let x = leaf(&[1.0, -2.0, 0.5]);
        let (dy1, dy2) = (Tensor::from_slice(&[1.0, 10.0, -4.0]), Tensor::from_slice(&[0.0, 1.0, 2.0]));
        backward(&[&x * &x, &x * 3.0], &[dy1, dy2]).unwrap();
        assert_eq!(Vec::<f64>::try_from(x.grad()).unwrap(), [2.0, -37.0, 2.0]);
    }

    #[test]
    fn backward_accumulates_over_calls() {
        let x = leaf(&[3.0]);
        for _ in 0..2 {
            backward(&[&x * &x], &[Tensor::from_slice(&[1.0])]).unwrap();
        }
        assert_eq!(f64::try_from(x.grad()).unwrap(), 12.0);
        clear_grad(&x).unwrap();
        assert!(!x.grad().defined());
        backward(&[&x * &x], &[Tensor::from_slice(&[1.0])]).unwrap();
        assert_eq!(f64::try_from(x.grad()).unwrap(), 6.0);
    }

    #[test]
    fn backward_of_a_matrix_product_in_f32() {
        // Y = X W  →  dW = Xᵀ dY
        let x = Tensor::arange(6, (Kind::Float, Device::Cpu)).view([3, 2]);
        let w = Tensor::ones([2, 4], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let dy = Tensor::arange(12, (Kind::Float, Device::Cpu)).view([3, 4]);
        backward(&[x.matmul(&w)], &[dy.shallow_clone()]).unwrap();
        assert_eq!(w.grad(), x.transpose(0, 1).matmul(&dy));
    }

    #[test]
    fn faults_are_errors_and_not_crashes() {
        let x = leaf(&[1.0, 2.0]);
        let no_graph = Tensor::from_slice(&[1.0, 2.0]);
        let one = || Tensor::from_slice(&[1.0, 1.0]);
        let cases: [(Vec<Tensor>, Vec<Tensor>, &str); 3] = [
            (vec![&x * 2.0], vec![], "1 outputs but 0 gradients"),
            (vec![&x * 2.0], vec![Tensor::from_slice(&[1.0])], "shape [2] but its gradient has [1]"),
            (vec![no_graph], vec![one()], "does not require grad"),
        ];
        for (outputs, grads, expected) in cases {
            let message = backward(&outputs, &grads).unwrap_err().to_string();
            assert!(message.contains(expected), "{message:?} should contain {expected:?}");
        }
        let y = &x * &x;
        backward(&[y.shallow_clone()], &[one()]).unwrap();
        assert!(backward(&[y], &[one()]).unwrap_err().to_string().contains("a second time"));
    }
}
