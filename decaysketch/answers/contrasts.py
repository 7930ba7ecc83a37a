"""Two answers compared: a difference or a ratio, read from one sample, with its own interval.

Each retained row of an undecayed sample stands for a mass ``u_i`` of variance ``V_i``. Whatever
decays and times two answers are asked under, their difference is a sum ``sum c_i u_i`` of signed
coefficients that depend on the row alone: unbiased, of variance ``sum c_i^2 V_i``. A row that both
answers count enters once, with the difference of its coefficients, so what they share cancels; two
separate intervals would not know that and come out up to a third too wide. The interval is that of
every signed sum: MOVER of its positive and negative parts.

============== =================================================================================
counts, sums   ``c = (g1 - g2) f``, with ``f`` the count, weight or value of a unit of mass
means, ranks   ``c = g1 (v - m1) / A1 - g2 (v - m2) / A2``, the linearised difference of ratios;
               ``A`` is the decayed weight and ``m`` the mean
ratios         the ``r`` for which the interval of ``A - r B`` holds 0 (Fieller 1954, by bisection)
============== =================================================================================

``g1`` and ``g2`` are the decay weights of a row as of the time of each answer, 0 of what is later.
Quantiles are no such sums: compare ranks at a fixed value, or two quantiles at confidence
``1 - delta / 2`` each.

That the intervals hold what they aim at is measured (``python -m quality.intervals --part
contrasts``), not a theorem; see ``docs/estimators.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from decaysketch.answers.estimate import Estimate, Interval, check_confidence
from decaysketch.answers.query import (
    approximate,
    exactly,
    signed_sum,
    span_of,
    unbounded,
    undefined,
)
from decaysketch.answers.sample import Columns, Fading, Sample, pool
from decaysketch.decay import Decay
from decaysketch.errors import ParameterError

__all__ = ["Comparison", "Moment", "Pair", "compare"]

Float64Array = npt.NDArray[np.float64]

Comparison = Literal["difference", "ratio"]

_HALVINGS = 50  # of a bisection: 15 digits
_FARTHEST = 1e12  # times the ratio: an end that lies further off is none


class Moment(NamedTuple):
    """A decay, and the time as of which it is asked."""

    decay: Decay
    now: int


class Pair(NamedTuple):
    """What a comparison is read from: samples of one sketch.

    Attributes:
        both: undecayed, of all that either moment gives weight to.
        first, second: under the decay and as of the time of each; of these only the size of a hit
            is read.
    """

    both: Sample
    first: Sample
    second: Sample

    @classmethod
    def pooled(cls, pairs: Sequence[Pair]) -> Pair:
        """Of several hash functions; see :func:`~decaysketch.answers.sample.pool`."""
        return cls(*(pool(samples) for samples in zip(*pairs, strict=True)))


class _Side(NamedTuple):
    """Decay weights of rows as of a moment, over a power of two; 0 of what is later."""

    weights: Float64Array
    hit: float  # mass of a single one, the largest that there may be
    magnitude: int

    @classmethod
    def of(cls, moment: Moment, sample: Sample, times: npt.NDArray[np.int64]) -> _Side:
        counted = times <= moment.now
        there = times[counted]
        newest = int(there.max()) if len(there) else moment.now
        fading = Fading.of(moment.decay, moment.now, newest)
        weights, decayed = np.zeros(len(times)), np.empty(len(there))
        order = np.argsort(-there, kind="stable")  # as they are asked for: latest first
        decayed[order] = fading(there[order])
        weights[counted] = decayed
        hit = float(np.ldexp(sample.step, sample.magnitude - fading.magnitude))
        return cls(weights, hit, fading.magnitude)

    def over(self, magnitude: int) -> _Side:
        by = self.magnitude - magnitude
        return _Side(np.ldexp(self.weights, by), float(np.ldexp(self.hit, by)), magnitude)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows that an aggregate is of, and what either side makes of them."""

    sample: Sample
    values: Float64Array | None
    columns: Columns
    first: _Side
    second: _Side

    @classmethod
    def of(cls, pair: Pair, now: Moment, then: Moment, *, valued: bool) -> _Rows:
        sample = pair.both
        times = sample.beside(sample.times, valued=valued)
        sides = _Side.of(now, pair.first, times), _Side.of(then, pair.second, times)
        if not valued:
            return cls(sample, None, sample.columns, *sides)
        values, columns = sample.valued
        return cls(sample, values.astype(np.float64, copy=False), columns, *sides)

    def linear(
        self, c: Float64Array, confidence: float, hits: tuple[float, float], *,
        over_weights: bool, unseen: float = 0.0,
    ) -> _Linear:  # fmt: skip
        """The sum of masses times coefficients.

        Args:
            c: coefficients of an observation of weight 1, if ``over_weights``; else of a unit of
                weight.
            confidence: of the interval.
            hits: the largest that may be of either sign.
            over_weights: see there.
            unseen: how far from 0 coefficients may be, where no row shows anything but 0.
        """
        columns = self.columns
        x = c / columns.weights if over_weights else c
        exact = float((columns.masses[: columns.exact] * x[: columns.exact]).sum())
        if self.sample.exact:
            return _Linear(Interval(exact, exact, exact), 0.0, 0.0, ())
        part, spread, step, caveats = signed_sum(
            self.sample, columns, x, None, confidence, (-unseen, unseen),
            c if over_weights else None, hits,
        )  # fmt: skip
        ends = Interval(*(exact + float(end) for end in part))
        return _Linear(ends, spread, step, caveats)

    def estimate(self, ends: Interval, found: _Linear, by: float, confidence: float) -> Estimate:
        """With the spread that a linear sum has, ``by`` times."""
        counted = int(np.count_nonzero((self.first.weights > 0.0) | (self.second.weights > 0.0)))
        if self.sample.exact:
            return exactly(self.sample, float(ends.value), confidence, counted)
        spread, step = found.spread * by * by, found.step * by
        return approximate(self.sample, ends, spread, step, confidence, counted, found.caveats)


