"""Windows: `fn.l3.decode_crop`, `decode_slice` and `decode_random_crop` beside DALI's decoders.

DALI decodes the PNG file and ours the L3 file of the same pixels, with the same random
arguments; the outputs must be equal, and so must the verdict on arguments out of bounds.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from dali_tools import (
    Array,
    Pair,
    assert_same,
    files,
    make_image,
    make_pair,
    make_pairs,
    pipeline,
    random_shape,
    run,
    unpack,
)
from nvidia.dali import fn, types

pytestmark = pytest.mark.dali

BATCH = 80
COUNTERPARTS = {
    "decode": "image",
    "decode_crop": "image_crop",
    "decode_slice": "image_slice",
    "decode_random_crop": "image_random_crop",
}


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return make_pairs(1, 40)


@pytest.fixture(scope="module")
def oriented() -> list[Pair]:
    rng = np.random.default_rng(2)
    images = [make_image(rng, random_shape(rng, 3)) for _ in range(40)]
    return [make_pair(image, 1 + i % 8) for i, image in enumerate(images)]


def compare(
    name: str,
    pairs: list[Pair],
    device: str,
    named: dict[str, list[Array]],
    positional: tuple[list[Array], ...] = (),
    **fixed: Any,
) -> list[Array]:
    """Runs DALI's operator and ours over the pairs and compares; returns what came out."""

    def define(png: Any, l3: Any, **nodes: Any) -> Any:
        inputs = [nodes.pop(f"input{i}") for i in range(len(positional))]
        theirs = getattr(fn.decoders, COUNTERPARTS[name])
        ours = getattr(fn.l3, name)
        any_type = {"output_type": types.ANY_DATA, **fixed}
        return (
            theirs(png, *inputs, **nodes, **any_type),
            ours(l3, *inputs, device=device, **nodes, **fixed),
        )

    columns = named | {f"input{i}": column for i, column in enumerate(positional)}
    theirs, ours = run(define, device, files(pairs) | columns)
    assert_same(ours, theirs, columns)
    return ours


def draw(pairs: list[Pair], rng: np.random.Generator) -> list[Pair]:
    return [pairs[i] for i in rng.integers(0, len(pairs), BATCH)]


def shown_size(pair: Pair) -> Array:
    return np.array(pair.shown_size)


def floats(values: Any) -> list[Array]:
    return [np.asarray(value, np.float32) for value in values]


@pytest.fixture(params=["pairs", "oriented"])
def drawn(request: pytest.FixtureRequest, seed: int) -> list[Pair]:
    """A batch of pairs, with and without orientations."""
    return draw(request.getfixturevalue(request.param), np.random.default_rng(seed))


@pytest.mark.parametrize("rounding", ["round", "truncate"])
@pytest.mark.parametrize("seed", [10, 11])
def test_crop_sides(drawn: list[Pair], device: str, seed: int, rounding: str) -> None:
    rng = np.random.default_rng(seed)
    # 0 means the whole side; fractions are cut off.
    sizes = [rng.uniform(0, shown_size(p) + 1) * (rng.random(2) < 0.9) for p in drawn]
    sizes = [np.minimum(size, shown_size(p)) for size, p in zip(sizes, drawn, strict=True)]
    named = {
        "crop_h": floats([size[0] for size in sizes]),
        "crop_w": floats([size[1] for size in sizes]),
        "crop_pos_x": floats(rng.random(BATCH)),
        "crop_pos_y": floats(rng.random(BATCH)),
    }
    compare("decode_crop", drawn, device, named, rounding=rounding)


@pytest.mark.parametrize("rounding", ["round", "truncate"])
@pytest.mark.parametrize("seed", [12])
def test_crop_pair(drawn: list[Pair], device: str, seed: int, rounding: str) -> None:
    rng = np.random.default_rng(seed)
    named = {
        "crop": floats([rng.integers(0, shown_size(p) + 1) for p in drawn]),
        # Halves, where roundings part.
        "crop_pos_x": floats(rng.integers(0, 5, BATCH) / 4),
        "crop_pos_y": floats(rng.integers(0, 5, BATCH) / 4),
    }
    compare("decode_crop", drawn, device, named, rounding=rounding)


def test_crop_of_constants(pairs: list[Pair], device: str) -> None:
    compare("decode_crop", pairs, device, {}, crop=(3, 4))
    compare("decode_crop", pairs, device, {}, crop=(2, 3), crop_pos_x=0.0, crop_pos_y=1.0)
    whole = compare("decode_crop", pairs, device, {})
    assert_same(whole, [pair.image for pair in pairs])


