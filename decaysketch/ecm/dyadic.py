"""Heavy hitters, ranges, ranks and quantiles of integer keys, from counters of their prefixes.

A sketch with ``key_bits`` counts key prefixes, layer below layer, as nodes of a tree (Cormode and
Muthukrishnan 2005, section 4.2, which Papapetrou, Garofalakis and Deligiannakis 2015 cite for it).

*Heavy hitters.* A node counts at least as much as any key below it, and its upper bound is
guaranteed. So the descent through all nodes with an upper bound at the threshold or above passes
every key that reaches it: **none is ever missed**, for any hash functions. Every key found has an
interval. It is ``certain`` if a lower bound reaches the threshold that holds for all keys that the
descent checked, found or not, together.

*Ranges* are sums over nodes. The minimum over rows for each node would add the noise of all their
shared cells, once per node. Instead each row sums ``(w a_i - ||a||) / (w - 1)``, which has no bias,
over a layer's nodes, and rows are averaged. Layers are independent. A range has
at most ``2 (F - 1)`` nodes per layer, with fan-out ``F``: small fan-outs are good for ranges and
quantiles, and large ones make heavy hitters fast.

The effect of a few heavy nodes on all others is removed before. Their counts are estimated and
subtracted, and the row describes the rest. For a row these are **found and estimated in the other
rows alone**. Rows hash independently. So, given the others, the subtracted part is fixed and the
row has no bias, however bad the estimates are. With estimates from the row itself, a cell would
lose more if its neighbours hold more, and sums would be too small. (Exception: a node is
not subtracted if the row's cell is far too small for it: :func:`_heavy`.)

*The mean over rows and not the median.* The noise in a cell is skewed: mostly small, rarely large.
The median over three such rows is too small, in every layer. These biases add up over layers, while
random deviations do not. The median would outvote a row with a heavy collision, and none is left:
every node that reaches the threshold is found, guaranteed.

*Interval.* Let ``r`` be the rest, ``F2`` its sum of squares over the layer and ``A`` its sum over
the ``m`` nodes of a range. To each node in the range a row adds ``r_y (w [collide] - 1) / (w - 1)``
for every other node ``y``. Pairs are uncorrelated, and each has the variance ``r_y^2 / (w - 1)``.
Pairs inside the range count both ways. Together that is ``(m F2 - 2 S + A^2) / (w - 1)`` with
``S >= A^2 / m``, the squares inside: at most ``(m F2 + (1 - 2 / m) A^2) / (w - 1)``. The third
cumulant is about ``m`` times the third cumulant of the row's cells. Cumulants of rows and layers
add up, and Cornish and Fisher's expansion gives the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from decaysketch.core.special import ndtri
from decaysketch.ecm import collision_error
from decaysketch.ecm.matrix import Estimator, Grid, LayerGrid, check_estimator, is_exact
from decaysketch.ecm.point_queries import check_word, counts, share_of, total
from decaysketch.errors import ParameterError, UnanswerableQueryError
from decaysketch.query.estimate import Estimate, check_confidence
from decaysketch.query.keys import HeavyKey, HeavyKeys

__all__ = [
    "MOST_KEYS",
    "HeavyKey",
    "HeavyKeys",
    "check_late",
    "checked",
    "heavy_hitters",
    "key_bits",
    "quantile",
    "range_count",
    "rank",
    "reaching",
    "thresholds",
]

BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]
UInt64Array = npt.NDArray[np.uint64]

MOST_KEYS = 1 << 16
_MOST_NODES = 1 << 22  # of a range in one layer
_MOST_HEAVY = 512  # nodes of a layer that may reach the subtracted threshold, in every row
_MULTIPLE = 3.0  # of the threshold: heavier nodes are not subtracted from lighter cells
_MOST_LOOKED = 1 << 20  # nodes of a layer that are checked for subtraction
_CHUNK = 1 << 18  # children checked at a time


def heavy_hitters(
    grid: Grid,
    phi: float | None = None,
    *,
    threshold: float | None = None,
    confidence: float = 0.95,
    estimator: Estimator = "debiased",
    most: int = MOST_KEYS,
) -> HeavyKeys:
    """Return every key that may have a share of ``phi`` in the total, or a count of ``threshold``.

    Args:
        grid: grid for one decay and time, from a sketch with ``key_bits``.
        phi: share of the decayed count of all events, above 0 and at most 1. Give this or
            ``threshold``.
        threshold: decayed count, above 0.
        confidence: of each interval, and of all keys that are called certain together.
        estimator: for the counts; see :func:`~decaysketch.ecm.point_queries.counts`.
        most: maximum number of nodes per layer whose children are checked.

    Returns: All keys with a guaranteed upper bound at the threshold or above, under ``phi`` at its
        smallest possible value. No key that has reached it is missing. O(F / phi) nodes a layer,
        and nodes that collide with heavy ones.

    Raises:
        ParameterError: the sketch has no ``key_bits``; both or none of ``phi`` and ``threshold``,
            or one outside its domain; as :func:`~decaysketch.ecm.point_queries.counts`.
        UnanswerableQueryError: more nodes than ``most`` may reach the threshold, or any key may,
            because of the weight rejected as too late.
    """
    confidence = check_confidence(confidence)
    check_estimator(estimator)
    bits = key_bits(grid, "heavy hitters")
    all_ = total(grid)
    low, high = thresholds(phi, threshold, all_)
    check_late(grid, low)
    levels = [np.zeros(0, np.uint64)]
    if all_.upper >= low and all_.upper > 0.0:
        levels = [np.zeros(1, np.uint64), *reaching(grid, bits, low - grid.refused, most)]
    keys = levels[-1]
    found = counts(grid, keys, confidence=confidence, estimator=estimator)
    # A key that never came may be found because it collides with heavy ones in all rows. So the
    # risk is divided among all keys that were checked, which the layers above decide.
    each = 1.0 - (1.0 - confidence) / max(checked(grid, levels, bits)[-1], 1)
    together = replace(found, confidence=each)
    order = np.lexsort((keys, -found.value))
    return HeavyKeys(low, keys[order], found[order], (together.lower >= high)[order])


def thresholds(phi: float | None, threshold: float | None, all_: Estimate) -> tuple[float, float]:
    """The smallest and the largest count that the threshold may be."""
    if (phi is None) == (threshold is None):
        raise ParameterError(f"phi is {phi!r} and threshold is {threshold!r}; expected one of them")
    if phi is not None:
        share = _number("phi", phi)
        if not 0.0 < share <= 1.0:
            raise ParameterError(f"phi is {phi!r}; expected a number above 0, at most 1")
        # The product may be rounded up; where all that is sure is that there may be something, any
        # key of which there may be something may reach the share.
        return max(math.nextafter(share * all_.lower, 0.0), math.ulp(0.0)), share * all_.upper
    least = _number("threshold", threshold)
    if not 0.0 < least < math.inf:
        raise ParameterError(f"threshold is {threshold!r}; expected a finite number above 0")
    return least, least


def check_late(grid: Grid, threshold: float) -> None:
    """Raise :class:`UnanswerableQueryError` if any key may reach a threshold, because of the weight
    rejected as too late.
    """
    if grid.refused > 0.0 and grid.refused >= threshold:
        raise UnanswerableQueryError(
            f"threshold is {threshold:.6g}, and {grid.refused:.6g} came too late to be counted: "
            "any key may reach it"
        )


def reaching(grid: Grid, bits: int, threshold: float, most: int) -> Iterator[UInt64Array]:
    """For each layer below the root, return all nodes that may reach a threshold, as their parents
    do. A layer without counts has none.
    """
    nodes, above = np.zeros(1, np.uint64), bits
    threshold = max(threshold, math.ulp(0.0))
    for layer in grid.layers[1:]:
        shift = layer.layer.shift
        _check_nodes(1 << (above - shift))
        step = max(1, _CHUNK >> (above - shift))
        kept: list[UInt64Array] = []
        count = 0
        for start in range(0, len(nodes), step):
            for children in _children(nodes[start : start + step], above - shift):
                ends = layer.least(layer.hi, children << np.uint64(shift))
                kept.append(children[ends >= threshold])
                count += len(kept[-1])
            if count > most:
                raise UnanswerableQueryError(
                    f"more than {most} nodes may reach a threshold of {threshold:.6g}; ask for a "
                    "higher one"
                )
        nodes, above = np.concatenate(kept) if kept else nodes[:0], shift
        yield nodes


def checked(grid: Grid, levels: Sequence[UInt64Array], bits: int) -> list[int]:
    """The number of nodes that a descent checked in each layer, in cells that they share.

    Args:
        levels: the nodes that it passed, root first.
        bits: of a key.
    """
    found, above = [1], bits
    for parents, grids in zip(levels, grid.layers[1:], strict=False):
        shift = grids.layer.shift
        found.append(len(parents) << (above - shift) if grids.layer.hashed else 0)
        above = shift
    return found


def _children(nodes: UInt64Array, fan: int, chunk: int = _CHUNK) -> Iterator[UInt64Array]:
    """All children of nodes, this number per node."""
    for start in range(0, 1 << fan, chunk):
        branches = np.arange(start, min(start + chunk, 1 << fan), dtype=np.uint64)
        yield ((nodes[:, None] << np.uint64(fan)) | branches).ravel()


# ------------------------------------------------------------------------------------------- ranges


def range_count(grid: Grid, low: int, high: int, *, confidence: float = 0.95) -> Estimate:
    """Return the decayed count of the keys from ``low`` to ``high``, both inclusive.

    Args:
        grid: grid for one decay and time, from a sketch with ``key_bits``.
        low, high: integers, ``0 <= low <= high < 2^key_bits``.
        confidence: of the interval.

    Returns: An estimate. Its guaranteed upper bound is the sum of the bounds of its nodes. O(depth
        F) for each layer.

    Raises:
        ParameterError: the sketch has no ``key_bits``, or the keys are outside their domain.
        UnanswerableQueryError: the range has more than 2^22 nodes in one layer.
    """
    confidence = check_confidence(confidence)
    bits = key_bits(grid, "a range")
    first, last = _check_key("low", low, bits), _check_key("high", high, bits)
    if first > last:
        raise ParameterError(f"low is {low} and high is {high}; expected low <= high")
    return _range(_rests(grid, bits), bits, first, last).estimate(grid, confidence)


def rank(grid: Grid, key: int, *, confidence: float = 0.95) -> Estimate:
    """Return a key's relative rank: the share of keys up to and including it in the decayed count.

    NaN if the total is 0. Errors as :func:`range_count`.
    """
    confidence = check_confidence(confidence)
    bits = key_bits(grid, "a rank")
    found = _range(_rests(grid, bits), bits, 0, _check_key("key", key, bits))
    return share_of(found.estimate(grid, confidence), total(grid))


def quantile(grid: Grid, q: float, *, confidence: float = 0.95) -> Estimate:
    """Return approximately the smallest key with relative rank ``q`` or more.

    Args:
        grid: grid for one decay and time, from a sketch with ``key_bits``.
        q: relative rank, 0..1.
        confidence: of the interval.

    Returns: An estimate whose value and bounds are keys as float64, so rounded above 2^53. The
        interval covers the ranks that the quantile may have, read as keys. It has no guaranteed
        bound. NaN if the total is 0. O(depth F) for each layer.

    Raises:
        ParameterError: the sketch has no ``key_bits``, or another ``q``.
        UnanswerableQueryError: nodes have more than 2^22 children.
    """
    confidence = check_confidence(confidence)
    bits = key_bits(grid, "a quantile")
    share = _number("q", q)
    if not 0.0 <= share <= 1.0:
        raise ParameterError(f"q is {q!r}; expected a number of 0..1")
    all_ = total(grid)
    depth = grid.leaf.layer.depth
    if not all_.value > 0.0:
        return Estimate(
            math.nan, 0.0, float((1 << bits) - 1), math.nan, confidence, all_.exact, depth, 0.0,
            grid.caveats,
        )  # fmt: skip
    rests = _rests(grid, bits)
    key = _key_of(rests, bits, share * all_.value)
    around = _around(rests, bits, key)
    below, above = around.reaches(grid, confidence)
    # Where the count up to the quantile is estimated too low, it is that of a smaller key.
    lower = _key_of(rests, bits, share * all_.lower - grid.refused - above)
    upper = _key_of(rests, bits, share * all_.upper + grid.moved + below)
    exact = around.variance == 0.0 and all_.exact and lower == upper
    ends = (float(lower), float(upper))
    return Estimate(
        value=float(key),
        lower=ends[0],
        upper=ends[1],
        stderr=(ends[1] - ends[0]) / (2.0 * ndtri(0.5 + 0.5 * confidence)),
        confidence=confidence,
        exact=exact,
        rows=depth,
        collision_bias=0.0,
        caveats=grid.caveats,
    )


class _Sum(NamedTuple):
    """The total count over nodes."""

    value: float
    variance: float
    third: float  # cumulant, over the square of the total
    least: float  # surely
    most: float  # surely

    def __add__(self, other: object) -> Self:
        assert isinstance(other, _Sum)
        return type(self)(*map(sum, zip(self, other, strict=True)))

    @property
    def deviation(self) -> float:
        """Standard error."""
        return math.sqrt(self.variance)

    def reaches(self, grid: Grid, confidence: float) -> tuple[float, float]:
        """The distances from the value down and up to the interval's bounds.

        Skewness moves one bound out, and leaves the other: a distribution that few heavy
        collisions skew is normal without them, and they are no reason for a tighter bound.
        """
        normal = ndtri(0.5 + 0.5 * confidence)
        reach = normal * self.deviation
        relative = self.variance / grid.most / grid.most if self.third else 0.0
        if not relative > 0.0:
            return reach, reach
        shift = max(normal * normal - 1.0, 0.0) / 6.0 * self.third / relative
        return reach + max(shift, 0.0), reach + max(-shift, 0.0)

    def estimate(self, grid: Grid, confidence: float) -> Estimate:
        """The estimate with its interval, between its guaranteed bounds."""
        least = max(self.least - grid.moved, 0.0)
        counted = min(self.most, grid.most)
        most = counted + grid.refused
        value = min(max(self.value, self.least), counted)
        below, above = self.reaches(grid, confidence)
        return Estimate(
            value=value,
            lower=min(max(value - below - grid.moved, least), most),
            upper=max(min(value + above + grid.refused, most), least),
            stderr=self.deviation,
            confidence=confidence,
            exact=is_exact(least, most),
            rows=grid.leaf.layer.depth,
            collision_bias=0.0,
            caveats=grid.caveats,
            sure_upper=most,
        )


class _Row(NamedTuple):
    """A row of a layer, with the heavy nodes that its other rows find subtracted from its cells."""

    cells: Float64Array  # float64[width], of the rest
    heavy: UInt64Array  # numbers of the subtracted nodes, rising
    counted: Float64Array  # float64[h], their subtracted counts
    total: float  # of the rest
    squares: float  # self-join of the rest
    third: float  # cumulant of a cell of the rest, over the square of the total

    @classmethod
    def of(
        cls, cells: Float64Array, columns: npt.NDArray[np.uint32], heavy: UInt64Array,
        counted: Float64Array, all_: float,
    ) -> Self:  # fmt: skip
        cells = cells.copy()
        np.subtract.at(cells, columns, counted)
        width, total = len(cells), float(cells.sum())
        squares = float(cells @ cells)
        # A single cell only gives the square of the total.
        squares = total * total if width == 1 else (width * squares - total * total) / (width - 1)
        apart = cells - total / width
        third = float(((apart / all_) ** 2 * apart).mean()) if 0.0 < all_ < math.inf else 0.0
        return cls(cells, heavy, counted, total, max(squares, 0.0), third)

    def between(self, first: int, end: int) -> slice:
        """Which heavy nodes are from ``first`` to ``end - 1``."""
        start = int(self.heavy.searchsorted(np.uint64(first)))
        return slice(start, int(self.heavy.searchsorted(np.uint64(end - 1), side="right")))

    def unbiased(self, cells: Float64Array | float, nodes: int) -> Float64Array | float:
        """The rest that nodes count, from the sum of their cells."""
        width = len(self.cells)
        return (width * cells - nodes * self.total) / max(width - 1, 1)


class _Rest(NamedTuple):
    """A hashed layer, with heavy nodes subtracted from each row's cells."""

    grid: LayerGrid
    rows: tuple[_Row, ...]

    @classmethod
    def of(
        cls, grid: LayerGrid, above: LayerGrid, parents: UInt64Array, fan: int, threshold: float,
        all_: float,
    ) -> Self:  # fmt: skip
        """Subtract from each row the children (of nodes in the layer above) that reach a threshold
        in all other rows, together no more than their parent's count. Subtract nothing if there is
        one row only, or more than 2^20 children.
        """
        depth = grid.layer.depth
        found = [_NOTHING] * depth
        if depth > 1 and len(parents) << fan <= _MOST_LOOKED:
            found = _heavy(grid, parents, fan, threshold)
        counts = above.least(above.value, parents << np.uint64(fan) << np.uint64(grid.layer.shift))
        rows = []
        for row, (heavy, counted) in enumerate(found):
            counted = _within(counted, parents.searchsorted(heavy >> np.uint64(fan)), counts)
            columns = grid.columns(heavy << np.uint64(grid.layer.shift))[row]
            rows.append(_Row.of(grid.value[row], columns, heavy, counted, all_))
        return cls(grid, tuple(rows))


