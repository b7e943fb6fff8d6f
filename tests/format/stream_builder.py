"""Builds L3 streams from explicit choices, those our encoder would never make included.

A `Stream` is a file as its parts. Payloads come from pixels (`constant_tile`, `stored_tile`) or
from raw fields (`payload`). Invalid streams come from wrong choices, or from `repair` on damaged
bytes. tests/fuzz/generator.h builds streams of every coding.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from reference_decoder import (
    CONSTANT,
    HEADER_BYTES,
    HEADER_OFFSETS,
    SIGNATURE,
    STORED,
    Header,
    crc32c,
    tile_check,
)

Integers = NDArray[Any]


@dataclass
class Stream:
    """A file as its parts (format.md 2). `to_bytes` adds all that follows from them."""

    width: int
    height: int
    channels: int = 1
    sample_bits: int = 8
    used_bits: int = 8
    tile_width_log2: int = 5
    tile_height_log2: int = 3
    meaning: int = 0
    is_signed: bool = False
    chunks: list[bytes] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    chunks_bytes: int | None = None
    index: list[int] | None = None

    def to_bytes(self) -> bytes:
        """Returns the file. Its CRCs are right for whatever the fields say."""
        chunks = b"".join(self.chunks)
        header = SIGNATURE + struct.pack(
            "<BBHBBBBIII",
            1,  # the version
            (self.sample_bits == 16) + 2 * self.is_signed,
            self.channels,
            self.used_bits,
            0,  # the shift
            self.tile_width_log2 | self.tile_height_log2 << 4,
            self.meaning,
            self.width,
            self.height,
            len(chunks) if self.chunks_bytes is None else self.chunks_bytes,
        )
        ends = np.cumsum([len(payload) // 16 for payload in self.payloads])
        index = np.asarray(ends if self.index is None else self.index, "<u4").tobytes()
        data = header + _u32(crc32c(header)) + chunks + index + _u32(crc32c(chunks + index))
        return data + bytes(-len(data) % 16) + b"".join(self.payloads)

    def tiles_of(self, image: Integers) -> list[Integers]:
        """Cuts an image of shape (height, width, channels) into views of its tiles."""
        tile_width, tile_height = 1 << self.tile_width_log2, 1 << self.tile_height_log2
        return [
            image[y : y + tile_height, x : x + tile_width]
            for y in range(0, self.height, tile_height)
            for x in range(0, self.width, tile_width)
        ]


def _u32(number: int) -> bytes:
    return struct.pack("<I", number)


# format.md 4


def chunk(kind: bytes, data: bytes) -> bytes:
    """A chunk, padded to a multiple of 4 bytes."""
    return kind + _u32(len(data)) + data + bytes(-len(data) % 4)


def groups_chunk(groups: Sequence[Sequence[int]]) -> bytes:
    """The `GRPS` chunk."""
    data = struct.pack("<H", len(groups))
    for group in groups:
        data += struct.pack(f"<B{len(group)}H", len(group), *group)
    return chunk(b"GRPS", data)


# format.md 5


def payload(coding: int, body: bytes) -> bytes:
    """A payload: check, tile header, body and its padding."""
    unchecked = struct.pack("<IBBH", 0, coding, 0, 0) + body
    unchecked += bytes(-len(unchecked) % 16)
    return _u32(tile_check(unchecked)) + unchecked[4:]


def constant_tile(values: Sequence[int]) -> bytes:
    """A tile with the same values in each pixel."""
    return payload(CONSTANT, struct.pack("<4H", *values, *[0] * (4 - len(values))))


def stored_tile(values: Integers, sample_bits: int) -> bytes:
    """A tile with its values as they are."""
    return payload(STORED, values.astype(f"<u{sample_bits // 8}").tobytes())


# Damaged bytes.


def repair(data: bytes) -> bytes:
    """Makes the CRCs and tile checks of damaged bytes right again, as far as they lie inside."""
    if len(data) < HEADER_BYTES:
        return data
    out = bytearray(data)
    crc_begin = HEADER_OFFSETS["header_crc"]
    out[crc_begin:HEADER_BYTES] = _u32(crc32c(data[:crc_begin]))
    header = Header.from_bytes(data)
    groups = int.from_bytes(data[40:42], "little") if header.channels > 4 else 1
    index_begin = HEADER_BYTES + header.chunks_bytes
    index_end = index_begin + 4 * header.tile_count * groups
    if len(out) < index_end + 4:
        return bytes(out)
    out[index_end : index_end + 4] = _u32(crc32c(data[HEADER_BYTES:index_end]))
    begin = payloads = -(-(index_end + 4) // 16) * 16
    for (end,) in struct.iter_unpack("<I", out[index_begin:index_end]):
        end = payloads + 16 * end
        if begin < end <= len(out):
            out[begin : begin + 4] = _u32(tile_check(bytes(out[begin:end])))
        begin = end
    return bytes(out)
