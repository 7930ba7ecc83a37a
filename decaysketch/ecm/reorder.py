"""Late events: buffered, assigned to lanes, or rejected and counted. No late event removes a count.

Cells accept times that never fall. Real streams contain events out of order. A counter that
"expires" its contents when one stray event arrives has lost a stream. There are three means, in
this order:

1. *Hold* (``hold`` time units, none by default). An event no later than that behind the clock waits
   in a buffer, counts them exactly there, and continues in time order once it is older. If no event
   is later than ``hold``, the state is a function of the events alone, in any order.
2. *Lanes*. Each lane is a set of cells with its own clock, the time of its last event.
   An event goes to the lane with the latest clock that is not after it. If every clock is after it,
   a new lane is opened, up to ``lanes``. Each event keeps its true time, results add the contents
   of all lanes, and the error does not change. The lanes' clocks fall strictly from the first to
   the last, and k lanes suffice exactly if no k + 1 events arrive in strictly falling time order
   (patience sorting).
3. Events older than every lane are rejected and counted, or counted late on request.

A batch counts as if it arrived in time order. The clock before its batch decides whether an event
is late. Reading may move events out of the buffer, but never changes the lane of a later event.
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
    """Columns with equal lengths: a sketch's input.

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
        """Some rows."""
        return Events(self.words[rows], self.times[rows], self.weights[rows], self.unit)

    def counted(self) -> Events:
        """The events with weight 1 and more."""
        if self.unit or not len(self) or self.weights.min():
            return self
        return self.part(self.weights > 0)

    @property
    def weight(self) -> int:
        """The total weight. It is below 2^62."""
        return len(self) if self.unit else int(self.weights.sum())

    def by_time(self) -> Events:
        """The events in time order. Ties keep their order."""
        if bool((self.times[1:] >= self.times[:-1]).all()):
            return self
        return self.part(np.argsort(self.times, kind="stable"))

    def canonical(self) -> Events:
        """The events by time, then word. Events with equal time and word become one, with the sum
        of their weights.
        """
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
        """Concatenate."""
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
    """Return where a batch in time order is cut into lanes.

    Args:
        times: int64[m], non-decreasing.
        clocks: the lanes' clocks, strictly falling.

    Returns:
        For each lane the first row of its part. The part ends where the part of the lane before it
        begins (the first lane's at m). Rows before the last bound are older than every lane.
    """
    bounds: list[int] = np.searchsorted(times, np.array(clocks, np.int64), side="left").tolist()
    return bounds
