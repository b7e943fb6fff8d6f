"""Other formats come in exactly, or not at all, and go out as they came."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from l3dali.image_io import WRITERS, ImageError, Picture, read_picture, write_picture

imagecodecs = pytest.importorskip("imagecodecs")
tifffile = pytest.importorskip("tifffile")
pytest.importorskip("netpbmfile")
PIL = pytest.importorskip("PIL")
for library in ("PIL.Image", "PIL.ImageOps"):
    pytest.importorskip(library)

Image = NDArray[Any]

EDGE = Path(__file__).resolve().parents[2] / "shared" / "data" / "edge"
PNG_FILES = sorted([*EDGE.glob("pngsuite/*.png"), *EDGE.glob("image-rs/*.png")])


def noise(channels: int, dtype: type = np.uint8, height: int = 9, width: int = 13) -> Image:
    """Random pixels that use all bits; fully transparent ones keep their colours."""
    shape = (height, width) if channels == 1 else (height, width, channels)
    image = np.random.default_rng(channels).integers(0, np.iinfo(dtype).max + 1, shape)
    if channels in (2, 4):
        image[:4, :, -1] = 0
    return image.astype(dtype)


def saved(image: Any, image_format: str, **options: Any) -> bytes:
    """The bytes of a file that Pillow writes."""
    file = io.BytesIO()
    image.save(file, image_format, **options)
    return file.getvalue()


def tiff(pixels: Image, **options: Any) -> bytes:
    """The bytes of a file that tifffile writes."""
    file = io.BytesIO()
    tifffile.imwrite(file, pixels, metadata=None, **options)
    return file.getvalue()


def exif(orientation: int) -> bytes:
    """An EXIF block with a maker and an orientation."""
    block = PIL.Image.Exif()
    block[0x010F] = "maker"
    block[0x0112] = orientation
    return bytes(block.tobytes())


# PNG.


def _png(ihdr: bytes, rows: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    parts = [(b"IHDR", ihdr), *chunks, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )


@pytest.mark.parametrize("color_type", [0, 2, 4, 6])
def test_png_of_16_bits_keeps_every_bit(color_type: int) -> None:
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[color_type]
    pixels = noise(channels, np.uint16)
    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    data = _png(struct.pack(">IIBBBBB", width, height, 16, color_type, 0, 0, 0), rows)
    picture = read_picture(data)
    assert picture.pixels.dtype == np.uint16
    assert np.array_equal(picture.pixels, pixels)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_png_gray_of_few_bits_is_scaled_to_8(bits: int) -> None:
    row = np.arange(8) % 2**bits
    packed = np.packbits((row[:, None] >> np.arange(bits)[::-1] & 1).astype(np.uint8).ravel())
    data = _png(struct.pack(">IIBBBBB", 8, 1, bits, 0, 0, 0, 0), b"\0" + packed.tobytes())
    assert read_picture(data).pixels.tolist() == [(row * 255 // (2**bits - 1)).tolist()]


def test_png_transparent_colour_becomes_alpha() -> None:
    ihdr = struct.pack(">IIBBBBB", 3, 1, 8, 0, 0, 0, 0)
    data = _png(ihdr, b"\0\1\2\3", (b"tRNS", b"\0\2"))
    assert read_picture(data).pixels.tolist() == [[[1, 255], [2, 0], [3, 255]]]


PALETTE_PNG = _png(
    struct.pack(">IIBBBBB", 4, 1, 2, 3, 0, 0, 0),
    bytes([0, 0b00011011]),
    (b"PLTE", bytes(range(12))),
    (b"tRNS", bytes([9, 255, 8])),
)


def test_png_palette_as_colours() -> None:
    picture = read_picture(PALETTE_PNG)
    colors = [[0, 1, 2, 9], [3, 4, 5, 255], [6, 7, 8, 8], [9, 10, 11, 255]]
    assert picture.pixels.tolist() == [colors]
    assert picture.palette is None


def test_png_palette_as_numbers_and_back() -> None:
    picture = read_picture(PALETTE_PNG, palette="index")
    assert picture.pixels.tolist() == [[0, 1, 2, 3]]
    again = write_picture(picture, ".png")
    assert PIL.Image.open(io.BytesIO(again)).mode == "P"
    assert np.array_equal(read_picture(again).pixels, read_picture(PALETTE_PNG).pixels)
    assert read_picture(again, palette="index").palette == picture.palette


def test_png_numbers_past_the_palette_stay() -> None:
    pixels = np.array([[0, 1, 255]], np.uint8)
    data = write_picture(Picture(pixels, palette=bytes([1, 2, 3, 255])), ".png")
    again = read_picture(data, palette="index")
    assert np.array_equal(again.pixels, pixels)
    assert again.palette == bytes([1, 2, 3, 255]) + 255 * bytes([0, 0, 0, 255])


def test_png_of_all_kinds_equals_pillow() -> None:
    if not PNG_FILES:
        pytest.skip("no ../shared/data")
    refused = {path.name for path in PNG_FILES if _agrees_with_pillow(path) == "refused"}
    assert refused == {path.name for path in PNG_FILES if path.name[0] == "x"} | {"ball.png"}


def _agrees_with_pillow(path: Path) -> str:
    """Compares pixels and palette numbers; "refused" if neither library reads the file."""
    data = path.read_bytes()
    try:
        PIL.Image.open(io.BytesIO(data)).verify()
        image = PIL.Image.open(io.BytesIO(data))
        image.load()
        single = getattr(image, "n_frames", 1) == 1
    except (IndexError, OSError, SyntaxError):
        single = False
    if not single:
        with pytest.raises(ImageError):
            read_picture(data)
        return "refused"

    pixels = read_picture(data).pixels
    converted: Any = image
    if image.mode == "P":
        numbers = read_picture(data, palette="index")
        assert np.array_equal(numbers.pixels, np.asarray(image)), path
        entries = np.frombuffer(numbers.palette or b"", np.uint8).reshape(-1, 4)
        assert np.array_equal(entries[numbers.pixels][..., : pixels.shape[2]], pixels), path
        converted = image.convert("RGBA" if "transparency" in image.info else "RGB")
    elif image.mode == "1":
        converted = image.convert("L")
    # Pillow keeps the upper half of 16-bit colours alone.
    narrowed = pixels.dtype == np.uint16 and converted.mode != "I;16"
    ours = (pixels >> 8).astype(np.uint8) if narrowed else pixels
    theirs = np.asarray(converted)
    if "transparency" in converted.info:  # Pillow has not applied it: compare the colours.
        ours = ours[..., :-1].squeeze(-1) if ours.shape[-1] == 2 else ours[..., :-1]
    elif narrowed and ours.shape[2] == 2:
        theirs = theirs[..., [0, 3]]
    assert np.array_equal(ours, theirs), path
    return "read"


# TIFF.


@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_tiff_layouts(byteorder: str, planar: str) -> None:
    pixels = noise(3, np.uint16)
    stored = pixels if planar == "contig" else np.moveaxis(pixels, -1, 0)
    data = tiff(stored, photometric="rgb", planarconfig=planar, byteorder=byteorder)
    picture = read_picture(data)
    assert np.array_equal(picture.pixels, pixels)
    assert picture.pixels.dtype.isnative


def test_tiff_where_zero_is_white_is_inverted() -> None:
    pixels = noise(1)
    assert np.array_equal(read_picture(tiff(pixels, photometric="miniswhite")).pixels, 255 - pixels)


def test_tiff_of_one_bit_is_scaled_to_8() -> None:
    pixels = noise(1) > 99
    data = saved(PIL.Image.fromarray(pixels), "TIFF")
    assert np.array_equal(read_picture(data).pixels, pixels * np.uint8(255))


def test_tiff_palette() -> None:
    image = PIL.Image.fromarray(noise(3)).quantize(11)
    data = saved(image, "TIFF")
    assert np.array_equal(read_picture(data).pixels, np.asarray(image.convert("RGB")))
    numbers = read_picture(data, palette="index")
    assert np.array_equal(numbers.pixels, np.asarray(image))
    assert numbers.palette is not None


def _palette_tiff(colormap: Image) -> bytes:
    return tiff(np.array([[0, 1, 2]], np.uint8), photometric="palette", colormap=colormap)


_COLORS = np.random.default_rng(5).integers(0, 256, (3, 256)).astype(np.uint16)


@pytest.mark.parametrize(
    "colormap", [_COLORS * 256, _COLORS * 257, _COLORS], ids=["high_byte", "repeated", "low_byte"]
)
def test_tiff_palette_of_8_bit_colours(colormap: Image) -> None:
    picture = read_picture(_palette_tiff(colormap))
    assert picture.pixels.dtype == np.uint8
    assert np.array_equal(picture.pixels[0], _COLORS.T[:3])
    entries = read_picture(_palette_tiff(colormap), palette="index").palette
    assert entries is not None
    assert np.array_equal(np.frombuffer(entries, np.uint8).reshape(256, 4)[:, :3], _COLORS.T)


@pytest.mark.parametrize(
    "colormap",
    [_COLORS * 256 + 1, np.where(_COLORS > 99, _COLORS * 257, _COLORS * 256)],
    ids=["all_bits", "mixed"],
)
def test_tiff_palette_of_16_bit_colours(colormap: Image) -> None:
    picture = read_picture(_palette_tiff(colormap))
    assert picture.pixels.dtype == np.uint16
    assert np.array_equal(picture.pixels[0], colormap.T[:3])
    with pytest.raises(ImageError, match="16-bit colours"):
        read_picture(_palette_tiff(colormap), palette="index")


def test_tiff_reduced_copies_are_no_frames() -> None:
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        writer.write(noise(1), metadata=None)
        writer.write(noise(1)[::2, ::2], subfiletype=1, metadata=None)
    assert np.array_equal(read_picture(file.getvalue()).pixels, noise(1))


# What all formats share.


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("suffix", WRITERS)
def test_written_files_read_back_exactly(suffix: str, channels: int, dtype: type) -> None:
    picture = Picture(noise(channels, dtype))
    writer = WRITERS[suffix]
    if channels in writer.channels and 8 * np.dtype(dtype).itemsize in writer.bits:
        again = read_picture(write_picture(picture, suffix))
        assert again.pixels.dtype == dtype
        assert np.array_equal(again.pixels, picture.pixels)
    else:
        with pytest.raises(ImageError, match="cannot hold"):
            write_picture(picture, suffix)


@pytest.mark.parametrize("maximum", [0, 1, 2, 255, 256, 65535])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("suffix", WRITERS)
def test_written_files_do_not_depend_on_the_maximum(suffix: str, dtype: type, maximum: int) -> None:
    maximum = min(maximum, np.iinfo(dtype).max)
    for channels in WRITERS[suffix].channels:
        if 8 * np.dtype(dtype).itemsize in WRITERS[suffix].bits:
            pixels = np.minimum(noise(channels, dtype), dtype(maximum))
            again = read_picture(write_picture(Picture(pixels), suffix)).pixels
            assert again.dtype == dtype
            assert np.array_equal(again, pixels)


@pytest.mark.parametrize(
    ("suffix", "magic_number"), [(".pgm", b"P5"), (".ppm", b"P6"), (".pam", b"P7")]
)
def test_netpbm_is_written_as_the_suffix_says(suffix: str, magic_number: bytes) -> None:
    pixels = noise(WRITERS[suffix].channels[0])
    assert write_picture(Picture(pixels), suffix)[:2] == magic_number


@pytest.mark.parametrize("data", [b"P2 2 1 9 3 4", b"P5 2 1 9 \3\4", b"P5 2 1 999 \0\3\0\4"])
def test_netpbm_gray_keeps_its_numbers(data: bytes) -> None:
    assert read_picture(data).pixels.tolist() == [[3, 4]]


@pytest.mark.parametrize("data", [b"P1 2 1 1 0", b"P4 2 1 \x80"])
def test_netpbm_counts_ink(data: bytes) -> None:
    assert read_picture(data).pixels.tolist() == [[0, 255]]


def test_bmp_palette() -> None:
    image = PIL.Image.fromarray(noise(3)).quantize(11)
    data = saved(image, "BMP")
    assert np.array_equal(read_picture(data).pixels, np.asarray(image.convert("RGB")))
    assert np.array_equal(read_picture(data, palette="index").pixels, np.asarray(image))


def test_first_image_of_an_mpo() -> None:
    first = PIL.Image.fromarray(noise(3))
    data = saved(first, "MPO", save_all=True, append_images=[first.rotate(90)])
    assert data[:2] == b"\xff\xd8"
    assert PIL.Image.open(io.BytesIO(data)).n_frames == 2
    expected = PIL.Image.open(io.BytesIO(saved(first, "JPEG")))
    assert np.array_equal(read_picture(data).pixels, np.asarray(expected))


@pytest.mark.parametrize("width", [3, 4])
def test_narrow_gray_jpegxl_animation_is_no_image_in_colours(width: int) -> None:
    frames = np.stack([noise(1, width=width)] * 2)
    data = bytes(imagecodecs.jpegxl_encode(frames, lossless=True, photometric="gray"))
    with pytest.raises(ImageError, match="animation"):
        read_picture(data)


@pytest.mark.parametrize("suffix", [".jpg", ".webp", ".png", ".tif"])
def test_icc_and_exif_go_on_to_png(suffix: str) -> None:
    image_format = {".jpg": "JPEG", ".webp": "WEBP", ".png": "PNG", ".tif": "TIFF"}[suffix]
    icc = bytes(range(256)) * 3
    data = saved(PIL.Image.fromarray(noise(3)), image_format, icc_profile=icc, exif=exif(6))
    picture = read_picture(write_picture(read_picture(data), ".png"))
    assert picture.icc == icc
    block = PIL.Image.Exif()
    block.load(picture.exif or b"")
    assert (block[0x010F], block[0x0112]) == ("maker", 6)
    assert len(block) == 2


def test_webp_and_tiff_are_written_with_icc() -> None:
    picture = Picture(noise(4), icc=b"profile")
    for suffix in (".webp", ".tif"):
        assert read_picture(write_picture(picture, suffix)).icc == b"profile"


def test_exif_behind_the_pixels_of_a_png_is_found() -> None:
    data = saved(PIL.Image.fromarray(noise(1)), "PNG")
    block = b"II*\0\x08\0\0\0\0\0\0\0\0\0"
    late = struct.pack(">I", len(block)) + b"eXIf" + block
    data = data[:-12] + late + struct.pack(">I", zlib.crc32(b"eXIf" + block)) + data[-12:]
    assert read_picture(data).exif == block


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("channels", [1, 3])
def test_orientation_is_applied_when_asked(orientation: int, channels: int) -> None:
    image = PIL.Image.fromarray(noise(channels))
    data = saved(image, "PNG", exif=exif(orientation))
    assert np.array_equal(read_picture(data).pixels, np.asarray(image))
    turned = read_picture(data, orient=True)
    upright = PIL.ImageOps.exif_transpose(PIL.Image.open(io.BytesIO(data)))
    assert np.array_equal(turned.pixels, np.asarray(upright))
    again = read_picture(write_picture(turned, ".png"), orient=True)
    assert np.array_equal(again.pixels, turned.pixels)
    assert b"maker" in (again.exif or b"")


_PHOTO = PIL.Image.fromarray(noise(3))
REFUSED = {
    "text": (b"no image at all", "known format"),
    "empty": (b"", "known format"),
    "l3": (b"\x8bL3F\r\n\x1a\n", "known format"),
    "png_animation": (
        saved(_PHOTO, "PNG", save_all=True, append_images=[_PHOTO.rotate(9)]),
        "anim",
    ),
    "webp_animation": (
        saved(_PHOTO, "WEBP", save_all=True, append_images=[_PHOTO.rotate(9)]),
        "several images",
    ),
    "tiff_pages": (tiff(np.stack([noise(1)] * 2), photometric="minisblack"), "several images"),
    "tiff_float": (tiff(noise(1).astype(np.float32)), "float32"),
    "tiff_signed": (tiff(noise(1).astype(np.int16)), "int16"),
    "tiff_cmyk": (saved(_PHOTO.convert("CMYK"), "TIFF"), "SEPARATED"),
    "tiff_premultiplied": (
        tiff(noise(4), photometric="rgb", extrasamples=["assocalpha"]),
        "premultiplied",
    ),
    "jpeg_cmyk": (saved(_PHOTO.convert("CMYK"), "JPEG"), "CMYK"),
    "jpegxl_animation": (
        bytes(imagecodecs.jpegxl_encode(np.stack([noise(3)] * 2), lossless=True)),
        "animation",
    ),
    "ppm_pages": (write_picture(Picture(noise(3)), ".ppm") * 2, "several images"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    data, message = REFUSED[name]
    with pytest.raises(ImageError, match=message):
        read_picture(data)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("suffix", WRITERS)
def test_cut_files_are_refused(suffix: str) -> None:
    data = write_picture(Picture(noise(1 if suffix == ".pgm" else 3)), suffix)
    for size in range(0, len(data) - 12, 7):  # A PNG is whole without its last 12 bytes.
        with pytest.raises(ImageError):
            read_picture(data[:size])


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("suffix", WRITERS)
def test_damage_raises_nothing_else(suffix: str) -> None:
    data = write_picture(Picture(noise(1 if suffix == ".pgm" else 3)), suffix)
    rng = np.random.default_rng(0)
    for _ in range(100):
        damaged = bytearray(data)
        for at in rng.integers(len(data), size=3):
            damaged[at] = rng.integers(256)
        with contextlib.suppress(ImageError):
            assert read_picture(bytes(damaged), orient=True).pixels.dtype in (np.uint8, np.uint16)
