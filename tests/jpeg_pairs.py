"""JPEG files of all kinds that L3 keeps, beside their L3 files and their pixels."""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass
from typing import Any

import imagecodecs
import numpy as np
import PIL.Image
import skimage.data
from numpy.typing import NDArray

import l3dali

SAMPLINGS = ("444", "422", "420", "440", "gray")
SIZES = ((64, 80), (65, 131), (129, 67), (33, 311), (23, 9))  # height and width


@dataclass(frozen=True)
class JpegPair:
    """A JPEG file twice."""

    name: str
    jpeg: bytes
    l3: bytes

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """As Pillow decodes them: (H, W) or (H, W, 3), not turned."""
        return np.asarray(PIL.Image.open(io.BytesIO(self.jpeg)))

    @property
    def luma(self) -> NDArray[np.uint8]:
        """The luma plane, (H, W), by libjpeg."""
        image = PIL.Image.open(io.BytesIO(self.jpeg))
        image.draft("L", None)
        return np.asarray(image)


def make_jpeg(image: NDArray[np.uint8], sampling: str = "420", orientation: int = 0) -> bytes:
    """Encodes RGB; an orientation of 0 is none."""
    options: dict[str, Any] = {} if sampling == "gray" else {"subsampling": sampling}
    samples = image[..., 1].copy() if sampling == "gray" else image
    data = bytes(imagecodecs.jpeg8_encode(samples, level=90, **options))
    if orientation == 0:
        return data
    exif = PIL.Image.Exif()
    exif[0x112] = orientation
    block = exif.tobytes()
    return data[:2] + b"\xff\xe1" + (len(block) + 2).to_bytes(2, "big") + block + data[2:]


def make_pair(name: str, jpeg: bytes, tile: tuple[int, int] | None = (32, 64)) -> JpegPair:
    """By default of many small tiles."""
    l3 = l3dali.transcode(jpeg, coding="jpeg", tile=tile)
    info = l3dali.info(l3)
    assert info.codings is not None
    assert info.codings["jpeg"] == info.tile_count
    return JpegPair(name, jpeg, l3)


@functools.cache
def pairs() -> tuple[JpegPair, ...]:
    """Files of all samplings, of odd sizes, some with an orientation; and a photograph."""
    rng = np.random.default_rng(86)
    found = []
    for i, (height, width) in enumerate(SIZES):
        for k, sampling in enumerate(SAMPLINGS):
            y, x = np.mgrid[:height, :width]
            wave = np.sin(x[..., None] / 7 + rng.uniform(0, 6, 3)) + np.cos(y[..., None] / 5)
            noisy = 128 + 50 * wave + rng.normal(0, 12, (height, width, 3))
            orientation = 0 if (i + k) % 3 == 0 else 1 + (5 * i + k) % 8
            jpeg = make_jpeg(noisy.clip(0, 255).astype(np.uint8), sampling, orientation)
            found.append(make_pair(f"{sampling} {height}x{width} {orientation}", jpeg))
    photograph = make_jpeg(skimage.data.astronaut()[:, :500])
    return *found, make_pair("astronaut", photograph, tile=None)
