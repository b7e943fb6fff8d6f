"""The command `l3 profile`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali.cli.inputs import KNOWN_SUFFIXES
from l3dali.cli.outputs import check_new_file
from l3dali.cli.parser import HOST, LABELS, LAYOUT, MAX_PIXELS, NEW_FILE, SOURCES, new_command
from l3dali.cli.summary import EXIT_FAILED, write_document
from l3dali.console import Failure, say, tell_failures
from l3dali.datasets.liquid.profile import DEFAULT_SAMPLES, DEFAULT_SECONDS
from l3dali.datasets.liquid.words import PROFILE_HEADERS, profile_lines, profile_rows
from l3dali.errors import UsageError
from l3dali.signatures import suffix_of

if TYPE_CHECKING:
    from l3dali.cli.parser import Commands

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

    if suffix_of(arguments.output).lower() in KNOWN_SUFFIXES or is_shard_name(
        arguments.output.name
    ):
        raise UsageError(f"{arguments.output} is the name of an image or a shard; use -o NAME.json")
    check_new_file(arguments.output, arguments.sources, overwrite=arguments.overwrite)
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
    table = PROFILE_HEADERS, profile_rows(profile), profile_lines(profile)
    write_document(arguments.output, profile.to_json(), *table)
    say(profile.notes)
    tell_failures(failures)
    return EXIT_FAILED if failures else 0
