"""Limits on untrusted L3 files, partial files, and the limits that SECURITY.md lists."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import child_environment
from engines import ROOT
from reference_decoder import HEADER_BYTES, Header
from stream_builder import Stream, constant_tile

import l3dali
from l3dali import codec
from l3dali.cli import main
from l3dali.metadata import MAX_METADATA_BYTES

TILE_PIXELS = 1 << 16


def most_pixels(file_bytes: int) -> int:
    """As docs/format.md 7 says it."""
    return 65536 * ((file_bytes - 36) // 20)


def constant_file(columns: int, rows: int, **fields: Any) -> bytes:
    """Tiles of 256 x 256 pixels of one value."""
    stream = Stream(
        256 * columns, 256 * rows, tile_width_log2=8, tile_height_log2=8, **fields
    )  # fmt: skip
    stream.payloads = [constant_tile([1] * stream.channels)] * (columns * rows)
    return stream.to_bytes()


@pytest.fixture(scope="module")
def largest() -> bytes:
    """2^31 pixels of 8 bytes: 16 GiB."""
    return constant_file(256, 128, channels=4, sample_bits=16, used_bits=16)


@pytest.mark.parametrize("tiles", [1, 2, 3, 4, 5, 10, 100, 999])
def test_the_bound_is_reached(tiles: int) -> None:
    data = constant_file(tiles, 1)
    info = l3dali.info(data)
    assert info.width * info.height == tiles * TILE_PIXELS == most_pixels(len(data))


def test_the_smallest_file_of_2_to_the_31_pixels(largest: bytes) -> None:
    info = l3dali.info(largest)
    assert (info.width * info.height, info.raw_bytes) == (2**31, 2**34)
    text = re.sub(r"\s+", " ", (ROOT / "docs" / "format.md").read_text())
    assert f"16 GiB with four channels of 16 bits, has {len(largest):,} bytes" in text
    assert "65536 * ((n - 36) div (20 * ceil_div(channels, m))) pixels" in text
    share = TILE_PIXELS * 16 / 20  # of four channels of 32 bits
    assert f"up to {int(share) + 1:,} bytes for each of the file" in text
    assert info.raw_bytes / len(largest) < share / 2
    assert f"2^31 for {len(largest):,} " in (ROOT / "docs" / "dev" / "architecture.md").read_text()


def test_a_constant_tile_decodes_to_half_a_mebibyte() -> None:
    one = constant_file(1, 1, channels=4, sample_bits=16, used_bits=16)
    assert l3dali.decode(one).nbytes == 2**19
    two = constant_file(2, 1, channels=4, sample_bits=16, used_bits=16)
    assert len(two) - len(one) <= 20 + 15  # padding of the index


@pytest.mark.parametrize("function", [l3dali.decode, l3dali.verify])
def test_files_beyond_the_limit_are_refused(function: Any, largest: bytes) -> None:
    with pytest.raises(l3dali.L3Error, match=r"65536 x 32768.*limit of 268435456; max_pixels") as e:
        function(largest)
    assert e.value.status is l3dali.Status.OUTPUT_TOO_SMALL


@pytest.mark.parametrize("function", [l3dali.decode, l3dali.verify])
def test_max_pixels_is_exact(function: Any) -> None:
    data = l3dali.encode(np.zeros((30, 41), np.uint8))
    function(data, max_pixels=30 * 41)
    function(data, max_pixels=np.int64(30 * 41))
    function(data, max_pixels=None)
    with pytest.raises(l3dali.L3Error, match="41 x 30 pixels are more than the limit of 1229;"):
        function(data, max_pixels=30 * 41 - 1)
    for wrong in (0, -1, 2**31 + 1, 2**70):
        with pytest.raises(ValueError, match=r"^max_pixels must be 1 to 2147483648, not "):
            function(data, max_pixels=wrong)
    with pytest.raises(TypeError, match=r"^max_pixels must be an integer, not 1\.5"):
        function(data, max_pixels=1.5)


def test_damage_is_reported_before_size(largest: bytes) -> None:
    with pytest.raises(l3dali.L3Error) as caught:
        l3dali.decode(largest[:-1])
    assert caught.value.status is l3dali.Status.TRUNCATED


def test_satellite_scenes_pass() -> None:
    scene = constant_file(43, 43)  # 121 megapixels, as those of Sentinel-2
    assert l3dali.decode(scene).size == (43 * 256) ** 2


def test_imread_and_the_command(
    tmp_path: Path, largest: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "large.l3"
    path.write_bytes(largest)
    with pytest.raises(l3dali.L3Error, match=r"large\.l3: 65536 x 32768 .* limit of 1000;"):
        l3dali.imread(path, max_pixels=1000)
    small = tmp_path / "small.l3"
    l3dali.imwrite(small, np.zeros((30, 41), np.uint8))
    for command in (["verify"], ["decode", "--overwrite"]):
        assert main([*command, str(small), str(path)]) == 2
        told = capsys.readouterr().err
        assert f"{path}: 65536 x 32768 pixels are more" in told
        assert "--max-pixels" in told
        assert str(small) not in told
        assert main([*command, "--max-pixels", "1229", str(small)]) == 2
        assert "limit of 1229;" in capsys.readouterr().err
    assert main(["info", str(path)]) == 0  # it takes no memory for pixels
    assert "65536 x 32768" in capsys.readouterr().out


# Beginnings of files.

PHOTO = np.cumsum(np.random.default_rng(7).integers(0, 4, (70, 90, 3)), axis=1, dtype=np.uint8)
WHOLE = l3dali.encode(PHOTO, tile=(32, 32), icc=b"profile", exif=b"II*\0", metadata={"a": 1})


def head_bytes(data: bytes) -> int:
    info = l3dali.info(data)
    return HEADER_BYTES + Header.from_bytes(data).chunks_bytes + 4 * info.tile_count + 4


def test_info_of_a_beginning() -> None:
    whole = l3dali.info(WHOLE)
    assert whole.codings is not None
    for size in range(head_bytes(WHOLE), len(WHOLE)):
        part = l3dali.info(WHOLE[:size])
        assert part.codings is None
        assert part.encoded_bytes == len(WHOLE)
        for name in (
            *("width", "height", "channels", "tile_count", "raw_bytes"),
            *("icc", "exif", "metadata"),
        ):
            assert getattr(part, name) == getattr(whole, name)


def test_too_short_a_beginning_says_what_is_missing() -> None:
    head = head_bytes(WHOLE)
    for size in range(head):
        with pytest.raises(l3dali.L3Error) as caught:
            l3dali.info(WHOLE[:size])
        assert caught.value.status is l3dali.Status.TRUNCATED
        what = f"header, chunks and index have {head}" if size >= 32 else "the header has 32"
        assert str(caught.value).startswith(f"{what} bytes, here are {size}: ")


@pytest.mark.parametrize("function", [l3dali.decode, l3dali.verify])
def test_decode_says_what_is_missing(function: Any) -> None:
    message = f"^the file has {len(WHOLE)} bytes, here are {len(WHOLE) - 1}: the data ends"
    with pytest.raises(l3dali.L3Error, match=message):
        function(WHOLE[:-1])
    with pytest.raises(l3dali.L3Error, match=f"^header, chunks and index have {head_bytes(WHOLE)}"):
        function(WHOLE[:50])


def test_a_partial_file_is_validated_as_a_whole_one() -> None:
    """Every byte of header, chunks and index that changes is found, and no status differs."""
    head = head_bytes(WHOLE)
    for place in range(head):
        bad = bytearray(WHOLE)
        bad[place] ^= 1 << place % 8
        statuses = set()
        for data in (bad, bad[:head], bad[: head + 20]):
            with pytest.raises(l3dali.L3Error) as caught:
                l3dali.info(data)
            statuses.add(caught.value.status)
        assert len(statuses) == 1, place


def test_a_beginning_that_claims_chunks_and_tiles_it_has_not() -> None:
    claims = Stream(1 << 16, 1 << 15, chunks_bytes=2**28).to_bytes()
    needed = 2**28 + 4 * 2**23 + 36
    with pytest.raises(l3dali.L3Error, match=f"have {needed} bytes, here are") as caught:
        l3dali.info(claims)
    assert caught.value.status is l3dali.Status.TRUNCATED


def test_the_command_wants_whole_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "part.l3"
    path.write_bytes(WHOLE[:-1])
    assert main(["info", str(path)]) == 2
    reason = f"{path}: the file ends after {len(WHOLE) - 1} of {len(WHOLE)} bytes"
    assert reason in capsys.readouterr().err


# SECURITY.md.

TEXT = (ROOT / "SECURITY.md").read_text()
LIMITS = dict(re.findall(r"^\| ([^|]*) \| ([\d,]+) \| [^|]* \|$", TEXT, re.MULTILINE))


def limit_of(what: str) -> int:
    (limit,) = (limit for name, limit in LIMITS.items() if name.startswith(what))
    return int(limit.replace(",", ""))


def test_limits_are_those_of_the_code() -> None:
    assert len(LIMITS) == 8
    assert limit_of("pixels of a decoded image") == codec.DEFAULT_MAX_PIXELS
    assert limit_of("pixels of any L3 image") == codec.MAX_PIXELS
    assert limit_of("bytes of an ICC profile") == MAX_METADATA_BYTES
    for function in (l3dali.decode, l3dali.verify, l3dali.imread, l3dali.transcode):
        default = inspect.signature(function).parameters["max_pixels"].default
        assert default == codec.DEFAULT_MAX_PIXELS, function


def test_limits_of_the_format() -> None:
    for size, message in (
        (2**28, "header, chunks and index have"),
        (2**28 + 4, "are corrupt"),
    ):
        with pytest.raises(l3dali.L3Error, match=message):
            l3dali.info(Stream(8, 8, chunks_bytes=size).to_bytes())
    with pytest.raises(l3dali.L3Error, match="are corrupt"):
        l3dali.info(
            Stream(1 << 16, (1 << 15) + 1, tile_width_log2=8, tile_height_log2=8).to_bytes()
        )
    assert codec.MAX_PIXELS == limit_of("pixels of any L3 image") == 2**31


@pytest.mark.dali
def test_limits_of_the_operators() -> None:
    backend = pytest.importorskip("nvidia.dali", reason="DALI is not installed").backend
    import l3dali.plugin  # noqa: F401

    names = ["Decode", "DecodeCrop", "DecodeSlice", "DecodeRandomCrop", "DecodeCropMirrorNormalize"]
    names.append("DecodeWindows")
    for name in names:
        schema = backend.GetSchema(f"l3__{name}")
        default = int(schema.GetArgumentDefaultValueString("max_pixels"))
        assert default == codec.DEFAULT_MAX_PIXELS


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / link).exists(), link


PEAK = """
import numpy as np
import l3dali
from peaks import peak

