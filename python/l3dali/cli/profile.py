"""The command `l3 profile`: its arguments, and what it says."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali.batch import STDOUT
from l3dali.cli.arguments import (
    natural_number,
    new_file,
    output_argument,
    positive_float,
    positive_number,
    rate_argument,
)
from l3dali.cli.reading import add_max_pixels_option
from l3dali.console import print_table, say
from l3dali.liquid.profile import DEFAULT_SAMPLES, DEFAULT_SECONDS

if TYPE_CHECKING:
    from l3dali.cli.arguments import Commands
    from l3dali.liquid.profile import Fits, Host, Profile, Sample

_SUMMARY = "Measure what the images of a data set cost in each format on this host."


def add_command(commands: Commands) -> None:
    """Adds `l3 profile` to the commands of the parser `l3`."""
    parser = commands.add_parser("profile", help=_SUMMARY, description=_SUMMARY)
    parser.set_defaults(run=run)
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="DATASET",
        help="folder, shard, or shards as 'a-{000..146}.tar'; a path or a URL (s3://...)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=output_argument,
        default=Path("profile.json"),
        metavar="FILE",
        help="- is standard output; default: %(default)s",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing FILE")
    parser.add_argument(
        "--samples",
        type=positive_number,
        default=DEFAULT_SAMPLES,
        metavar="N",
        help="images to measure; default: %(default)s",
    )
    parser.add_argument(
        "--seconds",
        type=positive_float,
        default=DEFAULT_SECONDS,
        metavar="S",
        help="about how long to take, with fewer samples if need be; default: %(default)g",
    )
    parser.add_argument(
        "--seed", type=natural_number, default=0, metavar="N", help="chooses the images; default: 0"
    )
    parser.add_argument(
        "--allow-lossy",
        action="store_true",
        help="JPEG of quality 95 is a candidate too, for 8-bit images that are not lossy",
    )
    parser.add_argument(
        "--labels",
        action="append",
        default=[],
        metavar="END",
        help="images whose name ends so are label maps, as in l3 convert",
    )
    add_max_pixels_option(parser)
    host = parser.add_argument_group("what is given is not measured")
    host.add_argument("--cores", type=positive_float, metavar="N", help="that decode")
    for name, what in (
        ("disk", "that the data set lies on"),
        ("network", "that the data comes over"),
        ("upload", "to the GPU"),
    ):
        host.add_argument(
            f"--{name}",
            type=rate_argument,
            metavar="RATE",
            help=f"{what}: 200MB/s, 2GB/s, unlimited",
        )
    host.add_argument(
        "--train-rate",
        type=positive_float,
        metavar="N",
        help="images a second of the training step",
    )


def run(arguments: argparse.Namespace) -> int:
    """Measures, writes the profile and prints it for people; gives the exit code."""
    from l3dali.codec import write_atomically
    from l3dali.liquid.measure import Given, measure_profile

    target = new_file(arguments.output, overwrite=arguments.overwrite)
    profile = measure_profile(
        arguments.sources,
        samples=arguments.samples,
        seconds=arguments.seconds,
        seed=arguments.seed,
        allow_lossy=arguments.allow_lossy,
        labels=arguments.labels,
        max_pixels=arguments.max_pixels,
        given=Given(
            arguments.cores,
            arguments.disk,
            arguments.network,
            arguments.upload,
            arguments.train_rate,
        ),
    )
    text = profile.to_json() + "\n"
    if target == STDOUT:
        print(text, end="")
    else:
        write_atomically(target, text.encode())
    _print(profile, to_errors=target == STDOUT)
    return 0


def _print(profile: Profile, *, to_errors: bool) -> None:
    file = sys.stderr if to_errors else sys.stdout
    rows = [
        row
        for name, fits in profile.groups.items()
        for row in _rows(name, fits, [s for s in profile.samples if s.group == name])
    ]
    print_table(
        ["images", "stored as", "bytes/pixel", "decoded", "images/s per core", "error of fit"],
        *rows,
        file=file,
    )
    print(f"{profile.images} images, {len(profile.samples)} measured", file=file)
    print(_host_line(profile.host), file=file)
    if profile.training is not None:
        print(f"training: {profile.training.samples_per_second:.0f} images/s", file=file)
    say(profile.notes)


def _rows(name: str, fits: Fits, samples: list[Sample]) -> list[list[str]]:
    weight = sum(sample.weight for sample in samples)
    pixels = sum(sample.weight * sample.pixels for sample in samples)
    title = f"{name}: {fits.images}" + (f" (as {fits.borrowed})" if fits.borrowed else "")
    rows = []
    for stored_as in fits.sizes:
        size = sum(sample.weight * sample.sizes[stored_as] for sample in samples)
        places = [key for key in fits.cpu_seconds if key.partition("@")[0] == stored_as]
        for key in places or [""]:
            row = [title, stored_as, f"{size / pixels:.3f}", key.partition("@")[2] or "-"]
            title = ""
            if key:
                seconds = sum(s.weight * s.cpu_seconds[key] for s in samples) / weight
                rate = f"{1 / seconds:.1f}" if seconds else "-"
                rows.append([*row, rate, f"{fits.cpu_seconds[key].error:.1%}"])
            else:
                rows.append([*row, "-", "-"])
    return rows


def _host_line(host: Host) -> str:
    parts = [f"{host.cores:g} cores, of which pipelines reach {host.efficiency:.0%}"]
    for name in ("disk", "network", "upload"):
        rate = getattr(host, name)
        if rate is not None:
            parts.append(f"{name} {rate / 1e6:.{0 if rate >= 1e7 else 2}f} MB/s")
    return "host: " + "; ".join(parts)
