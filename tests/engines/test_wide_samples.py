"""Floats and samples of 32 bits come back bit for bit from all engines, and convert by number."""

from __future__ import annotations

import engines
import numpy as np
import output_plans
import pytest
import reference_decoder
from engines import CODINGS, WIDE_TYPES, Samples
from output_plans import FILL, LUMA, MIX, SCALE, SELECT, TYPES, Plan
from reference_decoder import HALVES, RANKS_8, RANKS_16

SHAPES = ((1, 1, 1), (33, 9, 1), (40, 70, 2), (20, 33, 3), (9, 40, 4), (17, 40, 9), (300, 270, 1))
CPU_ENGINES = [engine for engine in engines.ENGINES if "cuda" not in engine]


def any_bits(shape: tuple[int, int, int], kind: str, distinct: int | None) -> Samples:
    """Samples of any bits: NaNs, infinities and denormals among the floats."""
    rng = np.random.default_rng(sum(shape))
    bits = f"<u{np.dtype(kind).itemsize}"
    specials = np.array([0, 2**31, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 1, 2**24 + 1])
    if distinct is None:
        values = rng.integers(0, 2**32, shape)
    else:
        choices = np.append(rng.integers(0, 2**32, distinct), specials)
        values = choices[rng.integers(0, len(choices), shape)]
    return values.astype(np.uint32).astype(bits).view(kind)


@pytest.mark.parametrize("kind", WIDE_TYPES)
@pytest.mark.parametrize("distinct", [5, 300, None])
def test_bits_come_back(kind: str, distinct: int | None) -> None:
    for i, shape in enumerate(SHAPES):
        image = any_bits(shape, kind, distinct)
        coding = CODINGS[i % len(CODINGS)]
        data = engines.encode(image, coding=coding, effort=1)
        outcome = engines.decode_with_all(data)
        assert outcome == engines.Outcome("kOk", None, image), (shape, coding)


@pytest.mark.parametrize(
    ("image", "holding"),
    [
        (np.arange(64 * 64, dtype=np.float32).reshape(64, 64, 1) % 200, RANKS_8),
        (np.arange(64 * 64, dtype=np.float32).reshape(64, 64, 1) % 999 / 7, RANKS_16),
        (np.random.default_rng(0).integers(-(2**31), 2**31, (64, 64, 1)).astype(np.int32), HALVES),
        (np.linspace(0, 1, 300 * 300, dtype=np.float32).reshape(300, 300, 1), HALVES),
    ],
)
def test_samples_are_held_in_the_smaller_way(image: Samples, holding: int) -> None:
    data = engines.encode(image, coding="rans")
    assert reference_decoder.parse(data).header.holding == holding
    assert engines.decode_with_all(data) == engines.Outcome("kOk", None, image)


def test_common_zero_bits_are_taken_off() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 2**22, (300, 400, 1)) + 2**25
    numbers.ravel()[0] = 0
    image = (numbers * 64 - 2**31 + 5).astype(np.int32)
    parsed = reference_decoder.parse(engines.encode(image))
    assert parsed.header.holding == HALVES
    chunk = dict(parsed.chunks)[b"SMPL"]
    assert (int.from_bytes(chunk[:4], "little", signed=True), chunk[4]) == (image.min(), 6)


def test_halves_take_the_smaller_coding() -> None:
    """Rans does not predict modulo 2^16, as packed does: steep ramps of floats become packed."""
    y, x = np.mgrid[:300, :300]
    steps = np.random.default_rng(0).integers(0, 2, (300, 300))
    bits = ((y * 33282 + x * 5300 + steps) % 2**22 * 256).astype(np.uint32)
    ramp = bits.view(np.float32).reshape(300, 300, 1).copy()
    sizes = {coding: len(engines.encode(ramp, coding=coding)) for coding in ("rans", "packed")}
    assert sizes["rans"] <= sizes["packed"]


def wide_plan(image: Samples, kind: str, op: int, source: list[int], index: int) -> Plan:
    """A window with a border, mirrored or not, as HWC or CHW."""
    height, width, _ = image.shape
    window = (3, 2, width - 5, height - 4)
    size = np.dtype(kind).itemsize
    out_h, out_w, channels = window[3] + 3, window[2] + 2, len(source)
    is_planar = index % 2 == 1
    sign = -1 if index % 4 >= 2 else 1
    strides = (out_w * size, size * sign, out_h * out_w * size)
    if not is_planar:
        strides = (out_w * channels * size, channels * size * sign, size)
    first = strides[0] + (out_w - 2 if sign < 0 else 1) * abs(strides[1])
    return Plan(
        window, (1, 1, 1, 2), kind, op, source,
        data_offset=first, strides=strides, output_bytes=out_h * out_w * channels * size,
        subtract=np.array([1.5, -2, 3, 0], np.float32),
        multiply=np.array([0.25, 3, 1, 2], np.float32),
        weights=(np.arange(9).reshape(3, 3) / 8).astype(np.float32),
        bias=np.array([1, 2, 3], np.float32),
        fill=np.array([7, 8, 9, 1], np.float32),
    )  # fmt: skip


@pytest.mark.parametrize("stored", WIDE_TYPES)
@pytest.mark.parametrize("engine", CPU_ENGINES)
@pytest.mark.usefixtures("require_engine")
def test_outputs_convert_by_number(engine: str, stored: str) -> None:
    rng = np.random.default_rng(1)
    numbers = rng.normal(0, 3e4, (21, 40, 4))
    numbers[::3] *= 1e5 if stored != "float16" else 1
    limits = np.iinfo(stored) if stored.endswith("int32") else np.finfo(stored)
    image = np.clip(numbers, float(limits.min), float(limits.max) - 200).astype(stored)
    files = [engines.encode(image[..., :count].copy(), coding="packed") for count in (1, 4)]
    cases = [(SELECT, [0]), (SCALE, [0]), (SELECT, [2, FILL, 0, LUMA]), (MIX, [2, 1, 0])]
    for index, kind in enumerate(TYPES):
        for op, source in cases:
            single = len(source) == 1
            if not single and reference_decoder.parse(files[1]).header.holding == HALVES:
                continue  # in two groups: test_merged_groups
            part = image[..., :1] if single else image
            plan = wide_plan(part, kind, op, source, index)
            outcome = engines.decode_plan(engine, files[not single], plan)
            assert outcome.samples is not None, outcome
            output_plans.assert_output(plan, part, outcome.samples, engines.GAP)
