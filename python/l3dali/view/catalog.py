"""The images that a viewer may show: those below named paths. Requests use their numbers."""

from __future__ import annotations

import mmap
import os
import stat
import tarfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali.console import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SUFFIXES = L3_SUFFIX, TAR_SUFFIX = (".l3", ".tar")
_WAIT_SECONDS, _POLL_SECONDS = 2.0, 0.02


@dataclass(frozen=True)
class Entry:
    """An image: a file, or a part of one."""

    name: str  # below the path that was named
    path: Path  # of the file
    root: Path  # the named path without links; files outside of it are not opened
    offset: int = 0  # where the image begins in the file
    size: int | None = None  # of the image in bytes; None: the rest of the file

    def read(self) -> memoryview:
        """The bytes, mapped; OSError if this is not a regular file below the root."""
        if not self.path.resolve(strict=True).is_relative_to(self.root):
            raise OSError("a link leads out of the folder")
        # Opening a pipe without O_NONBLOCK would wait for its writer.
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OSError("not a file")
            if not status.st_size:
                return memoryview(b"")
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return data[self.offset : None if self.size is None else self.offset + self.size]


class Catalog:
    """Finds images in the background, in the order of their names."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Starts to search files, tar shards and folders, in this order."""
        self.problems: list[str] = []
        self._entries: list[Entry] = []
        self._is_done = False
        threading.Thread(target=self._search, args=(paths,), daemon=True).start()

    def page(self, start: int, count: int) -> tuple[list[Entry], int, bool]:
        """Images from number `start` on, the number found so far, and whether the search is done.

        Waits a moment for images that are not found yet.
        """
        end = time.monotonic() + _WAIT_SECONDS
        while not self._is_done and len(self._entries) < start + count and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
        is_done = self._is_done  # before the entries are counted
        return self._entries[start : start + count], len(self._entries), is_done

    def __getitem__(self, number: int) -> Entry:
        """An image by its number, from 0; IndexError if it was not found."""
        return self.page(number, 1)[0][0]

    def _search(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self._entries.extend(self._entries_of(path))
        self._is_done = True

    def _entries_of(self, path: Path) -> Iterator[Entry]:
        root = path.resolve()
        if not path.is_dir():
            yield from self._entries_of_file(path, path.name, root)
            return
        for folder, folders, names in os.walk(path, onerror=lambda error: self._note("", error)):
            folders.sort()
            for name in sorted(names):
                if name.lower().endswith(_SUFFIXES):
                    file = Path(folder, name)
                    yield from self._entries_of_file(file, str(file.relative_to(path)), root)

    def _entries_of_file(self, path: Path, name: str, root: Path) -> Iterator[Entry]:
        if not name.lower().endswith(TAR_SUFFIX):
            yield Entry(name, path, root)
            return
        try:
            if not (path.resolve().is_relative_to(root) and path.is_file()):
                raise OSError("not a file of this folder")
            with tarfile.open(path, "r:", encoding="utf-8") as tar:
                for member in tar:
                    is_plain = member.isreg() and not member.issparse()
                    if is_plain and member.name.lower().endswith(L3_SUFFIX):
                        inner = f"{name}/{member.name}"
                        yield Entry(inner, path, root, member.offset_data, member.size)
        except Exception as error:  # tarfile raises anything on damaged data.
            self._note(f"{name}: ", error)

    def _note(self, where: str, error: Exception) -> None:
        self.problems.append(f"{where}{reason_of(error)}")
