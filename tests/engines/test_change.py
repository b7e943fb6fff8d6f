"""Files that change once they were parsed: an error or pixels, and nothing else, on any engine.

`tests/fuzz/change_target.h` has the same question for random changes; `make sanitize` asks it.
"""

from __future__ import annotations

import functools
import random
import subprocess
import sys
from pathlib import Path

import engines
import pytest
import reference_decoder
from engines import ENGINES
from reference_decoder import HEADER_BYTES, HEADER_OFFSETS, Header
from stream_builder import repair

GOLDEN = Path(__file__).parents[1] / "golden/v1"
CHANGED = ("rans_2_channels_16_bits", "rans_value_table_5_of_8_bits", "chunks")
ALL_THE_TIME = 0xFFFFFFFF

engine_matrix = pytest.mark.parametrize("engine", [*ENGINES, "encoded_cache"])
present = pytest.mark.usefixtures("require_engine")


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.l3").read_bytes()


def steps_of(engine: str) -> list[int]:
    """When a file can change. A batch of one image has some tasks, a cache one more."""
    return [0] if engine in ("scalar", "avx2", "avx512", "neon") else list(range(5))


def with_bytes(data: bytes, offset: int, patch: bytes) -> bytes:
    return data[:offset] + patch + data[offset + len(patch) :]


def chunk_begin(data: bytes, kind: bytes) -> int:
    """Where the data of a chunk lies."""
    return data.index(kind, 32) + 8


def index_begin(data: bytes) -> int:
    return HEADER_BYTES + Header.from_bytes(data).chunks_bytes


@functools.cache
def payload_begins(data: bytes) -> list[int]:
    sizes = [len(payload) for payload in reference_decoder.parse(data).payloads]
    begins, end = [], len(data)
    for size in reversed(sizes):
        end -= size
        begins.append(end)
    return begins[::-1]


@pytest.mark.parametrize("name", CHANGED)
@engine_matrix
@present
def test_a_file_that_stays_decodes(engine: str, name: str) -> None:
    data = golden(name)
    expected = engines.decode("reference", data)
    # Only the cache has choices: pinned or not, in parts or not, queued or at once.
    for seed in range(8 if engine == "encoded_cache" else 1):
        assert engines.decode_changing(engine, data, data, step=1, seed=seed) == expected


@pytest.mark.parametrize("frequency", [b"\xff\x7f", b"\x00\x00"], ids=["16383", "0"])
@engine_matrix
@present
def test_rans_model(engine: str, frequency: bytes) -> None:
    """Frequencies that add up to more than a table has, or to less."""
    data = golden("rans_3_channels_8_bits")
    begin, end = chunk_begin(data, b"RANS"), index_begin(data)
    changed = with_bytes(data, begin + 200, frequency * ((end - begin - 204) // 2))
    for step in steps_of(engine):
        outcome = engines.decode_changing(engine, data, changed, step=step)
        if step == 0:
            assert outcome.status in ("kCorruptTile", "kCorruptHeader")


@engine_matrix
@present
def test_rans_table_number(engine: str) -> None:
    """Levels that name tables which the model does not have."""
    data = golden("rans_3_channels_8_bits")
    changed = with_bytes(data, chunk_begin(data, b"RANS") + 4, b"\xff" * 8)
    for step in steps_of(engine):
        outcome = engines.decode_changing(engine, data, changed, step=step)
        if step == 0:
            assert outcome.status in ("kCorruptTile", "kCorruptHeader")


@engine_matrix
@present
def test_value_table(engine: str) -> None:
    data = golden("value_table_5_of_8_bits")
    changed = with_bytes(data, chunk_begin(data, b"VTAB") + 5, b"\xff\xff\xff")
    for step in steps_of(engine):
        outcome = engines.decode_changing(engine, data, changed, step=step)
        if step == 0:
            assert (outcome.status, outcome.tile) == ("kCorruptHeader", 0)


@pytest.mark.parametrize("entry", [b"\xff\xff\xff\xff", b"\0\0\0\0"], ids=["far", "empty"])
@engine_matrix
@present
def test_index(engine: str, entry: bytes) -> None:
    data = golden("channels_3")
    tiles = reference_decoder.parse(data).header.tile_count
    for changed_tiles in {1, tiles}:
        changed = with_bytes(data, index_begin(data), entry * changed_tiles)
        for step in steps_of(engine):
            outcome = engines.decode_changing(engine, data, changed, step=step)
            if step == 0:
                assert outcome.status == "kCorruptHeader"


@pytest.mark.parametrize("coding", range(5))
@engine_matrix
@present
def test_coding(engine: str, coding: int) -> None:
    """All tiles get another coding: a rans tile may come without tables."""
    for name in ("all_features", "chunks", "rans_3_channels_8_bits"):
        data = golden(name)
        changed = data
        for begin in payload_begins(data):
            changed = with_bytes(changed, begin + 4, bytes([coding]))
        for step in steps_of(engine):
            outcome = engines.decode_changing(engine, data, repair(changed), step=step)
            assert outcome.status in ("kOk", "kCorruptTile", "kUnsupportedFeature")


@pytest.mark.parametrize("name", CHANGED)
@engine_matrix
@present
def test_all_the_time(engine: str, name: str) -> None:
    """A second thread writes while the file is decoded."""
    data = golden(name)
    head = payload_begins(data)[0]
    for seed in range(3):
        place = random.Random(seed).randrange(32, head)
        for changed in (
            with_bytes(data, 32, b"\xff" * (head - 32)),
            with_bytes(data, head, bytes(len(data) - head)),
            with_bytes(data, place, b"\0"),
        ):
            outcome = engines.decode_changing(engine, data, changed, step=ALL_THE_TIME, seed=seed)
            assert outcome.status in (
                "kOk",
                "kCorruptHeader",
                "kCorruptTile",
                "kChecksumMismatch",
                "kUnsupportedFeature",
            )


# What `l3dali` does with the memory of another process, which writes as it likes.
SHARED = """
import mmap, os, sys
import numpy as np
import l3dali

image = np.random.default_rng(1).integers(0, 200, (2048, 2048), np.uint8)
data = l3dali.encode(image, coding="packed", tile=(8, 32))
memory = mmap.mmap(-1, len(data))
memory[:] = data
index = HEADER_BYTES + int.from_bytes(data[CHUNKS_BYTES:][:4], "little")
tiles = l3dali.info(data).tile_count
child = os.fork()
if child == 0:
    while os.getppid() != 1:
        memory[index : index + 4 * tiles] = b"\\xff" * (4 * tiles)
        memory[index : index + 4 * tiles] = data[index : index + 4 * tiles]
try:
    outcomes = set()
    for call in (l3dali.info, l3dali.decode, l3dali.verify):
        for _ in range(40):
            try:
                call(memory)
            except l3dali.L3Error as error:
                outcomes.add(error.status.name)
    print(*sorted(outcomes))
finally:
    os.kill(child, 9)
"""


def test_memory_that_another_process_writes() -> None:
    """Info and decode see the index change: an error with a Status, or what the file was."""
    script = SHARED.replace("HEADER_BYTES", str(HEADER_BYTES))
    script = script.replace("CHUNKS_BYTES", str(HEADER_OFFSETS["chunks_bytes"]))
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=600
    )
    assert result.returncode == 0, result.stderr
    statuses = {"CHECKSUM_MISMATCH", "CORRUPT_HEADER", "UNSUPPORTED_FEATURE", "TRUNCATED"}
    assert set(result.stdout.split()) <= statuses
