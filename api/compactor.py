"""Compaction: what sources have posted is written as one sketch each, and old rows are deleted.

Any process may compact at any time. Who finds that another one was faster starts again from what
that one left; nothing is lost by it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterator, Sequence

from api.compute import Compute
from api.follower import Follower, ReplayError
from api.journal import log
from api.journal.model import (
    Head,
    SnapshotRow,
    SourceKey,
    StorageError,
    SupersededError,
    Totals,
)
from api.journal.storage import Storage
from api.observer import Observer
from api.pile import Pile
from api.streams import Stream, Streams

__all__ = ["Compactor"]

_log = logging.getLogger(__name__)

_SOURCES_AT_ONCE = 32  # of one transaction, so that posts need not wait long
_TRIES = 5


class Compactor:
    """Compacts when so many rows, or so many bytes, were taken since the last time.

    Args:
        storage: written to.
        streams: what is compacted.
        follower: says up to where the streams hold the journal.
        compute: runs the merging.
        observer: told of each compaction.
        most_rows, most_bytes: taken since the last compaction by anybody, to begin one.
    """

    def __init__(
        self,
        storage: Storage,
        streams: Streams,
        follower: Follower,
        compute: Compute,
        observer: Observer,
        *,
        most_rows: int,
        most_bytes: int,
    ) -> None:
        self._storage = storage
        self._streams = streams
        self._follower = follower
        self._compute = compute
        self._observer = observer
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self._began = (0, 0, 0)  # generation, cursor and bytes when last compacted

    def is_due(self) -> bool:
        """Whether enough was taken since anybody compacted."""
        generation, cursor, size = self._began
        if self._follower.head.generation != generation:
            self._remember()
            return False
        rows = self._follower.cursor - cursor
        return rows >= self._most_rows or self._follower.taken_bytes - size >= self._most_bytes

    async def watch(self, every_s: float) -> None:
        """Compact whenever it is due, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            if not self.is_due():
                continue
            try:
                await self.compact()
            except (StorageError, ReplayError) as error:
                _log.warning("cannot compact, will try again: %s", error)
                await asyncio.sleep(10 * every_s)

    async def compact(self) -> int:
        """Write a snapshot of every source that has rows in the journal; delete what an older
        snapshot holds. How many rows were deleted.

        Raises:
            StorageError: the database is out of reach. Transactions that ended before, hold.
        """
        deleted = 0
        loop = asyncio.get_running_loop()
        head = await self._follower.catch_up()
        async with self._storage.reading() as rx:
            sources = await rx.journaled_sources(head.last)
        for batch in _batches(sources):
            for _ in range(_TRIES):
                began = loop.time()
                try:
                    rows = await self._write(batch, head)
                except SupersededError:
                    head = await self._follower.catch_up()
                    continue
                self._observer.compacted(loop.time() - began, rows)
                deleted += rows
                head = await self._follower.catch_up()
                break
        self._remember()
        return deleted

    async def _write(self, batch: Sequence[SourceKey], head: Head) -> int:
        upto = self._follower.cursor  # no await from here until all totals are taken
        held = [
            (stream, source, each)
            for stream_id, source in batch
            if (stream := self._streams.by_id(stream_id)) is not None
            and (each := stream.source(source)) is not None
        ]
        rows = [
            await self._compute(
                _snapshot_row, stream, source, pile, totals, head.generation + 1, upto
            )
            for stream, source, (pile, totals) in held
        ]
        async with self._storage.writing() as tx:
            return await log.compact(tx, head, rows)

    def _remember(self) -> None:
        follower = self._follower
        self._began = follower.head.generation, follower.cursor, follower.taken_bytes


def _batches(sources: Sequence[SourceKey]) -> Iterator[Sequence[SourceKey]]:
    for begin in range(0, len(sources), _SOURCES_AT_ONCE):
        yield sources[begin : begin + _SOURCES_AT_ONCE]


def _snapshot_row(
    stream: Stream, source: str, pile: Pile, totals: Totals, generation: int, upto: int
) -> SnapshotRow:
    """Of all rows up to ``upto``, and maybe of some that the pile was given since: these are joined
    once more when they are read, which changes nothing."""
    body = pile.merged().to_bytes()
    return SnapshotRow(
        stream_id=stream.id,
        source=source,
        generation=generation,
        upto=upto,
        digest=hashlib.sha256(body).digest(),
        body=body,
        totals=totals,
    )
