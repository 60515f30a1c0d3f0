//! A linear layer without bias, and what it does where the CPU has no bf16 arithmetic.

use std::sync::OnceLock;
use tch::{Device, Kind, Tensor};

/// `y = x Wᵀ`.
#[derive(Debug)]
pub struct Linear {
    weight: Tensor,
}

impl Linear {
    /// `weight` [out, in].
    pub fn new(weight: Tensor) -> Self {
        Self { weight }
    }

    /// `x` [T, in] to [T, out], in `x`'s dtype.
    pub fn forward(&self, x_ti: &Tensor) -> Tensor {
        matmul_weight(x_ti, &self.weight)
    }
}

/// `x Wᵀ` with fp32 accumulation; `x` [T, in] and `weight` [out, in] share a dtype, which the result has too.
///
/// libtorch multiplies bf16 by a scalar loop on a CPU without AVX512-BF16; there a copy of the weight in fp32 is multiplied
/// instead and dropped. The products are the same numbers: bf16 is exact in fp32.
pub fn matmul_weight(x_ti: &Tensor, weight: &Tensor) -> Tensor {
    let kind = weight.kind();
    if kind == Kind::Float || weight.device() != Device::Cpu || has_bf16_arithmetic() {
        return x_ti.linear(weight, None::<Tensor>);
    }
    x_ti.to_kind(Kind::Float).linear(&weight.to_kind(Kind::Float), None::<Tensor>).to_kind(kind)
}

fn has_bf16_arithmetic() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(detect_bf16)
}

#[cfg(target_arch = "x86_64")]
fn detect_bf16() -> bool {
    std::arch::is_x86_feature_detected!("avx512bf16")
}

#[cfg(not(target_arch = "x86_64"))]
fn detect_bf16() -> bool {
    false
}
