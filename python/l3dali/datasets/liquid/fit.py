"""Costs as base + per_byte * bytes + per_pixel * pixels, fitted to what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from l3dali.datasets.convert.images import SOURCE
from l3dali.datasets.liquid.profile import Fits, Linear, by_group
from l3dali.errors import needs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from l3dali.datasets.liquid.profile import Sample

_ROUNDS = 4
_SPREAD = 1.02  # of sizes, below which all images are the same to a fit


def fit_linear(
    sizes: Sequence[float],
    pixels: Sequence[float],
    values: Sequence[float],
    weights: Sequence[float] | None = None,
) -> Linear:
    """Fits values to bytes and pixels, with no coefficient below 0.

    Relative errors count, so that small images do: least squares with each image divided by the
    prediction of the round before. (Divided by its own value, predictions would be too low.) The
    sum of the predictions, with these `weights`, is that of the values.

    Raises:
        UsageError: scipy is missing.
    """
    try:
        from scipy.optimize import nnls
    except ImportError:
        raise needs("scipy", "a profile") from None
    table = np.array([sizes, pixels, values], np.float64)
    means = table.mean(axis=1)
    if means[2] == 0:
        return Linear()
    weigh = np.asarray(weights or [1.0] * len(sizes))
    sums = table @ weigh
    # Without variation all cost is assigned to pixels, else to bytes.
    size_varies, area_varies = (row.max() > _SPREAD * row.min() for row in table[:2])
    if not (size_varies or area_varies):
        bytes_, area, value = sums.tolist()
        return Linear(per_pixel=value / area) if area else Linear(per_byte=value / bytes_)
    scale = np.array([1.0, means[0], means[1] or 1.0])
    columns = np.stack([np.ones(len(sizes)), *table[:2]]) / scale[:, None]
    if not area_varies:
        columns[2] = 0.0  # the base stands for it
    expected = np.maximum(table[2], means[2] * 1e-6)
    found = np.zeros(3)
    for _ in range(_ROUNDS):
        found = nnls((columns / expected).T, table[2] / expected)[0]
        expected = np.maximum(found @ columns, means[2] * 1e-3)
    found *= sums[2] / (found @ columns @ weigh)
    base, per_byte, per_pixel = (found / scale).tolist()
    return Linear(base, per_byte, per_pixel)


def fit_groups(samples: Iterable[Sample]) -> dict[str, Fits]:
    """The costs of each group of the samples."""
    return {name: _fit_group(each) for name, each in by_group(samples).items()}


def _fit_group(samples: Sequence[Sample]) -> Fits:
    weights = [sample.weight for sample in samples]
    pixels = [sample.pixels for sample in samples]
    source_bytes = [sample.source_bytes for sample in samples]

    def seconds(of: Sequence[Mapping[str, float]]) -> dict[str, Linear]:
        found = {}
        for key in _common(of):
            sizes = [sample.sizes[key.partition("@")[0]] for sample in samples]
            found[key] = fit_linear(sizes, pixels, [each[key] for each in of], weights)
        return found

    sizes = [sample.sizes for sample in samples]
    return Fits(
        images=max(1, round(sum(weights))),
        source_bytes=round(sum(w * s for w, s in zip(weights, source_bytes, strict=True))),
        sizes={
            name: Linear(per_byte=1.0)
            if name == SOURCE
            else fit_linear(source_bytes, pixels, [each[name] for each in sizes], weights)
            for name in _common(sizes)
        },
        cpu_seconds=seconds([sample.cpu_seconds for sample in samples]),
        gpu_seconds=seconds([sample.gpu_seconds for sample in samples]),
    )


def _common(of: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys of all; a format that an image of a group cannot have is no candidate."""
    return [key for key in of[0] if all(key in each for each in of)]
