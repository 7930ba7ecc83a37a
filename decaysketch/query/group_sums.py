"""Row sums for all groups in a sample at once, and their estimates.

A group's rows are numbered with it (:class:`Parts`). One pass over the rows gives sums and extremes
for all groups together (:class:`Terms`, :class:`Sizes`), and arrays of these give all intervals.
Residuals with either sign are separate parts for each group.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.query import _groups_native as _native
from decaysketch.query import aggregates
from decaysketch.query.estimate import Estimate, Interval, contrast, inequality, part_interval
from decaysketch.query.sample import Columns, Sample

__all__ = [
    "FEW",
    "EstimateLists",
    "Estimates",
    "LightRows",
    "Parts",
    "Signed",
    "Sizes",
    "Terms",
    "estimates_of",
    "extremes",
    "halves",
    "largest",
]

FEW = 20
"""Retained rows below which a group that is not exact is called small."""

Float64Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]


class Parts(NamedTuple):
    """A sample by groups.

    Attributes:
        sample: the rows, with the aggregated values.
        group: intp[n], the group of each row, in sample order.
        size: the number of groups.
        step, thinning: for the sampled bands that can contain rows of each group: float64[size].
        level: confidence of each interval.
        confidence: joint confidence of all intervals.
        span: the divisor of a rate. None: the integral of the decay.
        counted: returns the same groups of ``sample.counted``. None if that is the sample.
        grouped: False if a sample without groups is the only group.
    """

    sample: Sample
    group: IntArray
    size: int
    step: Float64Array
    thinning: Float64Array
    level: float
    confidence: float
    span: float | None = None
    counted: Callable[[], Parts] | None = None
    grouped: bool = True

    def beside(self, *, valued: bool) -> IntArray:
        """Return the groups in the sample's column order."""
        return self.sample.beside(self.group, valued=valued)

    @classmethod
    def alone(cls, sample: Sample, confidence: float, span: float | None = None) -> Parts:
        """Return a sample as one group."""
        group, step = np.zeros(len(sample), np.intp), np.array([sample.step])
        thinning = np.array([sample.thinning])
        return cls(sample, group, 1, step, thinning, confidence, confidence, span, grouped=False)

    def only(self, rule: Callable[[Sample], BoolArray]) -> Parts:
        """Return the rows for which a rule holds. See :meth:`Sample.only`."""
        if not self.grouped:  # its rows may be scaled otherwise
            return self.alone(self.sample.only(rule), self.confidence, self.span)
        mask = rule(self.sample)
        if mask.all():
            return self
        return self._replace(sample=self.sample.only(mask), group=self.group[mask])

    def per_observation(self) -> Parts:
        """Return the parts for sums over observations. See :attr:`Sample.counted`."""
        sample = self.sample.counted
        if sample is self.sample:
            return self
        if self.counted is None:
            return self.alone(sample, self.confidence, self.span)
        found = self.counted()
        return self._replace(
            sample=sample, step=found.step, thinning=found.thinning, counted=None
        )  # fmt: skip

    def rows(self, columns: Columns, group: IntArray) -> _native.Rows:
        """Return rows for the kernels."""
        return _native.Rows(
            group, columns.masses, columns.variances, columns.jumps, columns.decayed,
            columns.exact, self.size,
        )  # fmt: skip

    def sum(self, group: IntArray, column: npt.NDArray[Any]) -> Float64Array:
        """Return column sums by group."""
        return np.bincount(group, column, self.size).astype(np.float64, copy=False)


