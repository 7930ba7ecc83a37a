"""Comparison between two row filters at one time, for all groups at once: a difference or a ratio.

A row in the first part has the coefficient ``a``, a row in the second ``-b``, and a row in both
``a - b``, so the shared part cancels. The interval is the one for every signed sum
(:meth:`~decaysketch.query.group_sums.Terms.signed`). A sample without groups is one group. See
:mod:`~decaysketch.query.difference` for two moments.

============== =================================================================================
counts, sums   ``a = f`` and ``b = f``, with the count, weight or value ``f`` per unit mass
means, ranks   ``a = (v - m1) / A1`` and ``b = (v - m2) / A2``, the linearised difference of
               ratios. ``A`` is a part's decayed weight and ``m`` its mean. Each residual is over
               ``1 - leverage`` (the jackknife)
ratios         each ``r`` for which the ``A - r B`` interval contains 0 (Fieller 1954,
               :mod:`~decaysketch.query.ratio_bounds`). Sums over rows in one part alone are scaled
               by ``r``, so no search step reads them again
============== =================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.text.expression import Bound, Schema, bind
from decaysketch.errors import ParameterError
from decaysketch.query import aggregates, ensemble
from decaysketch.query.aggregates import LEAST_REST
from decaysketch.query.columns import SampleTable
from decaysketch.query.difference import COUNTED, Comparison, averaged, check_positive, checked
from decaysketch.query.dispatch import check_compared
from decaysketch.query.estimate import Estimate, Interval
from decaysketch.query.group_sums import (
    Estimates,
    LightRows,
    Parts,
    Signed,
    Sizes,
    Terms,
    estimates_of,
    extremes,
    halves,
    largest,
)
from decaysketch.query.modifiers import Modifiers, bound_to
from decaysketch.query.ratio_bounds import bounds
from decaysketch.query.relations import KINDS
from decaysketch.query.sample import Columns, Sample
from decaysketch.query.shapes import Question

__all__ = ["Sides", "against", "check_given", "compare_parts", "compared_s", "of_repetitions"]

BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]

# Processor seconds, measured: of a row, and of a ratio in a sample where rare flags or heavy
# weights decide, whose bounds take tens of passes. Ratios in other samples take a tenth of it.
_ROW_S, _RATIO_S, _RATIO_ROW_S = 400e-9, 20e-3, 3e-6


class Sides(NamedTuple):
    """Two parts in a sample, and the compared values.

    Attributes:
        where, versus: the condition for either part. None: all rows.
        of: the values. None: the sample's values.
    """

    where: Bound | None
    versus: Bound | None
    of: Bound | None = None

    @classmethod
    def of_modifiers(cls, modifiers: Modifiers, schema: Schema) -> Sides:
        """Return the sides that modifiers name.

        Raises:
            ParameterError: a text cannot be read.
        """
        found = bound_to(modifiers, schema)
        of = None if modifiers.of is None else bind("of", modifiers.of, schema, *KINDS)
        where, versus = found.get("where"), found["versus"]
        assert where is None or isinstance(where, Bound)
        assert isinstance(versus, Bound)
        return cls(where, versus, of)

    @property
    def same(self) -> bool:
        """Whether a part is compared with itself."""
        first, second = (each if each is None else each.text for each in self[:2])
        return first == second

    def masks(self, sample: Sample) -> tuple[BoolArray, BoolArray]:
        """Return either part's rows."""
        table, everything = SampleTable(sample), np.ones(len(sample), np.bool_)
        first, second = (
            everything if each is None else each.holds(table) for each in (self.where, self.versus)
        )
        return first, second

    def values(self, sample: Sample) -> Float64Array:
        """Return the values, NaN where there is none."""
        if self.of is not None:
            return np.asarray(self.of(SampleTable(sample)).floats)
        return np.where(sample.missing, np.nan, sample.values.astype(np.float64))

    def kept(self, sample: Sample, *, valued: bool) -> BoolArray:
        """Return the rows in either part, with ``valued`` only those that have a value."""
        first, second = self.masks(sample)
        kept = first | second
        return kept & ~np.isnan(self.values(sample)) if valued else kept


