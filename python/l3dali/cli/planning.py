"""The command `l3 plan`."""

from __future__ import annotations

import argparse
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from l3dali.cli.outputs import STDOUT, new_file, without_collisions, write_file
from l3dali.cli.parser import HOST, NEW_FILE, new_command, path_argument, positive_float
from l3dali.console import complain, megabytes, print_table, printable, ratio
from l3dali.datasets.liquid.profile import (
    CACHE,
    CPU,
    DEFAULT_BATCH,
    DEFAULT_MIN_GAIN,
    FORMATS,
    L3_FORMATS,
)

if TYPE_CHECKING:
    from typing import TextIO

    from l3dali.cli.parser import Commands
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
    new_command(
        commands,
        "plan",
        run,
        "Plan in which formats to store the images of a data set, from a profile.",
        """
        l3 plan profile.json -o plan.json
        l3 plan profile.json --cores 64 --disk 2GB/s -o disk.json
        l3 plan profile.json --target 900 --formats rans,packed -o lean.json
        l3 plan profile.json --host dgx-a100 --nodes 8 --file-system 40GB/s -o a.json
        """,
        """
        profile PROFILE   file from l3 profile
        """,
        NEW_FILE,
        """
        --formats LIST    formats to choose from: source, jpeg, rans, packed, stored; default: all
        --min-gain PART   minimum relative speed-up for adding another format; default: %(default)g
        --target N        required throughput, in images/s
        --batch N         images per batch; default: %(default)s
        --crop HxW        height and width of random crops
        --device          device of the pixels; cpu: decode without a GPU
        """,
        *("another host than the profile's:", HOST),
        """
        --host HOST          file that describes a host, or dgx-a100, dgx-h100, aws-g4dn.xlarge,
                             aws-p5.48xlarge, workstation, cpu-node
        --nodes N            number of hosts that train together
        --file-system RATE   rate of the file system that all nodes share
        """,
        output={"default": Path("plan.json")},
        profile={"type": path_argument},
        formats={"type": _formats, "default": list(FORMATS)},
        min_gain={"type": float, "default": DEFAULT_MIN_GAIN},
        target={"type": positive_float},
        batch={"default": DEFAULT_BATCH},
        crop={"type": _crop},
        device={"choices": ["cpu"]},
    )


def run(arguments: argparse.Namespace) -> int:
    """Writes a plan and prints its predictions; returns the exit code."""
    from l3dali.datasets.liquid.hosts import on_host, read_host
    from l3dali.datasets.liquid.plan import find_plan
    from l3dali.datasets.liquid.profile import read_profile, without_gpu

    profile = read_profile(arguments.profile)
    target: Path = arguments.output
    for source in (arguments.profile, Path(arguments.host or arguments.profile)):
        without_collisions([(source, target)])
    described = None if arguments.host is None else read_host(arguments.host)
    if described is not None:
        nodes = arguments.nodes or described.nodes
        shared = arguments.file_system or described.file_system
        described = replace(described, nodes=nodes, file_system=shared)
        profile = on_host(profile, described)
    if arguments.device == "cpu":
        profile = without_gpu(profile)
    limits = _limits(profile, arguments)
    new_file(target, overwrite=arguments.overwrite)
    plan = find_plan(profile, limits, arguments.formats, arguments.min_gain)
    write_file(target, f"{plan.to_json()}\n".encode())
    file = sys.stderr if target == STDOUT else sys.stdout
    _print(plan, file)
    if described is not None:
        what = f"{printable(described.name)}: nothing was measured there"
        if profile.host.gpu is not None:
            of_cores = [
                name for name in plan.candidates if _is_l3(name) and name not in described.decode
            ]
            if of_cores:
                what += f"; it has no GPU rate for {' and '.join(of_cores)}, which its cores decode"
            error = f"{described.decode_error:.0%}"
            what += f"; its GPUs may decode {error} slower or faster than predicted"
        print(what, file=file)
    for note in profile.notes:
        complain(f"l3: note of the profile: {note}")
    return 0


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
        training = Training(arguments.train_rate)
    return Limits(host, training, arguments.target, arguments.batch, arguments.crop)


def _crop(text: str) -> list[int]:
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not HEIGHTxWIDTH, such as 512x512")
    return [int(match[1]), int(match[2])]


def _formats(text: str) -> list[str]:
    formats = [name.strip() for name in text.split(",")]
    for name in formats:
        if name not in FORMATS:
            raise argparse.ArgumentTypeError(f"{name!r} is unknown; use {', '.join(FORMATS)}")
    return formats