@dataclass(frozen=True, eq=False)
class Estimates:
    """Estimates for all groups, as columns.

    Attributes:
        value, lower, upper, stderr: float64[groups].
        rows: int64[groups], retained rows that were read.
        exact: bool[groups].
        caveats: names, each with the groups that have it: bool[groups].
        confidence: joint confidence of all intervals.
        collision_bias: the same for all groups.
        changed: of comparisons, see :class:`~decaysketch.query.estimate.Estimate`: bool[groups].
    """

    value: Float64Array
    lower: Float64Array
    upper: Float64Array
    stderr: Float64Array
    rows: npt.NDArray[np.int64]
    exact: BoolArray
    caveats: tuple[tuple[str, BoolArray], ...]
    confidence: float
    collision_bias: float
    changed: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, number: int) -> Estimate:
        return Estimate(
            float(self.value[number]), float(self.lower[number]), float(self.upper[number]),
            float(self.stderr[number]), self.confidence, bool(self.exact[number]),
            int(self.rows[number]), self.collision_bias,
            tuple(name for name, groups in self.caveats if groups[number]),
            changed=None if self.changed is None else bool(self.changed[number]),
        )  # fmt: skip

    def over(self, magnitude: int) -> Estimates:
        """Return the estimates times ``2^magnitude``. See
        :meth:`~decaysketch.query.estimate.Estimate.over`.
        """
        if not magnitude:
            return self
        ends = (self.value, self.lower, self.upper, self.stderr)
        with np.errstate(over="ignore"):
            value, lower, upper, stderr = (np.ldexp(end, magnitude) for end in ends)
        lost = np.zeros(len(self), np.bool_)
        for end, found in zip(ends, (value, lower, upper, stderr), strict=True):
            lost |= (end != 0.0) & (np.abs(found) < sys.float_info.min)
        least = np.where(self.lower >= 0.0, 0.0, -np.inf)
        most = np.where(self.upper <= 0.0, 0.0, np.inf)
        return replace(
            self, value=value,
            lower=np.where(lost, np.maximum(np.nextafter(lower, -np.inf), least), lower),
            upper=np.where(lost, np.minimum(np.nextafter(upper, np.inf), most), upper),
            stderr=np.where(lost, np.nextafter(stderr, np.inf), stderr), exact=self.exact & ~lost,
            caveats=(*self.caveats, ("faded", lost)),
        )  # fmt: skip

    def take(self, order: IntArray) -> Estimates:
        """Return the estimates for some groups."""
        return Estimates(
            self.value[order], self.lower[order], self.upper[order], self.stderr[order],
            self.rows[order], self.exact[order],
            tuple((name, groups[order]) for name, groups in self.caveats), self.confidence,
            self.collision_bias, None if self.changed is None else self.changed[order],
        )  # fmt: skip


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


def estimates_of(
    parts: Parts, ends: Interval, spread: Float64Array, step: Float64Array,
    rows: npt.NDArray[np.int64], caveats: Sequence[tuple[str, BoolArray]], *, over: float = 1.0,
    least: float = -math.inf, most: float = math.inf,
) -> Estimates:  # fmt: skip
    """As :func:`~decaysketch.query.aggregates.approximate`, or exact where no sampled band is met.

    Args:
        parts: the groups.
        ends: bounds of the intervals.
        spread: variances.
        step: hit sizes.
        rows: number of rows read.
        caveats: names, each with the groups that have it.
        over: a power of two that multiplies the sums.
        least, most: range of the results. It is the interval of an undefined result.
    """
    sample = parts.sample
    exact = ~(parts.step > 0.0)
    with np.errstate(over="ignore"):
        stderr = np.sqrt(np.maximum(spread, 0.5 * parts.thinning * step * step))
    value, lower, upper = (np.array(end, np.float64) for end in ends)
    lower[exact] = upper[exact] = value[exact]
    stderr[exact] = 0.0
    lost = ~np.isfinite(stderr) | np.isnan(value)
    lower[lost], upper[lost], stderr[lost] = least, most, np.inf
    sampled = np.ones(parts.size, np.bool_)
    small = (rows < FEW) & ~exact & parts.grouped
    named = [(name, groups & ~exact) for name, groups in caveats]
    named += [("small-group", small)]
    named += [(name, sampled) for name in sample.caveats]
    return Estimates(
        value * over, lower * over, upper * over, stderr * over, rows, exact,
        tuple((name, groups) for name, groups in named if groups.any()), parts.confidence,
        sample.collision_bias,
    )  # fmt: skip


