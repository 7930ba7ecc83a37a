"""Memory use counted in rows: how many there are, and how many there may be.

On the wire a row may take a quarter of a byte, in memory it takes 25 and more. So a process counts
its memory in rows, from the header of a sketch on, before it decodes one:

- *in flight*: decoded, or about to be, and not yet journaled (:class:`Flight`)
- *resident*: in the merged sketches and the sketches that wait to be merged (:class:`Tally`)
- *read*: in the snapshots and samples that queries read (:class:`Reading`)

A unit is ``ROW_BYTES``. An item that takes more than one such row counts as several: a row of an
integral decay with its events, spare capacity in a sketch, and the overhead of a source or a
waiting sketch.

A budget has :class:`Shares`, so that no caller can use it up alone. A caller may always have one
request under way, as large as the budget. Beyond that it has a quarter for itself, and more only as
long as half stays free. So one caller always leaves half to the others. A caller is a key. Without
keys all requests belong to one caller, and it has the complete budget.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, Self, TypeVar

from api.errors import RowsAskedError, RowsInFlightError
from api.resources import LARGE_ROWS
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
    "Shares",
    "Tally",
    "charged_caller",
    "charging",
    "give_back",
]

_charged: ContextVar[str | None] = ContextVar("_charged", default=None)


@contextmanager
def charging(caller: str) -> Iterator[None]:
    """Charge the work of this thread to a caller, as long as the context lasts."""
    token = _charged.set(caller)
    try:
        yield
    finally:
        _charged.reset(token)


def charged_caller() -> str | None:
    """Return the caller that the work of this thread is charged to. None: the server itself."""
    return _charged.get()


class Shares:
    """A budget of bytes, rows or posts. Thread-safe.

    Args:
        limit: how much there is.

    Attributes:
        taken: the amount in use.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken = 0
        self._by: Counter[str] = Counter()
        self._lock = threading.Lock()

    def fits(self, caller: str | None, amount: int, own: int = 0) -> bool:
        """Return whether a request may take so much more.

        Args:
            caller: the owner of the request.
            amount: so much more.
            own: the amount that the request has taken before.
        """
        if self.taken == own:
            return True  # no other request: every limit admits a single one
        taken = self.taken + amount
        if taken > self.limit:
            return False
        if caller is None or self._by[caller] == own:
            return True
        return self._by[caller] + amount <= self.limit // 4 or taken <= self.limit // 2

    def crowded(self, caller: str | None) -> bool:
        """Return whether a caller may take no more at all, where a request may exceed the
        budget.
        """
        if self.taken >= self.limit:
            return True
        if caller is None:
            return False
        return self._by[caller] * 4 >= self.limit and self.taken * 2 >= self.limit

    def change(self, caller: str | None, amount: int) -> None:
        """Take so much more, or give it back."""
        with self._lock:
            self.taken += amount
            if caller is not None:
                self._by[caller] += amount
                if not self._by[caller]:
                    del self._by[caller]

    def settle(self, taken: int) -> None:
        """Set the amount in use, divided among the callers in the same proportion as before.
        O(callers).
        """
        with self._lock:
            share = taken / self.taken if self.taken else 0.0
            shares = ((caller, round(amount * share)) for caller, amount in self._by.items())
            self._by = Counter({caller: amount for caller, amount in shares if amount > 0})
            self.taken = taken


ROW_BYTES = 25  # value, identity and time of 8 bytes each, and a level
BUFFER_ROWS = 256  # fixed memory of a merged sketch, as rows
PART_ROWS = 192  # fixed memory of a waiting sketch, as rows

TRIM_ROWS = 1 << 19  # freed rows before the C library returns memory to the system

T = TypeVar("T")


class Settling(Protocol):
    """A component that can return unused space."""

    def settle(self) -> None:
        """Return it."""


class Owner(Protocol):
    """A component that keeps a snapshot for later."""

    def forget(self) -> None:
        """Release it."""


