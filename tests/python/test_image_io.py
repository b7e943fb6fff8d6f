"""Other formats come in exactly, or not at all, and go out as they came."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import math
import struct
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import peaks
import pytest
from numpy.typing import NDArray

import l3dali
from l3dali.codec import SAMPLE_TYPES
from l3dali.images import headers, reading
from l3dali.images.geometry import shrink
from l3dali.images.headers import ImageError, read_header, read_jpegxl_header
from l3dali.images.picture import Picture
from l3dali.images.reading import read_picture
from l3dali.images.transcoding import encode_jpeg, encode_picture
from l3dali.images.writing import WRITERS, write_picture
from l3dali.metadata import MAX_METADATA_BYTES, extra_samples

imagecodecs = pytest.importorskip("imagecodecs")
tifffile = pytest.importorskip("tifffile")
pytest.importorskip("netpbmfile")
PIL = pytest.importorskip("PIL")
for library in ("PIL.Image", "PIL.ImageCms", "PIL.ImageOps"):
    pytest.importorskip(library)

Image = NDArray[Any]

EDGE = Path(__file__).resolve().parents[3] / "shared" / "data" / "edge"
PNG_FILES = sorted([*EDGE.glob("pngsuite/*.png"), *EDGE.glob("image-rs/*.png")])


def noise(channels: int, dtype: type = np.uint8, height: int = 9, width: int = 13) -> Image:
    """Random pixels that use all bits; fully transparent ones keep their colours."""
    shape = (height, width) if channels == 1 else (height, width, channels)
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


def _png(ihdr: bytes, rows: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    parts = [(b"IHDR", ihdr), *chunks, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in parts)


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
    assert read_picture(_few_bits(bits)).pixels.tolist() == [(row * 255 // (2**bits - 1)).tolist()]


def _few_bits(bits: int, *chunks: tuple[bytes, bytes]) -> bytes:
    row = np.arange(8) % 2**bits
    packed = np.packbits((row[:, None] >> np.arange(bits)[::-1] & 1).astype(np.uint8).ravel())
    ihdr = struct.pack(">IIBBBBB", 8, 1, bits, 0, 0, 0, 0)
    return _png(ihdr, b"\0" + packed.tobytes(), *chunks)


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
        "4.tiff": tiff_of_4_bits(bytes.fromhex("01234567")),
        "bmp": saved(image, "BMP"),
        "pbm": saved(image, "PPM"),
    }[name]
    assert read_picture(data).pixels.tolist() == [(row * (255 // (2**bits - 1))).tolist()]
    picture = read_picture(data, labels=True, max_side=8, refuse_labels=True)
    assert picture.pixels.tolist() == [row.tolist()]
    assert read_picture(data, palette="index").pixels.tolist() == [row.tolist()]
    assert l3dali.info(encode_picture(picture)).labels


def tiff_of_4_bits(row: bytes) -> bytes:
    """A gray TIFF of one row."""
    fields = {256: 2 * len(row), 257: 1, 258: 4, 259: 1, 262: 1, 277: 1, 278: 1, 279: len(row)}
    at = 8 + 2 + 12 * (len(fields) + 1) + 4
    entries = sorted((fields | {273: at}).items())
    file = b"II*\0" + struct.pack("<IH", 8, len(entries))
    file += b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries)
    return file + bytes(4) + row


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


@pytest.mark.parametrize(
    "extra",
    [
        _chunk(b"PLTE", bytes(12)) + _chunk(b"tRNS", bytes(4)),
        _chunk(b"iCCP", b"x\0\0" + zlib.compress(b"profile")),
        _chunk(b"eXIf", b"II*\0\x08\0\0\0\0\0\0\0\0\0"),
        _chunk(b"acTL", bytes(8)),
    ],
    ids=["palette", "icc", "exif", "animation"],
)
def test_png_chunks_behind_the_end_say_nothing(extra: bytes) -> None:
    for palette in ("rgb", "index"):
        plain = read_picture(PALETTE_PNG, palette=palette)
        picture = read_picture(PALETTE_PNG + extra, palette=palette)
        assert np.array_equal(picture.pixels, plain.pixels)
        assert (picture.palette, picture.icc, picture.exif) == (plain.palette, None, None)


XMP_OF_OTHERS = {
    "libvips": (b"zTXt", b"XML:com.adobe.xmp\0\0" + zlib.compress(b"<x/>")),
    "text": (b"tEXt", b"XML:com.adobe.xmp\0<x/>"),
    "ImageMagick": (
        b"zTXt", b"Raw profile type xmp\0\0" + zlib.compress(b"\nxmp\n       4\n3c782f\n3e\n")
    ),
    "older ImageMagick": (
        b"tEXt",
        b"Raw profile type APP1\0\ngeneric profile\n 33\n"
        + (b"http://ns.adobe.com/xap/1.0/\0<x/>").hex().encode()
    ),
}  # fmt: skip


@pytest.mark.parametrize("tool", XMP_OF_OTHERS)
def test_xmp_of_png_as_other_tools_write_it(tool: str) -> None:
    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    picture = read_picture(_png(header, b"\0\5", XMP_OF_OTHERS[tool]), keep_text=True)
    assert picture.xmp == b"<x/>"
    assert not picture.metadata  # It would be there twice, and one not turned.


@pytest.mark.parametrize("name", [b"exif", b"APP1"])
def test_raw_profiles_of_png(name: bytes) -> None:
    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    exif = b"II*\0\10\0\0\0\0\0\0\0\0\0"
    text = b"\nexif\n      %d\n" % (6 + len(exif)) + (b"Exif\0\0" + exif).hex().encode()
    keyword = b"Raw profile type %s\0" % name
    assert read_picture(_png(header, b"\0\5", (b"tEXt", keyword + text))).exif == exif
    assert not read_picture(
        _png(header, b"\0\5", (b"tEXt", keyword + text)), keep_text=True
    ).metadata
    both = [(b"tEXt", keyword + text), (b"eXIf", exif + b"of PNG")]
    picture = read_picture(_png(header, b"\0\5", *both), keep_text=True)
    assert picture.exif == exif + b"of PNG"
    assert text.hex() in str(picture.metadata)
    for damaged in (text + b"0", text[:-2], b"exif", b"\nexif\n 1\nzz"):
        picture = read_picture(_png(header, b"\0\5", (b"tEXt", keyword + damaged)), keep_text=True)
        assert picture.exif is None
        assert (keyword + damaged).hex() in str(picture.metadata)  # as any text
    assert read_picture(_png(header, b"\0\5", (b"zTXt", keyword + b"\0no zlib"))).exif is None
    for size in (MAX_METADATA_BYTES, MAX_METADATA_BYTES + 1):
        lines = (b"00" * 36 + b"\n") * (size // 36) + b"00" * (size % 36)
        text = b"\nexif\n %d\n" % (6 + size) + b"Exif\0\0".hex().encode() + lines
        data = _png(header, b"\0\5", (b"zTXt", keyword + b"\0" + zlib.compress(text, 1)))
        if size > MAX_METADATA_BYTES:
            with pytest.raises(ImageError, match="EXIF block of more than 16 MiB"):
                read_picture(data)
        else:
            assert len(read_picture(data).exif or b"") == size


@pytest.mark.parametrize("kind", [b"iCCP", b"eXIf"])
def test_png_chunks_with_a_wrong_checksum_are_dropped(kind: bytes) -> None:
    bodies = {b"iCCP": b"x\0\0" + zlib.compress(b"profile"), b"eXIf": b"II*\0"}
    good = _png(struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0), b"\0\1", (kind, bodies[kind]))
    picture = read_picture(good)
    assert (picture.icc or picture.exif) in (b"profile", b"II*\0")
    at = good.index(kind) + 4 + len(bodies[kind])
    picture = read_picture(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    assert picture.icc is picture.exif is None


@pytest.mark.parametrize("kind", [b"tIME", b"gAMA", b"tEXt", b"pHYs"])
def test_png_chunks_that_are_passed_over_leave_labels_alone(kind: bytes) -> None:
    """Pillow refused what libpng reads."""
    ihdr = struct.pack(">IIBBBBB", 2, 1, 8, 3, 0, 0, 0)
    data = _png(ihdr, b"\0\1\0", (kind, b"?"), (b"PLTE", bytes(range(6))))
    at = data.index(kind) + 5
    damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    assert read_picture(damaged).pixels.shape == (1, 2, 3)
    assert read_picture(damaged, palette="index").pixels.tolist() == [[1, 0]]


def test_the_smallest_bmp() -> None:
    """Of 30 bytes, as OS/2 has them: "index out of range"."""
    data = b"BM" + struct.pack("<IHHIIHHHH", 30, 0, 0, 26, 12, 1, 1, 1, 24) + b"\3\2\1\0"
    assert read_picture(data).pixels.tolist() == [[[1, 2, 3]]]


def test_png_first_of_two_profiles_counts() -> None:
    profiles = [(b"iCCP", b"x\0\0" + zlib.compress(text)) for text in (b"first", b"second")]
    data = _png(struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0), b"\0\1", *profiles)
    assert read_picture(data).icc == b"first"


def test_png_profile_that_is_cut_is_dropped() -> None:
    body = b"x\0\0" + zlib.compress(bytes(range(256)))[:-9]
    data = _png(struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0), b"\0\1", (b"iCCP", body))
    assert read_picture(data).icc is None


def test_png_of_many_texts_and_resolutions() -> None:
    """Each further one looked through all texts: 1.3 MB took 42 s."""
    chunks = [(b"tEXt", b"a\0b")] * 30_000 + [(b"pHYs", bytes(9))] * 30_000
    data = _png(struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0), b"\0\5", *chunks)
    metadata = read_picture(data, keep_text=True).metadata
    assert metadata is not None
    assert len(metadata["png"]) == 30_001


def test_png_whose_texts_unpack_to_anything() -> None:
    """libpng keeps a thousand of 8 MB: 3.1 MB of file took 3.1 GB."""
    text = zlib.compress(bytes([65]) * 7_900_000, 9)
    chunks = [(b"zTXt", b"k\0\0" + text), (b"iTXt", b"k\0\1\0\0\0" + text)] * 20
    data = _png(struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0), b"\0\5", *chunks)
    before = peaks.forget()
    assert read_picture(data).pixels.tolist() == [[5]]
    assert peaks.peak() < before + (100 << 20)


def test_exif_of_a_jpeg_in_parts() -> None:
    """Pillow copies those before for each: 4 MB took 54 s."""
    data = saved(PIL.Image.fromarray(noise(3)), "JPEG")
    parts = [
        b"\xff\xe1" + struct.pack(">H6s", 10, b"Exif\0\0") + bytes([i, 0]) for i in range(257 - 1)
    ]
    two = read_picture(data[:2] + b"".join(parts[1:3]) + data[2:])
    assert two.exif == b"\1\0\2\0"
    with pytest.raises(ImageError, match="a JPEG with EXIF in more than 256 parts"):
        read_header(data[:2] + b"".join([*parts, parts[0]]) + data[2:])


@pytest.mark.parametrize("place", [b"\xff\xdb", b"\xff\xc0", b"\xff\xc4", b"\xff\xda"])
def test_an_icc_profile_of_a_jpeg_stands_anywhere_before_its_scan(place: bytes) -> None:
    """Behind the frame it was lost, in silence."""
    data = saved(PIL.Image.fromarray(noise(3)), "JPEG")
    parts = [
        b"\xff\xe2" + struct.pack(">H12s2B", 20, b"ICC_PROFILE\0", number, 2) + b"icc%d" % number
        for number in (2, 1)
    ]
    at = data.index(place)
    for first in (2, at):
        jpeg = data[:first] + parts[0] + data[first:at] + parts[1] + data[at:]
        assert read_picture(jpeg).icc == b"icc1icc2"
    assert read_picture(data[:at] + parts[0] + data[at:]).icc is None


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


@pytest.mark.parametrize("code", [258, 34675, 34665])
def test_tiff_that_ends_before_values_of_tags(code: int) -> None:
    """tifffile passed over such tags: colours of 8 bits were read as of 1, profiles were lost."""
    tags = PIL.TiffImagePlugin.ImageFileDirectory_v2()
    tags[34665] = {0x9003: "2026:11:25 12:00:00"}
    image = PIL.Image.fromarray(noise(3))
    data = saved(image, "TIFF", icc_profile=b"profile", tiffinfo=tags)
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        tag = file.pages[0].tags[code]
        at, size = tag.offset, tag.valuebytecount
        (place,) = struct.unpack_from("<I", data, at + 8)
    if code == 34665:  # of the one entry in the directory
        at, size = place + 2, 20
        (place,) = struct.unpack_from("<I", data, at + 8)
    data += data[place : place + size]
    moved = struct.pack("<I", len(data) - size)
    data = data[: at + 8] + moved + data[at + 12 :]
    whole = read_picture(data)
    assert whole.icc == b"profile"
    assert b"2026:11:25 12:00:00" in (whole.exif or b"")
    with pytest.raises(ImageError, match=r"the values of tag \d+ lie outside of the file"):
        read_picture(data[:-1])


def test_tiff_where_zero_is_white_is_inverted() -> None:
    pixels = noise(1)
    assert np.array_equal(read_picture(tiff(pixels, photometric="miniswhite")).pixels, 255 - pixels)


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
    upright = read_picture(file.getvalue(), orient=True).pixels
    assert np.array_equal(upright, np.rot90(noise(1), -1))


@pytest.mark.parametrize("order", ["<", ">"])
def test_exif_of_a_tiff_keeps_types_and_bytes(order: Any) -> None:
    """A height below the sea, or a version as text, failed the image, and an entry of a type that
    nobody knows lost the directory."""
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


def test_an_orientation_of_text_makes_no_tiff_that_is_refused() -> None:
    block = b"II*\0\x08\0\0\0\1\0" + struct.pack("<HHI4sI", 0x0112, 2, 2, b"2\0", 0)
    data = write_picture(Picture(noise(1), exif=block), ".tif")
    assert np.array_equal(read_picture(data).pixels, noise(1))


def test_both_copyrights_of_a_bigtiff() -> None:
    tags = [(0x8298, 2, 13, b"photo\0editor\0", True)]
    data = tiff(noise(1), bigtiff=True, extratags=tags)
    assert b"photo\0editor\0" in (read_picture(data).exif or b"")


def test_tiff_palette_of_two_colours() -> None:
    colors = np.array([[0, 65535], [257, 0], [514, 771]], np.uint16)
    numbers = noise(1) > 99
    data = tiff(numbers, extratags=[(320, "H", 6, tuple(colors.flat), True)])
    data = _with_tags(data, t262=3)
    assert np.array_equal(read_picture(data).pixels, (colors.T >> 8)[numbers.astype(int)])


def test_tiff_of_one_bit_is_scaled_to_8() -> None:
    pixels = noise(1) > 99
    data = saved(PIL.Image.fromarray(pixels), "TIFF")
    assert np.array_equal(read_picture(data).pixels, pixels * np.uint8(255))


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
    has_both = tiff(noise(1), extratags=[(269, "I", 1, 8, True)])
    has_both = has_both.replace(struct.pack("<HH", 269, 4), struct.pack("<HH", 324, 4))
    for each, chunks in ((damaged, 4), (data[:-30], 4), (has_both, 1)):
        with pytest.raises(ImageError, match=f"where its {chunks} strips or tiles are"):
            read_picture(each)


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


def test_jpeg_of_many_segments() -> None:
    """Pillow kept each: 16 MB of them took 278 MB and 17 s."""
    data = saved(PIL.Image.new("RGB", (16, 16)), "JPEG")
    for count in (4000, 4090):
        longer = data[:2] + count * b"\xff\xfe\0\2" + data[2:]
        if count == 4000:
            assert read_picture(longer).pixels.shape == (16, 16, 3)
            continue
        with pytest.raises(ImageError, match="more than 4096 segments"):
            read_picture(longer)


def test_png_before_many_zeros() -> None:
    """They look like chunks, which end at some number."""
    data = saved(PIL.Image.new("L", (16, 16), 7), "PNG") + bytes(2**20)
    assert read_picture(data, keep_text=True).pixels.tolist() == [[7] * 16] * 16


def test_jpeg_of_much_that_python_looks_at() -> None:
    """Pillow did so byte by byte: a zip archive of 98 KB took more than six minutes."""
    data = saved(PIL.Image.new("L", (16, 16), 9), "JPEG")
    tables = b"\xff\xdb" + struct.pack(">H", 2 + 65 * 1000) + (b"\0" + bytes(range(1, 65))) * 1000
    block = b"\xff\xed\xff\xff" + b"Photoshop 3.0\0".ljust(65533, b"\0")
    scan = data.index(b"\xff\xda")
    for part, count, words in (
        (b"\xff", 2**16, "65536 bytes between segments"),
        (b"\xff\xd0", 2**15, "65536 bytes between segments"),
        (tables, 257, "tables and Photoshop blocks of more than 16 MiB"),
        (block, 256, "tables and Photoshop blocks of more than 16 MiB"),
    ):
        assert read_picture(data[:2] + count // 2 * part + data[2:]).pixels.shape == (16, 16)
        with pytest.raises(ImageError, match=words):
            read_picture(data[:2] + (count + 2) * part + data[2:])
    for behind in (b"", b"\xff\xd9"):
        with pytest.raises(ImageError, match="65536 bytes between segments"):
            read_picture(data[:scan] + behind + b"\xff" * 2**17 + data[scan:])
        with pytest.raises(ImageError, match="65536 bytes between segments"):
            read_picture(data[:scan] + behind + b"\xff" * 2**17)
    assert read_picture(data[:-2] + b"\xff" * 2**15 + data[-2:] + b"\xff" * 2**17).pixels.any()
    with pytest.raises(ImageError, match="65536 fill bytes"):
        read_picture(data[:-2] + b"\xff" * 2**17 + data[-2:])


def test_values_for_no_data_are_not_blended() -> None:
    pixels = np.where(
        np.arange(64) < 33, np.int16(-9999), noise(1, height=64, width=64).astype(np.int16)
    )
    file, tags = io.BytesIO(), [(42113, "s", 0, "-9999", True)]
    tifffile.imwrite(file, pixels, extratags=tags, metadata=None)
    small = read_picture(file.getvalue(), max_side=31).pixels
    assert set(small.flat) <= set(pixels.flat)


def test_files_of_many_parts() -> None:
    """Each took time: a zip archive of 245 KB with 20 million boxes of a JPEG 2000 took 111 s."""
    pixels = np.zeros((8, 8), np.uint8)
    jpeg = bytes(imagecodecs.jpeg8_encode(pixels))
    jp2 = bytes(imagecodecs.jpeg2k_encode(pixels, level=0, codecformat="jp2"))
    jxl = bytes(imagecodecs.jpegxl_encode(pixels, usecontainer=True))
    png, box = saved(PIL.Image.fromarray(pixels), "PNG"), struct.pack(">I4s", 8, b"free")
    for data, part, at, most in (
        (jpeg, b"\xff\xe0\0\2", len(jpeg) - 2, 2**16),
        (jp2, box, jp2.index(b"jp2c") - 4, 2**16),
        (jxl, box, jxl.index(b"jxlc") - 4, 2**16),
        (jp2, b"\xff\x64\0\2", jp2.index(b"\xff\x52"), 2**20),
        (png, _chunk(b"eXIf", b""), 33, 2**16),  # libpng warns of each
        (png, _chunk(b"IDAT", b""), 33, 2**20),
    ):
        for count in (most // 2, most):
            longer = data[:at] + count * part + data[at:]
            refused = pytest.raises(ImageError, match=f"more than {most} ")
            with refused if count == most else contextlib.nullcontext():
                read_picture(longer)


def test_libpng_warns_of_few_chunks() -> None:
    """imagecodecs logs each warning: 34 KB of a zip archive held 20 PNGs that took 79 s."""
    data = saved(PIL.Image.new("L", (16, 16), 7), "PNG")
    longer = data[:33] + 60_000 * _chunk(b"eXIf", b"") + data[33:]
    assert reading.png_without_texts(longer).count(b"eXIf") == 16
    picture = read_picture(longer)
    assert picture.pixels.tolist() == [[7] * 16] * 16
    assert picture.remarks == ("PNG warning: eXIf: too short",)


def test_rows_of_bmp_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow copies what waits for the end of a row with each block: the square of the row."""
    data = saved(PIL.Image.new("RGB", (2**20, 1)), "BMP")
    sizes: list[int] = []

    class File(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            sizes.append(-1 if size is None else size)
            return super().read(size)

    monkeypatch.setattr(io, "BytesIO", File)
    assert read_picture(data).pixels.shape == (1, 2**20, 3)
    assert sum(size > 4096 for size in sizes) < 9


def _bmp_in_rle(rows: bytes, height: int, gap: int = 0) -> bytes:
    palette = b"".join(bytes([number, 255 - number, 7, 0]) for number in range(256))
    at = 54 + len(palette) + gap
    header = struct.pack("<IiiHHIIiiII", 40, 3, height, 1, 8, 1, len(rows), 0, 0, 256, 0)
    data = b"BM" + struct.pack("<IHHI", at + len(rows), 0, 0, at) + header + palette
    return data + bytes(gap) + rows


has_rle = pytest.mark.skipif(
    [*map(int, PIL.__version__.split(".")[:2])] < [12, 3], reason="a BMP in RLE needs Pillow 12.3"
)


@has_rle
@pytest.mark.parametrize("gap", [0, 1])
def test_bmp_in_rle_from_an_odd_place(gap: int) -> None:
    """Runs are padded by their place among the pixels, for Pillow by that in the file."""
    numbers = np.arange(10, 22, dtype=np.uint8).reshape(4, 3)
    rows = b"".join(b"\0\3" + row.tobytes() + b"\0\0\0" for row in numbers[::-1]) + b"\0\1"
    picture = read_picture(_bmp_in_rle(rows, 4, gap), palette="index")
    assert np.array_equal(picture.pixels, numbers)


@has_rle
def test_bmp_of_many_runs() -> None:
    """Pillow reads them in Python: 100 MB without a pixel took 53 s."""
    whole = b"\3\7\0\1"
    assert read_picture(_bmp_in_rle(whole.ljust(2**24, b"\0"), 1)).pixels.shape == (1, 3, 3)
    with pytest.raises(ImageError, match="a BMP in RLE of more than 16 MiB"):
        read_picture(_bmp_in_rle(bytes(2**24) + whole, 1))


@pytest.mark.parametrize(
    ("compression", "version", "needed"),
    [(1, "12.2.1", "8 bits .* 12.3"), (2, "12.3.0", "4 .* 13.0")],
)
def test_bmp_in_rle_with_an_older_pillow(
    compression: int, version: str, needed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gave other pixels: for odd counts of 4 bits, and for places that are passed over."""
    data = bytearray(_bmp_in_rle(b"\3\7\0\1", 1))
    struct.pack_into("<HI", data, 28, 8 // compression, compression)
    monkeypatch.setattr(PIL, "__version__", version)
    with pytest.raises(ImageError, match=f"a BMP in RLE of {needed}"):
        read_picture(bytes(data))


@pytest.mark.parametrize("header_bytes", [56, 108, 124])
def test_bmp_of_16_bits_with_alpha(header_bytes: int) -> None:
    """Pillow passes over the bit."""
    start = 14 + header_bytes
    for alpha in (0, 0x8000):
        head = struct.pack("<2sIII", b"BM", start + 4, 0, start)
        head += struct.pack("<IiiHHIIiiII", header_bytes, 2, 1, 1, 16, 3, 4, 0, 0, 0, 0)
        head += struct.pack("<4I", 0x7C00, 0x03E0, 0x001F, alpha)
        data = head.ljust(start, b"\0") + struct.pack("<2H", 0x7C00, 0x801F)
        if alpha:
            with pytest.raises(ImageError, match="a BMP of 16 bits with alpha"):
                read_picture(data)
        else:
            assert read_picture(data).pixels.tolist() == [[[255, 0, 0], [0, 0, 255]]]


@pytest.mark.parametrize("part", [0, 3])
def test_jpeg_2000_without_all_tiles(part: int) -> None:
    image = PIL.Image.fromarray(noise(1, height=64, width=64))
    data = saved(image, "JPEG2000", no_jp2=True, tile_size=(32, 32))
    parts = data.split(b"\xff\x90\x00\x0a")
    assert len(parts) == 5
    assert read_picture(data).pixels.shape == (64, 64)
    end = b"\xff\xd9" if part == 3 else b""
    del parts[part + 1]
    with pytest.raises(ImageError, match="without all tiles"):
        read_picture(b"\xff\x90\x00\x0a".join(parts) + end)


@pytest.mark.parametrize(
    "rest", [b"", bytes(100), b"\0\0\0\0IENC\0\0\0\0"], ids=["cut", "zeros", "damage"]
)
@pytest.mark.parametrize("has_exif", [False, True])
def test_png_without_its_end(has_exif: bool, rest: bytes) -> None:
    """What stood behind the pixels was lost, EXIF with the orientation, without a word."""
    whole = saved(PIL.Image.new("L", (16, 16), 7), "PNG")
    end = whole.index(b"IEND") - 4
    whole = whole[:end] + has_exif * _chunk(b"eXIf", b"MM\0*\0\0\0\x08\0\0") + whole[end:]
    assert (read_picture(whole).exif is not None) == has_exif
    with pytest.raises(ImageError, match="the file ends too early"):
        read_picture(whole[:end] + rest)


@pytest.mark.parametrize("restarts", [0, 4])
@pytest.mark.parametrize("is_progressive", [False, True])
def test_jpeg_whose_rest_is_zeros(is_progressive: bool, restarts: int) -> None:
    """As a download that was broken off may leave it: the decoder makes pixels of them."""
    image = PIL.Image.fromarray(noise(1, height=64, width=64))
    data = saved(image, "JPEG", progressive=is_progressive, restart_marker_blocks=restarts)
    thumbnail = b"\xff\xe1" + struct.pack(">H", 2 + len(data)) + data  # has an end
    data = data[:2] + thumbnail + data[2:]
    assert read_picture(data + bytes(9)).pixels.shape == (64, 64)
    for size in (len(data) - 1, len(data) - 2, len(data) * 3 // 4):
        with pytest.raises(ImageError, match="the file ends too early"):
            read_picture(data[:size] + bytes(len(data)))


@pytest.mark.parametrize("no_jp2", [False, True])
def test_jpeg_2000_whose_rest_is_zeros(no_jp2: bool) -> None:
    """As a download that was broken off may leave it: the decoder makes pixels of them."""
    image = PIL.Image.fromarray(noise(1, height=64, width=64))
    data = saved(image, "JPEG2000", no_jp2=no_jp2)
    size = data.index(b"\xff\x90") + 6
    to_the_end = data[:size] + bytes(4) + data[size + 4 :]
    for whole in (data, to_the_end, to_the_end + bytes(9), to_the_end + b"\0\0\0\x0cxml <a/>"):
        assert np.array_equal(read_picture(whole).pixels, np.asarray(image))
        for end in (1, len(data) // 4):
            with pytest.raises(ImageError, match="without an end"):
                read_picture(whole[: len(data) - end].ljust(len(whole), b"\0"))


@pytest.mark.parametrize("told", [(2, 2), (2, 0), (0, 2), (0, 0)])
def test_jpeg_2000_without_all_parts_of_a_tile(told: tuple[int, int]) -> None:
    """Parts say how many their tile has, or 0. The decoder makes do with the first."""
    pixels = noise(1, height=64, width=64)
    image = PIL.Image.fromarray(pixels)
    data = saved(image, "JPEG2000", no_jp2=True, num_resolutions=2)
    at, end = data.index(b"\xff\x90"), data.index(b"\xff\xd9")
    packets = data[data.index(b"\xff\x93") + 2 : end]
    first_packet = 1054
    halves = packets[:first_packet], packets[first_packet:]
    parts = [
        struct.pack(">HHHI2BH", 0xFF90, 10, 0, 14 + len(half), number, told[number], 0xFF93) + half
        for number, half in enumerate(halves)
    ]
    assert np.array_equal(read_picture(data[:at] + b"".join(parts) + data[end:]).pixels, pixels)
    blurred = data[:at] + parts[0] + data[end:]
    assert not np.array_equal(imagecodecs.jpeg2k_decode(blurred), pixels)
    if told[0]:
        with pytest.raises(ImageError, match="without all tiles and their parts"):
            read_picture(blurred)
    if told[1]:
        with pytest.raises(ImageError, match="without all tiles and their parts"):
            read_picture(data[:at] + parts[1] + data[end:])


def test_jpeg_2000_of_many_boxes_within_boxes() -> None:
    """Each may go to the end, and was copied: 2 million took more than a minute."""
    data = imagecodecs.jpeg2k_encode(noise(1), level=0, codecformat="jp2")
    at = data.index(b"jp2h") - 4
    end = at + int.from_bytes(data[at : at + 4], "big")
    boxes = data[at + 8 : end] + struct.pack(">I4s", 0, b"cgrp") * 60_000
    head = struct.pack(">I4s", 8 + len(boxes), b"jp2h")
    assert headers.jpeg2000_palette(data[:at] + head + boxes + data[end:]) is None


@pytest.mark.parametrize(("side", "is_read"), [(0x33, True), (0x11, False)])
def test_jpeg_2000_of_small_precincts(side: int, is_read: bool) -> None:
    """Of one for each pixel OpenJPEG takes 560 bytes a pixel: 13 kB took 2.4 GB."""
    pixels = np.zeros((256, 256), np.uint8)
    data = imagecodecs.jpeg2k_encode(pixels, level=0, codecformat="j2k", resolutions=1)
    at = data.index(b"\xff\x52")
    (size,) = struct.unpack_from(">H", data, at + 2)
    style = struct.pack(">H", 13) + b"\1" + data[at + 5 : at + 14] + bytes([side])
    precincts = data[: at + 2] + style + data[at + 2 + size :]
    if is_read:
        headers.check_jpeg2000(precincts)
    else:
        with pytest.raises(ImageError, match="16641 precincts in 256 x 256 pixels"):
            headers.check_jpeg2000(precincts)


@pytest.mark.parametrize(("layers", "is_read"), [(50, True), (65_535, False)])
def test_jpeg_2000_of_many_layers(layers: int, is_read: bool) -> None:
    """OpenJPEG looks at each layer of each precinct, whether it is there or not: 92 bytes 83 s."""
    pixels = np.zeros((256, 256, 3), np.uint8)
    data = bytes(imagecodecs.jpeg2k_encode(pixels, level=0, codecformat="j2k"))
    at = data.index(b"\xff\x52") + 6
    many = data[:at] + struct.pack(">H", layers) + data[at + 2 :]
    if is_read:
        headers.check_jpeg2000(many)
    else:
        with pytest.raises(ImageError, match=r"a JPEG 2000 of \d+ packets in \d+ bytes"):
            headers.check_jpeg2000(many)


@pytest.mark.parametrize(("side", "is_read"), [(4, True), (2, False)])
def test_jpeg_2000_of_small_blocks(side: int, is_read: bool) -> None:
    """Of each OpenJPEG keeps 390 bytes: 101 bytes of 4096 x 4096 pixels took 2 GB."""
    pixels = np.zeros((1024, 1024), np.uint8)
    data = bytearray(imagecodecs.jpeg2k_encode(pixels, level=0, codecformat="j2k", resolutions=1))
    at = data.index(b"\xff\x52")
    data[at + 10 : at + 12] = bytes([side - 2, side - 2])
    if is_read:
        headers.check_jpeg2000(bytes(data))
    else:
        with pytest.raises(ImageError, match="66049 code-blocks in 1024 x 1024 pixels"):
            headers.check_jpeg2000(bytes(data))


def test_jpeg_2000_markers_within_a_marker() -> None:
    """OpenJPEG looks for others within one that it does not know; the counts passed over it."""
    data = bytes(imagecodecs.jpeg2k_encode(noise(3), level=0, codecformat="j2k"))
    at = data.index(b"\xff\x52")
    (size,) = struct.unpack_from(">H", data, at + 2)
    hidden = data[:at] + b"\xff\x70" + struct.pack(">H", size + 4) + data[at:]
    with pytest.raises(ImageError, match="a marker that is not known: ff70"):
        read_picture(hidden)


def test_jpeg_2000_of_too_many_resolutions() -> None:
    """Many markers of 256 each took 13 s a megabyte."""
    data = bytearray(imagecodecs.jpeg2k_encode(noise(3), level=0, codecformat="j2k"))
    data[data.index(b"\xff\x52") + 9] = 33
    with pytest.raises(ImageError, match="a JPEG 2000 of 34 resolutions"):
        read_picture(bytes(data))


def test_jpeg_2000_that_ends_in_the_head_of_a_part() -> None:
    """It was an error of struct, in words of its own."""
    data = bytes(imagecodecs.jpeg2k_encode(noise(1), level=0, codecformat="j2k"))
    with pytest.raises(ImageError, match=r"^cannot be read: the file ends too early$"):
        read_picture(data[: data.index(b"\xff\x90") + 6])


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


def test_tiff_whose_jpegs_are_other_than_the_page_says() -> None:
    page = tiff(noise(3, height=32, width=32), compression="jpeg", rowsperstrip=16)
    with tifffile.TiffFile(io.BytesIO(page)) as file:
        (first, second), (size, _) = file.pages[0].dataoffsets, file.pages[0].databytecounts
    gray = imagecodecs.jpeg8_encode(noise(1, height=16, width=32))[:size]
    assert read_picture(page).pixels.shape == (32, 32, 3)
    other = page[:first] + gray + bytes(size - len(gray)) + page[second:]
    with pytest.raises(ImageError, match="other samples than the page says"):
        read_picture(other)
    with pytest.raises(ImageError, match="a tile ends too early"):
        read_picture(_with_tags(page, t279=size * 9 // 10))


def test_entries_of_exif_that_overlap() -> None:
    """Pillow 12 copied each: 240 KB of an L3 file took 4.75 GB on their way to a TIFF."""
    count, size = 20_000, 240_002
    entries = b"".join(struct.pack("<HHII", 0x2000 + i, 1, size, 8) for i in range(count))
    exif = b"II*\0" + struct.pack("<IH", 8, 2 + count)
    exif += struct.pack("<HHI4s", 0x010F, 2, 4, b"cam\0")
    exif += struct.pack("<HHI4s", 0x0112, 1, 1, b"\6") + entries  # of a type that asks for nothing
    picture = Picture(noise(3), exif=exif.ljust(8 + size, b"\0"))
    tracemalloc.start()
    data = write_picture(picture, ".tif")
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        assert file.pages[0].tags["Make"].value == "cam"
        assert "Orientation" not in file.pages[0].tags


def test_raw_photographs_are_not_their_thumbnails() -> None:
    """Their page is whole, and a copy of what lies in a SubIFD, or outside of pages."""
    small, large = noise(3, height=12, width=16), noise(1, height=60, width=80)
    refused = pytest.raises(ImageError, match="smaller copy")
    for first, second in ((small, large), (large, small)):
        file = io.BytesIO()
        with tifffile.TiffWriter(file) as writer:
            writer.write(first, subifds=1, metadata=None)
            writer.write(second, metadata=None)
        with refused if first is small else contextlib.nullcontext():
            assert np.array_equal(read_picture(file.getvalue()).pixels, first)
    damaged = bytearray(file.getvalue())
    with tifffile.TiffFile(io.BytesIO(damaged)) as tiff_file:
        tags_of_sub = tiff_file.pages[0].pages[0].tags
        for code, entry in ((256, (1, 4, 0)), (257, (4, 1, 2**28))):  # four bytes, so many times
            struct.pack_into("<H2I", damaged, tags_of_sub[code].offset + 2, *entry)
    tracemalloc.start()
    with pytest.raises(ImageError, match="cannot be read"):
        read_picture(bytes(damaged))
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()
    # Phase One's mark is no pixels of the page; a writer may put pixels of its values there.
    tags = {256: 4, 257: 4, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 4, 279: 16}
    for at in (8, 24 + 2 + 12 * len(tags) + 4):
        tags[273] = at
        data = b"II*\0" + struct.pack("<I", 24) + b"I" * 16 + struct.pack("<H", len(tags))
        data += b"".join(struct.pack("<2H2I", tag, 4, 1, value) for tag, value in tags.items())
        with contextlib.nullcontext() if at == 8 else refused:
            assert (read_picture(data + bytes(4 + 16)).pixels == ord("I")).all()


def test_tiff_whose_order_of_bits_is_a_byte() -> None:
    """It was taken for the usual one."""
    data = bytearray(saved(PIL.Image.new("1", (16, 2)), "TIFF", tiffinfo={266: 2}))
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        at = file.pages[0].tags[266].offset
    data[at + 2] = 1  # a byte
    with pytest.raises(ImageError, match="order of bits"):
        read_picture(bytes(data))


def test_tiff_that_lists_one_strip_of_many() -> None:
    """The others were whatever follows it."""
    data = tiff(noise(1, height=40), rowsperstrip=40)
    with pytest.raises(ImageError, match="where its 1 strips or tiles are"):
        read_picture(_with_tags(data, t279=13 * 10))


def test_tiff_that_lists_one_of_strips_that_lie_apart() -> None:
    """All were read from there on, as one."""
    data = tiff(noise(1, height=40), rowsperstrip=10)
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        at = file.pages[0].tags[273].offset
    damaged = data[: at + 4] + struct.pack("<II", 1, 8) + data[at + 12 :]
    with pytest.raises(ImageError, match="where its 4 strips or tiles are"):
        read_picture(damaged)


@pytest.mark.parametrize(
    "options", [{"imagej": True}, {"metadata": {}}, {"metadata": {}, "description": "cells"}]
)
def test_tiff_of_several_images_behind_one_directory(options: dict[str, Any]) -> None:
    file = io.BytesIO()
    tifffile.imwrite(file, np.zeros((5, 9, 13), np.uint8), truncate=True, **options)
    data = file.getvalue()
    for missing in (0, 9 * 13, 4 * 9 * 13 - 2):
        with pytest.raises(ImageError, match="several images in one file"):
            read_picture(data[: len(data) - missing])
    assert read_picture(data[: -4 * 9 * 13]).pixels.shape == (9, 13)


def test_tiff_of_several_slices_of_nih_image() -> None:
    for count in (1, 3):
        header = bytearray(b"IPICIMAG".ljust(512, b"\0"))
        struct.pack_into(">h", header, 260, count)
        data = tiff(noise(1), extratags=[(43314, 7, 512, bytes(header), True)])
        if count == 1:
            read_picture(data)
        else:
            with pytest.raises(ImageError, match="several images in one file"):
                read_picture(data)


def test_tiff_that_ends_before_its_second_page() -> None:
    """Its first page was read, and nothing told of the others."""
    file = io.BytesIO()
    page = PIL.Image.fromarray(noise(1))
    page.save(file, "TIFF", save_all=True, append_images=[page] * 3, compression="tiff_lzw")
    data = file.getvalue()
    cuts = range(len(data) // 5, len(data), len(data) // 40)
    for cut in cuts:
        with pytest.raises(ImageError):
            read_picture(data[:cut])


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


def _tiff_of_directories(tags: int, entries: int) -> bytes:
    """Each of the tags names the same directory of EXIF."""
    basic = [
        (256, 1),
        (257, 1),
        (258, 8),
        (259, 1),
        (262, 1),
        (273, 8),
        (277, 1),
        (278, 1),
        (279, 1),
    ]
    end = 22 + 12 * (len(basic) + tags)
    words = [struct.pack("<HHII", tag, 4, 1, value) for tag, value in basic + [(34665, end)] * tags]
    exif_words = struct.pack("<H", entries) + struct.pack("<HHII", 37500, 7, 0, 0) * entries
    head = b"II*\0" + struct.pack("<I", 16) + bytes(8) + struct.pack("<H", len(words))
    return head + b"".join(words) + bytes(4) + exif_words + bytes(4)


def test_tiff_of_many_directories_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was looked through, as often as it was named: 0.8 MB took 30 s."""
    looked: list[int] = []
    look = headers._check_directory

    def count(data: bytes, layout: Any, start: int, **options: Any) -> None:
        looked.append(start)
        look(data, layout, start, **options)

    monkeypatch.setattr(headers, "_check_directory", count)
    read_header(_tiff_of_directories(1000, 4))
    assert len(looked) == 2
    with pytest.raises(ImageError, match="a directory of 5000 tags"):
        read_header(_tiff_of_directories(1, 5000))


def test_tiff_whose_subifd_is_followed_by_anything() -> None:
    """As writers leave it: that it looks like millions of strips says nothing."""
    file, pixels = io.BytesIO(), noise(3, height=64, width=64)
    with tifffile.TiffWriter(file) as writer:
        writer.write(pixels, photometric="rgb", subifds=1, metadata=None)
        small = np.ascontiguousarray(pixels[::2, ::2])
        writer.write(small, photometric="rgb", subfiletype=1, metadata=None)
    data = bytearray(file.getvalue())
    with tifffile.TiffFile(io.BytesIO(data)) as opened:
        (sub,) = opened.pages[0].subifds
    (tags,) = struct.unpack_from("<H", data, sub)
    struct.pack_into("<I", data, sub + 2 + 12 * tags, len(data))
    data += struct.pack("<HHHII", 1, 273, 4, 2**32 - 1, 8) + bytes(4)
    assert np.array_equal(read_picture(bytes(data)).pixels, pixels)


@pytest.mark.parametrize("count", [2, 20])
def test_tiff_of_directories_that_overlap(count: int) -> None:
    """Each had 4,000 tags: 48 kB took 12 s, 3 MB minutes."""
    tags = 4000
    entry = struct.pack("<HHHIH", tags, 40000, 1, 1, 0)  # a number of tags, or a tag of one byte
    run = entry * (tags + count + 2)
    marks = range(70000, 70000 + count)
    data = tiff(noise(1), extratags=[(331, "I", count, tuple(marks), True)])
    data = data.replace(struct.pack("<HH", 331, 4), struct.pack("<HH", 330, 4))
    at = data.index(struct.pack(f"<{count}I", *marks))
    places = [len(data) + 12 * i for i in range(count)]
    data = data[:at] + struct.pack(f"<{count}I", *places) + data[at + 4 * count :] + run
    if count == 2:
        assert np.array_equal(read_picture(data).pixels, noise(1))
    else:
        with pytest.raises(ImageError, match="more than 16384 tags"):
            read_header(data)


def test_tags_of_a_sound_tiff_that_nobody_can_read() -> None:
    """Types that came later, padding, and places in other files: the pixels are there."""
    with tifffile.TiffFile(io.BytesIO(tiff(noise(1)))) as file:
        start = file.pages[0].offset
    data = tiff(noise(1), extratags=[(315, "s", 0, "somebody", True)])
    at = data.index(struct.pack("<HH", 315, 2), start)
    for kind in (0, 14, 129):
        changed = data[: at + 2] + struct.pack("<H", kind) + data[at + 4 :]
        assert np.array_equal(read_picture(changed).pixels, noise(1))
    damaged = data.replace(struct.pack("<HH", 258, 3), struct.pack("<HH", 258, 14))
    with pytest.raises(ImageError, match="tag 258 is of no known type"):
        read_picture(damaged)
    data = _tiff_of_directories(1, 1)
    at = data.index(struct.pack("<HH", 34665, 4))
    read_header(data[: at + 8] + struct.pack("<I", 10) + data[at + 12 :])
    cut = data[: at + 8] + struct.pack("<I", len(data) - 1) + data[at + 12 :]
    with pytest.raises(ImageError, match="the values of tag 34665 lie outside"):
        read_picture(cut)


@pytest.mark.parametrize("tag", [None, 277, 339])
def test_tiff_whose_numbers_were_never_written(tag: int | None) -> None:
    """It was black, with pixels that nothing lists, as of a writer that was killed; or unsigned."""
    pixels = np.full((64, 64), -5, np.int16)
    data = bytearray(tiff(pixels, tile=(64, 64)))
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        for code in (324, 325) if tag is None else (tag,):  # offsets and sizes of tiles, or one
            at = file.pages[0].tags[code].valueoffset
            data[at : at + 4] = bytes(4)
    reason = "its pixels are there, and not listed" if tag is None else "tag 277 is 0|format 0"
    with pytest.raises(ImageError, match=reason):
        read_picture(bytes(data))


def test_tiff_of_several_planes_of_metamorph() -> None:
    """A stack has one directory too; the tags UIC1 and UIC2 tell."""
    tags = [(33628, 4, 2, bytes(8), True), (33629, 5, 3, (1, 1) * 3, True)]
    data = tiff(np.zeros((3 * 9, 13), np.uint8), extratags=tags, rowsperstrip=3 * 9)
    with pytest.raises(ImageError, match="several images in one file"):
        read_picture(_with_tags(data, t257=9, t278=9, t279=9 * 13))


def test_tiff_whose_description_has_many_numbers() -> None:
    """Their product has as many digits: the time was that of its square, 16 MB took 25 minutes."""
    text = '{"shape": [' + "99999999," * 1_500_000 + "1]}"
    data = tiff(noise(1), description=text)
    assert np.array_equal(read_picture(data).pixels, noise(1))


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
        with pytest.raises(ImageError, match="without all of its strips or tiles"):
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


@pytest.mark.parametrize("tile", [None, (32, 32)])
def test_jpegs_of_a_tiff_have_the_sides_of_its_parts(tile: tuple[int, int] | None) -> None:
    """One that was wider, as padded to blocks, gave a slanted picture."""
    options: Any = {"shape": (40, 20), "dtype": "u1", "metadata": None, "photometric": 1}
    options |= {"compression": "jpeg"} | ({"tile": tile} if tile else {"rowsperstrip": 40})
    last = 8 if tile else 40
    for height, width, is_read in [
        (last, 20, True),
        (last, 24, False),
        (48, 20, not tile),
        (16, 64, False),
        (50, 16, False),
        (32, 32, bool(tile)),
    ]:
        first = [bytes(imagecodecs.jpeg8_encode(np.zeros((32, 32), np.uint8)))] if tile else []
        jpeg = bytes(imagecodecs.jpeg8_encode(np.zeros((height, width), np.uint8)))
        file = io.BytesIO()
        tifffile.imwrite(file, iter([*first, jpeg]), **options)
        refused = pytest.raises(ImageError, match=r"has other sides than the page says|larger than")
        with contextlib.nullcontext() if is_read else refused:
            assert read_picture(file.getvalue()).pixels.shape == (40, 20)


def test_tiff_of_four_bands_in_jpeg() -> None:
    """With Adobe's mark of YCCK they were turned as if they were that."""
    jpeg = imagecodecs.jpeg8_encode(noise(4, height=16, width=16), colorspace=4, outcolorspace=5)
    options: Any = {"shape": (16, 16, 4), "dtype": "u1", "metadata": None, "tile": (16, 16)}
    options |= {"planarconfig": "contig", "extrasamples": ["unspecified"] * 3}
    file = io.BytesIO()
    tifffile.imwrite(file, iter([jpeg]), photometric=1, compression="jpeg", **options)
    with pytest.raises(ImageError, match="take for YCCK"):
        read_picture(file.getvalue())


@pytest.mark.parametrize(
    ("suffix", "width"),
    [(".png", 1_000_001), (".webp", 2**14), (".jxl", 2**23 + 1), (".jp2", 2**20 + 1)],
)
def test_sides_that_other_formats_lack(suffix: str, width: int) -> None:
    """libjxl wrote files of 2^24 pixels in a line, and read none."""
    pixels = np.zeros((1, width, 3), np.uint8)
    with pytest.raises(ImageError, match=r"\.tif has longer"):
        write_picture(Picture(pixels), suffix)
    pixels = np.zeros((1, width), np.uint8)
    assert read_picture(write_picture(Picture(pixels), ".tif")).pixels.shape == pixels.shape


@pytest.mark.parametrize("size", [1, 9])
def test_tiff_whose_strips_share_bytes(size: int) -> None:
    """Equal ones may; where each claimed the whole file, 10 MB of them took minutes."""
    rows = np.full((600, 1), 7, np.uint8)
    data = bytearray(tiff(rows, rowsperstrip=1, compression="zlib"))
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        offsets, counts = (file.pages[0].tags[code] for code in (273, 279))
    first = offsets.value[0].to_bytes(4, "little") * 600
    data[offsets.valueoffset : offsets.valueoffset + len(first)] = first
    claims = struct.pack("<H" if counts.dtype == 3 else "<I", size * counts.value[0]) * 600
    data[counts.valueoffset : counts.valueoffset + len(claims)] = claims
    if size == 1:
        np.testing.assert_array_equal(read_picture(bytes(data)).pixels, rows)
    else:
        with pytest.raises(ImageError, match="strips or tiles overlap"):
            read_picture(bytes(data))


@pytest.mark.parametrize("number", [34_927, 50_001, 34_887, 60_000])
def test_tiff_of_tiles_that_say_their_own_size(number: int) -> None:
    """WebP has two numbers. By the old one 10 kB were 256 megapixels, of which 16 x 16 stayed."""
    webp = saved(PIL.Image.new("RGB", (3000, 3000)), "WEBP", lossless=True)
    file = io.BytesIO()
    shape = {"shape": (16, 16, 3), "dtype": "u1", "metadata": None}
    tifffile.imwrite(file, iter([webp]), photometric="rgb", compression="jpeg", **shape)
    with pytest.raises(ImageError):
        read_picture(_with_tags(file.getvalue(), t259=number))


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


def test_tiff_whose_jpegs_share_long_tables() -> None:
    """libjpeg reads them for each tile: 10 MB took half an hour."""
    jpeg = saved(PIL.Image.fromarray(noise(1)[:8, :8]), "JPEG")
    tables = b"\xff\xd8" + b"\xff" * 100_000 + b"\xff\xd9"
    tile = {"photometric": "minisblack", "compression": "jpeg", "rowsperstrip": 8}
    image = iter([jpeg] * 100)
    file = io.BytesIO()
    tifffile.imwrite(
        file, image, shape=(800, 8), dtype="u1", jpegtables=tables, metadata=None, **tile
    )
    with pytest.raises(ImageError, match="strips or tiles overlap"):
        read_picture(file.getvalue())


def test_imagej_metadata_that_goes_back() -> None:
    """Each part was copied: 8 MB took 8 GB."""
    part = 2**20
    text = b"IJIJ" + struct.pack("<4sI", b"roi ", 1023) + bytes(part)
    counts = struct.pack("<1024i", 12, *[part, -part] * 511, 0)
    tags = [(50838, "i", 1024, counts, True), (50839, "B", len(text), text, True)]
    data = tiff(noise(1), extratags=tags)
    tracemalloc.start()
    pixels = read_picture(data).pixels
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(pixels, noise(1))
    assert peak < 20 * part


def test_jpeg_of_many_scans() -> None:
    """Each takes as long as all pixels, with or without data: 1 MB took minutes."""
    data = saved(PIL.Image.fromarray(noise(1)), "JPEG", progressive=True)
    at = data.rindex(b"\xff\xda")
    scan = data[at : at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")]
    alone = b"\xff\x01\xff\x02\xff\xbf"  # Without lengths; what is behind them was taken for one.
    for count, behind in (400, scan * 600), (600, b""):
        many = data[:-2] + alone + scan * count + data[-2:] + behind
        if count == 400:
            read_header(many)
        else:
            with pytest.raises(ImageError, match="a JPEG of more than 500 scans"):
                read_header(many)
    file = io.BytesIO()
    strip = {"compression": "jpeg", "shape": noise(1).shape, "dtype": "u1", "metadata": None}
    tifffile.imwrite(file, iter([many]), photometric="minisblack", **strip)
    with pytest.raises(ImageError, match="a JPEG of more than 500 scans"):
        read_picture(file.getvalue())


def test_texts_of_tiff_are_kept() -> None:
    name = "José Müller, 京都".encode()
    for bigtiff in (False, True):
        tags = [(315, 2, len(name) + 1, name + b"\0", True)]
        picture = read_picture(tiff(noise(1), extratags=tags, bigtiff=bigtiff))
        assert name in (picture.exif or b"")
        again = read_picture(write_picture(picture, ".tif"))
        assert name in (again.exif or b"")


def test_tiff_of_no_such_layout() -> None:
    data = _with_tags(tiff(noise(1), predictor=True, compression="lzw"), t258=4)
    with pytest.raises(ImageError, match="a predictor of 4 bits"):
        read_picture(data)
    data = _with_tags(tiff(noise(3), predictor=True, compression="lzw"), t259=32773)
    with pytest.raises(ImageError, match="a predictor and no compression"):
        read_picture(data)
    with pytest.raises(ImageError, match="how colours are stored"):
        read_picture(tiff(noise(3)).replace(struct.pack("<H", 262), struct.pack("<H", 263), 1))
    with pytest.raises(ImageError, match="a planar configuration of 3"):
        read_picture(
            _with_tags(tiff(noise(3), planarconfig="separate", compression="zlib"), t284=3)
        )
    palette = np.zeros((3, 256), np.uint16)
    data = tiff(noise(1), photometric="palette", colormap=palette)
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        at = file.pages[0].tags[320].offset
    with pytest.raises(ImageError, match="PALETTE images of 1 samples"):
        read_picture(data[: at + 4] + struct.pack("<I", 256) + data[at + 8 :])


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


def _rgb_with_samples(samples: int) -> bytes:
    data = tiff(noise(4), photometric="minisblack", planarconfig="contig")
    return _with_tags(data, t262=2, t277=samples)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (_rgb_with_samples(2), "RGB images of 2 samples"),
        (_with_tags(tiff(noise(1)), t262=3), "PALETTE images"),
    ],
    ids=["rgb_of_2", "palette_without_colours"],
)
def test_tiff_of_too_few_samples_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        read_picture(data)


def test_tiff_of_too_many_extra_samples() -> None:
    """Writers count colours among them."""
    assert np.array_equal(read_picture(_rgb_with_samples(4)).pixels, noise(4))


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


def test_tiff_palette_of_more_colours_than_are_kept() -> None:
    colormap = np.tile(_COLORS, 256) * 257
    data = tiff(noise(1, np.uint16), photometric="palette", colormap=colormap)
    assert read_picture(data).pixels.shape == (9, 13, 3)
    with pytest.raises(ImageError, match="a palette of 65536 colours cannot be kept"):
        read_picture(data, palette="index")


def test_tiff_reduced_copies_are_no_frames() -> None:
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        writer.write(noise(1), metadata=None)
        writer.write(noise(1)[::2, ::2], subfiletype=1, metadata=None)
    assert np.array_equal(read_picture(file.getvalue()).pixels, noise(1))


def _tiff_of_pages(offsets_next: list[int | None], **tags: int) -> bytes:
    """A TIFF of 1x1 pages of 8-bit gray, each with the number of the page that it says is next."""
    page = {254: 0, 256: 1, 257: 1, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: 1}
    page |= {int(code.lstrip("t")): value for code, value in tags.items()}
    entries = b"".join(struct.pack("<HHII", code, 4, 1, page[code]) for code in sorted(page))
    start = struct.pack("<H", len(page)) + entries
    size = len(start) + 4
    directories = b"".join(
        start + struct.pack("<I", 0 if number is None else 10 + number * size)
        for number in offsets_next
    )
    return b"II*\0" + struct.pack("<I", 10) + b"\x07\0" + directories


@pytest.mark.parametrize("length", [1, 2, 3, 99, 150])
@pytest.mark.parametrize("reduced", [0, 1])
def test_tiff_whose_pages_are_a_loop_is_refused(length: int, reduced: int) -> None:
    data = _tiff_of_pages([(page + 1) % length for page in range(length)], t254=reduced)
    with pytest.raises(ImageError, match=r"loop|several images"):
        read_picture(data)


def test_tiff_with_a_loop_behind_its_first_page_is_refused() -> None:
    with pytest.raises(ImageError, match=r"loop|several images"):
        read_picture(_tiff_of_pages([1, 2, 1]))


def test_tiff_of_one_page_as_the_loops_are_made() -> None:
    assert read_picture(_tiff_of_pages([None])).pixels.tolist() == [[7]]


def test_tiff_whose_subdirectories_are_a_loop_is_read() -> None:
    data = _tiff_of_pages([None], t330=10, t34665=10)
    assert read_picture(data, orient=True).pixels.tolist() == [[7]]


def test_tiff_of_many_pages_is_refused_at_the_second() -> None:
    data = _tiff_of_pages([*range(1, 30_000), None])
    with pytest.raises(ImageError, match="several images"):
        read_picture(data)
    reduced = _tiff_of_pages([*range(1, 30_000), None], t254=1)
    with pytest.raises(ImageError, match="more than 256 pages"):
        read_picture(reduced)


@pytest.mark.parametrize(
    ("tag", "message"), [(258, "overlap"), (273, "more than 4194304 strips or tiles")]
)
@pytest.mark.parametrize("order", ["<", ">"])
def test_tiff_whose_tags_share_their_bytes_is_refused(tag: int, message: str, order: str) -> None:
    # 4000 tags, each of all 4 MB: read one by one they would take 16 GB.
    size = 4_000_000
    entries = b"".join(struct.pack(f"{order}HHII", tag, 1, size, 8) for _ in range(4000))
    directory = struct.pack(f"{order}H", 4000) + entries + bytes(4)
    start = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(f"{order}I", 8 + size)
    with pytest.raises(ImageError, match=message):
        read_picture(start + bytes(size) + directory)


@pytest.mark.parametrize("is_second", [False, True])
def test_tiff_of_millions_of_strips_is_refused(is_second: bool) -> None:
    """Before tifffile makes 150 bytes of each: 16 MB of them took 600 MB."""
    count = 2**22 + 1
    lists = bytes(2 * count)
    tags = [(256, 3, 1, 1), (257, 4, 1, count), (278, 3, 1, 1)]
    tags += [(273, 3, count, 8), (279, 3, count, 8)]
    entries = b"".join(struct.pack("<HHII", *tag) for tag in sorted(tags))
    directory = struct.pack("<H", len(tags)) + entries + bytes(4)
    start = 8 + len(lists)
    data = lists + directory
    if is_second:
        data += struct.pack("<HHHII", 1, 254, 4, 1, 1) + struct.pack("<I", start)
        start += len(directory)
    tracemalloc.start()
    with pytest.raises(ImageError, match="more than 4194304 strips or tiles"):
        read_header(b"II*\0" + struct.pack("<I", start) + data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(data)


def test_a_jpeg_is_read_as_a_jpeg_alone() -> None:
    """Pillow's reader of SPIDER, which knows no signature, found an image of another size."""
    fields = {1: 4.0, 4: 1.0, 11: 8.0, 12: 1.0, 21: 1024.0, 22: 1024.0}
    spider = bytearray(struct.pack("<27f", *(fields.get(i, 0.0) for i in range(27))))
    spider[:4] = b"\xff\xd8\xff\x4b"
    frame = struct.pack(">4sBHHB", b"\xff\xc0\0\x11", 8, 4, 8, 3) + bytes(9)
    data = bytes(spider).ljust(2000, b"\0") + frame + b"\xff\xd9"
    assert (read_header(data).height, read_header(data).width) == (4, 8)
    with pytest.raises(ImageError, match=r"^cannot be read: the file is damaged$"):
        read_picture(data)


def with_small_page(data: bytes) -> bytes:
    """A TIFF of one tile whose page says that it is of 16 x 16 pixels."""
    page = tifffile.TiffFile(io.BytesIO(data)).pages.first
    patched = bytearray(data)
    for name in ("ImageWidth", "ImageLength", "RowsPerStrip"):
        tag = page.tags[name]
        size = {3: 2, 4: 4}[int(tag.dtype)]
        patched[tag.valueoffset : tag.valueoffset + size] = (16).to_bytes(size, "little")
    return bytes(patched)


def test_tiff_whose_tile_is_a_larger_image_is_refused() -> None:
    pixels = noise(3, height=512, width=512)
    data = tiff(pixels, photometric="rgb", compression="jpeg", rowsperstrip=512)
    assert read_picture(data).pixels.shape == (512, 512, 3)
    with pytest.raises(ImageError, match="larger than the page"):
        read_picture(with_small_page(data))


@pytest.mark.parametrize("compression", ["lerc", "jpegxr", "jpeg2000", "jpegxl", "png", "webp"])
def test_tiff_whose_tiles_cannot_be_judged_is_refused(compression: str) -> None:
    """200 bytes of LERC could take 30 GB."""
    pixels = noise(3, height=512, width=512)
    data = tiff(pixels, photometric="rgb", compression=compression, rowsperstrip=512)
    for each in (data, with_small_page(data)):
        with pytest.raises(ImageError, match=f"tiles are {compression.upper()}"):
            read_picture(each)


def test_tiff_without_samples_is_refused() -> None:
    with pytest.raises(ImageError, match="samples of 4 bits and format 3"):
        read_picture(_tiff_of_pages([None], t258=4, t339=3))


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ({"t256": 16384, "t257": 16384, "t322": 1, "t323": 1}, "strips or tiles in"),
        ({"t256": 16384, "t257": 16384, "t322": 16, "t323": 16}, "strips or tiles in"),
        ({"t256": 1, "t257": 2**28, "t278": 1, "t259": 8}, "strips or tiles in"),
        ({"t322": 2**31 - 16, "t323": 2**31 - 16, "t259": 8}, "tiles of 2147483632 x 2147483632"),
        ({"t277": 64, "t322": 4096, "t323": 4096, "t259": 8}, "tiles of 4096 x 4096"),
        ({"t257": 400_000, "t322": 4096, "t323": 4096, "t259": 8}, "tiles of 4096 x 4096"),
    ],
    ids=["tiles_of_1", "tiles_of_16", "strips_of_1", "huge_tile", "tile_of_bands", "wide_tiles"],
)
def test_tiff_of_an_impossible_layout_is_refused(tags: dict[str, int], message: str) -> None:
    tiles = {"t324": 8, "t325": 1} if "t322" in tags else {}
    with pytest.raises(ImageError, match=message):
        read_picture(_tiff_of_pages([None], **tags, **tiles))


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