class _Rows(NamedTuple):
    """The rows in either part, known masses first.

    Attributes:
        parts: these rows by group.
        columns, group: their masses and groups.
        first, second: 1 for a part's rows, 0 for others.
        values: None if an aggregate has none.
    """

    parts: Parts
    columns: Columns
    group: IntArray
    first: Float64Array
    second: Float64Array
    values: Float64Array | None

    @classmethod
    def of(cls, parts: Parts, sides: Sides, *, valued: bool, counted: bool) -> _Rows:
        """Return the rows. With ``counted``, sums are over observations."""
        parts = parts.only(lambda each: sides.kept(each, valued=valued))
        masks = sides.masks(parts.sample)
        values = sides.values(parts.sample) if valued else None
        if counted:  # after conditions are read, since it has weights of 1
            parts = parts.per_observation()
        sample = parts.sample
        first, second = (sample.beside(m.astype(np.float64), valued=False) for m in masks)
        values = None if values is None else sample.beside(values, valued=False)
        group = parts.beside(valued=False)
        return cls(parts, sample.columns, group, first, second, values)

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Row count by group."""
        return np.bincount(self.group, minlength=self.parts.size)

    def sum(self, column: Float64Array) -> Float64Array:
        """Return a column's decayed sum by group."""
        return self.parts.sum(self.group, self.columns.masses * column)


class _Some(NamedTuple):
    """Rows in one class."""

    parts: Parts
    columns: Columns
    group: IntArray

    @classmethod
    def of(cls, rows: _Rows, chosen: BoolArray) -> _Some:
        if chosen.all():
            return cls(rows.parts, rows.columns, rows.group)
        return cls(rows.parts, rows.columns.take(chosen), rows.group[chosen])

    def sums(self, a: Float64Array, b: Float64Array, r: Float64Array) -> _Sums:
        """Return the sums over masses times ``a - r b``."""
        rows = self.parts.rows(self.columns, self.group)
        terms, near, sizes, drawn = rows.contrast(
            *(np.ascontiguousarray(each) for each in (a, b, r))
        )
        return _Sums(Terms.of_columns(terms, near), Sizes.of_columns(sizes), drawn)


class _Sums(NamedTuple):
    """Sums over masses times x.

    Attributes:
        terms, sizes: sampled terms, and sizes.
        drawn: sums over masses times distances from 0, and times squares: float64[2, 2 groups].
    """

    terms: Terms
    sizes: Sizes
    drawn: Float64Array

    def times(self, factor: Float64Array) -> _Sums:
        """Return the sums for x times a factor by group, 0 or more."""
        by = np.tile(factor, 2)
        terms, sizes = self.terms.times(factor), self.sizes.times(factor)
        return _Sums(terms, sizes, self.drawn * [by, by * by])

    def plus(self, other: _Sums) -> _Sums:
        """Return the sums over both. No row is in both."""
        terms, sizes, drawn = other
        return _Sums(self.terms.plus(terms), self.sizes.plus(sizes), self.drawn + drawn)

    @property
    def farthest(self) -> list[Float64Array]:
        """The largest distance above and below 0 for a hit's x. A part with few rows borrows the
        tail from both: a hit may be as large as one that is drawn by its distance.
        """
        amounts, squares = self.drawn
        drawn = halves(squares / np.where(amounts > 0.0, amounts, 1.0))
        return [np.maximum(*each) for each in zip(self.sizes.largest(), drawn, strict=True)]


class _Contrast:
    """Sums over masses times ``a - r b``, for any ``r >= 0`` by group. Groups at NaN are not read.

    Args:
        rows: the rows.
        a, b: their coefficients.
    """

    def __init__(self, rows: _Rows, a: Float64Array, b: Float64Array) -> None:
        both, fixed = (a != 0.0) & (b != 0.0), b == 0.0
        one = np.ones(rows.parts.size)
        self._fixed = _Some.of(rows, fixed).sums(a[fixed], b[fixed], one)
        self._scaled, self._both = None, None
        if (scaled := ~(both | fixed)).any():
            self._scaled = _Some.of(rows, scaled).sums(a[scaled], b[scaled], one)
        if both.any():
            self._both = _Some.of(rows, both), a[both], b[both]

    def at(self, r: Float64Array) -> _Sums:
        """Return the sums at some r."""
        found = self._fixed
        if self._scaled is not None:
            found = found.plus(self._scaled.times(r))
        if self._both is not None:
            some, a, b = self._both
            found = found.plus(some.sums(a, b, r))
        return found


