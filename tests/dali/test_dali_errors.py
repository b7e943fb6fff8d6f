"""Samples that fail alone: damage, `on_error`, statuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dali_tools import (
    FAMILY,
    Array,
    Pair,
    apply,
    as_sample,
    assert_same,
    call,
    call_usual,
    decode,
    make_image,
    make_pair,
    pipeline,
    source,
    unpack,
)
from nvidia.dali import fn, types
from reference_decoder import STATUS_NAMES
from stream_builder import Stream, constant_tile

import l3dali

pytestmark = pytest.mark.dali

DECODERS = [name for name in FAMILY if name != "peek_shape"]


@pytest.fixture(scope="module")
def pair() -> Pair:
    return make_pair(make_image(np.random.default_rng(1), (50, 70, 3)))


def damaged(pair: Pair, back: int = 1) -> Array:
    """The file with a byte changed, counted from its end."""
    data: Array = pair.l3.copy()
    data[-back] ^= 0x40
    return data


@pytest.mark.parametrize("name", DECODERS)
def test_damage_names_sample_and_source(name: str, pair: Pair, device: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.l3" for i in range(3)]
    for path, data in zip(paths, [pair.l3, every_tile_damaged(pair), pair.l3], strict=True):
        path.write_bytes(data.tobytes())

    def define() -> Any:
        encoded, _ = fn.readers.file(files=[str(path) for path in paths])
        return apply(name, encoded, device)

    with pytest.raises(RuntimeError, match=r"sample 1 \(.*1\.l3\), tile \d+ of 21: .*\(k\w+\)"):
        pipeline(define, device, 3).run()


def every_tile_damaged(pair: Pair) -> Array:
    """A byte changed in each stretch of 40: header and index stay, no tile does."""
    data: Array = pair.l3.copy()
    header = 300
    data[header::40] ^= 0x10
    return data


def bad_samples(pair: Pair) -> dict[str, tuple[Array, str]]:
    """Files that cannot be decoded, and their statuses."""
    header = pair.l3.copy()
    header[20] ^= 1
    return {
        "damaged": (every_tile_damaged(pair), "kChecksumMismatch"),
        "truncated behind the index": (pair.l3[:-10], "kTruncated"),
        "truncated in the header": (pair.l3[:20], "kTruncated"),
        "a header with a flipped bit": (header, "kChecksumMismatch"),
        "a PNG file": (pair.png, "kBadMagic"),
        "one byte": (pair.l3[:1], "kTruncated"),
        "empty": (as_sample(b""), "kTruncated"),
        "noise": (np.random.default_rng(2).integers(0, 256, 500).astype(np.uint8), "kBadMagic"),
    }


@pytest.mark.parametrize("name", DECODERS)
def test_zeros_in_place_of_bad_samples(name: str, pair: Pair, device: str) -> None:
    bad = bad_samples(pair)
    samples = [pair.l3]
    for data, _ in bad.values():
        samples += [data, pair.l3]

    got, statuses = call_usual(name, samples, device, on_error="zero", return_status=True)
    (plain,) = call_usual(name, [pair.l3] * len(samples), device)
    assert_same(got[::2], plain[::2])  # random windows too: each sample has its own
    assert {(s.shape, s.dtype) for s in statuses} == {((), np.dtype(np.int32))}
    assert [STATUS_NAMES[s] for s in statuses[::2]] == ["kOk"] * len(got[::2])
    want = [status for _, status in bad.values()]
    assert [STATUS_NAMES[s] for s in statuses[1::2]] == want
    for image, kind in zip(got[1::2], bad, strict=True):
        assert image.dtype == plain[0].dtype
        assert not image.any(), kind
    # Where header and index are whole, the shape is the one declared.
    for image, sample in zip(got[1:4:2], plain[1:4:2], strict=True):
        assert image.shape == sample.shape
    for image, kind in zip(got[5::2], list(bad)[2:], strict=True):
        if "crop" in FAMILY[name]:
            assert image.shape == plain[0].shape, kind  # the window's
        elif name == "decode_random_crop":
            assert image.ndim == 3, kind
        elif name == "decode_windows":
            assert image.shape == (1, *FAMILY[name]["window"], 3), kind
        else:
            assert image.shape == (1, 1, 3), kind


def test_other_formats_are_sent_to_dalis_decoder(pair: Pair, device: str) -> None:
    with pytest.raises(RuntimeError, match=r"\(kBadMagic\)\. `fn.decoders.image` reads other"):
        decode([pair.png], device)


@pytest.mark.parametrize("damage", ["CRC of the index", "payloads too short", "no payloads"])
def test_zeros_are_not_sized_by_claims(pair: Pair, device: str, damage: str) -> None:
    """A hundred bytes that claim 2^31 pixels in two tiles, which must be stored ones."""
    stream = Stream(width=1 << 16, height=1 << 15, tile_width_log2=15, tile_height_log2=15)
    payload_bytes = (1 << 30) + 16
    stream.index = (
        [2, 4]
        if damage == "payloads too short"
        else [payload_bytes // 16 * tiles for tiles in (1, 2)]
    )
    data = bytearray(stream.to_bytes() + bytes(64))
    if damage == "CRC of the index":
        data[41] ^= 1
    samples = [pair.l3, as_sample(data)]
    got = decode(samples, device, on_error="zero")
    assert [image.shape for image in got] == [pair.image.shape, (1, 1, 3)]


@pytest.mark.parametrize("name", DECODERS)
def test_bad_samples_alone(name: str, pair: Pair, device: str) -> None:
    """Nothing in the batch tells a type: eight bits and a channel."""
    samples = [pair.png, as_sample(b"")]
    (got,) = call_usual(name, samples, device, on_error="zero")
    want = np.float32 if "normalize" in name else np.uint8
    assert [image.dtype for image in got] == [want, want]
    assert all(image.ndim == 3 + (name == "decode_windows") for image in got)
    assert not any(image.any() for image in got)


@pytest.mark.parametrize("size", [(72, 50707), (50707, 72), (1, 1)])
def test_random_crops_of_claimed_sizes(device: str, size: tuple[int, int]) -> None:
    """DALI's windows leave images of some 50,000 pixels a side; zeros must not end the batch."""
    stream = Stream(*size, tile_width_log2=7, tile_height_log2=7, index=[0] * 397)
    samples = [as_sample(stream.to_bytes() + bytes(4000))]

    for seed in range(3):
        (got,) = call("decode_random_crop", samples, device, seed=seed, on_error="zero")
        assert not got[0].any()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("decode_slice", {"start": (5, 5)}),
        ("decode_slice", {"start": (5, 5), "rel_end": (0.5, 0.5)}),
        ("decode_slice", {"start": (5, 5), "end": (9, 9)}),
        ("decode_slice", {"rel_start": (0.9, 0.9), "shape": (4, 4)}),
        ("decode_crop", {"crop": (9, 7), "crop_pos_x": 1.0}),
        ("decode_random_crop", {"random_area": (0.1, 0.2)}),
        ("decode_crop_mirror_normalize", {"mean": [1.0, 2.0, 3.0]}),
        ("decode_crop_mirror_normalize", {"std": [1.0, 2.0, 3.0], "pad_output": True}),
        (
            "decode_crop_mirror_normalize",
            {"crop": (90, 90), "out_of_bounds_policy": "pad", "fill_values": [1.0, 2.0, 3.0]},
        ),
    ],
    ids=str,
)
def test_arguments_beside_unreadable_samples(
    pair: Pair, device: str, name: str, arguments: dict[str, Any]
) -> None:
    """Arguments that fit the images end no batch, whatever stands in for an unreadable one."""
    for samples in ([pair.png, pair.png], [pair.png, pair.l3], [pair.l3, pair.l3[:30]]):
        (got,) = call(name, samples, device, on_error="zero", **arguments)
        for image, sample in zip(got, samples, strict=True):
            assert image.any() == (sample is pair.l3)


