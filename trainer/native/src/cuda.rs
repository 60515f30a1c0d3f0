//! Statistics and control of libtorch's CUDA allocator.

use std::ffi::c_int;

use crate::{NativeError, ffi};

/// What libtorch's CUDA allocator holds on one device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaMemory {
    /// Held by tensors now.
    pub allocated_bytes: u64,
    /// Most held by tensors at once since the start or the last [`reset_cuda_peak`].
    pub allocated_bytes_max: u64,
    /// Taken from the device now, cached blocks included.
    pub reserved_bytes: u64,
    /// Most taken from the device since the start or the last [`reset_cuda_peak`].
    pub reserved_bytes_max: u64,
}

/// Memory of the CUDA device with this index.
///
/// # Errors
/// libtorch was built without CUDA, CUDA has not been used yet in this process, or there is no such device.
pub fn cuda_memory(device: usize) -> Result<CudaMemory, NativeError> {
    let mut statistics = [0_i64; 4];
    // SAFETY: the shim writes four numbers.
    ffi::checked(unsafe { ffi::napmem_cuda_memory(index(device), statistics.as_mut_ptr()) })?;
    let [allocated_bytes, allocated_bytes_max, reserved_bytes, reserved_bytes_max] =
        statistics.map(|bytes| u64::try_from(bytes).unwrap_or(0));
    Ok(CudaMemory { allocated_bytes, allocated_bytes_max, reserved_bytes, reserved_bytes_max })
}

/// Starts the peaks of [`cuda_memory`] anew.
///
/// # Errors
/// As [`cuda_memory`].
pub fn reset_cuda_peak(device: usize) -> Result<(), NativeError> {
    // SAFETY: a plain call with a number.
    ffi::checked(unsafe { ffi::napmem_cuda_reset_peak(index(device)) })
}

/// Gives cached, unused device memory back to the driver.
///
/// # Errors
/// libtorch was built without CUDA, or CUDA has not been used yet in this process.
pub fn empty_cuda_cache() -> Result<(), NativeError> {
    // SAFETY: a plain call.
    ffi::checked(unsafe { ffi::napmem_cuda_empty_cache() })
}

/// Device indices are 8 bits wide in libtorch; one that does not fit is passed as -1, which it refuses.
fn index(device: usize) -> c_int {
    i8::try_from(device).map_or(-1, c_int::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_cuda_device_every_call_is_an_error_that_says_so() {
        if tch::Cuda::is_available() {
            return;
        }
        for result in [cuda_memory(0).map(drop), reset_cuda_peak(0), empty_cuda_cache()] {
            let message = result.unwrap_err().to_string();
            assert!(message.contains("CUDA"), "{message}");
        }
    }
}
