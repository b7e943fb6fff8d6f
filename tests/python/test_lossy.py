"""Lossy formats, told from the headers that their own encoders write."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from l3dali.images.formats import lossy_format

imagecodecs = pytest.importorskip("imagecodecs")
PIL_Image = pytest.importorskip("PIL.Image")


def image(channels: int) -> Any:
    """A smooth image of an odd shape."""
    shape = (67, 93) if channels == 1 else (67, 93, channels)
    return np.cumsum(np.random.default_rng(0).integers(0, 4, shape), axis=1, dtype=np.uint8)


def saved(format_name: str, channels: int = 3, **options: Any) -> bytes:
    """The image as Pillow writes it."""
    file = io.BytesIO()
    PIL_Image.fromarray(image(channels)).save(file, format_name, **options)
    return file.getvalue()


def test_jpeg() -> None:
    assert lossy_format(saved("JPEG")) == "JPEG"
    assert lossy_format(saved("MPO", save_all=True)) == "JPEG"


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("exif", [b"", b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0"])
def test_webp(channels: int, exif: bytes) -> None:
    options = {"exif": exif} if exif else {}
    assert lossy_format(saved("WEBP", channels, quality=80, **options)) == "lossy WebP"
    assert lossy_format(saved("WEBP", channels, lossless=True, **options)) is None


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("codec", ["jp2", "j2k"])
def test_jpeg_2000(channels: int, codec: str) -> None:
    pixels = image(channels)
    lossy = imagecodecs.jpeg2k_encode(pixels, level=30, codecformat=codec)
    lossless = imagecodecs.jpeg2k_encode(pixels, level=0, reversible=True, codecformat=codec)
    assert lossy_format(lossy) == "lossy JPEG 2000"
    assert lossy_format(lossless) is None


def test_jpeg_in_jpeg_xl() -> None:
    assert lossy_format(imagecodecs.jpegxl_encode_jpeg(saved("JPEG"))) == "JPEG in JPEG XL"


@pytest.mark.parametrize("format_name", ["PNG", "TIFF", "BMP", "PPM"])
def test_lossless_formats(format_name: str) -> None:
    assert lossy_format(saved(format_name)) is None


def test_cut_off_headers_are_no_reason_to_fail() -> None:
    files = [
        saved("WEBP", exif=b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0"),
        imagecodecs.jpeg2k_encode(image(3), level=30),
        imagecodecs.jpegxl_encode(image(3), distance=1.0, usecontainer=True),
        imagecodecs.jpegxl_encode_jpeg(saved("JPEG")),
    ]
    for data in files:
        for size in range(min(len(data), 400)):
            lossy_format(data[:size])
            lossy_format(data[:size] + b"\xff" * 40)
            lossy_format(data[:size] + bytes(40))