def relative_spans(rng: np.random.Generator, sides: Array) -> tuple[Array, Array]:
    """Begin and end in [0, 1], two pixels apart or more; often between pixels, where float
    and double round apart.
    """
    begin_px = rng.integers(0, sides - 2)
    end_px = rng.integers(begin_px + 2, sides)
    between = rng.choice([0.5, rng.random()])
    return (begin_px + between) / sides, (end_px + between) / sides


def pixel_spans(rng: np.random.Generator, sides: Array) -> tuple[Array, Array]:
    begin = rng.integers(0, sides)
    return begin, rng.integers(begin + 1, sides + 1)


AXES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "default": ({}, [1, 0]),
    "HW": ({"axes": (0, 1)}, [0, 1]),
    "H": ({"axes": (0,)}, [0]),
    "last": ({"axes": (-1,)}, [1]),
    "last two": ({"axes": (-2, -1)}, [0, 1]),
    "named WH": ({"axis_names": "WH"}, [1, 0]),
    "named HW": ({"axis_names": "HW"}, [0, 1]),
    "named H": ({"axis_names": "H"}, [0]),
    "named W": ({"axis_names": "W"}, [1]),
}


def compare_slices(
    drawn: list[Pair], device: str, columns: dict[str, list[Array]], **fixed: Any
) -> None:
    """Compares slices given in every way; `columns` has start, end and shape, by their names."""
    start, end, shape = columns
    for names in ((start, end), (start, shape), (start,), (end,), (shape,)):
        named = {name: columns[name] for name in names}
        compare("decode_slice", drawn, device, named, **fixed)
    compare("decode_slice", drawn, device, {}, (columns[start], columns[shape]), **fixed)


@pytest.mark.parametrize("axes", [*AXES][::2])
@pytest.mark.parametrize("seed", [20])
def test_slice_in_pixels(drawn: list[Pair], device: str, seed: int, axes: str) -> None:
    rng = np.random.default_rng(seed)
    fixed, order = AXES[axes]
    spans = [pixel_spans(rng, shown_size(p)[order]) for p in drawn]
    begin = [np.asarray(b, np.int32) for b, _ in spans]
    end = [np.asarray(e, np.int32) for _, e in spans]
    shape = [e - b for b, e in zip(begin, end, strict=True)]
    as_is = {"normalized_anchor": False, "normalized_shape": False}
    compare_slices(drawn, device, {"start": begin, "end": end, "shape": shape}, **fixed)
    for kind in (np.float32, np.int64):
        inputs = tuple([np.asarray(v, kind) for v in column] for column in (begin, shape))
        compare("decode_slice", drawn, device, {}, inputs, **fixed, **as_is)


@pytest.mark.parametrize("axes", [*AXES][1::2])
@pytest.mark.parametrize("seed", [21])
def test_slice_in_parts(drawn: list[Pair], device: str, seed: int, axes: str) -> None:
    rng = np.random.default_rng(seed)
    fixed, order = AXES[axes]
    spans = [relative_spans(rng, shown_size(p)[order]) for p in drawn]
    begin = [np.asarray(b, np.float32) for b, _ in spans]
    end = [np.asarray(e, np.float32) for _, e in spans]
    shape = [np.asarray(e - b, np.float32) for b, e in spans]
    compare_slices(drawn, device, {"rel_start": begin, "rel_end": end, "rel_shape": shape}, **fixed)


