"""`decode_files` and `Loader` on a bucket: requests counted, and faults, at moto's server."""

from __future__ import annotations

import multiprocessing
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import s3fs
import torch
from s3_tools import FOREVER, Fault, Server

import l3dali
import l3dali.torch
from l3dali import parts
from l3dali.torch import Loader

COUNT = 6
WINDOW = (130, 300, 120, 100)
URLS = [f"s3://data/{i}.l3" for i in range(COUNT)]


@pytest.fixture(scope="module")
def images() -> list[npt.NDArray[Any]]:
    """Whose tiles are larger than a gap that is fetched."""
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (768, 1024, 3), np.uint8) for _ in range(COUNT)]


@pytest.fixture(scope="module")
def files(images: list[npt.NDArray[Any]]) -> list[bytes]:
    return [l3dali.encode(image, coding="packed", tile=(256, 256)) for image in images]


@pytest.fixture
def server(server: Server, files: list[bytes], monkeypatch: pytest.MonkeyPatch) -> Server:
    """With the files, and short pauses."""
    s3fs.S3FileSystem().pipe(dict(zip(URLS, files, strict=True)))
    server.requests.clear()
    server.sent = 0
    monkeypatch.setattr(parts, "_FIRST_PAUSE_S", 0.02)
    return server


def gets(server: Server) -> int:
    """The requests so far, which are all GETs."""
    assert {method for method, _ in server.requests} <= {"GET"}
    return len(server.requests)


def crops(images: list[npt.NDArray[Any]]) -> torch.Tensor:
    top, left, height, width = WINDOW
    parts_of = [image[top : top + height, left : left + width] for image in images]
    return torch.from_numpy(np.stack(parts_of)).permute(0, 3, 1, 2)


def fixed(info: l3dali.Info, random: np.random.Generator) -> Any:
    return WINDOW


def test_windows_take_a_request_for_the_head_and_one_for_each_row_of_tiles(
    server: Server, images: list[npt.NDArray[Any]], files: list[bytes]
) -> None:
    batch = l3dali.torch.decode_files(URLS, windows=[WINDOW] * COUNT, batched=True)
    assert torch.equal(batch, crops(images))
    assert gets(server) == 2 * COUNT
    assert server.sent < 0.25 * sum(map(len, files))


def test_whole_images_take_a_request(
    server: Server, images: list[npt.NDArray[Any]], files: list[bytes]
) -> None:
    for tensor, image in zip(l3dali.torch.decode_files(URLS), images, strict=True):
        np.testing.assert_array_equal(tensor.permute(1, 2, 0), image)
    assert gets(server) == COUNT
    assert server.sent == sum(map(len, files))


def test_windows_of_one_file_are_read_together(
    server: Server, images: list[npt.NDArray[Any]]
) -> None:
    windows: Any = [WINDOW, (0, 0, 120, 100)]
    read = l3dali.torch.decode_files(URLS[:1] * 2, windows=windows)
    assert torch.equal(read[0], crops(images[:1])[0])
    assert gets(server) == 2
    assert server.requests[0] == server.requests[1]


@pytest.mark.parametrize("kind", ["503", "500", "cut", "reset"])
@pytest.mark.parametrize("times", [1, 2])
def test_requests_that_fail_are_repeated(
    server: Server, images: list[npt.NDArray[Any]], kind: str, times: int
) -> None:
    for url in (URLS[1], URLS[4]):
        server.faults.append(Fault("GET", url.rpartition("/")[2], times, kind))
    batch = l3dali.torch.decode_files(URLS, windows=[WINDOW] * COUNT, batched=True)
    assert torch.equal(batch, crops(images))


