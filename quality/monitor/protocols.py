"""Protocols over links that lose nothing and take no time, and what each of them sends.

A message is counted with its numbers (8 bytes each; counters, which are whole, 4, or 6 with their
place where few changed) and 40 bytes of headers, which is what the authors' public code counts. The
*naive* way is a message of 8 bytes for each arrival.

:class:`Functional` is functional geometric monitoring (Samoladas and Garofalakis, EDBT 2019), as a
baseline: sites tell the hub how many *quanta* their phi rose by; after n quanta the hub asks for
phi and halves the quantum, until 1 % of what the round began with is left; then a new round.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from decaysketch.monitor.rounds import Collect, Offer, Poll, RoundHub, RoundSite, Start, ZoneMaker
from decaysketch.monitor.safe import Drift, Zone
from quality.papers.geometric import (
    Balance,
    Counters,
    Full,
    GeometricHub,
    GeometricSite,
    Summary,
    TestMaker,
)

__all__ = ["HEADER", "NAIVE", "Budgets", "Functional", "Geometric", "Protocol", "payload_of"]

HEADER: Final = 40
NAIVE: Final = HEADER + 8  # bytes of an arrival
_LEFT = 0.01  # of phi(0): with less a round of the functional method ends


def _cells(changed: int, size: int) -> int:
    """Bytes of counters of which so many changed."""
    return min(4 * size, 6 * changed)


def payload_of(message: Any, size: int) -> int:
    """Return the bytes of a message of rounds or frequent items, without headers.

    Args:
        size: number of counters.
    """
    if isinstance(message, Offer):
        return _cells(len(message.cells), size)
    if isinstance(message, Start):
        return 4 * size
    return 0 if isinstance(message, Poll | Collect) else 8


class Protocol(ABC):
    """A monitor of one function, with all of its sites.

    Attributes:
        messages, payload: what was sent, and its bytes without headers.
        first_phases, second_phases: resolved, or tried, without counters; with all of them.
    """

    def __init__(self) -> None:
        self.messages = self.payload = 0
        self.first_phases = self.second_phases = 0

    @property
    def sent(self) -> int:
        """Bytes with headers."""
        return self.payload + HEADER * self.messages

    def send(self, payload: int, messages: int = 1) -> None:
        self.messages += messages
        self.payload += payload * messages

    @abstractmethod
    def add(self, site: int, cell: int, by: int) -> None:
        """A counter of a site moved."""

    @abstractmethod
    def begin(self) -> None:
        """The first round; what it sends is not counted."""

    @abstractmethod
    def settle(self, site: int) -> None:
        """All that a site's move has in its wake."""

    @property
    @abstractmethod
    def value(self) -> float:
        """f of the reference: of the average."""