def test_memory_of_a_tiff_of_many_strips() -> None:
    data = tiff(np.zeros((100_000, 1), np.uint8), rowsperstrip=1, compression="zlib")
    tracemalloc.start()
    read_picture(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < read_header(data).read_bytes < 60_000_000


def test_memory_of_a_narrow_pbm() -> None:
    data = b"P4 1 1000000\n" + bytes(1_000_000)
    tracemalloc.start()
    read_picture(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < read_header(data).read_bytes


def test_memory_of_a_tiff_larger_than_its_image() -> None:
    """As with Photoshop's layers: what its tags take is set aside."""
    layers = bytes(30_000_000)
    data = tiff(noise(3), photometric="rgb", extratags=[(37724, 7, len(layers), layers, True)])
    tracemalloc.start()
    assert np.array_equal(read_picture(data).pixels, noise(3))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < read_header(data).read_bytes + 100_000


# Sizes, before anything is decoded.


def _files_of_all_formats(pixels: Image) -> dict[str, bytes]:
    """One image in each format that is read, colours in RGB."""
    image = PIL.Image.fromarray(pixels)
    gray = PIL.Image.fromarray(np.ascontiguousarray(pixels[:, :, 0]))
    files = {
        suffix: write_picture(Picture(np.asarray(gray) if suffix == ".pgm" else pixels), suffix)
        for suffix in WRITERS
    }
    return files | {
        "gray.png": saved(gray, "PNG"),
        "palette.png": saved(image.quantize(9), "PNG"),
        "interlaced.png": _png(struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 1), b"\0\1\2\3"),
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
    lab = box(b"colr", struct.pack(">BBBI", 1, 0, 0, 14))  # the second, which nobody reads
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
        with pytest.raises(ImageError, match="colours that are not gray"):
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
        with pytest.raises(ImageError, match="colours that are not gray"):
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


def test_a_long_side_is_not_made_smaller() -> None:
    """Pillow takes 48 bytes and more for each of its pixels: 2.2 GB for 45 KB of TIFF."""
    for shape in ((2, 2**20 + 1), (2**20 + 1, 2)):
        data = tiff(np.zeros(shape, np.uint8), compression="deflate")
        with pytest.raises(
            ImageError, match=r"a side of 1048577 pixels: max_side, .* of up to 1048576"
        ):
            read_picture(data, max_side=2**20)
        assert read_picture(data, max_side=2**20 + 1).pixels.shape == shape
    data = tiff(np.zeros((2, 2**20), np.uint8), compression="deflate")
    assert read_picture(data, max_side=2**19).pixels.shape == (1, 2**19)


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


@pytest.mark.parametrize("options", [{"palette": "index"}, {"labels": True}])
def test_a_palette_of_jpeg_2000(options: dict[str, Any]) -> None:
    """Numbers of classes were colours."""
    numbers = np.eye(12, 8, dtype=np.uint8)
    picture = read_picture(palette_jp2(3))
    assert np.array_equal(picture.pixels, numbers[..., None] * np.array([9, 8, 7], np.uint8))
    assert picture.expanded
    picture = read_picture(palette_jp2(3), **options)
    assert np.array_equal(picture.pixels, numbers)
    assert picture.palette == bytes([0, 0, 0, 255, 9, 8, 7, 255])
    assert not picture.expanded
    other = palette_jp2(3).replace(b"pclr\0\2\3\7", b"pclr\0\2\3\6")
    for data in (other, palette_jp2(4)):
        with pytest.raises(ImageError, match="a palette that is not RGB of 8 bits cannot be kept"):
            read_picture(data, **options)


@pytest.mark.parametrize("in_header", [True, False])
def test_a_palette_of_many_channels_is_refused(in_header: bool) -> None:
    """OpenJPEG would make 255 samples of each byte: 2 KB could take 340 GB."""
    assert read_picture(palette_jp2(3)).pixels.shape == (12, 8, 3)
    assert read_picture(palette_jp2(4)).pixels.shape == (12, 8, 4)
    with pytest.raises(ImageError, match="255 channels; up to 4"):
        read_header(palette_jp2(255, in_header=in_header))


@pytest.mark.parametrize("name", _files_of_all_formats(noise(3)))
def test_large_images_are_refused_before_they_are_decoded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = _files_of_all_formats(noise(3))[name]
    header = read_header(data)
    pixels = header.width * header.height
    read_picture(data, max_pixels=pixels)
    monkeypatch.setattr(reading, "_READERS", {})
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
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_header_of_jpegxl_of_any_channels(channels: int, dtype: type) -> None:
    data = write_picture(Picture(noise(channels, dtype)), ".jxl")
    header = read_jpegxl_header(data)
    assert (header.wide, header.extra_channels) == (dtype == np.uint16, channels in (2, 4))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("lossless", [True, False])
@pytest.mark.parametrize("channels", [2, 4])
def test_extra_channels_of_jpeg_xl(channels: int, lossless: bool, dtype: type) -> None:
    """A bit behind those of each says whether its colours are those of lossy coding."""
    pixels = noise(channels, dtype)
    data = bytes(imagecodecs.jpegxl_encode(pixels, lossless=lossless, usecontainer=False))
    header = read_jpegxl_header(data)
    assert header.plain
    assert header.xyb == (not lossless)


@pytest.mark.parametrize("bit", [61, 46], ids=["premultiplied", "depth"])
def test_other_channels_of_jpeg_xl_are_refused(bit: int) -> None:
    data = bytes(imagecodecs.jpegxl_encode(noise(4, np.uint16)))
    changed = bytearray(data[data.index(b"\xff\x0a") :])  # without its boxes
    assert read_picture(bytes(changed)).pixels.shape == (9, 13, 4)
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ImageError, match="premultiplied alpha"):
        read_picture(bytes(changed))


# Files of libjxl of 2 x 1 pixels. imagecodecs writes one alpha, of as many bits as the colours.
TWO_ALPHAS = "ff0a007050580208200001004c004b188b15c209ecd81171803d6b4189dc6f9a3a"
GRAY_TWO_ALPHAS = "ff0a00705018c58d082000010048004b188b15c2096c1c35fa004333521491f301"
GRAY_THREE_ALPHAS = "ff0a0070d0388a1b01088000100058004b188b15525cd263ac641bce63c90186844a88fbf60f"
ALPHA_OF_16_IN_8_BITS = "ff0a007020f801120808100050004b188b15420ad8b81430f001f632c10cfd316900"
ALPHA_OF_8_IN_4_BITS = "ff0a00703cac040808100034004b188b15c24942e5010092fd00"
ALPHA_OF_4_IN_8_BITS = "ff0a0070307800120808100038004b188b1542a9a1d501f632c16803"


@pytest.mark.parametrize("file", [TWO_ALPHAS, GRAY_TWO_ALPHAS, GRAY_THREE_ALPHAS])
def test_several_alphas_of_jpeg_xl_are_refused(file: str) -> None:
    """The decoder gives the first alone."""
    with pytest.raises(ImageError, match="several extra channels"):
        read_picture(bytes.fromhex(file))


@pytest.mark.parametrize("file", [ALPHA_OF_16_IN_8_BITS, ALPHA_OF_8_IN_4_BITS])
def test_alpha_of_jpeg_xl_that_would_lose_bits_is_refused(file: str) -> None:
    """The decoder scales it to the bits of the colours."""
    with pytest.raises(ImageError, match="alpha of more bits than the colours"):
        read_picture(bytes.fromhex(file))
    pixels = read_picture(bytes.fromhex(ALPHA_OF_4_IN_8_BITS)).pixels
    assert pixels.tolist() == [[[1, 2, 3, 1 * 17], [4, 5, 6, 12 * 17]]]


def _bomb(image_format: str) -> bytes:
    """A file of few bytes that claims some 2^29 pixels or more."""
    side = struct.pack(">I", 30000)
    if image_format == "PNG":
        return _png(side + side + bytes([8, 2, 0, 0, 0]), bytes(99))
    if image_format == "TIFF":
        return _tiff_of_pages([None], t256=30000, t257=30000, t278=30000, t279=30000**2)
    if image_format == "PGM":
        return b"P5 30000 30000 255 " + bytes(99)
    data = saved(PIL.Image.fromarray(noise(3)), image_format)
    if image_format == "JPEG":
        at = data.index(b"\xff\xc0") + 5
        return data[:at] + struct.pack(">HH", 30000, 30000) + data[at + 4 :]
    if image_format == "BMP":
        return data[:18] + struct.pack("<ii", 30000, 30000) + data[26:]
    at = data.index(b"\xff\x51") + 6
    return data[:at] + side + side + data[at + 8 :]


@pytest.mark.parametrize("image_format", ["PNG", "TIFF", "PGM", "JPEG", "BMP", "JPEG2000"])
def test_small_files_that_claim_much_are_refused(image_format: str) -> None:
    with pytest.raises(ImageError, match="30000 x 30000 pixels are more than the limit"):
        read_picture(_bomb(image_format))


def test_metadata_has_a_limit() -> None:
    bomb = (b"iCCP", b"x\0\0" + zlib.compress(bytes(2**24 + 1)))
    data = _png(struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0), b"\0\1", bomb)
    with pytest.raises(ImageError, match="an ICC profile of more than 16 MiB"):
        read_picture(data)
    large = _png(struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0), b"\0\1", (b"eXIf", bytes(2**24 + 1)))
    with pytest.raises(ImageError, match="an EXIF block of more than 16 MiB"):
        read_picture(large)
    kept = tiff(noise(1), iccprofile=bytes(2**24))
    assert len(read_picture(kept).icc or b"") == 2**24


