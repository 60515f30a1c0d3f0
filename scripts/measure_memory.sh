#!/usr/bin/env bash
# The memory that `napmem plan` computes beside the peak of one training step of the same config, on the CPU: three random models
# of 20 to 90 million parameters with the tiny model's tokenizer. A table on stdout.
#
#   scripts/measure_memory.sh [NAPMEM]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

napmem=${1:-${CARGO_TARGET_DIR:-target}/release/napmem}
[ -x "$napmem" ] || { echo "measure_memory.sh: $napmem is missing; cargo build --release makes it" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

model() { # name, hidden, layers, intermediate, dtype
  local dir=$work/$1
  mkdir "$dir"
  cp data/tiny/tokenizer.json data/tiny/chat_template.jinja "$dir/"
  [ -f data/tiny/generation_config.json ] && cp data/tiny/generation_config.json "$dir/"
  python3 - "$dir" "$2" "$3" "$4" <<'PY'
import json, sys
out, hidden, layers, inner = sys.argv[1], *map(int, sys.argv[2:])
config = json.load(open("data/tiny/config.json"))
text = config.get("text_config", config)
text.update(hidden_size=hidden, num_hidden_layers=layers, intermediate_size=inner, num_attention_heads=hidden // 64, head_dim=64,
            num_key_value_heads=2, linear_num_key_heads=hidden // 128, linear_num_value_heads=hidden // 64, linear_key_head_dim=64,
            linear_value_head_dim=64, full_attention_interval=4)
text["layer_types"] = ["full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(layers)]
json.dump(config, open(f"{out}/config.json", "w"))
PY
  "$napmem" init --from "$dir" --out "$dir" --dtype "$5" >/dev/null
}

step() { # name, overrides
  local name=$1 sets=() set planned measured
  shift
  for set in "model.path=$work/$name" "train.run_dir=$work/run-$name" train.max_steps=1 train.validation_every=0 \
    train.checkpoint_every=0 grpo.baseline=none data.world.users=10 "$@"; do sets+=(--set "$set"); done
  "$napmem" train --config configs/quickstart.toml "${sets[@]}" >/dev/null
  planned=$("$napmem" plan --config configs/quickstart.toml "${sets[@]}" | sed -n 's/^ *peak on the device *\([0-9.]*\) GiB/\1/p')
  measured=$(python3 -c '
import json, sys
print(max(line["perf/max_memory_allocated_gb"] for line in map(json.loads, open(sys.argv[1])) if "perf/max_memory_allocated_gb" in line) * 1e9 / 2**30)
' "$work/run-$name/metrics.jsonl")
  python3 -c '
import sys
name, planned, measured = sys.argv[1], *map(float, sys.argv[2:])
print(f"| {name} | {planned:.3f} | {measured:.3f} | {planned / measured:.2f} |")
' "$name" "$planned" "$measured"
}

echo "| config | planned, GiB | measured, GiB | ratio |"
echo "|---|---|---|---|"
model deep 512 12 1536 float32
step deep update.recompute=true update.micro_batch_tokens=6144
model wide 1024 4 3072 float32
step wide update.recompute=false update.micro_batch_tokens=2048
model half 1024 6 3072 bfloat16
step half model.dtype=bfloat16 update.recompute=true update.micro_batch_tokens=4096 grpo.reference=reload
