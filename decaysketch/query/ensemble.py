"""One result from several repetitions: sketches for the same stream under independent hash
functions.

*Average*: the repetitions' samples are pooled into one
(:func:`~decaysketch.query.sample.pool`), and the aggregate is read from the pool. It uses all
rows that the repetitions contain. Use it in practice.

*Median*: each repetition answers by itself, and the result is the median. The paper's guarantee is
about this method (Cormode, Tirthapura and Xu, Theorems 3.11 and 3.26). One repetition is off by
more than ``epsilon`` with a chance below 1/3. The median is off only if half the repetitions
are. That chance falls exponentially with their number. The average has no such guarantee.

Interval for the median. For normal results with variance ``s^2`` the median over ``k`` has the
variance ``c_k^2 s^2``. Here ``c_k`` is the standard deviation of the median over ``k`` standard
normals (1, 0.707, 0.670, 0.546, 0.536, ..., about ``sqrt(pi / (2 k))``). So each bound lies at
``c_k`` times its median distance from the repetitions' own results.

For an even number, the median is the mean of the middle two. A distance from a result too
large for a float64 is unknown, and has no bound. If the median is such a result, its bounds are the
medians of the repetitions' bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar, cast

import numpy as np

from decaysketch.core.special import gammaln, log_ndtr
from decaysketch.query import aggregates
from decaysketch.query.estimate import Estimate
from decaysketch.query.sample import Sample

__all__ = [
    "group_by",
    "heavy_hitters",
    "median",
    "median_deviation",
    "median_estimate",
]

A = TypeVar("A")

_NODES = 256  # of the quadrature; its error is below 1e-12
_REACH = 12.0  # standard normals beyond this have a chance below 1e-32


def median(answers: Sequence[A]) -> A:
    """Return the median of the repetitions' results, each an estimate or a list of them."""
    given: Any = answers
    if isinstance(answers[0], Estimate):
        return cast(A, median_estimate(given))
    return cast(A, [median_estimate(each) for each in zip(*given, strict=True)])


def heavy_hitters(
    samples: Sequence[Sample], phi: float, *, confidence: float
) -> list[aggregates.HeavyHitter]:
    """Return the values whose median share of the decayed weight exceeds ``phi``, heaviest first.

    If a repetition has no row with a value, the share there is 0.
    """
    # Where the median share exceeds phi, so does that of some copy.
    candidates = {
        hitter.value
        for sample in samples
        for hitter in aggregates.heavy_hitters(sample, phi, confidence=confidence)
    }
    shares = [
        {
            each.value: each.frequency
            for each in aggregates.heavy_hitters(s, 0.0, confidence=confidence)
        }
        for s in samples
    ]
    absent = [
        aggregates.selectivity(s, lambda v, w: np.zeros(len(v), np.bool_), confidence=confidence)
        for s in samples
    ]
    found = [
        aggregates.HeavyHitter(
            value,
            median_estimate(
                [held.get(value, none) for held, none in zip(shares, absent, strict=True)]
            ),
        )
        for value in sorted(candidates)
    ]
    found = [hitter for hitter in found if hitter.frequency.value > phi]
    return sorted(found, key=lambda hitter: -hitter.frequency.value)


def group_by(samples: Sequence[Sample], *, confidence: float) -> list[aggregates.Group]:
    """Return the median decayed weight sum and count for every value in any repetition, heaviest
    first.

    If a repetition has no row with a value, sum and count there are 0, with the interval for an
    empty sample.
    """
    copies = [
        {group.value: group for group in aggregates.group_by(s, confidence=confidence)}
        for s in samples
    ]
    absent = []
    for sample in samples:
        nothing = _without_rows(sample)
        sum_, count = (
            f(nothing, confidence=confidence) for f in (aggregates.sum, aggregates.count)
        )
        absent.append(aggregates.Group(math.nan, sum_, count))
    groups = []
    for value in sorted(set().union(*copies)):
        each = [held.get(value, none) for held, none in zip(copies, absent, strict=True)]
        groups.append(
            aggregates.Group(
                value,
                median_estimate([group.sum for group in each]),
                median_estimate([group.count for group in each]),
            )
        )
    return sorted(groups, key=lambda group: -group.sum.value)


