"""The pages of Parquet files: what heads them says how large they become.

https://parquet.apache.org/docs/file-format/data-pages/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from l3dali.datasets.convert.tfrecord import read_varint

if TYPE_CHECKING:
    from collections.abc import Iterator

_DELTA_LENGTHS, DELTA_BYTE_ARRAY = 6, 7  # encodings

_PAGE_BYTES, _HEAD_COST = 2**14, 64  # A page counts as so many; so does each byte that heads it.
_MOST_HEAD_BYTES = 2**24  # as in pyarrow
_MOST_FIELDS = 32  # of what heads a page, which has 8
_DICTIONARY_PAGE, _DATA_PAGE_V2 = 2, 3
_HEADS = {0: 5, 2: 7, 3: 8}  # fields with what is said of a page's data, by its kind
_TRUE, _FALSE, _I8, _I16, _I32, _I64, _DOUBLE, _BYTES, _STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 12
_VERSION, _SCHEMA = 0x15, 0x19  # the first fields of a footer: a number and a list
_LONG = 15  # in place of the length of a list, which follows
_CODECS = {"LZ4": "lz4_raw"}


class ParquetError(ValueError):
    """A file that is damaged or no Parquet file."""


class Page(NamedTuple):
    """A page of a column.

    Attributes:
        kind: 0 and 3 are data, 2 is a dictionary.
        expanded: its bytes.
        stored: the same as they are compressed.
        head: what is said of its data.
        cost: of reading it, in bytes.
        at: where it is.
    """

    kind: int
    expanded: int
    stored: int
    head: dict[int, Any]
    cost: int
    at: int

    @property
    def encoding(self) -> int:
        """Of its values."""
        return int(self.head.get(4 if self.kind == _DATA_PAGE_V2 else 2, 0))


def pages(source: BinaryIO, column: Any) -> Iterator[Page]:
    """Yields the pages of a column, up to its last value, as pyarrow reads them.

    Raises:
        ParquetError: what heads a page is damaged, or says what the footer does not.
    """
    first = at = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < at:
        first = at = column.dictionary_page_offset
    end = at + column.total_compressed_size
    values = column.num_values
    while at < end and values > 0:
        head, length = _page_head(source, at)
        kind, expanded, stored = (head.get(i, -1) for i in (1, 2, 3))
        of_data = head.get(_HEADS.get(kind, 0))
        if min(expanded, stored) < 0 or not isinstance(of_data, dict):
            raise ParquetError("a damaged Parquet file: a page of no known kind or size")
        if kind == _DICTIONARY_PAGE:
            values -= 0 if at == first else values + 1
        else:
            values -= of_data.get(1, 0) if of_data.get(1, 0) >= 0 else values + 1
        cost = max(expanded, _PAGE_BYTES, _HEAD_COST * length)
        yield Page(kind, expanded, stored, of_data, cost, at + length)
        at += length + stored
    if values:
        raise ParquetError("a damaged Parquet file: it has not the values that its footer names")


def dictionary_bytes(source: BinaryIO, column: Any) -> int:
    """The size of a column's dictionary, by the page that it is in."""
    first = next(pages(source, column), None)
    return first.expanded if first is not None and first.kind == _DICTIONARY_PAGE else 0


def check_lengths(source: BinaryIO, page: Page, column: Any, described: Any) -> None:
    """Refuses a page that counts more lengths than it has values: pyarrow makes room for them.

    They take no bytes where they are equal. In DELTA_BYTE_ARRAY prefixes are counted, too:
    https://parquet.apache.org/docs/file-format/data-pages/encodings/
    """
    import pyarrow

    if page.encoding not in (_DELTA_LENGTHS, DELTA_BYTE_ARRAY):
        return
    is_second = page.kind == _DATA_PAGE_V2
    source.seek(page.at)
    data = source.read(page.stored)
    at = page.head.get(5, 0) + page.head.get(6, 0) if is_second else 0  # levels
    codec = _CODECS.get(column.compression, column.compression.lower())
    try:
        if codec != "uncompressed" and (not is_second or page.head.get(7, True)):
            rest = pyarrow.Codec(codec).decompress(data[at:], page.expanded - at, asbytes=True)
            data = data[:at] + rest
        if not is_second:
            for level in (described.max_repetition_level, described.max_definition_level):
                at += 4 + int.from_bytes(data[at : at + 4], "little") if level else 0
        for _ in range(1 + (page.encoding == DELTA_BYTE_ARRAY)):
            if at < len(data):  # Else there are no values.
                at = _behind_deltas(data, at, page.head.get(1, 0))
    except (IndexError, ValueError, OSError) as error:
        raise ParquetError(f"a damaged Parquet file: lengths of values: {error}") from error


