"""What a batch of several formats costs beside batches of one."""

from __future__ import annotations

import functools
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import nvidia.dali as dali
from benchmarks.cpu.case import Result, interval
from benchmarks.peers import L3_CODINGS, PNG, Image, images, l3_encoder
from benchmarks.report import table
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


def split_merge(
    data: Path, sets: Sequence[str] = SETS, seconds: float = 15.0, threads: int = 2
) -> Result:
    """What a batch of several formats costs beside batches of one.

    Pipelines on cores, from files in the page cache. Two comparisons, whose pipelines take turns: a
    batch of L3 files through `l3dali.pipeline.decode` and through `fn.l3.decode`; and a batch of
    which every other file is a PNG, beside the two halves through their own decoders. A turn begins
    and ends with nothing under way. On a shared machine a few percent drown in noise, so what
    splits and merges is also measured alone, many times in a pipeline, beside one that decodes.
    There, `chrt --rr 1` helps. A comparison takes --seconds, with batches of 32 and three pipelines
    of each kind.

    Best turns, in brackets how much equal pipelines differ in them; medians of the rounds with
    quartiles. Parts: `fn.l3.decode` of the same batch, or of its half with `fn.decoders.image` of
    the other half. A batch that is an output and does not lie in one piece is copied by DALI;
    operators take it as it is.
    """
    rows = [
        row
        for name in sets
        for mode in L3_CODINGS
        for row in measure(data, name, mode, seconds, threads)
    ]
    shown = {}
    for row in rows:
        what = f"{row['set']}, {row['mode']}: {row['batch']}, {row['end']}"
        shown[what] = {**row, "set_mode": f"{row['set']}, {row['mode']}"}
        for kind in ("clock", "cpu"):
            shown[what][kind] = np.percentile(row[kind], [50, 25, 75])
            shown[what][f"alone_{kind}_part"] = 100 * np.array(row[f"alone_{kind}_part"])
    spread = "{%s[0]:.3f} ({%s[1]:.3f} to {%s[2]:.3f})"
    columns, alone = {"ms": "{clock_ms:.1f}"}, {}
    for kind, title in (("clock", "time"), ("cpu", "CPU time")):
        columns[f"{title} / parts: best turns"] = f"{{{kind}_best:.3f}} ({{{kind}_same:.3f}})"
        columns[f"{title} / parts: median"] = spread % (kind, kind, kind)
        part = f"alone_{kind}_part"
        alone[f"{title}, ms"] = f"{{alone_{kind}_ms:.3f}}"
        alone[f"{title} of decoding's"] = (
            f"{{{part}[0]:.2f}} % [{{{part}[1]:.2f}}, {{{part}[2]:.2f}}]"
        )
    text = (
        table("set, L3 mode: batch, what follows", shown, columns)
        + "\nRecognizing, splitting and merging a batch alone, as part of what decoding all of "
        "it as L3 takes; medians of rounds with bootstrap intervals of 95 %.\n\n"
        + table("set, L3 mode", {row["set_mode"]: row for row in shown.values()}, alone)
    )
    return Result(text, {"rows": rows})


def decode_l3(encoded: Any) -> Any:
    return fn.l3.decode(encoded, **ARGUMENTS)


def decode_png(encoded: Any) -> Any:
    return fn.decoders.image(encoded, **ARGUMENTS)


def write_files(pictures: Sequence[Image], mode: l3dali.Coding, out: Path) -> list[dict[str, str]]:
    """Each image as L3 and as PNG; their paths."""
    files = []
    for i, image in enumerate(pictures):
        paths = {kind: str(out / f"{mode}-{i}.{kind}") for kind in ("l3", "png")}
        Path(paths["l3"]).write_bytes(l3_encoder(mode)(image))
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
        part = alone[:, i] / times[:, 2, i]
        numbers[f"alone_{kind}_part"] = (float(np.median(part)), *interval(part))
    return numbers


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
            yield {
                "set": name,
                "mode": mode,
                "batch": batch,
                "end": f"crop of {CROP[0]}x{CROP[1]}" if crop else "output",
                **alone,
                **numbers,
            }
