"""Cells that know time, in plain Python integers. Their contents are a function of n alone.

A cell counts ones, each at a time, that arrive in time order. The r-th one has the *rank* r. Among
all n ones a cell keeps the times of a few, and *which* ranks these are is a function of n: no
bucket sizes, no pointers, no expiry. So the state is a function of the multiset of times, for any
division into batches and any order among ties.

Wave (Gibbons and Tirthapura, "Distributed streams algorithms for sliding windows", 2002)
    Level l keeps the last q odd multiples of 2^l. This is the table of their deterministic wave
    without its upper bound on n: there are as many levels as n has bits.
Exponential histogram (Datar, Gionis, Indyk and Motwani, "Maintaining stream statistics over sliding
    windows", 2002)
    Buckets of size 2^i end at ranks j 2^i. At most B have each size, and the two oldest merge when
    there is one more. So level i has passed on n_(i+1) = max(0, floor((n_i - B + 1) / 2)) of them,
    and level i keeps the j in (2 n_(i+1), n_i], with n_0 = n.

*Result*: the number of ones at time ``start`` or later is guaranteed to be at least
``lo = n - p2 + 1`` and at most ``hi = n - p1``. Here p1 is the largest kept rank with a time before
``start`` (0 if there is none) and p2 the smallest with a time not before it (n + 1). No tighter
bounds follow from the kept times, and

    (hi - lo) / (hi + lo) < 1 / (2 q)   (wave, q >= 2)       < 1 / (2 B - 1)   (histogram, B >= 2).

Wave: a gap of 2^l between p1 and p2 occurs only where level l - 1 no longer reaches, that is, at
n - p2 >= (q - 1/2) 2^l. Histogram: buckets newer than one with size 2^i contain at least
(B - 1)(2^i - 1) ones. Both are reached in the limit.

*Departures* from Papapetrou, Garofalakis and Deligiannakis, "Sketching distributed sliding-window
data streams" (VLDB Journal 24, 2015), which combines these cells with Count-Min:

* Window bounds are inclusive: ones at ``start`` count.
* Nothing expires: the bounds hold for the complete history, and for every window in it.
* A bucket with one element is not halved: it lies at its time.
* Merging splits a gap where the *relative* error is least, not in half.

Enumeration checks this module, and it checks the compiled kernels. It therefore imports no project
code, and nothing falls back to it. The paper's own procedures, by buckets and queues, are in
:mod:`decaysketch.ecm.paper`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise

__all__ = ["EH", "Cell", "Wave", "histogram_ranks", "merged", "pieces", "split", "wave_ranks"]


def wave_ranks(n: int, slots: int) -> list[int]:
    """Kept ranks in a wave with n ones, newest first: at most ``slots`` per level."""
    kept = []
    for level in range(n.bit_length()):
        last = ((n >> level) - 1) >> 1
        first = max(0, last - slots + 1)
        kept += [(2 * j + 1) << level for j in range(first, last + 1)]
    return sorted(kept, reverse=True)


def histogram_ranks(n: int, slots: int) -> list[int]:
    """Last ranks of the buckets in an exponential histogram with n ones, newest first."""
    kept: list[int] = []
    level, passed = 0, n
    while passed > 0:
        coarser = max(0, (passed - slots + 1) >> 1)
        kept += [j << level for j in range(passed, 2 * coarser, -1)]
        level, passed = level + 1, coarser
    return kept


class Cell(ABC):
    """A counter that knows time.

    Attributes:
        slots: maximum times per level, 2 or more; q in a wave, B in a histogram.
        n: number of ones.
        first: time of the first one, None if there is none.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.n = 0
        self.first: int | None = None
        self._times: dict[int, int] = {}  # by kept rank, newest first

    @staticmethod
    @abstractmethod
    def ranks(n: int, slots: int) -> list[int]:
        """Kept ranks, newest first."""

    @property
    @abstractmethod
    def error(self) -> Fraction:
        """A bound above ``(hi - lo) / (hi + lo)`` for every result."""

    @property
    @abstractmethod
    def merge_error(self) -> Fraction:
        """Maximum relative error of the stream that :func:`pieces` builds from the cell."""

    def add(self, time: int, weight: int = 1) -> None:
        """Add ``weight`` ones at a time not before the last. O(slots log n)."""
        before = self.n
        if self.first is None:
            self.first = time
        self.n += weight
        self._times = {
            rank: time if rank > before else self._times[rank]
            for rank in self.ranks(self.n, self.slots)
        }

    def kept(self) -> list[tuple[int, int]]:
        """Kept (rank, time) pairs, newest first."""
        return list(self._times.items())

    def lo_hi(self, start: int) -> tuple[int, int]:
        """Guaranteed bounds on the number of ones at time ``start`` or later. O(slots log n)."""
        before, after = self._around(start)
        return self.n - after + 1, self.n - before

    def value(self, start: int, first: int | None = None) -> float:
        """One number for :meth:`lo_hi`, with relative error at most ``error``.

        It assumes that the ones in the gap around ``start`` are spread evenly over it, from
        the time of the kept rank before (or ``first``, by default the cell's) to the time of the
        one after. The sum is then clipped to ``[(1 - error) hi, (1 + error) lo]``. This interval
        is within ``error`` of every number from ``lo`` to ``hi``, and is never empty.
        """
        before, after = self._around(start)
        lo, hi = self.n - after + 1, self.n - before
        if lo == hi:
            return float(lo)
        newer, older = self._times[after], self._times.get(before, self._first(first))
        share = min(Fraction(1), Fraction(newer - start, max(1, newer - older)))
        spread = lo + (hi - lo) * share
        return float(min(max(spread, (1 - self.error) * hi), (1 + self.error) * lo))

    def decayed(
        self, weight_of_age: Callable[[int], float], now: int, first: int | None = None
    ) -> tuple[float, float]:
        """Guaranteed bounds on the sum of ``weight_of_age(now - t)`` over the ones.

        The function must not rise with age, for ages from 0 on. Ones later than ``now`` count
        nothing. A kept one counts exactly. Ones in a gap count at most as at the latest time that
        they can have by ``now``, and at least as at the earliest, or nothing if all of them may be
        later than ``now``. This is the combination of windows of Cohen and Strauss, "Maintaining
        time-decaying stream aggregates" (2006), with every window at its lower or upper bound. With
        ``now`` at the last one or later its relative error is that of a window.
        """
        lo = hi = 0.0
        kept = [*self.kept(), (0, self._first(first))]
        for (rank, time), (before, earlier) in pairwise(kept):
            between = rank - before - 1
            if time <= now:
                weight = weight_of_age(now - time)
                lo += weight + between * weight_of_age(now - earlier) if between else weight
                hi += weight * (rank - before)
            elif earlier <= now:
                hi += between * weight_of_age(0)
        return lo, hi

    def _around(self, start: int) -> tuple[int, int]:
        """Return p1 and p2."""
        before, after = 0, self.n + 1
        for rank, time in self._times.items():
            if time < start:
                before = rank
                break
            after = rank
        return before, after

    def _first(self, first: int | None) -> int:
        known = self.first if first is None else first
        return 0 if known is None else known


