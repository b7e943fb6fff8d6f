"""The command `l3 decode`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.arguments import checked_channels
from l3dali.cli.arguments import add_output_options, new_file_command
from l3dali.cli.inputs import L3_SUFFIX
from l3dali.cli.loop import make_files
from l3dali.cli.reading import add_max_pixels_option
from l3dali.cli.report import finish
from l3dali.console import printable
from l3dali.errors import UsageError
from l3dali.images.formats import WRITERS, write_picture
from l3dali.images.transcoding import decoded_picture

if TYPE_CHECKING:
    from pathlib import Path

    from l3dali.cli.arguments import Commands


def add_command(commands: Commands) -> None:
    """Adds `l3 decode`."""
    command = new_file_command(
        commands,
        "decode",
        _decode,
        "Decode L3 files into other lossless formats.",
        """
        l3 decode photo.l3                         photo.png beside it
        l3 decode photo.l3 -o photo.tif            the suffix names the format
        l3 decode train_l3/ -o train/ --format webp
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
    command.add_argument(
        "--channels",
        type=_channels,
        metavar="N,N,...",
        help="channels to decode, in this order, from 0; default: all",
    )
    add_max_pixels_option(command)


def _decode(options: argparse.Namespace) -> int:
    suffix = _output_suffix(options)
    damaged: list[Path] = []  # with metadata that cannot be read

    def make(path: Path, data: bytes, threads: int) -> tuple[int, bytes]:
        info = codec.info(data)
        pixels = codec.decode(
            data, channels=options.channels, threads=threads, max_pixels=options.max_pixels
        )
        picture = decoded_picture(pixels, info, options.channels)
        if picture.is_damaged:
            damaged.append(path)
        return pixels.nbytes, write_picture(picture, suffix)

    report, found = make_files(options, {L3_SUFFIX}, suffix, make)
    columns = {"L3": report.sum("read_bytes"), suffix[1:]: report.sum("written_bytes")}
    what = "files whose damaged metadata was dropped"
    lines = [f"{what}: {len(damaged)}; first {printable(min(damaged))}"] if damaged else []
    return finish(report, found, options, columns, lines)


def _channels(text: str) -> list[int]:
    """The numbers in a list with commas."""
    names = text.split(",")
    if not all(name.strip().isdecimal() for name in names):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers, such as 3,2,1")
    try:
        return checked_channels([int(name) for name in names])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _output_suffix(options: argparse.Namespace) -> str:
    asked = f".{options.format}" if options.format else ""
    named = "" if options.output is None else options.output.suffix.lower()
    if named not in WRITERS or options.output.is_dir():
        return asked or ".png"
    if asked and asked != named:
        raise UsageError(f"--format {options.format} and {options.output} do not agree")
    return str(named)
