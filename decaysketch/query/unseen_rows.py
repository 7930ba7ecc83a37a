"""The largest coefficient of an observation that was not retained.

A sampled band contains every observation at its times that its level selects. An observation that
is missing there would have counted ``1 / p`` times its coefficient. In a comparison the coefficient
depends on the time: ``alpha g1(t) - beta g2(t)``. A :class:`Grid` evaluates it over all sampled
bands, with or without rows. Its times are so close that neither decay changes by more than 2 % of
its largest hit between neighbours. Steps in a decay, such as the bounds of a window, are found
exactly: cells are divided until they are one time unit wide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from decaysketch.query import _unseen_native as _native

__all__ = ["ApartGrid", "Grid", "Reach"]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
Weights = Callable[[Int64Array], Float64Array]

_FINE = 0.02  # of the largest hit: a cell in which a decay changes by more is divided
_PARTS = 8  # of a divided cell
_ROUNDS = 22  # 8^22 > 2^63: enough for time units
_MOST = 1 << 14  # times of a grid
_FEW = 8  # gaps that a search finds one by one
_CHANCE = 4.0  # a gap is longer than that of chance with probability e^-4


class Reach(NamedTuple):
    """Sampled bands, as far as a query reaches them.

    Attributes:
        first, last: int64[b], the earliest and the latest time in each.
        hits: float64[b], the mass ``1 / p`` of a single hit, without decay.
    """

    first: Int64Array
    last: Int64Array
    hits: Float64Array

    def cut(self, time: int) -> Reach:
        """Return the same bands. A band with times up to ``time`` and later ones becomes two."""
        both = (self.first <= time) & (self.last > time)
        if not both.any():
            return self
        return Reach(
            np.concatenate([self.first, np.full(np.count_nonzero(both), time + 1)]),
            np.concatenate([np.where(both, time, self.last), self.last[both]]),
            np.concatenate([self.hits, self.hits[both]]),
        )

    def within(self, first: int | None, last: int | None) -> Reach:
        """Return the parts of the bands in the times ``first..last``. None: no bound."""
        begins = self.first if first is None else np.maximum(self.first, first)
        ends = self.last if last is None else np.minimum(self.last, last)
        met = begins <= ends
        return Reach(begins[met], ends[met], self.hits[met])

    def gaps(self, times: Int64Array, weight: float) -> Reach:
        """Return the parts of the bands without a row for longer than chance explains.

        Rows with one usual weight at a steady rate are seen at exponential distances, once time is
        measured by the chance to be seen. The longest among k + 1 such gaps is below ``log(k + 1) +
        4`` times the mean with probability 0.98. In a longer gap, observations came less often, or
        were so light that none was seen.

        Args:
            times: int64[n], of the rows.
            weight: a usual row weight.

        Complexity: O(n log n + b) for b bands.
        """
        if not len(self.hits):
            return self
        seen = -np.expm1(-weight / self.hits)  # the chance, by band
        ordered = np.sort(times[::-1], kind="stable")  # rows are latest first: nearly sorted
        fresh = np.ones(len(ordered), np.bool_)
        np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
        distinct = ordered[fresh]
        widths = _native.widths(distinct, self.first, self.last, seen)
        longest = np.flatnonzero(widths > _largest_of_chance(widths))
        starts = np.concatenate([[self.first.min()], distinct + 1])[longest]
        stops = np.concatenate([distinct - 1, [self.last.max()]])[longest]
        begins = np.maximum(self.first, starts[:, None])
        ends = np.minimum(self.last, stops[:, None])
        met = begins <= ends
        return Reach(begins[met], ends[met], np.broadcast_to(self.hits, met.shape)[met])

    @classmethod
    def pooled(cls, reaches: list[Reach]) -> Reach:
        """Pool several hash functions, whose masses count ``1 / k`` each."""
        first, last, hits = (np.concatenate(column) for column in zip(*reaches, strict=True))
        return cls(first, last, hits / len(reaches))


class Grid(NamedTuple):
    """Times of sampled bands, dense enough to find the largest coefficient.

    Attributes:
        hits: float64[k], ``1 / p`` of the band of each time.
        one, other: float64[k], decay weights on either side of a comparison.
    """

    hits: Float64Array
    one: Float64Array
    other: Float64Array

    @classmethod
    def over(cls, reaches: Sequence[Reach], weights: Weights) -> list[Self]:
        """Return a grid over each of several parts of time.

        Args:
            reaches: the bands of each. Within a band the decays rise with the time.
            weights: returns the decay weights of times on either side: float64[2, n] for int64[n].

        Complexity: O(k) for k times, some hundreds for smooth decays.
        """
        sizes = np.array([len(reach.hits) for reach in reaches])
        first, last, hits = map(np.concatenate, zip(*reaches, strict=True))
        if not len(hits):
            return [cls(*np.empty((3, 0)))] * len(reaches)
        grid, times = np.repeat(np.arange(len(sizes)), sizes), np.stack([first, last], axis=1)
        values = weights(times.ravel()).reshape(2, *times.shape)
        _begin_with_weight(times, values, weights)
        masses, least = values * hits[:, None], np.zeros((2, len(sizes)))
        for k, end in enumerate(np.cumsum(sizes).tolist()):
            rows = slice(end - sizes[k], end)
            least[:, k] = _FINE * masses[:, rows].max(axis=(1, 2), initial=0.0)
        found, count = [(grid, hits, values)], 2 * sizes
        for _ in range(_ROUNDS):
            times, values, hits, grid, new = _native.divided(times, values, hits, grid, least)
            count = count + new
            if (count > _MOST).any():
                kept = count[grid] <= _MOST
                times, hits, grid = times[kept], hits[kept], grid[kept]
                values = values.compress(kept, axis=1)
            if not len(hits):
                break
            inner = times[:, 1:-1]
            between = weights(inner.ravel()).reshape(2, *inner.shape)
            values[:, :, 1:-1] = between
            found.append((grid, hits, between))
        return cls._split(found, len(sizes))

    @classmethod
    def _split(
        cls, found: Sequence[tuple[Int64Array, Float64Array, Float64Array]], count: int
    ) -> list[Self]:
        """Return each grid.

        Args:
            found: the grid of some rows, their hits and weights: int64[k], float64[k] and
                float64[2, k, m]. m is 2 for the first, and 7 for the others.
            count: the number of grids.
        """
        grids, masses, weights = zip(*found, strict=True)
        values = np.concatenate([each.reshape(2, -1) for each in weights], axis=1)
        times = np.repeat([2, _PARTS - 1], [len(grids[0]), sum(map(len, grids[1:]))])
        hits = np.repeat(np.concatenate(masses), times)
        if count == 1:
            return [cls(hits, *values)]
        grid = np.repeat(np.concatenate(grids), times)
        return [cls(hits[mine], *values[:, mine]) for mine in (grid == k for k in range(count))]

    def ends(self, alpha: float, beta: float) -> tuple[float, float]:
        """Return the largest ``(alpha one - beta other) / p``, and the largest with other signs, or
        0 if none is above 0. Either factor may be negative.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            found = (alpha * self.one - beta * self.other) * self.hits
        high, low = float(found.max(initial=0.0)), float(found.min(initial=0.0))
        # The difference of two infinite weights is not known: it may be of any size.
        return (math.inf, math.inf) if math.isnan(high) else (high, -low)


