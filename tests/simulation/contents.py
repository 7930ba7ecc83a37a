"""What is posted, of every family, and what the library builds from all of it at once.

Capacities are tiny, so that every level overflows and has a watermark. A :class:`Body` is a delta:
a complete sketch of some observations. What a stream must hold in the end is built here in one go
from the observations of its bodies, without any body being read or merged.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from random import Random
from typing import Any, NamedTuple

from api.journal.log import Interval
from decaysketch import DecaySketch, IntegralDecaySketch, SketchParams, decay
from decaysketch.asyncwindow import MedianParams, MedianSampler, SumParams, SumSampler
from decaysketch.ecm import ECMCollection, ECMParams
from decaysketch.families import Recipe, recipe_of
from decaysketch.series import SeriesParams, SeriesSketch

__all__ = ["KINDS", "START", "Body", "Kind", "Observation", "Rows"]

START = 100_000  # the first time, in seconds


class Observation(NamedTuple):
    """What a sensor saw."""

    id: int
    value: float
    weight: int
    time: int


@dataclass(frozen=True, eq=False)
class Body:
    """What a gateway posts.

    Attributes:
        content: bytes of the sketch.
        observations: that it was built from.
        now: that the sketch was told.
        interval: numbers of the source, where the family has these.
        site: whose state it is, where the family has such.
        epoch: of the site.
        batches: how many of the observations the site counted at a time; all at once if not given.
    """

    source: str
    content: bytes = field(repr=False)
    observations: tuple[Observation, ...] = field(repr=False)
    now: int
    interval: Interval | None = None
    site: str = ""
    epoch: int = 1
    batches: tuple[int, ...] = ()

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the content."""
        return hashlib.sha256(self.content).digest()


