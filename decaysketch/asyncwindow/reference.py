"""The paper's procedures in plain Python: heaps, one element at a time, one sample for each level.

Xu, Tirthapura and Busch, "Sketching asynchronous data streams over sliding windows": SumInit,
SumProcess, SumQuery (section 2.2, with the parameter L of section 2.5), MedianProcess, MedianQuery
(section 3.1), Union (section 4). Here every sample ``S_i`` is a separate set, and an element is
stored in each sample it is put into. The samplers store an element once, and must give the same
results.

Corrections to the printed version. Each has a test that the printed form fails:

* The level of a value of ``2^M`` is M. Step 2 of SumProcess finds none.
* When a sample overflows, *all* elements with its earliest time are discarded, and elements not
  later than ``t_i`` are never accepted. Discarding "the element with the lowest timestamp", one
  among several, makes the state depend on the order of arrival. Union likewise.
* With the parameter L, a query whose level is below L reads levels ``l' .. L``, not
  ``l' + 1 .. L``. And SumProcess is L = M, not L = M - 1.
* The clock c, by which step 1 discards, is part of the sketch, and Union uses the later one.
  Otherwise an element that only one of two sketches had discarded would come back.
* Elements have keys, which fix their coins. Samples are sets of keyed elements, and Union is their
  union. With coins tossed on arrival no two runs agree. With bare pairs (v, t) as elements, Union's
  set union would lose one of two equal elements.

Tests check this module by hand-made cases, and it checks the compiled kernels. It therefore imports
no project code, and nothing falls back to it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from fractions import Fraction

__all__ = [
    "COIN_BITS",
    "Sample",
    "Sketch",
    "median_process",
    "median_query",
    "mix64",
    "sum_init",
    "sum_process",
    "sum_query",
    "top_level",
    "union",
]

COIN_BITS = 53
_MASK = (1 << 64) - 1

Identity = tuple[int, int]  # (key, value) for a sum, (key, 0) for a median


def mix64(word: int) -> int:
    """The mixer that makes keys: see ``decaysketch.core.hashing.mix64``."""
    word ^= word >> 27
    word = word * 0x3C79AC492BA7B653 & _MASK
    word ^= word >> 33
    word = word * 0x1C69B3F74AC4AE35 & _MASK
    return word ^ word >> 27


def top_level(key: int, value: int, levels: int) -> int:
    """The largest ``i <= M`` with ``U < v / 2^i``, ``U = floor(key / 2^11) / 2^53``.

    One uniform number replaces all the coins in steps 3 and 4 of SumProcess: level ``i`` is reached
    with probability ``min(1, v / 2^i)``.
    """
    coin = key >> 64 - COIN_BITS
    level = 0
    while level < levels and coin << level + 1 < value << COIN_BITS:
        level += 1
    return level


class Sample:
    """S_i and t_i: the most recent elements, as a heap by time."""

    def __init__(self) -> None:
        self.discarded: int | None = None  # t_i; the paper's -1 is None
        self._elements: dict[Identity, tuple[int, int]] = {}  # latest (t, v) of each
        self._heap: list[tuple[int, int, Identity]] = []

    def __len__(self) -> int:
        return len(self._elements)

    def __iter__(self) -> Iterator[tuple[int, int, Identity]]:
        """(t, v, identity) of each element."""
        return ((t, v, identity) for identity, (t, v) in self._elements.items())

    def discard_until(self, time: int) -> None:
        """Drop all elements not later than ``time``, and never accept them again."""
        if self.discarded is None or time > self.discarded:
            self.discarded = time
        while self._heap and self._heap[0][0] <= time:
            t, v, identity = heapq.heappop(self._heap)
            if self._elements.get(identity) == (t, v):  # else a later copy has taken its place
                del self._elements[identity]

    def insert(self, t: int, v: int, identity: Identity, capacity: int) -> None:
        """Steps 5 and 6 of SumProcess, and steps 2 and 3 of MedianProcess."""
        if self.discarded is not None and t <= self.discarded:
            return
        known = self._elements.get(identity)
        if known is not None and known >= (t, v):
            return
        self._elements[identity] = (t, v)
        heapq.heappush(self._heap, (t, v, identity))
        while len(self._elements) > capacity:
            self._drop_stale()
            self.discard_until(self._heap[0][0])

    def _drop_stale(self) -> None:
        while self._elements.get(self._heap[0][2]) != self._heap[0][:2]:
            heapq.heappop(self._heap)


class Sketch:
    """Samples 0..M, and the clock c."""

    def __init__(
        self, levels: int, capacity: int, max_window: int | None, eager_from_level: int
    ) -> None:
        self.levels = levels  # M
        self.capacity = capacity  # alpha
        self.max_window = max_window  # W
        self.eager_from_level = eager_from_level  # L
        self.clock: int | None = None  # c
        self.samples = [Sample() for _ in range(levels + 1)]

    def advance(self, now: int) -> None:
        """Move the clock on, and drop everything that no window reaches any more."""
        if self.clock is None or now > self.clock:
            self.clock = now
        if self.max_window is not None:
            for sample in self.samples:
                sample.discard_until(self.clock - self.max_window - 1)


def sum_init(
    levels: int,
    capacity: int,
    *,
    max_window: int | None = None,
    eager_from_level: int | None = None,
) -> Sketch:
    """SumInit. ``eager_from_level`` None is SumProcess as in section 2.2. Pass 0 for the median."""
    nested = levels if eager_from_level is None else eager_from_level
    return Sketch(levels, capacity, max_window, nested)


def sum_process(sketch: Sketch, v: int, t: int, key: int) -> None:
    """SumProcess, with L of section 2.5. Step 1 is in ``discard_until``: t_i is at least c - W - 1.

    O(log alpha) for each sample that receives the element.
    """
    top = top_level(key, v, sketch.levels)
    first = min(top, sketch.eager_from_level)
    for i in range(first, top + 1):
        sketch.samples[i].insert(t, v, (key, v), sketch.capacity)


def median_process(sketch: Sketch, v: int, t: int, key: int) -> None:
    """MedianProcess: every level that the element is sampled into (L is 0)."""
    for i in range(top_level(key, 1, sketch.levels) + 1):
        sketch.samples[i].insert(t, v, (key, 0), sketch.capacity)


def sum_query(sketch: Sketch, w: int, c: int) -> tuple[Fraction, int] | None:
    """SumQuery(w) at time c: (estimate, level l'), or None if the algorithm fails. O(M alpha)."""
    level = sketch.levels + 1
    while level > 0 and _complete(sketch.samples[level - 1], c - w):
        level -= 1
    if level > sketch.levels:
        return None
    last = level if level >= sketch.eager_from_level else sketch.eager_from_level
    eta = Fraction(0)
    for i in range(level, last + 1):
        for t, v, _ in sketch.samples[i]:
            if c - w <= t <= c:
                eta += max(Fraction(v, 1 << level), Fraction(1))
    return eta * (1 << level), level


def median_query(sketch: Sketch, w: int, c: int) -> tuple[int | None, int] | None:
    """MedianQuery(w) at time c: (the lower median, level l'), or None if the algorithm fails.

    The median of an empty set is None.
    """
    for level, sample in enumerate(sketch.samples):
        if _complete(sample, c - w):
            values = sorted(v for t, v, _ in sample if c - w <= t <= c)
            return (values[(len(values) - 1) // 2] if values else None), level
    return None


def _complete(sample: Sample, start: int) -> bool:
    return sample.discarded is None or sample.discarded < start


def union(a: Sketch, b: Sketch) -> Sketch:
    """Union(Sk_A, Sk_B): the sketch of both streams. Neither argument changes."""
    c = Sketch(a.levels, min(a.capacity, b.capacity), a.max_window, a.eager_from_level)
    for i in range(c.levels + 1):
        for part in (a.samples[i], b.samples[i]):
            if part.discarded is not None:  # before anything is taken in
                c.samples[i].discard_until(part.discarded)
        for part in (a.samples[i], b.samples[i]):
            for t, v, identity in part:
                c.samples[i].insert(t, v, identity, c.capacity)
    for clock in (a.clock, b.clock):
        if clock is not None:
            c.advance(clock)
    return c
