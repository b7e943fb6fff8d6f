"""`l3 convert` beside the codec."""

from __future__ import annotations

import ctypes
import io
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.cpu.case import Result, apart
from benchmarks.peers import PNG, Image
from benchmarks.report import CODE, markdown_table, table
from rich.progress import track

import l3dali
from l3dali.images.picture import Picture
from l3dali.images.reading import read_picture
from l3dali.images.transcoding import encode_picture

PHOTOGRAPHS = ("photo/kodak", "photo/gb82")
SHARDS = 8
MODES: tuple[tuple[l3dali.Coding, int], ...] = (("rans", 5), ("rans", 9), ("packed", 5))
CORES = len(os.sched_getaffinity(0))
LARGE = ("4x4", "5x6")  # Kodak's images side by side: 18 and 34 MiB
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of Linux
THROUGHPUT = {
    "start s": "{start_cpu:.2f}",
    "read s": "{read:.2f}",
    "encode s": "{encode:.2f}",
    "verify s": "{verifying}",
    "rest s": "{rest:.2f}",
    "all s": "{cpu:.2f}",
    "encode / all, CPU": "{cpu_ratio:.0%}",
    "encode / all, wall": "{wall_ratio:.0%}",
    "bound, CPU": "{bound:.0%}",
}


def convert(
    data: Path | None = None,
    rounds: int = 3,
    copies: int = 3,
    small: int = 100_000,
    shards: int = 1000,
) -> Result:
    """`l3 convert` beside the codec: throughput, memory, small images, resume.

    Reading, encoding and verifying are timed without the command too, in turns with it, so that
    what is left is the command's own: tar, hashes, manifest, processes. CPU time is that of all its
    processes, and what counts on a machine with other work. What the command takes for four tiny
    images, its start, is taken off first.

    --copies are of each photograph, as PNG in 8 shards of WebDataset; --small are images of 32x32;
    --shards are gone over again. Medians of the rounds, ratios within a round. CPU seconds do not
    have the start, which has its own column. `encode / all` is the command's throughput over
    `codec.encode`'s on as many cores; `bound` the same if the rest cost nothing. Target: 90 %.
    Memory is the peak of the largest process, in MiB, resident, shared libraries included. Target:
    200 MB (191 MiB) beyond two images.
    """
    originals = photographs(data)
    files = originals * copies
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found: dict[str, Any] = {
            "photographs": len(files),
            "rounds": rounds,
            "resume": measure_resume(shards, folder),
            "memory": measure_memory(originals, folder),
            "throughput": measure_throughput(files, folder, rounds),
            "small": measure_small(small, folder),
        }
    return Result(text_of(found), found, code=(*CODE, "python/l3dali"))


def text_of(found: dict[str, Any]) -> str:
    """The page."""
    throughput = {
        f"{row['mode']}, {row['workers']}, {'yes' if row['verify'] else 'no'}": {
            **row,
            "verifying": f"{row['compare']:.2f}" if row["verify"] else "-",
        }
        for row in found["throughput"]
    }
    memory = {f"{row['mode']}, {row['image_mib']:.0f}": row for row in found["memory"]}
    small, resume = found["small"], found["resume"]
    rest = [
        [
            f"32x32, {small['images']} images, one worker: overhead an image",
            f"{small['overhead']:.3f} ms of CPU (all {small['all']:.3f}: read {small['read']:.3f}, "
            f"encode {small['encode']:.3f}, verify {small['compare']:.3f})",
            "<= 1 ms",
        ],
        [
            f"a second run over {resume['shards']} finished shards",
            f"{resume['wall']:.1f} s ({resume['cpu']:.1f} of CPU)",
            "< 10 s",
        ],
    ]
    memory_columns = {"peak": "{peak_mib:.0f}", "beyond two images": "{beyond_mib:.0f}"}
    tables = {
        "Throughput": table("mode, workers, verify", throughput, THROUGHPUT),
        "Memory": table("mode, image", memory, memory_columns),
        "The rest": markdown_table(["what", "measured", "target"], rest),
    }
    return "\n".join(f"## {title}\n\n{text}" for title, text in tables.items())


