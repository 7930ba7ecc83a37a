"""Rows are what memory is made of: how many there are, and how many there may be.

On the wire a row may take a quarter of a byte, in memory it takes 25 and more. So what a process
holds is counted in rows, from the header of a sketch on, before one of them is decoded:

- *in flight*: decoded, or about to be, and not yet journaled (:class:`Flight`);
- *resident*: in the merged sketches and what waits to be merged into them (:class:`Tally`);
- *read*: in the snapshots and samples that questions look at (:class:`Reading`).

A unit is ``ROW_BYTES``. What takes more than a row of it counts as several: a row of an integral
decay with its events, the room that a sketch has for more rows, and what a source or a sketch that
waits takes besides its rows.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, Self, TypeVar

from api.errors import RowsAskedError, RowsInFlightError
from api.service.shares import Shares
from decaysketch.families import release_scratch

__all__ = [
    "BUFFER_ROWS",
    "LARGE_ROWS",
    "PART_ROWS",
    "ROW_BYTES",
    "Flight",
    "Hold",
    "Memory",
    "Reading",
    "Tally",
    "give_back",
]

ROW_BYTES = 25  # value, identity and time of 8 bytes each, and a level
BUFFER_ROWS = 256  # what a merged sketch takes besides its rows, as rows
PART_ROWS = 192  # what a sketch that waits takes besides its rows
LARGE_ROWS = 1 << 18  # from here on merges are made one at a time
TRIM_ROWS = 1 << 19  # let go of, until the C library is told to return them

T = TypeVar("T")


class Owner(Protocol):
    """Who keeps a snapshot for later."""

    def forget(self) -> None:
        """Let go of it."""


def give_back() -> None:
    """Have the C library return free memory to the system, where it is one that can be told."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Tally:
    """Rows, counted here and in what this is a part of. Thread-safe.

    Args:
        within: of which this is a part.
    """

    def __init__(self, within: Tally | None = None) -> None:
        self._within = within
        self._rows = 0
        self._gone = 0
        self._lock = threading.Lock()

    @property
    def rows(self) -> int:
        """How many there are now."""
        return self._rows

    @property
    def gone(self) -> int:
        """How many went, in all."""
        return self._gone

    def change(self, rows: int) -> None:
        """So many more, or fewer."""
        with self._lock:
            self._rows += rows
            self._gone += max(0, -rows)
        if self._within is not None:
            self._within.change(rows)


class Hold:
    """A part of the budget of rows in flight, until the last who shares it lets go. Thread-safe."""

    def __init__(self, flight: Flight, rows: int, caller: str | None) -> None:
        self._flight = flight
        self._rows = rows
        self._caller = caller
        self._shares = 0
        self._lock = threading.Lock()

    @property
    def rows(self) -> int:
        """How many it is of."""
        return self._rows

    def share(self) -> None:
        """Hold it as well."""
        with self._lock:
            self._shares += 1
            if self._shares == 1:
                self._flight.change(self._caller, self._rows)

    def release(self) -> None:
        """Let go of one share."""
        with self._lock:
            self._shares -= 1
            if not self._shares:
                self._flight.change(self._caller, -self._rows)

    def __enter__(self) -> Self:
        self.share()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.release()


class _Limited:
    """Rows of which there may be so many."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._tally = Tally()

    @property
    def rows(self) -> int:
        """How many there are now."""
        return self._tally.rows

    @property
    def gone(self) -> int:
        """How many went, in all."""
        return self._tally.gone


class Flight(_Limited):
    """The rows of all requests that are decoded, or about to be, and not yet journaled.

    Args:
        limit: how many there may be; a single request may have more, if it is alone.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._shares = Shares(limit)

    def hold(self, rows: int, caller: str | None = None) -> Hold:
        """Room for the rows of one request of a caller, to be entered at once.

        Raises:
            RowsInFlightError: with what is there, of the caller or of all, it would be too many.
        """
        if not self._shares.fits(caller, rows):
            raise RowsInFlightError(self._shares.taken, rows, self.limit)
        return Hold(self, rows, caller)

    def change(self, caller: str | None, rows: int) -> None:
        """So many more, or fewer."""
        self._tally.change(rows)
        self._shares.change(caller, rows)


class Reading(_Limited):
    """The rows of snapshots and samples that are alive, and which of them are kept for later.

    What is tracked counts until nobody refers to it. What is kept is what was asked last, and given
    up for what is asked now. Thread-safe.

    Args:
        limit: rows that may be alive; one thing may have more, if it is alone.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._kept: OrderedDict[int, tuple[weakref.ref[Owner], int]] = OrderedDict()
        self._kept_rows = 0
        self._lock = threading.RLock()

    def make_room(self, rows: int) -> None:
        """Let go of what is kept and not asked, as far as so many rows need it.

        Raises:
            RowsAskedError: what is being asked at the time leaves no room.
        """
        while self._tally.rows + rows > self.limit and self._let_go():
            pass
        present = self._tally.rows
        if present and present + rows > self.limit:
            raise RowsAskedError(present, rows, self.limit)

    def track(self, thing: T, rows: int) -> T:
        """Count the rows of something for as long as it is alive."""
        self._tally.change(rows)
        weakref.finalize(thing, self._tally.change, -rows).atexit = False
        return thing

    def keep(self, owner: Owner, rows: int) -> None:
        """``owner`` keeps a snapshot of so many rows; ``owner.forget()`` lets go of it, and is
        called when others need the room. At most half of the limit is kept, or one snapshot."""
        with self._lock:
            self.gave_up(owner)
            self._kept[id(owner)] = weakref.ref(owner), rows
            self._kept_rows += rows
        while self._kept_rows > self.limit // 2 and len(self._kept) > 1:
            if not self._let_go():
                break

    def asked(self, owner: Owner) -> None:
        """Somebody asked for what ``owner`` keeps."""
        with self._lock:
            if id(owner) in self._kept:
                self._kept.move_to_end(id(owner))

    def gave_up(self, owner: Owner) -> None:
        """``owner`` keeps nothing any more."""
        with self._lock:
            _, rows = self._kept.pop(id(owner), (None, 0))
            self._kept_rows -= rows

    def _let_go(self) -> bool:
        """Have the one that was not asked for longest let go; False if there is none."""
        with self._lock:
            if not self._kept:
                return False
            _, (reference, rows) = self._kept.popitem(last=False)
            self._kept_rows -= rows
        owner = reference()
        if owner is not None:
            owner.forget()
        return True


class Memory:
    """What one process counts.

    Args:
        inflight_rows, read_rows: see the settings ``max_inflight_rows`` and ``max_read_rows``.
    """

    def __init__(self, inflight_rows: int = 1 << 62, read_rows: int = 1 << 62) -> None:
        self.resident = Tally()
        self.waiting = Tally()  # of these, the rows of sketches that wait to be merged
        self.flight = Flight(inflight_rows)
        self.reading = Reading(read_rows)
        self._large = threading.RLock()
        self._gone_before = 0

    def wants_trim(self) -> bool:
        """Whether so much was let go of, since this was said last, that it is worth telling the
        C library to return it."""
        gone = self.resident.gone + self.flight.gone + self.reading.gone
        if gone - self._gone_before < TRIM_ROWS:
            return False
        self._gone_before = gone
        return True

    @contextmanager
    def merging(self, rows: int) -> Iterator[None]:
        """Merge so many rows: of what takes much working memory, one at a time. Whoever holds the
        lock of a sketch must not ask for this."""
        if rows < LARGE_ROWS:
            yield
            return
        with self._large:
            try:
                yield
            finally:
                release_scratch()
