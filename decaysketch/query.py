"""Aggregates of a :class:`~decaysketch.sample.Sample`, each an estimate with its interval.

A function of values and weights is summed as ``masses * f(v, w) / w``: a mass estimates a decayed
weight, so this estimates ``g f(v, w)``. Sums use the interval of a sum of hits
(:func:`~decaysketch.estimate.sum_interval`), shares of the decayed weight Wilson's, quantiles the
inversion of the interval of a rank (Woodruff 1952), means and variances the linearised ratio.

Missing values are counted by :func:`sum` and :func:`count`; every other aggregate is over the
observations that have a value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.estimate import (
    Estimate,
    check_confidence,
    positive_interval,
    proportion_interval,
    signed_interval,
    student_margin,
)
from decaysketch.sample import Sample

__all__ = [
    "Function",
    "Group",
    "HeavyHitter",
    "Predicate",
    "count",
    "group_by",
    "heavy_hitters",
    "mean",
    "quantile",
    "rank",
    "selectivity",
    "sum",
    "total",
    "variance",
]

Float64Array = npt.NDArray[np.float64]

# Columns of values and weights in, a column out.
Function = Callable[[npt.NDArray[Any], npt.NDArray[np.int64]], npt.ArrayLike]
Predicate = Callable[[npt.NDArray[Any], npt.NDArray[np.int64]], npt.ArrayLike]


class HeavyHitter(NamedTuple):
    """A value and its share of the decayed weight."""

    value: float | int
    frequency: Estimate


class Group(NamedTuple):
    """A value, the decayed sum of the weights of its observations, and their decayed count."""

    value: float | int
    sum: Estimate
    count: Estimate


def _estimate(sample: Sample, value: float, lower: float, upper: float, stderr: float,
              confidence: float, rows: int) -> Estimate:
    if sample.exact:
        lower = upper = value
        stderr = 0.0
    return Estimate(float(value), float(lower), float(upper), float(stderr), confidence,
                    sample.exact, rows, sample.collision_bias)


def _linear(sample: Sample, x: Float64Array, confidence: float, used: Any) -> Estimate:
    """Sum of masses times x (per unit of weight)."""
    confidence = check_confidence(confidence)
    if sample.exact:
        exact = float(np.sum(sample.masses * x))
        return _estimate(sample, exact, exact, exact, 0.0, confidence, int(np.sum(used)))
    contributions = sample.masses * x
    variances = sample.variances * x * x
    value = float(np.sum(contributions))
    cut = sample.sampled_from
    tail, tail_x, tail_v = contributions[cut:], x[cut:], variances[cut:]
    parts = []
    largest = float(np.max(np.abs(tail_x), initial=0.0)) or 1.0
    for sign in (1.0, -1.0):
        chosen = tail_x * sign > 0
        seen = float(np.sum(tail[chosen])) * sign
        if not chosen.any() and (sign < 0 or (tail_x.size and bool((tail_x < 0).any()))):
            parts.append((0.0, 0.0, 0.0))
            continue
        low, high = positive_interval(seen, float(np.sum(tail_v[chosen])),
                                      max(sample.step * largest, 1e-300), confidence)
        parts.append((seen, float(low), float(high)))
    lower, upper = signed_interval(value, parts[0], parts[1])
    stderr = float(np.sqrt(max(float(np.sum(variances)), 0.0)))
    return _estimate(sample, value, lower, upper, stderr, confidence, int(np.sum(used)))


def sum(sample: Sample, *, confidence: float = 0.95) -> Estimate:
    return _linear(sample, np.ones(len(sample)), confidence, np.ones(len(sample)))


def count(sample: Sample, *, confidence: float = 0.95) -> Estimate:
    return _linear(sample, 1.0 / sample.weights, confidence, np.ones(len(sample)))


def total(sample: Sample, function: Function | None = None, *, confidence: float = 0.95) -> Estimate:
    f = sample.values if function is None else np.asarray(function(sample.values, sample.weights))
    x = np.where(sample.missing, 0.0, f) / sample.weights
    return _linear(sample, x, confidence, ~sample.missing)


def _ratio(sample: Sample, f: Float64Array, confidence: float) -> Estimate:
    confidence = check_confidence(confidence)
    present = ~sample.missing
    m = sample.masses * present
    weight = float(np.sum(m))
    if not weight > 0:
        return Estimate(float("nan"), -np.inf, np.inf, np.inf, confidence, sample.exact, 0,
                        sample.collision_bias)
    value = float(np.sum(m * f)) / weight
    spread = sample.variances * present
    var = float(np.sum(spread * (f - value) ** 2)) / weight**2
    stderr = float(np.sqrt(max(var, 0.0)))
    n_eff = weight**2 / max(float(np.sum(spread)), 1e-300)
    margin = student_margin(n_eff - 1, confidence) * stderr
    return _estimate(sample, value, value - margin, value + margin, stderr, confidence,
                     int(np.sum(present)))


def mean(sample: Sample, *, confidence: float = 0.95) -> Estimate:
    return _ratio(sample, sample.values.astype(np.float64), confidence)


def variance(sample: Sample, *, confidence: float = 0.95) -> Estimate:
    center = mean(sample, confidence=confidence).value
    return _ratio(sample, (sample.values - center) ** 2, confidence)


def _share(sample: Sample, inside: Any, confidence: float) -> Estimate:
    confidence = check_confidence(confidence)
    present = ~sample.missing
    m = sample.masses * present
    weight = float(np.sum(m))
    if not weight > 0:
        return Estimate(float("nan"), 0.0, 1.0, np.inf, confidence, sample.exact, 0,
                        sample.collision_bias)
    share = float(np.sum(m * inside)) / weight
    spread = sample.variances * present
    n_eff = weight**2 / max(float(np.sum(spread)), 1e-300)
    low, high = proportion_interval(share, n_eff, confidence)
    stderr = float(np.sqrt(max(float(np.sum(spread * (inside - share) ** 2)), 0.0))) / weight
    return _estimate(sample, share, float(low), float(high), stderr, confidence,
                     int(np.sum(present)))


def selectivity(sample: Sample, predicate: Predicate, *, confidence: float = 0.95) -> Estimate:
    return _share(sample, np.asarray(predicate(sample.values, sample.weights), dtype=bool),
                  confidence)


def rank(sample: Sample, value: float, *, confidence: float = 0.95) -> Estimate:
    return _share(sample, sample.values <= value, confidence)


def quantile(sample: Sample, q: Any, *, confidence: float = 0.95) -> Any:
    confidence = check_confidence(confidence)
    present = ~sample.missing
    values, m = sample.values[present], sample.masses[present]
    order = np.argsort(values, kind="stable")
    values, cumulative = values[order], np.cumsum(m[order])
    if not len(values):
        empty = Estimate(float("nan"), -np.inf, np.inf, np.inf, confidence, sample.exact, 0,
                         sample.collision_bias)
        return empty if np.ndim(q) == 0 else [empty for _ in q]
    weight = float(cumulative[-1])
    n_eff = weight**2 / max(float(np.sum(sample.variances[present])), 1e-300)
    z = student_margin(1e9, confidence)

    def at(share: float) -> float:
        return float(values[min(np.searchsorted(cumulative, share * weight), len(values) - 1)])

    out = []
    for phi in np.atleast_1d(q):
        half = z * np.sqrt(phi * (1 - phi) / n_eff)
        low, high = at(max(phi - half, 0.0)), at(min(phi + half, 1.0))
        out.append(_estimate(sample, at(phi), low, high, (high - low) / (2 * z), confidence,
                             len(values)))
    return out[0] if np.ndim(q) == 0 else out


def heavy_hitters(sample: Sample, phi: float, *, confidence: float = 0.95) -> list[HeavyHitter]:
    values, inverse = np.unique(sample.values[~sample.missing], return_inverse=True)
    m = np.bincount(inverse, sample.masses[~sample.missing], len(values))
    hits = np.flatnonzero(m > phi * m.sum())
    found = [
        HeavyHitter(values[k].item(), _share(sample, sample.values == values[k], confidence))
        for k in hits[np.argsort(-m[hits], kind="stable")]
    ]
    return found


def group_by(sample: Sample, *, confidence: float = 0.95) -> list[Group]:
    groups = []
    for value in np.unique(sample.values[~sample.missing]):
        inside = (sample.values == value) & ~sample.missing
        groups.append(Group(value.item(),
                            _linear(sample, inside * 1.0, confidence, inside),
                            _linear(sample, inside / sample.weights, confidence, inside)))
    return sorted(groups, key=lambda group: -group.sum.value)
