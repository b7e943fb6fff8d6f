"""`l3 view`: what its page may ask for, and what it may not."""

from __future__ import annotations

import http.client
import io
import json
import os
import tarfile
import threading
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

import l3dali
from l3dali.cli import main
from l3dali.view import app, catalog, pixels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOKEN = "a-token"
SECRET = b"root of all secrets"
RNG = np.random.default_rng(1)
PHOTO = RNG.integers(0, 256, (300, 700, 3), np.uint8)
DEPTH = RNG.integers(-3000, 3000, (520, 530), np.int16)
MASK = RNG.integers(0, 5, (300, 300), np.uint8)


class Client:
    """A server and a client of it, which sends any path."""

    def __init__(self, *paths: Path) -> None:
        found = catalog.Catalog(paths)
        while not found.page(10**9, 1)[2]:
            pass
        self.server = app.Server(app.Viewer(found), TOKEN, 0, workers=2)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def ask(self, path: str, token: str = TOKEN) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(app.LOOPBACK, self.server.server_port, timeout=60)
        connection.putrequest("GET", "/", skip_host=True)
        line = f"GET /{token}/{path} HTTP/1.1".encode(errors="surrogatepass")
        connection._buffer[0] = line  # type: ignore[attr-defined]  # as no client may send it
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, body

    def json(self, path: str) -> Any:
        status, body = self.ask(path)
        assert status == 200, body
        return json.loads(body)

    def tile(self, path: str, dtype: type[np.generic], channels: int, width: int) -> Any:
        status, body = self.ask(f"tile/{path}")
        assert status == 200, body
        return np.frombuffer(body, dtype).reshape(-1, width, channels)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
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
def serve() -> Iterator[Callable[..., Client]]:
    """Makes clients, whose servers end with the test."""
    clients: list[Client] = []

    def make(*paths: Path) -> Client:
        clients.append(Client(*paths))
        return clients[-1]

    yield make
    for each in clients:
        each.server.shutdown()
        each.server.server_close()


@pytest.fixture
def client(folder: Path, serve: Callable[..., Client]) -> Client:
    return serve(folder)


# The sheet.


def test_listing_has_images_in_the_order_of_names(client: Client) -> None:
    page = client.json("list?count=500")
    assert page["done"]
    assert not page["problems"]
    assert page["names"] == [
        *("a.l3", "b.l3", "c.l3", "d.l3", "e<img src=x onerror=alert(1)>.l3", "f.l3", "g.l3"),
        *("sub/shard.tar/1.l3", "sub/shard.tar/x/2.l3"),
    ]
    assert client.json("list?start=7&count=1")["names"] == ["sub/shard.tar/1.l3"]
    assert client.json("list?start=900&count=9")["names"] == []


def test_many_files_are_paged_through(tmp_path: Path, serve: Callable[..., Client]) -> None:
    for i in range(3000):
        (tmp_path / f"{i:05}.l3").touch()
    page = serve(tmp_path).json("list?start=2990&count=60")
    assert page["names"] == [f"{i:05}.l3" for i in range(2990, 3000)]
    assert page["total"] == 3000


