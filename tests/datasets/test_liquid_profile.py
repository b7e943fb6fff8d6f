"""`l3 profile`: the sample, the fits, what is read of the host, and profile files."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")

import imagecodecs
import PIL.Image
from cli_tools import image, write_png
from convert_tools import samples as members
from convert_tools import saved, write_tar

from l3dali import codec
from l3dali.cli import main
from l3dali.cli.parser import rate_argument
from l3dali.datasets.convert.images import Options, group_of
from l3dali.datasets.convert.storage import open_folder
from l3dali.datasets.liquid import measure
from l3dali.datasets.liquid.fit import fit_linear
from l3dali.datasets.liquid.host import measure_reading
from l3dali.datasets.liquid.measure import measure_profile
from l3dali.datasets.liquid.profile import (
    Fits,
    Host,
    Linear,
    Profile,
    Sample,
    read_profile,
)
from l3dali.datasets.liquid.sample import Candidate, draw, open_dataset
from l3dali.errors import UsageError
from l3dali.images.formats import read_header
from l3dali.images.reading import read_picture

FAST = ["--seconds", "5", "--samples", "6"]


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "_LONGEST_RUN", 0.05)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Photographs, masks and 16-bit images, as PNG; some are JPEG files."""
    root = tmp_path / "set"
    for i in range(4):
        write_png(root / "photos" / f"{i}.png", image(i))
        write_png(root / "masks" / f"{i}.png", image(i, channels=1))
    write_png(root / "deep.png", image(9).astype(np.uint16) * 257)
    (root / "one.jpg").write_bytes(imagecodecs.jpeg8_encode(image(8), level=90))
    (root / "notes.txt").write_text("no image")
    return root


def sample(
    pixels: int = 100, group: str = "png rgb 8", weight: float = 1.0, **sizes: int
) -> Sample:
    sizes = {"source": 2 * pixels, **sizes}
    return Sample(
        name="a.png",
        group=group,
        source_bytes=sizes["source"],
        pixels=pixels,
        raw_bytes=3 * pixels,
        weight=weight,
        sizes=sizes,
        cpu_seconds={f"{name}@cpu": 1e-9 * size for name, size in sizes.items()},
    )


def profile(**changes: Any) -> Profile:
    fields: dict[str, Any] = {
        "sources": ["set"],
        "images": 1,
        "host": Host(cores=2.0),
        "groups": {"png rgb 8": Fits(1, 200, {"source": Linear(per_byte=1.0)}, {})},
        "samples": [sample()],
    }
    return Profile(**{**fields, **changes})


# The command.


def test_profile_of_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = folder.parent / "p.json"
    assert main(["profile", str(folder), "-o", str(output), "--seconds", "60"]) == 0
    written = read_profile(output)
    assert written.images == len(written.samples) == 10
    assert {name: fits.images for name, fits in written.groups.items()} == {
        "jpeg 3": 1,
        "png gray 8": 4,
        "png rgb 16": 1,
        "png rgb 8": 4,
    }
    for each in written.samples:
        data = (folder / each.name).read_bytes()
        pixels = imagecodecs.imread(str(folder / each.name))
        assert each.source_bytes == each.sizes["source"] == len(data)
        assert (each.pixels, each.raw_bytes) == (pixels.shape[0] * pixels.shape[1], pixels.nbytes)
        assert set(each.sizes) == {"source", *codec.CODINGS, *["jpeg"] * (each.name == "one.jpg")}
        assert each.sizes["packed"] == len(codec.encode(pixels, coding="packed"))
        assert each.cpu_seconds.keys() <= {f"{name}@cpu" for name in each.sizes}
        assert all(value > 0 for value in each.cpu_seconds.values())
        assert {f"{coding}@cpu" for coding in codec.CODINGS} <= each.cpu_seconds.keys()
    shown = capsys.readouterr()
    assert "10 images, 10 measured" in shown.out
    for word in ("png rgb 16", "packed", "bytes/pixel", "images/s per core", "host: "):
        assert word in shown.out
    assert "no GPU was measured" in shown.err


def test_shards_give_the_same_samples(tmp_path: Path) -> None:
    write_tar(tmp_path / "set" / "a-0.tar", members(3))
    write_tar(tmp_path / "set" / "a-1.tar", members(3, first=3))
    measured = measure_profile([f"{tmp_path}/set/a-{{0..1}}.tar"], seconds=600, quiet=True)
    assert measured.images == 6
    assert {each.name for each in measured.samples} == {
        f"a-{i // 3}.tar: {i:04}.png" for i in range(6)
    }


