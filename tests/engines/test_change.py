"""A file that another process changes: an error with a Status, or what the file was.

`l3_replay --change` changes files at each step and from a second thread, for every engine.
"""

from __future__ import annotations

import subprocess
import sys

from reference_decoder import HEADER_BYTES, HEADER_OFFSETS

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
