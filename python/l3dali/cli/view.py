"""The command `l3 view`."""

from __future__ import annotations

import argparse
import secrets
from typing import TYPE_CHECKING

from l3dali.cli.parser import local_cores, new_command
from l3dali.console import complain
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from l3dali.cli.parser import Commands


def add_command(commands: Commands) -> None:
    """Adds `l3 view`."""
    new_command(
        commands,
        "view",
        _view,
        "Show L3 files in the browser of this machine.",
        """
        l3 view photo.l3
        l3 view train_l3/ --open
        l3 view shards/train-000.tar --port 8000
        """,
        """
        paths PATH    L3 file, tar shard, or folder of these; the page reads no other files
        --port PORT   port on 127.0.0.1; default: any free port
        --open        open the page in a browser
        """,
        paths={"nargs": "+"},
        port={"type": int, "default": 0},
    )


def _view(options: argparse.Namespace) -> int:
    from l3dali.view.app import LOOPBACK, Server, Viewer
    from l3dali.view.catalog import Catalog

    for path in options.paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
    token = secrets.token_urlsafe(16)
    catalog = Catalog(options.paths)
    images, _, is_done = catalog.page(0, 1)
    if is_done and not images and not catalog.problems:
        raise UsageError("no L3 files and no tar shards in the folders named")
    viewer = Viewer(catalog)
    try:
        server = Server(viewer, token, options.port, local_cores())
    except (OSError, OverflowError) as error:
        raise UsageError(f"--port {options.port}: {error}") from None
    with server:
        url = f"http://{LOOPBACK}:{server.server_port}/{token}/"
        complain(f"l3: {url}  (Ctrl-C to stop)")
        if options.open:
            import webbrowser

            webbrowser.open(url)
        server.serve_forever()
    return 0
