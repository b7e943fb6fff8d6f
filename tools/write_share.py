"""Writes the man page of `l3` and its completions for shells into share/.

python tools/write_share.py [--check]
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import shtab

from l3dali.cli import make_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARE = Path(__file__).resolve().parent.parent / "share"
COMPLETIONS = {
    "bash": "bash-completion/completions/l3",
    "zsh": "zsh/site-functions/_l3",
    "fish": "fish/vendor_completions.d/l3.fish",
}


def roff(text: str) -> str:
    """Text that man shows as it stands."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in text.split("\n"))


def names_of(action: argparse.Action) -> str:
    """An argument as the command line has it: its option strings, and what follows them."""
    shown = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    names = [f"\\fB{roff(name)}\\fR" for name in action.option_strings]
    value = "" if action.nargs == 0 else f"\\fI{roff(str(shown))}\\fR"
    return ", ".join(names) + " " * bool(names and value) + value


def section(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """A command: what it does, its arguments, its examples."""
    yield f".SH {name.upper()}\n{roff(parser.description or '')}"
    formatter = parser._get_formatter()
    for action in parser._actions:
        if action.help != argparse.SUPPRESS:
            yield f".TP\n{names_of(action)}\n{roff(formatter._expand_help(action))}"
    if parser.epilog:
        yield f".PP\n.nf\n{roff(parser.epilog)}\n.fi"


def man_page(parser: argparse.ArgumentParser) -> str:
    """l3(1)."""
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    parts = [
        '.TH L3 1 "" "L3" "User Commands"',
        ".SH NAME\nl3 \\- encode, decode and convert lossless L3 images",
        ".SH SYNOPSIS\n\\fBl3\\fR \\fICOMMAND\\fR [\\fIoptions\\fR] ...",
        ".SH DESCRIPTION\nEach command has a section of its own. "
        "\\fBl3 \\-\\-version\\fR prints the version.",
    ]
    for name, command in commands.choices.items():
        parts += section(f"l3 {name}", command)
    return "\n".join(parts) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Writes the files; with --check returns 1 if one of them is out of date."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--check", action="store_true", help="write nothing; 1 if out of date")
    check = options.parse_args(arguments).check
    parser = make_parser()
    texts = {path: shtab.complete(parser, shell) for shell, path in COMPLETIONS.items()}
    texts["man/man1/l3.1"] = man_page(parser)
    old = 0
    for name, of_this_host in texts.items():
        text = re.sub(r"default here(\\?): \d+", r"default\1: as many as cores", of_this_host)
        path = SHARE / name
        if path.exists() and path.read_text() == text:
            continue
        old = 1
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return old if check else 0


if __name__ == "__main__":
    sys.exit(main())