def test_url(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    with memory.open("/profiled/a.png", "wb") as file:
        file.write(imagecodecs.png_encode(image()))
    measured = measure_profile(["memory://profiled"], seconds=10, quiet=True)
    assert measured.images == 1
    assert measured.host.disk is None
    assert measured.host.network is not None


def test_what_is_given_is_not_measured(folder: Path) -> None:
    given = {"cores": 64, "disk": 2e9, "network": math.inf, "upload": 1e10, "train_rate": 300}
    measured = measure_profile([str(folder)], seconds=5, samples=3, given=given, quiet=True)
    host = measured.host
    assert (host.cores, host.disk, host.network, host.upload) == (64, 2e9, None, 1e10)
    assert measured.training is not None
    assert measured.training.samples_per_second == 300


def test_little_time_gives_one_image_of_each_group(folder: Path) -> None:
    measured = measure_profile([str(folder)], seconds=1e-3, quiet=True)
    assert {each.group for each in measured.samples} == {
        "png gray 8",
        "png rgb 8",
        "png rgb 16",
        "jpeg 3",
    }
    assert measured.images == 10
    assert any("there was no time to measure 6 images" in note for note in measured.notes)


def test_samples_stand_for_images_of_their_size_that_were_not_reached() -> None:
    """The bytes of the whole are known from the listing."""
    drawn = [Candidate("", 100 + 7 * i * i, "png", 1.0, False, bytes) for i in range(30)]
    reached = [(i, sample(source=drawn[i].size)) for i in (2, 4, 7, 21, 26)]
    unread = [Candidate("", 9, "tiff", 1.0, False, bytes) for _ in range(2)]
    done = measure._weighted([*drawn, *unread], reached, {30})
    assert sum(each.weight for each in done) == pytest.approx(30)
    assert sum(each.weight * each.source_bytes for each in done) == pytest.approx(
        sum(each.size for each in drawn)
    )


def test_unreadable_images_are_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(11):
        (folder / f"torn{i}.png").write_bytes((folder / "deep.png").read_bytes()[:60])
    (folder / "empty.png").write_bytes(b"")
    output = folder.parent / "p.json"
    command = ["profile", str(folder), "-o", str(output), "--seconds", "60"]
    assert main([*command, "--max-pixels", "1999"]) == 2  # All have 2000.
    assert "none of the images can be read" in capsys.readouterr().err
    assert not output.exists()
    assert main(command) == 0
    told = capsys.readouterr().err
    assert "11 images of the sample cannot be read, such as torn" in told
    assert len(read_profile(output).samples) == 10


def test_a_shard_that_cannot_be_read_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_tar(tmp_path / "s" / "b.tar", members(1)).parent
    (source / "a.tar").write_bytes(b"no tar" * 1000)
    output = tmp_path / "p.json"
    assert main(["profile", str(source), "-o", str(output), "--seconds", "60"]) == 2
    assert "\na.tar: " in capsys.readouterr().err
    assert read_profile(output).images == 1


def test_what_is_skipped_is_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "empty.png").write_bytes(b"")
    (folder / "none.tar").write_bytes(b"")
    (folder / "a.l3").write_bytes(codec.encode(image()))
    PIL.Image.fromarray(image()).quantize(9).save(folder / "palette.png")
    output = folder.parent / "p.json"
    assert main(["profile", str(folder), "-o", str(output), "--seconds", "60"]) == 0
    said = capsys.readouterr().err
    assert "empty files skipped: 2" in said
    assert "L3 files (plans are for originals) skipped: 1" in said
    assert "files that are not images skipped: 1" in said
    assert "1 image: a palette becomes colours; --labels keeps" in said
    assert read_profile(output).images == 11


def test_masks_of_few_bits_are_no_originals_to_keep(folder: Path) -> None:
    """Decoders scale their numbers."""
    PIL.Image.fromarray(image()[:, :, 0] > 99).save(folder / "mask_seg.png")
    measured = measure_profile([str(folder)], seconds=60, labels=["_seg.png"], quiet=True)
    costs = measured.groups["png gray 1 labels"].cpu_seconds
    assert {key.partition("@")[0] for key in costs} == {"rans", "packed", "stored"}