def give_back() -> None:
    """Have the C library return free memory to the system, where the library supports it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Tally:
    """Rows, counted here and in the enclosing tallies. Thread-safe.

    Args:
        within: tallies that count the same rows.
    """

    def __init__(self, *within: Tally) -> None:
        self._within = within
        self._rows = 0
        self._gone = 0
        self._lock = threading.Lock()

    @property
    def rows(self) -> int:
        """Return how many there are now."""
        return self._rows

    @property
    def gone(self) -> int:
        """Return how many went, in all."""
        return self._gone

    def change(self, rows: int) -> None:
        """Add or subtract rows."""
        with self._lock:
            self._rows += rows
            self._gone += max(0, -rows)
            for each in self._within:
                each.change(rows)

    def join(self, within: Tally) -> None:
        """Count all rows in another tally too, from now on."""
        with self._lock:
            self._within += (within,)
            within.change(self._rows)

    def leave(self, within: Tally) -> None:
        """Count no row in another tally any more."""
        with self._lock:
            self._within = tuple(each for each in self._within if each is not within)
            within.change(-self._rows)


class Hold:
    """A part of the budget of rows in flight, until its last share is released. Thread-safe."""

    def __init__(self, flight: Flight, rows: int, caller: str | None) -> None:
        self._flight = flight
        self._rows = rows
        self._caller = caller
        self._shares = 0
        self._lock = threading.Lock()

    @property
    def rows(self) -> int:
        """Return how many rows it covers."""
        return self._rows

    def share(self) -> None:
        """Add a share."""
        with self._lock:
            self._shares += 1
            if self._shares == 1:
                self._flight.change(self._caller, self._rows)

    def release(self) -> None:
        """Release one share."""
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
    """Rows with a limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._tally = Tally()

    @property
    def rows(self) -> int:
        """Return how many there are now."""
        return self._tally.rows

    @property
    def gone(self) -> int:
        """Return how many went, in all."""
        return self._tally.gone


