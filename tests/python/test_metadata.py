"""What is kept beside the pixels: XMP, key-value pairs, TIFF tags, chunks of later versions."""

from __future__ import annotations

import io
import json
import struct
import zlib
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PIL_Image
from stream_builder import Stream, chunk, constant_tile

import l3dali
import l3dali.pillow
from l3dali import codec
from l3dali.arguments import MAX_KEPT_BYTES
from l3dali.cli import main
from l3dali.codec import chunks_of
from l3dali.errors import ImageError
from l3dali.images.formats import write_picture
from l3dali.images.geometry import shrink
from l3dali.images.picture import Picture
from l3dali.images.reading import read_picture
from l3dali.images.transcoding import decoded_picture
from l3dali.metadata import (
    KEPT_TIFF_TAGS,
    MAX_METADATA_BYTES,
    TiffTag,
    dump_metadata,
    load_metadata,
    metadata_of_tiff,
    of_channels,
    png_of_metadata,
    tiff_of_metadata,
)

TOO_LONG = "metadata exceeds 16777216 bytes as JSON"
IMAGE = np.arange(6, dtype=np.uint8).reshape(2, 3)
XMP = "<x:xmpmeta xmlns:x='adobe:ns:meta/'>µ</x:xmpmeta>".encode()
PAIRS: dict[str, Any] = {
    "spacing": [0.7, 0.1 + 0.2],
    "rescale_slope": 1,
    "rescale_intercept": -1024.0,
    "band_names": ["red", "nah-infrarot µ"],
    "nested": {"none": None, "yes": True, "big": 2**70, "text": "\0\n\x7f"},
}


def with_chunks(*chunks: bytes) -> bytes:
    """A small file with these chunks."""
    return Stream(20, 8, payloads=[constant_tile([1])], chunks=list(chunks)).to_bytes()


