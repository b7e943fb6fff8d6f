"""The Python functions: what they take, what they refuse, and what they promise."""

from __future__ import annotations

import _thread
import errno
import inspect
import itertools
import math
import os
import pickle
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from numpy.typing import NDArray
from stream_builder import Stream, groups_chunk, payload, stored_tile

import l3dali
from l3dali import _native, arguments, codec
from l3dali.cli import main

Image = NDArray[Any]

PHOTO: Image = np.cumsum(
    np.random.default_rng(7).integers(0, 4, (70, 90, 3)), axis=1, dtype=np.uint8
)
ENCODED = l3dali.encode(PHOTO)


@pytest.mark.parametrize("dtype", arguments.SAMPLE_TYPES)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("coding", codec.CODINGS)
def test_round_trip(dtype: str, channels: int, coding: codec.Coding) -> None:
    image: Image = np.random.default_rng(1).integers(0, 200, (33, 65, channels)).astype(dtype)
    decoded = l3dali.decode(l3dali.encode(image, coding=coding))
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
        (PHOTO.astype(np.int16) * -3).astype(">i2"),
        (PHOTO.astype(np.int16) - 90)[::2, ::-3],
    ],
    ids=[
        *("steps", "reversed", "transposed", "fortran", "one_of_three", "broadcast"),
        *("big_endian", "big_endian_signed", "signed_steps"),
    ],
)
def test_any_strides_and_byte_order(image: Image) -> None:
    decoded = l3dali.decode(l3dali.encode(image))
    assert decoded.dtype == image.dtype.newbyteorder("=")
    assert np.array_equal(decoded, image.squeeze())


