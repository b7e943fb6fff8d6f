"""DALI readers of objects in a bucket: requests counted at a real S3 server on loopback."""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import nvidia.dali as dali
import pytest
from nvidia.dali import types
from s3_tools import FOREVER, FarServer, far_s3_server

import l3dali
import l3dali.fn as l3_fn

Array = npt.NDArray[Any]
HEIGHT, WIDTH, CROP = 1024, 2048, 512
KB = 1000


@pytest.fixture(scope="module")
def server() -> Iterator[FarServer]:
    """One for all tests: DALI makes its client once, for the endpoint of the first request."""
    with far_s3_server() as started:
        os.environ.update(started.environment)
        yield started


@pytest.fixture(autouse=True)
def forget(server: FarServer) -> None:
    server.count()


def make_scene(seed: int, shape: tuple[int, ...] = (HEIGHT, WIDTH, 3), noise: int = 3) -> Array:
    """About 1.6 MB as rans, as frames of a driving scene."""
    rng = np.random.default_rng(seed)
    ramp = np.add.outer(np.arange(shape[0]), np.arange(shape[1]))[..., None] // 16
    return (ramp + rng.integers(0, noise, shape)).astype(np.uint8)


def run(
    reader: Any, *, epochs: int = 1, count: int = 1, crop: bool = True, **options: Any
) -> list[list[tuple[Array, int]]]:
    """The images and statuses of each epoch, of batches of up to 8."""
    batch = min(count, 8)

    in_turn = {"exec_async": False, "exec_pipelined": False}  # no batch is ahead

    @dali.pipeline_def(batch_size=batch, num_threads=2, device_id=None, **in_turn)
    def define() -> Any:
        encoded = reader()
        asked: Any = {"output_type": types.ANY_DATA, "return_status": True, **options}
        if not crop:
            return tuple(l3_fn.decode(encoded, **asked))
        asked |= {"crop_pos_x": 0.37, "crop_pos_y": 0.41}
        return tuple(l3_fn.decode_crop(encoded, crop=(CROP, CROP), **asked))

    pipe = define()
    pipe.build()
    found: list[list[tuple[Array, int]]] = []
    for _ in range(epochs):
        found.append([])
        for _ in range(count // batch):
            images, statuses = pipe.run()
            found[-1] += [(np.array(images[i]), int(statuses.at(i))) for i in range(batch)]
    return found


def lazy(files: Sequence[str], **options: Any) -> Any:
    return lambda: l3_fn.readers.file(files=list(files), lazy=True, **options)[0]


def cropped(image: Array) -> Array:
    top = round(0.41 * (image.shape[0] - CROP))
    left = round(0.37 * (image.shape[1] - CROP))
    return image[top : top + CROP, left : left + CROP]


def check(found: list[tuple[Array, int]], images: Sequence[Array]) -> None:
    for (pixels, status), image in zip(found, images, strict=True):
        assert status == 0
        assert np.array_equal(pixels, image)


def methods(traffic: dict[str, Any], part: str = "") -> list[str]:
    return [method for method, path in traffic["requests"] if part in path]


def test_a_crop_costs_its_tiles(server: FarServer) -> None:
    image = make_scene(0)
    uri = server.put("crop.l3", l3dali.encode(image, coding="rans", effort=1))
    server.count()
    reader = lazy([uri] * 2, remote_gap=0)
    check(run(reader, count=2)[0], [cropped(image)] * 2)
    traffic = server.count()
    first = methods(traffic)
    # The pipeline prefetches a second batch, whose heads are kept.
    assert set(first) == {"GET"}
    assert len(first) <= 2 * 6 + 2
    assert traffic["sent"] <= 2 * 360 * KB + 32 * KB
    check(run(reader, count=2)[0], [cropped(image)] * 2)
    traffic = server.count()
    assert len(methods(traffic)) == 2 * 5
    assert traffic["sent"] <= 2 * 350 * KB


def test_a_large_scene_costs_its_tiles(server: FarServer) -> None:
    image = np.tile(make_scene(1, (1024, 1024, 1)), (8, 8, 1))
    data = l3dali.encode(image, coding="rans", effort=1, tile=(128, 128), threads=2)
    uri = server.put("large.l3", data)
    server.count()
    check(run(lazy([uri], remote_gap=0))[0], [cropped(image)])
    traffic = server.count()
    assert methods(traffic).count("GET") <= 6
    assert traffic["sent"] <= 0.007 * len(data) + 32 * KB


def test_gaps_are_read_to_save_requests(server: FarServer) -> None:
    image = make_scene(2)
    uri = server.put("gap.l3", l3dali.encode(image, coding="rans", effort=1))
    server.count()
    check(run(lazy([uri], remote_gap=1 << 20))[0], [cropped(image)])
    assert len(methods(server.count())) == 2


@pytest.mark.parametrize("is_lazy", [False, True])
def test_a_listing_gives_sizes_and_a_small_file_is_one_get(
    server: FarServer, is_lazy: bool
) -> None:
    images = [make_scene(i, (60, 90, 3)) for i in range(4)]
    folder = f"list{is_lazy}"
    files = [server.put(f"{folder}/a/{i}.l3", l3dali.encode(im)) for i, im in enumerate(images)]
    for where in ({"files": files}, {"file_root": f"s3://data/{folder}"}):
        server.count()

        def reader(where: Any = where) -> Any:
            return l3_fn.readers.file(**where, lazy=is_lazy)[0]

        check(run(reader, count=4, crop=False)[0], images)
        found = methods(server.count(), "/a/")
        assert found.count("GET") <= 2 * 4  # of two batches, one ahead
        assert "HEAD" not in found or ("files" in where and not is_lazy)


def test_requests_do_not_depend_on_threads(server: FarServer) -> None:
    images = [make_scene(i, (300, 400, 3)) for i in range(32)]
    files = [server.put(f"many/{i}.l3", l3dali.encode(im)) for i, im in enumerate(images)]
    for is_lazy in (False, True):
        server.count(latency=0.3)

        def reader(is_lazy: bool = is_lazy) -> Any:
            return l3_fn.readers.file(files=files, lazy=is_lazy, prefetch_queue_depth=4)[0]

        check(run(reader, count=32, crop=False)[0], images)
        assert server.count()["peak"] >= 24


def test_a_shard_with_its_index_in_the_bucket(server: FarServer, tmp_path: Path) -> None:
    images = [make_scene(i, (300, 400, 3)) for i in range(3)]
    shard, index = make_shard(tmp_path, images)
    paths: Any = {
        "paths": [server.put("a.tar", shard)],
        "index_paths": [server.put("a.idx", index)],
    }

    def reader() -> Any:
        return l3_fn.readers.webdataset(ext=["l3"], lazy=True, remote_gap=0, **paths)

    check(run(reader, count=3, crop=False)[0], images)
    assert "HEAD" not in methods(server.count(), "a.tar")


def make_shard(folder: Path, images: Sequence[Array]) -> tuple[bytes, bytes]:
    path = folder / "a.tar"
    lines = []
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for i, image in enumerate(images):
            data = l3dali.encode(image)
            entry = tarfile.TarInfo(f"{i}.l3")
            entry.size = len(data)
            lines.append(f"l3 {archive.offset + 512} {len(data)} {i}.l3")
            archive.addfile(entry, io.BytesIO(data))
    return path.read_bytes(), "\n".join([f"v1.2 {len(images)}", *lines, ""]).encode()


def test_what_cannot_be_read_says_what_to_do(server: FarServer) -> None:
    def readers() -> Iterator[tuple[Any, str]]:
        yield (lambda: l3_fn.readers.webdataset(paths=["s3://data/b.tar"], ext=["l3"])), "wds2idx"
        yield (lambda: l3_fn.readers.file(file_root="s3://data/")[0]), "pass `files`"
        yield lazy(["http://host/a.l3"]), "decode_files"

    for reader, advice in readers():
        with pytest.raises(RuntimeError, match=advice):
            run(reader)


def test_a_checkpoint_resumes_a_remote_reader(server: FarServer) -> None:
    files = [
        server.put(f"state/{i}.l3", l3dali.encode(make_scene(i, (300, 400, 3)))) for i in range(12)
    ]

    def make(checkpoint: str | None = None) -> Any:
        @dali.pipeline_def(
            batch_size=2, num_threads=2, device_id=None, enable_checkpointing=True, seed=1
        )
        def define() -> Any:
            encoded, label = l3_fn.readers.file(
                files=files, lazy=True, random_shuffle=True, seed=3, prefetch_queue_depth=3
            )
            return l3_fn.decode_random_crop(encoded, seed=5, output_type=types.RGB), label

        pipe = define(checkpoint=checkpoint)
        pipe.build()
        return pipe

    def step(pipe: Any) -> list[bytes]:
        images, labels = pipe.run()
        return [np.array(images[i]).tobytes() + np.array(labels[i]).tobytes() for i in range(2)]

    whole = make()
    for _ in range(4):
        step(whole)
    resumed = make(whole.checkpoint())
    for _ in range(9):
        assert step(whole) == step(resumed)


FAULTS = [
    {"kind": kind, "share": 0.035, "times": FOREVER} for kind in ("503", "500", "cut", "reset")
]


@pytest.mark.parametrize("is_lazy", [False, True])
def test_no_sample_is_lost_to_faults(server: FarServer, is_lazy: bool) -> None:
    images = [make_scene(i, (200 + i, 300, 3)) for i in range(64)]
    files = [
        server.put(f"faults{is_lazy}/{i}.l3", l3dali.encode(im)) for i, im in enumerate(images)
    ]
    server.count(*[{"part": f"faults{is_lazy}", **fault} for fault in FAULTS])

    def reader() -> Any:
        return l3_fn.readers.file(files=files, lazy=is_lazy, remote_gap=0)[0]

    for found in run(reader, epochs=2, count=64, crop=False, on_error="zero"):
        check(found, images)


def test_a_missing_object_fails_alone(server: FarServer) -> None:
    image = make_scene(3, (600, 600, 3))
    uri = server.put("there.l3", l3dali.encode(image))
    server.count()
    reader = lazy([uri, "s3://data/missing.l3"])
    good, bad = run(reader, count=2, on_error="zero")[0]
    check([good], [cropped(image)])
    assert bad[1] != 0
    assert methods(server.count(), "missing") in (["GET"], ["GET"] * 2)  # of two batches
    with pytest.raises(RuntimeError, match=r"missing\.l3 does not exist"):
        run(reader, count=2)


def test_denied_access_raises(server: FarServer) -> None:
    uri = server.put("denied.l3", l3dali.encode(make_scene(4, (600, 600, 3))))
    server.count({"part": "denied", "kind": "403", "times": FOREVER})
    with pytest.raises(
        RuntimeError, match=r"denied.l3 cannot be read, 1 attempts in 0 s: AccessDenied"
    ):
        run(lazy([uri]), on_error="zero")
    assert set(methods(server.count(), "denied")) == {"GET"}


def test_an_outage_raises(server: FarServer) -> None:
    uri = server.put("down.l3", l3dali.encode(make_scene(5, (600, 600, 3))))
    server.count({"part": "down", "kind": "503", "times": FOREVER})
    with pytest.raises(
        RuntimeError, match=r"s3://data/down.l3 cannot be read, \d attempts in \d+ s: ."
    ):
        run(lazy([uri] * 8), count=8, on_error="zero")


@pytest.mark.parametrize("kind", ["503", "reset"])
def test_an_outage_that_ends_costs_no_sample(server: FarServer, kind: str) -> None:
    images = [make_scene(i, (600, 600, 3)) for i in range(8)]
    files = [server.put(f"{kind}/{i}.l3", l3dali.encode(im)) for i, im in enumerate(images)]
    server.count({"part": f"{kind}/", "kind": kind, "times": 4 * 8})  # eight are read at once
    check(run(lazy(files), count=8, on_error="zero")[0], [cropped(image) for image in images])


def test_an_object_that_was_replaced(server: FarServer) -> None:
    image = make_scene(6)
    uri = server.put("replaced.l3", l3dali.encode(image, coding="rans", effort=1))
    check(run(lazy([uri]))[0], [cropped(image)])
    for new in (make_scene(7), make_scene(7, (600, 600, 3))):
        server.put("replaced.l3", l3dali.encode(new, coding="rans", effort=1))
        with pytest.raises(RuntimeError, match="may have been replaced"):
            run(lazy([uri]))


def test_program_of_the_docs(server: FarServer) -> None:
    """The one of docs/dali.md that trains from a bucket."""
    page = (Path(__file__).parents[2] / "docs" / "dali.md").read_text()
    (code,) = re.findall(r"^```py\n([^`]*s3://[^`]*)^```", page, re.MULTILINE)
    for i in range(2):
        server.put(f"scenes/a/{i}.l3", l3dali.encode(make_scene(i, (600, 700, 3)), effort=1))
    names: dict[str, Any] = {}
    exec(code, names)
    assert np.array(names["images"][0]).shape == (CROP, CROP, 3)
    resumed = names["from_bucket"](checkpoint=names["state"])
    for _ in range(2):
        for a, b in zip(names["pipe"].run(), resumed.run(), strict=True):
            assert all(np.array_equal(np.array(a[i]), np.array(b[i])) for i in range(64))


def test_a_patch_of_a_volume_costs_its_tiles(server: FarServer) -> None:
    volume = np.random.default_rng(0).integers(0, 50, (40, 200, 300)).astype(np.int16)
    data = l3dali.encode_volume(volume, coding="packed")
    uri = server.put("volume.l3", data)
    server.count()

    @dali.pipeline_def(batch_size=1, num_threads=2, device_id=None, prefetch_queue_depth=1)
    def define() -> Any:
        anchor = np.array([9, 70, 130], np.int32)
        return l3_fn.decode_volume(lazy([uri], remote_gap=0)(), anchor, window=(4, 50, 60))

    (patch,) = define().run()
    np.testing.assert_array_equal(np.array(patch[0])[..., 0], volume[9:13, 70:120, 130:190])
    assert server.count()["sent"] < len(data) / 4
