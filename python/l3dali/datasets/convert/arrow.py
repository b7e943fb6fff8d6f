"""Arrow files, as `save_to_disk` of Hugging Face's datasets writes them: streams of record batches.

Images are found as in Parquet. Needs pyarrow.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from l3dali.datasets.convert.parquet import (
    Rows,
    TableError,
    check_rows,
    converted,
    has_behind,
    reporting_damage,
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
_MARK = b"\xff" * 4 + bytes(4)  # the end of a stream
_MOST_PADDING = 128  # zero bytes behind it


def read_entries(source: BinaryIO, options: Options) -> Iterator[Rows]:
    """Reads the rows of a file; a record batch is held whole.

    Raises:
        UsageError: pyarrow is missing.
        TableError: the file is damaged.
    """
    yield from _read_rows(source, _open(source), options)


def write_entries(source: BinaryIO, target: HashedWriter, pool: ImagePool) -> str | None:
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
            raise TableError("several Arrow files in one file are not supported")
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
    rest = size_of(source) - end
    if rest > has_mark * _MOST_PADDING or source.read().strip(b"\0"):
        raise TableError("data after the end of the stream")


def _read_rows(source: BinaryIO, reader: Any, options: Options) -> Iterator[Rows]:
    first_row = 0
    with reporting_damage("a damaged Arrow file"):
        for group, (batch, metadata) in enumerate(_batches(source, reader)):
            check_rows(first_row + len(batch), source)
            batch.validate(full=True)  # Offsets of a damaged file may point anywhere.
            size = batch.get_total_buffer_size()  # nbytes crashes at empty unions (pyarrow 26).
            yield from rows_of(batch, group, first_row, size, options, metadata)
            first_row += len(batch)
