"""Runs fuzz targets and minimises their corpora.

    python tests/fuzz/campaign.py run --build build/fuzz --minutes 5 fuzz_decode fuzz_build
    python tests/fuzz/campaign.py minimise --build build/fuzz-fast

Results are in `--state` (build/campaign): `corpus/<target>`, `logs`, `artifacts`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
FUZZ = Path(__file__).parent
CXX_TARGETS = (
    "fuzz_build",
    "fuzz_change",
    "fuzz_decode",
    "fuzz_encode",
    "fuzz_encode_change",
    "fuzz_jpeg",
    "fuzz_parse",
    "fuzz_plan",
)
# Files that targets of whole files start with, beside their own corpus.
SEEDS = [
    *(ROOT / "tests" / folder for folder in ("golden/v1", "golden/v2", "invalid")),
    FUZZ / "found",
]
OF_FILES = ("fuzz_change", "fuzz_decode", "fuzz_parse")
CORPUS_BYTES, CORPUS_FILES = 25_000, 60  # of a target, in the tree
MAX_BYTES = {"fuzz_build": 400, "fuzz_plan": 400, "fuzz_encode": 1000, "fuzz_encode_change": 1000}
# Freed memory is kept for 16 MiB of others: it stays in the processor's caches.
SANITIZERS = {
    "ASAN_OPTIONS": "allocator_may_return_null=1:detect_stack_use_after_return=0:"
    "quarantine_size_mb=16:malloc_context_size=1:clear_shadow_mmap_threshold=4194304",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def command_of(target: str, build: Path) -> list[str]:
    """The command of a target, without its corpora and limits."""
    # Entropic weights, and a look for files of other runs each second, cost as much as a decode.
    options = ["-len_control=0", "-entropic=0", "-reload=0", "-timeout=300"]
    options.append("-report_slow_units=120")
    return [str(build / target), *options, f"-max_len={MAX_BYTES.get(target, 4096)}"]


def corpora(target: str, state: Path) -> list[Path]:
    """The folder that a run adds to, then those that it only reads."""
    own = state / "corpus" / target
    own.mkdir(parents=True, exist_ok=True)
    more = [FUZZ / "corpus" / target, *(SEEDS if target in OF_FILES else [])]
    return [own, *(folder for folder in more if folder.is_dir())]


def run(target: str, build: Path, state: Path, minutes: float, runs: int) -> int:
    """Runs one target for some minutes or executions. Returns its exit status."""
    logs, artifacts = state / "logs", state / "artifacts"
    for folder in (logs, artifacts):
        folder.mkdir(parents=True, exist_ok=True)
    command = [
        *command_of(target, build),
        f"-max_total_time={int(60 * minutes)}",
        f"-runs={runs}",
        "-print_final_stats=1",
        f"-artifact_prefix={artifacts}/{target}-",
        *map(str, corpora(target, state)),
    ]
    with (logs / f"{target}-{build.name}-{int(time.time())}.log").open("w") as log:
        return subprocess.call(command, stdout=log, stderr=log, env=os.environ | SANITIZERS)


def minimise(target: str, build: Path, state: Path) -> None:
    """Merges all corpora of a target, and keeps some files of all sizes in the tree.

    What tests/golden and tests/invalid reach already is left to them.
    """
    folders = [folder for folder in corpora(target, state) if folder not in SEEDS]
    seeds = [folder for folder in corpora(target, state) if folder in SEEDS]
    merged = state / "merged" / target
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir(parents=True)
    for seed in (path for folder in seeds for path in folder.rglob("*.l3")):
        shutil.copy(seed, merged / f"seed_{seed.name}")
    subprocess.run(
        [*command_of(target, build), "-merge=1", str(merged), *map(str, folders)],
        check=True,
        capture_output=True,
    )
    _keep(merged, FUZZ / "corpus" / target)


def _keep(merged: Path, kept: Path) -> None:
    """Copies files of `merged`, of all sizes, as many as the tree takes of a target."""
    kept.mkdir(parents=True, exist_ok=True)
    for old in kept.iterdir():
        if not old.name.startswith("found_"):
            old.unlink()
    files = [path for path in merged.iterdir() if not path.name.startswith(("seed_", "found_"))]
    files.sort(key=lambda path: (path.stat().st_size, path.name))
    left = CORPUS_BYTES
    for file in files[:: len(files) // CORPUS_FILES + 1]:
        left -= file.stat().st_size
        if left < 0:
            break
        shutil.copy(file, kept / file.name[:16])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("run", "minimise"))
    parser.add_argument("targets", nargs="*", help="all if none is named")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--state", type=Path, default=ROOT / "build" / "campaign")
    parser.add_argument("--minutes", type=float, default=10, help="for each target")
    parser.add_argument("--runs", type=int, default=-1, help="executions of each target at most")
    arguments = parser.parse_intermixed_args()
    arguments.state.mkdir(parents=True, exist_ok=True)
    targets = arguments.targets or CXX_TARGETS
    if arguments.action == "run":
        codes = [
            run(target, arguments.build, arguments.state, arguments.minutes, arguments.runs)
            for target in targets
        ]
        return max(map(abs, codes))
    for target in targets:
        minimise(target, arguments.build, arguments.state)
    return 0


if __name__ == "__main__":
    sys.exit(main())
