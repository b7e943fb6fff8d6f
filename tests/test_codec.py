"""The Python functions: what they take, what they refuse, and what they promise."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import l3dali
from l3dali import codec

Image = NDArray[Any]

PHOTO: Image = np.cumsum(
    np.random.default_rng(7).integers(0, 4, (70, 90, 3)), axis=1, dtype=np.uint8
)
ENCODED = l3dali.encode(PHOTO)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("mode", codec.MODES)
def test_round_trip(dtype: type, channels: int, mode: codec.Mode) -> None:
    image: Image = np.random.default_rng(1).integers(0, 200, (33, 65, channels)).astype(dtype)
    decoded = l3dali.decode(l3dali.encode(image, mode=mode))
    assert decoded.dtype == dtype
    assert np.array_equal(decoded, image[:, :, 0] if channels == 1 else image)


def test_gray_with_and_without_channel_axis_is_the_same() -> None:
    gray = PHOTO[:, :, 0]
    assert l3dali.encode(gray) == l3dali.encode(gray[:, :, np.newaxis])


@pytest.mark.parametrize(
    "image",
    [
        PHOTO[::2, ::3],
        PHOTO[::-1, ::-1],
        PHOTO.transpose(1, 0, 2),
        np.asfortranarray(PHOTO),
        PHOTO[:, :, 1:2],
        np.broadcast_to(np.uint8(7), (5, 6, 3)),
        (PHOTO.astype(np.uint16) * 257).astype(">u2"),
    ],
    ids=["steps", "reversed", "transposed", "fortran", "one_of_three", "broadcast", "big_endian"],
)
def test_any_strides_and_byte_order(image: Image) -> None:
    assert np.array_equal(l3dali.decode(l3dali.encode(image)), image.squeeze())


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((4, 4), np.float32),
        np.zeros((4, 4), bool),
        np.zeros((4, 4), np.int16),
        np.zeros((4, 4), np.uint32),
        np.full((4, 4), None),
        [[1, 2], [3, 4]],
        "pixels",
    ],
    ids=["float", "bool", "signed", "uint32", "object", "list", "text"],
)
def test_refused_samples(image: Any) -> None:
    with pytest.raises(TypeError, match="uint8 and uint16"):
        l3dali.encode(image)


def test_refused_mask() -> None:
    with pytest.raises(TypeError, match="masked"):
        l3dali.encode(np.ma.masked_array(PHOTO, mask=PHOTO > 9))


@pytest.mark.parametrize(
    "shape", [(), (9,), (4, 4, 5), (4, 4, 0), (0, 4), (4, 0, 3), (2, 4, 4, 3)], ids=str
)
def test_refused_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="1 to 4 channels"):
        l3dali.encode(np.zeros(shape, np.uint8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "zip"}, "modes: packed, rans"),
        ({"effort": 0}, "1 to 9"),
        ({"tile": (16, 16)}, "widths"),
        ({"tile": (64, 512)}, "heights"),
        ({"threads": -1}, "threads is 0 to 1024"),
        ({"threads": 2**40}, "threads is 0 to 1024"),
        ({"palette": b"\0\0\0\0"}, "labels=True"),
        ({"palette": b"\0\0\0", "labels": True}, "4 bytes"),
    ],
)
def test_refused_option(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        l3dali.encode(PHOTO, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effort": 5.0}, "effort is an integer, not 5.0"),
        ({"threads": 1.5}, "threads is an integer, not 1.5"),
        ({"threads": None}, "threads is an integer, not None"),
        ({"tile": 64}, "tile is two integers, width and height, not 64"),
        ({"tile": (64,)}, "tile is two integers"),
        ({"tile": (64.0, 32.0)}, "tile is two integers"),
        ({"labels": "no"}, "labels is True or False, not 'no'"),
        ({"icc": "profile"}, "icc is bytes-like, not str"),
        ({"exif": 5}, "exif is bytes-like, not int"),
        ({"palette": [1, 2, 3, 4], "labels": True}, "palette is bytes-like, not list"),
    ],
)
def test_option_of_a_wrong_type(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        l3dali.encode(PHOTO, **options)


@pytest.mark.parametrize("threads", [2**40, 1.5, None])
@pytest.mark.parametrize("function", [l3dali.decode, l3dali.verify])
def test_refused_threads(function: Any, threads: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^threads is "):
        function(ENCODED, threads=threads)


def test_options_of_other_types_that_say_the_same() -> None:
    labels = np.eye(3, dtype=np.uint8)
    palette = np.arange(12, dtype=np.uint8).reshape(3, 4)
    odd: dict[str, Any] = {
        "effort": np.int64(4),
        "tile": np.array([32, 16]),
        "labels": np.True_,
        "icc": bytearray(b"profile"),
        "exif": memoryview(b"II*\0")[::-1],
        "palette": palette,
    }
    plain: dict[str, Any] = {
        "effort": 4,
        "tile": (32, 16),
        "labels": True,
        "icc": b"profile",
        "exif": b"\0*II",
        "palette": palette.tobytes(),
    }
    assert l3dali.encode(labels, **odd) == l3dali.encode(labels, **plain)


def test_exif_of_a_jpeg_begins_at_its_tiff_header() -> None:
    image = np.zeros((2, 3), np.uint8)
    assert l3dali.info(l3dali.encode(image, exif=b"Exif\0\0II*\0")).exif == b"II*\0"


def test_too_many_pixels_are_refused_before_they_are_copied() -> None:
    with pytest.raises(ValueError, match=r"65536 x 65536 pixels are too many"):
        l3dali.encode(np.broadcast_to(np.uint8(0), (1 << 16, 1 << 16)))


def test_threads_and_repeats_give_the_same_bytes() -> None:
    image = np.tile(PHOTO, (5, 5, 1))
    assert len({l3dali.encode(image, threads=threads) for threads in (0, 1, 2, 5, 1)}) == 1
    assert np.array_equal(l3dali.decode(l3dali.encode(image), threads=3), image)


@pytest.mark.parametrize(
    "data",
    [
        bytearray(ENCODED),
        memoryview(ENCODED),
        memoryview(b"".join(bytes([b, 0]) for b in ENCODED))[::2],
        np.frombuffer(ENCODED, np.uint8),
    ],
    ids=["bytearray", "memoryview", "strided", "array"],
)
def test_decode_takes_any_buffer(data: Any) -> None:
    assert np.array_equal(l3dali.decode(data), PHOTO)


def test_decode_takes_a_mapped_file(tmp_path: Path) -> None:
    path = tmp_path / "photo.l3"
    path.write_bytes(ENCODED)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert np.array_equal(l3dali.decode(mapped), PHOTO)


@pytest.mark.parametrize("function", [l3dali.decode, l3dali.info, l3dali.verify])
def test_decode_refuses_what_is_no_buffer(function: Any) -> None:
    with pytest.raises(TypeError, match="bytes-like"):
        function("photo.l3")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", "kTruncated"),
        (ENCODED[:31], "kTruncated"),
        (ENCODED[:-1], "kTruncated"),
        (b"\x89PNG\r\n\x1a\n", "kBadMagic"),
        (ENCODED[:8] + b"\2" + ENCODED[9:], "kUnsupportedVersion"),
        (ENCODED[:-1] + bytes([ENCODED[-1] ^ 1]), "kChecksumMismatch"),
    ],
)
@pytest.mark.parametrize("function", [l3dali.decode, l3dali.verify])
def test_damage_has_a_status(function: Any, data: bytes, status: str) -> None:
    with pytest.raises(l3dali.L3Error) as raised:
        function(data)
    assert isinstance(raised.value, ValueError)
    assert raised.value.status == status
    assert status in str(raised.value)


def test_info() -> None:
    image = np.arange(100 * 50, dtype=np.uint16).reshape(50, 100) % 16 * 16
    data = l3dali.encode(image, tile=(32, 16), icc=b"profile", exif=b"II*\0")
    info = l3dali.info(data)
    assert (info.width, info.height, info.channels, info.bit_depth) == (100, 50, 1, 16)
    assert (info.tile_width, info.tile_height, info.tile_count) == (32, 16, 16)
    assert info.codings is not None
    assert sum(info.codings.values()) == info.tile_count
    assert (info.encoded_bytes, info.raw_bytes) == (len(data), image.nbytes)
    assert info.used_bits == 4
    assert (info.icc, info.exif, info.palette) == (b"profile", b"II*\0", None)
    assert not info.labels


def test_equal_infos_have_one_hash() -> None:
    assert len({l3dali.info(ENCODED), l3dali.info(bytearray(ENCODED))}) == 1


def test_labels_keep_their_palette() -> None:
    palette = bytes(range(12))
    data = l3dali.encode(np.eye(3, dtype=np.uint8), labels=True, palette=palette)
    assert l3dali.info(data).labels
    assert l3dali.info(data).palette == palette


@pytest.mark.parametrize("kind", [str, Path])
def test_imwrite_and_imread(tmp_path: Path, kind: type) -> None:
    path = kind(tmp_path / "photo.l3")
    l3dali.imwrite(path, PHOTO, tile=(64, 64))
    assert np.array_equal(l3dali.imread(path), PHOTO)
    assert l3dali.info(Path(path).read_bytes()).tile_width == 64


def test_imwrite_obeys_the_umask(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        l3dali.imwrite(tmp_path / "photo.l3", PHOTO)
    finally:
        os.umask(mask)
    assert (tmp_path / "photo.l3").stat().st_mode & 0o777 == 0o640


def test_a_write_that_fails_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device", str(self))

    path = tmp_path / "photo.l3"
    path.write_bytes(b"old")
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match=r"No space left on device.*photo\.l3"):
        l3dali.imwrite(path, PHOTO)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_names_the_target(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, error_type, reason in (
        (tmp_path / "missing" / "photo.l3", FileNotFoundError, "No such file or directory"),
        (tmp_path / "file" / "photo.l3", NotADirectoryError, "Not a directory"),
        (tmp_path, IsADirectoryError, "Is a directory"),
    ):
        with pytest.raises(error_type) as raised:
            l3dali.imwrite(path, PHOTO)
        assert str(raised.value) == f"[Errno {raised.value.errno}] {reason}: {str(path)!r}"


def test_a_write_to_a_read_only_disk_names_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, *arguments: Any, **options: Any) -> None:
        raise OSError(30, "Read-only file system", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OSError, match=r"Read-only file system.*photo\.l3'$"):
        l3dali.imwrite(tmp_path / "photo.l3", PHOTO)


def test_import_needs_no_other_image_library() -> None:
    names = {"nvidia", "PIL", "imagecodecs", "tifffile", "netpbmfile", "rich"}
    script = "import sys, l3dali; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert names.isdisjoint(loaded.stdout.decode().split())
