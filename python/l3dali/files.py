"""L3 files under a path, behind a URL of fsspec, or open already.

This module finds and moves bytes; `codec` interprets them.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from l3dali import codec
from l3dali.arguments import DEFAULT_THREADS, checked_window, contiguous
from l3dali.atomic import write_atomically
from l3dali.errors import UsageError
from l3dali.parts import (
    HEAD_BYTES,
    Member,
    OpenFile,
    RemoteFiles,
    file_system,
    is_url,
    name_of,
    naming,
    os_error,
    read_open,
)
from l3dali.signatures import IMAGE_SUFFIXES, suffix_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    from _typeshed import SupportsRead, SupportsWrite
    from typing_extensions import Buffer, Unpack

__all__ = ["imread", "imwrite", "info"]


Source: TypeAlias = "str | os.PathLike[str] | SupportsRead[Any]"
Target: TypeAlias = "str | os.PathLike[str] | SupportsWrite[bytes]"


def imread(
    file: Source,
    *,
    window: codec.Window | None = None,
    channels: Sequence[int] | None = None,
    threads: int = DEFAULT_THREADS,
    orient: bool = False,
    max_pixels: int | None = codec.DEFAULT_MAX_PIXELS,
) -> codec.Image:
    """Decodes an L3 file: (H, W) for one channel, else (H, W, C), of the stored type.

    Args:
        file: a path, a URL of fsspec (`s3://...`), or a file opened for reading bytes.
        window: as in `decode`; with `orient`, of the upright image. Only header, index and the
            tiles of the window are read, but for files that cannot seek.
        channels: as in `decode`; only their groups are read.
        threads: as in `decode`.
        orient: turn the image as its EXIF orientation says.
        max_pixels: as in `decode`.

    Raises:
        L3Error: as in `decode`; the message names the file. A part of a URL or of an open file
            may be decoded although another part is damaged, or data follows the image.
        OSError: the file cannot be read. Requests to a server are repeated for 25 s.
        TypeError, ValueError: an argument is not valid.
        UsageError: the URL needs fsspec, or another package, that is not installed.
    """
    windows = [checked_window("window", window)]

    def make(items: Sequence[Any], is_partial: bool = True) -> codec.DecodeBatch:
        return codec.open_batch(
            items, windows, max_pixels, channels, orients=bool(orient), is_partial=is_partial
        )

    is_part = window is not None or channels is not None
    with naming(file):
        if is_part and is_url(file):
            batch = RemoteFiles([Member(file)]).open_batch(make)
        elif is_part and isinstance(file, (str, os.PathLike)) and Path(file).is_file():
            batch = make([Member(os.fspath(file))], is_partial=False)
        elif is_part and hasattr(file, "seekable") and file.seekable():
            batch = OpenFile(file, seeks=True).open_batch(make)
        else:
            batch = make([contiguous(_read(file))], is_partial=False)
        return codec.run_decode(batch, None, threads)[0]


def imwrite(file: Target, image: npt.ArrayLike, **options: Unpack[codec.EncodeOptions]) -> None:
    """Encodes an image into an L3 file.

    A local file appears whole or not at all.

    Args:
        file: a path, a URL of fsspec, or a file opened for writing bytes.
        image: as in `encode`.
        **options: those of `encode`.

    Raises:
        OSError: the file cannot be written.
        L3Error, TypeError, ValueError: as in `encode`; ValueError also if the name of `file` has
            the suffix of another image format.
        UsageError: as in `imread`.
    """
    if isinstance(image, (str, os.PathLike)):
        raise TypeError("imwrite takes the path first, then the array: imwrite('a.l3', image)")
    suffix = suffix_of(name_of(file))
    if suffix.lower() in IMAGE_SUFFIXES and not hasattr(file, "write"):
        raise ValueError(
            f"imwrite only writes .l3 files, but {name_of(file)} ends in {suffix}; "
            "use l3 decode to convert L3 files"
        )
    data = codec.encode(image, **options)
    if is_url(file):
        with _remote(file) as (fs, path):
            fs.pipe_file(path, data)
    elif isinstance(file, (str, os.PathLike)):
        write_atomically(Path(file), data)
    elif isinstance(file, io.RawIOBase):  # One write may take a part of the data.
        buffered = io.BufferedWriter(file)
        buffered.write(data)
        buffered.detach()
    elif hasattr(file, "write"):
        file.write(data)
    else:
        raise _type_error("imwrite", file, "; l3dali.encode returns the bytes")


def info(file: Source | Buffer) -> codec.Info:
    """Reads the metadata of an L3 file, without decoding tiles.

    Only header, chunks and index are read and validated; a partial file is enough.

    Args:
        file: the bytes of an L3 file, or a `file` of `imread`.

    Raises:
        L3Error: header, chunks or index are damaged or incomplete, the data is not an L3 file,
            or data follows the image.
        OSError, TypeError, UsageError: as in `imread`.
    """
    with naming(file):
        if is_url(file):
            return RemoteFiles([Member(file)], HEAD_BYTES).info()
        if isinstance(file, (str, os.PathLike)):
            with Path(file).open("rb") as opened:
                return read_info(opened)
        try:
            data = memoryview(file)  # type: ignore[arg-type]
        except TypeError:
            if hasattr(file, "read"):
                return read_info(file)  # type: ignore[arg-type]
            raise TypeError(
                f"info takes bytes, a path, URL or file, not {type(file).__name__}"
            ) from None
        return codec.info(data)


def read_info(file: SupportsRead[Any]) -> codec.Info:
    """`info` of an open file; reads little more than header, chunks and index.

    Raises:
        L3Error: as `info`.
    """
    return OpenFile(file, seeks=False).info()


@contextlib.contextmanager
def _remote(url: str) -> Iterator[tuple[Any, str]]:
    """A file system and the path in it; exceptions of libraries are OSErrors that name the URL."""
    try:
        yield file_system(url)
    except (ImportError, ValueError, UsageError):  # The call itself is wrong.
        raise
    except Exception as error:
        raise os_error(error, url) from error


def _read(file: Any) -> Buffer:
    if is_url(file):
        return RemoteFiles([Member(file)], None).heads[0]
    if isinstance(file, (str, os.PathLike)):
        return Path(file).read_bytes()
    if hasattr(file, "read"):
        return read_open(file)
    raise _type_error("imread", file, "; l3dali.decode takes the bytes of a file")


def _type_error(function: str, file: object, instead: str) -> TypeError:
    return TypeError(f"{function} takes a path, URL or file, not {type(file).__name__}{instead}")