@dataclass(frozen=True, eq=False)
class Rows:
    """What a gateway posts that builds no sketch: rows that the service counts for it.

    Attributes:
        content: a line of JSON a row.
        observations: that these are.
        interval: numbers of the source.
    """

    source: str
    content: bytes = field(repr=False)
    observations: tuple[Observation, ...] = field(repr=False)
    interval: Interval

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of all that is sent."""
        numbers = f"{self.interval.first} {self.interval.next} "
        return hashlib.sha256(numbers.encode() + self.content).digest()


class Kind(ABC):
    """One family with parameters.

    Attributes:
        numbered: whether a body has an interval of numbers.
        sited: whether a gateway is a site, each body the whole state of it, and two that are not of
            one history contradict each other.
    """

    name: str
    recipe: Recipe
    numbered = False
    sited = False

    def observe(self, draw: Random, number: int, now: int) -> Observation:
        """What a sensor sees; often late."""
        late = int(draw.expovariate(1 / 40)) if draw.random() < 0.5 else 0
        return Observation(number, float(draw.randrange(6)), draw.randint(1, 3), now - late)

    def body(self, source: str, seen: Sequence[Observation], now: int, first: int) -> Body:
        """A delta of what a gateway saw, the first of which has this number."""
        interval = Interval(first, first + len(seen)) if self.numbered else None
        content = self.build(source, seen, now, first).to_bytes()
        return Body(source, content, tuple(seen), now, interval)

    @abstractmethod
    def build(self, source: str, seen: Sequence[Observation], now: int, first: int) -> Any:
        """A sketch of its own."""

    @abstractmethod
    def all_of(self, bodies: Iterable[Body]) -> Any:
        """The sketch of everything in these bodies, built in one go."""

    def length(self, body: Body) -> tuple[int, int]:
        """Of a history: its last time, and how much it counts."""
        return max(each.time for each in body.observations), sum(
            each.weight for each in body.observations
        )


class _Decay(Kind):
    name = "decay"

    def __init__(self) -> None:
        self.params = SketchParams(
            max_weight=3, id_bits=16, capacity=8, seed=77, time_unit="s", value_type="float64"
        )
        self.recipe = recipe_of(self.params)

    def build(self, source: str, seen: Sequence[Observation], now: int, first: int) -> Any:
        sketch = DecaySketch(self.params)
        if seen:
            sketch.update(*_columns(seen))
        return sketch

    def all_of(self, bodies: Iterable[Body]) -> Any:
        return self.build("", [each for body in bodies for each in body.observations], 0, 0)


class _Series(Kind):
    """A few series of a few devices. A value is an attribute too."""

    name = "series"

    def __init__(self) -> None:
        self.params = SeriesParams(
            max_weight=3, id_bits=40, capacity=8, resolution=5, seed=82, attributes="job"
        )
        self.recipe = recipe_of(self.params)

    def build(self, source: str, seen: Sequence[Observation], now: int, first: int) -> Any:
        sketch = SeriesSketch(self.params)
        if seen:
            values, weights, times, ids = _columns(seen)
            jobs = [f"j{value:.0f}" for value in values]
            ids = [each % 7 for each in ids]
            entities = [each // 2 for each in ids]
            sketch.update(values, weights, times, ids, entities=entities, attributes={"job": jobs})
        return sketch

    def all_of(self, bodies: Iterable[Body]) -> Any:
        return self.build("", [each for body in bodies for each in body.observations], 0, 0)


class _Integral(Kind):
    name = "integral"

    def __init__(self) -> None:
        self.params = SketchParams(
            max_weight=3, id_bits=16, capacity=8, seed=78, time_unit="s", value_type="float64"
        )
        self.decay = decay.integral.exponential(half_life=60)
        self.recipe = recipe_of(self.params, self.decay)

    def build(self, source: str, seen: Sequence[Observation], now: int, first: int) -> Any:
        sketch = IntegralDecaySketch(self.params, self.decay)
        if seen:
            sketch.update(*_columns(seen), now=now)
        return sketch

    def all_of(self, bodies: Iterable[Body]) -> Any:
        every = list(bodies)
        seen = [each for body in every for each in body.observations]
        return self.build("", seen, max((body.now for body in every), default=0), 0)


class _Sampler(Kind):
    numbered = True
    sampler: type[Any]
    params: Any

    def build(self, source: str, seen: Sequence[Observation], now: int, first: int) -> Any:
        sampler = self.sampler(self.params, source=source)
        self._feed(sampler, source, seen, first)
        sampler.advance(now)
        return sampler

    def all_of(self, bodies: Iterable[Body]) -> Any:
        sampler = self.sampler(self.params, source="all")
        for body in bodies:
            assert body.interval is not None
            self._feed(sampler, body.source, body.observations, body.interval.first)
            sampler.advance(body.now)
        return sampler

    @abstractmethod
    def values(self, seen: Sequence[Observation]) -> list[Any]:
        """What is sampled."""

    def _feed(self, sampler: Any, source: str, seen: Sequence[Observation], first: int) -> None:
        times, numbers = [each.time for each in seen], list(range(first, first + len(seen)))
        sampler.update(self.values(seen), times, numbers, source=source)


class _Sum(_Sampler):
    name = "sum"
    sampler = SumSampler

    def __init__(self) -> None:
        self.params = SumParams(max_sum=500, capacity=8, max_window=150, seed=79)
        self.recipe = recipe_of(self.params)

    def values(self, seen: Sequence[Observation]) -> list[Any]:
        return [each.weight for each in seen]


class _Median(_Sampler):
    name = "median"
    sampler = MedianSampler

    def __init__(self) -> None:
        self.params = MedianParams(max_count=500, capacity=8, max_window=150, seed=80)
        self.recipe = recipe_of(self.params)

    def values(self, seen: Sequence[Observation]) -> list[Any]:
        return [each.value for each in seen]


class _ECM(Kind):
    """Gateways are sites, which count what reaches them; a value is a key."""

    name = "ecm"
    sited = True

    def __init__(self) -> None:
        self.params = ECMParams(width=2, depth=1, slots=2, seed=81)
        self.recipe = recipe_of(self.params)

    def observe(self, draw: Random, number: int, now: int) -> Observation:
        return super().observe(draw, number, now)._replace(time=now)  # else it comes at its turn

    def body(self, source: str, seen: Sequence[Observation], now: int, first: int) -> Body:
        content = self.build(source, seen, now, first).to_bytes()
        return Body(source, content, tuple(seen), now, site=source)

    def build(self, source: str, seen: Sequence[Observation], now: int, first: int) -> Any:
        return self._counted(source, 1, [seen])

    def rows(self, source: str, seen: Sequence[Observation], first: int) -> Rows:
        """Of what a gateway saw that counts nothing itself."""
        lines = [
            json.dumps({"key": int(each.value), "time": each.time, "weight": each.weight})
            for each in seen
        ]
        interval = Interval(first, first + len(seen))
        return Rows(source, "\n".join(lines).encode(), tuple(seen), interval)

    def after(self, before: Body | None, rows: Rows, epoch: int) -> Body:
        """The state of a site of the service that counts these rows on top of what it counted."""
        seen, batches = ((), ()) if before is None else (before.observations, before.batches)
        seen, batches = (*seen, *rows.observations), (*batches, len(rows.observations))
        body = Body(
            rows.source,
            b"",
            seen,
            0,
            rows.interval,
            f"{rows.source} in the service",
            epoch,
            batches,
        )
        return replace(body, content=self._of(body).to_bytes())

    def all_of(self, bodies: Iterable[Body]) -> Any:
        """Of each site the history that is longest; of two that are as long, the first."""
        newest: dict[tuple[str, int], Body] = {}
        for body in bodies:
            held = newest.get((body.site, body.epoch))
            if held is None or self.length(held) < self.length(body):
                newest[body.site, body.epoch] = body
        joined = ECMCollection(self.params)
        for body in newest.values():
            joined.merge(self._of(body))
        return joined

    def _of(self, body: Body) -> Any:
        """A state, counted anew in the order in which its site counted."""
        left = iter(body.observations)
        batches = [list(islice(left, size)) for size in body.batches or [len(body.observations)]]
        return self._counted(body.source if body.batches else body.site, body.epoch, batches)

    def _counted(self, source: str, epoch: int, batches: Iterable[Sequence[Observation]]) -> Any:
        sketch = ECMCollection(self.params)
        for seen in batches:
            if seen:
                keys = [int(each.value) for each in seen]
                times, weights = [each.time for each in seen], [each.weight for each in seen]
                sketch.update(keys, times, weights, source=source, epoch=epoch)
                sketch.state()  # what waits is counted, and what comes later is late
        return sketch


def _columns(seen: Sequence[Observation]) -> tuple[list[Any], ...]:
    ids, values, weights, times = zip(*seen, strict=True)
    return list(values), list(weights), list(times), list(ids)


KINDS: dict[str, Kind] = {
    kind.name: kind for kind in (_Decay(), _Integral(), _Sum(), _Median(), _ECM(), _Series())
}
