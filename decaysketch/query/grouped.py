"""Groups in a sample, and aggregates for all groups at once in arrays.

A group contains the rows with equal keys. The functions here give the same results as the
aggregates in :mod:`~decaysketch.query.aggregates` on each restricted sample, in a few passes over
the rows for all groups together. Residuals with either sign are separate parts for each group.

*Joint intervals.* All intervals in a table hold at once with the confidence: each of G groups at
``1 - (1 - confidence) / G`` (Bonferroni), over all groups found. A table with only the largest
groups therefore keeps the confidence too.

*Unseen groups.* A group with decayed count ``u`` expects ``u / step`` hits or more. It is missed
with a chance of at most ``exp(-u / step)``. At most ``T / u`` such groups exist, with ``T`` the
upper bound on the complete count. So ``u = step ln(T / (u (1 - confidence)))`` bounds all groups
together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.text.expression import Bound, Column, Table
from decaysketch.errors import ParameterError
from decaysketch.query import _groups_native as _native
from decaysketch.query import aggregates
from decaysketch.query.aggregates import Function, Predicate
from decaysketch.query.columns import SampleTable
from decaysketch.query.estimate import (
    Estimate,
    Interval,
    contrast,
    inequality,
    part_interval,
    share_interval,
)
from decaysketch.query.modifiers import MAX_GROUPS
from decaysketch.query.sample import Columns, Sample

__all__ = [
    "FEW",
    "Estimates",
    "Keys",
    "Parts",
    "count_by",
    "largest",
    "mean_by",
    "number_groups",
    "number_rows",
    "rate_by",
    "selectivity_by",
    "sum_by",
    "total_by",
    "unseen_at_most",
    "unseen_within",
]

FEW = 20
"""Retained rows below which a group that is not exact is called small."""

Float64Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]

_DENSE = 1 << 20  # combinations of keys that are counted in a table, without a sort


# ------------------------------------------------------------------------------------------- groups


class Keys(NamedTuple):
    """The groups of some tables.

    Attributes:
        numbers: for each table, the group of each row: intp[n].
        values: for each key, its value in each group: numbers, times, texts, truth values, None
            where null.
        hulls: the first and the last possible time of a row in each group, int64[groups]. None if
            no key bounds it.
    """

    numbers: list[IntArray]
    values: list[list[Any]]
    hulls: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None

    @property
    def size(self) -> int:
        """Number of groups."""
        return len(self.values[0])


def number_groups(by: Sequence[Bound], samples: Sequence[Sample]) -> Keys:
    """Return the groups of sample rows by keys, rising. O(keys * n).

    Args:
        by: the keys, 1 or more.
        samples: with the stream's values.

    Raises:
        ParameterError: more than :data:`~decaysketch.query.modifiers.MAX_GROUPS` groups.
    """
    return number_rows(by, [SampleTable(sample) for sample in samples])


def number_rows(by: Sequence[Bound], tables: Sequence[Table]) -> Keys:
    """Do the same for the rows of any tables."""
    whole, cells = np.zeros(sum(map(len, tables)), np.int64), 1
    codes: list[IntArray] = []
    values: list[list[Any]] = []
    for key in by:
        code, distinct = _distinct(key, [key(table) for table in tables])
        codes.append(code)
        values.append(distinct)
        if cells * len(distinct) >= 1 << 62:  # before they overflow
            found, whole = np.unique(whole, return_inverse=True)
            cells = len(found)
        whole = whole * len(distinct) + code
        cells *= max(len(distinct), 1)
    if len(by) == 1:  # whose values are the groups
        numbers, listed = whole, values
    else:
        first, numbers = _dense(whole, cells)
        listed = [
            [distinct[place] for place in code[first].tolist()]
            for code, distinct in zip(codes, values, strict=True)
        ]
    if len(listed[0]) > MAX_GROUPS:
        raise ParameterError(
            f"by gives {len(listed[0])} groups; expected at most {MAX_GROUPS}: say where, or give "
            "a coarser key"
        )
    ends = np.cumsum([len(table) for table in tables])[:-1]
    return Keys(np.split(numbers, ends), listed, _hulls(by, listed))


def _dense(whole: npt.NDArray[np.int64], cells: int) -> tuple[IntArray, IntArray]:
    """Return a row for each group, and the group for each row."""
    if cells > _DENSE:
        _, first, numbers = np.unique(whole, return_index=True, return_inverse=True)
        return first, numbers
    first = np.full(cells, -1, np.intp)
    first[whole[::-1]] = np.arange(len(whole) - 1, -1, -1)
    there = first >= 0
    return first[there], (np.cumsum(there) - 1)[whole]


def _distinct(key: Bound, columns: Sequence[Column]) -> tuple[IntArray, list[Any]]:
    """Return each row's value number for a key, and the rising values. Null is the last."""
    if key.kind == "text":
        return _distinct_texts(columns)
    data = np.concatenate([column.data for column in columns])
    nulls = [
        np.zeros(len(column.data), np.bool_) if column.null is None else column.null
        for column in columns
    ]
    null = np.concatenate(nulls)
    some = data if not null.any() else data[~null]
    number = np.zeros(len(data), np.intp)
    distinct: list[Any] = []
    if len(some):
        found, places = _ranked(some)
        number[~null] = places
        distinct = _plain(key, found)
    if null.any():
        number[null] = len(distinct)
        distinct.append(None)
    return number, distinct


