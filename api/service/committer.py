"""From a request's posts to its receipt: group commit, and the proof that it can write.

Posts that arrive together are committed together. Syncing a disk takes as long for one post as for
a hundred. While one transaction runs, posts gather, and the next transaction commits them all. The
transaction's thread first decodes the sketches that are not decoded yet, before the transaction
begins. A request that cannot be decoded fails, and the others are committed. So a post goes to one
thread, and the event loop wakes once per transaction. A post is acknowledged when its transaction
has ended, never before. Both the queue and a transaction are bounded. When the queue is full the
server rejects a request and asks the client to retry. One key cannot fill the queue.

Where joins may conflict, the server first joins a post with the present content, on a copy. The
transaction writes nothing if others wrote in between. Such a post is tried again, and the rest goes
ahead of it.

Every hand-over to a thread and back waits for the interpreter's lock, for longer than it takes to
decode most bodies. So the thread that commits a body also decodes it. It decodes, checks and
digests everything that it commits together. Only a large body is decoded by another thread before.
The server needs to know the number of rows at once, and the header contains it.

A request may post to several streams: all streams in a bucket, and the derived streams of each. One
transaction contains them all, so after a crash a stream and its derived streams have the same rows.

**Can this process write the journal?** It finds out by writing. Taking the lock of writers, or
reading, succeeds on a full disk. So the process writes a *proof* to the database: bytes that
overwrite the previous proof, and are synced like a post. After a failed transaction, a proof of one
page shows little: SQLite has space for it left over from the aborted transaction, and the next post
fails again. After a failure only a proof as large as the failed write counts. When it succeeds the
process can write again.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from api.errors import BusyError, ClosingError, IntervalConflictError, ServiceError
from api.journal import log
from api.journal.log import (
    CatalogChangedError,
    Outcome,
    OvertakenError,
    Post,
    ReplayError,
    StorageError,
)
from api.journal.storage import Storage, Writer
from api.logs import Seldom
from api.service.budget import Hold, Shares
from api.service.join_check import Trial
from api.service.observer import Observer
from api.service.streams import Stream

__all__ = ["Committer", "Receipt", "Writability", "rows_of", "size_of"]

_log = logging.getLogger(__name__)

_BULK_POSTS, _BULK_BYTES = 16, 1 << 20  # of a request that waits next to the others


@dataclass(eq=False, slots=True)
class Receipt:
    """The posts from one request: in one transaction, all or none.

    One thread at a time decodes them.

    Attributes:
        parts: the posts by stream, at least one for each stream. :meth:`keep` changes them.
        posts: all posts, in the transaction's order.
        size: their total size in bytes, as they were received.
        hold: the reserved memory for their rows, until the transaction has ended.
        caller: the key's owner, if there is one.
        check: raises ServiceError if the posts may no longer be journaled, under the catalog that
            was read last.
        beside: further writes in the same transaction. They run after all posts are written and
            none was rejected, and again if the transaction fails and is repeated.
        catalog: the catalog number that the posts were checked against.
        outcomes: one for each post, once the transaction has ended.
        fault: the reason why the posts could not be decoded or joined.
    """

    parts: Mapping[Stream, Sequence[Post]]
    hold: Hold | None = None
    caller: str | None = None
    check: Callable[[], None] = lambda: None
    beside: Callable[[Writer], None] | None = None
    catalog: int = 0
    outcomes: Sequence[Outcome] = ()
    fault: Exception | None = None
    done: asyncio.Future[None] | None = field(default=None, repr=False)
    posts: list[Post] = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.keep(self.parts)

    def keep(self, parts: Mapping[Stream, Sequence[Post]]) -> None:
        """Keep these posts alone."""
        self.parts = parts
        self.posts = [post for posts in parts.values() for post in posts]
        self.size = size_of(self.posts)

    @property
    def rows(self) -> int:
        """Return the total number of rows."""
        return rows_of(self.posts)

    @property
    def unread_rows(self) -> int:
        """Return how many rows are still to be decoded."""
        return sum(post.rows for post in self.posts if post.snapshot is None)

    @property
    def bulk(self) -> bool:
        """Return whether the request has many posts, or many bytes."""
        return len(self.posts) >= _BULK_POSTS or self.size >= _BULK_BYTES

    def prepare(self, trial: Trial | None, now_us: int) -> None:
        """Decode all posts, if not done before, withdraw rows for which a condition of their stream
        stands, and try whether the posts can be joined with the present content. Otherwise set
        ``fault``. Runs on a thread.
        """
        if self.fault is not None:
            return
        try:
            for stream, posts in self.parts.items():
                standing = list(stream.row.standing_at(now_us))
                for post in posts:
                    post.decode()
                    if standing:
                        post.withdraw(standing)
            if trial is not None:
                trial.take(self.posts)
        except Exception as fault:
            self.fault = fault

    @property
    def waits(self) -> bool:
        """Return whether the request still waits for its result."""
        return self.done is not None and not self.done.done()

    def fail(self, error: Exception) -> None:
        """Raise an error to the request, if it still waits."""
        if self.done is not None and not self.done.done():
            self.done.set_exception(error)

    def succeed(self) -> None:
        """Return to the request, if it still waits."""
        if self.done is not None and not self.done.done():
            self.done.set_result(None)

    def journaled(self) -> Iterator[tuple[Stream, list[Post]]]:
        """Yield each stream with its posts that the journal did not contain."""
        outcomes = iter(self.outcomes)
        for stream, posts in self.parts.items():
            of_stream = islice(outcomes, len(posts))
            yield stream, [each for each in of_stream if isinstance(each, Post)]

    def last_row(self) -> int:
        """Return the number of the last new journal row, or 0 if there is none."""
        return max((each.seq for each in self.outcomes if isinstance(each, Post)), default=0)

    @property
    def token(self) -> str:
        """Return the first stream's token. A process that has read up to it has all posts."""
        stream = next(iter(self.parts))
        last = max(_number(each) for each in self.outcomes)
        return f"{stream.name}:{stream.row.incarnation}:{last}"

    @property
    def duplicates(self) -> list[bool]:
        """Return for each post to the first stream whether the journal contained it before."""
        posts = next(iter(self.parts.values()))
        return [not isinstance(each, Post) for each in self.outcomes[: len(posts)]]