@pytest.mark.parametrize("channels", [1, 3, 6])
@pytest.mark.parametrize("dtype", ["uint8", "int16"])
@pytest.mark.parametrize("coding", l3dali.CODINGS)
def test_rows_that_are_apart_are_not_copied(
    channels: int, dtype: str, coding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = np.random.default_rng(0).integers(0, 99, (90, 80, channels)).astype(dtype)
    seen = []
    native = _native.encode

    def encode(image: Image, **options: Any) -> bytes:
        seen.append(np.shares_memory(image, whole))
        return native(image, **options)

    monkeypatch.setattr(_native, "encode", encode)
    for part in (whole[3:70, 5:60], whole[::2], whole[3:4, 5:60], whole[:, :1], whole[:, 4:, 0]):
        assert l3dali.encode(part, coding=coding) == l3dali.encode(part.copy(), coding=coding)
    assert seen == [True, False] * 4 + [channels == 1, False]


@pytest.mark.parametrize(
    ("image", "message"),
    [
        *((np.zeros((4, 4), kind), "L3 holds uint8") for kind in ("f8", "?", "i8", "u8")),
        (np.full((4, 4), None), "L3 holds uint8, uint16, int8, int16"),
        ([[1, 2], [3, 4]], "L3 holds uint8, uint16, int8, int16"),
        ("a.png", "encode takes an array, not a path; transcode takes"),
        (Path("a.png"), "encode takes an array, not a path; transcode takes"),
        (np.ma.masked_array(PHOTO, mask=PHOTO > 9), "masked"),
    ],
)
def test_refused_samples(image: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        l3dali.encode(image)


@pytest.mark.parametrize(
    "shape", [(), (9,), (4, 4, 4097), (4, 4, 0), (0, 4), (4, 0, 3), (2, 4, 4, 3)], ids=str
)
def test_refused_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="1 to 4096 channels"):
        l3dali.encode(np.zeros(shape, np.uint8))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"coding": "zip"}, ValueError, "codings: packed, rans"),
        ({"layout": "WHC"}, ValueError, "layouts: HWC, CHW"),
        ({"effort": 0}, ValueError, "1 to 9"),
        ({"tile": (16, 16)}, ValueError, "widths"),
        ({"tile": (512, 64)}, ValueError, "heights"),
        ({"threads": -1}, ValueError, "threads must be 0 to 1024"),
        ({"threads": 2**40}, ValueError, "threads must be 0 to 1024"),
        ({"palette": b"\0\0\0\0"}, ValueError, "labels=True"),
        ({"palette": b"\0\0\0", "labels": True}, ValueError, "4 bytes"),
        ({"effort": 5.0}, TypeError, "^effort must be an integer, not 5.0"),
        ({"threads": 1.5}, TypeError, "^threads must be an integer, not 1.5"),
        ({"threads": None}, TypeError, "^threads must be an integer, not None"),
        ({"tile": 64}, TypeError, "^tile must be two integers, height and width, not 64"),
        ({"tile": (64,)}, TypeError, "^tile must be two integers"),
        ({"tile": (64.0, 32.0)}, TypeError, "^tile must be two integers"),
        ({"labels": "no"}, TypeError, "^labels must be True or False, not 'no'"),
        ({"icc": "profile"}, TypeError, "^icc must be bytes-like, not str"),
        ({"exif": 5}, TypeError, "^exif must be bytes-like, not int"),
        ({"palette": [1, 2], "labels": True}, TypeError, "^palette must be bytes-like, not list"),
    ],
)
def test_refused_option(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        l3dali.encode(PHOTO, **options)


def test_one_default_of_threads() -> None:
    found = {
        name: inspect.signature(function).parameters["threads"].default
        for name, function in vars(l3dali).items()
        if name in l3dali.__all__
        and inspect.isfunction(function)
        and "threads" in inspect.signature(function).parameters
    }
    takers = "encode decode decode_batch decode_volume verify imread transcode restore_jpeg"
    assert set(found) == set(takers.split())
    assert set(found.values()) == {1}


@pytest.mark.parametrize("threads", [2**40, 1.5, None])
@pytest.mark.parametrize("function", [l3dali.decode, l3dali.verify])
def test_refused_threads(function: Any, threads: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^threads must be "):
        function(ENCODED, threads=threads)


def test_options_of_other_types_that_say_the_same() -> None:
    labels = np.eye(3, dtype=np.uint8)
    palette = np.arange(12, dtype=np.uint8).reshape(3, 4)
    odd: dict[str, Any] = {
        "effort": np.int64(4),
        "tile": np.array([16, 32]),
        "labels": np.True_,
        "icc": bytearray(b"profile"),
        "exif": memoryview(b"II*\0")[::-1],
        "palette": palette,
    }
    plain: dict[str, Any] = {
        "effort": 4,
        "tile": (16, 32),
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


@pytest.mark.parametrize("shape", [(3, 32, 40), (4, 300, 200)])
def test_channels_first(shape: tuple[int, int, int]) -> None:
    image: Image = np.random.default_rng(1).integers(0, 9, shape, np.uint8)
    message = rf"looks like {shape[0]} channels first: use layout='CHW', .* layout='HWC' "
    with pytest.raises(ValueError, match=message):
        l3dali.encode(image)
    hwc = image.transpose(1, 2, 0)
    assert l3dali.encode(image, layout="CHW") == l3dali.encode(hwc)
    assert np.array_equal(l3dali.decode(l3dali.encode(image, layout="HWC")), image)


@pytest.mark.parametrize("shape", [(3, 31, 40), (3, 40, 31), (2, 40, 40), (5, 40, 40), (3, 4)])
def test_what_may_have_its_channels_last_is_taken_so(shape: tuple[int, ...]) -> None:
    image: Image = np.random.default_rng(1).integers(0, 9, shape, np.uint8)
    assert np.array_equal(l3dali.decode(l3dali.encode(image)), image)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", l3dali.Status.TRUNCATED),
        (ENCODED[:31], l3dali.Status.TRUNCATED),
        (ENCODED[:-1], l3dali.Status.TRUNCATED),
        (b"\x89PNG\r\n\x1a\n", l3dali.Status.BAD_MAGIC),
        (ENCODED[:8] + b"\3" + ENCODED[9:], l3dali.Status.UNSUPPORTED_VERSION),
        (ENCODED[:-1] + bytes([ENCODED[-1] ^ 1]), l3dali.Status.CHECKSUM_MISMATCH),
    ],
)
@pytest.mark.parametrize("function", [l3dali.decode, l3dali.verify])
def test_damage_has_a_status(function: Any, data: bytes, status: l3dali.Status) -> None:
    with pytest.raises(l3dali.L3Error) as raised:
        function(data)
    assert isinstance(raised.value, ValueError)
    assert raised.value.status is status


@pytest.mark.parametrize("shape", [(1, 1), (300, 400, 3)])
@pytest.mark.parametrize("rest", [1, 7, 100_000])
def test_data_behind_an_image_is_named(shape: tuple[int, ...], rest: int) -> None:
    data = l3dali.encode(np.zeros(shape, np.uint8), exif=b"II*\0" + bytes(9))
    text = "header, chunks or tile index are corrupt, or data follows the image"
    for function in (l3dali.decode, l3dali.info, l3dali.verify):
        with pytest.raises(l3dali.L3Error, match=f"^{text}$") as caught:
            function(data + bytes(rest))
        assert caught.value.status is l3dali.Status.CORRUPT_HEADER
    with pytest.raises(l3dali.L3Error, match=f"^item 1: {text}$") as caught:
        l3dali.decode_batch([data, data + bytes(rest)])
    assert caught.value.index == 1


@pytest.mark.parametrize("shape", [(2, -1), (1, -1, 2)])
@pytest.mark.parametrize("dtype", ["u1", ">u2"])
def test_data_of_other_shapes_is_named(shape: tuple[int, ...], dtype: str) -> None:
    text = "data follows the image"
    data: Any = np.frombuffer(ENCODED + bytes(4 + -len(ENCODED) % 4), dtype).reshape(shape)
    with pytest.raises(l3dali.L3Error, match=text):
        l3dali.decode(data)


@pytest.mark.parametrize("mode", ["P", "CMYK", "LAB", "YCbCr"])
def test_colours_of_pillow_are_not_taken_for_gray_or_rgb(mode: str) -> None:
    image: Any = PIL.Image.new(mode, (3, 2))
    colours: Any = PIL.Image.new("RGB", (3, 2))
    with pytest.raises(TypeError, match=f"of mode {mode} are not supported"):
        l3dali.encode(image)
    if mode == "P":  # whose numbers may be what is wanted
        assert l3dali.info(l3dali.encode(image, labels=True)).channels == 1
    assert l3dali.decode(l3dali.encode(colours)).shape == (2, 3, 3)


@pytest.mark.parametrize("function", [l3dali.decode, l3dali.info, l3dali.verify])
def test_other_objects_than_bytes(function: Any) -> None:
    with pytest.raises(TypeError, match="not an array of objects"):
        function(np.array(list(ENCODED), object))
    if function is not l3dali.info:  # which takes paths
        with pytest.raises(TypeError, match="bytes-like"):
            function("photo.l3")


@pytest.mark.parametrize("function", [l3dali.decode, l3dali.info, l3dali.verify])
def test_bytes_without_an_axis(function: Any) -> None:
    function(np.array(ENCODED))
    for data in (np.array(5, np.uint8), np.array(ENCODED + b"more")):
        with pytest.raises(l3dali.L3Error, match=r"too early|follows the image|not an L3 image"):
            function(data)


def test_info_of_damaged_tiles() -> None:
    """Decoding finds them. It was an error, as if a newer version had written the file."""
    tile = stored_tile(np.ones((8, 32, 1)), 8)
    data = Stream(64, 8, 1, payloads=[tile, payload(77, bytes(8))]).to_bytes()
    codings = l3dali.info(data).codings
    assert codings is not None
    assert (codings["stored"], codings["unknown"]) == (1, 1)
    assert l3dali.decode(data, window=(0, 0, 8, 32)).all()
    with pytest.raises(l3dali.L3Error):
        l3dali.decode(data)


def test_info_of_labels() -> None:
    palette = bytes(range(12))
    info = l3dali.info(l3dali.encode(np.eye(3, dtype=np.uint8), labels=True, palette=palette))
    assert (info.labels, info.palette) == (True, palette)


def test_info() -> None:
    image = np.arange(100 * 50, dtype=np.uint16).reshape(50, 100) % 16 * 16
    data = l3dali.encode(image, tile=(16, 32), icc=b"profile", exif=b"II*\0")
    info = l3dali.info(data)
    assert (info.width, info.height, info.channels, info.bit_depth) == (100, 50, 1, 16)
    assert (info.tile_width, info.tile_height, info.tile_count) == (32, 16, 16)
    assert info.codings is not None
    assert sum(info.codings.values()) == info.tile_count
    assert (info.encoded_bytes, info.raw_bytes) == (len(data), image.nbytes)
    assert info.used_bits == 4
    assert (info.icc, info.exif, info.palette) == (b"profile", b"II*\0", None)
    assert not info.labels
    assert (info.shape, info.dtype) == ((50, 100), np.dtype(np.uint16))
    assert isinstance(info.dtype, np.dtype)
    assert len({info, l3dali.info(bytearray(data))}) == 1


@pytest.mark.parametrize("shape", [(5, 6), (5, 6, 2), (1, 1, 7)])
def test_info_has_the_shape_and_type_of_the_array(shape: tuple[int, ...]) -> None:
    data = l3dali.encode(np.ones(shape, np.int16))
    decoded, info = l3dali.decode(data), l3dali.info(data)
    assert (info.shape, info.dtype) == (decoded.shape, decoded.dtype)
    assert pickle.loads(pickle.dumps(info)) == info
    assert hash(pickle.loads(pickle.dumps(info))) == hash(info)


@pytest.mark.parametrize("is_link", [False, True])
def test_imwrite_obeys_the_umask(tmp_path: Path, is_link: bool) -> None:
    if is_link:  # It was given the mode of what it leads to.
        (tmp_path / "photo.l3").symlink_to("/dev/null")
    mask = os.umask(0o027)
    try:
        l3dali.imwrite(tmp_path / "photo.l3", PHOTO)
    finally:
        os.umask(mask)
    assert (tmp_path / "photo.l3").stat().st_mode & 0o777 == 0o640


def test_a_private_file_stays_private(tmp_path: Path) -> None:
    path = tmp_path / "photo.l3"
    l3dali.imwrite(path, PHOTO)
    path.chmod(0o600)
    l3dali.imwrite(path, PHOTO[:9])
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_disk_without_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As CIFS may be: files could not be replaced."""

    def chmod(file: int, mode: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "fchmod", chmod)
    for image in (PHOTO, PHOTO[:9]):
        l3dali.imwrite(tmp_path / "photo.l3", image)
        np.testing.assert_array_equal(l3dali.imread(tmp_path / "photo.l3"), image)


def test_a_write_that_fails_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device", source)

    path = tmp_path / "photo.l3"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "replace", fail)
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


def part(image: Image, window: codec.Window) -> Image:
    top, left, height, width = window
    return image[top : top + height, left : left + width]


@pytest.fixture(scope="module", params=codec.CODINGS)
def tiled(request: pytest.FixtureRequest) -> tuple[Image, bytes]:
    """An image of many tiles, and its file."""
    image = np.tile(PHOTO, (3, 4, 1))[:201, :343]
    return image, l3dali.encode(image, coding=request.param, tile=(16, 32))


WINDOWS: list[codec.Window] = [
    (0, 0, 1, 1),
    (0, 0, 201, 343),
    (200, 342, 1, 1),
    (32, 64, 16, 32),
    (17, 31, 40, 130),
    (0, 342, 201, 1),
]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("threads", [1, 3])
def test_windows(tiled: tuple[Image, bytes], window: codec.Window, threads: int) -> None:
    image, data = tiled
    decoded = l3dali.decode(data, window=window, threads=threads)
    np.testing.assert_array_equal(decoded, part(image, window))
    assert decoded.flags.c_contiguous


def test_window_reads_only_the_tiles_it_touches(tiled: tuple[Image, bytes]) -> None:
    image, data = tiled
    damaged = data[:-1] + bytes([data[-1] ^ 1])  # in the last tile
    with pytest.raises(l3dali.L3Error):
        l3dali.decode(damaged)
    window = (0, 0, 190, 300)
    np.testing.assert_array_equal(l3dali.decode(damaged, window=window), part(image, window))


_ENCODE = "file, not an L3 image: convert it with l3 encode"
_PNG_FIRST = "file, not an L3 image: convert it to PNG, then with l3 encode"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        *((name, f"a {name} {_ENCODE}") for name in ("PNG", "JPEG", "WebP", "TIFF", "BMP")),
        ("GIF", f"a GIF {_PNG_FIRST}"),
        ("AVIF", f"an AVIF {_PNG_FIRST}"),
    ],
)
def test_other_formats_are_named(
    tmp_path: Path, name: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    PIL.Image.init()
    if name.upper() not in PIL.Image.SAVE:
        pytest.skip(f"this Pillow writes no {name}")
    path = tmp_path / "a.l3"
    PIL.Image.fromarray(PHOTO).save(path, name)
    data = path.read_bytes()
    calls: list[Callable[[bytes], object]] = [l3dali.decode, l3dali.info, l3dali.verify]
    for call in calls:
        with pytest.raises(l3dali.L3Error) as caught:
            call(data)
        assert str(caught.value) == what
        assert caught.value.status is l3dali.Status.BAD_MAGIC
    with pytest.raises(l3dali.L3Error) as caught:
        l3dali.decode_batch([ENCODED, data])
    assert (caught.value.index, str(caught.value)) == (1, f"item 1: {what}")
    for command in (["info"], ["verify"], ["decode", "-o"]):
        result = [] if command in (["info"], ["verify"]) else [str(tmp_path / "b.png")]
        assert main([command[0], str(path), *command[1:], *result]) == 2
        assert f"a.l3: {what}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("window", "error", "message"),
    [
        *(
            (window, l3dali.L3Error, "not inside the image of 90 x 70 pixels")
            for window in [(0, 0, 71, 1), (0, 0, 1, 91), (70, 0, 1, 1), (1, 90, 1, 1)]
        ),
        ((0, 0, 2**31, 2**31), l3dali.L3Error, "not inside the image"),
        ((-1, 0, 1, 1), ValueError, r"^window is \(.*0 or more"),
        ((0, 0, 0, 1), ValueError, r"^window is \(.*0 or more"),
        ((0, 0, 1, 2**31 + 1), ValueError, r"^window is \(.*0 or more"),
        *((window, TypeError, "window must be four integers") for window in [(0, 0, 1), 7, "abcd"]),
        ((0.0, 0, 1, 1), TypeError, "window must be four integers"),
    ],
)
def test_refused_windows(window: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        l3dali.decode(ENCODED, window=window)
    if isinstance(caught.value, l3dali.L3Error):
        assert caught.value.status is l3dali.Status.INVALID_ARGUMENT


def test_max_pixels_is_that_of_the_window() -> None:
    assert l3dali.decode(ENCODED, window=(1, 1, 10, 10), max_pixels=100).shape == (10, 10, 3)
    with pytest.raises(l3dali.L3Error, match="10 x 11 pixels are more than the limit of 100"):
        l3dali.decode(ENCODED, window=(1, 1, 11, 10), max_pixels=100)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int8, np.int16])
@pytest.mark.parametrize("channels", [1, 3])
def test_out(dtype: type, channels: int) -> None:
    image: Image = np.random.default_rng(2).integers(-120, 120, (70, 90, channels)).astype(dtype)
    data = l3dali.encode(image)
    window = (3, 4, 50, 60)
    large: Image = np.full((80, 100, channels), 7, dtype)
    out = large[11:61, 13:73]
    assert l3dali.decode(data, window=window, out=out, threads=2) is out
    np.testing.assert_array_equal(out, part(image, window))
    rest = large.copy()
    rest[11:61, 13:73] = 7
    assert (rest == 7).all()  # nothing beside it was written
    if channels == 1:
        flat: Image = np.empty((70, 90), dtype)
        assert l3dali.decode(data, out=flat) is flat
        np.testing.assert_array_equal(flat, image[:, :, 0])


def read_only() -> Image:
    out = np.empty_like(PHOTO)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        (bytearray(PHOTO.nbytes), TypeError, "out must be a NumPy array, not bytearray"),
        (np.ma.masked_array(PHOTO), TypeError, "out must be a NumPy array, not MaskedArray"),
        (PHOTO.astype(np.uint16), TypeError, "out has dtype uint16, but the image has uint8"),
        (PHOTO.astype(np.int8), TypeError, "out has dtype int8"),
        (PHOTO[:-1].copy(), ValueError, r"out has shape \(69, 90, 3\).* \(70, 90, 3\)"),
        (PHOTO[:, :, 0].copy(), ValueError, r"out has shape \(70, 90\)"),
        (read_only(), ValueError, "out is read-only"),
        (PHOTO[::-1].copy()[::-1], ValueError, "out has strides"),
        (PHOTO[:, ::-1].copy()[:, ::-1], ValueError, "out has strides"),
        (np.asfortranarray(PHOTO), ValueError, "out has strides"),
        (np.lib.stride_tricks.as_strided(PHOTO, PHOTO.shape, (0, 3, 1)), ValueError, "strides"),
    ],
)
def test_out_that_does_not_fit(out: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        l3dali.decode(ENCODED, out=out)


def test_out_of_the_other_byte_order_or_unaligned() -> None:
    image = PHOTO.astype(np.uint16)
    data = l3dali.encode(image)
    with pytest.raises(TypeError, match="out has dtype >u2"):
        l3dali.decode(data, out=np.empty(image.shape, ">u2"))
    unaligned: Image = np.ndarray(image.shape, np.uint16, bytearray(image.nbytes + 1), 1)
    with pytest.raises(ValueError, match="aligned"):
        l3dali.decode(data, out=unaligned)


@pytest.fixture(scope="module")
def batch() -> list[Image]:
    """Images of several sizes and types, a large one among them."""
    random = np.random.default_rng(3)
    shapes = [(40, 50, 3), (1, 1), (700, 600, 3), (33, 64, 4), (90, 31, 2)]
    images: list[Image] = [random.integers(0, 99, shape, np.uint8) for shape in shapes]
    images[3] = images[3].astype(np.uint16)
    return images


@pytest.mark.parametrize("threads", [0, 1, 2, 7])
@pytest.mark.parametrize("coding", codec.CODINGS)
def test_decode_batch(batch: list[Image], threads: int, coding: codec.Coding) -> None:
    decoded = l3dali.decode_batch([l3dali.encode(i, coding=coding) for i in batch], threads=threads)
    for one, image in zip(decoded, batch, strict=True):
        assert one.dtype == image.dtype
        np.testing.assert_array_equal(one, image)


@pytest.mark.parametrize("coding", codec.CODINGS)
@pytest.mark.parametrize("threads", [1, 3])
def test_windows_of_one_file(threads: int, coding: codec.Coding) -> None:
    """One object several times in a row, among others, and the same bytes in another object."""
    rng = np.random.default_rng(9)
    image: Image = rng.integers(0, 20, (300, 200, 3), np.uint8)
    other: Image = rng.integers(0, 20, (40, 30), np.uint8)
    data, other_data = l3dali.encode(image, coding=coding, tile=(32, 64)), l3dali.encode(other)
    corners = rng.integers(0, (200, 100), (40, 2)).tolist()
    windows: list[codec.Window | None] = [(top, left, 90, 70) for top, left in corners]
    windows[7] = None
    items: list[Any] = [data] * 40
    items[20], windows[20] = other_data, None
    items[30] = bytearray(data)
    decoded = l3dali.decode_batch(items, windows=windows, threads=threads)
    for i, (one, window) in enumerate(zip(decoded, windows, strict=True)):
        whole = other if i == 20 else image
        np.testing.assert_array_equal(one, whole if window is None else part(whole, window))


def test_damage_in_one_file_names_the_first_window_that_touches_it() -> None:
    """Also where a later one touches a tile before, and in no window's tile it goes unseen."""
    image: Image = np.random.default_rng(9).integers(0, 256, (96, 64, 3), np.uint8)
    data = bytearray(l3dali.encode(image, coding="packed", tile=(32, 64), effort=1))
    size = l3dali.info(data).encoded_bytes
    tile_bytes = 64 * 32 * 3
    assert size > 3 * tile_bytes
    data[-9] ^= 1  # in the last of three tiles
    first, second, third = (0, 0, 9, 9), (40, 5, 9, 9), (70, 9, 9, 9)
    l3dali.decode_batch([data] * 2, windows=[first, second])
    for windows, index in (([first, third, second], 1), ([second, third, None], 1)):
        with pytest.raises(l3dali.L3Error, match=rf"^item {index}: tile 2 of 3") as caught:
            l3dali.decode_batch([data] * 3, windows=windows)
        assert caught.value.index == index
    data[-100 - tile_bytes] ^= 1  # in the one before
    with pytest.raises(l3dali.L3Error, match=r"^item 1: tile 2 of 3"):
        l3dali.decode_batch([data] * 3, windows=[first, third, second])


@pytest.mark.parametrize(
    "parts",
    [
        lambda c: [c[:40], c[40:80]],
        lambda c: [c[:40, :50], c[:40, 50:100]],
        lambda c: [c[:80:2, :50], c[1:80:2, :50]],
        lambda c: [c[:40, 50:100], c[40:80, :50], c[:40, :50]],
    ],
)
def test_outputs_side_by_side(parts: Any) -> None:
    canvas: Image = np.zeros((120, 160, 3), np.uint8)
    outs = parts(canvas)
    images: list[Image] = [np.full(out.shape, i + 1, np.uint8) for i, out in enumerate(outs)]
    encoded = [l3dali.encode(image) for image in images]
    l3dali.decode_batch(encoded, out=outs)
    for out, image in zip(outs, images, strict=True):
        np.testing.assert_array_equal(out, image)


def test_decode_batch_to_one_array() -> None:
    images: Image = np.random.default_rng(4).integers(0, 256, (5, 40, 50, 3), np.uint8)
    out = np.empty_like(images)
    encoded = [l3dali.encode(image) for image in images]
    assert l3dali.decode_batch(encoded, out=out) is out
    np.testing.assert_array_equal(out, images)
    outs = [np.empty_like(image) for image in images]
    assert l3dali.decode_batch(encoded, out=outs) is outs
    np.testing.assert_array_equal(outs, images)


def test_decode_batch_of_nothing() -> None:
    assert l3dali.decode_batch([]) == l3dali.decode_batch([], out=[]) == []


def test_damage_in_a_batch_names_its_index(batch: list[Image]) -> None:
    encoded = [l3dali.encode(image) for image in batch]
    torn = [*encoded[:2], encoded[2][:-9], encoded[3][:5], encoded[4]]
    with pytest.raises(l3dali.L3Error, match=r"^item 2: the file has ") as caught:
        l3dali.decode_batch(torn)
    assert (caught.value.status, caught.value.index) == (l3dali.Status.TRUNCATED, 2)
    flipped = bytearray(encoded[2])
    flipped[-40] ^= 1
    with pytest.raises(l3dali.L3Error, match=r"^item 2: tile \d+ of \d+: ") as caught:
        l3dali.decode_batch([*encoded[:2], flipped, *encoded[3:]])
    assert (caught.value.status, caught.value.index) == (l3dali.Status.CHECKSUM_MISMATCH, 2)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.status, copy.index) == (l3dali.Status.CHECKSUM_MISMATCH, 2)
    with pytest.raises(l3dali.L3Error, match=r"^item 1: the window ") as caught:
        l3dali.decode_batch(encoded, windows=[None, (0, 0, 2, 2), None, None, None])
    assert (caught.value.status, caught.value.index) == (l3dali.Status.INVALID_ARGUMENT, 1)
    with pytest.raises(l3dali.L3Error) as caught:
        l3dali.decode(flipped)
    assert caught.value.index is None


