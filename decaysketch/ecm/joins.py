"""Self-joins and inner products: how similar two streams are, and how skewed one is.

``a . b = sum_x f_a(x) f_b(x)`` over all keys. A row with ``w`` cells has ``sum_i a_i b_i``, which
adds the products of different keys that share a cell: ``(||a|| ||b|| - a . b) / w`` on average.
The paper uses the smallest row (Papapetrou, Garofalakis and Deligiannakis 2015, section 4.2), which
on a flat stream contains nothing but these. Here they are removed from each row,
``(w sum_i a_i b_i - ||a|| ||b||) / (w - 1)``, and the result is the median over rows
(``"minimum"`` is the paper's).

Interval. The variance of such a row is at most
``(F2_a F2_b + (a . b)^2 - 2 sum_x f_a(x)^2 f_b(x)^2) / (w - 1)``, with ``F2`` the self-joins. For
one stream it is ``2 (F2^2 - F4) / (w - 1)``. It is estimated from the rows themselves. The last
term, which is everything in a stream with one key, comes from the cells that stand out in them. The
median over ``d`` rows has ``c_d^2`` times it (see :mod:`decaysketch.query.ensemble`). As the
variance grows with the result, the bounds are the results that are just this number of deviations
from the estimate. The estimated self-joins grow with the estimate, too: if cells are normal,
``F2_a F2_b`` errs by ``4 x F2_a F2_b / (F2_a F2_b + x^2)`` for each unit that the estimate errs by,
``x = a . b``. So at a result x other than the estimate v it is assumed to be ``g (x^2 - v^2)`` more
than estimated, ``g = 2 F2_a F2_b / (F2_a F2_b + v^2)``. For a stream with itself g is 1, and it is
``x^2``. The counts' own errors are added. They are common to all rows, because their heavy cells
contain the same keys. The paper's estimate uses Markov's lower bound. The guaranteed upper bound,
the minimum over rows of upper bounds, clips both.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from decaysketch.core.special import ndtri
from decaysketch.ecm import collision_error
from decaysketch.ecm.matrix import (
    Estimator,
    Grid,
    LayerGrid,
    check_alike,
    check_estimator,
    is_exact,
)
from decaysketch.query.ensemble import median_deviation
from decaysketch.query.estimate import Estimate, check_confidence

__all__ = ["inner", "moment_of", "self_join"]

Float64Array = npt.NDArray[np.float64]

_ORDINARY = 0.9  # share of a row's cells that contain only common, light keys
_ROUNDED_UP = 1.0 + 2.0**-50
_UNIFORM = math.sqrt(12.0)  # width over standard deviation of a uniform distribution


def self_join(
    grid: Grid, *, confidence: float = 0.95, estimator: Estimator = "debiased"
) -> Estimate:
    """Return the self-join of the decayed counts, ``F2 = sum_x f(x)^2``.

    Args:
        grid: grid for one decay and time.
        confidence: of the interval.
        estimator: "debiased" (default), or "minimum" as in the paper.

    Returns:
        An estimate in squares of the decayed count. O(d w).

    Raises:
        ParameterError: an invalid confidence, or another estimator.
    """
    confidence = check_confidence(confidence)
    check_estimator(estimator)
    rows = _Rows.of(grid.leaf, grid.leaf)
    answer = _answer(rows, grid.leaf, grid.leaf, confidence, estimator)
    # Missing and excess counts, by the triangle inequality.
    surely = _grown(rows.most, grid.refused)
    return _estimate(
        grid,
        answer,
        _shrunk(answer.lower, grid.moved),
        min(_grown(answer.upper, grid.refused), surely),
        surely,
        confidence,
        grid.caveats,
    )


def inner(
    ours: Grid, theirs: Grid, *, confidence: float = 0.95, estimator: Estimator = "debiased"
) -> Estimate:
    """Return the inner product of two streams' decayed counts: the size of their equi-join.

    Args:
        ours, theirs: grids from sketches with the same parameters. Each has its own decay and time.
        confidence: of the interval.
        estimator: "debiased" (default), or "minimum" as in the paper.

    Returns:
        As :func:`self_join`. O(d w).

    Raises:
        IncompatibleSketchError: sketches with other layers or seeds.
        ParameterError: an invalid confidence, or another estimator.
    """
    confidence = check_confidence(confidence)
    check_estimator(estimator)
    check_alike(ours, theirs)
    a, b = ours.leaf, theirs.leaf
    rows = _Rows.of(a, b)
    answer = _answer(rows, a, b, confidence, estimator)
    largest_a, largest_b = _largest(a), _largest(b)
    missing = _crossed(ours.refused, largest_b) + _crossed(theirs.refused, largest_a)
    missing += ours.refused * theirs.refused
    too_much = _crossed(ours.moved, largest_b) + _crossed(theirs.moved, largest_a)
    return _estimate(
        ours,
        answer,
        max(answer.lower - too_much, 0.0),
        answer.upper + missing,
        rows.most + missing,
        confidence,
        tuple(sorted({*ours.caveats, *theirs.caveats})),
    )


def moment_of(cells: Float64Array) -> float:
    """The debiased self-join from rows of cells, at least 0. For a single cell, the square of the
    total.

    Args:
        cells: float64[d, w] from a hashed layer.
    """
    width = cells.shape[1]
    squares = cells.sum(axis=1) ** 2
    if width == 1:
        return float(squares.min())
    rows = (width * (cells * cells).sum(axis=1) - squares) / (width - 1)
    return max(float(np.median(rows)), 0.0)


class _Answer(NamedTuple):
    """The result for the counted events."""

    value: float
    lower: float
    upper: float
    deviation: float


class _Rows(NamedTuple):
    """Sums of products, per row."""

    products: Float64Array  # float64[d]
    freed: Float64Array  # float64[d], of the products of different keys
    most: float  # surely not exceeded
    deviation: float  # of a row, by the errors of the counts in its cells

    @classmethod
    def of(cls, a: LayerGrid, b: LayerGrid) -> _Rows:
        products = (a.value * b.value).sum(axis=1)
        most = float(_products(a.hi, b.hi).sum(axis=1).min())
        width = a.layer.width
        if not a.layer.hashed or width == 1:  # no products to be freed of, or nothing to tell by
            return cls(products, products, most, _deviation(a, b, 1.0, 0.0))
        freed = (width * products - a.value.sum(axis=1) * b.value.sum(axis=1)) / (width - 1)
        scale = 1.0 / (width - 1)
        return cls(products, freed, most, _deviation(a, b, width * scale, scale))


def _deviation(a: LayerGrid, b: LayerGrid, each: float, all_: float) -> float:
    """Deviation of ``each sum a_i b_i - all_ (sum a_i) (sum b_i)`` in a row, by the gaps of the
    cells.
    """
    if not (np.isfinite(a.hi).all() and np.isfinite(b.hi).all()):
        return math.inf
    by_a = (each * b.value - all_ * b.value.sum(axis=1, keepdims=True)) * a.gap_deviation
    if a is b:
        return 2.0 * _root_mean(by_a)
    by_b = (each * a.value - all_ * a.value.sum(axis=1, keepdims=True)) * b.gap_deviation
    return math.hypot(_root_mean(by_a), _root_mean(by_b))


def _root_mean(errors: Float64Array) -> float:
    """Root of a row's sum of squares, averaged over rows."""
    return math.sqrt(float((errors * errors).sum(axis=1).mean()))


