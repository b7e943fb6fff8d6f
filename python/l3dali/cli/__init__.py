"""The command `l3`: images to L3 files and back.

A module for each command, but `single_files` for `encode` and `decode`. They share `parser`,
`inputs`, `outputs`, `loop` and `summary`.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from l3dali import __version__
from l3dali.cli import convert, info, planning, profiling, single_files, verify, view
from l3dali.cli.loop import interrupt_once, signal_of
from l3dali.cli.parser import Parser
from l3dali.cli.summary import EXIT_FAILED, SIGNALLED
from l3dali.console import complain, hush_libraries
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_BROKEN_PIPE = 141


def run() -> NoReturn:
    """`main` in a process of its own, which an interrupt ends within a second."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # If ignored, exit codes of children are lost.
    interrupt_once()
    code = main()
    if code > SIGNALLED:  # Threads may still work on files, and Ray may crash at a normal end.
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Returns:
        The exit code: 0 if all went well, 2 if a file failed or the command is wrong, 130 if
        interrupted by Ctrl-C and 143 by SIGTERM, 141 if the reader of the output was closed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # It is closed, and a data file would get its number.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    hush_libraries()
    try:
        options = _parse(sys.argv[1:] if arguments is None else arguments)
        code: int = options.run(options)
        sys.stdout.flush()
    except KeyboardInterrupt as error:
        complain("; ".join(["l3: interrupted", *error.args[1:]]))
        return SIGNALLED + signal_of(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except (MemoryError, OSError, UsageError) as error:
        text = "not enough memory" if isinstance(error, MemoryError) else str(error)
        if isinstance(error, OSError):
            place = f"{error.filename}: " if error.filename else ""
            text = f"{place}{error.strerror or error}"
        complain(f"l3: {text}")
        return EXIT_FAILED
    return code


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = make_parser()
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    name, *rest = arguments or ["--help"]
    if name in commands.choices:
        options: argparse.Namespace = commands.choices[name].parse_mixed(rest)
        return options
    return parser.parse_args([name, *rest])


def make_parser() -> Parser:
    """The parser of the command line."""
    parser = Parser(prog="l3", description="Lossless images that decode in parallel.")
    parser.add_argument("--version", action="version", version=f"l3 {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    single_files.add_commands(commands)
    for command in (info, verify, view, convert, profiling, planning):
        command.add_command(commands)
    return parser
