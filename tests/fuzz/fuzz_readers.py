"""Damaged files of other formats through `l3 encode`'s readers.

    python tests/fuzz/fuzz_readers.py --runs 2000 --seed 0       # mutants of generated files
    python tests/fuzz/fuzz_readers.py --atheris CORPUS -runs=... # libFuzzer, with coverage

`read_picture` must return a picture or raise `ImageError`, whatever the bytes are, within
`MAX_SECONDS` and `MAX_BYTES`. The first form needs no fuzzer: case k of a run with seed S is
case 0 of a run with seed S + k. The second needs `pip install atheris`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import logging
import mmap
import os
import random
import resource
import signal
import struct
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_SECONDS = 20
MAX_BYTES = 4 << 30  # of address space: the libraries' own code and stacks included
MAX_PIXELS = 1 << 20
CORPUS = Path(__file__).parent / "corpus" / "fuzz_readers"

Check = Callable[[bytes], None]  # raises what is not as it should be


def check(data: bytes) -> None:
    """Reads the bytes, in a way that they choose. Raises whatever is not `ImageError`."""
    from l3dali import codec
    from l3dali.images.headers import ImageError
    from l3dali.images.reading import read_picture
    from l3dali.metadata import tiff_of_metadata

    choice = zlib.crc32(data)
    try:
        picture = read_picture(
            data,
            palette="index" if choice & 1 else "rgb",
            labels=bool(choice & 2),
            orient=bool(choice & 4),
            max_side=16 if choice & 24 == 0 else None,
            max_pixels=MAX_PIXELS,
        )
    except ImageError:
        return
    pixels = picture.pixels
    is_one = pixels.ndim in (2, 3) and pixels.size > 0
    if pixels.dtype.type not in codec.SAMPLE_SCALARS or not is_one:
        raise AssertionError(f"a picture of {pixels.dtype} and shape {pixels.shape}")
    kept = codec.info(
        codec.encode(np.zeros((1, 1), np.uint8), xmp=picture.xmp, metadata=picture.metadata)
    )
    tiff_of_metadata(kept.metadata)
    if kept.metadata != picture.metadata or (kept.xmp or b"") != (picture.xmp or b""):
        raise AssertionError("metadata is not kept")


# Files to begin with.


def seeds() -> dict[str, bytes]:
    """A small file of each kind that the readers tell apart, by name."""
    import imagecodecs
    import tifffile
    from PIL import Image

    from l3dali.images.picture import Picture
    from l3dali.images.writing import write_picture

    rng = np.random.default_rng(7)
    gray = rng.integers(0, 256, (11, 13), np.uint8)
    deep = rng.integers(0, 65536, (11, 13), np.uint16)
    colour = rng.integers(0, 256, (11, 13, 3), np.uint8)
    alpha = rng.integers(0, 256, (11, 13, 4), np.uint8)
    icc, exif = b"profile" * 9, Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "maker"
    files: dict[str, bytes] = {}

    def pillow(name: str, image: Image.Image, **options: Any) -> None:
        buffer = io.BytesIO()
        image.save(buffer, **options)
        files[name] = buffer.getvalue()

    palette = Image.fromarray(gray % 7).convert("P")
    palette.putpalette(list(range(21)))
    for name, picture in (
        ("gray", Image.fromarray(gray)),
        ("gray1", Image.fromarray(gray > 99)),
        ("la", Image.fromarray(alpha[..., :2])),
        ("rgb", Image.fromarray(colour)),
        ("rgba", Image.fromarray(alpha)),
        ("deep", Image.fromarray(deep)),
    ):
        pillow(f"png_{name}", picture, format="PNG", icc_profile=icc, exif=exif)
    pillow("png_palette", palette, format="PNG", transparency=bytes([0, 9, 255]))
    frames = [Image.fromarray(colour), Image.fromarray(255 - colour)]
    pillow("png_animated", frames[0], format="PNG", save_all=True, append_images=frames[1:])
    files["png_interlaced"] = _with_interlacing(files["png_gray"])
    for name in ("JPEG", "WEBP"):
        extra = {"lossless": True} if name == "WEBP" else {}
        pillow(name, frames[0], format=name, icc_profile=icc, exif=exif, **extra)
    pillow("webp_animated", frames[0], format="WEBP", save_all=True, append_images=frames[1:])
    pillow("jpeg_gray", Image.fromarray(gray), format="JPEG", progressive=True)
    pillow("jpeg_mpo", frames[0], format="MPO", save_all=True, append_images=frames[1:])
    pillow("bmp", frames[0], format="BMP")
    pillow("bmp_palette", palette, format="BMP")
    pillow("pgm", Image.fromarray(gray), format="PPM")
    pillow("ppm", frames[0], format="PPM")
    pillow("tiff_pillow", frames[0], format="TIFF", exif=exif, icc_profile=icc)

    def tiff(name: str, array: NDArray[Any], **options: Any) -> None:
        buffer = io.BytesIO()
        with tifffile.TiffWriter(buffer, bigtiff=name == "big", byteorder="<") as writer:
            writer.write(array, **options)
        files[f"tiff_{name}"] = buffer.getvalue()

    tiff("gray", gray)
    tiff("big", deep, iccprofile=icc)
    packet = b"<x:xmpmeta xmlns:x='adobe:ns:meta/' tiff:Orientation='6'/>"
    tags: list[tuple[int, int, int, Any]] = [
        (33550, 12, 3, (10.0, 10.0, 0.0)),
        (34735, 3, 4, (1, 1, 0, 0)),
        (42113, 2, 2, "0"),
        (700, 1, len(packet), packet),
    ]
    tiff("geo", gray, description="a scene", resolution=(300, 300), extratags=tags)
    files["png_xmp"] = write_picture(Picture(gray, xmp=packet), ".png")
    tiff("planes", np.moveaxis(colour, 2, 0), planarconfig="separate", photometric="rgb")
    tiff("tiles", np.tile(gray, (3, 3)), tile=(16, 16), compression="zlib", predictor=True)
    tiff("white", gray, photometric="miniswhite", rowsperstrip=3)
    tiff("palette", gray, photometric="palette", colormap=rng.integers(0, 256, (3, 256), np.uint16))
    tiff("bits", gray > 99, photometric="minisblack")
    tiff("rgba", alpha, photometric="rgb", extrasamples=["unassalpha"])
    buffer = io.BytesIO()
    with tifffile.TiffWriter(buffer) as writer:
        writer.write(gray)
        writer.write(gray[::2, ::2], subfiletype=1)
    files["tiff_reduced"] = buffer.getvalue()
    files["jxl"] = imagecodecs.jpegxl_encode(gray, lossless=True)
    files["jp2"] = imagecodecs.jpeg2k_encode(colour, level=0, codecformat="jp2")
    files["j2k"] = imagecodecs.jpeg2k_encode(gray, level=0, codecformat="j2k")
    return files


def _with_interlacing(png: bytes) -> bytes:
    """The header says interlaced; the data is what it was."""
    chunks = _png_chunks(png)
    kind, body = chunks[0]
    chunks[0] = kind, body[:12] + b"\1"
    return _png(chunks)


# Mutations that know the structure.

_NUMBERS = (0, 1, 2, 3, 7, 8, 16, 127, 255, 256, 32767, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Damages a file in a few places, most often in its structure."""
    for _ in range(rng.randint(1, 3)):
        change = _mutate_bytes
        if rng.random() < 0.8:
            for signature, by_structure in _STRUCTURES:
                if data.startswith(signature):
                    change = by_structure
        with contextlib.suppress(struct.error, zlib.error, IndexError, OverflowError, ValueError):
            data = change(data, rng)
    return data


