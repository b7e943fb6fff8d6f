"""Windows of files behind fsspec: what is fetched, and what comes of damage."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from stream_builder import repair

import l3dali
from l3dali import parts
from l3dali.errors import L3Error, Status, UsageError

fsspec = pytest.importorskip("fsspec")
MemoryFileSystem = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem

Image = NDArray[Any]
FIRST_BYTES = 2**15  # of a window's first request


def scene(height: int, width: int, channels: int, seed: int = 0) -> Image:
    """Noise on a ramp, which does not compress to nothing."""
    noise = np.random.default_rng(seed).integers(0, 16, (height, width, channels), np.uint8)
    return (
        noise + np.add.outer(np.arange(height), np.arange(width))[..., None].astype(np.uint8) // 3
    )


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The bytes of each answer of a storage."""
    counts: list[int] = []
    real = MemoryFileSystem.cat_file

    def cat_file(self: Any, path: str, start: Any = None, end: Any = None, **rest: Any) -> bytes:
        data = bytes(real(self, path, start, end, **rest))
        counts.append(len(data))
        return data

    monkeypatch.setattr(MemoryFileSystem, "cat_file", cat_file)
    yield counts
    fsspec.filesystem("memory").store.clear()


def store(image: Image, **options: Any) -> tuple[str, bytes]:
    data = l3dali.encode(image, **options)
    fsspec.filesystem("memory").pipe_file("/afar/a.l3", data)
    return "memory://afar/a.l3", data


WINDOWS = [(0, 0, 1, 1), (100, 60, 256, 256), (511, 699, 1, 1), (0, 0, 512, 700), (127, 127, 2, 2)]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("coding", ["rans", "packed", "stored"])
def test_windows(fetched: list[int], window: Any, coding: Any) -> None:
    image = scene(512, 700, 3)
    url, data = store(image, coding=coding)
    top, left, height, width = window
    wanted = image[top : top + height, left : left + width]
    assert np.array_equal(l3dali.imread(url, window=window), wanted)
    if height * width <= 256**2:
        assert sum(fetched) < len(data)
    assert np.array_equal(l3dali.imread(url), image)


@pytest.mark.parametrize("channels", [None, [3], [12, 0]])
def test_channels_of_a_window(fetched: list[int], channels: Any) -> None:
    image = scene(300, 300, 13)
    url, data = store(image)
    wanted = image[130:140, 10:290][..., channels or range(13)]
    found = l3dali.imread(url, window=(130, 10, 10, 280), channels=channels)
    assert np.array_equal(found, wanted[..., 0] if channels == [3] else wanted)
    assert sum(fetched) < len(data) * (0.9 if channels is None else 0.6)


def test_a_head_of_many_bytes(fetched: list[int]) -> None:
    """A profile longer than what is read first, and an index behind it."""
    image = scene(256, 600, 3)
    url, _ = store(image, icc=bytes(20_000), tile=(32, 32))
    assert l3dali.info(url).icc == bytes(20_000)
    assert len(fetched) <= 4
    assert np.array_equal(l3dali.imread(url, window=(40, 50, 60, 70)), image[40:100, 50:120])


def test_a_window_of_a_file_larger_than_memory(tmp_path: Path) -> None:
    """Of 32 GiB, nothing but the first tiles is there: the others are holes."""
    image = np.random.default_rng(1).integers(0, 2**16, (256, 256, 8)).astype(np.uint16)
    groups = ((0, 1, 2, 3), (4, 5, 6, 7))
    data = l3dali.encode(image, coding="stored", tile=(256, 256), groups=groups)
    chunks_end = 32 + int.from_bytes(data[24:28], "little")
    units = int.from_bytes(data[chunks_end : chunks_end + 4], "little")  # of 16 bytes, of a tile
    sides = np.array([2**15, 2**16], "<u4").tobytes()
    tiles = 2**16
    index = (np.arange(1, tiles + 1) * units).astype("<u4").tobytes()
    head = repair(data[:16] + sides + data[24:chunks_end] + index + bytes(4))
    head += bytes(-len(head) % 16)
    path = tmp_path / "large.l3"
    with path.open("wb") as file:
        file.write(head + data[-2 * units * 16 :])
        file.truncate(len(head) + tiles * units * 16)
    part = l3dali.imread(f"file://{path}", window=(3, 5, 100, 100))
    np.testing.assert_array_equal(part, image[3:103, 5:105])