_NOTHING: tuple[UInt64Array, Float64Array] = (np.zeros(0, np.uint64), np.zeros(0))


def _heavy(
    grid: LayerGrid, parents: UInt64Array, fan: int, threshold: float
) -> list[tuple[UInt64Array, Float64Array]]:
    """For each row, return the children that its other rows find heavy, rising, and their counts
    there.

    A child with a multiple of the threshold is not heavy if the row's own cell does not even reach
    the threshold once: its other cells belong to heavier children.
    """
    depth = grid.layer.depth
    found = [[_NOTHING] for _ in range(depth)]
    noises = [collision_error.most(np.delete(grid.ranked, row, 0), 0.5) for row in range(depth)]
    chunk = _CHUNK // depth
    step = max(1, chunk >> fan)
    for start in range(0, len(parents), step):
        for nodes in _children(parents[start : start + step], fan, chunk):
            columns = grid.columns(nodes << np.uint64(grid.layer.shift)).astype(np.intp)
            values = np.take_along_axis(grid.value, columns, axis=1)
            ends = _of_others(np.take_along_axis(grid.hi, columns, axis=1))
            least = _of_others(values)
            for row in range(depth):
                counted = least[row] - noises[row]
                some = (ends[row] >= threshold) & (counted > 0.0)
                some &= (values[row] >= threshold) | (counted < _MULTIPLE * threshold)
                found[row].append((nodes[some], counted[some]))
    return [
        (np.concatenate([nodes for nodes, _ in each]), np.concatenate([c for _, c in each]))
        for each in found
    ]


