"""Runs fuzz targets and makes the ledger of what they ran.

    python tests/fuzz/campaign.py run --build build/fuzz --minutes 5 fuzz_decode fuzz_build
    python tests/fuzz/campaign.py coverage --build build/fuzz-coverage
    python tests/fuzz/campaign.py minimise --build build/fuzz-fast
    python tests/fuzz/campaign.py ledger

Everything lies under `--state` (build/campaign): `corpus/<target>`, `logs`, `artifacts`. A log is
libFuzzer's own, with one line of JSON before it and one behind it. The ledger takes every number
from the logs, and keeps the runs that it has; those that go on, or were killed, count as far as
they say.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FUZZ = Path(__file__).parent
CXX_TARGETS = (
    "fuzz_build",
    "fuzz_change",
    "fuzz_decode",
    "fuzz_encode",
    "fuzz_encode_change",
    "fuzz_parse",
    "fuzz_plan",
)
_BOOKS = ["tar", "tfrecord", "zip", "arrow", "parquet", "manifest", "host", "profile", "plan"]
# By name: a file and its arguments. All run under atheris.
PYTHON_TARGETS = {
    "fuzz_readers": ["fuzz_readers.py"],
    **{f"fuzz_books_{name}": ["fuzz_books.py", name] for name in _BOOKS},
    **{f"fuzz_view_{name}": ["fuzz_view.py", name] for name in ("requests", "files")},
}
# Files that targets of whole files begin with, beside their own corpus.
SEEDS = [ROOT / "tests" / "golden" / "v1", ROOT / "tests" / "invalid", FUZZ / "found"]
OF_FILES = ("fuzz_change", "fuzz_decode", "fuzz_parse")
DECODING = tuple(target for target in CXX_TARGETS if target != "fuzz_parse")
LAYERS = ("src/format", "src/core", "src/cpu", "src/cuda", "src/plan", "encoder")
CORPUS_BYTES, CORPUS_FILES = 25_000, 60  # of a target, in the tree
MAX_BYTES = {"fuzz_build": 400, "fuzz_plan": 400, "fuzz_encode": 1000, "fuzz_encode_change": 1000}
# Freed memory is kept for 16 MiB of others: it stays in the processor's caches.
SANITIZERS = {
    "ASAN_OPTIONS": "allocator_may_return_null=1:detect_stack_use_after_return=0:"
    "quarantine_size_mb=16:malloc_context_size=1:clear_shadow_mmap_threshold=4194304",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}

Record = dict[str, Any]


def command_of(target: str, build: Path) -> list[str]:
    """What runs a target, without libFuzzer's arguments."""
    if target in PYTHON_TARGETS:
        script, *arguments = PYTHON_TARGETS[target]
        return [sys.executable, str(FUZZ / script), *arguments, "--atheris"]
    # Entropic weights cost as much as a decode of small images.
    # So does looking for files of other runs, each second, on a busy machine.
    options = ["-len_control=0", "-entropic=0", "-reload=0", "-timeout=300"]
    options.append("-report_slow_units=120")
    return [str(build / target), *options, f"-max_len={MAX_BYTES.get(target, 4096)}"]


def corpora(target: str, state: Path) -> list[Path]:
    """The folder that a run adds to, and those that it reads as well."""
    own = state / "corpus" / target
    own.mkdir(parents=True, exist_ok=True)
    more = [FUZZ / "corpus" / target, *(SEEDS if target in OF_FILES else [])]
    return [own, *(folder for folder in more if folder.is_dir())]


def run(target: str, build: Path, state: Path, minutes: float, runs: int) -> int:
    """Runs one target: so long, or so many executions. Returns its exit status."""
    artifacts = state / "artifacts"
    for folder in (state / "logs", artifacts):
        folder.mkdir(parents=True, exist_ok=True)
    started = datetime.datetime.now(datetime.timezone.utc)
    head = {
        "target": target,
        "build": "atheris" if target in PYTHON_TARGETS else build.name,
        "commit": _git("rev-parse", "--short=10", "HEAD"),
        "started": started.isoformat(timespec="seconds"),
        "cpu": _cpu(),
    }
    name = f"{target}-{head['build']}-{started:%Y%m%dT%H%M%S}-{os.getpid()}.log"
    command = [
        *command_of(target, build),
        f"-max_total_time={int(60 * minutes)}",
        f"-runs={runs}",
        "-print_final_stats=1",
        f"-artifact_prefix={artifacts}/{target}-",
        *map(str, corpora(target, state)),
    ]
    with (state / "logs" / name).open("w") as log:
        log.write(json.dumps(head) + "\n")
        log.flush()
        child = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | SANITIZERS)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = code = os.waitstatus_to_exitcode(status)
        cpu_s = round(usage.ru_utime + usage.ru_stime, 1)
        log.write("\n" + json.dumps({"exit": code, "cpu_s": cpu_s}) + "\n")
    return code


