"""The commands `l3 encode` and `l3 decode`, for files and pipes: jobs that have no manifest."""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali.cli import parser
from l3dali.cli.inputs import find_inputs, is_pipe, read_file
from l3dali.cli.loop import run_jobs
from l3dali.cli.outputs import find_targets, is_stream, keeps, write_file
from l3dali.cli.summary import check_summary, conclude, print_summary, remarks_of
from l3dali.console import Failure, reason_of
from l3dali.datasets.convert.containers import is_shard_name
from l3dali.datasets.convert.conversion import convert_image
from l3dali.datasets.convert.engine import run_local
from l3dali.datasets.convert.images import Blob, Options
from l3dali.datasets.convert.manifest import DONE, FAILED, Row
from l3dali.datasets.convert.pool import convert_alone
from l3dali.datasets.convert.storage import open_folder
from l3dali.datasets.convert.work import batches, summarize
from l3dali.errors import UsageError
from l3dali.files import info
from l3dali.images.formats import WRITERS
from l3dali.images.transcoding import jpeg_suffix, suffix_beyond_png
from l3dali.signatures import suffix_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from l3dali.cli.parser import Commands
    from l3dali.datasets.convert.storage import Stored

_FILES = (parser.FILES, parser.OUTPUT, parser.JOBS, parser.SUMMARY)


def add_commands(commands: Commands) -> None:
    """Adds `l3 encode` and `l3 decode`."""
    parser.new_command(
        commands,
        "encode",
        _encode,
        "Encode image files. For folders and shards: l3 convert.",
        """
        l3 encode photo.png                        photo.l3 beside it
        l3 encode *.png -o l3/ --verify            each result compared
        l3 encode photo.png -o small.l3 --max-side 256
        find . -name '*.png' -print0 | l3 encode --files-from - -o l3/
        curl -s https://example.org/a.png | l3 encode - -o a.l3
        """,
        *_FILES,
        parser.CODING,
        """
        --verify   decode and compare before writing
        --labels   mark all images as label maps, with --palette index; --no-labels lets --max-side
                   shrink images that look like label maps
        """,
        parser.IMAGES,
        labels={"action": argparse.BooleanOptionalAction},
    )
    formats = ", ".join(suffix[1:] for suffix in WRITERS)
    parser.new_command(
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
        *_FILES,
        f"""
        --format FORMAT   output format: {formats}; default: from the suffix of OUT, else the
                          original JPEG file, png, nii.gz for volumes, or tif for
                          what PNG cannot hold
        """,
        *(parser.CHANNELS, parser.MAX_PIXELS),
        format={"type": parser.format_argument, "choices": formats.split(", ")},
    )


def _encode(options: argparse.Namespace) -> int:
    how = Options(
        coding=options.coding,
        effort=options.effort,
        labels=("*",) if options.labels else (),
        verify=options.verify,
        keep_text=options.preserve,
        refuse_labels=options.labels is None,
        on_error="fail",
        all_images=True,
        keep_suffix=False,
        **parser.image_options(options),
    )
    return _make_files(options, how, lambda _: ".l3")


def _decode(options: argparse.Namespace) -> int:
    named = _output_suffix(options)
    suffix, wants_pixels = named or ".png", bool(named or options.channels)
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
            return (found and (jpeg_suffix(found) or suffix_beyond_png(found))) or suffix
        return suffix

    return _make_files(options, how, suffix_for)


def _output_suffix(options: argparse.Namespace) -> str:
    """The suffix that the output or `--format` names, or ""."""
    asked = f".{options.format}" if options.format else ""
    named = "" if options.output is None else suffix_of(options.output).lower()
    if named not in WRITERS or options.output.is_dir():
        return asked
    if asked and asked != named:
        raise UsageError(f"--format {options.format} and {options.output} do not agree")
    return named


