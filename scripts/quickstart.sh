#!/usr/bin/env bash
# The main job in one command: sets up, builds, lets the tiny policy learn by GRPO where to look in a memory, and compares
# it with the policy it started from, on users that neither training nor validation has seen.
#
#   scripts/quickstart.sh            seed 1, run folder runs/quickstart
#   scripts/quickstart.sh --seed N   another seed, run folder runs/quickstart-seed-N
#
# An earlier run in the same place is moved aside, never overwritten.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

fail() {
  printf 'quickstart: %s\n' "$1" >&2
  exit 2
}

seed=1
while [ $# -gt 0 ]; do
  case $1 in
    --seed)
      [[ ${2:-} =~ ^[0-9]{1,18}$ ]] || fail "--seed must be a whole number of at most 18 digits, got '${2:-}'"
      seed=$((10#$2))
      shift 2
      ;;
    -h | --help) usage && exit 0 ;;
    *) fail "unknown argument '$1'; allowed: --seed N" ;;
  esac
done
run=runs/quickstart
[ "$seed" -eq 1 ] || run=runs/quickstart-seed-$seed

move_earlier_run_aside() {
  [ -e "$run" ] || return 0
  if command -v flock >/dev/null && [ -f "$run/lock" ] && ! flock --nonblock "$run/lock" true; then
    fail "$run: another napmem process is using this run folder"
  fi
  local aside
  aside=$run.$(date +%Y%m%d-%H%M%S)
  mv "$run" "$aside"
  echo "quickstart: the earlier run is now in $aside"
}

# One question that the policy got wrong before and right after, and the command that asks it again.
show_pair() {
  local hint="quickstart: attempts before and after, line by line at the same questions: $run/before.jsonl, $run/after.jsonl"
  command -v python3 >/dev/null || { echo "$hint"; return 0; }
  python3 - "$run" "$napmem" <<'PY' || echo "$hint"
import glob, json, shlex, sys

run, napmem = sys.argv[1:]


def read(name):
    with open(f"{run}/{name}.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def show(when, attempt):
    print(f"  {when}")
    for turn in attempt["turns"]:
        for step in turn["tool_steps"]:
            arguments = step["arguments"] or {}
            print(f"    {step['tool']}({', '.join(str(value) for value in arguments.values())})")
    print(f"    answer: {attempt['answer']}   score {attempt['reward']['score']:+g}   ({attempt['stop']})")


def learned(pair):
    before, after = (attempt["reward"] for attempt in pair)
    return after["case"] == "correct_with_memory" and not before["outcome"]["correct"]


pairs = list(zip(read("before"), read("after")))
pair = next(filter(learned, pairs), pairs[0])
print(f"\n{pair[1]['question']}   (right: {' or '.join(pair[1]['gold'])}; the same line of before.jsonl and after.jsonl)")
show("before", pair[0])
show("after", pair[1])
memory = glob.glob(f"{run}/data/world-*/pyramids/{pair[1]['user']}")[0]
print(f"\nAsk it yourself:\n  {napmem} ask --model {run} --pyramid {memory} {shlex.quote(pair[1]['question'])}")
PY
}

show_where_to_look() {
  cat <<TEXT

Where to look:
  curves          tensorboard --logdir $run/events        (pip install tensorboard)
  numbers         $run/metrics.jsonl, $run/summary.json
  trajectories    $run/trajectories/validation-*.jsonl and train-*.jsonl; before and after: $run/before.jsonl, $run/after.jsonl
  best policy     $run/checkpoints/step-*/weights, a Hugging Face folder; $run/checkpoints/best.json names the step
TEXT
}

command -v cargo >/dev/null || PATH=$HOME/.cargo/bin:$PATH
[ -n "${LIBTORCH:-}" ] || scripts/setup.sh
cargo build --release --package napmem
napmem=${CARGO_TARGET_DIR:-target}/release/napmem

move_earlier_run_aside
settings=(--config configs/quickstart.toml --set "train.seed=$seed" --set "train.run_dir=$run")
started=$(date +%s)
"$napmem" train "${settings[@]}"
echo
"$napmem" compare "${settings[@]}" --after "$run" --started "$started" --attempts 2 --out "$run/summary.json"
show_pair
show_where_to_look
echo
echo "quickstart: done in $(($(date +%s) - started)) s after the build"