def _mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    at = rng.randrange(len(out) + 1)
    match rng.randrange(6):
        case 0:
            return bytes(out[:at])
        case 1:
            out[at : at + rng.randint(1, 8)] = rng.randbytes(rng.randint(0, 8))
        case 2:
            number = struct.pack(rng.choice("<>") + "I", rng.choice(_NUMBERS))
            size = rng.choice((1, 2, 4))
            out[at : at + size] = number[:size]
        case 3:
            begin = rng.randrange(len(out) + 1)
            out[at:at] = out[begin : begin + rng.randint(1, 64)]
        case 4:
            del out[at : at + rng.randint(1, 16)]
        case _:
            if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
    return bytes(out)


Chunks = list[tuple[bytes, bytes]]


def _png_chunks(data: bytes) -> Chunks:
    chunks, at = [], 8
    while at + 8 <= len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        chunks.append((kind, data[at + 8 : at + 8 + size]))
        at += 12 + size
    return chunks


def _png(chunks: Chunks) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def _mutate_png(data: bytes, rng: random.Random) -> bytes:
    chunks = _png_chunks(data)
    kinds = (
        b"IHDR",
        b"PLTE",
        b"tRNS",
        b"iCCP",
        b"eXIf",
        b"iTXt",
        b"acTL",
        b"IDAT",
        b"IEND",
        b"zzzz",
    )
    at = rng.randrange(len(chunks))
    kind, body = chunks[at]
    match rng.randrange(9):
        case 0:
            del chunks[at]
        case 1:
            chunks.insert(rng.randrange(len(chunks) + 1), chunks[at])
        case 2:
            chunks[at] = rng.choice(kinds), body
        case 3:  # a field of the header
            field = rng.randrange(13)
            header = bytearray(chunks[0][1])
            header[field] = rng.choice((0, 1, 2, 3, 4, 6, 8, 16, 255))
            chunks[0] = b"IHDR", bytes(header)
        case 4:
            chunks.insert(
                at, (b"iCCP", b"n\0\0" + zlib.compress(bytes(rng.choice((0, 9, 1 << 22)))))
            )
        case 5:
            chunks.insert(at, (rng.choice(kinds), rng.randbytes(rng.randrange(40))))
        case 6:  # what the IDAT holds, compressed well
            raw = _mutate_bytes(zlib.decompressobj().decompress(body, 1 << 16), rng)
            chunks[at] = kind, zlib.compress(raw)
        case _:
            chunks[at] = kind, _mutate_bytes(body, rng)
    out = _png(chunks)
    return _mutate_bytes(out, rng) if rng.random() < 0.1 else out


