"""A real S3 server on loopback (moto's), with faults in front of it.

As a program it serves until its input ends: for clients that hold the GIL while they wait.
"""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.request import Request, urlopen

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

SLOW_DOWN = (
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)
DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
FOREVER = 10**9


@dataclass
class Fault:
    """What happens to the next requests of a kind.

    Attributes:
        method: of the request.
        part: of its path.
        times: how many.
        kind: `503`, `500` or `403`; `reset`: no answer comes; `cut`: the connection ends in the
            middle of the answer; `short`: the answer has half of the bytes, and says that these
            are all; `none`.
        before: called with the number of each before it is answered, from 1.
        share: of the requests meet the fault.
    """

    method: str
    part: str
    times: int
    kind: str = "503"
    before: Callable[[int], object] = lambda _: None
    met: int = 0
    share: float = 1


@dataclass
class Server:
    """The server: its address, the faults to come, each request as (method, path and query).

    `sent` counts the bytes of answers to GET, `peak` the most requests at once. Each answer waits
    for `latency` seconds.
    """

    url: str = ""
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    sent: int = 0
    latency: float = 0
    in_flight: int = 0
    peak: int = 0

    @property
    def environment(self) -> dict[str, str]:
        """What makes s3fs, in any process, use this server."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "2",
        }


def _with_faults(app: Any, server: Server) -> Callable[..., Iterable[bytes]]:
    lock = threading.Lock()
    chance = random.Random(1)

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/control":
            return [_control(server, environ, start_response)]
        with lock:
            server.in_flight += 1
            server.peak = max(server.peak, server.in_flight)
        try:
            time.sleep(server.latency)
            return meet(environ, start_response)
        finally:
            with lock:
                server.in_flight -= 1

    def meet(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        with lock:
            server.requests.append((method, f"{path}?{environ.get('QUERY_STRING', '')}"))
            fault = next(
                (
                    fault
                    for fault in server.faults
                    if fault.method == method
                    and fault.part in path
                    and fault.met < fault.times
                    and chance.random() < fault.share
                ),
                None,
            )
            if fault is not None:
                fault.met += 1
        if fault is not None:
            fault.before(fault.met)
        if fault is None or fault.kind == "none":
            body = app(environ, start_response)
            return _counted(body, server, lock) if method == "GET" else body
        if fault.kind == "reset":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionResetError("the server closes the connection")
        if fault.kind == "cut":
            return _cut(app(environ, start_response))
        if fault.kind == "short":
            return _shortened(app, environ, start_response)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        text = DENIED if fault.kind == "403" else SLOW_DOWN
        headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(text)))]
        start_response(f"{fault.kind} Slow Down", headers)
        return [] if method == "HEAD" else [text]

    return answer


def _control(server: Server, environ: dict[str, Any], start_response: Any) -> bytes:
    """Says what was counted, and begins anew: with faults and a latency."""
    asked = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
    counted = {"requests": server.requests[:], "sent": server.sent, "peak": server.peak}
    server.requests.clear()
    server.sent = server.peak = 0
    server.faults[:] = [Fault(**fault) for fault in asked["faults"]]
    server.latency = asked["latency"]
    start_response("200 OK", [("Content-Type", "application/json")])
    return json.dumps(counted).encode()


def _counted(body: Iterable[bytes], server: Server, lock: threading.Lock) -> Iterator[bytes]:
    for part in body:
        with lock:
            server.sent += len(part)
        yield part


def _cut(body: Iterable[bytes]) -> Iterator[bytes]:
    whole = b"".join(body)
    yield whole[: len(whole) // 2]
    raise ConnectionAbortedError("the server closes the connection")


def _shortened(app: Any, environ: dict[str, Any], start_response: Any) -> list[bytes]:
    answers: list[tuple[str, list[tuple[str, str]]]] = []
    body = b"".join(app(environ, lambda status, headers, *_: answers.append((status, headers))))
    body = body[: len(body) // 2]
    status, headers = answers[0]
    kept = [(name, value) for name, value in headers if name.lower() != "content-length"]
    start_response(status, [*kept, ("Content-Length", str(len(body)))])
    return [body]


@contextmanager
def s3_server() -> Iterator[Server]:
    """Serves an empty bucket `data`."""
    server = Server()
    app = DomainDispatcherApplication(create_backend_app)
    http = make_server("127.0.0.1", 0, _with_faults(app, server), threaded=True)
    server.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        urlopen(f"{server.url}/moto-api/reset", data=json.dumps({}).encode()).close()
        http.shutdown()
        thread.join()


class FarServer:
    """The same server in another process, with a bucket `data`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.environment = Server(url=url).environment | {
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        self._send("PUT", "data")

    def _send(self, method: str, path: str, data: bytes = b"") -> bytes:
        signed = "AWS4-HMAC-SHA256 Credential=test/1/us-east-1/s3/aws4_request, SignedHeaders="
        headers = {"Content-Type": "application/octet-stream", "Authorization": signed}
        request = Request(f"{self.url}/{path}", data, headers, method=method)
        with urlopen(request) as answer:
            return bytes(answer.read())

    def put(self, key: str, data: bytes) -> str:
        """Stores an object; returns its URI."""
        self._send("PUT", f"data/{key}", data)
        return f"s3://data/{key}"

    def count(self, *faults: dict[str, Any], latency: float = 0) -> dict[str, Any]:
        """What was counted since the last call. The next requests meet these faults."""
        asked = {"faults": [{"method": "GET", **fault} for fault in faults], "latency": latency}
        answer: dict[str, Any] = json.loads(
            self._send("POST", "control", json.dumps(asked).encode())
        )
        return answer


@contextmanager
def far_s3_server() -> Iterator[FarServer]:
    """Serves an empty bucket `data` from another process."""
    command = [sys.executable, __file__]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield FarServer(process.stdout.readline().decode().strip())
        finally:
            process.stdin.close()
            process.terminate()


if __name__ == "__main__":
    with s3_server() as here:
        print(here.url, flush=True)
        sys.stdin.read()
