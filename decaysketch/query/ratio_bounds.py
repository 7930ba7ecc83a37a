"""Bounds of ratios by Fieller's method: all ``r`` such that the ``A - r B`` interval contains 0.

The least and the largest of these ``r`` are the bounds (Fieller 1954). Usually each end of the
``A - r B`` interval falls with ``r`` and crosses 0 once. There are two exceptions:

*Jumps.* If known rows show much larger terms than sampled rows, the interval allows for larger
hits. At such an ``r`` its end jumps, and may cross 0 again. Between jumps it falls. So the search
reads the end next to each jump outside the crossing that it found first, and takes the outermost
crossing.

*Denominators near 0.* If B's interval contains 0, the set is unbounded, although it may lack some
``r`` in between. Then there is no upper bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.query.estimate import Interval

__all__ = ["bounds"]

Float64Array = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_FARTHEST = 1e12  # times the ratio: a bound that lies further off is none
_STEPS = 60  # of a search
_CLOSE = 1e-14  # relative
_ASIDE = 1e-12  # relative: how far from a jump its sides are read

_Bound = Callable[[Float64Array], Float64Array]


class _Bracket(NamedTuple):
    """A function that is 0 or more at ``low``, and negative at ``high``."""

    low: Float64Array
    high: Float64Array
    at_low: Float64Array
    at_high: Float64Array

    def where(self, some: BoolArray, other: _Bracket) -> _Bracket:
        """Return this bracket in some groups, and another one elsewhere."""
        return _Bracket(*map(np.where, [some] * 4, self, other))


def bounds(
    ratio: Float64Array, ends_at: Callable[[Float64Array], Interval], some: BoolArray,
    jumps: Float64Array | None = None,
) -> Interval:  # fmt: skip
    """Return the least and the largest r such that the ``A - r B`` interval contains 0.

    Args:
        ratio: A over B by group.
        ends_at: the interval for each r. Groups at NaN are not read.
        some: the groups to search. Others have the ratio itself.
        jumps: float64[k, groups], where the ends jump, rising, NaN at the end of a group with
            fewer. None: nowhere.

    Complexity: about 25 intervals, and one for each jump outside the bounds found first.
    """
    if not some.any():
        return Interval(ratio, ratio, ratio)
    middle = np.where(some, ratio, np.nan)
    jumps = np.empty((0, len(ratio))) if jumps is None else jumps
    around = ends_at(middle)
    lower = _lower(lambda r: ends_at(r).lower, middle, around.lower, jumps)
    upper = _upper(lambda r: ends_at(r).upper, middle, around.upper, jumps)
    return Interval(ratio, np.where(some, lower, ratio), np.where(some, upper, ratio))


def _lower(of: _Bound, middle: Float64Array, at: Float64Array, jumps: Float64Array) -> Float64Array:
    """Return the least r at which a bound is not above 0. Its value at the middle is ``at``."""
    zero = np.where(np.isnan(middle), np.nan, 0.0)
    first = of(zero)
    above = first > 0.0
    bracket = _Bracket(zero, middle, first, at)
    found = _crossing(of, bracket, above & (at < 0.0))
    found = np.where(above, np.where(at < 0.0, found, middle), 0.0)
    return _outermost(of, jumps, found, above, zero, first, side=-1.0)


def _upper(of: _Bound, middle: Float64Array, at: Float64Array, jumps: Float64Array) -> Float64Array:
    """Return the largest r at which a bound is not below 0. Its value at the middle is ``at``."""
    far = _FARTHEST * np.maximum(middle, 1.0)
    last = of(far)
    bounded = last < 0.0
    bracket = _doubled(of, middle, at, far, bounded)
    found = _crossing(of, bracket, bounded & (at > 0.0))
    found = np.where(bounded, np.where(at > 0.0, found, middle), np.inf)
    return _outermost(of, jumps[::-1], found, bounded, far, last, side=1.0)


def _outermost(
    of: _Bound, jumps: Float64Array, found: Float64Array, some: BoolArray, edge: Float64Array,
    at_edge: Float64Array, *, side: float,
) -> Float64Array:  # fmt: skip
    """Return the outermost crossing, where a jump outside the one that was found has another.

    Args:
        jumps: from the outermost on.
        edge: r beyond all crossings, where the bound is ``at_edge``.
        side: -1 for the least r, and 1 for the largest.
    """
    bracket = _Bracket(found, found, at_edge, at_edge)
    outer = np.zeros(len(found), np.bool_)
    for jump in jumps:
        aside = jump * (1.0 + side * _ASIDE)
        left = some & ~outer & (side * aside > side * found) & (side * aside < side * edge)
        if not left.any():
            continue  # not all groups have the last jumps
        value = of(np.where(left, aside, np.nan))
        reached = left & (side * value >= 0.0)
        ends = _Bracket(aside, edge, value, at_edge)
        if side < 0.0:
            ends = _Bracket(edge, aside, at_edge, value)
        bracket, outer = ends.where(reached, bracket), outer | reached
        edge, at_edge = np.where(left, aside, edge), np.where(left, value, at_edge)
    return np.where(outer, _crossing(of, bracket, outer), found) if outer.any() else found


def _doubled(
    of: _Bound, middle: Float64Array, at: Float64Array, far: Float64Array, some: BoolArray
) -> _Bracket:
    """Return the bracket that doubling finds."""
    low, high, at_low = middle, np.maximum(2.0 * middle, 1e-12), at
    at_high = of(np.where(some, high, np.nan))
    while (more := some & (at_high >= 0.0) & (high < far)).any():
        low, at_low = np.where(more, high, low), np.where(more, at_high, at_low)
        high = np.where(more, np.minimum(2.0 * high, far), high)
        at_high = np.where(more, of(np.where(more, high, np.nan)), at_high)
    return _Bracket(low, high, at_low, at_high)


def _crossing(of: _Bound, bracket: _Bracket, some: BoolArray) -> Float64Array:
    """Return the place in some brackets where a function becomes negative, by inverse quadratic
    interpolation where it is safe, else by bisection (Chandrupatla 1997).
    """
    x2, x1, f2, f1 = bracket
    share = np.full(len(x1), 0.5)
    for _ in range(_STEPS):
        if not some.any():
            break
        x = np.where(some, x1 + share * (x2 - x1), x1)
        found = np.where(some, of(np.where(some, x, np.nan)), f1)
        same = (found > 0.0) == (f1 > 0.0)
        x3, f3 = np.where(same, x1, x2), np.where(same, f1, f2)
        x2, f2 = np.where(same | ~some, x2, x1), np.where(same | ~some, f2, f1)
        x1, f1 = x, found
        close = np.abs(_CLOSE * x1 / (x2 - x1))
        some = some & (close <= 0.5) & (f1 != 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):  # of equal values: not safe
            xi, phi = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2)
            safe = (phi * phi < xi) & ((1.0 - phi) * (1.0 - phi) < 1.0 - xi)
            inner = f1 / (f2 - f1) * (f3 / (f2 - f3))
            inner += (x3 - x1) / (x2 - x1) * (f1 / (f3 - f1)) * (f2 / (f3 - f2))
        share = np.clip(np.where(safe, inner, 0.5), close, 1.0 - close)
    return np.where(np.abs(f2) < np.abs(f1), x2, x1)
