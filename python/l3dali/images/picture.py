"""A picture between formats, and what the modules of formats share.

The module of a format ends with its `ImageFormat`. It imports libraries where it uses them, so that
`import l3dali` needs none.
"""

from __future__ import annotations

import importlib
import math
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from l3dali import arguments
from l3dali.arguments import MAX_PIXELS, strip_exif_prefix
from l3dali.errors import ImageError
from l3dali.metadata import EXTRA_SAMPLES, FLOATS, TiffTag, metadata_of_tiff
from l3dali.volumes import tile_of

if TYPE_CHECKING:
    import PIL.Image

    from l3dali.arguments import Layout
    from l3dali.codec import Image

Palette = Literal["rgb", "index"]

ALPHA = 2  # among EXTRA_SAMPLES; not premultiplied
MAX_CHANNELS = 4  # of all formats but TIFF and .npy


def package(name: str, what: str, install: str) -> Any:
    """The module of a package that reads `what`; ImageError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        packages = "packages" if " " in install else "a package"
        raise ImageError(f"{what} needs {packages}: pip install {install}") from None


class Header(NamedTuple):
    """The size of an image, and of the memory to read it."""

    format: str  # of the file, as `format_of` names it
    width: int  # in pixels, as stored: EXIF may turn the image
    height: int  # in pixels
    raw_bytes: int  # of the decoded samples, at most
    read_bytes: int  # of memory at the peak of reading, without the file; estimated
    pixel_cost: int = 1  # how often its pixels count for a limit: four channels of 16 bits once

    @classmethod
    def of(
        cls,
        format: str,
        width: int,
        height: int,
        channels: int,
        sample_bytes: int,
        *,
        peak: int,
        most: int = MAX_CHANNELS,
    ) -> Header:
        """A header; `peak` is the memory of reading in bytes a byte of samples, measured.

        Raises:
            ImageError: there are more than `most` channels.
        """
        if channels > most:
            raise ImageError(
                f"{channels} channels are not supported; this format allows at most {most}"
            )
        raw = width * height * channels * sample_bytes
        return cls(format, width, height, raw, peak * raw, max(1, -(-channels // 4)))

    @classmethod
    def of_volume(
        cls, format: str, shape: Sequence[int], channels: int, sample_bytes: int, *, peak: int
    ) -> Header:
        """The header of a volume, (D, H, W): slices padded to whole tiles, one below the other."""
        depth, height, width = shape
        step = tile_of(shape)[0]
        size = width, depth * -(-height // step) * step, channels, sample_bytes
        return cls.of(format, *size, peak=peak, most=arguments.MAX_CHANNELS)

    def check_pixels(self, max_pixels: int) -> None:
        """Raises ImageError if the image has more pixels than `max_pixels`."""
        if self.width * self.height * self.pixel_cost > max_pixels:
            times = "" if self.pixel_cost == 1 else f" x {self.pixel_cost} (4 channels count once)"
            raise ImageError(
                f"{self.width} x {self.height}{times} pixels are more than the limit of "
                f"{max_pixels}; max_pixels raises it (in the command --max-pixels)"
            )


@dataclass(frozen=True)
class ReadOptions:
    """How to read pixels; `read_picture` explains each."""

    palette: Palette = "rgb"
    layout: Layout | None = None
    dicom_tags: Collection[str] = ()
    keep_text: bool = False


@dataclass(frozen=True)
class Picture:
    """Pixels as stored, and metadata."""

    pixels: Image  # of SAMPLE_TYPES; (H, W) for one channel, else (H, W, C)
    icc: bytes | None = None  # an ICC profile
    exif: bytes | None = None  # an EXIF block, from its TIFF header on
    palette: bytes | None = None  # R, G, B, A of each entry; then the pixels are entry numbers
    expanded: bool = False  # the file has a palette; the pixels are its colours
    unscaled: bool = False  # the pixels are the numbers of a file of 1, 2 or 4 bits, not 0 ... 255
    xmp: bytes | None = None  # an XMP packet
    metadata: Mapping[str, Any] | None = None  # as in `l3dali.encode`; with tags of TIFF
    is_damaged: bool = False  # there are key-value pairs that could not be read, and are left out
    has_alpha: bool = True  # the last of two or four channels is alpha
    remarks: tuple[str, ...] = ()  # what is left out, or scaled

    @property
    def has_numbers(self) -> bool:
        """Whether the pixels are numbers of entries or classes, which must not be blended."""
        return self.palette is not None or self.unscaled

    @property
    def channels(self) -> int:
        """How many channels the pixels have."""
        return math.prod(self.pixels.shape[2:])

    @property
    def channels_with_alpha(self) -> int:
        """How many channels a picture with alpha has; 0 without."""
        return self.channels if self.channels in (2, 4) and self.has_alpha else 0

    @property
    def floats(self) -> Image | None:
        """The floats whose bits the samples are, where the metadata says so (docs/my-data.md)."""
        name = (self.metadata or {}).get(FLOATS)
        if name not in ("float16", "float32") or self.pixels.dtype != np.uint16:
            return None
        samples = np.ascontiguousarray(self.pixels.reshape(*self.pixels.shape[:2], -1))
        if samples.shape[2] * samples.itemsize % np.dtype(name).itemsize:
            return None
        floats: Image = samples.view(name)
        return floats[..., 0] if floats.shape[2] == 1 else floats

    @classmethod
    def by_pillow(cls, image: PIL.Image.Image, options: ReadOptions) -> Picture:
        """Pixels and metadata of an image that Pillow opened."""
        picture = cls(
            np.array(image),
            icc=image.info.get("icc_profile"),
            exif=strip_exif_prefix(image.info.get("exif")),
            xmp=image.info.get("xmp"),
        )
        if image.mode == "P":
            if options.palette == "index":
                return replace(picture, palette=bytes(image.getpalette("RGBA") or []))
            return replace(picture, pixels=np.array(image.convert("RGB")), expanded=True)
        if image.mode == "1":
            return replace(picture, pixels=picture.pixels.astype(np.uint8)).scaled(1, options)
        if image.mode not in ("L", "LA", "RGB", "RGBA"):
            raise ImageError(f"{image.mode} images are not supported; convert to RGB or gray")
        return picture

    def scaled(
        self, bits: float, options: ReadOptions, colors: Sequence[int] | None = None
    ) -> Picture:
        """A picture of numbers of 1, 2 or 4 bits, with samples of 0 ... 255; else itself.

        With `palette` "index" the channels `colors` (None: all but alpha) keep their numbers.
        """
        if bits not in (1, 2, 4):
            return self
        pixels = self.pixels * np.uint8(255 // (2 ** int(bits) - 1))
        if options.palette != "index":
            text = f"{bits}-bit samples were scaled to 0 ... 255; --labels keeps numbers of classes"
            return replace(self, pixels=pixels, remarks=(*self.remarks, text))
        kept = range(self.channels - (self.channels_with_alpha > 0)) if colors is None else colors
        planes = np.atleast_3d(pixels)
        planes[:, :, kept] = np.atleast_3d(self.pixels)[:, :, kept]
        return replace(self, pixels=pixels, unscaled=True)

    def with_extra_samples(self, kinds: Sequence[int]) -> Picture:
        """Marks the channels after the colours with kinds of `EXTRA_SAMPLES`."""
        if list(kinds) in ([], [ALPHA]):
            return self
        tag = TiffTag("SHORT", struct.pack(f"<{len(kinds)}H", *kinds))
        return replace(self, metadata=metadata_of_tiff({EXTRA_SAMPLES: tag}), has_alpha=False)


class Writer(NamedTuple):
    """The function that writes a lossless format, and what that holds."""

    write: Callable[[Picture], bytes]
    channels: Collection[int] = range(1, MAX_CHANNELS + 1)
    types: Collection[str] = ("uint8", "uint16")  # of samples
    longest: int = MAX_PIXELS  # side


@dataclass(frozen=True)
class ImageFormat:
    """A format of image files.

    `read_header` raises ImageError for images that are not supported, and for files that were cut
    as far as `read` would not notice. Both raise anything for damaged files.
    """

    read_header: Callable[[bytes], Header]  # decodes nothing
    read: Callable[[bytes, ReadOptions], Picture]
    writers: Mapping[str, Writer] = field(default_factory=dict)  # by suffix
    lossy_name: Callable[[bytes], str | None] = lambda _: None  # of its coding; None if lossless
