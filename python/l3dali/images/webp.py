"""WebP, read and written by Pillow."""

from __future__ import annotations

import io
import struct

from l3dali.errors import ENDS_TOO_EARLY, ImageError
from l3dali.images.picture import Header, ImageFormat, Picture, ReadOptions, Writer


def _read_header(data: bytes) -> Header:
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
    return Header.of("webp", width, height, 3 + has_alpha, 1, peak=8)


def _read(data: bytes, options: ReadOptions) -> Picture:
    from PIL import WebPImagePlugin

    with WebPImagePlugin.WebPImageFile(io.BytesIO(data)) as image:
        if image.n_frames > 1:
            raise ImageError("several images in one file; L3 holds single images")
        return Picture.by_pillow(image, options)


def _lossy_name(data: bytes) -> str | None:
    at = 12
    while at + 8 <= len(data):
        kind, size = struct.unpack_from("<4sI", data, at)
        if kind in (b"VP8 ", b"VP8L"):
            return "lossy WebP" if kind == b"VP8 " else None
        at += 8 + size + size % 2
    return None


def _write(picture: Picture) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    metadata = {"icc_profile": picture.icc, "exif": picture.exif, "xmp": picture.xmp}
    options = {name: value for name, value in metadata.items() if value is not None}
    Image.fromarray(picture.pixels).save(file, "WEBP", lossless=True, exact=True, **options)
    return file.getvalue()


_WRITERS = {".webp": Writer(_write, (3, 4), ("uint8",), longest=2**14 - 1)}
FORMAT = ImageFormat(_read_header, _read, _WRITERS, _lossy_name)
