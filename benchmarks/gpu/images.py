"""The images of the device-resident benchmarks: sizes and kinds of the targets, as .l3 files.

    python -m benchmarks.gpu.images --data ../shared/data --out build/gpu_data

copies the images that the GPU benchmarks take, so that a folder of a few MB can travel to a host
that has none.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import l3dali

Image = npt.NDArray[Any]


# Of these sets the benchmarks take the first images: of PIPELINE_SET all, of others one.
PIPELINE_SET = "photo/large"
SETS = (PIPELINE_SET, "gray16/landsat8", "mask")


def missing_sets(data: Path) -> list[str]:
    """A line for each set that is not there, and what it means."""
    lines = []
    for name in SETS:
        if first_image(data / name) is None:
            instead = "a noisy gradient is timed instead" if name == PIPELINE_SET else "not timed"
            lines.append(f"{data / name} has no image that can be read: {instead}")
    return lines


def copy_sets(data: Path, out: Path) -> list[Path]:
    """Copies what the GPU benchmarks take of the sets; returns the copies."""
    copies = []
    for name in SETS:
        paths = sorted((data / name).glob("*.png"))
        for path in paths if name == PIPELINE_SET else paths[:1]:
            copies.append(out / name / path.name)
            copies[-1].parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copies[-1])
    return copies


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
    photo = first_image(data / PIPELINE_SET)
    name = "gradient" if photo is None else "photo"
    photo = noisy_gradient(1024, 2048) if photo is None else photo
    chosen = {f"{name}_2048x1024": cut(photo, 1024, 2048), f"{name}_500x375": cut(photo, 375, 500)}
    if (scene := first_image(data / "gray16/landsat8")) is not None:
        chosen["gray16_1024x1024"] = cut(scene, 1024, 1024)
    if (mask := first_image(data / "mask")) is not None:
        chosen["mask_512x512"] = cut(mask, 512, 512)
    return chosen


def write_l3(data: Path, out: Path) -> list[Path]:
    """Writes each image in each mode as <image>.<mode>.l3; returns the paths.

    RGB8 images are also written as JPEG of quality 90, 4:2:0, in L3's coding of JPEG files.
    """
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, image in benchmark_images(data).items():
        for mode in ("packed", "rans"):
            paths.append(out / f"{name}.{mode}.l3")
            paths[-1].write_bytes(l3dali.encode(image, coding=mode))
        if image.shape[2:] == (3,) and importlib.util.find_spec("imagecodecs") is not None:
            import imagecodecs

            jpeg = imagecodecs.jpeg8_encode(image, level=90, subsampling="420")
            paths.append(out / f"{name}.jpeg.l3")
            paths[-1].write_bytes(l3dali.transcode(jpeg, coding="jpeg"))
    return paths


def main() -> None:
    """Copies the sets of the command line."""
    parser = argparse.ArgumentParser(description="copies the images of the GPU benchmarks")
    parser.add_argument("--data", type=Path, required=True, help="folder with the sets")
    parser.add_argument("--out", type=Path, required=True, help="folder that shall have them")
    arguments = parser.parse_args()
    copies = copy_sets(arguments.data, arguments.out)
    size = sum(path.stat().st_size for path in copies)
    print(f"{len(copies)} images, {size / 1e6:.1f} MB in {arguments.out}")


if __name__ == "__main__":
    main()
