"""Reads the size of image files from their headers, before `reading` decodes pixels.

A file of a few bytes can claim an image that takes all memory.
"""

from __future__ import annotations

import io
import math
import re
import struct
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from l3dali.errors import ENDS_TOO_EARLY, ImageError, unreadable
from l3dali.images.tiff_directories import TIFF_ITEM_BYTES, tiff_entries
from l3dali.metadata import MAX_METADATA_BYTES
from l3dali.signatures import (
    JPEG2000_CODESTREAM,
    JPEGXL_CODESTREAM,
    PNG_SIGNATURE,
    format_not_read,
    format_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    import tifffile

__all__ = ["MAX_METADATA_BYTES", "Format", "Header", "ImageError", "read_header"]

MAX_CHANNELS = 4
MAX_TIFF_CHANNELS = 4096

Format = Literal[
    "png", "jpeg", "webp", "bmp", "tiff", "netpbm", "jpegxl", "jpeg2000", "npy", "dicom"
]


@dataclass(frozen=True)
class Header:
    """The size of an image, and of the memory to read it."""

    format: Format  # of the file
    width: int  # in pixels, as stored: EXIF may turn the image
    height: int  # in pixels
    raw_bytes: int  # of the decoded samples, at most
    read_bytes: int  # of memory at the peak of reading, without the file; estimated
    pixel_cost: int = 1  # how often its pixels count for a limit: four channels of 16 bits once

    def check_pixels(self, max_pixels: int) -> None:
        """Raises ImageError if the image has more pixels than `max_pixels`."""
        if self.width * self.height * self.pixel_cost > max_pixels:
            times = "" if self.pixel_cost == 1 else f" x {self.pixel_cost} (4 channels count once)"
            raise ImageError(
                f"{self.width} x {self.height}{times} pixels are more than the limit of "
                f"{max_pixels}; max_pixels raises it (in the command --max-pixels)"
            )


def read_header(data: bytes) -> Header:
    """Reads the size of an image of any known format; decodes nothing.

    Raises:
        ImageError: the format is unknown, the header is damaged, or the image is not supported:
            several pages, or more than 4 channels (of TIFF 4096).
    """
    format, _ = format_of(data)
    if format == "l3":
        raise ImageError("already an L3 file")
    if not format:
        if not data:
            raise ImageError("the file is empty")
        other = format_not_read(data)
        raise ImageError(
            f"{other} files are not supported; convert it to PNG first"
            if other
            else "not an image of a known format"
        )
    try:
        header = _READERS[format](data)
    except ImageError:
        raise
    except Exception as error:  # Libraries raise anything on damaged data.
        raise unreadable(error) from error
    if header.width < 1 or header.height < 1:
        raise ImageError(f"cannot be read: {header.width} x {header.height} pixels")
    return header


def _header(format: Format, width: int, height: int, sample_bytes: int) -> Header:
    """A header from the bytes of a pixel."""
    raw = width * height * sample_bytes
    return Header(format, width, height, raw, _PEAKS[format] * raw)


def _checked_channels(channels: int, most: int = MAX_CHANNELS) -> int:
    if channels > most:
        raise ImageError(
            f"{channels} channels are not supported; this format allows at most {most}"
        )
    return channels


# Peak memory of reading in bytes a byte of samples, measured with each library and rounded up.
_PEAKS = {"png": 2, "jpeg": 6, "webp": 8, "bmp": 4, "netpbm": 3, "jpegxl": 13, "jpeg2000": 4}
_DIGITS_PEAK = 30  # a byte of a netpbm file in digits, which become Python objects


# PNG, JPEG, WebP, BMP, netpbm.

_PNG_CHANNELS = {0: 2, 2: 4, 3: 4, 4: 2, 6: 4}  # by colour type, a transparent colour included


def _read_png(data: bytes) -> Header:
    width, height, bits, color_type = struct.unpack_from(">II2B", data, len(PNG_SIGNATURE) + 8)
    raw = _PNG_CHANNELS.get(color_type, MAX_CHANNELS) * (2 if bits == 16 else 1)
    return _header("png", width, height, raw)


# Frames of all kinds, except the tables DHT (C4), JPG (C8) and DAC (CC).
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")  # All others have no length.


def _segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Yields the marker of each segment of a JPEG, and where its body begins."""
    at = 2
    while found := _JPEG_MARKER.search(data, at):
        at = found.end()
        yield found[0][1], at + 2
        at += int.from_bytes(data[at : at + 2], "big")


def check_end_of_jpeg(data: bytes) -> None:
    """Truncation check: libjpeg invents pixels if a JPEG ends early, or in zeros."""
    if all(marker != 0xD9 for marker, _ in _segments(data)):  # EOI
        raise ImageError(ENDS_TOO_EARLY)


def _read_jpeg(data: bytes) -> Header:
    bits, height, width, channels = jpeg_frame(data)
    if bits != 8:
        raise ImageError(f"a JPEG of {bits} bits a sample is not supported")
    if channels not in (1, 3, 4):
        raise ImageError(f"a JPEG of {channels} channels is not supported")
    return _header("jpeg", width, height, channels)


def jpeg_frame(data: bytes) -> tuple[int, int, int, int]:
    """Bits of a sample, height, width and channels of the first frame, which decoders use."""
    for marker, begin in _segments(data):
        if marker in _JPEG_FRAMES and begin + 6 <= len(data):
            bits, height, width, channels = struct.unpack_from(">BHHB", data, begin)
            return bits, height, width, channels
    raise ImageError("cannot be read: a JPEG without a size")


def _read_webp(data: bytes) -> Header:
    if len(data) < max(30, int.from_bytes(data[4:8], "little") + 7):  # A last odd byte may lack.
        raise ImageError(ENDS_TOO_EARLY)
    kind, sizes, has_alpha = data[12:16], data[24:30], False
    if kind == b"VP8X":
        width, height = (int.from_bytes(side, "little") + 1 for side in (sizes[:3], sizes[3:]))
        has_alpha = bool(data[20] & 0x10)
    elif kind == b"VP8L":
        (sides,) = struct.unpack_from("<I", data, 21)
        width, height = (sides & 0x3FFF) + 1, (sides >> 14 & 0x3FFF) + 1
        has_alpha = bool(sides >> 28 & 1)
    elif kind == b"VP8 ":
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    else:
        raise ImageError("cannot be read: a WebP without a size")
    return _header("webp", width, height, 3 + has_alpha)


def _read_bmp(data: bytes) -> Header:
    (header_bytes,) = struct.unpack_from("<I", data, 14)
    layout = "<2H2xH" if header_bytes == 12 else "<2i2xH"  # OS/2's, and all others
    width, height, bits = struct.unpack_from(layout, data, 18)
    return _header("bmp", width, abs(height), 3 if bits in (1, 4, 8, 24) else 6)


def _read_netpbm(data: bytes) -> Header:
    import netpbmfile

    with netpbmfile.NetpbmFile(io.BytesIO(data)) as file:
        raw = _checked_channels(file.depth) * file.dtype.itemsize
        header = _header("netpbm", file.width, file.height, raw)
        is_digits = file.magicnumber in ("P1", "P2", "P3")
        # Rows of P4 are padded to bytes, each of which becomes 8 samples.
        more = (_DIGITS_PEAK if is_digits else 8 * (file.magicnumber == "P4")) * len(data)
        return replace(header, read_bytes=header.read_bytes + more)


# JPEG XL, JPEG 2000.


def boxes(data: bytes, holders: Collection[bytes] = ()) -> Iterator[tuple[bytes, int, int]]:
    """Yields type, start and end of the boxes of a JPEG XL or JPEG 2000 file.

    Boxes inside a box of a type among `holders` follow it.
    """
    at = 0
    while at + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        head = 8
        if size == 1 and at + 16 <= len(data):
            (size,) = struct.unpack_from(">Q", data, at + 8)
            head = 16
        end = at + size if size >= head else len(data)  # 0: to the end of the file.
        yield kind, at + head, end
        at = at + head if kind in holders else end


class _Bits:
    """Reads the bit fields at the start of a JPEG XL codestream (ISO 18181-1)."""

    def __init__(self, data: bytes) -> None:
        self._left = len(data) * 8
        self._bits = int.from_bytes(data, "little")

    def take(self, count: int) -> int:
        self._left -= count
        if self._left < 0:
            raise ImageError(ENDS_TOO_EARLY)
        value = self._bits & (1 << count) - 1
        self._bits >>= count
        return value

    def number(self, *choices: tuple[int, int]) -> int:
        """One of four kinds of numbers, each an offset and the bits added to it."""
        offset, count = choices[self.take(2)]
        return offset + self.take(count)

    def size(self) -> tuple[int, int]:
        small = self.take(1)
        sides = ((1, 9), (1, 13), (1, 18), (1, 30))
        height = 8 * (self.take(5) + 1) if small else self.number(*sides)
        ratio = self.take(3)
        if ratio:
            return height * _JPEGXL_RATIOS[ratio][0] // _JPEGXL_RATIOS[ratio][1], height
        return 8 * (self.take(5) + 1) if small else self.number(*sides), height

    def depth(self) -> float:
        """The bits of a sample; infinitely many of floats."""
        if self.take(1):
            self.number((32, 0), (16, 0), (24, 0), (1, 6))
            self.take(4)
            return math.inf
        return self.number((8, 0), (10, 0), (12, 0), (1, 6))

    def is_plain_alpha(self, depth: float) -> bool:
        """Whether an extra channel is alpha, not premultiplied, of at most `depth` bits."""
        if self.take(1):
            return depth >= 8
        is_alpha = self.number((0, 0), (1, 0), (2, 4), (18, 6)) == 0
        is_held = self.depth() <= depth
        self.number((0, 0), (3, 0), (4, 0), (1, 3))  # smaller by a power of two
        self.take(8 * self.number((0, 0), (0, 4), (16, 5), (48, 10)))  # name
        return is_alpha and is_held and not self.take(1)


_JPEGXL_RATIOS = {1: (1, 1), 2: (12, 10), 3: (4, 3), 4: (3, 2), 5: (16, 9), 6: (5, 4), 7: (2, 1)}
_JPEGXL_HEADER_BYTES = 4096  # more than the fields take


class JpegXlHeader(NamedTuple):
    """The first fields of a JPEG XL."""

    width: int
    height: int
    sample_bytes: int = 3  # of a pixel, at most; gray is a later field
    xyb: bool = True  # colours of lossy coding
    bits: float = 8  # of a sample of colours


def read_jpegxl_header(data: bytes) -> JpegXlHeader:
    """Reads the header of a JPEG XL file; ImageError if it is cut, or the image not supported."""
    if not data.startswith(JPEGXL_CODESTREAM):
        parts = ((at + 4 * (kind == b"jxlp"), end, kind) for kind, at, end in boxes(data))
        parts = (part for part in parts if part[2] in (b"jxlc", b"jxlp"))
        data = b"".join(data[at : min(end, at + _JPEGXL_HEADER_BYTES)] for at, end, _ in parts)
    bits = _Bits(data[2:_JPEGXL_HEADER_BYTES])
    width, height = bits.size()
    if bits.take(1):  # All fields have their defaults.
        return JpegXlHeader(width, height)
    if bits.take(1):
        bits.take(3)  # orientation
        if bits.take(1):
            bits.size()  # as meant to be seen
        if bits.take(1):
            raise ImageError("a JPEG XL with a preview is not supported")
        if bits.take(1):
            raise ImageError("an animation; L3 holds single images")
    depth = bits.depth()
    bits.take(1)
    extra_channels = bits.number((0, 0), (1, 0), (2, 4), (1, 12))
    # The decoder returns only one alpha.
    if extra_channels > 1 or (extra_channels == 1 and not bits.is_plain_alpha(depth)):
        raise ImageError(
            "JPEG XL with extra channels is not supported, except one alpha channel that is not "
            "premultiplied and has at most the bits of the colours"
        )
    sample_bytes = (3 + extra_channels) * (2 if depth > 8 else 1)
    return JpegXlHeader(width, height, sample_bytes, bool(bits.take(1)), depth)


def _read_jpegxl(data: bytes) -> Header:
    return _header("jpegxl", *read_jpegxl_header(data)[:3])


def _read_jpeg2000(data: bytes) -> Header:
    start = jpeg2000_start(data)
    right, bottom, left, top = struct.unpack_from(">4I", data, start + 8)
    (channels,) = struct.unpack_from(">H", data, start + 40)
    channels = max(3, _checked_channels(channels))  # One channel may be entries of a palette.
    return _header("jpeg2000", right - left, bottom - top, 2 * channels)


def jpeg2000_start(data: bytes) -> int:
    """Where the codestream of a JPEG 2000 file begins; ImageError if there is none."""
    start = 0
    if not data.startswith(JPEG2000_CODESTREAM):
        start = next((begin for kind, begin, _ in boxes(data) if kind == b"jp2c"), len(data))
    if data[start : start + 4] != JPEG2000_CODESTREAM:
        raise ImageError("cannot be read: a JPEG 2000 without an image")
    return start


# TIFF.


@contextmanager
def open_tiff(data: bytes) -> Iterator[tifffile.TiffPage]:
    """The page of a TIFF with one image, and perhaps smaller copies.

    Raises:
        ImageError: there are several images or none, the page is a smaller copy of another image,
            or the file was cut.
    """
    import tifffile

    with tifffile.TiffFile(io.BytesIO(data)) as file:
        images: list[tifffile.TiffPage] = []
        copies: list[tifffile.TiffPage] = []
        for each in file.pages:
            page = each.aspage()
            (copies if page.is_reduced or page.is_mask else images).append(page)
            if len(images) > 1:
                raise ImageError("several images in one file; L3 holds single images")
        if not images:
            raise ImageError("a TIFF without an image" if copies else ENDS_TOO_EARLY)
        (page,) = images
        _check_directory(data, page)
        with suppress(Exception):  # Reading has a remark for damaged SubIFDs.
            copies += (sub.aspage() for each in (page, *copies) for sub in each.pages or ())
        for other in copies:
            if other.imagewidth > page.imagewidth or other.imagelength > page.imagelength:
                raise ImageError("only a thumbnail of the TIFF is readable, as in raw photographs")
        yield page


def _check_directory(data: bytes, page: tifffile.TiffPage) -> None:
    """Truncation check: tifffile ignores tags and pages behind the end of the file."""
    layout = page.parent.tiff
    at = page.parent.pages.next_page_offset
    if at is not None and any(data[at : at + layout.offsetsize]):
        raise ImageError("a damaged TIFF: it ends before its next page")
    for tag, kind, _, begin, end in tiff_entries(data, layout, page.offset):
        is_there = kind in TIFF_ITEM_BYTES and begin >= 8 and end <= len(data)
        if tag in _PIXEL_TAGS and not is_there:
            raise ImageError(f"a damaged TIFF: the values of tag {tag} are missing")


# Sizes, samples, colours, orientation, offsets of pixels, and the value of missing ones.
_PIXEL_TAGS = {
    *(256, 257, 258, 259, 262, 266, 273, 274, 277, 278, 279, 284, 317, 320, 322, 323, 324, 325),
    *(338, 339, 347, 42113),
}


def _read_tiff(data: bytes) -> Header:
    from tifffile import PHOTOMETRIC

    with open_tiff(data) as page:
        sizes = [page.imagewidth, page.imagelength, page.samplesperpixel, page.bitspersample]
        sizes += [page.tilewidth, page.tilelength, page.rowsperstrip, page.fillorder]
        if not all(isinstance(size, int) for size in sizes):  # tifffile gives a BYTE as bytes.
            raise ImageError("a damaged TIFF: a size or the order of bits is not a number")
        if page.axes not in ("YX", "YXS", "SYX"):
            raise ImageError(f"a TIFF of axes {page.axes} is not supported")
        if page.dtype is None:
            samples = f"samples of {page.bitspersample} bits and format {page.sampleformat}"
            raise ImageError(f"a TIFF with {samples} is not supported")
        _checked_channels(page.samplesperpixel, MAX_TIFF_CHANNELS)
        _check_strips(data, page)
        # Whole strips or tiles are decoded in addition, with their padding.
        padded = math.prod(page.chunks) * math.prod(page.chunked) * max(1, page.bitspersample // 8)
        raw = page.nbytes
        if page.photometric == PHOTOMETRIC.PALETTE:
            raw += 6 * page.imagewidth * page.imagelength
        width, height = page.imagewidth, page.imagelength
        pixel_cost = max(-(-page.samplesperpixel // 4), -(-raw // max(1, 8 * width * height)))
        tags = max(0, len(data) - sum(page.databytecounts))  # held by tifffile and by Pillow
        lists = 400 * len(page.dataoffsets)  # Python objects for each strip or tile
        return Header("tiff", width, height, raw, 2 * raw + padded + 2 * tags + lists, pixel_cost)


def _check_strips(data: bytes, page: tifffile.TiffPage) -> None:
    """Truncation check: tifffile fills strips and tiles that are not listed with zeros."""
    count = math.prod(page.chunked)
    places = list(zip(page.dataoffsets, page.databytecounts, strict=False))
    is_listed = len(places) >= count and all((at == 0) == (size == 0) for at, size in places)
    end = max((at + size for at, size in places), default=0)
    if page.is_contiguous:  # They are read as one.
        is_listed = sum(size for _, size in places) >= page.nbytes
        end = places[0][0] + page.nbytes
    if is_listed and end > len(data):
        raise ImageError(ENDS_TOO_EARLY)
    if not is_listed or ("StripOffsets" in page.tags and "TileOffsets" in page.tags):
        raise ImageError(f"a damaged TIFF: the offsets of its {count} strips or tiles are missing")
    known = sum(tag.valuebytecount + page.parent.tiff.tagsize for tag in page.tags)
    if not any(page.databytecounts) and len(data) - known > page.nbytes // 64 + 64:
        raise ImageError("a damaged TIFF: the sizes of its strips or tiles are missing")


def _read_npy(data: bytes) -> Header:
    from l3dali.images.npy import read_npy_header

    return read_npy_header(data)


def _read_dicom(data: bytes) -> Header:
    from l3dali.images.dicom import read_dicom_header

    return read_dicom_header(data)


_READERS: dict[str, Callable[[bytes], Header]] = {
    "png": _read_png,
    "jpeg": _read_jpeg,
    "webp": _read_webp,
    "jpegxl": _read_jpegxl,
    "jpeg2000": _read_jpeg2000,
    "bmp": _read_bmp,
    "tiff": _read_tiff,
    "netpbm": _read_netpbm,
    "npy": _read_npy,
    "dicom": _read_dicom,
}
