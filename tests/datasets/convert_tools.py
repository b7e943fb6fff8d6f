"""Data sets for the tests of `l3 convert`, and what tells two of them apart."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import PIL.Image
from numpy.typing import NDArray

from l3dali import codec
from l3dali.cli import main
from l3dali.datasets.convert.manifest import Row, row_of_json
from l3dali.datasets.convert.storage import MANIFEST_NAME
from l3dali.datasets.liquid.model import Limits, Prices
from l3dali.datasets.liquid.plan import Plan, Predicted, Tie
from l3dali.datasets.liquid.profile import Fits, Host, Linear
from l3dali.images.reading import read_picture

Image = NDArray[Any]
Members = list[tuple[str, bytes]]


def image(seed: int = 0, channels: int = 3, height: int = 24, width: int = 30) -> Image:
    """A small smooth image, unlike those of other seeds."""
    shape = (height, width) if channels == 1 else (height, width, channels)
    steps = np.random.default_rng(seed).integers(0, 4, shape)
    return np.cumsum(steps, axis=1, dtype=np.uint8)


def png(seed: int = 0, channels: int = 3) -> bytes:
    return bytes(imagecodecs.png_encode(image(seed, channels)))


def saved(picture: Image | PIL.Image.Image, format: str, **options: Any) -> bytes:
    """The file that Pillow writes."""
    file = io.BytesIO()
    if not isinstance(picture, PIL.Image.Image):
        picture = PIL.Image.fromarray(picture)
    picture.save(file, format, **options)
    return file.getvalue()


def palette_picture() -> PIL.Image.Image:
    """Three colours, of the numbers 0 to 2."""
    picture = PIL.Image.fromarray(image(channels=1) % 3)
    picture.putpalette([9, 8, 7, 60, 50, 40, 200, 100, 0])
    return picture


def noisy_jpeg(side: int = 64) -> bytes:
    """A JPEG file, whose pixels take more bytes in L3."""
    noise = np.random.default_rng(side).integers(0, 255, (side, side, 3), np.uint8)
    return bytes(imagecodecs.jpeg8_encode(noise, level=60))


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Files by their names below a folder, which it makes."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def write_pngs(folder: Path, *names: str) -> Path:
    """A folder of PNG files, each unlike the others: `png(0)` and so on."""
    return write_files(folder, {name: png(i) for i, name in enumerate(names)})


def samples(count: int, first: int = 0) -> Members:
    """Members of a WebDataset: an image, a label and a caption each."""
    return [
        member
        for i in range(first, first + count)
        for member in (
            (f"{i:04}.cls", b"%d" % i),
            (f"{i:04}.png", png(i)),
            (f"{i:04}.txt", b"BM is how this caption begins"),
        )
    ]


def write_tar(path: Path, members: Members, format: int = tarfile.GNU_FORMAT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=format, errors="surrogateescape") as tar:
        for i, (name, data) in enumerate(members):
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(data), 1_600_000_000 + i, 0o640
            info.uname = "someone"
            tar.addfile(info, io.BytesIO(data))
    return path


def pax(name: str, kind: bytes, body: bytes) -> bytes:
    """A pax header of any body."""
    header = tarfile.TarInfo(name)
    header.type, header.size = kind, len(body)
    return header.tobuf(tarfile.USTAR_FORMAT) + body + bytes(-len(body) % 512)


def write_bad_shard(path: Path) -> Path:
    """A tar file whose pax header has a length of 4,000 digits: tarfile raises OverflowError."""
    path.write_bytes(pax("x", tarfile.XHDTYPE, b"9" * 4000 + b" path=x\n") + bytes(1024))
    return path


def read_tar(path: Path) -> list[tuple[str, bytes, int, int, str]]:
    """Name, data, mode, time and owner of the members, in order."""
    with tarfile.open(path, errors="surrogateescape") as tar:
        return [
            (m.name, f.read() if (f := tar.extractfile(m)) else b"", m.mode, int(m.mtime), m.uname)
            for m in tar
        ]


def data_of(path: Path) -> Members:
    """Name and data of the members of a tar file."""
    return [(name, data) for name, data, *_ in read_tar(path)]


def as_pixels(members: Members) -> list[tuple[str, Any]]:
    """Members with images as pixels and without their suffix, so that formats compare equal."""
    return [
        (name.rpartition(".")[0], pixels_of(data).tobytes())
        if name.endswith((".png", ".l3"))
        else (name, data)
        for name, data in members
    ]


def pixels_of(data: bytes) -> Image:
    return codec.decode(data) if data[:4] != b"\x89PNG" else read_picture(data).pixels


def rows_of(folder: Path) -> dict[str, Row]:
    """The rows of a manifest, by source."""
    lines = (folder / MANIFEST_NAME).read_text().splitlines()
    rows = [row for line in lines if (row := row_of_json(line)) is not None]
    assert len(rows) == len(lines)
    return {row.source: row for row in rows}


def files_below(folder: Path) -> set[str]:
    """All files of a tree but the manifest; temporary ones too."""
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}
    return names - {MANIFEST_NAME}


def convert(*arguments: object) -> int:
    return main(["convert", *map(str, arguments)])


def make_plan(source: Path, shares: dict[str, float], group: str = "png rgb 8") -> Plan:
    """A plan that shares the images of a group out by lot; those of others stay as they are."""
    formats = list(shares)
    costs = Fits(
        images=1,
        source_bytes=100,
        raw_bytes=3.0,
        sizes={name: Linear(base=100) for name in formats},
        cpu_seconds={f"{name}@cpu": Linear(base=1) for name in formats},
    )
    return Plan(
        sources=[str(source)],
        images=1,
        formats=formats,
        candidates=formats,
        groups={group: costs},
        prices=Prices(cpu_seconds=1.0),
        ties=[Tie(group, formats, list(shares.values()))] if len(formats) > 1 else [],
        limits=Limits(Host(cores=1)),
        predicted=Predicted(1, 1, 1, dict.fromkeys(formats, 1.0), {}, {}, 1, 1),
    )


def save(plan: Plan, path: Path) -> Path:
    path.write_text(plan.to_json())
    return path
