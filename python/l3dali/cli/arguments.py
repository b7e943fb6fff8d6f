"""Arguments that commands share, and the parser they are added to."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from l3dali import codec
from l3dali.batch import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


class Parser(argparse.ArgumentParser):
    """A parser whose errors are those of `main`."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def new_command(
    commands: Commands, name: str, run: Callable[[argparse.Namespace], int], summary: str
) -> Parser:
    """The parser of a command that takes files and folders; `run` gives its exit code."""
    command = commands.add_parser(name, help=summary, description=summary)
    command.add_argument(
        "paths", nargs="+", type=path_argument, metavar="PATH", help="file or folder"
    )
    command.set_defaults(run=run)
    return command


def add_output_options(parser: Parser) -> None:
    """Adds the options of commands that write files."""
    parser.add_argument(
        "-o",
        "--output",
        type=path_argument,
        metavar="OUT",
        help="folder for the results, or the result itself if its suffix says so and PATH is one "
        "file; default: beside each PATH",
    )
    existing = parser.add_mutually_exclusive_group()
    existing.add_argument("--overwrite", action="store_true", help="replace existing results")
    existing.add_argument(
        "--skip-existing", action="store_true", help="keep existing results; default: they fail"
    )
    add_jobs_option(parser)


def add_orient_option(parser: Parser) -> None:
    """Adds `--orient`."""
    parser.add_argument("--orient", action="store_true", help="turn images as their EXIF asks")


def add_jobs_option(parser: Parser) -> None:
    """Adds `--jobs`."""
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "-j", "--jobs", type=_jobs, default=cores, help=f"threads; default here: {cores}"
    )


def path_argument(text: str) -> Path:
    """A path; not an empty one."""
    if not text:  # Path("") is the current folder.
        raise argparse.ArgumentTypeError("an empty name")
    return Path(text)


def positive_number(text: str) -> int:
    """A number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def _jobs(text: str) -> int:
    jobs = positive_number(text)
    if jobs not in codec.THREADS:
        raise argparse.ArgumentTypeError(f"{jobs} is more than {codec.THREADS[-1]}")
    return jobs
