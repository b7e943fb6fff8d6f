"""The command `l3 verify`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.cli.arguments import (
    add_jobs_option,
    add_report_options,
    new_file_command,
    path_or_url_argument,
)
from l3dali.cli.inputs import L3_SUFFIX, find_inputs, read_file
from l3dali.cli.loop import run, threads_per_file
from l3dali.cli.reading import PictureReader, add_reading_options
from l3dali.cli.report import Done, check_summary, finish

if TYPE_CHECKING:
    from pathlib import Path

    from l3dali.cli.arguments import Commands


def add_command(commands: Commands) -> None:
    """Adds `l3 verify`."""
    command = new_file_command(
        commands,
        "verify",
        _verify,
        "Check L3 files; compare them with their sources.",
        """
        l3 verify train_l3/                      checksums, every tile decoded
        l3 verify train_l3/ --source train/      pixels, and missing results
        l3 verify train_l3/ --json-summary - --quiet | jq .failures
        l3 verify s3://data/train-l3             shards, and hashes of the manifest
        """,
        "file, shard, folder or URL",
    )
    command.add_argument(
        "--source", type=path_or_url_argument, help="source of PATH, a file or folder, to compare"
    )
    add_reading_options(command)
    add_jobs_option(command)
    add_report_options(command)


def _verify(options: argparse.Namespace) -> int:
    from l3dali.cli import sets  # imports the libraries of data sets

    check_summary(options.json_summary)
    if sets.are_sets(options):
        return sets.verify(options)
    found = find_inputs(options, {L3_SUFFIX})
    paths = list(dict.fromkeys(file.path for file in found.files))
    threads = threads_per_file(options.jobs, len(paths))
    reader = PictureReader(options)

    def work(path: Path) -> Done:
        data = read_file(path, found.pipes)
        reader.verify(data, threads)
        return Done(codec.info(data).raw_bytes, len(data))

    report = run(paths, work, options)
    return finish(report, found, options, {"L3": report.sum("read_bytes")})
