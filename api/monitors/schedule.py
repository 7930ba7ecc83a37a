"""The next evaluation time for each monitor.

A monitor is evaluated when its stream changes. Time alone changes its state as well, because
weights decay, so each monitor also has a due time. The due times are a heap, so a round
costs time for due monitors only, however many exist.
"""

from __future__ import annotations

import heapq

__all__ = ["Schedule"]


class Schedule:
    """Due times by monitor id, in seconds on one steady clock."""

    def __init__(self) -> None:
        self._at: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []

    def put(self, number: int, at: float) -> None:
        """Set a monitor's due time. O(log n)."""
        self._at[number] = at
        heapq.heappush(self._heap, (at, number))

    def drop(self, number: int) -> None:
        """Forget a monitor."""
        self._at.pop(number, None)

    def is_due(self, now: float) -> bool:
        """Return whether a monitor may be due. O(1)."""
        return bool(self._heap) and self._heap[0][0] <= now

    def due(self, now: float) -> set[int]:
        """The monitors that are due, without a due time from now on. O(k log n) for k of them."""
        found = set()
        while self._heap and self._heap[0][0] <= now:
            at, number = heapq.heappop(self._heap)
            if self._at.get(number) == at:
                del self._at[number]
                found.add(number)
        return found
