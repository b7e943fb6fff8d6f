"""`l3 view`: what its pages may ask for, and what they may not."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pwd
import random
import sys
import tarfile
import threading
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

import l3dali

pytest.importorskip("starlette")

from l3dali.cli import main
from l3dali.view import app as view_app
from l3dali.view import catalog, overviews, pixels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOKEN = "a-token"
SECRET = b"root of all secrets"
MEMORY = 256 * 10**6
RNG = np.random.default_rng(1)
PHOTO = RNG.integers(0, 256, (300, 700, 3), np.uint8)
DEPTH = RNG.integers(-3000, 3000, (520, 530), np.int16)
MASK = RNG.integers(0, 5, (300, 300), np.uint8)


class Client:
    """Asks an application as a server does, with any path that a server may hand on."""

    def __init__(
        self, folder: Path, *paths: Path, kept_bytes: int = 10**9, memory: int = MEMORY
    ) -> None:
        self.overviews = overviews.Overviews(folder / "cache", kept_bytes, memory)
        found = catalog.Catalog(paths)
        while not found.page(10**9, 1)[2]:
            pass
        viewer = view_app.Viewer(found, self.overviews)
        self.app = view_app.make_app(viewer, TOKEN, workers=2)

    def ask(self, path: str, query: str = "", token: str = TOKEN) -> tuple[int, bytes]:
        return asyncio.run(self.answer(f"/{token}/{path}", query))

    async def answer(self, path: str, query: str = "") -> tuple[int, bytes]:
        sent: list[Any] = []
        asked = False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if asked:
                await asyncio.Event().wait()  # The client stays.
            asked = True
            return {"type": "http.request", "body": b""}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(errors="replace"),
            "root_path": "",
            "query_string": query.encode(errors="replace"),
            "headers": [],
        }
        await self.app(scope, receive, send)
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], body

    def json(self, path: str, query: str = "") -> Any:
        status, body = self.ask(path, query)
        assert status == 200, body
        return json.loads(body)

    def tile(self, path: str, dtype: type[np.generic], channels: int, width: int) -> Any:
        status, body = self.ask(f"tile/{path}")
        assert status == 200, body
        return np.frombuffer(body, dtype).reshape(-1, width, channels)


def make_folder(tmp_path: Path) -> Path:
    """A folder with images, a shard, a damaged file and links that leave it."""
    named = tmp_path / "named"
    (named / "sub").mkdir(parents=True)
    l3dali.imwrite(named / "a.l3", PHOTO)
    l3dali.imwrite(named / "b.l3", DEPTH)
    l3dali.imwrite(named / "c.l3", MASK, labels=True, palette=bytes(range(20)))
    damaged = bytearray((named / "a.l3").read_bytes())
    damaged[-500] ^= 1
    (named / "d.l3").write_bytes(damaged)
    (named / "e<img src=x onerror=alert(1)>.l3").write_bytes(damaged[:100])
    (tmp_path / "secret.l3").write_bytes(SECRET)
    (named / "f.l3").symlink_to(tmp_path / "secret.l3")
    os.mkfifo(named / "g.l3")
    (named / "note.txt").write_bytes(SECRET)
    with tarfile.open(named / "sub/shard.tar", "w") as tar:
        for name in ("1.l3", "1.json", "x/2.l3"):
            tar.add(named / "a.l3", name)
    return named


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_folder(tmp_path)


@pytest.fixture
def client(tmp_path: Path, folder: Path) -> Client:
    return Client(tmp_path, folder)


def test_listing_has_images_in_the_order_of_names(client: Client) -> None:
    page = client.json("list", "count=500")
    assert page["done"]
    assert not page["problems"]
    assert page["names"] == [
        *("a.l3", "b.l3", "c.l3", "d.l3", "e<img src=x onerror=alert(1)>.l3", "f.l3", "g.l3"),
        *("sub/shard.tar/1.l3", "sub/shard.tar/x/2.l3"),
    ]
    assert client.json("list", "start=7&count=1")["names"] == ["sub/shard.tar/1.l3"]
    assert client.json("list", "start=900&count=9")["names"] == []


def test_many_files_are_paged_through(tmp_path: Path) -> None:
    named = tmp_path / "many"
    named.mkdir()
    for i in range(3000):
        (named / f"{i:05}.l3").touch()
    client = Client(tmp_path, named)
    page = client.json("list", "start=2990&count=60")
    assert page["names"] == [f"{i:05}.l3" for i in range(2990, 3000)]
    assert page["total"] == 3000


def test_a_shard_is_not_read_whole(tmp_path: Path) -> None:
    shard = tmp_path / "a.tar"
    with tarfile.open(shard, "w") as tar:
        for i in range(100):
            member = tarfile.TarInfo(f"{i}.l3")
            member.size = 200_000
            tar.addfile(member, io.BytesIO(bytes(member.size)))

    class Counting(io.FileIO):
        count = 0

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(-1 if size is None else size)
            self.count += len(data)
            return data

    with Counting(shard) as file:
        members = list(catalog._members(file))
    assert len(members) == 100
    assert file.count < 200_000


def test_a_damaged_shard_shows_what_it_has(tmp_path: Path, folder: Path) -> None:
    shard = tmp_path / "cut.tar"
    data = (folder / "sub/shard.tar").read_bytes()
    shard.write_bytes(data[: len(data) // 2])
    client = Client(tmp_path, shard)
    page = client.json("list")
    assert page["names"] == ["cut.tar/1.l3"]
    assert "cut.tar" in page["problems"][0]
    assert client.ask("thumbnail/0")[0] == 200


def test_whatever_a_shard_makes_tarfile_raise_the_search_goes_on(tmp_path: Path) -> None:
    """An OverflowError ended the search: what came behind was never listed."""
    pytest.importorskip("imagecodecs")
    from convert_tools import write_bad_shard

    shards = tmp_path / "shards"
    shards.mkdir()
    write_bad_shard(shards / "a.tar")
    l3dali.imwrite(shards / "b.l3", MASK)
    listed = Client(tmp_path, shards).json("list")
    assert listed["names"] == ["b.l3"]
    assert listed["done"]
    assert listed["problems"][0].startswith("a.tar: ")


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
@pytest.mark.parametrize("size", [-512, -1024, -(2**40)])
def test_a_member_of_a_negative_size_ends_its_shard(tmp_path: Path, kind: bytes, size: int) -> None:
    """tarfile goes back to it: the search never ended, and its list grew."""
    pytest.importorskip("imagecodecs")
    from convert_tools import negative_header

    shard = tmp_path / "a.tar"
    first = tarfile.TarInfo("first.l3").tobuf()
    shard.write_bytes(first + negative_header("x.l3", kind, size) + bytes(1024))
    found = catalog.Catalog([shard])
    while not (page := found.page(0, 10**9))[2] and page[1] < 10:
        pass
    assert page[1] < 3


def test_headers_that_claim_much_are_not_read(tmp_path: Path) -> None:
    shard = tmp_path / "a.tar"
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2**33
    shard.write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(2**20))
    page = Client(tmp_path, shard).json("list")
    assert not page["names"]
    assert "header" in page["problems"][0]


@pytest.mark.parametrize(
    "body",
    [
        b"1" * 2**19,
        b"2 " * 5000 + b"k" * 2**19 + b"=",
        b"5 a=\n" * 2000,
    ],
    ids=["digits", "keys", "many"],
)
def test_pax_headers_that_tarfile_takes_long_over(tmp_path: Path, body: bytes) -> None:
    """Minutes without an answer, 2 GB of keys out of half a MB."""
    pytest.importorskip("imagecodecs")
    from convert_tools import pax

    shard = tmp_path / "a.tar"
    shard.write_bytes(pax("x", tarfile.XHDTYPE, body) + bytes(1024))
    tracemalloc.start()
    page = Client(tmp_path, shard).json("list")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "pax" in page["problems"][0]
    assert peak < 16 * 2**20


def test_headers_of_one_member_have_one_limit(tmp_path: Path) -> None:
    pytest.importorskip("imagecodecs")
    from convert_tools import pax

    shard = tmp_path / "a.tar"
    large = pax("x", tarfile.XHDTYPE, b"600010 k=" + b"v" * 600_000 + b"\n")
    member = tarfile.TarInfo("a.l3").tobuf()
    shard.write_bytes(large + member + large + large + member + bytes(1024))
    page = Client(tmp_path, shard).json("list")
    assert page["names"] == ["a.tar/a.l3"]
    assert "a header of 1" in page["problems"][0]


def test_tiles_are_the_samples(client: Client) -> None:
    info = client.json("info/0")
    assert (info["width"], info["height"], info["top_level"]) == (700, 300, 2)
    assert np.array_equal(client.tile("0/0/1/2", np.uint8, 3, 188), PHOTO[256:, 512:])
    assert np.array_equal(client.tile("1/0/0/0", np.int16, 1, 256)[:, :, 0], DEPTH[:256, :256])
    member = client.tile("7/0/0/0", np.uint8, 3, 256)
    assert np.array_equal(member, PHOTO[:256, :256])
    status, body = client.ask("tile/0/0/0/0", "bands=2")
    assert status == 200
    assert body == PHOTO[:256, :256, 2].tobytes()


def test_levels_are_means(client: Client) -> None:
    level = client.tile("1/1/0/0", np.int16, 1, 256)[:, :, 0]
    mean = DEPTH[:512, :512].reshape(256, 2, 256, 2).mean(axis=(1, 3))
    assert np.array_equal(level, np.floor(mean + 0.5))
    edge = client.tile("1/1/0/1", np.int16, 1, 9)[:, :, 0]
    assert edge.shape == (256, 9)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5000), (5000, 3), (1030, 2100)], ids=str)
@pytest.mark.parametrize("factor", [1, 2, 8, 1024])
def test_blocks_do_not_show(
    shape: tuple[int, int], factor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pixels, "CALL_BYTES", 1024)  # for blocks as small as can be
    image = RNG.integers(0, 2**16, shape, np.uint16)
    data = memoryview(l3dali.encode(image, coding="packed"))
    padded = np.pad(image, [(0, -side % factor) for side in shape], mode="edge").astype(np.int64)
    height, width = (side // factor for side in padded.shape)
    sums = padded.reshape(height, factor, width, factor).sum(axis=(1, 3))
    shrunk = pixels.shrunk(data, (0, 0, *shape), factor)
    assert np.array_equal(shrunk[:, :, 0], (2 * sums + factor**2) // (2 * factor**2))


def test_labels_are_not_blended(client: Client) -> None:
    assert client.json("info/2")["palette"] == list(range(20))
    image = np.where(MASK > 2, 200, 0).astype(np.uint8)
    data = memoryview(l3dali.encode(image, labels=True))
    assert set(np.unique(pixels.shrunk(data, (0, 0, 300, 300), 4, labels=True))) == {0, 200}


def test_pixels_under_the_cursor(client: Client) -> None:
    assert client.json("pixel/1/519/529")["values"] == [int(DEPTH[519, 529])]
    assert client.json("pixel/0/3/4", "bands=1")["values"] == PHOTO[3, 4].tolist()
    assert client.ask("pixel/1/520/0")[0] == 404


def test_thumbnails(client: Client) -> None:
    for number in (0, 1, 2, 7):
        status, body = client.ask(f"thumbnail/{number}")
        assert status == 200
        assert max(Image.open(io.BytesIO(body)).size) <= 160


def test_damaged_files_say_so(client: Client) -> None:
    status, body = client.ask("thumbnail/3")
    assert status == 422
    assert "tile" in json.loads(body)["error"]
    assert client.ask("tile/3/0/0/0")[0] == 200  # a tile that is sound
    assert client.ask("info/4")[0] == 422


def test_links_that_leave_and_pipes_are_not_opened(client: Client) -> None:
    for number in (5, 6):
        for path in (f"thumbnail/{number}", f"info/{number}", f"tile/{number}/0/0/0"):
            status, body = client.ask(path)
            assert status == 422
            assert SECRET not in body
    assert b"leads out" in client.ask("info/5")[1]


def test_links_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a chroot, where nothing says what is open."""

    def readlink(path: Path) -> Path:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "readlink", readlink)
    root, outside = tmp_path / "root", tmp_path / "outside.l3"
    root.mkdir()
    l3dali.imwrite(outside, MASK)
    l3dali.imwrite(root / "a.l3", MASK)
    (root / "b.l3").symlink_to("a.l3")
    (root / "c.l3").symlink_to("../outside.l3")
    for name in ("a.l3", "b.l3"):
        assert catalog.Entry(name, root / name, root).read() == outside.read_bytes()
    entry = catalog.Entry("c.l3", root / "c.l3", root)
    with pytest.raises(OSError, match="leads out"):
        entry.read()
    swapped = tmp_path / "swapped.l3"
    swapped.symlink_to("root/a.l3")
    monkeypatch.setattr(Path, "resolve", lambda _path, strict: swapped)  # changed since
    with pytest.raises(OSError, match="has changed"):
        catalog.Entry("a.l3", root / "a.l3", root).read()


