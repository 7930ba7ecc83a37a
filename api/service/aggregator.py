"""The aggregator: one process's state of the streams, over a database that others may share.

A process decodes, checks and journals a post together with others that arrive at the time. It
acknowledges the post when it is on stable storage, and merges it afterwards. Every process over one
database reaches the same bytes, since merging is idempotent and commutative and each process takes
every journal row. A client that must read its own writes, on any process, sends the token from the
response to its post.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from typing import Self, TypeVar

from api.errors import (
    BusyError,
    IntervalConflictError,
    InvalidRequestError,
    NoRoomError,
    NotCaughtUpError,
    ServiceError,
    StaleTokenError,
    TokenBeyondError,
    TooManySketchRowsError,
    TooManySourcesError,
    UnknownStreamError,
)
from api.journal.log import Head, Post, StorageError
from api.journal.storage import Storage, Writer
from api.service.admission import Admission, RowLimits
from api.service.budget import LARGE_ROWS, Hold, Memory, Shares, give_back
from api.service.catalog import Catalog
from api.service.committer import Committer, Receipt, Writability, rows_of, size_of
from api.service.compactor import Compactor
from api.service.follower import Follower
from api.service.join_check import Trial
from api.service.local_sources import Sites
from api.service.merging import MergeBuffer, fold_each, portions
from api.service.observer import Observer
from api.service.source_stats import Notes, Replacements, Senders
from api.service.streams import Scoped, Stream, Streams
from api.service.threads import Background, Compute, pause_s
from api.settings import Settings
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.errors import CapacityError
from decaysketch.ingest.formats import Mappings

__all__ = ["Aggregator", "Limits"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

_MUCH_ROWS = 1 << 14
_FOLD_PAUSE_S = 0.02  # between merges, so that several posts are merged at once
_PROVED_WITHIN_S = 1.0
_GIVE_BACK_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits for one process."""

    queue_posts: int = 1024
    queue_bytes: int = 256 << 20
    backlog_rows: int = 50_000_000
    poll_s: float = 0.2
    compact_rows: int = 2000
    compact_bytes: int = 256 << 20
    compact_every_s: float = 1.0
    replacing_every_s: float | None = 10.0  # None: only when asked
    wait_s: float = 10.0
    lag_s: float = 10.0
    max_streams: int = 10_000
    max_clock_skew_s: float | None = None
    rows: RowLimits = field(default_factory=RowLimits)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the limits from the operator's settings."""
        return cls(
            queue_posts=settings.queue_posts,
            queue_bytes=settings.queue_bytes,
            poll_s=settings.poll_ms / 1000,
            lag_s=10.0 + 2 * settings.poll_ms / 1000,
            compact_rows=settings.compact_rows,
            compact_bytes=settings.compact_bytes,
            max_streams=settings.max_streams,
            max_clock_skew_s=settings.max_clock_skew_s,
            backlog_rows=settings.max_inflight_rows,
            rows=RowLimits(
                **{each.name: getattr(settings, each.name) for each in fields(RowLimits)}
            ),
        )


