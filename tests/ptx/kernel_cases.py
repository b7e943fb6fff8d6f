"""Many small batches over the PTX machine, also with changed kernels: l3_simulated_cases."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress, count, islice, pairwise
from pathlib import Path
from typing import NamedTuple

from ptx_text import body_of, kernel_lines, program_ptx, short_name
from simulate import BUILD, CASE_LIMITS, CASES, case_counts, test_files

# In the place of a batch: none ended badly; the text is no PTX; in no batch a value was another.
SURVIVES, NO_PTX, SAME = -1, -2, -3
# How many batches try a change: the shortest of those that it may show in, then some of the others.
# What all of them miss is tried by more, with some that run each of the nearest uses of its result.
_SHORTEST, _OTHERS, _MORE_OTHERS = 16, 16, 48
_USES, _OF_USES = 60, 48
_REGISTER = re.compile(r"%(?:rs|rd|r|p|f)\d+")
_HAS_BIT = [bytes(byte >> bit & 1 for byte in range(256)) for bit in range(8)]


@dataclass(frozen=True)
class Change:
    """Another text in the place of a line of a kernel's PTX."""

    kernel: str
    line: int
    text: str


@dataclass(frozen=True)
class Outcome:
    batch: int  # that ended badly, or one of the above
    what: str  # was wrong

    @property
    def noticed_by(self) -> str:
        """The check, in a word or two."""
        words = {
            "nothing orders": "order",
            ".nc": "order",
            "nobody has written": "unwritten bytes",
            "for ever": "waiting",
            "own mask": "waiting",
            "does not end": "instructions of a launch",
            "out of bounds": "bounds",
            "no multiple": "alignment",
            "pixels": "pixels or Status",
        }
        return next((kind for part, kind in words.items() if part in self.what), self.what)