def _ranked(some: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], IntArray]:
    """Return rising distinct values, and the position of each. Whole numbers close together, such
    as hours, need no sort.
    """
    if some.dtype == np.bool_:
        some = some.astype(np.int64)
    low, high = some.min(), some.max()
    near = bool(high - low < _DENSE) and (some.dtype.kind in "iu" or bool(np.all(some % 1 == 0)))
    if not near:
        return np.unique(some, return_inverse=True)
    shifted = (some - low).astype(np.intp)
    present = np.zeros(int(high - low) + 1, np.bool_)
    present[shifted] = True
    return np.flatnonzero(present) + low, (np.cumsum(present) - 1)[shifted]


def _plain(key: Bound, found: npt.NDArray[Any]) -> list[Any]:
    if key.kind == "truth":
        return [bool(each) for each in found.tolist()]
    if found.dtype.kind == "f" and np.all(found % 1 == 0) and np.abs(found).max() < 2.0**53:
        found = found.astype(np.int64)
    values: list[Any] = found.tolist()
    return values


def _distinct_texts(columns: Sequence[Column]) -> tuple[IntArray, list[Any]]:
    texts = sorted({text for column in columns for text in column.texts})
    place = {text: number for number, text in enumerate(texts)}
    numbers = np.concatenate(
        [
            np.array([*(place[text] for text in column.texts), len(texts)], np.intp)[column.data]
            for column in columns
        ]
    )
    listed = [*texts, None]
    present = np.zeros(len(listed), np.bool_)
    present[numbers] = True
    if not present[:-1].all():  # the rows of a filter may lack some
        numbers = (np.cumsum(present) - 1)[numbers]
    return numbers, [listed[place] for place in np.flatnonzero(present).tolist()]


