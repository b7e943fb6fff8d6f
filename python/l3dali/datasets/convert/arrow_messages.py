"""The messages of Arrow files: what is compressed in them says how large it becomes.

https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc
"""

from __future__ import annotations

import struct
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

DICTIONARY, RECORD_BATCH = 2, 3

_FOOTER_END = struct.Struct("<i6s")  # its size, and the magic number
_CONTINUATION = b"\xff" * 4  # before the size of the metadata; older files lack it
_OLD_MARK_BYTES = 4  # of a stream's end: zeros
_PADDED_MARK_BYTES = 128  # at most: eight, and zeros that some writers may add
_OLD_COMPRESSION = b"ARROW:experimental_compression"
_BUFFER = struct.Struct("<qq")
_OFFSET = struct.Struct("<I")
_FIELD_BYTES = 16  # at least
_BLOCKS = {DICTIONARY: 2, RECORD_BATCH: 3}  # fields of a footer, by kind of message
_CHUNK_BYTES = 2**20
_FILE_START_BYTES = 8
_BLOCK = struct.Struct("<qi4xq")  # of a footer: place, size of the metadata, of the body
_AS_IT_IS = -1  # the size that a buffer says which is not compressed


class Message(NamedTuple):
    """A message; `expanded` is what its buffers take in memory.

    Of a dictionary it has the number, and whether it adds to that of before.
    """

    kind: int
    end: int
    body_bytes: int
    expanded: int
    dictionary: int = 0
    is_delta: bool = False


def read_message(source: BinaryIO, start: int, head_bytes: int | None = None) -> Message | None:
    """The message at `start`; None at the end of a stream.

    Args:
        source: a file.
        start: a place in it.
        head_bytes: of prefix and metadata, where a footer says so.

    Raises:
        struct.error: it is damaged.
    """
    source.seek(start)
    size = source.read(4)
    prefix = 4
    if size == _CONTINUATION:
        size, prefix = source.read(4), 8
    if len(size) < 4 or not any(size):
        return None
    data = source.read(max(0, *struct.unpack("<i", size)))
    body = start + (prefix + len(data) if head_bytes is None else head_bytes)
    message = _root(data)
    kind, body_bytes = message.number(1, "<B"), message.number(3, "<q")
    expanded = dictionary = is_delta = 0
    if kind in (DICTIONARY, RECORD_BATCH):
        header = batch = message.table(2)
        if kind == DICTIONARY:
            dictionary, is_delta = header.number(0, "<q"), header.number(2, "<B")
            batch = header.table(1)
        buffers = batch.items(2, _BUFFER)
        if batch.place(3) or _OLD_COMPRESSION in data:
            expanded = sum(_sizes(source, body, buffers))
        elif (size_of_all := sum(length for _, length in buffers)) > body_bytes:
            expanded = size_of_all  # Some have the same bytes.
    end = body + max(0, body_bytes)
    return Message(kind, end, body_bytes, expanded, dictionary, bool(is_delta))


def fields_of_dictionaries(source: BinaryIO, *, has_footer: bool) -> Counter[int]:
    """How many fields of the schema have their values in the dictionary of each number.

    Args:
        source: a file that pyarrow has opened.
        has_footer: whether the schema is in its footer; it is the first message otherwise.

    Raises:
        struct.error: it is damaged, or fields have the same bytes.
    """
    if has_footer:
        schema = _footer(source)[0].table(1)
    else:
        source.seek(0)
        start = source.read(8)
        size = start[4:] if start.startswith(_CONTINUATION) else start[:4]
        source.seek(8 if start.startswith(_CONTINUATION) else 4)
        schema = _root(source.read(*struct.unpack("<i", size))).table(2)
    most = source.seek(0, 2) // _FIELD_BYTES
    found = Counter[int]()
    fields = schema.tables(1)
    for field in fields:
        if len(fields) > most:
            raise struct.error("fields that have the same bytes")
        if field.place(4):
            found[field.table(4).number(0, "<q")] += 1
        fields += field.tables(5)
    return found


