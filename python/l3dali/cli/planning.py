"""The command `l3 plan`."""

from __future__ import annotations

import argparse
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from l3dali.cli.outputs import check_new_file
from l3dali.cli.parser import HOST, NEW_FILE, new_command, path_argument, positive_float
from l3dali.cli.summary import write_document
from l3dali.console import complain, printable
from l3dali.datasets.liquid.profile import DEFAULT_BATCH, DEFAULT_MIN_GAIN, FORMATS, L3_FORMATS
from l3dali.datasets.liquid.words import PLAN_HEADERS, plan_lines, plan_rows

if TYPE_CHECKING:
    from l3dali.cli.parser import Commands
    from l3dali.datasets.liquid.model import Limits
    from l3dali.datasets.liquid.profile import Profile


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
        "profile PROFILE   file from l3 profile",
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
    sources = (arguments.profile, arguments.host or arguments.profile)
    check_new_file(arguments.output, sources, overwrite=arguments.overwrite)
    described = None if arguments.host is None else read_host(arguments.host)
    if described is not None:
        nodes = arguments.nodes or described.nodes
        shared = arguments.file_system or described.file_system
        described = replace(described, nodes=nodes, file_system=shared)
        profile = on_host(profile, described)
    if arguments.device == "cpu":
        profile = without_gpu(profile)
    limits = _limits(profile, arguments)
    plan = find_plan(profile, limits, arguments.formats, arguments.min_gain)
    table = PLAN_HEADERS, plan_rows(plan), plan_lines(plan)
    file = write_document(arguments.output, plan.to_json(), *table)
    if described is not None:
        what = f"{printable(described.name)}: nothing was measured there"
        if profile.host.gpu is not None:
            of_cores = [
                name
                for name in plan.candidates
                if name in L3_FORMATS and name not in described.decode
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