@dataclass(frozen=True)
class Cost:
    """Seconds, and the KiB that the largest process had at its peak."""

    wall: float
    cpu: float
    peak_kib: int = 0


def run_timed(command: Sequence[str]) -> Cost:
    """Runs a command; its cost includes all processes below it, orphans too."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1)
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - start
    with suppress(ChildProcessError):
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss)


def run_convert(source: Path, target: Path, *options: str) -> Cost:
    """The cost of `l3 convert`, taken in a process that has no other children."""
    command = [sys.executable, "-m", "l3dali", "convert", *options, str(source), str(target)]
    return apart(run_timed, command)


def convert_anew(source: Path, *options: str) -> Cost:
    """The same, into a new folder."""
    with tempfile.TemporaryDirectory() as target:
        return run_convert(source, Path(target) / "l3", *options)


def timed(work: Callable[[Any], Any], items: Sequence[Any], workers: int) -> tuple[list[Any], Cost]:
    """What the work gives on that many threads, and its cost."""
    start, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(workers) as pool:
        results = list(pool.map(work, items))
    return results, Cost(time.perf_counter() - start, time.process_time() - cpu)


def photographs(data: Path | None) -> list[bytes]:
    """PNG files; scikit-image's photographs where there are no others."""
    paths = [path for name in PHOTOGRAPHS if data for path in sorted((data / name).glob("*.png"))]
    if paths:
        return [path.read_bytes() for path in paths]
    import skimage.data

    names = ("astronaut", "chelsea", "coffee", "rocket")
    return [bytes(PNG.encode(getattr(skimage.data, name)())) for name in names]


