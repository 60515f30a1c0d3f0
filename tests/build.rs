//! Makes the tests find libtorch without `LD_LIBRARY_PATH`.

use std::env;

fn main() {
    let lib = env::var("DEP_NAPMEM_NATIVE_LIBTORCH_LIB").expect("napmem-native states where libtorch lies");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg=-Wl,-rpath,{lib}");
    if env::var("DEP_NAPMEM_NATIVE_HAS_CUDA").as_deref() == Ok("true") {
        println!("cargo::rustc-link-arg=-Wl,--no-as-needed,-L{lib},-ltorch_cuda,--as-needed");
    }
}
