"""The viewer's answers to HTTP requests, on this machine alone.

Every path begins with the token, and names images by their numbers, never by the path of a file.
"""

from __future__ import annotations

import hmac
import json
import math
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import numpy as np

from l3dali import codec
from l3dali.console import printable, reason_of
from l3dali.view import pixels
from l3dali.view.pixels import TILE_SIDE, top_level

if TYPE_CHECKING:
    from l3dali.view.catalog import Catalog

LOOPBACK = "127.0.0.1"
LARGE_PIXELS = 2**26  # larger images have no thumbnail, which would take seconds
_PAGE = {"page.html": "text/html", "page.js": "text/javascript", "page.css": "text/css"}
_MOST_SHOWN_CHANNELS = 64  # of a pixel
_DESCRIBED = (
    *("width", "height", "channels", "used_bits", "value_count", "labels", "encoded_bytes"),
    *("raw_bytes", "tile_width", "tile_height", "tile_count"),
)
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Answer(NamedTuple):
    """A body with its type and status."""

    body: bytes
    kind: str = "application/octet-stream"
    status: int = 200


def _json(content: object, status: int = 200) -> Answer:
    return Answer(json.dumps(content).encode(), "application/json", status)


NOTHING = _json({"error": "nothing here"}, 404)


class Viewer:
    """Answers the requests of a page."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def answer(self, path: str, query: str) -> Answer:
        """The answer to a request behind the token; `NOTHING` where there is none."""
        name = path or "page.html"
        if name in _PAGE:
            return Answer(Path(__file__).with_name(name).read_bytes(), _PAGE[name])
        kind, *words = path.split("/")
        options = {key: values[-1] for key, values in parse_qs(query).items()}
        numbers = [int(word) for word in words if re.fullmatch("[0-9]{1,10}", word)]
        counts = {"list": 0, "info": 1, "thumbnail": 1, "tile": 4, "pixel": 3}
        if kind not in counts or not len(numbers) == len(words) == counts[kind]:
            return NOTHING
        try:
            if kind == "list":
                return self._list(int(options.get("start", 0)), int(options.get("count", 60)))
            entry = self._catalog[numbers.pop(0)]
            data = entry.read()
            info = codec.head_info(data)
            if kind == "info":
                return _json({"name": printable(entry.name), **_described(info, data)})
            if kind == "thumbnail":
                if math.prod(pixels.shown_part(info)[2:]) > LARGE_PIXELS:
                    return _json({"width": info.width, "height": info.height}, 202)
                return Answer(pixels.thumbnail(data, 160), "image/png")
            bands = [int(band) for band in options.get("bands", "").split(",") if band]
            bands = bands or list(pixels.default_channels(info.channels))
            if len(bands) not in (1, 3) or not all(0 <= band < info.channels for band in bands):
                return NOTHING
            part = pixels.shown_part(info, int(options.get("slice", 0)))
            if part[0] + part[2] > info.height:
                return NOTHING
            return (_tile if kind == "tile" else _pixel)(data, info, part, bands, *numbers)
        except IndexError:
            return NOTHING
        except (OSError, ValueError, MemoryError) as error:  # such as a damaged file
            return _json({"error": printable(reason_of(error))}, 422)

    def _list(self, start: int, count: int) -> Answer:
        """Names of images from a number on."""
        entries, total, done = self._catalog.page(max(0, start), min(max(0, count), 500))
        return _json(
            {
                "names": [printable(entry.name) for entry in entries],
                "total": total,
                "done": done,
                "problems": [printable(problem) for problem in self._catalog.problems[:10]],
            }
        )


def _described(info: codec.Info, data: memoryview) -> dict[str, object]:
    """The description of a file, with bands and levels for requests of tiles."""
    metadata = (info.metadata_json or b"").decode(errors="replace")
    part = pixels.shown_part(info)
    return {
        **{name: getattr(info, name) for name in _DESCRIBED},
        "height": part[2],
        "slices": info.volume.depth if info.volume else 0,
        "dtype": info.dtype.name,
        "groups": len(info.groups),
        "kept": {name: len(block) for name, block in codec.kept_blocks(info).items()},
        "metadata": metadata[: 2**16],
        "palette": None if info.palette is None else list(info.palette),
        "file_bytes": len(data),
        "bands": pixels.default_channels(info.channels),
        "range": pixels.range_of(data, info),
        "top_level": top_level(info),
    }


def _tile(
    data: memoryview,
    info: codec.Info,
    part: codec.Window,
    bands: list[int],
    level: int,
    row: int,
    column: int,
) -> Answer:
    """Samples of a square of `TILE_SIDE` at a level, little-endian, as (H, W, C).

    Level k has the image at 1 / 2^k of its sides.
    """
    if level > top_level(info):
        return NOTHING
    side = TILE_SIDE << level
    top, left = row * side, column * side
    if top >= part[2] or left >= info.width:
        return NOTHING
    window = (part[0] + top, left, min(side, part[2] - top), min(side, info.width - left))
    samples = pixels.shrunk(data, window, 1 << level, channels=bands, labels=info.labels)
    if samples.dtype == np.float16:  # which the page has no arrays of
        samples = samples.astype(np.float32)
    little = np.ascontiguousarray(samples, samples.dtype.newbyteorder("<"))
    return Answer(little.tobytes())


def _pixel(
    data: memoryview, info: codec.Info, part: codec.Window, bands: list[int], y: int, x: int
) -> Answer:
    """The samples of one pixel; of many channels only the chosen bands."""
    if y >= part[2] or x >= info.width:
        return NOTHING
    chosen = bands if info.channels > _MOST_SHOWN_CHANNELS else None
    samples = codec.decode(data, window=(part[0] + y, x, 1, 1), channels=chosen)
    values = samples.ravel().tolist()
    if samples.dtype.kind == "f":  # JSON has no NaN
        values = [value if np.isfinite(value) else str(value) for value in values]
    return _json({"values": values, "bands": chosen})


class Server(ThreadingHTTPServer):
    """Serves a viewer under `/TOKEN/` on this machine, some requests at a time."""

    daemon_threads = True

    def __init__(self, viewer: Viewer, token: str, port: int, workers: int) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.viewer = viewer
        self.token = token
        self.workers = threading.Semaphore(workers)

    def handle_error(self, *arguments: Any) -> None:
        """Prints errors, unless a client has disconnected."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(*arguments)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds without a byte

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        url = urlsplit(self.path)
        token, slash, path = url.path[1:].partition("/")
        answer = NOTHING
        if slash and hmac.compare_digest(token.encode(errors="replace"), server.token.encode()):
            with server.workers:
                answer = server.viewer.answer(path, url.query)
        self.send_response(answer.status)
        headers = {"Content-Type": answer.kind, "Content-Length": str(len(answer.body))}
        for name, value in (headers | _HEADERS).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, *_: object) -> None:
        """Logs nothing."""