def command(*arguments: str | Path) -> tuple[str, str]:
    """Runs `l3`: what it printed, and its messages."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as told:
        code = main([*map(str, arguments)])
    assert code == 0, out.getvalue() + told.getvalue()
    return out.getvalue(), told.getvalue()


# Python.


def test_what_is_kept_comes_back() -> None:
    data = l3dali.encode(IMAGE, xmp=XMP, metadata=PAIRS)
    info = l3dali.info(data)
    assert info.xmp == XMP
    assert info.metadata == PAIRS
    assert list(info.metadata) == list(PAIRS)
    assert json.loads(info.metadata_json or b"") == PAIRS
    np.testing.assert_array_equal(l3dali.decode(data), IMAGE)
    bare = l3dali.info(l3dali.encode(IMAGE))
    assert (bare.xmp, bare.metadata, bare.metadata_json) == (None, None, None)
    assert bare.other_chunks == b""


def test_numpy_becomes_json() -> None:
    pairs = {"a": np.float32(0.5), "b": np.arange(3, dtype=np.int16), "c": (np.bool_(True), "x")}
    info = l3dali.info(l3dali.encode(IMAGE, metadata=pairs))
    assert info.metadata == {"a": 0.5, "b": [0, 1, 2], "c": [True, "x"]}


@pytest.mark.parametrize(
    ("metadata", "kind", "message"),
    [
        ([1], TypeError, "metadata must be a mapping, not list"),
        ({1: 2}, TypeError, "metadata: names must be strings, not 1"),
        ({"a": {None: 2}}, TypeError, "metadata: names must be strings, not None"),
        ({"a": b"bytes"}, TypeError, "metadata: bytes is not JSON"),
        ({"a": {1, 2}}, TypeError, "metadata: set is not JSON"),
        ({"a": float("nan")}, ValueError, "metadata: nan is not JSON"),
        ({"a": np.array([np.inf])}, ValueError, "metadata: inf is not JSON"),
        (json.loads('{"a":' * 201 + "0" + "}" * 201), ValueError, "metadata is nested too deep"),
        ({"a": "\ud800"}, ValueError, "metadata: a text cannot be written as UTF-8"),
        ({"a": "x" * 2**24}, ValueError, TOO_LONG),
        ({"a": "\u20ac" * 2**23}, ValueError, TOO_LONG),
        ({"x" * (2**24 + 1): 1}, ValueError, TOO_LONG),
        ({"a": np.broadcast_to(1, 2**40)}, ValueError, TOO_LONG),
    ],
)
def test_metadata_that_cannot_be_kept(metadata: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=f"^{message}"):
        l3dali.encode(IMAGE, metadata=metadata)


def test_metadata_that_holds_itself() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    with pytest.raises(ValueError, match="nested too deep, or contains itself"):
        l3dali.encode(IMAGE, metadata=loop)
    deep = json.loads('{"a":' * 200 + "0" + "}" * 200)
    assert load_metadata(dump_metadata(deep)) == deep


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b'{"a":\xff}', b"[1]", b"1", b'{"a":NaN}', b'{"a":-Infinity}',
        b"\xef\xbb\xbf{}", "{}".encode("utf-16"), b"[" * 100_000, b'{"a":' + b"1" * 5000 + b"}",
        b'{"a":[1e999]}', b'{"a":-1e999}', b'{"a":"\\ud800"}', b'{"\\udfff":1}',
        b'{"a":' + b"[" * 200 + b"]" * 200 + b"}", b'{"a":[' + b"1e15," * 2**20 + b"1]}",
    ],
)  # fmt: skip
def test_damaged_metadata_is_reported_when_it_is_read(data: bytes) -> None:
    l3dali.pillow.register()
    file = with_chunks(chunk(b"keyv", data))
    info = l3dali.info(file)
    assert info.metadata_json == data
    with pytest.raises(ValueError, match=r"^the metadata is damaged: "):
        _ = info.metadata
    assert l3dali.decode(file).shape == (8, 20)
    with pytest.warns(UserWarning, match="the metadata is damaged"):
        image = PIL_Image.open(io.BytesIO(file))
    assert "metadata" not in image.info


def test_large_metadata_is_not_read() -> None:
    data = b'{"a":"' + b"x" * (2**24 - 8) + b'"}'
    assert load_metadata(data)["a"] == "x" * (2**24 - 8)
    with pytest.raises(ValueError, match="has 16777217 bytes, more than 16777216"):
        load_metadata(data + b" ")
    assert MAX_METADATA_BYTES == 2**24


@settings(max_examples=50)
@given(st.binary(max_size=40) | st.text(max_size=40).map(lambda text: text.encode(errors="ignore")))
def test_any_bytes_are_pairs_or_damaged(data: bytes) -> None:
    try:
        pairs = load_metadata(data)
    except ValueError as caught:
        error = str(caught)
    else:
        error = ""
        assert load_metadata(dump_metadata(pairs)) == pairs
    assert not error or error.startswith("the metadata is damaged: ")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=8,
)


@settings(max_examples=30)
@given(st.dictionaries(st.text(st.characters(codec="utf-8")), JSON))
def test_any_json_comes_back(pairs: dict[str, Any]) -> None:
    assert load_metadata(dump_metadata(pairs)) == pairs


def test_what_is_kept_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("l3dali.arguments.MAX_KEPT_BYTES", 100)
    info = l3dali.info(l3dali.encode(IMAGE, icc=bytes(50), xmp=bytes(48), metadata={}))
    assert (len(info.icc or b""), len(info.xmp or b"")) == (50, 48)
    with pytest.raises(l3dali.L3Error, match=r"take 101 bytes; .* room for 100$") as caught:
        l3dali.encode(IMAGE, icc=bytes(50), xmp=bytes(49), metadata={})
    assert caught.value.status is l3dali.Status.INVALID_ARGUMENT


def test_what_is_kept_leaves_room_for_most_colours() -> None:
    """The largest chunks of the encoder's own: 64,896 colours of 56 bits, each 25 times."""
    colours = np.random.default_rng(1).integers(0, 1 << 14, (208, 312, 4), np.uint16)
    image = np.repeat(np.repeat(colours, 5, axis=0), 5, axis=1)
    data = l3dali.encode(image, effort=1)
    chunks_bytes = int.from_bytes(data[24:28], "little")
    assert chunks_bytes > 2**18
    assert chunks_bytes + MAX_KEPT_BYTES <= 2**28
    np.testing.assert_array_equal(l3dali.decode(data), image)


# Chunks of later versions.

