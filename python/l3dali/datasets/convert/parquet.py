"""Parquet shards: images in binary columns, as Hugging Face data sets have them.

An image is a value of a binary column, or the field `bytes` of a struct, whose field `path`
is then its name; also inside lists and structs. Needs pyarrow.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from l3dali.console import shortened
from l3dali.datasets.convert.images import HEAD_BYTES, MOST_NAME, Blob, may_be_image, renamed
from l3dali.datasets.convert.storage import CHUNK_BYTES
from l3dali.errors import needs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from l3dali.datasets.convert.images import Options, Outcome
    from l3dali.datasets.convert.pipeline import ImagePool
    from l3dali.datasets.convert.storage import HashedWriter

SUFFIXES = (".parquet",)

_BATCH_BYTES = 8 * 2**20
_BATCH_ROWS = 1024
_GROUP_BYTES = 32 * 2**20
_DICTIONARY_BYTES = 2**20  # pyarrow's limit: a larger one is not used to its end
_MOST_DICTIONARY_BYTES = 2**27
_GROWTH = 4  # of images that are in a dictionary
_INT96_SECONDS = 2**63 // 10**9  # from 1970: the range of 64-bit nanoseconds
_ROWS_A_BYTE, _FREE_ROWS = 100, 2**20
_MAGIC = b"PAR1"  # at both ends of a file

# Called with name, column, value and row of each value that may be an image; gives the new value
# and the new name, or None if both stay.
_Change = Callable[[str, str, Any, int], "tuple[bytes, str] | None"]


@dataclass
class Rows:
    """Some rows of a row group, and what may be images in them."""

    batch: Any  # pyarrow.RecordBatch
    group: int
    blobs: Sequence[Blob]
    rows: Sequence[int]  # of each blob, in the batch
    bytes: int  # in memory, images twice
    origin: Any = None  # of Arrow: the whole pyarrow.RecordBatch and its metadata


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
    """The bytes of a file, which stays where it is."""
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
    """Refuses rows out of all proportion to the file: each takes time, even if it holds nothing."""
    if rows > max(_FREE_ROWS, _ROWS_A_BYTE * (size := size_of(source))):
        raise TableError(f"{rows} rows in a file of {size} bytes")


def open_file(source: BinaryIO, **options: Any) -> Any:
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
        opened = {"buffer_size": 2**20, "pre_buffer": False, **options}
        file = pyarrow.parquet.ParquetFile(source, page_checksum_verification=True, **opened)
        check_rows(file.metadata.num_rows, source)
        # Of `cat a b` pyarrow reads the pages of a with the footer of b.
        if has_behind(source, _end_of_pages(file.metadata), 2 * _MAGIC):
            raise TableError("a file behind another: files in one file are not supported")
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
    yield from _read_rows(source, open_file(source), options)


def _read_rows(source: BinaryIO, file: Any, options: Options) -> Iterator[Rows]:
    first_row = 0
    with reporting_damage("a damaged Parquet file"):
        _check_times(source, file)
        for group in range(file.metadata.num_row_groups):
            shape = file.metadata.row_group(group)
            row_bytes = max(1, shape.total_byte_size // max(1, shape.num_rows))
            count = min(max(1, _BATCH_BYTES // row_bytes), _BATCH_ROWS)
            for batch in file.iter_batches(count, [group]):
                yield rows_of(batch, group, first_row, batch.nbytes, options)
                first_row += len(batch)
        # pyarrow ends silently at a page of an unknown kind.
        if first_row != file.metadata.num_rows:
            raise TableError("a damaged Parquet file: it has not the rows that its footer names")


def _check_times(source: BinaryIO, file: Any) -> None:
    """Refuses times of the old 96-bit type that overflow pyarrow's nanoseconds of 64 bits."""
    from pyarrow import compute, types

    columns = map(file.schema.column, range(len(file.schema)))
    names = [each.path for each in columns if each.physical_type == "INT96"]
    if not names:
        return
    seconds = open_file(source, coerce_int96_timestamp_unit="s")
    for batch in seconds.iter_batches(columns=names):
        arrays = list(batch.columns)
        while arrays:
            array = arrays.pop()
            if not types.is_timestamp(array.type):
                inner = array.flatten()
                arrays += inner if types.is_struct(array.type) else [inner]
            elif (compute.max(compute.abs(array.cast("int64"))).as_py() or 0) >= _INT96_SECONDS:
                raise TableError("a time of INT96 outside of the years 1678 to 2261: cast it")


