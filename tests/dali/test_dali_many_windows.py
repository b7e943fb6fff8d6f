"""`fn.l3.decode_windows`: beside `fn.l3.decode`, cut with NumPy and normalized by DALI."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from children import child_environment
from dali_tools import (
    Array,
    Pair,
    as_sample,
    assert_same,
    call,
    decode,
    make_image,
    make_pair,
    make_pairs,
    pipeline,
    run,
    source,
    unpack,
)
from nvidia.dali import fn, types

import l3dali
from l3dali import codec

pytestmark = pytest.mark.dali

BATCH = 40
NAME = "decode_windows"


def windows_of(image: Array, anchors: Array, size: tuple[int, int], fill: Array) -> Array:
    """The windows of an image, filled where they reach out."""
    height, width = size
    out: Array = np.empty((len(anchors), height, width, image.shape[2]), image.dtype)
    out[:] = fill.astype(image.dtype)
    for window, (top, left) in zip(out, anchors, strict=True):
        rows = np.arange(top, top + height)
        columns = np.arange(left, left + width)
        y = (rows >= 0) & (rows < image.shape[0])
        x = (columns >= 0) & (columns < image.shape[1])
        window[np.ix_(y, x)] = image[np.ix_(rows[y], columns[x])]
    return out


def draw_anchors(
    rng: np.random.Generator, pairs: list[Pair], size: tuple[int, int], *, beyond: bool
) -> list[Array]:
    """Some anchors for each image, none for some; `beyond` lets windows reach out or miss it."""
    anchors = []
    for pair in pairs:
        shape = np.array(pair.shown_size, int)
        low = -np.array(size) - 2 if beyond else np.zeros(2, int)
        high = shape + 3 if beyond else shape + 1 - np.array(size, int)
        count = int(rng.integers(0, 12))
        anchors.append(rng.integers(low, high, (count, 2)).astype(rng.choice(["i4", "i8"])))
    kind = anchors[0].dtype
    return [a.astype(kind) for a in anchors]


def at(
    pairs: list[Pair], anchors: list[Array], device: str, size: tuple[int, int], **arguments: Any
) -> list[Array]:
    """The windows at the anchors of each image."""
    return run(
        lambda l3, anchors: fn.l3.decode_windows(
            l3, anchors, device=device, window=size, **arguments
        ),
        device,
        {"l3": [p.l3 for p in pairs], "anchors": anchors},
    )[0]


def compare(
    pairs: list[Pair], device: str, anchors: list[Array], size: tuple[int, int], **arguments: Any
) -> list[Array]:
    """Compares `anchors` of windows with those that NumPy cuts out of whole images."""
    got = at(pairs, anchors, device, size, **arguments)
    wholes = decode([p.l3 for p in pairs], device)
    fill = np.array(arguments.get("fill_values", [0]))
    want = [windows_of(w, a, size, fill) for w, a in zip(wholes, anchors, strict=True)]
    assert_same(got, want, {"anchors": anchors})
    return got


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("size", [(1, 1), (4, 4), (4, 3), (2, 4)])
def test_anchors_inside(device: str, size: tuple[int, int], bits: int) -> None:
    rng = np.random.default_rng([bits, *size])
    pairs = make_pairs(10 + bits, BATCH, bits=bits)
    compare(pairs, device, draw_anchors(rng, pairs, size, beyond=False), size)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("size", [(1, 1), (40, 70), (150, 9)])
def test_anchors_anywhere_with_pad(device: str, size: tuple[int, int], bits: int) -> None:
    rng = np.random.default_rng([bits, *size])
    pairs = make_pairs(20 + bits, BATCH, bits=bits)
    anchors = draw_anchors(rng, pairs, size, beyond=True)
    compare(pairs, device, anchors, size, out_of_bounds_policy="pad", fill_values=[77.0])


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [(types.UINT16, [0, 7, 300, 65535]), (types.UINT8, [0, 7, 255, 255])],
    ids=str,
)
def test_files_of_8_and_16_bits(device: str, dtype: Any, wide: list[int]) -> None:
    """Samples keep their values, as the error says that a `dtype` avoids."""
    pairs = [
        make_pair(np.array([[[v] for v in row]], kind))
        for row, kind in (([0, 7, 200, 255], np.uint8), ([0, 7, 300, 65535], np.uint16))
    ]
    samples, row = [p.l3 for p in pairs], {"window": (1, 4), "stride": 1}
    with pytest.raises(
        RuntimeError, match="Set a `dtype` that holds the values of both, such as int32"
    ):
        call(NAME, samples, device, **row)
    ((narrow, cut),) = call(NAME, samples, device, dtype=dtype, **row)
    assert narrow.ravel().tolist() == [0, 7, 200, 255]
    assert cut.ravel().tolist() == wide
    assert narrow.dtype == cut.dtype == (np.uint16 if dtype == types.UINT16 else np.uint8)


@pytest.mark.parametrize("pad_output", [False, True])
@pytest.mark.parametrize(
    ("fill_values", "filled"),
    [
        ([7.9], [7, 7, 7, 7]),
        ([-3.5], [0, 0, 0, 0]),
        ([1, 2.5, 300], [1, 2, 255, 0]),
        ([1, 2, 3, 4], [1, 2, 3, 4]),
    ],
)
def test_fill_values(
    device: str, fill_values: list[float], filled: list[int], pad_output: bool
) -> None:
    """They are values of the output; the fourth channel has one too, where windows are padded."""
    pair = make_pair(np.full((2, 2, 3), 10, np.uint8))

    def decode_one(policy: str) -> Array:
        anchors = [np.array([[0, 1 if policy == "pad" else 0]], np.int32)]
        padded = {"out_of_bounds_policy": policy, "pad_output": pad_output}
        filled = {"fill_values": fill_values, "mean": [4.0], "std": [2.0]}
        return at([pair], anchors, device, (2, 2), **padded, **filled)[0]

    inside = [3, 3, 3, filled[3]] if pad_output else [3, 3, 3]
    if len(fill_values) == 4 and not pad_output:
        with pytest.raises(RuntimeError, match="`fill_values` must have one value or one for each"):
            decode_one("pad")
        return
    got = decode_one("pad")
    assert got[0, 0, 0].tolist() == inside
    assert got[0, 0, 1].tolist() == filled[: len(inside)]
    assert decode_one("error")[0, 0, 0].tolist() == ([3, 3, 3, 0] if pad_output else [3, 3, 3])


def test_as_many_windows_as_there_may_be(device: str) -> None:
    pair = make_pair(places(np.empty((256, 256, 1))))
    anchors = [np.argwhere(np.ones((256, 256))).astype(np.int32, order="C")]
    (grid_of,) = call(NAME, [pair.l3], device, window=1, stride=1)
    for (got,) in (grid_of, at([pair], anchors, device, (1, 1))):
        np.testing.assert_array_equal(got.reshape(256, 256, 2), pair.image)


@pytest.mark.parametrize("channels", [3, 5, 8])
def test_no_windows(device: str, channels: int) -> None:
    data = np.frombuffer(l3dali.encode(np.full((9, 9, channels), 7, np.uint8)), np.uint8)
    anchors = [np.zeros((count, 2), np.int32) for count in (0, 2, 0)]
    (out,) = run(
        lambda l3, anchors: fn.l3.decode_windows(l3, anchors, device=device, window=(4, 5)),
        device,
        {"l3": [data] * 3, "anchors": anchors},
    )
    assert_same(out, [np.full((len(a), 4, 5, channels), 7, np.uint8) for a in anchors])
    ((got,),) = call(NAME, [data], device, window=(4, 5), count=0)
    assert got.shape == (0, 4, 5, channels)


def test_windows_of_many_groups_take_the_memory_of_their_pixels() -> None:
    """4,096 groups, whose pixels are 4 MB: a plan for each window of each took 1.1 GB."""
    run = [sys.executable, "-c", MANY_GROUPS]
    environment = child_environment()
    done = subprocess.run(run, capture_output=True, text=True, check=True, env=environment)
    assert int(done.stdout) < 64 << 20


MANY_GROUPS = """
import numpy as np
import peaks
import l3dali
import l3dali.plugin
from nvidia.dali import fn, pipeline_def

