"""The rows a sketch holds, between batches: a bag (``core/bags.py``) of observations.

Rows that the last compaction kept may stand in canonical order, not only in that of time; then a
few newcomers are merged into them, and all are in order again.
"""

from __future__ import annotations

import secrets
import threading
from types import ModuleType
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
from numba import types

from decaysketch.core._sort_kernels import MAX_ROWS, TABLE_FULL, sort_by_time
from decaysketch.core.arrays import read_only
from decaysketch.core.bags import ColumnBag, Scratch, copy_rows, with_room
from decaysketch.core.observations import TIME_LIMIT, Observations
from decaysketch.core.params import SketchParams
from decaysketch.minhit import _kernels as minhit_kernels
from decaysketch.minhit import plan
from decaysketch.querytime import _kernels
from decaysketch.querytime.state import SketchState

__all__ = ["RetainedRows", "release_scratch"]

Int64Array = npt.NDArray[np.int64]

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

    def take(self, rows: Int64Array) -> _Columns:
        return _Columns(
            self.values[rows], self.weights[rows], self.times[rows], self.ids[rows],
            self.levels[rows],
        )  # fmt: skip


_scratch = Scratch(_Columns(*(np.empty(0, kind) for kind in "qqqqb")))
release_scratch = _scratch.release

_INT64 = np.dtype(np.int64)


class RetainedRows(ColumnBag):
    """Rows and watermarks under one hash function. Not safe to use from two threads at once.

    Args:
        params: parameters of the sketch.
        copy: which of their hash functions.
    """

    factor = 5  # a larger bag compacts less often, a smaller one stays in the cache
    block = minhit_kernels.BLOCK
    scratch = _scratch
    params: SketchParams
    _bag: _Columns

    def __init__(self, params: SketchParams, copy: int = 0) -> None:
        super().__init__(params)
        self.copy = copy
        p = plan(params, copy)
        self._hash = (p.id_bits, p.mix, p.start_multiplier, p.offset, p.prime, p.top, p.steps)
        self._limits = (params.max_weight, 1 << params.id_bits, TIME_LIMIT)
        self._in_order = True  # whether those that were kept are in canonical order

    @classmethod
    def _like(cls, state: SketchState) -> Self:
        return cls(state.params, state.copy)

    @staticmethod
    def _columns(state: SketchState) -> _Columns:
        return _Columns(state.value_keys, state.weights, state.times, state.ids, state.levels)

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

    def _append(self, bag: Self, incoming: int) -> None:
        self._make_room_to_append(bag._rows, incoming)
        _scratch.reserve(bag._rows)
        self._rows = _kernels.append_later(
            *(read_only(column) for column in bag._bag), bag._rows, self._marks, _scratch.order,
            *self._bag, self._rows,
        )  # fmt: skip

    # -------------------------------------------------------------------------------- compaction

    def _compact_into(self, out: _Columns) -> int:
        self._in_order = self._in_order and self._rows <= 2 * self._kept
        return self._merge_newcomers(out) if self._in_order else self._compact(out)

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
            columns = with_room(self._bag, n, n)
        else:
            _scratch.reserve(n)
            order = _scratch.order[:n]
            self._order(self._bag, n, order)
            columns = self._bag.take(order)
            copy_rows(self._bag, columns, n)
            self._in_order = True
        return SketchState(self.params, *columns, self._marks.copy(), self.copy)
