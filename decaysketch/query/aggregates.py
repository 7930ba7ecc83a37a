"""Aggregates over a :class:`~decaysketch.query.sample.Sample`, each an estimate with its interval.

A mass estimates a decayed weight ``w g``, so ``masses * f(v, w) / w`` sums to an estimate of the
decayed ``f(v, w)`` sum. Every interval comes from one source, the gamma interval for a sampled
part with one sign (:func:`~decaysketch.query.estimate.part_interval`):

* sums: the contrast between their positive and negative parts
* shares in the decayed weight (selectivity, rank, heavy hitters): part against rest
* quantiles: the values that may have the requested rank (inversion, Woodruff 1952)
* mean and variance: the linearised ratio, as the contrast between residuals with either sign. The
  standard deviation is the root of the variance, and so are its interval bounds

:func:`sum` and :func:`count` count missing values. Every other aggregate is over the observations
that have a value. All are O(n) passes over columns. Aggregates that need the value order sort
once for a sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Generic, Literal, NamedTuple, TypeVar, overload

import numpy as np
import numpy.typing as npt

from decaysketch.core.labels import values_of
from decaysketch.core.ranges import are_ranges
from decaysketch.core.special import ndtri
from decaysketch.decay import Decay
from decaysketch.decay.area import area
from decaysketch.errors import ParameterError, UnanswerableQueryError
from decaysketch.query import _groups_native as _native
from decaysketch.query.estimate import (
    CAVEATS,
    Estimate,
    Interval,
    check_confidence,
    contrast,
    inequality,
    part_half,
    part_interval,
    rank_balance,
    share_interval,
)
from decaysketch.query.sample import Columns, Sample, masses_by

__all__ = [
    "Bin",
    "Function",
    "Group",
    "HeavyHitter",
    "Histogram",
    "Last",
    "Predicate",
    "cdf",
    "count",
    "group_by",
    "heavy_hitters",
    "histogram",
    "last",
    "mean",
    "quantile",
    "rank",
    "rate",
    "selectivity",
    "stddev",
    "sum",
    "total",
    "unordered",
    "variance",
    "warnings",
    "within",
]

Float64Array = npt.NDArray[np.float64]
N = TypeVar("N", float, Float64Array)
BoolArray = npt.NDArray[np.bool_]

# Columns of values and weights in; a column of numbers, or of truth values, out.
Function = Callable[[npt.NDArray[Any], npt.NDArray[np.int64]], npt.ArrayLike]
Predicate = Callable[[npt.NDArray[Any], npt.NDArray[np.int64]], npt.ArrayLike]

TIE = 1e-12  # ranks this close are one rank: sums of masses are rounded
OUTWEIGHED = 2.0**-64
HINGES = 0.15  # a row with this share of the variance decides an answer
_DECISIVE = 0.5  # an observation with this much of the variance, had it been seen, decides
_HEAVY_TAIL = 1.5  # tails of sizes with a smaller index: 1 has no mean, 2 no variance
SOME, MANY = 8, 0.2  # exact rows, and the share of them that are lighter than all others
LIGHTER = 4.0  # by this factor
LARGER = 2.0  # by this factor, in the mean square
#: Points of a distribution with single joint intervals. More points have a band.
MOST_BY_POINT = 20
LEAST_REST = 0.1  # of a weight without one of its rows
_PROBES = 256  # places of a search looked at together: one costs almost as much as all of them


class HeavyHitter(NamedTuple):
    """A value and its decayed weight share."""

    value: float | int | str
    frequency: Estimate


@dataclass(frozen=True, slots=True)
class Group:
    """A value, its decayed weight sum, and its decayed count."""

    value: float | int | str
    sum: Estimate
    count: Estimate


class Bin(NamedTuple):
    """The share that values from ``low`` to ``high`` have in the decayed weight."""

    low: float | int
    high: float | int
    share: Estimate


class Histogram(NamedTuple):
    """Decayed weight shares: for each bin, and for the values below and above all bins."""

    bins: list[Bin]
    below: Estimate
    above: Estimate

    def to_frame(self) -> Any:
        """Return a pandas data frame with a row for each bin: ``low``, ``high``, then the share as
        ``value``, ``lower``, ``upper``, ``stderr``, ``exact``, ``rows`` and ``caveats``. The first
        row is below all bins, the last one above.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        from decaysketch.query.frames import frame_of_bins

        return frame_of_bins(self)

    def plot(self, axes: Any = None) -> Any:
        """Draw the shares with their intervals. See :func:`decaysketch.query.plots.histogram`."""
        from decaysketch.query import plots

        return plots.histogram(self, axes)


class Last(NamedTuple):
    """An observation: its value, None if missing, and its time."""

    value: float | int | str | None
    time: int


def warnings(samples: Sequence[Sample]) -> tuple[str, ...]:
    """Return warning sentences about the results from one sketch. They derive from a count of
    everything that its samples reach.
    """
    found = {caveat for sample in samples for caveat in count(sample).caveats}
    return tuple(
        f"{name}: {CAVEATS[name]}" for name in sorted(found & {"crowded-ids", "unequal-weights"})
    )


# -------------------------------------------------------------------------------------------- sums


def sum(sample: Sample, *, confidence: float = 0.95) -> Estimate:
    """Return the decayed weight sum over all observations."""
    confidence = check_confidence(confidence)
    columns = sample.columns
    everything = _amount(columns)
    # In a clumped progression hits come several at a time: then one is worth more.
    clump = everything.variance / everything.sampled if everything.sampled > 0.0 else 0.0
    step = np.array([max(sample.step, clump)])
    return _positive(sample, everything, step, confidence, [len(sample)])[0]


def count(sample: Sample, *, confidence: float = 0.95) -> Estimate:
    """Return the decayed number of observations, with or without a value."""
    columns = sample.columns
    return _sum(sample, columns, np.ones(len(sample)), confidence, unseen=(0.0, 1.0))


def rate(sample: Sample, *, confidence: float = 0.95) -> Estimate:
    """Return observations per time unit: the decayed count over the integral of the decay.

    The integral is over ages from 0 to the last age that has weight, however old the stream is. A
    stream younger than this counts as silent before it began. Under ``window(w)`` this is the count
    over ``w``. A window over integer times includes both bounds, so it has one time more than
    ``w``.

    Raises:
        ParameterError: the integral is 0, or infinite as under no decay.
    """
    span = span_of(sample.decay)
    counted = count(sample, confidence=confidence)
    ends = {name: getattr(counted, name) / span for name in ("value", "lower", "upper", "stderr")}
    return replace(counted, **ends)


def span_of(decay: object) -> float:
    """Return the divisor that makes a rate from a count under a decay.

    Raises:
        ParameterError: see :func:`rate`.
    """
    if not isinstance(decay, Decay):
        raise ParameterError(f"decay is {decay!r}; a rate needs one of the age alone")
    span = area(decay)
    if not 0.0 < span < math.inf:
        raise ParameterError(
            f"the integral of {decay!r} over the age is {span:g}; a rate needs a decay whose "
            "integral is finite and above 0, such as a window or an exponential"
        )
    return span


