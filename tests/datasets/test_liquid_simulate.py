"""The simulator beside cases whose rate is known, and beside the linear programme."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
pytest.importorskip("simpy")

from test_liquid_plan import make_profile

from l3dali.cli import main
from l3dali.datasets.liquid.hosts import on_host, read_host
from l3dali.datasets.liquid.model import Limits, solve, turn_seconds
from l3dali.datasets.liquid.plan import make_model
from l3dali.datasets.liquid.profile import Host, Training
from l3dali.datasets.liquid.simulate import (
    CORES_L3,
    CORES_OTHERS,
    ON_GPU,
    Images,
    Queues,
    draw_images,
    makespan,
    simulate,
    simulate_plan,
    tasks_of,
)
from l3dali.errors import UsageError

COUNT = 256


def images_of(
    read: float = 0.0,
    cpu: float = 0.0,
    upload: float = 0.0,
    gpu: float = 0.0,
    decoders: Any = CORES_L3,
    reading: float = 0.0,
) -> Images:
    ones = np.ones(COUNT)
    kinds = np.broadcast_to(np.asarray(decoders, np.intp), COUNT)
    one = np.ones(COUNT, np.intp)
    return Images(read * ones, reading * ones, cpu * ones, kinds, one, upload * ones, gpu * ones)


@pytest.mark.parametrize(
    ("images", "host", "rate", "busiest"),
    [
        (images_of(read=1e6, cpu=1e-3), Host(1, disk=1e8), 100, "disk"),
        (images_of(read=1e6, cpu=1e-3), Host(1, disk=1e10), 1000, "cores"),
        (images_of(read=1e6, cpu=1e-3), Host(4, disk=1e10, efficiency=0.5), 2000, "cores"),
        (images_of(cpu=1e-3, reading=1e-3), Host(4), 2000, "cores"),
        (images_of(read=1e6), Host(1, network=2e8), 200, "network"),
        (images_of(upload=1e6), Host(1, upload=1e9), 1000, "upload"),
        (images_of(upload=1e6), Host(8, upload=1e9, switch=5e8, gpus=4), 2000, "switch"),
        (images_of(gpu=1e-3, decoders=ON_GPU), Host(4, gpus=4), 4000, "gpu"),
        (images_of(cpu=1e-3), Host(4, gpus=4, nodes=3), 12_000, "cores"),
        (images_of(cpu=1e-3), Host(2, gpus=4), 2000, "cores"),
        (
            images_of(read=1e6),
            Host(1, network=1e9, nodes=8, file_system=2e9),
            2000,
            "file_system",
        ),
    ],
)
def test_one_resource_binds(images: Images, host: Host, rate: float, busiest: str) -> None:
    found = simulate(images, host)
    assert found.rate == pytest.approx(rate, rel=0.03)
    assert found.busiest == busiest
    assert found.busy[busiest] > 0.9


def test_a_step_that_is_slower_never_waits() -> None:
    host = Host(4, gpus=2)
    found = simulate(images_of(cpu=1e-4), host, Training(500))
    assert found.rate == pytest.approx(500, rel=0.02)
    assert found.stalled < 0.05
    starved = simulate(images_of(cpu=1e-2), host, Training(4000))
    assert starved.rate == pytest.approx(400, rel=0.03)
    assert starved.stalled == pytest.approx(0.9, abs=0.03)


def test_decoding_beside_a_step_slows_it() -> None:
    images = images_of(gpu=1e-3, decoders=ON_GPU)
    free = simulate(images, Host(4), Training(500, 1.0))
    shared = simulate(images, Host(4), Training(500, 0.0))
    assert free.rate == pytest.approx(500, rel=0.02)
    assert shared.rate == pytest.approx(1 / (1 / 500 + 1e-3), rel=0.02)


def test_gpus_that_train_together_wait_for_the_last() -> None:
    """Batches of which some are slow: alone they even out, together the slowest decides."""
    rng = np.random.default_rng(0)
    images = replace(images_of(), cpu_seconds=rng.lognormal(-7, 2, COUNT))
    host = Host(8, gpus=8)
    alone = simulate(images, host, batch=4, batches=200)
    together = simulate(images, host, Training(1e9), batch=4, batches=200)
    assert together.rate < 0.97 * alone.rate


@pytest.mark.parametrize("cores", [2, 3, 8])
def test_decoders_take_turns(cores: int) -> None:
    """Of each batch a third are originals; each decoder's last image keeps other cores waiting."""
    kinds = np.random.default_rng(0).permutation(np.arange(COUNT) % 3 == 0)
    images = images_of(cpu=1e-3, decoders=np.where(kinds, CORES_OTHERS, CORES_L3))
    found = simulate(images, Host(cores), batches=400)
    expected = 1e-3 + turn_seconds([(1 / 3, 1e-3), (2 / 3, 1e-3)], 32, cores)
    expected += (-32 % cores) / 32 * 1e-3  # what one decoder would lose, too
    assert found.rate == pytest.approx(cores / expected, rel=0.02)


def test_large_l3_images_are_cut_into_tasks() -> None:
    images = images_of(cpu=1e-3)
    assert simulate(images, Host(64)).rate == pytest.approx(32_000, rel=0.02)
    cut = replace(images, tasks=tasks_of(np.full(COUNT, 2.0**21)))
    assert cut.tasks[0] == 4
    assert simulate(cut, Host(64)).rate == pytest.approx(64_000, rel=0.02)


def test_more_threads_than_images_do_not_help() -> None:
    images = images_of(cpu=1e-3, decoders=CORES_OTHERS)
    assert simulate(images, Host(128)).rate == pytest.approx(32_000, rel=0.02)


