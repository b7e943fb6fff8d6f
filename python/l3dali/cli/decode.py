"""The command `l3 decode`."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import TYPE_CHECKING

from l3dali.cli.parser import CHANNELS, FILES, JOBS, MAX_PIXELS, OUTPUT, REPORT, new_command
from l3dali.cli.single_files import make_files
from l3dali.datasets.convert.images import Options
from l3dali.errors import UsageError
from l3dali.files import info
from l3dali.images.formats import WRITERS
from l3dali.images.transcoding import jpeg_suffix, volume_suffix
from l3dali.signatures import suffix_of

if TYPE_CHECKING:
    from pathlib import Path

    from l3dali.cli.parser import Commands


def add_command(commands: Commands) -> None:
    """Adds `l3 decode`."""
    formats = ", ".join(suffix[1:] for suffix in WRITERS)
    new_command(
        commands,
        "decode",
        _decode,
        "Decode L3 files into other formats. For folders and shards: l3 convert.",
        """
        l3 decode photo.l3                         photo.png, or the original .jpg
        l3 decode photo.l3 -o photo.tif            the suffix names the format
        l3 decode train_l3/*.l3 -o images/ --format webp
        l3 decode photo.l3 -o - --format ppm | display
        l3 decode scene.l3 -o rgb.png --channels 3,2,1   three of many bands
        """,
        *(FILES, OUTPUT, JOBS, REPORT),
        f"""
        --format FORMAT   output format: {formats}; default: from the suffix of OUT, else the
                          original JPEG file, nii.gz or tif for volumes, else png
        """,
        *(CHANNELS, MAX_PIXELS),
        format={"choices": formats.split(", ")},
    )


def _decode(options: argparse.Namespace) -> int:
    suffix = _output_suffix(options)
    wants_pixels = bool(options.format or options.channels or _named_format(options))
    how = Options(
        suffix[1:],
        channels=options.channels,
        on_error="fail",
        verify=False,
        all_images=True,
        max_pixels=options.max_pixels,
        restore_jpeg=not wants_pixels,
    )

    def suffix_for(path: Path) -> str:
        if wants_pixels:
            return suffix
        with suppress(OSError, ValueError):  # reported when the file is decoded
            found = info(path) if path.is_file() else None
            return (found and (jpeg_suffix(found) or volume_suffix(found))) or suffix
        return suffix

    return make_files(options, how, suffix_for)


def _named_format(options: argparse.Namespace) -> str:
    """The suffix that the output names, if it is that of a format; else ""."""
    named = "" if options.output is None else suffix_of(options.output).lower()
    return "" if named not in WRITERS or options.output.is_dir() else str(named)


def _output_suffix(options: argparse.Namespace) -> str:
    asked = f".{options.format}" if options.format else ""
    named = _named_format(options)
    if asked and named and asked != named:
        raise UsageError(f"--format {options.format} and {options.output} do not agree")
    return named or asked or ".png"
