"""Writes tests/conformance.json: the files of tests/golden and tests/invalid, with their rules.

    python tests/format/manifest.py [--check]

Files are frozen with the format, and so are their digests, which were taken from the pixels that
files were built from (`make_golden.py` in git's history, up to 2026-11-30). New files come behind
them, with what the reference decoder makes of them: look at it. An invalid file is named
<status>__<reason>.l3, and the name is the assertion.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import reference_decoder
from format_rules import shown_by

TESTS = Path(__file__).resolve().parents[1]
MANIFEST = TESTS / "conformance.json"


def describe(path: Path) -> dict[str, Any]:
    """The entry of a new file."""
    entry = {"file": path.relative_to(TESTS).as_posix(), "status": path.stem.split("__")[0]}
    if "__" in path.stem:
        return entry
    samples, _ = reference_decoder.decode(path.read_bytes())
    decoded = {"shape": samples.shape, "dtype": samples.dtype.name}
    digest = hashlib.sha256(samples.tobytes()).hexdigest()
    return entry | {"status": "kOk", **decoded, "sha256": digest}


def page() -> str:
    """What the manifest shall be."""
    known = {entry["file"]: entry for entry in json.loads(MANIFEST.read_text())["files"]}
    folders = ("golden/v1", "golden/v2", "invalid")
    paths = [path for folder in folders for path in sorted((TESTS / folder).iterdir())]
    names = [path.relative_to(TESTS).as_posix() for path in paths]
    known |= {n: describe(p) for n, p in zip(names, paths, strict=True) if n not in known}
    entries = [e | {"rules": shown_by(Path(n).stem)} for n, e in known.items() if n in names]
    lines = ",\n".join(map(json.dumps, entries))  # a line a file
    return f'{{"version": 1, "files": [\n{lines}\n]}}\n'


def main() -> int:
    """Writes the manifest, or with --check says whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if out of date")
    check = parser.parse_args().check
    text = page()
    is_same = text == MANIFEST.read_text()
    if not check:
        MANIFEST.write_text(text)
    return int(check and not is_same)


if __name__ == "__main__":
    sys.exit(main())
