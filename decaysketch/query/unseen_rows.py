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

        Complexity: O(n b) for b bands.
        """
        if not len(self.hits):
            return self
        seen = -np.expm1(-weight / self.hits)  # the chance, by band
        distinct = np.unique(times)
        ends = np.concatenate([distinct, [self.last.max()]])[:, None] - self.first + 1.0
        lengths = self.last - self.first + 1.0
        places = np.clip(ends, 0.0, lengths) @ seen
        widths = np.diff(places, prepend=0.0)
        order = np.argsort(widths)
        shorter = np.cumsum(widths[order]) - widths[order]
        count = max(len(distinct), 1)
        usual = count * widths[order] <= (np.log(len(widths)) + _CHANCE) * shorter
        longest = order[max(np.flatnonzero(usual), default=-1) + 1 :]
        starts = np.concatenate([[self.first.min()], distinct + 1])
        stops = np.concatenate([distinct - 1, [self.last.max()]])
        parts = [self.within(int(starts[k]), int(stops[k])) for k in longest if widths[k] > 0.0]
        parts.append(self.within(1, 0))
        return Reach(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

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

        Complexity: O(k log k) for k times, some hundreds for smooth decays.
        """
        band = np.tile(np.arange(len(reach.hits)), 2)
        times = np.concatenate([reach.first, reach.last])
        found = cls(reach.hits[band], one(times), other(times))
        most = [float((side * found.hits).max(initial=0.0)) for side in found[1:]]
        for _ in range(_ROUNDS):
            order = np.lexsort((times, band))
            band, times, found = band[order], times[order], cls(*(c[order] for c in found))
            steep = np.zeros(max(len(times) - 1, 0), np.bool_)
            for side, largest in zip(found[1:], most, strict=True):
                steep |= np.diff(side) * found.hits[1:] > _FINE * largest
            cells = np.flatnonzero(steep & (band[1:] == band[:-1]))
            new, of = _between(times[cells], times[cells + 1], band[cells])
            if not len(new) or len(times) + len(new) > _MOST:
                break
            band, times = np.concatenate([band, of]), np.concatenate([times, new])
            added = cls(reach.hits[of], one(new), other(new))
            found = cls(*(np.concatenate(pair) for pair in zip(found, added, strict=True)))
        return found

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


def _between(
    starts: Int64Array, stops: Int64Array, band: npt.NDArray[np.intp]
) -> tuple[Int64Array, npt.NDArray[np.intp]]:
    """Return times that divide cells into about eight parts, and the band of each."""
    widths = (stops - starts).view(np.uint64)  # up to 2^63
    steps = np.maximum(widths // np.uint64(_PARTS), np.uint64(1))
    offsets = steps[:, None] * np.arange(1, _PARTS, dtype=np.uint64)
    inside = offsets < widths[:, None]
    times = starts[:, None] + offsets.view(np.int64)
    return times[inside], np.repeat(band, np.count_nonzero(inside, axis=1))
