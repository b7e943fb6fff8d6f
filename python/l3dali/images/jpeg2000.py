"""JPEG 2000, by OpenJPEG in imagecodecs and Pillow."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING

import numpy as np

from l3dali.errors import ENDS_TOO_EARLY, ImageError
from l3dali.images.picture import ALPHA, Header, ImageFormat, Picture, ReadOptions, Writer
from l3dali.signatures import JPEG2000_CODESTREAM

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

# Boxes name colours by a number: 16 RGB, 17 gray, 18 YCbCr, which is decoded to RGB, 0 none (of
# OpenJPEG); or by a profile with a name.
_COLORS = tuple(bytes([0, 0, 0, number]) for number in (0, 16, 17, 18))
_SPACES = {b"RGB ": _COLORS[1], b"GRAY": _COLORS[2]}


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


def _start(data: bytes) -> int:
    """Where the codestream of a JPEG 2000 file begins; ImageError if there is none."""
    start = 0
    if not data.startswith(JPEG2000_CODESTREAM):
        start = next((begin for kind, begin, _ in boxes(data) if kind == b"jp2c"), len(data))
    if data[start : start + 4] != JPEG2000_CODESTREAM:
        raise ImageError("cannot be read: a JPEG 2000 without an image")
    return start


def _read_header(data: bytes) -> Header:
    start = _start(data)
    right, bottom, left, top = struct.unpack_from(">4I", data, start + 8)
    (channels,) = struct.unpack_from(">H", data, start + 40)
    channels = max(3, channels)  # One channel may be entries of a palette.
    return Header.of("jpeg2000", right - left, bottom - top, channels, 2, peak=4)


def _read(data: bytes, options: ReadOptions) -> Picture:
    import imagecodecs
    from PIL import Jpeg2KImagePlugin

    start = _start(data)
    if data.rfind(b"\xff\xd9") < data.rfind(b"\xff\x90"):  # the end, and the start of a tile
        raise ImageError(ENDS_TOO_EARLY)  # Truncation check: OpenJPEG invents the rest.
    found: dict[bytes, tuple[int, int]] = {}
    for kind, at, end in boxes(data[:start], (b"jp2h", b"jplh", b"cgrp")):
        found.setdefault(kind, (at, end))  # Decoders ignore further ones.
    icc = None
    is_gray = False
    if b"colr" in found:
        at, end = found[b"colr"]
        method, space = data[at], data[at + 3 : at + 7]
        if method in (2, 3):
            # With a profile the decoder would convert samples to sRGB: it gets a number instead.
            icc, space = data[at + 3 : end], _SPACES.get(data[at + 19 : at + 23], b"")
            data = data[:at] + b"\1\0\0" + space + data[at + 7 :]
        if method not in (1, 2, 3) or space not in _COLORS:
            raise ImageError("JPEG 2000 in colours other than gray, RGB or YCbCr is not supported")
        is_gray = space == _SPACES[b"GRAY"]
    # By channel: 0 colours, 1 alpha, 2 premultiplied (ISO 15444-1, I.5.3.6).
    uses = data[slice(*found.get(b"cdef", (0, 0)))][2:]
    use_of = {channel: use for channel, use, _ in struct.iter_unpack(">3H", uses)}
    if 2 in use_of.values():
        raise ImageError("premultiplied alpha is not supported")
    if b"pclr" in found and options.palette == "index":
        raise ImageError("the palette of a JPEG 2000 cannot be kept; use palette rgb")
    (count,) = struct.unpack_from(">H", data, start + 40)
    depths = list(data[start + 42 : start + 42 + 3 * count : 3])  # less 1; 128 and more are signed
    if depths in ([7, 0], [7, 7, 7, 0]):  # imagecodecs decodes no alpha of one bit
        with Jpeg2KImagePlugin.Jpeg2KImageFile(io.BytesIO(data)) as image:
            pixels = np.array(image)
        pixels[..., -1] = np.where(pixels[..., -1] > 0, 255, 0)
    elif len(set(depths)) > 1:
        raise ImageError("JPEG 2000 with components of different bits is not supported")
    else:
        pixels = imagecodecs.jpeg2k_decode(data)
    picture = Picture(pixels, icc=icc, expanded=b"pclr" in found)
    if not picture.expanded:
        picture = picture.scaled(depths[0] + 1, options)
    channels = picture.channels
    colors = 1 if is_gray else channels - 1
    # OpenJPEG puts the colours before alpha.
    if channels in (1, 3) or sorted(use_of.values()) == [0] * colors + [1]:
        return picture
    kinds = [ALPHA * (use_of.get(channel) == 1) for channel in range(colors, channels)]
    return picture.with_extra_samples(kinds)


def _lossy_name(data: bytes) -> str | None:
    start = _start(data)
    (size,) = struct.unpack_from(">H", data, start + 4)
    style = data.index(b"\xff\x52", start + 4 + size)  # COD, behind SIZ
    return "lossy JPEG 2000" if data[style + 13] == 0 else None  # 0: the 9-7 transform


def _write(picture: Picture) -> bytes:
    import imagecodecs

    data = imagecodecs.jpeg2k_encode(picture.pixels, level=0, reversible=True, codecformat="jp2")
    at = data.index(b"jp2h") - 4
    (size,) = struct.unpack_from(">I", data, at)
    head, rest = data[at + 8 : at + size], data[at + size :]
    channels = picture.channels_with_alpha
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


_WRITERS = {".jp2": Writer(_write, longest=2**20)}  # of few code-blocks
FORMAT = ImageFormat(_read_header, _read, _WRITERS, _lossy_name)
