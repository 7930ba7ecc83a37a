"""The weight estimate that hits give, and its exact variance under the hash in force.

Let RS be how many integers of an observation with weight ``w`` level ``i`` selects. RS counts the
terms of an arithmetic progression, ``(u + j a) mod p`` for ``0 <= j < w``, that fall below
``L = floor(p / 2^i)``. Over the start ``u``, which is uniform, its mean is ``w p_i``. Its variance
depends on the multiplier: most progressions are spread more evenly than coin tosses, some come in
clumps. Two terms ``d`` apart are both selected with probability ``max(0, L - |x_d|) / p``, where
``x_d`` is ``d a mod p`` taken in ``(-p/2, p/2)``, so

    Var RS = w p_i + 2 sum_{1 <= d < w, |x_d| < L} (w - d) (L - |x_d|) / p - (w p_i)^2 .

The few ``d`` that count, the *close returns*, are listed once for a hash function and level. By the
three-gap theorem one follows the other after ``q1``, ``q2`` or ``q1 + q2`` steps, so the list takes
time linear in its length, about ``2 w p_i``.

This list may be long: if ``w p_i`` is above ``_LONGEST``, or the progression is very clumped. Then
few or no progressions miss. A hit alone gives nearly all information, because the weight is stored
with the row. The three gaps between selected terms give the exact miss probability,

    1 - pi = sum over the gaps of (how often) max(0, gap - w) / p .

So a seen observation counts ``w / pi`` (Horvitz and Thompson 1952), with variance
``w^2 (1 - pi) / pi``. That is ``E[RS / p_i | RS > 0]``, as unbiased as ``RS / p_i`` and with less
variance (Rao and Blackwell). From the longest gap on it is the weight itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.params import SketchParams

__all__ = ["close_returns", "hit_spread", "miss_probability", "weighed"]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

_LONGEST = 64  # largest expected number of hits, w p, for which close returns are listed
_MOST_RETURNS = 4096
_TABLE = 4096  # weights up to this are looked up instead of searched


class _Returns(NamedTuple):
    """Close returns at one level, ready for :func:`_variance`."""

    distances: Int64Array  # d, rising
    overlap_sums: Float64Array  # running sums of (L - |x_d|) / p, from 0
    moment_sums: Float64Array  # running sums of d (L - |x_d|) / p, from 0
    reach: int  # the list is complete for weights up to this
    table: Float64Array  # variance by weight, for weights up to min(reach, _TABLE)


def weighed(
    params: SketchParams, level: int, weights: Int64Array, hits: Int64Array, *, copy: int = 0
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return unbiased weight estimates for observations with a hit at a level.

    Args:
        params: fixes the hash.
        level: the level, 1..M.
        weights: int64[n].
        hits: int64[n], RangeSample at that level, at least 1.
        copy: number of the hash function.

    Returns: Three float64[n] arrays. First the estimates: ``hits / p``, or ``w / pi`` for heavy
        ones. Then unbiased estimates of their variances, never negative, 0 where no progression of
        that length misses. Then the amount that one more hit would add: ``1 / p``, or variance over
        estimate.
    """
    p = float(params.level_probabilities[level])
    estimates: Float64Array = hits * np.float64(1.0 / p)
    jumps: Float64Array = np.full(len(hits), 1.0 / p)
    heavy = np.flatnonzero(weights > _reach(params, level, copy))
    if not len(heavy):
        return estimates, hit_spread(params, level, weights, hits, copy=copy), jumps
    light = np.ones(len(weights), dtype=np.bool_)
    light[heavy] = False
    spread: Float64Array = np.empty(len(weights))
    spread[light] = hit_spread(params, level, weights[light], hits[light], copy=copy)
    missed = miss_probability(params, level, weights[heavy], copy=copy)
    estimates[heavy] = weights[heavy] / (1.0 - missed)
    jumps[heavy] = estimates[heavy] * missed
    spread[heavy] = estimates[heavy] * jumps[heavy]
    return estimates, spread, jumps


def miss_probability(
    params: SketchParams, level: int, weights: Int64Array, *, copy: int = 0
) -> Float64Array:
    """Return the probability that a level selects no integer of an observation. O(1) each."""
    gaps, shares = _gaps(params.prime, params.multipliers[copy], params.prime >> level)
    missed: Float64Array = np.zeros(len(weights))
    for gap, share in zip(gaps, shares, strict=True):
        missed += share * np.maximum(float(gap) - weights, 0.0)
    return missed


