"""fn.l3.readers.webdataset beside DALI's reader: tars with and without an index, lazy members."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dali_tools import (
    READER_SETUPS,
    Pair,
    assert_same,
    assert_same_batches,
    make_pairs,
    pipeline,
    unpack,
)
from nvidia.dali import fn, types

pytestmark = pytest.mark.dali

BATCH = 4
COUNTS = (9, 5, 8)  # samples of each tar
CUT = {"crop": (7, 8), "crop_pos_x": 0.3}


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    made = make_pairs(2, 3 * sum(COUNTS), channels=[3])
    return [pair for pair in made if min(pair.image.shape[:2]) >= 9][: sum(COUNTS)]


@pytest.fixture(scope="module")
def folder(pairs: list[Pair], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tars of L3 and PNG, with labels; every fourth sample has none. Each has an index."""
    root = tmp_path_factory.mktemp("tars")
    number = 0
    for tar_number, count in enumerate(COUNTS):
        path = root / f"{tar_number}.tar"
        lines = []
        with tarfile.open(path, "w") as tar:
            tar.add(root, "folder", recursive=False)
            for pair in pairs[number : number + count]:
                kind = "png" if number % 5 == 4 else "L3" if number % 5 == 3 else "l3"
                members = {kind: getattr(pair, kind.lower()).tobytes()}
                if number % 4:
                    members["cls"] = np.array([number, -number], np.int32).tobytes()
                words = []
                for extension, data in members.items():
                    info = tarfile.TarInfo(f"folder/{number:03}.{extension}")
                    info.size = len(data)
                    words += [extension, str(tar.offset + 512), str(len(data)), info.name]
                    tar.addfile(info, io.BytesIO(data))
                lines.append(" ".join(words))
                number += 1
        path.with_suffix(".idx").write_text("\n".join([f"v1.2 {count}", *lines]) + "\n")
    return root


def arguments_of(folder: Path, *, has_index: bool = True, **more: Any) -> dict[str, Any]:
    tars = sorted(folder.glob("*.tar"))
    arguments: dict[str, Any] = {"paths": list(map(str, tars)), "ext": ["l3;png", "cls"]}
    if has_index:
        arguments["index_paths"] = [str(tar.with_suffix(".idx")) for tar in tars]
    return arguments | {"case_sensitive_extensions": False} | more


def make(reader: Any, arguments: dict[str, Any], **options: Any) -> Any:
    return pipeline(
        lambda: tuple(reader(name="reader", **arguments)),
        "cpu",
        BATCH,
        enable_checkpointing=True,
        **options,
    )


SETUPS: dict[str, dict[str, Any]] = {
    **READER_SETUPS,
    "without an index": {"has_index": False},
    "types": {"dtypes": [types.UINT8, types.INT32]},
    "only whole samples": {"missing_component_behavior": "skip"},
    "case": {"case_sensitive_extensions": True},
    "one member twice": {"ext": ["l3;png;png", "png;l3", "none"]},
    "shuffled shard after an epoch": {"shuffle_after_epoch": True, "num_shards": 2, "shard_id": 1},
}


