"""The command `l3 encode`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.cli.arguments import add_coding_options, add_output_options, new_file_command
from l3dali.cli.inputs import L3_SUFFIX
from l3dali.cli.loop import make_files
from l3dali.cli.reading import PictureReader, add_dicom_option, add_reading_options, compare
from l3dali.cli.report import Report, finish
from l3dali.console import counted
from l3dali.images.transcoding import encode_picture
from l3dali.signatures import READ_SUFFIXES, unread_images

if TYPE_CHECKING:
    from pathlib import Path

    from l3dali.cli.arguments import Commands


def add_command(commands: Commands) -> None:
    """Adds `l3 encode`."""
    command = new_file_command(
        commands,
        "encode",
        _encode,
        "Encode images; folders are mirrored.",
        """
        l3 encode photo.png                        photo.l3 beside it
        l3 encode train/ -o train_l3/ --verify     a folder, each result compared
        l3 encode train/ -o train_l3/ --skip-existing       continue
        l3 encode train/ val/ -o l3/               l3/train/ and l3/val/
        find . -name '*.png' -print0 | l3 encode --files-from - -o l3/
        curl -s https://example.org/a.png | l3 encode - -o a.l3
        """,
    )
    add_output_options(command)
    add_coding_options(command, codec.DEFAULT_CODING)
    command.add_argument("--verify", action="store_true", help="decode and compare before writing")
    command.add_argument(
        "--palette",
        choices=["rgb", "index"],
        default="rgb",
        help="store colours or entry numbers of palette images; default: %(default)s",
    )
    command.add_argument(
        "--labels",
        action=argparse.BooleanOptionalAction,
        help="mark all images as label maps, with --palette index; --no-labels lets --max-side "
        "shrink images that look like label maps",
    )
    add_reading_options(command)
    add_dicom_option(command)


def _encode(options: argparse.Namespace) -> int:
    reader = PictureReader(options)

    def make(_path: Path, data: bytes, threads: int) -> tuple[int, bytes]:
        with reader.read(
            data,
            palette=options.palette,
            labels=bool(options.labels),
            keep_text=options.preserve,
            refuse_labels=options.labels is None,
            dicom_tags=options.dicom_tags,
        ) as picture:
            encoded = encode_picture(
                picture,
                labels=bool(options.labels),
                coding=options.coding,
                effort=options.effort,
                threads=threads,
            )
            if options.verify:
                decoded = codec.decode(encoded, threads=threads, max_pixels=None)
                compare(decoded, picture.pixels)
            return picture.pixels.nbytes, encoded

    report, found = make_files(options, READ_SUFFIXES, L3_SUFFIX, make)
    report.palettes_expanded = reader.expanded
    columns = {"source": report.sum("read_bytes"), "L3": report.sum("written_bytes")}
    lines = unread_images(found.others, "skipped") + _remark_on_growth(report)
    lines += [f"{text}: {counted(n, 'image')}" for text, n in sorted(reader.remarks.items())]
    if reader.expanded:
        lines.append(
            f"palette images that became RGB: {reader.expanded}; "
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
