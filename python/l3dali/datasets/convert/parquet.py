"""Parquet shards: images in binary columns, as Hugging Face data sets have them.

An image is a value of a binary column, or the field `bytes` of a struct, whose field `path`
is then its name; also inside lists and structs. Needs pyarrow.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import resource
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise, zip_longest
from multiprocessing import current_process
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from l3dali.console import shortened
from l3dali.datasets.convert.children import ChildDiedError, borrowed, new_pool
from l3dali.datasets.convert.images import HEAD_BYTES, MOST_NAME, Blob, may_be_image, renamed
from l3dali.datasets.convert.parquet_pages import (
    DELTA_BYTE_ARRAY,
    ParquetError,
    check_lengths,
    dictionary_bytes,
    pages,
    path_bytes,
)
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
PIECE_BYTES = 2**30  # of the results of a batch: offsets of 32 bits reach to 2 GiB
_EXPANDED_BYTES = 128 * 2**20  # of values that rows have in dictionaries, decoded at once
_INT96_SECONDS = 2**63 // 10**9  # from 1970, that nanoseconds of 64 bits reach
MOST_TIMES = 1100  # that values of rows may be larger than the file, as in a zip archive
_FREE_BYTES = 2**24  # of values, in any file
_ROWS_A_BYTE, _FREE_ROWS = 100, 2**20
_FREE_CELLS = 2**24  # rows of columns; of these too so many a byte
_FREE_ARRAYS, _BYTES_AN_ARRAY = 2**14, 2  # columns of parts: those of few rows cost as much
_BUFFERS_AN_ARRAY = 8  # of views, which each part has all
_VIEW = np.dtype([("length", "<i4"), ("rest", "V12")])
_FREE_JOINED, _BYTES_A_JOINED = 2**22, 4  # buffers of views, of a part's lists
_MOST_NAMES = 2**24  # characters of the paths of all columns
_VALUE_BYTES = 8  # of a value in a list, with how deep it lies
_FREE_PAGE_BYTES = 2**28  # of pages, in any file
_COPY_COST = 16  # So many bytes are copied in the time in which one expands.
_TAIL_BYTES = 8  # of a file, behind its footer
_MAGIC = b"PAR1"  # at both ends of a file

_idle = new_pool()

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
    origin: Any = None  # of Arrow: the whole pyarrow.RecordBatch and its metadata

    @property
    def bytes(self) -> int:
        """What it holds in memory, images twice."""
        return bytes_of(self.batch) + sum(len(blob.data) for blob in self.blobs)


def bytes_of(batch: Any) -> int:
    """What a batch takes, as its `nbytes`, which ends the process at empty unions (pyarrow 26)."""
    return sum(map(_bytes_of, batch.columns))


def _bytes_of(array: Any) -> int:
    from pyarrow import types

    if "union<" not in str(array.type):
        return int(array.nbytes)
    if is_list(array.type):
        return 8 * len(array) + _bytes_of(array.flatten())
    if types.is_union(array.type) or types.is_struct(array.type):
        return len(array) + sum(map(_bytes_of, map(array.field, range(array.type.num_fields))))
    return int(array.get_total_buffer_size())


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


class Claims:
    """Counts rows and values: a small file may claim any number of nulls, or of what rows share.

    Args:
        source: the file.
    """

    def __init__(self, source: BinaryIO) -> None:
        size = size_of(source)
        self._rows = max(_FREE_ROWS, _ROWS_A_BYTE * size)  # that are left
        self._cells = max(_FREE_CELLS, _ROWS_A_BYTE * size)
        self._arrays = max(_FREE_ARRAYS, size // _BYTES_AN_ARRAY)
        self._bytes = max(_FREE_BYTES, MOST_TIMES * size)
        self._page_bytes = max(_FREE_PAGE_BYTES, MOST_TIMES * size)
        self._most_joined = max(_FREE_JOINED, size // _BYTES_A_JOINED)

    def count(self, batch: Any) -> None:
        """Counts some rows, and what may be images in lists as rows.

        Raises:
            ParquetError: they are too many, or have no columns.
        """
        if len(batch) and not batch.num_columns:
            raise ParquetError("rows without columns")
        self._rows -= len(batch)
        for column in batch.columns:
            self._count(column)
        self._judge()

    def _judge(self) -> None:
        if min(self._rows, self._cells, self._arrays) < 0:
            raise ParquetError("too many rows or columns for the size of the file")
        if self._bytes < 0 or self._page_bytes < 0:
            raise ParquetError("the values of its rows are too many for the size of the file")

    def count_lists(self, group: Any, columns: Sequence[Any]) -> int:
        """Counts the values in lists that a row group claims, and gives their number.

        A value counts as one byte, or as the bytes that all of its column have.
        """
        in_lists = 0
        for i, column in enumerate(columns):
            more = max(0, int(group.column(i).num_values) - int(group.num_rows))
            in_lists += more
            self._bytes -= more * max(1, column.length)
        self._judge()
        if int(group.num_rows) > self._rows:
            raise ParquetError("too many rows or columns for the size of the file")
        return in_lists

    def count_part(self, batch: Any) -> None:
        """Counts the columns of a part that is to be joined with others."""
        self._arrays -= batch.num_columns
        self._judge()

    def count_pages(self, source: BinaryIO, group: Any, schema: Any) -> list[int]:
        """Counts what the pages of a row group take expanded, which may be more than its values.

        Returns:
            For each column the bytes in which a value may repeat all of those before it.
        """
        repeated = [0] * group.num_columns
        for i in range(group.num_columns):
            for page in pages(source, group.column(i)):
                self._page_bytes -= page.cost
                if self._page_bytes < 0:
                    raise ParquetError("its pages would take too much for the size of the file")
                check_lengths(source, page, group.column(i), schema.column(i))
                repeated[i] += page.expanded if page.encoding == DELTA_BYTE_ARRAY else 0
        return repeated

    def _count(self, array: Any) -> None:
        from pyarrow import compute, types

        type = array.type
        self._cells -= len(array)
        self._arrays -= 1 + (len(array.buffers()) // _BUFFERS_AN_ARRAY if is_view(type) else 0)
        self._judge()
        if types.is_struct(type):
            for field in fields_of(array):
                self._count(field)
        elif is_list(type):
            if may_hold_images(type) or _has_views(type):  # Others are not looked into.
                values = self._values(array)
                self._rows -= len(values)
                self._count(values)
        elif types.is_dictionary(type) and has_length(type.value_type):
            self._count_dictionary(array)
        elif has_length(type):
            self._bytes -= compute.sum(lengths_of(array)).as_py() or 0

    def _count_dictionary(self, array: Any) -> None:
        from pyarrow import compute

        self._page_bytes -= array.dictionary.nbytes // _COPY_COST  # Each part has its own.
        lengths = lengths_of(array.dictionary).take(array.indices)
        self._bytes -= compute.sum(lengths).as_py() or 0

    def are_too_many(self, size: int) -> bool:
        """Whether values of so many bytes would be."""
        return size > self._bytes

    def count_shared(self, array: Any) -> None:
        """Counts the bytes of values in dictionaries, however deep they are, each time."""
        from pyarrow import types

        if types.is_dictionary(array.type):
            self._count_dictionary(array)
            self._judge()
        for inner in _inner(array):
            self.count_shared(inner)

    def _values(self, array: Any) -> Any:
        """The values in lists, but those below null lists."""
        # pyarrow joins what is between null lists, each piece with all buffers of the values.
        nulls = array.null_count if _has_views(array.type) else 0
        if nulls and nulls * len(array.values.buffers()) > self._most_joined:
            raise ParquetError("null lists of views are too many")
        return array.flatten()


def open_file(source: BinaryIO, **options: Any) -> Any:
    """The pyarrow.parquet.ParquetFile of an open file.

    Raises:
        UsageError: pyarrow is missing.
        ParquetError: the file is damaged.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise needs("pyarrow", "Parquet") from None
    footer = _footer(source)
    if footer and path_bytes(footer) > _MOST_NAMES:  # pyarrow has them all, several times.
        raise ParquetError("the names of its columns are too long")
    try:
        opened = {"buffer_size": 2**20, "pre_buffer": False, **options}
        file = pyarrow.parquet.ParquetFile(source, page_checksum_verification=True, **opened)
    except (pyarrow.ArrowException, OSError) as error:
        raise ParquetError(f"not a whole Parquet file: {error}") from error
    damage, end = _look_apart(footer)
    if damage:
        raise ParquetError(f"a damaged Parquet file: {damage}")
    # Indexes and filters may lie there, and the footer.
    if has_behind(source, min(end, size_of(source)), 2 * _MAGIC):
        raise ParquetError("a file behind another: files in one file are not supported")
    return file


