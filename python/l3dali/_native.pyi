from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import numpy.typing as npt
from typing_extensions import Buffer

class InfoDict(TypedDict):
    width: int
    height: int
    channels: int
    groups: list[list[int]]
    dtype: str
    bit_depth: int
    holding: str
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
    other_chunks: Any  # bytes
    restores_jpeg: bool

def encode(
    image: npt.NDArray[Any],
    *,
    coding: str,
    effort: int,
    threads: int,
    tile: tuple[int, int] | None,
    labels: bool,
    icc: bytes | None,
    exif: bytes | None,
    palette: bytes | None,
    xmp: bytes | None,
    metadata: bytes | None,
    other_chunks: bytes | None,
    groups: Sequence[Sequence[int]],
) -> bytes: ...

# The file and whether the JPEG file comes back byte for byte, or None and the reason.
def encode_jpeg(
    jpeg: bytes, *, threads: int, tile: tuple[int, int] | None, metadata: bytes | None
) -> tuple[bytes, bool] | tuple[None, str]: ...
def restore_jpeg(data: Buffer, *, threads: int) -> bytes | None: ...

class DecodeBatch:
    def __init__(
        self,
        # Files, or places of files: path, first byte, and bytes or None.
        items: Sequence[Buffer] | Sequence[tuple[str, int, int | None]],
        *,
        windows: Sequence[tuple[int, int, int, int] | None],
        colors: str,
        dtype: str | None,
        channels_first: bool,
        max_pixels: int,
        names_items: bool,
        channels: Sequence[int] = (),
        fills_range: bool | None = None,
        orients: bool = False,
        is_partial: bool = False,
        threads: int = 1,  # that read files at places
    ) -> None: ...
    @property
    def shapes(self) -> list[tuple[int, int, int]]: ...
    @property
    def dtypes(self) -> list[str]: ...
    @property
    def head_bytes(self) -> list[int]: ...  # of each file, before its first payload
    @property
    def file_bytes(self) -> list[int]: ...  # of each file, by its head
    def ranges(self, max_gap: int) -> list[list[tuple[int, int]]]: ...
    def complete(self, files: Sequence[Buffer]) -> None: ...
    def decode(
        self, addresses: Sequence[int], *, row_strides: Sequence[int] | None, threads: int
    ) -> None: ...

def info(data: Buffer) -> InfoDict: ...
def list_chunks(area: bytes) -> list[tuple[str, int]]: ...
def set_check(check: Callable[[], object] | None) -> Callable[[], object] | None: ...
