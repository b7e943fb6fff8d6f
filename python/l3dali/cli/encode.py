"""The command `l3 encode`."""

from __future__ import annotations

import argparse
import os
import re
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.cli.arguments import add_output_options, new_file_command
from l3dali.cli.batch import STDIN
from l3dali.cli.files import keeps, read_file, write_result
from l3dali.cli.reading import PictureReader, add_reading_options
from l3dali.cli.report import Done, Report, finish
from l3dali.cli.work import (
    L3_SUFFIX,
    compare,
    find_inputs,
    plan_outputs,
    run,
    threads_per_file,
)
from l3dali.console import counted, megabytes, ratio
from l3dali.errors import UsageError
from l3dali.images.geometry import is_varied
from l3dali.images.lossy import lossy_format
from l3dali.images.reading import READ_SUFFIXES, unread_images
from l3dali.images.transcoding import encode_picture

if TYPE_CHECKING:
    from pathlib import Path

    from l3dali.cli.arguments import Commands

_THREAD_BYTES = 10_000_000  # that a further thread of rans takes at most, at effort 9 (measured)


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
        l3 encode train/ -o train_l3/ --skip-existing       go on where it ended
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
        help="of rans, 1 (fast) to 9 (small); others have one; default: %(default)s",
    )
    command.add_argument("--tile", type=_tile, metavar="HxW", help="height and width of a tile")
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
        action=argparse.BooleanOptionalAction,
        help="samples of all images are numbers of classes, not to be blended; includes --palette "
        "index. l3 convert --labels NAMES marks some of many. "
        "--no-labels: they are not, though --max-side says that images look so",
    )
    add_reading_options(command)


def _tile(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    tile = (int(match[1]), int(match[2])) if match else (0, 0)
    if tile[0] not in codec.TILE_HEIGHTS or tile[1] not in codec.TILE_WIDTHS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not HxW with H of {codec.TILE_HEIGHTS} and W of {codec.TILE_WIDTHS}"
        )
    return tile


def _encode(options: argparse.Namespace) -> int:
    _refuse_names_of_labels(options)
    found = find_inputs(options, READ_SUFFIXES)
    targets = plan_outputs(found, options, L3_SUFFIX)
    threads = threads_per_file(options.jobs, len(targets))
    reader = PictureReader(options)
    colored: list[Path] = []  # images marked as label maps
    varied: list[Path] = []  # whose pixels are numbers of palette entries, unlike a mask's

    def work(path: Path) -> Done | None:
        if keeps(targets[path], options):
            return None
        data = read_file(path, found.pipes)
        with reader.read(
            path,
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
            raw_bytes = picture.pixels.nbytes
            is_colored = picture.pixels.ndim == 3 and picture.pixels.shape[2] >= 3
            if not options.labels and picture.palette is not None and is_varied(picture.pixels):
                varied.append(path)
            like = path if options.preserve and path not in found.pipes else None
            if not write_result(targets[path], encoded, options, like):
                return None
        if options.labels and is_colored:
            colored.append(path)
        return Done(raw_bytes, len(data), len(encoded), lossy_format(data))

    def remark(report: Report) -> list[str]:
        return [
            *_remark_on_palettes(reader.expanded),
            *_remark_on_photographs(
                colored, "three channels or more that --labels marks as label maps"
            ),
            *_remark_on_photographs(varied, "varied pixels that --palette index makes numbers"),
            *_remark_on_growth(report),
        ]

    def last_remark(report: Report) -> list[str]:
        return unread_images(found.others, "passed over") + reader.remarks_told() + remark(report)

    report = run(list(targets), work, options, remark)
    report.palettes_expanded = reader.expanded
    columns = {"source": report.read_bytes, "L3": report.written_bytes}
    return finish(report, found, options, columns, last_remark)


def _refuse_names_of_labels(options: argparse.Namespace) -> None:
    """Refuses `--labels NAMES`, which `l3 convert` has: NAMES would be a PATH here."""
    for path in options.paths if options.labels else ():
        if path != STDIN and not os.path.lexists(path):
            raise UsageError(
                f"{path}: no such file; --labels of l3 encode takes no names and marks all images. "
                "l3 convert --labels NAMES marks some"
            )


def _remark_on_photographs(paths: list[Path], what: str) -> list[str]:
    if not paths:
        return []
    return [
        f"images of {what}: {len(paths)}; the first is {min(paths)}. If they are photographs, "
        "encode them again without it"
    ]


def _remark_on_palettes(expanded: int) -> list[str]:
    if not expanded:
        return []
    return [
        f"palette images that became RGB: {expanded}; "
        "if they are masks, --palette index keeps their class numbers"
    ]


def _remark_on_growth(report: Report) -> list[str]:
    """Says which lossy sources have grown, and what makes sense instead."""
    grown = [
        f"{counted(len(part.done), f'{name} file')} grew "
        f"from {megabytes(part.read_bytes)} to {megabytes(part.written_bytes)}, "
        f"ratio {ratio(part.written_bytes, part.read_bytes)}"
        for name, part in sorted(report.of_lossy_sources().items())
        if part.written_bytes > part.read_bytes
    ]
    if not grown:
        return []
    return [
        *grown,
        "L3 keeps each pixel of them, their losses too: where bytes count, keep such files as "
        "they are; --max-side N makes them small, --coding packed fast to decode",
    ]
