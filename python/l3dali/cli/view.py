"""The command `l3 view`."""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali.cli.arguments import (
    local_cores,
    natural_number,
    new_command,
    path_argument,
    positive_number,
    size_argument,
)
from l3dali.console import complain
from l3dali.errors import UsageError, needs
from l3dali.signatures import L3_SIGNATURE

if TYPE_CHECKING:
    from l3dali.cli.arguments import Commands

_LEAST_MEGABYTES = 256
_MEGABYTE = 10**6
_MAX_REQUESTS = 256  # at a time; the others are told to come again
_LOOPBACK = "127.0.0.1"


def add_command(commands: Commands) -> None:
    """Adds `l3 view`."""
    command = new_command(
        commands,
        "view",
        _view,
        "Show L3 files on a page in the browser of this machine.",
        """
        l3 view photo.l3
        l3 view train_l3/ --open
        l3 view shards/train-000.tar --memory 2000
        """,
    )
    command.add_argument(
        "paths",
        nargs="+",
        type=path_argument,
        metavar="PATH",
        help="L3 file, tar shard, or folder of these; nothing else is readable from the page",
    )
    command.add_argument(
        "--port", type=natural_number, default=0, help="of 127.0.0.1; default: any that is free"
    )
    command.add_argument("--open", action="store_true", help="open the page in a browser")
    command.add_argument(
        "--memory",
        type=positive_number,
        default=1000,
        metavar="MB",
        help=f"what pixels may take, at least {_LEAST_MEGABYTES}; default: %(default)s",
    )
    command.add_argument(
        "--cache",
        type=path_argument,
        default=_cache_folder(),
        metavar="FOLDER",
        help="for overviews of large images; default: %(default)s",
    )
    command.add_argument(
        "--cache-size",
        type=size_argument,
        default=2e9,
        metavar="SIZE",
        help="of FOLDER, as 500MB; older overviews go first; default: 2GB",
    )


def _cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME", "")
    return Path(home if Path(home).is_absolute() else "~/.cache") / "l3dali"


def _view(options: argparse.Namespace) -> int:
    if options.memory < _LEAST_MEGABYTES:
        raise UsageError(f"--memory {options.memory}: {_LEAST_MEGABYTES} is the least")
    try:
        cache = options.cache.expanduser()
    except RuntimeError:
        raise UsageError("there is no home folder: name a folder with --cache") from None
    for path in options.paths:
        if not path.exists():
            raise UsageError(f"{path}: there is no such file or folder")
        if path.is_file() and not (path.suffix.lower() in (".l3", ".tar") or _is_l3(path)):
            raise UsageError(f"{path}: not an L3 file; l3 encode makes one of an image")
    try:
        import uvicorn

        from l3dali.view.app import Viewer, make_app
    except ImportError:
        raise needs("starlette uvicorn", "l3 view") from None
    from l3dali.view.catalog import Catalog
    from l3dali.view.overviews import Overviews
    from l3dali.view.pixels import CALL_BYTES

    memory = options.memory * _MEGABYTE
    overviews = Overviews(cache, int(options.cache_size), memory)
    viewer = Viewer(Catalog(options.paths), overviews)
    # Half is for overviews in the making, and for answers that wait to be sent.
    workers = max(1, min(local_cores(), memory // 2 // CALL_BYTES))
    token = secrets.token_urlsafe(16)
    config = uvicorn.Config(
        make_app(viewer, token, workers),
        access_log=False,
        http="h11",  # httptools takes headers without an end
        limit_concurrency=_MAX_REQUESTS,
        lifespan="off",
        log_level="error",  # Warnings are lines that any client may write.
        timeout_graceful_shutdown=1,
        server_header=False,
        ws="none",
    )
    with _listener(options.port) as listener:
        url = f"http://{_LOOPBACK}:{listener.getsockname()[1]}/{token}/"
        complain(f"l3: {url}  (Ctrl-C ends it)")
        if options.open:
            import webbrowser

            webbrowser.open(url)
        server = uvicorn.Server(config)
        # Of each answer that nobody reads Ctrl-C would leave a traceback, which fill a pipe.
        logging.getLogger("uvicorn.error").addFilter(lambda _: not server.should_exit)
        server.run(sockets=[listener])
    return 0


def _is_l3(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(L3_SIGNATURE)) == L3_SIGNATURE


def _listener(port: int) -> socket.socket:
    """A socket of this machine alone that listens already: who has the address may come."""
    try:
        return socket.create_server((_LOOPBACK, port))
    except (OSError, OverflowError) as error:
        raise UsageError(f"--port {port}: {error}") from None
