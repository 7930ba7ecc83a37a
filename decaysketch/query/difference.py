"""Comparison of two moments: a difference or a ratio, read from one sample, with its own interval.

Each retained row in an undecayed sample represents a mass ``u_i`` with variance ``V_i``. For any
decays and times in two results, their difference is a sum ``sum c_i u_i``. Its signed coefficients
depend on the row alone. The sum is unbiased, with variance ``sum c_i^2 V_i``. A row that both
results count enters once, with the difference between its coefficients, so the shared part cancels.
Two separate intervals ignore this, and are up to a third too wide. The interval is the one for
every signed sum: MOVER from its positive and negative parts. Either part may lack a hit that was
not retained, as large as the largest coefficient with that sign over the sampled bands
(:class:`Grid`).

============== =================================================================================
counts, sums   ``c = (g1 - g2) f``, with ``f`` the count, weight or value of a unit of mass
means, ranks   ``c = g1 (v - m1) / A1 - g2 (v - m2) / A2``, the linearised difference of ratios.
               ``A`` is the decayed weight and ``m`` the mean
ratios         each ``r`` for which the ``A - r B`` interval contains 0 (Fieller 1954,
               :mod:`~decaysketch.query.ratio_bounds`)
============== =================================================================================

``g1`` and ``g2`` are the decay weights for a row at each result's time. They are 0 for later
rows. :mod:`~decaysketch.query.comparisons` compares two parts of the rows at one time. Quantiles
are not such sums: compare ranks at a fixed value, or two
quantiles at confidence ``1 - delta / 2`` each.

The intervals' coverage is measured (``python -m quality.intervals --part contrasts``), not
proved. See ``docs/estimators.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from decaysketch.core.observations import TIME_LIMIT
from decaysketch.core.text.expression import Bound
from decaysketch.decay import Decay
from decaysketch.errors import ParameterError
from decaysketch.query._groups_native import Rows as KernelRows
from decaysketch.query.aggregates import (
    Hits,
    Terms,
    approximate,
    exactly,
    of_values,
    rows_of,
    signed_sum,
    span_of,
    unbounded,
    undefined,
)
from decaysketch.query.columns import SampleTable
from decaysketch.query.estimate import Estimate, Interval, check_confidence
from decaysketch.query.modifiers import valued_by
from decaysketch.query.ratio_bounds import bounds
from decaysketch.query.sample import Columns, Fading, Sample, pool
from decaysketch.query.unseen_rows import ApartGrid, Grid, Reach

__all__ = [
    "COUNTED",
    "Comparison",
    "Filters",
    "Moment",
    "Pair",
    "averaged",
    "check_positive",
    "checked",
    "compare",
]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

BoolArray = npt.NDArray[np.bool_]

Comparison = Literal["difference", "ratio"]

Filters = tuple[Bound | None, Bound | None]
"""Of either side of a comparison."""

COUNTED = ("count", "rate", "total")  # sums over observations, not over their weights


class Moment(NamedTuple):
    """A decay and a query time."""

    decay: Decay
    now: int


class Pair(NamedTuple):
    """The input of a comparison: samples from one sketch.

    Attributes:
        both: undecayed, with all rows that either moment gives weight to.
        first, second: under the decay and at the time of each moment.
    """

    both: Sample
    first: Sample
    second: Sample

    @classmethod
    def pooled(cls, pairs: Sequence[Pair]) -> Pair:
        """Pool several hash functions. See :func:`~decaysketch.query.sample.pool`."""
        return cls(*(pool(samples) for samples in zip(*pairs, strict=True)))


class _Side(NamedTuple):
    """Decay weights at a moment, over a power of two. Later rows have weight 0."""

    fading: Fading
    weights: Float64Array  # of rows

    @classmethod
    def of(cls, moment: Moment, times: Int64Array, kept: BoolArray | None = None) -> _Side:
        """Return row weights, scaled for the newest row that counts. Filtered rows have weight
        0.
        """
        counted = times <= moment.now
        if kept is not None:
            counted &= kept
        newest = int(times.max(where=counted, initial=-TIME_LIMIT)) if counted.any() else moment.now
        side = cls(Fading.of(moment.decay, moment.now, newest), np.empty(0))
        weights = side.at(times)
        return side._replace(weights=weights if kept is None else np.where(kept, weights, 0.0))

    @property
    def magnitude(self) -> int:
        return self.fading.magnitude

    def at(self, times: Int64Array) -> Float64Array:
        """Return weights for any times on that scale, infinite beyond float64."""
        counted = times <= self.fading.now
        if counted.all():
            return self.fading.at(times)
        weights = np.zeros(len(times))
        weights[counted] = self.fading.at(times[counted])
        return weights


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows in an aggregate, and the weights that either side gives them.

    Attributes:
        sample, columns, values: the rows. Values are None if an aggregate has none.
        first, second: their weights.
        apart: whether the sides have different filters.
    """

    sample: Sample
    values: Float64Array | None
    columns: Columns
    first: _Side
    second: _Side
    apart: bool

    @classmethod
    def of(
        cls, plain: Sample, now: Moment, then: Moment, filters: Filters, of: Bound | None, *,
        valued: bool, counted: bool,
    ) -> _Rows:  # fmt: skip
        """Return the rows for two moments, with undecayed masses. Conditions read the plain
        sample, before compared values and unit weights replace its own.
        """
        sample = plain if of is None else valued_by(plain, of)
        if counted:
            sample = sample.counted
        times = sample.beside(sample.times, valued=valued)
        first, second = (
            _Side.of(moment, times, _kept(plain, sample, moment, where, valued=valued))
            for moment, where in zip((now, then), filters, strict=True)
        )
        values, columns = sample.valued if valued else (None, sample.columns)
        if values is not None:
            values = values.astype(np.float64, copy=False)
        return cls(sample, values, columns, first, second, filters[0] != filters[1])

    @cached_property
    def _kernel_rows(self) -> KernelRows:
        return rows_of(self.columns)

    @cached_property
    def _reach(self) -> Reach:
        assert self.sample.reach is not None, "of an estimator by bands"
        return self.sample.reach().cut(self.first.fading.now).cut(self.second.fading.now)

    @cached_property
    def grid(self) -> Grid:
        """Weights over all sampled bands, for the largest hit that no row shows."""
        (grid,) = self._over([self._reach])
        return grid

    @cached_property
    def grids(self) -> list[Grid]:
        """The same, and where rows are missing for so long that they may be too light to be
        seen.
        """
        return self._over([self._reach, _gaps(self.sample, self._reach)])

    def _over(self, reaches: Sequence[Reach]) -> list[Grid]:
        return (ApartGrid if self.apart else Grid).over(reaches, self._weights)

    def _weights(self, times: Int64Array) -> Float64Array:
        """Return the weights that either side gives to any times: float64[2, n]."""
        first, second = self.first.fading, self.second.fading
        scaled = first.magnitude or second.magnitude
        if scaled or not self._one_decay or max(first.now, second.now) == TIME_LIMIT:
            return np.array([self.first.at(times), self.second.at(times)])
        # A decay of few ages costs nearly as much as one of twice as many.
        ages = np.array([[first.now], [second.now]]) - times
        weights = first.decay(np.maximum(ages, 0).ravel()).reshape(ages.shape)
        return np.where(ages < 0, 0.0, weights)

    @cached_property
    def _one_decay(self) -> bool:
        return self.first.fading.decay == self.second.fading.decay

    def linear(
        self, c: Float64Array, confidence: float, hits: Hits, function: Float64Array | None = None
    ) -> _Linear:
        """Return the sum over masses times coefficients.

        Args:
            c: coefficients, per observation with weight 1 if there is a function, else per unit of
                weight.
            confidence: confidence of the interval.
            hits: the largest possible hits of either sign.
            function: the summed function, without the weights of either side.
        """
        columns = self.columns
        x = c if function is None else c / columns.weights
        exact = float((columns.masses[: columns.exact] * x[: columns.exact]).sum())
        if self.sample.exact:
            return _Linear(Interval(exact, exact, exact), 0.0, 0.0, ())
        part, spread, step, caveats = signed_sum(
            self.sample, columns, x, Terms.of(self._kernel_rows, x), confidence, hits, function
        )
        ends = Interval(*(exact + float(end) for end in part))
        return _Linear(ends, spread, step, caveats)

    def estimate(self, ends: Interval, found: _Linear, by: float, confidence: float) -> Estimate:
        """Return an estimate with the spread of a linear sum, ``by`` times."""
        counted = int(np.count_nonzero((self.first.weights > 0.0) | (self.second.weights > 0.0)))
        if self.sample.exact:
            return exactly(self.sample, float(ends.value), confidence, counted)
        spread, step = found.spread * by * by, found.step * by
        return approximate(self.sample, ends, spread, step, confidence, counted, found.caveats)


