"""`l3 convert` of files of a web server."""

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
from children import child_environment
from convert_tools import convert, files_below, samples, write_pngs, write_tar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder, of which the server refuses some."""

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
        return super().do_GET()


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The address of a server of `tmp_path`."""
    write_pngs(tmp_path / "s", "0.png", "1.png")
    write_tar(tmp_path / "s" / "a.tar", samples(2))
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_files_of_a_server_are_converted(tmp_path: Path, url: str) -> None:
    assert convert(f"{url}/s/{{0,1}}.png", f"{url}/s/a.tar", tmp_path / "d", "-j", 1) == 0
    assert files_below(tmp_path / "d") == {"0.l3", "1.l3", "a.tar", "a.idx"}


@pytest.mark.parametrize("name", ["s", "s/"])
def test_folders_of_a_server_are_not_listed(
    tmp_path: Path, url: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Untrusted pages delayed Ctrl-C, and took memory by the square of their bytes."""
    assert convert(f"{url}/{name}", tmp_path / "d") == 2
    told = "no such file or folder; folders on web servers cannot be listed: name their files"
    assert f"{url}/{name}: {told}" in capsys.readouterr().err


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
    sources = f"{url}/{name}/{{other,changed}}.txt"
    assert convert(sources, target, "-j", 1) == 0
    inode = (target / "other.txt").stat().st_ino
    changed.write_bytes(b"two")
    assert convert(sources, target, "-j", 1) == 0
    assert (target / "changed.txt").read_bytes() == b"two"
    assert (target / "other.txt").stat().st_ino == inode
    assert convert(sources, target, "-j", 1) == 0
    assert ("nothing to do" in capsys.readouterr().out.splitlines()[-1]) == (name == "s")
    assert (target / "changed.txt").read_bytes() == b"two"


def test_failures_of_a_server_are_named(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were links to nothing."""
    assert convert(f"{url}/s/{{1..5}}.png", tmp_path / "d") == 2
    assert files_below(tmp_path / "d") == {"1.l3"}
    told = capsys.readouterr().err
    assert f"{url}/s/2.png: the server does not report the file's size" in told
    assert "503, message='Service Unavailable'" in told
    assert f"{url}/s/4.png: Server disconnected" in told
    assert f"{url}/s/5.png: no such file" in told


@pytest.mark.parametrize("command", ["convert {} d", "verify {}"])
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
