"""Estimates from sampled entities, each with all its rows: totals, ratios, quantiles.

A *piece* lies between a row and the next row in its series. It is read in a *band*, the lowest
level that is complete from its earlier time on, and counts 1 / p for that level. Whether a piece
has band k depends only on the watermarks for the levels 0..k, and ``1[level >= k] / p_k`` is a
martingale in k. The estimate is therefore unbiased for all watermarks that an entity spans
(optional stopping, under an ideal hash). Reading pieces by their later time instead loses the
pieces whose earlier row was discarded: 13 to 53 % of a total.

Contributions may have a heavy tail, such as counters with Pareto rates. A sample of n entities then
rarely contains one of the largest, and the estimate is usually too low. Its variance is too low as
well, since it lacks the same entities. So the size of a hit that may be missing is extrapolated
from the largest ones seen (:func:`tail_factor`).

An entity is a cluster. With ``Y_b`` its sum over the pieces in band b, its estimate is the sum over
``Y_b / p_b``. The product of two indicators for one entity has as its mean the coarser band's p,
so

    V = sum over c of (Y_c / p_c) [(1 / p_c - 1) Y_c + 2 sum over b < c of (1 / p_b - 1) Y_b]

is an unbiased estimate of its variance, and never negative. Entities are independent. Intervals
come from :mod:`decaysketch.query.estimate`, with entities as hits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.query.aggregates import LEAST_REST
from decaysketch.query.estimate import (
    Estimate,
    Interval,
    check_confidence,
    contrast,
    inequality,
    part_interval,
    share_interval,
    wider,
)

__all__ = ["FEW", "Clusters", "Reach", "over_entities", "scaled_down", "tail_factor"]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

FEW = 10
"""Entities below which a result says ``few-series``."""

_LARGEST_SHARE = 0.15  # of the variance, that one entity may make
_FARTHER = 4.0  # distance of an exact piece than of any sampled one
_UNUSUAL = 1.5  # times the largest share among normal values
_LARGER = 2.0  # in the mean square: exact pieces than sampled ones
_ROUNDING = 1e-12
_FEWEST_OF_TAIL = 3  # sizes from which a tail is read
_SHARE = (0.0, 1.0)
_FEWEST = 2  # complete entities, below which nothing bounds those that were not seen


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a decay looks back, and how complete the sample is there.

    Attributes:
        exact: nothing that the decay gives weight to was discarded.
        probability: sampling probability of an entity where the decay has all but 1 % of its
            weight.
        complete: number of entities that are retained completely from there on.
        lost: share of the entities that two colliding ids may lose.
    """

    exact: bool
    probability: float
    complete: int
    lost: float = 0.0


