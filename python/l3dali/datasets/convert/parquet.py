"""Parquet shards: images in binary columns, as Hugging Face data sets have them.

An image is a value of a binary column, or the field `bytes` of a struct, where the field `path`
is its name; also inside lists and structs. Needs pyarrow.
"""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING, Any, BinaryIO

from l3dali.datasets.convert.arrow import (
    Rows,
    converted,
    has_behind,
    reporting_damage,
    rows_of,
)
from l3dali.errors import needs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from l3dali.datasets.convert.images import Converter, Options
    from l3dali.datasets.convert.storage import HashedWriter

KIND = "parquet"
SUFFIXES = (".parquet",)
IS_STREAMED, HAS_INDEX = False, False
_BATCH_BYTES, _BATCH_ROWS = 8 * 2**20, 1024  # read at a time
_GROUP_BYTES = 32 * 2**20
_DICTIONARY_BYTES = 2**20  # pyarrow's limit
_MOST_DICTIONARY_BYTES = 2**27
_GROWTH = 4  # of images in a dictionary
_MAGIC = b"PAR1"  # at both ends of a file


def _open(source: BinaryIO) -> Any:
    """The pyarrow.parquet.ParquetFile of an open file.

    Raises:
        UsageError: pyarrow is missing.
        ValueError: the file is damaged.
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
        # pyarrow would read `cat a b` as the pages of a with the footer of b.
        if has_behind(source, _end_of_pages(file.metadata), 2 * _MAGIC):
            raise ValueError("several Parquet files in one file are not supported")
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
        ValueError: the file is damaged.
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
            raise ValueError("a damaged Parquet file: it has fewer rows than its footer lists")


def write_entries(source: BinaryIO, target: HashedWriter, pool: Converter) -> str | None:
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


def _writer_options(file: Any) -> dict[str, Any]:
    """How the source was written: names, compression and dictionaries of each column.

    Raises:
        ValueError: pyarrow would lose the logical type of a column.
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
            raise ValueError(
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
