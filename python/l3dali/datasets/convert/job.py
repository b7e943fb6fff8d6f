"""The unit of work: a job in, rows of the manifest out. Any engine can map it."""

from __future__ import annotations

import contextlib
import errno
import re
import tempfile
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from l3dali import __version__
from l3dali.console import Failure, add_failure, shortened
from l3dali.datasets.convert import arrow, crossing, parquet, tar, tfrecord, zip_archive
from l3dali.datasets.convert.children import (
    ChildDiedError,
    borrowed,
    new_pool,
)
from l3dali.datasets.convert.choosing import SOURCE
from l3dali.datasets.convert.images import (
    HEAD_BYTES,
    Blob,
    Options,
    becomes_colours,
    foresee_format,
    in_container,
    may_be_image,
    renamed,
    result_names,
)
from l3dali.datasets.convert.limits import (
    is_limited,
    limited,
    reason_of,
    report_progress,
    why_ended,
)
from l3dali.datasets.convert.manifest import DONE, DROPPED, FAILED, Row, index_name
from l3dali.datasets.convert.pipeline import Choices, ImagePool, Stopped, Totals
from l3dali.datasets.convert.storage import (
    CHUNK_BYTES,
    MANIFEST_NAME,
    HashedReader,
    HashedWriter,
    LocalFolder,
    RemoteFolder,
    Stored,
    hash_file,
    naming,
    open_folder,
)
from l3dali.signatures import L3_SIGNATURE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence

    from l3dali.datasets.convert.storage import Folder

WEBDATASET, TFRECORD, PARQUET, FILES = "webdataset", "tfrecord", "parquet", "files"
ARROW, ZIP = "arrow", "zip"
OTHER = "other"  # of a row: a copy

_STREAMED: dict[str, Any] = {WEBDATASET: tar, TFRECORD: tfrecord}  # read from start to end
_SEEKED: dict[str, Any] = {PARQUET: parquet, ARROW: arrow, ZIP: zip_archive}  # read in any order
SHARDS = _STREAMED | _SEEKED  # modules by kind
_IN_PROCESS = re.compile(r"(^|::)memory:")  # storage that other processes do not see
# Who writes a shard that becomes one of another kind.
_CROSSINGS: dict[tuple[str, str | None], Callable[..., str | None]] = {
    (ZIP, "tar"): crossing.write_tar,
    (WEBDATASET, "zip"): crossing.write_zip,
}

_idle = new_pool()  # that read
_LEAST_MOST_BYTES, _MOST_TIMES = 2**32, 64  # of a result: that many, or times its source


def is_in_process(*urls: str) -> bool:
    """Whether other processes do not see one of these folders."""
    return any(map(_IN_PROCESS.search, urls))


@dataclass(frozen=True)
class Job:
    """A shard, or some files, to convert. Plain data, so that it can go to another machine.

    Attributes:
        kind: of the shard, or `files`.
        source: the folder they are in: a local path or a URL.
        target: the folder for the results.
        files: one shard, or files that are each converted alone.
        options: what to make of images.
        previous: rows of earlier results that may still hold: sources whose stamp has changed,
            and maybe not their bytes.
        threads: for the images of a shard.
        crowded: files that get no result whose name was not foreseen: another's may have it.
        earlier: files with a sound result of an earlier run, and the hashes of what it was made of:
            it stays if they have changed, and are damaged now, or no images or shards.
        strangers: files in the place of results that no run is known to have written.
    """

    kind: str
    source: str
    target: str
    files: tuple[Stored, ...]
    options: Options
    previous: dict[str, Row] = field(default_factory=dict)
    threads: int = 1
    crowded: Collection[str] = ()
    earlier: Mapping[str, str] = field(default_factory=dict)
    strangers: Collection[str] = ()

    @property
    def bytes(self) -> int:
        """The size of the sources."""
        return sum(file.size for file in self.files)


def convert_each(
    job: Job,
    is_stopped: Callable[[], bool] | None = None,
    announce: Callable[[Row], None] | None = None,
) -> Generator[Row]:
    """Converts the files of a job here; yields each row as soon as its result has appeared.

    Args:
        job: what to do.
        is_stopped: asked now and then; the work ends with `Stopped` when it returns True.
        announce: gets the row of each result just before it appears. Among a job's `previous` such
            rows keep what has appeared from being published again.
    """
    told: set[str] = set()
    begun: dict[str, Row] = {}  # Copies are made ahead of their turn.

    def note(row: Row) -> None:
        if announce is not None:
            announce(row)
        begun[row.source] = row

    try:
        for row in _convert_each(job, is_stopped, note):
            yield row
            told.add(row.source)
            begun.pop(row.source, None)
    except Exception as error:  # Nothing that a job raises ends the others.
        yield from (row for row in failed_rows(job, reason_of(error)) if row.source not in told)
    except (KeyboardInterrupt, Stopped):  # maybe between a result and its row
        yield from (row for row in begun.values() if _has_appeared(row, job.target))
        raise


