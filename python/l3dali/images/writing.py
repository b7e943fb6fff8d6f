"""Pictures to other image formats, without loss.

The libraries are imported where they are used, so that `import l3dali` needs none of them.
"""

from __future__ import annotations

import io
import math
import re
import struct
import zlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from l3dali.arguments import MAX_CHANNELS, MAX_PIXELS
from l3dali.images.headers import ImageError
from l3dali.images.picture import NO_RESOLUTION, PNG_XMP, TIFF_XMP
from l3dali.images.tiff_directories import plain_exif_tags
from l3dali.metadata import (
    FLOATS,
    TIFF_TYPES,
    TiffTag,
    extra_samples,
    png_of_metadata,
    tiff_item_bytes,
    tiff_of_metadata,
)
from l3dali.signatures import PNG_SIGNATURE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from l3dali.codec import Image
    from l3dali.images.picture import Picture

__all__ = ["WRITERS", "floats_of", "write_picture"]

_PNG_LEVEL = 6
_PNG_HEADER_END = len(PNG_SIGNATURE) + 25


def write_picture(picture: Picture, suffix: str) -> bytes:
    """The bytes of a lossless image file of the format that `suffix` (".png") names.

    PNG and WebP keep ICC, EXIF and XMP, JPEG 2000 keeps ICC of RGB and gray, TIFF keeps ICC, XMP,
    EXIF but for its directories, and the TIFF tags of `metadata`, PNG keeps palettes and the PNG
    chunks of `metadata`. Only TIFF holds signed samples and floats.

    Raises:
        ImageError: the format cannot hold the picture, or its metadata is damaged.
    """
    channels = 1 if picture.pixels.ndim == 2 else picture.pixels.shape[2]
    bits = 8 * picture.pixels.dtype.itemsize
    writer = WRITERS[suffix]
    if picture.pixels.dtype.kind == "i" and not writer.signed:
        raise ImageError(f"{suffix} cannot hold signed samples; use .tif")
    if writer.write is not _write_tiff and floats_of(picture) is not None:
        raise ImageError(f"{suffix} cannot hold floats; use .tif")
    if channels not in writer.channels or bits not in writer.bits:
        many = f"{channels} channel" if channels == 1 else f"{channels} channels"
        able = ".png" if channels in WRITERS[".png"].channels else ".tif"
        raise ImageError(f"{suffix} cannot hold {many} of {bits} bits; use {able}")
    if max(picture.pixels.shape[:2]) > writer.longest:
        raise ImageError(f"{suffix} has sides of at most {writer.longest} pixels; use .tif")
    return writer.write(picture)


def floats_of(picture: Picture) -> Image | None:
    """The floats whose bits the samples are, where the metadata says so (docs/my-data.md)."""
    name, pixels = (picture.metadata or {}).get(FLOATS), picture.pixels
    if name not in ("float16", "float32") or pixels.dtype != np.uint16:
        return None
    samples = np.ascontiguousarray(pixels.reshape(*pixels.shape[:2], -1))
    if samples.shape[2] * samples.itemsize % np.dtype(name).itemsize:
        return None
    floats: Image = samples.view(name)
    return floats[..., 0] if floats.shape[2] == 1 else floats


@dataclass(frozen=True)
class Writer:
    """A lossless format: what it holds and the function that writes it."""

    channels: Collection[int]
    bits: tuple[int, ...]
    write: Callable[[Picture], bytes]
    signed: bool = False
    longest: int = MAX_PIXELS  # side


