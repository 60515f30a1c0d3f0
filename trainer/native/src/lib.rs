//! What tch lacks of libtorch, and what a process needs to know about its memory, behind a safe interface.
//!
//! A small C++ file (`src/cpp/shim.cpp`) is compiled against the same libtorch as tch. C++ exceptions end there and
//! come back as [`NativeError`]. This crate holds no policy: it computes nothing that tch can compute.
//!
//! Its build script hands libtorch's folder on to dependents (`DEP_NAPMEM_NATIVE_LIBTORCH_LIB`), whose build scripts
//! turn it into an rpath, so that no `LD_LIBRARY_PATH` is needed.

// Calls into C and C++ are what this crate is for; every block states why it is sound.
#![allow(unsafe_code)]

mod autograd;
mod c10d;
mod cuda;
mod ffi;
mod memory;

pub use autograd::{backward, clear_grad};
pub use c10d::{Pending, ProcessGroup, Rendezvous};
pub use cuda::{CudaMemory, cuda_memory, empty_cuda_cache, reset_cuda_peak};
pub use memory::{keep_freed_memory, peak_resident_bytes, reset_peak_resident, resident_bytes};

/// A call into libtorch that failed.
#[derive(Debug, thiserror::Error)]
pub enum NativeError {
    /// libtorch raised an exception; its own words.
    #[error("libtorch: {0}")]
    Libtorch(String),
    /// A list of gradients that does not fit the list of outputs.
    #[error("backward: {num_outputs} outputs but {num_grad_outputs} gradients; one gradient per output is needed")]
    GradientCount {
        /// How many outputs were given.
        num_outputs: usize,
        /// How many gradients were given.
        num_grad_outputs: usize,
    },
    /// A gradient whose shape differs from its output's.
    #[error("backward: output {index} has shape {output:?} but its gradient has {grad_output:?}")]
    GradientShape {
        /// Position in the lists.
        index: usize,
        /// Shape of the output.
        output: Vec<i64>,
        /// Shape of the gradient.
        grad_output: Vec<i64>,
    },
}
