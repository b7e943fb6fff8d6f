"""Gate: a file of another format that was cut gives its right pixels or an error, never others.

A broken download ends early, or holds zeros in place of the rest. Libraries give pixels for some
of these files: tifffile for LZW, Pillow for JPEG, OpenJPEG for JPEG 2000. Each file here is cut at
59 places, and read with and without zeros in place of the rest.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from l3dali.errors import ImageError
from l3dali.images.reading import read_picture

imagecodecs = pytest.importorskip("imagecodecs")
tifffile = pytest.importorskip("tifffile")
pytest.importorskip("netpbmfile")
PIL_Image = pytest.importorskip("PIL.Image")

PLACES = 59
# Noisy, so that zeros are fewer bits than a decoder needs for the rest: it then finds no early end.
_ROWS, _COLUMNS = np.mgrid[:32, :40]
_NOISE = np.random.default_rng(0).integers(0, 60, (32, 40, 3))
PIXELS: NDArray[Any] = (np.dstack([_COLUMNS, _ROWS, _COLUMNS + _ROWS]) + _NOISE).astype(np.uint8)


def _saved(image_format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    PIL_Image.fromarray(PIXELS).save(file, image_format, **options)
    return file.getvalue()


def _png_with_orientation_behind_its_pixels() -> bytes:
    data = _saved("PNG")
    exif = PIL_Image.Exif()
    exif[0x010F], exif[0x0112] = "maker" * 50, 6
    body = b"eXIf" + bytes(exif.tobytes()).removeprefix(b"Exif\0\0")
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return data[:-12] + chunk + data[-12:]


def _tiff(**options: Any) -> bytes:
    """Its directory stands before the pixels."""
    file = io.BytesIO()
    is_planar = options.get("planarconfig") == "separate"
    pixels = np.moveaxis(PIXELS, -1, 0) if is_planar else PIXELS
    tifffile.imwrite(file, pixels, photometric="rgb", metadata=None, **options)
    return file.getvalue()


def _tiff_with_late(code: int, **options: Any) -> bytes:
    """The values of this tag stand at the end of the file, as libtiff writes some."""
    data = _tiff(compression="lzw", **options)
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        tag = file.pages[0].tags[code]
    values = data[tag.valueoffset : tag.valueoffset + tag.valuebytecount]
    data = data.ljust(len(data) + 200, b"\1")
    return data[: tag.offset + 8] + struct.pack("<I", len(data)) + data[tag.offset + 12 :] + values


def _tiff_with_copy() -> bytes:
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        for subfiletype, pixels in enumerate((PIXELS, PIXELS[::2, ::2])):
            writer.write(
                pixels,
                photometric="rgb",
                compression="lzw",
                subfiletype=subfiletype,
                metadata=None,
            )
    return file.getvalue()


_BEST = {"quality": 100, "subsampling": 0}
_PAGES = {"save_all": True, "append_images": [PIL_Image.fromarray(PIXELS[::-1])] * 2}
FILES = {
    "jpeg": _saved("JPEG", **_BEST),
    "jpeg progressive": _saved("JPEG", progressive=True, **_BEST),
    "jpeg restarts": _saved("JPEG", restart_marker_blocks=2, **_BEST),
    "png": _saved("PNG"),
    "png orientation": _png_with_orientation_behind_its_pixels(),
    "webp": _saved("WEBP", lossless=True),
    "webp icc": _saved("WEBP", lossless=True, icc_profile=b"profile"),
    "bmp": _saved("BMP"),
    "ppm": _saved("PPM"),
    "ppm digits": b"P3 40 32 255\n" + " ".join(map(str, PIXELS.flat)).encode(),
    "jp2": _saved("JPEG2000"),
    "j2k": _saved("JPEG2000", no_jp2=True),
    "jp2 tiles": _saved("JPEG2000", tile_size=(16, 16)),
    "jxl": bytes(imagecodecs.jpegxl_encode(PIXELS, lossless=True)),
    "jxl boxes": bytes(imagecodecs.jpegxl_encode(PIXELS, lossless=True, usecontainer=True)),
    "jxl lossy": bytes(imagecodecs.jpegxl_encode(PIXELS, level=90)),
    "tiff": _tiff(rowsperstrip=4),
    "tiff tiled": _tiff(tile=(16, 16)),
    "tiff lzw": _tiff(rowsperstrip=4, compression="lzw"),
    "tiff lzw tiled": _tiff(tile=(16, 16), compression="lzw"),
    "tiff deflate": _tiff(rowsperstrip=4, compression="zlib"),
    "tiff deflate tiled": _tiff(tile=(16, 16), compression="zlib"),
    "tiff packbits": _tiff(rowsperstrip=4, compression="packbits"),
    "tiff jpeg": _tiff(rowsperstrip=32, compression="jpeg", compressionargs={"level": 100}),
    "tiff jpeg tiled": _tiff(tile=(16, 16), compression="jpeg", compressionargs={"level": 100}),
    "tiff last directory": _saved("TIFF", compression="tiff_lzw"),
    "tiff late bits": _tiff_with_late(258, rowsperstrip=4),
    "tiff late sizes": _tiff_with_late(279, rowsperstrip=1, planarconfig="separate"),
    "tiff copy": _tiff_with_copy(),
    "tiff pages": _saved("TIFF", compression="tiff_lzw", **_PAGES),
    "tiff pages plain": _saved("TIFF", **_PAGES),
}

# Where zeros are samples like any other, files cannot be told from whole ones: those without
# compression, the last bytes of PackBits, and WebP. By name, how many of the 59 places are
# refused, all before those that give pixels.
REFUSED_WITH_ZEROS = {
    **{"bmp": 0, "ppm": 0, "webp": 1, "webp icc": 2},
    **{"tiff": 3, "tiff tiled": 3, "tiff packbits": 58},
}


def _pixels(data: bytes) -> NDArray[Any] | None:
    """What is read, turned by EXIF; None where the file is refused."""
    try:
        return read_picture(data, orient=True).pixels
    except ImageError:
        return None


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("name", FILES)
def test_a_cut_file_gives_its_pixels_or_an_error(name: str) -> None:
    data = FILES[name]
    right = _pixels(data)
    assert (right is None) is name.startswith("tiff pages")
    cannot_tell = range(REFUSED_WITH_ZEROS.get(name, PLACES), PLACES)
    for place in range(PLACES):
        size = len(data) * (place + 1) // (PLACES + 1)
        for rest in (b"", bytes(len(data) - size)):
            pixels = _pixels(data[:size] + rest)
            is_right = pixels is None or (right is not None and np.array_equal(pixels, right))
            assert is_right or (rest and place in cannot_tell), (place, size, bool(rest))
