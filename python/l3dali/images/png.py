"""PNG, read by libpng and Pillow."""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from l3dali.arguments import strip_exif_prefix
from l3dali.errors import ENDS_TOO_EARLY, ImageError
from l3dali.images.picture import MAX_CHANNELS, Header, ImageFormat, Picture, ReadOptions, Writer
from l3dali.metadata import (
    KEPT_PNG_CHUNKS,
    MAX_METADATA_BYTES,
    PNG_RESOLUTION,
    PNG_TEXTS,
    metadata_of_png,
    png_of_metadata,
)
from l3dali.signatures import PNG_SIGNATURE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from l3dali.codec import Image

_XMP = b"XML:com.adobe.xmp\0"  # the keyword of the iTXt chunk that holds it
# The channels that may come out of libpng, by colour type: a transparent colour becomes alpha.
_CHANNELS = {0: (1, 2), 2: (3, 4), 3: (3, 4), 4: (2,), 6: (4,)}
_LEVEL = 6
_HEADER_END = len(PNG_SIGNATURE) + 25


def _read_header(data: bytes) -> Header:
    width, height, bits, color_type = struct.unpack_from(">II2B", data, len(PNG_SIGNATURE) + 8)
    channels = _CHANNELS.get(color_type, (MAX_CHANNELS,))[-1]
    return Header.of("png", width, height, channels, 2 if bits == 16 else 1, peak=2)


def _read(data: bytes, options: ReadOptions) -> Picture:
    sound = list(_sound_chunks(data))
    chunks = _by_type(sound)
    if b"acTL" in chunks:
        parts = list(_parts(data))
        if sum(kind == b"fcTL" for kind, *_ in parts) > 1:
            raise ImageError("an animation; L3 holds single images")
        still = [data[at:end] for kind, at, end in parts if kind not in (b"acTL", b"fcTL")]
        data = PNG_SIGNATURE + b"".join(still)
    is_palette = chunks[b"IHDR"][9] == 3
    picture = Picture(
        _pixels(data),
        icc=_inflated(chunks.get(b"iCCP", b"").partition(b"\0")[2][1:]),
        exif=strip_exif_prefix(chunks.get(b"eXIf")),
        xmp=_xmp_of(chunks.get(_XMP)),
        metadata=metadata_of_png(_texts(sound)) if options.keep_text else None,
        expanded=is_palette and options.palette == "rgb",
    )
    bits = chunks[b"IHDR"][8]
    if bits < 8 and not is_palette:  # libpng has scaled them.
        numbers = picture.pixels // np.uint8(255 // (2**bits - 1))
        return replace(picture, pixels=numbers).scaled(bits, options)
    if not is_palette or picture.expanded:
        return picture
    from PIL import PngImagePlugin

    # Pillow fails for other chunks that libpng ignores.
    needed = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
    bare = b"".join(data[at:end] for kind, at, end in _parts(data) if kind in needed)
    with PngImagePlugin.PngImageFile(io.BytesIO(PNG_SIGNATURE + bare)) as image:
        numbers = np.array(image)
    return replace(picture, pixels=numbers, palette=rgba(chunks[b"PLTE"], chunks.get(b"tRNS", b"")))


def _pixels(data: bytes) -> Image:
    """The pixels by libpng, which detects damage that Pillow ignores, and keeps 16-bit samples.

    imagecodecs leaks its output if libpng fails. So it gets an array, which is emptied then.
    """
    import imagecodecs

    width, height, bits, color_type = struct.unpack_from(">II2B", data, len(PNG_SIGNATURE) + 8)
    for channels in _CHANNELS.get(color_type, (1,)):  # The last may be a colour's alpha.
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


def _parts(data: bytes) -> Iterator[tuple[bytes, int, int]]:
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


# libpng ignores these where they come late.
_BEFORE_PIXELS = frozenset({b"PLTE", b"tRNS", b"iCCP", b"acTL", PNG_RESOLUTION})
_KEPT = frozenset({b"IHDR", b"eXIf", *PNG_TEXTS, *_BEFORE_PIXELS})


