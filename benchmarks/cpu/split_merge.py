"""What a batch of several formats costs beside batches of one.

    python -m benchmarks.cpu.split_merge --data ../shared/data

Pipelines on cores, from files in the page cache. Two comparisons, whose pipelines take turns: a
batch of L3 files through `l3dali.pipeline.decode` and through `fn.l3.decode`; and a batch of which
every other file is a PNG, beside the two halves through their own decoders. A turn begins and ends
with nothing under way. On a shared machine a few percent drown in noise, so what splits and merges
is also measured alone, many times in a pipeline, beside one that decodes. There, `chrt --rr 1`
helps.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import nvidia.dali as dali
from benchmarks.peers import L3_MODES, PNG, Image, images, machine
from benchmarks.report import RESULTS, markdown_table, write_results
from nvidia.dali import fn, types

import l3dali
import l3dali.pipeline

SETS = ("photo/large@500x375", "photo/large@1000x750")
BATCH = 32
CROP = (224, 224)
IN_FLIGHT = 2  # batches, as DALI prefetches
ARGUMENTS = {"output_type": types.RGB, "dtype": types.UINT8}
TURN = 3  # batches
LEAST_ROUNDS = 5
EQUAL_PIPELINES = 3
COPIES = 20  # of what is measured alone
RESAMPLES = 2000


def decode_l3(encoded: Any) -> Any:
    return fn.l3.decode(encoded, **ARGUMENTS)


def decode_png(encoded: Any) -> Any:
    return fn.decoders.image(encoded, **ARGUMENTS)


def write_files(pictures: Sequence[Image], mode: l3dali.Coding, out: Path) -> list[dict[str, str]]:
    """Each image as L3 and as PNG; their paths."""
    files = []
    for i, image in enumerate(pictures):
        paths = {kind: str(out / f"{mode}-{i}.{kind}") for kind in ("l3", "png")}
        Path(paths["l3"]).write_bytes(l3dali.encode(image, coding=mode))
        Path(paths["png"]).write_bytes(PNG.encode(image))
        files.append(paths)
    return files


def make_pipeline(files: list[str], graph: Callable[[Any], Any], threads: int) -> Any:
    pipe = dali.Pipeline(len(files), threads, None, prefetch_queue_depth=IN_FLIGHT)
    with pipe:
        encoded, _ = fn.readers.file(files=files)
        pipe.set_outputs(graph(encoded))
    pipe.build()
    turn(pipe, IN_FLIGHT)
    return pipe


def turn(pipe: Any, batches: int) -> tuple[float, float]:
    """Seconds, of the clock and of all cores, that so many batches take."""
    clock, cpu = time.perf_counter(), time.process_time()
    for n in range(batches + IN_FLIGHT):
        if n < batches:
            pipe.schedule_run()
        if n >= IN_FLIGHT:
            pipe.share_outputs()
            pipe.release_outputs()
    return time.perf_counter() - clock, time.process_time() - cpu


def compare(make: Sequence[Callable[[], Any]], seconds: float) -> dict[str, Any]:
    """How much longer the first kind of pipeline takes than the others together.

    Equal pipelines differ by where their memory lies, so there are some of each kind. `best` is of
    the best turns, `same` the longest best turn of equal pipelines of the first kind over the
    shortest, and a list has the ratios of all rounds.
    """
    pipes = [[make_one() for make_one in make] for _ in range(EQUAL_PIPELINES)]
    rounds: list[list[list[tuple[float, float]]]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(rounds) < LEAST_ROUNDS:
        rounds.append([[turn(pipe, TURN) for pipe in of_each] for of_each in pipes])
    numbers: dict[str, Any] = {"rounds": len(rounds)}
    for i, kind in enumerate(("clock", "cpu")):
        times = np.array(rounds)[..., i]  # round, pipeline, kind
        best = times.min(axis=(0, 1))
        of_first = times[:, :, 0].min(axis=0)
        sums = times.sum(axis=1)
        numbers[f"{kind}_ms"] = best[0] / TURN * 1e3
        numbers[f"{kind}_best"] = best[0] / best[1:].sum()
        numbers[f"{kind}_same"] = of_first.max() / of_first.min()
        numbers[kind] = list(sums[:, 0] / sums[:, 1:].sum(axis=1))
    return numbers


def split_and_merge(encoded: Any) -> Any:
    """What `l3dali.pipeline.decode` does besides decoding."""
    is_l3, numbers = fn.l3.recognize(encoded, check_others=True, _with_numbers=True)
    fn._conditional.split(numbers, predicate=is_l3, preserve=True)
    return fn._conditional.merge(*fn._conditional.split(encoded, predicate=is_l3), predicate=is_l3)


def cost_alone(files: list[str], seconds: float, threads: int) -> dict[str, Any]:
    """Recognizing, splitting and merging one batch, beside decoding it: ms and parts of that.

    Pipelines that split and merge many times, not at all, and that decode instead take turns. Times
    of the clock and of all cores. Their outputs are truth values: DALI would copy merged files.
    """

    def many(encoded: Any) -> Any:
        for _ in range(COPIES):
            encoded = split_and_merge(encoded)
        return fn.l3.recognize(encoded)

    # What follows the decoder finds caches and memory as that has left them: a turn that is not
    # counted is between.
    graphs = (fn.l3.recognize, many, fn.l3.recognize, decode_l3)
    pipes = [make_pipeline(files, graph, threads) for graph in graphs]
    rounds: list[list[tuple[float, float]]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(rounds) < LEAST_ROUNDS:
        rounds.append([turn(pipe, TURN) for pipe in pipes][1:])
    times = np.array(rounds) / TURN * 1e3  # round, pipeline, kind
    alone = (times[:, 0] - times[:, 1]) / COPIES
    numbers: dict[str, Any] = {"alone_rounds": len(rounds)}
    for i, kind in enumerate(("clock", "cpu")):
        numbers[f"alone_{kind}_ms"] = float(np.median(alone[:, i]))
        numbers[f"alone_{kind}_part"] = interval(alone[:, i] / times[:, 2, i])
    return numbers


def interval(values: Any) -> tuple[float, float, float]:
    """The median, and its bounds with 95 %, by bootstrap."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(values, (RESAMPLES, len(values))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return float(np.median(values)), float(low), float(high)


