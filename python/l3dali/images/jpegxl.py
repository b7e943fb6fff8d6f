"""JPEG XL, by libjxl in imagecodecs."""

from __future__ import annotations

import math

from l3dali.errors import ENDS_TOO_EARLY, ImageError
from l3dali.images.jpeg2000 import boxes
from l3dali.images.picture import Header, ImageFormat, Picture, ReadOptions, Writer
from l3dali.signatures import JPEGXL_CODESTREAM


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
            return height * _RATIOS[ratio][0] // _RATIOS[ratio][1], height
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


_RATIOS = {1: (1, 1), 2: (12, 10), 3: (4, 3), 4: (3, 2), 5: (16, 9), 6: (5, 4), 7: (2, 1)}
_HEADER_BYTES = 4096  # more than the fields take
_PEAK = 13


def _parse(data: bytes) -> tuple[Header, float, bool]:
    """The header, the bits of a sample, and whether colours are as lossy coding has them.

    Raises:
        ImageError: the header is cut, or the image is not supported.
    """
    if not data.startswith(JPEGXL_CODESTREAM):
        parts = ((at + 4 * (kind == b"jxlp"), end, kind) for kind, at, end in boxes(data))
        parts = (part for part in parts if part[2] in (b"jxlc", b"jxlp"))
        data = b"".join(data[at : min(end, at + _HEADER_BYTES)] for at, end, _ in parts)
    bits = _Bits(data[2:_HEADER_BYTES])
    width, height = bits.size()
    if bits.take(1):  # All fields have their defaults.
        return Header.of("jpegxl", width, height, 3, 1, peak=_PEAK), 8, True
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
    size = width, height, 3 + extra_channels, 2 if depth > 8 else 1  # Gray is a later field.
    return Header.of("jpegxl", *size, peak=_PEAK), depth, bool(bits.take(1))


def _read(data: bytes, options: ReadOptions) -> Picture:
    import imagecodecs

    return Picture(imagecodecs.jpegxl_decode(data)).scaled(_parse(data)[1], options)


def _lossy_name(data: bytes) -> str | None:
    is_boxed = data.startswith(b"\0\0\0\x0c")
    if is_boxed and any(kind == b"jbrd" for kind, _, _ in boxes(data)):  # to restore the JPEG
        return "JPEG in JPEG XL"
    return "lossy JPEG XL" if _parse(data)[2] else None


def _write(picture: Picture) -> bytes:
    import imagecodecs

    return bytes(imagecodecs.jpegxl_encode(picture.pixels, lossless=True))


_WRITERS = {".jxl": Writer(_write, longest=2**23)}  # libjxl reads no 2^24
FORMAT = ImageFormat(lambda data: _parse(data)[0], _read, _WRITERS, _lossy_name)