def test_too_many_channels_are_refused_by_the_header() -> None:
    data = tiff(np.zeros((2, 3, 4097), np.uint8), photometric="minisblack", planarconfig="contig")
    with pytest.raises(ImageError, match="4097 channels; up to 4096 of this format are read"):
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
    for suffix in set(WRITERS) - {".tif", ".tiff"}:
        with pytest.raises(ImageError, match=r"cannot hold .*; \.tif can"):
            write_picture(picture, suffix)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_bands_count_for_the_limit_of_pixels(dtype: type) -> None:
    data = tiff(noise(9, dtype), photometric="minisblack", planarconfig="contig")
    assert read_picture(data, max_pixels=3 * 9 * 13).pixels.shape == (9, 13, 9)
    with pytest.raises(ImageError, match=r"13 x 9 x 3 .* pixels are more than the limit of 350"):
        read_picture(data, max_pixels=3 * 9 * 13 - 1)


# What all formats share.


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int8, np.int16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("suffix", WRITERS)
def test_written_files_read_back_exactly(suffix: str, channels: int, dtype: type) -> None:
    picture = Picture(noise(channels, dtype))
    writer = WRITERS[suffix]
    is_signed = np.dtype(dtype).kind == "i"
    holds_bits = 8 * np.dtype(dtype).itemsize in writer.bits and (writer.signed or not is_signed)
    if channels in writer.channels and holds_bits:
        again = read_picture(write_picture(picture, suffix))
        assert again.pixels.dtype == dtype
        assert np.array_equal(again.pixels, picture.pixels)
    else:
        held = f"{suffix} cannot hold " + ("signed samples; .tif can" if is_signed else "")
        with pytest.raises(ImageError, match=held):
            write_picture(picture, suffix)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("suffix", WRITERS)
