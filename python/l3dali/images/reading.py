"""Other image formats, read by their libraries without loss.

Knows nothing of L3's bytes. The libraries are imported where they are used, so
that `import l3dali` needs none of them.
"""

from __future__ import annotations

import io
import logging
import math
import operator
import os
import re
import struct
import threading
import zlib
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import numpy as np

from l3dali.codec import (
    DEFAULT_MAX_PIXELS,
    MAX_PIXELS,
    SAMPLE_SCALARS,
    strip_exif_prefix,
    unsupported_samples,
)
from l3dali.images.geometry import (
    looks_like_labels,
    shrink,
    upright,
    upright_xmp,
)
from l3dali.images.headers import (
    MAX_METADATA_BYTES,
    MOST_PARTS,
    MOST_SMALL_PARTS,
    ImageError,
    behind_padding,
    check_end_of_jpeg,
    check_jpeg2000,
    jpeg2000_extra_samples,
    jpeg2000_icc,
    jpeg2000_palette,
    jpeg2000_start,
    jpeg_icc,
    open_netpbm,
    open_tiff,
    read_header,
    read_jpegxl_header,
    unreadable,
    up_to,
)
from l3dali.images.picture import NO_RESOLUTION, PNG_XMP, TIFF_XMP, Palette, Picture
from l3dali.images.tiff_exif import descriptive_exif
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
    tiff_item_bytes,
    tiff_of_metadata,
    without_geometry,
)
from l3dali.signatures import PNG_SIGNATURE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from typing import Any

    import PIL.Image
    import tifffile

    from l3dali.codec import Image
    from l3dali.images.headers import Format, Header

__all__ = ["IMAGE_SUFFIXES", "READ_SUFFIXES", "read_picture", "unread_images"]

READ_SUFFIXES = frozenset(
    {".png", ".tif", ".tiff", ".jpg", ".jpeg", ".webp", ".bmp", ".jxl", ".jp2", ".j2k"}
    | {".pbm", ".pgm", ".ppm", ".pnm", ".pam"}
)
IMAGE_SUFFIXES = READ_SUFFIXES | {".avif", ".exr", ".gif", ".heic", ".heif", ".ico", ".tga"}

_MOST_SHRUNK_SIDE = 2**20  # of which Pillow takes 48 bytes and more for each pixel
_UNREAD_SUFFIXES = IMAGE_SUFFIXES - READ_SUFFIXES
# Of archives and records that nothing here reads.
_HOLDERS = {".7z", ".rar", ".h5", ".hdf5", ".mdb", ".rec", ".beton", ".pq", ".feather"}


def unread_images(others: Mapping[str, int], what: str) -> list[str]:
    """Says which of the other files, by suffix, are images not read, or may hold some."""
    several = (
        (_UNREAD_SUFFIXES, f"images among the files {what}", "make PNG of them first"),
        (_HOLDERS, f"what may hold images, among the files {what}", "make files or shards of it"),
    )
    lines = []
    for suffixes, found, advice in several:
        counts = [f"{others[suffix]} {suffix}" for suffix in sorted(suffixes & others.keys())]
        if counts:
            lines.append(f"{found}: {', '.join(counts)}; {advice}")
    return lines


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
    header: Header | None = None,
) -> Picture:
    """Reads an image file of any known format; its content says which.

    Gray of 1, 2 or 4 bits is scaled to 0 ... 255, but for labels; other numbers stay as they are.

    Args:
        data: the bytes of the file.
        palette: whether palette images become colours or keep the numbers of their entries, and
            gray of 1, 2 or 4 bits its own with them.
        labels: samples are numbers of classes: as with palette="index", and `max_side` blends
            nothing.
        orient: turn the image as its EXIF orientation asks, and clear that.
        max_side: make larger images smaller, to that many pixels on the longer side. Colours are
            antialiased; labels, palette entries, and all samples beside a value for no data are
            taken from the nearest pixel.
        max_pixels: refuse images of more, before anything is decoded.
        keep_text: keep text and resolution of a PNG, in `metadata`.
        refuse_labels: refuse to make an image smaller that looks like a label map, gray or of a
            palette, where nothing says that it is one.
        header: what `read_header` has given for the file; None reads it here.

    Raises:
        ImageError: the file is damaged, too large, holds several images, or cannot be kept exactly.
        TypeError: `max_side` is no integer.
        ValueError: an option is not supported.
    """
    if palette not in get_args(Palette):
        raise ValueError(f"palette is one of {', '.join(get_args(Palette))}, not {palette!r}")
    if max_side is not None:
        try:
            max_side = operator.index(max_side)
        except TypeError:
            raise TypeError(f"max_side is an integer, not {max_side!r}") from None
        if max_side < 1:
            raise ValueError(f"max_side is at least 1, not {max_side}")
    header = header or read_header(data)
    header.check_pixels(max_pixels)
    longer = max(header.width, header.height)
    if max_side is not None and longer > max(max_side, _MOST_SHRUNK_SIDE):
        raise ImageError(
            f"a side of {longer} pixels: max_side, in the command --max-side, makes images smaller "
            f"of up to {_MOST_SHRUNK_SIDE}"
        )
    try:
        with _remarks.kept() as remarks:
            picture = _READERS[header.format](data, "index" if labels else palette)
        if remarks:
            picture = replace(picture, remarks=tuple(dict.fromkeys(remarks)))
        if keep_text and header.format == "png":
            picture = replace(picture, metadata=metadata_of_png(_png_texts(data, picture)))
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
        # What is blended with a value for no data counts as data.
        has_no_data = _TIFF_NO_DATA in tiff_of_metadata(picture.metadata)
        is_nearest = labels or picture.has_numbers or has_no_data
        may_be_labels = refuse_labels and not is_nearest and (pixels.ndim == 2 or picture.expanded)
        if may_be_labels and max(size) > max_side and looks_like_labels(pixels):
            raise ImageError(
                "looks like a label map, whose numbers of classes --max-side would blend; --labels "
                "keeps them, --no-labels says that it is a picture"
            )
        pixels = shrink(pixels, max_side, labels=is_nearest, has_alpha=picture.has_alpha)
        if pixels.shape[:2] != size:
            picture = replace(picture, metadata=without_geometry(picture.metadata))
    pixels = np.ascontiguousarray(pixels)
    return picture if pixels is picture.pixels else replace(picture, pixels=pixels)


