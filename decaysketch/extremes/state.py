"""The canonical state of an extremes sketch: a stated function of its rows.

A row is a pair (time, value). Nothing else is stored, so equal pairs are one row. Time is cut into
*spans*, as seen from the newest time N. At each length ``2^k`` they are adjacent from time 0. The
span for a time t is the longest one such that at least ``capacity`` spans with its length lie
between its own number and the number for N,

    k(t) = max {k : floor(N / 2^k) - floor(t / 2^k) >= capacity},

or is t alone if there is no such k. All times in a span share it, a longer span consists of shorter
ones, and as N rises spans are joined and never cut. So the cut for a union follows from the cuts
for its parts, and the largest row in a joined span is among the largest rows in its parts.

A row is a *high* if its value exceeds every row at its own time or later, and every other row in
its span. It is a *low* if it falls short of them likewise. The state is the set of highs and lows.
Each span has at most one high and one low, and there are fewer than ``65 capacity`` spans for any
input.

The state supports windows that end at N or later. The largest value since a time s is the first
high from s on, unless a span that contains a high before s reaches beyond s. Then it may be a row
in between, which is no larger than that high, and both bounds are guaranteed. The error is in the
window's start, by less than ``1 / (capacity - 1)`` of its width.

Why the sketch does not keep a fixed number of rows and discard the oldest first: whether a row is
among the newest ``n`` steps in a staircase depends on which rows arrived before the ones that would
have removed these steps. So no such state is a function of the set.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.extremes.params import ExtremesParams

__all__ = ["MOST_SPANS", "ExtremesState"]

Int64Array = npt.NDArray[np.int64]

MOST_SPANS = 65
"""Capacities of spans that there are at the most, of all lengths."""


@dataclass(frozen=True, slots=True, eq=False)
class ExtremesState:
    """Highs and lows together, by time and then by value, both descending.

    Attributes:
        params: parameters, with the capacity in force.
        times: int64[n].
        value_keys: int64[n]; see :mod:`decaysketch.core.observations`.

    All arrays are read-only.
    """

    params: ExtremesParams
    times: Int64Array
    value_keys: Int64Array

    def __post_init__(self) -> None:
        for column in (self.times, self.value_keys):
            column.setflags(write=False)

    def __len__(self) -> int:
        return len(self.times)

    @property
    def clock(self) -> int:
        """The family has no clock."""
        return NO_WATERMARK

    @property
    def watermarks(self) -> Int64Array:
        """Nothing that a result needs is discarded."""
        return np.array([NO_WATERMARK], np.int64)

    def digest(self) -> str:
        """SHA-256 of the state, in hex."""
        found = hashlib.sha256(b"decaysketch extremes 1")
        found.update(self.params.fingerprint)
        found.update(self.params.capacity.to_bytes(8, "little"))
        for column in (self.times, self.value_keys):
            found.update(np.ascontiguousarray(column, "<i8").tobytes())
        return found.hexdigest()
