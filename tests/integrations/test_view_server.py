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

MIB = 2**20


@contextmanager
def viewer(folder: Path) -> Iterator[tuple[int, str, subprocess.Popen[str]]]:
    """Port, token and process of a viewer of one image."""
    l3dali.imwrite(folder / "a.l3", np.zeros((300, 300, 3), np.uint8))
    command = [sys.executable, "-m", "l3dali", "view", str(folder)]
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


@pytest.mark.parametrize("head", ["GET /", "GET / HTTP/1.1\r\nX: "], ids=["address", "header"])
def test_endless_requests_take_no_memory(server: tuple[int, str, int], head: str) -> None:
    port, token, process = server
    assert ask(port, f"GET /{token}/list HTTP/1.1").startswith(b"HTTP/1.1 200 ")
    before = resident_bytes(process)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        try:
            connection.sendall(head.encode())
            for _ in range(64):
                connection.sendall(b"a" * MIB)
        except ConnectionError:
            pass  # as it should be
    assert resident_bytes(process) - before < 16 * MIB
    assert ask(port, f"GET /{token}/list HTTP/1.1").startswith(b"HTTP/1.1 200 ")


def test_an_interrupt_ends_it_whatever_clients_do(tmp_path: Path) -> None:
    """Clients that read none of their answers neither hold it, nor write lines."""
    with viewer(tmp_path) as (port, token, process), ExitStack() as connections:
        ask(port, "no request")
        head = f"GET /{token}/tile/0/0/0/0 HTTP/1.1\r\nHost: x\r\n\r\n"
        for _ in range(50):
            connection = connections.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.connect(("127.0.0.1", port))
            connection.sendall(100 * head.encode())
        time.sleep(3)  # until answers go no further
        process.send_signal(signal.SIGINT)
        process.wait(30)
        assert process.stderr is not None
        assert process.stderr.read() == "l3: interrupted\n"
