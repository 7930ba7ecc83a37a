"""Databases that are slow, full, gone or grown."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from databases import PostgresServer, new_database, postgres_server
from transactions import reading, writing

from api.journal import log
from api.journal.log import Head, Post, StorageError, StreamRow
from api.journal.sql import SqlStorage

pytestmark = pytest.mark.anyio


async def create(storage: SqlStorage) -> int:
    async with writing(storage) as tx:
        made = await tx.do(log.create, StreamRow(-1, "s", "made", {}, 0))
    assert made is not None
    return made.id


async def append(storage: SqlStorage, stream_id: int, number: int, size: int = 100_000) -> None:
    post = Post(stream_id, "a", number.to_bytes(8) + os.urandom(size), 1)
    await storage.write(lambda tx: log.append(tx, [post], 1, 0))


async def head(storage: SqlStorage) -> Head:
    async with reading(storage) as tx:
        return await tx.head()


# ------------------------------------------------------------------------------------------ SQLite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite3"


@pytest.fixture
async def file(path: Path) -> AsyncIterator[SqlStorage]:
    storage = await SqlStorage.open(f"sqlite:///{path}")
    yield storage
    await storage.close()


async def test_every_connection_waits_for_the_disk(file: SqlStorage) -> None:
    expected = {"synchronous": 2, "journal_mode": "wal", "foreign_keys": 1, "page_size": 8192}

    def found(tx: Any) -> dict[str, Any]:
        pragmas = {name: tx._all(sa.text(f"PRAGMA {name}")) for name in expected}
        return {name: value for name, ((value,),) in pragmas.items()}

    assert await file.write(found) == expected
    assert await file.read(found) == expected


async def test_the_log_stays_short_however_many_read(
    file: SqlStorage, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.journal.threads._LOG_BYTES", 1_000_000)
    monkeypatch.setattr("api.journal.threads._CHECKPOINT_PAUSE_S", 0.0)
    stream_id = await create(file)
    written = asyncio.Event()

    async def read() -> None:
        while not written.is_set():
            async with reading(file) as tx:  # one begins before the other ends
                await tx.head()
                await asyncio.sleep(0.02)

    longest = 0
    async with asyncio.timeout(1800), asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(read())
            await asyncio.sleep(0.007 * number)
        for number in range(100):
            await append(file, stream_id, number)
            longest = max(longest, path.with_name(path.name + "-wal").stat().st_size)
        written.set()
    assert path.stat().st_size > 9_000_000
    assert longest < 3_000_000


async def test_one_that_reads_for_long_stops_nobody(
    file: SqlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.journal.threads._LOG_BYTES", 1)
    stream_id = await create(file)
    async with reading(file) as tx:
        assert (await tx.head()).last == 0
        began = time.monotonic()
        for number in range(10):
            await append(file, stream_id, number)
        # Each commit would wait 10 s for the lock of one that reads.
        assert time.monotonic() - began < 90
        assert (await tx.head()).last == 0
    assert (await head(file)).last == 10


async def test_a_full_disk_refuses_and_goes_on_when_there_is_room(
    file: SqlStorage, path: Path
) -> None:
    stream_id = await create(file)
    await append(file, stream_id, 0)

    def leave_little_room(tx: Any) -> None:
        ((pages,),) = tx._all(sa.text("PRAGMA page_count"))
        tx._all(sa.text(f"PRAGMA max_page_count = {pages + 4}"))

    await file.write(leave_little_room)
    with pytest.raises(StorageError, match=r"^database or disk is full$"):
        await append(file, stream_id, 1)
    assert await head(file) == Head(last=1, catalog=1)
    await append(file, stream_id, 2)  # the connection that was told of the limit is gone
    assert await head(file) == Head(last=2, catalog=1)


async def test_a_file_that_somebody_else_holds(
    file: SqlStorage, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.journal.engines.LOCK_S", 0.3)
    stream_id = await create(file)
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match=r"^database is locked$"):
            await append(file, stream_id, 1)
        assert await head(file) == Head(catalog=1)
        holder.execute("ROLLBACK")
    await append(file, stream_id, 1)
    assert await head(file) == Head(last=1, catalog=1)


def test_no_thread_of_a_closed_storage_is_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would report to an event loop that is closed."""
    before, connect = set(threading.enumerate()), sqlite3.connect
    opening, may_open = threading.Event(), threading.Event()

    def late(*arguments: Any, **named: Any) -> sqlite3.Connection:
        if threading.current_thread().name.startswith("journal"):
            opening.set()
            assert may_open.wait(300)
        return connect(*arguments, **named)

    async def scenario() -> None:
        storage = await SqlStorage.open(f"sqlite:///{path}")
        monkeypatch.setattr(sqlite3.dbapi2, "connect", late)
        reading = asyncio.create_task(head(storage))
        await asyncio.to_thread(opening.wait)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        closing = asyncio.create_task(storage.close())
        ended, _ = await asyncio.wait([closing], timeout=0.3)
        assert not ended, "the thread still opens its connection"
        may_open.set()
        await closing

    try:
        asyncio.run(scenario())
        assert set(threading.enumerate()) <= before
    finally:
        may_open.set()


