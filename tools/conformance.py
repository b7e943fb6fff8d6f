"""Checks a decoder against files that show each rule of docs/format.md: docs/conformance.md.

    python tools/conformance.py tests                                        l3dali itself
    python tools/conformance.py tests --decoder './mine {input} {output}'    another decoder

Exit codes: 0 the decoder conforms, 1 it differs, 2 the command is wrong. `--decoder` needs only
Python's standard library.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

VERSION = 1
# docs/format.md, section 2: the position is the number.
STATUSES = (
    "kOk",
    "kTruncated",
    "kBadMagic",
    "kUnsupportedVersion",
    "kUnsupportedFeature",
    "kCorruptHeader",
    "kCorruptTile",
    "kChecksumMismatch",
    "kOutputTooSmall",
    "kInvalidArgument",
)
OK = STATUSES[0]
SAMPLE_BYTES = {
    **{"uint8": 1, "int8": 1, "uint16": 2, "int16": 2},
    **{"uint32": 4, "int32": 4, "float16": 2, "float32": 4},
}


class WrongCommandError(Exception):
    """The arguments or the manifest cannot be used."""


@dataclass(frozen=True)
class Case:
    """A file and the correct outcome of decoding it.

    Attributes:
        file: its path.
        name: its path in the folder.
        status: kOk, or the name of the Status by which it is refused.
        rules: the rules of docs/format.md that it shows: a section and a part of the text.
        samples_bytes: size of the decoded image: rows from the top, channels interleaved,
            little-endian.
        sha256: hash of these bytes, in hexadecimal digits.
    """

    file: Path
    name: str
    status: str
    rules: tuple[str, ...]
    samples_bytes: int = 0
    sha256: str = ""

    @property
    def sections(self) -> set[str]:
        """The sections of docs/format.md that hold the rules."""
        return {rule.partition(":")[0] for rule in self.rules}


@dataclass(frozen=True)
class Found:
    """What a decoder made of a file.

    Attributes:
        status: kOk or another Status; "" if the decoder refuses the file without a known Status.
        samples: the decoded samples, if their size is that of the case.
        samples_bytes: how many bytes it wrote.
        failure: what went wrong with the decoder itself.
    """

    status: str = ""
    samples: bytes = b""
    samples_bytes: int = 0
    failure: str = ""


Decoder = Callable[[Case], Found]


def read_manifest(folder: Path) -> list[Case]:
    """The cases of a folder.

    Raises:
        WrongCommandError: the manifest is missing or damaged, or names a file that is missing or
            not below the folder.
    """
    path = folder / "conformance.json"
    try:
        manifest = json.loads(path.read_bytes())
        if manifest["version"] != VERSION:
            raise WrongCommandError(f"{path}: version {manifest['version']!r} is not known")
        cases = [_case(folder, entry) for entry in manifest["files"]]
    except OSError as error:
        raise WrongCommandError(f"{path}: {error.strerror}; name the folder with it") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WrongCommandError(f"{path}: damaged: {type(error).__name__}: {error}") from None
    if not cases:
        raise WrongCommandError(f"{path}: it names no files")
    return cases


def _case(folder: Path, entry: dict[str, Any]) -> Case:
    name, status, rules = entry["file"], entry["status"], tuple(map(str, entry["rules"]))
    file = folder / name
    if ".." in file.parts or not file.is_relative_to(folder) or not file.is_file():
        raise ValueError(f"{name!r} is not a file below the folder")
    if status not in STATUSES:
        raise ValueError(f"{name}: unknown status {status!r}")
    if status != OK:
        return Case(file, name, status, rules)
    size = math.prod(entry["shape"]) * SAMPLE_BYTES[entry["dtype"]]
    return Case(file, name, status, rules, size, entry["sha256"])


def run(
    cases: Iterable[Case], decoder: Decoder, *, any_status: bool = False, jobs: int = 1
) -> Iterator[tuple[Case, str]]:
    """Decodes all files; yields each case, in their order, with how the decoder differs, or "".

    Leaving early kills the commands that run.

    Args:
        cases: as `read_manifest` returns them.
        decoder: `own_decoder` or a `CommandDecoder`.
        any_status: accept any error status where a file must be refused.
        jobs: threads.
    """
    with ThreadPoolExecutor(jobs) as threads:
        try:
            yield from threads.map(lambda c: (c, _difference(c, decoder(c), any_status)), cases)
        finally:
            if isinstance(decoder, CommandDecoder):
                decoder.stop()


def _difference(case: Case, found: Found, any_status: bool) -> str:
    wanted = "an image expected" if case.status == OK else f"{case.status} expected"
    if found.failure:
        return f"{wanted}; {found.failure}"
    if case.status != OK:
        if found.status == OK:
            return f"{wanted}; it was decoded"
        right = any_status or found.status == case.status
        return "" if right else f"{wanted}; found {found.status or 'no Status'}"
    if found.status != OK:
        return f"{wanted}; it was refused: {found.status or 'no Status'}"
    if found.samples_bytes != case.samples_bytes:
        return f"{case.samples_bytes} bytes of samples expected; found {found.samples_bytes}"
    right = hashlib.sha256(found.samples).hexdigest() == case.sha256
    return "" if right else "the samples differ"


def own_decoder(case: Case) -> Found:
    """The result of `l3dali.decode`."""
    import l3dali

    try:
        image = l3dali.decode(case.file.read_bytes())
    except l3dali.L3Error as error:
        return Found(STATUSES[error.status])
    samples = image.astype(image.dtype.newbyteorder("<"), copy=False).tobytes()
    return Found(OK, samples, len(samples))


class CommandDecoder:
    """A decoder that is a command, started anew for each file.

    It writes the samples to the file `{output}` and exits with 0, or exits with the number of the
    Status by which it refuses `{input}`.
    """

    def __init__(self, command: str, *, timeout: float = 60) -> None:
        """Splits the command.

        Args:
            command: words as a shell has them, though no shell runs them; paths replace `{input}`
                and `{output}`.
            timeout: in seconds; a decoder that takes longer is killed, and has failed.

        Raises:
            WrongCommandError: the command lacks one of the two, or cannot be split.
        """
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise WrongCommandError(f"--decoder: {error}") from None
        for place in ("{input}", "{output}"):
            if not any(place in word for word in self._words):
                raise WrongCommandError(f"--decoder: the command does not contain {place}")
        self._timeout = timeout
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_stopped = False

    def __call__(self, case: Case) -> Found:
        """Runs the command on a file.

        Raises:
            WrongCommandError: it cannot be started.
        """
        with tempfile.TemporaryDirectory(prefix="l3-conformance-") as folder:
            output = Path(folder) / "samples"
            try:
                code = self._run(case.file, output)
            except subprocess.TimeoutExpired:
                return Found(failure=f"the decoder took more than {self._timeout:g} seconds")
            except OSError as error:
                reason = f"--decoder: {self._words[0]}: {error.strerror}"
                raise WrongCommandError(reason) from None
            if code < 0:
                return Found(failure=f"the decoder ended by signal {-code}")
            if code >= 126:  # of shells: not found, or ended by a signal
                return Found(failure=f"the decoder ended with status {code}")
            if code:
                return Found(STATUSES[code] if code < len(STATUSES) else "")
            if not output.is_file():
                return Found(failure="the decoder wrote no output")
            size = output.stat().st_size  # It may be more than memory holds.
            return Found(OK, output.read_bytes() if size == case.samples_bytes else b"", size)

    def _run(self, source: Path, output: Path) -> int:
        paths = {"{input}": str(source), "{output}": str(output)}
        words = self._words
        for place, path in paths.items():
            words = [word.replace(place, path) for word in words]
        nothing = subprocess.DEVNULL
        process = subprocess.Popen(
            words,
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,  # a process group, to be killed with all that it starts
        )
        self._running.add(process)
        try:
            return process.wait(0 if self._is_stopped else self._timeout)
        finally:
            _kill(process)
            self._running.discard(process)

    def stop(self) -> None:
        """Kills all commands that run; those started later are killed at once."""
        self._is_stopped = True
        for process in list(self._running):
            if process.poll() is None:
                _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a process, or what is left of its group."""
    with suppress(ProcessLookupError, PermissionError):  # It has ended.
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _parser() -> argparse.ArgumentParser:
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shown)
    help_text = "folder with conformance.json and its files: tests/ of the sources"
    parser.add_argument("folder", type=Path, metavar="FOLDER", help=help_text)
    parser.add_argument(
        "--decoder",
        metavar="COMMAND",
        help="command that decodes {input} into {output} and exits with 0, or exits with the "
        "number of a Status of docs/format.md; default: l3dali itself",
    )
    help_text = "accept any error status where a file must be refused"
    parser.add_argument("--any-status", action="store_true", help=help_text)
    help_text = "seconds that COMMAND may take for a file; default: %(default)g"
    parser.add_argument("--timeout", type=float, default=60.0, metavar="S", help=help_text)
    cores = len(os.sched_getaffinity(0))
    help_text = "threads; default here: %(default)s"
    parser.add_argument("-j", "--jobs", type=int, default=cores, metavar="N", help=help_text)
    parser.add_argument("--json", action="store_true", help="print all files as a JSON list")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Decodes all files and prints where the decoder differs; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        cases = read_manifest(options.folder)
        decoder: Decoder = own_decoder
        if options.decoder is not None:
            decoder = CommandDecoder(options.decoder, timeout=options.timeout)
        found = run(cases, decoder, any_status=options.any_status, jobs=max(1, options.jobs))
        with closing(found):  # type: ignore[type-var]  # a generator
            results = list(found)
    except WrongCommandError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    wrong = [(case, difference) for case, difference in results if difference]
    if options.json:
        names = ("file", "status", "rules", "difference")
        rows = [(case.name, case.status, case.rules, diff or None) for case, diff in results]
        print(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2))
    else:
        _print_sections(results)
        right = len(results) - len(wrong)
        print(f"{right} of {len(results)} files are decoded or refused as docs/format.md says")
    for case, difference in wrong:
        rules = "; ".join(case.rules)
        print(f"{case.name}: {difference}; it shows {rules}", file=sys.stderr)
    return 1 if wrong else 0


def _print_sections(results: Sequence[tuple[Case, str]]) -> None:
    """Prints a row for each section of the format: the files that show its rules."""
    print(f"{'section':8}{'to decode':>11}{'to refuse':>11}{'wrong':>7}")
    for section in sorted(set().union(*(case.sections for case, _ in results))):
        shown = [(case, diff) for case, diff in results if section in case.sections]
        refused = sum(case.status != OK for case, _ in shown)
        wrong = sum(bool(diff) for _, diff in shown)
        print(f"{section:8}{len(shown) - refused:11}{refused:11}{wrong:7}")


def _interrupt(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)  # which ends the commands that run


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # If it is ignored, all exit codes are 0.
    sys.exit(main())
