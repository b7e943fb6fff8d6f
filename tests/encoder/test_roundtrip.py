"""What goes into the encoder comes out of every decoder, and in no more bytes than promised."""

from __future__ import annotations

from pathlib import Path

import engines
import imagecodecs
import numpy as np
import pytest
import reference_decoder
import skimage
import strategies
from engines import CODINGS, ENGINES, ROOT, Outcome, Samples
from hypothesis import given, settings
from hypothesis import strategies as st

import l3dali
from l3dali import Coding

MOST_SAMPLES = {
    "reference": 20_000, "emulated_cuda": 40_000, "emulated_small_cuda": 40_000, "scalar": 1_000_000
}  # fmt: skip
SHARED_DATA = ROOT.parent / "shared" / "data"
PHOTOGRAPHS = sorted(
    path
    for path in (Path(skimage.__file__).parent / "data").iterdir()
    if path.suffix in {".png", ".jpg"}
)[::2]
coding_matrix = pytest.mark.parametrize("coding", CODINGS)


def noise(h: int, w: int, c: int, dtype: type) -> Samples:
    rng = np.random.default_rng([h, w, c])
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, (h, w, c), dtype, endpoint=True)


def check_round_trip(image: Samples, data: bytes) -> None:
    """All engines give the image back, but for the slow ones where it is large."""
    for engine in filter(engines.is_available, ENGINES):
        if image.size <= MOST_SAMPLES.get(engine, image.size):
            assert engines.decode(engine, data, threads=2) == Outcome("kOk", None, image), engine
    assert len(data) <= 1.001 * image.nbytes + 256


@settings(max_examples=60)
@given(
    image=strategies.images(),
    coding=st.sampled_from(CODINGS),
    effort=st.integers(1, 9),
    tile_log2=st.just((0, 0)) | st.tuples(st.integers(5, 8), st.integers(3, 8)),
)
def test_any_image_any_tile(
    image: Samples, coding: str, effort: int, tile_log2: tuple[int, int]
) -> None:
    data = engines.encode(image, coding=coding, effort=effort, tile_log2=tile_log2)
    for engine in ("reference", *filter(engines.is_available, ENGINES)):
        if image.size <= MOST_SAMPLES.get(engine, image.size):
            assert engines.decode(engine, data) == Outcome("kOk", None, image), engine


@pytest.mark.parametrize("effort", [1, 2, 3])
def test_fit_without_a_solution(effort: int) -> None:
    """So few pixels that the solver leaves the range of a double: a sanitizer would see it."""
    samples = "7a558945f87578 3cef3c58d27ce0 4befeed28aa892 4b758a"
    image = np.frombuffer(bytes.fromhex(samples), np.uint8).reshape(1, 8, 3)
    data = engines.encode(image, coding="rans", effort=effort)
    assert engines.decode("reference", data) == Outcome("kOk", None, image)


@coding_matrix
@pytest.mark.parametrize(
    ("channels", "dtype"),
    [(1, np.int16), (2, np.uint8), (3, np.uint8), (3, np.uint16), (4, np.int8), (4, np.uint16)],
)
@pytest.mark.parametrize(
    ("height", "width"), [(1, 1), (1, 257), (257, 1), (127, 129), (128, 128), (131, 269)]
)
def test_shapes(height: int, width: int, channels: int, dtype: type, coding: str) -> None:
    ramp = np.add.outer(np.arange(height), 2 * np.arange(width))[..., None]
    image = (ramp * 3 + noise(height, width, channels, np.uint8) % 16).astype(dtype)
    check_round_trip(image, engines.encode(image, coding=coding))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_the_right_edge_of_each_width(channels: int, dtype: type) -> None:
    """Of four colours, as on screens: of 192 columns the last had too few bits in `packed`."""
    rng = np.random.default_rng(channels)
    colors: Samples = np.array(
        [[0, 0, 0, 0], [255, 255, 255, 0], [10, 200, 40, 0], [200, 10, 10, 9]], dtype
    )
    for width in range(channels, 257, 3):
        for columns in (1, min(width, 2), min(width, 32)):
            image: Samples = np.zeros((24, width, channels), dtype)
            numbers = rng.integers(0, 4, (24, columns))
            image[:, width - columns :] = colors[numbers, :channels]
            data = engines.encode(image, coding="packed")
            assert engines.decode("scalar", data) == Outcome("kOk", None, image), width


