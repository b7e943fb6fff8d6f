"""The store stage in NumPy: what output/output_plan.h says of plans, and random ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

TYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "f2", "f4", "i8")  # in the order of OutputType
SELECT, SCALE, MIX = range(3)  # PixelOp
FILL, LUMA = 0xFF, 0xFE  # sources that no image has
LUMA_WEIGHTS, LUMA_SCALE = (9797, 19234, 3737), 32768

Samples = NDArray[Any]
Floats = NDArray[np.float32]


@dataclass
class Plan:
    """An OutputPlan and the bytes around it. Strides are those of rows, pixels, channels."""

    window: tuple[int, int, int, int]  # x, y, width, height
    border: tuple[int, int, int, int]  # left, top, right, bottom
    type: str
    op: int
    source: list[int]
    luma_rounding: int = 0
    data_offset: int = 0
    strides: tuple[int, int, int] = (0, 0, 0)
    output_bytes: int = 0
    subtract: Floats = field(default_factory=lambda: np.zeros(4, np.float32))
    multiply: Floats = field(default_factory=lambda: np.ones(4, np.float32))
    range: float = 1.0
    weights: Floats = field(default_factory=lambda: np.zeros((3, 3), np.float32))
    bias: Floats = field(default_factory=lambda: np.zeros(3, np.float32))
    fill: Floats = field(default_factory=lambda: np.zeros(4, np.float32))

    @property
    def channels(self) -> int:
        return len(self.source)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the output, its border included: height, width, channels."""
        left, top, right, bottom = self.border
        return (
            top + self.window[3] + bottom,
            left + self.window[2] + right,
            self.channels,
        )

    def view(self, output: NDArray[np.uint8]) -> Samples:
        """The output as the plan lays it out, border included, as the stored image lies."""
        left, top = self.border[:2]
        first = self.data_offset - top * self.strides[0] - left * self.strides[1]
        if 0 in self.shape:
            return np.empty(self.shape, f"<{self.type}")
        view: Samples = np.ndarray(self.shape, f"<{self.type}", output.data, first, self.strides)
        return view

    def values(self, image: Samples) -> Floats:
        """The window's values in float, before they take the output's type."""
        x, y, width, height = self.window
        stored = image[y : y + height, x : x + width]
        values = np.empty((height, width, self.channels), np.float32)
        for c, source in enumerate(self.source):
            if self.op == MIX:
                sources = [stored[..., i].astype(np.float32) for i in self.source]
                terms = [self.weights[c, i] * samples for i, samples in enumerate(sources)]
                values[..., c] = terms[0] + terms[1] + terms[2] + self.bias[c]
            elif source == FILL:
                values[..., c] = self.fill[c]
            else:
                samples = self._luma(stored) if source == LUMA else stored[..., source]
                values[..., c] = samples
                if self.op == SCALE:
                    centred = values[..., c] - self.subtract[c]
                    values[..., c] = centred * self.multiply[c] * np.float32(self.range)
        return values

    def converted(self, image: Samples) -> Samples:
        """The window's values in the output's type."""
        outputs = convert(self.values(image), self.type)
        limits = None if self.type.startswith("f") else np.iinfo(self.type)
        if limits is None or image.dtype.kind == "f" or image.itemsize < 4 or self.op != SELECT:
            return outputs
        x, y, width, height = self.window  # 32 bits, which floats would round
        stored = image[y : y + height, x : x + width]
        for c, source in enumerate(self.source):
            if source != FILL:
                numbers = self._luma(stored) if source == LUMA else stored[..., source]
                outputs[..., c] = np.clip(numbers.astype(np.int64), limits.min, limits.max)
        return outputs

    def _luma(self, stored: Samples) -> Samples:
        if stored.dtype.kind == "f":
            weights = np.array(LUMA_WEIGHTS, np.float32) / np.float32(LUMA_SCALE)
            red, green, blue = np.moveaxis(stored[..., :3].astype(np.float32) * weights, 2, 0)
            of_floats: Samples = red + green + blue
            return of_floats
        total = stored[..., :3].astype(np.int64) @ np.array(LUMA_WEIGHTS)
        luma: Samples = (total + self.luma_rounding) // LUMA_SCALE
        return luma

    def apply(self, image: Samples, output: NDArray[np.uint8]) -> None:
        """Writes what the plan makes of a decoded image."""
        with np.errstate(over="ignore", invalid="ignore"):
            view = self.view(output)
            view[:] = convert(self.fill[: self.channels], self.type)
            left, top, right, bottom = self.border
            height, width, _ = self.shape
            inside = view[top : height - bottom, left : width - right]
            inside[:] = self.converted(image)


