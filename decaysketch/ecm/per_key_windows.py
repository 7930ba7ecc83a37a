"""Counts of many keys, each with its own window.

A grid belongs to one window, and the noise from other keys is estimated from all its cells. If
every key had another window there would be as many grids as keys. So here a count is searched among
the kept times in the key's own cells, which are listed once per state
(:meth:`~decaysketch.ecm.cells.Cells.each`). The result uses these cells alone. The smallest upper
bound is guaranteed not to be below the count. The value is the paper's minimum (Papapetrou,
Garofalakis and Deligiannakis 2015, section 4.1), too large whenever every cell is shared. The
lower bound is Markov's. The minimum over the cells is computed in each lane and source separately.
That is at most the minimum over their sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from decaysketch.core.observations import TIME_LIMIT, check_within, integer_column
from decaysketch.core.row_check import Limit
from decaysketch.ecm import collision_error
from decaysketch.ecm.levels import Layer
from decaysketch.ecm.matrix import Counters, Held
from decaysketch.errors import ParameterError
from decaysketch.query.estimate import Estimate

__all__ = ["WindowCounts", "starts_of", "widths_of", "window_counts"]

BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
Rows = slice | BoolArray | npt.NDArray[np.intp]

_UNIFORM = math.sqrt(12.0)  # width over standard deviation of a uniform distribution
_ROUNDING = 2.0**-40  # relative, of sums of float64
_WIDEST = (1 << 63) - 1


@dataclass(frozen=True, eq=False, repr=False)
class WindowCounts:
    """Key counts in windows, with their bounds, as columns. An entry is an :class:`Estimate`.

    Attributes:
        value: float64[m], the paper's minimum.
        upper: float64[m]: guaranteed upper bounds.
        confidence: that a count is not below its lower bound.
    """

    value: Float64Array
    upper: Float64Array
    confidence: float
    _rows: int
    _lower: Callable[[], Float64Array]

    @cached_property
    def lower(self) -> Float64Array:
        """float64[m], lower bounds, at least 0. Computed when first read."""
        return self._lower()

    @property
    def sure_upper(self) -> Float64Array:
        """:attr:`upper`."""
        return self.upper

    @property
    def stderr(self) -> Float64Array:
        """float64[m], for a count that lies anywhere between its bounds."""
        return (self.upper - self.lower) / _UNIFORM

    def __len__(self) -> int:
        return len(self.value)

    @overload
    def __getitem__(self, item: int) -> Estimate: ...

    @overload
    def __getitem__(self, item: Rows) -> WindowCounts: ...

    def __getitem__(self, item: int | Rows) -> Estimate | WindowCounts:
        if not isinstance(item, (int, np.integer)):
            return WindowCounts(
                self.value[item], self.upper[item], self.confidence, self._rows,
                lambda: self.lower[item],
            )  # fmt: skip
        lower, upper = float(self.lower[item]), float(self.upper[item])
        return Estimate(
            value=float(self.value[item]),
            lower=lower,
            upper=upper,
            stderr=(upper - lower) / _UNIFORM,
            confidence=self.confidence,
            exact=upper == 0.0,
            rows=self._rows,
            collision_bias=0.0,
            sure_upper=upper,
        )

    def __iter__(self) -> Iterator[Estimate]:
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        return f"WindowCounts({len(self)} keys, {100 * self.confidence:.4g} %)"


def widths_of(windows: npt.ArrayLike, keys: int) -> Int64Array:
    """Return int64[keys], a width per key, from one per key or one for all.

    Raises:
        ParameterError: another number of widths.
        ObservationError: widths that are not integers, or negative.
    """
    widths = integer_column("windows", windows)
    check_within("windows", widths, Limit.named(0, _WIDEST, "2^63 - 1"))
    if len(widths) not in (1, keys):
        raise ParameterError(
            f"windows has {len(widths)} widths; expected one for each of {keys} keys"
        )
    return np.broadcast_to(widths, keys) if len(widths) == 1 else widths


def starts_of(widths: Int64Array, now: int) -> Int64Array:
    """The first time of each window ``[now - width, now]``: no event is before -2^62."""
    return np.ascontiguousarray(now - np.minimum(widths, min(now + TIME_LIMIT, _WIDEST)))


def window_counts(
    sources: Sequence[Counters],
    leaf: Layer,
    words: UInt64Array,
    starts: Int64Array,
    *,
    confidence: float,
) -> WindowCounts:
    """Return counts of keys from given times on, added over sources.

    Args:
        sources: sources in one stream, with nothing later than the query's time.
        leaf: the layer of the keys.
        words: uint64[m], the keys' words.
        starts: int64[m]. Events at ``starts[k]`` or later count for ``words[k]``.
        confidence: of the lower bounds.

    Returns:
        Columns. O(m depth log n) for each lane, and O(m log n) for the lower bounds when these are
        read. After an update O(cells slots log n).
    """
    counted = _added(sources, -1, words, starts)
    held = np.zeros(len(words))
    for source in sources:
        if source.held is not None:
            held += _held(source.held, words, starts)
    refused, moved = (float(sum(weights)) for weights in zip(*_late(sources), strict=True))

    def lower() -> Float64Array:
        """``f >= lo - share (||a|| - f)``, solved for f."""
        least = counted.lo
        if leaf.hashed:
            share = min(collision_error.markov(leaf.depth, leaf.width, 1.0 - confidence), 1.0)
            everything = _added(sources, 0, words, starts).hi if share < 1.0 else counted.hi
            rest = 1.0 - share if share < 1.0 else math.inf
            some = everything < math.inf
            least = np.where(some, (least - share * np.where(some, everything, 0.0)) / rest, 0.0)
        return np.minimum(np.maximum(least + held - moved, 0.0), value)

    value = counted.value + held
    return WindowCounts(value, counted.hi + held + refused, confidence, leaf.depth, lower)


def _late(sources: Sequence[Counters]) -> list[tuple[int, int]]:
    return [(0, 0), *((source.refused, source.moved) for source in sources)]


class _Ends(NamedTuple):
    """Guaranteed ``lo <= count <= hi`` from the smallest cells, and an estimate ``value``:
    float64[m] each.
    """

    lo: Float64Array
    hi: Float64Array
    value: Float64Array


def _added(
    sources: Sequence[Counters], layer: int, words: UInt64Array, starts: Int64Array
) -> _Ends:
    """Sums over all lanes of the smallest cells in a layer."""
    lo, hi, value = np.zeros((3, len(words)))
    rounded = 0.0
    for source in sources:
        shrunk, grown = 1.0 / (1.0 + source.slack), math.inf
        if source.slack < 1.0:
            grown = 1.0 / (1.0 - source.slack)
        rounded = _ROUNDING if source.slack > 0.0 else rounded
        for lane in source.lanes:
            least, most = (ends.astype(np.float64) for ends in lane[layer].each(words, starts))
            both = np.maximum(least + most, 1.0)
            value += 2.0 * least * most / both  # least relative error for every count
            lo += least * shrunk
            hi += np.multiply(most, grown, out=most, where=most > 0.0)
    hi *= 1.0 + rounded
    return _Ends(lo * (1.0 - rounded), hi, np.minimum(value, hi))


def _held(held: Held, words: UInt64Array, starts: Int64Array) -> Float64Array:
    """Buffered weight per key, from a time on."""
    names, name = np.unique(held.words, return_inverse=True)
    times, time = np.unique(held.times, return_inverse=True)
    order = np.lexsort((time, name))
    places = (name * len(times) + time)[order]
    before = np.concatenate([[0], np.cumsum(held.weights[order])])
    at = np.minimum(names.searchsorted(words), len(names) - 1)
    first, end = at * len(times) + times.searchsorted(starts), (at + 1) * len(times)
    counted = before[places.searchsorted(end)] - before[places.searchsorted(first)]
    return np.where(names[at] == words, counted, 0).astype(np.float64)
