"""Every decoder behind one interface: the reference and the C++ engines.

These are asked through ctypes, or in a process of another processor, as `make test-aarch64` does.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import enum
import functools
import os
import shlex
import struct
import subprocess
from collections.abc import Sequence
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
from typing import Any, NamedTuple

import numpy as np
import reference_decoder
from c_library import C_CODINGS, C_TYPES, Info, built
from numpy.typing import NDArray
from output_plans import TYPES, Plan
from reference_decoder import STATUS_NAMES, FormatError

ROOT = Path(__file__).resolve().parents[2]
ENGINES = ("scalar", "avx2", "emulated_cuda", "avx512", "emulated_small_cuda", "neon")
SAMPLE_TYPES = C_TYPES[1:5]
WIDE_TYPES = C_TYPES[5:9]  # those of version 2
CODINGS = ("packed", "rans", "stored")
IS_OTHER_PROCESSOR = "L3_TESTING_COMMAND" in os.environ
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
        same_type = (self.samples.dtype, self.samples.shape) == (
            other.samples.dtype,
            other.samples.shape,
        )
        return same_type and self.samples.tobytes() == other.samples.tobytes()


def decode(engine: str, data: bytes, *, threads: int = 1, row_padding_bytes: int = 0) -> Outcome:
    """Decodes with `engine`, one of ENGINES or "reference"."""
    if engine == "reference":
        return _decode_with_reference(data)
    status, info = _read_info(data)
    if status != "kOk":
        return Outcome(status)
    row_bytes = info.image_bytes // info.height
    stride = row_bytes + row_padding_bytes
    output = np.full(stride * (info.height - 1) + row_bytes, GAP, np.uint8)
    numbers = [ENGINES.index(engine), stride, threads]
    answer = _call(_Call.DECODE, numbers, [data, output.tobytes()])
    status = _status(answer.result)
    padded = np.append(np.frombuffer(answer.blob, np.uint8), np.full(row_padding_bytes, GAP, "u1"))
    rows = padded.reshape(info.height, stride)
    if not (rows[:, row_bytes:] == GAP).all():
        raise AssertionError(f"{engine} wrote between the rows of its output")
    if status != "kOk":
        return Outcome(status, answer.tile)
    return Outcome(status, None, _samples(info, rows[:, :row_bytes]))


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
    answer = _call(
        _Call.DECODE_PLANS,
        [ENGINES.index(engine), threads],
        [data, np.full(end, GAP, np.uint8).tobytes(), bytes(moved)],
    )
    status = _status(answer.result)
    output = np.frombuffer(answer.blob, np.uint8).copy()
    outputs: list[Samples] = [
        output[begin : begin + plan.output_bytes] for begin, plan in zip(begins, plans, strict=True)
    ]
    outcome = Outcome(status, None if status == "kOk" else answer.tile)
    return outcome, outputs, answer.number


def uploaded_bytes(data: bytes, plan: Plan) -> int:
    """What the CUDA engine uploads to decode by `plan`."""
    return _call(_Call.UPLOADED_BYTES, [], [data, bytes(_Plan.of(plan))]).result


def is_available(engine: str) -> bool:
    """Whether this build and this machine have the engine.

    Another processor has its own alone: emulated lanes are the same code on each, and slow there.
    """
    if IS_OTHER_PROCESSOR and engine.startswith("emulated"):
        return False
    return bool(_call(_Call.ENGINE_AVAILABLE, [ENGINES.index(engine)]).result)


def read_orientation(exif: bytes) -> tuple[bool, bool, bool]:
    """Whether an EXIF block asks for swapped axes, and for stored x and y axes flipped."""
    turn = _call(_Call.READ_ORIENTATION, [], [exif]).result
    return bool(turn & 1), bool(turn & 2), bool(turn & 4)


def status_name(status: int) -> str:
    """The name that the C++ sources give a Status."""
    return _call(_Call.STATUS_NAME, [status]).blob.decode()


def encode(
    samples: Samples,
    *,
    coding: str = "packed",
    effort: int = 5,
    threads: int = 1,
    tile_log2: tuple[int, int] = (0, 0),
    meaning: int = 0,
    icc: bytes = b"",
    exif: bytes = b"",
    palette: bytes = b"",
    kernels: str = "fastest",
    changed: Samples | None = None,
    seed: int = 0,
) -> bytes:
    """Encodes (height, width, channels); rows may lie apart. Raises FormatError.

    Of the KERNELS that the machine has, none above `kernels` are used. With `changed` rows become
    its rows during the call: tests/native/changing_pixels.h says when.
    """
    height, width, channels = samples.shape
    item = samples.itemsize
    if samples.size and samples.strides[1:] != (channels * item, item):
        raise AssertionError("the samples of a row must be contiguous")
    row_bytes = width * channels * item
    stride = samples.strides[0] if height > 1 else row_bytes
    pixels_bytes = stride * (height - 1) + row_bytes if samples.size else 0
    pixels = ctypes.string_at(samples.ctypes.data, pixels_bytes)
    tile = [1 << log2 if log2 else 0 for log2 in reversed(tile_log2)]
    numbers = [
        *(height, width, channels, C_TYPES.index(samples.dtype.name), stride),
        *(C_CODINGS.index(coding), effort, threads, *tile, meaning, KERNELS.index(kernels)),
    ]
    blobs = [pixels, icc, exif, palette]
    if changed is None:
        answer = _call(_Call.ENCODE, numbers, blobs)
    else:
        answer = _call(_Call.ENCODE_CHANGING, [*numbers, seed], [*blobs, changed.tobytes()])
    status = _status(answer.result)
    if status != "kOk":
        raise FormatError(status, "encode")
    return answer.blob


def decode_with_all(data: bytes) -> Outcome:
    """The reference's outcome, which must be that of every engine that is here."""
    outcome = decode("reference", data)
    for engine in filter(is_available, ENGINES):
        if decode(engine, data) != outcome:
            raise AssertionError(f"{engine} is not of the reference's opinion: {outcome}")
    return outcome


