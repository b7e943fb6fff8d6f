"""`l3dali.torch`: tensors out of L3 files. Its GPU code runs on a GPU if there is one, and on the
emulated GPU."""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from emulated_gpu import load_emulated
from engines import SAMPLE_TYPES, WIDE_TYPES
from output_plans import becomes
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.data import DataLoader

import l3dali
import l3dali.torch
from l3dali.torch import decoding

Image = npt.NDArray[Any]
ZEROS = l3dali.encode(np.zeros((2, 2), np.uint8))


class EmulatedGpu(decoding._Gpu):
    """A GPU whose memory is the host's."""

    def __init__(self) -> None:
        self.module = load_emulated()
        self.device = torch.device("cpu")
        self.allocated: list[tuple[int, bool]] = []
        self._decoder = self.module.Decoder(0, self._allocate)

    def _allocate(self, size: int, pinned: bool) -> torch.Tensor:
        self.allocated.append((size, pinned))
        return torch.full((size,), 0xCD, dtype=torch.uint8)

    def decode(self, batch: Any, addresses: list[int], threads: int) -> None:
        self._decoder.decode(batch, addresses, stream=0, threads=threads)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda), "emulated cuda"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param in ("cpu", "cuda"):
        yield request.param
        return
    gpu = EmulatedGpu()
    monkeypatch.setattr(decoding, "_gpu_of", lambda _: gpu)
    yield "cuda"


@pytest.fixture(scope="module")
def images() -> list[Image]:
    random = np.random.default_rng(1)
    shapes = [(40, 50, 3), (33, 20, 1), (70, 90, 4), (5, 6, 3)]
    return [random.integers(0, 256, shape, np.uint8) for shape in shapes]


@pytest.fixture(scope="module")
def files(images: list[Image]) -> list[bytes]:
    return [l3dali.encode(image) for image in images]


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
def test_lists(device: str, images: list[Image], files: list[bytes], layout: Any) -> None:
    items: list[Any] = [torch.frombuffer(bytearray(files[0]), dtype=torch.uint8), *files[1:]]
    decoded = l3dali.torch.decode_batch(items, device=device, layout=layout, threads=2)
    for tensor, image in zip(decoded, images, strict=True):
        expected = image if layout == "HWC" else image.transpose(2, 0, 1)
        np.testing.assert_array_equal(tensor.cpu().numpy(), expected)
        assert tensor.is_contiguous()


def test_one(device: str, images: list[Image], files: list[bytes]) -> None:
    items: list[Any] = [files[0], torch.frombuffer(bytearray(files[0]), dtype=torch.uint8)]
    for item in items:
        np.testing.assert_array_equal(
            l3dali.torch.decode(item, device=device).cpu().numpy(), images[0].transpose(2, 0, 1)
        )
    part = l3dali.torch.decode(
        files[0], device=device, window=(3, 4, 5, 6), channels=[2, 0], dtype=torch.int32, threads=2
    )
    assert part.dtype == torch.int32
    assert part.shape == (2, 5, 6)
    part = l3dali.torch.decode(files[0], device=device, window=(3, 4, 5, 6), channels=[2, 0])
    expected = images[0][3:8, 4:10, [2, 0]].transpose(2, 0, 1)
    np.testing.assert_array_equal(part.cpu().numpy(), expected)


def test_one_that_is_refused(device: str, files: list[bytes]) -> None:
    with pytest.raises(l3dali.L3Error, match=r"^the file has ") as caught:
        l3dali.torch.decode(files[0][:-1], device=device)
    assert caught.value.index is None
    with pytest.raises(l3dali.L3Error, match=r"^the window of 9 rows"):
        l3dali.torch.decode(files[0], device=device, window=(39, 0, 9, 9))
    several: Any = files
    three: Any = (1, 2, 3)
    with pytest.raises(TypeError, match="not list; decode_batch takes a list of files"):
        l3dali.torch.decode(several, device=device)
    with pytest.raises(TypeError, match=r"^window must be four integers"):
        l3dali.torch.decode(files[0], device=device, window=three)
    with pytest.raises(ValueError, match="max_pixels"):
        l3dali.torch.decode(files[0], device=device, max_pixels=100)


def test_one_thread_is_the_default() -> None:
    for function in (l3dali.decode, l3dali.torch.decode_batch):
        assert inspect.signature(function).parameters["threads"].default == 1
    assert decoding.DecodeOptions().threads == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.uint16, torch.int16])