def total(
    sample: Sample, function: Function | None = None, *, confidence: float = 0.95
) -> Estimate:
    """Return the decayed sum of a real function over values and weights. The default sums the
    values.

    If the function is 0 for every retained observation although the decay reaches sampled ones, no
    row shows how large it may be for others. Then the interval is unbounded, unless the function
    gives truth values.

    Args:
        sample: observations and masses.
        function: takes the value and weight columns (read-only). It returns a number or truth value
            for each row.
        confidence: confidence of the interval.

    Raises:
        ParameterError: the function gave no column of finite numbers.
    """
    sample = sample.of_values
    values, columns = sample.valued
    numbers = evaluated(function, values, columns.weights)
    if numbers.dtype == np.bool_:
        return _sum(sample, columns, numbers.astype(np.float64), confidence, (0.0, 1.0))
    others = _of_later(sample, function)
    return _sum(sample, columns, numbers.astype(np.float64, copy=False), confidence, others=others)


def _of_later(sample: Sample, function: Function | None) -> Float64Array:
    """Return a function's values for the rows later than the query. They show how large it may
    be.
    """
    if sample.exact or sample.redraw is None or sample.later is None or not len(sample.later):
        return np.empty(0)
    values, columns = sample.redraw.later().valued
    try:
        return evaluated(function, values, columns.weights).astype(np.float64, copy=False)
    except ParameterError:  # it is none of rows that were not asked about
        return np.empty(0)


def evaluated(
    function: Function | None, values: npt.NDArray[Any], weights: npt.NDArray[np.int64]
) -> npt.NDArray[Any]:
    """Return a function's column, or the values without a function."""
    if function is None:
        return values.astype(np.float64, copy=False)
    given = np.asarray(function(_read_only(values), _read_only(weights)))
    if given.shape != values.shape or given.dtype.kind not in "biuf":
        raise ParameterError(
            f"function gave {given.dtype} of shape {given.shape}; "
            f"expected a number for each of {len(values)} observations"
        )
    if not np.isfinite(given).all():
        row = int((~np.isfinite(given)).argmax())
        raise ParameterError(
            f"function gave {given[row]} for value {values[row]} and weight {weights[row]}; "
            "expected a finite number"
        )
    return given


def _sum(
    sample: Sample,
    columns: Columns,
    function: Float64Array,
    confidence: float,
    unseen: tuple[float, float] = (-math.inf, math.inf),
    *,
    others: Float64Array | None = None,
) -> Estimate:
    """Return the decayed sum of a function.

    Args:
        sample: the sample with the columns.
        columns: the rows to sum over.
        function: its values.
        confidence: confidence of the interval.
        unseen: lowest and highest possible function value, if no row shows anything but 0.
        others: its values for rows that show how large it may be, in addition to the summed ones.
            None if it is 0 or 1.
    """
    confidence = check_confidence(confidence)
    if sample.per_observation is not None:
        sample, columns = sample.counted, columns.counted
    with np.errstate(over="ignore", invalid="ignore"):  # huge values: the answer is infinite
        x = over_weights(sample, columns, function)
        first, tail = slice(0, columns.exact), slice(columns.exact, None)
        exact = float((columns.masses[first] * x[first]).sum())
        if sample.exact:
            return exactly(sample, exact, confidence, len(x)).over(sample.magnitude)
        rows, weights = rows_of(columns), columns.weights if sample.weighted else None
        terms, sizes = Terms.of(rows, x), _Sizes.of(rows, function, weights)
        # The seen sum is a bound if no unseen row can lower it.
        seen = 0.0
        if not (sizes.up and sizes.down):
            seen = float((columns.decayed[tail] * np.abs(function[tail])).sum())
        certain = (0.0, seen) if sizes.down else (seen, 0.0)
        hits = hits_of(sample, terms, sizes, unseen, others)
        if others is None:
            hits = hits._replace(usual=(max(hits.usual[0], _borrowed(sample)), hits.usual[1]))
        interval, spread, step, caveats = signed_sum(
            sample, columns, x, terms, confidence, hits, function, certain
        )
        if others is not None:
            caveats = of_values(columns, function, None, caveats)
        ends = Interval(*(exact + end for end in interval))
        found = approximate(sample, ends, spread, step, confidence, len(x), caveats)
        return found.over(sample.magnitude)


def _borrowed(sample: Sample) -> float:
    """Return the hit size that a count of a part borrows from the complete sample."""
    if not sample.weighted or sample.whole is None:
        return 0.0
    whole = sample.whole()
    x = over_weights(whole, whole.columns, np.ones(len(whole)))
    return sample.step * borrowed_hit(whole, whole.columns, x)


def over_weights(sample: Sample, columns: Columns, function: Float64Array) -> Float64Array:
    """Return a function's values for a unit of weight. O(1) if all weights are 1."""
    return function / columns.weights if sample.weighted else function


def of_values(
    columns: Columns, function: Float64Array, factors: Float64Array | None,
    caveats: tuple[str, ...],
) -> tuple[str, ...]:  # fmt: skip
    """Return caveats for a total: the sum's caveats, and those for the mean over the same rows.

    Args:
        columns: the rows.
        function: the values.
        factors: the factor of each value, in addition to its mass. None: 1.
        caveats: caveats of the sum.
    """
    # If all values of a function are equal, the range of the others is unknown.
    if _all_equal(function) and function[0] != 0.0:
        return ("equal-values",)
    tail = slice(columns.exact, None)
    masses = columns.masses if factors is None else columns.masses * np.abs(factors)
    weight = float(masses.sum())
    mean = float((masses * function).sum()) / weight if weight > 0.0 else 0.0
    rest = np.maximum(1.0 - masses[tail] / weight, LEAST_REST) if weight > 0.0 else 1.0
    residuals = (function[tail] - mean) / rest  # as those of a mean
    if factors is not None:
        residuals *= factors[tail]
    few = _decided_by_few(columns.variances[tail] * residuals * residuals)
    return (*caveats, "few-rows") if few and not caveats else caveats


class Hits(NamedTuple):
    """How large a hit without a retained row may be, in a positive part and a negative one.

    Attributes:
        usual: hit size of an observation with a usual weight.
        lightest: hit size of an observation with weight 1.
        step: the mass of a hit times the largest coefficient.
    """

    usual: tuple[float, float]
    lightest: tuple[float, float]
    step: float


class SizesOf(NamedTuple, Generic[N]):
    """Sizes of a summed function: numbers, or a number for each group.

    Attributes:
        up, down: the largest distance above and below 0.
        shown, square: known rows, and their summed squares.
        spread, far: sampled variances, and these times squares.
        mass, counted: sampled masses, and these over weights.
    """

    up: N
    down: N
    shown: N
    square: N
    spread: N
    far: N
    mass: N
    counted: N


