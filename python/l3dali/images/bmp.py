"""BMP, read by Pillow, and by masks; written by imagecodecs."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING

import numpy as np

from l3dali.errors import ImageError
from l3dali.images.picture import Header, ImageFormat, Picture, ReadOptions, Writer

if TYPE_CHECKING:
    from collections.abc import Sequence


def _read_header(data: bytes) -> Header:
    (header_bytes,) = struct.unpack_from("<I", data, 14)
    layout = "<2H2xH" if header_bytes == 12 else "<2i2xH"  # OS/2's, and all others
    width, height, bits = struct.unpack_from(layout, data, 18)
    return Header.of("bmp", width, abs(height), 3, 1 if bits in (1, 4, 8, 24) else 2, peak=4)


def _read(data: bytes, options: ReadOptions) -> Picture:
    import PIL
    from PIL import BmpImagePlugin

    at, header_bytes = struct.unpack_from("<2I", data, 10)
    bits, compression = struct.unpack_from("<HI", data, 28) if header_bytes >= 40 else (0, 0)
    if compression in (1, 2) and (int(PIL.__version__.split(".")[0]) < 13 or at % 2):
        # Older versions, and all for pixels at an odd offset, decode other pixels.
        raise ImageError("a BMP in RLE needs Pillow 13, and pixels at an even offset")
    if compression == 3 and bits in (16, 32):
        masks = struct.unpack_from("<4I", data, 54)[: 4 if header_bytes >= 56 else 3]
        if any(masks) and tuple(filter(None, masks)) not in _USUAL_MASKS:
            return _read_by_masks(data, bits, masks)
    with BmpImagePlugin.BmpImageFile(io.BytesIO(data)) as image:
        if image.mode not in ("1", "L") or bits in (0, 1 if image.mode == "1" else 8):
            return Picture.by_pillow(image, options)
    # Pillow takes this palette for gray.
    palette_at = 14 + header_bytes
    blue, green, red = data[palette_at : palette_at + 3]
    data = data[:palette_at] + b"\1\2\3" + data[palette_at + 3 :]
    with BmpImagePlugin.BmpImageFile(io.BytesIO(data)) as image:
        image.load()
        image.putpalette([red, green, blue, *(image.getpalette() or [])[3:]])
        return Picture.by_pillow(image, options)


_USUAL_MASKS = ((0xF800, 0x07E0, 0x001F), (0x7C00, 0x03E0, 0x001F))  # of 16 bits, for Pillow


def _read_by_masks(data: bytes, bits: int, masks: Sequence[int]) -> Picture:
    (at,) = struct.unpack_from("<I", data, 10)
    width, height = struct.unpack_from("<2i", data, 18)
    columns = -(-width * bits // 32) * 32 // bits  # Rows are padded to 32 bits.
    pixels = np.frombuffer(data, f"<u{bits // 8}", columns * abs(height), at)
    pixels = pixels.reshape(abs(height), columns)[:: -1 if height > 0 else 1, :width]
    if not all(masks[:3]):
        raise ImageError("a BMP needs masks of red, green and blue")
    lowest = [mask & -mask for mask in masks if mask]
    bands = [(pixels & mask) // low for mask, low in zip(masks, lowest, strict=False)]
    tops = [mask // low for mask, low in zip(masks, lowest, strict=False)]
    if max(tops) <= 255:
        scaled = [np.rint(band * (255 / top)) for band, top in zip(bands, tops, strict=True)]
        return Picture(np.stack(scaled, axis=-1).astype(np.uint8))
    if len(set(tops)) > 1:
        raise ImageError("a BMP with masks of different sizes above 8 bits is not supported")
    return Picture(np.stack(bands, axis=-1).astype(np.uint16))


def _write(picture: Picture) -> bytes:
    import imagecodecs

    return bytes(imagecodecs.bmp_encode(picture.pixels))


FORMAT = ImageFormat(_read_header, _read, {".bmp": Writer(_write, (1, 3), ("uint8",))})
