"""Working memory of a decode and of an encode, beyond input and output; narrow images too.

    python -m benchmarks.cpu.memory

Peak resident memory as Linux counts it (VmHWM, reset before the call; what was free is handed
back before), on generated images. Each number comes from a process of its own. Linux keeps the
count in steps: a thread may be off by some 256 KiB.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.peers import L3_MODES, Image, machine
from benchmarks.report import RESULTS, markdown_table, write_results

import l3dali

THREADS = (1, 2, 8)
SQUARE = "4000x4000x3"
PIXELS = 1 << 20
# Height, width, channels: those with tiles or lanes that stay nearly empty.
NARROW = tuple(
    shape
    for channels in (1, 3)
    for side in (1, 3)
    for shape in (f"{side}x{PIXELS}x{channels}", f"{PIXELS}x{side}x{channels}")
)


def _status_kib(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise SystemExit(f"no {field} in /proc/self/status: this benchmark needs Linux")


def _begin() -> int:
    """Forgets the peak so far; returns KiB in use."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return _status_kib("VmRSS")


def make_image(shape: str) -> Image:
    """A noisy ramp of HEIGHTxWIDTHxCHANNELS."""
    height, width, channels = map(int, shape.split("x"))
    ramp = np.add.outer(np.arange(height, dtype=np.uint8), np.arange(width, dtype=np.uint8))
    noise = np.random.default_rng(1).integers(0, 12, (height, width, channels), np.uint8)
    image: Image = ramp[..., None] + noise
    return image


def working_kib(direction: str, mode: l3dali.Coding, threads: int, shape: str) -> int:
    """Encodes or decodes once in this process; returns KiB beyond input and output."""
    image = make_image(shape)
    raw_kib = image.nbytes // 1024
    l3dali.decode(l3dali.encode(np.zeros((300, 300, 3), np.uint8), coding=mode), threads=threads)
    if direction == "encode":
        before = _begin()
        data = l3dali.encode(image, coding=mode, threads=threads)
        return max(0, _status_kib("VmHWM") - before - len(data) // 1024)
    data = l3dali.encode(image, coding=mode, threads=0)
    del image
    before = _begin()
    decoded = l3dali.decode(data, threads=threads)
    after = _status_kib("VmHWM")
    assert decoded.nbytes // 1024 == raw_kib
    return max(0, after - before - raw_kib)


def measure(direction: str, mode: str, threads: int, shape: str) -> int:
    """The same in a process of its own."""
    command = [sys.executable, "-m", __spec__.name, "--child", direction, mode, str(threads), shape]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.child:
        direction, mode, threads, shape = args.child
        print(working_kib(direction, mode, int(threads), shape))
        return

    decode = {
        f"{mode}, {threads} threads": measure("decode", mode, threads, SQUARE)
        for mode in L3_MODES
        for threads in THREADS
    }
    shapes: dict[str, Any] = {}
    rows = []
    for shape in (SQUARE, *NARROW):
        raw_kib = int(np.prod([int(n) for n in shape.split("x")])) / 1024
        kib = {
            f"{direction} {mode}": measure(direction, mode, 1, shape)
            for mode in L3_MODES
            for direction in ("encode", "decode")
        }
        shapes[shape] = {"image_kib": raw_kib, **kib}
        rows.append([shape, f"{raw_kib:.0f}", *(f"{n} ({n / raw_kib:.1f})" for n in kib.values())])
    text = (
        f"{machine()}.\n\n"
        + markdown_table(
            [f"decode of {SQUARE}", "KiB beyond input and output"],
            [[name, f"{kib}"] for name, kib in decode.items()],
        )
        + "\nBy shape (rows, columns, channels; 8 bits), one thread: KiB beyond input and output, "
        "and times the image:\n\n" + markdown_table(["shape", "image KiB", *kib], rows)
    )
    write_results("memory", "Working memory", text, {"decode": decode, "shapes": shapes}, args.out)


if __name__ == "__main__":
    main()