class Flight(_Limited):
    """The rows of all requests that are decoded, or about to be, and not yet journaled.

    Args:
        limit: how many there may be. A single request may have more, if it is alone.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._shares = Shares(limit)

    def hold(self, rows: int, caller: str | None = None) -> Hold:
        """Reserve space for the rows of one request of a caller. Enter the result at once.

        Raises:
            RowsInFlightError: with the present rows, of the caller or of all, it would be too many.
        """
        if not self._shares.fits(caller, rows):
            raise RowsInFlightError(self._shares.taken, rows, self.limit)
        return Hold(self, rows, caller)

    def change(self, caller: str | None, rows: int) -> None:
        """Add or subtract rows."""
        self._tally.change(rows)
        self._shares.change(caller, rows)


class Reading(_Limited):
    """The rows in living snapshots and samples, and the owners that keep them for later.

    A tracked object counts until nothing refers to it. The most recently queried objects are kept,
    and dropped in favour of current queries. Thread-safe.

    A caller without a running query may always start one, as large as the limit if nothing else is
    alive. A caller's queries may have a quarter together, and more only as long as half the limit
    stays free. Where other queries fill the limit, a caller without a running query has a reserve,
    a quarter next to the limit, in snapshots and samples up to a sixteenth each. The thread names
    the caller (:func:`~api.service.budget.charging`). The server itself has no running query.

    Args:
        limit: rows that may be alive. One object may have more, if it is alone.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._kept: OrderedDict[int, tuple[weakref.ref[Owner], int]] = OrderedDict()
        self._kept_rows = 0
        self._of: Counter[str] = Counter()  # rows in running queries, by caller
        self._lock = threading.RLock()

    def make_room(self, rows: int) -> None:
        """Drop kept objects that no query uses, as far as so many rows need it.

        Raises:
            RowsAskedError: running queries leave no space, or those by the same caller.
        """
        own = self._of[charged_caller() or ""]
        is_much = own > 0 and own + rows > self.limit // 4
        most = self.limit // 2 if is_much else self.limit
        while self._tally.rows + rows > most and self._let_go():
            pass
        present = self._tally.rows
        if not present or present + rows <= most:
            return
        if own or rows > self.limit // 16 or present + rows > self.limit + self.limit // 4:
            raise RowsAskedError(own if is_much else present, rows, most, of_caller=is_much)

    def track(self, thing: T, rows: int) -> T:
        """Count an object's rows for as long as it is alive."""
        self._tally.change(rows)
        weakref.finalize(thing, self._tally.change, -rows).atexit = False
        return thing

    def charge(self, query: T, rows: int) -> T:
        """Count rows for a query, and charge them to its caller."""
        caller = charged_caller()
        if caller is not None:
            self._charge(caller, rows)
            weakref.finalize(query, self._charge, caller, -rows).atexit = False
        return self.track(query, rows)

    def _charge(self, caller: str, rows: int) -> None:
        with self._lock:
            self._of[caller] += rows
            if not self._of[caller]:
                del self._of[caller]

    def keep(self, owner: Owner, rows: int) -> None:
        """Record that ``owner`` keeps a snapshot of so many rows. ``owner.forget()`` releases it,
        and is called when others need the space. At most half of the limit is kept, or one
        snapshot.
        """
        with self._lock:
            self.gave_up(owner)
            self._kept[id(owner)] = weakref.ref(owner), rows
            self._kept_rows += rows
        while self._kept_rows > self.limit // 2 and len(self._kept) > 1:
            if not self._let_go():
                break

    def asked(self, owner: Owner) -> None:
        """Record a query for the snapshot that ``owner`` keeps."""
        with self._lock:
            if id(owner) in self._kept:
                self._kept.move_to_end(id(owner))

    def gave_up(self, owner: Owner) -> None:
        """Record that ``owner`` keeps nothing any more."""
        with self._lock:
            _, rows = self._kept.pop(id(owner), (None, 0))
            self._kept_rows -= rows

    def _let_go(self) -> bool:
        """Release the least recently queried snapshot. Return False if there is none."""
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
    """The row counts of one process.

    Args:
        inflight_rows, read_rows: see the settings ``max_inflight_rows`` and ``max_read_rows``.

    Attributes:
        resident: rows in the merged sketches and the sketches that wait for a merge.
        waiting: the rows among them that wait.
        flight, reading: see their classes.
        sources: source count of all streams.
        unsettled: buffers that have grown since they returned unused space.
    """

    def __init__(self, inflight_rows: int = 1 << 62, read_rows: int = 1 << 62) -> None:
        self.resident = Tally()
        self.waiting = Tally()
        self.sources = Tally()
        self.unsettled: set[Settling] = set()
        self.flight = Flight(inflight_rows)
        self.reading = Reading(read_rows)
        self._large = threading.RLock()
        self._gone_before = 0

    def wants_trim(self) -> bool:
        """Return whether enough was freed, since this last returned true, that the C library should
        return memory to the system.
        """
        gone = self.resident.gone + self.flight.gone + self.reading.gone
        if gone - self._gone_before < TRIM_ROWS:
            return False
        self._gone_before = gone
        return True

    @contextmanager
    def merging(self, rows: int, wait_s: float = -1) -> Iterator[bool]:
        """Merge so many rows. Merges that take much working memory run one at a time. A thread that
        holds a sketch lock must not call this.

        Args:
            rows: read by the merge.
            wait_s: seconds to wait for another merge. -1: until it ends.

        Yields:
            False if another one still runs. The caller must not merge then.
        """
        if rows < LARGE_ROWS:
            yield True
            return
        if not self._large.acquire(timeout=wait_s):
            yield False
            return
        try:
            yield True
        finally:
            release_scratch()
            self._large.release()
