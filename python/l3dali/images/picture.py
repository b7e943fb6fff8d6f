"""A picture between formats: pixels and metadata."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from l3dali.metadata import TiffTag

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from l3dali.codec import Image

Palette = Literal["rgb", "index"]

PNG_XMP = b"XML:com.adobe.xmp\0"  # the keyword of the iTXt chunk that holds it
TIFF_XMP = 700
# The default resolution: one pixel in a unit without a name.
NO_RESOLUTION = {
    282: TiffTag("RATIONAL", struct.pack("<2I", 1, 1)),
    283: TiffTag("RATIONAL", struct.pack("<2I", 1, 1)),
    296: TiffTag("SHORT", struct.pack("<H", 1)),
}


@dataclass(frozen=True)
class Picture:
    """Pixels as stored, and metadata."""

    pixels: Image  # uint8, uint16, int8 or int16; (H, W) for one channel, else (H, W, C)
    icc: bytes | None = None  # an ICC profile
    exif: bytes | None = None  # an EXIF block, from its TIFF header on
    palette: bytes | None = None  # R, G, B, A of each entry; then the pixels are entry numbers
    expanded: bool = False  # the file has a palette; the pixels are its colours
    unscaled: bool = False  # the pixels are the numbers of a file of 1, 2 or 4 bits, not 0 ... 255
    xmp: bytes | None = None  # an XMP packet
    metadata: Mapping[str, Any] | None = None  # as in `l3dali.encode`; with tags of TIFF
    is_damaged: bool = False  # there are key-value pairs that could not be read, and are left out
    has_alpha: bool = True  # the last of two or four channels is alpha
    remarks: tuple[str, ...] = ()  # what is left out beside the pixels

    @property
    def has_numbers(self) -> bool:
        """Whether the pixels are numbers of entries or classes, which must not be blended."""
        return self.palette is not None or self.unscaled
