"""Other formats come in exactly, or not at all, and go out as they came."""

from __future__ import annotations

import contextlib
import gc
import io
import itertools
import json
import math
import struct
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import l3dali
from l3dali.arguments import SAMPLE_TYPES
from l3dali.cli import main
from l3dali.errors import ImageError, unreadable
from l3dali.images.formats import FORMATS, lossy_format, read_header, write_picture
from l3dali.images.formats import WRITERS as ALL_WRITERS
from l3dali.images.geometry import shrink
from l3dali.images.picture import Picture
from l3dali.images.reading import read_picture
from l3dali.images.transcoding import encode_picture
from l3dali.metadata import extra_samples

imagecodecs = pytest.importorskip("imagecodecs")
tifffile = pytest.importorskip("tifffile")
pytest.importorskip("netpbmfile")
PIL = pytest.importorskip("PIL")
for library in ("PIL.Image", "PIL.ImageCms", "PIL.ImageOps"):
    pytest.importorskip(library)

Image = NDArray[Any]
# Those of images; tests/integrations/test_volume_files.py has NIfTI.
WRITERS = {s: writer for s, writer in ALL_WRITERS.items() if not s.startswith(".nii")}


BYTE_WRITERS = [suffix for suffix, writer in WRITERS.items() if "uint8" in writer.types]


def noise(channels: int, dtype: type = np.uint8, height: int = 9, width: int = 13) -> Image:
    """Random pixels that use all bits; fully transparent ones keep their colours."""
    shape = (height, width) if channels == 1 else (height, width, channels)
    if np.dtype(dtype).kind == "f":
        return noise(channels, np.dtype(f"u{np.dtype(dtype).itemsize}").type).view(dtype)
    image = np.random.default_rng(channels).integers(
        np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape
    )
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
    try:
        tifffile.imwrite(file, pixels, metadata=None, **options)
    except NotImplementedError:  # for Python 3.10
        pytest.skip("this imagecodecs packs no bits")
    return file.getvalue()


def exif(orientation: int) -> bytes:
    """An EXIF block with a maker and an orientation."""
    block = PIL.Image.Exif()
    block[0x010F] = "maker"
    block[0x0112] = orientation
    return bytes(block.tobytes())


# PNG.


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _png(
    width: int, bits: int, color_type: int, rows: bytes, *chunks: tuple[bytes, bytes]
) -> bytes:
    """A PNG with these rows, each behind the number of its filter."""
    bits_of_pixel = bits * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color_type]
    height = len(rows) // (1 + (width * bits_of_pixel + 7) // 8)
    ihdr = struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, 0)
    parts = [(b"IHDR", ihdr), *chunks, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in parts)


def _interlaced(png: bytes) -> bytes:
    """A PNG of one pixel, which is its first pass."""
    return png[:8] + _chunk(b"IHDR", png[16:28] + b"\1") + png[33:]


@pytest.mark.parametrize("color_type", [0, 2, 4, 6])
def test_png_of_16_bits_keeps_every_bit(color_type: int) -> None:
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[color_type]
    pixels = noise(channels, np.uint16)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    picture = read_picture(_png(pixels.shape[1], 16, color_type, rows))
    assert picture.pixels.dtype == np.uint16
    assert np.array_equal(picture.pixels, pixels)


def _few_bits(bits: int, *chunks: tuple[bytes, bytes]) -> bytes:
    row = np.arange(8) % 2**bits
    packed = np.packbits((row[:, None] >> np.arange(bits)[::-1] & 1).astype(np.uint8).ravel())
    return _png(8, bits, 0, b"\0" + packed.tobytes(), *chunks)


