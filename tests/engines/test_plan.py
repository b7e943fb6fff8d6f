"""From an EXIF block to the way an image is turned, damaged blocks included."""

from __future__ import annotations

import struct

import engines
import numpy as np
import pytest
from numpy.random import Generator

from l3dali.images.geometry import upright

# Of each value of the tag: swapped axes, flipped stored x and y.
TURNS = {
    1: (False, False, False),
    2: (False, True, False),
    3: (False, True, True),
    4: (False, False, True),
    5: (True, False, False),
    6: (True, False, True),
    7: (True, True, True),
    8: (True, True, False),
}
ORIENTATION = 0x0112
STORED = np.arange(6).reshape(2, 3)


def exif_block(order: str, entries: list[tuple[int, int, int, bytes]], directory: int = 8) -> bytes:
    """A TIFF block with a directory of (tag, type, count, value)."""
    header = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, directory)
    packed = [struct.pack(f"{order}HHI", *entry[:3]) + entry[3] for entry in entries]
    count = struct.pack(f"{order}H", len(entries))
    return header.ljust(directory, b"\0") + count + b"".join(packed) + bytes(4)


def orientation_block(order: str, value: int, directory: int = 8) -> bytes:
    """With entries before and behind the orientation."""
    short = struct.pack(f"{order}HH", value, 0)
    entries = [(0x010F, 2, 4, b"L3\0\0"), (ORIENTATION, 3, 1, short), (0x011A, 5, 1, bytes(4))]
    return exif_block(order, entries, directory)


def expected(block: bytes) -> tuple[bool, bool, bool]:
    """The orientation by the TIFF specification; upright where the block is no such thing."""
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    try:
        assert order is not None
        magic, directory = struct.unpack_from(f"{order}HI", block, 2)
        assert magic == 42
        (count,) = struct.unpack_from(f"{order}H", block, directory)
        for i in range(count):
            entry = struct.unpack_from(f"{order}HHIHH", block, directory + 2 + 12 * i)
            if entry[0] == ORIENTATION:
                return TURNS.get(entry[3], TURNS[1]) if entry[1:3] == (3, 1) else TURNS[1]
    except (AssertionError, struct.error):
        pass
    return TURNS[1]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("value", range(10))
def test_orientation_of_each_value(value: int, order: str) -> None:
    for directory in (8, 14, 1000):
        block = orientation_block(order, value, directory)
        assert engines.read_orientation(block) == TURNS.get(value, TURNS[1])


def test_silent_blocks_are_upright() -> None:
    for block in [b"", b"II", exif_block("<", []), b"Exif\0\0" + orientation_block("<", 6)]:
        assert engines.read_orientation(block) == TURNS[1]


def _hostile(rng: Generator) -> bytes:
    order = str(rng.choice(["<", ">"]))
    block = bytearray(orientation_block(order, int(rng.integers(0, 10)), int(rng.choice([8, 30]))))
    for _ in range(rng.integers(0, 5)):
        block[rng.integers(0, len(block))] = rng.choice([0, 1, 0xFF, int(rng.integers(0, 256))])
    return bytes(block[: rng.integers(0, len(block) + 1)] if rng.random() < 0.4 else block)


def test_hostile_blocks() -> None:
    rng = np.random.default_rng(6)
    turned = 0
    for _ in range(5_000):
        block = _hostile(rng)
        turn = engines.read_orientation(block)
        assert turn == expected(block), block
        swapped, *flipped = turn
        turned_here, cleared = upright(STORED, block)
        expected_here = STORED[tuple(slice(None, None, -1 if f else 1) for f in flipped[::-1])]
        assert np.array_equal(turned_here, expected_here.T if swapped else expected_here), block
        assert cleared is not None
        assert len(cleared) == len(block)
        assert engines.read_orientation(cleared) == TURNS[1]
        turned += turn != TURNS[1]
    assert 1_250 < turned < 3_750
