"""Images of jpeg tiles on every engine of the CPU: windows, plans, threads and damage.

The golden files have all samplings. Their pixels, by the reference decoder, are the truth.
"""

from __future__ import annotations

import functools
import io
from collections import Counter
from pathlib import Path

import engines
import numpy as np
import PIL.Image
import pytest
import reference_decoder
from c_library import COLORS, DecodeOptions, Window
from engines import ENGINES, GAP
from numpy.typing import NDArray
from output_plans import (
    LUMA,
    Plan,
    assert_output,
    lay_out,
    random_plan,
    random_window,
    training_plan,
)
from reference_decoder import STATUS_NAMES
from test_c_library import decode, ranges_of
from test_output_plan import damage

import l3dali

GOLDEN = Path(__file__).parents[1] / "golden" / "v2"
PHOTOGRAPHS = Path(__file__).parents[3] / "shared" / "data" / "jpeg"
SELECT = 0
engine_matrix = pytest.mark.parametrize("engine", ENGINES)
present = pytest.mark.usefixtures("require_engine")

Image = NDArray[np.uint8]


@functools.cache
def files() -> list[tuple[str, bytes, Image]]:
    """Names, files, and their pixels."""
    found = []
    for path in sorted(GOLDEN.glob("jpeg_*.l3")):
        data = path.read_bytes()
        samples = engines.decode("reference", data).samples
        assert samples is not None
        found.append((path.stem, data, samples))
    return found


def sampling(data: bytes) -> tuple[int, int]:
    """1 for each direction, x and y, in which chroma has half the samples."""
    chunk = dict(reference_decoder.parse(data).chunks)[b"JPEG"]
    return chunk[1] & 1, chunk[1] >> 1


