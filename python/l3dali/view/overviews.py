"""Overviews of large images: made once, in the background, and kept as L3 files in a folder.

The format has no smaller copies of an image, so a look at all of one decodes all of it. Knows
`pixels` and files, no HTTP.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.console import reason_of
from l3dali.view.pixels import TILE_SIDE, info_of, shrunk

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from l3dali.view.catalog import Entry

LARGE_PIXELS = 2**24  # Smaller images are decoded for each look.
_FIRST_LEVEL = 3
_MAX_LEVEL = 10
_MAX_WAITING = 8
_MAX_FAILURES = 1000
_KEY_DIGITS = 32
_NAME = "l3view-{}.l3"  # Somebody's own files in the folder may be named by hashes, too.


@dataclass
class Progress:
    """How far an overview is.

    Attributes:
        done: 0 to 1.
        error: why there is none.
    """

    done: float = 0.0
    error: str = ""


def top_level(info: codec.Info) -> int:
    """The level that is small enough for one tile; level k has 1 / 2^k of the image's sides."""
    longer = max(info.height, info.width)
    level = 0
    while longer > TILE_SIDE << level and level < _MAX_LEVEL:
        level += 1
    return level


class Overviews:
    """Makes overviews one at a time and keeps the latest, up to a number of bytes."""

    def __init__(self, folder: Path, kept_bytes: int, memory_bytes: int) -> None:
        """Keeps them in `folder`, which is made; takes three eighths of the memory at most."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._kept_bytes = kept_bytes
        self._most_bytes = memory_bytes // 8
        self._progress: dict[str, Progress] = {}
        self._lock = threading.Lock()
        self._jobs: queue.Queue[tuple[str, Entry, tuple[int, ...], int]] = queue.Queue(_MAX_WAITING)
        threading.Thread(target=self._work, daemon=True).start()

    def level(self, info: codec.Info) -> int | None:
        """The level of an image that its overview has; None if it needs none.

        It is the same for one channel as for three.
        """
        if info.width * info.height <= LARGE_PIXELS:
            return None
        level = _FIRST_LEVEL
        most = self._most_bytes // (3 * info.dtype.itemsize)
        while math.ceil(info.width / 2**level) * math.ceil(info.height / 2**level) > most:
            level += 1
        return level

    def find(self, entry: Entry, channels: Sequence[int], level: int) -> memoryview | None:
        """The overview as an L3 file, if there is one."""
        path = self._path(_key(entry, channels, level))
        try:
            data = type(entry)(path.name, path, path.resolve()).read()
            info_of(data)
        except (OSError, ValueError):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # Those that were not looked at for long are dropped first.
        return data

    def ask(self, entry: Entry, channels: tuple[int, ...], level: int) -> Progress:
        """Begins to make an overview, unless there is one, and says how far it is."""
        key = _key(entry, channels, level)
        overview = self.find(entry, channels, level)
        if overview is not None:
            with contextlib.suppress(ValueError):  # One that is damaged is made anew.
                codec.verify(overview, threads=1)
                return Progress(done=1.0)
        with self._lock:
            if key not in self._progress:
                if len(self._progress) > _MAX_FAILURES:
                    self._progress.clear()
                try:
                    self._jobs.put_nowait((key, entry, channels, level))
                except queue.Full:
                    return Progress()  # The page asks again.
                self._progress[key] = Progress()
            return self._progress[key]

    def _work(self) -> None:
        while True:
            key, entry, channels, level = self._jobs.get()
            progress = self._progress.get(key, Progress())
            try:
                self._make(key, entry, channels, level, progress)
            except Exception as error:  # The thread goes on with the next.
                progress.error = reason_of(error)
            else:
                with self._lock:
                    self._progress.pop(key, None)

    def _make(
        self, key: str, entry: Entry, channels: tuple[int, ...], level: int, progress: Progress
    ) -> None:
        data = entry.read()
        info = info_of(data)

        def tell(done: float) -> None:
            progress.done = 0.99 * done

        window = (0, 0, info.height, info.width)
        pixels = shrunk(data, window, 2**level, channels=channels, labels=info.labels, on_part=tell)
        overview = codec.encode(
            pixels, layout="HWC", coding="packed", labels=info.labels, palette=info.palette
        )
        del pixels
        self._drop(self._kept_bytes - len(overview))
        codec.write_atomically(self._path(key), overview)

    def _drop(self, kept_bytes: int) -> None:
        """Removes the oldest until the others take so many bytes."""
        pattern = _NAME.format("[0-9a-f]" * _KEY_DIGITS)
        files = []
        for path in self._folder.glob(pattern):
            with contextlib.suppress(FileNotFoundError):  # Another viewer drops them, too.
                files.append((path.stat(), path))
        files.sort(key=lambda each: each[0].st_mtime, reverse=True)
        total = 0
        for status, path in files:
            total += status.st_size
            if total > kept_bytes:
                path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / _NAME.format(key)


def _key(entry: Entry, channels: Sequence[int], level: int) -> str:
    text = json.dumps([entry.state(), list(channels), level])
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]
