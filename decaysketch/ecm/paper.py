"""The paper's procedures, one at a time: buckets, queues and samples as the paper describes them.

Papapetrou, Garofalakis and Deligiannakis, "Sketching distributed sliding-window data streams",
VLDB Journal 24 (2015): exponential histograms under invariant 1 (section 3), deterministic and
randomized waves (section 4.2), order-preserving merging of histograms (section 5.1, theorem 4) and
of randomized waves (section 5.2). The waves come from Gibbons and Tirthapura, "Distributed
streams algorithms for sliding windows" (2002), which the paper cites.

Corrections to the printed version. Each has a test that the printed form fails
(``tests/ecm/test_errata.py``):

* A histogram with at most ``ceil(k/2) + 1`` buckets per size, ``k = ceil(1/epsilon)``, that
  returns half the straddling bucket breaks invariant 1. Size 1 may have k + 1 buckets.
* A bucket starts at the end of the *older* one, ``s(j) = e(j + 1)``: bucket 1 is the newest.
* The one in a bucket with size 1 lies at its end, and is not halved.
* Windows include both bounds, and a one at ``start`` counts.

The implementation (:mod:`decaysketch.ecm.reference`) keeps the same ranks as these for equal bucket
counts or queue lengths, and returns both bounds instead of half a bucket. Plain
Python. It imports no project code, and nothing falls back to it.
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
    """A number of consecutive ones. The last is at ``end``."""

    size: int
    end: int


class ExponentialHistogram:
    """Buckets with sizes 1, 2, 4, .. The two oldest merge when there are too many.

    Args:
        ones: maximum buckets with size 1; k + 1 for an epsilon of 1 / k.
        others: maximum buckets with any other size; ``ceil(k/2) + 1``.
        window: the longest window for queries: buckets that ended before it are dropped. None
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
        """Return a histogram with error at most ``epsilon``, by the counts of Datar and others."""
        k = math.ceil(1 / Fraction(epsilon).limit_denominator(1 << 30))
        return cls(k + 1, math.ceil(k / 2) + 1, window)

    def add(self, time: int, ones: int = 1) -> None:
        """Add ones at a time not before the last, one after another. O(1) amortised for each."""
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
        """The largest ``C_j / (2 (1 + sum of C_i, i < j))``, which invariant 1 limits to epsilon.

        It covers buckets with two ones or more: half a bucket with size 1 cannot be wrong.
        """
        worst, newer = Fraction(0), 0
        for size, _ in self.buckets():
            if size > 1:
                worst = max(worst, Fraction(size, 2 * (1 + newer)))
            newer += size
        return worst

    def estimate(self, start: int) -> Fraction:
        """Ones at time ``start`` or later: all buckets newer than the one
        that straddles ``start``, and half of that.
        """
        inside = [bucket for bucket in self.buckets() if bucket.end >= start]
        if not inside:
            return Fraction(0)
        newer = sum(bucket.size for bucket in inside[:-1])
        oldest = inside[-1]
        whole = oldest.size == 1 or (self.first is not None and start <= self.first)
        return newer + Fraction(oldest.size, 1 if whole else 2)


class DeterministicWave:
    """Queues with the latest ranks that are multiples of 2^i and no higher power of 2.

    Args:
        slots: length of each queue but the last, ``ceil((1/epsilon + 1) / 2)``.
        levels: number of queues. The last contains all multiples of ``2^(levels - 1)`` and is twice
            as long.
    """

    def __init__(self, slots: int, levels: int) -> None:
        self.n = 0
        self._queues: list[deque[tuple[int, int]]] = [
            deque(maxlen=slots if level < levels - 1 else 2 * slots) for level in range(levels)
        ]

    @classmethod
    def for_accuracy(cls, epsilon: float, most: int) -> DeterministicWave:
        """Return a wave with error at most ``epsilon`` if no window has more than ``most`` ones."""
        inverse = 1 / Fraction(epsilon).limit_denominator(1 << 30)
        levels = max(1, math.ceil(math.log2(2 * most / inverse)) + 1)
        return cls(math.ceil((inverse + 1) / 2), levels)

    def add(self, time: int) -> None:
        """Add a one at a time not before the last. O(1)."""
        self.n += 1
        level = (self.n & -self.n).bit_length() - 1
        self._queues[min(level, len(self._queues) - 1)].appendleft((self.n, time))

    def queue(self, level: int) -> list[tuple[int, int]]:
        """(rank, time) pairs in a level, newest first."""
        return list(self._queues[level])

    def estimate(self, start: int) -> Fraction | None:
        """Ones at time ``start`` or later. None if there were more than ``most``.

        Between the rank before ``start``, r1, and the one after, r2: their middle, or r2
        itself if nothing lies between.
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
    """At each level l the latest ids among those that a hash gives level l or more.

    It is keyed by ids, as Gibbons and Tirthapura's wave for unions is by positions: duplicates
    count once, by their latest time. Among ids with one time the larger is the later.

    Args:
        capacity: ids that a level keeps, ``ceil(c / epsilon^2)``.
        levels: number of samples. The last is read if no other reaches.
        level_of: an id's level: l or more with probability ``2^-l``.
    """

    def __init__(self, capacity: int, levels: int, level_of: Callable[[int], int]) -> None:
        self.capacity = capacity
        self.level_of = level_of
        self.samples: list[dict[int, int]] = [{} for _ in range(levels)]  # latest time of an id
        self.dropped: list[int | None] = [None] * levels  # latest time that left a sample

    def add(self, time: int, identity: int) -> None:
        """Add an id at a time, in any order. O(capacity) for each level that it reaches."""
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
        """Distinct ids at time ``start`` or later, from the lowest level that has all its
        own. None if no level has.
        """
        for level, (sample, dropped) in enumerate(zip(self.samples, self.dropped, strict=True)):
            if dropped is None or dropped < start:
                return sum(time >= start for time in sample.values()) << level
        return None


def merge_histograms(
    histograms: Sequence[ExponentialHistogram],
    into: ExponentialHistogram,
    starts: Callable[[list[Bucket], int, int], int] | None = None,
) -> ExponentialHistogram:
    """Section 5.1: for each bucket half its ones at its start, half at its end, in order.

    Args:
        histograms: histograms with one epsilon, any number.
        into: an empty one, with the error that the result may add (epsilon').
        starts: start of a bucket, from (buckets newest first, place, first time); by default
            the end of the next older one.

    Returns:
        ``into``, with results within ``epsilon + epsilon' + epsilon epsilon'`` (theorem 4).
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
    """Section 5.2: each level is joined, in time order, and the latest are kept.

    A wave with fewer levels than ``into`` gives the lower ones from its last, by the hash.

    Returns: ``into``: the wave for the union of all streams, without duplicates. Exact if all have
        equally many levels.
    """
    for wave in waves:
        last = len(wave.samples) - 1
        for level in range(len(into.samples)):
            into._drop(level, wave.dropped[min(level, last)])
            for identity, time in wave.samples[min(level, last)].items():
                if into.level_of(identity) >= level:
                    into._put(level, time, identity)
    return into
