"""What formats would bring on machines that were not at hand: predicted, by the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.cpu.case import Result
from benchmarks.report import table

from l3dali.datasets.liquid.fit import fit_groups
from l3dali.datasets.liquid.hosts import HostFile, on_host, read_host
from l3dali.datasets.liquid.model import Limits, solve
from l3dali.datasets.liquid.plan import make_model
from l3dali.datasets.liquid.profile import (
    CACHE,
    MIXED,
    SOURCE,
    Host,
    Profile,
    Sample,
    Training,
)
from l3dali.datasets.liquid.simulate import (
    CORES_OTHERS,
    Images,
    Simulated,
    draw_images,
    simulate,
)

CODE = ("python/l3dali/datasets/liquid", "benchmarks/cpu/cluster.py")
SAMPLES = 200
IMAGES = 100_000
SPREAD = 0.25  # of the logarithm of bytes: assumed
STEP = 600.0  # images a second of a GPU: assumed; PNG then stands at the paper's 58 %
FILE_SYSTEM = 40e9  # of all nodes: assumed
NODES = (1, 2, 4, 8, 16, 32, 64)
NETWORKS = tuple(np.geomspace(0.25e9, 50e9, 12))
CORES_ERROR = 0.1  # of the simulator beside what was measured, by regime
WRONG = 0.2
RESNET = 2600.0  # github.com/huggingface/pytorch-image-models/issues/1491: an A100, 2022
FEW_CORES = (1, 2, 3, 4, 6, 8, 16)  # of a GPU
PAPER_GAIN, PAPER_SHARE = 1.71, 0.58
ENDS = (1, 8, 64)  # nodes for which what may be off is simulated, too
BATCHES = 24  # of each GPU of one node; fewer of many nodes, which average themselves
FEWEST_BATCHES = 8
# Bytes and CPU seconds of an image of 2.2 megapixels, decoded by DALI: results/pipeline_cpu.json at
# d31740f, an Intel (family 6, model 167), 2026-11-20. WebP: size.md at 2eb3456, speed.md at
# 87628ee.
PIXEL_BYTES = 6604800
MEASURED = {
    "PNG": (2674480.3333333335, 0.040915502596153855),
    "JPEG 95 (lossy)": (551199.8333333334, 0.008358174866379312),
    "packed": (2296280.0, 0.0021290590162337674),
    "rans": (1787605.3333333333, 0.00961660240094339),
    "stored": (6604928.0, 0.000706450422362555),
}
# Of 500 pixels, or made smaller to 256: results/shrunk.json at d89a1d8, the same machine.
SMALL = {
    "JPEG 95 of 500 pixels, resized": (49267.333333333336, 0.0015099007968749634),
    "packed of 256 pixels": (50317.333333333336, 6.827988031914706e-05),
    "rans of 256 pixels": (40445.333333333336, 0.0002430073906250163),
}
LOSSLESS = (SOURCE, "rans", "packed", "stored")
# Name: where an image is decoded, and of which format of the profile it is.
KINDS = {
    "PNG": ("PNG", SOURCE, "cpu"),
    "JPEG 95 (lossy)": ("JPEG 95 (lossy)", SOURCE, "cpu"),
    "WebP": ("WebP", SOURCE, "cpu"),
    "packed": ("PNG", "packed", MIXED),
    "rans": ("PNG", "rans", MIXED),
    "rans, cached": ("PNG", "rans", CACHE),
    "plan": ("PNG", "", ""),
}


def measured() -> dict[str, tuple[float, float]]:
    """By format, bytes and CPU seconds of an image."""
    # Not in pipelines: bytes of the same photographs, and speed beside PNG on one core (Kodak).
    size, seconds = MEASURED["PNG"]
    return {**MEASURED, "WebP": (size * 7.17 / 9.72, seconds * 144 / 163)}


def make_profile(source: str) -> Profile:
    """Photographs of 2.2 megapixels whose originals are of a format."""
    known = measured()
    rng = np.random.default_rng(0)
    samples = []
    formats = {SOURCE: known[source], "rans": known["rans"], "packed": known["packed"]}
    for i, factor in enumerate(rng.lognormal(-(SPREAD**2) / 2, SPREAD, SAMPLES)):
        sizes = {name: int(size * factor) for name, (size, _) in formats.items()}
        # What stores pixels takes as long whatever they show; entropy coders by the byte.
        seconds = {
            f"{name}@cpu": taken * (1.0 if name == "packed" else factor)
            for name, (_, taken) in formats.items()
        }
        sizes["stored"], seconds["stored@cpu"] = int(known["stored"][0]), known["stored"][1]
        samples.append(
            Sample(
                name=f"{i}.png",
                group="png rgb 8",
                source_bytes=sizes[SOURCE],
                pixels=PIXEL_BYTES // 3,
                raw_bytes=PIXEL_BYTES,
                weight=IMAGES / SAMPLES,
                sizes=sizes,
                cpu_seconds=seconds,
            )
        )
    return Profile(["set"], "0" * 64, IMAGES, Host(1.0), fit_groups(samples), samples)


def run(kind: str, host: HostFile, *, error: float = 0.0, trains: bool = True) -> Simulated:
    """A format, or the programme's best mix, on a host; `error` is -1 or 1 for what may be off."""
    source, stored_as, place = KINDS[kind]
    if host.efficiency is not None:
        host = replace(host, efficiency=host.efficiency * (1 + error * CORES_ERROR))
    decode_error = 0.0 if host.gpus is None else error * host.gpus.decode_error
    host = replace(host, train_rate=STEP if trains else None)
    profile = on_host(make_profile(source), host, 1 + decode_error)
    if place == CACHE:  # as much as the set is
        profile = replace(profile, host=replace(profile.host, gpu_cache=1e15))
    elif kind != "plan":
        profile = replace(profile, host=replace(profile.host, gpu_cache=0.0))
    limits = Limits(profile.host, profile.training)
    formats = [stored_as] if stored_as else LOSSLESS
    costs = make_model(profile, formats, profile.host).costs
    shares = np.zeros((len(costs.weights), len(costs.columns)))
    if stored_as:
        shares[:, costs.columns.index((stored_as, place))] = 1.0
    else:
        shares = solve(costs, limits).shares
    images = draw_images(costs, shares, np.random.default_rng(0))
    batches = max(FEWEST_BATCHES, round(BATCHES / host.nodes**0.5))
    return simulate(images, profile.host, profile.training, batches=batches)


