"""L3 in Pillow: modes, metadata, limits, damage; and what imports what."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import ExifTags, Image, ImageCms, ImageFile, ImageOps, UnidentifiedImageError
from stream_builder import Stream, chunk, constant_tile

import l3dali
import l3dali.pillow
from l3dali.cli import main

l3dali.pillow.register()

CHANNELS = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "I;16": 1}
ICC = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
PALETTE = [255, 0, 0, 0, 255, 0, 0, 0, 255]


def pixels(mode: str, seed: int = 1) -> npt.NDArray[Any]:
    kind = np.uint16 if mode == "I;16" else np.uint8
    shape = (41, 53, CHANNELS[mode])
    image = np.random.default_rng(seed).integers(0, np.iinfo(kind).max, shape, kind, endpoint=True)
    return image[:, :, 0] if shape[2] == 1 else image


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def saved(image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "L3", **options)
    return file.getvalue()


@pytest.mark.parametrize("mode", CHANNELS)
def test_modes(mode: str, tmp_path: Path) -> None:
    array = pixels(mode)
    with opened(l3dali.encode(array)) as image:
        assert (image.format, image.mode, image.size) == ("L3", mode, (53, 41))
        assert image.get_format_mimetype() == "image/x-l3"
        assert np.array_equal(np.asarray(image), array)
    image.save(tmp_path / "a.l3", coding="packed", effort=1)
    assert np.array_equal(l3dali.imread(tmp_path / "a.l3"), array)
    assert (tmp_path / "a.l3").read_bytes() == l3dali.encode(array, coding="packed")


def test_big_endian_samples_are_kept() -> None:
    array = pixels("I;16")
    image = Image.frombytes("I;16B", (53, 41), array.astype(">u2").tobytes())
    assert np.array_equal(l3dali.decode(saved(image)), array)


def test_palette() -> None:
    numbers = pixels("L") % 3
    image = Image.fromarray(numbers).convert("L")
    image.putpalette(PALETTE)
    data = saved(image)
    info = l3dali.info(data)
    assert info.labels
    assert info.palette == bytes([255, 0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255])
    back = opened(data)
    assert back.mode == "P"
    assert back.getpalette() == PALETTE
    assert "transparency" not in back.info
    assert np.array_equal(np.asarray(back), numbers)
    assert np.array_equal(np.asarray(back.convert("RGB")), np.asarray(image.convert("RGB")))
    assert saved(back) == data


def test_palettes_of_cmyk_are_refused() -> None:
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 255, 0, 255, 0, 0], "CMYK")
    with pytest.raises(OSError, match="palette of CMYK"):
        saved(image)


@pytest.mark.parametrize("is_used", [False, True])
def test_a_transparent_entry_behind_the_palette(is_used: bool) -> None:
    """As programs write it to GIFs, and masks are pasted."""
    image = Image.new("P", (4, 4), 1)
    image.putpalette(PALETTE)
    image.info["transparency"] = 200
    if is_used:
        image.putpixel((2, 3), 200)
    data = saved(image)
    back = opened(data).convert("RGBA")
    assert back.getpixel((0, 0)) == (*PALETTE[3:6], 255)
    assert back.getpixel((2, 3)) == ((0, 0, 0, 0) if is_used else (*PALETTE[3:6], 255))
    palette = l3dali.info(data).palette
    assert palette is not None
    assert len(palette) == 4 * (201 if is_used else 3)


@pytest.mark.parametrize("transparency", [b"\x00\x80", 1])
def test_palette_with_alpha(transparency: Any) -> None:
    image = Image.fromarray(pixels("L") % 3)
    image.putpalette(PALETTE)
    image.info["transparency"] = transparency
    back = opened(saved(image))
    rgba = np.asarray(back.convert("RGBA"))
    assert np.array_equal(rgba, np.asarray(image.convert("RGBA")))
    assert len(np.unique(rgba[..., 3])) > 1
    file = io.BytesIO()
    back.save(file, "PNG")
    assert np.array_equal(np.asarray(opened(file.getvalue()).convert("RGBA")), rgba)


@pytest.mark.parametrize(("mode", "key", "becomes"), [("L", 7, "LA"), ("RGB", (1, 2, 3), "RGBA")])
def test_a_transparent_colour_becomes_alpha(mode: str, key: Any, becomes: str) -> None:
    array = pixels(mode)
    array[3, 4] = key
    image = Image.fromarray(array)
    image.info["transparency"] = key
    again = opened(saved(image))
    assert again.mode == becomes
    expected = np.full((41, 53), 255, np.uint8)
    expected[(array.reshape(41, 53, -1) == key).all(axis=2)] = 0
    assert expected[3, 4] == 0
    assert np.array_equal(np.asarray(again), np.dstack([array, expected]))


@pytest.mark.parametrize("mode", ["I;16", "I;16B"])
def test_a_transparent_gray_of_16_bits_becomes_alpha(mode: str) -> None:
    """Two channels, as of `l3 encode`; Pillow itself cannot open them."""
    array = pixels("I;16")
    array[3, 4] = 777
    image = Image.frombytes(mode, (53, 41), array.astype(">u2" if mode == "I;16B" else "<u2"))
    image.info["transparency"] = 777
    alpha = np.where(array == 777, 0, 65535)
    assert np.array_equal(l3dali.decode(saved(image)), np.dstack([array, alpha]))
    image.info["labels"] = True
    assert l3dali.info(saved(image)).channels == 2
    image.info["transparency"] = b"777"
    with pytest.raises(TypeError):
        saved(image)


def test_labels_without_a_palette_are_kept() -> None:
    back = opened(l3dali.encode(pixels("L"), labels=True))
    assert back.mode == "L"
    assert l3dali.info(saved(back)).labels
    assert not l3dali.info(saved(back, labels=False)).labels
    assert not l3dali.info(saved(back.convert("RGB"))).labels


@pytest.mark.parametrize("mode", ["LA", "RGB", "RGBA", "I;16"])
@pytest.mark.parametrize("palette", [None, bytes(range(16))])
def test_labels_of_any_mode_are_kept(mode: str, palette: bytes | None) -> None:
    data = l3dali.encode(pixels(mode) % 4, labels=True, palette=palette)
    assert saved(opened(data)) == data
    plain = l3dali.info(saved(opened(data), labels=False))
    assert not plain.labels
    assert plain.palette is None


def test_metadata() -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    exif[ExifTags.Base.Artist] = "who"
    data = saved(Image.fromarray(pixels("RGB")), exif=exif, icc_profile=ICC)
    assert l3dali.info(data).exif == exif.tobytes().removeprefix(b"Exif\0\0")
    image = opened(data)
    assert image.info["icc_profile"] == ICC
    assert image.getexif()[ExifTags.Base.Orientation] == 6
    assert dict(image.getexif()) == dict(exif)
    again = l3dali.info(saved(image))
    assert again.icc == ICC
    assert again.exif is None  # only what is asked for, as for PNG
    assert l3dali.info(saved(image, exif=image.info["exif"], icc_profile=None)).icc is None


def test_metadata_of_pixels_goes_with_their_size() -> None:
    tags = {"tiff": {"33550": {"type": "DOUBLE", "value": [1, 1, 0]}}}
    chunks = chunk(b"mine", b"of these pixels")
    data = l3dali.encode(pixels("RGB"), metadata=tags, other_chunks=chunks)
    image = opened(data)
    assert saved(image) == data
    image.thumbnail((10, 10))
    after = l3dali.info(saved(image))
    assert after.metadata is None
    assert after.other_chunks == b""
    assert l3dali.info(saved(image, metadata=tags)).metadata == tags
    exif = Image.Exif()
    exif[0x0112] = 6
    image = opened(l3dali.encode(pixels("RGB")[:9, :9], metadata=tags, exif=exif.tobytes()))
    assert l3dali.info(saved(image)).metadata == tags
    ImageOps.exif_transpose(image, in_place=True)
    assert image.size == (9, 9)
    assert l3dali.info(saved(image)).metadata is None


@pytest.mark.parametrize("mode", ["1", "CMYK", "YCbCr", "HSV", "LAB", "PA", "RGBX"])
def test_modes_that_cannot_be_kept(mode: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f"cannot write mode {mode} as L3"):
        Image.new(mode, (4, 4)).save(tmp_path / "a.l3")
    assert not (tmp_path / "a.l3").exists()


@pytest.mark.parametrize("channels", [2, 3, 4, 5, 200])
def test_16_bits_that_pillow_lacks(channels: int) -> None:
    data = l3dali.encode(np.zeros((4, 5, channels), np.uint16))
    with pytest.raises(OSError, match=f"no mode for {channels} channels of uint16; l3dali.imread"):
        opened(data)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_signed_samples_have_mode_i(dtype: str, tmp_path: Path) -> None:
    samples = np.linspace(np.iinfo(dtype).min, np.iinfo(dtype).max, 20).astype(dtype).reshape(4, 5)
    image = opened(l3dali.encode(samples))
    assert image.mode == "I"
    assert np.array_equal(np.asarray(image), samples)
    image.save(tmp_path / "a.l3")
    assert np.array_equal(l3dali.imread(tmp_path / "a.l3"), samples.astype(np.int32))
    with pytest.raises(OSError, match=f"no mode for 3 channels of {dtype}; l3dali.imread"):
        opened(l3dali.encode(np.zeros((4, 5, 3), dtype)))


@pytest.mark.parametrize(("mode", "dtype"), [("I", "int32"), ("F", "float32")])
def test_modes_of_32_bits(mode: str, dtype: str, tmp_path: Path) -> None:
    samples = np.linspace(-(2**30), 2**30, 20).astype(dtype).reshape(4, 5)
    image = Image.fromarray(samples)
    assert image.mode == mode
    image.save(tmp_path / "a.l3")
    found = l3dali.imread(tmp_path / "a.l3")
    assert (found.dtype, found.tobytes()) == (samples.dtype, samples.tobytes())
    assert np.array_equal(np.asarray(Image.open(tmp_path / "a.l3")), samples)


def test_bad_options() -> None:
    image = Image.new("L", (4, 4))
    with pytest.raises(ValueError, match="coding 'small' is not supported"):
        saved(image, coding="small")
    with pytest.raises(ValueError, match="effort must be 1 to 9"):
        saved(image, effort=10)


class Counting(io.BytesIO):
    """Counts what is read."""

    total = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.total += len(data)
        return data


def test_open_reads_the_head_alone() -> None:
    array = np.random.default_rng(1).integers(0, 256, (500, 700, 3), np.uint8)
    data = l3dali.encode(array, icc=b"i" * 9000)  # longer than the first piece
    file = Counting(data)
    image = Image.open(file)
    assert image.info["icc_profile"] == b"i" * 9000
    assert 9000 < file.total < 40_000 < len(data)
    assert np.array_equal(np.asarray(image), array)


@pytest.mark.parametrize("piece", [7, 10_000])
def test_parser_waits_for_the_whole_file(piece: int) -> None:
    array = pixels("RGB")
    data = l3dali.encode(array)
    parser = ImageFile.Parser()
    for at in range(0, len(data), piece):
        parser.feed(data[at : at + piece])
    assert np.array_equal(np.asarray(parser.close()), array)
    parser = ImageFile.Parser()
    parser.feed(data[:-1])
    with pytest.raises(OSError, match="ends too early"):
        parser.close()


def test_limit_of_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    data = l3dali.encode(np.zeros((100, 100), np.uint8))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 9999)
    with pytest.warns(Image.DecompressionBombWarning):
        opened(data)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4999)
    with pytest.raises(Image.DecompressionBombError):
        opened(data)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert opened(data).size == (100, 100)


def test_damaged_heads() -> None:
    data = bytearray(l3dali.encode(pixels("RGB")))
    with pytest.raises(UnidentifiedImageError, match="the data ends too early"):
        opened(bytes(data[:20]))
    with pytest.raises(UnidentifiedImageError):
        opened(bytes(data[:4]))
    data[20] ^= 1
    with pytest.raises(UnidentifiedImageError, match=r"cannot identify .*(checksum|corrupt)"):
        opened(bytes(data))


@pytest.mark.parametrize("check", ["load", "verify"])
def test_damaged_payloads(check: str) -> None:
    data = l3dali.encode(pixels("RGB"))
    changed = data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]
    for damaged, text in [(data[:-1], "ends too early"), (changed, "checksum|corrupt")]:
        image = opened(damaged)
        with pytest.raises(OSError, match=text):
            getattr(image, check)()


def test_verify() -> None:
    image = opened(l3dali.encode(pixels("RGB")))
    image.verify()
    with pytest.raises(RuntimeError, match="directly after open"):
        image.verify()


@pytest.mark.parametrize("other", [pixels("L")[:9], pixels("RGB"), pixels("I;16")])
def test_file_that_changes_behind_open(other: npt.NDArray[Any], tmp_path: Path) -> None:
    path = tmp_path / "a.l3"
    l3dali.imwrite(path, np.zeros((41, 53), np.uint8))
    image = Image.open(path)
    path.write_bytes(l3dali.encode(other))
    with pytest.raises(OSError, match=r"changed since|checksum|corrupt|too early"):
        image.load()


def test_copies() -> None:
    array = pixels("RGB")
    data = l3dali.encode(array)
    for twin in (pickle.loads(pickle.dumps(opened(data))), copy.deepcopy(opened(data))):
        assert np.array_equal(np.asarray(twin), array)
    assert np.array_equal(np.asarray(opened(data).copy()), array)
    assert np.array_equal(np.asarray(opened(data).crop((3, 4, 20, 30))), array[4:30, 3:20])


def test_registering_twice_changes_nothing() -> None:
    before = list(Image.ID)
    l3dali.pillow.register()
    assert before == Image.ID
    assert before.count("L3") == 1


def test_import_is_light() -> None:
    """What l3dali works with is imported where it is used."""
    heavy = "PIL cv2 datasets fsspec imagecodecs imageio litdata netpbmfile numcodecs nvidia"
    heavy += " pyarrow ray rich skimage streaming tifffile torch torchvision webdataset zarr"
    code = f"import sys, l3dali; print(set({heavy!r}.split()) & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("size", [3, 6, 1028])
def test_a_palette_of_no_such_size_is_left_out(
    tmp_path: Path, size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pixels are sound, and every reader gives them."""
    stream = Stream(4, 5, meaning=1, chunks=[chunk(b"plte", bytes(size))])
    stream.payloads = [constant_tile([3])]
    path = tmp_path / "a.l3"
    path.write_bytes(stream.to_bytes())
    info = l3dali.info(path)
    assert info.palette is None
    assert info.palette_is_damaged
    with pytest.warns(UserWarning, match="the palette is damaged"):
        opened = Image.open(path)
    with opened:
        assert opened.mode == "L"
        assert np.array_equal(np.asarray(opened), l3dali.imread(path))
    assert main(["decode", str(path), "-o", str(tmp_path / "x.png")]) == 0
    assert "damaged metadata was dropped: 1 image" in capsys.readouterr().err
    with Image.open(tmp_path / "x.png") as written:
        assert np.array_equal(np.asarray(written), l3dali.imread(path))
