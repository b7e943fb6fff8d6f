"""nvImageCodec's C interface as ctypes: the real library, decoding on the CPU without a GPU."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, Union, byref, c_char, c_float, c_int, c_size_t, c_uint32
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest

nvimgcodec = pytest.importorskip("nvidia.nvimgcodec", reason="nvImageCodec is not installed")

Array = npt.NDArray[Any]

PACKAGE = Path(nvimgcodec.__file__).parent
EXTENSION = PACKAGE / "extensions" / "libl3dali_ext.so"

# The extension whose GPU is emulated: tests/native/emulated_extension.cc.
_BUILD = Path(
    os.environ.get("L3_TESTING_LIBRARY")
    or Path(__file__).resolve().parents[2] / "build/release/libl3_testing.so"
).parent
EMULATED = _BUILD.resolve() / "libl3dali_emulated_ext.so"


def emulated_folder(folder: Path) -> Path:
    """A folder of extensions, made new, with the emulated one alone."""
    folder.mkdir(exist_ok=True)
    (folder / EMULATED.name).symlink_to(EMULATED)
    return folder


def emulated_launches() -> int:
    """Batches that it has decoded in this process."""
    return int(ctypes.CDLL(str(EMULATED)).l3_emulated_launches())


# Values of the header's enumerations.
CPU_ONLY_DEVICE = -99999
CPU_ONLY_BACKEND = 1
HOST_BUFFER = 2
SUCCESS = 1
GRAY, SRGB = 2, 1
SAMPLE_TYPES = {
    "uint8": 0x0802,
    "int8": 0x0801,
    "uint16": 0x1004,
    "int16": 0x1003,
    "uint32": 0x2006,
    "int32": 0x2005,
    "float16": 0x1009,
    "float32": 0x200B,
}
# Channels; none: as stored.
FORMATS: dict[str, int | None] = {
    "UNCHANGED": None,
    "Y": 1,
    "YA": 2,
    "RGB": 3,
    "BGR": 3,
    "YUV": 3,
    "RGBA": 4,
    "YCCK": 4,
    "CMYK": 4,
}
_TYPES = {  # nvimgcodecStructureType_t
    "InstanceCreateInfo": 2,
    "DecodeParams": 5,
    "Orientation": 7,
    "Region": 8,
    "View": 9,
    "ImageInfo": 11,
    "PlaneInfo": 12,
    "Backend": 17,
    "BackendParams": 29,
    "ExecutionParams": 30,
}


class Tagged(Structure):
    """A struct that begins as all of nvImageCodec's do; a new one says what it is."""

    _fields_: ClassVar[Any] = [
        ("struct_type", c_int),
        ("struct_size", c_size_t),
        ("struct_next", ctypes.c_void_p),
    ]

    def __init__(self, **fields: Any) -> None:
        super().__init__(_TYPES.get(type(self).__name__, 0), ctypes.sizeof(self), None, **fields)


class Orientation(Tagged):
    """nvimgcodecOrientation_t."""

    _fields_: ClassVar[Any] = [("rotated", c_int), ("flip_x", c_int), ("flip_y", c_int)]


class PlaneInfo(Tagged):
    """nvimgcodecImagePlaneInfo_t."""

    _fields_: ClassVar[Any] = [
        ("width", c_uint32),
        ("height", c_uint32),
        ("row_stride", c_size_t),
        ("num_channels", c_uint32),
        ("sample_type", c_int),
        ("precision", ctypes.c_uint8),
    ]


class ImageInfo(Tagged):
    """nvimgcodecImageInfo_t."""

    _fields_: ClassVar[Any] = [
        ("codec_name", c_char * 256),
        ("color_spec", c_int),
        ("chroma_subsampling", c_int),
        ("sample_format", c_int),
        ("orientation", Orientation),
        ("num_planes", c_uint32),
        ("plane_info", PlaneInfo * 32),
        ("buffer", ctypes.c_void_p),
        ("buffer_kind", c_int),
        ("cuda_stream", ctypes.c_void_p),
    ]


class SampleValue(Union):
    """The value of nvimgcodecOutOfBoundsSample_t."""

    _fields_: ClassVar[Any] = [("as_uint", c_uint32), ("as_int", c_int), ("as_float", c_float)]


