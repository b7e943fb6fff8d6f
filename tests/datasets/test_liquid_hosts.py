"""Descriptions of hosts: those that ship, those that make no sense, and what plans make of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy")

from engines import ROOT
from test_liquid_plan import PIXELS, make_profile

from l3dali.cli import main
from l3dali.datasets.liquid.hosts import HostFile, host_names, on_host, read_host
from l3dali.datasets.liquid.model import Limits, Solution, costs_of, solve
from l3dali.datasets.liquid.plan import read_plan
from l3dali.datasets.liquid.profile import Profile, Training
from l3dali.errors import UsageError

RAW = 3 * PIXELS
SHIPPED = ("aws-g4dn.xlarge", "aws-p5.48xlarge", "cpu-node", "dgx-a100", "dgx-h100", "workstation")
TWO: dict[str, Any] = {
    "format": "l3-host",
    "version": 1,
    "name": "two GPUs behind one switch",
    "cores": 4,
    "disk": 1e9,
    "gpu": "a GPU",
    "gpus": 2,
    "upload": 2e9,
    "switch": 1.5e9,
    "decode": {"rans": 4e9, "packed": 8e9},
    "decode_error": 0.3,
}


def solved(profile: Profile, formats: tuple[str, ...]) -> Solution:
    limits = Limits(profile.host, profile.training)
    return solve(costs_of(profile, limits, formats), limits)


def solved_on(host: HostFile, formats: tuple[str, ...], **changes: Any) -> Solution:
    return solved(on_host(make_profile(), replace(host, **changes)), formats)


TWO_GPUS = HostFile(**{key: TWO[key] for key in TWO.keys() - {"format", "version"}})


def host_of(**changes: Any) -> HostFile:
    return replace(TWO_GPUS, **changes)


def test_the_hosts_that_ship() -> None:
    assert tuple(host_names()) == SHIPPED
    for name in SHIPPED:
        assert solved(on_host(make_profile(), read_host(name)), ("source", "rans")).rate > 0


def test_each_number_of_a_host_that_ships_has_a_source_and_a_date() -> None:
    folder = Path(read_host.__code__.co_filename).with_name("hosts")
    for name in SHIPPED:
        host = json.loads((folder / f"{name}.json").read_text())
        numbers = {key for key, value in host.items() if isinstance(value, (int, float))}
        numbers |= {f"decode.{coding}" for coding in host.get("decode", {})}
        sources = host["sources"]
        assert numbers - {"version"} == sources.keys(), name
        for field, source in sources.items():
            assert re.search(r"\b20[12]\d\b", source), f"{name}: {field} has no date"
            assert re.match(r"assumed|predicted|.*\w\.\w+/|.*, 20\d\d", source), f"{name}: {field}"
            assert not field.startswith("decode") or re.match("predicted|assumed", source)
        assert host.get("decode_error", 1) >= 0.3


def test_gpus_share_cores_and_disk() -> None:
    """Two GPUs with slow decoders: twice what one decodes, until something shared binds."""
    rates = [
        solved_on(host_of(disk=None, gpus=count, decode={"rans": 0.4e9}, cores=0.5), ("rans",)).rate
        for count in (1, 2)
    ]
    assert rates[1] == pytest.approx(2 * 0.4e9 / RAW + 0.5 / 0.003745, rel=0.2)
    assert rates[1] > 1.5 * rates[0]


def test_a_switch_binds_the_gpus_behind_it() -> None:
    """Pixels that cores decode fill the switch, at 1.5 GB/s to each GPU, not the links at 2."""
    host = host_of(disk=None, cores=1000)
    found = solved_on(host, ("stored",))
    assert found.rate == pytest.approx(3e9 / RAW, rel=0.01)
    assert [name for name, dual in found.binding.items() if dual > 0.5] == ["switch"]
    assert solved_on(host, ("stored",), switch=None).rate == pytest.approx(4e9 / RAW, rel=0.01)


def test_nodes_share_a_file_system() -> None:
    host = host_of(disk=None, network=1e9)
    alone = solved_on(host, ("packed",))
    assert solved_on(host, ("packed",), nodes=4).rate == pytest.approx(4 * alone.rate, rel=1e-3)
    shared = solved_on(host, ("packed",), nodes=4, file_system=2e9)
    assert shared.rate == pytest.approx(2 * alone.rate, rel=1e-3)
    assert max(shared.binding, key=lambda name: shared.binding[name]) == "file_system"


def test_the_host_of_the_page_is_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "liquid.md").read_text()
    (text,) = re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "host.json").write_text(text)
    assert read_host(tmp_path / "host.json").gpus == 2


def test_each_gpu_keeps_its_part_in_its_cache() -> None:
    """A data set of 0.53 GB as rans: what two GPUs, or two nodes of them, hold is not read."""
    host = host_of(gpu_cache=0.14e9, disk=1e8, cores=1000)
    half = solved_on(host, ("rans",))
    assert 1e8 / half.rate / 526_316 == pytest.approx(1 - 0.28 / 0.526, abs=0.01)
    assert half.binding["disk"] > 0.9
    assert solved_on(host, ("rans",), nodes=2).binding.get("disk", 0) < 0.1


def test_slower_gpus_take_longer() -> None:
    """Where decoding on the GPU binds, the rate follows what is predicted of it."""
    host = host_of(disk=None, cores=1)
    rates = [solved_on(host, ("rans",), decode={"rans": 1e8 * each}).rate for each in (0.7, 1.3)]
    gained = (1.3 - 0.7) * 2 * 1e8 / RAW
    assert rates[1] - rates[0] == pytest.approx(gained, rel=0.1)


def test_the_step_is_of_all_gpus() -> None:
    host = host_of(disk=None, train_rate=100.0)
    assert on_host(make_profile(), replace(host, nodes=3)).training == Training(600.0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cores": float("nan")}, "cores must be a number of at least 0, not nan"),
        ({"cores": 0}, "cores of the host must be above 0"),
        ({"disk": -1}, "disk must be a number of at least 0, not -1"),
        ({"network": "fast"}, "network must be float, not str"),
        ({"nodes": 0}, "nodes of the host must be above 0"),
        ({"file_system": float("inf")}, "file_system must be a number of at least 0, not inf"),
        ({"train_rate": 0}, "train_rate above 0"),
        ({"disc": 1e9}, "unknown field disc"),
        ({"decode": {}}, "decode is empty"),
        ({"decode": {"png": 1e9}}, "decode['png']"),
        ({"decode_error": 1}, "decode_error must be below 1"),
        ({"format": "l3-plan"}, "not a description of a host but a plan"),
        ({"version": 2}, "version 2"),
    ],
)
def test_a_host_that_makes_no_sense_is_refused(
    change: dict[str, Any], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, profile = tmp_path / "host.json", tmp_path / "profile.json"
    path.write_text(json.dumps({**TWO, **change}))
    profile.write_text(make_profile().to_json())
    with pytest.raises(UsageError) as caught:
        read_host(path)
    assert says in str(caught.value)
    assert main(["plan", str(profile), "-o", str(tmp_path / "plan.json"), "--host", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"l3: {path}: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize("name", ["no-such-host", "no-such-file.json"])
def test_a_host_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        read_host(name)


def run(profile: Profile, tmp_path: Path, *arguments: str) -> int:
    path = tmp_path / "profile.json"
    path.write_text(profile.to_json())
    return main(["plan", str(path), "-o", str(tmp_path / "plan.json"), "--overwrite", *arguments])


def test_the_command_plans_for_a_host_that_ships(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--host", "dgx-a100", "--nodes", "8", "--file-system", "1GB/s", "--gpu-cache", "0"]
    assert run(make_profile(), tmp_path, *arguments) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "bound by the shared file system (100%)" in said
    assert "8 x A100 SXM4 40 GB: nothing was measured there" in said
    assert "its GPUs may decode 30% slower or faster than predicted" in said


def test_cores_decode_what_a_host_has_no_gpu_rate_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = {"source": (100e3, 2e-3), "jpeg": (86e3, 1e-3)}
    assert run(make_profile(table), tmp_path, "--host", "dgx-a100", "--formats", "jpeg") == 0
    assert read_plan(tmp_path / "plan.json").predicted.shares.keys() == {"jpeg@cpu"}
    assert "it has no GPU rate for jpeg, which its cores decode" in capsys.readouterr().out


def test_options_change_the_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(make_profile(), tmp_path, "--host", "cpu-node", "--network", "unlimited") == 0
    assert read_plan(tmp_path / "plan.json").predicted.binding.keys() == {"cores"}
    assert run(make_profile(), tmp_path, "--host", "dgx-a100", "--device", "cpu") == 0
    shares = read_plan(tmp_path / "plan.json").predicted.shares
    assert all(key.endswith("@cpu") for key in shares)
    assert "its GPUs may decode" not in capsys.readouterr().out
