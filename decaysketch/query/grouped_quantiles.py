"""Quantiles for all groups in a sample at once.

The same results as :func:`~decaysketch.query.aggregates.quantile` on each restricted sample. A
kernel sorts the rows once by group and value, and sums the masses within each group, so that they
never meet another group's masses. Then the bounds for all groups are searched together, by
Woodruff's method (1952): a value's rank may be ``q`` if 0 lies in the interval for ``(1 - q) A
- q C``, where A is the mass up to the value and C the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.special import ndtri
from decaysketch.errors import ParameterError
from decaysketch.query import _groups_native as _native
from decaysketch.query import aggregates
from decaysketch.query.estimate import gamma_quantile
from decaysketch.query.group_sums import FEW, EstimateLists, Estimates, Parts, largest
from decaysketch.query.sample import FAINT

__all__ = ["median_by", "quantiles_by"]

BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
Int64Array = npt.NDArray[np.int64]


class _Ranks(NamedTuple):
    """Rows with values, by group and value. Masses are over the group's weight, and summed up to
    the group's last row with an equal value.

    Attributes:
        starts: int64[groups + 1], the first row of each group, and their end.
        counts: int64[groups], their rows.
        values: the values.
        exact, sampled, variance: the sums.
        weight: each group's weight.
        step, thinning: of a hit, over the group's weight.
    """

    starts: Int64Array
    counts: IntArray
    values: npt.NDArray[Any]
    exact: Float64Array
    sampled: Float64Array
    variance: Float64Array
    weight: Float64Array
    step: Float64Array
    thinning: Float64Array

    @classmethod
    def of(cls, parts: Parts) -> _Ranks:
        values, columns = parts.sample.valued
        group = parts.beside(valued=True)
        counts = np.bincount(group, minlength=parts.size)
        starts = np.concatenate([[0], np.cumsum(counts)])
        weight = parts.sum(group, columns.masses)
        found, exact, sampled, variance = _native.rank(
            group, np.ascontiguousarray(values).view(np.int64), values.dtype.kind == "f",
            columns.masses, columns.variances, columns.exact, weight, starts,
        )  # fmt: skip
        over = np.where(weight > 0.0, weight, 1.0)
        return cls(
            starts, counts, found.view(values.dtype), exact, sampled, variance, weight,
            parts.step / over, parts.thinning,
        )  # fmt: skip

    def reach(self, some: IntArray, wanted: Float64Array) -> IntArray:
        """Return the first place in some groups whose mass is at least a number, else the group's
        row count.
        """
        return _native.reach(self.starts, self.exact, self.sampled, some, wanted)

    def mass(self, place: IntArray, some: IntArray) -> Float64Array:
        """Return the mass up to a place in some groups."""
        at = self.starts[some] + place
        return np.asarray(self.exact[at] + self.sampled[at])

    def bound(
        self, place: IntArray, some: IntArray, q: float, level: float, sign: int
    ) -> Float64Array:
        """Return the upper (sign 1) or lower bound (-1) on ``(1 - q) A - q C`` for some groups,
        where A is the mass up to a place, -1 for none.
        """
        at, none = self.starts[some] + np.maximum(place, 0), place < 0
        last = self.starts[some + 1] - 1
        a, c = [], []
        for column in (self.exact, self.sampled, self.variance):
            part = np.where(none, 0.0, column[at])
            a.append(part)
            c.append(np.maximum(column[last] - part, 0.0))
        step, thinning = self.step[some], self.thinning[some]
        up, down = (a, c) if sign > 0 else (c, a)
        rise = _distance(up, step, thinning, level, upper=True)
        fall = _distance(down, step, thinning, level, upper=False)
        factors = (1.0 - q, q) if sign > 0 else (q, 1.0 - q)
        value = (1.0 - q) * (a[0] + a[1]) - q * (c[0] + c[1])
        return np.asarray(value + sign * np.hypot(factors[0] * rise, factors[1] * fall))


def _distance(
    amount: Sequence[Float64Array], step: Float64Array, thinning: Float64Array, level: float,
    *, upper: bool,
) -> Float64Array:  # fmt: skip
    """Return how far a mass lies from its bound. See
    :func:`~decaysketch.query.estimate.part_interval`.
    """
    _, sampled, variance = amount
    tail = 0.5 * (1.0 - level)
    if upper:
        bound = gamma_quantile(sampled, variance, step, 0.5, thinning, 1.0 - tail)
        return np.maximum(bound - sampled, 0.0)
    bound = gamma_quantile(sampled, variance, np.minimum(step, sampled), 0.5, thinning, tail)
    return sampled - np.minimum(np.maximum(bound, 0.0), sampled)


def quantiles_by(parts: Parts, q: float | Sequence[float]) -> Estimates | EstimateLists:
    """Return quantiles. See :func:`~decaysketch.query.aggregates.quantile`.

    Complexity: O(n log n), and O(log n) gamma quantiles for each group and number.
    """
    each: list[Any] = [q] if np.ndim(q) == 0 else list(q)  # type: ignore[arg-type]
    for number in each:
        if isinstance(number, bool) or not 0.0 <= number <= 1.0:
            raise ParameterError(f"q is {number!r}; expected a number from 0 to 1")
    ranks = _Ranks.of(parts)
    found = tuple(_quantile(parts, ranks, float(number)) for number in each)
    return found[0] if np.ndim(q) == 0 else EstimateLists(found)


def median_by(parts: Parts) -> Estimates:
    """Return medians. See :func:`~decaysketch.query.aggregates.quantile`."""
    found = quantiles_by(parts, 0.5)
    assert isinstance(found, Estimates)
    return found


def _quantile(parts: Parts, ranks: _Ranks, q: float) -> Estimates:
    size, sample = parts.size, parts.sample
    value, lower, upper = np.full(size, np.nan), np.full(size, -np.inf), np.full(size, np.inf)
    exact = ~(parts.step > 0.0)
    newest = largest(parts.beside(valued=False), sample.columns.decayed, size)
    faded = (parts.step * aggregates.OUTWEIGHED > ranks.weight) | (newest < FAINT)
    faded &= ~exact & (ranks.counts > 0)
    there = np.flatnonzero(ranks.counts)
    value[there], place = _values(ranks, there, q)
    bounded = ~(exact | faded)[there]
    some, place = there[bounded], place[bounded]
    lower[some], upper[some] = _bounds(ranks, some, place, q, parts.level)
    lower[exact] = upper[exact] = value[exact]
    nothing = ranks.counts == 0
    lower[nothing], upper[nothing] = -np.inf, np.inf
    stderr = (upper - lower) / (2.0 * ndtri(0.5 + 0.5 * parts.level))
    small = (ranks.counts < FEW) & ~exact
    named = [("faded", faded), ("small-group", small)]
    named += [(name, np.ones(size, np.bool_)) for name in sample.caveats]
    return Estimates(
        value, lower, upper, np.where(exact & ~nothing, 0.0, stderr), ranks.counts, exact,
        tuple((name, groups) for name, groups in named if groups.any()), parts.confidence,
        sample.collision_bias,
    )  # fmt: skip


def _values(ranks: _Ranks, some: IntArray, q: float) -> tuple[npt.NDArray[Any], IntArray]:
    """Return some groups' values at a rank, and their places."""
    last = ranks.counts[some] - 1
    place = last
    if q < 1.0:  # else the largest, however little it weighs
        wanted = (q - aggregates.TIE) * ranks.mass(last, some)
        place = np.minimum(ranks.reach(some, wanted), last)
    return ranks.values[ranks.starts[some] + place], place


