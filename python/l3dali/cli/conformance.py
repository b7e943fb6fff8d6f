"""The command `l3 conformance`: its arguments, and what it says."""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from typing import TYPE_CHECKING

from l3dali.cli.arguments import (
    add_jobs_option,
    exit_codes,
    new_command,
    path_argument,
    positive_float,
)
from l3dali.cli.batch import interrupt_once
from l3dali.console import complain, print_table, printable, progress

if TYPE_CHECKING:
    from l3dali.cli.arguments import Commands
    from l3dali.cli.check_decoder import Result

EXIT_DIFFERS = 1


def add_command(commands: Commands) -> None:
    """Adds `l3 conformance` to the commands of the parser `l3`."""
    parser = new_command(
        commands,
        "conformance",
        run,
        "Check a decoder against files that show each rule of the format.",
        """
        l3 conformance tests                                     this decoder
        l3 conformance tests --decoder './mine {input} {output}'  another one
        """,
        exit_codes("1    the decoder differs"),
    )
    parser.add_argument(
        "folder",
        type=path_argument,
        metavar="FOLDER",
        help="with conformance.json and the files that it names: tests/ of the sources of l3dali",
    )
    parser.add_argument(
        "--decoder",
        metavar="COMMAND",
        help="writes the samples of {input} to {output} and exits with 0, or exits with the number "
        "of the Status that docs/format.md gives the file; default: l3dali itself",
    )
    parser.add_argument(
        "--any-status",
        action="store_true",
        help="that a file is refused is enough, by whatever Status",
    )
    parser.add_argument(
        "--timeout",
        type=positive_float,
        default=60.0,
        metavar="S",
        help="seconds that COMMAND may take for a file; default: %(default)g",
    )
    parser.add_argument("--json", action="store_true", help="all files as a JSON list")
    parser.add_argument("-q", "--quiet", action="store_true", help="print differences alone")
    add_jobs_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Decodes all files and says where the decoder differs; gives the exit code."""
    from l3dali.cli import check_decoder

    cases = check_decoder.read_manifest(arguments.folder)
    decoder: check_decoder.Decoder = check_decoder.own_decoder
    if arguments.decoder is not None:
        decoder = check_decoder.CommandDecoder(arguments.decoder, timeout=arguments.timeout)
    quiet = arguments.quiet or arguments.json
    found = check_decoder.run(cases, decoder, any_status=arguments.any_status, jobs=arguments.jobs)
    interrupt_once()
    with closing(found):
        results = list(progress(found, len(cases), quiet=quiet))
    wrong = [result for result in results if result.difference]
    if arguments.json:
        print(json.dumps([_fields(result) for result in results], indent=2))
    elif not arguments.quiet:
        _print_sections(results)
    for result in wrong:
        complain(
            f"l3: {printable(result.case.name)}: {result.difference}; it shows "
            f"{printable('; '.join(result.case.rules))}"
        )
    if not quiet:
        right = len(results) - len(wrong)
        print(f"{right} of {len(results)} files are decoded or refused as docs/format.md says")
    return EXIT_DIFFERS if wrong else 0


def _fields(result: Result) -> dict[str, object]:
    case = result.case
    return {
        "file": case.name,
        "status": case.status,
        "rules": case.rules,
        "difference": result.difference or None,
    }


def _print_sections(results: list[Result]) -> None:
    """A row for each section of the format, with the files that show its rules."""
    sections = dict.fromkeys(name for result in results for name in result.case.sections)
    rows = []
    for section in sorted(sections):
        shown = [result for result in results if section in result.case.sections]
        refused = sum(result.case.status != "kOk" for result in shown)
        wrong = sum(bool(result.difference) for result in shown)
        rows.append([section, str(len(shown) - refused), str(refused), str(wrong)])
    print_table(["section", "to decode", "to refuse", "wrong"], *rows)
