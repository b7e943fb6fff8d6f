"""Batches of several formats: every sample is what its own decoder alone makes of it."""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
import tifffile
from dali_tools import (
    OUTPUT_TYPES,
    Array,
    Column,
    Pair,
    as_sample,
    assert_same,
    assert_same_but_for_rounding,
    make_image,
    make_pair,
    make_pairs,
    pipeline,
    run,
    source,
    unpack,
)
from nvidia.dali import fn, pipeline_def, types

import l3dali
from l3dali.images.formats import write_picture
from l3dali.images.picture import Picture

pytestmark = pytest.mark.dali

DTYPES = ["UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32", "FLOAT"]
EXECUTORS: dict[str, dict[str, Any]] = {
    "dynamic": {"exec_dynamic": True},
    "pipelined": {"exec_dynamic": False},
    "simple": {"exec_pipelined": False, "exec_async": False},
}
SHARES = [None, 0, 0.3, 0.5, 1]


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    """Of 8 bits: gray, RGB and RGBA, and photographs that lie, as their tag says."""
    rng = np.random.default_rng(8)
    lying = [make_pair(make_image(rng, (20, 31, 3)), orientation) for orientation in (3, 6, 8)]
    return make_pairs(4, 12) + lying


def mixed(pairs: Sequence[Pair], every: int = 2) -> Column:
    """Every so many files as PNG, the others as L3."""
    return [pair.png if i % every == 0 else pair.l3 for i, pair in enumerate(pairs)]


def decode(encoded: Any, **arguments: Any) -> Any:
    """`l3dali.pipeline.decode`, which needs the operators."""
    import l3dali.pipeline

    return l3dali.pipeline.decode(encoded, **arguments)


def decode_mixed(samples: Column, device: str, **arguments: Any) -> list[Array]:
    """What `l3dali.pipeline.decode` gives."""
    return run(lambda e: decode(e, device=device, **arguments), device, {"e": samples})[0]


def decode_alone(samples: Column, device: str, **arguments: Any) -> list[Array]:
    """What a pipeline of each sample gives."""
    fixed = tuple(({"output_type": types.RGB, "dtype": types.UINT8} | arguments).items())
    return [decode_one(sample.tobytes(), device, fixed) for sample in samples]


@functools.cache
def decode_one(data: bytes, device: str, arguments: tuple[tuple[str, Any], ...]) -> Array:
    operator = fn.l3.decode if data[1:3] == b"L3" else fn.decoders.image
    sample = {"e": [as_sample(data)]}
    return run(lambda e: operator(e, device=device, **dict(arguments)), device, sample)[0][0]


