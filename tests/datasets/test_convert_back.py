"""`l3 convert --to tif` and `--to source`: images come back, each in the format it came from."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from convert_tools import (
    Members,
    convert,
    data_of,
    files_below,
    image,
    palette_picture,
    png,
    read_tar,
    rows_of,
    saved,
    write_files,
    write_tar,
)
from PIL import Image

import l3dali
from l3dali.cli import main
from l3dali.images.formats import write_picture
from l3dali.images.picture import Picture
from l3dali.images.reading import read_picture

# Other tests convert in children, which take longer to start than these images to convert.
pytestmark = pytest.mark.usefixtures("in_process")


def tiff(pixels: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    tifffile.imwrite(file, pixels, **options)
    return file.getvalue()


BANDS = np.stack([image(i, 1).astype(np.uint16) * 200 + i for i in range(13)], axis=2)
SIGNED = image(3, 1).astype(np.int16) * 100 - 5000
# What is lossless, and comes back under the name that it had.
LOSSLESS = {
    "rgb.png": png(),
    "upper.PNG": png(1),
    "gray16.png": bytes(imagecodecs.png_encode(BANDS[:, :, 0].copy())),
    "bands.tif": tiff(BANDS, photometric="minisblack", planarconfig="contig"),
    "bands.tiff": tiff(
        np.moveaxis(BANDS, -1, 0), photometric="minisblack", planarconfig="separate"
    ),
    "signed.TIF": tiff(SIGNED),
    "rgb.tif": tiff(image(2), photometric="rgb"),
    "alpha.webp": saved(image(4, 4), "WEBP", lossless=True, exact=True),
    "rgb.bmp": saved(image(5), "BMP"),
    "gray.pgm": saved(image(6, 1), "PPM"),
    "rgb.ppm": saved(image(7), "PPM"),
    "rgb.jxl": bytes(imagecodecs.jpegxl_encode(image(8), lossless=True)),
    "rgb.jp2": bytes(imagecodecs.jpeg2k_encode(image(9), level=0, reversible=True)),
    "photo.jpg": saved(image(10), "JPEG", quality=90),
}
# What comes back as PNG: it has lost data, or nothing writes its format.
OTHERS = {
    "lossy.webp": saved(image(11), "WEBP", quality=80),
    "bits.pbm": b"P4\n8 2\n\x0f\xf0",
}


def stem(name: str) -> str:
    return name.rpartition(".")[0]


def same(old: bytes, new: bytes) -> None:
    """The same pixels, of the same type."""
    before, after = read_picture(old).pixels, read_picture(new).pixels
    assert before.dtype == after.dtype
    np.testing.assert_array_equal(before, after)


def make_folder(folder: Path) -> Path:
    """Each in a folder of its own: stems are not unlike."""
    images = {f"{i}/{name}": data for i, (name, data) in enumerate((LOSSLESS | OTHERS).items())}
    return write_files(folder, {**images, "labels.json": b"{}"})


def test_each_in_the_format_it_came_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = make_folder(tmp_path / "s")
    assert convert(source, tmp_path / "d", "--grow") == 0
    capsys.readouterr()
    assert convert(tmp_path / "d", tmp_path / "b", "--to", "source") == 0
    told = capsys.readouterr().err
    assert "written as PNG or TIFF, since their original format is lossy" in told
    assert told.rstrip().endswith(f": {len(OTHERS)}")
    back = {name: (tmp_path / "b" / name).read_bytes() for name in files_below(tmp_path / "b")}
    for i, (name, data) in enumerate((LOSSLESS | OTHERS).items()):
        wanted = name if name in LOSSLESS else f"{stem(name)}.png"
        same(data, back.pop(f"{i}/{wanted}"))
    assert back == {"labels.json": b"{}"}
    hashes = [{row.pixels_hash for row in rows_of(tmp_path / name).values()} for name in "db"]
    assert hashes[0] == hashes[1]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "b").rglob("*")}
    assert convert(tmp_path / "d", tmp_path / "b", "--to", "source") == 0
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "b").rglob("*")}


def test_png_sources_have_no_note(tmp_path: Path) -> None:
    """Their files are what they were before there were notes: the smallest sets pay nothing."""
    files = {"a.png": png(), "b.bmp": LOSSLESS["rgb.bmp"], "c.jpg": LOSSLESS["photo.jpg"]}
    write_files(tmp_path / "s", files)
    assert convert(tmp_path / "s", tmp_path / "d", "--grow") == 0
    notes = {name: l3dali.info(tmp_path / "d" / f"{name}.l3").metadata for name in "abc"}
    assert notes == {"a": None, "b": {"source_suffix": "bmp"}, "c": None}


@pytest.mark.parametrize("to", ["tif", "source"])
def test_members_of_a_shard(tmp_path: Path, to: str) -> None:
    members = [
        member
        for i, (name, data) in enumerate((LOSSLESS | OTHERS).items())
        for member in ((f"{i:04}.{name.rpartition('.')[2]}", data), (f"{i:04}.cls", b"%d" % i))
    ]
    source = write_tar(tmp_path / "s" / "a.tar", members)
    assert convert(source, tmp_path / "d", "--grow") == 0
    assert convert(tmp_path / "d", tmp_path / "b", "--to", to) == 0
    before, after = read_tar(source), read_tar(tmp_path / "b" / "a.tar")
    for (name, data, *rest), (new_name, new, *new_rest) in zip(before, after, strict=True):
        assert rest == new_rest
        if name.endswith(".cls"):
            assert (name, data) == (new_name, new)
            continue
        same(data, new)
        assert to != "tif" or new[:2] == b"II"
        is_lossless = data in LOSSLESS.values()
        wanted = "tif" if to == "tif" else name.rpartition(".")[2] if is_lossless else "png"
        assert new_name == f"{stem(name)}.{wanted}"


def test_records_of_many_bands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from test_convert_containers import example, find_images, frame, records_of

    records = [example(("scene", LOSSLESS["bands.tif"])), example(("scene", png(1)))]
    write_files(tmp_path / "s", {"a.tfrecord": b"".join(map(frame, records))})
    assert convert(tmp_path / "s", tmp_path / "d") == 0
    assert convert(tmp_path / "d", tmp_path / "p", "--to", "png") == 2
    assert ".png cannot hold 13 channels of 16 bits; use .tif" in capsys.readouterr().err
    assert convert(tmp_path / "d", tmp_path / "b", "--to", "source") == 0
    scene, picture = records_of(tmp_path / "b" / "a.tfrecord")
    same(LOSSLESS["bands.tif"], find_images(scene, "tiff")[0])
    same(png(1), find_images(picture, "png")[0])


def test_palettes_come_back_as_png(tmp_path: Path) -> None:
    picture = palette_picture()
    files = {"a.png": saved(picture, "PNG"), "b.bmp": saved(picture, "BMP")}
    write_files(tmp_path / "s", files)
    assert convert(tmp_path / "s", tmp_path / "d", "--labels", "*") == 0
    assert convert(tmp_path / "d", tmp_path / "b", "--to", "source") == 0
    for name in ("a.png", "b.png"):
        with Image.open(tmp_path / "b" / name) as back:
            assert back.mode == "P"
            assert np.array_equal(np.asarray(back), np.asarray(picture))
            assert (back.getpalette() or [])[:9] == (picture.getpalette() or [])[:9]


@pytest.mark.parametrize("options", [[], ["--no-verify"]])
def test_what_a_format_would_change_comes_back_as_png(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """WebP drops an alpha channel that is opaque everywhere."""
    opaque = image(1, 4)
    opaque[..., 3] = 255
    file = l3dali.encode(opaque, metadata={"source_suffix": "webp"})
    write_files(tmp_path / "s", {"a.l3": file})
    assert convert(tmp_path / "s", tmp_path / "d", "--to", "source", *options) == 0
    assert capsys.readouterr().err.rstrip().endswith("cannot hold them: 1")
    result = read_picture((tmp_path / "d" / "a.png").read_bytes())
    assert np.array_equal(result.pixels, opaque)


# Images of one sample.

PAIRS = [
    (f"{i:04}.{suffix}", data)
    for i in range(3)
    for suffix, data in (
        ("cls", b"%d" % i),
        ("jpg", saved(image(i), "JPEG", quality=90)),
        ("png", png(i, 1)),
    )
]
IN_L3 = [f"{i:04}.{suffix}" for i in range(3) for suffix in ("cls", "jpg.l3", "png.l3")]


def write_pairs(path: Path, members: Members = PAIRS) -> Path:
    if path.suffix == ".tar":
        return write_tar(path, members)
    if path.suffix != ".zip":
        return write_files(path, dict(members))
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


def read_pairs(path: Path) -> Members:
    if path.suffix == ".tar":
        return data_of(path)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return [(name, archive.read(name)) for name in archive.namelist()]
    return [(name, (path / name).read_bytes()) for name in sorted(files_below(path))]


@pytest.mark.parametrize("kind", ["tar", "zip", "folder"])
def test_photograph_and_mask_of_one_sample(tmp_path: Path, kind: str) -> None:
    name = "" if kind == "folder" else f"a.{kind}"
    source = write_pairs(tmp_path / "s" / name)
    assert convert(source, tmp_path / "d", "--labels", ".png") == 0
    result = tmp_path / "d" / name
    assert [each for each, _ in read_pairs(result)] == IN_L3
    labels = [l3dali.info(data).labels for each, data in read_pairs(result) if "cls" not in each]
    assert labels == [False, True] * 3
    assert convert(result, tmp_path / "b", "--to", "source") == 0
    back = read_pairs(tmp_path / "b" / name)
    assert [each for each, _ in back] == [each for each, _ in PAIRS]
    assert [data for each, data in back if each.endswith("jpg")] == [
        data for each, data in PAIRS if each.endswith("jpg")
    ]
    assert main(["verify", str(tmp_path / "d"), "--source", str(tmp_path / "s")]) == 0


def test_a_mask_comes_later(tmp_path: Path) -> None:
    source = write_pairs(tmp_path / "s", PAIRS[1:2])
    assert convert(source, tmp_path / "d") == 0
    assert files_below(tmp_path / "d") == {"0000.l3"}
    (source / "0000.png").write_bytes(PAIRS[2][1])
    for _ in range(2):
        assert convert(source, tmp_path / "d") == 0
        assert files_below(tmp_path / "d") == {"0000.jpg.l3", "0000.png.l3"}
    assert convert(tmp_path / "d", tmp_path / "b", "--to", "source") == 0
    assert files_below(tmp_path / "b") == {"0000.jpg", "0000.png"}


def test_suffixes_that_come_twice(tmp_path: Path) -> None:
    source = write_pairs(tmp_path / "s", [("a.jpg.jpg", PAIRS[1][1]), ("a.png", png())])
    assert convert(source, tmp_path / "d") == 0
    assert files_below(tmp_path / "d") == {"a.jpg.jpg.l3", "a.l3"}
    assert convert(tmp_path / "d", tmp_path / "b", "--to", "source") == 0
    assert files_below(tmp_path / "b") == {"a.jpg.jpg", "a.png"}


def test_one_of_two_is_damaged(tmp_path: Path) -> None:
    """Names are those of whole samples, so that readers find what they ask for, or nothing."""
    members = [*PAIRS[:5], ("0001.png", png()[:50]), *PAIRS[6:]]
    source = write_tar(tmp_path / "s" / "a.tar", members)
    for choice, names in (
        ("keep", [*IN_L3[:5], "0001.png", *IN_L3[6:]]),
        ("drop", [*IN_L3[:3], *IN_L3[6:]]),
    ):
        assert convert(source, tmp_path / choice, "--on-error", choice) == 2
        assert [name for name, _ in read_pairs(tmp_path / choice / "a.tar")] == names


def test_decode_of_a_name_that_keeps_its_suffix(tmp_path: Path) -> None:
    (tmp_path / "0.jpg.l3").write_bytes(l3dali.transcode(PAIRS[1][1]))
    assert main(["decode", str(tmp_path / "0.jpg.l3")]) == 0
    assert (tmp_path / "0.jpg").read_bytes() == PAIRS[1][1]


@pytest.mark.parametrize("note", ["../../x", "l3", "png/../y", "exe", 5, ["png"], {}, "", "tif\0"])
def test_notes_that_lie(tmp_path: Path, note: Any) -> None:
    write_files(tmp_path / "s", {"a.l3": l3dali.encode(image(), metadata={"source_suffix": note})})
    assert convert(tmp_path / "s", tmp_path / "d", "--to", "source") == 0
    assert files_below(tmp_path) >= {"d/a.png"}
    assert files_below(tmp_path / "d") == {"a.png"}


def test_arrays_that_came_from_no_file(tmp_path: Path) -> None:
    arrays = {"a.l3": image(), "b.l3": BANDS, "c.l3": SIGNED}
    write_files(tmp_path / "s", {name: l3dali.encode(array) for name, array in arrays.items()})
    assert convert(tmp_path / "s", tmp_path / "d", "--to", "source") == 0
    assert files_below(tmp_path / "d") == {"a.png", "b.tif", "c.tif"}


@pytest.mark.parametrize(("note", "other"), [("PNG", "a.PNG"), ("Tif", "a.Tif")])
@pytest.mark.parametrize("late", [False, True])
def test_results_whose_names_only_the_files_know(
    tmp_path: Path, note: str, other: str, late: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "s", tmp_path / "d"
    noted = l3dali.encode(image(), metadata={"source_suffix": note})
    write_files(source, {"a.l3": noted, "b.l3": l3dali.encode(image())})
    if late:
        assert convert(source, target, "--to", "source") == 0
        assert files_below(target) == {other, "b.png"}
    (source / other).write_bytes(b"a user's")
    assert convert(source, target, "--to", "source") == 2
    assert f"would both make {other.lower()}" in capsys.readouterr().err
    assert (files_below(target) == {other, "b.png"}) == late


def test_a_file_in_dest_whose_name_only_a_source_knows(tmp_path: Path) -> None:
    data = l3dali.encode(image(), metadata={"source_suffix": "PNG"})
    write_files(tmp_path, {"s/a.l3": data, "d/a.PNG": b"a user's"})
    assert convert(tmp_path / "s", tmp_path / "d", "--to", "source") == 2
    assert (tmp_path / "d" / "a.PNG").read_bytes() == b"a user's"


FLOATS: dict[str, Any] = {
    "half": np.linspace(-1, 1, 720, dtype=np.float16).reshape(24, 30),
    "float": np.linspace(-1, 1, 720, dtype=np.float32).reshape(24, 30),
    "bands": np.linspace(-1, 1, 2160, dtype=np.float32).reshape(24, 30, 3),
    "halves": np.linspace(-1, 1, 1440, dtype=np.float16).reshape(24, 30, 2),
}
FLOATS["float"][0, :4] = [np.nan, np.inf, -0.0, 1e-40]


def l3_of_floats(floats: Any) -> bytes:
    """By the recipe of docs/my-data.md."""
    samples = floats.reshape(24, 30, -1).view(np.uint16)
    return l3dali.encode(samples, metadata={"floats": floats.dtype.name})


@pytest.mark.parametrize("to", ["tif", "source"])
def test_floats(tmp_path: Path, to: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Bits that were stored as integers come back as the floats that they are."""
    members = [(f"{name}.l3", l3_of_floats(floats)) for name, floats in FLOATS.items()]
    write_tar(tmp_path / "s" / "a.tar", members)
    assert convert(tmp_path / "s", tmp_path / "b", "--to", to) == 0
    for name, data, *_ in read_tar(tmp_path / "b" / "a.tar"):
        wanted = FLOATS[name.removesuffix(".tif")]
        back = tifffile.imread(io.BytesIO(data))
        assert (back.dtype, back.shape) == (wanted.dtype, wanted.shape)
        assert back.tobytes() == wanted.tobytes()
    assert convert(tmp_path / "s", tmp_path / "c", "--to", "png") == 2
    assert ".png cannot hold floats; use .tif" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pixels", "floats"),
    [
        (BANDS, "float32"),  # an odd number of halves
        (BANDS, "float24"),
        (BANDS, ["float16"]),
        (image(), "float16"),
    ],
)
def test_floats_that_are_none(pixels: Any, floats: Any) -> None:
    picture = Picture(pixels, metadata={"floats": floats})
    back = tifffile.imread(io.BytesIO(write_picture(picture, ".tif")))
    np.testing.assert_array_equal(back, pixels)


def test_floats_by_channels(tmp_path: Path) -> None:
    """Halves of a number are none; half floats are whole in each channel."""
    for name, dtype in (("halves", np.float16), ("bands", np.uint16)):
        (tmp_path / f"{name}.l3").write_bytes(l3_of_floats(FLOATS[name]))
        result = tmp_path / f"{name}.tif"
        command = ["decode", str(tmp_path / f"{name}.l3"), "-o", str(result), "--channels", "1,0"]
        assert main(command) == 0
        wanted = FLOATS[name].view(np.uint16).reshape(24, 30, -1)[..., [1, 0]]
        back = tifffile.imread(result)
        assert back.dtype == dtype
        np.testing.assert_array_equal(back.view(np.uint16), wanted)
