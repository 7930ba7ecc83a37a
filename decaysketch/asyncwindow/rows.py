"""The rows a sampler holds, between batches: a bag with watermarks, compacted when it is full.

A row is admitted if it is later than the watermark of its level; that is safe at once, since
watermarks only rise. What is admitted may be superfluous: a copy, or beyond the capacity. So the
bag grows to a few times what the last compaction kept, and is then compacted in one pass
(``_kernels.py``). Laziness changes no state: :meth:`RetainedElements.state` compacts first.

Scratch memory is shared by all samplers of a thread; a sampler owns its bag alone.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from decaysketch.asyncwindow import _kernels
from decaysketch.asyncwindow.params import MedianParams, SumParams
from decaysketch.asyncwindow.state import NO_CLOCK, WindowState, floor_of
from decaysketch.core._sort_kernels import MAX_ROWS, TABLE_FULL
from decaysketch.core.arrays import read_only
from decaysketch.core.observations import MISSING_KEY, TIME_LIMIT
from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.errors import ParameterError

__all__ = ["Columns", "RetainedElements", "release_scratch"]

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]

# The bag is compacted when it holds this many times the rows that the last compaction kept, but
# never below the minimum. It is allocated a quarter larger, and used: samples grow slowly, and
# touching fresh memory costs more than a row does.
_BAG_FACTOR = 4
_SMALLEST_LIMIT = 16_384
_MERGE_LIMIT = 1 << 18  # rows gathered from many samplers before they are compacted together
_FIRST_ROOM = 1_024
_SLACK, _LITTLE = 8, 64  # trimmed, a bag has room for that part of its rows more, or so many
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

    @classmethod
    def empty(cls, rows: int) -> Self:
        return cls(
            np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.uint64),
            np.empty(rows, np.int8),
        )  # fmt: skip

    def copy_from(self, source: Columns, rows: int) -> None:
        self.values[:rows] = source.values[:rows]
        self.times[:rows] = source.times[:rows]
        self.keys[:rows] = source.keys[:rows]
        self.levels[:rows] = source.levels[:rows]

    def taken(self, rows: Any) -> Columns:
        """Some of the rows, copied unless ``rows`` is a slice."""
        return Columns(self.values[rows], self.times[rows], self.keys[rows], self.levels[rows])


class _Scratch(threading.local):
    """Working memory of compaction, grown geometrically, one for each thread."""

    def __init__(self) -> None:
        self.out = Columns.empty(0)
        self._allocate(_FIRST_ROOM)

    def reserve(self, rows: int) -> None:
        if rows > self.room:
            self._allocate(max(rows, self.room * 3 // 2))

    def _allocate(self, room: int) -> None:
        self.room = room
        self.pairs = np.empty((2, room), np.uint64), np.empty((2, room), np.uint32)
        self.order = np.empty(room, np.int64)
        self.table = np.empty(1 << (2 * room).bit_length(), np.uint32)


_scratch = _Scratch()


def release_scratch() -> None:
    """Give back the working memory of the calling thread; it is made anew when it is needed."""
    _scratch.__init__()  # type: ignore[misc]


class RetainedElements:
    """Rows, watermarks and clock. Not safe to use from two threads at once."""

    def __init__(self, params: SumParams | MedianParams) -> None:
        self.params = params
        self.clock = NO_CLOCK
        bounds = (0, params.bound) if params.weighted else (_LOWEST_KEY, _HIGHEST_KEY)
        self._limits = (*bounds, TIME_LIMIT)
        self._marks = np.full(params.levels + 1, NO_WATERMARK, dtype=np.int64)  # t_i
        self._bag = Columns.empty(0)
        self._rows = 0
        self._kept = 0  # rows that the last compaction kept: the first ones of the bag
        self._dirty = False  # more was added, or less is to be kept, since then
        self._spare = _SPARE

    @classmethod
    def from_state(cls, state: WindowState) -> Self:
        """Rows that hold exactly a canonical state."""
        rows = cls(state.params)
        rows.clock = state.clock
        rows._marks[:] = state.watermarks
        rows._reserve(len(state))
        columns = Columns(state.value_keys, state.times, state.keys, state.levels)
        rows._bag.copy_from(columns, len(state))
        rows._rows = rows._kept = len(state)
        return rows

    @classmethod
    def frozen(cls, state: WindowState) -> Self:
        """Rows of a state without a copy of them: to be absorbed by others, not to be changed."""
        rows = cls(state.params)
        rows.clock = state.clock
        rows._marks[:] = state.watermarks
        rows._bag = Columns(state.value_keys, state.times, state.keys, state.levels)
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
        if len(self._bag.keys) > self._rows + self._rows // _SLACK + _LITTLE:
            bag = Columns.empty(self._rows)
            bag.copy_from(self._bag, self._rows)
            self._bag = bag

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

    def advance(self, clock: int) -> None:
        """Move the clock on; an earlier time has no effect."""
        if clock <= self.clock:
            return
        self.clock = clock
        if self.floor > self._marks.min():
            np.maximum(self._marks, self.floor, out=self._marks)
            self._dirty = True

    def absorb(self, others: Iterable[RetainedElements]) -> None:
        """Take what other bags hold, the higher watermark of each level and the latest clock.

        The joined watermarks are right before a row is looked at: a row not later than the
        watermark of its level in any of the samplers is not in their merged state.
        """
        bags = list(others)
        for bag in bags:
            bag.compact()
            np.maximum(self._marks, bag._marks, out=self._marks)
        for bag in bags:
            self.advance(bag.clock)
        incoming = sum(bag._rows for bag in bags)
        for bag in bags:
            if self._rows + bag._rows > max(_MERGE_LIMIT, _BAG_FACTOR * self._kept):
                self._dirty = True
                self.compact()
            limit = max(_MERGE_LIMIT, _BAG_FACTOR * self._kept, self._rows + bag._rows)
            self._reserve(min(self._rows + incoming, limit, MAX_ROWS - 1) + 1)
            if self._rows + bag._rows >= len(self._bag.keys):  # the kernel checks no bounds
                raise ParameterError(
                    f"merging takes {self._rows + bag._rows} rows at once; expected less than "
                    f"{len(self._bag.keys)}: take a smaller capacity"
                )
            self._rows = _kernels.append_later(
                *(read_only(column) for column in bag._bag), bag._rows, self._marks, *self._bag,
                self._rows,
            )  # fmt: skip
            self._dirty = True
            incoming -= bag._rows

    def lower_capacity(self, capacity: int) -> None:
        """Shrink to a smaller capacity: equals having built with it."""
        self.params = self.params.with_capacity(capacity)
        self._dirty = True

    def _make_room(self, incoming: int) -> None:
        """Room for one more block, by growing the bag up to its limit, else by compacting it."""
        if self._rows + _kernels.BLOCK <= len(self._bag.keys):
            return
        if self._rows + _kernels.BLOCK > self._limit():
            self._dirty = True
            self.compact()
        if self._rows + _kernels.BLOCK > len(self._bag.keys):
            wanted = max(_FIRST_ROOM, 2 * len(self._bag.keys), self._rows + incoming)
            self._reserve(min(self._limit() * 5 // 4, wanted + _kernels.BLOCK))

    def _limit(self) -> int:
        """Rows at which the bag is compacted; a row number has to fit the kernels' words."""
        limit = max(_SMALLEST_LIMIT, _BAG_FACTOR * self._kept) + _kernels.BLOCK
        return min(limit, MAX_ROWS * 4 // 5)

    def _reserve(self, rows: int) -> None:
        if rows > len(self._bag.keys):
            bag = Columns.empty(rows)
            bag.copy_from(self._bag, self._rows)
            self._bag = bag

    # -------------------------------------------------------------------------------- compaction

    def compact(self) -> None:
        """Drop copies and what is beyond the capacity; leaves the rows ordered by time, latest
        first. O(rows)."""
        if not self._dirty:
            return
        if self._rows:
            _scratch.reserve(self._rows)
            if len(_scratch.out.keys) < self._rows:
                _scratch.out = Columns.empty(len(self._bag.keys))
            kept, bag, out = self._compact_into(_scratch.out), self._bag, _scratch.out
            if len(out.keys) <= 2 * len(bag.keys):  # like sizes: trade memory instead of copying
                self._bag, _scratch.out = out, bag
            else:
                bag.copy_from(out, kept)
            self._rows = kept
        self._kept = self._rows
        self._dirty = False

    def _compact_into(self, out: Columns) -> int:
        """Steps (0) to (4) of ``_kernels.py``; the number of rows kept."""
        n, bag, params, (ages, words) = self._rows, self._bag, self.params, _scratch.pairs
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
        rows = Columns.empty(self._rows)
        rows.copy_from(self._bag, self._rows)
        return self._state(rows)

    def state(self) -> WindowState:
        """The canonical state, copied out. O(rows)."""
        self.compact()
        n, bag = self._rows, self._bag
        _scratch.reserve(n)
        order, (ages, words) = _scratch.order, _scratch.pairs
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
