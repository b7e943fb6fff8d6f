"""Batches of L3 files, local or in buckets, decoded on threads of one process."""

from __future__ import annotations

import math
import os
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch.utils.data import IterableDataset, default_collate, get_worker_info

from l3dali import arguments, codec
from l3dali.errors import L3Error
from l3dali.parts import Member, OpenFile, open_remote
from l3dali.torch.decoding import (
    DecodeOptions,
    FileOptions,
    decode_members,
    member_of,
    naming_members,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from l3dali.arguments import Window
    from l3dali.parts import RemoteFiles

__all__ = ["Loader", "Shards"]

_MOST_HEAD_BYTES = 2**26  # of remote files, kept for the next epochs
_LEAST_KEPT_BYTES = 2**20  # of a batch's memory; less is not worth it
_LEAST_THREADS = 4  # some wait for a network

#: The window of a sample, from the head of its first image and random numbers; None: all of it.
WindowFunction = Callable[[codec.Info, np.random.Generator], "Window | None"]
#: A sample, from one with tensors (C, H, W) in the place of images, and random numbers.
Transform = Callable[[Any, np.random.Generator], Any]


class Loader(IterableDataset[Any]):  # type: ignore[misc]  # PyTorch is not where mypy runs
    """Batches of samples, read and decoded ahead on threads, each epoch in an order of its own.

    It takes the place of a `DataLoader`: iterate over it. Each iteration is an epoch, also after
    one that was left early. `state_dict` and `load_state_dict` continue after the last batch that
    was handed out. Order, windows and random numbers depend on `seed`, epoch and the number of the
    sample alone, not on threads.

    Epochs and ranks: `world_size * batch_size` samples in the order of the epoch are a step, and
    each rank takes every `world_size`-th of them. Of the last step, which may be shorter, all ranks
    take equally many: samples from the beginning of the order fill it up. So each epoch has every
    sample once, but for fewer than `world_size` that are repeated. A state counts the samples of
    all ranks: with another `world_size` or `batch_size` the rest of the epoch is shared anew.

    Worker processes of a `DataLoader` around it (`batch_size=None`) act as ranks, too.
    """

    def __init__(
        self,
        samples: Sequence[Any],
        batch_size: int,
        *,
        options: FileOptions | Sequence[FileOptions] | None = None,
        window: WindowFunction | None = None,
        transform: Transform | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        threads: int = 0,
        ahead_bytes: int = 2**28,
    ) -> None:
        """Makes the loader; reads nothing.

        Args:
            samples: each a path, a URL of fsspec or a `Member`; or a tuple of these, such as image
                and mask, and of other values, such as a class number, which are handed on.
                `Shards` are such samples. A string is always a path.
            batch_size: samples in a batch of this rank.
            options: of `decode_files`: for all images, or for each image of a sample.
            window: called for each sample with the `Info` of its first image and random numbers;
                returns a window for all its images.
            transform: called for each sample, with tensors in the place of images.
            collate: makes a batch of a list of samples. None: images that are alike become a
                tensor (N, C, H, W), other images a list, other values what PyTorch's
                `default_collate` makes of them. It also takes the results of `transform`.
            shuffle: a new order of all samples in each epoch.
            seed: of order and random numbers, 0 or more.
            drop_last: leave out the last step of an epoch if it is shorter.
            rank: of this process. None: that of `torch.distributed`, or 0.
            world_size: number of ranks. None: that of `torch.distributed`, or 1.
            on_error: "skip" leaves out samples that are damaged or missing, with a warning: their
                batch is smaller. Other errors, as of a network, always raise.
            threads: that read and decode, a batch each. 0: one for each core, 4 at least.
            ahead_bytes: begin a batch only while those ahead have fewer bytes of tensors, each
                counted as the largest so far. One batch is always ahead.

        Raises:
            TypeError, ValueError: an argument is not valid.
        """
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error must be 'raise' or 'skip', not {on_error!r}")
        several = options if isinstance(options, Sequence) else [options or {}]
        self._samples = samples
        self._batch_size = arguments.checked_number("batch_size", batch_size, range(1, 2**31))
        self._options = [DecodeOptions(**each) for each in several]
        self._window, self._transform, self._collate = window, transform, collate
        self._shuffle, self._drop_last = bool(shuffle), bool(drop_last)
        self._seed = arguments.checked_number("seed", seed, range(2**63))
        self._rank, self._world_size = rank, world_size
        self._on_error = on_error
        cores = len(os.sched_getaffinity(0))
        self._threads = arguments.checked_threads(threads) or max(_LEAST_THREADS, cores)
        self._ahead_bytes = ahead_bytes
        self._next = self._state = (0, 0)  # epoch and position of the next iteration and batch
        self._heads: dict[Member, bytes] = {}
        self._head_bytes = 0
        self._largest = 0  # bytes of a batch
        self._memory = _Memory()

    def __len__(self) -> int:
        """Batches of this rank in an epoch."""
        step = self._batch_size * self._ranks()[1]
        return len(range(0, len(self._samples) - (step - 1) * self._drop_last, step))

    def __iter__(self) -> Iterator[Any]:
        """Begins the next epoch, or continues that of a state."""
        self._state = self._next
        epoch, position = self._state
        self._next = epoch + 1, 0
        return self._iterate(epoch, position)

    def set_epoch(self, epoch: int) -> None:
        """Has the next iteration begin this epoch, counted from 0."""
        self._next = self._state = arguments.checked_number("epoch", epoch, range(2**63)), 0

    def state_dict(self) -> dict[str, Any]:
        """The place behind the last batch that was handed out, as numbers."""
        epoch, position = self._state
        return {"epoch": epoch, "position": position, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Has the next iteration continue behind the batch of a state.

        Raises:
            ValueError: the state is of another number of samples, seed or order.
        """
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise ValueError(f"the state has {name} {state.get(name)}, and the loader {value}")
        self._next = self._state = int(state["epoch"]), int(state["position"])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_heads": {}, "_head_bytes": 0, "_memory": _Memory()}

    def _identity(self) -> dict[str, Any]:
        return {"samples": len(self._samples), "seed": self._seed, "shuffle": self._shuffle}

    def _ranks(self) -> tuple[int, int]:
        """This rank, and the number of ranks."""
        is_group = torch.distributed.is_available() and torch.distributed.is_initialized()
        rank, size = self._rank, self._world_size
        if rank is None:
            rank = torch.distributed.get_rank() if is_group else 0
        if size is None:
            size = torch.distributed.get_world_size() if is_group else 1
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} is not below the world_size of {size}")
        worker = get_worker_info()
        if worker is None:
            return rank, size
        return rank * worker.num_workers + worker.id, size * worker.num_workers

    def _batches(self, epoch: int, position: int) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
        """For each batch of this rank the position behind it and the numbers of its samples."""
        count, (rank, size) = len(self._samples), self._ranks()
        order = np.arange(count)
        if self._shuffle:
            order = np.random.default_rng((self._seed, epoch)).permutation(count)
        for begin in range(position, count, self._batch_size * size):
            end = min(begin + self._batch_size * size, count)
            if self._drop_last and end - begin < self._batch_size * size:
                return
            each = -(-(end - begin) // size)
            yield end, order[(begin + rank + size * np.arange(each)) % count]

    def _iterate(self, epoch: int, position: int) -> Iterator[Any]:
        batches = self._batches(epoch, position)
        options = [_with_device(each) for each in self._options]
        ahead: deque[tuple[int, Future[tuple[Any, int]]]] = deque()
        pool = ThreadPoolExecutor(self._threads, "l3-loader")
        try:
            while True:
                while self._has_room(len(ahead)):
                    end, numbers = next(batches, (-1, None))
                    if numbers is None:
                        break
                    load = pool.submit(self._load, epoch, numbers.tolist(), options)
                    ahead.append((end, load))
                if not ahead:
                    break
                end, load = ahead.popleft()
                batch, size = load.result()
                self._largest = max(self._largest, size)
                self._state = epoch, end
                yield batch
                del batch, load
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        self._state = epoch + 1, 0

    def _has_room(self, ahead: int) -> bool:
        """Whether another batch may begin."""
        fits = self._largest > 0 and (ahead + 1) * self._largest <= self._ahead_bytes
        return ahead == 0 or (fits and ahead < 2 * self._threads)

    def _load(
        self, epoch: int, numbers: list[int], options: list[DecodeOptions]
    ) -> tuple[Any, int]:
        """A batch, and the bytes of its tensors."""
        try:
            return self._load_all(epoch, numbers, options)
        except (L3Error, FileNotFoundError):
            if self._on_error == "raise":
                raise
        sound = []
        for number in numbers:
            try:
                self._load_all(epoch, [number], options)
                sound.append(number)
            except (L3Error, FileNotFoundError) as error:
                warnings.warn(f"sample {number} is left out: {error}", stacklevel=2)
                last = error
        if not sound:
            raise last
        return self._load_all(epoch, sound, options)

    def _load_all(
        self, epoch: int, numbers: list[int], options: list[DecodeOptions]
    ) -> tuple[Any, int]:
        rows = [_parts_of(self._samples[number]) for number in numbers]
        columns: list[Any] = [list(column) for column in zip(*rows, strict=True)]
        images = [i for i, part in enumerate(rows[0]) if type(part) is Member]
        chosen = options * len(images) if len(options) == 1 else options
        if len(chosen) != len(images):
            raise ValueError(f"{len(options)} options for {len(images)} images of a sample")
        randoms: list[Any] = []
        if self._window or self._transform:
            randoms = [np.random.default_rng((self._seed, epoch, number)) for number in numbers]
        windows: list[Window | None] = [None] * len(rows)
        remote, size = None, 0
        if images and self._window:
            windows, remote = self._draw_windows(self._window, columns[images[0]], randoms)
        for i, part in enumerate(rows[0]):
            if i in images:
                columns[i] = self._decode(columns[i], windows, chosen[images.index(i)], remote)
                size += sum(tensor.nbytes for tensor in columns[i])
                remote = None
            elif isinstance(part, _Blob):
                columns[i] = _read_all(columns[i])
            elif not (self._transform or self._collate):
                columns[i] = default_collate(columns[i])
        return self._collated(columns, randoms, is_tuple=_is_tuple(self._samples[numbers[0]])), size

    def _draw_windows(
        self, window: WindowFunction, members: list[Member], randoms: list[np.random.Generator]
    ) -> tuple[list[Window | None], RemoteFiles | None]:
        """A window for each sample; with files behind URLs, of which the heads are read."""
        with naming_members(members):
            remote = open_remote(members, known=self._heads)
            if remote is None:
                infos = _each(_info_of, members)
            else:
                infos = remote.parse(lambda heads: _each(codec.info, heads))
        drawn = [window(info, random) for info, random in zip(infos, randoms, strict=True)]
        return arguments.checked_windows(drawn, len(members)), remote

    def _decode(
        self,
        members: list[Member],
        windows: list[Window | None],
        options: DecodeOptions,
        remote: RemoteFiles | None,
    ) -> Any:
        """The tensors of files: one if they are alike. Keeps the heads of remote files."""
        if remote is None and any(windows):
            remote = open_remote(members, known=self._heads)
        try:
            tensors = decode_members(
                members, windows, options, batched=None, remote=remote, empty=self._memory.empty
            )
        except L3Error as error:
            if self._heads.pop(members[error.index or 0], None) is None:
                raise
            text = f"{error}; the file may have been replaced since its head was read"
            raise L3Error(text, error.status, error.index) from None
        if remote is not None:
            for member, head in zip(remote.members, remote.heads, strict=True):
                if member not in self._heads and self._head_bytes + len(head) <= _MOST_HEAD_BYTES:
                    self._heads[member] = head
                    self._head_bytes += len(head)
        return tensors

    def _collated(self, columns: list[Any], randoms: list[Any], *, is_tuple: bool) -> Any:
        if not (self._transform or self._collate):
            return tuple(columns) if is_tuple else columns[0]
        samples: list[Any] = list(zip(*columns, strict=True)) if is_tuple else list(columns[0])
        if self._transform:
            pairs = zip(samples, randoms, strict=True)
            samples = [self._transform(sample, random) for sample, random in pairs]
        return (self._collate or default_collate)(samples)


class _Memory:
    """Memory of batches that were dropped, for the next ones: fresh pages cost as much as decoding.

    Threads may share it.
    """

    def __init__(self) -> None:
        self._free: list[npt.NDArray[np.uint8]] = []

    def empty(
        self, shape: tuple[int, ...], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """As `torch.empty`."""
        size = math.prod(shape) * dtype.itemsize
        if device.type != "cpu" or size < _LEAST_KEPT_BYTES:
            return torch.empty(shape, dtype=dtype, device=device)
        try:
            block = self._free.pop()
            if not size <= len(block) <= 2 * size:
                self._free.clear()
                block = np.empty(size, np.uint8)
        except IndexError:
            block = np.empty(size, np.uint8)
        part = block[:size]
        # The tensor and its views hold `part`.
        weakref.finalize(part, self._free.append, block).atexit = False
        return torch.from_numpy(part).view(dtype).view(shape)


class _Blob(Member):
    """A member of a tar file that is given as bytes."""


class Shards(Sequence[Any]):
    """The samples of tar files with DALI's indexes, for a `Loader`.

    A sample has a member for each of `ext`: `Member` of an L3 file, else the bytes of the member.
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        ext: str | Sequence[str],
        index_paths: Sequence[str | os.PathLike[str]] | None = None,
    ) -> None:
        """Reads the indexes, which `l3 convert` and `wds2idx` write.

        Args:
            paths: tar files, or URLs of fsspec.
            ext: the part of a member's name from its first dot on, as "l3" or "mask.l3". A list
                makes samples tuples.
            index_paths: of each tar. None: its name with `.idx` in the place of `.tar`.

        Raises:
            OSError: an index cannot be read.
            ValueError: an index is malformed, or a sample has no such member.
        """
        self._paths = [member_of("paths", path).path for path in paths]
        self._ext = (ext,) if isinstance(ext, str) else tuple(ext)
        self._has_one = isinstance(ext, str)
        if index_paths is None:
            index_paths = [path.removesuffix(".tar") + ".idx" for path in self._paths]
        indexes = [member_of("index_paths", path) for path in index_paths]
        if len(indexes) != len(self._paths):
            raise ValueError(f"{len(indexes)} index_paths for {len(self._paths)} paths")
        places, shards = [], []
        for shard, (index, content) in enumerate(zip(indexes, _read_all(indexes), strict=True)):
            lines = content.decode().splitlines()
            if not lines or lines[0].split()[0] not in ("v1.1", "v1.2"):
                raise ValueError(f"{index.path}: the index must begin with v1.1 or v1.2")
            step = 3 if lines[0].startswith("v1.1") else 4
            for number, line in enumerate(lines[1:], 2):
                words = line.split()
                members = zip(words[::step], words[1::step], words[2::step], strict=False)
                found = {name: (int(offset), int(size)) for name, offset, size in members}
                missing = [each for each in self._ext if each not in found]
                if missing:
                    raise ValueError(f"{index.path}, line {number}: the sample has no {missing[0]}")
                places.append([found[each] for each in self._ext])
                shards.append(shard)
        self._places = np.array(places, np.int64).reshape(-1, len(self._ext), 2)
        self._shards = np.array(shards, np.int32)

    def __len__(self) -> int:
        """The number of samples."""
        return len(self._shards)

    def __getitem__(self, number: Any) -> Any:
        """A sample."""
        path = self._paths[self._shards[number]]
        parts = [
            (Member if ext.rpartition(".")[2] == "l3" else _Blob)(path, int(offset), int(size))
            for ext, (offset, size) in zip(self._ext, self._places[number], strict=True)
        ]
        return parts[0] if self._has_one else tuple(parts)


def _read_all(members: Sequence[Member]) -> list[bytes]:
    """The contents of files, local or behind URLs."""
    if (remote := open_remote(members, None)) is not None:
        return remote.parse(list)
    contents = []
    for path, offset, size in members:
        with Path(path).open("rb") as file:
            file.seek(offset)
            contents.append(file.read(size))
    return contents


def _is_tuple(sample: Any) -> bool:
    return isinstance(sample, (tuple, list)) and not isinstance(sample, Member)


def _parts_of(sample: Any) -> list[Any]:
    """The parts of a sample; its paths as members."""
    parts = sample if _is_tuple(sample) else (sample,)
    return [
        member_of("a sample", part) if isinstance(part, (str, os.PathLike)) else part
        for part in parts
    ]


def _info_of(member: Member) -> codec.Info:
    with Path(member.path).open("rb") as file:
        file.seek(member.offset)
        return OpenFile(file, seeks=False, size=member.size).info()


def _each(function: Callable[[Any], codec.Info], items: Sequence[Any]) -> list[codec.Info]:
    """What the function returns for each item; an L3Error has its number."""
    infos = []
    for i, item in enumerate(items):
        try:
            infos.append(function(item))
        except L3Error as error:
            raise L3Error(str(error), error.status, i) from None
    return infos


def _with_device(options: DecodeOptions) -> DecodeOptions:
    """Options that name the current GPU of this thread, as other threads have another."""
    device = torch.device(options.device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return options._replace(device=device)
