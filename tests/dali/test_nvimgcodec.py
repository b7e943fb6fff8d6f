"""The nvImageCodec extension: DALI's own decoders and nvImageCodec itself read L3 files."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dali_tools import (
    OUTPUT_TYPES,
    Array,
    Pair,
    as_sample,
    assert_same,
    assert_same_but_for_rounding,
    call,
    exif_of,
    files,
    make_image,
    make_pair,
    make_pairs,
    pipeline,
    random_shape,
    run,
)
from nvidia.dali import fn, types
from nvimgcodec_tools import (
    CPU_ONLY_DEVICE,
    EMULATED,
    EXTENSION,
    GRAY,
    Codec,
    DecodeError,
    Window,
    emulated_folder,
    emulated_launches,
    nvimgcodec,
)
from reference_decoder import HEADER_OFFSETS

import l3dali

pytestmark = pytest.mark.dali

INVALID = sorted((Path(__file__).parents[1] / "invalid").glob("*.l3"))
DTYPES = [types.UINT8, types.UINT16, types.INT16, types.FLOAT]
ORIENTATIONS = [None, *range(1, 9)]


@pytest.fixture(scope="module", params=["extension", "emulated GPU"])
def codec(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Codec]:
    """The extension as it is installed; and one whose GPU decoder has a GPU, an emulated one."""
    if request.param == "extension":
        opened = Codec()
        yield opened
    else:
        folder = emulated_folder(tmp_path_factory.mktemp("extensions"))
        opened = Codec(folder)
        before = emulated_launches()
        opened.decode(l3dali.encode(np.zeros((4, 5, 3), np.uint8)))
        assert emulated_launches() > before
        yield opened
    opened.close()


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    """All channels, depths and orientations."""
    rng = np.random.default_rng(14)
    shapes = [
        (random_shape(rng, channels), bits, orientation)
        for channels in (1, 2, 3, 4)
        for bits in (8, 16)
        for orientation in ORIENTATIONS
    ]
    return [
        make_pair(make_image(rng, shape, bits), orientation, l3dali.CODINGS[i % 2])
        for i, (shape, bits, orientation) in enumerate(shapes)
    ]


def both(name: str, pairs: list[Pair], device: str, **arguments: Any) -> tuple[Any, Any]:
    """What DALI's own operator makes of L3 files, and what ours does."""
    fixed = {"output_type": types.RGB, "dtype": types.UINT8, **arguments}

    def define(l3: Any) -> Any:
        theirs = getattr(fn.decoders, f"image{name}")
        ours = getattr(fn.l3, f"decode{name}")
        return theirs(l3, device=device, **fixed), ours(l3, device=device, fill_range=True, **fixed)

    theirs, ours = run(define, device, {"l3": [pair.l3 for pair in pairs]})
    return theirs, ours


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("output_type", OUTPUT_TYPES)
def test_decoders_image(pairs: list[Pair], output_type: str, dtype: Any, device: str) -> None:
    theirs, ours = both("", pairs, device, output_type=OUTPUT_TYPES[output_type], dtype=dtype)
    converted = dtype == types.INT16 or output_type == "YCbCr"  # by DALI, what we have decoded
    if device == "mixed" and converted:
        assert_same_but_for_rounding(theirs, ours)
    else:
        assert_same(theirs, ours)


def test_stored_orientation(pairs: list[Pair], device: str) -> None:
    assert_same(*both("", pairs, device, adjust_orientation=False))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("_crop", {"crop": (3, 4), "crop_pos_x": 0.2, "crop_pos_y": 0.9}),
        ("_slice", {"rel_start": (0.2, 0.1), "rel_shape": (0.5, 0.6)}),
        ("_random_crop", {"seed": 5}),
    ],
)
@pytest.mark.parametrize("adjust_orientation", [True, False])
def test_windows(
    pairs: list[Pair], name: str, arguments: dict[str, Any], adjust_orientation: bool, device: str
) -> None:
    assert_same(*both(name, pairs, device, adjust_orientation=adjust_orientation, **arguments))


def test_experimental_decoder(pairs: list[Pair], device: str) -> None:
    def define(l3: Any) -> Any:
        arguments = {"device": device, "output_type": types.RGB, "dtype": types.UINT8}
        return fn.experimental.decoders.image(l3, **arguments), fn.l3.decode(l3, **arguments)

    theirs, ours = run(define, device, {"l3": [pair.l3 for pair in pairs]})
    assert_same(theirs, ours)


