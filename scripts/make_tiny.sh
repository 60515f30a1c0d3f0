#!/usr/bin/env bash
# Makes data/tiny, the checkpoint that the quickstart starts from: tokenizer, template and configuration, random weights, and
# a warm start on trajectories of the mechanical policy, which knows the tools and not where to look.
#
#   scripts/make_tiny.sh [SEED [NUM_USERS [ATTEMPTS]]]
#
# The quickstart draws its users from another seed.
set -euo pipefail
cd "$(dirname "$0")/.."

seed=${1:-101}
num_users=${2:-400}
attempts=${3:-2}
work=runs/tiny

[ -d .libtorch ] || scripts/setup.sh
cargo build --release -p napmem
cargo build --release -p napmem-rollout --example make_tiny
napmem=${CARGO_TARGET_DIR:-target}/release/napmem
make_tiny=${CARGO_TARGET_DIR:-target}/release/examples/make_tiny

rm -rf "$work"
"$napmem" sample-world --seed "$seed" --users "$num_users" --out "$work/world"
"$make_tiny" "$work/init" "$seed" "$num_users"
"$napmem" init --from "$work/init" --out "$work/init" --seed "$seed"
"$napmem" mechanical --data "$work/world" --model "$work/init" --system-prompt "$work/init/system_prompt.txt" \
    --attempts "$attempts" --seed "$seed" --out "$work/trajectories.jsonl"
"$napmem" sft --config configs/tiny-sft.toml

mkdir -p data/tiny
newest=$(find "$work/sft/checkpoints" -maxdepth 1 -name 'step-*' | sort | tail -1)
cp "$newest"/weights/* data/tiny/
cp "$work/init/system_prompt.txt" data/tiny/
