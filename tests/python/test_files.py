"""L3 files in all places that Python keeps files in, and images of other formats made L3."""

from __future__ import annotations

import dataclasses
import io
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray

import l3dali
from l3dali import _native
from l3dali.cli import main
from l3dali.images.formats import write_picture
from l3dali.images.picture import Picture

PIL_Image = pytest.importorskip("PIL.Image")
pytest.importorskip("imagecodecs")

Image = NDArray[Any]

PHOTO = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)


def exif(orientation: int) -> bytes:
    """An EXIF block with an orientation."""
    block = PIL_Image.Exif()
    block[0x0112] = orientation
    return bytes(block.tobytes())


# imread and imwrite.


class ShortWrites(io.RawIOBase):
    """A file without a buffer, as a pipe's, that takes a few bytes at a time."""

    def __init__(self) -> None:
        self.data = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self.data += bytes(data[:100])
        return min(len(data), 100)


def test_imwrite_goes_on_after_a_short_write() -> None:
    file = ShortWrites()
    l3dali.imwrite(file, PHOTO)
    assert file.data == l3dali.encode(PHOTO)


def test_imwrite_writes_to_a_named_pipe_and_leaves_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.l3"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        pixels = PHOTO[:8, :8]  # few bytes, so that the pipe holds them
        l3dali.imwrite(pipe, pixels)
        assert pipe.is_fifo()
        assert os.read(reader, 65536) == l3dali.encode(pixels)
    finally:
        os.close(reader)


