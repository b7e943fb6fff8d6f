"""Codecs on sets of images: bytes, speed, efforts, and what match tiles do to decoding."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
from benchmarks.cpu.case import Result, in_turns
from benchmarks.peers import (
    CODECS,
    DECODERS,
    L3,
    PNG,
    SETS,
    Codec,
    Image,
    encode_exactly,
    images,
    l3_of_jpeg,
)
from benchmarks.report import RESULTS, markdown_table, table
from rich.progress import track

import l3dali
from l3dali.codec import DEFAULT_EFFORT

Totals = dict[str, dict[str, float]]


def encode_all(path: Path, image: Image, codecs: Sequence[Codec]) -> dict[str, bytes]:
    """What each codec makes of an image; those that cannot hold it exactly are left out."""
    encoded = {c.name: data for c in codecs if (data := encode_exactly(c, image)) is not None}
    for codec in codecs:
        if codec in L3 and codec.name not in encoded:
            raise SystemExit(f"{codec.name} is not lossless on {path}")
    return encoded


def size(
    data: Path,
    sets: Sequence[str] = SETS,
    keep_peers: bool = False,
    out: Path = RESULTS,
) -> Result:
    """Bytes of every codec on every set.

    Every image is decoded and compared. A codec that cannot hold every image of a set exactly has a
    dash there. With --keep-peers L3 alone is measured, and other codecs' bytes are those of --out.
    """
    codecs = L3 if keep_peers else CODECS
    results: dict[str, Any] = {}
    for name in sets:
        total = {"raw": 0, "pixels": 0, "images": 0, **{codec.name: 0 for codec in codecs}}
        for path, image in track(list(images(data, name)), name):
            able = [codec for codec in codecs if codec.name in total]
            encoded = encode_all(path, image, able)
            numbers = {"raw": image.nbytes, "pixels": image.shape[0] * image.shape[1], "images": 1}
            numbers |= {codec: len(content) for codec, content in encoded.items()}
            total = {key: total[key] + number for key, number in numbers.items()}
        if total["images"]:
            results[name] = total
    text = ""
    found = dict(results)
    if keep_peers:
        before: dict[str, Any] = json.loads((out / "size.json").read_text())
        made = results["peers_made"] = before.get("peers_made", before["made"])
        for name, total in found.items():
            if any(before[name][key] != total[key] for key in ("raw", "pixels", "images")):
                raise SystemExit(f"{name} has other images than before: measure all codecs")
            total |= {key: bytes_ for key, bytes_ in before[name].items() if key not in total}
        text = f"Bytes of codecs other than L3 are of {made['date']}, code of {made['commit']}.\n"
    head = ["set", "images", *[codec.name for codec in CODECS]]
    for title, unit, scale, digits in (
        ("Bits per pixel", "pixels", 8, 2),
        ("Bytes as a fraction of PNG level 6", PNG.name, 1, 3),
    ):
        rows = []
        for name, total in found.items():
            have = (total.get(codec.name) for codec in CODECS)
            cells = [f"{scale * b / total[unit]:.{digits}f}" if b else "-" for b in have]
            rows.append([name, str(total["images"]), *cells])
        text += f"\n## {title}\n\n{markdown_table(head, rows)}"
    return Result(text, results)


SPEED_SETS = (
    "photo/kodak",
    "photo/large",
    "gray16/landsat8",
    "gray16/dicom",
    "rgb16",
    "mask",
    "screen",
)
SLOW_S = 0.2  # a call that takes longer is not repeated


def speed(
    data: Path,
    sets: Sequence[str] = SPEED_SETS,
    rounds: int = 5,
    most: int = 1000,
    without: Sequence[str] = (),
) -> Result:
    """One core: speed of encoding and decoding, as a ratio to libpng's decode.

    Codecs take turns; the least CPU time of each on each image counts, of two rounds for encoders.
    MB are 10^6 bytes of pixels. TIFF has tiles of 256x256 and predictor 2, read by libtiff. blosc2
    has level 5: zstd with bitshuffle, and LZ4HC without a filter or with shuffle, whichever is
    smaller. --most is of the images of a set, which are spread evenly; --without names codecs.
    """
    codecs = [codec for codec in (*CODECS, *DECODERS) if codec.name not in without]
    results: dict[str, Any] = {"images": {}}
    text = ""
    columns = {"ratio": "{ratio:.2f}"}
    for what in ("encode", "decode"):
        columns |= {f"{what} MB/s": f"{{{what}_speed:.0f}}"}
        columns |= {f"{what}, x libpng decode": f"{{{what}_png:.2f}}"}
    for name in sets:
        every = list(images(data, name))
        chosen = (
            [every[i * len(every) // most] for i in range(most)] if len(every) > most else every
        )
        results["images"][name] = len(chosen)
        totals = results[name] = speed_of_set(chosen, name, rounds, codecs)
        rows = {
            codec: {
                "ratio": total["raw"] / total["bytes"],
                **{f"{way}_speed": total["raw"] / total[way] / 1e6 for way in ("encode", "decode")},
                **{f"{w}_png": totals[PNG.name]["decode"] / total[w] for w in ("encode", "decode")},
            }
            for codec, total in totals.items()
        }
        text += f"\n## {name}, {len(chosen)} images\n\n" + table("codec", rows, columns)
    draw = functools.partial(draw_speed, results[sets[0]], sets[0])
    return Result(text, results, draw)


def speed_of_set(
    chosen: Sequence[tuple[Path, Image]], name: str, rounds: int, codecs: Sequence[Codec]
) -> Totals:
    """Of each codec that holds all images: bytes, raw bytes, encode and decode seconds."""
    totals = {c.name: dict.fromkeys(("bytes", "raw", "encode", "decode"), 0.0) for c in codecs}
    for path, image in track(chosen, name):
        able = [codec for codec in codecs if codec.name in totals]
        encoded = encode_all(path, image, able)
        totals = {codec: totals[codec] for codec in encoded}
        calls: dict[str, Callable[[], object]] = {}
        able = [codec for codec in able if codec.name in encoded]
        for codec in able:
            decode = functools.partial(codec.decode, encoded[codec.name])
            calls[f"decode {codec.name}"] = decode
        spent = in_turns(calls, rounds, time.process_time, SLOW_S)
        encoders = {f"encode {c.name}": functools.partial(c.encode, image) for c in able}
        spent |= in_turns(encoders, 2, time.process_time, SLOW_S)
        for codec_name, total in totals.items():
            total["bytes"] += len(encoded[codec_name])
            total["raw"] += image.nbytes
            for way in ("encode", "decode"):
                total[way] += float(np.min(spent[f"{way} {codec_name}"]))
    return totals


def draw_speed(totals: Totals, name: str, path: Path) -> None:
    """Density against decoding speed, one point a codec."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="tight")
    for codec, total in totals.items():
        ours = codec.startswith("L3")
        x, y = total["raw"] / total["bytes"], total["raw"] / total["decode"] / 1e6
        axes.scatter(x, y, color="tab:green" if ours else "tab:gray", s=60 if ours else 30)
        axes.annotate(codec, (x, y), textcoords="offset points", xytext=(6, 4))
    axes.set(
        yscale="log",
        xlabel="compression ratio (raw / encoded)",
        ylabel="decoding, MB/s of pixels on one core",
        title=f"{name}: right is smaller, up is faster",
    )
    axes.grid(alpha=0.3, which="both")
    axes.margins(0.12)
    figure.savefig(path, dpi=120)


