"""Random lives of a data set in a bucket that fails now and then: exit code 0 is never too much."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert_tools import as_pixels, convert, data_of, image, pixels_of, png, samples, write_tar

from l3dali.cli import main

fsspec_memory = pytest.importorskip("fsspec.implementations.memory")

DEST = "memory://b/d"
NAMES = [f"{place}.{suffix}" for place in ("x", "y", "a/x") for suffix in ("png", "txt", "tar")]
FAULTS = [OSError(5, "slow down"), PermissionError(13, "no"), RuntimeError("odd"), TimeoutError()]


class Bucket:
    """The file system in memory; a share of its calls fails."""

    def __init__(self, memory: Any, lot: random.Random, patch: pytest.MonkeyPatch) -> None:
        self._memory, self._lot, self._share = memory, lot, 0.0
        for name in ("_open", "rm_file", "info", "ls", "cat_file"):
            self._spoil(fsspec_memory.MemoryFileSystem, name, patch)
        self._spoil(fsspec_memory.MemoryFile, "commit", patch)

    def _spoil(self, owner: Any, name: str, patch: pytest.MonkeyPatch) -> None:
        real = getattr(owner, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if self._lot.random() < self._share:
                raise self._lot.choice(FAULTS)
            return real(*arguments, **named)

        patch.setattr(owner, name, call)

    def failing(self, share: float, run: Callable[[], int]) -> int:
        self._share = share
        try:
            return run()
        finally:
            self._share = 0.0

    def files(self) -> dict[str, bytes]:
        items = self._memory.store.items()
        return {name.removeprefix("/b/d/"): file.getvalue() for name, file in items}


def write(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".tar":
        write_tar(path, samples(2, seed))
    else:
        path.write_bytes(png(seed) if path.suffix == ".png" else b"%d" % seed)


def is_made(name: str, seed: int, files: dict[str, bytes], scratch: Path) -> bool:
    stem, _, suffix = name.rpartition(".")
    data = files.get(f"{stem}.l3" if suffix == "png" else name)
    if data is None or suffix == "txt":
        return data == b"%d" % seed
    if suffix == "png":
        return np.array_equal(pixels_of(data), image(seed))
    scratch.write_bytes(data)
    return as_pixels(data_of(scratch)) == as_pixels(samples(2, seed)) and f"{stem}.idx" in files


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_missing_at_exit_code_0(
    seed: int,
    tmp_path: Path,
    memory: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lot = random.Random(seed)
    bucket = Bucket(memory, lot, monkeypatch)
    source = tmp_path / "s"
    write(source / "stays.png", 0)
    seeds = {"stays.png": 0}

    def missing() -> list[str]:
        files = bucket.files()
        return [name for name in seeds if not is_made(name, seeds[name], files, tmp_path / "t")]

    verify = partial(main, ["verify", DEST, "--source", str(source), "-q", "-j1"])
    for step in range(1, 6):
        for name in lot.sample(NAMES, 3):
            if name in seeds and lot.random() < 0.5:
                (source / name).unlink()
                del seeds[name]
            else:
                seeds[name] = 10 * step + len(name)
                write(source / name, seeds[name])
        option = lot.choice(["--remove-gone", "--coding=packed", "--on-error=fail"])
        share = lot.choice([0, 0.01, 0.03, 0.1, 0.3])
        run = partial(convert, source, DEST, "-q", "-j1", option)
        if bucket.failing(share, run) == 0:
            assert not missing()
        if bucket.failing(lot.choice([0, 0.05]), verify) == 0:
            assert not missing()
    capsys.readouterr()
    for _ in range(3):  # Files without a row stay: users can remove them by name.
        codes = convert(source, DEST, "-q", "--remove-gone"), verify()
        told = capsys.readouterr().err
        for name in [name for name in bucket.files() if name in told and "l3-" not in name]:
            memory.rm_file(f"/b/d/{name}")
    assert codes == (0, 0), told
    assert not missing()
