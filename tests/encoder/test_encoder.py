"""What the encoder chooses, and that it chooses alike every time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import skimage.data

import l3dali


def _photo() -> npt.NDArray[np.uint8]:
    photograph: npt.NDArray[np.uint8] = skimage.data.astronaut()[100:400, :420]
    return photograph


def test_value_table_is_left_out_where_it_costs_more_than_it_saves() -> None:
    noise = np.random.default_rng(1).integers(0, 1 << 16, (20, 20), dtype=np.uint16)
    assert l3dali.info(l3dali.encode(noise, coding="packed")).value_count == 0


def test_value_table_serves_few_values() -> None:
    spread = np.random.default_rng(1).integers(0, 9, (200, 200)) * 7001
    encoded = l3dali.encode(spread.astype(np.uint16), coding="packed")
    assert l3dali.info(encoded).value_count == 9
    np.testing.assert_array_equal(l3dali.decode(encoded), spread)


@pytest.mark.parametrize(("side", "long_side"), [(3, 256), (15, 256), (16, 128), (31, 128)])
def test_thin_images_have_long_tiles(side: int, long_side: int) -> None:
    tall = np.ascontiguousarray(_photo()[:300, :side])
    wide = np.ascontiguousarray(_photo()[:side, :300])
    assert l3dali.info(l3dali.encode(tall)).tile_height == long_side
    assert l3dali.info(l3dali.encode(wide)).tile_width == long_side


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ((1100, 1000), 64),
        ((512, 768, 3), 32),
        ((375, 500, 3), 32),
        ((375, 500, 8), 64),  # of noise: eight groups
        ((300, 100, 3), 64),  # narrow
    ],
)
def test_packed_tiles_are_low_where_there_would_be_few(shape: tuple[int, ...], rows: int) -> None:
    image = np.random.default_rng(1).integers(0, 100, shape, dtype=np.uint8)
    assert l3dali.info(l3dali.encode(image, coding="packed")).tile_height == rows
    labels = l3dali.encode(image, coding="packed", labels=True)
    assert l3dali.info(labels).tile_height == 64
    assert l3dali.info(l3dali.encode(image, coding="packed", tile=(128, 256))).tile_height == 128


def test_packed_tiles_of_small_files_are_not_low() -> None:
    image = np.zeros((375, 500), np.uint8)
    image[::2, 100:130] = 1
    encoded = l3dali.encode(image, coding="packed")
    assert l3dali.info(encoded).tile_height == 64
    np.testing.assert_array_equal(l3dali.decode(encoded), image)


@pytest.mark.parametrize(
    ("shape", "dtype", "tile"),
    [
        ((300, 1000, 3), np.uint8, (64, 256)),
        ((300, 1000), np.uint8, (128, 256)),
        ((300, 1000, 4), np.uint16, (16, 256)),
        ((5, 1000), np.uint8, (64, 1024)),  # in tiles of 5 x 256 headers would cost more
        ((1000, 5), np.uint8, (8192, 32)),
        ((1, 1), np.uint8, (32768, 32)),
    ],
)
def test_stored_tiles_hold_raw_samples(
    shape: tuple[int, ...], dtype: type, tile: tuple[int, int]
) -> None:
    """Flat images and few values too: nothing is to be done but to copy."""
    image: npt.NDArray[np.generic] = np.full(shape, 8, dtype)
    encoded = l3dali.encode(image, coding="stored")
    info = l3dali.info(encoded)
    others = dict.fromkeys(("constant", "packed", "rans", "match"), 0)
    assert info.codings == {**others, "stored": info.tile_count}
    assert (info.tile_height, info.tile_width) == tile
    assert (info.used_bits, info.shift, info.value_count) == (8 * image.itemsize, 0, 0)
    assert image.nbytes < len(encoded) <= 1.001 * image.nbytes + 128
    np.testing.assert_array_equal(l3dali.decode(encoded), image)


def test_stored_tiles_have_the_size_that_was_asked_for() -> None:
    info = l3dali.info(l3dali.encode(_photo(), coding="stored", tile=(8, 32)))
    assert (info.tile_height, info.tile_width) == (8, 32)
    assert info.codings is not None
    assert info.codings["stored"] == info.tile_count


@pytest.mark.parametrize("effort", [1, 5, 7])
def test_flat_tiles_are_match_tiles_beside_others(effort: int) -> None:
    """Of 512x512 pixels one tile is a drawing; the others are noise that rans codes."""
    rng = np.random.default_rng(3)
    image = rng.normal(90, 9, (512, 512, 3)).astype(np.uint8)
    cells = rng.integers(0, 9, (32, 32))
    colors = rng.integers(0, 256, (9, 3)).astype(np.uint8)
    image[:256, 256:] = colors[np.kron(cells, np.ones((8, 8), np.int64))]
    encoded = l3dali.encode(image, effort=effort)
    codings = l3dali.info(encoded).codings
    assert codings is not None
    assert (codings["match"], codings["rans"]) == (1, 3)
    np.testing.assert_array_equal(l3dali.decode(encoded), image)

    drawing = l3dali.encode(image[:256, 256:], effort=effort)
    assert l3dali.info(drawing).codings == {**dict.fromkeys(codings, 0), "match": 1}
    assert b"RANS" not in drawing[:200]
    np.testing.assert_array_equal(l3dali.decode(drawing), image[:256, 256:])


def test_effort_1_tries_no_speckled_tiles_in_photographs() -> None:
    """Pieces of these have a fifth of their pixels unlike all neighbours, and seldom pay."""
    rng = np.random.default_rng(3)
    image = rng.normal(90, 9, (512, 512, 3)).astype(np.uint8)
    colors = rng.integers(0, 256, (9, 3)).astype(np.uint8)
    image[:256, 256:] = colors[rng.integers(0, 9, (256, 256)) * (rng.random((256, 256)) < 0.2)]
    for effort, tiles in ((1, 0), (5, 1)):
        encoded = l3dali.encode(image, effort=effort)
        codings = l3dali.info(encoded).codings
        assert codings is not None
        assert codings["match"] == tiles
        np.testing.assert_array_equal(l3dali.decode(encoded), image)


def test_more_effort_is_not_larger() -> None:
    sizes = [len(l3dali.encode(_photo(), effort=effort)) for effort in (1, 5, 6, 7, 8, 9)]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("efforts", [(2, 3), (4, 5)])
def test_efforts_that_give_the_same_bytes(efforts: tuple[int, ...]) -> None:
    assert len({l3dali.encode(_photo(), effort=effort) for effort in efforts}) == 1


@pytest.mark.parametrize(
    ("shape", "tile"), [((300, 420, 3), None), ((300, 128, 3), None), ((300, 420, 3), (128, 128))]
)
def test_efforts_that_search_have_wide_tiles(
    shape: tuple[int, int, int], tile: tuple[int, int] | None
) -> None:
    image = np.ascontiguousarray(_photo()[: shape[0], : shape[1]])
    info = l3dali.info(l3dali.encode(image, effort=7, tile=tile))
    wide = tile is None and shape[1] > 128
    assert (info.tile_height, info.tile_width) == (128, 256 if wide else 128)
    assert l3dali.info(l3dali.encode(image, effort=6)).tile_width == 128


def test_rans_is_smaller_than_packed_and_the_default() -> None:
    image = _photo()
    rans = l3dali.encode(image, coding="rans")
    assert len(rans) < len(l3dali.encode(image, coding="packed"))
    assert l3dali.encode(image) == rans
