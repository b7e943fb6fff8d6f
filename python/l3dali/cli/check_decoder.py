"""Checks a decoder against the files of a folder and what its manifest says of them.

Knows nothing of the format: a decoder is a function, or a command of another implementation.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from l3dali import codec
from l3dali.datasets.convert.storage import leads_out
from l3dali.errors import L3Error, Status, UsageError

__all__ = ["Case", "CommandDecoder", "Found", "Result", "own_decoder", "read_manifest", "run"]

MANIFEST = "conformance.json"
VERSION = 1
OK = "kOk"
DTYPES = ("uint8", "uint16", "int8", "int16")
# As docs/format.md writes them; their places are the numbers.
STATUSES = tuple("k" + status.name.title().replace("_", "") for status in Status)


@dataclass(frozen=True)
class Case:
    """A file, and what a decoder makes of it.

    Attributes:
        file: its path.
        name: its path in the folder.
        status: kOk, or the name of the Status by which it is refused.
        rules: the rules of docs/format.md that it shows: a section and a part of the text.
        samples_bytes: of the decoded image: rows from the top, channels interleaved, little-endian.
        shape: height, width, channels; empty if the file is refused.
        dtype: of the samples.
        sha256: of those bytes, in hexadecimal digits.
    """

    file: Path
    name: str
    status: str
    rules: tuple[str, ...]
    samples_bytes: int = 0
    shape: tuple[int, ...] = ()
    dtype: str = ""
    sha256: str = ""

    @property
    def sections(self) -> list[str]:
        """Of docs/format.md, those of the rules."""
        return list(dict.fromkeys(rule.partition(":")[0] for rule in self.rules))


@dataclass(frozen=True)
class Found:
    """What a decoder made of a file.

    Attributes:
        status: kOk or another Status; "" if it says no more than that it refuses the file.
        samples: if it decoded, and wrote as many bytes as the case has.
        samples_bytes: how many it wrote.
        failure: what went wrong with the decoder itself.
    """

    status: str = ""
    samples: bytes = b""
    samples_bytes: int = 0
    failure: str = ""


@dataclass(frozen=True)
class Result:
    """A case, and how the decoder differs from it: "" where it does not."""

    case: Case
    difference: str


Decoder = Callable[[Case], Found]


def read_manifest(folder: Path) -> list[Case]:
    """The cases of a folder.

    Raises:
        UsageError: there is no manifest, it is damaged, or names a file that is not there or not
            below it.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
        if manifest["version"] != VERSION:
            raise UsageError(f"{path}: version {manifest['version']!r} is not known")
        cases = [_case(folder, entry) for entry in manifest["files"]]
    except FileNotFoundError:
        raise UsageError(f"{path}: there is none; name the folder that holds it") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path}: damaged: {type(error).__name__}: {error}") from None
    if not cases:
        raise UsageError(f"{path}: it names no files")
    for case in cases:
        if not case.file.is_file():
            raise UsageError(f"{path}: names {case.name}, which is not there")
    return cases


def _case(folder: Path, entry: dict[str, Any]) -> Case:
    name, status = str(entry["file"]), entry["status"]
    if leads_out(name):
        raise ValueError(f"{name!r} is no path below the folder")
    if status not in STATUSES:
        raise ValueError(f"{name}: {status!r} is no Status")
    case = Case(folder / name, name, status, tuple(map(str, entry["rules"])))
    if status != OK:
        return case
    height, width, channels = shape = tuple(entry["shape"])
    if not all(type(side) is int and side in codec.MAX_PIXELS_RANGE for side in shape):
        raise ValueError(f"{name}: {shape} is no shape")
    dtype = entry["dtype"]
    if dtype not in DTYPES:
        raise ValueError(f"{name}: {dtype!r} is no type of samples")
    return Case(
        case.file,
        name,
        status,
        case.rules,
        height * width * channels * np.dtype(dtype).itemsize,
        shape,
        dtype,
        str(entry["sha256"]),
    )