def test_a_damaged_shard_shows_its_first_images(
    folder: Path, serve: Callable[..., Client], tmp_path: Path
) -> None:
    data = (folder / "sub/shard.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(data[: len(data) // 2])
    client = serve(tmp_path / "cut.tar", folder / "b.l3")  # the search goes on
    page = client.json("list")
    assert page["names"] == ["cut.tar/1.l3", "b.l3"]
    assert "cut.tar" in page["problems"][0]
    assert client.ask("thumbnail/0")[0] == 200


def test_thumbnails(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (0, 1, 2, 7):
        status, body = client.ask(f"thumbnail/{number}")
        assert status == 200
        assert max(Image.open(io.BytesIO(body)).size) <= 160
    monkeypatch.setattr(app, "LARGE_PIXELS", 2**16)
    status, body = client.ask("thumbnail/0")
    assert (status, json.loads(body)) == (202, {"width": 700, "height": 300})


def test_thumbnails_have_the_colours_of_a_palette() -> None:
    red = bytes([255, 0, 0, 255])
    labels = np.ones((300, 300), np.uint8)
    file = l3dali.encode(labels, labels=True, palette=bytes(4) + red)
    with Image.open(io.BytesIO(pixels.thumbnail(memoryview(file), 160))) as shown:
        assert shown.convert("RGBA").getpixel((9, 9)) == (255, 0, 0, 255)


# One image.


def test_tiles_are_the_samples(client: Client) -> None:
    info = client.json("info/0")
    assert (info["width"], info["height"], info["top_level"]) == (700, 300, 2)
    assert np.array_equal(client.tile("0/0/1/2", np.uint8, 3, 188), PHOTO[256:, 512:])
    assert np.array_equal(client.tile("1/0/0/0", np.int16, 1, 256)[:, :, 0], DEPTH[:256, :256])
    member = client.tile("7/0/0/0", np.uint8, 3, 256)
    assert np.array_equal(member, PHOTO[:256, :256])
    status, body = client.ask("tile/0/0/0/0?bands=2")
    assert status == 200
    assert body == PHOTO[:256, :256, 2].tobytes()


def test_levels_are_means(client: Client) -> None:
    level = client.tile("1/1/0/0", np.int16, 1, 256)[:, :, 0]
    mean = DEPTH[:512, :512].reshape(256, 2, 256, 2).mean(axis=(1, 3))
    assert np.array_equal(level, np.floor(mean + 0.5))
    edge = client.tile("1/1/0/1", np.int16, 1, 9)[:, :, 0]
    assert edge.shape == (256, 9)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5000), (5000, 3), (1030, 2100)], ids=str)
@pytest.mark.parametrize("factor", [1, 8, 1024])
def test_blocks_do_not_show(
    shape: tuple[int, int], factor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pixels, "_BLOCK_BYTES", 1024)  # for the smallest blocks
    image = RNG.integers(0, 2**16, shape, np.uint16)
    data = memoryview(l3dali.encode(image, coding="packed"))

    def sums(values: Any) -> Any:
        rows, columns = (np.arange(0, side, factor) for side in shape)
        return np.add.reduceat(np.add.reduceat(values, rows, 0), columns, 1)

    means = sums(image.astype(np.int64)) / sums(np.ones(shape))
    shrunk = pixels.shrunk(data, (0, 0, *shape), factor)
    assert np.array_equal(shrunk[:, :, 0], np.floor(means + 0.5))


def test_labels_are_not_blended(client: Client) -> None:
    assert client.json("info/2")["palette"] == list(range(20))
    image = np.where(MASK > 2, 200, 0).astype(np.uint8)
    data = memoryview(l3dali.encode(image, labels=True))
    assert set(np.unique(pixels.shrunk(data, (0, 0, 300, 300), 4, labels=True))) == {0, 200}


def test_pixels_under_the_cursor(client: Client) -> None:
    assert client.json("pixel/1/519/529")["values"] == [int(DEPTH[519, 529])]
    assert client.json("pixel/0/3/4?bands=1")["values"] == PHOTO[3, 4].tolist()
    assert client.ask("pixel/1/520/0")[0] == 404


def test_slices_of_a_volume(tmp_path: Path, serve: Callable[..., Client]) -> None:
    volume = RNG.integers(0, 255, (5, 70, 90), np.uint8)
    (tmp_path / "a.l3").write_bytes(l3dali.encode_volume(volume))
    client = serve(tmp_path)
    info = client.json("info/0")
    assert (info["height"], info["slices"], info["top_level"]) == (70, 5, 0)
    tile = client.tile("0/0/0/0?slice=3", np.uint8, 1, 90)
    np.testing.assert_array_equal(tile[..., 0], volume[3])
    assert client.json("pixel/0/69/8?slice=4")["values"] == [volume[4, 69, 8]]
    assert client.ask("pixel/0/70/8?slice=4")[0] == 404
    assert client.ask("tile/0/0/0/0?slice=5")[0] == 404
    assert Image.open(io.BytesIO(client.ask("thumbnail/0")[1])).size == (90, 70)