def test_one_tensor_of_windows(
    device: str, images: list[Image], files: list[bytes], dtype: torch.dtype
) -> None:
    windows = [(3, 4, 5, 6), (28, 14, 5, 6), (60, 80, 5, 6), None]
    options: Any = {"mode": "RGB", "dtype": dtype, "fill_range": True, "windows": windows}
    batch = l3dali.torch.decode_batch(files, device=device, **options, batched=True)
    assert batch.shape == (4, 3, 5, 6)
    assert batch.dtype == dtype
    top = {torch.float32: 1.0, torch.uint8: 255, torch.uint16: 65535, torch.int16: 32767}[dtype]
    for tensor, image, window in zip(batch, images, windows, strict=True):
        top_px, left, height, width = window or (0, 0, 5, 6)
        pixels = image[top_px : top_px + height, left : left + width, :3].astype(np.float64)
        rgb = np.broadcast_to(pixels, (5, 6, 3)).transpose(2, 0, 1)
        np.testing.assert_allclose(tensor.cpu().numpy() / top, rgb / 255, atol=0.51 / top + 1e-7)


DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float16", "float32")


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("stored", SAMPLE_TYPES)
@pytest.mark.parametrize("channels", [3, 6])
def test_types(device: str, stored: str, channels: int, labels: bool) -> None:
    """Every type, with `fill_range` and without: numbers, or one sentence."""
    bits = 8 * np.dtype(stored).itemsize
    spread = np.arange(40 * 50 * channels, dtype=np.uint16).reshape(40, 50, channels) * 11
    image: Image = (spread >> 16 - bits).astype(f"u{bits // 8}").view(stored)
    data = l3dali.encode(image, labels=labels)
    found = l3dali.torch.decode(data, device=device, layout="HWC")
    assert torch.equal(found.cpu(), torch.from_numpy(image))  # of that type
    for asked in (*DTYPES, "bfloat16"):
        for fill_range in (None, False, True):
            options: Any = {"dtype": getattr(torch, asked), "fill_range": fill_range}
            options |= {"device": device, "layout": "HWC"}
            # bfloat16 has the integers up to 256, so it holds what float16 holds.
            like = "float16" if asked == "bfloat16" else asked
            expected = becomes(image, like, labels=labels, fill_range=fill_range)
            if expected is None:
                remedy = "int64" if labels else "fill_range=True"
                text = f"holds {stored} .*{asked} cannot hold .*{remedy}.*fill_range=False"
                with pytest.raises(l3dali.L3Error, match="^the image " + text) as caught:
                    l3dali.torch.decode(data, **options)
                assert caught.value.status is l3dali.Status.INVALID_ARGUMENT
                with pytest.raises(l3dali.L3Error, match="^item 1: the image " + text):
                    l3dali.torch.decode_batch([ZEROS, data], **options)
                continue
            wanted = torch.from_numpy(expected)
            if asked == "bfloat16":
                floats = becomes(image, "float32", labels=labels, fill_range=fill_range)
                wanted = torch.from_numpy(floats).to(torch.bfloat16)
            (one,) = l3dali.torch.decode_batch([data], **options)
            for tensor in (l3dali.torch.decode(data, **options), one):
                assert tensor.dtype == wanted.dtype
                assert torch.equal(tensor.cpu().contiguous(), wanted)


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("stored", WIDE_TYPES)
def test_types_of_32_bits_and_floats(device: str, stored: str, labels: bool) -> None:
    numbers = np.linspace(-4e4, 6e4, 40 * 50 * 3).reshape(40, 50, 3)
    image: Image = (np.abs(numbers) * 7e4 if stored == "uint32" else numbers).astype(stored)
    data = l3dali.encode(image, labels=labels)
    for asked in (*DTYPES, "bfloat16"):
        options: Any = {"dtype": getattr(torch, asked), "device": device, "layout": "HWC"}
        like = "float16" if asked == "bfloat16" else asked
        expected = becomes(image, like, labels=labels, fill_range=None)
        if expected is None:
            with pytest.raises(l3dali.L3Error, match=f"holds {stored} .*{asked} cannot hold"):
                l3dali.torch.decode(data, **options)
        elif asked != "bfloat16":
            found = l3dali.torch.decode(data, **options).cpu().numpy()
            np.testing.assert_array_equal(found, expected)
    if np.dtype(stored).kind == "f":
        with pytest.raises(l3dali.L3Error, match="no range that fill_range=True"):
            l3dali.torch.decode(data, dtype=torch.float32, fill_range=True)
    assert l3dali.torch.decode(data, layout="HWC").numpy().tobytes() == image.tobytes()


