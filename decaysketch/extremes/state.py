"""The canonical state of a sketch of extremes: a stated function of the set of rows it has seen.

A row is a pair (time, value); what else came with it is not kept, so that equal pairs are one. Time
is cut into *spans*, as seen from the newest time N: at each length ``2^k`` they lie end to end from
time 0, and the one that a time t lies in is the longest that still has ``capacity`` spans of its
length between its own number and that of N,

    k(t) = max {k : floor(N / 2^k) - floor(t / 2^k) >= capacity},

or is t alone, where there is no such k. Whatever lies in a span has it in common, a longer span
consists of shorter ones, and as N rises spans are joined and never cut: so the cut of a union is
found from those of its parts, and the largest row of a joined span is among those of its parts.

A row is a *high* if its value exceeds that of every row of its own time or later, and of every
other row of its span, and a *low* if it falls short of them likewise. The state is the set of highs
and lows. There is one of each in a span at the most, and there are fewer than ``65 capacity``
spans, whatever comes.

It answers for windows that end at N or later. The largest value since a time s is that of the first
high from s on, unless a span that holds a high before s reaches beyond s: then it may be that of a
row between, which is no larger than that high, and both ends are sure. The error is in the
beginning of the window, by less than ``1 / (capacity - 1)`` of its width.

Why rows are not just kept up to a number, the oldest discarded first: whether a row is one of the
newest ``n`` steps of a staircase depends on which rows came before the ones that would have
removed these steps, so that no such state is a function of the set.
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
        params: parameters, of which the capacity is the one in force.
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
        """It is told no time."""
        return NO_WATERMARK

    @property
    def watermarks(self) -> Int64Array:
        """Nothing that an answer needs is discarded."""
        return np.array([NO_WATERMARK], np.int64)

    def digest(self) -> str:
        """SHA-256 of the state, in hex."""
        found = hashlib.sha256(b"decaysketch extremes 1")
        found.update(self.params.fingerprint)
        found.update(self.params.capacity.to_bytes(8, "little"))
        for column in (self.times, self.value_keys):
            found.update(np.ascontiguousarray(column, "<i8").tobytes())
        return found.hexdigest()
