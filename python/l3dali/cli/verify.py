"""The command `l3 verify`."""

from __future__ import annotations

import argparse
import errno
import os
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.cli.arguments import (
    add_jobs_option,
    add_report_options,
    new_file_command,
    path_or_url_argument,
)
from l3dali.cli.batch import Found, find_files, plan_targets
from l3dali.cli.files import read_file
from l3dali.cli.reading import PictureReader, add_reading_options
from l3dali.cli.report import Done, Report, finish
from l3dali.cli.work import (
    L3_SUFFIX,
    find_inputs,
    run,
    threads_per_file,
)
from l3dali.console import Failure
from l3dali.errors import UsageError
from l3dali.images.reading import READ_SUFFIXES, unread_images

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
        l3 verify train_l3/ --source train/      each pixel, and that none is missing
        l3 verify train_l3/ --json-summary - --quiet | jq .failures
        l3 verify s3://data/train-l3             shards too, as the manifest has them
        """,
        sets=True,
    )
    command.add_argument(
        "--source", type=path_or_url_argument, help="the file or folder that PATH was made from"
    )
    add_reading_options(command)
    add_jobs_option(command)
    add_report_options(command)


def _verify(options: argparse.Namespace) -> int:
    from l3dali.cli import sets  # libraries for data sets are for these alone

    if sets.are_sets(options):
        return sets.verify(options)
    found = find_inputs(options, {L3_SUFFIX})
    paths = [file.path for file in found.files]
    sources, unread = _find_sources(options, found)
    threads = threads_per_file(options.jobs, len(paths))
    reader = PictureReader(options)

    def work(path: Path) -> Done:
        data = read_file(path, found.pipes)
        if sources is None:
            reader.verify(data, threads)
        elif path not in sources:
            raise ValueError(f"no source in {options.source}")
        else:
            source = read_file(sources[path], [options.source])
            reader.compare(sources[path], source, data, threads)
        return Done(codec.info(data).raw_bytes, len(data), 0)

    def remark(report: Report) -> list[str]:
        if not reader.expanded:
            return []
        return [
            f"palette images compared by their colours: {reader.expanded}; "
            "their L3 files do not hold their numbers (see l3 encode --palette index)"
        ]

    def last_remark(report: Report) -> list[str]:
        return unread + reader.remarks_told() + remark(report)

    report = run(paths, work, options, remark)
    report.palettes_expanded = reader.expanded
    return finish(report, found, options, {"L3": report.read_bytes}, last_remark)


def _find_sources(
    options: argparse.Namespace, found: Found
) -> tuple[dict[Path, Path] | None, list[str]]:
    """The source of each L3 file, paired as `l3 encode` does; None if not asked for.

    Then what is said of images that no L3 file can be of. Sources in a folder that have no L3 file
    are added to the failures, links to folders to the others.
    """
    source: Path | str | None = options.source
    if source is None:
        return None, []
    if isinstance(source, str):
        raise UsageError("a URL as --source goes with what l3 convert has written")
    if options.files_from is not None or len(options.paths) != 1:
        raise UsageError("--source goes with one PATH")
    for path in (options.paths[0], source):
        if not path.exists():
            raise UsageError(f"{path}: {os.strerror(errno.ENOENT)}")
    if options.paths[0].is_dir() != source.is_dir():
        raise UsageError("--source goes with one PATH: both files or both folders")
    if not source.is_dir():
        return {options.paths[0]: source}, []
    images = find_files([source], READ_SUFFIXES)
    targets = plan_targets(images, options.paths[0], L3_SUFFIX)
    sources = {target: image for image, target in targets.items()}
    missing = sources.keys() - {file.path for file in found.files}
    found.failures += images.failures
    if not source.samefile(options.paths[0]):
        found.links += images.links
    found.failures += [
        Failure(sources[path], f"no {path}", "no L3 file") for path in sorted(missing)
    ]
    return sources, unread_images(images.others, f"of {source} that were not compared")
