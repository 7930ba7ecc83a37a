"""Whether posts can be taken, found out by writing; and what the log says when they cannot."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa
from databases import Database, database
from service import OCTETS, PARAMS, build, problem
from transactions import reading

from api.journal import log
from api.journal.log import Post, StorageError, StreamRow
from api.journal.sql import SqlStorage
from api.journal.storage import Writer
from api.logs import Seldom
from api.service.committer import Committer, Receipt, Writability
from api.service.metrics import Metrics
from api.service.observer import Observer
from api.service.streams import Stream
from decaysketch import DecaySketch
from decaysketch.families import recipe_of

__all__ = ["database"]

Server = Callable[..., AbstractContextManager[tuple[Any, httpx2.Client]]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def open_storage() -> AsyncIterator[Callable[[str], Awaitable[SqlStorage]]]:
    async with AsyncExitStack() as opened:

        async def open_one(url: str) -> SqlStorage:
            storage = await SqlStorage.open(url)
            opened.push_async_callback(storage.close)
            return storage

        yield open_one


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


# ----------------------------------------------------------------------------------- a real process


def wait_until_ready(client: httpx2.Client, status: int) -> dict[str, Any]:
    """What is said then; an answer is kept for a second."""
    deadline = time.monotonic() + 1800
    while (answer := client.get("/readyz")).status_code != status:
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.1)
    checks: dict[str, Any] = answer.json()["checks"]
    return checks


def post(client: httpx2.Client, seed: int) -> httpx2.Response:
    return client.post(
        "/v1/streams/s/sketches",
        params={"source": "a"},
        content=build(seed, first_id=30 * seed).to_bytes(),
        headers=OCTETS,
    )


@pytest.mark.parametrize("posting", [False, True])
def test_a_full_disk_is_found_by_whoever_asks_and_the_log_says_why(
    tmp_path: Path, server: Server, *, posting: bool
) -> None:
    """Before any post has failed, and after."""
    with server(tmp_path / "aggregator.sqlite3") as (process, client):
        client.put("/v1/streams/s", json={"params": PARAMS.to_dict()}).raise_for_status()
        post(client, 0).raise_for_status()
        assert wait_until_ready(client, 200)["journal_writable"] is True
        longest = max(path.stat().st_size for path in tmp_path.iterdir())
        unlimited = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (longest, unlimited[1]))
        if posting:
            problem(post(client, 1), 503, "journal-unavailable")
        checks = wait_until_ready(client, 503)
        assert [name for name, passed in checks.items() if passed is not True] == [
            "journal_writable"
        ]
        assert client.get("/v1/streams/s/sketch").status_code == 200
        failures = [
            float(line.split()[1])
            for line in client.get("/metrics").text.splitlines()
            if line.startswith("decaysketch_journal_failures_total ")
        ]
        assert failures >= [1.0]
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, unlimited)
        wait_until_ready(client, 200)
        post(client, 1).raise_for_status()
        process.terminate()
        process.wait(1800)
    lines = [json.loads(line) for line in (tmp_path / "aggregator.log").read_text().splitlines()]
    said = [line for line in lines if "the journal cannot be written" in line["message"]]
    assert [line["level"] for line in said] == ["error"]  # once a minute, however often it fails
    assert said[0]["message"].endswith("disk I/O error (SQLITE_IOERR_WRITE)")
    assert any("the journal accepts writes again" in line["message"] for line in lines)


# ------------------------------------------------------------------------------------- what is owed


async def limit(storage: SqlStorage, pages: int) -> None:
    """Let a SQLite file grow by so many pages and no further."""

    def let(tx: Any) -> None:
        ((count,),) = tx._all(sa.text("PRAGMA page_count"))
        ((free,),) = tx._all(sa.text("PRAGMA freelist_count"))
        tx._all(sa.text(f"PRAGMA max_page_count = {count - free + pages}"))

    await storage.write(let)


async def append(storage: SqlStorage, size: int) -> None:
    row = StreamRow(-1, "s", "made", {}, 0)

    def write(tx: Writer) -> None:
        streams = tx.streams() or [log.create(tx, row)]
        assert streams[0] is not None
        head = tx.head()
        log.append(tx, [Post(streams[0].id, "a", os.urandom(size), 1)], head.catalog, 0)

    await storage.write(write)


@pytest.mark.anyio
async def test_a_small_proof_does_not_stand_for_a_large_post(
    tmp_path: Path, open_storage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    storage = await open_storage(f"sqlite:///{tmp_path / 'journal.sqlite3'}")
    await append(storage, 10)
    writability = Writability(storage, Observer())
    await limit(storage, 6)
    with pytest.raises(StorageError) as refused:
        await append(storage, 200_000)
    writability.failed(refused.value, 200_000)
    for _ in range(2):  # the connection that failed is another one, which knows of no limit
        await limit(storage, 6)
        await append(storage, 10_000)
        writability.written(10_000)
        assert await writability.proved(60) is False
    assert caplog.text.count("the journal cannot be written, so posts are rejected: ") == 1
    assert "database or disk is full" in caplog.text
    assert await writability.proved(60) is True
    await append(storage, 200_000)
    assert "the journal accepts writes again; 3 transactions failed" in caplog.text


@pytest.mark.anyio
async def test_a_proof_is_written_and_leaves_nothing(database: Database, open_storage: Any) -> None:
    """Neither rows, nor a head that replicas would look at, nor a database that grows."""
    storage = await open_storage(database.url)
    await append(storage, 10)
    async with reading(storage) as tx:
        before = await tx.head(), await tx.streams(), await tx.rows(0, 100, 1 << 20)
    writability = Writability(storage, Observer(), clock := Clock())
    proofs = set()
    for _ in range(5):
        clock.now_s += 10
        assert await writability.proved(60) is True
        proofs |= {bytes(row[0]) for row in database.execute("SELECT proof FROM instance")}
    assert len(proofs) == 5
    assert max(map(len, proofs)) < 100
    writability.failed(StorageError("full"), 1 << 20)
    sizes = []
    for _ in range(3):
        assert await writability.proved(60) is True
        writability.failed(StorageError("full"), 1 << 20)
        if database.kind == "sqlite":
            ((pages,),) = database.execute("PRAGMA page_count")
            sizes.append(pages)
    assert len(set(sizes)) <= 1
    ((proof,),) = database.execute("SELECT proof FROM instance")
    assert len(proof) < 100
    async with reading(storage) as tx:
        assert before == (await tx.head(), await tx.streams(), await tx.rows(0, 100, 1 << 20))


@pytest.mark.anyio
async def test_what_was_just_committed_is_proof_enough(
    tmp_path: Path, open_storage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = await open_storage(f"sqlite:///{tmp_path / 'journal.sqlite3'}")
    writability = Writability(storage, Observer(), clock := Clock())
    clock.now_s = 100.0
    writability.written(10)

    async def write(_statements: Any) -> None:
        raise StorageError("it was asked")

    monkeypatch.setattr(storage, "write", write)
    assert await writability.proved(60) is True
    clock.now_s += 1.0
    assert await writability.proved(60) is False


@pytest.mark.anyio
async def test_a_post_that_is_there_already_proves_nothing(tmp_path: Path) -> None:
    """Nothing is written for it."""
    told: list[int] = []

    class Told(Writability):
        def written(self, size: int) -> None:
            told.append(size)

    storage = await SqlStorage.open(f"sqlite:///{tmp_path / 'journal.sqlite3'}")
    await append(storage, 10)

    async def refresh() -> int:
        return 1

    committer = Committer(
        storage,
        Told(storage, Observer()),
        now_us=lambda: 0,
        committed=lambda _receipt: None,
        refresh=refresh,
        check=lambda _receipt: None,
        queue_posts=10,
        queue_bytes=1000,
        observer=Observer(),
    )
    for body in (b"body", b"body", b"other body"):
        post = Post(1, "a", body, snapshot=DecaySketch(PARAMS).snapshot())
        stream = Stream(StreamRow(1, "s", "0", recipe_of(PARAMS).to_dict(), 0))
        submitted = committer.submit(Receipt({stream: [post]}, catalog=1))
        await run_once(committer, submitted)
    assert told == [4, 10]
    await storage.close()


async def run_once(committer: Committer, submitted: Any) -> None:
    await asyncio.gather(submitted, committer.run())


# ------------------------------------------------------------------------------------------ the log


def test_what_goes_wrong_many_times_is_said_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seldom = Seldom(logging.getLogger("api.test"), clock := Clock())
    for second in range(150):
        clock.now_s = float(second)
        seldom.say(logging.ERROR, "no room: %s", "full")
    assert [record.getMessage() for record in caplog.records] == [
        "no room: full",
        "no room: full (and 59 times more since the last such line)",
        "no room: full (and 59 times more since the last such line)",
    ]
    assert seldom.over() == 29
    seldom.say(logging.ERROR, "no room: %s", "full")
    assert caplog.records[-1].getMessage() == "no room: full"


def test_failures_are_counted() -> None:
    metrics = Metrics()
    writability = Writability(None, metrics)  # type: ignore[arg-type]
    for _ in range(3):
        writability.failed(StorageError("full"))
    assert b"decaysketch_journal_failures_total 3.0" in metrics.exposition()