def _print(plan: Plan, file: TextIO) -> None:
    predicted = plan.predicted
    rows = []
    for key, share in predicted.shares.items():
        stored_as, _, place = key.partition("@")
        rows.append([stored_as, place, f"{share:.1%}", f"{share * plan.images:.0f}"])
    print_table(["stored as", "decoded", "share", "images"], *rows, file=file)
    later, first = predicted.rate, predicted.first_rate
    print(f"predicted: {_rate(later)} images/s, {_rate(first)} in the first epoch", file=file)
    for line in [_bound(plan), *_gains(plan), *_decoding(plan)]:
        print(line, file=file)
    grown = ratio(predicted.stored_bytes, predicted.source_bytes)
    print(f"on disk: {megabytes(predicted.stored_bytes)}, ratio {grown}", file=file)


def _decoding(plan: Plan) -> list[str]:
    """The call of a pipeline that decodes by the plan; nothing if only cores decode."""
    shares = {key: share for key, share in plan.predicted.shares.items() if _is_l3(key)}
    on_cpu = all(key.endswith(f"@{CPU}") for key in shares)
    if shares and plan.limits.crop:
        device = "" if on_cpu else ', device="mixed"'
        return [
            "read them by: fn.l3.readers.file(files=paths, lazy=True)",
            f"decode L3 by: fn.l3.decode_crop(encoded, crop={tuple(plan.limits.crop)}{device})",
        ]
    if on_cpu:
        return []
    arguments = ['encoded, device="mixed"']
    of_cores = sum(share for key, share in shares.items() if key.endswith(f"@{CPU}"))
    on_cores = of_cores / sum(shares.values())
    cache = (plan.limits.host.gpu_cache or 0) if any(CACHE in key for key in shares) else 0
    mixes = on_cores >= _LEAST_SHARE or len(shares) < len(plan.predicted.shares)
    if on_cores >= _LEAST_SHARE:
        arguments.append(f"cpu_share={on_cores:.2f}")
    if cache:
        arguments.append(f"cache_size={cache / 2**20:.0f}")
    if cache and not mixes:
        arguments.append("skip_cached_images=True")
    call = "l3dali.pipeline.decode" if mixes else "fn.l3.decode"
    lines = [f"decode them by: {call}({', '.join(arguments)})"]
    if cache and mixes:
        lines.append(
            "this rate needs `skip_cached_images`, which that call lacks; --gpu-cache 0 predicts "
            "its rate"
        )
    elif cache:
        reader = "fn.readers.file(files=paths, skip_cached_images=True)"
        lines.append(f"read them by: {reader}, or another reader with that argument")
    return lines


def _is_l3(key: str) -> bool:
    """Whether the format of a key `format@place` is an L3 coding."""
    return key.partition("@")[0] in L3_FORMATS


def _rate(number: float) -> str:
    """Images a second, for people."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.1f}"


def _bound(plan: Plan) -> str:
    """The resource that limits the rate."""
    binding = plan.predicted.binding
    if not binding:
        what = "the target" if plan.limits.target else "the rate of the training step"
        return f"{what} is reached"
    return "bound by " + " and ".join(f"{_WORDS[name]} ({d:.0%})" for name, d in binding.items())


def _gains(plan: Plan) -> list[str]:
    """The gains of switching and mixing."""
    predicted = plan.predicted
    single = predicted.best_single
    rate = predicted.single_rates[single]
    source = predicted.single_rates.get("source")
    lines = []
    if source is None:
        lines.append("the originals cannot be decoded in a pipeline, or are not in --formats")
    elif single != "source":
        lines.append(
            f"switching from the originals ({_rate(source)} images/s) to {single} alone "
            f"({_rate(rate)}): {rate / source:.2f} times"
        )
    if jpeg := predicted.jpeg:
        lines.append(
            f"jpeg in place of JPEG files: {jpeg['stored_bytes']:.2f} of their bytes, "
            f"{jpeg['cpu_seconds']:.2f} of the CPU time to decode them"
        )
    if len(plan.formats) > 1:
        gain = predicted.rate / rate
        lines.append(f"mixing beyond {single} alone ({_rate(rate)} images/s): {gain:.2f} times")
    else:
        gain = max(0.0, predicted.best_rate / predicted.rate - 1)
        used = {key.partition("@")[0] for key, share in predicted.shares.items() if share > 0}
        others = sorted(used - set(plan.formats))
        what = f"where it can be, else {' or '.join(others)}," if others else "alone"
        lines.append(
            f"do not mix: {plan.formats[0]} {what} gives {_rate(predicted.rate)} images/s, "
            f"and the best mix {gain:.1%} more (--min-gain {plan.min_gain:.1%})"
        )
    return lines
