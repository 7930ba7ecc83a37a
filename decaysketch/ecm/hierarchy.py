"""Heavy prefixes for integer keys: networks, topics, time slices.

A prefix is *heavy* if its decayed count without its heavy parts reaches a threshold (hierarchical
heavy hitters: Cormode, Korn, Muthukrishnan and Srivastava, "Finding hierarchical heavy hitters in
data streams", VLDB 2003, definition 2). That rest is its *discounted* count: the counts of the
topmost heavy prefixes below it are subtracted. A heavy key is a heavy prefix with all bits. Only
prefixes that the sketch counts are found: ``fanout_bits`` apart, and the empty one, everything.

**None is missed.** A heavy prefix counts at least its discounted count, as do all prefixes above
it. So the descent of :mod:`~decaysketch.ecm.dyadic` by guaranteed upper bounds passes it, for any
hash functions. A found prefix is dropped only if its guaranteed upper bound less the guaranteed
counts below it stays under the threshold. Cells that keys share have no guaranteed lower bound, so
the prefixes above a heavy key remain in the result, with a discounted count near 0.

**Bounds.** Let ``f`` be the count of a prefix and ``G`` the part that heavy prefixes count:
``G = f`` if the prefix is heavy, else the sum of ``G`` over its children. The discounted count is
``f`` less that sum. A child that is not found contains no heavy prefix, so its
``G`` is 0. From ``L <= f <= U`` for every found prefix, upwards from the keys: with ``s <= sum(G)
<= t`` over the children, the discounted count is within ``[L - t, U - s]``. If that shows the
prefix to be heavy, ``G`` is within ``[L, U]``, and if it shows it not to be, within ``[s, t]``.
Else ``G`` is at most ``U``, and at least ``s`` and more than ``L`` less the threshold.

**Interval.** The counts' intervals divide the risk ``1 - confidence`` among all prefixes that the
descent checks, found or not: a prefix that never came may collide with heavy ones in all rows. Each
layer has its own hash functions, and the layers above decide which prefixes it checks. So the
discounted bounds, and ``certain``, hold together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.special import ndtri
from decaysketch.ecm import dyadic
from decaysketch.ecm.matrix import Estimator, Grid, check_estimator, is_exact
from decaysketch.ecm.point_queries import Counts, counts, total
from decaysketch.query.estimate import Estimate, check_confidence
from decaysketch.query.keys import HeavyPrefix, HeavyPrefixes

__all__ = ["heavy_prefixes"]

Float64Array = npt.NDArray[np.float64]
UInt64Array = npt.NDArray[np.uint64]

_ROUNDING = 2.0**-40  # relative, of sums of counts


def heavy_prefixes(
    grid: Grid,
    phi: float | None = None,
    *,
    threshold: float | None = None,
    limit: int | None = None,
    confidence: float = 0.95,
    estimator: Estimator = "debiased",
    most: int = dyadic.MOST_KEYS,
) -> HeavyPrefixes:
    """Return every counted prefix whose discounted count may reach a share, or a threshold.

    Args:
        grid, phi, threshold, estimator, most: as for :func:`~decaysketch.ecm.dyadic.heavy_hitters`.
        limit: the number of prefixes with the largest estimates that are returned. None for all.
        confidence: of all discounted counts together, and of each count.

    Returns: All prefixes whose discounted count has a guaranteed upper bound at the threshold or
        above, largest estimate first. No heavy prefix is missing, up to ``limit``. Cost as
        :func:`~decaysketch.ecm.dyadic.heavy_hitters`.

    Raises:
        ParameterError, UnanswerableQueryError: as :func:`~decaysketch.ecm.dyadic.heavy_hitters`.
    """
    confidence = check_confidence(confidence)
    check_estimator(estimator)
    bits = dyadic.key_bits(grid, "heavy prefixes")
    all_ = total(grid)
    low, high = dyadic.thresholds(phi, threshold, all_)
    dyadic.check_late(grid, low)
    if not all_.upper >= low or not all_.upper > 0.0:
        return HeavyPrefixes(low, ())
    nodes = [np.zeros(1, np.uint64), *dyadic.reaching(grid, bits, low - grid.refused, most)]
    each = 1.0 - (1.0 - confidence) / sum(dyadic.checked(grid, nodes, bits))
    levels = _levels(grid, nodes, bits, each, estimator)
    middle = phi * all_.value if phi is not None else low
    discounted = _Discounted(
        _bounds([level.sure for level in levels], levels, low, high),
        _bounds([(level.counts.lower, level.counts.upper) for level in levels], levels, low, high),
        _bounds([(level.counts.value,) * 2 for level in levels], levels, middle, middle).least,
    )
    return HeavyPrefixes(low, _rows(grid, levels, discounted, (low, high), limit, confidence))


class _Level(NamedTuple):
    """The prefixes found in a layer.

    Attributes:
        nodes: uint64[m], rising: the prefixes as numbers.
        parents: int64[m], their places in the level above.
        bits: length of each prefix.
        depth: cells of each prefix.
        counts: their counts, each with its part of the risk.
    """

    nodes: UInt64Array
    parents: npt.NDArray[np.intp]
    bits: int
    depth: int
    counts: Counts

    @property
    def sure(self) -> tuple[Float64Array, Float64Array]:
        """Guaranteed bounds of the counts."""
        return self.counts.sure_lower, self.counts.sure_upper


class _Bounds(NamedTuple):
    """Bounds of discounted counts, float64[m] for each level."""

    least: list[Float64Array]
    most: list[Float64Array]


class _Discounted(NamedTuple):
    """Discounted counts: guaranteed bounds, bounds at the confidence, and estimates."""

    sure: _Bounds
    likely: _Bounds
    values: list[Float64Array]


def _levels(
    grid: Grid, nodes: Sequence[UInt64Array], bits: int, confidence: float, estimator: Estimator
) -> list[_Level]:
    """The found prefixes of every layer, root first, with their counts."""
    levels: list[_Level] = []
    above = bits
    for number, found in enumerate(nodes):
        shift = min(grid.layers[number].layer.shift, bits)
        part = replace(grid, layers=grid.layers[: number + 1])
        parents = np.zeros(len(found), np.intp)
        if levels:
            parents = levels[-1].nodes.searchsorted(found >> np.uint64(above - shift))
        words = _first_keys(found, shift)
        counted = counts(part, words, confidence=confidence, estimator=estimator)
        depth = grid.layers[number].layer.depth
        levels.append(_Level(found, parents, bits - shift, depth, counted))
        above = shift
    return levels


def _first_keys(nodes: UInt64Array, shift: int) -> UInt64Array:
    """The smallest key with each prefix. The empty prefix of 64 bits has no shift in uint64."""
    return nodes << np.uint64(shift) if shift < 64 else np.zeros(len(nodes), np.uint64)


def _bounds(
    ends: Sequence[tuple[Float64Array, Float64Array]], levels: Sequence[_Level], low: float,
    high: float,
) -> _Bounds:  # fmt: skip
    """Bounds of the discounted counts, from bounds of the counts: see the module's text.

    Args:
        ends: lower and upper bounds, for each level.
        levels: root first.
        low, high: bounds of the threshold.
    """
    found = _Bounds([], [])
    whole = all(np.array_equal(end, np.rint(end)) for both in ends for end in both)
    below = (
        np.zeros(len(levels[-1].nodes)),
        np.zeros(len(levels[-1].nodes)),
    )  # at the leaf: counts of the heavy prefixes below
    for number in range(len(levels) - 1, -1, -1):
        (least, most), (some, all_) = ends[number], below
        # A prefix counts at least as much as its children.
        least, most = np.maximum(least, some), np.maximum(most, some)
        rounding = 0.0 if whole else _ROUNDING * most
        lower = np.maximum(least - all_ - rounding, 0.0)
        upper = np.minimum(most - some + rounding, most)
        heavy, light = lower >= high, upper < low
        part_least = np.where(heavy, least, np.where(light, some, np.maximum(some, least - high)))
        part_most = np.where(light, np.minimum(all_, most), most)
        found.least.insert(0, lower)
        found.most.insert(0, upper)
        if number:
            parents, size = levels[number].parents, len(levels[number - 1].nodes)
            below = _by_parent(parents, part_least, size), _by_parent(parents, part_most, size)
    return found


def _by_parent(parents: npt.NDArray[np.intp], parts: Float64Array, size: int) -> Float64Array:
    summed = np.zeros(size)
    np.add.at(summed, parents, parts)
    return summed


def _rows(
    grid: Grid, levels: Sequence[_Level], discounted: _Discounted, ends: tuple[float, float],
    limit: int | None, confidence: float,
) -> tuple[HeavyPrefix, ...]:  # fmt: skip
    """The prefixes that may be heavy, largest estimate first."""
    places = [
        (-float(discounted.values[number][place]), number, place)
        for number, most in enumerate(discounted.sure.most)
        for place in np.flatnonzero(most >= ends[0]).tolist()
    ]
    shown = [replace(level.counts, confidence=confidence) for level in levels]
    rows = []
    for _, number, place in sorted(places)[:limit]:
        level = levels[number]
        prefix = int(level.nodes[place]) << grid.layers[number].layer.shift
        found = _estimate(grid, level, discounted, number, place, confidence)
        certain = found.lower >= ends[1]
        rows.append(HeavyPrefix(prefix, level.bits, shown[number][place], found, certain))
    return tuple(rows)


def _estimate(
    grid: Grid, level: _Level, discounted: _Discounted, number: int, place: int, confidence: float
) -> Estimate:
    """A discounted count."""
    sure = float(discounted.sure.least[number][place]), float(discounted.sure.most[number][place])
    lower = max(float(discounted.likely.least[number][place]), sure[0])
    upper = max(min(float(discounted.likely.most[number][place]), sure[1]), lower)
    return Estimate(
        value=min(max(float(discounted.values[number][place]), lower), upper),
        lower=lower,
        upper=upper,
        stderr=(upper - lower) / (2.0 * ndtri(0.5 + 0.5 * level.counts.confidence)),
        confidence=confidence,
        exact=is_exact(*sure),
        rows=level.depth,
        collision_bias=0.0,
        caveats=grid.caveats,
        sure_upper=sure[1],
    )