def test_zeros_have_the_shape_asked_for(pair: Pair, device: str) -> None:
    """Of a damaged file: colours, type, layout and padding as for a good one."""
    (got,) = call(
        *("decode_crop_mirror_normalize", [pair.l3, every_tile_damaged(pair)], device),
        output_type=types.GRAY,
        dtype=types.FLOAT16,
        crop=(80, 90),
        out_of_bounds_policy="pad",
        fill_values=7.0,
        mean=3.0,
        on_error="zero",
    )
    assert [image.shape for image in got] == [(1, 80, 90)] * 2
    assert {image.dtype for image in got} == {np.dtype(np.float16)}
    assert got[0].any()
    assert not got[1].any()


def test_failures_are_logged(
    pair: Pair, device: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = ["good.l3", "torn.l3", "foreign.l3"]
    for name, data in zip(names, [pair.l3, pair.l3[:-9], pair.png], strict=True):
        (tmp_path / name).write_bytes(data.tobytes())

    def define() -> Any:
        encoded, _ = fn.readers.file(files=[str(tmp_path / name) for name in names])
        return fn.l3.decode(encoded, device=device, on_error="zero")

    pipe = pipeline(define, device, 3, prefetch_queue_depth=1)
    pipe.run()
    log = capfd.readouterr().err
    assert re.search(r"sample 1 \(.*torn\.l3\).*kTruncated.*so far: 1\.", log), log
    assert re.search(r"sample 2 \(.*foreign\.l3\).*kBadMagic.*so far: 2\.", log), log
    assert "good.l3" not in log


def test_log_does_not_drown(pair: Pair, device: str, capfd: pytest.CaptureFixture[str]) -> None:
    def define() -> Any:
        return fn.l3.decode(source([pair.png] * 100), device=device, on_error="zero")

    pipe = pipeline(define, device, 100, prefetch_queue_depth=1)
    for _ in range(3):
        pipe.run()
    lines = [line for line in capfd.readouterr().err.splitlines() if "kBadMagic" in line]
    assert len(lines) < 30
    assert "so far: 256." in lines[-1]


SMALL_WINDOWS: list[tuple[str, dict[str, Any], tuple[int, int]]] = [
    ("decode_crop", {"crop": (40, 60)}, (40, 60)),
    ("decode_slice", {"start": (0, 0), "end": (40, 60), "axis_names": "HW"}, (40, 60)),
    ("decode_slice", {"start": (30, 40), "shape": (7, 8), "axis_names": "HW"}, (7, 8)),
    ("decode_slice", {"start": (30, 40)}, (12, 9)),
    ("decode_crop_mirror_normalize", {"crop": (40, 60), "output_layout": "HWC"}, (40, 60)),
]


@pytest.mark.parametrize(("name", "window", "shape"), SMALL_WINDOWS, ids=str)
def test_images_smaller_than_the_window(
    name: str, window: dict[str, Any], shape: tuple[int, int], pair: Pair, device: str,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """They fail alone, with a status of their own, and the log says what does not fit."""
    small = make_pair(make_image(np.random.default_rng(4), (12, 9, 3)))
    samples = [pair.l3, small.l3, pair.l3]
    images, statuses = call(name, samples, device, on_error="zero", return_status=True, **window)
    assert [STATUS_NAMES[s] for s in statuses] == ["kOk", "kInvalidArgument", "kOk"]
    assert images[0].any()
    assert images[1].shape == (*shape, 3)
    assert not images[1].any()
    np.testing.assert_array_equal(images[0], images[2])
    assert re.search(
        r"sample 1.* (\[12 x 9\]|\(?(9|12) pixels).*filled with zeros", capfd.readouterr().err
    )
    with pytest.raises(RuntimeError, match=r"sample 1.* (\[12 x 9\]|\(?(9|12) pixels)"):
        call(name, samples, device, **window)


@pytest.mark.parametrize("wide", [[1], [0], [0, 1, 4], [0, 1]], ids=str)
def test_other_bit_depths(wide: list[int], pair: Pair, device: str) -> None:
    """The type of the batch is the one that more images have, of as many the first's."""
    deep = make_pair(make_image(np.random.default_rng(5), (20, 30, 3), bits=16))
    count = 4 if wide == [0, 1] else 5
    samples = [deep.l3 if i in wide else pair.l3 for i in range(count)]
    usual = deep if len(wide) >= 2 else pair
    zeros: dict[str, Any] = {"on_error": "zero", "return_status": True}
    images, statuses = call("decode", [pair.png, *samples], device, **zeros)
    assert STATUS_NAMES[statuses[0]] == "kBadMagic"
    for image, status, sample in zip(images[1:], statuses[1:], samples, strict=True):
        assert image.dtype == usual.image.dtype
        if sample is usual.l3:
            np.testing.assert_array_equal(image, usual.image)
            assert status == 0
        else:
            other = pair if usual is deep else deep
            assert image.shape == other.image.shape
            assert not image.any()
            assert STATUS_NAMES[status] == "kInvalidArgument"
    with pytest.raises(RuntimeError, match=r"holds (uint8|uint16)\. Set a `dtype`"):
        decode(samples, device)


@pytest.mark.parametrize(
    "arguments",
    [
        {"mean": [1.0, 2.0, 3.0]},
        {"std": [1.0, 2.0, 3.0], "pad_output": True},
        {"out_of_bounds_policy": "pad", "fill_values": [1.0, 2.0, 3.0]},
    ],
    ids=str,
)
def test_images_with_other_channels(pair: Pair, device: str, arguments: dict[str, Any]) -> None:
    """Their zeros have the channels of those that fit, so that the batch is one tensor."""
    gray = make_pair(make_image(np.random.default_rng(6), (30, 40, 1)))
    name, samples = "decode_crop_mirror_normalize", [gray.l3, pair.l3]
    arguments = {"crop": (20, 20), "on_error": "zero", "return_status": True} | arguments
    images, statuses = call(name, samples, device, **arguments)
    assert [STATUS_NAMES[s] for s in statuses] == ["kInvalidArgument", "kOk"]
    assert images[0].shape == images[1].shape == (4 if "pad_output" in arguments else 3, 20, 20)
    assert images[1].any()
    assert not images[0].any()
    with pytest.raises(RuntimeError, match=r"sample 0 has 1 channels"):
        call(name, samples, device, **arguments | {"on_error": "raise"})
    # Where the channels are not the file's, no image fits: the pipeline's mistake.
    with pytest.raises(RuntimeError, match=r"sample 0 has 1 channels"):
        call(name, samples, device, output_type=types.GRAY, **arguments)


@pytest.mark.parametrize("on_error", ["raise", "zero"])
def test_batches_of_several_channels(tmp_path: Path, device: str, on_error: str) -> None:
    """An iterator that makes one tensor of a batch would name no file."""
    rng = np.random.default_rng(7)
    images = [make_image(rng, (30, 40, channels)) for channels in (1, 3, 3, 4, 6)]
    paths = [str(tmp_path / f"{i}.l3") for i in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        l3dali.imwrite(path, image)

    def define(*numbers: int, **arguments: Any) -> Any:
        encoded, _ = fn.readers.file(files=[paths[i] for i in numbers])
        return fn.l3.decode_crop_mirror_normalize(
            encoded, device=device, on_error=on_error, **arguments
        )

    def shapes(*numbers: int, **arguments: Any) -> list[tuple[int, ...]]:
        (output,) = pipeline(lambda: define(*numbers, **arguments), device, len(numbers)).run()
        return [(*each.shape, int(each.any())) for each in unpack(output)]

    assert shapes(0, 1, 3, output_type=types.RGB) == [(3, 30, 40, True)] * 3
    assert shapes(1, 3, pad_output=True) == [(4, 30, 40, True)] * 2
    assert shapes(4, 1, channels=[2, 0]) == [(2, 30, 40, True)] * 2
    if on_error == "zero":
        assert shapes(0, 1, 2) == [(3, 30, 40, n > 0) for n in range(3)]  # as most images have
        assert shapes(0, 4, 4) == [(6, 30, 40, n > 0) for n in range(3)]
        return
    rgb = r"Use `output_type=types\.RGB` for three each\."
    named = r"but sample 0 \(.*1\.l3\) has 3 and sample 2 \(.*{}\.l3\) has {}\. "
    with pytest.raises(RuntimeError, match=named.format(3, 4) + rgb):
        shapes(1, 2, 3)
    with pytest.raises(RuntimeError, match=named.format(0, 1) + rgb):
        shapes(1, 2, 0, pad_output=True)
    with pytest.raises(RuntimeError, match=named.format(4, 6) + "Use `channels` to select"):
        shapes(1, 2, 4)


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("decode_crop", {"crop": (5, 5), "crop_pos_x": 2.0}),
        pytest.param("decode_crop_mirror_normalize", {"mean": [1.0] * 4097}, id="4097_means"),
        ("decode_crop_mirror_normalize", {"mean": [1.0] * 2, "std": [1.0] * 3}),
    ],
    ids=str,
)
def test_arguments_that_fit_no_image_raise(
    name: str, window: dict[str, Any], pair: Pair, device: str
) -> None:
    with pytest.raises(RuntimeError, match=r"crop_pos_x|`mean`"):
        call(name, [pair.png, pair.l3], device, on_error="zero", **window)


CLAIM = (1 << 16, 1 << 12)  # 2^28 pixels, and a row more: a constant file of 88 KB


@pytest.fixture(scope="module")
def claim() -> Array:
    height, width = CLAIM[1] + 1, CLAIM[0]
    tiles = (width // 256) * (CLAIM[1] // 256 + 1)
    stream = Stream(width, height, tile_width_log2=8, tile_height_log2=8)
    stream.payloads = [constant_tile([7])] * tiles
    data = stream.to_bytes()
    return as_sample(data)


@pytest.mark.parametrize("on_error", ["raise", "zero"])
def test_max_pixels(device: str, claim: Array, pair: Pair, on_error: str) -> None:
    """A small file cannot have more memory than was granted; the error names the argument."""
    assert claim.size < 100_000

    height, width, _ = pair.image.shape
    exact = decode([pair.l3, pair.l3], device, on_error=on_error, max_pixels=height * width)
    np.testing.assert_array_equal(exact[0], pair.image)

    def refuses(sample: Array, limit: int, **arguments: Any) -> None:
        arguments |= {"on_error": on_error, "return_status": True}
        if on_error == "raise":
            with pytest.raises(RuntimeError, match=f"sample 0 .*`max_pixels`, {limit}\\."):
                call("decode", [sample], device, **arguments)
            return
        images, statuses = call("decode", [sample], device, **arguments)
        assert images[0].shape[:2] == (1, 1)
        assert STATUS_NAMES[statuses[0]] == "kOutputTooSmall"

    refuses(claim, l3dali.codec.DEFAULT_MAX_PIXELS)
    refuses(pair.l3, height * width - 1, max_pixels=height * width - 1)


@pytest.mark.parametrize("name", DECODERS)
def test_max_pixels_counts_the_window(name: str, claim: Array, device: str) -> None:
    """Windows of large images are what tiles are for: the image may have more."""
    window: dict[str, Any] = {"crop": (9, 7)} if "crop" in FAMILY[name] else FAMILY[name]
    if name == "decode_slice":
        window = {"start": (5, 5), "shape": (9, 7)}
    if name == "decode_windows":
        window = {"window": (9, 7), "count": 1}
    with pytest.raises(RuntimeError, match="`max_pixels`, 62"):
        call(name, [claim], device, max_pixels=62, **window)
    if name not in ("decode", "decode_random_crop"):
        (images,) = call(name, [claim], device, max_pixels=63, **window)
        assert sorted(images[0].shape) in ([1, 7, 9], [1, 1, 7, 9])


@pytest.mark.parametrize("pixels", [0, -1, 2**31 + 1])
def test_max_pixels_in_range(device: str, pair: Pair, pixels: int) -> None:
    with pytest.raises(RuntimeError, match=r"`max_pixels` must be 1 to 2\^31"):
        decode([pair.l3], device, max_pixels=pixels)


def test_damaged_files_get_no_more_memory_than_valid_ones(device: str) -> None:
    """A whole index of a file cut short: accepted only if a valid file could be as small."""
    columns, rows = 16, 15
    stream = Stream(
        width=256 * columns, height=256 * rows, tile_width_log2=8, tile_height_log2=8,
        index=list(range(1, columns * rows + 1)),
    )  # fmt: skip
    head = stream.to_bytes()
    least = 36 + 20 * columns * rows  # docs/format.md 7
    for size, shape in ((least - 1, (1, 1, 1)), (least, (256 * rows, 256 * columns, 1))):
        data = head + bytes(size - len(head))
        (image,) = decode([as_sample(data)], device, on_error="zero")
        assert image.shape == shape, size


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a\nb", r"a\x0Ab"),
        ("a\x1b[31mb\x7f", r"a\x1B[31mb\x7F"),
        ("h\u00e9\u65e5\U0001f600", "h\u00e9\u65e5\U0001f600"),
        ("\u202etxt", r"\xE2\x80\xAEtxt"),
        ("c\u009b2J", r"c\xC2\x9B2J"),
        ("bad\udcff\udce2\udc82", r"bad\xFF\xE2\x82"),
        ("over\udcc0\udcaf", r"over\xC0\xAF"),
        ("half\udced\udca0\udc80", r"half\xED\xA0\x80"),
    ],
    ids=ascii,
)
def test_names_cannot_write_lines_of_their_own(
    name: str, shown: str, pair: Pair, device: str, tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = tmp_path / "class"
    folder.mkdir()
    (folder / f"{name}.l3").write_bytes(pair.png.tobytes())

    def define(on_error: str) -> Any:
        encoded, _ = fn.readers.file(file_root=str(tmp_path), file_filters=["*.l3"])
        return fn.l3.decode(encoded, device=device, on_error=on_error)

    pipeline(lambda: define("zero"), device, 1, prefetch_queue_depth=1).run()
    lines = capfd.readouterr().err.splitlines()
    assert [f"{shown}.l3)" in line for line in lines if "[L3]" in line] == [True], lines
    assert not any("\x1b" in line for line in lines)
    with pytest.raises(RuntimeError) as error:
        pipeline(lambda: define("raise"), device, 1, prefetch_queue_depth=1).run()
    assert f"{shown}.l3)" in str(error.value)


def test_zeros_have_the_type_of_their_file(device: str) -> None:
    """Where no file of the batch can be decoded, a header that can be read tells."""
    encoded = l3dali.encode(np.ones((9, 8, 3), np.uint16))
    torn = np.frombuffer(encoded[:-1], np.uint8)
    (image,) = decode([torn], device, on_error="zero")
    assert image.dtype == np.uint16
    assert image.shape == (9, 8, 3)


def test_zeros_are_trimmed_as_the_image_would_be(pair: Pair, device: str) -> None:
    trim = {"crop": (60000, 60000), "out_of_bounds_policy": "trim_to_shape", "on_error": "zero"}
    name, samples = "decode_crop_mirror_normalize", [pair.l3[:-1], pair.l3]
    (images,) = call(name, samples, device, **trim)
    assert images[0].shape == images[1].shape
    assert not images[0].any()


@pytest.mark.parametrize("name", DECODERS)
def test_unknown_on_error(name: str, pair: Pair, device: str) -> None:
    with pytest.raises(RuntimeError, match='"raise" or "zero", got "skip"'):
        call_usual(name, [pair.l3], device, on_error="skip")


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize(
    "bad",
    [np.zeros((4, 4), np.uint8), np.zeros(64, np.uint16), np.zeros((), np.uint8)],
    ids=["2-D", "uint16", "0-D"],
)
def test_wrong_input(device: str, name: str, bad: Array) -> None:
    with pytest.raises(RuntimeError, match="1-D uint8"):
        call_usual(name, [bad], device)


@pytest.mark.parametrize("name", FAMILY)
def test_bad_files_raise(name: str, pair: Pair, device: str) -> None:
    for kind, (data, status) in bad_samples(pair).items():
        if name == "peek_shape" and kind in ("damaged", "truncated behind the index"):
            continue  # it reads the header alone
        with pytest.raises(RuntimeError, match=f"sample 1.*{status}"):
            call_usual(name, [pair.l3, data], device)


@pytest.mark.parametrize("name", FAMILY)
def test_truncation_anywhere(name: str, pair: Pair, device: str) -> None:
    """Cut at many lengths, and with bytes changed: zeros or the image, never a crash."""
    cuts = [pair.l3[:size] for size in range(0, pair.l3.size, 13)]
    changes = [damaged(pair, back) for back in range(1, pair.l3.size, 13)]
    if name == "peek_shape":  # it has no on_error: the good ones must be told apart first
        cuts = [cut for cut in cuts if cut.size > 400]
        changes = [damaged(pair, back) for back in range(1, pair.l3.size - 400, 13)]
        (shapes,) = call(name, cuts + changes, "cpu")
        assert {tuple(shape) for shape in shapes} == {pair.image.shape}
        return
    ((good,),) = call_usual(name, [pair.l3], device)
    samples = [*cuts, *changes, pair.l3]
    images, statuses = call_usual(name, samples, device, on_error="zero", return_status=True)
    assert all(status != 0 for status in statuses[: len(cuts)])
    seen = {int(status) for status in statuses}
    assert seen >= {0, STATUS_NAMES.index("kTruncated"), STATUS_NAMES.index("kChecksumMismatch")}
    for image, status in zip(images, statuses, strict=True):
        if status != 0:
            assert not image.any()
        elif name != "decode_random_crop":
            np.testing.assert_array_equal(image, good)
