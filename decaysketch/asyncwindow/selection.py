"""Quantiles of a sample with equally weighted elements, by selection instead of sorting.

MedianQuery reads one level, at which every element represents ``2^i``. Then a quantile's rank
interval (:func:`decaysketch.query.aggregates.quantile`: the values that may have the requested
rank) depends on counts alone, and the three order statistics it needs are selected.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from decaysketch.core.observations import decode_values
from decaysketch.core.special import ndtri
from decaysketch.query.estimate import Estimate, Interval, first_true, part_interval, rank_balance

__all__ = ["quantiles"]

Int64Array = npt.NDArray[np.int64]

_TIE = 1e-12  # ranks this close are one rank: as in queries of samples with masses


def quantiles(
    value_keys: Int64Array, value_type: str, level: int, q: list[float], confidence: float
) -> list[Estimate]:
    """Return a window's quantiles from all its elements that reach a level.

    Args:
        value_keys: int64[n], in any order; see :mod:`decaysketch.core.observations`.
        value_type: the type that the keys represent.
        level: 0 if these are all elements.
        q: relative ranks, 0..1.
        confidence: of each interval.

    Returns: The result that :func:`decaysketch.query.aggregates.quantile` gives for the
        single-level sample. O(n) for each.
    """
    n = len(value_keys)
    if not n:
        nothing = Estimate(math.nan, -math.inf, math.inf, math.inf, confidence, not level, 0, 0.0)
        return [nothing] * len(q)
    ranks = [_ranks(n, level, each, confidence) for each in q]
    inside = sorted({k - 1 for triple in ranks for k in triple if 1 <= k <= n})
    # One by one: numpy selects a single rank with vector instructions, several at once without.
    keys = [np.partition(value_keys, place)[place] for place in inside]
    chosen, _ = decode_values(np.array(keys, dtype=np.int64), value_type)
    values = {0: -math.inf, n + 1: math.inf}
    values |= {k + 1: float(value) for k, value in zip(inside, chosen, strict=True)}
    z = ndtri(0.5 + 0.5 * confidence)
    answers = []
    for low, place, high in ranks:
        value, lower, upper = values[place], values[low], values[high]
        stderr = (upper - lower) / (2.0 * z) if level else 0.0
        answers.append(Estimate(value, lower, upper, stderr, confidence, not level, n, 0.0))
    return answers


def _ranks(n: int, level: int, q: float, confidence: float) -> tuple[int, int, int]:
    """Ranks, from 1, for the lower bound, the quantile and the upper bound. 0 and n + 1 are
    beyond.
    """
    place = min(n, max(1, math.ceil((q - _TIE) * n)))
    if level == 0:
        return place, place, place
    p = 0.5**level

    def amount(count: int) -> Interval:
        """Convert to units of one sample element."""
        return part_interval(0.0, count, count * (1.0 - p), 1.0, 1.0 - 0.5 * p, 0.0, confidence)

    def balance(count: int) -> Interval:
        return rank_balance(amount(count), amount(n - count), q)

    slack = _TIE * n
    low = first_true(0, place, lambda k: bool(balance(k).upper >= -slack))
    high = first_true(place, n + 1, lambda k: bool(balance(k).lower >= -slack))
    return low, place, high
