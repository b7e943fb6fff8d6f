"""Types, orientation and shapes: `fn.l3.decode` and `fn.l3.peek_shape` beside DALI's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dali_tools import (
    OUTPUT_TYPES,
    Array,
    Pair,
    as_sample,
    assert_same,
    call,
    decode,
    exif_of,
    files,
    make_image,
    make_pair,
    make_pairs,
    pipeline,
    random_shape,
    run,
    source,
)
from nvidia.dali import fn, types

import l3dali

pytestmark = pytest.mark.dali

DTYPES = {
    "uint8": types.UINT8,
    "int8": types.INT8,
    "uint16": types.UINT16,
    "int16": types.INT16,
    "uint32": types.UINT32,
    "int32": types.INT32,
    "float": types.FLOAT,
}
REFUSED_DTYPES = {
    "uint64": types.UINT64,
    "float64": types.FLOAT64,
    "bool": types.BOOL,
    "string": types.STRING,
}


def all_values(bits: int) -> Array:
    """Every gray value of a type."""
    side = 1 << bits // 2
    return np.arange(1 << bits).astype(f"u{bits // 8}").reshape(side, side, 1)


@pytest.fixture(scope="module")
def pairs() -> dict[int, list[Pair]]:
    """Pairs by channels: both depths, all gray values, and colours far and near."""
    rng = np.random.default_rng(1)
    made: dict[int, list[Pair]] = {}
    for channels in (1, 2, 3, 4):
        images = [np.repeat(all_values(bits), channels, axis=2) for bits in (8, 16)]
        for bits in (8, 16):
            top = (1 << bits) - 1
            values = rng.integers(0, top + 1, (96, 96, channels))
            images.append(values.astype(f"u{bits // 8}"))
            extremes = rng.choice([0, 1, top // 2, top // 2 + 1, top - 1, top], (40, 40, channels))
            images.append(extremes.astype(f"u{bits // 8}"))
            images.append(make_image(rng, (50, 70, channels), bits))
        made[channels] = [make_pair(image) for image in images]
    return made


def both(pairs: list[Pair], device: str, **fixed: Any) -> tuple[list[Array], list[Array]]:
    """What our decoder gives where values fill the range of a type, and what DALI's does."""

    def define(png: Any, l3: Any) -> Any:
        ours = fn.l3.decode(l3, device=device, fill_range=True, **fixed)
        return fn.decoders.image(png, **fixed), ours

    theirs, ours = run(define, device, files(pairs))
    return ours, theirs


