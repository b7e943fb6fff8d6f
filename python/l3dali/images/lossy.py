"""Detects lossy image files by their headers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from l3dali.images.headers import boxes, jpeg2000_start, read_jpegxl_header
from l3dali.signatures import format_of

if TYPE_CHECKING:
    from collections.abc import Callable


def lossy_format(data: bytes) -> str | None:
    """The name of the lossy format of an image file; None if it is lossless or unknown."""
    name = _NAMES.get(format_of(data)[0])
    try:
        return name(data) if name else None
    except (ValueError, IndexError, struct.error):
        return None


def _webp(data: bytes) -> str | None:
    at = 12
    while at + 8 <= len(data):
        kind, size = struct.unpack_from("<4sI", data, at)
        if kind in (b"VP8 ", b"VP8L"):
            return "lossy WebP" if kind == b"VP8 " else None
        at += 8 + size + size % 2
    return None


def _jpegxl(data: bytes) -> str | None:
    is_boxed = data.startswith(b"\0\0\0\x0c")
    if is_boxed and any(kind == b"jbrd" for kind, _, _ in boxes(data)):  # to restore the JPEG
        return "JPEG in JPEG XL"
    return "lossy JPEG XL" if read_jpegxl_header(data).xyb else None


def _jpeg2000(data: bytes) -> str | None:
    start = jpeg2000_start(data)
    (size,) = struct.unpack_from(">H", data, start + 4)
    style = data.index(b"\xff\x52", start + 4 + size)  # COD, behind SIZ
    return "lossy JPEG 2000" if data[style + 13] == 0 else None  # 0: the 9-7 transform


_NAMES: dict[str, Callable[[bytes], str | None]] = {
    "jpeg": lambda data: "JPEG",
    "webp": _webp,
    "jpegxl": _jpegxl,
    "jpeg2000": _jpeg2000,
}
