"""L3 in imageio, and so in scikit-image: `imageio.v3.imread` and `imwrite`, after `register()`.

Unlike Pillow, imageio supports several channels of 16 bits.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
from imageio.config import (
    FileExtension,
    PluginConfig,
    extension_list,
    known_extensions,
    known_plugins,
)
from imageio.core.request import URI_BYTES, InitializationError, IOMode, Request
from imageio.core.v3_plugin_api import ImageProperties, PluginV3

from l3dali import codec
from l3dali.arguments import DEFAULT_THREADS
from l3dali.files import read_info
from l3dali.signatures import L3_SIGNATURE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import EllipsisType

    import numpy.typing as npt
    from typing_extensions import Unpack

__all__ = ["L3Plugin", "register"]
_NAME = "L3"


def register() -> None:
    """Adds L3 to the formats that imageio knows in this process; a repeat does nothing.

    `imread` returns what `l3dali.decode` does; `imwrite` takes the options of `l3dali.encode`.
    After `l3dali.pillow.register()` bytes and streams need `plugin="L3"`: imageio tries Pillow
    first.
    """
    if _NAME in known_plugins:
        return
    known_plugins[_NAME] = PluginConfig(_NAME, L3Plugin.__name__, __name__, install_name="l3dali")
    extension = FileExtension(name="L3 lossless image", extension=".l3", priority=[_NAME])
    extension_list.append(extension)
    known_extensions[extension.extension] = [extension]


class L3Plugin(PluginV3):  # type: ignore[misc]
    """One L3 image, as a plugin of imageio."""

    def __init__(self, request: Request) -> None:
        """Opens a request; imageio's interface."""
        super().__init__(request)
        self._has_written = False
        if request.mode.io_mode == IOMode.read:
            self._file = request.get_file()
            if not hasattr(self._file, "seekable") or not self._file.seekable():
                self._file = io.BytesIO(self._file.read())
            first = self._file.read(len(L3_SIGNATURE))
            self._file.seek(0)  # for other plugins, too
            if first != L3_SIGNATURE:
                raise InitializationError(f"{request.raw_uri!r} is not an L3 file")
        elif (request.extension or request.format_hint or ".l3") != ".l3":
            raise InitializationError("names of L3 files must end in .l3")

    def read(
        self,
        *,
        index: int | EllipsisType | None = None,
        mode: None = None,
        threads: int = DEFAULT_THREADS,
        max_pixels: int | None = codec.DEFAULT_MAX_PIXELS,
    ) -> codec.Image:
        """The array of `l3dali.decode`.

        Args:
            index: None or 0; or `...`, for an array with one more axis in front.
            mode: only None is supported.
            threads: as in `l3dali.decode`.
            max_pixels: as in `l3dali.decode`.

        Raises:
            IndexError: there is no image of that index.
            L3Error: the file is damaged or too large.
            ValueError: there is a mode.
        """
        if mode is not None:
            raise ValueError("the L3 plugin cannot convert colours: read without mode")
        is_batch = _is_batch(index)
        pixels = codec.decode(self._bytes(), threads=threads, max_pixels=max_pixels)
        return pixels[np.newaxis] if is_batch else pixels

    def iter(self, **options: Any) -> Iterator[codec.Image]:
        """The one image; the options are those of `read`."""
        yield self.read(**options)

    def write(self, ndimage: npt.ArrayLike, **options: Unpack[codec.EncodeOptions]) -> bytes | None:
        """Encodes an image; the options are those of `l3dali.encode`.

        Returns:
            The file, if it was asked for as "<bytes>".

        Raises:
            TypeError: as `l3dali.encode`.
            ValueError: as `l3dali.encode`, or there are several images.
        """
        several = isinstance(ndimage, list | tuple) and any(
            isinstance(i, np.ndarray) for i in ndimage
        )
        if several or self._has_written:
            raise ValueError("an L3 file holds one image; stack channels by np.dstack")
        data = codec.encode(ndimage, **options)  # before a file is opened, which empties it
        self.request.get_file().write(data)
        self._has_written = True
        return data if self.request._uri_type == URI_BYTES else None

    def properties(self, index: int | EllipsisType | None = None) -> ImageProperties:
        """Shape and type, from the head of the file; `index` as in `read`."""
        is_batch = _is_batch(index)
        info = self._info()
        if is_batch:
            return ImageProperties((1, *info.shape), info.dtype, n_images=1, is_batch=True)
        return ImageProperties(info.shape, info.dtype)

    def metadata(
        self, index: int | EllipsisType | None = None, exclude_applied: bool = True
    ) -> dict[str, Any]:
        """`icc`, `exif`, `palette`, `labels`, `xmp` and `metadata` of `l3dali.Info`, if there.

        Raises:
            ValueError: the key-value pairs of `metadata` are damaged.
        """
        _is_batch(index)
        info = self._info()
        names = ("icc", "exif", "palette", "labels", "xmp", "metadata")
        return {name: getattr(info, name) for name in names if getattr(info, name)}

    def _bytes(self) -> bytes:
        self._file.seek(0)
        return self._file.read()  # type: ignore[no-any-return]

    def _info(self) -> codec.Info:
        self._file.seek(0)
        return read_info(self._file)


def _is_batch(index: int | EllipsisType | None) -> bool:
    if index not in (None, 0, ...):
        raise IndexError(f"index {index!r} is out of range: an L3 file holds one image, index 0")
    return index is ...
