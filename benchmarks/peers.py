"""The codecs that are measured, and the images they are measured on."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt
import tifffile
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


LACKING = (AttributeError, ImportError)  # of packages, where others are older or missing


@dataclass(frozen=True)
class Codec:
    """A lossless codec, one thread. `encode` and `decode` may raise on kinds they do not have."""

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
TILE = 256  # of TIFF, at most


def _png_by_kornia(data: bytes) -> Image:
    """The fastest decoder of PNG that a package ships, that of the Rust crate `png`.

    libspng is as fast as libpng, within 5 %, and reads fewer types.
    """
    from kornia_rs import io as kornia

    width, height, bits, colour = struct.unpack_from(">IIBB", data, 16)
    decode = {8: kornia.decode_image_png_u8, 16: kornia.decode_image_png_u16}[bits]
    image: Image = decode(data, (height, width), {0: "mono", 2: "rgb", 6: "rgba"}[colour])
    return image


def _tiff(compression: str, level: int | None = None) -> Codec:
    """Tiles, the predictor that TIFF has, and libtiff, which decodes them fastest."""

    def encode(image: Image) -> bytes:
        buffer = io.BytesIO()
        tifffile.imwrite(
            buffer,
            image,
            tile=[min(TILE, -(-side // 16) * 16) for side in image.shape[:2]],
            compression=compression,
            compressionargs=None if level is None else {"level": level},
            predictor=2,
            photometric="rgb" if image.shape[2:] in ((3,), (4,)) else "minisblack",
            metadata=None,
        )
        return buffer.getvalue()

    return Codec(f"TIFF {compression}", encode, imagecodecs.tiff_decode)


TIFF_ZSTD, TIFF_DEFLATE, TIFF_LZW = _tiff("zstd", 9), _tiff("deflate", 6), _tiff("lzw")


def _blosc2(compressor: str, filters: tuple[str, ...], level: int = 5) -> Codec:
    """The smallest of several filters. The type of the samples goes before their bytes."""

    def encode(image: Image) -> bytes:
        options = {"compressor": compressor, "level": level, "numthreads": 1}
        options |= {"typesize": image.itemsize}
        tried = (imagecodecs.blosc2_encode(image, shuffle=each, **options) for each in filters)
        kind: bytes = image.dtype.str.encode()
        return kind + bytes(min(tried, key=len))

    def decode(data: bytes) -> Image:
        return np.frombuffer(
            imagecodecs.blosc2_decode(memoryview(data)[3:], numthreads=1), data[:3].decode()
        )

    return Codec(f"blosc2 {compressor}", encode, decode)


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
    TIFF_ZSTD,
    TIFF_DEFLATE,
    _blosc2("zstd", ("bitshuffle",)),
    _blosc2("lz4hc", ("noshuffle", "shuffle")),  # as nnU-Net stores its data sets
    _jpegxl(1),
    _jpegxl(3),
    _jpegxl(7),
)
CODECS = (*L3, *PEERS)
DECODERS = (Codec("PNG -6, kornia-rs", PNG.encode, _png_by_kornia),)  # of a format that is there


def l3_of_jpeg(data: bytes) -> bytes:
    """L3's own coding of a JPEG file; empty if L3 has none, or none for this file."""
    try:
        coding: Any = "jpeg"
        return l3dali.transcode(data, coding=coding)
    except ValueError:
        return b""


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
    except (*LACKING, ValueError, RuntimeError, TypeError, NotImplementedError, KeyError):
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
