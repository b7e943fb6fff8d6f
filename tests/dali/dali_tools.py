"""DALI pipelines for tests: columns of samples go in, lists of arrays come out."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt
import pytest

import l3dali

pytest.importorskip("nvidia.dali", reason="DALI is not installed")
import nvidia.dali as dali
from nvidia.dali import fn, types

Array = npt.NDArray[Any]
Column = Sequence[Array]

OUTPUT_TYPES = {
    "ANY_DATA": types.ANY_DATA,
    "RGB": types.RGB,
    "BGR": types.BGR,
    "GRAY": types.GRAY,
    "YCbCr": types.YCbCr,
}

# How a reader chooses and shuffles.
READER_SETUPS: dict[str, dict[str, Any]] = {
    "in order": {},
    "shuffled": {"random_shuffle": True, "initial_fill": 7, "seed": 3},
    "shuffled after an epoch": {"shuffle_after_epoch": True, "shuffle_after_epoch_seed": 5},
    "padded shard": {"num_shards": 4, "shard_id": 3, "pad_last_batch": True},
    "shuffled shard": {
        "num_shards": 3, "shard_id": 2, "stick_to_shard": True, "pad_last_batch": True,
        "random_shuffle": True, "initial_fill": 4, "seed": 8,
    },
}  # fmt: skip

# Every operator with arguments that fit images of 9 x 9 pixels and more.
FAMILY: dict[str, dict[str, Any]] = {
    "decode": {},
    "decode_crop": {"crop": (9, 7), "crop_pos_x": 0.25},
    "decode_slice": {"rel_start": (0.2, 0.1), "rel_shape": (0.5, 0.6)},
    "decode_random_crop": {"seed": 5},
    "decode_crop_mirror_normalize": {"crop": (9, 7), "mirror": 1, "output_layout": "HWC"},
    "decode_windows": {"window": (5, 7), "stride": (4, 2), "mirror": 1},
    "peek_shape": {},
}


@dataclass(frozen=True)
class Pair:
    """The same pixels twice: as DALI's decoders read them, and as ours do."""

    image: Array  # H, W, C
    png: Array
    l3: Array
    shown_size: tuple[int, int]  # height and width once its orientation is adjusted


def make_image(rng: np.random.Generator, shape: tuple[int, int, int], bits: int = 8) -> Array:
    """Waves with noise over the whole range, so that every pixel and window differs."""
    wave = np.sin(np.indices(shape)[0] / 7 + np.indices(shape)[1] / 5 + rng.uniform(0, 6, shape[2]))
    noisy = wave * 0.4 + 0.5 + rng.uniform(-0.15, 0.15, shape)
    top = (1 << bits) - 1
    image: Array = np.clip(noisy * top, 0, top).astype(f"u{bits // 8}")
    return image


def make_pair(
    image: Array, orientation: int | None = None, coding: l3dali.Coding = "packed"
) -> Pair:
    """Encodes an image both ways, with an EXIF orientation if one is given."""
    png = imagecodecs.png_encode(image if image.shape[2] > 1 else image[..., 0], level=1)
    exif = None
    if orientation is not None:
        exif = exif_of(orientation)
        png = with_png_chunk(png, b"eXIf", exif)
    encoded = l3dali.encode(image, coding=coding, tile=(8, 32), exif=exif)
    height, width, _ = image.shape
    shown_size = (width, height) if orientation in (5, 6, 7, 8) else (height, width)
    return Pair(image, as_sample(png), as_sample(encoded), shown_size)


def random_shape(
    rng: np.random.Generator, channels: int, sides: tuple[int, int] = (4, 90)
) -> tuple[int, int, int]:
    """Height, width and channels; the second of `sides` is left out."""
    return int(rng.integers(*sides)), int(rng.integers(*sides)), channels


def make_pairs(
    seed: int, count: int, *, channels: Sequence[int] = (1, 3, 4), bits: int = 8, side: int = 90
) -> list[Pair]:
    """Pairs of many sizes and of every coding, cut into many tiles."""
    rng = np.random.default_rng(seed)
    shapes = [random_shape(rng, int(rng.choice(channels)), (4, side)) for _ in range(count)]
    codings = itertools.cycle(l3dali.CODINGS)
    return [make_pair(make_image(rng, shape, bits), coding=next(codings)) for shape in shapes]


def files(pairs: Sequence[Pair]) -> dict[str, Column]:
    """The encoded pairs as columns `png` and `l3`."""
    return {"png": [p.png for p in pairs], "l3": [p.l3 for p in pairs]}


