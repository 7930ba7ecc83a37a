"""The rows a sketch holds, between batches: a bag with watermarks, compacted when it is full.

A row is admitted if it is later than the watermark of its level; that is safe at once, since
watermarks only rise. What is admitted may be superfluous: a copy, or beyond the capacity. So the
bag grows to a few times what the last compaction kept, and is then compacted in one pass
(``_kernels.py``). Laziness changes no state: :meth:`RetainedRows.state` compacts first.

Scratch memory is shared by all sketches of a thread; a sketch owns its bag alone.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable
from types import ModuleType
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
from numba import types

from decaysketch.core._sort_kernels import MAX_ROWS, TABLE_FULL, sort_by_time
from decaysketch.core.arrays import read_only
from decaysketch.core.observations import TIME_LIMIT, Observations
from decaysketch.core.params import SketchParams
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.errors import ParameterError
from decaysketch.minhit import _kernels as minhit_kernels
from decaysketch.minhit import plan
from decaysketch.querytime import _kernels
from decaysketch.querytime.state import SketchState

__all__ = ["RetainedRows", "release_scratch"]

Int64Array = npt.NDArray[np.int64]

# The bag is compacted when it holds this many times the rows that the last compaction kept (a
# larger bag compacts less often, a smaller one stays in the cache), but never below the minimum.
_BAG_FACTOR = 5
_SMALLEST_LIMIT = 16_384
_MERGE_LIMIT = 1 << 18  # rows gathered from many sketches before they are compacted together
_FIRST_ROOM = 1_024
_SLACK, _LITTLE = 8, 64  # trimmed, a bag has room for that part of its rows more, or so many
_TABLE_MARGIN = 1.6  # slots of the identity table for each row that survived last time

# Keys the identity table; drawn for each process because the table is fed from the network.
_TABLE_SALT = np.uint64(secrets.randbits(64) | 1)


_compiling = threading.Lock()
_compiled = False


def _admit_kernels() -> ModuleType:
    """The kernels, with those that read a caller's columns compiled for read-only arrays alone.

    Writable arrays convert to that at no cost, while compiling by use would build a second version
    for the read-only arrays that Arrow hands out. Threads that come first wait for one another.
    """
    if not _compiled:
        with _compiling:
            if not _compiled:
                _compile_for_columns()
    return minhit_kernels


def _compile_for_columns() -> None:
    global _compiled
    column = types.Array(types.int64, 1, "C", readonly=True)
    table = types.Array(types.int64, 2, "C", readonly=True)
    own = types.Array(types.int64, 1, "C")
    number = types.int64
    bag = (own, own, own, own, types.Array(types.int8, 1, "C"))
    columns = (column, column, column, column, number, types.boolean)
    hash_ = (number, column, number, number, number, number, table)
    to = (own, *bag, number, number)
    minhit_kernels.admit.compile((*columns, *hash_, *to))
    minhit_kernels.admit_checked.compile((*columns, number, number, number, *hash_, *to))
    minhit_kernels.admit.disable_compile()
    minhit_kernels.admit_checked.disable_compile()
    _compiled = True


class _Columns(NamedTuple):
    values: Int64Array
    weights: Int64Array
    times: Int64Array
    ids: Int64Array
    levels: npt.NDArray[np.int8]

    @classmethod
    def empty(cls, rows: int) -> Self:
        values, weights, times, ids = (np.empty(rows, np.int64) for _ in range(4))
        return cls(values, weights, times, ids, np.empty(rows, np.int8))

    def copy_from(self, source: _Columns, rows: int) -> None:
        for column in range(len(self)):
            self[column][:rows] = source[column][:rows]

    def first(self, rows: int) -> _Columns:
        """A copy of the first rows."""
        return _Columns(
            self.values[:rows].copy(), self.weights[:rows].copy(), self.times[:rows].copy(),
            self.ids[:rows].copy(), self.levels[:rows].copy(),
        )  # fmt: skip

    def take(self, rows: Int64Array) -> _Columns:
        return _Columns(
            self.values[rows], self.weights[rows], self.times[rows], self.ids[rows],
            self.levels[rows],
        )  # fmt: skip


class _Scratch(threading.local):
    """Working memory of compaction, grown geometrically, one for each thread."""

    def __init__(self) -> None:
        self.out = _Columns.empty(0)
        self._allocate(_FIRST_ROOM)

    def reserve(self, rows: int) -> None:
        if rows > self.room:
            self._allocate(max(rows, self.room * 3 // 2))

    def _allocate(self, room: int) -> None:
        self.room = room
        self.keys = np.empty((2, room), np.uint64)
        self.words = np.empty((2, room), np.uint32)
        self.order = np.empty(room, np.int64)
        self.table = np.empty(1 << (2 * room).bit_length(), np.uint32)


_scratch = _Scratch()


def release_scratch() -> None:
    """Give back the working memory of the calling thread; it is made anew when it is needed."""
    _scratch.__init__()  # type: ignore[misc]


_INT64 = np.dtype(np.int64)


class RetainedRows:
    """Rows and watermarks under one hash function. Not safe to use from two threads at once.

    Args:
        params: parameters of the sketch.
        copy: which of their hash functions.
    """

    def __init__(self, params: SketchParams, copy: int = 0) -> None:
        self.params = params
        self.copy = copy
        p = plan(params, copy)
        self._hash = (p.id_bits, p.mix, p.start_multiplier, p.offset, p.prime, p.top, p.steps)
        self._limits = (params.max_weight, 1 << params.id_bits, TIME_LIMIT)
        self._marks = np.full(params.levels + 1, NO_WATERMARK, dtype=np.int64)  # t_i
        self._bag = _Columns.empty(0)
        self._rows = 0
        self._kept = 0  # rows that the last compaction kept: the first ones of the bag
        self._dirty = False  # more was added, or the capacity lowered, since then
        self._in_order = True  # whether those that were kept are in canonical order

    @classmethod
    def from_state(cls, state: SketchState) -> Self:
        """Rows that hold exactly a canonical state."""
        rows = cls(state.params, state.copy)
        rows._marks[:] = state.watermarks
        rows._reserve(len(state))
        columns = _Columns(state.value_keys, state.weights, state.times, state.ids, state.levels)
        rows._bag.copy_from(columns, len(state))
        rows._rows = rows._kept = len(state)
        return rows

    @classmethod
    def frozen(cls, state: SketchState) -> Self:
        """Rows of a state without a copy of them: to be absorbed by others, not to be changed."""
        rows = cls(state.params, state.copy)
        rows._marks[:] = state.watermarks
        rows._bag = _Columns(state.value_keys, state.weights, state.times, state.ids, state.levels)
        rows._rows = rows._kept = len(state)
        return rows

    def __len__(self) -> int:
        self.compact()
        return self._rows

    @property
    def nbytes(self) -> int:
        """Bytes that the bag takes, room for more rows included."""
        return sum(column.nbytes for column in self._bag)

    def trim(self) -> None:
        """Compact, and give back the room that no row takes. O(rows) where there is any."""
        self.compact()
        if len(self._bag.ids) > self._rows + self._rows // _SLACK + _LITTLE:
            self._bag = self._bag.first(self._rows)

    # ------------------------------------------------------------------------------------- input

    def admit(self, batch: Observations) -> None:
        """Take a validated batch. Amortised O(log max_weight) arithmetic steps for each row."""
        self._admit(*batch, len(batch.ids), False)

    def admit_unchecked(
        self,
        values: npt.NDArray[np.int64] | npt.NDArray[np.float64],
        weights: Int64Array,
        times: Int64Array,
        ids: Int64Array,
    ) -> int:
        """Take a batch of columns of equal length that nobody validated yet.

        One kernel call validates and admits: what makes small batches cheap.

        Returns:
            The number of rows of weight 0, or -1, with nothing taken, where a row is out of bounds
            or a column is no contiguous array of 64-bit numbers.
        """
        n = len(ids)
        if self._rows + minhit_kernels.BLOCK > len(self._bag.ids):
            self._make_room(n)
        float_bits = values.dtype.kind == "f"
        try:
            zero_weight, todo, self._rows = _admit_kernels().admit_checked(
                values.view(_INT64), weights, times, ids, n, float_bits, *self._limits,
                *self._hash, self._marks, *self._bag, self._rows, len(self._bag.ids),
            )  # fmt: skip
        except TypeError:  # compiled for contiguous int64 columns alone
            return -1
        if zero_weight >= 0:
            self._dirty = True
            if todo:
                self._admit(values.view(_INT64), weights, times, ids, todo, float_bits)
        return int(zero_weight)

    def _admit(
        self, values: Int64Array, weights: Int64Array, times: Int64Array, ids: Int64Array,
        todo: int, float_bits: bool,
    ) -> None:  # fmt: skip
        while todo:
            self._make_room(todo)
            todo, self._rows = _admit_kernels().admit(
                values, weights, times, ids, todo, float_bits, *self._hash, self._marks,
                *self._bag, self._rows, len(self._bag.ids),
            )  # fmt: skip
            self._dirty = True  # after making room, which may have compacted

    def absorb(self, others: Iterable[RetainedRows]) -> None:
        """Take what other bags hold, and the higher watermark of each level.

        The joined watermarks are right before a row is looked at: a row not later than the
        watermark of its level in any of the sketches is not in their merged state.
        """
        bags = list(others)
        for bag in bags:
            bag.compact()
            np.maximum(self._marks, bag._marks, out=self._marks)
        incoming = sum(bag._rows for bag in bags)
        for bag in bags:
            if self._rows + bag._rows > max(_MERGE_LIMIT, _BAG_FACTOR * self._kept):
                self.compact()
            limit = max(_MERGE_LIMIT, _BAG_FACTOR * self._kept, self._rows + bag._rows)
            wanted = max(self._rows + incoming, min(2 * len(self._bag.ids), limit))
            if self._rows + bag._rows >= len(self._bag.ids):
                self._reserve(min(wanted, limit, MAX_ROWS - 1) + 1)
            if self._rows + bag._rows >= len(self._bag.ids):  # the kernel checks no bounds
                raise ParameterError(
                    f"merging takes {self._rows + bag._rows} rows at once; expected less than "
                    f"{len(self._bag.ids)}: take a smaller capacity"
                )
            _scratch.reserve(bag._rows)
            self._rows = _kernels.append_later(
                *(read_only(column) for column in bag._bag),
                bag._rows,
                self._marks,
                _scratch.order,
                *self._bag,
                self._rows,
            )
            self._dirty = True
            incoming -= bag._rows

    def lower_capacity(self, capacity: int) -> None:
        """Shrink to a smaller capacity: equals having built with it."""
        self.params = self.params.with_capacity(capacity)
        self._dirty = True

    def _make_room(self, incoming: int) -> None:
        """Room for one more block, by growing the bag up to its limit, else by compacting it."""
        block = minhit_kernels.BLOCK
        if self._rows + block <= len(self._bag.ids):
            return
        if self._rows + block > self._limit():
            self._dirty = True
            self.compact()
        limit = self._limit()
        if self._rows + block > len(self._bag.ids):
            wanted = max(_FIRST_ROOM, 2 * len(self._bag.ids), self._rows + incoming + block)
            self._reserve(min(limit, wanted))

    def _limit(self) -> int:
        """Rows at which the bag is compacted; a row number has to fit the kernels' words."""
        limit = max(_SMALLEST_LIMIT, _BAG_FACTOR * self._kept) + minhit_kernels.BLOCK
        return min(limit, MAX_ROWS)

    def _reserve(self, rows: int) -> None:
        if rows > len(self._bag.ids):
            bag = _Columns.empty(rows)
            bag.copy_from(self._bag, self._rows)
            self._bag = bag

    # -------------------------------------------------------------------------------- compaction

    def compact(self) -> None:
        """Drop copies and what is beyond the capacity; leaves the rows ordered by time, latest
        first. O(rows)."""
        if not self._dirty:
            return
        n = self._rows
        if n:
            _scratch.reserve(n)
            bag = self._bag
            if len(_scratch.out.ids) < n:
                _scratch.out = _Columns.empty(len(bag.ids))
            out = _scratch.out
            self._in_order = self._in_order and n - self._kept <= self._kept
            kept = self._merge_newcomers(out) if self._in_order else self._compact(out)
            if len(out.ids) <= 2 * len(bag.ids):  # like sizes: trade memory instead of copying
                self._bag, _scratch.out = out, bag
            else:
                bag.copy_from(out, kept)
            self._rows = kept
        self._kept = self._rows
        self._dirty = False

    def _sorted_by_time(self, first: int) -> tuple[int, int, int]:
        """Of the rows from a first one on: which keys and words are the sorted ones, the latest
        time, and how many rows."""
        bag, n = self._bag, self._rows - first
        keys, words = _scratch.keys, _scratch.words
        swapped, newest = sort_by_time(
            bag.times[first:], bag.levels[first:], n, keys[0], words[0], keys[1], words[1]
        )
        return int(swapped), newest, n

    def _compact(self, out: _Columns) -> int:
        """Compact all rows into ``out``; how many are left."""
        bag = self._bag
        which, newest, n = self._sorted_by_time(0)
        bits = max(8, int(_TABLE_MARGIN * (self._kept or n // 2)).bit_length())
        while True:
            kept, _ = _kernels.compact(
                bag.values, bag.weights, bag.ids, _scratch.keys[which], _scratch.words[which], n,
                newest, self.params.capacity, self.params.max_weight, self._marks, _TABLE_SALT,
                *out, _scratch.table, bits,
            )  # fmt: skip
            if kept != TABLE_FULL:
                return int(kept)
            bits += 1

    def _merge_newcomers(self, out: _Columns) -> int:
        """The same where those that were kept are in canonical order, as are then all."""
        first = self._kept
        order = np.empty(0, np.int64)
        new = self._bag.take(order)
        if self._rows > first:
            which, _newest, n = self._sorted_by_time(first)
            rows = (_scratch.words[which, :n] & np.uint32(MAX_ROWS - 1)).astype(np.int64)
            new = self._bag.take(rows + first)
            order = np.empty(n, np.int64)
            self._order(new, n, order)
        kept: int = _kernels.merge_newcomers(
            *self._bag, first, *new, order, self.params.capacity, self.params.max_weight,
            self._marks, _TABLE_SALT, *out, _scratch.table, max(8, (2 * len(order)).bit_length()),
        )  # fmt: skip
        return kept

    def _order(self, columns: _Columns, n: int, order: Int64Array) -> None:
        """The canonical order of rows that are ordered by time."""
        keys, words = _scratch.keys, _scratch.words
        _kernels.canonical_order(
            columns.times, columns.ids, columns.weights, n, self.params.max_weight, keys[0],
            words[0], keys[1], words[1], order,
        )  # fmt: skip

    def state(self) -> SketchState:
        """The canonical state, copied out. O(rows).

        The bag is left in canonical order, in which it stays while little is added.
        """
        self.compact()
        n = self._rows
        if self._in_order:
            columns = self._bag.first(n)
        else:
            _scratch.reserve(n)
            order = _scratch.order[:n]
            self._order(self._bag, n, order)
            columns = self._bag.take(order)
            self._bag.copy_from(columns, n)
            self._in_order = True
        return SketchState(self.params, *columns, self._marks.copy(), self.copy)
