"""Where encoded samples come from: DALI's reader of files, and external_source."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dali_tools import Pair, assert_same, make_pairs, pipeline, unpack
from nvidia.dali import fn

import l3dali

pytestmark = pytest.mark.dali

COUNT = 10


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    return make_pairs(1, COUNT)


def decode_all(reader: Any, device: str, batch_size: int, batches: int) -> tuple[Any, list[int]]:
    """Images and labels of the batches that `reader`, a function, makes nodes for."""

    def define() -> Any:
        encoded, label = reader()
        return fn.l3.decode(encoded, device=device), label

    pipe = pipeline(define, device, batch_size)
    images: list[Any] = []
    labels: list[int] = []
    for _ in range(batches):
        decoded, label = pipe.run()
        images += unpack(decoded)
        labels += [int(value.item()) for value in unpack(label)]
    return images, labels


@pytest.mark.parametrize("shards", [1, 3])
def test_sharded_files(pairs: list[Pair], tmp_path: Path, device: str, shards: int) -> None:
    for i, pair in enumerate(pairs):
        (tmp_path / f"{i}.l3").write_bytes(pair.l3.tobytes())
    seen: list[int] = []
    for shard in range(shards):

        def reader(shard: int = shard) -> Any:
            return fn.readers.file(
                files=[str(tmp_path / f"{i}.l3") for i in range(COUNT)],
                labels=list(range(COUNT)),
                num_shards=shards,
                shard_id=shard,
                stick_to_shard=True,
                random_shuffle=True,
                dont_use_mmap=shard == 1,
                seed=3,
            )

        size = COUNT * (shard + 1) // shards - COUNT * shard // shards
        images, labels = decode_all(reader, device, size, 1)
        assert_same(images, [pairs[label].image for label in labels])
        seen += labels
    assert sorted(seen) == list(range(COUNT))


@pytest.mark.parametrize("batch", [True, False])
def test_external_source(pairs: list[Pair], device: str, batch: bool) -> None:
    def samples(info: Any) -> tuple[Any, Any]:
        number = info.idx_in_epoch % COUNT
        return pairs[number].l3, np.array(number)

    def batches(iteration: int) -> tuple[Any, Any]:
        numbers = [(4 * iteration + i) % COUNT for i in range(4)]
        return [pairs[n].l3 for n in numbers], [np.array(n) for n in numbers]

    def reader() -> Any:
        chosen = batches if batch else samples
        return fn.external_source(chosen, num_outputs=2, batch=batch, batch_info=False)

    images, labels = decode_all(reader, device, 4, 5)
    assert labels == [i % COUNT for i in range(20)]
    assert_same(images, [pairs[label].image for label in labels])


def test_samples_of_one_tensor(device: str) -> None:
    """A batch that is one dense tensor: files of the same length."""
    pair = make_pairs(2, 1)[0]
    stacked = np.stack([pair.l3] * 4)

    def reader() -> Any:
        encoded = fn.external_source(lambda: stacked, batch=True)
        return encoded, fn.external_source(lambda: np.zeros((4, 1), np.int32), batch=True)

    images, _ = decode_all(reader, device, 4, 2)
    assert_same(images, [pair.image] * 8)


TRUNCATING = """
import sys
from nvidia import dali
from nvidia.dali import fn
import l3dali.plugin

paths, is_mapped = sys.argv[2:], sys.argv[1] == "mapped"
pipe = dali.Pipeline(1, 1, None)
with pipe:
    options = dict(random_shuffle=True, initial_fill=len(paths), dont_use_mmap=not is_mapped)
    data, _ = fn.readers.file(files=paths, **options)
    pipe.set_outputs(fn.l3.decode(data, on_error="zero"))
pipe.run()
for path in paths:  # The reader has opened them all, to shuffle them.
    open(path, "r+b").truncate(1000)
for _ in range(3 * len(paths)):
    pipe.run()
"""


@pytest.mark.parametrize("how", ["mapped", "copied"])
def test_files_that_get_shorter(tmp_path: Path, how: str) -> None:
    """What SECURITY.md says of mapped files, and of dont_use_mmap=True."""
    image = np.random.default_rng(0).integers(0, 256, (200, 200), np.uint8)
    paths = [tmp_path / f"{i}.l3" for i in range(16)]
    for path in paths:
        path.write_bytes(l3dali.encode(image))
    run = [sys.executable, "-c", TRUNCATING, how, *map(str, paths)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == (-signal.SIGBUS if how == "mapped" else 0), done.stderr
