"""The processes of `make soak`: images with damaged ones among them, and endless work on them.

A worker ends at its deadline, or with an AssertionError at the first sample that differs. After
each round of work it prints a line of JSON: what it did, and what it takes while it is idle.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import hashlib
import json
import os
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt

import l3dali

Image = npt.NDArray[Any]

IMAGES = 60
DAMAGED_PERCENT = 5
BATCH = 16
CHECKPOINT_EVERY = 3  # iterations of the training
SOURCES, ENCODED = "png", "l3"  # folders


@dataclass(frozen=True)
class Usage:
    """What a process takes."""

    rss_kib: int
    threads: int
    fds: int


def usage_of(pid: int | str) -> Usage:
    """What the process takes now."""
    folder = Path(f"/proc/{pid}")
    status = dict(
        line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line
    )
    fds = len(list((folder / "fd").iterdir()))
    return Usage(int(status["VmRSS"].split()[0]), int(status["Threads"]), fds)


def idle_usage() -> Usage:
    """What this process takes once its allocator has given back what is free.

    On a busy machine glibc kept 900 MB of which 74 were in use: buffers of many sizes that come
    and go leave holes, which would pass for a leak.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return usage_of(os.getpid())


def name_of(number: int) -> str:
    """The name of an image, without suffix; its bit depth comes first."""
    return f"{16 if number % 3 == 2 else 8:02}-{number:03}"


