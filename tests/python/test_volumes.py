"""Volumes are images of slices, whose patches equal NumPy's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import l3dali
from l3dali.arguments import SAMPLE_TYPES
from l3dali.volumes import VolumeWindow, find_pairs

Array = npt.NDArray[Any]
AFFINE = np.array([[-0.7, 0, 0.01, 90], [0, 0.7, 0, -80.5], [0, 0, 5, 1 / 3], [0, 0, 0, 1]])


def make(*shape: int, dtype: str = "int16") -> Array:
    smooth = np.arange(np.prod(shape)).reshape(shape) // 7
    return (smooth + np.random.default_rng(0).integers(-3, 4, shape)).astype(dtype)


@pytest.mark.parametrize("dtype", SAMPLE_TYPES)
@pytest.mark.parametrize("shape", [(3, 70, 90), (1, 1, 1), (5, 64, 64), (4, 20, 30, 2)])
def test_volume_returns(shape: tuple[int, ...], dtype: str) -> None:
    volume = make(*shape, dtype=dtype)
    for coding in l3dali.CODINGS:
        decoded = l3dali.decode_volume(l3dali.encode_volume(volume, coding=coding))
        assert decoded.dtype == volume.dtype
        np.testing.assert_array_equal(decoded, volume)


@pytest.mark.parametrize(
    "window", [(0, 0, 0, 3, 70, 90), (1, 3, 65, 2, 66, 25), (2, 69, 89, 1, 1, 1)]
)
def test_patch_is_that_of_numpy(tmp_path: Path, window: VolumeWindow) -> None:
    volume = make(3, 70, 90, 6)
    (tmp_path / "a.l3").write_bytes(data := l3dali.encode_volume(volume))
    z, y, x, depth, height, width = window
    expected = volume[z : z + depth, y : y + height, x : x + width]
    for source in (data, tmp_path / "a.l3", (tmp_path / "a.l3").as_uri()):
        for channels in (None, [5], [4, 0]):
            patch = l3dali.decode_volume(source, window=window, channels=channels, threads=2)
            wanted = expected if channels is None else expected[..., channels]
            np.testing.assert_array_equal(
                patch, np.squeeze(wanted, 3) if channels == [5] else wanted
            )


def test_window_that_reaches_out_is_filled_or_refused() -> None:
    volume = make(4, 20, 30)
    data = l3dali.encode_volume(volume)
    padded = np.pad(volume, 50, constant_values=-7)
    for z, y, x in ((-3, 5, -2), (3, 15, 25), (-2, -3, -4), (40, 0, 0), (0, 0, -40)):
        with pytest.raises(l3dali.L3Error, match="fill_values") as caught:
            l3dali.decode_volume(data, window=(z, y, x, 5, 21, 32))
        assert caught.value.status is l3dali.Status.INVALID_ARGUMENT
        patch = l3dali.decode_volume(data, window=(z, y, x, 5, 21, 32), fill_values=-7)
        expected = padded[z + 50 : z + 55, y + 50 : y + 71, x + 50 : x + 82]
        np.testing.assert_array_equal(patch, expected)


def test_max_pixels_counts_the_window() -> None:
    data = l3dali.encode_volume(make(4, 20, 30))
    assert l3dali.decode_volume(data, window=(0, 0, 0, 2, 10, 10), max_pixels=200).shape == (
        2,
        10,
        10,
    )
    with pytest.raises(l3dali.L3Error, match="max_pixels"):
        l3dali.decode_volume(data, window=(0, 0, 0, 2, 10, 10), max_pixels=199)


def test_decode_gives_the_slices_one_below_the_other() -> None:
    volume = make(3, 70, 90)
    image = l3dali.decode(l3dali.encode_volume(volume, tile=(16, 32)))
    assert image.shape == (3 * 80, 90)
    np.testing.assert_array_equal(image.reshape(3, 80, 90)[:, :70], volume)


def test_geometry_comes_back_bit_for_bit() -> None:
    data = l3dali.encode_volume(make(3, 7, 9), affine=AFFINE, metadata={"rescale_slope": 0.1})
    info = l3dali.info(data)
    assert info.volume is not None
    assert info.volume.shape == (3, 7, 9)
    np.testing.assert_array_equal(info.volume.affine, AFFINE)
    assert (info.metadata or {})["rescale_slope"] == 0.1


def test_geometry_of_simpleitk_is_lps() -> None:
    direction = (1, 0, 0, 0, 0, 1, 0, -1, 0)
    data = l3dali.encode_volume(
        make(3, 7, 9), spacing=(0.5, 2, 3), origin=(10, 20, 30), direction=direction
    )
    volume = l3dali.info(data).volume
    assert volume is not None
    assert volume.pairs["spacing"] == [0.5, 2, 3]
    np.testing.assert_array_equal(
        volume.affine, [[-0.5, 0, 0, -10], [0, 0, -3, -20], [0, -2, 0, 30], [0, 0, 0, 1]]
    )


def test_labels_keep_a_sample_of_each_class() -> None:
    labels = np.zeros((20, 30, 40), np.uint8)
    labels[3:9, 5:25, 7:30] = 2
    labels[1, 2, 3] = 5
    data = l3dali.encode_volume(labels, labels=True)
    info = l3dali.info(data)
    assert info.labels
    assert info.volume is not None
    voxels = info.volume.voxels
    assert voxels.keys() == {2, 5}
    assert voxels[5].tolist() == [[1, 2, 3]]
    assert len(voxels[2]) == 256
    assert (labels[tuple(voxels[2].T)] == 2).all()
    assert data == l3dali.encode_volume(labels, labels=True)


@pytest.mark.parametrize(
    ("volume", "options", "message"),
    [
        (np.zeros((3, 4), np.uint8), {}, "shape"),
        (np.zeros((3, 4, 5, 6, 7), np.uint8), {}, "shape"),
        (np.zeros((3, 4, 5), np.uint8), {"affine": np.eye(3)}, "affine"),
        (np.zeros((3, 4, 5), np.uint8), {"spacing": (1, 2)}, "spacing"),
        (np.broadcast_to(np.uint8(0), (2**14, 2**9, 2**9)), {}, "2\\^31"),
    ],
)
def test_refused(volume: Array, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        l3dali.encode_volume(volume, **options)


def test_image_is_not_a_volume() -> None:
    data = l3dali.encode(np.zeros((6, 6), np.uint8))
    assert l3dali.info(data).volume is None
    with pytest.raises(ValueError, match="not a volume"):
        l3dali.decode_volume(data)
    with pytest.raises(TypeError, match="six integers"):
        l3dali.decode_volume(l3dali.encode_volume(make(2, 3, 4)), window=(0, 0, 0, 1))  # type: ignore[arg-type]


def write(path: Path, shape: tuple[int, int, int], affine: Array = AFFINE) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(l3dali.encode_volume(make(*shape), affine=affine))


def test_pairs_of_images_and_labels(tmp_path: Path) -> None:
    images, labels = tmp_path / "images", tmp_path / "labels"
    write(images / "a.l3", (3, 7, 9))
    write(labels / "a.l3", (3, 7, 9))
    write(images / "b_0000.l3", (4, 7, 9))
    write(labels / "b.l3", (4, 7, 9))
    pairs = find_pairs(images, labels)
    assert [(i.name, k.name, v.shape) for i, k, v in pairs] == [
        ("a.l3", "a.l3", (3, 7, 9)),
        ("b_0000.l3", "b.l3", (4, 7, 9)),
    ]
    write(images / "c.l3", (3, 7, 9))
    with pytest.raises(FileNotFoundError, match=r"c\.l3 has no label map"):
        find_pairs(images, labels)
    for shape, affine, what in (((3, 7, 8), AFFINE, "shape"), ((3, 7, 9), np.eye(4), "affines")):
        write(labels / "c.l3", shape, affine)
        with pytest.raises(ValueError, match=what) as caught:
            find_pairs(images, labels)
        assert str(images / "c.l3") in str(caught.value)
        assert str(labels / "c.l3") in str(caught.value)
