"""The rows an integral sketch holds, between batches: a bag (``core/bags.py``) with events.

Beside each row stand its *events*, an unsigned 32-bit word each: the levels lo..hi that share a
first hit, and the step of the decay at which they expire. An observation of weight ``w`` has about
``ln w`` of them; one of a decay with a single step has one. An event that no watermark leaves alive
is not stored, and neither is a row without any.
"""

from __future__ import annotations

import secrets
import threading
from types import ModuleType
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
from numba import types

from decaysketch.core.bags import FIRST_ROOM, Bag, copy_rows, roomy
from decaysketch.core.observations import Observations
from decaysketch.core.params import SketchParams
from decaysketch.core.verdicts import Identified
from decaysketch.decay.integral import IntegralDecay
from decaysketch.integral import _kernels
from decaysketch.integral.state import IntegralState
from decaysketch.integral.tables import integral_plan
from decaysketch.minhit._kernels import BLOCK

__all__ = ["IntegralRows", "release_scratch"]

Int64Array = npt.NDArray[np.int64]

_FIRST_EVENTS = 6  # events of a row, before it is known how many there are

# Keys the identity table; drawn for each process because the table is fed from the network.
_TABLE_SALT = np.uint64(secrets.randbits(64) | 1)

_compiling = threading.Lock()
_compiled = False


def _admitting_kernels() -> ModuleType:
    """The kernels, with the one that reads a caller's columns compiled for read-only arrays alone.

    Writable arrays convert to that at no cost, while compiling by use would build a second version
    for the read-only arrays that Arrow hands out.
    """
    global _compiled
    if not _compiled:
        with _compiling:
            if not _compiled:
                column = types.Array(types.int64, 1, "C", readonly=True)
                table = types.Array(types.int64, 2, "C", readonly=True)
                own, number = types.Array(types.int64, 1, "C"), types.int64
                events = types.Array(types.uint32, 1, "C")
                hash_ = (number, column, number, number, number, number, table)
                rounded = types.Array(types.float64, 1, "C", readonly=True)
                decay = (
                    column, column, column, table, rounded, column, number, number, number,
                    types.boolean,
                )  # fmt: skip
                bag = (own, own, own, own, own, events, number, number)
                _kernels.admit.compile(
                    (column, column, column, column, number, number, *hash_, *decay, number, own,
                     *bag)
                )  # fmt: skip
                _kernels.admit.disable_compile()
                _compiled = True
    return _kernels


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
        first = np.empty(rows + 1, np.int64)
        first[0] = 0
        return cls(values, weights, times, ids, first, np.empty(events, np.uint32))