def _without_rows(sample: Sample) -> Sample:
    """Return the same query to the same bands, without rows."""
    columns = ("weights", "decayed", "masses", "variances", "jumps")
    empty: dict[str, Any] = {name: getattr(sample, name)[:0] for name in columns}
    nothing = sample.observed.take(np.empty(0, np.intp))
    return replace(sample, **empty, observed=nothing, exact_rows=0, known_rows=0, origin=None)


def median_estimate(answers: Sequence[Estimate]) -> Estimate:
    """Return the median of the repetitions' results, with its interval.

    Args:
        answers: for one query, each from its own repetition, at least one. Undefined ones (NaN) are
            skipped.

    Returns: ``value`` the median, the bounds at :func:`median_deviation` times the median distance
        of the results' own bounds, ``stderr`` likewise, and ``rows`` of all repetitions together.
    """
    defined = [answer for answer in answers if not math.isnan(answer.value)]
    if not defined or all(answer.exact for answer in answers):
        return answers[0]
    shrink = median_deviation(len(defined))
    value = _middle([answer.value for answer in defined])
    if math.isfinite(value):
        lower = value - shrink * _middle([_distance(a.value, a.lower) for a in defined])
        upper = value + shrink * _middle([_distance(a.value, a.upper) for a in defined])
    else:
        lower = _middle([answer.lower for answer in defined])
        upper = _middle([answer.upper for answer in defined])
    return Estimate(
        value=value,
        lower=lower,
        upper=upper,
        stderr=shrink * _middle([answer.stderr for answer in defined]),
        confidence=answers[0].confidence,
        exact=False,
        rows=sum(answer.rows for answer in answers),
        collision_bias=max(answer.collision_bias for answer in answers),
        caveats=tuple(sorted({caveat for answer in answers for caveat in answer.caveats})),
        sure_upper=min((a.sure_upper for a in answers if a.sure_upper is not None), default=None),
    )


def _middle(numbers: Sequence[float]) -> float:
    """Return the median. The two middle numbers are halved before addition, so they cannot
    overflow.
    """
    ordered = sorted(numbers)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return low if low == high else 0.5 * low + 0.5 * high


def _distance(value: float, end: float) -> float:
    return abs(end - value) if math.isfinite(value) else math.inf


@lru_cache(maxsize=128)
def median_deviation(copies: int) -> float:
    """``c_k``: standard deviation of the median over ``k`` independent standard normals.

    For ``k = 2 m + 1`` the median has the density ``k! / (m!)^2 Phi(x)^m Phi(-x)^m phi(x)``. For
    ``k = 2 m`` the two in the middle have the joint density ``k! / ((m - 1)!)^2 Phi(x)^(m-1)
    Phi(-y)^(m-1) phi(x) phi(y)`` on ``x < y``, and the median is their mean. The second moments are
    integrated by Gauss-Legendre quadrature.
    """
    m, odd = divmod(copies, 2)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    log_density_at_0 = -0.5 * math.log(2.0 * math.pi)
    if odd:
        x = _REACH * nodes
        log_density: Any = gammaln(copies + 1) - 2.0 * gammaln(m + 1)
        log_density += m * (log_ndtr(x) + log_ndtr(-x)) + log_density_at_0 - 0.5 * x * x
        moment = _REACH * np.sum(weights * x * x * np.exp(log_density))
        return math.sqrt(float(moment))
    centre = (_REACH * nodes)[:, None]  # (x + y) / 2
    half = (0.5 * _REACH * (nodes + 1.0))[None, :]  # (y - x) / 2
    x, y = centre - half, centre + half
    log_density = gammaln(copies + 1) - 2.0 * gammaln(m)
    log_density = log_density + (m - 1) * (log_ndtr(x) + log_ndtr(-y))
    log_density = log_density + 2.0 * log_density_at_0 - 0.5 * (x * x + y * y)
    # dx dy = 2 d(centre) d(half)
    moments = weights[:, None] * weights[None, :] * centre * centre * np.exp(log_density)
    return math.sqrt(float(np.sum(moments)) * _REACH * (0.5 * _REACH) * 2.0)