def _switches(rows: _Rows, a: Float64Array, b: Float64Array) -> Float64Array:
    """Return the positive r, up to two by group, at which known rows begin or cease to show much
    larger terms than sampled ones, see :meth:`~decaysketch.query.group_sums.Sizes.largest`.
    float64[2, groups], NaN where there is none.
    """
    head, tail = slice(0, rows.columns.exact), slice(rows.columns.exact, None)
    near, far, variances = rows.group[head], rows.group[tail], rows.columns.variances[tail]
    spread, shown = rows.parts.sum(far, variances), np.bincount(near, minlength=rows.parts.size)
    larger = aggregates.LARGER * np.maximum(shown, 1)
    square, linear, constant = (
        spread * rows.parts.sum(near, term[head])
        - larger * rows.parts.sum(far, variances * term[tail])
        for term in (b * b, -2.0 * a * b, a * a)
    )
    root = np.sqrt(linear * linear - 4.0 * square * constant)
    stable = -0.5 * (linear + np.copysign(root, linear))
    found = np.array([stable / square, constant / stable])
    return np.where((found > 0.0) & np.isfinite(found), found, np.nan)


def compare_parts(
    parts: Parts, aggregate: str, sides: Sides, how: Comparison = "difference",
    value: float | None = None,
) -> Estimates:  # fmt: skip
    """Compare an aggregate between two parts of each group.

    Args:
        parts: the rows by group, with the stream's values.
        aggregate: count, rate, sum, total, mean or, at a ``value``, rank.
        sides: both parts, and the compared values.
        how: "difference", the first less the second, or "ratio", the first over the second.
        value: the value for a rank.

    Returns:
        The estimates. ``changed`` is true if 0 (for a ratio, 1) lies outside the interval.

    Raises:
        ParameterError: an unknown ``how``, or a ratio between values that may be negative.

    Complexity: O(n). If parts have common rows, a ratio takes O(n) for each step of its search.
    """
    valued = aggregate in ("mean", "rank", "total")
    with np.errstate(all="ignore"):
        rows = _Rows.of(parts, sides, valued=valued, counted=aggregate in COUNTED)
        if aggregate in ("mean", "rank"):
            found = _of_means(rows, how, value)
        else:
            found = _of_sums(rows, aggregate, how)
    neutral = 1.0 if how == "ratio" else 0.0
    if sides.same:
        some = ~np.isnan(found.value)
        value_, lower, upper = (
            np.where(some, neutral, end) for end in (found.value, found.lower, found.upper)
        )
        found = replace(
            found, value=value_, lower=lower, upper=upper, stderr=np.where(some, 0.0, found.stderr),
            exact=found.exact | some,
            caveats=tuple((name, groups & ~some) for name, groups in found.caveats),
        )  # fmt: skip
    return replace(found, changed=~((found.lower <= neutral) & (neutral <= found.upper)))


# -------------------------------------------------------------------------------------------- sums


class _Largest(NamedTuple):
    """The amount that an observation adds to a sum at coefficient 1: the largest value with either
    sign, for a usual weight and for weight 1. Infinite if all values read are 0: they give no
    information about others. float64[groups].
    """

    usual: tuple[Float64Array, Float64Array]
    lightest: tuple[Float64Array, Float64Array]

    @classmethod
    def of(cls, rows: _Rows, function: Float64Array | None) -> _Largest:
        size = rows.parts.size
        if function is None:  # weights themselves
            alone = np.ones(size), np.zeros(size)
            return cls(alone, alone)
        most = [largest(rows.group, sign * function, size) for sign in (1.0, -1.0)]
        blank = (most[0] == 0.0) & (most[1] == 0.0)
        mass = rows.sum(np.ones(len(function)))
        mean = np.where(mass > 0.0, rows.sum(1.0 / rows.columns.weights) / mass, 1.0)
        up, down = (np.where(blank, np.inf, each) for each in most)
        return cls((mean * up, mean * down), (up, down))

    def hits(self, parts: Parts, alpha: Any, beta: Any) -> tuple[Float64Array, Float64Array]:
        """Return the largest hits for a sum over ``alpha g1 - beta g2`` times the summed value, by
        part: for a usual weight and for weight 1.
        """
        rise, fall = parts.step * alpha, parts.step * beta
        return _either(self.usual, rise, fall), _either(self.lightest, rise, fall)


