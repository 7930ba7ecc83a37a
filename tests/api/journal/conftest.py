"""Storages over an empty database of each kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from databases import Database, database

from api.journal.sql import SqlStorage

__all__ = ["database"]

Open = Callable[[], Awaitable[SqlStorage]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def open_storage(database: Database) -> AsyncIterator[Open]:
    """Open the database once more, as another process does."""
    async with AsyncExitStack() as opened:

        async def open_one() -> SqlStorage:
            storage = await SqlStorage.open(database.url)
            opened.push_async_callback(storage.close)
            return storage

        yield open_one


@pytest.fixture
async def storage(open_storage: Open) -> SqlStorage:
    return await open_storage()