@pytest.mark.parametrize(
    ("step", "tile"),
    [(172_933, None), (1, (8, 32))],  # buckets of std::unordered_map for so many keys
    ids=["hashes", "tiles"],
)
def test_many_colors_take_no_time(step: int, tile: tuple[int, int] | None) -> None:
    """Colours whose hashes met took 30 s, small tiles of too many the square of their number."""
    keys = step * np.arange(1 << 16).reshape(-1, 1024)
    green = keys >> 32
    colors = np.stack([(keys >> 16) + green, green, keys + green], -1).astype(np.uint16)
    image: Samples = np.repeat(colors, 16, axis=1)
    data = l3dali.encode(image, tile=tile)
    assert np.array_equal(l3dali.decode(data), image)


@coding_matrix
@pytest.mark.parametrize(("channels", "dtype"), [(1, np.uint16), (3, np.uint8), (4, np.uint16)])
@pytest.mark.parametrize(
    ("height", "width"),
    [(1, 100_000), (100_000, 1), (65, 257), (257, 65), (9, 3000), (1, 33), (2, 2)],
)
def test_noise_grows_by_no_more_than_promised(
    height: int, width: int, channels: int, dtype: type, coding: str
) -> None:
    image = noise(height, width, channels, dtype)
    check_round_trip(image, engines.encode(image, coding=coding))


@coding_matrix
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int8, np.int16])
def test_half_noise_grows_by_no_more_than_promised(dtype: type, coding: str) -> None:
    image = noise(261, 1031, 3, dtype)
    image[:, :500] = np.array(-7).astype(dtype)
    check_round_trip(image, engines.encode(image, coding=coding))


@coding_matrix
@pytest.mark.parametrize("path", PHOTOGRAPHS, ids=lambda path: path.stem)
def test_photographs_of_scikit_image(path: Path, coding: str) -> None:
    image = as_samples(imagecodecs.imread(path))
    check_round_trip(image, engines.encode(image, coding=coding, threads=2))


@pytest.mark.slow  # the shapes and values above have what sanitizers could see here
@coding_matrix
@pytest.mark.parametrize(
    "folder",
    ["edge", "gray16", "mask", "photo", "rgb16", "rgba8", "screen"],
)
def test_shared_data(folder: str, coding: str) -> None:
    if not SHARED_DATA.is_dir():
        pytest.skip(f"{SHARED_DATA} is absent")
    paths = sorted((SHARED_DATA / folder).rglob("*.png"))
    assert paths
    for path in paths[::9]:
        try:
            image = as_samples(imagecodecs.png_decode(path.read_bytes()))
        except (imagecodecs.PngError, ValueError):
            assert folder == "edge", path  # some there are broken on purpose
        else:
            check_round_trip(image, engines.encode(image, coding=coding, threads=2))


def as_samples(image: Samples) -> Samples:
    """Gives grey images the channel axis that others have."""
    return image.reshape(*image.shape[:2], -1)


def heights(h: int, w: int, least: int, most: int) -> Samples:
    """Hills with some noise, as elevations or the slices of a CT scan."""
    rng = np.random.default_rng([h, w])
    y, x = np.mgrid[:h, :w]
    hills = np.sin(x / 31) * np.cos(y / 17) + 0.3 * np.sin((x + 2 * y) / 7)
    scaled = (hills - hills.min()) / np.ptp(hills) * (most - least) + least
    rounded = np.rint(scaled + rng.normal(0, 3, (h, w)))
    numbers: Samples = np.clip(rounded, least, most).astype(np.int64)[..., None]
    return numbers