class OnlyPathLike:
    """A path that only says where it leads."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


@pytest.mark.parametrize("kind", [str, Path, OnlyPathLike])
def test_paths(tmp_path: Path, kind: Any) -> None:
    file = kind(tmp_path / "photo.l3")
    l3dali.imwrite(file, PHOTO)
    assert np.array_equal(l3dali.imread(file), PHOTO)
    assert [path.name for path in tmp_path.iterdir()] == ["photo.l3"]


def test_open_files(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    l3dali.imwrite(buffer, PHOTO)
    buffer.seek(0)
    assert np.array_equal(l3dali.imread(buffer), PHOTO)
    with (tmp_path / "photo.l3").open("wb") as file:
        l3dali.imwrite(file, PHOTO)
    with (tmp_path / "photo.l3").open("rb") as file:
        assert np.array_equal(l3dali.imread(file), PHOTO)


def test_urls_and_open_files_of_fsspec(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    for url in ("memory://folder/photo.l3", f"file://{tmp_path}/photo.l3"):
        l3dali.imwrite(url, PHOTO)
        assert np.array_equal(l3dali.imread(url), PHOTO)
        with fsspec.open(url, "rb") as file:
            assert np.array_equal(l3dali.imread(file), PHOTO)
        with fsspec.open(url, "wb") as file:
            l3dali.imwrite(file, PHOTO[:, :9])
        assert l3dali.info(url).width == 9


@pytest.mark.parametrize("path", ["/", "", "."])
def test_imwrite_takes_no_folder_for_a_file(path: str) -> None:
    with pytest.raises(IsADirectoryError):
        l3dali.imwrite(path, PHOTO)


@pytest.mark.parametrize("kind", [str, Path])
def test_imwrite_refuses_the_name_of_another_format(tmp_path: Path, kind: Any) -> None:
    for name in ("a.png", "b.JPG", "c.gif"):
        with pytest.raises(
            ValueError, match=rf"imwrite only writes \.l3 files, but .*{name} ends in"
        ):
            l3dali.imwrite(kind(tmp_path / name), PHOTO)
    assert list(tmp_path.iterdir()) == []
    l3dali.imwrite(kind(tmp_path / "a.other"), PHOTO)


def test_nothing_is_written_of_an_image_that_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    for file in (buffer, tmp_path / "photo.l3"):
        with pytest.raises(TypeError, match="float64"):
            l3dali.imwrite(file, np.zeros((4, 4)))
    assert buffer.getvalue() == b""
    assert list(tmp_path.iterdir()) == []


def test_missing_files_get_advice() -> None:
    data = l3dali.encode(PHOTO)
    for other in (data, bytearray(data), memoryview(data), 7, None):
        with pytest.raises(TypeError, match=r"imread takes a path, URL or file.*l3dali\.decode"):
            l3dali.imread(other)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"imwrite takes a path, URL or file.*l3dali\.encode"):
            l3dali.imwrite(other, PHOTO)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'rb'"):
        l3dali.imread(io.StringIO("text"))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_when_asked(orientation: int) -> None:
    buffer = io.BytesIO(l3dali.encode(PHOTO, exif=exif(orientation)))
    assert np.array_equal(l3dali.imread(buffer), PHOTO)
    buffer.seek(0)
    turned = l3dali.imread(buffer, orient=True)
    png = write_picture(Picture(PHOTO, exif=exif(orientation).removeprefix(b"Exif\0\0")), ".png")
    ops = pytest.importorskip("PIL.ImageOps")
    upright = ops.exif_transpose(PIL_Image.open(io.BytesIO(png)))
    assert np.array_equal(turned, np.asarray(upright))
    assert turned.flags.c_contiguous


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("block", [None, b"", b"no EXIF", exif(6)[:-9]])
def test_damaged_exif_asks_for_nothing(block: bytes | None) -> None:
    buffer = io.BytesIO(l3dali.encode(PHOTO, exif=block))
    assert np.array_equal(l3dali.imread(buffer, orient=True), PHOTO)


# transcode.


def _jpeg(**options: Any) -> bytes:
    file = io.BytesIO()
    PIL_Image.fromarray(PHOTO).save(file, "JPEG", **options)
    return file.getvalue()


def _palette_png() -> bytes:
    file = io.BytesIO()
    PIL_Image.fromarray(PHOTO).quantize(9).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_transcode_keeps_pixels_and_metadata(kind: Any) -> None:
    data = _jpeg(icc_profile=b"profile", exif=exif(6))
    encoded = l3dali.transcode(kind(data), coding="packed", tile=(16, 32))
    assert np.array_equal(l3dali.decode(encoded), np.asarray(PIL_Image.open(io.BytesIO(data))))
    info = l3dali.info(encoded)
    assert (info.icc, info.exif) == (b"profile", exif(6).removeprefix(b"Exif\0\0"))
    assert (info.tile_width, info.tile_height) == (32, 16)


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({}, []),
        ({"palette": "index"}, ["--palette", "index"]),
        ({"labels": True}, ["--labels"]),
        ({"max_side": 20}, ["--max-side", "20"]),
        ({"orient": True, "max_side": 20}, ["--orient", "--max-side", "20"]),
        ({"coding": "packed"}, ["--coding", "packed"]),
        ({"effort": 2}, ["--effort", "2"]),
    ],
)
def test_transcode_and_the_command_give_the_same_bytes(
    options: Any, flags: list[str], tmp_path: Path
) -> None:
    for name, data in (("a.jpg", _jpeg(exif=exif(6))), ("b.png", _palette_png())):
        source, target = tmp_path / name, (tmp_path / name).with_suffix(".l3")
        source.write_bytes(data)
        assert main(["encode", str(source), *flags]) == 0
        assert target.read_bytes() == l3dali.transcode(data, **options)


def test_transcode_of_palettes() -> None:
    data = _palette_png()
    image = PIL_Image.open(io.BytesIO(data))
    assert np.array_equal(l3dali.decode(l3dali.transcode(data)), np.asarray(image.convert("RGB")))
    for options in ({"palette": "index"}, {"labels": True}):
        encoded = l3dali.transcode(data, **options)
        assert np.array_equal(l3dali.decode(encoded), np.asarray(image))
        info = l3dali.info(encoded)
        assert info.labels
        assert info.palette == bytes(image.getpalette("RGBA"))[: len(info.palette or b"")]


def test_transcode_refuses_what_it_cannot_keep() -> None:
    with pytest.raises(l3dali.ImageError, match="not an image of a known format"):
        l3dali.transcode(b"text")
    with pytest.raises(l3dali.ImageError, match="already an L3 file"):
        l3dali.transcode(l3dali.transcode(_jpeg()))
    with pytest.raises(TypeError, match=r"max_side must be an integer, not 1\.5"):
        l3dali.transcode(_jpeg(), max_side=1.5)  # type: ignore[arg-type]
    with pytest.raises(l3dali.ImageError, match="limit of 1999"):
        l3dali.transcode(_jpeg(), max_pixels=1999)
    assert l3dali.transcode(_jpeg(), max_pixels=None) == l3dali.transcode(_jpeg())
    for path in ("photo.jpg", Path("photo.jpg"), os.fspath("x")):
        with pytest.raises(TypeError, match="bytes of a file, not its path"):
            l3dali.transcode(path)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"max_side": 0}, {"max_side": -3}, {"palette": "gray"}])
def test_transcode_refuses_options(options: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        l3dali.transcode(_palette_png(), **options)


def test_imread_a_window_and_channels(tmp_path: Path) -> None:
    image = np.random.default_rng(4).integers(0, 99, (70, 90, 6), np.uint8)
    path = tmp_path / "a.l3"
    l3dali.imwrite(path, image, tile=(16, 32))
    part = l3dali.imread(path, window=(8, 16, 24, 32), channels=[5, 0])
    np.testing.assert_array_equal(part, image[8:32, 16:48, [5, 0]])
    with pytest.raises(l3dali.L3Error, match=r"a\.l3: the window of 24 rows") as caught:
        l3dali.imread(path, window=(60, 16, 24, 32))
    assert caught.value.status is l3dali.Status.INVALID_ARGUMENT
    with pytest.raises(TypeError, match="window must be four integers"):
        l3dali.imread(path, window=(1, 2, 3), orient=True)  # type: ignore[arg-type]


def bytes_read() -> int:
    """That this process has read of files."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize("options", [{"window": (300, 600, 50, 60)}, {"channels": [9]}])
