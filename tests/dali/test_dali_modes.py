"""Every operator in DALI's modes and in the hands of its iterators."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from children import child_environment
from dali_tools import FAMILY, Pair, apply, assert_same, make_pairs, pipeline, run, source, unpack
from nvidia import dali
from nvidia.dali import fn, types

pytestmark = pytest.mark.dali

COUNT = 12


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    made = make_pairs(1, 3 * COUNT, channels=[3])  # one number, for decode_crop_mirror_normalize
    return [p for p in made if min(p.image.shape[:2]) >= 9][:COUNT]


@pytest.fixture(scope="module")
def paths(pairs: list[Pair], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("images")
    made = [folder / f"{i:02}.l3" for i in range(len(pairs))]
    for path, pair in zip(made, pairs, strict=True):
        path.write_bytes(pair.l3.tobytes())
    return [str(path) for path in made]


@pytest.fixture(params=FAMILY)
def name(request: pytest.FixtureRequest) -> str:
    """An operator."""
    return str(request.param)


def files_pipeline(
    name: str, paths: list[str], device: str, batch_size: int, **options: Any
) -> Any:
    def define() -> Any:
        encoded, _ = fn.readers.file(files=paths, name="reader")
        return apply(name, encoded, device)

    return pipeline(define, device, batch_size, **options)


def test_serialized(name: str, paths: list[str], device: str) -> None:
    pipe = files_pipeline(name, paths, device, COUNT)
    copy = dali.Pipeline.deserialize(pipe.serialize())
    for _ in range(2):
        assert_same(unpack(copy.run()[0]), unpack(pipe.run()[0]))


def test_checkpoint_resumes(name: str, paths: list[str], device: str) -> None:
    pipe = files_pipeline(name, paths, device, 5, enable_checkpointing=True)
    for _ in range(3):
        pipe.run()
    resumed = files_pipeline(
        name, paths, device, 5, enable_checkpointing=True, checkpoint=pipe.checkpoint()
    )
    for _ in range(4):
        assert_same(unpack(resumed.run()[0]), unpack(pipe.run()[0]))


@pytest.mark.parametrize("depth", [1, 8])
@pytest.mark.parametrize("exec_dynamic", [False, True])
def test_executors(
    name: str, paths: list[str], device: str, depth: int, exec_dynamic: bool
) -> None:
    plain = files_pipeline(name, paths, device, 5)
    pipe = files_pipeline(
        name, paths, device, 5, prefetch_queue_depth=depth, exec_dynamic=exec_dynamic
    )
    for _ in range(8):
        assert_same(unpack(pipe.run()[0]), unpack(plain.run()[0]))


def test_batch_sizes_that_change(name: str, pairs: list[Pair], device: str) -> None:
    sizes = [1, COUNT, 3, 1, 7]
    batches = iter([[p.l3 for p in pairs[:size]] for size in sizes])

    def define() -> Any:
        return apply(name, fn.external_source(lambda: next(batches), batch=True), device)

    pipe = pipeline(define, device, COUNT, prefetch_queue_depth=1)
    for size in sizes:
        got = unpack(pipe.run()[0])
        assert len(got) == size
        if name != "decode_random_crop":  # its windows are compared in test_dali_windows.py
            encoded = {"encoded": [p.l3 for p in pairs[:size]]}
            assert_same(got, run(lambda encoded: apply(name, encoded, device), device, encoded)[0])


def test_empty_batch(name: str, pairs: list[Pair], device: str) -> None:
    def define() -> Any:
        skip = source([np.array(False)] * 2)
        kept, _ = fn._conditional.split(source([p.l3 for p in pairs[:2]]), predicate=skip)
        return apply(name, kept, device)

    (output,) = pipeline(define, device, 2).run()
    assert len(output) == 0


def test_conditionals(name: str, pairs: list[Pair], device: str) -> None:
    wanted = [i % 3 == 0 for i in range(COUNT)]

    @dali.pipeline_def(enable_conditionals=True)
    def define() -> Any:
        encoded = source([p.l3 for p in pairs])
        if source([np.array(value) for value in wanted]):
            output = apply(name, encoded, device)
        else:
            output = apply(name, encoded, device)[:1]
        return output

    pipe = define(batch_size=COUNT, num_threads=2, device_id=None if device == "cpu" else 0)
    got = unpack(pipe.run()[0])
    assert [len(sample) == 1 for sample in got] == [not value for value in wanted]
    if name != "decode_random_crop":
        encoded = {"encoded": [p.l3 for p in pairs]}
        whole = run(lambda encoded: apply(name, encoded, device), device, encoded)[0]
        assert_same(got, [w if v else w[:1] for w, v in zip(whole, wanted, strict=True)])


def free_gpu_memory() -> int:
    """Bytes, once DALI has given back what it keeps for later."""
    dali.backend.ReleaseUnusedMemory()
    driver = ctypes.CDLL("libcuda.so.1")
    context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxPushCurrent_v2(context) == 0
    assert driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    assert driver.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0
    assert driver.cuDevicePrimaryCtxRelease_v2(0) == 0
    return free.value


@pytest.mark.alone
def test_torn_down_with_work_in_flight(name: str, paths: list[str], device: str) -> None:
    """Ten times. What the first ones allocate for the process may stay."""
    leak_bytes = 24 << 20  # a buffer and a half of the operator's, of 16 MiB

    def tear_down(count: int) -> int:
        for _ in range(count):
            pipe = files_pipeline(name, paths, device, COUNT, prefetch_queue_depth=4)
            pipe.build()
            pipe.run()
            del pipe
        return free_gpu_memory() if device == "mixed" else 0

    before = tear_down(2)
    assert tear_down(8) > before - leak_bytes


RESTRICTED = """
import sys
import l3dali.plugin
from dali_tools import assert_same, decode, make_pairs
pairs = make_pairs(3, 8)
assert_same(decode([pair.l3 for pair in pairs], sys.argv[1]), [pair.image for pair in pairs])
print("done")
"""


def test_restricted_pinned_memory(device: str) -> None:
    environment = child_environment(DALI_RESTRICT_PINNED_MEM="1")
    command = [sys.executable, "-c", RESTRICTED, device]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.stdout.endswith("done\n"), result.stderr


def test_family_in_one_pipeline(pairs: list[Pair], device: str) -> None:
    encoded = {"encoded": [p.l3 for p in pairs]}
    together = run(lambda encoded: [apply(n, encoded, device) for n in FAMILY], device, encoded)
    for name, got in zip(FAMILY, together, strict=True):
        assert_same(got, run(lambda encoded, n=name: apply(n, encoded, device), device, encoded)[0])


DYNAMIC_MODE = """
import sys
import numpy as np
import nvidia.dali.experimental.dynamic as ndd
from dali_tools import FAMILY, assert_same, make_pairs
from nvidia.dali import types

