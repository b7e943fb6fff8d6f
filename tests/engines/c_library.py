"""include/l3/l3.h by ctypes: its structures, its constants, and the library that was built."""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
    sizeof,
)
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
C_TYPES = (
    *("as stored", "uint8", "uint16", "int8", "int16"),
    *("uint32", "int32", "float16", "float32", "int64"),
)
COLORS = ("as stored", "RGB", "BGR", "GRAY", "RGBA", "GRAY_ALPHA")
LAYOUTS = ("HWC", "CHW")
C_CODINGS = ("rans", "packed", "stored")
NO_TILE = 0xFFFFFFFF
OK, TRUNCATED, OUTPUT_TOO_SMALL, INVALID_ARGUMENT = 0, 1, 8, 9
OUT_OF_MEMORY, TYPE_TOO_NARROW, TOO_MANY_PIXELS = 1000, 1001, 1002
FILL_RANGE = {None: 0, True: 1, False: 2}  # as Python's decoders take it


class Bytes(Structure):
    """l3_bytes."""

    _fields_ = [("data", c_void_p), ("size", c_size_t)]

    def read(self) -> bytes | None:
        """What it points at; None for nothing."""
        return ctypes.string_at(self.data, self.size) if self.data else None


class Sized(Structure):
    """A structure that begins with its size."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{"struct_size": sizeof(self)} | fields)


class Info(Sized):
    """l3_info."""

    _fields_ = [
        ("struct_size", c_size_t),
        *(
            (name, c_uint32)
            for name in (
                *("height", "width", "channels", "type", "used_bits", "shift", "value_count"),
                *("group_count", "labels", "tile_height", "tile_width", "tile_count"),
            )
        ),
        *((name, c_uint64) for name in ("image_bytes", "head_bytes", "file_bytes")),
        *(
            (name, Bytes)
            for name in ("icc", "exif", "xmp", "palette", "metadata", "groups", "chunks")
        ),
    ]


class Window(Structure):
    """l3_window."""

    _fields_ = [(name, c_uint32) for name in ("top", "left", "height", "width")]


class DecodeOptions(Sized):
    """l3_decode_options."""

    _fields_ = [
        ("struct_size", c_size_t),
        *((name, c_uint32) for name in ("threads", "type", "colors", "layout")),
        ("window", Window),
        ("channels", POINTER(c_uint32)),
        ("channel_count", c_size_t),
        ("row_stride", c_size_t),
        ("max_pixels", c_uint64),
        ("fill_range", c_uint32),
    ]


class Output(Sized):
    """l3_output."""

    _fields_ = [
        ("struct_size", c_size_t),
        *((name, c_uint32) for name in ("height", "width", "channels", "type")),
        *((name, c_uint64) for name in ("bytes", "row_stride", "plane_stride")),
        ("bad_tile", c_uint32),
    ]


class Range(Structure):
    """l3_range."""

    _fields_ = [("offset", c_uint64), ("size", c_uint64)]


class Picture(Structure):
    """l3_image."""

    _fields_ = [
        ("pixels", c_void_p),
        *((name, c_uint32) for name in ("height", "width", "channels", "type")),
        ("row_stride", c_size_t),
    ]


class EncodeOptions(Sized):
    """l3_encode_options."""

    _fields_ = [
        ("struct_size", c_size_t),
        *(
            (name, c_uint32)
            for name in ("coding", "effort", "threads", "tile_height", "tile_width", "labels")
        ),
        *(
            (name, Bytes)
            for name in ("icc", "exif", "xmp", "palette", "metadata", "groups", "other_chunks")
        ),
    ]


def built(name: str) -> Path:
    """The newest `name` of a build, beside L3_TESTING_LIBRARY if that is set."""
    named = os.environ.get("L3_TESTING_LIBRARY")
    if named:
        return Path(named).with_name(name)
    # A sanitized library crashes a Python that was started without the sanitizers' runtime.
    found = _ROOT.glob(f"build/*/{name}")
    paths = [path for path in found if "sanitize" not in path.parent.name]
    if not paths:
        raise RuntimeError(
            f"{name} is not built: run `make build-tests`, or configure CMake with "
            "-DL3_BUILD_TESTS=ON and set L3_TESTING_LIBRARY to the path of libl3_testing.so"
        )
    return max(paths, key=lambda path: path.stat().st_mtime)


@functools.cache
def library() -> ctypes.CDLL:
    """libl3.so."""
    lib = ctypes.CDLL(str(built("libl3.so")))
    for name in ("l3_version", "l3_status_name", "l3_status_message"):
        getattr(lib, name).restype = c_char_p
    file = [c_char_p, c_size_t]
    arguments: dict[str, list[Any]] = {
        "l3_version": [],
        "l3_status_name": [c_uint32],
        "l3_status_message": [c_uint32],
        "l3_read_info": [*file, POINTER(Info)],
        "l3_read_head": [*file, POINTER(Info)],
        "l3_decode_size": [*file, POINTER(DecodeOptions), POINTER(Output)],
        "l3_decode": [*file, POINTER(DecodeOptions), c_void_p, c_size_t, POINTER(Output)],
        "l3_payload_ranges": [
            *(*file, POINTER(DecodeOptions), c_uint64, POINTER(Range), c_size_t, POINTER(c_size_t))
        ],
        "l3_encode_bound": [POINTER(Picture), POINTER(EncodeOptions), POINTER(c_size_t)],
        "l3_encode": [
            *(POINTER(Picture), POINTER(EncodeOptions), c_void_p, c_size_t, POINTER(c_size_t))
        ],
    }
    for name, types in arguments.items():
        getattr(lib, name).argtypes = types
    return lib


def pointer_to(value: Structure | c_size_t | None) -> Any:
    """What ctypes passes as a pointer, null for None."""
    return None if value is None else byref(value)
