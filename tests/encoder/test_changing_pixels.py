"""Pixels that change while they are encoded: a file, which may not decode, and the process lives.

`fuzz_encode_change` of tests/fuzz has the same question for random images; `make sanitize` asks it.
"""

from __future__ import annotations

import subprocess
import sys

import engines
import numpy as np
import pytest
from engines import SAMPLE_TYPES, Samples

# Efforts 2 and 4 are 3 and 5.
CODINGS = [("packed", 5), ("stored", 5), *(("rans", effort) for effort in (1, 3, 5, 6, 7, 8, 9))]
HEIGHT, WIDTH = 40, 70
KINDS = ("constant", "few bits", "few values", "flat", "noise")


def make_image(kind: str, channels: int, dtype: str, seed: int) -> Samples:
    rng = np.random.default_rng(seed)
    bits = 8 * np.dtype(dtype).itemsize
    noise = rng.integers(0, 1 << bits, (HEIGHT, WIDTH, channels))
    values = {
        "constant": np.full_like(noise, 3),
        "few bits": noise % 5,
        "few values": rng.choice(noise.ravel(), 6)[noise % 6],
        "flat": noise[::16, ::16].repeat(16, axis=0).repeat(16, axis=1)[:HEIGHT, :WIDTH] >> 4,
        "noise": noise,
    }
    return values[kind].astype(f"uint{bits}").view(dtype)


@pytest.mark.parametrize("coding", ["packed", "rans", "stored"])
def test_pixels_that_stay(coding: str) -> None:
    """What makes pixels change reads them as they are."""
    for channels in (1, 3, 5):
        image = make_image("noise", channels, "uint16", 1)
        for effort in (1, 5, 9):
            encoded = engines.encode(image, coding=coding, effort=effort)
            for seed in range(4):
                same = engines.encode(image, coding=coding, effort=effort, changed=image, seed=seed)
                assert same == encoded


@pytest.mark.parametrize("dtype", SAMPLE_TYPES)
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 9])
def test_rows_that_change(channels: int, dtype: str) -> None:
    """Row by row, at chosen times; engines.KERNELS and tiles differ by case."""
    case = channels + 16 * SAMPLE_TYPES.index(dtype)
    rng = np.random.default_rng(case)
    for coding, effort in CODINGS[case % 3 :: 3]:
        before, after = (KINDS[i] for i in rng.permutation(len(KINDS))[:2])
        seed = int(rng.integers(64))
        encoded = engines.encode(
            make_image(before, channels, dtype, seed),
            changed=make_image(after, channels, dtype, seed + 1),
            seed=seed,
            coding=coding,
            effort=effort,
            tile_log2=[(0, 0), (5, 3), (5, 5)][seed % 3],
            kernels=engines.KERNELS[seed // 3 % 4],
        )
        outcome = engines.decode("scalar", encoded)
        assert outcome.status in ("kOk", "kCorruptTile"), (coding, effort, before, after, seed)


# What `l3dali` does with an array that another thread writes to.
THREADS = """
import threading
import numpy as np
import l3dali
from test_changing_pixels import CODINGS, KINDS, make_image
from engines import SAMPLE_TYPES

case = 0
for dtype in SAMPLE_TYPES:
    for channels in (1, 2, 3, 4, 5, 9):
        for coding, effort in CODINGS[case % 2 :: 2]:
            case += 1
            print(dtype, channels, coding, effort, flush=True)
            first, second = (
                make_image(KINDS[(case + i) % len(KINDS)], channels, dtype, case) for i in (0, 2)
            )
            image = first.copy()
            done = threading.Event()

            def write():
                while not done.is_set():
                    image[...] = second
                    image[...] = first

            writer = threading.Thread(target=write)
            writer.start()
            try:
                threads = 1 + case % 2
                l3dali.encode(image, coding=coding, effort=effort, tile=(32, 32), threads=threads)
            finally:
                done.set()
                writer.join()
print("lives")
"""


def test_memory_that_another_thread_writes() -> None:
    """Every sample type and number of channels, with all codings and efforts in turn."""
    result = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{THREADS}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    last = result.stdout.splitlines()[-1:]
    assert (result.returncode, last) == (0, ["lives"]), f"{last}: {result.stderr[-2000:]}"
