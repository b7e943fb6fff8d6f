"""Draws what a plan would be on other disks and with other cores."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from l3dali.datasets.liquid.model import solve
from l3dali.datasets.liquid.plan import make_model
from l3dali.errors import needs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from l3dali.datasets.liquid.model import Limits
    from l3dali.datasets.liquid.plan import Plan
    from l3dali.datasets.liquid.profile import Profile

_POINTS = 17
_RANGE = 16.0  # times less and more than the host has
_DEFAULT_DISK = 500e6  # the middle, where the host has no limit
_TITLES = {"disk": ("disk, MB/s", 1e6), "cores": ("cores", 1.0)}


def draw_plan(profile: Profile, plan: Plan, limits: Limits, kind: str) -> bytes:
    """Rates of the best mix and of single formats, and shares, over disk bandwidth and cores.

    Args:
        profile: of the data set.
        plan: says which formats may be chosen.
        limits: of the host in the middle.
        kind: `png` or `svg`.

    Returns:
        The file.

    Raises:
        UsageError: matplotlib is missing.
    """
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
    except ImportError:
        raise needs("matplotlib", "--plot") from None
    with style.context("default"):  # whatever a matplotlibrc of the current folder says
        return _draw(Figure(figsize=(11, 7), layout="constrained"), profile, plan, limits, kind)


def _draw(figure: Figure, profile: Profile, plan: Plan, limits: Limits, kind: str) -> bytes:
    model = make_model(profile, plan.candidates, limits.host)
    limits = replace(limits, target=None, training=None, disk_space=None)
    axes = figure.subplots(2, 2, sharex="col", sharey="row")
    for column, (name, (title, unit)) in enumerate(_TITLES.items()):
        middle = getattr(limits.host, name) or _DEFAULT_DISK
        values = np.geomspace(middle / _RANGE, middle * _RANGE, _POINTS)
        rates: dict[str, list[float]] = {}
        shares: dict[str, list[float]] = {}
        for value in values.tolist():
            there = replace(limits, host=replace(limits.host, **{name: value}))
            best = solve(model.costs, there)
            rates.setdefault("best mix", []).append(best.rate)
            for each in model.candidates:
                rates.setdefault(each, []).append(solve(model.costs, there, [each]).rate)
                share = sum(
                    float(model.costs.weights @ best.shares[:, i])
                    for i, (stored_as, _) in enumerate(model.costs.columns)
                    if stored_as == each
                )
                shares.setdefault(each, []).append(share)
        top, bottom = axes[0][column], axes[1][column]
        for label, line in rates.items():
            style = {"color": "black", "linewidth": 2.5} if label == "best mix" else {}
            top.plot(values / unit, line, label=label, zorder=len(style), **style)
        top.set(xscale="log", yscale="log")
        # As the lines above: the mix, in black, takes no colour of the cycle.
        colors = [f"C{i}" for i in range(len(shares))]
        bottom.stackplot(values / unit, *shares.values(), labels=list(shares), colors=colors)
        bottom.set(xlabel=title, ylim=(0, 1))
        for each in (top, bottom):
            each.axvline(middle / unit, color="gray", linestyle=":")
    axes[0][0].set_ylabel("predicted images/s")
    axes[1][0].set_ylabel("share of images in the best mix")
    axes[0][0].legend()
    file = io.BytesIO()
    figure.savefig(file, format=kind)
    return file.getvalue()
