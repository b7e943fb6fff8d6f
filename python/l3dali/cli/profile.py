"""The command `l3 profile`: its arguments, and what it says."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from l3dali.cli.arguments import (
    add_host_options,
    add_new_file_options,
    name_argument,
    natural_number,
    new_command,
    new_file,
    positive_float,
    positive_number,
    url_argument,
    write_new,
)
from l3dali.cli.batch import STDOUT, without_collisions
from l3dali.cli.reading import add_max_pixels_option
from l3dali.cli.report import EXIT_FAILED
from l3dali.cli.work import is_image_name
from l3dali.console import Failure, counted, print_table, say, tell_failures
from l3dali.datasets.liquid.profile import CPU, DEFAULT_SAMPLES, DEFAULT_SECONDS, MIXED, cost_key
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from l3dali.cli.arguments import Commands
    from l3dali.datasets.liquid.profile import Fits, Host, Profile, Sample
    from l3dali.datasets.liquid.step import Step


def add_command(commands: Commands) -> None:
    """Adds `l3 profile` to the commands of the parser `l3`."""
    parser = new_command(
        commands,
        "profile",
        run,
        "Measure what the images of a data set cost in each format on this host.",
        """
        l3 profile photos -o profile.json
        l3 profile 'shards/a-{000..146}.tar' --disk 2GB/s --train-rate 900 -o a.json
        l3 profile s3://bucket/imagenet --seconds 60 --allow-lossy
        """,
    )
    parser.add_argument(
        "sources",
        nargs="+",
        type=url_argument,
        metavar="DATASET",
        help="folder, shard, or shards as 'a-{000..146}.tar'; a path or a URL (s3://...)",
    )
    add_new_file_options(parser, "profile.json")
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
        type=name_argument,
        action="append",
        default=[],
        metavar="END",
        help="images whose name ends so are label maps, as in l3 convert",
    )
    add_max_pixels_option(parser)
    cache = "; default: a quarter of what is free"
    add_host_options(parser, "what is given is not measured", cache)
    parser.add_argument(
        "--step",
        metavar="FILE.py:NAME",
        help="a function that runs a training step and waits for it: it is measured, alone and "
        "beside a decoder on the GPU",
    )
    parser.add_argument(
        "--step-images", type=positive_number, metavar="N", help="images of a step of --step"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measures, writes the profile and prints it for people; gives the exit code."""
    from l3dali.datasets.convert.work import is_shard_name
    from l3dali.datasets.liquid.measure import Given, measure_profile

    if is_image_name(arguments.output.name) or is_shard_name(arguments.output.name):
        raise UsageError(f"{arguments.output}: this is the name of an image or a shard")
    step = _find_step(arguments)
    target = new_file(arguments.output, overwrite=arguments.overwrite)
    program = [] if step is None else [arguments.step.rpartition(":")[0]]
    for source in [*arguments.sources, *program]:
        without_collisions([(Path(source), target)])
    failures: list[Failure] = []
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
            arguments.gpu_cache,
        ),
        step=step,
        failures=failures,
    )
    is_there = write_new(target, profile.to_json(), overwrite=arguments.overwrite)
    _print(profile, to_errors=target == STDOUT)
    tell_failures(failures)
    return EXIT_FAILED if failures or not is_there else 0


def _find_step(arguments: argparse.Namespace) -> Step | None:
    """The function that `--step` names."""
    from l3dali.datasets.liquid.step import Step

    if (arguments.step is None) != (arguments.step_images is None):
        raise UsageError("--step and --step-images go together")
    if arguments.step is None:
        return None
    if arguments.train_rate is not None:
        raise UsageError("--train-rate says what --step would measure; give one of them")
    name, _, function = arguments.step.rpartition(":")
    path = Path(name)
    if not function.isidentifier() or path.suffix != ".py" or not path.is_file():
        raise UsageError(f"--step: {arguments.step!r} is no FILE.py:NAME of a file that exists")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(spec.name, module)  # Dataclasses, and who pickles, look there.
    sys.path.insert(0, str(path.parent.resolve()))  # for what it imports, as Python itself does
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a program may raise
        raise UsageError(f"--step: {path}: {type(error).__name__}: {error}") from error
    run = getattr(module, function, None)
    if not callable(run):
        raise UsageError(f"--step: {path} has no function {function!r}")
    return Step(run, arguments.step_images)


def _print(profile: Profile, *, to_errors: bool) -> None:
    file = sys.stderr if to_errors else sys.stdout
    rows = [
        row
        for name, fits in profile.groups.items()
        for row in _rows(name, fits, [s for s in profile.samples if s.group == name])
    ]
    head = ["images", "stored as", "bytes/pixel", "decoded", "images/s per core", "error of fit"]
    if any(fits.gpu_seconds for fits in profile.groups.values()):
        head.append("images/s of the GPU")
    print_table(head, *(row[: len(head)] for row in rows), file=file)
    images = counted(profile.images, "image")
    print(f"{images}, {len(profile.samples)} measured", file=file)
    print(_host_line(profile.host), file=file)
    if profile.training is not None:
        leaves = f"; of the GPU's time it leaves {profile.training.gpu_share:.0%} to decoding"
        rate = f"training: {profile.training.samples_per_second:.0f} images/s"
        print(rate + leaves * bool(profile.host.gpu), file=file)
    say(profile.notes)


def _rows(name: str, fits: Fits, samples: list[Sample]) -> list[list[str]]:
    from l3dali.datasets.liquid.fit import UNKNOWN_ERROR

    weight = sum(sample.weight for sample in samples)
    pixels = sum(sample.weight * sample.pixels for sample in samples)
    title = f"{name}: {fits.images}" + (
        f" ({len(samples)} measured; costs as {fits.borrowed})" if fits.borrowed else ""
    )
    rows = []

    def gpu_rate(key: str) -> str:
        """Images a second that the GPU decodes, wherever their bytes are."""
        stored_as, _, place = key.partition("@")
        key = cost_key(stored_as, MIXED)
        if place == CPU or key not in fits.gpu_seconds:
            return "-"
        return f"{weight / sum(s.weight * s.gpu_seconds[key] for s in samples):.0f}"

    for stored_as in fits.sizes:
        size = sum(sample.weight * sample.sizes[stored_as] for sample in samples)
        places = [key for key in fits.cpu_seconds if key.partition("@")[0] == stored_as]
        for key in places or [""]:
            row = [title, stored_as, f"{size / pixels:.3f}", key.partition("@")[2] or "-"]
            title = ""
            if key:
                seconds = sum(s.weight * s.cpu_seconds[key] for s in samples) / weight
                rate = f"{1 / seconds:.1f}" if seconds else "-"
                error = fits.cpu_seconds[key].error
                told = "-" if error == UNKNOWN_ERROR else f"{error:.1%}"
                rows.append([*row, rate, told, gpu_rate(key)])
            else:
                rows.append([*row, "-", "-", "-"])
    return rows


def _host_line(host: Host) -> str:
    parts = [f"{host.cores:g} cores, of which pipelines reach {host.efficiency:.0%}"]
    for name in ("disk", "network", "upload"):
        rate = getattr(host, name)
        if rate is not None:
            parts.append(f"{name} {rate / 1e6:.{0 if rate >= 1e7 else 2}f} MB/s")
    if host.gpu is not None:
        parts.append(f"{host.gpu}, {(host.gpu_cache or 0) / 1e9:.1f} GB of it for a cache")
    return "host: " + "; ".join(parts)