def footer_blocks(source: BinaryIO, kind: int) -> list[tuple[int, int]]:
    """Place and head of each message of that kind, of a file with a footer.

    Raises:
        struct.error: it is damaged, or messages have the same bytes.
    """
    footer, start = _footer(source)
    blocks = [(place, head) for place, head, _ in footer.items(_BLOCKS[kind], _BLOCK)]
    if len({place for place, _ in blocks}) < len(blocks) or sum(head for _, head in blocks) > start:
        raise struct.error("messages that have the same bytes")
    return blocks


def behind_messages(source: BinaryIO) -> tuple[int, int] | None:
    """Of a file with a footer, where the last message that it names ends, and where it begins.

    None if it names none: the schema stands before them, with or without its size.
    """
    footer, start = _footer(source)
    ends = [sum(block) for kind in _BLOCKS.values() for block in footer.items(kind, _BLOCK)]
    return (max(ends), start) if ends else None


def holds_values(source: BinaryIO) -> bool:
    """Whether messages of values follow the start of a file, whatever its footer names."""
    at = _FILE_START_BYTES
    with suppress(struct.error):  # The schema may lack its size.
        while message := read_message(source, at):
            if message.kind in _BLOCKS:
                return True
            at = message.end
    return False


def is_end(source: BinaryIO, start: int, end: int) -> bool:
    """Whether nothing lies there but the mark of a stream's end, and zeros."""
    source.seek(start)
    mark = b""
    for at in range(start, end, _CHUNK_BYTES):
        mark += source.read(min(_CHUNK_BYTES, end - at)).strip(b"\0")
        if not _CONTINUATION.startswith(mark):
            return False
    return True


def is_end_of_stream(source: BinaryIO, start: int, end: int) -> bool:
    """Whether a mark is there, if anything: zeros may stand for what a broken download lacks."""
    source.seek(start)
    most = _PADDED_MARK_BYTES if source.read(4) == _CONTINUATION else _OLD_MARK_BYTES
    return end - start <= most and is_end(source, start, end)


def _footer(source: BinaryIO) -> tuple[_Table, int]:
    """The footer, and where it begins."""
    end = source.seek(0, 2) - _FOOTER_END.size
    source.seek(end)
    size, _ = _FOOTER_END.unpack(source.read())
    source.seek(end - size)
    return _root(source.read(size)), end - size


def _sizes(source: BinaryIO, body: int, buffers: Iterator[tuple[int, ...]]) -> Iterator[int]:
    for offset, length in buffers:
        if length < 8:
            continue
        source.seek(body + offset)
        (size,) = struct.unpack("<q", source.read(8))
        yield length if size == _AS_IT_IS else max(0, size)


class _Table:
    """A table of a flatbuffer."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._fields = at - self._get("<i", at)

    def place(self, field: int) -> int:
        """Where a field is; 0 if it is absent."""
        entry = 4 + 2 * field
        if entry >= self._get("<H", self._fields):
            return 0
        offset = self._get("<H", self._fields + entry)
        return self._at + offset if offset else 0

    def number(self, field: int, format: str) -> int:
        place = self.place(field)
        return self._get(format, place) if place else 0

    def table(self, field: int) -> _Table:
        return _Table(self._data, self._target(field))

    def tables(self, field: int) -> list[_Table]:
        places = self.items(field, _OFFSET)
        first = self._target(field) + 4 if self.place(field) else 0
        return [_Table(self._data, first + 4 * i + to) for i, (to,) in enumerate(places)]

    def items(self, field: int, item: struct.Struct) -> Iterator[tuple[int, ...]]:
        if not self.place(field):
            return iter(())
        start = self._target(field)
        count = self._get("<I", start)
        return item.iter_unpack(self._data[start + 4 : start + 4 + count * item.size])

    def _target(self, field: int) -> int:
        place = self.place(field)
        return place + self._get("<I", place)

    def _get(self, format: str, at: int) -> int:
        if at < 0:
            raise struct.error("before the beginning")
        number: int = struct.unpack_from(format, self._data, at)[0]
        return number


def _root(data: bytes) -> _Table:
    return _Table(data, *struct.unpack_from("<I", data))