def _by_type(sound: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The first chunk of each type; XMP is under its keyword."""
    chunks: dict[bytes, bytes] = {}
    for kind, body in sound:
        if kind == b"tRNS" and len(body) > len(chunks.get(b"PLTE", b"")) // 3:
            continue  # without a palette
        if kind not in PNG_TEXTS:
            chunks.setdefault(kind, body)
        elif body.startswith(_XMP):
            chunks.setdefault(_XMP, kind + body[len(_XMP) :])
    return chunks


def _texts(sound: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The chunks of text except XMP, and those of resolution, of which the first counts."""
    return [
        (kind, body)
        for kind, body in sound
        if kind in KEPT_PNG_CHUNKS and not body.startswith(_XMP)
    ]


def _sound_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Type and data of each used chunk that libpng reads: before IEND, and with a right CRC."""
    pixels_begun = False
    for kind, at, end in _parts(data):
        pixels_begun |= kind == b"IDAT"
        if kind in _KEPT and not (pixels_begun and kind in _BEFORE_PIXELS):
            body, crc = data[at + 8 : end - 4], data[end - 4 : end]
            if int.from_bytes(crc, "big") == zlib.crc32(kind + body):
                yield kind, body


def _xmp_of(text: bytes | None) -> bytes | None:
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


def rgba(colors: bytes, alpha: bytes) -> bytes:
    """Palette entries from R, G, B triples and the alphas of the first of them."""
    entries = np.full((len(colors) // 3, 4), 255, np.uint8)
    entries[:, :3] = np.frombuffer(colors, np.uint8).reshape(-1, 3)
    entries[: len(alpha), 3] = np.frombuffer(alpha, np.uint8)
    return entries.tobytes()


def _write(picture: Picture) -> bytes:
    import imagecodecs
    from PIL import Image

    if picture.palette is None or picture.pixels.shape[2:] or picture.pixels.dtype != np.uint8:
        filtered = picture.pixels.nbytes + len(picture.pixels)  # a byte more for each row
        # png_encode allocates less, and may not report a truncated result.
        room = filtered + filtered // 256 + 1024
        png = bytes(imagecodecs.png_encode(picture.pixels, level=_LEVEL, out=room))
    else:
        entries = _entries(picture)
        image = Image.fromarray(picture.pixels)
        image.putpalette(entries[:, :3].tobytes())
        alpha = entries[:, 3].tobytes()
        file = io.BytesIO()
        options = {} if set(alpha) == {255} else {"transparency": alpha}
        image.save(file, "PNG", compress_level=_LEVEL, **options)
        png = file.getvalue()
    extra = []
    if picture.icc is not None:
        extra.append((b"iCCP", b"ICC profile\0\0" + zlib.compress(picture.icc)))
    if picture.exif is not None:
        extra.append((b"eXIf", picture.exif))
    if picture.xmp is not None:
        extra.append((b"iTXt", _XMP + bytes(4) + picture.xmp))
    extra += png_of_metadata(picture.metadata)
    chunks = [_chunk(kind, body) for kind, body in extra]
    return b"".join([png[:_HEADER_END], *chunks, png[_HEADER_END:]])


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


_OPAQUE_BLACK = np.array([0, 0, 0, 255], np.uint8)


def _entries(picture: Picture) -> Image:
    """The palette, with black entries for numbers beyond its end."""
    entries = np.frombuffer(picture.palette or b"", np.uint8).reshape(-1, 4)
    missing = max(0, int(picture.pixels.max()) + 1 - len(entries))
    return np.concatenate([entries, np.tile(_OPAQUE_BLACK, (missing, 1))])


_WRITERS = {".png": Writer(_write, longest=1_000_000)}  # to libpng
FORMAT = ImageFormat(_read_header, _read, _WRITERS)
