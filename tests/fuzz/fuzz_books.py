"""Damaged containers, manifests, profiles and plans through `l3 convert` and `l3 plan`.

    python tests/fuzz/fuzz_books.py tar --runs 2000 --seed 0

Whatever they hold, a command ends with 0 or 2, in time and memory (`fuzz_readers.py`, whose driver
this uses). A result that appears can be read, a failure leaves nothing but an index, and what is
not in DEST stays as it is.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import random
import re
import struct
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

FUZZ = Path(__file__).parent
sys.path[:0] = [str(FUZZ), str(FUZZ.parent / "datasets")]

import fuzz_readers  # noqa: E402
from fuzz_readers import _mutate_bytes  # noqa: E402

_ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 2**31, 2**63, 1e308, float("nan"), 0.5, [], {}),
    *(
        "",
        "x",
        "\0",
        "\33[2J\n",
        "../victim",
        "/etc/passwd",
        "a" * 300,
        "d/../../victim",
        "rans",
        "png",
    ),
)


# Seeds.


def tars() -> list[bytes]:
    import tarfile

    from convert_tools import pax, samples, write_tar

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a.tar"
        many = [*samples(2), ("a" * 200 + "/0003.png", samples(1)[1][1])]
        formats = (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
        files = [write_tar(path, many, format).read_bytes() for format in formats]
    shared = pax("g", tarfile.XGLTYPE, b"20 comment=everyone\n")
    return [*files, shared + files[1]]


def records() -> list[bytes]:
    from convert_tools import png
    from test_convert_containers import example, frame

    both = [frame(example(("image", png()), sequence=each)) for each in (False, True)]
    return [*both, b"".join(both)]


def columns() -> tuple[Any, ...]:
    """Images as the containers of Arrow hold them."""
    import pyarrow as pa
    from convert_tools import png

    return (
        pa.array([png(0), b"text", None]),
        pa.array([{"bytes": png(i), "path": f"{i}.png"} for i in range(3)]),
        pa.array([[png(0), png(1)], [], None]),
        pa.array([png(0)] * 3).dictionary_encode(),
    )


def parquets() -> list[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = []
    for column in columns():
        for compression in ("none", "snappy"):
            file = io.BytesIO()
            pq.write_table(pa.table({"image": column}), file, compression=compression)
            files.append(file.getvalue())
    return files


def arrows() -> list[bytes]:
    import pyarrow as pa
    from convert_tools import png
    from pyarrow import ipc

    files = []
    for column in (*columns(), pa.array([png(0), b"text"], pa.binary_view())):
        table = pa.table({"image": column})
        for new in (ipc.new_file, ipc.new_stream):
            for compression in (None, "lz4", "zstd"):
                file = io.BytesIO()
                with new(
                    file, table.schema, options=ipc.IpcWriteOptions(compression=compression)
                ) as out:
                    out.write_table(table)
                files.append(file.getvalue())
    return files


def zips() -> list[bytes]:
    import zipfile

    from convert_tools import png

    files = []
    for packing in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", packing) as archive:
            archive.writestr("a/", b"")
            archive.writestr("a/0.png", png(0))
            link = zipfile.ZipInfo("link")
            link.external_attr = 0o120777 << 16
            archive.writestr(link, "a/b")
            with archive.open("1.png", "w", force_zip64=True) as member:
                member.write(png(1))
            archive.writestr("words.txt", "words " * 100)
            archive.comment = b"a comment"
        files.append(file.getvalue())
    return files


def manifests() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        _make_source(Path(name))
        _l3("convert", f"{name}/s", f"{name}/d", "-j1", "--effort=1")
        return [Path(name, "d", "l3-manifest.jsonl").read_bytes()]


@functools.cache
def _profile() -> bytes:
    from test_liquid_plan import make_profile

    return make_profile(count=4).to_json().encode()


def profiles() -> list[bytes]:
    return [_profile()]


def hosts() -> list[bytes]:
    from l3dali.datasets.liquid import hosts

    folder = Path(hosts.__file__).with_name("hosts")
    return [(folder / f"{name}.json").read_bytes() for name in ("dgx-a100", "cpu-node")]


def plans() -> list[bytes]:
    from convert_tools import make_plan

    with tempfile.TemporaryDirectory() as name:
        shares = {"source": 0.2, "rans": 0.5, "packed": 0.3}
        return [make_plan(_make_source(Path(name)), shares).to_json().encode()]


# Mutations that know the structure.


def change_tar(data: bytes, rng: random.Random) -> bytes:
    """In headers, whose checksums are made right again."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        block = 512 * rng.randrange(len(out) // 512)
        part = bytes(out[block : block + 512])
        out[block : block + 512] = _mutate_bytes(part, rng).ljust(512, b"\0")[:512]
    for block in range(0, len(out) - 511, 512):
        if out[block + 257 : block + 262] == b"ustar":
            header = out[block : block + 512]
            header[148:156] = b" " * 8
            out[block + 148 : block + 156] = b"%06o\0 " % sum(header)
    return _mutate_bytes(bytes(out), rng) if rng.random() < 0.1 else bytes(out)


