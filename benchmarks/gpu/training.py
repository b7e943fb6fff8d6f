"""Training end to end: how near files of each format keep a GPU to the pace of a resident batch.

    python -m benchmarks.gpu.training --data ../shared/data --minutes 9
    python -m benchmarks.gpu.training --data ../shared/data --device cpu --tiny    # no GPU

Models have random weights, bf16 arithmetic and channels_last; their inputs are files in the page
cache, decoded by DALI on all cores that the process may use and normalized on the device, or one
resident batch: the ceiling. Images are cut, flipped and turned from photographs, each is another.

A process has a model and some cores to itself (sched_setaffinity). It measures the inputs
one after the other: steps to warm up, then as many as there is time for, from which come images/s,
CPU time and what the GPU received over PCIe (NVML); at last steps at half the pace of the ceiling,
each timed alone: how much slower a step is while files of this format are decoded beside it.

The paper of L3 states gains end to end of 1.71x over PNG, 1.77x over JPEG and 2.87x over WebP, and
of 1.54x over JPEG for its mixed data sets: where those feed 58, 56, 35 and 65 % of the ceiling. So
the gain of L3 is read where the peer's curve over the cores passes that share. Results are written
after every measurement, and a run goes on where an earlier one with the same files, options and
code was cut off.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import importlib.util
import itertools
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import nvidia.dali as dali
from benchmarks.gpu.host import PcieInput, describe_gpu
from benchmarks.gpu.images import PIPELINE_SET, cut, noisy_gradient
from benchmarks.gpu.summary import GAIN_HEAD, TRAINING
from benchmarks.peers import PNG, Image, images, machine
from benchmarks.pipeline import JPEG, MEAN, STD, Format, first_line, formats, positive, rounded
from benchmarks.report import (
    RESULTS,
    cells,
    code_commit,
    made,
    markdown_table,
    print_table,
    save_results,
)
from nvidia.dali import fn, types
from rich.progress import track

SYNTHETIC = "resident batch"
WEBP = "WebP lossless"
MARGIN = 64  # pixels that a photograph is mirrored beyond its edges at least, for other cuts
# Shares of the ceiling at which the paper's peers stood: L3 reached all of it.
PAPER = {PNG.name: 1 / 1.71, JPEG: 1 / 1.77, WEBP: 1 / 2.87}
OURS = ("L3 rans", "L3 packed", "L3 jpeg")
PACE = 0.5  # of the ceiling, for the steps that are timed alone
KEEPS_PACE = 0.9  # of it, at least
MIN_STEPS = 3
SMALL_CUT = (224, 224)
CODE = ("benchmarks/gpu/training.py", "encoder", "src")


@dataclass(frozen=True)
class Images:
    """A set of distinct images."""

    width: int
    height: int
    count: int


SETS = (Images(2048, 1024, 512), Images(500, 375, 5000))
TINY_SETS = (Images(128, 64, 8), Images(50, 38, 8))
TINY_BATCH = 2


@dataclass(frozen=True)
class Model:
    """What is trained, and on what."""

    name: str
    module: str  # that it comes from
    large: bool  # images; else small ones, of which it sees random cuts of 224x224
    batch: int
    build: Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """What one model measured with one input on some cores."""

    model: str
    input: str
    cores: int
    batch: int
    images_per_s: float
    cpu_s_per_1000: float
    step_ms: float | None  # of steps at half the ceiling's pace; None if the input cannot keep it
    pcie_mb_per_image: float | None  # None where NVML does not tell
    encoded_bytes: float  # an image, on average


def _torchvision(kind: str, name: str, **options: Any) -> Callable[[], Any]:
    def build() -> Any:
        models = importlib.import_module("torchvision.models" + kind)
        return getattr(models, name)(weights=None, **options)

    return build


def _segformer() -> Any:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    # The configuration's defaults are those of B0.
    return SegformerForSemanticSegmentation(SegformerConfig(num_labels=19))


_PARTS = {"weights_backbone": None, "num_classes": 19}
MODELS = {
    model.name: model
    for model in (
        Model(
            "lraspp_mobilenet_v3_large",
            "torchvision",
            large=True,
            batch=16,
            build=_torchvision(".segmentation", "lraspp_mobilenet_v3_large", **_PARTS),
        ),
        Model(
            "resnet50", "torchvision", large=False, batch=256, build=_torchvision("", "resnet50")
        ),
        Model("SegFormer-B0", "transformers", large=True, batch=8, build=_segformer),
        Model(
            "deeplabv3_resnet50",
            "torchvision",
            large=True,
            batch=8,
            build=_torchvision(".segmentation", "deeplabv3_resnet50", **_PARTS),
        ),
    )
}


def input_formats(device: str) -> list[Format]:
    """The inputs beside the resident batch, the most telling first, those slow to encode last."""
    known = {fmt.name: fmt for fmt in formats(device)}
    load = known[PNG.name].load
    for name, options in ((WEBP, {"lossless": True}), ("WebP lossy", {"level": 90})):
        encode = functools.partial(imagecodecs.webp_encode, **options)
        known[name] = Format(name, encode, load, lossless=name == WEBP)
    order = [PNG.name, "L3 rans", "L3 packed", "L3 rans, cached", JPEG, "L3 jpeg", "raw (numpy)"]
    return [known[name] for name in (*order, WEBP, "WebP lossy") if name in known]


def distinct_images(photographs: Sequence[Image], what: Images) -> Iterator[Callable[[], Image]]:
    """Yields what makes each image: all differ in photograph, place, turn or flip."""
    random = np.random.default_rng(1)
    seen: set[tuple[int, ...]] = set()
    while len(seen) < what.count:
        number, turns, flip = map(int, random.integers((len(photographs), 4, 2)))
        photo = photographs[number]
        if min(photo.shape[:2]) < what.width:
            turns -= turns % 2  # a quarter turn would leave much to be mirrored
        photo = np.rot90(photo, turns)
        space = max(photo.shape[0], what.height + MARGIN), max(photo.shape[1], what.width + MARGIN)
        limits = space[0] - what.height + 1, space[1] - what.width + 1
        top, left = map(int, random.integers(limits))
        if (place := (number, turns, flip, top, left)) not in seen:
            seen.add(place)
            yield functools.partial(_make_image, photo, what, bool(flip), top, left)


def _make_image(photo: Image, what: Images, flip: bool, top: int, left: int) -> Image:
    window = cut(photo[:, ::-1] if flip else photo, top + what.height, left + what.width)
    return np.ascontiguousarray(window[top:, left:])


def prepare_files(fmt: Format, photographs: Sequence[Image], what: Images, folder: Path) -> None:
    """Writes the images, encoded, to a folder; one that is there is whole."""
    if folder.exists():
        return
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)

    def write(number: int, make: Callable[[], Image]) -> None:
        # The numpy reader wants this name.
        (part / f"{number:05d}.npy").write_bytes(fmt.encode(make()))

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        makers = distinct_images(photographs, what)
        done = pool.map(write, itertools.count(), makers)
        for _ in track(done, f"{fmt.name}, {what.width}x{what.height}", what.count):
            pass
    part.rename(folder)


class Training:
    """A model, and steps of its training."""

    def __init__(self, model: Model, device: str) -> None:
        """Random weights, on `device`: cuda or cpu."""
        import torch

        self._torch = torch
        self._device = device
        torch.manual_seed(1)
        self._network = model.build().to(device, memory_format=torch.channels_last).train()
        self._optimizer = torch.optim.SGD(self._network.parameters(), lr=1e-3, momentum=0.9)
        self._labels: Any = None

    def step(self, pixels: Any) -> None:
        """One step on a batch, (N, 3, H, W) in channels_last; the GPU may still be at it."""
        torch = self._torch
        with torch.autocast(self._device, dtype=torch.bfloat16):
            output = self._network(pixels.to(torch.bfloat16))
            if isinstance(output, dict):  # torchvision calls it so, transformers so
                output = output["out"] if "out" in output else output["logits"]
            if self._labels is None:
                size = (output.shape[0], *output.shape[2:])
                self._labels = torch.randint(output.shape[1], size, device=self._device)
            loss = torch.nn.functional.cross_entropy(output, self._labels)
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def wait(self) -> None:
        """Until the GPU has done all steps."""
        if self._device == "cuda":
            self._torch.cuda.synchronize()

    def resident_batch(self, size: Sequence[int]) -> Any:
        """Random pixels, normalized, in the device's memory."""
        torch = self._torch
        pixels = torch.randn(*size, device=self._device, dtype=torch.bfloat16)
        return pixels.to(memory_format=torch.channels_last)


