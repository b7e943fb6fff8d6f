"""Plans, which choose the format of each image of a data set: made from a profile, and stored."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections import defaultdict
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import accumulate, combinations
from typing import TYPE_CHECKING

import numpy as np

from l3dali import __version__
from l3dali.codec import DEFAULT_CODING
from l3dali.datasets.convert.images import SOURCE, has_numbers
from l3dali.datasets.liquid.model import (
    Limits,
    Prices,
    Solution,
    add_lines,
    amounts_of,
    costs_of,
    solve,
)
from l3dali.datasets.liquid.profile import (
    CPU,
    DEFAULT_MIN_GAIN,
    FORMATS,
    Fits,
    Linear,
    cost_key,
    read_file,
    to_text,
)
from l3dali.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from l3dali.datasets.convert.images import Seen
    from l3dali.datasets.liquid.model import Array, Costs
    from l3dali.datasets.liquid.profile import Profile

_TIE = 1e-5  # relative difference of prices that count as equal
_CLOSE = 1e-6
_LEAST_PART = 1e-3  # of the time; smaller parts are not reported


@dataclass(frozen=True)
class Tie:
    """Formats of equal price for images of a group, and the share of each."""

    group: str  # of the images
    formats: list[str]  # in the order of `FORMATS`
    shares: list[float]  # of the images; 1 together


@dataclass(frozen=True)
class Predicted:
    """The model's prediction for a plan, and for alternatives."""

    rate: float  # images a second in each epoch but the first
    first_rate: float  # in the first, with nothing in caches
    best_rate: float  # of the best mix of all formats that were asked about
    single_rates: dict[str, float]  # by format, of all images alike
    binding: dict[str, float]  # as in `Solution`; empty if the target is reached
    shares: dict[str, float]  # by `format@place`, of the images
    stored_bytes: float  # of the data set as planned
    source_bytes: float  # of the originals
    # by amount, of jpeg over JPEG files, on CPUs
    jpeg: dict[str, float] = field(default_factory=dict)

    def format_shares(self) -> dict[str, float]:
        """By format, the share of the images."""
        shares: dict[str, float] = defaultdict(float)
        for key, share in self.shares.items():
            shares[key.partition("@")[0]] += share
        return dict(shares)


