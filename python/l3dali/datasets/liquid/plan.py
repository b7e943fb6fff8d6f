"""Which format each image of a data set is stored in: found from a profile, kept in a file."""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_right
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import accumulate, combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from l3dali import __version__
from l3dali.codec import DEFAULT_CODING
from l3dali.datasets.convert.choosing import SOURCE
from l3dali.datasets.liquid.groups import group_of, has_numbers
from l3dali.datasets.liquid.model import (
    CORES,
    DISK,
    FILE_SYSTEM,
    NETWORK,
    UPLOAD,
    Group,
    Images,
    Limits,
    Prices,
    Solution,
    least,
    make_costs,
    narrowed,
    price_lines,
    solve,
    solve_with,
)
from l3dali.datasets.liquid.profile import (
    DEFAULT_BATCH,
    FORMATS,
    Host,
    Linear,
    Training,
    cost_key,
    fields_of,
    parse_as,
    read_as,
)
from l3dali.errors import UsageError
from l3dali.images.reading import READ_SUFFIXES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy.typing as npt

    from l3dali.datasets.convert.choosing import Seen
    from l3dali.datasets.liquid.model import Array, Costs
    from l3dali.datasets.liquid.profile import Profile, Sample
    from l3dali.images.headers import Header

FORMAT = "l3-plan"
VERSION = 1
DEFAULT_MIN_GAIN = 0.03

_TIE = 1e-5  # relative, between prices of formats that are worth the same
_CHUNK = 2**16  # images that are chosen for at a time
_FEW = 16  # images that are chosen for one by one: numpy's calls take longer than so many
_CLOSE = 1e-6
_MOST = 1e4  # times what the host has: more is not looked for
_BISECTIONS = 12  # of that factor: to a quarter of a percent
_STEPS = {CORES: 1.0, DISK: 100e6, NETWORK: 100e6, FILE_SYSTEM: 1e9, UPLOAD: 1e9}


@dataclass(frozen=True)
class Tie:
    """Formats that are worth the same for images of a group, and how many are to be of each.

    Attributes:
        group: of the images.
        formats: in the order of `FORMATS`.
        shares: of the images; 1 together.
    """

    group: str
    formats: list[str]
    shares: list[float]


@dataclass(frozen=True)
class Predicted:
    """What the model says of a plan, and of what might be done instead.

    Attributes:
        rate: images a second in each epoch but the first.
        first_rate: in the first, with nothing in caches.
        best_rate: of the best mix of all formats that were asked about.
        single_rates: by format, if all images that can be are of it. `source` are the originals.
        binding: by resource, how much of the time it decides; nothing if the rate that was asked
            for is reached.
        more: by resource, images a second that a step more of it adds.
        shares: by `format@place`, of the images.
        stored_bytes: of the data set as planned.
        source_bytes: of the originals.
        encode_seconds: of CPU time that converting takes; None if the profile does not say.
        turn_seconds: CPU seconds an image for which cores wait while two decoders take turns.
    """

    rate: float
    first_rate: float
    best_rate: float
    single_rates: dict[str, float]
    binding: dict[str, float]
    more: dict[str, float]
    shares: dict[str, float]
    stored_bytes: float
    source_bytes: float
    encode_seconds: float | None = None
    turn_seconds: float = 0.0

    @property
    def best_single(self) -> str:
        """The format that is best if all images are of one."""
        return max(self.single_rates, key=lambda name: self.single_rates[name])

    def format_shares(self) -> dict[str, float]:
        """By format, the share of the images."""
        shares: dict[str, float] = defaultdict(float)
        for key, share in self.shares.items():
            shares[key.partition("@")[0]] += share
        return dict(shares)


