"""What encoding takes beyond the image, for shapes that leave tiles or lanes nearly empty."""

from __future__ import annotations

import subprocess
import sys

import pytest
from children import child_environment

PIXELS = 1 << 19
SIDES = (1, 31)
# With an effort other than the usual one behind it, which takes four times as long.
CODINGS = {"packed": SIDES, "rans": SIDES, "rans 9": (1,), "stored": (1,)}
# Buffers of a thread, and times the image: the file, and the tiles as modelled with their padding.
FIXED_BYTES = 24 << 20
TIMES_THE_IMAGE = 14

# A process for each shape, as peaks never fall. Prints shape, bytes and growth.
CHILD = """
import os, sys
import numpy as np
import l3dali
from peaks import forget, peak

setting, dtype, *shapes = sys.argv[1:]
coding, _, effort = setting.partition(" ")
options = {"coding": coding, "effort": int(effort or 5)}

l3dali.encode(np.zeros((8, 8), dtype), **options)
for shape in shapes:
    if os.fork() != 0:
        assert os.wait()[1] == 0, shape
        continue
    height, width = map(int, shape.split("x"))
    rng = np.random.default_rng(1)
    ramp = np.add.outer(np.arange(height) // 7, np.arange(width) // 7).astype(np.uint8)
    image = (ramp + rng.integers(0, 12, (height, width), np.uint8)).astype(dtype)
    if dtype == "uint16":
        image *= 200
        image += rng.integers(0, 64, image.shape, np.uint16)
    before = forget()
    data = l3dali.encode(image, **options, threads=1)
    grown = peak() - before
    assert np.array_equal(l3dali.decode(data), image)
    print(shape, image.nbytes, grown, flush=True)
    os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("coding", "dtype"),
    [("packed", "uint8"), ("rans", "uint16"), ("rans 9", "uint8"), ("stored", "uint16")],
)
def test_narrow_images_take_memory_by_their_size(coding: str, dtype: str) -> None:
    pixels = PIXELS // 4 if coding == "rans 9" else PIXELS
    sides = ((side, pixels // side) for side in CODINGS[coding])
    shapes = [f"{h}x{w}" for a, b in sides for h, w in ((a, b), (b, a))]
    command = [sys.executable, "-c", CHILD, coding, dtype, *shapes]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, env=child_environment()
    )
    assert result.returncode == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[0] for line in lines] == shapes
    for shape, image_bytes, grown in lines:
        assert int(grown) <= FIXED_BYTES + TIMES_THE_IMAGE * int(image_bytes), shape