def _either(
    size: tuple[Float64Array, Float64Array], rise: Float64Array, fall: Float64Array
) -> Float64Array:
    """Return the largest products above and then below 0 from sizes and coefficients with either
    sign.
    """

    def times(one: Float64Array, other: Float64Array) -> Float64Array:
        return np.where((one > 0.0) & (other > 0.0), one * other, 0.0)

    up, down = size
    above = np.maximum(times(up, rise), times(down, fall))
    return np.concatenate([above, np.maximum(times(up, fall), times(down, rise))])


class _Summed(NamedTuple):
    """A function's decayed sums over both parts.

    Attributes:
        rows: the rows.
        f: the summed function. It is ``function``, or 1 for weight sums.
        function: None for weight sums.
        x: f per unit weight.
        light: finds the groups with unequal weights. None for weight sums.
    """

    rows: _Rows
    f: Float64Array
    function: Float64Array | None
    x: Float64Array
    light: LightRows | None

    @classmethod
    def of(cls, rows: _Rows, aggregate: str) -> _Summed:
        f = np.ones(len(rows.group)) if rows.values is None else rows.values
        if aggregate == "sum":
            return cls(rows, f, None, f, None)
        light = LightRows(rows.parts, rows.columns, rows.group, f)
        return cls(rows, f, f, f / rows.columns.weights, light)

    def signed(
        self, contrast: _Contrast, largest_: _Largest, alpha: Any, r: Float64Array
    ) -> tuple[Signed, Float64Array, BoolArray]:
        """Return the sampled part of ``alpha (A - r B)``, the lightest observation's hit, and
        the groups that seldom show light ones.
        """
        rows, parts = self.rows, self.rows.parts
        terms = contrast.at(r).terms.times(np.broadcast_to(alpha, parts.size))
        usual, lightest = largest_.hits(parts, alpha, alpha * r)
        unequal, larger = np.zeros(parts.size, np.bool_), np.ones(parts.size)
        if self.light is not None:

            def x_of(some: IntArray) -> Float64Array:
                factors = rows.first[some] - r[rows.group[some]] * rows.second[some]
                return np.asarray(alpha * self.x[some] * factors)

            unequal = self.light.unequal(terms, parts.step * alpha * np.maximum(1.0, r), x_of)
            larger = self.light.larger
        least = np.where(np.tile(unequal, 2), np.maximum(usual, lightest), usual)
        found = terms.signed(parts, np.maximum(least, terms.jump), larger=larger)
        return found, np.maximum(*halves(lightest)), unequal

    def known(self, x: Float64Array) -> Float64Array:
        """Return a sum's known part."""
        head = slice(0, self.rows.columns.exact)
        return self.rows.parts.sum(self.rows.group[head], self.rows.columns.masses[head] * x[head])


def _of_sums(rows: _Rows, aggregate: str, how: Comparison) -> Estimates:
    sums, parts = _Summed.of(rows, aggregate), rows.parts
    span = 1.0
    if aggregate == "rate":
        span = parts.span or aggregates.span_of(parts.sample.decay)
    largest_ = _Largest.of(rows, sums.function)
    a, b = sums.x * rows.first, sums.x * rows.second
    if how == "difference":
        contrast, ones = _Contrast(rows, a - b, np.zeros(len(a))), np.ones(parts.size)
        around, light, unequal = sums.signed(contrast, largest_, 1.0 / span, ones)
        exact = sums.known(a - b) / span
        exact_all = rows.sum(a - b) / span
        ends = Interval(
            np.where(parts.step > 0.0, exact + around.ends.value, exact_all),
            exact + around.ends.lower, exact + around.ends.upper,
        )  # fmt: skip
        caveats = _caveats(sums, around, unequal, light, rows.first - rows.second, aggregate)
        found = estimates_of(parts, ends, around.spread, around.step, rows.counts, caveats)
        return found.over(parts.sample.magnitude)
    check_positive(sums.f, "totals")
    contrast = _Contrast(rows, a, b)
    above, below = rows.sum(a), rows.sum(b)
    known = sums.known(a), sums.known(b)

    def balance(r: Float64Array) -> tuple[Signed, Float64Array, BoolArray]:
        return sums.signed(contrast, largest_, 1.0, r)

    def ends_at(r: Float64Array) -> Interval:
        exact = known[0] - r * known[1]
        return Interval(*(exact + end for end in balance(r)[0].ends))

    some = below > 0.0
    value = np.where(some, above / below, np.nan)
    middle = np.where(some, value, 1.0)
    around, light, unequal = balance(middle)
    factors = rows.first - middle[rows.group] * rows.second
    caveats = [
        (name, groups & some)
        for name, groups in _caveats(sums, around, unequal, light, factors, aggregate)
    ]
    ends = bounds(value, ends_at, some & (parts.step > 0.0))
    spread, step = around.spread / below**2, around.step / below
    counts = np.where(some, rows.counts, 0)
    return estimates_of(parts, ends, spread, step, counts, caveats, least=0.0, most=np.inf)


