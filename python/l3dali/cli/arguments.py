"""Arguments that commands share, and the parser they are added to."""

from __future__ import annotations

import argparse
import difflib
import math
import os
import re
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from l3dali.arguments import THREADS
from l3dali.cli.inputs import STDIN
from l3dali.cli.outputs import STDOUT
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


_EXIT_CODES = """exit codes:
  0    all went well
  2    a file failed, or the command is wrong
  130  interrupted by Ctrl-C (143: by SIGTERM); whole results stay
  141  the reader of the output has gone"""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are UsageErrors, which suggest the nearest option."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        # An abbreviation may be meant for another option, as `--label`.
        super().__init__(*arguments, **(options | {"allow_abbrev": False}))

    def error(self, message: str) -> NoReturn:
        _, _, unknown = message.partition("unrecognized arguments: ")
        options = [each.partition("=")[0] for each in unknown.split() if each[:1] == "-"]
        close = difflib.get_close_matches("".join(options[:1]), self._option_string_actions, n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(f"{message}{meant} (see {self.prog} --help)")

    def add_argument(self, *arguments: Any, **options: Any) -> argparse.Action:
        action = super().add_argument(*arguments, **options)
        if action.type in (path_argument, path_or_url_argument, output_argument, url_argument):
            action.complete = _COMPLETE_FILES  # type: ignore[attr-defined]
        return action

    def parse_mixed(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parses paths before and behind options."""
        for name in (each.partition("=")[0] for each in arguments if each[:2] == "--" != each):
            if name not in self._option_string_actions and "--" not in arguments:
                self.error(f"unrecognized arguments: {name}")
        with suppress(UsageError):  # Only this way, names with a dash may follow `--` alone.
            found, unknown = self.parse_known_args(arguments)
            if not unknown:
                return found
        return self.parse_intermixed_args(arguments)


# What shtab's FILE is: how the shells complete the name of a file.
_COMPLETE_FILES = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}


def new_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
    examples: str,
) -> Parser:
    """The parser of a command; `run` returns its exit code."""
    shown = textwrap.indent(textwrap.dedent(examples).strip(), "  ")
    command = commands.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=f"examples:\n{shown}\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    return command


def new_file_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
    examples: str,
    *,
    sets: bool = False,
) -> Parser:
    """The parser of a command that takes files and folders; `run` returns its exit code.

    With `sets` it takes shards and URLs, too: a URL stays a string.
    """
    command = new_command(commands, name, run, summary, examples)
    command.add_argument(
        "paths",
        nargs="*",
        type=path_or_url_argument if sets else path_argument,
        metavar="PATH",
        help="file, shard, folder or URL; - is standard input"
        if sets
        else "file or folder; - is standard input",
    )
    command.add_argument(
        "--files-from",
        type=path_argument,
        metavar="LIST",
        help="file with the names of input files, one a line, relative to PATH or to the current "
        "folder; - is standard input",
    )
    command.add_argument(
        "-0",
        "--null",
        action="store_true",
        help="names in LIST end with NUL, as by find -print0",
    )
    command.set_defaults(quiet=False, json_summary=None, has_summary=False)
    return command


def add_report_options(parser: Parser) -> None:
    """Adds the options of commands whose report is not the result."""
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="print only failures: no table, no progress"
    )
    parser.add_argument(
        "--json-summary",
        type=output_argument,
        metavar="FILE",
        help="JSON file for counts, bytes, seconds and all failures; - is standard output",
    )
    parser.set_defaults(has_summary=True)


def add_output_options(parser: Parser) -> None:
    """Adds the options of commands that write files."""
    parser.add_argument(
        "-o",
        "--output",
        type=output_argument,
        metavar="OUT",
        help="folder for the results, or for one PATH the result with its suffix; - is standard "
        "output; default: beside each PATH",
    )
    existing = parser.add_mutually_exclusive_group()
    existing.add_argument("--overwrite", action="store_true", help="replace existing results")
    existing.add_argument(
        "--skip-existing", action="store_true", help="keep existing results; default: fail"
    )
    parser.add_argument(
        "--preserve",
        action="store_true",
        help="keep permissions and times of the sources; l3 encode also keeps text and dots per "
        "inch of PNG",
    )
    add_jobs_option(parser)
    add_report_options(parser)


def add_new_file_options(parser: Parser, default: str) -> None:
    """Adds the options of commands that write one JSON file; see `write_new`."""
    parser.add_argument(
        "-o",
        "--output",
        type=output_argument,
        default=Path(default),
        metavar="FILE",
        help="- is standard output; default: %(default)s",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing FILE")


def add_host_options(
    parser: Parser, title: str, default_cache: str = ""
) -> argparse._ArgumentGroup:
    """Adds the properties of a host; returns the group of these options."""
    host = parser.add_argument_group(title)
    host.add_argument("--cores", type=positive_float, metavar="N", help="cores that decode")
    for name, what in (
        ("disk", "rate of the disk of the data set"),
        ("network", "rate of the network that the data comes over"),
        ("upload", "rate of uploads to the GPU"),
    ):
        help_text = f"{what}: 200MB/s, 2GB/s, unlimited"
        host.add_argument(f"--{name}", type=rate_argument, metavar="RATE", help=help_text)
    cache = f"GPU memory for encoded images, or 0{default_cache}"
    host.add_argument("--gpu-cache", type=cache_argument, metavar="SIZE", help=cache)
    step = "images a second of the training step"
    host.add_argument("--train-rate", type=positive_float, metavar="N", help=step)
    return host


def add_jobs_option(parser: Parser) -> None:
    """Adds `--jobs`."""
    cores = local_cores()
    parser.add_argument(
        "-j", "--jobs", type=_jobs, default=cores, help=f"number of threads; default here: {cores}"
    )


def local_cores() -> int:
    """The cores of this machine that the process may use."""
    return len(os.sched_getaffinity(0))


def path_argument(text: str) -> Path:
    """A path, not an empty one; `-` is standard input."""
    if not text:  # Path("") is the current folder.
        raise argparse.ArgumentTypeError("an empty name")
    return STDIN if text == "-" else Path(text)


def path_or_url_argument(text: str) -> Path | str:
    """As `path_argument`, but a URL stays what it is."""
    from l3dali.datasets.convert.storage import is_remote

    return text if is_remote(text) or text.startswith("file://") else path_argument(text)


def output_argument(text: str) -> Path:
    """A path, not an empty one and no URL; `-` is standard output."""
    if text == "-":
        return STDOUT
    if re.match("[A-Za-z][A-Za-z0-9+.-]*://", text):
        raise argparse.ArgumentTypeError(f"{text} is a URL; only l3 convert writes to URLs")
    return path_argument(text)


def url_argument(text: str) -> str:
    """A path or a URL, not an empty one."""
    return name_argument(text)


def name_argument(text: str) -> str:
    """A name, not an empty one."""
    if not text:
        raise argparse.ArgumentTypeError("an empty name")
    return text


_MOST_DIGITS = 20  # of 64 bits; products stay finite


def positive_number(text: str) -> int:
    """A number above 0."""
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def natural_number(text: str) -> int:
    """A number from 0."""
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0")
    return int(text)


def positive_float(text: str) -> float:
    """A number above 0, maybe with a fraction."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return number


def rate_argument(text: str) -> float:
    """Bytes a second: 200MB/s, 2GB/s, unlimited."""
    from l3dali.datasets.liquid.host import parse_rate

    try:
        return parse_rate(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def size_argument(text: str) -> float:
    """Bytes: 500MB, 2TB."""
    from l3dali.datasets.liquid.host import parse_rate

    try:
        size = math.nan if "/" in text else parse_rate(text)
    except UsageError:
        size = math.nan
    if not math.isfinite(size):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, such as 500MB, 2GB or 1.5TB")
    return size


def cache_argument(text: str) -> float:
    """Bytes of a cache: 20GB, or 0 for none."""
    return 0.0 if text == "0" else size_argument(text)


def _jobs(text: str) -> int:
    jobs = positive_number(text)
    if jobs not in THREADS:
        raise argparse.ArgumentTypeError(f"{jobs} is more than {THREADS[-1]}")
    return jobs