class Made(NamedTuple):
    """A file, and what it must decode to."""

    data: bytes
    outcome: Outcome


def make_file(choices: bytes, seed: int) -> Made:
    """Any file that the format allows, but for colours that its value table may lack.

    The choices are those of tests/fuzz/generator.h. Behind them come those that a seed draws, the
    simplest ones if it is 0.
    """
    answer = _call(_Call.MAKE_FILE, [seed], [choices])
    data, pixels = answer.blob[: answer.number], answer.blob[answer.number :]
    status = _status(answer.result)
    if status != "kOk":
        return Made(data, Outcome(status, answer.tile))
    _, info = _read_info(data)
    return Made(data, Outcome(status, None, _samples(info, np.frombuffer(pixels, np.uint8))))


def mutate_file(data: bytes, choices: bytes, seed: int) -> bytes:
    """Another file, seldom one that the format allows: tests/fuzz/mutator.h chooses."""
    return _call(_Call.MUTATE_FILE, [seed], [choices, data]).blob


def _decode_with_reference(data: bytes) -> Outcome:
    try:
        samples, _ = reference_decoder.decode(data)
    except FormatError as error:
        return Outcome(error.status, error.tile)
    return Outcome("kOk", None, samples)


_MOST_CHANNELS = 40  # of a plan


def _padded(values: Sequence[Any]) -> list[Any]:
    return [*values, *[0] * (_MOST_CHANNELS - len(values))]


