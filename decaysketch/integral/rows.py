"""The rows an integral sketch holds, between batches: a bag with watermarks and a clock.

Beside each row stand its *events*, an unsigned 32-bit word each: the levels lo..hi that share a
first hit, and the step of the decay at which they expire. An observation of weight ``w`` has about
``ln w`` of them; one of a decay with a single step has one. An event that no watermark leaves alive
is not stored, and neither is a row without any. That is safe at once, since watermarks only rise.
What is admitted may be superfluous: a copy, or beyond the capacity; so the bag grows to a few times
what the last compaction kept and is then compacted (``_kernels.py``). Laziness changes no state:
:meth:`IntegralRows.state` compacts first.

Scratch memory is shared by all sketches of a thread.
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

from decaysketch.core.observations import Observations
from decaysketch.core.params import SketchParams
from decaysketch.core.verdicts import Identified
from decaysketch.decay.integral import IntegralDecay
from decaysketch.integral import _kernels
from decaysketch.integral.state import NO_CLOCK, IntegralState
from decaysketch.integral.tables import integral_plan
from decaysketch.minhit._kernels import BLOCK

__all__ = ["IntegralRows", "release_scratch"]

Int64Array = npt.NDArray[np.int64]

# The bag is compacted when it holds this many times the rows that the last compaction kept, but
# never below the minimum.
_BAG_FACTOR = 4
_SMALLEST_LIMIT = 16_384
_FIRST_ROOM = 1_024
_SLACK, _LITTLE = 8, 64  # trimmed, a bag has room for that part of its rows more, or so many
_FIRST_EVENTS = 6  # events of a row, before it is known how many there are
_MERGE_LIMIT = 1 << 18  # rows gathered from many sketches before they are compacted together

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
            room = max(rows, _FIRST_ROOM, len(self.dead) * 3 // 2)
            self.dead = np.empty(room, np.int8)
            self.table = np.empty(1 << (2 * room).bit_length(), np.uint32)


_scratch = _Scratch()


def release_scratch() -> None:
    """Give back the working memory of the calling thread; it is made anew when it is needed."""
    _scratch.__init__()  # type: ignore[misc]


class IntegralRows:
    """Rows, watermarks and clock. Not safe to use from two threads at once."""

    def __init__(self, params: SketchParams, decay: IntegralDecay) -> None:
        self.params = params
        self.decay = decay
        self.clock = NO_CLOCK
        self.expired = 0  # rows that were expired at the clock when they came
        self._plan = integral_plan(params, decay)
        self._marks = np.full(params.levels + 1, NO_CLOCK, dtype=np.int64)  # t_i
        self._bag = _Bag.empty(0, 0)
        self._rows = 0
        self._events = 0
        self._kept = 0  # rows that the last compaction kept
        self._dirty = False  # something was added, or a watermark or the capacity changed, since

    @classmethod
    def from_state(cls, state: IntegralState) -> Self:
        """Rows that hold exactly a canonical state; events are computed again."""
        rows = cls(state.params, state.decay)
        rows.clock = state.clock
        rows._marks[:] = state.watermarks
        rows.admit(Observations(state.value_keys, state.weights, state.times, state.ids))
        rows._kept = rows._rows
        return rows

    def __len__(self) -> int:
        """Rows in the bag, before they are compacted."""
        return self._rows

    @property
    def nbytes(self) -> int:
        """Bytes that the bag takes, room for more rows included."""
        return sum(column.nbytes for column in self._bag)

    def trim(self) -> None:
        """Compact, and give back the room that no row takes. O(rows) where there is any."""
        self.compact()
        bag, rows, events = self._bag, self._rows, self._events
        needed = _Bag.empty(rows + 1, events + 1)
        needed_bytes = sum(column.nbytes for column in needed)
        if self.nbytes <= needed_bytes + needed_bytes // _SLACK + _LITTLE * 44:
            return
        for to, source in zip(needed[:4], bag[:4], strict=True):
            to[:rows] = source[:rows]
        needed.first[: rows + 1] = bag.first[: rows + 1]
        needed.events[:events] = bag.events[:events]
        self._bag = needed

    @property
    def watermarks(self) -> Int64Array:
        """The watermark of each level, as far as compaction found them."""
        return self._marks

    # ------------------------------------------------------------------------------------- input

    def advance(self, now: int) -> None:
        """Let the clock reach ``now``; O(M), what has expired is dropped later."""
        if now > self.clock:
            self.clock = now
            np.maximum(self._marks, now, out=self._marks)
            self._dirty = True

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

    def absorb(self, others: Iterable[IntegralRows]) -> None:
        """Take what other bags hold, the latest clock, and the higher watermark of each level.

        Watermarks are joined before a row is looked at: what expired at the watermark of a level in
        any of the sketches has expired in their merged state, and a level that answers for neither
        of two sketches does not answer for both.
        """
        bags = list(others)
        for bag in bags:
            bag.compact()
            np.maximum(self._marks, bag._marks, out=self._marks)
            self.clock = max(self.clock, bag.clock)
        self._dirty = True
        for bag in bags:
            if self._rows + bag._rows > max(_MERGE_LIMIT, _BAG_FACTOR * self._kept):
                self.compact()
            self._reserve(self._rows + bag._rows, self._events + bag._events)
            self._rows, self._events = _kernels.append_alive(
                *bag._bag, bag._rows, self._plan.ages, self._marks, *self._bag, self._rows,
                self._events,
            )  # fmt: skip
            self._dirty = True

    def lower_capacity(self, capacity: int) -> None:
        """Shrink to a smaller capacity: equals having built with it."""
        self.params = self.params.with_capacity(capacity)
        self._dirty = True

    def _make_room(self, incoming: int) -> None:
        """Room for one more block, by growing the bag up to its limit, else by compacting it."""
        if self._has_room():
            return
        block = BLOCK + 1
        if self._rows + block > self._limit():
            self.compact()
        if not self._has_room():
            wanted = max(_FIRST_ROOM, 2 * self._rows, self._rows + incoming) + block
            rows = max(min(self._limit() + block, wanted), self._rows + block)
            per_row = max(_FIRST_EVENTS, -(-2 * self._events // max(1, self._rows)))
            self._reserve(rows, max(rows * per_row, self._events) + 2 * _kernels.FLAT)

    def _has_room(self) -> bool:
        return self._rows + BLOCK < len(self._bag.first) and self._events + _kernels.FLAT <= len(
            self._bag.events
        )

    def _limit(self) -> int:
        """Rows at which the bag is compacted; a row number has to fit the kernels' words."""
        return min(max(_SMALLEST_LIMIT, _BAG_FACTOR * self._kept), _kernels.MAX_ROWS)

    def _reserve(self, rows: int, events: int) -> None:
        """Arrays for so many rows and events, one of each to spare: kernels write before they
        decide whether to keep."""
        if rows >= len(self._bag.ids) or events >= len(self._bag.events):
            bag = _Bag.empty(max(rows + 1, len(self._bag.ids)),
                             max(events + 1, len(self._bag.events)))  # fmt: skip
            for to, source in zip(bag[:4], self._bag[:4], strict=True):
                to[: self._rows] = source[: self._rows]
            bag.first[: self._rows + 1] = self._bag.first[: self._rows + 1]
            bag.events[: self._events] = self._bag.events[: self._events]
            self._bag = bag

    # -------------------------------------------------------------------------------- compaction

    def compact(self) -> None:
        """Drop copies, what is beyond the capacity and what has expired. O(rows)."""
        if not self._dirty:
            return
        n, bag, ages = self._rows, self._bag, self._plan.ages
        if n:
            _scratch.reserve(n)
            dead = _scratch.dead
            bits = max(8, (n + n // 2).bit_length())
            _kernels.mark_copies(
                bag.values, bag.weights, bag.times, bag.ids, n, self.params.max_weight,
                _TABLE_SALT, _scratch.table, bits, dead,
            )  # fmt: skip
            _kernels.raise_marks(
                bag.times, bag.first, bag.events, n, dead, ages, self.params.capacity, self._marks
            )
            self._rows, self._events = _kernels.squeeze(*bag, n, dead, ages, self._marks)
        self._kept = self._rows
        self._dirty = False

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