def _within(
    counted: Float64Array, parent: npt.NDArray[np.intp], most: Float64Array
) -> Float64Array:
    """Return the nearest counts, 0 or more, such that children sum to at most their parent's count.

    The true counts satisfy this, and a projection on a convex set moves no further from any point
    in it.

    Args:
        counted: float64[h].
        parent: int[h], not falling.
        most: float64, by parent.
    """
    if not len(counted):
        return counted
    order = np.lexsort((-counted, parent))
    starts = np.flatnonzero(np.diff(parent, prepend=-1))
    sizes = np.diff(starts, append=len(parent))
    place = np.arange(len(parent)) - np.repeat(starts, sizes)
    summed = np.cumsum(counted[order])
    summed -= np.repeat(summed[starts] - counted[order][starts], sizes)
    level = np.maximum.reduceat((summed - most[parent]) / (place + 1), starts)
    inside: Float64Array = np.maximum(counted - np.repeat(np.maximum(level, 0.0), sizes), 0.0)
    return inside


def _of_others(cells: Float64Array) -> Float64Array:
    """For each row, the minimum over the other rows: float64[depth, m], for at least two rows."""
    least, second = np.partition(cells, 1, axis=0)[:2]
    others = np.broadcast_to(least, cells.shape).copy()
    np.put_along_axis(others, cells.argmin(axis=0)[None], second[None], axis=0)
    return others


