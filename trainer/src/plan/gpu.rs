//! GPUs that plans are made for, by their vendor's data sheets.

/// One kind of GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gpu {
    /// Its name.
    pub name: &'static str,
    /// Memory that the driver reports, in MiB.
    pub memory_mib: u64,
    /// Dense bf16 operations, 10^12 a second.
    pub tflops: f64,
    /// Bandwidth of its memory, 10^12 bytes a second.
    pub memory_tbps: f64,
    /// Bandwidth to the other GPUs of its node in one direction, 10^9 bytes a second.
    pub link_gbps: f64,
}

/// The kinds that are known. Sources: NVIDIA's data sheets of each (dense bf16, without sparsity; NVLink's two directions halved).
pub const GPUS: [Gpu; 5] = [
    Gpu { name: "H20", memory_mib: 97_871, tflops: 148.0, memory_tbps: 4.0, link_gbps: 450.0 },
    Gpu { name: "A100", memory_mib: 81_920, tflops: 312.0, memory_tbps: 2.04, link_gbps: 300.0 },
    Gpu { name: "H100", memory_mib: 81_559, tflops: 989.0, memory_tbps: 3.35, link_gbps: 450.0 },
    Gpu { name: "H200", memory_mib: 143_771, tflops: 989.0, memory_tbps: 4.8, link_gbps: 450.0 },
    Gpu { name: "B200", memory_mib: 183_359, tflops: 2250.0, memory_tbps: 7.7, link_gbps: 900.0 },
];

/// MiB that a process cannot have: the CUDA context, libraries' workspaces, NCCL's buffers.
const OVERHEAD_MIB: u64 = 2048;
/// Share of what is left that the caching allocator's gaps may take.
const GAPS: f64 = 0.04;

impl Gpu {
    /// The kind of that name, in any case.
    pub fn named(name: &str) -> Option<Self> {
        GPUS.into_iter().find(|gpu| gpu.name.eq_ignore_ascii_case(name))
    }

    /// Bytes that tensors can have.
    pub fn usable_bytes(&self) -> u64 {
        (((self.memory_mib - OVERHEAD_MIB) << 20) as f64 * (1.0 - GAPS)) as u64
    }
}
