"""The command `l3 thumbnail`, which file managers call: share/thumbnailers."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali.cli.arguments import new_command, output_argument, path_argument, positive_number
from l3dali.cli.inputs import STDIN, check_stdin, is_image_name, read_stdin
from l3dali.cli.loop import failure_of
from l3dali.cli.outputs import check_stream, new_file, without_collisions, write_file
from l3dali.cli.report import EXIT_FAILED
from l3dali.console import tell_failures
from l3dali.errors import UsageError
from l3dali.view.catalog import Entry
from l3dali.view.pixels import thumbnail

if TYPE_CHECKING:
    from l3dali.cli.arguments import Commands

_MAX_SIDE = 4096


def add_command(commands: Commands) -> None:
    """Adds `l3 thumbnail`."""
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
    command.add_argument("path", type=path_argument, metavar="PATH", help="- is standard input")
    command.add_argument(
        "output",
        type=output_argument,
        metavar="PNG",
        help="- is standard output",
    )
    command.add_argument("--overwrite", action="store_true", help="replace an existing PNG")
    command.add_argument(
        "-s",
        "--size",
        type=positive_number,
        default=256,
        metavar="N",
        help=f"pixels on the longer side, up to {_MAX_SIDE}; default: %(default)s",
    )


def _thumbnail(options: argparse.Namespace) -> int:
    source: Path = options.path
    if source == STDIN:
        check_stdin()
    check_stream(options.output)
    if options.output.suffix.lower() != ".png" and is_image_name(options.output.name):
        raise UsageError(f"thumbnails are PNG, and {options.output} ends in another suffix")
    if options.size > _MAX_SIDE:
        raise UsageError(f"--size {options.size} is more than {_MAX_SIDE}")
    new_file(options.output, overwrite=options.overwrite)
    without_collisions([(source, options.output)])
    try:
        if source == STDIN:
            data = memoryview(read_stdin())
        else:
            data = Entry(source.name, source, Path(os.path.realpath(source))).read()
        png = thumbnail(data, options.size, orient=True)
    except (OSError, ValueError, MemoryError) as error:
        tell_failures([failure_of(source, error)])
        return EXIT_FAILED
    write_file(options.output, png, replace=options.overwrite)
    return 0