class Wave(Cell):
    """A deterministic wave; ``slots`` is q."""

    ranks = staticmethod(wave_ranks)

    @property
    def error(self) -> Fraction:
        """``1 / (2 q)``."""
        return Fraction(1, 2 * self.slots)

    @property
    def merge_error(self) -> Fraction:
        """``1 / (2 q)``: integers add no error here."""
        return Fraction(1, 2 * self.slots)


class EH(Cell):
    """An exponential histogram; ``slots`` is B."""

    ranks = staticmethod(histogram_ranks)

    @property
    def error(self) -> Fraction:
        """``1 / (2 B - 1)``."""
        return Fraction(1, 2 * self.slots - 1)

    @property
    def merge_error(self) -> Fraction:
        """``1 / (B + 1)``: for a bucket of two behind B - 1 ones, the result is B or B + 1 ones."""
        return Fraction(1, self.slots + 1)


# ------------------------------------------------------------------------- order-preserving merge


def split(lo: int, hi: int) -> int:
    """The integer with the smallest relative error for a truth from ``lo >= 1`` to ``hi``.

    It is next to ``2 lo hi / (lo + hi)``, where both bounds are equally far off. Among equals, it
    is the smaller.
    """
    below = 2 * lo * hi // (lo + hi)
    return min((below, below + 1), key=lambda e: max((hi - e) * lo, (e - lo) * hi))


def pieces(cell: Cell, first: int, steps: int = 0) -> list[tuple[int, int]]:
    """The stream that represents a cell in a merge: (time, ones), oldest first.

    A query with a ``start`` within a gap, with guaranteed bounds ``lo`` and ``hi``, must get
    ``split(lo, hi)``. So ``hi - split`` ones in the gap are placed at its start and the others at
    its end. With ``steps``, ones that the guarantee leaves free, from the smallest to the largest
    count within ``merge_error`` of both bounds, are spread evenly over that number of times in
    between.

    Args:
        cell: a cell with one or more ones.
        first: start of its first gap, not after its first one.
        steps: 0, or the number of times for the free ones.
    """
    found: list[tuple[int, int]] = []
    before, earlier = 0, first
    for rank, time in reversed(cell.kept()):
        lo, hi = cell.n - rank + 1, cell.n - before
        least = most = split(lo, hi)
        if steps and hi > lo:
            most = max(most, min(hi, lo + math.floor(cell.merge_error * lo)))
            least = min(least, max(lo, hi - math.floor(cell.merge_error * hi)))
        if hi > most:
            found.append((earlier, hi - most))
        free, put = most - least, 0
        parts = min(free, steps)
        for part in range(parts):
            ones = (part + 1) * free // parts - put
            put += ones
            middle = 2 * (hi - most + put) - ones  # of these ones, in halves of one
            found.append((earlier + (time - earlier) * middle // (2 * (hi - lo + 1)), ones))
        found.append((time, least - lo + 1))
        before, earlier = rank, time
    return found


def merged(
    cells: Sequence[Cell], slots: int, firsts: Iterable[int] | None = None, steps: int = 0
) -> Cell:
    """One cell of the first cell's kind for the ones of all cells, in time order.

    The pieces of all cells are merged at once, and the kept ranks of their sum are read off. This
    is symmetric in the cells. With ``error`` of the new cell and ``merge_error`` e of the old ones,
    the relative error is at most ``(1 + e)(1 + error) - 1`` (theorem 4 of the paper). O(slots log
    n) for each cell, and sorting.

    Args:
        cells: at least one, of one kind.
        slots: slots of the new cell.
        firsts: start of each cell's first gap, by default its first one.
        steps: as :func:`pieces`.
    """
    starts = [cell.first or 0 for cell in cells] if firsts is None else list(firsts)
    stream = sorted(
        piece
        for cell, first in zip(cells, starts, strict=True)
        if cell.n
        for piece in pieces(cell, first, steps)
    )
    whole = type(cells[0])(slots)
    sums = list(accumulate(ones for _, ones in stream))
    whole.n = sums[-1] if sums else 0
    whole.first = min((s for cell, s in zip(cells, starts, strict=True) if cell.n), default=None)
    whole._times = {
        rank: stream[bisect_left(sums, rank)][0] for rank in whole.ranks(whole.n, slots)
    }
    return whole