@pytest.mark.parametrize("exec_dynamic", [False, True])
@pytest.mark.parametrize("setup", SETUPS)
def test_equals_the_reader_of_dali(folder: Path, setup: str, exec_dynamic: bool) -> None:
    """Over three epochs, and behind a checkpoint."""
    arguments = arguments_of(folder, **SETUPS[setup])
    readers = (fn.l3.readers.webdataset, fn.readers.webdataset)
    options: dict[str, Any] = {"exec_dynamic": exec_dynamic}
    ours, theirs = (make(reader, arguments, **options) for reader in readers)
    assert ours.reader_meta("reader") == theirs.reader_meta("reader")
    assert_same_batches(ours, theirs, 3 * sum(COUNTS) // BATCH + 1)
    ours, theirs = (
        make(reader, arguments, **options, checkpoint=pipe.checkpoint())
        for reader, pipe in zip(readers, (ours, theirs), strict=True)
    )
    assert_same_batches(ours, theirs, sum(COUNTS) // BATCH + 2)


def test_an_index_of_version_1_1(folder: Path, tmp_path: Path) -> None:
    indexes = []
    for index in sorted(folder.glob("*.idx")):
        first, *lines = index.read_text().splitlines()
        words = [line.split() for line in lines]
        lines = [" ".join(word for i, word in enumerate(line) if i % 4 != 3) for line in words]
        indexes.append(tmp_path / index.name)
        indexes[-1].write_text("\n".join([first.replace("1.2", "1.1"), *lines]) + "\n")
    arguments = arguments_of(folder, index_paths=list(map(str, indexes)))
    ours, theirs = make(fn.l3.readers.webdataset, arguments), make(fn.readers.webdataset, arguments)
    assert_same_batches(ours, theirs, sum(COUNTS) // BATCH)


def test_lazy_members_are_decoded(folder: Path) -> None:
    def of(lazy: bool) -> Any:
        def define() -> Any:
            arguments = arguments_of(folder, ext=["l3"], missing_component_behavior="skip")
            arguments |= {"random_shuffle": True, "seed": 3} | ({"lazy": True} if lazy else {})
            reader = fn.l3.readers.webdataset if lazy else fn.readers.webdataset
            files = reader(**arguments)
            files = files[0] if isinstance(files, (list, tuple)) else files
            return files, fn.l3.decode_crop(files, **CUT), fn.l3.peek_shape(files)

        return pipeline(define, "cpu", BATCH)

    lazy, whole = of(True), of(False)
    for _ in range(6):
        (files, *got), (_, *want) = lazy.run(), whole.run()
        for one, other in zip(got, want, strict=True):
            assert_same(unpack(one), unpack(other))
        assert all(b"l3dali" not in bytes(np.asarray(file)[:8]) for file in files)
    assert len({np.asarray(file).size for file in files}) >= 1


def test_other_members_are_whole_where_l3_is_lazy(folder: Path) -> None:
    arguments = arguments_of(folder, ext=["png", "cls"])
    ours = make(fn.l3.readers.webdataset, arguments | {"lazy": True})
    assert_same_batches(ours, make(fn.readers.webdataset, arguments), 6)


def _refusal(folder: Path, **more: Any) -> str:
    def run() -> None:
        pipe = make(fn.l3.readers.webdataset, arguments_of(folder, **more))
        pipe.run()
        pipe.run()

    with pytest.raises(RuntimeError) as caught:
        run()
    return str(caught.value)


@pytest.mark.parametrize("lazy", [False, True])
def test_an_index_of_another_tar(folder: Path, tmp_path: Path, lazy: bool) -> None:
    indexes = [str(folder / f"{i}.idx") for i in (1, 0, 2)]
    text = _refusal(folder, index_paths=indexes, lazy=lazy)
    assert f"{indexes[0]} does not match the tar {folder}/0.tar" in text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 0: it must begin with"),
        ("v1.2 0\n", "line 0: it must begin with"),
        ("v1.3 1\nl3 512 5 a.l3\n", "must be v1.1 or v1.2"),
        ("v1.2 1\nl3 512 5\n", "line 1: a member needs"),
        ("v1.2 1\nl3 5 512 a.l3\n", "line 1: an offset is not a multiple"),
        ("v1.2 2\nl3 512 5 a.l3\n", "line 2: a sample has no members"),
    ],
)
def test_a_malformed_index(folder: Path, tmp_path: Path, text: str, reason: str) -> None:
    index = tmp_path / "a.idx"
    index.write_text(text)
    paths = [str(folder / "0.tar")]
    assert reason in _refusal(folder, paths=paths, index_paths=[str(index)])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"paths": []}, "paths"),
        ({"index_paths": ["a.idx"]}, "one index for each"),
        ({"missing_component_behavior": "maybe"}, 'got "maybe"'),
        ({"missing_component_behavior": "error"}, "has no member for one of `ext`"),
        ({"dtypes": [types.UINT8]}, "one type for each"),
        ({"ext": ["png", "cls"], "dtypes": [types.INT64] * 2}, "not a multiple of the size of"),
        ({"dtypes": [types.UINT8, types.STRING]}, "not a numeric type"),
        ({"paths": ["/none.tar"] * 3}, "/none.tar cannot be opened"),
    ],
)
def test_refused_arguments(folder: Path, arguments: dict[str, Any], reason: str) -> None:
    assert reason in _refusal(folder, **arguments)


def test_a_tar_that_changes(folder: Path, tmp_path: Path) -> None:
    tar, index = tmp_path / "a.tar", tmp_path / "a.idx"
    tar.write_bytes((folder / "0.tar").read_bytes())
    index.write_bytes((folder / "0.idx").read_bytes())

    def define() -> Any:
        files = fn.l3.readers.webdataset(
            paths=[str(tar)], index_paths=[str(index)], ext=["l3"], lazy=True,
            missing_component_behavior="skip",
        )  # fmt: skip
        return fn.l3.decode(files[0] if isinstance(files, (list, tuple)) else files)

    pipe = pipeline(define, "cpu", BATCH)
    pipe.run()
    tar.write_bytes(tar.read_bytes()[:3000])

    def run() -> None:
        for _ in range(4):
            pipe.run()

    with pytest.raises(RuntimeError, match=r"a\.tar"):
        run()
