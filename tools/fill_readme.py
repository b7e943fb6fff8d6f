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

CODECS = ("L3 packed", "L3 rans", "PNG -6", "WebP", "QOI", "HTJ2K", "JXL e1", "JXL e3", "JXL e7")
COMPARED = {
    "L3 packed": "L3 packed",
    "L3 rans": "L3 rans",
    "WebP": "WebP, lossless",
    "JXL e3": "JPEG XL, effort 3",
    "JPEG 95": "JPEG 95, lossy",
}
PIPELINE_SET, PIPELINE_THREADS = "photo/large", 2
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
    results = read("speed")
    rows = []
    for codec in CODECS:
        total = results["photo/kodak"][codec]
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


def compared() -> str:
    """Bytes, decoding on a core, and pipelines through DALI, all beside PNG."""
    speeds, pipelines = read("speed"), read("pipeline_cpu")
    of_set = {
        (row["format"], row["task"].split()[0]): row
        for row in pipelines["rows"]
        if (row["set"], row["threads"]) == (PIPELINE_SET, PIPELINE_THREADS)
    }
    cores = speeds[PIPELINE_SET]
    png = cores["PNG -6"]
    png_bytes = of_set["PNG -6", "whole"]["encoded_bytes"]
    rows = []
    for name, title in COMPARED.items():
        whole, crops = (of_set.get((name, task)) for task in ("whole", "crops"))
        core = cores.get(name)
        if core is not None:
            size = core["bytes"] / png["bytes"]
        elif whole is not None:
            size = whole["encoded_bytes"] / png_bytes
        rows.append(
            [
                title,
                f"{size:.2f}",
                f"{png['decode'] / core['decode']:.1f}" if core else "",
                *(f"{row['png_cpu_ratio']:.1f}" if row else "" for row in (whole, crops)),
            ]
        )
    head = ["beside PNG", "bytes", "decoding, one core", "DALI, whole images", "DALI, crops"]
    text = f"Two measurements of the set `{PIPELINE_SET}`. Bytes and one core: {origin(speeds)}"
    text += f". DALI: {origin(pipelines)}"
    return f"{text}.\n\n{table(head, rows)}"


def gpu() -> str:
    """Kernels and pipelines of the GPU that has run them."""
    host = read(f"{GPU}/host")
    kernels = read(f"{GPU}/kernels")["rows"]
    pipelines = read(f"{GPU}/pipeline_mixed")
    of_format = {row["format"]: row for row in pipelines["rows"]}

    def kernel(codec: str, batch: int) -> dict[str, Any]:
        of_codec = [row for row in kernels if row["codec"] == codec and row["batch"] == batch]
        return max(of_codec, key=lambda row: float(row["pixel_bytes"]))

    rows = []
    for codec in ("L3 packed", "L3 rans"):
        direct, cached = of_format[codec], of_format[f"{codec}, cached"]
        rows.append(
            [
                codec,
                f"{kernel(codec, 256)['pixel_gb_s']:.0f}",
                f"{kernel(codec, 1)['median_us']:.0f}",
                f"{direct['images_per_s']:.0f}",
                f"{direct['times_png']:.0f}",
                f"{cached['times_png']:.0f}",
            ]
        )
    threads = of_format["L3 rans"]["threads"]
    head = ["", "GB/s of pixels", "one image, µs", f"DALI, {threads} threads, images/s"]
    head += ["over PNG's", "out of the GPU's cache, over PNG's"]
    text = (
        f"On an {host['gpu']}, driver {host['driver']}, {host['date']}. Kernels, on 256 images of "
    )
    text += (
        f"2048x1024 in its memory, and on one: code of commit {host['made']['commit']}. DALI, from "
    )
    made = pipelines["made"]
    text += f"files of `{PIPELINE_SET}`: code of commit {made['commit']}, {made['date']}"
    return f"{text}.\n\n{table(head, rows)}"


TABLES: dict[Path, dict[str, Callable[[], str]]] = {
    ROOT / "README.md": {"compared": compared, "gpu": gpu},
    ROOT / "docs" / "benchmarks.md": {"codecs": codecs},
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
    for name in ("speed", "pipeline_cpu"):
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
