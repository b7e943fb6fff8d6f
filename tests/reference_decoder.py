"""A decoder of L3 images in NumPy, written from docs/format.md alone and in its order.

It is the second reading of the specification: slow enough to be plain, and the
judge of every engine. It must not import or mirror the C++ sources.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.int64]
Samples = NDArray[np.uint8] | NDArray[np.uint16]

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
KNOWN_CHUNKS = (b"VTAB", b"icc ", b"exif", b"plte")
CONSTANT, STORED, PACKED = range(3)
LAYOUT_CONSTANT, LAYOUT_ABSOLUTE, LAYOUT_DELTA, LAYOUT_SPARSE = range(4)
ADDS_W = (0, 3, 4, 7)  # the predictors that use W
GROUP = np.arange(8)


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

    channels: int
    sample_bits: int
    used_bits: int
    shift: int
    tile_width_log2: int
    tile_height_log2: int
    meaning: int
    width: int
    height: int
    chunks_bytes: int

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
class ParsedImage:
    """A file whose header, chunks and index are valid."""

    header: Header
    chunks: list[tuple[bytes, bytes]]
    value_table: NDArray[np.int64] | None
    payloads: list[bytes]


def decode(data: bytes) -> tuple[Samples, ParsedImage]:
    """Decodes a file to an array of shape (height, width, channels), or raises FormatError."""
    image = parse(data)
    header = image.header
    samples = np.empty(
        (header.height, header.width, header.channels),
        np.uint8 if header.sample_bits == 8 else np.uint16,
    )
    for tile, payload in enumerate(image.payloads):
        y, x, h, w = header.tile_area(tile)
        try:
            values = _decode_tile(payload, header, h, w)
            samples[y : y + h, x : x + w] = _samples_of_values(values, image)
        except FormatError as error:
            error.tile = tile
            raise
    return samples, image


def parse(data: bytes) -> ParsedImage:
    """Validates everything that is judged before a tile is decoded."""
    header = parse_header(data)

    # format.md 4, stages 1 and 2
    index_begin = HEADER_BYTES + header.chunks_bytes
    index_end = index_begin + 4 * header.tile_count
    _require(len(data) >= index_end + 4, "kTruncated", "the file ends before the index CRC does")
    (index_crc,) = struct.unpack_from("<I", data, index_end)
    _require(
        crc32c(data[HEADER_BYTES:index_end]) == index_crc, "kChecksumMismatch", "index CRC differs"
    )

    # format.md 4, stage 3
    chunks, value_table = _parse_chunks(data[HEADER_BYTES:index_begin], header)

    # format.md 4, stage 4, and 5
    ends = np.frombuffer(data, "<u4", header.tile_count, index_begin).astype(np.int64) * 16
    begins = np.concatenate([[0], ends[:-1]])
    sizes = ends - begins
    _require(bool((sizes >= 16).all()), "kCorruptHeader", "a payload is shorter than 16 bytes")
    _require(bool((sizes < 1 << 31).all()), "kCorruptHeader", "a payload has 2^31 bytes or more")
    if header.has_large_tiles:
        areas = [header.tile_area(tile) for tile in range(header.tile_count)]
        stored = [8 + h * w * header.channels * header.sample_bits // 8 for _, _, h, w in areas]
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
    return ParsedImage(header, chunks, value_table, payloads)


def parse_header(data: bytes) -> Header:
    """Reads the fixed header (format.md 3)."""
    if len(data) < len(SIGNATURE) and SIGNATURE.startswith(data):
        raise FormatError("kTruncated", "the file ends within the signature")
    _require(data.startswith(SIGNATURE), "kBadMagic", "the signature differs")
    _require(len(data) >= HEADER_BYTES, "kTruncated", "the file ends within the header")
    version, *fields, header_crc = struct.unpack_from("<8B4I", data, 8)
    _require(version == 1, "kUnsupportedVersion", f"version {version}")
    _require(crc32c(data[:28]) == header_crc, "kChecksumMismatch", "header CRC differs")
    header = Header(*fields)
    valid = (
        1 <= header.channels <= 4
        and header.sample_bits in (8, 16)
        and 1 <= header.used_bits <= header.sample_bits
        and header.shift <= header.sample_bits - header.used_bits
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


def _parse_chunks(
    area: bytes, header: Header
) -> tuple[list[tuple[bytes, bytes]], NDArray[np.int64] | None]:
    chunks: list[tuple[bytes, bytes]] = []
    value_table = None
    while area:
        _require(len(area) >= 8, "kCorruptHeader", "a chunk's header passes the chunk area")
        kind, length = struct.unpack_from("<4sI", area)
        padded = -(-length // 4) * 4
        _require(len(area) >= 8 + padded, "kCorruptHeader", "a chunk passes the chunk area")
        text = kind.replace(b" ", b"0")
        _require(text.isalnum(), "kCorruptHeader", f"chunk type {kind!r}")
        data, padding = area[8 : 8 + length], area[8 + length : 8 + padded]
        _require(not any(padding), "kCorruptHeader", "a chunk's padding is not 0")
        if kind in KNOWN_CHUNKS:
            seen = any(kind == other for other, _ in chunks)
            _require(not seen, "kCorruptHeader", f"chunk {kind!r} occurs twice")
        else:
            required = kind[:1].isupper()
            _require(not required, "kUnsupportedFeature", f"required chunk {kind!r}")
        if kind == b"VTAB":
            value_table = _parse_value_table(data, header)
        chunks.append((kind, data))
        area = area[8 + padded :]
    return chunks, value_table


def _parse_value_table(data: bytes, header: Header) -> NDArray[np.int64]:
    status = "kCorruptHeader"
    _require(len(data) >= 4, status, "a value table without its count")
    (count,) = struct.unpack_from("<I", data)
    _require(1 <= count <= 1 << header.sample_bits, status, f"{count} values")
    _require(header.used_bits == max(1, (count - 1).bit_length()), status, "used_bits differs")
    _require(header.shift == 0, status, "a shift beside a value table")
    gaps = []
    position = 4
    for _ in range(count):
        gap = 0
        for place in range(3):
            _require(position < len(data), status, "the value table ends too early")
            byte = data[position]
            position += 1
            gap |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                break
        else:
            raise FormatError(status, "a gap has more than 3 bytes")
        gaps.append(gap)
    _require(position == len(data), status, "bytes follow the last gap")
    table = np.cumsum(np.array(gaps) + 1) - 1
    _require(int(table[-1]) < 1 << header.sample_bits, status, "a value reaches 2^sample_bits")
    return table


def _samples_of_values(values: Values, image: ParsedImage) -> Values:
    table = image.value_table
    if table is None:
        return values << image.header.shift
    _require(int(values.max()) < len(table), "kCorruptTile", "a value outside the value table")
    return table[values]


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


def _decode_tile(payload: bytes, header: Header, h: int, w: int) -> Values:
    """Returns the values of a tile of h rows and w columns, shape (h, w, channels)."""
    check, coding, transform, zero = struct.unpack_from("<IBBH", payload)
    _require(tile_check(payload) == check, "kChecksumMismatch", "a tile's check differs")
    _require(coding <= PACKED, "kUnsupportedFeature", f"coding {coding}")
    _require(transform <= 1, "kUnsupportedFeature", f"transform {transform}")
    _require(zero == 0, "kCorruptTile", "the u16 at 6 is not 0")
    if transform == 1:
        _require(header.channels >= 3, "kCorruptTile", "subtract green without colour")
        _require(coding == PACKED, "kCorruptTile", "subtract green in a tile that is not packed")
    if header.has_large_tiles:
        _require(coding == STORED, "kCorruptTile", "a large tile that is not stored")

    body = _Body(payload)
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
            residuals = np.where(folded & 1, -(folded >> 1) - 1, folded >> 1)[:w]
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


# format.md 6


def _add_green(planes: Values, header: Header) -> Values:
    half = 1 << (header.used_bits - 1)
    values: Values = planes.copy()
    for colour in (0, 2):
        values[..., colour] = (planes[..., colour] + planes[..., 1] - half) % (2 * half)
    return values