class Budgets(Protocol):
    """:mod:`decaysketch.monitor.rounds`."""

    def __init__(self, sites: int, zone_of: ZoneMaker, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self._size = math.prod(shape)
        self.sites = [RoundSite(str(i), zone_of, self._size) for i in range(sites)]
        self.hub = RoundHub([site.name for site in self.sites], zone_of, shape)

    def add(self, site: int, cell: int, by: int) -> None:
        self.sites[site].add(cell, by)

    def begin(self) -> None:
        for site in range(len(self.sites)):
            self.settle(site)
        self.messages = self.payload = 0
        self.hub.polls, self.hub.rounds = 0, 0

    def settle(self, site: int) -> None:
        first = self.sites[site].due(0.0)
        if first is None:
            return
        up, down = deque([first]), deque[tuple[str, Any]]()
        while up or down:
            if up:
                message = up.popleft()
                self.send(payload_of(message, self._size))
                down += self.hub.receive(message, 0.0)
                continue
            to, answer = down.popleft()
            self.send(payload_of(answer, self._size))
            self.sites[int(to)].receive(answer, 0.0)
            reply = self.sites[int(to)].due(0.0)
            if reply is not None:
                up.append(reply)
        self.first_phases, self.second_phases = self.hub.polls, self.hub.rounds

    @property
    def value(self) -> float:
        assert self.hub.zone is not None
        return self.hub.zone.value


class Geometric(Protocol):
    """:mod:`quality.papers.geometric`."""

    def __init__(self, sites: int, test_of: TestMaker, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self._size = math.prod(shape)
        self.sites = [GeometricSite(str(i), test_of, self._size) for i in range(sites)]
        self.hub = GeometricHub([site.name for site in self.sites], test_of, shape)

    def add(self, site: int, cell: int, by: int) -> None:
        self.sites[site].add(cell, by)

    def begin(self) -> None:
        self._deliver(self.hub.begin())
        self.messages = self.payload = 0

    def settle(self, site: int) -> None:
        found = self.sites[site].due()
        while found is not None:
            self._up(found)
            self._deliver(self.hub.receive(found))
            found = self.sites[site].due()
        self.first_phases, self.second_phases = self.hub.first_phases, self.hub.second_phases

    def _up(self, message: Summary | Counters) -> None:
        if isinstance(message, Counters) or message.x.size == self._size:
            self.send(_cells(message.changed, self._size))
        else:
            self.send(4 * message.x.size)

    def _deliver(self, messages: Sequence[tuple[str, Any]]) -> None:
        down = deque(messages)
        while down:
            to, message = down.popleft()
            if isinstance(message, Balance | Full):
                carried = message.mean if isinstance(message, Balance) else message.estimate
                self.send(4 * carried.size)
            else:
                self.send(0)
            reply = self.sites[int(to)].receive(message)
            if reply is not None:
                self._up(reply)
                down += self.hub.receive(reply)

    @property
    def value(self) -> float:
        assert self.hub.test is not None
        return self.hub.test.zone.value


class Functional(Protocol):
    """Functional geometric monitoring."""

    def __init__(self, sites: int, zone_of: ZoneMaker, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self._zone_of, self._shape, self._sites = zone_of, shape, sites
        self._values = np.zeros((sites, math.prod(shape)))
        self._touched: list[set[int]] = [set() for _ in range(sites)]
        self._zone: Zone | None = None
        self._drifts: list[Drift] = []
        self._base = [0.0] * sites  # phi as the subround began
        self._told = [0] * sites  # quanta
        self._quantum = math.inf

    def add(self, site: int, cell: int, by: int) -> None:
        self._values[site, cell] += by
        self._touched[site].add(cell)
        if self._drifts:
            self._drifts[site].put(cell, float(self._values[site, cell]))

    def begin(self) -> None:
        self._zone = zone = self._zone_of(self._values.mean(axis=0).reshape(self._shape))
        self._drifts = [zone.follow(values) for values in self._values.tolist()]
        self._touched = [set() for _ in self._touched]
        self._base = [zone.rest] * self._sites
        self._told = [0] * self._sites
        self._quantum = -zone.rest / 2

    def settle(self, site: int) -> None:
        zone, sites = self._zone, self._sites
        assert zone is not None
        rose = self._drifts[site].phi() - self._base[site]
        if rose < self._quantum * (self._told[site] + 1):
            return
        self._told[site] = math.floor(rose / self._quantum)
        self.send(4)
        if sum(self._told) <= sites:
            return
        self.first_phases += 1
        self.send(0, sites)
        self.send(4, sites)
        self._base = [drift.phi() for drift in self._drifts]
        left = -sum(self._base)
        if left > -_LEFT * sites * zone.rest:
            self._told, self._quantum = [0] * sites, left / (2 * sites)
            self.send(4, sites)
            return
        self.second_phases += 1
        size = math.prod(self._shape)
        self.send(0, sites)
        for touched in self._touched:
            self.send(_cells(len(touched), size))
        self.send(4 * size, sites)
        self.begin()

    @property
    def value(self) -> float:
        assert self._zone is not None
        return self._zone.value
