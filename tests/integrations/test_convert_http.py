"""`l3 convert` of a folder that a plain HTTP server lists."""

from __future__ import annotations

import functools
import os
import signal
import socket
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("fsspec")
pytest.importorskip("imagecodecs")

from children import child_environment
from convert_tools import convert, files_below, png, samples, write_tar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


PAGES = {
    "links": b'<a href="/s/0.png">x</a> <a href="1.png">x</a> <a href="2.png">x</a>',
    "self": b'<a href="/self/">x</a> <a href="./">x</a> <a href="../self/">x</a> '
    b'<a href="1.png">x</a>',
    "sorted": b'<a href="?C=N;O=D">Name</a> <a href="./?C=M">x</a> <a href="1.png">x</a>',
    "longer": b'<a href="a/">x</a> <a href="b/">x</a>',
    "busy": b'<a href="3.png">x</a> <a href="4.png">x</a> <a href="1.png">x</a>',
    "dead": b'<a href="gone/">x</a> <a href="1.png">x</a>',
    "odd": b'<a href="http://[/">x</a> <a\nclass="x" HREF=\'./1.png\'>x</a> <a' + 9000 * b" ",
    "large": bytes(2**26 + 1),
}


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder, and a page with a link out of it."""

    def log_message(self, *_: object) -> None:
        pass

    def send_header(self, keyword: str, value: str) -> None:
        if keyword != "Last-Modified" or not self.path.startswith("/bare"):
            super().send_header(keyword, value)

    def do_HEAD(self) -> None:
        if self.path.endswith("3.png"):
            return self.send_error(503)
        if self.path.endswith("4.png"):
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return None
        if not self.path.endswith("2.png"):
            return super().do_HEAD()
        self.send_response(200)
        self.end_headers()
        return None

    def do_GET(self) -> None:
        if self.path.endswith(("2.png", "3.png", "4.png")):
            return self.do_HEAD()
        first, *below = self.path.strip("/").split("/")
        page = None if below and first != "longer" else PAGES.get(first.partition("?")[0])
        if page is None:
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)
        return None


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The address of a server of `tmp_path`."""
    for name in ("s/0.png", "s/b/1.png", *(f"{page}/1.png" for page in PAGES)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(png(len(name)))
    write_tar(tmp_path / "s" / "a.tar", samples(2))
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_listing_without_sizes_is_converted(tmp_path: Path, url: str) -> None:
    """Its files failed as if they had 0 bytes."""
    assert convert(f"{url}/s/", tmp_path / "d", "-j", 1) == 0
    assert files_below(tmp_path / "d") == {"0.l3", "b/1.l3", "a.tar", "a.idx"}


@pytest.mark.parametrize("name", ["s", "bare"])
def test_files_that_change_and_keep_their_sizes(
    tmp_path: Path, url: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They counted as unchanged, also where the server tells no times."""
    (tmp_path / name).mkdir(exist_ok=True)
    other, changed = tmp_path / name / "other.txt", tmp_path / name / "changed.txt"
    for path in (other, changed):
        path.write_bytes(b"one")
        os.utime(path, (1, 1))
    target = tmp_path / "d"
    assert convert(f"{url}/{name}/", target, "-j", 1) == 0
    inode = (target / "other.txt").stat().st_ino
    changed.write_bytes(b"two")
    assert convert(f"{url}/{name}/", target, "-j", 1) == 0
    assert "results replaced" in capsys.readouterr().err
    assert (target / "changed.txt").read_bytes() == b"two"
    assert (target / "other.txt").stat().st_ino == inode
    assert convert(f"{url}/{name}/", target, "-j", 1) == 0
    assert ("nothing to do" in capsys.readouterr().out.splitlines()[-1]) == (name == "s")
    assert (target / "changed.txt").read_bytes() == b"two"


def test_a_folder_without_its_last_slash(tmp_path: Path, url: str) -> None:
    """It was taken for a file: the page that lists it."""
    assert convert(f"{url}/s", tmp_path / "d", "-j", 1) == 0
    assert files_below(tmp_path / "d") == {"0.l3", "b/1.l3", "a.tar", "a.idx"}


def test_other_links_are_not_followed_and_sizes_are_needed(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(f"{url}/links/", tmp_path / "d", "-j", 1) == 2
    assert files_below(tmp_path / "d") == {"1.l3"}
    reason = "the server does not say how many bytes it has"
    assert f"{url}/links/2.png: {reason}" in capsys.readouterr().err


def test_failures_of_a_server_are_named(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were links to nothing."""
    assert convert(f"{url}/busy/", tmp_path / "d") == 2
    assert files_below(tmp_path / "d") == {"1.l3"}
    told = capsys.readouterr().err
    assert "503, message='Service Unavailable'" in told
    assert f"{url}/busy/4.png: Server disconnected" in told


def test_links_that_sort_a_page_are_no_files(tmp_path: Path, url: str) -> None:
    """As Apache's: copies of the page were among the results."""
    assert convert(f"{url}/sorted/", tmp_path / "d", "-j", 1) == 0
    assert files_below(tmp_path / "d") == {"1.l3"}


def test_pages_that_list_themselves(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The listing had no end."""
    assert convert(f"{url}/self/", tmp_path / "d", "-j", 1) == 0
    assert files_below(tmp_path / "d") == {"1.l3"}
    assert convert(f"{url}/longer/", tmp_path / "e", "-j", 1) == 2
    assert f"{url}/longer: it lists folders in folders without end" in capsys.readouterr().err


def test_a_folder_that_cannot_be_listed_is_told(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its files would have counted as gone."""
    assert convert(f"{url}/dead/", tmp_path / "d", "-j", 1) == 2
    assert f"{url}/dead/gone: no such folder" in capsys.readouterr().err
    assert files_below(tmp_path / "d") == {"1.l3"}
    assert convert(f"{url}/dead/", tmp_path / "d", "--remove-gone") == 2
    assert "--remove-gone needs to know all sources" in capsys.readouterr().err


def test_pages_of_strangers(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Blanks in a link took time by their cube, in which no thread heard Ctrl-C."""
    assert convert(f"{url}/odd/", tmp_path / "d", "-j", 1) == 0
    assert files_below(tmp_path / "d") == {"1.l3"}
    assert convert(f"{url}/large/", tmp_path / "e") == 2
    assert f"{url}/large: a page of more than 67108864 bytes" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["convert {} d", "convert {} d --untrusted", "info {}"])
def test_an_interrupt_does_not_wait_for_a_server(tmp_path: Path, command: str) -> None:
    """Which never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"http://127.0.0.1:{server.getsockname()[1]}/a.tar"
        run = subprocess.Popen(
            [sys.executable, "-m", "l3dali", *command.format(place).split()],
            cwd=tmp_path,
            env=child_environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        client, _ = server.accept()
        with client:
            assert client.recv(4) == b"HEAD"
            run.send_signal(signal.SIGINT)
            try:
                _, told = run.communicate(timeout=20)
            finally:
                run.kill()
    assert (run.returncode, told) == (130, "l3: interrupted\n")