def rest_of(rows: Generator[Row]) -> Iterator[Row]:
    """Of a `convert_each` that is to end: the rows of what has appeared and it has not yielded."""
    with contextlib.suppress(Stopped, StopIteration):
        yield rows.throw(Stopped())
        yield from rows


def _convert_each(
    job: Job, is_stopped: Callable[[], bool] | None, announce: Callable[[Row], None]
) -> Iterator[Row]:
    source, target = open_folder(job.source), open_folder(job.target)
    files: list[Stored] = []
    for file in job.files:
        row = confirmed(job, file, source, target)
        if row is None:
            files.append(file)
        else:
            yield row
    if job.kind == FILES:
        rest = replace(job, files=tuple(files))
        yield from _convert_files(rest, source, target, is_stopped, announce)
        return
    for file in files:
        yield _convert_shard(job, file, source, target, is_stopped, announce)


def _has_appeared(row: Row, target: str) -> bool:
    """Whether the result that a row announces is there: what takes long to tell is made anew."""
    folder = open_folder(target)
    if row.result_stamp or row.result is None or not isinstance(folder, LocalFolder):
        return bool(row.result_stamp)  # Buckets may not answer.
    with contextlib.suppress(OSError):
        found = folder.stat(row.result)
        if found is not None and found.size == row.result_bytes < _SOON_HASHED_BYTES:
            row.result_stamp = found.stamp
            return hash_file(folder, row.result) == row.result_hash
    return False


_SOON_HASHED_BYTES = 2**26


def failed_rows(job: Job, reason: str) -> list[Row]:
    """Rows that say that nothing of a job has been done."""
    kind = OTHER if job.kind == FILES else job.kind
    return [replace(_new_row(job, file, kind), reason=reason) for file in job.files]


def confirmed(
    job: Job, file: Stored, source: Folder, target: Folder, foreseen: Choices | None = None
) -> Row | None:
    """The row of an earlier result, if the bytes of source and result are still those.

    `foreseen` is what `foresee` says of the file, if somebody has asked.
    """
    row = job.previous.get(file.name)
    if row is None or row.result is None or row.status == FAILED:
        return None
    try:
        result = target.stat(row.result)
        index = None if row.index is None else target.stat(row.index)
        if row.index is not None and index is None:
            return None
        if result is None or (file.size, result.size) != (row.source_bytes, row.result_bytes):
            return None
        judged = [
            (source, file, row.source_stamp, row.source_hash),
            (target, result, row.result_stamp, row.result_hash),
        ]
        if index is not None and row.index_hash:
            judged.append((target, index, row.index_stamp, row.index_hash))
        for folder, found, stamp, digest in judged:
            is_known = found.stamp != "" and found.stamp == stamp
            if not is_known and hash_file(folder, found.name) != digest:
                return None
        if row.options != job.options.identity:
            choices = foresee(job, file.name) if foreseen is None else foreseen
            if row.choices != choices.hexdigest():
                return None
    except Exception:  # Containers raise anything; who converts the file says it.
        return None
    return replace(
        row,
        options=job.options.identity,
        source_stamp=file.stamp,
        result_stamp=result.stamp,
        index_stamp="" if index is None else index.stamp,
    )


def foresee(job: Job, name: str) -> Choices:
    """What the images of one of a job's files are to be stored as, without decoding them.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged.
    """
    choices = Choices()
    for blob in read_blobs(job, name):
        chosen, reason = foresee_format(blob, job.options)
        if reason:
            place = name if job.kind == FILES else f"{name}: {shortened(blob.place)}"
            add_failure(choices.failures, Failure(place, shortened(reason)), name)
        if chosen is not None:
            choices.add(chosen)
            choices.palettes += chosen != SOURCE and becomes_colours(blob, job.options)
    return choices


def read_blobs(job: Job, name: str) -> Iterator[Blob]:
    """Reads what may be images in one of the files of a job.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged.
    """
    for found in _read(job.source, name, job.kind, job.options):
        if not isinstance(found, str):
            yield from found
        del found