def test_thin_noise_reads_back_exactly(suffix: str, dtype: type) -> None:
    """imagecodecs has too little room for it as PNG, and may give one without its end."""
    if 8 * np.dtype(dtype).itemsize not in WRITERS[suffix].bits:
        return
    generator = np.random.default_rng(0)
    for channels in {1, 2, 3, 4} & set(WRITERS[suffix].channels):
        for height in (1, 2, 163, 700):
            for width in (1, 2, 5):
                shape = (height, width) if channels == 1 else (height, width, channels)
                pixels = generator.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)
                again = read_picture(write_picture(Picture(pixels), suffix)).pixels
                assert np.array_equal(again, pixels)


def test_jpegs_of_plans_keep_what_goes_with_pixels() -> None:
    tags = exif(6).removeprefix(b"Exif\0\0")
    again = read_picture(encode_jpeg(Picture(noise(3), icc=b"profile", exif=tags, xmp=b"<x/>")))
    assert (again.icc, again.exif, again.xmp) == (b"profile", tags, b"<x/>")
    again = read_picture(encode_jpeg(Picture(noise(1))))
    assert (again.icc, again.exif, again.xmp) == (None, None, None)
    for most, name in ((65_527, "exif"), (65_504, "xmp"), (255 * 65_519, "icc")):
        held: Any = {name: bytes(most)}
        encode_jpeg(Picture(noise(3), **held))
        held[name] += b"\0"
        with pytest.raises(ValueError, match="no JPEG holds it"):
            encode_jpeg(Picture(noise(3), **held))


