"""A round trip that is longer than a wait for an answer ends in silence, too."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import pytest

from decaysketch.monitor.frequent import FrequentHub, FrequentSite, default_bound
from decaysketch.monitor.rounds import RoundHub, RoundSite, longer
from decaysketch.monitor.safe import SelfJoinZone

NAMES = ("a", "b")
ONE_WAY = [0.5, 0.99, 1.01, 2.0, 15.0]  # seconds; a site waits for 2


class Link:
    """Messages that arrive so long after they were sent."""

    def __init__(self, delay: float, jitter: float = 0.0) -> None:
        self._delay, self._jitter = delay, jitter
        self._rng = np.random.default_rng(4)
        self._under_way: list[Any] = []
        self.sent: list[float] = []

    def send(self, now: float, to: str, message: Any) -> None:
        self.sent.append(now)
        late = self._delay + self._jitter * float(self._rng.random())
        heapq.heappush(self._under_way, (now + late, len(self.sent), to, message))

    def arrived(self, now: float) -> list[tuple[str, Any]]:
        found = []
        while self._under_way and self._under_way[0][0] <= now + 1e-9:
            found.append(heapq.heappop(self._under_way)[2:])
        return found


@pytest.mark.parametrize("jitter", [0.0, 0.7])
@pytest.mark.parametrize("delay", ONE_WAY)
def test_rounds_fall_silent(delay: float, jitter: float) -> None:
    """Counters change for 100 s. Before, a site asked once a second for ever from 1 s of delay on,
    and stayed beyond its bound although the hub had granted more."""

    def zone(estimate: Any) -> SelfJoinZone:
        return SelfJoinZone(estimate, 0.1)

    hub = RoundHub(NAMES, zone, (1, 2, 8))
    sites = {name: RoundSite(name, zone, 16) for name in NAMES}
    link, rng = Link(delay, jitter), np.random.default_rng(1)
    for tick in range(8_000):
        now = tick / 10
        if tick < 1_000:
            for row in range(2):
                sites["a"].add(int(row * 8 + rng.integers(8)), 1.0)
        for site in sites.values():
            message = site.due(now)
            if message is not None:
                link.send(now, "hub", message)
        for to, told in hub.due(now):
            link.send(now, to, told)
        for to, message in link.arrived(now):
            if to == "hub":
                for other, answer in hub.receive(message, now):
                    link.send(now, other, answer)
            else:
                sites[to].receive(message, now)
    assert sum(at > 600 for at in link.sent) == 0
    assert all(site.phi <= site.bound + 1e-12 for site in sites.values())
    assert hub.state(800.0).certain


@pytest.mark.parametrize("jitter", [0.0, 0.7])
@pytest.mark.parametrize("delay", ONE_WAY)
def test_frequent_items_fall_silent(delay: float, jitter: float) -> None:
    """As above, where one item comes at both sites for 100 s."""
    threshold, theta = 400.0, 0.2
    default = default_bound(threshold, theta, len(NAMES))
    hub = FrequentHub(NAMES, threshold, theta)
    sites = {name: FrequentSite(name, 4, default) for name in NAMES}
    link, cells = Link(delay, jitter), (1, 3)
    for tick in range(8_000):
        now = tick / 10
        if tick < 1_000:
            site = sites[NAMES[tick % 3 == 0]]
            for cell in cells:
                site.add(cell, 1.0)
            site.arrived("x", cells)
        for site in sites.values():
            for report in site.due(now):
                link.send(now, "hub", report)
        for to, told in hub.due(now):
            link.send(now, to, told)
        for to, message in link.arrived(now):
            if to == "hub":
                for other, answer in hub.receive(message, cells, now):
                    link.send(now, other, answer)
            else:
                sites[to].receive(message, now)
    assert sum(at > 600 for at in link.sent) == 0
    assert hub.frequent == {"x"}


def test_each_wait_is_twice_as_long_as_the_last() -> None:
    assert [longer(2.0, tries) for tries in (0, 1, 2, 3, 4)] == [2.0, 2.0, 4.0, 8.0, 16.0]
    assert longer(2.0, 1_000_000) == 4_096.0