def test_what_is_kept_beside_pixels_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "big.l3"
    l3dali.imwrite(file, MASK, icc=bytes(pixels.MAX_KEPT_BYTES + 1))
    status, body = Client(tmp_path, file).ask("info/0")
    assert status == 422
    assert b"kept beside the pixels" in body


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that counts as large."""
    monkeypatch.setattr(overviews, "LARGE_PIXELS", 2**16)
    file = tmp_path / "large.l3"
    l3dali.imwrite(file, DEPTH)
    return file


def _wait(client: Client, path: str = "overview/0") -> Any:
    while True:
        state = client.json(path)
        if state["error"] or state["done"] == 1:
            return state


def test_large_images_have_overviews(tmp_path: Path, large: Path) -> None:
    client = Client(tmp_path, large)
    level = client.json("info/0")["overview_level"]
    assert level == 3
    assert client.ask("thumbnail/0")[0] == 202
    assert client.ask("tile/0/2/0/0")[0] == 200
    assert client.ask(f"tile/0/{level}/0/0")[0] == 404  # level 2 fits one tile
    assert _wait(client)["error"] == ""
    assert client.ask("thumbnail/0")[0] == 200


def test_overviews_have_the_colours_of_a_palette(tmp_path: Path, large: Path) -> None:
    red = bytes([255, 0, 0, 255])
    l3dali.imwrite(large, np.ones((300, 300), np.uint8), labels=True, palette=bytes(4) + red)
    client = Client(tmp_path, large)
    assert _wait(client)["error"] == ""
    with Image.open(io.BytesIO(client.ask("thumbnail/0")[1])) as shown:
        assert shown.convert("RGBA").getpixel((9, 9)) == (255, 0, 0, 255)


def test_tiles_of_overviews(tmp_path: Path, large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overviews, "_FIRST_LEVEL", 1)
    client = Client(tmp_path, large)
    assert client.ask("tile/0/1/0/0")[0] == 409
    assert _wait(client)["error"] == ""
    half = pixels.shrunk(memoryview(large.read_bytes()), (0, 0, *DEPTH.shape), 2)
    assert np.array_equal(client.tile("0/1/1/1", np.int16, 1, 9), half[256:, 256:])
    times = large.stat().st_mtime_ns
    large.write_bytes(large.read_bytes())
    os.utime(large, ns=(times, times))  # another file of the same size and time
    assert client.ask("tile/0/1/0/0")[0] == 409


def test_overviews_of_another_level_are_not_shown(
    tmp_path: Path, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overviews, "_FIRST_LEVEL", 1)
    assert _wait(Client(tmp_path, large))["error"] == ""
    little = Client(tmp_path, large, memory=2**20)  # in the same folder
    assert little.json("info/0")["overview_level"] == 2
    assert [little.ask(path)[0] for path in ("thumbnail/0", "tile/0/2/0/0")] == [202, 409]


def test_overviews_of_damaged_files_fail(tmp_path: Path, large: Path) -> None:
    data = bytearray(large.read_bytes())
    data[-100] ^= 1
    large.write_bytes(data)
    assert "tile" in _wait(Client(tmp_path, large))["error"]


def test_a_damaged_overview_is_made_anew(tmp_path: Path, large: Path) -> None:
    client = Client(tmp_path, large)
    _wait(client)
    (kept,) = (tmp_path / "cache").glob("l3view-*.l3")
    sound = kept.read_bytes()
    kept.write_bytes(sound[:-100] + bytes(100))
    assert client.ask("thumbnail/0")[0] == 202
    assert client.json("overview/0")["done"] < 1
    assert _wait(client)["error"] == ""
    assert client.ask("thumbnail/0")[0] == 200
    assert kept.read_bytes() == sound


def test_another_viewer_drops_overviews_too(tmp_path: Path, large: Path) -> None:
    client = Client(tmp_path, large)
    (tmp_path / f"cache/l3view-{0:032x}.l3").symlink_to("gone")
    assert _wait(client)["error"] == ""


def test_the_cache_is_bounded(tmp_path: Path, large: Path) -> None:
    client = Client(tmp_path, large, kept_bytes=0)
    old = tmp_path / f"cache/l3view-{0:032x}.l3"
    mine = [tmp_path / f"cache/{name}.l3" for name in ("mine", f"{0:032x}")]  # a folder of images
    for path in (old, *mine):
        path.write_bytes(bytes(100))
    assert _wait(client)["error"] == ""
    assert not old.exists()
    assert all(path.exists() for path in mine)


@pytest.mark.parametrize(
    ("shape", "factor"),
    [((4096, 4096), 8), ((1, 2**20), 1024), ((2**20, 1), 1024)],
    ids=str,
)
def test_large_images_take_little_memory(shape: tuple[int, int], factor: int) -> None:
    """Of 100 MB of pixels a few blocks are there at a time. Lines took `factor` times theirs."""
    data = memoryview(l3dali.encode(np.zeros((*shape, 3), np.uint16), coding="packed"))
    tracemalloc.start()
    pixels.shrunk(data, (0, 0, *shape), factor)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < pixels.CALL_BYTES


def test_long_pairs_are_not_read() -> None:
    """As Python objects they took 700 MiB, to know whether the last channel is alpha."""
    pairs: dict[str, Any] = {"lists": [[] for _ in range(2**18)]}
    data = memoryview(l3dali.encode(np.zeros((9, 9, 4), np.uint8), metadata=pairs))
    tracemalloc.start()
    pixels.thumbnail(data, 8)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 2**20


def test_a_hundred_tabs_wait_for_each_other(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = threading.Lock()
    running = most = 0
    original = pixels.shrunk

    def counting(*arguments: Any, **options: Any) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        try:
            return original(*arguments, **options)
        finally:
            with lock:
                running -= 1

    monkeypatch.setattr(pixels, "shrunk", counting)

    async def ask_all() -> list[tuple[int, bytes]]:
        asked = [client.answer(f"/{TOKEN}/tile/0/0/0/{i % 3}") for i in range(100)]
        return list(await asyncio.gather(*asked))

    assert {status for status, _ in asyncio.run(ask_all())} == {200}
    assert most <= 2


@pytest.mark.parametrize(
    "token", ["", "wrong", TOKEN[:-1], f"{TOKEN}x", "\ud800", ".", ".."], ids=ascii
)
def test_without_the_token_nothing_is_there(client: Client, token: str) -> None:
    for path in ("", "page.js", "list", "info/0", "tile/0/0/0/0", "../../secret.l3"):
        status, body = client.ask(path, token=token)
        assert status == 404
        assert json.loads(body) == {"error": "nothing here"}


# What hostile paths are made of.
WORDS: Sequence[str] = (
    *("", ".", "..", "...", "%2e%2e", "..\\", "\0", "\n", "~", "//", "etc", "passwd", "\ud800"),
    *("page.html", "page.js", "app.py", "__init__.py", "note.txt", "secret.l3", "a.l3", "f.l3"),
    *("list", "info", "thumbnail", "tile", "pixel", "overview", TOKEN, "<script>", "{image}"),
    *("0", "1", "2", "3", "4", "5", "6", "7", "00", "-1", "+1", "1e3", "0x1", "1_0", "٣", "²"),
    *("255", "256", "65536", "4294967295", "4294967296", "9" * 30, "9" * 5000, "nan", "1.5"),
)


def test_hostile_paths(client: Client, folder: Path) -> None:
    """No path shows what is not an image, and none is an error of the server."""
    random_numbers = random.Random(7)
    kinds: Sequence[Callable[[], str]] = (
        lambda: "/".join(random_numbers.choices(WORDS, k=random_numbers.randrange(1, 7))),
        lambda: "".join(map(chr, random_numbers.choices(range(0x2FF), k=12))),
        lambda: f"tile/{'/'.join(random_numbers.choices(WORDS, k=4))}",
        lambda: (
            f"tile/{random_numbers.randrange(9)}/{random_numbers.randrange(4)}"
            f"/{random_numbers.choice(WORDS)}/{random_numbers.randrange(4)}"
        ),
    )
    kept = {path.read_bytes() for path in (folder / "note.txt", folder / "a.l3")}
    statuses = set()
    for _ in range(1500):
        path = random_numbers.choice(kinds)()
        query = random_numbers.choice(("", "bands=0", "bands=0,1,2", f"bands={path}", path))
        status, body = client.ask(path, query)
        statuses.add(status)
        assert status in (200, 404, 422), (path, query)
        assert SECRET not in body, path
        assert b"root:" not in body, path
        assert body not in kept, path
    assert statuses == {200, 404, 422}


@pytest.mark.parametrize(
    "query",
    ["start=-1", "start=x", "count=501", "count=1e9", f"start={'9' * 5000}", "start=%00", "start="],
)
def test_hostile_queries(client: Client, query: str) -> None:
    assert client.ask("list", query)[0] == 404


def test_command_names_what_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["view", str(folder)]) == 2
    assert "l3 view needs what is not" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--memory", "10"], ["no/such/file"]], ids=str)
def test_command_refuses(folder: Path, arguments: list[str]) -> None:
    assert main(["view", str(folder), *arguments]) == 2


def test_command_refuses_a_file_of_another_format(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert main(["view", str(folder / "photo.png")]) == 2
    assert f"{folder}/photo.png: not an L3 file; l3 encode makes one" in capsys.readouterr().err


def test_page_has_no_code_of_others(client: Client) -> None:
    for name in ("", "page.js", "page.css"):
        status, body = client.ask(name)
        assert status == 200
        assert b"http" not in body
        assert b"innerHTML" not in body


def test_without_a_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in containers of any user number: all commands ended, for the overviews of this one."""

    def nobody(_: int) -> None:
        raise KeyError

    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    (tmp_path / "a.l3").write_bytes(l3dali.encode(MASK))
    assert main(["info", str(tmp_path / "a.l3")]) == 0
    assert main(["view", str(tmp_path / "a.l3")]) == 2
    assert "there is no home folder: name a folder with --cache" in capsys.readouterr().err
