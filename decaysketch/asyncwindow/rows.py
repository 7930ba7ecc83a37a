"""The rows a sampler holds, between batches: a bag (``core/bags.py``) of elements."""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from decaysketch.asyncwindow import _kernels
from decaysketch.asyncwindow.params import MedianParams, SumParams
from decaysketch.asyncwindow.state import WindowState, floor_of
from decaysketch.core._sort_kernels import MAX_ROWS, TABLE_FULL
from decaysketch.core.arrays import read_only
from decaysketch.core.bags import ColumnBag, Scratch, with_room
from decaysketch.core.observations import MISSING_KEY, TIME_LIMIT

__all__ = ["Columns", "RetainedElements", "release_scratch"]

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]

_SPARE = 1.03  # capacities of rows to look at, so that some may be copies; doubled where too few
_TABLE_MARGIN = 1.6  # slots of the identity table for each row that survived last time

# Key the identity table; drawn for each process because the table is fed from the network.
_KEY_SALT = np.uint64(secrets.randbits(64) | 1)
_VALUE_SALT = np.uint64(secrets.randbits(64) | 1)

_INT64 = np.dtype(np.int64)
_NO_NUMBERS = np.empty(0, np.int64)
_LOWEST_KEY, _HIGHEST_KEY = MISSING_KEY + 1, np.iinfo(np.int64).max


class Columns(NamedTuple):
    """Columns of rows; see :class:`~decaysketch.asyncwindow.state.WindowState`."""

    values: Int64Array
    times: Int64Array
    keys: UInt64Array
    levels: npt.NDArray[np.int8]

    def taken(self, rows: Any) -> Columns:
        """Some of the rows, copied unless ``rows`` is a slice."""
        return Columns(self.values[rows], self.times[rows], self.keys[rows], self.levels[rows])


_scratch = Scratch(Columns(*(np.empty(0, kind) for kind in "qqQb")))
release_scratch = _scratch.release