def _gaps(sample: Sample, reach: Reach) -> Reach:
    """Return the times at which observations may have been so light that no row shows them."""
    if not sample.weighted:
        return reach.within(1, 0)
    weights = sample.weights[sample.exact_rows :]
    usual = float(np.median(weights)) if len(weights) else 1.0
    return reach.gaps(sample.times[sample.exact_rows :], usual)


def _kept(
    plain: Sample, sample: Sample, moment: Moment, where: Bound | None, *, valued: bool
) -> BoolArray | None:
    """Return the rows that a side's filter keeps, with ages at its moment.

    Args:
        plain: the sample with the stream's values, which the filter reads.
        sample: the same rows with the compared values.
        moment, where: the side.
        valued: only rows with a compared value.
    """
    if where is None:
        return None
    table = SampleTable(replace(plain, now=moment.now))
    return sample.beside(where.holds(table), valued=valued)


class _Linear(NamedTuple):
    ends: Interval
    spread: float
    step: float
    caveats: tuple[str, ...]


def compare(
    pair: Pair, aggregate: str, now: Moment, then: Moment, how: Comparison = "difference", *,
    confidence: float = 0.95, value: float | None = None, filters: Filters = (None, None),
    of: Bound | None = None,
) -> Estimate:  # fmt: skip
    """Compare an aggregate at one moment with another moment.

    Args:
        pair: the samples.
        aggregate: one of count, rate, sum, total, mean and, at a ``value``, rank.
        now, then: the moment to compare, and the moment to compare it with.
        how: "difference", now less then, or "ratio", now over then.
        confidence: confidence of the interval.
        value: the value for a rank.
        filters: the condition for the rows on each side. None: all.
        of: the compared values. None: the sample's values.

    Returns:
        The estimate. Its ``changed`` is true if 0 (for a ratio, 1) lies outside the interval.

    Raises:
        ParameterError: an unknown ``how``, or a ratio of values that may be negative.

    Complexity: O(n log n). A ratio takes about thirty times as long as a difference.
    """
    confidence = checked(how, confidence)
    valued = aggregate in ("mean", "rank", "total")
    counted = aggregate in COUNTED
    with np.errstate(over="ignore", invalid="ignore"):
        rows = _Rows.of(pair.both, now, then, filters, of, valued=valued, counted=counted)
        spans = [span_of(side.decay) if aggregate == "rate" else 1.0 for side in (now, then)]
        found = _compared(rows, aggregate, spans, how, confidence, value)
    same = now == then and filters[0] == filters[1]
    return _told(found, how, same=same)


