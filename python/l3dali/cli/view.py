"""The commands `l3 view` and `l3 thumbnail`, which file managers call: share/thumbnailers."""

from __future__ import annotations

import argparse
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali.cli.arguments import (
    local_cores,
    new_command,
    output_argument,
    path_argument,
    positive_number,
)
from l3dali.cli.inputs import is_image_name
from l3dali.cli.loop import failure_of
from l3dali.cli.outputs import check_stream, new_file, without_collisions, write_file
from l3dali.cli.report import EXIT_FAILED
from l3dali.console import complain, tell_failures
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from l3dali.cli.arguments import Commands


def add_command(commands: Commands) -> None:
    """Adds `l3 view` and `l3 thumbnail`."""
    command = new_command(
        commands,
        "view",
        _view,
        "Show L3 files on a page in the browser of this machine.",
        """
        l3 view photo.l3
        l3 view train_l3/ --open
        l3 view shards/train-000.tar --port 8000
        """,
    )
    command.add_argument(
        "paths",
        nargs="+",
        type=path_argument,
        metavar="PATH",
        help="L3 file, tar shard, or folder of these; the page cannot read other files",
    )
    command.add_argument(
        "--port", type=int, default=0, help="of 127.0.0.1; default: any that is free"
    )
    command.add_argument("--open", action="store_true", help="open the page in a browser")
    command = new_command(
        commands,
        "thumbnail",
        _thumbnail,
        "Write a small PNG of an L3 file, upright, of 8 bits.",
        """
        l3 thumbnail photo.l3 small.png
        l3 thumbnail scan.l3 - --size 512 > scan.png
        """,
    )
    command.add_argument("path", type=path_argument, metavar="PATH", help="L3 file")
    command.add_argument("output", type=output_argument, metavar="PNG", help="- is standard output")
    command.add_argument("--overwrite", action="store_true", help="replace an existing PNG")
    what = "pixels on the longer side; default: %(default)s"
    command.add_argument("--size", type=positive_number, default=256, metavar="N", help=what)


def _view(options: argparse.Namespace) -> int:
    from l3dali.view.app import LOOPBACK, Server, Viewer
    from l3dali.view.catalog import Catalog

    for path in options.paths:
        if not path.exists():
            raise UsageError(f"{path}: there is no such file or folder")
    token = secrets.token_urlsafe(16)
    viewer = Viewer(Catalog(options.paths))
    try:
        server = Server(viewer, token, options.port, local_cores())
    except (OSError, OverflowError) as error:
        raise UsageError(f"--port {options.port}: {error}") from None
    with server:
        url = f"http://{LOOPBACK}:{server.server_port}/{token}/"
        complain(f"l3: {url}  (Ctrl-C ends it)")
        if options.open:
            import webbrowser

            webbrowser.open(url)
        server.serve_forever()
    return 0


def _thumbnail(options: argparse.Namespace) -> int:
    from l3dali.view.catalog import Entry
    from l3dali.view.pixels import thumbnail

    source: Path = options.path
    check_stream(options.output)
    if options.output.suffix.lower() != ".png" and is_image_name(options.output.name):
        raise UsageError(f"thumbnails are PNG, and {options.output} ends in another suffix")
    new_file(options.output, overwrite=options.overwrite)
    without_collisions([(source, options.output)])
    try:
        data = Entry(source.name, source, Path(os.path.realpath(source))).read()
        png = thumbnail(data, options.size, orient=True)
    except (OSError, ValueError, MemoryError) as error:
        tell_failures([failure_of(source, error)])
        return EXIT_FAILED
    write_file(options.output, png, replace=options.overwrite)
    return 0
