"""The images that a viewer may show: found below named paths, and opened nowhere else.

Images are known by their numbers, so no request names a file. Knows files and tar headers, no
pixels.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import tarfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali.console import reason_of
from l3dali.datasets.convert.storage import walk
from l3dali.datasets.convert.tar_headers import HeaderLimits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

L3_SUFFIX = ".l3"
_TAR_SUFFIX = ".tar"
_WAIT_SECONDS = 2.0  # for names that are not found yet
_MAX_HEADER_BYTES = 2**20  # of one member of a tar file


@dataclass(frozen=True)
class Entry:
    """An image: a file, or a part of one.

    Attributes:
        name: below the path that was named.
        path: of the file.
        root: the named path without links; files outside of it are not opened.
        offset: where the image begins in the file.
        size: of the image in bytes; None: the rest of the file.
    """

    name: str
    path: Path
    root: Path
    offset: int = 0
    size: int | None = None

    def read(self) -> memoryview:
        """The bytes, mapped: what is not looked at is not read.

        Raises:
            OSError: the file is gone, is no file, or lies outside of the root.
        """
        # A pipe would wait for its writer.
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError("not a file")
            if not self._place_of(descriptor).is_relative_to(self.root):
                raise OSError("a link leads out of the folder")
            if not os.fstat(descriptor).st_size:
                return memoryview(b"")
            data = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
        finally:
            os.close(descriptor)
        return data[self.offset : None if self.size is None else self.offset + self.size]

    def _place_of(self, descriptor: int) -> Path:
        """Where what is open lies. The path does not tell: a link in it may have changed since."""
        with contextlib.suppress(FileNotFoundError):  # /proc is missing, as in a chroot.
            return Path(f"/proc/self/fd/{descriptor}").readlink()
        place = self.path.resolve(strict=True)
        if not os.path.samestat(place.lstat(), os.fstat(descriptor)):
            raise OSError("a link that has changed")
        return place

    def state(self) -> tuple[object, ...]:
        """What another file of this name, or other content, differs in."""
        status = self.path.stat()
        times = status.st_mtime_ns, status.st_ctime_ns  # programs set the former as they like
        return str(self.path), status.st_ino, status.st_size, *times, self.offset


class Catalog:
    """Finds images in the background, in the order of their names."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Starts to search files, tar shards and folders, in this order."""
        self.problems: list[str] = []
        self._entries: list[Entry] = []
        self._is_done = False
        self._changed = threading.Condition()
        threading.Thread(target=self._search, args=(paths,), daemon=True).start()

    def page(self, start: int, count: int) -> tuple[list[Entry], int, bool]:
        """Some images from number `start` on, how many are found so far, and whether that is all.

        Waits a moment where they are not found yet.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_done or len(self._entries) >= start + count, _WAIT_SECONDS
            )
            return self._entries[start : start + count], len(self._entries), self._is_done

    def __getitem__(self, number: int) -> Entry:
        """An image by its number, from 0; IndexError if none has it, as far as is known."""
        return self.page(number, 1)[0][0]

    def _search(self, paths: Sequence[Path]) -> None:
        for path in paths:
            for entry in self._entries_of(path):
                with self._changed:
                    self._entries.append(entry)
                    self._changed.notify_all()
        with self._changed:
            self._is_done = True
            self._changed.notify_all()

    def _entries_of(self, path: Path) -> Iterator[Entry]:
        root = Path(os.path.realpath(path))
        if not path.is_dir():
            yield from self._entries_of_file(path, path.name, root)
            return
        for folder, folders, names in walk(path, self._note):
            folders.sort()
            for name in sorted(names):
                if name.lower().endswith((L3_SUFFIX, _TAR_SUFFIX)):
                    file = Path(folder, name)
                    yield from self._entries_of_file(file, str(file.relative_to(path)), root)

    def _entries_of_file(self, path: Path, name: str, root: Path) -> Iterator[Entry]:
        if not name.lower().endswith(_TAR_SUFFIX):
            yield Entry(name, path, root)
            return
        try:
            if not Path(os.path.realpath(path)).is_relative_to(root):
                raise OSError("a link leads out of the folder")
            if not path.is_file():
                raise OSError("not a file")
            with path.open("rb") as file:
                for member in _members(file):
                    inner = f"{name}/{member.name}"
                    yield Entry(inner, path, root, member.offset_data, member.size)
        except Exception as error:  # tarfile raises anything; the search goes on with the next.
            self._note(error, name)

    def _note(self, error: Exception, name: str = "") -> None:
        reason = reason_of(error)
        self.problems.append(f"{name}: {reason}" if name else reason)


def _members(file: BinaryIO) -> Iterator[tarfile.TarInfo]:
    """The L3 files in a tar file; reads headers alone."""
    headers = _Headers(file)
    tar = tarfile.TarFile(
        fileobj=headers,  # type: ignore[arg-type]
        encoding="utf-8",
        errors="surrogateescape",
    )
    while (member := tar.next()) is not None:
        headers.limits.begin_member()
        tar.members = []  # type: ignore[attr-defined]  # tarfile would keep them all.
        tar.pax_headers = {}
        is_plain = member.isreg() and not member.issparse()
        if is_plain and member.name.lower().endswith(L3_SUFFIX):
            yield member


class _Headers:
    """What tarfile needs of a file: no reads of a size that nobody has earned, and no way back.

    tarfile takes a member of a negative size, behind which it finds that member again.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.limits = HeaderLimits(_MAX_HEADER_BYTES)
        self.tell = file.tell

    def seek(self, offset: int) -> None:
        if offset < self._file.tell():
            raise tarfile.ReadError(f"a header asks for byte {offset}")
        self._file.seek(offset)

    def read(self, size: int) -> bytes:
        self.limits.expect(size)
        data = self._file.read(size)
        self.limits.judge(data)
        return data
