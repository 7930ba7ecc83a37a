"""Aggregates for all groups in a sample at once, in arrays.

The functions here give the same results as the
aggregates in :mod:`~decaysketch.query.aggregates` on each restricted sample, in a few passes over
the rows for all groups together. Residuals with either sign are separate parts for each group.

*Joint intervals.* All intervals in a table hold at once with the confidence: each of G groups at
``1 - (1 - confidence) / G`` (Bonferroni), over all groups found. A table with only the largest
groups therefore keeps the confidence too.

*Unseen groups.* A group with decayed count ``u`` expects ``u / step`` hits or more. It is missed
with a chance of at most ``exp(-u / step)``. At most ``T / u`` such groups exist, with ``T`` the
upper bound on the complete count. So ``u = step ln(T / (u (1 - confidence)))`` bounds all groups
together.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.query import aggregates
from decaysketch.query.aggregates import Function, Predicate
from decaysketch.query.estimate import (
    Interval,
    inequality,
    part_interval,
    share_interval,
)
from decaysketch.query.group_sums import (
    Estimates,
    Parts,
    Signed,
    Sizes,
    Terms,
    estimates_of,
    extremes,
    largest,
)
from decaysketch.query.sample import Columns, Sample

__all__ = [
    "count_by",
    "mean_by",
    "rate_by",
    "selectivity_by",
    "sum_by",
    "total_by",
    "unseen_at_most",
    "unseen_within",
]

Float64Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]
BoolArray = npt.NDArray[np.bool_]


def _level(group: IntArray, column: Float64Array, size: int) -> BoolArray:
    """Return the groups whose entries are all equal."""
    least, most = extremes(group, column, size)
    return np.asarray(least == most)


def _sums(
    parts: Parts, columns: Columns, group: IntArray, function: Float64Array,
    unseen: tuple[float, float],
) -> Estimates:  # fmt: skip
    """Return a function's decayed sums."""
    if parts.counted is not None:
        parts, columns = parts.counted(), columns.counted
    sample = parts.sample
    x = aggregates.over_weights(sample, columns, function)
    head, tail = slice(0, columns.exact), slice(columns.exact, None)
    exact = parts.sum(group[head], columns.masses[head] * x[head])
    rows = np.bincount(group, minlength=parts.size)
    over = math.ldexp(1.0, sample.magnitude)
    if not np.any(parts.step > 0.0):
        value = exact + parts.sum(group[tail], columns.masses[tail] * x[tail])
        nothing = np.zeros(parts.size)
        return estimates_of(
            parts, Interval(value, value, value), nothing, nothing, rows, (), over=over
        )
    # Sampled rows of groups that no sampled band meets do not vary.
    both = [largest(group, sign * function, parts.size) > 0.0 for sign in (1.0, -1.0)]
    one_sign = ~(both[0] & both[1])
    unequal = aggregates.has_unequal_weights(sample, columns, function)
    floor = parts.step * aggregates.borrowed_hit(sample, columns, x)
    if unequal:
        floor = np.maximum(floor, sample.step * np.max(np.abs(function), initial=0.0))
    seen = columns.decayed[tail] * np.abs(function[tail]) * one_sign[group[tail]]
    of_values = math.isinf(unseen[1])
    sizes: Any = (0.0, 0.0)
    if of_values:
        of_rows = Sizes.of(parts, columns, group, function, over_weights=True)
        sizes = of_rows.largest(over_weights=True)
    terms = Terms.of(parts, columns, group, x)
    side = group[tail] + parts.size * (x[tail] < 0.0)
    found = terms.signed(
        parts, terms.hits(parts, sizes=sizes, unseen=unseen, floor=floor),
        sure=np.bincount(side, seen, 2 * parts.size),
        larger=aggregates.as_shown(sample, columns),
    )  # fmt: skip
    ends = Interval(*(exact + end for end in found.ends))
    few = found.few
    if of_values and len(function):
        few = few | _few_decide_mean(parts, columns, group, function)
    light = parts.step * largest(group, np.abs(function), parts.size)
    missed = aggregates.may_miss_light(sample, light, found.step, found.spread) | unequal
    missed = missed & rows.astype(bool)
    caveats = [("few-rows", few & ~missed), ("unequal-weights", missed)]
    if of_values and len(function):
        level = _level(group, function, parts.size) & (rows > 0)
        nonzero = largest(group, np.abs(function), parts.size) > 0.0
        caveats = [(name, groups & ~(level & nonzero)) for name, groups in caveats]
        caveats.append(("equal-values", level & nonzero))
    return estimates_of(parts, ends, found.spread, found.step, rows, caveats, over=over)


