"""The command `l3`: images to L3 files and back."""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import re
import stat
import sys
import time
import warnings
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import numpy as np

from l3dali import __version__, codec
from l3dali.batch import Failure, Found, UsageError, failure_of, find_files, plan_targets, run_all
from l3dali.console import complain, megabytes, print_table, printable, progress, ratio, speed
from l3dali.image_io import READ_SUFFIXES, WRITERS, Picture, read_picture, write_picture

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

L3_SUFFIX = ".l3"
EXIT_FAILED = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

_KNOWN_SUFFIXES = READ_SUFFIXES | WRITERS.keys() | {L3_SUFFIX}

Result = TypeVar("Result")


@dataclass(frozen=True)
class Done:
    """What the work on one file came to."""

    raw_bytes: int
    read_bytes: int
    written_bytes: int


@dataclass
class Report:
    """What a command did."""

    done: list[Done] = field(default_factory=list)
    kept: int = 0  # existing results
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def raw_bytes(self) -> int:
        return sum(done.raw_bytes for done in self.done)

    @property
    def read_bytes(self) -> int:
        return sum(done.read_bytes for done in self.done)

    @property
    def written_bytes(self) -> int:
        return sum(done.written_bytes for done in self.done)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Returns:
        The exit code: 0 if all went well, 2 if a file failed or the command makes no sense,
        130 if interrupted.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # The caller has closed it.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # The libraries announce what they also raise, and oddities of metadata.
    for library in ("imagecodecs", "tifffile"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", module="PIL")
    try:
        options = _parse(arguments)
        code: int = options.run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        complain("l3: interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except (UsageError, OSError) as error:
        complain(f"l3: {error}")
        return EXIT_FAILED
    return code


# Arguments.


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(prog="l3", description="Lossless images that decode in parallel.")
    parser.add_argument("--version", action="version", version=f"l3 {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(name: str, run: Callable[[argparse.Namespace], int], summary: str) -> _Parser:
        command: _Parser = commands.add_parser(name, help=summary, description=summary)
        command.add_argument("paths", nargs="+", type=_path, metavar="PATH", help="file or folder")
        command.set_defaults(run=run)
        return command

    encode = add("encode", _encode, "Encode images; folders are mirrored.")
    _add_output_options(encode)
    encode.add_argument(
        "--mode",
        choices=codec.MODES,
        default=codec.DEFAULT_MODE,
        help="packed is faster, rans is smaller; default: %(default)s",
    )
    encode.add_argument(
        "--effort",
        type=int,
        choices=codec.EFFORTS,
        default=codec.DEFAULT_EFFORT,
        metavar="N",
        help="of the rans mode, 1 (fast) to 9 (small); packed has one; default: %(default)s",
    )
    encode.add_argument("--tile", type=_tile, metavar="WxH", help="pixels of a tile, as 64x32")
    encode.add_argument("--verify", action="store_true", help="decode and compare before writing")
    encode.add_argument(
        "--palette",
        choices=["rgb", "index"],
        default="rgb",
        help="keep the colours of palette images, or their entry numbers and the palette",
    )
    _add_orient_option(encode)

    decode = add("decode", _decode, "Decode L3 files into other lossless formats.")
    _add_output_options(decode)
    decode.add_argument(
        "--format",
        choices=[suffix[1:] for suffix in WRITERS],
        help="default: as OUT's suffix says, else png",
    )

    info = add("info", _info, "Show what L3 files hold.")
    info.add_argument("--json", action="store_true", help="as a JSON list")

    verify = add("verify", _verify, "Check L3 files; compare them with their sources.")
    verify.add_argument(
        "--source", type=_path, help="the file or folder that PATH was encoded from"
    )
    _add_orient_option(verify)
    _add_jobs_option(verify)

    bench = add("bench", _bench, "Measure L3 beside PNG on one core.")
    bench.add_argument("--repeat", type=_positive, default=3, help="take the best of so many runs")
    return parser.parse_args(arguments)


def _add_output_options(parser: _Parser) -> None:
    parser.add_argument(
        "-o",
        "--output",
        type=_path,
        metavar="OUT",
        help="folder for the results, or the result itself if its suffix says so and PATH is one "
        "file; default: beside each PATH",
    )
    existing = parser.add_mutually_exclusive_group()
    existing.add_argument("--overwrite", action="store_true", help="replace existing results")
    existing.add_argument(
        "--skip-existing", action="store_true", help="keep existing results; default: they fail"
    )
    _add_jobs_option(parser)


def _add_orient_option(parser: _Parser) -> None:
    parser.add_argument("--orient", action="store_true", help="turn images as their EXIF asks")


def _add_jobs_option(parser: _Parser) -> None:
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "-j", "--jobs", type=_jobs, default=cores, help=f"threads; default here: {cores}"
    )


def _path(text: str) -> Path:
    if not text:  # Path("") is the current folder.
        raise argparse.ArgumentTypeError("an empty name")
    return Path(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def _jobs(text: str) -> int:
    jobs = _positive(text)
    if jobs not in codec.THREADS:
        raise argparse.ArgumentTypeError(f"{jobs} is more than {codec.THREADS[-1]}")
    return jobs


def _tile(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    tile = (int(match[1]), int(match[2])) if match else (0, 0)
    if tile[0] not in codec.TILE_WIDTHS or tile[1] not in codec.TILE_HEIGHTS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not WxH with W of {codec.TILE_WIDTHS} and H of {codec.TILE_HEIGHTS}"
        )
    return tile


# Commands.


def _encode(options: argparse.Namespace) -> int:
    found = _find(options.paths, READ_SUFFIXES)
    targets = _plan(found, options.output, L3_SUFFIX)
    threads = _threads_per_file(options.jobs, len(targets))

    def work(path: Path) -> Done | None:
        if _keeps(targets[path], options):
            return None
        data = _read(path)
        picture = read_picture(data, palette=options.palette, orient=options.orient)
        encoded = codec.encode(
            picture.pixels,
            mode=options.mode,
            effort=options.effort,
            threads=threads,
            tile=options.tile,
            labels=picture.palette is not None,
            icc=picture.icc,
            exif=picture.exif,
            palette=picture.palette,
        )
        if options.verify:
            _compare(codec.decode(encoded, threads=threads), picture.pixels)
        _write(targets[path], encoded)
        return Done(picture.pixels.nbytes, len(data), len(encoded))

    report = _run(list(targets), work, options.jobs)
    _print_summary(report, {"source": report.read_bytes, "L3": report.written_bytes})
    return _finish(report, found)


def _decode(options: argparse.Namespace) -> int:
    found = _find(options.paths, {L3_SUFFIX})
    suffix = _output_suffix(options)
    targets = _plan(found, options.output, suffix)
    threads = _threads_per_file(options.jobs, len(targets))

    def work(path: Path) -> Done | None:
        if _keeps(targets[path], options):
            return None
        data = _read(path)
        info = codec.info(data)
        pixels = codec.decode(data, threads=threads)
        picture = Picture(pixels, icc=info.icc, exif=info.exif, palette=info.palette)
        written = write_picture(picture, suffix)
        _write(targets[path], written)
        return Done(pixels.nbytes, len(data), len(written))

    report = _run(list(targets), work, options.jobs)
    _print_summary(report, {"L3": report.read_bytes, suffix[1:]: report.written_bytes})
    return _finish(report, found)


def _output_suffix(options: argparse.Namespace) -> str:
    asked = f".{options.format}" if options.format else ""
    named = "" if options.output is None else options.output.suffix.lower()
    if named not in WRITERS or options.output.is_dir():
        return asked or ".png"
    if asked and asked != named:
        raise UsageError(f"--format {options.format} and {options.output} do not agree")
    return str(named)


def _info(options: argparse.Namespace) -> int:
    found = _find(options.paths, {L3_SUFFIX})
    report = Report()
    entries = []
    for file in found.files:
        try:
            info = codec.info(_read(file.path))
        except (OSError, ValueError) as error:
            report.failures.append(failure_of(file.path, error))
            continue
        if options.json:
            entries.append({"path": str(file.path)} | _json_fields(info))
        else:
            print(_info_text(file.path, info))
    if options.json:
        print(json.dumps(entries, indent=2))
    return _finish(report, found)


def _json_fields(info: codec.Info) -> dict[str, object]:
    fields = asdict(info)
    for name in ("icc", "exif", "palette"):
        fields[f"{name}_bytes"] = len(fields.pop(name) or b"")
    return fields


def _info_text(path: Path, info: codec.Info) -> str:
    bits = f"{info.bit_depth} bits, {info.used_bits} used"
    values = f", {info.value_count} different values" if info.value_count else ""
    codings = ", ".join(f"{count} {name}" for name, count in info.codings.items() if count)
    chunks = {"ICC": info.icc, "EXIF": info.exif, "palette": info.palette}
    kept = [f"{name} of {len(data)} bytes" for name, data in chunks.items() if data is not None]
    bits_per_pixel = 8 * info.encoded_bytes / (info.width * info.height)
    lines = [
        printable(path),
        f"  image  {info.width} x {info.height}, channels: {info.channels}, {bits}{values}"
        + (", labels" if info.labels else ""),
        f"  tiles  {info.tile_count} of {info.tile_width} x {info.tile_height}: {codings}",
        f"  size   {info.encoded_bytes} bytes; raw {info.raw_bytes} bytes, ratio "
        f"{ratio(info.raw_bytes, info.encoded_bytes)}, {bits_per_pixel:.2f} bits per pixel",
    ]
    return "\n".join(lines + ([f"  kept   {', '.join(kept)}"] if kept else []))


def _verify(options: argparse.Namespace) -> int:
    found = _find(options.paths, {L3_SUFFIX})
    paths = [file.path for file in found.files]
    sources = _find_sources(options, found)
    threads = _threads_per_file(options.jobs, len(paths))

    def work(path: Path) -> Done:
        data = _read(path)
        info = codec.info(data)
        if sources is None:
            codec.verify(data, threads=threads)
        elif path not in sources:
            raise ValueError(f"no source in {options.source}")
        else:
            picture = read_picture(
                _read(sources[path]),
                palette="rgb" if info.palette is None else "index",
                orient=options.orient,
            )
            _compare(codec.decode(data, threads=threads), picture.pixels)
        return Done(info.raw_bytes, len(data), 0)

    report = _run(paths, work, options.jobs)
    _print_summary(report, {"L3": report.read_bytes})
    return _finish(report, found)


def _find_sources(options: argparse.Namespace, found: Found) -> dict[Path, Path] | None:
    """The source of each L3 file, paired as `l3 encode` does; None if not asked for.

    Sources in a folder that have no L3 file are added to the failures.
    """
    source: Path | None = options.source
    if source is None:
        return None
    if len(options.paths) != 1 or options.paths[0].is_dir() != source.is_dir():
        raise UsageError("--source goes with one PATH: both files or both folders")
    if not source.is_dir():
        return {options.paths[0]: source}
    images = find_files([source], READ_SUFFIXES)
    targets = plan_targets(images, options.paths[0], L3_SUFFIX)
    sources = {target: image for image, target in targets.items()}
    missing = sources.keys() - {file.path for file in found.files}
    found.failures += images.failures
    found.failures += [Failure(sources[path], f"no {path}") for path in sorted(missing)]
    return sources


def _bench(options: argparse.Namespace) -> int:
    import imagecodecs

    found = _find(options.paths, READ_SUFFIXES)
    report = Report()
    codecs: dict[str, tuple[Callable[[codec.Image], bytes], Callable[[bytes], codec.Image]]] = {
        f"L3 {mode}": (partial(codec.encode, mode=mode), codec.decode) for mode in codec.MODES
    }
    codecs["PNG level 6"] = (
        lambda pixels: bytes(imagecodecs.png_encode(pixels, level=6)),
        imagecodecs.png_decode,
    )
    measured: dict[str, list[_Measurement]] = {name: [] for name in codecs}
    for file in progress(found.files, len(found.files)):
        try:
            data = _read(file.path)
            pixels = read_picture(data).pixels
            new = {name: _measure(pixels, *pair, options.repeat) for name, pair in codecs.items()}
        except (OSError, ValueError, MemoryError) as error:
            report.failures.append(failure_of(file.path, error))
            continue
        report.done.append(Done(pixels.nbytes, len(data), 0))
        for name, measurement in new.items():
            measured[name].append(measurement)
    print_table(
        ["codec", "files", "raw", "encoded", "ratio", "encode MB/s", "decode MB/s"],
        *(
            [
                name,
                str(len(report.done)),
                megabytes(report.raw_bytes),
                megabytes(sum(m.encoded_bytes for m in measured[name])),
                ratio(report.raw_bytes, sum(m.encoded_bytes for m in measured[name])),
                speed(report.raw_bytes, sum(m.encode_seconds for m in measured[name])),
                speed(report.raw_bytes, sum(m.decode_seconds for m in measured[name])),
            ]
            for name in codecs
        ),
    )
    return _finish(report, found)


@dataclass(frozen=True)
class _Measurement:
    encoded_bytes: int
    encode_seconds: float
    decode_seconds: float


def _measure(
    pixels: codec.Image,
    encode: Callable[[codec.Image], bytes],
    decode: Callable[[bytes], codec.Image],
    repeat: int,
) -> _Measurement:
    encoded, encode_seconds = _best_time(partial(encode, pixels), repeat)
    decoded, decode_seconds = _best_time(partial(decode, encoded), repeat)
    _compare(decoded, pixels)
    return _Measurement(len(encoded), encode_seconds, decode_seconds)


def _best_time(call: Callable[[], Result], repeat: int) -> tuple[Result, float]:
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return result, min(seconds)


# What commands share.


def _find(paths: Iterable[Path], suffixes: Collection[str]) -> Found:
    found = find_files(paths, suffixes)
    if not found.files and not found.failures:
        raise UsageError(f"no {' '.join(sorted(suffixes))} files in the folders named")
    return found


def _plan(found: Found, output: Path | None, suffix: str) -> dict[Path, Path]:
    named = "" if output is None else output.suffix.lower()
    if output is not None and named in _KNOWN_SUFFIXES - {suffix} and not output.exists():
        raise UsageError(f"{output} is to hold {suffix} files; make it first if it is a folder")
    return plan_targets(found, output, suffix)


def _threads_per_file(jobs: int, files: int) -> int:
    return max(1, jobs // max(1, files))


def _run(paths: Sequence[Path], work: Callable[[Path], Done | None], jobs: int) -> Report:
    """Works on all files; `work` returns None to say that the result existed."""
    report = Report()
    start = time.perf_counter()
    with closing(run_all(paths, work, jobs)) as results:
        for path, result in progress(results, len(paths)):
            if isinstance(result, Exception):
                report.failures.append(failure_of(path, result))
            elif result is None:
                report.kept += 1
            else:
                report.done.append(result)
    report.seconds = time.perf_counter() - start
    return report


def _print_summary(report: Report, file_bytes: dict[str, int]) -> None:
    print_table(
        ["files", "raw", *file_bytes, "ratio", "time", "MB/s"],
        [
            str(len(report.done)),
            megabytes(report.raw_bytes),
            *map(megabytes, file_bytes.values()),
            ratio(report.raw_bytes, file_bytes["L3"]),
            f"{report.seconds:.1f} s",
            speed(report.raw_bytes, report.seconds),
        ],
    )


def _finish(report: Report, found: Found) -> int:
    """Tells what was passed over and what failed; returns the exit code."""
    notes = {
        "existing results kept": report.kept,
        "other files passed over": found.others,
        "links to folders not followed": found.links,
    }
    if any(notes.values()):
        complain("l3: " + ", ".join(f"{note}: {count}" for note, count in notes.items() if count))
    failures = found.failures + report.failures
    if not failures:
        return 0
    complain(f"l3: {len(failures)} failed")
    for failure in sorted(failures, key=lambda failure: failure.path):
        complain(f"{failure.path}: {failure.reason}")
    return EXIT_FAILED


def _keeps(target: Path, options: argparse.Namespace) -> bool:
    """Whether an existing target is to stay; raises if nothing was said about it."""
    if options.overwrite or not target.exists():
        return False
    if not options.skip_existing:
        raise FileExistsError(f"{target} exists; see --overwrite and --skip-existing")
    return True


def _read(path: Path) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):  # A pipe would never end.
        raise OSError("not a file")
    return path.read_bytes()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    codec.write_atomically(path, data)


def _compare(decoded: codec.Image, source: codec.Image) -> None:
    if decoded.dtype != source.dtype or not np.array_equal(decoded, source):
        raise ValueError("the pixels differ from the source's")