def test_labels_that_name_no_image(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = folder.parent / "p.json"
    command = ["profile", str(folder), "-o", str(output), *FAST, "--labels", "mask/*"]
    assert main(command) == 2
    assert "--labels mask/*: no image matches" in capsys.readouterr().err
    assert main([*command, "--labels", "masks/*"]) == 0
    assert "l3: --labels 'mask/*' matches no image\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("group", "mode", "format", "how"),
    [
        ("webp 3", "RGB", "WEBP", {}),
        ("webp 3", "RGB", "WEBP", {"icc_profile": b"profile"}),  # VP8X
        ("webp 4", "RGBA", "WEBP", {}),
        ("bmp 3", "RGB", "BMP", {}),
    ],
)
def test_groups_have_the_bytes_of_a_pixel(
    group: str, mode: str, format: str, how: dict[str, Any]
) -> None:
    picture = PIL.Image.fromarray(image(channels=4))
    picture.putalpha(picture.getchannel(0))
    data = saved(picture.convert(mode), format, **how)
    assert group_of(data, read_header(data)) == group
    assert read_picture(data).pixels[0, 0].size == int(group[-1])


def test_a_data_set_of_l3_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.l3").write_bytes(codec.encode(image()))
    assert main(["profile", str(tmp_path), "-o", str(tmp_path / "p.json")]) == 2
    assert "it has L3 files (plans are for originals), which l3 convert" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no such file or folder"),
        (["empty"], "no images found in the data set; supported: .bmp .dcm "),
        (["gif"], "images among the files there: 1 .gif; convert them to PNG first"),
        (["set", "--disk=-5MB/s"], "is not a rate"),
        (["set", "--seconds", "inf"], "not a positive number"),
        (["set", "-o", "there.json"], "--overwrite replaces it"),
        (["set", "-o", "set/a.png", "--overwrite"], "is the name of an image or a shard"),
        (["set", "-o", "no/folder.json"], "folder that exists"),
    ],
)
def test_bad_arguments(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(folder.parent)
    Path("empty").mkdir()
    Path("gif").mkdir()
    Path("gif", "a.gif").touch()
    Path("there.json").write_text("kept")
    assert main(["profile", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not Path("profile.json").exists()
    assert Path("there.json").read_text() == "kept"


def test_output(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder.parent)
    assert main(["profile", str(folder), *FAST]) == 0
    Path("profile.json").write_text("older")
    assert main(["profile", str(folder), *FAST, "-o", "profile.json", "--overwrite"]) == 0
    assert read_profile("profile.json").images == 10
    capfd.readouterr()
    assert main(["profile", str(folder), *FAST, "-o", "-"]) == 0
    assert json.loads(capfd.readouterr().out)["images"] == 10


def test_jpeg_files_that_l3_refuses_are_a_group_of_their_own(folder: Path) -> None:
    PIL.Image.new("RGB", (40, 40)).save(folder / "flat.jpg", optimize=True)
    measured = measure_profile([str(folder)], seconds=60, quiet=True)
    assert "jpeg" in measured.groups["jpeg 3"].sizes
    assert measured.groups["jpeg 3 refused"].sizes.keys() == {"source", *codec.CODINGS}
    assert "1 image: not supported by coding jpeg: it would not become smaller" in measured.notes


# The sample.


def test_weights_of_a_sample_add_up(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for i in range(90):
        size = int(rng.integers(4, 60))
        pixels = rng.integers(0, 256, (size, size, 3 if i % 9 else 1), np.uint8).squeeze()
        write_png(tmp_path / f"{i:02}.png", pixels)
    found = open_dataset([str(tmp_path)], Options(), samples=30, seconds=9, rng=rng)
    drawn = draw(found.candidates, 30, rng)
    groups = {each.group for each in found.candidates}
    assert len(groups) == 2
    assert sum(each.weight for each in drawn) == 90
    for group, count in (("png gray 8", 10), ("png rgb 8", 80)):
        assert sum(each.weight for each in drawn if each.group == group) == count
    # By size: the means of bytes agree far better than those of a random sample would.
    mean = sum(each.size for each in found.candidates) / 90
    assert sum(each.size * each.weight for each in drawn) / 90 == pytest.approx(mean, rel=0.1)
    # The beginning has all groups.
    assert {each.group for each in drawn[:10]} == groups


def test_many_images_in_shards_are_estimated(tmp_path: Path) -> None:
    for i in range(20):
        write_tar(tmp_path / f"{i:02}.tar", members(10, first=10 * i))
    rng = np.random.default_rng(1)
    found = open_dataset([str(tmp_path)], Options(), samples=8, seconds=9, rng=rng)
    assert len(found.candidates) < 200
    estimate = sum(each.weight for each in found.candidates)
    in_shards = sum(path.stat().st_size for path in tmp_path.iterdir())
    image_bytes = np.mean([each.size for each in found.candidates])
    assert estimate == pytest.approx(in_shards / image_bytes)
    assert any("is estimated" in note for note in found.notes)


# Fits.


def test_fit_finds_what_made_the_values() -> None:
    rng = np.random.default_rng(1)
    pixels = rng.integers(1_000, 1_000_000, 60)
    sizes = (pixels * rng.uniform(0.5, 2, 60)).astype(int)
    values = 1e-5 + 3e-9 * sizes + 8e-9 * pixels
    fit = fit_linear(sizes.tolist(), pixels.tolist(), values.tolist())
    assert (fit.base, fit.per_byte, fit.per_pixel) == pytest.approx((1e-5, 3e-9, 8e-9), rel=1e-3)


@pytest.mark.parametrize(
    ("sizes", "pixels", "values"),
    [
        ([10.0], [20.0], [3.0]),
        ([10.0] * 5, [20.0] * 5, [3.0] * 5),
        ([10.0, 11.0, 12.0], [20.0] * 3, [3.0, 3.0, 3.0]),
        ([10.0, 20.0], [20.0, 40.0], [3.0, 6.0]),
        ([10.0, 20.0], [0.0, 0.0], [3.0, 6.0]),
        ([1e9, 2e9], [1.0, 2.0], [1e-12, 2e-12]),
        ([10.0, 20.0], [20.0, 40.0], [0.0, 0.0]),
    ],
)
def test_degenerate_fits(sizes: list[float], pixels: list[float], values: list[float]) -> None:
    fit = fit_linear(sizes, pixels, values)
    for size, area, value in zip(sizes, pixels, values, strict=True):
        assert fit(size, area) == pytest.approx(value, rel=1e-6, abs=1e-30)
    assert min(fit.base, fit.per_byte, fit.per_pixel) >= 0


# The host.


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("200MB/s", 2e8),
        ("2GB/s", 2e9),
        ("1.5 gb/s", 1.5e9),
        ("100MB", 1e8),
        ("unlimited", math.inf),
    ],
)
def test_rates(text: str, rate: float) -> None:
    assert rate_argument(text) == rate


def test_reading(folder: Path) -> None:
    there = open_folder(str(folder))
    files = [(there, each) for each in there.list_files().files.values()]
    reading = measure_reading(files, 5, np.random.default_rng(1))
    assert reading.rate > 0
    assert reading.cpu_seconds(1000, 0) > 0
    assert any("MB only, and is not reliable: set it by --disk" in n for n in reading.notes)
    (folder / "deep.png").unlink()
    gone = [each for each in files if each[1].name == "deep.png"]
    with pytest.raises(OSError, match="No such file"):
        measure_reading(gone, 5, np.random.default_rng(1))


def test_files_of_one_size_cost_by_the_file(tmp_path: Path) -> None:
    """The cost of a small file is independent of the bytes of a large one."""
    for i in range(20):
        (tmp_path / f"{i}.png").write_bytes(bytes(100))
    there = open_folder(str(tmp_path))
    files = [(there, each) for each in there.list_files().files.values()]
    cost = measure_reading(files, 5, np.random.default_rng(1)).cpu_seconds
    assert cost(10**6, 0) == pytest.approx(cost(100, 0) + 4e-10 * (10**6 - 100))


# Profile files.


def test_round_trip(tmp_path: Path) -> None:
    whole = profile(notes=["a note"], made={"machine": "this"})
    (tmp_path / "p.json").write_text(whole.to_json())
    assert read_profile(tmp_path / "p.json") == whole


def changed(*path: str | int, to: Any) -> str:
    """A profile file with one value replaced."""
    data = json.loads(profile().to_json())
    at = data
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = to
    return json.dumps(data)


GROUP = ("groups", "png rgb 8")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a complete JSON file"),
        (profile().to_json()[:200], "not a complete JSON file"),
        ("[]", "not a profile"),
        (changed("format", to="l3-plan"), "not a profile but a plan"),
        (changed("version", to=2), "version 2"),
        (changed("host", to={}), "host.cores is missing"),
        (changed("host", "cores", to=0), "cores of the host must be above 0"),
        (changed("host", "disk", to=-1.0), "host.disk must be a number of at least 0, not -1"),
        (changed("host", "disk", to=math.nan), "host.disk must be a number of at least 0, not nan"),
        (
            changed(*GROUP, "sizes", "source", to={"base": -1}),
            "sizes['source'].base must be a number of at least 0, not -1",
        ),
    ],
)
def test_damaged_profiles(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        read_profile(path)
    assert str(caught.value).startswith(f"{path}: ")