JPEG_SETS = ("jpeg", "photo/large")
QUALITIES = (75, 95)  # of files that are made of photographs, with chroma of half the resolution
JPEG = "JPEG, libjpeg-turbo"


def jpeg_files(data: Path, name: str) -> Iterator[bytes]:
    """The JPEG files of a set, or those made of its PNG files."""
    for path in sorted((data / name).glob("*.[Jj][Pp]*[Gg]")):
        yield path.read_bytes()
    for _, image in images(data, name):
        for quality in QUALITIES:
            yield imagecodecs.jpeg8_encode(image, level=quality, subsampling="420")


JPEG_CODECS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], Image]]] = {
    JPEG: (lambda data: data, imagecodecs.jpeg8_decode),
    "L3 jpeg": (l3_of_jpeg, functools.partial(l3dali.decode, threads=1)),
    "L3 packed": (functools.partial(l3dali.transcode, coding="packed"), l3dali.decode),
    "L3 rans": (functools.partial(l3dali.transcode, coding="rans"), l3dali.decode),
    "JXL of the JPEG": (
        lambda data: imagecodecs.jpegxl_encode_jpeg(data, numthreads=1),
        functools.partial(imagecodecs.jpegxl_decode, numthreads=1),
    ),
}


def jpeg(data: Path, sets: Sequence[str] = JPEG_SETS, rounds: int = 5) -> Result:
    """JPEG files on one core: bytes and decoding speed of what they become, over libjpeg-turbo's.

    Formats take turns; the least CPU time of each on each file counts. L3's pixels are compared
    with libjpeg-turbo's; JPEG XL's differ by a few levels. A file that L3's coding refuses counts
    for no format. MB are 10^6 bytes of pixels.
    """
    results: dict[str, Totals] = {}
    text = ""
    for name in sets:
        totals: Totals = {}
        refused = 0
        for original in track(list(jpeg_files(data, name)), name):
            pixels = imagecodecs.jpeg8_decode(original)
            stored = {codec: encode(original) for codec, (encode, _) in JPEG_CODECS.items()}
            calls = {
                codec: functools.partial(JPEG_CODECS[codec][1], content)
                for codec, content in stored.items()
                if content
            }
            if totals and calls.keys() != totals.keys():
                refused += 1
                continue
            for codec, decode in calls.items():
                if codec.startswith("L3") and not np.array_equal(decode(), pixels):
                    raise SystemExit(f"{codec} has other pixels than {JPEG}, in {name}")
            for codec, spent in in_turns(calls, rounds, time.process_time).items():
                total = totals.setdefault(codec, dict.fromkeys(("bytes", "raw", "decode"), 0.0))
                total["bytes"] += len(stored[codec])
                total["raw"] += pixels.nbytes
                total["decode"] += float(np.min(spent))
        if not totals:
            continue
        results[name] = totals
        base = totals[JPEG]
        rows = {
            codec: {
                "of_bytes": total["bytes"] / base["bytes"],
                "speed": total["raw"] / total["decode"] / 1e6,
                "times": base["decode"] / total["decode"],
            }
            for codec, total in totals.items()
        }
        columns = {"bytes / JPEG's": "{of_bytes:.3f}", "decode MB/s": "{speed:.0f}"}
        columns |= {"decode, x libjpeg-turbo": "{times:.2f}"}
        text += f"\n## {name}\n\n" + table("format", rows, columns)
        text += f"\n{refused} files were refused.\n" if refused else ""
    return Result(text, results)


