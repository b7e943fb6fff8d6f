"""The command `l3 convert`."""

from __future__ import annotations

import argparse
import glob
import os
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali.cli import parser
from l3dali.cli.inputs import NOT_L3_FILES
from l3dali.cli.loop import interrupt_once, run_jobs
from l3dali.cli.summary import (
    EXIT_FAILED,
    check_summary,
    conclude,
    print_summary,
    remarks_of,
)
from l3dali.console import (
    Failure,
    complain,
    counted,
    megabytes,
    reason_of,
    say,
    tell_failures,
)
from l3dali.datasets.convert.containers import FILES, is_shard_name
from l3dali.datasets.convert.engine import (
    connect,
    disconnect,
    run_local,
    run_on_ray,
    tell_growth,
)
from l3dali.datasets.convert.images import ON_ERROR, TARGETS, Options
from l3dali.datasets.convert.manifest import FAILED, Manifest
from l3dali.datasets.convert.sources import find_sources
from l3dali.datasets.convert.storage import MANIFEST_NAME, is_remote, open_folder
from l3dali.datasets.convert.work import (
    READ_SHARDS,
    count_text,
    find_work,
    summarize,
    unused_labels,
)
from l3dali.errors import L3Error, UsageError
from l3dali.signatures import READ_SUFFIXES, unread_images
from l3dali.volumes import check_same_grid, names_of_labels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from l3dali.cli.loop import Scheduler
    from l3dali.cli.parser import Commands
    from l3dali.datasets.convert.manifest import Row
    from l3dali.datasets.convert.sources import Sources
    from l3dali.datasets.convert.work import Summary, Work

_GONE = "results of other sources, or of sources that are gone"
_FEW = 10  # names that are printed


def add_command(commands: Commands) -> None:
    """Adds `l3 convert` to the commands of the parser `l3`."""
    formats = ", ".join(TARGETS)
    parser.new_command(
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
        parser.SOURCES,
        f"""
        dest DEST     output folder or URL
        --to FORMAT   output format: {formats} (the original format of each image); default: l3
        """,
        *(parser.CHANNELS, parser.CODING),
        """
        --plan FILE      result of l3 plan, which chooses the format of each image
        --labels NAMES   label maps: the end of their names or fields (seg.png), or a pattern of
                         whole names ('gtFine/*')
        --on-error       if an image cannot be converted: fail its shard, keep it unchanged, or drop
                         its sample; default: %(default)s
        """,
        parser.IMAGES,
        """
        --remove-gone   remove unchanged results that no SOURCE makes: of sources that are gone,
                        and of folders that this command does not name
        --dry-run       print what would be done, and write nothing
        --verify        decode each result and compare it with its source; default: yes
        --grow          convert lossy images even if the result is larger
        """,
        parser.JOBS,
        "--engine   this machine, or the Ray cluster of RAY_ADDRESS; default: local",
        parser.SUMMARY,
        dest={"type": parser.name_argument},
        to={"type": parser.format_argument, "choices": TARGETS, "default": "l3"},
        plan={"type": str},
        labels=parser.LABELS,
        on_error={"choices": ON_ERROR, "default": "keep"},
        verify={"action": argparse.BooleanOptionalAction, "default": True},
        engine={"choices": ["local", "ray"], "default": "local"},
        jobs={"default": None},  # all cores of the machine, or of the cluster
    )


def _options_of(arguments: argparse.Namespace) -> Options:
    """How to convert; UsageError for arguments that exclude each other."""
    if arguments.json_summary is not None and arguments.dry_run:
        raise UsageError("--json-summary cannot be combined with --dry-run")
    if arguments.plan is not None and (arguments.coding is not None or arguments.to != "l3"):
        raise UsageError("--plan chooses the formats; omit --coding and --to")
    if arguments.to != "l3" and arguments.coding is not None:
        raise UsageError("--coding cannot be combined with --to: it only applies to L3 output")
    if arguments.to == "l3" and arguments.channels is not None:
        raise UsageError("--channels needs --to: it only applies to L3 files that are decoded")
    keeps_pixels = "--plan" if arguments.plan is not None else "--to" * (arguments.to != "l3")
    if keeps_pixels and (arguments.orient or arguments.max_side is not None):
        name = "--orient" if arguments.orient else "--max-side"
        raise UsageError(f"{name} cannot be combined with {keeps_pixels}")
    plan = None
    if arguments.plan is not None:
        from l3dali.datasets.liquid.plan import read_plan  # imports its libraries

        plan = read_plan(arguments.plan)
    return Options(
        to=arguments.to,
        coding=arguments.coding,
        effort=arguments.effort,
        labels=tuple(arguments.labels or (plan.labels if plan is not None else ())),
        on_error=arguments.on_error,
        verify=arguments.verify,
        plan=plan,
        channels=arguments.channels,
        **parser.image_options(arguments),
    )


