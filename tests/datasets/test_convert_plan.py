"""`l3 convert --plan`: each image in its own format, in all containers, and planned anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from convert_tools import (
    Members,
    convert,
    files_below,
    image,
    make_plan,
    png,
    read_tar,
    rows_of,
    samples,
    save,
    write_tar,
)

pytest.importorskip("scipy")

import l3dali
from l3dali.cli import main
from l3dali.datasets.convert.conversion import choose_format
from l3dali.datasets.convert.images import Blob, Options
from l3dali.datasets.liquid.plan import Plan
from l3dali.datasets.liquid.profile import SOURCE

MIX = {SOURCE: 0.3, "rans": 0.3, "packed": 0.2, "stored": 0.2}


def make_folder(folder: Path, count: int = 40) -> Path:
    (folder / "a").mkdir(parents=True)
    for i in range(count):
        (folder / "a" / f"{i:02}.png").write_bytes(png(i))
    (folder / "labels.json").write_bytes(b"{}")
    return folder


def format_of(data: bytes) -> str:
    """What an image is stored as."""
    if data.startswith(b"\x89PNG"):
        return SOURCE
    codings = l3dali.info(data).codings
    assert codings is not None
    return max(codings, key=lambda name: codings[name])


def chosen(plan: Plan, name: str, data: bytes) -> str:
    return choose_format(Blob(name, data, name), Options(plan=plan))


def test_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, dest = make_folder(tmp_path / "s"), tmp_path / "d"
    (source / "gray.png").write_bytes(png(99, channels=1))
    plan = make_plan(source, MIX)
    assert convert(source, dest, "--plan", save(plan, tmp_path / "plan.json")) == 0
    counts = dict.fromkeys(MIX, 0)
    for i in range(40):
        name = f"a/{i:02}.png"
        wanted = chosen(plan, name, png(i))
        counts[wanted] += 1
        result = dest / (name if wanted == SOURCE else f"a/{i:02}.l3")
        assert (dest / f"a/{i:02}.l3").exists() == (wanted != SOURCE)
        assert (dest / name).exists() == (wanted == SOURCE)
        if wanted == SOURCE:
            assert result.read_bytes() == png(i)
        else:
            assert np.array_equal(l3dali.imread(result), image(i))
            assert format_of(result.read_bytes()) in (wanted, "constant")
    assert min(counts.values()) > 0
    assert (dest / "gray.png").read_bytes() == png(99, channels=1)
    said = capsys.readouterr()
    stored: dict[str, int] = {}
    for row in rows_of(dest).values():
        for name, count in row.stored.items():
            stored[name] = stored.get(name, 0) + count
    counts[SOURCE] += 1  # the gray one
    assert stored == counts
    printed = said.out.replace("\n", " ")
    for name, count in counts.items():
        assert f"{count} {name}" in printed
    assert convert(source, dest, "--plan", tmp_path / "plan.json") == 0
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["tar", "tfrecord"])
def test_shards(tmp_path: Path, kind: str) -> None:
    source, dest = tmp_path / "s", tmp_path / "d"
    if kind == "tar":
        write_tar(source / "a.tar", samples(30))
    else:
        write_records(source / "a.tfrecord", [png(i) for i in range(30)])
    plan = make_plan(source, MIX)
    assert convert(source, dest, "--plan", save(plan, tmp_path / "plan.json")) == 0
    row = rows_of(dest)[f"a.{kind}"]
    assert row.stored.keys() == MIX.keys()
    assert sum(row.stored.values()) == 30
    assert (dest / "a.idx").exists()
    if kind == "tfrecord":
        found = [format_of(data) for data in read_records(dest / "a.tfrecord")]
        assert {name: found.count(name) for name in MIX} == row.stored
        return
    before, after = read_tar(source / "a.tar"), read_tar(dest / "a.tar")
    for (old_name, old, *old_rest), (name, data, *rest) in zip(before, after, strict=True):
        assert rest == old_rest
        if not old_name.endswith(".png"):
            assert (name, data) == (old_name, old)
            continue
        wanted = chosen(plan, old_name, old)
        assert name == (old_name if wanted == SOURCE else old_name.replace(".png", ".l3"))
        assert format_of(data) in (wanted, "constant")
        if wanted == SOURCE:
            assert data == old


def write_records(path: Path, images: list[bytes]) -> None:
    tfrecord = pytest.importorskip("tfrecord")
    pytest.importorskip("crc32c")
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = tfrecord.TFRecordWriter(str(path))
    for data in images:
        writer.write({"image": (data, "byte")})
    writer.close()


def read_records(path: Path) -> list[bytes]:
    import tfrecord

    loader = tfrecord.tfrecord_loader(str(path), None, {"image": "byte"})
    return [bytes(record["image"]) for record in loader]


@pytest.mark.parametrize("container", ["folder", "tar"])
@pytest.mark.parametrize("choice", ["fail", "keep", "drop"])
def test_damage_of_originals_that_stay_is_seen(
    tmp_path: Path, container: str, choice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The header is sound, the pixels are not."""
    source, dest = tmp_path / "s", tmp_path / "d"
    files = [("0.png", png(0)), ("1.png", png(1)[:200])]
    if container == "tar":
        write_tar(source / "a.tar", files)
    else:
        source.mkdir()
        for name, data in files:
            (source / name).write_bytes(data)
    path = save(make_plan(source, {SOURCE: 1.0}), tmp_path / "plan.json")
    assert convert(source, dest, "--plan", path, "--on-error", choice) == 2
    assert "1.png: cannot be read" in capsys.readouterr().err
    if choice == "keep":
        wanted = {"a.tar", "a.idx"} if container == "tar" else {"0.png", "1.png"}
    else:
        is_whole = container == "tar" and choice == "fail"
        wanted = set() if is_whole else {"a.tar", "a.idx"} if container == "tar" else {"0.png"}
    assert files_below(dest) == wanted


