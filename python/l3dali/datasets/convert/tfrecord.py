"""TFRecord shards: records with checksums, which hold `tf.train.Example` messages.

Framing and messages are read here: the package tfrecord checks no checksum, and libraries of
protocol buffers keep neither unknown fields nor the order of a map byte for byte.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from l3dali.console import shortened
from l3dali.datasets.convert.images import MOST_NAME, Blob, Entry, may_be_image
from l3dali.errors import needs
from l3dali.signatures import HEAD_BYTES, format_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from l3dali.datasets.convert.images import Converter, Options, Outcome
    from l3dali.datasets.convert.storage import HashedReader, HashedWriter

KIND = "tfrecord"
SUFFIXES = (".tfrecord", ".tfrecords", ".tfrec")
IS_STREAMED, HAS_INDEX = True, True

_SHARD_OF_MANY = re.compile(r"-\d{5}-of-\d{5}$")
_HEADER = struct.Struct("<QI")  # length, its checksum
_CRC = struct.Struct("<I")
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types


def may_be_shard(name: str) -> bool:
    """Whether a file without a suffix is named as TensorFlow names shards."""
    return _SHARD_OF_MANY.search(name) is not None


def is_tfrecord(head: bytes) -> bool:
    """Whether a file that begins with these `HEAD_BYTES` is one of records.

    Raises:
        UsageError: the package crc32c is missing.
    """
    if len(head) < _HEADER.size:
        return False
    length, crc = _HEADER.unpack_from(head)
    return masked_crc(_length_bytes(length)) == int(crc)


def masked_crc(data: bytes) -> int:
    """The checksum of TFRecord: a CRC-32C, rotated and shifted.

    Raises:
        UsageError: the package crc32c is missing.
    """
    try:
        from crc32c import crc32c
    except ImportError:
        raise needs("crc32c", "TFRecord") from None
    crc = int(crc32c(data))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@dataclass
class Record(Entry):
    """A record, and the images in it."""

    data: bytes

    @property
    def bytes(self) -> int:
        """What it holds in memory, images twice."""
        return len(self.data) + super().bytes


def read_entries(source: HashedReader, options: Options) -> Iterator[Record]:
    """Reads the records of a file.

    Raises:
        ValueError: it is damaged, truncated or compressed.
    """
    number = 0
    while head := source.read(_HEADER.size):
        if len(head) < _HEADER.size:
            raise ValueError(f"a truncated file: it ends within record {number}")
        length, crc = _HEADER.unpack(head)
        if crc != masked_crc(_length_bytes(length)):
            hint = "; decompress it first" if number == 0 and head[:2] == b"\x1f\x8b" else ""
            raise ValueError(
                f"record {number}: its length is damaged, or this is not a TFRecord{hint}"
            )
        data = source.read(length)
        tail = source.read(_CRC.size)
        if len(data) < length or len(tail) < _CRC.size:
            raise ValueError(f"a truncated file: it ends within record {number}")
        if tail != _CRC.pack(masked_crc(data)):
            raise ValueError(f"record {number}: its checksum does not match")
        yield _find_images(data, number, options)
        number += 1


def write_entries(source: HashedReader, target: HashedWriter, pool: Converter) -> str | None:
    """Converts a file of records; returns the text of its DALI index."""
    lines: list[str] = []
    for record, outcomes in pool.convert(read_entries(source, pool.options)):
        failed = any(outcome is not None and outcome.failed for outcome in outcomes)
        if failed and pool.options.on_error == "drop":
            continue
        start = target.bytes
        _write_record(_rebuilt(record.data, outcomes, pool.options), target)
        del record, outcomes
        lines.append(f"{start} {target.bytes - start}\n")
    return "".join(lines)


def _write_record(data: bytes, target: HashedWriter) -> None:
    target.write(_HEADER.pack(len(data), masked_crc(_length_bytes(len(data)))))
    target.write(data)
    target.write(_CRC.pack(masked_crc(data)))


def _length_bytes(length: int) -> bytes:
    return length.to_bytes(8, "little")


# The parts of Example and SequenceExample that can hold images: by the number of a field, the
# fields inside it. `_KEY` is the name of a feature, `_IMAGE` a possible image.
_KEY, _IMAGE = "key", "image"
_Schema = dict[int, "_Schema | str"]
_FEATURE: _Schema = {1: {1: _IMAGE}}
_FEATURES: _Schema = {1: {1: _KEY, 2: _FEATURE}}
_FEATURE_LISTS: _Schema = {1: {1: _KEY, 2: {1: _FEATURE}}}
_EXAMPLE: _Schema = {1: _FEATURES, 2: _FEATURE_LISTS}


# Called with the name of a feature and a possible image; gives the replacement, or None.
_Change = Callable[[str, bytes], "bytes | None"]


def _find_images(data: bytes, number: int, options: Options) -> Record:
    blobs: list[Blob] = []

    def collect(key: str, value: bytes) -> None:
        if may_be_image(key, value[:HEAD_BYTES], options):
            place = f"record {number}, {shortened(key)}" if key else f"record {number}"
            blobs.append(Blob(key, value, place))

    try:
        _changed(data, collect)
    except (IndexError, ValueError):  # not a message
        return Record((), data)
    return Record(blobs, data)


def _rebuilt(data: bytes, outcomes: Sequence[Outcome | None], options: Options) -> bytes:
    if not any(outcome is not None and outcome.data is not None for outcome in outcomes):
        return data
    results = iter(outcomes)

    def change(key: str, value: bytes) -> bytes | None:
        found = next(results) if may_be_image(key, value[:HEAD_BYTES], options) else None
        return None if found is None else found.data

    return _changed(data, change)


def _changed(data: bytes, change: _Change) -> bytes:
    """The record with the replacements of `change`."""
    if format_of(data[:HEAD_BYTES])[1]:  # A record may be an image and nothing else.
        new = change("", data)
    else:
        new = _walk(data, 0, len(data), _EXAMPLE, "", change)
    return data if new is None else new


def _walk(
    data: bytes,
    at: int,
    end: int,
    schema: Mapping[int, _Schema | str],
    key: str,
    change: _Change,
) -> bytes | None:
    """The message in `data[at:end]` with the replacements of `change`; None without any."""
    kept_from = at
    if _KEY in schema.values():  # It may come after its feature.
        for tag, wire, _, value, stop in _fields(data, at, end):
            if wire == _BYTES and schema.get(tag >> 3) == _KEY:
                key = data[max(value, stop - MOST_NAME) : stop].decode(errors="backslashreplace")
    pieces: list[bytes] = []
    for tag, wire, start, value, stop in _fields(data, at, end):
        inside = schema.get(tag >> 3) if wire == _BYTES else None
        if inside is None or inside == _KEY:
            continue
        if isinstance(inside, str):
            new = change(key, data[value:stop])
        else:
            new = _walk(data, value, stop, inside, key, change)
        if new is not None:
            pieces += [data[kept_from:start], _varint(tag), _varint(len(new)), new]
            kept_from = stop
    return b"".join([*pieces, data[kept_from:end]]) if pieces else None


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Tag, wire type, start, start of the value and end of each field in `data[at:end]`."""
    while at < end:
        start = at
        tag, at = read_varint(data, at)
        wire = tag & 7
        value = at
        if wire == _VARINT:
            _, at = read_varint(data, at)
        elif wire == _FIXED64:
            at += 8
        elif wire == _FIXED32:
            at += 4
        elif wire == _BYTES:
            length, value = read_varint(data, at)
            at = value + length
        else:
            raise ValueError("a group")
        if at > end:
            raise ValueError("a field beyond its message")
        yield tag, wire, start, value, at


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of 7 bits a byte, and its end."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _varint(value: int) -> bytes:
    pieces = bytearray()
    while value > 127:
        pieces.append(value & 127 | 128)
        value >>= 7
    pieces.append(value)
    return bytes(pieces)
