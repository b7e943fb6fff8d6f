"""Parquet shards: images in binary columns, as Hugging Face data sets have them.

An image is a value of a binary column, or the field `bytes` of a struct, where the field `path`
is its name; also inside lists and structs. Needs pyarrow.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable
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

    from l3dali.datasets.convert.images import Options, Outcome
    from l3dali.datasets.convert.pipeline import ImagePool
    from l3dali.datasets.convert.storage import HashedWriter

SUFFIXES = (".parquet",)

_BATCH_BYTES, _BATCH_ROWS = 8 * 2**20, 1024  # read at a time
_PART_BYTES = 2**20  # of images, converted at a time
_GROUP_BYTES = 32 * 2**20
_DICTIONARY_BYTES = 2**20  # pyarrow's limit
_MOST_DICTIONARY_BYTES = 2**27
_GROWTH = 4  # of images in a dictionary
_ROWS_A_BYTE, _FREE_ROWS = 100, 2**20
_MAGIC = b"PAR1"  # at both ends of a file

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


class TableError(ValueError):
    """A Parquet or Arrow file that is damaged, or cannot be converted."""


@contextlib.contextmanager
def reporting_damage(what: str) -> Iterator[None]:
    """Turns errors of pyarrow, except those of memory, into TableError."""
    import pyarrow

    try:
        yield
    except MemoryError:
        raise
    except (pyarrow.ArrowException, OSError, EOFError) as error:
        raise TableError(f"{what}: {error}") from error


def size_of(source: BinaryIO) -> int:
    """The size of a file; its position is kept."""
    start = source.tell()
    size = source.seek(0, 2)
    source.seek(start)
    return size


def has_behind(source: BinaryIO, start: int, wanted: bytes) -> bool:
    """Whether these bytes lie at `start` or behind it."""
    source.seek(start)
    last = b""
    while chunk := source.read(CHUNK_BYTES):
        if wanted in last + chunk:
            return True
        last = chunk[1 - len(wanted) :]
    return False


def check_rows(rows: int, source: BinaryIO) -> None:
    """Refuses more rows than the file can sensibly have: even empty rows take time."""
    if rows > max(_FREE_ROWS, _ROWS_A_BYTE * (size := size_of(source))):
        raise TableError(f"a damaged Parquet file: {rows} rows in {size} bytes")


def _open(source: BinaryIO) -> Any:
    """The pyarrow.parquet.ParquetFile of an open file.

    Raises:
        UsageError: pyarrow is missing.
        TableError: the file is damaged.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise needs("pyarrow", "Parquet") from None
    with reporting_damage("not a whole Parquet file"):
        file = pyarrow.parquet.ParquetFile(
            source,
            buffer_size=2**20,
            pre_buffer=False,
            page_checksum_verification=True,
            coerce_int96_timestamp_unit="us",  # Nanoseconds would overflow from the year 2262.
        )
        check_rows(file.metadata.num_rows, source)
        # pyarrow would read `cat a b` as the pages of a with the footer of b.
        if has_behind(source, _end_of_pages(file.metadata), 2 * _MAGIC):
            raise TableError("several Parquet files in one file are not supported")
    return file


def _end_of_pages(metadata: Any) -> int:
    end = 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            first = column.dictionary_page_offset or column.data_page_offset
            end = max(end, first + column.total_compressed_size)
    return end


def read_entries(source: BinaryIO, options: Options) -> Iterator[Rows]:
    """Reads the rows of a file, some at a time.

    Raises:
        TableError: the file is damaged.
    """
    yield from _read_rows(_open(source), options)


