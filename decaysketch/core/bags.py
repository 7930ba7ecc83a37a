"""The rows that a sketch stores between batches: a bag with watermarks, compacted when it is full.

A row is admitted if it is later than the watermark at its level. This is safe immediately, since
watermarks only rise. An admitted row may be superfluous: a duplicate, or beyond the capacity. So
the bag grows to a few times the size after the last compaction, and is then compacted in one pass.
Deferred compaction changes no state: every reader compacts first.

A family defines the columns of its rows and passes them to its kernels. All sketches in a family
and thread share scratch memory. A sketch owns only its bag.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from decaysketch.core.watermarks import NO_WATERMARK
from decaysketch.errors import ParameterError

__all__ = [
    "FIRST_ROOM",
    "MAX_ROWS",
    "Bag",
    "ColumnBag",
    "Columns",
    "Retained",
    "Scratch",
    "copy_rows",
    "roomy",
    "with_room",
]

Columns = tuple[npt.NDArray[Any], ...]
C = TypeVar("C", bound=Columns)

FIRST_ROOM = 1_024
MAX_ROWS = 1 << 26  # of a bag: the number of a row has to fit the words of its kernels
_SMALLEST_LIMIT = 16_384  # rows; a bag of fewer is not compacted to make room
_MERGE_LIMIT = 1 << 18  # rows gathered from many sketches before they are compacted together
_SLACK, _LITTLE = 8, 64  # trimmed, a bag has room for that part of its rows more, or so many


def with_room(columns: C, room: int, rows: int = 0) -> C:
    """Return columns with the same types and another capacity, with a copy of the first rows."""
    made: Any = type(columns)  # a named tuple: its constructor takes single columns
    larger: C = made(*(np.empty(room, column.dtype) for column in columns))
    copy_rows(larger, columns, rows)
    return larger


def copy_rows(to: Columns, source: Columns, rows: int) -> None:
    """Overwrite the first rows of columns with other columns."""
    for column, of in zip(to, source, strict=True):
        column[:rows] = of[:rows]


def roomy(rows: int) -> int:
    """Return the capacity that this number of rows may keep when trimmed. The rest is freed."""
    return rows + rows // _SLACK + _LITTLE


class Scratch(threading.local):
    """Working memory for compaction. Each thread has its own, and it grows geometrically.

    Args:
        nothing: a bag's columns without rows.
    """

    def __init__(self, nothing: Columns) -> None:
        self.nothing = self.out = nothing
        self._allocate(FIRST_ROOM)

    def reserve(self, rows: int) -> None:
        if rows > self.room:
            self._allocate(max(rows, self.room * 3 // 2))

    def _allocate(self, room: int) -> None:
        self.room = room
        self.keys = np.empty((2, room), np.uint64)
        self.words = np.empty((2, room), np.uint32)
        self.order = np.empty(room, np.int64)
        self.table = np.empty(1 << (2 * room).bit_length(), np.uint32)

    def release(self) -> None:
        """Free the calling thread's memory. It is allocated again when needed."""
        self.__init__(self.nothing)  # type: ignore[misc]


class Retained(Protocol):
    """A sketch's row container, under one hash function."""

    @property
    def params(self) -> Any:
        """Parameters, with the capacity in force."""

    @property
    def clock(self) -> int:
        """The latest reported time, or ``NO_WATERMARK``."""

    @property
    def replaced(self) -> int:
        """Number of readings that a later reading with their identity replaced, far away in time.
        See :mod:`decaysketch.core.duplicates`.
        """

    @property
    def nbytes(self) -> int:
        """Memory bytes, including spare capacity."""

    def __len__(self) -> int: ...

    def trim(self) -> None:
        """Free the capacity that no row uses."""

    def lower_capacity(self, capacity: int) -> None:
        """Shrink to a smaller capacity: equals having built with it."""

    def absorb(self, others: Iterable[Any]) -> None:
        """Merge the others' rows, the higher watermark at each level and the latest clock."""


