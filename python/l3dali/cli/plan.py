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
    new_file,
    output_argument,
    path_argument,
    positive_float,
    positive_number,
    rate_argument,
    size_argument,
    write_new,
)
from l3dali.cli.batch import STDOUT
from l3dali.cli.report import EXIT_FAILED
from l3dali.console import complain, counted, duration, megabytes, print_table, printable, ratio
from l3dali.datasets.liquid.profile import CACHE, CPU, DEFAULT_BATCH, L3_FORMATS
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from typing import TextIO

    from l3dali.cli.arguments import Commands
    from l3dali.datasets.liquid.hosts import HostFile
    from l3dali.datasets.liquid.model import Limits
    from l3dali.datasets.liquid.plan import Plan, Predicted
    from l3dali.datasets.liquid.profile import Profile
    from l3dali.datasets.liquid.simulate import Simulated

_MORE = {
    "cores": "one more core adds",
    "disk": "100 MB/s more of disk add",
    "network": "100 MB/s more of network add",
    "file_system": "1 GB/s more of the shared file system add",
    "upload": "1 GB/s more of upload add",
}
_LEAST_SHARE = 0.005  # that is worth an argument
_WORDS = {
    "cores": "the cores",
    "disk": "the disk",
    "network": "the network",
    "file_system": "the shared file system",
    "upload": "the upload to the GPU",
    "switch": "the PCIe switches",
    "gpu": "decoding on the GPU",
    "step": "the GPU, which trains and decodes,",
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
        l3 plan profile.json --cores 64 --disk 2GB/s --plot disk.png -o disk.json
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
        type=_part,
        metavar="PART",
        help="how much faster one format more must make it; default: 0.03",
    )
    parser.add_argument(
        "--target", type=positive_float, metavar="N", help="images a second that suffice"
    )
    parser.add_argument(
        "--disk-space", type=size_argument, metavar="SIZE", help="for the results: 500GB, 2TB"
    )
    parser.add_argument(
        "--memory",
        type=size_argument,
        default=0.0,
        metavar="SIZE",
        help="of the page cache, for files that are read again; default: none",
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
    parser.add_argument(
        "--listing",
        type=path_argument,
        metavar="LIST",
        help="count the choices for these files: lines of size, blank, name "
        "(find -type f -printf '%%s %%P\\n')",
    )
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="also run the plan's pipelines batch by batch, by discrete events",
    )
    parser.add_argument("--json", action="store_true", help="print what is predicted as JSON")
    parser.add_argument(
        "--plot",
        type=output_argument,
        metavar="FILE",
        help="draw rates and shares over disk bandwidth and cores: a PNG or SVG file",
    )