def decoded_batches(
    fmt: Format, files: list[str], cores: int, large: bool, batch: int, device: str
) -> Iterator[Any]:
    """Endless batches of a format's files, (N, 3, H, W) in channels_last, as halves."""
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    pipe = dali.Pipeline(batch, cores, 0 if device == "cuda" else None, seed=1)
    with pipe:
        pixels = fmt.load(files, "mixed" if device == "cuda" else "cpu")
        pixels = fn.reinterpret(pixels, layout="HWC")  # arrays have none
        if not large:
            pixels = fn.random_resized_crop(pixels, size=SMALL_CUT)
        options = {"mirror": fn.random.coin_flip(), "mean": MEAN, "std": STD}
        halves = {"dtype": types.FLOAT16, "output_layout": "HWC"}
        pipe.set_outputs(fn.crop_mirror_normalize(pixels, **options, **halves))
    loader = DALIGenericIterator(pipe, ["pixels"])
    if fmt.cached:
        for _ in range(math.ceil(len(files) / batch)):
            next(loader)
    return (outputs[0]["pixels"].permute(0, 3, 1, 2) for outputs in loader)


@dataclass(frozen=True)
class Cell:
    """What a process is asked to measure: a model on some cores, with these inputs."""

    model: str
    cores: int
    inputs: dict[str, str]  # and the folders of their files; the resident batch has none
    size: list[int]  # of a batch: N, 3, H, W
    ceiling: float | None  # images/s; None before the resident batch has been measured
    device: str
    warm_s: float
    seconds: float
    paced_s: float
    deadline: float  # as time.time() tells it: what would not end before it is not begun


