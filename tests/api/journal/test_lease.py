"""Of several processes one has the lease, and another once it is over."""

from __future__ import annotations

from pathlib import Path

import pytest
from databases import KINDS, new_database

from api.journal import lease
from api.journal.sql import SqlStorage

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", KINDS)
async def test_one_has_it_until_it_is_over_or_left(kind: str, tmp_path: Path) -> None:
    storage = await SqlStorage.open(new_database(kind, tmp_path).url)
    try:

        async def take(holder: str, now_us: int) -> bool:
            return await storage.write(lambda tx: lease.take(tx, "relay", holder, now_us, 100))

        assert await take("a", 0)
        assert not await take("b", 99)
        assert await take("a", 99)  # renewed
        assert not await take("b", 198)
        assert await take("b", 199)
        assert not await take("a", 200)
        await storage.write(lambda tx: lease.release(tx, "relay", "a"))  # which it has not
        assert not await take("a", 201)
        await storage.write(lambda tx: lease.release(tx, "relay", "b"))
        assert await take("a", 10**15)  # by a clock that is far ahead
        assert await take("b", 202)
    finally:
        await storage.close()