@pytest.mark.parametrize("output_type", OUTPUT_TYPES)
@pytest.mark.parametrize("adjust_orientation", [True, False])
def test_peek_image_shape(pairs: list[Pair], output_type: str, adjust_orientation: bool) -> None:
    arguments = {
        "image_type": OUTPUT_TYPES[output_type],
        "adjust_orientation": adjust_orientation,
    }

    def define(l3: Any) -> Any:
        return fn.peek_image_shape(l3, **arguments), fn.l3.peek_shape(l3, **arguments)

    theirs, ours = run(define, "cpu", {"l3": [pair.l3 for pair in pairs]})
    assert_same(theirs, ours)


def test_one_batch_of_png_and_l3(device: str) -> None:
    pairs = make_pairs(seed=3, count=24)
    mixed = [(pair.png, pair.l3)[i % 2] for i, pair in enumerate(pairs)]

    def define(mixed: Any, png: Any) -> Any:
        return fn.decoders.image(mixed, device=device), fn.decoders.image(png)

    got, want = run(define, device, {"mixed": mixed, "png": files(pairs)["png"]})
    assert_same(got, want)


@pytest.mark.parametrize("damage", ["tile", "cut"])
def test_a_damaged_file_in_a_batch_is_named(damage: str, tmp_path: Path, device: str) -> None:
    paths = []
    for i, pair in enumerate(make_pairs(seed=4, count=4, side=60)):
        data = bytearray(pair.l3.tobytes())
        if i == 2 and damage == "tile":
            data[-20] ^= 1
        paths.append(tmp_path / f"{i}.l3")
        paths[-1].write_bytes(data[:-1] if i == 2 and damage == "cut" else data)

    def define() -> Any:
        encoded, _ = fn.readers.file(files=[str(path) for path in paths])
        return fn.decoders.image(encoded, device=device)

    with pytest.raises(RuntimeError, match=r"sample #2 : .*2\.l3"):
        pipeline(define, device, len(paths), prefetch_queue_depth=1).run()


def test_what_decode_refuses_is_refused(codec: Codec) -> None:
    decoded = []
    for path in INVALID:
        with contextlib.suppress(DecodeError):
            codec.decode(path.read_bytes())
            decoded.append(path.name)
    assert decoded == []


def test_a_size_that_the_file_cannot_hold_is_refused(codec: Codec) -> None:
    data = l3dali.encode(np.zeros((3000, 3000), np.uint8))
    with pytest.raises(DecodeError, match="CodeStreamGetImageInfo"):
        codec.image_info(data[:100])


def luma(image: Array) -> Array:
    """Gray as DALI's PNG decoder makes it."""
    weighted = image.astype(np.uint32) @ np.array([9797, 19234, 3737], np.uint32)
    gray: Array = ((weighted + (0 if image.itemsize == 1 else 1 << 14)) >> 15).astype(image.dtype)
    return gray[..., None]


def in_format(image: Array, name: str) -> Array:
    """The image as a format of nvImageCodec has it."""
    channels = image.shape[2]
    opaque = np.full_like(image[..., :1], np.iinfo(image.dtype).max)
    alpha = image[..., -1:] if channels in (2, 4) else opaque
    color = image[..., :3] if channels >= 3 else np.repeat(image[..., :1], 3, axis=2)
    gray = luma(color) if channels >= 3 else image[..., :1]
    made: Array = {
        "UNCHANGED": image,
        "Y": gray,
        "YA": np.concatenate([gray, alpha], axis=2),
        "RGB": color,
        "BGR": color[..., ::-1],
        "RGBA": np.concatenate([color, alpha], axis=2),
    }[name]
    return made


@pytest.mark.parametrize("name", ["UNCHANGED", "Y", "YA", "RGB", "BGR", "RGBA"])
@pytest.mark.parametrize("bits", [8, 16])
def test_sample_formats(codec: Codec, name: str, bits: int) -> None:
    rng = np.random.default_rng(7)
    for channels in (1, 2, 3, 4):
        image = make_image(rng, (37, 45, channels), bits)
        data = l3dali.encode(image, coding="packed")
        want = in_format(image, name)
        for padding in (0, 6):
            pitch: dict[str, Any] = {"row_padding_bytes": padding}
            np.testing.assert_array_equal(
                codec.decode(data, sample_format=f"I_{name}", **pitch), want
            )
            np.testing.assert_array_equal(
                codec.decode(data, sample_format=f"P_{name}", **pitch), want.transpose(2, 0, 1)
            )


