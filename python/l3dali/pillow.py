"""L3 in Pillow: after `register()`, `Image.open` and `Image.save` support `.l3`.

So do libraries that read images with Pillow: torchvision's `ImageFolder`, the `Image` feature of
Hugging Face's datasets, Ray's `read_images`. Spawned processes must register themselves.
"""

from __future__ import annotations

import operator
import warnings
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from l3dali import codec
from l3dali.errors import L3Error
from l3dali.files import read_info
from l3dali.signatures import L3_SIGNATURE

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["L3ImageFile", "encode_image", "encode_value", "register"]

_FORMAT = "L3"
_MODES = {
    (1, "uint8"): "L",
    (2, "uint8"): "LA",
    (3, "uint8"): "RGB",
    (4, "uint8"): "RGBA",
    (1, "uint16"): "I;16",
    (1, "int8"): "I",
    (1, "int16"): "I",
    (1, "int32"): "I",
    (1, "float16"): "F",
    (1, "float32"): "F",
}
_SAVED_MODES = frozenset({"L", "LA", "RGB", "RGBA", "I;16", "I;16B", "I", "F", "P"})
_OPTIONS = ("coding", "effort", "threads", "tile", "groups")


def register() -> None:
    """Adds L3 to the formats that Pillow opens and saves in this process; a repeat does nothing.

    Opened images of 8 bits have the modes L, LA, RGB and RGBA, those of one channel I;16 (16 bits)
    I (signed) or F (floats), labels with a palette P. Pillow has no mode for other images: they
    raise `OSError`. `Image.MAX_IMAGE_PIXELS` is the limit.

    `info` has "icc_profile", "exif", "xmp", "metadata", "transparency" (of palettes) and "labels"
    (True for numbers of classes), if the file has them. Damaged metadata causes a warning.

    `save` takes `coding`, `effort`, `threads`, `tile` and `labels` of `l3dali.encode`,
    `icc_profile` and `xmp` (by default those of `info`), `exif` (by default none, as for PNG), and
    `metadata` and `other_chunks`: by default those of the opened file, and none for a copy, a part,
    another size or another EXIF. A transparent colour becomes alpha. Modes that L3 cannot hold
    raise `OSError`, after Pillow has emptied an existing file.
    """
    Image.register_open(_FORMAT, L3ImageFile, _accept)
    Image.register_decoder("l3", _Decoder)
    Image.register_save(_FORMAT, _save)
    Image.register_extension(_FORMAT, ".l3")
    Image.register_mime(_FORMAT, "image/x-l3")


class L3ImageFile(ImageFile.ImageFile):
    """An L3 file that Pillow opened."""

    format = _FORMAT
    format_description = "L3 lossless image"
    other_chunks = b""  # `l3dali.Info.other_chunks`
    _label_palette: bytes | None = None  # of labels that Pillow has no palette for
    _opened_as: tuple[tuple[int, int], bytes | None] = (0, 0), None  # size and EXIF

    def _open(self) -> None:
        assert self.fp is not None
        try:
            info = read_info(self.fp)
        except L3Error as error:
            raise UnidentifiedImageError(
                f"cannot identify L3 file {self.filename!r}: {error}"
            ) from error
        mode = _MODES.get((info.channels, info.dtype.name))
        if mode is None:
            raise OSError(
                f"Pillow has no mode for {info.channels} channels of {info.dtype}; "
                "l3dali.imread reads them"
            )
        self._size = (info.width, info.height)
        if info.icc is not None:
            self.info["icc_profile"] = info.icc
        if info.exif is not None:
            self.info["exif"] = b"Exif\0\0" + info.exif  # as Pillow has it for all formats
        if info.xmp is not None:
            self.info["xmp"] = info.xmp
        self._opened_as = self._size, self.info.get("exif")
        try:
            if info.metadata is not None:
                self.info["metadata"] = info.metadata
        except ValueError as error:
            warnings.warn(f"{self.filename or 'L3 file'!r}: {error}", stacklevel=2)
        if info.palette_is_damaged:
            warnings.warn(f"{self.filename or 'L3 file'!r}: the palette is damaged", stacklevel=2)
        self.other_chunks = info.other_chunks
        if mode == "L" and info.palette is not None:
            mode = "P"
            self._set_palette(info.palette)
        elif info.labels:
            self.info["labels"] = True
            self._label_palette = info.palette
        self._mode = mode
        self._file_bytes = info.encoded_bytes
        arguments = (info.encoded_bytes, info.channels, info.dtype.name)
        self.tile = [ImageFile._Tile("l3", (0, 0, *self._size), 0, arguments)]

    def _set_palette(self, palette: bytes) -> None:
        from PIL import ImagePalette

        entries = np.frombuffer(palette, np.uint8).reshape(-1, 4)
        self.palette = ImagePalette.raw("RGB", entries[:, :3].tobytes())
        if (entries[:, 3] != 255).any():
            self.info["transparency"] = entries[:, 3].tobytes()

    def load_seek(self, pos: int) -> None:
        """Makes `ImageFile.Parser` wait for the whole file; Pillow's interface."""
        assert self.fp is not None
        self.fp.seek(pos)

    def verify(self) -> None:
        """Checks every part of the file, and closes it.

        Raises:
            OSError: the file is damaged; the text says how.
            RuntimeError: the image has been loaded or verified before.
        """
        if self.fp is None or not self.tile:
            raise RuntimeError("verify must be called directly after open")
        self.fp.seek(0)
        try:
            codec.verify(self.fp.read(self._file_bytes + 1), max_pixels=self.width * self.height)
        except L3Error as error:
            raise OSError(str(error)) from error
        finally:
            super().verify()