def _behind_deltas(data: bytes, at: int, most: int) -> int:
    """Where an array of DELTA_BINARY_PACKED ends, of at most so many numbers."""
    block, at = read_varint(data, at)
    parts, at = read_varint(data, at)
    count, at = read_varint(data, at)
    _, at = read_varint(data, at)
    if count > most or not 0 < parts <= block:
        raise ParquetError("more than there are values")
    left = count - 1
    while left > 0:
        _, at = read_varint(data, at)
        widths = data[at : at + parts]
        at += parts
        if not widths:
            raise IndexError("an end amid them")
        for width in widths[: -(-left // (block // parts))]:
            at += width * (block // parts) // 8
        left -= block
    return at


def path_bytes(footer: bytes) -> int:
    """What the paths of all columns take, each with the names of all that it is in.

    Raises:
        ParquetError: the schema is damaged.
    """
    total = 0
    above: list[list[int]] = []  # of each group how many are to come in it, and its path
    try:
        _, at = read_varint(footer, 1)
        if footer[0] != _VERSION or footer[at] != _SCHEMA:
            raise ValueError("other fields")
        count, at = footer[at + 1] >> 4, at + 2
        if count == _LONG:
            count, at = read_varint(footer, at)
        for _ in range(count):
            while above and not above[-1][0]:
                above.pop()
            if above:
                above[-1][0] -= 1
            field, at = _read_struct(footer, at, 4)
            size = field.get(4, 0) + (above[-1][1] if above else 0)
            if children := field.get(5, 0):
                above.append([children, size])
            else:
                total += size
    except (IndexError, ValueError):
        raise ParquetError("a damaged Parquet file: its schema") from None
    return total


def _page_head(source: BinaryIO, at: int) -> tuple[dict[int, Any], int]:
    """What heads the page that is there, and the bytes it takes."""
    for length in (2**8, 2**12, 2**18, _MOST_HEAD_BYTES):  # It may have large values as statistics.
        source.seek(at)
        data = source.read(length)
        try:
            return _read_struct(data, 0, 3)
        except ValueError:
            break
        except IndexError:
            if len(data) < length:
                break
    raise ParquetError("a damaged Parquet file: what heads a page")


def _read_struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Numbers of 32 bits, booleans, structs and lengths of bytes, by field, and the end.

    This is Thrift's compact protocol. No writer of pages or schemas uses the long form of fields,
    lists, or a field twice: they are refused.
    """
    found: dict[int, Any] = {}
    field = 0
    while data[at]:
        step, kind = divmod(data[at], 16)
        field += step
        at += 1
        if not step or field > _MOST_FIELDS or not depth:
            break
        if kind in (_TRUE, _FALSE):
            found[field] = kind == _TRUE
        elif kind in (_I8, _DOUBLE):
            at += 1 if kind == _I8 else 8
        elif kind in (_I16, _I32, _I64, _BYTES):
            number, at = read_varint(data, at)
            if kind == _BYTES:
                found[field] = number
                at += number
            elif kind == _I32:
                if number >> 32:
                    break
                found[field] = (number >> 1) ^ -(number & 1)
        elif kind == _STRUCT:
            found[field], at = _read_struct(data, at, depth - 1)
        else:
            break
    else:
        return found, at + 1
    raise ParquetError("a damaged Parquet file: what heads a page")