def test_one_tensor_of_bfloat16(device: str) -> None:
    image: Image = np.arange(30, dtype=np.uint8).reshape(5, 6)
    items: list[Any] = [l3dali.encode(image, labels=True)] * 2
    batch = l3dali.torch.decode_batch(items, device=device, dtype=torch.bfloat16, batched=True)
    assert (batch.dtype, batch.shape) == (torch.bfloat16, (2, 1, 5, 6))
    np.testing.assert_array_equal(batch[1, 0].float().cpu(), image)


def test_windows_of_one_file(device: str) -> None:
    """One object several times in a row: its tiles are decoded once, on the emulated GPU."""
    image: Image = np.random.default_rng(3).integers(0, 9, (128, 160, 3), np.uint8)
    data = l3dali.encode(image, tile=(32, 64))
    tiles = l3dali.info(data).tile_count
    assert tiles == 12
    corners = [(top, left) for top in range(0, 97, 16) for left in range(0, 97, 16)]
    windows = [(top, left, 32, 64) for top, left in corners]
    tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    for item in (data, tensor):
        items: list[Any] = [item] * len(windows)
        gpu = None if device == "cpu" else decoding._gpu_of(torch.device(device))
        module = gpu.module if isinstance(gpu, EmulatedGpu) else None  # which counts
        before = 0 if module is None else module.decoded_tiles()
        batch = l3dali.torch.decode_batch(
            items, device=device, windows=windows, layout="HWC", batched=True
        )
        if module is not None:
            assert module.decoded_tiles() - before == tiles
        for one, (top, left) in zip(batch, corners, strict=True):
            np.testing.assert_array_equal(one.cpu(), image[top : top + 32, left : left + 64])


def test_damage_in_one_file_names_the_first_window(device: str) -> None:
    image: Image = np.random.default_rng(3).integers(0, 256, (96, 64, 3), np.uint8)
    data = bytearray(l3dali.encode(image, coding="packed", tile=(32, 64)))
    data[-9] ^= 1  # in the last of three tiles
    first, second, third = (0, 0, 9, 9), (40, 5, 9, 9), (70, 9, 9, 9)
    l3dali.torch.decode_batch([data] * 2, device=device, windows=[first, second])
    with pytest.raises(l3dali.L3Error, match=r"^item 1: tile 2 of 3") as caught:
        l3dali.torch.decode_batch([data] * 3, device=device, windows=[first, third, None])
    assert caught.value.index == 1


def test_gray(device: str, images: list[Image], files: list[bytes]) -> None:
    gray = l3dali.torch.decode(files[0], device=device, mode="GRAY", layout="HWC")
    assert gray.shape == (40, 50, 1)
    luma = images[0] @ np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(gray[:, :, 0].cpu().numpy(), luma, atol=1.01)


def test_damage_names_its_index(device: str, files: list[bytes]) -> None:
    flipped = bytearray(files[2])
    flipped[-40] ^= 1
    bad: list[tuple[list[Any], l3dali.Status, int]] = [
        ([*files[:3], files[3][:-1]], l3dali.Status.TRUNCATED, 3),
        ([*files[:2], flipped, files[3]], l3dali.Status.CHECKSUM_MISMATCH, 2),
    ]
    for items, status, index in bad:
        with pytest.raises(l3dali.L3Error, match=f"^item {index}: ") as caught:
            l3dali.torch.decode_batch(items, device=device)
        assert (caught.value.status, caught.value.index) == (status, index)
    with pytest.raises(l3dali.L3Error, match="item 1: the window"):
        l3dali.torch.decode_batch(files[:2], device=device, windows=[None, (0, 0, 34, 1)])
    assert len(l3dali.torch.decode_batch(files, device=device)) == 4  # it goes on