class _Linear(NamedTuple):
    ends: Interval
    spread: float
    step: float
    caveats: tuple[str, ...]


def compare(
    pair: Pair, aggregate: str, now: Moment, then: Moment, how: Comparison = "difference", *,
    confidence: float = 0.95, value: float | None = None,
) -> Estimate:  # fmt: skip
    """An aggregate as of one moment against the same as of another.

    Args:
        pair: what it is read from.
        aggregate: one of count, rate, sum, total, mean and, at a ``value``, rank.
        now, then: what is compared, and with what.
        how: "difference", now less then, or "ratio", now over then.
        confidence: of the interval.
        value: of a rank.

    Returns:
        Its ``changed`` says whether 0 (of a ratio, 1) lies outside of the interval.

    Raises:
        ParameterError: another ``how``; a ratio of what may be negative, or of means or ranks.

    Complexity: O(n log n); of a ratio about a hundred times that of a difference.
    """
    confidence = check_confidence(confidence)
    if how not in get_args(Comparison):
        raise ParameterError(f"how is {how!r}; expected one of {', '.join(get_args(Comparison))}")
    with np.errstate(over="ignore", invalid="ignore"):
        if aggregate in ("mean", "rank"):
            rows = _Rows.of(pair, now, then, valued=True)
            found = _of_means(rows, how, confidence, value)
        else:
            rows = _Rows.of(pair, now, then, valued=aggregate == "total")
            spans = [span_of(side.decay) if aggregate == "rate" else 1.0 for side in (now, then)]
            found = _of_sums(rows, aggregate, spans, how, confidence)
    neutral = 1.0 if how == "ratio" else 0.0
    if now == then and not math.isnan(found.value):  # whatever it is, it is the same
        found = replace(
            found, value=neutral, lower=neutral, upper=neutral, stderr=0.0, exact=True, caveats=()
        )
    return replace(found, changed=not found.lower <= neutral <= found.upper)


# -------------------------------------------------------------------------------------------- sums