def make_images(folder: Path, seed: int) -> None:
    """Writes images as PNG and as L3, some of the latter damaged."""
    rng = np.random.default_rng(seed)
    for part in (SOURCES, ENCODED):
        (folder / part).mkdir(parents=True)
    for number in range(IMAGES):
        name = name_of(number)
        bits = int(name[:2])
        height, width = rng.integers(9, 900 if number % 10 == 0 else 260, 2)
        shape = (int(height), int(width), int(rng.integers(1, 5)))
        rows, columns, channels = np.indices(shape)
        wave = np.sin(rows / rng.uniform(5, 40) + columns / rng.uniform(5, 40) + channels)
        top = (1 << bits) - 1
        noisy = (wave * 0.4 + 0.5 + rng.uniform(-0.02, 0.02, shape)) * top
        image = np.clip(noisy, 0, top).astype(f"u{bits // 8}").squeeze()
        data = l3dali.encode(image, coding=l3dali.CODINGS[number % len(l3dali.CODINGS)], effort=1)
        if number % (100 // DAMAGED_PERCENT) == 7:
            data = damaged(data, rng)
        (folder / SOURCES / f"{name}.png").write_bytes(imagecodecs.png_encode(image, level=1))
        (folder / ENCODED / f"{name}.l3").write_bytes(data)


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """The file with a bit flipped, or cut short."""
    at = int(rng.integers(len(data)))
    if rng.random() < 0.3:
        return data[:at]
    copy = bytearray(data)
    copy[at] ^= 1 << int(rng.integers(8))
    return bytes(copy)


def read_images(folder: Path) -> dict[str, Image]:
    """The pixels of every source, by name."""
    paths = sorted((folder / SOURCES).iterdir())
    return {path.stem: imagecodecs.png_decode(path.read_bytes()) for path in paths}


def find_damaged(folder: Path) -> set[str]:
    """The names of the encoded files that do not decode."""
    names = set()
    for path in (folder / ENCODED).iterdir():
        try:
            l3dali.verify(path.read_bytes())
        except l3dali.L3Error:
            names.add(path.stem)
    return names


def assert_same(what: str, got: Image, want: Image) -> None:
    """Ends the worker where a sample differs."""
    same = got.dtype == want.dtype and got.shape == want.shape and np.array_equal(got, want)
    assert same, f"{what}: {got.dtype} {got.shape} differs from the source, {want.shape}"


# The Python package.


def codec_rounds(folder: Path, rng: np.random.Generator) -> Iterator[Counter[str]]:
    """Encodes, decodes, damages."""
    images = read_images(folder)
    path = folder / "codec.l3"
    while True:
        counts: Counter[str] = Counter()
        for name in rng.permutation(list(images))[:8]:
            image, threads = images[name], int(rng.integers(1, 4))
            options: dict[str, Any] = {
                "coding": str(rng.choice(l3dali.CODINGS)),
                "effort": int(rng.integers(1, 6)),
                "tile": [None, (8, 32), (64, 64)][rng.integers(3)],
            }
            l3dali.imwrite(path, image, threads=threads, **options)
            data = path.read_bytes()
            assert_same(f"{name} {options}", l3dali.imread(path, threads=threads), image)
            info = l3dali.info(data)
            assert (info.height, info.width) == image.shape[:2]
            try:
                l3dali.decode(damaged(data, rng), threads=threads)
            except l3dali.L3Error:
                counts["damaged"] += 1
            else:
                raise AssertionError(f"{name} {options}: damage went unseen")
            counts["images"] += 1
        yield counts


# DALI pipelines.


def pipeline_rounds(folder: Path, rng: np.random.Generator) -> Iterator[Counter[str]]:
    """Runs pipelines that stay beside others that come and go."""
    images, bad = read_images(folder), find_damaged(folder)
    residents = [
        *(_reading(folder, images, bad, bits) for bits in (8, 16)),
        *(_slicing(folder, images, bad, seed) for seed in (1, 2)),
    ]
    while True:
        counts: Counter[str] = Counter()
        for _ in range(4):
            for resident in residents:
                counts += resident()
        counts += _resume(folder, int(rng.integers(1 << 30)), int(rng.integers(1, 6)))
        counts += _raise(folder, sorted(bad))
        yield counts


def _pipeline(define: Callable[[], tuple[Any, ...]], batch: int, **options: Any) -> Any:
    from nvidia import dali

    pipe = dali.Pipeline(batch, 2, None, **options)
    with pipe:
        pipe.set_outputs(*define())
    return pipe


def _reading(
    folder: Path, images: dict[str, Image], bad: set[str], bits: int
) -> Callable[[], Counter[str]]:
    """Whole images from a reader, the damaged ones as zeros."""
    from nvidia.dali import fn

    names = [name for name in images if name.startswith(f"{bits:02}")]
    paths = [str(folder / ENCODED / f"{name}.l3") for name in names]

    def define() -> tuple[Any, ...]:
        data, label = fn.readers.file(files=paths, random_shuffle=True, seed=bits)
        return *fn.l3.decode(data, on_error="zero", return_status=True), label

    pipe = _pipeline(define, BATCH)

    def run() -> Counter[str]:
        outputs = [[np.array(sample) for sample in output] for output in pipe.run()]
        for got, status, label in zip(*outputs, strict=True):
            name = names[int(label[0])]
            assert (status != 0) == (name in bad), f"{name}: status {status}"
            if name in bad:
                assert not got.any(), f"{name}: no zeros"
            else:
                want = images[name]
                assert_same(name, got, want if want.ndim == 3 else want[:, :, None])
        failed = sum(int(status != 0) for status in outputs[1])
        return Counter(batches=1, images=len(outputs[0]), damaged=failed)

    return run


def _slicing(
    folder: Path, images: dict[str, Image], bad: set[str], seed: int
) -> Callable[[], Counter[str]]:
    """Windows, in batches of changing size."""
    from nvidia.dali import fn

    rng = np.random.default_rng(seed)
    names = list(images)
    data = {
        name: np.frombuffer((folder / ENCODED / f"{name}.l3").read_bytes(), np.uint8)
        for name in names
    }
    asked: list[list[tuple[str, Image, Image]]] = []  # name, start, end; of batches on their way

    def batch() -> tuple[list[Image], ...]:
        samples = []
        for name in rng.choice(names, int(rng.integers(1, 2 * BATCH + 1))):
            sides = np.array(images[name].shape[:2])
            start = rng.integers(0, sides)
            samples.append((str(name), start, rng.integers(start + 1, sides + 1)))
        asked.append(samples)
        corners = zip(
            *((s.astype(np.int32), e.astype(np.int32)) for _, s, e in samples), strict=True
        )
        return [data[name] for name, _, _ in samples], *map(list, corners)

    def define() -> tuple[Any, ...]:
        encoded, start, end = fn.external_source(batch, num_outputs=3, batch=True)
        outputs: tuple[Any, ...] = fn.l3.decode_slice(
            encoded, start=start, end=end, axis_names="HW", dtype=_uint16(),
            on_error="zero", return_status=True,
        )  # fmt: skip
        return outputs

    pipe = _pipeline(define, 2 * BATCH)

    def run() -> Counter[str]:
        got, statuses = ([np.array(sample) for sample in output] for output in pipe.run())
        samples = asked.pop(0)
        counts = Counter(batches=1, images=len(samples))
        assert len(got) == len(samples)
        for image, status, (name, start, end) in zip(got, statuses, samples, strict=True):
            if status != 0:  # damage outside of the window goes unseen
                assert name in bad, f"{name}: status {status}"
                counts["damaged"] += 1
                continue
            want = images[name] if images[name].ndim == 3 else images[name][:, :, None]
            want = want[start[0] : end[0], start[1] : end[1]]
            want = want if want.dtype == np.uint16 else want.astype(np.uint16) * 257
            assert_same(f"{name}, window {start} to {end}", image, want)
        return counts

    return run


def _uint16() -> Any:
    from nvidia.dali import types

    return types.UINT16


def _cropping(folder: Path, seed: int, **options: Any) -> Any:
    """Random windows of shuffled files: a pipeline with state."""
    from nvidia.dali import fn

    paths = sorted(map(str, (folder / ENCODED).glob("08-*.l3")))

    def define() -> tuple[Any, ...]:
        data, _ = fn.readers.file(files=paths, random_shuffle=True, seed=seed)
        return (fn.l3.decode_random_crop(data, on_error="zero", seed=seed),)

    return _pipeline(define, BATCH, enable_checkpointing=True, **options)


def _digest(output: Any) -> str:
    digest = hashlib.sha256()
    for sample in output:
        image = np.array(sample)
        digest.update(repr((image.shape, image.dtype)).encode() + image.tobytes())
    return digest.hexdigest()


def _resume(folder: Path, seed: int, at: int) -> Counter[str]:
    """A pipeline made from a checkpoint goes on as the one that it came from."""
    pipe = _cropping(folder, seed)
    for _ in range(at):
        pipe.run()
    resumed = _cropping(folder, seed, checkpoint=pipe.checkpoint())
    for _ in range(2):
        assert _digest(pipe.run()[0]) == _digest(resumed.run()[0]), "not as before the checkpoint"
    return Counter(checkpoints=1, pipelines=2, batches=at + 4)


def _raise(folder: Path, bad: list[str]) -> Counter[str]:
    """A pipeline that a damaged file ends."""
    from nvidia.dali import fn

    paths = [str(folder / ENCODED / f"{name}.l3") for name in bad[:1]]
    pipe = _pipeline(lambda: (fn.l3.decode(fn.readers.file(files=paths)[0]),), 1)
    try:
        pipe.run()
        complaint = ""
    except RuntimeError as error:
        complaint = str(error)
    assert bad[0] in complaint, f"{bad[0]}: {complaint or 'no error'}"
    return Counter(pipelines=1, damaged=1)


def train(folder: Path, state: Path) -> None:
    """Prints number and digest of each batch; begins where `state` says, which it keeps.

    Whoever reads the output ends it.
    """
    number, options = 0, {}
    if state.exists():
        number, options["checkpoint"] = pickle.loads(state.read_bytes())
    pipe = _cropping(folder, 11, **options)
    while True:
        print(number, _digest(pipe.run()[0]), flush=True)
        number += 1
        if number % CHECKPOINT_EVERY == 0:
            part = state.with_suffix(".part")
            part.write_bytes(pickle.dumps((number, pipe.checkpoint())))
            part.replace(state)


ROUNDS = {"codec": codec_rounds, "pipelines": pipeline_rounds}


def main() -> None:
    """Runs one worker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("worker", choices=[*ROUNDS, "training"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--rounds", type=int, default=1, help="at least so many")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.worker != "codec":
        import l3dali.plugin  # noqa: F401
    if args.worker == "training":
        train(args.folder, args.folder / "training.state")
        return
    end = time.monotonic() + args.seconds
    rounds = ROUNDS[args.worker](args.folder, np.random.default_rng(args.seed))
    for number, counts in enumerate(rounds, 1):
        print(json.dumps({"counts": counts, "usage": asdict(idle_usage())}), flush=True)
        if number >= args.rounds and time.monotonic() > end:
            return


if __name__ == "__main__":
    main()
