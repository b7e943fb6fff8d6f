"""The command `l3 encode`."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.cli.arguments import add_output_options, new_command
from l3dali.cli.reading import PictureReader, add_reading_options
from l3dali.cli.work import (
    L3_SUFFIX,
    Done,
    compare,
    find_inputs,
    finish,
    keeps,
    plan_outputs,
    print_summary,
    read_file,
    run,
    threads_per_file,
    write_file,
)
from l3dali.console import complain
from l3dali.image_io import READ_SUFFIXES
from l3dali.transcoding import encode_picture

if TYPE_CHECKING:
    from pathlib import Path

    from l3dali.cli.arguments import Commands


def add_command(commands: Commands) -> None:
    """Adds `l3 encode`."""
    command = new_command(commands, "encode", _encode, "Encode images; folders are mirrored.")
    add_output_options(command)
    command.add_argument(
        "--mode",
        choices=codec.MODES,
        default=codec.DEFAULT_MODE,
        help="packed is faster, rans is smaller; default: %(default)s",
    )
    command.add_argument(
        "--effort",
        type=int,
        choices=codec.EFFORTS,
        default=codec.DEFAULT_EFFORT,
        metavar="N",
        help="of the rans mode, 1 (fast) to 9 (small); packed has one; default: %(default)s",
    )
    command.add_argument("--tile", type=_tile, metavar="WxH", help="pixels of a tile, as 64x32")
    command.add_argument("--verify", action="store_true", help="decode and compare before writing")
    command.add_argument(
        "--palette",
        choices=["rgb", "index"],
        default="rgb",
        help="keep the colours of palette images, or their entry numbers and the palette; "
        "default: %(default)s",
    )
    command.add_argument(
        "--labels",
        action="store_true",
        help="samples are numbers of classes, not to be blended; includes --palette index",
    )
    add_reading_options(command)


def _tile(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    tile = (int(match[1]), int(match[2])) if match else (0, 0)
    if tile[0] not in codec.TILE_WIDTHS or tile[1] not in codec.TILE_HEIGHTS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not WxH with W of {codec.TILE_WIDTHS} and H of {codec.TILE_HEIGHTS}"
        )
    return tile


def _encode(options: argparse.Namespace) -> int:
    found = find_inputs(options.paths, READ_SUFFIXES)
    targets = plan_outputs(found, options.output, L3_SUFFIX)
    threads = threads_per_file(options.jobs, len(targets))
    reader = PictureReader(options)

    def work(path: Path) -> Done | None:
        if keeps(targets[path], options):
            return None
        data = read_file(path)
        with reader.read(data, palette=options.palette, labels=options.labels) as picture:
            encoded = encode_picture(
                picture,
                labels=options.labels,
                mode=options.mode,
                effort=options.effort,
                threads=threads,
                tile=options.tile,
            )
            if options.verify:
                compare(codec.decode(encoded, threads=threads), picture.pixels)
            raw_bytes = picture.pixels.nbytes
        write_file(targets[path], encoded)
        return Done(raw_bytes, len(data), len(encoded))

    report = run(list(targets), work, options.jobs)
    print_summary(report, {"source": report.read_bytes, "L3": report.written_bytes})
    if reader.expanded:
        complain(
            f"l3: palette images that became RGB: {reader.expanded}; "
            "if they are masks, --palette index keeps their class numbers"
        )
    return finish(report, found)
