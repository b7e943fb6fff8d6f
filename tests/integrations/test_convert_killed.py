"""`l3 convert` killed at random moments, and run again: the same bytes in the end, nothing else.

L3_KILLS=30 kills more often than the usual 3 times.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from convert_tools import convert, files_below, png, samples, write_tar

pytest.importorskip("fsspec")

KILLS = int(os.environ.get("L3_KILLS", "3"))
SHARDS, IMAGES = 4, 60


def write_parquet(path: Path, first: int) -> None:
    pq.write_table(table(first), path, row_group_size=16)


def write_arrow(path: Path, first: int) -> None:
    with pa.ipc.new_stream(str(path), table(first).schema) as writer:
        writer.write_table(table(first), max_chunksize=16)


def table(first: int) -> pa.Table:
    """Images as Hugging Face keeps them, and a label."""
    images = [{"bytes": png(first + i), "path": f"{i}.png"} for i in range(IMAGES)]
    return pa.table({"image": images, "label": list(range(IMAGES))})


def write_zip(path: Path, first: int) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(IMAGES):
            archive.writestr(zipfile.ZipInfo(f"{i}.png"), png(first + i))


def write_shard(path: Path, first: int) -> None:
    write_tar(path, samples(IMAGES, first))


Write = Callable[[Path, int], None]


@pytest.mark.parametrize(
    ("suffix", "write", "scheme"),
    [
        (".parquet", write_parquet, ""),
        (".arrow", write_arrow, ""),
        (".zip", write_zip, ""),
        (".tar", write_shard, "file://"),
    ],
    ids=["parquet", "arrow", "zip", "url"],
)
def test_killed_at_random_and_run_again(
    tmp_path: Path, suffix: str, write: Write, scheme: str
) -> None:
    (tmp_path / "s").mkdir()
    for i in range(SHARDS):
        write(tmp_path / "s" / f"{i}{suffix}", 1000 * i)
    source, target = (f"{scheme}{tmp_path / name}" for name in "sd")
    begin = time.monotonic()
    run(source, f"{scheme}{tmp_path / 'whole'}").wait()
    seconds = time.monotonic() - begin
    random = np.random.default_rng(28)
    for _ in range(KILLS):
        killed = run(source, target)
        time.sleep(float(random.uniform(0.2, 1)) * seconds)
        killed.kill()
        killed.wait()
    for _ in range(200):  # Workers of the last one may hold the lock.
        if convert(source, target) == 0:
            break
        time.sleep(0.05)
    assert files_below(tmp_path / "d") == files_below(tmp_path / "whole")
    results = [path for path in (tmp_path / "whole").iterdir() if path.suffix in (suffix, ".idx")]
    assert len(results) == SHARDS * (2 if suffix == ".tar" else 1)
    for path in results:
        assert (tmp_path / "d" / path.name).read_bytes() == path.read_bytes()


def run(source: str, target: str) -> subprocess.Popen[bytes]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "l3dali", "convert", source, target]
    command += ["-q", "-j", "2"]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)
