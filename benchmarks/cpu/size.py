"""Bytes of every codec on every set of images.

    python -m benchmarks.cpu.size --data ../shared/data [--keep-peers]

Each image is encoded, decoded and compared; a codec that cannot hold every
image of a set exactly has a dash there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import L3, PEERS, SETS, Codec, encode_exactly, images, machine
from benchmarks.report import RESULTS, markdown_table, write_results
from rich.progress import track

CODECS = (*L3, *PEERS)


def measure(data: Path, name: str, codecs: Sequence[Codec]) -> dict[str, float] | None:
    """Bytes of each codec on one set, and "raw" and "pixels"; None without images."""
    total: dict[str, float] = {"raw": 0, "pixels": 0, "images": 0}
    total |= {codec.name: 0 for codec in codecs}
    for path, image in track(list(images(data, name)), description=name):
        total["raw"] += image.nbytes
        total["pixels"] += image.shape[0] * image.shape[1]
        total["images"] += 1
        for codec in codecs:
            if codec.name not in total:
                continue
            encoded = encode_exactly(codec, image)
            if encoded is not None:
                total[codec.name] += len(encoded)
            elif codec in L3:
                raise SystemExit(f"{codec.name} is not lossless on {path}")
            else:
                del total[codec.name]
    return total if total["images"] else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the sets")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument(
        "--keep-peers",
        action="store_true",
        help="measure L3 alone; the bytes of other codecs are those of the results that are there",
    )
    args = parser.parse_args()

    codecs = L3 if args.keep_peers else CODECS
    results = {name: total for name in args.sets if (total := measure(args.data, name, codecs))}
    peers = ""
    if args.keep_peers:
        before: dict[str, Any] = json.loads((args.out / "size.json").read_text())
        made = before.get("peers_made", before["made"])
        for name, total in results.items():
            if any(before[name][key] != total[key] for key in ("raw", "pixels", "images")):
                parser.error(f"{name} has other images than before: measure all codecs")
            total |= {key: size for key, size in before[name].items() if key not in total}
        results["peers_made"] = made
        peers = (
            f" Bytes of codecs other than L3 are of {made['date']}, measured at {made['commit']}."
        )
    head = ["set", "images", *[codec.name for codec in CODECS]]
    bits, of_png = [], []
    for name in args.sets:
        if name not in results:
            continue
        total = results[name]
        first = [name, f"{total['images']:.0f}"]
        have = [total.get(codec.name) for codec in CODECS]
        bits.append(first + [f"{8 * b / total['pixels']:.2f}" if b else "-" for b in have])
        of_png.append(first + [f"{b / total['PNG -6']:.3f}" if b else "-" for b in have])
    text = (
        f"{machine()}. Every image decoded and compared.{peers}\n\n## Bits per pixel\n\n"
        + markdown_table(head, bits)
        + "\n## Bytes as a fraction of PNG level 6\n\n"
        + markdown_table(head, of_png)
    )
    write_results("size", "Size of lossless images by codec", text, results, args.out)


if __name__ == "__main__":
    main()
