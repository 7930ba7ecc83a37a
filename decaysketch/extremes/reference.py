"""The definition from ``state.py`` in plain Python, one row at a time.

It checks the compiled kernels, and hand-made cases check it. It therefore imports no project code,
and nothing falls back to it.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["largest", "span_of", "state"]

Row = tuple[int, int]  # time and value

_LONGEST = 63


def span_of(time: int, newest: int, capacity: int) -> tuple[int, int]:
    """Return the first and last instant of the span that contains a time."""
    for k in range(_LONGEST, -1, -1):
        if (newest >> k) - (time >> k) >= capacity:
            first = time >> k << k
            return first, first + (1 << k) - 1
    return time, time


def state(rows: Iterable[Row], capacity: int) -> list[Row]:
    """Return the highs and lows in a set of rows, latest and largest first."""
    given = {*rows}
    newest = max((time for time, _ in given), default=0)
    spans = {time: span_of(time, newest, capacity) for time, _ in given}

    def rivals(row: Row) -> list[int]:
        return [
            value for time, value in given - {row} if time >= row[0] or spans[time] == spans[row[0]]
        ]

    def is_high(row: Row) -> bool:
        later = [value for time, value in given - {row} if time >= row[0]]
        return all(row[1] > value for value in later) and row[1] >= max(rivals(row), default=row[1])

    def is_low(row: Row) -> bool:
        later = [value for time, value in given - {row} if time >= row[0]]
        return all(row[1] < value for value in later) and row[1] <= min(rivals(row), default=row[1])

    return sorted((row for row in given if is_high(row) or is_low(row)), reverse=True)


def largest(rows: Iterable[Row], since: int) -> int | None:
    """Return the largest value among the rows at a time or later: the truth that results
    approximate.
    """
    return max((value for time, value in rows if time >= since), default=None)
