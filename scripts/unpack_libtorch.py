"""Unpacks the wheels that setup.sh downloaded: unpack_libtorch.py VARIANT WHEEL_FOLDER OUT < PINS

PINS are lines "name version sha256". Every wheel must be one of the pinned ones, and all pinned ones must be there.
The cpu variant keeps the headers and the five libraries that a CPU program loads; the cuda variant keeps everything
but Python. Each wheel is removed once it is unpacked, which keeps the peak of disk use low.
"""

import hashlib
import os
import shutil
import sys
import zipfile

TORCH_VERSION = "2.11.0"
CPU_LIBRARIES = ("libtorch_cpu.so", "libc10.so", "libgomp.so.1", "libcudart.so.13", "libcupti.so.13")


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def checked_wheels(folder, pins):
    """Paths of the wheels, torch first. Exits with a message if one is missing, unexpected or damaged."""
    expected = {line.split()[2]: line.split()[0] for line in pins if line.strip()}
    found = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".whl"):
            continue
        digest = sha256_of(os.path.join(folder, name))
        if digest not in expected:
            sys.exit(f"setup: {name}: sha256 {digest} is not one of the pinned ones")
        found[expected[digest]] = os.path.join(folder, name)
    missing = sorted(set(expected.values()) - set(found))
    if missing:
        sys.exit(f"setup: not downloaded: {', '.join(missing)}")
    return [found[name] for name in sorted(found, key=lambda name: (name != "torch", name))]


def target_of(member, variant):
    """Where a wheel's member goes below OUT, or None to leave it out."""
    if variant == "cpu":
        if member.startswith("torch/include/"):
            return member
        base = os.path.basename(member)
        return f"torch/lib/{base}" if base in CPU_LIBRARIES else None
    if member.startswith(("torch/include/", "torch/lib/", "nvidia/")) and not member.endswith((".py", "libtorch_python.so")):
        return member
    return None


def unpack(wheel, variant, out):
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            target = target_of(info.filename, variant)
            if target is None or info.is_dir():
                continue
            path = os.path.join(out, target)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with archive.open(info) as source, open(path, "wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)


def link(target, path):
    if not os.path.lexists(path):
        os.symlink(target, path)


def main():
    variant, wheels, out = sys.argv[1:]
    for wheel in checked_wheels(wheels, sys.stdin.read().splitlines()):
        unpack(wheel, variant, out)
        os.remove(wheel)
    lib = os.path.join(out, "torch", "lib")
    # The wheel's own libtorch.so pulls in the CUDA libraries; a CPU program only needs the name to resolve.
    if variant == "cpu":
        link("libtorch_cpu.so", os.path.join(lib, "libtorch.so"))
    # torch-sys links `-lgomp`; with this name it takes libtorch's own OpenMP runtime, so that only one is loaded.
    link("libgomp.so.1", os.path.join(lib, "libgomp.so"))
    # torch-sys compares this with the version it was made for.
    with open(os.path.join(out, "torch", "build-version"), "w") as file:
        file.write(f"{TORCH_VERSION}\n")


if __name__ == "__main__":
    main()
