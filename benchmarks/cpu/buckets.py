"""Crops of files in a bucket, by DALI's readers, by rasterio and by s3fs."""

from __future__ import annotations

import os
import random
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks.cpu.case import Result, apart, keep_memory, median_ratio
from benchmarks.object_server import Far, object_server
from benchmarks.peers import images, l3_encoder, large_images
from benchmarks.report import table

CROP = 512
OBJECTS = 1536  # more than a turn reads, so that it does not reach a second epoch
KEPT = 384  # of them, where heads are kept
SCENE = 8192
CONNECTION_MB_S = 80
DALI_THREADS, THREADS = 2, 16


class Reader(NamedTuple):
    """How crops are read."""

    kind: str  # files, lazy, rasterio, s3fs
    batch: int = 32
    scheme: str = "s3"
    gap: int = -1
    is_later: bool = False  # epochs after the first: heads are kept


BASE = "`fn.readers.file`, whole files"
FRAMES = {
    BASE: Reader("files"),
    "lazy, first epoch": Reader("lazy"),
    "lazy, first epoch, batches of 64": Reader("lazy", 64),
    "lazy, later epochs, batches of 128": Reader("lazy", 128, is_later=True),
    "lazy, `remote_gap=0`": Reader("lazy", gap=0),
    "lazy, `gs://`, batches of 64": Reader("lazy", 64, "gs"),
    "rasterio": Reader("rasterio"),
    "s3fs, `imread`": Reader("s3fs"),
}
OPEN = "rasterio, files kept open"
SCENES = {
    "lazy": Reader("lazy", is_later=True),
    "lazy, `gs://`, batches of 64": Reader("lazy", 64, "gs", is_later=True),
    OPEN: Reader("rasterio", is_later=True),
    "s3fs, `imread`": Reader("s3fs"),
}


def frames_of(data: Path) -> list[Any]:
    """Driving scenes, or photographs mirrored to their size."""
    scenes = [image for _, image in images(data, "cityscapes") if image.shape[:2] == (1024, 2048)]
    return scenes or large_images(data)


def scene_of(data: Path) -> Any:
    """A scene of four bands: Landsat's, mirrored."""
    bands = [image for _, image in images(data, "gray16/landsat8")]
    sides = [[(0, max(0, SCENE - side)) for side in band.shape[:2]] for band in bands[:4]]
    whole = [
        np.pad(band.squeeze(), pads, "symmetric")[:SCENE, :SCENE]
        for band, pads in zip(bands, sides, strict=False)
    ]
    return np.stack([whole[i % len(whole)] for i in range(4)], 2)


def write(data: Path, folder: Path) -> None:
    """Frames and the scene, as L3 and as COG."""
    encode = l3_encoder("rans")
    frames = frames_of(data)
    for number in range(OBJECTS):
        same = number % len(frames)
        for kind in ("l3", "tif"):
            path = folder / f"frame-{number}.{kind}"
            if number != same:
                path.symlink_to(f"frame-{same}.{kind}")
            elif kind == "l3":
                path.write_bytes(encode(frames[number]))
            else:
                write_cog(frames[number], path, 128)
    scene = scene_of(data)
    (folder / "scene.l3").write_bytes(encode(scene))
    write_cog(scene, folder / "scene.tif", 256)


def write_cog(image: Any, path: Path, block: int) -> None:
    """Writes a COG of ZSTD with a predictor, without overviews."""
    import rasterio

    profile = {"height": image.shape[0], "width": image.shape[1], "count": image.shape[2]}
    options = {"compress": "ZSTD", "predictor": 2, "overviews": "NONE", "blocksize": block}
    with rasterio.open(path, "w", "COG", dtype=image.dtype, **profile, **options) as file:
        file.write(np.moveaxis(image, 2, 0))


def names_of(reader: Reader, what: str) -> list[str]:
    """The objects' names."""
    kind = "tif" if reader.kind == "rasterio" else "l3"
    if what == "scene":
        return [f"scene.{kind}"]
    return [f"frame-{number}.{kind}" for number in range(KEPT if reader.is_later else OBJECTS)]


def batches_of_dali(reader: Reader, what: str) -> Iterator[int]:
    """Runs a pipeline: the images of each batch."""
    import nvidia.dali as dali
    from nvidia.dali import fn

    import l3dali.fn

    files = [f"{reader.scheme}://data/{name}" for name in names_of(reader, what)]
    pipe = dali.Pipeline(reader.batch, DALI_THREADS, None, seed=1)
    with pipe:
        if reader.kind == "files":
            encoded, _ = fn.readers.file(files=files)
        else:
            encoded, _ = l3dali.fn.readers.file(files=files, lazy=True, remote_gap=reader.gap)
        x, y = (fn.random.uniform(range=(0.0, 1.0), seed=seed) for seed in (2, 3))
        kind = dali.types.ANY_DATA if what == "scene" else dali.types.RGB
        where = {"crop": (CROP, CROP), "crop_pos_x": x, "crop_pos_y": y}
        pipe.set_outputs(l3dali.fn.decode_crop(encoded, output_type=kind, **where))
    while True:
        pipe.run()
        yield reader.batch


def batches_of_threads(reader: Reader, what: str) -> Iterator[int]:
    """Reads windows on threads: the images of each batch."""
    randoms = random.Random(1)
    names = names_of(reader, what)
    height, width = (SCENE, SCENE) if what == "scene" else (1024, 2048)
    read = rasterio_reader(reader) if reader.kind == "rasterio" else read_by_imread
    with ThreadPoolExecutor(THREADS) as pool:
        while True:
            jobs = [
                (
                    randoms.choice(names),
                    randoms.randint(0, height - CROP),
                    randoms.randint(0, width - CROP),
                )
                for _ in range(4 * THREADS)
            ]
            list(pool.map(read, *zip(*jobs, strict=True)))
            yield len(jobs)


