"""Compaction: each source's posts are written as one sketch, and old rows are deleted.

Any process may compact at any time. A process that finds that another one was faster starts again
from the new state, and nothing is lost.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from functools import partial

from api.journal import log
from api.journal.log import (
    Head,
    ReplayError,
    SnapshotRow,
    SourceKey,
    StorageError,
    SupersededError,
    Totals,
)
from api.journal.storage import Storage
from api.logs import Seldom
from api.service.follower import Follower
from api.service.merging import MergeBuffer
from api.service.observer import Observer
from api.service.streams import Stream, Streams
from api.service.threads import Background, Compute

__all__ = ["Compactor"]

_log = logging.getLogger(__name__)

_SOURCES_AT_ONCE = 32  # of one transaction, so that posts need not wait long
_TRANSACTION_BYTES = 16 * 1024 * 1024
_ROWS_A_SOURCE = 4


class Compactor:
    """Compacts when enough rows or bytes were taken since the last compaction.

    Args:
        storage: written to.
        streams: the streams to compact.
        follower: knows up to which row the streams hold the journal.
        compute: runs the merging.
        observer: listens to compactions.
        background: counts merge failures as its own.
        most_rows, most_bytes: taken since the last compaction by any process, to begin one.
    """

    def __init__(
        self,
        storage: Storage,
        streams: Streams,
        follower: Follower,
        compute: Compute,
        observer: Observer,
        background: Background,
        *,
        most_rows: int,
        most_bytes: int,
    ) -> None:
        self._storage = storage
        self._streams = streams
        self._follower = follower
        self._compute = compute
        self._observer = observer
        self._background = background
        self._late = Seldom(_log)
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self._due_rows = most_rows
        self._began: tuple[int, int, int] | None = None  # generation, row and bytes, the last time

    def is_due(self) -> bool:
        """Return whether enough posts arrived since the last compaction by any process."""
        follower = self._follower
        if self._began is None:  # an earlier process may have left rows
            self._began = follower.head.generation, follower.head.deleted, 0
        generation, cursor, size = self._began
        if follower.head.generation != generation:
            self._remember()
            return False
        rows = follower.cursor - cursor
        return rows >= self._due_rows or follower.taken_bytes - size >= self._most_bytes

    async def watch(self, every_s: float) -> None:
        """Wait for so long, and compact if it is due."""
        await asyncio.sleep(every_s)
        if not self.is_due():
            return
        try:
            await self.compact()
            self._late.over()
        except (StorageError, ReplayError) as error:
            self._late.say(logging.ERROR, "cannot compact, will try again: %s", error)
            await asyncio.sleep(10 * every_s)

    async def compact(self) -> int:
        """Write a snapshot of every source that has rows in the journal, and delete the rows that
        an older snapshot contains. Return how many rows were deleted. End early if another process
        compacts. If rows of a source cannot be merged, they stay in the journal.

        Raises:
            StorageError: the database is out of reach. Transactions that ended before, hold.
            ReplayError: it cannot be read.
        """
        deleted = 0
        loop = asyncio.get_running_loop()
        head = await self._follower.catch_up()
        sources = deque(await self._storage.read(lambda rx: rx.journaled_sources(head.last)))
        # With many sources a compaction costs more, and is due less often.
        self._due_rows = max(self._most_rows, _ROWS_A_SOURCE * len(sources))
        while sources:
            began = loop.time()
            batch, rows = await self._snapshots(sources, head)
            try:
                count = await self._storage.write(partial(log.compact, known=head, snapshots=rows))
            except SupersededError:
                newer = await self._follower.catch_up()
                if newer.generation != head.generation:
                    break
                sources.extendleft(reversed(batch))  # of another catalog: once more
                head = newer
                continue
            self._observer.compacted(loop.time() - began, count)
            deleted += count
            head = await self._follower.catch_up()
        self._remember()
        return deleted

    async def _snapshots(
        self, sources: deque[SourceKey], head: Head
    ) -> tuple[list[SourceKey], list[SnapshotRow]]:
        """Return snapshots of as many sources as fit one transaction, and remove these from
        ``sources``.
        """
        batch: list[SourceKey] = []
        rows: list[SnapshotRow] = []
        while sources and len(batch) < _SOURCES_AT_ONCE:
            batch.append(sources.popleft())
            stream = self._streams.by_id(batch[-1][0])
            held = None if stream is None else stream.source(batch[-1][1])
            if stream is None or held is None:
                continue
            upto = self._follower.cursor  # of the same moment as the totals
            try:
                row = await self._compute(
                    _snapshot_row, stream, batch[-1][1], *held, head.generation + 1, upto
                )
            except Exception as error:
                where = f"source {batch[-1][1]!r} of stream {stream.name!r}"
                self._background.failed("compact", error, where)
                continue
            rows.append(row)
            if sum(len(each.body) for each in rows) >= _TRANSACTION_BYTES:
                break
        return batch, rows

    def _remember(self) -> None:
        follower = self._follower
        self._began = follower.head.generation, follower.cursor, follower.taken_bytes


def _snapshot_row(
    stream: Stream, source: str, buffer: MergeBuffer, totals: Totals, generation: int, upto: int
) -> SnapshotRow:
    """Return a snapshot of all rows up to ``upto``, and maybe of some later ones. These are joined
    once more when they are read, which changes nothing.
    """
    body = buffer.to_bytes()
    return SnapshotRow(
        stream_id=stream.id,
        source=source,
        generation=generation,
        upto=upto,
        digest=hashlib.sha256(body).digest(),
        body=body,
        totals=totals,
    )