def look_into(
    url: str, name: str, kind: str, options: Options, look: Callable[[Blob], object]
) -> str:
    """Shows what may be images in a file, and reads all of it; gives the SHA-256 of its bytes.

    Args:
        url: of the folder that the file is in.
        name: of the file.
        kind: of the file, as a job has it.
        options: what is an image.
        look: gets each image.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged.
    """
    digest = ""
    for found in _read(url, name, kind, options, whole=True):
        if isinstance(found, str):
            digest = found
        else:
            for blob in found:
                look(blob)
        del found
    return digest


def _read(
    url: str, name: str, kind: str, options: Options, *, whole: bool = False
) -> Iterator[Sequence[Blob] | str]:
    """Yields what may be images, some at a time; of the whole file the SHA-256 in the end.

    Shards are read in a process with limits.
    """
    arguments = url, name, kind, options, whole
    if kind == FILES or is_in_process(url) or is_limited():
        yield from _read_here(*arguments)
        return
    try:
        with borrowed(_idle) as reader:
            for found in reader.each(_read_apart, *arguments):
                yield found
                del found
    except ChildDiedError as error:
        raise ValueError(why_ended(error)) from None


def _read_apart(
    url: str, name: str, kind: str, options: Options, whole: bool
) -> Iterator[Sequence[Blob] | str]:
    with limited(options.worker_memory):
        yield from _read_here(url, name, kind, options, whole)


def _read_here(
    url: str, name: str, kind: str, options: Options, whole: bool
) -> Iterator[Sequence[Blob] | str]:
    folder = open_folder(url)
    with folder.open(name, whole=whole) as opened, contextlib.ExitStack() as stack:
        reader = HashedReader(opened, folder.place(name))
        entries: Any = ()
        if kind == FILES:
            head = reader.read(HEAD_BYTES)
            if may_be_image(name, head, options):
                yield [Blob(name, reader.read(head=head), name)]
        elif kind in _SEEKED:
            file = stack.enter_context(_seekable(opened, reader, folder)) if whole else opened
            entries = _SEEKED[kind].read_entries(file, options)
        else:
            entries = _STREAMED[kind].read_entries(reader, options)
        for entry in entries:
            yield entry.blobs
            report_progress()
            del entry
        if whole:
            while kind not in _SEEKED and reader.read(CHUNK_BYTES):
                pass
            yield reader.hexdigest()


def shard_results(name: str, kind: str, options: Options) -> list[str]:
    """The name of the result for a shard, and that of its index if such results have one."""
    result = in_container(name, options.container)
    has_index = result.lower().endswith(tar.SUFFIXES) or kind == TFRECORD
    return [result, index_name(result)] if has_index else [result]


def _new_row(job: Job, file: Stored, kind: str) -> Row:
    options = job.options
    coding = options.coding if options.to == "l3" else options.to
    if options.plan is not None:
        coding = "plan"
    row = Row(file.name, kind, FAILED, options.identity, coding, version=__version__)
    row.source_bytes, row.source_stamp = file.size, file.stamp
    return row


def _convert_shard(
    job: Job,
    file: Stored,
    source: Folder,
    target: Folder,
    is_stopped: Callable[[], bool] | None,
    announce: Callable[[Row], None],
) -> Row:
    start = time.perf_counter()
    row = _new_row(job, file, job.kind)
    result, *index_names = shard_results(file.name, job.kind, job.options)
    write_entries = _CROSSINGS.get(
        (job.kind, job.options.container), SHARDS[job.kind].write_entries
    )
    pool = ImagePool(job.options, job.threads, is_stopped=is_stopped)

    def write(writer: HashedWriter) -> tuple[str, bytes] | None:
        with source.open(file.name, whole=True) as opened:
            reader = HashedReader(opened, source.place(file.name), file.size)
            if job.kind in _SEEKED:
                with _seekable(opened, reader, source) as seekable:
                    index = write_entries(seekable, writer, pool)
            else:
                index = write_entries(reader, writer, pool)
            _check_length(reader, file)
            row.source_hash = reader.hexdigest()
            _count(row, pool.totals)
            row.seconds = time.perf_counter() - start
            if index is None or not index_names:
                return None
            return index_names[0], index.encode("utf-8", "surrogateescape")

    _publish(row, job, source, target, result, announce, write)
    if row.reason:
        _count(row, pool.totals)
    row.seconds = time.perf_counter() - start
    return row


