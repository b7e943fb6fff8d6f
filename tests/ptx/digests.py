"""Compares what two GPUs made of the same files, one of them the PTX machine.

    python tests/ptx/digests.py build/gpu_results/digests.txt build/simulate/digests.txt

Each line is of a file, a way to decode it and a window. Both lists have the same lines.
"""

from __future__ import annotations

import sys
from pathlib import Path


def read(path: Path) -> dict[str, str]:
    """Digests, by what they are of."""
    lines = (line.split(" ", 1) for line in path.read_text().splitlines())
    return {what: digest for digest, what in lines}


def differences(a: dict[str, str], b: dict[str, str]) -> list[str]:
    """What is in one list alone, or has other digests."""
    return [what for what in sorted(a.keys() | b.keys()) if a.get(what) != b.get(what)]


def main() -> int:
    first, second = (read(Path(name)) for name in sys.argv[1:3])
    found = differences(first, second)
    for what in found:
        print(f"{what}: {first.get(what, 'missing')} and {second.get(what, 'missing')}")
    print(f"{len(first)} digests, {len(found)} differences")
    return int(bool(found) or not first)


if __name__ == "__main__":
    sys.exit(main())
