"""The exact rival of the asynchronous samplers: every element of the last W, sorted by time.

A batch is sorted and merged into the part of the columns that is later than its first element, so
elements that come nearly in order cost little. Sums are differences of prefix sums, which are
brought up to date when one is asked for; a median partitions the values of its window. Copies are
not recognised.
"""

from __future__ import annotations

import numpy as np

from benchmarks.streams import Int64Array

__all__ = ["SortedWindow"]

_FIRST_ROOM = 1_024


class SortedWindow:
    """All elements of the last ``width`` before the clock, in arrays that grow geometrically.

    Args:
        width: W.
        sums: whether sums will be asked for, which takes one more array.
    """

    def __init__(self, width: int, *, sums: bool) -> None:
        self.width = width
        self.sums = sums
        self._begin = self._end = 0
        self._summed = 0  # the prefix sums are right up to here
        self._times, self._values = np.empty((2, _FIRST_ROOM), np.int64)
        self._prefix = np.zeros(_FIRST_ROOM + 1 if sums else 0, np.int64)  # before a position

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def nbytes(self) -> int:
        """Bytes of the elements that are held, prefix sums included."""
        return (3 if self.sums else 2) * 8 * len(self)

    def update(self, values: Int64Array, times: Int64Array) -> None:
        """Merge a batch in. O(n log n), and O(elements later than its first)."""
        self._reserve(len(times))
        order = np.argsort(times)
        times, values = times[order], values[order]
        held_times = self._times[self._begin : self._end]
        start = self._begin + int(np.searchsorted(held_times, times[0], side="right"))
        later = slice(start, self._end)
        self._end += len(times)
        merged = slice(start, self._end)
        tail_times, tail_values = self._times[later].copy(), self._values[later].copy()
        places = np.searchsorted(tail_times, times, side="right") + np.arange(len(times))
        others = np.ones(self._end - start, np.bool_)
        others[places] = False
        self._times[merged][places], self._times[merged][others] = times, tail_times
        self._values[merged][places], self._values[merged][others] = values, tail_values
        self._summed = min(self._summed, start)

    def advance(self, now: int) -> None:
        """Drop what no window reaches any more. O(log n)."""
        held = self._times[self._begin : self._end]
        self._begin += int(np.searchsorted(held, now - self.width))
        self._summed = max(self._summed, self._begin)  # sums need no more than a common start

    def sum(self, width: int, now: int) -> int:
        """Sum of the values in [now - width, now]. O(log n), once the prefix sums are right."""
        behind = slice(self._summed, self._end)
        prefix = self._prefix[self._summed + 1 : self._end + 1]
        np.cumsum(self._values[behind], out=prefix)
        prefix += self._prefix[self._summed]
        self._summed = self._end
        first, last = self._rows(width, now)
        return int(self._prefix[last] - self._prefix[first])

    def median(self, width: int, now: int) -> int:
        """Lower median of the values in [now - width, now], which has some. O(n)."""
        first, last = self._rows(width, now)
        middle = (last - first - 1) // 2
        return int(np.partition(self._values[first:last], middle)[middle])

    def share_up_to(self, value: int, width: int, now: int) -> float:
        """Share of the elements in [now - width, now] with that value or less. O(n)."""
        first, last = self._rows(width, now)
        return float(np.mean(self._values[first:last] <= value))

    def merge(self, other: SortedWindow) -> None:
        """Take all elements of another one."""
        held = slice(other._begin, other._end)
        if len(other):
            self.update(other._values[held], other._times[held])

    def _rows(self, width: int, now: int) -> tuple[int, int]:
        held = self._times[self._begin : self._end]
        first = self._begin + int(np.searchsorted(held, now - width))
        return first, self._begin + int(np.searchsorted(held, now, side="right"))

    def _reserve(self, more: int) -> None:
        """Room for so many elements: by moving to the front, or to larger arrays."""
        if self._end + more <= len(self._times):
            return
        held, room = len(self), len(self._times)
        target = room if 2 * (held + more) <= room else 2 * (held + more)
        old = slice(self._begin, self._end)
        for name in ("_times", "_values"):
            column = np.empty(target, np.int64)
            column[:held] = getattr(self, name)[old]
            setattr(self, name, column)
        if self.sums:
            prefix = np.zeros(target + 1, np.int64)
            prefix[: held + 1] = self._prefix[self._begin : self._end + 1]
            self._prefix = prefix
        self._summed -= self._begin
        self._begin, self._end = 0, held