class _Decoder(ImageFile.PyDecoder):
    """Decodes a whole file once the pixels are wanted."""

    _pulls_fd = True

    def decode(self, buffer: Any) -> tuple[int, int]:
        """Sets the image from the file; Pillow's interface."""
        assert self.fd is not None
        file_bytes, channels, dtype = self.args
        width, height = self.state.xsize, self.state.ysize
        try:
            # One more byte, so that a file that has grown is an error.
            pixels = codec.decode(self.fd.read(file_bytes + 1), max_pixels=width * height)
        except L3Error as error:
            raise OSError(str(error)) from error
        found = (*pixels.shape, 1)[:3], pixels.dtype.name
        if found != ((height, width, channels), dtype):
            raise OSError("the file has changed since it was opened")
        if self.mode in ("I", "F"):
            pixels = pixels.astype(np.int32 if self.mode == "I" else np.float32, copy=False)
        self.set_as_raw(pixels.astype(pixels.dtype.newbyteorder("<"), copy=False).tobytes())
        return -1, 0


def encode_image(image: Image.Image, **options: Any) -> bytes:
    """Encodes a Pillow image.

    Args:
        image: of mode L, LA, P, RGB, RGBA, I;16, I (int32) or F (float32).
        **options: those of `save`, as `register` lists them.

    Raises:
        OSError: L3 cannot hold the image's mode.
        TypeError, ValueError: as in `l3dali.encode`.
    """
    if image.mode not in _SAVED_MODES:
        raise OSError(
            f"cannot write mode {image.mode} as L3; convert to one of "
            f"{', '.join(sorted(_SAVED_MODES))}"
        )
    if image.mode in ("L", "RGB") and "transparency" in image.info:
        image = image.convert("LA" if image.mode == "L" else "RGBA")  # as `l3 encode` does
    palette = options.get("palette")
    palette = _palette(image) if palette is None and image.mode == "P" else palette
    pixels = np.asarray(image)
    if image.mode in ("I;16", "I;16B") and "transparency" in image.info:  # Pillow has no "LA;16".
        is_shown = pixels != operator.index(image.info["transparency"])
        pixels = np.dstack([pixels, is_shown * np.uint16(0xFFFF)])
    now = image.size, image.info.get("exif")
    opened = image if isinstance(image, L3ImageFile) and now == image._opened_as else None
    may_have_labels = palette is None and (pixels.ndim == 2 or opened is not None)
    labels = options.get("labels", may_have_labels and image.info.get("labels", False))
    exif = options.get("exif")
    metadata, other_chunks = None, None
    if opened is not None:
        metadata, other_chunks = opened.info.get("metadata"), opened.other_chunks
        palette = opened._label_palette if labels and palette is None else palette
    return codec.encode(
        pixels,
        labels=labels or palette is not None,
        palette=palette,
        icc=options.get("icc_profile", image.info.get("icc_profile")) or None,
        exif=(exif.tobytes() if isinstance(exif, Image.Exif) else exif) or None,
        xmp=options.get("xmp", image.info.get("xmp")) or None,
        metadata=options.get("metadata", metadata),
        other_chunks=options.get("other_chunks", other_chunks) or None,
        **{name: options[name] for name in _OPTIONS if name in options},
    )


def encode_value(value: Any, **options: Unpack[codec.EncodeOptions]) -> bytes:
    """Encodes a Pillow image, or an array.

    Args:
        value: the image.
        **options: those of `l3dali.encode`. For a Pillow image None takes its own metadata, and
            `layout` has no effect.

    Raises:
        OSError, TypeError, ValueError: as in `encode_image`.
    """
    if not isinstance(value, Image.Image):
        return codec.encode(value, **options)
    if unknown := options.keys() - codec.EncodeOptions.__annotations__.keys():
        raise TypeError(f"encode() has no options {', '.join(sorted(unknown))}")
    names = {"icc": "icc_profile"}
    return encode_image(value, **{names.get(k, k): v for k, v in options.items() if v is not None})


def _palette(image: Image.Image) -> bytes:
    """R, G, B, A of each entry, as Pillow shows them."""
    if image.palette is not None and image.palette.mode == "CMYK":
        raise OSError("cannot write a palette of CMYK as L3; convert to RGB")
    entries = image.resize((256, 1))
    entries.putdata(range(256))
    count = max(len(image.getpalette() or ()) // 3, int(np.asarray(image).max()) + 1)
    return entries.convert("RGBA").tobytes()[: 4 * count]


def _accept(prefix: bytes) -> bool:
    return prefix.startswith(L3_SIGNATURE)


def _save(image: Image.Image, file: IO[bytes], filename: str | bytes) -> None:
    file.write(encode_image(image, **image.encoderinfo))
