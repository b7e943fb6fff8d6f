"""Coding "jpeg": smaller than JPEG files, which come back byte for byte."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import l3dali
from l3dali.cli import main


def jpeg(seed: int = 1, mode: str = "RGB", side: int = 300, **options: Any) -> bytes:
    y, x = np.mgrid[:side, : side + 40]
    noise = np.random.default_rng(seed).normal(0, 9, (side, side + 40, 3))
    base = 128 + 70 * np.sin(x / 19) + 40 * np.cos(y / 27)
    image = Image.fromarray((base[..., None] + noise).clip(0, 255).astype(np.uint8))
    file = io.BytesIO()
    image.convert(mode).save(file, "JPEG", **options)
    return file.getvalue()


def pixels(data: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(data)))


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}], ids=str)
def test_transcode_restores_the_file(mode: str, options: dict[str, Any]) -> None:
    data = jpeg(mode=mode, **options)
    encoded = l3dali.transcode(data)
    assert len(encoded) < len(data)
    assert l3dali.restore_jpeg(encoded) == data
    assert np.array_equal(l3dali.decode(encoded), pixels(data))
    info = l3dali.info(encoded)
    assert info.restores_jpeg
    assert info.codings is not None
    assert info.codings["jpeg"] == info.tile_count


def test_metadata_is_stored_once_and_found() -> None:
    exif = Image.Exif()
    exif[274] = 6
    exif[270] = "text " * 200
    profile = bytes(np.random.default_rng(2).integers(0, 256, 5000, np.uint8))
    data = jpeg(exif=exif, icc_profile=profile)
    encoded = l3dali.transcode(data, coding="jpeg")
    info = l3dali.info(encoded)
    assert info.icc == profile
    assert info.exif == exif.tobytes()[6:]
    assert encoded.count(profile) == 1
    assert l3dali.restore_jpeg(encoded) == data


def test_other_images_and_changed_pixels_are_rans() -> None:
    png = io.BytesIO()
    Image.fromarray(pixels(jpeg())).save(png, "PNG")
    for data, side in ((png.getvalue(), None), (jpeg(), 100)):
        encoded = l3dali.transcode(data, max_side=side)
        assert not l3dali.info(encoded).restores_jpeg
        with pytest.raises(ValueError, match="holds pixels alone"):
            l3dali.restore_jpeg(encoded)


def test_refused_files_say_why() -> None:
    data = jpeg().replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc9\x00\x11\x08", 1)
    with pytest.raises(l3dali.ImageError, match="jpeg: it is arithmetic-coded; coding rans"):
        l3dali.transcode(data, coding="jpeg")


def of_unsupported_sampling() -> bytes:
    data = jpeg(9, side=120, subsampling="4:2:0")
    frame = data.index(b"\xff\xc0")
    return data[: frame + 11] + b"\x41" + data[frame + 12 :]  # 4:1:1


def test_the_default_stores_pixels_of_refused_files() -> None:
    data = of_unsupported_sampling()
    assert np.array_equal(l3dali.decode(l3dali.transcode(data)), pixels(data))


def test_damaged_restore_data_is_an_error() -> None:
    encoded = bytearray(l3dali.transcode(jpeg(), coding="jpeg"))
    encoded[encoded.index(b"JFIF")] ^= 1
    with pytest.raises(l3dali.L3Error):
        l3dali.restore_jpeg(bytes(encoded))


def test_commands_keep_file_and_suffix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "a.JPEG"
    source.write_bytes(jpeg())
    assert main(["encode", str(source), "-q", "-o", str(tmp_path / "a.l3")]) == 0
    assert main(["info", str(tmp_path / "a.l3")]) == 0
    assert "comes back byte for byte" in capsys.readouterr().out
    (tmp_path / "out").mkdir()
    assert main(["decode", str(tmp_path / "a.l3"), "-q", "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out/a.JPEG").read_bytes() == source.read_bytes()
    assert main(["decode", str(tmp_path / "a.l3"), "-q", "--format", "png"]) == 0
    assert np.array_equal(pixels((tmp_path / "a.png").read_bytes()), pixels(source.read_bytes()))


def test_convert_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for i in range(4):
        (source / f"{i}.jpg").write_bytes(jpeg(i))
    (source / "4.JPEG").write_bytes(jpeg(4, progressive=True))
    Image.fromarray(pixels(jpeg())).save(source / "5.png")
    (source / "6.jpg").write_bytes(jpeg(6, side=100)[:-2])  # truncated
    l3, back = tmp_path / "l3", tmp_path / "back"
    run = ["convert", str(source), str(l3), "--on-error", "keep"]
    main(run)
    capsys.readouterr()
    names = {path.name for path in l3.iterdir()}
    assert {f"{i}.l3" for i in range(6)} <= names
    for i in range(5):
        assert l3dali.info(l3 / f"{i}.l3").restores_jpeg
    assert main(["verify", str(l3)]) == 0
    main(["convert", str(l3), str(back), "--to", "source"])
    for path in source.glob("[0-4].*"):
        assert (back / path.name).read_bytes() == path.read_bytes()


def test_refused_files_become_pixels_while_the_set_shrinks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = of_unsupported_sampling()
    for share, expected in ((6, "pixels"), (0, "kept")):
        source = tmp_path / f"source{share}"
        source.mkdir()
        for i in range(share):
            (source / f"{i}.jpg").write_bytes(jpeg(i, side=600))
        (source / "odd.jpg").write_bytes(odd)
        target = tmp_path / f"l3{share}"
        assert main(["convert", str(source), str(target)]) == 0
        text = capsys.readouterr()
        assert f"{expected}" in text.out + text.err
        assert "since its sampling" in text.out + text.err
        assert (target / ("odd.l3" if share else "odd.jpg")).exists()
        assert main(["convert", str(source), str(target)]) == 0
        assert "nothing to do" in capsys.readouterr().out


def picture_only() -> bytes:
    """A file whose bits before markers are ones and zeros: only its picture can be kept."""
    data = jpeg(restart_marker_blocks=4)
    for place in range(data.index(b"\xff\xda"), len(data) - 1):
        if data[place] == 0xFF and 0xD0 <= data[place + 1] <= 0xD7 and data[place - 1] != 0:
            changed = data[: place - 1] + bytes([data[place - 1] & 0xFE]) + data[place:]
            if np.array_equal(pixels(changed), pixels(data)):  # the bit was no value's
                return changed
    raise AssertionError("each marker follows a whole byte")


def test_picture_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = picture_only()
    encoded = l3dali.transcode(data, coding="jpeg")
    info = l3dali.info(encoded)
    assert info.codings is not None
    assert info.codings["jpeg"] == info.tile_count
    assert not info.restores_jpeg
    assert np.array_equal(l3dali.decode(encoded), pixels(data))
    with pytest.raises(ValueError, match="holds pixels alone"):
        l3dali.restore_jpeg(encoded)

    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.jpg").write_bytes(data)
    (tmp_path / "source/b.jpg").write_bytes(jpeg())
    l3, back = tmp_path / "l3", tmp_path / "back"
    assert main(["convert", str(tmp_path / "source"), str(l3), "--coding", "jpeg"]) == 0
    text = capsys.readouterr()
    assert "JPEG files of which only the picture comes back: 1 image" in text.out + text.err
    assert main(["info", str(l3 / "a.l3")]) == 0
    assert "only the picture comes back" in capsys.readouterr().out
    assert main(["convert", str(l3), str(back), "--to", "source"]) == 0
    assert (back / "b.jpg").read_bytes() == jpeg()
    assert np.array_equal(pixels((back / "a.png").read_bytes()), pixels(data))


def test_sets_of_1_0_0_are_not_converted_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "source", tmp_path / "l3"
    source.mkdir()
    (source / "0.jpg").write_bytes(jpeg())
    Image.fromarray(pixels(jpeg())).save(source / "1.png")
    run = ["convert", str(source), str(target)]
    assert main([*run, "--coding", "rans", "--grow"]) == 0
    manifest = next(path for path in target.iterdir() if path.suffix != ".l3")
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    for row in rows:  # As 1.0.0 wrote it.
        row["version"] = "1.0.0"
        options = "effort=5 labels= on-error=keep max-pixels=268435456"
        assert row["options"] == f"to=l3 coding=rans {options}"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    before = {path.name: path.stat().st_mtime_ns for path in target.glob("*.l3")}
    capsys.readouterr()
    assert main(run) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert before == {path.name: path.stat().st_mtime_ns for path in target.glob("*.l3")}
    assert main([*run, "--coding", "jpeg"]) == 0
    assert "coding was rans, is jpeg" in capsys.readouterr().err
    assert l3dali.info(target / "0.l3").restores_jpeg
    assert main(run) == 0
    assert "nothing to do" in capsys.readouterr().out
