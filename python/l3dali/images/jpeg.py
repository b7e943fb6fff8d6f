"""JPEG, read by Pillow."""

from __future__ import annotations

import io
import re
import struct
from typing import TYPE_CHECKING

from l3dali.errors import ENDS_TOO_EARLY, ImageError
from l3dali.images.picture import Header, ImageFormat, Picture, ReadOptions

if TYPE_CHECKING:
    from collections.abc import Iterator


# Frames of all kinds, except the tables DHT (C4), JPG (C8) and DAC (CC).
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")  # All others have no length.


def _segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Yields the marker of each segment of a JPEG, and where its body begins."""
    at = 2
    while found := _MARKER.search(data, at):
        at = found.end()
        yield found[0][1], at + 2
        at += int.from_bytes(data[at : at + 2], "big")


def _read_header(data: bytes) -> Header:
    bits, height, width, channels = jpeg_frame(data)
    if bits != 8:
        raise ImageError(f"a JPEG of {bits} bits a sample is not supported")
    if channels not in (1, 3, 4):
        raise ImageError(f"a JPEG of {channels} channels is not supported")
    return Header.of("jpeg", width, height, channels, 1, peak=6)


def jpeg_frame(data: bytes) -> tuple[int, int, int, int]:
    """Bits of a sample, height, width and channels of the first frame, which decoders use."""
    for marker, begin in _segments(data):
        if marker in _FRAMES and begin + 6 <= len(data):
            bits, height, width, channels = struct.unpack_from(">BHHB", data, begin)
            return bits, height, width, channels
    raise ImageError("cannot be read: a JPEG without a size")


def _read(data: bytes, options: ReadOptions) -> Picture:
    from PIL import JpegImagePlugin

    # Truncation check: libjpeg invents pixels if a JPEG ends early, or in zeros.
    if all(marker != 0xD9 for marker, _ in _segments(data)):  # EOI
        raise ImageError(ENDS_TOO_EARLY)
    with JpegImagePlugin.JpegImageFile(io.BytesIO(data)) as image:
        return Picture.by_pillow(image, options)


FORMAT = ImageFormat(_read_header, _read, lossy_name=lambda _: "JPEG")