def _mutate_tiff(data: bytes, rng: random.Random) -> bytes:
    order = "<" if data[:2] == b"II" else ">"
    (version,) = struct.unpack_from(order + "H", data, 2)
    big = version == 43
    pointer, count_type, entry_bytes, value_at = ("Q", "Q", 20, 12) if big else ("I", "H", 12, 8)
    offset_at = 8 if big else 4
    places = [offset_at]  # of offsets to directories
    entries: list[int] = []
    (at,) = struct.unpack_from(order + pointer, data, offset_at)
    seen: set[int] = set()
    while at and at not in seen and len(seen) < 9:
        seen.add(at)
        (count,) = struct.unpack_from(order + count_type, data, at)
        first = at + struct.calcsize(count_type)
        entries += [first + entry_bytes * i for i in range(min(count, 99))]
        places.append(first + entry_bytes * count)
        (at,) = struct.unpack_from(order + pointer, data, places[-1])
    out = bytearray(data)
    number = rng.choice((*_NUMBERS, len(data), rng.randrange(len(data)), *places))
    entry = rng.choice(entries or [offset_at])
    match rng.randrange(8):
        case 0:  # a chain of directories that loops, or leads elsewhere
            struct.pack_into(order + pointer, out, rng.choice(places), rng.choice((*seen, number)))
        case 1:
            tag = rng.choice((254, 256, 257, 258, 259, 262, 273, 277, 278, 279, 284, 317, 320,
                              322, 323, 324, 325, 330, 338, 339, 34665, 34675, 270, 282, 700,
                              33550, 42113))  # fmt: skip
            struct.pack_into(order + "H", out, entry, tag)
        case 2:
            struct.pack_into(order + "H", out, entry + 2, rng.randrange(19))
        case 3:
            struct.pack_into(order + pointer, out, entry + 4, number)
        case 4 | 5:
            struct.pack_into(order + pointer, out, entry + value_at, number)
        case 6:
            other = rng.choice(entries or [offset_at])
            out[entry : entry + entry_bytes] = out[other : other + entry_bytes]
        case _:
            return _mutate_bytes(data, rng)
    return bytes(out)


def _mutate_riff(data: bytes, rng: random.Random) -> bytes:
    chunks, at = [], 12
    while at + 8 <= len(data):
        kind, size = struct.unpack_from("<4sI", data, at)
        chunks.append((kind, data[at + 8 : at + 8 + size]))
        at += 8 + size + size % 2
    at = rng.randrange(len(chunks))
    kind, body = chunks[at]
    match rng.randrange(5):
        case 0:
            del chunks[at]
        case 1:
            chunks.insert(rng.randrange(len(chunks) + 1), chunks[at])
        case 2:
            kinds = (b"VP8 ", b"VP8L", b"VP8X", b"ICCP", b"EXIF", b"XMP ", b"ANIM", b"ANMF")
            chunks[at] = rng.choice(kinds), body
        case _:
            chunks[at] = kind, _mutate_bytes(body, rng)
    out = b"".join(
        struct.pack("<4sI", kind, len(body)) + body + bytes(len(body) % 2) for kind, body in chunks
    )
    return b"RIFF" + struct.pack("<I", len(out) + 4) + b"WEBP" + out


def _mutate_jpeg(data: bytes, rng: random.Random) -> bytes:
    segments, at = [], 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        (size,) = struct.unpack_from(">H", data, at + 2)
        segments.append(data[at : at + 2 + size])
        at += 2 + size
    rest = data[at:]
    at = rng.randrange(len(segments))
    match rng.randrange(6):
        case 0:
            del segments[at]
        case 1:
            segments.insert(rng.randrange(len(segments) + 1), segments[at])
        case 2:
            segments[at] = (
                bytes([0xFF, rng.choice((0xC0, 0xC2, 0xC4, 0xDB, 0xE1, 0xE2, 0xEE))])
                + (segments[at][2:])
            )
        case 3:
            rest = _mutate_bytes(rest, rng)
        case _:
            body = _mutate_bytes(segments[at][4:], rng)
            segments[at] = segments[at][:2] + struct.pack(">H", (len(body) + 2) % 65536) + body
    return data[:2] + b"".join(segments) + rest


