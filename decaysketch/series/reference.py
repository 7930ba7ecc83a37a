"""The definition in ``state.py``, in plain Python, by sets and counting.

It checks the compiled kernels, and is checked by cases that were counted by hand. It therefore
imports nothing of ours, and no fast path falls back to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["NONE", "TOP", "Row", "level_of", "settled", "state"]

NONE = -(1 << 63)
"""No start, no value, no watermark."""

TOP = 40
_MASK = (1 << 64) - 1


class Row(NamedTuple):
    """A row. Its value is a value key."""

    entity: int
    weight: int
    series: int
    time: int
    start: int
    value: int


def _mix(word: int) -> int:
    word = (word ^ word >> 27) * 0x3C79AC492BA7B653 & _MASK
    word = (word ^ word >> 33) * 0x1C69B3F74AC4AE35 & _MASK
    return word ^ word >> 27


def level_of(entity: int, weight: int, words: Sequence[int]) -> int:
    """The largest i up to 40 such that ``U < weight 2^(64 - i)``."""
    word = _mix((_mix(entity ^ words[0]) + words[1]) & _MASK)
    return max(i for i in range(TOP + 1) if i == 0 or word < weight << 64 - i)


def state(
    rows: Iterable[Row], capacity: int, resolution: int, words: Sequence[int]
) -> tuple[list[Row], list[int]]:
    """Return the rows that the sketch stores, in canonical order, and its watermarks.

    Args:
        rows: all rows, any of them repeatedly. Rows with weight 0 are ignored.
        capacity, resolution: the parameters with these names.
        words: the two key words for sampling.
    """
    latest: dict[tuple[int, int, int, int], Row] = {}
    for row in rows:
        if row.weight:
            row = row._replace(weight=1 << row.weight.bit_length() - 1)
            name = (row.entity, row.weight, row.series, row.time // resolution)
            latest[name] = max(latest.get(name, row), row, key=lambda each: each[3:])
    level = {row: level_of(row.entity, row.weight, words) for row in latest.values()}
    marks = []
    for i in range(TOP + 1):
        times = sorted((row.time for row in level if level[row] >= i), reverse=True)
        marks.append(times[capacity] if len(times) > capacity else NONE)
    return sorted(row for row in level if row.time > marks[level[row]]), marks


def settled(rows: Sequence[tuple[int, int]], guard: int) -> list[int]:
    """Values of one counter without the falls that clocks make; see ``guard.c``.

    Args:
        rows: (time, value), times rise.
        guard: in units of time.
    """
    found: list[int] = []
    begin = 0
    for k, (time, value) in enumerate(rows):
        if not k or value >= found[-1]:
            found.append(value)
            continue
        high = found[-1]
        before = [found[j] for j in range(begin, k) if rows[j][0] >= time - guard]
        low = before[0] if before else high
        after = [v for t, v in rows[k + 1 :] if t <= time + guard]
        if (before and low <= value) or any(v >= low for v in after):
            found.append(high)
        else:
            begin = k
            found.append(value)
    return found
