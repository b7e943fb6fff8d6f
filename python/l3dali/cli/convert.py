"""The command `l3 convert`: its arguments, and what it says."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from l3dali import codec
from l3dali.cli.arguments import add_jobs_option, add_report_options, local_cores
from l3dali.cli.batch import STDOUT
from l3dali.cli.files import write_file
from l3dali.cli.reading import add_max_pixels_option
from l3dali.cli.report import EXIT_FAILED
from l3dali.cli.work import check_summary
from l3dali.console import complain, megabytes, progress
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from l3dali.cli.arguments import Commands
    from l3dali.datasets.convert.job import Job
    from l3dali.datasets.convert.manifest import Manifest, Row
    from l3dali.datasets.convert.plan import Plan, Sources
    from l3dali.datasets.convert.report import Summary
    from l3dali.datasets.liquid.plan import Plan as LiquidPlan

    Engine = Callable[[Sequence[Job], int], Iterator[list[Row]]]

_SHOWN_FAILURES = 100
_SHOWN_GONE = 10
_SUMMARY = "Convert data sets: folders and shards of images, local or in buckets."


def add_command(commands: Commands) -> None:
    """Adds `l3 convert` to the commands of the parser `l3`."""
    parser = commands.add_parser("convert", help=_SUMMARY, description=_SUMMARY)
    parser.set_defaults(run=run)
    parser.add_argument(
        "sources",
        nargs="+",
        type=_url,
        metavar="SOURCE",
        help="folder, shard, or shards as 'a-{000..146}.tar'; a path or a URL (s3://...)",
    )
    parser.add_argument("dest", type=_url, metavar="DEST", help="folder for the results; or a URL")
    parser.add_argument(
        "--to", choices=["l3", "png"], default="l3", help="png turns L3 back; default: l3"
    )
    parser.add_argument(
        "--coding", choices=codec.CODINGS, help=f"of all images; default: {codec.DEFAULT_CODING}"
    )
    parser.add_argument(
        "--plan",
        metavar="FILE",
        help="of l3 plan: it chooses the format of each image, and some stay as they are",
    )
    parser.add_argument(
        "--allow-changes",
        action="store_true",
        help="follow the plan though the data set has changed since it was profiled",
    )
    parser.add_argument(
        "--remove-gone",
        action="store_true",
        help="remove results in DEST whose sources are not in SOURCE any more, if they are as an "
        "earlier run has written them",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done, and write nothing"
    )
    parser.add_argument(
        "--effort",
        type=int,
        choices=codec.EFFORTS,
        default=codec.DEFAULT_EFFORT,
        metavar="N",
        help="of rans, 1 (fast) to 9 (small); default: %(default)s",
    )
    parser.add_argument(
        "--labels",
        action="append",
        default=[],
        metavar="NAMES",
        help="images that are label maps, whose palettes keep their numbers: how their names or "
        "fields end (seg.png), or a pattern of whole names with folders ('gtFine/*')",
    )
    parser.add_argument(
        "--on-error",
        choices=["fail", "keep", "drop"],
        default="keep",
        help="a damaged image fails its shard, is kept as it is, or its sample is dropped; "
        "default: %(default)s",
    )
    add_max_pixels_option(parser)
    parser.add_argument(
        "--verify",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="decode each result and compare it with its source; default: yes",
    )
    parser.add_argument(
        "--grow", action="store_true", help="convert lossy sources (JPEG) though they grow"
    )
    add_jobs_option(parser)
    parser.set_defaults(jobs=None)  # what is not given: all cores of the machine, or the cluster
    parser.add_argument(
        "--engine",
        choices=["local", "ray"],
        default="local",
        help="this machine, or a Ray cluster; default: local",
    )
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="of the Ray cluster; default: RAY_ADDRESS, the one that runs here, or a new one",
    )
    add_report_options(parser)


def _url(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("an empty name")
    return text


def run(arguments: argparse.Namespace) -> int:
    """Converts, prints a summary and writes the report; gives the exit code."""
    from l3dali.datasets.convert.images import Options
    from l3dali.datasets.convert.manifest import Manifest
    from l3dali.datasets.convert.plan import find_sources, make_plan
    from l3dali.datasets.convert.report import summarize
    from l3dali.datasets.convert.storage import open_folder
    from l3dali.datasets.liquid.plan import read_plan

    if arguments.plan is not None and (arguments.coding is not None or arguments.to != "l3"):
        raise UsageError("--plan chooses the formats; --coding and --to png do not go with it")
    if arguments.allow_changes and arguments.plan is None:
        raise UsageError("--allow-changes is for --plan")
    plan = None if arguments.plan is None else read_plan(arguments.plan)
    options = Options(
        to=arguments.to,
        coding=arguments.coding or codec.DEFAULT_CODING,
        effort=arguments.effort,
        labels=tuple(arguments.labels or (plan.labels if plan is not None else ())),
        on_error=arguments.on_error,
        max_pixels=arguments.max_pixels,
        verify=arguments.verify,
        plan=plan,
    )
    if arguments.address is not None and arguments.engine != "ray":
        raise UsageError("--address is for --engine ray")
    if arguments.json_summary is not None:
        check_summary(arguments.json_summary)
    sources = find_sources(arguments.sources)
    if plan is not None and not arguments.allow_changes:
        _refuse_changes(plan, sources, arguments.plan)
    if arguments.remove_gone:
        _refuse_unknown_sources(sources)
    if arguments.dry_run:
        _check_writable(arguments.dest)
        with Manifest(open_folder(arguments.dest), read_only=True) as manifest:
            work = make_plan(sources, arguments.dest, options, manifest, 1)
            _tell_of_gone(work.gone, would_remove=arguments.remove_gone)
            return _preview(work)
    with (
        _open_engine(arguments) as (engine, workers),
        Manifest(open_folder(arguments.dest)) as manifest,
    ):
        signal.signal(signal.SIGTERM, _interrupt)  # after Ray, which sets its own
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupt)
        work = make_plan(sources, arguments.dest, options, manifest, workers)
        if work.jobs and options.to == "l3" and plan is None and not arguments.grow:
            _refuse_growth(work.jobs, arguments.jobs or local_cores())
        manifest.begin()
        manifest.add(work.renewed)
        gone = work.gone
        if arguments.remove_gone and gone:
            gone = manifest.remove(gone)
            complain(f"l3: results of sources that are gone: {len(work.gone) - len(gone)} removed")
        _tell_of_gone(gone)
        start = time.perf_counter()
        new = _convert(work.jobs, engine, workers, manifest, quiet=arguments.quiet)
        summary = summarize(new, work.kept, time.perf_counter() - start)
        summary.failures = work.failures + summary.failures
        return _finish(summary, work, arguments)


@contextmanager
def _open_engine(arguments: argparse.Namespace) -> Iterator[tuple[Engine, int]]:
    """The engine, and how many jobs it has room for at a time."""
    if arguments.engine == "local":
        from l3dali.datasets.convert.engine import run_local

        yield run_local, arguments.jobs or local_cores()
        return
    from l3dali.datasets.convert import ray_engine

    cores = ray_engine.connect(arguments.address, arguments.jobs or local_cores())
    try:
        yield ray_engine.run_on_ray, arguments.jobs or max(1, cores)
    finally:
        ray_engine.disconnect()


def _interrupt(number: int, frame: FrameType | None) -> None:
    for each in (signal.SIGINT, signal.SIGTERM):  # A second one would tear the end of the first.
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt(number)


def _refuse_changes(plan: LiquidPlan, sources: Sources, name: str) -> None:
    from l3dali.datasets.liquid.dataset import fingerprint

    if fingerprint(sources) != plan.fingerprint:
        raise UsageError(
            f"{name} is the plan of another data set, or files have come, gone or changed since "
            "it was profiled: profile and plan again, or --allow-changes follows it all the same"
        )


def _refuse_unknown_sources(sources: Sources) -> None:
    """For `--remove-gone`: what is not named would seem to be gone."""
    if not sources.are_whole:
        raise UsageError("--remove-gone needs whole folders as SOURCE, not single files")
    for place, reason in sources.failures[:1]:
        raise UsageError(f"{place}: {reason}; --remove-gone needs to know all sources")


def _check_writable(dest: str) -> None:
    from l3dali.datasets.convert.storage import open_folder

    try:
        open_folder(dest).check_writable()
    except OSError as error:
        raise UsageError(f"{dest} cannot be written: {error.strerror or error}") from None


def _tell_of_gone(gone: Sequence[Row], *, would_remove: bool = False) -> None:
    """Says which results have no source among those named."""
    if not gone:
        return
    what = "would be removed" if would_remove else "--remove-gone removes those not changed since"
    complain(f"l3: results whose sources are gone: {len(gone)}; {what}")
    for row in gone[:_SHOWN_GONE]:
        complain(f"{row.result} (of {row.source})")
    if len(gone) > _SHOWN_GONE:
        complain(f"... and {len(gone) - _SHOWN_GONE} more")


def _preview(plan: Plan) -> int:
    """Says what would be done; gives the exit code."""
    from l3dali.datasets.convert.preview import preview
    from l3dali.datasets.convert.report import stored_text

    done = converted = size = 0
    stored: Counter[str] = Counter()
    failures: list[str] = []
    for found in progress(
        preview(plan.jobs, plan.foreseen), sum(len(job.files) for job in plan.jobs)
    ):
        if found.failure:
            failures.append(found.failure)
        elif found.is_done:
            done += 1
        else:
            converted += 1
            size += found.source_bytes
            stored += found.stored
    print(
        f"would convert {converted} shards and files of {megabytes(size)}; "
        f"{len(plan.kept) + done} are done"
    )
    if stored:
        print(f"their images by format: {stored_text(stored)}")
    for place, reason in plan.failures:
        failures.append(f"{place}: {reason}")
    for failure in failures[:_SHOWN_FAILURES]:
        complain(failure)
    return EXIT_FAILED if failures else 0


def _refuse_growth(jobs: Sequence[Job], threads: int) -> None:
    from l3dali.datasets.convert.advice import find_growth

    growth = find_growth(jobs, threads)
    if growth is not None:
        raise UsageError(str(growth))


def _convert(
    jobs: Sequence[Job], engine: Engine, workers: int, manifest: Manifest, *, quiet: bool
) -> list[Row]:
    from l3dali.datasets.convert.engine import is_disk_full

    new: list[Row] = []
    with closing(engine(jobs, workers)) as results:  # type: ignore[type-var]
        for rows in progress(results, len(jobs), quiet=quiet):
            manifest.add(rows)
            new += rows
            if is_disk_full(rows):
                complain("l3: no space left; run again to go on")
                break
    return new


def _finish(summary: Summary, plan: Plan, arguments: argparse.Namespace) -> int:
    from l3dali.datasets.convert.report import make_page, to_json
    from l3dali.datasets.convert.storage import REPORT_NAME, open_folder

    code = EXIT_FAILED if summary.failures else 0
    if not arguments.quiet:
        _print_report(summary, plan, arguments)
    if plan.jobs:
        page = make_page(summary, f"l3 convert to {arguments.dest}", arguments.to)
        with suppress(OSError), open_folder(arguments.dest).publish(REPORT_NAME) as file:
            file.write(page.encode("utf-8", "backslashreplace"))
    if summary.failures:
        _print_failures(summary)
    if arguments.json_summary is not None:
        text = json.dumps(to_json(summary, plan.links, code), indent=2)
        write_file(arguments.json_summary, f"{text}\n".encode())
    return code


def _print_report(summary: Summary, plan: Plan, arguments: argparse.Namespace) -> None:
    from l3dali.datasets.convert.report import print_summary

    file = sys.stderr if arguments.json_summary == STDOUT else sys.stdout
    if plan.jobs:
        print_summary(summary, file)
    else:
        print(f"nothing to do: all {summary.kept} shards and files are done", file=file)
    if summary.all_formats.expanded:
        complain(
            f"l3: palette images that became colours: {summary.all_formats.expanded}; "
            "--labels NAMES keeps the numbers of their entries"
        )
    if plan.links:
        complain(f"l3: links to folders not followed: {plan.links}")


def _print_failures(summary: Summary) -> None:
    complain(f"l3: {len(summary.failures)} failed")
    for place, reason in summary.failures[:_SHOWN_FAILURES]:
        complain(f"{place}: {reason}")
    if len(summary.failures) > _SHOWN_FAILURES:
        complain(f"... and {len(summary.failures) - _SHOWN_FAILURES} more, see the manifest")
