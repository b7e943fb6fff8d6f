"""Working memory of a decode beyond its input and its output, for 1, 2 and 8 threads.

    python benchmarks/memory.py

Peak resident memory as Linux counts it (VmHWM, reset before the decode), on a
generated image of 48 MB. Each number comes from a process of its own. Linux keeps
the count in steps: a thread may be off by some 256 KiB.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
from peers import machine
from report import RESULTS, markdown_table, write_results

import l3dali

THREADS = (1, 2, 8)


def _status_kib(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise SystemExit(f"no {field} in /proc/self/status: this benchmark needs Linux")


def working_kib(mode: l3dali.Mode, threads: int) -> int:
    """Decodes once in this process; returns KiB beyond input and output."""
    rng = np.random.default_rng(1)
    ramp = np.add.outer(np.arange(4000), np.arange(4000))[..., None]
    image = ((ramp + rng.integers(0, 12, (4000, 4000, 3))) % 256).astype(np.uint8)
    data = l3dali.encode(image, mode=mode, threads=0)
    raw_kib = image.nbytes // 1024
    del ramp, image
    l3dali.decode(l3dali.encode(np.zeros((300, 300, 3), np.uint8), mode=mode), threads=threads)
    before = _status_kib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    decoded = l3dali.decode(data, threads=threads)
    after = _status_kib("VmHWM")
    assert decoded.nbytes // 1024 == raw_kib
    return after - before - raw_kib


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--child", nargs=2, metavar=("MODE", "THREADS"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    if args.child:
        print(working_kib(args.child[0], int(args.child[1])))
        return

    results = {}
    for mode in l3dali.MODES:
        for threads in THREADS:
            command = [sys.executable, __file__, "--child", mode, str(threads)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            results[f"{mode}, {threads} threads"] = int(output)
    rows = [[name, f"{kib}"] for name, kib in results.items()]
    text = f"{machine()}.\n\n" + markdown_table(["decode", "KiB beyond input and output"], rows)
    write_results("memory", "Working memory of a decode", text, results, args.out)


if __name__ == "__main__":
    main()