@pytest.mark.parametrize("maximum", [0, 1, 2, 255, 256, 65535])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("suffix", WRITERS)
def test_written_files_do_not_depend_on_the_maximum(suffix: str, dtype: type, maximum: int) -> None:
    maximum = min(maximum, np.iinfo(dtype).max)
    for channels in {1, 2, 3, 4, 9} & set(WRITERS[suffix].channels):
        if 8 * np.dtype(dtype).itemsize in WRITERS[suffix].bits:
            pixels = np.minimum(noise(channels, dtype), dtype(maximum))
            again = read_picture(write_picture(Picture(pixels), suffix)).pixels
            assert again.dtype == dtype
            assert np.array_equal(again, pixels)


def test_the_limit_of_pillow_is_its_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 4)
    pixels = np.zeros((9, 9), np.uint8)
    for suffix in (".jpg", ".webp", ".bmp"):
        file = io.BytesIO()
        PIL.Image.fromarray(pixels).save(file, PIL.Image.registered_extensions()[suffix])
        assert read_picture(file.getvalue()).pixels.shape[:2] == (9, 9)
    assert PIL.Image.MAX_IMAGE_PIXELS == 4


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


@pytest.mark.parametrize("data", [b"P2 2 1 9 3 4", b"P5 2 1 9 \3\4", b"P5 2 1 999 \0\3\0\4"])
def test_netpbm_gray_keeps_its_numbers(data: bytes) -> None:
    assert read_picture(data).pixels.tolist() == [[3, 4]]