def write_shards(files: Sequence[bytes], folder: Path, shards: int) -> Path:
    """A WebDataset: an image and a label a sample."""
    folder.mkdir(parents=True)
    for shard in range(shards):
        with tarfile.open(folder / f"{shard:04}.tar", "w") as tar:
            for i in range(shard, len(files), shards):
                for suffix, content in (("cls", b"%d" % (i % 10)), ("png", files[i])):
                    info = tarfile.TarInfo(f"{i:06}.{suffix}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    return folder


def small_images(count: int) -> list[bytes]:
    """32x32 ramps with noise, no two alike."""
    noise = np.random.default_rng(1)
    ramp = np.add.outer(np.arange(32), 2 * np.arange(32))[..., None] + np.array([0, 20, 40])
    return [
        PNG.encode((ramp + noise.integers(0, 16, (32, 32, 3))).astype(np.uint8))
        for _ in range(count)
    ]


def side_by_side(images: Sequence[Image], tiles: str) -> Image:
    """One image of ROWSxCOLUMNS different ones, so that its PNG is as large as a photograph's."""
    rows, columns = map(int, tiles.split("x"))
    chosen = [image for image in images if image.shape == images[0].shape]
    chosen = (chosen * (rows * columns))[: rows * columns]
    return np.vstack([np.hstack(chosen[i * columns :][:columns]) for i in range(rows)])


def of_mode(mode: l3dali.Coding, effort: int) -> str:
    """The mode as the tables name it."""
    return f"rans, effort {effort}" if mode == "rans" else mode


def phases(
    files: Sequence[bytes], mode: l3dali.Coding, effort: int, workers: int
) -> dict[str, Cost]:
    """What reading, encoding and verifying cost without the command."""

    def encode(picture: Picture) -> bytes:
        return encode_picture(picture, coding=mode, effort=effort)

    def check(pair: tuple[Picture, bytes]) -> None:
        if not np.array_equal(l3dali.decode(pair[1]), pair[0].pixels):
            raise SystemExit("an image does not come back")

    pictures, read = timed(read_picture, files, workers)
    encoded, encoding = timed(encode, pictures, workers)
    _, compare = timed(check, list(zip(pictures, encoded, strict=True)), workers)
    return {"read": read, "encode": encoding, "compare": compare}


def start_cost(folder: Path, rounds: int, workers: int) -> Cost:
    """What `l3 convert` costs with nearly nothing to convert."""
    source = write_shards(small_images(4), folder / f"start-{workers}", 4)
    costs = [convert_anew(source, "--jobs", str(workers)) for _ in range(rounds)]
    wall, cpu = (statistics.median(getattr(c, name) for c in costs) for name in ("wall", "cpu"))
    return Cost(wall, cpu)


def measure_throughput(files: list[bytes], folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Rows by mode, workers and verifying; medians of the rounds, ratios within one."""
    source = write_shards(files, folder / "photographs", SHARDS)
    rows: dict[tuple[Any, ...], list[dict[str, float]]] = {}
    starts = {workers: start_cost(folder, rounds, workers) for workers in {1, CORES}}
    turns = [(m, w) for _ in range(rounds) for m in MODES for w in sorted({1, CORES})]
    for (mode, effort), workers in track(turns, "photographs"):
        alone = phases(files, mode, effort, workers)
        for verify in (True, False):
            options = ["--coding", mode, "--effort", str(effort), "--jobs", str(workers)]
            options.append("--verify" if verify else "--no-verify")
            cost, start = convert_anew(source, *options), starts[workers]
            parts = {name: c.cpu for name, c in alone.items() if verify or name != "compare"}
            row = {"cpu": cost.cpu - start.cpu, "wall": cost.wall - start.wall, **parts}
            row |= {"start_cpu": start.cpu, "start_wall": start.wall}
            row["rest"] = row["cpu"] - sum(parts.values())
            row["cpu_ratio"] = alone["encode"].cpu / row["cpu"]
            row["wall_ratio"] = alone["encode"].wall / row["wall"]
            row["bound"] = alone["encode"].cpu / sum(parts.values())
            rows.setdefault((of_mode(mode, effort), workers, verify), []).append(row)
    return [
        {"mode": mode, "workers": workers, "verify": verify}
        | {name: statistics.median(row[name] for row in found) for name in found[0]}
        for (mode, workers, verify), found in rows.items()
    ]


def measure_memory(photographs: list[bytes], folder: Path) -> list[dict[str, Any]]:
    """The peak of the largest process beyond two images, by their size."""
    images = [read_picture(data).pixels for data in photographs]
    rows = []
    for tiles in track(("1x1", *LARGE), "memory"):
        large = side_by_side(images, tiles)
        source = write_shards([PNG.encode(large)] * 8, folder / f"memory-{tiles}", 4)
        for mode, effort in MODES:
            cost = convert_anew(source, "--coding", mode, "--effort", str(effort))
            image_mib, peak_mib = large.nbytes / 2**20, cost.peak_kib / 2**10
            row = {"mode": of_mode(mode, effort), "image_mib": image_mib, "peak_mib": peak_mib}
            rows.append(row | {"beyond_mib": peak_mib - 2 * image_mib})
    idle = convert_anew(write_shards(small_images(4), folder / "idle", 4)).peak_kib / 2**10
    return [
        *rows,
        {"mode": "four of 32x32", "image_mib": 0.0, "peak_mib": idle, "beyond_mib": idle},
    ]


def measure_small(count: int, folder: Path) -> dict[str, Any]:
    """CPU time an image of 32x32 beyond reading, encoding and verifying; milliseconds."""
    files = small_images(count)
    source = write_shards(files, folder / "small", SHARDS)
    start = start_cost(folder / "small-start", 1, 1)
    alone = {name: cost.cpu for name, cost in phases(files, "rans", 5, 1).items()}
    cost = convert_anew(source, "--jobs", "1").cpu - start.cpu
    numbers = alone | {"all": cost, "overhead": cost - sum(alone.values())}
    return {"images": count} | {name: 1000 * value / count for name, value in numbers.items()}


def measure_resume(shards: int, folder: Path) -> dict[str, Any]:
    """What a second run costs that has nothing to do."""
    source = write_shards(small_images(shards), folder / "shards", shards)
    run_convert(source, folder / "shards-l3")
    again = run_convert(source, folder / "shards-l3")
    return {"shards": shards, "wall": again.wall, "cpu": again.cpu}