def assert_output(plan: Plan, image: Samples, output: NDArray[np.uint8], gap: int) -> None:
    """All bytes of an output, which held `gap` before, are what the plan makes of the image."""
    expected = np.full(plan.output_bytes, gap, np.uint8)
    plan.apply(image, expected)
    if not np.array_equal(output, expected):
        # NaNs may differ in sign; bytes outside of the output may not differ at all.
        actual = output.copy()
        np.testing.assert_array_equal(plan.view(actual), plan.view(expected), str(plan))
        plan.view(actual)[:] = 0
        plan.view(expected)[:] = 0
        np.testing.assert_array_equal(actual, expected, f"outside of the output: {plan}")


def convert(values: Floats, kind: str) -> Samples:
    """Floats to the output's type: to the nearest, halves away from zero, saturated."""
    if kind.startswith("f"):
        return values.astype(f"<{kind}")
    limits = np.iinfo(kind)
    numbers = np.clip(np.nan_to_num(values.astype(np.float64), nan=0.0), limits.min, limits.max)
    rounded = np.copysign(np.floor(np.abs(numbers) + 0.5), numbers)
    is_top = rounded >= limits.max  # of int64 no float is the greatest number
    whole: Samples = np.where(is_top, 0, rounded).astype(f"<{kind}")
    whole[is_top] = limits.max
    return whole


def rule(stored: str, asked: str, *, labels: bool) -> str:
    """What becomes of samples in another type without `fill_range`, by their types alone.

    The table in docs/operators.md has these words.
    """
    target = np.dtype(asked)
    if np.dtype(stored).kind == "f":
        return "number"
    limits = np.iinfo(stored)
    if target.kind == "f" and limits.bits == 32 and not labels:
        return "number"
    if target.kind == "f":
        most = 2 ** (np.finfo(target).nmant + 1)
        holds = max(-limits.min, limits.max) <= most
    else:
        holds = np.iinfo(target).min <= limits.min and limits.max <= np.iinfo(target).max
    if holds and (labels or target.kind != "f"):
        return "number"
    if labels or limits.bits == 32 or (limits.min < 0 and target.kind != "f"):
        return "error"
    return "scaled"


def becomes(
    image: Samples, asked: str, *, labels: bool, fill_range: bool | None, normalizes: bool = False
) -> Samples | None:
    """What a decoder makes of an image in another type; None if it refuses.

    Args:
        image: the samples as stored.
        asked: NumPy's name of the type.
        labels: whether the samples are label numbers.
        fill_range: as the decoders take it.
        normalizes: whether the decoder takes `mean` and `std`; they are 0 and 1.
    """
    stored = image.dtype.name
    if fill_range is None:
        of_types = rule(stored, asked, labels=labels)
        if of_types == "error":
            return None
        fill_range = of_types == "scaled" and not normalizes
    is_exact = image.itemsize == 4 and {image.dtype.kind, np.dtype(asked).kind} <= {"i", "u"}
    if is_exact and not fill_range:
        limits = np.iinfo(asked)
        wide: Samples = np.clip(image.astype(np.int64), limits.min, limits.max).astype(asked)
        return wide
    values = image.astype(np.float32)
    if fill_range and asked != stored:
        values = values * (white(asked) / white(stored))
    with np.errstate(over="ignore"):
        return convert(values, np.dtype(asked).str[1:])


def white(dtype: str) -> Any:
    """The value of white, a float32."""
    return np.float32(1 if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max)


def lay_out(rng: Generator, plan: Plan) -> None:
    """Chooses strides: the axes in any order and direction, with gaps, at any offset."""
    item = np.dtype(plan.type).itemsize
    order = rng.choice([(0, 1, 2), (2, 0, 1), (1, 0, 2), (2, 1, 0)])
    strides = [0, 0, 0]
    step = item
    for axis in order[::-1]:
        strides[axis] = step
        step = step * max(plan.shape[axis], 1) + item * int(rng.choice([0, 0, 1, 5]))
    first = item * int(rng.integers(0, 5))
    for axis in range(3):
        if rng.random() < 0.4:
            first += strides[axis] * max(plan.shape[axis] - 1, 0)
            strides[axis] = -strides[axis]
    left, top = plan.border[:2]
    plan.data_offset = first + top * strides[0] + left * strides[1]
    plan.strides = (strides[0], strides[1], strides[2])
    plan.output_bytes = step + 8 * item


def lay_out_planes(rng: Generator, plan: Plan) -> None:
    """CHW, rows forwards or backwards; mostly planes have a multiple of eight values."""
    item = np.dtype(plan.type).itemsize
    height, width, channels = plan.shape
    row = width + int(rng.choice([0, 0, 1, 3, 8]))
    plane = max(row * height, 1)
    plane += -plane % 8 if rng.random() < 0.8 else int(rng.integers(0, 8))
    left, top = plan.border[:2]
    mirrored = rng.random() < 0.5
    first = int(rng.choice([0, 0, 4, 8, 1, 3, 5])) + top * row
    first += width - 1 - left if mirrored else left
    plan.strides = (row * item, -item if mirrored else item, plane * item)
    plan.data_offset = first * item
    plan.output_bytes = (plane * channels + 16) * item