class ApartGrid(Grid):
    """The same grid for observations that may count on one side alone, as under two filters. No hit
    is then larger than the larger side, and none cancels.
    """

    def ends(self, alpha: float, beta: float) -> tuple[float, float]:
        rise, fall = map(max, super().ends(alpha, 0.0), super().ends(0.0, beta))
        return rise, fall


def _largest_of_chance(widths: Float64Array) -> float:
    """Return the largest width that chance explains: at most ``log(k) + 4`` times the mean of the
    k - 1 shorter ones. A width of 0 is none: two times have no time between. O(n) if few are
    larger.
    """
    bound = (np.log(len(widths)) + _CHANCE) / max(len(widths) - 1, 1)
    rest = widths.copy()
    for _ in range(_FEW):
        place = rest.argmax()
        largest, rest[place] = float(rest[place]), 0.0
        if largest <= bound * rest.sum():
            return largest
    rising = np.sort(rest)
    usual = rising[rising <= bound * (np.cumsum(rising) - rising)]
    return float(usual.max(initial=0.0))


def _begin_with_weight(times: Int64Array, values: Float64Array, weights: Weights) -> None:
    """Let a band that begins where both decays have weight 0 begin later, at a time that also has.
    The oldest band often begins at the first possible time, and a grid would divide it twenty
    times.

    Args:
        times: int64[b, 2], the bounds of each band, to be changed.
        values: float64[2, b, 2], their weights on either side. Within a band they rise.
        weights: returns weights of times.
    """
    light = (values == 0.0).all(axis=0)
    late = np.flatnonzero(light[:, 0] & ~light[:, 1])
    if not len(late):
        return
    last_parts = [_last_parts(*times[k].tolist()) for k in late]
    at = np.array([time for parts in last_parts for time in parts], np.int64)
    light, done = (weights(at) == 0.0).all(axis=0), 0
    for k, parts in zip(late, last_parts, strict=True):
        weightless = int(np.count_nonzero(light[done : done + len(parts)]))
        done += len(parts)
        times[k, 0] = parts[weightless - 1] if weightless else times[k, 0]


def _last_parts(start: int, stop: int) -> list[int]:
    """Return where a cell's last part starts, then the last part in that, and so on."""
    found = []
    while step := (stop - start) // _PARTS:
        start += (_PARTS - 1) * step
        found.append(start)
    return found
