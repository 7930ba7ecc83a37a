"""Detect whether this process can write the journal, by writing.

Taking the lock of writers, or reading, succeeds on a full disk. So the process writes a *proof* to
the database: bytes that overwrite the previous proof, and are synced like a post. After a failed
transaction, a proof of one page shows little: SQLite has space for it left over from the aborted
transaction, and the next post fails again. After a failure only a proof as large as the failed
write counts. When it succeeds the process can write again.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable

from api.journal.model import ReplayError, StorageError
from api.journal.storage import Storage, Writer
from api.logs import Seldom
from api.service.observer import Observer

__all__ = ["Writability"]

_log = logging.getLogger(__name__)

_FRESH_S = 1.0  # what was committed so long ago is proof
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
        _log.warning("the journal takes writes again; %d transactions failed", self._failures)
        self._failures = 0

    def failed(self, error: StorageError | ReplayError, size: int = 0) -> None:
        """Record that so many bytes could not be written."""
        self._owed_bytes = min(max(size, self._owed_bytes or 0), _MOST_BYTES)
        self._failures += 1
        self._observer.unwritten()
        self._failing.say(
            logging.ERROR, "the journal cannot be written, posts are refused: %s", error
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

        async def write(tx: Writer) -> None:
            await tx.lock_head()
            await tx.prove(body)

        await self._storage.write(write)

    async def close(self) -> None:
        """Stop waiting for a proof."""
        if self._proving is not None:
            self._proving.cancel()
            await asyncio.gather(self._proving, return_exceptions=True)