@contextmanager
def kernel_files(lines_of: dict[str, list[str]] | None = None) -> Iterator[dict[str, Path]]:
    """The PTX of each kernel in a file of its own, with the lines that it has in its unit, or with
    other lines."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for text in program_ptx(CASES):
            kernels = kernel_lines(text)
            for kernel in kernels:
                lines = (lines_of or {}).get(kernel, text.split("\n"))
                lines = list(lines)
                for begin, end in (kernels[other] for other in kernels if other != kernel):
                    lines[begin : end + 1] = [""] * (end + 1 - begin)
                paths[kernel] = Path(folder, f"{short_name(kernel)}.ptx")
                paths[kernel].write_text("\n".join(lines))
        yield paths


# Probes: is a value another with a change?


def _probe(line: str, changes: Sequence[str], name: str) -> str | None:
    """The line, and after it for each change an instruction that runs where a lane has another
    value. None: there is no such probe for this instruction."""
    found = re.match(r"\s*([a-z][\w.]*)\s+(%(rs|rd|r|p|f)\d+)\s*,", line)
    if found is None or found[1].startswith(("ld.", "atom.", "call")):
        return None
    result, kind = found[2], found[3]
    types = {"rs": "b16", "r": "b32", "rd": "b64", "p": "pred", "f": "f32"}
    parts = ["{ .reg .pred %probe_p; .reg .b32 %probe_r, %probe_s;"]
    for i, change in enumerate(changes):
        if not re.match(rf"\s*[a-z][\w.]*\s+{result}\s*,", change):
            return None
        parts.append(f".reg .{types[kind]} %probe_{i};")
        parts.append(change.replace(result, f"%probe_{i}", 1))
    parts.append(line)
    for i in range(len(changes)):
        differs = {
            "rs": f"setp.ne.s16 %probe_p, %probe_{i}, {result};",
            "r": f"setp.ne.s32 %probe_p, %probe_{i}, {result};",
            "rd": f"setp.ne.s64 %probe_p, %probe_{i}, {result};",
            "p": f"xor.pred %probe_p, %probe_{i}, {result};",
            "f": f"mov.b32 %probe_r, %probe_{i}; mov.b32 %probe_s, {result}; "
            "setp.ne.s32 %probe_p, %probe_r, %probe_s;",
        }[kind]
        label = f"$probe_{name}_{i}"
        parts.append(f"{differs} @!%probe_p bra {label}; mov.u32 %probe_r, 0; {label}:")
    return " ".join(parts) + " }"


def _branch_probe(line: str, name: str) -> str | None:
    """The line, and before it an instruction that runs where a lane takes the branch."""
    found = re.match(r"\s*@(!?)(%p\d+)\s+bra\s", line)
    if found is None:
        return None
    other = "" if found[1] else "!"
    label = f"$probe_{name}"
    return (
        f"{{ .reg .b32 %probe_r; @{other}{found[2]} bra {label}; mov.u32 %probe_r, 0; {label}: }}"
        f" {line}"
    )


class _Run(NamedTuple):
    instructions: int  # of warps
    number: int
    reached: bytes  # a bit for each instruction of each kernel


def _run_probed(
    paths: Sequence[Path], folder: Path, batches: Sequence[int], jobs: int
) -> list[Path]:
    """Runs batches with probes in the kernels. Returns what they executed."""
    environment = os.environ | CASE_LIMITS | {"L3_PTX_CHECKS": "none"}
    environment["L3_PTX"] = ":".join(map(str, paths))
    listed = folder / "batches"
    listed.write_text("\n".join(map(str, batches)))
    start = time.monotonic()

    def run_shard(shard: int) -> Path:
        out = folder / f"probed_{shard}.txt"
        options: list[str | Path] = ["cover", out, f"{shard}/{jobs}", listed]
        command = [CASES, *options, *test_files()]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        return out

    with ThreadPoolExecutor(jobs) as pool:
        outs = list(pool.map(run_shard, range(jobs)))
    print(f"[probes in {len(batches)} batches, {time.monotonic() - start:.0f} s]", flush=True)
    return outs


def _read_runs(counts: Path, instructions: int) -> Iterator[_Run]:
    content = Path(f"{counts}.runs").read_bytes()
    size = 16 + (instructions + 7) // 8
    for begin in range(0, len(content), size):
        head = content[begin : begin + 16]
        number, cost = (int.from_bytes(head[i : i + 8], "little") for i in (0, 8))
        yield _Run(cost, number, content[begin + 16 : begin + size])


class _Runs:
    """Batches, the shortest first, with what they executed."""

    def __init__(self, counts: Sequence[Path]) -> None:
        # By kernel and line: the number of an instruction among all, and its opcode.
        self.places: dict[tuple[str, int], list[tuple[int, str]]] = defaultdict(list)
        instructions = 0
        for row in counts[0].read_text().splitlines():
            if row.startswith("kernel "):
                kernel = row.split()[1]
                continue
            line, opcode = row.split(" ", 2)[:2]
            self.places[kernel, int(line)].append((instructions, opcode))
            instructions += 1
        runs = sorted(run for one in counts for run in _read_runs(one, instructions))
        self._numbers = [run.number for run in runs]
        self._reached = b"".join(run.reached for run in runs)
        self._size = (instructions + 7) // 8

    def that_reach(self, place: int) -> list[int]:
        column = self._reached[place // 8 :: self._size].translate(_HAS_BIT[place % 8])
        return list(compress(self._numbers, column))


class _Uses:
    """Of a kernel: which lines read what a line computes."""

    def __init__(self, lines: Sequence[str], begin: int, end: int) -> None:
        self._results: dict[int, list[str]] = {}
        self._readers: dict[str, list[int]] = defaultdict(list)
        self._ways: dict[int, list[int]] = {}  # of branches
        labels = {line.strip()[:-1]: n for n, line in enumerate(lines, 1) if line.endswith(":")}
        for number in range(begin + 1, end + 1):
            found = re.match(
                r"\s*(@!?%p\d+\s+)?([a-z]+)\S*\s+(\{[^}]*\}|[^,;]*)(.*)", lines[number - 1]
            )
            if found is None:
                continue
            guard, opcode, first, rest = found.groups()
            if opcode == "bra":
                self._ways[number] = [labels[first.strip()], number + 1]
            stores = opcode in ("st", "red", "bar", "bra")
            self._results[number] = [] if stores else _REGISTER.findall(first)
            for name in _REGISTER.findall(f"{guard} {first if stores else ''} {rest}"):
                self._readers[name].append(number)

    def nearest(self, line: int) -> Iterator[int]:
        """Lines that read its result, those that read theirs, and so on; of a branch where it
        leads."""
        seen = {line}
        waiting = deque([line])
        while waiting:
            number = waiting.popleft()
            next_ones = [
                use for name in self._results.get(number, ()) for use in self._readers[name]
            ]
            yield from self._ways.get(number, [])
            for use in next_ones:
                if use not in seen:
                    seen.add(use)
                    waiting.append(use)
                    yield use


def _chosen(batches: Sequence[int], others: int) -> list[int]:
    """The shortest, then some of the others."""
    rest = batches[_SHORTEST:]
    return [*batches[:_SHORTEST], *rest[:: max(1, -(-len(rest) // others))]]


def _batches_that_differ(changes: Sequence[Change], plain: _Runs, jobs: int) -> list[list[int]]:
    """By change: the batches in which a lane has another value with it, the shortest first; where
    no probe is known, those that execute the instruction."""
    candidates = [plain.that_reach(plain.places[one.kernel, one.line][0][0]) for one in changes]
    by_line: dict[tuple[str, int], list[int]] = defaultdict(list)
    for number, change in enumerate(changes):
        by_line[change.kernel, change.line].append(number)
    lines_of: dict[str, list[str]] = {}
    for text in program_ptx(CASES):
        for kernel in kernel_lines(text):
            lines_of[kernel] = text.split("\n")
    # Of each change with a probe, which instruction of its line tells.
    told_by: dict[int, int] = {}
    for (kernel, line), numbers in by_line.items():
        text = lines_of[kernel][line - 1]
        if " bra " in f" {text} ":
            numbers = [number for number in numbers if not changes[number].text]
            probed = _branch_probe(text, str(line)) if numbers else None
        else:
            probed = _probe(text, [changes[number].text for number in numbers], str(line))
        if probed is not None:
            lines_of[kernel][line - 1] = probed
            told_by |= {number: i for i, number in enumerate(numbers)}
    batches = sorted({batch for number in told_by for batch in candidates[number]})
    with kernel_files(lines_of) as paths, tempfile.TemporaryDirectory(dir=BUILD) as folder:
        runs = _Runs(_run_probed(list(paths.values()), Path(folder), batches, jobs))
    for number, which in told_by.items():
        change = changes[number]
        # Behind the branch of a probe.
        tells = [
            place
            for (_, before), (place, opcode) in pairwise(runs.places[change.kernel, change.line])
            if before.startswith("bra") and opcode.startswith("mov")
        ]
        candidates[number] = runs.that_reach(tells[which if change.text else 0])
    return candidates


def _batches_of_uses(
    changes: Sequence[Change], differing: Sequence[Sequence[int]], plain: _Runs
) -> Iterator[list[int]]:
    """By change: of the batches that differ some that run each of the nearest uses of its result,
    where not all do."""
    texts = {k: t.split("\n") for t in program_ptx(CASES) for k in kernel_lines(t)}
    uses: dict[tuple[str, int], _Uses] = {}
    for one, batches in zip(changes, differing, strict=True):
        lines = texts[one.kernel]
        body = body_of(lines, one.line)
        if (one.kernel, body[0]) not in uses:
            uses[one.kernel, body[0]] = _Uses(lines, *body)
        chosen: dict[int, None] = {}
        for line in islice(uses[one.kernel, body[0]].nearest(one.line), _USES):
            behind = (plain.places.get((one.kernel, n)) for n in range(line, body[1]))
            instructions = next((found for found in behind if found), None)
            if instructions is None:
                continue
            reach = set(plain.that_reach(instructions[0][0]))
            both = [batch for batch in batches if batch in reach]
            if len(both) < len(batches):
                chosen |= dict.fromkeys([*both[:2], *both[len(both) // 2 :][:2]])
        yield list(chosen)[:_OF_USES]


def try_changes(changes: Sequence[Change], jobs: int) -> list[Outcome]:
    """Runs batches with each changed kernel, until one ends badly."""
    plain = _Runs(case_counts())
    differing = _batches_that_differ(changes, plain, jobs)
    outcomes = [Outcome(SURVIVES if batches else SAME, "") for batches in differing]
    tried = {n: _chosen(batches, _OTHERS) for n, batches in enumerate(differing) if batches}
    _try_batches(changes, tried, outcomes, jobs)
    left = [number for number in tried if outcomes[number].batch == SURVIVES]
    of_uses = _batches_of_uses([changes[n] for n in left], [differing[n] for n in left], plain)
    more = {}
    for number, batches in zip(left, of_uses, strict=True):
        all_ = [*batches, *_chosen(differing[number], _MORE_OTHERS)]
        if rest := [batch for batch in dict.fromkeys(all_) if batch not in tried[number]]:
            more[number] = rest
    _try_batches(changes, more, outcomes, jobs)
    return outcomes


def _try_batches(
    changes: Sequence[Change], batches: dict[int, list[int]], outcomes: list[Outcome], jobs: int
) -> None:
    """Tries changes by number, each in its batches, and puts down what became of them."""
    start = time.monotonic()
    environment = os.environ | CASE_LIMITS
    numbers = list(batches)
    with kernel_files() as paths, tempfile.NamedTemporaryFile("w") as listed:
        for number in numbers:
            one = changes[number]
            own = ",".join(map(str, batches[number]))
            listed.write(f"{one.kernel}\t{one.line}\t{own}\t{one.text.strip()}\n")
        listed.flush()
        environment["L3_PTX"] = ":".join(map(str, paths.values()))
        done = count()

        def run_shard(shard: int) -> None:
            command: list[str | Path] = [CASES, "try", listed.name, f"{shard}/{jobs}"]
            command += test_files()
            with subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, text=True
            ) as process:
                assert process.stdout is not None
                for row in process.stdout:
                    place, batch, what = row.rstrip("\n").split("\t")
                    outcomes[numbers[int(place)]] = Outcome(int(batch), what)
                    if next(done) % 100 == 0:
                        seconds = time.monotonic() - start
                        print(f"[of {len(numbers)} changes, {seconds:.0f} s]", flush=True)
            if process.returncode != 0:
                raise RuntimeError(f"shard {shard} of changed kernels ended badly")

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(run_shard, range(jobs)))
