"""Training on L3 copies of JPEG files beside training on the JPEG files."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt
from benchmarks.cpu.case import Result
from benchmarks.peers import images
from benchmarks.report import table
from PIL import Image as Pillow
from rich.progress import track

import l3dali

CODE = ("benchmarks/cpu/accuracy.py", "encoder", "src")
PIECE = 256  # pixels a side of an original
SIDE = 128  # of what is kept or resized to
CROP = 96  # of what is trained on
QUALITY = 90
BATCH = 32
PIECES = 24  # of a photograph, at most
SOURCES = ("photo/large", "photo/kodak")

Pixels = npt.NDArray[np.uint8]


def pieces(image: Pixels) -> list[Pixels]:
    """Squares of a photograph, side by side, every other for the test."""
    height, width = image.shape[:2]
    places = itertools.product(
        range(0, height - PIECE + 1, PIECE), range(0, width - PIECE + 1, PIECE)
    )
    return [image[y : y + PIECE, x : x + PIECE] for y, x in places][:PIECES]


def resized(image: Pixels, how: Pillow.Resampling) -> Pixels:
    """The image at SIDE pixels."""
    return np.asarray(Pillow.fromarray(image).resize((SIDE, SIDE), how))


def other_decoder(encoded: bytes) -> Pixels:
    """As a decoder that rounds otherwise: colours of a pixel are those of its block of 2 x 2."""
    with Pillow.open(io.BytesIO(encoded)) as opened:
        opened.draft("YCbCr", opened.size)
        luma, *chroma = (np.asarray(band) for band in opened.convert("YCbCr").split())
    coarse = [np.kron(band[::2, ::2], np.ones((2, 2), np.uint8)) for band in chroma]
    ycbcr = np.stack([luma, *coarse], axis=-1)
    return np.asarray(Pillow.fromarray(ycbcr, "YCbCr").convert("RGB"))


def arms(encoded: bytes) -> dict[str, Pixels]:
    """What a training sees of a JPEG file: itself, its L3 copy, and what differs a little."""
    decoded = imagecodecs.jpeg8_decode(encoded)
    kept = l3dali.encode(resized(decoded, Pillow.Resampling.BILINEAR))
    return {
        "JPEG originals": resized(decoded, Pillow.Resampling.BILINEAR),
        "L3 copies": l3dali.decode(kept),
        "JPEG, another decoder": resized(other_decoder(encoded), Pillow.Resampling.BILINEAR),
        "L3 copies, another filter": l3dali.decode(
            l3dali.encode(resized(decoded, Pillow.Resampling.LANCZOS))
        ),
    }


def train(
    pixels: Pixels, labels: npt.NDArray[np.int64], is_test: Any, epochs: int, seed: int
) -> list[float]:
    """Accuracy on the test's images after each epoch, 0 to 1. The same seed, the same steps."""
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    layers: list[Any] = []
    for inputs, outputs in itertools.pairwise((3, 16, 32, 64)):
        layers += [torch.nn.Conv2d(inputs, outputs, 3, 2, 1), torch.nn.BatchNorm2d(outputs)]
        layers += [torch.nn.ReLU()]
    head = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
    network = torch.nn.Sequential(*layers, *head, torch.nn.Linear(64, int(labels.max()) + 1))
    optimizer = torch.optim.SGD(network.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    loss = torch.nn.CrossEntropyLoss()
    free = SIDE - CROP

    def batch(chosen: Any, place: Any, flips: Any) -> Any:
        cut = [
            pixels[i, y : y + CROP, x : x + CROP][:, :: -1 if flip else 1]
            for i, (y, x), flip in zip(chosen, place, flips, strict=True)
        ]
        taken = torch.from_numpy(np.stack(cut)).permute(0, 3, 1, 2).float()
        return (taken - 118.0) / 60.0

    known, unknown = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    curve = []
    for _ in range(epochs):
        network.train()
        order = rng.permutation(known)
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            places = rng.integers(0, free + 1, (BATCH, 2))
            optimizer.zero_grad()
            taken = batch(chosen, places, rng.random(BATCH) < 0.5)
            loss(network(taken), torch.from_numpy(labels[chosen])).backward()
            optimizer.step()
        network.eval()
        with torch.no_grad():
            middle = [(free // 2, free // 2)] * len(unknown)
            said = network(batch(unknown, middle, [False] * len(unknown))).argmax(1).numpy()
        curve.append(float((said == labels[unknown]).mean()))
    return curve


def accuracy(data: Path, epochs: int = 16, seeds: int = 3) -> Result:
    """Training on L3 copies of JPEG files, and on the JPEG files: the same pixels, the same curve.

    Pieces of 256x256 pixels are cut out of photographs and saved as JPEG (quality 90, 4:2:0): the
    originals. A small network (three convolutions) says which photograph a piece is from; every
    other piece is for the test. `JPEG originals` are decoded by libjpeg-turbo and resized to 128
    pixels each time; `L3 copies` are what was made of them once. Batches, crops of 96x96, flips and
    first weights follow from a seed, and PyTorch runs on one thread.

    Two more arms show how much a difference would matter: `another decoder` does not smooth colours
    (as some GPU decoders do not), `another filter` made the copies by Lanczos in place of a
    triangle, as `l3 encode --max-side` does beside DALI's resize.

    Accuracy on the test's pieces after the last epoch, mean over the seeds and the least and most;
    `largest difference`: of the curves of the same seed, over all epochs; `pixels`: mean absolute
    difference to the JPEG originals, of 255.
    """
    stacks: dict[str, list[Pixels]] = {}
    labels, is_test = [], []
    photographs = [image for folder in SOURCES for _, image in images(data, folder)]
    for label, photo in enumerate(photographs):
        for i, piece in enumerate(pieces(photo)):
            encoded = bytes(imagecodecs.jpeg8_encode(piece, level=QUALITY))
            for name, seen in arms(encoded).items():
                stacks.setdefault(name, []).append(seen)
            labels.append(label)
            is_test.append(i % 2 == 1)
    stacked = {name: np.stack(each) for name, each in stacks.items()}
    originals = stacked["JPEG originals"]
    curves: dict[str, list[list[float]]] = {name: [] for name in stacked}
    turns = list(itertools.product(range(seeds), stacked))
    for seed, name in track(turns, "train"):
        given = np.array(labels), np.array(is_test)
        curves[name].append(train(stacked[name], *given, epochs, seed))
    rows = {}
    for name, mine in curves.items():
        last = [curve[-1] for curve in mine]
        apart = np.abs(np.array(mine) - np.array(curves["JPEG originals"]))
        off = np.abs(stacked[name].astype(np.int16) - originals)
        rows[name] = {
            "mean": np.mean(last),
            "least": min(last),
            "most": max(last),
            "difference": float(apart.max()),
            "pixels": float(off.mean()),
            "curves": mine,
        }
    columns = {
        "accuracy": "{mean:.3f}",
        "of the seeds": "{least:.3f} to {most:.3f}",
        "largest difference": "{difference:.3f}",
        "pixels": "{pixels:.2f}",
    }
    count = (
        f"{len(labels)} pieces of {labels[-1] + 1} photographs, {sum(is_test)} for the test.\n\n"
    )
    return Result(count + table("trained on", rows, columns), {"rows": rows}, code=CODE)
