"""Which lines of the engine's host code no run over the stand-in runtime executes.

    python tests/ptx/host_coverage.py --out build/simulate/host_coverage.md

Runs the test of streams, with failures too, and the GPU test on some files.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from removals import command_of
from simulate import BUILD, COMPARE, STREAMS, Run, execute, failure_runs, test_files, usual_runs

_FOLDER = (BUILD / "host_coverage").absolute()
_ENGINE = Path("src/cuda/engine")
SOURCES = ["batch_decoder.cc", "batch_layout.cc", "cuda_device.cc", "encoded_cache.cc", "launch.cc"]
_FILES = 12  # one of so many is compared


def build() -> None:
    """The programs, with objects that count lines."""
    command = ["g++", "-std=c++17", "-O0", "-w", "--coverage", "-I", "src", "-isystem"]
    cache = (BUILD / "CMakeCache.txt").read_text()
    command += re.findall(r"^L3_CUDART_INCLUDE_DIR:\w+=(.*)", cache, re.MULTILINE)
    objects = []
    for source in SOURCES:
        made = _FOLDER / f"{source}.o"
        subprocess.run([*command, "-c", _ENGINE / source, "-o", made], check=True)
        objects.append(str(made))
    for program in (STREAMS, COMPARE):
        link = command_of(program.name).split()
        kept = [word for word in link if not word.endswith(tuple(f"{s}.o" for s in SOURCES))]
        at = kept.index("-o")
        kept[at + 1] = str(_FOLDER / program.name)
        kept[at:at] = [*objects, "--coverage"]
        subprocess.run(kept, cwd=BUILD, check=True)


def runs() -> list[Run]:
    compare = Run("compare", [COMPARE, *test_files()[::_FILES]])
    found = [*usual_runs(), *failure_runs()[::20], compare]
    return [
        Run(run.name, [_FOLDER / Path(run.command[0]).name, *run.command[1:]], run.environment)
        for run in found
    ]


def missed() -> dict[str, list[tuple[int, str]]]:
    """By source: number and text of lines that nothing ran."""
    found: dict[str, list[tuple[int, str]]] = {}
    for source in SOURCES:
        data = _FOLDER / f"{source}.gcda"
        shown = subprocess.run(
            ["gcov", "-t", data], cwd=_FOLDER, check=True, capture_output=True, text=True
        ).stdout
        own = re.split(r"^ *-: *0:Source:", shown, flags=re.MULTILINE)
        (part,) = (text for text in own if text.split("\n", 1)[0].endswith(source))
        lines = re.findall(r"^ *#####: *(\d+):(.*)$", part, re.MULTILINE)
        found[source] = [(int(number), text.strip()) for number, text in lines]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=BUILD / "host_coverage.md")
    arguments = parser.parse_args()
    _FOLDER.mkdir(parents=True, exist_ok=True)
    for old in _FOLDER.glob("*.gcda"):
        old.unlink()
    build()
    wrong = [what for run in runs() if (what := execute(run))]
    rows = ["| line | never executed |", "|---|---|"]
    for source, lines in missed().items():
        rows += [f"| {source}:{number} | `{text}` |" for number, text in lines]
    arguments.out.write_text("\n".join(rows) + "\n")
    print("\n".join([*rows, *wrong]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
