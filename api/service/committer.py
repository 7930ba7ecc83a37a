"""Group commit: posts that arrive together are committed together.

Syncing a disk takes as long for one post as for a hundred. While one transaction is under way posts
gather; the next one takes them all. A post is acknowledged when its transaction has ended, never
before. Both the queue and a transaction are bounded; who comes when the queue is full is told to
come again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from api.errors import BusyError, ClosingError, IntervalConflictError, ServiceError
from api.journal import log
from api.journal.log import Journaled
from api.journal.model import CatalogChangedError, NewPost, ReplayError, StorageError
from api.journal.storage import Storage
from api.service.budget import Hold
from api.service.observer import Observer
from api.service.writability import Writability
from decaysketch import Snapshot

__all__ = ["Committer", "Outcome", "Submission"]

Outcome = Journaled | IntervalConflictError

_log = logging.getLogger(__name__)

_TRANSACTION_BYTES = 16 * 1024 * 1024
_BULK_POSTS = 16
_CATALOG_TRIES = 8


@dataclass(eq=False, slots=True)
class Submission:
    """The posts of one request: in one transaction, all of them or none.

    Attributes:
        posts: what is to be journaled.
        sketches: what was decoded from each.
        catalog: number of the catalog that they were checked against.
        hold: of their rows, shared until the submission is dealt with.
        size: bytes of the posts.
        bulk: how many posts, where they are many; else 0.
    """

    posts: Sequence[NewPost]
    sketches: Sequence[Snapshot]
    catalog: int
    hold: Hold | None
    done: asyncio.Future[list[Outcome]] = field(repr=False)
    size: int = field(init=False)
    bulk: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(len(post.body) for post in self.posts)
        self.bulk = len(self.posts) if len(self.posts) >= _BULK_POSTS else 0

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Committer:
    """The one writer of posts in this process.

    Args:
        storage: written to.
        writability: listens to what is committed and what cannot be.
        now_us: the clock.
        committed: told the outcome of each submission, before it is acknowledged.
        refresh: reads the catalog; gives its number.
        check: told a submission under the catalog that was read last; raises ServiceError if that
            does not admit it.
        queue_posts, queue_bytes: who comes when so much waits is sent away; who is taken before may
            go beyond. Requests of many posts are held against half of ``queue_posts`` of their own,
            so that they take nobody's place who brings one.
        observer: listens to transactions.
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
    ) -> None:
        self._storage = storage
        self._writability = writability
        self._now_us = now_us
        self._committed = committed
        self._refresh = refresh
        self._check = check
        self._queue_posts = queue_posts
        self._queue_bytes = queue_bytes
        self._observer = observer
        self._queue: deque[Submission] = deque()
        self._posts = self._bulk = self._bytes = 0  # in the queue or under way
        self._arrived = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._closing = False

    @property
    def closing(self) -> bool:
        """Whether nothing more is taken."""
        return self._closing

    async def submit(
        self,
        posts: Sequence[NewPost],
        sketches: Sequence[Snapshot],
        catalog: int,
        hold: Hold | None = None,
    ) -> list[Outcome]:
        """Commit posts; on return they are on stable storage.

        Raises:
            BusyError: too much waits.
            ClosingError: this process is about to end.
            StorageError: they may or may not have been committed.
        """
        if self._closing:
            raise ClosingError
        done: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        submission = Submission(posts, sketches, catalog, hold, done)
        if submission.bulk:
            crowded = self._bulk > self._queue_posts // 2
        else:
            crowded = self._posts - self._bulk >= self._queue_posts
        if crowded or self._bytes >= self._queue_bytes:
            raise BusyError
        if hold is not None:
            hold.share()
        self._queue.append(submission)
        self._posts += len(posts)
        self._bulk += submission.bulk
        self._bytes += submission.size
        self._empty.clear()
        self._arrived.set()
        return await done

    async def run(self) -> None:
        """Commit what arrives next."""
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
            self._posts -= sum(len(each.posts) for each in batch)
            self._bulk -= sum(each.bulk for each in batch)
            self._bytes -= sum(each.size for each in batch)
            for each in batch:
                if each.hold is not None:
                    each.hold.release()
            if not self._queue:
                self._arrived.clear()
                self._empty.set()

    def stop(self) -> None:
        """Take nothing more."""
        self._closing = True

    async def drain(self) -> None:
        """Take nothing more, and wait until all that was taken is committed."""
        self.stop()
        await self._empty.wait()

    def _next_batch(self) -> list[Submission]:
        batch = [self._queue.popleft()]
        size = batch[0].size
        while self._queue and size + self._queue[0].size <= _TRANSACTION_BYTES:
            batch.append(self._queue.popleft())
            size += batch[-1].size
        return batch

    async def _commit(self, batch: list[Submission]) -> None:
        """One transaction; every submission of the batch is acknowledged or fails."""
        loop = asyncio.get_running_loop()
        for _ in range(_CATALOG_TRIES):
            batch = [each for each in batch if not each.done.done()]
            if not batch:
                return
            began = loop.time()
            try:
                outcomes = await self._write(batch)
            except CatalogChangedError:
                await self._check_all_again(batch)
                continue
            size = sum(each.size for each in batch)
            self._observer.committed(len(outcomes), size, loop.time() - began)
            rows = [each.row for each in outcomes if isinstance(each, Journaled)]
            if new := sum(len(row.body) for row in rows if row is not None):
                self._writability.written(new)
            self._acknowledge(batch, outcomes)
            return
        for each in batch:
            each.fail(BusyError())

    async def _write(self, batch: list[Submission]) -> list[Outcome]:
        posts = [post for each in batch for post in each.posts]
        catalog = min(each.catalog for each in batch)
        now_us = self._now_us()
        return await self._storage.write(lambda tx: log.append(tx, posts, catalog, now_us))

    async def _check_all_again(self, batch: list[Submission]) -> None:
        catalog = await self._refresh()
        for each in batch:
            try:
                self._check(each)
            except ServiceError as error:
                each.fail(error)
            each.catalog = catalog

    def _acknowledge(self, batch: list[Submission], outcomes: list[Outcome]) -> None:
        begin = 0
        for each in batch:
            own = outcomes[begin : begin + len(each.posts)]
            begin += len(each.posts)
            self._committed(each, own)  # first, so that who is acknowledged may ask at once
            if not each.done.done():
                each.done.set_result(own)
