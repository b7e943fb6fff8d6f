"""Volumes: slices stacked to one tall image, of which patches are windows."""

from __future__ import annotations

import operator
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from l3dali import arguments, codec
from l3dali.arguments import DEFAULT_THREADS, TILE_HEIGHTS, TILE_WIDTHS
from l3dali.errors import L3Error, Status
from l3dali.metadata import VOLUME, Volume
from l3dali.parts import Member, OpenFile, RemoteFiles, is_url, naming

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    from typing_extensions import Buffer, Unpack

__all__ = ["Volume", "VolumeWindow", "decode_volume", "encode_volume", "find_pairs"]

#: z, y and x of the first voxel, then depth, height and width.
VolumeWindow = tuple[int, int, int, int, int, int]

# Patches want small tiles. Rans tiles of fewer rows take more bytes; label maps want larger ones.
_TILE_SIDE, _LABEL_SIDE, _PACKED_HEIGHT = 64, 128, 32
_MOST_VOXELS, _MOST_OF_A_CLASS = 1024, 256  # of the sample of a label volume


def encode_volume(
    volume: npt.ArrayLike,
    *,
    spacing: Sequence[float] | None = None,
    origin: Sequence[float] | None = None,
    direction: Sequence[float] | None = None,
    affine: npt.ArrayLike | None = None,
    **options: Unpack[codec.EncodeOptions],
) -> bytes:
    """Encodes a volume without loss: an image of its slices, one below the other.

    Args:
        volume: shape (D, H, W) or (D, H, W, C): axes z, y and x, which NIfTI calls k, j and i; then
            channels. Samples as in `encode`. Up to 2^31 pixels, with each slice padded to whole
            tiles.
        spacing: between voxels along x, y and z in millimetres, as SimpleITK's GetSpacing().
        origin: x, y and z of the first voxel in millimetres, LPS, as GetOrigin().
        direction: of these axes, nine cosines, LPS, as GetDirection().
        affine: 4 x 4, from (x, y, z, 1) of a voxel to millimetres, RAS, as nibabel's.
        **options: those of `encode`. `tile` is 64 x 64 by default, 32 x 64 for coding "packed",
            128 x 128 for labels, or less for small slices. With `labels` a sample of voxels of each
            class is stored, which `Volume.voxels` returns.

    Raises:
        L3Error, TypeError, ValueError: as in `encode`.
    """
    array = np.asarray(volume)
    if array.ndim not in (3, 4) or 0 in array.shape:
        raise ValueError(
            f"shape {array.shape} is not supported; a volume has shape (D, H, W) or (D, H, W, C) "
            "and no empty side"
        )
    pairs: dict[str, Any] = {}
    for name, value, shape in (
        ("spacing", spacing, (3,)),
        ("origin", origin, (3,)),
        ("direction", direction, (9,)),
        ("affine", affine, (4, 4)),
    ):
        if value is not None:
            numbers = np.asarray(value)
            if numbers.size != np.prod(shape) or numbers.dtype.kind not in "iuf":
                raise ValueError(f"{name} must be numbers of shape {shape}, not {value!r}")
            pairs[name] = numbers.reshape(shape)
    coding, labels = options.get("coding"), bool(options.get("labels"))
    tile = options.get("tile") or tile_of(array.shape, labels=labels, coding=coding)
    options |= {"tile": tile, "layout": "HWC"}
    image, metadata = stacked(array, options.get("metadata"), pairs, tile[0])
    options["metadata"] = with_sample(array, metadata) if options.get("labels") else metadata
    return codec.encode(image, **options)


def tile_of(
    shape: Sequence[int], *, labels: bool = False, coding: str | None = None
) -> tuple[int, int]:
    """The height and width of tiles for patches of a volume (D, H, W)."""
    side = _LABEL_SIDE if labels else _TILE_SIDE

    def fitting(size: int, usual: int, sides: Sequence[int]) -> int:
        return min(usual, next((each for each in sides if each >= size), usual))

    height = _PACKED_HEIGHT if coding == "packed" and not labels else side
    return fitting(shape[1], height, TILE_HEIGHTS), fitting(shape[2], side, TILE_WIDTHS)