def unpack(batch):
    return [np.array(tensor) for tensor in batch.cpu().tensors]

device = sys.argv[1]
pairs = [pair for pair in make_pairs(2, 20, channels=[4]) if min(pair.image.shape[:2]) >= 9]
encoded = ndd.as_batch([pair.l3 for pair in pairs])
for name in set(FAMILY) - {"decode_random_crop"}:
    place = "cpu" if name == "peek_shape" else device
    got = unpack(getattr(ndd.l3, name)(encoded, device=place, **FAMILY[name]))
    assert len(got) == len(pairs)
    if name == "decode":
        assert_same(got, [pair.image for pair in pairs])
    if name == "peek_shape":
        assert [tuple(shape) for shape in got] == [pair.image.shape for pair in pairs]

png = ndd.as_batch([pair.png for pair in pairs])
ours, theirs = ndd.random.RNG(seed=5), ndd.random.RNG(seed=5)
for _ in range(3):
    got = ndd.l3.decode_random_crop(encoded, device=device, rng=ours)
    want = ndd.decoders.image_random_crop(png, output_type=types.ANY_DATA, rng=theirs)
    assert_same(unpack(got), unpack(want))

one = ndd.l3.decode(ndd.as_tensor(pairs[0].l3), device=device)
assert np.array_equal(np.array(one.cpu()), pairs[0].image)

nothing = ndd.as_batch([], dtype=ndd.uint8)
empty = ndd.l3.decode_slice(nothing, device=device, **FAMILY["decode_slice"])  # DALI's own crash
empty.evaluate()
assert empty.batch_size == 0
print("done")
"""


@pytest.mark.parametrize("preload", [False, True])
def test_dynamic_mode(device: str, preload: bool) -> None:
    """In a process of its own: dynamic mode lists the operators when it is imported.

    The plugin may be loaded twice: no warning, and no second operator.
    """
    environment = child_environment()
    if preload:
        from l3dali import plugin

        environment["DALI_PRELOAD_PLUGINS"] = str(plugin.library_path())
    load = "import importlib, l3dali.plugin\nimportlib.reload(l3dali.plugin)\n"
    code = DYNAMIC_MODE + load if preload else load + DYNAMIC_MODE
    place = "gpu" if device == "mixed" else device  # as dynamic mode calls it
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", code, place]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (result.returncode, result.stdout[-5:]) == (0, "done\n"), result.stderr


@pytest.mark.torch
def test_pytorch_iterator(paths: list[str], pairs: list[Pair], device: str) -> None:
    from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

    def define() -> Any:
        encoded, labels = fn.readers.file(
            files=paths, labels=list(range(COUNT)), name="reader", pad_last_batch=True
        )
        pixels = fn.l3.decode_crop_mirror_normalize(
            encoded, device=device, output_type=types.RGB, crop=(9, 9)
        )
        return pixels, labels

    iterator = DALIGenericIterator(
        pipeline(define, device, 5),
        ["pixels", "label"],
        reader_name="reader",
        last_batch_policy=LastBatchPolicy.PARTIAL,
    )
    for _ in range(2):  # epochs
        seen = []
        for (batch,) in iterator:
            for pixels, label in zip(batch["pixels"].cpu(), batch["label"], strict=True):
                seen.append(int(label))
                image = pairs[seen[-1]].image
                top, left = (np.array(image.shape[:2]) - 9 + 1) // 2
                colours = [0, 1, 2] if image.shape[2] > 1 else [0, 0, 0]
                window = image[top : top + 9, left : left + 9, colours]
                np.testing.assert_array_equal(pixels.numpy(), window.transpose(2, 0, 1))
        assert seen == list(range(COUNT))
        iterator.reset()
