"""The parser, and arguments that commands share."""

from __future__ import annotations

import argparse
import math
import os
import re
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from l3dali import codec
from l3dali.arguments import LAYOUTS, MAX_PIXELS_RANGE, THREADS, checked_channels
from l3dali.cli.inputs import STDIN
from l3dali.cli.outputs import STDOUT
from l3dali.errors import UsageError
from l3dali.images.dicom import check_keywords

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    Commands: TypeAlias = "argparse._SubParsersAction[Parser]"

_EXIT_CODES = """exit codes:
  0    all went well
  1    an error in l3 itself
  2    a file failed, or the command is wrong
  130  interrupted by Ctrl-C (143: by SIGTERM); finished results stay
  141  the reader of the output was closed"""
# The value of shtab.FILE: how shells complete the name of a file.
_COMPLETE_FILES = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are UsageErrors."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")

    def add_tables(self, tables: Sequence[str], settings: dict[str, dict[str, Any]]) -> None:
        """Adds the arguments of tables: names, the name of the value, help.

        A line that ends in a colon is the title of a group. An option after `|` excludes the one
        before. `_TYPES` has the types of values; an option without a value is a flag. `_SETTINGS`
        and `settings` add to that, by argument.
        """
        group: argparse._ActionsContainer = self
        text = "\n".join(textwrap.dedent(table).strip() for table in tables)
        lines = re.sub(r"\n {3,}", " ", text).splitlines()
        for line, after in zip(lines, [*lines[1:], ""], strict=False):
            if line.endswith(":"):
                group = self.add_argument_group(line[:-1])
                continue
            if not line.startswith("|"):
                is_first = after.startswith("|")
                into = group.add_mutually_exclusive_group() if is_first else group
            left, what = re.split(" {2,}", line.removeprefix("| "), maxsplit=1)
            names = re.findall(r"(?<!\S)--?[a-z-]+", left) or left.split()[:1]
            name = names[-1].lstrip("-").replace("-", "_")
            value = left.split(names[-1], 1)[1].strip()
            known = _SETTINGS.get(name, {}) | settings.get(name, {})
            if value:
                known = {"metavar": value, "type": _TYPES.get(value)} | known
            action = into.add_argument(*names, help=what, **(known or {"action": "store_true"}))
            if action.type in (path_argument, path_or_url_argument, output_argument, name_argument):
                action.complete = _COMPLETE_FILES  # type: ignore[attr-defined]

    def parse_mixed(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parses paths before and after options."""
        with suppress(UsageError):  # parse_intermixed_args does not allow names with a dash.
            found, unknown = self.parse_known_args(arguments)
            if not unknown:
                return found
        return self.parse_intermixed_args(arguments)


def new_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
    examples: str,
    *tables: str,
    **settings: dict[str, Any],
) -> Parser:
    """The parser of a command with the arguments of tables; `run` returns its exit code."""
    shown = textwrap.indent(textwrap.dedent(examples).strip(), "  ")
    command = commands.add_parser(
        name,
        help=summary,
        description=summary,
        epilog=f"examples:\n{shown}\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # `--label` may stand for another option
    )
    command.add_tables(tables, settings)
    command.set_defaults(run=run)
    return command


def local_cores() -> int:
    """The cores of this machine that the process may use."""
    return len(os.sched_getaffinity(0))


FILES = """
paths PATH          file; - is standard input
--files-from LIST   file with names of inputs, one a line or by find -print0; - is standard input
"""
PLACES = FILES.replace("file;", "file, shard, folder or URL;")
SOURCES = """
sources SOURCE   folder, shard, or shards as 'a-{000..146}.tar'; a path or a URL (s3://...)
"""
OUTPUT = """
-o, --output OUT    folder, or for one PATH a file; - is standard output; default: beside each PATH
--overwrite         replace existing results
| --skip-existing   keep existing results; default: fail
--preserve          keep permissions and times, and text and resolution of PNG
"""
NEW_FILE = """
-o, --output FILE   result; - is standard output; default: %(default)s
--overwrite         replace an existing FILE
"""
JOBS = f"-j, --jobs JOBS   number of threads; default here: {local_cores()}"
SUMMARY = """
-q, --quiet           print only failures
--json-summary FILE   JSON summary with all failures; - is standard output
"""
CODING = """
--coding     rans (small), packed (fast), stored (raw), or jpeg (JPEG files keep their coefficients
             and come back byte for byte, others as rans); default: jpeg
--effort N   compression effort of rans, 1 (fastest) to 9 (smallest); default: %(default)s
"""
MAX_PIXELS = "--max-pixels N   refuse larger images; default: %(default)s"
LAYOUT = "--layout   axes of .npy arrays; default: HWC; arrays like CHW are refused"
CHANNELS = "--channels N,N,...   channels to decode, in this order, from 0; default: all"
READING = f"""
--orient       turn images by their EXIF data
--max-side N   shrink larger images to N pixels on the longer side; label maps are not blended
{MAX_PIXELS}
{LAYOUT}
"""
IMAGES = f"""
{READING.strip()}
--palette            store colours or entry numbers of palette images; default: %(default)s
--volumes            store the pages of a TIFF or the frames of a DICOM file as one volume; for
                     l3 encode also a folder with a DICOM series
--dicom-tags NAMES   more DICOM data elements to keep, such as SliceThickness,StudyDate
--worker-memory MB   memory limit of each process that reads files; default: %(default)s
"""
HOST = """
--cores N            cores for decoding
--disk RATE          rate of the data set's disk, such as 200MB/s, or unlimited
--network RATE       rate of the data set's network
--upload RATE        rate of uploads to the GPU
--gpu-cache SIZE     GPU memory for encoded images, or 0
--train-rate N       images/s of the training step
"""


def image_options(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of `Options` of a command with `IMAGES`."""
    names = ("orient", "max_side", "max_pixels", "layout", "palette", "dicom_tags", "volumes")
    fields = {name: getattr(options, name) for name in names}
    return fields | {"worker_memory": options.worker_memory * 2**20}


def path_argument(text: str) -> Path:
    """A path that is not empty; `-` is standard input."""
    return STDIN if text == "-" else Path(name_argument(text))


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
    if not text:  # Path("") is the current folder.
        raise argparse.ArgumentTypeError("an empty name")
    return text


def format_argument(text: str) -> str:
    """The name of a format to write, which is lossless."""
    if text.lower() in ("jpg", "jpeg"):
        raise argparse.ArgumentTypeError(
            "l3 does not compress images as JPEG. l3 decode without --format and l3 convert --to "
            "source restore images that were JPEG files; for others use png"
        )
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
    units = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
    rate = float(match[1]) * units[match[2]] if match else 0.0
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


def _keywords(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    try:
        check_keywords(names)
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


_TYPES = {
    "FILE": output_argument,
    "LIST": path_argument,
    "MB": positive_number,
    "N": positive_number,
    "OUT": output_argument,
    "PATH": path_argument,
    "RATE": rate_argument,
    "S": positive_float,
    "SIZE": size_argument,
}
LABELS: dict[str, Any] = {"type": name_argument, "action": "append", "default": []}
_SETTINGS: dict[str, dict[str, Any]] = {
    "channels": {"type": _channels},
    "coding": {"choices": codec.FILE_CODINGS},
    "cores": {"type": positive_float},
    "dicom_tags": {"type": _keywords, "default": ()},
    "effort": {"type": int, "choices": codec.EFFORTS, "default": codec.DEFAULT_EFFORT},
    "jobs": {"type": number_in(THREADS[1:]), "default": local_cores()},
    "layout": {"choices": LAYOUTS},
    "max_pixels": {"type": number_in(MAX_PIXELS_RANGE), "default": codec.DEFAULT_MAX_PIXELS},
    "palette": {"choices": ["rgb", "index"], "default": "rgb"},
    "paths": {"nargs": "*"},
    "sources": {"nargs": "+", "type": name_argument},
    "train_rate": {"type": positive_float},
    "worker_memory": {"default": 4096},
}