def stacked(
    array: codec.Image,
    metadata: Mapping[str, Any] | None,
    geometry: Mapping[str, Any],
    tile_height: int,
) -> tuple[codec.Image, dict[str, Any]]:
    """The image of the slices of a volume (D, H, W) or (D, H, W, C), and its key-value pairs."""
    depth, height, width = array.shape[:3]
    rows = -(-height // tile_height) * tile_height
    if depth * rows * width > arguments.MAX_PIXELS:
        raise ValueError(
            f"{depth} slices of {rows} x {width} pixels (height x width, padded to whole tiles) "
            "are too many; L3 holds up to 2^31"
        )
    pairs: dict[str, Any] = {"depth": depth, "height": height, **geometry}
    if rows != height:
        # Rows that repeat the last one take next to no bytes.
        array = np.pad(array, [(0, 0), (0, rows - height), *[(0, 0)] * (array.ndim - 2)], "edge")
    return array.reshape(depth * rows, *array.shape[2:]), {VOLUME: pairs, **(metadata or {})}


def slices_of(image: codec.Image, volume: Volume) -> codec.Image:
    """The volume, (D, H, W) or (D, H, W, C), in an image of its slices."""
    return image.reshape(volume.depth, volume.rows, *image.shape[1:])[:, : volume.height]


def with_sample(array: codec.Image, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The pairs of a label volume (D, H, W) with some voxels of each class but 0.

    They are the same for the same array.
    """
    if array.ndim != 3:
        return dict(metadata)
    flat = array.reshape(-1)
    places = np.flatnonzero(flat)
    order = np.argsort(flat[places], kind="stable")
    classes, begins = np.unique(flat[places][order], return_index=True)
    most = max(1, min(_MOST_OF_A_CLASS, _MOST_VOXELS // max(1, len(classes))))
    random = np.random.default_rng(0)
    sample = {}
    for number, those in zip(classes, np.split(places[order], begins[1:]), strict=False):
        chosen = random.choice(those, min(most, len(those)), replace=False)
        sample[str(number)] = np.diff(np.sort(chosen), prepend=0).tolist()
        if len(sample) == _MOST_VOXELS:
            break
    return {**metadata, VOLUME: {**metadata[VOLUME], "voxels": sample}}


def decode_volume(
    data: Buffer | str | os.PathLike[str],
    *,
    window: VolumeWindow | None = None,
    channels: Sequence[int] | None = None,
    fill_values: float | Sequence[float] | None = None,
    threads: int = DEFAULT_THREADS,
    max_pixels: int | None = codec.DEFAULT_MAX_PIXELS,
) -> codec.Image:
    """Decodes a volume or a part of it: (D, H, W) for one channel, else (D, H, W, C).

    Args:
        data: the bytes of an L3 file that `encode_volume` made, a path, or a URL of fsspec. Of a
            path or URL only header, index and the tiles of the window are read.
        window: z, y and x of the first voxel, then depth, height and width. None: all.
        channels: as in `decode`.
        fill_values: of voxels outside of the volume: one value, or one for each channel. None: a
            window that reaches out of the volume is an error.
        threads: as in `decode`.
        max_pixels: limit of the voxels of the window, as in `decode`.

    Raises:
        L3Error: as in `decode`.
        OSError, UsageError: as in `imread`.
        TypeError, ValueError: the file holds no volume, or an argument is not valid.
    """
    remote = None
    item: Any = data
    with naming(data):
        if is_url(data):
            remote = RemoteFiles([Member(data)])
            info = remote.info()
        elif isinstance(data, (str, os.PathLike)):
            item = Member(os.fspath(data))
            info = _info_of(data)
        else:
            item = arguments.contiguous(data)
            info = codec.head_info(memoryview(item).cast("B"))
        volume = info.volume
        if volume is None:
            raise ValueError(
                "the L3 file holds an image, not a volume: decode it with l3dali.imread"
            )
        whole = (volume.depth, volume.height, info.width)
        begin, size = _checked_window(window, whole)
        count = info.channels if channels is None else len(arguments.checked_channels(channels))
        _check_pixels(size, count, max_pixels)
        first = [max(0, each) for each in begin]
        inner = [
            max(0, min(at + length, end) - low)
            for at, length, end, low in zip(begin, size, whole, first, strict=True)
        ]
        array = np.empty((*size, count), info.dtype)
        if inner != list(size):
            if fill_values is None:
                raise L3Error(
                    f"the window {tuple(begin)} of {tuple(size)} voxels reaches out of the volume "
                    f"of {whole} voxels (z, y, x); fill_values pads it",
                    Status.INVALID_ARGUMENT,
                )
            array[:] = np.asarray(fill_values).astype(info.dtype)
        if 0 not in inner:
            z, y, x = first
            windows: list[codec.Window | None] = [
                ((z + i) * volume.rows + y, x, inner[1], inner[2]) for i in range(inner[0])
            ]

            def make(items: Sequence[Any], is_partial: bool = True) -> codec.DecodeBatch:
                items = list(items) * len(windows)
                return codec.open_batch(items, windows, None, channels, is_partial=is_partial)

            batch = remote.open_batch(make) if remote else make([item], is_partial=False)
            part = array[tuple(slice(a - b, None) for a, b in zip(first, begin, strict=True))]
            batch.decode(
                [part.ctypes.data + i * array.strides[0] for i in range(inner[0])],
                row_strides=[array.strides[1]] * inner[0],
                threads=arguments.checked_threads(threads),
            )
    return array[..., 0] if count == 1 else array


def _info_of(path: str | os.PathLike[str]) -> codec.Info:
    with Path(path).open("rb") as file:
        return OpenFile(file, seeks=False).info()


def _checked_window(
    window: VolumeWindow | None, whole: tuple[int, int, int]
) -> tuple[list[int], list[int]]:
    """The first voxel and the size of a window."""
    if window is None:
        return [0, 0, 0], list(whole)
    try:
        z, y, x, *size = map(operator.index, window)
    except (TypeError, ValueError):
        size = []
    if len(size) != 3:
        raise TypeError(
            f"window must be six integers, z, y, x, depth, height and width, not {window!r}"
        )
    if min(size) < 1:
        raise ValueError(f"window is {window!r}: depth, height and width must be 1 or more")
    return [z, y, x], size


def _check_pixels(size: Sequence[int], channels: int, max_pixels: int | None) -> None:
    limit = arguments.checked_max_pixels(max_pixels)
    if size[0] * size[1] * size[2] * -(-channels // 4) > limit:
        raise L3Error(
            f"{' x '.join(map(str, size))} voxels are more than the limit of {limit}; max_pixels "
            "raises it",
            Status.OUTPUT_TOO_SMALL,
        )


def find_pairs(
    images: str | os.PathLike[str], labels: str | os.PathLike[str]
) -> list[tuple[Path, Path, Volume]]:
    """The images of a folder, each with its label map and the volume that this holds.

    A label map has the name of its image, or as in nnU-Net that name without "_0000".

    Raises:
        ValueError: a label map has another shape or affine than its image, which the error names,
            or a file is not a volume.
        FileNotFoundError: an image has no label map, or there are no images.
    """
    pairs = []
    for image in sorted(Path(images).glob("*.l3")):
        found = [each for name in names_of_labels(image) if (each := Path(labels, name)).exists()]
        if not found:
            raise FileNotFoundError(f"{image} has no label map in {labels}")
        pairs.append((image, found[0], check_same_grid(image, found[0])))
    if not pairs:
        raise FileNotFoundError(f"there are no .l3 files in {images}")
    return pairs


def names_of_labels(image: Path) -> tuple[str, str]:
    """The names that the label map of an image may have."""
    return image.name, f"{re.sub('_[0-9]{4}$', '', image.stem)}.l3"


def check_same_grid(image: str | os.PathLike[str], labels: str | os.PathLike[str]) -> Volume:
    """The volume in a label map; ValueError if its shape or affine differs from the image's."""
    volumes = []
    for path in (image, labels):
        volume = _info_of(path).volume
        if volume is None:
            raise ValueError(f"{path} is not a volume")
        volumes.append(volume)
    one, other = volumes
    if one.shape != other.shape:
        raise ValueError(f"{image} has shape {one.shape}, but {labels} has {other.shape}")
    if not np.allclose(one.affine, other.affine, atol=1e-3):
        raise ValueError(
            f"the affines of {image} and {labels} differ: {one.affine.tolist()} and "
            f"{other.affine.tolist()}"
        )
    return other