def test_reading_fills_the_time_of_turns() -> None:
    kinds = np.arange(COUNT) % 3 == 0
    images = images_of(cpu=1e-3, decoders=np.where(kinds, CORES_OTHERS, CORES_L3), reading=1e-3)
    assert simulate(images, Host(8), batches=100).rate == pytest.approx(4000, rel=0.02)


def test_longer_queues_even_out_uneven_batches() -> None:
    rng = np.random.default_rng(0)
    images = replace(
        images_of(read=1e6),
        cpu_seconds=rng.lognormal(-7, 1.5, COUNT),
        read_bytes=rng.lognormal(12, 1.5, COUNT),
    )
    disk = float(images.read_bytes.mean() / images.cpu_seconds.mean())
    rates = [
        simulate(images, Host(1, disk=disk), batch=2, batches=400, queues=Queues(read=n)).rate
        for n in (1, 32)
    ]
    assert rates[1] > 1.05 * rates[0]


@pytest.mark.parametrize(
    ("threads", "seconds"), [(1, 10.0), (2, 5.0), (3, 4.0), (4, 4.0), (9, 4.0)]
)
def test_makespan(threads: int, seconds: float) -> None:
    assert makespan(np.array([1.0, 2.0, 3.0, 4.0]), threads) == seconds
    assert makespan(np.array([]), threads) == 0


@pytest.mark.parametrize("name", ["cpu-node", "aws-g4dn.xlarge"])
@pytest.mark.parametrize("formats", [("source",), ("rans",), ("packed",), ("rans", "packed")])
def test_it_agrees_with_the_programme(name: str, formats: tuple[str, ...]) -> None:
    """Where images are alike and batches large, averages are all there is to say."""
    host = replace(read_host(name), nodes=2)
    profile = on_host(make_profile(), host)
    costs = make_model(profile, formats, profile.host).costs
    solution = solve(costs, Limits(profile.host))
    found = simulate_plan(profile, Limits(profile.host, batch=1024), formats)
    assert found.rate == pytest.approx(solution.rate, rel=0.05)


def test_few_images_on_cores_hold_up_a_gpu() -> None:
    """The programme gives idle cores some images; those of a batch then take as long as one."""
    profile = on_host(make_profile(), read_host("dgx-a100"))
    limits = Limits(profile.host)
    solution = solve(make_model(profile, ("rans",), profile.host).costs, limits)
    found = simulate_plan(profile, limits, ["rans"])
    assert found.busiest == "cores"
    assert found.rate < 0.5 * solution.rate


def test_images_are_drawn_by_weights_and_shares() -> None:
    profile = make_profile(spread=0.5)
    costs = make_model(profile, ("rans", "packed"), profile.host).costs
    shares = np.zeros((len(costs.weights), 2))
    shares[:, 0], shares[:, 1] = 0.25, 0.75
    images = draw_images(costs, shares, np.random.default_rng(0), 20_000)
    assert images.read_bytes.mean() == pytest.approx(
        costs.mean(costs.later, "read_bytes", shares), rel=0.01
    )
    assert (images.decoders == CORES_L3).all()


def test_the_same_seed_gives_the_same() -> None:
    rng = np.random.default_rng(0)
    images = replace(images_of(), cpu_seconds=rng.lognormal(-7, 1, COUNT))
    first, again, other = (simulate(images, Host(2, gpus=2), seed=s) for s in (1, 1, 2))
    assert first == again
    assert first != other


# Each of as many pixels as L3 has at most, by a profile that claims more.
IN_TASKS = replace(images_of(cpu=1e-3), tasks=tasks_of(np.full(COUNT, 1e18)))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"batch": 1000}, "batches of 1000"),
        ({"host": Host(1, nodes=5000)}, "5000 pipelines"),
        ({"images": images_of()}, "decoding takes nothing"),
        (
            {"images": IN_TASKS, "host": Host(1, nodes=64)},
            "335544320 tasks of images; up to 67108864",
        ),
    ],
)
def test_what_cannot_be_simulated(change: dict[str, Any], says: str) -> None:
    arguments = {"images": images_of(cpu=1e-3), "host": Host(1), **change}
    with pytest.raises(UsageError, match=says):
        simulate(**arguments)


def test_the_command_simulates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text(make_profile().to_json())
    command = ["plan", str(profile), "-o", str(tmp_path / "plan.json"), "--overwrite", "--simulate"]
    assert main(command) == 0
    assert "\nsimulated: " in capsys.readouterr().out
    assert main([*command, "--host", "dgx-a100", "--train-rate", "1000", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["simulated"]
    assert said["rate"] == pytest.approx(1000, rel=0.05)
    assert said["busy"]["step"] > 0.9
    assert main(command) == 0
    assert "training waits" not in capsys.readouterr().out


def test_predictions_of_clusters() -> None:
    """The benchmark's cases, on one node: PNG is where the paper has it, L3 reaches the step."""
    cluster = importlib.import_module("benchmarks.cpu.cluster")
    node = read_host("dgx-a100")
    rates = {kind: cluster.run(kind, node).rate for kind in cluster.KINDS}
    ceiling = 8 * cluster.STEP
    assert rates["PNG"] / ceiling == pytest.approx(cluster.PAPER_SHARE, abs=0.06)
    assert rates["rans"] > 0.95 * ceiling
    assert rates["plan"] > 0.95 * ceiling
    low, high = (cluster.run("PNG", node, error=error).rate for error in (-1, 1))
    assert low < 0.95 * rates["PNG"] < rates["PNG"] / 0.95 < high
