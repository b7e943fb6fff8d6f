"""Bytes of every codec on every set of images.

    python -m benchmarks.cpu.size --data ../shared/data

Each image is encoded, decoded and compared; a codec that cannot hold every
image of a set exactly has a dash there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.peers import L3, PEERS, SETS, encode_exactly, images, machine
from benchmarks.report import RESULTS, markdown_table, write_results
from rich.progress import track

CODECS = (*L3, *PEERS)


def measure(data: Path, name: str) -> dict[str, float] | None:
    """Bytes of each codec on one set, and "raw" and "pixels"; None without images."""
    total: dict[str, float] = {"raw": 0, "pixels": 0, "images": 0}
    total |= {codec.name: 0 for codec in CODECS}
    for path, image in track(list(images(data, name)), description=name):
        total["raw"] += image.nbytes
        total["pixels"] += image.shape[0] * image.shape[1]
        total["images"] += 1
        for codec in CODECS:
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
    args = parser.parse_args()

    results = {name: total for name in args.sets if (total := measure(args.data, name))}
    head = ["set", "images", *[codec.name for codec in CODECS]]
    bits, of_png = [], []
    for name, total in results.items():
        first = [name, f"{total['images']:.0f}"]
        have = [total.get(codec.name) for codec in CODECS]
        bits.append(first + [f"{8 * b / total['pixels']:.2f}" if b else "-" for b in have])
        of_png.append(first + [f"{b / total['PNG -6']:.3f}" if b else "-" for b in have])
    text = (
        f"{machine()}. Every image decoded and compared.\n\n## Bits per pixel\n\n"
        + markdown_table(head, bits)
        + "\n## Bytes as a fraction of PNG level 6\n\n"
        + markdown_table(head, of_png)
    )
    write_results("size", "Size of lossless images by codec", text, results, args.out)


if __name__ == "__main__":
    main()