class Clusters:
    """Pieces by entity and band.

    Args:
        entities: int64[n], entity number for each piece.
        bands: int64[n].
        probabilities: float64[n], the entity's sampling probability in the band, in (0, 1].
        reach: how far the decay looks back.
    """

    def __init__(
        self,
        entities: Int64Array,
        bands: Int64Array,
        probabilities: Float64Array,
        reach: Reach,
    ) -> None:
        self.reach = reach
        self.probabilities = probabilities
        cells, firsts, self._cell = np.unique(
            entities * 64 + bands, return_index=True, return_inverse=True
        )
        self._p = probabilities[firsts]
        self._inverse = 1.0 / self._p
        entity = cells >> 6
        self._begins = np.flatnonzero(np.diff(entity, prepend=-1))
        self._sizes = np.diff(self._begins, append=len(cells))
        self._bands = max(len(np.unique(cells & 63)), 1)
        least = float(probabilities.min(initial=1.0))
        self._coarsest = 1.0 if reach.exact else min(least, reach.probability, 0.5)

    def __len__(self) -> int:
        """Number of entities with pieces."""
        return len(self._begins)

    def _by_cell(self, amounts: Float64Array) -> Float64Array:
        return np.bincount(self._cell, amounts, len(self._p)).astype(np.float64)

    def _by_entity(self, cells: Float64Array) -> Float64Array:
        if not len(cells):
            return cells
        return np.add.reduceat(cells, self._begins)

    @cached_property
    def _sampled(self) -> BoolArray:
        return self._p < 1.0

    def _spread(self, cells: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Return the sampled part of each entity's estimate, and its estimated variance."""
        scaled = cells * self._inverse
        estimates = self._by_entity(np.where(self._sampled, scaled, 0.0))
        heavier = (self._inverse - 1.0) * cells
        before = np.cumsum(heavier) - heavier
        if len(cells):
            before -= np.repeat(before[self._begins], self._sizes)
        variances = self._by_entity(scaled * (heavier + 2.0 * before))
        return estimates, np.maximum(variances, 0.0)

    # ---------------------------------------------------------------------------------- estimates

    def total(
        self, amounts: Float64Array, *, confidence: float, unit: float = math.inf
    ) -> Estimate:
        """Return the amount sum over all pieces.

        An unseen entity may add the mean amount, or more by the tail of the amounts seen. If exact
        pieces show much larger amounts than sampled ones, it may have these.

        Args:
            amounts: float64[n], none negative.
            confidence: confidence of the interval.
            unit: the largest piece amount, where none was seen. Infinite: nothing bounds it.
        """
        confidence = check_confidence(confidence)
        cells = self._by_cell(amounts)
        exact = float(cells[~self._sampled].sum())
        estimates, variances = self._spread(cells)
        seen = self._by_entity(cells)
        carrying = int(np.count_nonzero(seen > 0.0))
        certain = float(cells[self._sampled].sum())
        if self.reach.exact:
            value = exact + float(estimates.sum())
            return self._said(Interval(value, value, value), variances, carrying, confidence)
        typical = float(seen.sum()) / (carrying * self._bands) if carrying else unit
        # A piece that counts at most one unit cannot be larger than others, only more recent.
        shown = self._shown(amounts) if math.isinf(unit) else 1.0
        largest = float(estimates.max(initial=0.0))
        missing = max(
            shown * typical / self._coarsest,
            largest * tail_factor(estimates, self._coarsest, confidence),
        )
        if self.reach.complete < _FEWEST or math.isinf(missing):
            value = exact + float(estimates.sum())
            ends = Interval(value, exact + certain, math.inf)
            return self._said(ends, variances, carrying, confidence, largest)
        step, skew = max(largest, missing), float((variances * estimates).sum())
        unequal = inequality(
            estimates.sum(), variances.sum(), skew, missing if missing > largest else 0.0
        )
        found = part_interval(
            exact, estimates.sum(), variances.sum(), step, 1.0 - self._coarsest / 2.0, certain,
            confidence, unequal=unequal, seen=largest,
        )  # fmt: skip
        return self._said(found, variances, carrying, confidence, step, few=shown > 1.0)

    def _shown(self, amounts: Float64Array) -> float:
        """Return how much larger than usual a missing piece may be. It is above 1 if exact pieces
        show much larger amounts than sampled ones, by their mean square. Pieces without weight
        show nothing.
        """
        chosen = self.probabilities < 1.0
        near, far = amounts[~chosen & (amounts > 0.0)], amounts[chosen & (amounts > 0.0)]
        if not len(near) or not len(far) or not far.any():
            return 1.0
        if float(near @ near) / len(near) <= _LARGER * float(far @ far) / len(far):
            return 1.0
        return max(1.0, float(near.max()) / float(far.mean()))

    def ratio(
        self,
        amounts: Float64Array,
        masses: Float64Array,
        *,
        confidence: float,
        bounds: tuple[float, float] = (-math.inf, math.inf),
    ) -> Estimate:
        """Return the amount sum over the mass sum, float64[n], none negative.

        Args:
            amounts, masses: one of each per piece.
            confidence: confidence of the interval.
            bounds: bounds of the ratio, for any data.
        """
        confidence = check_confidence(confidence)
        above, below = self._by_cell(amounts), self._by_cell(masses)
        total = float((below * self._inverse).sum())
        carrying = int(np.count_nonzero(self._by_entity(below) > 0.0))
        if not total > 0.0:
            ends = (math.nan, math.nan) if self.reach.exact else bounds
            return self._said(Interval(math.nan, *ends), np.zeros(0), 0, confidence)
        value = float((above * self._inverse).sum()) / total
        if self.reach.exact:
            nothing = np.zeros(0)
            return self._said(Interval(value, value, value), nothing, carrying, confidence)
        # Residuals of the ratio: entities above it against those below.
        distances = above - value * below
        if not np.any(np.abs(distances) > _ROUNDING * np.abs(above)):
            return self._level(value, below, bounds, carrying, confidence)
        residuals, variances = self._spread(distances)
        sampled = int(np.count_nonzero(self._by_entity(np.where(self._sampled, below, 0.0))))
        variances = variances * (sampled / max(sampled - 1, 1))
        both = self._signed(residuals, variances, confidence)
        ends = value + (both.lower - both.value) / total, value + (both.upper - both.value) / total
        found = Interval(value, max(ends[0], bounds[0]), min(ends[1], bounds[1]))
        if self.reach.complete < _FEWEST:
            found = Interval(value, *bounds)
        return self._said(found, variances / total**2, carrying, confidence)

    def _level(
        self, value: float, masses: Float64Array, bounds: tuple[float, float], carrying: int,
        confidence: float,
    ) -> Estimate:  # fmt: skip
        """Return a ratio that all entities share. An unseen entity may have any other one: a share
        is off by that entity's mass, and nothing bounds another ratio.
        """
        found = Interval(value, *bounds)
        if bounds == _SHARE and value in bounds and self.reach.complete >= _FEWEST:
            estimates, variances = self._spread(masses)
            exact = float(masses[~self._sampled].sum())
            typical = float(masses.sum()) / (max(carrying, 1) * self._bands)
            step = max(float(estimates.max(initial=0.0)), typical / self._coarsest)
            all_of_it, nothing = (
                part_interval(
                    known, sampled, spread, step, 1.0 - self._coarsest / 2.0, 0.0, confidence
                )
                for known, sampled, spread in (
                    (exact, estimates.sum(), variances.sum()), (0.0, 0.0, 0.0)
                )
            )  # fmt: skip
            sides = (all_of_it, nothing) if value == 1.0 else (nothing, all_of_it)
            found = share_interval(*sides)
            return self._said(found, np.zeros(0), carrying, confidence, step / float(masses.sum()))
        estimate = self._said(found, np.zeros(0), carrying, confidence)
        return replace(estimate, caveats=(*estimate.caveats, "equal-values"))

    def smooth(
        self,
        value: float,
        influence: Float64Array,
        leverage: Float64Array,
        *,
        confidence: float,
        bounds: tuple[float, float] = (-math.inf, math.inf),
        few: bool = False,
    ) -> Estimate:
        """Return the estimate for a smooth function over sums, from its linearisation.

        An entity pulls the result towards itself. So its influence is over ``1 - leverage``, as if
        it were not in the sample, and bounds are wider by Student's t over the normal quantile (as
        in :mod:`decaysketch.query.relations`, with entities as rows).

        If all entities have the same result, nothing bounds the others.

        Args:
            value: the result.
            influence: float64[n], the shift in the result by a piece.
            leverage: float64[n], the share of a piece in its own fit, before it is divided by its
                probability.
            confidence: confidence of the interval.
            bounds: bounds of the result, for any data.
            few: whether a few entities decide a sum that the function is of.
        """
        own = self._by_entity(self._by_cell(leverage) * self._inverse)
        carrying = int(np.count_nonzero(own > 0.0))
        rest = np.repeat(np.maximum(1.0 - own, LEAST_REST), self._sizes)
        cells = self._by_cell(influence)
        if not np.any(np.abs(cells) > _ROUNDING * self._by_cell(np.abs(influence))):
            return self.plain(value, leverage, bounds, confidence, "equal-values")
        residuals, variances = self._spread(cells / rest)
        around = self._signed(residuals, variances, confidence)
        more = wider(variances, confidence)
        found = Interval(
            value,
            max(value - more * float(around.value - around.lower), bounds[0]),
            min(value + more * float(around.upper - around.value), bounds[1]),
        )
        if self.reach.complete < _FEWEST:
            found = Interval(value, *bounds)
        return self._said(found, variances, carrying, confidence, few=few)

    def decided_by_few(self, distances: Float64Array, masses: Float64Array) -> bool:
        """Return whether a few entities decide a mean square, or an exact piece shows a much larger
        distance than any sampled one.

        Args:
            distances: float64[n], from a mean.
            masses: float64[n], before they are divided by the probability.
        """
        squares = distances * distances
        shares = masses / self.probabilities
        mean = float((shares * squares).sum()) / float(shares.sum())
        variances = self._spread(self._by_cell(masses * (squares - mean)))[1]
        of_masses = self._spread(self._by_cell(masses))[1]
        n = max(float(of_masses.sum()) ** 2 / max(float(of_masses @ of_masses), 1e-300), 2.0)
        # The largest of n normal squares is about 2 log n, and they have the variance 2.
        usual = (2.0 * math.log(n) - 1.0) ** 2 / (2.0 * n)
        most = min(max(_LARGEST_SHARE, _UNUSUAL * usual), 1.0)
        if float(variances.max(initial=0.0)) >= most * float(variances.sum()) > 0.0:
            return True
        chosen, sizes = self.probabilities < 1.0, np.abs(distances)
        near, far = (float(sizes[part].max(initial=0.0)) for part in (~chosen, chosen))
        return near > _FARTHER * far

    def covariance(self, one: Float64Array, other: Float64Array) -> float:
        """Return the estimated covariance of two sums, from the variances of their sum and their
        difference.

        Args:
            one, other: float64[n] each, the amounts per piece.
        """
        cells = self._by_cell(one), self._by_cell(other)
        both, apart = (self._spread(cells[0] + sign * cells[1])[1] for sign in (1.0, -1.0))
        return float(both.sum() - apart.sum()) / 4.0

    def plain(
        self, value: float, masses: Float64Array, bounds: tuple[float, float], confidence: float,
        caveat: str | None = None,
    ) -> Estimate:  # fmt: skip
        """Return a result with certain bounds. If all pieces are exact, the bounds are the result.

        Args:
            value: the result, NaN if there is none.
            masses: float64[n] per piece.
            bounds: bounds for any data.
            confidence: as requested.
            caveat: why nothing else bounds the result.
        """
        carrying = int(np.count_nonzero(self._by_entity(self._by_cell(masses)) > 0.0))
        ends = (value, value) if self.reach.exact else bounds
        found = self._said(Interval(value, *ends), np.zeros(0), carrying, confidence)
        if caveat is None or self.reach.exact:
            return found
        return replace(found, caveats=(*found.caveats, caveat))

    def _signed(
        self, residuals: Float64Array, variances: Float64Array, confidence: float
    ) -> Interval:
        """Return the interval for a sum with both signs: entities above 0 against those below."""
        return contrast(
            *(self._part(sign * residuals, variances, confidence) for sign in (1.0, -1.0))
        )

    def _part(
        self, estimates: Float64Array, variances: Float64Array, confidence: float
    ) -> Interval:
        """Return the interval for the sum over the estimates above 0."""
        chosen = estimates > 0.0
        sizes, spread = estimates[chosen], variances[chosen]
        return part_interval(
            0.0, sizes.sum(), spread.sum(), sizes.max(initial=0.0), 1.0 - self._coarsest / 2.0,
            0.0, confidence, skew=float((spread * sizes).sum()),
        )  # fmt: skip

    def quantile(
        self, values: Float64Array, masses: Float64Array, q: float, *, confidence: float
    ) -> Estimate:
        """Return the least value for which the mass share at or below it is q or more.

        The interval is Woodruff's (1952): the values at the bounds of the share's interval at the
        estimate, with the variance between entities.
        """
        order = np.argsort(values, kind="stable")
        ordered = values[order]
        ranks = np.cumsum((masses / self.probabilities)[order])
        if not len(ordered) or not ranks[-1] > 0.0:
            return self.ratio(masses, masses, confidence=confidence)

        def at(share: float) -> float:
            place = int(np.searchsorted(ranks, share * ranks[-1]))
            return float(ordered[min(place, len(ordered) - 1)])

        value = at(q)
        below = np.where(values <= value, masses, 0.0)
        share = self.ratio(below, masses, confidence=confidence, bounds=_SHARE)
        if share.exact:
            return _replaced(share, Interval(value, value, value), share.stderr)
        low, high = q - (share.value - share.lower), q + (share.upper - share.value)
        ends = (at(low) if low > 0.0 else -math.inf, at(high) if high < 1.0 else math.inf)
        return _replaced(share, Interval(value, *ends), (ends[1] - ends[0]) / 4.0)

    def _said(
        self,
        found: Interval,
        variances: Float64Array,
        carrying: int,
        confidence: float,
        step: float = 0.0,
        few: bool = False,
    ) -> Estimate:
        variance = float(variances.sum())
        few = few or (
            not self.reach.exact
            and (
                min(carrying, self.reach.complete) < FEW
                or float(variances.max(initial=0.0)) > _LARGEST_SHARE * variance > 0.0
            )
        )
        value, lower, upper = (float(each) for each in found)
        return Estimate(
            value, lower, upper, math.sqrt(variance) if variance > 0.0 else step, confidence,
            self.reach.exact, carrying, self.reach.lost,
            caveats=("few-series",) if few else (),
        )  # fmt: skip


def _replaced(share: Estimate, found: Interval, stderr: float) -> Estimate:
    return Estimate(
        *found, stderr, share.confidence, share.exact, share.rows, share.collision_bias,
        caveats=share.caveats,
    )  # fmt: skip


def scaled_down(values: Float64Array, beyond: int | None = None) -> tuple[Float64Array, int]:
    """Return values over ``2^magnitude``, all below 1, so that no product overflows, and the
    magnitude. Unless a value reaches ``2^beyond``, return them as they are, and 0.
    """
    magnitude = int(np.frexp(np.abs(values).max(initial=0.0))[1])
    if beyond is not None and magnitude <= beyond:
        return values, 0
    return np.ldexp(values, -magnitude), magnitude


def tail_factor(sizes: Float64Array, probability: float, confidence: float) -> float:
    """Return the mean size of larger entities that the sample lacks, over the largest seen.
    O(n log n).

    A sample with probability p whose largest size is m suggests about 1 / p larger entities. If
    sizes above m have a Pareto tail with index a, all of them are below ``m q^(-1/a)`` with the
    confidence, where q is p times half the remaining probability. Their mean up to there is m times
    ``(1 - q^b) / b`` with ``b = 1 - 1/a``. This is near 1 for a light tail, 2.8 for a = 1.5 with p
    = 1/64, and ``log(1 / q)`` for a = 1. The index comes from the largest sqrt(n) sizes (Hill,
    1975). Cowell and Flachaire (2007) show that a mean with a heavy tail has the stated coverage
    only if the tail is extrapolated.

    Args:
        sizes: float64[n], estimates of the entities seen. Those at or below 0 are ignored.
        probability: of an entity in the sample.
        confidence: of the interval.
    """
    seen = np.sort(sizes[sizes > 0.0])[::-1]
    tail = max(math.isqrt(len(seen)), _FEWEST_OF_TAIL)
    if len(seen) <= tail:
        return 1.0
    b = 1.0 - float(np.mean(np.log(seen[:tail] / seen[tail])))
    rare = math.log(probability * 0.5 * (1.0 - confidence))
    return -rare if abs(b) < _ROUNDING else -math.expm1(b * rare) / b


def over_entities(
    values: Float64Array, p: float, q: float, reach: Reach, *, confidence: float
) -> Estimate:
    """Return a quantile over entities that share one sampling probability, one value each.

    The interval has the values for which q may be the share below (by inversion, as for row
    quantiles). With 15 to 40 entities it has the stated coverage, and Woodruff's does not.
    """
    confidence = check_confidence(confidence)
    ordered = np.sort(values)
    n = len(ordered)
    few: tuple[str, ...] = ("few-series",) if not reach.exact and n < FEW else ()
    if not n:
        ends = (math.nan, math.nan) if reach.exact else (-math.inf, math.inf)
        return Estimate(
            math.nan, *ends, 0.0, confidence, reach.exact, 0, reach.lost, caveats=few
        )  # fmt: skip
    value = float(ordered[max(math.ceil(q * n) - 1, 0)])
    if reach.exact:
        return Estimate(value, value, value, 0.0, confidence, True, n, reach.lost)
    below = np.arange(n + 1.0)

    def part(counts: Float64Array) -> Any:
        variance = counts * (1.0 - p) / p**2
        return part_interval(
            np.zeros(n + 1), counts / p, variance, 1.0 / p, 1.0 - p / 2.0, counts, confidence
        )

    shares = share_interval(part(below), part(n - below))
    possible = np.flatnonzero((shares.lower <= q) & (q <= shares.upper))
    first, last = (int(possible[0]), int(possible[-1])) if len(possible) else (int(q * n),) * 2
    lower = float(ordered[first - 1]) if first else -math.inf
    upper = float(ordered[last]) if last < n else math.inf
    return Estimate(
        value, lower, upper, (upper - lower) / 4.0, confidence, False, n, reach.lost, caveats=few
    )  # fmt: skip
