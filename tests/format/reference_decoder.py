"""A decoder of L3 images in NumPy, written from docs/format.md alone and in its order.

It is the second reading of the specification: slow enough to be plain, and the
reference of every engine. It must not import or mirror the C++ sources.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.int64]
Samples = NDArray[Any]

# format.md 2: the position is the number of the Status.
STATUS_NAMES = (
    "kOk",
    "kTruncated",
    "kBadMagic",
    "kUnsupportedVersion",
    "kUnsupportedFeature",
    "kCorruptHeader",
    "kCorruptTile",
    "kChecksumMismatch",
    "kOutputTooSmall",
    "kInvalidArgument",
)

SIGNATURE = b"\x8bL3F\r\n\x1a\n"
HEADER_BYTES = 32
# Of the fields of the header behind its signature.
HEADER_OFFSETS = {
    "version": 8,
    "sample_type": 9,
    "channels": 10,
    "used_bits": 12,
    "shift": 13,
    "tile_log2": 14,
    "meaning": 15,
    "width": 16,
    "height": 20,
    "chunks_bytes": 24,
    "header_crc": 28,
}
KNOWN_CHUNKS = (
    b"GRPS", b"VTAB", b"RANS", b"MTCH", b"icc ", b"exif", b"plte", b"xmp ", b"keyv",
)  # fmt: skip
KNOWN_CHUNKS_OF_VERSION_2 = (*KNOWN_CHUNKS, b"JPEG", b"jrst", b"SMPL")
AS_THEY_ARE, RANKS_8, RANKS_16, HALVES = range(4)  # how samples are held
CONSTANT, STORED, PACKED, RANS, MATCH, JPEG = range(6)
LAYOUT_CONSTANT, LAYOUT_ABSOLUTE, LAYOUT_DELTA, LAYOUT_SPARSE = range(4)
ADDS_W = (0, 3, 4, 7)  # the predictors that use W
GROUP = np.arange(8)
# format.md 5.4
FIRST, SECOND, THIRD = range(3)
TAP_COUNTS = (8, 12, 16)  # of each role
LEVELS = 64
TOKENS = np.arange(40)
RAW_BITS = np.where(TOKENS < 16, 0, 3 + (TOKENS - 16 >> 1))
TOKEN_BEGINS = np.where(TOKENS < 16, TOKENS, 2 + (TOKENS - 16 & 1) << RAW_BITS)
# format.md 5.6, of last numbers
LAST_RAW_BITS = np.where(TOKENS < 12, 0, 2)
LAST_BEGINS = np.where(TOKENS < 12, TOKENS, 12 + 4 * (TOKENS - 12))


class FormatError(ValueError):
    """The stream breaks a rule; `status` is the name that format.md gives it."""

    def __init__(self, status: str, reason: str) -> None:
        """Keeps the Status; `tile` stays None unless one tile is to blame."""
        super().__init__(f"{status}: {reason}")
        self.status = status
        self.tile: int | None = None


def _require(rule: bool, status: str, reason: str) -> None:
    if not rule:
        raise FormatError(status, reason)


@dataclass(frozen=True)
class Header:
    """The fixed header (format.md 3)."""

    sample_type: int
    channels: int
    used_bits: int
    shift: int
    tile_width_log2: int
    tile_height_log2: int
    meaning: int
    width: int
    height: int
    chunks_bytes: int
    holding: int = AS_THEY_ARE

    @classmethod
    def from_bytes(cls, data: bytes) -> Header:
        """The fields of a header, whatever they are."""
        fields = struct.unpack_from("<BHBBBBIII", data, HEADER_OFFSETS["sample_type"])
        sample_type, channels, used_bits, shift, tile_log2, meaning, *sizes = fields
        width, height, chunks_bytes = sizes
        tile = (tile_log2 & 15, tile_log2 >> 4)
        kind, holding = sample_type & 7, sample_type >> 3
        last = (meaning, width, height, chunks_bytes, holding)
        return cls(kind, channels, used_bits, shift, *tile, *last)

    @property
    def sample_bits(self) -> int:
        """How many bits a sample has."""
        return 8 if self.sample_type in (0, 2) else 16 if self.sample_type in (1, 3, 6) else 32

    @property
    def is_signed(self) -> bool:
        """Whether samples may be negative."""
        return self.sample_type in (2, 3, 5)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the samples."""
        kind = "f" if self.sample_type >= 6 else "i" if self.is_signed else "u"
        return np.dtype(f"{kind}{self.sample_bits // 8}")

    @property
    def coded(self) -> Header:
        """The header of what the tiles hold (format.md 4.6)."""
        if self.sample_type < 4:
            return self
        channels = self.channels * (2 if self.holding == HALVES else 1)
        kind = 0 if self.holding == RANKS_8 else 1
        return replace(self, sample_type=kind, channels=channels, holding=AS_THEY_ARE)

    @property
    def most_group_channels(self) -> int:
        """How many channels a group may have."""
        return 2 if self.holding == HALVES else 4

    @property
    def tile_columns(self) -> int:
        """How many tiles lie side by side."""
        return -(-self.width >> self.tile_width_log2)

    @property
    def tile_count(self) -> int:
        """How many tiles cover the image."""
        return self.tile_columns * -(-self.height >> self.tile_height_log2)

    @property
    def has_large_tiles(self) -> bool:
        """Whether every tile must be stored."""
        return max(self.tile_width_log2, self.tile_height_log2) > 8

    def tile_area(self, tile: int) -> tuple[int, int, int, int]:
        """Returns y, x, height and width of a tile, cut at the edges (format.md 5)."""
        x = tile % self.tile_columns << self.tile_width_log2
        y = tile // self.tile_columns << self.tile_height_log2
        height = min(1 << self.tile_height_log2, self.height - y)
        width = min(1 << self.tile_width_log2, self.width - x)
        return y, x, height, width


@dataclass(frozen=True)
class RansModel:
    """What the rans tiles of an image share (format.md 5.4)."""

    gradient_weight: int
    set_begin: Values  # (positions, 2)
    table_of_level: Values  # (positions, LEVELS)
    frequency: Values  # (tables, len(TOKENS))


@dataclass(frozen=True)
class MatchModel:
    """What the match tiles of an image share (format.md 5.5)."""

    table_of_context: Values  # (CONTEXTS,)
    frequency: Values  # (tables, len(TOKENS))
    colors: Values | None  # (numbers, channels); None where numbers are values


@dataclass(frozen=True)
class JpegModel:
    """What tables the contexts of jpeg tiles have, and these tables (format.md 4.4)."""

    coefficients: Values  # (classes, 64, 16)
    last: Values  # (components, 17)
    dc: Values  # (classes, 12)
    frequency: Values  # (tables, len(TOKENS))


@dataclass(frozen=True)
class JpegChunk:
    """What the jpeg tiles of an image share (format.md 4.3)."""

    color: int
    halves: tuple[int, int]  # 1 if components 1 and 2 have half the rows, half the columns
    quantizers: Values  # (components, 64), in zigzag order
    model: JpegModel

    def shifts(self, component: int) -> tuple[int, int]:
        """How far rows and columns of the image are shifted to give those of a component."""
        return self.halves if component else (0, 0)

    def blocks(self, component: int, height: int, width: int) -> tuple[int, int]:
        """The rows and columns of blocks of that many pixels."""
        shift_y, shift_x = self.shifts(component)
        return -(-height >> shift_y + 3), -(-width >> shift_x + 3)


@dataclass(frozen=True)
class ParsedImage:
    """A file whose header, chunks and index are valid."""

    header: Header
    chunks: list[tuple[bytes, bytes]]
    groups: list[list[int]]  # of channels
    value_table: NDArray[np.int64] | None
    rans_model: RansModel
    match_model: MatchModel | None
    jpeg: JpegChunk | None
    payloads: list[bytes]  # tile after tile, in each group after group


