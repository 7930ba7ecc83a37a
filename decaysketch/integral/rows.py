"""The rows that an integral sketch stores between batches: a bag (``core/bags.py``) with events.

Each row has *events*, an unsigned 32-bit word each: the levels lo..hi that share a first hit, and
the step of the decay at which they expire. An observation with weight ``w`` has about ``ln w``
events, or one event if the decay has a single step. An event that no watermark leaves alive is not
stored, and neither is a row without events.
"""

from __future__ import annotations

import secrets
import threading
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from decaysketch.core.bags import FIRST_ROOM, Bag, copy_rows, roomy
from decaysketch.core.duplicates import far_apart
from decaysketch.core.observations import Observations
from decaysketch.core.params import SketchParams
from decaysketch.core.row_check import Identified
from decaysketch.decay.integral import IntegralDecay
from decaysketch.integral import _native
from decaysketch.integral.state import IntegralState
from decaysketch.integral.tables import integral_plan

__all__ = ["IntegralRows", "release_scratch"]

Int64Array = npt.NDArray[np.int64]

_INT64 = np.dtype(np.int64)
_SPARE = 4  # free rows above the limit: limit / _SPARE, because the limit moves a little
_FIRST_EVENTS = 6  # events assumed for a row before they are counted
_MAX_ROWS = 1 << 26  # a row number has to fit the kernels' words

# Keys the identity table; drawn for each process because the table is fed from the network.
_TABLE_SALT = secrets.randbits(64) | 1


class _Bag(NamedTuple):
    values: Int64Array
    weights: Int64Array
    times: Int64Array
    ids: Int64Array
    first: Int64Array  # where the events of a row begin; one more entry than rows
    events: npt.NDArray[np.uint32]

    @classmethod
    def empty(cls, rows: int, events: int) -> Self:
        values, weights, times, ids = (np.empty(rows, np.int64) for _ in range(4))
        return cls(values, weights, times, ids, np.zeros(rows + 1, np.int64),
                   np.empty(events, np.uint32))  # fmt: skip