EFFORT_SETS = ("photo/kodak", "photo/large", "photo/gb82", "gray16/landsat8", "rgb16", "screen")
EFFORTS = (1, 3, 5, 6, 7, 8, 9)  # those between give the bytes of a neighbour
MAX_SIDE_PX = 2048  # of larger images a piece is measured, so that a run ends


def effort(data: Path, sets: Sequence[str] = EFFORT_SETS, rounds: int = 5) -> Result:
    """Bytes and encoding time of each effort of the rans mode, as ratios to the default effort.

    One thread, its CPU time; efforts and libpng's decode take turns, and the median of each on
    each image counts.
    """
    results: dict[str, Totals] = {}
    text = ""
    encode = functools.partial(l3dali.encode, threads=1)
    for name in sets:
        totals = {str(e): {"bytes": 0.0, "seconds": 0.0} for e in EFFORTS}
        png_seconds = 0.0
        for path, whole in track(list(images(data, name)), name):
            image = whole[:MAX_SIDE_PX, :MAX_SIDE_PX]
            calls = {str(e): functools.partial(encode, image, effort=e) for e in EFFORTS}
            png = functools.partial(PNG.decode, PNG.encode(image))
            spent = in_turns(calls | {PNG.name: png}, rounds, time.thread_time)
            png_seconds += float(np.median(spent.pop(PNG.name)))
            for of_effort, seconds in spent.items():
                encoded = calls[of_effort]()
                if l3dali.decode(encoded).tobytes() != image.tobytes():
                    raise SystemExit(f"effort {of_effort} is not lossless on {path}")
                totals[of_effort]["bytes"] += len(encoded)
                totals[of_effort]["seconds"] += float(np.median(seconds))
        usual = totals[str(DEFAULT_EFFORT)]
        rows = results[name] = {}
        for each, total in totals.items():
            rows[each] = {**total, **{f"of_{key}": total[key] / usual[key] for key in total}}
            rows[each]["x_png"] = png_seconds / total["seconds"]
        columns = {"bytes": "{bytes:.0f}", "/ the default's": "{of_bytes:.4f}"}
        columns |= {"CPU time / the default's": "{of_seconds:.2f}"}
        columns |= {"speed, x libpng decode": "{x_png:.2f}"}
        text += f"\n## {name}\n\n" + table("effort", rows, columns)
    return Result(text, results)
