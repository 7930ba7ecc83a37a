"""Small seeded streams over sites, and a network that loses, copies, delays and reorders."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt

from decaysketch.monitor.rounds import FromSite, RoundHub, RoundSite, ToSite
from decaysketch.monitor.safe import SelfJoinZone

DEPTH, WIDTH = 2, 7
SHAPE = (1, DEPTH, WIDTH)
SIZE = DEPTH * WIDTH


def counters(rng: np.random.Generator, *shape: int, mean: float = 20.0) -> npt.NDArray[np.float64]:
    return rng.poisson(mean, shape).astype(np.float64)


def moves(seed: int, sites: int, events: int, window: int) -> Iterator[tuple[int, int, int, bool]]:
    """(site, key, 1 or -1, whether the first window is over): a window in numbers of events, whose
    heaviest key changes halfway."""
    rng = random.Random(seed)
    shares = [1 / (1 + rank) for rank in range(40)]
    past: list[tuple[int, int]] = []
    for at in range(events):
        if at >= window:
            site, key = past[at - window]
            yield site, key, -1, True
        (key,) = rng.choices(range(40), shares)
        past.append((rng.randrange(sites), (key + 7 * (2 * at // events)) % 40))
        yield *past[-1], 1, at >= window


def cells_of(key: int, depth: int = DEPTH, width: int = WIDTH) -> list[int]:
    rng = random.Random(key)
    return [row * width + rng.randrange(width) for row in range(depth)]


class Faults:
    """Hub and sites of one monitor in virtual time, over a network of faults."""

    def __init__(
        self, seed: int, sites: int, *, loss: float, copies: float, delay_s: float,
        lease_s: float = 60.0, theta: float = 0.3,
    ) -> None:  # fmt: skip
        self.rng = random.Random(seed)
        self.loss, self.copies, self.delay_s, self.lease_s = loss, copies, delay_s, lease_s
        self.zone_of = partial(SelfJoinZone, theta=theta)
        self.names = [f"s{i}" for i in range(sites)]
        self.sites = {name: self.site(name, 0) for name in self.names}
        self.hub = RoundHub(self.names, self.zone_of, SHAPE, retry_s=1.0, lease_s=lease_s)
        self.now = 0.0
        self._flights: list[tuple[float, int, str, FromSite | ToSite]] = []
        self._number = 0

    def site(self, name: str, inc: int) -> RoundSite:
        return RoundSite(name, self.zone_of, SIZE, inc=inc, retry_s=1.0, lease_s=self.lease_s)

    def _send(self, to: str, message: FromSite | ToSite) -> None:
        for _ in range(1 + (self.rng.random() < self.copies)):
            if self.rng.random() >= self.loss:
                self._number += 1
                arrives = self.now + self.rng.expovariate(1.0 / self.delay_s)
                heapq.heappush(self._flights, (arrives, self._number, to, message))

    def crash(self, name: str) -> None:
        """The process starts anew; its counters are durable, all else is lost."""
        old = self.sites[name]
        self.sites[name] = self.site(name, old.inc + 1)
        self.sites[name].become(old.values)

    def run(self, until: float, each: Callable[[], None] | None = None) -> None:
        """Steps of 50 ms."""
        while self.now < until:
            self.now += 0.05
            for site in self.sites.values():
                said = site.due(self.now)
                if said is not None:
                    self._send("hub", said)
            for name, message in self.hub.due(self.now):
                self._send(name, message)
            while self._flights and self._flights[0][0] <= self.now:
                _, _, to, message = heapq.heappop(self._flights)
                if to == "hub":
                    for name, answer in self.hub.receive(message, self.now):  # type: ignore[arg-type]
                        self._send(name, answer)
                else:
                    self.sites[to].receive(message, self.now)  # type: ignore[arg-type]
            if each is not None:
                each()

    @property
    def truth(self) -> float:
        total = np.sum([site.values for site in self.sites.values()], axis=0)
        return SelfJoinZone.of(total.reshape(SHAPE))

    def under_way(self) -> bool:
        """Whether any site is beyond its bound, or knows that it is in no round of the hub's."""
        return any(
            site.epoch != self.hub.epoch or site.phi > site.bound for site in self.sites.values()
        )
