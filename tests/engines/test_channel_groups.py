"""More than four channels: groups, chosen channels, what is refused, and what is spared."""

from __future__ import annotations

from typing import Any

import engines
import numpy as np
import peaks
import pytest
import reference_decoder
import stream_builder as build
from emulated_gpu import load_emulated
from engines import CODINGS, ENGINES, Outcome, Samples
from hypothesis import given, settings
from hypothesis import strategies as st

import l3dali
from l3dali import L3Error

coding_matrix = pytest.mark.parametrize("coding", CODINGS)


def bands(h: int, w: int, c: int, dtype: Any = np.uint16, seed: int = 0) -> Samples:
    """Three kinds of channels in turn: those of a kind are alike, but for noise."""
    rng = np.random.default_rng(seed)
    y, x, channel = np.ogrid[:h, :w, :c]
    kinds = np.cumsum(rng.integers(-9, 10, (h, w, 3)), axis=1)
    image = 300 + x + 2 * y + kinds[..., np.arange(c) % 3] + 3 * channel
    noisy: Samples = (image + rng.integers(0, 2, (h, w, c))).astype(dtype)
    return noisy


def of_kind(group: tuple[int, ...]) -> set[int]:
    """The kinds of a group's channels."""
    return {channel % 3 for channel in group}


@coding_matrix
@pytest.mark.parametrize("shape", [(1, 1, 5), (1, 40, 6), (70, 1, 7), (33, 67, 13), (3, 5, 200)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16])
def test_round_trip(coding: str, shape: tuple[int, int, int], dtype: type) -> None:
    image = bands(*shape, dtype)
    data = engines.encode(image, coding=coding)
    for engine in ("reference", *filter(engines.is_available, ENGINES)):
        assert engines.decode(engine, data, row_padding_bytes=6) == Outcome("kOk", None, image)


@pytest.mark.parametrize(
    ("effort", "shape", "dtype"),
    [
        (9, (1, 1, 5), np.uint8),
        (7, (1, 300, 6), np.uint16),
        (8, (300, 1, 7), np.int16),
        (9, (20, 30, 13), np.int16),
        (1, (20, 30, 13), np.uint8),
        (8, (100, 140, 9), np.uint16),
    ],
)
def test_efforts(effort: int, shape: tuple[int, int, int], dtype: type) -> None:
    image = bands(*shape, dtype)
    data = engines.encode(image, coding="rans", effort=effort)
    assert engines.encode(image, coding="rans", effort=effort, threads=3) == data
    assert l3dali.encode(image, effort=effort) == data
    for engine in filter(engines.is_available, ENGINES):
        assert engines.decode(engine, data) == Outcome("kOk", None, image), engine


def test_efforts_that_search_are_smaller() -> None:
    image = bands(200, 300, 7)
    default = len(l3dali.encode(image))
    assert all(len(l3dali.encode(image, effort=effort)) < 0.99 * default for effort in (7, 8, 9))


def test_drawings_have_no_match_tiles() -> None:
    """A few flat colours, which up to four channels would have as match tiles."""
    numbers = np.random.default_rng(5).integers(0, 5, (30, 40)).repeat(8, axis=0).repeat(8, axis=1)
    colors = np.random.default_rng(0).integers(0, 256, (5, 5), np.uint8)
    drawing = colors[numbers]
    assert b"MTCH" in l3dali.encode(np.ascontiguousarray(drawing[..., :3]))
    data = l3dali.encode(drawing)
    assert b"MTCH" not in data
    for engine in filter(engines.is_available, ENGINES):
        assert engines.decode(engine, data) == Outcome("kOk", None, drawing), engine


def test_4096_channels() -> None:
    image = bands(2, 3, 4096)
    for coding in CODINGS:
        data = engines.encode(image, coding=coding)
        for engine in filter(engines.is_available, ENGINES):
            assert engines.decode(engine, data) == Outcome("kOk", None, image), engine
    with pytest.raises(ValueError, match="1 to 4096 channels"):
        l3dali.encode(np.zeros((1, 1, 4097), np.uint8))


@pytest.mark.parametrize("c", [1, 2, 3, 4])
def test_up_to_four_channels_have_no_list(c: int) -> None:
    image = bands(20, 30, c)
    data = l3dali.encode(image)
    assert l3dali.info(data).groups == (tuple(range(c)),)
    assert b"GRPS" not in data


def test_channels_that_are_alike_come_together() -> None:
    groups = l3dali.info(l3dali.encode(bands(64, 64, 9))).groups
    assert sorted(map(len, groups)) == [3] * 3
    assert all(len(of_kind(group)) == 1 for group in groups)