def rows_of(batch: Any, group: int, first_row: int, size: int, options: Options) -> Rows:
    """Rows of a pyarrow.RecordBatch of `size` bytes, the first of them `first_row`."""
    blobs: list[Blob] = []
    rows: list[int] = []

    def collect(name: str, column: str, value: Any, row: int) -> None:
        buffer = value.as_buffer()
        if may_be_image(name, buffer[:HEAD_BYTES].to_pybytes(), options):
            place = f"row {first_row + row}, {shortened(name)}"
            blobs.append(Blob(name, buffer.to_pybytes(), place, column))
            rows.append(row)

    _change_images(batch, collect)
    return Rows(batch, group, blobs, rows, size + sum(len(blob.data) for blob in blobs))


def write_entries(source: BinaryIO, target: HashedWriter, pool: ImagePool) -> str | None:
    """Converts a file; there is no index to return."""
    import pyarrow.parquet

    file = open_file(source)
    pending: list[Any] = []
    group = pending_bytes = 0
    found = _read_rows(source, file, pool.options)
    # Reading raises at a compression that pyarrow does not know; to ask for it aborts.
    first = iter(list(islice(found, 1)))
    with pyarrow.parquet.ParquetWriter(
        Sink(target), file.schema_arrow, **_writer_options(file)
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

        for rows, outcomes in pool.convert(chain(first, found)):
            # Row groups end where they did; very large ones are split to save memory.
            if rows.group != group or pending_bytes > _GROUP_BYTES:
                flush()
            group = rows.group
            pending.append(rebuilt(rows, outcomes, pool.options))
            pending_bytes += pending[-1].nbytes
            del rows, outcomes
        flush()
        pairs = (file.metadata.metadata or {}).items()
        # The writer has those of Arrow's schema, of which the footer may have newer values.
        known = file.schema_arrow.metadata or {}
        further = {key: value for key, value in pairs if value != known.get(key)}
        further.pop(b"ARROW:schema", None)
        if further:
            writer.add_key_value_metadata(further)
    return None


def rebuilt(rows: Rows, outcomes: Sequence[Outcome | None], options: Options) -> Any:
    """The batch with results in the place of images."""
    import pyarrow

    results = iter(zip(rows.blobs, outcomes, strict=True))
    current = next(results, None)

    def change(name: str, _column: str, value: Any, row: int) -> tuple[bytes, str] | None:
        nonlocal current
        if not may_be_image(name, value.as_buffer()[:HEAD_BYTES].to_pybytes(), options):
            return None
        assert current is not None
        outcome = current[1]
        current = next(results, None)
        if outcome is None or outcome.data is None:
            return None
        return outcome.data, renamed(name, outcome.suffix)

    batch = _change_images(rows.batch, change)
    kept = np.array(rows_kept(rows, outcomes, options), np.bool_)
    columns = batch.columns if kept.all() else [only(column, kept) for column in batch.columns]
    return pyarrow.RecordBatch.from_arrays(columns, schema=batch.schema)


def only(column: Any, kept: NDArray[np.bool_]) -> Any:
    """The rows of a column that are kept; pyarrow 26 filters neither views nor values in runs."""
    import pyarrow

    with contextlib.suppress(pyarrow.ArrowNotImplementedError):
        return column.filter(pyarrow.array(kept))
    edges = np.flatnonzero(np.diff(kept, prepend=False, append=False)).tolist()
    runs = [column.slice(i, end - i) for i, end in zip(edges[::2], edges[1::2], strict=True)]
    return pyarrow.concat_arrays(runs or [column.slice(0, 0)])


def rows_kept(rows: Rows, outcomes: Sequence[Outcome | None], options: Options) -> list[bool]:
    """For each row whether it stays: with `drop` it goes where an image has failed."""
    kept = [True] * len(rows.batch)
    if options.on_error == "drop":
        for row, outcome in zip(rows.rows, outcomes, strict=True):
            kept[row] &= outcome is None or not outcome.failed
    return kept


def _change_images(batch: Any, change: _Change) -> Any:
    import pyarrow

    rows = np.arange(len(batch))
    columns = [
        _changed(column, name[-MOST_NAME:], rows, change)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=batch.schema)


def _changed(array: Any, name: str, rows: NDArray[np.int64], change: _Change) -> Any:
    """The array with what `change` gives; the same array if that gives nothing."""
    import pyarrow
    import pyarrow.compute
    from pyarrow import types

    type = array.type
    if not may_hold_images(type):
        return array
    if _is_binary(type):
        return _changed_values(array, name, [name] * len(array), rows, change)[0]
    if types.is_struct(type):
        return _changed_struct(array, name, rows, change)
    lengths = pyarrow.compute.list_value_length(array).fill_null(0).to_numpy()
    values = array.flatten()  # but those below null lists
    new_values = _changed(values, name, np.repeat(rows, lengths), change)
    return array if new_values is values else lists_of(array, new_values, type)


def _changed_struct(array: Any, name: str, rows: NDArray[np.int64], change: _Change) -> Any:
    import pyarrow

    type = list(array.type)
    fields = array.flatten()  # What is below a null may be anything.
    changed = list(fields)
    places = {field.name: i for i, field in reversed([*enumerate(type)])}
    image, path = places.get("bytes"), places.get("path")
    if image is not None and not _is_binary(type[image].type):
        image = path = None
    if path is not None and not _holds_names(type[path].type):
        path = None
    for i, field in enumerate(type):
        if image is None or i not in (image, path):
            called = f"{name}/{field.name}"[-MOST_NAME:]
            changed[i] = _changed(fields[i], called, rows, change)
    if image is not None:
        paths = [None] * len(array) if path is None else fields[path].to_pylist()
        names = [old if isinstance(old, str) and old else name for old in paths]
        changed[image], new_names = _changed_values(fields[image], name, names, rows, change)
        if path is not None and changed[image] is not fields[image]:
            new_paths = [
                new if isinstance(old, str) and old else old
                for old, new in zip(paths, new_names, strict=True)
            ]
            changed[path] = pyarrow.array(new_paths, type[path].type)
    if all(new is old for new, old in zip(changed, fields, strict=True)):
        return array
    for i, new in enumerate(changed):
        if new is fields[i]:
            changed[i] = array.field(i)
        elif not type[i].nullable and _is_binary(new.type):
            changed[i] = _filled(new, b"")
        elif not type[i].nullable and i == path:
            changed[i] = _filled(new, "")
    return pyarrow.StructArray.from_arrays(changed, fields=type, mask=array.is_null())


def _holds_names(type: Any) -> bool:
    """Whether values are text."""
    from pyarrow import types

    type = getattr(type, "storage_type", None) or _value_type(type)
    is_large = types.is_large_string(type)
    return bool(is_large or types.is_string(type) or types.is_string_view(type))


def _filled(array: Any, value: bytes | str) -> Any:
    """The array without nulls."""
    import pyarrow

    owned = pyarrow.large_binary() if isinstance(value, bytes) else pyarrow.large_string()
    return array.cast(owned).fill_null(value).cast(array.type)


def lists_of(array: Any, values: Any, type: Any) -> Any:
    """Lists of the same lengths, of other values: as many as `array.flatten()` has."""
    import pyarrow
    import pyarrow.compute
    from pyarrow import types

    if types.is_fixed_size_list(type):  # Those that are null have places, too.
        has_value = np.repeat(np.asarray(array.is_valid()), type.list_size)
        places = pyarrow.array(np.cumsum(has_value) - 1, mask=~has_value)
        return pyarrow.FixedSizeListArray.from_arrays(
            values.take(places), type=type, mask=array.is_null()
        )
    offsets = [0]
    for length in pyarrow.compute.list_value_length(array).to_pylist():
        offsets.append(offsets[-1] + (length or 0))
    list_array = pyarrow.ListArray if types.is_list(type) else pyarrow.LargeListArray
    offset_type = pyarrow.int32() if types.is_list(type) else pyarrow.int64()
    return list_array.from_arrays(
        pyarrow.array(offsets, offset_type), values, type=type, mask=array.is_null()
    )


def _changed_values(
    array: Any, column: str, names: list[str], rows: NDArray[np.int64], change: _Change
) -> tuple[Any, list[str]]:
    """The array of binary values and their names, as `change` wants them."""
    import pyarrow
    from pyarrow import types

    type = array.type
    is_shared = types.is_dictionary(type)
    old = [value.value if is_shared else value for value in array]
    new = [
        change(name, column, value, int(row)) if value.is_valid else None
        for name, value, row in zip(names, old, rows, strict=True)
    ]
    if not any(new):
        return array, names
    values = [
        value.as_py() if pair is None else pair[0] for value, pair in zip(old, new, strict=True)
    ]
    new_names = [name if pair is None else pair[1] for name, pair in zip(names, new, strict=True)]
    if types.is_fixed_size_binary(type):
        raise TableError(f"images in a column of {type}; cast it to binary")
    changed = pyarrow.array(values, type if _is_plain(type) else pyarrow.large_binary())
    if isinstance(changed, pyarrow.ChunkedArray):
        raise TableError(f"images of one row that take 2 GiB: cast {type} to large_binary")
    if is_shared:
        changed = changed.dictionary_encode()
    return changed.cast(type), new_names


def _is_binary(type: Any) -> bool:
    """Whether values are bytes, in any layout."""
    from pyarrow import types

    type = _value_type(type)
    return _is_plain(type) or types.is_binary_view(type) or types.is_fixed_size_binary(type)


def _value_type(type: Any) -> Any:
    """That of the values, in a dictionary or not."""
    from pyarrow import types

    return type.value_type if types.is_dictionary(type) else type


@functools.lru_cache
def may_hold_images(type: Any) -> bool:
    """Whether `_changed` has anything to look at in values of this type."""
    from pyarrow import types

    if is_list(type):
        return may_hold_images(type.value_type)
    if types.is_struct(type):
        return any(may_hold_images(field.type) for field in type)
    return _is_binary(type)


def is_list(type: Any) -> bool:
    """Whether values are lists that are looked into."""
    from pyarrow import types

    return bool(types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type))


