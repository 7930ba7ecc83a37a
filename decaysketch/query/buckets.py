"""Results for values that are ranges, such as histogram buckets.

A query reads the middle of each range. It runs twice more, with every range at its lower and at its
upper bound. The interval is the hull of all three. Totals, means, quantiles, ranks and shares
such as ``v > x`` rise or fall with the values. For these the hull contains the result for any
values within the ranges, at the stated confidence. Histogram bins are differences between two
ranks, so their bounds come from cumulative shares. Two moments may err in opposite directions, so a
comparison is wider by the distances on both sides.

Variances, and conditions and functions that rise and fall, may lie outside the hull. No such result
is exact, and each has the caveat ``bucket-values``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from decaysketch.core.ranges import ENDLESS
from decaysketch.errors import ParameterError
from decaysketch.query.aggregates import Bin, Histogram
from decaysketch.query.estimate import Estimate
from decaysketch.query.sample import EndOfRange
from decaysketch.query.shapes import Question

__all__ = ["BUCKET_VALUES", "ENDS", "as_far_apart", "by_group", "reads_ranges", "widened"]

BUCKET_VALUES = "bucket-values"
ENDS: tuple[EndOfRange, EndOfRange] = ("low", "high")

_OF_VALUE = re.compile(r"\bv\b")
_ENDLESS = 1e-20 * ENDLESS  # a result this far comes from an open bucket, as its share


def reads_ranges(question: Question[Any], texts: Sequence[str]) -> bool:
    """Return whether a query reads the values, in a stream that has ranges among them.

    Args:
        question: the query.
        texts: the expressions that modify it.
    """
    by_value = "values" in question.needs or question.name == "selectivity"
    return by_value or any(map(_OF_VALUE.search, texts))


def widened(found: Any, ask: Callable[[EndOfRange], Any]) -> Any:
    """Return a result with bounds for its ranges.

    Args:
        found: the result for middles.
        ask: gives the same query's result with all ranges at one bound.
    """
    try:
        low, high = map(ask, ENDS)
    except ParameterError:  # a function that is not finite at the bounds
        low = high = None
    if isinstance(found, Histogram) and isinstance(low, Histogram):
        return _of_bins(found, low, high)
    return _hull(found, low, high)


def as_far_apart(
    found: Estimate, how: str, first: Sequence[Estimate], second: Sequence[Estimate]
) -> Estimate:
    """Return a comparison with bounds for the ranges on either side.

    Args:
        found: the comparison for middles.
        how: "difference" or "ratio".
        first, second: the results for either side: for middles and both bounds.
    """
    low, value, high = _ends(first)
    other_low, other, other_high = _ends(second)
    if how == "ratio":
        lower = found.lower * _over(low, value) * _over(other, other_high)
        upper = found.upper * _over(high, value) * _over(other, other_low)
    else:
        lower = found.lower - (value - low) - (other_high - other)
        upper = found.upper + (high - value) + (other - other_low)
    if math.isnan(lower) or math.isnan(upper):
        lower, upper = -math.inf, math.inf
    neutral = 1.0 if how == "ratio" else 0.0
    return replace(_marked(found, lower, upper), changed=not lower <= neutral <= upper)


def _ends(found: Sequence[Estimate]) -> tuple[float, float, float]:
    """Return the lowest value, the one for middles, and the highest."""
    values = [each.value for each in found]
    if any(map(math.isnan, values)):
        return -math.inf, values[0], math.inf
    return min(values), values[0], max(values)


def _over(one: float, other: float) -> float:
    return one / other if other else math.nan


def _hull(found: Any, low: Any, high: Any) -> Any:
    if isinstance(found, Estimate):
        if not isinstance(low, Estimate) or not isinstance(high, Estimate):
            return _marked(found, -math.inf, math.inf)
        ends = (found.lower, low.lower, high.lower), (found.upper, low.upper, high.upper)
        if any(math.isnan(end) for end in (*ends[0], *ends[1], low.value, high.value)):
            return _marked(found, -math.inf, math.inf)
        return _marked(found, min(ends[0]), max(ends[1]), max(low.stderr, high.stderr))
    if isinstance(found, list):
        return _hulls(found, low, high)
    if isinstance(found, tuple) and hasattr(found, "_fields"):
        return type(found)(*_hulls(found, low, high))
    if hasattr(found, "__dataclass_fields__"):
        names = found.__dataclass_fields__
        return replace(found, **{name: _marked_alone(getattr(found, name)) for name in names})
    return found


def _hulls(found: Any, low: Any, high: Any) -> list[Any]:
    """Return each part with its hull. If values choose the parts, they have none."""
    same = [isinstance(each, list | tuple) and len(each) == len(found) for each in (low, high)]
    if not all(same) or not all(isinstance(each, Estimate | tuple) for each in found):
        return [_marked_alone(each) for each in found]
    return [_hull(*parts) for parts in zip(found, low, high, strict=True)]


def _marked_alone(found: Any) -> Any:
    if isinstance(found, Estimate):
        return _marked(found, found.lower, found.upper)
    return _short(found) if isinstance(found, float) else _hull(found, None, None)


def _marked(found: Estimate, lower: float, upper: float, stderr: float = 0.0) -> Estimate:
    """Return an estimate that is not exact, with other bounds."""
    caveats = found.caveats
    if BUCKET_VALUES not in caveats:
        caveats = (*caveats, BUCKET_VALUES)
    if abs(stderr) >= _ENDLESS or not math.isfinite(stderr):
        stderr = math.inf
    return replace(
        found,
        value=_short(found.value),
        lower=-math.inf if lower <= -_ENDLESS else min(lower, _short(lower)),
        upper=math.inf if upper >= _ENDLESS else max(upper, _short(upper)),
        stderr=max(found.stderr, stderr),
        exact=False,
        caveats=caveats,
    )


def _short(number: float) -> float:
    """Return a number without the last bit by which it exceeds an open bound."""
    return float(f"{number:.15g}")


def _of_bins(found: Histogram, low: Histogram, high: Histogram) -> Histogram:
    """Return a histogram with bounds from cumulative shares.

    Values at their lower bounds rank lowest, so the share up to an edge is largest.
    """

    def shares(of: Histogram) -> list[Estimate]:
        return [of.below, *(each.share for each in of.bins), of.above]

    middle = shares(found)
    most, least = (np.cumsum([0.0, *(s.value for s in shares(of))]) for of in (low, high))
    parts = []
    for k, share in enumerate(middle):
        surely = max(0.0, float(least[k + 1] - most[k]))
        perhaps = min(1.0, float(most[k + 1] - least[k]))
        lower = min(share.lower, surely - (share.value - share.lower))
        upper = max(share.upper, perhaps + (share.upper - share.value))
        parts.append(_marked(share, max(0.0, lower), min(1.0, upper)))
    below, *inside, above = parts
    bins = [Bin(each.low, each.high, share) for each, share in zip(found.bins, inside, strict=True)]
    return Histogram(bins, below, above)


def by_group(
    found: Sequence[Any], keys: Sequence[tuple[Any, ...]], bounds: Sequence[dict[Any, Any]]
) -> list[Any]:
    """Return group results with bounds for their ranges.

    Args:
        found: for each group, the result for middles.
        keys: the key of each group.
        bounds: the results at either bound, by key. A group may be missing: its values are keys.
    """
    low, high = bounds
    return [_hull(each, low.get(key), high.get(key)) for each, key in zip(found, keys, strict=True)]