@pytest.mark.parametrize(
    "name", ["1.png", "2.png", "4.png", "tiff", "inverted.tiff", "4.tiff", "bmp", "pbm"]
)
def test_labels_of_few_bits_keep_their_numbers(name: str) -> None:
    """Scaled to 0 ... 255 they would be other classes."""
    bits = int(name[0]) if name[0].isdigit() else 1
    row = np.arange(8, dtype=np.uint8) % 2**bits
    image = PIL.Image.fromarray(row[None] == 1)
    data = {
        **{f"{bits}.png": _few_bits(bits) for bits in (1, 2, 4)},
        "tiff": saved(image, "TIFF"),
        "inverted.tiff": saved(image, "TIFF", tiffinfo={262: 0}),
        "4.tiff": _with_tags(tiff(np.array([[0x01, 0x23, 0x45, 0x67]], "u1")), t256=8, t258=4),
        "bmp": saved(image, "BMP"),
        "pbm": saved(image, "PPM"),
    }[name]
    assert read_picture(data).pixels.tolist() == [(row * (255 // (2**bits - 1))).tolist()]
    picture = read_picture(data, labels=True, max_side=8, refuse_labels=True)
    assert picture.pixels.tolist() == [row.tolist()]
    assert read_picture(data, palette="index").pixels.tolist() == [row.tolist()]
    assert l3dali.info(encode_picture(picture)).labels


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("samples", [2, 3, 5])
@pytest.mark.parametrize("photometric", [1, 2])
def test_bands_of_few_bits_keep_their_numbers(bits: int, samples: int, photometric: int) -> None:
    """As masks that GDAL puts into one file: all but the first became 0 ... 255."""
    numbers = np.random.default_rng(0).integers(0, 2**bits, (6, 8, samples), np.uint8)
    digits = np.unpackbits(numbers[..., np.newaxis], axis=-1)[..., 8 - bits :]
    data = _with_tags(tiff(np.packbits(digits.reshape(6, -1), axis=1)), t256=8, t277=samples)
    data = _with_tags(data, t258=bits, t262=photometric)
    if photometric == 2 and samples == 2:
        with pytest.raises(ImageError):
            read_picture(data)
        return
    assert read_picture(data).pixels.tolist() == (numbers * (255 // (2**bits - 1))).tolist()
    assert read_picture(data, labels=True).pixels.tolist() == numbers.tolist()


def test_labels_of_few_bits_keep_their_alpha() -> None:
    picture = read_picture(_few_bits(4, (b"tRNS", b"\0\3")), labels=True)
    assert picture.pixels.tolist() == [[[i, 0 if i == 3 else 255] for i in range(8)]]


def test_png_transparent_colour_becomes_alpha() -> None:
    data = _png(3, 8, 0, b"\0\1\2\3", (b"tRNS", b"\0\2"))
    assert read_picture(data).pixels.tolist() == [[[1, 255], [2, 0], [3, 255]]]


PALETTE_PNG = _png(
    *(4, 2, 3),
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


XMP_OF_OTHERS = {
    "libvips": (b"zTXt", b"XML:com.adobe.xmp\0\0" + zlib.compress(b"<x/>")),
    "text": (b"tEXt", b"XML:com.adobe.xmp\0<x/>"),
}  # fmt: skip


@pytest.mark.parametrize("tool", XMP_OF_OTHERS)
def test_xmp_of_png_as_other_tools_write_it(tool: str) -> None:
    picture = read_picture(_png(1, 8, 0, b"\0\5", XMP_OF_OTHERS[tool]), keep_text=True)
    assert picture.xmp == b"<x/>"
    assert not picture.metadata  # It would be there twice, and one not turned.


@pytest.mark.parametrize("kind", [b"iCCP", b"eXIf"])
def test_png_chunks_with_a_wrong_checksum_are_dropped(kind: bytes) -> None:
    bodies = {b"iCCP": b"x\0\0" + zlib.compress(b"profile"), b"eXIf": b"II*\0"}
    good = _png(1, 8, 0, b"\0\1", (kind, bodies[kind]))
    picture = read_picture(good)
    assert (picture.icc or picture.exif) in (b"profile", b"II*\0")
    at = good.index(kind) + 4 + len(bodies[kind])
    picture = read_picture(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    assert picture.icc is picture.exif is None


def test_profiles_of_png() -> None:
    """The first of several counts; one that is cut is dropped."""
    first, second, cut = (
        (b"iCCP", b"x\0\0" + body)
        for body in (zlib.compress(b"1"), zlib.compress(b"2"), zlib.compress(bytes(99))[:-3])
    )
    for profiles, expected in (([first, second], b"1"), ([cut], None)):
        data = _png(1, 8, 0, b"\0\1", *profiles)
        assert read_picture(data).icc == expected


@pytest.mark.parametrize("kind", [b"tIME", b"gAMA", b"tEXt", b"pHYs"])
def test_damaged_png_chunks_leave_labels_alone(kind: bytes) -> None:
    """Pillow refused what libpng reads."""
    data = _png(2, 8, 3, b"\0\1\0", (kind, b"?"), (b"PLTE", bytes(range(6))))
    at = data.index(kind) + 5
    damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    assert read_picture(damaged).pixels.shape == (1, 2, 3)
    assert read_picture(damaged, palette="index").pixels.tolist() == [[1, 0]]


def test_the_smallest_bmp() -> None:
    """Of 30 bytes, as OS/2 has them: "index out of range"."""
    data = b"BM" + struct.pack("<IHHIIHHHH", 30, 0, 0, 26, 12, 1, 1, 1, 24) + b"\3\2\1\0"
    assert read_picture(data).pixels.tolist() == [[[1, 2, 3]]]


def test_png_numbers_past_the_palette_stay() -> None:
    pixels = np.array([[0, 1, 255]], np.uint8)
    data = write_picture(Picture(pixels, palette=bytes([1, 2, 3, 255])), ".png")
    again = read_picture(data, palette="index")
    assert np.array_equal(again.pixels, pixels)
    assert again.palette == bytes([1, 2, 3, 255]) + 255 * bytes([0, 0, 0, 255])


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


@pytest.mark.parametrize("bigtiff", [False, True])
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_exif_of_a_tiff_is_that_of_its_image(bigtiff: bool, byteorder: Any) -> None:
    file = io.BytesIO()
    with tifffile.TiffWriter(file, bigtiff=bigtiff, byteorder=byteorder) as out:
        for subfile, turn in ((1, 3), (0, 6)):
            tags = [(274, "H", 1, turn, True), (271, "s", 0, f"maker {turn}", True)]
            out.write(noise(1), subfiletype=subfile, extratags=tags, metadata=None)
    picture = read_picture(file.getvalue())
    for each in (picture, read_picture(write_picture(picture, ".tif"))):
        block = PIL.Image.Exif()
        block.load(each.exif)
        assert dict(block) == {274: 6, 271: "maker 6"}


@pytest.mark.parametrize("order", ["<", ">"])
def test_exif_of_a_tiff_keeps_types_and_bytes(order: Any) -> None:
    """A height below the sea, or a version as text, failed the image, and an entry of a type that
    no library supports lost the directory."""
    later = [(0xFFFF, 130, 1, b"next")]
    below = {
        0x8825: [(0, 2, 8, b"2.3.0.0\0"), (6, 10, 1, struct.pack(f"{order}2i", -3, 1))],
        0x8769: [(0x9286, 129, 6, b"J\xc3\xb6rg\0"), (0xA000, 3, 1, struct.pack(f"{order}H", 7))],
    }
    tags = [(code, "I", 1, 1, True) for code in (0x8824, 0x8768, 274)]  # tifffile drops others
    data = bytearray(tiff(noise(1), byteorder=order, extratags=tags))
    at_of = {code: data.index(struct.pack(f"{order}HHI", code, 4, 1)) for code, *_ in tags}
    struct.pack_into(f"{order}HIB", data, at_of[274] + 2, 1, 1, 6)  # a BYTE
    for code, entries in below.items():
        struct.pack_into(f"{order}HHII", data, at_of[code - 1], code, 4, 1, len(data))
        values = len(data) + 2 + 12 * len(entries + later) + 4
        data += struct.pack(f"{order}H", len(entries + later))
        held = b""
        for tag, kind, count, value in entries + later:
            data += struct.pack(f"{order}HHI", tag, kind, count)
            is_held = len(value) > 4
            data += (
                struct.pack(f"{order}I", values + len(held)) if is_held else value.ljust(4, b"\0")
            )
            held += value if len(value) > 4 else b""
        data += bytes(4) + held
    exif = read_picture(bytes(data)).exif
    assert exif is not None
    whole = b"II*\0" if order == "<" else b"MM\0*"
    assert exif.startswith(whole)
    assert b"next" not in exif
    for entries in below.values():
        for tag, kind, count, value in entries:
            at = exif.index(struct.pack(f"{order}HHI", tag, kind, count)) + 8
            if len(value) > 4:
                (at,) = struct.unpack_from(f"{order}I", exif, at)
            assert exif[at : at + len(value)] == value
    assert struct.pack(f"{order}HHIH", 0x0112, 3, 1, 6) in exif  # a SHORT, as EXIF has it
    picture = read_picture(write_picture(read_picture(bytes(data)), ".tif"))
    assert np.array_equal(picture.pixels, noise(1))
    upright = read_picture(bytes(data), orient=True).pixels
    assert np.array_equal(upright, np.rot90(noise(1), -1))


@pytest.mark.parametrize(
    ("kind", "bigtiff"), [("B", False), ("I", False), ("B", True), ("I", True), ("Q", True)]
)
def test_an_orientation_of_any_integer_turns(bigtiff: bool, kind: str) -> None:
    data = tiff(noise(1), bigtiff=bigtiff, extratags=[(274, kind, 1, 6, True)])
    upright = read_picture(data, orient=True).pixels
    assert np.array_equal(upright, np.rot90(noise(1), -1))


def test_tiff_palette_of_two_colours() -> None:
    colors = np.array([[0, 65535], [257, 0], [514, 771]], np.uint16)
    numbers = noise(1) > 99
    data = tiff(numbers, extratags=[(320, "H", 6, tuple(colors.flat), True)])
    data = _with_tags(data, t262=3)
    assert np.array_equal(read_picture(data).pixels, (colors.T >> 8)[numbers.astype(int)])


def _with_tags(data: bytes, **values: int) -> bytes:
    """A TIFF with other values, of two bytes, of tags that it has: `t262` is a tag."""
    out = bytearray(data)
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        for name, value in values.items():
            at = file.pages[0].tags[int(name[1:])].valueoffset
            out[at : at + 2] = struct.pack("<H", value)
    return bytes(out)


@pytest.mark.parametrize("code", [324, 325])  # the offsets of tiles and their sizes
@pytest.mark.parametrize("count", [1, 3])
def test_tiff_that_does_not_say_where_its_tiles_are(code: int, count: int) -> None:
    data = tiff(noise(1, height=32, width=32), tile=(16, 16), compression="zlib")
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        at = file.pages[0].tags[code].offset
    damaged = data[: at + 4] + struct.pack("<I", count) + data[at + 8 :]
    with pytest.raises(ImageError, match="offsets of its 4 strips or tiles"):
        read_picture(damaged)


@pytest.mark.parametrize("bits", [1, 4, 8])
@pytest.mark.parametrize(
    "entries", [[(0, 0, 0), (255, 255, 255)], [(0, 0, 0), (1, 1, 1), (2, 2, 2)]]
)
def test_palettes_of_bmp_that_look_gray(bits: int, entries: list[tuple[int, int, int]]) -> None:
    """Pillow takes them for gray of as many bits as they have entries for."""
    numbers = np.random.default_rng(bits).integers(0, 2, (9, 16), np.uint8)
    packed = np.packbits(np.unpackbits(numbers[..., None], axis=2)[..., -bits:].reshape(9, -1), 1)
    rows = np.pad(packed[::-1], ((0, 0), (0, -packed.shape[1] % 4))).tobytes()
    colors = b"".join(struct.pack("4B", *entry, 0) for entry in entries)
    start = 54 + len(colors)
    head = struct.pack("<2sIII", b"BM", start + len(rows), 0, start)
    head += struct.pack("<IiiHHIIiiII", 40, 16, 9, 1, bits, 0, len(rows), 0, 0, len(entries), 0)
    data = head + colors + rows
    pixels = read_picture(data).pixels
    wanted = np.array(entries, np.uint8)[numbers]
    assert np.array_equal(pixels if pixels.ndim == 3 else np.dstack([pixels] * 3), wanted)
    labels = read_picture(data, palette="index")
    assert np.array_equal(labels.pixels, numbers)


def test_values_for_no_data_are_not_blended() -> None:
    pixels = np.where(
        np.arange(64) < 33, np.int16(-9999), noise(1, height=64, width=64).astype(np.int16)
    )
    file, tags = io.BytesIO(), [(42113, "s", 0, "-9999", True)]
    tifffile.imwrite(file, pixels, extratags=tags, metadata=None)
    small = read_picture(file.getvalue(), max_side=31).pixels
    assert set(small.flat) <= set(pixels.flat)


def test_damaged_png_does_not_stay_in_memory() -> None:
    data = saved(PIL.Image.fromarray(noise(3, height=300, width=300)), "PNG")
    for damaged in (data[:-200], data[:20_000] + bytes(9) + data[20_009:]):
        gc.collect()
        tracemalloc.start()
        references = sys.getrefcount(None)
        for _ in range(200):
            with pytest.raises(ImageError):
                read_picture(damaged)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 2**20
        tracemalloc.stop()
        assert abs(sys.getrefcount(None) - references) < 100  # Each took one with it.


def test_tiff_that_lists_one_strip_of_many() -> None:
    """The others were whatever follows it."""
    data = tiff(noise(1, height=40), rowsperstrip=40)
    with pytest.raises(ImageError, match="offsets of its 1 strips or tiles"):
        read_picture(_with_tags(data, t279=13 * 10))


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, None),
        ({"description": "20 ms"}, "20 ms"),
        ({"metadata": {"exposure": 20}}, {"shape": [9, 13, 3], "exposure": 20}),
    ],
    ids=["shape", "text", "more"],
)
def test_descriptions_that_tifffile_adds_to(options: dict[str, Any], kept: Any) -> None:
    """Its note of the shape alone is left out; a text before it was left out with it."""
    file = io.BytesIO()
    tifffile.imwrite(file, noise(3), photometric="rgb", **options)
    with tifffile.TiffFile(
        io.BytesIO(write_picture(read_picture(file.getvalue()), ".tif"))
    ) as again:
        description = again.pages[0].description
    assert (json.loads(description) if isinstance(kept, dict) else description) == (kept or "")


@pytest.mark.parametrize(
    ("dtype", "text", "value"),
    [
        *[("i2", text, int(text)) for text in ("32767", "-32768", "-9999", "200")],
        *[("i1", "7", 7), ("u1", "255", 255), ("u2", "65535", 65535), ("u2", "1e2", 100)],
        *[("u2", None, 0), ("u1", "-1", None), ("u1", "0.5", None), ("u1", "nan", None)],
        *[("i2", "32768", None), ("u1", "none", None), ("u1", "1e999", None)],
    ],
)
def test_tiff_without_all_of_its_tiles(dtype: str, text: str | None, value: int | None) -> None:
    """GDAL leaves out those of its no-data value; tifffile took 0 for the largest of int16."""
    tiles = iter([np.full((16, 16), 5, dtype), None, None, None])
    tags = [] if text is None else [(42113, 2, None, text, True)]
    options: Any = {"shape": (32, 32), "dtype": dtype, "tile": (16, 16), "metadata": None}
    file = io.BytesIO()
    tifffile.imwrite(file, tiles, extratags=tags, **options)
    if value is None:
        with pytest.raises(ImageError, match="with missing strips or tiles"):
            read_picture(file.getvalue())
        return
    expected = np.full((32, 32), value, dtype)
    expected[:16, :16] = 5
    np.testing.assert_array_equal(read_picture(file.getvalue()).pixels, expected)


@pytest.mark.parametrize("photometric", [0, 1])
def test_tiff_of_three_bands_in_jpeg(photometric: int) -> None:
    """As GDAL writes those that are no RGB. libjpeg takes them for YCbCr, and made RGB of them."""
    jpeg = imagecodecs.jpeg8_encode(noise(3, height=16, width=16), colorspace=2, outcolorspace=2)
    options: Any = {"shape": (16, 16, 3), "dtype": "u1", "metadata": None, "tile": (16, 16)}
    file, bands = io.BytesIO(), io.BytesIO()
    tifffile.imwrite(file, iter([jpeg]), photometric="rgb", compression="jpeg", **options)
    assert read_picture(file.getvalue()).pixels.shape == (16, 16, 3)
    options |= {"planarconfig": "contig", "extrasamples": ["unspecified"] * 2}
    tifffile.imwrite(bands, iter([jpeg]), photometric=photometric, compression="jpeg", **options)
    for data in (_with_tags(file.getvalue(), t262=photometric), bands.getvalue()):
        with pytest.raises(ImageError, match="three samples"):
            read_picture(data)


@pytest.mark.parametrize(
    ("suffix", "width"),
    [(".png", 1_000_001), (".webp", 2**14), (".jxl", 2**23 + 1), (".jp2", 2**20 + 1)],
)
def test_sides_that_other_formats_lack(suffix: str, width: int) -> None:
    """libjxl wrote files of 2^24 pixels in a line, and read none."""
    pixels = np.zeros((1, width, 3), np.uint8)
    with pytest.raises(ImageError, match=r"use \.tif"):
        write_picture(Picture(pixels), suffix)
    pixels = np.zeros((1, width), np.uint8)
    assert read_picture(write_picture(Picture(pixels), ".tif")).pixels.shape == pixels.shape


@pytest.mark.parametrize("kind", [1, 3, 4, 5, 7])
@pytest.mark.parametrize("order", ["<", ">"])
def test_bytes_of_tiff_of_any_type(order: str, kind: int) -> None:
    """An ICC profile of numbers ended `l3 profile`; XMP of them came out in another order."""
    block = bytes(range(40))
    size = {1: 1, 3: 2, 4: 4, 5: 8, 7: 1}[kind]
    tags = [(code, 7, len(block), block, True) for code in (34_675, 700)]
    data = bytearray(tiff(noise(1), byteorder=order, extratags=tags))
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        places = [file.pages[0].tags[code].offset + 2 for code in (34_675, 700)]
    for place in places:
        struct.pack_into(f"{order}HI", data, place, kind, len(block) // size)
    picture = read_picture(bytes(data))
    assert (picture.icc, picture.xmp) == (block, block)


def test_texts_of_tiff_are_kept() -> None:
    name = "José Müller, 京都".encode()
    for bigtiff in (False, True):
        tags = [(315, 2, len(name) + 1, name + b"\0", True)]
        picture = read_picture(tiff(noise(1), extratags=tags, bigtiff=bigtiff))
        assert name in (picture.exif or b"")
        again = read_picture(write_picture(picture, ".tif"))
        assert name in (again.exif or b"")


@pytest.mark.parametrize("compression", ["lerc", "jpegxr", "jpeg2000", "jpegxl", "png", "webp"])
def test_tiff_of_tiles_that_are_other_images(compression: str) -> None:
    data = tiff(noise(3), photometric="rgb", compression=compression)
    with pytest.raises(ImageError, match=f"tiles in {compression.upper()}"):
        read_picture(data)


def _tiff_of_jpegs(*jpegs: Image, tile: tuple[int, int] | None = None) -> bytes:
    """A gray TIFF of 40 x 20 pixels, of these images."""
    file = io.BytesIO()
    options: Any = {"tile": tile} if tile else {"rowsperstrip": 40}
    parts = iter([bytes(imagecodecs.jpeg8_encode(jpeg)) for jpeg in jpegs])
    tifffile.imwrite(
        file, parts, shape=(40, 20), dtype="u1", photometric=1, compression=7, metadata=None,
        **options,
    )  # fmt: skip
    return file.getvalue()


@pytest.mark.parametrize("tile", [None, (32, 32)])
def test_jpegs_of_a_tiff_are_what_the_page_says(tile: tuple[int, int] | None) -> None:
    """One that was wider, as padded to blocks, gave a slanted picture."""
    first = [np.zeros((32, 32), np.uint8)] if tile else []
    last = 8 if tile else 40
    for shape, is_read in [
        ((last, 20), True),
        ((last, 24), False),
        ((48, 20), not tile),
        ((16, 64), False),
        ((32, 32), bool(tile)),
        ((last, 20, 3), False),
    ]:
        data = _tiff_of_jpegs(*first, np.zeros(shape, np.uint8), tile=tile)
        refused = pytest.raises(ImageError, match=r"does not fit the page|corrupted")
        with contextlib.nullcontext() if is_read else refused:
            assert read_picture(data).pixels.shape == (40, 20)


def test_tiff_of_pyramids_and_raw_photographs() -> None:
    """Smaller copies are left out. Of a page that is a copy itself the image is not read."""
    row, small, large = noise(1, height=1), noise(3, height=12, width=9), noise(1, height=60)
    for first, second, is_read in (
        (large, small, True),
        (small, large, False),
        (row, row[:, ::2], True),
    ):
        for options in ({"subifds": 1}, {}):
            file = io.BytesIO()
            with tifffile.TiffWriter(file) as writer:
                writer.write(first, metadata=None, **options)
                writer.write(second, metadata=None, subfiletype=0 if options else 1)
            refused = pytest.raises(ImageError, match="only a thumbnail")
            with contextlib.nullcontext() if is_read else refused:
                assert np.array_equal(read_picture(file.getvalue()).pixels, first)


@pytest.mark.parametrize(
    "options", [{"imagej": True}, {"metadata": {}}, {"metadata": {}, "description": "cells"}]
)
def test_tiff_of_several_images_behind_one_directory(options: dict[str, Any]) -> None:
    file = io.BytesIO()
    tifffile.imwrite(file, np.zeros((5, 9, 13), np.uint8), truncate=True, **options)
    with pytest.raises(ImageError, match="several images in one file"):
        read_picture(file.getvalue())


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_tiff_whose_lists_were_never_written(compression: str | None) -> None:
    """It was black, with pixels that nothing lists, as of a writer that was killed."""
    data = bytearray(tiff(noise(1, height=64, width=64), tile=(64, 64), compression=compression))
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        for code in (324, 325):
            at = file.pages[0].tags[code].valueoffset
            data[at : at + 4] = bytes(4)
    with pytest.raises(ImageError, match=r"offsets of its 1 strips|the sizes of its strips"):
        read_picture(bytes(data))


def test_tiff_of_no_such_layout() -> None:
    data = _with_tags(tiff(noise(1), predictor=True, compression="lzw"), t258=4)
    with pytest.raises(ImageError, match="a predictor of 4 bits"):
        read_picture(data)
    data = _with_tags(tiff(noise(3), predictor=True, compression="lzw"), t259=32773)
    with pytest.raises(ImageError, match="a predictor, but without a compression"):
        read_picture(data)
    with pytest.raises(ImageError, match="no photometric interpretation"):
        read_picture(tiff(noise(3)).replace(struct.pack("<H", 262), struct.pack("<H", 263), 1))
    palette = np.zeros((3, 256), np.uint16)
    data = tiff(noise(1), photometric="palette", colormap=palette)
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        at = file.pages[0].tags[320].offset
    with pytest.raises(ImageError, match="PALETTE images of 1 samples"):
        read_picture(data[: at + 4] + struct.pack("<I", 256) + data[at + 8 :])
    for samples in (2, 4):
        data = tiff(noise(4), photometric="minisblack", planarconfig="contig")
        data = _with_tags(data, t262=2, t277=samples)
        if samples == 4:  # Writers count colours among the extra samples.
            assert np.array_equal(read_picture(data).pixels, noise(4))
        else:
            with pytest.raises(ImageError, match="RGB images of 2 samples"):
                read_picture(data)
    with pytest.raises(ImageError, match="PALETTE images"):
        read_picture(_with_tags(tiff(noise(1)), t262=3))


@pytest.mark.parametrize("compression", [None, "lzw", "zlib"])
@pytest.mark.parametrize("photometric", [*tifffile.PHOTOMETRIC, 7])
def test_each_photometric_interpretation_is_read_or_refused(
    photometric: int, compression: str | None
) -> None:
    pixels = noise(3)
    data = tiff(pixels, photometric="rgb", compression=compression)
    data = _with_tags(data, t262=photometric)
    wanted = {1: pixels, 2: pixels}.get(photometric)
    if wanted is None:
        with pytest.raises(ImageError, match=r"not supported|not a valid PHOTOMETRIC"):
            read_picture(data)
    else:
        assert np.array_equal(read_picture(data).pixels, wanted)


def test_tiff_of_ycbcr_is_read_where_it_is_jpeg() -> None:
    ramp = np.add.outer(np.arange(64), np.arange(64))
    pixels = np.stack([ramp, 2 * ramp, 255 - ramp], axis=2).astype(np.uint8)
    image = PIL.Image.fromarray(pixels).convert("YCbCr")
    for compression in ("jpeg", "tiff_lzw", "raw"):
        data = saved(image, "TIFF", compression=compression)
        if compression == "jpeg":
            difference = read_picture(data).pixels.astype(int) - np.asarray(image.convert("RGB"))
            assert np.median(abs(difference)) <= 2
        else:
            with pytest.raises(ImageError, match="YCBCR images of 3 samples in"):
                read_picture(data)
    planes = np.moveaxis(pixels, -1, 0)
    data = tiff(planes, photometric="rgb", planarconfig="separate", compression="jpeg")
    with pytest.raises(ImageError, match="YCBCR images of 3 samples in JPEG"):
        read_picture(_with_tags(data, t262=6))


@pytest.mark.parametrize("photometric", ["minisblack", "miniswhite"])
@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_tiff_where_zero_is_white_keeps_its_extra_samples(planar: str, photometric: str) -> None:
    for extra in (["unassalpha"], ["unspecified"] * 2):
        pixels = noise(1 + len(extra))
        stored = pixels.copy()
        if photometric == "miniswhite":
            stored[..., 0] = 255 - stored[..., 0]
        if planar == "separate":
            stored = np.moveaxis(stored, -1, 0)
        data = tiff(stored, photometric=photometric, planarconfig=planar, extrasamples=extra)
        assert np.array_equal(read_picture(data).pixels, pixels)


@pytest.mark.parametrize("palette", ["rgb", "index"])
@pytest.mark.parametrize("bits", range(1, 17))
def test_tiff_where_zero_is_white_by_its_bits(bits: int, palette: Any) -> None:
    """A class or a gray of so many bits is the same number, whichever is white."""
    pixels = noise(1, np.uint16) >> (16 - bits)
    pixels = pixels.astype(np.uint8 if bits <= 8 else np.uint16)
    files = [
        tiff(stored, photometric=photometric, bitspersample=bits)
        for stored, photometric in (
            (pixels, "minisblack"),
            ((2**bits - 1 - pixels).astype(pixels.dtype), "miniswhite"),
        )
    ]
    scale = 255 // (2**bits - 1) if bits in (1, 2, 4) and palette == "rgb" else 1
    for data in files:
        assert np.array_equal(read_picture(data, palette=palette).pixels, pixels * scale)


def test_tiff_numbers_beside_alpha_stay() -> None:
    pixels = noise(2) >> 4
    options = {"photometric": "minisblack", "planarconfig": "contig", "bitspersample": 4}
    data = tiff(pixels, extrasamples=["unassalpha"], **options)
    assert np.array_equal(read_picture(data).pixels, pixels * 17)
    assert np.array_equal(
        read_picture(data, labels=True).pixels, pixels * np.array([1, 17], np.uint8)
    )


@pytest.mark.parametrize("image_format", ["TIFF", "BMP"])
def test_palettes_of_tiff_and_bmp(image_format: str) -> None:
    image = PIL.Image.fromarray(noise(3)).quantize(11)
    data = saved(image, image_format)
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
    data = tiff(noise(1, np.uint16), photometric="palette", colormap=np.tile(_COLORS, 256) * 257)
    assert read_picture(data).pixels.shape == (9, 13, 3)
    with pytest.raises(ImageError, match="a palette of 65536 colours; at most 256"):
        read_picture(data, palette="index")


@pytest.mark.parametrize("tile", [256, 1024])
def test_narrow_tiff_in_tiles(tile: int) -> None:
    """As GDAL writes line scans."""
    pixels = np.arange(70_000, dtype=np.uint16)[:, None]
    assert np.array_equal(read_picture(tiff(pixels, tile=(tile, tile))).pixels, pixels)


@pytest.mark.parametrize("planes", ["separate", "contig"])
def test_tiff_of_many_bands_in_tiles_larger_than_its_image(planes: str) -> None:
    """As GDAL writes chips of imaging spectrometers."""
    pixels = np.zeros((285, 120, 120), np.uint8) + np.arange(120, dtype=np.uint8)
    stored = pixels if planes == "separate" else np.moveaxis(pixels, 0, -1)
    options = {"photometric": "minisblack", "tile": (512, 512), "compression": "zlib"}
    data = tiff(stored, planarconfig=planes, **options)
    assert np.array_equal(read_picture(data).pixels, np.moveaxis(pixels, 0, -1))


# Sizes, before anything is decoded.


def _files_of_all_formats(pixels: Image) -> dict[str, bytes]:
    """One image in each format that is read, colours in RGB."""
    image = PIL.Image.fromarray(pixels)
    gray = PIL.Image.fromarray(np.ascontiguousarray(pixels[:, :, 0]))
    files = {
        suffix: write_picture(Picture(np.asarray(gray) if suffix == ".pgm" else pixels), suffix)
        for suffix in BYTE_WRITERS
    }
    return files | {
        "gray.png": saved(gray, "PNG"),
        "palette.png": saved(image.quantize(9), "PNG"),
        "interlaced.png": _interlaced(_png(1, 8, 2, b"\0\1\2\3")),
        "jpg": saved(image, "JPEG"),
        "progressive.jpg": saved(image, "JPEG", progressive=True, exif=exif(6)),
        "gray.jpg": saved(gray, "JPEG"),
        "lossy.webp": saved(image, "WEBP"),
        "icc.webp": saved(image, "WEBP", lossless=True, icc_profile=b"profile"),
        "palette.bmp": saved(image.quantize(9), "BMP"),
        "codestream.j2k": bytes(imagecodecs.jpeg2k_encode(pixels, codecformat="j2k")),
        "box.jxl": bytes(imagecodecs.jpegxl_encode(pixels, usecontainer=True)),
        "gray.jxl": bytes(imagecodecs.jpegxl_encode(np.asarray(gray), lossless=True)),
        "big.tif": tiff(pixels, photometric="rgb", bigtiff=True),
        "planes.tif": tiff(np.moveaxis(pixels, -1, 0), photometric="rgb", planarconfig="separate"),
        "tiles.tif": tiff(pixels, photometric="rgb", tile=(16, 16), compression="zlib"),
        "ascii.ppm": b"P3 # size\n%d %d 255 " % image.size + b"1 2 3 " * math.prod(image.size),
        "bits.pbm": saved(image.convert("1"), "PPM"),
    }


@pytest.mark.parametrize("name", _files_of_all_formats(noise(3)))
def test_header_gives_the_size_and_enough_memory(name: str) -> None:
    data = _files_of_all_formats(noise(3))[name]
    header = read_header(data)
    picture = read_picture(data)
    assert (header.height, header.width) == picture.pixels.shape[:2]
    assert picture.pixels.nbytes <= header.raw_bytes
    assert picture.pixels.nbytes <= header.read_bytes


def box(kind: bytes, body: bytes) -> bytes:
    """A box of a JPEG 2000."""
    return struct.pack(">I4s", 8 + len(body), kind) + body


def palette_jp2(columns: int, *, in_header: bool = True) -> bytes:
    """A JPEG 2000 of 12 x 8 numbers of palette entries, which have so many channels."""

    numbers = np.eye(12, 8, dtype=np.uint8)
    stream = bytes(imagecodecs.jpeg2k_encode(numbers, level=0, codecformat="j2k"))
    header = box(b"ihdr", struct.pack(">IIHBBBB", 12, 8, 1, 7, 7, 0, 0))
    header += box(b"colr", struct.pack(">BBBI", 1, 0, 0, 16))
    entries = struct.pack(">HB", 2, columns) + bytes([7]) * columns
    entries += bytes(columns) + (bytes([9, 8, 7]) * columns)[:columns]
    palette = box(b"pclr", entries)
    palette += box(b"cmap", b"".join(struct.pack(">HBB", 0, 1, i) for i in range(columns)))
    file = box(b"jP  ", b"\r\n\x87\n") + box(b"ftyp", b"jp2 \0\0\0\0jp2 ")
    file += box(b"jp2h", header + palette) if in_header else palette + box(b"jp2h", header)
    return file + box(b"jp2c", stream)


def _jp2(
    channels: int,
    *,
    colr: bytes | None = None,
    uses: list[int] | None = None,
    further: bytes = b"",
) -> bytes:
    """A JPEG 2000 with this in its colour box, and channels for these uses."""

    stream = bytes(imagecodecs.jpeg2k_encode(noise(channels), level=0, codecformat="j2k"))
    header = box(b"ihdr", struct.pack(">IIHBBBB", 9, 13, channels, 7, 7, 0, 0))
    header += box(b"colr", colr or struct.pack(">BBBI", 1, 0, 0, 16)) + further
    if uses is not None:
        entries = (struct.pack(">3H", i, use, 0 if use else i + 1) for i, use in enumerate(uses))
        header += box(b"cdef", struct.pack(">H", len(uses)) + b"".join(entries))
    file = box(b"jP  ", b"\r\n\x87\n") + box(b"ftyp", b"jp2 \0\0\0\0jp2 ")
    return file + box(b"jp2h", header) + box(b"jp2c", stream)


@pytest.mark.parametrize("number", [*range(30), 99, 255])
def test_each_colour_space_of_jpeg_2000_is_read_or_refused(number: int) -> None:
    colr = struct.pack(">BBBI", 1, 0, 0, number)
    lab = box(b"colr", struct.pack(">BBBI", 1, 0, 0, 14))  # the second, which is not read
    data = _jp2(3, colr=colr, further=lab)
    if number in (0, 16, 17):
        assert np.array_equal(read_picture(data).pixels, noise(3))
    elif number == 18:
        luma, *chroma = np.moveaxis(noise(3).astype(int), -1, 0)
        red, blue = luma + 1.402 * (chroma[1] - 128), luma + 1.772 * (chroma[0] - 128)
        pixels = read_picture(data).pixels.astype(int)
        assert abs(pixels[..., 0] - red.clip(0, 255)).max() <= 2
        assert abs(pixels[..., 2] - blue.clip(0, 255)).max() <= 2
    else:
        with pytest.raises(ImageError, match="colours other than gray"):
            read_picture(data)


@pytest.mark.parametrize(
    ("method", "space", "kept"),
    [
        *((method, space, True) for method in (2, 3) for space in (b"RGB ", b"GRAY")),
        *((2, space, False) for space in (b"CMYK", b"Lab ", b"YCbr", b"")),
        (4, b"RGB ", False),
    ],
)
def test_profiles_of_jpeg_2000(method: int, space: bytes, kept: bool) -> None:
    data = _jp2(3, colr=bytes([method, 0, 0]) + bytes(16) + space + bytes(108))
    if kept:
        assert np.array_equal(read_picture(data).pixels, noise(3))
    else:
        with pytest.raises(ImageError, match="colours other than gray"):
            read_picture(data)


def test_profiles_of_jpeg_2000_change_no_samples() -> None:
    """The decoder turned them into sRGB, gray into three channels, and the profile was lost."""
    srgb = PIL.ImageCms.ImageCmsProfile(PIL.ImageCms.createProfile("sRGB"))
    other = bytearray(srgb.tobytes())
    red, green = other.index(b"rXYZ"), other.index(b"gXYZ")
    other[red], other[green] = b"gr"  # another RGB
    gray = other.replace(b"RGB XYZ ", b"GRAYXYZ ").replace(b"rTRC", b"kTRC")
    for channels, profile in ((3, other), (4, other), (1, gray), (2, gray)):
        uses = {2: [0, 1], 4: [0, 0, 0, 1]}.get(channels)
        data = _jp2(channels, colr=bytes([2, 0, 0]) + profile, uses=uses)
        assert not np.array_equal(imagecodecs.jpeg2k_decode(data), noise(channels))
        for file in (data, write_picture(read_picture(data), ".jp2")):
            picture = read_picture(file)
            assert np.array_equal(picture.pixels, noise(channels))
            assert (picture.icc, picture.has_alpha) == (bytes(profile), True)


def test_alpha_of_jpeg_2000() -> None:
    assert np.array_equal(read_picture(_jp2(4, uses=[0, 0, 0, 1])).pixels, noise(4))
    assert np.array_equal(read_picture(_jp2(2, uses=[0, 1])).pixels, noise(2))
    for uses in ([0, 0, 0, 2], [0, 2]):
        with pytest.raises(ImageError, match="premultiplied"):
            read_picture(_jp2(len(uses), uses=uses))


@pytest.mark.parametrize(
    ("data", "bands"),
    [
        (_jp2(4), [0]),
        (_jp2(4, uses=[0, 0, 0, 65535]), [0]),
        (_jp2(4, colr=struct.pack(">BBBI", 1, 0, 0, 17)), [0, 0, 0]),
        (_jp2(4, colr=struct.pack(">BBBI", 1, 0, 0, 17), uses=[0, 1, 65535, 65535]), [2, 0, 0]),
        (_jp2(4, colr=bytes([2, 0, 0]) + bytes(16) + b"GRAY" + bytes(108)), [0, 0, 0]),
        (_jp2(2), [0]),
        (bytes(imagecodecs.jpeg2k_encode(noise(4), level=0, codecformat="j2k")), [0]),
        (b"P7\nWIDTH 13\nHEIGHT 9\nDEPTH 4\nMAXVAL 255\nENDHDR\n" + noise(4).tobytes(), [0]),
        (b"P7\nWIDTH 13\nHEIGHT 9\nDEPTH 2\nMAXVAL 255\nENDHDR\n" + noise(2).tobytes(), [0]),
    ],
)
def test_bands_of_jpeg_2000_and_pam(data: bytes, bands: list[int]) -> None:
    """As infrared: a fourth channel that nothing calls alpha weighs no other one."""
    picture = read_picture(data)
    channels = picture.pixels.shape[2]
    np.testing.assert_array_equal(picture.pixels, noise(channels))
    assert extra_samples(picture.metadata) == bands  # which is what the L3 file keeps
    small = read_picture(data, max_side=4).pixels.astype(int)
    for channel in range(channels):
        alone = shrink(picture.pixels[:, :, channel], 4)
        assert np.abs(small[:, :, channel] - alone).max() <= 1  # Pillow counts bytes in integers
    with tifffile.TiffFile(io.BytesIO(write_picture(picture, ".tif"))) as file:
        assert file.pages[0].extrasamples == tuple(bands)


@pytest.mark.parametrize("suffix", [".jp2", ".pam"])
@pytest.mark.parametrize("channels", [2, 4])
@pytest.mark.parametrize("has_alpha", [True, False])
def test_alpha_is_written_as_it_is_read(suffix: str, channels: int, has_alpha: bool) -> None:
    written = write_picture(Picture(noise(channels), has_alpha=has_alpha), suffix)
    picture = read_picture(written)
    np.testing.assert_array_equal(picture.pixels, noise(channels))
    assert picture.has_alpha is has_alpha
    if suffix == ".jp2" and has_alpha:
        with PIL.Image.open(io.BytesIO(written)) as opened:
            assert opened.mode == ("LA" if channels == 2 else "RGBA")
            np.testing.assert_array_equal(np.asarray(opened), noise(channels))


@pytest.mark.parametrize("channels", [2, 4])
def test_alpha_of_one_bit_in_jpeg_2000(channels: int) -> None:
    """As GDAL writes orthophotos. Coefficients of 127 and 128 in 8 bits are 0 and 1 in one bit."""
    right = noise(channels)
    right[..., -1] = np.where(right[..., -1] > 99, 255, 0)
    pixels = right.copy()
    pixels[..., -1] = np.where(right[..., -1], 128, 127)
    data = bytearray(write_picture(Picture(pixels), ".jp2"))
    depth = data.index(b"\xff\x4f\xff\x51") + 42 + 3 * (channels - 1)
    assert data[depth] == 7
    data[depth] = 0
    picture = read_picture(bytes(data))
    np.testing.assert_array_equal(picture.pixels, right)
    assert picture.has_alpha
    data[depth] = 3
    with pytest.raises(ImageError, match="JPEG 2000 with components of different bits"):
        read_picture(bytes(data))


def _of_bits(kind: str, numbers: Image, bits: int) -> bytes:
    if kind == "jxl":
        return bytes(imagecodecs.jpegxl_encode(numbers, lossless=True, bitspersample=bits))
    options = {"codecformat": kind, "bitspersample": bits, "level": 0, "reversible": True}
    return bytes(imagecodecs.jpeg2k_encode(numbers, **options))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("bits", [1, 2, 4, 5, 12])
@pytest.mark.parametrize("kind", ["jp2", "j2k", "jxl"])
def test_jpeg_2000_and_jpeg_xl_of_few_bits(kind: str, bits: int, channels: int) -> None:
    numbers = (noise(channels, np.uint16) % 2**bits).astype(np.uint8 if bits <= 8 else np.uint16)
    data = _of_bits(kind, numbers, bits)
    scale = 255 // (2**bits - 1) if bits in (1, 2, 4) else 1
    np.testing.assert_array_equal(read_picture(data).pixels, numbers * scale)
    picture = read_picture(data, labels=True)
    np.testing.assert_array_equal(picture.pixels, numbers)
    assert picture.has_numbers is (scale > 1)


def test_numbers_beside_alpha_of_four_bits_in_jpeg_xl() -> None:
    numbers = noise(4) % 16
    picture = read_picture(_of_bits("jxl", numbers, 4), labels=True)
    np.testing.assert_array_equal(picture.pixels, numbers * [1, 1, 1, 17])


def test_a_palette_of_jpeg_2000() -> None:
    """Its colours are read; numbers of classes are not to become colours."""
    numbers = np.eye(12, 8, dtype=np.uint8)
    for columns in (3, 4):
        picture = read_picture(palette_jp2(columns))
        colors = np.array([9, 8, 7, 9][:columns], np.uint8)
        assert np.array_equal(picture.pixels, numbers[..., None] * colors)
        assert picture.expanded
        with pytest.raises(ImageError, match="the palette of a JPEG 2000 cannot be kept"):
            read_picture(palette_jp2(columns), labels=True)


@pytest.mark.parametrize("name", _files_of_all_formats(noise(3)))
def test_large_images_are_refused_before_they_are_decoded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = _files_of_all_formats(noise(3))[name]
    header = read_header(data)
    pixels = header.width * header.height
    read_picture(data, max_pixels=pixels)
    monkeypatch.delitem(FORMATS, header.format)
    monkeypatch.setattr("l3dali.images.reading.read_header", lambda _, **__: header)
    with pytest.raises(ImageError, match=rf"limit of {pixels - 1}; max_pixels.*--max-pixels"):
        read_picture(data, max_pixels=pixels - 1)


@pytest.mark.parametrize("width", [1, 2, 8, 9, 16, 255, 256, 257, 513, 1025, 9000])
@pytest.mark.parametrize("height", [1, 8, 9, 64, 640])
def test_header_of_jpegxl_of_any_size(width: int, height: int) -> None:
    pixels = np.zeros((height, width), np.uint8)
    for options in ({}, {"usecontainer": True}):
        header = read_header(bytes(imagecodecs.jpegxl_encode(pixels, effort=1, **options)))
        assert (header.height, header.width) == (height, width)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("lossless", [True, False])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_header_of_jpegxl_of_any_channels(channels: int, lossless: bool, dtype: type) -> None:
    """A bit behind those of extra channels says whether its colours are those of lossy coding."""
    pixels = noise(channels, dtype)
    for boxes in (False, True):
        data = bytes(imagecodecs.jpegxl_encode(pixels, lossless=lossless, usecontainer=boxes))
        header = read_header(data)
        pixel_bytes = (3 + (channels in (2, 4))) * np.dtype(dtype).itemsize
        assert header.raw_bytes == header.width * header.height * pixel_bytes
        assert lossy_format(data) == (None if lossless else "lossy JPEG XL")


@pytest.mark.parametrize("bit", [61, 46], ids=["premultiplied", "depth"])
def test_other_channels_of_jpeg_xl_are_refused(bit: int) -> None:
    data = bytes(imagecodecs.jpegxl_encode(noise(4, np.uint16)))
    changed = bytearray(data[data.index(b"\xff\x0a") :])  # without its boxes
    assert read_picture(bytes(changed)).pixels.shape == (9, 13, 4)
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ImageError, match="with extra channels"):
        read_picture(bytes(changed))


# Files of libjxl of 2 x 1 pixels. imagecodecs writes one alpha, of as many bits as the colours.
TWO_ALPHAS = "ff0a007050580208200001004c004b188b15c209ecd81171803d6b4189dc6f9a3a"
GRAY_TWO_ALPHAS = "ff0a00705018c58d082000010048004b188b15c2096c1c35fa004333521491f301"
GRAY_THREE_ALPHAS = "ff0a0070d0388a1b01088000100058004b188b15525cd263ac641bce63c90186844a88fbf60f"
ALPHA_OF_16_IN_8_BITS = "ff0a007020f801120808100050004b188b15420ad8b81430f001f632c10cfd316900"
ALPHA_OF_8_IN_4_BITS = "ff0a00703cac040808100034004b188b15c24942e5010092fd00"
ALPHA_OF_4_IN_8_BITS = "ff0a0070307800120808100038004b188b1542a9a1d501f632c16803"


@pytest.mark.parametrize(
    ("file", "message"),
    [
        *((file, "extra channels") for file in (TWO_ALPHAS, GRAY_TWO_ALPHAS, GRAY_THREE_ALPHAS)),
        (ALPHA_OF_16_IN_8_BITS, "at most the bits of the colours"),
        (ALPHA_OF_8_IN_4_BITS, "at most the bits of the colours"),
    ],
)
def test_alphas_of_jpeg_xl_that_would_be_lost_are_refused(file: str, message: str) -> None:
    """The decoder gives the first alone, scaled to the bits of the colours."""
    with pytest.raises(ImageError, match=message):
        read_picture(bytes.fromhex(file))
    pixels = read_picture(bytes.fromhex(ALPHA_OF_4_IN_8_BITS)).pixels
    assert pixels.tolist() == [[[1, 2, 3, 1 * 17], [4, 5, 6, 12 * 17]]]


def test_metadata_has_a_limit() -> None:
    bomb = (b"iCCP", b"x\0\0" + zlib.compress(bytes(2**24 + 1)))
    data = _png(1, 8, 0, b"\0\1", bomb)
    with pytest.raises(ImageError, match="the ICC profile has more than 16 MiB"):
        read_picture(data)
    large = _png(1, 8, 0, b"\0\1", (b"eXIf", bytes(2**24 + 1)))
    with pytest.raises(ImageError, match="the EXIF block has more than 16 MiB"):
        read_picture(large)
    kept = tiff(noise(1), iccprofile=bytes(2**24))
    assert len(read_picture(kept).icc or b"") == 2**24


def test_too_many_channels_are_refused_by_the_header() -> None:
    data = tiff(np.zeros((2, 3, 4097), np.uint8), photometric="minisblack", planarconfig="contig")
    with pytest.raises(
        ImageError, match="4097 channels are not supported; this format allows at most 4096"
    ):
        read_header(data)


@pytest.mark.parametrize("planarconfig", ["contig", "separate"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16])
@pytest.mark.parametrize("channels", [5, 13, 200])
def test_tiff_of_many_bands(channels: int, dtype: type, planarconfig: str) -> None:
    bands = noise(channels, dtype)
    planes = bands if planarconfig == "contig" else np.moveaxis(bands, -1, 0)
    data = tiff(planes, photometric="minisblack", planarconfig=planarconfig, compression="zlib")
    picture = read_picture(data)
    assert picture.pixels.dtype == dtype
    assert np.array_equal(picture.pixels, bands)
    assert np.array_equal(read_picture(write_picture(picture, ".tif")).pixels, bands)
    for suffix in set(WRITERS) - {".tif", ".tiff", ".npy"}:
        with pytest.raises(ImageError, match=r"cannot hold .*; use \.tif"):
            write_picture(picture, suffix)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_bands_count_for_the_limit_of_pixels(dtype: type) -> None:
    data = tiff(noise(9, dtype), photometric="minisblack", planarconfig="contig")
    assert read_picture(data, max_pixels=3 * 9 * 13).pixels.shape == (9, 13, 9)
    with pytest.raises(ImageError, match=r"13 x 9 x 3 .* pixels are more than the limit of 350"):
        read_picture(data, max_pixels=3 * 9 * 13 - 1)


@pytest.mark.parametrize(
    ("image_format", "options"),
    [
        *((each, {}) for each in ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "PPM", "JPEG2000")),
        ("TIFF", {"compression": "tiff_lzw"}),
    ],
)
def test_one_message_for_files_that_end_too_early(
    image_format: str, options: dict[str, Any]
) -> None:
    """Some were in NumPy's words, others in Pillow's or tifffile's."""
    data = saved(PIL.Image.fromarray(noise(3, height=60, width=70)), image_format, **options)
    with pytest.raises(ImageError, match=r"^cannot be read: the file ends too early$"):
        read_picture(data[: len(data) * 2 // 3])


@pytest.mark.parametrize("data", [b"P5 0 0 0 ", b"P6 9 9 0 abc", b"P7\nWIDTH\n", b"P4 -1 2 "])
def test_damaged_netpbm_files_have_no_words_of_python(data: bytes) -> None:
    with pytest.raises(ImageError, match=r"cannot be read: (0 x 0|the file)") as caught:
        read_picture(data)
    assert "Error" not in str(caught.value)


@pytest.mark.parametrize(("frames", "controls"), [(0, 0), (1, 0), (1, 1), (2**31, 0), (2, 2)])
def test_png_of_one_frame_is_a_still(frames: int, controls: int) -> None:
    control = struct.pack(">5I2H2B", *range(9))
    chunks = [(b"acTL", struct.pack(">II", frames, 0)), *[(b"fcTL", control)] * controls]
    data = _png(1, 8, 0, b"\0\5", *chunks)
    if controls < 2:
        assert read_picture(data).pixels.tolist() == [[5]]
    else:
        with pytest.raises(ImageError, match="an animation"):
            read_picture(data)


@pytest.mark.parametrize("is_top_down", [False, True])
@pytest.mark.parametrize(
    ("bits", "masks"),
    [
        (32, (0xFF, 0xFF00, 0xFF0000)),
        (32, (0xFF00, 0xFF, 0xFF0000)),
        (32, (0xFF00, 0xFF0000, 0xFF000000, 0xFF)),
        (32, (0x3FF00000, 0xFFC00, 0x3FF)),
        (16, (0xF00, 0xF0, 0xF)),
        (16, (0x1F, 0x7E0, 0xF800)),
        (16, (0x7C00, 0x3E0, 0x1F, 0x8000)),
    ],
)
def test_bmp_with_masks(bits: int, masks: tuple[int, ...], is_top_down: bool) -> None:
    """bmpsuite has such files among those that are good. Pillow ignored alpha of 16 bits.

    Samples of 10 bits keep their numbers.
    """
    numbers = np.random.default_rng(0).integers(0, 2**32, (2, 3), np.uint64)
    bands = [(numbers & mask) // (mask & -mask) for mask in masks]
    right = [
        band if top > 255 else np.rint(band * (255 / top))
        for band, mask in zip(bands, masks, strict=True)
        for top in [mask // (mask & -mask)]
    ]
    rows = (numbers % 2**bits).astype(f"<u{bits // 8}")
    rows = rows if is_top_down else rows[::-1]
    pixels = b"".join(row.tobytes().ljust(-(-3 * bits // 32) * 4, b"\0") for row in rows)
    height = -2 if is_top_down else 2
    head = struct.pack("<IiiHHIIiiII", 56, 3, height, 1, bits, 3, len(pixels), 0, 0, 0, 0)
    head += struct.pack("<4I", *masks, *[0] * (4 - len(masks)))
    start = 14 + len(head)
    data = b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start) + head + pixels
    assert np.array_equal(read_picture(data).pixels, np.stack(right, axis=-1))


@pytest.mark.parametrize("kinds", [(4,), (1,), (4, 1, 5)])
def test_tiff_with_a_mask(kinds: tuple[int, ...]) -> None:
    """As GDAL writes it: it was taken for a second image."""
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        writer.write(noise(3, height=32, width=48), photometric="rgb", metadata=None)
        for kind in kinds:
            small = np.ones((32, 48), bool)[:: 1 + kind % 2, :: 1 + kind % 2]
            writer.write(small, photometric=4 if kind & 4 else 1, subfiletype=kind, metadata=None)
    picture = read_picture(file.getvalue())
    assert np.array_equal(picture.pixels, noise(3, height=32, width=48))
    assert picture.remarks == (("a transparency mask was dropped",) if 4 in kinds else ())


@pytest.mark.parametrize("command", ["encode", "convert"])
def test_scaled_masks_are_reported(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.png").write_bytes(_few_bits(4))
    (tmp_path / "b.pbm").write_bytes(b"P4 2 1 \x80")
    sources = [str(tmp_path / name) for name in ("a.png", "b.pbm")]
    outs = [[str(tmp_path / name)] for name in ("out", "labels")]
    outs = [["-o", *out] for out in outs] if command == "encode" else outs
    assert main([command, *sources, *outs[0]]) == 0
    said = capsys.readouterr().err
    for bits in (1, 4):
        assert f"{bits}-bit samples were scaled to 0 ... 255; --labels keeps numbers" in said
    labels = ["--labels"] if command == "encode" else ["--labels", "*"]
    assert main([command, *sources, *outs[1], *labels]) == 0
    assert "scaled" not in capsys.readouterr().err


@pytest.mark.parametrize("description", [None, "acquired"])
def test_stacks_of_metamorph_are_refused(description: str | None) -> None:
    """Their planes follow the first page's strip; the items of a tag are their number."""
    planes = (np.arange(3 * 20 * 24) % 65536).astype(np.uint16).reshape(3, 20, 24)
    times = [1, 1, 2450000, 1, 2450000, 1] * 3
    tags = [(33628, 4, 4, [0] * 4, True), (33629, 4, len(times), times, True)]
    data = bytearray(tiff(planes[0], description=description, extratags=tags))
    for tag, kind, count in ((33628, 4, 1), (33629, 5, 3)):
        at = data.index(struct.pack("<HH", tag, 4))
        data[at + 2 : at + 8] = struct.pack("<HI", kind, count)
    with pytest.raises(ImageError, match="several images in one file"):
        read_picture(bytes(data) + planes[1:].tobytes())


@pytest.mark.parametrize("options", [{"rowsperstrip": 8}, {"tile": (16, 16)}])
@pytest.mark.parametrize("predictor", [False, True])
@pytest.mark.parametrize("compression", ["zlib", "zstd", "packbits"])
def test_tiff_of_padded_strips(compression: str, predictor: bool, options: dict[str, Any]) -> None:
    """libtiff has such a file among its tests: what is more than the rows need is ignored."""
    if predictor and compression == "packbits":
        return
    data = tiff(
        noise(1, height=24, width=16), compression=compression, predictor=predictor, **options
    )
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        page = file.pages[0]
        codec = page.compression
        strips = [
            data[at : at + size]
            for at, size in zip(page.dataoffsets, page.databytecounts, strict=False)
        ]
        tags = (
            page.tags[273 if "rowsperstrip" in options else 324],
            page.tags[279 if "rowsperstrip" in options else 325],
        )
    places, sizes = [], []
    for strip in strips:
        longer = bytes(tifffile.TIFF.DECOMPRESSORS[codec](strip)) + b"more"
        packed = bytes(tifffile.TIFF.COMPRESSORS[codec](longer))
        places.append(len(data))
        sizes.append(len(packed))
        data += packed
    out = bytearray(data)
    for tag, values in zip(tags, (places, sizes), strict=False):
        code = {3: "H", 4: "I"}[int(tag.dtype)]
        struct.pack_into(f"<{len(values)}{code}", out, tag.valueoffset, *values)
    assert np.array_equal(read_picture(bytes(out)).pixels, noise(1, height=24, width=16))


def test_tiff_whose_order_of_bits_is_a_byte() -> None:
    """It was taken for the usual one."""
    data = bytearray(saved(PIL.Image.new("1", (16, 2)), "TIFF", tiffinfo={266: 2}))
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        at = file.pages[0].tags[266].offset
    data[at + 2] = 1  # a byte
    with pytest.raises(ImageError, match="order of bits"):
        read_picture(bytes(data))


@pytest.mark.parametrize(("photometric", "bands"), [("rgb", 3), ("minisblack", 3), ("rgb", 4)])
def test_tiff_of_planes_in_jpeg_without_jfif(photometric: str, bands: int) -> None:
    """As libtiff and GDAL write them: "Bogus JPEG colorspace"."""
    planes = np.add.outer(np.arange(bands) * 9, np.add.outer(np.arange(16), np.arange(24)))
    parts = [bytes(imagecodecs.jpeg8_encode(plane.astype(np.uint8))) for plane in planes]
    bare = [part[:2] + part[4 + int.from_bytes(part[4:6], "big") :] for part in parts]
    file = io.BytesIO()
    tifffile.imwrite(
        file, iter(bare), shape=planes.shape, dtype="u1", compression="jpeg", metadata=None,
        photometric=photometric, planarconfig="separate", rowsperstrip=16,
    )  # fmt: skip
    right = np.stack([imagecodecs.jpeg8_decode(part) for part in parts], axis=-1)
    assert np.array_equal(read_picture(file.getvalue()).pixels, right)


# What all formats share.


@pytest.mark.parametrize("suffix", WRITERS)
def test_written_files_read_back_exactly(suffix: str) -> None:
    if suffix == ".exr":
        pytest.importorskip("OpenEXR")
    writer = WRITERS[suffix]
    kinds = {"i": "signed samples; use .tif", "f": "floats; use .tif"}
    for channels, dtype in itertools.product([1, 2, 3, 4], SAMPLE_TYPES):
        picture = Picture(noise(channels, np.dtype(dtype).type))
        holds_bits = dtype in writer.types
        if channels in writer.channels and holds_bits:
            again = read_picture(write_picture(picture, suffix)).pixels
            assert (again.dtype.name, again.shape) == (dtype, picture.pixels.shape)
            assert again.tobytes() == picture.pixels.tobytes(), (channels, dtype)
        else:
            what = "" if holds_bits else kinds.get(np.dtype(dtype).kind, "")
            with pytest.raises(ImageError, match=f"{suffix} cannot hold {what}"):
                write_picture(picture, suffix)


@pytest.mark.parametrize("maximum", [0, 1, 256, 65535])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("suffix", WRITERS)
def test_images_of_any_shape_and_maximum_read_back(suffix: str, dtype: type, maximum: int) -> None:
    """imagecodecs has too little room for thin noise as PNG; netpbm has a maximum."""
    if np.dtype(dtype).name not in WRITERS[suffix].types:
        return
    most = min(maximum, np.iinfo(dtype).max)
    generator = np.random.default_rng(0)
    for channels in {1, 2, 3, 4, 9} & set(WRITERS[suffix].channels):
        for side in ((1, 1), (2, 5), (163, 2), (700, 1)):
            shape = side if channels == 1 else (*side, channels)
            pixels = generator.integers(0, most, shape, dtype, endpoint=True)
            again = read_picture(write_picture(Picture(pixels), suffix)).pixels
            assert again.dtype == dtype
            assert np.array_equal(again, pixels)


@pytest.mark.parametrize("suffix", [*BYTE_WRITERS, ".jpg"])
def test_the_first_of_images_behind_one_another_is_read(suffix: str) -> None:
    """As Pillow, OpenCV and libvips do; libraries refuse some of netpbm and JPEG 2000."""
    pixels = noise(min(WRITERS[suffix].channels) if suffix in WRITERS else 3)
    data = (
        write_picture(Picture(pixels), suffix)
        if suffix in WRITERS
        else saved(PIL.Image.fromarray(pixels), "JPEG")
    )
    right = read_picture(data).pixels
    for behind in (b"", bytes(7), b"no image", data):
        if suffix in (".pgm", ".ppm", ".pam", ".jp2") and behind == data:
            with pytest.raises(ImageError, match=r"several images in one file|cannot be read"):
                read_picture(data + behind)
        else:
            assert np.array_equal(read_picture(data + behind).pixels, right)


def test_previews_within_a_jpeg() -> None:
    small, head = (saved(PIL.Image.fromarray(noise(n)), "JPEG") for n in (1, 3))
    previews = b"\xff\xe4" + struct.pack(">H", 2 + 2 * len(small)) + small * 2
    assert read_header(head[:2] + previews + head[2:]).width == 13


def test_the_limit_of_pillow_is_its_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 4)
    for image_format in ("JPEG", "BMP"):
        data = saved(PIL.Image.fromarray(np.zeros((9, 9), np.uint8)), image_format)
        assert read_picture(data).pixels.shape[:2] == (9, 9)


@pytest.mark.parametrize(
    ("suffix", "channels"), [(".pgm", 1), (".ppm", 3), (".pam", 1), (".pam", 4)]
)
def test_samples_that_read_like_a_header_stay(suffix: str, channels: int) -> None:
    text = b"TUPLTYPE RGB_ALPHA\nENDHDR\nTUPLTYPE RGB_ALPHA\n"
    pixels = np.frombuffer(text * channels, np.uint8).reshape(1, -1, channels).squeeze()
    pixels = pixels.reshape(1, *pixels.shape)
    data = write_picture(Picture(pixels, has_alpha=False), suffix)
    np.testing.assert_array_equal(read_picture(data).pixels, pixels)


@pytest.mark.parametrize(
    ("suffix", "magic_number"), [(".pgm", b"P5"), (".ppm", b"P6"), (".pam", b"P7")]
)
def test_netpbm_is_written_as_the_suffix_says(suffix: str, magic_number: bytes) -> None:
    pixels = noise(min(WRITERS[suffix].channels))
    assert write_picture(Picture(pixels), suffix)[:2] == magic_number


PAM = b"P7\nWIDTH 2\nHEIGHT 1\nDEPTH 1\nMAXVAL 1\nTUPLTYPE BLACKANDWHITE\nENDHDR\n"


@pytest.mark.parametrize(
    ("data", "pixels"),
    [
        *((data, [3, 4]) for data in (b"P2 2 1 9 3 4", b"P5 2 1 9 \3\4", b"P5 2 1 999 \0\3\0\4")),
        *((data, [0, 255]) for data in (b"P1 2 1 1 0", b"P4 2 1 \x80")),  # which count ink
        (PAM + b"\1\0", [1, 0]),  # light
        (b"P5\r\n# a\r\n# #b\n 2 1\n#c\n255\n\3\4", [3, 4]),
        (
            b"P7\r\n#a#b\r\n\nWIDTH 2 \nHEIGHT  1#c\nDEPTH 1\nMAXVAL 255\n"
            b"TUPLTYPE GRAYSCALE\nENDHDR\n\3\4",
            [3, 4],
        ),
    ],
)
def test_numbers_and_comments_of_netpbm(data: bytes, pixels: list[int]) -> None:
    assert read_picture(data).pixels.tolist() == [pixels]


@pytest.mark.parametrize(
    "data",
    [
        b"P1 3 2\n# c 1\n101010\n",
        b"P1 3 2 # c\n101\n010\n",
        b"P1\n3 # w\n2\n1 0 1 # c 1\n 0 1 0\n",
        b"P4 3 2\n\xa0\x40\n\n\n",
        b"P5 1 1 255\n\7\n\n",
        b"P5 1 1 255\n\n\r\n",
        b"P6 1 1 255\n\1\2\3\n\n\n",
    ],
)
def test_netpbm_as_pillow_reads_it(data: bytes) -> None:
    """Comments among digits, and line feeds that would be the pixels of a small image."""
    with PIL.Image.open(io.BytesIO(data)) as image:
        right = np.asarray(image.convert("L") if image.mode == "1" else image)
    np.testing.assert_array_equal(read_picture(data).pixels, right)
    with pytest.raises(ImageError, match="several images"):
        read_picture(data.rstrip(b"\n") + data)


def test_masks_of_bmp_that_are_lost_are_refused() -> None:
    head = struct.pack("<IiiHHIIiiII", 56, 1, 1, 1, 32, 3, 4, 0, 0, 0, 0)
    head += struct.pack("<4I", 0x3FF00000, 0xFFC00, 0x3FF, 0xC0000000)
    data = b"BM" + struct.pack("<IHHI", 18 + len(head), 0, 0, 14 + len(head)) + head + bytes(4)
    with pytest.raises(ImageError, match="masks of different sizes above 8 bits"):
        read_picture(data)


@pytest.mark.parametrize("suffix", [".jpg", ".webp", ".png", ".tif"])
def test_icc_and_exif_go_on(suffix: str) -> None:
    image_format = {".jpg": "JPEG", ".webp": "WEBP", ".png": "PNG", ".tif": "TIFF"}[suffix]
    icc = bytes(range(256)) * 3
    data = saved(PIL.Image.fromarray(noise(3)), image_format, icc_profile=icc, exif=exif(6))
    picture = read_picture(data)
    for target in (".webp", ".tif"):
        assert read_picture(write_picture(picture, target)).icc == icc
    picture = read_picture(write_picture(picture, ".png"))
    assert picture.icc == icc
    block = PIL.Image.Exif()
    block.load(picture.exif or b"")
    assert (block[0x010F], block[0x0112]) == ("maker", 6)
    assert len(block) == 2


def test_exif_behind_the_pixels_of_a_png_is_found() -> None:
    data = saved(PIL.Image.fromarray(noise(1)), "PNG")
    block = b"II*\0\x08\0\0\0\0\0\0\0\0\0"
    assert read_picture(data[:-12] + _chunk(b"eXIf", block) + data[-12:]).exif == block


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
    "empty": (b"", "is empty"),
    "l3": (b"\x8bL3F\r\n\x1a\n", "already an L3 file"),
    "png_animation": (
        saved(_PHOTO, "PNG", save_all=True, append_images=[_PHOTO.rotate(9)]),
        "anim",
    ),
    "webp_animation": (
        saved(_PHOTO, "WEBP", save_all=True, append_images=[_PHOTO.rotate(9)]),
        "several images",
    ),
    "tiff_pages": (tiff(np.stack([noise(1)] * 2), photometric="minisblack"), "several images"),
    **{
        f"tiff_{dtype}": (
            tiff(np.zeros((9, 8), dtype)),
            f"samples of type {dtype} are not supported; .*{remedy}",
        )
        for dtype, remedy in (("float64", "rounds"), ("int64", "if they fit"), ("uint64", "if"))
    },
    "tiff_float_of_4_bits": (
        _with_tags(tiff(noise(1, np.float16)), t258=4),
        "samples of 4 bits and format 3",
    ),
    "tiff_signed_least_is_white": (
        tiff(noise(1).astype(np.int16), photometric="miniswhite"),
        "white-is-zero",
    ),
    "tiff_palette_signed": (
        _with_tags(tiff(noise(1, np.int8), extratags=[(320, 3, 768, [0] * 768, True)]), t262=3),
        "PALETTE images",
    ),
    "tiff_cmyk": (saved(_PHOTO.convert("CMYK"), "TIFF"), "SEPARATED"),
    "tiff_premultiplied": (
        tiff(noise(4), photometric="rgb", extrasamples=["assocalpha"]),
        "premultiplied",
    ),
    "jpeg_cmyk": (saved(_PHOTO.convert("CMYK"), "JPEG"), "CMYK"),
    "tiff_thunderscan": (_with_tags(tiff(noise(1)), t259=32809), "THUNDERSCAN"),
    "tiff_sgilog": (_with_tags(tiff(noise(1)), t259=34676), "SGILOG"),
    "tiff_logluv": (_with_tags(tiff(noise(3), photometric="rgb"), t262=32845), "LOGLUV"),
    "jpeg_12_bits": (
        bytes(imagecodecs.jpeg8_encode(noise(3, np.uint16) >> 4, bitspersample=12)),
        "^a JPEG of 12 bits a sample is not supported",
    ),
    "jpeg_lossless_16_bits": (
        bytes(imagecodecs.jpeg8_encode(noise(1, np.uint16), lossless=True, bitspersample=16)),
        "^a JPEG of 16 bits a sample is not supported",
    ),
    "jpeg_2_channels": (bytes(imagecodecs.jpeg8_encode(noise(2))), "^a JPEG of 2 channels is not"),
    "jpegxl_animation": (
        bytes(imagecodecs.jpegxl_encode(np.stack([noise(3)] * 2), lossless=True)),
        "animation",
    ),
    "pam_cmyk": (
        write_picture(Picture(noise(4)), ".pam").replace(b"RGB_ALPHA", b"CMYK"),
        "tuple type CMYK",
    ),
    "pgm_pages_in_digits": (b"P2 2 2 9 1 2 3 4 5 6 7 8", "several images"),
    "ppm_pages": (write_picture(Picture(noise(3)), ".ppm") * 2, "several images"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    data, message = REFUSED[name]
    with pytest.raises(ImageError, match=message):
        read_picture(data)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("suffix", BYTE_WRITERS)
def test_damage_raises_nothing_else(suffix: str) -> None:
    data = write_picture(Picture(noise(1 if suffix == ".pgm" else 3)), suffix)
    rng = np.random.default_rng(0)
    for _ in range(100):
        damaged = bytearray(data)
        for at in rng.integers(len(data), size=3):
            damaged[at] = rng.integers(256)
        with contextlib.suppress(ImageError):
            assert read_picture(bytes(damaged), orient=True).pixels.dtype in SAMPLE_TYPES


def test_errors_of_libpng_without_words() -> None:
    no_text = UnicodeDecodeError("utf-8", b"\xab", 0, 1, "invalid start byte")
    for error in (no_text, imagecodecs.PngError("pFA\u0418\0")):
        assert str(unreadable(error)) == "cannot be read: the file is damaged"
    assert str(unreadable(imagecodecs.PngError("too short"))).endswith(
        "the file is damaged: too short"
    )
