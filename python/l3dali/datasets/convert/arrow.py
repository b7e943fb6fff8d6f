"""Arrow files, as `save_to_disk` of Hugging Face's datasets writes them: streams of record batches.

Images are found as in Parquet. Needs pyarrow.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from l3dali.datasets.convert.parquet import (
    Rows,
    Sink,
    TableError,
    check_rows,
    has_behind,
    may_hold_images,
    only,
    rebuilt,
    reporting_damage,
    rows_kept,
    rows_of,
    size_of,
)
from l3dali.errors import needs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from l3dali.datasets.convert.images import Options
    from l3dali.datasets.convert.pipeline import ImagePool
    from l3dali.datasets.convert.storage import HashedWriter

SUFFIXES = (".arrow",)

_FILE_START = b"ARROW1"  # at both ends of a file; streams have none
_PART_BYTES = 8 * 2**20
_PART_ROWS = 1024
_MARK = b"\xff" * 4 + bytes(4)  # the end of a stream
_MOST_PADDING = 128  # zero bytes behind it


def read_entries(source: BinaryIO, options: Options) -> Iterator[Rows]:
    """Reads the rows of a file, some at a time; a record batch is held whole.

    Raises:
        UsageError: pyarrow is missing.
        TableError: the file is damaged.
    """
    yield from _read_rows(source, _open(source), options)


def write_entries(source: BinaryIO, target: HashedWriter, pool: ImagePool) -> str | None:
    """Converts a file, to the same kind; record batches end where they did. There is no index."""
    reader = _open(source)
    import pyarrow
    from pyarrow import ipc

    new = ipc.new_file if _is_file(source) else ipc.new_stream
    options = ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    pairs = getattr(reader, "metadata", None)  # of a file, in newer pyarrow
    extra = {"metadata": pairs} if pairs else {}
    schema = reader.schema
    parts: list[Any] = []
    kept: list[bool] = []
    current = origin = None
    with new(Sink(target), schema, options=options, **extra) as writer:

        def flush() -> None:
            if origin is None:
                return
            whole, custom = origin
            columns = pyarrow.Table.from_batches(parts, schema).columns
            for i, field in enumerate(schema):
                if may_hold_images(field.type):
                    columns[i] = _with_own_bytes(columns[i])
                    continue
                column = whole.column(i)
                columns[i] = column if all(kept) else only(column, np.array(kept, np.bool_))
            table = pyarrow.Table.from_arrays(columns, schema=schema).combine_chunks()
            for batch in table.to_batches() or parts[:1]:
                try:
                    writer.write_batch(batch, custom_metadata=custom)
                except pyarrow.ArrowInvalid as error:
                    if "Dictionary replacement" not in str(error):
                        raise
                    raise TableError(
                        "images, or their paths, are in a dictionary of several record batches; "
                        "make it an Arrow stream, which may have one for each"
                    ) from None
            parts.clear()
            kept.clear()

        for rows, outcomes in pool.convert(_read_rows(source, reader, pool.options)):
            if rows.group != current:
                flush()
            current, origin = rows.group, rows.origin
            parts.append(rebuilt(rows, outcomes, pool.options))
            kept += rows_kept(rows, outcomes, pool.options)
            del rows, outcomes
        flush()
    return None


def _with_own_bytes(column: Any) -> Any:
    """The column; views, of which each part has the buffers of all rows, once more."""
    plain = _plain(column.type)
    return column if plain == column.type else column.combine_chunks().cast(plain).cast(column.type)


def _plain(type: Any) -> Any:
    """The type without views."""
    import pyarrow
    from pyarrow import types

    if types.is_binary_view(type):
        return pyarrow.large_binary()
    if types.is_string_view(type):
        return pyarrow.large_string()
    if types.is_struct(type):
        return pyarrow.struct([field.with_type(_plain(field.type)) for field in type])
    if types.is_list(type):
        return pyarrow.list_(type.value_field.with_type(_plain(type.value_type)))
    return type


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
        # Of `cat a b` pyarrow reads the batches of a with the footer of b.
        if has_behind(source, 0, 2 * _FILE_START + bytes(2)):
            raise TableError("a file behind another: files in one file are not supported")
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
    # Without one, zeros may be what a broken download lacks.
    rest = size_of(source) - end
    if rest > has_mark * _MOST_PADDING or source.read().strip(b"\0"):
        raise TableError("data behind the end of the stream")


def _read_rows(source: BinaryIO, reader: Any, options: Options) -> Iterator[Rows]:
    first_row = 0
    with reporting_damage("a damaged Arrow file"):
        for group, (batch, custom) in enumerate(_batches(source, reader)):
            check_rows(first_row + len(batch), source)
            batch.validate(full=True)  # Offsets of a damaged file may point anywhere.
            # `nbytes` ends the process at empty unions (pyarrow 26).
            row_bytes = max(1, batch.get_total_buffer_size() // max(1, len(batch)))
            count = min(max(1, _PART_BYTES // row_bytes), _PART_ROWS)
            for start in range(0, max(1, len(batch)), count):
                part = batch.slice(start, count)
                rows = rows_of(part, group, first_row, row_bytes * len(part), options)
                yield replace(rows, origin=(batch, custom))
                first_row += len(rows.batch)
