"""`make soak HOURS=n`: work with damaged files and interrupts; does anything leak or differ?

One process goes through all of it, again and again: DALI pipelines on the CPU, some that stay and
some that come and go; the Python package; `l3 encode` and `l3 decode` over folders, interrupted by
SIGINT and SIGKILL until they are through; and a training that is killed and must repeat its batches
from the last checkpoint. It compares every pixel, and says after each work what it takes. Another
process writes benchmarks/results/soak.{md,json,png}, and ends with 1 if a pixel differs, the first
one dies, or its memory, threads or files grow beyond RULE.

Runs in the root of the repository with that folder on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import hashlib
import json
import os
import pickle
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
from benchmarks.peers import Image, l3_encoder, machine
from benchmarks.report import RESULTS, save_results, table

import l3dali

IMAGES = 60
DAMAGED_PERCENT = 5
BATCH = 16
CHECKPOINT_EVERY = 3  # batches of the training
SOURCES, ENCODED = "png", "l3"  # folders
LONG_RUN_S = 600
RSS_MARGIN_MIB, SHORT_RSS_MARGIN_MIB, RSS_MARGIN_PERCENT = 16, 128, 5
MIN_ROUNDS = 4
REPORT_EVERY_S = 300  # so that a run that is cut short has a result
RULE = (
    "The process says what it takes after each work, when it is idle and its allocator has given "
    "back what is free (malloc_trim). Of these numbers the first quarter is warm-up. The median of "
    "resident memory in the last quarter may exceed that of the second by "
    f"{RSS_MARGIN_PERCENT} % and {RSS_MARGIN_MIB} MiB ({SHORT_RSS_MARGIN_MIB} MiB in runs under "
    f"{LONG_RUN_S // 60} minutes, which are all warm-up); the medians of threads and of open files "
    "in the last quarter may not exceed the largest of the second."
)
UNITS = {"rss_kib": ("MiB", 1024), "threads": ("threads", 1), "fds": ("open files", 1)}


@dataclass(frozen=True)
class Usage:
    """What a process takes."""

    rss_kib: int
    threads: int
    fds: int


def idle_usage() -> Usage:
    """What this process takes once its allocator has given back what is free.

    On a busy machine glibc kept 900 MB of which 74 were in use: buffers of many sizes that come
    and go leave holes, which would pass for a leak.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines if ":" in line)
    fds = len(list(Path("/proc/self/fd").iterdir()))
    return Usage(int(status["VmRSS"].split()[0]), int(status["Threads"]), fds)