def _publish(
    row: Row,
    job: Job,
    source: Folder,
    target: Folder,
    name: str,
    announce: Callable[[Row], None],
    write: Callable[[HashedWriter], tuple[str, bytes] | None],
) -> None:
    """Writes a row's result, which appears when `write` has written it.

    If that returns name and bytes of an index, it appears right behind the result: what ends the
    upload of that leaves both as they were. Whatever fails is told in the row: other results go on.
    """
    index: tuple[str, bytes] | None = None
    before: Stored | None = None
    is_there = False
    try:
        mode = source.mode(row.source)
        with contextlib.ExitStack() as behind:
            with target.publish(name, mode) as file:
                most = max(_LEAST_MOST_BYTES, _MOST_TIMES * row.source_bytes)
                writer = HashedWriter(file, target.place(name), most)
                index = write(writer)
                row.result_bytes, row.result_hash = writer.bytes, writer.hexdigest()
                if name in job.strangers:
                    ours = {row.result_hash: row.result_bytes, row.source_hash: row.source_bytes}
                    _check_is_ours(target, name, ours, may_be_l3=job.options.to == "l3")
                if index is not None:
                    row.index, data = index
                    target.stat(row.index)  # A folder or a pipe in its place is an error.
                    if isinstance(target, RemoteFolder):
                        target.forget(name)  # Listings may have other stamps.
                    before = target.stat(name)
                    index_file = behind.enter_context(target.publish(row.index, mode))
                    writer = HashedWriter(index_file, target.place(row.index))
                    writer.write(data)
                    writer.flush()  # A full disk says so before the shard appears.
                    row.index_hash = writer.hexdigest()
                    if row.index in job.strangers:
                        _check_is_ours(target, row.index, {row.index_hash: len(data)})
                row.status, row.result = DONE, name
                announce(row)
            is_there = True
    except BaseException as error:
        if index is not None and row.result is not None and not is_there:
            with contextlib.suppress(Exception):  # The answer may be what is missing.
                is_there = target.stat(name) not in (None, before)
        is_whole = False
        if is_there and index is not None:  # An interrupt does not wait for another upload.
            is_timely = isinstance(error, Exception) or isinstance(target, LocalFolder)
            is_whole = is_timely and _is_index_written(target, *index, mode)
            if not is_whole:
                with contextlib.suppress(Exception):
                    target.remove(index[0])  # of the shard before
        if not isinstance(error, Exception):
            raise
        if not is_whole:
            _fail(row, error)
            row.result = name if is_there else None
            row.index, row.index_hash = None, ""
    finally:
        if is_there:
            _stamp(row, target)


def _stamp(row: Row, target: Folder) -> None:
    """Stamps save reading results in later runs: a bucket that does not answer ends nothing."""
    with contextlib.suppress(Exception):
        result = target.stat(row.result or "")
        row.result_stamp = result.stamp if result is not None else ""
        index = None if row.index is None else target.stat(row.index)
        row.index_stamp = index.stamp if index is not None else ""


def _is_index_written(target: Folder, name: str, data: bytes, mode: int) -> bool:
    """Writes the index of a shard that is there, once more."""
    with contextlib.suppress(Exception):
        with target.publish(name, mode) as file:
            file.write(data)
        return True
    return False


def _check_is_ours(
    target: Folder, name: str, ours: Mapping[str, int], *, may_be_l3: bool = False
) -> None:
    """Refuses to replace a file of other bytes than a run that was killed leaves.

    `ours` has their hashes, and how many they are. Any L3 file may be one.
    """
    found = ""
    with contextlib.suppress(OSError):  # It may be a link to nothing, or a pipe.
        there = target.stat(name)
        if there is not None and may_be_l3 and name.endswith(".l3"):
            with target.open(name) as opened:
                if opened.read(len(L3_SIGNATURE)) == L3_SIGNATURE:
                    return
        if there is not None and there.size in ours.values():
            found = hash_file(target, name)
    if found not in ours:
        raise _is_no_result(target.place(name))


def _is_no_result(place: str) -> FileExistsError:
    return FileExistsError(
        f"{place} is there, and {MANIFEST_NAME} has no row of it: an interrupted run may have left "
        "it, or somebody else; move or remove it"
    )


def _fail(row: Row, error: Exception) -> None:
    row.status, row.result = FAILED, None
    row.reason = reason_of(error)
    row.error_number = (isinstance(error, OSError) and error.errno) or 0
    if isinstance(error, MemoryError):
        row.error_number = errno.ENOMEM


@contextlib.contextmanager
def _seekable(opened: BinaryIO, reader: HashedReader, source: Folder) -> Iterator[BinaryIO]:
    """The file to be read in any order, once all of it has been hashed.

    What is not local is downloaded, to be read from the bucket once.
    """
    if isinstance(source, LocalFolder):
        while reader.read(CHUNK_BYTES):
            pass
        opened.seek(0)
        yield opened
        return
    with tempfile.TemporaryFile() as copy:
        while chunk := reader.read(CHUNK_BYTES):
            with naming(tempfile.gettempdir()):
                copy.write(chunk)
        with naming(tempfile.gettempdir()):
            copy.seek(0)
        yield copy


