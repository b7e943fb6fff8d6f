"""L3 images to PyTorch tensors, on the CPU or on a GPU, without DALI."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, get_args, overload

import torch

from l3dali import arguments
from l3dali.arguments import DEFAULT_THREADS, LAYOUTS, Layout, Window
from l3dali.codec import DEFAULT_MAX_PIXELS, DecodeBatch, open_batch
from l3dali.console import printable
from l3dali.errors import L3Error
from l3dali.parts import FIRST_BYTES, Member, open_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from typing_extensions import Buffer, Unpack

    from l3dali.parts import RemoteFiles

__all__ = ["FileOptions", "Layout", "Mode", "decode", "decode_batch", "decode_files"]

#: Which channels tensors have; `decode_batch` explains each.
Mode = Literal["UNCHANGED", "GRAY", "RGB"]

_DTYPES = (
    *("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64"),
    *("float16", "bfloat16", "float32"),
)


class FileOptions(TypedDict, total=False):
    """The options of `decode_files`, as in `decode_batch`."""

    device: torch.device | str | int
    mode: Mode
    dtype: torch.dtype | None
    fill_range: bool | None
    layout: Layout
    channels: Sequence[int] | None
    threads: int
    max_pixels: int | None


def decode(
    data: Buffer | torch.Tensor, *, window: Window | None = None, **options: Unpack[FileOptions]
) -> torch.Tensor:
    """Decodes an L3 image to a tensor of three axes.

    Arguments and errors are those of `decode_batch`, for one file and one window. On a GPU
    `decode_batch` is much faster, as it decodes many images at once.
    """
    file = arguments.contiguous(_bytes_of(data))
    windows = [arguments.checked_window("window", window)]
    return _decode([file], windows, DecodeOptions(**options), True, False)[0]


@overload
def decode_batch(
    items: Sequence[Buffer | torch.Tensor],
    *,
    windows: Sequence[Window | None] | None = None,
    batched: Literal[False] = False,
    **options: Unpack[FileOptions],
) -> list[torch.Tensor]: ...
@overload
def decode_batch(
    items: Sequence[Buffer | torch.Tensor],
    *,
    windows: Sequence[Window | None] | None = None,
    batched: Literal[True],
    **options: Unpack[FileOptions],
) -> torch.Tensor: ...
def decode_batch(
    items: Sequence[Buffer | torch.Tensor],
    *,
    device: torch.device | str | int = "cpu",
    mode: Mode = "UNCHANGED",
    dtype: torch.dtype | None = None,
    fill_range: bool | None = None,
    layout: Layout = "CHW",
    windows: Sequence[Window | None] | None = None,
    channels: Sequence[int] | None = None,
    batched: bool = False,
    threads: int = DEFAULT_THREADS,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
) -> list[torch.Tensor] | torch.Tensor:
    """Decodes a batch of L3 images to tensors.

    A GPU decodes on the current stream of the device, with memory from PyTorch's allocators. The
    call returns when the batch is decoded.

    Args:
        items: L3 files, each as bytes or as a 1-D uint8 tensor of the CPU. They must not change
            during the call. To decode several windows of a file, repeat the same object in a row:
            tiles that the windows share are decoded once.
        device: the CPU or a CUDA device, for decoding and for the tensors.
        mode: "UNCHANGED" keeps the stored channels; "RGB" and "GRAY" convert to 3 or 1 and drop
            alpha. "GRAY" of a JPEG file that was kept as such is its luma.
        dtype: uint8, int8, uint16, int16, uint32, int32, int64, float16, bfloat16 or float32.
            None: the stored type. An integer type that holds every value of the stored type keeps
            the numbers, and so do stored floats and 32-bit integers. Other types rescale, floats to
            0 to 1 (negative samples to -1 to 0). Signed and 32-bit images refuse integer types that
            cannot hold them. Labels never rescale, and refuse types that cannot hold them.
        fill_range: True: rescale to the range of `dtype`. False: keep the numbers, and saturate.
        layout: "CHW" or "HWC"; images of one channel also have three axes.
        windows: for each item a window (top, left, height, width), or None for the whole image.
        channels: numbers of channels to decode, as in `l3dali.decode`. These, and images with more
            than four channels, need the mode "UNCHANGED".
        batched: return one tensor (N, C, H, W) or (N, H, W, C); all outputs must be alike.
        threads: number of threads of the CPU, as in `l3dali.decode`; with a GPU they copy files.
        max_pixels: for each item, as in `l3dali.decode`.

    Returns:
        A tensor for each item, or one for all. Contiguous, not pinned.

    Raises:
        L3Error: the first item that fails; `.status` has the reason, `.index` its number.
        TypeError, ValueError: an argument is not valid.
        RuntimeError: in FakeTensorMode, or while PyTorch traces the call.
        ImportError: this build of l3dali has no CUDA engine.
    """
    files = arguments.checked_files(items, _bytes_of)
    checked = arguments.checked_windows(windows, len(files))
    options = DecodeOptions(device, mode, dtype, fill_range, layout, channels, threads, max_pixels)
    return _decode(files, checked, options, batched, True)


@overload
def decode_files(
    paths: Sequence[str | os.PathLike[str] | Member],
    *,
    windows: Sequence[Window | None] | None = None,
    batched: Literal[False] = False,
    **options: Unpack[FileOptions],
) -> list[torch.Tensor]: ...
@overload
def decode_files(
    paths: Sequence[str | os.PathLike[str] | Member],
    *,
    windows: Sequence[Window | None] | None = None,
    batched: Literal[True],
    **options: Unpack[FileOptions],
) -> torch.Tensor: ...
def decode_files(
    paths: Sequence[str | os.PathLike[str] | Member],
    *,
    windows: Sequence[Window | None] | None = None,
    batched: bool = False,
    **options: Unpack[FileOptions],
) -> list[torch.Tensor] | torch.Tensor:
    """Reads and decodes a batch of L3 files; of a window only its tiles.

    Files behind URLs are read in one round of requests; with windows or channels, in a round for
    the heads of all files and one for the tiles.

    Args:
        paths: regular files, URLs of fsspec (`s3://...`), or members of tar files. To decode
            several windows of a file, repeat its path in a row.
        windows: as in `decode_batch`.
        batched: as in `decode_batch`.
        **options: those of `decode_batch`; `threads` also read the files.

    Returns:
        A tensor for each path, or one for all.

    Raises:
        OSError: the first file that cannot be read. Requests to a server are repeated for 25 s.
        L3Error, TypeError, ValueError, RuntimeError, ImportError: as in `decode_batch`; an L3Error
            names the file.
        UsageError: a URL needs fsspec, or another package, that is not installed.
    """
    if isinstance(paths, (str, bytes, os.PathLike, Member)):
        raise TypeError("paths must be a sequence of paths: put one path in a list")
    members = [member_of(f"paths[{i}]", path) for i, path in enumerate(paths)]
    checked = arguments.checked_windows(windows, len(members))
    return decode_members(members, checked, DecodeOptions(**options), batched=batched)


def member_of(name: str, path: Any) -> Member:
    """The file at a path; `name` is that of the argument."""
    if isinstance(path, Member):
        return path
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a path, not {type(path).__name__}")
    return Member(text)


def decode_members(
    members: list[Member],
    windows: list[Window | None],
    options: DecodeOptions,
    *,
    batched: bool | None,
    remote: RemoteFiles | None = None,
    empty: Callable[..., torch.Tensor] = torch.empty,
) -> list[torch.Tensor] | torch.Tensor:
    """`decode_files` of checked arguments.

    Args:
        members: the files.
        windows: of each.
        options: for all.
        batched: None: True if all outputs are alike.
        remote: those of the members, if they are open already.
        empty: makes the tensor of a batch, as `torch.empty`.
    """
    with naming_members(members):
        if remote is None:
            is_whole = options.channels is None and not any(windows)
            remote = open_remote(members, None if is_whole else FIRST_BYTES)
        return _decode(members, windows, options, batched, True, remote, empty)


@contextlib.contextmanager
def naming_members(members: list[Member]) -> Iterator[None]:
    """Adds the name of the file to the message of an L3Error with an index."""
    try:
        yield
    except L3Error as error:
        path, offset, _ = members[error.index or 0]
        place = f"{printable(path)} at byte {offset}" if offset else printable(path)
        reason = str(error).removeprefix(f"item {error.index}: ")
        message = f"item {error.index}: {place}: {reason}"
        raise L3Error(message, error.status, error.index) from None


class DecodeOptions(NamedTuple):
    """`FileOptions`, all of them."""

    device: torch.device | str | int = "cpu"
    mode: Mode = "UNCHANGED"
    dtype: torch.dtype | None = None
    fill_range: bool | None = None
    layout: Layout = "CHW"
    channels: Sequence[int] | None = None
    threads: int = DEFAULT_THREADS
    max_pixels: int | None = DEFAULT_MAX_PIXELS


def _decode(
    files: list[Buffer] | list[Member],
    windows: list[Window | None],
    options: DecodeOptions,
    batched: bool | None,
    names_items: bool,
    remote: RemoteFiles | None = None,
    empty: Callable[..., torch.Tensor] = torch.empty,
) -> list[torch.Tensor] | torch.Tensor:
    device, mode, dtype, fill_range, layout, channels, threads, max_pixels = options
    if fill_range not in (None, False, True):
        raise TypeError(f"fill_range must be True, False or None, not {fill_range!r}")
    target = torch.device(device)
    if target.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be the CPU or a CUDA device, not {target}")
    if mode not in get_args(Mode):
        raise ValueError(f"mode {mode!r} is not supported; modes: {', '.join(get_args(Mode))}")
    if layout not in LAYOUTS:
        raise ValueError(f"layout {layout!r} is not supported; layouts: {', '.join(LAYOUTS)}")
    gpu = None if target.type == "cpu" else _gpu_of(target)
    count = arguments.checked_threads(threads)

    def make(items: Sequence[Any], is_partial: bool = True) -> DecodeBatch:
        return open_batch(
            items,
            windows,
            max_pixels,
            channels,
            engine=DecodeBatch if gpu is None else gpu.module.DecodeBatch,
            colors=mode,
            dtype=_name_of(dtype),
            channels_first=layout == "CHW",
            names_items=names_items,
            fills_range=fill_range,
            is_partial=is_partial,
            threads=count,
        )

    batch = make(files, is_partial=False) if remote is None else remote.open_batch(make)
    if _is_tracing():
        raise RuntimeError(
            "decoding cannot be traced: decode outside of torch.jit.trace and make_fx"
        )
    tensors = _tensors(batch, target if gpu is None else gpu.device, batched, empty)
    addresses = [tensor.data_ptr() for tensor in tensors]
    if not all(addresses):
        raise RuntimeError(
            "fake tensors have no memory: decode outside of FakeTensorMode and torch.export"
        )
    if gpu is None:
        batch.decode(addresses, row_strides=None, threads=count)
    else:
        gpu.decode(batch, addresses, count)
    if dtype != torch.bfloat16:
        return tensors
    if isinstance(tensors, torch.Tensor):
        return tensors.to(dtype)
    return [tensor.to(dtype) for tensor in tensors]


def _is_tracing() -> bool:
    """Whether PyTorch records operators: `torch.jit.trace`, `make_fx`."""
    # The module is large. A program that traces has imported it.
    proxies = sys.modules.get("torch.fx.experimental.proxy_tensor")
    get_mode = getattr(proxies, "get_proxy_mode", lambda: None)
    return torch.jit.is_tracing() or get_mode() is not None


def _bytes_of(item: Buffer | torch.Tensor) -> Buffer:
    """The memory of a tensor, without a copy; other items are returned unchanged."""
    if not isinstance(item, torch.Tensor):
        return item
    if item.device.type != "cpu" or item.dtype != torch.uint8 or item.dim() != 1:
        raise TypeError(
            f"encoded files must be 1-D tensors of torch.uint8 on the CPU, not a {item.dim()}-D "
            f"tensor of {item.dtype} on {item.device}"
        )
    array: Buffer = item.contiguous().numpy()
    return array


def _name_of(dtype: torch.dtype | None) -> str | None:
    """NumPy's name of a type that the store stage knows."""
    if dtype is None:
        return None
    name = str(dtype).removeprefix("torch.")
    if not isinstance(dtype, torch.dtype) or name not in _DTYPES:
        raise ValueError(f"dtype {dtype!r} is not supported; types: {', '.join(_DTYPES)}")
    return name


