"""What the simulator says of `make liquid`'s turns, beside what was measured then."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks.cpu.case import Result
from benchmarks.cpu.liquid import (
    BATCH,
    FORMATS,
    REGIMES,
    SETS,
    Assignment,
    Model,
    Regime,
    assignments,
    make_set,
    plan_for,
)
from benchmarks.report import RESULTS, table

from l3dali.datasets.convert.storage import open_folder
from l3dali.datasets.liquid.host import measure_reading
from l3dali.datasets.liquid.measure import measure_profile
from l3dali.datasets.liquid.model import turn_seconds
from l3dali.datasets.liquid.profile import CPU, L3_FORMATS, SOURCE, Host, Profile, cost_key
from l3dali.datasets.liquid.simulate import CORES_L3, CORES_OTHERS, Images, Queues, simulate

CODE = ("python/l3dali/datasets/liquid", "benchmarks/cpu/simulator.py")
BOUND = 0.97  # of what the disk alone would give: a format that is slower is bound by cores
BATCHES = 40
ROUNDS = 4  # of finding the times of single formats

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Costs:
    """What each image of a set takes in each format.

    Attributes:
        sizes: by format, bytes.
        seconds: by format, CPU seconds with reading.
        reading: by format, those of reading alone.
    """

    sizes: dict[str, Array]
    seconds: dict[str, Array]
    reading: dict[str, Array]

    def scaled(self, factors: Mapping[str, float]) -> Costs:
        """With other times."""
        seconds, reading = (
            {name: values * factors.get(name, 1.0) for name, values in each.items()}
            for each in (self.seconds, self.reading)
        )
        return replace(self, seconds=seconds, reading=reading)

    def images(self, assignment: Assignment) -> Images:
        """Those of a set that is stored so."""
        rows = range(len(assignment))

        def taken(values: Mapping[str, Array]) -> Array:
            return np.array([values[name][i] for i, name in zip(rows, assignment, strict=True)])

        reading = taken(self.reading)
        kinds = [CORES_L3 if name in L3_FORMATS else CORES_OTHERS for name in assignment]
        nothing = np.zeros(len(assignment))
        return Images(
            taken(self.sizes),
            reading,
            np.maximum(0.0, taken(self.seconds) - reading),
            np.array(kinds, np.intp),
            np.ones(len(assignment), np.intp),  # none has more pixels than a task
            nothing,
            nothing,
        )


def simulated(costs: Costs, assignment: Assignment, host: Host) -> float:
    """Images a second by the simulator."""
    images = costs.images(assignment)
    queues = Queues(read=3)
    found = simulate(images, host, batch=BATCH, batches=BATCHES, queues=queues, shuffled=False)
    return found.rate


def programmed(costs: Costs, assignment: Assignment, host: Host) -> float:
    """Images a second by the averages of the linear programme, with its turns."""
    images = costs.images(assignment)
    seconds = images.cpu_seconds + images.read_seconds
    parts = [
        (float(mine.mean()), float(seconds[mine].mean()))
        for mine in (images.decoders == CORES_L3, images.decoders == CORES_OTHERS)
        if mine.any()
    ]
    taken = float(seconds.mean()) + turn_seconds(parts, BATCH, host.cores)
    bound = taken / (host.cores * host.efficiency)
    return 1 / max(bound, float(images.read_bytes.mean()) / (host.disk or np.inf))


def rates_of(rows: Sequence[Mapping[str, Any]], what: str) -> dict[str, float]:
    """Medians of what was measured, or what was predicted, by the name of the mix."""
    return {row["name"]: float(np.median(row[what])) for row in rows}


def as_profiled(costs: Costs, known: Mapping[str, Any], regime: Regime) -> Costs:
    """The times that the run's own profile had, as far as its predictions tell.

    A format that it predicted to be bound by cores has told its mean time. The others get what
    these differ by, on the median.
    """
    factors: dict[str, float] = {}
    for each in known.values():
        if each["set"] != regime.set or each["cores"] != regime.cores:
            continue
        if each["held_by"] != known[regime.name]["held_by"]:
            continue  # reading cost something else there
        for name, rate in rates_of(each["rows"], "predicted").items():
            if name in FORMATS and rate < BOUND * each["disk"] * 1e6 / costs.sizes[name].mean():
                taken = each["cores"] * each["efficiency"] / rate
                factors[name] = taken / float(costs.seconds[name].mean())
    others = float(np.median(list(factors.values())))
    return costs.scaled({name: factors.get(name, others) for name in FORMATS})


def as_measured(
    costs: Costs, rates: Mapping[str, float], host: Host, kinds: Mapping[str, Assignment]
) -> tuple[Costs, Host]:
    """The times and the disk that the single formats of the same rounds tell."""
    disk = rates["stored"] * float(costs.sizes["stored"].mean())
    host = replace(host, disk=max(disk, host.disk or 0.0))
    for _ in range(ROUNDS):
        factors = {}
        for name in FORMATS:
            said = simulated(costs, kinds[name], host)
            if rates[name] < BOUND * (host.disk or 0.0) / float(costs.sizes[name].mean()):
                factors[name] = said / rates[name]
        costs = costs.scaled(factors)
    return costs, host


def measure_costs(name: str, data: Path, folder: Path, seconds: float) -> tuple[Costs, Model]:
    """Sizes and times of a set, by a profile of this machine."""
    pictures = make_set(name, data, 128, folder)
    root = open_folder(str(pictures[0].paths["stored"].parent))
    files = [(root, file) for file in root.list_files().files.values()]
    reading = measure_reading(files, 3, np.random.default_rng(0), cold=False)
    profile: Profile = measure_profile(
        [str(pictures[0].paths[SOURCE].parent)],
        samples=len(pictures),
        seconds=seconds,
        reading=reading,
        quiet=True,
    )
    model = Model(profile, pictures, reading.rate)
    sizes = {f: np.array([float(p.sizes[f]) for p in pictures]) for f in FORMATS}
    taken = {
        f: np.array(
            [
                profile.groups[p.group].cpu_seconds[cost_key(f, CPU)](p.sizes[f], p.pixels)
                for p in pictures
            ]
        )
        for f in FORMATS
    }
    of_reading = {f: reading.cpu_seconds(sizes[f], np.zeros(len(pictures))) for f in FORMATS}
    return Costs(sizes, taken, of_reading), model


def simulator(data: Path, seconds: float = 20.0) -> Result:
    """The simulator beside `make liquid`'s measurements: how far off each regime is.

    What was measured, and the programme's own predictions, are those of liquid.json. The sets are
    made again for the bytes of each image, and profiled again for how images differ in time; mean
    times of each format are those that the run's profile had, as far as its predictions tell them.
    Nothing is fitted to what is predicted. Medians of the errors over all mixes of a regime:

    * `programme`: the linear programme's predictions in that run.
    * `simulator`: from the same times and the same efficiency.

    Machines were shared: between the turns that gave the efficiency and those that were measured,
    the cores' speed changed. So the mixes alone are predicted a second time, by both, from what the
    single formats gave in the same rounds: `mixes`. `turns` are those mixes of them in which two
    decoders take turns on two cores.
    """
    known = json.loads((RESULTS / "liquid.json").read_text())["regimes"]
    shown: dict[str, dict[str, Any]] = {}
    stored: dict[str, Any] = {}
    for name in SETS:
        with tempfile.TemporaryDirectory(prefix="l3-") as folder:
            costs, model = measure_costs(name, data, Path(folder), seconds)
        stored[name] = {
            "sizes": {f: values.astype(int).tolist() for f, values in costs.sizes.items()},
            "us": {f: np.round(v * 1e6, 1).tolist() for f, v in costs.seconds.items()},
            "reading_us": {f: np.round(v * 1e6, 1).tolist() for f, v in costs.reading.items()},
        }
        for regime in (each for each in REGIMES.values() if each.set == name):
            shown[regime.title] = compare(regime, known, costs, model)
    columns = {
        "mixes": "{count}",
        "programme": "{programme:.1%}",
        "simulator": "{simulator:.1%}",
        "mixes: programme": "{mixes_programme:.1%}",
        "simulator ": "{mixes_simulator:.1%}",
        "turns: programme": "{turns_programme}",
        "simulator  ": "{turns_simulator}",
        "shares of the plan": "{shares}",
    }
    worst = {key: max(row[key] for row in shown.values()) for key in ("programme", "simulator")}
    worst_mixes = {
        key: max(row[f"mixes_{key}"] for row in shown.values())
        for key in ("programme", "simulator")
    }
    text = table("regime", shown, columns) + (
        f"\nWorst regime: programme {worst['programme']:.1%}, simulator {worst['simulator']:.1%}; "
        f"mixes from single formats of the same rounds: {worst_mixes['programme']:.1%} and "
        f"{worst_mixes['simulator']:.1%}.\n"
    )
    return Result(text, {"regimes": shown, "sets": stored}, code=CODE)


def compare(regime: Regime, known: Mapping[str, Any], costs: Costs, model: Model) -> dict[str, Any]:
    """Errors of a regime."""
    mine = known[regime.name]
    host = Host(regime.cores, disk=regime.disk * 1e6, efficiency=mine["efficiency"])
    costs = as_profiled(costs, known, regime)
    factors = {f: float(costs.seconds[f].sum()) for f in FORMATS}
    plan = plan_for(scaled_profile(model, factors, host), model.pictures)
    kinds = {
        name: each
        for group in assignments(regime.set, plan, model.pictures)
        for name, each in group.items()
    }
    rates = rates_of(mine["rows"], "measured")
    predicted = rates_of(mine["rows"], "predicted")
    errors: dict[str, list[float]] = {"programme": [], "simulator": []}
    near, near_host = as_measured(costs, rates, host, kinds)
    mixes: dict[str, list[float]] = {"programme": [], "simulator": []}
    turns: dict[str, list[float]] = {"programme": [], "simulator": []}
    for name, rate in rates.items():
        errors["programme"].append(abs(predicted[name] / rate - 1))
        errors["simulator"].append(abs(simulated(costs, kinds[name], host) / rate - 1))
        if len(set(kinds[name])) == 1:
            continue
        for key, function in (("programme", programmed), ("simulator", simulated)):
            off = abs(function(near, kinds[name], near_host) / rate - 1)
            mixes[key].append(off)
            if SOURCE in kinds[name] and regime.cores > 1:
                turns[key].append(off)
    medians = {f"mixes_{key}": float(np.median(each)) for key, each in mixes.items()}
    shares = ", ".join(
        f"{plan.count(f) / len(plan):.0%} {f} ({mine['shares'].get(f, 0):.0%})"
        for f in FORMATS
        if f in plan or f in mine["shares"]
    )
    return {
        "count": len(rates),
        **{key: float(np.median(each)) for key, each in errors.items()},
        **medians,
        **{
            f"turns_{key}": f"{np.median(each):.1%}" if each else "-" for key, each in turns.items()
        },
        "shares": shares,
    }


def scaled_profile(model: Model, seconds: Mapping[str, float], host: Host) -> Profile:
    """The profile with other times of each format, and another host."""
    profile, pictures = model.profile, model.pictures
    factors = {
        f: seconds[f]
        / sum(
            profile.groups[p.group].cpu_seconds[cost_key(f, CPU)](p.sizes[f], p.pixels)
            for p in pictures
        )
        for f in FORMATS
    }

    def scaled(fit: Any, key: str) -> Any:
        by = factors[key.partition("@")[0]]
        return replace(
            fit, base=fit.base * by, per_byte=fit.per_byte * by, per_pixel=fit.per_pixel * by
        )

    return replace(
        profile,
        host=host,
        groups={
            name: replace(
                fits,
                cpu_seconds={key: scaled(fit, key) for key, fit in fits.cpu_seconds.items()},
            )
            for name, fits in profile.groups.items()
        },
        samples=[
            replace(
                sample,
                cpu_seconds={
                    key: taken * factors[key.partition("@")[0]]
                    for key, taken in sample.cpu_seconds.items()
                },
            )
            for sample in profile.samples
        ],
    )