def _of_sums(
    rows: _Rows, aggregate: str, spans: Sequence[float], how: Comparison, confidence: float
) -> Estimate:
    columns, over_weights = rows.columns, aggregate != "sum"
    f = np.ones(len(columns.masses)) if rows.values is None else rows.values
    # Where no row has a coefficient, values may be any; a count has hits of about this size.
    unseen = math.inf if aggregate == "total" else 0.0
    up, down = _sizes(columns.masses, f / columns.weights if over_weights else f)
    first, second = rows.first, rows.second
    if how == "difference":
        magnitude = max(first.magnitude, second.magnitude)
        first, second = first.over(magnitude), second.over(magnitude)
        c = f * (first.weights / spans[0] - second.weights / spans[1])
        one, other = first.hit / spans[0], second.hit / spans[1]
        hits = (max(one * up, other * down), max(other * up, one * down))
        found = rows.linear(c, confidence, hits, over_weights=over_weights, unseen=unseen)
        return rows.estimate(found.ends, found, 1.0, confidence).over(magnitude)
    if np.any(f < 0.0):
        raise ParameterError(
            f"value {f.min():g} is negative: a ratio is one of totals that cannot be; compare by "
            "how='difference'"
        )
    unit = 1.0 / columns.weights if over_weights else 1.0
    a, b = f * first.weights, f * second.weights
    above, below = (float((columns.masses * side * unit).sum()) for side in (a, b))
    by, magnitude = spans[1] / spans[0], first.magnitude - second.magnitude
    if not below > 0.0:
        return undefined(rows.sample, confidence, 0.0, math.inf)

    def balance(r: float) -> _Linear:
        hits = (first.hit * up, r * second.hit * up)
        return rows.linear(a - r * b, confidence, hits, over_weights=over_weights, unseen=unseen)

    ratio = above / below
    exact = rows.sample.exact
    ends = Interval(ratio, ratio, ratio) if exact else _roots(ratio, lambda r: balance(r).ends)
    ends = Interval(*(by * end for end in ends))
    return rows.estimate(ends, balance(ratio), by / below, confidence).over(magnitude)


def _sizes(masses: Float64Array, sizes: Float64Array) -> tuple[float, float]:
    """What a hit adds where its decay is 1: above 0, and below, where the two sides change signs.
    Means over all rows, of which those of the other sign count as 0."""
    mass = float(masses.sum())
    if not mass > 0.0:
        return 1.0, 0.0
    up, down = (float((masses * np.maximum(each, 0.0)).sum()) for each in (sizes, -sizes))
    return up / mass, down / mass


def _roots(ratio: float, balance: Callable[[float], Interval]) -> Interval:
    """The least and the largest r of which the interval of ``A - r B`` holds 0."""
    least, high = 0.0, ratio
    if balance(0.0).lower > 0.0:
        for _ in range(_HALVINGS):
            middle = 0.5 * (least + high)
            least, high = (middle, high) if balance(middle).lower > 0.0 else (least, middle)
    low, high = ratio, max(2.0 * ratio, 1e-12)
    while balance(high).upper >= 0.0:
        high *= 2.0
        if high > _FARTHEST * max(ratio, 1.0):
            return Interval(ratio, least, math.inf)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if balance(middle).upper >= 0.0 else (low, middle)
    return Interval(ratio, least, high)


# ------------------------------------------------------------------------------------------- means


def _of_means(rows: _Rows, how: Comparison, confidence: float, at_most: float | None) -> Estimate:
    """Of means; given a value, of the shares that are not above it."""
    sample, columns, v = rows.sample, rows.columns, rows.values
    assert v is not None
    shares = at_most is not None
    if how == "ratio":
        raise ParameterError(
            f"how is 'ratio'; {'ranks' if shares else 'means'} are compared by 'difference': their "
            "ratio is no contrast of one sample"
        )
    least, most = (-1.0, 1.0) if shares else (-math.inf, math.inf)
    if shares:
        v = (sample.valued[0] <= at_most).astype(np.float64)
    g1, g2 = rows.first.weights, rows.second.weights
    a, b = (float((columns.masses * g).sum()) for g in (g1, g2))
    if not (a > 0.0 and b > 0.0):
        return undefined(sample, confidence, least, most)
    m1, m2 = (float((columns.masses * g * v).sum()) / weight for g, weight in ((g1, a), (g2, b)))
    seen = v[(g1 > 0.0) | (g2 > 0.0)]
    lowest, highest = (0.0, 1.0) if shares else (float(seen.min()), float(seen.max()))
    if lowest == highest:
        if sample.exact:
            return exactly(sample, 0.0, confidence, len(seen))
        return unbounded(sample, 0.0, least, most, confidence, len(seen), "equal-values")
    # A hit may be of one side alone and have any value that was seen, though none was such.
    one, other = rows.first.hit / a, rows.second.hit / b
    hits = (
        max(one * (highest - m1), other * (m2 - lowest)),
        max(one * (m1 - lowest), other * (highest - m2)),
    )
    # The residuals of either side have mean 0: only distances matter.
    c = g1 / a * (v - m1) - g2 / b * (v - m2)
    around = rows.linear(c, confidence, hits, over_weights=False)
    value, lower, upper = around.ends
    ends = Interval(
        m1 - m2, max(least, m1 - m2 - (value - lower)), min(most, m1 - m2 + (upper - value))
    )
    return rows.estimate(ends, around, 1.0, confidence)