class OutsideSample(Structure):
    """nvimgcodecOutOfBoundsSample_t."""

    _fields_: ClassVar[Any] = [("value", SampleValue), ("type", c_int)]


class Region(Tagged):
    """nvimgcodecRegion_t."""

    _fields_: ClassVar[Any] = [
        ("ndim", c_int),
        ("start", c_int * 5),
        ("end", c_int * 5),
        ("policy", c_int),
        ("outside", OutsideSample * 5),
    ]


class View(Tagged):
    """nvimgcodecCodeStreamView_t of version 0.9."""

    _fields_: ClassVar[Any] = [
        ("image_idx", c_size_t),
        ("region", Region),
        ("bitstream_offset", c_size_t),
    ]


class InstanceCreateInfo(Tagged):
    """nvimgcodecInstanceCreateInfo_t."""

    _fields_: ClassVar[Any] = [
        ("load_builtin_modules", c_int),
        ("load_extension_modules", c_int),
        ("extension_modules_path", ctypes.c_char_p),
        ("create_debug_messenger", c_int),
        ("debug_messenger_desc", ctypes.c_void_p),
        ("message_severity", c_uint32),
        ("message_category", c_uint32),
    ]


class BackendParams(Tagged):
    """nvimgcodecBackendParams_t."""

    _fields_: ClassVar[Any] = [("load_hint", c_float), ("load_hint_policy", c_int)]


class Backend(Tagged):
    """nvimgcodecBackend_t."""

    _fields_: ClassVar[Any] = [("kind", c_int), ("params", BackendParams)]


class ExecutionParams(Tagged):
    """nvimgcodecExecutionParams_t."""

    _fields_: ClassVar[Any] = [
        ("device_allocator", ctypes.c_void_p),
        ("pinned_allocator", ctypes.c_void_p),
        ("max_num_cpu_threads", c_int),
        ("executor", ctypes.c_void_p),
        ("device_id", c_int),
        ("pre_init", c_int),
        ("skip_pre_sync", c_int),
        ("num_backends", c_int),
        ("backends", POINTER(Backend)),
    ]


class DecodeParams(Tagged):
    """nvimgcodecDecodeParams_t."""

    _fields_: ClassVar[Any] = [("apply_exif_orientation", c_int)]


class DecodeError(Exception):
    """What nvImageCodec refused, with its number for the reason."""


@dataclass(frozen=True)
class Window:
    """Part of the shown image in pixels; where it reaches outside, the fill of each channel."""

    top: int
    left: int
    height: int
    width: int
    fill: tuple[int, ...] = ()


def _check(status: int, what: str) -> None:
    if status != 0:
        raise DecodeError(f"{what}: {status}")


