"""The state of an integral sketch by its definition: sets and counting, every integer looked at.

An oracle: it shares nothing with the library, and is quadratic or worse. The caller supplies the
decay ``f(w, x)`` and the hash, as a callable that says which integers a level selects.

1. Identity. Observations with equal (id, weight) are copies of one; the latest copy, the maximum by
   (time, value key), represents it.
2. Level. At age x an observation stands for the positions 0 <= j < f(w, x). It is in T_i if level i
   selects one of the positions at age 0; Delta_i is the first of these.
3. Expiry. In T_i it expires at t + min{x : f(w, x) <= Delta_i}: then no position is left, or none
   that the level selects (definition 3.1 of the paper, lemma 3.5).
4. Watermark. t_i is the later of the clock and of the largest E such that more than ``capacity``
   observations of T_i expire at E or later.
5. Retention. An observation is kept iff in some T_i it expires later than t_i.
6. Canonical order: time descending, then id descending, then weight descending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from definition import NO_WATERMARK, Row, representatives, watermark

NO_CLOCK = NO_WATERMARK

Expiries = tuple[int | None, ...]  # by level; None where the observation is not in T_i


class State(NamedTuple):
    """What a sketch holds."""

    rows: tuple[Row, ...]
    watermarks: tuple[int, ...]
    expiries: dict[Row, Expiries]  # of every observation, kept or not

    def sample(self, level: int) -> list[Row]:
        """S_i of the paper."""
        return [
            row
            for row in self.rows
            if (expiry := self.expiries[row][level]) is not None and expiry > self.watermarks[level]
        ]


def expiry_age(f: Callable[[int, int], int], weight: int, delta: int) -> int:
    """min{x : f(weight, x) <= delta}, where f falls to 0: by doubling, then halving."""
    high = 1
    while f(weight, high) > delta:
        high *= 2
    low = -1  # f(weight, -1) > delta, so to say
    while high - low > 1:
        middle = (low + high) // 2
        if f(weight, middle) <= delta:
            high = middle
        else:
            low = middle
    return high


def state(
    copies: Iterable[Sequence[int]],
    f: Callable[[int, int], int],
    first_hits: Callable[[int, int], Sequence[int]],
    capacity: int,
    max_level: int,
    clock: int = NO_CLOCK,
) -> State:
    """The state by definition.

    Args:
        copies: rows (value_key, weight, time, id), in any order, with any repetition.
        f: the decay.
        first_hits: (id, length) -> for each level, the first position below length that it
            selects, or -1.
        capacity: tau.
        max_level: M.
        clock: the latest time the sketch was told.
    """
    expiries: dict[Row, Expiries] = {}
    for row in representatives(copies):
        deltas = first_hits(row.id, f(row.weight, 0))
        ages = {delta: expiry_age(f, row.weight, delta) for delta in set(deltas) if delta >= 0}
        expiries[row] = tuple(row.time + ages[delta] if delta >= 0 else None for delta in deltas)
    watermarks = tuple(
        max(clock, watermark((e[i] for e in expiries.values() if e[i] is not None), capacity))
        for i in range(max_level + 1)
    )
    kept = [
        row
        for row, found in expiries.items()
        if any(e is not None and e > t for e, t in zip(found, watermarks, strict=True))
    ]
    kept.sort(key=lambda row: (row.time, row.id, row.weight), reverse=True)
    return State(tuple(kept), watermarks, expiries)