def needed_tiles(data: bytes, plan: Plan) -> list[int]:
    """Numbers of the tiles of a window and its halo."""
    header = reference_decoder.parse_header(data)
    x, y, width, height = plan.window
    if width == 0 or height == 0:
        return []
    halo_x, halo_y = sampling(data)
    right = min(x + width + halo_x, header.width) - 1 >> header.tile_width_log2
    below = min(y + height + halo_y, header.height) - 1 >> header.tile_height_log2
    left = max(x - halo_x, 0) >> header.tile_width_log2
    above = max(y - halo_y, 0) >> header.tile_height_log2
    columns = -(-header.width // (1 << header.tile_width_log2))
    return [
        row * columns + column
        for row in range(above, below + 1)
        for column in range(left, right + 1)
    ]


@functools.cache
def luma(data: bytes) -> Image | None:
    """Component Y of an image in YCbCr, as often as there are channels."""
    parsed = reference_decoder.parse(data)
    assert parsed.jpeg is not None
    plane = reference_decoder.decode_luma(parsed)[..., None]
    return np.repeat(plane, 3, axis=2) if parsed.jpeg.color == 1 else None


def seen_by(plan: Plan, data: bytes, image: Image) -> Image:
    """The pixels that a plan stores: of luma where it asks for that."""
    gray = luma(data) if LUMA in plan.source else None
    return image if gray is None else gray


def with_tiles() -> list[tuple[str, bytes, Image]]:
    return [file for file in files() if file[0].startswith("jpeg_tiles_4")]


@engine_matrix
@present
@pytest.mark.parametrize("threads", [1, 3])
def test_whole_images(engine: str, threads: int) -> None:
    for name, data, image in files():
        for row_padding in (0, 5):
            outcome = engines.decode(engine, data, threads=threads, row_padding_bytes=row_padding)
            assert outcome == engines.Outcome("kOk", None, image), name


@engine_matrix
@present
def test_plans(engine: str) -> None:
    """Windows of all types, normalized, mirrored, transposed, padded or gray."""
    rng = np.random.default_rng(1)
    for name, data, image in files():
        for i in range(6 if "emulated" in engine else 12):
            plan = (training_plan if i % 3 == 0 else random_plan)(rng, image)
            outcome = engines.decode_plan(engine, data, plan, threads=1 + i % 2)
            assert outcome.samples is not None, (name, plan)
            assert_output(plan, seen_by(plan, data, image), outcome.samples, GAP)


@engine_matrix
@present
def test_many_windows(engine: str) -> None:
    rng = np.random.default_rng(2)
    for name, data, image in with_tiles():
        for threads in (1, 2, 4):
            plans = [random_plan(rng, image) for _ in range(7)]
            outcome, outputs, _ = engines.decode_plans(engine, data, plans, threads=threads)
            assert outcome.status == "kOk", name
            for plan, output in zip(plans, outputs, strict=True):
                assert_output(plan, seen_by(plan, data, image), output, GAP)


def rows_as_stored(rng: np.random.Generator, image: Image) -> Plan:
    height, width, channels = image.shape
    plan = Plan(random_window(rng, width, height), (0, 0, 0, 0), "u1", SELECT, [*range(channels)])
    lay_out(rng, plan)
    return plan


@engine_matrix
@present
def test_damage_matters_inside_the_window_and_its_halo_alone(engine: str) -> None:
    rng = np.random.default_rng(3)
    for name, data, image in with_tiles():
        count = len(reference_decoder.parse(data).payloads)
        for _ in range(6):
            bad = int(rng.integers(count))
            damaged = damage(data, bad)
            plan = rows_as_stored(rng, image)
            outcome = engines.decode_plan(engine, damaged, plan, threads=2)
            if bad in needed_tiles(data, plan):
                assert (outcome.status, outcome.tile) == ("kChecksumMismatch", bad), name
            else:
                assert outcome.samples is not None
                assert_output(plan, image, outcome.samples, GAP)


def test_ranges_have_the_halo() -> None:
    rng = np.random.default_rng(4)
    for _, data, image in with_tiles():
        payloads = reference_decoder.parse(data).payloads
        first = len(data) - sum(map(len, payloads))
        ends = first + np.cumsum([len(payload) for payload in payloads])
        for _ in range(8):
            plan = rows_as_stored(rng, image)
            x, y, width, height = plan.window
            if width == 0 or height == 0:
                continue
            options = DecodeOptions(window=Window(y, x, height, width))
            status, _, ranges = ranges_of(data[:first], options, 0)
            assert status == STATUS_NAMES.index("kOk")
            found = [
                tile
                for tile, end in enumerate(ends)
                if any(begin < end <= begin + size for begin, size in ranges)
            ]
            assert found == needed_tiles(data, plan)


@pytest.mark.parametrize("colors", ["GRAY", "GRAY_ALPHA"])
def test_gray_of_c_is_luma(colors: str) -> None:
    options = DecodeOptions(colors=COLORS.index(colors))
    for name, data, _ in files():
        gray = luma(data)
        if gray is not None:
            samples = decode(data, options).samples
            np.testing.assert_array_equal(samples[..., 0], gray[..., 0], name)
            assert colors == "GRAY" or (samples[..., 1] == 255).all()


def test_python_decodes_jpeg_tiles(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for (name, data, image), decoded in zip(
        files(), l3dali.decode_batch([data for _, data, _ in files()], threads=2), strict=True
    ):
        np.testing.assert_array_equal(decoded.reshape(image.shape), image, name)
        assert set(+Counter(l3dali.info(data).codings)) == {"jpeg"}
        x, y, width, height = random_window(rng, *image.shape[1::-1])
        path = tmp_path / name
        path.write_bytes(data)
        if width and height:  # reads the ranges of the window
            part = l3dali.imread(path, window=(y, x, height, width))
            np.testing.assert_array_equal(
                part.reshape(height, width, -1), image[y : y + height, x : x + width]
            )


def made_jpeg(rng: np.random.Generator, size: tuple[int, int], subsampling: str) -> bytes:
    """A file of Pillow's: noise, so that it is not smaller than what L3 makes of it."""
    noise = rng.integers(0, 256, (*size, 3)).astype(np.uint8)
    file = io.BytesIO()
    image = PIL.Image.fromarray(noise)
    gray = subsampling == "gray"
    options = {} if gray else {"subsampling": subsampling}
    image.convert("L" if gray else "RGB").save(file, "JPEG", quality=95, **options)
    return file.getvalue()


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0", "gray"])
def test_pixels_are_pillows(subsampling: str) -> None:
    rng = np.random.default_rng(6)
    for size in [(64, 64), (65, 131), (129, 67), (257, 40), (33, 511), (300, 3)]:
        jpeg = made_jpeg(rng, size, subsampling)
        data = l3dali.transcode(jpeg, coding="jpeg")
        assert "jpeg" in +Counter(l3dali.info(data).codings), size
        expected = np.asarray(PIL.Image.open(io.BytesIO(jpeg)))
        for engine in filter(engines.is_available, ENGINES):
            samples = engines.decode(engine, data, threads=2).samples
            assert samples is not None
            np.testing.assert_array_equal(samples.reshape(expected.shape), expected, str(size))


def test_large_coefficients_are_pillows_pixels_or_refused() -> None:
    """Of blocks of equal rows, libjpeg-turbo wraps products beyond what the format takes."""
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 2, (128, 128)) * 255
    bits[:32] = bits[0]
    bits[32:64] = bits[32:64, :1]
    file = io.BytesIO()
    PIL.Image.fromarray(bits.astype(np.uint8)).save(file, "JPEG", quality=100)
    jpeg = bytearray(file.getvalue())
    table = jpeg.index(b"\xff\xdb\0\x43\0") + 5
    refused = []
    for quantizer in (1, 5, 7, 8, 9, 36, 200):
        jpeg[table : table + 64] = bytes([quantizer]) * 64
        try:
            data = l3dali.transcode(bytes(jpeg), coding="jpeg")
        except l3dali.ImageError as error:
            assert "a coefficient is too large" in str(error)  # noqa: PT017
            refused.append(quantizer)
            continue
        expected = np.asarray(PIL.Image.open(io.BytesIO(jpeg)))
        for engine in filter(engines.is_available, ENGINES):
            samples = engines.decode(engine, data).samples
            assert samples is not None
            np.testing.assert_array_equal(samples.reshape(expected.shape), expected, engine)
    assert refused in ([8, 9, 36, 200], [9, 36, 200])


@pytest.mark.skipif(not PHOTOGRAPHS.exists(), reason="shared/data/jpeg is not there")
def test_photographs_are_pillows_pixels() -> None:
    """Some files of ImageNet, of any tile shape and size."""
    for path in sorted(PHOTOGRAPHS.glob("*.JPEG"))[::25]:
        data = l3dali.transcode(path.read_bytes(), coding="jpeg")
        expected = np.asarray(PIL.Image.open(path))
        for engine in filter(engines.is_available, ENGINES):
            samples = engines.decode(engine, data, threads=2).samples
            assert samples is not None
            np.testing.assert_array_equal(samples.reshape(expected.shape), expected, path.name)
