"""Other image formats, read by their libraries without loss.

The libraries are imported where they are used, so that `import l3dali` needs none of them.
"""

from __future__ import annotations

import io
import logging
import math
import operator
import re
import struct
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import numpy as np

from l3dali.arguments import SAMPLE_SCALARS, strip_exif_prefix, unsupported_samples
from l3dali.codec import DEFAULT_MAX_PIXELS
from l3dali.errors import ENDS_TOO_EARLY, unreadable
from l3dali.images.dicom import read_dicom
from l3dali.images.geometry import (
    looks_like_labels,
    shrink,
    upright,
    upright_xmp,
)
from l3dali.images.headers import (
    MAX_METADATA_BYTES,
    ImageError,
    boxes,
    check_end_of_jpeg,
    jpeg2000_start,
    jpeg_frame,
    open_tiff,
    read_header,
    read_jpegxl_header,
)
from l3dali.images.npy import read_npy
from l3dali.images.picture import NO_RESOLUTION, PNG_XMP, TIFF_XMP, Palette, Picture
from l3dali.images.tiff_directories import damaged_tags, descriptive_exif, entries_at
from l3dali.metadata import (
    EXTRA_SAMPLES,
    KEPT_PNG_CHUNKS,
    KEPT_TIFF_TAGS,
    PNG_RESOLUTION,
    PNG_TEXTS,
    TIFF_TYPES,
    TiffTag,
    dump_metadata,
    extra_samples,
    metadata_of_png,
    metadata_of_tiff,
    tiff_of_metadata,
    without_geometry,
)
from l3dali.signatures import (
    IMAGE_SUFFIXES,
    PNG_SIGNATURE,
    READ_SUFFIXES,
    format_of,
    unread_images,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from typing import Any

    import PIL.Image
    import tifffile

    from l3dali.arguments import Layout
    from l3dali.codec import Image
    from l3dali.images.headers import Format, Header
    from l3dali.images.tiff_directories import Entries

__all__ = ["IMAGE_SUFFIXES", "READ_SUFFIXES", "read_picture", "unread_images"]

for _library in ("imagecodecs", "pydicom"):  # else they log to stderr
    logging.getLogger(_library).addHandler(logging.NullHandler())


def read_picture(
    data: bytes,
    *,
    palette: Palette = "rgb",
    labels: bool = False,
    orient: bool = False,
    max_side: int | None = None,
    max_pixels: int = DEFAULT_MAX_PIXELS,
    keep_text: bool = False,
    refuse_labels: bool = False,
    layout: Layout | None = None,
    dicom_tags: Collection[str] = (),
    header: Header | None = None,
) -> Picture:
    """Reads an image file of any known format, which is detected from the bytes.

    Gray of 1, 2 or 4 bits is scaled to 0 ... 255, except for labels; other samples are kept.
    Other options than these are those of `transcode`; it raises as `transcode`.

    * `keep_text`: keep text and resolution of a PNG, in `metadata`.
    * `refuse_labels`: refuse to shrink an image that looks like a label map but is not marked so.
    * `header`: the result of `read_header`, if it is known.
    """
    if palette not in get_args(Palette):
        raise ValueError(f"palette must be one of {', '.join(get_args(Palette))}, not {palette!r}")
    if max_side is not None:
        try:
            max_side = operator.index(max_side)
        except TypeError:
            raise TypeError(f"max_side must be an integer, not {max_side!r}") from None
        if max_side < 1:
            raise ValueError(f"max_side must be at least 1, not {max_side}")
    header = header or read_header(data)
    header.check_pixels(max_pixels)
    try:
        palette = "index" if labels else palette
        if header.format == "npy":
            picture = read_npy(data, layout)
        elif header.format == "dicom":
            picture = read_dicom(data, palette, dicom_tags)
        else:
            picture = _READERS[header.format](data, palette)
        if keep_text and header.format == "png":
            picture = replace(picture, metadata=metadata_of_png(_png_texts(data)))
        _check_metadata(picture)
        if orient:
            pixels, exif = upright(picture.pixels, picture.exif)
            if pixels is not picture.pixels:
                picture = replace(
                    picture,
                    xmp=upright_xmp(picture.xmp),
                    metadata=without_geometry(picture.metadata),
                )
            picture = replace(picture, pixels=pixels, exif=exif)
    except ImageError:
        raise
    except Exception as error:  # Libraries raise anything on damaged data.
        raise unreadable(error) from error
    pixels = picture.pixels
    if pixels.dtype.type not in SAMPLE_SCALARS:
        raise ImageError(unsupported_samples(pixels.dtype))
    if pixels.ndim not in (2, 3) or pixels.size == 0:
        raise ImageError(f"cannot be read: an array of shape {pixels.shape}")
    if pixels.shape[2:] == (1,):
        pixels = pixels[:, :, 0]
    if max_side is not None:
        size = pixels.shape[:2]
        # A blend of a value for no data would count as data.
        has_no_data = _TIFF_NO_DATA in tiff_of_metadata(picture.metadata)
        is_nearest = labels or picture.has_numbers or has_no_data
        may_be_labels = refuse_labels and not is_nearest and (pixels.ndim == 2 or picture.expanded)
        if may_be_labels and max(size) > max_side and looks_like_labels(pixels):
            raise ImageError(
                "looks like a label map, whose class numbers --max-side would blend; use --labels "
                "to keep them, --no-labels if it is a picture"
            )
        pixels = shrink(pixels, max_side, labels=is_nearest, has_alpha=picture.has_alpha)
        if pixels.shape[:2] != size:
            picture = replace(picture, metadata=without_geometry(picture.metadata))
    pixels = np.ascontiguousarray(pixels)
    return picture if pixels is picture.pixels else replace(picture, pixels=pixels)


def _check_metadata(picture: Picture) -> None:
    blocks = {"ICC profile": picture.icc, "EXIF block": picture.exif, "XMP packet": picture.xmp}
    for name, block in blocks.items():
        if block is not None and len(block) > MAX_METADATA_BYTES:
            raise ImageError(f"the {name} has more than {MAX_METADATA_BYTES >> 20} MiB")
    if picture.metadata is not None:
        try:
            dump_metadata(picture.metadata)
        except ValueError as error:
            raise ImageError(str(error)) from None


def _read_png(data: bytes, palette: Palette) -> Picture:
    from PIL import PngImagePlugin

    chunks = _png_chunks(data)
    if b"acTL" in chunks:
        parts = list(_png_parts(data))
        if sum(kind == b"fcTL" for kind, *_ in parts) > 1:
            raise ImageError("an animation; L3 holds single images")
        still = [data[at:end] for kind, at, end in parts if kind not in (b"acTL", b"fcTL")]
        data = PNG_SIGNATURE + b"".join(still)
    is_palette = chunks[b"IHDR"][9] == 3
    picture = Picture(
        _png_pixels(data),
        icc=_inflated(chunks.get(b"iCCP", b"").partition(b"\0")[2][1:]),
        exif=strip_exif_prefix(chunks.get(b"eXIf")),
        xmp=_png_xmp(chunks.get(PNG_XMP)),
        expanded=is_palette and palette == "rgb",
    )
    if not is_palette:
        return _of_few_bits(picture, chunks[b"IHDR"][8], palette)
    if palette == "rgb":
        return picture
    # Pillow fails for other chunks that libpng ignores.
    needed = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
    bare = b"".join(data[at:end] for kind, at, end in _png_parts(data) if kind in needed)
    with PngImagePlugin.PngImageFile(io.BytesIO(PNG_SIGNATURE + bare)) as image:
        numbers = np.array(image)
    return replace(
        picture, pixels=numbers, palette=_rgba(chunks[b"PLTE"], chunks.get(b"tRNS", b""))
    )


_PNG_CHANNELS = {0: (1, 2), 2: (3, 4), 3: (3, 4), 4: (2,), 6: (4,)}  # by colour type


def _png_pixels(data: bytes) -> Image:
    """The pixels by libpng, which detects damage that Pillow ignores, and keeps 16-bit samples.

    imagecodecs leaks its output if libpng fails. So it gets an array, which is emptied then.
    """
    import imagecodecs

    width, height, bits, color_type = struct.unpack_from(">II2B", data, len(PNG_SIGNATURE) + 8)
    for channels in _PNG_CHANNELS.get(color_type, (1,)):  # The last may be a colour's alpha.
        shape = (height, width, channels) if channels > 1 else (height, width)
        out: Image = np.empty(shape, np.uint16 if bits == 16 else np.uint8)
        try:
            imagecodecs.png_decode(data, out=out)
        except ValueError:  # It has another shape.
            continue
        except BaseException:
            out.resize(0, refcheck=False)
            raise
        return out
    raise ImageError("a damaged PNG")


def _png_parts(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yields the type of each chunk of a PNG up to IEND, and where it begins and ends.

    Raises:
        ImageError: the file was cut; libpng ignores chunks behind the pixels.
    """
    at, kind = len(PNG_SIGNATURE), b""
    while at + 12 <= len(data) and kind != b"IEND":
        size, kind = struct.unpack_from(">I4s", data, at)
        yield kind, at, (at := at + 12 + size)
    if kind != b"IEND" or at > len(data):
        raise ImageError(ENDS_TOO_EARLY)


def _of_few_bits(
    picture: Picture, bits: float, palette: Palette, bands: Sequence[int] = (0,)
) -> Picture:
    """A picture that was scaled, if from 1, 2 or 4 bits; for "index" `bands` get their numbers."""
    if bits not in (1, 2, 4):
        return picture
    if palette != "index":
        text = f"{bits}-bit samples were scaled to 0 ... 255; --labels keeps numbers of classes"
        return replace(picture, remarks=(*picture.remarks, text))
    pixels = np.require(picture.pixels, requirements="W")
    for band in bands:  # Alpha stays.
        plane = pixels[:, :, band] if pixels.ndim == 3 else pixels
        plane //= _scaled(np.uint8(1), bits)
    return replace(picture, pixels=pixels, unscaled=True)


def _scaled(pixels: Image, bits: float) -> Image:
    """Samples of 1, 2 or 4 bits scaled to 0 ... 255."""
    return pixels * np.uint8(255 // (2 ** int(bits) - 1)) if bits in (1, 2, 4) else pixels


def _colors_of(pixels: Image) -> range:
    """The bands of an image with up to four channels, without alpha."""
    channels = math.prod(pixels.shape[2:])
    return range(channels - (channels in (2, 4)))


def _with_extra_samples(picture: Picture, kinds: Sequence[int]) -> Picture:
    """Marks the channels after the colours with kinds of `EXTRA_SAMPLES`."""
    if list(kinds) in ([], [_ALPHA]):
        return picture
    tag = TiffTag("SHORT", struct.pack(f"<{len(kinds)}H", *kinds))
    return replace(picture, metadata=metadata_of_tiff({EXTRA_SAMPLES: tag}), has_alpha=False)


def _read_jpeg(data: bytes, palette: Palette) -> Picture:
    from PIL import JpegImagePlugin

    check_end_of_jpeg(data)
    with JpegImagePlugin.JpegImageFile(io.BytesIO(data)) as image:
        return _picture_of(image, palette)


def _read_webp(data: bytes, palette: Palette) -> Picture:
    from PIL import WebPImagePlugin

    with WebPImagePlugin.WebPImageFile(io.BytesIO(data)) as image:
        if image.n_frames > 1:
            raise ImageError("several images in one file; L3 holds single images")
        return _picture_of(image, palette)


def _picture_of(image: PIL.Image.Image, palette: Palette) -> Picture:
    """Pixels and metadata by Pillow."""
    picture = Picture(
        np.array(image),
        icc=image.info.get("icc_profile"),
        exif=strip_exif_prefix(image.info.get("exif")),
        xmp=image.info.get("xmp"),
    )
    if image.mode == "P":
        if palette == "index":
            return replace(picture, palette=bytes(image.getpalette("RGBA") or []))
        return replace(picture, pixels=np.array(image.convert("RGB")), expanded=True)
    if image.mode == "1":
        return _of_few_bits(replace(picture, pixels=np.array(image.convert("L"))), 1, palette)
    if image.mode not in ("L", "LA", "RGB", "RGBA"):
        raise ImageError(f"{image.mode} images are not supported; convert to RGB or gray")
    return picture


def _read_bmp(data: bytes, palette: Palette) -> Picture:
    import PIL
    from PIL import BmpImagePlugin

    at, header_bytes = struct.unpack_from("<2I", data, 10)
    bits, compression = struct.unpack_from("<HI", data, 28) if header_bytes >= 40 else (0, 0)
    if compression in (1, 2) and (int(PIL.__version__.split(".")[0]) < 13 or at % 2):
        # Older versions, and all for pixels at an odd offset, decode other pixels.
        raise ImageError("a BMP in RLE needs Pillow 13, and pixels at an even offset")
    if compression == 3 and bits in (16, 32):
        masks = struct.unpack_from("<4I", data, 54)[: 4 if header_bytes >= 56 else 3]
        if any(masks) and tuple(filter(None, masks)) not in _BMP_USUAL_MASKS:
            return _read_bmp_by_masks(data, bits, masks)
    with BmpImagePlugin.BmpImageFile(io.BytesIO(data)) as image:
        if image.mode not in ("1", "L") or bits in (0, 1 if image.mode == "1" else 8):
            return _picture_of(image, palette)
    # Pillow takes this palette for gray.
    palette_at = 14 + header_bytes
    blue, green, red = data[palette_at : palette_at + 3]
    data = data[:palette_at] + b"\1\2\3" + data[palette_at + 3 :]
    with BmpImagePlugin.BmpImageFile(io.BytesIO(data)) as image:
        image.load()
        image.putpalette([red, green, blue, *(image.getpalette() or [])[3:]])
        return _picture_of(image, palette)


_BMP_USUAL_MASKS = ((0xF800, 0x07E0, 0x001F), (0x7C00, 0x03E0, 0x001F))  # of 16 bits, for Pillow


def _read_bmp_by_masks(data: bytes, bits: int, masks: Sequence[int]) -> Picture:
    (at,) = struct.unpack_from("<I", data, 10)
    width, height = struct.unpack_from("<2i", data, 18)
    columns = -(-width * bits // 32) * 32 // bits  # Rows are padded to 32 bits.
    pixels = np.frombuffer(data, f"<u{bits // 8}", columns * abs(height), at)
    pixels = pixels.reshape(abs(height), columns)[:: -1 if height > 0 else 1, :width]
    if not all(masks[:3]):
        raise ImageError("a BMP needs masks of red, green and blue")
    lowest = [mask & -mask for mask in masks if mask]
    bands = [(pixels & mask) // low for mask, low in zip(masks, lowest, strict=False)]
    tops = [mask // low for mask, low in zip(masks, lowest, strict=False)]
    if max(tops) <= 255:
        scaled = [np.rint(band * (255 / top)) for band, top in zip(bands, tops, strict=True)]
        return Picture(np.stack(scaled, axis=-1).astype(np.uint8))
    if len(set(tops)) > 1:
        raise ImageError("a BMP with masks of different sizes above 8 bits is not supported")
    return Picture(np.stack(bands, axis=-1).astype(np.uint16))


def _read_tiff(data: bytes, palette: Palette) -> Picture:
    from tifffile import PHOTOMETRIC

    with open_tiff(data) as page:
        pixels, entries = _tiff_pixels(data, page, palette)
        tags = entries_at(data, page.parent.tiff, page.offset, _READ_TIFF_TAGS)
        bits = page.bitspersample if page.photometric != PHOTOMETRIC.PALETTE else 8
        is_unscaled = palette == "index" and bits in (1, 2, 4)
        metadata = _tiff_metadata(tags, page, keeps_numbers=entries is not None or is_unscaled)
        picture = Picture(
            pixels,
            icc=tags.get(_TIFF_ICC, (0, 0, None))[2],
            exif=descriptive_exif(data, page),
            palette=entries,
            expanded=entries is None and page.photometric == PHOTOMETRIC.PALETTE,
            xmp=tags.get(TIFF_XMP, (0, 0, None))[2],
            metadata=metadata,
            has_alpha=extra_samples(metadata) is None,
            remarks=tuple(_tiff_remarks(data, page)),
        )
        extra = _extra_samples(page)
        kinds = [0] * (page.samplesperpixel - len(extra)) + extra
        bands = [i for i, kind in enumerate(kinds) if kind != _ALPHA]
        return _of_few_bits(picture, bits, palette, bands)


def _tiff_remarks(data: bytes, page: tifffile.TiffPage) -> Iterator[str]:
    """Remarks on parts of the file that are dropped."""
    if tags := damaged_tags(data, page.parent.tiff, page.offset):
        yield f"damaged metadata was dropped: TIFF tags {', '.join(map(str, tags))}"
    pages = page.parent.pages
    if len(pages) > 1 and any(each.aspage().is_mask for each in pages):
        yield "a transparency mask was dropped"


_ALPHA = 2  # among EXTRA_SAMPLES; not premultiplied
_TIFF_DESCRIPTION = 270
_TIFF_NO_DATA = 42113
_TIFF_ICC = 34675
_READ_TIFF_TAGS = KEPT_TIFF_TAGS | {_TIFF_ICC, TIFF_XMP}
_TIFF_TYPE_NAMES = {number: name for name, (number, _) in TIFF_TYPES.items()}


# tifffile's default description.
_TIFFFILE_SHAPE = re.compile(r'shape=\([\d, ]+\)|\{"shape": \[[\d, ]*\](, "truncated": true)?\}')


def _tiff_metadata(
    entries: Entries, page: tifffile.TiffPage, *, keeps_numbers: bool
) -> dict[str, Any] | None:
    """The kept tags of a page; `keeps_numbers`: the pixels are palette entries or few bits."""
    from tifffile import PHOTOMETRIC

    tags = {}
    for code in KEPT_TIFF_TAGS & entries.keys():
        number, _, values = entries[code]
        if name := _TIFF_TYPE_NAMES.get(number):
            if page.parent.byteorder == ">":
                item_bytes = struct.calcsize(TIFF_TYPES[name][1])
                items = np.frombuffer(values, np.uint8).reshape(-1, item_bytes)
                values = items[:, ::-1].tobytes()
            tags[code] = TiffTag(name, values)
    if sum(len(tag.data) for tag in tags.values()) > MAX_METADATA_BYTES:
        raise ImageError(f"the TIFF tags have more than {MAX_METADATA_BYTES >> 20} MiB")
    if all(tags.get(code) in (None, tag) for code, tag in NO_RESOLUTION.items()):
        tags = {code: tag for code, tag in tags.items() if code not in NO_RESOLUTION}
    extra = _extra_samples(page)
    is_usual = page.samplesperpixel > 4 and extra == [0] * (page.samplesperpixel - 1)
    if extra not in ([], [_ALPHA]) and not is_usual:
        tags[EXTRA_SAMPLES] = TiffTag("SHORT", struct.pack(f"<{len(extra)}H", *extra))
    if _TIFFFILE_SHAPE.fullmatch(page.description):
        tags.pop(_TIFF_DESCRIPTION, None)
    is_plain = page.photometric in (PHOTOMETRIC.MINISBLACK, PHOTOMETRIC.RGB)
    is_inverted = page.photometric == PHOTOMETRIC.MINISWHITE
    is_kept = keeps_numbers or (is_plain and page.bitspersample not in (1, 2, 4))
    if is_inverted or not is_kept:
        tags.pop(_TIFF_NO_DATA, None)  # The sample has another value now.
    return metadata_of_tiff(tags)


def _extra_samples(page: tifffile.TiffPage) -> list[int]:
    """The kind of each sample after the colours, 0 or `_ALPHA`; the tag may be short."""
    from tifffile import PHOTOMETRIC

    colors = 3 if page.photometric in (PHOTOMETRIC.RGB, PHOTOMETRIC.YCBCR) else 1
    count = page.samplesperpixel - colors
    kinds = [_ALPHA if kind == _ALPHA else 0 for kind in page.extrasamples]
    return (kinds + [0] * count)[:count]


def _value_of_missing(page: tifffile.TiffPage) -> int:
    """The value of strips and tiles that GDAL did not store; tifffile misreads some."""
    try:
        value = float(page.tags.valueof(_TIFF_NO_DATA, "0"))
        limits = np.iinfo(page.dtype)
        if limits.min <= value <= limits.max and value.is_integer():
            return int(value)
    except (TypeError, ValueError):
        pass
    raise ImageError("a TIFF with missing strips or tiles, whose GDAL_NODATA is not a sample")


def _tiff_pixels(
    data: bytes, page: tifffile.TiffPage, palette: Palette
) -> tuple[Image, bytes | None]:
    from tifffile import PHOTOMETRIC

    _check_tiff_samples(page)
    if page.compression not in _SIZED_COMPRESSIONS:
        _check_tiff_jpegs(data, page)
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
        page.photometric, photometric = PHOTOMETRIC.MINISBLACK, page.photometric
        pixels = np.moveaxis(page.asarray(), 0, -1)
        page.photometric = photometric
    else:
        pixels = page.asarray()
    if page.photometric == PHOTOMETRIC.PALETTE and page.colormap is not None:
        colors = _tiff_colors(page.colormap)
        pixels = pixels.astype(np.uint8) if pixels.dtype == bool else pixels
        if palette == "rgb":
            return colors[pixels], None
        if colors.dtype != np.uint8:
            raise ImageError("a palette of 16-bit colours cannot be kept; use palette rgb")
        if len(colors) > 256:
            raise ImageError(f"a palette of {len(colors)} colours; at most 256 can be kept")
        return pixels, _rgba(colors.tobytes(), b"")
    if pixels.dtype.kind == "i" and page.bitspersample not in (8, 16):
        raise ImageError(f"signed samples of {page.bitspersample} bits are not supported")
    most = 2**page.bitspersample - 1
    if page.bitspersample in (1, 2, 4):
        pixels, most = _scaled(pixels.astype(np.uint8), page.bitspersample), 255
    if page.photometric == PHOTOMETRIC.MINISWHITE:
        if pixels.dtype.kind != "u":
            raise ImageError("signed samples and floats in a white-is-zero TIFF are not supported")
        pixels = np.require(pixels, requirements="W")
        gray = pixels[..., :1] if page.samplesperpixel > 1 else pixels
        np.subtract(most, gray, out=gray)
    return pixels, None


def _check_tiff_jpegs(data: bytes, page: tifffile.TiffPage) -> None:
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


_PADDED_COMPRESSIONS = (8, 32946, 32773, 50000)  # deflate, an older number of it, PackBits, zstd


def _check_tiff_samples(page: tifffile.TiffPage) -> None:
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


def _tiff_colors(colormap: Image) -> Image:
    """The palette's colours as rows R, G, B: in 8 bits if these suffice, else in 16."""
    colors: Image = colormap.T
    if colors.max() <= 255:  # Some writers store 8-bit numbers here, which libtiff accepts.
        return colors.astype(np.uint8)
    high, low = colors >> 8, colors & 255
    return high.astype(np.uint8) if not low.any() or np.array_equal(low, high) else colors


_PAM_TYPES = {"", "BLACKANDWHITE", "GRAYSCALE", "RGB"}
_PAM_TYPES |= {f"{name}_ALPHA" for name in _PAM_TYPES if name}


def _read_netpbm(data: bytes, palette: Palette) -> Picture:
    import netpbmfile

    if data.startswith(b"P1"):  # netpbmfile misses comments before and between the digits.
        data = re.sub(rb"#[^\r\n]*", b"", data)
    with netpbmfile.NetpbmFile(io.BytesIO(data)) as file:
        if file.magicnumber == "P7" and file.tupltype not in _PAM_TYPES:
            raise ImageError(f"PAM of tuple type {file.tupltype} is not supported")
        pixels = np.asarray(file.asarray())
        shape = (file.height, file.width, *((file.depth,) if file.depth > 1 else ()))
        if pixels.shape != shape:
            bits = 1 if file.magicnumber == "P4" else 8 * pixels.itemsize
            row_bits = file.width * file.depth * bits
            rest = data[file.dataoffset + file.height * -(-row_bits // 8) :]
            if pixels.shape[1:] != shape or rest.strip():
                raise ImageError("several images in one file; L3 holds single images")
            pixels = pixels[0]  # Line feeds that follow are no image.
        if pixels.dtype == bool:  # In PBM 1 is black.
            pixels = np.where(pixels, np.uint8(0), np.uint8(255))
            return _of_few_bits(Picture(pixels), 1, palette)
        picture = Picture(pixels.astype(pixels.dtype.newbyteorder("=")))
        has_bands = file.depth in (2, 4) and not file.tupltype.endswith("_ALPHA")
        return _with_extra_samples(picture, [0] if has_bands else [])


def _read_jpegxl(data: bytes, palette: Palette) -> Picture:
    import imagecodecs

    bits = read_jpegxl_header(data).bits
    pixels = _scaled(imagecodecs.jpegxl_decode(data), bits)
    return _of_few_bits(Picture(pixels), bits, palette, _colors_of(pixels))


def _read_jpeg2000(data: bytes, palette: Palette) -> Picture:
    import imagecodecs
    from PIL import Jpeg2KImagePlugin

    start = jpeg2000_start(data)
    if data.rfind(b"\xff\xd9") < data.rfind(b"\xff\x90"):  # the end, and the start of a tile
        raise ImageError(ENDS_TOO_EARLY)  # Truncation check: OpenJPEG invents the rest.
    found: dict[bytes, tuple[int, int]] = {}
    for kind, at, end in boxes(data[:start], (b"jp2h", b"jplh", b"cgrp")):
        found.setdefault(kind, (at, end))  # Decoders ignore further ones.
    icc = None
    is_gray = False
    if b"colr" in found:
        at, end = found[b"colr"]
        method, space = data[at], data[at + 3 : at + 7]
        if method in (2, 3):
            # With a profile the decoder would convert samples to sRGB: it gets a number instead.
            icc, space = data[at + 3 : end], _JPEG2000_SPACES.get(data[at + 19 : at + 23], b"")
            data = data[:at] + b"\1\0\0" + space + data[at + 7 :]
        if method not in (1, 2, 3) or space not in _JPEG2000_COLORS:
            raise ImageError("JPEG 2000 in colours other than gray, RGB or YCbCr is not supported")
        is_gray = space == _JPEG2000_SPACES[b"GRAY"]
    # By channel: 0 colours, 1 alpha, 2 premultiplied (ISO 15444-1, I.5.3.6).
    uses = data[slice(*found.get(b"cdef", (0, 0)))][2:]
    use_of = {channel: use for channel, use, _ in struct.iter_unpack(">3H", uses)}
    if 2 in use_of.values():
        raise ImageError("premultiplied alpha is not supported")
    if b"pclr" in found and palette == "index":
        raise ImageError("the palette of a JPEG 2000 cannot be kept; use palette rgb")
    (count,) = struct.unpack_from(">H", data, start + 40)
    depths = list(data[start + 42 : start + 42 + 3 * count : 3])  # less 1; 128 and more are signed
    if depths in ([7, 0], [7, 7, 7, 0]):  # imagecodecs decodes no alpha of one bit
        with Jpeg2KImagePlugin.Jpeg2KImageFile(io.BytesIO(data)) as image:
            pixels = np.array(image)
        pixels[..., -1] = np.where(pixels[..., -1] > 0, 255, 0)
    elif len(set(depths)) > 1:
        raise ImageError("JPEG 2000 with components of different bits is not supported")
    else:
        pixels = imagecodecs.jpeg2k_decode(data)
    picture = Picture(pixels, icc=icc, expanded=b"pclr" in found)
    if not picture.expanded:
        bits = depths[0] + 1
        picture = replace(picture, pixels=_scaled(pixels, bits))
        picture = _of_few_bits(picture, bits, palette, _colors_of(pixels))
    channels = math.prod(pixels.shape[2:])
    if channels in (2, 4):
        colors = 1 if is_gray else channels - 1
        if sorted(use_of.values()) != [0] * colors + [1]:
            # OpenJPEG puts the colours before alpha.
            kinds = [_ALPHA * (use_of.get(channel) == 1) for channel in range(colors, channels)]
            picture = _with_extra_samples(picture, kinds)
    return picture


# Boxes name colours by a number: 16 RGB, 17 gray, 18 YCbCr, which is decoded to RGB, 0 none (of
# OpenJPEG); or by a profile with a name.
_JPEG2000_COLORS = tuple(bytes([0, 0, 0, number]) for number in (0, 16, 17, 18))
_JPEG2000_SPACES = {b"RGB ": _JPEG2000_COLORS[1], b"GRAY": _JPEG2000_COLORS[2]}


_READERS: dict[Format, Callable[[bytes, Palette], Picture]] = {
    "png": _read_png,
    "jpeg": _read_jpeg,
    "webp": _read_webp,
    "bmp": _read_bmp,
    "tiff": _read_tiff,
    "netpbm": _read_netpbm,
    "jpegxl": _read_jpegxl,
    "jpeg2000": _read_jpeg2000,
}


# libpng ignores these where they come late.
_PNG_BEFORE_PIXELS = frozenset({b"PLTE", b"tRNS", b"iCCP", b"acTL", PNG_RESOLUTION})
_PNG_KEPT = frozenset({b"IHDR", b"eXIf", *PNG_TEXTS, *_PNG_BEFORE_PIXELS})


def _png_chunks(data: bytes) -> dict[bytes, bytes]:
    """The used chunks of a PNG by type, as libpng reads them; XMP is under its keyword.

    The first of a type counts; those behind IEND or with a wrong CRC do not.
    """
    chunks: dict[bytes, bytes] = {}
    for kind, body in _sound_png_chunks(data):
        if kind == b"tRNS" and len(body) > len(chunks.get(b"PLTE", b"")) // 3:
            continue  # without a palette
        if kind not in PNG_TEXTS:
            chunks.setdefault(kind, body)
        elif body.startswith(PNG_XMP):
            chunks.setdefault(PNG_XMP, kind + body[len(PNG_XMP) :])
    return chunks


def _png_texts(data: bytes) -> list[tuple[bytes, bytes]]:
    """The chunks of text except XMP, and the first of resolution."""
    found = [each for each in _sound_png_chunks(data) if each[0] in KEPT_PNG_CHUNKS]
    first = next((part for part in found if part[0] == PNG_RESOLUTION), None)
    return [
        (kind, body)
        for kind, body in found
        if (kind, body) == first or not (kind == PNG_RESOLUTION or body.startswith(PNG_XMP))
    ]


def _sound_png_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Type and data of each chunk that libpng reads."""
    pixels_begun = False
    for kind, at, end in _png_parts(data):
        pixels_begun |= kind == b"IDAT"
        if kind in _PNG_KEPT and not (pixels_begun and kind in _PNG_BEFORE_PIXELS):
            body, crc = data[at + 8 : end - 4], data[end - 4 : end]
            if int.from_bytes(crc, "big") == zlib.crc32(kind + body):
                yield kind, body


def _png_xmp(text: bytes | None) -> bytes | None:
    """The packet in a text chunk, given as type and data after the keyword; None if damaged."""
    if text is None or text.startswith(b"tEXt"):
        return text and text[4:]
    if text.startswith(b"zTXt"):  # as libvips writes it
        return _inflated(text[5:])
    parts = text[6:].split(b"\0", 2)  # The packet is behind a language, and the keyword in it.
    if len(parts) < 3 or text[4:6] > b"\1\0":
        return None
    return _inflated(parts[2]) if text[4:5] == b"\1" else parts[2]


def _inflated(data: bytes) -> bytes | None:
    """Inflates data to at most a byte more than allowed; None if it is damaged."""
    inflater = zlib.decompressobj()
    try:
        result = inflater.decompress(data, MAX_METADATA_BYTES + 1)
    except zlib.error:
        return None
    return result if inflater.eof or len(result) > MAX_METADATA_BYTES else None


def _rgba(colors: bytes, alpha: bytes) -> bytes:
    """Palette entries from R, G, B triples and the alphas of the first of them."""
    entries = np.full((len(colors) // 3, 4), 255, np.uint8)
    entries[:, :3] = np.frombuffer(colors, np.uint8).reshape(-1, 3)
    entries[: len(alpha), 3] = np.frombuffer(alpha, np.uint8)
    return entries.tobytes()
