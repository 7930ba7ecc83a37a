"""The retained rows between batches: a bag (``core/bags.py``) and a catalog of series.

A row in the bag has the code of its series, so that the series is hashed once and compared as a
number. The catalog forgets series without rows once they are more than half of it, so its size
follows the rows and not the stream.
"""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from decaysketch.core import bags
from decaysketch.core.bags import ColumnBag, Columns, Scratch
from decaysketch.core.observations import TIME_LIMIT
from decaysketch.core.row_check import Identified
from decaysketch.series import _native
from decaysketch.series.attributes import AttributeBook, GivenAttributes
from decaysketch.series.params import SeriesParams
from decaysketch.series.state import SeriesState

__all__ = ["SeriesRows", "identified", "release_scratch"]

Int64Array = npt.NDArray[np.int64]

_INT64 = np.dtype(np.int64)
_SMALLEST_LIMIT = 16_384  # rows; a bag of fewer is not compacted to make room
_FEW_SERIES = 256  # of which none is forgotten

# Keys the index of the catalog; drawn for each process because it is fed from the network.
_SALT = secrets.randbits(64) | 1


class _Bag(NamedTuple):
    """Columns of rows; see ``series.h``."""

    times: Int64Array
    starts: Int64Array
    keys: Int64Array
    codes: npt.NDArray[np.uint32]
    levels: npt.NDArray[np.int8]


_NOTHING = _Bag(
    np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint32),
    np.empty(0, np.int8),
)  # fmt: skip
_scratch = Scratch(_NOTHING)
release_scratch = _scratch.release