def peek(samples: list[Array], **arguments: Any) -> list[Array]:
    """What `fn.l3.peek_shape` gives."""
    return call("peek_shape", samples, "cpu", **arguments)[0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("output_type", OUTPUT_TYPES)
def test_conversions(
    pairs: dict[int, list[Pair]], device: str, output_type: str, dtype: str
) -> None:
    for channels in (1, 2, 3, 4):
        if (channels, output_type) == (2, "ANY_DATA"):
            continue  # DALI cannot; below
        chosen = pairs[channels]
        kinds = {"output_type": OUTPUT_TYPES[output_type], "dtype": DTYPES[dtype]}
        assert_same(*both(chosen, device, **kinds))


@pytest.mark.parametrize("output_type", OUTPUT_TYPES)
@pytest.mark.parametrize("bits", [8, 16])
def test_stored_type_is_the_default(
    pairs: dict[int, list[Pair]], device: str, output_type: str, bits: int
) -> None:
    for channels in (1, 3, 4):
        chosen = [p for p in pairs[channels] if p.image.itemsize * 8 == bits]
        dtype = types.UINT8 if bits == 8 else types.UINT16

        def define(png: Any, l3: Any, dtype: Any = dtype) -> Any:
            kind = OUTPUT_TYPES[output_type]
            return (
                fn.decoders.image(png, output_type=kind, dtype=dtype),
                fn.l3.decode(l3, device=device, output_type=kind),
            )

        theirs, ours = run(define, device, files(chosen))
        assert_same(ours, theirs)


def test_second_channel_converts_like_any_other(pairs: dict[int, list[Pair]], device: str) -> None:
    """Gray with alpha as stored: DALI's decoder cannot, so gray alone is compared."""
    images = [p.image for p in pairs[2]]
    planes = [
        make_pair(np.ascontiguousarray(image[..., c : c + 1])) for image in images for c in (0, 1)
    ]
    for dtype in DTYPES.values():
        together = decode([p.l3 for p in pairs[2]], device, dtype=dtype)
        apart = decode([p.l3 for p in planes], device, dtype=dtype)
        joined = [np.concatenate(apart[i : i + 2], axis=2) for i in range(0, len(apart), 2)]
        assert_same(together, joined)


def test_channels_may_differ_in_a_batch(pairs: dict[int, list[Pair]], device: str) -> None:
    mixed = [pairs[channels][0] for channels in (1, 3, 4, 1, 4)]
    for kind in ("ANY_DATA", "RGB", "GRAY"):
        assert_same(*both(mixed, device, output_type=OUTPUT_TYPES[kind], dtype=types.UINT8))


@pytest.mark.parametrize("dtype", REFUSED_DTYPES)
def test_types_that_dali_refuses(pairs: dict[int, list[Pair]], device: str, dtype: str) -> None:
    def define(png: Any) -> Any:
        return fn.decoders.image(png, dtype=REFUSED_DTYPES[dtype])

    pair = pairs[3][0]
    with pytest.raises(RuntimeError):
        run(define, device, {"png": [pair.png]})
    with pytest.raises(RuntimeError, match="dtype"):
        decode([pair.l3], device, dtype=REFUSED_DTYPES[dtype])


# EXIF's orientations as NumPy's steps: transposed first, then each axis reversed or not.
TURNS = {
    1: (False, 1, 1),
    2: (False, 1, -1),
    3: (False, -1, -1),
    4: (False, -1, 1),
    5: (True, 1, 1),
    6: (True, 1, -1),
    7: (True, -1, -1),
    8: (True, -1, 1),
}


def turned(image: Array, orientation: int) -> Array:
    """The image as EXIF wants it shown; numbers that do not exist leave it alone."""
    transpose, down, right = TURNS.get(orientation, TURNS[1])
    return (image.transpose(1, 0, 2) if transpose else image)[::down, ::right]


@pytest.mark.parametrize("output_type", OUTPUT_TYPES)
def test_half_floats_are_rounded_floats(
    pairs: dict[int, list[Pair]], device: str, output_type: str
) -> None:
    """DALI's decoder has none."""
    samples = [p.l3 for p in pairs[3]]
    kind = {"output_type": OUTPUT_TYPES[output_type]}
    floats = decode(samples, device, dtype=types.FLOAT, **kind)
    halves = decode(samples, device, dtype=types.FLOAT16, **kind)
    assert_same(halves, [image.astype(np.float16) for image in floats])


@pytest.mark.parametrize("adjust", [True, False])
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_orientation(device: str, channels: int, bits: int, adjust: bool) -> None:
    rng = np.random.default_rng(2)
    orientations = (*range(1, 9), 0, 9, 255, 65535)
    pairs = [
        make_pair(make_image(rng, random_shape(rng, channels, (1, 90)), bits), o)
        for o in orientations
    ]
    ours = decode([p.l3 for p in pairs], device, adjust_orientation=adjust)
    wanted = zip(pairs, orientations, strict=True)
    assert_same(ours, [turned(p.image, o if adjust else 1) for p, o in wanted])
    for output_type in OUTPUT_TYPES.values():
        if output_type == types.ANY_DATA and channels in (2, 4):
            continue  # DALI's decoder has no second channel, and garbles a fourth that it turns
        kinds = {
            "output_type": output_type,
            "dtype": types.UINT8 if bits == 8 else types.UINT16,
            "adjust_orientation": adjust,
        }
        assert_same(*both(pairs, device, **kinds))


@pytest.mark.parametrize("order", ["<", ">"])
def test_byte_orders_of_exif(device: str, order: str) -> None:
    image = make_image(np.random.default_rng(3), (30, 20, 3))
    encoded = l3dali.encode(image, exif=exif_of(6, order))
    ours = decode([as_sample(encoded)], device)
    assert_same(ours, [np.rot90(image, -1)])


SHAPE_DTYPES = {
    "int32": types.INT32,
    "uint32": types.UINT32,
    "int64": types.INT64,
    "uint64": types.UINT64,
    "float": types.FLOAT,
    "float64": types.FLOAT64,
}


@pytest.mark.parametrize("adjust", [True, False])
@pytest.mark.parametrize("image_type", OUTPUT_TYPES)
def test_peek_shape(image_type: str, adjust: bool) -> None:
    rng = np.random.default_rng(5)
    pairs = make_pairs(5, 10) + make_pairs(6, 10, bits=16)
    pairs += [make_pair(make_image(rng, (30, 20, 3)), o) for o in range(10)]
    for dtype in SHAPE_DTYPES.values():
        options = {
            "image_type": OUTPUT_TYPES[image_type],
            "dtype": dtype,
            "adjust_orientation": adjust,
        }

        def define(png: Any, l3: Any, options: dict[str, Any] = options) -> Any:
            return fn.peek_image_shape(png, **options), fn.l3.peek_shape(l3, **options)

        theirs, ours = run(define, "cpu", files(pairs))
        assert_same(ours, theirs)


def test_peek_shape_gives_what_decode_does(pairs: dict[int, list[Pair]], device: str) -> None:
    samples = [p.l3 for channels in pairs for p in pairs[channels] if p.image.itemsize == 1]
    decoded = decode(samples, device)
    shapes = peek(samples)
    assert [tuple(shape) for shape in shapes] == [image.shape for image in decoded]
    assert {shape.dtype for shape in shapes} == {np.dtype(np.int64)}


def test_peek_shape_reads_no_tile(pairs: dict[int, list[Pair]]) -> None:
    whole = pairs[3][0].l3
    damaged = whole.copy()
    damaged[-20:] ^= 0x55
    with pytest.raises(l3dali.L3Error):
        l3dali.decode(damaged.tobytes())
    assert tuple(peek([damaged])[0]) == pairs[3][0].image.shape


@pytest.mark.parametrize("dtype", [types.UINT8, types.FLOAT16, types.BOOL], ids=str)
def test_peek_shape_refuses_types(pairs: dict[int, list[Pair]], dtype: Any) -> None:
    with pytest.raises(RuntimeError):
        peek([pairs[3][0].l3], dtype=dtype)


def test_layouts(pairs: dict[int, list[Pair]], device: str) -> None:
    def define() -> Any:
        encoded = source([pairs[3][0].l3])
        return fn.l3.decode(encoded, device=device), fn.l3.decode_crop(encoded, device=device)

    outputs = pipeline(define, device, 1).run()
    assert [output.layout() for output in outputs] == ["HWC", "HWC"]