def test_neighbors_come_together_where_all_are_alike() -> None:
    """Three neighbouring channels are in one group, or two."""
    kinds = bands(100, 90, 14)
    alike = kinds[..., :1] + np.random.default_rng(2).integers(0, 9, (100, 90, 14))
    groups = l3dali.info(l3dali.encode(alike.astype(np.uint16))).groups
    assert groups == ((0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11), (12,), (13,))


def test_packed_groups_have_what_the_others_differ_from_least_second() -> None:
    rng = np.random.default_rng(4)
    base = np.cumsum(rng.integers(-40, 41, (90, 120, 2)), axis=1) + 9000
    own = rng.integers(-9, 10, (90, 120, 6))
    own[..., [0, 5]] = 0  # these two are what the others come from
    image = (base[..., [0, 0, 0, 1, 1, 1]] + own).astype(np.uint16)
    data = l3dali.encode(image, coding="packed")
    assert l3dali.info(data).groups == ((1, 0, 2), (3, 5, 4))
    in_order = l3dali.encode(image, coding="packed", groups=[[0, 1, 2], [3, 4, 5]])
    assert len(data) < 0.97 * len(in_order)
    assert l3dali.info(l3dali.encode(image, coding="rans")).groups == ((0, 1, 2), (3, 4, 5))


def test_a_value_table_of_many_channels_has_to_save_much() -> None:
    """Each of their samples is looked up."""
    wide = bands(400, 500, 7) + 12 * np.arange(500, dtype=np.uint16)[:, None]
    wide[0, 0] = 8191
    gaps = wide // 30 + wide  # a table would save 0.13 %
    assert l3dali.info(l3dali.encode(gaps)).value_count == 0
    few = wide // 1000 * 1000
    assert l3dali.info(l3dali.encode(few)).value_count == 9


def test_channels_that_are_not_alike_stay_alone() -> None:
    noise = np.random.default_rng(1).integers(0, 1 << 16, (100, 90, 9), np.uint16)
    smooth = noise >> 8
    assert l3dali.info(l3dali.encode(smooth)).groups == tuple((c,) for c in range(9))


@pytest.mark.parametrize("c", [5, 8, 13])
def test_no_larger_than_its_bands(c: int) -> None:
    for image in (bands(300, 280, c), bands(300, 280, c) * 0 + 7):
        apart = sum(len(l3dali.encode(np.ascontiguousarray(image[..., k]))) for k in range(c))
        assert len(l3dali.encode(image)) <= apart
    noise = np.random.default_rng(1).integers(0, 1 << 12, (256, 256, c), np.uint16)
    apart = sum(len(l3dali.encode(np.ascontiguousarray(noise[..., k]))) for k in range(c))
    assert len(l3dali.encode(noise)) <= apart


