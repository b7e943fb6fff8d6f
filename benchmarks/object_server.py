"""A server of objects for rates: S3 and Google's JSON API for reading, in a process of its own.

    python -m benchmarks.object_server FOLDER

It serves the files of a folder as the objects of every bucket. Each answer waits for a latency, and
each connection has a bounded rate, which the kernel keeps. A request costs some 0.1 ms of CPU time.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode
from urllib.request import urlopen

SO_MAX_PACING_RATE = 47  # Linux has it, `socket` has no name for it


class Server(socketserver.ThreadingTCPServer):
    """Serves a folder; `counts` has requests by kind, and bytes."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.folder = folder
        self.latency_s = 0.0
        self.connection_mb_s = 0.0
        self.counts: Counter[str] = Counter()
        self.lock = threading.Lock()

    def handle_error(self, *_: object) -> None:
        """Clients close connections as they please."""

    def control(self, query: dict[str, list[str]]) -> bytes:
        """Says what was counted, and begins anew, with another latency."""
        self.latency_s = float(query["latency_ms"][0]) / 1e3
        self.connection_mb_s = float(query["connection_mb_s"][0])
        with self.lock:
            counted = {**self.counts, "cpu_s": time.process_time()}
            self.counts.clear()
        return json.dumps(counted).encode()


class Connection(socketserver.StreamRequestHandler):
    """Answers requests, one after the other."""

    server: Server
    disable_nagle_algorithm = True
    paced = 0.0

    def handle(self) -> None:
        """Answers until the client closes the connection."""
        while line := self.rfile.readline():
            method, target, _ = line.split(b" ", 2)
            spans = None
            while (header := self.rfile.readline()) not in (b"\r\n", b""):
                name, _, value = header.partition(b":")
                if name.lower() == b"range":
                    spans = value.strip().removeprefix(b"bytes=").decode()
            self.answer(method.decode(), target.decode(), spans)

    def answer(self, method: str, target: str, span: str | None) -> None:
        """Answers GET and HEAD of an object, and GET of the metadata that Google's client wants."""
        path, _, query = target.partition("?")
        if path == "/control":
            return self.send("200 OK", self.server.control(parse_qs(query)))
        time.sleep(self.server.latency_s)
        _, is_gs, name = path.partition("/storage/v1/b/")
        bucket, _, key = (name if is_gs else path[1:]).partition("/o/" if is_gs else "/")
        file = self.server.folder / unquote(key)
        if not file.is_file():
            return self.send("404 Not Found", b"<Error><Code>NoSuchKey</Code></Error>", method)
        size = file.stat().st_size
        if is_gs and "alt=media" not in query:
            found = {"kind": "storage#object", "name": unquote(key), "bucket": bucket}
            found |= {"generation": "1", "metageneration": "1", "size": str(size)}
            return self.send("200 OK", json.dumps(found).encode(), "metadata")
        begin, end = 0, size
        extra = "Accept-Ranges: bytes\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n"
        if span:
            first, _, last = span.partition("-")
            begin, end = int(first), min(int(last) + 1, size) if last else size
            extra += f"Content-Range: bytes {begin}-{end - 1}/{size}\r\n"
        status = "206 Partial Content" if span else "200 OK"
        head = f"HTTP/1.1 {status}\r\nContent-Length: {end - begin}\r\n{extra}\r\n".encode()
        with self.server.lock:
            self.server.counts[method] += 1
            self.server.counts["bytes"] += (end - begin) * (method == "GET")
        if method == "HEAD":
            self.request.sendall(head)
            return None
        if self.paced != self.server.connection_mb_s:
            self.paced = self.server.connection_mb_s
            rate = int(self.paced * 1e6) or 2**32 - 1
            self.request.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, rate)
        self.request.sendall(head, socket.MSG_MORE)
        with file.open("rb") as opened:
            while begin < end:
                begin += os.sendfile(self.request.fileno(), opened.fileno(), begin, end - begin)
        return None

    def send(self, status: str, body: bytes, method: str = "") -> None:
        """Answers with a text."""
        if method:
            with self.server.lock:
                self.server.counts[method] += 1
        kind = "json" if body.startswith(b"{") else "xml"
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n"
        head += f"Content-Type: application/{kind}\r\n\r\n"
        self.request.sendall(head.encode() + (b"" if method == "HEAD" else body))


class Far:
    """The server in another process."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.environment = {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "DALI_GCS_ENDPOINT_URL": url,
            "DALI_GCS_ANONYMOUS": "1",
        }

    def count(self, latency_ms: float = 0, connection_mb_s: float = 0) -> dict[str, Any]:
        """What was counted since the last call; sets what the next requests meet."""
        query = urlencode({"latency_ms": latency_ms, "connection_mb_s": connection_mb_s})
        with urlopen(f"{self.url}/control?{query}") as answer:
            return json.load(answer)  # type: ignore[no-any-return]


@contextmanager
def object_server(folder: Path) -> Iterator[Far]:
    """Serves a folder from another process."""
    command = [sys.executable, "-m", "benchmarks.object_server", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield Far(process.stdout.readline().decode().strip())
        finally:
            process.terminate()


if __name__ == "__main__":
    with Server(Path(sys.argv[1])) as here:
        print(f"http://127.0.0.1:{here.server_address[1]}", flush=True)
        here.serve_forever()
