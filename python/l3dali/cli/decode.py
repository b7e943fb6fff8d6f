"""The command `l3 decode`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.cli.arguments import add_output_options, new_file_command
from l3dali.cli.files import keeps, read_file, write_result
from l3dali.cli.reading import add_max_pixels_option
from l3dali.cli.report import Done, Report, finish
from l3dali.cli.work import (
    L3_SUFFIX,
    find_inputs,
    plan_outputs,
    run,
    threads_per_file,
)
from l3dali.console import printable
from l3dali.errors import UsageError
from l3dali.images.headers import ImageError
from l3dali.images.transcoding import decoded_picture
from l3dali.images.writing import WRITERS, write_picture

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
        help="default: as OUT's suffix says, else png",
    )
    command.add_argument(
        "--channels",
        type=_channels,
        metavar="N,N,...",
        help="channels to decode, by their numbers from 0 on, in this order; default: all",
    )
    add_max_pixels_option(command)


def _decode(options: argparse.Namespace) -> int:
    found = find_inputs(options, {L3_SUFFIX})
    suffix = _output_suffix(options)
    targets = plan_outputs(found, options, suffix)
    threads = threads_per_file(options.jobs, len(targets))
    damaged: list[Path] = []  # with metadata that cannot be read
    unfit: list[Path] = []  # that the format cannot hold

    def work(path: Path) -> Done | None:
        if keeps(targets[path], options):
            return None
        data = read_file(path, found.pipes)
        info = codec.info(data)
        pixels = codec.decode(
            data, channels=options.channels, threads=threads, max_pixels=options.max_pixels
        )
        picture = decoded_picture(pixels, info, options.channels)
        if picture.is_damaged:
            damaged.append(path)
        try:
            written = write_picture(picture, suffix)
        except ImageError:
            unfit.append(path)
            raise
        like = path if options.preserve and path not in found.pipes else None
        if not write_result(targets[path], written, options, like):
            return None
        return Done(pixels.nbytes, len(data), len(written))

    def remark(_report: Report) -> list[str]:
        lines = []
        if unfit and len(targets) > 1:
            lines.append(
                f"files that {suffix} cannot hold: {len(unfit)}; --format tif holds all, and "
                "l3 convert --to source writes each in the format that it came from"
            )
        if damaged:
            lines.append(
                f"files whose metadata is damaged, and was left out: {len(damaged)}; "
                f"the first is {printable(min(damaged))}"
            )
        return lines

    report = run(list(targets), work, options, remark)
    columns = {"L3": report.read_bytes, suffix[1:]: report.written_bytes}
    return finish(report, found, options, columns, remark)


def _channels(text: str) -> list[int]:
    """The numbers in a list that commas separate."""
    names = text.split(",")
    if not all(name.strip().isdecimal() for name in names):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers, such as 3,2,1")
    try:
        return codec.checked_channels([int(name) for name in names])
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