@pytest.fixture
def cores_for_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph of `device="mixed"`, with cores in the place of the GPU."""
    import l3dali.pipeline

    monkeypatch.setattr(l3dali.pipeline, "_GPU_DEVICE", "cpu")
    monkeypatch.setattr(l3dali.pipeline, "_upload", lambda images: images)


def on_cores(samples: Column, share: Any, **options: Any) -> Any:
    """A pipeline that shares samples between the GPU, which cores stand for, and cores."""
    return pipeline(
        lambda: decode(source(samples), device="mixed", cpu_share=share),
        "cpu",
        len(samples),
        **options,
    )


# Pixels.


@pytest.mark.parametrize("output_type", OUTPUT_TYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_some_files_are_l3(pairs: list[Pair], device: str, output_type: str, dtype: str) -> None:
    """Nothing changes in the batch when some of its PNG files become L3."""
    arguments = {"output_type": OUTPUT_TYPES[output_type], "dtype": getattr(types, dtype)}
    if output_type == "ANY_DATA":  # DALI 2.4 garbles turned RGBA; channels beyond color are kept
        pairs = [pair for pair in pairs if pair.image.shape[2] != 4]
    pngs = [pair.png for pair in pairs]
    (want,) = run(lambda e: fn.decoders.image(e, device=device, **arguments), device, {"e": pngs})
    got = decode_mixed(mixed(pairs), device, **arguments)
    if device == "mixed" and output_type == "YCbCr":
        assert_same_but_for_rounding(got, want)
    else:
        assert_same(got, want)


def test_defaults_are_those_of_dalis_decoder(pairs: list[Pair], device: str) -> None:
    pngs = [pair.png for pair in pairs]
    (want,) = run(lambda e: fn.decoders.image(e, device=device), device, {"e": pngs})
    assert_same(decode_mixed(mixed(pairs), device), want)


def test_none_is_the_default(device: str) -> None:
    gray = make_pair(make_image(np.random.default_rng(2), (20, 20, 1)))
    decoded = decode_mixed([gray.png, gray.l3], device, output_type=None, dtype=None)
    assert [image.shape for image in decoded] == [(20, 20, 3)] * 2


@pytest.mark.parametrize("arguments", [{"adjust_orientation": False}, {"use_fast_idct": True}])
def test_arguments_reach_both_decoders(
    pairs: list[Pair], device: str, arguments: dict[str, Any]
) -> None:
    samples = mixed(pairs)
    want = decode_alone(samples, device, **arguments)
    assert_same(decode_mixed(samples, device, **arguments), want)


@pytest.mark.parametrize("output_type", ["ANY_DATA", "RGB", "GRAY"])
def test_16_bits(device: str, output_type: str) -> None:
    wide = make_pairs(5, 6, channels=(1, 3), bits=16)
    arguments = {"output_type": OUTPUT_TYPES[output_type], "dtype": types.UINT16}
    pngs = [pair.png for pair in wide]
    (want,) = run(lambda e: fn.decoders.image(e, device=device, **arguments), device, {"e": pngs})
    assert want[0].dtype == np.uint16
    assert_same(decode_mixed(mixed(wide), device, **arguments), want)


def test_masks(device: str) -> None:
    """Numbers of classes stay what they are, but in another type, which DALI fills for PNG."""
    rng = np.random.default_rng(3)
    masks = [rng.integers(0, 19, (30 + i, 40), np.uint8) for i in range(6)]
    samples = [
        as_sample(imagecodecs.png_encode(mask) if i % 2 else l3dali.encode(mask, labels=True))
        for i, mask in enumerate(masks)
    ]
    got = decode_mixed(samples, device, output_type=types.ANY_DATA)
    assert_same(got, [mask[..., None] for mask in masks])
    wide = decode_mixed(samples, device, output_type=types.ANY_DATA, dtype=types.UINT16)
    assert_same(wide, [mask[..., None].astype(np.uint16) * 257 for mask in masks])


def bigtiff(image: Array) -> bytes:
    file = io.BytesIO()
    tifffile.imwrite(file, image, bigtiff=True, photometric="rgb")
    return file.getvalue()


def foreign(image: Array) -> dict[str, bytes]:
    """The image in formats that DALI reads."""
    return {
        "JPEG": imagecodecs.jpeg8_encode(image, level=95),
        "PNG": imagecodecs.png_encode(image),
        "BMP": imagecodecs.bmp_encode(image),
        "TIFF": write_picture(Picture(image), ".tif"),
        "BigTIFF": bigtiff(image),
        "WebP": imagecodecs.webp_encode(image, lossless=True),
        "JPEG 2000": imagecodecs.jpeg2k_encode(image, reversible=True),
        "JPEG 2000 stream": imagecodecs.jpeg2k_encode(image, reversible=True, codecformat="j2k"),
        "PPM": b"P6 %d %d 255\n" % (image.shape[1], image.shape[0]) + image.tobytes(),
    }


def test_every_format_and_every_mode(device: str) -> None:
    rng = np.random.default_rng(6)
    samples = []
    for n, name in enumerate(foreign(make_image(rng, (16, 16, 3)))):
        samples.append(as_sample(foreign(make_image(rng, (40 + n, 61, 3)))[name]))
        coding = l3dali.CODINGS[n % len(l3dali.CODINGS)]
        samples.append(as_sample(l3dali.encode(make_image(rng, (33, 50 + n, 3)), coding=coding)))
    want = decode_alone(samples, device)
    assert_same(decode_mixed(samples, device), want)


# Pipelines.


@pytest.mark.parametrize("executor", EXECUTORS)
def test_batches_that_change(pairs: list[Pair], device: str, executor: str) -> None:
    """In size and in what they hold: all of a format, one of each, a single file."""
    columns = [
        mixed(pairs),
        [pair.l3 for pair in pairs[:3]],
        [pair.png for pair in pairs[:5]],
        mixed(pairs[:2]),
        [pairs[0].l3],
        mixed(pairs, every=3),
    ]
    batches = iter(columns * 2)

    def define() -> Any:
        encoded = fn.external_source(lambda: next(batches), batch=True)
        return decode(encoded, device=device)

    pipe = pipeline(define, device, len(pairs), **EXECUTORS[executor])
    for column in columns:
        want = decode_alone(column, device)
        assert_same(unpack(pipe.run()[0]), want)


@pytest.fixture
def folders(pairs: list[Pair], tmp_path: Path) -> tuple[list[str], list[str]]:
    """Files of the same names in the same order: all PNG, and some of them L3."""
    lists: tuple[list[str], list[str]] = ([], [])
    for n, (pair, sample) in enumerate(zip(pairs, mixed(pairs), strict=True)):
        for files, kind, data in zip(lists, ("png", "mixed"), (pair.png, sample), strict=True):
            path = tmp_path / kind / f"{n:02}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data.tobytes())
            files.append(str(path))
    return lists


@pytest.mark.parametrize("executor", EXECUTORS)
def test_shuffled_shards_and_checkpoints(
    folders: tuple[list[str], list[str]], device: str, executor: str
) -> None:
    """The order, epoch after epoch and after a restart, is that of the pipeline before."""

    def make(mix: bool, shard: int, checkpoint: Any = None) -> Any:
        def define() -> Any:
            encoded, labels = fn.readers.file(
                files=folders[mix], shuffle_after_epoch=True, num_shards=2, shard_id=shard
            )
            if mix:
                return decode(encoded, device=device), labels
            return fn.decoders.image(encoded, device=device), labels

        return pipeline(
            define, device, 4, seed=3, enable_checkpointing=True, checkpoint=checkpoint,
            **EXECUTORS[executor],
        )  # fmt: skip

    for shard in range(2):
        before, after = make(False, shard), make(True, shard)
        for step in range(8):
            if step == 5:
                after = make(True, shard, after.checkpoint())
            for want, got in zip(before.run(), after.run(), strict=True):
                assert_same(unpack(got), unpack(want))


@pytest.mark.parametrize("with_conditionals", [False, True])
def test_pipeline_def(pairs: list[Pair], device: str, with_conditionals: bool) -> None:
    """In a function with conditionals of its own too, inside of one and outside."""
    samples = mixed(pairs)
    flags = [np.array(i % 3 == 0) for i in range(len(samples))]
    options = {
        "batch_size": len(samples),
        "num_threads": 2,
        "device_id": None if device == "cpu" else 0,
        "enable_conditionals": with_conditionals,
    }

    @pipeline_def(**options)
    def plain() -> Any:
        encoded = source(samples)
        return decode(encoded, device=device)

    @pipeline_def(**options)
    def branching() -> Any:
        encoded = source(samples)
        turn = fn.external_source(lambda: flags, batch=True)
        if turn:
            images = fn.flip(decode(encoded, device=device), horizontal=0, vertical=1)
        else:
            images = decode(encoded, device=device)
        return images

    want = decode_alone(samples, device)
    assert_same(unpack(plain().run()[0]), want)
    if with_conditionals:
        turned = [w[::-1] if flag else w for w, flag in zip(want, flags, strict=True)]
        assert_same(unpack(branching().run()[0]), turned)


def test_several_pipelines_and_several_readers(pairs: list[Pair], device: str) -> None:
    samples = [mixed(pairs), mixed(pairs, 3)]

    def define() -> Any:
        return [decode(source(column), device=device) for column in samples]

    pipes = [pipeline(define, device, len(pairs)) for _ in range(2)]
    for _ in range(2):
        for pipe in pipes:
            for got, column in zip(pipe.run(), samples, strict=True):
                want = decode_alone(column, device)
                assert_same(unpack(got), want)


def test_split_and_merge_copy_nothing(pairs: list[Pair]) -> None:
    """What we need of fn._conditional, which DALI does not document: order and memory."""
    samples = mixed(pairs)

    def places(samples: Any) -> Any:
        """Of samples in a pipeline; its outputs may be copies."""
        return fn.python_function(
            samples, function=lambda sample: np.array(sample.ctypes.data, np.uint64)
        )

    def define() -> Any:
        encoded = source(samples)
        is_l3 = fn.l3.recognize(encoded)
        parts = fn._conditional.split(encoded, predicate=is_l3)
        merged = fn._conditional.merge(*parts, predicate=is_l3)
        return merged, *(places(node) for node in (encoded, *parts, merged))

    pipe = pipeline(define, "cpu", len(samples), **EXECUTORS["simple"])
    merged, before, l3, others, after = map(unpack, pipe.run())
    assert_same(merged, samples)
    assert (len(l3), len(others)) == (7, 8)
    assert after == before
    assert sorted(l3 + others) == sorted(before)


# Where L3 samples are decoded.


@pytest.mark.usefixtures("cores_for_gpu")
@pytest.mark.parametrize("share", SHARES)
def test_share_changes_no_pixel(pairs: list[Pair], share: float | None) -> None:
    samples = mixed(pairs)
    got = unpack(on_cores(samples, share).run()[0])
    assert_same(got, decode_alone(samples, "cpu"))


@pytest.mark.cuda
@pytest.mark.parametrize("share", SHARES)
def test_share_changes_no_pixel_of_a_gpu(pairs: list[Pair], share: Any) -> None:
    samples = mixed(pairs)
    want = decode_alone(samples, "mixed")
    assert_same(decode_mixed(samples, "mixed", cpu_share=share), want)


@pytest.mark.parametrize("share", SHARES)
def test_graph_of_a_gpu_pipeline(share: float | None) -> None:
    """It can be put together where no GPU is; only running it needs one."""

    def define() -> Any:
        encoded, _ = fn.readers.file(files=["a"])
        images = decode(encoded, device="mixed", cpu_share=share)
        assert images.device == "gpu"
        return images

    pipeline(define, "mixed", 4)


@pytest.mark.usefixtures("cores_for_gpu")
def test_share_may_come_from_an_operator(pairs: list[Pair]) -> None:
    """And change from batch to batch."""
    samples = mixed(pairs)
    shares = iter([0.0, 0.25, 1.0] * 3)

    def define() -> Any:
        encoded = source(samples)
        share = fn.external_source(
            lambda: np.full(len(samples), next(shares), np.float32), batch=True
        )
        return decode(encoded, device="mixed", cpu_share=share)

    want = decode_alone(samples, "cpu")
    pipe = pipeline(define, "cpu", len(samples))
    for _ in range(3):
        assert_same(unpack(pipe.run()[0]), want)


def picks(samples: Column, share: float) -> list[bool]:
    (picked,) = run(lambda e: fn.l3.pick_share(e, share=share), "cpu", {"e": samples})
    assert {(p.shape, p.dtype) for p in picked} == {((), np.dtype(bool))}
    return [bool(p) for p in picked]


def batch_of(seed: int, count: int) -> Column:
    return [as_sample(f"{seed} {i}".encode() * 30) for i in range(count)]


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.7, 1])
@pytest.mark.parametrize("count", [1, 3, 32])
def test_picks_make_up_the_share(share: float, count: int) -> None:
    picked = [picks(batch_of(seed, count), share) for seed in range(50)]
    sums = [sum(p) for p in picked]
    assert all(abs(s - share * count) < 1 for s in sums)
    assert sum(sums) / 50 == pytest.approx(share * count, abs=0.15)


def test_picks_are_spread_evenly() -> None:
    picked = picks(batch_of(1, 32), 0.25)
    assert [sum(picked[i : i + 4]) for i in range(0, 32, 4)] == [1] * 8


def test_picks_depend_on_the_files_alone() -> None:
    batches = [batch_of(seed, 5) for seed in range(20)]
    first = [picks(batch, 0.3) for batch in batches]
    assert [picks(batch, 0.3) for batch in reversed(batches)] == first[::-1]
    assert len({tuple(p) for p in first}) > 1


@pytest.mark.parametrize("share", [-0.01, 1.01, float("nan")])
def test_no_share(share: float) -> None:
    with pytest.raises(RuntimeError, match="`share` must be 0 to 1"):
        picks(batch_of(1, 3), share)


# What is wrong.


@pytest.mark.parametrize(
    ("data", "is_l3"),
    [
        (l3dali.encode(np.zeros((3, 3), np.uint8)), True),
        (b"\x8bL3F\n\x1a\n" + bytes(30), True),  # damaged by a transfer as text
        (b"\x8bL3", True),  # torn
        (b"\x8bL2F" + bytes(40), False),
        (imagecodecs.png_encode(np.zeros((3, 3), np.uint8)), False),
        (b"", False),
    ],
)
def test_recognize(data: bytes, is_l3: bool) -> None:
    (got,) = run(lambda e: fn.l3.recognize(e), "cpu", {"e": [as_sample(data)]})
    assert [bool(g) for g in got] == [is_l3]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GIF89a" + bytes(40), "neither L3 nor a format that fn.decoders.image reads"),
        (b"\x8bL3F\r\n\x1a", "kTruncated"),
        (l3dali.encode(np.zeros((300, 300), np.uint8))[:-9], "kTruncated"),
        (b"\x8bL3F\n\x1a\n" + bytes(90), "kBadMagic"),
    ],
)
def test_bad_files_are_named(
    data: bytes, message: str, pairs: list[Pair], device: str, tmp_path: Path
) -> None:
    names = ["a.png", "b.l3", "bad"]
    for name, content in zip(names, [pairs[0].png, pairs[1].l3, as_sample(data)], strict=True):
        (tmp_path / name).write_bytes(content.tobytes())

    def define() -> Any:
        encoded, _ = fn.readers.file(files=[str(tmp_path / name) for name in names])
        return decode(encoded, device=device)

    with pytest.raises(RuntimeError, match=rf"bad\).*{message}"):
        pipeline(define, device, 3).run()


def test_errors_count_in_the_whole_batch(pairs: list[Pair], device: str) -> None:
    damaged = as_sample(pairs[1].l3.tobytes()[:-9])
    samples = [pairs[0].png, pairs[1].l3, pairs[2].png, pairs[3].png, damaged]
    with pytest.raises(RuntimeError, match="failed at sample 4:"):
        decode_mixed(samples, device)


@pytest.mark.usefixtures("cores_for_gpu")
@pytest.mark.parametrize("share", SHARES)
def test_errors_count_in_the_whole_batch_with_a_share(
    pairs: list[Pair], share: float | None
) -> None:
    damaged = as_sample(pairs[1].l3.tobytes()[:-9])
    samples = [pairs[i].l3 if i % 3 else pairs[i].png for i in range(9)]
    samples[7] = damaged

    with pytest.raises(RuntimeError, match="failed at sample 7:"):
        on_cores(samples, share).run()


def test_a_name(pairs: list[Pair], device: str) -> None:
    names = []

    def define(encoded: Any) -> Any:
        images = decode(encoded, device=device, name="images")
        names.append(images.name)
        return images

    samples = mixed(pairs)
    run(define, device, {"encoded": samples})
    assert names == ["images"]


def test_empty_sample(pairs: list[Pair], device: str) -> None:
    with pytest.raises(RuntimeError, match="sample 1 has no bytes"):
        decode_mixed([pairs[0].png, as_sample(b"")], device)


def test_damaged_file_of_another_format(pairs: list[Pair], device: str) -> None:
    """As fn.decoders.image has it."""
    with pytest.raises(RuntimeError, match=r"decoders\.image"):
        decode_mixed([pairs[1].l3, pairs[0].png[:70]], device)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"device": "gpu"}, ValueError, '"cpu" or "mixed"'),
        ({"cpu_share": 0.5}, ValueError, 'with "cpu" the CPU decodes everything'),
        ({"device": "cpu", "cpu_share": 0.0}, ValueError, 'with "cpu" the CPU'),
        ({"device": "mixed", "cpu_share": 1.5}, ValueError, "0 to 1, not 1.5"),
        ({"device": "mixed", "cpu_share": -0.1}, ValueError, "0 to 1, not -0.1"),
        ({"device": "mixed", "cpu_share": float("nan")}, ValueError, "0 to 1, not nan"),
        ({"device": "mixed", "cpu_share": True}, ValueError, "a number, 0 to 1"),
        ({"device": "mixed", "cpu_share": "auto"}, ValueError, "a number, 0 to 1"),
        ({"channels": [0]}, ValueError, "fn.decoders.image returns all"),
        ({"fill_range": True}, ValueError, "fn.decoders.image always fills the range"),
        ({"on_error": "zero"}, ValueError, "fn.decoders.image always raises"),
        ({"return_status": True}, ValueError, "fn.decoders.image has no statuses"),
        ({"max_pixels": 100}, ValueError, "fn.decoders.image has no limit"),
        ({"skip_cached_images": True}, ValueError, "without bytes"),
        ({"dtype": types.FLOAT16}, ValueError, "fn.decoders.image does not support.*fn.cast"),
        ({"crop": (3, 3)}, TypeError, "no argument 'crop'"),
        ({"_numbers": 3}, TypeError, "no argument '_numbers'"),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    def define() -> Any:
        encoded, _ = fn.readers.file(files=["a"])
        return decode(encoded, **arguments)

    with pytest.raises(error, match=message):
        pipeline(define, "cpu", 3)


def test_dali_without_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(fn._conditional, "split")
    encoded, _ = fn.readers.file(files=["a"])
    with pytest.raises(RuntimeError, match=r"fn\._conditional\.split.*enable_conditionals"):
        decode(encoded)


def test_advice_without_split_works(pairs: list[Pair], device: str) -> None:
    """The message of the error above."""
    samples = mixed(pairs)
    arguments = {"output_type": types.RGB, "dtype": types.UINT8, "device": device}

    @pipeline_def(
        batch_size=len(samples), num_threads=2, device_id=None if device == "cpu" else 0,
        enable_conditionals=True,
    )  # fmt: skip
    def define() -> Any:
        encoded = source(samples)
        if fn.l3.recognize(encoded):
            images = fn.l3.decode(encoded, **arguments)
        else:
            images = fn.decoders.image(encoded, **arguments)
        return images

    assert_same(unpack(define().run()[0]), decode_mixed(samples, device))


def test_warning_of_files_that_the_reader_skips(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    image = make_image(np.random.default_rng(1), (20, 31, 3))
    (tmp_path / "set" / "cats").mkdir(parents=True)
    (tmp_path / "set" / "cats" / "a.png").write_bytes(imagecodecs.png_encode(image))

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def decoded(reader: dict[str, Any]) -> Any:
        return decode(fn.readers.file(**reader)[0])

    root = str(tmp_path / "set")
    decoded({"file_root": root}).build()
    l3dali.imwrite(tmp_path / "set" / "cats" / "b.l3", image)
    decoded({"file_root": root, "file_filters": ["*.l3", "*.png"]}).build()
    decoded({"files": [f"{root}/cats/a.png"]}).build()
    assert not recwarn.list
    for given in (Path(root), root):
        decoded({"file_root": given}).build()
    (warned,) = recwarn.list
    remedy = "use fn.l3.readers.file, or give it file_filters"
    assert f"skips the .l3 files in {root}: {remedy}" in str(warned.message)
    assert warned.filename == __file__