def exif_of(orientation: int, order: str = "<") -> bytes:
    """An EXIF block of one tag, the orientation."""
    mark = b"II" if order == "<" else b"MM"
    entry = struct.pack(f"{order}HHIHH", 0x0112, 3, 1, orientation, 0)
    return mark + struct.pack(f"{order}HIH", 42, 8, 1) + entry + bytes(4)


def as_sample(data: bytes | bytearray) -> Array:
    """Bytes as DALI takes them."""
    return np.frombuffer(bytes(data), np.uint8)


def pipeline(define: Callable[[], Any], device: str, batch_size: int, **options: Any) -> Any:
    """A pipeline of two threads; `device` is that of the decoder in it."""
    pipe = dali.Pipeline(batch_size, 2, None if device == "cpu" else 0, **options)
    with pipe:
        outputs = define()
        pipe.set_outputs(*(outputs if isinstance(outputs, (tuple, list)) else (outputs,)))
    return pipe


def source(samples: Column) -> Any:
    """A node that gives the same batch in every run."""
    return fn.external_source(lambda: list(samples), batch=True)


def unpack(output: Any) -> list[Array]:
    """The samples of an output, wherever it lies."""
    return [np.array(sample) for sample in output.as_cpu()]


def run(
    define: Callable[..., Any], device: str, columns: Mapping[str, Column], runs: int = 1
) -> list[list[Array]]:
    """Runs a batch through what `define` makes of the columns' nodes; the outputs of all runs."""

    def with_sources() -> Any:
        return define(**{name: source(samples) for name, samples in columns.items()})

    pipe = pipeline(with_sources, device, len(next(iter(columns.values()))), prefetch_queue_depth=1)
    return [unpack(output) for _ in range(runs) for output in pipe.run()]


def apply(name: str, encoded: Any, device: str, **arguments: Any) -> Any:
    """Applies an operator of FAMILY; peek_shape has no GPU in it."""
    place = "cpu" if name == "peek_shape" else device
    return getattr(fn.l3, name)(encoded, device=place, **FAMILY[name], **arguments)


def call(name: str, samples: Column, device: str, **arguments: Any) -> list[list[Array]]:
    """The outputs of an operator of `fn.l3` with arguments that are constants."""
    operator = getattr(fn.l3, name)
    return run(lambda l3: operator(l3, device=device, **arguments), device, {"l3": samples})


def decode(samples: Column, device: str, **arguments: Any) -> list[Array]:
    """What `fn.l3.decode` gives."""
    return call("decode", samples, device, **arguments)[0]


def call_usual(name: str, samples: Column, device: str, **arguments: Any) -> list[list[Array]]:
    """The same of an operator of FAMILY, with its arguments there."""
    return run(lambda l3: apply(name, l3, device, **arguments), device, {"l3": samples})


def assert_same(got: Column, want: Column, columns: Mapping[str, Column] | None = None) -> None:
    """Compares type, shape and values; on a difference shows the sample's row of the columns."""
    assert len(got) == len(want)
    for i, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        row = {name: values[i].tolist() for name, values in (columns or {}).items()}
        assert ours.dtype == theirs.dtype, (i, row)
        np.testing.assert_array_equal(ours, theirs, err_msg=f"sample {i}: {row}")


def assert_same_batches(ours: Any, theirs: Any, batches: int) -> None:
    """Runs two pipelines, whose samples and the names of these must be the same."""
    for _ in range(batches):
        for got, want in zip(ours.run(), theirs.run(), strict=True):
            assert got.dtype == want.dtype
            assert_same(unpack(got), unpack(want))
            assert [one.source_info() for one in got] == [one.source_info() for one in want]


def assert_same_but_for_rounding(got: Column, want: Column) -> None:
    """As `assert_same`, for what DALI has converted on a GPU: it rounds otherwise there."""
    assert len(got) == len(want)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == theirs.dtype
        whole = np.issubdtype(ours.dtype, np.integer)
        most = max(1.0, 1e-6 * np.iinfo(ours.dtype).max) if whole else 1e-6
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), 0, most)


def with_png_chunk(png: bytes, kind: bytes, data: bytes) -> bytes:
    after_header = 33
    checksum = struct.pack(">I", zlib.crc32(kind + data))
    chunk = struct.pack(">I", len(data)) + kind + data + checksum
    return png[:after_header] + chunk + png[after_header:]
