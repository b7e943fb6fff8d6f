"""`l3 convert` that says when it is at an image, of which a reader never ends, or an encoder may.

HELD says which: `encode`, `read`, or `read alone` (in a process for the image). `write` holds what
is written, and `deaf` ignores signals then.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from l3dali import cli, codec
from l3dali.datasets.convert import engine, pool, storage
from l3dali.images.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from l3dali.datasets.convert.images import Blob, Options, Outcome
    from l3dali.datasets.convert.job import Job
    from l3dali.datasets.convert.manifest import Row

_work, _convert, _encode = engine._work, pool._convert, codec.encode


def encode(*arguments: Any, **options: Any) -> bytes:
    Path("begun").touch()
    encoded = _encode(*arguments, **options)
    Path("ended").touch()
    return encoded


def read(*_: object) -> Any:
    Path("begun").touch()
    threading.Event().wait()


def write(*_: object) -> None:
    if os.environ["HELD"] == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path("begun").touch()
    while True:
        time.sleep(0.01)


def hold() -> None:
    """In each process."""
    engine._work, pool._convert = work, convert
    if os.environ["HELD"] == "encode":
        codec.encode = encode
    elif os.environ["HELD"].startswith("read"):
        FORMATS["png"] = replace(FORMATS["png"], read=read)
    else:
        storage.HashedWriter.write = write  # type: ignore[assignment, method-assign]


def work(job: Job) -> Iterator[list[Row]]:
    hold()
    if os.environ["HELD"] == "read alone":
        job = replace(job, options=replace(job.options, careful=True))
    return _work(job)


def convert(blob: Blob, options: Options, threads: int) -> Outcome | None:
    hold()
    return _convert(blob, options, threads)


def run() -> None:
    hold()
    cli.run()
