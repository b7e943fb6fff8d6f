"""A real S3 server on loopback (moto's), with faults in front of it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.request import urlopen

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
    """

    method: str
    part: str
    times: int
    kind: str = "503"
    before: Callable[[int], object] = lambda _: None
    met: int = 0


@dataclass
class Server:
    """The server: its address, the faults to come, each request as (method, path and query).

    `sent` counts the bytes of answers to GET.
    """

    url: str = ""
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    sent: int = 0

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

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        with lock:
            server.requests.append((method, f"{path}?{environ.get('QUERY_STRING', '')}"))
            fault = next(
                (
                    fault
                    for fault in server.faults
                    if fault.method == method and fault.part in path and fault.met < fault.times
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