def hit_spread(
    params: SketchParams, level: int, weights: Int64Array, hits: Int64Array, *, copy: int = 0
) -> Float64Array:
    """Return unbiased variance estimates for ``hits / p`` at a level, one for each observation.

    An observation without a hit is never seen and counts for nothing. So each seen observation
    counts ``hits / (w p)`` times the exact variance, which is right on average. Where the exact
    variance is unknown, it counts the square of its own error and, for each seen observation, the
    squares for the missed ones: ``(hits - w p)^2 + (w p)^2 (1 - pi) / pi``, over ``p^2``. None is
    negative.

    Args:
        params: fixes the hash.
        level: the level, 1..M.
        weights: int64[n].
        hits: int64[n], RangeSample at that level.
        copy: number of the hash function.

    Returns:
        float64[n]. O(1) each for weights up to some thousands, O(log(w p)) above.
    """
    p = float(params.level_probabilities[level])
    known = _returns(params.prime, params.multipliers[copy], level, params.max_weight)
    heaviest = int(weights.max(initial=1))
    if heaviest < len(known.table):
        return known.table[weights] * hits
    expected = weights * p
    spread = hits * _variance(known, weights, expected) / (expected * p * p)
    if heaviest > known.reach:
        heavy = weights > known.reach
        missed = miss_probability(params, level, weights[heavy], copy=copy)
        hits, expected = hits[heavy], expected[heavy]
        squares = (hits - expected) ** 2 + expected**2 * missed / (1.0 - missed)
        spread[heavy] = np.where(hits > 0, squares / (p * p), 0.0)
    return spread


def _reach(params: SketchParams, level: int, copy: int) -> int:
    """Return the largest weight whose close returns are listed."""
    return _returns(params.prime, params.multipliers[copy], level, params.max_weight).reach


def _variance(
    known: _Returns, weights: Int64Array, expected: npt.NDArray[np.floating[Any]]
) -> Float64Array:
    """Return Var RS for observations with ``w p`` expected hits."""
    count = np.searchsorted(known.distances, weights, side="left")  # of returns with d < w
    pairs = weights * known.overlap_sums[count] - known.moment_sums[count]
    return np.maximum(expected + 2.0 * pairs - expected * expected, 0.0)


@lru_cache(maxsize=512)
def _returns(prime: int, multiplier: int, level: int, max_weight: int) -> _Returns:
    limit = prime >> level  # L
    p = limit / prime
    reach = min(max_weight, int(_LONGEST / p)) if limit else 0
    distances, gaps = close_returns(prime, multiplier, limit, reach - 1, _MOST_RETURNS)
    if len(distances) == _MOST_RETURNS:
        reach = distances[-1]
    overlap = np.array([(limit - gap) / prime for gap in gaps], dtype=np.float64)
    column = np.array(distances, dtype=np.int64)
    known = _Returns(
        distances=column,
        overlap_sums=np.concatenate([[0.0], np.cumsum(overlap)]),
        moment_sums=np.concatenate([[0.0], np.cumsum(overlap * column)]),
        reach=reach,
        table=np.empty(0),
    )
    weights = np.arange(1, min(reach, _TABLE) + 1)
    expected = weights * p
    by_weight = _variance(known, weights, expected) / (expected * p * p)
    return known._replace(table=np.concatenate([[0.0], by_weight]))


def close_returns(
    prime: int, multiplier: int, limit: int, longest: int, most: int
) -> tuple[list[int], list[int]]:
    """Return every ``1 <= d <= longest`` with ``|x_d| < limit``, and these ``|x_d|``.

    Args:
        prime: p.
        multiplier: a, ``1 <= a < p``.
        limit: L, at most ``p / 2``.
        longest: the largest wanted d, below p.
        most: stop after this number of returns.
    """
    distances: list[int] = []
    gaps: list[int] = []
    if limit <= 1:  # x_d = 0 needs d to be a multiple of p
        return distances, gaps
    up, q_up, down, q_down = _short_steps(prime, multiplier, 2 * limit - 1, longest)
    d = x = 0
    while len(distances) < most:
        can_rise, can_fall = x + up < limit, x - down > -limit
        if can_rise and (not can_fall or q_up < q_down):
            d, x = d + q_up, x + up
        elif can_fall:
            d, x = d + q_down, x - down
        else:
            d, x = d + q_up + q_down, x + up - down
        if d > longest:
            break
        distances.append(d)
        gaps.append(abs(x))
    return distances, gaps


def _short_steps(prime: int, multiplier: int, arc: int, longest: int) -> tuple[int, int, int, int]:
    """Return the shortest steps up and down, ``q a = up`` and ``q a = -down`` modulo p, that are
    smaller than an arc: one-sided best approximations, by Euclid's algorithm.

    Returns:
        up, its q, down, its q. A step with more than ``longest`` terms need not be smaller.
    """
    up, q_up, down, q_down = multiplier, 1, prime - multiplier, 1
    while (up >= arc or down >= arc) and min(q_up, q_down) <= longest:
        if up > down:
            # Steps up shrink by repeated steps down, but no further than needed.
            times = max(1, min((up - 1) // down, -(-(up - arc + 1) // down)))
            up, q_up = up - times * down, q_up + times * q_down
        else:
            times = max(1, min((down - 1) // up, -(-(down - arc + 1) // up)))
            down, q_down = down - times * up, q_down + times * q_up
    return up, q_up, down, q_down


@lru_cache(maxsize=512)
def _gaps(prime: int, multiplier: int, limit: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the three gaps between selected terms in a progression, and for each gap the share of
    all p terms that precede it.
    """
    if limit <= 1:  # a single term of p is selected
        return (prime,), (limit / prime,)
    # From x in [0, L) the next selected is up where there is room, else down, else both.
    up, q_up, down, q_down = _short_steps(prime, multiplier, limit, prime)
    often = (limit - up, limit - down, up + down - limit)
    return (q_up, q_down, q_up + q_down), tuple(count / prime for count in often)