def test_groups_as_asked_for() -> None:
    image = bands(40, 50, 7)
    asked = [[6, 0], [5], [1, 2, 3, 4]]
    for coding in l3dali.CODINGS:
        data = l3dali.encode(image, coding=coding, groups=asked)
        assert l3dali.info(data).groups == ((6, 0), (5,), (1, 2, 3, 4))
        assert np.array_equal(l3dali.decode(data), image)
        assert engines.decode("reference", data) == Outcome("kOk", None, image)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([[0, 1, 2, 3, 4]], "1 to 4 channels"),
        ([[0, 1], [], [2, 3, 4]], "1 to 4 channels"),
        ([[0, 1, 2], [3]], "each channel from 0 to 4 once"),
        ([[0, 1, 2], [3, 4, 0]], "each channel from 0 to 4 once"),
        ([[0, 1, 2], [3, 5]], "each channel from 0 to 4 once"),
        ([[0, 1, 2], [3, -1]], "each channel from 0 to 4 once"),
    ],
)
def test_wrong_groups(groups: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        l3dali.encode(bands(4, 5, 5), groups=groups)


def test_wrong_kinds_of_groups() -> None:
    with pytest.raises(TypeError, match=r"groups\[1\] must be a sequence of integers"):
        l3dali.encode(bands(4, 5, 5), groups=[[0], 3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="groups must be a sequence of lists"):
        l3dali.encode(bands(4, 5, 5), groups=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="more than 4 channels, and this one has 3"):
        l3dali.encode(bands(4, 5, 3), groups=[[0, 1, 2]])


@settings(max_examples=100)
@given(data=st.data(), c=st.integers(1, 15), coding=st.sampled_from(CODINGS))
def test_chosen_channels(data: st.DataObject, c: int, coding: l3dali.Coding) -> None:
    """In any order, of windows too, to a new array and to one with gaps."""
    h, w = data.draw(st.sampled_from([(1, 1), (33, 70), (129, 65)]))
    dtype = data.draw(st.sampled_from([np.uint8, np.uint16]))
    image = bands(h, w, c, dtype)
    encoded = l3dali.encode(image, coding=coding, tile=(32, 32))
    chosen = data.draw(st.lists(st.integers(0, c - 1), min_size=1, max_size=c, unique=True))
    top, left = data.draw(st.integers(0, h - 1)), data.draw(st.integers(0, w - 1))
    height, width = data.draw(st.integers(1, h - top)), data.draw(st.integers(1, w - left))
    wanted = image[top : top + height, left : left + width, chosen]
    decoded = l3dali.decode(encoded, window=(top, left, height, width), channels=chosen)
    assert np.array_equal(decoded, wanted[..., 0] if len(chosen) == 1 else wanted)
    wide = np.full((height, width + 3, len(chosen)), 77, dtype)
    out = wide[:, :width]
    both = l3dali.decode_batch(
        [encoded, encoded],
        windows=[(top, left, height, width), None],
        channels=chosen,
        out=[out, np.empty((h, w, len(chosen)), dtype)],
        threads=2,
    )
    assert np.array_equal(out, wanted)
    assert np.array_equal(both[1], image[..., chosen])
    assert (wide[:, width:] == 77).all()


def test_only_groups_of_chosen_channels_are_read() -> None:
    """Damage elsewhere goes unseen; in their groups it is an error, and names the tile."""
    image = bands(40, 70, 9)
    groups = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    data = bytearray(l3dali.encode(image, groups=groups, tile=(32, 32)))
    view = reference_decoder.parse(bytes(data))
    begin = len(data) - sum(map(len, view.payloads[4:]))  # group 1 of tile 1
    data[begin + 9] ^= 1
    assert np.array_equal(l3dali.decode(data, channels=[8, 0]), image[..., [8, 0]])
    for channels in ([3], [0, 4, 8], None):
        with pytest.raises(L3Error, match="tile 1 of 6") as caught:
            l3dali.decode(data, channels=channels)
        assert caught.value.status is l3dali.Status.CHECKSUM_MISMATCH


def test_the_first_bad_payload_decides() -> None:
    image = bands(40, 70, 6, np.uint8)
    stream = build.Stream(70, 40, 6, chunks=[build.groups_chunk([[0, 1, 2], [3, 4, 5]])])
    for tile in stream.tiles_of(image):
        stream.payloads += [
            build.stored_tile(tile[..., :3], 8),
            build.stored_tile(tile[..., 3:], 8),
        ]
    check = bytes(4) + stream.payloads[5][4:]
    coding = build.payload(9, b"")
    stream.payloads[4], stream.payloads[5] = coding, check
    data = stream.to_bytes()
    for engine in ("reference", *filter(engines.is_available, ENGINES)):
        assert engines.decode(engine, data) == Outcome("kUnsupportedFeature", 2), engine


@pytest.mark.parametrize(
    ("channels", "error", "message"),
    [
        ([], ValueError, "channels is empty"),
        ([1, 1], ValueError, "names 1 more than once"),
        ([-1], ValueError, "0 to 4095, not -1"),
        ([4096], ValueError, "0 to 4095, not 4096"),
        ([1.5], TypeError, "sequence of integers"),
        ([True, False], TypeError, "sequence of integers"),
        (3, TypeError, "sequence of integers"),
        ([6], L3Error, "channel 6 does not exist: the image has 6"),
    ],
)
def test_wrong_channels(channels: Any, error: type[Exception], message: str) -> None:
    data = l3dali.encode(bands(4, 5, 6))
    with pytest.raises(error, match=message):
        l3dali.decode(data, channels=channels)
    with pytest.raises(error, match=message):
        l3dali.decode_batch([data], channels=channels)


def test_max_pixels_counts_four_channels_as_one_pixel() -> None:
    image = bands(10, 10, 9)
    data = l3dali.encode(image)
    assert l3dali.decode(data, max_pixels=300).shape == image.shape
    with pytest.raises(L3Error, match="10 x 10 x 9 / 4 pixels are more than the limit of 299"):
        l3dali.decode(data, max_pixels=299)
    assert l3dali.decode(data, max_pixels=100, channels=[8, 1, 2, 3]).shape == (10, 10, 4)


def test_a_forged_header_takes_no_memory() -> None:
    """4096 channels of 2^31 pixels: 16 TiB, which a short file claims."""
    header = build.Stream(1 << 16, 1 << 15, 4096, tile_width_log2=15, tile_height_log2=15)
    groups = [[c] for c in range(4096)]
    header.chunks = [build.groups_chunk(groups)]
    header.payloads = [build.constant_tile([1])] * 8192
    data = header.to_bytes()
    before = peaks.forget()
    for function in (l3dali.decode, l3dali.verify, l3dali.info):
        with pytest.raises(L3Error) as caught:
            function(data)
        assert caught.value.status is l3dali.Status.CORRUPT_HEADER
    assert peaks.peak() - before < 100 << 20


def test_4096_channels_of_many_pixels_are_refused() -> None:
    """A valid file of 1.3 MB: 2^28 pixels pass, times 1024 they do not."""
    stream = build.Stream(4096, 4096, 4096, tile_width_log2=8, tile_height_log2=8)
    stream.chunks = [build.groups_chunk([list(range(c, c + 4)) for c in range(0, 4096, 4)])]
    stream.payloads = [build.constant_tile([1, 2, 3, 4])] * (256 * 1024)
    data = stream.to_bytes()
    with pytest.raises(L3Error, match="4096 x 4096 x 4096 / 4 pixels are more"):
        l3dali.decode(data)
    pixel = l3dali.decode(data, window=(9, 9, 1, 1))
    assert pixel.shape == (1, 1, 4096)
    assert pixel[0, 0, :5].tolist() == [1, 2, 3, 4, 1]


class _Memory:
    """What an allocator of Python gives."""

    def __init__(self, size: int, pinned: bool) -> None:
        self.array = np.empty(size + 256, np.uint8)

    def data_ptr(self) -> int:
        return -(-self.array.ctypes.data // 256) * 256


def test_more_windows_of_groups_than_the_gpu_engine_takes_at_once() -> None:
    """150,000 samples for 150 groups of 1,000 windows: three launches."""
    module = load_emulated()
    image = bands(12, 40, 150) // 40 * 1001  # a value table
    groups = [[c] for c in range(150)]
    data = bytearray(l3dali.encode(image, groups=groups, tile=(8, 32)))
    assert l3dali.info(bytes(data)).value_count > 0
    windows = [(i % 12, i % 40, 1, 1) for i in range(1000)]
    sizes = []

    def allocate(size: int, pinned: bool) -> _Memory:
        sizes.append(size)
        return _Memory(size, pinned)

    decoder = module.Decoder(0, allocate)

    def decode() -> np.ndarray[Any, Any]:
        batch = module.DecodeBatch(
            [data] * 1000, windows=windows, colors="UNCHANGED", dtype=None, channels_first=False,
            max_pixels=2**20, names_items=True,
        )  # fmt: skip
        out = np.zeros((1000, 150), np.uint16)
        decoder.decode(batch, [row.ctypes.data for row in out], stream=0, threads=1)
        return out

    assert np.array_equal(decode(), [image[top, left] for top, left, _, _ in windows])
    assert max(sizes) < 2**16 * 400
    data[-1] ^= 1  # the last group of the last tile, which window 32 is the first to touch
    with pytest.raises(L3Error, match="item 32: tile 3 of 4"):
        decode()


@pytest.mark.parametrize("channels_first", [False, True])
def test_windows_of_files_in_one_batch_of_the_gpu_engine(channels_first: bool) -> None:
    """Groups share a value table, windows of a file its tiles; others are between them."""
    module = load_emulated()
    few = bands(40, 70, 13) // 40 * 1001  # a value table
    images = [few, bands(33, 40, 3), bands(50, 60, 9, np.uint16, 3)]
    chosen = [2, 0]
    files = [l3dali.encode(image, tile=(32, 32)) for image in images]
    assert l3dali.info(files[0]).value_count > 0
    for channels in ([], chosen):
        items = [files[0], files[0], files[0], files[1], files[2], files[2]]
        windows = [(3, 5, 30, 40), None, (0, 0, 40, 70), None, (9, 0, 40, 33), (49, 59, 1, 1)]
        batch = module.DecodeBatch(
            items, windows=windows, colors="UNCHANGED", dtype=None, channels_first=channels_first,
            max_pixels=2**20, names_items=True, channels=channels,
        )  # fmt: skip
        outs = [np.zeros(shape, np.uint16) for shape in batch.shapes]
        decoder = module.Decoder(0, _Memory)
        decoder.decode(batch, [out.ctypes.data for out in outs], stream=0, threads=1)
        for item, window, out in zip([0, 0, 0, 1, 2, 2], windows, outs, strict=True):
            top, left, height, width = window or (0, 0, *images[item].shape[:2])
            want = images[item][top : top + height, left : left + width]
            want = want[..., channels] if channels else want
            assert np.array_equal(out, np.moveaxis(want, -1, 0) if channels_first else want)
    damaged = bytearray(files[2])
    damaged[-1] ^= 1
    batch = module.DecodeBatch(
        [files[0], bytes(damaged)], windows=[None, None], colors="UNCHANGED", dtype=None,
        channels_first=False, max_pixels=2**20, names_items=True,
    )  # fmt: skip
    outs = [np.zeros(shape, np.uint16) for shape in batch.shapes]
    with pytest.raises(L3Error, match="item 1: tile 3 of 4") as caught:
        decoder.decode(batch, [out.ctypes.data for out in outs], stream=0, threads=1)
    assert caught.value.index == 1