def _hulls(
    by: Sequence[Bound], values: Sequence[Sequence[Any]]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    found = None
    for key, listed in zip(by, values, strict=True):
        if key.within is None or not listed or None in listed:
            continue
        first, last = key.within(listed)
        found = (
            (first, last)
            if found is None
            else (np.maximum(found[0], first), np.minimum(found[1], last))
        )
    return found


# ------------------------------------------------------------------------------ estimates in arrays


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

    def beside(self, *, valued: bool) -> IntArray:
        """Return the groups in the sample's column order."""
        return self.sample.beside(self.group, valued=valued)

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

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, number: int) -> Estimate:
        return Estimate(
            float(self.value[number]), float(self.lower[number]), float(self.upper[number]),
            float(self.stderr[number]), self.confidence, bool(self.exact[number]),
            int(self.rows[number]), self.collision_bias,
            tuple(name for name, groups in self.caveats if groups[number]),
        )  # fmt: skip

    def take(self, order: IntArray) -> Estimates:
        """Return the estimates for some groups."""
        return Estimates(
            self.value[order], self.lower[order], self.upper[order], self.stderr[order],
            self.rows[order], self.exact[order],
            tuple((name, groups[order]) for name, groups in self.caveats), self.confidence,
            self.collision_bias,
        )  # fmt: skip


