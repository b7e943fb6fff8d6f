"""JPEG files: read, compared with libjpeg's coefficients where it is installed, and restored."""

from __future__ import annotations

import io
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_library import built
from PIL import Image

XMP = b"http://ns.adobe.com/xap/1.0/\0<x:xmpmeta/>"


def picture(width: int = 83, height: int = 61, seed: int = 1) -> Image.Image:
    y, x = np.mgrid[:height, :width]
    noise = np.random.default_rng(seed).normal(0, 15, (height, width, 3))
    base = 128 + 70 * np.sin(x / 9) + 40 * np.cos(y / 7)
    return Image.fromarray((base[..., None] + noise).clip(0, 255).astype(np.uint8))


def jpeg(image: Image.Image | None = None, **options: Any) -> bytes:
    file = io.BytesIO()
    (image or picture()).save(file, "JPEG", **options)
    return file.getvalue()


def segments(data: bytes) -> list[tuple[int, bytes]]:
    """The segments up to the first scan, by marker, and the rest, as marker 0."""
    found, pos = [], 2
    while True:
        marker, size = data[pos + 1], struct.unpack(">H", data[pos + 2 : pos + 4])[0]
        found.append((marker, data[pos : pos + 2 + size]))
        pos += 2 + size
        if marker == 0xDA:
            return [*found, (0, data[pos:])]


def join(parts: list[tuple[int, bytes]]) -> bytes:
    return b"\xff\xd8" + b"".join(part for _, part in parts)


def answer(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "a.jpg"
    path.write_bytes(data)
    run = subprocess.run(
        [built("l3_jpeg_file_test"), path], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimize": True},
        {"progressive": True},
        {"quality": 100},
        {"quality": 1},
        {"restart_marker_blocks": 2},
        {"restart_marker_rows": 1, "progressive": True},
    ],
    ids=str,
)
def test_writers(tmp_path: Path, subsampling: str, options: dict[str, Any]) -> None:
    for width, height in ((83, 61), (16, 16), (1, 1), (17, 40)):
        data = jpeg(picture(width, height), subsampling=subsampling, **options)
        assert answer(tmp_path, data) == "restored"


@pytest.mark.parametrize("options", [{}, {"progressive": True}], ids=str)
def test_gray_and_rgb(tmp_path: Path, options: dict[str, Any]) -> None:
    assert answer(tmp_path, jpeg(picture().convert("L"), **options)) == "restored"
    assert answer(tmp_path, jpeg(keep_rgb=True, **options)) == "restored"


def test_4_4_0(tmp_path: Path) -> None:
    # A 4:2:2 frame of the same number of blocks, turned.
    parts = segments(jpeg(picture(64, 64), subsampling="4:2:2"))
    frame = bytearray(dict(parts)[0xC0])
    assert frame[11] == 0x21
    frame[11] = 0x12
    data = join([(m, bytes(frame) if m == 0xC0 else part) for m, part in parts])
    assert answer(tmp_path, data) == "restored"


def test_common_factors_cancel(tmp_path: Path) -> None:
    parts = segments(jpeg(picture(8, 8), subsampling="4:4:4"))
    frame = bytearray(dict(parts)[0xC0])
    for place in (11, 14, 17):
        frame[place] = 0x21
    # MCUs of 16 x 8 pixels: the picture is 16 wide now, and of the scan's 6 blocks 3 are there.
    data = join([(m, bytes(frame) if m == 0xC0 else part) for m, part in parts])
    assert answer(tmp_path, data) == "its data is damaged or truncated"
    frame[11] = frame[14] = frame[17] = 0x22
    data = join([(m, bytes(frame) if m == 0xC0 else part) for m, part in parts])
    assert answer(tmp_path, data) == "an MCU has more than 10 blocks"


