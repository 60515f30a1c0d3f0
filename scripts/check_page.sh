#!/usr/bin/env bash
# The pyramid's HTML page in headless Chromium: keyboard, search and links, without network. Needs node, npm and Chromium (`CHROMIUM`
# names another program than /usr/bin/chromium); says so and does nothing where one is missing.
#
#   scripts/check_page.sh [NAPMEM [SCREENSHOT.png]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

napmem=${1:-${CARGO_TARGET_DIR:-target}/release/napmem}
for program in node npm "${CHROMIUM:-/usr/bin/chromium}"; do
  command -v "$program" >/dev/null || { echo "SKIPPED: check_page.sh needs $program, which is not here" >&2; exit 0; }
done
[ -x "$napmem" ] || { echo "check_page.sh: $napmem is missing; cargo build --release makes it" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -d tests/browser/node_modules/playwright-core ] || npm install --silent --no-audit --no-fund --no-package-lock --prefix tests/browser
"$napmem" sample-world --seed 5 --users 1 --out "$work/world" >/dev/null
user=$(ls "$work/world/pyramids" | head -1)
"$napmem" show "$work/world/pyramids/$user" --html "$work/page.html" >/dev/null
node tests/browser/page.mjs "$work/page.html" "$work/world/pyramids/$user" ${2:+"$2"}