image = np.zeros((8, 32, 4096), np.uint8)
data = np.frombuffer(l3dali.encode(image, groups=[[c] for c in range(4096)]), np.uint8)


@pipeline_def(batch_size=1, num_threads=2, device_id=None)
def pipeline(count):
    l3 = fn.external_source(lambda: [data], batch=True)
    return fn.l3.decode_windows(l3, window=[1, 1], count=count)


def run(count):
    (out,) = pipeline(count).run()
    assert out[0].shape() == [count, 1, 1, 4096]
    return peaks.peak()


print(-run(1) + run(1000))
"""


def test_far_anchors_are_padding(device: str) -> None:
    pair = make_pair(np.full((9, 9, 1), 5, np.uint8))
    far = [np.array([[2**62, 0], [-(2**62), -(2**63)], [0, 0]], np.int64)]
    compare([pair], device, far, (9, 9), out_of_bounds_policy="pad")


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
@pytest.mark.parametrize("dtype", [types.FLOAT, types.UINT8, types.FLOAT16], ids=str)
def test_normalized(device: str, dtype: Any, layout: str, channels: int) -> None:
    """Equal to a crop_mirror_normalize of each window."""
    rng = np.random.default_rng([channels])
    pairs = make_pairs(30 + channels, BATCH, channels=[channels])
    size = (4, 3)
    anchors = draw_anchors(rng, pairs, size, beyond=False)
    affine = {
        "mirror": list(rng.integers(0, 2, BATCH).astype(np.int32)),
        "mean": [rng.uniform(0, 255, channels).astype(np.float32) for _ in pairs],
        "std": [rng.uniform(1, 100, channels).astype(np.float32) for _ in pairs],
    }
    fixed: dict[str, Any] = {"dtype": dtype, "output_layout": layout, "scale": 3.0, "shift": 0.5}
    fixed["pad_output"] = True
    (got,) = run(
        lambda l3, anchors, **nodes: fn.l3.decode_windows(
            l3, anchors, device=device, window=size, **nodes, **fixed
        ),
        device,
        {"l3": [p.l3 for p in pairs], "anchors": anchors, **affine},
    )
    some = [i for i, a in enumerate(anchors) if len(a)]
    columns = {"l3": [pairs[i].l3 for i in some]}
    columns |= {name: [values[i] for i in some] for name, values in affine.items()}
    for axis, name in enumerate(["crop_pos_y", "crop_pos_x"]):
        room = [max(1, pairs[i].image.shape[axis] - size[axis]) for i in some]
        last = [anchors[i][-1][axis] for i in some]
        columns[name] = [np.float32(a / r) for a, r in zip(last, room, strict=True)]
    (want,) = run(
        lambda l3, **nodes: fn.l3.decode_crop_mirror_normalize(
            l3, device=device, crop=size, **nodes, **fixed
        ),
        device,
        columns,
    )
    assert_same([got[i][-1] for i in some], want)


def grid(image_px: int, window_px: int, stride: int, *, covers: bool) -> list[int]:
    if not covers:
        return list(range(0, max(image_px - window_px, 0) + 1, stride))
    starts = [0]
    while starts[-1] + window_px < image_px and starts[-1] + stride < image_px:
        starts.append(starts[-1] + stride)
    return starts


@pytest.mark.parametrize("policy", ["error", "pad"])
@pytest.mark.parametrize("stride", [(1, 1), (3, 2), (4, 4), (9, 5)])
def test_grids(device: str, stride: tuple[int, int], policy: str) -> None:
    pairs = make_pairs(50, BATCH, side=40)
    size = (4, 4)
    samples = [p.l3 for p in pairs]
    (got,) = call(NAME, samples, device, window=size, stride=stride, out_of_bounds_policy=policy)
    want = []
    for pair in pairs:
        ys, xs = (
            grid(pair.image.shape[i], size[i], stride[i], covers=policy == "pad") for i in (0, 1)
        )
        anchors = np.array([(y, x) for y in ys for x in xs])
        want.append(windows_of(pair.image, anchors, size, np.zeros(1)))
    assert_same(got, want)


def test_a_grid_over_a_small_image(device: str) -> None:
    pair = make_pair(make_image(np.random.default_rng(1), (5, 30, 3)))
    grid_of = {"window": (8, 8), "stride": (8, 8)}
    with pytest.raises(RuntimeError, match=r"\[0\.\.8, .* for image dimensions \[5 x 30\]"):
        call(NAME, [pair.l3], device, **grid_of)
    ((got,),) = call(NAME, [pair.l3], device, out_of_bounds_policy="pad", **grid_of)
    anchors = np.array([(0, x) for x in (0, 8, 16, 24)])
    np.testing.assert_array_equal(got, windows_of(pair.image, anchors, (8, 8), np.zeros(1)))


def places(image: Array) -> Array:
    """An image whose pixels say where they are."""
    height, width = image.shape[:2]
    corners = np.argwhere(np.ones((height, width)))
    out: Array = corners.reshape(height, width, 2).astype(np.uint16, order="C")
    return out


def test_random_places(device: str) -> None:
    """Each place is drawn, none out of the image, and no two batches are alike."""
    pair = make_pair(places(np.empty((12, 20, 1))))

    def define(l3: Any, **arguments: Any) -> Any:
        return fn.l3.decode_windows(l3, device=device, window=(4, 5), count=300, **arguments)

    runs = run(lambda l3: define(l3, seed=3), device, {"l3": [pair.l3] * 2}, runs=2)
    drawn = [{tuple(corner) for corner in sample[:, 0, 0]} for batch in runs for sample in batch]
    for sample in drawn:
        assert sample <= {(y, x) for y in range(9) for x in range(16)}
    assert set().union(*drawn) == {(y, x) for y in range(9) for x in range(16)}
    corners = [sample[:, 0, 0].tolist() for batch in runs for sample in batch]
    assert len({str(c) for c in corners}) == 4
    again = run(lambda l3: define(l3, seed=3), device, {"l3": [pair.l3] * 2}, runs=2)
    assert_same(runs[0] + runs[1], again[0] + again[1])
    first = runs[0][0]
    y, x = first[:, :1, :1, 0], first[:, :1, :1, 1]
    np.testing.assert_array_equal(first[..., 0], y + np.arange(4)[:, None] + np.zeros(5))
    np.testing.assert_array_equal(first[..., 1], x + np.arange(5) + np.zeros((4, 1)))


def test_random_places_larger_than_the_image(device: str) -> None:
    pair = make_pair(places(np.empty((6, 20, 1))) + 1)
    drawn: dict[str, Any] = {"window": (9, 5), "count": 50, "seed": 1}
    ((got,),) = call(NAME, [pair.l3], device, out_of_bounds_policy="pad", **drawn)
    assert got.shape == (50, 9, 5, 2)
    assert ((got[..., 0] != 0).sum(axis=1) == 6).all()  # all rows of the image are in each


def test_random_sizes(device: str) -> None:
    """One size for the windows of a sample, within the ranges."""
    pair = make_pair(places(np.empty((100, 140, 1))))
    ranges = {"random_area": (0.1, 0.3), "random_aspect_ratio": (0.5, 2.0)}
    (got,) = call(NAME, [pair.l3] * 30, device, count=7, **ranges)
    sizes = {sample.shape for sample in got}
    assert len(sizes) > 20
    for count, height, width, _ in sizes:
        assert count == 7
        assert 0.09 < height * width / 14000 < 0.32
        assert 0.45 < width / height < 2.2
    assert len({tuple(c) for sample in got for c in sample[:, 0, 0]}) > 150


def test_counts_and_sizes_by_sample(device: str) -> None:
    pairs = make_pairs(60, 6, channels=[3])
    counts = [np.int32(n) for n in (0, 1, 2, 5, 0, 3)]
    sizes = [np.array([1 + n % 4, 4 - n % 4], np.int32) for n in range(6)]
    (got,) = run(
        lambda l3, count, window: fn.l3.decode_windows(
            l3, device=device, window=window, count=count
        ),
        device,
        {"l3": [p.l3 for p in pairs], "count": counts, "window": sizes},
    )
    assert [g.shape for g in got] == [
        (count, *size, 3) for count, size in zip(counts, sizes, strict=True)
    ]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation(device: str, orientation: int) -> None:
    rng = np.random.default_rng(orientation)
    pairs = [make_pair(make_image(rng, (40 + i, 70, 3)), orientation) for i in range(4)]
    compare(pairs, device, draw_anchors(rng, pairs, (9, 11), beyond=False), (9, 11))


def test_layout_is_that_of_a_sequence(device: str) -> None:
    """Operators for sequences take windows as frames."""
    pair = make_pair(make_image(np.random.default_rng(1), (40, 50, 3)))

    def define() -> Any:
        windows = fn.l3.decode_windows(
            source([pair.l3]), device=device, window=(8, 8), stride=(16, 16)
        )
        return windows, fn.resize(windows, size=(4, 4))

    windows, resized = pipeline(define, device, 1).run()
    assert windows.layout() == "FHWC"
    assert unpack(resized)[0].shape == (len(unpack(windows)[0]), 4, 4, 3)


def test_damage_and_status(device: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Damage in a tile that a window touches fails the sample; elsewhere it goes unseen."""
    image = make_image(np.random.default_rng(1), (64, 64, 3))
    data = bytearray(l3dali.encode(image, tile=(8, 32), coding="packed"))
    data[-20] ^= 1
    anchors = [np.array(a, np.int32) for a in ([(0, 0), (50, 20)], [(0, 0), (60, 60)], [(99, 0)])]
    sample = as_sample(data)

    def define(l3: Any, anchors: Any, **arguments: Any) -> Any:
        return fn.l3.decode_windows(l3, anchors, device=device, window=(4, 4), **arguments)

    columns = {"l3": [sample] * 3, "anchors": anchors}
    images, statuses = run(
        lambda l3, anchors: define(l3, anchors, on_error="zero", return_status=True),
        device,
        columns,
    )
    assert [int(s) for s in statuses] == [0, 7, 9]
    assert [i.shape for i in images] == [(2, 4, 4, 3), (2, 4, 4, 3), (1, 4, 4, 3)]
    np.testing.assert_array_equal(images[0], windows_of(image, anchors[0], (4, 4), np.zeros(1)))
    assert not images[1].any()
    assert not images[2].any()
    capfd.readouterr()
    with pytest.raises(RuntimeError, match=r"failed at sample 1.*kChecksumMismatch"):
        run(define, device, {"l3": [sample] * 2, "anchors": anchors[:2]})
    with pytest.raises(RuntimeError, match=r"window \[99\.\.103, .*\] of sample 0 is"):
        run(define, device, {"l3": [sample], "anchors": [anchors[2]]})