def _rests(grid: Grid, bits: int) -> list[_Rest | LayerGrid]:
    """All layers, root first. Direct layers stay unchanged."""
    width = max(grid.leaf.layer.width, 2)
    # The noise of a node is the noise of its cell: about 1 / w of the total, and heavy nodes.
    threshold = grid.most * max(2.0 / width, 1.0 / _MOST_HEAVY)
    rests: list[_Rest | LayerGrid] = [grid.root]
    parents, above = np.zeros(1, np.uint64), bits
    found = reaching(grid, bits, threshold, _MOST_NODES)
    for layer, nodes in zip(grid.layers[1:], found, strict=True):
        fan = above - layer.layer.shift
        rests.append(
            _Rest.of(layer, grid.layers[len(rests) - 1], parents, fan, threshold, grid.most)
            if layer.layer.hashed
            else layer
        )
        parents, above = nodes, layer.layer.shift
    return rests


def _range(rests: list[_Rest | LayerGrid], bits: int, low: int, high: int) -> _Sum:
    """Keys from low to high, as the fewest possible nodes, the coarsest first."""
    pieces = [(low, high)]
    found = _Sum(0.0, 0.0, 0.0, 0.0, 0.0)
    for rest in rests:
        shift = min((rest.grid if isinstance(rest, _Rest) else rest).layer.shift, bits)
        left = []
        for start, stop in pieces:
            first, end = -(-start >> shift), (stop + 1) >> shift
            if first >= end:
                left.append((start, stop))
                continue
            found = found + _nodes(rest, first, end)
            if start < first << shift:
                left.append((start, (first << shift) - 1))
            if end << shift <= stop:
                left.append((end << shift, stop))
        pieces = left
    return found