def _is_plain(type: Any) -> bool:
    from pyarrow import types

    return bool(types.is_binary(type) or types.is_large_binary(type))


def _writer_options(file: Any) -> dict[str, Any]:
    """How the source was written: names, compression and dictionaries of each column."""
    own, kinds = _columns(file)
    # Items of lists have the name of the standard, or the one of Arrow's schema.
    standard, written = _written_columns(file, is_standard=True)
    others, _ = _written_columns(file, is_standard=False)
    _check_types(file, own, kinds, written)
    is_standard = own == standard or own != others
    named = standard if is_standard else others
    paths = named if len(named) == len(own) else own
    options: dict[str, Any] = {"use_compliant_nested_type": is_standard}
    zones = {kind["isAdjustedToUTC"] for kind in kinds if kind["Type"] == "Time"}
    if len(zones) > 1:
        raise TableError("times of day of UTC and of no zone: pyarrow writes one kind")
    if True in zones:
        options["write_time_adjusted_to_utc"] = True
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    if not groups:
        return options
    columns = [[group.column(i) for group in groups] for i in range(len(paths))]
    shared = [[each for each in column if each.has_dictionary_page] for column in columns]
    # Images may grow, and a dictionary that is cut is not used for the rows behind it.
    sizes = [
        _GROWTH * (each.data_page_offset - each.dictionary_page_offset) for each in chain(*shared)
    ]
    return options | {
        "compression": {
            path: "NONE" if column[0].compression == "UNCOMPRESSED" else column[0].compression
            for path, column in zip(paths, columns, strict=True)
        },
        "use_dictionary": [path for path, found in zip(paths, shared, strict=True) if found]
        or False,
        "dictionary_pagesize_limit": min(max(_DICTIONARY_BYTES, *sizes, 0), _MOST_DICTIONARY_BYTES),
    }