class _Remarks(logging.Filter):
    """Keeps what imagecodecs would log, for whoever knows the file's name."""

    def __init__(self) -> None:
        super().__init__()
        self._of_thread = threading.local()

    @contextmanager
    def kept(self) -> Iterator[list[str]]:
        logging.getLogger("imagecodecs").addFilter(self)
        remarks: list[str] = []
        self._of_thread.remarks = remarks
        try:
            yield remarks
        finally:
            del self._of_thread.remarks

    def filter(self, record: logging.LogRecord) -> bool:
        remarks: list[str] | None = getattr(self._of_thread, "remarks", None)
        is_noise = _SAID_OF_SOUND_FILES in record.getMessage()
        if remarks is not None and not is_noise:
            remarks.append(record.getMessage())
        return remarks is None


_SAID_OF_SOUND_FILES = "Interlace handling should be turned on"  # libpng, to imagecodecs
_remarks = _Remarks()


def _check_metadata(picture: Picture) -> None:
    blocks = {"ICC profile": picture.icc, "EXIF block": picture.exif, "XMP packet": picture.xmp}
    for name, block in blocks.items():
        if block is not None and len(block) > MAX_METADATA_BYTES:
            raise ImageError(f"an {name} of more than {MAX_METADATA_BYTES >> 20} MiB")
    if picture.metadata is not None:
        try:
            dump_metadata(picture.metadata)
        except ValueError as error:
            raise ImageError(str(error)) from None


def _read_png(data: bytes, palette: Palette) -> Picture:
    chunks = _png_chunks(data)
    data = png_without_texts(data)
    pixels = _png_pixels(data)
    if b"acTL" in chunks:
        raise ImageError("an animation; L3 holds single images")
    is_palette = chunks[b"IHDR"][9] == 3
    app1 = _png_block(chunks, _RAW_APP1) or b""
    picture = Picture(
        pixels,
        icc=_png_icc(chunks.get(b"iCCP")),
        exif=strip_exif_prefix(
            chunks.get(b"eXIf")
            or _png_block(chunks, _RAW_EXIF)
            or (app1 if app1.startswith(b"Exif\0\0") else None)
        ),
        xmp=_png_xmp(chunks.get(b"iTXt"))
        or _png_block(chunks, PNG_XMP)
        or _png_block(chunks, _RAW_XMP)
        or (app1[len(_APP1_XMP) :] if app1.startswith(_APP1_XMP) else None),
        expanded=is_palette and palette == "rgb",
    )
    if not is_palette:
        bits = chunks[b"IHDR"][8]
        return _with_numbers(picture, bits) if palette == "index" and bits < 8 else picture
    if palette == "rgb":
        return picture
    bare = _png_of(data, (b"IHDR", b"PLTE", b"IDAT", b"IEND").__contains__)
    with _open_with_pillow(bare) as image:  # Pillow fails for others that libpng passes over.
        numbers = np.array(image)
    return replace(
        picture, pixels=numbers, palette=_rgba(chunks[b"PLTE"], chunks.get(b"tRNS", b""))
    )


