"""What becomes of numbers in another `dtype`, in all operators alike, and `fill_range`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dali_tools import FAMILY, Array, apply, as_sample, assert_same, decode, run
from nvidia.dali import fn, pipeline_def, types
from output_plans import becomes

import l3dali

pytestmark = pytest.mark.dali

OPERATORS = [name for name in FAMILY if name != "peek_shape"]
NORMALIZING = ("decode_crop_mirror_normalize", "decode_windows")
DTYPES = {
    "uint8": types.UINT8,
    "int8": types.INT8,
    "uint16": types.UINT16,
    "int16": types.INT16,
    "uint32": types.UINT32,
    "int32": types.INT32,
    "int64": types.INT64,
    "float16": types.FLOAT16,
    "float32": types.FLOAT,
}
CHANNELS = {"uint8": 1, "int8": 6, "uint16": 6, "int16": 3}


def image(channels: int = 3, dtype: str = "uint16") -> Array:
    every: Array = np.arange(40 * 60 * channels).reshape(40, 60, channels) * 8 % 65536
    if np.dtype(dtype).itemsize == 1:
        every = (every >> 8) + (every & 0xFF) & 0xFF
    return every.astype(f"u{np.dtype(dtype).itemsize}").view(dtype)


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("stored", CHANNELS)
@pytest.mark.parametrize("name", OPERATORS)
def test_all_operators(device: str, name: str, stored: str, labels: bool) -> None:
    """Every type; what is refused fails alone."""
    ways = [(asked, fill) for asked in DTYPES for fill in (None, False, True)]

    def define(l3: Any) -> Any:
        outputs = [apply(name, l3, device, dtype=DTYPES[stored])]
        for asked, fill in ways:
            outputs += apply(
                *(name, l3, device),
                dtype=DTYPES[asked],
                fill_range=fill,
                on_error="zero",
                return_status=True,
            )
        return outputs

    samples = [as_sample(l3dali.encode(image(CHANNELS[stored], stored), labels=labels))]
    (window,), *others = run(define, device, {"l3": samples})
    assert window.dtype == stored
    for i, (asked, fill) in enumerate(ways):
        (converted,), (status,) = others[2 * i : 2 * i + 2]
        normalizes = name in NORMALIZING
        expected = becomes(window, asked, labels=labels, fill_range=fill, normalizes=normalizes)
        if expected is None:
            assert int(status) == 9, asked
            assert not converted.any()
        else:
            assert int(status) == 0
            assert_same([converted], [expected])


@pytest.mark.parametrize("name", OPERATORS)
def test_refusals_name_the_file_and_the_remedies(device: str, name: str, tmp_path: Path) -> None:
    for kind, array in {"samples": image(3, "int16"), "labels": image(1, "uint16")}.items():
        path = tmp_path / f"{kind}.l3"
        path.write_bytes(l3dali.encode(array, labels=kind == "labels"))

        @pipeline_def(batch_size=1, num_threads=1, device_id=None if device == "cpu" else 0)
        def define(path: Path = path) -> Any:
            encoded, _ = fn.readers.file(files=[str(path)])
            return apply(name, encoded, device, dtype=types.UINT8)

        pipe = define()
        with pytest.raises(
            RuntimeError,
            match=rf"sample 0 \(.*{kind}.l3\) holds {array.dtype} {kind}, and uint8 cannot hold "
            rf".*{'int64' if kind == 'labels' else 'fill_range=True'}.*fill_range=False",
        ):
            pipe.run()


@pytest.mark.parametrize("name", NORMALIZING)
def test_what_is_normalized_may_have_any_type(device: str, name: str) -> None:
    """`mean` and `std` make other numbers, which are cut to the type."""

    def define(l3: Any) -> Any:
        arguments = {"mean": [-32768.0], "std": [257.0]}
        return (
            apply(name, l3, device, dtype=types.INT16),
            apply(name, l3, device, dtype=types.UINT8, **arguments),
        )

    (stored,), (bytes_,) = run(
        define, device, {"l3": [as_sample(l3dali.encode(image(1, "int16")))]}
    )
    np.testing.assert_allclose(bytes_, (stored.astype(np.float64) + 32768) / 257, atol=0.501)


@pytest.mark.parametrize("name", NORMALIZING)
def test_mean_and_std_are_in_the_range_that_is_filled(device: str, name: str) -> None:
    mean, std = [0.25, 0.5, 0.125], [0.5, 0.25, 2.0]

    def define(l3: Any) -> Any:
        arguments = {"dtype": types.FLOAT, "mean": mean, "std": std}
        return (
            apply(name, l3, device, dtype=types.UINT16),
            apply(name, l3, device, **arguments, fill_range=True),
        )

    samples = [as_sample(l3dali.encode(image()))]
    (stored,), (normalized,) = run(define, device, {"l3": samples})
    expected = (stored / 65535 - mean) / std
    np.testing.assert_allclose(normalized, expected, rtol=1e-5, atol=1e-5)


def test_luminance_as_it_is(device: str) -> None:
    """YCbCr has its head and foot room in the range of the values."""
    deep = image()
    shallow = (deep >> 8).astype(np.uint8)
    samples = [as_sample(l3dali.encode(shallow))]
    arguments: dict[str, Any] = {"output_type": types.YCbCr, "fill_range": False}
    (plain,) = decode(samples, device, dtype=types.FLOAT, **arguments)
    (filled,) = decode(samples, device, dtype=types.FLOAT, output_type=types.YCbCr)
    np.testing.assert_allclose(plain[..., 0] - 16, (filled[..., 0] - 0.0625) * 255, atol=1e-3)


def test_stored_type_has_nothing_to_fill(device: str) -> None:
    samples = [as_sample(l3dali.encode(image()))]
    for fill_range in (False, True):
        assert_same(decode(samples, device, fill_range=fill_range), [image()])
        windows = run(
            lambda l3, fill=fill_range: fn.l3.decode_windows(
                l3, device=device, window=(40, 60), stride=40, fill_range=fill
            ),
            device,
            {"l3": samples},
        )[0]
        assert_same(windows, [image()[np.newaxis]])