@pytest.mark.parametrize("data", [b"P1 2 1 1 0", b"P4 2 1 \x80"])
def test_netpbm_counts_ink(data: bytes) -> None:
    assert read_picture(data).pixels.tolist() == [[0, 255]]


def test_netpbm_light_has_samples() -> None:
    head = b"P7\nWIDTH 2\nHEIGHT 1\nDEPTH 1\nMAXVAL 1\nTUPLTYPE BLACKANDWHITE\nENDHDR\n"
    assert read_picture(head + b"\1\0").pixels.tolist() == [[1, 0]]


@pytest.mark.parametrize(
    "head",
    [
        b"P5\r\n# a\r\n# #b\n 2 1\n#c\n255\n",
        b"P7\r\n#a#b\r\n\nWIDTH 2 \nHEIGHT  1#c\nDEPTH 1\nMAXVAL 255\nTUPLTYPE GRAYSCALE\nENDHDR\n",
    ],
)
def test_netpbm_comments(head: bytes) -> None:
    assert read_picture(head + b"\3\4").pixels.tolist() == [[3, 4]]


@pytest.mark.parametrize(
    "head",
    [
        b"P7" + b"\n" * 60,
        b"P7\n" + b"#" * 60 + b"\n",
        b"P7\n" + b"#\r" * 60,
        b"P5\n" + b"#\r" * 60,
        b"P5" + 3 * (b" " * 900 + b"1"),
        b"P1" + 2 * (b" " * 2000 + b"1"),
    ],
)
def test_netpbm_headers_take_no_time(head: bytes) -> None:
    """82 bytes of them: 2^60 attempts to find one."""
    with pytest.raises(ImageError, match="a damaged header"):
        read_header(head + b"X" * 20)