def read_by_imread(name: str, top: int, left: int) -> None:
    """Reads a window by s3fs."""
    import l3dali

    l3dali.imread(f"s3://data/{name}", window=(top, left, CROP, CROP))


def rasterio_reader(reader: Reader) -> Callable[[str, int, int], None]:
    """A function that reads a window of a COG."""
    os.environ |= {
        "AWS_HTTPS": "NO",
        "AWS_VIRTUAL_HOSTING": "FALSE",
        "AWS_S3_ENDPOINT": os.environ["AWS_ENDPOINT_URL"].removeprefix("http://"),
        "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
        "GDAL_HTTP_MERGE_CONSECUTIVE_RANGES": "YES",
        "CPL_VSIL_CURL_ALLOWED_EXTENSIONS": ".tif",
        "CPL_VSIL_CURL_NON_CACHED": "" if reader.is_later else "/vsis3/data/",
        "GDAL_CACHEMAX": "64",
    }
    import rasterio
    from rasterio.windows import Window

    opened = threading.local()

    def read(name: str, top: int, left: int) -> None:
        file = getattr(opened, "file", None) or rasterio.open(f"/vsis3/data/{name}")
        file.read(window=Window(left, top, CROP, CROP))
        if reader.is_later:
            opened.file = file
        else:
            file.close()

    return read


def turn(reader: Reader, what: str, latency_ms: int, url: str, seconds: float) -> dict[str, float]:
    """Images/s, and what one takes: KB, requests, CPU time of the process and of the server."""
    keep_memory()
    server = Far(url)
    os.environ |= server.environment
    server.count(0 if reader.is_later else latency_ms, CONNECTION_MB_S)
    is_threads = reader.kind in ("rasterio", "s3fs")
    batches = (batches_of_threads if is_threads else batches_of_dali)(reader, what)
    warm = 2 * reader.batch + reader.is_later * len(names_of(reader, what))
    while warm > 0:
        warm -= next(batches)
    begun = server.count(latency_ms, CONNECTION_MB_S)
    next(batches)  # what was asked for before came faster
    next(batches)
    begun = server.count(latency_ms, CONNECTION_MB_S)
    cpu, clock, count = cpu_s(), time.perf_counter(), 0
    while count < 2 * reader.batch or time.perf_counter() - clock < seconds:
        count += next(batches)
    taken, cpu = time.perf_counter() - clock, cpu_s() - cpu
    found = server.count(latency_ms, CONNECTION_MB_S)
    kinds = ("GET", "HEAD", "metadata")
    return {
        "images_per_s": count / taken,
        "kb": found["bytes"] / count / 1e3,
        "requests": sum(found.get(kind, 0) for kind in kinds) / count,
        "cpu_ms": cpu / count * 1e3,
        "server_ms": (found["cpu_s"] - begun["cpu_s"]) / count * 1e3,
    }


def cpu_s() -> float:
    """CPU seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(
    readers: Mapping[str, Reader],
    what: str,
    base: str,
    server: Far,
    latencies_ms: Sequence[int],
    rounds: int,
    seconds: float,
) -> tuple[str, dict[str, Any]]:
    """A table of readers at each latency, in turns."""
    rows = {
        f"{name}, {latency} ms": (reader, latency)
        for latency in latencies_ms
        for name, reader in readers.items()
    }
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in rows}
    for _ in range(rounds):
        for name, (reader, latency) in rows.items():
            turns[name].append(apart(turn, reader, what, latency, server.url, seconds))
    results = {}
    for name, (_, latency) in rows.items():
        found = turns[name]
        ours = [one["images_per_s"] for one in found]
        peers = [one["images_per_s"] for one in turns[f"{base}, {latency} ms"]]
        results[name] = {key: statistics.median(one[key] for one in found) for key in found[0]}
        results[name]["ratio"] = median_ratio(ours, peers)
    columns = {
        "images/s": "{images_per_s:.0f}",
        f"x {base}": "{ratio:.2f}",
        "KB": "{kb:,.0f}",
        "requests": "{requests:.1f}",
        "CPU, ms": "{cpu_ms:.1f}",
        "the server's": "{server_ms:.2f}",
    }
    return table(what, results, columns), results


def buckets(
    data: Path,
    rounds: int = 3,
    seconds: float = 3.0,
    latencies_ms: tuple[int, ...] = (30, 10, 0),
) -> Result:
    """Crops of files in a bucket, by DALI's readers, by rasterio and by s3fs.

    Crops of 512x512 anywhere, from a server on the loopback address that adds a latency to each
    request and gives each connection 80 MB/s (`benchmarks/object_server.py`). Frames of 2048x1024
    are driving scenes, the scene of 8192x8192 has four bands of 16 bits. L3 files are rans.
    rasterio reads COG (ZSTD, tiles of 128 or 256) with 16 threads, s3fs `imread` with 16. DALI has
    two threads. In turns, each in a process of its own; medians. Ratios are within a round.
    """
    with tempfile.TemporaryDirectory() as path, object_server(Path(path)) as server:
        folder = Path(path)
        apart(write, data, folder)
        names = ("frame-0.l3", "frame-0.tif", "scene.l3", "scene.tif")
        sizes = {name: (folder / name).stat().st_size for name in names}
        how = (server, [int(latency) for latency in latencies_ms], rounds, seconds)
        frames, of_frames = measure(FRAMES, "frames", BASE, *how)
        scenes, of_scenes = measure(SCENES, "scene", OPEN, *how)
    found = {"sizes": sizes, "frames": of_frames, "scene": of_scenes}
    return Result(f"{frames}\n{scenes}", found)
