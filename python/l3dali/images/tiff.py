"""TIFF, by tifffile."""

from __future__ import annotations

import io
import math
import re
import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np

from l3dali.arguments import MAX_CHANNELS, SAMPLE_TYPES
from l3dali.errors import ENDS_TOO_EARLY, ImageError
from l3dali.images.jpeg import jpeg_frame
from l3dali.images.picture import ALPHA, Header, ImageFormat, Picture, ReadOptions, Writer
from l3dali.images.png import rgba
from l3dali.images.tiff_directories import (
    TIFF_ITEM_BYTES,
    damaged_tags,
    descriptive_exif,
    entries_at,
    plain_exif_tags,
    tiff_entries,
)
from l3dali.metadata import (
    EXTRA_SAMPLES,
    KEPT_TIFF_TAGS,
    MAX_METADATA_BYTES,
    TIFF_TYPES,
    TiffTag,
    extra_samples,
    metadata_of_tiff,
    tiff_item_bytes,
    tiff_of_metadata,
    volume_of,
)
from l3dali.signatures import format_of
from l3dali.volumes import slices_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    import tifffile

    from l3dali.codec import Image
    from l3dali.images.picture import Palette
    from l3dali.images.tiff_directories import Entries

_MINISWHITE, _MINISBLACK, _RGB, _PALETTE, _YCBCR = 0, 1, 2, 3, 6  # photometric interpretations
_XMP = 700
_DESCRIPTION = 270
NO_DATA = 42113
_ICC = 34675
_READ_TAGS = KEPT_TIFF_TAGS | {_ICC, _XMP}
_TYPE_NAMES = {number: name for name, (number, _) in TIFF_TYPES.items()}
# The default resolution: one pixel in a unit without a name.
_NO_RESOLUTION = {
    282: TiffTag("RATIONAL", struct.pack("<2I", 1, 1)),
    283: TiffTag("RATIONAL", struct.pack("<2I", 1, 1)),
    296: TiffTag("SHORT", struct.pack("<H", 1)),
}
# tifffile's default description.
_TIFFFILE_SHAPE = re.compile(r'shape=\([\d, ]+\)|\{"shape": \[[\d, ]*\](, "truncated": true)?\}')
# Sizes, samples, colours, orientation, offsets of pixels, and the value of missing ones.
_PIXEL_TAGS = {
    *(256, 257, 258, 259, 262, 266, 273, 274, 277, 278, 279, 284, 317, 320, 322, 323, 324, 325),
    *(338, 339, 347, 42113),
}


@contextmanager
def _open(data: bytes) -> Iterator[tifffile.TiffPage]:
    """The page of a TIFF with one image, and perhaps smaller copies.

    Raises:
        ImageError: there are several images or none, the page is a smaller copy of another image,
            or the file was cut.
    """
    import tifffile

    with tifffile.TiffFile(io.BytesIO(data)) as file:
        images: list[tifffile.TiffPage] = []
        copies: list[tifffile.TiffPage] = []
        for each in file.pages:
            page = each.aspage()
            (copies if page.is_reduced or page.is_mask else images).append(page)
            if len(images) > 1:
                raise ImageError("several images in one file; L3 holds single images")
        if not images:
            raise ImageError("a TIFF without an image" if copies else ENDS_TOO_EARLY)
        (page,) = images
        _check_directory(data, page)
        with suppress(Exception):  # Reading has a remark for damaged SubIFDs.
            copies += (sub.aspage() for each in (page, *copies) for sub in each.pages or ())
        for other in copies:
            if other.imagewidth > page.imagewidth or other.imagelength > page.imagelength:
                raise ImageError("only a thumbnail of the TIFF is readable, as in raw photographs")
        yield page


def _check_directory(data: bytes, page: tifffile.TiffPage) -> None:
    """Truncation check: tifffile ignores tags and pages behind the end of the file."""
    layout = page.parent.tiff
    at = page.parent.pages.next_page_offset
    if at is not None and any(data[at : at + layout.offsetsize]):
        raise ImageError("a damaged TIFF: it ends before its next page")
    for tag, kind, _, begin, end in tiff_entries(data, layout, page.offset):
        is_there = kind in TIFF_ITEM_BYTES and begin >= 8 and end <= len(data)
        if tag in _PIXEL_TAGS and not is_there:
            raise ImageError(f"a damaged TIFF: the values of tag {tag} are missing")