def read_log(path: Path) -> Record:
    """What one run did: its head, and executions, cpu_s, cov, features, exit as far as known.

    `grown` is the execution with the last new edge, `left_out` what the target left out.
    """
    lines = path.read_text(errors="replace").splitlines()
    record: Record = json.loads(lines[0]) | {"log": path.name, "executions": 0, "exit": None}
    for line in lines[1:]:
        if line.startswith('{"exit"'):
            record |= json.loads(line)
        elif found := re.match(r"(?:stat::number_of_executed_units:\s+|Done |#)(\d+)", line):
            record["executions"] = max(record["executions"], int(found[1]))
        elif found := re.match(r"left out: (\d+)", line):
            record["left_out"] = int(found[1])
        if found := re.match(r"#(\d+).*\bcov: (\d+) ft: (\d+)", line):
            if int(found[2]) > record.get("cov", 0):
                record["grown"] = int(found[1])
            record |= {"cov": int(found[2]), "features": int(found[3])}
        if found := re.search(r"(\d+) inline 8-bit counters", line):
            record["edges"] = int(found[1])
    return record


def coverage(build: Path, state: Path) -> Record:
    """Line and region coverage by layer, of all corpora in a build with llvm-cov's counters."""
    profiles, binaries = [], []
    for target in CXX_TARGETS:
        folders = [str(folder) for folder in corpora(target, state)]
        profile = state / f"{target}.profraw"
        subprocess.run(
            [*command_of(target, build), "-runs=0", *folders],
            env=os.environ | {"LLVM_PROFILE_FILE": str(profile)},
            check=True,
            capture_output=True,
        )
        profiles.append(str(profile))
        binaries.append(str(build / target))
    data = str(state / "coverage.profdata")
    subprocess.run([_llvm("llvm-profdata"), "merge", "-sparse", *profiles, "-o", data], check=True)
    objects = [argument for binary in binaries[1:] for argument in ("-object", binary)]
    command = [_llvm("llvm-cov"), "export", "-summary-only", f"-instr-profile={data}"]
    command += [binaries[0], *objects]
    exported = subprocess.run(command, check=True, capture_output=True)
    layers: Record = {}
    for file in json.loads(exported.stdout)["data"][0]["files"]:
        relative = os.path.relpath(file["filename"], ROOT)
        layer = next((name for name in LAYERS if relative.startswith(name + "/")), None)
        if layer is None:
            continue
        for kind in ("lines", "regions"):
            sums = layers.setdefault(layer, {}).setdefault(kind, {"count": 0, "covered": 0})
            for key in sums:
                sums[key] += file["summary"][kind][key]
    result = {"commit": _git("rev-parse", "--short=10", "HEAD"), "layers": layers}
    (state / "coverage.json").write_text(json.dumps(result, indent=1))
    return result


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


def ledger(state: Path, findings: Path, out: Path) -> None:
    """Writes the ledger of all runs to `out` as .json and .md; runs that it has stay."""
    runs = [read_log(path) for path in sorted((state / "logs").glob("*.log"))]
    written = out.with_suffix(".json")
    before = json.loads(written.read_text()) if written.exists() else {"runs": [], "coverage": None}
    logs = {record["log"] for record in runs}
    runs = [*(record for record in before["runs"] if record["log"] not in logs), *runs]
    totals: dict[tuple[str, str], Record] = {}
    for record in runs:
        row = totals.setdefault(
            (record["target"], record["build"]),
            {
                **{"runs": 0, "executions": 0, "left_out": 0, "since_growth": 0},
                **{"timed_executions": 0, "cpu_s": 0.0, "since_growth_s": 0.0, "edges_covered": 0},
            },
        )
        row["runs"] += 1
        row["executions"] += record["executions"]
        row["left_out"] += record.get("left_out", 0)
        since = record["executions"]
        if record.get("cov", 0) > row["edges_covered"]:
            row |= {"since_growth": 0, "since_growth_s": 0.0, "edges_covered": record["cov"]}
            row["edges"] = record.get("edges")
            since -= record.get("grown", 0)
        row["since_growth"] += since
        if "cpu_s" in record:  # a run that has ended
            row["timed_executions"] += record["executions"]
            row["cpu_s"] += record["cpu_s"]
            row["since_growth_s"] += record["cpu_s"] * since / max(1, record["executions"])
    coverage_file = state / "coverage.json"
    layers = json.loads(coverage_file.read_text()) if coverage_file.exists() else before["coverage"]
    artifacts = sorted(path.name for path in (state / "artifacts").glob("*"))
    result = {
        "date": datetime.date.today().isoformat(),
        "commits": sorted({record["commit"] for record in runs}),
        "cpu": sorted({record["cpu"] for record in runs}),
        "executions": sum(record["executions"] for record in runs),
        "decoding_executions": sum(
            record["executions"] for record in runs if record["target"] in DECODING
        ),
        "targets": [
            {"target": target, "build": build, **row}
            for (target, build), row in sorted(totals.items())
        ],
        "coverage": layers,
        "artifacts": artifacts,
        "runs": runs,
    }
    out.with_suffix(".json").write_text(_json(result))
    out.with_suffix(".md").write_text("\n".join(_markdown(result, findings)) + "\n")