_PNG_CHANNELS = {0: (1, 2), 2: (3, 4), 3: (3, 4), 4: (2,), 6: (4,)}  # by colour type


def _png_pixels(data: bytes) -> Image:
    """The pixels by libpng, which refuses damage that Pillow overlooks, and keeps 16-bit samples.

    Where libpng finds an error, imagecodecs loses a reference to what it decodes into, or one to
    None if it was to allocate that itself: the image stays in memory. So it gets an array.
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


_MOST_OF_A_KIND = 16  # The first sound one counts.


def png_without_texts(data: bytes) -> bytes:
    """A PNG for libpng, which would unpack a thousand texts to up to 8 MB each, and keep them.

    And without chunks that are repeated often, for it may warn of each.
    """
    counts = Counter[bytes]()

    def is_kept(kind: bytes) -> bool:
        counts[kind] += kind != b"IDAT"
        return kind not in (b"zTXt", b"iTXt") and counts[kind] <= _MOST_OF_A_KIND

    return _png_of(data, is_kept)


def _png_of(data: bytes, is_kept: Callable[[bytes], bool]) -> bytes:
    """A PNG of some kinds of its chunks, and of what is behind the last whole one."""
    parts = []
    start = 0
    for kind, at, end in _png_parts(data):
        if not is_kept(kind):
            parts.append(data[start:at])
            start = end
    return b"".join([*parts, data[start:]]) if parts else data


def _png_parts(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Of each chunk of a PNG up to IEND its type, where it begins, and where it should end."""
    pixels = up_to(MOST_SMALL_PARTS, "chunks of pixels")
    others = up_to(MOST_PARTS, "chunks without pixels")  # libpng may warn of each
    at, kind = len(PNG_SIGNATURE), b""
    while at + 12 <= len(data) and kind != b"IEND":
        size, kind = struct.unpack_from(">I4s", data, at)
        next(pixels if kind == b"IDAT" else others)
        yield kind, at, (at := at + 12 + size)
    if kind != b"IEND" or at > len(data):
        raise ImageError("cannot be read: the file ends too early")


def _with_numbers(picture: Picture, bits: int, bands: Sequence[int] = (0,)) -> Picture:
    """Bands that were scaled to 0 ... 255 with the numbers that they had in so many bits."""
    pixels = np.require(picture.pixels, requirements="W")
    for band in bands:  # Alpha stays.
        plane = pixels[:, :, band] if pixels.ndim == 3 else pixels
        plane //= np.uint8(255 // (2**bits - 1))
    return replace(picture, pixels=pixels, unscaled=True)


def _with_extra_samples(picture: Picture, kinds: Sequence[int]) -> Picture:
    """A picture, behind whose colours are channels of these kinds, as `EXTRA_SAMPLES` has them."""
    if list(kinds) in ([], [_ALPHA]):
        return picture
    tag = TiffTag("SHORT", struct.pack(f"<{len(kinds)}H", *kinds))
    return replace(picture, metadata=metadata_of_tiff({EXTRA_SAMPLES: tag}), has_alpha=False)


def _read_jpeg(data: bytes, palette: Palette) -> Picture:
    check_end_of_jpeg(data)
    return _read_with_pillow(data, palette)


def _read_webp(data: bytes, palette: Palette) -> Picture:
    try:
        return _read_with_pillow(data, palette)
    except OSError:
        if int.from_bytes(data[4:8], "little") + 8 > len(data):
            raise ImageError("cannot be read: the file ends too early") from None
        raise


def _read_with_pillow(data: bytes, palette: Palette) -> Picture:
    with _open_with_pillow(data) as image:
        # Of an MPO, readers of JPEG know the first image alone, which Pillow opens at.
        if image.format != "MPO" and getattr(image, "n_frames", 1) > 1:
            raise ImageError("several images in one file; L3 holds single images")
        is_jpeg = image.format in ("JPEG", "MPO")
        picture = Picture(
            np.array(image),
            icc=(jpeg_icc(data) if is_jpeg else None) or image.info.get("icc_profile"),
            exif=strip_exif_prefix(image.info.get("exif")),
            xmp=image.info.get("xmp"),
        )
        if image.mode == "P":
            if palette == "index":
                return replace(picture, palette=bytes(image.getpalette("RGBA") or []))
            return replace(picture, pixels=np.array(image.convert("RGB")), expanded=True)
        if image.mode == "1":
            picture = replace(picture, pixels=np.array(image.convert("L")))
            return _with_numbers(picture, 1) if palette == "index" else picture
        if image.mode not in ("L", "LA", "RGB", "RGBA"):
            raise ImageError(f"{image.mode} images are not supported; convert to RGB or gray")
        return picture