OTHERS = chunk(b"zzz1", b"one") + chunk(b"0 aA", b"") + chunk(b"zzz1", b"again")


def later_file() -> bytes:
    """A file with chunks unknown to this version, between known ones."""
    split = [OTHERS[:12], OTHERS[12:20], OTHERS[20:]]
    return with_chunks(split[0], chunk(b"icc ", b"x"), split[1], split[2], chunk(b"xmp ", XMP))


def test_unknown_chunks_are_kept() -> None:
    info = l3dali.info(later_file())
    assert info.other_chunks == OTHERS
    assert chunks_of(OTHERS) == [("zzz1", 3), ("0 aA", 0), ("zzz1", 5)]
    again = l3dali.encode(IMAGE, other_chunks=info.other_chunks)
    assert l3dali.info(again).other_chunks == OTHERS


@pytest.mark.parametrize(
    "area",
    [
        OTHERS + b"zzz",
        OTHERS[:-4],
        b"zzz1" + b"\xff" * 4,
        chunk(b"zzz1", b"1")[:-1] + b"\1",
        chunk(b"NEED", b""),
        chunk(b"zz_1", b""),
        chunk(b"VTAB", b""),
        chunk(b"icc ", b""),
        OTHERS + chunk(b"keyv", b"{}"),
    ],
)
def test_other_chunks_are_validated(area: bytes) -> None:
    with pytest.raises(l3dali.L3Error, match="invalid argument"):
        l3dali.encode(IMAGE, other_chunks=area)


# Pillow.


def test_pillow_keeps_all_of_a_file() -> None:
    l3dali.pillow.register()
    file = l3dali.encode(IMAGE, xmp=XMP, metadata=PAIRS, other_chunks=OTHERS, icc=b"icc")
    image = PIL_Image.open(io.BytesIO(file))
    assert (image.info["xmp"], image.info["metadata"]) == (XMP, PAIRS)

    def saved(picture: PIL_Image.Image, **options: Any) -> codec.Info:
        buffer = io.BytesIO()
        picture.save(buffer, "L3", **options)
        return l3dali.info(buffer.getvalue())

    whole = saved(image)
    kept = (whole.icc, whole.xmp, whole.metadata, whole.other_chunks)
    assert kept == (b"icc", XMP, PAIRS, OTHERS)
    part = saved(image.crop((0, 0, 2, 2)))
    assert (part.xmp, part.metadata, part.other_chunks) == (XMP, None, b"")
    other = saved(image, xmp=b"", metadata={"a": 1}, other_chunks=b"")
    assert (other.xmp, other.metadata, other.other_chunks) == (None, {"a": 1}, b"")


# Image files.


