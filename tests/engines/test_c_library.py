"""The C interface: the samples and the Status of the engines, and nothing asked wrongly is done."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import re
from ctypes import POINTER, c_size_t, c_uint32, sizeof
from pathlib import Path
from typing import Any, NamedTuple

import engines
import numpy as np
import pytest
import strategies
from c_library import (
    C_CODINGS,
    C_TYPES,
    COLORS,
    FILL_RANGE,
    INVALID_ARGUMENT,
    LAYOUTS,
    NO_TILE,
    OK,
    OUT_OF_MEMORY,
    OUTPUT_TOO_SMALL,
    TOO_MANY_PIXELS,
    TRUNCATED,
    TYPE_TOO_NARROW,
    Bytes,
    DecodeOptions,
    EncodeOptions,
    Info,
    Output,
    Picture,
    Range,
    Sized,
    Window,
    library,
    pointer_to,
)
from engines import GAP, ROOT, Outcome, Samples
from hypothesis import given, settings
from hypothesis import strategies as st
from output_plans import FILL, LUMA, LUMA_SCALE, SCALE, SELECT, Plan, becomes, convert
from reference_decoder import STATUS_NAMES
from stream_builder import Stream, constant_tile

import l3dali

TESTS = Path(__file__).parents[1]
GOLDEN = {path.stem: path.read_bytes() for path in sorted((TESTS / "golden").glob("v[12]/*.l3"))}
INVALID = sorted((TESTS / "invalid").glob("*.l3"))
DIGESTS = {
    Path(entry["file"]).stem: entry["sha256"]
    for entry in json.loads((TESTS / "conformance.json").read_text())["files"]
    if entry["status"] == "kOk"
}


class Decoded(NamedTuple):
    """What l3_decode says and writes."""

    status: int
    output: Output
    memory: Samples  # all bytes, those between rows too

    @property
    def samples(self) -> Samples:
        """As (height, width, channels)."""
        output = self.output
        dtype = np.dtype(C_TYPES[output.type])
        item = dtype.itemsize
        strides = (output.row_stride, output.channels * item, item)
        if output.plane_stride:
            strides = (output.row_stride, item, output.plane_stride)
        shape = (output.height, output.width, output.channels)
        samples: Samples = np.ndarray(shape, dtype, self.memory.data, 0, strides)
        return samples

    @property
    def outcome(self) -> Outcome:
        """As the tests of engines have it."""
        name = library().l3_status_name(self.status).decode()
        if self.status == OK:
            return Outcome(name, None, self.samples.copy())
        tile = None if self.output.bad_tile == NO_TILE else self.output.bad_tile
        return Outcome(name, tile)


def options_of(channels: list[int] | None = None, **fields: Any) -> DecodeOptions:
    """Options, and the channels that they point at."""
    options = DecodeOptions(**fields)
    if channels is not None:
        options.channels = (c_uint32 * len(channels))(*channels)
        options.channel_count = len(channels)
    return options


def decode(data: bytes, options: DecodeOptions | None = None) -> Decoded:
    """Decodes to memory of the size that l3_decode_size says."""
    output = Output()
    status = library().l3_decode_size(data, len(data), pointer_to(options), pointer_to(output))
    memory = np.full(output.bytes, GAP, np.uint8)
    if status == OK:
        status = library().l3_decode(
            data,
            len(data),
            pointer_to(options),
            memory.ctypes.data,
            memory.nbytes,
            pointer_to(output),
        )
    return Decoded(status, output, memory)


def picture_of(image: Samples) -> Picture:
    """An image whose samples of a row are together. It must outlive this."""
    return Picture(
        image.ctypes.data, *image.shape, C_TYPES.index(image.dtype.name), image.strides[0]
    )


def bound_of(picture: Picture, options: EncodeOptions | None) -> int:
    bound = c_size_t()
    status = library().l3_encode_bound(pointer_to(picture), pointer_to(options), pointer_to(bound))
    assert status == OK
    return bound.value


def encode(
    image: Samples, options: EncodeOptions | None = None, capacity: int | None = None
) -> tuple[int, int, bytes]:
    """The status, the size that it says, and the file in memory of `capacity`, or of the bound."""
    picture = picture_of(image)
    room = bound_of(picture, options) if capacity is None else capacity
    memory, size = np.full(room, GAP, np.uint8), c_size_t()
    status = library().l3_encode(
        pointer_to(picture), pointer_to(options), memory.ctypes.data, room, pointer_to(size)
    )
    return status, size.value, memory[: size.value].tobytes()


def test_header_is_what_ctypes_calls() -> None:
    header = (ROOT / "include" / "l3" / "l3.h").read_text()
    assert set(re.findall(r"^L3_API .*?(\w+)\(", header, re.MULTILINE)) == {
        *("l3_version", "l3_status_name", "l3_status_message", "l3_read_info", "l3_read_head"),
        *("l3_decode_size", "l3_decode", "l3_payload_ranges", "l3_encode_bound", "l3_encode"),
        *("l3_decode_alloc", "l3_encode_alloc"),
    }
    numbers = {name: int(value) for name, value in re.findall(r"\b(L3_\w+) = (\d+)", header)}
    types = {f"L3_{name.upper().replace(' ', '_')}": i for i, name in enumerate(C_TYPES)}
    codings = {f"L3_CODING_{name.upper()}": i for i, name in enumerate(C_CODINGS)}
    layouts = {f"L3_{name}": i for i, name in enumerate(LAYOUTS)}
    colors = {
        f"L3_COLORS_{name.upper().replace('RGBA', 'RGB_ALPHA').replace(' ', '_')}": i
        for i, name in enumerate(COLORS)
    }
    statuses = {
        "L3" + re.sub("[A-Z]", lambda match: "_" + match[0], name[1:]).upper(): i
        for i, name in enumerate(STATUS_NAMES)
    }
    ranges = {"L3_FILL_BY_TYPE": 0, "L3_FILL_RANGE": 1, "L3_KEEP_NUMBERS": 2}
    others = {
        "L3_OUT_OF_MEMORY": OUT_OF_MEMORY,
        "L3_TYPE_TOO_NARROW": TYPE_TOO_NARROW,
        "L3_TOO_MANY_PIXELS": TOO_MANY_PIXELS,
    }
    assert numbers == types | codings | layouts | colors | ranges | statuses | others


def test_version_is_the_project_s() -> None:
    project = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert project is not None
    assert library().l3_version().decode() == project[1]


def test_statuses_have_names_and_messages() -> None:
    lib = library()
    assert [lib.l3_status_name(i).decode() for i in range(10)] == list(STATUS_NAMES)
    assert lib.l3_status_name(1000) == b"kOutOfMemory"
    assert lib.l3_status_name(1001) == b"kTypeTooNarrow"
    assert lib.l3_status_name(1002) == b"kTooManyPixels"
    assert len({lib.l3_status_message(i) for i in [*range(10), 1000, 1001, 1002]}) == 13
    for number in (10, 999, 1003, 0xFFFFFFFF):
        assert lib.l3_status_name(number) == lib.l3_status_message(number) == b"unknown status"


@pytest.mark.parametrize("threads", [0, 2, 0xFFFFFFFF])
def test_golden_files(threads: int) -> None:
    for name, data in GOLDEN.items():
        decoded = decode(data, options_of(threads=threads))
        assert decoded.status == OK, name
        assert hashlib.sha256(decoded.memory.tobytes()).hexdigest() == DIGESTS[name], name


def test_invalid_files() -> None:
    for path in INVALID:
        data = path.read_bytes()
        outcome = decode(data).outcome
        assert outcome.status == path.name.split("__")[0]
        assert outcome == engines.decode("reference", data), path.name


def test_info_is_that_of_python() -> None:
    for name, data in GOLDEN.items():
        info = Info()
        assert library().l3_read_info(data, len(data), pointer_to(info)) == OK, name
        expected = l3dali.info(data)
        assert (info.height, info.width, info.channels) == (
            *(expected.height, expected.width, expected.channels),
        ), name
        assert C_TYPES[info.type] == expected.dtype.name
        for field in ("used_bits", "shift", "value_count", "labels", "tile_count"):
            assert getattr(info, field) == getattr(expected, field), (name, field)
        assert (info.tile_height, info.tile_width) == (expected.tile_height, expected.tile_width)
        assert info.group_count == len(expected.groups)
        assert (info.file_bytes, info.image_bytes) == (len(data), expected.raw_bytes)
        for field in ("icc", "exif", "xmp", "palette"):
            assert getattr(info, field).read() == getattr(expected, field), (name, field)
        assert info.metadata.read() == expected.metadata_json


@pytest.mark.parametrize("name", ["chunks", "size_31x7", "groups_of_5_channels"])
def test_a_file_is_read_from_its_beginning(name: str) -> None:
    data = GOLDEN.get(name) or next(d for n, d in GOLDEN.items() if l3dali.info(d).channels > 4)
    lib, info, size = library(), Info(), 0
    asked = []
    while lib.l3_read_head(data[:size], size, pointer_to(info)) == TRUNCATED:
        assert size < info.head_bytes <= len(data)
        assert (info.height, info.icc.data) == (0, None)
        size = info.head_bytes
        asked.append(size)
    assert asked[0] == 32
    assert 1 < len(asked) < 4
    assert info.head_bytes == size < info.file_bytes == len(data)
    assert info.height == l3dali.info(data).height
    whole = Info()
    assert lib.l3_read_info(data[:size], size, pointer_to(whole)) == TRUNCATED
    assert (whole.head_bytes, whole.file_bytes) == (size, len(data))


def _image(channels: int, dtype: str, seed: int = 1) -> Samples:
    rng = np.random.default_rng(seed)
    limits = np.iinfo(dtype)
    noise = rng.integers(limits.min, limits.max, (70, 90, channels), dtype, endpoint=True)
    return noise


WINDOW = (3, 30, 50, 41)  # top, left, height, width
CUT = (slice(3, 53), slice(30, 71))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("gap", [0, 6])
@pytest.mark.parametrize(("channels", "dtype"), [(1, "uint8"), (3, "int16"), (13, "uint16")])
def test_windows_layouts_and_rows_apart(channels: int, dtype: str, gap: int, layout: str) -> None:
    image = _image(channels, dtype)
    data = l3dali.encode(image, coding="packed", tile=(16, 32))
    item = image.itemsize
    packed = 41 * item * (channels if layout == "HWC" else 1)
    options = options_of(
        window=Window(*WINDOW),
        layout=LAYOUTS.index(layout),
        row_stride=packed + gap if gap else 0,
        threads=2,
    )
    decoded = decode(data, options)
    assert decoded.status == OK
    np.testing.assert_array_equal(decoded.samples, image[CUT])
    output = decoded.output
    rows = 50 * (channels if layout == "CHW" else 1)
    assert output.row_stride == packed + gap
    assert output.plane_stride == (50 * (packed + gap) if layout == "CHW" else 0)
    assert output.bytes == (packed + gap) * rows - gap
    between = np.append(decoded.memory, np.full(gap, GAP, np.uint8)).reshape(rows, -1)[:, packed:]
    assert (between == GAP).all()


@pytest.mark.parametrize("chosen", [[2], [0, 1, 2], [12, 3, 7, 0, 5]])
def test_channels(chosen: list[int]) -> None:
    image = _image(13, "uint8")
    decoded = decode(l3dali.encode(image), options_of(chosen, window=Window(*WINDOW)))
    np.testing.assert_array_equal(decoded.samples, image[CUT][..., chosen])


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("stored", C_TYPES[1:5])
@pytest.mark.parametrize("channels", [3, 6])
def test_types(stored: str, channels: int, labels: bool) -> None:
    image = _image(channels, stored)
    data = l3dali.encode(image, labels=labels)
    for wanted, (fill_range, number) in itertools.product(C_TYPES[1:], FILL_RANGE.items()):
        options = options_of(type=C_TYPES.index(wanted), fill_range=number)
        decoded = decode(data, options)
        expected = becomes(image, wanted, labels=labels, fill_range=fill_range)
        if expected is None:
            assert decoded.status == TYPE_TOO_NARROW
        else:
            np.testing.assert_array_equal(decoded.samples, expected)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("colors", COLORS[1:])
def test_colors(colors: str, channels: int) -> None:
    image = _image(channels, "uint8")
    rgb = [0, 1, 2] if channels >= 3 else [0, 0, 0]
    gray = [LUMA] if channels >= 3 else [0]
    alpha = [channels - 1] if channels % 2 == 0 else [FILL]
    source = {
        "RGB": rgb,
        "BGR": rgb[::-1],
        "GRAY": gray,
        "RGBA": rgb + alpha,
        "GRAY_ALPHA": gray + alpha,
    }[colors]
    plan = Plan((0, 0, 90, 70), (0, 0, 0, 0), "u1", SELECT, source, fill=np.full(4, 255, "f4"))
    decoded = decode(l3dali.encode(image), options_of(colors=COLORS.index(colors)))
    np.testing.assert_array_equal(decoded.samples, convert(plan.values(image), "u1"))


def test_gray_of_16_bits_is_rounded() -> None:
    image = _image(3, "uint16")
    window = (0, 0, 90, 70)
    plan = Plan(window, (0, 0, 0, 0), "f4", SCALE, [LUMA], LUMA_SCALE // 2, range=1 / 65535)
    options = options_of(colors=COLORS.index("GRAY"), type=C_TYPES.index("float32"))
    decoded = decode(l3dali.encode(image), options)
    np.testing.assert_array_equal(decoded.samples, plan.values(image))


def test_more_pixels_than_the_limit() -> None:
    data = l3dali.encode(_image(3, "uint8"))
    assert decode(data, options_of(max_pixels=70 * 90)).status == OK
    refused = decode(data, options_of(max_pixels=70 * 90 - 1))
    assert refused.status == TOO_MANY_PIXELS
    assert decode(data, options_of(max_pixels=2050, window=Window(*WINDOW))).status == OK
    wide = l3dali.encode(_image(13, "uint8"))
    assert decode(wide, options_of(max_pixels=4 * 70 * 90)).status == OK
    assert decode(wide, options_of(max_pixels=4 * 70 * 90 - 1)).status == TOO_MANY_PIXELS


def test_the_usual_limit_is_that_of_python() -> None:
    rows = l3dali.codec.DEFAULT_MAX_PIXELS // 2**16
    for tiles, status in [(rows, OK), (rows + 1, TOO_MANY_PIXELS)]:
        stream = Stream(256, 256 * tiles, tile_width_log2=8, tile_height_log2=8)
        stream.payloads = [constant_tile([1])] * tiles
        data, output = stream.to_bytes(), Output()
        assert library().l3_decode_size(data, len(data), None, pointer_to(output)) == status
        assert output.bytes == (2**16 * tiles if status == OK else 0)


def ranges_of(
    head: bytes, options: DecodeOptions | None, gap: int = 0, capacity: int = 999
) -> tuple[int, int, list[tuple[int, int]]]:
    """The status, the count that it says, and offsets and sizes."""
    ranges, count = (Range * capacity)(), c_size_t(7)
    status = library().l3_payload_ranges(
        head, len(head), pointer_to(options), gap, ranges, capacity, pointer_to(count)
    )
    written = ranges[: count.value] if status == OK else []
    return status, count.value, [(one.offset, one.size) for one in written]


@pytest.mark.parametrize("gap", [0, 500, 2**64 - 1])
@pytest.mark.parametrize(("channels", "chosen"), [(1, None), (3, [2]), (13, None), (13, [12, 3])])
def test_ranges_of_a_window(channels: int, chosen: list[int] | None, gap: int) -> None:
    data = l3dali.encode(_image(channels, "uint8"), coding="packed", tile=(16, 32))
    options = options_of(chosen, window=Window(*WINDOW))
    info = Info()
    library().l3_read_info(data, len(data), pointer_to(info))
    head = data[: info.head_bytes]
    status, count, found = ranges_of(head, options, gap)
    assert (status, found[0][0]) == (OK, 0)
    for (begin, size), (after, _) in itertools.pairwise(found):
        assert after - begin - size > gap
    assert gap < 2**64 - 1 or count == 1
    for room in (0, count - 1):
        assert ranges_of(head, options, gap, room) == (OUTPUT_TOO_SMALL, count, [])
    parts = bytearray(len(data))
    for offset, size in found:
        parts[offset : offset + size] = data[offset : offset + size]
    whole, part = decode(data, options), decode(bytes(parts), options)
    assert (whole.status, part.status) == (OK, OK)
    np.testing.assert_array_equal(part.samples, whole.samples)
    for offset, size in found[1:]:  # Each is needed.
        parts[offset + size - 1] ^= 1
        assert decode(bytes(parts), options).status != OK
        parts[offset + size - 1] ^= 1


def test_ranges_of_whole_files() -> None:
    for name, data in GOLDEN.items():
        assert ranges_of(data, None) == (OK, 1, [(0, len(data))]), name


def test_ranges_that_cannot_be_listed() -> None:
    for path in INVALID:
        data = path.read_bytes()
        status = library().l3_read_head(data, len(data), pointer_to(Info()))
        assert ranges_of(data, None)[0] == status, path.stem
    assert ranges_of(DATA, options_of(window=Window(0, 0, 71, 1))) == (INVALID_ARGUMENT, 0, [])
    assert ranges_of(DATA, options_of(max_pixels=9)) == (TOO_MANY_PIXELS, 0, [])
    size, count = len(DATA), c_size_t(7)
    for room, status in ((1, INVALID_ARGUMENT), (0, OUTPUT_TOO_SMALL)):
        arguments = [DATA, size, None, 0, None, room, pointer_to(count)]
        assert library().l3_payload_ranges(*arguments) == status
        assert count.value == (status == OUTPUT_TOO_SMALL)
    assert library().l3_payload_ranges(DATA, size, None, 0, None, 0, None) == INVALID_ARGUMENT


DATA = l3dali.encode(_image(3, "uint8"))


@pytest.mark.parametrize(
    "options",
    [
        {"threads": 1025},
        {"type": len(C_TYPES)},
        {"colors": len(COLORS)},
        {"fill_range": 3},
        {"layout": 2},
        {"window": Window(0, 0, 0, 5)},
        {"window": Window(0, 0, 5, 0)},
        {"window": Window(1, 0, 0, 0)},
        {"window": Window(0, 0, 71, 1)},
        {"window": Window(0, 90, 1, 1)},
        {"window": Window(0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF)},
        {"window": Window(1, 1, 0xFFFFFFFF, 0xFFFFFFFF)},
        {"channels": [3]},
        {"channels": [0, 0]},
        {"channels": [0xFFFFFFFF]},
        {"channels": [1], "colors": 1},
        {"channel_count": 1},
        {"row_stride": 269},
        {"type": C_TYPES.index("float32"), "row_stride": 4 * 270 + 2},
        {"row_stride": 2**64 - 1},
        {"row_stride": 2**63 // 70 + 70},
    ],
)
def test_options_out_of_range(options: dict[str, Any]) -> None:
    wrong = options_of(**options)
    assert decode(DATA, wrong).status == INVALID_ARGUMENT
    memory = np.empty(4 * 70 * 270 * 4, np.uint8)
    arguments = [DATA, len(DATA), pointer_to(wrong), memory.ctypes.data, memory.nbytes, None]
    assert library().l3_decode(*arguments) == INVALID_ARGUMENT


def test_a_stride_is_bounded_for_all_channels_that_a_plan_has() -> None:
    """Not only for those of the image: offsets of the others are computed, too."""
    data = l3dali.encode(np.zeros((1, 9), np.uint8))
    assert decode(data, options_of(layout=1, row_stride=2**61 - 1)).status == 0
    assert decode(data, options_of(layout=1, row_stride=2**61)).status == INVALID_ARGUMENT


def test_channels_without_a_number() -> None:
    options = options_of([0])
    options.channel_count = 0
    assert decode(DATA, options).status == INVALID_ARGUMENT
    options.channel_count = 2**63
    assert decode(DATA, options).status == INVALID_ARGUMENT


def test_wide_images_have_no_colors() -> None:
    data = l3dali.encode(_image(5, "uint8"))
    assert decode(data, options_of(colors=1)).status == INVALID_ARGUMENT


def test_null_pointers() -> None:
    lib, size = library(), len(DATA)
    info, output, memory = Info(), Output(), np.empty(70 * 270, np.uint8)
    to, room = memory.ctypes.data, memory.nbytes
    assert lib.l3_read_info(None, size, pointer_to(info)) == INVALID_ARGUMENT
    assert lib.l3_read_info(None, 0, pointer_to(info)) == TRUNCATED
    assert lib.l3_read_info(DATA, size, None) == INVALID_ARGUMENT
    assert lib.l3_read_head(None, size, pointer_to(info)) == INVALID_ARGUMENT
    assert lib.l3_decode_size(None, size, None, pointer_to(output)) == INVALID_ARGUMENT
    assert lib.l3_decode_size(None, 0, None, pointer_to(output)) == TRUNCATED
    assert lib.l3_decode_size(DATA, size, None, None) == INVALID_ARGUMENT
    assert lib.l3_decode(None, size, None, to, room, None) == INVALID_ARGUMENT
    assert lib.l3_decode(DATA, size, None, None, room, None) == INVALID_ARGUMENT
    assert lib.l3_decode(DATA, size, None, to, room, None) == OK


def test_short_and_unaligned_buffers() -> None:
    lib = library()
    data = l3dali.encode(_image(3, "uint16"))
    memory, output = np.full(70 * 90 * 6 + 1, GAP, np.uint8), Output()
    for size in (0, 1, 70 * 90 * 6 - 1):
        arguments = [data, len(data), None, memory.ctypes.data, size, pointer_to(output)]
        assert lib.l3_decode(*arguments) == OUTPUT_TOO_SMALL
        assert output.bytes == 70 * 90 * 6  # what it takes
    odd = [data, len(data), None, memory.ctypes.data + 1, memory.nbytes - 1, None]
    assert lib.l3_decode(*odd) == INVALID_ARGUMENT
    assert (memory == GAP).all()


def test_groups_and_unknown_chunks_are_kept() -> None:
    image = _image(7, "uint8")
    others = b"zzz1\3\0\0\0one\0" + b"abcd\0\0\0\0"
    groups = [[6, 2, 0], [1], [3, 4, 5]]
    data = l3dali.encode(image, groups=groups, other_chunks=others, xmp=b"x")
    info = Info()
    assert library().l3_read_info(data, len(data), pointer_to(info)) == OK
    assert info.groups.read() == bytes([3, 6, 0, 2, 0, 0, 0, 1, 1, 0, 3, 3, 0, 4, 0, 5, 0])
    chunks = info.chunks.read()
    assert chunks is not None
    assert others in chunks
    options = EncodeOptions(groups=info.groups, other_chunks=info.chunks, xmp=info.xmp)
    assert encode(image, options)[2] == data


STRUCTS = [Info, Output, DecodeOptions, EncodeOptions]
FIRST_BYTES = {  # of the structures in 1.0.0, where they have grown
    Info: Info.groups.offset,
    EncodeOptions: EncodeOptions.groups.offset,
}


@pytest.mark.parametrize("kind", FIRST_BYTES)
def test_structures_of_1_0(kind: type[Sized]) -> None:
    struct = kind(struct_size=FIRST_BYTES[kind])
    after = ctypes.addressof(struct) + FIRST_BYTES[kind]
    ctypes.memset(after, 0xFF, sizeof(kind) - FIRST_BYTES[kind])
    assert _call_with(struct) == OK
    assert set(ctypes.string_at(after, sizeof(kind) - FIRST_BYTES[kind])) == {0xFF}
    if isinstance(struct, Info):
        assert (struct.struct_size, struct.height) == (FIRST_BYTES[kind], 70)


def _call_with(struct: Sized) -> int:
    """Calls what takes the structure."""
    lib, pixel = library(), np.zeros(1, np.uint8)
    picture, size = Picture(pixel.ctypes.data, 1, 1, 1, 1, 0), c_size_t()
    pointer = ctypes.cast(pointer_to(struct), POINTER(type(struct)))
    if isinstance(struct, Info):
        status = lib.l3_read_info(DATA, len(DATA), pointer)
    elif isinstance(struct, Output):
        status = lib.l3_decode_size(DATA, len(DATA), None, pointer)
    elif isinstance(struct, DecodeOptions):
        status = lib.l3_decode_size(DATA, len(DATA), pointer, pointer_to(Output()))
    else:
        status = lib.l3_encode_bound(pointer_to(picture), pointer, pointer_to(size))
    return int(status)


@pytest.mark.parametrize("kind", STRUCTS)
def test_structures_of_other_versions(kind: type[Sized]) -> None:
    newer = type(f"Newer{kind.__name__}", (kind,), {"_fields_": [("added", c_uint32 * 4)]})
    for added in (0, 1):
        struct = newer(added=(c_uint32 * 4)(0, 0, 0, added))
        is_option = kind in (DecodeOptions, EncodeOptions)
        assert _call_with(struct) == (INVALID_ARGUMENT if added and is_option else OK)
        assert struct.struct_size == sizeof(newer)
        if not is_option:
            assert list(struct.added) == [0] * 4
    for size in (0, 8, FIRST_BYTES.get(kind, sizeof(kind)) - 1, 4097, 2**64 - 1):
        struct = kind()
        struct.struct_size = size
        assert _call_with(struct) == INVALID_ARGUMENT


@settings(max_examples=80)
@given(
    image=strategies.images(),
    coding=st.sampled_from(C_CODINGS),
    effort=st.integers(0, 9),
    tile=st.sampled_from([(0, 0), (8, 32), (64, 256), (0, 64), (16, 0)]),
)
def test_files_are_those_of_python(
    image: Samples, coding: str, effort: int, tile: tuple[int, int]
) -> None:
    image = np.ascontiguousarray(image)
    options = EncodeOptions(
        coding=C_CODINGS.index(coding), effort=effort, tile_height=tile[0], tile_width=tile[1]
    )
    status, size, file = encode(image, options)
    assert status == OK
    engine = engines.decode("scalar", file)
    assert engine == Outcome("kOk", None, image)
    if 0 not in tile or tile == (0, 0):
        asked = None if tile == (0, 0) else tile
        written = l3dali.encode(
            image,
            coding=coding,  # type: ignore[arg-type]
            effort=effort or 5,
            tile=asked,
        )
        assert file == written
    assert encode(image, options, size) == (OK, size, file)
    assert encode(image, options, size - 1)[:2] == (OUTPUT_TOO_SMALL, size)
    assert encode(image, options, 0)[:2] == (OUTPUT_TOO_SMALL, size)


@pytest.mark.parametrize("coding", C_CODINGS)
@pytest.mark.parametrize("channels", [1, 3, 13, 300])
def test_noise_stays_below_the_bound(coding: str, channels: int) -> None:
    rng = np.random.default_rng(1)
    options = EncodeOptions(coding=C_CODINGS.index(coding), effort=1)
    for height, width in [(1, 1), (1, 700), (700, 1), (257, 65), (33, 257), (64, 256)]:
        image = rng.integers(0, 256, (height, width, channels), np.uint8)
        status, size, _ = encode(image, options)
        bound = bound_of(picture_of(image), options)
        assert status == OK
        assert size <= bound <= 1.01 * image.nbytes + 512 + 40 * (channels // 4)


def test_rows_apart_and_what_is_kept() -> None:
    wide = _image(1, "uint8") % 3
    image = wide[:, 10:70]
    kept = {"icc": b"profile", "exif": b"II*\0", "xmp": b"<x/>", "metadata": b'{"a":1}'}
    chunks = {name: np.frombuffer(data, np.uint8) for name, data in kept.items()}
    palette = np.arange(12, dtype=np.uint8)
    options = EncodeOptions(labels=1, palette=Bytes(palette.ctypes.data, 12))
    for name, chunk in chunks.items():
        setattr(options, name, Bytes(chunk.ctypes.data, chunk.size))
    status, _, file = encode(image, options)
    assert status == OK
    assert file == l3dali.encode(
        np.ascontiguousarray(image),
        labels=True,
        icc=kept["icc"],
        exif=kept["exif"],
        xmp=kept["xmp"],
        palette=palette.tobytes(),
        metadata={"a": 1},
    )


PIXELS = np.zeros(64, np.uint8)


@pytest.mark.parametrize(
    ("picture", "options"),
    [
        ({"height": 0}, {}),
        ({"width": 0}, {}),
        ({"channels": 0}, {}),
        ({"channels": 4097}, {}),
        ({"type": 0}, {}),
        ({"type": 9}, {}),
        ({"height": 1 << 31, "width": 2}, {}),
        ({"height": 0xFFFFFFFF, "width": 0xFFFFFFFF, "channels": 4096, "type": 2}, {}),
        ({"row_stride": 3}, {}),
        ({"row_stride": 2**64 - 1}, {}),
        ({"row_stride": 2**62}, {}),
        ({}, {"coding": 3}),
        ({}, {"effort": 10}),
        ({}, {"threads": 1025}),
        ({}, {"labels": 2}),
        ({}, {"tile_height": 4}),
        ({}, {"tile_height": 24}),
        ({}, {"tile_height": 512}),
        ({}, {"tile_width": 1}),
        ({}, {"tile_width": 16}),
        ({}, {"tile_width": 0xFFFFFFFF}),
        ({}, {"icc": Bytes(None, 1)}),
        ({}, {"icc": Bytes(PIXELS.ctypes.data, 1 << 28)}),
        ({}, {"icc": Bytes(PIXELS.ctypes.data, 2**64 - 1), "exif": Bytes(PIXELS.ctypes.data, 1)}),
        ({}, {"palette": Bytes(PIXELS.ctypes.data, 4)}),
        ({}, {"palette": Bytes(PIXELS.ctypes.data, 5), "labels": 1}),
        ({}, {"palette": Bytes(PIXELS.ctypes.data, 1028), "labels": 1}),
    ],
)
def test_what_cannot_be_encoded(picture: dict[str, int], options: dict[str, Any]) -> None:
    fields = {"height": 4, "width": 4, "channels": 1, "type": 1, "row_stride": 0}
    image = Picture(pixels=PIXELS.ctypes.data, **fields | picture)
    asked, size, memory = EncodeOptions(**options), c_size_t(7), np.empty(4096, np.uint8)
    arguments = [pointer_to(image), pointer_to(asked)]
    assert library().l3_encode_bound(*arguments, pointer_to(size)) == INVALID_ARGUMENT
    assert size.value == 0
    size.value = 7
    status = library().l3_encode(*arguments, memory.ctypes.data, 4096, pointer_to(size))
    assert (status, size.value) == (INVALID_ARGUMENT, 0)


def test_null_pointers_of_the_encoder() -> None:
    lib, size, memory = library(), c_size_t(), np.empty(4096, np.uint8)
    image = Picture(PIXELS.ctypes.data, 4, 4, 1, 1, 0)
    picture, to = pointer_to(image), memory.ctypes.data
    assert lib.l3_encode_bound(None, None, pointer_to(size)) == INVALID_ARGUMENT
    assert lib.l3_encode_bound(picture, None, None) == INVALID_ARGUMENT
    assert lib.l3_encode(None, None, to, 4096, pointer_to(size)) == INVALID_ARGUMENT
    assert lib.l3_encode(picture, None, to, 4096, None) == INVALID_ARGUMENT
    assert lib.l3_encode(picture, None, None, 4096, pointer_to(size)) == INVALID_ARGUMENT
    assert lib.l3_encode(picture, None, None, 0, pointer_to(size)) == OUTPUT_TOO_SMALL
    assert size.value > 0
    image.pixels = None
    assert lib.l3_encode_bound(picture, None, pointer_to(size)) == OK
    assert lib.l3_encode(picture, None, to, 4096, pointer_to(size)) == INVALID_ARGUMENT
