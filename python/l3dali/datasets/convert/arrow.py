"""Arrow files, as `save_to_disk` of Hugging Face's datasets writes them: streams of record batches.

Images are found as in Parquet. Needs pyarrow.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

from l3dali.datasets.convert.arrow_messages import (
    DICTIONARY,
    RECORD_BATCH,
    Message,
    behind_messages,
    fields_of_dictionaries,
    footer_blocks,
    holds_values,
    is_end,
    is_end_of_stream,
    read_message,
)
from l3dali.datasets.convert.parquet import (
    MOST_TIMES,
    PIECE_BYTES,
    Claims,
    Rows,
    Sink,
    bytes_of,
    fields_of,
    has_behind,
    has_length,
    is_filtered_at_a_cost,
    is_list,
    is_view,
    lengths_of,
    lists_of,
    may_hold_images,
    rebuilt,
    rows_kept,
    rows_of,
    size_of,
)
from l3dali.errors import needs

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Sequence

    from l3dali.datasets.convert.images import Options
    from l3dali.datasets.convert.pipeline import ImagePool
    from l3dali.datasets.convert.storage import HashedWriter

SUFFIXES = (".arrow",)

_FILE_START = b"ARROW1"  # of the file format, whose end lists its batches
_PART_BYTES = 8 * 2**20
_PART_ROWS = 1024
_EXPANDED_BYTES = 128 * 2**20  # of values that rows have in dictionaries, taken out at once
_MOST_TIMES = 100  # that what is compressed becomes larger, if it takes more than that


class ArrowError(ValueError):
    """A file that is damaged or no Arrow file."""


def read_entries(source: BinaryIO, options: Options) -> Iterator[Rows]:
    """Reads the rows of a file, some at a time; a record batch is held whole.

    Raises:
        UsageError: pyarrow is missing.
        ArrowError: the file is damaged.
    """
    schema, batches, _ = _opened(source)
    yield from _read_rows(_without_views(schema), batches, Claims(source), options)


def write_entries(source: BinaryIO, target: HashedWriter, pool: ImagePool) -> str | None:
    """Converts a file, to the same kind; record batches end where they did. There is no index."""
    import pyarrow
    from pyarrow import ipc

    new = ipc.new_file if _is_file(source) else ipc.new_stream
    options = ipc.IpcWriteOptions(emit_dictionary_deltas=_has_deltas(source))
    schema, batches, pairs = _opened(source)
    found = _read_rows(_without_views(schema), batches, Claims(source), pool.options)
    parts: list[Any] = []
    kept: list[bool] = []
    current = origin = None
    extra = {"metadata": pairs} if pairs else {}
    with new(Sink(target), schema, options=options, **extra) as writer:

        def flush() -> None:
            if origin is None:
                return
            batch, custom = origin
            columns = pyarrow.Table.from_batches(parts, schema).columns
            rows_left = None if all(kept) else pyarrow.array(kept)
            for i, field in enumerate(schema):
                # Parts would compare their dictionaries, floats among them one by one.
                if may_hold_images(field.type):
                    continue
                if rows_left is None:
                    columns[i] = batch.column(i)
                elif not is_filtered_at_a_cost(field.type):
                    with suppress(pyarrow.ArrowNotImplementedError):  # of views and of runs
                        columns[i] = batch.column(i).filter(rows_left)
            table = pyarrow.Table.from_arrays(columns, schema=schema)
            pieces = (piece.combine_chunks().to_batches() for piece in _pieces(table, parts))
            # Those of no rows are none.
            for batch in [*chain.from_iterable(pieces)] or parts[:1]:
                try:
                    writer.write_batch(batch, custom_metadata=custom)
                except pyarrow.ArrowInvalid as error:
                    if "Dictionary replacement" not in str(error):
                        raise
                    raise ArrowError(
                        "images, or their paths, are in a dictionary of several record batches; "
                        "make it an Arrow stream, which may have one for each"
                    ) from None
            parts.clear()
            kept.clear()

        for rows, outcomes in pool.convert(found):
            if rows.group != current:
                flush()
            current, origin = rows.group, rows.origin
            parts += [_cast(piece, schema) for piece in rebuilt(rows, outcomes, pool.options)]
            kept += rows_kept(rows, outcomes, pool.options)
            del rows, outcomes
        flush()
    return None


def _pieces(table: Any, parts: Sequence[Any]) -> Iterator[Any]:
    """The table of these parts, cut where offsets of 32 bits would not reach: at 2 GiB."""
    begin = end = size = 0
    for part in parts:
        if size and size + bytes_of(part) > PIECE_BYTES:
            yield table.slice(begin, end - begin)
            begin, size = end, 0
        end, size = end + len(part), size + bytes_of(part)
    yield table.slice(begin)


def _is_file(source: BinaryIO) -> bool:
    source.seek(0)
    is_file = source.read(len(_FILE_START)) == _FILE_START
    source.seek(0)
    return is_file


def _has_deltas(source: BinaryIO) -> bool:
    """Whether dictionaries grow from batch to batch: each would be written whole otherwise."""
    with suppress(struct.error):  # The batches will say it.
        if _is_file(source):
            places = footer_blocks(source, DICTIONARY)
            return any(
                message.is_delta for place in places if (message := read_message(source, *place))
            )
        at = 0
        while message := read_message(source, at):
            if message.is_delta:
                return True
            at = message.end
    return False


def _opened(source: BinaryIO) -> tuple[Any, Iterator[Any], Any]:
    """The schema; what yields each pyarrow.RecordBatch with its metadata; pairs of the footer."""
    try:
        import pyarrow
        from pyarrow import ipc
    except ImportError:
        raise needs("pyarrow", "Arrow") from None
    try:
        is_file = _is_file(source)
        reader = ipc.open_file(source) if is_file else ipc.open_stream(source)
        place = source.tell()
        limit = _Limit(size_of(source), fields_of_dictionaries(source, has_footer=is_file))
        source.seek(place)
        read = _batches_of_file if is_file else _batches_of_stream
        pairs = getattr(reader, "metadata", None) if is_file else None  # of newer pyarrow
        return reader.schema, read(source, reader, limit), pairs
    except (pyarrow.ArrowException, OSError, EOFError, struct.error) as error:
        raise ArrowError(f"not a whole Arrow file: {error}") from error


def _batches_of_file(source: BinaryIO, reader: Any, limit: _Limit) -> Iterator[Any]:
    behind = behind_messages(source)
    if behind:
        is_one = is_end(source, *behind)
    else:
        is_one = not (has_behind(source, 1, _FILE_START + bytes(2)) or holds_values(source))
    if not is_one:
        raise ArrowError("data that the footer does not name: files behind one another?")
    for place in footer_blocks(source, DICTIONARY):
        limit.check(read_message(source, *place))
    for number, place in enumerate(footer_blocks(source, RECORD_BATCH)):
        limit.check(read_message(source, *place))
        yield reader.get_batch_with_custom_metadata(number)


def _batches_of_stream(source: BinaryIO, reader: Any, limit: _Limit) -> Iterator[Any]:
    while True:
        start = at = source.tell()
        while message := read_message(source, at):
            limit.check(message)
            if message.kind == RECORD_BATCH:
                break
            at = message.end
        source.seek(start)
        try:
            yield reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            if not is_end_of_stream(source, at, size_of(source)):
                raise ArrowError("data behind the end of the stream") from None
            return


class _Limit:
    """Finds what compression has made too small; dictionaries are kept, and count together.

    Args:
        size: of the file.
        fields: how many have their values in the dictionary of each number.
    """

    def __init__(self, size: int, fields: Counter[int]) -> None:
        self._size = size
        self._fields = fields
        self._kept = self._kept_body = 0
        self._all = self._all_bodies = 0
        self._dictionaries: dict[int, int] = {}
        self._shared = 0  # bytes of them all, which are judged with each batch

    def check(self, message: Message | None) -> None:
        """Raises ArrowError for what would take too much."""
        if message is None:
            return
        expanded, body = message.expanded, message.body_bytes
        if message.kind == DICTIONARY:
            expanded = self._kept = self._kept + expanded
            body = self._kept_body = self._kept_body + body
            old = self._dictionaries.get(message.dictionary, 0)
            new = max(message.expanded, message.body_bytes) + message.is_delta * old
            self._dictionaries[message.dictionary] = new
            self._shared += (new - old) * max(1, self._fields[message.dictionary])
        elif message.kind == RECORD_BATCH:
            self._all += self._shared
        if expanded > max(_EXPANDED_BYTES, _MOST_TIMES * body):
            what = "dictionaries" if message.kind == DICTIONARY else "a record batch"
            raise ArrowError(f"{what} of {body} bytes that would take {expanded}")
        self._all += message.expanded
        self._all_bodies += message.body_bytes
        if self._all_bodies > self._size:
            raise ArrowError("messages that have the same bytes")
        if self._all > max(_EXPANDED_BYTES, MOST_TIMES * self._size):
            raise ArrowError(f"{self._size} bytes that would take {self._all}")


def _without_views(schema: Any) -> Any:
    """The schema with values that each row has for itself in the place of views.

    Raises:
        ArrowError: rows may share values in another way.
    """
    import pyarrow

    for field in schema:
        if may_hold_images(field.type) and _has_shared_floats(field.type):
            raise ArrowError("floats in a dictionary beside images; cast them")
    return pyarrow.schema([_plain(field) for field in schema], schema.metadata)


def _has_shared_floats(type: Any) -> bool:
    """Whether values are in dictionaries that are compared one by one, when parts are joined."""
    from pyarrow import types

    if types.is_dictionary(type):
        return bool(types.is_floating(type.value_type) or type.value_type.num_fields)
    return any(_has_shared_floats(type.field(i).type) for i in range(type.num_fields))


def _plain(field: Any) -> Any:
    import pyarrow
    from pyarrow import types

    type = field.type
    if types.is_binary_view(type):
        return field.with_type(pyarrow.large_binary())
    if types.is_string_view(type):
        return field.with_type(pyarrow.large_string())
    inner = [type.field(i) for i in range(type.num_fields)]
    if types.is_struct(type):
        return field.with_type(pyarrow.struct(list(map(_plain, inner))))
    if types.is_list(type):
        return field.with_type(pyarrow.list_(*map(_plain, inner)))
    if types.is_large_list(type):
        return field.with_type(pyarrow.large_list(*map(_plain, inner)))
    if types.is_dictionary(type):  # of text: stays whole, and is no image
        inner = [] if types.is_string_view(type.value_type) else [field.with_type(type.value_type)]
    if isinstance(type, pyarrow.BaseExtensionType):
        inner = [field.with_type(type.storage_type)]
    is_union = types.is_union(type) and type.mode == "dense"
    is_shared = is_union or types.is_list_view(type) or types.is_large_list_view(type)
    if is_shared or any(_plain(each) != each for each in inner):
        raise ArrowError(f"a column of {type}; cast it to a type without views")
    return field


def _cast(batch: Any, schema: Any) -> Any:
    """The batch, cast where types differ: what rows have in views is then theirs alone."""
    import pyarrow

    if not schema.names:  # rows without columns stay rows
        return batch
    columns = [
        _cast_array(column, field.type) for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def _cast_array(array: Any, type: Any) -> Any:
    import pyarrow
    from pyarrow import types

    if array.type == type:
        return array
    if types.is_struct(type):
        fields = [
            _cast_array(field, new.type) for field, new in zip(fields_of(array), type, strict=True)
        ]
        return pyarrow.StructArray.from_arrays(fields, fields=list(type), mask=array.is_null())
    if types.is_list(type) or types.is_large_list(type):  # pyarrow would cast what a slice leaves
        return lists_of(array, _cast_array(array.flatten(), type.value_type), type)
    return array.cast(type)


def _read_rows(
    plain: Any, batches: Iterator[Any], claims: Claims, options: Options
) -> Iterator[Rows]:
    import pyarrow

    first_row = 0
    try:
        for group, (batch, custom) in enumerate(batches):
            batch.validate(full=True)  # Offsets of a damaged file may point anywhere.
            row_bytes = max(1, bytes_of(batch) // max(1, len(batch)))
            expanded = max(1, sum(map(_shared_bytes, batch.columns)))
            count = min(max(1, _PART_BYTES // row_bytes), _PART_ROWS)
            count = min(count, max(1, _EXPANDED_BYTES // expanded))
            for start in range(0, max(1, len(batch)), count):
                part = batch.slice(start, count)
                claims.count(part)  # before rows have what they share for themselves
                part = _cast(part, plain)
                rows = rows_of(part, group, first_row, options)
                yield replace(rows, origin=(batch, custom))
                first_row += len(part)
    except (pyarrow.ArrowException, OSError, EOFError, struct.error) as error:
        raise ArrowError(f"a damaged Arrow file: {error}") from error


def _shared_bytes(array: Any) -> int:
    """What a value may take that rows share, in a dictionary or as views of the same bytes."""
    from pyarrow import compute, types

    if types.is_struct(array.type):
        return sum(map(_shared_bytes, fields_of(array)))
    if is_list(array.type):
        return _shared_bytes(array.values)
    values = array.dictionary if types.is_dictionary(array.type) else array
    if has_length(values.type) and (values is not array or is_view(values.type)):
        return compute.max(lengths_of(values)).as_py() or 0
    return 0