@dataclass(frozen=True)
class Plan:
    """Chooses the format of each image of a data set, also of those not in the profile."""

    sources: list[str]  # the arguments that named the data set
    images: int  # how many it has
    formats: list[str]  # those of the mix
    candidates: list[str]  # for images that can be of none of `formats`
    groups: dict[str, Fits]  # by group, costs
    prices: Prices  # of what images take
    ties: list[Tie]  # how images are shared out among formats that are worth the same
    limits: Limits  # the host and the rate that the plan is for
    predicted: Predicted  # what is to be expected
    min_gain: float = DEFAULT_MIN_GAIN  # what another format must gain to be mixed in
    labels: list[str] = field(default_factory=list)  # names of label maps, as the profile has them
    made: dict[str, str] = field(default_factory=dict)  # version, and of which profile

    @cached_property
    def identity(self) -> str:
        """A short hash of all fields that decide the choices."""
        decides = [
            self.formats,
            self.candidates,
            {name: asdict(group) for name, group in self.groups.items()},
            asdict(self.prices),
            [asdict(tie) for tie in self.ties],
            bool(self.limits.host.gpu_cache),
        ]
        text = json.dumps(decides, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @cached_property
    def price_lines(self) -> dict[str, dict[str, list[Linear]]]:
        """By group and format, the price of an image in each place, from its bytes and pixels.

        Formats are those of the mix, or all candidates if an image can be of none of these.
        """
        found: dict[str, dict[str, list[Linear]]] = {}
        for name, fits in self.groups.items():
            lines: dict[str, list[Linear]] = {}
            known = amounts_of(fits, has_cache=bool(self.limits.host.gpu_cache))
            for (stored_as, _), amounts in known.items():
                priced = ((getattr(self.prices, key), line) for key, line in amounts.items())
                lines.setdefault(stored_as, []).append(add_lines(*priced))
            usual = self.formats if lines.keys() & set(self.formats) else self.candidates
            found[name] = {key: each for key, each in lines.items() if key in usual}
        return found

    @cached_property
    def _tied(self) -> dict[tuple[str, frozenset[str]], Tie]:
        return {(tie.group, frozenset(tie.formats)): tie for tie in self.ties}

    def choose(self, image: Seen) -> str:
        """The format to store an image in: one of `FORMATS`, the same on any machine.

        An image of a group that is not in the profile keeps its format.
        """
        chosen = SOURCE
        if lines := self.price_lines.get(image.group):
            tied = cheapest(lines, image.source_bytes, image.pixels)
            chosen = min(tied, key=lambda name: tied[name])
            tie = self._tied.get((image.group, frozenset(tied)))
            if tie is not None:
                ends = list(accumulate(tie.shares))
                chosen = tie.formats[min(bisect_right(ends, _lot(image.name)), len(ends) - 1)]
        # Other decoders change the numbers of such label maps.
        return DEFAULT_CODING if chosen == SOURCE and has_numbers(image.group) else chosen

    def to_json(self) -> str:
        """The text of a plan file."""
        return to_text(self, "plan")


def cheapest(lines: Mapping[str, Sequence[Linear]], size: float, pixels: float) -> dict[str, float]:
    """The cheapest formats, of equal price, in the order of `FORMATS`."""
    cost = {name: min(line(size, pixels) for line in each) for name, each in lines.items()}
    best = min(cost.values())
    return {name: each for name, each in cost.items() if each <= best * (1 + _TIE)}


def _lot(name: str) -> float:
    """A number from 0 to 1 that depends on the name alone."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2**64


def read_plan(path: Path | str) -> Plan:
    """Reads a plan file, and checks it.

    Raises:
        UsageError: it cannot be read, is damaged, or has another version; names the field.
    """
    return read_file(Plan, path, "plan", _check_plan)


def _check_plan(plan: Plan) -> None:
    if not plan.groups or not plan.formats:
        raise UsageError("the plan has no groups of images, or no formats")
    for name in [*plan.formats, *plan.candidates, *(f for tie in plan.ties for f in tie.formats)]:
        if name not in FORMATS:
            raise UsageError(f"the plan has the unknown format {name!r}")
    if any(len(tie.shares) != len(tie.formats) or not tie.shares for tie in plan.ties):
        raise UsageError("ties: each format needs a share")


# Finding a plan.


def find_plan(
    profile: Profile,
    limits: Limits,
    formats: Collection[str],
    min_gain: float = DEFAULT_MIN_GAIN,
) -> Plan:
    """A plan with the fewest formats whose rate is within `min_gain` of the best mix.

    Among mixes of as many formats the originals alone come first, then the fastest mix; or, of
    those that reach the target, the mix with the fewest bytes.

    Raises:
        UsageError: nothing reaches the target.
    """
    costs = costs_of(profile, limits, formats)
    counts = range(1, len(costs.formats) + 1)
    mixes = [mix for count in counts for mix in combinations(costs.formats, count)]
    found = {mix: solve(costs, limits, mix) for mix in mixes}
    best = min(found.values(), key=lambda solution: solution.seconds)
    if limits.target is not None and best.seconds > (1 + _CLOSE) / limits.target:
        reason = f"no mix reaches {limits.target:.0f} images/s; the best gives {best.rate:.0f}"
        by = " and ".join(name for name, part in best.binding.items() if part > _LEAST_PART)
        raise UsageError(f"{reason}, bound by {by or 'the training step'}")
    mix = _fewest(found, costs, limits, best, min_gain)
    solution = found[mix]
    predicted = _predict(costs, solution, best, found)
    used = [name for name in mix if predicted.format_shares().get(name, 0) > 0]
    plan = Plan(
        sources=profile.sources,
        images=profile.images,
        formats=used or list(mix),
        candidates=costs.formats,
        groups=costs.groups,
        prices=solution.prices,
        ties=[],
        limits=limits,
        predicted=predicted,
        min_gain=min_gain,
        labels=profile.labels,
        made={"version": __version__, "profile": profile.made.get("date", "")},
    )
    return replace(plan, ties=_find_ties(plan, costs, solution.shares))


def _fewest(
    found: Mapping[tuple[str, ...], Solution],
    costs: Costs,
    limits: Limits,
    best: Solution,
    min_gain: float,
) -> tuple[str, ...]:
    slack = 0.0 if limits.target is not None else min_gain
    enough = [
        mix
        for mix, solution in found.items()
        if solution.seconds <= best.seconds * (1 + slack) * (1 + _CLOSE)
    ]
    stored = {mix: costs.mean("stored_bytes", found[mix].shares) for mix in enough}
    is_reached = best.seconds <= limits.floor * (1 + _CLOSE)
    if is_reached and (SOURCE,) not in enough:  # then a format more may save bytes
        least = min(stored.values()) * (1 + min_gain) * (1 + _CLOSE)
        enough = [mix for mix in enough if stored[mix] <= least]
    count = min(len(mix) for mix in enough)

    def order(mix: tuple[str, ...]) -> tuple[float, ...]:
        seconds = found[mix].seconds
        first = stored[mix] if is_reached else seconds
        return float(mix != (SOURCE,)), first, seconds, stored[mix]

    return min((mix for mix in enough if len(mix) == count), key=order)


def _predict(
    costs: Costs,
    solution: Solution,
    best: Solution,
    found: Mapping[tuple[str, ...], Solution],
) -> Predicted:
    shares: dict[str, float] = {}
    for (stored_as, place), column in zip(costs.columns, solution.shares.T, strict=True):
        share = float(costs.weights @ column)
        if share > _CLOSE:
            shares[cost_key(stored_as, place)] = share
    return Predicted(
        rate=solution.rate,
        first_rate=1 / solution.first_seconds,
        best_rate=best.rate,
        single_rates={mix[0]: each.rate for mix, each in found.items() if len(mix) == 1},
        binding={name: dual for name, dual in solution.binding.items() if dual > _LEAST_PART},
        shares=shares,
        stored_bytes=costs.mean("stored_bytes", solution.shares) * costs.images,
        source_bytes=sum(sample.weight * sample.source_bytes for sample in costs.samples),
        jpeg=_jpeg_over_source(costs),
    )


def _jpeg_over_source(costs: Costs) -> dict[str, float]:
    """What the images take as jpeg, of what their JPEG files take; empty without such images."""
    columns = [(name, CPU) for name in ("jpeg", SOURCE)]
    if not set(columns) <= set(costs.columns):
        return {}
    jpeg, source = map(costs.columns.index, columns)
    weights = costs.weights * costs.is_known[:, jpeg] * costs.is_known[:, source]
    return {
        name: float(weights @ amounts[:, jpeg] / (weights @ amounts[:, source]))
        for name in ("stored_bytes", "cpu_seconds")
        for amounts in [costs.amounts[name]]
        if weights @ amounts[:, source]
    }


def _find_ties(plan: Plan, costs: Costs, shares: Array) -> list[Tie]:
    """Formats of equal price, and the share of images that each gets."""
    sums: dict[tuple[str, tuple[str, ...]], Array] = {}
    stored_as = np.array([name for name, _ in costs.columns])
    for sample, weight, row in zip(costs.samples, costs.weights, shares, strict=True):
        lines = plan.price_lines[sample.group]
        tied = tuple(cheapest(lines, sample.source_bytes, sample.pixels))
        if len(tied) > 1:
            key = sample.group, tied
            each = np.array([row[stored_as == name].sum() for name in tied])
            sums[key] = sums.get(key, 0.0) + weight * each
    return [
        Tie(group, list(tied), (each / each.sum()).tolist())
        for (group, tied), each in sums.items()
        if each.sum() > 0
    ]
