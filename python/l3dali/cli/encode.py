"""The command `l3 encode`."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.arguments import TILE_HEIGHTS, TILE_WIDTHS
from l3dali.cli.arguments import add_output_options, new_file_command
from l3dali.cli.inputs import L3_SUFFIX, find_inputs, read_file
from l3dali.cli.loop import run, threads_per_file
from l3dali.cli.outputs import keeps, plan_outputs, write_result
from l3dali.cli.reading import PictureReader, add_reading_options, compare
from l3dali.cli.report import Done, Report, check_summary, finish, growth_lines
from l3dali.images.lossy import lossy_format
from l3dali.images.reading import READ_SUFFIXES, unread_images
from l3dali.images.transcoding import encode_picture

if TYPE_CHECKING:
    from pathlib import Path

    from l3dali.cli.arguments import Commands

_THREAD_BYTES = 10_000_000  # memory of each further thread of rans, at most (effort 9, measured)


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
        find . -name '*.png' -print0 | l3 encode --files-from - -0 -o l3/
        curl -s https://example.org/a.png | l3 encode - -o a.l3
        """,
    )
    add_output_options(command)
    command.add_argument(
        "--coding",
        choices=codec.CODINGS,
        default=codec.DEFAULT_CODING,
        help="rans is smaller, packed is faster, stored is raw; default: %(default)s",
    )
    command.add_argument(
        "--effort",
        type=int,
        choices=codec.EFFORTS,
        default=codec.DEFAULT_EFFORT,
        metavar="N",
        help="compression effort of rans, 1 (fastest) to 9 (smallest); other codings ignore it; "
        "default: %(default)s",
    )
    command.add_argument("--tile", type=_tile, metavar="HxW", help="height and width of a tile")
    command.add_argument("--verify", action="store_true", help="decode and compare before writing")
    command.add_argument(
        "--palette",
        choices=["rgb", "index"],
        default="rgb",
        help="store colours of palette images, or entry numbers and the palette; "
        "default: %(default)s",
    )
    command.add_argument(
        "--labels",
        action=argparse.BooleanOptionalAction,
        help="mark all images as label maps: samples are class numbers; includes --palette index. "
        "--no-labels: none is one, even if --max-side takes it for one",
    )
    add_reading_options(command)


def _tile(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    tile = (int(match[1]), int(match[2])) if match else (0, 0)
    if tile[0] not in TILE_HEIGHTS or tile[1] not in TILE_WIDTHS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not HxW with H of {TILE_HEIGHTS} and W of {TILE_WIDTHS}"
        )
    return tile


def _encode(options: argparse.Namespace) -> int:
    check_summary(options.json_summary)
    found = find_inputs(options, READ_SUFFIXES)
    targets = plan_outputs(found, options, L3_SUFFIX)
    threads = threads_per_file(options.jobs, len(targets))
    reader = PictureReader(options)

    def work(path: Path) -> Done | None:
        if keeps(targets[path], options):
            return None
        data = read_file(path, found.pipes)
        with reader.read(
            data,
            palette=options.palette,
            labels=bool(options.labels),
            keep_text=options.preserve,
            refuse_labels=options.labels is None,
            beside_bytes=(threads - 1) * _THREAD_BYTES * (options.coding == "rans"),
        ) as picture:
            encoded = encode_picture(
                picture,
                labels=bool(options.labels),
                coding=options.coding,
                effort=options.effort,
                threads=threads,
                tile=options.tile,
            )
            if options.verify:
                decoded = codec.decode(encoded, threads=threads, max_pixels=None)
                compare(decoded, picture.pixels)
            like = path if options.preserve and path not in found.pipes else None
            if not write_result(targets[path], encoded, options, like):
                return None
            return Done(picture.pixels.nbytes, len(data), len(encoded), lossy_format(data))

    def remark(report: Report) -> list[str]:
        lines = _remark_on_growth(report)
        if reader.expanded:
            lines.append(
                f"palette images that became RGB: {reader.expanded}; "
                "if they are masks, --palette index keeps their class numbers"
            )
        return lines

    def last_remark(report: Report) -> list[str]:
        return unread_images(found.others, "skipped") + remark(report)

    report = run(list(targets), work, options, remark)
    report.palettes_expanded = reader.expanded
    columns = {"source": report.read_bytes, "L3": report.written_bytes}
    return finish(report, found, options, columns, last_remark)


def _remark_on_growth(report: Report) -> list[str]:
    """Which lossy sources have grown, and what to do."""
    grown = growth_lines(
        (name, part["files"], part["read_bytes"], part["written_bytes"])
        for name, part in report.lossy_sources().items()
    )
    if grown:
        grown.append(
            "L3 stores every pixel of lossy images exactly: where bytes count, keep such files as "
            "they are; --max-side N shrinks them, --coding packed makes them fast to decode"
        )
    return grown