def _estimates(
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
    stderr = np.sqrt(np.maximum(spread, 0.5 * parts.thinning * step * step))
    value, lower, upper = (np.array(end, np.float64) for end in ends)
    lower[exact] = upper[exact] = value[exact]
    stderr[exact] = 0.0
    lost = ~np.isfinite(stderr) | np.isnan(value)
    lower[lost], upper[lost], stderr[lost] = least, most, np.inf
    sampled = np.ones(parts.size, np.bool_)
    small = (rows < FEW) & ~exact
    named = [(name, groups & ~exact) for name, groups in caveats]
    named += [("small-group", small)]
    named += [(name, sampled) for name in sample.caveats]
    return Estimates(
        value * over, lower * over, upper * over, stderr * over, rows, exact,
        tuple((name, groups) for name, groups in named if groups.any()), parts.confidence,
        sample.collision_bias,
    )  # fmt: skip


class _Signed(NamedTuple):
    ends: Interval
    spread: Float64Array
    step: Float64Array
    few: BoolArray


def _signed(
    parts: Parts, columns: Columns, group: IntArray, x: Float64Array, *,
    certain: Float64Array | None = None, unseen: tuple[float, float] = (0.0, 0.0),
    sizes: Any = (0.0, 0.0), larger: float = 1.0, floor: Any = 0.0,
) -> _Signed:  # fmt: skip
    """Return the sampled part of sums over masses times x, as
    :func:`~decaysketch.query.aggregates.signed_sum` for each group.

    Args:
        parts: groups.
        columns: rows.
        group: the group of each row.
        x: the summed value, for a unit of weight.
        certain: the part of each sampled term that was really seen. None: nothing bounds the sum.
        unseen: lowest and highest possible x, if no row shows anything but 0.
        sizes: lower limits on the x of a hit with either sign: two numbers, or one for each
            positive part and then for each negative one.
        larger: a factor for the variances.
        floor: a lower limit on the largest hit in a part, for each group.
    """
    size = parts.size
    terms, of_near = parts.rows(columns, group).terms(x)
    sampled, spread, skew, mass, jump, largest_spread, lowest, highest = np.ascontiguousarray(
        terms.T
    )
    step = np.tile(parts.step, 2)
    has = jump > 0.0
    largest = np.maximum(jump, step * sampled / np.where(mass > 0.0, mass, 1.0))
    largest = np.maximum(largest, np.tile(np.broadcast_to(floor, size), 2))
    lowest, highest = np.minimum(*_halves(lowest)), np.maximum(*_halves(highest))
    one = np.tile(lowest == highest, 2)  # all sampled x are equal
    largest = np.where(one, np.maximum(largest, step * of_near), largest)
    blank = ~(has[:size] | has[size:] | (of_near[:size] > 0.0) | (of_near[size:] > 0.0))
    bound = np.where(np.tile(blank, 2), np.repeat([unseen[1], -unseen[0]], size), of_near)
    with np.errstate(invalid="ignore"):
        unmet = np.where(step > 0.0, step * np.where(step > 0.0, bound, 0.0), 0.0)
    least = step * (np.repeat(sizes, size) if np.ndim(sizes[0]) == 0 else np.concatenate(sizes))
    step = np.maximum(np.where(has, largest, unmet), least)
    sure: Any = 0.0
    if certain is not None:
        tail = slice(columns.exact, None)
        side = group[tail] + size * (x[tail] < 0.0)
        sure = np.bincount(side, certain, 2 * size)
    infinite = np.isinf(step)
    step_or_none = np.where(infinite, 0.0, step)
    unequal = inequality(sampled, spread, skew, np.where(step_or_none > jump, step_or_none, 0.0))
    spread = larger * spread
    part = part_interval(
        0.0, sampled, spread, step_or_none, np.tile(parts.thinning, 2), sure, parts.level,
        unequal=unequal, seen=jump,
    )  # fmt: skip
    upper = np.where(infinite, np.inf, part.upper)
    around = contrast(
        Interval(part.value[:size], part.lower[:size], upper[:size]),
        Interval(part.value[size:], part.lower[size:], upper[size:]),
    )
    everything = spread[:size] + spread[size:]
    few = larger * np.maximum(*_halves(largest_spread)) > aggregates.HINGES * everything
    return _Signed(around, everything, np.maximum(step[:size], step[size:]), few)


def _halves(column: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return what positive and negative parts have."""
    size = len(column) // 2
    return column[:size], column[size:]


def _shown_sizes(
    parts: Parts, columns: Columns, group: IntArray, function: Float64Array, *, over_weights: bool
) -> tuple[Float64Array, Float64Array]:
    """Return how large x may be, with either sign, although no sampled row in a group shows it: the
    largest value in its rows over a usual weight, where exact rows show much larger ones than
    sampled rows do. See :func:`~decaysketch.query.aggregates.show_larger`.
    """
    weights = columns.weights if over_weights else None
    sizes = parts.rows(columns, group).sizes(function, weights)
    up, down, shown, square, sampled, of_far, mass, by_weight = np.ascontiguousarray(sizes.T)
    alone = (shown == 0) | ~(sampled > 0.0)
    wild = alone | (square * sampled > aggregates.LARGER * np.maximum(shown, 1) * of_far)
    usual = np.ones(parts.size)
    if over_weights:
        usual = np.where(mass > 0.0, by_weight / np.where(mass > 0.0, mass, 1.0), 1.0)
    usual = np.where(wild, usual, 0.0)
    return usual * up, usual * down


def largest(group: npt.NDArray[Any], column: Float64Array, size: int) -> Float64Array:
    """Return the largest column value by group, at least 0."""
    return _native.largest(group, np.ascontiguousarray(column), size)


def _level(group: IntArray, column: Float64Array, size: int) -> BoolArray:
    """Return the groups whose entries are all equal."""
    least, most = _native.extremes(group, column, size)
    return np.asarray(least == most)


def _sums(
    parts: Parts, columns: Columns, group: IntArray, function: Float64Array,
    unseen: tuple[float, float],
) -> Estimates:  # fmt: skip
    """Return a function's decayed sums."""
    if parts.counted is not None:
        parts, columns = parts.counted(), columns.counted
    sample = parts.sample
    x = aggregates.over_weights(sample, columns, function)
    head, tail = slice(0, columns.exact), slice(columns.exact, None)
    exact = parts.sum(group[head], columns.masses[head] * x[head])
    rows = np.bincount(group, minlength=parts.size)
    over = math.ldexp(1.0, sample.magnitude)
    if not np.any(parts.step > 0.0):
        value = exact + parts.sum(group[tail], columns.masses[tail] * x[tail])
        nothing = np.zeros(parts.size)
        return _estimates(
            parts, Interval(value, value, value), nothing, nothing, rows, (), over=over
        )
    # Sampled rows of groups that no sampled band meets do not vary.
    both = [largest(group, sign * function, parts.size) > 0.0 for sign in (1.0, -1.0)]
    one_sign = ~(both[0] & both[1])
    unequal = aggregates.has_unequal_weights(sample, columns, function)
    floor = parts.step * aggregates.borrowed_hit(sample, columns, x)
    if unequal:
        floor = np.maximum(floor, sample.step * np.max(np.abs(function), initial=0.0))
    seen = columns.decayed[tail] * np.abs(function[tail]) * one_sign[group[tail]]
    of_values = math.isinf(unseen[1])
    sizes: Any = (0.0, 0.0)
    if of_values:
        sizes = _shown_sizes(parts, columns, group, function, over_weights=True)
    found = _signed(
        parts, columns, group, x, certain=seen, unseen=unseen, sizes=sizes,
        larger=aggregates.as_shown(sample, columns), floor=floor,
    )  # fmt: skip
    ends = Interval(*(exact + end for end in found.ends))
    few = found.few
    if of_values and len(function):
        few = few | _few_decide_mean(parts, columns, group, function)
    light = parts.step * largest(group, np.abs(function), parts.size)
    missed = aggregates.may_miss_light(sample, light, found.step, found.spread) | unequal
    missed = missed & rows.astype(bool)
    caveats = [("few-rows", few & ~missed), ("unequal-weights", missed)]
    if of_values and len(function):
        level = _level(group, function, parts.size) & (rows > 0)
        nonzero = largest(group, np.abs(function), parts.size) > 0.0
        caveats = [(name, groups & ~(level & nonzero)) for name, groups in caveats]
        caveats.append(("equal-values", level & nonzero))
    return _estimates(parts, ends, found.spread, found.step, rows, caveats, over=over)


def _few_decide_mean(
    parts: Parts, columns: Columns, group: IntArray, function: Float64Array
) -> BoolArray:
    """Return whether one row decides a group's mean. See
    :func:`~decaysketch.query.aggregates.of_values`.
    """
    weight = parts.sum(group, columns.masses)
    mean = parts.sum(group, columns.masses * function) / np.where(weight > 0.0, weight, 1.0)
    tail = slice(columns.exact, None)
    rest = 1.0 - columns.masses[tail] / np.where(weight > 0.0, weight, 1.0)[group[tail]]
    residuals = (function[tail] - mean[group[tail]]) / np.maximum(rest, aggregates.LEAST_REST)
    variances = columns.variances[tail] * residuals * residuals
    everything = parts.sum(group[tail], variances)
    return np.asarray(largest(group[tail], variances, parts.size) > aggregates.HINGES * everything)


def _counts(parts: Parts) -> Estimates:
    """Return decayed counts if all weights are 1: as :func:`_sums` for a function that is 1, in
    half the passes.
    """
    sample, group = parts.sample, parts.beside(valued=False)
    columns, size = sample.columns, parts.size
    head, tail = slice(0, columns.exact), slice(columns.exact, None)
    near, far = group[head], group[tail]
    exact = parts.sum(near, columns.masses[head])
    variances, jumps, decayed = (
        column[tail] for column in (columns.variances, columns.jumps, columns.decayed)
    )
    sampled, spread = parts.sum(far, columns.masses[tail]), parts.sum(far, variances)
    skew, sure = parts.sum(far, variances * (jumps - 0.5 * decayed)), parts.sum(far, decayed)
    jump = largest(far, jumps, size)
    unequal = aggregates.has_unequal_weights(sample, columns, np.ones(len(sample)))
    floor = sample.step if unequal else 0.0
    hit = np.where(jump > 0.0, np.maximum(np.maximum(jump, parts.step), floor), parts.step)
    ends = part_interval(
        0.0, sampled, spread, hit, parts.thinning, sure, parts.level,
        unequal=inequality(sampled, spread, skew, np.where(hit > jump, hit, 0.0)), seen=jump,
    )  # fmt: skip
    rows = np.bincount(group, minlength=size)
    few = largest(far, variances, size) > aggregates.HINGES * spread
    missed = np.full(size, unequal) & (rows > 0)
    caveats = [("few-rows", few & ~missed), ("unequal-weights", missed)]
    ends = Interval(*(exact + end for end in ends))
    over = math.ldexp(1.0, sample.magnitude)
    return _estimates(parts, ends, spread, hit, rows, caveats, over=over)


def count_by(parts: Parts) -> Estimates:
    """Return decayed counts. See :func:`~decaysketch.query.aggregates.count`."""
    if parts.counted is not None:
        parts = parts.counted()
    sample = parts.sample
    if not sample.weighted and np.any(parts.step > 0.0):
        return _counts(parts)
    ones = np.ones(len(sample))
    return _sums(parts, sample.columns, parts.beside(valued=False), ones, (0.0, 1.0))


def rate_by(parts: Parts) -> Estimates:
    """Return counts over the decay's integral. See :func:`~decaysketch.query.aggregates.rate`."""
    span, found = parts.span or aggregates.span_of(parts.sample.decay), count_by(parts)
    return replace(
        found, value=found.value / span, lower=found.lower / span, upper=found.upper / span,
        stderr=found.stderr / span,
    )  # fmt: skip


def total_by(parts: Parts, function: Function | None = None) -> Estimates:
    """Return decayed sums over values, or over a function. See
    :func:`~decaysketch.query.aggregates.total`.
    """
    values, columns = parts.sample.valued
    unseen = (-math.inf, math.inf)
    numbers = values
    if function is not None:
        numbers = aggregates.evaluated(function, values, columns.weights)
        unseen = (0.0, 1.0) if numbers.dtype == np.bool_ else unseen
    group = parts.beside(valued=True)
    return _sums(parts, columns, group, numbers.astype(np.float64, copy=False), unseen)


def sum_by(parts: Parts) -> Estimates:
    """Return decayed weight sums. See :func:`~decaysketch.query.aggregates.sum`."""
    sample, group = parts.sample, parts.beside(valued=False)
    columns, size = sample.columns, parts.size
    head, tail = slice(0, columns.exact), slice(columns.exact, None)
    exact = parts.sum(group[head], columns.masses[head])
    sampled = parts.sum(group[tail], columns.masses[tail])
    spread = parts.sum(group[tail], columns.variances[tail])
    certain = parts.sum(group[tail], columns.decayed[tail] * columns.weights[tail])
    clump = spread / np.where(sampled > 0.0, sampled, 1.0)
    step = np.where(parts.step > 0.0, np.maximum(parts.step, clump), 0.0)
    ends = part_interval(exact, sampled, spread, step, parts.thinning, certain, parts.level)
    rows = np.bincount(group, minlength=size)
    over = math.ldexp(1.0, sample.magnitude)
    return _estimates(parts, ends, spread, step, rows, (), over=over)


def mean_by(parts: Parts) -> Estimates:
    """Return means. See :func:`~decaysketch.query.aggregates.mean`."""
    sample, group = parts.sample, parts.beside(valued=True)
    values, columns = sample.valued
    numbers = values.astype(np.float64, copy=False)
    by_group, size = parts.rows(columns, group), parts.size
    rows = np.bincount(group, minlength=size)
    weight, total, least, most = np.ascontiguousarray(by_group.moments(numbers).T)
    level = (least == most) & (rows > 0)
    with np.errstate(all="ignore"):
        value = np.where(weight > 0.0, total / weight, np.nan)
        value = np.where(level, least, value)  # not up to rounding
        residuals = by_group.residuals(numbers, value, 1.0 / weight, aggregates.LEAST_REST)
        shown = _shown_sizes(parts, columns, group, residuals, over_weights=False)
        borrowed = aggregates.borrowed_sizes(sample, lambda each: each)
        sizes = [np.maximum(*each) for each in zip(shown, borrowed, strict=True)]
        found = _signed(parts, columns, group, residuals, sizes=sizes)
        ends = Interval(
            value,
            value - (found.ends.value - found.ends.lower) / weight,
            value + (found.ends.upper - found.ends.value) / weight,
        )
    return _ratios(parts, ends, found, weight, rows, level)


def _ratios(
    parts: Parts, ends: Interval, found: _Signed, weight: Float64Array,
    rows: npt.NDArray[np.int64], level: BoolArray,
) -> Estimates:  # fmt: skip
    """Return ratios to each group's weight, unbounded where nothing bounds the others."""
    faded = (parts.step * aggregates.OUTWEIGHED > weight) & (weight > 0.0)
    unbounded = level | faded | ~(weight > 0.0)
    lower = np.where(unbounded, -np.inf, ends.lower)
    upper = np.where(unbounded, np.inf, ends.upper)
    over = np.where(weight > 0.0, weight, 1.0)
    caveats = [
        ("few-rows", found.few & ~unbounded), ("equal-values", level), ("faded", faded & ~level),
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        spread = np.where(unbounded, np.inf, found.spread / over**2)
    return _estimates(
        parts, Interval(ends.value, lower, upper), spread, found.step / over, rows, caveats
    )


def selectivity_by(parts: Parts, holds: Predicate) -> Estimates:
    """Return the shares for which a predicate holds. See
    :func:`~decaysketch.query.aggregates.selectivity`.
    """
    sample, group = parts.sample, parts.beside(valued=True)
    values, columns = sample.valued
    inside = aggregates.held_by(holds, values, columns)
    side = group + parts.size * ~inside
    size, head, tail = parts.size, slice(0, columns.exact), slice(columns.exact, None)
    exact = np.bincount(side[head], columns.masses[head], 2 * size)
    sampled, spread = (
        np.bincount(side[tail], column[tail], 2 * size)
        for column in (columns.masses, columns.variances)
    )
    step, thinning = np.tile(parts.step, 2), np.tile(parts.thinning, 2)
    both = part_interval(exact, sampled, spread, step, thinning, 0.0, parts.level)
    part, rest = Interval(*(e[:size] for e in both)), Interval(*(e[size:] for e in both))
    found = share_interval(part, rest)
    weight = part.value + rest.value
    over = np.where(weight > 0.0, weight, 1.0)
    share = found.value
    variance = ((1.0 - share) ** 2 * spread[:size] + share**2 * spread[size:]) / over**2
    rows = np.bincount(group, minlength=size)
    faded = (parts.step * aggregates.OUTWEIGHED > weight) & (weight > 0.0)
    ends = Interval(share, np.where(faded, 0.0, found.lower), np.where(faded, 1.0, found.upper))
    variance, step = np.where(faded, 0.25, variance), np.where(faded, 0.0, parts.step / over)
    return _estimates(parts, ends, variance, step, rows, [("faded", faded)], least=0.0, most=1.0)


def unseen_at_most(sample: Sample, confidence: float) -> float:
    """Return the largest possible decayed count for a group without a retained row, for all such
    groups at once. Return 0 if nothing was sampled.

    Args:
        sample: the rows of all groups.
        confidence: probability that no such group exceeds the result.
    """
    if sample.exact:
        return 0.0
    most = aggregates.count if sample.weighted else aggregates.sum  # which are equal there
    return unseen_within(sample.counted, most(sample, confidence=confidence).upper, confidence)


def unseen_within(sample: Sample, most: float, confidence: float) -> float:
    """Return the same bound for a decayed sum with this maximum over all groups. An observation
    adds at most its weight to it.
    """
    step = math.ldexp(sample.step, sample.magnitude)
    if not (step > 0.0 and math.isfinite(most)):
        return math.inf
    found = step
    for _ in range(60):  # a contraction: the logarithm changes little
        before, found = found, step * math.log(max(most / found, 1.0) / (1.0 - confidence))
        if found == before:
            break
    return found
