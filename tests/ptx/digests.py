"""Compares what two GPUs made of the same files, one of them the PTX machine.

    python tests/ptx/digests.py build/gpu_results/digests.txt build/simulate/digests.txt

Each line is of a file, a way to decode it and a window. Both lists have the same lines.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_SHOWN = 20  # differences


def read(path: Path) -> dict[str, str]:
    """Digests, by what they are of. Ends the program if there are none."""
    try:
        rows = path.read_text().splitlines()
    except OSError as error:
        why = f"{error.strerror}: the program that writes it has not run"
        raise SystemExit(f"{path}: {why}") from None
    digests: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        found = re.fullmatch(r"([0-9a-f]{16}) (.+)", row)
        if found is None or found[2] in digests:
            raise SystemExit(f"{path}:{number}: no digest, or one more of the same: {row[:200]}")
        digests[found[2]] = found[1]
    if not digests:
        raise SystemExit(f"{path}: empty: the program that writes it was cut off")
    return digests


def differences(a: dict[str, str], b: dict[str, str]) -> list[str]:
    """What is in one list alone, or has other digests."""
    return [what for what in sorted(a.keys() | b.keys()) if a.get(what) != b.get(what)]


def main() -> int:
    if len(sys.argv) != 3:
        raise SystemExit("usage: digests.py FILE FILE")
    first, second = (read(Path(name)) for name in sys.argv[1:])
    found = differences(first, second)
    for what in found[:_SHOWN]:
        print(f"{what}: {first.get(what, 'missing')} and {second.get(what, 'missing')}")
    if len(found) > _SHOWN:
        print(f"and {len(found) - _SHOWN} more")
    print(f"{len(first)} and {len(second)} digests, {len(found)} differences")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
