#!/usr/bin/env bash
# Makes the build's only non-Rust dependency, libtorch 2.11.0, from the wheels on PyPI. No root, nothing outside the
# repository. Running it again when everything is in place returns at once.
#
#   scripts/setup.sh          CPU variant (0.5 GB on disk), or the CUDA one if an NVIDIA GPU is found
#   scripts/setup.sh --cpu    CPU variant
#   scripts/setup.sh --cuda   full variant with the CUDA libraries (3.7 GB on disk)
#
# Result: .libtorch/libtorch/{include,lib,build-version}. `.cargo/config.toml` points LIBTORCH there.
set -euo pipefail

readonly TORCH_VERSION=2.11.0
readonly RUST_MINIMUM=1.87
readonly PLATFORMS="manylinux_2_28 manylinux_2_27 manylinux_2_25 manylinux_2_24 manylinux_2_18 manylinux_2_17
  manylinux2014 manylinux_2_12 manylinux2010 manylinux_2_5 manylinux1"

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root
readonly store=$root/.libtorch
readonly stamp=$store/stamp

# name, version, sha256 of the wheel. libtorch_cpu.so itself links libcudart and libcupti, hence the last two.
wheels_cpu() {
  cat <<'PINS'
torch 2.11.0 7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a
nvidia-cuda-runtime 13.0.96 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
nvidia-cuda-cupti 13.0.85 4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8
PINS
}

# What torch's wheel requires of CUDA, less triton and the Python bindings, which only Python uses; and headers (crt, cccl) that
# libtorch's own CUDA headers include.
wheels_cuda() {
  wheels_cpu
  cat <<'PINS'
nvidia-cublas 13.1.0.3 ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171
nvidia-cuda-cccl 13.0.85 e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649
nvidia-cuda-crt 13.0.88 2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4
nvidia-cuda-nvrtc 13.0.88 ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575
nvidia-cudnn-cu13 9.19.0.56 d20e1734305e9d68889a96e3f35094d733ff1f83932ebe462753973e53a572bf
nvidia-cufft 12.0.0.61 6c44f692dce8fd5ffd3e3df134b6cdb9c2f72d99cf40b62c32dde45eea9ddad3
nvidia-cufile 1.15.1.6 08a3ecefae5a01c7f5117351c64f17c7c62efa5fffdbe24fc7d298da19cd0b44
nvidia-curand 10.4.0.35 1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc
nvidia-cusolver 12.0.4.66 0a759da5dea5c0ea10fd307de75cdeb59e7ea4fcb8add0924859b944babf1112
nvidia-cusparse 12.6.3.3 2b3c89c88d01ee0e477cb7f82ef60a11a4bcd57b6b87c33f789350b59759360b
nvidia-cusparselt-cu13 0.8.0 25e30a8a7323935d4ad0340b95a0b69926eee755767e8e0b1cf8dd85b197d3fd
nvidia-nccl-cu13 2.28.9 e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42
nvidia-nvjitlink 13.0.88 13a74f429e23b921c1109976abefacc69835f2f433ebd323d3946e11d804e47b
nvidia-nvshmem-cu13 3.4.5 290f0a2ee94c9f3687a02502f3b9299a9f9fe826e6d0287ee18482e78d495b80
nvidia-nvtx 13.0.85 4936d1d6780fbe68db454f5e72a42ff64d1fd6397df9f363ae786930fd5c1cd4
PINS
}

fail() {
  printf 'setup: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf '       %s\n' "$line" >&2; done
  exit 1
}

check_platform() {
  local system machine glibc
  system=$(uname -s) machine=$(uname -m)
  if [ "$system" != Linux ] || [ "$machine" != x86_64 ]; then
    fail "only x86-64 Linux is supported, this is $system on $machine." \
      "Use an x86-64 Linux machine, virtual machine or container."
  fi
  glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d' ' -f2) || true
  [ -n "$glibc" ] || fail "no GNU C library found; libtorch needs glibc 2.28 or newer (musl does not do)."
  version_at_least "$glibc" 2.28 || fail "libtorch needs glibc 2.28 or newer, found $glibc." "Use a newer distribution."
}