def test_refused_arguments(device: str, files: list[bytes]) -> None:
    tensor = torch.frombuffer(bytearray(files[0]), dtype=torch.uint8)
    refused: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (files[0], {}, TypeError, "items must be a sequence of files, not bytes"),
        (tensor, {}, TypeError, "items must be a sequence of files, not Tensor"),
        (["a.l3"], {}, TypeError, "not a path"),
        ([tensor.to(torch.int8)], {}, TypeError, r"items\[0\]: .*not a 1-D tensor of torch.int8"),
        ([tensor[None]], {}, TypeError, "2-D tensor"),
        (iter(files), {}, TypeError, "not list_iterator: make a list of it"),
        ([files[0], None], {}, TypeError, r"items\[1\]: the bytes .* not NoneType"),
        ([tensor.to("meta")], {}, TypeError, "on meta"),
        (files, {"mode": "CMYK"}, ValueError, "mode 'CMYK' is not supported"),
        (
            files,
            {"layout": "NCHW"},
            ValueError,
            "layout 'NCHW' is not supported; layouts: HWC, CHW",
        ),
        (files, {"dtype": torch.float64}, ValueError, "dtype torch.float64 is not supported"),
        (files, {"dtype": "uint8"}, ValueError, "dtype 'uint8' is not supported"),
        (files, {"windows": [None]}, ValueError, "1 windows for 4 items"),
        (files, {"batched": True}, ValueError, "item 1 has uint8 of"),
        ([], {"batched": True}, ValueError, "at least one item"),
        (files, {"threads": 1025}, ValueError, "threads must be 0 to 1024"),
        (
            files,
            {"device": "meta"},
            ValueError,
            "device must be the CPU or a CUDA device, not meta",
        ),
    ]
    for items, arguments, error, message in refused:
        options: dict[str, Any] = {"device": device, **arguments}
        with pytest.raises(error, match=message):
            l3dali.torch.decode_batch(items, **options)


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_tensors_without_memory_are_refused(files: list[bytes]) -> None:
    for batched in (False, True):
        with FakeTensorMode(), pytest.raises(RuntimeError, match="fake tensors have no memory"):
            l3dali.torch.decode_batch([files[0]] * 2, batched=batched)
    with FakeTensorMode(), pytest.raises(RuntimeError, match="fake tensors have no memory"):
        l3dali.torch.decode(files[0])
    assert l3dali.torch.decode(files[0]).shape[1:] == l3dali.info(files[0]).shape[:2]


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace")
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(
    "trace",
    [torch.jit.trace, lambda f, x: make_fx(f)(x), lambda f, x: make_fx(f, pre_dispatch=True)(x)],
)
def test_traces_are_refused(trace: Any, batched: bool, files: list[bytes]) -> None:
    """They would hold `torch.empty` for the pixels."""

    def add(x: torch.Tensor) -> torch.Tensor:
        if batched:
            return l3dali.torch.decode_batch([files[0]] * 2, batched=True) + x
        return l3dali.torch.decode(files[0]) + x

    zero = torch.zeros(1, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="decoding cannot be traced"):
        trace(add, zero)
    compiled = torch.compile(add, backend="eager")
    assert torch.equal(compiled(zero), add(zero))


@pytest.mark.parametrize("value", ["x", math.nan, 2])
def test_a_fill_range_that_is_none(files: list[bytes], value: Any) -> None:
    with pytest.raises(TypeError, match="fill_range must be True, False or None, not "):
        l3dali.torch.decode(files[0], fill_range=value)


def test_no_items(device: str) -> None:
    assert l3dali.torch.decode_batch([], device=device) == []


def test_a_tensor_with_steps(images: list[Image], files: list[bytes]) -> None:
    spread = torch.frombuffer(bytearray(files[0]), dtype=torch.uint8).repeat_interleave(2)[::2]
    tensor = l3dali.torch.decode(spread, layout="HWC")
    np.testing.assert_array_equal(tensor.cpu().numpy(), images[0])


def test_a_batch_is_one_launch_and_its_memory_stays(files: list[bytes]) -> None:
    gpu = EmulatedGpu()
    batch = gpu.module.DecodeBatch(
        files, windows=[None] * 4, colors="RGB", dtype=None, channels_first=True,
        max_pixels=2**20, names_items=True,
    )  # fmt: skip
    outputs = [torch.zeros(shape, dtype=torch.uint8) for shape in batch.shapes]
    launches = gpu.module.launches()
    counts = []
    for _ in range(4):
        gpu.decode(batch, [output.data_ptr() for output in outputs], 1)
        counts.append(len(gpu.allocated))
    assert gpu.module.launches() == launches + 4
    assert {pinned for _, pinned in gpu.allocated} == {False, True}
    assert counts[1] == counts[2] == counts[3]  # two batches can be in flight


