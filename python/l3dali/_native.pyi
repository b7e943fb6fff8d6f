from typing import Any, TypedDict

import numpy.typing as npt
from typing_extensions import Buffer

class InfoDict(TypedDict):
    width: int
    height: int
    channels: int
    bit_depth: int
    used_bits: int
    shift: int
    tile_width: int
    tile_height: int
    labels: bool
    tile_count: int
    value_count: int
    bytes: int
    raw_bytes: int
    codings: dict[str, int] | None
    chunks: dict[str, Any]  # bytes, a name that the field above takes

def encode(
    image: npt.NDArray[Any],
    *,
    mode: str,
    effort: int,
    threads: int,
    tile: tuple[int, int] | None,
    labels: bool,
    icc: bytes | None,
    exif: bytes | None,
    palette: bytes | None,
) -> bytes: ...
def decode(data: Buffer, *, threads: int, max_pixels: int) -> npt.NDArray[Any]: ...
def info(data: Buffer) -> InfoDict: ...
def verify(data: Buffer, *, threads: int, max_pixels: int) -> None: ...