class _Sizes(SizesOf[float]):
    """Sizes for all rows together."""

    __slots__ = ()

    @classmethod
    def of(
        cls, rows: _native.Rows, function: Float64Array, weights: npt.NDArray[np.int64] | None
    ) -> _Sizes:
        """Return the sizes. O(n)."""
        (found,) = rows.sizes(np.ascontiguousarray(function), weights)
        return cls(*found.tolist())


class TermsOf(NamedTuple, Generic[N]):
    """Sampled terms with one sign in a sum over masses times x: numbers, or a number for each
    group. A 0 is a positive term.

    Attributes:
        sampled, spread, skew: sums over sizes, variances and third moments.
        mass: mass with another x than 0.
        jump, largest_spread: the largest hit, and the largest variance.
        lowest, highest: extreme x. Infinite without a row.
        near: the largest distance between x and 0 in a known row.
    """

    sampled: N
    spread: N
    skew: N
    mass: N
    jump: N
    largest_spread: N
    lowest: N
    highest: N
    near: N


class Terms(NamedTuple):
    """Sampled terms in a sum over masses times x, by sign."""

    up: TermsOf[float]
    down: TermsOf[float]

    @classmethod
    def of(cls, rows: _native.Rows, x: Float64Array) -> Terms:
        """Return the terms for x, for a unit of weight: float64[n]. O(n)."""
        terms, near = rows.terms(np.ascontiguousarray(x))
        up, down = (
            TermsOf._make([*sums, most])
            for sums, most in zip(terms.tolist(), near.tolist(), strict=True)
        )
        return cls(up, down)

    @property
    def spread(self) -> float:
        """Their variance."""
        return self.up.spread + self.down.spread

    @property
    def few(self) -> bool:
        """Whether one row makes up much of the variance."""
        return max(self.up.largest_spread, self.down.largest_spread) > HINGES * self.spread

    @property
    def equal(self) -> bool:
        """Whether all sampled x are equal."""
        up, down = self
        return min(up.lowest, down.lowest) == max(up.highest, down.highest)

    def intervals(
        self, least: tuple[float, float], certain: tuple[float, float], larger: float,
        thinning: float, confidence: float,
    ) -> tuple[Interval, Interval, float]:  # fmt: skip
        """Return the intervals for the summed sizes with either sign, and the largest hit.

        Args:
            least: lower limits on a hit that may be missing.
            certain: the parts that were really seen.
            larger: variances are so many times as large as the rows alone tell.
            thinning: see :class:`~decaysketch.query.sample.Sample`.
            confidence: confidence of either interval.
        """
        steps = [max(most, sign.jump) for most, sign in zip(least, self, strict=True)]
        finite = np.array([0.0 if math.isinf(step) else step for step in steps])
        sampled, spread, skew, _, jump = np.array([sign[:5] for sign in self]).T
        unequal = inequality(sampled, spread, skew, np.where(finite > jump, finite, 0.0))
        found = part_interval(
            0.0, sampled, larger * spread, finite, thinning, certain, confidence, unequal=unequal,
            seen=jump,
        )  # fmt: skip
        up, down = (
            Interval(value, seen, math.inf) if math.isinf(step) else Interval(value, *ends)
            for (value, *ends), seen, step in zip(
                np.array(found).T.tolist(), certain, steps, strict=True
            )
        )
        return up, down, max(steps)


def rows_of(columns: Columns) -> _native.Rows:
    """Return rows for the kernels, as a single group."""
    group = np.zeros(len(columns.masses), np.int64)
    return _native.Rows(
        group, columns.masses, columns.variances, columns.jumps, columns.decayed, columns.exact, 1
    )


def hits_of(
    sample: Sample, terms: Terms, sizes: _Sizes, unseen: tuple[float, float],
    others: Float64Array | None = None,
) -> Hits:  # fmt: skip
    """Return the largest hits in a sum over masses times x.

    They weigh as much as a hit in the band with the heaviest hits, times

    * the mean x of the sampled rows with that sign
    * the largest value that any row shows, over a usual weight, where rows that were not sampled
      show much larger ones
    * the largest x among the exact rows, where no sampled row has that sign, or all have the same x
    * a bound, where no row shows anything but 0

    Args:
        sample: the sample with the terms.
        terms: the terms for x, the summed value for a unit of weight.
        sizes: the numerator of x. If x is a ratio to weights, with the masses over weights.
        unseen: lowest and highest possible x, if no row shows anything but 0.
        others: more values of the numerator. None if it is 0 or 1.
    """
    highest, lowest = sizes.up, sizes.down
    usual = 0.0
    if others is not None:
        highest = max(highest, float(others.max(initial=0.0)))
        lowest = max(lowest, -float(others.min(initial=0.0)))
        usual = 1.0 if show_larger(sizes, others) else 0.0
        if sizes.counted > 0.0 and sizes.mass > 0.0:
            usual *= sizes.counted / sizes.mass
    blank, equal = not (sizes.up or sizes.down), terms.equal
    found = []
    for sign, bound, most in zip(terms, (unseen[1], -unseen[0]), (highest, lowest), strict=True):
        size = bound if blank else usual * most
        if equal or not sign.jump > 0.0:
            size = max(size, sign.near)
        if sign.mass > 0.0:  # a mean rounded above all x would be a larger hit than all seen
            size = max(size, min(sign.sampled / sign.mass, max(sign.highest, -sign.lowest)))
        found.append(sample.step * size)
    lightest = sample.step * highest, sample.step * lowest
    return Hits((found[0], found[1]), lightest, sample.step)


def show_larger(sizes: _Sizes, others: Float64Array) -> bool:
    """Return whether rows that no hash has chosen, and later ones, show values much larger than the
    sampled rows, by their mean square.
    """
    shown = sizes.shown + len(others)
    if not shown or not sizes.spread > 0.0:
        return True
    square = (sizes.square + float((others * others).sum())) / shown
    return square * sizes.spread > LARGER * sizes.far


def signed_sum(
    sample: Sample, columns: Columns, x: Float64Array, terms: Terms, confidence: float, hits: Hits,
    function: Float64Array | None = None, certain: tuple[float, float] = (0.0, 0.0),
) -> tuple[Interval, float, float, tuple[str, ...]]:  # fmt: skip
    """Return the sampled part of a sum over masses times x: interval, variance, hit size, caveats.

    Positive and negative terms are separate parts. The largest hit in a part is the largest that
    was seen, or that may be missing.

    Args:
        sample: the sample with the columns.
        columns: the rows to sum over.
        x: the summed value, for a unit of weight.
        terms: their terms.
        confidence: confidence of the interval.
        hits: the largest that may be missing. If weights are so unequal that light rows are seldom
            seen, the lightest.
        function: the numerator of x, up to a coefficient that depends on the time. None if x is not
            a ratio to weights.
        certain: the part of the sampled terms with either sign that was really seen, where it
            bounds the sum.
    """
    larger = 1.0 if function is None else as_shown(sample, columns)
    everything = larger * terms.spread
    caveats = hinges(sample, columns, function, x, terms, hits.step)
    least = hits.usual
    if "unequal-weights" in caveats:
        least = tuple(map(max, hits.usual, hits.lightest))  # type: ignore[assignment]
    *both, step = terms.intervals(least, certain, larger, sample.thinning, confidence)
    over_weights = function is not None and "unequal-weights" not in caveats
    if over_weights and may_miss_light(sample, max(hits.lightest), step, everything):
        caveats = ("unequal-weights", *caveats)
    return contrast(*both), everything, step, caveats