def _nodes(rest: _Rest | LayerGrid, first: int, end: int) -> _Sum:
    """The nodes ``first`` to ``end - 1`` of a layer."""
    if isinstance(rest, LayerGrid):
        part = slice(first, end)
        lo, hi, value = (float(cells[0, part].sum()) for cells in (rest.lo, rest.hi, rest.value))
        return _Sum(value, float((rest.gap_deviation[0, part] ** 2).sum()), 0.0, lo, hi)
    grid, nodes = rest.grid, end - first
    depth, width = grid.layer.depth, grid.layer.width
    words = _words(grid.layer.shift, first, end)
    hits = np.array([np.bincount(row, minlength=width) for row in grid.columns(words)])
    others = max(width - 1, 1)
    off = np.array([row.counted[row.between(first, end)].sum() for row in rest.rows])
    light = [row.unbiased(row.cells @ hit, nodes) for row, hit in zip(rest.rows, hits, strict=True)]
    value = float((off + np.array(light)).mean())
    squares = sum(row.squares for row in rest.rows) * nodes
    squares += max(1.0 - 2.0 / nodes, 0.0) * float(((value - off) ** 2).sum())
    by_cell = (hits * width - nodes) / others * grid.gap_deviation
    return _Sum(
        value,
        squares / (others * depth**2) + float((by_cell * by_cell).sum(axis=1).mean()),
        nodes * sum(row.third for row in rest.rows) / depth**3,
        0.0,
        float(grid.least(grid.hi, words).sum()),
    )