def _copy(
    row: Row, job: Job, file: Stored, reader: HashedReader, head: bytes, writer: HashedWriter
) -> None:
    """Copies a file whose `head` has been read."""
    while head:
        writer.write(head)
        head = reader.read(CHUNK_BYTES)
    _check_length(reader, file)
    row.source_hash = reader.hexdigest()
    if _has_changed(job, row):
        raise ValueError(_IS_NONE)


_IS_NONE = "it was an image or a shard, and is none now; if so, remove its result"


def _has_changed(job: Job, row: Row) -> bool:
    """Whether a file has a sound result, of other bytes."""
    return job.earlier.get(row.source, row.source_hash) != row.source_hash


def _check_length(reader: HashedReader, file: Stored) -> None:
    if reader.bytes != file.size:
        raise OSError(f"{reader.bytes} of {file.size} bytes could be read; it has changed?")


def _count(row: Row, totals: Totals) -> None:
    row.formats, row.failures, row.stored = totals.formats, totals.failures, totals.stored
    row.labels, row.label_kinds = totals.labels, totals.label_kinds
    row.more_failures = totals.more_failures
    row.transient = totals.transient
    if row.coding == "plan":
        row.choices = totals.choices
    row.pixels_hash = totals.pixels_hash if not row.reason and row.status != DROPPED else ""


# Single files.


@dataclass
class _Loaded:
    """A file of a folder: as a blob if it may be an image, else already copied."""

    row: Row
    blobs: Sequence[Blob] = ()

    @property
    def bytes(self) -> int:
        """What it holds in memory."""
        return sum(len(blob.data) for blob in self.blobs)


def _convert_files(
    job: Job,
    source: Folder,
    target: Folder,
    is_stopped: Callable[[], bool] | None,
    announce: Callable[[Row], None],
) -> Iterator[Row]:
    if not job.files:
        return
    # One image fails alone here, whatever is to be done with it.
    options = replace(job.options, on_error="keep")
    per_image = job.threads if len(job.files) == 1 else 1
    pool = ImagePool(options, max(1, job.threads // per_image), per_image, is_stopped)
    started = time.perf_counter()
    for loaded, outcomes in pool.convert(_load_files(job, source, target, announce)):
        row = loaded.row
        if row.kind != "image" or row.reason:
            yield row
            continue
        totals = Totals()
        data, name = loaded.blobs[0].data, row.source
        outcome = outcomes[0]
        if outcome is None:
            row.kind = OTHER
            row.reason = _IS_NONE if _has_changed(job, row) else ""
        else:
            totals.add(loaded.blobs[0], outcome, options)
            row.group, row.area = outcome.choice.group, outcome.choice.area
            if outcome.data is not None:
                data, name = outcome.data, renamed(name, outcome.suffix)
                if row.source in job.crowded and name not in result_names(row.source, options):
                    row.reason = f"another file may be {name}, which its result would be"
            elif outcome.failed and (job.options.on_error == "fail" or _has_changed(job, row)):
                row.reason = outcome.failure
            elif outcome.failed and job.options.on_error == "drop":
                row.status = DROPPED
        _count(row, totals)
        if not row.reason and row.status != DROPPED:
            _publish(
                row, job, source, target, name, announce, partial(HashedWriter.write, data=data)
            )
            if row.reason:
                row.pixels_hash = ""
        row.seconds = time.perf_counter() - started
        del loaded, outcomes, outcome, data
        yield row
        started = time.perf_counter()


def _load_files(
    job: Job, source: Folder, target: Folder, announce: Callable[[Row], None]
) -> Iterator[_Loaded]:
    for file in job.files:
        row = _new_row(job, file, OTHER)
        try:
            with source.open(file.name, whole=True) as opened:
                reader = HashedReader(opened, source.place(file.name), file.size)
                head = reader.read(HEAD_BYTES)
                if tfrecord.may_be_shard(file.name) and tfrecord.is_tfrecord(head, file.size):
                    raise ValueError("a TFRecord that was not known for one: try again")
                if may_be_image(file.name, head, job.options):
                    row.kind = "image"
                    data = reader.read(head=head)
                    _check_length(reader, file)
                    row.source_hash = reader.hexdigest()
                    yield _Loaded(row, [Blob(file.name, data, file.name)])
                    continue
                copy = partial(_copy, row, job, file, reader, head)
                _publish(row, job, source, target, file.name, announce, copy)
        except Exception as error:
            _fail(row, error)
        yield _Loaded(row)