def over_nodes(host: HostFile) -> dict[str, dict[str, list[Any]]]:
    """By format, what nodes bring: images a second, both ends, and what binds."""
    found: dict[str, dict[str, list[Any]]] = {}
    for kind in KINDS:
        mine: dict[str, list[Any]] = {"rate": [], "low": [], "high": [], "alone": [], "binds": []}
        for nodes in NODES:
            there = replace(host, nodes=nodes, file_system=FILE_SYSTEM)
            trained = run(kind, there)
            mine["rate"].append(trained.rate)
            mine["binds"].append(trained.busiest)
            if nodes in ENDS:
                mine["low"].append(run(kind, there, error=-1).rate)
                mine["high"].append(run(kind, there, error=1).rate)
                alone = run(kind, there, trains=False)
                mine["alone"].append((alone.rate, alone.busiest))
        found[kind] = mine
        print(kind, [f"{rate:.0f}" for rate in mine["rate"]], flush=True)
    return found


def over_networks(host: HostFile) -> dict[str, dict[str, list[float]]]:
    """By format, images a second of one node whose data comes over networks of some speeds."""
    found: dict[str, dict[str, list[float]]] = {}
    for kind in KINDS:
        runs = [run(kind, replace(host, disk=None, network=rate)) for rate in NETWORKS]
        found[kind] = {"rate": [each.rate for each in runs]}
    return found


def wrong_plans(host: HostFile) -> dict[str, list[float]]:
    """What plans lose, as a part, that take something for WRONG more or less than it is."""
    lost: dict[str, list[float]] = {}
    for what in ("CPU times", "network"):
        for sign in (-1, 1):
            mine = []
            for rate in NETWORKS:
                there = replace(host, disk=None, network=rate)
                profile = on_host(make_profile("PNG"), there)
                limits = Limits(profile.host)
                wrong = replace(
                    profile.host,
                    **(
                        {"efficiency": profile.host.efficiency * (1 + sign * WRONG)}
                        if what == "CPU times"
                        else {"network": rate * (1 + sign * WRONG)}
                    ),
                )
                costs = make_model(profile, LOSSLESS, profile.host).costs
                rates = []
                for each in (limits, Limits(wrong)):
                    shares = solve(costs, each).shares
                    images = draw_images(costs, shares, np.random.default_rng(0))
                    rates.append(simulate(images, profile.host, batch=256, batches=60).rate)
                mine.append(1 - rates[1] / rates[0])
            lost[f"{what} {sign * WRONG:+.0%}"] = mine
    return lost