def hinges(
    sample: Sample, columns: Columns, function: Float64Array | None, x: Float64Array, terms: Terms,
    step: float,
) -> tuple[str, ...]:  # fmt: skip
    """Return whether a few rows decide a sum, and whether they do because they are so light.

    A few rows decide it if one makes a good part of the variance. Then unseen rows with its size or
    a larger one may exist, and the estimate and its variance do not include them. The unseen part
    is as large as the seen part, or larger, in two cases. In the first, a good part of the exact
    rows, which are complete, would be much larger hits than any sampled row. In the second, sizes
    fall off as slowly as their reciprocals (Hill's index of the largest), and the largest belong to
    the lightest rows. If those exact rows are light too, no row needs to stand out, because such a
    row may be unseen.

    Args:
        sample, columns: the rows to sum over.
        function: the numerator of the terms, up to a coefficient that depends on the time. None if
            terms are not ratios to weights.
        x: the summed value, for a unit of weight.
        terms: their terms.
        step: the mass of a hit times the largest coefficient.
    """
    few = terms.few
    named: tuple[str, ...] = ("few-rows",) if few else ()
    weights = columns.weights[columns.exact :]
    if function is None or not len(weights):
        return named
    unequal = ("unequal-weights",)
    of_near = _shown(sample, columns)
    near = function[: columns.whole] / columns.weights[: columns.whole]
    if len(of_near) > len(near):  # of later ones, with a value that is usual among all
        counted = function != 0.0
        usual = float(np.abs(function[counted]).mean()) if counted.any() else 0.0
        near = np.concatenate([near, usual / of_near[len(near) :]])
    bound = LIGHTER * max(terms.up.jump, terms.down.jump)
    if len(near) >= SOME and step * max(near.max(), -near.min()) > bound:
        beyond = step * np.abs(near) > bound
        if np.count_nonzero(beyond) > MANY * len(near):
            of_beyond = of_near[beyond]
            if few or (bound > 0.0 and _much_lighter(of_beyond, weights)):
                return unequal
    if not few:
        return ()
    jumps = columns.jumps[columns.exact :] * np.abs(x[columns.exact :])
    top = max(2, math.isqrt(int(np.count_nonzero(jumps))))
    if len(jumps) <= 2 * top:
        return named
    order = jumps.argpartition(len(jumps) - top - 1)[-top - 1 :]  # the next largest first
    if not jumps[order[0]] > 0.0:
        return named
    largest = jumps[order[1:]]
    excess = float(np.log(largest / jumps[order[0]]).mean())
    heavy = excess * _HEAVY_TAIL > 1.0
    return unequal if heavy and _much_lighter(weights[order[1:]], weights) else named


def borrowed_hit(sample: Sample, columns: Columns, x: Float64Array) -> float:
    """Return the hit size that a part with few rows may lack, for a unit of mass. It is the mean
    size for a hit drawn by its size, ``sum x^2 / sum |x|``. 0 if all weights are 1.

    If weights differ, light observations are large hits in a sum over observations, and few rows
    show none.

    Args:
        sample, columns: all rows, from every part.
        x: the summed value, for a unit of weight.
    """
    if not sample.weighted:
        return 0.0
    sizes = np.abs(x)
    terms = columns.masses * sizes
    amount = float(terms.sum())
    return float((terms * sizes).sum()) / amount if amount > 0.0 else 0.0


def has_unequal_weights(sample: Sample, columns: Columns, function: Float64Array) -> bool:
    """Return whether light observations are so seldom seen that a sum over weights must warn. See
    :func:`hinges`.

    Args:
        sample, columns: the rows to sum over.
        function: the summed value for each observation.
    """
    x = over_weights(sample, columns, function)
    terms = Terms.of(rows_of(columns), x)
    return "unequal-weights" in hinges(sample, columns, function, x, terms, sample.step)


def may_miss_light(sample: Sample, light: Any, step: Any, variance: Any) -> Any:
    """Return whether an observation with weight 1 would decide a sum if it had been seen.

    Then observations that leave no trace may be missing, in numbers that the interval does not
    include. No row is needed to detect this: a level with a probability far below 1 shows few of
    them.

    Args:
        sample: the summed sample.
        light: the hit size of such an observation.
        step: the largest hit that the interval allows for.
        variance: variance of the sum.
    """
    if not sample.weighted:
        return step != step  # of one weight alone
    return (light > step) & (light * light > _DECISIVE * variance)


def _decided_by_few(variances: Float64Array) -> bool:
    """Return whether one row makes up much of a variance."""
    return len(variances) > 0 and bool(variances.max() > HINGES * variances.sum())


def _shown(sample: Sample, columns: Columns) -> npt.NDArray[np.int64]:
    """Return weights of rows that no hash has chosen: exact rows, and rows later than the query."""
    shown = columns.weights[: columns.whole]
    later = sample.later
    return shown if later is None or not len(later) else np.concatenate([shown, later])


def as_shown(sample: Sample, columns: Columns) -> float:
    """Return a factor >= 1 for the hits in a sum over weights: their size over the size that the
    sampled rows show.

    The sum's variance is proportional to the mean 1 / weight. Most of it comes from observations so
    light that the next hash may have none. The sampled rows show this mean, and so do rows that no
    hash has chosen. The mean over both is used if it is larger than the value from the sampled rows
    alone.
    """
    if not sample.weighted:
        return 1.0
    shown, weights = _shown(sample, columns), columns.weights[columns.exact :]
    counted = columns.masses[columns.exact :] / weights
    seen = float((counted / weights).sum())
    if len(shown) < SOME or not seen > 0.0:
        return 1.0
    ratio = float((1.0 / shown).mean()) * float(counted.sum()) / seen
    return 0.5 * (1.0 + ratio) if ratio > 1.0 + 1e-9 else 1.0  # more than rounding