def run(
    cases: Iterable[Case], decoder: Decoder, *, any_status: bool = False, jobs: int = 1
) -> Generator[Result]:
    """Decodes all files and compares; results come in the order of the cases.

    If it is left early, the commands that run are killed.

    Args:
        cases: what `read_manifest` gives.
        decoder: `own_decoder` or a `CommandDecoder`.
        any_status: a file is refused rightly whatever the Status.
        jobs: threads.
    """
    with ThreadPoolExecutor(jobs) as threads:
        try:
            yield from threads.map(
                lambda case: Result(case, _difference(case, decoder(case), any_status)), cases
            )
        finally:
            if isinstance(decoder, CommandDecoder):
                decoder.stop()


def _difference(case: Case, found: Found, any_status: bool) -> str:
    if found.failure:
        return f"{_wanted(case)}; {found.failure}"
    if case.status != OK:
        if found.status == OK:
            return f"{_wanted(case)}; it was decoded"
        if any_status or found.status == case.status:
            return ""
        return f"{_wanted(case)}; found {found.status or 'no Status'}"
    if found.status != OK:
        return f"{_wanted(case)}; it was refused: {found.status or 'no Status'}"
    if found.samples_bytes != case.samples_bytes:
        return f"{case.samples_bytes} bytes of samples expected; found {found.samples_bytes}"
    if hashlib.sha256(found.samples).hexdigest() != case.sha256:
        return "the samples differ"
    return ""


def _wanted(case: Case) -> str:
    return "an image expected" if case.status == OK else f"{case.status} expected"


def own_decoder(case: Case) -> Found:
    """What `l3dali.decode` makes of a file."""
    try:
        image = codec.decode(case.file.read_bytes())
    except L3Error as error:
        return Found(STATUSES[error.status])
    samples = image.astype(image.dtype.newbyteorder("<"), copy=False).tobytes()
    return Found(OK, samples, len(samples))


class CommandDecoder:
    """A decoder that is a command of its own, started anew for each file.

    It writes the samples to the file `{output}` and exits with 0, or exits with the number of the
    Status by which it refuses `{input}`.
    """

    def __init__(self, command: str, *, timeout: float = 60) -> None:
        """Judges the command.

        Args:
            command: words as a shell has them, no shell is asked; `{input}` and `{output}` in it
                are replaced by paths.
            timeout: in seconds; a decoder that takes longer is killed, and has failed.

        Raises:
            UsageError: the command is none, or lacks one of the two.
        """
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"--decoder: {error}") from None
        for place in ("{input}", "{output}"):
            if not any(place in word for word in self._words):
                raise UsageError(f"--decoder: the command says nowhere {place}")
        self._timeout = timeout
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_stopped = False

    def __call__(self, case: Case) -> Found:
        """What the command makes of a file.

        Raises:
            UsageError: it cannot be started.
        """
        with tempfile.TemporaryDirectory(prefix="l3-conformance-") as folder:
            output = Path(folder) / "samples"
            try:
                code = self._run(case.file, output)
            except subprocess.TimeoutExpired:
                return Found(failure=f"the decoder took more than {self._timeout:g} seconds")
            except OSError as error:
                raise UsageError(f"--decoder: {self._words[0]}: {error.strerror}") from None
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

    def _run(self, path: Path, output: Path) -> int:
        nothing = subprocess.DEVNULL
        process = subprocess.Popen(
            [
                word.replace("{input}", str(path)).replace("{output}", str(output))
                for word in self._words
            ],
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,  # A group of its own, to be killed with what it starts.
        )
        self._running.add(process)
        try:
            return process.wait(0 if self._is_stopped else self._timeout)
        finally:
            _kill(process)
            self._running.discard(process)

    def stop(self) -> None:
        """Kills all that runs; what is started later is killed at once."""
        self._is_stopped = True
        for process in list(self._running):
            if process.poll() is None:
                _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a process, or what is left of its group."""
    with suppress(ProcessLookupError, PermissionError):  # Gone, or another's by now.
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
