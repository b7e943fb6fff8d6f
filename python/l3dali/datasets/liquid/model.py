"""What a mix of formats and places costs, and the linear programme that finds the fastest one.

Knows costs and limits; nothing of files and of plans.

The unknowns are the share of each image that is stored in a format and decoded in a place, and the
seconds `e` an image takes. They minimize `e`, where for each resource of the host

    sum over shares of (what an image takes of it) <= e * (what the host gives a second)

and bytes that are stored or kept fit into the space for them. What one more unit of a resource
would save, the dual value of its row, is its price.
"""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from l3dali.datasets.liquid.profile import (
    CACHE,
    CPU,
    DEFAULT_BATCH,
    FORMATS,
    L3_FORMATS,
    MIXED,
    PLACES,
    SOURCE,
    Linear,
    cost_key,
)
from l3dali.errors import UsageError, needs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import numpy.typing as npt

    from l3dali.datasets.liquid.profile import Host, Training

    Array = npt.NDArray[np.float64]
    Amounts = dict[
        str, Array
    ]  # what each image (row) takes in each column, by the names of AMOUNTS

# Resources that an epoch takes by the second.
CORES, DISK, NETWORK, UPLOAD, GPU, STEP = "cores", "disk", "network", "upload", "gpu", "step"
SWITCH, FILE_SYSTEM = "switch", "file_system"  # that GPUs, and nodes, share
# Those that are full or not.
SPACE, GPU_CACHE = "space", "gpu_cache"

MARGIN = 0.05  # by which a rate that can be reached is exceeded
_CLOSE = 1e-6
_BISECTIONS = 14
_TURN_ROUNDS = 3
_LARGEST_BATCH = 65536
_LEAST_SECONDS = 1e-18  # of an image; 1e18 is the largest number in files
_PROBE = 2.0**20  # bytes or pixels, at which lines are read off


@dataclass(frozen=True)
class Group:
    """The costs of a group of images, as in `Fits`, with all that choices need.

    Attributes:
        images: how many of the data set.
        raw_bytes: of a pixel.
        sizes: by format, bytes as stored, from bytes and pixels of the source.
        cpu_seconds: by `format@place`, from bytes as stored and pixels.
        gpu_seconds: likewise.
        encode_seconds: by format, of converting, from bytes and pixels of the source.
    """

    images: int
    raw_bytes: float
    sizes: dict[str, Linear]
    cpu_seconds: dict[str, Linear]
    gpu_seconds: dict[str, Linear] = field(default_factory=dict)
    encode_seconds: dict[str, Linear] = field(default_factory=dict)


@dataclass(frozen=True)
class Prices:
    """What a unit of each amount is worth, beside the others.

    Attributes:
        cpu_seconds: to read, decode and hand over.
        read_bytes: from disk or network, each epoch.
        upload_bytes: to the GPU, each epoch.
        gpu_seconds: to decode.
        stored_bytes: on disk.
        cached_bytes: in GPU memory.
        encode_seconds: of CPU time, once.
    """

    cpu_seconds: float = 0.0
    read_bytes: float = 0.0
    upload_bytes: float = 0.0
    gpu_seconds: float = 0.0
    stored_bytes: float = 0.0
    cached_bytes: float = 0.0
    encode_seconds: float = 0.0

    def cost(self, amounts: Amounts) -> Array:
        """The price of each image in each column."""
        total: Array = np.zeros_like(amounts["stored_bytes"])
        for name, amount in amounts.items():
            if price := getattr(self, name):
                total += price * amount
        return total


AMOUNTS = tuple(each.name for each in fields(Prices))