def _answer(
    rows: _Rows, a: LayerGrid, b: LayerGrid, confidence: float, estimator: Estimator
) -> _Answer:
    layer, most = a.layer, rows.most
    if not layer.hashed:
        value = float(rows.products[0])
        return _Answer(value, float((a.lo * b.lo).sum()), most, rows.deviation)
    if estimator == "minimum" or layer.width == 1:
        value = min(float(rows.products.min()), most)
        if not math.isfinite(most):
            return _Answer(value, 0.0, most, math.inf)
        share = collision_error.markov(layer.depth, layer.width, 1.0 - confidence)
        pairs = share * float((a.hi.sum(axis=1) * b.hi.sum(axis=1)).min())
        lower = max(float((a.lo * b.lo).sum(axis=1).min()) - pairs, 0.0)
        return _Answer(value, lower, most, (most - lower) / _UNIFORM)
    value = _clipped(float(np.median(rows.freed)), most)
    return _between(rows, a, b, value, confidence)


def _between(rows: _Rows, a: LayerGrid, b: LayerGrid, value: float, confidence: float) -> _Answer:
    """The interval around the median of the rows: all x with
    ``(x - value)^2 <= k^2 (x^2 + rest)``.
    """
    quantile = ndtri(0.5 + 0.5 * confidence)
    square = value * value
    moments = square if a is b else max(moment_of(a.value) * moment_of(b.value), square)
    along = 2.0 * moments / (moments + square) if moments > 0.0 else 1.0
    heavy = min(2.0 * _heavy(a, b), moments + square)
    rest = (moments - along * square - heavy) / (1.0 + along)
    shrink = median_deviation(a.layer.depth) * math.sqrt((1.0 + along) / (a.layer.width - 1.0))
    k = quantile * shrink
    low, high = 0.0, math.inf
    if k < 1.0:
        free = 1.0 - k * k
        root = k * math.sqrt(max(square + free * rest, 0.0))
        low, high = (value - root) / free, (value + root) / free
    counted = quantile * rows.deviation
    lower = value - math.hypot(max(value - low, 0.0), counted)
    upper = value + math.hypot(max(high - value, 0.0), counted)
    deviation = math.hypot(shrink * math.sqrt(max(square + rest, 0.0)), rows.deviation)
    return _Answer(value, max(lower, 0.0), min(upper, rows.most), deviation)