def _read_tiff(data: bytes, palette: Palette) -> Picture:
    from tifffile import PHOTOMETRIC

    with open_tiff(data) as page:
        pixels, entries = _tiff_pixels(data, page, palette)
        icc, xmp = (_stored_tag(data, page, code) for code in (_TIFF_ICC, TIFF_XMP))
        is_few_bits = page.bitspersample in (1, 2, 4) and page.photometric != PHOTOMETRIC.PALETTE
        is_unscaled = palette == "index" and is_few_bits
        numbers_stay = entries is not None or is_unscaled
        metadata = _tiff_metadata(data, page, keeps_numbers=numbers_stay)
        picture = Picture(
            pixels,
            icc=None if icc is None else icc.data,
            exif=descriptive_exif(data, page),
            palette=entries,
            expanded=entries is None and page.photometric == PHOTOMETRIC.PALETTE,
            xmp=None if xmp is None else xmp.data,
            metadata=metadata,
            has_alpha=extra_samples(metadata) is None,
        )
        if not is_unscaled:
            return picture
        extra = _extra_samples(page)
        kinds = [0] * (page.samplesperpixel - len(extra)) + extra
        bands = [i for i, kind in enumerate(kinds) if kind != _ALPHA]
        return _with_numbers(picture, page.bitspersample, bands)


_ALPHA = 2  # among EXTRA_SAMPLES; not premultiplied
_TIFF_DESCRIPTION = 270
_TIFF_NO_DATA = 42113
_TIFF_NEVER_ZERO = (277, 339)  # the number of samples, and whether they have signs
_TIFF_ICC = 34675
_TIFF_TYPE_NAMES = {number: name for name, (number, _) in TIFF_TYPES.items()}


# tifffile's note on its own array, where nobody gave it more to say.
_TIFFFILE_SHAPE = re.compile(r'shape=\([\d, ]+\)|\{"shape": \[[\d, ]*\](, "truncated": true)?\}')


def _tiff_metadata(
    data: bytes, page: tifffile.TiffPage, *, keeps_numbers: bool
) -> dict[str, Any] | None:
    """The tags of a page that are kept; `keeps_numbers`: of palette entries or few bits."""
    from tifffile import PHOTOMETRIC

    found = {code: _tiff_tag(data, page, code) for code in KEPT_TIFF_TAGS}
    tags = {code: tag for code, tag in found.items() if tag is not None}
    if sum(len(tag.data) for tag in tags.values()) > MAX_METADATA_BYTES:
        raise ImageError(f"TIFF tags of more than {MAX_METADATA_BYTES >> 20} MiB")
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
        tags.pop(_TIFF_NO_DATA, None)  # It names a sample that has become another.
    return metadata_of_tiff(tags)


def _extra_samples(page: tifffile.TiffPage) -> list[int]:
    """What each sample behind the colours is, 0 or `_ALPHA`; the tag may be missing, or short."""
    from tifffile import PHOTOMETRIC

    colors = 3 if page.photometric in (PHOTOMETRIC.RGB, PHOTOMETRIC.YCBCR) else 1
    count = page.samplesperpixel - colors
    told = [_ALPHA if kind == _ALPHA else 0 for kind in page.extrasamples]
    return (told + [0] * count)[:count]


def _tiff_tag(data: bytes, page: tifffile.TiffPage, code: int) -> TiffTag | None:
    """A tag with the bytes of its values; None if it is absent or damaged, or of another type."""
    tag = _stored_tag(data, page, code)
    if tag is None or page.parent.byteorder == "<":
        return tag
    return TiffTag(tag.type, _swapped(tag.data, struct.calcsize(TIFF_TYPES[tag.type][1])))


def _stored_tag(data: bytes, page: tifffile.TiffPage, code: int) -> TiffTag | None:
    """The same, with the bytes in the file's order."""
    tag = page.tags.get(code)
    name = None if tag is None else _TIFF_TYPE_NAMES.get(int(tag.dtype))
    if tag is None or name is None:
        return None
    size = tag.count * tiff_item_bytes(name)
    if size > MAX_METADATA_BYTES:
        raise ImageError(f"TIFF tag {code} has more than {MAX_METADATA_BYTES >> 20} MiB")
    value = data[tag.valueoffset : tag.valueoffset + size]
    return TiffTag(name, value) if value and len(value) == size else None


def _swapped(data: bytes, item_bytes: int) -> bytes:
    return np.frombuffer(data, np.uint8).reshape(-1, item_bytes)[:, ::-1].tobytes()


_MOST_AXES = 64  # of an array of NumPy
_STK_PLANES = 33629  # the tag UIC2, which has a row for each
_NIH_HEADER = 43314