@pytest.mark.parametrize(
    ("color_spec", "channels", "name"), [(GRAY, 1, "Y"), (GRAY, 2, "YA"), (1, 3, "RGB")]
)
def test_unchanged_takes_the_channels_of_the_color_specification(
    codec: Codec, color_spec: int, channels: int, name: str
) -> None:
    image = make_image(np.random.default_rng(8), (20, 30, 4))
    got = codec.decode(l3dali.encode(image), color_spec=color_spec, channels=channels)
    np.testing.assert_array_equal(got, in_format(image, name))


@pytest.mark.parametrize(
    "arguments",
    [
        {"sample_format": "I_YUV"},
        {"sample_format": "P_CMYK"},
        {"sample_format": "I_YCCK"},
        {"sample_format": "I_RGB", "channels": 4},
        {"channels": 2},
        {"dtype": "uint16", "row_padding_bytes": 3},
        {"window": Window(-1, 0, 5, 5), "sample_format": "I_RGBA"},
    ],
    ids=str,
)
def test_requests_that_are_refused(codec: Codec, arguments: dict[str, Any]) -> None:
    data = l3dali.encode(make_image(np.random.default_rng(9), (20, 30, 3)))
    with pytest.raises(DecodeError):
        codec.decode(data, **arguments)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32"])
@pytest.mark.parametrize("bits", [8, 16])
def test_integers_fill_their_range(codec: Codec, dtype: str, bits: int) -> None:
    image = np.linspace(0, (1 << bits) - 1, 600).astype(f"u{bits // 8}").reshape(20, 30, 1)
    want = image / ((1 << bits) - 1) * np.iinfo(dtype).max
    for labels in (False, True):
        got = codec.decode(l3dali.encode(image, labels=labels), dtype=dtype).astype(np.float64)
        assert np.abs(got - want).max() <= 0.5 + np.iinfo(dtype).max / 2**23


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_floats_end_at_one(codec: Codec, dtype: str) -> None:
    image = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    got = codec.decode(l3dali.encode(image), dtype=dtype)
    np.testing.assert_allclose(got, image / 255, atol=1e-3 if dtype == "float16" else 1e-7)


@pytest.mark.parametrize("dtype", ["uint32", "int32", "float16", "float32"])
def test_floats_and_32_bits_as_stored(codec: Codec, dtype: str) -> None:
    image = np.random.default_rng(3).integers(0, 2**16, (20, 30, 1), np.uint32)
    image = (image * 65521 if dtype != "float16" else image.astype(np.uint16)).view(dtype)
    got = codec.decode(l3dali.encode(image))
    assert got.dtype == dtype
    assert got.tobytes() == image.tobytes()


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("orient", [True, False])
def test_regions(codec: Codec, orientation: int | None, orient: bool) -> None:
    rng = np.random.default_rng(10)
    exif = None if orientation is None else exif_of(orientation)
    data = l3dali.encode(make_image(rng, (70, 90, 3)), tile=(8, 32), exif=exif)
    whole = codec.decode(data, orient=orient)
    (expected,) = call("decode", [as_sample(data)], "cpu", adjust_orientation=orient)
    np.testing.assert_array_equal(whole, expected[0])
    height, width, _ = whole.shape
    for _ in range(8):
        top, left = int(rng.integers(height)), int(rng.integers(width))
        window = Window(
            top,
            left,
            int(rng.integers(1, height - top + 1)),
            int(rng.integers(1, width - left + 1)),
        )
        got = codec.decode(data, window=window, orient=orient, row_padding_bytes=5)
        want = whole[top : top + window.height, left : left + window.width]
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("orientation", [None, 6])
def test_a_region_that_reaches_out_is_filled(codec: Codec, orientation: int | None) -> None:
    exif = None if orientation is None else exif_of(orientation)
    data = l3dali.encode(make_image(np.random.default_rng(11), (40, 50, 3)), exif=exif)
    whole = codec.decode(data)
    fill = (10, 20, 30)
    padded = np.empty((whole.shape[0] + 9, whole.shape[1] + 12, 3), np.uint8)
    padded[:] = fill
    padded[4:-5, 7:-5] = whole
    height, width, _ = padded.shape
    got = codec.decode(data, window=Window(-4, -7, height, width, fill))
    np.testing.assert_array_equal(got, padded)


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_orientation_is_described_as_png_has_it(codec: Codec, orientation: int | None) -> None:
    pair = make_pair(np.zeros((4, 5, 3), np.uint8), orientation)
    said = [codec.image_info(data.tobytes()).orientation for data in (pair.l3, pair.png)]
    ours, theirs = [(turn.rotated, turn.flip_x, turn.flip_y) for turn in said]
    assert ours == theirs