def change_some(data: bytes, rng: random.Random) -> bytes:
    """In one to four places."""
    for _ in range(rng.randint(1, 4)):
        data = _mutate_bytes(data, rng)
    return data


def change_zip(data: bytes, rng: random.Random) -> bytes:
    """In headers of members, and the directory."""
    if rng.random() < 0.2:
        return _mutate_bytes(data, rng)
    out = bytearray(data)
    headers = [found.start() for found in re.finditer(rb"PK[\x01\x03\x05][\x02\x04\x06]", data)]
    for _ in range(rng.randint(1, 3)):
        at = rng.choice(headers) + rng.randrange(4, 50)
        number = rng.choice(
            (0, 1, 0xFFFF, 0xFFFFFFFF, rng.randrange(len(out)), rng.getrandbits(32))
        )
        size = rng.choice((1, 2, 4))
        out[at : at + size] = (number & (1 << 8 * size) - 1).to_bytes(size, "little")
    return bytes(out)


def change_records(data: bytes, rng: random.Random) -> bytes:
    """In records, which are framed anew."""
    from test_convert_containers import frame

    if rng.random() < 0.1:
        return _mutate_bytes(data, rng)
    changed, at = b"", 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        record = data[at + 12 : at + 12 + size]
        changed += frame(_mutate_bytes(record, rng) if rng.random() < 0.7 else record)
        at += 16 + size
    return changed


def change_json(data: bytes, rng: random.Random) -> bytes:
    """In values of JSON, one a line or one in all."""
    if rng.random() < 0.1:
        return _mutate_bytes(data, rng)
    is_lines = data.count(b"\n{") > 0 or data.rstrip().count(b"\n") == 0
    texts = data.splitlines() if is_lines else [data]
    at = rng.randrange(len(texts))
    root: Any = [json.loads(texts[at])]
    for _ in range(rng.randint(1, 3)):
        _change_value(root, rng)
    texts[at] = json.dumps(root[0]).encode() if root else b""
    return b"\n".join(texts) + b"\n"


def _change_value(value: Any, rng: random.Random) -> None:
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys:
        return
    key = rng.choice(keys)
    if isinstance(value[key], (dict, list)) and value[key] and rng.random() < 0.85:
        _change_value(value[key], rng)
    elif rng.random() < 0.1:
        del value[key]
    else:
        value[key] = rng.choice(_ODD)


# Checks.


def _make_source(folder: Path) -> Path:
    (folder / "s").mkdir()
    for name, data in _sources().items():
        (folder / "s" / name).write_bytes(data)
    (folder / "victim").write_bytes(b"victim")
    return folder / "s"


@functools.cache
def _sources() -> dict[str, bytes]:
    from convert_tools import png, samples, write_tar

    with tempfile.TemporaryDirectory() as name:
        shard = write_tar(Path(name, "a.tar"), samples(2)).read_bytes()
    return {"a.tar": shard, "0.png": png()}


