"""Reads possible images in files and shards; converts nothing."""

from __future__ import annotations

import contextlib
import re
import tempfile
from typing import TYPE_CHECKING, Any, BinaryIO

from l3dali.datasets.convert import arrow, parquet, tar, tfrecord, zip_archive
from l3dali.datasets.convert.images import Blob, Options, may_be_image
from l3dali.datasets.convert.storage import (
    CHUNK_BYTES,
    OWN_NAMES,
    HashedReader,
    LocalFolder,
    Stored,
    naming,
    open_folder,
)
from l3dali.datasets.convert.workers import (
    ChildDiedError,
    borrowed,
    is_limited,
    limited,
    report_progress,
    why_ended,
)
from l3dali.signatures import HEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from l3dali.datasets.convert.storage import Folder

FILES = "files"  # the kind of a job of files that are no shards
OTHER = "other"  # of a row: a copy
# A container is a module: README.md says what it has.
_CONTAINERS: tuple[Any, ...] = (tar, tfrecord, parquet, arrow, zip_archive)
SHARDS: dict[str, Any] = {module.KIND: module for module in _CONTAINERS}
_IN_PROCESS = re.compile(r"(^|::)memory:")  # storage of this process alone


def is_in_process(*urls: str) -> bool:
    """Whether one of these folders exists in this process alone."""
    return any(map(_IN_PROCESS.search, urls))


def kind_of(folder: Folder, file: Stored) -> str:
    """The kind of a job for the file."""
    name = file.name.lower()
    for kind, module in SHARDS.items():
        if name.endswith(module.SUFFIXES):
            return kind
    if tfrecord.may_be_shard(name):
        with contextlib.suppress(Exception), folder.open(file.name) as opened:  # The job reports.
            if tfrecord.is_tfrecord(opened.read(HEAD_BYTES)):
                return tfrecord.KIND
    return FILES


def kinds_of_sources(folder: Folder, files: Mapping[str, Stored]) -> dict[str, str]:
    """The kind of each file by name, except indexes of shards and files that runs write."""
    kinds = {
        name: kind_of(folder, file)
        for name, file in files.items()
        if name.rpartition("/")[2] not in OWN_NAMES
    }
    indexes = {index_name(name) for name, kind in kinds.items() if has_index(kind)}
    return {name: kind for name, kind in kinds.items() if name not in indexes}


def is_shard_name(name: str) -> bool:
    """Whether a file of this name may be a shard."""
    name = name.lower()
    suffixes = [suffix for module in SHARDS.values() for suffix in module.SUFFIXES]
    return name.endswith(tuple(suffixes)) or tfrecord.may_be_shard(name)


def has_index(kind: str) -> bool:
    """Whether shards of this kind have an index for DALI."""
    return kind in SHARDS and SHARDS[kind].HAS_INDEX


def read_blobs(
    url: str,
    name: str,
    kind: str,
    options: Options,
    finish: Callable[[str], object] | None = None,
) -> Iterator[Blob]:
    """Reads possible images in a file of a folder; raises OSError, or ValueError on damage.

    With `finish` the file is read to its end, and `finish` gets the SHA-256 of its bytes. Shards
    are read in a process with limits.
    """
    arguments = url, name, kind, options, finish is not None
    try:
        with contextlib.ExitStack() as stack:
            if kind == FILES or is_in_process(url) or is_limited():
                parts = _read(*arguments)
            else:
                parts = stack.enter_context(borrowed()).each(_read_limited, *arguments)
            for part in parts:
                if not isinstance(part, str):
                    yield from part
                elif finish is not None:
                    finish(part)
                del part
    except ChildDiedError as error:
        raise ValueError(why_ended(error)) from None


def _read_limited(
    url: str, name: str, kind: str, options: Options, whole: bool
) -> Iterator[Sequence[Blob] | str]:
    with limited(options.worker_memory):
        yield from _read(url, name, kind, options, whole)


def _read(
    url: str, name: str, kind: str, options: Options, whole: bool
) -> Iterator[Sequence[Blob] | str]:
    """Yields possible images, some at a time; if `whole`, the SHA-256 of the file at the end."""
    folder = open_folder(url)
    with folder.open(name, whole=whole) as opened, contextlib.ExitStack() as stack:
        reader = HashedReader(opened, folder.place(name))
        entries: Any = ()
        is_sought = kind in SHARDS and not SHARDS[kind].IS_STREAMED
        if kind == FILES:
            head = reader.read(HEAD_BYTES)
            if may_be_image(name, head, options):
                yield [Blob(name, reader.read(head=head), name)]
        elif is_sought:
            file = stack.enter_context(seekable(reader, folder)) if whole else opened
            entries = SHARDS[kind].read_entries(file, options)
        else:
            entries = SHARDS[kind].read_entries(reader, options)
        for entry in entries:
            yield entry.blobs
            report_progress()
            del entry
        if whole:
            while not is_sought and reader.read(CHUNK_BYTES):
                pass
            yield reader.hexdigest()


@contextlib.contextmanager
def seekable(reader: HashedReader, source: Folder) -> Iterator[BinaryIO]:
    """The file with random access, after all of it was hashed. Remote files are downloaded once."""
    if isinstance(source, LocalFolder):
        while reader.read(CHUNK_BYTES):
            pass
        reader.file.seek(0)
        yield reader.file
        return
    with tempfile.TemporaryFile() as copy:
        while chunk := reader.read(CHUNK_BYTES):
            with naming(tempfile.gettempdir()):
                copy.write(chunk)
        with naming(tempfile.gettempdir()):
            copy.seek(0)
        yield copy


def index_name(name: str) -> str:
    """The name of the DALI index of a shard."""
    for suffix in (suffix for m in _CONTAINERS if m.HAS_INDEX for suffix in m.SUFFIXES):
        if name.lower().endswith(suffix):
            return name[: -len(suffix)] + ".idx"
    return name + ".idx"