def _json(result: Record) -> str:
    """JSON, a line for each value and for each run."""
    lines = {name: json.dumps(value) for name, value in result.items()}
    lines["runs"] = "[\n" + ",\n".join(map(json.dumps, result["runs"])) + "\n]"
    return "{\n" + ",\n".join(f'"{name}": {line}' for name, line in lines.items()) + "\n}\n"


def _markdown(result: Record, findings: Path) -> Iterator[str]:
    yield "# Fuzzing: the ledger"
    yield ""
    yield "Written by `tests/fuzz/campaign.py ledger` from libFuzzer's logs; `fuzz.json` has each"
    yield "run. An execution is one call of `LLVMFuzzerTestOneInput`. Executions a second are of"
    yield "CPU time, of runs that have ended; the machine was shared. Edges are libFuzzer's, of the"
    yield "run that reached most. What is not checked of each input is in tests/fuzz/README.md;"
    yield '"left out" are executions whose image was too large to be judged. "Since the last edge"'
    yield "are executions that brought no more than that, many of them of runs that began anew, and"
    yield "the CPU minutes that they took: of the run itself its share by executions."
    yield ""
    yield f"* date: {result['date']}"
    yield f"* commits: {', '.join(result['commits'])}"
    yield f"* CPU: {', '.join(result['cpu'])}"
    yield f"* executions in all: {result['executions']:,}"
    yield f"* of targets that decode: {result['decoding_executions']:,}"
    yield ""
    columns = ["target", "build", "runs", "executions", "left out", "since the last edge"]
    columns += ["CPU minutes since", "executions/CPU s", "CPU minutes", "edges"]
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in result["targets"]:
        rate = f"{row['timed_executions'] / row['cpu_s']:,.0f}" if row["cpu_s"] else "-"
        edges = f"{row['edges_covered']:,} of {row['edges']:,}" if row.get("edges") else "-"
        name = f"`{row['target']}` | {row['build']} | {row['runs']}"
        counts = f"{row['executions']:,} | {row['left_out']:,} | {row['since_growth']:,}"
        counts += f" | {row['since_growth_s'] / 60:.1f}"
        yield f"| {name} | {counts} | {rate} | {row['cpu_s'] / 60:.1f} | {edges} |"
    if result["coverage"]:
        yield ""
        commit = result["coverage"]["commit"]
        corpora = "of the C++ corpora of the tree and what grown ones were given"
        yield f"Coverage by llvm-cov at {commit}, {corpora}:"
        yield ""
        yield "| layer | lines | regions |"
        yield "|---|---|---|"
        for layer, kinds in sorted(result["coverage"]["layers"].items()):
            cells = [
                f"{100 * kinds[kind]['covered'] / kinds[kind]['count']:.1f} % of "
                f"{kinds[kind]['count']:,}"
                for kind in ("lines", "regions")
            ]
            yield f"| `{layer}` | {' | '.join(cells)} |"
    yield ""
    yield "## Findings"
    yield ""
    yield findings.read_text().strip() if findings.exists() else "None."
    if result["artifacts"]:
        yield ""
        yield f"Inputs that libFuzzer kept: {', '.join(result['artifacts'])}."


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def _cpu() -> str:
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{found[1] if found else platform.machine()}, {os.cpu_count()} cores"


def _llvm(tool: str) -> str:
    for name in (tool, f"{tool}-14"):
        if path := shutil.which(name):
            return path
    raise SystemExit(f"{tool} is not installed")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("run", "coverage", "minimise", "ledger"))
    parser.add_argument("targets", nargs="*", help="all if none is named")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--state", type=Path, default=ROOT / "build" / "campaign")
    parser.add_argument("--minutes", type=float, default=10, help="for each target")
    parser.add_argument("--runs", type=int, default=-1, help="executions of each target at most")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "fuzz")
    arguments = parser.parse_intermixed_args()
    arguments.state.mkdir(parents=True, exist_ok=True)
    targets = arguments.targets or [*CXX_TARGETS, *PYTHON_TARGETS]
    if arguments.action == "run":
        codes = [
            run(target, arguments.build, arguments.state, arguments.minutes, arguments.runs)
            for target in targets
        ]
        return max(map(abs, codes))
    if arguments.action == "coverage":
        print(json.dumps(coverage(arguments.build, arguments.state)["layers"], indent=1))
    elif arguments.action == "minimise":
        for target in arguments.targets or CXX_TARGETS:
            minimise(target, arguments.build, arguments.state)
    else:
        ledger(arguments.state, FUZZ / "findings.md", arguments.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
