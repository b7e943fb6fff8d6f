"""The images of the device-resident benchmarks: sizes and kinds of the targets, as .l3 files."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import l3dali

Image = npt.NDArray[Any]


def noisy_gradient(height: int, width: int) -> Image:
    """RGB8, about as hard to code as a photograph."""
    rows, columns = np.mgrid[:height, :width] >> 4
    noise = np.random.default_rng(1).integers(0, 8, (height, width, 3))
    return (np.stack([rows, columns, rows + columns], axis=-1) + noise).astype(np.uint8)


def cut(image: Image, height: int, width: int) -> Image:
    """The upper left of the image; where it is too small its mirror image follows."""
    more = [(0, max(0, height - image.shape[0])), (0, max(0, width - image.shape[1]))]
    more += [(0, 0)] * (image.ndim - 2)
    return np.ascontiguousarray(np.pad(image, more, mode="symmetric")[:height, :width])


def first_image(folder: Path) -> Image | None:
    """The first image of a set, by name; None if it, or imagecodecs to read it, is missing."""
    path = next(iter(sorted(folder.glob("*.png"))), None)
    if path is None or importlib.util.find_spec("imagecodecs") is None:
        return None
    import imagecodecs

    image: Image = imagecodecs.png_decode(path.read_bytes())
    return image


def benchmark_images(data: Path) -> dict[str, Image]:
    """Images by name, from the sets that are there; without photographs a noisy gradient."""
    photo = first_image(data / "photo/large")
    name = "gradient" if photo is None else "photo"
    photo = noisy_gradient(1024, 2048) if photo is None else photo
    chosen = {f"{name}_2048x1024": cut(photo, 1024, 2048), f"{name}_500x375": cut(photo, 375, 500)}
    if (scene := first_image(data / "gray16/landsat8")) is not None:
        chosen["gray16_1024x1024"] = cut(scene, 1024, 1024)
    if (mask := first_image(data / "mask")) is not None:
        chosen["mask_512x512"] = cut(mask, 512, 512)
    return chosen


def write_l3(data: Path, out: Path) -> list[Path]:
    """Writes each image in each mode as <image>.<mode>.l3; returns the paths."""
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, image in benchmark_images(data).items():
        for mode in l3dali.MODES:
            paths.append(out / f"{name}.{mode}.l3")
            paths[-1].write_bytes(l3dali.encode(image, mode=mode))
    return paths