"""
MANY_SMALL_FILES = """
labels = np.tile(np.random.default_rng(0).integers(0, 4, (8, 8), np.uint8) * 20, (8, 8))
data = l3dali.encode(labels)
files = [bytes(bytearray(data)) for _ in range(2000)]  # not one object, whose windows share tables
l3dali.decode_batch(files[:2])
before = peak()
images = l3dali.decode_batch(files, threads=2)
"""
MANY_GROUPS = """
data = l3dali.encode(np.zeros((8, 32, 4096), np.uint8), groups=[[c] for c in range(4096)])
l3dali.decode_batch([data], threads=2)
before = peak()
images = l3dali.decode_batch([data] * 1000, windows=[(0, 0, 1, 1)] * 1000, threads=2)
"""


@pytest.mark.parametrize("what", [MANY_SMALL_FILES, MANY_GROUPS], ids=["files", "groups"])
def test_tables_of_a_batch_do_not_add_up(what: str) -> None:
    """Those of a file of 1 KB took 65 KB, to the end of the batch; a plan for each window of each
    group took 850 MB."""
    show = "print(peak() - before, sum(image.nbytes for image in images))"
    run = [sys.executable, "-c", PEAK + what + show]
    # AddressSanitizer keeps what is freed, up to 256 MB, unless limited.
    freed = "quarantine_size_mb=0:thread_local_quarantine_size_kb=0"
    options = ":".join([os.environ.get("ASAN_OPTIONS", ""), freed])
    environment = child_environment(ASAN_OPTIONS=options)
    done = subprocess.run(run, capture_output=True, text=True, check=True, env=environment)
    grown, decoded = map(int, done.stdout.split())
    assert grown < decoded + (24 << 20)