def _number(outcome: Outcome) -> int:
    assert not isinstance(outcome, IntervalConflictError)
    return outcome.seq if isinstance(outcome, Post) else outcome


def rows_of(posts: Sequence[Post]) -> int:
    """Return the total number of rows."""
    return sum(post.rows for post in posts)


def size_of(posts: Sequence[Post]) -> int:
    """Return the total size in bytes."""
    return sum(len(post.body) for post in posts)


_FRESH_S = 1.0  # a commit this recent proves that the database works
_LEAST_BYTES = 16
_MOST_BYTES = 16 * 1024 * 1024  # of a proof


class Writability:
    """Detects whether this process can write, from its transactions' outcomes, and from a proof if
    these do not show it.

    Args:
        storage: written to.
        observer: listens to failures.
        clock: seconds, from any beginning.
    """

    def __init__(
        self,
        storage: Storage,
        observer: Observer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._storage = storage
        self._observer = observer
        self._clock = clock
        self._written_at = float("-inf")
        self._owed_bytes: int | None = None  # the largest that failed, until as much is written
        self._failures = 0
        self._failing = Seldom(_log)
        self._proving: asyncio.Task[None] | None = None

    def written(self, size: int) -> None:
        """Record that so many bytes were put on stable storage."""
        self._written_at = self._clock()
        if self._owed_bytes is None or size < self._owed_bytes:
            return
        self._owed_bytes = None
        self._failing.over()
        _log.warning("the journal accepts writes again; %d transactions failed", self._failures)
        self._failures = 0

    def failed(self, error: StorageError | ReplayError, size: int = 0) -> None:
        """Record that so many bytes could not be written."""
        self._owed_bytes = min(max(size, self._owed_bytes or 0), _MOST_BYTES)
        self._failures += 1
        self._observer.unwritten()
        self._failing.say(
            logging.ERROR, "the journal cannot be written, so posts are rejected: %s", error
        )

    async def proved(self, within_s: float) -> bool:
        """Return whether the journal accepts writes now."""
        if self._owed_bytes is None and self._clock() - self._written_at < _FRESH_S:
            return True
        if self._proving is None or self._proving.done():  # one is under way at most
            self._proving = asyncio.create_task(self._prove())
        await asyncio.wait([self._proving], timeout=within_s)
        return self._proving.done() and self._owed_bytes is None

    async def _prove(self) -> None:
        size = max(_LEAST_BYTES, self._owed_bytes or 0)
        try:
            await self._write(size)
            self.written(size)
            if size > _LEAST_BYTES:
                await self._write(_LEAST_BYTES)  # gives the room back to the posts
        except (StorageError, ReplayError) as error:
            self.failed(error)

    async def _write(self, size: int) -> None:
        body = secrets.token_bytes(size)

        def write(tx: Writer) -> None:
            tx.lock_head()
            tx.prove(body)

        await self._storage.write(write)

    async def close(self) -> None:
        """Stop waiting for a proof."""
        if self._proving is not None:
            self._proving.cancel()
            await asyncio.gather(self._proving, return_exceptions=True)


_TRANSACTION_BYTES = 16 * 1024 * 1024
_DECODED_ROWS = 1 << 18  # before a transaction, which others wait for; or one request
_TRIES = 8  # while other processes change the catalog or write rows to check first


class _NothingLeftError(Exception):
    """There is nothing to commit: no submission can be decoded."""


class _Queued:
    """Requests of one kind that wait or run.

    Args:
        most_posts, most_bytes: a request is rejected when so much is queued; see
            :mod:`api.service.budget`.
    """

    def __init__(self, most_posts: int, most_bytes: int) -> None:
        self._posts, self._bytes = Shares(most_posts), Shares(most_bytes)

    def crowded(self, caller: str | None) -> bool:
        return self._posts.crowded(caller) or self._bytes.crowded(caller)

    def add(self, receipt: Receipt) -> None:
        self._posts.change(receipt.caller, len(receipt.posts))
        self._bytes.change(receipt.caller, receipt.size)

    def remove(self, receipt: Receipt) -> None:
        self._posts.change(receipt.caller, -len(receipt.posts))
        self._bytes.change(receipt.caller, -receipt.size)


class Committer:
    """The only writer of posts in this process.

    Args:
        storage: written to.
        writability: receives commits and failures.
        now_us: the clock.
        committed: receives each request's posts with their outcomes, before the request is
            acknowledged.
        refresh: reads the catalog, and returns its number.
        check: receives a request's posts under the latest catalog, and raises ServiceError if that
            catalog does not admit them.
        queue_posts, queue_bytes: a request is rejected when so much waits. Requests accepted before
            may exceed it. Requests with many posts or bytes have half the bytes, and half the
            posts, for themselves: they displace no request with one post of a few KB.
        observer: listens to transactions.
        trial: tries requests before they are journaled. None where no request can conflict.
    """

    def __init__(
        self,
        storage: Storage,
        writability: Writability,
        *,
        now_us: Callable[[], int],
        committed: Callable[[Receipt], None],
        refresh: Callable[[], Awaitable[int]],
        check: Callable[[Receipt], None],
        queue_posts: int,
        queue_bytes: int,
        observer: Observer,
        trial: Callable[[Sequence[Receipt]], Trial | None] = lambda receipts: None,
    ) -> None:
        self._storage = storage
        self._writability = writability
        self._now_us = now_us
        self._committed = committed
        self._refresh = refresh
        self._check = check
        self._trial = trial
        half_bytes = -(-queue_bytes // 2)
        few, many = _Queued(queue_posts, half_bytes), _Queued(-(-queue_posts // 2), half_bytes)
        self._queued = {False: few, True: many}  # by bulk
        self._observer = observer
        self._queue: deque[Receipt] = deque()
        self._arrived = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._closing = False

    @property
    def closing(self) -> bool:
        """Return whether nothing more is accepted."""
        return self._closing

    async def submit(self, receipt: Receipt) -> None:
        """Commit a request's posts. On return they are on stable storage, and the receipt has their
        outcomes.

        Raises:
            Exception: the fault found when they are decoded.
            BusyError: too much waits.
            ClosingError: this process is about to end.
            StorageError: they may or may not have been committed.
        """
        if self._closing:
            raise ClosingError
        queued = self._queued[receipt.bulk]
        if queued.crowded(receipt.caller):
            raise BusyError
        if receipt.hold is not None:
            receipt.hold.share()
        receipt.done = asyncio.get_running_loop().create_future()
        self._queue.append(receipt)
        queued.add(receipt)
        self._empty.clear()
        self._arrived.set()
        await receipt.done

    async def run(self) -> None:
        """Commit the next requests."""
        await self._arrived.wait()
        batch = self._next_batch()
        try:
            await self._commit(batch)
        except Exception as error:
            if isinstance(error, StorageError | ReplayError):
                self._writability.failed(error, sum(each.size for each in batch))
            else:
                _log.exception("a transaction of %d requests failed", len(batch))
                self._observer.failed("commit")
            for each in batch:
                each.fail(error)
        finally:
            for each in batch:
                self._queued[each.bulk].remove(each)
                if each.hold is not None:
                    each.hold.release()
            if not self._queue:
                self._arrived.clear()
                self._empty.set()

    def stop(self) -> None:
        """Accept nothing more."""
        self._closing = True

    async def drain(self) -> None:
        """Accept nothing more, and wait until all accepted requests are committed."""
        self.stop()
        await self._empty.wait()

    def _next_batch(self) -> list[Receipt]:
        batch = [self._queue.popleft()]
        size, rows = batch[0].size, batch[0].unread_rows
        while self._queue:
            size += self._queue[0].size
            rows += self._queue[0].unread_rows
            if size > _TRANSACTION_BYTES or rows > _DECODED_ROWS:
                break
            batch.append(self._queue.popleft())
        return batch

    async def _commit(self, batch: list[Receipt]) -> None:
        """Run one transaction. Every request in the batch is acknowledged or fails."""
        for _ in range(_TRIES):
            batch = [each for each in batch if each.waits]
            if not batch:
                return
            trial = self._trial(batch)
            try:
                outcomes = await self._write(batch, trial)
            except CatalogChangedError:
                await self._check_all_again(batch)
                continue
            except OvertakenError:
                assert trial is not None
                await self._refresh()
                if certain := [each for each in batch if not trial.concerns(each.posts)]:
                    await self._commit(certain)
                continue
            if new := sum(len(each.body) for each in outcomes if isinstance(each, Post)):
                self._writability.written(new)
            self._acknowledge(batch, outcomes)
            return
        for each in batch:
            each.fail(BusyError())

    async def _write(self, batch: list[Receipt], trial: Trial | None) -> list[Outcome]:
        """Return the outcome per post. Rejected requests have received their error."""
        catalog = min(each.catalog for each in batch)
        upto = None if trial is None else trial.upto
        now_us = self._now_us()
        began = 0.0

        def prepare() -> None:
            nonlocal began
            for each in batch:
                each.prepare(trial, now_us)
            if all(each.fault is not None for each in batch):
                raise _NothingLeftError
            began = time.monotonic()

        def append(tx: Writer) -> list[Outcome]:
            posts = [post for each in batch if each.fault is None for post in each.posts]
            outcomes = log.append(tx, posts, catalog, now_us, upto)
            for each, own in _shared(batch, outcomes):
                if each.beside is not None and not any(map(_is_rejected, own)):
                    each.beside(tx)
            return outcomes

        try:
            outcomes = await self._storage.write(append, before=prepare)
        except _NothingLeftError:
            return []
        finally:
            for each in batch:
                if each.fault is not None:
                    each.fail(each.fault)
        size = sum(each.size for each in batch if each.fault is None)
        self._observer.committed(len(outcomes), size, time.monotonic() - began)
        return outcomes

    async def _check_all_again(self, batch: list[Receipt]) -> None:
        catalog = await self._refresh()
        for each in batch:
            try:
                self._check(each)
            except ServiceError as error:
                each.fail(error)
            each.catalog = catalog

    def _acknowledge(self, batch: list[Receipt], outcomes: list[Outcome]) -> None:
        for each, own in _shared(batch, outcomes):
            each.outcomes = own
            self._committed(each)  # first, so that an acknowledged client reads its own post
            each.succeed()


def _shared(
    batch: Sequence[Receipt], outcomes: list[Outcome]
) -> Iterator[tuple[Receipt, list[Outcome]]]:
    """Yield each request without a fault, with the outcomes of its own posts."""
    begin = 0
    for each in batch:
        if each.fault is None:
            end = begin + len(each.posts)
            yield each, outcomes[begin:end]
            begin = end


def _is_rejected(outcome: Outcome) -> bool:
    return isinstance(outcome, IntervalConflictError)
