"""The command `l3 plan`: its arguments, and what it says."""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from l3dali.cli.arguments import (
    add_host_options,
    add_new_file_options,
    new_command,
    path_argument,
    positive_float,
    positive_number,
    rate_argument,
    size_argument,
)
from l3dali.cli.outputs import STDOUT, new_file, write_new
from l3dali.cli.report import EXIT_FAILED
from l3dali.console import complain, duration, megabytes, print_table, printable, ratio
from l3dali.datasets.liquid.profile import (
    CACHE,
    CPU,
    DEFAULT_BATCH,
    DEFAULT_MIN_GAIN,
    L3_FORMATS,
)
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from typing import TextIO

    from l3dali.cli.arguments import Commands
    from l3dali.datasets.liquid.hosts import HostFile
    from l3dali.datasets.liquid.model import Limits
    from l3dali.datasets.liquid.plan import Plan
    from l3dali.datasets.liquid.profile import Profile

_LEAST_SHARE = 0.005  # that is worth an argument
_WORDS = {
    "cores": "the cores",
    "disk": "the disk",
    "network": "the network",
    "file_system": "the shared file system",
    "upload": "the upload to the GPU",
    "switch": "the PCIe switches",
    "gpu": "decoding on the GPU",
    "step": "the GPU, which trains and decodes",
}


