"""The manifest: a file of JSON lines beside the results, one for each source.

One rule keeps files safe: a file that is not in the manifest is never touched.

* A result replaces a result of the manifest, or a file of the same bytes, as a killed run leaves
  without a row. Any other file in its place fails the source.
* A file is removed only if a row names it and it still has the row's hash: the result of a source
  that is gone (`--remove-gone`), or an earlier result of another name.
* A source that fails keeps its earlier result; the row of that result has the reason.
* The last row of a source is valid, and the last row of a result.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, fields, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from l3dali.console import complain, reason_of
from l3dali.datasets.convert.images import FormatTotals, Totals
from l3dali.datasets.convert.storage import (
    LOCK_NAME,
    MANIFEST_NAME,
    LocalFolder,
    hash_file,
    leads_out,
    naming,
)
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from l3dali.datasets.convert.storage import Folder

DONE, DROPPED, FAILED = "done", "dropped", "failed"
_NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK}
_UPLOAD_SECONDS = 30.0  # between two uploads of a manifest in a bucket, at the least


@dataclass(slots=True)  # There may be millions.
class Row(Totals):
    """One source and its result. Hashes are SHA-256 in hexadecimal."""

    source: str  # its name below SOURCE
    kind: str  # of the shard (`webdataset`, ...), else `image`, or `other` for a copy
    # `done`, `dropped` (a damaged image) or `failed`; then all but reason and failures describe
    # the earlier result, if there is one
    status: str
    options: str  # the `identity` of the options
    coding: str  # of the encoder, `png`, or `plan`
    source_bytes: int = 0
    source_stamp: str = ""  # modification time or tag
    source_hash: str = ""
    result: str | None = None  # its name below DEST
    index: str | None = None  # the name of the DALI index
    index_stamp: str = ""
    index_hash: str = ""
    result_bytes: int = 0
    result_stamp: str = ""
    result_hash: str = ""
    pixels_hash: str = ""  # of the pixels of the images that were converted, in order
    reason: str = ""  # why it failed
    error_number: int = 0  # `errno` of that error, or 0; not in the manifest
    version: str = ""  # of the package that made the result

    def to_json(self) -> str:
        """The row as a line."""
        values = {name: getattr(self, name) for name in _NAMES}
        return json.dumps(values, default=asdict, separators=(",", ":")) + "\n"


_NAMES = [each.name for each in fields(Row) if each.name not in ("source", "error_number")]
_NAMES.insert(0, "source")
_SUMS = {each.name for each in fields(FormatTotals)}


def row_of_json(line: str | bytes) -> Row | None:
    """The row in a line; None if the line is truncated or invalid."""
    try:
        values: dict[str, Any] = {k: v for k, v in json.loads(line).items() if k in _NAMES}
        values["formats"] = {
            name: FormatTotals(**{key: sum for key, sum in totals.items() if key in _SUMS})
            for name, totals in values["formats"].items()
        }
        values["failures"] = [(place, reason) for place, reason in values["failures"]]
        row = Row(**values)
        names = [name for name in (row.source, row.result, row.index) if name is not None]
        row.options = sys.intern(row.options)  # one text for all rows
        is_row = row.status in (DONE, DROPPED, FAILED) and not any(map(leads_out, names))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return row if is_row else None


class Manifest:
    """The manifest of a folder of results; a context that locks it, unless it is read only."""

    def __init__(self, folder: Folder, *, read_only: bool = False) -> None:
        self._read_only = read_only
        self.rows: dict[str, Row] = {}  # by source
        self.existed = False  # before this run
        self.claims: dict[str, str] = {}  # sources by the possible names of their results
        self._folder = folder
        self._owners: dict[str, str] = {}  # sources by the results of their last rows
        self._at_end = contextlib.ExitStack()
        self._file: BinaryIO | None = None  # open to append
        self._is_worn = False  # It has outdated or truncated lines.
        self._is_unsaved = False  # The stored manifest lacks changes.
        self._next_upload = time.monotonic() + _UPLOAD_SECONDS

    def __enter__(self) -> Manifest:
        """Takes the lock, where the disk has locks, and reads the rows.

        Raises:
            UsageError: another run has the lock, or the manifest has an invalid line.
        """
        folder = self._folder
        try:
            if isinstance(folder, LocalFolder) and not self._read_only:
                if not folder.root.exists():  # A refused run removes the folder again.
                    self._at_end.callback(self._remove_root, folder.root)
                folder.root.mkdir(parents=True, exist_ok=True)
                self._lock(folder)
            self._load()
            if self.existed and isinstance(folder, LocalFolder) and not self._read_only:
                folder.remove_temporaries()
        except BaseException:
            self._at_end.close()
            raise
        return self

    @staticmethod
    def _remove_root(root: Path) -> None:
        with contextlib.suppress(OSError):  # It has files.
            root.rmdir()

    def _lock(self, folder: LocalFolder) -> None:
        path = folder.root / LOCK_NAME
        while True:
            lock = self._at_end.enter_context(folder.open_to_append(LOCK_NAME))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"another l3 convert writes to {folder.place()}") from None
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise OSError(error.errno, error.strerror, str(path)) from None
                complain("l3: the disk of DEST has no locks: run no other l3 convert on it")
            # A run removes its lock file at its end: a lock on a removed file is void.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock.fileno()), path.lstat()):
                    self._at_end.callback(folder.remove, LOCK_NAME)  # while it is still locked
                    return

    def _load(self) -> None:
        if self._folder.stat(MANIFEST_NAME) is None:
            return
        self.existed = True
        place = self._folder.place(MANIFEST_NAME)
        lines = damaged = 0
        with naming(place), self._folder.open(MANIFEST_NAME) as file:
            for line in io.BufferedReader(cast("io.RawIOBase", file)):
                lines += 1
                is_whole = line.endswith(b"\n")  # else truncated by a kill
                if (row := row_of_json(line)) is not None:
                    self._set(row)
                elif is_whole:
                    damaged = damaged or lines
                self._is_worn = not is_whole
        if damaged:
            raise UsageError(
                f"{place}: line {damaged} is invalid in this version: remove the line, or name "
                "another folder"
            )
        self._is_worn |= lines != len(self.rows)

    def _set(self, row: Row) -> None:
        self.rows.pop(row.source, None)  # Rows are ordered by time.
        self.rows[row.source] = row
        if row.result is not None:
            owner = self.rows.get(self._owners.get(row.result, row.source), row)
            if owner is not row and owner.result == row.result:
                del self.rows[owner.source]
            self._owners[row.result] = row.source

    def __exit__(self, *error: object) -> None:
        """Saves, and releases the lock."""
        if self._read_only:
            return
        try:
            self.save()
        except Exception as failed:
            if not any(isinstance(each, KeyboardInterrupt) for each in error):
                raise
            complain(f"l3: {reason_of(failed)}")
        finally:
            self._at_end.close()

    def begin(self) -> None:
        """Creates the manifest before the first result, and drops outdated lines."""
        if not self.existed or self._is_worn:
            self._publish()
        if isinstance(self._folder, LocalFolder) and self._file is None:
            with naming(self._folder.place(MANIFEST_NAME)):
                self._file = self._folder.open_to_append(MANIFEST_NAME)

    def save(self) -> None:
        """Writes changes that are not stored yet."""
        self._close()
        if self._is_unsaved:
            self._publish()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with naming(self._folder.place(MANIFEST_NAME)):
                file.close()

    def add(self, rows: Iterable[Row]) -> None:
        """Adds rows, and removes earlier results of their sources, except where a source failed.

        A row fails if the earlier result of its source cannot be removed. Then the earlier row
        stays, and the next run tries again.
        """
        new = []
        for row in rows:
            try:
                new.append(self._in_place_of_earlier(row))
            except Exception as error:  # Storage raises anything.
                row.status, row.result = FAILED, None
                row.reason = f"its earlier result cannot be removed: {reason_of(error)}"
        if not new:
            return
        if isinstance(self._folder, LocalFolder):
            self.begin()
        for row in new:
            self._set(row)
        if self._file is not None:
            with naming(self._folder.place(MANIFEST_NAME)):
                self._file.write("".join(row.to_json() for row in new).encode())
                self._file.flush()
        else:  # Objects cannot grow. Rows that are lost in a crash are converted again.
            self._is_unsaved = True
            if time.monotonic() > self._next_upload:
                with contextlib.suppress(Exception):  # It is tried again.
                    self._publish()
                self._next_upload = time.monotonic() + _UPLOAD_SECONDS

    def _in_place_of_earlier(self, row: Row) -> Row:
        """The row to write. Removes an earlier result of another name, unless the row failed."""
        old = self.rows.get(row.source)
        if old is None or old.result is None or self._owners[old.result] != row.source:
            return row
        if row.status == FAILED:
            with contextlib.suppress(Exception):  # If it is unknown, the result is kept.
                if self._folder.stat(old.result) is None:
                    return row
            new = replace(old, status=FAILED, failures=row.failures, reason=row.reason)
            row.reason += f"; the earlier result {old.result} was kept"
            return new
        for name, digest in ((old.index, old.index_hash), (old.result, old.result_hash)):
            is_of_another = self.claims.get(name or "", row.source) != row.source
            if name not in (row.result, row.index) and not is_of_another:
                self._remove_if_written(name, digest)
        return row

    def _remove_if_written(self, name: str | None, digest: str) -> bool:
        """Removes a file unless it was changed; returns whether it is gone."""
        if name is None or self._folder.stat(name) is None:
            return True
        if hash_file(self._folder, name) != digest:
            return False
        self._folder.remove(name)
        return True

    def remove(self, rows: Iterable[Row]) -> list[Row]:
        """Removes unchanged results, their rows, and empty folders.

        Returns:
            The rows of results that stay: they were changed, or have a reason.
        """
        left = []
        try:
            for row in rows:
                assert row.result is not None
                reason = ""  # of an earlier failure
                try:
                    if self._remove_if_written(row.result, row.result_hash):
                        self._remove_if_written(row.index, row.index_hash)
                        parents = [str(each) for each in PurePosixPath(row.result).parents][:-1]
                        if isinstance(self._folder, LocalFolder):
                            self._folder.remove_empty(parents)
                        del self.rows[row.source]
                        continue
                except Exception as error:  # Storage raises anything.
                    reason = f"its result cannot be removed: {reason_of(error)}"
                left.append(replace(row, reason=reason))
        finally:
            self._is_unsaved = True
            with contextlib.suppress(Exception):  # It is tried again.
                self._publish()
        return left

    def _publish(self) -> None:
        self._close()
        place = self._folder.place(MANIFEST_NAME)
        with naming(place), self._folder.publish(MANIFEST_NAME) as file:
            for row in self.rows.values():
                file.write(row.to_json().encode())
        self.existed, self._is_worn, self._is_unsaved = True, False, False