def decode(data: bytes) -> tuple[Samples, ParsedImage]:
    """Decodes a file to an array of shape (height, width, channels), or raises FormatError."""
    image = parse(data)
    header = image.header
    if image.jpeg is not None:
        return _jpeg_pixels(decode_coefficients(image), header, image.jpeg), image
    join = _read_samples(image)
    samples = np.empty((header.height, header.width, header.channels), header.dtype)
    for number, payload in enumerate(image.payloads):
        tile, place = divmod(number, len(image.groups))
        y, x, h, w = header.tile_area(tile)
        group = image.groups[place]
        of_group = replace(image, header=replace(header, channels=len(group)).coded)
        try:
            values = _decode_tile(payload, of_group, h, w)
            samples[y : y + h, x : x + w, group] = join(_samples_of_values(values, of_group))
        except FormatError as error:
            error.tile = tile
            raise
    return samples, image


def parse(data: bytes) -> ParsedImage:
    """Validates everything that comes before a tile is decoded."""
    header = parse_header(data)

    # format.md 4, stages 1 to 3
    group_count = _parse_group_count(data, header)
    index_begin = HEADER_BYTES + header.chunks_bytes
    index_end = index_begin + 4 * header.tile_count * group_count
    _require(len(data) >= index_end + 4, "kTruncated", "the file ends before the index CRC does")
    (index_crc,) = struct.unpack_from("<I", data, index_end)
    _require(
        crc32c(data[HEADER_BYTES:index_end]) == index_crc, "kChecksumMismatch", "index CRC differs"
    )

    # format.md 4, stage 4
    version = data[HEADER_OFFSETS["version"]]
    chunks, groups, value_table, rans_model, match_model, jpeg = _parse_chunks(
        data[HEADER_BYTES:index_begin], header, group_count, version
    )

    # format.md 4, stage 5
    if match_model is not None:
        tables = len(rans_model.frequency) + len(match_model.frequency)
        _require(tables <= 32, "kCorruptHeader", f"{tables} tables together")

    # format.md 4, stage 6
    kinds = {kind for kind, _ in chunks}
    if header.sample_type >= 4:
        is_held = header.holding != AS_THEY_ARE
        _require((b"SMPL" in kinds) == is_held, "kCorruptHeader", "how samples are held")
        _require(jpeg is None, "kCorruptHeader", "JPEG beside such samples")
    elif version == 2:
        _require(jpeg is not None, "kCorruptHeader", "version 2 without JPEG")
        _require(not kinds & {b"VTAB", b"RANS", b"MTCH", b"SMPL"}, "kCorruptHeader", "beside JPEG")

    # format.md 4, stage 7, and 5
    ends = np.frombuffer(data[index_begin:index_end], "<u4").astype(np.int64) * 16
    begins = np.concatenate([[0], ends[:-1]])
    sizes = ends - begins
    _require(bool((sizes >= 16).all()), "kCorruptHeader", "a payload is shorter than 16 bytes")
    _require(bool((sizes < 1 << 31).all()), "kCorruptHeader", "a payload has 2^31 bytes or more")
    if header.has_large_tiles:
        areas = [header.tile_area(tile) for tile in range(header.tile_count)]
        stored = [
            8 + h * w * len(group) * header.sample_bits // 8
            for _, _, h, w in areas
            for group in groups
        ]
        is_stored = bool((sizes == [-(-size // 16) * 16 for size in stored]).all())
        _require(is_stored, "kCorruptHeader", "a large tile is not as long as it is when stored")

    # format.md 2
    payloads_begin = -(-(index_end + 4) // 16) * 16
    payloads_end = payloads_begin + int(ends[-1])
    _require(len(data) >= payloads_end, "kTruncated", "the file ends before the last payload does")
    _require(
        not any(data[index_end + 4 : payloads_begin]), "kCorruptHeader", "a padding byte is not 0"
    )
    _require(len(data) == payloads_end, "kCorruptHeader", "bytes follow the last payload")
    payloads = [
        data[payloads_begin + begin : payloads_begin + end]
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]
    return ParsedImage(header, chunks, groups, value_table, rans_model, match_model, jpeg, payloads)


def parse_header(data: bytes) -> Header:
    """Reads the fixed header (format.md 3)."""
    if len(data) < len(SIGNATURE) and SIGNATURE.startswith(data):
        raise FormatError("kTruncated", "the file ends within the signature")
    _require(data.startswith(SIGNATURE), "kBadMagic", "the signature differs")
    _require(len(data) >= HEADER_BYTES, "kTruncated", "the file ends within the header")
    version = data[HEADER_OFFSETS["version"]]
    supported = version in (1, 2)
    _require(supported, "kUnsupportedVersion", f"version {version}")
    crc_begin = HEADER_OFFSETS["header_crc"]
    (header_crc,) = struct.unpack_from("<I", data, crc_begin)
    _require(crc32c(data[:crc_begin]) == header_crc, "kChecksumMismatch", "header CRC differs")
    header = Header.from_bytes(data)
    is_held = header.sample_bits == 32
    held = header.holding <= HALVES and (header.holding != AS_THEY_ARE) == is_held
    bits = header.coded.sample_bits
    valid = (
        header.sample_type <= (3 if version == 1 else 7)
        and held
        and not (header.has_large_tiles and header.holding != AS_THEY_ARE)
        and 1 <= header.channels <= 4096
        and 1 <= header.used_bits <= bits
        and header.shift <= bits - header.used_bits
        and 5 <= header.tile_width_log2 <= 15
        and 3 <= header.tile_height_log2 <= 15
        and header.meaning <= 1
        and header.width >= 1
        and header.height >= 1
        and header.width * header.height <= 1 << 31
        and header.chunks_bytes % 4 == 0
        and header.chunks_bytes <= 1 << 28
    )
    _require(valid, "kCorruptHeader", f"a field outside its valid values: {header}")
    return header


def crc32c(data: bytes) -> int:
    """The Castagnoli CRC (format.md 3)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_TABLE[crc & 0xFF ^ byte]
    return crc ^ 0xFFFFFFFF


def _crc_of_byte(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # 0x1EDC6F41, reflected
    return byte


_CRC_TABLE = [_crc_of_byte(byte) for byte in range(256)]


# format.md 4


class _ChunkReader:
    """Reads the fields of a chunk in turn."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def byte(self) -> int:
        """Takes a u8."""
        _require(self.position < len(self.data), "kCorruptHeader", "a chunk ends too early")
        self.position += 1
        return self.data[self.position - 1]

    def base128(self, max_bytes: int) -> int:
        """Takes a number in base 128."""
        number = 0
        for place in range(max_bytes):
            byte = self.byte()
            number |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return number
        raise FormatError("kCorruptHeader", f"a number has more than {max_bytes} bytes")

    def require_end(self) -> None:
        """Checks that nothing is left."""
        _require(self.position == len(self.data), "kCorruptHeader", "bytes follow a chunk's data")


def _parse_group_count(data: bytes, header: Header) -> int:
    if header.channels <= header.most_group_channels:
        return 1
    status = "kCorruptHeader"
    _require(header.chunks_bytes >= 10, status, "no room for a list of channel groups")
    _require(len(data) >= HEADER_BYTES + 10, "kTruncated", "the file ends in the channel groups")
    kind, count = data[HEADER_BYTES : HEADER_BYTES + 4], int.from_bytes(data[40:42], "little")
    _require(kind == b"GRPS", status, "the first chunk is not the list of channel groups")
    _require(
        -(-header.channels // header.most_group_channels) <= count <= header.channels,
        status,
        f"{count} groups",
    )
    return count


def _parse_groups(data: bytes, header: Header, group_count: int) -> list[list[int]]:
    status = "kCorruptHeader"
    reader = _ChunkReader(data[2:])
    groups = []
    for _ in range(group_count):
        size = reader.byte()
        _require(1 <= size <= header.most_group_channels, status, f"a group of {size} channels")
        groups.append([reader.byte() | reader.byte() << 8 for _ in range(size)])
    reader.require_end()
    channels = sorted(channel for group in groups for channel in group)
    _require(channels == list(range(header.channels)), status, "channels are not in one group each")
    return groups


def _parse_chunks(
    area: bytes, header: Header, group_count: int, version: int
) -> tuple[
    list[tuple[bytes, bytes]],
    list[list[int]],
    NDArray[np.int64] | None,
    RansModel,
    MatchModel | None,
    JpegChunk | None,
]:
    known = KNOWN_CHUNKS if version == 1 else KNOWN_CHUNKS_OF_VERSION_2
    jpeg = None
    chunks: list[tuple[bytes, bytes]] = []
    groups = [list(range(header.channels))]
    value_table = None
    coded = header.coded
    positions = min(coded.channels, 4)
    rans_model = built_in_rans_model(positions, header.used_bits)
    match_model = None
    while area:
        _require(len(area) >= 8, "kCorruptHeader", "a chunk's header passes the chunk area")
        kind, length = struct.unpack_from("<4sI", area)
        padded = -(-length // 4) * 4
        _require(len(area) >= 8 + padded, "kCorruptHeader", "a chunk passes the chunk area")
        text = kind.replace(b" ", b"0")
        _require(text.isalnum(), "kCorruptHeader", f"chunk type {kind!r}")
        data, padding = area[8 : 8 + length], area[8 + length : 8 + padded]
        _require(not any(padding), "kCorruptHeader", "a chunk's padding is not 0")
        if kind in known:
            seen = any(kind == other for other, _ in chunks)
            _require(not seen, "kCorruptHeader", f"chunk {kind!r} occurs twice")
        else:
            required = kind[:1].isupper()
            _require(not required, "kUnsupportedFeature", f"required chunk {kind!r}")
        if kind == b"GRPS":
            many = header.channels > header.most_group_channels
            _require(many and not chunks, "kCorruptHeader", "a list of channel groups")
            groups = _parse_groups(data, header, group_count)
        if kind == b"VTAB":
            value_table = _parse_value_table(data, coded)
        if kind == b"RANS":
            rans_model = parse_rans_model(data, positions, header.used_bits)
        if kind == b"MTCH":
            match_model = parse_match_model(data, coded.channels, header.used_bits)
        if kind == b"JPEG" and kind in known:
            jpeg = parse_jpeg_chunk(data, header)
        if kind == b"SMPL" and kind in known:
            _parse_samples_chunk(data, header)
        chunks.append((kind, data))
        area = area[8 + padded :]
    return chunks, groups, value_table, rans_model, match_model, jpeg


# format.md 4.6


def _parse_samples_chunk(data: bytes, header: Header) -> ParsedImage | tuple[int, int]:
    """The image of the table, or the minimum and the number of zero bits of halves."""
    status = "kCorruptHeader"
    if header.holding == HALVES:
        _require(len(data) == 5 and data[4] < 32, status, "halves")
        return int.from_bytes(data[:4], "little"), data[4]
    _require(header.holding in (RANKS_8, RANKS_16), status, "samples are held as they are")
    try:
        table = parse(data)
    except FormatError as error:
        raise FormatError(status, f"the table: {error}") from None
    of = table.header
    most = 256 if header.holding == RANKS_8 else 65536
    is_table = (
        data[HEADER_OFFSETS["version"]] == 1
        and (of.sample_type, of.channels) == (1, 2)
        and not of.has_large_tiles
        and table.match_model is None
        and of.width * of.height <= most
    )
    _require(is_table, status, "the table is another image")
    return table


def _read_samples(image: ParsedImage) -> Callable[[Values], Samples]:
    """From what tiles hold to samples."""
    header = image.header
    if header.holding == AS_THEY_ARE:
        return lambda values: values.astype(header.coded.dtype).view(header.dtype)
    held = _parse_samples_chunk(dict(image.chunks)[b"SMPL"], header)
    if isinstance(held, tuple):
        minimum, zeros = held

        def join(halves: Values) -> Samples:
            high, low = np.split(halves, 2, axis=2)
            samples = ((high << 16 | low) << zeros) + minimum
            return samples.astype(np.uint32).view(header.dtype)

        return join
    try:
        gaps = _table_gaps(held)
    except FormatError as error:
        wrong = FormatError("kCorruptHeader", f"the table: {error}")
        wrong.tile = 0
        raise wrong from None
    table = np.cumsum(gaps).astype(np.uint32).view(header.dtype)
    samples: Samples = table
    return lambda ranks: samples[np.minimum(ranks, len(samples) - 1)]


def _table_gaps(table: ParsedImage) -> Values:
    gaps = np.empty((table.header.height, table.header.width, 2), np.int64)
    for tile, payload in enumerate(table.payloads):
        y, x, h, w = table.header.tile_area(tile)
        values = _decode_tile(payload, table, h, w)
        gaps[y : y + h, x : x + w] = _samples_of_values(values, table)
    low, high = np.moveaxis(gaps, 2, 0)
    numbers: Values = (high << 16 | low).ravel()
    return numbers


def _parse_value_table(data: bytes, header: Header) -> NDArray[np.int64]:
    status = "kCorruptHeader"
    _require(len(data) >= 4, status, "a value table without its count")
    (count,) = struct.unpack_from("<I", data)
    _require(1 <= count <= 1 << header.sample_bits, status, f"{count} values")
    _require(header.used_bits == max(1, (count - 1).bit_length()), status, "used_bits differs")
    _require(header.shift == 0, status, "a shift beside a value table")
    reader = _ChunkReader(data[4:])
    gaps = [reader.base128(3) for _ in range(count)]
    reader.require_end()
    table = np.cumsum(np.array(gaps) + 1) - 1
    _require(int(table[-1]) < 1 << header.sample_bits, status, "a value reaches 2^sample_bits")
    return table


def _samples_of_values(values: Values, image: ParsedImage) -> Values:
    header, table = image.header, image.value_table
    if table is None:
        offset = 1 << (header.used_bits - 1 + header.shift) if header.is_signed else 0
        return (values << header.shift) - offset
    _require(int(values.max()) < len(table), "kCorruptTile", "a value outside the value table")
    return table[values] - (1 << (header.sample_bits - 1) if header.is_signed else 0)


# format.md 5


def mix(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The bijection of the check."""
    x: NDArray[np.uint32] = words.copy()
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    return x


def tile_check(payload: bytes) -> int:
    """The check of a payload: over all of its bytes but the check itself."""
    words = np.frombuffer(payload, "<u4", offset=4)
    places = np.arange(1, len(words) + 1, dtype=np.uint32)
    total = mix(words + np.uint32(0x9E3779B1) * places).sum(keepdims=True, dtype=np.uint32)
    return int(mix(total + np.uint32(len(words)))[0])


class _Body:
    """Reads a payload behind the tile header, byte by byte or as bit fields."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.position = 8
        # The u32 that begins at each byte: enough for any field of 16 bits.
        padded = np.frombuffer(payload + bytes(4), np.uint8).astype(np.int64)
        self.words = np.zeros(len(payload) + 1, np.int64)
        for i in range(4):
            self.words |= padded[i : len(payload) + 1 + i] << 8 * i

    def take(self, count: int) -> int:
        """Returns where the next `count` bytes begin, and moves past them."""
        begin = self.position
        self.position += count
        inside = self.position <= len(self.payload)
        _require(inside, "kCorruptTile", "a part reaches past the payload")
        return begin

    def fields(self, first_bits: Values, widths: Values | int) -> Values:
        """Reads fields of `widths` bits that begin at `first_bits` of the payload."""
        words: Values = self.words[first_bits >> 3] >> (first_bits & 7)
        words &= (1 << np.asarray(widths)) - 1
        return words

    def take_fields(self, rows: int, columns: int, width: int) -> Values:
        """Takes a table of fields; each row of it fills whole bytes."""
        row_bytes = -(-columns * width // 8)
        begin = self.take(rows * row_bytes)
        row_bits = 8 * (begin + row_bytes * np.arange(rows))
        return self.fields(row_bits[:, None] + width * np.arange(columns), width)


def _decode_tile(payload: bytes, image: ParsedImage, h: int, w: int) -> Values:
    """Returns the values of a tile of h rows and w columns, shape (h, w, channels)."""
    header = image.header
    check, coding, transform, zero = struct.unpack_from("<IBBH", payload)
    _require(tile_check(payload) == check, "kChecksumMismatch", "a tile's check differs")
    _require(coding <= MATCH, "kUnsupportedFeature", f"coding {coding}")
    _require(transform <= 1, "kUnsupportedFeature", f"transform {transform}")
    _require(zero == 0, "kCorruptTile", "the u16 at 6 is not 0")
    if transform == 1:
        _require(header.channels >= 3, "kCorruptTile", "subtract green without colour")
        _require(coding == PACKED, "kCorruptTile", "subtract green in a tile that is not packed")
    if header.has_large_tiles:
        _require(coding == STORED, "kCorruptTile", "a large tile that is not stored")

    body = _Body(payload)
    if coding == RANS:
        values = _read_rans(body, header, image.rans_model, h, w)
    elif coding == MATCH:
        values = _read_match(body, header, image.match_model, h, w)
    else:
        read = (_read_constant, _read_stored, _read_packed)[coding]
        values = read(body, header, h, w)
    rest = payload[body.position :]
    _require(len(rest) < 16, "kCorruptTile", "the body ends before the last 16 bytes")
    _require(not any(rest), "kCorruptTile", "a byte after the body is not 0")
    _require(int(values.max()) < 1 << header.used_bits, "kCorruptTile", "a value is too large")
    return _add_green(values, header) if transform == 1 else values


# format.md 5.1


def _read_constant(body: _Body, header: Header, h: int, w: int) -> Values:
    values = np.frombuffer(body.payload, "<u2", 4, body.take(8)).astype(np.int64)
    _require(not values[header.channels :].any(), "kCorruptTile", "a value for a missing channel")
    return np.broadcast_to(values[: header.channels], (h, w, header.channels))


# format.md 5.2


def _read_stored(body: _Body, header: Header, h: int, w: int) -> Values:
    count = h * w * header.channels
    begin = body.take(count * header.sample_bits // 8)
    values = np.frombuffer(body.payload, f"<u{header.sample_bits // 8}", count, begin)
    return values.astype(np.int64).reshape(h, w, header.channels)


# format.md 5.3


def _read_packed(body: _Body, header: Header, h: int, w: int) -> Values:
    groups = -(-w // 8)
    used_bits = header.used_bits

    # Part 1
    channel_headers = [
        struct.unpack_from("<BBH", body.payload, body.take(4)) for _ in range(header.channels)
    ]
    for layout, start_width, base in channel_headers:
        _require(layout <= LAYOUT_SPARSE, "kCorruptTile", f"layout {layout}")
        limit = used_bits if layout == LAYOUT_DELTA else 0
        _require(start_width <= limit, "kCorruptTile", f"start_width {start_width}")
        _require(base < 1 << used_bits, "kCorruptTile", f"base {base}")
    coded = [c for c in range(header.channels) if channel_headers[c][0] != LAYOUT_CONSTANT]

    # Part 2
    predictors = {c: body.take_fields(1, h + h % 2, 4)[0, :h].tolist() for c in coded}
    for channel in coded:
        _require(max(predictors[channel]) <= 7, "kCorruptTile", "a predictor above 7")

    # Part 3
    widths: dict[int, Values] = {}
    for channel in coded:
        layout, start_width, _ = channel_headers[channel]
        if layout == LAYOUT_ABSOLUTE:
            codes = body.take_fields(h, groups, 4)
            widths[channel] = np.minimum(np.where(codes == 15, 16, codes), used_bits)
        elif layout == LAYOUT_DELTA:
            widths[channel] = body.take_fields(h, groups, 2) - 1
            row_above = np.full(groups, start_width)
            for row in widths[channel]:
                row[:] = row_above = np.clip(row_above + row, 0, used_bits)
        else:
            widths[channel] = body.take_fields(1, h, 1)[0]

    # Part 4
    planes: Values = np.empty((header.channels, h + 1, w), np.int64)
    for channel, (_, _, base) in enumerate(channel_headers):
        planes[channel] = base  # row 0 is the one above the tile
    for y in range(h):
        for channel in coded:
            if channel_headers[channel][0] == LAYOUT_SPARSE:
                folded = _read_sparse_row(body, bool(widths[channel][y]), groups, used_bits)
            else:
                folded = _read_dense_row(body, widths[channel][y])
            residuals = _unfold(folded)[:w]
            row_above = planes[channel, y]
            row = _add_prediction(predictors[channel][y], row_above, residuals)
            planes[channel, y + 1] = row & ((1 << used_bits) - 1)
    return np.moveaxis(planes[:, 1:], 0, 2)


def _read_dense_row(body: _Body, widths: Values) -> Values:
    """The folded residuals of a row of an absolute or delta layout, 8 for each group."""
    ends = np.cumsum(widths)
    begins = body.take(int(ends[-1])) + ends - widths
    return body.fields(8 * begins[:, None] + widths[:, None] * GROUP, widths[:, None]).reshape(-1)


def _read_sparse_row(body: _Body, has_bytes: bool, groups: int, used_bits: int) -> Values:
    """The folded residuals of a row of a sparse layout, 8 for each group."""
    folded = np.zeros((groups, 8), np.int64)
    if has_bytes:
        present = body.take_fields(1, groups, 1)[0] == 1
        m = int(present.sum())
        widths = np.minimum(body.take_fields(1, m, 4)[0] + 1, used_bits)
        masks = body.take_fields(m, 8, 1)
        field_widths = (masks * widths[:, None]).reshape(-1)
        ends = np.cumsum(field_widths)
        bits = int(field_widths.sum())
        first_bits = 8 * body.take(-(-bits // 8)) + ends - field_widths
        folded[present] = body.fields(first_bits, field_widths).reshape(m, 8)
    return folded.reshape(-1)


def _unfold(folded: Values) -> Values:
    return np.where(folded & 1, -(folded >> 1) - 1, folded >> 1)


def _add_prediction(predictor: int, above: Values, residuals: Values) -> Values:
    """The values of a row, not yet taken modulo 2^used_bits."""
    n = above
    nw = np.concatenate([above[:1], above[:-1]])
    ne = np.concatenate([above[1:], above[-1:]])
    values: Values = (
        lambda: 0 * n,
        lambda: n,
        lambda: (nw + 2 * n + ne + 2) >> 2,
        lambda: n - nw,
        lambda: (n - 2 * nw + ne + 2) >> 2,
        lambda: (n + ne + 1) >> 1,
        lambda: (nw + n + 1) >> 1,
        lambda: (ne - nw + 1) >> 1,
    )[predictor]() + residuals
    if predictor in ADDS_W:  # W is the sum so far, and above[0] at first
        np.cumsum(values, out=values)
        values += above[0]
    return values


# format.md 5.4


def parse_rans_model(data: bytes, positions: int, used_bits: int) -> RansModel:
    """Reads the data of a RANS chunk."""
    status = "kCorruptHeader"
    reader = _ChunkReader(data)
    table_count, gradient_weight = reader.byte(), reader.byte()
    _require(1 <= table_count <= 32, status, f"{table_count} tables")
    _require(gradient_weight <= 63, status, f"gradient_weight {gradient_weight}")
    set_begin = np.empty((positions, 2), np.int64)
    table_of_level = np.empty((positions, LEVELS), np.int64)
    for position in range(positions):
        begins = reader.byte(), reader.byte()
        _require(begins[0] <= begins[1] <= LEVELS, status, f"set_begin {begins}")
        set_begin[position] = begins
        table_of_level[position] = _read_runs(reader, table_count)
    frequency = _read_tables(reader, table_count, 24 if used_bits <= 8 else 40)
    reader.require_end()
    return RansModel(gradient_weight, set_begin, table_of_level, frequency)


def _read_runs(reader: _ChunkReader, table_count: int) -> list[int]:
    """The tables of 64 levels or contexts."""
    status = "kCorruptHeader"
    tables: list[int] = []
    while len(tables) < LEVELS:
        run = reader.byte()
        _require(run & 31 < table_count, status, f"table {run & 31} of a run")
        tables += [run & 31] * ((run >> 5) + 1)
    _require(len(tables) == LEVELS, status, "a run passes the last level")
    return tables


def _read_tables(reader: _ChunkReader, table_count: int, max_tokens: int) -> Values:
    status = "kCorruptHeader"
    frequency = np.zeros((table_count, len(TOKENS)), np.int64)
    for table in frequency:
        n = reader.byte()
        _require(n <= max_tokens, status, f"{n} frequencies")
        table[:n] = [reader.base128(2) for _ in range(n)]
        _require(int(table.sum()) == 1024, status, "frequencies do not add up to 1024")
    return frequency


def built_in_rans_model(channels: int, used_bits: int) -> RansModel:
    """The model of images without a RANS chunk, as appendix A prints it."""
    model = parse_rans_model(_BUILT_IN[used_bits > 8], 3, used_bits)
    like = [0, 1, 2, 0][:channels] if channels >= 3 else [0] * channels
    return replace(
        model, set_begin=model.set_begin[like], table_of_level=model.table_of_level[like]
    )


def _read_appendices() -> tuple[bytes, bytes, bytes]:
    text = (Path(__file__).parents[2] / "docs" / "format.md").read_text()
    built_in, jpeg = text[text.index("## Appendix A") :].split("## Appendix B")
    models = [*built_in.split("Where ")[1:], jpeg]
    lines = [re.findall("^    ([0-9A-F ]+)$", model, re.MULTILINE) for model in models]
    short, long, of_jpeg = (bytes.fromhex("".join(each)) for each in lines)
    return short, long, of_jpeg


*_BUILT_IN, _BUILT_IN_JPEG = _read_appendices()


def rans_roles(channels: int) -> list[int]:
    """The role of each position."""
    return [FIRST, SECOND, THIRD, FIRST][:channels] if channels >= 3 else [FIRST] * channels


def rans_channels(channels: int) -> list[int]:
    """The channel of each position."""
    return [1, 0, 2, 3][:channels] if channels >= 3 else list(range(channels))


def rans_lanes(width: int) -> int:
    """How many lanes share the rows of a tile."""
    lanes = 1
    while lanes < 32 and 4 * lanes <= width:
        lanes *= 2
    return lanes


# Given position, pixels (y * w + x), lanes, tables and predictions: the folded residuals.
RansSource = Callable[[int, Values, Values, Values, Values], Values]


def walk_rans(
    shape: tuple[int, int],
    used_bits: int,
    model: RansModel,
    base: Sequence[int],
    coefficients: Sequence[Values],
    read: RansSource,
) -> Values:
    """Gives the values of a tile of h rows and w columns, shape (h, w, positions).

    The coefficients of a position have one row for each of its sets. Each call of `read`
    gets one position of one step, the lanes rising.
    """
    h, w = shape
    by_step, lane, neighbours = _walk_lanes(h, w)
    roles = rans_roles(len(base))

    # The last place of each stands for what lies outside.
    values = np.zeros((len(base), h * w + 1), np.int64)
    values[:, -1] = base
    energies = np.zeros_like(values)
    for places in filter(len, by_step):
        here = neighbours[:, places]
        around: list[Values] = []
        new: list[Values] = []
        magnitudes: list[Values] = []
        for position, role in enumerate(roles):
            around.append(values[position][here])
            ne, n, nw, west = around[position][:4]
            energy = 3 * energies[position][here[3]] + 2 * energies[position][here[0]]
            if role == FIRST:
                gradient = np.abs(west - nw) + np.abs(n - nw) + np.abs(n - ne)
                activity = energy + model.gradient_weight * np.minimum(2047, gradient)
            elif role == SECOND:
                activity = energy + 4 * magnitudes[0]
            else:
                activity = energy + 4 * magnitudes[0] + 8 * magnitudes[1]
            level = _rans_level(activity)
            tables = model.table_of_level[position][level]

            sets = coefficients[position]
            begins = model.set_begin[position][: max(0, len(sets) - 1)]
            chosen = sets[(level >= begins[:, None]).sum(axis=0)] if len(sets) else None
            prediction = _predict_rans(role, around, new, chosen)
            prediction = np.clip(prediction, 0, (1 << used_bits) - 1)

            folded = read(position, places, lane[places], tables, prediction)
            new.append(prediction + _unfold(folded) & (1 << used_bits) - 1)
            magnitudes.append(np.minimum(2047, folded + 1 >> 1))
            values[position][places] = new[position]
            energies[position][places] = 48 * magnitudes[position] + energy >> 3
    planes: Values = values[:, :-1].T.reshape(h, w, len(base))
    return planes


def _walk_lanes(h: int, w: int) -> tuple[list[Values], Values, Values]:
    """The pixels of each step, the lane of each pixel, and its neighbours, shape (8, h * w)."""
    lane_count = rans_lanes(w)
    y, x = np.divmod(np.arange(h * w), w)
    lane = y % lane_count
    step = y // lane_count * max(w, 2) + 2 * lane + x
    by_step = np.split(np.lexsort((lane, step)), np.cumsum(np.bincount(step))[:-1])
    # NE N NW W NN WW NNE NWW
    dx, dy = (1, 0, -1, -1, 0, -2, 1, -2), (-1, -1, -1, 0, -2, 0, -2, -1)
    neighbours = np.array([_rans_place(x + i, y + j, w) for i, j in zip(dx, dy, strict=True)])
    return by_step, lane, neighbours


def _rans_place(x: Values, y: Values, w: int) -> Values:
    """The pixels that stand for (x, y), those outside included; -1 where base does."""
    x = np.minimum(x, w - 1) - 2 * np.maximum(-y, 0)
    y = np.maximum(y, 0)
    left = x < 0
    return np.where(left, np.where(y > 0, (y - 1) * w, -1), y * w + x)


def _rans_level(activity: Values) -> Values:
    v = activity + 8
    n = np.frexp(v)[1] - 1
    level: Values = 4 * (n - 3) + (v >> n - 2 & 3)
    return level


def _predict_rans(
    role: int, around: list[Values], new: list[Values], coefficients: Values | None
) -> Values:
    """The prediction before it is clamped, given the coefficients of each pixel or none."""
    own = around[-1]
    if coefficients is None:
        if role == FIRST:
            return _rans_gradient(own)
        return new[0] + _rans_gradient(own - around[0])
    taps = own
    if role == SECOND:
        taps = np.concatenate([own[:7], new, around[0][:4]])
    elif role == THIRD:
        taps = np.concatenate([own[:6], new, around[0][:4], around[1][:4]])
    prediction: Values = 32 + (coefficients.T * taps).sum(axis=0) >> 6
    return prediction


def _rans_gradient(around: Values) -> Values:
    _, n, nw, west = around[:4]
    gradient: Values = np.clip(west + n - nw, np.minimum(west, n), np.maximum(west, n))
    return gradient


class _RansStates:
    """The states of a tile's lanes, refilled from the body's words."""

    def __init__(self, body: _Body, states: Values, frequency: Values, used_bits: int) -> None:
        self.body = body
        self.states = states
        self.frequency = frequency
        self.starts = np.cumsum(frequency, axis=1) - frequency
        self.token_of_slot = np.array([TOKENS.repeat(table) for table in frequency])
        self.refills_twice = used_bits > 8

    def read(self, lanes: Values, tables: Values, *, are_last_numbers: bool = False) -> Values:
        """Takes one folded residual, or another number, from each of the lanes."""
        states = self.states[lanes]
        slots = states & 1023
        tokens = self.token_of_slot[tables, slots]
        states = self.frequency[tables, tokens] * (states >> 10)
        states += slots - self.starts[tables, tokens]
        if self.refills_twice:
            self._refill(states)
        if are_last_numbers:
            _require(int(tokens.max()) <= 24, "kCorruptTile", "a token of a last number over 24")
        bits = (LAST_RAW_BITS if are_last_numbers else RAW_BITS)[tokens]
        begins = (LAST_BEGINS if are_last_numbers else TOKEN_BEGINS)[tokens]
        folded: Values = begins + (states & (1 << bits) - 1)
        states >>= bits
        self._refill(states)
        self.states[lanes] = states
        return folded

    def _refill(self, states: Values) -> None:
        low = states < 1 << 16
        count = int(low.sum())
        words = np.frombuffer(self.body.payload, "<u2", count, self.body.take(2 * count))
        states[low] = states[low] << 16 | words


def _read_rans(body: _Body, header: Header, model: RansModel, h: int, w: int) -> Values:
    status = "kCorruptTile"
    channels = header.channels

    # Parts 1 and 2
    sets = struct.unpack_from("<4B", body.payload, body.take(4))
    base = struct.unpack_from("<4H", body.payload, body.take(8))
    missing = sets[channels:] + base[channels:]
    _require(max(sets) <= 3, status, f"sets {sets}")
    _require(max(base) < 1 << header.used_bits, status, f"base {base}")
    _require(not any(missing), status, "sets or base of a missing position")

    # Part 3
    coefficients = []
    for role, count in zip(rans_roles(channels), sets, strict=False):
        shape = (count, TAP_COUNTS[role])
        begin = body.take(shape[0] * shape[1])
        numbers = np.frombuffer(body.payload, "i1", shape[0] * shape[1], begin)
        coefficients.append(numbers.astype(np.int64).reshape(shape))

    # Part 4
    lanes = min(rans_lanes(w), h)
    states = np.frombuffer(body.payload, "<u4", lanes, body.take(4 * lanes)).astype(np.int64)
    _require(int(states.min()) >= 1 << 16, status, "a state under 2^16")

    # Part 5
    source = _RansStates(body, states, model.frequency, header.used_bits)
    planes = walk_rans(
        (h, w),
        header.used_bits,
        model,
        base[:channels],
        coefficients,
        lambda position, places, lanes, tables, predictions: source.read(lanes, tables),
    )
    _require(bool((states == 1 << 16).all()), status, "a lane does not end in 2^16")
    values: Values = np.empty_like(planes)
    values[..., rans_channels(channels)] = planes
    return values


# format.md 5.5


def parse_match_model(data: bytes, channels: int, used_bits: int) -> MatchModel:
    """Reads the data of a MTCH chunk."""
    status = "kCorruptHeader"
    reader = _ChunkReader(data)
    table_count = reader.byte()
    _require(channels <= 4, status, "match tiles of channel groups")
    _require(1 <= table_count <= 32, status, f"{table_count} tables")
    _require(channels * used_bits <= 56, status, "colours of more than 56 bits")
    table_of_context = np.array(_read_runs(reader, table_count))
    frequency = _read_tables(reader, table_count, 40)
    color_count = reader.byte() | reader.byte() << 8
    _require(color_count <= 65532, status, f"{color_count} colours")
    _require(color_count > 0 or channels == 1, status, "no colours")
    keys: list[int] = []
    for number in range(color_count):
        begins_block = number == 0 or (number >= 16 and number.bit_count() == 1)
        keys.append((0 if begins_block else keys[-1] + 1) + reader.base128(8))
        _require(keys[-1] < 1 << channels * used_bits, status, "a key is too large")
    reader.require_end()
    colors = None
    if keys:
        mask = (1 << used_bits) - 1
        fields = [[key >> used_bits * i & mask for key in keys] for i in range(channels)]
        parts = np.array(fields, np.int64)
        if channels >= 3:
            blue, red, green = parts[:3]
            parts[:3] = red + green & mask, green, blue + green & mask
        colors = parts.T
    return MatchModel(table_of_context, frequency, colors)


def match_contexts(around: Values) -> Values:
    """The contexts of pixels, of which `around` has NE N NW W NN WW NNE NWW."""
    ne, n, nw, west, _, ww, nne, nww = around
    pairs = ((west, n), (west, nw), (n, ne), (west, ww), (ne, nne), (nw, nww))
    contexts: Values = sum((a == b).astype(np.int64) << bit for bit, (a, b) in enumerate(pairs))
    return contexts


# Given step, pixels (y * w + x), lanes and neighbours: what the tokens stand for.
MatchSource = Callable[[int, Values, Values, Values], Values]


def walk_match(
    shape: tuple[int, int], base: int, skips: Values, limit: int, read: MatchSource
) -> Values:
    """Gives the numbers of the colours of a tile of h rows and w columns, shape (h, w).

    `skips` has 1 for each block of 16 steps that is skipped. Each call of `read` gets one step, the
    lanes rising, and its neighbours in the order of `match_contexts`.
    """
    h, w = shape
    by_step, lane, neighbours = _walk_lanes(h, w)
    numbers = np.zeros(h * w + 1, np.int64)
    numbers[-1] = base
    for step, places in enumerate(by_step):
        around = numbers[neighbours[:, places]]
        z = np.zeros(len(places), np.int64)
        if len(places) and not skips[step // 16]:
            z = read(step, places, lane[places], around)
        ne, n, nw, west = around[:4]
        new = np.select([z == 0, z == 1, z == 2, z == 3], [west, n, ne, nw], z - 4)
        _require(int(new.max(initial=0)) < limit, "kCorruptTile", "no number of a colour")
        numbers[places] = new
    return numbers[:-1].reshape(h, w)


def match_steps(h: int, w: int) -> int:
    """How many steps a tile has."""
    lanes = rans_lanes(w)
    return (h - 1) // lanes * max(w, 2) + 2 * ((h - 1) % lanes) + w


def _read_match(body: _Body, header: Header, model: MatchModel | None, h: int, w: int) -> Values:
    status = "kCorruptTile"
    if model is None:
        raise FormatError(status, "a match tile without MTCH")
    limit = 1 << header.used_bits if model.colors is None else len(model.colors)
    (base,) = struct.unpack_from("<H", body.payload, body.take(2))
    _require(base < limit, status, f"base {base}")
    skips = body.take_fields(1, 16 * -(-match_steps(h, w) // 256), 1)[0]
    lanes = min(rans_lanes(w), h)
    states = np.frombuffer(body.payload, "<u4", lanes, body.take(4 * lanes)).astype(np.int64)
    _require(int(states.min()) >= 1 << 16, status, "a state under 2^16")
    source = _RansStates(body, states, model.frequency, 16)
    numbers = walk_match(
        (h, w),
        base,
        skips,
        limit,
        lambda step, places, lanes, around: source.read(
            lanes, model.table_of_context[match_contexts(around)]
        ),
    )
    _require(bool((states == 1 << 16).all()), status, "a lane does not end in 2^16")
    return numbers[..., None] if model.colors is None else model.colors[numbers]


# format.md 4.3 and 4.4


def _zigzag_key(place: int) -> tuple[int, int]:
    """Sorts places by diagonals, and those of a diagonal upwards or downwards in turn."""
    v, u = divmod(place, 8)
    return v + u, v if (v + u) % 2 else -v


ZIGZAG = np.array(sorted(range(64), key=_zigzag_key))


def parse_jpeg_chunk(data: bytes, header: Header) -> JpegChunk:
    """Reads the data of a JPEG chunk."""
    status = "kCorruptHeader"
    reader = _ChunkReader(data)
    color, sampling = reader.byte(), reader.byte()
    _require(color <= 2, status, f"color {color}")
    _require(sampling <= (3 if color == 1 else 0), status, f"sampling {sampling}")
    components = 1 if color == 0 else 3
    _require(header.channels == components, status, f"{header.channels} channels")
    of_bytes = (header.sample_type, header.used_bits, header.shift) == (0, 8, 0)
    _require(of_bytes, status, "samples that are not u8")
    _require(not header.has_large_tiles, status, "large tiles")
    halves = (sampling >> 1, sampling & 1)
    _require(header.tile_height_log2 >= 3 + halves[0], status, "tiles of half a block")
    tables: list[list[int]] = []
    quantizers = []
    for _ in range(components):
        number = reader.byte()
        _require(number <= len(tables), status, f"quantizers {number}")
        if number == len(tables):
            tables.append([reader.base128(3) for _ in range(64)])
            is_sound = min(tables[-1]) >= 1 and max(tables[-1]) <= 65535
            _require(is_sound, status, "a quantizer")
        quantizers.append(tables[number])
    if reader.position < len(data):
        model = parse_jpeg_model(data[reader.position :], components)
    else:
        model = parse_jpeg_model(_BUILT_IN_JPEG, 3)
    return JpegChunk(color, halves, np.array(quantizers), model)


class _Bits:
    """Reads a string of bits."""

    def __init__(self, data: bytes) -> None:
        self.bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").tolist()
        self.position = 0

    def field(self, count: int) -> int:
        """Takes a field of some bits."""
        taken = self.bits[self.position : self.position + count]
        _require(len(taken) == count, "kCorruptHeader", "the bits end within a field")
        self.position += count
        return sum(bit << place for place, bit in enumerate(taken))

    def unary(self) -> int:
        """Takes a unary number."""
        zeros = 0
        while self.field(1) == 0:
            zeros += 1
            _require(zeros <= 31, "kCorruptHeader", "a unary number over 31")
        return zeros


def parse_jpeg_model(data: bytes, components: int) -> JpegModel:
    """Reads a model as a JPEG chunk has it."""
    bits = _Bits(data)
    table_count = bits.field(5) + 1
    classes = min(components, 2)
    coefficients = np.zeros((classes, 64, 16), np.int64)
    for number in range(classes):
        above = coefficients[0, 1] if number else None
        for k in range(1, 64):
            coefficients[number, k] = above = _read_row(bits, table_count, above, 16)
    last = np.zeros((components, 17), np.int64)
    for component in range(components):
        above = last[component - 1] if component else None
        last[component] = _read_row(bits, table_count, above, 17)
    dc = np.zeros((classes, 12), np.int64)
    for number in range(classes):
        dc[number] = _read_row(bits, table_count, dc[0] if number else None, 12)
    frequency = np.zeros((table_count, len(TOKENS)), np.int64)
    first_length = 9
    for table in frequency:
        first_length = _read_frequencies(bits, first_length, table)
    is_end = len(bits.bits) - bits.position < 8
    _require(is_end, "kCorruptHeader", "the model does not end in the last byte")
    return JpegModel(coefficients, last, dc, frequency)


def _read_row(bits: _Bits, table_count: int, above: Values | None, count: int) -> Values:
    status = "kCorruptHeader"
    row: list[int] = []
    while len(row) < count:
        if above is not None:
            same = bits.unary()
            _require(same <= count - len(row), status, "too many places as above")
            row += above[len(row) : len(row) + same].tolist()
            if len(row) == count:
                break
        left = row[-1] if row else 0
        way = bits.unary()
        _require(way <= 3, status, f"way {way} to a table")
        table = bits.field(5) if way == 3 else left + (0, 1, -1)[way]
        _require(0 <= table < table_count, status, f"table {table}")
        row.append(table)
    return np.array(row)


def _read_frequencies(bits: _Bits, first_length: int, table: Values) -> int:
    """Fills the table; returns the length of the first frequency, or that of the table before."""
    status = "kCorruptHeader"
    n = bits.field(6)
    _require(n <= 40, status, f"{n} frequencies")
    length = first_length
    for token in range(n):
        m = bits.unary()
        length -= m if m < 3 else -(m // 2) if m % 2 else m // 2 + 1
        _require(0 <= length <= 10, status, f"a length of {length}")
        if token == 0:
            first_length = length
        if length < 2:
            table[token] = length
            continue
        more = min(3, length - 1)
        table[token] = ((1 << more) + bits.field(more)) << length - 1 - more
    largest = int(np.argmax(table))
    table[largest] += 1024 - int(table.sum())
    _require(int(table[largest]) >= 1, status, "the largest frequency vanishes")
    return first_length


# format.md 5.6


def decode_coefficients(image: ParsedImage) -> list[Values]:
    """The coefficients of each component of a JPEG image, shape (rows, columns of blocks, 64).

    They are in zigzag order, before they are multiplied by the quantizers.
    """
    header, jpeg = image.header, image.jpeg
    assert jpeg is not None
    components = [
        np.zeros((*jpeg.blocks(c, header.height, header.width), 64), np.int64)
        for c in range(len(jpeg.quantizers))
    ]
    for tile, payload in enumerate(image.payloads):
        y, x, h, w = header.tile_area(tile)
        try:
            blocks = _decode_jpeg_tile(payload, jpeg, h, w)
        except FormatError as error:
            error.tile = tile
            raise
        for c, of_tile in enumerate(blocks):
            shift_y, shift_x = jpeg.shifts(c)
            top, left = y >> shift_y + 3, x >> shift_x + 3
            rows, columns = of_tile.shape[:2]
            components[c][top : top + rows, left : left + columns] = of_tile
    return components


def _decode_jpeg_tile(payload: bytes, jpeg: JpegChunk, h: int, w: int) -> list[Values]:
    status = "kCorruptTile"
    check, coding, transform, zero = struct.unpack_from("<IBBH", payload)
    _require(tile_check(payload) == check, "kChecksumMismatch", "a tile's check differs")
    _require(coding <= JPEG, "kUnsupportedFeature", f"coding {coding}")
    _require(transform <= 1, "kUnsupportedFeature", f"transform {transform}")
    _require(zero == 0, status, "the u16 at 6 is not 0")
    _require(coding == JPEG, status, f"coding {coding} beside a JPEG chunk")
    _require(transform == 0, status, "subtract green in a tile that is not packed")
    body = _Body(payload)
    shapes = [jpeg.blocks(c, h, w) for c in range(len(jpeg.quantizers))]
    symbols = _JpegSymbols(body, jpeg.model, shapes)
    last: list[Values] = []
    blocks = [np.zeros((*shape, 64), np.int64) for shape in shapes]
    for shape, of_component in zip(shapes, blocks, strict=True):
        numbers, of_component[..., 0] = _read_heads(symbols, jpeg, shape, last)
        last.append(numbers)
    for number, members in enumerate(([0], range(1, len(shapes)))):
        order = sorted(
            (-int(last[c][place]), c, place) for c in members for place in np.ndindex(shapes[c])
        )
        coded = [(-minus_last, blocks[c][place]) for minus_last, c, place in order if minus_last]
        for begin in range(0, len(coded), 32):
            _read_group(symbols, jpeg.model.coefficients[number], coded[begin : begin + 32])
    symbols.require_end()
    for c, of_component in enumerate(blocks):
        products = np.abs(of_component * jpeg.quantizers[c])
        _require(int(products.max()) <= 8191, status, "a coefficient is too large")
    rest = payload[body.position :]
    _require(len(rest) < 16, status, "the body ends before the last 16 bytes")
    _require(not any(rest), status, "a byte after the body is not 0")
    return blocks


class _JpegSymbols:
    """What steps read from the body of a jpeg tile."""

    def __init__(self, body: _Body, model: JpegModel, shapes: list[tuple[int, int]]) -> None:
        (sign_count,) = struct.unpack_from("<I", body.payload, body.take(4))
        rows = sum(rows for rows, _ in shapes)
        self.predictors = body.take_fields(1, rows + rows % 2, 4)[0].tolist()[:rows]
        self.signs = body.take_fields(1, sign_count, 1)[0]
        areas = [rows * columns for rows, columns in shapes]
        lanes = min(32, max(areas[0], sum(areas[1:])))
        states = np.frombuffer(body.payload, "<u4", lanes, body.take(4 * lanes)).astype(np.int64)
        _require(int(states.min()) >= 1 << 16, "kCorruptTile", "a state under 2^16")
        _require(max(self.predictors) <= 7, "kCorruptTile", "a predictor above 7")
        self.states = _RansStates(body, states, model.frequency, 16)

    def last_numbers(self, tables: Values) -> Values:
        """Reads a last number on each of the first lanes."""
        return self.states.read(np.arange(len(tables)), tables, are_last_numbers=True)

    def magnitudes(self, tables: Values) -> Values:
        """Reads a number that is a magnitude on each of the first lanes."""
        return self.states.read(np.arange(len(tables)), tables)

    def with_signs(self, magnitudes: Values) -> Values:
        """Gives those that are not 0 their signs."""
        count = int((magnitudes != 0).sum())
        _require(count <= len(self.signs), "kCorruptTile", "more signs are taken than there are")
        signed: Values = magnitudes.copy()
        signed[magnitudes != 0] *= 1 - 2 * self.signs[:count]
        self.signs = self.signs[count:]
        return signed

    def require_end(self) -> None:
        """Checks what holds once all steps are done."""
        is_end = bool((self.states.states == 1 << 16).all())
        _require(is_end, "kCorruptTile", "a lane does not end in 2^16")
        _require(len(self.signs) == 0, "kCorruptTile", "fewer signs are taken than there are")


def _read_heads(
    symbols: _JpegSymbols, jpeg: JpegChunk, shape: tuple[int, int], last: list[Values]
) -> tuple[Values, Values]:
    """Reads last numbers and DC of the blocks of the component behind those that have `last`."""
    rows, columns = shape
    c = len(last)
    numbers = np.zeros(shape, np.int64)
    dc = np.zeros(shape, np.int64)
    magnitudes = np.zeros(columns, np.int64)
    shift_y, shift_x = jpeg.shifts(c)
    for y in range(rows):
        west, here, east = _with_neighbours(numbers[y - 1])
        up = 2 * here + west + east + 2 >> 2
        if c == 0:
            contexts = up >> 2 if y else np.full(columns, 16)
        elif c == 1:
            other = last[0][y << shift_y, np.arange(columns) << shift_x]
            contexts = 3 * up + other >> 4 if y else other >> 3
        else:
            contexts = up + last[1][y] >> 3 if y else last[1][y] >> 2
        numbers[y] = symbols.last_numbers(jpeg.model.last[c][contexts])

        above = dc[y - 1] if y else np.zeros(columns, np.int64)
        nw, n, ne = _with_neighbours(above)
        west, here, east = _with_neighbours(magnitudes)
        activity = 2 * here + west + east + np.abs(n - nw) + np.abs(n - ne) >> 1
        lengths = np.frexp(activity)[1]
        contexts = np.minimum(10, lengths) if y else np.full(columns, 11)
        residuals = symbols.with_signs(symbols.magnitudes(jpeg.model.dc[min(c, 1)][contexts]))
        magnitudes = np.minimum(2047, np.abs(residuals))
        row = _add_prediction(symbols.predictors.pop(0), above, residuals)
        dc[y] = (row + 0x8000 & 0xFFFF) - 0x8000
        _require(int(np.abs(dc[y]).max()) <= 4095, "kCorruptTile", "DC is too large")
    return numbers, dc


def _with_neighbours(row: Values) -> tuple[Values, Values, Values]:
    """A row shifted right, as it is, and shifted left, continued at its ends."""
    return np.concatenate([row[:1], row[:-1]]), row, np.concatenate([row[1:], row[-1:]])


_LEVEL_BEGINS = np.array([0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 32, 48, 80, 144])


def _read_group(symbols: _JpegSymbols, table_of: Values, blocks: list[tuple[int, Values]]) -> None:
    """Reads up to 32 blocks, each with its last number, those with larger ones first."""
    last = np.array([number for number, _ in blocks])
    # By block, row and column; two zeros at each end.
    magnitudes = np.zeros((len(blocks), 12, 12), np.int64)
    for k in range(int(last[0]), 0, -1):
        lanes = int((last >= k).sum())
        v, u = np.divmod(ZIGZAG[k], 8) + np.array([2, 2])
        m = magnitudes[:lanes]
        s = 2 * (m[:, v, u + 1] + m[:, v + 1, u]) + m[:, v + 1, u + 1]
        s += m[:, v, u + 2] + m[:, v + 2, u] + m[:, v + 1, u - 1] + m[:, v - 1, u + 1]
        is_last = last[:lanes] == k
        levels = np.where(is_last, 15, np.searchsorted(_LEVEL_BEGINS, s, side="right") - 1)
        m[:, v, u] = symbols.magnitudes(table_of[k][levels]) + is_last
        signed = symbols.with_signs(m[:, v, u])
        for lane in range(lanes):
            blocks[lane][1][k] = signed[lane]


# format.md 5.7


def decode_luma(image: ParsedImage) -> NDArray[np.uint8]:
    """Component Y of an image of jpeg tiles, shape (height, width)."""
    assert image.jpeg is not None
    return _jpeg_planes(decode_coefficients(image), image.header, image.jpeg)[0].astype(np.uint8)


def _jpeg_planes(components: list[Values], header: Header, jpeg: JpegChunk) -> list[Values]:
    planes = []
    for c, coefficients in enumerate(components):
        shift_y, shift_x = jpeg.shifts(c)
        rows, columns = -(-header.height >> shift_y), -(-header.width >> shift_x)
        samples = _samples_of_blocks(coefficients * jpeg.quantizers[c])[:rows, :columns]
        planes.append(_upsample(samples, shift_y, shift_x, header.height, header.width))
    return planes


def _jpeg_pixels(components: list[Values], header: Header, jpeg: JpegChunk) -> NDArray[np.uint8]:
    planes = _jpeg_planes(components, header, jpeg)
    pixels = np.stack(planes, axis=2)
    if jpeg.color == 1:
        y, b, r = planes[0], planes[1] - 128, planes[2] - 128
        red = y + (91881 * r + 32768 >> 16)
        green = y + (32768 - 22554 * b - 46802 * r >> 16)
        blue = y + (116130 * b + 32768 >> 16)
        pixels = np.clip(np.stack([red, green, blue], axis=2), 0, 255)
    return pixels.astype(np.uint8)


def _samples_of_blocks(products: Values) -> Values:
    """The samples of a component, of blocks with coefficients in zigzag order."""
    rows, columns = products.shape[:2]
    natural = np.empty_like(products)
    natural[..., ZIGZAG] = products
    blocks = natural.reshape(rows, columns, 8, 8)
    across = np.stack(_transform(np.moveaxis(blocks, 2, 0), 11), axis=2)
    down = np.stack(_transform(np.moveaxis(across, 3, 0), 18), axis=3)
    samples = np.clip(down + 128, 0, 255)
    plane: Values = samples.swapaxes(1, 2).reshape(8 * rows, 8 * columns)
    return plane


def _transform(x: Values, s: int) -> list[Values]:
    """T(s) of eight numbers."""

    def narrow(a: Values, bits: int) -> Values:
        half = 1 << bits - 1
        narrowed: Values = (a + half & 2 * half - 1) - half
        return narrowed

    def w(a: Values) -> Values:
        return narrow(a, 16)

    p, q = 8192 * w(x[0] + x[4]), 8192 * w(x[0] - x[4])
    low, high = 4433 * x[2] - 10704 * x[6], 10703 * x[2] + 4433 * x[6]
    e = [p + high, q + low, q - low, p - high]
    a, b = w(x[7] + x[3]), w(x[5] + x[1])
    c, d = 9633 * b - 6436 * a, 9633 * a + 6437 * b
    o = [
        d + 4926 * x[1] - 7373 * x[7],
        c + 4177 * x[3] - 20995 * x[5],
        d - 4176 * x[5] - 20995 * x[3],
        c - 7373 * x[1] - 4927 * x[7],
    ]
    sums = [even + odd for even, odd in zip(e, o, strict=True)]
    differences = [even - odd for even, odd in zip(e, o, strict=True)]
    rounded = [narrow(y + (1 << s - 1), 32) >> s for y in sums + differences[::-1]]
    return [np.clip(y, -32768, 32767) for y in rounded]


def _upsample(samples: Values, shift_y: int, shift_x: int, height: int, width: int) -> Values:
    """The numbers of all pixels of a component."""
    rows, columns = samples.shape
    y, x = np.arange(height), np.arange(width)
    j, i = y >> shift_y, x >> shift_x
    m = np.clip(np.where(y & 1, j + 1, j - 1), 0, rows - 1)[:, None]
    k = np.clip(np.where(x & 1, i + 1, i - 1), 0, columns - 1)[None]
    j, i, y, x = j[:, None], i[None], y[:, None], x[None]
    near = samples[j, i]
    if (shift_y, shift_x) == (0, 0) or (shift_x == 1 and columns <= 2):
        chroma: Values = near
    elif shift_y == 0:
        chroma = 3 * near + samples[j, k] + 1 + (x & 1) >> 2
    elif shift_x == 0:
        chroma = 3 * near + samples[m, i] + 1 + (y & 1) >> 2
    else:
        beside = 3 * samples[m, i] + 3 * samples[j, k] + samples[m, k]
        chroma = 9 * near + beside + 8 - (x & 1) >> 4
    return chroma


# format.md 6


def _add_green(planes: Values, header: Header) -> Values:
    half = 1 << (header.used_bits - 1)
    values: Values = planes.copy()
    for colour in (0, 2):
        values[..., colour] = (planes[..., colour] + planes[..., 1] - half) % (2 * half)
    return values


def main() -> int:
    """Decodes a file to raw samples; returns the number of the Status, for tools/conformance.py."""
    source, target = map(Path, sys.argv[1:])
    try:
        samples, _ = decode(source.read_bytes())
    except FormatError as error:
        return STATUS_NAMES.index(error.status)
    target.write_bytes(samples.astype(samples.dtype.newbyteorder("<")).tobytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
