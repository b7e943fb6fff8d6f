"""A picture between formats: pixels, and what goes with them."""

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
# Resolution that says nothing: one pixel in a unit without a name.
NO_RESOLUTION = {
    282: TiffTag("RATIONAL", struct.pack("<2I", 1, 1)),
    283: TiffTag("RATIONAL", struct.pack("<2I", 1, 1)),
    296: TiffTag("SHORT", struct.pack("<H", 1)),
}


@dataclass(frozen=True)
class Picture:
    """Pixels as stored, and what goes with them.

    Attributes:
        pixels: uint8, uint16, int8 or int16; (H, W) for one channel, else (H, W, C).
        icc: an ICC profile.
        exif: an EXIF block, from its TIFF header on.
        palette: R, G, B, A of each entry; then the pixels are entry numbers.
        expanded: the file holds numbers of palette entries; the pixels are their colours.
        unscaled: the pixels are the numbers of a file of 1, 2 or 4 bits, not 0 ... 255.
        xmp: an XMP packet.
        metadata: key-value pairs, as `l3dali.encode` takes them; tags of a TIFF among them.
        is_damaged: there are key-value pairs that could not be read, and are left out.
        has_alpha: the last of two or four channels is alpha.
        remarks: what is left out beside the pixels.
    """

    pixels: Image
    icc: bytes | None = None
    exif: bytes | None = None
    palette: bytes | None = None
    expanded: bool = False
    unscaled: bool = False
    xmp: bytes | None = None
    metadata: Mapping[str, Any] | None = None
    is_damaged: bool = False
    has_alpha: bool = True
    remarks: tuple[str, ...] = ()

    @property
    def has_numbers(self) -> bool:
        """Whether the pixels are numbers, of entries or classes, that nothing may blend."""
        return self.palette is not None or self.unscaled
