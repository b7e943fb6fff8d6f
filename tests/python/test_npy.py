"""`.npy` files, read as images like any other."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import l3dali
from l3dali.cli import main
from l3dali.errors import ImageError
from l3dali.images.formats import read_header

RNG = np.random.default_rng(0)


def npy(array: NDArray[Any], version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    return file.getvalue()


def samples(*shape: int, dtype: str = "uint16") -> NDArray[Any]:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int8", "int16", ">u2", ">i2"])
@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 1), (20, 30, 3), (20, 30, 13)])
def test_samples_are_kept(dtype: str, shape: tuple[int, ...]) -> None:
    array = samples(*shape, dtype=np.dtype(dtype).newbyteorder("=").name).astype(dtype)
    for version in ((1, 0), (2, 0)):
        decoded = l3dali.decode(l3dali.transcode(npy(array, version)))
        np.testing.assert_array_equal(decoded, np.squeeze(array))
        assert decoded.dtype == np.dtype(dtype).newbyteorder("=")


def test_columns_first_in_memory() -> None:
    array = np.asfortranarray(samples(20, 30, 3))
    np.testing.assert_array_equal(l3dali.decode(l3dali.transcode(npy(array))), array)


@pytest.mark.parametrize("count", [1, 2, 5, 13])
def test_any_number_of_channels_may_be_first(count: int) -> None:
    array = samples(count, 40, 50)
    data = npy(array)
    assert (read_header(data).width, read_header(data).height) == (50, 40)
    with pytest.raises(ImageError, match=rf"looks like {count} channels first: .*--layout"):
        l3dali.transcode(data)
    decoded = l3dali.decode(l3dali.transcode(data, layout="CHW"))
    np.testing.assert_array_equal(decoded, np.squeeze(np.moveaxis(array, 0, 2)))
    np.testing.assert_array_equal(l3dali.decode(l3dali.transcode(data, layout="HWC")), array)
    for last in (samples(40, 50, count), samples(count, 24, 20), samples(60, 40, 50)):
        decoded = l3dali.decode(l3dali.transcode(npy(last)))
        np.testing.assert_array_equal(decoded.reshape(last.shape), last)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 4), np.float64), "samples of type float64 are not supported"),
        (np.zeros((4, 4), bool), "samples of type bool"),
        (np.zeros(4, np.uint8), "shape"),
        (np.zeros((2, 3, 4, 4), np.uint8), "shape"),
        (np.zeros((0, 4), np.uint8), "shape|0 x|x 0"),
        (np.zeros((4, 4), [("a", np.uint8)]), "samples of type"),
    ],
)
def test_other_arrays(array: NDArray[Any], message: str) -> None:
    with pytest.raises(ImageError, match=message):
        l3dali.transcode(npy(array))


def test_pickles_are_not_read() -> None:
    file = io.BytesIO()
    np.save(file, np.array([[{}]], object), allow_pickle=True)
    with pytest.raises(ImageError, match="samples of type object"):
        l3dali.transcode(file.getvalue())


def test_a_cut_file() -> None:
    data = npy(samples(20, 30))
    for size in range(len(data)):
        with pytest.raises(ImageError):
            l3dali.transcode(data[:size])
    with pytest.raises(ImageError, match="the file ends too early"):
        l3dali.transcode(data[:-1])


def test_pixels_are_limited() -> None:
    with pytest.raises(ImageError, match=r"30 x 20 x 4 .* limit of 2399"):
        l3dali.transcode(npy(samples(20, 30, 13)), max_pixels=2399)


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    array = samples(3, 40, 50)
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    (source / "a.npy").write_bytes(npy(array))
    file = str(source / "a.npy")
    assert main(["encode", file, "-o", str(target)]) == 2
    assert "layout" in capsys.readouterr().err
    assert main(["encode", file, "-o", str(target), "--layout", "CHW", "--verify"]) == 0
    decoded = l3dali.imread(target / "a.l3")
    np.testing.assert_array_equal(decoded, np.moveaxis(array, 0, 2))
    compare = ["verify", str(target), "--source", str(source)]
    assert main([*compare, "--layout", "CHW"]) == 0
    (source / "a.npy").write_bytes(npy(array ^ 1))
    assert main([*compare, "--layout", "CHW"]) == 2


def test_arrays_of_a_data_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Images become L3; other arrays stay as they are. The command says why floats do."""
    pytest.importorskip("fsspec")
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    image = samples(20, 30, dtype="int16")
    members = {
        "a.npy": npy(image),
        "b.npy": npy(np.zeros(512, np.uint8)),
        "c.npy": npy(np.zeros((4, 4))),
    }
    with tarfile.open(source / "shard.tar", "w") as shard:
        for name, data in members.items():
            (source / name).write_bytes(data)
            member = tarfile.TarInfo(name)
            member.size = len(data)
            shard.addfile(member, io.BytesIO(data))
    assert main(["convert", str(source), str(target)]) == 0
    said = capsys.readouterr().err
    assert "samples of type float64 are not supported; L3 holds uint8" in said
    assert "astype(numpy.float32) rounds them); such arrays were copied: 2 images" in said
    np.testing.assert_array_equal(l3dali.imread(target / "a.l3"), image)
    for name in ("b.npy", "c.npy"):
        assert (target / name).read_bytes() == members[name]
    with tarfile.open(target / "shard.tar") as shard:
        assert shard.getnames() == ["a.l3", "b.npy", "c.npy"]
    assert main(["verify", str(target), "--source", str(source)]) == 0
    assert main(["convert", str(target), str(tmp_path / "back"), "--to", "source"]) == 0
    assert (tmp_path / "back" / "a.npy").exists()