class _Scratch(threading.local):
    """Working memory, grown geometrically, one for each thread."""

    def __init__(self) -> None:
        self.dead = np.empty(0, np.int8)
        self.table = np.empty(0, np.uint32)

    def reserve(self, rows: int) -> None:
        if rows > len(self.dead):
            room = max(rows, FIRST_ROOM, len(self.dead) * 3 // 2)
            self.dead = np.empty(room, np.int8)
            self.table = np.empty(1 << (2 * room).bit_length(), np.uint32)


_scratch = _Scratch()


def release_scratch() -> None:
    """Give back the working memory of the calling thread; it is made anew when it is needed."""
    _scratch.__init__()  # type: ignore[misc]


class IntegralRows(Bag):
    """Rows, watermarks and clock. Not safe to use from two threads at once."""

    factor = 4
    params: SketchParams
    _bag: _Bag

    def __init__(self, params: SketchParams, decay: IntegralDecay) -> None:
        super().__init__(params)
        self.decay = decay
        self.expired = 0  # rows that were expired at the clock when they came
        self._plan = integral_plan(params, decay)
        self._bag = _Bag.empty(0, 0)
        self._events = 0

    @classmethod
    def from_state(cls, state: IntegralState) -> Self:
        """Rows that hold exactly a canonical state; events are computed again."""
        rows = cls(state.params, state.decay)
        rows.clock = state.clock
        rows._marks[:] = state.watermarks
        rows.admit(Observations(state.value_keys, state.weights, state.times, state.ids))
        rows._kept = rows._rows
        return rows

    frozen = from_state  # a state has no events

    @property
    def gathered(self) -> int:
        """Rows in the bag, before they are compacted."""
        return self._rows

    def trim(self) -> None:
        self.compact()
        rows, events = self._rows, self._events
        needed = _Bag.empty(rows + 1, events + 1)
        if self.nbytes > roomy(sum(column.nbytes for column in needed)):
            self._bag = self._moved_to(needed)

    @property
    def watermarks(self) -> Int64Array:
        """The watermark of each level, as far as compaction found them."""
        return self._marks

    # ------------------------------------------------------------------------------------- input

    def admit(self, batch: Observations) -> None:
        """Take a validated batch. Amortised O(log max_weight) arithmetic steps for each row."""
        kernels = _admitting_kernels()
        start, stop = 0, len(batch.ids)
        while start < stop:
            self._make_room(stop - start)
            self._dirty = True  # after making room, which may have compacted
            start, self._rows, self._events, expired = kernels.admit(
                *batch, start, stop, *self._plan.hash, self._plan.ages, *self._plan.decay,
                self.clock, self._marks, *self._bag, self._rows, self._events,
            )  # fmt: skip
            self.expired += expired

    def _append(self, bag: Self, incoming: int) -> None:
        self._reserve(self._rows + bag._rows, self._events + bag._events)
        self._rows, self._events = _kernels.append_alive(
            *bag._bag, bag._rows, self._plan.ages, self._marks, *self._bag, self._rows,
            self._events,
        )  # fmt: skip

    def _make_room(self, incoming: int) -> None:
        """Room for one more block, by growing the bag up to its limit, else by compacting it."""
        if self._has_room():
            return
        block = BLOCK + 1
        if self._rows + block > self._limit():
            self.compact()
        if not self._has_room():
            wanted = max(FIRST_ROOM, 2 * self._rows, self._rows + incoming) + block
            rows = max(min(self._limit() + block, wanted), self._rows + block)
            per_row = max(_FIRST_EVENTS, -(-2 * self._events // max(1, self._rows)))
            self._reserve(rows, max(rows * per_row, self._events) + 2 * _kernels.FLAT)

    def _has_room(self) -> bool:
        return self._rows + BLOCK < len(self._bag.first) and self._events + _kernels.FLAT <= len(
            self._bag.events
        )

    def _limit(self) -> int:
        """A row number has to fit the kernels' words."""
        return min(super()._limit(), _kernels.MAX_ROWS)

    def _reserve(self, rows: int, events: int) -> None:
        """Arrays for so many rows and events, one of each to spare: kernels write before they
        decide whether to keep."""
        room, events_room = len(self._bag.ids), len(self._bag.events)
        if rows >= room or events >= events_room:
            larger = _Bag.empty(max(rows + 1, room), max(events + 1, events_room))
            self._bag = self._moved_to(larger)

    def _moved_to(self, bag: _Bag) -> _Bag:
        """A bag with the rows and events of this one."""
        copy_rows(bag[:4], self._bag[:4], self._rows)
        copy_rows(bag[4:5], self._bag[4:5], self._rows + 1)
        copy_rows(bag[5:], self._bag[5:], self._events)
        return bag

    # -------------------------------------------------------------------------------- compaction

    def _drop(self) -> None:
        n, bag, ages = self._rows, self._bag, self._plan.ages
        _scratch.reserve(n)
        dead = _scratch.dead
        bits = max(8, (n + n // 2).bit_length())
        _kernels.mark_copies(
            bag.values, bag.weights, bag.times, bag.ids, n, self.params.max_weight, _TABLE_SALT,
            _scratch.table, bits, dead,
        )  # fmt: skip
        _kernels.raise_marks(
            bag.times, bag.first, bag.events, n, dead, ages, self.params.capacity, self._marks
        )
        self._rows, self._events = _kernels.squeeze(*bag, n, dead, ages, self._marks)

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
        """The rows held, in no order: views, until something is added. O(rows)."""
        self.compact()
        n, bag = self._rows, self._bag
        return Identified(bag.ids[:n], bag.weights[:n], bag.times[:n], bag.values[:n])

    def held_by_level(self) -> tuple[Int64Array, Int64Array]:
        """For each level, how many rows expire there later than its watermark, and how many expire
        exactly then both there and at the next level. O(events)."""
        later, tied = np.zeros((2, len(self._marks)), dtype=np.int64)
        _kernels.held_by_level(
            self._bag.times, self._bag.first, self._bag.events, self._rows, self._plan.ages,
            self._marks, later, tied,
        )  # fmt: skip
        return later, tied
