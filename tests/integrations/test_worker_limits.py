"""`l3 convert` of decompression bombs, each beside a sound tar: one bound of memory and CPU.

Each of them is listed with its reason, or converted; the tar is converted.
"""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from convert_tools import as_pixels, data_of, files_below, image, samples, saved, write_tar

MOST_BYTES, MOST_SECONDS = 4.7 * 2**30, 60  # of the largest process; of CPU, all processes together
MOST = 2**31 - 1  # rows of a batch

# Becomes the parent of processes whose parent has ended; prints exit code, CPU seconds and peak.
STARTER = """
import ctypes, os, resource, subprocess, sys
ctypes.CDLL(None).prctl(36, 1)
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
try:
    while os.wait():
        pass
except ChildProcessError:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(code, used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


# Parquet.


def parquet(table: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def repeated(value: Any, count: int) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), value)


def varint(number: int) -> bytes:
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes([*data, number])


def values_of_1_mib() -> bytes:
    value = pa.array([bytes(2**20)], pa.large_binary())
    table = pa.table({"t": repeated(value, 1024)})
    return parquet(table, dictionary_pagesize_limit=2**30, store_schema=False)


def a_page_of_2_gb() -> bytes:
    numbers = np.random.default_rng(1).integers(2**63, size=2000)
    data = parquet(pa.table({"i": numbers}), compression="brotli", use_dictionary=False)
    size = varint(2 * 2**30)
    return (data[:7] + size + data[10:1000] + data[1000 + len(size) - 3 :])[: len(data)]


PARQUET: dict[str, Callable[[], bytes]] = {
    "1,024 times 1 MiB": values_of_1_mib,
    "50 million rows": lambda: parquet(pa.table({"i": repeated([b""], 50_000_000)})),
    "300 columns": lambda: parquet(pa.table({str(i): np.zeros(2**20, "i1") for i in range(300)})),
    "a page of 2 GB": a_page_of_2_gb,
    "masks in lists": lambda: parquet(
        pa.table({"m": pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2**26, "u1")), 2**25)})
    ),
}


# Arrow.


def arrow(column: Any, batches: int = 1, **options: Any) -> bytes:
    file = io.BytesIO()
    batch = pa.record_batch([column], ["i"])
    write = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(file, batch.schema, options=write) as stream:
        for _ in range(batches):
            stream.write_batch(batch)
    return file.getvalue()


def in_list(values: Any) -> Any:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


def views(value: bytes, count: int, *further: Any) -> Any:
    """So many views of the same bytes."""
    _, view, data = pa.array([value], pa.binary_view()).buffers()
    same = pa.py_buffer(view.to_pybytes()[:16] * count)
    return pa.Array.from_buffers(pa.binary_view(), count, [None, same, data, *further])


ARROW: dict[str, Callable[[], bytes]] = {
    "2^31 nulls": lambda: arrow(pa.Array.from_buffers(pa.null(), MOST, [None])),
    "a list of 2^31": lambda: arrow(
        in_list(pa.Array.from_buffers(pa.binary(0), MOST, [None, pa.py_buffer(b"")]))
    ),
    "views of 4 GB in a list": lambda: arrow(in_list(views(bytes(200_000), 20_000))),
    "6 times 1 GiB": lambda: arrow(
        pa.array([bytes(2**30)], pa.large_binary()), batches=6, compression="zstd"
    ),
}


# Images.


def noise(height: int = 64, width: int = 64) -> Any:
    return np.random.default_rng(1).integers(0, 255, (height, width), np.uint8)


def jpeg(*segments: bytes) -> bytes:
    data = saved(PIL.Image.new("RGB", (16, 16)), "JPEG")
    return b"".join([data[:2], *segments, data[2:]])


def many_scans() -> bytes:
    data = saved(noise(2048, 2048), "JPEG", progressive=True)
    at = data.rindex(b"\xff\xda")
    scan = data[at : at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")]
    return data[:-2] + 100_000 * scan + data[-2:]


def many_boxes() -> bytes:
    data = bytes(imagecodecs.jpeg2k_encode(np.zeros((8, 8), np.uint8), level=0, codecformat="jp2"))
    at = data.index(b"jp2c") - 4
    return data[:at] + 8_000_000 * struct.pack(">I4s", 8, b"free") + data[at:]


def bmp_runs() -> bytes:
    head = struct.pack("<2sIHHI", b"BM", 0, 0, 0, 54 + 1024)
    head += struct.pack("<IiiHHIIiiII", 40, 3, 3, 1, 8, 1, 0, 0, 0, 256, 0)
    return head + bytes(1024 + 100_000_000) + b"\3\7\0\1"


def tiff(behind: int, *tags: tuple[int, int, int, int]) -> bytes:
    """A directory behind so many zeros."""
    directory = b"".join(struct.pack("<HHII", *tag) for tag in sorted(tags))
    start = struct.pack("<4sI", b"II*\0", 8 + behind) + bytes(behind)
    return start + struct.pack("<H", len(tags)) + directory + bytes(4)


IMAGES: dict[str, Callable[[], bytes]] = {
    "scans.jpg": many_scans,
    "segments.jpg": lambda: jpeg(4_000_000 * b"\xff\xfe\0\2"),
    "boxes.jp2": many_boxes,
    "runs.bmp": bmp_runs,
    "tags.tif": lambda: tiff(4_000_000, *[(258, 1, 4_000_000, 8)] * 4000),
    "strips.tif": lambda: tiff(
        2**25,
        *[(256, 3, 1, 1), (257, 4, 1, 2**24), (278, 3, 1, 1)],
        *[(273, 3, 2**24, 8), (279, 3, 2**24, 8)],
    ),
}


# Tar files.


def tar(kind: bytes, body: bytes, size: int | None = None) -> bytes:
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, len(body) if size is None else size
    return header.tobuf(tarfile.GNU_FORMAT) + body + bytes(-len(body) % 512 + 1024)


TAR: dict[str, Callable[[], bytes]] = {
    "digits": lambda: tar(tarfile.XHDTYPE, b"9" * 2_000_000 + b" path=x\n"),
    "keys": lambda: tar(
        tarfile.XGLTYPE, b"".join(b"50 key%05d=%s\n" % (i, b"v" * 37) for i in range(60_000))
    ),
    "a header of 8 GB": lambda: tar(tarfile.GNUTYPE_LONGNAME, bytes(52_000), 2**33 - 1),
}


KINDS = ((".parquet", PARQUET), (".arrow", ARROW), ("", IMAGES), (".tar", TAR))
FILES = {
    f"{name.replace(' ', '_')}{suffix}": make
    for suffix, files in KINDS
    for name, make in files.items()
}


def convert(folder: Path, *options: str) -> tuple[int, float, int, str]:
    """Exit code, CPU seconds, bytes of the largest process, and what was reported."""
    command = [sys.executable, "-m", "l3dali", "convert", "s", "d", "-j1", *options]
    run = subprocess.run(
        [sys.executable, "-c", STARTER, *command], cwd=folder, capture_output=True, text=True
    )
    code, seconds, peak = run.stdout.split()
    return int(code), float(seconds), 1024 * int(peak), run.stderr


@pytest.mark.parametrize("name", FILES)
def test_hostile_files(tmp_path: Path, name: str) -> None:
    write_tar(tmp_path / "s" / "z.tar", samples(5))
    (tmp_path / "s" / name).write_bytes(FILES[name]())
    code, seconds, peak, reported = convert(tmp_path, "--grow")
    print(f"{name}: {code}, {seconds:.1f} s, {peak / 2**20:.0f} MiB; {reported}")
    assert as_pixels(data_of(tmp_path / "d" / "z.tar")) == as_pixels(samples(5))
    assert code in (0, 2)
    assert (f"\n{name}: " in reported) == (code == 2)
    assert "Traceback" not in reported
    assert seconds < MOST_SECONDS
    assert peak < MOST_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["jpg", "jxl", "jp2"])
def test_the_largest_images_convert(tmp_path: Path, suffix: str) -> None:
    """16,384 x 16,384, as many pixels as --max-pixels lets through."""
    pixels = np.tile(image(1, 1, 1024, 1024), (16, 16))
    (tmp_path / "s").mkdir()
    if suffix == "jpg":
        data = saved(np.dstack([pixels] * 3), "JPEG", quality=90)
    elif suffix == "jxl":
        data = bytes(imagecodecs.jpegxl_encode(pixels, distance=1, effort=1))
    else:
        data = bytes(imagecodecs.jpeg2k_encode(pixels, level=40, codecformat="jp2"))
    (tmp_path / "s" / f"a.{suffix}").write_bytes(data)
    code, *_, reported = convert(tmp_path, "--grow", "--coding", "packed")
    assert code == 0, reported
    assert files_below(tmp_path / "d") == {"a.l3"}
