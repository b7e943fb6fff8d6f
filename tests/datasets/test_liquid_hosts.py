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
from l3dali.datasets.liquid.hosts import HostFile, host_names, on_host, parse_host, read_host
from l3dali.datasets.liquid.model import Limits, Solution, solve
from l3dali.datasets.liquid.plan import make_model
from l3dali.datasets.liquid.profile import Profile, Sample, Training
from l3dali.errors import UsageError

RAW = 3 * PIXELS
SHIPPED = ("aws-g4dn.xlarge", "aws-p5.48xlarge", "cpu-node", "dgx-a100", "dgx-h100", "workstation")
TWO = {
    "format": "l3-host",
    "version": 1,
    "name": "two GPUs behind one switch",
    "cores": 4,
    "disk": 1e9,
    "gpus": {
        "name": "a GPU",
        "count": 2,
        "upload": 2e9,
        "decode": {"rans": 4e9, "packed": 8e9},
        "decode_error": 0.3,
    },
    "switches": [{"gpus": [0, 1], "upload": 3e9}],
}


def solved(host: HostFile, formats: tuple[str, ...], **changes: Any) -> Solution:
    profile = on_host(make_profile(), replace(host, **changes))
    limits = Limits(profile.host, profile.training)
    return solve(make_model(profile, formats, profile.host).costs, limits)


def host_of(**changes: Any) -> HostFile:
    return parse_host(json.dumps({**TWO, **changes}))


def test_samples_are_not_walked_for_each_group() -> None:
    """16,000 groups took 44 s."""
    profile, reads = make_profile(), 0

    class Counted(Sample):
        def __getattribute__(self, name: str) -> Any:
            nonlocal reads
            reads += name == "raw_bytes"
            return super().__getattribute__(name)

    groups = {str(i): next(iter(profile.groups.values())) for i in range(50)}
    sample = Counted(**vars(profile.samples[0]))
    samples: list[Sample] = [replace(sample, group=name) for name in groups]
    found = on_host(replace(profile, groups=groups, samples=samples), parse_host(json.dumps(TWO)))
    assert found.groups.keys() == groups.keys()
    assert reads < 20 * len(groups)


def test_the_hosts_that_ship() -> None:
    assert tuple(host_names()) == SHIPPED
    for name in SHIPPED:
        profile = on_host(make_profile(), read_host(name))
        assert (
            solve(
                make_model(profile, ("source", "rans"), profile.host).costs, Limits(profile.host)
            ).rate
            > 0
        )


def test_each_number_of_a_host_that_ships_has_a_source_and_a_date() -> None:
    def numbers(value: object, where: str = "") -> list[str]:
        if isinstance(value, dict):
            return [
                each
                for key, inner in value.items()
                if key not in ("version", "sources")
                for each in numbers(inner, f"{where}.{key}".lstrip("."))
            ]
        if isinstance(value, list):  # of alike
            return sorted({each for inner in value for each in numbers(inner, where)})
        return [where] if isinstance(value, (int, float)) else []

    folder = Path(read_host.__code__.co_filename).with_name("hosts")
    for name in SHIPPED:
        host = json.loads((folder / f"{name}.json").read_text())
        wanted = {each.replace("switches.gpus", "switches") for each in numbers(host)}
        assert wanted == host["sources"].keys(), name
        for field, source in host["sources"].items():
            assert re.search(r"\b20[12]\d\b", source), f"{name}: {field} has no date"
            assert re.match(r"assumed|predicted|.*\w\.\w+/|.*, 20\d\d", source), f"{name}: {field}"
        if "gpus" in host:
            for coding in host["gpus"]["decode"]:
                assert re.match("predicted|assumed", host["sources"][f"gpus.decode.{coding}"])
            assert host["gpus"]["decode_error"] >= 0.3


def test_gpus_share_cores_and_disk() -> None:
    """Two GPUs with slow decoders: twice what one decodes, until something shared binds."""
    one = host_of(
        gpus={**TWO["gpus"], "count": 1},  # type: ignore[dict-item]
        switches=[{"gpus": [0], "upload": 3e9}],
        disk=None,
    )
    two = host_of(disk=None)
    slow = {"rans": 0.4e9}
    rates = [
        solved(host, ("rans",), cores=0.5, gpus=replace(host.gpus, decode=slow)).rate
        for host in (one, two)
        if host.gpus is not None
    ]
    assert rates[1] == pytest.approx(2 * 0.4e9 / RAW + 0.5 / 0.003745, rel=0.2)
    assert rates[1] > 1.5 * rates[0]