class Codec:
    """An instance of the library, with a decoder that has the CPU alone."""

    def __init__(self, extensions: Path | None = None, threads: int = 2) -> None:
        self._library = ctypes.CDLL(str(PACKAGE / "libnvimgcodec.so.0"))
        self._instance = ctypes.c_void_p()
        info = InstanceCreateInfo(
            load_builtin_modules=1,
            load_extension_modules=1,
            extension_modules_path=str(extensions).encode() if extensions else None,
        )
        self._call("nvimgcodecInstanceCreate", byref(self._instance), byref(info))
        backend = Backend(kind=CPU_ONLY_BACKEND, params=BackendParams(load_hint=1))
        execution = ExecutionParams(
            max_num_cpu_threads=threads,
            device_id=CPU_ONLY_DEVICE,
            pre_init=1,
            num_backends=1,
            backends=ctypes.pointer(backend),
        )
        self._decoder = ctypes.c_void_p()
        self._call(
            "nvimgcodecDecoderCreate", self._instance, byref(self._decoder), byref(execution), None
        )

    def close(self) -> None:
        """Unloads what was loaded."""
        self._library.nvimgcodecDecoderDestroy(self._decoder)
        self._library.nvimgcodecInstanceDestroy(self._instance)

    def image_info(self, data: bytes) -> ImageInfo:
        """What the parser says."""
        stream = self._open(data)
        try:
            return self._image_info(stream)
        finally:
            self._library.nvimgcodecCodeStreamDestroy(stream)

    def decode(
        self,
        data: bytes,
        *,
        sample_format: str = "I_UNCHANGED",
        color_spec: int = SRGB,
        channels: int | None = None,
        dtype: str | None = None,
        window: Window | None = None,
        orient: bool = True,
        row_padding_bytes: int = 0,
    ) -> Array:
        """H, W, C, or C, H, W for planar formats. Raises DecodeError, and if a gap is written."""
        stream = self._open(data)
        streams = [stream]
        try:
            info = self._image_info(stream)
            plane = info.plane_info[0]
            size = (plane.height, plane.width)
            if orient and info.orientation.rotated % 180:
                size = (plane.width, plane.height)
            if window is not None:
                streams.append(stream := self._view(stream, window))
                size = (window.height, window.width)
            names = {code: name for name, code in SAMPLE_TYPES.items()}
            dtype = dtype or names[plane.sample_type]
            layout, name = sample_format.split("_")
            count = channels or FORMATS[name] or plane.num_channels
            planes = count if layout == "P" else 1
            row_bytes = size[1] * (count // planes) * np.dtype(dtype).itemsize
            pitch = row_bytes + row_padding_bytes
            rows = np.full((planes * size[0], pitch), 0xA5, np.uint8)
            info.sample_format = 1 + 2 * list(FORMATS).index(name) + (layout == "I")
            info.color_spec = color_spec
            info.num_planes = planes
            for i in range(planes):
                info.plane_info[i] = PlaneInfo(
                    width=size[1],
                    height=size[0],
                    row_stride=pitch,
                    num_channels=count // planes,
                    sample_type=SAMPLE_TYPES[dtype],
                )
            info.buffer = rows.ctypes.data
            info.buffer_kind = HOST_BUFFER
            self._decode(stream, info, orient)
        finally:
            for opened in reversed(streams):
                self._library.nvimgcodecCodeStreamDestroy(opened)
        assert (rows[:, row_bytes:] == 0xA5).all(), "bytes behind a row were written"
        values = np.ascontiguousarray(rows[:, :row_bytes]).view(dtype)
        return values.reshape((planes, *size) if layout == "P" else (*size, count))

    def _call(self, name: str, *arguments: Any) -> None:
        _check(getattr(self._library, name)(*arguments), name)

    def _open(self, data: bytes) -> ctypes.c_void_p:
        stream = ctypes.c_void_p()
        self._call(
            "nvimgcodecCodeStreamCreateFromHostMem",
            self._instance,
            byref(stream),
            data,
            c_size_t(len(data)),
            None,
        )
        return stream

    def _image_info(self, stream: ctypes.c_void_p) -> ImageInfo:
        info = ImageInfo()
        self._call("nvimgcodecCodeStreamGetImageInfo", stream, byref(info))
        return info

    def _view(self, stream: ctypes.c_void_p, window: Window) -> ctypes.c_void_p:
        region = Region(ndim=2)
        region.start[:2] = [window.top, window.left]
        region.end[:2] = [window.top + window.height, window.left + window.width]
        for i, value in enumerate(window.fill):
            region.outside[i] = OutsideSample(SampleValue(value), SAMPLE_TYPES["uint32"])
        view = View(region=region)
        part = ctypes.c_void_p()
        self._call("nvimgcodecCodeStreamGetSubCodeStream", stream, byref(part), byref(view))
        return part

    def _decode(self, stream: ctypes.c_void_p, info: ImageInfo, orient: bool) -> None:
        image = ctypes.c_void_p()
        self._call("nvimgcodecImageCreate", self._instance, byref(image), byref(info))
        params = DecodeParams(apply_exif_orientation=orient)
        future = ctypes.c_void_p()
        status = c_uint32()
        count = c_size_t()
        try:
            self._call(
                "nvimgcodecDecoderDecode",
                self._decoder,
                byref(stream),
                byref(image),
                1,
                byref(params),
                byref(future),
            )
            self._call("nvimgcodecFutureWaitForAll", future)
            self._call("nvimgcodecFutureGetProcessingStatus", future, byref(status), byref(count))
            self._call("nvimgcodecFutureDestroy", future)
        finally:
            self._library.nvimgcodecImageDestroy(image)
        if status.value != SUCCESS:
            raise DecodeError(f"processing status {status.value:#x}")
