"""`fn.l3.decode_crop_mirror_normalize`: decode and fn.crop_mirror_normalize in one step."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from dali_tools import (
    OUTPUT_TYPES,
    Array,
    Pair,
    assert_same,
    call,
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

pytestmark = pytest.mark.dali

BATCH = 40
DTYPES = {
    "float": types.FLOAT,
    "float16": types.FLOAT16,
    "uint8": types.UINT8,
    "int8": types.INT8,
}
LAYOUTS = ("CHW", "HWC", "CWH", "WHC", "")


def compare(
    pairs: list[Pair],
    device: str,
    named: dict[str, list[Array]],
    *,
    decode: dict[str, Any] | None = None,
    **fixed: Any,
) -> list[Array]:
    """Compares one step with two: with our decode, and with DALI's where it keeps the type."""
    decode = decode or {}
    # DALI rounds halves that are ties up on the CPU, to even on the GPU; ours always to even.
    in_two_steps = fixed
    if fixed.get("dtype") == types.FLOAT16:
        in_two_steps = fixed | {"dtype": types.FLOAT}
    stored = types.UINT16 if pairs[0].image.itemsize == 2 else types.UINT8

    def define(png: Any, l3: Any, **nodes: Any) -> Any:
        any_type = {"output_type": types.ANY_DATA, "dtype": stored, **decode}
        decoded = [fn.l3.decode(l3, **decode)]
        if pairs[0].image.shape[2] != 2:  # DALI's decoder gives no second channel
            decoded.append(fn.decoders.image(png, **any_type))
        return (
            fn.l3.decode_crop_mirror_normalize(l3, device=device, **decode, **nodes, **fixed),
            *(fn.crop_mirror_normalize(node, **nodes, **in_two_steps) for node in decoded),
        )

    ours, *theirs = run(define, device, files(pairs) | named)
    for outputs in theirs:
        if fixed.get("dtype") == types.FLOAT16:
            with np.errstate(over="ignore"):
                outputs = [image.astype(np.float16) for image in outputs]
        assert_same(ours, outputs, named)
    return ours


def floats(values: Any) -> list[Array]:
    return [np.asarray(value, np.float32) for value in values]


def random_windows(rng: np.random.Generator, pairs: list[Pair], beyond: float) -> dict[str, Any]:
    """Windows as crop_h, crop_w and places; up to `beyond` times the image's sides."""
    sizes = [rng.uniform(1, np.array(p.image.shape[:2]) * beyond) for p in pairs]
    return {
        "crop_h": floats(size[0] for size in sizes),
        "crop_w": floats(size[1] for size in sizes),
        "crop_pos_x": floats(rng.random(len(pairs))),
        "crop_pos_y": floats(rng.random(len(pairs))),
    }


