"""Changes to a database without a server: a database that is too large to start can be made
smaller.

No sketch is read. The rows are deleted in one transaction, as a server does it. Servers that run
over the database see the catalog change, as they see each other's changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from api.journal import log
from api.journal.log import StorageError
from api.journal.sql import SqlStorage
from api.journal.storage import Writer
from api.journal.urls import driver_url

__all__ = ["OfflineError", "delete", "revoke"]


class OfflineError(RuntimeError):
    """It could not be done; the message is one sentence."""


def revoke(url: str, stream: str, source: str) -> None:
    """Drop all posts of a source, and reject it from now on.

    Raises:
        OfflineError: there is no such stream, or the database is out of reach.
    """

    def change(tx: Writer, stream_id: int) -> bool:
        return log.revoke(tx, (stream_id, source))

    _change(url, stream, change)


def delete(url: str, stream: str) -> None:
    """Delete a stream and all its posts.

    Raises:
        OfflineError: there is no such stream, or the database is out of reach.
    """
    _change(url, stream, log.delete)


def _change(url: str, stream: str, change: Callable[[Writer, int], bool]) -> None:
    def transaction(tx: Writer) -> bool:
        for row in tx.streams():
            if row.name == stream:
                return change(tx, row.id)
        return False

    async def run() -> bool:
        storage = await SqlStorage.open(url)
        try:
            return await storage.write(transaction)
        finally:
            await storage.close()

    _require_database(url)
    try:
        found = asyncio.run(run())
    except StorageError as error:
        raise OfflineError(str(error)) from None
    if not found:
        raise OfflineError(f"there is no stream {stream!r}")


def _require_database(url: str) -> None:
    """Check that the database exists. A mistyped path must not become an empty database."""
    parsed = driver_url(url)
    if parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").exists():
        raise OfflineError(f"there is no database {parsed.database!r}")