def _read_header(data: bytes) -> Header:
    with _open(data) as page:
        sizes = [page.imagewidth, page.imagelength, page.samplesperpixel, page.bitspersample]
        sizes += [page.tilewidth, page.tilelength, page.rowsperstrip, page.fillorder]
        if not all(isinstance(size, int) for size in sizes):  # tifffile gives a BYTE as bytes.
            raise ImageError("a damaged TIFF: a size or the order of bits is not a number")
        if page.axes not in ("YX", "YXS", "SYX"):
            raise ImageError(f"a TIFF of axes {page.axes} is not supported")
        if page.dtype is None:
            samples = f"samples of {page.bitspersample} bits and format {page.sampleformat}"
            raise ImageError(f"a TIFF with {samples} is not supported")
        width, height = page.imagewidth, page.imagelength
        size = width, height, page.samplesperpixel, page.dtype.itemsize
        header = Header.of("tiff", *size, peak=2, most=MAX_CHANNELS)
        _check_strips(data, page)
        # Whole strips or tiles are decoded in addition, with their padding.
        padded = math.prod(page.chunks) * math.prod(page.chunked) * max(1, page.bitspersample // 8)
        raw = header.raw_bytes
        if page.photometric == _PALETTE:
            raw += 6 * width * height
        cost = max(header.pixel_cost, -(-raw // max(1, 8 * width * height)))
        tags = max(0, len(data) - sum(page.databytecounts))  # held by tifffile and by Pillow
        lists = 400 * len(page.dataoffsets)  # Python objects for each strip or tile
        read_bytes = 2 * raw + padded + 2 * tags + lists
        return header._replace(raw_bytes=raw, read_bytes=read_bytes, pixel_cost=cost)


def _check_strips(data: bytes, page: tifffile.TiffPage) -> None:
    """Truncation check: tifffile fills strips and tiles that are not listed with zeros."""
    count = math.prod(page.chunked)
    places = list(zip(page.dataoffsets, page.databytecounts, strict=False))
    is_listed = len(places) >= count and all((at == 0) == (size == 0) for at, size in places)
    end = max((at + size for at, size in places), default=0)
    if page.is_contiguous:  # They are read as one.
        is_listed = sum(size for _, size in places) >= page.nbytes
        end = places[0][0] + page.nbytes
    if is_listed and end > len(data):
        raise ImageError(ENDS_TOO_EARLY)
    if not is_listed or ("StripOffsets" in page.tags and "TileOffsets" in page.tags):
        raise ImageError(f"a damaged TIFF: the offsets of its {count} strips or tiles are missing")
    known = sum(tag.valuebytecount + page.parent.tiff.tagsize for tag in page.tags)
    if not any(page.databytecounts) and len(data) - known > page.nbytes // 64 + 64:
        raise ImageError("a damaged TIFF: the sizes of its strips or tiles are missing")


def _read(data: bytes, options: ReadOptions) -> Picture:
    with _open(data) as page:
        pixels, entries = _pixels(data, page, options.palette)
        tags = entries_at(data, page.parent.tiff, page.offset, _READ_TAGS)
        bits = page.bitspersample if page.photometric != _PALETTE else 8
        is_unscaled = options.palette == "index" and bits in (1, 2, 4)
        metadata = _metadata(tags, page, keeps_numbers=entries is not None or is_unscaled)
        picture = Picture(
            pixels,
            icc=tags.get(_ICC, (0, 0, None))[2],
            exif=descriptive_exif(data, page),
            palette=entries,
            expanded=entries is None and page.photometric == _PALETTE,
            xmp=tags.get(_XMP, (0, 0, None))[2],
            metadata=metadata,
            has_alpha=extra_samples(metadata) is None,
            remarks=tuple(_remarks(data, page)),
        )
        extra = _extra_samples(page)
        kinds = [0] * (page.samplesperpixel - len(extra)) + extra
        bands = [i for i, kind in enumerate(kinds) if kind != ALPHA]
        return picture.scaled(bits, options, bands)


def _remarks(data: bytes, page: tifffile.TiffPage) -> Iterator[str]:
    """Remarks on parts of the file that are dropped."""
    if tags := damaged_tags(data, page.parent.tiff, page.offset):
        yield f"damaged metadata was dropped: TIFF tags {', '.join(map(str, tags))}"
    pages = page.parent.pages
    if len(pages) > 1 and any(each.aspage().is_mask for each in pages):
        yield "a transparency mask was dropped"


def _metadata(
    entries: Entries, page: tifffile.TiffPage, *, keeps_numbers: bool
) -> dict[str, Any] | None:
    """The kept tags of a page; `keeps_numbers`: the pixels are palette entries or few bits."""
    tags = {}
    for code in KEPT_TIFF_TAGS & entries.keys():
        number, _, values = entries[code]
        if name := _TYPE_NAMES.get(number):
            if page.parent.byteorder == ">":
                item_bytes = struct.calcsize(TIFF_TYPES[name][1])
                values = np.frombuffer(values, f"u{item_bytes}").byteswap().tobytes()
            tags[code] = TiffTag(name, values)
    if sum(len(tag.data) for tag in tags.values()) > MAX_METADATA_BYTES:
        raise ImageError(f"the TIFF tags have more than {MAX_METADATA_BYTES >> 20} MiB")
    if all(tags.get(code) in (None, tag) for code, tag in _NO_RESOLUTION.items()):
        tags = {code: tag for code, tag in tags.items() if code not in _NO_RESOLUTION}
    extra = _extra_samples(page)
    is_usual = page.samplesperpixel > 4 and extra == [0] * (page.samplesperpixel - 1)
    if extra not in ([], [ALPHA]) and not is_usual:
        tags[EXTRA_SAMPLES] = TiffTag("SHORT", struct.pack(f"<{len(extra)}H", *extra))
    if _TIFFFILE_SHAPE.fullmatch(page.description):
        tags.pop(_DESCRIPTION, None)
    is_plain = page.photometric in (_MINISBLACK, _RGB)
    is_inverted = page.photometric == _MINISWHITE
    is_kept = keeps_numbers or (is_plain and page.bitspersample not in (1, 2, 4))
    if is_inverted or not is_kept:
        tags.pop(NO_DATA, None)  # The sample has another value now.
    return metadata_of_tiff(tags)


def _extra_samples(page: tifffile.TiffPage) -> list[int]:
    """The kind of each sample after the colours, 0 or `ALPHA`; the tag may be short."""
    colors = 3 if page.photometric in (_RGB, _YCBCR) else 1
    count = page.samplesperpixel - colors
    kinds = [ALPHA if kind == ALPHA else 0 for kind in page.extrasamples]
    return (kinds + [0] * count)[:count]


def _value_of_missing(page: tifffile.TiffPage) -> float:
    """The value of strips and tiles that GDAL did not store; tifffile misreads some."""
    try:
        value = float(page.tags.valueof(NO_DATA, "0"))
        if page.dtype is not None and page.dtype.kind == "f":
            return value
        limits = np.iinfo(page.dtype)
        if limits.min <= value <= limits.max and value.is_integer():
            return int(value)
    except (TypeError, ValueError):
        pass
    raise ImageError("a TIFF with missing strips or tiles, whose GDAL_NODATA is not a sample")


def _pixels(data: bytes, page: tifffile.TiffPage, palette: Palette) -> tuple[Image, bytes | None]:
    _check_samples(page)
    if page.compression not in _SIZED_COMPRESSIONS:
        _check_jpegs(data, page)
    # tifffile, ImageJ and MetaMorph may describe several images in one directory.
    is_described = (page.description or page.is_stk) and len(page.parent.pages) == 1
    if is_described and math.prod(page.parent.series[0].shape) > math.prod(page.shape):
        raise ImageError("several images in one file; L3 holds single images")
    if 0 in page.databytecounts:
        page.nodata = _value_of_missing(page)
    if page.compression in _PADDED_COMPRESSIONS:
        _accept_padding(page)
    if page.axes == "SYX":
        # tifffile would decode planes of JPEG, which are gray, as colours.
        page.photometric, photometric = _MINISBLACK, page.photometric
        pixels = np.moveaxis(page.asarray(), 0, -1)
        page.photometric = photometric
    else:
        pixels = page.asarray()
    if page.photometric == _PALETTE and page.colormap is not None:
        colors = _colors(page.colormap)
        pixels = pixels.astype(np.uint8) if pixels.dtype == bool else pixels
        if palette == "rgb":
            return colors[pixels], None
        if colors.dtype != np.uint8:
            raise ImageError("a palette of 16-bit colours cannot be kept; use palette rgb")
        if len(colors) > 256:
            raise ImageError(f"a palette of {len(colors)} colours; at most 256 can be kept")
        return pixels, rgba(colors.tobytes(), b"")
    if pixels.dtype.kind == "i" and page.bitspersample not in (8, 16, 32, 64):
        raise ImageError(f"signed samples of {page.bitspersample} bits are not supported")
    most = 2**page.bitspersample - 1
    if page.bitspersample in (1, 2, 4):
        pixels = pixels.astype(np.uint8)
    if page.photometric == _MINISWHITE:
        if pixels.dtype.kind != "u":
            raise ImageError("signed samples and floats in a white-is-zero TIFF are not supported")
        pixels = np.require(pixels, requirements="W")
        gray = pixels[..., :1] if page.samplesperpixel > 1 else pixels
        np.subtract(most, gray, out=gray)
    return pixels, None


def _check_jpegs(data: bytes, page: tifffile.TiffPage) -> None:
    """Refuses strips and tiles that are images, except whole JPEGs that fit the page."""
    from tifffile import COMPRESSION

    samples = page.samplesperpixel if len(page.chunks) > 2 else 1
    columns = page.tilewidth if page.is_tiled else page.imagewidth
    widths = (columns, page.imagewidth % columns)
    places = zip(page.dataoffsets, page.databytecounts, strict=False)
    for part in (data[at : at + size] for at, size in places if size):
        if format_of(part)[0] != "jpeg":
            kind = getattr(COMPRESSION(page.compression), "name", page.compression)
            raise ImageError(f"a TIFF with tiles in {kind}, or damaged ones, is not supported")
        bits, _, width, channels = jpeg_frame(part)
        if (bits, channels) != (page.bitspersample, samples) or width not in widths:
            raise ImageError("a damaged TIFF: a tile does not fit the page")
        if part.rfind(b"\xff\xd9", -_JPEG_TAIL_BYTES) < 0:  # truncation check
            raise ImageError("a damaged TIFF: a tile ends too early")


# Decoders with an output of a given size, by number, since names differ in versions of tifffile:
# none, CCITT, LZW, Deflate, PackBits, LZMA, Zstandard, Pixtiff.
_SIZED_COMPRESSIONS = frozenset({1, 2, 3, 4, 5, 8, 32946, 32773, 34925, 34926, 50000, 50013})
_PADDED_COMPRESSIONS = (8, 32946, 32773, 50000)  # deflate, an older number of it, PackBits, zstd
_JPEG_TAIL_BYTES = 64  # some writers align tiles


def _accept_padding(page: tifffile.TiffPage) -> None:
    """Makes strips and tiles with surplus bytes decode, as in libtiff."""
    from tifffile import TIFF

    decode = page.decode
    unpack, pack = TIFF.DECOMPRESSORS[page.compression], TIFF.COMPRESSORS[page.compression]

    def decode_padded(data: bytes | None, index: int, /, **options: Any) -> Any:
        try:
            return decode(data, index, **options)
        except Exception:
            depth, rows, columns, samples = decode(None, index)[2]
            size = depth * rows * -(-columns * samples * page.bitspersample // 8)
            return decode(pack(unpack(data)[:size]), index, **options)

    page.decode = decode_padded


def _check_samples(page: tifffile.TiffPage) -> None:
    """Refuses pages whose samples tifffile and L3 interpret differently."""
    from tifffile import COMPRESSION, EXTRASAMPLE, PHOTOMETRIC, PLANARCONFIG, SAMPLEFORMAT

    if EXTRASAMPLE.ASSOCALPHA in page.extrasamples:
        raise ImageError("premultiplied alpha is not supported")
    if page.predictor != 1 and page.compression in (COMPRESSION.NONE, COMPRESSION.PACKBITS):
        raise ImageError("a TIFF with a predictor, but without a compression that supports it")
    if page.predictor == 2 and page.bitspersample not in (8, 16, 32, 64):
        raise ImageError(f"a TIFF with a predictor of {page.bitspersample} bits is not supported")
    if "PhotometricInterpretation" not in page.tags:
        raise ImageError("a damaged TIFF: no photometric interpretation")
    jpegs = (COMPRESSION.JPEG, COMPRESSION.OJPEG, COMPRESSION.ALT_JPEG, COMPRESSION.JPEG_LOSSY)
    samples, extra = page.samplesperpixel, len(page.extrasamples)
    is_read = {
        PHOTOMETRIC.MINISBLACK: True,
        PHOTOMETRIC.MINISWHITE: samples == 1 + extra,
        PHOTOMETRIC.RGB: samples >= 3,
        PHOTOMETRIC.PALETTE: samples == 1
        and page.colormap is not None
        and page.colormap.shape == (3, 2**page.bitspersample)
        and page.sampleformat == SAMPLEFORMAT.UINT,
        # tifffile converts these to RGB only in JPEG.
        PHOTOMETRIC.YCBCR: (samples, extra, page.planarconfig) == (3, 0, PLANARCONFIG.CONTIG)
        and page.compression in jpegs,
    }
    photometric = PHOTOMETRIC(page.photometric)
    is_color = photometric in (PHOTOMETRIC.RGB, PHOTOMETRIC.YCBCR) and not extra
    if page.compression in jpegs and len(page.chunks) > 2 and samples == 3 and not is_color:
        raise ImageError(
            "JPEG of three samples that are not RGB is not supported: decoders assume YCbCr"
        )
    if not is_read.get(photometric):
        kind = COMPRESSION(page.compression).name
        raise ImageError(
            f"{photometric.name} images of {samples} samples in {kind} are not supported"
        )


def _colors(colormap: Image) -> Image:
    """The palette's colours as rows R, G, B: in 8 bits if these suffice, else in 16."""
    colors: Image = colormap.T
    if colors.max() <= 255:  # Some writers store 8-bit numbers here, which libtiff accepts.
        return colors.astype(np.uint8)
    high, low = colors >> 8, colors & 255
    return high.astype(np.uint8) if not low.any() or np.array_equal(low, high) else colors


def _write(picture: Picture) -> bytes:
    import tifffile

    floats = picture.floats
    pixels = picture.pixels if floats is None else floats
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    if volume := volume_of(picture.metadata, *pixels.shape[:2]):
        pixels = slices_of(pixels, volume)  # a page each
    tags = tiff_of_metadata(picture.metadata)
    if picture.xmp:
        tags[_XMP] = TiffTag("BYTE", picture.xmp)
    is_color = channels == 3 or (channels == 4 and picture.has_alpha)
    extra = extra_samples(picture.metadata)
    if extra is not None and len(extra) in (channels - 1, channels - 3):
        is_color = len(extra) == channels - 3
    elif channels in (2, 4) and picture.has_alpha and pixels.dtype.kind != "f":
        extra = [2]
    else:
        extra = [0] * (channels - (3 if is_color else 1))
    across, down, unit = (tags.pop(code, None) for code in _NO_RESOLUTION)
    file = io.BytesIO()
    tifffile.imwrite(
        file,
        pixels,
        photometric="rgb" if is_color else "minisblack",
        planarconfig=None if channels == 1 else "contig",
        extrasamples=["unassalpha" if kind else "unspecified" for kind in extra] or None,
        compression="zlib",
        predictor=True,
        resolution=(_fraction(across), _fraction(down)) if across or down else None,
        resolutionunit=unit.data[0] if unit else None,  # Else it is an inch.
        iccprofile=picture.icc,
        metadata=None,
        byteorder="<",
        extratags=[
            *plain_exif_tags(picture.exif),
            *((code, *_extratag(tag), True) for code, tag in tags.items()),
        ],
    )
    return file.getvalue()


def _fraction(tag: TiffTag | None) -> tuple[int, int]:
    """A resolution for tifffile; 1/1 without one."""
    if tag is None or tag.type != "RATIONAL":
        return 1, 1
    numerator, denominator = struct.unpack("<2I", tag.data[:8])
    return numerator, denominator or 1


def _extratag(tag: TiffTag) -> tuple[int, int, Any]:
    """Type, count and values for tifffile."""
    number, letter = TIFF_TYPES[tag.type]
    count = len(tag.data) // tiff_item_bytes(tag.type)
    if not tag.type.endswith("RATIONAL"):  # For these it would split the bytes in halves.
        return number, count, tag.data
    return number, count, struct.unpack(f"<{2 * count}{letter}", tag.data)


_WRITER = Writer(_write, range(1, MAX_CHANNELS + 1), SAMPLE_TYPES)
FORMAT = ImageFormat(_read_header, _read, {".tif": _WRITER, ".tiff": _WRITER})
