"""What commands share: finding the files, planning their results, working on them."""

from __future__ import annotations

import codecs
import os
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from l3dali.cli.batch import (
    STDIN,
    STDOUT,
    OutputError,
    Stop,
    failure_of,
    find_files,
    find_listed,
    is_stream,
    plan_targets,
    run_all,
)
from l3dali.cli.files import check_stdin, check_stream, read_stdin
from l3dali.cli.report import Done, Report, refuse_others
from l3dali.console import complain, progress, say
from l3dali.errors import UsageError
from l3dali.images.reading import IMAGE_SUFFIXES, unread_images
from l3dali.images.writing import WRITERS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from l3dali import codec
    from l3dali.cli.batch import Found

Item = TypeVar("Item")
Named = TypeVar("Named", Path, str)

L3_SUFFIX = ".l3"
NOT_L3_FILES = (
    "take the originals, or what l3 convert --to png makes of these; docs/guide.md has a way from "
    "Python (Encoded anew)"
)
EARLY_FILES = 100  # after so many of a longer run, say what will be said at its end

_KNOWN_SUFFIXES = IMAGE_SUFFIXES | WRITERS.keys() | {L3_SUFFIX}


def find_inputs(options: argparse.Namespace, suffixes: Collection[str]) -> Found:
    """The files that PATHs or a list name.

    Raises:
        UsageError: there are none, or the JSON summary would take the place of something else.
    """
    if options.json_summary is not None:
        check_summary(options.json_summary)
    if options.files_from is not None:
        found = _find_listed(options, suffixes)
        where = f"in {options.files_from}"
    else:
        if options.null:
            raise UsageError("--null goes with --files-from")
        if not options.paths:
            raise UsageError("no PATH; '-' is standard input")
        if STDIN in options.paths:
            check_stdin()
        found = find_files(options.paths, suffixes)
        where = "in the folders named"
    if not found.files and not found.failures:
        advice = unread_images(found.others, "there")
        if suffixes == {L3_SUFFIX}:
            advice = ["l3 encode makes them of images"]
        elif found.others[L3_SUFFIX]:
            advice.append(
                f"this takes images, not L3 files, of which {found.others[L3_SUFFIX]} are there; "
                + NOT_L3_FILES
            )
        wanted = f"no {' '.join(sorted(suffixes))} files {where}"
        raise UsageError("; ".join([wanted, *advice]))
    return found


def is_image_name(name: str) -> bool:
    """Whether a file of this name would be an image."""
    return Path(name).suffix.lower() in _KNOWN_SUFFIXES


def check_summary(path: Path) -> None:
    """Raises UsageError if `path` is, or is going to be, something else than a JSON summary."""
    if path.suffix.lower() in _KNOWN_SUFFIXES:
        raise UsageError(f"--json-summary {path}: this is the name of an image")
    refuse_others(path)


def _find_listed(options: argparse.Namespace, suffixes: Collection[str]) -> Found:
    base = options.paths[0] if options.paths else Path()
    if len(options.paths) > 1 or isinstance(base, str) or not base.is_dir():
        raise UsageError("--files-from goes with one PATH, the folder where its names start")
    source: Path = options.files_from
    names = read_stdin() if source == STDIN else source.read_bytes()
    if options.null:
        listed = names.split(b"\0")
    elif b"\0" in names:
        raise UsageError(
            f"--files-from {source}: a list with NUL bytes: of UTF-16, or -0 is missing"
        )
    else:  # As Windows has them, too. A name that ends in a carriage return needs `--null`.
        lines = names.removeprefix(codecs.BOM_UTF8).split(b"\n")
        listed = [line.removesuffix(b"\r") for line in lines]
    return find_listed([os.fsdecode(name) for name in listed if name], base, suffixes)


def plan_outputs(found: Found, options: argparse.Namespace, suffix: str) -> dict[Path, Path]:
    """The target of each file.

    Sets `options.output` to standard output if it is None and the source is a pipe.

    Raises:
        UsageError: `options.output` cannot take these results.
    """
    if options.output is None and found.pipes:
        options.output = STDOUT
    output: Path | None = options.output
    if output is not None and is_stream(output):
        check_stream(output)
        if STDOUT == output == options.json_summary:
            raise UsageError("standard output cannot take both the result and the JSON summary")
    elif output is not None:
        other = output.suffix.lower() in _KNOWN_SUFFIXES - {suffix}
        if (
            other
            and not output.exists()
            and suffix in WRITERS
            and output.suffix in (".jpg", ".jpeg")
        ):
            raise UsageError(f"{output}: JPEG loses data and is not written; see --format")
        if other and not output.exists():
            raise UsageError(
                f"results are {suffix} files, and {output} ends in {output.suffix}; "
                "make it first if it is a folder"
            )
    return plan_targets(found, output, suffix)


def threads_per_file(jobs: int, files: int) -> int:
    """The threads that the work on each of so many files may use."""
    return max(1, jobs // max(1, files))


def run(
    paths: Sequence[Named],
    work: Callable[[Named], Done | None],
    options: argparse.Namespace,
    remark: Callable[[Report], list[str]] | None = None,
) -> Report:
    """Works on all files, until all are done, nothing can be written, or Ctrl-C.

    Args:
        paths: the files, by their paths or other names.
        work: done in `options.jobs` threads; returns None to say that the result existed.
        options: those of the command.
        remark: gives lines to be said when `EARLY_FILES` of a longer run are done.
    """
    from l3dali.datasets.convert.work import is_shard_name

    report = Report(total=len(paths))
    start = time.perf_counter()
    with Stop() as stop, closing(run_all(paths, work, options.jobs, stop)) as results:
        heard = _say_when_stopping(results, stop)
        for path, result in progress(heard, len(paths), quiet=options.quiet):
            if isinstance(result, BrokenPipeError):
                raise result
            if isinstance(result, OutputError):
                report.ended_by = failure_of(path, result).reason
                stop.requests = max(1, stop.requests)
            writes = "skip_existing" in options
            if writes and isinstance(result, ValueError) and is_shard_name(str(path)):
                result = ValueError("a shard: l3 convert reads these, --to png those of L3 files")
            if isinstance(result, Exception):
                report.failures.append(failure_of(path, result))
            elif result is None:
                report.kept += 1
            else:
                report.done.append(result)
                if remark and len(report.done) == EARLY_FILES < len(paths) and not options.quiet:
                    said = remark(report)
                    say([f"after {EARLY_FILES} of {len(paths)} files:"] * bool(said) + said)
    report.signal_number = stop.signal_number
    report.abandoned = stop.requests > 1
    report.seconds = time.perf_counter() - start
    return report


def _say_when_stopping(items: Iterable[Item], stop: Stop) -> Iterator[Item]:
    said = False
    for item in items:
        if stop.signal_number and not said:
            said = True
            complain("l3: finishing the files in hand, Ctrl-C again to stop")
        yield item


def compare(decoded: codec.Image, source: codec.Image) -> None:
    """Raises ValueError unless the two images are the same."""
    if (decoded.dtype, decoded.shape) != (source.dtype, source.shape):
        raise ValueError(f"the source is {_kind(source)}; the L3 image {_kind(decoded)}")
    if not np.array_equal(decoded, source):
        raise ValueError("the pixels differ from the source's")


def _kind(image: codec.Image) -> str:
    height, width, channels = (*image.shape, 1)[:3]
    signed = " signed" if image.dtype.kind == "i" else ""
    return f"{width} x {height}, channels: {channels}, {8 * image.dtype.itemsize} bits{signed}"