def _few_decide_mean(
    parts: Parts, columns: Columns, group: IntArray, function: Float64Array
) -> BoolArray:
    """Return whether one row decides a group's mean. See
    :func:`~decaysketch.query.aggregates.of_values`.
    """
    weight = parts.sum(group, columns.masses)
    mean = parts.sum(group, columns.masses * function) / np.where(weight > 0.0, weight, 1.0)
    tail = slice(columns.exact, None)
    rest = 1.0 - columns.masses[tail] / np.where(weight > 0.0, weight, 1.0)[group[tail]]
    residuals = (function[tail] - mean[group[tail]]) / np.maximum(rest, aggregates.LEAST_REST)
    variances = columns.variances[tail] * residuals * residuals
    everything = parts.sum(group[tail], variances)
    return np.asarray(largest(group[tail], variances, parts.size) > aggregates.HINGES * everything)


def _counts(parts: Parts) -> Estimates:
    """Return decayed counts if all weights are 1: as :func:`_sums` for a function that is 1, in
    half the passes.
    """
    sample, group = parts.sample, parts.beside(valued=False)
    columns, size = sample.columns, parts.size
    head, tail = slice(0, columns.exact), slice(columns.exact, None)
    near, far = group[head], group[tail]
    exact = parts.sum(near, columns.masses[head])
    variances, jumps, decayed = (
        column[tail] for column in (columns.variances, columns.jumps, columns.decayed)
    )
    sampled, spread = parts.sum(far, columns.masses[tail]), parts.sum(far, variances)
    skew, sure = parts.sum(far, variances * (jumps - 0.5 * decayed)), parts.sum(far, decayed)
    jump = largest(far, jumps, size)
    unequal = aggregates.has_unequal_weights(sample, columns, np.ones(len(sample)))
    floor = sample.step if unequal else 0.0
    hit = np.where(jump > 0.0, np.maximum(np.maximum(jump, parts.step), floor), parts.step)
    ends = part_interval(
        0.0, sampled, spread, hit, parts.thinning, sure, parts.level,
        unequal=inequality(sampled, spread, skew, np.where(hit > jump, hit, 0.0)), seen=jump,
    )  # fmt: skip
    rows = np.bincount(group, minlength=size)
    few = largest(far, variances, size) > aggregates.HINGES * spread
    missed = np.full(size, unequal) & (rows > 0)
    caveats = [("few-rows", few & ~missed), ("unequal-weights", missed)]
    ends = Interval(*(exact + end for end in ends))
    over = math.ldexp(1.0, sample.magnitude)
    return estimates_of(parts, ends, spread, hit, rows, caveats, over=over)


def count_by(parts: Parts) -> Estimates:
    """Return decayed counts. See :func:`~decaysketch.query.aggregates.count`."""
    if parts.counted is not None:
        parts = parts.counted()
    sample = parts.sample
    if not sample.weighted and np.any(parts.step > 0.0):
        return _counts(parts)
    ones = np.ones(len(sample))
    return _sums(parts, sample.columns, parts.beside(valued=False), ones, (0.0, 1.0))


def rate_by(parts: Parts) -> Estimates:
    """Return counts over the decay's integral. See :func:`~decaysketch.query.aggregates.rate`."""
    span, found = parts.span or aggregates.span_of(parts.sample.decay), count_by(parts)
    return replace(
        found, value=found.value / span, lower=found.lower / span, upper=found.upper / span,
        stderr=found.stderr / span,
    )  # fmt: skip


def total_by(parts: Parts, function: Function | None = None) -> Estimates:
    """Return decayed sums over values, or over a function. See
    :func:`~decaysketch.query.aggregates.total`.
    """
    values, columns = parts.sample.valued
    unseen = (-math.inf, math.inf)
    numbers = values
    if function is not None:
        numbers = aggregates.evaluated(function, values, columns.weights)
        unseen = (0.0, 1.0) if numbers.dtype == np.bool_ else unseen
    group = parts.beside(valued=True)
    return _sums(parts, columns, group, numbers.astype(np.float64, copy=False), unseen)


def sum_by(parts: Parts) -> Estimates:
    """Return decayed weight sums. See :func:`~decaysketch.query.aggregates.sum`."""
    sample, group = parts.sample, parts.beside(valued=False)
    columns, size = sample.columns, parts.size
    head, tail = slice(0, columns.exact), slice(columns.exact, None)
    exact = parts.sum(group[head], columns.masses[head])
    sampled = parts.sum(group[tail], columns.masses[tail])
    spread = parts.sum(group[tail], columns.variances[tail])
    certain = parts.sum(group[tail], columns.decayed[tail] * columns.weights[tail])
    clump = spread / np.where(sampled > 0.0, sampled, 1.0)
    step = np.where(parts.step > 0.0, np.maximum(parts.step, clump), 0.0)
    ends = part_interval(exact, sampled, spread, step, parts.thinning, certain, parts.level)
    rows = np.bincount(group, minlength=size)
    over = math.ldexp(1.0, sample.magnitude)
    return estimates_of(parts, ends, spread, step, rows, (), over=over)


