"""Costs as base + per_byte * bytes + per_pixel * pixels, fitted to what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from l3dali.datasets.convert.images import SOURCE
from l3dali.datasets.liquid.profile import Fits, Linear
from l3dali.errors import needs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from l3dali.datasets.liquid.profile import Sample

    Array = npt.NDArray[np.float64]

_ROUNDS = 4
_SPREAD = 1.02  # of sizes, below which all images are the same to a fit


def fit_linear(sizes: Sequence[float], pixels: Sequence[float], values: Sequence[float]) -> Linear:
    """Fits values to bytes and pixels, with no coefficient below 0.

    Relative errors count, so that small images do: least squares with each image divided by the
    prediction of the round before. (Divided by its own value, predictions would be too low.)

    Raises:
        UsageError: scipy is missing.
    """
    table = np.array([sizes, pixels, values], np.float64)
    try:
        from scipy.optimize import nnls
    except ImportError:
        raise needs("scipy", "a profile") from None
    means = table.mean(axis=1)
    if means[2] == 0:
        return Linear()
    columns = np.stack([np.ones_like(table[0]), table[0], table[1]])
    # Without variation all cost is assigned to pixels, else to bytes.
    varies = [float(row.max()) > _SPREAD * float(row.min()) for row in table[:2]]
    if not any(varies):
        return (
            Linear(per_pixel=means[2] / means[1])
            if means[1]
            else Linear(per_byte=means[2] / means[0])
        )
    scale = np.array([1.0, means[0], means[1] or 1.0])
    columns = columns / scale[:, None]
    if not varies[1]:
        columns[2] = 0.0  # the base stands for it
    expected = np.maximum(table[2], means[2] * 1e-6)
    found = np.zeros(3)
    for _ in range(_ROUNDS):
        found = nnls((columns / expected).T, table[2] / expected)[0]
        expected = np.maximum(found @ columns, means[2] * 1e-3)
    base, per_byte, per_pixel = (found / scale).tolist()
    return Linear(base, per_byte, per_pixel)


def fit_groups(samples: Sequence[Sample]) -> dict[str, Fits]:
    """The costs of each group of the samples."""
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.group, []).append(sample)
    return {name: _fit_group(each) for name, each in sorted(groups.items())}


def _fit_group(samples: Sequence[Sample]) -> Fits:
    weights = [sample.weight for sample in samples]
    pixels = [sample.pixels for sample in samples]
    source_bytes = [sample.source_bytes for sample in samples]

    def costs(of: Sequence[Mapping[str, float]]) -> dict[str, Linear]:
        return {
            key: fit_linear(
                [s.sizes[key.partition("@")[0]] for s in samples], pixels, [c[key] for c in of]
            )
            for key in _common(of)
        }

    sizes = [sample.sizes for sample in samples]
    return Fits(
        images=max(1, round(sum(weights))),
        source_bytes=round(sum(w * s for w, s in zip(weights, source_bytes, strict=True))),
        sizes={
            name: Linear(per_byte=1.0)
            if name == SOURCE
            else fit_linear(source_bytes, pixels, [each[name] for each in sizes])
            for name in _common(sizes)
        },
        cpu_seconds=costs([sample.cpu_seconds for sample in samples]),
        gpu_seconds=costs([sample.gpu_seconds for sample in samples]),
    )


def _common(of: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys of all; a format that an image of a group cannot have is no candidate."""
    return [key for key in of[0] if all(key in each for each in of)]
