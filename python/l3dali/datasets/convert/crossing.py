"""Zip archives that become tar shards, and tar shards that become zip archives.

Names, data, order, times, modes, links and comments stay. Tar files have no place for the extra
fields of zip archives, nor these for owners and pax headers.
"""

from __future__ import annotations

import calendar
import stat
import tarfile
import tempfile
import time
import zipfile
from typing import TYPE_CHECKING, BinaryIO

from l3dali.datasets.convert import tar, zip_archive
from l3dali.datasets.convert.storage import CHUNK_BYTES, naming
from l3dali.datasets.convert.tar_headers import TarError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from l3dali.datasets.convert.images import Options
    from l3dali.datasets.convert.pipeline import ImagePool
    from l3dali.datasets.convert.storage import HashedReader, HashedWriter

_TIME_EXTRA = b"UT"  # seconds since 1970, where other times are local and of two seconds
_HAS_MTIME = 1
_COMMENT = "comment"  # POSIX has this key for it
_NAMES = "utf-8", "surrogateescape"
_MAX_COMMENT_BYTES = 2**16 - 1
_FIRST_SECOND, _LAST_SECOND = 315_532_800, 4_354_819_198  # of zip archives: 1980, 2107


def write_tar(source: BinaryIO, target: HashedWriter, pool: ImagePool) -> str | None:
    """Converts a zip archive to a tar file; returns the text of its DALI index."""
    writer = tar.Writer(target, pool.options)
    with zip_archive.opened(source) as archive:
        for member, outcomes in pool.convert(_as_tar(archive, pool.options)):
            writer.add(member, outcomes[0] if outcomes else None)
            del member, outcomes
    return writer.finish()


def _as_tar(archive: zipfile.ZipFile, options: Options) -> Iterator[tar.Member]:
    shared = {_COMMENT: archive.comment.decode(*_NAMES)} if archive.comment else {}
    header = tarfile.TarInfo.create_pax_global_header(shared) if shared else b""
    for member in zip_archive.read_members(archive, options):
        info = _tar_info(member.info)
        data, rest = b"", None
        if member.blobs:
            data = member.blobs[0].data
        elif zip_archive.is_link(member.info):
            link = b"".join(zip_archive.chunks_of(archive, member.info))
            info.type, info.size, info.linkname = tarfile.SYMTYPE, 0, link.decode(*_NAMES)
        elif not member.info.is_dir():
            data, rest = _read(archive, member.info)
        if info.pax_headers:
            header += info.tobuf(tarfile.PAX_FORMAT, *_NAMES)
        else:
            header += info.tobuf(tarfile.GNU_FORMAT, *_NAMES)
        padding = bytes(-info.size % tarfile.BLOCKSIZE)
        yield tar.Member(info, header, data, rest, padding, shared, member.blobs)
        header = b""
        del member, data, rest


def _tar_info(old: zipfile.ZipInfo) -> tarfile.TarInfo:
    info = tarfile.TarInfo(old.filename)
    mode = old.external_attr >> 16 or (0o755 if old.is_dir() else 0o644)
    info.mode = stat.S_IMODE(mode)
    info.mtime = _time_of(old)
    if old.is_dir():
        info.type = tarfile.DIRTYPE
    else:
        info.size = old.file_size
    if old.comment:
        info.pax_headers = {_COMMENT: old.comment.decode(*_NAMES)}
    return info


def _time_of(info: zipfile.ZipInfo) -> int:
    """Seconds since 1970; where the archive has local times alone, these as if they were UTC."""
    for kind, body in zip_archive.fields_of(info.extra):
        if kind.to_bytes(2, "little") == _TIME_EXTRA and len(body) >= 5 and body[0] & _HAS_MTIME:
            seconds = int.from_bytes(body[1:5], "little", signed=True)
            if seconds >= 0:
                return seconds
    year, month, *rest = info.date_time
    return calendar.timegm((year, min(max(month, 1), 12), *rest))  # A damaged one has month 0.


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> tuple[bytes, BinaryIO | None]:
    """The data of a member; of a large one the first part, and a file with the rest."""
    data, rest = b"", None
    for chunk in zip_archive.chunks_of(archive, info):
        if rest is None and len(data) + len(chunk) <= tar.SPOOLED_BYTES:
            data += chunk
            continue
        if rest is None:
            rest = tempfile.TemporaryFile()  # noqa: SIM115 (closed when written)
        with naming(tempfile.gettempdir()):
            rest.write(chunk)
    if rest is not None:
        rest.seek(0)
    return data, rest


def write_zip(source: HashedReader, target: HashedWriter, pool: ImagePool) -> str | None:
    """Converts a tar file to a zip archive; there is no index to return."""
    with zip_archive.Writer(target, pool.options) as result:
        for member, outcomes in pool.convert(tar.read_entries(source, pool.options)):
            info = _zip_info(member)
            result.comment = _comment_of(member.global_pax.get(_COMMENT, ""))
            result.add(info, _chunks_of(member), outcomes[0] if outcomes else None)
            del member, outcomes
    return None


def _zip_info(member: tar.Member) -> zipfile.ZipInfo:
    old = member.info
    name = old.name + "/" * old.isdir()
    kind = stat.S_IFDIR if old.isdir() else stat.S_IFLNK if old.issym() else stat.S_IFREG
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise TarError(f"{name}: a name that is not UTF-8, as zip archives have it") from None
    if not encoded or b"\0" in encoded:
        raise TarError(f"{name!r}: a name that zip archives cannot have")
    if not (old.isreg() or old.isdir() or old.issym()) or old.issparse():
        raise TarError(
            f"{name}: neither whole file, folder nor symbolic link; zip archives have no more"
        )
    seconds = int(old.mtime)
    date = time.gmtime(min(max(_FIRST_SECOND, seconds), _LAST_SECOND))
    info = zipfile.ZipInfo(name, date[:6])
    info.create_system = 3  # Unix, whose modes follow
    info.external_attr = (kind | stat.S_IMODE(old.mode)) << 16 | 0x10 * old.isdir()
    if 0 <= seconds < 2**31:
        info.extra = _TIME_EXTRA + b"\5\0" + bytes([_HAS_MTIME]) + seconds.to_bytes(4, "little")
    comment = old.pax_headers.get(_COMMENT, "")
    if comment != member.global_pax.get(_COMMENT):
        info.comment = _comment_of(comment)
    if not member.blobs:
        info.compress_type = zipfile.ZIP_DEFLATED
    info.file_size = 0 if old.issym() else old.size
    return info


def _comment_of(text: str) -> bytes:
    comment = text.encode(*_NAMES)
    if len(comment) > _MAX_COMMENT_BYTES:
        raise TarError(f"a comment of {len(comment)} bytes; zip archives have {_MAX_COMMENT_BYTES}")
    return comment


def _chunks_of(member: tar.Member) -> Iterator[bytes]:
    if member.info.issym():
        yield member.info.linkname.encode(*_NAMES)
        return
    yield member.data
    if member.rest is not None:
        with member.rest:
            while chunk := member.rest.read(CHUNK_BYTES):
                yield chunk