def test_the_python_package_reads_headers() -> None:
    stream = nvimgcodec.CodeStream(l3dali.encode(np.zeros((40, 50, 2), np.uint16)))
    described = (stream.codec_name, stream.height, stream.width, stream.num_channels)
    assert described == ("l3", 40, 50, 2)
    assert stream.dtype == np.uint16


@pytest.mark.cuda
def test_the_python_package_decodes() -> None:
    image = make_image(np.random.default_rng(12), (70, 90, 3))
    decoded = nvimgcodec.Decoder().decode(l3dali.encode(image))
    np.testing.assert_array_equal(np.asarray(decoded.cpu()), image)


def test_the_python_package_reads_files(tmp_path: Path) -> None:
    l3dali.imwrite(tmp_path / "a.l3", np.zeros((40, 50, 3), np.uint8))
    assert nvimgcodec.CodeStream(str(tmp_path / "a.l3")).codec_name == "l3"


def script(text: str, *arguments: str | Path, **environment: str) -> str:
    """What a new Python prints, its errors too."""
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


DECODE_WITH_DALI = """
import ctypes, sys
import numpy as np
import nvidia.dali as dali
from nvidia.dali import fn, types
import l3dali, l3dali.plugin

folder = sys.argv[1]
extension = ctypes.CDLL(sys.argv[2])  # before DALI unloads it
kinds = [(40, 30, 3, "rans"), (21, 60, 3, "packed"), (1, 1, 1, "packed"), (33, 9, 4, "rans")]
rng = np.random.default_rng(1)
for i in range(12):
    *shape, coding = kinds[i % 4]
    l3dali.imwrite(f"{folder}/{i:02}.l3", rng.integers(0, 60, shape, dtype=np.uint8), coding=coding)

def outputs(names):
    pipe = dali.Pipeline(len(names), 2, None, prefetch_queue_depth=1)
    with pipe:
        encoded, _ = fn.readers.file(files=[f"{folder}/{name}" for name in names])
        chosen = {"output_type": types.RGB}
        pipe.set_outputs(
            fn.decoders.image(encoded, **chosen), fn.l3.decode(encoded, **chosen),
            fn.decoders.image_random_crop(encoded, seed=3, **chosen),
            fn.l3.decode_random_crop(encoded, seed=3, **chosen),
        )
    return [[np.array(sample) for sample in output] for output in pipe.run()]

names = [f"{i:02}.l3" for i in range(12)]
for theirs, ours in zip(*[iter(outputs(names))] * 2):
    assert all(np.array_equal(a, b) for a, b in zip(theirs, ours, strict=True))
damaged = bytearray(open(f"{folder}/05.l3", "rb").read())
damaged[-20] ^= 1
open(f"{folder}/05.l3", "wb").write(damaged)
try:
    outputs(names)
except RuntimeError as error:
    print(error)
assert extension.l3_emulated_launches() > 0
"""


def test_dali_on_an_emulated_gpu(tmp_path: Path) -> None:
    """Batches of DALI's, by the decoder that decodes on a GPU where there is one."""
    folder = emulated_folder(tmp_path / "extensions")
    printed = script(DECODE_WITH_DALI, tmp_path, EMULATED, NVIMGCODEC_EXTENSIONS_PATH=str(folder))
    assert "sample #5 : " in printed
    assert "05.l3" in printed


DAMAGED_HEADER = """
import sys
import nvidia.dali as dali
from nvidia.dali import fn

pipe = dali.Pipeline(1, 1, None)
with pipe:
    pipe.set_outputs(fn.decoders.image(fn.readers.file(files=[sys.argv[1]])[0]))
try:
    pipe.run()
except RuntimeError as error:
    print("RuntimeError", error)
"""


