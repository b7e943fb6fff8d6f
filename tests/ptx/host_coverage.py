"""Which lines of the host's CUDA path no run over the stand-in runtime executes.

    python tests/ptx/host_coverage.py --out build/simulate/host_coverage.md

Runs what `make simulate-all` built: the test of streams, with failures too, the GPU test on some
files, the tests of the emulated GPU and the adapters.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

from removals import command_of
from simulate import (
    BATCH,
    BUILD,
    COMPARE,
    EXTENSION,
    NVIMGCODEC,
    OPERATOR,
    SITE,
    STREAMS,
    Run,
    adapter_runs,
    execute,
    failure_runs,
    test_files,
    usual_runs,
)

_FOLDER = (BUILD / "host_coverage").absolute()
_ENGINE = "src/cuda/engine"
ENGINE = ("batch_decoder.cc", "batch_layout.cc", "cuda_device.cc", "encoded_cache.cc", "launch.cc")
_OF_CUDA = ("cuda_device.cc", "launch.cc")  # the rest knows a GPU by its interface
_LIBRARY = f"{_ENGINE}/cuda_library.cc"
_MODULE = SITE / f"l3dali/_cuda{sysconfig.get_config_var('EXT_SUFFIX')}"
# Sources by program, beside the engine's.
PROGRAMS: dict[Path, tuple[str, ...]] = {
    STREAMS: (),
    COMPARE: (),
    BATCH: (),
    OPERATOR: ("tests/ptx/operator_test.cc", _LIBRARY),
    NVIMGCODEC: ("src/nvimgcodec/gpu_decoder.cc",),
    EXTENSION: ("src/nvimgcodec/gpu_library.cc",),
    _MODULE: ("src/python/cuda_module.cc", _LIBRARY),
}
# What is reported: sources by the file that lists their lines.
REPORTED = {
    **{f"{_ENGINE}/{source}": f"{_ENGINE}/{source}" for source in ENGINE},
    _LIBRARY: _LIBRARY,
    "src/op/mixed_backend.h": "tests/ptx/operator_test.cc",
    "src/nvimgcodec/gpu_decoder.cc": "src/nvimgcodec/gpu_decoder.cc",
    "src/nvimgcodec/gpu_library.cc": "src/nvimgcodec/gpu_library.cc",
    "src/python/cuda_module.cc": "src/python/cuda_module.cc",
    "src/python/cuda_decoder.h": "src/python/cuda_module.cc",
    "src/python/gpu_meter.h": "src/python/cuda_module.cc",
}
_FILES = 12  # one of so many is compared


def object_of(source: str) -> Path:
    """The object that counts lines."""
    return _FOLDER / f"{source.replace('/', '_')}.o"


def compile_source(source: str) -> None:
    """As the build does it, without optimization."""
    path = str(Path(source).absolute())
    entries = json.loads((BUILD / "compile_commands.json").read_text())
    command = shlex.split(next(e["command"] for e in entries if e["file"] == path))
    kept = [word for word in command[: command.index("-o")] if not word.startswith("-flto")]
    options = ["-O0", "-w", "--coverage", "-c", path, "-o", str(object_of(source))]
    subprocess.run([*kept, *options], cwd=BUILD, check=True)


def link(program: Path) -> None:
    """The same program, with objects that count; beside the engine that it had."""
    words = shlex.split(command_of(str(program.relative_to(BUILD))))
    has_cuda = any(word.endswith("/launch.cc.o") for word in words)
    engine = [source for source in ENGINE if has_cuda or source not in _OF_CUDA]
    sources = [*(f"{_ENGINE}/{source}" for source in engine), *PROGRAMS[program]]
    names = tuple(f"/{Path(source).name}.o" for source in sources)
    kept = [word for word in words if not word.endswith(names)]
    at = kept.index("-o")
    made = _FOLDER / kept[at + 1]
    made.parent.mkdir(parents=True, exist_ok=True)
    kept[at + 1] = str(made)
    kept[at:at] = [*map(str, map(object_of, sources)), "--coverage"]
    subprocess.run(kept, cwd=BUILD, check=True)


def build() -> None:
    sources = {f"{_ENGINE}/{source}" for source in ENGINE}.union(*PROGRAMS.values())
    for source in sorted(sources):
        compile_source(source)
    for program in PROGRAMS:
        link(program)
    # The library beside the extension counts nothing: the operator's does.
    library = SITE / "l3dali/libl3_cuda.so"
    target = _FOLDER / library.relative_to(BUILD)
    target.unlink(missing_ok=True)
    target.symlink_to(library.absolute())


def runs() -> list[Run]:
    compare = Run("compare", [COMPARE, *test_files()[::_FILES]])
    found = [*usual_runs(), *failure_runs()[::40], compare, *adapter_runs(True)]
    moved = []
    for run in found:
        environment = dict(run.environment)
        command = list(run.command)
        if "L3_SIMULATED_CUDA" in environment:
            module = Path(environment["L3_SIMULATED_CUDA"]).relative_to(BUILD)
            environment["L3_SIMULATED_CUDA"] = str(_FOLDER / module)
        else:
            command[0] = _FOLDER / Path(command[0]).absolute().relative_to(BUILD.absolute())
        moved.append(Run(run.name, command, environment))
    return moved


def missed() -> dict[str, list[tuple[int, str]]]:
    """By source: number and text of lines that nothing ran."""
    found: dict[str, list[tuple[int, str]]] = {}
    for source, compiled in REPORTED.items():
        data = object_of(compiled).with_suffix(".gcda")
        shown = subprocess.run(
            ["gcov", "-t", data], check=True, capture_output=True, text=True
        ).stdout
        own = re.split(r"^ *-: *0:Source:", shown, flags=re.MULTILINE)
        (part,) = (text for text in own if text.split("\n", 1)[0].endswith(source))
        lines = re.findall(r"^ *#####\*?: *(\d+):(.*)$", part, re.MULTILINE)
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