def training_plan(rng: Generator, image: Samples) -> Plan:
    """A window of normalized planes, as networks take them."""
    height, width, stored = image.shape
    channels = int(rng.integers(1, 5))
    sources = [*range(stored), *range(stored), *range(stored), FILL]
    plan = Plan(
        window=random_window(rng, width, height),
        border=(0, 0, 0, 0) if rng.random() < 0.7 else (1, 2, 3, 0),
        type=str(rng.choice(["f2", "f2", "f4", "u1", "u2"])),
        op=SCALE,
        source=rng.choice(sources, channels).tolist(),
        subtract=rng.uniform(0, 255, 4).astype(np.float32),
        multiply=rng.uniform(-0.1, 0.1, 4).astype(np.float32),
        range=float(rng.choice([1, 1, 1, np.float32(1 / 255)])),
        fill=np.array([0, 7, -3, 0.1], np.float32),
    )
    lay_out_planes(rng, plan)
    return plan


def random_window(rng: Generator, width: int, height: int) -> tuple[int, int, int, int]:
    """Any window: often the whole image, a pixel, nothing, or at an edge."""

    def span(side: int) -> tuple[int, int]:
        kind = rng.integers(0, 6)
        if kind == 0:
            return 0, side
        if kind == 1:
            return int(rng.integers(0, side)), 1
        begin, end = np.sort(rng.integers(0, side + 1, 2)).tolist()
        if kind == 2:
            begin = 0
        elif kind == 3:
            end = side
        return begin, end - begin

    (x, w), (y, h) = span(width), span(height)
    return x, y, w, h


def wide_plan(rng: Generator, image: Samples) -> Plan:
    """Any plan for some of an image's channels, which are more than four."""
    height, width, stored = image.shape
    count = stored if rng.random() < 0.4 else int(rng.integers(1, stored + 1))
    chosen = rng.permutation(stored)[:count]
    if rng.random() < 0.4:
        chosen.sort()
    plan = Plan(
        window=random_window(rng, width, height),
        border=(0, 0, 0, 0) if rng.random() < 0.7 else (1, 2, 3, 0),
        type=str(rng.choice([*TYPES, image.dtype.str[1:], image.dtype.str[1:]])),
        op=int(rng.choice([SELECT, SCALE])),
        source=chosen.tolist(),
        subtract=rng.uniform(0, 255, count).astype(np.float32),
        multiply=rng.uniform(-2, 2, count).astype(np.float32),
        fill=rng.uniform(0, 99, count).astype(np.float32),
    )
    (lay_out_planes if rng.random() < 0.1 else lay_out)(rng, plan)
    return plan


def _numbers(rng: Generator, shape: tuple[int, ...]) -> Floats:
    """Plausible and extreme factors."""
    extremes = [0, -0.0, 1, -1, 0.5, 1 / 255, 127.5, 1e-5, 3e38, -3e38, np.inf, 6e-8, 65520]
    plain = rng.uniform(-300, 300, shape) * rng.choice([1, 0.01], shape)
    return np.where(rng.random(shape) < 0.3, rng.choice(extremes, shape), plain).astype(np.float32)


def random_plan(rng: Generator, image: Samples) -> Plan:
    """Any plan that output/output_plan.h allows for the image."""
    height, width, stored = image.shape
    op = int(rng.integers(0, 3))
    channels = 3 if op == MIX else int(rng.integers(1, 5))
    sources = list(range(stored))
    if op != MIX:
        sources += [FILL, LUMA] if stored >= 3 else [FILL]
    plan = Plan(
        window=random_window(rng, width, height),
        border=(0, 0, 0, 0),
        type=str(rng.choice(TYPES)),
        op=op,
        source=rng.choice(sources, channels).tolist(),
        luma_rounding=int(rng.choice([0, LUMA_SCALE // 2, LUMA_SCALE - 1])),
        subtract=_numbers(rng, (4,)),
        multiply=_numbers(rng, (4,)),
        range=float(rng.choice([1, 1, np.float32(1 / 255), 257, 1e30])),
        weights=_numbers(rng, (3, 3)),
        bias=_numbers(rng, (3,)),
        fill=_numbers(rng, (4,)),
    )
    if rng.random() < 0.3:  # what training asks for
        plan.op, plan.source = SCALE, list(range(stored))
        plan.type = str(rng.choice(["f2", "f4"]))
    elif rng.random() < 0.3:  # as stored, but for its place
        plan.op, plan.source = SELECT, list(range(stored))
        plan.type = image.dtype.str[1:]
    if rng.random() < 0.4:
        left, top, right, bottom = rng.integers(0, 6, 4).tolist()
        plan.border = (left, top, right, bottom)
    lay_out(rng, plan)
    return plan