@dataclass(frozen=True)
class Images:
    """Images by numbers: the same length each.

    Attributes:
        groups: the number of the group of each.
        source_bytes: its size.
        pixels: width times height.
        weights: how many images of the data set each stands for.
    """

    groups: npt.NDArray[np.intp]
    source_bytes: Array
    pixels: Array
    weights: Array

    @classmethod
    def of(cls, rows: Sequence[tuple[int, float, float, float]]) -> Images:
        """Those of these groups, bytes, pixels and weights."""
        table = np.array(rows, np.float64).reshape(-1, 4).T
        return cls(table[0].astype(np.intp), *table[1:])

    def __getitem__(self, rows: slice | npt.NDArray[np.intp]) -> Images:
        """Some of them."""
        return Images(*(getattr(self, each.name)[rows] for each in fields(self)))


@dataclass(frozen=True)
class Costs:
    """The amounts of images by columns.

    Attributes:
        columns: format and place.
        weights: of the images; 1 together.
        images: how many they stand for.
        is_known: whether an image (row) can be of a column.
        later: amounts of each epoch but the first.
        first: of the first, in which nothing is cached yet.
    """

    columns: list[tuple[str, str]]
    weights: Array
    images: float
    is_known: npt.NDArray[np.bool_]
    later: Amounts
    first: Amounts

    def mean(self, amounts: Amounts, name: str, shares: Array) -> float:
        """How much of an amount an image takes on average, with these shares of the columns."""
        return float(self.weights @ (amounts[name] * shares).sum(axis=1))


@dataclass(frozen=True)
class Limits:
    """What a plan has to keep to.

    Attributes:
        host: what it gives each second.
        training: the step, if it is known.
        target: images a second that suffice; None: as many as can be.
        disk_space: bytes for the stored data set; None: no limit.
        memory: bytes of it that the page cache holds.
        batch: images of a batch, which decoders on cores share out.
    """

    host: Host
    training: Training | None = None
    target: float | None = None
    disk_space: float | None = None
    memory: float = 0.0
    batch: int = DEFAULT_BATCH

    @property
    def floor(self) -> float:
        """Seconds an image that need not be undercut; 0 without a step or a target."""
        rates = [rate for rate in (self.target, self.training_rate) if rate is not None]
        return 1 / min(rates) if rates else 0.0

    @property
    def training_rate(self) -> float | None:
        """Images a second of the training step when it never waits."""
        return None if self.training is None else self.training.samples_per_second