class SeriesRows(ColumnBag):
    """Rows, watermarks and series. Not safe to use from two threads at once."""

    factor = 4  # a larger bag is compacted less often, a smaller one stays in the cache
    block = 1 << 13
    scratch = _scratch
    params: SeriesParams
    _bag: _Bag

    def __init__(self, params: SeriesParams) -> None:
        super().__init__(params)
        self._catalog = _native.Catalog(*params.sampling_words, _SALT)
        self._book = AttributeBook(params.attributes) if params.attributes else None

    @classmethod
    def _like(cls, state: SeriesState) -> Self:
        return cls(state.params)

    @staticmethod
    def _columns(state: SeriesState) -> Columns:
        codes = (np.cumsum(state.begins) - 1).astype(np.uint32)
        return _Bag(state.times, state.starts, state.value_keys, codes, state.levels)

    @classmethod
    def with_watermarks(cls, params: SeriesParams, watermarks: Int64Array) -> Self:
        """Make an empty bag with watermarks."""
        rows = cls(params)
        rows._marks[:] = watermarks
        return rows

    @classmethod
    def frozen(cls, state: SeriesState) -> Self:
        bag = super().frozen(state)
        firsts = np.flatnonzero(state.begins)
        shifts = np.frexp(state.weights[firsts].astype(np.float64))[1] - 1
        bag._catalog.enter(state.entities[firsts], shifts.astype(np.int8), state.ids[firsts])
        if state.attributes is not None:
            bag._book = AttributeBook.of(state.attributes)
        return bag

    @classmethod
    def from_state(cls, state: SeriesState) -> Self:
        bag = super().from_state(state)
        bag._dirty = True  # a state is in order of series, a bag in that of time
        return bag

    @property
    def nbytes(self) -> int:
        book = 0 if self._book is None else self._book.nbytes
        return super().nbytes + self._catalog.nbytes + book

    def check(
        self, values: Any, weights: Any, times: Any, ids: Any, entities: Any, starts: Any
    ) -> _native.Batch | None:
        """Return the columns as a batch. None if one needs conversion or exceeds a bound."""
        if type(times) is not np.ndarray or type(values) is not np.ndarray:
            return None
        if values.dtype != self.params.value_dtype or values.shape != times.shape:
            return None
        if type(weights) is int and weights == 1:
            weights = None
        columns = (weights, times, ids, entities, starts)
        if not all(each is None or _is_plain(each, times) for each in columns) or ids is None:
            return None
        if not values.flags.c_contiguous:
            return None
        floats = self.params.value_type == "float64"
        batch = _native.Batch(values.view(np.int64), floats, weights, times, ids, entities, starts)
        limits = (self.params.max_weight, 1 << self.params.id_bits, TIME_LIMIT)
        return batch if batch.check(*limits) else None

    def admit(self, batch: _native.Batch, attributes: GivenAttributes | None = None) -> None:
        """Accept a batch that was checked. Amortised O(1) for each row.

        Args:
            batch: the rows.
            attributes: those of its rows, if the stream has attributes.
        """
        for first in range(0, len(batch), self.block):
            last = min(first + self.block, len(batch))
            self._make_room(len(batch) - first)
            self._dirty = True  # after making room, which may have compacted
            self._rows = _native.admit(
                self._catalog, batch, first, last, self._marks, self._bag, self._rows
            )
            if self._book is not None and attributes is not None:
                self._book.learn(self._catalog.series[: len(self._catalog)], attributes)

    def _limit(self) -> int:
        least = _SMALLEST_LIMIT + self.block
        return min(max(least, self.factor * self._kept + self.block), bags.MAX_ROWS)

    def _make_room(self, incoming: int) -> None:
        """Room for one more block and a row to spare, which kernels write before they decide."""
        super()._make_room(incoming)
        if self._rows + self.block >= len(self._bag.times):
            self._reserve(self._rows + self.block + 1)

    def _append(self, bag: Self, incoming: int) -> None:
        self._make_room_to_append(bag._rows, incoming)
        series = bag._catalog
        n, known = len(series), len(self._catalog)
        codes = self._catalog.enter(series.entities[:n], series.shifts[:n], series.series[:n])
        if self._book is not None and bag._book is not None:
            self._book.join(bag._book, codes, known)
        self._rows = _native.append(bag._bag, bag._rows, codes, self._marks, self._bag, self._rows)

    def _compact_into(self, out: _Bag) -> int:
        kept = _native.compact(
            self._bag, self._rows, len(self._catalog), self.params.resolution, self._marks,
            self.params.capacity, self.scratch.keys, self.scratch.words, out,
        )  # fmt: skip
        self._forget(out.codes[:kept])
        return kept

    def _forget(self, codes: npt.NDArray[np.uint32]) -> None:
        """Drop series without rows if they are more than half, and renumber the codes in place."""
        known = len(self._catalog)
        if known <= _FEW_SERIES:
            return
        used = np.zeros(known, np.bool_)
        used[codes] = True
        if 2 * np.count_nonzero(used) >= known:
            return
        numbers = (np.cumsum(used) - 1).astype(np.uint32)
        codes[:] = numbers[codes]
        self._catalog.keep(used)
        if self._book is not None:
            self._book.keep(used)

    def state(self) -> SeriesState:
        """The canonical state, copied out. O(rows + series log series)."""
        self.compact()
        n, bag, series = self._rows, self._bag, self._catalog
        known = len(series)
        entities, ids, shifts = (
            series.entities[:known],
            series.series[:known],
            series.shifts[:known],
        )
        by_name = np.lexsort((ids, shifts, entities))
        ranks = np.empty(known, np.int64)
        ranks[by_name] = np.arange(known)
        order = _native.arrange(bag.codes[:n], ranks)
        codes = bag.codes[order]
        attributes = None
        if self._book is not None:
            begins = np.diff(codes.astype(np.int64), prepend=-1) != 0
            attributes = self._book.records(codes[begins])
        return SeriesState(
            self.params, entities[codes], np.int64(1) << shifts[codes].astype(np.int64),
            ids[codes], bag.times[order], bag.starts[order], bag.keys[order], bag.levels[order],
            self._marks.copy(), attributes,
        )  # fmt: skip


def _is_plain(column: Any, times: Int64Array) -> bool:
    """Whether kernels accept the column: int64, as long as the times."""
    return (
        type(column) is np.ndarray
        and column.dtype == _INT64
        and column.shape == times.shape
        and column.ndim == 1
        and bool(column.flags.c_contiguous)
    )


def identified(
    params: SeriesParams,
    entities: Int64Array,
    weights: Int64Array,
    ids: Int64Array,
    times: Int64Array,
    keys: Int64Array,
) -> Identified:
    """Rows by identity. Where an entity is not its series, both are hashed to 64 bits together."""
    with np.errstate(over="ignore"):
        named = ids << np.int64(6) | np.frexp(weights.astype(np.float64))[1].astype(np.int64)
        apart = entities != ids
        if apart.any():
            mixed = (entities ^ ids) * np.int64(0x3C79AC492BA7B653)
            named = np.where(apart, named ^ mixed ^ mixed >> np.int64(31), named)
    return Identified(named, times // np.int64(params.resolution), times, keys)