class _Scratch(threading.local):
    """Working memory, grown geometrically, one per thread."""

    def __init__(self) -> None:
        self.fates = np.empty(0, np.uint8)
        self.slots = np.empty(0, np.uint32)
        self.entries = np.empty((2, 0), np.uint64)

    def reserve(self, rows: int, events: int) -> None:
        if rows > len(self.fates):
            room = max(rows, FIRST_ROOM, len(self.fates) * 3 // 2)
            self.fates = np.empty(room, np.uint8)
            self.slots = np.empty(1 << (2 * room - 1).bit_length(), np.uint32)
        if events > self.entries.shape[1]:
            room = max(events, FIRST_ROOM, self.entries.shape[1] * 3 // 2)
            self.entries = np.empty((2, room), np.uint64)


_scratch = _Scratch()


def release_scratch() -> None:
    """Release the calling thread's working memory. It is allocated again when needed."""
    _scratch.__init__()  # type: ignore[misc]


class IntegralRows(Bag):
    """Rows, watermarks and clock. Not safe to use from two threads at once."""

    factor = 6  # a larger bag is compacted less often, a smaller one takes less memory
    params: SketchParams
    _bag: _Bag
    _room: _native.Room

    def __init__(self, params: SketchParams, decay: IntegralDecay) -> None:
        super().__init__(params)
        self.decay = decay
        self._lost = 0  # see :attr:`replaced`
        self.expired = 0  # rows that were expired at the clock when they came
        self._plan = integral_plan(params, decay)
        self._move_to(_Bag.empty(0, 0))

    @classmethod
    def from_state(cls, state: IntegralState) -> Self:
        """Build rows for exactly a canonical state. Events are computed again."""
        rows = cls(state.params, state.decay)
        rows.clock = state.clock
        rows._marks[:] = state.watermarks
        rows.admit(Observations(state.value_keys, state.weights, state.times, state.ids))
        rows._kept = rows._rows
        return rows

    frozen = from_state  # a state has no events

    @property
    def replaced(self) -> int:
        """Readings that a later one with the same identity replaced here, far away in time."""
        self.compact()
        return self._lost

    @property
    def gathered(self) -> int:
        """Rows in the bag, before they are compacted."""
        return self._rows

    def trim(self) -> None:
        self.compact()
        needed = _Bag.empty(self._rows + 1, self._events + 1)
        if self.nbytes > roomy(sum(column.nbytes for column in needed)):
            self._move_to(needed)

    @property
    def watermarks(self) -> Int64Array:
        """Each level's watermark, as far as compaction has found it."""
        return self._marks

    # ------------------------------------------------------------------------------------- input

    def admit(self, batch: Observations | _native.Batch) -> None:
        """Accept a validated batch. Amortised O(log max_weight) arithmetic steps per row."""
        if isinstance(batch, Observations):
            batch = _native.Batch(*batch)
        start, stop = 0, len(batch)
        while start < stop:
            self._make_room(stop - start)
            self._dirty = True  # after making room, which may have compacted
            start, expired = _native.admit(
                *self._plan, self._room, self._marks, self.clock, batch, start
            )
            self._rows = self._room.rows
            self.expired += expired

    def check(
        self, values: Any, weights: Any, times: Any, ids: Any
    ) -> tuple[_native.Batch, int] | None:
        """Return arrays that need no conversion as a validated batch, with its number of rows with
        weight 0. Return None for all other arrays, and if a row is out of bounds.
        """
        if not (type(ids) is type(times) is type(weights) is type(values) is np.ndarray):
            return None
        if not (
            ids.dtype == times.dtype == weights.dtype == _INT64
            and values.dtype == self.params.value_dtype
        ):
            return None
        try:
            batch = _native.Batch(values, weights, times, ids)
        except ValueError:  # not one contiguous dimension, or of unequal lengths
            return None
        zero_weight = batch.check(self.params.max_weight, 1 << self.params.id_bits)
        return None if zero_weight < 0 else (batch, zero_weight)

    def _append(self, bag: Self, incoming: int) -> None:
        self._reserve(self._rows + bag._rows, self._events + bag._events)
        _native.append_alive(self._plan.decay, bag._room, self._marks, self._room)
        self._rows = self._room.rows

    def _make_room(self, incoming: int) -> None:
        """Make space for one more block, by growing the bag up to its limit, else by compacting
        it.
        """
        if self._has_room():
            return
        block = _native.ADMITTED_ROWS
        if self._rows + block > self._limit():
            self.compact()
        if not self._has_room():
            wanted = max(FIRST_ROOM, 2 * self._rows, self._rows + incoming) + block
            most = self._limit() + self._limit() // _SPARE + block
            rows = max(min(most, wanted), self._rows + block)
            per_row = max(_FIRST_EVENTS, -(-2 * self._events // max(1, self._rows)))
            self._reserve(rows, max(rows * per_row, self._events) + 2 * _native.ADMITTED_EVENTS)

    def _has_room(self) -> bool:
        return self._rows + _native.ADMITTED_ROWS <= len(
            self._bag.ids
        ) and self._events + _native.ADMITTED_EVENTS <= len(self._bag.events)

    def _limit(self) -> int:
        """A row number has to fit the kernels' words."""
        return min(super()._limit(), _MAX_ROWS)

    @property
    def _events(self) -> int:
        return self._room.event_count

    def _reserve(self, rows: int, events: int) -> None:
        """Reserve space for these rows and events, plus one of each: kernels write before they
        decide whether to keep.
        """
        room, events_room = len(self._bag.ids), len(self._bag.events)
        if rows >= room or events >= events_room:
            self._move_to(_Bag.empty(max(rows + 1, room), max(events + 1, events_room)))

    def _move_to(self, bag: _Bag) -> None:
        """Move the rows and events to other columns."""
        events, before = 0, None
        if self._rows:
            events, before = self._events, self._room
            copy_rows(bag[:4], self._bag[:4], self._rows)
            copy_rows(bag[4:5], self._bag[4:5], self._rows + 1)
            copy_rows(bag[5:], self._bag[5:], events)
        self._bag, self._room = bag, _native.Room(*bag, self._rows, events, before)

    # -------------------------------------------------------------------------------- compaction

    def _drop(self) -> None:
        _scratch.reserve(self._rows, self._events)
        self._lost += _native.compact(
            self._plan.decay, self._room, self._marks, self.params.max_weight,
            self.params.capacity, _TABLE_SALT, _scratch.fates, _scratch.slots, _scratch.entries,
            *far_apart(self.params.time_unit),
        )  # fmt: skip
        self._rows = self._room.rows

    def state(self) -> IntegralState:
        """The canonical state, copied out. O(rows log rows)."""
        self.compact()
        n, bag = self._rows, self._bag
        order = np.lexsort((bag.weights[:n], bag.ids[:n], bag.times[:n]))[::-1]
        return IntegralState(
            self.params, self.decay, self.clock, bag.values[order], bag.weights[order],
            bag.times[order], bag.ids[order], self._marks.copy(),
        )  # fmt: skip

    def identified(self) -> Identified:
        """The stored rows, in no order: views, until something is added. O(rows)."""
        self.compact()
        n, bag = self._rows, self._bag
        return Identified(bag.ids[:n], bag.weights[:n], bag.times[:n], bag.values[:n])

    def held_by_level(self) -> tuple[Int64Array, Int64Array]:
        """For each level, count the rows that expire there later than its watermark, and the rows
        that expire exactly then both there and at the next level. O(events).
        """
        later, tied = np.zeros((2, len(self._marks)), dtype=np.int64)
        _native.held_by_level(self._plan.decay, self._room, self._marks, later, tied)
        return later, tied
