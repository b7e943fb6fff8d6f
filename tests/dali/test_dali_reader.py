"""fn.l3.readers.file and fn.l3.read beside DALI's readers: whole files, and lazy handles."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dali_tools import (
    FAMILY,
    READER_SETUPS,
    Array,
    Pair,
    apply,
    as_sample,
    assert_same,
    assert_same_batches,
    make_image,
    make_pairs,
    pipeline,
    source,
    unpack,
)
from nvidia.dali import fn, types

import l3dali
import l3dali.plugin

pytestmark = pytest.mark.dali

COUNT = 23
BATCH = 4


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    made = make_pairs(1, 3 * COUNT, channels=[3])
    return [p for p in made if min(p.image.shape[:2]) >= 9][:COUNT]


@pytest.fixture(scope="module")
def folder(pairs: list[Pair], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of files, most of them L3, and their list."""
    root = tmp_path_factory.mktemp("images")
    lines = []
    for i, pair in enumerate(pairs):
        kind = "png" if i % 5 == 4 else "l3"
        name = f"{i % 3}/{i:02}.{kind}"
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(getattr(pair, kind).tobytes())
        lines.append(f"{name} {i}\n")
    (root / "list.txt").write_text("".join(lines))
    return root


@pytest.fixture(scope="module")
def paths(folder: Path) -> list[str]:
    """The L3 files."""
    return sorted(map(str, folder.rglob("*.l3")))


SETUPS = {**READER_SETUPS, "shard": {"num_shards": 3, "shard_id": 1}}


def file_sources(folder: Path) -> dict[str, dict[str, Any]]:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*3"))
    return {
        "root": {"file_root": str(folder), "dir_filters": ["[0-2]"]},
        "filters": {"file_root": str(folder), "file_filters": ["*1.L3"], "dir_filters": ["[01]"]},
        "list": {"file_list": str(folder / "list.txt")},
        "files": {"files": names, "file_root": str(folder), "labels": list(range(len(names)))},
    }


def reader_pipeline(reader: Callable[..., Any], arguments: dict[str, Any], **options: Any) -> Any:
    def define() -> Any:
        return reader(name="reader", **arguments)

    return pipeline(define, "cpu", BATCH, enable_checkpointing=True, **options)


