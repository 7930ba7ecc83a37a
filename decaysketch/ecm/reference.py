"""Cells that know time, in plain Python integers: what is kept is a function of n alone.

A cell counts ones, each at a time, that arrive in order of their times. The r-th of them has the
*rank* r. Of all n ones a cell keeps the times of a few, and *which* ranks these are is a function
of n: no sizes of buckets, no pointers, no expiry. So the state is a function of the multiset of
times, however they were cut into batches and in whatever order ties came.

Wave (Gibbons and Tirthapura, "Distributed streams algorithms for sliding windows", 2002)
    Level l keeps the last q odd multiples of 2^l, the one table of its deterministic wave without
    its upper bound on n: levels are as many as n has bits.
Exponential histogram (Datar, Gionis, Indyk and Motwani, "Maintaining stream statistics over sliding
    windows", 2002)
    Buckets of size 2^i end at ranks j 2^i. With at most B of each size, the two oldest merging when
    there is one more, n_(i+1) = max(0, floor((n_i - B + 1) / 2)) of them have been passed on by
    level i, and level i keeps the j in (2 n_(i+1), n_i], with n_0 = n.

*Answer*: the ones at a time of ``start`` or later are surely at least ``lo = n - p2 + 1`` and at
most ``hi = n - p1``, p1 the largest kept rank of a time before ``start`` (0 where there is none)
and p2 the smallest of a time not before it (n + 1). Nothing better follows from what is kept, and

    (hi - lo) / (hi + lo) < 1 / (2 q)   (wave, q >= 2)       < 1 / (2 B - 1)   (histogram, B >= 2).

Wave: a gap of 2^l between p1 and p2 is met only where level l - 1 no longer reaches, that is, at
n - p2 >= (q - 1/2) 2^l. Histogram: buckets newer than one of size 2^i hold at least
(B - 1)(2^i - 1) ones. Both are reached in the limit.

*Departures* from Papapetrou, Garofalakis and Deligiannakis, "Sketching distributed sliding-window
data streams" (VLDB Journal 24, 2015), which combines these cells with Count-Min: ends of windows
are inclusive, ones at ``start`` count; nothing expires (the bounds hold for the whole history, and
for every window in it); a bucket of one is not halved (it lies at its time); merging splits a gap
where the *relative* error is least, not in half.

This module is the middle rung of trust: enumeration checks it, and it checks the compiled kernels.
It therefore imports nothing of ours, and nothing falls back to it. The paper's own procedures, by
buckets and queues, are in :mod:`decaysketch.ecm.paper`.
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
    """Kept ranks of a wave of n ones, newest first: at most ``slots`` of each level."""
    kept = []
    for level in range(n.bit_length()):
        last = ((n >> level) - 1) >> 1
        first = max(0, last - slots + 1)
        kept += [(2 * j + 1) << level for j in range(first, last + 1)]
    return sorted(kept, reverse=True)


def histogram_ranks(n: int, slots: int) -> list[int]:
    """End ranks of the buckets of an exponential histogram of n ones, newest first."""
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
        slots: times that a level keeps at most, 2 or more; q of a wave, B of a histogram.
        n: ones.
        first: time of the first one, None where there is none.
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
        """Above ``(hi - lo) / (hi + lo)`` of every answer."""

    @property
    @abstractmethod
    def merge_error(self) -> Fraction:
        """Relative error, at most, of the stream that :func:`pieces` makes of the cell."""

    def add(self, time: int, weight: int = 1) -> None:
        """``weight`` ones at a time not before the last. O(slots log n)."""
        before = self.n
        if self.first is None:
            self.first = time
        self.n += weight
        self._times = {
            rank: time if rank > before else self._times[rank]
            for rank in self.ranks(self.n, self.slots)
        }

    def kept(self) -> list[tuple[int, int]]:
        """(rank, time) of what is kept, newest first."""
        return list(self._times.items())

    def lo_hi(self, start: int) -> tuple[int, int]:
        """At least and at most so many ones have a time of ``start`` or later. O(slots log n)."""
        before, after = self._around(start)
        return self.n - after + 1, self.n - before

    def value(self, start: int, first: int | None = None) -> float:
        """One number for :meth:`lo_hi`, off by at most ``error`` of the truth.

        The ones of the gap that ``start`` falls into are taken to be spread evenly over it, from
        the time of the kept rank before (or ``first``, by default that of the cell) to that of the
        one after. The sum is then clipped to ``[(1 - error) hi, (1 + error) lo]``: what is there
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
        """At least and at most the sum of ``weight_of_age(now - t)`` over the ones.

        For a function that does not rise, of ages of 0 and more: ones later than ``now`` count
        nothing. A kept one counts what it counts; those of a gap not more than at the latest time
        that they can have by ``now``, and not less than at the earliest, or nothing where all of
        them may be later than ``now``. This is the combination of windows of Cohen and Strauss,
        "Maintaining time-decaying stream aggregates" (2006), with every window at its least or
        most, and with ``now`` at the last one or later its relative error is that of a window.
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
        """p1 and p2."""
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
        """``1 / (2 q)``: whole numbers cost nothing here."""
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
        """``1 / (B + 1)``: of a bucket of two behind B - 1 ones, B or B + 1 ones are answered."""
        return Fraction(1, self.slots + 1)


# ------------------------------------------------------------------------- order-preserving merge


def split(lo: int, hi: int) -> int:
    """The whole number whose relative error is least for a truth from ``lo >= 1`` to ``hi``.

    Next to ``2 lo hi / (lo + hi)``, where both ends are equally far off; the smaller of two equals.
    """
    below = 2 * lo * hi // (lo + hi)
    return min((below, below + 1), key=lambda e: max((hi - e) * lo, (e - lo) * hi))


def pieces(cell: Cell, first: int, steps: int = 0) -> list[tuple[int, int]]:
    """The stream that a cell stands for when it is merged: (time, ones), oldest first.

    Whoever asks for a ``start`` within a gap, which surely holds from ``lo`` to ``hi``, is to find
    ``split(lo, hi)``: so ``hi - split`` ones of the gap are put at its start and the others at its
    end. With ``steps`` those that the guarantee leaves free, from the least to the largest count
    that is within ``merge_error`` of both ends, are spread evenly over so many times between.

    Args:
        cell: a cell of one or more ones.
        first: where its first gap starts, not after its first one.
        steps: 0, or in how many times what is free is put down.
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
    """One cell of the kind of the first for the ones of all of them, in order of their times.

    The pieces of all cells, however many, are merged at once and the kept ranks of their sum read
    off: symmetric in the cells. With ``error`` of the new cell and ``merge_error`` e of the old
    ones, the relative error is at most ``(1 + e)(1 + error) - 1`` (theorem 4 of the paper).
    O(slots log n) for each cell, and sorting.

    Args:
        cells: at least one, of one kind.
        slots: of the new cell.
        firsts: where the first gap of each starts; by default its first one.
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