def add_command(commands: Commands) -> None:
    """Adds `l3 plan` to the commands of the parser `l3`."""
    parser = new_command(
        commands,
        "plan",
        run,
        "Plan in which formats to store the images of a data set, from a profile.",
        """
        l3 plan profile.json -o plan.json
        l3 plan profile.json --cores 64 --disk 2GB/s -o disk.json
        l3 plan profile.json --target 900 --formats rans,packed --json -o lean.json
        l3 plan profile.json --host dgx-a100 --nodes 8 --file-system 40GB/s -o a.json
        """,
    )
    parser.add_argument(
        "profile", type=path_argument, metavar="PROFILE", help="what l3 profile wrote"
    )
    add_new_file_options(parser, "plan.json")
    parser.add_argument(
        "--formats",
        metavar="LIST",
        help="to choose from: source, rans, packed, stored, jpeg95; default: all without loss",
    )
    parser.add_argument(
        "--allow-lossy", action="store_true", help="jpeg95 may be chosen, if the profile has it"
    )
    parser.add_argument(
        "--min-gain",
        type=float,
        default=DEFAULT_MIN_GAIN,
        metavar="PART",
        help="minimum relative speed-up for adding another format; default: %(default)g",
    )
    parser.add_argument(
        "--target", type=positive_float, metavar="N", help="images a second that suffice"
    )
    parser.add_argument(
        "--disk-space", type=size_argument, metavar="SIZE", help="for the results: 500GB, 2TB"
    )
    parser.add_argument(
        "--batch",
        type=positive_number,
        default=DEFAULT_BATCH,
        metavar="N",
        help="images of a batch; counts where decoders on cores take turns; default: %(default)s",
    )
    parser.add_argument(
        "--device",
        choices=["cpu", "mixed"],
        help="where pixels are wanted; cpu: no GPU decodes, and nothing goes up to it; "
        "default: mixed if the profile has a GPU",
    )
    host = add_host_options(parser, "another host than the profile's")
    host.add_argument(
        "--host",
        metavar="HOST",
        help="a description of a host: a FILE, or dgx-a100, dgx-h100, aws-g4dn.xlarge, "
        "aws-p5.48xlarge, workstation, cpu-node; the other options change it",
    )
    host.add_argument(
        "--nodes", type=positive_number, metavar="N", help="hosts that train together"
    )
    shared = "that all nodes together read from the file system they share"
    host.add_argument("--file-system", type=rate_argument, metavar="RATE", help=shared)
    parser.add_argument("--json", action="store_true", help="print what is predicted as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Plans, writes the plan and says what it does; gives the exit code."""
    from l3dali.datasets.liquid.hosts import on_host, read_host
    from l3dali.datasets.liquid.plan import find_plan, rate_of
    from l3dali.datasets.liquid.profile import read_profile, without_gpu

    profile = measured = read_profile(arguments.profile)
    target: Path = arguments.output
    if arguments.json and target == STDOUT:
        raise UsageError("--json and the plan cannot both go to standard output")
    inputs = {arguments.profile.resolve(), Path(arguments.host or arguments.profile).resolve()}
    if target != STDOUT and target.resolve() in inputs:
        raise UsageError(f"{target} is an input; name another file for the plan")
    described = None if arguments.host is None else read_host(arguments.host)
    if described is not None:
        nodes = arguments.nodes or described.nodes
        shared = arguments.file_system or described.file_system
        described = replace(described, nodes=nodes, file_system=shared)
        profile = on_host(measured, described)
    if arguments.device == "cpu":
        profile = without_gpu(profile)
    elif arguments.device == "mixed" and not any(f.gpu_seconds for f in profile.groups.values()):
        raise UsageError(
            f"{arguments.profile}: no GPU was measured; profile on a host that has one"
        )
    limits = _limits(profile, arguments)
    formats = _formats(arguments)
    new_file(target, overwrite=arguments.overwrite)  # the last check: others say more
    plan = find_plan(profile, limits, formats, arguments.min_gain)
    span: list[float] = []
    if described is not None and profile.host.gpu is not None:
        for speed in (1 - described.decode_error, 1 + described.decode_error):
            span.append(rate_of(on_host(measured, described, speed), limits, plan.formats))
    is_there = write_new(target, plan.to_json(), overwrite=arguments.overwrite)
    if arguments.json:
        as_json = _as_json(plan) | {"notes": profile.notes, "rate_span": span}
        print(json.dumps(as_json, indent=1, allow_nan=False))
    else:
        file = sys.stderr if target == STDOUT else sys.stdout
        _print(plan, file)
        if described is not None:
            _print_host(described, span, file)
        for note in profile.notes:
            complain(f"l3: the profile says: {note}")
    return 0 if is_there else EXIT_FAILED


def _limits(profile: Profile, arguments: argparse.Namespace) -> Limits:
    from l3dali.datasets.liquid.model import Limits
    from l3dali.datasets.liquid.profile import Training

    host, training = profile.host, profile.training
    for name in ("cores", "disk", "network", "upload", "gpu_cache", "nodes", "file_system"):
        given = getattr(arguments, name)
        if given is not None:
            changed: dict[str, Any] = {name: None if math.isinf(given) else given}
            host = replace(host, **changed)
    if arguments.train_rate is not None:
        share = 0.0 if training is None else training.gpu_share
        training = Training(arguments.train_rate, share)
    return Limits(host, training, arguments.target, arguments.disk_space, arguments.batch)


def _formats(arguments: argparse.Namespace) -> list[str]:
    from l3dali.datasets.liquid.profile import FORMATS, JPEG

    if arguments.formats is None:
        return [name for name in FORMATS if name != JPEG or arguments.allow_lossy]
    formats = [name.strip() for name in arguments.formats.split(",")]
    for name in formats:
        if name not in FORMATS:
            raise UsageError(f"--formats: {name!r} is none of {', '.join(FORMATS)}")
    if JPEG in formats and not arguments.allow_lossy:
        raise UsageError(f"{JPEG} loses detail, in some classes more than in others; --allow-lossy")
    return formats


def _as_json(plan: Plan) -> dict[str, object]:
    predicted = plan.predicted
    source = predicted.single_rates.get("source")
    single = predicted.single_rates[predicted.best_single]
    return {
        "identity": plan.identity,
        "formats": plan.formats,
        **asdict(predicted),
        "best_single": predicted.best_single,
        "switch_gain": single / source if source else None,
        "mix_gain": predicted.rate / single,
        "prices": asdict(plan.prices),
    }


def _print(plan: Plan, file: TextIO) -> None:
    predicted = plan.predicted
    rows = []
    for key, share in predicted.shares.items():
        stored_as, _, place = key.partition("@")
        rows.append([stored_as, place, f"{share:.1%}", f"{share * plan.images:.0f}"])
    print_table(["stored as", "decoded", "share", "images"], *rows, file=file)
    later, first = predicted.rate, predicted.first_rate
    print(f"predicted: {_rate(later)} images/s, {_rate(first)} in the first epoch", file=file)
    if _shares_by_place(plan.predicted.shares).get(CACHE, 0.0) > 1 - _LEAST_SHARE:
        print(
            "caution: the images fit into the caches of the GPUs, so this rate has next to no "
            "reading and no upload in it; --gpu-cache 0 plans without caches",
            file=file,
        )
    for line in [_bound(plan), *_gains(plan), *_decoding(plan)]:
        print(line, file=file)
    grown = ratio(predicted.stored_bytes, predicted.source_bytes)
    print(f"on disk: {megabytes(predicted.stored_bytes)}, ratio {grown}", file=file)
    if predicted.encode_seconds:
        print(f"converting: {duration(predicted.encode_seconds)} of one core", file=file)


def _print_host(host: HostFile, span: list[float], file: TextIO) -> None:
    what = f"{printable(host.name)}: nothing was measured there"
    if span:
        what += (
            f"; its GPUs may decode {host.decode_error:.0%} slower or faster than predicted: "
            f"{_rate(span[0])} to {_rate(span[1])} images/s"
        )
    print(what, file=file)


def _decoding(plan: Plan) -> list[str]:
    """The call of a pipeline that decodes where the plan says; nothing if cores alone decode."""
    shares = plan.predicted.shares
    by_place = _shares_by_place({k: s for k, s in shares.items() if _format_of(k) in L3_FORMATS})
    if not by_place.keys() - {CPU}:
        return []
    arguments = ['encoded, device="mixed"']
    on_cores = by_place.get(CPU, 0.0) / sum(by_place.values())
    is_cached = CACHE in by_place and plan.limits.host.gpu_cache
    mixes = on_cores >= _LEAST_SHARE or any(_format_of(key) not in L3_FORMATS for key in shares)
    if on_cores >= _LEAST_SHARE:
        arguments.append(f"cpu_share={on_cores:.2f}")
    if is_cached:
        arguments.append(f"cache_size={(plan.limits.host.gpu_cache or 0) / 2**20:.0f}")
    if is_cached and not mixes:
        arguments.append("skip_cached_images=True")
    call = "l3dali.pipeline.decode" if mixes else "fn.l3.decode"
    lines = [f"decode them by: {call}({', '.join(arguments)})"]
    if is_cached and mixes:
        lines.append(
            "the rate is not reached by this call, which reads cached files too: "
            "--gpu-cache 0 predicts what is"
        )
    elif is_cached:
        reader = "fn.readers.file(files=paths, skip_cached_images=True)"
        lines.append(f"read them by: {reader}, or another reader with that argument")
    return lines


def _format_of(key: str) -> str:
    """The format of a key `format@place`."""
    return key.partition("@")[0]


def _shares_by_place(shares: dict[str, float]) -> dict[str, float]:
    """By place, the share of the images."""
    by_place: dict[str, float] = {}
    for key, share in shares.items():
        place = key.partition("@")[2]
        by_place[place] = by_place.get(place, 0.0) + share
    return by_place


def _rate(number: float) -> str:
    """Images a second, for people."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.1f}"


def _bound(plan: Plan) -> str:
    """What decides the rate."""
    binding = plan.predicted.binding
    if not binding:
        what = "the target" if plan.limits.target else "the rate of the training step"
        return f"{what} is reached"
    return "bound by " + " and ".join(f"{_WORDS[name]} ({d:.0%})" for name, d in binding.items())


def _gains(plan: Plan) -> list[str]:
    """What switching and mixing gain."""
    predicted = plan.predicted
    single = predicted.best_single
    rate = predicted.single_rates[single]
    source = predicted.single_rates.get("source")
    lines = []
    if source is None:
        lines.append("the originals cannot be decoded in a pipeline, or were left out")
    elif single != "source":
        lines.append(
            f"switching from the originals ({_rate(source)} images/s) to {single} alone "
            f"({_rate(rate)}): {rate / source:.2f} times"
        )
    if len(plan.formats) > 1:
        gain = predicted.rate / rate
        lines.append(f"mixing beyond {single} alone ({_rate(rate)} images/s): {gain:.2f} times")
        if predicted.turn_seconds:
            host = plan.limits.host
            cores = host.cores * host.efficiency * host.nodes
            lost = predicted.turn_seconds * predicted.rate / cores
            lines.append(
                f"in this rate cores wait for {lost:.1%} of the time, as the originals and L3 have "
                f"two decoders that take turns; batches of more than {plan.limits.batch} lose less"
            )
    else:
        gain = predicted.best_rate / predicted.rate - 1
        used = {_format_of(k) for k, part in predicted.shares.items() if round(part * plan.images)}
        others = sorted(used - set(plan.formats))
        what = f"where it can be, else {' or '.join(others)}," if others else "alone"
        lines.append(
            f"do not mix: {plan.formats[0]} {what} gives {_rate(predicted.rate)} images/s, "
            f"and the best mix {max(0.0, gain):.1%} more (--min-gain {plan.min_gain:.1%})"
        )
    return lines
