"""JPEG files in DALI pipelines: L3 gives the pixels that DALI's own operators give on the CPU.

The scenarios are those of DALI's tests of its decoders with JPEG files: batches and threads, types
of colours, windows fused with decoding, transforms and upsampling to choose, and shapes without
pixels. DALI decodes the JPEG file, L3 the file made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dali_tools import OUTPUT_TYPES, Array, as_sample, assert_same, pipeline, run, unpack
from jpeg_pairs import JpegPair, make_jpeg, make_pair, pairs
from nvidia.dali import fn, types
from test_output_plan import damage

import l3dali

pytestmark = pytest.mark.dali

# Windows of fn.decoders and ours; all images have 9 x 9 pixels or more.
WINDOWS: dict[str, tuple[str, dict[str, Any]]] = {
    "whole": ("", {}),
    "crop": ("_crop", {"crop": (9, 7), "crop_pos_x": 0.3, "crop_pos_y": 0.8}),
    "slice": ("_slice", {"rel_start": (0.2, 0.1), "rel_shape": (0.5, 0.7), "axes": (0, 1)}),
    "random crop": ("_random_crop", {"seed": 1234}),
}


def of_colour() -> list[JpegPair]:
    """DALI 2.4 ends the process for gray JPEG files with ANY_DATA."""
    return [pair for pair in pairs() if "gray" not in pair.name]


def columns(chosen: Sequence[JpegPair]) -> dict[str, list[Array]]:
    return {
        "jpeg": [as_sample(pair.jpeg) for pair in chosen],
        "l3": [as_sample(pair.l3) for pair in chosen],
    }


def compare(
    chosen: Sequence[JpegPair], device: str, suffix: str, runs: int = 1, **arguments: Any
) -> None:
    """An operator of DALI on the JPEG files and on those of L3, and ours."""
    theirs = getattr(fn.decoders, f"image{suffix}")

    def define(jpeg: Any, l3: Any) -> Any:
        ours = getattr(fn.l3, f"decode{suffix}")(l3, device=device, fill_range=True, **arguments)
        return theirs(jpeg, **arguments), ours, theirs(l3, **arguments)

    outputs = run(define, device, columns(chosen), runs)
    for i in range(0, len(outputs), 3):
        want, ours, by_dali = outputs[i : i + 3]
        assert_same(ours, want)
        assert_same(by_dali, want)


@pytest.mark.parametrize("output_type", OUTPUT_TYPES)
@pytest.mark.parametrize("window", WINDOWS)
def test_operators(window: str, output_type: str, device: str) -> None:
    suffix, arguments = WINDOWS[window]
    chosen = of_colour() if output_type == "ANY_DATA" else pairs()
    colours = {"output_type": OUTPUT_TYPES[output_type]}
    compare(chosen, device, suffix, runs=2, **colours, **arguments)
    compare(chosen, device, suffix, adjust_orientation=False, **colours, **arguments)


@pytest.mark.parametrize("dtype", [types.UINT16, types.INT16, types.FLOAT], ids=str)
@pytest.mark.parametrize("output_type", ["RGB", "GRAY", "YCbCr"])
def test_types(output_type: str, dtype: Any, device: str) -> None:
    compare(pairs(), device, "", output_type=OUTPUT_TYPES[output_type], dtype=dtype)


def test_random_crops_are_those_of_a_resize(device: str) -> None:
    """But for its border, as DALI's test has it: the resize sees pixels around the crop."""

    def define(jpeg: Any, l3: Any) -> Any:
        cropped = fn.l3.decode_random_crop(l3, device=device, output_type=types.RGB, seed=7)
        whole = fn.decoders.image(jpeg)
        small = fn.resize(cropped, size=(24, 20))
        return small, fn.random_resized_crop(whole, size=(24, 20), seed=7)

    for ours, theirs in zip(*run(define, device, columns(pairs())), strict=True):
        assert np.mean(np.abs(ours[2:-2, 2:-2].astype(float) - theirs[2:-2, 2:-2])) < 2


@pytest.mark.parametrize("output_type", ["RGB", "GRAY"])
def test_crop_mirror_normalize(output_type: str, device: str) -> None:
    decoding = {"output_type": OUTPUT_TYPES[output_type]}
    few = output_type == "GRAY"
    finish = {
        "crop": (40, 50),  # larger than some
        "out_of_bounds_policy": "pad",
        "fill_values": [7.0],
        "mean": [110.0] if few else [123.7, 116.3, 103.5],
        "std": [60.0] if few else [58.4, 57.1, 57.4],
    }

    def define(jpeg: Any, l3: Any, mirror: Any) -> Any:
        one = fn.l3.decode_crop_mirror_normalize(
            l3, device=device, mirror=mirror, **decoding, **finish
        )
        decoded = fn.decoders.image(jpeg, **decoding)
        return one, fn.crop_mirror_normalize(decoded, mirror=mirror, **finish)

    mirrors = [np.array(i % 2, np.int32) for i in range(len(pairs()))]
    ours, theirs = run(define, device, columns(pairs()) | {"mirror": mirrors})
    assert_same(ours, theirs)


