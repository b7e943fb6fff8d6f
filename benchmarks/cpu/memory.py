"""Working memory of a decode and of an encode."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
from benchmarks.cpu.case import Result, apart
from benchmarks.peers import L3_CODINGS, Image, l3_encoder
from benchmarks.report import table

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


def memory() -> Result:
    """Working memory of a decode and of an encode, beyond input and output; narrow images too.

    Peak resident memory as Linux counts it (VmHWM, reset before the call; what was free is handed
    back before), on generated images. Each number comes from a process of its own. Linux keeps the
    count in steps: a thread may be off by some 256 KiB. A shape is rows, columns, channels of 8
    bits; in brackets times the image.
    """
    decode = {
        f"{mode}, {threads} threads": apart(working_kib, "decode", mode, threads, SQUARE)
        for mode in L3_CODINGS
        for threads in THREADS
    }
    ways = [(mode, way) for mode in L3_CODINGS for way in ("encode", "decode")]
    shapes, rows = {}, {}
    for shape in (SQUARE, *NARROW):
        raw_kib = np.prod([int(side) for side in shape.split("x")]) / 1024
        kib = {f"{way} {mode}": apart(working_kib, way, mode, 1, shape) for mode, way in ways}
        shapes[shape] = {"image_kib": raw_kib, **kib}
        rows[shape] = {what: f"{number} ({number / raw_kib:.1f})" for what, number in kib.items()}
        rows[shape]["image KiB"] = f"{raw_kib:.0f}"
    text = table(
        f"decode of {SQUARE}",
        {name: {"kib": kib} for name, kib in decode.items()},
        {"KiB beyond input and output": "{kib}"},
    )
    text += "\nBy shape, one thread, KiB beyond input and output:\n\n"
    heads = ["image KiB", *(f"{way} {mode}" for mode, way in ways)]
    text += table("shape", rows, {head: f"{{{head}}}" for head in heads})
    return Result(text, {"decode": decode, "shapes": shapes})


def working_kib(way: str, mode: l3dali.Coding, threads: int, shape: str) -> int:
    """Encodes or decodes once in this process; returns KiB beyond input and output."""
    image = make_image(shape)
    raw_kib = image.nbytes // 1024
    encode = l3_encoder(mode, threads)
    l3dali.decode(encode(np.zeros((300, 300, 3), np.uint8)), threads=threads)
    if way == "encode":
        before = _begin()
        data = encode(image)
        return max(0, _status_kib("VmHWM") - before - len(data) // 1024)
    data = l3_encoder(mode, 0)(image)
    del image
    before = _begin()
    decoded = l3dali.decode(data, threads=threads)
    after = _status_kib("VmHWM")
    assert decoded.nbytes // 1024 == raw_kib
    return max(0, after - before - raw_kib)


def make_image(shape: str) -> Image:
    """A noisy ramp of HEIGHTxWIDTHxCHANNELS."""
    height, width, channels = map(int, shape.split("x"))
    ramp = np.add.outer(np.arange(height, dtype=np.uint8), np.arange(width, dtype=np.uint8))
    noise = np.random.default_rng(1).integers(0, 12, (height, width, channels), np.uint8)
    image: Image = ramp[..., None] + noise
    return image


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