def png_with(*chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG with more chunks behind its header."""
    png = write_picture(Picture(IMAGE), ".png")
    more = b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )
    return png[:33] + more + png[33:]


PNG_XMP = b"XML:com.adobe.xmp\0"


@pytest.mark.parametrize("suffix", [".png", ".tif", ".webp"])
def test_xmp_in_and_out(suffix: str) -> None:
    rgb = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    file = write_picture(Picture(rgb, xmp=XMP), suffix)
    with PIL_Image.open(io.BytesIO(file)) as image:  # independent of our readers
        assert image.info["xmp"] == XMP
    data = l3dali.transcode(file)
    assert l3dali.info(data).xmp == XMP
    assert read_picture(file).xmp == XMP


def test_xmp_of_jpeg() -> None:
    buffer = io.BytesIO()
    PIL_Image.fromarray(IMAGE).save(buffer, "JPEG", xmp=XMP)
    assert l3dali.info(l3dali.transcode(buffer.getvalue())).xmp == XMP


def test_xmp_of_png() -> None:
    def xmp_of(*bodies: bytes) -> bytes | None:
        return read_picture(png_with(*((b"iTXt", body) for body in bodies))).xmp

    title = b"Title\0\0\0\0\0a picture"
    assert xmp_of(PNG_XMP + b"\0\0\0\0" + XMP) == XMP
    assert xmp_of(title, PNG_XMP + b"\0\0en\0XMP\0" + XMP) == XMP
    assert xmp_of(PNG_XMP + b"\1\0\0\0" + zlib.compress(XMP)) == XMP
    assert xmp_of(title) is None
    packed = zlib.compress(XMP)
    for damaged in (
        b"", b"\0", b"\0\0", b"\0\0\0", b"\1\0\0\0", b"\1\0\0\0" + packed[:-3], b"\1\0\0\0" + XMP,
        b"\2\0\0\0" + XMP, b"\1\1\0\0" + packed,
    ):  # fmt: skip
        assert xmp_of(PNG_XMP + damaged) is None, damaged
    bomb = zlib.compress(bytes(2**24 + 1))
    with pytest.raises(ImageError, match="the XMP packet has more than 16 MiB"):
        xmp_of(PNG_XMP + b"\1\0\0\0" + bomb)


# TIFF. Written and read here by hand, apart from the library that l3dali uses.

TYPES = {  # number and struct's codes
    "BYTE": (1, "B"), "ASCII": (2, "s"), "SHORT": (3, "H"), "LONG": (4, "I"), "RATIONAL": (5, "2I"),
    "SBYTE": (6, "b"), "UNDEFINED": (7, "B"), "SSHORT": (8, "h"), "SLONG": (9, "i"),
    "SRATIONAL": (10, "2i"), "FLOAT": (11, "f"), "DOUBLE": (12, "d"),
}  # fmt: skip
Tag = tuple[int, int, bytes]  # type, count, little-endian values
GEO: dict[int, Tag] = {
    270: (2, 15, "ein Bild µ\0abc".encode()[:14] + b"\0"),
    282: (5, 1, struct.pack("<2I", 2999, 10)),
    283: (5, 1, struct.pack("<2I", 75, 1)),
    296: (3, 1, struct.pack("<H", 3)),
    33550: (12, 3, struct.pack("<3d", 10, 0.1 + 0.2, 0)),
    33922: (12, 6, struct.pack("<6d", 0, 0, 0, 440720.123456789, -3.75e6, 1e-300)),
    34264: (12, 16, struct.pack("<16d", *(1 / (i + 1) for i in range(16)))),
    34735: (3, 8, struct.pack("<8H", 1, 1, 0, 1, 1024, 0, 1, 1)),
    34736: (12, 2, struct.pack("<2d", 6378137, 298.257223563)),
    34737: (2, 8, b"WGS 84|\0"),
    42112: (2, 31, b"<GDALMetadata>\xc2\xb5</GDALMetadata>"[:30] + b"\0"),
    42113: (2, 6, b"-9999\0"),
    50844: (12, 92, struct.pack("<92d", *(i / 3 for i in range(92)))),
}


def tiff_file(tags: dict[int, Tag], order: str = "<", big: bool = False, **own: int) -> bytes:
    """A TIFF of IMAGE with these tags."""
    fields = {"photometric": 1, "bits": 8} | own
    basic = {
        256: 3, 257: 2, 258: fields["bits"], 259: 1, 262: fields["photometric"], 273: 16, 277: 1,
        278: 2, 279: 6,
    }  # fmt: skip
    values = {code: (4, 1, struct.pack("<I", value)) for code, value in basic.items()}
    values = dict(sorted((values | tags).items()))
    words = "QQ20" if big else "HI12"
    inline = 8 if big else 4
    begin = 16 + 8  # behind header and pixels
    at = begin + struct.calcsize(order + words[0]) + int(words[2:]) * len(values) + inline
    entries, rest = b"", b""
    for code, (kind, count, data) in values.items():
        letters = next(letters for number, letters in TYPES.values() if number == kind)
        size = struct.calcsize("<" + letters[-1])
        data = swap(data, size) if order == ">" else data
        entries += struct.pack(order + "HH" + words[1], code, kind, count)
        if len(data) <= inline:
            entries += data.ljust(inline, b"\0")
        else:
            entries += struct.pack(order + words[1], at + len(rest))
            rest += data + bytes(len(data) % 2)
    mark = b"II" if order == "<" else b"MM"
    header = struct.pack(order + ("HHHQ" if big else "HI"), *((43, 8, 0) if big else (42,)), begin)
    head = (mark + header).ljust(16, b"\0") + IMAGE.tobytes() + b"\0\0"
    return (
        head
        + struct.pack(order + words[0], len(values))
        + entries
        + struct.pack(order + words[1], 0)
        + rest
    )


def swap(data: bytes, size: int) -> bytes:
    return b"".join(data[i : i + size][::-1] for i in range(0, len(data), size))


def tags_of(tiff: bytes) -> dict[int, Tag]:
    """The tags of the first directory of a little-endian TIFF."""
    assert tiff[:4] == b"II*\0"
    (at,) = struct.unpack_from("<I", tiff, 4)
    (entries,) = struct.unpack_from("<H", tiff, at)
    tags = {}
    for i in range(entries):
        place = at + 2 + 12 * i
        code, kind, count = struct.unpack_from("<HHI", tiff, place)
        letters = next(letters for number, letters in TYPES.values() if number == kind)
        size = count * struct.calcsize("<" + letters)
        begin = place + 8 if size <= 4 else struct.unpack_from("<I", tiff, place + 8)[0]
        tags[code] = kind, count, tiff[begin : begin + size]
    return tags


def through(tiff: bytes, **options: Any) -> dict[int, Tag]:
    """The kept tags of a TIFF that was encoded and decoded."""
    data = l3dali.transcode(tiff, **options)
    info = l3dali.info(data)
    picture = Picture(l3dali.decode(data), metadata=info.metadata, xmp=info.xmp)
    tags = tags_of(write_picture(picture, ".tif"))
    return {code: tag for code, tag in tags.items() if code in KEPT_TIFF_TAGS | {700}}


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("order", ["<", ">"])
def test_tiff_tags_in_and_out(order: str, big: bool) -> None:
    assert GEO.keys() == KEPT_TIFF_TAGS
    xmp = {700: (1, len(XMP), XMP)}
    assert through(tiff_file(GEO | xmp, order, big)) == GEO | xmp


def test_tiff_tags_have_names_and_numbers() -> None:
    metadata = l3dali.info(l3dali.transcode(tiff_file(GEO))).metadata
    assert metadata is not None
    tiff = metadata["tiff"]
    assert tiff["33550"] == {"type": "DOUBLE", "value": [10.0, 0.1 + 0.2, 0.0]}
    assert tiff["282"] == {"type": "RATIONAL", "value": [2999, 10]}
    assert tiff["42113"] == {"type": "ASCII", "value": "-9999"}


@st.composite
def tiff_values(draw: st.DrawFn) -> Tag:
    number, letters = draw(st.sampled_from(list(TYPES.values())))
    count = draw(st.integers(1, 5))
    size = count * struct.calcsize("<" + letters)
    data = draw(st.binary(min_size=size, max_size=size))
    if number == 2:  # What lacks its zero byte gets one; the description may have one alone.
        data = data.replace(b"\0", b"\1")[:-1] + b"\0"
    return number, count, data


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(sorted(KEPT_TIFF_TAGS - {282, 283, 296})), tiff_values()))
def test_any_values_of_any_type_come_back(tags: dict[int, Tag]) -> None:
    found = through(tiff_file(tags))
    assert {code: found.get(code) for code in tags} == tags


def test_a_resolution_without_a_unit_is_one_of_inches() -> None:
    """So says TIFF 6.0; it became one without a unit."""
    sides = {code: (5, 1, struct.pack("<2I", 300, 1)) for code in (282, 283)}
    assert through(tiff_file(sides)) == sides | {296: (3, 1, struct.pack("<H", 2))}


def test_tags_without_content_are_not_kept() -> None:
    usual = {
        **{code: (5, 1, struct.pack("<2I", 1, 1)) for code in (282, 283)},
        296: (3, 1, struct.pack("<H", 1)),
    }
    note = b'{"shape": [2, 3]}\0'
    for tags in (usual, {270: (2, len(note), note)}):
        assert l3dali.info(l3dali.transcode(tiff_file(tags))).metadata is None


@pytest.mark.parametrize("place", [10, 10**6], ids=["within pixels", "behind the end"])
@pytest.mark.parametrize("tag", [305, 306, 330, 34665, 34675, 34737, 34853])
def test_damaged_tags_are_left_out(tag: int, place: int) -> None:
    """They cost the image. Tags: texts, SubIFDs, EXIF, ICC, GeoTIFF's text, GPS."""
    kind = {330: 4, 34665: 4, 34853: 4, 34675: 7}.get(tag, 2)
    value = struct.pack("<I", place) if kind == 4 else b"a text, or a profile"
    file = bytearray(tiff_file({tag: (kind, 1 if kind == 4 else 20, value)}))
    if kind != 4:
        at = file.index(struct.pack("<HH", tag, kind))
        struct.pack_into("<I", file, at + 8, place if place > len(file) else len(file) - 3)
    picture = read_picture(bytes(file))
    assert np.array_equal(picture.pixels, IMAGE)
    assert (picture.exif, picture.icc, picture.metadata) == (None, None, None)


def test_large_tags_are_refused() -> None:
    text = b"x" * 2**24 + b"\0"
    with pytest.raises(ImageError, match="TIFF tags have more than 16 MiB"):
        l3dali.transcode(tiff_file({270: (2, len(text), text)}))
    half = (2, 2**23 + 1, b"x" * 2**23 + b"\0")
    with pytest.raises(ImageError, match="TIFF tags have more than 16 MiB"):
        l3dali.transcode(tiff_file({270: half, 42112: half}))
    opaque = (7, 2**23, bytes(2**23))
    with pytest.raises(ImageError, match=f"^{TOO_LONG}"):
        l3dali.transcode(tiff_file({270: opaque}))


@pytest.mark.parametrize("options", [{"max_side": 2}, {"orient": True}])
def test_geometry_of_changed_pixels_is_dropped(options: dict[str, Any]) -> None:
    turned = {274: (3, 1, struct.pack("<H", 6))}
    xmp = b"<r tiff:Orientation=\"6\" a='1'><tiff:Orientation>6</tiff:Orientation></r>"
    packet = {700: (1, len(xmp), xmp)}
    found = through(tiff_file(GEO | turned | packet), **options)
    dropped = {33550, 33922, 34264, 50844}
    assert found.keys() == (GEO.keys() | {700}) - dropped
    usual = (struct.pack("<2I", 1, 1), struct.pack("<2I", 1, 1), struct.pack("<H", 1))
    assert tuple(found[code][2] for code in (282, 283, 296)) == usual
    is_upright = found[700][2] == b"<r a='1'></r>"
    assert is_upright == ("orient" in options)
    unchanged = through(tiff_file(GEO | packet), **(options | {"max_side": 9}))
    assert unchanged == GEO | packet


@pytest.mark.parametrize("own", [{"photometric": 0}, {"photometric": 0, "bits": 4}, {"bits": 4}])
def test_no_data_of_samples_that_have_changed_is_dropped(own: dict[str, Any]) -> None:
    assert 42113 not in through(tiff_file(GEO, **own))
    assert 42113 in through(tiff_file(GEO, bits=7))  # which stay as they are


def test_damaged_tags_of_metadata_are_not_written() -> None:
    for tag in (
        5, {}, {"type": "DOUBLE"}, {"type": "HALF", "value": [1]}, {"type": "SHORT", "value": [-1]},
        {"type": "SHORT", "value": ["1"]}, {"type": "SHORT", "value": 5},
        {"type": [], "value": [1]},
        {"type": "SHORT", "hex": "00"}, {"type": "SHORT", "hex": "0"}, {"type": "SHORT", "hex": 1},
        {"type": "SHORT", "value": []}, {"type": "ASCII", "value": 5},
        {"type": "RATIONAL", "value": [1]}, {"type": "FLOAT", "value": [1e99]},
    ):  # fmt: skip
        picture = Picture(IMAGE, metadata={"tiff": {"33550": tag}})
        with pytest.raises(ImageError, match="the metadata is damaged: TIFF tag 33550: "):
            write_picture(picture, ".tif")
    with pytest.raises(ImageError, match="the metadata is damaged: tiff is not an object"):
        write_picture(Picture(IMAGE, metadata={"tiff": [1]}), ".tif")
    unknown = {"tiff": {"256": {"type": "SHORT", "value": [9]}, "x": 1}}
    assert write_picture(Picture(IMAGE, metadata=unknown), ".tif") == write_picture(
        Picture(IMAGE), ".tif"
    )


# The command.


def test_command_keeps_tags(tmp_path: Path) -> None:
    source = tmp_path / "a.tif"
    source.write_bytes(tiff_file(GEO | {700: (1, len(XMP), XMP)}))
    command("encode", source, "--verify")
    command("decode", tmp_path / "a.l3", "-o", tmp_path / "b.tif")
    tags = tags_of((tmp_path / "b.tif").read_bytes())
    assert {code: tags[code] for code in GEO} == GEO
    assert tags[700] == (1, len(XMP), XMP)
    command("decode", tmp_path / "a.l3", "-o", tmp_path / "b.png")
    assert read_picture((tmp_path / "b.png").read_bytes()).xmp == XMP
    converted = tmp_path / "converted"
    (tmp_path / "set").mkdir()
    source.rename(tmp_path / "set" / "a.tif")
    command("convert", tmp_path / "set", converted)
    encoded = l3dali.info((tmp_path / "a.l3").read_bytes()).metadata or {}
    expected = encoded | {"source_suffix": "tif"}  # for `l3 convert --to source`
    assert l3dali.info((converted / "a.l3").read_bytes()).metadata == expected


def test_command_shows_what_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.l3"
    l3dali.imwrite(path, IMAGE, xmp=XMP, metadata=PAIRS | {"long": "x" * 200}, other_chunks=OTHERS)
    text = command("info", path)[0]
    assert f"XMP of {len(XMP)} bytes" in text
    assert "chunk 'zzz1' of 5 bytes" in text
    assert "  spacing: [0.7, 0.30000000000000004]\n" in text
    assert max(map(len, text.splitlines())) < 300
    (entry,) = json.loads(command("info", "--json", path)[0])
    assert entry["metadata"] == PAIRS | {"long": "x" * 200}
    assert entry["xmp_bytes"] == len(XMP)
    assert [each["type"] for each in entry["other_chunks"]] == ["zzz1", "0 aA", "zzz1"]


def test_json_of_deep_lists_is_not_indented(tmp_path: Path) -> None:
    """Each level was, of untrusted lists: 16 MiB of them took 8.5 GB."""
    pairs = {"deep": [json.loads("[" * 190 + "]" * 190)] * 200}
    path = tmp_path / "a.l3"
    l3dali.imwrite(path, IMAGE, metadata=pairs)
    for arguments in ([path], [tmp_path]):
        text = command("info", "--json", *arguments)[0]
        assert json.loads(text)[0]["metadata"] == pairs
        assert len(text) < 2 * len(json.dumps(pairs))


def test_command_with_damaged_metadata(tmp_path: Path) -> None:
    path = tmp_path / "a.l3"
    path.write_bytes(with_chunks(chunk(b"keyv", b"{"), chunk(b"xmp ", b"\xff\0")))
    assert "the metadata is damaged: " in command("info", path)[0]
    (entry,) = json.loads(command("info", "--json", path)[0])
    assert entry["metadata"] is None
    assert entry["metadata_error"].startswith("the metadata is damaged: ")
    _, told = command("decode", path, "-o", tmp_path / "a.tif")
    assert "l3: damaged metadata was dropped: 1 image\n" in told
    assert tags_of((tmp_path / "a.tif").read_bytes())[700] == (1, 2, b"\xff\0")


# Some channels of many.


def test_pairs_of_some_channels() -> None:
    """Names follow their channels; GDAL's metadata and programs' descriptions are left out."""
    pairs = {"band_names": ["a", "b", "c", "d", "e"], "unit": "K", "floats": "float32"}
    assert of_channels(pairs, [4, 0], 5) == {"band_names": ["e", "a"], "unit": "K"}
    assert of_channels(pairs, [4, 0], 6) == {"unit": "K"}
    assert of_channels({"band_names": 3}, [0], 5) is None
    assert of_channels(None, [0], 5) is None
    for text, is_kept in (
        ("Elbe", True),
        ("ImageJ=1.54\nchannels=7\n", False),
        (" <?xml version='1.0'?><OME/>", False),
        ('{"axes": 1}', False),
    ):
        texts = {270: text, 42112: "<GDALMetadata/>", 42113: "7"}
        tags = {code: TiffTag("ASCII", each.encode() + b"\0") for code, each in texts.items()}
        kept = tiff_of_metadata(of_channels(metadata_of_tiff(tags), [0], 5))
        assert kept.keys() == ({270, 42113} if is_kept else {42113})


@pytest.mark.parametrize(
    ("count", "channels", "photometric", "extra"),
    [
        (7, [3], 1, ()),
        (7, [3, 4], 1, (0,)),
        (7, [3, 2, 1], 2, ()),
        (7, [3, 2, 1, 0], 1, (0, 0, 0)),
        (7, [4, 3, 2, 1, 0], 1, (0, 0, 0, 0)),
        (4, [0, 1, 2, 3], 2, (2,)),
        (4, [3, 0, 1, 2], 1, (0, 0, 0)),
        (4, [0, 3], 1, (2,)),
        (3, [0, 1], 1, (0,)),
        (2, [0, 1], 1, (2,)),
    ],
)
def test_tags_that_count_channels(
    count: int, channels: list[int], photometric: int, extra: tuple[int, ...]
) -> None:
    image = np.arange(40 * 30 * count).reshape(40, 30, count).astype(np.int16)
    data = l3dali.encode(image)
    picture = decoded_picture(
        l3dali.decode(data, channels=channels), l3dali.info(data), channels=channels
    )
    with tifffile.TiffFile(io.BytesIO(write_picture(picture, ".tif"))) as file:
        page = file.pages[0]
        assert (page.photometric, tuple(page.extrasamples)) == (photometric, extra)
        assert (page.samplesperpixel, page.dtype) == (len(channels), np.int16)
        assert np.array_equal(page.asarray(), image[..., channels].squeeze())


@pytest.mark.parametrize("is_tagged", [True, False])
@pytest.mark.parametrize(
    ("photometric", "kinds"),
    [
        ("minisblack", (0,)),
        ("minisblack", (0, 0)),
        ("minisblack", (0, 0, 0)),
        ("minisblack", (2, 0, 0)),  # as GDAL writes four bands with ALPHA=YES
        ("minisblack", (0, 2)),
        ("minisblack", (2, 0, 0, 0)),
        ("rgb", (0,)),
        ("rgb", (0, 0)),
        ("rgb", (2, 0)),
    ],
)
@pytest.mark.parametrize("dtype", ["uint8", "int16"])
def test_bands_beside_gray_and_colours(
    dtype: str, photometric: str, kinds: tuple[int, ...], is_tagged: bool
) -> None:
    """As of radar, and of infrared beside RGB: no band weighs the others, none becomes alpha."""
    count = len(kinds) + (3 if photometric == "rgb" else 1)
    image = np.random.default_rng(0).integers(60, 120, (40, 30, count)).astype(dtype)
    image[:, 15:, -1] = 0
    file = io.BytesIO()
    extra = ["unassalpha" if kind else "unspecified" for kind in kinds]
    tifffile.imwrite(
        file, image, photometric=photometric, extrasamples=extra, planarconfig="contig"
    )
    source = file.getvalue()
    if not is_tagged:  # There is no alpha then.
        source = source.replace(struct.pack("<HH", 338, 3), struct.pack("<HH", 65534, 3))
        kinds = (0,) * len(kinds)
    data = l3dali.transcode(source)
    back = write_picture(decoded_picture(l3dali.decode(data), l3dali.info(data)), ".tif")
    with tifffile.TiffFile(io.BytesIO(back)) as tiff:
        page = tiff.pages[0]
        assert (page.photometric.name.lower(), page.extrasamples) == (photometric, kinds)
        np.testing.assert_array_equal(page.asarray(), image)
    small = l3dali.decode(l3dali.transcode(source, max_side=10))
    for channel in range(count):
        alone = shrink(image[:, :, channel], 10)
        assert np.abs(small[..., channel] - alone.astype(np.int32)).max() <= 1  # Pillow's rounding


def test_a_resolution_of_another_length_is_damaged() -> None:
    """Pillow refused the PNG."""
    with pytest.raises(ValueError, match="a PNG chunk b'pHYs'"):
        png_of_metadata({"png": [["pHYs", "000000"]]})
