"""Bytes of a fixed set of images, so that each change of density is listed.

    python tests/encoder/size_ledger.py [--check]

Writes the CSV file beside it. A commit that changes that file says by how much and why: its last
row is the sum. The images are the PNG files that scikit-image ships and some that are made here, by
integers and raw bits of PCG64, which NumPy never changes.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt
import skimage

import l3dali
from l3dali import codec

Image = npt.NDArray[Any]

LEDGER = Path(__file__).with_suffix(".csv")
# Columns; efforts as users call them: those between give the bytes of a neighbour.
EFFORTS = (1, 3, 5, 6, 7, 8, 9)
SETTINGS: dict[str, tuple[codec.Coding, int]] = {"packed": ("packed", 5)}
SETTINGS |= {f"rans {effort}": ("rans", effort) for effort in EFFORTS}


def _bits(seed: int, shape: tuple[int, ...], count: int) -> Image:
    """Random numbers of `count` bits, uint32."""
    raw: Image = np.random.PCG64(seed).random_raw(int(np.prod(shape)))
    numbers: Image = (raw >> np.uint64(64 - count)).astype(np.uint32)
    return numbers.reshape(shape)


def _made_images() -> Iterator[tuple[str, Image, bool]]:
    """Names, samples, and whether they are labels: kinds that scikit-image lacks."""
    y, x = np.mgrid[:300, :400].astype(np.int64)
    hills = (x * x // 7 + y * y // 5 + x * y // 11) % 60000
    noise = _bits(1, (300, 400), 5)
    yield "made: gray16", (hills + noise).astype(np.uint16), False
    yield "made: gray16, 12 bits used", ((hills + noise) // 16).astype(np.uint16), False
    yield "made: gray16, low bits unused", ((hills + noise) // 64 * 64).astype(np.uint16), False
    few = np.sort(_bits(2, (200,), 16))[(hills // 400 + _bits(3, (300, 400), 3)) % 200]
    yield "made: gray16, few values", few.astype(np.uint16), False
    rgb = hills[..., None] // np.array([1, 2, 3]) + _bits(4, (300, 400, 3), 6)
    yield "made: rgb16", rgb.astype(np.uint16), False
    places = _bits(5, (30, 2), 9).astype(np.int64)
    distances = (y[..., None] - places[:, 0]) ** 2 + (x[..., None] - places[:, 1]) ** 2
    regions = distances.argmin(axis=2)
    yield "made: labels", regions.astype(np.uint8), True
    yield "made: labels of 16 bits", (regions * 1009 + 7).astype(np.uint16), True
    alpha = np.where(regions % 3 == 0, 0, 255)
    gray = hills // 256 % 256
    yield "made: gray and alpha", np.stack([gray, alpha], axis=2).astype(np.uint8), False
    yield "made: noise", _bits(6, (64, 64, 3), 8).astype(np.uint8), False
    yield "made: constant", np.full((300, 400, 3), 77, np.uint8), False
    yield "made: one pixel", np.full((1, 1, 3), 200, np.uint8), False
    yield "made: 31 x 17", rgb[:17, :31].astype(np.uint8), False
    grounds = (hills, (x * x // 3 + y * 40) % 50000, (y * y // 2 + x * 90) % 50000)
    bands = [
        grounds[c % 3] // (1 + c // 3) + _bits(10 + c, (300, 400), 4 + c % 3) for c in range(8)
    ]
    cube = np.stack(bands, axis=2)[:150, :200]
    yield "made: 8 bands", cube.astype(np.uint16), False
    yield "made: 5 bands in a row", (cube[..., [0, 3, 6, 1, 4]] // 256).astype(np.uint8), False


def images() -> Iterator[tuple[str, Image, bool]]:
    """Names, samples, and whether they are labels."""
    for path in sorted(Path(skimage.__file__).with_name("data").glob("*.png")):
        yield path.name, imagecodecs.png_decode(path.read_bytes()), False
    yield from _made_images()


def measure(step: int = 1) -> dict[str, dict[str, int]]:
    """Bytes by image and setting, of which each image has one in `step`, in turn."""
    rows: dict[str, dict[str, int]] = {}
    for i, (name, image, labels) in enumerate(images()):
        row = rows[name] = {"raw": image.nbytes}
        for setting, (coding, effort) in [*SETTINGS.items()][i % step :: step]:
            encoded = l3dali.encode(image, labels=labels, threads=0, coding=coding, effort=effort)
            if not np.array_equal(l3dali.decode(encoded), image):
                raise SystemExit(f"{setting} is not lossless on {name}")
            row[setting] = len(encoded)
    return rows


def with_sum(rows: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """The same with a last row."""
    columns = ("raw", *SETTINGS)
    return rows | {"sum": {name: sum(row[name] for row in rows.values()) for name in columns}}


def page(rows: dict[str, dict[str, int]]) -> str:
    """The ledger as it is kept."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["image", "raw", *SETTINGS])
    writer.writerows([name, *row.values()] for name, row in rows.items())
    return text.getvalue()


def read(text: str) -> dict[str, dict[str, int]]:
    """What `page` has written."""
    return {
        row.pop("image"): {column: int(number) for column, number in row.items()}
        for row in csv.DictReader(io.StringIO(text))
    }


def changes(old: dict[str, dict[str, int]], new: dict[str, dict[str, int]]) -> list[str]:
    """A line for each number that differs."""
    lines = [f"{name}: only in one of the ledgers" for name in old.keys() ^ new.keys()]
    for name in old.keys() & new.keys():
        for column in old[name].keys() | new[name].keys():
            was, now = old[name].get(column, 0), new[name].get(column, 0)
            if was != now:
                by = f" ({now / was - 1:+.3%})" if was else ""
                lines.append(f"{name}, {column}: {was} -> {now}{by}")
    return sorted(lines, key=lambda line: (line.startswith("sum,"), line))


def main() -> int:
    """Writes the ledger, or with --check says what has changed."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if out of date")
    check = parser.parse_args().check
    new = with_sum(measure())
    lines = changes(read(LEDGER.read_text()) if LEDGER.exists() else {}, new)
    print("\n".join(lines) or "nothing has changed")
    if not check:
        LEDGER.write_text(page(new))
    return int(check and bool(lines))


if __name__ == "__main__":
    sys.exit(main())