class Terms(aggregates.TermsOf[Float64Array]):
    """Sampled terms in sums over masses times x: float64[2 groups], first for positive terms, then
    for negative terms.
    """

    __slots__ = ()

    @classmethod
    def of(cls, parts: Parts, columns: Columns, group: IntArray, x: Float64Array) -> Terms:
        """Return the terms.

        Args:
            parts: groups.
            columns: rows.
            group: the group of each row.
            x: the summed value per unit weight.
        """
        return cls.of_columns(*parts.rows(columns, group).terms(np.ascontiguousarray(x)))

    @classmethod
    def of_columns(cls, terms: Float64Array, near: Float64Array) -> Terms:
        """Return the terms from a kernel's columns."""
        return cls._make([*np.ascontiguousarray(terms.T), near])

    def times(self, factor: Float64Array) -> Terms:
        """Return the terms for x times a factor by group, 0 or more."""
        by = np.tile(factor, 2)
        lowest, highest = (
            np.where(np.isinf(end), end, end * by) for end in (self.lowest, self.highest)
        )
        return Terms(
            self.sampled * by, self.spread * by**2, self.skew * by**3, self.mass, self.jump * by,
            self.largest_spread * by**2, lowest, highest, self.near * by,
        )  # fmt: skip

    def plus(self, other: Terms) -> Terms:
        """Return the terms over both. No row is in both."""
        return Terms(
            self.sampled + other.sampled, self.spread + other.spread, self.skew + other.skew,
            self.mass + other.mass, np.maximum(self.jump, other.jump),
            np.maximum(self.largest_spread, other.largest_spread),
            np.minimum(self.lowest, other.lowest), np.maximum(self.highest, other.highest),
            np.maximum(self.near, other.near),
        )  # fmt: skip

    @property
    def few(self) -> BoolArray:
        """Groups with a row that has much of the variance."""
        up, down = halves(self.spread)
        return np.asarray(
            np.maximum(*halves(self.largest_spread)) > aggregates.HINGES * (up + down)
        )

    def hits(
        self, parts: Parts, *, sizes: Any = (0.0, 0.0), unseen: tuple[float, float] = (0.0, 0.0),
        floor: Any = 0.0,
    ) -> Float64Array:  # fmt: skip
        """Return the largest hit in each part, as :func:`~decaysketch.query.aggregates.hits_of`.

        Args:
            parts: groups.
            sizes: lower limits on a hit's x with either sign: two numbers, or two columns.
            unseen: lowest and highest possible x, if no row shows anything but 0.
            floor: a lower limit on the largest hit in a part, for each group.
        """
        size, step, has = parts.size, np.tile(parts.step, 2), self.jump > 0.0
        mean = self.sampled / np.where(self.mass > 0.0, self.mass, 1.0)
        largest = np.maximum(self.jump, step * mean)
        largest = np.maximum(largest, np.tile(np.broadcast_to(floor, size), 2))
        lowest, highest = np.minimum(*halves(self.lowest)), np.maximum(*halves(self.highest))
        one = np.tile(lowest == highest, 2)  # all sampled x are equal
        largest = np.where(one, np.maximum(largest, step * self.near), largest)
        shown = has | (self.near > 0.0)
        blank = np.tile(~(shown[:size] | shown[size:]), 2)
        bound = np.where(blank, np.repeat([unseen[1], -unseen[0]], size), self.near)
        with np.errstate(invalid="ignore"):
            unmet = np.where(step > 0.0, step * np.where(step > 0.0, bound, 0.0), 0.0)
        least = step * (np.repeat(sizes, size) if np.ndim(sizes[0]) == 0 else np.concatenate(sizes))
        return np.asarray(np.maximum(np.where(has, largest, unmet), least))

    def signed(
        self, parts: Parts, step: Float64Array, *, sure: Any = 0.0, larger: Any = 1.0
    ) -> Signed:
        """Return the intervals, as :func:`~decaysketch.query.aggregates.signed_sum`.

        Args:
            parts: groups.
            step: the largest hit in each part.
            sure: float64[2 groups], the part that was really seen. 0: nothing bounds the sum.
            larger: a factor for the variances: a number, or one for each group.
        """
        size = parts.size
        infinite = np.isinf(step)
        step_or_none = np.where(infinite, 0.0, step)
        more = np.where(step_or_none > self.jump, step_or_none, 0.0)
        unequal = inequality(self.sampled, self.spread, self.skew, more)
        spread = np.tile(np.broadcast_to(larger, size), 2) * self.spread
        part = part_interval(
            0.0, self.sampled, spread, step_or_none, np.tile(parts.thinning, 2), sure, parts.level,
            unequal=unequal, seen=self.jump,
        )  # fmt: skip
        upper = np.where(infinite, np.inf, part.upper)
        around = contrast(
            Interval(part.value[:size], part.lower[:size], upper[:size]),
            Interval(part.value[size:], part.lower[size:], upper[size:]),
        )
        return Signed(
            around, spread[:size] + spread[size:], np.maximum(step[:size], step[size:]), self.few
        )


