"""The store stage: every engine makes of any plan what NumPy makes of the decoded image."""

from __future__ import annotations

import functools
from collections.abc import Callable

import engines
import numpy as np
import pytest
import reference_decoder
import stream_builder as build
from engines import CODINGS, ENGINES, GAP, SAMPLE_TYPES, WIDE_TYPES, Samples
from numpy.random import Generator
from output_plans import (
    FILL,
    SCALE,
    SELECT,
    TYPES,
    Plan,
    assert_output,
    becomes,
    lay_out,
    lay_out_planes,
    random_plan,
    random_window,
    rule,
    training_plan,
    white,
    wide_plan,
)

import l3dali

engine_matrix = pytest.mark.parametrize("engine", ENGINES)
present = pytest.mark.usefixtures("require_engine")

PLANS = {
    "scalar": 200,
    "avx2": 600,
    "avx512": 600,
    "neon": 600,
    "emulated_cuda": 160,
    "emulated_small_cuda": 160,
}


def texture(rng: Generator, height: int, width: int, channels: int, kind: str) -> Samples:
    """An image that every coding finds use in: smooth, noisy and constant areas."""
    sample_bits = 8 * np.dtype(kind).itemsize
    y, x, c = np.ogrid[:height, :width, :channels]
    image = 3 * x + 2 * y + 40 * c + rng.integers(0, 9, (height, width, channels))
    image[height // 2 :, : width // 3] = 77
    image[: height // 4, width // 2 :] = rng.integers(0, 1 << 16, channels)
    noise = rng.integers(0, 1 << sample_bits, (height, width, channels))
    image = np.where((x > width // 2) & (y > height // 2), noise, image)
    scale = 1 if sample_bits == 8 else int(rng.choice([1, 16, 200]))
    return (image * scale % (1 << sample_bits)).astype(f"u{sample_bits // 8}").view(kind)


def stored_stream(image: Samples, tile_log2: tuple[int, int]) -> bytes:
    """An image in stored tiles, of any size."""
    height, width, channels = image.shape
    bits = 8 * image.itemsize
    stream = build.Stream(
        width=width,
        height=height,
        channels=channels,
        sample_bits=bits,
        used_bits=bits,
        tile_width_log2=tile_log2[0],
        tile_height_log2=tile_log2[1],
        is_signed=image.dtype.kind == "i",
    )
    values = image.astype(np.int64) + (1 << (bits - 1) if stream.is_signed else 0)
    for tile in stream.tiles_of(values):
        stream.payloads.append(build.stored_tile(tile, stream.sample_bits))
    return stream.to_bytes()


@functools.cache
def corpus() -> list[tuple[bytes, Samples]]:
    """Streams of all channels, types and codings, and their images."""
    rng = np.random.default_rng(4)
    streams = []
    for kind in SAMPLE_TYPES:
        sample_bits = 8 * np.dtype(kind).itemsize
        for channels in (1, 2, 3, 4):
            for coding in CODINGS:
                image = texture(rng, 70, 101, channels, kind)
                streams.append((engines.encode(image, coding=coding, tile_log2=(5, 5)), image))
            few = rng.choice(rng.integers(0, 1 << sample_bits, 11), (33, 65, channels))
            few = few.astype(f"u{sample_bits // 8}").view(kind)
            streams.append((engines.encode(few, tile_log2=(5, 3)), few))
            large = texture(rng, 40, 520, channels, kind)
            streams.append((stored_stream(large, (9, 5)), large))
        pixel = texture(rng, 1, 1, 3, kind)
        streams.append((engines.encode(pixel), pixel))
        wide = texture(rng, 3, 9000, 3, kind)
        streams.append((stored_stream(wide, (15, 15)), wide))
    return streams


def assert_follows(engine: str, data: bytes, image: Samples, plan: Plan, threads: int = 1) -> None:
    outcome = engines.decode_plan(engine, data, plan, threads=threads)
    assert outcome.status == "kOk", plan
    assert outcome.samples is not None
    assert_output(plan, image, outcome.samples, GAP)


def test_corpus_has_every_coding() -> None:
    codings = {
        payload[4] for data, _ in corpus() for payload in reference_decoder.parse(data).payloads
    }
    assert codings == {
        reference_decoder.CONSTANT,
        reference_decoder.STORED,
        reference_decoder.PACKED,
        reference_decoder.RANS,
    }


@engine_matrix
@present
def test_windows_of_stored_samples(engine: str) -> None:
    """Rows leave as they are, at windows' edges too, which some engines store apart."""
    rng = np.random.default_rng(9)
    for data, image in corpus():
        height, width, channels = image.shape
        if width > 1000:
            continue
        window = random_window(rng, width, height)
        kind = image.dtype.str[1:]
        plan = Plan(window, (0, 0, 0, 0), kind, SELECT, list(range(channels)))
        lay_out(rng, plan)
        item = image.itemsize
        plan.strides = (window[2] * channels * item, channels * item, item)
        plan.data_offset, plan.output_bytes = 0, window[3] * plan.strides[0]
        assert_follows(engine, data, image, plan)


@functools.cache
def wide_corpus() -> list[tuple[bytes, Samples]]:
    """Streams of 5 to 34 channels in groups of all sizes, and their images."""
    rng = np.random.default_rng(11)
    streams = []
    for channels in range(5, 35):
        kind = SAMPLE_TYPES[channels % len(SAMPLE_TYPES)]
        coding = l3dali.CODINGS[channels % len(l3dali.CODINGS)]
        height, width = int(rng.integers(1, 40)), int(rng.integers(1, 150))
        image = texture(rng, height, width, channels, kind)
        order = rng.permutation(channels).tolist()
        groups = []
        while order:
            size = int(rng.integers(1, 5))
            groups.append(order[:size])
            order = order[size:]
        data = l3dali.encode(image, coding=coding, tile=(64, 32), groups=groups, layout="HWC")
        streams.append((data, image))
    return streams


@engine_matrix
@present
@pytest.mark.parametrize(
    ("make", "files", "share"),
    [
        (random_plan, corpus, 1),
        # Planes of floats, at all alignments: the GPU stores eight values of a row together.
        (training_plan, corpus, 4),
        # Every number of samples beside one another, which vectors store some of at a time.
        (wide_plan, wide_corpus, 4),
    ],
    ids=["any", "training", "many_channels"],
)
def test_random_plans(
    engine: str,
    make: Callable[[Generator, Samples], Plan],
    files: Callable[[], list[tuple[bytes, Samples]]],
    share: int,
) -> None:
    rng = np.random.default_rng(5)
    for _ in range(PLANS[engine] // share):
        data, image = files()[rng.integers(0, len(files()))]
        assert_follows(engine, data, image, make(rng, image), int(rng.integers(1, 3)))


@engine_matrix
@present
@pytest.mark.parametrize("kind", TYPES)
def test_every_rounding_and_saturation(engine: str, kind: str) -> None:
    """All 16-bit samples, scaled so that halves, limits and subnormal halves occur."""
    image = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256, 1)
    data = engines.encode(image)
    for subtract, multiply in [(0, 0.5), (32768, 0.5), (32768, 1), (40000, 70000), (32768, 1e-9)]:
        plan = Plan((0, 0, 256, 256), (0, 0, 0, 0), kind, 1, [0])
        plan.subtract[0] = subtract
        plan.multiply[0] = multiply
        lay = lay_out if multiply == 0.5 else lay_out_planes
        lay(np.random.default_rng(1), plan)
        assert_follows(engine, data, image, plan)


@engine_matrix
@present
@pytest.mark.parametrize("fill", [FILL, 0])
def test_not_a_number(engine: str, fill: int) -> None:
    image = np.full((9, 40, 1), 5, np.uint8)
    data = engines.encode(image)
    for kind in TYPES:
        plan = Plan((1, 1, 38, 7), (2, 2, 2, 2), kind, 1, [fill])
        plan.multiply[:] = plan.fill[:] = np.nan
        lay_out(np.random.default_rng(1), plan)
        assert_follows(engine, data, image, plan)


def test_table_of_types() -> None:
    """Each cell of the table in docs/operators.md is what the reference says."""
    page = (engines.ROOT / "docs" / "operators.md").read_text().partition("| stored |")[2]
    head, _, *rows = page.partition("\n\n")[0].splitlines()
    types = [cell.strip(" `") for cell in head.strip("|").split("|")]
    found: dict[tuple[str, str], str] = {}
    for row in rows:
        stored, *cells = [cell.strip() for cell in row.strip("|").split("|")]
        found |= {(stored, asked): cell for asked, cell in zip(types, cells, strict=True)}
    assert found == {
        (stored + " labels" * labels, np.dtype(asked).name): rule(stored, asked, labels=labels)
        for stored in SAMPLE_TYPES + WIDE_TYPES
        for labels in (False, True)
        if not labels or np.dtype(stored).kind != "f"
        for asked in TYPES
    }


@engine_matrix
@present
@pytest.mark.parametrize("kind", SAMPLE_TYPES)
def test_every_type_of_every_type(engine: str, kind: str) -> None:
    """Numbers, and values that fill the range, as faces plan them."""
    limits = np.iinfo(kind)
    image = np.arange(limits.min, limits.max + 1).astype(kind).reshape(16, -1, 1)
    data = engines.encode(image)
    for asked in TYPES:
        for fill_range in (False, True):
            plan = Plan((0, 0, image.shape[1], 16), (0, 0, 0, 0), asked, SELECT, [0])
            if fill_range and np.dtype(asked) != kind:
                plan.op = SCALE
                plan.range = float(white(asked) / white(kind))
            lay_out(np.random.default_rng(1), plan)
            outcome = engines.decode_plan(engine, data, plan)
            assert outcome.samples is not None
            expected = becomes(image, asked, labels=False, fill_range=fill_range)
            np.testing.assert_array_equal(plan.view(outcome.samples), expected)


def damage(data: bytes, tile: int) -> bytes:
    """Changes the last bytes of a tile's payload, which its check covers."""
    payloads = reference_decoder.parse(data).payloads
    end = len(data) - sum(map(len, payloads[tile + 1 :]))
    return data[: end - 9] + bytes(byte ^ 0x55 for byte in data[end - 9 : end]) + data[end:]


@engine_matrix
@present
@pytest.mark.parametrize("coding", CODINGS)
def test_damage_matters_inside_the_window_alone(engine: str, coding: str) -> None:
    rng = np.random.default_rng(6)
    image = texture(rng, 70, 101, 3, "uint8")
    data = engines.encode(image, coding=coding, tile_log2=(5, 4))
    columns = 4
    for _ in range(12):
        tiles = rng.choice(20, 2, replace=False).tolist()
        damaged = data
        for tile in tiles:
            damaged = damage(damaged, tile)
        plan = Plan(random_window(rng, 101, 70), (1, 0, 2, 1), "u1", SELECT, [2, 1, 0])
        lay_out(rng, plan)
        x, y, width, height = plan.window
        touched = [
            tile
            for tile in sorted(tiles)
            if width
            and x // 32 <= tile % columns <= (x + width - 1) // 32
            and height
            and y // 16 <= tile // columns <= (y + height - 1) // 16
        ]
        if touched:
            outcome = engines.decode_plan(engine, damaged, plan)
            assert (outcome.status, outcome.tile) == ("kChecksumMismatch", touched[0])
        else:
            assert_follows(engine, damaged, image, plan)


def test_upload_has_the_payloads_of_the_window_alone() -> None:
    rng = np.random.default_rng(7)
    data = engines.encode(texture(rng, 70, 101, 3, "uint8"), coding="packed", tile_log2=(5, 4))
    payload_bytes = [len(payload) for payload in reference_decoder.parse(data).payloads]

    def uploaded(window: tuple[int, int, int, int]) -> int:
        plan = Plan(window, (0, 0, 0, 0), "u1", SELECT, [2, 1, 0])
        lay_out(rng, plan)
        return engines.uploaded_bytes(data, plan)

    task_bytes = 16
    others = uploaded((0, 0, 1, 1)) - payload_bytes[0] - task_bytes  # what every batch has
    assert 0 < uploaded((0, 0, 0, 0)) <= others
    for window, tiles in [
        ((0, 0, 101, 70), range(20)),
        ((31, 15, 2, 2), (0, 1, 4, 5)),
        ((64, 64, 1, 1), (18,)),
        ((96, 0, 5, 70), (3, 7, 11, 15, 19)),
    ]:
        expected = sum(payload_bytes[tile] + task_bytes for tile in tiles)
        # A plan has a list of windows: 8 bytes a tile, in whole blocks of 16.
        assert 0 <= uploaded(window) - others - expected <= 8 * len(tiles) + 16


@engine_matrix
@present
@pytest.mark.parametrize("tile_log2", [(5, 5), (9, 5)])
def test_a_tile_is_validated_as_a_whole(engine: str, tile_log2: tuple[int, int]) -> None:
    """A value without a sample is an error of its tile, in the window or not."""
    image = np.zeros((20, 600, 1), np.uint8)
    image[13, 590] = 9
    stream = build.Stream(width=600, height=20, used_bits=3)
    stream.tile_width_log2, stream.tile_height_log2 = tile_log2
    for tile in stream.tiles_of(image):
        stream.payloads.append(build.stored_tile(tile, 8))
    plan = Plan((585, 1, 2, 2), (0, 0, 0, 0), "f4", SELECT, [0])
    lay_out(np.random.default_rng(1), plan)
    outcome = engines.decode_plan(engine, stream.to_bytes(), plan)
    assert (outcome.status, outcome.tile) == ("kCorruptTile", 590 >> tile_log2[0])
