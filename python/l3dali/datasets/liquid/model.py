"""The linear programme that finds the fastest mix of formats and places.

The unknowns are the share of each image that is stored in a format and decoded in a place, and the
seconds `e` an image takes. They minimize `e`, where for each resource of the host

    sum over shares of (amount that an image takes) <= e * (amount that the host has a second)

and cached bytes fit into the cache. The dual value of a row, the seconds that one more unit of a
resource would save, is its price.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from l3dali.datasets.liquid.profile import (
    CACHE,
    CPU,
    CROP,
    DEFAULT_BATCH,
    FORMATS,
    L3_FORMATS,
    MIXED,
    PLACES,
    SOURCE,
    Fits,
    Host,
    Linear,
    Training,
    by_group,
    bytes_of_a_pixel,
    cost_key,
)
from l3dali.errors import UsageError, needs

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy.typing as npt

    from l3dali.datasets.liquid.profile import Profile, Sample

    Array = npt.NDArray[np.float64]
    Mask = npt.NDArray[np.bool_]

MARGIN = 0.05  # by which plans exceed a target that can be reached
_CLOSE = 1e-6
_TURN_ROUNDS = 3
_NO_TIME = "no plan: images take no time by this profile and host"
_SECOND_AIM = 1e-3  # what CPU time counts beside bytes, where a target is reached


@dataclass(frozen=True)
class Prices:
    """The price of a unit of each amount, relative to the others."""

    cpu_seconds: float = 0.0  # to read, decode and hand over
    read_bytes: float = 0.0  # from disk or network, each epoch
    upload_bytes: float = 0.0  # to the GPU, each epoch
    gpu_seconds: float = 0.0  # to decode
    stored_bytes: float = 0.0  # on disk
    cached_bytes: float = 0.0  # in GPU memory


def amounts_of(fits: Fits, *, has_cache: bool) -> dict[tuple[str, str], dict[str, Linear]]:
    """The amounts of an image by format and place whose costs are known, named as in `Prices`.

    They are lines from bytes and pixels of its source. The cache holds what the GPU decodes.
    """
    found = {}
    for stored_as in (name for name in FORMATS if name in fits.sizes):
        places = [CPU] if cost_key(stored_as, CPU) in fits.cpu_seconds else []
        if cost_key(stored_as, MIXED) in fits.gpu_seconds:
            places += [MIXED, CACHE] if has_cache and stored_as != SOURCE else [MIXED]
        for place in places:
            found[stored_as, place] = _amounts_in(fits, stored_as, place)
    return found


def _amounts_in(fits: Fits, stored_as: str, place: str) -> dict[str, Linear]:
    size, part = fits.sizes[stored_as], fits.parts.get(stored_as, 1.0)
    read = add_lines((part, size))

    def seconds(of: dict[str, Linear]) -> Linear:
        fit = of.get(cost_key(stored_as, place)) or of.get(cost_key(stored_as, MIXED), Linear())
        return add_lines((fit.per_byte, read), (part, replace(fit, per_byte=0.0)))

    amounts = {"cpu_seconds": seconds(fits.cpu_seconds), "stored_bytes": size}
    if place == CPU:
        raw = Linear(per_pixel=fits.raw_bytes * fits.parts.get(CROP, 1.0))
        return amounts | {"read_bytes": read, "upload_bytes": raw}
    amounts["gpu_seconds"] = seconds(fits.gpu_seconds)
    if place == CACHE:
        return amounts | {"cached_bytes": size}
    return amounts | {"read_bytes": read, "upload_bytes": read}


def parts_of(samples: Sequence[Sample], crop: Sequence[int]) -> dict[str, float]:
    """The part of an image that a random crop (height, width) decodes: its tiles, by format.

    Raises:
        UsageError: the profile has no sizes of tiles.
    """

    def touched(size: int, length: int, tile: int) -> float:
        starts = np.arange(max(1, size - length + 1))
        begins = starts // tile * tile
        ends = -(-np.minimum(starts + length, size) // tile) * tile
        return float((np.minimum(ends, size) - begins).mean() / size)

    sums: dict[str, float] = defaultdict(float)
    for each in samples:
        if CROP not in each.tiles:
            raise UsageError("--crop: the profile has no tile sizes; run l3 profile again")
        for name, tile in (each.tiles | {CROP: [1, 1]}).items():
            axes = map(touched, each.tiles[CROP], crop, tile)
            sums[name] += each.weight * each.pixels * math.prod(axes)
    pixels = sum(each.weight * each.pixels for each in samples)
    return {name: part / pixels for name, part in sums.items()}


def add_lines(*terms: tuple[float, Linear]) -> Linear:
    """The sum of some lines, each times a factor."""
    return Linear(
        sum(factor * line.base for factor, line in terms),
        sum(factor * line.per_byte for factor, line in terms),
        sum(factor * line.per_pixel for factor, line in terms),
    )


@dataclass(frozen=True)
class Costs:
    """A profile for the linear programme: the amounts of images (rows) by columns."""

    groups: dict[str, Fits]  # with bytes of a pixel and parts for crops
    samples: list[Sample]  # the images that can be of any of the columns
    columns: list[tuple[str, str]]  # format and place
    weights: Array  # of the images; 1 together
    images: float  # how many they stand for
    is_known: Mask  # whether an image can be of a column
    amounts: dict[str, Array]  # by the names of `Prices`, of each epoch but the first

    @property
    def formats(self) -> list[str]:
        """Formats that may be chosen."""
        return list(dict.fromkeys(stored_as for stored_as, _ in self.columns))

    def mean(self, name: str, shares: Array) -> float:
        """The mean amount of an image with these shares of the columns."""
        return float(self.weights @ (self.amounts[name] * shares).sum(axis=1))

    def in_first_epoch(self, shares: Array) -> Array:
        """The shares while the cache is empty: the GPU decodes images that will be cached."""
        shares = shares.copy()
        for column, (stored_as, place) in enumerate(self.columns):
            if place == CACHE:
                shares[:, self.columns.index((stored_as, MIXED))] += shares[:, column]
                shares[:, column] = 0.0
        return shares

    def narrowed(self, formats: Collection[str]) -> Mask:
        """Allowed columns of each image: of `formats`, or any if the image can be of none."""
        chosen = np.array([stored_as in formats for stored_as, _ in self.columns], np.bool_)
        allowed = self.is_known & chosen
        allowed[~allowed.any(axis=1)] = self.is_known[~allowed.any(axis=1)]
        return allowed


@dataclass(frozen=True)
class Limits:
    """The limits of a plan."""

    host: Host  # what it gives each second
    training: Training | None = None  # the step, if it is known
    target: float | None = None  # images a second that suffice; None: as many as possible
    batch: int = DEFAULT_BATCH  # images of a batch, which decoders on cores share
    crop: list[int] | None = None  # height and width of random crops

    @property
    def floor(self) -> float:
        """Seconds an image that are fast enough; 0 without a step or a target."""
        rates = [rate for rate in (self.target, self.training_rate) if rate is not None]
        return 1 / min(rates) if rates else 0.0

    @property
    def training_rate(self) -> float | None:
        """Images a second of the training step if it never waits."""
        return None if self.training is None else self.training.samples_per_second


def costs_of(profile: Profile, limits: Limits, formats: Collection[str]) -> Costs:
    """The costs of the profile's sample, in some formats.

    Raises:
        UsageError: no image of the sample can be of any of the formats.
    """
    groups = {
        name: replace(
            profile.groups[name],
            raw_bytes=bytes_of_a_pixel(each),
            parts={} if limits.crop is None else parts_of(each, limits.crop),
        )
        for name, each in by_group(profile.samples).items()
    }
    known = {}
    for name, fits in groups.items():
        found = amounts_of(fits, has_cache=bool(limits.host.gpu_cache))
        known[name] = {column: each for column, each in found.items() if column[0] in formats}
    samples = [sample for sample in profile.samples if known[sample.group]]
    if not samples:
        raise UsageError(f"no image of the profile can be decoded from {', '.join(formats)}")
    every = [(stored_as, place) for stored_as in FORMATS for place in PLACES]
    columns = [column for column in every if any(column in each for each in known.values())]
    shape = len(samples), len(columns)
    is_known = np.zeros(shape, np.bool_)
    amounts = {each.name: np.zeros(shape) for each in fields(Prices)}
    for row, sample in enumerate(samples):
        for column, lines in known[sample.group].items():
            place = row, columns.index(column)
            is_known[place] = True
            for amount, line in lines.items():
                amounts[amount][place] = line(sample.source_bytes, sample.pixels)
    weights = np.array([each.weight for each in samples], np.float64)
    total = float(weights.sum())
    return Costs(groups, samples, columns, weights / total, total, is_known, amounts)


@dataclass(frozen=True)
class Solution:
    """The best mix that was found."""

    seconds: float  # that an image takes in each epoch but the first, of the data set as a whole
    first_seconds: float  # in the first
    shares: Array  # of each image (row) in each column
    prices: Prices  # from which the choice of an image follows
    binding: dict[str, float]  # by resource, its part of the time, 0 to 1

    @property
    def rate(self) -> float:
        """Images a second."""
        return 1 / self.seconds


@dataclass(frozen=True)
class _Row:
    """A resource: the amount that images take, and how much the host has a second, or in all."""

    name: str
    amount: str
    capacity: float
    spent: float = 0.0  # of the capacity, by an image, whatever the mix
    is_space: bool = False  # the capacity is that of all time, for an image


def turn_seconds(parts: Sequence[tuple[float, float]], batch: int, cores: float) -> float:
    """CPU seconds an image for which cores wait because decoders take turns.

    DALI's CPU operators run one after the other, and each ends with its last image. An operator
    with k images on n cores takes ceil(k / n) images' time, in which n ceil(k / n) - k more could
    be decoded. The images of a batch are distributed to operators at random. The loss of a single
    operator with all of the batch is not counted: it is part of `Host.efficiency`.

    Args:
        parts: for each decoder, its share of the images and the CPU seconds of one of these.
        batch: images that the decoders share.
        cores: that decode.
    """
    from scipy.special import betaln, xlog1py, xlogy

    count = max(1, round(cores))
    images = np.arange(batch + 1)

    def lost(share: float) -> float:
        logs = xlogy(images, share) + xlog1py(batch - images, -share)
        chances = np.exp(logs - betaln(images + 1, batch - images + 1)) / (batch + 1)
        return float(chances @ (-images % count))  # binomial

    used = [(share, seconds) for share, seconds in parts if share > 0]
    if len(used) < 2:
        return 0.0
    one = sum(share * seconds for share, seconds in used) * lost(1.0)
    return max(0.0, sum(seconds * lost(share) for share, seconds in used) - one) / batch


def _turns(costs: Costs, limits: Limits, shares: Array) -> float:
    """`turn_seconds` of a mix: L3 has one decoder, all other formats the other one."""
    parts = []
    for are_l3 in (True, False):
        mine = shares.copy()
        for column, (stored_as, place) in enumerate(costs.columns):
            if place != CPU or (stored_as in L3_FORMATS) != are_l3:
                mine[:, column] = 0.0
        share = float(costs.weights @ mine.sum(axis=1))
        if share > _CLOSE:
            parts.append((min(share, 1.0), costs.mean("cpu_seconds", mine) / share))
    return turn_seconds(parts, limits.batch, limits.host.cores / limits.host.gpus)


def _rows(limits: Limits, costs: Costs, turns: float) -> list[_Row]:
    """The resources of all nodes together, a second, and their space for an image.

    GPUs share switches, and nodes the file system. Each GPU takes the same number of images, and
    caches its own part of the data set.
    """
    host = limits.host
    gpus = host.nodes * host.gpus
    capacity = host.cores * host.efficiency * host.nodes
    rows = [_Row("cores", "cpu_seconds", capacity, turns / capacity)]
    for name, amount, count in (
        ("disk", "read_bytes", host.nodes),
        ("network", "read_bytes", host.nodes),
        ("file_system", "read_bytes", 1),
        ("upload", "upload_bytes", gpus),
        ("switch", "upload_bytes", gpus),
    ):
        capacity = getattr(host, name)
        if capacity is not None:
            rows.append(_Row(name, amount, capacity * count))
    if costs.amounts["gpu_seconds"].any():
        rows.append(_Row("gpu", "gpu_seconds", gpus))
        if limits.training_rate is not None:
            rows.append(_Row("step", "gpu_seconds", gpus, 1 / limits.training_rate))
    if host.gpu_cache and costs.amounts["cached_bytes"].any():
        space = host.gpu_cache * gpus / costs.images
        rows.append(_Row("gpu_cache", "cached_bytes", space, is_space=True))
    return rows


def solve(costs: Costs, limits: Limits, formats: Collection[str] = FORMATS) -> Solution:
    """The fastest mix, or the cheapest mix that reaches the step or target.

    If the target can be reached, the mix exceeds it by up to `MARGIN`, and minimizes bytes on
    disk, then CPU seconds of decoding. Images that can be of none of the `formats` may be of any.
    A mix of both decoders may be slower than one of them alone, which takes no turns.

    Raises:
        UsageError: scipy is missing, or images take no time.
    """
    allowed = costs.narrowed(formats)
    turns = 0.0
    for _ in range(_TURN_ROUNDS):
        programme = _Programme(costs, allowed, _rows(limits, costs, turns))
        shares, seconds, prices, binding = programme.fastest()
        found = _turns(costs, limits, shares)
        if found <= turns * (1 + _CLOSE):
            break
        turns = found
    floor = limits.floor
    if seconds <= floor * (1 + _CLOSE):
        seconds = max(seconds, floor / (1 + MARGIN))
        shares, prices = programme.cheapest(seconds)
        seconds, binding = max(floor, *programme.seconds(shares).values()), {}
    first = programme.seconds(costs.in_first_epoch(shares))
    least = 1 / limits.training_rate if limits.training_rate else 0.0
    seconds, first_seconds = max(seconds, least), max(least, seconds, *first.values())
    if min(seconds, first_seconds) < 1e-18:
        raise UsageError(_NO_TIME)
    return Solution(seconds, first_seconds, shares, prices, binding)


class _Programme:
    """One linear programme: variables are shares of images in columns, and the seconds.

    Weights are 1 on average, and times are in `unit`, the mean of an image: the solver's
    tolerances expect numbers near 1.
    """

    def __init__(self, costs: Costs, allowed: Mask, rows: Sequence[_Row]) -> None:
        self._costs = costs
        self._allowed = allowed
        self._images = np.nonzero(allowed)[0]  # of each variable but the last
        self._count = len(costs.weights)
        self._rows = rows
        self._is_space = np.array([row.is_space for row in rows])
        table = np.stack([self._taken(row.amount) / row.capacity for row in rows])
        self._unit = float(table[~self._is_space].sum()) / len(self._images)
        if not self._unit > 0:
            raise UsageError(_NO_TIME)
        self._units = np.where(self._is_space, 1.0, self._unit)
        self._table = np.column_stack([table / self._units[:, None], self._is_space - 1.0])
        spent = np.array([row.spent for row in rows]) / self._unit
        self._bounds = self._count * np.where(self._is_space, 1.0, -spent)

    def _taken(self, amount: str) -> Array:
        """The amount of each variable but the last."""
        amounts: Array = self._costs.amounts[amount][self._allowed]
        return self._count * self._costs.weights[self._images] * amounts

    def fastest(self) -> tuple[Array, float, Prices, dict[str, float]]:
        """Shares, seconds an image, prices, and the part of the time that each row decides."""
        shares, most, duals = self._run(np.zeros(len(self._images)), 1.0, math.inf)
        binding = {
            row.name: dual
            for row, dual in zip(self._rows, duals.tolist(), strict=True)
            if not row.is_space
        }
        return shares, most / self._count * self._unit, self._prices(duals, {}), binding

    def cheapest(self, seconds: float) -> tuple[Array, Prices]:
        """Shares of at most so many seconds with the fewest bytes, then the least decoding."""
        worth = {}
        objective = np.zeros(len(self._images))
        for amount, part in (("stored_bytes", 1.0), ("cpu_seconds", _SECOND_AIM)):
            worth[amount] = part / (self._costs.amounts[amount][self._allowed].mean() or 1.0)
            objective += worth[amount] * self._taken(amount)
        most = seconds / self._unit * self._count * (1 + _CLOSE)
        shares, _, duals = self._run(objective, 0.0, most)
        return shares, self._prices(duals, worth)

    def _run(self, objective: Array, of_seconds: float, most: float) -> tuple[Array, float, Array]:
        """The shares and seconds with the least objective, and the dual value of each row.

        Args:
            objective: for each share.
            of_seconds: for the seconds.
            most: seconds, at the most.
        """
        try:
            from scipy.optimize import linprog
            from scipy.sparse import csr_matrix
        except ImportError:
            raise needs("scipy", "a plan") from None
        places = np.arange(len(objective))
        found = linprog(
            [*objective, of_seconds],
            A_ub=csr_matrix(self._table),
            b_ub=self._bounds,
            A_eq=csr_matrix(
                (np.ones(len(places)), (self._images, places)),
                shape=(self._count, len(objective) + 1),
            ),
            b_eq=np.ones(self._count),
            bounds=[*[(0, None)] * len(objective), (0, most)],
            method="highs",
        )
        if found.status != 0:
            raise UsageError(f"the linear programme has no solution: {found.message}")
        shares = np.zeros(self._allowed.shape)
        shares[self._allowed] = np.clip(found.x[:-1], 0.0, 1.0)
        shares /= shares.sum(axis=1, keepdims=True)
        return shares, float(found.x[-1]), np.maximum(-found.ineqlin.marginals, 0.0)

    def _prices(self, duals: Array, worth: dict[str, float]) -> Prices:
        """Prices from the dual values of rows, beside what the objective has."""
        prices = defaultdict(float, worth)
        for row, dual, unit in zip(self._rows, duals.tolist(), self._units, strict=True):
            if dual:
                prices[row.amount] += dual / (row.capacity * unit)
        return Prices(**prices)

    def seconds(self, shares: Array) -> dict[str, float]:
        """By resource, the seconds that an image takes of it."""
        return {
            row.name: row.spent + self._costs.mean(row.amount, shares) / row.capacity
            for row in self._rows
            if not row.is_space
        }