@pytest.mark.parametrize(
    "window",
    [(0, 0, 513, 1), (512, 0, 1, 1), (-1, 0, 5, 5), (0, 690, 20, 20), (0, 0, 2**31, 2**31)],
)
def test_windows_outside(fetched: list[int], window: Any) -> None:
    url, data = store(scene(512, 700, 3))
    messages: list[str] = []
    reads: list[Callable[[], Any]] = [
        lambda: l3dali.imread(url, window=window),
        lambda: l3dali.decode(data, window=window),
    ]
    for read in reads:
        with pytest.raises((L3Error, ValueError)) as error:
            read()
        messages.append(str(error.value).removeprefix(f"{url}: "))
    assert messages[0] == messages[1]
    assert sum(fetched) <= FIRST_BYTES


@pytest.mark.parametrize(
    ("damage", "status"),
    [
        (lambda data: data[:100], Status.TRUNCATED),
        (lambda data: data[:40] + b"?" + data[41:], Status.CHECKSUM_MISMATCH),
        (lambda data: b"", Status.TRUNCATED),
    ],
)
def test_damage_is_reported(fetched: list[int], damage: Any, status: Status) -> None:
    url, data = store(scene(512, 700, 3))
    fsspec.filesystem("memory").pipe_file("/afar/a.l3", damage(data))
    with pytest.raises(L3Error, match=r"a\.l3") as error:
        l3dali.imread(url, window=(0, 0, 10, 10))
    assert error.value.status is status


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda data: data[: len(data) // 2], OSError, "the file ends there"),
        (lambda data: data[:-40] + b"\x55" + data[-39:], L3Error, "a checksum differs"),
    ],
)
def test_damaged_tiles(
    fetched: list[int], damage: Any, error: type[Exception], message: str
) -> None:
    """Damage is found where the window touches it, and not looked at elsewhere."""
    image = scene(512, 700, 3)
    url, data = store(image)
    fsspec.filesystem("memory").pipe_file("/afar/a.l3", damage(data))
    assert np.array_equal(l3dali.imread(url, window=(0, 0, 50, 50)), image[:50, :50])
    with pytest.raises(error, match=message):
        l3dali.imread(url, window=(500, 690, 10, 10))


def test_answers_that_are_short(fetched: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    real = MemoryFileSystem.cat_file

    def short(self: Any, path: str, start: Any = None, end: Any = None, **rest: Any) -> bytes:
        data = bytes(real(self, path, start, end, **rest))
        return data if start == 0 else data[:-1]

    url, _ = store(scene(512, 700, 3))
    monkeypatch.setattr(MemoryFileSystem, "cat_file", short)
    with pytest.raises(OSError, match="the server sent"):
        l3dali.imread(url, window=(300, 300, 10, 10))


def test_a_server_without_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    image = scene(512, 700, 3)
    url, data = store(image)
    monkeypatch.setattr(MemoryFileSystem, "cat_file", lambda *_, **__: data)
    assert l3dali.info(url) == l3dali.info(data)
    assert np.array_equal(l3dali.imread(url, window=(9, 8, 70, 60)), image[9:79, 8:68])


def test_info_reads_little(fetched: list[int]) -> None:
    url, data = store(scene(512, 700, 3))
    assert l3dali.info(url).encoded_bytes == len(data)
    assert sum(fetched) == 4096


def test_places_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        l3dali.imread("memory://afar/none.l3", window=(0, 0, 1, 1))
    with pytest.raises(FileNotFoundError):
        l3dali.info("memory://afar/none.l3")
    with pytest.raises(ValueError, match="Protocol not known: nowhere"):
        l3dali.imread("nowhere://a.l3")
    l3dali.imwrite(tmp_path / "a.l3", scene(20, 20, 1))
    assert l3dali.imread(f"file://{tmp_path}/a.l3", window=(0, 0, 2, 2)).shape == (2, 2)


class LibraryError(Exception):
    """As aiohttp has its own."""


@pytest.mark.parametrize("method", ["cat_file", "cat_ranges"])
@pytest.mark.parametrize("error", [LibraryError("503, busy"), FileNotFoundError("afar/a.l3")])
def test_errors_of_libraries_are_oserrors(
    monkeypatch: pytest.MonkeyPatch, method: str, error: Exception
) -> None:
    image = np.random.default_rng(0).integers(0, 256, (512, 512), np.uint8)
    url, _ = store(image)

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(MemoryFileSystem, method, fail)
    monkeypatch.setattr(parts, "_PATIENCE_S", 0)
    is_missing = isinstance(error, FileNotFoundError)
    reason = "No such file or directory" if is_missing else r"503, busy \(1 attempts in 0 s\)"
    with pytest.raises(OSError, match=f"{reason}: '{url}'") as found:
        l3dali.imread(url, window=(0, 0, 300, 300))
    assert isinstance(found.value, FileNotFoundError) == is_missing


def test_what_fsspec_needs_for_a_protocol_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "http", raising=False)
    with pytest.raises(UsageError, match=r"http://here/a.l3 needs a package .*aiohttp"):
        l3dali.imread("http://here/a.l3")