def _l3(*arguments: str) -> None:
    from l3dali import cli

    if not hasattr(cli.make_parser, "cache_clear"):  # It takes longer than most commands here.
        cli.make_parser = functools.cache(cli.make_parser)
    with (
        contextlib.redirect_stdout(io.StringIO()) as shown,
        contextlib.redirect_stderr(io.StringIO()) as told,
    ):
        code = cli.main(arguments)
    text = shown.getvalue() + told.getvalue()
    if code not in (0, 2):
        raise AssertionError(f"{arguments} ended with {code}: {told.getvalue()}")
    if "\33" in text:
        raise AssertionError(f"{arguments} sends control characters to a terminal: {text!r}")


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_container(kind: str, suffix: str, data: bytes) -> None:
    from l3dali.datasets.convert.images import Options
    from l3dali.datasets.convert.job import Job, convert_job, read_blobs
    from l3dali.datasets.convert.manifest import DONE
    from l3dali.datasets.convert.storage import open_folder

    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name, "s"), Path(name, "d")
        source.mkdir()
        (source / f"a{suffix}").write_bytes(data)
        files = tuple(open_folder(str(source)).list_files().files.values())
        (row,) = convert_job(Job(kind, str(source), str(target), files, Options(effort=1)))
        left = {path.name for path in _contents(target)}
        if row.status != DONE:
            assert row.reason, "a failure without a reason"
            assert left <= {"a.idx"}, f"{row.reason}: left {left}"
            return
        assert left <= {f"a{suffix}", "a.idx"}, left
        for _ in read_blobs(Job(kind, str(target), name, files, Options(to="png")), f"a{suffix}"):
            pass


def _is_chosen(data: bytes) -> bool:
    """Whether a command is run, which takes ten times what it reads: for one input of 16."""
    return zlib.crc32(data) % 16 == 0


def check_manifest(data: bytes) -> None:
    from l3dali.datasets.convert.manifest import row_of_json

    for line in data.decode(errors="replace").split("\n"):
        row = row_of_json(line)
        assert row is None or row_of_json(row.to_json()) == row, line
    if not _is_chosen(data):
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = _make_source(folder)
        before = _contents(source)
        (folder / "d").mkdir()
        (folder / "d" / "l3-manifest.jsonl").write_bytes(data)
        _l3("convert", str(source), f"{name}/d", "-j1", "--effort=1", "--remove-gone")
        assert _contents(source) == before, "a source has changed"
        assert (folder / "victim").read_bytes() == b"victim"
        assert {path.name for path in folder.iterdir()} == {"s", "d", "victim"}


def check_profile(data: bytes) -> None:
    from l3dali.datasets.liquid.profile import parse_profile

    _judge_reader(parse_profile, data)
    if not _is_chosen(data):
        return
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "profile.json")
        path.write_bytes(data)
        _l3("plan", str(path), "-o", f"{name}/plan.json")


def _judge_reader(parse: Callable[[bytes], Any], data: bytes) -> None:
    from l3dali.errors import UsageError

    try:
        parse(data)
    except UsageError as error:
        if not str(error):
            raise AssertionError("an error without a reason") from error


def check_host(data: bytes) -> None:
    from l3dali.datasets.liquid.hosts import parse_host

    _judge_reader(parse_host, data)
    if not _is_chosen(data):
        return
    with tempfile.TemporaryDirectory() as name:
        profile, host = Path(name, "profile.json"), Path(name, "host.json")
        profile.write_bytes(_profile())
        host.write_bytes(data)
        asked = ("--host", str(host), "--simulate")
        _l3("plan", str(profile), *asked, "-o", f"{name}/plan.json")


def check_plan(data: bytes) -> None:
    from l3dali.datasets.liquid.plan import parse_plan

    _judge_reader(parse_plan, data)
    if not _is_chosen(data):
        return
    with tempfile.TemporaryDirectory() as name:
        source = _make_source(Path(name))
        path = Path(name, "plan.json")
        path.write_bytes(data)
        _l3("convert", str(source), f"{name}/d", "--plan", str(path), "--allow-changes", "-j1")


def _of(kind: str, suffix: str) -> Callable[[bytes], None]:
    return lambda data: check_container(kind, suffix, data)


TARGETS = {
    "tar": (tars, change_tar, _of("webdataset", ".tar")),
    "tfrecord": (records, change_records, _of("tfrecord", ".tfrecord")),
    "parquet": (parquets, _mutate_bytes, _of("parquet", ".parquet")),
    "arrow": (arrows, change_some, _of("arrow", ".arrow")),
    "zip": (zips, change_zip, _of("zip", ".zip")),
    "manifest": (manifests, change_json, check_manifest),
    "profile": (profiles, change_json, check_profile),
    "host": (hosts, change_json, check_host),
    "plan": (plans, change_json, check_plan),
}


if __name__ == "__main__":
    modules = ["l3dali.cli.convert", "l3dali.cli.plan", "l3dali.datasets.convert.work"]
    sys.exit(fuzz_readers.run_target(TARGETS, __doc__, modules))