def _key_of(rests: list[_Rest | LayerGrid], bits: int, target: float) -> int:
    """The smallest key up to which the keys' count reaches this: down the tree, by cumulated
    children.
    """
    node, above = 0, bits
    for rest in rests[1:]:
        shift = (rest.grid if isinstance(rest, _Rest) else rest).layer.shift
        fan = above - shift
        cumulated = _cumulated(rest, node << fan, (node + 1) << fan)
        child = int(cumulated.searchsorted(max(target, math.ulp(0.0)), side="left"))
        if child == len(cumulated):  # the total is below the requested count
            child = int(cumulated.searchsorted(cumulated[-1], side="left"))
        target -= float(cumulated[child - 1]) if child else 0.0
        node, above = (node << fan) | child, shift
    return node


def _around(rests: list[_Rest | LayerGrid], bits: int, key: int) -> _Sum:
    """How far the count up to a key, and to keys around it, may err: in each layer at least half of
    a node's children.
    """
    above, found = bits, _Sum(0.0, 0.0, 0.0, 0.0, 0.0)
    for rest in rests[1:]:
        shift = (rest.grid if isinstance(rest, _Rest) else rest).layer.shift
        children = 1 << (above - shift)
        first = key >> above << (above - shift)
        nodes = max((key >> shift) - first, children >> 1)
        found = found + _nodes(rest, first, first + nodes)
        above = shift
    return found