@dataclass(frozen=True)
class Plan:
    """Chooses the format of each image of a data set, those too that the profile did not see.

    Attributes:
        sources: the arguments that named the data set.
        fingerprint: of the profile's data set.
        images: how many it has.
        formats: those of the mix.
        candidates: those that were asked about, for images that can be of none of `formats`.
        groups: by group, costs.
        prices: of what images take.
        ties: how images are shared out among formats that are worth the same.
        host: that the plan is for.
        predicted: what is to be expected.
        training: the step, if it is known.
        target: images a second that were asked for.
        disk_space: bytes that there are for the data set.
        memory: bytes of it that the page cache holds.
        batch: images of a batch.
        min_gain: what another format must gain to be mixed in.
        labels: names of label maps, as the profile has them.
        made: version, and of which profile.
    """

    sources: list[str]
    fingerprint: str
    images: int
    formats: list[str]
    candidates: list[str]
    groups: dict[str, Group]
    prices: Prices
    ties: list[Tie]
    host: Host
    predicted: Predicted
    training: Training | None = None
    target: float | None = None
    disk_space: float | None = None
    memory: float = 0.0
    batch: int = DEFAULT_BATCH
    min_gain: float = DEFAULT_MIN_GAIN
    labels: list[str] = field(default_factory=list)
    made: dict[str, str] = field(default_factory=dict)

    @cached_property
    def identity(self) -> str:
        """A short hash of all that decides the choices."""
        decides = [
            self.formats,
            self.candidates,
            {name: asdict(group) for name, group in self.groups.items()},
            asdict(self.prices),
            [asdict(tie) for tie in self.ties],
            bool(self.host.gpu_cache),
        ]
        text = json.dumps(decides, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def group_of(self, data: bytes, header: Header, *, labels: bool) -> str:
        """As the function of this name."""
        return group_of(data, header, labels=labels)

    def choose(self, images: Sequence[Seen]) -> list[str]:
        """The format that each image is to be stored in: one of `FORMATS`.

        The same image gets the same format on any machine. One of a group that the profile did not
        see stays as it is.
        """
        if len(images) <= _FEW:
            chosen = [self._choose_one(image) for image in images]
        else:
            numbers = {group: number for number, group in enumerate(self.groups)}
            rows = [
                (numbers.get(each.group, -1), each.source_bytes, each.pixels, 1.0)
                for each in images
            ]
            found = self.choose_all([image.name for image in images], Images.of(rows))
            chosen = found.tolist()
        # Other decoders change the numbers that label maps mean.
        return [
            DEFAULT_CODING
            if number == FORMATS.index(SOURCE) and has_numbers(image.group)
            else FORMATS[number]
            for number, image in zip(chosen, images, strict=True)
        ]

    def choose_all(self, names: Sequence[str], images: Images) -> npt.NDArray[np.intp]:
        """The best format of each image by its costs alone: numbers of `FORMATS`.

        Args:
            names: of the images.
            images: `groups` are numbers of `Plan.groups`; -1 is one that is not known.
        """
        parts = [
            self._choose_some(names[start : start + _CHUNK], images[start : start + _CHUNK])
            for start in range(0, len(names), _CHUNK)
        ]
        return np.concatenate(parts) if parts else np.zeros(0, np.intp)

    @cached_property
    def _price_lines(self) -> dict[str, dict[int, list[Linear]]]:
        """By group and number of `FORMATS`, the price of an image in each place.

        From bytes and pixels of the source. Formats are those of the mix, or if an image can be of
        none of these, all candidates.
        """
        lines: dict[str, dict[int, list[Linear]]] = {}
        for name, group in self.groups.items():
            known = price_lines(group, self.prices, has_cache=bool(self.host.gpu_cache))
            usual = self.formats if known.keys() & set(self.formats) else self.candidates
            lines[name] = {FORMATS.index(f): known[f] for f in FORMATS if f in known and f in usual}
        return lines

    @cached_property
    def _tied(self) -> dict[tuple[str, frozenset[int]], Tie]:
        return {(t.group, frozenset(map(FORMATS.index, t.formats))): t for t in self.ties}

    def _choose_one(self, image: Seen) -> int:
        """As `_choose_some`, for one, in the same arithmetic."""
        size, pixels = float(image.source_bytes), float(image.pixels)
        lines = self._price_lines.get(image.group)
        if not lines:
            return FORMATS.index(SOURCE)
        cost = {n: min(line(size, pixels) for line in each) for n, each in lines.items()}
        best = min(cost.values())
        tied = frozenset(n for n, each in cost.items() if each <= best * (1 + _TIE))
        tie = self._tied.get((image.group, tied))
        if tie is not None:
            return FORMATS.index(_by_lot(tie, image.name))
        return next(n for n, each in cost.items() if each == best)

    def _choose_some(self, names: Sequence[str], images: Images) -> npt.NDArray[np.intp]:
        cost = np.full((len(names), len(FORMATS)), np.inf)
        for number, lines in enumerate(self._price_lines.values()):
            rows = np.flatnonzero(images.groups == number)
            size, pixels = images.source_bytes[rows], images.pixels[rows]
            for column, places in lines.items():
                for line in places:
                    cost[rows, column] = np.minimum(cost[rows, column], line(size, pixels))
        best = cost.min(axis=1)
        chosen: npt.NDArray[np.intp] = cost.argmin(axis=1)
        chosen[np.isinf(best)] = FORMATS.index(SOURCE)
        tied = cost <= (best * (1 + _TIE))[:, None]
        tied[np.isinf(best)] = False
        for tie in self.ties:
            pattern = np.isin(np.arange(len(FORMATS)), [FORMATS.index(f) for f in tie.formats])
            number = list(self.groups).index(tie.group)
            rows = (images.groups == number) & (tied == pattern).all(axis=1)
            for row in rows.nonzero()[0].tolist():
                chosen[row] = FORMATS.index(_by_lot(tie, names[row]))
        return chosen

    def to_json(self) -> str:
        """The text of a plan file."""
        data = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return json.dumps(data, indent=1, allow_nan=False)


def _by_lot(tie: Tie, name: str) -> str:
    """The format of a tie that an image of this name always gets."""
    ends = list(accumulate(tie.shares))
    return tie.formats[min(bisect_right(ends, _lot(name)), len(ends) - 1)]


def _lot(name: str) -> float:
    """A number from 0 to 1 that a name always has."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2**64


def price_formats(costs: Costs, prices: Prices, formats: Collection[str]) -> Array:
    """The price of each image (row) in each of `FORMATS`, decoded where that is cheapest."""
    cost = np.where(narrowed(costs, formats), prices.cost(costs.later), np.inf)
    best = np.full((len(cost), len(FORMATS)), np.inf)
    for column, (stored_as, _) in enumerate(costs.columns):
        number = FORMATS.index(stored_as)
        best[:, number] = np.minimum(best[:, number], cost[:, column])
    return best


# Reading and writing plans.


def read_plan(path: Path | str) -> Plan:
    """Reads a plan file, and checks all of it.

    Raises:
        UsageError: it cannot be read, is damaged, or of another version; says what is wrong where.
    """
    return read_as(parse_plan, path)


def parse_plan(text: bytes | str) -> Plan:
    """The plan that `Plan.to_json` has written.

    Raises:
        UsageError: as `read_plan`.
    """
    plan: Plan = parse_as(Plan, fields_of(text, "plan", VERSION), "")
    _check_plan(plan)
    return plan


def _check_plan(plan: Plan) -> None:
    if not plan.groups or not plan.formats:
        raise UsageError("it has no groups of images, or no formats")
    named = [("formats", plan.formats), ("candidates", plan.candidates)]
    for i, tie in enumerate(plan.ties):
        named.append((f"ties[{i}].formats", tie.formats))
        if tie.group not in plan.groups:
            raise UsageError(f"ties[{i}].group is {tie.group!r}, which is not among the groups")
        if len(tie.shares) != len(tie.formats) or abs(sum(tie.shares) - 1) > 1e-3:
            raise UsageError(f"ties[{i}].shares are not a share for each format, 1 together")
    for where, formats in named:
        for name in formats:
            if name not in FORMATS:
                raise UsageError(f"{where} has the unknown format {name!r}")
    for name in plan.formats:
        if name not in plan.candidates:
            raise UsageError(f"formats has {name!r}, which is not among the candidates")


# Finding a plan.


@dataclass(frozen=True)
class Model:
    """A profile as the linear programme takes it.

    Attributes:
        groups: by group, costs.
        costs: of the sample.
        names: the group of each image of the sample.
        candidates: the formats that may be chosen.
        source_bytes: of the originals, as the sample has it.
        encode_known: the profile says what converting takes.
    """

    groups: dict[str, Group]
    costs: Costs
    names: list[str]
    candidates: list[str]
    source_bytes: float
    encode_known: bool


def make_model(profile: Profile, formats: Collection[str], host: Host) -> Model:
    """The costs of the profile's sample, in some formats.

    The fits are scaled so that they give what the sample as a whole has taken.

    Raises:
        UsageError: no image of the sample can be of any of the formats.
    """
    members: dict[str, list[Sample]] = defaultdict(list)
    for sample in profile.samples:
        members[sample.group].append(sample)
    groups = {name: _scaled_group(profile, name, each) for name, each in sorted(members.items())}
    numbers = {name: number for number, name in enumerate(groups)}
    has_cache = bool(host.gpu_cache)

    def costs_of(samples: Sequence[Sample]) -> Costs:
        rows = [(numbers[s.group], s.source_bytes, s.pixels, s.weight) for s in samples]
        return make_costs(list(groups.values()), Images.of(rows), formats, has_cache=has_cache)

    usable = np.any(costs_of(profile.samples).is_known, axis=1)
    samples = [sample for sample, can in zip(profile.samples, usable.tolist(), strict=True) if can]
    if not samples:
        raise UsageError(f"no image of the profile can be decoded from {', '.join(formats)}")
    costs = costs_of(samples)
    known = {stored_as for stored_as, _ in costs.columns}
    encode_known = all(
        stored_as in groups[sample.group].encode_seconds or stored_as == SOURCE
        for sample in samples
        for stored_as in known & groups[sample.group].sizes.keys()
    )
    return Model(
        groups,
        costs,
        [sample.group for sample in samples],
        [name for name in FORMATS if name in known],
        sum(sample.weight * sample.source_bytes for sample in samples),
        encode_known,
    )


def _scaled_group(profile: Profile, name: str, samples: Sequence[Sample]) -> Group:
    fits = profile.groups[name]
    weights = [sample.weight for sample in samples]

    def scaled(fit: Linear, measured: Sequence[float | None], expected: Sequence[float]) -> Linear:
        pairs = [
            (weight * value, weight * guess)
            for weight, value, guess in zip(weights, measured, expected, strict=True)
            if value is not None
        ]
        values, guesses = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
        factor = values / guesses if values and guesses else 1.0
        return Linear(factor * fit.base, factor * fit.per_byte, factor * fit.per_pixel, fit.error)

    sizes = {
        stored_as: scaled(
            fit,
            [sample.sizes.get(stored_as) for sample in samples],
            [fit(float(sample.source_bytes), float(sample.pixels)) for sample in samples],
        )
        for stored_as, fit in fits.sizes.items()
    }

    def seconds(of: Mapping[str, Linear], measured: str) -> dict[str, Linear]:
        return {
            key: scaled(
                fit,
                [getattr(sample, measured).get(key) for sample in samples],
                [
                    fit(
                        sizes[stored_as](float(sample.source_bytes), float(sample.pixels)),
                        float(sample.pixels),
                    )
                    for sample in samples
                ],
            )
            for key, fit in of.items()
            if (stored_as := key.partition("@")[0]) in sizes
        }

    return Group(
        fits.images,
        sum(w * s.raw_bytes for w, s in zip(weights, samples, strict=True))
        / sum(w * s.pixels for w, s in zip(weights, samples, strict=True)),
        sizes,
        seconds(fits.cpu_seconds, "cpu_seconds"),
        seconds(fits.gpu_seconds, "gpu_seconds"),
        fits.encode_seconds,
    )


def find_plan(
    profile: Profile,
    limits: Limits,
    formats: Collection[str],
    min_gain: float = DEFAULT_MIN_GAIN,
) -> Plan:
    """The fewest formats that come within `min_gain` of the best mix, and how to choose among them.

    Of as many formats, the originals alone come first; then the faster; among those that reach the
    rate asked for, the mix with fewest bytes.

    Args:
        profile: of the data set.
        limits: of the host; the profile's own, or others.
        formats: that may be chosen.
        min_gain: how much faster, as a part, one format more must make it.

    Raises:
        UsageError: nothing reaches the target, the space is too small, a limit is absurd.
    """
    model = make_model(profile, formats, limits.host)
    costs = model.costs
    best = solve(costs, limits)
    if limits.target is not None and best.seconds > (1 + _CLOSE) / limits.target:
        raise UsageError(_unreachable(costs, limits, best))
    found: dict[tuple[str, ...], Solution] = {}
    for count in range(1, len(model.candidates) + 1):
        for mix in combinations(model.candidates, count):
            try:
                found[mix] = solve(costs, limits, mix)
            except UsageError:  # too large for the space
                continue
    mix = _fewest(found, costs, limits, best, min_gain)
    solution = found[mix]
    predicted = _predict(model, limits, mix, solution, best, found)
    used = [name for name in mix if predicted.format_shares().get(name, 0) > 0]
    return Plan(
        sources=profile.sources,
        fingerprint=profile.fingerprint,
        images=profile.images,
        formats=used or list(mix),
        candidates=model.candidates,
        groups=model.groups,
        prices=solution.prices,
        ties=_find_ties(model, solution, mix),
        host=limits.host,
        predicted=predicted,
        training=limits.training,
        target=limits.target,
        disk_space=limits.disk_space,
        memory=limits.memory,
        batch=limits.batch,
        min_gain=min_gain,
        labels=profile.labels,
        made={"version": __version__, "profile": profile.made.get("date", "")},
    )


def rate_of(profile: Profile, limits: Limits, formats: Collection[str]) -> float:
    """Images a second of the best mix of some formats, as `find_plan` predicts them."""
    return solve(make_model(profile, formats, limits.host).costs, limits).rate


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
    stored = {mix: costs.mean(costs.later, "stored_bytes", found[mix].shares) for mix in enough}
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
    model: Model,
    limits: Limits,
    mix: tuple[str, ...],
    solution: Solution,
    best: Solution,
    found: Mapping[tuple[str, ...], Solution],
) -> Predicted:
    costs = model.costs
    shares: dict[str, float] = {}
    for (stored_as, place), column in zip(costs.columns, solution.shares.T, strict=True):
        share = float(costs.weights @ column)
        if share > _CLOSE:
            shares[cost_key(stored_as, place)] = share
    stored, encode = (
        costs.mean(costs.later, name, solution.shares) * costs.images
        for name in ("stored_bytes", "encode_seconds")
    )
    return Predicted(
        rate=solution.rate,
        first_rate=1 / solution.first_seconds,
        best_rate=best.rate,
        single_rates={mix[0]: each.rate for mix, each in found.items() if len(mix) == 1},
        binding={name: dual for name, dual in solution.binding.items() if dual > 1e-3},
        more=gains_of_more(costs, limits, mix, solution),
        shares=shares,
        stored_bytes=stored,
        source_bytes=model.source_bytes,
        encode_seconds=encode if model.encode_known else None,
        turn_seconds=solution.turn_seconds,
    )


def _find_ties(model: Model, solution: Solution, mix: Collection[str]) -> list[Tie]:
    """Formats that cost the same at the prices, and the shares of images that go to each."""
    costs = model.costs
    cost = price_formats(costs, solution.prices, mix)
    tied = cost <= (cost.min(axis=1) * (1 + _TIE))[:, None]
    sums: dict[tuple[str, tuple[int, ...]], Array] = {}
    for row in np.flatnonzero(tied.sum(axis=1) > 1):
        numbers = tuple(int(number) for number in np.flatnonzero(tied[row]))
        shares = np.zeros(len(FORMATS))
        for (stored_as, _), share in zip(costs.columns, solution.shares[row], strict=True):
            shares[FORMATS.index(stored_as)] += share
        key = model.names[row], numbers
        sums[key] = sums.get(key, 0.0) + costs.weights[row] * shares[list(numbers)]
    return [
        Tie(group, [FORMATS[number] for number in numbers], (each / each.sum()).tolist())
        for (group, numbers), each in sums.items()
        if each.sum() > 0
    ]


# What more of something would do.


def limiting(limits: Limits) -> dict[str, float]:
    """What the host gives a second of each resource that more could be had of."""
    had = {name: getattr(limits.host, name) for name in _STEPS}
    return {name: each for name, each in had.items() if each is not None and math.isfinite(each)}


def gains_of_more(
    costs: Costs, limits: Limits, formats: Collection[str], solution: Solution
) -> dict[str, float]:
    """By resource, the images a second that a step of it adds, planned anew with these formats.

    A step is one core, 100 MB/s of disk or network, or 1 GB/s of upload on each node, or 1 GB/s of
    the file system that they share.
    """
    gains = {}
    for name, had in limiting(limits).items():
        more = solve_with(costs, limits, {name: had + _STEPS[name]}, formats)
        gains[name] = max(0.0, more.rate - solution.rate)
    return gains


def _unreachable(costs: Costs, limits: Limits, best: Solution) -> str:
    """Says that the target cannot be reached, and how much of one resource, or of all, would do."""
    target = limits.target or 0.0
    text = f"no mix reaches {target:.0f} images/s; the best gives {best.rate:.0f}"
    training = limits.training_rate
    if training is not None and training < target:
        return f"{text}, and the training step takes no more than {training:.0f}"
    remedies = []
    for name, had in limiting(limits).items():

        def reaches(power: float, name: str = name, had: float = had) -> bool:
            found = solve_with(costs, limits, {name: had * math.exp(power)})
            return found.seconds <= (1 + _CLOSE) / target

        if reaches(math.log(_MOST)):
            factor = math.exp(least(0.0, math.log(_MOST), _BISECTIONS, reaches))
            remedies.append(amount_text(name, had * factor))
    if remedies:
        return f"{text}. What would do: {', or '.join(remedies)}"
    all_of_it = ", ".join(
        amount_text(name, had * target / best.rate) for name, had in limiting(limits).items()
    )
    return f"{text}. More of one alone does not help; together this would do: {all_of_it}"


def amount_text(name: str, amount: float) -> str:
    """So much of a resource, for people."""
    if name == CORES:
        return f"{amount:.1f} cores"
    return f"{amount / 1e6:.0f} MB/s of {name.replace('_', ' ')}"


# Listings.


def read_listing(path: Path) -> tuple[list[str], Array]:
    """Names and sizes of a listing: a line for each file, its size, a blank, its name.

    Raises:
        UsageError: it cannot be read, or a line is not so.
    """
    names: list[str] = []
    sizes: list[int] = []
    try:
        with path.open(encoding="utf-8", errors="surrogateescape") as file:
            for number, line in enumerate(file, 1):
                size, _, name = line.rstrip("\n").partition(" ")
                if not size.isdecimal() or not name:
                    raise UsageError(f"{path}: line {number} is not a size, a blank and a name")
                names.append(name)
                if len(size) > 18:
                    raise UsageError(f"{path}: line {number}: no file has {size} bytes")
                sizes.append(int(size))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    return names, np.array(sizes, np.float64)


def images_of_listing(
    profile: Profile, plan: Plan, names: Sequence[str], sizes: Array
) -> tuple[list[str], Images]:
    """What is likely of files that nobody has looked into; those alone that may be images.

    A file is taken to be like the image of the sample that has the same suffix and is nearest in
    bytes: of its group and as many pixels.
    """
    by_suffix: dict[str, list[Sample]] = defaultdict(list)
    for sample in profile.samples:
        by_suffix[_suffix(sample.name)].append(sample)
    numbers = {name: number for number, name in enumerate(plan.groups)}
    rows: dict[str, list[int]] = defaultdict(list)
    for row, name in enumerate(names):
        suffix = _suffix(name)
        if suffix in by_suffix or suffix in READ_SUFFIXES:
            rows[suffix].append(row)
    groups = np.full(len(names), -1, np.intp)
    pixels = np.ones(len(names))
    for suffix, listed in rows.items():
        if suffix not in by_suffix:
            continue
        samples = sorted(by_suffix[suffix], key=lambda sample: sample.source_bytes)
        known = np.array([sample.source_bytes for sample in samples], np.float64)
        size = sizes[listed]
        nearest = np.searchsorted((known[1:] + known[:-1]) / 2, size)
        groups[listed] = np.array([numbers[s.group] for s in samples], np.intp)[nearest]
        pixels[listed] = np.array([s.pixels for s in samples], np.float64)[nearest]
    chosen = np.array(sorted(row for listed in rows.values() for row in listed), np.intp)
    images = Images(groups, sizes, pixels, np.ones(len(names)))[chosen]
    return [names[row] for row in chosen], images


def _suffix(name: str) -> str:
    stem, dot, suffix = name.rpartition("/")[2].rpartition(".")
    return (dot + suffix).lower() if stem else ""


def expected_bytes(plan: Plan, images: Images, chosen: npt.NDArray[np.intp]) -> dict[str, float]:
    """By format, the bytes that images come to if they are stored as `chosen`."""
    totals: dict[str, float] = {}
    for number, group in enumerate(plan.groups.values()):
        for stored_as, fit in group.sizes.items():
            rows = (images.groups == number) & (chosen == FORMATS.index(stored_as))
            size = float(fit(images.source_bytes[rows], images.pixels[rows]).sum())
            totals[stored_as] = totals.get(stored_as, 0.0) + size
    unknown = images.groups < 0
    totals[SOURCE] = totals.get(SOURCE, 0.0) + float(images.source_bytes[unknown].sum())
    return {name: size for name, size in totals.items() if size}