def measure(
    data: Path, name: str, mode: l3dali.Coding, seconds: float, threads: int
) -> Iterator[dict[str, Any]]:
    """Both comparisons for one set and mode."""
    pictures = list(itertools.islice(itertools.cycle(images(data, name)), BATCH))
    with tempfile.TemporaryDirectory() as folder:
        files = write_files([image for _, image in pictures], mode, Path(folder))
        l3 = [paths["l3"] for paths in files]
        mix = [paths["png" if i % 2 == 0 else "l3"] for i, paths in enumerate(files)]
        alone = cost_alone(l3, seconds, threads)
        parts = [(l3, decode_l3)]
        halves = [(mix[1::2], decode_l3), (mix[::2], decode_png)]
        for batch, whole, of_whole, crop in (
            ("all L3", l3, parts, False),
            ("every other a PNG", mix, halves, False),
            ("every other a PNG", mix, halves, True),
        ):

            def make(paths: list[str], decode: Any, crop: bool = crop) -> Any:
                def graph(encoded: Any) -> Any:
                    return fn.crop(decode(encoded), crop=CROP) if crop else decode(encoded)

                return make_pipeline(paths, graph, threads)

            kinds = [(whole, l3dali.pipeline.decode), *of_whole]
            numbers = compare([functools.partial(make, *kind) for kind in kinds], seconds)
            print(name, mode, batch, f"{numbers['clock_best']:.3f}", flush=True)
            yield {
                "set": name,
                "mode": mode,
                "batch": batch,
                "end": f"crop of {CROP[0]}x{CROP[1]}" if crop else "output",
                **alone,
                **numbers,
            }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the sets")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--seconds", type=float, default=15, help="of a comparison")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)

    before = os.getloadavg()[0]
    rows = [
        row
        for name in options.sets
        for mode in L3_MODES
        for row in measure(options.data, name, mode, options.seconds, options.threads)
    ]
    load = (before, os.getloadavg()[0])

    def shown(row: dict[str, Any], kind: str) -> list[str]:
        low, middle, high = statistics.quantiles(row[kind], n=4)
        best = f"{row[f'{kind}_best']:.3f} ({row[f'{kind}_same']:.3f})"
        return [best, f"{middle:.3f} ({low:.3f} to {high:.3f})"]

    head = ["set, L3 mode", "batch", "what follows", "ms", "time / parts: best turns", "median"]
    head += ["CPU time / parts: best", "median"]
    table = []
    alone: dict[str, list[str]] = {}
    for row in rows:
        what = f"{row['set']}, {row['mode']}"
        cells = [what, row["batch"], row["end"], f"{row['clock_ms']:.1f}"]
        table.append([*cells, *shown(row, "clock"), *shown(row, "cpu")])
        alone[what] = [what]
        for kind in ("clock", "cpu"):
            middle, low, high = (100 * part for part in row[f"alone_{kind}_part"])
            alone[what].append(f"{row[f'alone_{kind}_ms']:.3f}")
            alone[what].append(f"{middle:.2f} % [{low:.2f}, {high:.2f}]")
    text = (
        f'{machine()}. DALI {dali.__version__}, `device="cpu"`, {options.threads} threads, batches '
        f"of {BATCH}, files in the page cache. Each comparison took {options.seconds:.0f} s or "
        f"{LEAST_ROUNDS} rounds, in turns of {TURN} batches, with {EQUAL_PIPELINES} pipelines of "
        f"each kind. Best turns, in brackets how much equal pipelines differ in them; medians of "
        f"the rounds with quartiles. Load "
        f"{load[0]:.1f} at the beginning, {load[1]:.1f} at the end, on {os.cpu_count()} cores.\n\n"
        f"Parts: `fn.l3.decode` of the same batch, or of its half with `fn.decoders.image` of the "
        f"other half. A batch that is an output and does not lie in one piece is copied by DALI; "
        f"operators take it as it is.\n\n"
        + markdown_table(head, table)
        + "\nRecognizing, splitting and merging a batch alone, as part of what decoding all of "
        "it as L3 takes; medians of rounds with bootstrap intervals of 95 %.\n\n"
        + markdown_table(
            ["set, L3 mode", "ms", "of decoding", "CPU ms", "of decoding, CPU time"],
            list(alone.values()),
        )
    )
    write_results(
        "split_merge", "Batches of several formats", text, {"load": load, "rows": rows}, options.out
    )


if __name__ == "__main__":
    main()