def checked(how: Comparison, confidence: float) -> float:
    if how not in get_args(Comparison):
        raise ParameterError(f"how is {how!r}; expected one of {', '.join(get_args(Comparison))}")
    return check_confidence(confidence)


def _compared(
    rows: _Rows, aggregate: str, spans: Sequence[float], how: Comparison, confidence: float,
    value: float | None,
) -> Estimate:  # fmt: skip
    if aggregate in ("mean", "rank"):
        return _of_means(rows, how, confidence, value)
    return _of_sums(rows, aggregate, spans, how, confidence)


def _told(found: Estimate, how: Comparison, *, same: bool) -> Estimate:
    """Return a comparison with its ``changed``. A part compared with itself is the same."""
    neutral = 1.0 if how == "ratio" else 0.0
    if same and not math.isnan(found.value):  # equal by definition
        found = replace(
            found, value=neutral, lower=neutral, upper=neutral, stderr=0.0, exact=True, caveats=()
        )
    return replace(found, changed=not found.lower <= neutral <= found.upper)


# -------------------------------------------------------------------------------------------- sums


def _of_sums(
    rows: _Rows, aggregate: str, spans: Sequence[float], how: Comparison, confidence: float
) -> Estimate:
    columns = rows.columns
    f = np.ones(len(columns.masses)) if rows.values is None else rows.values
    function = None if aggregate == "sum" else f
    sizes = _Sizes.of(columns, function)
    first, second = rows.first, rows.second
    if how == "difference":
        magnitude = max(first.magnitude, second.magnitude)
        alpha, beta = (
            math.ldexp(1.0, side.magnitude - magnitude) / span
            for side, span in zip((first, second), spans, strict=True)
        )
        factors = alpha * first.weights - beta * second.weights
        hits = sizes.hits(rows, alpha, beta)
        found = rows.linear(f * factors, confidence, hits, function)
        if aggregate == "total" and not rows.sample.exact:
            found = found._replace(caveats=of_values(columns, f, factors, found.caveats))
        return rows.estimate(found.ends, found, 1.0, confidence).over(magnitude)
    check_positive(f, "totals")
    unit = 1.0 if function is None else 1.0 / columns.weights
    a, b = f * first.weights, f * second.weights
    above, below = (float((columns.masses * side * unit).sum()) for side in (a, b))
    by, magnitude = spans[1] / spans[0], first.magnitude - second.magnitude
    if not below > 0.0:
        return undefined(rows.sample, confidence, 0.0, math.inf)

    def balance(r: float) -> _Linear:
        return rows.linear(a - r * b, confidence, sizes.hits(rows, 1.0, r), function)

    ratio = above / below
    around = balance(ratio)
    if aggregate == "total" and not rows.sample.exact:
        factors = first.weights - ratio * second.weights
        around = around._replace(caveats=of_values(columns, f, factors, around.caveats))
    exact = rows.sample.exact
    ends = Interval(ratio, ratio, ratio) if exact else _bounds(ratio, balance)
    ends = Interval(*(by * end for end in ends))
    return rows.estimate(ends, around, by / below, confidence).over(magnitude)