def mean_by(parts: Parts) -> Estimates:
    """Return means. See :func:`~decaysketch.query.aggregates.mean`."""
    sample, group = parts.sample, parts.beside(valued=True)
    values, columns = sample.valued
    numbers = values.astype(np.float64, copy=False)
    by_group, size = parts.rows(columns, group), parts.size
    rows = np.bincount(group, minlength=size)
    weight, total, least, most = np.ascontiguousarray(by_group.moments(numbers).T)
    level = (least == most) & (rows > 0)
    with np.errstate(all="ignore"):
        value = np.where(weight > 0.0, total / weight, np.nan)
        value = np.where(level, least, value)  # not up to rounding
        residuals = by_group.residuals(numbers, value, 1.0 / weight, aggregates.LEAST_REST)
        shown = Sizes.of(parts, columns, group, residuals).largest()
        borrowed = aggregates.borrowed_sizes(sample, lambda each: each)
        sizes = [np.maximum(*each) for each in zip(shown, borrowed, strict=True)]
        terms = Terms.of(parts, columns, group, residuals)
        found = terms.signed(parts, terms.hits(parts, sizes=sizes))
        ends = Interval(
            value,
            value - (found.ends.value - found.ends.lower) / weight,
            value + (found.ends.upper - found.ends.value) / weight,
        )
    return _ratios(parts, ends, found, weight, rows, level)


def _ratios(
    parts: Parts, ends: Interval, found: Signed, weight: Float64Array,
    rows: npt.NDArray[np.int64], level: BoolArray,
) -> Estimates:  # fmt: skip
    """Return ratios to each group's weight, unbounded where nothing bounds the others."""
    faded = (parts.step * aggregates.OUTWEIGHED > weight) & (weight > 0.0)
    unbounded = level | faded | ~(weight > 0.0)
    lower = np.where(unbounded, -np.inf, ends.lower)
    upper = np.where(unbounded, np.inf, ends.upper)
    over = np.where(weight > 0.0, weight, 1.0)
    caveats = [
        ("few-rows", found.few & ~unbounded), ("equal-values", level), ("faded", faded & ~level),
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        spread = np.where(unbounded, np.inf, found.spread / over**2)
    return estimates_of(
        parts, Interval(ends.value, lower, upper), spread, found.step / over, rows, caveats
    )


def selectivity_by(parts: Parts, holds: Predicate) -> Estimates:
    """Return the shares for which a predicate holds. See
    :func:`~decaysketch.query.aggregates.selectivity`.
    """
    sample, group = parts.sample, parts.beside(valued=True)
    values, columns = sample.valued
    inside = aggregates.held_by(holds, values, columns)
    side = group + parts.size * ~inside
    size, head, tail = parts.size, slice(0, columns.exact), slice(columns.exact, None)
    exact = np.bincount(side[head], columns.masses[head], 2 * size)
    sampled, spread = (
        np.bincount(side[tail], column[tail], 2 * size)
        for column in (columns.masses, columns.variances)
    )
    step, thinning = np.tile(parts.step, 2), np.tile(parts.thinning, 2)
    both = part_interval(exact, sampled, spread, step, thinning, 0.0, parts.level)
    part, rest = Interval(*(e[:size] for e in both)), Interval(*(e[size:] for e in both))
    found = share_interval(part, rest)
    weight = part.value + rest.value
    over = np.where(weight > 0.0, weight, 1.0)
    share = found.value
    variance = ((1.0 - share) ** 2 * spread[:size] + share**2 * spread[size:]) / over**2
    rows = np.bincount(group, minlength=size)
    faded = (parts.step * aggregates.OUTWEIGHED > weight) & (weight > 0.0)
    ends = Interval(share, np.where(faded, 0.0, found.lower), np.where(faded, 1.0, found.upper))
    variance, step = np.where(faded, 0.25, variance), np.where(faded, 0.0, parts.step / over)
    return estimates_of(parts, ends, variance, step, rows, [("faded", faded)], least=0.0, most=1.0)


def unseen_at_most(sample: Sample, confidence: float) -> float:
    """Return the largest possible decayed count for a group without a retained row, for all such
    groups at once. Return 0 if nothing was sampled.

    Args:
        sample: the rows of all groups.
        confidence: probability that no such group exceeds the result.
    """
    if sample.exact:
        return 0.0
    most = aggregates.count if sample.weighted else aggregates.sum  # which are equal there
    return unseen_within(sample.counted, most(sample, confidence=confidence).upper, confidence)


def unseen_within(sample: Sample, most: float, confidence: float) -> float:
    """Return the same bound for a decayed sum with this maximum over all groups. An observation
    adds at most its weight to it.
    """
    step = math.ldexp(sample.step, sample.magnitude)
    if not (step > 0.0 and math.isfinite(most)):
        return math.inf
    found = step
    for _ in range(60):  # a contraction: the logarithm changes little
        before, found = found, step * math.log(max(most / found, 1.0) / (1.0 - confidence))
        if found == before:
            break
    return found
