"""The largest coefficient of an observation that was not retained.

A sampled band contains every observation at its times that its level selects. An observation that
is missing there would have counted ``1 / p`` times its coefficient. In a comparison the coefficient
depends on the time: ``alpha g1(t) - beta g2(t)``. A :class:`Grid` evaluates it over all sampled
bands, with or without rows. Its times are so close that neither decay changes by more than 2 % of
its largest hit between neighbours. Steps in a decay, such as the bounds of a window, are found
exactly: cells are divided until they are one time unit wide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["ApartGrid", "Grid", "Reach"]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
Weights = Callable[[Int64Array], Float64Array]

_FINE = 0.02  # of the largest hit: a cell in which a decay changes by more is divided
_PARTS = 8  # of a divided cell
_INSIDE = np.arange(1, _PARTS, dtype=np.uint64)
_ROUNDS = 22  # 8^22 > 2^63: enough for time units
_MOST = 1 << 14  # times of a grid
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

        Complexity: O(n (b + log n)) for b bands.
        """
        if not len(self.hits):
            return self
        seen = -np.expm1(-weight / self.hits)  # the chance, by band
        ordered = np.sort(times, kind="stable")  # nearly sorted: fast
        distinct = ordered[np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))]
        # Of integers: a float64 does not tell the times of a band apart that begins very early.
        until = np.concatenate([distinct, [self.last.max()]])[:, None]
        until = np.minimum(np.maximum(until, self.first - 1), self.last)
        widths = np.diff(until, axis=0, prepend=self.first[None, :] - 1) @ seen
        rising = np.sort(widths)
        shorter = np.cumsum(rising) - rising
        count = max(len(distinct), 1)
        usual = rising[count * rising <= (np.log(len(widths)) + _CHANCE) * shorter]
        longest = np.flatnonzero(widths > usual.max(initial=0.0))
        starts = np.concatenate([[self.first.min()], distinct + 1])[longest]
        stops = np.concatenate([distinct - 1, [self.last.max()]])[longest]
        begins = np.maximum(self.first, starts[:, None])
        ends = np.minimum(self.last, stops[:, None])
        met = begins <= ends
        return Reach(begins[met], ends[met], np.broadcast_to(self.hits, met.shape)[met])

    def weighty(self, one: Weights, other: Weights) -> Reach:
        """Return the same bands. One that begins where both decays have weight 0 begins later, at
        a time that also has. The oldest band often begins at the first possible time, and a grid
        would divide it twenty times.

        Args:
            one, other: decay weights of times. Within a band they rise with the time.
        """

        def is_light(times: Int64Array) -> npt.NDArray[np.bool_]:
            light: npt.NDArray[np.bool_] = (one(times) == 0.0) & (other(times) == 0.0)
            return light

        late = np.flatnonzero(is_light(self.first) & ~is_light(self.last))
        last_parts = [_last_parts(int(self.first[k]), int(self.last[k])) for k in late]
        light = is_light(np.array([time for times in last_parts for time in times], np.int64))
        first, done = self.first.copy(), 0
        for k, times in zip(late, last_parts, strict=True):
            weightless = int(np.count_nonzero(light[done : done + len(times)]))
            done += len(times)
            first[k] = times[weightless - 1] if weightless else first[k]
        return self._replace(first=first)

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
    def over(cls, reach: Reach, one: Weights, other: Weights) -> Grid:
        """Return the grid over some bands.

        Args:
            reach: the bands. Within a band the decays rise with the time.
            one, other: decay weights of times, in any order.

        Complexity: O(k) for k times, some hundreds for smooth decays.
        """
        cells = _Cells.of(reach.weighty(one, other), one, other)
        found = [cells.starts, cells.stops]
        most = np.maximum(*(np.max(each.values * each.hits, 1, initial=0.0) for each in found))
        count = 2 * len(reach.hits)
        for _ in range(_ROUNDS):
            cells = cells.steep(_FINE * most)
            new = cells.between()
            count += int(np.count_nonzero(new < cells.stops.times[:, None]))
            if not new.size or count > _MOST:
                break
            cells = cells.divided(new, one, other)
            found.append(cells.starts)
        hits = np.concatenate([each.hits for each in found])
        return cls(hits, *np.concatenate([each.values for each in found], axis=1))

    def largest(self, alpha: float, beta: float) -> float:
        """Return the largest ``(alpha one - beta other) / p``, or 0 if none is above 0. Either
        factor may be negative.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            found = (alpha * self.one - beta * self.other) * self.hits
        # The difference of two infinite weights is not known: it may be of any size.
        return float(np.nan_to_num(found, nan=np.inf, posinf=np.inf).max(initial=0.0))


class ApartGrid(Grid):
    """The same grid for observations that may count on one side alone, as under two filters. No hit
    is then larger than the larger side, and none cancels.
    """

    def largest(self, alpha: float, beta: float) -> float:
        return max(super().largest(alpha, 0.0), super().largest(0.0, beta))


def _last_parts(start: int, stop: int) -> list[int]:
    """Return where a cell's last part starts, then the last part in that, and so on."""
    found = []
    while step := (stop - start) // _PARTS:
        start += (_PARTS - 1) * step
        found.append(start)
    return found


