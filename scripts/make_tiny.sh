#!/usr/bin/env bash
# Makes data/tiny, the checkpoint that the quickstart starts from: tokenizer, template and configuration, random weights, and
# a warm start in three parts on trajectories of the mechanical policy, which knows the tools and not where to look.
#
#   scripts/make_tiny.sh [SEED [NUM_USERS [ATTEMPTS]]]
#
# The quickstart draws its users from another seed.
set -euo pipefail
cd "$(dirname "$0")/.."

seed=${1:-101}
num_users=${2:-400}
attempts=${3:-6}
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
# Each part starts from the weights of the one before.
weights() { find "$work/$1/checkpoints" -maxdepth 1 -name 'step-*' | sort | tail -1; }
"$napmem" sft --config configs/tiny-1-form.toml
cp -r "$(weights tiny-1-form)/weights" "$work/form"
"$napmem" sft --config configs/tiny-2-reading.toml
cp -r "$(weights tiny-2-reading)/weights" "$work/reading"
"$napmem" sft --config configs/tiny-3-mechanics.toml

mkdir -p data/tiny
cp "$(weights tiny-3-mechanics)"/weights/* data/tiny/
cp "$work/init/system_prompt.txt" data/tiny/
