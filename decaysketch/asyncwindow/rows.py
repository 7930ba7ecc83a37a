"""The rows that a sampler stores between batches: a bag (``core/bags.py``) with elements.

A bag keeps the order of arrival. Compaction needs no other order, and keeps this one. A caller that
reads the state gets a copy ordered by time.
"""

from __future__ import annotations

import secrets
import threading
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from decaysketch.asyncwindow import _native
from decaysketch.asyncwindow.params import MedianParams, SumParams
from decaysketch.asyncwindow.state import WindowState, floor_of
from decaysketch.core.bags import FIRST_ROOM, Bag, copy_rows, roomy
from decaysketch.core.observations import MISSING_KEY, TIME_LIMIT
from decaysketch.errors import ParameterError

__all__ = ["Columns", "RetainedElements", "release_scratch"]

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]

_SPARE = 1.03  # capacities of rows to look at, so that some may be copies; doubled where too few
_BLOCK = 512  # rows that there is room for before any are admitted

# Key the identity table; drawn for each process because the table is fed from the network.
_SALTS = (secrets.randbits(64) | 1, secrets.randbits(64) | 1)

_INT64, _UINT64 = np.dtype(np.int64), np.dtype(np.uint64)
_LOWEST_KEY, _HIGHEST_KEY = MISSING_KEY + 1, np.iinfo(np.int64).max


class Columns(NamedTuple):
    """Row columns; see :class:`~decaysketch.asyncwindow.state.WindowState`."""

    values: Int64Array
    times: Int64Array
    keys: UInt64Array
    levels: npt.NDArray[np.int8]

    @classmethod
    def of_room(cls, room: int) -> Self:
        """Return empty columns with space for this number of rows."""
        return cls(*(np.empty(room, kind) for kind in "qqQb"))


