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
from l3dali.cli.inputs import L3_SUFFIX, Found, find_files, find_inputs, read_file
from l3dali.cli.loop import run, threads_per_file
from l3dali.cli.outputs import plan_targets
from l3dali.cli.reading import PictureReader, add_reading_options
from l3dali.cli.report import Done, Report, check_summary, finish
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
        "--source", type=path_or_url_argument, help="file or folder that PATH was made from"
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
            reader.compare(read_file(sources[path], [options.source]), data, threads)
        return Done(codec.info(data).raw_bytes, len(data))

    def remark(_report: Report) -> list[str]:
        if not reader.expanded:
            return unread
        return [
            *unread,
            f"palette images compared by their colours: {reader.expanded}; their L3 files do "
            "not hold entry numbers (see l3 encode --palette index)",
        ]

    report = run(paths, work, options)
    report.palettes_expanded = reader.expanded
    return finish(report, found, options, {"L3": report.read_bytes}, remark)


def _find_sources(
    options: argparse.Namespace, found: Found
) -> tuple[dict[Path, Path] | None, list[str]]:
    """The source of each L3 file, paired as by `l3 encode`, or None without `--source`.

    Also returns remarks on images of formats that are not read. Sources without an L3 file are
    added to the failures of `found`, and links to folders to its links.
    """
    source: Path | str | None = options.source
    if source is None:
        return None, []
    if isinstance(source, str):
        raise UsageError("--source can only be a URL if PATH is output of l3 convert")
    if options.files_from is not None or len(options.paths) != 1:
        raise UsageError("--source needs one PATH")
    for path in (options.paths[0], source):
        if not path.exists():
            raise UsageError(f"{path}: {os.strerror(errno.ENOENT)}")
    if options.paths[0].is_dir() != source.is_dir():
        raise UsageError("--source and PATH must both be files or both be folders")
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
