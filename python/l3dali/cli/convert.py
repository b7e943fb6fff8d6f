"""The arguments of `l3 convert`; `converting` runs it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from l3dali.cli.arguments import (
    add_coding_options,
    add_jobs_option,
    add_report_options,
    add_sources,
    name_argument,
    new_command,
    positive_number,
)
from l3dali.cli.reading import add_dicom_option, add_layout_option, add_max_pixels_option

if TYPE_CHECKING:
    from l3dali.cli.arguments import Commands


def add_command(commands: Commands) -> None:
    """Adds `l3 convert` to the commands of the parser `l3`."""
    parser = new_command(
        commands,
        "convert",
        _run,
        "Convert data sets: folders and shards of images, local or in buckets.",
        """
        l3 convert photos photos-l3                       or continue an earlier run
        l3 convert 's3://data/train-{000..146}.tar' train-l3
        l3 convert photos photos-mixed --plan plan.json   formats of l3 plan
        l3 convert photos-l3 photos-png --to png          back
        """,
    )
    add_sources(parser, "SOURCE")
    parser.add_argument("dest", type=name_argument, metavar="DEST", help="output folder or URL")
    parser.add_argument(
        "--to",
        choices=["l3", "png", "tif", "source"],
        default="l3",
        help="output format; source: the original format of each image; default: l3",
    )
    add_coding_options(parser)
    parser.add_argument(
        "--plan",
        metavar="FILE",
        help="result of l3 plan, which chooses the format of each image",
    )
    parser.add_argument(
        "--labels",
        type=name_argument,
        action="append",
        default=[],
        metavar="NAMES",
        help="label maps: the end of their names or fields (seg.png), or a pattern of whole names "
        "('gtFine/*')",
    )
    parser.add_argument(
        "--on-error",
        choices=["fail", "keep", "drop"],
        default="keep",
        help="if an image cannot be converted: fail its shard, keep it unchanged, or drop its "
        "sample; default: %(default)s",
    )
    add_max_pixels_option(parser)
    add_layout_option(parser)
    add_dicom_option(parser)
    parser.add_argument(
        "--remove-gone",
        action="store_true",
        help="remove unchanged results of earlier runs whose sources are gone",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be done, and write nothing"
    )
    parser.add_argument(
        "--verify",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="decode each result and compare it with its source; default: yes",
    )
    parser.add_argument(
        "--worker-memory",
        type=positive_number,
        default=4096,
        metavar="MB",
        help="memory limit of each process that reads files; default: %(default)s",
    )
    parser.add_argument(
        "--grow", action="store_true", help="convert lossy images even if the result is larger"
    )
    add_jobs_option(parser)
    parser.set_defaults(jobs=None)  # all cores of the machine, or of the cluster
    parser.add_argument(
        "--engine",
        choices=["local", "ray"],
        default="local",
        help="this machine, or the Ray cluster of RAY_ADDRESS; default: local",
    )
    add_report_options(parser)


def _run(arguments: argparse.Namespace) -> int:
    from l3dali.cli import converting  # libraries for data sets are for this command alone

    return converting.run(arguments)