def test_max_pixels_counts_all_windows(device: str) -> None:
    pair = make_pair(make_image(np.random.default_rng(1), (40, 50, 3)))
    limited = {"window": (10, 10), "max_pixels": 799}
    call(NAME, [pair.l3], device, count=7, **limited)
    with pytest.raises(RuntimeError, match=r"8 windows of 10 x 10 pixels.*`max_pixels`, 799"):
        call(NAME, [pair.l3], device, count=8, **limited)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"window": (4, 4)}, "got 0 of them"),
    ({"window": (4, 4), "stride": (4, 4), "count": 3}, "got 2 of them"),
    ({"stride": (4, 4)}, "`window`.* is missing"),
    ({"window": (4, 4), "stride": (4, 4), "random_area": (0.1, 0.2)}, "need `count`"),
    ({"window": (4, 4), "count": 1, "random_area": (0.1, 0.2)}, "`window` cannot be combined"),
    ({"window": (0, 4), "count": 1}, "0 x 4 pixels .*both must be 1"),
    ({"window": (4, 4), "stride": (4, 0)}, r"`stride` of sample 0 is \(4, 0\)"),
    ({"window": (4, 4), "count": -1}, "`count` of sample 0 .*got -1"),
    ({"window": (1, 1), "count": 65537}, "`count` of sample 0 .*got 65537"),
    ({"window": (4, 4), "count": 1, "out_of_bounds_policy": "trim_to_shape"}, "cannot be trim"),
    (
        {"window": (4, 4), "count": 1, "out_of_bounds_policy": "wrap"},
        "`out_of_bounds_policy` must be",
    ),
    ({"window": (4, 4), "count": 1, "output_type": types.YCbCr}, "YCbCr cannot be normalized"),
    ({"window": (4, 4), "count": 1, "mean": [1.0, 2.0]}, "has 3 channels"),
    ({"window": (41, 4), "count": 1}, r"window \[0\.\.41, "),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[str(a) for a, _ in REFUSED])
