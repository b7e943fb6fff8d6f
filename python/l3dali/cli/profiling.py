"""The command `l3 profile`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali.cli.inputs import is_image_name
from l3dali.cli.outputs import STDOUT, new_file, without_collisions, write_file
from l3dali.cli.parser import HOST, LABELS, LAYOUT, MAX_PIXELS, NEW_FILE, SOURCES, new_command
from l3dali.cli.summary import EXIT_FAILED
from l3dali.console import Failure, counted, print_table, say, tell_failures
from l3dali.datasets.liquid.profile import (
    CPU,
    DEFAULT_SAMPLES,
    DEFAULT_SECONDS,
    MIXED,
    PLACES,
    cost_key,
)
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from l3dali.cli.parser import Commands
    from l3dali.datasets.liquid.profile import Fits, Profile

_GIVEN = ("cores", "disk", "network", "upload", "train_rate", "gpu_cache")


def add_command(commands: Commands) -> None:
    """Adds `l3 profile` to the commands of the parser `l3`."""
    new_command(
        commands,
        "profile",
        run,
        "Measure the costs of the images of a data set in each format on this host.",
        """
        l3 profile photos -o profile.json
        l3 profile 'shards/a-{000..146}.tar' --disk 2GB/s --train-rate 900 -o a.json
        l3 profile s3://bucket/imagenet --seconds 60
        """,
        *(SOURCES.replace("SOURCE", "DATASET"), NEW_FILE),
        """
        --samples N    images to measure; default: %(default)s
        --seconds S    approximate duration, with fewer samples if needed; default: %(default)g
        --labels END   label maps, as in l3 convert
        """,
        *(MAX_PIXELS, LAYOUT, "known numbers, which are not measured:"),
        HOST.replace("or 0", "or 0; default: a quarter of the free memory"),
        output={"default": Path("profile.json")},
        samples={"default": DEFAULT_SAMPLES},
        seconds={"default": DEFAULT_SECONDS},
        labels=LABELS,
    )


def run(arguments: argparse.Namespace) -> int:
    """Measures, writes the profile and prints it; returns the exit code."""
    from l3dali.datasets.convert.containers import is_shard_name
    from l3dali.datasets.liquid.measure import measure_profile

    if is_image_name(arguments.output.name) or is_shard_name(arguments.output.name):
        raise UsageError(f"{arguments.output} is the name of an image or a shard; use -o NAME.json")
    target = new_file(arguments.output, overwrite=arguments.overwrite)
    for source in arguments.sources:
        without_collisions([(Path(source), target)])
    failures: list[Failure] = []
    profile = measure_profile(
        arguments.sources,
        samples=arguments.samples,
        seconds=arguments.seconds,
        labels=arguments.labels,
        max_pixels=arguments.max_pixels,
        layout=arguments.layout,
        given={name: getattr(arguments, name) for name in _GIVEN},
        failures=failures,
    )
    write_file(target, f"{profile.to_json()}\n".encode())
    _print(profile, to_errors=target == STDOUT)
    tell_failures(failures)
    return EXIT_FAILED if failures else 0


def _print(profile: Profile, *, to_errors: bool) -> None:
    file = sys.stderr if to_errors else sys.stdout
    rows = [row for name, fits in profile.groups.items() for row in _rows(name, fits, profile)]
    head = ["images", "stored as", "bytes/pixel", "decoded", "images/s per core"]
    print_table([*head, "images/s of the GPU"], *rows, file=file)
    images = counted(profile.images, "image")
    print(f"{images}, {len(profile.samples)} measured", file=file)
    host = profile.host
    parts = [f"host: {host.cores:g} cores, of which pipelines reach {host.efficiency:.0%}"]
    for name in ("disk", "network", "upload"):
        rate = getattr(host, name)
        if rate is not None:
            parts.append(f"{name} {rate / 1e6:.{0 if rate >= 1e7 else 2}f} MB/s")
    if host.gpu is not None:
        parts.append(f"{host.gpu}, {(host.gpu_cache or 0) / 1e9:.1f} GB of it for a cache")
    print("; ".join(parts), file=file)
    if profile.training is not None:
        print(f"training: {profile.training.samples_per_second:.0f} images/s", file=file)
    say(profile.notes)


def _rows(name: str, fits: Fits, profile: Profile) -> Iterator[list[str]]:
    """A row for each format and place of a group."""
    samples = [sample for sample in profile.samples if sample.group == name]
    weight = sum(sample.weight for sample in samples)
    pixels = sum(sample.weight * sample.pixels for sample in samples)
    title = f"{name}: {fits.images}"

    def rate(costs: str, key: str) -> str:
        seconds = sum(each.weight * getattr(each, costs).get(key, 0.0) for each in samples)
        return f"{weight / seconds:.1f}" if seconds else "-"

    for stored_as in fits.sizes:
        size = sum(sample.weight * sample.sizes[stored_as] for sample in samples)
        for place in [each for each in PLACES if cost_key(stored_as, each) in fits.cpu_seconds]:
            key = cost_key(stored_as, place)
            on_gpu = "-" if place == CPU else rate("gpu_seconds", cost_key(stored_as, MIXED))
            on_cores = rate("cpu_seconds", key)
            yield [title, stored_as, f"{size / pixels:.3f}", place, on_cores, on_gpu]
            title = ""
