"""`fn.l3.decode` in DALI pipelines, on the CPU and, with a GPU, mixed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import l3dali

pytestmark = pytest.mark.dali
dali = pytest.importorskip("nvidia.dali", reason="DALI is not installed")
fn = dali.fn

Image = npt.NDArray[Any]


@pytest.fixture(autouse=True, scope="module")
def _plugin() -> None:
    import l3dali.plugin  # noqa: F401


@pytest.fixture(params=["cpu", pytest.param("mixed", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _images(dtype: type = np.uint8) -> list[Image]:
    """Images of many shapes, of one type."""
    rng = np.random.default_rng(7)
    top = int(np.iinfo(dtype).max)
    shapes = [(1, 1, 1), (3, 500, 3), (64, 256, 4), (65, 257, 2), (200, 131, 3), (300, 40, 1)]
    images: list[Image] = []
    for height, width, channels in shapes:
        ramp = np.add.outer(np.arange(height) * 3, np.arange(width) * 2)[..., None]
        noise = rng.integers(0, 9, (height, width, channels))
        images.append(((ramp + noise) % (top + 1)).astype(dtype))
    images.append(np.full((130, 300, 3), 7, dtype))
    images.append(rng.integers(0, top + 1, (50, 60, 3)).astype(dtype))
    return images


def _write(folder: Path, images: Sequence[Image]) -> list[str]:
    paths = []
    for i, image in enumerate(images):
        path = folder / f"{i:02}.l3"
        path.write_bytes(l3dali.encode(image))
        paths.append(str(path))
    return paths


def _pipeline(define: Callable[[], Any], device: str, batch_size: int, **options: Any) -> Any:
    device_id = None if device == "cpu" else 0
    pipe = dali.Pipeline(batch_size, 2, device_id, **options)
    with pipe:
        outputs = define()
        pipe.set_outputs(*(outputs if isinstance(outputs, tuple) else (outputs,)))
    return pipe


def _files_pipeline(files: Sequence[str], device: str, batch_size: int, **options: Any) -> Any:
    def define() -> Any:
        encoded, _ = fn.readers.file(files=list(files), name="reader")
        return fn.l3.decode(encoded, device=device)

    return _pipeline(define, device, batch_size, **options)


def _feed_pipeline(batches: Sequence[Sequence[Any]], device: str, batch_size: int) -> Any:
    remaining = iter(batches)

    def define() -> Any:
        encoded = fn.external_source(lambda: next(remaining), batch=True, dtype=None)
        return fn.l3.decode(encoded, device=device)

    return _pipeline(define, device, batch_size, prefetch_queue_depth=1)


def _encoded(image: Image) -> Image:
    return np.frombuffer(l3dali.encode(image), np.uint8)


def _unpack(output: Any) -> list[Image]:
    if hasattr(output, "as_cpu"):
        output = output.as_cpu()
    return [np.array(output[i]) for i in range(len(output))]


def _assert_same(output: Any, images: Sequence[Image]) -> None:
    decoded = _unpack(output)
    assert len(decoded) == len(images)
    for got, want in zip(decoded, images, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_batch_of_mixed_shapes(tmp_path: Path, device: str, dtype: type) -> None:
    images = _images(dtype)
    pipe = _files_pipeline(_write(tmp_path, images), device, len(images))
    for _ in range(3):
        (output,) = pipe.run()
        assert output.layout() == "HWC"
        _assert_same(output, images)


def test_large_image_is_cut_into_tasks(tmp_path: Path, device: str) -> None:
    rng = np.random.default_rng(3)
    image = (
        np.add.outer(np.arange(2100), np.arange(1500)) + rng.integers(0, 4, (2100, 1500))
    ) % 256
    images = [image.astype(np.uint8)[..., None]]
    (output,) = _files_pipeline(_write(tmp_path, images), device, 1).run()
    _assert_same(output, images)


def test_type_may_change_from_batch_to_batch(device: str) -> None:
    batches = [_images(np.uint8)[:2], _images(np.uint16)[:3], _images(np.uint8)[3:4]]
    pipe = _feed_pipeline([[_encoded(image) for image in batch] for batch in batches], device, 4)
    for batch in batches:
        (output,) = pipe.run()
        _assert_same(output, batch)


def test_empty_batch(device: str) -> None:
    image = _images()[2]

    def define() -> Any:
        encoded = fn.external_source(lambda: [_encoded(image)] * 2, batch=True)
        skip = fn.external_source(lambda: [np.array(False)] * 2, batch=True)
        kept, _ = dali.fn._conditional.split(encoded, predicate=skip)
        return fn.l3.decode(kept, device=device)

    pipe = _pipeline(define, device, 2)
    (output,) = pipe.run()
    assert len(output) == 0


def test_conditionals(device: str) -> None:
    images = _images()[:4]

    @dali.pipeline_def(enable_conditionals=True)
    def define() -> Any:
        encoded = fn.external_source(lambda: [_encoded(image) for image in images], batch=True)
        wanted = fn.external_source(lambda: [np.array(i % 2 == 0) for i in range(4)], batch=True)
        if wanted:
            pixels = fn.l3.decode(encoded, device=device)
        else:
            pixels = fn.l3.decode(encoded, device=device)[:1]
        return pixels

    pipe = define(batch_size=4, num_threads=2, device_id=None if device == "cpu" else 0)
    (output,) = pipe.run()
    expected = [image if i % 2 == 0 else image[:1] for i, image in enumerate(images)]
    _assert_same(output, expected)


def test_serialized_pipeline(tmp_path: Path, device: str) -> None:
    images = _images()
    pipe = _files_pipeline(_write(tmp_path, images), device, len(images))
    text = pipe.serialize()
    copy = dali.Pipeline.deserialize(text)
    (output,) = copy.run()
    _assert_same(output, images)


def test_checkpoint_resumes(tmp_path: Path, device: str) -> None:
    images = _images()
    files = _write(tmp_path, images)
    pipe = _files_pipeline(files, device, 2, enable_checkpointing=True)
    pipe.run()
    resumed = _files_pipeline(
        files, device, 2, enable_checkpointing=True, checkpoint=pipe.checkpoint()
    )
    (output,) = resumed.run()
    _assert_same(output, images[2:4])


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("exec_dynamic", [False, True])
def test_prefetching(tmp_path: Path, device: str, depth: int, exec_dynamic: bool) -> None:
    images = _images()
    pipe = _files_pipeline(
        _write(tmp_path, images),
        device,
        3,
        prefetch_queue_depth=depth,
        exec_dynamic=exec_dynamic,
    )
    position = 0
    for _ in range(12):
        (output,) = pipe.run()
        expected = [images[(position + i) % len(images)] for i in range(3)]
        _assert_same(output, expected)
        position += 3


def test_batch_sizes_that_change(device: str) -> None:
    images = _images()
    batches = [images[:1], images, images[2:5], images[:1]]
    pipe = _feed_pipeline([[_encoded(image) for image in b] for b in batches], device, len(images))
    for batch in batches:
        (output,) = pipe.run()
        _assert_same(output, batch)


def test_two_operators_in_one_pipeline(tmp_path: Path, device: str) -> None:
    images = _images()
    files = _write(tmp_path, images)

    def define() -> Any:
        encoded, _ = fn.readers.file(files=files)
        return fn.l3.decode(encoded, device=device), fn.l3.decode(encoded, device=device)

    first, second = _pipeline(define, device, len(images)).run()
    _assert_same(first, images)
    _assert_same(second, images)


def test_damaged_sample_is_named(tmp_path: Path, device: str) -> None:
    files = _write(tmp_path, _images())
    path = Path(files[4])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    path.write_bytes(data)
    with pytest.raises(RuntimeError, match=r"sample 4 \(.*04\.l3\).*tile.*kChecksumMismatch"):
        _files_pipeline(files, device, len(files)).run()


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"", "kTruncated"), (b"\x89PNG\r\n\x1a\n" + bytes(60), "kBadMagic")],
)
def test_other_files_are_refused(tmp_path: Path, device: str, content: bytes, status: str) -> None:
    if not content:  # DALI's reader does not read empty files
        content = l3dali.encode(_images()[1])[:20]
    path = tmp_path / "other.l3"
    path.write_bytes(content)
    with pytest.raises(RuntimeError, match=rf"sample 0 \(.*other\.l3\).*{status}"):
        _files_pipeline([str(path)], device, 1).run()


def test_mixed_types_in_a_batch_are_refused(device: str) -> None:
    batch = [_encoded(_images(np.uint8)[1]), _encoded(_images(np.uint16)[1])]
    with pytest.raises(RuntimeError, match=r"a batch has one type.*sample 0.*sample 1"):
        _feed_pipeline([batch], device, 2).run()


@pytest.mark.parametrize(
    "bad", [np.zeros((4, 4), np.uint8), np.zeros(64, np.uint16)], ids=["2-D", "uint16"]
)
def test_wrong_input_is_refused(device: str, bad: Image) -> None:
    with pytest.raises(RuntimeError, match="1-D uint8"):
        _feed_pipeline([[bad]], device, 1).run()


def test_pipeline_torn_down_with_work_in_flight(tmp_path: Path, device: str) -> None:
    files = _write(tmp_path, _images())
    for _ in range(5):
        pipe = _files_pipeline(files, device, len(files), prefetch_queue_depth=4)
        pipe.build()
        pipe.run()
        del pipe
