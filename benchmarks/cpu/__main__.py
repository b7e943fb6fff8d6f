"""The CPU's benchmarks, cases of one runner.

    python -m benchmarks.cpu CASE... [--data DIR] [--out DIR] [options of the case]

A case is a function of its name; its arguments are its options, `--help` lists them, and its
docstring is on its page.
Each writes CASE.md and CASE.json, and CASE.png if it draws. Several run one after another, each
in a process of its own.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cpu.case import Result
from benchmarks.peers import machine
from benchmarks.report import RESULTS, save_results

# Modules of benchmarks.cpu and their cases.
MODULES = {
    "codecs": ("size", "speed", "jpeg", "effort"),
    "memory": ("memory",),
    "loaders": ("loaders", "jpeg_loaders"),
    "torch_loader": ("torch_loader",),
    "buckets": ("buckets",),
    "dali_windows": ("roi", "jpeg_dali"),
    "reader": ("reader",),
    "convert": ("convert",),
    "liquid": ("liquid",),
}
CASES = {case: module for module, cases in MODULES.items() for case in cases}


def find_case(name: str) -> Callable[..., Any]:
    """The function; its module may need DALI."""
    module = importlib.import_module(f"benchmarks.cpu.{CASES[name]}")
    return getattr(module, name)  # type: ignore[no-any-return]


def parse(name: str, arguments: Sequence[str]) -> tuple[dict[str, Any], Path]:
    """The arguments of a case, by its signature, and where its results go."""
    case = find_case(name)
    parser = argparse.ArgumentParser(
        f"python -m benchmarks.cpu {name}",
        description=case.__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parameters = inspect.signature(case).parameters
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    if "data" not in parameters:
        parser.add_argument("--data", help="ignored")
    for key, parameter in parameters.items():
        flag, default = f"--{key.replace('_', '-')}", parameter.default
        if key == "out":
            continue
        if isinstance(default, bool):
            parser.add_argument(flag, action="store_true", help=" ")
        elif isinstance(default, tuple):
            parser.add_argument(flag, nargs="+", default=default, help=" ")
        elif isinstance(default, (int, float)):
            parser.add_argument(flag, type=type(default), default=default, help=" ")
        else:
            required = default is inspect.Parameter.empty
            default = None if required else default
            parser.add_argument(flag, type=Path, required=required, default=default, help=" ")
    options = vars(parser.parse_args(arguments))
    data, out = options.get("data"), options["out"]
    if isinstance(data, Path) and not data.is_dir():
        parser.error(f"{data}: no such folder")
    return {key: options[key] for key in parameters}, out


def run(name: str, options: dict[str, Any], out: Path) -> None:
    """Runs a case and writes its results; those that come one by one as they come."""
    before = os.getloadavg()[0]
    case = find_case(name)
    title, _, about = inspect.cleandoc(case.__doc__ or name).partition("\n")
    numbers = [f"{key} {value}" for key, value in options.items() if type(value) in (int, float)]
    found = case(**options)
    page = ""
    for result in [found] if isinstance(found, Result) else found:
        load = (before, os.getloadavg()[0])
        dali = sys.modules.get("nvidia.dali")
        where = [machine(), *([f"DALI {dali.__version__}"] if dali else [])]
        where += [f"{os.cpu_count()} cores", f"load {load[0]:.1f} before and {load[1]:.1f} after"]
        text = f"{', '.join([*where, *numbers])}.\n\n{about.strip()}\n\n{result.text}"
        data = {"load": load, **result.data}
        page = save_results(name, title.rstrip("."), text, data, out, result.code)
        if result.draw:
            result.draw(out / f"{name}.png")
    print(page)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the cases of the command line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    names = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    unknown = set(names) - CASES.keys()
    if unknown or not names:
        complaint = f"no case {', '.join(sorted(unknown))}; " if unknown else __doc__
        raise SystemExit(f"{complaint}cases: {', '.join(CASES)}")
    rest = words[len(names) :]
    asked = [(name, *parse(name, rest)) for name in names]
    if len(asked) == 1:
        run(*asked[0])
        return
    for name in names:
        subprocess.run([sys.executable, "-m", "benchmarks.cpu", name, *rest], check=True)


if __name__ == "__main__":
    main()