@pytest.mark.parametrize("kind", ["path", "str", "file", "url", "fsspec"])
def test_a_part_of_a_local_file_reads_little_more(
    tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    fsspec = pytest.importorskip("fsspec")
    image = np.random.default_rng(0).integers(0, 16, (1200, 900, 12), np.uint8)
    groups = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    path = tmp_path / "a.l3"
    l3dali.imwrite(path, image, coding="packed", tile=(256, 256), groups=groups)
    size, url = path.stat().st_size, f"file://{path}"
    with path.open("rb", 0) as opened, fsspec.open(url, "rb") as remote:
        files: dict[str, Any] = {"path": path, "str": str(path), "file": opened, "url": url}
        before = bytes_read()
        part = l3dali.imread(files.get(kind, remote), **options)
        read = bytes_read() - before
    is_window = "window" in options
    np.testing.assert_array_equal(part, image[300:350, 600:660] if is_window else image[..., 9])
    # Of 5 x 4 tiles two; of three groups one, or gaps that are shorter than a request takes.
    assert read < size * (0.15 if is_window else 0.36) + 2**15


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_window_of_an_image_that_is_turned(orientation: int, tmp_path: Path) -> None:
    image = np.random.default_rng(4).integers(0, 99, (30, 50, 3), np.uint8)
    path = tmp_path / "a.l3"
    l3dali.imwrite(path, image, exif=exif(orientation))
    upright = l3dali.imread(path, orient=True)
    np.testing.assert_array_equal(
        l3dali.imread(path, orient=True, window=(3, 5, 11, 20)), upright[3:14, 5:25]
    )
    np.testing.assert_array_equal(
        l3dali.imread(path, orient=True, window=(0, 0, *upright.shape[:2])), upright
    )
    with pytest.raises(l3dali.L3Error, match=r"a\.l3: the window .*not inside"):
        l3dali.imread(path, orient=True, window=(0, 0, upright.shape[0], upright.shape[1] + 1))


def test_a_file_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    data = l3dali.encode(PHOTO, exif=exif(6))
    fsspec.filesystem("memory").pipe_file("/once/a.l3", data)
    (tmp_path / "a.l3").write_bytes(data)
    batches, infos = Mock(wraps=l3dali.codec.open_batch), Mock(wraps=_native.info)
    monkeypatch.setattr(l3dali.codec, "open_batch", batches)
    monkeypatch.setattr(_native, "info", infos)
    for file in (tmp_path / "a.l3", "memory://once/a.l3", io.BytesIO(data)):
        batches.reset_mock()
        part = l3dali.imread(file, orient=True, window=(3, 5, 11, 20))
        np.testing.assert_array_equal(part, np.rot90(PHOTO, -1)[3:14, 5:25])
        assert (batches.call_count, infos.call_count) == (1, 0)
    for source in (tmp_path / "a.l3", "memory://once/a.l3", data):
        infos.reset_mock()
        assert l3dali.info(source).width == PHOTO.shape[1]
        assert infos.call_count == 1


class CountingReader(io.BytesIO):
    """Counts what is read of it."""

    taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.taken += len(data)
        return data


def test_info_of_a_stream_that_gives_a_little_at_a_time() -> None:
    data = l3dali.encode(np.zeros((2, 2), np.uint8), metadata={"a": "x" * 100_000})
    file = io.BytesIO(data)

    class Stream:
        def read(self, size: int = -1) -> bytes:
            assert file.tell() < len(data)  # Waiting for more would never end.
            return file.read(min(size, 1460))

    assert l3dali.info(Stream()).encoded_bytes == len(data)


@pytest.mark.parametrize("read", [l3dali.info, l3dali.imread])
def test_files_that_give_no_bytes(tmp_path: Path, read: Callable[[Any], object]) -> None:
    """Errors were Python's own, of what it makes of text and None."""

    class Silent(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any, /) -> None:
            return None

    (tmp_path / "a.l3").write_bytes(l3dali.encode(PHOTO))
    for text in io.StringIO("text"), (tmp_path / "a.l3").open(encoding="utf-8"):
        with text, pytest.raises(TypeError, match="'rb'"):
            read(text)
    with pytest.raises(TypeError, match=r"read\(\) returned None"):
        read(Silent())


def test_info_of_files(tmp_path: Path) -> None:
    image = np.random.default_rng(4).integers(0, 99, (300, 400, 3), np.uint8)
    data = l3dali.encode(image, coding="stored", xmp=b"x" * 9000)
    whole = l3dali.info(data)
    expected = dataclasses.replace(whole, codings=None)
    path = tmp_path / "a.l3"
    path.write_bytes(data)
    reader = CountingReader(data)
    with path.open("rb") as opened, path.open("rb") as mapped:
        memory = mmap.mmap(mapped.fileno(), 0, access=mmap.ACCESS_READ)
        assert l3dali.info(memory) == whole
        kinds: list[Any] = [path, str(path), np.str_(path), OnlyPathLike(path)]
        for file in (*kinds, opened, reader):
            assert l3dali.info(file) == expected, file
    assert reader.taken < 20_000 < len(data)
    path.write_bytes(data[:50])
    with pytest.raises(l3dali.L3Error, match=r"a\.l3: header, chunks and index have ") as caught:
        l3dali.info(path)
    assert caught.value.status is l3dali.Status.TRUNCATED
    with pytest.raises(FileNotFoundError):
        l3dali.info(tmp_path / "missing.l3")
    with pytest.raises(TypeError, match="info takes bytes, a path, URL or file, not int"):
        l3dali.info(5)  # type: ignore[arg-type]
