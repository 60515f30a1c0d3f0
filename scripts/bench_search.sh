#!/usr/bin/env bash
# Search over one level against NumPy's exact inner products (vectors) and tantivy (keywords), both from PyPI, on the same synthetic
# messages. Every measurement is taken ROUNDS times in turn; medians go into docs/bench/ and a table.
#
#   scripts/bench_search.sh [ROUNDS [SIZE...]]       3 rounds of 1000, 10000 and 100000 messages
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rounds=${1:-3}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- 1000 10000 100000

venv=.venv-bench-search
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet numpy==2.4.6 tantivy==0.26.0
fi
cargo build --release -p napmem-rollout --example bench_search
bench=${CARGO_TARGET_DIR:-target}/release/examples/bench_search
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for size in "$@"; do
  "$bench" data "$work/$size" "$size"
  for _ in $(seq "$rounds"); do
    for threads in 1 2; do
      RAYON_NUM_THREADS=$threads "$bench" run "$work/$size" >> "$work/napmem-$threads-$size.jsonl"
      OMP_NUM_THREADS=$threads OPENBLAS_NUM_THREADS=$threads "$venv/bin/python" scripts/bench_search.py numpy "$work/$size" \
        >> "$work/numpy-$threads-$size.jsonl"
    done
    "$venv/bin/python" scripts/bench_search.py tantivy "$work/$size" >> "$work/tantivy-1-$size.jsonl"
  done
  rm -rf "${work:?}/$size"
done

mkdir -p docs/bench
"$venv/bin/python" scripts/bench_search_report.py "$work" "docs/bench/$(date +%F)-search.json" "$@"
