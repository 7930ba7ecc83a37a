"""Counts that the guard against clocks may hide.

The guard (``guard.c``) reads a row below the largest value so far as one that a slow clock stamped.
The same happens to a counter that restarts twice within the guard, and then the counts of the life
between are lost. The two differ in time: the rows of a slow clock are below the largest value only
until the next row of the other clock. So this module counts rises among rows that stay below it for
several usual intervals. A rise from one collector to the other, after a restart, ends in a fall and
does not count.

Two collectors whose clocks differ by four scrape intervals or more, with missed scrapes, look the
same.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["LARGEST_SHARE", "hidden_rises", "minus"]

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]

LARGEST_SHARE = 0.05
"""Of an increase. Two collectors 45 s apart at 15 s scrapes hide 0.026, 60 s apart 0.079. A counter
that restarts every 32 scrapes hides 0.033 of its increase, every 16 scrapes 0.095."""

_INTERVALS = 3  # usual ones, that rows stay below the largest value


def hidden_rises(
    values: npt.NDArray[Any],
    settled: npt.NDArray[Any],
    times: Int64Array,
    begins: BoolArray,
    usual_interval: int,
) -> tuple[npt.NDArray[np.intp], Float64Array]:
    """Return the rows that show a hidden rise, and the rises. O(n).

    Args:
        values, settled: counters as they are, and as the guard reads them.
        times: int64[n].
        begins: bool[n], whether a row is the first of its series.
        usual_interval: between neighbours, in the unit of times.
    """
    below = values < settled
    if not below.any():
        return np.zeros(0, np.intp), np.zeros(0)
    joined = below[1:] & below[:-1] & ~begins[1:]
    opens = below.copy()
    opens[1:] &= ~joined
    firsts = np.flatnonzero(opens)
    runs = np.cumsum(opens) - 1
    lasts = np.zeros(len(firsts), np.intp)
    lasts[runs[below]] = np.flatnonzero(below)  # the last assignment stays
    long = times[lasts] - times[np.maximum(firsts - 1, 0)] >= _INTERVALS * usual_interval
    falls_next = np.append((values[2:] < values[1:-1]) & ~begins[2:], False)
    risen = joined & (values[1:] > values[:-1]) & ~falls_next & long[np.maximum(runs[1:], 0)]
    rows = np.flatnonzero(risen) + 1
    return rows, minus(values[rows], values[rows - 1])


def minus(values: npt.NDArray[Any], before: npt.NDArray[Any]) -> Float64Array:
    """Return differences as float64, at most the largest float64. Integer differences are exact,
    then rounded.
    """
    with np.errstate(over="ignore"):
        found = (values - before).astype(np.float64)
    kept: Float64Array = np.clip(found, -sys.float_info.max, sys.float_info.max)
    return kept
