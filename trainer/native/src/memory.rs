//! Host memory of this process: how much it held, and how glibc treats what libtorch frees.

use std::fs;

/// Largest threshold glibc accepts on 64-bit machines (half of its `HEAP_MAX_SIZE`).
const MMAP_THRESHOLD_BYTES: libc::c_int = 32 << 20;
/// Freed memory at the top of the heap that is kept before it goes back to the system.
const TRIM_THRESHOLD_BYTES: libc::c_int = 1 << 30;

/// Makes glibc keep freed blocks instead of returning them to the system, so that libtorch's CPU tensors reuse pages
/// that are already mapped. Without it every tensor above 128 KiB costs a page fault per 4 KiB again and again.
///
/// Call it once, before the first tensor. Returns whether glibc accepted both settings.
pub fn keep_freed_memory() -> bool {
    // SAFETY: mallopt only sets two parameters of the allocator.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES) == 1
            && libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES) == 1
    }
}

/// Bytes of physical memory this process holds now, or `None` where `/proc` does not say.
pub fn resident_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// Most bytes of physical memory this process held at once, since its start or the last [`reset_peak_resident`].
pub fn peak_resident_bytes() -> u64 {
    // getrusage has no reset that works everywhere, so /proc comes first.
    status_bytes("VmHWM:").unwrap_or_else(peak_of_getrusage)
}

/// Starts [`peak_resident_bytes`] anew from what is held now. Returns whether the system permitted it; if not, peaks stay
/// those of the whole process.
pub fn reset_peak_resident() -> bool {
    // proc(5): writing 5 to clear_refs resets the peak resident set size.
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

fn status_bytes(key: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

fn peak_of_getrusage() -> u64 {
    // SAFETY: rusage is plain numbers, for which zero is valid, and the call only writes to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK_BYTES: u64 = 256 << 20;

    #[test]
    fn the_peak_counts_a_freed_block_until_it_is_reset() {
        assert!(keep_freed_memory());
        let before = resident_bytes().unwrap();
        let block = std::hint::black_box(vec![1_u8; BLOCK_BYTES as usize]);
        drop(std::hint::black_box(block));
        let peak = peak_resident_bytes();
        assert!(peak >= before + BLOCK_BYTES * 9 / 10, "peak {peak}, before the block {before}");
        assert!(peak_of_getrusage() >= peak / 2);
        if reset_peak_resident() {
            let after = peak_resident_bytes();
            assert!(after < peak, "peak {after} after the reset, {peak} before it");
        }
    }
}