@dataclass(frozen=True)
class Solution:
    """The best mix that was found.

    Attributes:
        seconds: that an image takes in each epoch but the first, of the data set as a whole.
        first_seconds: in the first.
        shares: of each image (row) in each column.
        prices: from which the choice of an image follows.
        binding: by resource, how much of the time it decides, 0 to 1; together 1 if the rate is as
            high as it can be.
        turn_seconds: CPU seconds an image for which cores wait while decoders take turns; the
            seconds have them.
    """

    seconds: float
    first_seconds: float
    shares: Array
    prices: Prices
    binding: dict[str, float]
    turn_seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Images a second."""
        return 1 / self.seconds


def hit_share(memory: float, stored: float) -> float:
    """The reads that a cache of recently used files serves, of so many bytes for stored ones.

    Each epoch reads all files in a new order, so that a file is still there if few others were
    read between: r + (1 - r) ln(1 - r).
    """
    part = memory / stored if memory < stored else 1.0
    return 1.0 if part >= 1 else part + (1 - part) * math.log1p(-part)


def make_costs(
    groups: Sequence[Group], images: Images, formats: Collection[str], *, has_cache: bool = False
) -> Costs:
    """The amounts that images take, by the fits of their groups.

    Args:
        groups: that `images.groups` numbers; other numbers are of groups without any costs.
        images: what is known of them.
        formats: that may be chosen.
        has_cache: there is GPU memory for encoded images.
    """
    columns = [
        (stored_as, place)
        for stored_as in FORMATS
        for place in PLACES
        if stored_as in formats
        and (has_cache or place != CACHE)
        and any(cost_key(stored_as, place) in _priced_places(group) for group in groups)
    ]
    shape = len(images.weights), len(columns)
    is_known = np.zeros(shape, np.bool_)
    later, first = ({name: np.zeros(shape) for name in AMOUNTS} for _ in range(2))
    for number, group in enumerate(groups):
        rows = np.flatnonzero(images.groups == number)
        size, pixels = images.source_bytes[rows], images.pixels[rows]
        priced = _priced_places(group)
        for column, (stored_as, place) in enumerate(columns):
            if cost_key(stored_as, place) not in priced or not len(rows):
                continue
            is_known[rows, column] = True
            one = _amounts(group, stored_as, place, size, pixels)
            new = _amounts(group, stored_as, MIXED, size, pixels) if place == CACHE else one
            for name in AMOUNTS:
                later[name][rows, column] = one[name]
                first[name][rows, column] = new[name]
    total = float(images.weights.sum())
    return Costs(columns, images.weights / total, total, is_known, later, first)


def _priced_places(group: Group) -> set[str]:
    """Keys of formats and places whose costs are known; the cache keeps what the GPU decodes."""
    cpu = {
        key
        for key in group.cpu_seconds
        if key.endswith(f"@{CPU}") and key.partition("@")[0] in group.sizes
    }
    decoded = {key.partition("@")[0] for key in group.gpu_seconds if key.endswith(f"@{MIXED}")}
    return cpu | {
        cost_key(name, place)
        for name in decoded & group.sizes.keys()
        for place in (MIXED, CACHE)
        if place == MIXED or name != SOURCE
    }


def _amounts(group: Group, stored_as: str, place: str, source_bytes: Array, area: Array) -> Amounts:
    size = group.sizes[stored_as](source_bytes, area)
    nothing = np.zeros_like(size)

    def seconds(fits: Mapping[str, Linear]) -> Array:
        keys = [cost_key(stored_as, place)]
        if place == CACHE:
            keys.append(cost_key(stored_as, MIXED))
        key = next((key for key in keys if key in fits), None)
        return nothing if key is None else fits[key](size, area)

    encode = group.encode_seconds.get(stored_as)
    return {
        "cpu_seconds": seconds(group.cpu_seconds),
        "read_bytes": nothing if place == CACHE else size,
        "upload_bytes": {CPU: group.raw_bytes * area, MIXED: size, CACHE: nothing}[place],
        "gpu_seconds": nothing if place == CPU else seconds(group.gpu_seconds),
        "stored_bytes": size,
        "cached_bytes": size if place == CACHE else nothing,
        "encode_seconds": nothing if encode is None else encode(source_bytes, area),
    }


def price_lines(group: Group, prices: Prices, *, has_cache: bool) -> dict[str, list[Linear]]:
    """By format, what an image of a group is worth in each place, from its source.

    The same sums as those of `Prices.cost` over `make_costs`, which are lines in bytes and pixels.
    """
    lines: dict[str, list[Linear]] = {}
    known = _priced_places(group)
    for stored_as in FORMATS:
        for place in PLACES:
            if cost_key(stored_as, place) in known and (has_cache or place != CACHE):
                at = [
                    {
                        name: float(amount[0])
                        for name, amount in _amounts(
                            group, stored_as, place, np.array([size]), np.array([area])
                        ).items()
                    }
                    for size, area in ((0.0, 0.0), (_PROBE, 0.0), (0.0, _PROBE))
                ]
                worth = [sum(getattr(prices, n) * each for n, each in one.items()) for one in at]
                line = Linear(worth[0], *((each - worth[0]) / _PROBE for each in worth[1:]))
                lines.setdefault(stored_as, []).append(line)
    return lines


@dataclass(frozen=True)
class _Row:
    """A resource: of which amount images take, and what the host gives a second, or in all."""

    name: str
    amount: str
    capacity: float
    spent: float = 0.0  # of the capacity, by an image, whatever the mix
    factor: float = 1.0


def turn_seconds(parts: Sequence[tuple[float, float]], batch: int, cores: float) -> float:
    """CPU seconds an image for which cores wait because decoders take turns.

    DALI's CPU operators run one after the other, and each is done with its last image. One with k
    images on n cores takes as long as ceil(k / n) of them: n ceil(k / n) - k more images could be
    decoded meanwhile. How many of a batch are of which operator is as if drawn by lot. What one
    operator with all of the batch would lose is not counted: `Host.efficiency` has it.

    Args:
        parts: for each decoder, its share of the images and the CPU seconds of one of these.
        batch: images that the decoders share.
        cores: that decode.
    """
    count = max(1, round(cores))

    def lost(share: float) -> float:
        images = np.arange(batch + 1)
        free = -images % count
        if share >= 1:
            return float(free[-1])
        logs = [
            math.lgamma(batch + 1) - math.lgamma(k + 1) - math.lgamma(batch - k + 1)
            for k in images.tolist()
        ]
        chances = np.exp(logs + images * math.log(share) + (batch - images) * math.log1p(-share))
        return float(chances @ free)

    used = [(share, seconds) for share, seconds in parts if share > 0]
    if len(used) < 2:
        return 0.0
    one = sum(share * seconds for share, seconds in used) * lost(1.0)
    return max(0.0, sum(seconds * lost(share) for share, seconds in used) - one) / batch


def _turns(costs: Costs, limits: Limits, shares: Array) -> float:
    """`turn_seconds` of a mix: L3 has one decoder, all other formats the other one."""
    parts = []
    for are_l3 in (True, False):
        columns = [
            number
            for number, (stored_as, place) in enumerate(costs.columns)
            if place == CPU and (stored_as in L3_FORMATS) == are_l3
        ]
        mine = np.zeros_like(shares)
        mine[:, columns] = shares[:, columns]
        share = float(costs.weights @ mine.sum(axis=1))
        taken = costs.mean(costs.later, "cpu_seconds", mine)
        if share > _CLOSE:
            parts.append((min(share, 1.0), taken / share))
    return turn_seconds(parts, limits.batch, limits.host.cores / limits.host.gpus)


def _rate_rows(limits: Limits, costs: Costs, turns: float = 0.0) -> list[_Row]:
    """What all nodes together give. GPUs take the same number of images each."""
    host = limits.host
    gpus = host.nodes * host.gpus
    capacity = host.cores * host.efficiency * host.nodes
    rows = [_Row(CORES, "cpu_seconds", capacity, turns / capacity)]
    for name, amount, count in (
        (DISK, "read_bytes", host.nodes),
        (NETWORK, "read_bytes", host.nodes),
        (FILE_SYSTEM, "read_bytes", 1),
        (UPLOAD, "upload_bytes", gpus),
        (SWITCH, "upload_bytes", gpus),
    ):
        capacity = getattr(host, name)
        if capacity is not None and not math.isinf(capacity):
            rows.append(_Row(name, amount, capacity * count))
    if costs.later["gpu_seconds"].any():
        rows.append(_Row(GPU, "gpu_seconds", gpus))
        training = limits.training
        if training is not None and training.gpu_share < 1:
            spent = 1 / training.samples_per_second
            rows.append(_Row(STEP, "gpu_seconds", gpus, spent, 1 - training.gpu_share))
    return rows


def _space_rows(limits: Limits, costs: Costs) -> list[_Row]:
    """Capacities, shared out among the images."""
    rows = []
    if limits.disk_space is not None:
        rows.append(_Row(SPACE, "stored_bytes", limits.disk_space / costs.images))
    if limits.host.gpu_cache and costs.later["cached_bytes"].any():
        # Each GPU keeps its own part of the data set.
        cache = limits.host.gpu_cache * limits.host.gpus * limits.host.nodes
        rows.append(_Row(GPU_CACHE, "cached_bytes", cache / costs.images))
    return rows


def check_limits(limits: Limits) -> None:
    """Refuses numbers that no host has.

    Raises:
        UsageError: one is not above 0, or no number.
    """
    host = limits.host
    numbers = {
        "cores": host.cores,
        "efficiency": host.efficiency,
        "disk bandwidth": host.disk,
        "network bandwidth": host.network,
        "upload bandwidth": host.upload,
        "bandwidth of a PCIe switch": host.switch,
        "bandwidth of the file system": host.file_system,
        "number of GPUs": host.gpus,
        "number of nodes": host.nodes,
        "target rate": limits.target,
        "training rate": limits.training_rate,
        "disk space": limits.disk_space,
        "batch": limits.batch,
    }
    for name, number in numbers.items():
        if number is not None and (math.isnan(number) or number <= 0):
            raise UsageError(f"the {name} is {number:g}; a number above 0 is needed")
    if limits.batch > _LARGEST_BATCH:
        raise UsageError(f"batches of {limits.batch}; up to {_LARGEST_BATCH} can be planned for")
    for name, number in (("cores", host.cores), ("target rate", limits.target)):
        if number is not None and not number <= 1e9:
            raise UsageError(f"the {name} is {number:g}; no host has so many")


def solve(costs: Costs, limits: Limits, formats: Collection[str] | None = None) -> Solution:
    """The mix that takes the least time, or that reaches the step or target and takes least.

    If the rate that is asked for can be reached, it is exceeded by `MARGIN` where that can be, and
    then bytes on disk are minimized, then CPU seconds of converting, then those of decoding:
    bytes are paid for as long as the data set is kept, converting once, cores are there anyway.

    Args:
        costs: of the images.
        limits: of the host.
        formats: to choose from; images that can be of none of these may be of any. None: all.

    Raises:
        UsageError: scipy is missing, the bytes do not fit into the space for them, or images take
            no time.
    """
    check_limits(limits)
    formats = FORMATS if formats is None else formats
    best = _solve_with_memory(costs, limits, narrowed(costs, formats))
    if best.turn_seconds:
        # One decoder alone takes no turns. The programme does not know that it might save them.
        for mine in (set(formats) & set(L3_FORMATS), set(formats) - set(L3_FORMATS)):
            if not mine:
                continue
            with contextlib.suppress(UsageError):  # too large for the space
                single = _solve_with_memory(costs, limits, narrowed(costs, mine))
                best = min(best, single, key=lambda solution: solution.seconds)
    if min(best.seconds, best.first_seconds) < _LEAST_SECONDS:
        raise UsageError("by this profile and host an image takes no time: nothing can be planned")
    return best


def _solve_with_memory(costs: Costs, limits: Limits, allowed: npt.NDArray[np.bool_]) -> Solution:
    if not limits.memory or limits.host.disk is None:
        return _solve(costs, limits, allowed, 1.0)
    # The more bytes a mix has, the fewer of its reads the page cache serves: the disk seems
    # slower. Where what a mix was found for and what it is agree is the best one.
    high = float(costs.weights @ np.where(allowed, costs.later["stored_bytes"], 0).max(axis=1))
    best = _solve(costs, limits, allowed, _missed(limits, costs, high))

    def agrees(stored: float) -> bool:
        nonlocal best
        solution = _solve(costs, limits, allowed, _missed(limits, costs, stored))
        if costs.mean(costs.later, "stored_bytes", solution.shares) > stored:
            return False  # its reads are served less than was thought
        if solution.seconds <= best.seconds:
            best = solution
        return True

    least(0.0, high, _BISECTIONS, agrees)
    return best


def least(low: float, high: float, rounds: int, suffices: Callable[[float], bool]) -> float:
    """About the least number that suffices, if `high` does, found by halving so many times."""
    for _ in range(rounds):
        middle = (low + high) / 2
        if suffices(middle):
            high = middle
        else:
            low = middle
    return high


def solve_with(
    costs: Costs,
    limits: Limits,
    gives: Mapping[str, float],
    formats: Collection[str] | None = None,
) -> Solution:
    """What the best mix would be if the host gave so much of some resources."""
    changed: dict[str, Any] = dict(gives)
    return solve(costs, replace(limits, host=replace(limits.host, **changed)), formats)


def narrowed(costs: Costs, formats: Collection[str]) -> npt.NDArray[np.bool_]:
    """Which image (row) may be of which column: of `formats`, or of any if it can be of none."""
    chosen = np.array([stored_as in formats for stored_as, _ in costs.columns], np.bool_)
    allowed = costs.is_known & chosen
    allowed[~allowed.any(axis=1)] = costs.is_known[~allowed.any(axis=1)]
    return allowed


def _missed(limits: Limits, costs: Costs, stored: float) -> float:
    """The part of reads that the page cache does not serve, with so many bytes an image."""
    return 1 - hit_share(limits.memory, stored * costs.images)


def _solve(costs: Costs, limits: Limits, allowed: npt.NDArray[np.bool_], missed: float) -> Solution:
    host = limits.host
    if host.disk is not None and missed != 1.0:
        disk = math.inf if missed <= 0 else host.disk / missed
        limits = replace(limits, host=replace(host, disk=disk))
    turns = 0.0
    for _ in range(_TURN_ROUNDS):
        rows = _rate_rows(limits, costs, turns)
        programme = _Programme(costs, allowed, rows, _space_rows(limits, costs))
        shares, seconds, prices, binding = programme.fastest()
        found = _turns(costs, limits, shares)
        if found <= turns * (1 + _CLOSE):
            break
        turns = found
    floor = limits.floor
    if seconds <= floor * (1 + _CLOSE):
        seconds = max(seconds, floor / (1 + MARGIN))
        shares, prices = programme.cheapest(seconds)
        used = programme.seconds(shares, costs.later)
        seconds, binding = max(floor, *used.values()), {}
    first = programme.seconds(shares, costs.first)
    if host.disk is not None:  # nothing is in memory yet
        first[DISK] = costs.mean(costs.first, "read_bytes", shares) / (host.disk * host.nodes)
    training = limits.training_rate
    least = 1 / training if training else 0.0
    return Solution(
        max(seconds, least),
        max(least, seconds, *first.values()),
        shares,
        prices,
        binding,
        turns,
    )


class _Programme:
    """One linear programme: variables are shares of images in columns, and the seconds.

    An image counts as 1 on average, and times are in `unit`, what an image takes on average: what
    the solver sees is near 1, as its tolerances expect.
    """

    def __init__(
        self,
        costs: Costs,
        allowed: npt.NDArray[np.bool_],
        rates: Sequence[_Row],
        spaces: Sequence[_Row],
    ) -> None:
        self._costs = costs
        self._allowed = allowed
        self._images, self._columns = np.nonzero(allowed)
        self._count = len(costs.weights)
        self._weights = costs.weights[self._images] * self._count
        seconds = sum(self._coefficients(row, 1.0).sum() for row in rates)
        self._unit = float(seconds) / len(self._images)
        if not self._unit > 0:
            raise UsageError("the profile says that decoding takes nothing: there is no limit")
        self._rates = rates
        self._rows = [*((row, self._unit) for row in rates), *((row, 1.0) for row in spaces)]
        self._table = [
            np.append(self._coefficients(row, unit), -1.0 if row in rates else 0.0)
            for row, unit in self._rows
        ]
        self._bounds = [
            -row.spent / unit * self._count if row in rates else float(self._count)
            for row, unit in self._rows
        ]

    def _coefficients(self, row: _Row, unit: float) -> Array:
        amounts: Array = self._costs.later[row.amount][self._images, self._columns]
        return self._weights * amounts * row.factor / (row.capacity * unit)

    def fastest(self) -> tuple[Array, float, Prices, dict[str, float]]:
        """Shares, seconds an image, prices, and how much each row decides."""
        objective = np.zeros(len(self._images) + 1)
        objective[-1] = 1.0
        found, duals = self._run(objective, self._table, self._bounds)
        seconds = float(found.x[-1]) / self._count * self._unit
        binding = {row.name: float(dual) for row, dual in zip(self._rates, duals, strict=False)}
        return self._shares(found.x[:-1]), seconds, self._prices(self._rows, duals), binding

    def cheapest(self, seconds: float) -> tuple[Array, Prices]:
        """Of the shares that take at most so long, those with least bytes, converting, decoding."""
        rows = list(self._rows)
        limit = np.zeros(len(self._images) + 1)
        limit[-1] = 1.0
        table = [limit, *self._table]
        bounds = [seconds / self._unit * self._count * (1 + _CLOSE), *self._bounds]
        prices = Prices()
        shares = np.zeros_like(self._costs.weights)
        for amount in ("stored_bytes", "encode_seconds", "cpu_seconds"):
            mean = float(self._costs.later[amount][self._images, self._columns].mean())
            if not mean:
                continue
            row = _Row(amount, amount, mean)
            objective = np.append(self._coefficients(row, 1.0), 0.0)
            found, duals = self._run(objective, table, bounds)
            shares = self._shares(found.x[:-1])
            # What was saved stays saved. What is minimized is worth 1.
            rows.append((row, 1.0))
            table.append(objective)
            bounds.append(float(found.fun) * (1 + _CLOSE))
            prices = self._prices(rows, np.append(duals[1:], 1.0))
        return shares, prices

    def _run(
        self, objective: Array, table: Sequence[Array], bounds: Sequence[float]
    ) -> tuple[Any, Array]:
        """What the solver has found, and the dual value of each row."""
        try:
            from scipy.optimize import linprog
            from scipy.sparse import csr_matrix
        except ImportError:
            raise needs("scipy", "a plan") from None
        width = len(objective)
        places = np.arange(len(self._images))
        ones = csr_matrix(
            (np.ones(len(places)), (self._images, places)), shape=(self._count, width)
        )
        found = linprog(
            objective,
            A_ub=csr_matrix(np.stack(table)),
            b_ub=np.array(bounds),
            A_eq=ones,
            b_eq=np.ones(self._count),
            method="highs",
        )
        if found.status == 2:
            raise UsageError(self._too_small())
        if found.status != 0:
            raise UsageError(f"the linear programme has no solution: {found.message}")
        return found, np.maximum(-found.ineqlin.marginals, 0.0)

    def _too_small(self) -> str:
        stored = np.where(self._allowed, self._costs.later["stored_bytes"], np.inf).min(axis=1)
        least = float(self._costs.weights @ stored) * self._costs.images
        return f"the space on disk is too small: the smallest files take {least / 1e9:.3f} GB"

    def _shares(self, values: Array) -> Array:
        shares = np.zeros(self._allowed.shape)
        shares[self._images, self._columns] = np.clip(values, 0.0, 1.0)
        shares /= shares.sum(axis=1, keepdims=True)
        return shares

    def _prices(self, rows: Sequence[tuple[_Row, float]], duals: Array) -> Prices:
        """Of a unit of each amount, from dual values of rows and the units that they are in."""
        prices: dict[str, float] = defaultdict(float)
        for (row, unit), dual in zip(rows, duals.tolist(), strict=True):
            if dual and row.capacity:
                prices[row.amount] += dual * row.factor / (row.capacity * unit)
        return Prices(**prices)

    def seconds(self, shares: Array, amounts: Amounts) -> dict[str, float]:
        """By resource, the seconds that an image takes of it."""
        return {
            row.name: row.spent
            + row.factor * self._costs.mean(amounts, row.amount, shares) / row.capacity
            for row in self._rates
        }
