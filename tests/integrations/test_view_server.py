"""The server of `l3 view` as any process of this machine may treat it."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import l3dali

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("uvicorn")

MIB = 2**20
# As if httptools were installed, which uvicorn prefers and which has no limits.
COMMAND = """
import sys, types
sys.modules["httptools"] = types.ModuleType("httptools")
from l3dali.cli import main
sys.exit(main(sys.argv[1:]))
"""


@contextmanager
def viewer(folder: Path) -> Iterator[tuple[int, str, subprocess.Popen[str]]]:
    """Port, token and process of a viewer of one image."""
    l3dali.imwrite(folder / "a.l3", np.zeros((300, 300, 3), np.uint8))
    command = [sys.executable, "-c", COMMAND, "view", str(folder), "--cache", str(folder / "cache")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = re.search(r"127\.0\.0\.1:(\d+)/([^/]+)/", process.stderr.readline())
        assert found is not None
        try:
            yield int(found[1]), found[2], process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str, int]]:
    with viewer(tmp_path_factory.mktemp("images")) as (port, token, process):
        yield port, token, process.pid


def ask(port: int, head: str) -> bytes:
    """The first bytes of an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(f"{head}\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return connection.recv(4096)


def resident_bytes(process: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


@pytest.mark.parametrize(
    ("head", "more"),
    [
        ("GET /", "a" * MIB),
        ("GET / HTTP/1.1\r\nX: ", "a" * MIB),
        ("GET / HTTP/1.1\r\n", "X: a\r\n" * (MIB // 6)),
        ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", f"100000\r\n{'a' * MIB}\r\n"),
    ],
    ids=["address", "header", "headers", "body"],
)
def test_endless_requests_take_no_memory(
    server: tuple[int, str, int], head: str, more: str
) -> None:
    """100 MB of headers took 1.2 GB, without the token."""
    port, token, process = server
    assert ask(port, f"GET /{token}/list HTTP/1.1").startswith(b"HTTP/1.1 200 ")
    before = resident_bytes(process)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        try:
            connection.sendall(head.encode())
            for _ in range(64):
                connection.sendall(more.encode())
        except ConnectionError:
            pass  # as it should be
    assert resident_bytes(process) - before < 16 * MIB
    assert ask(port, f"GET /{token}/list HTTP/1.1").startswith(b"HTTP/1.1 200 ")


def test_clients_that_do_not_read_take_little_memory(server: tuple[int, str, int]) -> None:
    """100 ask for a tile of 192 KiB, again and again."""
    port, token, process = server
    request = f"GET /{token}/tile/0/0/0/0 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    before = resident_bytes(process)
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    try:
        for client in clients:
            client.sendall(20 * request)
        assert ask(port, f"GET /{token}/list HTTP/1.1").startswith(b"HTTP/1.1 200 ")
        assert resident_bytes(process) - before < 100 * MIB
    finally:
        for client in clients:
            client.close()


def test_an_address_of_another_host_shows_nothing(server: tuple[int, str, int]) -> None:
    """A page that names this machine by its own name has no token."""
    port, _, _ = server
    for path in ("/", "/list", "/x/list", "//", "http://127.0.0.1/x/list"):
        assert ask(port, f"GET {path} HTTP/1.1").startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("clients", [1, 50])
def test_an_interrupt_ends_it_whatever_clients_do(tmp_path: Path, clients: int) -> None:
    """One that reads none of its answers held it, after two of them; the tracebacks of 50 filled a
    pipe that nobody reads."""
    with viewer(tmp_path) as (port, token, process), ExitStack() as connections:
        head = f"GET /{token}/tile/0/0/0/0 HTTP/1.1\r\nHost: x\r\n\r\n"
        for _ in range(clients):
            connection = connections.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.connect(("127.0.0.1", port))
            connection.sendall(100 * head.encode())
        time.sleep(3)  # until answers go no further
        process.send_signal(signal.SIGINT)
        process.wait(30)


def test_no_client_writes_lines(tmp_path: Path) -> None:
    """Who has no token, on a terminal; where nobody reads a pipe, they held server and Ctrl-C."""
    with viewer(tmp_path) as (port, _token, process):
        ask(port, "GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade")
        ask(port, "no request")
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.read() == "l3: interrupted\n"
