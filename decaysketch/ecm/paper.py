"""The procedures of the paper, one at a time: buckets, queues and samples as it describes them.

Papapetrou, Garofalakis and Deligiannakis, "Sketching distributed sliding-window data streams",
VLDB Journal 24 (2015): exponential histograms held to invariant 1 (section 3), deterministic and
randomized waves (section 4.2), order-preserving merging of histograms (section 5.1, theorem 4) and
of randomized waves (section 5.2). The waves are those of Gibbons and Tirthapura, "Distributed
streams algorithms for sliding windows" (2002), which the paper takes them from.

Corrected where the print is wrong; each of these has a test that the printed form fails
(``tests/ecm/test_errata.py``):

* A histogram whose sizes all have at most ``ceil(k/2) + 1`` buckets, ``k = ceil(1/epsilon)``, and
  which answers with half of the straddling bucket breaks invariant 1: those of size 1 may be k + 1.
* A bucket starts where the *older* one ends, ``s(j) = e(j + 1)``: bucket 1 is the newest.
* The one of a bucket of size 1 lies at its end, and is not halved.
* Windows include both ends, and a one at ``start`` counts.

What is built (:mod:`decaysketch.ecm.reference`) keeps the same ranks as these where they are given
as many buckets or as long queues, and answers with both ends in place of half a bucket. Plain
Python; imports nothing of ours, and nothing falls back to it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

__all__ = [
    "Bucket",
    "DeterministicWave",
    "ExponentialHistogram",
    "RandomizedWave",
    "merge_histograms",
    "merge_randomized",
]


class Bucket(NamedTuple):
    """So many ones in a row, of which the last is at ``end``."""

    size: int
    end: int


class ExponentialHistogram:
    """Buckets of sizes 1, 2, 4, .., of which the two oldest merge when there are too many.

    Args:
        ones: buckets of size 1, at most; k + 1 for an epsilon of 1 / k.
        others: buckets of any other size, at most; ``ceil(k/2) + 1``.
        window: the longest that is asked for: buckets that ended before it are dropped. None
            drops nothing.
    """

    def __init__(self, ones: int, others: int, window: int | None = None) -> None:
        self.ones = ones
        self.others = others
        self.window = window
        self.n = 0  # of all that were added
        self.first: int | None = None  # time of the first one
        self._of_size: list[deque[int]] = []  # ends of buckets of size 2^i, newest first

    @classmethod
    def for_accuracy(cls, epsilon: float, window: int | None = None) -> ExponentialHistogram:
        """One that answers within ``epsilon``, by the counts of Datar and others."""
        k = math.ceil(1 / Fraction(epsilon).limit_denominator(1 << 30))
        return cls(k + 1, math.ceil(k / 2) + 1, window)

    def add(self, time: int, ones: int = 1) -> None:
        """Ones at a time not before the last, one after another. O(1) amortised for each."""
        for _ in range(ones):
            self.n += 1
            if self.first is None:
                self.first = time
            end = time
            for level in range(len(self._of_size) + 1):
                if level == len(self._of_size):
                    self._of_size.append(deque())
                ends = self._of_size[level]
                ends.appendleft(end)
                if len(ends) <= (self.others if level else self.ones):
                    break
                ends.pop()
                end = ends.pop()  # that of the newer of the two
        if self.window is not None:
            self._expire(time - self.window)

    def _expire(self, start: int) -> None:
        for ends in reversed(self._of_size):
            while ends and ends[-1] < start:
                ends.pop()

    def buckets(self) -> list[Bucket]:
        """Newest first."""
        return [Bucket(1 << i, end) for i, ends in enumerate(self._of_size) for end in ends]

    def ratio(self) -> Fraction:
        """The largest ``C_j / (2 (1 + sum of C_i, i < j))``, which invariant 1 holds to epsilon.

        Of buckets of two ones or more: one of size 1 has no half to be wrong by.
        """
        worst, newer = Fraction(0), 0
        for size, _ in self.buckets():
            if size > 1:
                worst = max(worst, Fraction(size, 2 * (1 + newer)))
            newer += size
        return worst

    def estimate(self, start: int) -> Fraction:
        """Ones of a time of ``start`` or later: all of the buckets that are newer than the one
        that straddles ``start``, and half of that."""
        inside = [bucket for bucket in self.buckets() if bucket.end >= start]
        if not inside:
            return Fraction(0)
        newer = sum(bucket.size for bucket in inside[:-1])
        oldest = inside[-1]
        whole = oldest.size == 1 or (self.first is not None and start <= self.first)
        return newer + Fraction(oldest.size, 1 if whole else 2)


class DeterministicWave:
    """Queues of the latest ranks that are multiples of 2^i and of no higher power of 2.

    Args:
        slots: length of each queue but the last, ``ceil((1/epsilon + 1) / 2)``.
        levels: queues. The last holds all multiples of ``2^(levels - 1)`` and is twice as long.
    """

    def __init__(self, slots: int, levels: int) -> None:
        self.n = 0
        self._queues: list[deque[tuple[int, int]]] = [
            deque(maxlen=slots if level < levels - 1 else 2 * slots) for level in range(levels)
        ]

    @classmethod
    def for_accuracy(cls, epsilon: float, most: int) -> DeterministicWave:
        """One that answers within ``epsilon`` where no window has more than ``most`` ones."""
        inverse = 1 / Fraction(epsilon).limit_denominator(1 << 30)
        levels = max(1, math.ceil(math.log2(2 * most / inverse)) + 1)
        return cls(math.ceil((inverse + 1) / 2), levels)

    def add(self, time: int) -> None:
        """A one at a time not before the last. O(1)."""
        self.n += 1
        level = (self.n & -self.n).bit_length() - 1
        self._queues[min(level, len(self._queues) - 1)].appendleft((self.n, time))

    def queue(self, level: int) -> list[tuple[int, int]]:
        """(rank, time) of a level, newest first."""
        return list(self._queues[level])

    def estimate(self, start: int) -> Fraction | None:
        """Ones of a time of ``start`` or later; None where there were more than ``most`` of them.

        Between the rank before ``start``, r1, and the one after, r2: the middle of them, or r2
        itself where nothing lies between.
        """
        entries = sorted(entry for queue in self._queues for entry in queue)
        after = min((rank for rank, time in entries if time >= start), default=None)
        if after is None:
            return Fraction(0)
        earlier = [rank for rank, time in entries if time < start]
        last = self._queues[-1]
        if not earlier and self.n >> (len(self._queues) - 1) > len(last):
            return None  # the last queue has forgotten
        before = max(earlier, default=0)
        if before == after - 1:
            return Fraction(self.n - after + 1)
        return self.n + 1 - Fraction(before + after, 2)


class RandomizedWave:
    """At each level l the latest ids of those that a hash gives a level of l or more.

    Keyed by ids, as Gibbons and Tirthapura's for unions is by positions: copies count once, by
    their latest time. Of ids of one time the larger is the later.

    Args:
        capacity: ids that a level keeps, ``ceil(c / epsilon^2)``.
        levels: samples; the last is read where no other reaches.
        level_of: the level of an id: l or more with probability ``2^-l``.
    """

    def __init__(self, capacity: int, levels: int, level_of: Callable[[int], int]) -> None:
        self.capacity = capacity
        self.level_of = level_of
        self.samples: list[dict[int, int]] = [{} for _ in range(levels)]  # latest time of an id
        self.dropped: list[int | None] = [None] * levels  # latest time that left a sample

    def add(self, time: int, identity: int) -> None:
        """An id at a time, in any order. O(capacity) for each level that it reaches."""
        for level in range(min(self.level_of(identity), len(self.samples) - 1) + 1):
            self._put(level, time, identity)

    def _put(self, level: int, time: int, identity: int) -> None:
        sample = self.samples[level]
        sample[identity] = max(time, sample.get(identity, time))
        if len(sample) > self.capacity:
            oldest = min(sample, key=lambda known: (sample[known], known))
            self._drop(level, sample.pop(oldest))

    def _drop(self, level: int, time: int | None) -> None:
        known = self.dropped[level]
        if time is not None and (known is None or time > known):
            self.dropped[level] = time

    def estimate(self, start: int) -> int | None:
        """Distinct ids of a time of ``start`` or later, from the lowest level that has all of its
        own; None where none has."""
        for level, (sample, dropped) in enumerate(zip(self.samples, self.dropped, strict=True)):
            if dropped is None or dropped < start:
                return sum(time >= start for time in sample.values()) << level
        return None


def merge_histograms(
    histograms: Sequence[ExponentialHistogram],
    into: ExponentialHistogram,
    starts: Callable[[list[Bucket], int, int], int] | None = None,
) -> ExponentialHistogram:
    """Section 5.1: of each bucket half of the ones at its start, half at its end, in order.

    Args:
        histograms: of one epsilon, any number.
        into: an empty one, of the error that the result is to add (epsilon').
        starts: where a bucket starts, of (buckets newest first, place, first time); by default
            where the next older one ends.

    Returns:
        ``into``, whose answers are within ``epsilon + epsilon' + epsilon epsilon'`` (theorem 4).
    """
    halves = [
        half
        for histogram in histograms
        for half in _halves(histogram.buckets(), histogram.first or 0, starts or _start)
    ]
    for time, ones in sorted(halves):
        into.add(time, ones)
    return into


def _start(buckets: list[Bucket], place: int, first: int) -> int:
    return buckets[place + 1].end if place + 1 < len(buckets) else first


def _halves(
    buckets: list[Bucket], first: int, starts: Callable[[list[Bucket], int, int], int]
) -> Iterator[tuple[int, int]]:
    for place, (size, end) in enumerate(buckets):
        if size == 1:
            yield end, 1
        else:
            yield starts(buckets, place, first), size // 2
            yield end, size // 2


def merge_randomized(waves: Iterable[RandomizedWave], into: RandomizedWave) -> RandomizedWave:
    """Section 5.2: each level is put together, in order of times, and the latest are kept.

    A wave with fewer levels than ``into`` gives the lower ones from its last, by the hash.

    Returns:
        ``into``: the wave of the union of all streams, copies removed; exactly, where all have as
        many levels.
    """
    for wave in waves:
        last = len(wave.samples) - 1
        for level in range(len(into.samples)):
            into._drop(level, wave.dropped[min(level, last)])
            for identity, time in wave.samples[min(level, last)].items():
                if into.level_of(identity) >= level:
                    into._put(level, time, identity)
    return into