def _tensors(
    batch: DecodeBatch,
    device: torch.device,
    batched: bool | None,
    empty: Callable[..., torch.Tensor],
) -> list[torch.Tensor] | torch.Tensor:
    """Memory for the outputs."""
    outputs = list(zip(batch.shapes, batch.dtypes, strict=True))
    types = {name: getattr(torch, name) for _, name in outputs}
    if not batched and (batched is False or len(set(outputs)) != 1):
        return [torch.empty(shape, dtype=types[name], device=device) for shape, name in outputs]
    if not outputs:
        raise ValueError("batched=True needs at least one item")
    for i, output in enumerate(outputs):
        if output != outputs[0]:
            raise ValueError(
                f"batched=True needs outputs of one dtype and shape, but item {i} has {output[1]} "
                f"of {output[0]} and item 0 {outputs[0][1]} of {outputs[0][0]}; use windows, mode "
                f"or dtype"
            )
    shape, name = outputs[0]
    return empty((len(outputs), *shape), dtype=types[name], device=device)


class _Gpu:
    """The decoder of a GPU, with memory from PyTorch.

    Its device memory is taken on a stream of its own, so that a block was last used by
    this decoder, which waited for that.
    """

    def __init__(self, device: torch.device) -> None:
        try:
            from l3dali import _cuda
        except ImportError as error:
            raise ImportError(
                "this l3dali was built without the CUDA engine: reinstall it with "
                "L3_CUDA_ARCHS=native, or decode with device='cpu'"
            ) from error
        self.module = _cuda
        self.device = device
        self._allocating = torch.cuda.Stream(device)
        self._decoder = _cuda.Decoder(device.index, self._allocate)

    def _allocate(self, size: int, pinned: bool) -> torch.Tensor:
        if pinned:
            return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)
        with torch.cuda.stream(self._allocating):
            memory = torch.empty(size, dtype=torch.uint8, device=self.device)
        self._allocating.synchronize()  # use_deterministic_algorithms() fills it there
        return memory

    def decode(self, batch: DecodeBatch, addresses: list[int], threads: int) -> None:
        stream = torch.cuda.current_stream(self.device).cuda_stream
        self._decoder.decode(batch, addresses, stream=stream, threads=threads)


_gpus: dict[int, _Gpu] = {}
_gpus_lock = threading.Lock()


def _gpu_of(device: torch.device) -> _Gpu:
    """The decoder of a GPU, which all threads share."""
    index = torch.cuda.current_device() if device.index is None else device.index
    with _gpus_lock:
        if index not in _gpus:
            _gpus[index] = _Gpu(torch.device("cuda", index))
        return _gpus[index]
