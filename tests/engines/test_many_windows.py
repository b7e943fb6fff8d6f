"""Many windows of one file: each engine makes of all at once what it makes of each alone.

The CUDA engine decodes a tile once for all windows that touch it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import engines
import numpy as np
import pytest
import reference_decoder
import strategies
from engines import CODINGS, ENGINES, GAP
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.random import Generator
from numpy.typing import NDArray
from output_plans import SELECT, Plan, assert_output, lay_out, random_plan, training_plan

import l3dali

engine_matrix = pytest.mark.parametrize("engine", ENGINES)
present = pytest.mark.usefixtures("require_engine")
some = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])

MAX_TILE_WINDOWS = 64  # kMaxTileWindows in src/cuda/kernels/tile_batch.h


def windows_by_tile(data: bytes, plans: list[Plan]) -> Counter[tuple[int, int]]:
    """How many windows touch each tile."""
    header = reference_decoder.parse_header(data)
    windows: Counter[tuple[int, int]] = Counter()
    for plan in plans:
        x, y, width, height = plan.window
        if width == 0 or height == 0:
            continue
        for row in range(
            y >> header.tile_height_log2, (y + height - 1 >> header.tile_height_log2) + 1
        ):
            first, last = x >> header.tile_width_log2, x + width - 1 >> header.tile_width_log2
            windows.update((row, column) for column in range(first, last + 1))
    return windows


def decoded_tiles(data: bytes, plans: list[Plan]) -> int:
    """How many times a tile has to be decoded."""
    return sum(-(-count // MAX_TILE_WINDOWS) for count in windows_by_tile(data, plans).values())


def draw_plans(rng: Generator, image: NDArray[np.generic], count: int, kind: str) -> list[Plan]:
    """Plans for `count` windows.

    `all alike` differ in the window alone, as those of an operator do, `one place` not even there;
    `any` have nothing in common.
    """
    make = training_plan if rng.random() < 0.5 else random_plan
    plans = [make(rng, image) for _ in range(count)]
    if kind == "any":
        return plans
    for plan in plans[1:]:
        same = plans[0]
        plan.type, plan.op, plan.source = same.type, same.op, same.source
        plan.luma_rounding, plan.range = same.luma_rounding, same.range
        plan.subtract, plan.multiply, plan.fill = same.subtract, same.multiply, same.fill
        plan.weights, plan.bias = same.weights, same.bias
        if kind == "one place":
            plan.window, plan.border = same.window, same.border
            plan.strides, plan.data_offset = same.strides, same.data_offset
            plan.output_bytes = same.output_bytes
        else:
            lay_out(rng, plan)
    return plans


def check(engine: str, data: bytes, plans: list[Plan], image: NDArray[np.generic]) -> None:
    outcome, outputs, tiles = engines.decode_plans(engine, data, plans)
    assert outcome.status == "kOk"
    for plan, output in zip(plans, outputs, strict=True):
        assert_output(plan, image, output, GAP)
    assert tiles == (decoded_tiles(data, plans) if "emulated" in engine else 0)


@engine_matrix
@present
@some
@given(
    image=strategies.images(most_channels=4),
    coding=st.sampled_from(CODINGS),
    seed=strategies.SEEDS,
    count=st.integers(1, 12),
    kind=st.sampled_from(["any", "all alike", "one place"]),
)
def test_each_window_is_as_if_alone(
    engine: str, image: NDArray[np.generic], coding: str, seed: int, count: int, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    data = engines.encode(image, coding=coding, tile_log2=(5, 3 + seed % 3))
    check(engine, data, draw_plans(rng, image, count, kind), image)


@engine_matrix
@present
@some
@given(
    data=strategies.STREAMS | strategies.DAMAGED,
    seed=strategies.SEEDS,
    count=st.integers(2, 6),
)
def test_streams_beyond_our_encoder(engine: str, data: bytes, seed: int, count: int) -> None:
    """With the first bad tile of all windows. The truth is the scalar engine on each alone."""
    try:
        header = reference_decoder.parse(data).header
    except reference_decoder.FormatError:
        return
    assume(header.channels <= 4)
    shape = (header.height, header.width, header.channels)
    rng = np.random.default_rng(seed)
    blank = np.broadcast_to(np.zeros(1, header.dtype), shape)
    plans = draw_plans(rng, blank, count, "any")
    alone = [engines.decode_plan("scalar", data, plan) for plan in plans]
    bad = [(one.tile, one.status) for one in alone if one.status != "kOk"]
    outcome, outputs, tiles = engines.decode_plans(engine, data, plans)
    if bad:
        assert (outcome.tile, outcome.status) == min(bad)
        return
    assert outcome.status == "kOk"
    for one, output, plan in zip(alone, outputs, plans, strict=True):
        assert one.samples is not None
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(plan.view(output), plan.view(one.samples), str(plan))
    assert tiles == (decoded_tiles(data, plans) if "emulated" in engine else 0)


@engine_matrix
@present
@pytest.mark.parametrize("coding", CODINGS)
def test_a_tile_of_many_windows(engine: str, coding: str) -> None:
    """A warp stores a tile for so many windows at most; another one decodes it again."""
    count = MAX_TILE_WINDOWS + (coding != "stored")
    rng = np.random.default_rng(count)
    image = rng.integers(0, 256, (20, 40, 3)).astype(np.uint8) // 16 * 3
    data = engines.encode(image, coding=coding, tile_log2=(5, 5))
    check(engine, data, draw_plans(rng, image, count, "all alike"), image)


@engine_matrix
@present
@pytest.mark.parametrize("coding", CODINGS)
def test_a_patch_of_a_volume(engine: str, coding: Any) -> None:
    """It is a window of each slice of an image, decoded to slices of one array."""
    rng = np.random.default_rng(5)
    volume = rng.integers(0, 4000, (6, 70, 90)).astype(np.uint16) // 64 * 3
    data = l3dali.encode_volume(volume, coding=coding)
    found = l3dali.info(data).volume
    assert found is not None
    windows = [(21, z * found.rows + 9, 64, 50) for z in range(1, 5)]
    plans = [
        Plan(w, (0, 0, 0, 0), "u2", SELECT, [0], strides=(128, 2, 6400), output_bytes=6400)
        for w in windows
    ]
    outcome, outputs, _ = engines.decode_plans(engine, data, plans)
    assert outcome.status == "kOk"
    slices = [plan.view(output)[:, :, 0] for plan, output in zip(plans, outputs, strict=True)]
    np.testing.assert_array_equal(slices, volume[1:5, 9:59, 21:85])


@engine_matrix
@present
@pytest.mark.parametrize("coding", CODINGS)
def test_a_grid_decodes_each_tile_once(engine: str, coding: str) -> None:
    rng = np.random.default_rng(3)
    image = rng.integers(0, 9, (96, 160, 3)).astype(np.uint8)
    data = engines.encode(image, coding=coding, tile_log2=(5, 4))
    plans = draw_plans(rng, image, 35, "all alike")
    for i, plan in enumerate(plans):
        plan.window, plan.border = (20 * (i % 7), 16 * (i // 7), 40, 32), (0, 0, 0, 0)
        lay_out(rng, plan)
    windows = windows_by_tile(data, plans)
    assert (len(windows), max(windows.values())) == (30, 8)
    check(engine, data, plans, image)