def test_dali_says_why_a_header_is_refused(tmp_path: Path) -> None:
    """The error has the size of the file: parsers do not get its name."""
    data = bytearray(l3dali.encode(np.zeros((40, 50, 3), np.uint8)))
    data[HEADER_OFFSETS["used_bits"]] ^= 1
    (tmp_path / "a.l3").write_bytes(data)
    printed = script(DAMAGED_HEADER, tmp_path / "a.l3")
    assert "RuntimeError" in printed
    assert f"L3 header of a file of {len(data)} bytes: " in printed
    assert "(kChecksumMismatch)" in printed


@pytest.mark.cuda
def test_the_gpu_decodes_alone() -> None:
    """Without the CPU decoder: by that of the GPU, or not at all."""
    image = make_image(np.random.default_rng(13), (70, 90, 3))
    backends = [nvimgcodec.Backend(nvimgcodec.BackendKind.GPU_ONLY)]
    files = [l3dali.encode(image, coding=coding) for coding in l3dali.CODINGS]
    for decoded in nvimgcodec.Decoder(backends=backends).decode(files):
        np.testing.assert_array_equal(np.asarray(decoded.cpu()), image)


ROUND_TRIP = [(dtype, channels) for dtype in ("uint8", "uint16") for channels in (1, 2, 3, 4)]


@pytest.mark.parametrize(("dtype", "channels"), ROUND_TRIP)
@pytest.mark.parametrize("layout", ["interleaved", "planar"])
def test_the_python_package_encodes(tmp_path: Path, dtype: str, channels: int, layout: str) -> None:
    image = make_image(np.random.default_rng(14), (37, 45, channels), np.dtype(dtype).itemsize * 8)
    given = nvimgcodec.as_image(image)
    if layout == "planar":
        formats = {1: "P_Y", 2: "P_YA", 3: "P_RGB", 4: "P_RGBA"}
        planes = np.ascontiguousarray(image.transpose(2, 0, 1))
        given = nvimgcodec.as_image(
            planes, sample_format=getattr(nvimgcodec.SampleFormat, formats[channels])
        )
    encoder = nvimgcodec.Encoder(device_id=CPU_ONLY_DEVICE)
    np.testing.assert_array_equal(
        l3dali.decode(bytes(encoder.encode(given, codec="l3"))), np.squeeze(image)
    )
    path = tmp_path / "a.l3"
    encoder.write(str(path), given, codec="l3")
    np.testing.assert_array_equal(l3dali.imread(path), np.squeeze(image))


def test_the_encoder_has_options() -> None:
    image = make_image(np.random.default_rng(15), (64, 64, 3))
    for coding in l3dali.CODINGS:
        encoder = nvimgcodec.Encoder(
            device_id=CPU_ONLY_DEVICE, options=f"l3_encoder:coding={coding} l3_encoder:effort=1"
        )
        encoded = bytes(encoder.encode(nvimgcodec.as_image(image), codec="l3"))
        assert encoded == l3dali.encode(image, coding=coding, effort=1)


def test_the_encoder_is_lossless_or_refuses() -> None:
    encoder = nvimgcodec.Encoder(device_id=CPU_ONLY_DEVICE)
    image = nvimgcodec.as_image(make_image(np.random.default_rng(16), (64, 64, 3)))
    quality = nvimgcodec.QualityType
    lossless = nvimgcodec.EncodeParams(quality_type=quality.LOSSLESS)
    assert bytes(encoder.encode(image, codec="l3", params=lossless)) == bytes(
        encoder.encode(image, codec="l3")
    )
    lossy = nvimgcodec.EncodeParams(quality_type=quality.QUALITY, quality_value=50)
    assert encoder.encode(image, codec="l3", params=lossy) is None


def test_other_folders_of_extensions(tmp_path: Path) -> None:
    data = l3dali.encode(np.zeros((4, 5, 3), np.uint8))
    (tmp_path / EXTENSION.name).symlink_to(EXTENSION)
    there, nowhere = Codec(tmp_path), Codec(tmp_path / "none")
    assert there.image_info(data).num_planes == 1
    with pytest.raises(DecodeError):
        nowhere.image_info(data)
    there.close()
    nowhere.close()


def test_uninstalling_takes_it_away_and_nothing_else() -> None:
    ours = [str(file) for file in metadata.files("l3dali") or () if str(file).startswith("nvidia/")]
    assert ours == [f"nvidia/nvimgcodec/extensions/{EXTENSION.name}"]