def _read_rows(file: Any, options: Options) -> Iterator[Rows]:
    first_row = 0
    with reporting_damage("a damaged Parquet file"):
        for group in range(file.metadata.num_row_groups):
            shape = file.metadata.row_group(group)
            row_bytes = max(1, shape.total_byte_size // max(1, shape.num_rows))
            count = min(max(1, _BATCH_BYTES // row_bytes), _BATCH_ROWS)
            for batch in file.iter_batches(count, [group]):
                yield from rows_of(batch, group, first_row, batch.nbytes, options)
                first_row += len(batch)
        # pyarrow ends silently at a page of an unknown kind.
        if first_row != file.metadata.num_rows:
            raise TableError("a damaged Parquet file: it has fewer rows than its footer lists")


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


def write_entries(source: BinaryIO, target: HashedWriter, pool: ImagePool) -> str | None:
    """Converts a file; there is no index to return."""
    import pyarrow.parquet

    file = _open(source)
    pending: list[Any] = []
    group = pending_bytes = 0
    with pyarrow.parquet.ParquetWriter(
        target, file.schema_arrow, **_writer_options(file)
    ) as writer:

        def flush() -> None:
            nonlocal pending_bytes
            if pending:
                table = pyarrow.Table.from_batches(pending)
                with contextlib.suppress(pyarrow.ArrowException):  # Some cannot be compared.
                    table = table.unify_dictionaries()
                writer.write_table(table, row_group_size=max(1, len(table)))
            pending.clear()
            pending_bytes = 0

        for rows, batch in converted(_read_rows(file, pool.options), pool):
            # Row groups end where they did; very large ones are split to save memory.
            if rows.group != group or pending_bytes > _GROUP_BYTES:
                flush()
            group = rows.group
            pending.append(batch)
            pending_bytes += batch.nbytes
        flush()
        pairs = (file.metadata.metadata or {}).items()
        # The writer has those of Arrow's schema, of which the footer may have newer values.
        known = file.schema_arrow.metadata or {}
        further = {key: value for key, value in pairs if value != known.get(key)}
        further.pop(b"ARROW:schema", None)
        if further:
            writer.add_key_value_metadata(further)
    return None


def converted(entries: Iterable[Rows], pool: ImagePool) -> Iterator[tuple[Rows, Any]]:
    """Each batch with results in the place of images, and the last of its entries.

    Raises:
        TableError: there are no images, but paths of images.
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
        raise TableError(
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
        raise TableError(f"images in a column of {type} are not supported; cast it to binary")
    changed = pyarrow.array(values, type if _is_plain(type) else pyarrow.large_binary())
    if isinstance(changed, pyarrow.ChunkedArray):
        raise TableError(f"the images of one row take 2 GiB or more: cast {type} to large_binary")
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


def _writer_options(file: Any) -> dict[str, Any]:
    """How the source was written: names, compression and dictionaries of each column.

    Raises:
        TableError: pyarrow would lose the logical type of a column.
    """
    import pyarrow.parquet

    own = _columns(file)
    # Items of lists have the name of the standard, or of Arrow's schema.
    options: dict[str, Any] = {
        "use_compliant_nested_type": not any(".list.item" in path for path, _ in own)
    }
    sink = io.BytesIO()
    with pyarrow.parquet.ParquetWriter(sink, file.schema_arrow, **options):
        pass  # no rows
    written = _columns(pyarrow.parquet.ParquetFile(sink))
    for (path, kind), (_, now) in zip(own, written, strict=False):
        if kind not in (now, "NONE", "INT"):  # Plain integers need no logical type.
            raise TableError(
                f"pyarrow cannot keep column {path!r} of type {kind}; cast it, or update pyarrow"
            )
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    if not groups:
        return options
    paths = [path for path, _ in (written if len(written) == len(own) else own)]
    columns = [[group.column(i) for group in groups] for i in range(len(paths))]
    shared = [[each for each in column if each.has_dictionary_page] for column in columns]
    # Images may grow, and a full dictionary is not used for later rows.
    most = _GROWTH * max(
        (
            each.data_page_offset - each.dictionary_page_offset
            for column in shared
            for each in column
        ),
        default=0,
    )
    names = ("NONE" if c[0].compression == "UNCOMPRESSED" else c[0].compression for c in columns)
    return options | {
        "compression": dict(zip(paths, names, strict=True)),
        "use_dictionary": [path for path, each in zip(paths, shared, strict=True) if each] or False,
        "dictionary_pagesize_limit": min(max(_DICTIONARY_BYTES, most), _MOST_DICTIONARY_BYTES),
    }


def _columns(file: Any) -> list[tuple[str, str]]:
    """Path and logical type of each column."""
    fields = [file.schema.column(i) for i in range(len(file.schema))]
    return [(field.path, field.logical_type.type) for field in fields]