def _write_png(picture: Picture) -> bytes:
    import imagecodecs
    from PIL import Image

    if picture.palette is None or picture.pixels.shape[2:] or picture.pixels.dtype != np.uint8:
        filtered = picture.pixels.nbytes + len(picture.pixels)  # a byte more for each row
        # png_encode allocates less, and may not report a truncated result.
        room = filtered + filtered // 256 + 1024
        png = bytes(imagecodecs.png_encode(picture.pixels, level=_PNG_LEVEL, out=room))
    else:
        entries = _entries(picture)
        image = Image.fromarray(picture.pixels)
        image.putpalette(entries[:, :3].tobytes())
        alpha = entries[:, 3].tobytes()
        file = io.BytesIO()
        options = {} if set(alpha) == {255} else {"transparency": alpha}
        image.save(file, "PNG", compress_level=_PNG_LEVEL, **options)
        png = file.getvalue()
    extra = []
    if picture.icc is not None:
        extra.append((b"iCCP", b"ICC profile\0\0" + zlib.compress(picture.icc)))
    if picture.exif is not None:
        extra.append((b"eXIf", picture.exif))
    if picture.xmp is not None:
        extra.append((b"iTXt", PNG_XMP + bytes(4) + picture.xmp))
    try:
        extra += png_of_metadata(picture.metadata)
    except ValueError as error:
        raise ImageError(str(error)) from None
    chunks = [_png_chunk(kind, body) for kind, body in extra]
    return b"".join([png[:_PNG_HEADER_END], *chunks, png[_PNG_HEADER_END:]])


def _png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


_OPAQUE_BLACK = np.array([0, 0, 0, 255], np.uint8)


def _entries(picture: Picture) -> Image:
    """The palette, with black entries for numbers beyond its end."""
    entries = np.frombuffer(picture.palette or b"", np.uint8).reshape(-1, 4)
    missing = max(0, int(picture.pixels.max()) + 1 - len(entries))
    return np.concatenate([entries, np.tile(_OPAQUE_BLACK, (missing, 1))])


def _write_tiff(picture: Picture) -> bytes:
    import tifffile

    floats = floats_of(picture)
    pixels = picture.pixels if floats is None else floats
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    try:
        tags = tiff_of_metadata(picture.metadata)
    except ValueError as error:
        raise ImageError(str(error)) from None
    if picture.xmp:
        tags[TIFF_XMP] = TiffTag("BYTE", picture.xmp)
    is_color = channels == 3 or (channels == 4 and picture.has_alpha)
    extra = extra_samples(picture.metadata)
    if extra is not None and len(extra) in (channels - 1, channels - 3):
        is_color = len(extra) == channels - 3
    elif channels in (2, 4) and picture.has_alpha and floats is None:
        extra = [2]
    else:
        extra = [0] * (channels - (3 if is_color else 1))
    across, down, unit = (tags.pop(code, None) for code in NO_RESOLUTION)
    file = io.BytesIO()
    tifffile.imwrite(
        file,
        pixels,
        photometric="rgb" if is_color else "minisblack",
        planarconfig=None if channels == 1 else "contig",
        extrasamples=["unassalpha" if kind else "unspecified" for kind in extra] or None,
        compression="zlib",
        predictor=True,
        resolution=(_fraction(across), _fraction(down)) if across or down else None,
        resolutionunit=unit.data[0] if unit else None,  # Else it is an inch.
        iccprofile=picture.icc,
        metadata=None,
        byteorder="<",
        extratags=[
            *plain_exif_tags(picture.exif),
            *((code, *_extratag(tag), True) for code, tag in tags.items()),
        ],
    )
    return file.getvalue()


def _fraction(tag: TiffTag | None) -> tuple[int, int]:
    """A resolution for tifffile; 1/1 without one."""
    is_fraction = tag is not None and tag.type == "RATIONAL"
    numerator, denominator = struct.unpack("<2I", tag.data[:8]) if tag and is_fraction else (1, 1)
    return numerator, denominator or 1


def _extratag(tag: TiffTag) -> tuple[int, int, Any]:
    """Type, count and values for tifffile."""
    number, letter = TIFF_TYPES[tag.type]
    count = len(tag.data) // tiff_item_bytes(tag.type)
    if not tag.type.endswith("RATIONAL"):  # For these it would split the bytes in halves.
        return number, count, tag.data
    return number, count, struct.unpack(f"<{2 * count}{letter}", tag.data)


