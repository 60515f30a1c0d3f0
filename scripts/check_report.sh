#!/usr/bin/env bash
# The report's page in headless Chromium: tables, filters, keyboard, speed with 5,000 trajectories, without network. The tiny policy
# answers a few questions in three modes; its trajectories are then repeated. Needs node, npm and Chromium (`CHROMIUM` names another
# program than /usr/bin/chromium); says so and does nothing where one is missing.
#
#   scripts/check_report.sh [NAPMEM [SCREENSHOT_PREFIX]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

napmem=${1:-${CARGO_TARGET_DIR:-target}/release/napmem}
number=5000
for program in node npm "${CHROMIUM:-/usr/bin/chromium}"; do
  command -v "$program" >/dev/null || { echo "SKIPPED: check_report.sh needs $program, which is not here" >&2; exit 0; }
done
[ -x "$napmem" ] || { echo "check_report.sh: $napmem is missing; cargo build --release makes it" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -d tests/browser/node_modules/playwright-core ] || npm install --silent --no-audit --no-fund --no-package-lock --prefix tests/browser
common=(--config configs/quickstart.toml --set "train.run_dir=$work/run" --set "data.world.users=30")
"$napmem" train "${common[@]}" --set train.max_steps=2 --set train.validation_questions=12 >/dev/null
"$napmem" eval "${common[@]}" --num-questions 25 --mode navigation --mode passive --mode records-only --seed 1 --seed 2 \
  --set rollout.max_total_tokens=1536 --out "$work/eval" >/dev/null
num_evaluated=$(node tests/browser/many.mjs "$work/eval" "$number")
num_trained=$(cat "$work"/run/trajectories/validation-*.jsonl | wc -l)
"$napmem" report "$work/eval" "$work/run" --out "$work/report.html" >/dev/null
node tests/browser/report.mjs "$work/report.html" "$work/eval" "$num_evaluated" "$num_trained" ${2:+"$2"}
