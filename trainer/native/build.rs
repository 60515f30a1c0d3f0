//! Compiles the C++ shim against the libtorch that torch-sys found, and hands that folder on to dependents.

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    // Set by torch-sys for its direct dependents only, which is why this crate passes it on.
    let lib = PathBuf::from(env::var_os("DEP_TCH_LIBTORCH_LIB").expect("torch-sys states where libtorch lies"));
    println!("cargo::rerun-if-changed=src/cpp");
    println!("cargo::rerun-if-env-changed=LIBTORCH_INCLUDE");
    let root = match env::var_os("LIBTORCH_INCLUDE") {
        Some(folder) => PathBuf::from(folder),
        None => lib.parent().expect("libtorch's lib folder has a parent").to_path_buf(),
    };
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .warnings(false)
        .include(root.join("include"))
        .include(root.join("include/torch/csrc/api/include"))
        .include("src/cpp/gloo_stubs")
        .define("_GLIBCXX_USE_CXX11_ABI", "1")
        .define("USE_C10D_GLOO", None)
        .files(["src/cpp/shim.cpp", "src/cpp/c10d.cpp"]);
    let has_cuda = lib.join("libtorch_cuda.so").exists();
    if has_cuda {
        add_nccl(&mut build, &lib);
    }
    build.compile("napmem_native");
    println!("cargo::metadata=libtorch_lib={}", lib.display());
    println!("cargo::metadata=has_cuda={has_cuda}");
    // For this crate's own tests; link arguments do not reach dependents.
    println!("cargo::rustc-link-arg=-Wl,-rpath,{}", lib.display());
}

/// NCCL's and CUDA's headers lie beside torch, as pip puts them.
fn add_nccl(build: &mut cc::Build, lib: &Path) {
    let site = lib.canonicalize().ok().and_then(|lib| Some(lib.parent()?.parent()?.to_path_buf()));
    let nvidia = site.map(|site| site.join("nvidia")).unwrap_or_default();
    let (cuda, nccl) = (nvidia.join("cu13/include"), nvidia.join("nccl/include"));
    if !cuda.join("crt/host_config.h").exists() || !nccl.join("nccl.h").exists() {
        let wanted =
            "CUDA's and NCCL's headers (nvidia-cuda-crt, nvidia-cuda-cccl, nvidia-nccl-cu13) are not beside libtorch";
        println!("cargo::warning={wanted}: this build trains on one GPU only");
        return;
    }
    build.include(cuda).include(nccl).define("USE_C10D_NCCL", None);
    println!("cargo::rustc-link-search=native={}", lib.display());
    println!("cargo::rustc-link-lib=dylib=c10_cuda");
    println!("cargo::rustc-link-lib=dylib=torch_cuda");
}