def _check_tiff_frames(data: bytes, page: tifffile.TiffPage) -> None:
    """Refuses several images behind one directory: of ImageJ, MetaMorph, NIH Image, tifffile."""
    count = 1
    if page.is_stk and _STK_PLANES in page.tags:
        count = page.tags[_STK_PLANES].count
    elif page.is_nih:
        count = max(1, *struct.unpack_from(">h", data, page.tags[_NIH_HEADER].valueoffset + 260))
    elif found := re.search(r"^images=(\d+)", page.imagej_description or "", re.MULTILINE):
        count = int(found[1])
    elif found := re.search(r"shape\W+([\d, ]+)", page.shaped_description or ""):
        sides = found[1].split(",")[:_MOST_AXES]
        samples = math.prod(int(side) for side in sides if side.strip())
        count = samples // math.prod(page.shape)
    if count <= 1:
        return
    # Other tools keep the text where they cut the image. They may write the directory behind it.
    behind = len(data) - page.nbytes - page.dataoffsets[0] if page.is_contiguous else 0
    is_cut = behind < (count - 1) * page.nbytes
    is_one = is_cut and (behind <= 1 or page.offset > page.dataoffsets[0])
    if page.is_stk or page.is_nih or not is_one:
        raise ImageError("several images in one file; L3 holds single images")


def _value_of_missing(page: tifffile.TiffPage) -> int:
    """The value of strips and tiles that GDAL has not stored; tifffile takes some for too large."""
    if page.dtype is None or page.dtype.kind not in "iub":
        return 0  # refused when it is read
    text = page.tags.valueof(_TIFF_NO_DATA, "0")
    half = 1 << page.bitspersample - 1
    low, high = (-half, half - 1) if page.dtype.kind == "i" else (0, 2 * half - 1)
    try:
        value = float(text)
        if low <= value <= high and value.is_integer():
            return int(value)
    except (TypeError, ValueError):
        pass
    raise ImageError("a TIFF without all of its strips or tiles, whose GDAL_NODATA is no sample")


def _tiff_pixels(
    data: bytes, page: tifffile.TiffPage, palette: Palette
) -> tuple[Image, bytes | None]:
    from tifffile import PHOTOMETRIC

    _check_tiff_samples(page)
    _check_tiff_frames(data, page)
    if 0 in page.databytecounts:
        page.nodata = _value_of_missing(page)
    pixels = page.asarray()
    if page.axes == "SYX":
        pixels = np.moveaxis(pixels, 0, -1)
    if page.photometric == PHOTOMETRIC.PALETTE and page.colormap is not None:
        colors = _tiff_colors(page.colormap)
        pixels = pixels.astype(np.uint8) if pixels.dtype == bool else pixels
        if palette == "rgb":
            return colors[pixels], None
        if colors.dtype != np.uint8:
            raise ImageError("a palette of 16-bit colours cannot be kept; make colours of it")
        if len(colors) > 256:
            raise ImageError(f"a palette of {len(colors)} colours cannot be kept; up to 256 can")
        return pixels, _rgba(colors.tobytes(), b"")
    if pixels.dtype.kind == "i" and page.bitspersample not in (8, 16):
        raise ImageError(f"signed samples of {page.bitspersample} bits are not supported")
    most = 2**page.bitspersample - 1
    if page.bitspersample in (1, 2, 4):
        pixels, most = pixels.astype(np.uint8) * np.uint8(255 // most), 255
    if page.photometric == PHOTOMETRIC.MINISWHITE:
        if pixels.dtype.kind != "u":
            raise ImageError("signed samples or floats of which the least is white")
        pixels = np.require(pixels, requirements="W")
        gray = pixels[..., :1] if page.samplesperpixel > 1 else pixels
        np.subtract(most, gray, out=gray)
    return pixels, None


def _check_tiff_samples(page: tifffile.TiffPage) -> None:
    """Refuses a page but where its samples, as tifffile gives them, are what L3 takes them for."""
    from tifffile import COMPRESSION, EXTRASAMPLE, PHOTOMETRIC, PLANARCONFIG, SAMPLEFORMAT

    for tag in _TIFF_NEVER_ZERO:
        if not np.all(page.tags.valueof(tag, 1)):
            raise ImageError(f"a damaged TIFF: tag {tag} is 0")
    if page.planarconfig not in (PLANARCONFIG.CONTIG, PLANARCONFIG.SEPARATE):
        raise ImageError(f"a damaged TIFF: a planar configuration of {page.planarconfig}")
    if EXTRASAMPLE.ASSOCALPHA in page.extrasamples:
        raise ImageError("premultiplied alpha is not supported")
    if page.predictor != 1 and page.compression in (COMPRESSION.NONE, COMPRESSION.PACKBITS):
        raise ImageError("a TIFF with a predictor and no compression that undoes it")
    if page.predictor == 2 and page.bitspersample not in (8, 16, 32, 64):
        raise ImageError(f"a TIFF with a predictor of {page.bitspersample} bits is not supported")
    if "PhotometricInterpretation" not in page.tags:
        raise ImageError("a damaged TIFF: it does not say how colours are stored")
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
        # Of these tifffile makes RGB where it calls a decoder of JPEG, and of no others.
        PHOTOMETRIC.YCBCR: (samples, extra, page.planarconfig) == (3, 0, PLANARCONFIG.CONTIG)
        and page.compression in jpegs,
    }
    photometric = PHOTOMETRIC(page.photometric)
    is_color = photometric in (PHOTOMETRIC.RGB, PHOTOMETRIC.YCBCR) and not extra
    if page.compression in jpegs and len(page.chunks) > 2 and samples == 3 and not is_color:
        raise ImageError("JPEG of three samples that are no RGB, which decoders take for YCbCr")
    if not is_read.get(photometric):
        kind = COMPRESSION(page.compression).name
        raise ImageError(
            f"{photometric.name} images of {samples} samples in {kind} are not supported"
        )


