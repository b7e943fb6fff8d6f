"""Arguments that commands share, and the parser they are added to."""

from __future__ import annotations

import argparse
import difflib
import itertools
import math
import os
import re
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from l3dali import codec
from l3dali.cli.batch import STDIN, STDOUT
from l3dali.console import complain
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, TypeAlias

    Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


def exit_codes(*others: str) -> str:
    """What `--help` says of exit codes; `others` are lines of a command's own."""
    lines = [
        "0    all went well",
        *others,
        "2    a file failed, or the command makes no sense",
        "130  interrupted by Ctrl-C (143: by SIGTERM); whole results stay",
        "141  the reader of the output has gone",
    ]
    return "\n  ".join(["exit codes:", *lines])


class Parser(argparse.ArgumentParser):
    """A parser whose errors are those of `main`, and name what may have been meant."""

    _given: Sequence[str] = ()  # in the call of parse_known_args that goes on

    def __init__(self, *arguments: Any, **options: Any) -> None:
        # A part of a name may be meant for another option, as `--label`.
        super().__init__(*arguments, **(options | {"allow_abbrev": False}))
        self.elsewhere: dict[str, str] = {}  # by options of other commands: what is said of them

    def error(self, message: str) -> NoReturn:
        if message.startswith("the following arguments are required"):
            # Of two mistakes the one that was typed says more.
            for name in (each.partition("=")[0] for each in self._given if each[:2] == "--"):
                if name not in self._option_string_actions:
                    message = f"unrecognized arguments: {name}{self._option_meant(name)}"
        raise UsageError(f"{message} (see {self.prog} --help)")

    def _print_message(self, message: str, file: Any = None) -> None:
        print(message, end="", file=file, flush=True)  # argparse hides a full disk

    def _option_meant(self, name: str) -> str:
        if name in self.elsewhere:
            return f"; {self.elsewhere[name]}"
        return _meant(name, self._option_string_actions)

    def add_argument(self, *arguments: Any, **options: Any) -> argparse.Action:
        action = super().add_argument(*arguments, **options)
        if action.type in (path_argument, path_or_url_argument, output_argument, url_argument):
            action.complete = _COMPLETE_FILES  # type: ignore[attr-defined]
        return action

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        self._given = sys.argv[1:] if args is None else args
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self._take_late(found, unknown):
            unknown = []
        if unknown:
            options = [each for each in unknown if each.startswith("-")]
            meant = self._option_meant((options or unknown)[0].partition("=")[0])
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return found, unknown

    def _take_late(self, found: Any, unknown: Sequence[str]) -> bool:
        """Adds paths that stand behind an option: argparse takes those of one place alone."""
        actions = self._get_positional_actions()
        many = next((i for i, each in enumerate(actions) if each.nargs in ("*", "+")), None)
        bare = unknown.index("--") if "--" in unknown else len(unknown)  # any name follows it
        if many is None or any(each[:1] == "-" and each != "-" for each in unknown[:bare]):
            return False
        several, *single = actions[many:]
        late = [*unknown[:bare], *unknown[bare + 1 :]]
        try:
            values = [self._get_value(several, text) for text in late]
        except argparse.ArgumentError as error:
            self.error(str(error))
        values = [*getattr(found, several.dest), *(getattr(found, s.dest) for s in single), *values]
        end = len(values) - len(single)
        setattr(found, several.dest, values[:end])
        for action, value in zip(single, values[end:], strict=True):
            setattr(found, action.dest, value)
        return True

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += _meant(value, action.choices or ())
            raise


# What shtab's FILE is: how the shells complete the name of a file.
_COMPLETE_FILES = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}