def test_a_plan_holds_for_files_that_are_new(tmp_path: Path) -> None:
    source, dest = make_folder(tmp_path / "s", 3), tmp_path / "d"
    path = save(make_plan(source, {"rans": 1.0}), tmp_path / "plan.json")
    (source / "new.png").write_bytes(png(7))
    assert convert(source, dest, "--plan", path) == 0
    assert rows_of(dest)["new.png"].stored == {"rans": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a complete JSON file"),
        ('{"format": "l3-profile", "version": 1}', "not a plan"),
        ('{"format": "l3-plan", "version": 2}', "version 2"),
        ('{"format": "l3-plan", "version": 1, "images": -1}', "missing"),
    ],
)
def test_a_damaged_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    source, path = make_folder(tmp_path / "s", 1), tmp_path / "plan.json"
    path.write_text(text)
    assert convert(source, tmp_path / "d", "--plan", path) == 2
    told = capsys.readouterr().err
    assert "plan.json" in told
    if text.endswith("-1}"):
        assert "images is -1" in told or "missing" in told
    else:
        assert said in told
    assert not (tmp_path / "d").exists()


def test_damaged_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, dest = make_folder(tmp_path / "s", 2), tmp_path / "d"
    (source / "cut.png").write_bytes(png(3)[:-40])
    (source / "no_header.png").write_bytes(png(4)[:20])
    path = save(make_plan(source, {"rans": 1.0}), tmp_path / "plan.json")
    assert convert(source, dest, "--plan", path) == 2
    told = capsys.readouterr().err
    for name in ("cut.png", "no_header.png"):
        assert name in told
        assert (dest / name).read_bytes() == (source / name).read_bytes()
    assert (dest / "a" / "00.l3").exists()


def test_sources_that_are_lossy_are_not_refused(tmp_path: Path) -> None:
    source, dest = tmp_path / "s", tmp_path / "d"
    source.mkdir()
    (source / "a.jpg").write_bytes(imagecodecs.jpeg8_encode(image(1), level=90))
    path = save(make_plan(source, {"packed": 1.0}, "jpeg 3"), tmp_path / "plan.json")
    assert convert(source, dest, "--plan", path) == 0
    assert files_below(dest) == {"a.l3"}


