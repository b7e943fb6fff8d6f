"""L3 in MosaicML Streaming: after `register()`, columns of MDS shards may have the type "l3".

    l3dali.streaming.register(coding="packed")
    with streaming.MDSWriter(out=folder, columns={"image": "l3", "class": "int"}) as writer: ...
    streaming.StreamingDataset(local=folder)

Readers register too. Without that, use a column of `bytes` with `l3dali.encode(image)`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from streaming.base.format.mds import encodings

from l3dali import codec
from l3dali.arguments import DEFAULT_THREADS
from l3dali.pillow import encode_value

if TYPE_CHECKING:
    from typing_extensions import Buffer, Unpack

__all__ = ["L3Encoding", "register"]

_NAME = "l3"


def register(
    *,
    max_pixels: int | None = codec.DEFAULT_MAX_PIXELS,
    **options: Unpack[codec.EncodeOptions],
) -> None:
    """Adds "l3" to the types of columns that this process writes and reads.

    A written value is an array, a Pillow image, or the bytes of a file; reading returns arrays. A
    second call replaces the options. Spawned processes must register the type themselves.

    Args:
        max_pixels: as in `l3dali.decode`.
        **options: those of `l3dali.encode`; `threads` also decode.
    """
    encodings._encodings[_NAME] = partial(L3Encoding, max_pixels=max_pixels, **options)


class L3Encoding(encodings.Encoding):  # type: ignore[misc]
    """The encoding of Streaming."""

    def __init__(
        self,
        *,
        max_pixels: int | None = codec.DEFAULT_MAX_PIXELS,
        **options: Unpack[codec.EncodeOptions],
    ) -> None:
        """Takes the options of `register`."""
        self._max_pixels = max_pixels
        self._options = options

    def encode(self, obj: Any) -> bytes:
        """Encodes a value; raises as `l3dali.encode`."""
        return encode_value(obj, **self._options)

    def decode(self, data: Buffer) -> codec.Image:
        """Decodes to an array; raises as `l3dali.decode`."""
        threads = self._options.get("threads", DEFAULT_THREADS)
        return codec.decode(data, threads=threads, max_pixels=self._max_pixels)
