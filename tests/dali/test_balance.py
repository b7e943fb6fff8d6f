"""The balancer on simulated hosts: it finds the balance, stays there, and follows changes."""

from __future__ import annotations

import collections
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from l3dali.balance import Balancer, DecodeSums


@dataclass
class Host:
    """Decodes batches of 32; each was shared out when it was `delay` batches away."""

    cpu_sample_s: float
    gpu_sample_s: float
    gpu_batch_s: float = 0.0  # what a batch takes on a GPU that trains, however small
    noise: float = 0.0
    delay: int = 3
    batch_size: int = 32

    def balance(self) -> float:
        """The share at which both take equally long, as far as there is one."""
        share = (self.gpu_sample_s * self.batch_size + self.gpu_batch_s) / (
            (self.cpu_sample_s + self.gpu_sample_s) * self.batch_size
        )
        return min(1.0, share)

    def run(self, balancer: Balancer, batches: int, seed: int = 1) -> list[float]:
        """The share after each batch."""
        return list(self.steps(balancer, batches, seed))

    def steps(self, balancer: Balancer, batches: int, seed: int = 1) -> Iterator[float]:
        rng = random.Random(seed)
        under_way = collections.deque([balancer.share] * self.delay)
        sums = DecodeSums(0, 0.0, 0.0)
        for _ in range(batches):
            under_way.append(balancer.observe(sums))
            share = under_way.popleft()
            cpu, gpu = (rng.lognormvariate(0, self.noise) for _ in range(2))
            on_cores = share * self.batch_size
            sums = DecodeSums(
                sums.batches + 1,
                sums.cpu_seconds + cpu * on_cores * self.cpu_sample_s,
                sums.gpu_seconds
                + gpu * ((self.batch_size - on_cores) * self.gpu_sample_s + self.gpu_batch_s),
            )
            yield balancer.share


HOSTS = {
    "as fast": Host(1e-3, 1e-3),
    "slow cores": Host(40e-3, 1e-3),
    "slow GPU": Host(1e-3, 10e-3),
    "a GPU that trains": Host(4e-3, 0.5e-3, gpu_batch_s=50e-3),
    "microseconds": Host(3e-6, 1e-6),
    "minutes": Host(300.0, 100.0),
}
on_hosts = pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)


@on_hosts
@pytest.mark.parametrize("start", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("delay", [0, 3, 6])
def test_converges_and_stays(host: Host, start: float, delay: int) -> None:
    host = Host(**{**vars(host), "delay": delay})
    shares = host.run(Balancer(start), 2000)
    settled = shares[600:]
    assert all(abs(share - host.balance()) < 0.05 for share in settled)
    assert max(settled) - min(settled) < 0.03


@on_hosts
@pytest.mark.parametrize("seed", range(5))
def test_noise_does_not_carry_it_away(host: Host, seed: int) -> None:
    noisy = Host(**{**vars(host), "noise": 0.5})
    settled = noisy.run(Balancer(), 4000, seed)[800:]
    assert sum(settled) / len(settled) == pytest.approx(host.balance(), abs=0.05)
    assert max(settled) - min(settled) < 0.25


@on_hosts
def test_stays_within_bounds(host: Host) -> None:
    noisy = Host(**{**vars(host), "noise": 2.0})
    shares = noisy.run(Balancer(), 2000)
    assert all(0 <= share <= 1 for share in shares)
    steps = [abs(b - a) for a, b in itertools.pairwise(shares)]
    assert max(steps) <= Balancer.MAX_STEP


class Device:
    """An emulated GPU beside cores: its speed changes while batches are on their way."""

    def __init__(self, balancer: Balancer, host: Host) -> None:
        self.host = host
        self.shares = host.steps(balancer, 10_000)

    def run(self, batches: int, **changes: float) -> list[float]:
        """The shares of so many batches, after the host has changed."""
        for name, value in changes.items():
            setattr(self.host, name, value)
        return list(itertools.islice(self.shares, batches))


@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize(
    "speeds",
    [(1e-3, 4e-3, 0.5e-3), (0.2e-3, 10e-3, 0.2e-3), (10e-3, 1e-3, 10e-3)],
    ids=["slower, faster", "throttled", "freed"],
)
def test_settles_on_a_gpu_whose_speed_changes(speeds: tuple[float, ...], noise: float) -> None:
    """One balancer in one run: it settles after each change, and stays while nothing changes."""
    balancer = Balancer()
    device = Device(balancer, Host(4e-3, speeds[0], noise=noise))
    for speed in speeds:
        device.run(500, gpu_sample_s=speed)
        settled = device.run(500)
        near = 0.05 if not noise else 0.15
        assert all(abs(share - device.host.balance()) < near for share in settled)
        if not noise:
            assert max(settled) - min(settled) < 0.02
    assert balancer.share == settled[-1]


def test_nothing_to_decode_moves_nothing() -> None:
    balancer = Balancer(0.3)
    assert {balancer.observe(DecodeSums(i, 0.0, 0.0)) for i in range(100)} == {0.3}
    assert {balancer.observe(DecodeSums(99, 5.0, 1.0)) for _ in range(100)} == {0.3}


def test_looks_at_whole_windows_behind_what_was_under_way() -> None:
    seen: list[int] = []
    balancer = Balancer(0.5)
    for batch in range(60):
        before = balancer.share
        if balancer.observe(DecodeSums(batch, 0.0, float(batch))) != before:
            seen.append(batch)
    first = Balancer.SETTLING_BATCHES + Balancer.WINDOW_BATCHES
    assert seen[:3] == [first, 2 * first, 3 * first]


def test_same_measurements_same_shares() -> None:
    def run(make: Callable[[], Balancer]) -> list[float]:
        return Host(3e-3, 1e-3, noise=0.4).run(make(), 500, seed=7)

    assert run(Balancer) == run(Balancer)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_shares_out_of_range(share: float) -> None:
    with pytest.raises(ValueError, match="a share must be 0 to 1"):
        Balancer(share)