def _run(arguments: argparse.Namespace) -> int:
    """Converts, and prints or writes a summary; returns the exit code."""
    options = _options_of(arguments)
    local = Path(arguments.dest.removeprefix("file://"))
    if not is_remote(arguments.dest) and os.path.lexists(local) and not local.is_dir():
        raise UsageError(f"{arguments.dest} is not a folder; DEST must be one")
    check_summary(arguments.json_summary)
    with Manifest(open_folder(arguments.dest), read_only=arguments.dry_run) as manifest:
        sources = _find_sources(arguments)
        if arguments.dry_run:
            _, work, growth = _find_work(sources, arguments, options, manifest, 1)
            _print_gone(work.gone, "would be removed" if arguments.remove_gone else "")
            return _preview(work, growth)
        with _open_scheduler(arguments) as (scheduler, workers):
            options, work, growth = _find_work(sources, arguments, options, manifest, workers)
            if growth:
                raise UsageError(growth)
            say(work.changed_options(options))
            if work.jobs:
                manifest.begin()
            gone = work.gone
            if arguments.remove_gone and gone:
                gone = manifest.remove(gone)
                complain(f"l3: {_GONE}: {len(work.gone) - len(gone)} removed")
                work.failures += [Failure(row.source, row.reason) for row in gone if row.reason]
            _print_gone(gone)
            start = time.perf_counter()
            new: list[Row] = []

            def add(rows: list[Row]) -> None:
                manifest.add(rows)
                new.extend(rows)

            def state() -> str:
                done = len(work.kept) + sum(row.status != FAILED for row in new)
                count = len(work.kept) + sum(len(job.files) for job in work.jobs)
                return f"{done} of {count} shards and files are done; run again to continue"

            run_jobs(work.jobs, scheduler, workers, add, state, quiet=arguments.quiet)
            try:
                manifest.save()
            except Exception as error:  # Storage raises anything. It is tried again.
                work.failures.append(Failure(MANIFEST_NAME, reason_of(error)))
            summary = summarize(new, work.kept, time.perf_counter() - start)
            summary.failures = work.failures + summary.failures
            summary.failures += [
                Failure(f"--labels {name!r}", "matches no image")
                for name in arguments.labels  # The data set of a plan may have had others.
                if not summary.labels[name]
            ]
            summary.failures += _misfits([*work.kept, *new], arguments.dest, options)
            if not arguments.quiet:
                print_summary(arguments, summary, has_work=bool(work.jobs))
            lines = _remarks(summary, work, options)
            fields = summary.fields() | {"links_not_followed": work.links}
            return conclude(arguments, summary.failures, lines, fields)


def _misfits(rows: list[Row], dest: str, options: Options) -> list[Failure]:
    """NIfTI label maps in a folder `labels...` that do not fit their images in `images...`."""
    failures = []
    root = dest.removeprefix("file://")
    for row in [] if is_remote(dest) else rows:
        is_nifti = row.source.endswith((".nii", ".nii.gz"))
        if row.result is None or not is_nifti or not options.labels_of(row.source):
            continue
        labels = Path(root, row.result)
        folder = Path(root, str(Path(row.result).parent).replace("labels", "images"))
        for image in folder.glob(f"{glob.escape(labels.stem)}*.l3"):
            if labels.name not in names_of_labels(image):
                continue
            try:
                check_same_grid(image, labels)
            except (L3Error, OSError, ValueError) as error:
                reason = f"{reason_of(error)}; both are stored: fix them, or leave them out"
                failures.append(Failure(row.source, reason))
    return failures


def _find_sources(arguments: argparse.Namespace) -> Sources:
    sources = find_sources(arguments.sources)
    if arguments.remove_gone:  # Sources that are not found would seem to be gone.
        if not sources.are_whole:
            raise UsageError("--remove-gone needs whole folders as SOURCE, not single files")
        for failure in sources.failures[:1]:
            reason = f"{failure.path}: {failure.reason}"
            raise UsageError(f"{reason}; --remove-gone needs all sources")
    return sources


@contextmanager
def _open_scheduler(arguments: argparse.Namespace) -> Iterator[tuple[Scheduler, int]]:
    """What maps the jobs, and how many it runs at a time."""
    threads = arguments.jobs or parser.local_cores()
    if arguments.engine == "local":
        yield run_local, threads
        return
    cores = connect(threads)
    interrupt_once()  # as Ray sets handlers of its own
    try:
        yield run_on_ray, arguments.jobs or max(1, cores)
    finally:
        disconnect()


