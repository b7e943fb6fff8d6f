"""The command `l3`: images to L3 files and back.

One module a command; `arguments` and `work` hold what they share.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from l3dali import __version__
from l3dali.cli import (
    bench,
    convert,
    decode,
    encode,
    info,
    plan,
    profile,
    thumbnail,
    verify,
    view,
)
from l3dali.cli.arguments import Parser, new_command
from l3dali.cli.batch import signal_of
from l3dali.cli.report import EXIT_FAILED
from l3dali.console import complain, hush_libraries
from l3dali.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

EXIT_BROKEN_PIPE = 141
SIGNALLED = 128  # and the number of the signal

_COMMANDS = (
    encode,
    decode,
    info,
    verify,
    view,
    thumbnail,
    bench,
    convert,
    profile,
    plan,
)  # in the order of `l3 --help`


def run() -> NoReturn:
    """`main` for a process of its own, which does not wait for threads that nobody needs."""
    for number in (1, 2):  # Another program may share a stream, and have it not wait.
        with suppress(OSError):
            os.set_blocking(number, True)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # Where it is ignored, children end with 0.
    code = main()
    others = [thread for thread in threading.enumerate() if not thread.daemon]
    # Ray 2.60 may crash at an exit amid its work. It ends its processes by one that stays.
    if code > SIGNALLED and (len(others) > 1 or "ray" in sys.modules):
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(code)
    if code > SIGNALLED:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # The interpreter's end would undo a handler.
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Returns:
        The exit code: 0 if all went well, 2 if a file failed or the command makes no sense, 130
        if interrupted by Ctrl-C and 143 by SIGTERM, 141 if the reader of the output has gone.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # The caller has closed it, and a file would get its number.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    hush_libraries()
    try:
        given = sys.argv[1:] if arguments is None else arguments
        options = make_parser().parse_args(given or ["help"])
        code: int = options.run(options)
        sys.stdout.flush()
    except KeyboardInterrupt as error:
        complain("; ".join(["l3: interrupted", *error.args[1:]]))
        return SIGNALLED + signal_of(error)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except UsageError as error:
        complain(f"l3: {error}")
        return EXIT_FAILED
    except MemoryError:
        complain("l3: there is not enough memory")
        return EXIT_FAILED
    except RuntimeError as error:
        if "can't start new thread" not in str(error):
            raise
        complain("l3: no more threads can be started")
        return EXIT_FAILED
    except OSError as error:
        # The system names none of these; errors without a number say where they are.
        unnamed = {errno.ENOENT: "the current folder", errno.EMFILE: "too many jobs at once (-j)"}
        place = error.filename or (error.errno and unnamed.get(error.errno, "standard output"))
        complain(f"l3: {place}: {error.strerror or error}" if place else f"l3: {error}")
        return EXIT_FAILED
    return code


def make_parser() -> Parser:
    """The parser of the command line; shtab makes completions for shells of it."""
    parser = Parser(prog="l3", description="Lossless images that decode in parallel.")
    parser.add_argument("--version", action="version", version=f"l3 {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_command(commands)

    def show_help(options: argparse.Namespace) -> int:
        (commands.choices[options.command] if options.command else parser).print_help()
        return 0

    helper = new_command(
        commands,
        "help",
        show_help,
        "Show the help of l3, or of a command.",
        """
        l3 help
        l3 help encode
        """,
    )
    helper.add_argument("command", nargs="?", choices=[*commands.choices], metavar="COMMAND")
    return parser
