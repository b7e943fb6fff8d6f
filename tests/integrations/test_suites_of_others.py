"""Checks that other packages ship for codecs like ours, on L3's.

numcodecs ships those of its own codecs, Zarr how to draw chunks and selections. The tests of
Pillow, imageio, scikit-image, webdataset and DALI are in no wheel of theirs.
"""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import l3dali.zarr
from l3dali.numcodecs import L3

common = pytest.importorskip("numcodecs.tests.common", reason="this numcodecs ships no tests")
strategies = pytest.importorskip("zarr.testing.strategies", reason="this Zarr ships no strategies")

KINDS = ("uint8", "uint16", "int8", "int16")
CODECS = [L3(), L3("packed"), L3("stored"), L3(effort=7)]


def arrays(kind: str) -> list[Any]:
    steps = np.arange(24 * 30 * 4).reshape(24, 30, 4).astype(kind)
    noise = np.random.default_rng(1).integers(0, 100, (20, 30, 3)).astype(kind)
    return [
        steps,
        steps[..., 0].copy(),
        np.asfortranarray(noise),
        noise,
        steps.reshape(6, 4, 30, 4),
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_numcodecs_round_trips(codec: L3, kind: str) -> None:
    for array in arrays(kind):
        common.check_encode_decode_array(array, codec)


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_numcodecs_config_and_repr(codec: L3, monkeypatch: pytest.MonkeyPatch) -> None:
    common.check_config(codec)
    monkeypatch.setattr(common, "L3", L3, raising=False)
    common.check_repr(repr(codec))


@given(data=st.data())
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_zarr_selections(data: Any) -> None:
    kind = np.dtype(data.draw(st.sampled_from(KINDS)))
    shapes = hypothesis.extra.numpy.array_shapes(min_dims=2, max_dims=4, min_side=1, max_side=9)
    array = data.draw(strategies.numpy_arrays(shapes=shapes, dtype=kind))
    chunks = data.draw(strategies.chunk_shapes(shape=array.shape))
    shards = data.draw(st.none() | strategies.shard_shapes(shape=array.shape, chunk_shape=chunks))
    store = zarr.create_array(
        {},
        shape=array.shape,
        chunks=chunks,
        shards=shards,
        dtype=kind,
        serializer=l3dali.zarr.L3(coding="packed"),
        compressors=None,
    )
    store[...] = array
    selection = data.draw(strategies.basic_indices(shape=array.shape))
    assert np.array_equal(store[selection], array[selection])
    ours, numpys = data.draw(strategies.orthogonal_indices(shape=array.shape))
    assert np.array_equal(store.oindex[ours], array[numpys])
