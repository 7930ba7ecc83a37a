"""Key counts, the total, and shares, from a grid, for one key or a million.

A key's cells, one per row, contain its count and the counts of other keys. So the smallest upper
bound among them is guaranteed not to be below the count, and no probability is involved. The
paper's estimate is the smallest value (Papapetrou, Garofalakis and Deligiannakis 2015, section
4.1), which is too large whenever every cell is shared. Here the median of the smallest noise is
subtracted from it, with 0 as the minimum (``"minimum"`` is the paper's estimate). For the interval
see :mod:`decaysketch.ecm.collision_error`. For the paper's estimate it is Markov's lower bound and
the guaranteed upper bound.

Subtracting from every cell in a row is the same as subtracting from the smallest. So each bound
reads cells that were prepared once: a count costs O(depth), and an unread bound costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
import numpy.typing as npt

from decaysketch.ecm import collision_error
from decaysketch.ecm.matrix import Estimator, Grid, check_estimator, is_exact
from decaysketch.errors import ParameterError
from decaysketch.query.estimate import Estimate, check_confidence

__all__ = ["Counts", "check_words", "count", "counts", "share", "total"]

BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]
UInt64Array = npt.NDArray[np.uint64]
Rows = slice | BoolArray | npt.NDArray[np.intp]

_UNIFORM = math.sqrt(12.0)  # width over standard deviation of a uniform distribution


@dataclass(frozen=True, eq=False, repr=False)
class Counts:
    """Decayed key counts, with their intervals, as columns. An entry is an :class:`Estimate`.

    Bounds are computed when they are first read.

    Attributes:
        value: float64[m], the estimates.
        confidence: of each interval. The intervals are not joint.
    """

    value: Float64Array
    confidence: float
    _grid: Grid
    _words: UInt64Array
    _estimator: Estimator

    @cached_property
    def lower(self) -> Float64Array:
        """float64[m], lower bounds, at least 0."""
        ends = self._grid.interval(self.confidence, self._estimator)[0]
        return np.maximum(self._least(ends) - self._grid.moved, 0.0)

    @cached_property
    def upper(self) -> Float64Array:
        """float64[m], upper bounds, none above the guaranteed one."""
        ends = self._grid.interval(self.confidence, self._estimator)[1]
        return self._least(ends) + self._grid.refused

    @cached_property
    def sure_upper(self) -> Float64Array:
        """float64[m]: guaranteed upper bounds."""
        return self._least(self._grid.leaf.hi) + self._grid.refused

    @cached_property
    def sure_lower(self) -> Float64Array:
        """float64[m]: guaranteed lower bounds. 0 for a cell that keys share."""
        if self._grid.leaf.layer.hashed:
            return np.zeros(len(self))
        return np.maximum(self._least(self._grid.leaf.lo) - self._grid.moved, 0.0)

    @cached_property
    def stderr(self) -> Float64Array:
        """float64[m], standard errors from the noise and from the cell's own count."""
        leaf = self._grid.leaf
        gap = (self._least(leaf.hi) - self._least(leaf.lo)) / _UNIFORM
        if not leaf.layer.hashed:
            return gap
        centre = leaf.median_noise if self._estimator == "debiased" else 0.0
        return np.hypot(gap, collision_error.spread(leaf.ranked, centre))

    @cached_property
    def exact(self) -> BoolArray:
        """bool[m]: the guaranteed bounds are equal."""
        exact: BoolArray = is_exact(self.sure_lower, self.sure_upper)
        return exact

    def _least(self, cells: Float64Array) -> Float64Array:
        return self._grid.leaf.least(cells, self._words)

    def __len__(self) -> int:
        return len(self.value)

    @overload
    def __getitem__(self, item: int) -> Estimate: ...

    @overload
    def __getitem__(self, item: Rows) -> Counts: ...

    def __getitem__(
        self, item: int | slice | BoolArray | npt.NDArray[np.intp]
    ) -> Estimate | Counts:
        if not isinstance(item, (int, np.integer)):
            return Counts(
                self.value[item], self.confidence, self._grid, self._words[item], self._estimator
            )
        return Estimate(
            value=float(self.value[item]),
            lower=float(self.lower[item]),
            upper=float(self.upper[item]),
            stderr=float(self.stderr[item]),
            confidence=self.confidence,
            exact=bool(self.exact[item]),
            rows=self._grid.leaf.layer.depth,
            collision_bias=0.0,
            caveats=self._grid.caveats,
            sure_upper=float(self.sure_upper[item]),
        )

    def __iter__(self) -> Iterator[Estimate]:
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        return f"Counts({len(self)} keys, {100 * self.confidence:.4g} %)"