def _part(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Plans, writes the plan and says what it does; gives the exit code."""
    from l3dali.datasets.liquid.hosts import on_host, read_host
    from l3dali.datasets.liquid.plan import DEFAULT_MIN_GAIN, find_plan, rate_of
    from l3dali.datasets.liquid.profile import read_profile, without_gpu

    profile = measured = read_profile(arguments.profile)
    target: Path = arguments.output
    if arguments.json and target == STDOUT:
        raise UsageError("--json and the plan cannot both go to standard output")
    plot: Path | None = arguments.plot
    if plot is not None and plot.suffix.lower() not in (".png", ".svg"):
        raise UsageError(f"{plot}: --plot draws .png and .svg files")
    outputs = [target] if plot is None else [target, plot]
    inputs = {"profile": arguments.profile, "host": arguments.host, "listing": arguments.listing}
    paths = {what: Path(path) for what, path in inputs.items() if path is not None}
    taken = {path.resolve(): f"the {what}" for what, path in paths.items() if path != STDOUT}
    for path, what in zip(outputs, ("the plan", "the drawing"), strict=False):
        if other := taken.get(path.resolve()):
            raise UsageError(f"{path} is {other}; name another file for {what}")
        taken[path.resolve()] = what
    described = None if arguments.host is None else read_host(arguments.host)
    if described is not None:
        described = replace(
            described,
            nodes=arguments.nodes or described.nodes,
            file_system=arguments.file_system or described.file_system,
        )
        profile = on_host(measured, described)
    if arguments.device == "cpu":
        profile = without_gpu(profile)
    elif arguments.device == "mixed" and not any(f.gpu_seconds for f in profile.groups.values()):
        raise UsageError(
            f"{arguments.profile}: no GPU was measured; profile on a host that has one"
        )
    limits = _limits(profile, arguments)
    formats = _formats(arguments)
    min_gain = DEFAULT_MIN_GAIN if arguments.min_gain is None else arguments.min_gain
    for path in outputs:  # the last check: others say more
        new_file(path, overwrite=arguments.overwrite)
    plan = find_plan(profile, limits, formats, min_gain)
    counts = _count(profile, plan, arguments.listing) if arguments.listing else {}
    span: list[float] = []
    if described is not None and described.gpus is not None and profile.host.gpu is not None:
        error = described.gpus.decode_error
        slower_and_faster = (on_host(measured, described, 1 + sign * error) for sign in (-1, 1))
        span = [rate_of(each, limits, plan.formats) for each in slower_and_faster]
    simulated: Simulated | None = None
    if arguments.simulate:
        from l3dali.datasets.liquid.simulate import simulate_plan

        simulated = simulate_plan(profile, limits, plan.formats)
    drawing = None
    if plot is not None:
        from l3dali.datasets.liquid.plot import draw_plan

        drawing = draw_plan(profile, plan, limits, plot.suffix[1:].lower())
    are_there = write_new(target, plan.to_json(), overwrite=arguments.overwrite)
    if plot is not None and drawing is not None:
        are_there &= write_new(plot, drawing, overwrite=arguments.overwrite)
    if arguments.json:
        as_json = _as_json(plan, counts) | {
            "notes": profile.notes,
            "rate_span": span,
            "simulated": None if simulated is None else asdict(simulated),
        }
        print(json.dumps(as_json, indent=1, allow_nan=False))
    else:
        file = sys.stderr if target == STDOUT else sys.stdout
        _print(plan, counts, file)
        if described is not None:
            _print_host(described, plan, span, file)
        if simulated is not None:
            _print_simulated(simulated, file)
        for note in profile.notes:
            complain(f"l3: the profile says: {note}")
    return 0 if are_there else EXIT_FAILED


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
    return Limits(
        host,
        training,
        arguments.target,
        arguments.disk_space,
        arguments.memory,
        arguments.batch,
    )


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


def _count(profile: Profile, plan: Plan, listing: Path) -> dict[str, tuple[int, float]]:
    """By format, images of the listing and their bytes as planned."""
    import numpy as np

    from l3dali.datasets.liquid.plan import expected_bytes, images_of_listing, read_listing
    from l3dali.datasets.liquid.profile import FORMATS

    names, images = images_of_listing(profile, plan, *read_listing(listing))
    if not names:
        raise UsageError(f"{listing}: names no images")
    chosen = plan.choose_all(names, images)
    counts = np.bincount(chosen, minlength=len(FORMATS))
    sizes = expected_bytes(plan, images, chosen)
    return {
        name: (int(count), sizes.get(name, 0.0))
        for name, count in zip(FORMATS, counts, strict=True)
        if count
    }


def _as_json(plan: Plan, counts: dict[str, tuple[int, float]]) -> dict[str, object]:
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
        "listing": {name: {"images": n, "bytes": size} for name, (n, size) in counts.items()},
    }


def _print(plan: Plan, counts: dict[str, tuple[int, float]], file: TextIO) -> None:
    predicted = plan.predicted
    rows = []
    for key, share in predicted.shares.items():
        stored_as, _, place = key.partition("@")
        rows.append([stored_as, place, f"{share:.1%}", f"{share * plan.images:.0f}"])
    print_table(["stored as", "decoded", "share", "images"], *rows, file=file)
    for name, (count, size) in counts.items():
        print(f"listing: {counted(count, 'image')} as {name}, {megabytes(size)}", file=file)
    later, first = predicted.rate, predicted.first_rate
    print(f"predicted: {_rate(later)} images/s, {_rate(first)} in the first epoch", file=file)
    if _shares_by_place(plan.predicted.shares).get(CACHE, 0.0) > 1 - _LEAST_SHARE:
        print(
            "caution: the images fit into the caches of the GPUs, so this rate has next to no "
            "reading and no upload in it; --gpu-cache 0 plans without caches",
            file=file,
        )
    for line in [*explain(plan), *_decoding(plan)]:
        print(line, file=file)
    grown = ratio(predicted.stored_bytes, predicted.source_bytes)
    print(f"on disk: {megabytes(predicted.stored_bytes)}, ratio {grown}", file=file)
    if predicted.encode_seconds is None:
        complain("l3: the profile does not say what converting takes")
    elif predicted.encode_seconds:
        print(f"converting: {duration(predicted.encode_seconds)} of one core", file=file)


def _print_host(host: HostFile, plan: Plan, span: list[float], file: TextIO) -> None:
    what = f"{printable(host.name)}: nothing was measured there"
    if span and host.gpus is not None:
        what += (
            f"; its GPU decoding rates are predicted, and may be {host.gpus.decode_error:.0%} off: "
        )
        low, high = map(_rate, span)
        if low != high:
            what += f"{low} to {high} images/s"
        elif names := _binding(plan):
            what += f"that changes nothing here, as the rate is bound by {' and '.join(names)}"
        else:
            what += "that changes nothing here, as more than enough is reached"
    print(what, file=file)


def _print_simulated(found: Simulated, file: TextIO) -> None:
    busy = f"{_WORDS[found.busiest]} busy for {found.busy[found.busiest]:.0%} of the time"
    waits = f"; training waits for {found.stalled:.0%} of it" if found.stalled else ""
    print(f"simulated: {_rate(found.rate)} images/s, {busy}{waits}", file=file)


def _decoding(plan: Plan) -> list[str]:
    """The call of a pipeline that decodes where the plan says; nothing if cores alone decode."""
    shares = plan.predicted.shares
    by_place = _shares_by_place({k: s for k, s in shares.items() if _format_of(k) in L3_FORMATS})
    if not by_place.keys() - {CPU}:
        return []
    arguments = ['encoded, device="mixed"']
    on_cores = by_place.get(CPU, 0.0) / sum(by_place.values())
    is_cached = CACHE in by_place and plan.host.gpu_cache
    mixes = on_cores >= _LEAST_SHARE or any(_format_of(key) not in L3_FORMATS for key in shares)
    if on_cores >= _LEAST_SHARE:
        arguments.append(f"cpu_share={on_cores:.2f}")
    if is_cached:
        arguments.append(f"cache_size={(plan.host.gpu_cache or 0) / 2**20:.0f}")
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


def _binding(plan: Plan) -> list[str]:
    """What decides the rate, in words; nothing if what was asked for is reached."""
    return [_WORDS[name] for name, dual in plan.predicted.binding.items() if dual > 0.01]


def explain(plan: Plan) -> list[str]:
    """What binds, what more would do, and what switching and mixing gain, in words."""
    predicted = plan.predicted
    lines = []
    if predicted.binding:
        names = _binding(plan)
        verb = "bind together" if len(names) > 1 else "binds"
        if names in (["the cores"], ["the PCIe switches"]):
            verb = "bind"
        more = [f"{_MORE[name]} {_rate(gain)} images/s" for name, gain in predicted.more.items()]
        if plan.host.nodes > 1:
            names[0] = f"on {plan.host.nodes} nodes {names[0]}"
        lines.append("; ".join([f"{' and '.join(names)} {verb}", *more]))
    else:
        what = "the target" if plan.target else "what the training step takes"
        lines.append(f"{what} is reached; more of the host would add nothing")
    return [*lines, *_gains(plan, predicted)]


def _gains(plan: Plan, predicted: Predicted) -> list[str]:
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
            cores = plan.host.cores * plan.host.efficiency * plan.host.nodes
            lost = predicted.turn_seconds * predicted.rate / cores
            lines.append(
                "the originals and L3 have two decoders, which take turns on the cores of a DALI "
                f"pipeline: with batches of {plan.batch} cores wait for {lost:.1%} of the time, "
                "which is counted in"
            )
    else:
        gain = predicted.best_rate / predicted.rate - 1
        used = {_format_of(k) for k, part in predicted.shares.items() if round(part * plan.images)}
        others = sorted(used - set(plan.formats))
        kept = " and convert nothing" if plan.formats == ["source"] and not others else ""
        what = f"where it can be, else {' or '.join(others)}," if others else "alone"
        lines.append(
            f"do not mix{kept}: {plan.formats[0]} {what} gives {_rate(predicted.rate)} images/s, "
            f"and the best mix {max(0.0, gain):.1%} more (--min-gain {plan.min_gain:.1%})"
        )
    return lines
