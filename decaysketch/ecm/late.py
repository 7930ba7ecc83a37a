"""Events that come late: held back, put into lanes, or refused and counted. Nothing is wiped.

Cells take times that never fall. Real streams fall behind themselves, and a counter that "expires"
what it holds when one stray event comes has lost a stream. Three means, in this order:

1. *Hold* (``hold`` time units, none by default). An event no later than that behind the clock waits
   in a buffer, is counted exactly meanwhile, and goes on in order of time once it is older. If none
   is later than ``hold``, the state is a function of the events alone, whatever their order.
2. *Lanes*. Each lane is a set of cells with a clock of its own, the time of the last event in it.
   An event goes to the lane with the latest clock that is not after it; where every clock is, a new
   lane is opened, ``lanes`` of them at most. Each event keeps its true time, answers add what
   lanes hold, and the error stays what it was. The clocks of lanes fall strictly from the first to
   the last, and k lanes suffice exactly where no k + 1 events come in strictly falling order of
   time (patience sorting).
3. What is older than every lane is refused and counted, or counted late on request.

A batch is taken as if it came in order of time. What was late when it came is decided by the clock
before its batch; so reading, which may move events from the buffer, never changes where a later one
goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["NOTHING", "Events", "lane_bounds"]

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Events:
    """Columns of equal length, of what a sketch was given.

    Attributes:
        words: uint64[n]. times, weights: int64[n].
        unit: whether all weights are known to be 1.
    """

    words: UInt64Array
    times: Int64Array
    weights: Int64Array
    unit: bool = False

    def __len__(self) -> int:
        return len(self.times)

    def part(self, rows: slice | npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Events:
        """Some of the rows."""
        return Events(self.words[rows], self.times[rows], self.weights[rows], self.unit)

    def counted(self) -> Events:
        """Those of weight 1 and more."""
        if self.unit or not len(self) or self.weights.min():
            return self
        return self.part(self.weights > 0)

    @property
    def weight(self) -> int:
        """All weights together, which is below 2^62."""
        return len(self) if self.unit else int(self.weights.sum())

    def by_time(self) -> Events:
        """In order of time; those of one time as they came."""
        if bool((self.times[1:] >= self.times[:-1]).all()):
            return self
        return self.part(np.argsort(self.times, kind="stable"))

    def canonical(self) -> Events:
        """By time, then word; those of one time and word as one, with the sum of their weights."""
        order = np.lexsort((self.words, self.times))
        words, times, weights = self.words[order], self.times[order], self.weights[order]
        first = np.ones(len(order), np.bool_)
        first[1:] = (words[1:] != words[:-1]) | (times[1:] != times[:-1])
        starts = np.flatnonzero(first)
        if len(starts):
            weights = np.add.reduceat(weights, starts)
        return Events(words[starts], times[starts], weights)

    @classmethod
    def joined(cls, parts: Sequence[Events]) -> Events:
        """One behind the other."""
        if len(parts) < 2:
            return parts[0] if parts else NOTHING
        return cls(
            np.concatenate([part.words for part in parts]),
            np.concatenate([part.times for part in parts]),
            np.concatenate([part.weights for part in parts]),
            all(part.unit for part in parts),
        )


NOTHING = Events(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64), unit=True)


def lane_bounds(times: Int64Array, clocks: list[int]) -> list[int]:
    """Where a batch in order of time is cut into lanes.

    Args:
        times: int64[m], non-decreasing.
        clocks: of the lanes, strictly falling.

    Returns:
        For each lane the first row of its part, which ends where the part of the lane before it
        begins (the first lane's at m); rows before the last bound are older than every lane.
    """
    bounds: list[int] = np.searchsorted(times, np.array(clocks, np.int64), side="left").tolist()
    return bounds
