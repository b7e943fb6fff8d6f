"""Fills the tables of README.md and docs/benchmarks.md from benchmarks/results.

    python tools/fill_readme.py [--check | --check-age]

A table stands between `<!-- name -->` and `<!-- /name -->`. No number of it is written by hand.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
MEASURED = ("encoder", "src/base", "src/core", "src/cpu", "src/format", "src/op", "src/output")

PEER_SETS = {
    "photo/kodak": "photographs",
    "cityscapes": "driving scenes",
    "gray16/dicom": "CT and MR, 16 bits",
    "mask": "label maps",
}
KINDS = {
    "photo/large": "photographs of 2 megapixels",
    "cityscapes": "driving scenes (Cityscapes)",
    "kitti": "driving scenes (KITTI)",
    "gray16/dicom": "CT and MR slices, 16 bits",
    "mask": "label maps",
}
JPEG_KINDS = {"jpeg": "of ImageNet", "photo/large": "of 2 megapixels"}
OURS = ("L3 rans", "L3 packed")
PIPELINE_SET = "photo/large"
GPU = "nvidia_h200"


def read(name: str) -> dict[str, Any]:
    """The results of a benchmark."""
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return content


def origin(results: dict[str, Any]) -> str:
    """Machine, date and commit."""
    made = results["made"]
    return f"{made['machine']}, {made['date']}, code of commit {made['commit']}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """In Markdown, numbers to the right, our rows in bold."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    lines += [[f"**{row[0]}**" if row[0].startswith("L3") else row[0], *row[1:]] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def codecs() -> str:
    """One core on Kodak, RGB8."""
    results = read("peers/speed")
    rows = []
    for codec, total in results["photo/kodak"].items():
        pixels = total["raw"] / 3
        rows.append(
            [
                codec,
                f"{8 * total['bytes'] / pixels:.2f}",
                f"{total['raw'] / total['decode'] / 1e6:.0f}",
                f"{total['raw'] / total['encode'] / 1e6:.0f}",
            ]
        )
    head = ["codec", "bits per pixel", "decode MB/s", "encode MB/s"]
    return f"{origin(results)}:\n\n{table(head, rows)}"


def times(values: list[float]) -> str:
    """Ratios of both codings, with two or three digits."""
    return " / ".join(f"{v:.{2 if v < 3 else 1 if v < 10 else 0}f}" for v in values)


def peers() -> str:
    """Of each codec and kind of images, how many times smaller and faster than PNG; one run."""
    results = read("peers/speed")
    rows = []
    for codec in dict.fromkeys(codec for name in PEER_SETS for codec in results[name]):
        row = [codec]
        for name in PEER_SETS:
            png, total = results[name]["PNG -6"], results[name].get(codec)
            ratios = total and [png[key] / total[key] for key in ("bytes", "decode")]
            row.append(times(ratios) if ratios else "-")
        rows.append(row)
    return f"{origin(results)}:\n\n{table(['codec', *PEER_SETS.values()], rows)}"


def expected() -> str:
    """How many times smaller and faster than PNG, by kind and number of images; rans / packed."""
    speeds = read("png/speed")
    on_cpu, on_gpu = read("pipeline_cpu"), read(f"{GPU}/pipeline_mixed")
    gpu = f"DALI on an H200 with {on_gpu['cores']} cores"
    rows = []
    for name, title in KINDS.items():
        png = speeds[name]["PNG -6"]
        pairs = [
            times([png[key] / speeds[name][codec][key] for codec in OURS])
            for key in ("bytes", "decode")
        ]
        rows.append([f"{speeds['images'][name]} {title}", *pairs])
        if name == PIPELINE_SET:
            for title, pipeline, task, ratio, suffix in (
                ("DALI on two cores", on_cpu, "whole", "png_cpu_ratio", ""),
                ("DALI on two cores, crops of 512x512", on_cpu, "crops", "png_cpu_ratio", ""),
                (gpu, on_gpu, "whole", "times_png", ""),
                (f"{gpu}, cached there", on_gpu, "whole", "times_png", ", cached"),
            ):
                found = {
                    row["format"]: row[ratio]
                    for row in pipeline["rows"]
                    if row["set"] == name and row["task"].startswith(task)
                }
                rows.append([f"the same, {title}", "", times([found[c + suffix] for c in OURS])])
    head = ["images", "times smaller than PNG", "times faster than PNG"]
    dates = [results["made"]["date"] for results in (speeds, on_cpu, on_gpu)]
    text = "Measured on one core of an Intel Xeon ({}), in DALI on two ({}), on an H200 ({})."
    return f"{table(head, rows)}\n\n{text.format(*dates)}"


def jpeg() -> str:
    """What JPEG files become: bytes, and speed over libjpeg-turbo's; by kind and number."""
    on_core, in_dali = read("jpeg"), read("jpeg_dali")
    rows = []
    for name, title in JPEG_KINDS.items():
        theirs, ours = (on_core[name][codec] for codec in ("JPEG, libjpeg-turbo", "L3 jpeg"))
        ratios = [theirs["decode"] / ours["decode"]]
        ratios += [in_dali[name][task]["ratio"] for task in ("whole images", "random crops")]
        size = f"{ours['bytes'] / theirs['bytes']:.2f}"
        rows.append([f"{in_dali[name]['files']} {title}", size, *map(times, ([r] for r in ratios))])
    head = ["JPEG files", "bytes", "speed", "in DALI", "its random crops"]
    dates = ", ".join(dict.fromkeys(results["made"]["date"] for results in (on_core, in_dali)))
    return f"{table(head, rows)}\n\nOver .jpg and libjpeg-turbo; one core, DALI on two; {dates}."


TABLES: dict[Path, dict[str, Callable[[], str]]] = {
    ROOT / "README.md": {"expected": expected, "jpeg": jpeg},
    ROOT / "docs" / "benchmarks.md": {"codecs": codecs, "peers": peers},
}


def fill(page: Path) -> str:
    """A page with all its tables as the results say."""
    text = page.read_text()
    for name, make in TABLES[page].items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        if (text.count(begin), text.count(end)) != (1, 1):
            raise SystemExit(f"{page.name} needs one table {begin.strip()} ... {end.strip()}")
        head, _, rest = text.partition(begin)
        tail = rest.partition(end)[2]
        text = f"{head}{begin}{make()}\n{end}{tail}"
    return text


def stale() -> list[str]:
    """Results of the tables that are older than the newest change of what they measured."""
    older = []
    for name in ("png/speed", "pipeline_cpu"):
        commit = read(name)["made"]["commit"]
        command = ["git", "diff", "--quiet", commit, "HEAD", "--", *MEASURED]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            older.append(f"{name}.json is of {commit}; {', '.join(MEASURED)} have changed since")
    return older


def main() -> int:
    """Fills the tables, or says whether they are up to date, or whether their results are."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if out of date")
    parser.add_argument("--check-age", action="store_true", help="1 if results are too old")
    options = parser.parse_args()
    if options.check_age:
        older = stale()
        print("\n".join(older) or "all results are of the newest code")
        return int(bool(older))
    old = False
    for page in TABLES:
        text = fill(page)
        old |= text != page.read_text()
        if not options.check:
            page.write_text(text)
    return int(options.check and old)


if __name__ == "__main__":
    sys.exit(main())