def quarters(rounds: Sequence[Usage], what: str) -> tuple[list[int], list[int]]:
    """The second quarter and the last."""
    numbers = [getattr(usage, what) for usage in rounds]
    count = len(numbers)
    return numbers[count // 4 : count // 2], numbers[count - count // 4 :]


def judge(rounds: Sequence[Usage], seconds: float) -> list[str]:
    """What has grown beyond RULE."""
    if len(rounds) < MIN_ROUNDS:
        return [f"{len(rounds)} rounds are too few to judge; {MIN_ROUNDS} are needed"]
    complaints = []
    margin_mib = RSS_MARGIN_MIB if seconds >= LONG_RUN_S else SHORT_RSS_MARGIN_MIB
    before, after = (statistics.median(part) for part in quarters(rounds, "rss_kib"))
    if after > before * (1 + RSS_MARGIN_PERCENT / 100) + margin_mib * 1024:
        complaints.append(f"memory grew from {before / 1024:.1f} to {after / 1024:.1f} MiB")
    for what in ("threads", "fds"):
        second, last = quarters(rounds, what)
        if statistics.median(last) > max(second):
            complaints.append(f"{what} grew from {max(second)} to {statistics.median(last):g}")
    return complaints


def assert_same(what: str, got: Image, want: Image) -> None:
    """Ends the run where a sample differs."""
    same = got.dtype == want.dtype and got.shape == want.shape and np.array_equal(got, want)
    assert same, f"{what}: {got.dtype} {got.shape} differs from the source, {want.shape}"


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """The file with a bit flipped, or cut short."""
    at = int(rng.integers(len(data)))
    flipped = bytes([data[at] ^ 1 << int(rng.integers(8))])
    return data[:at] if rng.random() < 0.3 else data[:at] + flipped + data[at + 1 :]


def make_images(folder: Path, rng: np.random.Generator) -> None:
    """Writes images as PNG and as L3, some of the latter damaged; their names begin with bits."""
    for part in (SOURCES, ENCODED):
        (folder / part).mkdir(parents=True)
    for number in range(IMAGES):
        bits = 16 if number % 3 == 2 else 8
        height, width = rng.integers(9, 900 if number % 10 == 0 else 260, 2)
        shape = (int(height), int(width), int(rng.integers(1, 5)))
        image = rng.integers(-20, 21, shape).cumsum(axis=1).astype(f"u{bits // 8}").squeeze()
        data = l3_encoder(l3dali.CODINGS[number % len(l3dali.CODINGS)])(image)
        if number % (100 // DAMAGED_PERCENT) == 7:
            data = damaged(data, rng)
        name = f"{bits:02}-{number:03}"
        (folder / SOURCES / f"{name}.png").write_bytes(imagecodecs.png_encode(image, level=1))
        (folder / ENCODED / f"{name}.l3").write_bytes(data)


class Scenario:
    """All works on the images of a folder; each ends with an AssertionError where one differs."""

    def __init__(self, folder: Path, seed: int) -> None:
        """Reads the images, and builds the pipelines that stay."""
        self.folder, self.rng = folder, np.random.default_rng(seed)
        paths = sorted((folder / SOURCES).iterdir())
        self.images = {p.stem: imagecodecs.png_decode(p.read_bytes()) for p in paths}
        self.files = {p.stem: p.read_bytes() for p in (folder / ENCODED).iterdir()}
        self.bad = {name for name, data in self.files.items() if not is_sound(data)}
        assert self.bad, "no damaged file"
        self.counts: Counter[str] = Counter()
        self.digests: dict[int, str] = {}  # of the training's batches
        self.residents = [self.resident(bits) for bits in (8, 16)]

    def works(self) -> Iterator[None]:
        """Does one work after the other, without end."""
        while True:
            for work in (self.use_pipelines, self.convert, self.use_codec, self.train):
                work()
                yield

    # The Python package.

    def use_codec(self, images: int = 30) -> None:
        """Encodes, decodes, damages."""
        path = self.folder / "codec.l3"
        for name in self.rng.choice(list(self.images), images):
            image, threads = self.images[name], int(self.rng.integers(1, 4))
            effort, tile = int(self.rng.integers(1, 6)), [None, (8, 32), (64, 64)]
            options: dict[str, Any] = {"effort": effort, "tile": tile[self.rng.integers(3)]}
            options["coding"] = str(self.rng.choice(l3dali.CODINGS))
            l3dali.imwrite(path, image, threads=threads, **options)
            assert_same(f"{name} {options}", l3dali.imread(path, threads=threads), image)
            data = path.read_bytes()
            info = l3dali.info(data)
            assert (info.height, info.width) == image.shape[:2]
            assert not is_sound(damaged(data, self.rng)), f"{name} {options}: damage went unseen"
            self.counts["codec: images"] += 1
            self.counts["codec: damaged"] += 1

    # DALI pipelines.

    def use_pipelines(self) -> None:
        """Runs pipelines that stay, and some that come and go."""
        # Less at first, so that a run of seconds has all works.
        for _ in range(min(60, 10 + 10 * self.counts["pipelines: checkpoints"])):
            for run in self.residents:
                run()
        seed, at = int(self.rng.integers(1 << 30)), int(self.rng.integers(1, 6))
        pipe = cropping(self.folder, seed)
        for _ in range(at):
            pipe.run()
        resumed = cropping(self.folder, seed, checkpoint=pipe.checkpoint())
        for _ in range(2):
            same = digest(pipe.run()[0]) == digest(resumed.run()[0])
            assert same, "a pipeline of a checkpoint does not go on as the one that it came from"
        bad = min(self.bad)
        paths = [str(self.folder / ENCODED / f"{bad}.l3")]
        try:
            pipeline(lambda fn: (fn.l3.decode(fn.readers.file(files=paths)[0]),), 1).run()
            complaint = "no error"
        except RuntimeError as error:
            complaint = str(error)
        assert bad in complaint, f"{bad}: {complaint}"
        self.counts += Counter({"pipelines: checkpoints": 1, "pipelines: built": 3})

    def resident(self, bits: int) -> Callable[[], None]:
        """Whole images and windows of them, in batches of changing size; damaged ones as zeros."""
        names = [name for name in self.images if name.startswith(f"{bits:02}")]
        scale = 257 if bits == 8 else 1  # windows are 16 bits
        asked: list[list[tuple[str, Image, Image]]] = []  # name, begin, end; batches on their way

        def batch() -> tuple[list[Image], ...]:
            samples = []
            for name in self.rng.choice(names, int(self.rng.integers(1, 2 * BATCH + 1))):
                sides = np.array(self.images[name].shape[:2])
                begin = self.rng.integers(0, sides)
                samples.append((str(name), begin, self.rng.integers(begin + 1, sides + 1)))
            asked.append(samples)
            chosen, begins, ends = zip(*samples, strict=True)
            data = [np.frombuffer(self.files[name], np.uint8) for name in chosen]
            return data, *([corner.astype(np.int32) for corner in each] for each in (begins, ends))

        def define(fn: Any) -> tuple[Any, ...]:
            from nvidia.dali import types

            encoded, begin, end = fn.external_source(batch, num_outputs=3, batch=True)
            lenient = {"on_error": "zero", "return_status": True}
            return *fn.l3.decode(encoded, **lenient), *fn.l3.decode_slice(
                encoded, start=begin, end=end, axis_names="HW", dtype=types.UINT16, **lenient
            )

        pipe = pipeline(define, 2 * BATCH)

        def run() -> None:
            outputs = [[np.array(sample) for sample in output] for output in pipe.run()]
            for sample, *got in zip(asked.pop(0), *outputs, strict=True):
                (name, begin, end), (whole, status, part, part_status) = sample, got
                want = np.atleast_3d(self.images[name])
                assert (status != 0) == (name in self.bad), f"{name}: status {status}"
                assert_same(name, whole, np.zeros_like(whole) if name in self.bad else want)
                if part_status == 0:  # damage outside of the window goes unseen
                    window = want[begin[0] : end[0], begin[1] : end[1]].astype(np.uint16) * scale
                    assert_same(f"{name}, window {begin} to {end}", part, window)
                else:
                    assert name in self.bad, f"{name}: status {part_status} of a window"
                self.counts["pipelines: images"] += 1
                self.counts["pipelines: damaged"] += name in self.bad
            self.counts["pipelines: batches"] += 1

        return run

    # Conversions.

    def convert(self) -> None:
        """Both ways, interrupted until they are through."""
        encoded, decoded = self.folder / "encoded", self.folder / "decoded"
        mode = str(self.rng.choice(l3dali.CODINGS))
        options = ["--effort", "1", "--coding", mode]
        encode = ["encode", str(self.folder / SOURCES), "-o", str(encoded), *options]
        self.interrupt(encode, encoded, set(), l3dali.imread)
        decode = ["decode", str(self.folder / ENCODED), "-o", str(decoded)]
        self.interrupt(
            decode, decoded, self.bad, lambda path: imagecodecs.png_decode(path.read_bytes())
        )
        for made in (encoded, decoded):
            shutil.rmtree(made)

    def interrupt(
        self, command: Sequence[str], made: Path, bad: set[str], read: Callable[[Path], Any]
    ) -> None:
        """Runs `l3` until it has made every file, and compares each as soon as it is there."""
        compared: set[str] = set()
        full = [sys.executable, "-m", "l3dali", *command, "--skip-existing", "-j", "2"]
        while True:
            child = subprocess.Popen(full, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
            stop_at = len(compared) + int(self.rng.integers(1, len(self.images)))
            how = signal.SIGINT if self.rng.random() < 0.5 else signal.SIGKILL
            while child.poll() is None and (count := len(list(made.glob("[!.]*")))) < stop_at:
                if count > len(compared):
                    time.sleep(0.005)
                else:  # it is about to start
                    self.use_codec(1)
            time.sleep(self.rng.uniform(0, 0.02))
            child.send_signal(how)
            _, complaint = child.communicate()
            debris = list(made.glob(".*"))
            # Python ends by the signal that comes after it has put its own handlers away.
            interrupted = child.returncode in (-signal.SIGKILL, -signal.SIGINT, 130)
            if interrupted:
                self.counts[f"conversions: {how.name}"] += 1
            if child.returncode != -signal.SIGKILL:
                assert not debris, f"{full} left {debris}"
            for part in debris:  # of a process that was killed
                part.unlink()
            for path in set(made.glob("*")):
                if path.stem not in compared:
                    assert_same(str(path), read(path), self.images[path.stem])
                    compared.add(path.stem)
                    self.counts["conversions: files compared"] += 1
            if child.returncode in (0, 2):
                named = {name for name in self.images if f"{name}.l3: " in complaint.decode()}
                whole = (child.returncode, named) == (2 if bad else 0, bad)
                assert whole, f"{full} ended with {child.returncode}: {complaint.decode()}"
                assert compared == self.images.keys() - bad, f"{full}: files are missing"
                return
            assert interrupted, f"{full} ended with {child.returncode}: {complaint.decode()}"

    # Trainings.

    def train(self) -> None:
        """Runs some batches, kills the process; batches that come again must be the same."""
        command = [sys.executable, __file__, "--train", str(self.folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(int(self.rng.integers(1, 8))):
                line = child.stdout.readline().split()
                assert line, f"the training ended with {child.wait()}"
                number, seen = int(line[0]), self.digests.setdefault(int(line[0]), line[1])
                assert seen == line[1], f"batch {number} of the training differs after a restart"
                self.counts["training: batches"] += 1
            child.kill()
        self.counts["training: SIGKILL"] += 1


def is_sound(data: bytes) -> bool:
    """Whether a file decodes."""
    try:
        l3dali.decode(data, threads=2)
    except l3dali.L3Error:
        return False
    return True


def pipeline(define: Callable[[Any], tuple[Any, ...]], batch: int, **options: Any) -> Any:
    """A pipeline on the CPU."""
    from nvidia import dali

    import l3dali.plugin  # noqa: F401

    pipe = dali.Pipeline(batch, 2, None, **options)
    with pipe:
        pipe.set_outputs(*define(dali.fn))
    return pipe


def cropping(folder: Path, seed: int, **options: Any) -> Any:
    """Random windows of shuffled files: a pipeline with state."""
    paths = sorted(map(str, (folder / ENCODED).glob("08-*.l3")))

    def define(fn: Any) -> tuple[Any, ...]:
        data, _ = fn.readers.file(files=paths, random_shuffle=True, seed=seed)
        return (fn.l3.decode_random_crop(data, on_error="zero", seed=seed),)

    return pipeline(define, BATCH, enable_checkpointing=True, **options)


def digest(output: Any) -> str:
    """Of all samples of a batch."""
    hashed = hashlib.sha256()
    for sample in map(np.array, output):
        hashed.update(repr((sample.shape, sample.dtype)).encode() + sample.tobytes())
    return hashed.hexdigest()


def train(folder: Path) -> None:
    """Prints number and digest of each batch from the last checkpoint on, until it is killed."""
    state, number, options = folder / "training.state", 0, {}
    if state.exists():
        number, options["checkpoint"] = pickle.loads(state.read_bytes())
    pipe = cropping(folder, 11, **options)
    while True:
        print(number, digest(pipe.run()[0]), flush=True)
        number += 1
        if number % CHECKPOINT_EVERY == 0:
            part = state.with_suffix(".part")
            part.write_bytes(pickle.dumps((number, pipe.checkpoint())))
            part.replace(state)


# The two processes.


def work(folder: Path, seconds: float, seed: int) -> None:
    """Goes through the works until time has passed; after each a line of JSON."""
    end = time.monotonic() + seconds
    scenario = Scenario(folder, seed)
    for number, _ in enumerate(scenario.works(), 1):
        usage = asdict(idle_usage())
        print(json.dumps({"counts": scenario.counts, "usage": usage}), flush=True)
        if number >= MIN_ROUNDS and time.monotonic() > end:
            return


@dataclass
class Run:
    """What is known of a run so far."""

    seconds: float
    begin: float = field(default_factory=time.monotonic)
    counts: dict[str, int] = field(default_factory=dict)
    rounds: list[Usage] = field(default_factory=list)
    minutes: list[float] = field(default_factory=list)  # at which they ended

    def watch(self, folder: Path, seed: int, on_round: Callable[[], None]) -> list[str]:
        """Starts the works, and notes what they say; returns complaints."""
        command = [sys.executable, __file__, "--work", str(folder), "--seed", str(seed)]
        command += ["--hours", str(self.seconds / 3600)]
        log = folder / "log"  # DALI and the operators name each damaged sample
        with (
            log.open("w") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as worker,
        ):
            assert worker.stdout is not None
            for line in worker.stdout:
                message = json.loads(line)
                self.counts = message["counts"]
                self.rounds.append(Usage(**message["usage"]))
                self.minutes.append((time.monotonic() - self.begin) / 60)
                on_round()
        if worker.returncode == 0:
            return judge(self.rounds, self.seconds)
        text = log.read_text(errors="replace")
        print(text[text.rfind("Traceback") :], file=sys.stderr)
        said = ["no output", *text.splitlines()]
        return [f"the works ended with {worker.returncode}: {said[-1]}"]

    def report(self, complaints: Sequence[str], where: str, out: Path) -> None:
        """Writes page, numbers and plot."""
        rows = {}
        for what, (label, unit) in UNITS.items() if len(self.rounds) >= MIN_ROUNDS else ():
            second, last = (statistics.median(part) / unit for part in quarters(self.rounds, what))
            rows[label] = {"second": second, "last": last}
        columns = {"second quarter": "{second:.4g}", "last quarter": "{last:.4g}"}
        failed = "\n".join(f"* FAILED: {what}" for what in complaints)
        counts = {what: {"count": count} for what, count in sorted(self.counts.items())}
        passed = self.minutes[-1] if self.minutes else 0
        text = (
            f"{where}.\n\n{passed:.3g} of {self.seconds / 60:.3g} minutes of `make soak`, "
            f"{len(self.rounds)} works; {IMAGES} images, some of them damaged.\n\n"
            f"{failed or 'Nothing grew, nothing differed.'}\n\n{RULE} Medians:\n\n"
            f"{table('what', rows, columns)}\n{table('what', counts, {'count': '{count}'})}\n"
            "![plot](soak.png)\n"
        )
        usage = {what: [getattr(each, what) for each in self.rounds] for what in UNITS}
        data: dict[str, Any] = {"where": where, "seconds": 60 * passed, "complaints": complaints}
        data |= {"counts": self.counts, "minutes": self.minutes, **usage}
        save_results("soak", "A soak", text, data, out)
        self.draw(usage, out / "soak.png")

    def draw(self, usage: dict[str, list[int]], path: Path) -> None:
        """Memory, threads and open files over time."""
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt

        figure, panels = plt.subplots(3, 1, figsize=(9, 9), sharex=True, layout="tight")
        for panel, (what, (label, unit)) in zip(panels, UNITS.items(), strict=True):
            panel.plot(self.minutes, [number / unit for number in usage[what]])
            panel.set(ylabel=label, ylim=(0, None), xlabel="minutes")
        figure.savefig(path, dpi=100)
        plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the soak; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--cores", type=int, default=0, help="processors to use; default: all")
    parser.add_argument("--nice", type=int, default=0, help="lowers the priority, up to 19")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    seconds = args.hours * 3600
    if args.train:
        train(args.train)
    # What runs in the background of a shell ignores it, and so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if args.work:
        work(args.work, seconds, args.seed)
        return 0
    if args.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    os.nice(args.nice)
    where = f"{machine()}, {len(os.sched_getaffinity(0))} processors, nice {os.nice(0)}"
    with tempfile.TemporaryDirectory(prefix="l3-soak-") as name:
        folder = Path(name) / "images"
        make_images(folder, np.random.default_rng(args.seed))
        run, reported = Run(seconds), 0.0

        def report_now_and_then() -> None:
            nonlocal reported
            if run.minutes[-1] * 60 > reported + REPORT_EVERY_S:
                reported = run.minutes[-1] * 60
                run.report(judge(run.rounds, reported), where, args.out)

        complaints = run.watch(folder, args.seed, report_now_and_then)
    run.report(complaints, where, args.out)
    print((args.out / "soak.md").read_text())
    for complaint in complaints:
        print(f"soak: {complaint}", file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