class _Ends(NamedTuple):
    """The starts or the ends that cells have."""

    times: Int64Array
    values: Float64Array  # float64[2, k], decay weights on either side
    hits: Float64Array

    def take(self, chosen: npt.NDArray[np.bool_]) -> _Ends:
        return _Ends(self.times[chosen], self.values[:, chosen], self.hits[chosen])


class _Cells(NamedTuple):
    """Pairs of times, both in one band, that the grid has no time between."""

    starts: _Ends
    stops: _Ends

    @classmethod
    def of(cls, reach: Reach, one: Weights, other: Weights) -> _Cells:
        """Return a cell for each band."""
        ends = (
            _Ends(times, np.array([one(times), other(times)]), reach.hits) for times in reach[:2]
        )
        return cls(*ends)

    def steep(self, least: Float64Array) -> _Cells:
        """Return the cells that can be divided and in which a hit changes by more on either side.

        Args:
            least: float64[2], the change by side.
        """
        starts, stops = self
        changes = (stops.values - starts.values) * stops.hits
        wide = stops.times - starts.times != 1
        chosen = wide & (changes > least[:, None]).any(axis=0)
        return _Cells(*(each.take(chosen) for each in self))

    def between(self) -> Int64Array:
        """Return times that divide each cell into about eight parts: int64[k, 7]. Where a cell has
        fewer times, the last is its end.
        """
        starts, stops = self.starts.times, self.stops.times
        widths = (stops - starts).view(np.uint64)  # up to 2^63
        steps = np.maximum(widths // np.uint64(_PARTS), np.uint64(1))
        offsets = np.minimum(steps[:, None] * _INSIDE, widths[:, None])
        times: Int64Array = starts[:, None] + offsets.view(np.int64)
        return times

    def divided(self, new: Int64Array, one: Weights, other: Weights) -> _Cells:
        """Return the parts that these times divide each cell into."""
        at = new.ravel()
        values = np.array([one(at), other(at)]).reshape(2, *new.shape)
        hits = np.repeat(self.stops.hits, _PARTS)
        times = np.concatenate([self.starts.times[:, None], new, self.stops.times[:, None]], axis=1)
        sides = np.concatenate(
            [self.starts.values[:, :, None], values, self.stops.values[:, :, None]], axis=2
        )
        return _Cells(
            _Ends(times[:, :-1].ravel(), sides[:, :, :-1].reshape(2, -1), hits),
            _Ends(times[:, 1:].ravel(), sides[:, :, 1:].reshape(2, -1), hits),
        )