def test_refused_batches() -> None:
    two = [ENCODED, ENCODED]
    refused: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"items": ENCODED}, TypeError, "items must be a sequence of files"),
        ({"items": ["a.l3"]}, TypeError, r"items\[0\]: .*not a path"),
        ({"items": (ENCODED for _ in range(2))}, TypeError, "not generator: make a list"),
        (
            {"items": np.frombuffer(ENCODED, np.uint8)},
            TypeError,
            "not ndarray: put one file in a list",
        ),
        ({"items": None}, TypeError, "not NoneType"),
        ({"items": [ENCODED, None]}, TypeError, r"items\[1\]: the bytes .*not NoneType"),
        ({"windows": (None for _ in two)}, TypeError, "windows must be a sequence, not generator"),
        ({"out": (PHOTO.copy() for _ in two)}, TypeError, "out must be an array .* not generator"),
        ({"windows": [None]}, ValueError, "1 windows for 2 items"),
        ({"windows": [None, (1, 2, 3)]}, TypeError, r"windows\[1\] must be four integers"),
        ({"out": np.empty_like(PHOTO)[np.newaxis]}, ValueError, "room for 1 images.* 2 items"),
        ({"out": [np.empty_like(PHOTO), read_only()]}, ValueError, r"out\[1\] is read-only"),
        ({"threads": -1}, ValueError, "threads must be 0 to 1024"),
    ]
    for given, error, message in refused:
        with pytest.raises(error, match=message):
            l3dali.decode_batch(**{"items": two, **given})