class Bag(ABC):
    """Rows, watermarks and, where there is one, a clock. Not safe to use from two threads at once.

    Args:
        params: parameters of the sketch.
    """

    #: Times the rows that the last compaction kept, at which the bag is compacted again.
    factor: ClassVar[int]

    _bag: Columns

    @property
    def replaced(self) -> int:
        """0, for bags in which no reading replaces another."""
        return 0

    def __init__(self, params: Any) -> None:
        self.params = params
        self.clock = NO_WATERMARK  # the latest time received
        self._marks = np.full(params.levels + 1, NO_WATERMARK, dtype=np.int64)  # t_i
        self._rows = 0
        self._kept = 0  # rows that the last compaction kept: the first ones of the bag
        self._dirty = False  # more was added, or less is to be kept, since then

    @classmethod
    @abstractmethod
    def from_state(cls, state: Any) -> Self:
        """Return rows that contain exactly a canonical state."""

    @classmethod
    @abstractmethod
    def frozen(cls, state: Any) -> Self:
        """Return a state's rows, without a copy if possible. Others may absorb them, but not
        change them.
        """

    @abstractmethod
    def state(self) -> Any:
        """Return the canonical state as a copy. O(rows)."""

    def __len__(self) -> int:
        self.compact()
        return self._rows

    @property
    def nbytes(self) -> int:
        """The bag's bytes, including spare capacity."""
        return sum(column.nbytes for column in self._bag)

    @abstractmethod
    def trim(self) -> None:
        """Compact, and free the capacity that no row uses. O(rows) if there is any."""

    @property
    def floor(self) -> int:
        """The latest time whose rows the clock has made useless, at every level."""
        return self.clock

    def advance(self, now: int) -> None:
        """Advance the clock. O(M): expired rows are dropped later. A time before the clock has
        no effect.
        """
        if now > self.clock:
            self.clock = now
            if self.floor > self._marks.min():
                np.maximum(self._marks, self.floor, out=self._marks)
                self._dirty = True

    def lower_capacity(self, capacity: int) -> None:
        """Shrink to a smaller capacity: equals having built with it."""
        self.params = self.params.with_capacity(capacity)
        self._dirty = True

    def absorb(self, others: Iterable[Self]) -> None:
        """Merge other bags' rows, the higher watermark at each level and the latest clock.

        The joined watermarks are valid before any row is checked. A row not later than its level's
        watermark in any of the sketches is not in their merged state. A level that answers for
        neither sketch does not answer for both.
        """
        bags = list(others)
        for bag in bags:
            bag.compact()
            np.maximum(self._marks, bag._marks, out=self._marks)
            self.advance(bag.clock)
            self._dirty = True
        incoming = sum(bag._rows for bag in bags)
        for bag in bags:
            if self._rows + bag._rows > self._merge_limit():
                self.compact()
            self._append(bag, incoming)
            self._dirty = True
            incoming -= bag._rows

    def _merge_limit(self) -> int:
        """Rows at which the bag is compacted before another one is appended to it."""
        return max(_MERGE_LIMIT, self.factor * self._kept)

    @abstractmethod
    def _append(self, bag: Self, incoming: int) -> None:
        """Append the rows in a bag that are later than the watermarks. ``incoming`` counts the rows
        in this bag and in all that follow.
        """

    def _limit(self) -> int:
        """Rows at which the bag is compacted before more are admitted."""
        return max(_SMALLEST_LIMIT, self.factor * self._kept)

    def compact(self) -> None:
        """Drop duplicates, rows beyond the capacity and expired rows. O(rows)."""
        if self._dirty:
            if self._rows:
                self._drop()
            self._kept = self._rows
            self._dirty = False

    @abstractmethod
    def _drop(self) -> None:
        """Compact one row or more."""


class ColumnBag(Bag):
    """A bag with one column entry for each row. Compaction leaves it ordered by time, latest first.

    Args:
        params: parameters of the sketch.
    """

    block: ClassVar[int]  # rows that are admitted at once
    scratch: ClassVar[Scratch]

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self._bag = self.scratch.nothing

    @classmethod
    @abstractmethod
    def _like(cls, state: Any) -> Self:
        """Return an empty bag with a state's parameters."""

    @staticmethod
    @abstractmethod
    def _columns(state: Any) -> Columns:
        """Return a state's rows."""

    @classmethod
    def frozen(cls, state: Any) -> Self:
        bag = cls._like(state)
        bag._marks[:] = state.watermarks
        bag._bag = cls._columns(state)
        bag._rows = bag._kept = len(state)
        return bag

    @classmethod
    def from_state(cls, state: Any) -> Self:
        bag = cls.frozen(state)
        bag._bag = with_room(bag._bag, bag._rows, bag._rows)
        return bag

    def trim(self) -> None:
        self.compact()
        if len(self._bag[0]) > roomy(self._rows):
            self._bag = with_room(self._bag, self._rows, self._rows)

    def _make_room(self, incoming: int) -> None:
        """Make capacity for one more block, by growing the bag up to its limit, else by
        compacting it.
        """
        wanted = self._rows + self.block
        if wanted <= len(self._bag[0]):
            return
        if wanted > self._limit():
            self._dirty = True
            self.compact()
        room = len(self._bag[0])
        if self._rows + self.block > room:
            wanted = max(FIRST_ROOM, 2 * room, self._rows + incoming + self.block)
            self._reserve(min(self._most_room(), wanted))

    def _limit(self) -> int:
        """A row number has to fit the kernels' words."""
        return min(super()._limit() + self.block, MAX_ROWS)

    def _most_room(self) -> int:
        """The bag's maximum row capacity, if none are merged into it."""
        return self._limit()

    def _reserve(self, room: int) -> None:
        if room > len(self._bag[0]):
            self._bag = with_room(self._bag, room, self._rows)

    def _make_room_to_append(self, rows: int, incoming: int) -> None:
        """Make capacity for this number of rows and one to spare, at most for all incoming rows.

        Raises:
            ParameterError: more rows than kernels can number.
        """
        together, room = self._rows + rows, len(self._bag[0])
        if together < room:
            return
        most = max(self._merge_limit(), together)
        wanted = max(self._rows + incoming, min(2 * room, most))
        self._reserve(min(wanted, most, MAX_ROWS - 1) + 1)
        if together >= len(self._bag[0]):  # kernels check no bounds
            raise ParameterError(
                f"a merge has {together} rows; expected less than {len(self._bag[0])}: use a "
                "smaller capacity"
            )

    def _drop(self) -> None:
        scratch, bag = self.scratch, self._bag
        scratch.reserve(self._rows)
        if len(scratch.out[0]) < self._rows:
            scratch.out = with_room(bag, len(bag[0]))
        out = scratch.out
        kept = self._compact_into(out)
        if len(out[0]) <= 2 * len(bag[0]):  # like sizes: trade memory instead of copying
            self._bag, scratch.out = out, bag
        else:
            copy_rows(bag, out, kept)
        self._rows = kept

    @abstractmethod
    def _compact_into(self, out: Any) -> int:
        """Write the remaining rows into other columns, with capacity for all, and return their
        number.
        """