@pytest.mark.parametrize(("channels", "bits"), [(1, 16), (2, 8), (3, 8), (4, 16)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_random_arguments(device: str, dtype: str, channels: int, bits: int) -> None:
    rng = np.random.default_rng([channels, bits])
    pairs = make_pairs(40 + channels, BATCH, channels=[channels], bits=bits, side=70)
    top = (1 << bits) - 1
    policies = itertools.cycle(("error", "pad", "trim_to_shape"))
    for layout, policy in zip((*LAYOUTS, "CHW", "HWC"), policies, strict=False):
        named = random_windows(rng, pairs, 1.0 if policy == "error" else 1.6)
        named["mirror"] = list(rng.integers(0, 2, BATCH).astype(np.int32))
        count = int(rng.choice([1, channels]))
        fill_count = int(rng.choice([1, count]))
        named["mean"] = floats(rng.uniform(0, top, (BATCH, count)))
        named["std"] = floats(rng.uniform(top / 300, top / 2, (BATCH, count)))
        compare(
            pairs,
            device,
            named,
            dtype=DTYPES[dtype],
            output_layout=layout,
            out_of_bounds_policy=policy,
            rounding=str(rng.choice(["round", "truncate"])),
            pad_output=bool(rng.integers(2)),
            fill_values=[float(v) for v in rng.uniform(0, 100, fill_count)],
            scale=float(rng.choice([1.0, 50.0, 0.3])),
            shift=float(rng.choice([0.0, 7.25, -3.0])),
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_value(device: str, dtype: str) -> None:
    """Each 8-bit and 16-bit value, through sums whose roundings part."""
    for bits in (8, 16):
        side = 1 << bits // 2
        ramp = np.arange(1 << bits).astype(f"u{bits // 8}").reshape(side, side, 1)
        pairs = [make_pair(ramp)]
        for mean, std, scale, shift in [
            (0.0, 1.0, 1.0, 0.0),
            (123.675, 58.395, 1.0, 0.0),
            (127.5, 127.5, 1.0, 0.0),
            (0.5, 2.0, 1.0, 0.0),
            (33.3, 0.7, 0.1, 100.0),
            (1000.0, 3.0, -1.0, 0.5),
        ]:
            normalize: dict[str, Any] = {"mean": mean, "std": std, "scale": scale, "shift": shift}
            compare(pairs, device, {}, dtype=DTYPES[dtype], **normalize)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_defaults(device: str, channels: int) -> None:
    ours = compare(make_pairs(50, BATCH // 2, channels=[channels]), device, {})
    assert {image.dtype for image in ours} == {np.dtype(np.float32)}
    assert ours[0].shape[0] == channels  # CHW


@pytest.mark.parametrize("output_type", ["RGB", "BGR", "GRAY"])
@pytest.mark.parametrize("bits", [8, 16])
def test_colours(device: str, output_type: str, bits: int) -> None:
    rng = np.random.default_rng(51)
    pairs = make_pairs(51, BATCH, channels=[1, 3, 4], bits=bits)
    channels = 1 if output_type == "GRAY" else 3
    named = random_windows(rng, pairs, 1.0)
    for pad_output in (False, True):
        compare(
            pairs,
            device,
            named,
            decode={"output_type": OUTPUT_TYPES[output_type]},
            mean=[100.0 + c for c in range(channels)],
            std=[50.0 + c for c in range(channels)],
            pad_output=pad_output,
        )


def test_colours_in_several_types(device: str) -> None:
    """Gray is rounded to the stored type before it is normalised."""
    pairs = make_pairs(52, BATCH, channels=[3])
    for output_type in ("ANY_DATA", "RGB", "BGR", "GRAY"):
        decode = {"output_type": OUTPUT_TYPES[output_type]}
        for dtype in DTYPES.values():
            compare(pairs, device, {}, decode=decode, dtype=dtype, scale=0.4)


def test_ycbcr_is_refused(device: str) -> None:
    samples = [make_pairs(57, 1)[0].l3]
    with pytest.raises(RuntimeError, match=r"decode to YCbCr with decode_crop, then"):
        call("decode_crop_mirror_normalize", samples, device, output_type=types.YCbCr)


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_three_values_for_other_channels(device: str, channels: int) -> None:
    samples = [make_pairs(57, 1, channels=[channels])[0].l3]
    remedy = rf"sample 0 has {channels} channels\. Use `output_type=types\.RGB` for three\."
    with pytest.raises(RuntimeError, match=remedy):
        call("decode_crop_mirror_normalize", samples, device, mean=[1.0, 2.0, 3.0])


@pytest.mark.parametrize("policy", ["pad", "trim_to_shape"])
@pytest.mark.parametrize("adjust", [True, False])
def test_orientation(device: str, adjust: bool, policy: str) -> None:
    rng = np.random.default_rng(53)
    pairs = [
        make_pair(make_image(rng, random_shape(rng, 3, (4, 70))), 1 + i % 8) for i in range(BATCH)
    ]
    named = random_windows(rng, pairs, 1.4)
    named["mirror"] = list(rng.integers(0, 2, BATCH).astype(np.int32))
    for layout in LAYOUTS:
        compare(
            pairs,
            device,
            named,
            decode={"adjust_orientation": adjust},
            output_layout=layout,
            out_of_bounds_policy=policy,
            fill_values=[1.0, 2.0, 3.0],
        )


def test_windows_far_outside(device: str) -> None:
    """A border many times the image: the window touches no tile, or all of them."""
    pairs = make_pairs(54, 12, channels=[3], side=9)
    ours = compare(
        pairs, device, {}, crop=(200.0, 300.0), out_of_bounds_policy="pad", fill_values=9.0
    )
    assert all(image.shape[1:] == (200, 300) for image in ours)


SINGLE: list[dict[str, Any]] = [
    {"crop": (60, 80)},
    {"crop": (60, 80), "out_of_bounds_policy": "mirror"},
    {"crop": (20, 30), "crop_pos_x": 1.5},
    {"crop": (20, 30), "crop_pos_y": float("nan")},
    {"crop": (-4, 30)},
    {"crop": (20,)},
    {"crop_h": 20.0},
    {"output_layout": "HW"},
    {"output_layout": "CHWX"},
    {"output_layout": "CHH"},
    {"mean": [1.0, 2.0]},
    {"mean": [1.0, 2.0, 3.0, 4.0]},
    {"mean": [1.0], "std": [1.0, 2.0, 3.0]},
    {"std": [1.0, 2.0]},
    {"std": [0.0]},
    {"std": [0.0, 1.0, 1.0], "dtype": types.UINT8},
    {"mean": [float("nan")]},
    {"mean": [float("nan")], "dtype": types.UINT8},
    {"mean": [float("inf")], "dtype": types.INT8},
    {"scale": float("inf"), "dtype": types.UINT8},
    {"scale": 1e30, "dtype": types.FLOAT16},
    {"fill_values": [1.0, 2.0]},
    {"fill_values": [1.0, 2.0], "crop": (60, 80), "out_of_bounds_policy": "pad"},
    {"fill_values": [1.0, 2.0, 3.0, 4.0], "pad_output": True},
    {"fill_values": [1.0, 2.0, 3.0, 4.0, 5.0], "crop": (60, 80), "out_of_bounds_policy": "pad"},
    {"mirror": 2},
    {"mirror": -1},
    {"dtype": types.FLOAT64},
    {"dtype": types.BOOL},
]


@pytest.mark.parametrize("fixed", SINGLE, ids=str)
def test_odd_arguments(device: str, fixed: dict[str, Any]) -> None:
    """DALI's output where it gives one, an error where it gives one."""
    pair = make_pair(make_image(np.random.default_rng(55), (50, 70, 3)))

    def verdict(operator: Any) -> Any:
        try:
            return run(lambda l3: operator(l3, **fixed), device, {"l3": [pair.l3]})[0][0]
        except RuntimeError as error:
            return error

    def one_step(l3: Any, **options: Any) -> Any:
        return fn.l3.decode_crop_mirror_normalize(l3, device=device, **options)

    theirs = verdict(lambda l3, **options: fn.crop_mirror_normalize(fn.l3.decode(l3), **options))
    ours = verdict(one_step)
    if isinstance(theirs, RuntimeError):
        assert isinstance(ours, RuntimeError), f"DALI refuses: {theirs}"
    else:
        assert not isinstance(ours, RuntimeError), ours
        np.testing.assert_array_equal(ours, theirs)


def test_layouts_of_the_output(device: str) -> None:
    pair = make_pairs(56, 1)[0]

    def define() -> Any:
        encoded = source([pair.l3])
        return [
            fn.l3.decode_crop_mirror_normalize(encoded, device=device, output_layout=layout)
            for layout in LAYOUTS
        ]

    outputs = pipeline(define, device, 1).run()
    assert [output.layout() for output in outputs] == ["CHW", "HWC", "CWH", "WHC", "HWC"]