@pytest.mark.parametrize("kind", ["503", "500", "cut", "reset"])
def test_the_error_of_an_outage_names_url_attempts_and_reason(
    server: Server, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(parts, "_PATIENCE_S", 0.1)
    server.faults.append(Fault("GET", "3.l3", FOREVER, kind))
    with pytest.raises(OSError, match=r"\(\d+ attempts in \d+ s\): 's3://data/3\.l3'") as caught:
        l3dali.torch.decode_files(URLS, windows=[WINDOW] * COUNT)
    assert not isinstance(caught.value, FileNotFoundError)
    with pytest.raises(OSError, match="attempts in"):
        list(Loader(URLS, 2, window=fixed, on_error="skip"))


@pytest.mark.parametrize("attempt_s", [0, 1, 3, 12])
def test_an_outage_is_waited_for_and_ends(
    monkeypatch: pytest.MonkeyPatch, attempt_s: float
) -> None:
    begun = now = 0.0

    def ask(ranges: list[Any]) -> list[Any]:
        nonlocal begun
        begun = now
        sleep(attempt_s)
        return [OSError("down")] * len(ranges)

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(parts, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    monkeypatch.setattr(parts, "_ask", ask)
    with pytest.raises(OSError, match="down"):
        l3dali.torch.decode_files(URLS)
    assert now <= 25
    assert attempt_s > 3 or begun >= 10


def test_missing_and_forbidden_files_are_not_asked_for_again(server: Server) -> None:
    missing = "s3://data/none.l3"
    with pytest.raises(FileNotFoundError, match="none"):
        l3dali.torch.decode_files([*URLS, missing], windows=[WINDOW] * (COUNT + 1))
    assert sum("none" in path for _, path in server.requests) == 1
    with pytest.warns(UserWarning, match="sample 1 is left out: .*none"):
        (batch,) = Loader([URLS[0], missing, URLS[2]], 3, window=fixed, on_error="skip")
    assert len(batch) == 2
    server.faults.append(Fault("GET", "2.l3", FOREVER, "403"))
    before = len(server.requests)
    with pytest.raises(PermissionError, match=r"2\.l3"):
        l3dali.torch.decode_files(URLS, windows=[WINDOW] * COUNT)
    assert len(server.requests) == before + COUNT
    with pytest.raises(PermissionError):
        list(Loader(URLS, 3, window=fixed, on_error="skip"))


def test_heads_are_kept_for_the_next_epoch(
    server: Server, images: list[npt.NDArray[Any]], files: list[bytes]
) -> None:
    loader = Loader(URLS, 2, window=fixed)
    assert torch.equal(torch.cat(list(loader)), crops(images))
    first, server.sent = server.sent, 0
    assert torch.equal(torch.cat(list(loader)), crops(images))
    assert gets(server) == 3 * COUNT
    assert server.sent < first - COUNT * 2**14
    other = l3dali.encode(images[0] // 9, coding="packed", tile=(256, 256))
    s3fs.S3FileSystem().pipe_file(URLS[0], other)
    with pytest.raises((l3dali.L3Error, OSError), match=r"replaced|the file ends there"):
        list(loader)


def _load(urls: list[str], queue: Any) -> None:
    torch.set_num_threads(1)  # as workers of a DataLoader do: those of the parent are gone
    queue.put(np.concatenate([batch.numpy() for batch in Loader(urls, 2, window=fixed)]))


def test_in_a_process_forked_after_the_parent_used_fsspec(
    server: Server, images: list[npt.NDArray[Any]]
) -> None:
    assert len(list(Loader(URLS, 2, window=fixed))) == 3
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_load, args=(URLS, queue))
    process.start()
    np.testing.assert_array_equal(queue.get(timeout=60), crops(images))
    process.join()


def test_program_of_the_docs(server: Server) -> None:
    """The one of docs/pytorch.md that reads from a bucket."""
    page = (Path(__file__).parents[2] / "docs" / "pytorch.md").read_text()
    (code,) = re.findall(r"^```python\n([^`]*s3://[^`]*)^```", page, re.MULTILINE)
    for url in URLS[:3]:
        s3fs.S3FileSystem().copy(url, url.replace("data/", "data/scenes/"))
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["batch"].shape == (1, 3, 256, 256)
