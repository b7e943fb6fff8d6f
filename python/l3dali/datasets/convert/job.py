"""The unit of work: turns a job into rows of the manifest. Any scheduler can map it."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from l3dali import __version__
from l3dali.datasets.convert import tfrecord
from l3dali.datasets.convert.containers import FILES, OTHER, SHARDS, index_name, seekable
from l3dali.datasets.convert.images import Blob, Entry, Options, may_be_image, renamed
from l3dali.datasets.convert.manifest import DONE, DROPPED, FAILED, Row
from l3dali.datasets.convert.pool import ImagePool
from l3dali.datasets.convert.storage import (
    CHUNK_BYTES,
    MANIFEST_NAME,
    HashedReader,
    HashedWriter,
    Stored,
    hash_file,
    open_folder,
)
from l3dali.datasets.convert.workers import reason_of
from l3dali.signatures import HEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from l3dali.datasets.convert.images import Outcome
    from l3dali.datasets.convert.storage import Folder


_LEAST_MOST_BYTES, _MOST_TIMES = 2**32, 64  # of a result: that many, or times its source


@dataclass(frozen=True)
class Job:
    """A shard, or some files, to convert: plain data that can be sent to another machine."""

    kind: str  # of the shard, or `files`
    source: str  # the folder they are in: a local path or a URL
    target: str  # the folder for the results
    files: tuple[Stored, ...]  # one shard, or files that are each converted alone
    options: Options  # what to make of images
    previous: dict[str, Row] = field(default_factory=dict)  # earlier results, by source
    threads: int = 1  # for the images of a shard
    unknown: Collection[str] = ()  # files of DEST that are not in the manifest
    names: dict[str, str] = field(default_factory=dict)  # of results, by source; else `renamed`

    @property
    def bytes(self) -> int:
        """The size of the sources."""
        return sum(file.size for file in self.files)


def convert_each(job: Job) -> Iterator[Row]:
    """Converts the files of a job here; yields each row as soon as its result has appeared."""
    done: set[str] = set()
    try:
        for row in _convert_each(job):
            done.add(row.source)
            yield row
    except Exception as error:  # An error of a job must not end the others.
        yield from (row for row in failed_rows(job, reason_of(error)) if row.source not in done)


def _convert_each(job: Job) -> Iterator[Row]:
    source, target = open_folder(job.source), open_folder(job.target)
    files: list[Stored] = []
    for file in job.files:
        row = confirmed(job, file, source, target)
        if row is None:
            files.append(file)
        else:
            yield row
    if job.kind == FILES:
        yield from _convert_files(replace(job, files=tuple(files)), source, target)
        return
    for file in files:
        yield _convert_shard(job, file, source, target)


def failed_rows(job: Job, reason: str) -> list[Row]:
    """Rows of a job of which no file was converted."""
    kind = OTHER if job.kind == FILES else job.kind
    return [replace(_new_row(job, file, kind), reason=reason) for file in job.files]


def may_be_done(row: Row, options: Options) -> bool:
    """Whether a row counts under these options."""
    return row.status != FAILED and not row.transient and row.options in options.accepted


def confirmed(job: Job, file: Stored, source: Folder, target: Folder) -> Row | None:
    """The row of an earlier result, if source and result are unchanged."""
    row = job.previous.get(file.name)
    if row is None or row.result is None or not may_be_done(row, job.options):
        return None
    try:
        result = target.stat(row.result)
        index = None if row.index is None else target.stat(row.index)
        if not (
            _is_same(source, file, row.source_bytes, row.source_stamp, row.source_hash)
            and _is_same(target, result, row.result_bytes, row.result_stamp, row.result_hash)
            and (row.index is None or _is_same(target, index, 0, row.index_stamp, row.index_hash))
        ):
            return None
    except Exception:  # Storage raises anything; the conversion will report it.
        return None
    new = replace(row, source_stamp=file.stamp)
    new.result_stamp = "" if result is None else result.stamp
    new.index_stamp = "" if index is None else index.stamp
    return new


def _is_same(folder: Folder, found: Stored | None, size: int, stamp: str, digest: str) -> bool:
    """Whether a file is unchanged; a `size` of 0 is unknown."""
    if found is None or (size and found.size != size):
        return False
    is_known = found.stamp != "" and found.stamp == stamp
    return is_known or hash_file(folder, found.name) == digest


def _new_row(job: Job, file: Stored, kind: str) -> Row:
    options = job.options
    coding = (options.coding or "jpeg") if options.to == "l3" else options.to
    if options.plan is not None:
        coding = "plan"
    row = Row(file.name, kind, FAILED, options.identity, coding, version=__version__)
    row.source_bytes, row.source_stamp = file.size, file.stamp
    return row


def _convert_shard(job: Job, file: Stored, source: Folder, target: Folder) -> Row:
    row = _new_row(job, file, job.kind)
    write_entries = SHARDS[job.kind].write_entries
    pool = ImagePool(job.options, job.threads, totals=row)

    def write(writer: HashedWriter) -> bytes | None:
        with _whole(row, file, source) as reader:
            if SHARDS[job.kind].IS_STREAMED:
                index = write_entries(reader, writer, pool)
            else:
                with seekable(reader, source) as file_to_seek:
                    index = write_entries(file_to_seek, writer, pool)
        row.pixels_hash = pool.pixels_hash
        return None if index is None else index.encode("utf-8", "surrogateescape")

    _publish(row, job, source, target, file.name, write)
    return row


def _publish(
    row: Row,
    job: Job,
    source: Folder,
    target: Folder,
    name: str,
    write: Callable[[HashedWriter], bytes | None],
) -> None:
    """Writes a row's result, which appears when `write` has written it.

    The index that `write` may return appears just before the result: if it cannot be written, both
    stay as they were. A failure is stored in the row.
    """
    has_index = False
    try:
        mode = source.mode(row.source)
        with target.publish(name, mode) as file:
            most = max(_LEAST_MOST_BYTES, _MOST_TIMES * row.source_bytes)
            writer = HashedWriter(file, target.place(name), most)
            index = write(writer)
            row.result_bytes, row.result_hash = writer.bytes, writer.hexdigest()
            _check_is_known(job, target, name, row.result_bytes, row.result_hash)
            if index is not None:
                writer.flush()
                row.index = index_name(name)
                with target.publish(row.index, mode) as index_file:
                    writer = HashedWriter(index_file, target.place(row.index))
                    writer.write(index)
                    row.index_hash = writer.hexdigest()
                    _check_is_known(job, target, row.index, writer.bytes, row.index_hash)
                has_index = True
        row.status, row.result = DONE, name
        with contextlib.suppress(Exception):  # A later run reads files without a stamp.
            row.result_stamp = _stamp_of(target, name)
            row.index_stamp = _stamp_of(target, row.index)
    except BaseException as error:
        if has_index and row.result is None:
            with contextlib.suppress(Exception):
                target.remove(row.index or "")  # It does not fit the shard that is there.
        if not isinstance(error, Exception):
            raise
        _fail(row, error)


def _stamp_of(folder: Folder, name: str | None) -> str:
    found = None if name is None else folder.stat(name)
    return "" if found is None else found.stamp


def _check_is_known(job: Job, target: Folder, name: str, size: int, digest: str) -> None:
    """Refuses to replace a file that is not in the manifest, unless it has the same bytes."""
    if name not in job.unknown:
        return
    with contextlib.suppress(OSError):  # It may be a link to nothing, or a pipe.
        found = target.stat(name)
        if found is not None and found.size == size and hash_file(target, name) == digest:
            return
    raise FileExistsError(
        f"{target.place(name)} exists and is not in {MANIFEST_NAME}: move or remove it (an "
        "interrupted run with other options may have left it)"
    )


def _fail(row: Row, error: Exception) -> None:
    row.status, row.result, row.index, row.index_hash = FAILED, None, None, ""
    row.reason, row.pixels_hash = reason_of(error), ""
    row.error_number = (isinstance(error, OSError) and error.errno) or 0
    if isinstance(error, MemoryError):
        row.error_number = errno.ENOMEM


@contextlib.contextmanager
def _whole(row: Row, file: Stored, source: Folder) -> Iterator[HashedReader]:
    """A source that the block reads to its end; then the row gets its hash."""
    with source.open(file.name, whole=True) as opened:
        reader = HashedReader(opened, source.place(file.name))
        yield reader
        _finish(row, file, reader)


def _finish(row: Row, file: Stored, reader: HashedReader) -> None:
    if reader.bytes != file.size:
        raise OSError(f"read {reader.bytes} of {file.size} bytes; has the file changed?")
    row.source_hash = reader.hexdigest()


def _was_sound(job: Job, row: Row) -> bool:
    """Whether an earlier run converted other bytes of this file, so that its result is kept."""
    old = job.previous.get(row.source)
    return old is not None and old.pixels_hash != "" and old.source_hash != row.source_hash


# Single files.


@dataclass
class _Loaded(Entry):
    """A file of a folder; with its data, if it may be an image."""

    row: Row
    file: Stored


def _convert_files(job: Job, source: Folder, target: Folder) -> Iterator[Row]:
    if not job.files:
        return
    options = replace(job.options, on_error="keep")  # An image fails alone here.
    per_image = job.threads if len(job.files) == 1 else 1
    pool = ImagePool(options, max(1, job.threads // per_image), per_image)
    for loaded, outcomes in pool.convert(_load_files(job, source)):
        row, outcome = loaded.row, outcomes[0] if outcomes else None
        if not row.reason:
            try:
                _convert_file(job, loaded, outcome, source, target)
            except Exception as error:
                _fail(row, error)
        del loaded, outcomes, outcome
        yield row


def _convert_file(
    job: Job, loaded: _Loaded, outcome: Outcome | None, source: Folder, target: Folder
) -> None:
    row, file = loaded.row, loaded.file
    name, data = row.source, loaded.blobs[0].data if loaded.blobs else b""
    if outcome is None:
        row.kind = OTHER
        copy = partial(_copy, job, row, file, source)
        _publish(row, job, source, target, name, copy)
        return
    row.add(loaded.blobs[0], outcome, job.options)
    if outcome.data is not None:
        data, name = outcome.data, job.names.get(name) or renamed(name, outcome.suffix)
    elif outcome.failed and (job.options.on_error == "fail" or _was_sound(job, row)):
        row.reason = outcome.failure
    elif outcome.failed and job.options.on_error == "drop":
        row.status = DROPPED
    if not row.reason and row.status != DROPPED:
        row.pixels_hash = sha256(outcome.pixels_hash).hexdigest() if row.formats else ""

        def write(writer: HashedWriter) -> None:
            writer.write(data)

        _publish(row, job, source, target, name, write)


def _copy(job: Job, row: Row, file: Stored, source: Folder, writer: HashedWriter) -> None:
    with _whole(row, file, source) as reader:
        while chunk := reader.read(CHUNK_BYTES):
            writer.write(chunk)
    if _was_sound(job, row):
        raise ValueError("no longer an image or a shard; remove the earlier result to copy it")


def _load_files(job: Job, source: Folder) -> Iterator[_Loaded]:
    for file in job.files:
        row = _new_row(job, file, OTHER)
        blobs: list[Blob] = []
        try:
            with source.open(file.name) as opened:
                reader = HashedReader(opened, source.place(file.name))
                head = reader.read(HEAD_BYTES)
                if tfrecord.may_be_shard(file.name) and tfrecord.is_tfrecord(head):
                    raise ValueError("a TFRecord that could not be read at first: run again")
                if may_be_image(file.name, head, job.options):
                    row.kind = "image"
                    blobs = [Blob(file.name, reader.read(head=head), file.name)]
                    _finish(row, file, reader)
        except Exception as error:
            _fail(row, error)
        yield _Loaded(blobs, row, file)
        del blobs
