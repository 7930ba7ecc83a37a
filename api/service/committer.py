"""Group commit: posts that arrive together are committed together.

Syncing a disk takes as long for one post as for a hundred. While one transaction is under way posts
gather, and the next transaction commits all of them. The transaction's thread first decodes the
sketches that are not decoded yet, before the transaction begins. A request that cannot be decoded
fails, and the others are committed. So a post goes to one thread, and the event loop wakes once per
transaction. A post is acknowledged when its transaction has ended, never before. Both the queue and
a transaction are bounded. When the queue is full the server rejects a request and asks the client
to retry. One key cannot fill the queue.

Where joins may conflict a post is joined, on a copy, with the present content before its
transaction. The transaction writes nothing if others wrote in between. Such a post is tried again,
and the rest goes ahead of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from api.errors import BusyError, ClosingError, IntervalConflictError, ServiceError
from api.journal import log
from api.journal.log import Journaled
from api.journal.model import (
    CatalogChangedError,
    NewPost,
    OvertakenError,
    ReplayError,
    StorageError,
)
from api.journal.storage import Storage, Writer
from api.service.budget import Hold
from api.service.join_check import Trial
from api.service.observer import Observer
from api.service.posts import Draft
from api.service.shares import Shares
from api.service.write_probe import Writability

__all__ = ["Committer", "Outcome", "Submission"]

Outcome = Journaled | IntervalConflictError

_log = logging.getLogger(__name__)

_TRANSACTION_BYTES = 16 * 1024 * 1024
_DECODED_ROWS = 1 << 18  # before a transaction, which others wait for; or one request
_BULK_POSTS, _BULK_BYTES = 16, 1 << 20  # of a request that waits beside the others
_TRIES = 8  # while others change the catalog, or write what must be looked at first


class _NothingLeftError(Exception):
    """There is nothing to commit: no submission can be decoded."""


@dataclass(eq=False, slots=True)
class Submission:
    """The posts of one request: in one transaction, all or none.

    Attributes:
        stream_id, source: the destination, and the sender.
        draft: the sketches as sent.
        catalog: number of the catalog that they were checked against.
        hold: of their rows, shared until the submission ends.
        caller: the owner of the key, if there is one.
        posts: the posts to journal, once decoded.
        fault: the reason why they could not be decoded.
        bulk: whether it has many posts, or many bytes.
    """

    stream_id: int
    source: str
    draft: Draft
    catalog: int
    hold: Hold | None
    done: asyncio.Future[list[Outcome]] = field(repr=False)
    caller: str | None = None
    posts: Sequence[NewPost] = ()
    fault: Exception | None = None
    bulk: bool = field(init=False)

    def __post_init__(self) -> None:
        self.bulk = self.draft.posts >= _BULK_POSTS or self.draft.size >= _BULK_BYTES

    def prepare(self, trial: Trial | None) -> None:
        """Find ``posts``, if not done before, and try whether they can be joined with the present
        content. Otherwise find a ``fault``. Runs on a thread.
        """
        if self.fault is not None:
            return
        try:
            self.posts = self.posts or [
                NewPost(
                    self.stream_id, self.source, each.body, len(each.sketch), each.interval,
                    each.digest, each.request,
                )
                for each in self.draft.sketches()
            ]  # fmt: skip
            if trial is not None:
                trial.take(
                    self.stream_id, self.source, (each.sketch for each in self.draft.sketches())
                )
        except Exception as fault:
            self.posts, self.fault = (), fault

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class _Queued:
    """The requests of one kind that wait or are under way.

    Args:
        most_posts, most_bytes: a request is rejected when so much is queued; see
            :mod:`api.service.shares`.
    """

    def __init__(self, most_posts: int, most_bytes: int) -> None:
        self._posts, self._bytes = Shares(most_posts), Shares(most_bytes)

    def crowded(self, caller: str | None) -> bool:
        return self._posts.crowded(caller) or self._bytes.crowded(caller)

    def add(self, of: Submission) -> None:
        self._posts.change(of.caller, of.draft.posts)
        self._bytes.change(of.caller, of.draft.size)

    def remove(self, of: Submission) -> None:
        self._posts.change(of.caller, -of.draft.posts)
        self._bytes.change(of.caller, -of.draft.size)


class Committer:
    """The one writer of posts in this process.

    Args:
        storage: written to.
        writability: receives commits and failures.
        now_us: the clock.
        committed: receives the outcome of each submission, before it is acknowledged.
        refresh: reads the catalog; returns its number.
        check: receives a submission under the catalog that was read last; raises ServiceError if
            that catalog does not admit it.
        queue_posts, queue_bytes: a request is rejected when so much waits; requests accepted before
            may exceed it. Requests with many posts or bytes have half of the bytes, and half as
            many posts, for themselves: they displace no request with one post of a few KB.
        observer: listens to transactions.
        trial: of submissions, before they are journaled; None where no submission can conflict.
    """

    def __init__(
        self,
        storage: Storage,
        writability: Writability,
        *,
        now_us: Callable[[], int],
        committed: Callable[[Submission, list[Outcome]], None],
        refresh: Callable[[], Awaitable[int]],
        check: Callable[[Submission], None],
        queue_posts: int,
        queue_bytes: int,
        observer: Observer,
        trial: Callable[[Sequence[Submission]], Trial | None] = lambda submissions: None,
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
        self._queue: deque[Submission] = deque()
        self._arrived = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._closing = False

    @property
    def closing(self) -> bool:
        """Return whether nothing more is accepted."""
        return self._closing

    async def submit(
        self,
        stream_id: int,
        source: str,
        draft: Draft,
        catalog: int,
        hold: Hold | None = None,
        caller: str | None = None,
    ) -> list[Outcome]:
        """Commit posts of a caller. On return they are on stable storage.

        Raises:
            Exception: the fault found when they are decoded.
            BusyError: too much waits.
            ClosingError: this process is about to end.
            StorageError: they may or may not have been committed.
        """
        if self._closing:
            raise ClosingError
        done: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        submission = Submission(stream_id, source, draft, catalog, hold, done, caller)
        queued = self._queued[submission.bulk]
        if queued.crowded(caller):
            raise BusyError
        if hold is not None:
            hold.share()
        self._queue.append(submission)
        queued.add(submission)
        self._empty.clear()
        self._arrived.set()
        return await done

    async def run(self) -> None:
        """Commit the next submissions."""
        await self._arrived.wait()
        batch = self._next_batch()
        try:
            await self._commit(batch)
        except Exception as error:
            if isinstance(error, StorageError | ReplayError):
                self._writability.failed(error, sum(each.draft.size for each in batch))
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
        """Accept nothing more, and wait until all accepted submissions are committed."""
        self.stop()
        await self._empty.wait()

    def _next_batch(self) -> list[Submission]:
        batch = [self._queue.popleft()]
        size, rows = batch[0].draft.size, batch[0].draft.unread_rows
        while self._queue:
            size += self._queue[0].draft.size
            rows += self._queue[0].draft.unread_rows
            if size > _TRANSACTION_BYTES or rows > _DECODED_ROWS:
                break
            batch.append(self._queue.popleft())
        return batch

    async def _commit(self, batch: list[Submission]) -> None:
        """Run one transaction. Every submission of the batch is acknowledged or fails."""
        for _ in range(_TRIES):
            batch = [each for each in batch if not each.done.done()]
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
                if certain := [each for each in batch if not trial.concerns(each.stream_id)]:
                    await self._commit(certain)
                continue
            rows = [each.row for each in outcomes if isinstance(each, Journaled)]
            if new := sum(len(row.body) for row in rows if row is not None):
                self._writability.written(new)
            self._acknowledge(batch, outcomes)
            return
        for each in batch:
            each.fail(BusyError())

    async def _write(self, batch: list[Submission], trial: Trial | None) -> list[Outcome]:
        """Return the outcome of each post. Rejected submissions have received their error."""
        catalog = min(each.catalog for each in batch)
        upto = None if trial is None else trial.upto
        now_us = self._now_us()
        began = 0.0

        def prepare() -> None:
            nonlocal began
            for each in batch:
                each.prepare(trial)
            if not any(each.posts for each in batch):
                raise _NothingLeftError
            began = time.monotonic()

        async def append(tx: Writer) -> list[Outcome]:
            posts = [post for each in batch for post in each.posts]
            outcomes = await log.append(tx, posts, catalog, now_us, upto)
            for each, own in _shared(batch, outcomes):
                if each.draft.beside is not None and own and all(map(_is_taken, own)):
                    await each.draft.beside(tx)
            return outcomes

        try:
            outcomes = await self._storage.write(append, before=prepare)
        except _NothingLeftError:
            return []
        finally:
            for each in batch:
                if each.fault is not None:
                    each.fail(each.fault)
        size = sum(len(post.body) for each in batch for post in each.posts)
        self._observer.committed(len(outcomes), size, time.monotonic() - began)
        return outcomes

    async def _check_all_again(self, batch: list[Submission]) -> None:
        catalog = await self._refresh()
        for each in batch:
            try:
                self._check(each)
            except ServiceError as error:
                each.fail(error)
            each.catalog = catalog

    def _acknowledge(self, batch: list[Submission], outcomes: list[Outcome]) -> None:
        for each, own in _shared(batch, outcomes):
            if own:
                self._committed(each, own)  # first, so that who is acknowledged may ask at once
            if not each.done.done():  # nobody waits any more, or it has a fault
                each.done.set_result(own)


def _shared(
    batch: Sequence[Submission], outcomes: list[Outcome]
) -> Iterator[tuple[Submission, list[Outcome]]]:
    """Yield each submission with the outcomes of its own posts."""
    begin = 0
    for each in batch:
        yield each, outcomes[begin : begin + len(each.posts)]
        begin += len(each.posts)


def _is_taken(outcome: Outcome) -> bool:
    return isinstance(outcome, Journaled)
