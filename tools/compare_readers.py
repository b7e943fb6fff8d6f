"""Reads image files with L3 and with other libraries, and lists the files where L3 stands alone.

    python tools/compare_readers.py FOLDER... [--out PAGE.md]

A file is listed if L3 refuses it while two other libraries read the same pixels, or if L3 reads
pixels that no other library reads. The others are Pillow, OpenCV, rasterio (GDAL) and pyvips
(libvips), those that are installed. Each file is read in a process of its own.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import resource
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from l3dali.images.reading import read_picture

Pixels = npt.NDArray[Any]

SUFFIXES = (
    *(".png", ".apng", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp", ".dib", ".rle", ".pbm", ".pgm"),
    *(".ppm", ".pnm", ".pam", ".jp2", ".j2k", ".jpc", ".jpx", ".jxl", ".tif", ".tiff", ".btf"),
)
SECONDS, MEMORY_BYTES = 60, 4 << 30  # of a file
LOSSY_DIFFERENCE = 2.0  # mean, of 255: decoders of lossy formats round differently


def with_l3(path: Path) -> Pixels:
    """Samples as L3 stores them, palettes as colors."""
    return read_picture(path.read_bytes()).pixels


def with_pillow(path: Path) -> Pixels:
    """Samples of the first frame, palettes as colors."""
    from PIL import Image

    with Image.open(path) as image:
        if image.mode in ("P", "PA"):
            has_alpha = image.mode == "PA" or "transparency" in image.info
            return np.asarray(image.convert("RGBA" if has_alpha else "RGB"))
        return np.asarray(image.convert("L") if image.mode == "1" else image)


def with_opencv(path: Path) -> Pixels:
    """Samples in the order R, G, B, A."""
    import cv2

    pixels = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    if pixels is None:
        raise ValueError("not read")
    if pixels.ndim == 3 and pixels.shape[2] in (3, 4):
        pixels = pixels[:, :, [2, 1, 0, 3][: pixels.shape[2]]]
    return np.asarray(pixels)


def with_rasterio(path: Path) -> Pixels:
    """Samples of all bands, palettes as colors."""
    import rasterio

    with rasterio.open(path) as file:
        bands = file.read()
        if file.colorinterp[0] is rasterio.enums.ColorInterp.palette:
            colors = np.zeros((256, 4), np.uint8)
            for entry, color in file.colormap(1).items():
                colors[entry % 256] = color
            return np.asarray(colors[bands[0]])
        return np.asarray(np.moveaxis(bands, 0, -1))


def with_pyvips(path: Path) -> Pixels:
    """Samples as libvips reads them."""
    import pyvips

    return np.asarray(pyvips.Image.new_from_file(str(path)).numpy())


READERS: dict[str, tuple[str, Callable[[Path], Pixels]]] = {
    "L3": ("l3dali", with_l3),
    "Pillow": ("PIL", with_pillow),
    "OpenCV": ("cv2", with_opencv),
    "rasterio": ("rasterio", with_rasterio),
    "pyvips": ("pyvips", with_pyvips),
}


def usual_form(pixels: Pixels) -> Pixels:
    """The same picture as float (H, W, 1 or 3 or more): gray once, without opaque alpha."""
    pixels = np.atleast_3d(pixels)
    full = np.iinfo(pixels.dtype).max if pixels.dtype.kind in "iu" else 1
    if pixels.shape[2] in (2, 4) and (pixels[:, :, -1] == full).all():
        pixels = pixels[:, :, :-1]
    if pixels.shape[2] == 3 and (pixels == pixels[:, :, :1]).all():
        pixels = pixels[:, :, :1]
    if pixels.dtype == np.bool_:
        pixels = pixels * np.uint8(255)
    return pixels.astype(np.float32)


def is_same(a: Pixels, b: Pixels) -> bool:
    """Whether two readers read the same picture, but for the rounding of lossy decoders."""
    if a.shape != b.shape:
        return False
    largest = max(float(np.abs(a).max(initial=0)), 1)
    return float(np.abs(a - b).mean()) <= LOSSY_DIFFERENCE * max(1.0, largest / 255)


def read_all(path: Path, names: Sequence[str], answer: Connection) -> None:
    """Reads a file with each reader, and sends what is worth listing: kind and details."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # warnings of libraries
    warnings.simplefilter("ignore")
    pixels: dict[str, Pixels] = {}
    errors: dict[str, str] = {}
    for name in names:
        try:
            pixels[name] = usual_form(READERS[name][1](path))
        except BaseException as error:  # libraries raise what they like
            errors[name] = f"{error}" or type(error).__name__
    pairs = itertools.combinations([name for name in pixels if name != "L3"], 2)
    agreed = [pair for pair in pairs if is_same(pixels[pair[0]], pixels[pair[1]])]
    others = [name for name in pixels if name != "L3"]
    if "L3" in errors:
        kind = "refused alone" if agreed else "refused"
        answer.send((kind, f"{errors['L3']} ({', '.join(others) or 'none'} read it)"))
    elif others and not any(is_same(pixels["L3"], pixels[name]) for name in others):
        shapes = [f"{name} {'x'.join(map(str, pixels[name].shape))}" for name in ("L3", *others)]
        answer.send(("differs" if agreed else "all differ", ", ".join(shapes)))
    else:
        answer.send(("read", ""))


def compare(path: Path, names: Sequence[str]) -> tuple[str, str]:
    """Compares the readers on a file, in a process of its own."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=read_all, args=(path, names, sender), daemon=True)
    child.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(SECONDS) else ("no answer", f"{SECONDS} s")
    except EOFError:
        child.join()
        return "no answer", f"a reader ended the process ({child.exitcode})"
    finally:
        child.kill()
        child.join()


def page(found: dict[Path, tuple[str, str]], names: Sequence[str]) -> Iterator[str]:
    """The results as Markdown."""
    counts = Counter(kind for kind, _ in found.values())
    yield f"{len(found)} files, read with {', '.join(names)}: " + ", ".join(
        f"{count} {kind}" for kind, count in counts.most_common()
    )
    for kind in ("refused alone", "differs", "no answer"):
        rows = {path: what for path, (one, what) in found.items() if one == kind}
        if rows:
            yield f"\n## {kind.capitalize()}\n\n| file | details |\n|---|---|"
            for path, what in sorted(rows.items()):
                details = " ".join(what.replace("|", "/").split())
                yield f"| {path} | {details} |"


def main() -> int:
    """Compares all files below the folders."""
    assert __doc__
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path, help="write the page there")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    names = []
    for name, (module, _) in READERS.items():
        try:
            __import__(module)  # before the processes start: each would import it anew
            names.append(name)
        except ImportError:
            print(f"{name} is not installed", file=sys.stderr)
    paths = [
        path
        for folder in options.folders
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in SUFFIXES and path.is_file()
    ]
    with ThreadPoolExecutor(options.jobs) as pool:
        found = dict(zip(paths, pool.map(lambda path: compare(path, names), paths), strict=True))
    text = "\n".join(page(found, names)) + "\n"
    if options.out:
        options.out.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
