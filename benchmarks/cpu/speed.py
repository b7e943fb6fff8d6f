"""One core: speed of encoding and decoding, as a ratio to libpng's decode.

    python -m benchmarks.cpu.speed --data ../shared/data

Codecs take turns on each image, round after round, and each codec's best time on
each image counts: what else the machine does disturbs all alike. MB are 10^6 bytes
of pixels. At the end, what a second core adds to decoding and encoding one large image.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from benchmarks.peers import L3, L3_MODES, PEERS, PNG, Codec, Image, encode_exactly, images, machine
from benchmarks.report import RESULTS, markdown_table, write_results
from rich.progress import track

import l3dali

SPEED_SETS = ("photo/kodak", "photo/large", "gray16/landsat8", "rgb16", "mask")
# Seconds an encoder may take on an image before it runs once only.
SLOW_S = 0.5


def seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measure(data: Path, name: str, codecs: list[Codec], rounds: int) -> dict[str, dict[str, float]]:
    """Totals of each codec over a set: bytes, raw bytes, encode and decode seconds."""
    totals = {c.name: {"bytes": 0.0, "raw": 0.0, "encode": 0.0, "decode": 0.0} for c in codecs}
    for _, image in track(list(images(data, name)), description=name):
        measure_image(image, codecs, rounds, totals)
    return {c: total for c, total in totals.items() if total["raw"]}


def measure_image(
    image: Image, codecs: list[Codec], rounds: int, totals: dict[str, dict[str, float]]
) -> None:
    encoded = {c.name: data for c in codecs if (data := encode_exactly(c, image)) is not None}
    best_encode: dict[str, float] = {}
    best_decode: dict[str, float] = {}
    for _ in range(rounds):
        for codec in codecs:
            if codec.name not in encoded:
                totals[codec.name]["raw"] = float("nan")
                continue
            if best_encode.get(codec.name, 0.0) < SLOW_S:
                took = seconds(lambda codec=codec: codec.encode(image))  # type: ignore[misc]
                best_encode[codec.name] = min(took, best_encode.get(codec.name, took))
            data = encoded[codec.name]
            took = seconds(lambda codec=codec, data=data: codec.decode(data))  # type: ignore[misc]
            best_decode[codec.name] = min(took, best_decode.get(codec.name, took))
    for name, data in encoded.items():
        totals[name]["bytes"] += len(data)
        totals[name]["raw"] += image.nbytes
        totals[name]["encode"] += best_encode[name]
        totals[name]["decode"] += best_decode[name]


def measure_scaling(data: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Speed of two threads as a multiple of one, by mode, on the largest image of photo/large.

    On a machine with other work only a scheduling class above that of others tells what two
    threads do, as that of `chrt -f 10`: a thread that waits for a core takes as long as the call.
    """
    image = max((image for _, image in images(data, "photo/large")), key=lambda i: i.size)
    scaling: dict[str, dict[str, float]] = {}
    for mode in L3_MODES:
        encoded = l3dali.encode(image, coding=mode)
        calls: dict[str, Callable[..., object]] = {
            "decode": functools.partial(l3dali.decode, encoded),
            "encode": functools.partial(l3dali.encode, image, coding=mode),
        }
        scaling[mode] = {}
        for name, call in calls.items():
            best = {1: float("inf"), 2: float("inf")}
            for _ in range(5 * rounds):
                for threads in best:
                    took = seconds(functools.partial(call, threads=threads))
                    best[threads] = min(best[threads], took)
            scaling[mode][name] = best[1] / best[2]
    return scaling


def draw(results: dict[str, dict[str, dict[str, float]]], name: str, out: Path) -> None:
    """Density against decoding speed, one point a codec."""
    figure, axes = plt.subplots(figsize=(7, 4.5))
    for codec, total in results[name].items():
        ours = codec.startswith("L3")
        x, y = total["raw"] / total["bytes"], total["raw"] / total["decode"] / 1e6
        axes.scatter(x, y, color="tab:green" if ours else "tab:gray", s=60 if ours else 30)
        axes.annotate(codec, (x, y), textcoords="offset points", xytext=(6, 4))
    axes.set_yscale("log")
    axes.set_xlabel("compression ratio (raw / encoded)")
    axes.set_ylabel("decoding, MB/s of pixels on one core")
    axes.set_title(f"{name}: right is smaller, up is faster")
    axes.grid(alpha=0.3, which="both")
    axes.margins(0.12)
    figure.tight_layout()
    figure.savefig(out / "speed.png", dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the sets")
    parser.add_argument("--sets", nargs="+", default=SPEED_SETS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()

    codecs = [*L3, *PEERS]
    results: dict[str, dict[str, dict[str, float]]] = {}
    text = f"{machine()}. One thread; best of {args.rounds} rounds an image, codecs in turn.\n"
    for name in args.sets:
        totals = measure(args.data, name, codecs, args.rounds)
        png = totals[PNG.name]["decode"]
        rows = []
        for codec, total in totals.items():
            if total["raw"] != total["raw"]:  # NaN: cannot hold every image of the set
                continue
            results.setdefault(name, {})[codec] = total
            rows.append(
                [
                    codec,
                    f"{total['raw'] / total['bytes']:.2f}",
                    f"{total['raw'] / total['encode'] / 1e6:.0f}",
                    f"{png / total['encode']:.2f}",
                    f"{total['raw'] / total['decode'] / 1e6:.0f}",
                    f"{png / total['decode']:.2f}",
                ]
            )
        head = [
            "codec",
            "ratio",
            "encode MB/s",
            "x libpng decode",
            "decode MB/s",
            "x libpng decode",
        ]
        text += f"\n## {name}\n\n" + markdown_table(head, rows)
    scaling = measure_scaling(args.data, args.rounds)
    text += "\n## Two cores\n\nThe largest image of photo/large, speed over one core's:\n\n"
    text += markdown_table(
        ["mode", "decode", "encode"],
        [[m, f"{x['decode']:.2f}x", f"{x['encode']:.2f}x"] for m, x in scaling.items()],
    )
    write_results("speed", "Speed on one core", text, {**results, "two cores": scaling}, args.out)
    draw(results, next(iter(results)), args.out)


if __name__ == "__main__":
    main()