def _columns(file: Any) -> tuple[list[str], list[dict[str, Any]]]:
    """Path and logical type of each column."""
    fields = [file.schema.column(i) for i in range(len(file.schema))]
    kinds = [json.loads(field.logical_type.to_json()) for field in fields]
    return [field.path for field in fields], kinds


def _written_columns(file: Any, *, is_standard: bool) -> tuple[list[str], list[dict[str, Any]]]:
    """The columns of a file that pyarrow writes."""
    import pyarrow.parquet

    sink = io.BytesIO()
    options = {"use_compliant_nested_type": is_standard}
    with pyarrow.parquet.ParquetWriter(sink, file.schema_arrow, **options):
        pass  # no rows
    return _columns(pyarrow.parquet.ParquetFile(sink))


_PLAIN_TYPES = {"None", "Int"}  # Integers of 32 and 64 bits need no logical type.


def _check_types(
    file: Any, paths: list[str], kinds: list[dict[str, Any]], written: list[dict[str, Any]]
) -> None:
    """Refuses columns of which pyarrow would write the bytes alone, not what they mean."""
    lost = [
        f"{path!r} of type {kind['Type']}"
        for path, kind, now in zip(paths, kinds, written, strict=False)
        if kind["Type"] not in {now["Type"], *_PLAIN_TYPES}
    ]
    lost += ["one of type Variant"] * bool(_VARIANT.search(str(file.schema)))
    if lost:
        raise TableError(
            f"a column that pyarrow does not keep: {lost[0]}; cast it, or update pyarrow"
        )


_VARIANT = re.compile(r" \(Variant\(\d+\)\) \{$", re.MULTILINE)  # the type of a group


class Sink(io.RawIOBase):
    """What pyarrow needs of a file to write to."""

    def __init__(self, target: HashedWriter) -> None:
        self._target = target

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._target.bytes

    def write(self, data: Any) -> int:
        self._target.write(bytes(data))
        return len(data)