class _Sizes(NamedTuple):
    """The amount that an observation adds to a sum per unit weight, at coefficient 1: the largest
    value with either sign, for a usual weight and for weight 1. Infinite if all values read are 0:
    they give no information about others.
    """

    usual: tuple[float, float]
    lightest: tuple[float, float]

    @classmethod
    def of(cls, columns: Columns, function: Float64Array | None) -> _Sizes:
        if function is None:  # weights themselves
            return cls((1.0, 0.0), (1.0, 0.0))
        if not len(function):
            return cls((math.inf, math.inf), (math.inf, math.inf))
        most = max(float(function.max()), 0.0), max(-float(function.min()), 0.0)
        if most == (0.0, 0.0):
            return cls((math.inf, math.inf), (math.inf, math.inf))
        mass = float(columns.masses.sum())
        mean = float((columns.masses / columns.weights).sum()) / mass if mass > 0.0 else 1.0
        return cls((mean * most[0], mean * most[1]), most)

    def hits(self, rows: _Rows, alpha: float, beta: float) -> Hits:
        """Return the largest hits for a sum over ``alpha g1 - beta g2`` times the summed value.
        Where rows are missing for long, they may have weight 1. Otherwise a change in the weights
        would look like a change in the count.
        """
        (rise, fall), far = (grid.ends(alpha, beta) for grid in rows.grids)
        usual, lightest = (_either(size, rise, fall) for size in self)
        up, down = _either(self.lightest, *far)
        return Hits((max(usual[0], up), max(usual[1], down)), lightest, max(rise, fall))


def _either(size: tuple[float, float], rise: float, fall: float) -> tuple[float, float]:
    """Return the largest products above and below 0 from sizes and coefficients with either
    sign.
    """

    def times(one: float, other: float) -> float:
        return one * other if one > 0.0 and other > 0.0 else 0.0

    (up, down) = size
    return max(times(up, rise), times(down, fall)), max(times(up, fall), times(down, rise))