@pytest.mark.parametrize("behind", [b"", b"\n"])
@pytest.mark.parametrize(
    "data", [b"P2 2 2 9 3 4 3 4 ", b"P5 2 2 9 \3\4\3\4", b"P4 2 2 \x80\x80", b"P6 1 1 255 \1\2\3"]
)
def test_netpbm_of_several_images(data: bytes, behind: bytes) -> None:
    """Of a smaller one behind the first nothing was told."""
    read_picture(data + behind)
    if data.startswith(b"P2"):
        read_picture(data + b"# not P2 2\n" + behind)
    with pytest.raises(ImageError, match="several images in one file"):
        read_picture(data + behind + b"P5 1 1 9 \3")


def _streamed(suffix: str) -> bytes:
    """The same image again behind padding, as in streams of images and of Motion-JPEG."""
    if suffix in (".j2k", ".jxl boxed"):
        encode = imagecodecs.jpeg2k_encode if suffix == ".j2k" else imagecodecs.jpegxl_encode
        options = {"codecformat": "j2k"} if suffix == ".j2k" else {"usecontainer": True}
        return bytes(encode(noise(3), level=0, **options))
    if suffix == ".jpg":
        return encode_jpeg(Picture(noise(3), exif=exif(1)))
    return write_picture(Picture(noise(3)), suffix)