def _much_lighter(some: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> bool:
    return float(np.median(some)) * LIGHTER < float(np.median(others))


def _all_equal(column: Float64Array) -> bool:
    """Return whether there is exactly one distinct number."""
    return len(column) > 0 and bool(column[0] == column[-1] and np.ptp(column) == 0.0)


def _skew_lengths(columns: Columns, rows: slice) -> Float64Array:
    """Return third moments of masses over their variances. A hit represents ``1 / p`` observations,
    and one is seen. The number of others has the variance (1 - p) / p^2 and the third moment (1 -
    p) (2 - p) / p^3. Half of it belongs to the gamma variable in the comparison.
    """
    lengths = 0.5 * columns.decayed[rows]
    return np.subtract(columns.jumps[rows], lengths, out=lengths)


# ------------------------------------------------------------------------------ mean and variance


def mean(sample: Sample, *, confidence: float = 0.95) -> Estimate:
    """Return the mean value, weighted by decayed weight."""
    confidence = check_confidence(confidence)
    sample = sample.of_values
    values, columns = sample.valued
    numbers = values.astype(np.float64, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        return _ratio(sample, columns, numbers, confidence, lambda values: values)


def variance(sample: Sample, *, confidence: float = 0.95) -> Estimate:
    """Return the variance of the values, weighted by decayed weight (population variance: divided
    by V).

    The mean in the squares is fitted to the same rows. This makes the squares too small by the
    variance of that mean. So the result adds this variance again.
    """
    confidence = check_confidence(confidence)
    sample = sample.of_values
    values, columns = sample.valued
    numbers = values.astype(np.float64, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        weight, center = _weight_and_mean(rows_of(columns), numbers)
        squares = (numbers - center) ** 2
        found = _ratio(
            sample, columns, squares, confidence, lambda values: (values - center) ** 2, least=0.0
        )
        fitted = float((columns.variances * squares).sum()) / weight**2 if weight > 0.0 else 0.0
        if found.exact or not math.isfinite(found.upper) or not fitted > 0.0:
            return found
        return replace(
            found, value=found.value + fitted, lower=found.lower + fitted,
            upper=found.upper + fitted,
        )  # fmt: skip


def stddev(sample: Sample, *, confidence: float = 0.95) -> Estimate:
    """Return the standard deviation of the values, weighted by decayed weight: the variance
    root.
    """
    found = variance(sample, confidence=confidence)
    value, upper = math.sqrt(found.value), math.sqrt(found.upper)
    lower = math.sqrt(max(found.lower, 0.0))
    # Roots rise, so the interval keeps its coverage. The standard error is the one of small errors.
    stderr = found.stderr / (2.0 * value) if value > 0.0 else math.sqrt(found.stderr)
    return replace(found, value=value, lower=lower, upper=upper, stderr=stderr)


def _weight_and_mean(rows: _native.Rows, numbers: Float64Array) -> tuple[float, float]:
    """Return the decayed weight, and the mean by it: NaN without weight."""
    ((weight, total, low, high),) = rows.moments(np.ascontiguousarray(numbers)).tolist()
    if low == high:
        return weight, low  # not up to rounding
    return weight, total / weight if weight > 0.0 else math.nan


def _ratio(
    sample: Sample,
    columns: Columns,
    numbers: Float64Array,
    confidence: float,
    of: Callable[[Float64Array], Float64Array],
    least: float = -math.inf,
) -> Estimate:
    """Return a mean by decayed weight. If all numbers are equal, the distance of others is unknown,
    and the interval is unbounded.

    Few rows lie closer to their own mean than to the true one, so each residual is over ``1 -
    leverage``, as without its row (the jackknife). A partial sample borrows the tail of the
    complete sample, see :func:`borrowed_sizes`.

    Args:
        sample, columns, numbers, confidence: the input of the mean.
        of: returns the numbers for values, for later rows and for the sample that contains this
            part.
        least: no mean is below this.
    """
    rows = rows_of(columns)
    weight, value = _weight_and_mean(rows, numbers)
    if not weight > 0:
        return undefined(sample, confidence, least, math.inf)
    if sample.exact:
        return exactly(sample, value, confidence, len(numbers))
    if math.isfinite(value) and numbers[0] == value and np.all(numbers == value):
        return unbounded(sample, value, least, math.inf, confidence, len(numbers), "equal-values")
    if is_outweighed(sample, weight):
        return unbounded(sample, value, least, math.inf, confidence, len(numbers), "faded")
    # The residuals of all rows, exact ones included, have mean 0: only distances matter.
    residuals = rows.residuals(
        np.ascontiguousarray(numbers), np.array([value]), np.array([1.0 / weight]), LEAST_REST
    )
    terms, sizes = Terms.of(rows, residuals), _Sizes.of(rows, residuals, None)
    hits = hits_of(sample, terms, sizes, (0.0, 0.0), of(_of_later(sample, None)) - value)
    up, down = (sample.step * size for size in borrowed_sizes(sample, of))
    hits = hits._replace(usual=(max(hits.usual[0], up), max(hits.usual[1], down)))
    around, spread, step, caveats = signed_sum(sample, columns, residuals, terms, confidence, hits)
    ends = Interval(
        value,
        max(least, value - float(around.value - around.lower) / weight),
        value + float(around.upper - around.value) / weight,
    )
    spread /= weight**2
    return approximate(sample, ends, spread, step / weight, confidence, len(residuals), caveats)


def borrowed_sizes(
    sample: Sample, of: Callable[[Float64Array], Float64Array]
) -> tuple[float, float]:
    """Return how far above and below the mean a row may lie, where few rows in a part show it. This
    is the distance ``sum e^2 / sum |e|`` for a row drawn from the complete sample by its distance.
    Return (0, 0) for a sample that is no part of another.

    Args:
        sample: the part.
        of: returns the numbers for values.
    """
    if sample.whole is None:
        return 0.0, 0.0
    values, columns = sample.whole().of_values.valued
    numbers = of(values.astype(np.float64, copy=False))
    weight, mean = _weight_and_mean(rows_of(columns), numbers)
    return drawn_sizes(columns.masses, numbers - mean) if weight > 0.0 else (0.0, 0.0)


def drawn_sizes(masses: Float64Array, distances: Float64Array) -> tuple[float, float]:
    """Return the mean distance above and below 0 for a row drawn by its distance: ``sum e^2 / sum
    |e|`` for either sign, 0 if there is none.
    """
    terms = masses * distances
    above = np.maximum(terms, 0.0)
    below = above - terms
    squares = float((above * distances).sum()), -float((below * distances).sum())
    amounts = float(above.sum()), float(below.sum())
    up, down = (
        square / amount if amount > 0.0 else 0.0
        for square, amount in zip(squares, amounts, strict=True)
    )
    return up, down


# ------------------------------------------------------------------------------------------ shares


def selectivity(sample: Sample, predicate: Predicate, *, confidence: float = 0.95) -> Estimate:
    """Return the decayed weight share for which a predicate holds.

    Args:
        sample: observations and masses.
        predicate: takes the value and weight columns (read-only). It returns a truth value for each
            row.
        confidence: confidence of the interval.

    Raises:
        ParameterError: the predicate gave no column of truth values.
    """
    sample = sample.of_values
    values, columns = sample.valued
    return _share(sample, columns, held_by(predicate, values, columns), confidence)


def held_by(predicate: Predicate, values: npt.NDArray[Any], columns: Columns) -> BoolArray:
    """Return the rows for which a predicate holds.

    Raises:
        ParameterError: it gave no column of truth values.
    """
    inside = np.asarray(predicate(_read_only(values), _read_only(columns.weights)))
    if inside.shape != values.shape or inside.dtype != np.bool_:
        raise ParameterError(
            f"predicate gave {inside.dtype} of shape {inside.shape}; "
            f"expected a truth value for each of {len(values)} observations"
        )
    return inside


def within(at_least: float | None, at_most: float | None) -> Predicate:
    """Return the predicate that a value lies within bounds. None is no bound."""

    def holds(values: npt.NDArray[Any], _weights: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        held = np.ones(len(values), np.bool_)
        if at_least is not None:
            held &= np.asarray(values >= at_least)
        if at_most is not None:
            held &= np.asarray(values <= at_most)
        return held

    return holds


def rank(sample: Sample, value: float, *, confidence: float = 0.95) -> Estimate:
    """Return the relative rank of a value: the decayed weight share with that value or less."""
    value = _number("value", value)
    sample = sample.of_values
    values, columns = sample.valued
    return _share(sample, columns, values <= value, confidence)


def cdf(sample: Sample, points: Sequence[float], *, confidence: float = 0.95) -> list[Estimate]:
    """Return the rank for each of several values, see :func:`rank`. Sorts once for a sample.

    The intervals are joint: all of them hold at once with the confidence. For up to 20 points, each
    interval has the confidence ``1 - (1 - confidence) / k``, with k the number of points
    (Bonferroni). For more points, they form the band by Dvoretzky, Kiefer and Wolfowitz, which
    holds at every value. It assumes as many independent rows as would have the variance of the
    decayed weight.
    """
    confidence = check_confidence(confidence)
    numbers = [_number("points", point) for point in points]
    sample = sample.of_values
    ends = [_place(sample, number, "right") for number in numbers]
    if len(ends) > MOST_BY_POINT:
        return _in_band(sample, ends, confidence)
    return _jointly(sample, [0] * len(ends), ends, confidence)


def _in_band(sample: Sample, ends: Sequence[int], confidence: float) -> list[Estimate]:
    """Return ranks, and the same distance from all of them."""
    found = _shares_between(sample, [0] * len(ends), ends, confidence)
    whole = _amount(sample.valued[1])
    if sample.exact or not whole.mass > 0.0 or is_outweighed(sample, float(whole.mass)):
        return found
    # The rank of equal rows varies most in the middle, half as much as their weight. Where much of
    # the weight is exact, some rank may vary as much as the weight itself.
    below = sample.cumulative
    ranks = below.mass / below.mass[-1]
    part, rest = below.variance, below.variance[-1] - below.variance
    hit = 0.5 * sample.thinning * sample.step**2  # as in a gamma interval
    spread = 4.0 * ((1.0 - ranks) ** 2 * part + ranks**2 * rest) + hit
    far = math.sqrt(0.5 * math.log(2.0 / (1.0 - confidence)) * float(spread.max()))
    far /= float(whole.mass)
    return [
        replace(each, lower=max(0.0, each.value - far), upper=min(1.0, each.value + far))
        for each in found
    ]


def histogram(sample: Sample, edges: Sequence[float], *, confidence: float = 0.95) -> Histogram:
    """Return shares of the decayed weight by value: for the bins between edges, and outside them.

    A bin contains the values from its lower edge up to, but not including, its upper edge. The last
    bin also contains the values at its upper edge. The intervals are joint: all B of them hold at
    once with the confidence, each at ``1 - (1 - confidence) / B`` (Bonferroni).

    Args:
        sample: observations and masses.
        edges: two or more numbers, rising.
        confidence: confidence of all intervals together.

    Raises:
        ParameterError: there are fewer edges, or they do not rise.
    """
    confidence = check_confidence(confidence)
    numbers = [_number("edges", edge) for edge in edges]
    if fault := unordered(numbers):
        raise ParameterError(fault)
    sample = sample.of_values
    places = [_place(sample, number, "left") for number in numbers[:-1]]
    places = [0, *places, _place(sample, numbers[-1], "right"), len(sample.ranking.values)]
    below, *shares, above = _jointly(sample, places[:-1], places[1:], confidence)
    bins = map(Bin, numbers[:-1], numbers[1:], shares)
    return Histogram(list(bins), below, above)


def unordered(edges: Sequence[float]) -> str | None:
    """Return why numbers are no histogram edges, or None."""
    if len(edges) < 2 or any(high <= low for low, high in pairwise(edges)):
        return f"edges are {list(edges)!r}; expected two or more numbers, rising"
    return None


def _place(sample: Sample, value: float, side: Literal["left", "right"]) -> int:
    """Return how many distinct values are below a number ("left"), or not above it ("right")."""
    values = sample.ranking.values
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        value = float(value)
    return int(np.searchsorted(values, value, side))


def _jointly(
    sample: Sample, starts: Sequence[int], stops: Sequence[int], confidence: float
) -> list[Estimate]:
    """Return shares of distinct value runs, with intervals that hold all at once."""
    each = 1.0 - (1.0 - confidence) / max(len(starts), 1)
    found = _shares_between(sample, starts, stops, each)
    return [replace(share, confidence=confidence) for share in found]


def _shares_between(
    sample: Sample, starts: Sequence[int], stops: Sequence[int], confidence: float
) -> list[Estimate]:
    """Return shares of distinct value runs."""
    rows = len(sample.ranking.group)
    if not rows:
        return [undefined(sample, confidence, 0.0, 1.0)] * len(starts)
    below = sample.cumulative
    first, last = np.asarray(starts, np.intp), np.asarray(stops, np.intp)
    whole = (below.exact, below.sampled, below.variance)
    part = _Amount(*(column[last] - column[first] for column in whole))
    rest = _Amount(*(column[-1] - (column[last] - column[first]) for column in whole))
    return _shares(sample, part, rest, confidence, [rows] * len(starts))


# -------------------------------------------------------------------------------------- the latest


def last(sample: Sample) -> Last | None:
    """Return the latest observation that counts, by time and then by value. None if there is none.

    It is never an estimate. A sketch keeps the most recent observations. So at the newest time or
    later it has the latest one, unless more observations than its capacity share the newest time.
    For an earlier time it has the latest one as long as it still stores that time completely.

    Raises:
        UnanswerableQueryError: it may have been discarded, also if there may be none. For a decay
            that was fixed with the weights, whenever anything is sampled.
    """
    row = None
    if len(sample):
        newest = sample.times == sample.times.max()
        row = int(np.flatnonzero(newest)[sample.value_keys[newest].argmax()])
    if not sample.exact and (row is None or int(sample.times[row]) <= sample.complete_after):
        raise UnanswerableQueryError(
            f"the latest observation up to time {sample.now} may be discarded, because "
            "observations of that time were sampled"
        )
    if row is None:
        return None
    if sample.params.value_type == "float64" and are_ranges(sample.value_keys[row : row + 1])[0]:
        raise UnanswerableQueryError(
            f"the latest observation is a histogram bucket with the middle {sample.values[row]:g}, "
            "and no value; query the median of a short window"
        )
    values, (missing,) = values_of(
        sample.value_keys[row : row + 1], sample.params.value_type, sample.labels
    )
    return Last(None if missing else values.tolist()[0], int(sample.times[row]))


class _Amount(NamedTuple):
    """Mass for some rows, or for the rows with each of several values."""

    exact: Any
    sampled: Any
    variance: Any  # of the sampled mass
    certain: Any = 0.0  # the part of it that was seen
    unequal: Any = 1.0  # of the hits; see `inequality`
    seen: Any = None  # the largest hit that was seen, where that is less than a step

    @property
    def mass(self) -> Any:
        return self.exact + self.sampled

    def take(self, order: npt.NDArray[np.intp]) -> _Amount:
        """Return some of the amounts by value."""
        return _Amount(*(column[order] if np.ndim(column) else column for column in self))


def _share(sample: Sample, columns: Columns, inside: BoolArray, confidence: float) -> Estimate:
    confidence = check_confidence(confidence)
    if not len(inside):
        return undefined(sample, confidence, 0.0, 1.0)
    part, rest = (_amount(columns, rows) for rows in (inside, ~inside))
    return _shares(sample, part, rest, confidence, [len(inside)])[0]


def _amount(columns: Columns, rows: BoolArray | None = None) -> _Amount:
    """Return the amount for some rows, or for all."""
    first, tail = slice(0, columns.exact), slice(columns.exact, None)

    def total(column: Float64Array, part: slice) -> Any:
        return (column if rows is None else column * rows[part]).sum()

    return _Amount(
        total(columns.masses[first], first),
        total(columns.masses[tail], tail),
        total(columns.variances[tail], tail),
        total(columns.decayed[tail] * columns.weights[tail], tail),
    )


def _shares(
    sample: Sample, part: _Amount, rest: _Amount, confidence: float, rows: Sequence[int]
) -> list[Estimate]:
    """Return the shares of parts, given the rests."""
    weight = part.mass + rest.mass
    share = part.mass / weight
    if sample.exact:
        return [
            exactly(sample, float(q), confidence, n)
            for q, n in zip(np.atleast_1d(share), rows, strict=True)
        ]
    if is_outweighed(sample, float(np.min(weight))):
        return [
            unbounded(sample, float(q), 0.0, 1.0, confidence, n, "faded")
            for q, n in zip(np.atleast_1d(share), rows, strict=True)
        ]
    interval = share_interval(_gamma(sample, part, confidence), _gamma(sample, rest, confidence))
    spread = ((1.0 - share) ** 2 * part.variance + share**2 * rest.variance) / weight**2
    table = np.atleast_2d(np.transpose([share, interval.lower, interval.upper, spread, weight]))
    return [
        approximate(sample, Interval(*ends), s, sample.step / w, confidence, n)
        for (*ends, s, w), n in zip(table.tolist(), rows, strict=True)
    ]


def _gamma(sample: Sample, amount: _Amount, confidence: float) -> Interval:
    # Not bounded by the seen part: MOVER combines distances, and a hard bound would shorten them.
    return part_interval(
        amount.exact, amount.sampled, amount.variance, sample.step, sample.thinning, 0.0, confidence
    )


# ----------------------------------------------------------------------- quantiles and frequencies


@overload
def quantile(sample: Sample, q: float, *, confidence: float = 0.95) -> Estimate: ...


@overload
def quantile(sample: Sample, q: Sequence[float], *, confidence: float = 0.95) -> list[Estimate]: ...


def quantile(
    sample: Sample, q: float | Sequence[float], *, confidence: float = 0.95
) -> Estimate | list[Estimate]:
    """Return decayed quantiles: the least value with relative rank ``q`` or more.

    The interval contains the values that may be the quantile. A bound is infinite if the quantile
    may lie beyond the smallest or the largest value in the sample.

    Args:
        sample: observations and masses.
        q: one or several ranks in 0..1.
        confidence: confidence of each interval.

    Raises:
        ParameterError: a rank outside 0..1.
    """
    confidence = check_confidence(confidence)
    sample = sample.of_values
    if np.ndim(q) == 0:
        return _quantile(sample, _number("q", q, 0.0, 1.0), confidence)
    return [_quantile(sample, _number("q", item, 0.0, 1.0), confidence) for item in q]  # type: ignore[union-attr]


def _quantile(sample: Sample, q: float, confidence: float) -> Estimate:
    ranking, rows = sample.ranking, len(sample.ranking.group)
    if not rows:
        return undefined(sample, confidence, -math.inf, math.inf)
    below = sample.cumulative  # masses of the values up to each, 0 first
    weight = float(below.mass[-1])
    place = int(np.searchsorted(below.mass[1:], (q - TIE) * weight))
    if q == 1.0:  # the largest, however little it weighs
        place = len(ranking.values) - 1
    value = float(ranking.values[place])
    if sample.exact:
        return exactly(sample, value, confidence, rows)
    if is_outweighed(sample, weight):
        return unbounded(sample, value, -math.inf, math.inf, confidence, rows, "faded")

    def balance(k: npt.NDArray[np.intp], end: Literal["lower", "upper"]) -> Float64Array:
        """Return one end of intervals for ``(1 - q) A - q C``. A is the mass up to the k-th value,
        and C the rest.
        """
        part = below.exact[k], below.sampled[k], below.variance[k]
        rest = (
            below.exact[-1] - below.exact[k],
            below.sampled[-1] - below.sampled[k],
            below.variance[-1] - below.variance[k],
        )
        size = sample.step, sample.thinning, confidence
        a = part_half(end, *part, *size)
        c = part_half("lower" if end == "upper" else "upper", *rest, *size)
        return np.asarray(getattr(rank_balance(a, c, q), end))

    # The rank of the k-th value may reach q from `lowest` on, and surely does from `highest` on.
    slack, many = TIE * weight, len(ranking.values)
    lowest = _first_true(0, place + 1, lambda k: balance(k, "upper") >= -slack)
    highest = _first_true(place + 1, many + 1, lambda k: balance(k, "lower") >= -slack)
    lower = float(ranking.values[lowest - 1]) if lowest > 0 else -math.inf
    upper = float(ranking.values[highest - 1]) if highest <= len(ranking.values) else math.inf
    z = ndtri(0.5 + 0.5 * confidence)
    stderr = (upper - lower) / (2.0 * z)  # of a normal interval with this width
    return Estimate(
        value, lower, upper, stderr, confidence, False, rows, sample.collision_bias, sample.caveats
    )


def _first_true(start: int, stop: int, holds: Callable[[npt.NDArray[np.intp]], BoolArray]) -> int:
    """Return the first of start..stop - 1 from which a monotone condition holds, else stop."""
    while start < stop:
        probes = np.unique(np.linspace(start, stop - 1, _PROBES).astype(np.intp))
        held = np.flatnonzero(holds(probes))
        if not len(held):
            return stop
        first = int(held[0])
        stop = int(probes[first])
        start = int(probes[first - 1]) + 1 if first else stop
    return stop


def heavy_hitters(sample: Sample, phi: float, *, confidence: float = 0.95) -> list[HeavyHitter]:
    """Return values with more than the share ``phi`` of the decayed weight, heaviest first.

    Args:
        sample: observations and masses.
        phi: a share, at least 0 and below 1.
        confidence: confidence of each frequency interval.

    Raises:
        ParameterError: a share outside that range.
    """
    confidence = check_confidence(confidence)
    phi = _number("phi", phi, 0.0, 1.0)
    sample = sample.of_values
    ranking = sample.ranking
    mass = ranking.exact + ranking.sampled
    found = np.flatnonzero(mass > (phi + TIE) * np.sum(mass))
    found = found[np.argsort(-mass[found], kind="stable")]
    if not len(found):
        return []
    whole = (ranking.exact, ranking.sampled, ranking.variance)
    part = _Amount(*(column[found] for column in whole))
    rest = _Amount(*(np.sum(column) - column[found] for column in whole))
    rows = [len(ranking.group)] * len(found)
    frequencies = _shares(sample, part, rest, confidence, rows)
    return [
        HeavyHitter(value, frequency)
        for value, frequency in zip(ranking.values[found].tolist(), frequencies, strict=True)
    ]


def group_by(sample: Sample, *, limit: int | None = None, confidence: float = 0.95) -> list[Group]:
    """Return the decayed weight sum and decayed count for each distinct value, heaviest first.

    Args:
        sample: observations and masses. ``len(sample.ranking.values)`` is the number of values.
        limit: maximum number of values to return, heaviest first.
        confidence: confidence of each interval.
    """
    confidence = check_confidence(confidence)
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise ParameterError(f"limit is {limit!r}; expected an integer >= 0")
    sample = sample.of_values
    ranking, columns = sample.ranking, sample.valued[1]
    size, group, exact = len(ranking.values), ranking.group, columns.exact
    tail = slice(exact, None)

    def by_value(column: Float64Array, rows: slice = tail) -> Float64Array:
        return masses_by(group[rows], column[rows], size)

    sums = _Amount(
        ranking.exact,
        ranking.sampled,
        ranking.variance,
        by_value(columns.decayed * columns.weights),
    )
    order = np.argsort(-sums.mass, kind="stable")[:limit]
    rows = np.bincount(group, minlength=size)[order].tolist()
    of_sum = _positive(sample, sums.take(order), np.full(len(order), sample.step), confidence, rows)
    if sample.per_observation is not None:
        sample, columns = sample.counted, columns.counted
    x = 1.0 / columns.weights
    largest, lightest = np.zeros(size), np.zeros(size)
    np.maximum.at(largest, group[tail], (columns.jumps * x)[tail])
    np.maximum.at(lightest, group, x)
    larger = as_shown(sample, columns)
    variances = columns.variances * x * x
    sampled, spread = by_value(columns.masses * x), by_value(variances)
    thirds = by_value(variances * _skew_lengths(columns, slice(None)) * x)
    counts = _Amount(
        by_value(columns.masses * x, slice(0, exact)),
        sampled,
        larger * spread,
        by_value(columns.decayed),
        seen=largest.copy(),
    )
    # As in signed_sum: the largest hit seen, or one of mean x in the band whose hits weigh most.
    unequal = has_unequal_weights(sample, columns, np.ones(len(x)))
    seen = counts.sampled > 0.0
    average = counts.sampled / np.where(seen, by_value(columns.masses), 1.0)
    largest = np.where(seen, np.maximum(largest, sample.step * average), sample.step * lightest)
    if unequal:
        largest = np.maximum(largest, sample.step)
    missing = np.where(largest > counts.seen, largest, 0.0)
    counts = counts._replace(unequal=inequality(sampled, spread, thirds, missing))
    light = may_miss_light(sample, sample.step, largest, counts.variance) | unequal
    of_count = _positive(
        sample, counts.take(order), largest[order], confidence, rows,
        [("unequal-weights",) if each else () for each in light[order].tolist()],
    )  # fmt: skip
    values = ranking.values[order].tolist()
    return [Group(*fields) for fields in zip(values, of_sum, of_count, strict=True)]


def _positive(
    sample: Sample, amount: _Amount, step: Float64Array, confidence: float, rows: Sequence[int],
    caveats: Sequence[tuple[str, ...]] | None = None,
) -> list[Estimate]:  # fmt: skip
    """Return estimates for sums with non-negative terms, one for each value."""
    if sample.exact:
        pairs = zip(np.atleast_1d(amount.mass).tolist(), rows, strict=True)
        found = [exactly(sample, value, confidence, n) for value, n in pairs]
        return [each.over(sample.magnitude) for each in found]
    interval = part_interval(
        amount.exact, amount.sampled, amount.variance, step, sample.thinning, amount.certain,
        confidence, unequal=amount.unequal, seen=amount.seen,
    )  # fmt: skip
    columns = (np.atleast_1d(c).tolist() for c in (*interval, amount.variance, step))
    return [
        approximate(sample, Interval(value, lower, upper), spread, k, confidence, n, named).over(
            sample.magnitude
        )
        for value, lower, upper, spread, k, n, named in zip(
            *columns, rows, caveats or [()] * len(rows), strict=True
        )
    ]


# ------------------------------------------------------------------------------------------- common


def approximate(
    sample: Sample, interval: Interval, spread: float, step: float, confidence: float, rows: int,
    caveats: tuple[str, ...] = (),
) -> Estimate:  # fmt: skip
    """Return a sampled estimate. Its variance is at least the variance of the unseen half hit."""
    stderr = math.sqrt(max(spread, 0.5 * sample.thinning * step * step))
    value, lower, upper = (float(end) for end in interval)
    if not math.isfinite(stderr):  # values so large that their squares overflow
        lower, upper = -math.inf, math.inf
    return Estimate(
        value, lower, upper, stderr, confidence, False, rows, sample.collision_bias,
        caveats + sample.caveats,
    )  # fmt: skip


def exactly(sample: Sample, value: float, confidence: float, rows: int) -> Estimate:
    return Estimate(
        value, value, value, 0.0, confidence, True, rows, sample.collision_bias, sample.caveats
    )


def is_outweighed(sample: Sample, weight: float) -> bool:
    """Return whether one more hit may outweigh all stored rows so much that ratios have no meaning.
    This happens if the stored rows are many half-lives older than the rows that may be missing.
    """
    return sample.step * OUTWEIGHED > weight


def unbounded(
    sample: Sample, value: float, lower: float, upper: float, confidence: float, rows: int,
    caveat: str,
) -> Estimate:  # fmt: skip
    """Return a ratio for which only its range is known."""
    stderr = 0.5 * (upper - lower)
    return Estimate(
        value,
        lower,
        upper,
        stderr,
        confidence,
        False,
        rows,
        sample.collision_bias,
        (caveat, *sample.caveats),
    )


def undefined(sample: Sample, confidence: float, least: float, most: float) -> Estimate:
    """Return a ratio to nothing: undefined, or not seen."""
    return Estimate(
        math.nan, least, most, math.inf, confidence, sample.exact, 0, sample.collision_bias,
        sample.caveats,
    )  # fmt: skip


def _number(name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    if isinstance(value, (np.integer, np.floating)):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise ParameterError(f"{name} is {value!r}; expected a number")
    if not least <= value <= most:
        raise ParameterError(f"{name} is {value!r}; expected {least:g} to {most:g}")
    return value


def _read_only(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = column.view()
    view.setflags(write=False)
    return view