_STRUCTURES = (
    (b"\x89PNG", _mutate_png),
    (b"II", _mutate_tiff),
    (b"MM", _mutate_tiff),
    (b"RIFF", _mutate_riff),
    (b"\xff\xd8", _mutate_jpeg),
)


# Driving.


def _quiet() -> None:
    logging.disable()
    warnings.simplefilter("ignore")


Change = Callable[[bytes, random.Random], bytes]
# What gives seeds, changes one and judges it, by name.
Targets = Mapping[str, tuple[Callable[[], list[bytes]], Change, Check]]


def _run_cases(
    files: list[bytes], change: Change, judge: Check, first: int, end: int, place: mmap.mmap
) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _quiet()
    for case in range(first, end):
        place[:8] = struct.pack("<q", case)
        data = _case(files, change, case)
        signal.alarm(MAX_SECONDS)  # Its default action ends the process, C code included.
        try:
            judge(data)
        except Exception as error:
            print(f"case {case}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(3)
        signal.alarm(0)


def _case(files: list[bytes], change: Change, case: int) -> bytes:
    rng = random.Random(case)
    return change(rng.choice(files), rng)


def run_readers(runs: int, seed: int, found: Path | None) -> int:
    """As `run`, with the target of this file."""
    files = [data for _, data in sorted(seeds().items())]
    files += [path.read_bytes() for path in sorted(CORPUS.glob("*"))]
    return run(runs, seed, found, files, mutate, check)


def run(
    runs: int, seed: int, found: Path | None, files: list[bytes], change: Change, judge: Check
) -> int:
    """Runs the cases in a child, a new one behind each failure. Returns how many failed."""
    started = time.monotonic()
    place = mmap.mmap(-1, 8)
    case, end, failures = seed, seed + runs, 0
    while case < end:
        child = os.fork()
        if child == 0:
            _run_cases(files, change, judge, case, end, place)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            break
        (case,) = struct.unpack("<q", place[:8])
        failures += 1
        reason = "too long" if code == -signal.SIGALRM else f"exit {code}"
        print(f"--runs 1 --seed {case}: {reason}", file=sys.stderr, flush=True)
        if found is not None:
            found.mkdir(parents=True, exist_ok=True)
            (found / f"case_{case}").write_bytes(_case(files, change, case))
        case += 1
    seconds = int(time.monotonic() - started)
    print(f"Done {runs} runs in {seconds} second(s), {failures} failures")
    return failures


def run_atheris(
    seeds_of: Callable[[], list[bytes]],
    change: Change,
    judge: Check,
    modules: Sequence[str],
    arguments: list[str],
) -> None:
    """libFuzzer on what our Python modules do, with the mutations above."""
    import atheris  # type: ignore[import-untyped]

    with atheris.instrument_imports(include=["l3dali"]):
        for module in modules:
            importlib.import_module(module)
    files = seeds_of()

    def custom_mutator(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if len(data) < 8 or rng.random() < 0.02:
            data = rng.choice(files)
        try:
            return change(data, rng)[:max_size]
        except Exception:  # Its structure is gone.
            return _mutate_bytes(data, rng)[:max_size]

    _quiet()
    limits = [f"-timeout={MAX_SECONDS}", f"-rss_limit_mb={MAX_BYTES >> 20}", "-max_len=20000"]
    atheris.Setup([sys.argv[0], *limits, *arguments], judge, custom_mutator=custom_mutator)
    atheris.Fuzz()


def run_target(targets: Targets, about: str | None, modules: Sequence[str]) -> int:
    """Runs one of several targets, as the command's arguments say; gives the exit code."""
    if sys.argv[2:3] == ["--atheris"]:
        seeds_of, change, judge = targets[sys.argv[1]]
        run_atheris(seeds_of, change, judge, modules, sys.argv[3:])
        return 0
    parser = argparse.ArgumentParser(description=(about or "").split("\n")[0])
    parser.add_argument("target", choices=targets)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--found", type=Path, help="a folder for inputs that fail")
    arguments = parser.parse_args()
    seeds_of, change, judge = targets[arguments.target]
    runs, seed, found = arguments.runs, arguments.seed, arguments.found
    return 1 if run(runs, seed, found, seeds_of(), change, judge) else 0


def main() -> int:
    if sys.argv[1:2] == ["--atheris"]:
        run_atheris(
            lambda: list(seeds().values()), mutate, check, ["l3dali.images.reading"], sys.argv[2:]
        )
        return 0
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--found", type=Path, help="a folder for inputs that fail")
    arguments = parser.parse_args()
    return 1 if run_readers(arguments.runs, arguments.seed, arguments.found) else 0


if __name__ == "__main__":
    sys.exit(main())