def _bounds(ratio: float, balance: Callable[[float], _Linear]) -> Interval:
    """Return the least and the largest r for which the ``A - r B`` interval contains 0."""

    def ends_at(r: Float64Array) -> Interval:
        at = float(r[0])
        ends = (math.nan,) * 3 if math.isnan(at) else balance(at).ends
        return Interval(*(np.array([end]) for end in ends))

    found = bounds(np.array([ratio]), ends_at, np.ones(1, np.bool_))
    return Interval(ratio, float(found.lower[0]), float(found.upper[0]))


def check_positive(values: Float64Array, name: str) -> None:
    if np.any(values < 0.0):
        raise ParameterError(
            f"value {values.min():g} is negative: a ratio of {name} needs values of 0 or more; "
            "use how='difference'"
        )


# ------------------------------------------------------------------------------------------- means


def averaged(
    values: Float64Array, how: Comparison, at_most: float | None
) -> tuple[Float64Array, float, float]:
    """Return the numbers whose means are compared, and the range of a result.

    Args:
        values: float64[n].
        how: the comparison.
        at_most: None: means are compared. A value: the shares that are not above it.

    Raises:
        ParameterError: a ratio, and a value is negative.
    """
    least, most = (-math.inf, math.inf) if at_most is None else (-1.0, 1.0)
    if how == "ratio":
        check_positive(values, "means" if at_most is None else "ranks")
        least, most = 0.0, math.inf
    if at_most is not None:
        values = (values <= at_most).astype(np.float64)
    return values, least, most


def _of_means(rows: _Rows, how: Comparison, confidence: float, at_most: float | None) -> Estimate:
    """Compare means or, given a value, the shares that are not above it."""
    sample, columns = rows.sample, rows.columns
    assert rows.values is not None
    shares, ratio = at_most is not None, how == "ratio"
    v, least, most = averaged(rows.values, how, at_most)
    g1, g2 = rows.first.weights, rows.second.weights
    a, b = (float((columns.masses * g).sum()) for g in (g1, g2))
    if not (a > 0.0 and b > 0.0):
        return undefined(sample, confidence, least, most)
    m1, m2 = (float((columns.masses * g * v).sum()) / weight for g, weight in ((g1, a), (g2, b)))
    seen = v[(g1 > 0.0) | (g2 > 0.0)]
    lowest, highest = (0.0, 1.0) if shares else (float(seen.min()), float(seen.max()))
    if ratio and not m2 > 0.0:
        return undefined(sample, confidence, least, most)
    if lowest == highest:
        if sample.exact:
            return exactly(sample, float(ratio), confidence, len(seen))
        return unbounded(sample, float(ratio), least, most, confidence, len(seen), "equal-values")
    # A side without residuals: nothing shows how far its mean may be off.
    flat = (ratio or not shares) and any(np.ptp(v[g > 0.0]) == 0.0 for g in (g1, g2))

    def balance(r: float) -> _Linear:
        """Return the interval for ``m1 - r m2``."""
        # A hit may have any value that was seen, though none was such.
        ends_of = [((value - m1) / a, r * (value - m2) / b) for value in (lowest, highest)]
        up, down = map(max, *(rows.grid.ends(*each) for each in ends_of))
        hits = Hits((up, down), (up, down), max(up, down))
        # The residuals of either side have mean 0: only distances matter.
        found = rows.linear(g1 / a * (v - m1) - r * g2 / b * (v - m2), confidence, hits)
        (value, lower, upper), middle = found.ends, m1 - r * m2
        return found._replace(
            ends=Interval(middle, middle - (value - lower), middle + (upper - value)),
            caveats=("equal-values", *found.caveats) if flat else found.caveats,
        )

    if ratio:
        by, value = 1.0 / m2, m1 / m2
        if flat and not m1 > 0.0 and not sample.exact:
            return unbounded(sample, value, least, most, confidence, len(seen), "equal-values")
        around = balance(value)
        ends = Interval(value, value, value)
        if not sample.exact:
            ends = _bounds(value, balance)
        return rows.estimate(ends, around, by, confidence)
    around = balance(1.0)
    value, lower, upper = around.ends
    ends = Interval(value, max(least, lower), min(most, upper))
    return rows.estimate(ends, around, 1.0, confidence)