@coding_matrix
@pytest.mark.parametrize(
    ("dtype", "least", "most"),
    [
        (np.int16, -1024, 3071),
        (np.int16, -430, 8848),
        (np.int16, -32768, 32767),
        (np.int16, -100, 100),
        (np.int8, -128, 127),
        (np.int8, -20, 20),
    ],
)
def test_signed_samples_take_no_more_bytes_than_shifted_ones(
    dtype: type, least: int, most: int, coding: str
) -> None:
    image = heights(300, 400, least, most)
    signed = engines.encode(image.astype(dtype), coding=coding)
    check_round_trip(image.astype(dtype), signed)
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    for offset in {-least, -int(np.iinfo(dtype).min)}:
        shifted = engines.encode((image + offset).astype(unsigned), coding=coding)
        assert len(signed) <= 1.001 * len(shifted)


@coding_matrix
@pytest.mark.parametrize(
    ("samples", "used_bits", "shift"),
    [
        ([0], 1, 0),
        ([-1, 0], 1, 0),
        ([1, 0], 2, 0),
        ([-128], 1, 7),
        ([-32768, 0, 32767], 16, 0),
        ([-1024, 3071], 13, 0),
        ([-4096, 4080], 9, 4),
        ([-20000, -19999], 16, 0),
    ],
)
def test_unused_bits_of_signed_samples(
    samples: list[int], used_bits: int, shift: int, coding: str
) -> None:
    """Values have the bits that the samples need as signed numbers."""
    dtype = np.int8 if min(samples) == -128 else np.int16
    image = np.resize(np.array(samples, dtype), (5, 9, 1))
    data = engines.encode(image, coding=coding)
    check_round_trip(image, data)
    parsed = reference_decoder.parse(data)
    if coding != "stored" and parsed.value_table is None:
        assert (parsed.header.used_bits, parsed.header.shift) == (used_bits, shift)


@settings(max_examples=50)
@given(image=strategies.images(), coding=st.sampled_from(CODINGS), effort=st.integers(1, 9))
def test_threads_and_repeats_do_not_change_the_bytes(
    image: Samples, coding: str, effort: int
) -> None:
    files = {
        engines.encode(image, coding=coding, effort=effort, tile_log2=(5, 3), threads=threads)
        for threads in (1, 3, 1)
    }
    assert len(files) == 1


@pytest.mark.parametrize("effort", [1, 3, 5, 6, 7, 8, 9])
def test_threads_do_not_change_the_model(effort: int) -> None:
    image = as_samples(skimage.data.astronaut())
    one = engines.encode(image, coding="rans", effort=effort)
    assert any(kind == b"RANS" for kind, _ in reference_decoder.parse(one).chunks)
    assert engines.encode(image, coding="rans", effort=effort, threads=3) == one


@coding_matrix
def test_chunks_and_meaning_are_kept(coding: str) -> None:
    image = noise(20, 30, 1, np.uint8) % 3
    options = {"meaning": 1, "icc": b"profile", "exif": b"II*\0", "palette": bytes(12)}
    data = engines.encode(image, coding=coding, **options)  # type: ignore[arg-type]
    parsed = reference_decoder.parse(data)
    kept = {kind: chunk for kind, chunk in parsed.chunks if kind not in (b"VTAB", b"RANS")}
    assert kept == {b"icc ": b"profile", b"exif": b"II*\0", b"plte": bytes(12)}
    assert parsed.header.meaning == 1
    check_round_trip(image, data)


@coding_matrix
def test_every_processor_gives_the_same_bytes(coding: Coding) -> None:
    """That of the engines, which `make test-aarch64` makes another one, and this one."""
    image = as_samples(skimage.data.astronaut())[:200, :300]
    for samples in (image, image.astype(np.uint16) * 257):
        for effort in (1, 5, 9):
            data = engines.encode(samples, coding=coding, effort=effort)
            assert data == l3dali.encode(samples, coding=coding, effort=effort)