def test_floats_are_shown_by_their_range(tmp_path: Path, serve: Callable[..., Client]) -> None:
    depth = np.linspace(-2, 9, 600, dtype=np.float32).reshape(20, 30)
    depth[3, 4] = np.nan
    l3dali.imwrite(tmp_path / "a.l3", depth)
    client = serve(tmp_path)
    assert client.json("info/0")["range"] == [-2, 9]
    np.testing.assert_array_equal(client.tile("0/0/0/0", np.float32, 1, 30)[..., 0], depth)
    assert client.json("pixel/0/3/4")["values"] == ["nan"]


def test_damage_is_reported_for_its_tile(client: Client) -> None:
    status, body = client.ask("thumbnail/3")
    assert status == 422
    assert "tile" in json.loads(body)["error"]
    assert client.ask("tile/3/0/0/0")[0] == 200  # a tile that is not damaged
    assert client.ask("info/4")[0] == 422


@pytest.mark.parametrize(
    ("shape", "factor"),
    [((4096, 4096), 8), ((1, 2**17), 1024), ((2**17, 1), 1024)],
    ids=str,
)
def test_large_images_take_little_memory(shape: tuple[int, int], factor: int) -> None:
    data = memoryview(l3dali.encode(np.zeros((*shape, 3), np.uint16), coding="packed"))
    tracemalloc.start()
    pixels.shrunk(data, (0, 0, *shape), factor)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * pixels._BLOCK_BYTES


# What no request may read.


def test_links_that_leave_and_pipes_are_not_opened(client: Client) -> None:
    for number in (5, 6):
        for path in (f"thumbnail/{number}", f"info/{number}", f"tile/{number}/0/0/0"):
            status, body = client.ask(path)
            assert status == 422
            assert SECRET not in body
    assert b"leads out" in client.ask("info/5")[1]


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], f"{TOKEN}x", "é", ".", ".."], ids=ascii)
def test_without_the_token_nothing_is_there(client: Client, token: str) -> None:
    for path in ("", "page.js", "list", "info/0", "tile/0/0/0/0", "../../secret.l3"):
        status, body = client.ask(path, token=token)
        assert status == 404
        assert json.loads(body) == {"error": "nothing here"}


def test_the_server_listens_on_this_machine_alone(client: Client) -> None:
    assert client.server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "word",
    [*("", "..", "%2e%2e", "../note.txt", "app.py", "secret.l3", "-1", "1e3", "²", "9" * 5000)],
)
def test_hostile_paths(client: Client, folder: Path, word: str) -> None:
    """No path shows what is not an image, and none is an error of the server."""
    kept = {path.read_bytes() for path in (folder / "note.txt", folder / "a.l3")}
    for path in (
        *(f"{word}/a.l3", f"info/{word}", f"thumbnail/{word}", f"tile/0/0/{word}/0"),
        *(f"pixel/{word}/0/0", f"list?start={word}&count={word}", f"tile/0/0/0/0?bands={word}"),
    ):
        status, body = client.ask(path)
        assert status in (200, 404, 422), path
        assert SECRET not in body, path
        assert body not in kept, path


def test_page_has_no_code_of_others(client: Client) -> None:
    for name in ("", "page.js", "page.css"):
        status, body = client.ask(name)
        assert status == 200
        assert b"http" not in body
        assert b"innerHTML" not in body


# The command.


def test_command_refuses(folder: Path) -> None:
    assert main(["view", "no/such/file"]) == 2
    assert main(["view", str(folder), "--port", "70000"]) == 2


def test_an_empty_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("no image")
    assert main(["view", str(tmp_path)]) == 2
    assert "no L3 files and no tar shards" in capsys.readouterr().err
