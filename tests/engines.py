"""Every decoder behind one interface: the reference and, through ctypes, the C++ engines."""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_float,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import reference_decoder
from numpy.typing import NDArray
from output_plans import TYPES, Plan
from reference_decoder import STATUS_NAMES, FormatError

ROOT = Path(__file__).resolve().parent.parent
ENGINES = ("scalar", "avx2", "emulated_cuda", "avx512", "emulated_small_cuda", "neon")
MODES = ("packed", "rans", "stored")
KERNELS = ("fastest", "baseline", "avx2", "avx512")  # of the encoder
GAP = 0xA5  # fills the bytes between output rows, which no decoder may touch

Samples = NDArray[Any]


@dataclass
class Outcome:
    """What a decoder made of a stream: samples, or a Status and the tile to blame."""

    status: str
    tile: int | None = None
    samples: Samples | None = None

    def __eq__(self, other: object) -> bool:
        """Same Status, tile, and samples with their shape and type."""
        if not isinstance(other, Outcome):
            return NotImplemented
        if (self.status, self.tile) != (other.status, other.tile):
            return False
        if self.samples is None or other.samples is None:
            return self.samples is other.samples
        same_type = self.samples.dtype == other.samples.dtype
        return same_type and np.array_equal(self.samples, other.samples)


def decode(engine: str, data: bytes, *, threads: int = 1, row_padding_bytes: int = 0) -> Outcome:
    """Decodes with `engine`, one of ENGINES or "reference"."""
    if engine == "reference":
        return _decode_with_reference(data)
    info = _Info()
    status = _status(_library().l3_test_parse(data, len(data), byref(info)))
    if status != "kOk":
        return Outcome(status)
    row_bytes = info.image_bytes // info.height_px
    stride = row_bytes + row_padding_bytes
    buffer = np.full(stride * (info.height_px - 1) + row_bytes + row_padding_bytes, GAP, np.uint8)
    tile = c_uint32(0xFFFFFFFF)
    status = _status(
        _library().l3_test_decode(
            ENGINES.index(engine),
            data,
            len(data),
            buffer.ctypes.data_as(POINTER(c_uint8)),
            buffer.size - row_padding_bytes,
            stride,
            threads,
            byref(tile),
        )
    )
    rows = buffer.reshape(info.height_px, stride)
    if not (rows[:, row_bytes:] == GAP).all():
        raise AssertionError(f"{engine} wrote between the rows of its output")
    if status != "kOk":
        return Outcome(status, tile.value)
    samples = np.ascontiguousarray(rows[:, :row_bytes]).view(f"<u{info.sample_bits // 8}")
    return Outcome(status, None, samples.reshape(info.height_px, info.width_px, info.channels))


def decode_plan(engine: str, data: bytes, plan: Plan, *, threads: int = 1) -> Outcome:
    """Decodes into bytes of GAP as `plan` says. The samples are all bytes of the output."""
    outcome, outputs, _ = decode_plans(engine, data, [plan], threads=threads)
    return Outcome("kOk", None, outputs[0]) if outcome.status == "kOk" else outcome


