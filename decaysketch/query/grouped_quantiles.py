"""Quantiles for all groups in a sample at once.

The same results as :func:`~decaysketch.query.aggregates.quantile` on each restricted sample: rows
are sorted once by group and value. Then the bounds for all groups are searched together, by
Woodruff's method (1952): a value's rank may be ``q`` if 0 lies in the interval for ``(1 - q) A
- q C``, where A is the mass up to the value and C the rest.

Groups with like sizes form a matrix, so that sums in one group never meet another group's masses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.special import ndtri
from decaysketch.errors import ParameterError
from decaysketch.query import aggregates
from decaysketch.query.estimate import Estimate, gamma_quantile
from decaysketch.query.grouped import FEW, Estimates, Parts
from decaysketch.query.sample import FAINT

__all__ = ["EstimateLists", "median_by", "quantiles_by"]

BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]

_CELLS = 1 << 17  # in a matrix, so that it stays in the cache


@dataclass(frozen=True, eq=False)
class EstimateLists:
    """Several estimates for each group, as columns.

    Attributes:
        each: one for each number in a result.
    """

    each: tuple[Estimates, ...]

    def __len__(self) -> int:
        return len(self.each[0])

    def __getitem__(self, number: int) -> list[Estimate]:
        return [found[number] for found in self.each]

    def __iter__(self) -> Iterator[list[Estimate]]:
        return map(self.__getitem__, range(len(self)))

    def take(self, order: IntArray) -> EstimateLists:
        """Return the estimates for some groups."""
        return EstimateLists(tuple(found.take(order) for found in self.each))


class _Grouped(NamedTuple):
    """Rows with values, by group.

    Attributes:
        values, masses, variances: one entry per row.
        known: bool[n], rows whose mass is exact.
        starts, counts: each group's rows.
        weight: each group's weight.
    """

    values: npt.NDArray[Any]
    masses: Float64Array
    variances: Float64Array
    known: BoolArray
    starts: IntArray
    counts: IntArray
    weight: Float64Array

    @classmethod
    def of(cls, parts: Parts) -> _Grouped:
        values, columns = parts.sample.valued
        group = parts.beside(valued=True)
        # Small numbers are sorted by counting.
        narrow = group.astype(np.uint16) if parts.size < 1 << 16 else group
        order = np.argsort(narrow, kind="stable")
        counts = np.bincount(group, minlength=parts.size)
        pairs = np.empty((len(order), 2))  # side by side: rows are read in no order
        pairs[:, 0], pairs[:, 1] = columns.masses, columns.variances
        masses, variances = pairs.take(order, axis=0).T
        return cls(
            values[order], masses, variances, order < columns.exact, np.cumsum(counts) - counts,
            counts, parts.sum(group, columns.masses),
        )  # fmt: skip


class _Block(NamedTuple):
    """Groups with like sizes, each a matrix row, by value. Masses are over the group's weight, and
    summed up to the last row with an equal value.
    """

    groups: IntArray
    counts: IntArray
    values: npt.NDArray[Any]
    exact: Float64Array
    sampled: Float64Array
    variance: Float64Array
    step: Float64Array
    thinning: Float64Array

    @classmethod
    def of(cls, rows: _Grouped, parts: Parts, groups: IntArray) -> _Block:
        counts = rows.counts[groups]
        width = int(counts.max())
        inside = np.arange(width) < counts[:, None]
        places = np.where(inside, rows.starts[groups][:, None] + np.arange(width), 0)
        values = rows.values[places]
        floats = values.dtype.kind == "f"
        values[~inside] = np.inf if floats else np.iinfo(np.int64).max
        order = np.argsort(values, axis=1, kind=None if floats else "stable")
        values = np.take_along_axis(values, order, 1)
        places = np.take_along_axis(places, order, 1)
        weight = rows.weight[groups]
        over = 1.0 / np.where(weight > 0.0, weight, 1.0)
        masses = rows.masses[places] * (over[:, None] * inside)
        known = rows.known[places]
        variances = rows.variances[places] * ((over * over)[:, None] * (inside & ~known))
        exact = np.cumsum(masses * known, axis=1)
        sampled, variance = np.cumsum(masses * ~known, axis=1), np.cumsum(variances, axis=1)
        again = values[:, 1:] == values[:, :-1]
        if again.any():
            ends = np.broadcast_to(np.arange(width), values.shape).copy()
            ends[:, :-1][again] = width
            ends = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
            ends = np.minimum(ends, counts[:, None] - 1)
            exact, sampled, variance = (
                np.take_along_axis(sums, ends, 1) for sums in (exact, sampled, variance)
            )
        return cls(
            groups, counts, values, exact, sampled, variance, parts.step[groups] * over,
            parts.thinning[groups],
        )  # fmt: skip

    def bound(
        self, place: IntArray, some: IntArray, q: float, level: float, sign: int
    ) -> Float64Array:
        """Return the upper (sign 1) or lower bound (-1) on ``(1 - q) A - q C`` for some groups,
        where A is the mass up to a place, -1 for none.
        """
        at, none = np.maximum(place, 0), place < 0
        last = self.counts[some] - 1
        a, c = [], []
        for column in (self.exact, self.sampled, self.variance):
            part = np.where(none, 0.0, column[some, at])
            a.append(part)
            c.append(np.maximum(column[some, last] - part, 0.0))
        step, thinning = self.step[some], self.thinning[some]
        up, down = (a, c) if sign > 0 else (c, a)
        rise = _distance(up, step, thinning, level, upper=True)
        fall = _distance(down, step, thinning, level, upper=False)
        factors = (1.0 - q, q) if sign > 0 else (q, 1.0 - q)
        value = (1.0 - q) * (a[0] + a[1]) - q * (c[0] + c[1])
        return np.asarray(value + sign * np.hypot(factors[0] * rise, factors[1] * fall))

    def first(
        self, start: IntArray, stop: IntArray, guess: IntArray, some: IntArray,
        holds: Callable[[IntArray, IntArray], BoolArray],
    ) -> IntArray:  # fmt: skip
        """Return the first place from start to stop - 1 at which a monotone condition holds, else
        stop, for some groups. The search begins at a guess, with steps that double until both sides
        are known.
        """
        start, stop = start.copy(), stop.copy()
        probe, width = guess.copy(), np.ones(len(some), np.intp)
        below, above = (np.zeros(len(some), np.bool_) for _ in range(2))
        left = np.flatnonzero(start < stop)
        while len(left):
            at = np.clip(probe[left], start[left], stop[left] - 1)
            found = holds(at, some[left])
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
    rows = _Grouped.of(parts)
    each: list[Any] = [q] if np.ndim(q) == 0 else list(q)  # type: ignore[arg-type]
    for number in each:
        if isinstance(number, bool) or not 0.0 <= number <= 1.0:
            raise ParameterError(f"q is {number!r}; expected a number from 0 to 1")
    blocks = _blocks(rows, parts)
    found = tuple(_quantile(parts, rows, blocks, float(number)) for number in each)
    return found[0] if np.ndim(q) == 0 else EstimateLists(found)


def median_by(parts: Parts) -> Estimates:
    """Return medians. See :func:`~decaysketch.query.aggregates.quantile`."""
    found = quantiles_by(parts, 0.5)
    assert isinstance(found, Estimates)
    return found


def _blocks(rows: _Grouped, parts: Parts) -> list[_Block]:
    there = np.flatnonzero(rows.counts)
    sizes = np.frexp(rows.counts[there].astype(np.float64))[1]
    found = []
    for size in np.unique(sizes).tolist():
        groups = there[sizes == size]
        at_once = max(_CELLS >> size, 1)
        found += [
            _Block.of(rows, parts, groups[first : first + at_once])
            for first in range(0, len(groups), at_once)
        ]
    return found


def _quantile(parts: Parts, rows: _Grouped, blocks: Sequence[_Block], q: float) -> Estimates:
    size, sample = parts.size, parts.sample
    value, lower, upper = np.full(size, np.nan), np.full(size, -np.inf), np.full(size, np.inf)
    exact = ~(parts.step > 0.0)
    newest = np.zeros(size)
    np.maximum.at(newest, parts.beside(valued=False), sample.columns.decayed)
    faded = (parts.step * aggregates.OUTWEIGHED > rows.weight) | (newest < FAINT)
    faded &= ~exact & (rows.counts > 0)
    for block in blocks:
        value[block.groups], ends = _in_block(block, q, parts.level, exact | faded)
        lower[block.groups], upper[block.groups] = ends
    lower[exact] = upper[exact] = value[exact]
    lower[faded], upper[faded] = -np.inf, np.inf
    nothing = rows.counts == 0
    lower[nothing], upper[nothing] = -np.inf, np.inf
    stderr = (upper - lower) / (2.0 * ndtri(0.5 + 0.5 * parts.level))
    small = (rows.counts < FEW) & ~exact
    named = [("faded", faded), ("small-group", small)]
    named += [(name, np.ones(size, np.bool_)) for name in sample.caveats]
    return Estimates(
        value, lower, upper, np.where(exact & ~nothing, 0.0, stderr), rows.counts, exact,
        tuple((name, groups) for name, groups in named if groups.any()), parts.confidence,
        sample.collision_bias,
    )  # fmt: skip


def _in_block(
    block: _Block, q: float, level: float, without_bounds: BoolArray
) -> tuple[Float64Array, tuple[Float64Array, Float64Array]]:
    """Return values and bounds for the groups in a block."""
    groups = np.arange(len(block.groups))
    total = block.exact + block.sampled
    last = block.counts - 1
    wanted = (q - aggregates.TIE) * total[groups, last]
    place = np.minimum((total < wanted[:, None]).sum(axis=1), last)
    if q == 1.0:  # the largest, however little it weighs
        place = last
    value = block.values[groups, place]
    lower, upper = value.copy(), value.copy()
    some = np.flatnonzero(~without_bounds[block.groups])
    slack = aggregates.TIE

    def reaches(at: IntArray, which: IntArray) -> BoolArray:
        return np.asarray(block.bound(at, which, q, level, 1) >= -slack)

    def surely_reaches(at: IntArray, which: IntArray) -> BoolArray:
        return np.asarray(block.bound(at, which, q, level, -1) >= -slack)

    # A bound lies about where the mass is that far from q: the distance changes slowly.
    middle = place[some]
    near = total[some, middle] - q
    distances = [np.abs(block.bound(middle, some, q, level, sign) - near) for sign in (1, -1)]
    low, high = (
        (total[some] < (q + sign * distance)[:, None]).sum(axis=1)
        for sign, distance in zip((-1, 1), distances, strict=True)
    )
    start = np.full(len(some), -1)
    found = block.first(start, middle, low, some, reaches)
    lower[some] = np.where(found < 0, -np.inf, block.values[some, np.maximum(found, 0)])
    found = block.first(middle, block.counts[some], high, some, surely_reaches)
    inside = found < block.counts[some]
    upper[some] = np.where(inside, block.values[some, np.minimum(found, last[some])], np.inf)
    return value, (lower, upper)