def test_memory_that_is_out_raises_as_the_allocator_does(files: list[bytes]) -> None:
    gpu = EmulatedGpu()

    def fail(size: int, pinned: bool) -> torch.Tensor:
        raise torch.cuda.OutOfMemoryError(f"no {size} bytes")

    decoder = gpu.module.Decoder(0, fail)
    batch = gpu.module.DecodeBatch(
        files, windows=[None] * 4, colors="RGB", dtype=None, channels_first=True,
        max_pixels=2**20, names_items=True,
    )  # fmt: skip
    with pytest.raises(torch.cuda.OutOfMemoryError):
        decoder.decode(batch, [0] * 4, stream=0, threads=1)


def test_threads_share_a_decoder(device: str, images: list[Image], files: list[bytes]) -> None:
    def decode(_: int) -> list[torch.Tensor]:
        return l3dali.torch.decode_batch(files, device=device, layout="HWC", threads=2)

    with ThreadPoolExecutor(4) as pool:
        for decoded in pool.map(decode, range(12)):
            for tensor, image in zip(decoded, images, strict=True):
                np.testing.assert_array_equal(tensor.cpu().numpy(), image)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_pytorch_says_so(files: list[bytes]) -> None:
    with pytest.raises((RuntimeError, AssertionError), match=r"NVIDIA|CUDA"):
        l3dali.torch.decode_batch(files, device="cuda")


class Decoding:
    """A `collate_fn` that decodes in the worker; it pickles."""

    def __call__(self, items: list[bytes]) -> torch.Tensor:
        return l3dali.torch.decode_batch(items, batched=True, threads=2)


class Raising(Decoding):
    def __call__(self, items: list[bytes]) -> torch.Tensor:
        return super().__call__([*items[:-1], items[-1][:-1]])


def _bytes_read() -> int:
    """That this process has read of files."""
    return int(Path("/proc/self/io").read_text().split()[1])


