//! Compiles the C++ shim against the libtorch that torch-sys found, and hands that folder on to dependents.

use std::env;
use std::path::PathBuf;

fn main() {
    // Set by torch-sys for its direct dependents only, which is why this crate passes it on.
    let lib = PathBuf::from(env::var_os("DEP_TCH_LIBTORCH_LIB").expect("torch-sys states where libtorch lies"));
    println!("cargo::rerun-if-changed=src/cpp");
    println!("cargo::rerun-if-env-changed=LIBTORCH_INCLUDE");
    let root = match env::var_os("LIBTORCH_INCLUDE") {
        Some(folder) => PathBuf::from(folder),
        None => lib.parent().expect("libtorch's lib folder has a parent").to_path_buf(),
    };
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .warnings(false)
        .include(root.join("include"))
        .include(root.join("include/torch/csrc/api/include"))
        .include("src/cpp/gloo_stubs")
        .define("_GLIBCXX_USE_CXX11_ABI", "1")
        .define("USE_C10D_GLOO", None)
        .files(["src/cpp/shim.cpp", "src/cpp/c10d.cpp"])
        .compile("napmem_native");
    println!("cargo::metadata=libtorch_lib={}", lib.display());
    println!("cargo::metadata=has_cuda={}", lib.join("libtorch_cuda.so").exists());
    // For this crate's own tests; link arguments do not reach dependents.
    println!("cargo::rustc-link-arg=-Wl,-rpath,{}", lib.display());
}