version_at_least() { # found, minimum: compares major.minor
  local found_major=${1%%.*} found_minor minimum_major=${2%%.*} minimum_minor
  found_minor=${1#*.} found_minor=${found_minor%%[!0-9]*} minimum_minor=${2#*.} minimum_minor=${minimum_minor%%.*}
  [ "$found_major" -gt "$minimum_major" ] ||
    { [ "$found_major" -eq "$minimum_major" ] && [ "$found_minor" -ge "$minimum_minor" ]; }
}

check_compilers() {
  local compiler rust
  for compiler in "${CXX:-}" c++ g++ clang++; do
    [ -n "$compiler" ] && command -v "${compiler%% *}" >/dev/null && break
    compiler=
  done
  [ -n "$compiler" ] || fail "no C++ compiler found (looked for \$CXX, c++, g++, clang++)." \
    "Debian/Ubuntu: apt-get install g++    Fedora: dnf install gcc-c++"
  if ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then PATH=$HOME/.cargo/bin:$PATH; fi
  if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then
    fail "no Rust found (cargo and rustc); version $RUST_MINIMUM or newer is needed." \
      "Install it from https://rustup.rs, then open a new shell."
  fi
  rust=$(rustc --version | cut -d' ' -f2) || fail "'rustc --version' failed; is a toolchain installed? Try: rustup default stable"
  version_at_least "$rust" "$RUST_MINIMUM" || fail "Rust $RUST_MINIMUM or newer is needed, found $rust." "Run: rustup update stable"
}

check_python() {
  command -v python3 >/dev/null ||
    fail "no python3 found; it is used to fetch and unpack libtorch." "Debian/Ubuntu: apt-get install python3 python3-pip"
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' ||
    fail "python3 3.8 or newer is needed, found $(python3 --version 2>&1)."
  python3 -m pip --version >/dev/null 2>&1 || fail "python3 has no pip; it is used to download libtorch from PyPI." \
    "Debian/Ubuntu: apt-get install python3-pip    others: python3 -m ensurepip --user"
}

check_disk() { # variant
  local needed_mb=1300 free_mb
  [ "$1" = cuda ] && needed_mb=8500
  free_mb=$(($(df -Pk "$store" | awk 'NR == 2 { print $4 }') / 1024))
  [ "$free_mb" -ge "$needed_mb" ] || fail "$store needs $needed_mb MB of free disk while installing, found $free_mb MB."
}

# Any installation that is there is kept unless a flag asks for the other one.
choose_variant() {
  local installed=
  if [ -n "${1:-}" ]; then
    echo "$1"
    return
  fi
  [ -f "$stamp" ] && installed=$(sed -n 's/^variant //p' "$stamp")
  if [ -n "$installed" ]; then
    echo "$installed"
  elif command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
    echo cuda
  else
    echo cpu
  fi
}

stamp_text() { # variant
  echo "variant $1"
  "wheels_$1"
}

installed() { # variant
  [ -e "$store/libtorch/lib/libtorch.so" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(stamp_text "$1")" ]
}

download() { # variant, folder
  local platform_flags=() platform
  for platform in $PLATFORMS; do platform_flags+=(--platform "${platform}_x86_64"); done
  "wheels_$1" | awk '{ print $1 "==" $2 " --hash=sha256:" $3 }' >"$2/requirements.txt"
  # The wheel is only unpacked, so its Python version need not be that of python3. pip's own temporary files go to the same
  # disk, because /tmp is often too small for them.
  TMPDIR=$2 python3 -m pip download --quiet --no-deps --no-cache-dir --disable-pip-version-check --only-binary=:all: \
    --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none "${platform_flags[@]}" \
    --require-hashes --requirement "$2/requirements.txt" --dest "$2" ||
    fail "the download of libtorch from PyPI failed (pip's message is above)." \
      "Without network access, set PIP_INDEX_URL to a mirror or PIP_FIND_LINKS to a folder with the wheels" \
      "listed in scripts/setup.sh, then run it again. Nothing was installed."
}

install() { # variant
  local variant=$1 work start=$SECONDS
  mkdir -p "$store"
  check_disk "$variant"
  work=$(mktemp -d "$store/tmp.XXXXXX")
  # shellcheck disable=SC2064 # the folder's name is wanted now
  trap "rm -rf '$work'" EXIT
  echo "setup: fetching libtorch $TORCH_VERSION ($variant) from PyPI into .libtorch/ ..."
  mkdir "$work/wheels" "$work/site"
  download "$variant" "$work/wheels"
  echo "setup: checking and unpacking ..."
  "wheels_$variant" | python3 "$root/scripts/unpack_libtorch.py" "$variant" "$work/wheels" "$work/site" ||
    fail "unpacking failed. Nothing was installed."
  rm -rf "$store/stamp" "$store/libtorch" "$store/site"
  mv "$work/site" "$store/site"
  ln -s site/torch "$store/libtorch"
  python3 -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$store/libtorch/lib/libtorch.so" ||
    fail "the unpacked libtorch does not load (message above)."
  stamp_text "$variant" >"$stamp.new" && mv "$stamp.new" "$stamp"
  echo "setup: libtorch $TORCH_VERSION ($variant) is ready: $(du -sh "$store/site" | cut -f1) on disk, $((SECONDS - start)) s."
}

main() {
  local flag=
  case "${1:-}" in
    "") ;;
    --cpu | --cuda) flag=${1#--} ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
    *) fail "unknown argument '$1'; allowed: --cpu, --cuda" ;;
  esac
  check_platform
  check_compilers
  local variant
  variant=$(choose_variant "$flag")
  if installed "$variant"; then return; fi
  check_python
  install "$variant"
}

main "$@"
