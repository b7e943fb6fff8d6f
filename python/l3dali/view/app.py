"""The viewer's answers to HTTP requests.

Every path begins with the token, and names images by their numbers: no path of a file comes from
a request. Knows Starlette; `pixels` knows what images look like.
"""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import numpy as np
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from l3dali import codec
from l3dali.console import printable, reason_of
from l3dali.view import pixels
from l3dali.view.overviews import top_level
from l3dali.view.pixels import TILE_SIDE

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from l3dali.view.catalog import Catalog, Entry
    from l3dali.view.overviews import Overviews

_PAGE = {"": "text/html", "page.js": "text/javascript", "page.css": "text/css"}
_MAX_LISTED = 500
_THUMBNAIL_SIDE = 160
_MAX_SHOWN_TEXT = 2**16  # of metadata
_MAX_SHOWN_CHANNELS = 64  # of a pixel
_DIGITS = 10  # of any number
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class _NotFoundError(Exception):
    """There is nothing under this address."""


class Viewer:
    """What a page may ask for. Each answer takes `pixels.CALL_BYTES` at most."""

    def __init__(self, catalog: Catalog, overviews: Overviews) -> None:
        self._catalog = catalog
        self._overviews = overviews

    def page(self, request: Request) -> Response:
        """The page's own files."""
        name = request.path_params.get("file", "")
        if name not in _PAGE:
            raise _NotFoundError
        content = Path(__file__).with_name(name or "page.html").read_bytes()
        return Response(content, media_type=_PAGE[name])

    def listing(self, request: Request) -> Response:
        """Names of images from a number on."""
        start = _number(request.query_params.get("start", "0"))
        count = _number(request.query_params.get("count", "60"), _MAX_LISTED + 1)
        entries, total, done = self._catalog.page(start, count)
        return _json(
            {
                "names": [printable(entry.name) for entry in entries],
                "start": start,
                "total": total,
                "done": done,
                "problems": [printable(problem) for problem in self._catalog.problems[:10]],
            }
        )

    def info(self, request: Request) -> Response:
        """What a file says about itself, and how it is to be asked for."""
        entry = self._entry(request)
        data = entry.read()
        info = pixels.info_of(data)
        kept = {
            "ICC": info.icc,
            "EXIF": info.exif,
            "XMP": info.xmp,
            "palette": info.palette,
            "metadata": info.metadata_json,
        }
        metadata = info.metadata_json or b""
        return _json(
            {
                "name": printable(entry.name),
                "width": info.width,
                "height": info.height,
                "channels": info.channels,
                "dtype": info.dtype.name,
                "used_bits": info.used_bits,
                "value_count": info.value_count,
                "labels": info.labels,
                "groups": len(info.groups),
                "tile": [info.tile_height, info.tile_width],
                "tiles": info.tile_count,
                "bytes": info.encoded_bytes,
                "raw_bytes": info.raw_bytes,
                "kept": {name: len(part) for name, part in kept.items() if part is not None},
                "metadata": metadata.decode(errors="replace")
                if len(metadata) <= _MAX_SHOWN_TEXT
                else "too long to be shown here; l3 info --json has it",
                "palette": None if info.palette is None else list(info.palette),
                "problem": ""
                if info.encoded_bytes == len(data)
                else f"the file has {len(data)} bytes of {info.encoded_bytes}",
                "bands": pixels.default_channels(info.channels),
                "top_level": top_level(info),
                "overview_level": self._overviews.level(info),
            }
        )

    def thumbnail(self, request: Request) -> Response:
        """A PNG; of a large image without an overview, its size."""
        entry = self._entry(request)
        data = entry.read()
        info = pixels.info_of(data)
        level = self._overviews.level(info)
        if level is None:
            content = pixels.thumbnail(data, _THUMBNAIL_SIDE)
        else:
            overview = self._overviews.find(entry, pixels.default_channels(info.channels), level)
            size = _json({"width": info.width, "height": info.height}, 202)
            if overview is None:
                return size
            try:
                content = pixels.thumbnail(overview, _THUMBNAIL_SIDE)
            except ValueError:  # It is made anew when the image is opened.
                return size
        return Response(content, media_type="image/png")

    def tile(self, request: Request) -> Response:
        """Samples of a square of `TILE_SIDE` at a level, little-endian, as (H, W, C).

        Level k has the image at 1 / 2^k of its sides.
        """
        entry = self._entry(request)
        level, row, column = (
            _number(request.path_params[name]) for name in ("level", "row", "column")
        )
        data = entry.read()
        info = pixels.info_of(data)
        channels: tuple[int, ...] | None = _bands(request, info.channels)
        if level > top_level(info):
            raise _NotFoundError
        base, height, width = 0, info.height, info.width
        overview_level = self._overviews.level(info)
        if overview_level is not None and level >= overview_level:
            overview = self._overviews.find(entry, channels or (), overview_level)
            if overview is None:
                return _json({"error": "there is no overview yet"}, 409)
            data, channels, base = overview, None, overview_level
            height, width = (-(-side // 2**base) for side in (height, width))
        factor = 2 ** (level - base)
        side = TILE_SIDE * factor
        top, left = row * side, column * side
        if top >= height or left >= width:
            raise _NotFoundError
        window = (top, left, min(side, height - top), min(side, width - left))
        samples = pixels.shrunk(data, window, factor, channels=channels, labels=info.labels)
        little = np.ascontiguousarray(samples, samples.dtype.newbyteorder("<"))
        return Response(little.tobytes(), media_type="application/octet-stream")

    def pixel(self, request: Request) -> Response:
        """The samples of one pixel, those of many channels of the chosen bands alone."""
        data = self._entry(request).read()
        info = pixels.info_of(data)
        x = _number(request.path_params["x"], info.width)
        y = _number(request.path_params["y"], info.height)
        channels: tuple[int, ...] | None = _bands(request, info.channels)
        if info.channels <= _MAX_SHOWN_CHANNELS:
            channels = None
        samples = codec.decode(data, window=(y, x, 1, 1), channels=channels)
        return _json({"values": samples.ravel().tolist(), "bands": channels})

    def overview(self, request: Request) -> Response:
        """How far an overview is; begins it if need be."""
        entry = self._entry(request)
        info = pixels.info_of(entry.read())
        level = self._overviews.level(info)
        if level is None:
            raise _NotFoundError
        progress = self._overviews.ask(entry, _bands(request, info.channels), level)
        return _json({"done": progress.done, "error": printable(progress.error)})

    def _entry(self, request: Request) -> Entry:
        try:
            return self._catalog[_number(request.path_params["image"])]
        except IndexError:
            raise _NotFoundError from None


def make_app(viewer: Viewer, token: str, workers: int) -> Starlette:
    """The application: answers requests under `/TOKEN/`, so many at once."""
    limiter: list[anyio.CapacityLimiter] = []  # made within the event loop

    def route(path: str, answer: Callable[[Request], Response]) -> Route:
        async def respond(request: Request) -> Response:
            if not hmac.compare_digest(
                request.path_params["token"].encode(errors="replace"), token.encode()
            ):
                return _json({"error": "nothing here"}, 404)
            if not limiter:
                limiter.append(anyio.CapacityLimiter(workers))
            async with limiter[0]:
                if await request.is_disconnected():  # A tab that moved on.
                    return _json({"error": "gone"}, 404)
                return await anyio.to_thread.run_sync(_judged, answer, request)

        return Route(f"/{{token}}/{path}", respond, methods=["GET"])

    app = Starlette(
        routes=[
            route("", viewer.page),
            route("list", viewer.listing),
            route("info/{image}", viewer.info),
            route("thumbnail/{image}", viewer.thumbnail),
            route("tile/{image}/{level}/{row}/{column}", viewer.tile),
            route("pixel/{image}/{y}/{x}", viewer.pixel),
            route("overview/{image}", viewer.overview),
            route("{file}", viewer.page),
        ],
        exception_handlers={404: _not_found, 405: _not_found},
    )
    app.router.redirect_slashes = False
    return app


async def _not_found(_request: Request, _error: Exception) -> Response:
    return _json({"error": "nothing here"}, 404)


def _judged(answer: Callable[[Request], Response], request: Request) -> Response:
    """An answer; what is wrong with a file is an answer too."""
    try:
        response = answer(request)
    except _NotFoundError:
        return _json({"error": "nothing here"}, 404)
    except (OSError, ValueError, MemoryError) as error:
        return _json({"error": printable(reason_of(error))}, 422)
    response.headers.update(_HEADERS)
    return response


def _json(content: object, status: int = 200) -> Response:
    return JSONResponse(content, status, headers=_HEADERS)


def _number(text: str, below: int = 2**32) -> int:
    """A number of a request."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS and int(text) < below):
        raise _NotFoundError
    return int(text)


def _bands(request: Request, count: int) -> tuple[int, ...]:
    """The channels that a request names, one or three; by default those of a picture."""
    text = request.query_params.get("bands", "")
    if not text:
        return pixels.default_channels(count)
    bands = tuple(_number(band, count) for band in text[:64].split(","))
    if len(bands) not in (1, 3) or len(set(bands)) < len(bands):
        raise _NotFoundError
    return bands