def test_refused_arguments(device: str, arguments: dict[str, Any], message: str) -> None:
    pair = make_pair(make_image(np.random.default_rng(1), (40, 50, 3)))
    with pytest.raises(RuntimeError, match=message):
        call(NAME, [pair.l3], device, **arguments)


@pytest.mark.parametrize(
    ("anchors", "message"),
    [
        (np.zeros((3, 3), np.int32), "N x 2"),
        (np.zeros(2, np.int32), "N x 2"),
        (np.zeros((3, 2), np.float32), "int32 or int64"),
        (np.zeros((65537, 2), np.int32), "65537 x 1 windows; more than 65536"),
    ],
)
def test_refused_anchors(device: str, anchors: Array, message: str) -> None:
    pair = make_pair(make_image(np.random.default_rng(1), (40, 50, 3)))
    with pytest.raises(RuntimeError, match=message):
        at([pair], [anchors], device, (1, 1))


def test_a_grid_of_too_many(device: str) -> None:
    pair = make_pair(np.zeros((300, 300, 1), np.uint8))
    with pytest.raises(RuntimeError, match="300 x 300 windows; more than 65536"):
        call(NAME, [pair.l3], device, window=(1, 1), stride=(1, 1))


def test_checkpoints(device: str) -> None:
    """Random places go on where a checkpoint was taken."""
    pair = make_pair(places(np.empty((50, 60, 1))))

    def make(checkpoint: str | None = None) -> Any:
        def define() -> Any:
            encoded = fn.constant(idata=pair.l3.tolist(), dtype=types.UINT8)
            return fn.l3.decode_windows(encoded, device=device, window=(1, 1), count=9, seed=2)

        return pipeline(define, device, 2, enable_checkpointing=True, checkpoint=checkpoint)

    whole = make()
    for _ in range(3):
        whole.run()
    rest = make(whole.checkpoint())
    for _ in range(2):
        assert_same(unpack(rest.run()[0]), unpack(whole.run()[0]))


@pytest.mark.parametrize("coding", codec.CODINGS)
def test_overlapping_windows_of_a_large_image(device: str, coding: codec.Coding) -> None:
    """Tiles of several tasks, and windows that share them."""
    image = make_image(np.random.default_rng(4), (1100, 1300, 3))
    data = l3dali.encode(image, coding=coding)
    rng = np.random.default_rng(5)
    anchors = rng.integers(0, (1100 - 256, 1300 - 300), (16, 2)).astype(np.int32)
    ((got,),) = run(
        lambda l3, anchors: fn.l3.decode_windows(l3, anchors, device=device, window=(256, 300)),
        device,
        {"l3": [as_sample(data)], "anchors": [anchors]},
    )
    np.testing.assert_array_equal(got, windows_of(image, anchors, (256, 300), np.zeros(1)))