def _meant(text: object, known: Iterable[object]) -> str:
    names = [each for each in known if isinstance(each, str)]  # a number is near no other
    close = difflib.get_close_matches(str(text), names, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def new_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
    examples: str,
    codes: str | None = None,
) -> Parser:
    """The parser of a command; `run` gives its exit code, `codes` says what they mean."""
    shown = textwrap.indent(textwrap.dedent(examples).strip(), "  ")
    command = commands.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=f"examples:\n{shown}\n\n{codes or exit_codes()}",
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
    """The parser of a command that takes files and folders; `run` gives its exit code.

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
        help="take the files that LIST names, one a line; - is standard input. Names start at "
        "PATH, a folder, or at the current folder, and are kept from there on",
    )
    command.add_argument(
        "-0", "--null", action="store_true", help="names in LIST end in NUL, as find -print0 has it"
    )
    command.set_defaults(quiet=False, json_summary=None, has_summary=False)
    return command


def add_report_options(parser: Parser) -> None:
    """Adds the options of commands whose report is not the result."""
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="print failures alone: no table, no progress"
    )
    parser.add_argument(
        "--json-summary",
        type=output_argument,
        metavar="FILE",
        help="write counts, bytes, seconds and all failures as JSON; - is standard output",
    )
    parser.set_defaults(has_summary=True)


def add_output_options(parser: Parser) -> None:
    """Adds the options of commands that write files."""
    parser.add_argument(
        "-o",
        "--output",
        type=output_argument,
        metavar="OUT",
        help="folder for the results, or the result itself if its suffix says so and PATH is one "
        "file; - is standard output; default: beside each PATH",
    )
    existing = parser.add_mutually_exclusive_group()
    existing.add_argument("--overwrite", action="store_true", help="replace existing results")
    existing.add_argument(
        "--skip-existing", action="store_true", help="keep existing results; default: they fail"
    )
    parser.add_argument(
        "--preserve",
        action="store_true",
        help="give results the permissions and times of sources; `l3 encode` also keeps text and "
        "dots per inch of PNG",
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
    """Adds what a host gives; returns the group of these options."""
    host = parser.add_argument_group(title)
    host.add_argument("--cores", type=positive_float, metavar="N", help="that decode")
    for name, what in (
        ("disk", "that the data set lies on"),
        ("network", "that the data comes over"),
        ("upload", "to the GPU"),
    ):
        help_text = f"{what}: 200MB/s, 2GB/s, unlimited"
        host.add_argument(f"--{name}", type=rate_argument, metavar="RATE", help=help_text)
    cache = f"GPU memory for encoded images, or 0{default_cache}"
    host.add_argument("--gpu-cache", type=cache_argument, metavar="SIZE", help=cache)
    step = "images a second of the training step"
    host.add_argument("--train-rate", type=positive_float, metavar="N", help=step)
    return host


def add_orient_option(parser: Parser) -> None:
    """Adds `--orient`."""
    parser.add_argument("--orient", action="store_true", help="turn images as their EXIF asks")


def add_jobs_option(parser: Parser) -> None:
    """Adds `--jobs`."""
    cores = local_cores()
    parser.add_argument(
        "-j", "--jobs", type=_jobs, default=cores, help=f"threads; default here: {cores}"
    )


def local_cores() -> int:
    """The cores of this machine that the process may use."""
    return len(os.sched_getaffinity(0))


def path_argument(text: str) -> Path:
    """A path, not an empty one; `-` is standard input."""
    if not text:  # Path("") is the current folder.
        raise argparse.ArgumentTypeError("an empty name")
    return STDIN if text in ("-", "/dev/fd/0", "/proc/self/fd/0") else Path(text)


def path_or_url_argument(text: str) -> Path | str:
    """As `path_argument`, but a URL stays what it is."""
    from l3dali.datasets.convert.storage import is_remote

    return text if is_remote(text) or text.startswith("file://") else path_argument(text)


def output_argument(text: str) -> Path:
    """A path, not an empty one and no URL; `-` is standard output."""
    if text in ("-", "/dev/fd/1", "/proc/self/fd/1"):
        return STDOUT
    if re.match("[A-Za-z][A-Za-z0-9+.-]*://", text):
        raise argparse.ArgumentTypeError(f"{text} is a URL; l3 convert alone writes to those")
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
        raise argparse.ArgumentTypeError(f"{text!r} is no size; 500MB, 2GB or 1.5TB are")
    return size


def cache_argument(text: str) -> float:
    """Bytes of a cache: 20GB, or 0 for none."""
    return 0.0 if text == "0" else size_argument(text)


def new_file(path: Path, *, overwrite: bool) -> Path:
    """The path, if a file can be written there, or it is a pipe or a device.

    Raises:
        UsageError: there is a file already, or no folder for it, or it is open for reading alone.
    """
    if path != STDOUT:
        if codec.is_open_to_read(path):
            raise UsageError(f"{path} cannot be written: it is open for reading alone")
        if path.is_dir() or not path.parent.is_dir():
            raise UsageError(f"{path} cannot be written: name a file in a folder that exists")
        if not (codec.is_special(path) or os.access(path.parent, os.W_OK)):
            raise UsageError(f"{path} cannot be written: nor can anything in its folder")
        if os.path.lexists(path) and not overwrite and not codec.is_special(path):
            raise UsageError(f"{path} exists; --overwrite replaces it")
    return path


def write_new(path: Path, data: str | bytes, *, overwrite: bool) -> bool:
    """Writes a text and a newline, or bytes, to a path that `new_file` has checked.

    Where a file has come since, that stays; this one is beside it, which is told, and False.
    """
    if path == STDOUT:
        print(data)
        return True
    data = f"{data}\n".encode() if isinstance(data, str) else data
    target = path
    for number in itertools.count(2):
        try:
            codec.write_atomically(target, data, replace=overwrite)
            break
        except FileExistsError:
            target = path.with_name(f"{path.stem}-{number}{path.suffix}")
    if target != path:
        complain(f"l3: {path} has come meanwhile, and stays; this one is {target}")
    return target == path


def _jobs(text: str) -> int:
    jobs = positive_number(text)
    if jobs not in codec.THREADS:
        raise argparse.ArgumentTypeError(f"{jobs} is more than {codec.THREADS[-1]}")
    return jobs
