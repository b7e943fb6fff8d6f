"""The command `l3 encode`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.cli.loop import make_files
from l3dali.cli.parser import (
    add_coding_options,
    add_image_options,
    add_output_options,
    image_options,
    new_file_command,
)
from l3dali.cli.summary import Report, finish
from l3dali.datasets.convert.images import Options

if TYPE_CHECKING:
    from l3dali.cli.parser import Commands


def add_command(commands: Commands) -> None:
    """Adds `l3 encode`."""
    command = new_file_command(
        commands,
        "encode",
        _encode,
        "Encode image files. For folders and shards: l3 convert.",
        """
        l3 encode photo.png                        photo.l3 beside it
        l3 encode *.png -o l3/ --verify            each result compared
        l3 encode photo.png -o small.l3 --max-side 256
        find . -name '*.png' -print0 | l3 encode --files-from - -o l3/
        curl -s https://example.org/a.png | l3 encode - -o a.l3
        """,
    )
    add_output_options(command)
    add_coding_options(command, codec.DEFAULT_CODING)
    command.add_argument("--verify", action="store_true", help="decode and compare before writing")
    command.add_argument(
        "--labels",
        action=argparse.BooleanOptionalAction,
        help="mark all images as label maps, with --palette index; --no-labels lets --max-side "
        "shrink images that look like label maps",
    )
    add_image_options(command)


def _encode(options: argparse.Namespace) -> int:
    how = Options(
        coding=options.coding,
        effort=options.effort,
        labels=("*",) if options.labels else (),
        verify=options.verify,
        keep_text=options.preserve,
        refuse_labels=options.labels is None,
        keep_suffix=False,
        **image_options(options),
    )
    report, found = make_files(options, how)
    columns = {"source": report.sum("read_bytes"), "L3": report.sum("written_bytes")}
    lines = _remark_on_growth(report)
    if expanded := report.sum("expanded"):
        lines.append(
            f"palette images that became colours: {expanded}; "
            "--palette index keeps the class numbers of masks"
        )
    return finish(report, found, options, columns, lines)


def _remark_on_growth(report: Report) -> list[str]:
    """A remark on lossy sources that grew."""
    grown = sum(done.is_lossy and done.written_bytes > done.read_bytes for done in report.done)
    if not grown:
        return []
    return [
        f"lossy images that grew: {grown}, since L3 is lossless; keep such files where bytes "
        "count, or shrink them by --max-side N"
    ]