def _heavy(a: LayerGrid, b: LayerGrid) -> float:
    """``sum_x f_a(x)^2 f_b(x)^2`` over the keys that stand out in their rows, rather too small:
    other keys in their cells are assumed to have as much as most cells.
    """
    place = math.ceil(_ORDINARY * a.layer.width) - 1
    out = [np.maximum(each.value - each.ranked[:, place, None], 0.0) for each in (a, b)]
    return float(((out[0] * out[1]) ** 2).sum(axis=1).min())


def _clipped(value: float, most: float) -> float:
    return min(max(value, 0.0), most)


def _products(a: Float64Array, b: Float64Array) -> Float64Array:
    """Products of upper bounds. An empty cell adds nothing to a cell without a bound."""
    return np.multiply(a, b, out=np.zeros_like(a), where=(a > 0.0) & (b > 0.0))


def _largest(grid: LayerGrid) -> float:
    """Upper bound on every key's count."""
    return float(grid.hi.max(axis=1).min())


def _grown(square: float, weight: float) -> float:
    """The maximum self-join if this weight is missing, rounded up."""
    if not weight > 0.0:
        return square
    return (math.sqrt(square) + weight) ** 2 * _ROUNDED_UP


def _shrunk(square: float, weight: float) -> float:
    """The minimum self-join if this weight is too much."""
    return max(math.sqrt(square) - weight, 0.0) ** 2 if weight > 0.0 else square


def _crossed(weight: float, largest: float) -> float:
    """The most that a weight with unknown keys adds to, or removes from, an inner product."""
    return weight * largest if weight > 0.0 else 0.0


def _estimate(
    grid: Grid, answer: _Answer, lower: float, upper: float, surely: float, confidence: float,
    caveats: tuple[str, ...],
) -> Estimate:  # fmt: skip
    return Estimate(
        value=answer.value,
        lower=lower,
        upper=upper,
        stderr=answer.deviation,
        confidence=confidence,
        exact=is_exact(lower, surely),
        rows=grid.leaf.layer.depth,
        collision_bias=0.0,
        caveats=caveats,
        sure_upper=surely,
    )
