"""`l3 convert --plan`: each image in its own format, in all containers, and planned anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import PIL.Image
import pytest
from convert_tools import (
    Members,
    convert,
    files_below,
    image,
    make_plan,
    palette_picture,
    png,
    read_tar,
    rows_of,
    samples,
    save,
    write_files,
    write_pngs,
    write_tar,
)

pytest.importorskip("scipy")

import l3dali
from l3dali.cli import main
from l3dali.datasets.convert.conversion import choose_format
from l3dali.datasets.convert.images import Blob, Options
from l3dali.datasets.liquid.plan import Plan
from l3dali.datasets.liquid.profile import SOURCE

pytestmark = pytest.mark.usefixtures("in_process")  # as in test_convert_back.py

MIX = {SOURCE: 0.3, "rans": 0.3, "packed": 0.2, "stored": 0.2}


def make_folder(folder: Path, count: int = 40) -> Path:
    write_pngs(folder, *(f"a/{i:02}.png" for i in range(count)))
    return write_files(folder, {"labels.json": b"{}"})


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
    from test_convert_containers import example, find_images, frame, records_of

    source, dest = tmp_path / "s", tmp_path / "d"
    if kind == "tar":
        write_tar(source / "a.tar", samples(30))
    else:
        records = [example(("image", png(i))) for i in range(30)]
        write_files(source, {"a.tfrecord": b"".join(map(frame, records))})
    plan = make_plan(source, MIX)
    assert convert(source, dest, "--plan", save(plan, tmp_path / "plan.json")) == 0
    row = rows_of(dest)[f"a.{kind}"]
    assert row.stored.keys() == MIX.keys()
    assert sum(row.stored.values()) == 30
    assert (dest / "a.idx").exists()
    if kind == "tfrecord":
        found = [
            format_of(data)
            for record in records_of(dest / "a.tfrecord")
            for data in find_images(record, "png") + find_images(record)
        ]
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
        write_files(source, dict(files))
    path = save(make_plan(source, {SOURCE: 1.0}), tmp_path / "plan.json")
    assert convert(source, dest, "--plan", path, "--on-error", choice) == 2
    assert "1.png: cannot be read" in capsys.readouterr().err
    if choice == "keep":
        wanted = {"a.tar", "a.idx"} if container == "tar" else {"0.png", "1.png"}
    else:
        is_whole = container == "tar" and choice == "fail"
        wanted = set() if is_whole else {"a.tar", "a.idx"} if container == "tar" else {"0.png"}
    assert files_below(dest) == wanted


def test_a_damaged_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, path = make_folder(tmp_path / "s", 1), tmp_path / "plan.json"
    path.write_text('{"format": "l3-profile", "version": 1}')
    assert convert(source, tmp_path / "d", "--plan", path) == 2
    assert "plan.json: not a plan but a profile" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


def test_damaged_images(tmp_path: Path) -> None:
    source, dest = make_folder(tmp_path / "s", 2), tmp_path / "d"
    damaged = {"cut.png": png(3)[:-40], "no_header.png": png(4)[:20]}
    write_files(source, damaged)
    path = save(make_plan(source, {"rans": 1.0}), tmp_path / "plan.json")
    assert convert(source, dest, "--plan", path) == 2
    assert {name: (dest / name).read_bytes() for name in damaged} == damaged
    assert (dest / "a" / "00.l3").exists()


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
    source, dest = make_folder(tmp_path / "s", 2), tmp_path / "d"
    mask = palette_picture()
    black = PIL.Image.fromarray(np.asarray(mask) > 1)  # gray of 1 bit, which DALI scales
    mask.save(source / "mask_seg.png")
    black.save(source / "black_seg.png")
    path = save(make_plan(source, {"packed": 1.0}), tmp_path / "plan.json")
    assert convert(source, dest, "--plan", path, "--labels", "_seg.png") == 0
    assert np.array_equal(l3dali.imread(dest / "mask_seg.l3"), np.asarray(mask))
    assert np.array_equal(l3dali.imread(dest / "black_seg.l3"), np.asarray(black))
    assert main(["verify", str(dest), "--source", str(source)]) == 0
    assert convert(dest, tmp_path / "back", "--to", "source") == 0
    back = PIL.Image.open(tmp_path / "back" / "black_seg.png")
    assert np.array_equal(np.asarray(back), np.asarray(black))