def small_images() -> dict[str, list[float]]:
    """By format, images a second of one GPU that trains ResNet-50, by the cores that feed it."""
    webp = 7.04 / 6.43 * SMALL["rans of 256 pixels"][0], 256 * 192 * 3 / 163e6 + 30e-6
    first = "JPEG 95 of 500 pixels, resized"
    kinds = {first: SMALL[first], "WebP of 256 pixels, lossless": webp, **SMALL}
    found = {}
    for kind, (size, seconds) in kinds.items():
        rng = np.random.default_rng(0)
        factors = rng.lognormal(-(SPREAD**2) / 2, SPREAD, 4096)
        nothing = np.zeros(4096)
        images = Images(
            size * factors,
            nothing,
            seconds * factors,
            np.full(4096, CORES_OTHERS, np.intp),
            np.ones(4096, np.intp),
            nothing,
            nothing,
        )
        found[kind] = [
            simulate(images, Host(cores, efficiency=0.9), Training(RESNET, 1.0), batch=256).rate
            for cores in FEW_CORES
        ]
    return found


def cluster() -> Result:
    """Predicted: formats on 1 to 64 nodes of 8 GPUs that share a file system. Nothing is measured.

    `l3 plan --simulate` of the description `dgx-a100` (128 cores, 8 A100, 25 GB/s of network a
    node), nodes sharing a file system of 40 GB/s. The images are photographs of 2.2 megapixels:
    bytes and CPU times of formats are those of pipeline_cpu.md at d31740f, of an Intel (model 167;
    WebP's by size.md and speed.md beside PNG), with sizes that differ by 25 % (assumed). A training
    step takes 600 images a second of a GPU: assumed, so that PNG is near the 58 % of it that the L3
    paper's numbers imply. GPU decoding is predicted (docs/notes/kernels-model.md, good to 30 %).
    JPEG is decoded on cores. `plan` is the best mix of lossless formats by the linear programme,
    with 10 GB of cache on each GPU.

    Brackets: with GPUs 30 % slower or faster, and cores 10 %: the simulator was within that in 15
    of 16 regimes that were measured on machines with two cores, and 15.9 % off in the other one
    (results/simulator.md). No cluster and no GPU was measured: errors of what is assumed come on
    top.
    """
    node = read_host("dgx-a100")
    data = {
        "nodes": over_nodes(node),
        "networks": over_networks(node),
        "lost": wrong_plans(replace(read_host("cpu-node"), cores=16)),
        "small": small_images(),
    }

    def draw(path: Path) -> None:
        draw_all(data, path)

    return Result(page(data), data, draw, CODE)


