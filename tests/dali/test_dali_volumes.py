"""`fn.l3.decode_volume`: patches that NumPy cuts out of volumes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dali_tools import Array, as_sample, assert_same, call, make_image, run, source, unpack
from dali_tools import pipeline as new_pipeline
from nvidia.dali import fn, types

import l3dali
import l3dali.fn

pytestmark = pytest.mark.dali

SHAPES = [(5, 70, 90), (12, 33, 200), (3, 64, 64), (9, 20, 17)]


def make_volumes(channels: int = 1, bits: int = 16) -> list[Array]:
    rng = np.random.default_rng(bits + channels)
    return [
        np.stack([make_image(rng, (h, w, channels), bits) for _ in range(d)]) for d, h, w in SHAPES
    ]


def encoded(volumes: list[Array]) -> list[Array]:
    """Volumes with metadata that a reader must not take for theirs."""
    return [
        as_sample(l3dali.encode_volume(v, coding=c, metadata={"text": '"volume":{"depth":1'}))
        for v, c in zip(volumes, itertools.cycle(l3dali.CODINGS), strict=False)
    ]


def at(device: str, samples: list[Array], anchors: list[Array], **arguments: Any) -> list[Array]:
    return run(
        lambda l3, anchors: fn.l3.decode_volume(l3, anchors, device=device, **arguments),
        device,
        {"l3": samples, "anchors": anchors},
    )[0]


def patch(volume: Array, anchor: Array, size: tuple[int, int, int], fill: Any = 0) -> Array:
    """The patch of a volume (D, H, W, C), filled where it reaches out."""
    out: Array = np.empty((*size, volume.shape[3]), volume.dtype)
    out[:] = fill
    places = [np.arange(a, a + s) for a, s in zip(anchor, size, strict=True)]
    inside = [(p >= 0) & (p < n) for p, n in zip(places, volume.shape, strict=False)]
    cut = [p[i] for p, i in zip(places, inside, strict=True)]
    out[np.ix_(*inside)] = volume[np.ix_(*cut)]
    return out


@pytest.mark.parametrize("channels", [1, 2, 6])
def test_whole_volume(device: str, channels: int) -> None:
    volumes = make_volumes(channels)
    (got,) = call("decode_volume", encoded(volumes), device)
    assert_same(got, volumes)


@pytest.mark.parametrize("channels", [1, 6])
@pytest.mark.parametrize("size", [(1, 1, 1), (3, 20, 17), (2, 9, 11)])
def test_patches_at_anchors(device: str, size: tuple[int, int, int], channels: int) -> None:
    volumes = make_volumes(channels)
    rng = np.random.default_rng(1)
    anchors = [rng.integers(0, np.subtract(s, size) + 1, 3) for s in SHAPES]
    got = at(device, encoded(volumes), anchors, window=size)
    assert_same(got, [patch(v, a, size) for v, a in zip(volumes, anchors, strict=True)])


def test_patches_that_reach_out(device: str) -> None:
    volumes, size = make_volumes(2, 8), (7, 40, 50)
    anchors = [np.array(a, np.int32) for a in ((-3, -5, 60), (8, 10, -20), (40, 0, 0), (3, -30, 5))]
    arguments: dict[str, Any] = {"window": size, "out_of_bounds_policy": "pad"}
    got = at(device, encoded(volumes), anchors, fill_values=[7, 9], **arguments)
    assert_same(got, [patch(v, a, size, [7, 9]) for v, a in zip(volumes, anchors, strict=True)])


@pytest.mark.parametrize("layout", ["DHWC", "CDHW", "DHW"])
def test_normalized_in_one_pass(device: str, layout: str) -> None:
    channels = 1 if layout == "DHW" else 3
    volumes, size = make_volumes(channels), (3, 16, 13)
    anchors = [np.array([0, 1, 2])] * len(volumes)
    mean, std = np.array([1000.0, 2000, 3000])[:channels], np.array([4.0, 8, 16])[:channels]
    got = at(
        device,
        encoded(volumes),
        anchors,
        window=size,
        dtype=types.FLOAT,
        mean=mean.tolist(),
        std=std.tolist(),
        mirror=1,
        output_layout=layout,
    )
    want = [((patch(v, np.array([0, 1, 2]), size) - mean) / std)[:, :, ::-1] for v in volumes]
    if layout == "CDHW":
        want = [np.moveaxis(v, -1, 0) for v in want]
    if layout == "DHW":
        want = [v[..., 0] for v in want]
    for ours, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_random_patches_of_one_seed_are_at_the_same_places(device: str) -> None:
    """Those of an image and of its labels; new ones in each batch."""
    places = [np.moveaxis(np.indices(s), 0, -1).astype(np.uint16) for s in SHAPES]
    samples = [as_sample(l3dali.encode_volume(p)) for p in places]
    size = (2, 8, 11)

    def two(l3: Any) -> list[Any]:
        random = {"device": device, "window": size, "seed": 5}
        return [fn.l3.decode_volume(l3, **random), fn.l3.decode_volume(l3, **random, mean=0.0)]

    first, same, second, _ = run(two, device, {"l3": samples}, runs=2)
    assert_same(first, same)
    for got, whole in zip(first, places, strict=True):
        assert_same([got], [patch(whole, got[0, 0, 0], size)])
    assert any((a != b).any() for a, b in zip(first, second, strict=True))


def test_lazy_handles_read_the_tiles_of_a_patch(device: str, tmp_path: Path) -> None:
    volumes = make_volumes()
    paths = [tmp_path / f"{i}.l3" for i in range(len(volumes))]
    for path, data in zip(paths, encoded(volumes), strict=True):
        path.write_bytes(data.tobytes())

    def define() -> Any:
        files, _ = fn.l3.readers.file(files=[str(p) for p in paths], lazy=True)
        anchors = source([np.array([1, 2, 3], np.int32)] * len(volumes))
        return fn.l3.decode_volume(files, anchors, window=(2, 15, 12), device=device)

    (output,) = new_pipeline(define, device, len(volumes)).run()
    want = [patch(v, np.array([1, 2, 3]), (2, 15, 12)) for v in volumes]
    assert_same(unpack(output), want)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window": (4, 9, 9)}, r"reaches out of the volume of 3 x 64 x 64"),
        ({"window": (0, 9, 9)}, "must be 1 to"),
        ({"output_layout": "DHW"}, "is for one channel"),
        ({"output_layout": "HWC"}, "must be DHWC, DHW or CDHW"),
        ({"window": (2, 9, 9), "max_pixels": 161}, "2 slices of 9 x 9"),
        ({"out_of_bounds_policy": "trim_to_shape"}, "out_of_bounds_policy"),
    ],
)
def test_errors(device: str, arguments: dict[str, Any], message: str) -> None:
    samples = encoded(make_volumes(2))[2:3]
    with pytest.raises(RuntimeError, match=message):
        call("decode_volume", samples, device, **arguments)


def test_a_volume_behind_other_metadata(device: str) -> None:
    (volume, *_) = make_volumes()
    depth, height, width, channels = volume.shape
    metadata = {"kind": "volume", "volume": {"depth": depth, "height": height}}
    file = l3dali.encode(volume.reshape(depth * height, width, channels), metadata=metadata)
    assert_same(call("decode_volume", [as_sample(file)], device)[0], [volume])


def test_image_is_not_a_volume(device: str) -> None:
    data = as_sample(l3dali.encode(np.zeros((6, 6), np.uint8), metadata={"text": '"volume"'}))
    with pytest.raises(RuntimeError, match="holds an image, not a volume"):
        call("decode_volume", [data], device, window=(1, 2, 2))
    arguments: dict[str, Any] = {"window": (1, 2, 2), "on_error": "zero", "return_status": True}
    volume = as_sample(l3dali.encode_volume(np.ones((2, 3, 4), np.uint8)))
    (got, _) = call("decode_volume", [volume, data], device, **arguments)
    assert_same(got, [np.ones((1, 2, 2, 1), np.uint8), np.zeros((1, 2, 2, 1), np.uint8)])