class RetainedElements(ColumnBag):
    """Rows, watermarks and clock. Not safe to use from two threads at once."""

    factor = 4
    block = _kernels.BLOCK
    scratch = _scratch
    params: SumParams | MedianParams
    _bag: Columns

    def __init__(self, params: SumParams | MedianParams) -> None:
        super().__init__(params)
        bounds = (0, params.bound) if params.weighted else (_LOWEST_KEY, _HIGHEST_KEY)
        self._limits = (*bounds, TIME_LIMIT)
        self._spare = _SPARE

    @classmethod
    def _like(cls, state: WindowState) -> Self:
        rows = cls(state.params)
        rows.clock = state.clock
        return rows

    @staticmethod
    def _columns(state: WindowState) -> Columns:
        return Columns(state.value_keys, state.times, state.keys, state.levels)

    @property
    def floor(self) -> int:
        """See :attr:`WindowState.floor`."""
        return floor_of(self.params, self.clock)

    # ------------------------------------------------------------------------------------- input

    def admit(
        self, values: npt.NDArray[Any], times: Int64Array, words: UInt64Array,
        sequence: npt.NDArray[Any] | None, first_number: int,
    ) -> tuple[int, int] | None:  # fmt: skip
        """Take a batch of contiguous columns of equal length that nobody validated yet.

        Args:
            values: int64, or float64 as they are where that is the stream's type.
            times: int64.
            words: uint64, of the source or of each row's source.
            sequence: int64 or uint64; None to number the rows from ``first_number`` on.
            first_number: below 2^64.

        Returns:
            How many rows were of weight 0, and how many too old for any window; None, with nothing
            taken, where a row is out of bounds. Amortised O(1) for each row.
        """
        params, n = self.params, len(times)
        float_bits = values.dtype.kind == "f"
        numbers = _NO_NUMBERS if sequence is None else sequence
        values, times, words, numbers = (
            values.view(_INT64), times.view(), words.view(), numbers.view(_INT64)
        )  # fmt: skip
        for column in (values, times, words, numbers):
            column.flags.writeable = False  # one kernel signature, whoever owns the memory
        first = np.uint64(first_number)
        if self._rows + _kernels.BLOCK > len(self._bag.keys):
            self._make_room(n)
        good, zeros, late, start, rows = _kernels.admit_checked(
            values, times, n, float_bits, *self._limits, self.floor, words, numbers, first,
            params.weighted, self._marks, *self._bag, self._rows, len(self._bag.keys),
        )  # fmt: skip
        if not good:
            return None
        self._rows = rows
        self._dirty = True
        while start < n:
            self._make_room(n - start)
            start, self._rows = _kernels.admit(
                values, times, words, numbers, first, start, n, float_bits, params.weighted,
                self._marks, *self._bag, self._rows, len(self._bag.keys),
            )  # fmt: skip
            self._dirty = True  # after making room, which may have compacted
        return (int(zeros) if params.weighted else 0), int(late)

    def _append(self, bag: Self, incoming: int) -> None:
        self._make_room_to_append(bag._rows, incoming)
        self._rows = _kernels.append_later(
            *(read_only(column) for column in bag._bag), bag._rows, self._marks, *self._bag,
            self._rows,
        )  # fmt: skip

    def _most_room(self) -> int:
        """A quarter more than the limit, and used: samples grow slowly, and touching fresh memory
        costs more than a row does."""
        return min(self._limit() * 5 // 4, MAX_ROWS)

    # -------------------------------------------------------------------------------- compaction

    def _compact_into(self, out: Columns) -> int:
        """Steps (0) to (4) of ``_kernels.py``; the number of rows kept."""
        n, bag, params = self._rows, self._bag, self.params
        ages, words = _scratch.keys, _scratch.words
        cuts = np.empty(len(self._marks), np.int64)
        newest, span_bits = _kernels.choose(
            bag.times, bag.levels, n, int(params.capacity * self._spare), params.first_nested,
            len(cuts), cuts,
        )  # fmt: skip
        bits = max(8, int(_TABLE_MARGIN * (self._kept or n // 2)).bit_length())
        while True:
            swapped, rows = _kernels.order(
                bag.times, bag.levels, n, newest, span_bits, cuts, ages[0], words[0], ages[1],
                words[1],
            )  # fmt: skip
            by_time, spare = int(swapped), 1 - int(swapped)
            while True:
                kept, _ = _kernels.compact(
                    bag.values, bag.keys, ages[by_time], words[by_time], rows, newest,
                    params.capacity, params.first_nested, params.weighted, self._marks, _KEY_SALT,
                    _VALUE_SALT, ages[spare], words[spare], *out, _scratch.table, bits,
                )  # fmt: skip
                if kept != TABLE_FULL:
                    break
                bits += 1
            if _kernels.right_to_leave_out(newest, cuts, self._marks):
                return int(kept)
            cuts[:] = -1  # copies were too many: nothing is left out, and more is looked at next
            self._spare *= 2.0

    def by_time(self) -> WindowState:
        """The state with rows in the order of time alone (ties as they come): what queries read.

        Cheaper than :meth:`state`. O(rows).
        """
        self.compact()
        return self._state(with_room(self._bag, self._rows, self._rows))

    def state(self) -> WindowState:
        """The canonical state, copied out. O(rows)."""
        self.compact()
        n, bag = self._rows, self._bag
        _scratch.reserve(n)
        order, ages, words = _scratch.order, _scratch.keys, _scratch.words
        _kernels.canonical_order(
            bag.values, bag.times, bag.keys, n, self.params.weighted, ages[0], words[0], ages[1],
            words[1], order,
        )  # fmt: skip
        return self._state(bag.taken(order[:n]))

    def _state(self, rows: Columns) -> WindowState:
        return WindowState(
            self.params, self.clock, rows.values, rows.times, rows.keys, rows.levels,
            self._marks.copy(),
        )  # fmt: skip