def page(data: Mapping[str, Any]) -> str:
    """The tables."""
    nodes, networks, lost, small = (data[k] for k in ("nodes", "networks", "lost", "small"))
    rows = {}
    for kind, mine in nodes.items():
        cells = {
            count: f"{mine['rate'][i]:.0f} {mine['binds'][i].replace('_', ' ')}"
            for i, count in enumerate(NODES)
        }
        for i, count in enumerate(ENDS):
            cells[count] += f" [{mine['low'][i]:.0f}, {mine['high'][i]:.0f}]"
        rows[kind] = {str(count): cell for count, cell in cells.items()}
    alone = {
        kind: {
            str(count): f"{rate:.0f} {binds.replace('_', ' ')}, "
            f"{rate / nodes['PNG']['alone'][i][0]:.2f}"
            for i, (count, (rate, binds)) in enumerate(zip(ENDS, mine["alone"], strict=True))
        }
        for kind, mine in nodes.items()
    }
    gains = {
        kind: {
            f"{rate / 1e9:.2g}": f"{mine['rate'][i] / networks['PNG']['rate'][i]:.2f}"
            for i, rate in enumerate(NETWORKS)
        }
        for kind, mine in networks.items()
        if kind != "PNG"
    }
    wrong = {
        name: {
            f"{rate / 1e9:.2g}": f"{part:.1%}" for rate, part in zip(NETWORKS, mine, strict=True)
        }
        for name, mine in lost.items()
    }
    share = networks["PNG"]["rate"][-1] / (STEP * 8)
    text = (
        "Training: images a second of all nodes and what is busiest, by the number of nodes:\n\n"
        + columns_table("format", rows)
        + "\nPreparation alone, nobody trains: images a second, what is busiest, times PNG:\n\n"
        + columns_table("format", alone)
        + "\nEnd-to-end gain over PNG of one node, by GB/s of network. On the fastest, PNG reaches "
        + f"{share:.0%} of the step's rate; the paper's 1.71 belongs to {PAPER_SHARE:.0%}:\n\n"
        + columns_table("format", gains)
        + "\nWhat a plan loses that takes CPU times or the network for 20 % more or less than they "
        + "are, on 16 cores without a GPU, by GB/s of network:\n\n"
        + columns_table("the planner has", wrong)
    )
    few = {
        kind: {
            str(cores): f"{rate:.0f}, {rate / small[next(iter(small))][i]:.2f}"
            for i, (cores, rate) in enumerate(zip(FEW_CORES, rates, strict=True))
        }
        for kind, rates in small.items()
    }
    text += (
        "\nImages of ImageNet's size for a ResNet-50, 2,600 images a second of an A100 (public, "
        "2022), all decoded on cores: images a second and times JPEG, by cores of a GPU. CPU times "
        "are those of shrunk.md at d89a1d8, of the same machine:\n\n" + columns_table("format", few)
    )
    return (
        text
        + "\n![Predicted: rates over nodes, gains over the network, wrong plans](cluster.png)\n"
    )


def columns_table(first: str, rows: Mapping[str, Mapping[str, str]]) -> str:
    """A table whose columns are those of its first row."""
    keys = list(next(iter(rows.values())))
    cells = {name: {f"c{i}": row[key] for i, key in enumerate(keys)} for name, row in rows.items()}
    return table(first, cells, {key: f"{{c{i}}}" for i, key in enumerate(keys)})


def draw_all(data: Mapping[str, Any], path: Path) -> None:
    """Rates over nodes, gains over the network, and what wrong plans lose."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (first, second, third) = plt.subplots(1, 3, figsize=(16, 4.8), layout="tight")
    for kind, mine in data["nodes"].items():
        rate = np.array(mine["rate"])
        (line,) = first.plot(NODES, rate, "-o", ms=3, label=kind)
        ends = rate[[NODES.index(count) for count in ENDS]]
        bars = np.maximum(0, [ends - np.array(mine["low"]), np.array(mine["high"]) - ends])
        first.errorbar(ENDS, ends, bars, fmt="none", capsize=2, color=line.get_color())
    first.plot(NODES, np.array(NODES) * 8 * STEP, "k:", label="steps that never wait")
    first.set(xscale="log", yscale="log", xlabel="nodes of 8 GPUs", ylabel="images/s")
    first.set(title="training, 40 GB/s of shared file system")
    first.set_xticks(NODES, [str(n) for n in NODES])
    base = np.array(data["networks"]["PNG"]["rate"])
    speeds = np.array(NETWORKS) / 1e9
    for kind, mine in data["networks"].items():
        if kind != "PNG":
            second.plot(speeds, np.array(mine["rate"]) / base, "-o", ms=3, label=kind)
    second.axhline(PAPER_GAIN, color="k", ls=":", label="L3 paper: 1.71")
    second.axvspan(8, speeds[-1], color="0.9", label="PNG bound by cores, as there")
    second.set(
        xscale="log", yscale="log", xlabel="network of a node, GB/s", ylabel="times PNG, end to end"
    )
    second.set(title="one node")
    for name, lost in data["lost"].items():
        third.plot(speeds, 100 * np.array(lost), "-o", ms=3, label=name)
    third.set(xscale="log", xlabel="network, GB/s", ylabel="% of the rate that is lost")
    third.set(title="a planner that is 20 % wrong, 16 cores")
    for axis in (first, second, third):
        axis.legend(fontsize=7)
    figure.suptitle("Predicted, not measured")
    figure.savefig(path, dpi=100)
    plt.close(figure)
