"""`l3dali.torch.Loader`: batches on threads, in an order that is known, resumed anywhere."""

from __future__ import annotations

import io
import itertools
import pickle
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.utils.data import DataLoader

import l3dali
import l3dali.torch
from l3dali.torch import Loader, Shards, loading

COUNT = 23
SIDE = 16
Image = npt.NDArray[Any]


@pytest.fixture(scope="module")
def images() -> list[Image]:
    """Whose samples say where they lie: red is the number of the image."""
    y, x = np.mgrid[:40, :50].astype(np.uint8)
    return [np.dstack([np.full_like(y, i), y, x]) for i in range(COUNT)]


@pytest.fixture(scope="module")
def paths(images: list[Image], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("images")
    for i, image in enumerate(images):
        l3dali.imwrite(folder / f"{i:02}.l3", image, tile=(16, 32))
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def masks(images: list[Image], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("masks")
    for i, image in enumerate(images):
        l3dali.imwrite(folder / f"{i:02}.l3", image[..., 1], labels=True)
    return sorted(folder.iterdir())


def crop(info: l3dali.Info, random: np.random.Generator) -> Any:
    top, left = random.integers(0, (info.height - SIDE + 1, info.width - SIDE + 1))
    return int(top), int(left), SIDE, SIDE


def noted(sample: Any, random: np.random.Generator) -> Any:
    """A transform: the sample with a random number, which says that it ran."""
    return sample, random.random()


def numbers(batches: Any) -> list[int]:
    """Of the images, whose red they are."""
    return [int(number) for batch in batches for number in batch[:, 0, 0, 0]]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return bool(torch.equal(a, b))
    return len(a) == len(b) and all(map(same, a, b))


def test_each_epoch_has_each_sample_once_in_an_order_of_its_own(paths: list[Path]) -> None:
    loader = Loader(paths, 4, shuffle=True, seed=3)
    epochs = [numbers(loader) for _ in range(3)]
    assert all(sorted(epoch) == list(range(COUNT)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert [numbers(again) for again in [Loader(paths, 5, shuffle=True, seed=3)] * 3] == epochs
    assert numbers(Loader(paths, 4, shuffle=True, seed=4)) != epochs[0]
    assert numbers(Loader(paths, 4)) == list(range(COUNT))
    loader.set_epoch(1)
    assert numbers(loader) == epochs[1]


@pytest.mark.parametrize("threads", [1, 3])
def test_windows_of_images_and_masks_are_numpys(
    threads: int, paths: list[Path], masks: list[Path], images: list[Image]
) -> None:
    options: Any = [{"mode": "RGB", "dtype": torch.float32}, {"dtype": torch.int64}]
    samples = list(zip(paths, masks, range(COUNT), strict=True))
    loader = Loader(samples, 6, options=options, window=crop, seed=9, threads=threads)
    for epoch in range(2):
        for pictures, maps, found in loader:
            assert (pictures.dtype, maps.dtype) == (torch.float32, torch.int64)
            for picture, label, number in zip(pictures, maps, found.tolist(), strict=True):
                random = np.random.default_rng((9, epoch, number))
                top, left, _, _ = crop(l3dali.info(paths[number]), random)
                expected = images[number][top : top + SIDE, left : left + SIDE]
                np.testing.assert_allclose((picture * 255).permute(1, 2, 0), expected, rtol=1e-6)
                np.testing.assert_array_equal(label[0], expected[..., 1])


def test_transforms_and_batches_of_ones_own(paths: list[Path]) -> None:
    def flip(sample: Any, random: np.random.Generator) -> Any:
        image, number = sample
        return image.flip(2) if number % 2 else image, number

    samples = [(path, number) for number, path in enumerate(paths)]
    pictures, found = next(iter(Loader(samples, 4, transform=flip)))
    assert found.tolist() == [0, 1, 2, 3]
    assert [int(picture[2, 0, 0]) for picture in pictures] == [0, 49, 0, 49]
    first = next(iter(Loader(samples, 4, transform=flip, collate=list)))
    assert [number for _, number in first] == [0, 1, 2, 3]


def test_images_of_several_sizes_are_lists(paths: list[Path], tmp_path: Path) -> None:
    l3dali.imwrite(tmp_path / "a.l3", np.zeros((3, 4), np.uint8))
    (batch,) = Loader([tmp_path / "a.l3", paths[0]], 2)
    assert [tuple(image.shape) for image in batch] == [(1, 3, 4), (3, 40, 50)]


@pytest.mark.parametrize("handed_out", range(7))
def test_a_state_gives_the_rest_of_the_epoch(paths: list[Path], handed_out: int) -> None:
    def make() -> Loader:
        return Loader(paths, 4, window=crop, transform=noted, shuffle=True, seed=1)

    whole = make()
    next(iter(whole))  # an epoch that is left early
    epoch = iter(whole)
    for _ in range(handed_out):
        next(epoch, None)
    state = pickle.loads(pickle.dumps(whole.state_dict()))
    rest = list(epoch)
    resumed = make()
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert same(list(resumed), rest)
    assert same(list(resumed), list(whole))  # the next epoch


def test_a_state_of_another_set_is_refused(paths: list[Path]) -> None:
    state = Loader(paths, 4).state_dict()
    for other in (Loader(paths[1:], 4), Loader(paths, 4, seed=1), Loader(paths, 4, shuffle=True)):
        with pytest.raises(ValueError, match="the state has"):
            other.load_state_dict(state)


@pytest.mark.parametrize("world_size", [2, 3, 5])
@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_have_equally_many_samples(
    paths: list[Path], world_size: int, drop_last: bool
) -> None:
    loaders = [
        Loader(paths, 3, shuffle=True, rank=rank, world_size=world_size, drop_last=drop_last)
        for rank in range(world_size)
    ]
    shares = [[numbers([batch]) for batch in loader] for loader in loaders]
    assert {len(share) for share in shares} == {len(loader) for loader in loaders}
    assert len({tuple(map(len, share)) for share in shares}) == 1
    found = sorted(number for share in shares for batch in share for number in batch)
    if drop_last:
        assert len(found) == len(set(found)) == COUNT - COUNT % (3 * world_size)
    else:
        assert set(found) == set(range(COUNT))
        assert len(found) - COUNT < world_size


def test_another_number_of_ranks_shares_the_rest(paths: list[Path]) -> None:
    def make(rank: int, world_size: int) -> Loader:
        return Loader(paths, 2, shuffle=True, rank=rank, world_size=world_size)

    two = [make(rank, 2) for rank in range(2)]
    epochs = [iter(loader) for loader in two]
    done = [number for epoch in epochs for number in numbers(itertools.islice(epoch, 2))]
    states = [loader.state_dict() for loader in two]
    assert states[0] == states[1]
    rest: list[int] = []
    for rank in range(3):
        loader = make(rank, 3)
        loader.load_state_dict(states[0])
        rest += numbers(loader)
    assert len(done) == 8
    assert sorted(done + rest) == list(range(COUNT))


def test_batches_ahead_are_bounded_in_bytes(paths: list[Path]) -> None:
    begun: list[int] = []

    class Watched(list[Path]):
        def __getitem__(self, number: Any) -> Any:
            begun.append(number)
            return super().__getitem__(number)

    for most, batches in ((1, 1), (3 * 2 * 40 * 50 * 3, 3)):
        begun.clear()
        epoch = iter(Loader(Watched(paths), 2, threads=1, ahead_bytes=most))
        for taken in range(1, 5):
            next(epoch)
            assert max(begun) < 2 * (taken + batches)


def test_memory_is_used_again_once_nothing_holds_it(
    paths: list[Path], images: list[Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_LEAST_KEPT_BYTES", 1)
    loader = Loader(paths, 2, ahead_bytes=1)
    kept = [view for batch in loader for view in batch.permute(0, 2, 3, 1).unbind()]
    assert all(np.array_equal(view, image) for view, image in zip(kept, images, strict=True))
    del kept
    assert len({batch.data_ptr() for batch in loader}) < len(loader)


def test_an_epoch_that_is_left_ends_its_threads(paths: list[Path]) -> None:
    epoch: Any = iter(Loader(paths, 2))
    next(epoch)
    epoch.close()
    for thread in threading.enumerate():
        if thread.name.startswith("l3-loader"):
            thread.join(20)
            assert not thread.is_alive()


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"no L3 file")])
def test_samples_that_fail(
    paths: list[Path], tmp_path: Path, damage: Callable[[Path], Any]
) -> None:
    copies = [tmp_path / path.name for path in paths]
    for copy, path in zip(copies, paths, strict=True):
        copy.write_bytes(path.read_bytes())
    damage(copies[5])
    with pytest.raises((l3dali.L3Error, FileNotFoundError), match="05"):
        list(Loader(copies, 4))
    with pytest.warns(UserWarning, match="sample 5 is left out"):
        found = numbers(Loader(copies, 4, on_error="skip"))
    assert found == [number for number in range(COUNT) if number != 5]


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_in_workers_of_a_loader(paths: list[Path], context: str) -> None:
    loader = Loader(paths, 3, shuffle=True, seed=2)
    workers = DataLoader(loader, batch_size=None, num_workers=2, multiprocessing_context=context)
    found = numbers(workers)
    assert set(found) == set(range(COUNT))
    assert len(found) <= COUNT + 1


@pytest.mark.parametrize("workers", [0, 2])
def test_in_torchdatas_loader(paths: list[Path], workers: int) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def make() -> Any:
        loader = Loader(paths, 3, window=crop, transform=noted, shuffle=True)
        return stateful(loader, batch_size=None, num_workers=workers)

    whole = make()
    epoch = iter(whole)
    list(itertools.islice(epoch, 3))
    resumed = make()
    resumed.load_state_dict(whole.state_dict())
    assert same(list(resumed), list(epoch))


def _write_shard(place: str, images: list[Image], first: int) -> None:
    """A tar of images, masks and class numbers, and its index as DALI has it."""
    file, lines = io.BytesIO(), [f"v1.2 {len(images)}"]
    with tarfile.open(fileobj=file, mode="w") as tar:
        for number, image in enumerate(images, first):
            members = {
                "cls": str(number).encode(),
                "image.l3": l3dali.encode(image),
                "mask.l3": l3dali.encode(image[..., 1], labels=True),
            }
            words = []
            for ext, data in members.items():
                header = tarfile.TarInfo(f"{number}.{ext}")
                header.size = len(data)
                tar.addfile(header, io.BytesIO(data))
                offset = file.tell() - -(-len(data) // 512) * 512
                words.append(f"{ext} {offset} {len(data)} {header.name}")
            lines.append(" ".join(words))
    with fsspec.open(f"{place}.tar", "wb") as target:
        target.write(file.getvalue())
    with fsspec.open(f"{place}.idx", "w") as target:
        target.write("\n".join([*lines, ""]))


@pytest.mark.parametrize("kind", ["local", "memory"])
@pytest.mark.parametrize("window", [None, crop])
def test_shards(tmp_path: Path, images: list[Image], kind: str, window: Any) -> None:
    folder = str(tmp_path) if kind == "local" else "memory://shards"
    for shard in range(2):
        _write_shard(f"{folder}/{shard}", images[10 * shard : 10 * shard + 10], 10 * shard)
    tars = [f"{folder}/{shard}.tar" for shard in range(2)]
    shards = Shards(tars, ["image.l3", "mask.l3", "cls"])
    assert len(shards) == 20
    found = []
    for pictures, maps, classes in Loader(shards, 6, window=window, shuffle=True):
        assert torch.equal(pictures[:, 1:2], maps)
        assert numbers([pictures]) == [int(each) for each in classes]
        found += numbers([pictures])
    assert sorted(found) == list(range(20))
    assert sorted(numbers(Loader(Shards(tars, "image.l3"), 6))) == list(range(20))
    with pytest.raises(ValueError, match=r"0\.idx, line 2: the sample has no depth\.l3"):
        Shards(tars, ["image.l3", "depth.l3"])
