"""The codecs that are measured, and the images they are measured on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt
from benchmarks.gpu.images import cut, noisy_gradient
from benchmarks.report import processor

import l3dali

Image = npt.NDArray[Any]

# Folders of test images, in the order of the tables. "folder@WxH" are pieces of that
# size, cut out of the folder's images on a grid.
SETS = (
    "photo/kodak",
    "photo/gb82",
    "photo/large",
    "screen",
    "gray16/landsat8",
    "gray16/dicom",
    "gray16/cellprofiler",
    "gray16/stardist",
    "rgb16",
    "mask",
    "rgba8/dsbowl",
    "rgba8/openclipart",
    "photo/large@500x375",
    "photo/large@32x32",
    "gray16/landsat8@32x32",
)
# Pieces that are cut out of one image, at most.
MAX_PIECES = 24
WIDTH, HEIGHT, CROP = 2048, 1024, 256  # of images whose windows are decoded, and of the windows


@dataclass(frozen=True)
class Codec:
    """A lossless codec, one thread. `encode` may raise on kinds it cannot hold."""

    name: str
    encode: Callable[[Image], bytes]
    decode: Callable[[bytes], Image]


def _jpegxl(effort: int) -> Codec:
    return Codec(
        f"JXL e{effort}",
        lambda image: imagecodecs.jpegxl_encode(image, lossless=True, effort=effort, numthreads=1),
        lambda data: imagecodecs.jpegxl_decode(data, numthreads=1),
    )


def l3_encoder(mode: l3dali.Coding, threads: int = 1) -> Callable[[Image], bytes]:
    """Encodes in a mode."""
    return lambda image: l3dali.encode(image, coding=mode, threads=threads)


# What compresses: raw samples, the mode "stored", compare with no codec.
L3_CODINGS: tuple[l3dali.Coding, ...] = ("packed", "rans")
L3 = tuple(
    Codec(f"L3 {mode}", l3_encoder(mode), partial(l3dali.decode, threads=1)) for mode in L3_CODINGS
)
PNG = Codec(
    "PNG -6",
    lambda image: imagecodecs.png_encode(image, level=6),
    imagecodecs.png_decode,
)
HTJ2K = Codec(
    "HTJ2K",
    lambda image: imagecodecs.htj2k_encode(image, reversible=True),
    lambda data: imagecodecs.htj2k_decode(data),  # Python 3.10's imagecodecs lacks it
)
PEERS = (
    PNG,
    Codec(
        "WebP",
        lambda image: imagecodecs.webp_encode(image, lossless=True),
        imagecodecs.webp_decode,
    ),
    Codec("QOI", imagecodecs.qoi_encode, imagecodecs.qoi_decode),
    Codec("JPEG-LS", imagecodecs.jpegls_encode, imagecodecs.jpegls_decode),
    HTJ2K,
    _jpegxl(1),
    _jpegxl(3),
    _jpegxl(7),
)
CODECS = (*L3, *PEERS)


def read_image(path: Path) -> Image:
    """Reads a PNG as stored: (H, W) or (H, W, C), uint8 or uint16."""
    image: Image = imagecodecs.png_decode(path.read_bytes())
    return image


def images(data: Path, name: str) -> Iterator[tuple[Path, Image]]:
    """The images of one set, in name order."""
    folder, _, size = name.partition("@")
    for path in sorted((data / folder).glob("*.png")):
        image = read_image(path)
        if not size:
            yield path, image
            continue
        width, height = map(int, size.split("x"))
        for piece in _pieces(image, width, height):
            yield path, piece


def _pieces(image: Image, width: int, height: int) -> Iterator[Image]:
    """Up to MAX_PIECES pieces, spread evenly over the whole ones that the image holds."""
    columns, rows = image.shape[1] // width, image.shape[0] // height
    count = min(MAX_PIECES, columns * rows)
    for i in range(count):
        row, column = divmod(i * columns * rows // count, columns)
        top, left = row * height, column * width
        yield np.ascontiguousarray(image[top : top + height, left : left + width])


def encode_exactly(codec: Codec, image: Image) -> bytes | None:
    """The encoded image, or None if the codec is missing or cannot hold it losslessly."""
    try:
        encoded = bytes(codec.encode(image))
        decoded = np.asarray(codec.decode(encoded))
    except (AttributeError, ValueError, RuntimeError, TypeError, NotImplementedError):
        return None
    same = decoded.size == image.size and decoded.dtype == image.dtype
    return encoded if same and np.array_equal(decoded.reshape(image.shape), image) else None


def large_images(data: Path | None) -> list[Image]:
    """Images of WIDTH x HEIGHT: photographs, cut and mirrored; without data a noisy gradient."""
    if data is None:
        return [noisy_gradient(HEIGHT, WIDTH)]
    return [cut(image, HEIGHT, WIDTH) for _, image in images(data, "photo/large")]


def machine() -> str:
    """Processor, date: the head of every results file."""
    return f"{processor()}, {date.today().isoformat()}, imagecodecs {imagecodecs.__version__}"
