"""What image files say about their size, read before anything is decoded.

A file of a few bytes can claim an image that takes all memory, so readers ask here first.
Knows headers alone; `reading` reads the pixels.
"""

from __future__ import annotations

import functools
import io
import math
import operator
import re
import struct
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from l3dali.metadata import (
    KEPT_TIFF_TAGS,
    MAX_METADATA_BYTES,
    TIFF_TYPES,
    tiff_item_bytes,
)
from l3dali.signatures import (
    JPEG2000_CODESTREAM,
    JPEGXL_CODESTREAM,
    PNG_SIGNATURE,
    format_not_read,
    format_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import netpbmfile
    import tifffile
    from typing_extensions import Buffer

__all__ = ["MAX_METADATA_BYTES", "Format", "Header", "ImageError", "read_header"]

MAX_TIFF_PAGES = 256  # Reduced copies in one file; pyramids have some ten.
MAX_CHANNELS = 4
MAX_TIFF_CHANNELS = 4096

Format = Literal["png", "jpeg", "webp", "bmp", "tiff", "netpbm", "jpegxl", "jpeg2000"]


class ImageError(ValueError):
    """A file that cannot be read, or an image that a format cannot hold."""


@dataclass(frozen=True)
class Header:
    """What a header says, and what reading will take.

    Attributes:
        format: of the file.
        width: in pixels, as stored: EXIF may turn the image.
        height: in pixels.
        raw_bytes: of the samples that reading gives, at most, if flags of WebP files tell of alpha.
        read_bytes: of memory that reading takes at its peak, the file not counted. An estimate
            from measurements of the libraries, rounded up.
        fours: how often its pixels count for a limit: once for each four channels of 16 bits.
    """

    format: Format
    width: int
    height: int
    raw_bytes: int
    read_bytes: int
    fours: int = 1

    def check_pixels(self, max_pixels: int) -> None:
        """Judges for every command whether the image may be decoded; files of L3 judge themselves.

        Raises:
            ImageError: it has more pixels than `max_pixels`.
        """
        if self.width * self.height * self.fours > max_pixels:
            times = "" if self.fours == 1 else f" x {self.fours} (4 channels count once)"
            raise ImageError(
                f"{self.width} x {self.height}{times} pixels are more than the limit of "
                f"{max_pixels}; max_pixels, in the command --max-pixels, raises it"
            )


def read_header(data: bytes) -> Header:
    """Reads the size of an image of any known format; decodes nothing.

    Args:
        data: the bytes of the file.

    Raises:
        ImageError: the format is not known, or the header is damaged, or it says already that the
            image cannot be kept: several pages, or more than 4 channels (of TIFF 4096).
    """
    format, _ = format_of(data)
    if format == "l3":
        raise ImageError("an L3 file already")
    if not format:
        if not data:
            raise ImageError("the file is empty")
        other = format_not_read(data)
        raise ImageError(
            f"{other} files are not read; make a PNG of it first"
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
    if _has_another_behind(data, format):
        raise ImageError("several images in one file; L3 holds single images")
    return header


# Where an image ends and the next begins, as streams of images have it. Compressed data hold none
# of these ends, but for a chance of 2^-96 in PNG.
# Of more padding only the start is looked for.
_PNG, _JPEG2000 = rb"\x89PNG\r\n\x1a\n", rb"(?:\xff\x4f\xff\x51|\x0cjP  )"
_FAR = rb"|[\0\r\n]{65536})"
_NEXT_PNG = re.compile(rb"IEND\xaeB`\x82(?:[\0\r\n]{0,65535}(" + _PNG + rb")" + _FAR)
_NEXT_JPEG2000 = re.compile(rb"\xff\xd9(?:[\0\r\n]{0,65535}(" + _JPEG2000 + rb")" + _FAR)
_NEXT_WEBP = re.compile(rb"RIFF....WEBP", re.DOTALL)
# A BMP's second header begins with its own size.
_NEXT_BMP = re.compile(rb"BM.{12}[\x0c-\x7c]\0\0\0", re.DOTALL)
_NEXT_TIFF = re.compile(rb"II[*+]\0|MM\0[*+]")
_STEP, _LONGEST = 2**24, 2**17  # bytes between looks for interrupts; of what is found
_JPEG_GROUPS = (b"MPF\0", b"Container:Directory")  # that are read as their first image
_JPEGXL_ALIKE_BYTES = 8  # at the start of images of one size and kind, or of boxes


def _has_another_behind(data: bytes, format: str) -> bool:
    """Whether one of the same format follows; readers of netpbm and TIFF judge that."""
    if format == "png":
        return _is_found(_NEXT_PNG, re.compile(_PNG), data)
    if format == "jpeg":  # It may hold previews, and cameras put some, and depths, behind it.
        end = _scans_and_end(data)[1] + 2
        start = behind_padding(data, end, b"\0\r\n\xff") - 1
        if start < end or not data.startswith(b"\xff\xd8\xff", start):
            return False
        if any(_count(mark, data) for mark in _JPEG_GROUPS):
            return False
        with suppress(ImageError):  # What follows names no size.
            return _jpeg_frame(data)[1:3] == _jpeg_frame(data[start:])[1:3]
        return False
    if format == "jpeg2000":
        images = _count(b"jp2c", data) > 1 and sum(kind == b"jp2c" for kind, _, _ in boxes(data))
        return images > 1 or _is_found(_NEXT_JPEG2000, re.compile(_JPEG2000), data)
    if format == "jpegxl":  # No length is told.
        return data.find(data[:_JPEGXL_ALIKE_BYTES], 1) >= 0
    if format == "webp":
        end = 8 + int.from_bytes(data[4:8], "little")
        return _NEXT_WEBP.match(data, behind_padding(data, end + end % 2)) is not None
    end = int.from_bytes(data[2:6], "little")
    if format != "bmp" or end <= 2:
        return False
    return _NEXT_BMP.match(data, behind_padding(data, end)) is not None


def _search(pattern: re.Pattern[bytes], data: bytes, start: int = 0) -> re.Match[bytes] | None:
    """As the method does, but with steps between which signals are heard."""
    for at in range(start, len(data), _STEP):
        if found := pattern.search(data, at, at + _STEP + _LONGEST):
            return found
    return None


def _is_found(pattern: re.Pattern[bytes], start: re.Pattern[bytes], data: bytes) -> bool:
    """Whether an end and a start with padding between, of any length, are there."""
    at = 0
    while found := _search(pattern, data, at):
        at = behind_padding(data, found.end())
        if found[1] or start.match(data, at):
            return True
    return False


def _count(mark: bytes, data: bytes) -> int:
    """The same of `bytes.count`."""
    more = _STEP + len(mark) - 1
    return sum(data.count(mark, at, at + more) for at in range(0, len(data), _STEP))


def behind_padding(data: bytes, start: int, padding: bytes = b"\0\r\n") -> int:
    """Where the first other byte is; in steps, too."""
    for at in range(start, len(data), _STEP):
        piece = data[at : at + _STEP]
        if rest := len(piece.lstrip(padding)):
            return at + len(piece) - rest
    return max(start, len(data))


def unreadable(error: Exception) -> ImageError:
    """What to say of an error of a library that reads images."""
    name, text = type(error).__name__, str(error)
    if "input stream too small" in text or "requires a buffer" in text:  # libpng's, struct's
        return ImageError("cannot be read: the file ends too early")
    # Of some errors of libpng imagecodecs gives memory that holds no words.
    is_noise = name == "PngError" and not (text.isascii() and text.isprintable())
    if is_noise or " object at 0x" in text or isinstance(error, UnicodeDecodeError):
        return ImageError("cannot be read: the file is damaged")
    return ImageError(f"cannot be read: {name}: {text}")


def _header(format: Format, width: int, height: int, raw: int, read: int) -> Header:
    """A header from the bytes of a pixel, as samples and at the peak of reading."""
    pixels = width * height
    return Header(format, width, height, raw * pixels, read * pixels)


def _checked_channels(channels: int, most: int = MAX_CHANNELS) -> int:
    if channels > most:
        raise ImageError(f"{channels} channels; up to {most} of this format are read")
    return channels


# Memory that reading takes at its peak, measured with each library and rounded up: in bytes a
# pixel, or a sample of it.
_PNG_PEAK = 1  # a pixel, beside the samples
_JPEG_PEAK = 6  # a sample
_WEBP_HEAD_BYTES = 30
_WEBP_PEAK = 24  # a pixel: Pillow decodes to a canvas of 4 channels, and keeps the frame before
_BMP_PEAK = 12  # a pixel
_NETPBM_PEAK = 1  # a pixel, beside the samples and a copy of them
_NETPBM_DIGITS_PEAK = 30  # a byte of the file: numbers in digits, each a Python object
_JPEGXL_PEAK = 12  # a sample, beside the samples
_JPEG2000_PEAK = 8  # a sample


# PNG, JPEG, WebP, BMP, netpbm.
#
# Pillow is asked where its answer is that of the decoder and costs no more. It inflates the texts
# of a PNG and refuses large ones, knows no JPEG of 12 bits, which tiles of a TIFF may be, and
# believes the box around a JPEG 2000, not the image in it.

_PNG_CHANNELS = {0: 2, 2: 4, 3: 4, 4: 2, 6: 4}  # by colour type, a transparent colour included


def _read_png(data: bytes) -> Header:
    width, height, bits, color_type = struct.unpack_from(">II2B", data, len(PNG_SIGNATURE) + 8)
    raw = _PNG_CHANNELS.get(color_type, MAX_CHANNELS) * (2 if bits == 16 else 1)
    return _header("png", width, height, raw, raw + _PNG_PEAK)


# Frames of all kinds, but not the tables DHT (C4), JPG (C8) and DAC (CC) between them.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


MOST_PARTS = 2**16  # of what is looked at one by one
MOST_SMALL_PARTS = 2**20  # of what large files have many of
_MOST_EXIF_PARTS = 256
_MOST_SEGMENTS = 4096  # Pillow keeps each. Photographs have some hundred.
_MOST_SCANS = 500  # Each takes as long as all pixels. Progressive photographs have some ten.
_JPEG_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")  # All others have no length.
_JPEG_SCAN, _JPEG_END, _JPEG_ICC = 0xDA, 0xD9, 0xE2
_JPEG_READ_IN_PYTHON = (0xDB, 0xED)  # by Pillow: tables (DQT), and Photoshop's blocks (APP13)
_MOST_ICC_PARTS = 255  # which have their number and that of all in a byte
_ICC_PART = b"ICC_PROFILE\0"


def up_to(most: int, what: str) -> Iterator[int]:
    """Numbers for that many parts of a file, each of which takes time.

    Raises:
        ImageError: in the place of one more.
    """
    yield from range(most)
    raise ImageError(f"more than {most} {what}")


def _segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Of each segment of a JPEG its marker, where its body begins, and where that should end."""
    at = 2
    counted = up_to(MOST_PARTS, "segments")
    while found := _search(_JPEG_MARKER, data, at):
        next(counted)
        begin = found.end() + 2
        at = found.end() + int.from_bytes(data[found.end() : begin], "big")
        yield found[0][1], begin, at


def _scans_and_end(data: bytes) -> tuple[int, int]:
    """How many scans a JPEG has, and where its end is told."""
    count = 0
    for marker, begin, _ in _segments(data):
        if marker == _JPEG_END:
            return count, begin - 4
        count += marker == _JPEG_SCAN
    return count, len(data)


def check_end_of_jpeg(data: bytes) -> None:
    """Refuses a JPEG without an end: its decoder makes pixels of zeros in the place of the rest.

    And one of much fill, which Pillow feeds it again and again.
    """
    end = _scans_and_end(data)[1]
    if end == len(data):
        raise ImageError("cannot be read: the file ends too early")
    if data.find(b"\xff" * MOST_PARTS, 0, end) >= 0:
        raise ImageError(f"a JPEG of more than {MOST_PARTS} fill bytes")


def jpeg_icc(data: bytes) -> bytes | None:
    """The ICC profile of a JPEG, from anywhere before its first scan; None without a whole one.

    Pillow passes over what stands behind the frame.
    """
    parts = []
    for marker, begin, end in _segments(data):
        if marker in (_JPEG_SCAN, _JPEG_END):
            break
        if marker == _JPEG_ICC and data.startswith(_ICC_PART, begin):
            parts.append(data[begin + len(_ICC_PART) : end])
            if len(parts) > _MOST_ICC_PARTS:
                return None
    parts.sort()  # Each begins with its number, from 1 on, and that of all.
    numbers = [list(part[:2]) for part in parts]
    is_whole = numbers == [[number, len(parts)] for number in range(1, len(parts) + 1)]
    return b"".join(part[2:] for part in parts) if parts and is_whole else None


def _check_scans(data: bytes) -> None:
    """Refuses a JPEG of too many."""
    if _count(b"\xff\xda", data) > _MOST_SCANS and _scans_and_end(data)[0] > _MOST_SCANS:
        raise ImageError(f"a JPEG of more than {_MOST_SCANS} scans")


def _check_segments(data: bytes) -> None:
    """Refuses a JPEG of too many before its first scan, or of too much that Python looks at."""
    end, between, read = 2, 0, 0
    no_more = _JPEG_END, 0, 0
    for count, (marker, begin, end_of_this) in enumerate(chain(_segments(data), [no_more])):
        # Behind an end Pillow looks for a scan.
        between += (len(data) if marker == _JPEG_END else begin - 4) - end
        if between > MOST_PARTS:  # fill bytes, markers without a length
            raise ImageError(f"a JPEG of more than {MOST_PARTS} bytes between segments")
        if marker in (_JPEG_SCAN, _JPEG_END):
            return
        if count == _MOST_SEGMENTS:
            raise ImageError(f"a JPEG of more than {_MOST_SEGMENTS} segments")
        end = end_of_this
        read += (end - begin) * (marker in _JPEG_READ_IN_PYTHON)
        if read > MAX_METADATA_BYTES:
            what = "tables and Photoshop blocks"
            raise ImageError(f"a JPEG of {what} of more than {MAX_METADATA_BYTES >> 20} MiB")


def _read_jpeg(data: bytes) -> Header:
    _check_scans(data)
    _check_segments(data)
    if data.count(b"Exif\0\0") > _MOST_EXIF_PARTS:  # Pillow adds each to a copy of those before.
        raise ImageError(f"a JPEG with EXIF in more than {_MOST_EXIF_PARTS} parts")
    bits, height, width, channels = _jpeg_frame(data)
    if bits != 8:
        raise ImageError(f"a JPEG of {bits} bits a sample is not supported")
    if channels not in (1, 3, 4):
        raise ImageError(f"a JPEG of {channels} channels is not supported")
    return _header("jpeg", width, height, channels, _JPEG_PEAK * channels)


def _jpeg_frame(data: bytes) -> tuple[int, int, int, int]:
    """Bits of a sample, height, width and channels, by the first frame: it is the one decoded."""
    for marker, begin, _ in _segments(data):
        if marker in _JPEG_FRAMES and begin + 6 <= len(data):
            bits, height, width, channels = struct.unpack_from(">BHHB", data, begin)
            return bits, height, width, channels
    raise ImageError("cannot be read: a JPEG that names no size")


def _read_webp(data: bytes) -> Header:
    if len(data) < _WEBP_HEAD_BYTES:
        raise ImageError("cannot be read: the file ends too early")
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
        raise ImageError("cannot be read: a WebP that names no size")
    return _header("webp", width, height, 3 + has_alpha, _WEBP_PEAK)


_BMP_MASKS_OF_16 = (16, 3)  # bits of a pixel, and that masks say which are red, green, blue, alpha


def _read_bmp(data: bytes) -> Header:
    import PIL
    from PIL import BmpImagePlugin

    with BmpImagePlugin.BmpImageFile(io.BytesIO(data)) as image:
        width, height = image.size
        (header_bytes,) = struct.unpack_from("<I", data, 14)
        has_masks = header_bytes >= 56 and struct.unpack_from("<HI", data, 28) == _BMP_MASKS_OF_16
        if has_masks and any(data[66:70]):  # that of alpha, which Pillow passes over
            raise ImageError("a BMP of 16 bits with alpha is not supported")
        (codec, _, start, args), *_ = image.tile
        if codec == "bmp_rle":
            needed = "13.0" if args[1] else "12.3"  # Older ones read other pixels: of 4 bits, of 8.
            if [*map(int, PIL.__version__.split(".")[:2])] < [*map(int, needed.split("."))]:
                raise ImageError(
                    f"a BMP in RLE of {4 if args[1] else 8} bits needs Pillow {needed}"
                )
            if len(data) - start > MAX_METADATA_BYTES:  # which Python decodes
                raise ImageError(f"a BMP in RLE of more than {MAX_METADATA_BYTES >> 20} MiB")
        raw = {"1": 1, "L": 1, "P": 3, "RGB": 3}.get(image.mode, MAX_CHANNELS)
        return _header("bmp", width, height, raw, _BMP_PEAK)


# What netpbmfile finds at the first attempt: of other headers it may try as many ways as 2 to the
# power of their blanks and comments.
_NETPBM_GAP = rb"\s{1,16}(?:#[^\r\n]*\r?\n)*\s{0,16}"
_NETPBM_HEADERS = re.compile(
    rb"P[14](?:%(gap)s\d{1,10}){2}\s"
    rb"|P(?:[2356]|7 332)(?:%(gap)s\d{1,10}){3}\s"
    rb"|P7[\r\n](?:[\r\n]|#[^\r\n]*\r?\n|TUPLTYPE\s{1,16}\w+(?=[\r\n])"
    rb"|(?:HEIGHT|WIDTH|DEPTH|MAXVAL)\s{1,16}\d{1,10} *(?=[\r\n#]))*ENDHDR[\r\n]"
    % {b"gap": _NETPBM_GAP}
)
_NETPBM_HEAD_BYTES = 4096  # that netpbmfile looks at


def open_netpbm(data: bytes) -> netpbmfile.NetpbmFile:
    """A netpbm file, its header read.

    Raises:
        ImageError: the header is damaged.
    """
    import netpbmfile

    if not _NETPBM_HEADERS.match(data[:_NETPBM_HEAD_BYTES]):
        raise ImageError("cannot be read: a netpbm file with a damaged header")
    return netpbmfile.NetpbmFile(io.BytesIO(data))


def _read_netpbm(data: bytes) -> Header:
    with open_netpbm(data) as file:
        raw = _checked_channels(file.depth) * file.dtype.itemsize
        header = _header("netpbm", file.width, file.height, raw, 2 * raw + _NETPBM_PEAK)
        if file.magicnumber in ("P1", "P2", "P3"):
            return replace(header, read_bytes=_NETPBM_DIGITS_PEAK * len(data))
        if file.magicnumber == "P4":  # Rows are padded to bytes, each of which becomes 8 samples.
            return replace(header, read_bytes=header.read_bytes + 8 * len(data))
        return header


# JPEG XL, JPEG 2000.


def boxes(data: bytes, holders: Collection[bytes] = ()) -> Iterator[tuple[bytes, int, int]]:
    """Boxes of a JPEG XL or JPEG 2000 file: types, and where bodies begin and end.

    Those in a box of a type among `holders` follow it.
    """
    at = 0
    counted = up_to(MOST_PARTS, "boxes")
    while at + 8 <= len(data):
        next(counted)
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
            raise ImageError("cannot be read: a JPEG XL that ends in its header")
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
            width = height * _JPEGXL_RATIOS[ratio][0] // _JPEGXL_RATIOS[ratio][1]
        else:
            width = 8 * (self.take(5) + 1) if small else self.number(*sides)
        return width, height

    def skip_preview(self) -> None:
        by_eight = self.take(1)
        sides = ((16, 0), (32, 0), (1, 5), (33, 9)) if by_eight else ((1, 6), (65, 8), (321, 10))
        if not by_eight:
            sides = (*sides, (1345, 12))
        self.number(*sides)
        if not self.take(3):
            self.number(*sides)

    def depth(self) -> float:
        """The bits of a sample, as told here; of floats infinitely many."""
        if self.take(1):
            self.number((32, 0), (16, 0), (24, 0), (1, 6))
            self.take(4)
            return math.inf
        return self.number((8, 0), (10, 0), (12, 0), (1, 6))

    def is_plain_alpha(self, depth: float) -> bool:
        """Whether an extra channel, as told here, is alpha that samples of `depth` bits hold.

        They hold no premultiplied alpha.
        """
        if self.take(1):
            return depth >= 8
        is_alpha = self.number((0, 0), (1, 0), (2, 4), (18, 6)) == 0
        is_held = self.depth() <= depth
        self.number((0, 0), (3, 0), (4, 0), (1, 3))  # smaller by a power of two
        self.take(8 * self.number((0, 0), (0, 4), (16, 5), (48, 10)))  # name
        return is_alpha and is_held and not self.take(1)


_JPEGXL_RATIOS = {1: (1, 1), 2: (12, 10), 3: (4, 3), 4: (3, 2), 5: (16, 9), 6: (5, 4), 7: (2, 1)}
_JPEGXL_HEADER_BYTES = 4096  # More than all fields take that are read.


@dataclass(frozen=True)
class JpegXlHeader:
    """The first fields of a JPEG XL: what tells how much memory it takes."""

    width: int
    height: int
    animation: bool
    wide: bool  # more than 8 bits a sample
    extra_channels: int
    plain: bool  # there is none, or one: alpha, not premultiplied, of no more bits than the colours
    xyb: bool | None  # in the colours of lossy coding; None: not looked for


def read_jpegxl_header(data: bytes) -> JpegXlHeader:
    """Reads the header of a JPEG XL file, in boxes or bare.

    Raises:
        ImageError: the header is cut.
    """
    bits = _Bits(_jpegxl_start(data)[2:])
    width, height = bits.size()
    animation, wide, extra_channels, plain = False, False, 0, True
    xyb: bool | None = True
    if not bits.take(1):  # Not all fields have their defaults.
        if bits.take(1):
            bits.take(3)  # orientation
            if bits.take(1):
                bits.size()  # as meant to be seen
            if bits.take(1):
                bits.skip_preview()
            if bits.take(1):
                animation = True
                bits.number((100, 0), (1000, 0), (1, 10), (1, 30))
                bits.number((1, 0), (1001, 0), (1, 8), (1, 10))
                bits.number((0, 0), (0, 3), (0, 16), (0, 32))
                bits.take(1)
        depth = bits.depth()
        wide = depth > 8
        bits.take(1)
        extra_channels = bits.number((0, 0), (1, 0), (2, 4), (1, 12))
        # The decoder gives one of several alphas.
        plain = extra_channels == 0 or (extra_channels == 1 and bits.is_plain_alpha(depth))
        xyb = bool(bits.take(1)) if plain else None
    return JpegXlHeader(width, height, animation, wide, extra_channels, plain, xyb)


def _jpegxl_start(data: bytes) -> bytes:
    if data.startswith(JPEGXL_CODESTREAM):
        return data[:_JPEGXL_HEADER_BYTES]
    start = b""
    for kind, begin, end in boxes(data):
        if kind == b"jxlp":  # A part, behind its number; the first may be short.
            begin += 4
        elif kind != b"jxlc":
            continue
        start += data[begin : min(end, begin + _JPEGXL_HEADER_BYTES)]
        if kind == b"jxlc" or len(start) >= _JPEGXL_HEADER_BYTES:
            break
    return start


def _read_jpegxl(data: bytes) -> Header:
    header = read_jpegxl_header(data)
    if header.extra_channels >= MAX_CHANNELS:
        _checked_channels(1 + header.extra_channels)
    channels = 3 + header.extra_channels  # Gray is told behind what is read here.
    raw = channels * (2 if header.wide else 1)
    return _header("jpegxl", header.width, header.height, raw, _JPEGXL_PEAK * channels + raw)


def _read_jpeg2000(data: bytes) -> Header:
    start = jpeg2000_start(data)
    right, bottom, left, top = struct.unpack_from(">4I", data, start + 8)
    (channels,) = struct.unpack_from(">H", data, start + 40)
    # One channel may be numbers of a palette, whose entries have as many as they like.
    channels = max(
        3, _checked_channels(channels), _checked_channels(_palette_channels(data[:start]))
    )
    return _header("jpeg2000", right - left, bottom - top, 2 * channels, _JPEG2000_PEAK * channels)


def _palette_channels(data: bytes) -> int:
    """The channels of the palette in the boxes before a codestream; 0 without one."""
    palettes = (at + 2 for kind, at, _ in boxes(data, _JPEG2000_HOLDERS) if kind == b"pclr")
    return max((byte for at in palettes for byte in data[at : at + 1]), default=0)


def jpeg2000_palette(data: bytes) -> tuple[bytes, bool] | None:
    """The palette box of a JPEG 2000, and whether it maps one channel to R, G, B; None without."""
    found: dict[bytes, bytes] = {}
    for kind, at, end in boxes(data[: jpeg2000_start(data)], _JPEG2000_HOLDERS):
        if kind in _JPEG2000_PALETTE:  # Boxes around others may all go to the end.
            found.setdefault(kind, data[at:end])
    if b"pclr" not in found:
        return None
    is_plain = found.get(b"cmap") == _JPEG2000_PLAIN_MAP and b"cdef" not in found
    return found[b"pclr"], is_plain


_JPEG2000_PALETTE = (b"pclr", b"cmap", b"cdef")
_JPEG2000_PLAIN_MAP = b"".join(struct.pack(">HBB", 0, 1, column) for column in range(3))


def check_jpeg2000(data: bytes) -> None:
    """Judges what its decoder does not: tiles, and the boxes before the codestream.

    Raises:
        ImageError: there are not all tiles, or the boxes speak of colours that the decoder gives as
            if they were RGB or gray.
    """
    _check_jpeg2000_tiles(data[jpeg2000_start(data) :])
    is_first = True  # Decoders pass over further boxes of colours.
    for kind, at, end in boxes(data[: jpeg2000_start(data)], _JPEG2000_HOLDERS):
        if kind == b"colr" and is_first:
            is_first, method = False, data[at]
            space = data[at + 3 : at + 7] if method == 1 else data[at + 19 : at + 23]
            if (method, space) not in _JPEG2000_COLORS:
                raise ImageError("JPEG 2000 of colours that are not gray, RGB or YCbCr")
        elif kind == b"cdef" and 2 in _uses_of_channels(data[at:end]).values():
            raise ImageError("premultiplied alpha is not supported")


def jpeg2000_extra_samples(data: bytes, channels: int) -> list[int]:
    """What follows the colours in two or four channels of what `jpeg2000_icc` gives: 2 is alpha.

    As `EXTRA_SAMPLES` of a TIFF; nothing for other numbers of channels.
    """
    if channels not in (2, 4):
        return []
    found: dict[bytes, bytes] = {}
    for kind, at, end in boxes(data[: jpeg2000_start(data)], _JPEG2000_HOLDERS):
        if kind in (b"colr", b"cdef"):
            found.setdefault(kind, data[at:end])
    space = found.get(b"colr", b"")
    colors = 1 if (space[:1], space[3:7]) == _JPEG2000_GRAY else channels - 1
    uses = _uses_of_channels(found.get(b"cdef", bytes(2)))
    if sorted(uses.values()) == [0] * colors + [1]:  # OpenJPEG puts the colours before alpha.
        return [2]
    return [2 * (uses.get(channel) == 1) for channel in range(colors, channels)]


def _uses_of_channels(box: bytes) -> dict[int, int]:
    """By channel 0 of colours, 1 of alpha, 2 of what is premultiplied (ISO 15444-1, I.5.3.6)."""
    return {channel: use for channel, use, _ in struct.iter_unpack(">3H", box[2:])}


def jpeg2000_icc(data: bytes) -> tuple[bytes, bytes | None]:
    """A JPEG 2000 whose samples the decoder gives as they are, and its ICC profile.

    By a profile the decoder would turn samples into sRGB. A number of RGB or gray stands there now.
    """
    for kind, at, end in boxes(data[: jpeg2000_start(data)], _JPEG2000_HOLDERS):
        if kind == b"colr":  # the first counts
            if data[at] == 1:
                break
            number = 17 if data[at + 19 : at + 23] == b"GRAY" else 16
            return data[:at] + struct.pack(">3BI", 1, 0, 0, number) + data[at + 7 :], data[
                at + 3 : end
            ]
    return data, None


_JPEG2000_DATA = b"\xff\x93"  # behind the head of a part of a tile
_JPEG2000_STYLE, _JPEG2000_STYLE_OF_ONE = b"\xff\x52", b"\xff\x53"
# SIZ, COD, COC, TLM, PLM, PLT, QCD, QCC, RGN, POC, PPM, PPT, CRG, COM, CAP, CPF.
_JPEG2000_MARKERS = {
    bytes([0xFF, code]) for code in bytes.fromhex("51 52 53 55 57 58 5C 5D 5E 5F 60 61 63 64 50 59")
}
_FREE_PRECINCTS = 4096
_PIXELS_A_PRECINCT = 1024  # at least; of each the decoder keeps 560 bytes
_FREE_BLOCKS = 16_384
_PIXELS_A_BLOCK = 128  # at least, of a channel; of each 390 bytes


_FREE_PACKETS = 1 << 20
_PACKETS_A_BYTE = 10  # at most; each takes a byte or more of a stream that was not cut


def _behind_styles(
    stream: bytes,
    at: int,
    stop: int,
    last: bytes,
    styles: list[tuple[int, int, int, int]],
    counted: Iterator[int],
) -> int:
    """Where the marker `last` or `stop` is behind those at `at`.

    Adds of each style of coding layers, precincts and code-blocks of a channel, and resolutions.
    """
    width, height = struct.unpack_from(">2I", stream, 8)
    (channels,) = struct.unpack_from(">H", stream, 40)
    while at < stop and (marker := stream[at : at + 2]) not in (last, b""):
        next(counted)
        if marker not in _JPEG2000_MARKERS:  # The decoder looks for others within it.
            raise ImageError(f"a JPEG 2000 with a marker that is not known: {marker.hex()}")
        size = int.from_bytes(stream[at + 2 : at + 4], "big")
        body = stream[at + 4 : at + 2 + size]
        if marker in (_JPEG2000_STYLE, _JPEG2000_STYLE_OF_ONE):
            layers, before = int.from_bytes(body[2:4], "big"), 4  # of all channels
            style = body[0]
            if marker == _JPEG2000_STYLE_OF_ONE:
                layers, before = 0, 1 if channels < 257 else 2  # the number of a channel
                style = body[before]
            rest = body[before + 1 :]
            if rest[0] > _MOST_REDUCTIONS:
                raise ImageError(f"a JPEG 2000 of {rest[0] + 1} resolutions; up to 33 are allowed")
            precincts = blocks = 0
            usual = bytes([255] * (rest[0] + 1))
            for level, sides in enumerate(reversed(rest[5:]) if style & 1 else usual):
                across, down = sides & 15, sides >> 4
                precincts += ((width >> level + across) + 1) * ((height >> level + down) + 1)
                across = level + min((rest[1] & 15) + 2, max(0, across - 1))
                down = level + min((rest[2] & 15) + 2, max(0, down - 1))
                blocks += ((width >> across) + 1) * ((height >> down) + 1)
            styles.append((layers, precincts, blocks, rest[0] + 1))
        at += 2 + size
    return at


def _check_jpeg2000_tiles(stream: bytes) -> None:
    """Goes from part to part; the decoder makes tiles without any black, and of some blurred."""
    right, bottom, _, _, width, height, left, top = struct.unpack_from(">8I", stream, 8)
    tiles = -((left - right) // width) * -((top - bottom) // height)
    styles = [(0, 0, 0, 1)]
    counted = up_to(MOST_SMALL_PARTS, "markers")
    at = _behind_styles(stream, 2, len(stream), _JPEG2000_TILE, styles, counted)
    found: dict[int, int] = {}
    told: dict[int, int] = {}  # how many parts a tile has; any of them may tell, others say 0
    start = at
    while stream[at : at + 2] == _JPEG2000_TILE:
        next(counted)
        tile, size, _, parts = struct.unpack_from(">HI2B", stream, at + 4)
        found[tile] = found.get(tile, 0) + 1
        told[tile] = max(told.get(tile, 0), parts)
        start, at = at, at + (size or len(stream))  # 0: to the end
        _behind_styles(stream, start + 12, at, _JPEG2000_DATA, styles, counted)
    is_ended = stream.startswith(_JPEG2000_END, at)
    if not (is_ended if at <= len(stream) else stream.find(_JPEG2000_END, start) > 0):
        raise ImageError("cannot be read: a JPEG 2000 without an end behind its last tile")
    if len(found) < tiles or any(found[tile] < parts for tile, parts in told.items()):
        raise ImageError("cannot be read: a JPEG 2000 without all tiles and their parts")
    # One may tell of layers and another of precincts, of the same tile.
    layers, precincts, blocks, resolutions = (max(column) for column in zip(*styles, strict=True))
    for what, count, most in (
        ("precincts", precincts, _FREE_PRECINCTS + right * bottom // _PIXELS_A_PRECINCT),
        ("code-blocks", blocks, _FREE_BLOCKS + right * bottom // _PIXELS_A_BLOCK),
    ):
        if count > most:
            raise ImageError(f"a JPEG 2000 of {count} {what} in {right} x {bottom} pixels")
    (channels,) = struct.unpack_from(">H", stream, 40)
    packets = layers * channels * (precincts + tiles * resolutions)
    if packets > _FREE_PACKETS + _PACKETS_A_BYTE * len(stream):
        raise ImageError(f"a JPEG 2000 of {packets} packets in {len(stream)} bytes")


_JPEG2000_TILE, _JPEG2000_END = b"\xff\x90", b"\xff\xd9"
_MOST_REDUCTIONS = 32  # ISO 15444-1, A.6.1
_JPEG2000_HOLDERS = frozenset({b"jp2h", b"jplh", b"cgrp"})
# Methods, with what they name: 1 a number of RGB, gray or YCbCr, of which the decoder makes RGB, or
# 0, OpenJPEG's for samples without a space; 2 and 3 the space of an ICC profile.
_JPEG2000_GRAY = b"\1", bytes([0, 0, 0, 17])
_JPEG2000_COLORS = frozenset(
    {(1, bytes([0, 0, 0, number])) for number in (0, 16, 17, 18)}
    | {(method, space) for method in (2, 3) for space in (b"RGB ", b"GRAY")}
)


def jpeg2000_start(data: bytes) -> int:
    """Where the codestream of a JPEG 2000 file begins.

    Raises:
        ImageError: there is none.
    """
    start = 0
    if not data.startswith(JPEG2000_CODESTREAM):
        start = next((begin for kind, begin, _ in boxes(data) if kind == b"jp2c"), len(data))
    if data[start : start + 4] != JPEG2000_CODESTREAM:
        raise ImageError("cannot be read: a JPEG 2000 without an image")
    return start


# TIFF.


class _MeteredFile(io.BytesIO):
    """Bytes as a file that gives up when a reader takes them several times over.

    Each of the thousands of entries in a TIFF directory may claim all bytes of the file.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.bytes_left: float = 4 * len(data) + 2**20

    def read(self, size: int | None = -1, /) -> bytes:
        block = super().read(size)
        self._count(len(block))
        return block

    def readinto(self, buffer: Buffer, /) -> int:
        size = super().readinto(buffer)
        self._count(size)
        return size

    def _count(self, size: int) -> None:
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise ImageError("a damaged TIFF: its tags overlap")


@functools.cache
def _guard_imagej() -> None:
    """Has tifffile pass over metadata of ImageJ whose parts go back and forth: each was copied."""
    from tifffile import tifffile

    parse = tifffile.imagej_metadata

    def checked(data: bytes, bytecounts: Sequence[int], byteorder: Any) -> dict[str, Any]:
        if min(bytecounts) < 0:
            raise ValueError("a part of ImageJ's metadata with less than no bytes")
        return parse(data, bytecounts, byteorder)

    tifffile.imagej_metadata = checked


@contextmanager
def open_tiff(data: bytes) -> Iterator[tifffile.TiffPage]:
    """The page of a TIFF that holds one image; it may hold reduced copies too.

    Raises:
        ImageError: there are several images or no one, the list of pages is damaged, or the page
            is a smaller copy of what lies elsewhere.
    """
    import tifffile

    _guard_imagej()
    _check_pages(data)
    metered = _MeteredFile(data)
    with tifffile.TiffFile(metered) as file:
        page, copies = _only_page(file.pages)
        at = file.pages.next_page_offset
        if at is not None and any(data[at : at + file.tiff.offsetsize]):
            raise ImageError("a damaged TIFF: it ends before another page that it has")
        ends = [0 if at is None else at + file.tiff.offsetsize]
        ends += [tag.valueoffset + tag.valuebytecount for tag in page.tags]
        ends += map(operator.add, page.dataoffsets, page.databytecounts)
        behind = max(ends)
        if _has_tiff_behind(data, behind, page):
            raise ImageError("several images in one file; L3 holds single images")
        if behind + page.nbytes // 64 < len(data) and not any(page.databytecounts):
            raise ImageError("a damaged TIFF: its pixels are there, and not listed")
        _check_directory(data, file.tiff, page.offset)
        _check_is_whole(data, page, copies)
        metered.bytes_left = math.inf  # Tiles that are equal may share their bytes.
        yield page


def _has_tiff_behind(data: bytes, start: int, page: tifffile.TiffPage) -> bool:
    """Whether another one begins at `start`, or one of the same size anywhere behind."""
    if _NEXT_TIFF.match(data, behind_padding(data, start)):
        return True
    # Directories and copies of this one may lie there too. A next one has a header, then a size.
    header = data.find(data[:4], start)
    width = page.tags.get("ImageWidth")
    if header < 0 or width is None:
        return False
    size = data[width.offset : width.offset + 2 * page.parent.tiff.tagsize]  # Length is told next.
    return data.find(size, header) >= 0


def _check_directory(
    data: bytes, layout: tifffile.TiffFormat, start: int, *, is_main: bool = True
) -> None:
    """Refuses tags whose values are not there: libraries pass over them, as if nothing was told."""
    (count,) = struct.unpack_from(layout.tagnoformat, data, start)
    if count > _MOST_TAGS:  # as tifffile has it of the page's own
        raise ImageError(f"a damaged TIFF: a directory of {count} tags")
    below = set(_TIFF_DIRECTORIES if is_main else ())
    first = start + layout.tagnosize
    for at in range(first, first + count * layout.tagsize, layout.tagsize):
        tag, kind = struct.unpack_from(layout.tagformat1, data, at)
        items, value = struct.unpack_from(layout.tagformat2, data, at + 4)
        (place,) = struct.unpack_from(layout.offsetformat, value)
        if kind not in TIFF_ITEM_BYTES:
            if tag in _PIXEL_TAGS and is_main:
                raise ImageError(f"a damaged TIFF: tag {tag} is of no known type")
            if is_main:
                continue  # as TIFF 6.0 asks for
            return  # maybe no directory, but what another program has left in its place
        is_read = tag < _FIRST_PRIVATE_TAG or tag in _READ_PRIVATE_TAGS
        size = items * TIFF_ITEM_BYTES[kind]
        is_outside = size > layout.tagoffsetthreshold and not 8 <= place <= len(data) - size
        is_outside |= tag in below and place > len(data) - layout.tagnosize
        if is_outside and (is_read if is_main else tag != _MAKER_NOTE):
            raise ImageError(f"a damaged TIFF: the values of tag {tag} lie outside of the file")
        if tag in below and place >= 8:
            below.remove(tag)  # The first counts.
            _check_directory(data, layout, place, is_main=False)


_FIRST_PRIVATE_TAG = 32768
_MOST_TAGS, _MOST_TAGS_IN_ALL = 4096, 2**14  # tifffile takes 60 us for each
_MOST_CHUNKS = 2**22  # in all; tifffile takes up to 150 bytes for each
_CHUNK_TAGS = {273, 279, 324, 325}
# Sizes, samples, colours and where they lie.
_PIXEL_TAGS = frozenset(
    {256, 257, 258, 259, 262, 266, 273, 277, 278, 279, 284, 317, 320, 322, 323, 324, 325, 338, 339}
)
_MAKER_NOTE = 37500  # of which a tool that does not know it keeps the place alone
_TIFF_DIRECTORIES = (34665, 34853)  # of EXIF and GPS
_READ_PRIVATE_TAGS = KEPT_TIFF_TAGS | {34675, *_TIFF_DIRECTORIES}  # and ICC
BYTE_ORDERS: dict[str, Literal["little", "big"]] = {"<": "little", ">": "big"}
TIFF_ITEM_BYTES = {number: tiff_item_bytes(name) for name, (number, _) in TIFF_TYPES.items()}
TIFF_ITEM_BYTES |= {13: 4, 16: 8, 17: 8, 18: 8, 129: 1}  # directories, BigTIFF's, and UTF-8


def _only_page(
    pages: Iterable[tifffile.TiffPage | tifffile.TiffFrame],
) -> tuple[tifffile.TiffPage, list[tifffile.TiffPage]]:
    """The page that is no reduced copy, and those that are."""
    # One by one: the list may be a loop, or as long as the file can hold.
    found: list[tifffile.TiffPage] = []
    copies: list[tifffile.TiffPage] = []
    offsets: set[int] = set()
    for page in pages:
        if page.offset in offsets:
            raise ImageError("a damaged TIFF: its list of pages is a loop")
        if len(offsets) == MAX_TIFF_PAGES:
            raise ImageError(f"more than {MAX_TIFF_PAGES} pages; L3 holds single images")
        offsets.add(page.offset)
        full = page.aspage()
        (copies if full.is_reduced else found).append(full)
        if len(found) > 1:
            raise ImageError("several images in one file; L3 holds single images")
    if not found:
        raise ImageError("a TIFF without an image")
    return found[0], copies


class _TiffSums:
    """What directories hold together, of which all may claim the same bytes."""

    def __init__(self, data: bytes, layout: tifffile.TiffFormat) -> None:
        self._data, self._layout = data, layout
        self._tags = self._chunks = 0

    def add(self, offset: int) -> int:
        """Counts a directory; gives the place of what tells the next one's.

        Raises:
            ImageError: it is too much.
        """
        layout = self._layout
        start = offset + layout.tagnosize
        count = int.from_bytes(self._data[offset:start], BYTE_ORDERS[layout.byteorder])
        if count > _MOST_TAGS:  # tifffile reads no more
            return len(self._data)
        tags, chunks = self._tags + count, self._chunks
        if tags > _MOST_TAGS_IN_ALL:
            raise ImageError(f"a damaged TIFF: more than {_MOST_TAGS_IN_ALL} tags")
        end = start + count * layout.tagsize
        for at in range(start, min(end, len(self._data) - layout.tagsize + 1), layout.tagsize):
            tag, _ = struct.unpack_from(layout.tagformat1, self._data, at)
            if tag in _CHUNK_TAGS:
                chunks += struct.unpack_from(layout.tagformat2, self._data, at + 4)[0]
        if chunks > 2 * _MOST_CHUNKS:  # places and sizes
            raise ImageError(f"a TIFF of more than {_MOST_CHUNKS} strips or tiles")
        self._tags, self._chunks = tags, chunks
        return end


def _check_pages(data: bytes) -> None:
    """Refuses a TIFF whose pages list too much, which tifffile would make objects of."""
    from tifffile import TIFF

    layouts = {
        b"II*\0": TIFF.CLASSIC_LE,
        b"MM\0*": TIFF.CLASSIC_BE,
        b"II+\0": TIFF.BIG_LE,
        b"MM\0+": TIFF.BIG_BE,
    }
    layout = layouts[data[:4]]
    sums, seen = _TiffSums(data, layout), {0}
    place = layout.offsetsize  # of the first one's, in either
    while place + layout.offsetsize <= len(data) and len(seen) <= MAX_TIFF_PAGES:
        (offset,) = struct.unpack_from(layout.offsetformat, data, place)
        if offset in seen:
            break
        seen.add(offset)
        place = sums.add(offset)


def _check_is_whole(
    data: bytes, page: tifffile.TiffPage, copies: Sequence[tifffile.TiffPage]
) -> None:
    """Refuses images that are not among the pages, as of cameras, whose page is a smaller copy."""
    import tifffile

    def is_larger(other: tifffile.TiffPage) -> bool:
        # No product: tifffile gives a size of type BYTE as bytes, which a number repeats.
        return other.imagewidth > page.imagewidth or other.imagelength > page.imagelength

    chunks = zip(page.dataoffsets, page.databytecounts, strict=False)
    is_raw = data[8:12] in _PHASE_ONE and not any(at <= 8 < at + size for at, size in chunks)
    is_raw |= any(map(is_larger, copies))
    is_other = False
    layout = page.parent.tiff
    seen = {0, *(each.offset for each in (page, *copies))}  # 0 ends a list.
    waiting = [(offset, True) for each in (page, *copies) for offset in each.subifds or ()]
    sums = _TiffSums(data, layout)
    for each in (page, *copies):
        sums.add(each.offset)
    for offset, is_told in waiting:  # It grows: others may follow each, or be below it.
        if offset in seen:
            continue
        if len(seen) > MAX_TIFF_PAGES:
            raise ImageError(f"more than {MAX_TIFF_PAGES} pages; L3 holds single images")
        seen.add(offset)
        try:
            end = sums.add(offset)
        except ImageError:
            if is_told:
                raise
            continue  # Writers leave anything behind a SubIFD.
        page.parent.filehandle.seek(offset)
        try:
            sub = tifffile.TiffPage(page.parent, index=0)
        except Exception as error:
            if is_told or isinstance(error, ImageError):
                raise
            continue
        has_size = isinstance(sub.imagewidth, int) and isinstance(sub.imagelength, int)
        if is_told or (has_size and sub.dataoffsets):
            is_raw |= is_larger(sub)
            pairs = (sub.imagewidth, page.imagewidth), (sub.imagelength, page.imagelength)
            is_small = all(side < own or side == own == 1 for side, own in pairs)
            is_other |= not (sub.is_reduced or is_small)
        following = data[end : end + layout.offsetsize].ljust(layout.offsetsize, b"\0")
        (behind,) = struct.unpack(layout.offsetformat, following)
        waiting += [(behind, False), *((each, True) for each in sub.subifds or ())]
    if is_raw:
        raise ImageError("a TIFF whose page is a smaller copy, as raw photographs have, is refused")
    if is_other:
        raise ImageError("several images in one file; L3 holds single images")


_PHASE_ONE = (b"IIII", b"MMMM")  # where its raw data begin, which no page names


def _read_tiff(data: bytes) -> Header:
    from tifffile import PHOTOMETRIC

    with open_tiff(data) as page:
        sizes = [page.imagewidth, page.imagelength, page.samplesperpixel, page.bitspersample]
        sizes += [page.tilewidth, page.tilelength, page.rowsperstrip, page.fillorder]
        if not all(isinstance(size, int) for size in sizes):  # A byte times a number is long.
            raise ImageError("a damaged TIFF: a size, or the order of bits, is no number")
        if page.axes not in ("YX", "YXS", "SYX"):
            raise ImageError(f"a TIFF of axes {page.axes} is not supported")
        if page.dtype is None:
            samples = f"samples of {page.bitspersample} bits and format {page.sampleformat}"
            raise ImageError(f"a TIFF with {samples} is not supported")
        _checked_channels(page.samplesperpixel, MAX_TIFF_CHANNELS)
        _check_layout(data, page)
        _check_chunks(data, page)
        # Whole strips or tiles are decoded beside the image, their padding included.
        padded = math.prod(page.chunks) * math.prod(page.chunked) * max(1, page.bitspersample // 8)
        raw = page.nbytes
        if page.photometric == PHOTOMETRIC.PALETTE:
            raw += 6 * page.imagewidth * page.imagelength
        width, height = page.imagewidth, page.imagelength
        fours = max(-(-page.samplesperpixel // 4), -(-raw // max(1, 8 * width * height)))
        tags = max(0, len(data) - sum(page.databytecounts))  # held by tifffile and by Pillow
        lists = _CHUNK_LIST_BYTES * max(len(page.dataoffsets), math.prod(page.chunked))
        return Header("tiff", width, height, raw, 2 * raw + padded + 2 * tags + lists, fours)


def _check_layout(data: bytes, page: tifffile.TiffPage) -> None:
    """Refuses tiles that are not listed, or out of proportion to the image."""
    chunks = math.prod(page.chunked)
    if chunks > len(data):
        raise ImageError(f"a damaged TIFF: {chunks} strips or tiles in {len(data)} bytes")
    pixels = page.imagewidth * page.imagelength
    bands = max(1, page.samplesperpixel)  # in one tile, or in a tile each
    most = max(_LARGE_TILE_SAMPLES * min(bands, 16), 16 * bands * pixels)
    # Rows of one pixel are in tiles of 256.
    most_of_all = max(_LARGE_TILES_SAMPLES, 256 * bands * pixels)
    is_large = bands * page.tilewidth * page.tilelength > most
    if is_large or math.prod(page.chunks) * chunks > most_of_all:
        raise ImageError(
            f"a TIFF with tiles of {page.tilewidth} x {page.tilelength} pixels of {bands} samples "
            f"in an image of {page.imagewidth} x {page.imagelength} is not supported"
        )
    places = list(zip(page.dataoffsets, page.databytecounts, strict=False))
    is_listed = len(places) >= chunks and all(
        (offset == 0) == (size == 0) and offset + size <= len(data) for offset, size in places
    )
    if page.is_contiguous:  # They are read as one.
        is_listed = sum(size for _, size in places) >= page.nbytes
    read = sum(page.databytecounts) + len(page.jpegtables or b"") * chunks
    if read > 4 * len(data) + 2 * page.nbytes:  # Those that are equal may share.
        raise ImageError("a damaged TIFF: its strips or tiles overlap")
    if not is_listed or ("StripOffsets" in page.tags and "TileOffsets" in page.tags):
        raise ImageError(f"a damaged TIFF: it does not say where its {chunks} strips or tiles are")


_LARGE_TILE_SAMPLES, _LARGE_TILES_SAMPLES = 2**24, 2**30
_CHUNK_LIST_BYTES = 400  # of Python objects, for each strip or tile


def _check_chunks(data: bytes, page: tifffile.TiffPage) -> None:
    """Refuses strips and tiles that are images, but for JPEGs of what the page says."""
    from tifffile import COMPRESSION

    if page.compression in _SIZED_COMPRESSIONS:
        return
    samples = page.samplesperpixel if len(page.chunks) > 2 else 1
    allowed = 2 * math.prod(page.chunks) // samples + 4096  # Some are padded to blocks.
    rows, columns = (page.tilelength, page.tilewidth) if page.is_tiled else page.chunks[:2]
    across, down = -(-page.imagewidth // columns), -(-page.imagelength // rows)
    for i, (offset, size) in enumerate(zip(page.dataoffsets, page.databytecounts, strict=False)):
        if offset == 0 or size == 0:
            continue  # nothing is stored
        start = data[offset : offset + min(size, _CHUNK_HEADER_BYTES)]
        if format_of(start)[0] != "jpeg":
            kind = getattr(COMPRESSION(page.compression), "name", page.compression)
            raise ImageError(f"a TIFF whose tiles are {kind}, or damaged, is not supported")
        bits, height, width, channels = _jpeg_frame(start)
        if width * height > allowed:
            raise ImageError("a damaged TIFF: a tile is larger than the page says")
        rest_width = min(columns, page.imagewidth - i % across * columns)
        rest_height = min(rows, page.imagelength - i // across % down * rows)
        is_whole = width == columns and height >= rest_height
        if not is_whole and (width != rest_width or height not in (rows, rest_height)):
            raise ImageError("a damaged TIFF: a tile has other sides than the page says")
        if (bits, channels) != (page.bitspersample, samples):
            raise ImageError("a damaged TIFF: a tile has other samples than the page says")
        if samples == 4 and _ADOBE_YCCK.search(start):
            raise ImageError("JPEG of four samples that decoders take for YCCK")
        _check_scans(data[offset : offset + size])
        if data.rfind(b"\xff\xd9", max(0, offset + size - _JPEG_TAIL_BYTES), offset + size) < 0:
            raise ImageError("a damaged TIFF: a tile ends too early")


# They decode to as many bytes as they are asked for.
# Names of tifffile have changed: none, CCITT, LZW, Deflate, PackBits, LZMA, Zstandard, Pixtiff.
_SIZED_COMPRESSIONS = frozenset({1, 2, 3, 4, 5, 8, 32946, 32773, 34925, 34926, 50000, 50013})
_ADOBE_YCCK = re.compile(rb"\xff\xee..Adobe.{6}\x02", re.DOTALL)
_JPEG_TAIL_BYTES = 64  # Some writers align what is behind them.
_CHUNK_HEADER_BYTES = 4096

_READERS: dict[str, Callable[[bytes], Header]] = {
    "png": _read_png,
    "jpeg": _read_jpeg,
    "webp": _read_webp,
    "jpegxl": _read_jpegxl,
    "jpeg2000": _read_jpeg2000,
    "bmp": _read_bmp,
    "tiff": _read_tiff,
    "netpbm": _read_netpbm,
}