async def test_a_file_that_is_no_database(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 1000)
    with pytest.raises(StorageError, match="not a database"):
        await SqlStorage.open(f"sqlite:///{path}")


# -------------------------------------------------------------------------------------- PostgreSQL


@pytest.fixture
def server() -> PostgresServer:
    return postgres_server()


@pytest.fixture
async def remote(server: PostgresServer, tmp_path: Path) -> AsyncIterator[SqlStorage]:
    storage = await SqlStorage.open(new_database("postgresql", tmp_path).url)
    yield storage
    await storage.close()


async def test_a_server_that_is_gone_and_comes_back(
    remote: SqlStorage, server: PostgresServer
) -> None:
    stream_id = await create(remote)
    async with reading(remote) as tx:
        await tx.head()
    await append(remote, stream_id, 1)
    server.stop()
    try:
        for _ in range(3):
            with pytest.raises(StorageError):
                async with asyncio.timeout(300):
                    await append(remote, stream_id, 2)
            with pytest.raises(StorageError):
                async with asyncio.timeout(300):
                    await head(remote)
    finally:
        server.start()
    assert await head(remote) == Head(last=1, catalog=1)
    await append(remote, stream_id, 2)
    assert await head(remote) == Head(last=2, catalog=1)


async def test_a_server_that_ends_within_a_transaction(
    remote: SqlStorage, server: PostgresServer
) -> None:
    stream_id = await create(remote)

    async def write() -> None:
        async with writing(remote) as tx:
            await tx.do(log.append, [Post(stream_id, "a", b"x", 1)], 1, 0)
            server.kill()
            server.start()

    with pytest.raises(StorageError):
        await write()
    assert await head(remote) == Head(catalog=1)
    await append(remote, stream_id, 1)
    assert await head(remote) == Head(last=1, catalog=1)


async def test_a_server_that_says_nothing(
    remote: SqlStorage, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream_id = await create(remote)
    with server.paused(), monkeypatch.context() as patch:
        patch.setattr("api.journal.threads._ANSWER_S", 1.0)
        with pytest.raises(StorageError, match="did not respond within 1 s"):
            async with asyncio.timeout(300):
                await append(remote, stream_id, 1)
    await append(remote, stream_id, 2)
    async with reading(remote) as tx:
        assert (await tx.rows(0, 9, 2**30))[-1].body[:8] == (2).to_bytes(8)


async def test_synchronous_commit_is_on_whatever_the_server_is_told(
    server: PostgresServer, tmp_path: Path
) -> None:
    database = new_database("postgresql", tmp_path)
    name = database.url.partition("@/")[2].partition("?")[0]
    database.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    storage = await SqlStorage.open(database.url)
    async with writing(storage) as tx:
        assert await tx._all(sa.text("SHOW synchronous_commit")) == [("on",)]
    await storage.close()


async def test_one_that_holds_the_head_and_is_silent_is_cut_off(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = new_database("postgresql", tmp_path)
    other = await SqlStorage.open(database.url)
    monkeypatch.setattr("api.journal.engines._IDLE_WRITER_S", 1)
    silent = await SqlStorage.open(database.url)

    async def write() -> None:
        async with writing(silent) as tx:
            found = await tx.lock_head()
            async with asyncio.timeout(300), writing(other) as waiting:
                await waiting.set_head(replace(await waiting.lock_head(), last=7))
            await tx.set_head(replace(found, last=1))

    with pytest.raises(StorageError, match="idle-in-transaction"):
        await write()
    assert await head(silent) == Head(last=7)
    await silent.close()
    await other.close()