def _make_files(
    arguments: argparse.Namespace, options: Options, suffix_for: Callable[[Path], str]
) -> int:
    """Converts each input; `suffix_for` gives the suffix of its result. Returns the exit code."""
    check_summary(arguments.json_summary)
    goal = "" if options.to == "l3" else f" --to {options.to}"
    goal += " --labels '*'" if options.labels else ""
    files, failures = find_inputs(arguments, f"l3 convert {{}} {arguments.output or 'OUT'}{goal}")
    targets = find_targets(files, arguments, suffix_for)
    start = time.perf_counter()
    rows: list[Row] = []
    kept = 0
    in_folders: dict[Path, list[Stored]] = defaultdict(list)  # by the folder of their results
    names: dict[str, str] = {}
    here = open_folder(".")
    for path, target in targets.items():
        try:
            if is_shard_name(path.name):
                raise ValueError("a shard: use l3 convert (to decode: --to png) or l3 verify")
            if keeps(target, arguments):
                kept += 1
            elif is_pipe(path) or is_stream(target) or path.is_dir():  # a series
                rows.append(_convert_pipe(path, target, options, arguments.jobs))
            elif (stored := here.stat(str(path))) is None:
                raise FileNotFoundError("No such file or directory")
            else:
                is_beside = arguments.output in (None, target)
                folder = target.parent if is_beside else arguments.output
                in_folders[folder].append(stored)
                names[stored.name] = str(target.relative_to(folder))
        except (BrokenPipeError, UsageError):
            raise
        except (OSError, ValueError) as error:
            reason = reason_of(error).removesuffix(f": {path}")
            failures.append(Failure(path, reason, getattr(error, "strerror", None) or ""))
    jobs = [
        job
        for folder, some in in_folders.items()
        for job in batches(some, ".", str(folder), options, arguments.jobs, names)
    ]

    def add(new: list[Row]) -> None:
        rows.extend(new)
        for row in new if arguments.preserve else ():
            if row.result is not None:
                _preserve(Path(row.source), targets[Path(row.source)])

    def state() -> str:
        done = kept + sum(row.status == DONE for row in rows)
        advice = "; --skip-existing continues from there" if len(targets) > 1 else ""
        return f"{done} of {len(targets)} files are done{advice}"

    run_jobs(jobs, run_local, arguments.jobs, add, state, quiet=arguments.quiet)
    summary = summarize(rows, (), time.perf_counter() - start)
    summary.kept = kept
    failures += summary.failures
    if summary.converted and not arguments.quiet:
        print_summary(arguments, summary)
    grown = sum(row.result_bytes > row.source_bytes for row in rows)
    lines = [f"existing results kept: {kept}"] if kept else []
    lines += remarks_of(summary)
    if grown and options.to == "l3":
        lines.append(
            f"images that grew: {grown}; L3 is lossless, so lossy sources do: keep them where "
            "bytes count, or shrink them by --max-side N"
        )
    failures.sort(key=lambda failure: Path(failure.path))
    return conclude(arguments, failures, lines, {"files": len(targets)} | summary.fields())


def _convert_pipe(path: Path, target: Path, options: Options, threads: int) -> Row:
    """Converts a file of which source or result is a pipe, a device or standard output."""
    row = Row(str(path), "image", FAILED, options.identity, options.to)
    data = read_file(path)
    blob = Blob("series.dcm" if path.is_dir() else path.name, data, str(path))
    convert = convert_alone if options.to == "l3" else convert_image
    outcome = convert(blob, options, threads)
    assert outcome is not None
    row.add(blob, outcome, options)
    row.source_bytes, row.reason = len(data), outcome.failure
    if outcome.data is not None:
        write_file(target, outcome.data)
        row.status, row.result, row.result_bytes = DONE, str(target), len(outcome.data)
    return row


def _preserve(source: Path, target: Path) -> None:
    """Gives a result the permissions and times of its source."""
    status = source.stat()
    target.chmod(status.st_mode & 0o777)
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