class _Scratch(threading.local):
    """Working memory for compaction, grown geometrically, one per thread."""

    def __init__(self) -> None:
        self.counts = np.empty(0, np.uint32)
        self._allocate(FIRST_ROOM)

    def reserve(self, rows: int, levels: int = 0) -> None:
        """Reserve space for this number of rows, and for counts per level."""
        if rows > self.room:
            self._allocate(max(rows, self.room * 3 // 2))
        if len(self.counts) < levels * _native.BUCKETS:
            self.counts = np.empty(levels * _native.BUCKETS, np.uint32)

    def _allocate(self, room: int) -> None:
        self.room = room
        self.ages = np.empty((2, room), np.uint64)
        self.words = np.empty((2, room), np.uint32)
        self.rows = np.empty(room, np.uint32)
        self.buckets = np.empty(room, np.uint16)
        self.slots = np.empty(_native.slots_for(room), np.uint32)

    def release(self) -> None:
        """Release the calling thread's working memory. It is allocated again when needed."""
        self.__init__()  # type: ignore[misc]


_scratch = _Scratch()
release_scratch = _scratch.release


class RetainedElements(Bag):
    """Rows, watermarks and clock. Not safe to use from two threads at once."""

    factor = 4
    params: SumParams | MedianParams
    _bag: Columns

    def __init__(self, params: SumParams | MedianParams) -> None:
        super().__init__(params)
        bounds = (0, params.bound) if params.weighted else (_LOWEST_KEY, _HIGHEST_KEY)
        self._stream = _native.Stream(
            weighted=params.weighted,
            lowest=bounds[0],
            highest=bounds[1],
            time_limit=TIME_LIMIT,
            levels=params.levels,
            first_nested=params.first_nested,
        )
        self._bag = Columns.of_room(0)
        self._spare = _SPARE

    @classmethod
    def frozen(cls, state: WindowState) -> Self:
        bag = cls(state.params)
        bag.clock = state.clock
        bag._marks[:] = state.watermarks
        bag._bag = Columns(state.value_keys, state.times, state.keys, state.levels)
        bag._rows = bag._kept = len(state)
        return bag

    @classmethod
    def from_state(cls, state: WindowState) -> Self:
        bag = cls.frozen(state)
        bag._resize(len(state))
        return bag

    @property
    def floor(self) -> int:
        """See :attr:`WindowState.floor`."""
        return floor_of(self.params, self.clock)

    # ------------------------------------------------------------------------------------- input

    def admit(
        self, values: npt.NDArray[Any], times: Int64Array, words: UInt64Array,
        sequence: npt.NDArray[Any] | None, first_number: int,
    ) -> tuple[int, int] | None:  # fmt: skip
        """Accept a batch of contiguous columns with equal lengths that are not validated yet.

        Args:
            values: int64, or float64 without conversion if that is the stream's type.
            times: int64.
            words: uint64, for one source or for each row's source.
            sequence: int64 or uint64. None to number the rows from ``first_number`` on.
            first_number: below 2^64.

        Returns: The number of rows with weight 0, and the number too old for any window. None, with
            nothing accepted, if a row is out of bounds. Amortised O(1) per row.
        """
        n = len(times)
        batch = (
            values.view(_INT64), values.dtype.kind == "f", times, words.view(_UINT64),
            None if sequence is None else sequence.view(_UINT64), first_number,
        )  # fmt: skip
        self._make_room(n)
        fits = self._rows + n <= self._room
        if not fits and not _native.in_bounds(self._stream, *batch):
            return None
        start = zeros = late = 0
        while start < n:
            self._make_room(n - start)
            taken = _native.admit(
                self._stream, *batch, start, self._marks, self.floor, *self._bag, self._rows
            )
            if taken is None:
                return None
            start, self._rows = taken[:2]
            zeros, late = zeros + taken[2], late + taken[3]
            self._dirty = True  # after making room, which may have compacted
        return zeros, late

    def _append(self, bag: Self, incoming: int) -> None:
        self._make_room_to_append(bag._rows, incoming)
        self._rows = _native.append(
            self._stream, *bag._bag, bag._rows, self._marks, *self._bag, self._rows
        )

    # -------------------------------------------------------------------------------------- room

    def trim(self) -> None:
        self.compact()
        if self._room > roomy(self._rows):
            self._resize(self._rows)

    @property
    def _room(self) -> int:
        return len(self._bag.times)

    def _resize(self, room: int) -> None:
        larger = Columns.of_room(room)
        copy_rows(larger, self._bag, self._rows)
        self._bag = larger

    def _make_room(self, incoming: int) -> None:
        """Make space for one more block, by growing the bag up to its limit, else by compacting
        it.
        """
        wanted = self._rows + _BLOCK
        if wanted <= self._room:
            return
        if wanted > self._limit():
            self._dirty = True
            self.compact()
        if self._rows + _BLOCK > self._room:
            # A quarter more than the limit, and used: samples grow slowly, and touching fresh
            # memory costs more than a row does. Once between compactions, for the same reason.
            most = min(self._limit() * 5 // 4, _native.MAX_ROWS)
            wanted = max(FIRST_ROOM, 5 * self._room, self._rows + incoming + _BLOCK)
            self._resize(min(most, wanted))

    def _limit(self) -> int:
        """A row number has to fit the kernels' words."""
        return min(super()._limit() + _BLOCK, _native.MAX_ROWS)

    def _make_room_to_append(self, rows: int, incoming: int) -> None:
        """Make space for this number of rows plus one, at most for all rows still to come.

        Raises:
            ParameterError: more rows than kernels can number.
        """
        together = self._rows + rows
        if together < self._room:
            return
        if together >= _native.MAX_ROWS:
            raise ParameterError(
                f"a merge has {together} rows; expected less than {_native.MAX_ROWS}: use a "
                "smaller capacity"
            )
        most = max(self._merge_limit(), together)
        wanted = max(self._rows + incoming, min(2 * self._room, most))
        self._resize(min(wanted, most, _native.MAX_ROWS - 1) + 1)

    # -------------------------------------------------------------------------------- compaction

    def _drop(self) -> None:
        capacity, n = self.params.capacity, self._rows
        _scratch.reserve(n, len(self._marks))
        self._rows, many_copies = _native.compact(
            self._stream, *self._bag, n, capacity, int(capacity * self._spare), self._marks, _SALTS,
            _scratch.ages, _scratch.words, _scratch.rows, _scratch.buckets, _scratch.counts,
            _scratch.slots,
        )  # fmt: skip
        if many_copies:
            self._spare *= 2.0  # compact more rows next time

    def by_time(self) -> WindowState:
        """Return the state with rows ordered by time alone (ties in any order), for queries.

        Cheaper than :meth:`state`. O(rows).
        """
        return self._arranged(canonical=False)

    def state(self) -> WindowState:
        """The canonical state, copied out. O(rows)."""
        return self._arranged(canonical=True)

    def _arranged(self, *, canonical: bool) -> WindowState:
        self.compact()
        _scratch.reserve(self._rows)
        rows = Columns.of_room(self._rows)
        _native.arrange(
            *self._bag, canonical, self.params.weighted, _scratch.ages, _scratch.words, *rows
        )
        return WindowState(
            self.params, self.clock, rows.values, rows.times, rows.keys, rows.levels,
            self._marks.copy(),
        )  # fmt: skip
