"""`l3 profile`: the sample, the fits, what is read of the host, and profile files."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")

import imagecodecs
import PIL.Image
from cli_tools import image, write_png
from convert_tools import samples as members
from convert_tools import write_bad_shard, write_tar
from engines import ROOT

from l3dali import codec
from l3dali.cli import main
from l3dali.cli.profile import _print
from l3dali.datasets.convert.images import Options
from l3dali.datasets.convert.storage import open_folder
from l3dali.datasets.convert.work import find_sources
from l3dali.datasets.liquid import decoding, measure, measure_step
from l3dali.datasets.liquid.dataset import Candidate, draw, fingerprint, open_dataset
from l3dali.datasets.liquid.fit import UNKNOWN_ERROR, fit_groups, fit_linear
from l3dali.datasets.liquid.groups import group_of
from l3dali.datasets.liquid.host import measure_reading, parse_rate, usable_cores
from l3dali.datasets.liquid.measure import Given, measure_profile
from l3dali.datasets.liquid.profile import (
    Fits,
    Host,
    Linear,
    Profile,
    Sample,
    Training,
    parse_profile,
    read_profile,
)
from l3dali.errors import UsageError
from l3dali.images.headers import read_header
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
        "fingerprint": "0" * 64,
        "images": 1,
        "host": Host(cores=2.0),
        "groups": {"png rgb 8": Fits(1, 200, {"source": Linear(per_byte=1.0)}, {})},
        "samples": [sample()],
    }
    return Profile(**{**fields, **changes})


# The command.


def test_a_table_is_not_cut_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    group = "png gray+alpha 16"
    fits = Fits(1, 200, {"source": Linear(), "rans": Linear()}, {"rans@cpu": Linear()})
    fits = replace(fits, borrowed="png gray+alpha 8", gpu_seconds={"rans@mixed": Linear()})
    one = replace(sample(group=group, rans=9), gpu_seconds={"rans@mixed": 1e-3})
    _print(profile(groups={group: fits}, samples=[one]), to_errors=False)
    shown = capsys.readouterr().out
    assert "(1 measured; costs as png gray+alpha 8)" in shown
    assert "images/s of the GPU" in shown


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
        assert set(each.sizes) == {"source", *codec.CODINGS}
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
    measured = measure_profile([f"{tmp_path}/set/a-{{0..1}}.tar"], seconds=60, quiet=True)
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


def test_lossy_only_if_allowed(folder: Path) -> None:
    without = measure_profile([str(folder)], seconds=60, quiet=True)
    assert not any("jpeg95" in each.sizes for each in without.samples)
    allowed = measure_profile(
        [str(folder)], seconds=60, allow_lossy=True, labels=["masks/1.png"], quiet=True
    )
    assert {each.name for each in allowed.samples if "jpeg95" not in each.sizes} == {
        "deep.png",
        "one.jpg",
        "masks/1.png",
    }


def test_what_is_given_is_not_measured(folder: Path) -> None:
    given = Given(cores=64, disk=2e9, network=math.inf, upload=1e10, train_rate=300)
    measured = measure_profile([str(folder)], seconds=5, samples=3, given=given, quiet=True)
    host = measured.host
    assert (host.cores, host.disk, host.network, host.upload) == (64, 2e9, None, 1e10)
    assert measured.training is not None
    assert measured.training.samples_per_second == 300


def test_a_full_tmpdir_costs_no_profile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipelines read files from there; all was lost that had been measured before."""

    def run(*arguments: Any) -> float:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/l3-profile-")

    monkeypatch.setattr(measure, "measure_core_seconds", run)
    measured = measure_profile([str(folder)], seconds=5, samples=3, quiet=True)
    assert measured.host.efficiency == 1
    assert any("no pipeline was run end to end: No space left" in note for note in measured.notes)


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_that_comes_meanwhile_stays(
    folder: Path,
    has_links: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """So says `--overwrite`; the profile of another run in the same folder was lost."""
    monkeypatch.chdir(folder.parent)
    measured = measure_profile([str(folder)], seconds=5, samples=3, quiet=True)
    (folder.parent / "profile-2.json").write_text("another's")

    def measure_now(*arguments: Any, **options: Any) -> Profile:
        Path("profile.json").write_text("another's")
        return measured

    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    if not has_links:  # as on FAT
        monkeypatch.setattr(Path, "hardlink_to", refuse)
    monkeypatch.setattr(measure, "measure_profile", measure_now)
    assert main(["profile", str(folder)]) == 2
    output = capsys.readouterr()
    assert "profile.json has come meanwhile, and stays" in output.err
    assert "png rgb 8" in output.out
    assert Path("profile.json").read_text() == Path("profile-2.json").read_text() == "another's"
    assert read_profile("profile-3.json") == measured


def test_little_time_gives_one_image_of_each_stratum(folder: Path) -> None:
    measured = measure_profile([str(folder)], seconds=1e-3, quiet=True)
    assert {each.group for each in measured.samples} == {
        "png gray 8",
        "png rgb 8",
        "png rgb 16",
        "jpeg 3",
    }
    assert measured.images == 10
    assert any("the time did not suffice for 6 images" in note for note in measured.notes)


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


def test_turned_images_of_four_channels(tmp_path: Path) -> None:
    """DALI 2.4, which turns them outside of its memory, ended the command."""
    turned = PIL.Image.Exif()
    turned[0x112] = 6
    noise = np.random.default_rng(0).integers(0, 256, (300, 17, 4), np.uint8)
    for number in range(20):
        PIL.Image.fromarray(noise[number:]).save(tmp_path / f"{number}.png", exif=turned)
    command = [sys.executable, "-m", "l3dali", "profile", str(tmp_path)]
    command += ["-o", "-", "--seconds", "6"]
    run = subprocess.run(command, capture_output=True, check=False)
    assert run.returncode == 0, run.stderr


def test_without_dali(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> decoding.Decoders:
        raise ImportError

    monkeypatch.setattr(decoding, "DaliDecoders", missing)
    measured = measure_profile([str(folder)], seconds=60, quiet=True)
    assert measured.made["decoders"].startswith("imagecodecs")
    assert any("DALI is not installed" in note for note in measured.notes)
    assert all(each.cpu_seconds.keys() >= {"source@cpu"} for each in measured.samples)


@pytest.mark.parametrize(("most", "batch"), [(40_000, 6), (9, 2), (2**30, 32)])
def test_batches_of_large_images_are_smaller(
    folder: Path, monkeypatch: pytest.MonkeyPatch, most: int, batch: int
) -> None:
    """32 masks of 16 megapixels took 2.3 GB."""
    batches = set()

    def run(name: str, files: list[bytes], heads: list[codec.Image], *numbers: Any) -> float:
        assert all(head.base is None for head in heads)  # or the image would stay
        batches.add(numbers[-1])
        return 1.0

    monkeypatch.setattr(measure, "measure_core_seconds", run)
    monkeypatch.setattr(measure, "_RUN_RAW_BYTES", most)
    monkeypatch.setattr("l3dali.datasets.liquid.host.usable_cores", lambda: 2.0)
    measure_profile([str(folder / "photos")], seconds=60, quiet=True)
    assert batches == {batch}


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
    assert "11 images of the sample cannot be read" in told
    assert "l3: and 1 more\n" in told
    assert len(read_profile(output).samples) == 10


def test_a_shard_that_cannot_be_read_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_tar(tmp_path / "s" / "b.tar", members(1)).parent
    write_bad_shard(source / "a.tar")
    rng = np.random.default_rng(0)
    found = open_dataset([str(source)], Options(), samples=4, seconds=60, rng=rng)
    assert [failure.path for failure in found.failures] == ["a.tar"]
    assert "b.tar: 0000.png" in [each.name for each in found.candidates]
    output = tmp_path / "p.json"
    assert main(["profile", str(source), "-o", str(output), "--seconds", "60"]) == 2
    assert "\na.tar: a pax header with a number of" in capsys.readouterr().err
    assert read_profile(output).images == 1
    (source / "b.tar").unlink()
    assert main(["profile", str(source), "-o", str(output), "--overwrite"]) == 2
    assert "; a.tar: a pax header with a number of" in capsys.readouterr().err


def test_a_shard_of_empty_images(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tar(folder / "a.tar", [(f"{i}.png", b"") for i in range(900)])
    output = folder.parent / "p.json"
    assert main(["profile", str(folder), "-o", str(output), "--seconds", "60"]) in (0, 2)
    assert read_profile(output).images >= len(list(folder.glob("*.png")))


def test_no_profile_replaces_the_program_of_its_step(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = folder.parent / "train.py"
    program.write_text("def step():\n    pass\n")
    options = ["--step", f"{program}:step", "--step-images", "8", "--overwrite"]
    assert main(["profile", str(folder), "-o", str(program), *options]) == 2
    assert "train.py" in capsys.readouterr().err
    assert program.read_text().startswith("def step")


def test_empty_files_and_l3_files_are_told_of(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty.png").write_bytes(b"")
    (folder / "none.tar").write_bytes(b"")
    (folder / "a.l3").write_bytes(codec.encode(image()))
    PIL.Image.fromarray(image()).quantize(9).save(folder / "palette.png")
    output = folder.parent / "p.json"
    assert main(["profile", str(folder), "-o", str(output), "--seconds", "60"]) == 0
    told = capsys.readouterr().err
    assert "empty files passed over: 2" in told
    assert "L3 files passed over: 1; plans are for originals" in told
    assert "palette images of the sample that become colours: 1; --labels keeps" in told
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
    assert "--labels mask/*: no image is so named" in capsys.readouterr().err
    assert main([*command, "--labels", "masks/*"]) == 0
    assert "l3: --labels 'mask/*' named no image\n" in capsys.readouterr().err
    rng = np.random.default_rng(0)
    both = [str(folder / name) for name in ("photos", "masks")]  # as l3 convert names their files
    found = open_dataset(both, Options(labels=("masks/*",)), samples=8, seconds=60, rng=rng)
    assert sum(each.is_labels for each in found.candidates) == 4
    source = write_tar(folder.parent / "s" / "a.tar", members(1)).parent
    options = Options(labels=("_seg.png", ".png"))
    found = open_dataset([str(source)], options, samples=4, seconds=60, rng=rng)
    assert found.notes == ["--labels '_seg.png' named none of the images that were looked at"]


@pytest.mark.parametrize(
    ("group", "mode", "format", "how"),
    [
        ("webp 3", "RGB", "WEBP", {}),
        ("webp 3", "RGB", "WEBP", {"lossless": True}),
        ("webp 3", "RGB", "WEBP", {"icc_profile": b"profile"}),  # VP8X
        ("webp 4", "RGBA", "WEBP", {}),
        ("webp 4", "RGBA", "WEBP", {"lossless": True}),
        ("bmp 3", "RGB", "BMP", {}),
        ("bmp 3", "P", "BMP", {}),
        ("bmp 1", "L", "BMP", {}),
        ("bmp 1", "1", "BMP", {}),
    ],
)
def test_groups_have_the_bytes_of_a_pixel(
    group: str, mode: str, format: str, how: dict[str, Any]
) -> None:
    picture = PIL.Image.fromarray(image(channels=4))
    picture.putalpha(picture.getchannel(0))
    file = io.BytesIO()
    picture.convert(mode).save(file, format, **how)
    data = file.getvalue()
    assert group_of(data, read_header(data)) == group
    assert read_picture(data).pixels[0, 0].size == int(group[-1])


def test_a_data_set_of_l3_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.l3").write_bytes(codec.encode(image()))
    assert main(["profile", str(tmp_path), "-o", str(tmp_path / "p.json")]) == 2
    assert "has L3 files alone; plans are for originals. l3 convert --to png" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no such file or folder"),
        (["empty"], "no images found in the data set named; read are .bmp .j2k .jp2"),
        (["gif"], "images among the files there: 1 .gif; make PNG of them first"),
        (["set", "--disk", "0MB/s"], "is no rate"),
        (["set", "--disk=-5MB/s"], "is no rate"),
        (["set", "--disk", "nan"], "is no rate"),
        (["set", "--disk", "fast"], "is no rate"),
        (["set", "--network", "1e99"], "is no rate"),
        (["set", "--upload", "1B/s"], "is no rate"),
        (["set", "--cores", "0"], "not a positive number"),
        (["set", "--cores", "nan"], "not a positive number"),
        (["set", "--train-rate", "-1"], "not a positive number"),
        (["set", "--seconds", "inf"], "not a positive number"),
        (["set", "--samples", "0"], "not a positive number"),
        (["set", "-o", "there.json"], "--overwrite replaces it"),
        (["set", "-o", "set/a.png", "--overwrite"], "this is the name of an image or a shard"),
        (["set", "-o", "a.tar", "--overwrite"], "this is the name of an image or a shard"),
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
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder.parent)
    assert main(["profile", str(folder), *FAST]) == 0
    Path("profile.json").write_text("older")
    assert main(["profile", str(folder), *FAST, "-o", "profile.json", "--overwrite"]) == 0
    assert read_profile("profile.json").images == 10
    capsys.readouterr()
    assert main(["profile", str(folder), *FAST, "-o", "-"]) == 0
    assert parse_profile(capsys.readouterr().out).images == 10
    os.mkfifo("pipe.json")
    reader = os.open("pipe.json", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert main(["profile", str(folder), *FAST, "-o", "pipe.json", "--overwrite"]) == 0
        assert parse_profile(os.read(reader, 65536).decode()).images == 10
    finally:
        os.close(reader)
    assert Path("pipe.json").is_fifo()


def test_interrupted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> float:
        raise KeyboardInterrupt

    monkeypatch.chdir(folder.parent)
    monkeypatch.setattr(decoding, "_measure", interrupt)
    assert main(["profile", str(folder), *FAST]) == 130
    assert sorted(path.name for path in Path().iterdir()) == ["set"]


# The sample.


def test_fingerprint_knows_files_of_one_name_in_two_folders(tmp_path: Path) -> None:
    for name in ("train", "val"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(b"png")
    folders = [str(tmp_path / "train"), str(tmp_path / "val")]
    before = fingerprint(find_sources(folders))
    (tmp_path / "val" / "1.png").unlink()
    assert fingerprint(find_sources(folders)) != before


def test_fingerprint_is_of_names_and_sizes(folder: Path) -> None:
    before = fingerprint(find_sources([str(folder)]))
    moved = folder.rename(folder.with_name("moved"))
    assert fingerprint(find_sources([str(moved)])) == before
    (moved / "notes.txt").write_text("longer than before")
    assert fingerprint(find_sources([str(moved)])) != before


def test_weights_of_a_sample_add_up(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for i in range(90):
        size = int(rng.integers(4, 60))
        pixels = rng.integers(0, 256, (size, size, 3 if i % 9 else 1), np.uint8).squeeze()
        write_png(tmp_path / f"{i:02}.png", pixels)
    found = open_dataset([str(tmp_path)], Options(), samples=30, seconds=9, rng=rng)
    drawn = draw(found.candidates, 30, rng)
    strata = {each.stratum for each in found.candidates}
    assert len(strata) == 2
    assert sum(each.weight for each in drawn) == 90
    for stratum, count in (("png gray 8", 10), ("png rgb 8", 80)):
        assert sum(each.weight for each in drawn if each.stratum == stratum) == count
    # By size: the means of bytes agree far better than those of a random sample would.
    mean = sum(each.size for each in found.candidates) / 90
    assert sum(each.size * each.weight for each in drawn) / 90 == pytest.approx(mean, rel=0.1)
    # The beginning has all strata.
    assert {each.stratum for each in drawn[:10]} == strata


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


def test_what_is_passed_over_is_counted(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", members(3))
    (tmp_path / "empty.png").write_bytes(b"")
    for name in ("a.txt", "b.json", "c.gif"):
        (tmp_path / name).write_bytes(b"no image")
    rng = np.random.default_rng(1)
    found = open_dataset([str(tmp_path)], Options(), samples=2, seconds=9, rng=rng)
    assert "files that are no images passed over: 3" in found.notes
    assert "empty files passed over: 1" in found.notes


# Fits.


def test_fit_finds_what_made_the_values() -> None:
    rng = np.random.default_rng(1)
    pixels = rng.integers(1_000, 1_000_000, 60)
    sizes = (pixels * rng.uniform(0.5, 2, 60)).astype(int)
    values = 1e-5 + 3e-9 * sizes + 8e-9 * pixels
    fit = fit_linear(sizes.tolist(), pixels.tolist(), values.tolist())
    assert (fit.base, fit.per_byte, fit.per_pixel) == pytest.approx((1e-5, 3e-9, 8e-9), rel=1e-3)
    assert fit.error < 1e-3


def test_fit_predicts_the_mean_of_noisy_values() -> None:
    rng = np.random.default_rng(1)
    pixels = np.full(4000, 1000.0)
    pixels[::2] = 5000
    values = pixels * rng.lognormal(0, 0.5, 4000)
    fit = fit_linear(pixels.tolist(), pixels.tolist(), values.tolist())
    assert fit(3000, 3000) == pytest.approx(3000 * np.mean(values / pixels), rel=0.05)
    assert 0.2 < fit.error < 0.5


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
    assert fit.error == (UNKNOWN_ERROR if len(sizes) == 1 else pytest.approx(fit.error))
    assert min(fit.base, fit.per_byte, fit.per_pixel) >= 0


def test_same_size_is_per_pixel() -> None:
    """What hardly varies says nothing of a base: other images cost by their pixels."""
    assert fit_linear([10.0] * 4, [20.0] * 4, [3.0] * 4).per_pixel == pytest.approx(3 / 20)


def test_few_images_borrow() -> None:
    large = [sample(pixels, rans=pixels) for pixels in range(1000, 11000, 500)]
    few = [sample(2000, "png rgba 8", rans=4000), sample(4000, "png rgba 8", rans=8000)]
    deep = [sample(2000, "png rgb 16", rans=5000)]
    fits = fit_groups([*large, *few, *deep])
    assert {name: each.borrowed for name, each in fits.items()} == {
        "png rgb 8": "",
        "png rgba 8": "png rgb 8",
        "png rgb 16": "",
    }
    borrowed = fits["png rgba 8"]
    assert borrowed.sizes["rans"](6000, 3000) == pytest.approx(6000, rel=1e-3)  # twice as many
    assert borrowed.sizes["source"] == Linear(per_byte=1.0)
    assert borrowed.images == 2


def test_the_table_names_who_lends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = [sample(1000 + 10 * i, "png rgb 8", rans=500 + 5 * i) for i in range(12)]
    samples.append(sample(2000, "jpeg 3", rans=900))
    lent = profile(samples=samples, groups=fit_groups(samples), images=13)
    _print(lent, to_errors=False)
    shown = capsys.readouterr().out
    assert "jpeg 3: 1 (1 measured; costs as png rgb 8)" in shown
    assert "13 images, 13 measured" in shown


def test_what_one_image_and_no_gpu_cannot_say(capsys: pytest.CaptureFixture[str]) -> None:
    samples = [sample(1000, "png rgb 8", rans=500)]
    one = profile(samples=samples, groups=fit_groups(samples), images=1, training=Training(9.0))
    _print(one, to_errors=False)
    shown = capsys.readouterr().out
    assert "100.0%" not in shown
    assert "1 image, 1 measured" in shown
    assert "training: 9 images/s\n" in shown


def test_sources_of_another_format_do_not_lend() -> None:
    large = [sample(pixels, rans=pixels) for pixels in range(1000, 11000, 500)]
    one = sample(2000, "tiff 3", rans=2000, source=7777)
    fits = fit_groups([*large, one])["tiff 3"]
    assert fits.borrowed == "png rgb 8"
    assert fits.cpu_seconds["source@cpu"](7777, 2000) == pytest.approx(7777e-9)


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
    assert parse_rate(text) == rate


def test_reading(folder: Path) -> None:
    there = open_folder(str(folder))
    files = [(there, each) for each in there.list_files().files.values()]
    reading = measure_reading(files, 5, np.random.default_rng(1))
    assert reading.rate > 0
    assert reading.cpu_seconds(1000, 0) > 0
    assert any("MB only, so it is not reliable: give it by --disk" in n for n in reading.notes)
    (folder / "deep.png").unlink()
    gone = [each for each in files if each[1].name == "deep.png"]
    with pytest.raises(OSError, match="No such file"):
        measure_reading(gone, 5, np.random.default_rng(1))


def test_a_pipe_that_was_a_file_is_not_waited_for(folder: Path) -> None:
    there = open_folder(str(folder))
    files = [(there, each) for each in there.list_files().files.values()]
    (folder / "deep.png").unlink()
    os.mkfifo(folder / "deep.png")
    gone = [each for each in files if each[1].name == "deep.png"]
    with pytest.raises(OSError, match="not a file"):
        measure_reading(gone, 5, np.random.default_rng(1))


def test_files_of_one_size_cost_by_the_file(tmp_path: Path) -> None:
    """What a small file costs says nothing of the bytes of a large one."""
    for i in range(20):
        (tmp_path / f"{i}.png").write_bytes(bytes(100))
    there = open_folder(str(tmp_path))
    files = [(there, each) for each in there.list_files().files.values()]
    cost = measure_reading(files, 5, np.random.default_rng(1)).cpu_seconds
    assert cost(10**6, 0) == pytest.approx(cost(100, 0) + 4e-10 * (10**6 - 100))


def test_cores() -> None:
    assert usable_cores() > 0


def test_given_numbers_are_checked() -> None:
    for bad in (0.0, -1.0, math.nan):
        with pytest.raises(UsageError, match="disk is"):
            Given(disk=bad)


def test_measure_step() -> None:
    calls: list[str] = []

    def step() -> None:
        calls.append("step")
        time.sleep(1e-3)

    alone = measure_step(step, 8, seconds=0.05)
    assert alone.samples_per_second > 0
    assert alone.gpu_share == 0
    beside = measure_step(
        step, 8, decode=lambda: calls.append("decode"), decoded_images=2, seconds=0.05
    )
    assert 0 <= beside.gpu_share <= 1
    assert "decode" in calls
    with pytest.raises(ValueError, match="above 0"):
        measure_step(step, 0)

    def fail() -> None:
        if len(calls) > 50:
            raise RuntimeError("no frame")
        calls.append("decode")

    with pytest.raises(RuntimeError, match="no frame"):
        measure_step(step, 8, decode=fail, seconds=0.05)


# Profile files.


def test_round_trip() -> None:
    whole = profile(notes=["a note"], made={"machine": "this"})
    assert parse_profile(whole.to_json()) == whole


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
        ("", "no whole JSON"),
        (profile().to_json()[:200], "no whole JSON"),
        ("[" * 100_000, "no whole JSON"),
        ("[]", "this is no profile; l3 profile makes one"),
        ("{}", "this is no profile; l3 profile makes one"),
        (changed("format", to=["l3-plan"]), "this is no profile"),
        (changed("format", to="l3-plan"), "this is a plan, not a profile; l3 profile makes one"),
        (changed("version", to=2), "version 2"),
        (changed("host", to=3), "host is int, not an object"),
        (changed("host", to={}), "host.cores is missing"),
        (changed("host", "cores", to=0), "host.cores is 0"),
        (changed("host", "disk", to=5e-324), "host.disk is 0"),
        (changed("host", "cores", to=True), "host.cores is bool"),
        (changed("host", "cores", to="2"), "host.cores is str"),
        (changed("host", "disk", to=-1.0), "host.disk is -1"),
        (changed("host", "disk", to=math.nan), "host.disk is nan"),
        (changed("host", "disk", to=10**400), "a number from 0"),
        (changed("host", "efficiency", to=1.5), "host.efficiency is 1.5, above 1"),
        (changed("host", "speed", to=1), "host.speed is not known"),
        (changed("training", to={"samples_per_second": 0}), "training.samples_per_second is 0"),
        (changed("images", to=0), "it has no images"),
        (changed("images", to=1.5), "images is float, not int"),
        (changed("samples", to=[]), "it has no images"),
        (changed("samples", 0, "group", to="b"), "samples[0].group is 'b'"),
        (changed("samples", 0, "weight", to=0), "samples[0] has no pixels"),
        (changed("samples", 0, "sizes", to={"source": 1, "zip": 1}), "unknown format 'zip'"),
        (changed("samples", 0, "sizes", to={"rans": 1}), "samples[0].sizes has no 'source'"),
        (
            changed("samples", 0, "weight", to=math.inf),
            "samples[0].weight is inf",
        ),
        (changed("samples", 0, "raw_bytes", to=2**34 + 1), "samples[0].raw_bytes is 17179869185"),
        (changed("samples", 0, "pixels", to=2**31 + 1), "samples[0].pixels is 2147483649, above"),
        (changed(*GROUP, "cpu_seconds", to={"rans": {}}), "costs of the unknown 'rans'"),
        (changed(*GROUP, "sizes", "source", to={"base": -1}), "sizes['source'].base is -1"),
    ],
)
def test_damaged_profiles(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        read_profile(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_long_name_costs_what_is_below_it_little(tmp_path: Path) -> None:
    """It stood in the name of each: 1.9 MB took 17 s, 16 MB 20 minutes."""
    data = json.loads(changed(*GROUP, "sizes", to={str(i): {} for i in range(50_000)}))
    data["groups"] = {"x" * 10**7: data["groups"][GROUP[1]]}
    path = tmp_path / "p.json"
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match="groups"):
        read_profile(path)


def test_missing_profile(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_profile(tmp_path / "none.json")


def test_scipy_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(UsageError, match=r"a profile needs .*: pip install scipy"):
        fit_linear([1.0, 2.0], [1.0, 2.0], [1.0, 2.0])


def test_example_of_the_docs() -> None:
    text = (ROOT / "docs" / "liquid.md").read_text()
    (code,) = re.findall(r"^## Profile\n(?:(?!## ).*\n)*?```python\n([^`]*)```", text, re.MULTILINE)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("images/s\n")


@pytest.mark.parametrize("group", ["jpeg 3", "png palette 8 labels", "tiff 6", "odd", ""])
def test_few_images_of_any_group(group: str) -> None:
    many = [sample(1000 + 10 * i, "png rgb 8", rans=500 + 5 * i) for i in range(12)]
    fits = fit_groups([*many, sample(2000, group, rans=900)])
    assert fits[group].borrowed == ("png rgb 8" if group in ("jpeg 3", "odd", "") else "")


def test_absurd_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(tmp_path), "--seed=-1"]) == 2
    assert "not a number from 0" in capsys.readouterr().err
    text = profile().to_json()
    for value in ("1e19", "1" + "0" * 400, "NaN"):
        with pytest.raises(UsageError, match="images is"):
            parse_profile(text.replace('"images": 1,', f'"images": {value},', 1))
