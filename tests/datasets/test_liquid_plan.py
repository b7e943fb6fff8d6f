"""The linear programme and `l3 plan`: known cases, brute force, and what plans choose."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")


from l3dali.cli import main
from l3dali.datasets.convert.images import Seen
from l3dali.datasets.liquid.model import (
    Costs,
    Limits,
    Prices,
    costs_of,
    solve,
    turn_seconds,
)
from l3dali.datasets.liquid.plan import Plan, find_plan, read_plan
from l3dali.datasets.liquid.profile import (
    FORMATS,
    Fits,
    Host,
    Linear,
    Profile,
    Sample,
    Training,
)
from l3dali.errors import UsageError

GROUP = "png 3 uint8"
LOSSLESS = ("source", "rans", "packed", "stored")
# Bytes and CPU seconds of photographs of 0.56 megapixels, as shared out by two cores: 55 were
# measured.
PIXELS = 562_500
PHOTOS = {
    "source": (640e3, 2 / 133),
    "rans": (200e6 / 380, 2 / 534),
    "packed": (200e6 / 302, 2 / 4349),
    "stored": (200e6 / 118.6, 2 / 9000),
}


def make_profile(
    table: dict[str, tuple[float, float]] = PHOTOS,
    *,
    disk: float | None = 400e6,
    cores: float = 2.0,
    count: int = 40,
    spread: float = 0.0,
    training: Training | None = None,
    host: dict[str, Any] | None = None,
    gpu: dict[str, float] | None = None,
) -> Profile:
    """Images of the same pixels; `spread` is how far their bytes and times differ."""
    factors = np.linspace(1 - spread, 1 + spread, count)
    source = table["source"][0] if "source" in table else 1e6
    sizes = {
        name: Linear(per_byte=size / source) if name != "stored" else Linear(base=size)
        for name, (size, _) in table.items()
    }
    cpu = {
        f"{name}@cpu": Linear(per_byte=seconds / size) if name == "rans" else Linear(base=seconds)
        for name, (size, seconds) in table.items()
    }
    on_gpu = {f"{name}@mixed": Linear(base=seconds) for name, seconds in (gpu or {}).items()}
    samples = []
    for i, factor in enumerate(factors):
        size = round(source * factor)
        stored = {name: round(fit(float(size), float(PIXELS))) for name, fit in sizes.items()}
        taken = {key: fit(float(stored[key[:-4]]), float(PIXELS)) for key, fit in cpu.items()}
        on_gpu_taken = {key: fit.base for key, fit in on_gpu.items()}
        samples.append(
            Sample(
                *(f"{i}.png", GROUP, size, PIXELS, 3 * PIXELS, 1000 / count),
                {"source": size, **stored},
                taken,
                on_gpu_taken,
            )
        )
    fits = Fits(
        images=1000,
        source_bytes=round(1000 * source),
        sizes={"source": Linear(per_byte=1.0), **sizes},
        cpu_seconds=cpu,
        gpu_seconds=on_gpu,
    )
    there = Host(cores=cores, disk=disk, **(host or {}))
    return Profile(["set"], 1000, there, {GROUP: fits}, samples, training)


def plan_of(profile: Profile, formats: Sequence[str] = LOSSLESS, **limits: Any) -> Plan:
    min_gain = limits.pop("min_gain", 0.03)
    return find_plan(profile, Limits(profile.host, profile.training, **limits), formats, min_gain)


def shares_of(plan: Plan, sizes: Sequence[float]) -> dict[str, float]:
    """What a plan chooses for images that the profile has not seen."""
    seen = [Seen(f"new/{i}.png", GROUP, round(size), PIXELS) for i, size in enumerate(sizes)]
    chosen = Counter(map(plan.choose, seen))
    return {name: chosen[name] / len(sizes) for name in FORMATS}


# Decoders that take turns.


@pytest.mark.parametrize(("batch", "cores"), [(32, 2), (32, 12), (7, 3), (8, 16), (48, 5)])
def test_turns_are_those_of_batches_drawn_by_lot(batch: int, cores: int) -> None:
    rng = np.random.default_rng(1)
    for share in (0.03, 0.3, 0.9):
        parts = [(share, 5.0), (1 - share, 2.0)]
        ones = rng.binomial(batch, share, 20_000)
        waits = 5.0 * (-ones % cores) + 2.0 * (-(batch - ones) % cores)
        alone = (share * 5.0 + (1 - share) * 2.0) * (-batch % cores)
        expected = max(0.0, float(waits.mean()) - alone) / batch
        assert turn_seconds(parts, batch, cores) == pytest.approx(expected, rel=0.05, abs=0.01)


def test_the_rate_of_a_mix_has_the_turns() -> None:
    # Two cores, no disk to wait for: half of the images stay as they are, the others must not.
    profile = make_profile({"source": (100e3, 0.002), "packed": (660e3, 0.0005)}, disk=385e6 / 2)
    plan = plan_of(profile)
    assert plan.formats == ["source", "packed"]
    shares = plan.predicted.format_shares()
    parts = [(shares["source"], 0.002), (shares["packed"], 0.0005)]
    turns = turn_seconds(parts, 32, 2)
    taken = sum(share * seconds for share, seconds in parts)
    assert plan.predicted.rate == pytest.approx(2 / (taken + turns), rel=0.01)
    large = plan_of(profile, batch=1024)
    assert large.predicted.rate > plan.predicted.rate


# Known cases.


@pytest.mark.parametrize(
    ("disk", "singles", "mix"),
    [
        (200e6, {"source": 133, "stored": 119, "rans": 380, "packed": 302}, 380),
        (400e6, {"source": 133, "stored": 237, "rans": 534, "packed": 604}, 709),
        (1000e6, {"source": 133, "stored": 593, "rans": 534, "packed": 1510}, 1591),
    ],
)
def test_photographs_on_two_cores(disk: float, singles: dict[str, float], mix: float) -> None:
    """Modelled elsewhere: 380, 718 and 1609, where images could be told apart."""
    plan = plan_of(make_profile(disk=disk), min_gain=0.0)
    rates = plan.predicted.single_rates
    assert {name: round(rate) for name, rate in rates.items()} == pytest.approx(singles, abs=1)
    assert plan.predicted.rate == pytest.approx(mix, rel=0.005)


def test_equal_images_are_shared_out_by_lot() -> None:
    plan = plan_of(make_profile())
    assert plan.formats == ["rans", "packed"]
    equal = [PHOTOS["source"][0]] * 4000
    shares = shares_of(plan, equal)
    # Where disk and cores are both busy: 0.662 - 0.136 x = 400 e, 0.23 + 1.6425 x = 1000 e.
    assert shares["rans"] == pytest.approx(0.72, abs=0.03)
    assert shares["rans"] + shares["packed"] == 1
    assert shares_of(plan, equal) == shares


# Brute force.


def _random_costs(rng: np.random.Generator, count: int, formats: Sequence[str]) -> Costs:
    groups = {
        str(i): Fits(
            1,
            1,
            {name: Linear(per_byte=rng.uniform(0.2, 3)) for name in formats},
            {f"{name}@cpu": Linear(base=rng.uniform(1e-4, 1e-2)) for name in formats},
        )
        for i in range(count)
    }
    samples = [
        Sample("", name, int(rng.uniform(1e5, 1e6)), 10**6, 3 * 10**6, 1.0, {}, {})
        for name in groups
    ]
    profile = Profile([], count, Host(cores=1), groups, samples)
    return costs_of(profile, Limits(profile.host), formats)


def _seconds(costs: Costs, limits: Limits, shares: np.ndarray) -> float:
    host = limits.host
    taken = [(costs.amounts["cpu_seconds"], host.cores * host.efficiency)]
    if host.disk is not None:
        taken.append((costs.amounts["read_bytes"], host.disk))
    return max(float(costs.weights @ (amount * shares).sum(axis=1)) / had for amount, had in taken)


@pytest.mark.parametrize("seed", range(12))
def test_no_assignment_is_faster(seed: int) -> None:
    """All assignments of whole images are tried; shares of images may only be faster."""
    rng = np.random.default_rng(seed)
    formats = LOSSLESS[: int(rng.integers(2, 5))]
    costs = _random_costs(rng, 5, formats)
    limits = Limits(Host(cores=1.4, disk=float(rng.uniform(5e7, 2e9)), efficiency=0.9))  # no turns
    found = solve(costs, limits)
    assert _seconds(costs, limits, found.shares) == pytest.approx(found.seconds, rel=1e-5)
    eye = np.eye(len(costs.columns))
    best = min(
        _seconds(costs, limits, eye[list(assigned)])
        for assigned in itertools.product(range(len(costs.columns)), repeat=5)
    )
    assert found.seconds <= best * (1 + 1e-6)
    # One image at most is shared for each row that binds.
    assert int((found.shares.max(axis=1) < 1 - 1e-6).sum()) <= 2
    assert best <= found.seconds * 2


# Properties.


def test_choices_follow_the_programme() -> None:
    """Images of all sizes, more than the sample has: the shares are those predicted."""
    plan = plan_of(make_profile(spread=0.5, count=60))
    assert len(plan.formats) == 2
    sizes = np.random.default_rng(0).uniform(0.5, 1.5, 20_000) * PHOTOS["source"][0]
    chosen = shares_of(plan, sizes.tolist())
    for name, share in plan.predicted.format_shares().items():
        assert chosen[name] == pytest.approx(share, abs=0.03)


def test_an_unknown_group_stays_as_it_is() -> None:
    seen = Seen("a.tif", "tiff 4 uint16", 1000, 500)
    assert plan_of(make_profile()).choose(seen) == "source"


# What is decided.


def test_one_format_if_another_gains_little() -> None:
    profile = make_profile(disk=1000e6)
    mixed = plan_of(profile, min_gain=0.03)
    assert mixed.formats == ["rans", "packed"]
    alone = plan_of(profile, min_gain=0.1)
    assert alone.formats == ["packed"]
    assert alone.predicted.rate == pytest.approx(1510, rel=0.01)
    assert alone.predicted.best_rate > 1580


def test_a_training_step_that_is_reached_stores_least() -> None:
    plan = plan_of(make_profile(training=Training(300.0)))
    assert plan.formats == ["rans"]
    assert plan.predicted.rate == pytest.approx(300)
    assert not plan.predicted.binding


def test_a_target_is_reached_with_fewest_bytes_not_fewest_formats() -> None:
    """rans alone reaches it, too: with three times the bytes of a JPEG that decodes too slowly."""
    profile = make_profile({"source": (100e3, 1 / 100), "rans": (300e3, 1 / 500)}, disk=None)
    plan = plan_of(profile, target=400.0)
    assert sorted(plan.formats) == ["rans", "source"]
    assert plan.predicted.rate == pytest.approx(400)
    assert plan_of(profile, target=400.0, min_gain=1.0).formats == ["rans"]


def test_a_target_beyond_reach() -> None:
    said = "no mix reaches 900 images/s; the best gives 709, bound by cores and disk"
    with pytest.raises(UsageError, match=said):
        plan_of(make_profile(), target=900.0)
    assert plan_of(make_profile(disk=509e6, cores=2.55), target=900.0).predicted.rate >= 900
    with pytest.raises(UsageError, match="bound by the training step"):
        plan_of(make_profile(training=Training(500.0)), target=600.0)


def test_a_gpu_takes_what_the_cores_cannot() -> None:
    gpu = {"rans": 1e-3, "packed": 5e-4}
    profile = make_profile(gpu=gpu, disk=None, host={"upload": 10e9})
    plan = plan_of(profile, ("rans", "packed"), min_gain=0.0)
    places = set(plan.predicted.shares)
    assert {"packed@cpu", "packed@mixed"} <= places
    # 4349 on the cores and 2000 on the GPU.
    assert plan.predicted.rate == pytest.approx(6349, rel=0.01)
    step = replace(profile, training=Training(2000.0))
    beside = plan_of(step, ("rans", "packed"), min_gain=0.0)
    assert beside.predicted.rate == pytest.approx(2000, rel=0.01)
    assert not any("mixed" in place for place in beside.predicted.shares)


def test_images_that_take_no_time() -> None:
    with pytest.raises(UsageError, match="images take no time"):
        plan_of(make_profile({**PHOTOS, "packed": (0.0, 0.0)}))


# Files.


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = plan_of(make_profile())
    assert plan.ties
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json())
    again = read_plan(path)
    assert again == plan
    assert again.identity == plan.identity
    assert replace(plan, made={"a": "b"}, images=7).identity == plan.identity
    assert replace(plan, prices=Prices(cpu_seconds=1.0)).identity != plan.identity


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 2}, "a plan of version 2"),
        ({"format": "l3-profile"}, "not a plan but a profile"),
        ({"formats": ["gif"]}, "unknown format 'gif'"),
        ({"formats": []}, "no groups of images, or no formats"),
        (
            {"prices": {"cpu_seconds": float("nan")}},
            "prices.cpu_seconds must be a number of at least 0, not nan",
        ),
        ({"limits": {}}, "limits.host is missing"),
        ({"ties": [{"group": GROUP, "formats": ["rans"], "shares": []}]}, "each format needs"),
    ],
)
def test_a_damaged_plan_is_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    data = json.loads(plan_of(make_profile()).to_json())
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**data, **change}))
    with pytest.raises(UsageError) as error:
        read_plan(path)
    assert says in str(error.value)
    assert str(path) in str(error.value)


def test_a_plan_that_is_cut_or_missing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    for size in (0, 1, 100):
        path.write_text(plan_of(make_profile()).to_json()[:size])
        with pytest.raises(UsageError, match="not a complete JSON file"):
            read_plan(path)
    with pytest.raises(UsageError, match="No such file"):
        read_plan(tmp_path / "none.json")


# The command.


@pytest.fixture
def profile_file(tmp_path: Path) -> Path:
    path = tmp_path / "profile.json"
    path.write_text(make_profile().to_json())
    return path


def run(*arguments: object) -> int:
    return main(["plan", *map(str, arguments)])


def test_the_command_says_what_binds_and_what_is_gained(
    profile_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "plan.json"
    assert run(profile_file, "-o", target) == 0
    text = capsys.readouterr().out
    assert "bound by the cores (17%) and the disk (83%)" in text
    assert "predicted: 708.6 images/s, 708.6 in the first epoch" in text
    assert "to packed alone (604.0): 4.54 times" in text
    assert "mixing beyond packed alone (604.0 images/s): 1.17 times" in text
    assert read_plan(target).formats == ["rans", "packed"]
    assert run(profile_file, "-o", target) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_the_command_says_do_not_mix(
    profile_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    assert run(profile_file, "-o", plan, "--disk", "200MB/s") == 0
    text = capsys.readouterr().out
    assert "bound by the disk (100%)" in text
    assert "do not mix: rans alone gives 380.0 images/s" in text


def test_the_command_says_what_jpeg_saves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = {"source": (100e3, 2e-3), "jpeg": (86e3, 1e-3), "packed": (260e3, 4e-4)}
    (tmp_path / "p.json").write_text(make_profile(table, disk=100e6).to_json())
    assert run(tmp_path / "p.json", "-o", tmp_path / "plan.json") == 0
    text = capsys.readouterr().out
    assert "switching from the originals (1,000 images/s) to jpeg alone (1,163): 1.16 times" in text
    assert "jpeg in place of JPEG files: 0.86 of their bytes, 0.50 of the CPU time" in text


def test_the_plan_replaces_no_input(profile_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = profile_file.read_bytes()
    assert run(profile_file, "-o", profile_file, "--overwrite") == 2
    assert "input and output are the same file" in capsys.readouterr().err
    assert profile_file.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--disk", "0MB/s"], "is not a rate"),
        (["--cores", "0"], "not a positive number"),
        (["--gpu-cache", "much"], "is not a size"),
        (["--formats", "gif"], "unknown; use source"),
        (["--target", "5000"], "no mix reaches 5000 images/s"),
        (["--host", "dgxa100"], "no such host"),
    ],
)
def test_the_command_refuses(
    arguments: list[str],
    says: str,
    profile_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(profile_file, "-o", tmp_path / "plan.json", *arguments) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "plan.json").exists()


def test_crops_read_their_tiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def part(size: int, crop: int, tile: int) -> float:
        touched = [
            {
                row
                for at in range(top, top + crop)
                for row in range(size)
                if row // tile == at // tile
            }
            for top in range(size - crop + 1)
        ]
        return sum(map(len, touched)) / len(touched) / size

    profile = make_profile(cores=1e3, disk=1e6)
    with pytest.raises(UsageError, match="has no tile sizes"):
        plan_of(profile, crop=[10, 20])
    tiles = {"crop": [50, 75], **{key: [8, 16] for key in LOSSLESS[1:]}}
    samples = [replace(each, tiles=tiles) for each in profile.samples]
    profile = replace(profile, samples=samples)
    whole, crops = (plan_of(profile, ["packed"], crop=crop) for crop in (None, [10, 20]))
    expected = whole.predicted.rate / part(50, 10, 8) / part(75, 20, 16)
    assert crops.predicted.rate == pytest.approx(expected)
    assert crops.predicted.stored_bytes == whole.predicted.stored_bytes
    assert plan_of(profile, ["packed"], crop=[60, 80]).predicted.rate == whole.predicted.rate
    assert plan_of(profile, ["source"], crop=[10, 20]).predicted.rate == pytest.approx(1e6 / 640e3)

    (tmp_path / "p.json").write_text(profile.to_json())
    command = ["plan", str(tmp_path / "p.json"), "-o", str(tmp_path / "plan.json"), "--crop"]
    assert main([*command, "10x20"]) == 0
    assert "decode L3 by: fn.l3.decode_crop(encoded, crop=(10, 20))\n" in capsys.readouterr().out
    assert read_plan(tmp_path / "plan.json").limits.crop == [10, 20]
    assert main([*command, "10"]) == 2
    assert "'10' is not HEIGHTxWIDTH" in capsys.readouterr().err
