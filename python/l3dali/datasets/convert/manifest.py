"""What has been converted: a file of JSON lines beside the results.

A row is a shard, or a file of a folder. The last row of a source counts, and the last of a result.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import io
import json
import os
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, fields, replace
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, cast, get_args, get_type_hints

from l3dali.console import complain, reason_of
from l3dali.datasets.convert import tar, tfrecord
from l3dali.datasets.convert.images import in_container, is_result_name
from l3dali.datasets.convert.pipeline import FormatTotals
from l3dali.datasets.convert.storage import (
    LOCK_NAME,
    LONGEST_NAME,
    MANIFEST_NAME,
    LocalFolder,
    RemoteFolder,
    folded,
    hash_file,
    leads_out,
    naming,
)
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from l3dali.datasets.convert.storage import Folder, Stored

DONE, DROPPED, FAILED = "done", "dropped", "failed"
_NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK}
_UPLOAD_SECONDS = 30.0  # between two uploads of a manifest in a bucket, at the least


@dataclass(slots=True)  # There may be millions.
class Row:
    """One source and its result.

    Attributes:
        source: its name below SOURCE.
        kind: `webdataset`, `tfrecord`, `parquet`, `arrow`, `zip`; of single files `image`, or
            `other` for a copy.
        status: `done`; `dropped`: a damaged image left out; `failed`: nothing has been made of it.
            If there was an earlier result, the row is of that, but for reason and failures.
        options: the `identity` of the options.
        coding: of the encoder, `png`, or `plan`.
        source_bytes: its size.
        source_stamp: its modification time or tag, as its folder has it.
        source_hash: SHA-256 of its bytes, in hexadecimal.
        result: the name below DEST.
        index: the name of the DALI index.
        index_stamp: its modification time or tag; "" in rows of before.
        index_hash: of its bytes; "" in rows of before.
        result_bytes: its size.
        result_stamp: its modification time or tag.
        result_hash: of its bytes.
        pixels_hash: of the pixels of the images that were converted, in order.
        stored: its images, by the format that they are stored in.
        labels: images by the `--labels` that name them.
        label_kinds: converted images that `--labels` names, by kind.
        choices: a hash of these formats, in order, if a plan has chosen them.
        group: of a single image that a plan was asked about, what its header says of it, in
            the plan's words. With size and name, another plan chooses by it.
        area: its width times height.
        formats: sums over its images, by the format of the source.
        failures: images that could not be converted: where, and why; `MOST_NAMED` at most.
        more_failures: how many more.
        transient: why another run may have other results, as in `Outcome`, between blanks.
        seconds: how long it took.
        reason: why it has failed.
        error_number: `errno` of the error that the reason is of, or 0; not in the manifest.
        version: of the package that has made the result; "" in rows of before.
        further: fields that a newer version has written, which stay.
    """

    source: str
    kind: str
    status: str
    options: str
    coding: str
    source_bytes: int = 0
    source_stamp: str = ""
    source_hash: str = ""
    result: str | None = None
    index: str | None = None
    index_stamp: str = ""
    index_hash: str = ""
    result_bytes: int = 0
    result_stamp: str = ""
    result_hash: str = ""
    pixels_hash: str = ""
    stored: dict[str, int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    label_kinds: dict[str, int] = field(default_factory=dict)
    choices: str = ""
    group: str = ""
    area: int = 0
    formats: dict[str, FormatTotals] = field(default_factory=dict)
    failures: list[tuple[str, str]] = field(default_factory=list)
    more_failures: int = 0
    transient: str = ""
    seconds: float = 0.0
    reason: str = ""
    error_number: int = 0
    version: str = ""
    further: dict[str, Any] | None = None

    @property
    def images(self) -> int:
        """How many were converted."""
        return sum(totals.images for totals in self.formats.values())

    def to_json(self) -> str:
        """The row as a line."""
        values = {name: getattr(self, name) for name in _TYPES} | (self.further or {})
        return json.dumps(values, default=asdict, separators=(",", ":")) + "\n"


# The types of a row's values; lists and dicts are judged one by one.
_TOO_MUCH = 2**63  # of anything that is counted
_BEGIN = b'{"source":"'  # of a row, if a run was killed amid the first
_LONGEST_LINE = 2**21  # which no row is: json.loads hears no Ctrl-C
_GROUPED = ("stored", "labels", "label_kinds", "formats", "failures")
_SUMS = [each.name for each in fields(FormatTotals)]
_numbers_of = attrgetter(*_SUMS)
_REPEATED = ("kind", "status", "options", "coding", "version", "group", "choices")
_TYPES = {name: get_args(hint) or (hint,) for name, hint in get_type_hints(Row).items()}
del _TYPES["further"], _TYPES["error_number"]


def row_of_json(line: str) -> Row | None:
    """The row in a line; None if the line is not whole, or no row that `to_json` may have written.

    Anybody may have edited it: its result and its index are among those that its source can have.
    """
    try:
        fields: dict[str, Any] = json.loads(line)
        fields["formats"] = {
            # Sums of newer versions are passed over.
            name: FormatTotals(**{key: sum for key, sum in totals.items() if key in _SUMS})
            for name, totals in fields["formats"].items()
        }
        for key in ("source", "result", "index"):
            if (name := fields.get(key)) is not None:  # A run in the C locale read no text in it.
                fields[key] = os.fsdecode(os.fsencode(name))
        fields["failures"] = [(place, reason) for place, reason in fields["failures"]]
        further = {name: fields.pop(name) for name in [*fields] if name not in _TYPES}
        row = Row(**fields, further=further or None)
        numbers = [row.source_bytes, row.result_bytes, row.area, row.more_failures]
        numbers += [*row.stored.values(), *row.labels.values(), *row.label_kinds.values()]
        numbers += [number for totals in row.formats.values() for number in _numbers_of(totals)]
        texts = [text for pair in row.failures for text in pair]
        is_name = len(os.fsencode(row.source)) <= LONGEST_NAME and not leads_out(row.source)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    is_row = (
        all(type(value) in _TYPES[name] for name, value in fields.items() if name not in _GROUPED)
        and all(type(number) is int and 0 <= number < _TOO_MUCH for number in numbers)
        and all(name.isprintable() for name in (row.version, *row.stored, *row.formats))
        and all(name.isprintable() for name in row.label_kinds)
        and all(type(text) is str for text in texts)
        and row.status in (DONE, DROPPED, FAILED)
        and is_name
        and (row.status == FAILED or (row.result is not None) == (row.status == DONE))
        and (row.result is None or is_result_name(row.result, row.source))
        and row.index in (None, index_name(row.source), index_name(in_container(row.source, "tar")))
    )
    if not is_row:
        return None
    for name in _REPEATED:  # one text for all rows
        setattr(row, name, sys.intern(getattr(row, name)))
    return row


def index_name(name: str) -> str:
    """The name of the DALI index of a shard."""
    for suffix in (*tar.SUFFIXES, *tfrecord.SUFFIXES):
        if name.lower().endswith(suffix):
            return name[: -len(suffix)] + ".idx"
    return name + ".idx"


def _index_names(row: Row | None) -> list[str]:
    names = () if row is None else (row.result, row.index)
    return [name for name in names if name is not None and name.endswith(".idx")]


class Manifest:
    """The manifest of a folder of results; a context that keeps other runs away from it.

    One that is only read takes no lock, and nothing is written. It may be that of a folder below,
    as "a/b/", from which its rows go.

    Attributes:
        rows: by source.
        existed: there was one before.
        ignored: lines that are no rows of results in the folder.
        is_foreign: there are lines, and none of them is such a row.
        claims: the names that results of the present work may have, with their sources.
        left: indexes of results that went, which stay: no run is known to have written them.
        has_lock: the disk has locks.
    """

    def __init__(self, folder: Folder, *, read_only: bool = False, below: str = "") -> None:
        self._read_only = read_only
        self._below = below
        self.rows: dict[str, Row] = {}
        self._indexes = Counter[str]()  # rows by the indexes they name, or results named like one
        self.existed = False
        self.ignored = 0
        self.is_foreign = False
        self.claims: dict[str, str] = {}
        self.left: list[str] = []
        self.has_lock = True
        self._folder = folder
        self._found: Stored | None = None  # the object that holds the rows, in a bucket
        self._removed: set[str] = set()  # sources whose rows went
        self._uploads = contextlib.ExitStack()
        self._file: BinaryIO | None = None
        self._uploaded = time.monotonic()
        self._upload_seconds = 0.0
        self._is_changed = False
        # A killed run ended within a line, rows were superseded, or a copy of DEST shares the file.
        self._is_worn = False

    def __enter__(self) -> Manifest:
        """Takes the lock, where there are locks, and reads the rows."""
        folder = self._folder
        if self._read_only:
            self._load()
            return self
        if isinstance(folder, LocalFolder):
            self._uploads.callback(_remove_empty, _make_folders(folder.root))
        try:
            if isinstance(folder, LocalFolder):
                self._lock(folder)
            self._load()
            if isinstance(folder, LocalFolder) and self.existed and not self.is_foreign:
                folder.remove_temporaries()
        except BaseException:
            self._uploads.close()
            raise
        return self

    @functools.cached_property
    def folds_case(self) -> bool:
        """Whether names that differ in cases alone are one file's."""
        if not self.existed:
            return self._folder.folds_case()
        one, other = (
            self._folder.stat(self._below + name)  # What fails ends the run: it is no answer.
            for name in (MANIFEST_NAME, MANIFEST_NAME.replace("s", "S"))  # which nobody has
        )
        return one is not None and other is not None and replace(other, name=one.name) == one

    def _is_same(self, name: str | None, other: str | None) -> bool:
        """Whether two names are one file's."""
        if name is None or other is None:
            return name is other
        return name == other or (folded(name) == folded(other) and self.folds_case)

    def _lock(self, folder: LocalFolder) -> None:
        path = folder.root / LOCK_NAME
        while True:
            lock = self._uploads.enter_context(folder.open_to_append(LOCK_NAME))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"another l3 convert works on {folder.place()}") from None
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise OSError(error.errno, error.strerror, str(path)) from None
                self.has_lock = False
            if os.fstat(lock.fileno()).st_size:
                raise UsageError(f"{path} holds something, and l3 convert has not made it")
            # A run that has ended takes its file away: a lock on that would keep nobody out.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock.fileno()), path.lstat()):
                    self._uploads.callback(folder.remove, LOCK_NAME)  # while it is still locked
                    return

    def _load(self) -> None:
        folder = self._folder
        is_elsewhere = functools.cache(folder.leads_out)
        lines, is_whole, links = 0, True, 1
        name = self._below + MANIFEST_NAME
        self._found = folder.stat(name)
        if self._found is not None:
            self.existed = True
            with naming(folder.place(name)), folder.open(name) as file:
                if isinstance(folder, LocalFolder):
                    links = os.fstat(file.fileno()).st_nlink
                # One by one: the lines of a million rows take more memory than the rows.
                buffered = io.BufferedReader(cast("io.RawIOBase", file))  # fsspec's take no limit
                for line in iter(lambda: buffered.readline(_LONGEST_LINE), b""):
                    is_whole = line.endswith(b"\n")
                    lines += is_whole or not line.startswith(_BEGIN[: len(line)])
                    self._read(line.decode(errors="replace").removesuffix("\n"), is_elsewhere)
        results = {name: row.result for name, row in self.rows.items() if row.result is not None}
        is_alike = len(set(map(folded, results.values()))) < len(set(results.values()))
        key = folded if is_alike and self.folds_case else str
        last = {key(result): name for name, result in results.items()}
        for name, result in results.items():
            if last[key(result)] != name:
                self._drop(name)
        self.is_foreign = lines > 0 and not self.rows
        self._is_worn = lines != len(self.rows) or not is_whole or links > 1

    def _read(self, line: str, is_elsewhere: Callable[[str], bool]) -> None:
        if not line:
            return
        row = row_of_json(line)
        if row is None or is_elsewhere((self._below + row.source).rpartition("/")[0]):
            self.ignored += 1
        else:
            self._set(row)

    def _set(self, row: Row) -> None:
        self._drop(row.source)  # The order is that of time.
        self.rows[row.source] = row
        for name in _index_names(row):
            self._indexes[name] += 1

    def _drop(self, source: str) -> None:
        row = self.rows.pop(source, None)
        for name in _index_names(row):
            self._indexes[name] -= 1

    def __exit__(self, *error: object) -> None:
        """Writes what is not written yet, and gives the lock back."""
        if self._read_only:
            return
        try:
            self.save()
        except Exception as failed:
            if not any(isinstance(each, KeyboardInterrupt) for each in error):
                raise
            complain(f"l3: {reason_of(failed)}")
        finally:
            self._uploads.close()

    def save(self) -> None:
        """Writes what is not written yet."""
        self._close()
        if self._is_changed:
            self._publish()

    def _close(self) -> None:
        with naming(self._folder.place(MANIFEST_NAME)):
            file, self._file = self._file, None
            if file is not None:
                file.close()

    def begin(self) -> None:
        """Makes the manifest, if there is none, before the first result: it says whose they are.

        Lines of one that no longer count go.
        """
        if not self.existed or self._is_worn:
            self._publish()
        if isinstance(self._folder, LocalFolder):  # Somebody else's may not be written to.
            self._file = self._folder.open_to_append(MANIFEST_NAME)

    def add(self, rows: Iterable[Row]) -> None:
        """Adds rows; those of the same sources no longer count, and their results go.

        A row fails whose source has an earlier result that cannot be removed. The earlier row
        stays, so that the next run tries again. Where a source has failed, its earlier result
        stays, and its reason says so.
        """
        new = []
        for row in rows:
            try:
                self._remove_superseded(row)
            except Exception as error:  # Storage raises anything; the other rows count.
                row.status, row.result = FAILED, None
                row.reason = f"its earlier result cannot be removed: {reason_of(error)}"
            else:
                new.append(self._with_earlier(row))
        if not new:
            return
        if self._is_worn:
            self._publish()
        for row in new:
            self._set(row)
        if isinstance(self._folder, LocalFolder):
            if self._file is None:
                self._file = self._folder.open_to_append(MANIFEST_NAME)
            with naming(self._folder.place(MANIFEST_NAME)):
                self._file.write("".join(row.to_json() for row in new).encode())
                self._file.flush()
            return
        # Objects cannot grow. What is lost if the machine dies is converted once more.
        self._is_changed = True
        start = time.monotonic()
        if start - self._uploaded > max(_UPLOAD_SECONDS, 20 * self._upload_seconds):
            with contextlib.suppress(Exception):  # Storage raises anything. It is tried again.
                self.save()
            self._uploaded = time.monotonic()
            self._upload_seconds = self._uploaded - start

    def remove(self, rows: Iterable[Row]) -> list[Row]:
        """Removes results that are as they were written, their rows, and folders then empty.

        Returns:
            The rows of results that stay: they have changed since, or there is a reason.
        """
        left = []
        try:
            for row in rows:
                row = replace(row, reason="")  # Its source may have failed.
                try:
                    if self._remove(row):
                        continue
                except Exception as error:  # Storage raises anything; the other results go.
                    row = replace(row, reason=f"its result cannot be removed: {reason_of(error)}")
                left.append(row)
        finally:
            self._is_changed = True
            with contextlib.suppress(Exception):  # Storage raises anything. It is tried again.
                self.save()
        return left

    def _remove(self, row: Row) -> bool:
        """Removes a result, its row, and folders then empty, unless the result has changed."""
        assert row.result is not None
        found = self._folder.stat(row.result)
        if found is not None and not self._is_as_written(found, row):
            return False
        self._remove_index(row)  # first: who tries again goes by the result
        if found is not None:
            self._folder.remove(row.result)
        if isinstance(self._folder, LocalFolder):
            self._folder.remove_empty(map(str, [*PurePosixPath(row.result).parents][:-1]))
        self._drop(row.source)
        self._removed.add(row.source)
        return True

    def _is_unchanged(self, row: Row) -> bool:
        found = None if row.result is None else self._folder.stat(row.result)
        return found is not None and self._is_as_written(found, row)

    def _is_as_written(self, found: Stored, row: Row) -> bool:
        if found.size != row.result_bytes:
            return False
        if found.stamp != "" and found.stamp == row.result_stamp:
            return True
        return hash_file(self._folder, found.name) == row.result_hash  # a copy of DEST, say

    def _remove_superseded(self, row: Row) -> None:
        """Removes what an earlier run made of the same source under other names."""
        old = self.rows.get(row.source)
        if old is None or (row.status == FAILED and row.result is None):
            return
        result = None if self._is_same(old.result, row.result) else old.result
        if result is not None and not self._is_unchanged(old):
            return
        index = None if self._is_same(old.index, row.index) else old.index
        if index is not None and not self._is_of_others(index, row.source):
            self._remove_index(old)  # first: who tries again goes by the result
        if result is not None and self.claims.get(result, row.source) == row.source:
            self._folder.remove(result)

    def _with_earlier(self, row: Row) -> Row:
        """The row; of a source that has failed and has an earlier result, that of the result."""
        old = self.rows.get(row.source)
        if row.status != FAILED or row.result is not None or old is None or old.result is None:
            return row
        if self.claims.get(old.result, row.source) != row.source:
            return row
        what = "stays"
        with contextlib.suppress(Exception):  # Storage raises anything; what is not known stays.
            if self._folder.stat(old.result) is None:
                what = "is gone"
        earlier = replace(
            old,
            status=FAILED,
            failures=row.failures,
            more_failures=row.more_failures,
            reason=row.reason,
        )
        row.reason += f"; its earlier result, {old.result}, {what}"
        return earlier

    def _remove_index(self, row: Row) -> None:
        """Removes an index, unless somebody has put another file in its place."""
        if row.index is None:
            return
        is_ours = False
        with contextlib.suppress(Exception):  # Storage raises anything.
            if self._folder.stat(row.index) is None:
                return
            is_ours = hash_file(self._folder, row.index) == row.index_hash
        if is_ours:
            self._folder.remove(row.index)
        else:
            self.left.append(row.index)

    def _is_of_others(self, name: str, source: str) -> bool:
        own = _index_names(self.rows[source]).count(name)
        return self.claims.get(name, source) != source or self._indexes[name] > own

    def _publish(self) -> None:
        if isinstance(self._folder, RemoteFolder):
            self._take_rows_of_others(self._folder)
        place = self._folder.place(MANIFEST_NAME)
        with naming(place), self._folder.publish(MANIFEST_NAME) as file:
            for row in self.rows.values():
                file.write(row.to_json().encode())
        if isinstance(self._folder, RemoteFolder):
            self._found = None  # If that cannot be told, the next upload reads it.
            with contextlib.suppress(Exception):
                self._folder.forget(MANIFEST_NAME)
                self._found = self._folder.stat(MANIFEST_NAME)
        self._is_changed = self._is_worn = False

    def _take_rows_of_others(self, folder: RemoteFolder) -> None:
        """Takes what another run has written since: buckets have no lock."""
        folder.forget(MANIFEST_NAME)
        if folder.stat(MANIFEST_NAME) == self._found:
            return
        other = Manifest(folder, read_only=True)
        other._load()
        results = {row.result for row in self.rows.values() if row.result is not None}
        for row in other.rows.values():
            is_known = row.source in self.rows or row.source in self._removed
            if not is_known and row.result not in results:
                self._set(row)


def _make_folders(folder: Path) -> list[Path]:
    """Makes a folder and those above it; returns those that were not there, the lowest first."""
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return new


def _remove_empty(folders: Iterable[Path]) -> None:
    """Removes folders, up to the first that holds something."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()