def test_threads_of_python_decode_side_by_side(batch: list[Image]) -> None:
    encoded = [l3dali.encode(image) for image in batch]
    with ThreadPoolExecutor(4) as pool:
        for decoded in pool.map(lambda _: l3dali.decode_batch(encoded, threads=2), range(12)):
            for one, image in zip(decoded, batch, strict=True):
                np.testing.assert_array_equal(one, image)


# Ctrl-C.


@pytest.fixture
def interrupted() -> Iterator[None]:
    """Work looks for signals every 20 ms: its first look sends one, its second must find it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with codec.interruptible(_thread.interrupt_main):
        yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("count", [1, 8])
def test_an_interrupt_ends_decoding(count: int, request: pytest.FixtureRequest) -> None:
    """Within its pixels; `decode` and `verify` are the same call, of one item."""
    steps = np.random.default_rng(0).integers(0, 4, (16_000 // count, 4000))
    image = np.cumsum(steps, axis=1, dtype=np.uint8) & 127
    data = [l3dali.encode(image, effort=1) for _ in range(count)]  # not one object
    outs = [np.full_like(image, 255) for _ in range(count)]
    request.getfixturevalue("interrupted")
    with pytest.raises(KeyboardInterrupt):
        l3dali.decode_batch(data, out=outs, threads=1)
    assert 0 < sum(int((out == 255).sum()) for out in outs) < image.size * count


@pytest.mark.parametrize("kind", ["|u1", "<u2", ">u2", ">f4"])
@pytest.mark.parametrize("shape", [(6,), (4, 6), (2, 3, 4), (0, 2)])
def test_bytes_that_do_not_lie_together(kind: str, shape: tuple[int, ...]) -> None:
    array: Any = np.arange(math.prod(shape)).reshape(shape).astype(kind)
    view = memoryview(array)[::2]
    data = l3dali.encode(np.zeros((2, 2), np.uint8), icc=view)
    assert (l3dali.info(data).icc or b"") == view.tobytes()


def large_tile(height: int, groups: list[list[int]]) -> bytes:
    """A file of zeros, 512 pixels wide, that is one tile of 2^15 by 2^15."""
    channels = [*itertools.chain(*groups)]
    return Stream(
        512,
        height,
        len(channels),
        tile_width_log2=15,
        tile_height_log2=15,
        chunks=[groups_chunk(groups)] if len(groups) > 1 else [],
        payloads=[stored_tile(np.zeros((height, 512, len(group))), 8) for group in groups],
    ).to_bytes()


@pytest.mark.parametrize(
    ("data", "count", "threads"),
    [
        (l3dali.encode(np.zeros((256, 256, 3), np.uint8)), 2000, 2),
        (l3dali.encode(np.zeros((100, 100, 2000), np.uint8)), 20, 1),
        (large_tile(2048, [[0, 1, 2]]), 100, 1),
        (large_tile(2048, [[0], [1, 2, 3, 4]]), 60, 2),
    ],
    ids=["windows", "groups", "rows", "groups of rows"],
)
def test_an_interrupt_ends_a_task(
    data: bytes, count: int, threads: int, request: pytest.FixtureRequest
) -> None:
    """Windows of one file are decoded tile by tile: one tile was one task, of 56 s at worst."""
    shape = l3dali.info(data).shape
    outs = [np.full(shape, 255, np.uint8) for _ in range(count)]
    request.getfixturevalue("interrupted")
    with pytest.raises(KeyboardInterrupt):
        l3dali.decode_batch([data] * count, out=outs, threads=threads)
    assert sum(int((out == 255).sum()) for out in outs) > 0


def test_checks_within_checks() -> None:
    """The innermost is called."""
    image = np.random.default_rng(0).integers(0, 256, (2000, 2000), np.uint8)
    called: list[str] = []

    def calls() -> list[str]:
        called.clear()
        for _ in range(100):  # It is called every 20 ms, which one encode may not take.
            l3dali.encode(image)
            if called:
                break
        return sorted(set(called))

    with codec.interruptible(lambda: called.append("outer")):
        with codec.interruptible(lambda: called.append("inner")):
            assert calls() == ["inner"]
        assert calls() == ["outer"]
    called.clear()
    l3dali.encode(image)
    assert called == []


@pytest.mark.usefixtures("interrupted")
def test_an_interrupt_ends_encode() -> None:
    image = np.random.default_rng(0).integers(0, 256, (3000, 3000), np.uint8)
    tracemalloc.start()
    with pytest.raises(KeyboardInterrupt):
        l3dali.encode(image, effort=9)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < image.nbytes // 2, "all has been encoded before: here are its bytes"


def test_an_interrupt_while_channels_are_grouped() -> None:
    """Of 2,100 channels that are alike it took 4.8 s."""
    noise = np.random.default_rng(0).normal(size=(6, 7, 4000)) * np.linspace(1, 12, 4000)
    signal_in_all = np.arange(42).reshape(6, 7, 1) * 37 % 190
    image = (signal_in_all + noise + 40).clip(0, 255).astype(np.uint8)
    called: list[str] = []
    with codec.interruptible(lambda: called.append("")):
        l3dali.encode(image, coding="packed")
    assert len(called) >= 3  # one each 20 ms


def test_channels_that_are_alike_are_grouped_with_each_other() -> None:
    """All chose the same few, which one group took."""
    noise = np.random.default_rng(0).integers(0, 256, (6, 7, 7), np.uint8)
    image = noise[:, :, np.random.default_rng(1).integers(0, 7, 2000)]
    groups = l3dali.info(l3dali.encode(image, coding="packed")).groups
    alike = [np.ptp([image[0, 0, channel] for channel in group]) == 0 for group in groups]
    assert np.mean(alike) > 0.95


@pytest.mark.parametrize("shape", [(3, 700, 900), (700, 900, 3), (1, 5, 9)])
def test_arrays_are_copied_row_by_row(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arguments, "_BAND_BYTES", 1000)
    numbers = np.random.default_rng(0).integers(0, 2**16, shape, np.uint16)
    for array in (numbers, numbers.astype(">u2"), numbers[::-1, ::2], numbers[:, :, ::-1]):
        for order in itertools.permutations(range(3)):
            copy = arguments.packed_rows(array.transpose(order))
            assert copy[:1].flags.c_contiguous
            assert copy.dtype == np.uint16
            np.testing.assert_array_equal(copy, array.transpose(order))


# The end of the interpreter.


def test_daemon_threads_at_work_when_the_interpreter_ends() -> None:
    """As a loader's that reads ahead: the process ends well."""
    code = """
import threading, time, numpy, l3dali
image = numpy.zeros((1500, 1500, 3), numpy.uint8)
data = l3dali.encode(image)
for work in (lambda: l3dali.encode(image), lambda: l3dali.decode_batch([data] * 3, threads=2)):
    def work_on(work=work):
        while True:
            work()
    threading.Thread(target=work_on, daemon=True).start()
time.sleep(0.2)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's on_exit")
def test_daemon_threads_at_work_when_the_interpreter_has_ended() -> None:
    """A thread that has no core while it ends, and one in the second before the process does."""
    code = """