def _tiff_colors(colormap: Image) -> Image:
    """The palette's colours as rows R, G, B: in 8 bits if these tell all, else in 16."""
    colors: Image = colormap.T
    if colors.max() <= 255:  # Some writers put 8-bit numbers here; libtiff takes them as such.
        return colors.astype(np.uint8)
    high, low = colors >> 8, colors & 255
    return high.astype(np.uint8) if not low.any() or np.array_equal(low, high) else colors


_NETPBM_NEXT = re.compile(rb"P[1-7]\s")
_PAM_TYPES = {"", "BLACKANDWHITE", "GRAYSCALE", "RGB"}
_PAM_TYPES |= {f"{name}_ALPHA" for name in _PAM_TYPES if name}


def _read_netpbm(data: bytes, palette: Palette) -> Picture:
    with open_netpbm(data) as file:
        if file.axes not in ("YX", "YXS"):
            raise ImageError("several images in one file; L3 holds single images")
        if file.magicnumber == "P7" and file.tupltype not in _PAM_TYPES:
            raise ImageError(f"PAM of tuple type {file.tupltype} is not supported")
        pixels = np.asarray(file.asarray())
        depth = (file.depth,) if file.depth > 1 else ()
        # netpbmfile counts by the size of the first, in digits by their number.
        one = pixels.shape == (file.height, file.width, *depth)
        row_bytes = -(-file.width // 8) if file.magicnumber == "P4" else pixels[:1].nbytes
        if file.magicnumber in ("P1", "P2", "P3"):
            at = data.find(b"P", file.dataoffset)
            text = b"" if at < 0 else re.sub(rb"#[^\r\n]*", b"", data[file.dataoffset :])
            behind = text[max(0, text.find(b"P")) :]
        else:
            behind = data[file.dataoffset + file.height * row_bytes :]
        if not one or _NETPBM_NEXT.match(behind, behind_padding(behind, 0, b" \t\n\r\f\v")):
            raise ImageError("several images in one file; L3 holds single images")
        if pixels.dtype == bool:  # PBM counts ink. Its PAM variant has samples, 0 and 1.
            pixels = np.where(pixels, np.uint8(0), np.uint8(255))
            if palette == "index":
                return _with_numbers(Picture(pixels), 1)
        picture = Picture(pixels.astype(pixels.dtype.newbyteorder("=")))
        has_bands = file.depth in (2, 4) and not file.tupltype.endswith("_ALPHA")
        return _with_extra_samples(picture, [0] if has_bands else [])


def _read_jpegxl(data: bytes, palette: Palette) -> Picture:
    import imagecodecs

    header = read_jpegxl_header(data)
    if header.animation:
        raise ImageError("an animation; L3 holds single images")
    if not header.plain:
        raise ImageError(
            "a JPEG XL with premultiplied alpha, alpha of more bits than the colours, or other or "
            "several extra channels is not supported"
        )
    return Picture(imagecodecs.jpegxl_decode(data))


def _read_jpeg2000(data: bytes, palette: Palette) -> Picture:
    import imagecodecs

    check_jpeg2000(data)
    data, icc = jpeg2000_icc(data)
    found = jpeg2000_palette(data)
    if found is None or palette == "rgb":
        picture = Picture(imagecodecs.jpeg2k_decode(data), icc=icc, expanded=found is not None)
        channels = math.prod(picture.pixels.shape[2:])
        return _with_extra_samples(picture, jpeg2000_extra_samples(data, channels))
    entries, is_plain = found
    numbers = imagecodecs.jpeg2k_decode(data[jpeg2000_start(data) :])  # The boxes make colours.
    (count,) = struct.unpack_from(">H", entries)
    is_kept = is_plain and entries[2:6] == b"\3\7\7\7" and 1 <= count <= 256
    if not is_kept or numbers.ndim != 2 or numbers.dtype != np.uint8:
        raise ImageError("a palette that is not RGB of 8 bits cannot be kept; make colours of it")
    return Picture(numbers, icc=icc, palette=_rgba(entries[6 : 6 + 3 * count], b""))


_READERS: dict[Format, Callable[[bytes, Palette], Picture]] = {
    "png": _read_png,
    "jpeg": _read_jpeg,
    "webp": _read_webp,
    "bmp": _read_with_pillow,
    "tiff": _read_tiff,
    "netpbm": _read_netpbm,
    "jpegxl": _read_jpegxl,
    "jpeg2000": _read_jpeg2000,
}


# Chunks of a PNG.

# libpng passes over these where they come late.
_PNG_BEFORE_PIXELS = frozenset({b"PLTE", b"tRNS", b"iCCP", b"acTL", PNG_RESOLUTION})
_PNG_KEPT = frozenset({b"IHDR", b"eXIf", *PNG_TEXTS, *_PNG_BEFORE_PIXELS})
# Keywords of plain text that hold blocks: as of libvips, and in hexadecimal as of ImageMagick.
_RAW_XMP = b"Raw profile type xmp\0"
_RAW_EXIF = b"Raw profile type exif\0"  # which other readers know, too
_RAW_APP1 = b"Raw profile type APP1\0"  # either of both, as in a JPEG
_APP1_XMP = b"http://ns.adobe.com/xap/1.0/\0"
_RAW_PROFILES = (_RAW_XMP, _RAW_EXIF, _RAW_APP1)
_RAW_BYTES = 3 * MAX_METADATA_BYTES  # two a byte, and ends of lines
_RAW_PROFILE = re.compile(rb"\n?[^\n]*\n\s*(\d{1,9})\s([0-9a-fA-F\s]*)")


def _png_chunks(data: bytes) -> dict[bytes, bytes]:
    """Chunks of a PNG that libpng has accepted: those that we use, as libpng judges them.

    Of several of a kind the first counts, none behind IEND does, nor one with a wrong CRC. Of iTXt
    there is that with XMP alone; of other texts those with blocks, by their keywords.
    """
    chunks: dict[bytes, bytes] = {}
    for kind, body in _sound_png_chunks(data, _PNG_KEPT):
        if kind == b"tRNS" and len(body) > len(chunks.get(b"PLTE", b"")) // 3:
            continue  # of a palette that is not there
        if kind in (b"tEXt", b"zTXt"):
            for keyword in (PNG_XMP, *_RAW_PROFILES):
                if body.startswith(keyword):
                    chunks.setdefault(keyword, kind + body[len(keyword) :])
        elif kind != b"iTXt" or body.startswith(PNG_XMP):
            chunks.setdefault(kind, body)
    return chunks


def _png_texts(data: bytes, picture: Picture) -> list[tuple[bytes, bytes]]:
    """The chunks of text but XMP and what the picture has of them, and the first of resolution."""
    chunks = _png_chunks(data)
    taken = [PNG_XMP]
    for keyword in _RAW_PROFILES:
        block = _png_block(chunks, keyword)
        if block and strip_exif_prefix(block.removeprefix(_APP1_XMP)) in (
            picture.exif,
            picture.xmp,
        ):
            taken.append(keyword)
    texts: list[tuple[bytes, bytes]] = []
    has_resolution = False
    for kind, body in _sound_png_chunks(data, KEPT_PNG_CHUNKS):
        again = kind == PNG_RESOLUTION and has_resolution
        has_resolution |= kind == PNG_RESOLUTION
        if not again and not body.startswith(tuple(taken)):
            texts.append((kind, body))
    return texts


def _sound_png_chunks(data: bytes, kinds: Collection[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Type and data of each chunk of these kinds that libpng looks at."""
    pixels_begun = False
    for kind, at, end in _png_parts(data):
        pixels_begun |= kind == b"IDAT"
        if kind in kinds and not (pixels_begun and kind in _PNG_BEFORE_PIXELS):
            body, crc = data[at + 8 : end - 4], data[end - 4 : end]
            if int.from_bytes(crc, "big") == zlib.crc32(kind + body):
                yield kind, body


def _png_icc(body: bytes | None) -> bytes | None:
    """The profile in an iCCP chunk; None if it is damaged, as libpng has it."""
    if body is None or b"\0" not in body:
        return None
    return _inflated(body[body.index(b"\0") + 2 :])


def _png_xmp(body: bytes | None) -> bytes | None:
    """The packet in an iTXt chunk that begins with `PNG_XMP`; None if it is damaged."""
    if body is None:
        return None
    compressed, method = body[len(PNG_XMP) : len(PNG_XMP) + 1], body[len(PNG_XMP) + 1 :][:1]
    _, *rest = body[len(PNG_XMP) + 2 :].split(b"\0", 2)  # behind language and keyword in it
    if len(rest) != 2 or (compressed, method) not in ((b"\0", method), (b"\1", b"\0")):
        return None
    return _inflated(rest[1]) if compressed == b"\1" else rest[1]


def _png_block(chunks: Mapping[bytes, bytes], keyword: bytes) -> bytes | None:
    """The block in a chunk of plain text; None if there is none, or it is damaged."""
    kind, text = chunks.get(keyword, b"")[:4], chunks.get(keyword, b"")[4:]
    longest = MAX_METADATA_BYTES if keyword == PNG_XMP else _RAW_BYTES
    block = _inflated(text[1:], longest) if kind == b"zTXt" else text or None
    if block is None or keyword == PNG_XMP or len(block) > longest:
        return block
    if not (found := _RAW_PROFILE.fullmatch(block)):
        return None
    try:
        block = bytes.fromhex(found[2].decode())
    except ValueError:
        return None
    return block if len(block) == int(found[1]) else None


def _inflated(data: bytes, longest: int = MAX_METADATA_BYTES) -> bytes | None:
    """What zlib has packed; None if it is damaged. Of more than is allowed, a byte more."""
    inflater = zlib.decompressobj()
    try:
        result = inflater.decompress(data, longest + 1)
    except zlib.error:
        return None
    return result if inflater.eof or len(result) > longest else None


def _rgba(colors: bytes, alpha: bytes) -> bytes:
    """Palette entries from R, G, B triples and the alphas of the first of them."""
    entries = np.full((len(colors) // 3, 4), 255, np.uint8)
    entries[:, :3] = np.frombuffer(colors, np.uint8).reshape(-1, 3)
    entries[: len(alpha), 3] = np.frombuffer(alpha, np.uint8)
    return entries.tobytes()


_pillow_limit = threading.RLock()
os.register_at_fork(
    before=_pillow_limit.acquire,
    after_in_parent=_pillow_limit.release,
    after_in_child=_pillow_limit.release,
)


def _opened(data: bytes, formats: tuple[str, ...]) -> PIL.Image.Image:
    """By Pillow without its limit, which is below a satellite scene; it is the program's own."""
    from PIL import Image

    with _pillow_limit:
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, MAX_PIXELS
        try:
            image = Image.open(io.BytesIO(data), formats=formats)
            # What waits for the end of a row is copied with each block that is read.
            image.decodermaxblock = max(image.decodermaxblock, 4 * image.width)
            return image
        finally:
            Image.MAX_IMAGE_PIXELS = limit


def _open_with_pillow(data: bytes) -> PIL.Image.Image:
    if data[:2] == b"BM" and data[_BMP_COMPRESSION_AT : _BMP_COMPRESSION_AT + 1] in (b"\1", b"\2"):
        data = _with_even_pixels(data)
    # Others would be asked for what these refuse; some take any signature, and a size elsewhere.
    image = _opened(data, ("PNG", "JPEG", "WEBP", "BMP"))
    if image.format == "BMP" and image.mode in ("1", "L"):
        (header_bytes,) = struct.unpack_from("<I", data, _BMP_HEADER)
        (bits,) = struct.unpack_from("<H", data, _BMP_HEADER + (10 if header_bytes == 12 else 14))
        if bits != (1 if image.mode == "1" else 8):
            return _without_guess(data, _BMP_HEADER + header_bytes)
    return image


_BMP_PIXELS_AT, _BMP_COMPRESSION_AT = 10, 30  # where it says that
_BMP_HEADER = 14  # behind the file's own


def _with_even_pixels(data: bytes) -> bytes:
    """A BMP in RLE whose runs are padded by places in the file too, as Pillow has it."""
    (at,) = struct.unpack_from("<I", data, _BMP_PIXELS_AT)
    if at % 2 == 0 or at >= len(data):
        return data
    told = struct.pack("<I", at + 1)
    return data[:_BMP_PIXELS_AT] + told + data[_BMP_PIXELS_AT + 4 : at] + b"\0" + data[at:]


def _without_guess(data: bytes, palette_at: int) -> PIL.Image.Image:
    """A BMP whose palette Pillow takes for gray, of as many bits as that would have."""
    blue, green, red = data[palette_at : palette_at + 3]
    coloured = data[:palette_at] + b"\1\2\3" + data[palette_at + 3 :]
    image = _opened(coloured, ("BMP",))
    image.load()
    image.putpalette([red, green, blue, *(image.getpalette() or [])[3:]])
    return image