def test_jpeg_files_come_back_and_others_get_other_formats(tmp_path: Path) -> None:
    source, dest = make_folder(tmp_path / "s", 2), tmp_path / "d"
    (source / "a.jpg").write_bytes(imagecodecs.jpeg8_encode(image(1), level=90))
    refused = imagecodecs.jpeg8_encode(np.zeros((40, 40, 3), np.uint8), optimize=True)
    (source / "b.jpg").write_bytes(refused)
    plan = make_plan(source, {"jpeg": 1.0}, "jpeg 3")
    groups = {"jpeg 3 refused": {"packed": 1.0}, "png rgb 8": {"rans": 1.0}}
    for group, shares in groups.items():
        plan.groups.update(make_plan(source, shares, group).groups)
    plan = replace(plan, candidates=["jpeg", "packed", "rans"])
    assert convert(source, dest, "--plan", save(plan, tmp_path / "plan.json")) == 0
    rows = rows_of(dest)
    assert [rows[name].stored for name in ("a.jpg", "b.jpg", "a/00.png")] == [
        {"jpeg": 1},
        {"packed": 1},
        {"rans": 1},
    ]
    assert l3dali.restore_jpeg((dest / "a.l3").read_bytes()) == (source / "a.jpg").read_bytes()
    # A profile without such files: they stay.
    path = save(make_plan(source, {"jpeg": 1.0}, "jpeg 3"), tmp_path / "seen.json")
    assert convert(source, tmp_path / "e", "--plan", path) == 0
    assert (tmp_path / "e" / "b.jpg").read_bytes() == refused


@pytest.mark.dali
def test_dali_reads_a_mixed_shard(tmp_path: Path) -> None:
    from dali_tools import pipeline, unpack
    from nvidia.dali import fn

    import l3dali.pipeline

    members: Members = samples(12)
    source = write_tar(tmp_path / "s" / "a.tar", members)
    plan = save(make_plan(source.parent, MIX), tmp_path / "plan.json")
    dest = tmp_path / "d"
    assert convert(source.parent, dest, "--plan", plan) == 0
    assert len(rows_of(dest)["a.tar"].stored) > 1

    def define() -> Any:
        encoded, label = fn.readers.webdataset(
            paths=str(dest / "a.tar"), index_paths=str(dest / "a.idx"), ext=["l3;png", "cls"]
        )
        return l3dali.pipeline.decode(encoded), label

    images, labels = pipeline(define, "cpu", 12).run()
    for i, (decoded, label) in enumerate(zip(unpack(images), unpack(labels), strict=True)):
        assert np.array_equal(decoded, image(i))
        assert label.tobytes() == b"%d" % i


def test_label_maps_keep_their_numbers(tmp_path: Path) -> None:
    """Those too that no profile has seen: as palette images, DALI would read their colours."""
    from PIL import Image as PillowImage

    source, dest = make_folder(tmp_path / "s", 2), tmp_path / "d"
    mask = PillowImage.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4) % 5, mode="P")
    mask.putpalette([i * 40 for i in range(5) for _ in range(3)])
    mask.save(source / "mask_seg.png")
    black = PillowImage.fromarray(np.asarray(mask) > 1)  # gray of 1 bit, which DALI scales
    black.save(source / "black_seg.png")
    path = save(make_plan(source, {"packed": 1.0}), tmp_path / "plan.json")
    assert convert(source, dest, "--plan", path, "--labels", "_seg.png") == 0
    assert np.array_equal(l3dali.imread(dest / "mask_seg.l3"), np.asarray(mask))
    assert np.array_equal(l3dali.imread(dest / "black_seg.l3"), np.asarray(black))
    assert main(["verify", str(dest), "--source", str(source)]) == 0
    assert convert(dest, tmp_path / "back", "--to", "source") == 0
    back = PillowImage.open(tmp_path / "back" / "black_seg.png")
    assert np.array_equal(np.asarray(back), np.asarray(black))
