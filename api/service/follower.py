"""Following the journal: this process's streams are the content of the journal up to a cursor.

Several processes may write one database. Each takes its own commits directly, and reads the rows of
the others from the journal. The invariant holds for any process that writes, compacts, crashes or
revokes:

    the streams in memory are the join of all rows, and of nothing else, up to the cursor.

Rows are taken in the order of their numbers, and numbers become visible in order, so one cursor is
enough. Rows that a compaction deleted before they were read are in snapshots. A snapshot is a join,
so it is harmless to take one that contains more than was missing.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

from api.errors import CapacityTooSmallError
from api.journal import changes
from api.journal.log import (
    AnotherDatabaseError,
    Head,
    Post,
    ReplayError,
    Revocation,
    SnapshotRow,
    SourceKey,
    StorageError,
    StreamRow,
)
from api.journal.storage import Reader, Step, Storage
from api.logs import Seldom
from api.service.observer import Observer
from api.service.streams import Stream, Streams
from api.service.threads import Compute
from decaysketch import DecaySketchError, Snapshot

__all__ = ["Follower", "ReplayError"]

_log = logging.getLogger(__name__)

_CHUNK_BYTES = 8 * 1024 * 1024
_CHUNK_ROWS = 1 << 19  # decoded before they are applied
_OWN_BYTES = 64 * 1024 * 1024
_OWN_ROWS = 1 << 18
_SAID_EVERY_S = 5.0


class Follower:
    """Reads the rows that the database holds and this process does not.

    Args:
        storage: read from.
        streams: changed by no other component.
        compute: runs the decoding.
        observer: listens to lags and reloads.
        taken: called with each stream that received rows, and their number.
        room: waits until enough applied rows are merged that there is space for more.
        opening: opens streams, which may take seconds where a decay must be computed. It runs apart
            from the work that posts and queries wait for. Streams open at once if there is none.
    """

    def __init__(
        self,
        storage: Storage,
        streams: Streams,
        compute: Compute,
        observer: Observer,
        taken: Callable[[Stream, int], None],
        room: Callable[[], Awaitable[None]],
        opening: Compute | None,
    ) -> None:
        self._storage = storage
        self._streams = streams
        self._compute = compute
        self._observer = observer
        self._taken = taken
        self._room = room
        self._opening = opening
        self._seen = Head()  # as of the last time that everything was read
        self._catalog = 0
        self._cursor = 0
        self._taken_bytes = 0
        self._own: dict[int, Post] = {}  # committed here, beyond the cursor
        self._own_bytes = self._own_rows = 0
        self._looking = asyncio.Lock()
        self._reading = False  # rows of the journal: those that are committed here must wait
        self._begun = self._ended = 0  # numbers of catch-ups
        self._caught_up_at = float("-inf")
        self._asked = asyncio.Event()
        self._calls: list[tuple[int, int, Callable[[], None]]] = []  # a heap
        self._call_numbers = itertools.count()
        self._advanced = asyncio.Event()
        self._said_at = float("-inf")
        self._lost: str | None = None  # why the database is not the one that was read
        self._failing = Seldom(_log)

    @property
    def cursor(self) -> int:
        """Return the number of the last row before which all rows are applied."""
        return self._cursor

    @property
    def taken_bytes(self) -> int:
        """Return the bytes of all rows taken so far."""
        return self._taken_bytes

    @property
    def owes(self) -> bool:
        """Return whether posts that were committed here are not taken yet."""
        return bool(self._own)

    @property
    def caught_up_at(self) -> float:
        """Return when everything was last read, by the clock of the event loop."""
        return self._caught_up_at

    def check(self) -> None:
        """Raise AnotherDatabaseError if the database is not the one that was read. This never
        changes back, for any later database content: rows in memory would be mixed with other rows.
        """
        if self._lost is not None:
            raise AnotherDatabaseError(self._lost)

    @property
    def lost(self) -> bool:
        """Return whether the database is another one."""
        return self._lost is not None

    @property
    def catalog(self) -> int:
        """Return the catalog number of the streams."""
        return self._catalog

    @property
    def head(self) -> Head:
        """Return the head of the database as it was last read."""
        return self._seen

    def committed(self, posts: Sequence[Post], catalog: int) -> None:
        """Apply posts that this process has committed, once all earlier rows are applied.

        Args:
            posts: by rising number.
            catalog: the catalog number at the commit. If the catalog changed since, a post may have
                been revoked, so this process reads the rows from the journal instead.
        """
        if catalog != self._catalog:
            self._asked.set()
            return
        for post in posts:
            if post.seq == self._cursor + 1 and not self._reading:
                self._take(post, post.decode())
                self._advance(post.seq)
            elif post.seq > self._cursor:
                # Beyond, they are read from the journal.
                if self._own_bytes < _OWN_BYTES and self._own_rows < _OWN_ROWS:
                    self._own[post.seq] = post
                    self._own_bytes += len(post.body)
                    self._own_rows += post.rows
                self._asked.set()

    def when_taken(self, number: int, call: Callable[[], None]) -> None:
        """Call a function once all rows up to a number are applied. If they are, call it now."""
        if number <= self._cursor:
            call()
        else:
            heapq.heappush(self._calls, (number, next(self._call_numbers), call))

    async def reached(self, number: int) -> None:
        """Wait until all rows up to a number are applied."""
        if self._cursor < number:
            self._asked.set()
        while self._cursor < number:
            await self._advanced.wait()

    async def follow(self, poll_s: float) -> None:
        """Poll once: after ``poll_s`` seconds, or as soon as another task waits for news."""
        try:
            async with asyncio.timeout(poll_s):
                await self._asked.wait()
        except TimeoutError:
            pass
        self._asked.clear()
        try:
            await self.catch_up()
            self._failing.over()
        except StorageError as error:
            self._failing.say(logging.ERROR, "cannot read the journal, will try again: %s", error)
            await asyncio.sleep(poll_s)
        except ReplayError as error:
            self._failing.say(logging.CRITICAL, "cannot follow the journal: %s", error)
            await asyncio.sleep(max(poll_s, 1.0))

    async def catch_up(self) -> Head:
        """Take everything that the database holds now, and return its head. Concurrent callers
        share one reading.

        Raises:
            StorageError: the database is out of reach. Rows already taken stay taken.
            ReplayError: part of it cannot be read.
            AnotherDatabaseError: it is another database, or it went back. From then on, always.
        """
        try:
            return await self._catch_up()
        except AnotherDatabaseError as error:
            self._lost = str(error)
            raise

    async def _catch_up(self) -> Head:
        wanted = self._begun + 1
        async with self._looking:
            if self._ended >= wanted:  # one that began after this call has ended well
                return self._seen
            self.check()
            self._begun = number = self._begun + 1
            before = self._position
            head = await self._storage.read(lambda rx: rx.head())
            self._check_direction(head, before)
            self._observer.lag(max(0, head.last - self._cursor))
            if head.catalog == self._catalog and self._holds_all_up_to(head.last):
                self._take_own(head.last)
            else:
                head = await self._read()
            self._seen = head
            self._ended = number
            self._caught_up_at = asyncio.get_running_loop().time()
        return head

    @property
    def _position(self) -> tuple[int, int, int]:
        return self._cursor, self._catalog, self._seen.generation

    def _check_direction(self, head: Head, before: tuple[int, int, int]) -> None:
        """Check that the database did not go back. A database that was restored, or failed over to
        a lagging replica, may hold other rows under numbers that were read before.
        """
        now = head.last, head.catalog, head.generation
        if any(new < old for new, old in zip(now, before, strict=True)):
            raise AnotherDatabaseError(
                "the database is older than this process's copy: it has (row, catalog, "
                f"generation) {now}, and this process has read {before}; restart it"
            )

    def _holds_all_up_to(self, last: int) -> bool:
        """Return whether there is nothing to read: all missing rows were committed here."""
        return all(seq in self._own for seq in range(self._cursor + 1, last + 1))

    def _take_own(self, last: int) -> None:
        while self._cursor < last and (own := self._own.pop(self._cursor + 1, None)) is not None:
            self._own_bytes -= len(own.body)
            self._own_rows -= own.rows
            self._take(own, own.decode())
            self._advance(self._cursor + 1)

    async def _read(self) -> Head:
        """Take the database content beyond the cursor, as of one moment, and return its head
        then.
        """
        self._reading = True
        self._said_at = asyncio.get_running_loop().time()
        try:
            async with self._storage.steps() as step:
                head = await step(lambda rx: rx.head())
                self._check_direction(head, self._position)
                if head.catalog != self._catalog:
                    await self._read_catalog(step, head.catalog)
                if head.deleted > self._cursor:
                    await self._read_snapshots(step)
                await self._read_rows(step, head.last)
        finally:
            self._reading = False
        return head

    async def _read_catalog(self, step: Step, number: int) -> None:
        before = self._catalog

        def read(rx: Reader) -> tuple[set[int] | None, list[StreamRow], list[Revocation]]:
            # At a start, and where too much has changed, everything.
            changed_ids = changes.since(rx, before, number) if before else None
            return changed_ids, rx.streams(changed_ids), rx.revocations(changed_ids)

        changed_ids, rows, revocations = await step(read)
        try:
            unknown = [row for row in rows if self._streams.by_id(row.id) is None]
            if self._opening is None or not unknown:
                opened = self._streams.open(unknown)
            else:
                opened = await self._opening(self._streams.open, unknown)
            changed = self._streams.replace(rows, revocations, opened, changed_ids)
        except DecaySketchError as error:
            raise ReplayError(f"a stream cannot be opened: {error}") from error
        for stream in opened.values():
            self._taken(stream, 0)
        for stream in changed:
            self._taken(stream, 0)
            self._tell_left_out(stream, "a revocation")
        # Rows of a source that was revoked in between are no longer in the database.
        self._keep_own({})
        self._catalog = number

    async def _read_snapshots(self, step: Step) -> None:
        loaded: set[SourceKey] = set()
        torn: dict[SourceKey, int] = {}
        cursor = self._cursor
        portions = await step(lambda rx: rx.snapshots(cursor))
        while (portion := await step(lambda _rx: next(portions, None))) is not None:
            await self._load(portion, loaded, torn)
        self._observer.reloaded()

    async def _load(
        self,
        snapshots: list[SnapshotRow],
        loaded: set[SourceKey],
        torn: dict[SourceKey, int],
    ) -> None:
        """Load the newest intact snapshot per source."""
        snapshots.reverse()
        while snapshots:
            snapshot = snapshots.pop()  # so that it is freed once its sketch is loaded
            source = snapshot.stream_id, snapshot.source
            if source in loaded:
                continue
            stream = self._stream(snapshot.stream_id)
            try:
                sketch = await self._compute(_decode_snapshot, stream, snapshot)
            except ReplayError as error:
                _log.error("%s: reading the previous one and the journal", error)
                self._observer.torn()
                torn[source] = torn.get(source, 0) + 1
                if torn[source] > 1:
                    raise
                continue
            stream.load(snapshot.source, sketch, snapshot.totals, snapshot.upto)
            self._tell_left_out(stream, f"snapshot {snapshot.generation}")
            self._taken(stream, len(sketch))
            loaded.add(source)
            del sketch
            await self._room()
            self._say_how_far("snapshots of %d sources", len(loaded))

    async def _read_rows(self, step: Step, last: int) -> None:
        while self._cursor < last:
            self._take_own(last)
            if self._cursor == last:
                break
            upto = min(last, min(self._own, default=last + 1) - 1)
            rows = await step(partial(_rows_between, self._cursor, upto))
            complete = sum(len(row.body) for row in rows) < _CHUNK_BYTES
            for some in _portions(rows):
                await self._read_some(some)
                self._say_how_far("row %d of %d", self._cursor, last)
            if complete:
                self._advance(upto)
                self._forget_taken()
                await self._room()

    async def _read_some(self, posts: Sequence[Post]) -> None:
        """Decode and take rows of the journal. Wait until there is space for more."""
        wanted = [(self._stream(post.stream_id), post) for post in posts]
        sketches = await self._compute(_decode_rows, wanted)
        for post, sketch in zip(posts, sketches, strict=True):
            if sketch is not None:
                self._take(post, sketch)
            self._advance(post.seq)  # should the next one fail, this one is not counted again
        del sketches
        self._forget_taken()
        await self._room()

    def _forget_taken(self) -> None:
        """Forget own commits that are applied. The rows just read may include some of them."""
        self._keep_own({seq: own for seq, own in self._own.items() if seq > self._cursor})

    def _say_how_far(self, text: str, *numbers: int) -> None:
        """Log progress where reading takes long, as at a start it may."""
        now = asyncio.get_running_loop().time()
        if now - self._said_at >= _SAID_EVERY_S:
            self._said_at = now
            _log.info(f"reading the database: {text}", *numbers)

    def _keep_own(self, own: dict[int, Post]) -> None:
        self._own = own
        self._own_bytes = sum(len(post.body) for post in own.values())
        self._own_rows = sum(post.rows for post in own.values())

    def _take(self, post: Post, sketch: Snapshot) -> None:
        stream = self._stream(post.stream_id)
        stream.take(post, sketch)
        self._tell_left_out(stream, f"row {post.seq}")
        self._taken_bytes += len(post.body)
        self._taken(stream, len(sketch))

    def _tell_left_out(self, stream: Stream, where: str) -> None:
        """Report parts that were skipped although their posts were acknowledged."""
        for source, error in stream.left_out():
            _log.error(
                "%s: a part of the posts by source %r of stream %r is skipped: %s",
                where, source, stream.name, error,
            )  # fmt: skip
            self._observer.left_out(stream.name)

    def _stream(self, stream_id: int) -> Stream:
        stream = self._streams.by_id(stream_id)
        if stream is None:
            raise ReplayError(
                f"the database contains sketches of stream {stream_id}, which does not exist"
            )
        return stream

    def _advance(self, cursor: int) -> None:
        self._cursor = cursor
        while self._calls and self._calls[0][0] <= cursor:
            heapq.heappop(self._calls)[2]()
        waiting, self._advanced = self._advanced, asyncio.Event()
        waiting.set()


def _rows_between(after: int, upto: int, rx: Reader) -> list[Post]:
    return rx.rows(after, upto, _CHUNK_BYTES)


def _portions(rows: Sequence[Post]) -> Iterator[Sequence[Post]]:
    """Split journal rows into portions whose sketches are held decoded at the same time: few bytes
    may be many rows.
    """
    begin = held = 0
    for position, row in enumerate(rows):
        if begin < position and held + row.rows > _CHUNK_ROWS:
            yield rows[begin:position]
            begin, held = position, 0
        held += row.rows
    if rows:
        yield rows[begin:]


def _decode_rows(rows: Sequence[tuple[Stream, Post]]) -> list[Snapshot | None]:
    """Return the sketch in each row, or None where a snapshot contains it."""
    return [
        None if stream.holds(row.source, row.seq) else _decode_row(stream, row)
        for stream, row in rows
    ]


def _decode_row(stream: Stream, row: Post) -> Snapshot:
    try:
        return stream.decode(row.body)
    except (DecaySketchError, CapacityTooSmallError) as error:
        raise ReplayError(
            f"row {row.seq} of the journal (stream {stream.name!r}, source {row.source!r}) cannot "
            f"be read: {error}"
        ) from error


def _decode_snapshot(stream: Stream, snapshot: SnapshotRow) -> Snapshot:
    try:
        if not snapshot.intact:
            raise ReplayError(
                f"snapshot {snapshot.generation} of stream {stream.name!r}, source "
                f"{snapshot.source!r} has other bytes than were written"
            )
        return stream.decode(snapshot.body)
    except (DecaySketchError, CapacityTooSmallError) as error:
        raise ReplayError(
            f"snapshot {snapshot.generation} of stream {stream.name!r}, source "
            f"{snapshot.source!r} cannot be read: {error}"
        ) from error
