"""The parser, and arguments that commands share."""

from __future__ import annotations

import argparse
import math
import os
import re
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from l3dali import codec
from l3dali.arguments import LAYOUTS, MAX_PIXELS_RANGE, THREADS, checked_channels
from l3dali.cli.inputs import STDIN
from l3dali.cli.outputs import STDOUT
from l3dali.errors import UsageError
from l3dali.images.dicom import check_keywords

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TypeAlias

    Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_EXIT_CODES = """exit codes:
  0    all went well
  1    an error in l3 itself
  2    a file failed, or the command is wrong
  130  interrupted by Ctrl-C (143: by SIGTERM); finished results stay
  141  the reader of the output was closed"""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are UsageErrors."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        # An abbreviation such as `--label` may be another option.
        super().__init__(*arguments, **(options | {"allow_abbrev": False}))

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")

    def add_argument(self, *arguments: Any, **options: Any) -> argparse.Action:
        action = super().add_argument(*arguments, **options)
        if action.type in (path_argument, path_or_url_argument, output_argument, name_argument):
            action.complete = _COMPLETE_FILES  # type: ignore[attr-defined]
        return action

    def parse_mixed(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parses paths before and after options."""
        with suppress(UsageError):  # parse_intermixed_args does not allow names with a dash.
            found, unknown = self.parse_known_args(arguments)
            if not unknown:
                return found
        return self.parse_intermixed_args(arguments)


# The value of shtab.FILE: how shells complete the name of a file.
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
    what: str = "file",
) -> Parser:
    """The parser of a command that takes files; `run` returns its exit code."""
    command = new_command(commands, name, run, summary, examples)
    command.add_argument(
        "paths",
        nargs="*",
        type=path_or_url_argument if "URL" in what else path_argument,
        metavar="PATH",
        help=f"{what}; - is standard input",
    )
    command.add_argument(
        "--files-from",
        type=path_argument,
        metavar="LIST",
        help="file with names of inputs, one a line or by find -print0; - is standard input",
    )
    command.set_defaults(quiet=False, json_summary=None, has_summary=False)
    return command


def add_sources(parser: Parser, metavar: str) -> None:
    """Adds the data sets of commands that read them."""
    what = "folder, shard, or shards as 'a-{000..146}.tar'; a path or a URL (s3://...)"
    parser.add_argument("sources", nargs="+", type=name_argument, metavar=metavar, help=what)


def add_coding_options(parser: Parser) -> None:
    """Adds the options of commands that write L3 files."""
    parser.add_argument(
        "--coding",
        choices=codec.FILE_CODINGS,
        help="rans (small), packed (fast), stored (raw), or jpeg (JPEG files keep their "
        "coefficients and come back byte for byte, others as rans); default: jpeg",
    )
    parser.add_argument(
        "--effort",
        type=int,
        choices=codec.EFFORTS,
        default=codec.DEFAULT_EFFORT,
        metavar="N",
        help="compression effort of rans, 1 (fastest) to 9 (smallest); default: %(default)s",
    )


def add_report_options(parser: Parser) -> None:
    """Adds the options for reports."""
    parser.add_argument("-q", "--quiet", action="store_true", help="print only failures")
    parser.add_argument(
        "--json-summary",
        type=output_argument,
        metavar="FILE",
        help="JSON report with all failures; - is standard output",
    )
    parser.set_defaults(has_summary=True)


def add_output_options(parser: Parser) -> None:
    """Adds the options of commands that write files."""
    parser.add_argument(
        "-o",
        "--output",
        type=output_argument,
        metavar="OUT",
        help="folder, or for one PATH a file; - is standard output; default: beside each PATH",
    )
    existing = parser.add_mutually_exclusive_group()
    existing.add_argument("--overwrite", action="store_true", help="replace existing results")
    existing.add_argument(
        "--skip-existing", action="store_true", help="keep existing results; default: fail"
    )
    parser.add_argument(
        "--preserve",
        action="store_true",
        help="keep permissions and times, and text and resolution of PNG",
    )
    add_jobs_option(parser)
    add_report_options(parser)


def add_new_file_options(parser: Parser, default: str) -> None:
    """Adds the options of commands that write one JSON file."""
    parser.add_argument(
        "-o",
        "--output",
        type=output_argument,
        default=Path(default),
        metavar="FILE",
        help="result; - is standard output; default: %(default)s",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing FILE")


def add_host_options(
    parser: Parser, title: str, default_cache: str = ""
) -> argparse._ArgumentGroup:
    """Adds the properties of a host; returns the group of these options."""
    host = parser.add_argument_group(title)
    host.add_argument("--cores", type=positive_float, metavar="N", help="cores for decoding")
    for name, what in (
        ("disk", "rate of the data set's disk, such as 200MB/s, or unlimited"),
        ("network", "rate of the data set's network"),
        ("upload", "rate of uploads to the GPU"),
    ):
        host.add_argument(f"--{name}", type=rate_argument, metavar="RATE", help=what)
    cache = f"GPU memory for encoded images, or 0{default_cache}"
    host.add_argument("--gpu-cache", type=size_argument, metavar="SIZE", help=cache)
    step = "images/s of the training step"
    host.add_argument("--train-rate", type=positive_float, metavar="N", help=step)
    return host


def add_image_options(parser: Parser) -> None:
    """Adds the options of commands that encode images of other formats; see `image_options`."""
    add_reading_options(parser)
    parser.add_argument(
        "--palette",
        choices=["rgb", "index"],
        default="rgb",
        help="store colours or entry numbers of palette images; default: %(default)s",
    )
    parser.add_argument(
        "--volumes",
        action="store_true",
        help="store the pages of a TIFF or the frames of a DICOM file as one volume; for l3 encode "
        "also a folder with a DICOM series",
    )
    parser.add_argument(
        "--dicom-tags",
        type=_keywords,
        default=(),
        metavar="NAMES",
        help="more DICOM data elements to keep, such as SliceThickness,StudyDate",
    )
    parser.add_argument(
        "--worker-memory",
        type=positive_number,
        default=4096,
        metavar="MB",
        help="memory limit of each process that reads files; default: %(default)s",
    )


def image_options(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of `Options` of a command with these options."""
    names = ("orient", "max_side", "max_pixels", "layout", "palette", "dicom_tags", "volumes")
    fields = {name: getattr(options, name) for name in names}
    return fields | {"worker_memory": options.worker_memory * 2**20}


def add_reading_options(parser: Parser) -> None:
    """Adds the options of commands that read images of other formats."""
    parser.add_argument("--orient", action="store_true", help="turn images by their EXIF data")
    parser.add_argument(
        "--max-side",
        type=positive_number,
        metavar="N",
        help="shrink larger images to N pixels on the longer side; label maps are not blended",
    )
    add_max_pixels_option(parser)
    add_layout_option(parser)


def add_layout_option(parser: Parser) -> None:
    """Adds `--layout`."""
    parser.add_argument(
        "--layout",
        choices=LAYOUTS,
        help="axes of .npy arrays; default: HWC; arrays like CHW are refused",
    )


def add_max_pixels_option(parser: Parser) -> None:
    """Adds `--max-pixels`."""
    parser.add_argument(
        "--max-pixels",
        type=number_in(MAX_PIXELS_RANGE),
        default=codec.DEFAULT_MAX_PIXELS,
        metavar="N",
        help="refuse larger images; default: %(default)s",
    )


def add_channels_option(parser: Parser) -> None:
    """Adds `--channels`."""
    parser.add_argument(
        "--channels",
        type=_channels,
        metavar="N,N,...",
        help="channels to decode, in this order, from 0; default: all",
    )


def _keywords(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    try:
        check_keywords(names)
    except ImportError:
        raise argparse.ArgumentTypeError("needs pydicom: pip install pydicom python-gdcm") from None
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return names


def _channels(text: str) -> tuple[int, ...]:
    """The numbers in a list with commas."""
    names = text.split(",")
    if not all(name.strip().isdecimal() for name in names):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers, such as 3,2,1")
    try:
        return tuple(checked_channels([int(name) for name in names]))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_jobs_option(parser: Parser) -> None:
    """Adds `--jobs`."""
    cores, kind = local_cores(), number_in(THREADS[1:])
    parser.add_argument(
        "-j", "--jobs", type=kind, default=cores, help=f"number of threads; default here: {cores}"
    )


def local_cores() -> int:
    """The cores of this machine that the process may use."""
    return len(os.sched_getaffinity(0))


def path_argument(text: str) -> Path:
    """A path that is not empty; `-` is standard input."""
    if not text:  # Path("") is the current folder.
        raise argparse.ArgumentTypeError("an empty name")
    return STDIN if text == "-" else Path(text)


def path_or_url_argument(text: str) -> Path | str:
    """As `path_argument`, or a URL."""
    from l3dali.datasets.convert.storage import is_remote

    return text if is_remote(text) or text.startswith("file://") else path_argument(text)


def output_argument(text: str) -> Path:
    """A path that is neither empty nor a URL; `-` is standard output."""
    if text == "-":
        return STDOUT
    if re.match("[A-Za-z][A-Za-z0-9+.-]*://", text):
        raise argparse.ArgumentTypeError(f"{text} is a URL; only l3 convert writes to URLs")
    return path_argument(text)


def name_argument(text: str) -> str:
    """A name, path or URL that is not empty."""
    if not text:
        raise argparse.ArgumentTypeError("an empty name")
    return text


def number_in(allowed: range) -> Callable[[str], int]:
    """Parses a number in a range."""

    def parse(text: str) -> int:
        number = int(text) if text.isdecimal() else -1
        if number not in allowed:
            what = f"a number from {allowed[0]} to {allowed[-1]}"
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return number

    return parse


positive_number = number_in(range(1, 2**31))


def positive_float(text: str) -> float:
    """A finite number above 0."""
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")


def rate_argument(text: str) -> float:
    """Bytes a second: 200MB/s, 2GB/s, or unlimited (infinity)."""
    if text == "unlimited":
        return math.inf
    match = re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+) ?([kmgt]?)b(/s|ps)?", text.lower())
    rate = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 1e3 <= rate <= 1e15:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a rate, such as 200MB/s, 2GB/s, unlimited"
        )
    return rate


def size_argument(text: str) -> float:
    """Bytes: 500MB, 2TB, or 0."""
    if text == "0":
        return 0.0
    with suppress(argparse.ArgumentTypeError):
        if "/" not in text and math.isfinite(size := rate_argument(text)):
            return size
    raise argparse.ArgumentTypeError(f"{text!r} is not a size, such as 500MB, 2GB or 1.5TB")
