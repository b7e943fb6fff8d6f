"""L3 in webdataset: `.l3` members decoded to arrays, and arrays written as `.l3` members.

    dataset = webdataset.WebDataset(urls).decode(l3dali.webdataset.decode)
    writer = webdataset.TarWriter("shard.tar", encoder=l3dali.webdataset.handlers())

For images of Pillow or float tensors call `l3dali.pillow.register()`, then decode with
`webdataset.imagehandler("torchrgb", extensions=["l3"])`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from l3dali import codec
from l3dali.arguments import DEFAULT_THREADS

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

__all__ = ["decode", "handlers"]


def decode(
    key: str,
    data: bytes,
    *,
    threads: int = DEFAULT_THREADS,
    max_pixels: int | None = codec.DEFAULT_MAX_PIXELS,
) -> codec.Image | None:
    """A handler for `WebDataset.decode`; `functools.partial` sets the options.

    Args:
        key: the member's suffix, as ".l3" or ".mask.l3".
        data: its bytes.
        threads: as in `l3dali.decode`.
        max_pixels: as in `l3dali.decode`.

    Returns:
        The array of `l3dali.decode`, or None for other suffixes.

    Raises:
        L3Error: the member is damaged; webdataset adds the sample's name in a `DecodingError`.
    """
    if key.rpartition(".")[2].lower() != "l3":
        return None
    return codec.decode(data, threads=threads, max_pixels=max_pixels)


def handlers(**options: Unpack[codec.EncodeOptions]) -> dict[str, Callable[[Any], bytes]]:
    """The `encoder` for `TarWriter` and `ShardWriter`: webdataset's own handlers and `.l3`.

    Values of `.l3` are arrays, Pillow images, or bytes of files. Options are those of
    `l3dali.encode`.
    """
    from webdataset.writer import default_handlers

    from l3dali.pillow import encode_value

    return {**default_handlers, "l3": partial(encode_value, **options)}
