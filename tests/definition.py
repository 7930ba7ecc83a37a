"""The state of a sketch by its definition: sets and counting, no update rule, no order of arrival.

A state is a function of the *set* of copies that were seen. Here that function is written down once
as plainly as it can be, for every test that needs to know what a sketch must hold (an oracle: it
shares nothing with the library, and is quadratic or worse).

1. Identity. Observations with equal (id, weight) are copies of one; the latest copy, the maximum by
   (time, value_key), represents it. A weight of 0 stands for no integers: it contributes nothing.
2. Level. Each observation has one top level, a function of (id, weight): it belongs to the samples
   of levels 0 .. top. The caller says which, by a callable ``level(id, weight)``.
3. Watermark. t_i is the largest time T such that more than ``capacity`` observations of level >= i
   have time >= T, and `NO_WATERMARK` where there is none: nothing of that level was discarded.
4. Retention. An observation of top level l is kept iff time > t_l.
5. Canonical order: time descending, then id descending, then weight descending.

A value key is the int64 a value is held as; keys order as the values do, a missing value first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

NO_WATERMARK = -(2**63)


class Row(NamedTuple):
    """One observation, as it stands in a state."""

    value_key: int
    weight: int
    time: int
    id: int


class State(NamedTuple):
    """What a sketch holds: retained rows in canonical order, their top levels, t_0 .. t_M."""

    rows: tuple[Row, ...]
    levels: tuple[int, ...]
    watermarks: tuple[int, ...]

    def sample(self, level: int) -> list[Row]:
        """S_i, the retained rows of the sample of one level."""
        pairs = zip(self.rows, self.levels, strict=True)
        return [row for row, top in pairs if top >= level and row.time > self.watermarks[level]]


def representatives(copies: Iterable[Sequence[int]]) -> list[Row]:
    """The latest copy of every (id, weight), for rows (value_key, weight, time, id)."""
    latest: dict[tuple[int, int], Row] = {}
    for copy in copies:
        row = Row(*map(int, copy))
        known = latest.get((row.id, row.weight), row)
        if row.weight > 0:
            latest[row.id, row.weight] = max(row, known, key=lambda r: (r.time, r.value_key))
    return list(latest.values())


def watermark(times: Iterable[int], capacity: int) -> int:
    """Largest T such that more than ``capacity`` of the times are >= T, or `NO_WATERMARK`.

    The count changes at the times themselves only, so T is the one of rank capacity + 1.
    """
    ranked = sorted(times, reverse=True)
    return ranked[capacity] if len(ranked) > capacity else NO_WATERMARK


def state(
    copies: Iterable[Sequence[int]],
    level: Callable[[int, int], int],
    capacity: int,
    max_level: int,
) -> State:
    """The state by definition.

    Args:
        copies: rows (value_key, weight, time, id), in any order, with any repetition.
        level: top level 0..max_level of the observation (id, weight).
        capacity: observations kept for each level (tau).
        max_level: the coarsest level (M).
    """
    tops = {row: level(row.id, row.weight) for row in representatives(copies)}
    watermarks = tuple(
        watermark((row.time for row, top in tops.items() if top >= i), capacity)
        for i in range(max_level + 1)
    )
    kept = [row for row, top in tops.items() if row.time > watermarks[top]]
    kept.sort(key=lambda row: (row.time, row.id, row.weight), reverse=True)
    return State(tuple(kept), tuple(tops[row] for row in kept), watermarks)
