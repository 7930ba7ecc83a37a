"""Group commit: posts that arrive together are committed together.

Syncing a disk takes as long for one post as for a hundred. While one transaction runs, posts
gather, and the next transaction commits them all. The transaction's thread first decodes the
sketches that are not decoded yet, before the transaction begins. A request that cannot be decoded
fails, and the others are committed. So a post goes to one thread, and the event loop wakes once per
transaction. A post is acknowledged when its transaction has ended, never before. Both the queue and
a transaction are bounded. When the queue is full the server rejects a request and asks the client
to retry. One key cannot fill the queue.

Where joins may conflict, the server first joins a post with the present content, on a copy. The
transaction writes nothing if others wrote in between. Such a post is tried again, and the rest goes
ahead of it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence

from api.errors import BusyError, ClosingError, IntervalConflictError, ServiceError
from api.journal import log
from api.journal.log import Outcome
from api.journal.model import (
    CatalogChangedError,
    OvertakenError,
    ReplayError,
    Row,
    StorageError,
)
from api.journal.storage import Storage, Writer
from api.service.join_check import Trial
from api.service.observer import Observer
from api.service.posts import Receipt
from api.service.shares import Shares
from api.service.write_probe import Writability

__all__ = ["Committer"]

_log = logging.getLogger(__name__)

_TRANSACTION_BYTES = 16 * 1024 * 1024
_DECODED_ROWS = 1 << 18  # before a transaction, which others wait for; or one request
_TRIES = 8  # while others change the catalog, or write what must be looked at first


class _NothingLeftError(Exception):
    """There is nothing to commit: no submission can be decoded."""


class _Queued:
    """Requests of one kind that wait or run.

    Args:
        most_posts, most_bytes: a request is rejected when so much is queued; see
            :mod:`api.service.shares`.
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
            if new := sum(len(each.body) for each in outcomes if isinstance(each, Row)):
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
                each.prepare(trial)
            if all(each.fault is not None for each in batch):
                raise _NothingLeftError
            began = time.monotonic()

        async def append(tx: Writer) -> list[Outcome]:
            posts = [post for each in batch if each.fault is None for post in each.posts]
            outcomes = await log.append(tx, posts, catalog, now_us, upto)
            for each, own in _shared(batch, outcomes):
                if each.beside is not None and not any(map(_is_rejected, own)):
                    await each.beside(tx)
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
            self._committed(each)  # first, so that who is acknowledged may ask at once
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