def test_metadata_and_other_segments(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[274] = 6
    data = jpeg(exif=exif, icc_profile=bytes(range(256)) * 600, xmp=b"<x/>", comment=b"by hand")
    assert answer(tmp_path, data) == "restored"
    parts = segments(data)
    moved = [part for part in parts if part[0] != 0xE1]
    moved[4:4] = [part for part in parts if part[0] == 0xE1]
    extra = [(0xE1, b"\xff\xe1" + struct.pack(">H", len(XMP) + 2) + XMP)]
    photoshop = [(0xED, b"\xff\xff\xff\xed\x00\x05abc")]  # with fill bytes
    assert answer(tmp_path, join(extra + moved[:5] + photoshop + extra + moved[5:])) == "restored"
    damaged = [(m, part.replace(b"ICC_PROFILE\0\1", b"ICC_PROFILE\0\7")) for m, part in parts]
    assert answer(tmp_path, join(damaged)) == "restored"


def test_data_behind_the_end(tmp_path: Path) -> None:
    assert answer(tmp_path, jpeg() + jpeg(picture(16, 16)) + b"\0\xff") == "restored"


def test_tables_in_one_segment(tmp_path: Path) -> None:
    for optimize in (False, True):
        parts = segments(jpeg(optimize=optimize))
        tables = b"".join(part[4:] for marker, part in parts if marker == 0xC4)
        one = (0xC4, b"\xff\xc4" + struct.pack(">H", len(tables) + 2) + tables)
        rest = [part for part in parts if part[0] != 0xC4]
        assert answer(tmp_path, join([one, *rest])) == "restored"


def test_tables_of_another_picture(tmp_path: Path) -> None:
    own = {part[4]: part for m, part in segments(jpeg(optimize=True)) if m == 0xC4}
    codes = {part[4]: part for m, part in segments(jpeg()) if m == 0xC4}
    assert own.keys() == codes.keys()
    # Standard codes with two symbols of the same length exchanged.
    swapped = bytearray(codes[0x10])
    swapped[-1], swapped[-2] = swapped[-2], swapped[-1]
    parts = segments(jpeg(quality=30))
    data = join([(m, bytes(swapped) if part == codes[0x10] else part) for m, part in parts])
    assert answer(tmp_path, data) == "restored"


def test_padding_bits_of_zeros(tmp_path: Path) -> None:
    found = 0
    for seed in range(6):
        data = jpeg(picture(20, 20, seed))
        changed = data[:-3] + bytes([data[-3] & 0xFE]) + data[-2:]
        before, after = (Image.open(io.BytesIO(file)).tobytes() for file in (data, changed))
        if before == after:  # the bit was no value's
            assert answer(tmp_path, changed) in ("restored", "picture")
            found += answer(tmp_path, changed) == "restored"
    assert found


def test_refused(tmp_path: Path) -> None:
    data = jpeg()
    parts = segments(data)
    frame = dict(parts)[0xC0]

    def with_frame(changed: bytes) -> bytes:
        return join([(m, changed if m == 0xC0 else part) for m, part in parts])

    assert answer(tmp_path, b"\x89PNG") == "it is no JPEG"
    assert answer(tmp_path, data[:-2]) == "it is truncated"
    assert answer(tmp_path, data[: len(data) // 2]) == "its data is damaged or truncated"
    assert answer(tmp_path, with_frame(b"\xff\xc9" + frame[2:])) == "it is arithmetic-coded"
    assert answer(tmp_path, with_frame(b"\xff\xc3" + frame[2:])) == "it is a lossless JPEG"
    twelve = frame[:4] + b"\x0c" + frame[5:]
    assert answer(tmp_path, with_frame(twelve)) == "it has 12 bits per sample"
    no_height = frame[:5] + b"\0\0" + frame[7:]
    assert answer(tmp_path, with_frame(no_height)) == "its height is in a DNL segment"
    odd = frame[:11] + b"\x41" + frame[12:]
    assert answer(tmp_path, with_frame(odd)) == ("its sampling is not 4:4:4, 4:2:2, 4:2:0 or 4:4:0")
    assert answer(tmp_path, jpeg(picture().convert("CMYK"))) == "it has 4 components"
    assert answer(tmp_path, join([*parts[:2], (0, b"junk"), *parts[2:]])) == (
        "bytes lie between its segments"
    )
    scans = jpeg(progressive=True)
    last = scans.rindex(b"\xff\xda")
    assert answer(tmp_path, scans[:last] + b"\xff\xd9") == "scans are missing"