def test_a_switch_binds_the_gpus_behind_it() -> None:
    """Pixels that cores decode fill the switch, at 1.5 GB/s to each GPU, not the links at 2."""
    host = host_of(disk=None, cores=1000)
    found = solved(host, ("stored",))
    assert found.rate == pytest.approx(3e9 / RAW, rel=0.01)
    assert [name for name, dual in found.binding.items() if dual > 0.5] == ["switch"]
    apart = host_of(
        disk=None,
        cores=1000,
        switches=[{"gpus": [0], "upload": 3e9}, {"gpus": [1], "upload": 3e9}],
    )
    assert solved(apart, ("stored",)).rate == pytest.approx(4e9 / RAW, rel=0.01)


def test_nodes_share_a_file_system() -> None:
    host = host_of(disk=None, network=1e9)
    alone = solved(host, ("packed",))
    assert solved(host, ("packed",), nodes=4).rate == pytest.approx(4 * alone.rate, rel=1e-3)
    shared = solved(host, ("packed",), nodes=4, file_system=2e9)
    assert shared.rate == pytest.approx(2 * alone.rate, rel=1e-3)
    assert max(shared.binding, key=lambda name: shared.binding[name]) == "file_system"


def test_the_host_of_the_page_is_read() -> None:
    page = (ROOT / "docs" / "liquid.md").read_text()
    (text,) = re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert parse_host(text).gpus is not None


def test_a_file_system_takes_the_place_of_disks() -> None:
    """A node's own disks do not count where the data lies on a file system that nodes share."""
    host = host_of(disk=1e6, network=1e9)
    assert on_host(make_profile(), host).host.network is None
    there = on_host(make_profile(), replace(host, file_system=1e9)).host
    assert (there.disk, there.network) == (None, 1e9)


def test_each_gpu_keeps_its_part_in_its_cache() -> None:
    """A data set of 0.53 GB as rans: what two GPUs, or two nodes of them, hold is not read."""
    cached = {**TWO["gpus"], "cache": 0.14e9}  # type: ignore[dict-item]
    host = host_of(gpus=cached, disk=1e8, cores=1000)
    half = solved(host, ("rans",))
    assert 1e8 / half.rate / 526_316 == pytest.approx(1 - 0.28 / 0.526, abs=0.01)
    assert half.binding["disk"] > 0.9
    assert solved(host, ("rans",), nodes=2).binding.get("disk", 0) < 0.1


def test_slower_gpus_take_longer() -> None:
    """Where decoding on the GPU binds, the rate follows what is predicted of it."""
    host = host_of(disk=None, cores=1, gpus={**TWO["gpus"], "decode": {"rans": 1e8}})  # type: ignore[dict-item]
    rates = []
    for speed in (0.7, 1.3):
        profile = on_host(make_profile(), host, speed)
        costs = make_model(profile, ("rans",), profile.host).costs
        rates.append(solve(costs, Limits(profile.host)).rate)
    gained = (1.3 - 0.7) * 2 * 1e8 / RAW
    assert rates[1] - rates[0] == pytest.approx(gained, rel=0.1)