def _cumulated(rest: _Rest | LayerGrid, first: int, end: int) -> Float64Array:
    """Counts from node ``first`` to each following node, up to ``end - 1``: not falling."""
    if isinstance(rest, LayerGrid):
        return np.cumsum(rest.value[0, first:end])
    columns = rest.grid.columns(_words(rest.grid.layer.shift, first, end)).astype(np.intp)
    each = np.zeros(end - first)
    for row, places in zip(rest.rows, columns, strict=True):
        each += row.unbiased(row.cells[places], 1)
        inside = row.between(first, end)
        each[(row.heavy[inside] - np.uint64(first)).astype(np.intp)] += row.counted[inside]
    cumulated = np.cumsum(each / len(rest.rows))
    # Neither of these falls, and noise lifts the one as it lowers the other.
    above = np.maximum.accumulate(cumulated)
    below = np.minimum.accumulate(cumulated[::-1])[::-1]
    return np.maximum(0.5 * (above + below), 0.0)


def _words(shift: int, first: int, end: int) -> UInt64Array:
    """The first keys of nodes."""
    _check_nodes(end - first)
    offsets = np.arange(end - first, dtype=np.uint64)
    return (np.uint64(first) + offsets) << np.uint64(shift)


# ----------------------------------------------------------------------------------------- checking


def _check_nodes(nodes: int) -> None:
    if nodes > _MOST_NODES:
        raise UnanswerableQueryError(
            f"{nodes} nodes of one layer would have to be looked at together; expected at most "
            f"{_MOST_NODES}: a sketch with fewer fanout_bits answers it"
        )


def key_bits(grid: Grid, asked: str) -> int:
    if grid.key_bits is None:
        raise ParameterError(
            f"key_bits is None; {asked} needs a sketch of integer keys, built with key_bits"
        )
    return grid.key_bits


def _check_key(name: str, key: object, bits: int) -> int:
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool) and key >> bits:
        raise ParameterError(
            f"{name} is {key}; expected an integer of 0 to 2^{bits} - 1, as key_bits says"
        )
    return check_word(name, key)


def _number(name: str, value: object) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(
        value, (int, float, np.integer, np.floating)
    ):
        raise ParameterError(f"{name} is {value!r}; expected a number")
    return float(value)