import ctypes, os, sys, threading, time, numpy, l3dali
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
image = numpy.random.default_rng(0).integers(0, 256, (3000, 3000, 3), numpy.uint8)
def work_on():
    os.sched_setscheduler(threading.get_native_id(), os.SCHED_IDLE, os.sched_param(0))
    while True:
        l3dali.encode(image, threads=1)
threading.Thread(target=work_on, daemon=True).start()
time.sleep(0.3)
libc = ctypes.CDLL(None)
libc.on_exit(libc.sleep, None)  # gets the exit code
sys.exit(1)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")


def test_the_first_call_finds_nothing_of_numpy() -> None:
    """That takes the GIL, while the interpreter may end: a segmentation fault, at times."""
    code = """
import builtins, numpy.ma, l3dali
image = numpy.zeros((8, 8, 3), numpy.uint8)
find, found = builtins.__import__, []
builtins.__import__ = lambda name, *rest, **named: found.append(name) or find(name, *rest, **named)
l3dali.encode(image)
print(found)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "multiarray" not in done.stdout, done.stdout


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "uint32"])
def test_floats_and_32_bits_come_back_bit_for_bit(dtype: str) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, (50, 60, 3)).astype(np.uint32)
    few = bits[:2, :3][rng.integers(0, 2, (50, 60)), rng.integers(0, 3, (50, 60))]
    for samples in (bits, few):
        image = samples.astype(f"u{np.dtype(dtype).itemsize}").view(dtype)
        data = l3dali.encode(image, effort=1)
        decoded = l3dali.decode(data)
        assert (decoded.dtype, decoded.tobytes()) == (image.dtype, image.tobytes())
        part = l3dali.decode(data, window=(7, 9, 20, 30), channels=[2, 0])
        assert part.tobytes() == np.ascontiguousarray(image[7:27, 9:39, [2, 0]]).tobytes()
    info = l3dali.info(data)
    held = "samples" if dtype == "float16" else "table"
    assert (info.dtype, info.holding, info.raw_bytes) == (image.dtype, held, image.nbytes)


def test_other_samples_are_refused_with_a_way() -> None:
    ways = {"float64": "numpy.float32", "int64": "numpy.int32", "bool": "numpy.uint8"}
    for dtype, way in ways.items():
        with pytest.raises(TypeError, match=rf"{dtype} are not supported; .*astype\({way}\)"):
            l3dali.encode(np.zeros((4, 4), dtype))


def test_no_data_may_be_nan() -> None:
    data = l3dali.encode(np.zeros((4, 4), np.float32), metadata={"no_data": np.nan})
    metadata = l3dali.info(data).metadata
    assert metadata is not None
    assert np.isnan(metadata["no_data"])