def _find_work(
    sources: Sources,
    arguments: argparse.Namespace,
    options: Options,
    manifest: Manifest,
    workers: int,
) -> tuple[Options, Work, str]:
    """The options and the work of a run, and why it would stop: lossy sources would grow."""
    work = find_work(sources, arguments.dest, options, manifest, workers)
    _check_names(work, options)
    is_new = work.jobs and not work.kept  # Growth was checked before an earlier run began.
    if not is_new or options.to != "l3" or options.plan is not None:
        return options, work, ""
    cores = arguments.jobs or parser.local_cores()
    growth = "" if arguments.grow else tell_growth(work.jobs, cores)
    if options.coding in (None, "jpeg") and (growth or manifest.rows):
        # JPEG files that jpeg does not support stay if an earlier run kept them, or if the set
        # would grow.
        keeping = replace(options, keep_refused=True)
        other = find_work(sources, arguments.dest, keeping, manifest, workers)
        if growth or other.kept:
            return keeping, other, growth and tell_growth(other.jobs, cores)
    return options, work, growth


def _print_gone(gone: Sequence[Row], what: str = "") -> None:
    """Prints which results have no source, and what happens to them."""
    if gone:
        what = what or "--remove-gone removes the unchanged ones"
        complain(f"l3: {_GONE}: {len(gone)}; {what}:")
        names = ", ".join(f"{row.result} (of {row.source})" for row in gone[:_FEW])
        complain(f"{names}{', ...' * (len(gone) > _FEW)}")


def _preview(work: Work, growth: str) -> int:
    """Prints the work of a run, and why it would stop; returns the exit code."""
    files = sum(len(job.files) for job in work.jobs)
    shards = sum(job.kind != FILES for job in work.jobs)
    size = megabytes(sum(job.bytes for job in work.jobs))
    print(
        f"would convert {count_text(shards, files - shards)} of {size}; {len(work.kept)} are done"
    )
    names = Counter(Path(name).suffix.lower() for name in work.names)
    say(unread_images(names, "that would be copied unchanged"))
    tell_failures(work.failures)
    say([f"the run would stop: {growth}"] if growth else [])
    return EXIT_FAILED if work.failures or growth else 0


def _remarks(summary: Summary, work: Work, options: Options) -> list[str]:
    """Further lines for people."""
    to_l3 = options.to == "l3"
    counts = {
        "shards without an index for DALI, since member names have blanks": summary.unindexed,
        "images written as PNG or TIFF, since their original format is lossy or cannot hold "
        "them": summary.total.substituted,
        "links to folders not followed": work.links,
        "links to files followed": work.linked,
    }
    lines = [f"{what}: {count}" for what, count in counts.items() if count]
    lines += remarks_of(summary)
    image = "image" if to_l3 else "L3 file"
    if not summary.stored and not summary.failures:
        read = f"; supported: {' '.join(sorted(READ_SUFFIXES))}, and in {READ_SHARDS}" * to_l3
        lines.append(f"no {image} was found in {summary.done_text}{read}")
    elif names := summary.imageless:
        dots = ", ..." * (len(names) > _FEW)
        named = f"{len(names)} ({', '.join(names[:_FEW])}{dots})"
        lines.append(f"shards in which no {image} was found: {named}")
    if not to_l3:
        return lines
    lines += unread_images(summary.others, "copied unchanged")
    if count := summary.others[".l3"]:
        lines.append(f"L3 files copied unchanged: {count}; for another coding {NOT_L3_FILES}")
    return lines


def _check_names(work: Work, options: Options) -> None:
    """Raises UsageError if there is no image, or one of --labels matches no name.

    With shards, only the run shows what matches.
    """
    suffixes = {Path(name).suffix.lower() for name in work.names}
    has_shards = any(map(is_shard_name, work.names))
    if suffixes == {".l3"} and options.to == "l3" and options.plan is None:
        raise UsageError(f"all sources are L3 files already; for another coding {NOT_L3_FILES}")
    if options.to != "l3" and work.names and not (has_shards or suffixes & {"", ".l3"}):
        raise UsageError(
            f"no L3 file among {counted(len(work.names), 'file')}; --to {options.to} decodes L3 "
            "files: name the folder that has them as SOURCE"
        )
    if options.labels and work.names and not has_shards:
        for remark in unused_labels(options, work.names, are_all=True):
            if options.plan is None:
                raise UsageError(remark)
            say([remark])  # The data set of the plan may have had such images.