@pytest.mark.parametrize(
    "suffix",
    [".png", ".jpg", ".webp", ".bmp", ".tif", ".jxl", ".jxl boxed", ".jp2", ".j2k"],
)
def test_images_behind_one_another_are_refused(suffix: str) -> None:
    """The first was taken, and of the others nothing was told."""
    data = _streamed(suffix)
    for behind in (b"", b"\0" * 7, b"no image"):
        assert np.array_equal(read_picture(data + behind).pixels, read_picture(data).pixels)
    for behind in (data, data * 2):
        with pytest.raises(ImageError, match="several images in one file"):
            read_header(data + behind)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".bmp", ".tif", ".j2k"])
@pytest.mark.parametrize("padding", [b"\0\r\n", bytes(4000), *map(bytes, range(65535, 65538))])
@pytest.mark.parametrize("step", [None, 64])
def test_images_behind_padding_are_refused(
    suffix: str, padding: bytes, step: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one step, Ctrl-C waited for a GB behind a JPEG: 10 s."""
    if step is not None:
        monkeypatch.setattr("l3dali.images.headers._STEP", step)
    read_header(_streamed(suffix) + padding)
    with pytest.raises(ImageError, match="several images in one file"):
        read_header(_streamed(suffix) + padding + _streamed(suffix))
    with pytest.raises(ImageError, match="several images in one file"):
        read_header(_streamed(".jpg") + b"\xff" * 9 + _streamed(".jpg"))


@pytest.mark.parametrize("bigtiff", [False, True])
@pytest.mark.parametrize("place", ["exif", "subifd", "page", "mask"])
def test_tiffs_behind_one_another_with_directories_between(place: str, bigtiff: bool) -> None:
    """Of the first a directory of its own lies at its end: the second was not found."""
    pixels, file = noise(3), io.BytesIO()
    if place == "exif":
        own = {"exif": PIL.Image.Exif(), "big_tiff": bigtiff}
        own["exif"].get_ifd(0x8769)[0x9003] = "2020:01:01 00:00:00"
        PIL.Image.fromarray(pixels).save(file, "tiff", compression="tiff_lzw", **own)
    else:
        with tifffile.TiffWriter(file, bigtiff=bigtiff) as writer:
            writer.write(pixels, photometric="rgb", subifds=int(place == "subifd"))
            small = pixels[::2, ::2] if place != "mask" else pixels
            writer.write(small, photometric="rgb", subfiletype=1)
    data = file.getvalue()
    for behind in (b"", b"no image II*\0", b"no image" * 9):
        assert np.array_equal(read_picture(data + behind).pixels, pixels)
    with pytest.raises(ImageError, match="several images in one file"):
        read_header(data + bytes(100) + data)


@pytest.mark.parametrize(("channels", "height"), [(1, 40), (3, 40), (1, 20)])
def test_tiff_of_an_image_below_another(channels: int, height: int) -> None:
    """In a SubIFD; it was dropped in silence."""
    for is_copy in (0, 1):
        file = io.BytesIO()
        with tifffile.TiffWriter(file) as writer:
            writer.write(noise(1, height=40), subifds=1)
            writer.write(noise(channels, height=height), subfiletype=is_copy)
        refused = pytest.raises(ImageError, match="several images in one file")
        with contextlib.nullcontext() if is_copy else refused:
            read_header(file.getvalue())


def test_tiff_of_an_image_behind_a_copy() -> None:
    """The list that a SubIFD begins may go on; it was not followed."""
    file = io.BytesIO()
    with tifffile.TiffWriter(file, bigtiff=False) as writer:
        writer.write(noise(1), subifds=1)
        writer.write(noise(1, height=4), subfiletype=1)
        writer.write(noise(1))
    data = bytearray(file.getvalue())
    with tifffile.TiffFile(io.BytesIO(data)) as tiff_file:
        page, other = tiff_file.pages
        ends = [
            each.offset + 2 + 12 * struct.unpack_from("<H", data, each.offset)[0]
            for each in (page, page.pages[0])
        ]
    for end, following in zip(ends, (0, other.offset), strict=True):
        struct.pack_into("<I", data, end, following)
    with pytest.raises(ImageError, match="several images in one file"):
        read_picture(bytes(data))
    struct.pack_into("<I", data, ends[1], len(data))  # a directory without an image between
    text = struct.pack("<HHHI4sI", 1, 270, 2, 4, b"abc", other.offset)
    with pytest.raises(ImageError, match="several images in one file"):
        read_picture(bytes(data + text))
    for behind in (0, 9, 2**31):  # Some writers leave anything there.
        struct.pack_into("<I", data, ends[1], behind)
        assert np.array_equal(read_picture(bytes(data)).pixels, noise(1))


def test_a_pyramid_of_one_row() -> None:
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        writer.write(noise(1, height=1), subifds=1)
        writer.write(noise(1, height=1, width=6))
    assert np.array_equal(read_picture(file.getvalue()).pixels, noise(1, height=1))


def test_tiff_of_a_copy_that_is_larger() -> None:
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        writer.write(noise(1))
        writer.write(noise(1, height=90), subfiletype=1)
    with pytest.raises(ImageError, match="smaller copy"):
        read_picture(file.getvalue())


@pytest.mark.parametrize(("mark", "width"), [(b"", 5), (b"Container:Directory", 13)])
def test_previews_behind_a_jpeg_are_passed_over(mark: bytes, width: int) -> None:
    """As cameras write them; of portraits the first is followed by others of its size."""
    data = encode_jpeg(Picture(noise(3), xmp=b"<x>" + mark))
    preview = encode_jpeg(Picture(noise(1, width=width)))
    for behind in (preview, preview[:20]):
        assert np.array_equal(read_picture(data + behind).pixels, read_picture(data).pixels)


def test_codestreams_of_one_jpeg_2000_are_several_images() -> None:
    data = write_picture(Picture(noise(3)), ".jp2")
    with pytest.raises(ImageError, match="several images in one file"):
        read_picture(data + data[data.index(b"jp2c") - 4 :])


def test_previews_within_a_jpeg_are_no_further_images() -> None:
    small = encode_jpeg(Picture(noise(1)))
    head = encode_jpeg(Picture(noise(3)))
    previews = b"\xff\xe4" + struct.pack(">H", 2 + 2 * len(small)) + small * 2
    assert read_header(head[:2] + previews + head[2:]).width == 13


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


@pytest.mark.parametrize("options", [{}, {"lossless": True}, {"icc_profile": b"profile"}])
def test_a_webp_that_ends_too_early(options: dict[str, Any]) -> None:
    """It was an error of struct, or "could not create decoder object"."""
    from PIL import Image

    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    data = saved(image, "WEBP", **options)
    for kept in (12, 20, 29, 30, 40, len(data) - 2):
        with pytest.raises(ImageError, match=r"^cannot be read: the file ends too early$"):
            read_picture(data[:kept])


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
    "empty": (b"", "is empty"),
    "l3": (b"\x8bL3F\r\n\x1a\n", "an L3 file already"),
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
    "tiff_signed_32_bits": (tiff(noise(1).astype(np.int32)), "signed samples of 32 bits"),
    "tiff_signed_least_is_white": (
        tiff(noise(1).astype(np.int16), photometric="miniswhite"),
        "least is white",
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
            assert read_picture(bytes(damaged), orient=True).pixels.dtype in SAMPLE_TYPES
