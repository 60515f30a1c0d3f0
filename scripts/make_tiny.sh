#!/usr/bin/env bash
# Makes data/tiny, the checkpoint that the quickstart starts from: tokenizer, template and configuration, random weights, and
# a warm start in three parts: reading drills, then trajectories of the mechanical policy, which knows the tools and not where
# to look.
#
#   scripts/make_tiny.sh [SEED [NUM_USERS [ATTEMPTS]]]
#
# The quickstart draws its users from another seed.
set -euo pipefail
cd "$(dirname "$0")/.."

seed=${1:-101}
num_users=${2:-2000}
attempts=${3:-2}
num_drills=5000
work=runs/tiny

[ -d .libtorch ] || scripts/setup.sh
cargo build --release -p napmem -p napmem-rollout --bins --examples
napmem=${CARGO_TARGET_DIR:-target}/release/napmem
make_tiny=${CARGO_TARGET_DIR:-target}/release/examples/make_tiny

rm -rf "$work"
"$napmem" sample-world --seed "$seed" --users "$num_users" --out "$work/world"
"$make_tiny" files "$work/init" "$seed" 400
"$napmem" init --from "$work/init" --out "$work/init" --seed "$seed" --mimetic
"$make_tiny" drills "$work/init" "$seed" 400 "$num_drills" "$work/drills.jsonl"
"$napmem" mechanical --data "$work/world" --model "$work/init" --system-prompt "$work/init/system_prompt.txt" \
    --attempts "$attempts" --seed "$seed" --out "$work/trajectories.jsonl"
# Each part starts from the weights of the one before.
weights() { find "$work/$1/checkpoints" -maxdepth 1 -name 'step-*' | sort | tail -1; }
"$napmem" sft --config configs/tiny-1-drills.toml
cp -r "$(weights tiny-1-drills)/weights" "$work/drilled"
"$napmem" sft --config configs/tiny-2-reading.toml
cp -r "$(weights tiny-2-reading)/weights" "$work/reading"
"$napmem" sft --config configs/tiny-3-mechanics.toml

mkdir -p data/tiny
cp "$(weights tiny-3-mechanics)"/weights/* data/tiny/
cp "$work/init/system_prompt.txt" data/tiny/