def test_the_step_is_of_all_gpus() -> None:
    host = host_of(disk=None, train_rate=100.0)
    assert on_host(make_profile(), replace(host, nodes=3)).training == Training(600.0, 0.0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cores": float("nan")}, "cores is nan"),
        ({"cores": 0}, "cores is 0"),
        ({"disk": 0}, "disk is 0"),
        ({"disk": -1}, "disk is -1"),
        ({"disk": 1e17}, "disk is 1e+17"),
        ({"network": "fast"}, "network is str"),
        ({"nodes": 0}, "nodes is 0"),
        ({"file_system": float("inf")}, "file_system is inf"),
        ({"train_rate": 0}, "train_rate is 0"),
        ({"efficiency": 3}, "efficiency is 3"),
        ({"disc": 1e9}, "disc is not known"),
        ({"switches": []}, "GPU 0 is behind no switch"),
        ({"switches": [{"gpus": [0], "upload": 1e9}]}, "GPU 1 is behind no switch"),
        ({"switches": [{"gpus": [0, 1, 1], "upload": 1e9}]}, "GPU 1 is behind 2 switches"),
        ({"switches": [{"gpus": [0, 1, 2], "upload": 1e9}]}, "there is no GPU 2"),
        ({"switches": [{"gpus": [0, 1], "upload": 0}]}, "switches[0].upload is 0"),
        ({"gpus": None}, "switches: the host has no gpus"),
        ({"gpus": {"name": "x", "count": 2}}, "gpus.upload is missing"),
        ({"gpus": {**TWO["gpus"], "count": 0}}, "gpus.count is 0"),  # type: ignore[dict-item]
        ({"gpus": {**TWO["gpus"], "decode": {}}}, "gpus.decode is empty"),  # type: ignore[dict-item]
        ({"gpus": {**TWO["gpus"], "decode": {"png": 1e9}}}, "unknown coding 'png'"),  # type: ignore[dict-item]
        ({"gpus": {**TWO["gpus"], "decode": {"rans": 0}}}, "gpus.decode['rans'] is 0"),  # type: ignore[dict-item]
        ({"gpus": {**TWO["gpus"], "decode_error": 1}}, "decode_error is 1"),  # type: ignore[dict-item]
        ({"format": "l3-plan"}, "this is a plan, not a description of a host"),
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


def test_the_name_of_a_host_stays_on_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "host.json"
    path.write_text(json.dumps({**TWO, "name": "a\33[2J\nb"}))
    assert run(make_profile(), tmp_path, "--host", str(path)) == 0
    assert "a\\x1b[2J\\nb: nothing was measured there" in capsys.readouterr().out


def test_a_host_of_many_entries_is_refused_at_once() -> None:
    """3 million switches took 15 s."""
    many = [{"gpus": [], "upload": 1e9}] * 40_000
    with pytest.raises(UsageError, match="a description of a host has at most 1048576 bytes"):
        parse_host(json.dumps(TWO | {"switches": many}))


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
    said = capsys.readouterr().out
    assert "on 8 nodes the shared file system binds" in said
    assert "8 x A100 SXM4 40 GB: nothing was measured there" in said
    assert "predicted, and may be 30% off: that changes nothing here" in said
    assert "as the rate is bound by the shared file system" in " ".join(said.split())
    assert run(make_profile(), tmp_path, *arguments, "--json") == 0
    low, high = json.loads(capsys.readouterr().out)["rate_span"]
    assert low == pytest.approx(high)  # decoding does not bind


def test_a_set_in_the_caches_of_gpus_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tiles of a few kB: two nodes of 115 core seconds plan each in 16 us and do nothing else."""
    monkeypatch.setattr("test_liquid_plan.PIXELS", 64 * 64)
    table = {"source": (8e3, 2e-4), "rans": (7e3, 1e-4), "packed": (8e3, 3e-5)}
    arguments = ["--host", "dgx-a100", "--nodes", "2", "--file-system", "10GB/s"]
    assert run(make_profile(table), tmp_path, *arguments) == 0
    said = capsys.readouterr().out
    assert "caution: the images fit into the caches of the GPUs" in said
    assert "predicted: 14,400,000 images/s" in said
    assert "14400000" not in said
    assert "as the rate is bound by the cores" in said
    assert run(make_profile(table), tmp_path, *arguments, "--gpu-cache", "0") == 0
    assert "caution" not in capsys.readouterr().out


def test_the_range_of_predicted_gpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = {**TWO, "disk": None, "gpus": {**TWO["gpus"], "decode": {"rans": 0.4e9}}}  # type: ignore[dict-item]
    (tmp_path / "host.json").write_text(json.dumps(slow))
    arguments = ["--host", str(tmp_path / "host.json"), "--formats", "rans", "--cores", "1"]
    assert run(make_profile(), tmp_path, *arguments) == 0
    assert re.search(r"30% off: [\d.,]+ to [\d.,]+ images/s", capsys.readouterr().out)


def test_options_change_the_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(make_profile(), tmp_path, "--host", "cpu-node", "--network", "unlimited", "--json") == 0
    )
    assert json.loads(capsys.readouterr().out)["binding"].keys() == {"cores"}
    assert run(make_profile(), tmp_path, "--host", "dgx-a100", "--device", "cpu", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert all(key.endswith("@cpu") for key in said["shares"])
    assert said["rate_span"] == []