def decode_plans(
    engine: str, data: bytes, plans: list[Plan], *, threads: int = 1
) -> tuple[Outcome, list[Samples], int]:
    """Decodes by several plans at once.

    Returns the Status and the first bad tile, all bytes of each output, and how many times the
    CUDA engine decoded a tile (0 on the CPU).
    """
    begins, end = [], 0
    for plan in plans:
        begins.append(-(-end // 4) * 4)
        end = begins[-1] + plan.output_bytes
    moved = (_Plan * len(plans))(*map(_Plan.of, plans))
    for c_plan, begin in zip(moved, begins, strict=True):
        c_plan.data_offset += begin
    output = np.full(end, GAP, np.uint8)
    tile, decoded_tiles = c_uint32(0xFFFFFFFF), c_uint64()
    status = _status(
        _library().l3_test_decode_plans(
            ENGINES.index(engine),
            data,
            len(data),
            moved,
            len(plans),
            output.ctypes.data_as(POINTER(c_uint8)),
            output.size,
            threads,
            byref(tile),
            byref(decoded_tiles),
        )
    )
    outputs: list[Samples] = [
        output[begin : begin + plan.output_bytes] for begin, plan in zip(begins, plans, strict=True)
    ]
    outcome = Outcome(status, None if status == "kOk" else tile.value)
    return outcome, outputs, int(decoded_tiles.value)


def decode_changing(
    engine: str, data: bytes, changed: bytes, *, step: int, seed: int = 0
) -> Outcome:
    """Decodes `data`, which becomes `changed`, as l3_test_decode_changing of testing.h says.

    `engine` may be "encoded_cache" too.
    """
    info = _Info()
    if _status(_library().l3_test_parse(data, len(data), byref(info))) != "kOk":
        raise AssertionError("a file that changes must be sound before")
    output = np.full(info.image_bytes, GAP, np.uint8)
    tile = c_uint32(0xFFFFFFFF)
    status = _status(
        _library().l3_test_decode_changing(
            [*ENGINES, "encoded_cache"].index(engine),
            data,
            changed,
            len(data),
            step,
            seed,
            None,
            output.ctypes.data_as(POINTER(c_uint8)),
            output.size,
            byref(tile),
        )
    )
    if status != "kOk":
        return Outcome(status, tile.value)
    samples = output.view(f"<u{info.sample_bits // 8}")
    return Outcome(status, None, samples.reshape(info.height_px, info.width_px, info.channels))


def uploaded_bytes(data: bytes, plan: Plan) -> int:
    """What the CUDA engine uploads to decode by `plan`."""
    return int(_library().l3_test_uploaded_bytes(data, len(data), byref(_Plan.of(plan))))


def is_available(engine: str) -> bool:
    """Whether this build and this machine have the engine."""
    return bool(_library().l3_test_engine_available(ENGINES.index(engine)))


def read_orientation(exif: bytes) -> tuple[bool, bool, bool]:
    """Whether an EXIF block asks for swapped axes, and for stored x and y axes flipped."""
    turn = _library().l3_test_read_orientation(exif, len(exif))
    return bool(turn & 1), bool(turn & 2), bool(turn & 4)


def status_name(status: int) -> str:
    """The name that the C++ sources give a Status."""
    name: bytes = _library().l3_test_status_name(status)
    return name.decode()


def encode(
    samples: Samples,
    *,
    mode: str = "packed",
    effort: int = 5,
    threads: int = 1,
    tile_log2: tuple[int, int] = (0, 0),
    meaning: int = 0,
    icc: bytes = b"",
    exif: bytes = b"",
    palette: bytes = b"",
    kernels: str = "fastest",
) -> bytes:
    """Encodes (height, width, channels); rows may lie apart. Raises FormatError.

    Of the KERNELS that the machine has, none above `kernels` are used.
    """
    height, width, channels = samples.shape
    item = samples.itemsize
    if samples.size and samples.strides[1:] != (channels * item, item):
        raise AssertionError("the samples of a row must be contiguous")
    options = _EncodeOptions(
        MODES.index(mode),
        effort,
        threads,
        *tile_log2,
        meaning,
        *(_Bytes(b, len(b)) for b in (icc, exif, palette)),
        KERNELS.index(kernels),
    )
    row_bytes = width * channels * item
    stride = samples.strides[0] if height > 1 else row_bytes
    encoded, encoded_bytes = POINTER(c_uint8)(), c_size_t()
    status = _status(
        _library().l3_test_encode(
            samples.ctypes.data_as(POINTER(c_uint8)),
            stride * (height - 1) + row_bytes if samples.size else 0,
            width,
            height,
            channels,
            8 * item,
            stride,
            byref(options),
            byref(encoded),
            byref(encoded_bytes),
        )
    )
    if status != "kOk":
        raise FormatError(status, "encode")
    try:
        return ctypes.string_at(encoded, encoded_bytes.value)
    finally:
        _library().l3_test_free(encoded)


def _decode_with_reference(data: bytes) -> Outcome:
    try:
        samples, _ = reference_decoder.decode(data)
    except FormatError as error:
        return Outcome(error.status, error.tile)
    return Outcome("kOk", None, samples)


class _Info(Structure):
    _fields_ = [
        ("width_px", c_uint32),
        ("height_px", c_uint32),
        ("channels", c_uint32),
        ("sample_bits", c_uint32),
        ("used_bits", c_uint32),
        ("shift", c_uint32),
        ("tile_width_log2", c_uint32),
        ("tile_height_log2", c_uint32),
        ("meaning", c_uint32),
        ("value_count", c_uint32),
        ("tile_count", c_uint32),
        ("image_bytes", c_uint64),
    ]


class _Plan(Structure):
    _fields_ = [
        ("data_offset", c_uint64),
        ("strides_bytes", c_int64 * 3),
        ("window", c_uint32 * 4),
        ("border", c_uint32 * 4),
        ("type", c_uint32),
        ("op", c_uint32),
        ("channels", c_uint32),
        ("source", c_uint32 * 4),
        ("luma_rounding", c_uint32),
        ("subtract", c_float * 4),
        ("multiply", c_float * 4),
        ("range", c_float),
        ("weights", c_float * 9),
        ("bias", c_float * 3),
        ("fill", c_float * 4),
    ]

    @classmethod
    def of(cls, plan: Plan) -> _Plan:
        return cls(
            plan.data_offset,
            (c_int64 * 3)(*(plan.strides[axis] for axis in (1, 0, 2))),
            (c_uint32 * 4)(*plan.window),
            (c_uint32 * 4)(*plan.border),
            TYPES.index(plan.type),
            plan.op,
            plan.channels,
            (c_uint32 * 4)(*[*plan.source, 0, 0, 0][:4]),
            plan.luma_rounding,
            (c_float * 4)(*plan.subtract.tolist()),
            (c_float * 4)(*plan.multiply.tolist()),
            plan.range,
            (c_float * 9)(*plan.weights.ravel().tolist()),
            (c_float * 3)(*plan.bias.tolist()),
            (c_float * 4)(*plan.fill.tolist()),
        )


class _Bytes(Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", c_size_t)]


class _EncodeOptions(Structure):
    _fields_ = [
        ("mode", c_uint32),
        ("effort", c_uint32),
        ("threads", c_uint32),
        ("tile_width_log2", c_uint32),
        ("tile_height_log2", c_uint32),
        ("meaning", c_uint32),
        ("icc", _Bytes),
        ("exif", _Bytes),
        ("palette", _Bytes),
        ("kernels", c_uint32),
    ]


def _status(number: int) -> str:
    if number >= len(STATUS_NAMES):
        raise AssertionError("an exception crossed an engine")
    return STATUS_NAMES[number]


@functools.cache
def _library() -> ctypes.CDLL:
    named = os.environ.get("L3_TESTING_LIBRARY")
    built = sorted(ROOT.glob("build/*/libl3_testing.so"), key=lambda path: path.stat().st_mtime)
    if not named and not built:
        raise RuntimeError(
            "libl3_testing.so is not built: run `make build`, or configure CMake with "
            "-DL3_BUILD_TESTS=ON and set L3_TESTING_LIBRARY to the library's path"
        )
    library = ctypes.CDLL(named or str(built[-1]))
    data: list[Any] = [ctypes.c_char_p, c_size_t]
    pixels: list[Any] = [POINTER(c_uint8), c_size_t]
    encoded: list[Any] = [POINTER(POINTER(c_uint8)), POINTER(c_size_t)]
    library.l3_test_status_name.restype = ctypes.c_char_p
    signatures: dict[str, list[Any]] = {
        "engine_available": [c_uint32],
        "parse": [*data, POINTER(_Info)],
        "decode": [c_uint32, *data, *pixels, c_uint64, c_uint32, POINTER(c_uint32)],
        "decode_plans": [
            c_uint32,
            *data,
            POINTER(_Plan),
            c_size_t,
            *pixels,
            c_uint32,
            POINTER(c_uint32),
            POINTER(c_uint64),
        ],
        "decode_changing": [
            c_uint32,
            ctypes.c_char_p,
            *data,
            *[c_uint32] * 2,
            POINTER(_Plan),
            *pixels,
            POINTER(c_uint32),
        ],
        "uploaded_bytes": [*data, POINTER(_Plan)],
        "read_orientation": data,
        "encode": [*pixels, *[c_uint32] * 4, c_uint64, POINTER(_EncodeOptions), *encoded],
        "free": [POINTER(c_uint8)],
    }
    for name, argument_types in signatures.items():
        function = library[f"l3_test_{name}"]
        function.argtypes = argument_types
        function.restype = {"free": None, "uploaded_bytes": c_uint64}.get(name, c_uint32)
        setattr(library, f"l3_test_{name}", function)
    return library
