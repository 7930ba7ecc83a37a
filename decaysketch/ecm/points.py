"""Counts of keys, of all keys together, and shares: what a grid says of one key or of a million.

A key's cells, one in each row, hold its count and what others add. So the least upper end of them
is surely not below the count, and no probability is in that. The paper's estimate is the least
value (Papapetrou, Garofalakis and Deligiannakis 2015, section 4.1), which is too much whenever
every cell is shared; here the median of the least noise is taken off it, 0 at least (``"minimum"``
is the paper's). The interval: :mod:`decaysketch.ecm.noise`; for the paper's estimate, Markov's
lower end and the sure upper one.

What is taken off every cell of a row is taken off the least of them, so each end is one look at
cells that were prepared once: a count costs O(depth), and an end that nobody reads nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
import numpy.typing as npt

from decaysketch.answers.estimate import Estimate, check_confidence
from decaysketch.ecm import noise
from decaysketch.ecm.grids import Estimator, Grid, check_estimator, is_exact
from decaysketch.errors import ParameterError

__all__ = ["Counts", "check_words", "count", "counts", "share", "total"]

BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]
UInt64Array = npt.NDArray[np.uint64]
Rows = slice | BoolArray | npt.NDArray[np.intp]

_UNIFORM = math.sqrt(12.0)  # a width over the standard deviation of what lies anywhere in it


@dataclass(frozen=True, eq=False, repr=False)
class Counts:
    """Decayed counts of keys, with their intervals, as columns; an entry is an :class:`Estimate`.

    Ends are computed when they are first read.

    Attributes:
        value: float64[m], the estimates.
        confidence: of each interval; they are not joint ones.
    """

    value: Float64Array
    confidence: float
    _grid: Grid
    _words: UInt64Array
    _estimator: Estimator

    @cached_property
    def lower(self) -> Float64Array:
        """float64[m], lower ends, 0 at least."""
        ends = self._grid.interval(self.confidence, self._estimator)[0]
        return np.maximum(self._least(ends) - self._grid.moved, 0.0)

    @cached_property
    def upper(self) -> Float64Array:
        """float64[m], upper ends, none above the sure one."""
        ends = self._grid.interval(self.confidence, self._estimator)[1]
        return self._least(ends) + self._grid.refused

    @cached_property
    def sure_upper(self) -> Float64Array:
        """float64[m]: no count is larger, with certainty."""
        return self._least(self._grid.leaf.hi) + self._grid.refused

    @cached_property
    def sure_lower(self) -> Float64Array:
        """float64[m]: no count is smaller, with certainty; 0 for a cell that keys share."""
        if self._grid.leaf.layer.hashed:
            return np.zeros(len(self))
        return np.maximum(self._least(self._grid.leaf.lo) - self._grid.moved, 0.0)

    @cached_property
    def stderr(self) -> Float64Array:
        """float64[m], standard errors: of the noise, and of the cell's own count."""
        leaf = self._grid.leaf
        gap = (self._least(leaf.hi) - self._least(leaf.lo)) / _UNIFORM
        if not leaf.layer.hashed:
            return gap
        centre = leaf.median_noise if self._estimator == "debiased" else 0.0
        return np.hypot(gap, noise.spread(leaf.ranked, centre))

    @cached_property
    def exact(self) -> BoolArray:
        """bool[m]: the sure ends are one."""
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
    """The decayed counts of keys.

    Args:
        grid: of one decay and time.
        words: uint64[m], hashed keys; where the grid has ``key_bits``, the keys themselves.
        confidence: of each interval.
        estimator: "debiased" (default), or "minimum", the paper's, whose value errs upwards by as
            much as the keys of its cells have.

    Returns:
        O(depth) for each key, and as much again for each end that is read. By the paper's lemma 3
        the minimum is off by more than ``eps ||a||`` with a chance of at most delta, in a sketch
        of that accuracy.

    Raises:
        ParameterError: a confidence that is none, another estimator, words that are not uint64, or
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
    """The decayed count of one key; arguments and errors as :func:`counts`."""
    words = np.array([check_word("key", word)], np.uint64)
    return counts(grid, words, confidence=confidence, estimator=estimator)[0]


def total(grid: Grid, *, confidence: float = 0.95) -> Estimate:
    """The decayed count of all events, ``||a||``. Both of its ends are sure.

    Raises:
        ParameterError: a confidence that is none.
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
    """The share of one key in the decayed count of all events; NaN where there are none.

    The ends are those of its count over the sure ends of the total. Arguments and errors as
    :func:`counts`.
    """
    part = count(grid, word, confidence=confidence, estimator=estimator)
    return share_of(part, total(grid))


def share_of(part: Estimate, whole: Estimate) -> Estimate:
    """An estimate of a part of a total, over it. The ends of the total are sure."""
    if not whole.upper > 0.0:
        return Estimate(
            value=math.nan, lower=0.0, upper=1.0, stderr=math.nan, confidence=part.confidence,
            exact=whole.exact, rows=part.rows, collision_bias=0.0, caveats=part.caveats,
            sure_upper=1.0,
        )  # fmt: skip
    assert part.sure_upper is not None
    upper = _ratio(part.upper, whole.lower)
    lower = part.lower / whole.upper
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
    """Words as a contiguous column, each a key that the grid may have.

    Raises:
        ParameterError: they are no column of uint64, or a key is beyond ``key_bits``.
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
    """One word, or integer key, as an int.

    Raises:
        ParameterError: it is no integer of 64 bits.
    """
    if isinstance(word, (bool, np.bool_)) or not isinstance(word, (int, np.integer)):
        raise ParameterError(f"{name} is {word!r}; expected an integer")
    if not 0 <= word < 1 << 64:
        raise ParameterError(f"{name} is {word}; expected at least 0 and below 2^64")
    return int(word)