def _bounds(
    ranks: _Ranks, some: IntArray, place: IntArray, q: float, level: float
) -> tuple[Float64Array, Float64Array]:
    """Return the interval bounds for some groups, infinite beyond the rows.

    Args:
        ranks: the rows.
        some: the groups.
        place: the place of each result.
        q: its rank.
        level: confidence of each interval.
    """
    slack = aggregates.TIE

    def reaches(at: IntArray, which: IntArray) -> BoolArray:
        return np.asarray(ranks.bound(at, some[which], q, level, 1) >= -slack)

    def surely_reaches(at: IntArray, which: IntArray) -> BoolArray:
        return np.asarray(ranks.bound(at, some[which], q, level, -1) >= -slack)

    # A bound lies about where the mass is that far from q: the distance changes slowly.
    near = ranks.mass(place, some) - q
    distances = [np.abs(ranks.bound(place, some, q, level, sign) - near) for sign in (1, -1)]
    low, high = (
        ranks.reach(some, q + sign * distance)
        for sign, distance in zip((-1, 1), distances, strict=True)
    )
    starts, counts = ranks.starts[some], ranks.counts[some]
    found = _first(np.full(len(some), -1), place, low, reaches)
    lower = np.where(found < 0, -np.inf, ranks.values[starts + np.maximum(found, 0)])
    found = _first(place, counts, high, surely_reaches)
    upper = ranks.values[starts + np.minimum(found, counts - 1)]
    return lower, np.where(found < counts, upper, np.inf)


def _first(
    start: IntArray, stop: IntArray, guess: IntArray,
    holds: Callable[[IntArray, IntArray], BoolArray],
) -> IntArray:  # fmt: skip
    """Return the first place from start to stop - 1 at which a monotone condition holds, else stop,
    for each entry. The search begins at a guess, with steps that double until both sides are known.
    """
    start, stop = start.copy(), stop.copy()
    probe, width = guess.copy(), np.ones(len(start), np.intp)
    below, above = (np.zeros(len(start), np.bool_) for _ in range(2))
    left = np.flatnonzero(start < stop)
    while len(left):
        at = np.clip(probe[left], start[left], stop[left] - 1)
        found = holds(at, left)
        stop[left] = np.where(found, at, stop[left])
        start[left] = np.where(found, start[left], at + 1)
        above[left] |= found
        below[left] |= ~found
        both = below[left] & above[left]
        stride = np.where(found, -width[left], width[left])
        probe[left] = np.where(both, (start[left] + stop[left]) >> 1, at + stride)
        width[left] *= 2
        left = left[start[left] < stop[left]]
    return start
