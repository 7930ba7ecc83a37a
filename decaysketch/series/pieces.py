"""Rows prepared for queries: neighbours, bands, and counter increases."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from decaysketch.core.observations import TIME_LIMIT, decode_values
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.series import _native
from decaysketch.series.restarts import hidden_rises, minus
from decaysketch.series.state import NO_START, SeriesState

__all__ = ["FAR", "Increases", "Pieces", "after"]

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
BoolArray = npt.NDArray[np.bool_]

FAR = 1 << 62
"""The time of a next row that there is not."""

_GUARD_INTERVALS, _GUARD_CELLS = 6, 3
"""Usual intervals of the guard where the query names none: more than the clocks of two collectors
differ in practice. Where rows are thinned to one a cell, half as many."""

_USUAL = 0.75
"""Quantile of intervals that is the usual one. Rows of two collectors may come in pairs, of which
half of the intervals, and so the median, are as short as their phases are close."""

_KEPT = 4  # guards and wraps whose increases are kept


@dataclass(frozen=True, slots=True, eq=False)
class Increases:
    """Counter increases, and the times between which they happened.

    Attributes:
        rows: int64[n], the row that shows the increase.
        begins, ends: int64[n], times. A piece that begins at a counter start needs no row before
            it.
        amounts: float64[n], none negative.
        back: how long before the beginning rows must be complete.
        hidden_at: int64[k], times of rises that the guard may hide.
        hidden: float64[k], these rises.
    """

    rows: npt.NDArray[np.intp]
    begins: Int64Array
    ends: Int64Array
    amounts: Float64Array
    back: int
    hidden_at: Int64Array
    hidden: Float64Array


class Pieces:
    """Rows with their successors. Immutable, with cached results.

    Args:
        state: any state.

    Attributes:
        times, nexts: int64[n], times of a row and of the next row in its series. ``FAR`` if there
            is none.
        first, last: bool[n], whether a row is the first or the last in its series.
        values: float64[n], 0 where missing.
        missing: bool[n].
        entity: int64[n], entity number.
        levels: int8[m], level per entity.
        weights: float64[m], weight per entity.
    """

    def __init__(self, state: SeriesState) -> None:
        self.state = state
        self.times = state.times
        self.first = state.begins
        self.last = np.append(self.first[1:], True)[: len(state)]
        self.nexts = np.full(len(state), FAR, np.int64)
        self.nexts[~self.last] = state.times[~self.first]
        values, self.missing = decode_values(state.value_keys, state.params.value_type)
        self.values: Float64Array = values.astype(np.float64)
        first = np.ones(len(state), np.bool_)
        first[1:] = (state.entities[1:] != state.entities[:-1]) | (
            state.weights[1:] != state.weights[:-1]
        )
        self.entity: Int64Array = np.cumsum(first) - 1
        self.levels = state.levels[first]
        self.weights: Float64Array = state.weights[first].astype(np.float64)
        self._rising = np.ascontiguousarray(state.watermarks[::-1])
        self._known: dict[tuple[int, float | None], Increases] = {}

    @cached_property
    def starts(self) -> npt.NDArray[np.intp]:
        """int64[series], the first row of each series."""
        return np.flatnonzero(self.first)

    @cached_property
    def rows(self) -> npt.NDArray[np.intp]:
        """int64[series], how many rows each series has."""
        return np.diff(self.starts, append=len(self.times))

    @cached_property
    def ids(self) -> Int64Array:
        """int64[m], entity ids, rising. An id with several weights is several entities."""
        found: Int64Array = self.state.entities[np.diff(self.entity, prepend=-1) != 0]
        return found

    @property
    def count(self) -> int:
        """Number of entities."""
        return len(self.levels)

    def bands(self, times: Int64Array) -> Int64Array:
        """Return for each time the lowest level that is complete from there on."""
        found: Int64Array = len(self._rising) - np.searchsorted(self._rising, times, side="left")
        return found

    def of_band(self, rows: Any, bands: Int64Array) -> Float64Array:
        """Return the probability that the rows' entities are in bands."""
        found: Float64Array = np.minimum(np.ldexp(self.weights[self.entity[rows]], -bands), 1.0)
        return found

    @cached_property
    def probability(self) -> Float64Array:
        """Return float64[n], for the band of each row."""
        return self.of_band(slice(None), self.bands(self.times))

    def before(self, length: int) -> Int64Array:
        """Return int64[n]: times this long before the rows."""
        return self.times - min(length, TIME_LIMIT)

    @cached_property
    def lengths(self) -> UInt64Array:
        """uint64[n]: from a row to the next one."""
        found: UInt64Array = (self.nexts - self.times).view(np.uint64)
        return found

    @cached_property
    def silences(self) -> UInt64Array:
        """uint64[n]: from the row before to a row. A first row has the largest number."""
        found = np.full(len(self.times), np.iinfo(np.uint64).max, np.uint64)
        found[~self.first] = self.lengths[~self.last]
        return found

    @cached_property
    def usual_interval(self) -> int:
        """The third quartile of intervals between neighbours. 0 if there are none."""
        lengths = np.sort(self.lengths[~self.last])
        return int(lengths[int(_USUAL * (len(lengths) - 1))]) if len(lengths) else 0

    @cached_property
    def foreign_starts(self) -> int:
        """Rows with a start before the preceding row of their series, which has another start."""
        starts = self.state.starts
        pairs = ~self.first[1:] & (starts[1:] != NO_START) & (starts[:-1] != NO_START)
        other = pairs & (starts[1:] != starts[:-1]) & (starts[1:] < self.times[:-1])
        return int(np.count_nonzero(other))

    @property
    def nothing_discarded(self) -> bool:
        """Whether every row that the sketch was fed, or its cell, is retained."""
        return int(self._rising[-1]) == NO_WATERMARK

    @cached_property
    def shows_beginning(self) -> bool:
        """Whether an entity is retained from its first row on."""
        band = self.bands(np.array([-TIME_LIMIT]))[0]
        return bool((self.levels >= band).any())

    def complete_since(self, time: float) -> bool:
        """Whether every row from a time on is retained."""
        return self.nothing_discarded or float(self._rising[-1]) < time

    # ----------------------------------------------------------------------------------- counters

    def guard(self, given: int | None) -> int:
        """Return the guard against clocks for a query argument."""
        if given is None:
            resolution, interval = self.state.params.resolution, self.usual_interval
            thinned = resolution > 1 and interval < 2 * resolution
            given = (_GUARD_CELLS if thinned else _GUARD_INTERVALS) * interval
        return min(given, TIME_LIMIT)

    def increases(self, guard: int, wrap: float | None) -> Increases:
        """Return increases between neighbours.

        A value that falls is a reset, after which the counter shows its count since 0. With a
        guard, falls that clocks explain are no resets (``guard.c``). Where rows have starts, these
        distinguish the lives of a counter, and nothing is guessed.

        Args:
            guard: in time units. 0 turns it off.
            wrap: the number at which counters begin again, such as 2^32. A fall is a wrap if the
                way round is shorter than half of it, else a reset. None: counters do not wrap.
        """
        found = self._known.get((guard, wrap))
        if found is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            found = self._known[guard, wrap] = self._counted(guard, wrap)
        return found

    def _counted(self, guard: int, wrap: float | None) -> Increases:
        state = self.state
        rows = np.flatnonzero(~self.missing)
        series = np.cumsum(self.first)[rows]
        begins = np.ones(len(rows), np.bool_)
        begins[1:] = series[1:] != series[:-1]
        keys, times = state.value_keys[rows], state.times[rows]
        settled = _native.settle(keys, times, begins.view(np.uint8), guard) if guard else keys
        values, _ = decode_values(settled, state.params.value_type)
        starts = state.starts[rows]
        lost, hidden = hidden_rises(
            decode_values(keys, state.params.value_type)[0], values, times, begins,
            self.usual_interval,
        )  # fmt: skip
        unguarded = starts[lost] != NO_START
        lost, hidden = lost[~unguarded], hidden[~unguarded]
        inner = np.flatnonzero(~begins)
        found = (inner, times[inner - 1], _risen(values[inner - 1], values[inner], wrap))
        if (starts != NO_START).any():
            found = self._by_starts(keys, times, begins, starts, found)
        places, since, amounts = found
        back = min(2 * guard, TIME_LIMIT)
        return Increases(rows[places], since, times[places], amounts, back, times[lost], hidden)

    def _by_starts(
        self,
        keys: Int64Array,
        times: Int64Array,
        begins: BoolArray,
        starts: Int64Array,
        found: tuple[npt.NDArray[np.intp], Int64Array, Float64Array],
    ) -> tuple[npt.NDArray[np.intp], Int64Array, Float64Array]:
        """Return the same, reading a row with a start by it. The difference to the preceding row
        with this start counts. Without one, the complete value counts, since its start. So two
        writers of one series count apart.

        A start in the row's own cell says only that the counter was first seen there, as with
        collectors that do not know the start (OpenTelemetry's data model, "unknown start time").
        Such a row is read without its start, and later rows with that start by their differences.
        """
        inner, since, amounts = found
        started = starts != NO_START
        series = np.cumsum(begins)
        order = np.lexsort((times, starts, series))
        lives = np.ones(len(order), np.bool_)
        lives[1:] = (np.diff(series[order]) != 0) | (starts[order][1:] != starts[order][:-1])
        # Within a life, a value that falls is of a clock that is behind.
        settled = _native.settle(keys[order], times[order], lives.view(np.uint8), TIME_LIMIT)
        values, _ = decode_values(settled, self.state.params.value_type)
        before = np.maximum(np.arange(len(times)) - 1, 0)
        risen, of_life = np.empty(len(times)), np.empty(len(times), np.int64)
        rises = np.maximum(minus(values, values[before]), 0.0)
        risen[order] = np.where(lives, values, rises)
        of_life[order] = np.where(lives, starts[order], times[order][before])
        same = np.empty(len(times), np.bool_)
        same[order] = ~lives
        resolution = np.int64(self.state.params.resolution)
        told = started & (same | (starts // resolution < times // resolution))
        plain = ~told[inner]
        places = np.concatenate([inner[plain], np.flatnonzero(told)])
        order = np.argsort(places, kind="stable")
        return (
            places[order],
            np.concatenate([since[plain], of_life[told]])[order],
            np.concatenate([amounts[plain], np.maximum(risen[told], 0.0)])[order],
        )


def _risen(before: npt.NDArray[Any], after: npt.NDArray[Any], wrap: float | None) -> Float64Array:
    fell = after < before
    risen = np.where(fell, after.astype(np.float64), minus(after, before))
    if wrap is not None:
        round_ = wrap - minus(before, after)
        risen = np.where(fell & (round_ >= 0.0) & (round_ < wrap / 2.0), round_, risen)
    return np.maximum(risen, 0.0)


def after(times: Int64Array, length: float) -> Int64Array:
    """Return times so long after others, within 64 bits."""
    return times + np.int64(min(int(length), TIME_LIMIT - 1))
