"""Files and pipes, for `l3 encode` and `l3 decode`: jobs that have no manifest."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali.cli.inputs import find_inputs, read_file
from l3dali.cli.loop import run_jobs
from l3dali.cli.outputs import find_targets, is_stream, keeps, write_file
from l3dali.cli.summary import check_summary, conclude, print_summary, remarks_of
from l3dali.console import Failure, reason_of
from l3dali.datasets.convert.containers import is_shard_name
from l3dali.datasets.convert.conversion import convert_image
from l3dali.datasets.convert.engine import run_local
from l3dali.datasets.convert.images import Blob
from l3dali.datasets.convert.manifest import DONE, FAILED, Row
from l3dali.datasets.convert.pool import convert_alone
from l3dali.datasets.convert.storage import open_folder
from l3dali.datasets.convert.work import batches, summarize
from l3dali.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Collection

    from l3dali.datasets.convert.images import Options
    from l3dali.datasets.convert.storage import Stored


def make_files(
    arguments: argparse.Namespace, options: Options, suffix_of: Callable[[Path], str]
) -> int:
    """Converts each input; `suffix_of` gives the suffix of its result. Returns the exit code."""
    check_summary(arguments.json_summary)
    goal = "" if options.to == "l3" else f" --to {options.to}"
    found = find_inputs(arguments, f"l3 convert {{}} {arguments.output or 'OUT'}{goal}")
    targets = find_targets(found, arguments, suffix_of)
    start = time.perf_counter()
    rows: list[Row] = []
    failures, kept = found.failures, 0
    files: dict[Path, list[Stored]] = defaultdict(list)  # by the folder of their results
    names: dict[str, str] = {}
    here = open_folder(".")
    for path, target in targets.items():
        try:
            if is_shard_name(path.name):
                raise ValueError("a shard: use l3 convert (to decode: --to png) or l3 verify")
            if keeps(target, arguments):
                kept += 1
            elif path in found.pipes or is_stream(target) or path.is_dir():  # a series
                rows.append(_convert_pipe(path, target, options, arguments.jobs, found.pipes))
            elif (stored := here.stat(str(path))) is None:
                raise FileNotFoundError("No such file or directory")
            else:
                is_beside = arguments.output in (None, target)
                folder = target.parent if is_beside else arguments.output
                files[folder].append(stored)
                names[stored.name] = str(target.relative_to(folder))
        except (BrokenPipeError, UsageError):
            raise
        except (OSError, ValueError) as error:
            reason = reason_of(error).removesuffix(f": {path}")
            failures.append(Failure(path, reason, getattr(error, "strerror", None) or ""))
    jobs = [
        job
        for folder, some in files.items()
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


def _convert_pipe(
    path: Path, target: Path, options: Options, threads: int, pipes: Collection[Path]
) -> Row:
    """Converts a file of which source or result is a pipe, a device or standard output."""
    row = Row(str(path), "image", FAILED, options.identity, options.to)
    data = read_file(path, pipes)
    blob = Blob(path.name, data, str(path))
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