def _train_for(training: Training, batches: Iterator[Any], seconds: float) -> tuple[int, float]:
    """Batches, and the seconds they took."""
    begin, count = time.perf_counter(), 0
    while count < MIN_STEPS or time.perf_counter() < begin + seconds:
        training.step(next(batches))
        count += 1
    training.wait()
    return count, time.perf_counter() - begin


def _time_steps(
    training: Training, batches: Iterator[Any], interval: float, seconds: float
) -> float | None:
    """Median seconds of a step; one begins every `interval`. None if too few batches came."""
    begin = time.perf_counter()
    times: list[float] = []
    while len(times) < MIN_STEPS or time.perf_counter() < begin + seconds:
        pixels = next(batches)
        time.sleep(max(0.0, begin + len(times) * interval - time.perf_counter()))
        step_begin = time.perf_counter()
        training.step(pixels)
        training.wait()
        times.append(time.perf_counter() - step_begin)
    keeps_pace = time.perf_counter() - begin < (len(times) + 1) * interval / KEEPS_PACE
    return statistics.median(times) if keeps_pace else None


def measure_input(
    cell: Cell, name: str, training: Training, batches: Iterator[Any], ceiling: float | None
) -> dict[str, Any]:
    """The numbers of a row that time tells."""
    batch = cell.size[0]
    _train_for(training, batches, cell.warm_s)
    pcie = PcieInput()
    begin_cpu = time.process_time()
    steps, seconds = _train_for(training, batches, cell.seconds)
    cpu_s = time.process_time() - begin_cpu
    pcie_bytes_per_s = pcie.stop()
    rate = steps * batch / seconds
    interval = batch / (PACE * (ceiling or rate))
    step_s = _time_steps(training, batches, interval, cell.paced_s)
    return {
        "input": name,
        "images_per_s": rate,
        "cpu_s_per_1000": 1e3 * cpu_s / (steps * batch),
        "step_ms": step_s and 1e3 * step_s,
        "pcie_mb_per_image": pcie_bytes_per_s and pcie_bytes_per_s / rate / 1e6,
    }