def counts(
    grid: Grid,
    words: UInt64Array,
    *,
    confidence: float = 0.95,
    estimator: Estimator = "debiased",
) -> Counts:
    """Return the decayed counts of keys.

    Args:
        grid: grid for one decay and time.
        words: uint64[m], hashed keys. If the grid has ``key_bits``, the keys themselves.
        confidence: of each interval.
        estimator: "debiased" (default), or "minimum" as in the paper. Its value errs upwards by the
            counts of the other keys in its cells.

    Returns:
        O(depth) for each key, and as much again for each bound that is read. By the paper's lemma 3
        the minimum is off by more than ``eps ||a||`` with a chance of at most delta, in a sketch
        with that accuracy.

    Raises:
        ParameterError: an invalid confidence, another estimator, words that are not uint64, or
            a key beyond ``key_bits``.
    """
    confidence = check_confidence(confidence)
    check_estimator(estimator)
    words = check_words(grid, words)
    leaf = grid.leaf
    cells = leaf.debiased if estimator == "debiased" else leaf.value
    return Counts(leaf.least(cells, words), confidence, grid, words, estimator)


def count(
    grid: Grid, word: int, *, confidence: float = 0.95, estimator: Estimator = "debiased"
) -> Estimate:
    """Return the decayed count of one key. Arguments and errors as :func:`counts`."""
    words = np.array([check_word("key", word)], np.uint64)
    return counts(grid, words, confidence=confidence, estimator=estimator)[0]


def total(grid: Grid, *, confidence: float = 0.95) -> Estimate:
    """Return the decayed count of all events, ``||a||``. Both bounds are guaranteed.

    Raises:
        ParameterError: an invalid confidence.
    """
    confidence = check_confidence(confidence)
    root = grid.root
    lower, upper = max(float(root.lo[0, 0]) - grid.moved, 0.0), grid.most + grid.refused
    return Estimate(
        value=float(root.value[0, 0]),
        lower=lower,
        upper=upper,
        stderr=(upper - lower) / _UNIFORM,
        confidence=confidence,
        exact=is_exact(lower, upper),
        rows=1,
        collision_bias=0.0,
        caveats=grid.caveats,
        sure_upper=upper,
    )


def share(
    grid: Grid, word: int, *, confidence: float = 0.95, estimator: Estimator = "debiased"
) -> Estimate:
    """Return one key's share in the decayed count of all events. NaN if the total is 0.

    The bounds are those of its count over the guaranteed bounds of the total. Arguments and errors
    as :func:`counts`.
    """
    part = count(grid, word, confidence=confidence, estimator=estimator)
    return share_of(part, total(grid))


def share_of(part: Estimate, whole: Estimate) -> Estimate:
    """An estimate for part of a total, divided by the total, whose bounds are guaranteed."""
    if not whole.upper > 0.0:
        return Estimate(
            value=math.nan, lower=0.0, upper=1.0, stderr=math.nan, confidence=part.confidence,
            exact=whole.exact, rows=part.rows, collision_bias=0.0, caveats=part.caveats,
            sure_upper=1.0,
        )  # fmt: skip
    assert part.sure_upper is not None
    upper = _ratio(part.upper, whole.lower)
    lower = part.lower / whole.upper
    value = math.nan
    if whole.value > 0.0:
        value = min(max(_ratio(part.value, whole.value), lower), upper)
    return Estimate(
        value=value,
        lower=lower,
        upper=upper,
        stderr=_ratio(part.stderr, whole.value),
        confidence=part.confidence,
        exact=part.exact and whole.exact,
        rows=part.rows,
        collision_bias=0.0,
        caveats=part.caveats,
        sure_upper=_ratio(part.sure_upper, whole.lower),
    )


def _ratio(part: float, whole: float) -> float:
    return min(part / whole, 1.0) if whole > 0.0 else 1.0


def check_words(grid: Grid, words: UInt64Array) -> UInt64Array:
    """Return words as a contiguous column, each a valid key for the grid.

    Raises:
        ParameterError: they are not a uint64 column, or a key is beyond ``key_bits``.
    """
    if not isinstance(words, np.ndarray) or words.dtype != np.uint64 or words.ndim != 1:
        raise ParameterError(f"words is {words!r}; expected a column of uint64")
    if grid.key_bits is not None and grid.key_bits < 64:
        largest = int(words.max(initial=0))
        if largest >> grid.key_bits:
            raise ParameterError(
                f"key is {largest}; expected an integer below 2^{grid.key_bits}, as key_bits says"
            )
    return np.ascontiguousarray(words)


def check_word(name: str, word: object) -> int:
    """Return one word, or integer key, as an int.

    Raises:
        ParameterError: it is not a 64-bit integer.
    """
    if isinstance(word, (bool, np.bool_)) or not isinstance(word, (int, np.integer)):
        raise ParameterError(f"{name} is {word!r}; expected an integer")
    if not 0 <= word < 1 << 64:
        raise ParameterError(f"{name} is {word}; expected at least 0 and below 2^64")
    return int(word)
