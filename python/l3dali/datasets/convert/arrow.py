"""Arrow files, as `save_to_disk` of Hugging Face's datasets writes them: streams of record batches.

Images are found as in Parquet. Needs pyarrow.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from l3dali.console import shortened
from l3dali.datasets.convert.images import MOST_NAME, Blob, Entry, may_be_image, renamed
from l3dali.datasets.convert.storage import CHUNK_BYTES
from l3dali.errors import needs
from l3dali.signatures import HEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from l3dali.datasets.convert.images import Converter, Options, Outcome
    from l3dali.datasets.convert.storage import HashedWriter

KIND = "arrow"
SUFFIXES = (".arrow",)
IS_STREAMED, HAS_INDEX = False, False
_FILE_START = b"ARROW1"  # at both ends of a file; streams have none
_MARK = b"\xff" * 4 + bytes(4)  # the end of a stream
_MOST_PADDING = 128  # zero bytes behind it
_PART_BYTES = 2**20  # of images, converted at a time
# Called with name, column, value and row of each binary value; returns the new value and name, or
# None to keep both.
_Change = Callable[[str, str, Any, int], "tuple[bytes, str] | None"]


@dataclass
class Rows(Entry):
    """Some images of rows that were read together."""

    blobs: list[Blob]
    batch: Any  # all of these rows, a pyarrow.RecordBatch
    group: int  # the number of their row group
    rows: list[int]  # the row of each blob in the batch
    batch_bytes: int  # of memory; counted for the first part of the batch
    is_last: bool = True  # of the parts of this batch
    metadata: Any = None  # of the batch, in Arrow

    @property
    def bytes(self) -> int:
        """What it holds in memory."""
        return self.batch_bytes + super().bytes


@contextlib.contextmanager
def reporting_damage(what: str) -> Iterator[None]:
    """Turns errors of pyarrow, except those of memory, into ValueError."""
    import pyarrow

    try:
        yield
    except MemoryError:
        raise
    except (pyarrow.ArrowException, OSError, EOFError) as error:
        raise ValueError(f"{what}: {error}") from error


def has_behind(source: BinaryIO, start: int, wanted: bytes) -> bool:
    """Whether these bytes lie at `start` or behind it."""
    source.seek(start)
    last = b""
    while chunk := source.read(CHUNK_BYTES):
        if wanted in last + chunk:
            return True
        last = chunk[1 - len(wanted) :]
    return False


def rows_of(
    batch: Any, group: int, first_row: int, size: int, options: Options, metadata: Any = None
) -> Iterator[Rows]:
    """The images of a pyarrow.RecordBatch of `size` bytes, the first of its rows `first_row`."""
    parts = [Rows([], batch, group, [], size, metadata=metadata)]
    part_bytes = 0

    def collect(name: str, column: str, value: Any, row: int) -> None:
        nonlocal part_bytes
        if not _may_be_image(name, value, options):
            return
        if part_bytes > _PART_BYTES:
            parts[-1].is_last = False
            parts.append(Rows([], batch, group, [], 0, metadata=metadata))
            part_bytes = 0
        data = value.as_buffer().to_pybytes()
        place = f"row {first_row + row}, {shortened(name)}"
        parts[-1].blobs.append(Blob(name, data, place, column))
        parts[-1].rows.append(row)
        part_bytes += len(data)

    _change_images(batch, collect)
    yield from parts


def _may_be_image(name: str, value: Any, options: Options) -> bool:
    return may_be_image(name, value.as_buffer()[:HEAD_BYTES].to_pybytes(), options)


def converted(entries: Iterable[Rows], pool: Converter) -> Iterator[tuple[Rows, Any]]:
    """Each batch with results in the place of images, and the last of its entries.

    Raises:
        ValueError: there are no images, but paths of images.
    """
    outcomes: list[Outcome | None] = []
    rows: list[int] = []
    has_images, paths = False, ""
    for entry, found in pool.convert(entries):
        outcomes += found
        rows += entry.rows
        if not entry.is_last:
            continue
        has_images = has_images or bool(outcomes)
        paths = paths or _column_of_paths(entry.batch)
        yield entry, _rebuilt(entry.batch, rows, outcomes, pool.options)
        outcomes, rows = [], []
        del entry, found
    if paths and not has_images:
        raise ValueError(
            f"column {paths!r} has paths of images and no bytes: convert the folder of these "
            "images, or embed them with embed_table_storage of datasets"
        )


def _column_of_paths(batch: Any) -> str:
    """The name of a column of structs with paths and without bytes; "" if there is none."""
    from pyarrow import types

    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        fields = [each.name for each in column.type] if types.is_struct(column.type) else []
        if {"bytes", "path"} <= set(fields):
            nulls = [column.field(each).null_count for each in ("bytes", "path")]
            if nulls[1] < len(column) == nulls[0]:
                return str(name)
    return ""


def _rebuilt(
    batch: Any, rows: Sequence[int], outcomes: Sequence[Outcome | None], options: Options
) -> Any:
    """The batch with results in place of images; with `drop` without failed rows."""
    import pyarrow

    results = iter(outcomes)

    def change(name: str, _column: str, value: Any, row: int) -> tuple[bytes, str] | None:
        outcome = next(results) if _may_be_image(name, value, options) else None
        if outcome is None or outcome.data is None:
            return None
        return outcome.data, renamed(name, outcome.suffix)

    batch = _change_images(batch, change)
    kept = np.ones(len(batch), np.bool_)
    if options.on_error == "drop":
        pairs = zip(rows, outcomes, strict=True)
        kept[[row for row, outcome in pairs if outcome is not None and outcome.failed]] = False
    if kept.all():
        return batch
    # By slices: pyarrow 26 cannot filter views and run-end encoded values.
    edges = np.flatnonzero(np.diff(kept, prepend=False, append=False)).tolist()
    runs = [batch.slice(i, end - i) for i, end in zip(edges[::2], edges[1::2], strict=True)]
    columns = [
        pyarrow.concat_arrays([run.column(i) for run in runs or [batch.slice(0, 0)]])
        for i in range(batch.num_columns)
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=batch.schema)


def _change_images(batch: Any, change: _Change) -> Any:
    import pyarrow

    rows, valid = np.arange(len(batch)), np.ones(len(batch), np.bool_)
    columns = [
        _changed(column, name[-MOST_NAME:], rows, valid, change)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=batch.schema)


def _changed(
    array: Any, name: str, rows: NDArray[np.int64], valid: NDArray[np.bool_], change: _Change
) -> Any:
    """The array with the replacements of `change`; the same array without any.

    Values that are not `valid`, below a null, are undefined, and kept.
    """
    import pyarrow
    from pyarrow import types

    type = array.type
    if not may_hold_images(type):
        return array
    valid = valid & np.asarray(array.is_valid())
    if _is_binary(type):
        return _changed_values(array, name, [name] * len(array), rows, valid, change)[0]
    if types.is_struct(type):
        return _changed_struct(array, name, rows, valid, change)
    is_fixed = types.is_fixed_size_list(type)
    if is_fixed:
        lengths = np.full(len(array), type.list_size)
        first = array.offset * type.list_size
    else:
        offsets = np.asarray(array.offsets)
        lengths, first = np.diff(offsets), int(offsets[0])
    values = array.values.slice(first, int(lengths.sum()))
    new = _changed(values, name, np.repeat(rows, lengths), np.repeat(valid, lengths), change)
    if new is values:
        return array
    if is_fixed:
        return pyarrow.FixedSizeListArray.from_arrays(new, type=type, mask=array.is_null())
    lists = pyarrow.ListArray if types.is_list(type) else pyarrow.LargeListArray
    places = pyarrow.array(offsets - first, array.offsets.type)
    return lists.from_arrays(places, new, type=type, mask=array.is_null())


def _changed_struct(
    array: Any, name: str, rows: NDArray[np.int64], valid: NDArray[np.bool_], change: _Change
) -> Any:
    import pyarrow

    type = list(array.type)
    fields = [array.field(i) for i in range(len(type))]
    changed = list(fields)
    places = {field.name: i for i, field in reversed([*enumerate(type)])}
    image, path = places.get("bytes"), places.get("path")
    if image is not None and not _is_binary(type[image].type):
        image = None
    if image is None or (path is not None and not _is_text(type[path].type)):
        path = None
    for i, field in enumerate(type):
        if i not in (image, path):
            called = f"{name}/{field.name}"[-MOST_NAME:]
            changed[i] = _changed(fields[i], called, rows, valid, change)
    if image is not None:
        paths = [None] * len(array) if path is None else fields[path].to_pylist()
        names = [old or name for old in paths]
        changed[image], new = _changed_values(fields[image], name, names, rows, valid, change)
        if path is not None and new is not names:
            new_paths = [old and each for old, each in zip(paths, new, strict=True)]
            changed[path] = pyarrow.array(new_paths, type[path].type)
    if all(new is old for new, old in zip(changed, fields, strict=True)):
        return array
    return pyarrow.StructArray.from_arrays(changed, fields=type, mask=array.is_null())


def _changed_values(
    array: Any,
    column: str,
    names: list[str],
    rows: NDArray[np.int64],
    valid: NDArray[np.bool_],
    change: _Change,
) -> tuple[Any, list[str]]:
    """The array of binary values, and their names, with the replacements of `change`."""
    import pyarrow
    from pyarrow import types

    type = array.type
    is_shared = types.is_dictionary(type)
    old = [value.value if is_shared else value for value in array]
    new = [
        change(name, column, value, int(row)) if is_valid and value.is_valid else None
        for name, value, row, is_valid in zip(names, old, rows, valid, strict=True)
    ]
    if not any(new):
        return array, names
    values = [
        value.as_py() if pair is None else pair[0] for value, pair in zip(old, new, strict=True)
    ]
    new_names = [name if pair is None else pair[1] for name, pair in zip(names, new, strict=True)]
    if types.is_fixed_size_binary(type):
        raise ValueError(f"images in a column of {type} are not supported; cast it to binary")
    changed = pyarrow.array(values, type if _is_plain(type) else pyarrow.large_binary())
    if isinstance(changed, pyarrow.ChunkedArray):
        raise ValueError(f"the images of one row take 2 GiB or more: cast {type} to large_binary")
    if is_shared:
        changed = changed.dictionary_encode()
    return changed.cast(type), new_names


@functools.lru_cache
def may_hold_images(type: Any) -> bool:
    """Whether values of this type may contain images."""
    from pyarrow import types

    if types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type):
        return may_hold_images(type.value_type)
    if types.is_struct(type):
        return any(may_hold_images(field.type) for field in type)
    return _is_binary(type)


def _is_binary(type: Any) -> bool:
    """Whether values are bytes, in any layout."""
    from pyarrow import types

    type = type.value_type if types.is_dictionary(type) else type
    return _is_plain(type) or types.is_binary_view(type) or types.is_fixed_size_binary(type)


def _is_plain(type: Any) -> bool:
    from pyarrow import types

    return bool(types.is_binary(type) or types.is_large_binary(type))


def _is_text(type: Any) -> bool:
    from pyarrow import types

    type = type.value_type if types.is_dictionary(type) else type
    is_large = types.is_large_string(type)
    return bool(is_large or types.is_string(type) or types.is_string_view(type))


def read_entries(source: BinaryIO, options: Options) -> Iterator[Rows]:
    """Reads the rows of a file; a record batch is held whole.

    Raises:
        UsageError: pyarrow is missing.
        ValueError: the file is damaged.
    """
    yield from _read_rows(source, _open(source), options)


def write_entries(source: BinaryIO, target: HashedWriter, pool: Converter) -> str | None:
    """Converts a file, to the same kind; record batches end where they did. There is no index."""
    reader = _open(source)
    from pyarrow import ipc

    new = ipc.new_file if _is_file(source) else ipc.new_stream
    options = ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    pairs = getattr(reader, "metadata", None)  # of a file, in newer pyarrow
    extra = {"metadata": pairs} if pairs else {}
    with new(target, reader.schema, options=options, **extra) as writer:
        for rows, batch in converted(_read_rows(source, reader, pool.options), pool):
            writer.write_batch(batch, custom_metadata=rows.metadata)
    return None


def _is_file(source: BinaryIO) -> bool:
    place = source.tell()
    source.seek(0)
    is_file = source.read(len(_FILE_START)) == _FILE_START
    source.seek(place)
    return is_file


def _open(source: BinaryIO) -> Any:
    """The reader of a file, or of a stream."""
    try:
        from pyarrow import ipc
    except ImportError:
        raise needs("pyarrow", "Arrow") from None
    with reporting_damage("not a whole Arrow file"):
        if not _is_file(source):
            return ipc.open_stream(source)
        # pyarrow would read `cat a b` as the batches of a with the footer of b.
        if has_behind(source, 0, 2 * _FILE_START + bytes(2)):
            raise ValueError("several Arrow files in one file are not supported")
        return ipc.open_file(source)


def _batches(source: BinaryIO, reader: Any) -> Iterator[Any]:
    """Each pyarrow.RecordBatch, with its metadata."""
    if _is_file(source):
        for number in range(reader.num_record_batches):
            yield reader.get_batch_with_custom_metadata(number)
        return
    with suppress(StopIteration):
        while True:
            yield reader.read_next_batch_with_custom_metadata()
    end = source.tell()
    source.seek(max(0, end - len(_MARK)))
    has_mark = source.read(len(_MARK)) == _MARK
    # Without a mark, zeros may be the missing part of a download.
    rest = source.seek(0, 2) - end
    source.seek(end)
    if rest > has_mark * _MOST_PADDING or source.read().strip(b"\0"):
        raise ValueError("data after the end of the stream")


def _read_rows(source: BinaryIO, reader: Any, options: Options) -> Iterator[Rows]:
    first_row = 0
    with reporting_damage("a damaged Arrow file"):
        for group, (batch, metadata) in enumerate(_batches(source, reader)):
            batch.validate(full=True)  # Offsets of a damaged file may point anywhere.
            size = batch.get_total_buffer_size()  # nbytes crashes at empty unions (pyarrow 26).
            yield from rows_of(batch, group, first_row, size, options, metadata)
            first_row += len(batch)
