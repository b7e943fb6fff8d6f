"""The command `l3 decode`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from l3dali.cli.loop import make_files
from l3dali.cli.parser import (
    add_channels_option,
    add_max_pixels_option,
    add_output_options,
    new_file_command,
)
from l3dali.cli.summary import finish
from l3dali.datasets.convert.images import Options
from l3dali.errors import UsageError
from l3dali.images.formats import WRITERS

if TYPE_CHECKING:
    from l3dali.cli.parser import Commands


def add_command(commands: Commands) -> None:
    """Adds `l3 decode`."""
    command = new_file_command(
        commands,
        "decode",
        _decode,
        "Decode L3 files into other lossless formats. For folders and shards: l3 convert.",
        """
        l3 decode photo.l3                         photo.png beside it
        l3 decode photo.l3 -o photo.tif            the suffix names the format
        l3 decode train_l3/*.l3 -o images/ --format webp
        l3 decode photo.l3 -o - --format ppm | display
        l3 decode scene.l3 -o rgb.png --channels 3,2,1   three of many bands
        """,
    )
    add_output_options(command)
    command.add_argument(
        "--format",
        choices=[suffix[1:] for suffix in WRITERS],
        help="output format; default: from the suffix of OUT, else png",
    )
    add_channels_option(command)
    add_max_pixels_option(command)


def _decode(options: argparse.Namespace) -> int:
    suffix = _output_suffix(options)
    how = Options(
        suffix[1:], channels=options.channels, verify=False, max_pixels=options.max_pixels
    )
    report, found = make_files(options, how)
    columns = {"L3": report.sum("read_bytes"), suffix[1:]: report.sum("written_bytes")}
    return finish(report, found, options, columns)


def _output_suffix(options: argparse.Namespace) -> str:
    asked = f".{options.format}" if options.format else ""
    named = "" if options.output is None else options.output.suffix.lower()
    if named not in WRITERS or options.output.is_dir():
        return asked or ".png"
    if asked and asked != named:
        raise UsageError(f"--format {options.format} and {options.output} do not agree")
    return str(named)
