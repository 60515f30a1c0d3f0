//! What the machine has: processor, memory, disk, GPUs, the libtorch that this process loaded.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Processor features that the kernels profit from, as `/proc/cpuinfo` spells them.
const CPU_FEATURES: [&str; 5] = ["avx2", "avx512f", "avx512_bf16", "amx_bf16", "amx_tile"];

/// The processor.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Its name.
    pub model: String,
    /// Which of the features that matter it has.
    pub features: Vec<&'static str>,
}

/// Reads `/proc/cpuinfo`; empty where there is none.
pub fn cpu() -> Cpu {
    parse_cpuinfo(&fs_err::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

fn parse_cpuinfo(text: &str) -> Cpu {
    let value = |key: &str| {
        let line = text.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == key));
        line.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value.trim())
    };
    let flags: Vec<&str> = value("flags").split(' ').collect();
    Cpu {
        model: value("model name").to_owned(),
        features: CPU_FEATURES.into_iter().filter(|feature| flags.contains(feature)).collect(),
    }
}

/// Bytes of host memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostMemory {
    /// Built in.
    pub total: u64,
    /// Free or freeable.
    pub available: u64,
}

/// Reads `/proc/meminfo`; `None` where there is none.
pub fn host_memory() -> Option<HostMemory> {
    parse_meminfo(&fs_err::read_to_string("/proc/meminfo").ok()?)
}

fn parse_meminfo(text: &str) -> Option<HostMemory> {
    let bytes = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
    };
    Some(HostMemory { total: bytes("MemTotal")?, available: bytes("MemAvailable")? })
}

/// Free bytes on the disk of `path`, or of its nearest parent that exists.
pub fn free_disk(path: &Path) -> Option<u64> {
    let existing = path.ancestors().find(|parent| parent.exists()).unwrap_or(Path::new("."));
    fs4::available_space(existing).ok()
}

/// An NVIDIA GPU as its driver describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Name of the product.
    pub name: String,
    /// Bytes of memory.
    pub memory: u64,
}

/// GPUs of this machine, whether or not this build can use them; empty without a driver.
pub fn gpus() -> Vec<Gpu> {
    let query = ["--query-gpu=name,memory.total", "--format=csv,noheader,nounits"];
    match Command::new("nvidia-smi").args(query).output() {
        Ok(output) if output.status.success() => parse_gpus(&String::from_utf8_lossy(&output.stdout)),
        _ => Vec::new(),
    }
}

fn parse_gpus(text: &str) -> Vec<Gpu> {
    let parse = |line: &str| {
        let (name, mebibytes) = line.rsplit_once(',')?;
        Some(Gpu { name: name.trim().to_owned(), memory: mebibytes.trim().parse::<u64>().ok()? << 20 })
    };
    text.lines().filter_map(parse).collect()
}

/// The libtorch in this process: its file, and the version that lies beside it.
pub fn libtorch() -> Option<(PathBuf, String)> {
    let maps = fs_err::read_to_string("/proc/self/maps").ok()?;
    let file =
        maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("libtorch_cpu"))?;
    let folder = Path::new(file).parent()?.parent()?;
    let version = ["build-version", "version.py"].iter().find_map(|name| version_in(&folder.join(name)))?;
    Some((folder.to_owned(), version))
}

/// A version from `2.11.0` or `__version__ = '2.11.0+cu130'`.
fn version_in(file: &Path) -> Option<String> {
    let text = fs_err::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.contains("__version__ =")).or_else(|| text.lines().next())?;
    let version = line.rsplit('=').next()?.trim().trim_matches(['\'', '"']);
    (!version.is_empty()).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_and_the_driver_are_read() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Xeon: 1\nflags\t\t: fpu avx2 avx512f avx512_bf16\n";
        let expected = Cpu { model: "Xeon: 1".into(), features: vec!["avx2", "avx512f", "avx512_bf16"] };
        assert_eq!(parse_cpuinfo(cpuinfo), expected);
        let meminfo = "MemTotal:       2048 kB\nMemFree:        1 kB\nMemAvailable:   1024 kB\n";
        let expected = HostMemory { total: 2 << 20, available: 1 << 20 };
        assert_eq!(parse_meminfo(meminfo), Some(expected));
        let expected = vec![Gpu { name: "NVIDIA H200".into(), memory: 143_771 << 20 }];
        assert_eq!(parse_gpus("NVIDIA H200, 143771\nnonsense\n"), expected);
    }

    #[test]
    fn loaded_libtorch_is_the_pinned_one() {
        // A call into it, so that it is linked.
        assert!(tch::get_num_threads() > 0);
        let (folder, version) = libtorch().unwrap();
        assert!(version.starts_with("2.11.0"), "{version} in {}", folder.display());
    }
}