def _write(folder: Path, files: list[bytes]) -> list[Path]:
    paths = [folder / f"{i}.l3" for i in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    return paths


@pytest.mark.parametrize("threads", [1, 2])
def test_files(device: str, files: list[bytes], threads: int, tmp_path: Path) -> None:
    paths = _write(tmp_path, files)
    options: Any = {"device": device, "threads": threads, "dtype": torch.float32}
    read = l3dali.torch.decode_files([str(paths[0]), *paths[1:]], **options)
    for one, other in zip(read, l3dali.torch.decode_batch(files, **options), strict=True):
        assert torch.equal(one, other)
    windows = [(0, 0, 4, 5), (9, 9, 4, 5), None, (1, 1, 4, 5)]
    which = [0, 0, 3, 2]
    options |= {"windows": windows, "channels": [2, 0]}
    read = l3dali.torch.decode_files([paths[i] for i in which], **options)
    expected = l3dali.torch.decode_batch([files[i] for i in which], **options)
    for one, other in zip(read, expected, strict=True):
        assert torch.equal(one, other)
    options["windows"] = [(0, 0, 5, 6)] * 2
    batch = l3dali.torch.decode_files([paths[0], paths[3]], batched=True, **options)
    assert batch.shape == (2, 2, 5, 6)
    assert l3dali.torch.decode_files([], device=device) == []


@pytest.mark.parametrize("metadata", [None, {"a": "x" * 9000}])
@pytest.mark.parametrize("channels", [3, 12])
def test_of_windows_only_the_tiles_are_read(
    device: str, channels: int, metadata: Any, tmp_path: Path
) -> None:
    image = np.random.default_rng(0).integers(0, 16, (600, 900, channels), np.uint8)
    data = l3dali.encode(image, coding="packed", tile=(64, 64), metadata=metadata)
    (path,) = _write(tmp_path, [data])
    windows = [(70, 10, 40, 30), (300, 600, 50, 60)]
    options: Any = {"device": device, "windows": windows, "channels": [1]}
    before = _bytes_read()
    parts = l3dali.torch.decode_files([path, path], **options)
    read = _bytes_read() - before
    for part, (top, left, height, width) in zip(parts, windows, strict=True):
        expected = image[top : top + height, left : left + width, 1]
        np.testing.assert_array_equal(part[0].cpu().numpy(), expected)
    # Of 10 x 15 tiles one and four, and what lies between them in the rows of tiles.
    assert read < len(data) * (0.08 if channels == 3 else 0.05) + 16_000


def test_files_that_are_refused(device: str, files: list[bytes], tmp_path: Path) -> None:
    paths = _write(tmp_path, [files[0], files[1][:-1], b"\xff\xd8\xff\xe0 a JPEG", b"", files[2]])
    refusals: list[tuple[Path, str]] = [
        (paths[1], r"1: .*1\.l3: the file has "),
        (paths[2], r"1: .*2\.l3: .*JPEG"),
        (paths[3], r"1: .*3\.l3: the header has 32 bytes"),
    ]
    for path, message in refusals:
        with pytest.raises(l3dali.L3Error, match=message) as caught:
            l3dali.torch.decode_files([paths[0], path, paths[4]], device=device)
        assert caught.value.index == 1
    windows = [None, (0, 0, 999, 1)]
    with pytest.raises(l3dali.L3Error, match=r"item 1: .*4\.l3: the window of 999 rows"):
        l3dali.torch.decode_files([paths[0], paths[4]], device=device, windows=windows)
    damaged = bytearray(files[2])
    damaged[-9] ^= 255
    paths[4].write_bytes(damaged)
    with pytest.raises(l3dali.L3Error, match=r"item 1: .*4\.l3: tile "):
        l3dali.torch.decode_files([paths[0], paths[4]], device=device)
    with pytest.raises(OSError, match=f"item 1: {tmp_path} cannot be read: it is not a regular"):
        l3dali.torch.decode_files([paths[0], tmp_path], device=device)
    missing = tmp_path / "none.l3"
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: '.*none\.l3'"):
        l3dali.torch.decode_files([paths[0], missing], device=device)
    wrong: Any = str(paths[0])
    with pytest.raises(TypeError, match="put one path in a list"):
        l3dali.torch.decode_files(wrong)
    wrong = [files[0]]
    with pytest.raises(TypeError, match=r"paths\[0\] must be a path"):
        l3dali.torch.decode_files(wrong)
    with pytest.raises(ValueError, match="2 windows for 1 items"):
        l3dali.torch.decode_files(paths[:1], windows=[None, None])


def test_files_leave_no_descriptor_open(files: list[bytes], tmp_path: Path) -> None:
    paths = _write(tmp_path, files)
    count = sum(1 for _ in Path("/proc/self/fd").iterdir())
    for _ in range(300):
        l3dali.torch.decode_files(paths, threads=2)
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == count


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_of_a_loader(context: str) -> None:
    images: Image = np.random.default_rng(3).integers(0, 256, (8, 40, 50, 3), np.uint8)
    encoded = [l3dali.encode(image) for image in images]
    l3dali.torch.decode_batch(encoded, threads=2)  # threads before a fork do no harm
    options: Any = {"batch_size": 4, "num_workers": 2, "multiprocessing_context": context}
    batches = list(DataLoader(encoded, collate_fn=Decoding(), **options))
    np.testing.assert_array_equal(torch.cat(batches).permute(0, 2, 3, 1).numpy(), images)
    with pytest.raises(l3dali.L3Error, match="item 3: ") as caught:
        list(DataLoader(encoded, collate_fn=Raising(), **options))
    assert caught.value.status is l3dali.Status.TRUNCATED


def test_pickles() -> None:
    for function in (l3dali.torch.decode, l3dali.torch.decode_batch, l3dali.decode_batch):
        assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize("options", [{"dtype": torch.float32}, {"mode": "RGB"}])
def test_bits_of_floats_are_not_converted(
    tmp_path: Path, device: str, options: dict[str, Any]
) -> None:
    floats = np.linspace(-1, 1, 600, dtype=np.float32).reshape(20, 30)
    pairs = floats.view(np.uint16).reshape(20, 30, 2)
    data = l3dali.encode(pairs, metadata={"floats": "float32"})
    (tmp_path / "a.l3").write_bytes(data)
    back = l3dali.torch.decode(data, device=device, layout="HWC")
    np.testing.assert_array_equal(back.cpu().view(torch.float32)[..., 0].numpy(), floats)
    calls: list[tuple[Any, Any]] = [
        (l3dali.torch.decode, data),
        (l3dali.torch.decode_batch, [data]),
        (l3dali.torch.decode_files, [tmp_path / "a.l3"]),
    ]
    for decode, files in calls:
        with pytest.raises(l3dali.L3Error, match="the samples are the bits of floats: decode"):
            decode(files, device=device, **options)