def run_cell(cell: Cell) -> None:
    """In a process of its own: prints a line of JSON for each input."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: cell.cores])
    model = MODELS[cell.model]
    training = Training(model, cell.device)
    known = {fmt.name: fmt for fmt in input_formats("mixed" if cell.device == "cuda" else "cpu")}
    ceiling = cell.ceiling
    for name, folder in cell.inputs.items():
        if time.time() + cell.warm_s + cell.seconds + cell.paced_s > cell.deadline:
            return
        print(json.dumps({"begins": name}), flush=True)
        try:
            if name == SYNTHETIC:
                batches: Iterator[Any] = itertools.repeat(training.resident_batch(cell.size))
            else:
                files = sorted(map(str, Path(folder).iterdir()))
                batch = cell.size[0]
                batches = decoded_batches(
                    known[name], files, cell.cores, model.large, batch, cell.device
                )
            numbers = measure_input(cell, name, training, batches, ceiling)
        except (RuntimeError, MemoryError) as error:  # the others go on
            print(json.dumps({"input": name, "error": first_line(error)}), flush=True)
            continue
        finally:
            batches = iter(())  # ends the threads of its pipeline
            gc.collect()
        if name == SYNTHETIC:
            ceiling = numbers["images_per_s"]
        print(json.dumps(numbers), flush=True)


def measure(cell: Cell) -> Iterator[dict[str, Any]]:
    """What a process for the cell prints; one that breaks is followed by one for the rest."""
    while cell.inputs:
        command = [sys.executable, "-m", __spec__.name, "--cell", json.dumps(asdict(cell))]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        begun = next(iter(cell.inputs))
        for line in process.stdout:
            numbers = json.loads(line) if line.startswith("{") else {}
            begun = numbers.get("begins", begun)
            if "input" in numbers:
                yield numbers
        if process.wait() == 0:
            return
        yield {"input": begun, "error": f"the process ended with {process.returncode}"}
        rest = list(cell.inputs).index(begun) + 1
        cell = replace(cell, inputs=dict(list(cell.inputs.items())[rest:]))


def ceilings(rows: Sequence[Row]) -> dict[str, float]:
    """Images/s of the resident batch by model: the best of all core counts."""
    best: dict[str, float] = {}
    for row in rows:
        if row.input == SYNTHETIC:
            best[row.model] = max(best.get(row.model, 0.0), row.images_per_s)
    return best


def shares(rows: Sequence[Row], model: str, name: str) -> dict[int, float]:
    """Share of the ceiling that an input reaches, by cores."""
    ceiling = ceilings(rows).get(model, math.inf)
    of_input = [row for row in rows if (row.model, row.input) == (model, name)]
    return dict(sorted((row.cores, row.images_per_s / ceiling) for row in of_input))


def gain(peer: dict[int, float], l3: dict[int, float], share: float) -> tuple[float, float] | None:
    """Cores at which the peer feeds this share, and how many times as much L3 feeds there."""
    if not min(peer.values()) <= share <= max(peer.values()):
        return None
    cores = float(np.interp(share, np.maximum.accumulate(list(peer.values())), list(peer)))
    if not l3 or not min(l3) <= cores <= max(l3):
        return None
    return cores, float(np.interp(cores, list(l3), list(l3.values()))) / share


def gain_rows(rows: Sequence[Row]) -> list[list[str]]:
    """A line for each model and peer: the paper's gain, and L3's at the same point."""
    table = []
    for model in dict.fromkeys(row.model for row in rows):
        for name, share in PAPER.items():
            peer = shares(rows, model, name)
            if not peer:
                continue
            line = [f"{model}, {name}", f"{100 * share:.0f}", f"{1 / share:.2f}"]
            found = [gain(peer, shares(rows, model, l3), share) for l3 in OURS]
            cores = next((f"{point[0]:.1f}" for point in found if point), None)
            span = f"{100 * min(peer.values()):.0f} to {100 * max(peer.values()):.0f} % measured"
            table.append([*line, cores or span, *(f"{p[1]:.2f}" if p else "-" for p in found)])
    return table


COLUMNS = {
    "model, input": "{model}, {input}",
    "cores": "{cores}",
    "images/s": "{rate}",
    "% of ceiling": "{percent:.0f}",
    "step, times resident": "{step:.3f}",
    "core-s per 1,000 images": "{cpu}",
    "PCIe MB an image": "{pcie_mb_per_image:.2f}",
    "file MB": "{file_mb:.2f}",
}


def row_lines(rows: Sequence[Row]) -> list[list[str]]:
    """All rows for people."""
    resident = {(r.model, r.cores): r.step_ms for r in rows if r.input == SYNTHETIC}
    shown = []
    for row in rows:
        alone = resident.get((row.model, row.cores))
        ceiling = ceilings(rows).get(row.model)
        shown.append(
            {
                **vars(row),
                "rate": rounded(row.images_per_s),
                "percent": ceiling and 100 * row.images_per_s / ceiling,
                "step": row.step_ms / alone if alone and row.step_ms else None,
                "cpu": rounded(row.cpu_s_per_1000),
                "file_mb": row.encoded_bytes / 1e6 or None,
            }
        )
    return cells(shown, COLUMNS)


def page(rows: Sequence[Row]) -> str:
    """The tables."""
    text = "\n## At the paper's points\n\n" + markdown_table(GAIN_HEAD, gain_rows(rows))
    return text + "\n## All measurements\n\n" + markdown_table(list(COLUMNS), row_lines(rows))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the sets")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--inputs", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument(
        "--cores", type=positive, nargs="+", default=[16, 4, 8], help="in this order"
    )
    parser.add_argument("--warm", type=float, default=3.0, help="seconds before each measurement")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--paced", type=float, default=3.0, help="seconds of steps timed alone")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin nothing that ends later"
    )
    parser.add_argument("--tiny", action="store_true", help="few, small images in small batches")
    parser.add_argument("--files", type=Path, default=Path("build/training"), help="kept for later")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


def read_photographs(data: Path) -> tuple[list[Image], str]:
    """RGB8 images to cut from, and what to call them."""
    found = [image for _, image in images(data, PIPELINE_SET)]
    return (found, PIPELINE_SET) if found else ([noisy_gradient(1280, 2560)], "a noisy gradient")


class Run:
    """All cells of a command line, and what is known of them so far."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Goes on with the results in `args.out` if they are of such a run."""
        self._args = args
        self._deadline = time.time() + 60 * args.minutes
        self._photographs, self._source = read_photographs(args.data)
        self._sets = TINY_SETS if args.tiny else SETS
        gpu = describe_gpu() if args.device == "cuda" else None
        if args.device == "cuda" and gpu is None:
            raise SystemExit("no GPU, so nothing was timed; --device cpu --tiny needs none")
        self._host = machine() + (f", {gpu[0]}, driver {gpu[1]}" if gpu else "")
        self._options = {
            "made": made(),
            "commit": code_commit(CODE),
            "host": self._host,
            "source": self._source,
            **{name: getattr(args, name) for name in ("warm", "seconds", "paced", "tiny")},
        }
        self.rows: list[Row] = []
        self._left_out: dict[str, str] = {}  # what, and why
        path = args.out / "training.json"
        if path.exists() and (old := json.loads(path.read_text())).get("options") == self._options:
            self.rows = [Row(**row) for row in old["rows"]]

    def measure(self) -> None:
        """Everything, the most telling first; writes the results after each row."""
        known = input_formats("mixed" if self._args.device == "cuda" else "cpu")
        names = [SYNTHETIC, *(fmt.name for fmt in known)]
        asked = self._args.inputs or names
        if unknown := set(asked) - set(names):
            raise SystemExit(f"no input {', '.join(unknown)}; there are {', '.join(names)}")
        inputs = {fmt.name: fmt for fmt in known if fmt.name in asked}
        slow = {name: fmt for name, fmt in inputs.items() if name.startswith("WebP")}
        quick = {name: fmt for name, fmt in inputs.items() if name not in slow}
        for formats_now in (quick, slow):
            for name in self._args.models:
                for cores in self._args.cores if formats_now else ():
                    self._measure_cell(MODELS[name], cores, formats_now)
        self._write()

    def _measure_cell(self, model: Model, cores: int, inputs: dict[str, Format]) -> None:
        what = f"{model.name}, {cores} cores"
        if importlib.util.find_spec(model.module) is None:
            self._left_out[model.name] = f"Python lacks {model.module}"
            return
        if cores > len(os.sched_getaffinity(0)):
            self._left_out[what] = f"there are {len(os.sched_getaffinity(0))}"
            return
        done = {row.input for row in self.rows if (row.model, row.cores) == (model.name, cores)}
        todo = [name for name in (SYNTHETIC, *inputs) if name not in done]
        images_of = self._sets[0 if model.large else 1]
        folders: dict[str, Path] = {}
        for name in todo:
            if time.time() < self._deadline:
                folders[name] = self._prepare(inputs.get(name), images_of)
            else:
                self._left_out[f"{what}, {name}"] = "no time left"
        height, width = (images_of.height, images_of.width) if model.large else SMALL_CUT
        batch = TINY_BATCH if self._args.tiny else model.batch
        cell = Cell(
            model=model.name,
            cores=cores,
            inputs={name: str(folder) for name, folder in folders.items()},
            size=[batch, 3, height, width],
            ceiling=ceilings(self.rows).get(model.name),
            device=self._args.device,
            warm_s=self._args.warm,
            seconds=self._args.seconds,
            paced_s=self._args.paced,
            deadline=self._deadline,
        )
        left = set(folders)
        for numbers in measure(cell):
            name = numbers["input"]
            left.discard(name)
            if "error" in numbers:
                self._left_out[f"{what}, {name}"] = numbers["error"]
            else:
                sizes = [path.stat().st_size for path in folders[name].glob("*.npy")]
                size = statistics.mean(sizes) if name != SYNTHETIC else 0.0
                row = Row(model.name, cores=cores, batch=batch, encoded_bytes=size, **numbers)
                self.rows.append(row)
                print(f"{what}, {name}: {rounded(row.images_per_s)} images/s", flush=True)
            self._write()
        self._left_out |= {f"{what}, {name}": "no time left" for name in left}

    def _prepare(self, fmt: Format | None, what: Images) -> Path:
        files: Path = self._args.files
        if fmt is None:
            return files
        # Cached files are those of the format without a cache.
        name = re.sub(r"\W+", "_", fmt.name.removesuffix(", cached")).strip("_").lower()
        folder = files / f"{what.width}x{what.height}x{what.count}" / name
        prepare_files(fmt, self._photographs, what, folder)
        return folder

    def _write(self) -> None:
        large, small = self._sets
        text = (
            f"{self._host}, DALI {dali.__version__}. Random weights, bf16, channels_last. "
            f"{large.count} distinct images of {large.width}x{large.height} and {small.count} of "
            f"{small.width}x{small.height}, cut from {self._source}, flipped and turned, in the "
            f"page cache. {self._args.warm:g} s to warm up, {self._args.seconds:g} s measured. "
            f"The ceiling is the training on one resident batch; steps are compared at "
            f"{100 * PACE:.0f} % of its pace. Load {os.getloadavg()[1]:.0f} on "
            f"{len(os.sched_getaffinity(0))} cores, this run included.\n"
            + "".join(f"\nNot measured: {what} ({why}).\n" for what, why in self._left_out.items())
            + (page(self.rows) if self.rows else "")
        )
        data = {
            "options": self._options,
            "left_out": [f"{what} ({why})" for what, why in self._left_out.items()],
            "gains": gain_rows(self.rows),
            "rows": [asdict(row) for row in self.rows],
        }
        save_results("training", "Training end to end", text, data, self._args.out)


def main(arguments: list[str] | None = None) -> None:
    """Measures, and writes training.md and .json."""
    if arguments is None and sys.argv[1:2] == ["--cell"]:
        run_cell(Cell(**json.loads(sys.argv[2])))
        return
    run = Run(parse(arguments))
    run.measure()
    print_table(TRAINING, GAIN_HEAD, gain_rows(run.rows))
    if not run.rows:
        raise SystemExit("nothing could be timed")


if __name__ == "__main__":
    main()
