//! Makes the binary and the tests find libtorch without `LD_LIBRARY_PATH`, and records the commit it was built from.

use std::env;
use std::process::Command;

fn main() {
    let lib = env::var("DEP_NAPMEM_NATIVE_LIBTORCH_LIB").expect("napmem-native states where libtorch lies");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg=-Wl,-rpath,{lib}");
    if env::var("DEP_NAPMEM_NATIVE_HAS_CUDA").as_deref() == Ok("true") {
        // Nothing of ours names a symbol of it, so the linker would drop it and CUDA would count as unavailable.
        println!("cargo::rustc-link-arg=-Wl,--no-as-needed,-L{lib},-ltorch_cuda,--as-needed");
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=NAPMEM_COMMIT={commit}");
    // HEAD changes with a checkout, its log with every commit; both paths differ in linked worktrees.
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--path-format=absolute", "--git-path", file]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// Standard output of a git command, or `None` without git or outside a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