@pytest.mark.parametrize("seed", [22])
def test_slice_of_both_units(drawn: list[Pair], device: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sides = [shown_size(p)[::-1] for p in drawn]
    begin_px = [rng.integers(0, side // 2) for side in sides]
    begin = [(b / side) for b, side in zip(begin_px, sides, strict=True)]
    length = [rng.uniform(2 / side, 0.5) for side in sides]
    length_px = [np.ceil(v * side) for v, side in zip(length, sides, strict=True)]
    pixels = [np.asarray(v, np.int32) for v in begin_px]
    relative = {"rel_shape": floats(length)}
    compare("decode_slice", drawn, device, {"start": pixels, **relative})
    end = floats(b + v for b, v in zip(begin, length, strict=True))
    compare("decode_slice", drawn, device, {"start": pixels, "rel_end": end})
    lengths = [np.asarray(v, np.int32) for v in length_px]
    compare("decode_slice", drawn, device, {"rel_start": floats(begin), "shape": lengths})
    for anchor, shape, units in [
        (begin, length_px, {"normalized_shape": False}),
        (begin_px, length, {"normalized_anchor": False}),
    ]:
        compare("decode_slice", drawn, device, {}, (floats(anchor), floats(shape)), **units)


@pytest.mark.parametrize("seed", [23])
def test_axes_of_each_sample(drawn: list[Pair], device: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    axes = [rng.permutation(2).astype(np.int32) for _ in drawn]
    spans = [pixel_spans(rng, shown_size(p)[order]) for p, order in zip(drawn, axes, strict=True)]
    start, end = ([np.asarray(span[i], np.int32) for span in spans] for i in (0, 1))
    compare("decode_slice", drawn, device, {"start": start, "end": end, "axes": axes})


def test_slice_of_constants(pairs: list[Pair], device: str) -> None:
    compare("decode_slice", pairs, device, {}, start=(1, 0), end=(4, 3))
    compare("decode_slice", pairs, device, {}, rel_start=(0.25, 0.0), rel_shape=(0.5, 0.75))
    compare("decode_slice", pairs, device, {}, start=1, end=3, axes=0)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_windows_hold_the_pixels(device: str, channels: int, bits: int) -> None:
    """Against the pixels themselves: DALI's decoder gives no second channel."""
    pairs = make_pairs(3, 40, channels=[channels], bits=bits)
    rng = np.random.default_rng(4)
    spans = [pixel_spans(rng, np.array(p.image.shape[:2])) for p in pairs]

    def define(l3: Any, begin: Any, end: Any) -> Any:
        return fn.l3.decode_slice(l3, device=device, start=begin, end=end, axis_names="HW")

    columns = {
        "l3": [p.l3 for p in pairs],
        "begin": [np.asarray(b, np.int32) for b, _ in spans],
        "end": [np.asarray(e, np.int32) for _, e in spans],
    }
    (ours,) = run(define, device, columns)
    want = [p.image[b[0] : e[0], b[1] : e[1]] for p, (b, e) in zip(pairs, spans, strict=True)]
    assert_same(ours, want)


RANDOM_CROPS: list[dict[str, Any]] = [
    {},
    {"random_area": (0.3, 0.4), "random_aspect_ratio": (0.5, 2.0)},
    {"random_area": 0.5},
    {"random_area": (0.9, 1.0), "num_attempts": 1},
    {"random_aspect_ratio": (4.0, 5.0), "num_attempts": 100},
    {"num_attempts": 0},
]


@pytest.mark.parametrize("fixed", RANDOM_CROPS, ids=str)
@pytest.mark.parametrize("seed", [30])
def test_random_crop(drawn: list[Pair], device: str, seed: int, fixed: dict[str, Any]) -> None:
    """The same seed gives DALI's windows, run after run."""
    runs = 3

    def define(png: Any, l3: Any) -> Any:
        options = {"seed": 77, **fixed}
        return (
            fn.decoders.image_random_crop(png, output_type=types.ANY_DATA, **options),
            fn.l3.decode_random_crop(l3, device=device, **options),
        )

    outputs = run(define, device, files(drawn), runs)
    for theirs, ours in zip(outputs[::2], outputs[1::2], strict=True):
        assert_same(ours, theirs)
    first, second = outputs[1], outputs[3]
    assert [o.shape for o in first] != [o.shape for o in second] or fixed == {"num_attempts": 0}


def test_random_crop_of_changing_batches(pairs: list[Pair], device: str) -> None:
    """Each place in the batch has its own random state, used or not."""
    sizes = [3, 40, 1, 17, 40]
    numbers = iter(sizes)

    def batch() -> tuple[list[Array], list[Array]]:
        chosen = files(pairs[: next(numbers)])
        return list(chosen["png"]), list(chosen["l3"])

    def define() -> Any:
        png, l3 = fn.external_source(batch, num_outputs=2, batch=True)
        return (
            fn.decoders.image_random_crop(png, output_type=types.ANY_DATA, seed=9),
            fn.l3.decode_random_crop(l3, device=device, seed=9),
        )

    pipe = pipeline(define, device, max(sizes), prefetch_queue_depth=1)
    for size in sizes:
        theirs, ours = (unpack(output) for output in pipe.run())
        assert len(ours) == size
        assert_same(ours, theirs)


def verdict(name: str, pair: Pair, device: str, inputs: list[Any], fixed: dict[str, Any]) -> Any:
    """What an operator gives for odd arguments: an array, or its error."""
    is_ours = name.startswith("decode")
    operator = getattr(fn.l3, name) if is_ours else getattr(fn.decoders, name)
    options = {"device": device} if is_ours else {"output_type": types.ANY_DATA}

    def define(encoded: Any, **nodes: Any) -> Any:
        return operator(encoded, *nodes.values(), **options, **fixed)

    columns = {"encoded": [pair.l3 if is_ours else pair.png]}
    columns |= {f"input{i}": [value] for i, value in enumerate(inputs)}
    try:
        return run(define, device, columns)[0][0]
    except RuntimeError as error:
        return error


Odd = tuple[str, list[Any], dict[str, Any]]
NAN = float("nan")
INF = float("inf")
# For an image of 50 x 70: most are refused, some have a meaning all the same.
ODD_CROPS: list[dict[str, Any]] = [
    {"crop": (60, 30)},
    {"crop": (20, 71)},
    {"crop": (20, 30), "crop_pos_x": 1.5},
    {"crop": (20, 30), "crop_pos_y": -0.5},
    {"crop": (20, 30), "crop_pos_x": NAN},
    {"crop": (20, 30), "crop_pos_x": INF},
    {"crop": (50, 70), "crop_pos_x": 7.0},
    {"crop": (0, 0)},
    {"crop": (-5, 10)},
    {"crop": (NAN, 10)},
    {"crop_w": 10.0, "crop_h": NAN, "crop_pos_y": 0.3},
    {"crop": (20,)},
    {"crop": (20, 30, 3)},
    {"crop": (20.9, 30.9)},
    {"crop_h": 10},
    {"crop_w": 0.0, "crop_h": 5},
    {"crop_d": 4.0, "crop": (20, 30)},
    {"crop_h": 10, "crop_w": 10, "crop": (20, 30)},
    {"crop": (20, 30), "rounding": "nearest"},
]
ODD_SLICES: list[dict[str, Any]] = [
    {},
    {"start": (10, 10), "end": (200, 30)},
    {"start": (-5, 10), "end": (20, 30)},
    {"start": (10, 10), "end": (5, 5)},
    {"start": (10, 10), "end": (10, 20)},
    {"start": (10, 10), "shape": (-5, 5)},
    {"start": (10, 10), "shape": (0, 0)},
    {"start": (70, 50)},
    {"start": (2**31 - 1, 0), "shape": (2**31 - 1, 5)},
    {"start": (-(2**31), 0), "shape": (2**31 - 1, 5)},
    {"start": (3, 4, 5), "end": (4, 5, 6)},
    {"start": (3, 4), "end": (5, 6), "shape": (3, 3)},
    {"start": (3, 4), "rel_start": (0.1, 0.1)},
    {"start": (3,), "end": (9,), "axes": (2,)},
    {"start": (3, 4), "end": (9, 9), "axes": ()},
    {"start": (3,), "end": (9,), "axes": (-3,)},
    {"start": (3, 4), "end": (9, 9), "axes": (0, 0)},
    {"start": (0,), "end": (2,), "axis_names": "C"},
    {"start": (0,), "end": (2,), "axis_names": "Q"},
    {"rel_start": (0.1, 0.2), "rel_end": (1.5, 0.5)},
    {"rel_start": (0.1, NAN), "rel_end": (0.5, 0.5)},
    {"rel_start": (0.1, 0.1), "rel_end": (INF, 0.5)},
    {"rel_start": (0.1, 0.1), "rel_shape": (NAN, 0.5)},
    {"rel_start": (0.1, 0.1), "rel_shape": (-0.05, 0.5)},
    {"rel_start": (0.1, 0.1), "rel_shape": (0.0, 0.5)},
    {"rel_start": (-1e30, 0.1), "rel_end": (0.5, 0.5)},
]
ODD_SLICE_INPUTS: list[tuple[Any, Any, type, dict[str, Any]]] = [
    ([0.1, 0.2], [1.3, 0.4], np.float32, {}),
    ([-0.1, 0.2], [0.3, 0.4], np.float32, {}),
    ([NAN, 0.2], [0.3, 0.4], np.float32, {}),
    ([0.1, 0.2], [NAN, 0.4], np.float32, {}),
    ([0.1, 0.2], [0.0, 0.0], np.float32, {}),
    ([0.1, 0.2], [-0.3, 0.4], np.float32, {}),
    ([1e30, 0.2], [0.3, 0.4], np.float32, {}),
    ([0.1], [0.3], np.float32, {}),
    ([0.1, 0.2, 0.3], [0.1, 0.1, 0.1], np.float32, {}),
    ([[0.1, 0.2]], [0.3, 0.4], np.float32, {}),
    ([0.1, 0.2], [0.3, 0.4], np.float64, {}),
    ([10, 20], [30, 10], np.int32, {"normalized_anchor": True}),
    ([60, 20], [30, 10], np.int32, {}),
    ([2**62, 0], [2**62, 5], np.int64, {}),
    ([-(2**62), 0], [2**62, 5], np.int64, {}),
    ([60, 20], [30, 10], np.uint8, {}),
]
ODD_RANDOM_CROPS: list[dict[str, Any]] = [
    {"num_attempts": -1},
    {"random_area": (0.5, 0.1)},
    {"random_area": (-1.0, 0.1)},
    {"random_area": (0.0, 2.0)},
    {"random_area": (NAN, 2.0)},
    {"random_area": (0.1, INF)},
    {"random_aspect_ratio": (0.0, 1.0)},
    {"random_aspect_ratio": (2.0, 1.0)},
    {"random_aspect_ratio": (-1.0, 1.0)},
    {"random_aspect_ratio": (1.0, NAN)},
]
ODD: list[Odd] = [
    *(("decode_crop", [], fixed) for fixed in ODD_CROPS),
    *(("decode_slice", [], fixed) for fixed in ODD_SLICES),
    *(
        ("decode_slice", [np.array(anchor, kind), np.array(shape, kind)], fixed)
        for anchor, shape, kind, fixed in ODD_SLICE_INPUTS
    ),
    ("decode_slice", [np.array([10, 10], np.int32)], {}),
    *(("decode_random_crop", [], {"seed": 5, **fixed}) for fixed in ODD_RANDOM_CROPS),
]


@pytest.mark.parametrize(
    ("name", "inputs", "fixed"),
    [
        pytest.param(*odd, id=f"{odd[0]}-{[a.tolist() for a in odd[1]]}-{odd[2]}".replace(" ", ""))
        for odd in ODD
    ],
)
def test_odd_arguments(device: str, name: str, inputs: list[Any], fixed: dict[str, Any]) -> None:
    """DALI's output where it gives one, an error where it gives one."""
    pair = make_pair(make_image(np.random.default_rng(5), (50, 70, 3)))
    theirs = verdict(COUNTERPARTS[name], pair, device, inputs, fixed)
    ours = verdict(name, pair, device, inputs, fixed)
    if isinstance(theirs, RuntimeError):
        assert isinstance(ours, RuntimeError), f"DALI refuses: {theirs}"
    else:
        assert not isinstance(ours, RuntimeError), ours
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "fixed",
    [
        {"crop": (1e10, 10)},
        {"crop": (10, -INF)},
    ],
    ids=str,
)
def test_sizes_that_no_integer_holds(device: str, fixed: dict[str, Any]) -> None:
    """DALI converts them to some integer; ours says what is wrong."""
    pair = make_pair(make_image(np.random.default_rng(5), (50, 70, 3)))
    ours = verdict("decode_crop", pair, device, [], fixed)
    assert isinstance(ours, RuntimeError)
    assert "must fit in 32 bits" in str(ours)


WRONG_WINDOW = re.compile(
    r"The cropping window (\[.+?\])(?: of sample 0)? is not valid for image dimensions (\[.+?\])"
)


@pytest.mark.parametrize(
    ("name", "inputs", "fixed"),
    [
        ("decode_crop", [], {"crop": (51.0, 10.0)}),
        ("decode_crop", [], {"crop": (60.0, 90.0), "crop_pos_x": 0.0, "crop_pos_y": 1.0}),
        ("decode_slice", [np.array([0.5, 0.5], np.float32), np.array([0.6, 0.1], np.float32)], {}),
        ("decode_slice", [], {"start": [-1, 3], "shape": [2, 2], "axes": [0, 1]}),
    ],
)
def test_windows_outside_are_reported_in_dalis_words(
    device: str, name: str, inputs: list[Any], fixed: dict[str, Any]
) -> None:
    pair = make_pair(make_image(np.random.default_rng(5), (50, 70, 3)))
    verdicts = (verdict(each, pair, device, inputs, fixed) for each in (COUNTERPARTS[name], name))
    theirs, ours = (WRONG_WINDOW.search(str(error)) for error in verdicts)
    assert theirs is not None
    assert ours is not None
    assert ours.groups() == theirs.groups()


def test_window_outside_names_the_sample(pairs: list[Pair], device: str) -> None:
    sizes = [np.array([3.0, 4.0], np.float32)] * 3 + [np.array([500.0, 4.0], np.float32)]

    def define(l3: Any, crop: Any) -> Any:
        return fn.l3.decode_crop(l3, crop=crop, device=device)

    with pytest.raises(RuntimeError, match=r"sample 3 is not valid.*policy=\"pad\""):
        run(define, device, {"l3": [p.l3 for p in pairs[:4]], "crop": sizes})