class Aggregator:
    """All streams, over one database.

    Args:
        storage: the database. :meth:`close` closes it.
        compute: runs long computations.
        now_us: the clock, in microseconds since 1970 UTC.
        limits: bounds.
        observer: listens to events.
        opening: opens the streams in the database. Their decay may take seconds to compute. They
            open at once if not given.
        large: runs work that takes long for its rows, one at a time, so that short work need not
            wait for it. ``compute`` if there is none.
    """

    def __init__(
        self,
        storage: Storage,
        compute: Compute,
        *,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        limits: Limits | None = None,
        observer: Observer | None = None,
        opening: Compute | None = None,
        large: Compute | None = None,
    ) -> None:
        self.compute = compute
        self._large = large or compute
        self.observer = observer or Observer()
        self._limits = limits or Limits()
        self._storage = storage
        self.now_us = now_us
        self.memory = Memory(self._limits.rows.max_inflight_rows, self._limits.rows.max_read_rows)
        self._streams = Streams(self.memory)
        self.sites = Sites(self.memory)
        self.senders = Senders(now_us())
        self._unfolded: dict[Stream, None] = {}  # an ordered set
        self._unfoldable: dict[MergeBuffer, _Failing] = {}
        self._background = Background(self.observer)
        self._writability = Writability(storage, self.observer)
        self._grown = asyncio.Event()
        self._backlog_rows = self._last_received_us = 0
        self._backlog = Shares(self._limits.backlog_rows)  # posts to this process
        self._follower = Follower(
            storage,
            self._streams,
            compute,
            self.observer,
            self._took,
            self._room,
            opening,
        )
        self._committer = Committer(
            storage,
            self._writability,
            now_us=now_us,
            committed=self._committed,
            refresh=self._refresh,
            check=self._check,
            queue_posts=self._limits.queue_posts,
            queue_bytes=self._limits.queue_bytes,
            observer=self.observer,
            trial=self._trial,
        )
        self._admission = Admission(
            self._limits.rows,
            self.memory,
            self._large,
            self._follower.catch_up,
            self._follower.when_taken,
            lambda: self._streams,
        )
        self._compactor = Compactor(
            storage,
            self._streams,
            self._follower,
            self._large,
            self.observer,
            self._background,
            most_rows=self._limits.compact_rows,
            most_bytes=self._limits.compact_bytes,
        )
        self._replacements = Replacements(self._streams, compute, self.observer)
        self.catalog = Catalog(
            storage,
            self._streams,
            self._follower,
            self._admission,
            self._writability,
            compute,
            now_us=now_us,
            find=self.find,
            taken=self.taken,
            max_streams=self._limits.max_streams,
            max_clock_skew_s=self._limits.max_clock_skew_s,
        )

    # ------------------------------------------------------------------------------------ life

    async def start(self) -> None:
        """Read the database, then follow it.

        Raises:
            StorageError: it is out of reach.
            ReplayError: part of it cannot be read.
        """
        limits, run = self._limits, self._background.run
        run("fold", self._fold)
        await self._follower.catch_up()
        run("commit", self._committer.run)
        run("follow", lambda: self._follower.follow(limits.poll_s))
        run("compact", lambda: self._compactor.watch(limits.compact_every_s))
        if (every_s := limits.replacing_every_s) is not None:
            run("replacements", lambda: self._replacements.watch(every_s))
        run("give back", self._give_back)

    def compute_of(self, rows: int) -> Compute:
        """Return the executor for work that reads so many rows."""
        return self._large if rows >= LARGE_ROWS else self.compute

    def stop(self) -> None:
        """Accept no more posts."""
        self._committer.stop()

    async def drain(self) -> None:
        """Accept no more posts. Return when all accepted posts are acknowledged."""
        await self._committer.drain()

    async def close(self) -> None:
        """Stop, and close the database."""
        await self._background.close()
        await self._writability.close()
        await self._storage.close()

    async def ready(self) -> dict[str, bool | str]:
        """Return each condition that this process needs to serve, and whether it holds."""
        writable = await self._writability.proved(_PROVED_WITHIN_S)
        since_s = asyncio.get_running_loop().time() - self._follower.caught_up_at
        # Without these everything is answered rightly, by every process alike.
        beside = ("compact", "replacements", "give back")
        failing = [name for name in self._background.failing if name not in beside]
        failing += ["fold"] if self._unfoldable and "fold" not in failing else []
        return {
            "journal_writable": writable,
            "same_database": not self._follower.lost,
            "running": f"failing: {', '.join(failing)}" if failing else self._background.running,
            "caught_up": since_s < self._limits.lag_s,
            "backlog_bounded": self.backlog_rows < self._limits.backlog_rows,
            "accepting": not self._committer.closing,
        }

    # --------------------------------------------------------------------------------- streams

    def streams(self) -> list[Stream]:
        """Return every stream, sorted by name."""
        return list(self._streams)

    def knows(self, name: str) -> bool:
        """Return whether this process knows a stream of this name."""
        return name in self._streams

    @property
    def stream_count(self) -> int:
        """Return how many streams there are."""
        return len(self._streams)

    @property
    def streams_version(self) -> int:
        """Return a number that changes when a stream is created or deleted."""
        return self._streams.version

    @property
    def source_count(self) -> int:
        """Return how many sources have posted, counted per stream."""
        return self.memory.sources.rows

    @property
    def last_received_us(self) -> int:
        """Return when the last post came, to any stream. 0: there was none."""
        return self._last_received_us

    def streams_after(self, name: str, caller: Scoped | None = None) -> Iterator[Stream]:
        """Return the streams whose names come after a given name, in order: all, or those that a
        key permits.
        """
        return self._streams.named_after(name, caller)

    def streams_of(self, caller: Scoped) -> Collection[Stream]:
        """Return the streams in the scope of a key, in no order."""
        return self._streams.in_scope(caller)

    def stream(self, name: str) -> Stream:
        """Return the stream of this name, as far as this process knows.

        Raises:
            UnknownStreamError: there is none.
        """
        return self._streams[name]

    def stream_by_id(self, stream_id: int) -> Stream | None:
        """Return the stream of this id, as far as this process knows."""
        return self._streams.by_id(stream_id)

    def views_of(self, stream: Stream) -> Sequence[Stream]:
        """Return the derived streams that a stream's observations feed, as far as this process
        knows.
        """
        return self._streams.views_of(stream.name)

    async def maps_of(self, name: str) -> Mappings | None:
        """Return the mappings of the stream with this name. None: it has none, or there is no such
        stream.

        Raises:
            StorageError: this process knows of none, and cannot read the database.
        """
        try:
            stream = await self.find(name)
        except UnknownStreamError:
            return None
        return stream.mappings

    async def find(self, name: str) -> Stream:
        """Return the stream of this name, even if another process has only just created it.

        Raises:
            UnknownStreamError: there is none.
            StorageError: this process knows of none, and cannot read the database.
        """
        if name not in self._streams or self._follower.owes:
            await self._follower.catch_up()
        return self._streams[name]

    # ----------------------------------------------------------------------------------- posts

    def hold(self, rows: int, *, beside: int = 0, caller: Scoped | None = None) -> Hold:
        """Reserve space to decode a caller's sketches that have so many rows together, and to read
        so many ``beside`` them. See :meth:`post`.

        Raises:
            TooManySketchRowsError: more than one post may have.
            RowsInFlightError: too many together with the rows of other posts.
        """
        if rows > self._limits.rows.max_post_rows:
            raise TooManySketchRowsError(rows, self._limits.rows.max_post_rows)
        return self.memory.flight.hold(rows + beside, _key_of(caller))

    def hold_observations(
        self, streams: Sequence[Stream], source: str, rows: int, caller: Scoped | None = None
    ) -> Hold:
        """Reserve space for sketches with so many rows together, for the source's earlier rows
        that must also be read, and for as many rows in each derived stream. See :meth:`hold`.
        """
        views = max(len(self.views_of(stream)) for stream in streams)
        beside = sum(stream.held(source)[0] for stream in streams) + rows * views
        return self.hold(rows, beside=beside, caller=caller)

    async def post(
        self,
        parts: Mapping[Stream, Sequence[Post]],
        *,
        derived: Mapping[Stream, Sequence[Post]] | None = None,
        hold: Hold | None = None,
        caller: Scoped | None = None,
        check: Callable[[], None] = lambda: None,
        beside: Callable[[Writer], None] | None = None,
    ) -> Receipt:
        """Decode, check and journal a request's posts in one transaction, all or none. On return
        they are on stable storage.

        Only a post that comes alone may have an interval.

        Args:
            parts: the posts by stream, all with one source.
            derived: posts to derived streams. A derived stream without space rejects nothing: its
                rows are counted as missed.
            hold: the space for their rows until they are journaled. The caller of :meth:`hold`
                releases it.
            caller: the key owner, if a key is needed.
            check, beside: see :class:`~api.service.committer.Receipt`.

        Raises:
            Exception: the fault found when they are decoded.
            UnknownStreamError: a stream was deleted since it was found.
            RevokedSourceError: the source is revoked.
            TooManySourcesError, NoRoomError: memory has no space for their rows.
            IntervalConflictError: numbers of its interval came before with other content.
            ConflictingSketchError: it contradicts the content of the stream.
            CapacityError: with it the stream would hold more entries than it may.
            BusyError, ClosingError: not now.
            StorageError: they may or may not have been written. Send them again.
            AnotherDatabaseError: the database is not the one that was read.
        """
        receipt = Receipt({**parts, **(derived or {})}, hold, _key_of(caller), check, beside)
        self._check_streams(receipt)
        self._follower.check()
        # Reject large posts first, so that small posts continue.
        is_much = receipt.rows >= _MUCH_ROWS
        most = self._limits.backlog_rows // (2 if is_much else 1)
        if self.backlog_rows > most or self._backlog.crowded(receipt.caller):
            raise BusyError
        with ExitStack() as admitted:
            receipt.keep(await self._admit(receipt, derived or {}, caller, admitted))
            check()
            receipt.catalog = self._follower.catalog
            await self._committer.submit(receipt)
        for outcome in receipt.outcomes:
            if isinstance(outcome, IntervalConflictError):
                raise outcome
        self._count(receipt)
        return receipt

    async def _admit(
        self,
        receipt: Receipt,
        derived: Collection[Stream],
        caller: Scoped | None,
        admitted: ExitStack,
    ) -> dict[Stream, Sequence[Post]]:
        """Reserve space for all posts. Return the posts, except the posts for derived streams
        without space.
        """
        found: dict[Stream, Sequence[Post]] = {}
        for stream, posts in receipt.parts.items():
            source = posts[0].source
            try:
                last_row = receipt.last_row
                release = await self._admission.admit(stream, source, posts, caller, last_row)
                admitted.callback(release)
            except (NoRoomError, TooManySourcesError, CapacityError) as error:
                # A derived stream may not take space away from the stream that feeds it.
                if stream not in derived:
                    raise
                self._missed(stream, source, rows_of(posts), error)
            else:
                found[stream] = posts
        return found

    def _count(self, receipt: Receipt) -> None:
        """Count the posts that the journal did not contain."""
        for stream, posts in receipt.journaled():
            if not posts:
                continue
            source, count = posts[0].source, rows_of(posts)
            self._backlog.change(receipt.caller, count)
            self.observer.posted(stream.name, source, len(posts), size_of(posts), count)
            newest = (post.decode().newest for post in posts)
            late_s = self._late_s(stream, max((t for t in newest if t is not None), default=None))
            self.senders.took((stream.id, source), self.now_us(), late_s)

    def _late_s(self, stream: Stream, newest: int | None) -> float | None:
        """Return a time's age by this machine's clock, or None where there is no such clock."""
        size_ns = NANOSECONDS.get(stream.recipe.params.time_unit)
        if size_ns is None or newest is None:
            return None
        return (self.now_us() * 1000 - newest * size_ns) / 1e9

    def refused(self, stream: Stream, source: str, reason: str, count: int = 1) -> None:
        """Count rejected posts or observations from a source.

        Args:
            stream, source: the destination and sender. Empty where the client named no source.
            reason: a constant of the program (a problem slug or the name of a check), never a text
                from a request.
            count: so many.
        """
        self.observer.refused(stream.name, reason, count)
        self.senders.refuse((stream.id, source), reason, count, self.now_us())

    def disagreeing(self, stream: Stream, rows: int) -> None:
        """Count accepted observations that share identity and time with another one, and have
        another value.
        """
        if rows:
            self.observer.disagreeing(stream.name, rows)
            stream.disagreeing += rows

    def _missed(
        self, view: Stream, source: str, rows: int, error: ServiceError | CapacityError
    ) -> None:
        """Count rows that a stream accepted and its derived stream has no space for."""
        view.missed += rows
        view.missed_for = str(error)
        self.observer.skipped(view.name, "no-room", rows)
        self.refused(view, source, "no-room")

    def noted(self, stream: Stream, notes: Notes) -> None:
        """Count accepted suspicious readings."""
        for kind, count in notes.counts.items():
            self.observer.suspicious(stream.name, kind, count)
        declared = {name for name, _ in getattr(stream.recipe.params, "columns", ())}
        for (column, reason), count in notes.dropped.items():
            known = column if column in declared else ""
            self.observer.dropped(stream.name, known, reason, count)
        stream.notes.add(notes)

    def _committed(self, receipt: Receipt) -> None:
        new = [each for each in receipt.outcomes if isinstance(each, Post)]
        if new:
            self._follower.committed(new, receipt.catalog)

    def _trial(self, receipts: Sequence[Receipt]) -> Trial | None:
        """Return a trial for the streams where these joins may fail, as they are now."""
        accepted = {
            stream.id: stream.accepted
            for receipt in receipts
            for stream in receipt.parts
            if stream.accepted is not None
        }
        return Trial(accepted, self._follower.cursor) if accepted else None

    async def _refresh(self) -> int:
        await self._follower.catch_up()
        return self._follower.catalog

    def _check_streams(self, receipt: Receipt) -> None:
        """Check that a request's streams exist, and that they admit its source."""
        for stream, posts in receipt.parts.items():
            if self._streams.by_id(stream.id) is not stream:
                raise UnknownStreamError(stream.name)
            stream.admit(posts[0].source)

    def _check(self, receipt: Receipt) -> None:
        self._check_streams(receipt)
        receipt.check()

    async def reached(self, token: str, among: Collection[str]) -> None:
        """Wait until this process has read the post that a token names.

        Args:
            token: from a post to a stream in ``among``.
            among: names of streams that the caller may read. A token must reveal nothing about
                others.

        Raises:
            InvalidRequestError: not a token, or from another stream.
            StaleTokenError: its stream was deleted since.
            TokenBeyondError: the journal has no such post: the token was never issued, or the
                database went back.
            NotCaughtUpError: it takes too long.
        """
        name, _, rest = token.partition(":")
        incarnation, _, number = rest.partition(":")
        if not (number.isascii() and number.isdecimal() and len(number) < 20):
            raise InvalidRequestError(f"{token[:200]!r} is not a token of a post")
        if name not in among:
            raise InvalidRequestError(
                f"the token belongs to a post to {name!r}, which is not queried"
            )
        if (await self.find(name)).row.incarnation != incarnation:
            await self._follower.catch_up()  # another process may have created it again
            if self.stream(name).row.incarnation != incarnation:
                raise StaleTokenError(name)
        try:
            async with asyncio.timeout(self._limits.wait_s):
                await self._check_there(token, int(number))
                await self._follower.reached(int(number))
        except TimeoutError:
            raise NotCaughtUpError(token) from None

    async def taken(self, head: Head) -> None:
        """Wait until this process has read all rows, streams and revocations that the database
        contained at this head.

        Raises:
            StorageError: the database is out of reach, or it takes too long.
        """
        try:
            async with asyncio.timeout(self._limits.wait_s):
                if self._follower.catalog < head.catalog or self._follower.cursor < head.last:
                    await self._follower.catch_up()
                await self._follower.reached(head.last)
        except TimeoutError:
            raise StorageError(f"the journal was not read up to row {head.last} in time") from None

    async def _check_there(self, token: str, number: int) -> None:
        """Check that the journal has the row for a token. A token is issued once its row is in
        the journal, so none exists for later rows.
        """
        if number > max(self._follower.cursor, self._follower.head.last):
            head = await self._storage.read(lambda rx: rx.head())
            if number > head.last:
                raise TokenBeyondError(token, head.last)

    # --------------------------------------------------------------------------------- folding

    @property
    def max_sketch_rows(self) -> int:
        """Return the row limit for one merged sketch."""
        return self._limits.rows.max_sketch_rows

    @property
    def backlog(self) -> int:
        """Return how many posts are not yet merged into their stream's sketch."""
        return sum(stream.unmerged[0] for stream in self._unfolded)

    @property
    def backlog_rows(self) -> int:
        """Return approximately how many rows they hold."""
        return self._backlog_rows

    @property
    def lag_rows(self) -> int:
        """Return how many rows of the last poll are not read yet."""
        return max(0, self._follower.head.last - self._follower.cursor)

    async def _room(self) -> None:
        most = self._limits.backlog_rows // 2
        while self._backlog_rows > most or self.memory.waiting.rows > 2 * most:
            self._grown.set()
            await asyncio.sleep(_FOLD_PAUSE_S)

    async def compact(self) -> int:
        """Compact now. Return how many journal rows were deleted."""
        return await self._compactor.compact()

    async def count_replacing(self) -> None:
        """Count now, in changed streams, the rows that replace rows of another source."""
        await self._replacements.count()

    def _took(self, stream: Stream, rows: int) -> None:
        self._unfolded[stream] = None
        self._replacements.changed(stream)
        self._last_received_us = max(self._last_received_us, stream.last_received_us)
        self._backlog_rows += rows
        self._grown.set()

    async def _fold(self) -> None:
        """Merge the read posts, so that no query has to. A post that cannot be merged stays in
        place, is tried again, and delays nothing else.
        """
        await self._grown.wait()
        self._grown.clear()
        try:
            await self._fold_all()
        except BaseException:
            self._grown.set()  # there is something left
            raise
        await asyncio.sleep(_FOLD_PAUSE_S)

    async def _fold_all(self) -> None:
        """Merge in a separate stack frame: a frame that waits for more would keep the last
        stream alive.
        """
        # Merge the waiting sketches of single sources if one source or all have many rows.
        crowded = self.memory.waiting.rows > self._limits.backlog_rows // 2
        folding: dict[Stream, None] = dict.fromkeys(self._streams) if crowded else {}
        waiting: dict[MergeBuffer, Stream] = {}
        for stream in list(self._unfolded | folding):
            if self._streams.by_id(stream.id) is not stream:  # deleted since
                self._unfolded.pop(stream)
                continue
            buffers = stream.all_waiting() if crowded else stream.waiting()
            waiting |= {each: stream for each in buffers if not self._rests(stream, each)}
        for some in portions(waiting):
            await self._fold_some(some, waiting)
        for stream in list(self._unfolded):
            if not stream.unmerged[0]:
                self._unfolded.pop(stream)
        self._unfoldable = {  # of a source that was revoked since nothing is merged any more
            buffer: failing
            for buffer, failing in self._unfoldable.items()
            if self._streams.by_id(failing.stream.id) is failing.stream
            and failing.stream.merges(buffer)
        }
        self._unfolded |= dict.fromkeys(each.stream for each in self._unfoldable.values())
        self._backlog_rows = sum(stream.unmerged[1] for stream in self._unfolded)
        self._backlog.settle(min(self._backlog_rows, self._backlog.taken))
        self.observer.backlog(self.backlog)

    def _rests(self, stream: Stream, buffer: MergeBuffer) -> bool:
        """Return whether a buffer that could not be merged is not tried again yet."""
        failing = self._unfoldable.get(buffer)
        if failing is None or failing.not_before_s <= asyncio.get_running_loop().time():
            return False
        stream.postpone(buffer)
        return True

    async def _fold_some(
        self, buffers: Sequence[MergeBuffer], streams: Mapping[MergeBuffer, Stream]
    ) -> None:
        loop = asyncio.get_running_loop()
        rows = sum(each.work_rows for each in buffers)
        for buffer, fold in zip(
            buffers, await self.compute_of(rows)(fold_each, buffers), strict=True
        ):
            if fold.error is None:
                self._unfoldable.pop(buffer, None)
                self.observer.folded(fold.posts, fold.seconds)
                continue
            stream, failing = streams[buffer], self._unfoldable.get(buffer)
            stream.postpone(buffer)
            times = 1 if failing is None else failing.times + 1
            wait_s = pause_s(times)
            self._unfoldable[buffer] = _Failing(stream, times, loop.time() + wait_s)
            loop.call_later(wait_s, self._grown.set)
            where = f"{fold.posts} posts of stream {stream.name!r}"
            self._background.failed("fold", fold.error, where)

    async def _give_back(self) -> None:
        """Return freed memory to the system once it is much. The allocator of the C library keeps
        it otherwise.
        """
        await asyncio.sleep(_GIVE_BACK_S)
        if self.memory.wants_trim():
            await self.compute(give_back)


def _key_of(caller: Scoped | None) -> str | None:
    return None if caller is None else caller.prefix


@dataclass(frozen=True, slots=True)
class _Failing:
    """A buffer that could not be merged."""

    stream: Stream
    times: int  # in a row
    not_before_s: float  # by the clock of the event loop