@pytest.mark.parametrize("exec_dynamic", [False, True])
@pytest.mark.parametrize("setup", SETUPS)
def test_equals_the_reader_of_dali(folder: Path, setup: str, exec_dynamic: bool) -> None:
    """Over three epochs, and behind a checkpoint."""
    arguments = file_sources(folder)["list"] | SETUPS[setup]
    readers = (fn.l3.readers.file, fn.readers.file)
    ours, theirs = (reader_pipeline(r, arguments, exec_dynamic=exec_dynamic) for r in readers)
    assert ours.reader_meta("reader") == theirs.reader_meta("reader")
    assert_same_batches(ours, theirs, 3 * COUNT // BATCH + 1)
    ours, theirs = (
        reader_pipeline(r, arguments, exec_dynamic=exec_dynamic, checkpoint=pipe.checkpoint())
        for r, pipe in zip(readers, (ours, theirs), strict=True)
    )
    assert_same_batches(ours, theirs, COUNT // BATCH + 2)


@pytest.mark.parametrize("kind", ["root", "filters", "list", "files"])
def test_lists_the_same_files(folder: Path, kind: str) -> None:
    arguments = file_sources(folder)[kind]
    # The one difference: .l3 needs no filter.
    theirs = arguments | ({"file_filters": ["*.l3", "*.png"]} if kind == "root" else {})
    assert_same_batches(
        reader_pipeline(fn.l3.readers.file, arguments),
        reader_pipeline(fn.readers.file, theirs),
        COUNT // BATCH + 1,
    )


@pytest.mark.parametrize("name", [*FAMILY, "recognize"])
def test_operators_take_handles(name: str, paths: list[str]) -> None:
    """A checkpoint of a lazy pipeline resumes, too."""

    def make(lazy: bool, **options: Any) -> Any:
        def define() -> Any:
            reader = fn.l3.readers.file if lazy else fn.readers.file
            extra = {"lazy": True, "use_o_direct": name == "decode_crop"} if lazy else {}
            files = reader(files=paths, random_shuffle=True, seed=7, **extra)[0]
            return fn.l3.recognize(files) if name == "recognize" else apply(name, files, "cpu")

        return pipeline(define, "cpu", BATCH, enable_checkpointing=True, seed=1, **options)

    lazy, whole = make(True), make(False)
    for _ in range(2):
        for _ in range(len(paths) // BATCH + 1):
            assert_same(unpack(lazy.run()[0]), unpack(whole.run()[0]))
        lazy = make(True, checkpoint=lazy.checkpoint())


@pytest.mark.parametrize("channels", [[5], [0, 5, 3], [6, 1], None])
@pytest.mark.parametrize("large_tiles", [False, True])
def test_some_channels_of_many(
    channels: list[int] | None, large_tiles: bool, tmp_path: Path
) -> None:
    image = make_image(np.random.default_rng(2), (300, 700, 7), 16)
    tile = (256, 256) if large_tiles else (64, 64)
    path = tmp_path / "a.l3"
    l3dali.imwrite(path, image, groups=[[0, 1, 2], [3, 4], [5, 6]], tile=tile)

    def define() -> Any:
        handle = fn.l3.readers.file(files=[str(path)], lazy=True)[0]
        some = {} if channels is None else {"channels": channels}
        windows = fn.l3.decode_windows(
            handle, np.array([[0, 0], [250, 650], [3, 600], [0, 600]]), window=50, **some
        )
        return windows, fn.l3.decode_crop(handle, crop=(90, 80), **some)

    windows, crop = (unpack(output)[0] for output in pipeline(define, "cpu", 1).run())
    chosen = image if channels is None else image[..., channels]
    for window, (y, x) in zip(windows, [(0, 0), (250, 650), (3, 600), (0, 600)], strict=True):
        np.testing.assert_array_equal(window, chosen[y : y + 50, x : x + 50])
    np.testing.assert_array_equal(crop, chosen[105:195, 310:390])


def bytes_read() -> int:
    """Bytes that this process has asked the system for, from anywhere."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def test_a_window_reads_its_tiles_alone(tmp_path: Path) -> None:
    """A crop of an eighth of the pixels reads at most 0.30 of the file."""
    image = np.random.default_rng(1).integers(0, 256, (1024, 2048, 3), np.uint8)
    path = tmp_path / "a.l3"
    l3dali.imwrite(path, image, coding="packed")

    def define() -> Any:
        handle = fn.l3.readers.file(files=[str(path)], lazy=True)[0]
        crop = fn.l3.decode_random_crop(handle, random_area=(0.125, 0.125), seed=1)
        return crop, fn.l3.peek_shape(handle)

    pipe = pipeline(define, "cpu", 1, prefetch_queue_depth=1)
    before = bytes_read()
    for _ in range(10):
        pipe.run()
    assert bytes_read() - before < 11 * 0.30 * path.stat().st_size


@pytest.mark.parametrize("lazy", [False, True])
def test_paths_from_a_source(paths: list[str], lazy: bool) -> None:
    """`fn.l3.read` beside `fn.io.file.read`; relative paths, too."""
    names = [as_sample(os.fsencode(p)) for p in (*paths[:5], os.path.relpath(paths[5]))]

    def define() -> Any:
        files = fn.l3.read(source(names), lazy=lazy, use_o_direct=True)
        theirs = fn.io.file.read(source(names))
        return fn.l3.decode(files), fn.l3.decode(theirs), files, theirs

    for _ in range(2):
        decoded, want, files, theirs = pipeline(define, "cpu", len(names)).run()
        assert_same(unpack(decoded), unpack(want))
        assert [f.source_info() for f in files] == [os.fsdecode(name.tobytes()) for name in names]
        if not lazy:
            assert_same(unpack(files), unpack(theirs))


@pytest.mark.parametrize("lazy", [False, True])
def test_dynamic_mode(folder: Path, paths: list[str], lazy: bool) -> None:
    import nvidia.dali.experimental.dynamic as ndd  # behind l3dali.plugin

    arguments: dict[str, Any] = {"files": paths, "random_shuffle": True, "seed": 4}
    ours = ndd.l3.readers.File(lazy=lazy, **arguments)
    theirs = ndd.readers.File(**arguments)
    for _ in range(3):
        epochs = (r.next_epoch(batch_size=BATCH) for r in (ours, theirs))
        for (files, labels), (want, want_labels) in zip(*epochs, strict=True):
            decoded = [ndd.l3.decode_crop(batch, crop=(9, 9)) for batch in (files, want)]
            for a, b in zip((*decoded[0], *labels), (*decoded[1], *want_labels), strict=True):
                np.testing.assert_array_equal(np.array(a), np.array(b))
    read = ndd.l3.decode(ndd.l3.read(as_sample(os.fsencode(paths[0])), lazy=lazy))
    np.testing.assert_array_equal(np.array(read), l3dali.imread(paths[0]))


def test_other_formats_pass_through(folder: Path) -> None:
    """Beside handles, for l3dali.pipeline and DALI's decoders."""
    from l3dali import pipeline as l3_pipeline

    def define() -> Any:
        root = {"file_root": str(folder), "dir_filters": ["[0-2]"]}
        files = fn.l3.readers.file(lazy=True, **root)[0]
        whole = fn.l3.readers.file(**root)[0]
        return l3_pipeline.decode(files, output_type=types.RGB), fn.decoders.image(whole)

    got, want = pipeline(define, "cpu", COUNT).run()
    assert_same(unpack(got), unpack(want))


# Files that change, vanish or are damaged.


def vanish(path: Path) -> None:
    path.unlink()


def shrink(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 16)


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes())
    other.replace(path)


CHANGES: dict[Callable[[Path], None], str] = {
    vanish: "No such file",
    shrink: "changed since it was listed",
    replace: "changed since it was listed",
}


@pytest.fixture
def three(pairs: list[Pair], tmp_path: Path) -> list[Path]:
    files = [tmp_path / f"{i}.l3" for i in range(3)]
    for path, pair in zip(files, pairs, strict=False):
        path.write_bytes(pair.l3.tobytes())
    return files


def handles_of(files: list[Path]) -> list[Array]:
    pipe = pipeline(
        lambda: fn.l3.readers.file(files=list(map(str, files)), lazy=True)[0], "cpu", len(files)
    )
    return unpack(pipe.run()[0])


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_after_its_handle(
    change: Callable[[Path], None], three: list[Path], pairs: list[Pair]
) -> None:
    handles = handles_of(three)
    change(three[1])

    def define(on_error: str) -> Any:
        return fn.l3.decode(source(handles), on_error=on_error, return_status=True)

    pipe = pipeline(lambda: define("raise"), "cpu", 3)
    with pytest.raises(RuntimeError, match=f"sample 1.*{three[1]}.*{CHANGES[change]}"):
        pipe.run()
    decoded, statuses = pipeline(lambda: define("zero"), "cpu", 3).run()
    assert [int(s) for s in unpack(statuses)] == [0, 1, 0]
    want = [p.image for p in pairs[:3]]
    want[1] = np.zeros_like(want[1])
    assert_same(unpack(decoded), want)


@pytest.mark.parametrize("kind", ["missing", "head", "short head", "empty", "tile"])
def test_a_damaged_file_fails_alone(kind: str, three: list[Path], pairs: list[Pair]) -> None:
    data = bytearray(three[1].read_bytes())
    if kind == "missing":
        three[1].unlink()
    else:
        if kind in ("head", "tile"):
            data[20 if kind == "head" else -1] ^= 1
        three[1].write_bytes(data[: {"short head": 40, "empty": 0}.get(kind, len(data))])

    def define(on_error: str) -> Any:
        files = fn.l3.readers.file(files=list(map(str, three)), lazy=True)[0]
        return fn.l3.decode(files, on_error=on_error, return_status=True)

    with pytest.raises(RuntimeError, match=f"sample 1.*{three[1]}"):
        pipeline(lambda: define("raise"), "cpu", 3).run()
    decoded, statuses = pipeline(lambda: define("zero"), "cpu", 3).run()
    assert [int(s) != 0 for s in unpack(statuses)] == [False, True, False]
    assert_same(unpack(decoded)[::2], [p.image for p in pairs[:3]][::2])


@pytest.mark.parametrize("lazy", [False, True])
def test_peek_shape_and_whole_reads_name_a_missing_file(three: list[Path], lazy: bool) -> None:
    three[2].unlink()

    def define() -> Any:
        return fn.l3.peek_shape(fn.l3.readers.file(files=list(map(str, three)), lazy=lazy)[0])

    with pytest.raises(RuntimeError, match=f"{three[2]} cannot be opened: No such file"):
        pipeline(define, "cpu", 3).run()


def test_a_handle_of_another_process(three: list[Path]) -> None:
    handle = handles_of(three)[0].copy()
    handle[9] ^= 1  # of the process's number
    with pytest.raises(RuntimeError, match="lazy handle from another process"):
        pipeline(lambda: fn.l3.decode(source([handle])), "cpu", 1).run()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_descriptors_are_few(three: list[Path]) -> None:
    """Batches need no more descriptors than threads, and leave none open."""

    def define() -> Any:
        names = [str(three[i % 3]) for i in range(64)]
        lazy, whole = (fn.l3.readers.file(files=names, lazy=lazy)[0] for lazy in (True, False))
        return fn.l3.decode_crop(lazy, crop=(9, 9)), fn.l3.peek_shape(whole)

    pipe = pipeline(define, "cpu", 64, prefetch_queue_depth=1)
    pipe.run()
    open_files = descriptors()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files + 16, limits[1]))
    try:
        for _ in range(100):
            pipe.run()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert descriptors() == open_files
