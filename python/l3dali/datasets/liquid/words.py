"""Profiles and plans in tables and lines, as the command prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from l3dali.console import counted, megabytes, ratio
from l3dali.datasets.liquid.profile import (
    CACHE,
    CPU,
    L3_FORMATS,
    MIXED,
    PLACES,
    SOURCE,
    cost_key,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from l3dali.datasets.liquid.plan import Plan
    from l3dali.datasets.liquid.profile import Fits, Profile

PROFILE_HEADERS = (
    *("images", "stored as", "bytes/pixel", "decoded", "images/s per core", "images/s of the GPU"),
)
PLAN_HEADERS = ("stored as", "decoded", "share", "images")
_LEAST_SHARE = 0.005  # that is worth an argument
_RESOURCES = {
    "cores": "the cores",
    "disk": "the disk",
    "network": "the network",
    "file_system": "the shared file system",
    "upload": "the upload to the GPU",
    "switch": "the PCIe switches",
    "gpu": "decoding on the GPU",
    "step": "the GPU, which trains and decodes",
}


def profile_rows(profile: Profile) -> list[list[str]]:
    """The cells below `PROFILE_HEADERS`."""
    return [row for name, fits in profile.groups.items() for row in _rows(name, fits, profile)]


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


def profile_lines(profile: Profile) -> Iterator[str]:
    """What was measured, and the host."""
    yield f"{counted(profile.images, 'image')}, {len(profile.samples)} measured"
    host = profile.host
    parts = [f"host: {host.cores:g} cores, of which pipelines reach {host.efficiency:.0%}"]
    for name in ("disk", "network", "upload"):
        rate = getattr(host, name)
        if rate is not None:
            parts.append(f"{name} {rate / 1e6:.{0 if rate >= 1e7 else 2}f} MB/s")
    if host.gpu is not None:
        parts.append(f"{host.gpu}, {(host.gpu_cache or 0) / 1e9:.1f} GB of it for a cache")
    yield "; ".join(parts)
    if profile.training is not None:
        yield f"training: {profile.training.samples_per_second:.0f} images/s"


def plan_rows(plan: Plan) -> list[list[str]]:
    """The cells below `PLAN_HEADERS`."""
    return [
        [*key.split("@"), f"{share:.1%}", f"{share * plan.images:.0f}"]
        for key, share in plan.predicted.shares.items()
    ]


def plan_lines(plan: Plan) -> Iterator[str]:
    """What is predicted, what limits it, what is gained, and the call that decodes."""
    predicted = plan.predicted
    later, first = _rate(predicted.rate), _rate(predicted.first_rate)
    yield f"predicted: {later} images/s, {first} in the first epoch"
    limits = [f"{_RESOURCES[name]} ({part:.0%})" for name, part in predicted.binding.items()]
    reached = "the target" if plan.limits.target else "the rate of the training step"
    yield f"bound by {' and '.join(limits)}" if limits else f"{reached} is reached"
    yield from _gains(plan)
    yield from _decoding(plan)
    grown = ratio(predicted.stored_bytes, predicted.source_bytes)
    yield f"on disk: {megabytes(predicted.stored_bytes)}, ratio {grown}"


def _gains(plan: Plan) -> Iterator[str]:
    """The gains of switching and mixing."""
    predicted = plan.predicted
    single = max(predicted.single_rates, key=lambda name: predicted.single_rates[name])
    rate = predicted.single_rates[single]
    source = predicted.single_rates.get(SOURCE)
    if source is None:
        yield "the originals cannot be decoded in a pipeline, or are not in --formats"
    elif single != SOURCE:
        yield (
            f"switching from the originals ({_rate(source)} images/s) to {single} alone "
            f"({_rate(rate)}): {rate / source:.2f} times"
        )
    if jpeg := predicted.jpeg:
        yield (
            f"jpeg in place of JPEG files: {jpeg['stored_bytes']:.2f} of their bytes, "
            f"{jpeg['cpu_seconds']:.2f} of the CPU time to decode them"
        )
    if len(plan.formats) > 1:
        gain = predicted.rate / rate
        yield f"mixing beyond {single} alone ({_rate(rate)} images/s): {gain:.2f} times"
        return
    gain = max(0.0, predicted.best_rate / predicted.rate - 1)
    used = {key.partition("@")[0] for key, share in predicted.shares.items() if share > 0}
    others = sorted(used - set(plan.formats))
    what = f"where it can be, else {' or '.join(others)}," if others else "alone"
    aim = "mix no further" if others else "do not mix"
    yield (
        f"{aim}: {plan.formats[0]} {what} gives {_rate(predicted.rate)} images/s, "
        f"and the best mix {gain:.1%} more (--min-gain {plan.min_gain:.1%})"
    )


def _decoding(plan: Plan) -> Iterator[str]:
    """The call of a pipeline that decodes by the plan; nothing if only cores decode."""
    shares = {
        key: share
        for key, share in plan.predicted.shares.items()
        if key.partition("@")[0] in L3_FORMATS
    }
    on_cpu = all(key.endswith(f"@{CPU}") for key in shares)
    if shares and plan.limits.crop:
        device = "" if on_cpu else ', device="mixed"'
        yield "read them by: fn.l3.readers.file(files=paths, lazy=True)"
        yield f"decode L3 by: fn.l3.decode_crop(encoded, crop={tuple(plan.limits.crop)}{device})"
        return
    if on_cpu:
        return
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
    yield f"decode them by: {call}({', '.join(arguments)})"
    if cache and mixes:
        yield (
            "this rate needs `skip_cached_images`, which that call lacks; --gpu-cache 0 predicts "
            "its rate"
        )
    elif cache:
        reader = "fn.readers.file(files=paths, skip_cached_images=True)"
        yield f"read them by: {reader}, or another reader with that argument"


def _rate(number: float) -> str:
    """Images a second, for people."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.1f}"