class _Plan(Structure):
    _fields_ = [
        ("data_offset", c_uint64),
        ("strides_bytes", c_int64 * 3),
        ("window", c_uint32 * 4),
        ("border", c_uint32 * 4),
        ("type", c_uint32),
        ("op", c_uint32),
        ("channels", c_uint32),
        ("source", c_uint32 * _MOST_CHANNELS),
        ("luma_rounding", c_uint32),
        ("subtract", c_float * _MOST_CHANNELS),
        ("multiply", c_float * _MOST_CHANNELS),
        ("range", c_float),
        ("weights", c_float * 9),
        ("bias", c_float * 3),
        ("fill", c_float * _MOST_CHANNELS),
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
            (c_uint32 * _MOST_CHANNELS)(*_padded(plan.source)),
            plan.luma_rounding,
            (c_float * _MOST_CHANNELS)(*_padded(plan.subtract.tolist())),
            (c_float * _MOST_CHANNELS)(*_padded(plan.multiply.tolist())),
            plan.range,
            (c_float * 9)(*plan.weights.ravel().tolist()),
            (c_float * 3)(*plan.bias.tolist()),
            (c_float * _MOST_CHANNELS)(*_padded(plan.fill.tolist())),
        )


class _Call(enum.IntEnum):
    """L3TestCall of calls.h."""

    STATUS_NAME = 0
    READ_INFO = 1
    ENCODE = 2
    ENGINE_AVAILABLE = 3
    DECODE = 4
    DECODE_PLANS = 5
    UPLOADED_BYTES = 7
    READ_ORIENTATION = 8
    MAKE_FILE = 9
    MUTATE_FILE = 10
    ENCODE_CHANGING = 11


class _Answer(NamedTuple):
    result: int
    tile: int
    number: int
    blob: bytes


def _call(call: _Call, numbers: Sequence[int], blobs: Sequence[bytes] = ()) -> _Answer:
    """Asks what calls.h describes."""
    head = struct.pack(
        f"<3I{len(numbers) + len(blobs)}Q",
        *(call, len(numbers), len(blobs)),
        *numbers,
        *map(len, blobs),
    )
    answer = _ask(b"".join([head, *blobs]))
    result, tile, number = struct.unpack_from("<3Q", answer)
    return _Answer(result, tile, number, answer[24:])


def _read_info(data: bytes) -> tuple[str, Info]:
    answer = _call(_Call.READ_INFO, [], [data])
    return _status(answer.result), Info.from_buffer_copy(answer.blob)


def _samples(info: Info, rows: Samples) -> Samples:
    samples = np.ascontiguousarray(rows).view(C_TYPES[info.type])
    return samples.reshape(info.height, info.width, info.channels)


def _status(number: int) -> str:
    if number >= len(STATUS_NAMES):
        raise AssertionError("an exception crossed an engine")
    return STATUS_NAMES[number]


def _ask(question: bytes) -> bytes:
    """The answer of the library, or of a process on another processor."""
    if IS_OTHER_PROCESSOR:
        return _ask_process(question)
    answer, answer_bytes = POINTER(c_uint8)(), c_size_t()
    library = _library()
    if not library.l3_test_call(question, len(question), byref(answer), byref(answer_bytes)):
        raise AssertionError("libl3_testing.so does not understand a call")
    try:
        return ctypes.string_at(answer, answer_bytes.value)
    finally:
        library.l3_test_free(answer)


def _ask_process(question: bytes) -> bytes:
    process = _process()
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):  # what is not answered says more
        process.stdin.write(struct.pack("<Q", len(question)) + question)
        process.stdin.flush()
    size = process.stdout.read(8)
    answer = process.stdout.read(struct.unpack("<Q", size)[0]) if len(size) == 8 else b""
    if len(answer) < 16:
        raise AssertionError(f"the engines' process ended with {process.wait()}")
    return answer


@functools.cache
def _process() -> subprocess.Popen[bytes]:
    """What L3_TESTING_COMMAND starts: l3_serve, as an emulator runs it."""
    process = subprocess.Popen(
        shlex.split(os.environ["L3_TESTING_COMMAND"]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    atexit.register(process.kill)
    return process


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(built("libl3_testing.so")))
    library.l3_test_call.argtypes = [
        ctypes.c_char_p,
        c_size_t,
        POINTER(POINTER(c_uint8)),
        POINTER(c_size_t),
    ]
    library.l3_test_free.argtypes = [POINTER(c_uint8)]
    library.l3_test_free.restype = None
    return library