def _footer(source: BinaryIO) -> bytes:
    """The footer with what is behind it, empty if pyarrow will find none."""
    end = size_of(source)
    source.seek(max(0, end - _TAIL_BYTES))
    tail = source.read()
    size = int.from_bytes(tail[:4], "little") + _TAIL_BYTES  # Some may be spare.
    if not tail.endswith(_MAGIC) or size > end:
        return b""
    source.seek(end - size)
    return source.read()


def _look_apart(footer: bytes) -> tuple[str, int]:
    """Looks at columns in a child, or here if this is one that its parent can spare.

    Raises:
        ParquetError: the child has died: pyarrow 26 aborts at a damaged column.
    """
    if current_process().daemon:
        return _look_at_columns(footer)
    try:
        with borrowed(_idle) as child:
            return child.call(_look_at_columns, footer)
    except ChildDiedError as error:
        raise ParquetError(f"a damaged Parquet file: what read its footer {error}") from error


def _look_at_columns(footer: bytes) -> tuple[str, int]:
    """Looks at each column of each row group.

    Returns:
        What is damaged, "" if nothing is; and where the pages of the last one end.
    """
    import pyarrow.parquet

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with Path(os.devnull).open("wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        end = 0
        metadata = pyarrow.parquet.read_metadata(io.BytesIO(footer))
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                first = column.dictionary_page_offset or column.data_page_offset
                end = max(end, first + column.total_compressed_size)
    except Exception as error:
        return str(error), 0
    return "", end


def read_entries(source: BinaryIO, options: Options) -> Iterator[Rows]:
    """Reads the rows of a file, some at a time.

    Raises:
        ParquetError: the file is damaged.
    """
    yield from _read_rows(source, open_file(source), options)


def _read_rows(source: BinaryIO, file: Any, options: Options) -> Iterator[Rows]:
    import pyarrow

    first_row = end_row = 0
    claims = Claims(source)
    schema = file.schema
    columns = [schema.column(i) for i in range(len(schema))]
    in_dictionaries = list(_in_dictionaries(pyarrow.struct(file.schema_arrow)))
    if len(in_dictionaries) != len(columns):  # a type that pyarrow reads in another way
        in_dictionaries = [False] * len(columns)
    old_times = [column.path for column in columns if column.physical_type == "INT96"]
    in_lists = {
        i: column.path
        for i, column in enumerate(columns)
        if column.max_repetition_level and column.physical_type == "BYTE_ARRAY"
    }
    in_shared, apart = Claims(source), None  # of values in lists, read as dictionaries
    times = open_file(source, coerce_int96_timestamp_unit="s") if old_times else None
    try:
        for group in range(file.metadata.num_row_groups):
            shape = file.metadata.row_group(group)
            if shape.num_columns != len(columns) or any(
                shape.column(i).num_values != shape.num_rows
                for i, column in enumerate(columns)
                if not column.max_repetition_level
            ):
                raise ParquetError("a damaged Parquet file: columns of other lengths")
            list_values = claims.count_lists(shape, columns)
            repeated = claims.count_pages(source, shape, schema)
            group_bytes = max(shape.total_byte_size, _VALUE_BYTES * list_values)
            row_bytes = max(1, group_bytes // max(1, shape.num_rows))
            count = min(max(1, _BATCH_BYTES // row_bytes), _BATCH_ROWS)
            most = min(count, _most_rows(source, shape, repeated, in_dictionaries))
            rows = {"batch_size": most, "row_groups": [group]}
            shared = [
                path
                for i, path in in_lists.items()
                if claims.are_too_many(
                    shape.column(i).num_values * dictionary_bytes(source, shape.column(i))
                )
            ]
            if shared:  # The values of a row are read at once, in whatever lists they are.
                apart = apart or open_file(source, read_dictionary=list(in_lists.values()))
                for batch in apart.iter_batches(count, [group], columns=shared):
                    for column in batch.columns:
                        in_shared.count_shared(column)
            for batch in _joined(file.iter_batches(**rows), count // most, claims):
                claims.count(batch)
                yield rows_of(batch, group, first_row, options)
                first_row += len(batch)
            # Behind the rows, which have been judged, and apart: pyarrow may cut them elsewhere.
            for in_seconds in times.iter_batches(columns=old_times, **rows) if times else ():
                _check_times(in_seconds)
            end_row += shape.num_rows
        # pyarrow ends, without a word, where a page is of a kind that it does not know.
        if {first_row, end_row} != {file.metadata.num_rows}:
            raise ParquetError("a damaged Parquet file: it has not the rows that its footer names")
    except (pyarrow.ArrowException, OSError) as error:
        raise ParquetError(f"a damaged Parquet file: {error}") from error


def _check_times(batch: Any) -> None:
    """Refuses times of the old type of 96 bits that nanoseconds of 64 bits have not.

    Args:
        batch: the times, in seconds.
    """
    from pyarrow import compute, types

    arrays = list(batch.columns)
    while arrays:
        array = arrays.pop()
        if types.is_timestamp(array.type):
            seconds = compute.abs(array.cast("int64"))
            if (compute.max(seconds).as_py() or 0) >= _INT96_SECONDS:
                raise ParquetError("a time of INT96 outside of the years 1678 to 2261: cast it")
        elif types.is_struct(array.type):
            arrays += array.flatten()
        else:
            arrays.append(array.storage if hasattr(array, "storage") else array.flatten())


def rows_of(batch: Any, group: int, first_row: int, options: Options) -> Rows:
    """Rows of a pyarrow.RecordBatch, the first of them `first_row`, with what may be images."""
    blobs: list[Blob] = []
    rows: list[int] = []

    def collect(name: str, column: str, value: Any, row: int) -> None:
        buffer = value.as_buffer()
        if may_be_image(name, buffer[:HEAD_BYTES].to_pybytes(), options):
            place = f"row {first_row + row}, {shortened(name)}"
            blobs.append(Blob(name, buffer.to_pybytes(), place, column))
            rows.append(row)

    _change_images(batch, collect)
    return Rows(batch, group, blobs, rows)


def _joined(batches: Iterator[Any], most: int, claims: Claims) -> Iterator[Any]:
    """Joins up to `most` batches that turn out to be small: each costs what a large one does."""
    import pyarrow

    if most == 1:
        yield from batches
        return
    joined: list[Any] = []
    size = 0
    for batch in chain(batches, [None]):
        more = 0 if batch is None else batch.get_total_buffer_size()
        if joined and (batch is None or len(joined) == most or size + more > _BATCH_BYTES):
            with contextlib.suppress(pyarrow.ArrowNotImplementedError):  # of dictionaries in lists
                joined = pyarrow.Table.from_batches(joined).combine_chunks().to_batches()
            yield from joined
            joined, size = [], 0
        if batch is not None:
            claims.count_part(batch)
            joined.append(batch)
            size += more


def _in_dictionaries(type: Any) -> Iterator[bool]:
    """For each column of a type in a file whether it is read as a dictionary, not of images."""
    import pyarrow

    if isinstance(type, pyarrow.BaseExtensionType):
        type = type.storage_type
    if type.num_fields == 0:
        yield pyarrow.types.is_dictionary(type) and not may_hold_images(type)
    for i in range(type.num_fields):
        yield from _in_dictionaries(type.field(i).type)


def _most_rows(
    source: BinaryIO, group: Any, repeated: Sequence[int], in_dictionaries: Sequence[bool]
) -> int:
    """How many rows of a group fit in memory where each has the largest value there can be.

    Of a dictionary, it is in the file once, however often rows have it, and takes up to all of it.
    """
    largest = sum(repeated)
    for i in range(group.num_columns):
        column = group.column(i)
        if column.physical_type.endswith("BYTE_ARRAY") and not in_dictionaries[i]:
            largest += dictionary_bytes(source, column)
    return int(max(1, _EXPANDED_BYTES // max(1, largest)))


def write_entries(source: BinaryIO, target: HashedWriter, pool: ImagePool) -> str | None:
    """Converts a file; there is no index to return."""
    import pyarrow.parquet

    file = open_file(source)
    pending: list[Any] = []
    group = pending_bytes = shared_bytes = 0
    columns: list[Any] = []  # of the last part
    are_equal = True  # the dictionaries of pending
    found = _read_rows(source, file, pool.options)
    # Reading raises at a compression that pyarrow does not know; to ask for it aborts.
    first = iter(list(islice(found, 1)))
    with pyarrow.parquet.ParquetWriter(
        Sink(target), file.schema_arrow, **_writer_options(source, file)
    ) as writer:

        def flush() -> None:
            nonlocal pending_bytes
            if pending:
                table = pyarrow.Table.from_batches(pending)
                # Several would not be written as one. It takes long where they are equal, too.
                with contextlib.suppress(pyarrow.ArrowException):  # Some cannot be compared.
                    table = table if are_equal else table.unify_dictionaries()
                writer.write_table(table, row_group_size=max(1, len(table)))
            pending.clear()
            pending_bytes = 0

        for rows, outcomes in pool.convert(chain(first, found)):
            for batch in rebuilt(rows, outcomes, pool.options):
                # Row groups end where they did; very large ones are split to save memory.
                if rows.group != group or pending_bytes > max(_GROUP_BYTES, 2 * shared_bytes):
                    flush()
                group = rows.group
                sizes: list[tuple[int, bool]] = []
                old_and_new = zip_longest(columns, batch.columns)
                columns = [_shared(old, new, sizes) for old, new in old_and_new]
                shared_bytes = sum(size for size, _ in sizes)
                are_equal = not pending or (are_equal and all(is_old for _, is_old in sizes))
                pending.append(pyarrow.RecordBatch.from_arrays(columns, schema=batch.schema))
                pending_bytes += batch.nbytes - sum(size for size, is_old in sizes if is_old)
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


def _shared(before: Any, array: Any, found: list[tuple[int, bool]]) -> Any:
    """The array with the dictionaries of one before, where they are equal.

    pyarrow gives each part of a row group all of the dictionary, anew.

    Args:
        before: of the same type, or None.
        array: what may have dictionaries, in lists and structs too.
        found: gets of each dictionary its bytes, and whether it is that of before.
    """
    import pyarrow
    from pyarrow import types

    type = array.type
    if types.is_dictionary(type):
        is_old = before is not None and array.dictionary.equals(before.dictionary)
        found.append((array.dictionary.nbytes, is_old))
        if not is_old:
            return array
        values, ordered = before.dictionary, type.ordered
        return pyarrow.DictionaryArray.from_arrays(array.indices, values, ordered=ordered)
    if "dictionary<" in str(type) and types.is_struct(type):
        fields = [
            _shared(None if before is None else before.field(i), array.field(i), found)
            for i in range(type.num_fields)
        ]
        return pyarrow.StructArray.from_arrays(fields, fields=list(type), mask=array.is_null())
    if "dictionary<" in str(type) and is_list(type):
        old = None if before is None else before.values
        return lists_of(array, _shared(old, array.flatten(), found), type)
    if "dictionary<" in str(type):
        found.append((0, False))
    return array


def rebuilt(rows: Rows, outcomes: Sequence[Outcome | None], options: Options) -> Iterator[Any]:
    """The batch with results in the place of images, cut where these take `PIECE_BYTES`."""
    results = [*zip(rows.rows, rows.blobs, outcomes, strict=True)]
    sizes = np.zeros(len(rows.batch), np.int64)
    for row, blob, outcome in results:
        data = None if outcome is None else outcome.data
        sizes[row] += len(blob.data if data is None else data)
    cuts = [0]
    size = 0
    for row, row_bytes in enumerate(sizes.tolist()):
        if size and size + row_bytes > PIECE_BYTES:
            cuts.append(row)
            size = 0
        size += row_bytes
    for start, end in pairwise([*cuts, len(rows.batch)]):
        part = [each for each in results if start <= each[0] < end]
        piece = replace(
            rows,
            batch=rows.batch.slice(start, end - start),
            blobs=[blob for _, blob, _ in part],
            rows=[row - start for row, _, _ in part],
        )
        yield _rebuilt(piece, [outcome for _, _, outcome in part], options)


def _rebuilt(rows: Rows, outcomes: Sequence[Outcome | None], options: Options) -> Any:
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
    if kept.all():
        return batch
    columns = [_only(column, kept) for column in batch.columns]
    return pyarrow.RecordBatch.from_arrays(columns, schema=batch.schema)


def _only(column: Any, kept: NDArray[np.bool_]) -> Any:
    """The rows of a column that are kept; pyarrow 26 filters neither views nor values in runs."""
    import pyarrow

    if not is_filtered_at_a_cost(column.type):
        with contextlib.suppress(pyarrow.ArrowNotImplementedError):
            return column.filter(pyarrow.array(kept))
    # Each of several runs of views would hold all bytes of the column.
    views = {
        pyarrow.string_view(): pyarrow.large_string,
        pyarrow.binary_view(): pyarrow.large_binary,
    }
    if owned := views.get(column.type):
        return column.cast(owned()).filter(pyarrow.array(kept)).cast(column.type)
    edges = np.flatnonzero(np.diff(kept, prepend=False, append=False)).tolist()
    runs = [column.slice(i, end - i) for i, end in zip(edges[::2], edges[1::2], strict=True)]
    return pyarrow.concat_arrays(runs or [column.slice(0, 0)])


def is_filtered_at_a_cost(type: Any) -> bool:
    """Whether a filter makes a number for each value in lists, of which nulls cost no byte."""
    name = str(type)
    return ("list<" in name or "map<" in name) and not re.search("(dictionary|union)<", name)


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
    fields = fields_of(array)  # What is below a null may be anything.
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
    """Whether values are text whose bytes have been counted."""
    return _is_text(getattr(type, "storage_type", None) or _value_type(type))


def _filled(array: Any, value: bytes | str) -> Any:
    """The array without nulls."""
    import pyarrow

    owned = array.type
    if is_view(owned):
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
        raise ParquetError(f"images in a column of {type}; cast it to binary")
    changed = pyarrow.array(values, type if _is_plain(type) else pyarrow.large_binary())
    if isinstance(changed, pyarrow.ChunkedArray):
        raise ParquetError(f"images of one row that take 2 GiB: cast {type} to large_binary")
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


def has_length(type: Any) -> bool:
    """Whether values are bytes or text, but such as have none."""
    from pyarrow import types

    if types.is_fixed_size_binary(type):  # A file of any size may have 2**31 of no bytes.
        return bool(type.byte_width)
    return _is_text(type) or _is_plain(type) or types.is_binary_view(type)


def lengths_of(array: Any) -> Any:
    """The bytes of each value that has a length."""
    import pyarrow
    from pyarrow import compute

    if not is_view(array.type):
        return compute.binary_length(array)
    views = np.frombuffer(array.buffers()[1], _VIEW, array.offset + len(array))  # It may be padded.
    return pyarrow.array(views["length"][array.offset :], mask=np.asarray(array.is_null()))


def is_view(type: Any) -> bool:
    """Whether values are views of bytes or text, which several may share."""
    from pyarrow import types

    return bool(types.is_binary_view(type) or types.is_string_view(type))


@functools.lru_cache
def _has_views(type: Any) -> bool:
    return is_view(type) or any(_has_views(type.field(i).type) for i in range(type.num_fields))


def _is_text(type: Any) -> bool:
    from pyarrow import types

    is_large = types.is_large_string(type)
    return bool(is_large or types.is_string(type) or types.is_string_view(type))


def _inner(array: Any) -> list[Any]:
    """The fields of structs, the values in lists and maps."""
    from pyarrow import types

    if hasattr(array, "storage"):
        array = array.storage
    if types.is_struct(array.type):
        return fields_of(array)
    if types.is_map(array.type):  # which pyarrow 26 does not flatten where both are dictionaries
        start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return [array.keys[start:end], array.items[start:end]]
    return [array.flatten()] if is_list(array.type) else []


def fields_of(array: Any) -> list[Any]:
    """The fields of structs, null where these are."""
    from pyarrow import compute, types

    fields = [array.field(i) for i in range(array.type.num_fields)]
    if not array.null_count:
        return fields
    return [  # StructArray.flatten of pyarrow 26 ends the process at what has no nulls of its own.
        field
        if types.is_union(field.type) or types.is_run_end_encoded(field.type)
        else compute.struct_field(array, [i])
        for i, field in enumerate(fields)
    ]


def _is_plain(type: Any) -> bool:
    from pyarrow import types

    return bool(types.is_binary(type) or types.is_large_binary(type))


def _writer_options(source: BinaryIO, file: Any) -> dict[str, Any]:
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
        raise ParquetError("times of day of UTC and of no zone: pyarrow writes one kind")
    if True in zones:
        options["write_time_adjusted_to_utc"] = True
    if not file.metadata.num_row_groups:
        return options
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    columns = [groups[0].column(i) for i in range(groups[0].num_columns)]
    dictionaries = []
    most = 2**20
    for i, path in enumerate(paths):
        found = [group.column(i) for group in groups if group.column(i).has_dictionary_page]
        dictionaries += [path] if found else []
        sizes = [dictionary_bytes(source, column) for column in found]
        total = sum(column.total_uncompressed_size for column in found)
        if found and total <= 2 * sum(sizes):  # The rest is numbers of what rows share.
            is_binary = found[0].physical_type == "BYTE_ARRAY" and kinds[i]["Type"] == "None"
            most = _EXPANDED_BYTES if is_binary else max(most, 2 * max(sizes))  # Images may grow.
        most = max(most, *sizes, 0)
    return options | {
        "compression": {
            path: "NONE" if column.compression == "UNCOMPRESSED" else column.compression
            for path, column in zip(paths, columns, strict=True)
        },
        "use_dictionary": dictionaries or False,
        "dictionary_pagesize_limit": min(most, _EXPANDED_BYTES),
        "sorting_columns": _sorting_columns(file),
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
        raise ParquetError(
            f"a column that pyarrow does not keep: {lost[0]}; cast it, or update pyarrow"
        )


_VARIANT = re.compile(r" \(Variant\(\d+\)\) \{$", re.MULTILINE)  # the type of a group


def _sorting_columns(file: Any) -> Sequence[Any] | None:
    """What all row groups are sorted by, up to the first column whose values may change."""
    groups = (file.metadata.row_group(i) for i in range(file.metadata.num_row_groups))
    found = {group.sorting_columns for group in groups}
    kept: list[Any] = []
    for each in found.pop() if len(found) == 1 else ():
        column = file.schema.column(each.column_index)
        is_text = column.logical_type.type == "STRING" and column.path == column.name
        if column.physical_type == "BYTE_ARRAY" and not is_text:
            break
        kept.append(each)
    return kept or None


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