def _caveats(
    sums: _Summed, around: Signed, unequal: BoolArray, light: Float64Array, factors: Float64Array,
    aggregate: str,
) -> list[tuple[str, BoolArray]]:  # fmt: skip
    """Return a sum's caveats. See :func:`~decaysketch.query.aggregates.signed_sum` and, for
    totals, :func:`~decaysketch.query.aggregates.of_values`.
    """
    rows, parts = sums.rows, sums.rows.parts
    few, missed, equal = around.few & ~unequal, unequal, np.zeros(parts.size, np.bool_)
    if sums.function is not None:
        decisive = aggregates.may_miss_light(parts.sample, light, around.step, around.spread)
        missed = unequal | decisive
    if aggregate == "total":
        low, high = extremes(rows.group, sums.f, parts.size)
        equal = (low == high) & (low != 0.0)
        few = (few | (_few_decide(rows, sums.f, factors) & ~missed)) & ~equal
        missed = missed & ~equal
    return [("few-rows", few), ("unequal-weights", missed), ("equal-values", equal)]


def _few_decide(rows: _Rows, f: Float64Array, factors: Float64Array) -> BoolArray:
    """Return whether one row decides a group's mean."""
    columns, group, size = rows.columns, rows.group, rows.parts.size
    tail = slice(columns.exact, None)
    masses = columns.masses * np.abs(factors)
    weight = rows.parts.sum(group, masses)
    some = weight > 0.0
    mean = np.where(some, rows.parts.sum(group, masses * f) / weight, 0.0)
    rest = np.maximum(1.0 - masses[tail] / weight[group[tail]], LEAST_REST)
    residuals = (f[tail] - mean[group[tail]]) / np.where(some[group[tail]], rest, 1.0)
    residuals *= factors[tail]
    variances = columns.variances[tail] * residuals * residuals
    everything = rows.parts.sum(group[tail], variances)
    return np.asarray(largest(group[tail], variances, size) > aggregates.HINGES * everything)


# ------------------------------------------------------------------------------------------- means