@pytest.mark.parametrize("output_type", ["RGB", "GRAY"])
def test_many_windows(output_type: str, device: str) -> None:
    """Of a grid, normalized and filled outside, beside DALI's decoder and crops of it."""
    decoding = {"output_type": OUTPUT_TYPES[output_type]}
    size, step = (20, 24), (18, 11)
    values = {"mean": [99.0], "std": [50.0]}

    def define(jpeg: Any, l3: Any) -> Any:
        options = {"window": size, "stride": step, "out_of_bounds_policy": "pad"}
        tiles = fn.l3.decode_windows(
            l3, device=device, dtype=types.FLOAT, **options, **values, **decoding
        )
        whole = fn.crop_mirror_normalize(
            fn.decoders.image(jpeg, **decoding), output_layout="HWC", **values
        )
        return tiles, whole

    for tiles, whole in zip(*run(define, device, columns(pairs())), strict=True):
        height, width, channels = whole.shape
        beyond = np.zeros((height + 40, width + 40, channels), np.float32)
        beyond[:height, :width] = whole
        places = [
            (y, x)
            for y in range(0, max(height - size[0], 0) + step[0], step[0])
            for x in range(0, max(width - size[1], 0) + step[1], step[1])
        ]
        want = [beyond[y : y + size[0], x : x + size[1]] for y, x in places]
        np.testing.assert_array_equal(tiles, want)


def test_transforms_and_upsampling_are_not_chosen(device: str) -> None:
    """L3's pixels have DALI's defaults: the accurate transform, and smooth chroma."""
    compare(of_colour(), device, "", jpeg_fancy_upsampling=True)
    samples = columns(pairs())["l3"]

    def define(l3: Any) -> Any:
        chosen = [{"use_fast_idct": fast, "jpeg_fancy_upsampling": not fast} for fast in (0, 1)]
        return [fn.l3.decode(l3, device=device, **options) for options in ({}, *chosen)]

    want, *others = run(define, device, {"l3": samples})
    for other in others:
        assert_same(other, want)


@pytest.mark.parametrize("batch", [1, 10, 26])
def test_an_epoch_of_files(tmp_path: Path, batch: int, device: str) -> None:
    """Whole and lazy, in any batches: order, labels and pixels are those of the JPEG files."""
    for kind in ("jpg", "l3"):
        for i, pair in enumerate(pairs()):
            path = tmp_path / kind / f"class{i % 3}" / f"{i:02}.{kind}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pair.jpeg if kind == "jpg" else pair.l3)

    def define() -> Any:
        jpegs, labels = fn.readers.file(file_root=str(tmp_path / "jpg"))
        outputs = [fn.decoders.image(jpegs), labels]
        for lazy in (False, True):
            files, ours = fn.l3.readers.file(file_root=str(tmp_path / "l3"), lazy=lazy)
            images, status = fn.l3.decode(
                files, device=device, output_type=types.RGB, return_status=True
            )
            outputs += [images, ours, status]
        return outputs

    pipe = pipeline(define, device, batch)
    for _ in range(0, len(pairs()), batch):
        want, labels, *found = map(unpack, pipe.run())
        for images, ours, status in (found[:3], found[3:]):
            assert_same(images, want)
            assert ours == labels
            assert not any(status)


@pytest.mark.parametrize("lazy", [False, True])
def test_damage_in_the_halo_fails_a_sample_alone(tmp_path: Path, lazy: bool, device: str) -> None:
    """A window below a damaged tile needs its last row of chroma; one further down does not."""
    rng = np.random.default_rng(1)
    noise = rng.integers(0, 256, (96, 64, 3), np.uint8)
    pair = make_pair("noise", make_jpeg(noise))
    paths = [tmp_path / name for name in ("a.l3", "b.l3", "c.l3")]
    for path, data in zip(paths, (pair.l3, damage(pair.l3, 0), damage(pair.l3, 0)), strict=True):
        path.write_bytes(data)

    def define(start: Any) -> Any:
        files, _ = fn.l3.readers.file(files=[str(path) for path in paths], lazy=lazy)
        return fn.l3.decode_slice(
            files, device=device, start=start, shape=(9, 64), axes=(0, 1), on_error="zero",
            return_status=True,
        )  # fmt: skip

    starts = [np.array(place, np.int32) for place in ([0, 0], [32, 0], [33, 0])]
    images, statuses = run(define, device, {"start": starts})
    assert [int(status) for status in statuses] == [0, l3dali.Status.CHECKSUM_MISMATCH, 0]
    assert not images[1].any()
    np.testing.assert_array_equal(images[0], pair.pixels[:9])
    np.testing.assert_array_equal(images[2], pair.pixels[33:42])


@pytest.mark.parametrize("adjust_orientation", [True, False])
@pytest.mark.parametrize("image_type", OUTPUT_TYPES)
def test_shapes(image_type: str, adjust_orientation: bool) -> None:
    options = {
        "image_type": OUTPUT_TYPES[image_type],
        "adjust_orientation": adjust_orientation,
    }

    def define(jpeg: Any, l3: Any) -> Any:
        return (
            fn.peek_image_shape(jpeg, **options),
            fn.l3.peek_shape(l3, **options),
            fn.peek_image_shape(l3, **options),
        )

    want, ours, by_dali = run(define, "cpu", columns(pairs()))
    assert_same(ours, want)
    assert_same(by_dali, want)


@pytest.mark.parametrize("output_type", ["RGB", "GRAY", "YCbCr"])
def test_some_files_of_a_batch_are_l3(output_type: str, device: str) -> None:
    import l3dali.pipeline

    colours = {"output_type": OUTPUT_TYPES[output_type]}
    mixed = [as_sample(pair.l3 if i % 2 else pair.jpeg) for i, pair in enumerate(pairs())]

    def define(mixed: Any, jpeg: Any) -> Any:
        ours = l3dali.pipeline.decode(mixed, device=device, use_fast_idct=False, **colours)
        return ours, fn.decoders.image(jpeg, **colours)

    ours, theirs = run(define, device, {"mixed": mixed, "jpeg": columns(pairs())["jpeg"]})
    assert_same(ours, theirs)
