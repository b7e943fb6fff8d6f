"""Data sets of very many files: what listing, manifest and going on take."""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.cpu.case import Result, apart
from benchmarks.report import CODE, markdown_table

from l3dali.datasets.convert.images import Options
from l3dali.datasets.convert.manifest import DONE, Manifest, Row
from l3dali.datasets.convert.pipeline import FormatTotals
from l3dali.datasets.convert.storage import MANIFEST_NAME, LocalFolder
from l3dali.datasets.convert.work import find_sources, find_work

FILES_A_FOLDER = 1000
STEPS = ("list the sources", "add rows one by one", "read the manifest", "find what is done")


def manifest(rows: int = 1_000_000) -> Result:
    """What it takes to find nothing to do in a folder of so many files, and of a tenth of them.

    Empty files stand for sources and results, 1,000 in a folder; each has a row, as an image has.
    Seconds are CPU time of one process; memory is its peak above that at its start, after each
    step, so that steps that need less than those before show nothing.
    """
    found = {count: apart(measure, count) for count in (rows // 10, rows)}
    lines = [
        [f"{count:,}", step, f"{one[step]['seconds']:.2f}", f"{one[step]['megabytes']:.0f}"]
        for count, one in found.items()
        for step in STEPS
    ]
    text = markdown_table(["rows", "step", "CPU seconds", "peak MB so far"], lines)
    bytes_a_row = {count: one["manifest_bytes"] / count for count, one in found.items()}
    text += "\n\nBytes of the manifest a row: " + ", ".join(
        f"{size:.0f} of {count:,}" for count, size in bytes_a_row.items()
    )
    data = {str(count): one for count, one in found.items()}
    return Result(text, data, code=(*CODE, "python/l3dali"))


def measure(count: int) -> dict[str, Any]:
    """Seconds and memory of each step, and the bytes of the manifest."""
    result: dict[str, Any] = {}
    start_bytes = peak_bytes()

    @contextmanager
    def step(name: str) -> Iterator[None]:
        begin = time.process_time()
        yield
        seconds = time.process_time() - begin
        result[name] = {"seconds": seconds, "megabytes": (peak_bytes() - start_bytes) / 1e6}

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "s"), Path(folder, "d")
        names = [f"{i // FILES_A_FOLDER:05}/{i % FILES_A_FOLDER:03}" for i in range(count)]
        for root, suffix in ((source, "png"), (target, "l3")):
            for name in names:
                if name.endswith("/000"):
                    (root / name).parent.mkdir(parents=True)
                os.close(os.open(root / f"{name}.{suffix}", os.O_CREAT | os.O_WRONLY))
        with step(STEPS[0]):
            sources = find_sources([str(source)])
        (files,) = sources.folders.values()
        results = LocalFolder(target)
        options = Options()
        with Manifest(results) as new, step(STEPS[1]):
            new.begin()
            for name in names:
                file = files[f"{name}.png"]
                stored = results.stat(f"{name}.l3")
                assert stored is not None
                new.add([row_of(file.name, file.stamp, stored.name, stored.stamp, options)])
            del new.rows
            new.rows = {}
        result["manifest_bytes"] = (target / MANIFEST_NAME).stat().st_size
        with step(STEPS[2]):
            again = Manifest(results, read_only=True).__enter__()
        with step(STEPS[3]):
            work = find_work(sources, str(target), options, again, workers=2)
        assert len(work.kept) == count
        assert not work.jobs
    return result


def peak_bytes() -> int:
    """The most memory that this process has taken."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def row_of(source: str, stamp: str, name: str, result_stamp: str, options: Options) -> Row:
    """A row as an image of a folder has it."""
    row = Row(source, "image", DONE, options.identity, options.coding)
    row.source_stamp, row.result, row.result_stamp = stamp, name, result_stamp
    row.source_hash = row.result_hash = row.pixels_hash = "0" * 64
    row.stored = {options.coding: 1}
    row.formats = {"png": FormatTotals(1, 400_000, 300_000, 1_200_000)}
    row.seconds, row.version = 0.0331, "1.0.0"
    return row