def _of_means(rows: _Rows, how: Comparison, at_most: float | None) -> Estimates:
    """Compare means or, given a value, the shares that are not above it."""
    parts, group = rows.parts, rows.group
    assert rows.values is not None
    shares, ratio = at_most is not None, how == "ratio"
    v, least, most = averaged(rows.values, how, at_most)
    g1, g2 = rows.first, rows.second
    a, b = rows.sum(g1), rows.sum(g2)
    m1, m2 = rows.sum(g1 * v) / a, rows.sum(g2 * v) / b
    some = (a > 0.0) & (b > 0.0)
    some &= (m2 > 0.0) if ratio else True
    level = np.zeros(parts.size, np.bool_)
    if not shares:
        low, high = extremes(group, v, parts.size)
        level = some & (low == high)
    flat = np.zeros((2, parts.size), np.bool_)
    if ratio or not shares:  # a side without residuals: nothing shows how far its mean may be off
        for side, g in zip(flat, (g1, g2), strict=True):
            low, high = extremes(group[g > 0.0], v[g > 0.0], parts.size)
            side |= some & ~level & (parts.step > 0.0) & (low == high)
    one, other = (
        g / weight[group] * (v - mean[group])
        / np.maximum(1.0 - g * rows.columns.masses / weight[group], LEAST_REST)
        for g, weight, mean in ((g1, a, m1), (g2, b, m2))
    )  # fmt: skip
    usable = (some & ~level)[group]
    one, other = (np.where(usable, each, 0.0) for each in (one, other))
    contrast = _Contrast(rows, one, other) if ratio else _Contrast(rows, one - other, 0.0 * other)

    def balance(r: Float64Array) -> Signed:
        """Return the interval for ``m1 - r m2``."""
        sums = contrast.at(r)
        found = sums.terms.signed(parts, sums.terms.hits(parts, sizes=sums.farthest))
        (value, lower, upper), middle = found.ends, m1 - r * m2
        ends = Interval(middle, middle - (value - lower), middle + (upper - value))
        return found._replace(ends=ends)

    middle = np.where(some, m1 / m2, 1.0) if ratio else np.ones(parts.size)
    around = balance(middle)
    by = np.where(some, 1.0 / m2, 1.0) if ratio else 1.0
    if ratio:
        value = np.where(level, 1.0, middle)
        searched = some & ~level & (parts.step > 0.0)
        jumps = np.sort(_switches(rows, one, other), axis=0)
        ends = bounds(value, lambda r: balance(r).ends, searched, jumps)
    else:
        value = np.where(level, 0.0, around.ends.value)
        ends = Interval(
            value, np.maximum(least, around.ends.lower), np.minimum(most, around.ends.upper)
        )
    half = 0.5 * (most - least)
    unbounded = level | (flat[0] & (m1 == 0.0) if ratio else False)
    ends = Interval(
        np.where(some, value, np.nan), np.where(unbounded, least, ends.lower),
        np.where(unbounded, most, ends.upper),
    )  # fmt: skip
    spread = np.where(level, half * half, around.spread * by * by)
    step = np.where(level, 0.0, around.step * by)
    equal = level | flat.any(axis=0)
    caveats = [("equal-values", equal), ("few-rows", around.few & some & ~level)]
    counts = np.where(some, rows.counts, 0)
    return estimates_of(parts, ends, spread, step, counts, caveats, least=least, most=most)


# ------------------------------------------------------------------------------------------ queries


def against(
    question: Question[Any], modifiers: Modifiers, schema: Schema, span: float | None = None
) -> Question[Any]:
    """Return the query that compares the modifiers' parts, or the query itself without them.

    Args:
        question: the query.
        modifiers: its modifiers.
        schema: the stream's columns.
        span: a rate's divisor. None: the decay's integral.

    Raises:
        ParameterError: the query cannot be compared. The message gives the remedy.
    """
    if modifiers.versus is None:
        return question
    check_compared(question)
    sides, how = Sides.of_modifiers(modifiers, schema), modifiers.how

    def by_group(parts: Parts, **given: Any) -> Estimates:
        check_given(given)
        return compare_parts(parts, question.name, sides, how, given.get("value"))

    def answer(samples: Sequence[Sample], *, confidence: float, **given: Any) -> Estimate:
        level = checked(how, confidence)
        alone = [Parts.alone(sample, level, span) for sample in samples]
        return of_repetitions([by_group(parts, **given)[0] for parts in alone], how)

    def cost_s(sample: Sample, _given: Mapping[str, Any]) -> float:
        return question.cost_s(sample, _given) + compared_s(sample, how)

    return replace(question, answer=answer, by_group=by_group, cost_s=cost_s)


def compared_s(sample: Sample, how: Comparison) -> float:
    """Return the processor time to compare parts of a sample, in seconds, at most about that."""
    if how == "difference" or sample.exact:
        return len(sample) * _ROW_S
    return _RATIO_S + len(sample) * _RATIO_ROW_S


def check_given(given: Mapping[str, Any]) -> None:
    """Reject arguments that a comparison has no meaning for.

    Raises:
        ParameterError: a function is given.
    """
    if given.get("function") is not None:
        raise ParameterError("function cannot be compared; give of to compare totals")


def of_repetitions(answers: Sequence[Estimate], how: Comparison) -> Estimate:
    """Return one comparison from several hash functions' comparisons."""
    if len(answers) == 1:
        return answers[0]
    middle, neutral = ensemble.median_estimate(answers), 1.0 if how == "ratio" else 0.0
    return replace(middle, changed=not middle.lower <= neutral <= middle.upper)