def _write_webp(picture: Picture) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    metadata = {"icc_profile": picture.icc, "exif": picture.exif, "xmp": picture.xmp}
    options = {name: value for name, value in metadata.items() if value is not None}
    Image.fromarray(picture.pixels).save(file, "WEBP", lossless=True, exact=True, **options)
    return file.getvalue()


def _write_bmp(picture: Picture) -> bytes:
    import imagecodecs

    return bytes(imagecodecs.bmp_encode(picture.pixels))


def _write_netpbm(magic_number: str, picture: Picture) -> bytes:
    import netpbmfile

    pixels = picture.pixels
    maximum = int(np.iinfo(pixels.dtype).max)  # netpbmfile's default is that of the pixels.
    file = io.BytesIO()
    netpbmfile.imwrite(file, pixels, magicnumber=magic_number, maxval=maximum)
    if magic_number != "P7" or _channels_with_alpha(picture):
        return file.getvalue()
    head, end, samples = file.getvalue().partition(b"ENDHDR\n")  # Samples may be any text.
    return re.sub(rb"TUPLTYPE \w+_ALPHA\n", b"", head) + end + samples


def _write_jpegxl(picture: Picture) -> bytes:
    import imagecodecs

    return bytes(imagecodecs.jpegxl_encode(picture.pixels, lossless=True))


def _write_jpeg2000(picture: Picture) -> bytes:
    import imagecodecs

    data = imagecodecs.jpeg2k_encode(picture.pixels, level=0, reversible=True, codecformat="jp2")
    at = data.index(b"jp2h") - 4
    (size,) = struct.unpack_from(">I", data, at)
    head, rest = data[at + 8 : at + size], data[at + size :]
    channels = _channels_with_alpha(picture)
    if channels:
        # imagecodecs omits this box (ISO 15444-1, I.5.3.6): colours have numbers, alpha is for all.
        uses = [(i, 0, i + 1) for i in range(channels - 1)] + [(channels - 1, 1, 0)]
        head += _box(b"cdef", struct.pack(">H", channels), *(struct.pack(">3H", *u) for u in uses))
    if picture.icc is not None and picture.icc[16:20] in (b"RGB ", b"GRAY"):
        colors = head.index(b"colr") - 4
        (old,) = struct.unpack_from(">I", head, colors)
        box = _box(b"colr", b"\2\0\0", picture.icc)
        head = head[:colors] + box + head[colors + old :]
    return bytes(data[:at] + _box(b"jp2h", head) + rest)


def _box(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">I4s", 8 + len(body), kind) + body


def _channels_with_alpha(picture: Picture) -> int:
    """How many channels a picture with alpha has; 0 without."""
    channels = math.prod(picture.pixels.shape[2:])
    return channels if channels in (2, 4) and picture.has_alpha else 0


_ALL_CHANNELS = (1, 2, 3, 4)
_TIFF_CHANNELS = range(1, MAX_CHANNELS + 1)

WRITERS = {
    ".png": Writer(_ALL_CHANNELS, (8, 16), _write_png, longest=1_000_000),  # to libpng
    ".tif": Writer(_TIFF_CHANNELS, (8, 16), _write_tiff, signed=True),
    ".tiff": Writer(_TIFF_CHANNELS, (8, 16), _write_tiff, signed=True),
    ".webp": Writer((3, 4), (8,), _write_webp, longest=2**14 - 1),
    ".bmp": Writer((1, 3), (8,), _write_bmp),
    ".pgm": Writer((1,), (8, 16), partial(_write_netpbm, "P5")),
    ".ppm": Writer((3,), (8, 16), partial(_write_netpbm, "P6")),
    ".pam": Writer(_ALL_CHANNELS, (8, 16), partial(_write_netpbm, "P7")),
    ".jxl": Writer(_ALL_CHANNELS, (8, 16), _write_jpegxl, longest=2**23),  # libjxl reads no 2^24
    ".jp2": Writer(_ALL_CHANNELS, (8, 16), _write_jpeg2000, longest=2**20),  # of few code-blocks
}