class Signed(NamedTuple):
    """Sampled parts of sums: intervals, variances, hit sizes, and groups that one row decides."""

    ends: Interval
    spread: Float64Array
    step: Float64Array
    few: BoolArray


def halves(column: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return the column for positive parts and for negative parts."""
    size = len(column) // 2
    return column[:size], column[size:]


class Sizes(aggregates.SizesOf[Float64Array]):
    """A summed function's sizes: float64[groups]."""

    __slots__ = ()

    @classmethod
    def of(
        cls, parts: Parts, columns: Columns, group: IntArray, function: Float64Array, *,
        over_weights: bool = False,
    ) -> Sizes:  # fmt: skip
        """Return the sizes. Arguments as in :meth:`Terms.of`."""
        weights = columns.weights if over_weights else None
        return cls.of_columns(
            parts.rows(columns, group).sizes(np.ascontiguousarray(function), weights)
        )

    @classmethod
    def of_columns(cls, sizes: Float64Array) -> Sizes:
        """Return the sizes from a kernel's columns."""
        return cls(*np.ascontiguousarray(sizes.T))

    def times(self, factor: Float64Array) -> Sizes:
        """Return the sizes for the function times a factor by group, 0 or more."""
        return self._replace(
            up=self.up * factor, down=self.down * factor, square=self.square * factor**2,
            far=self.far * factor**2,
        )  # fmt: skip

    def plus(self, other: Sizes) -> Sizes:
        """Return the sizes over both. No row is in both."""
        sums = (one + more for one, more in zip(self[2:], other[2:], strict=True))
        return Sizes(np.maximum(self.up, other.up), np.maximum(self.down, other.down), *sums)

    def largest(self, *, over_weights: bool = False) -> tuple[Float64Array, Float64Array]:
        """Return how large x may be, with either sign, although no sampled row in a group shows it:
        the largest value in its rows over a usual weight, where exact rows show much larger ones
        than sampled rows do. See :func:`~decaysketch.query.aggregates.show_larger`.
        """
        alone = (self.shown == 0) | ~(self.spread > 0.0)
        bound = aggregates.LARGER * np.maximum(self.shown, 1) * self.far
        wild = alone | (self.square * self.spread > bound)
        usual = np.ones(len(self.up))
        if over_weights:
            some = self.mass > 0.0
            usual = np.where(some, self.counted / np.where(some, self.mass, 1.0), 1.0)
        usual = np.where(wild, usual, 0.0)
        return usual * self.up, usual * self.down


def extremes(group: IntArray, column: Float64Array, size: int) -> tuple[Float64Array, Float64Array]:
    """Return the least and the largest column value by group, infinite without a row."""
    return _native.extremes(group, np.ascontiguousarray(column), size)


def largest(group: npt.NDArray[Any], column: Float64Array, size: int) -> Float64Array:
    """Return the largest column value by group, at least 0."""
    return _native.largest(group, np.ascontiguousarray(column), size)


class LightRows:
    """Finds the groups that so seldom show light observations that a sum over weights must warn.

    Args:
        parts, columns, group: the rows.
        function: the summed value for each observation.

    Attributes:
        larger: a factor >= 1 for the hits in each group. See
            :func:`~decaysketch.query.aggregates.as_shown`.
    """

    def __init__(
        self, parts: Parts, columns: Columns, group: IntArray, function: Float64Array
    ) -> None:
        self._parts, self._columns, self._group, self._function = parts, columns, group, function
        self._taken: dict[int, tuple[IntArray, Columns, Float64Array]] = {}
        whole, size = slice(0, columns.whole), parts.size
        self._shown = np.bincount(group[whole], minlength=size)
        self._near = np.abs(function[whole]) / columns.weights[whole]
        self._nearest = largest(group[whole], self._near, size)
        self._rows = np.bincount(group[columns.exact :], minlength=size)
        self.larger = self._as_shown() if parts.sample.weighted else np.ones(size)

    def _as_shown(self) -> Float64Array:
        parts, columns, group = self._parts, self._columns, self._group
        whole, tail = slice(0, columns.whole), slice(columns.exact, None)
        shown, inverse = self._shown, parts.sum(group[whole], 1.0 / columns.weights[whole])
        later = parts.sample.later
        if later is not None and not parts.grouped:
            shown, inverse = shown + len(later), inverse + (1.0 / later).sum()
        counted = columns.masses[tail] / columns.weights[tail]
        seen = parts.sum(group[tail], counted / columns.weights[tail])
        with np.errstate(all="ignore"):
            ratio = inverse / shown * parts.sum(group[tail], counted) / seen
        more = (shown >= aggregates.SOME) & (seen > 0.0) & (ratio > 1.0 + 1e-9)
        return np.where(more, 0.5 * (1.0 + ratio), 1.0)

    def unequal(
        self, terms: Terms, step: Float64Array, x_of: Callable[[IntArray], Float64Array]
    ) -> BoolArray:
        """Return the groups. For groups with an outstanding row,
        :func:`~decaysketch.query.aggregates.hinges` decides.

        Args:
            terms: the sampled terms.
            step: a hit's mass times the largest coefficient, for each group.
            x_of: returns some rows' summed values per unit weight. Rows are numbers.
        """
        bound = aggregates.LIGHTER * np.maximum(*halves(terms.jump))
        suspicious = (self._shown >= aggregates.SOME) & (step * self._nearest > bound)
        if suspicious.any():  # if many known rows are so light
            group = self._group[: self._columns.whole]
            beyond = (step[group] * self._near > bound[group]).astype(np.float64)
            many = np.bincount(group, beyond, len(bound)) > aggregates.MANY * self._shown
            suspicious &= many
        suspicious |= terms.few & (self._rows > 4)
        suspicious |= self._parts.sample.later is not None and not self._parts.grouped
        found = np.zeros(len(suspicious), np.bool_)
        for number in np.flatnonzero(suspicious).tolist():
            rows, columns, function = self._of(number)
            x = x_of(rows)
            found[number] = "unequal-weights" in aggregates.hinges(
                self._parts.sample, columns, function, x,
                aggregates.Terms.of(aggregates.rows_of(columns), x), float(step[number]),
            )  # fmt: skip
        return found

    def _of(self, number: int) -> tuple[IntArray, Columns, Float64Array]:
        """Return a group's row numbers, rows, and summed values."""
        if number not in self._taken:
            mask = self._group == number
            self._taken[number] = (
                np.flatnonzero(mask), self._columns.take(mask), self._function[mask]
            )  # fmt: skip
        return self._taken[number]
