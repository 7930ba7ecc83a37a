"""Posts that are decoded by the thread that commits them: each is told its own fault alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from databases import Database, database
from service import PARAMS, build

from api.errors import NoRoomError, RevokedSourceError
from api.journal import log
from api.journal.log import Post, StorageError
from api.journal.sql import SqlStorage
from api.service import committer
from api.service.admission import RowLimits
from api.service.aggregator import Aggregator, Limits
from api.service.observer import Observer
from api.service.streams import Stream
from api.service.threads import Threads
from decaysketch import Snapshot
from decaysketch.errors import CorruptSketchError
from decaysketch.families import recipe_of

__all__ = ["database"]

pytestmark = pytest.mark.anyio

FORM = recipe_of(PARAMS).to_dict()
Open = Callable[..., Awaitable[Aggregator]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Transactions(Observer):
    """Remembers how many posts each transaction had."""

    def __init__(self) -> None:
        self.posts: list[int] = []

    def committed(self, posts: int, size: int, seconds: float) -> None:
        self.posts.append(posts)


@pytest.fixture
async def aggregate(database: Database) -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        async def start(**limits: Any) -> Aggregator:
            threads = Threads(2)
            stack.callback(threads.close)
            opened = Aggregator(
                await SqlStorage.open(database.url),
                threads,
                limits=Limits(poll_s=3600.0, compact_every_s=3600.0, **limits),
                observer=Transactions(),
            )
            stack.push_async_callback(opened.close)
            await opened.start()
            return opened

        yield start


class Sent:
    """A body that is decoded when it is asked for; remembers how often, and on which threads."""

    def __init__(self, stream: Stream, body: bytes) -> None:
        self.stream = stream
        self.body = body
        self.threads: list[str] = []

    def read(self, body: bytes) -> Snapshot:
        self.threads.append(threading.current_thread().name)
        return self.stream.decode(body)

    def post(self, source: str = "a") -> dict[Stream, list[Post]]:
        return {self.stream: [Post(self.stream.id, source, self.body, 300, read=self.read)]}


def damaged(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])


async def test_who_brings_what_cannot_be_decoded_is_told_and_the_others_are_committed(
    aggregate: Open,
) -> None:
    here = await aggregate()
    stream, _ = await here.catalog.create("s", FORM)
    bodies = [build(seed).to_bytes() for seed in range(6)]
    sent = [Sent(stream, damaged(b) if k % 3 == 1 else b) for k, b in enumerate(bodies)]
    outcomes = await asyncio.gather(
        *(here.post(each.post()) for each in sent), return_exceptions=True
    )
    found = [type(each).__name__ for each in outcomes]
    assert found == ["Receipt", "CorruptSketchError", "Receipt"] * 2
    assert isinstance(here.observer, Transactions)
    assert here.observer.posts == [4], "in one transaction"
    assert stream.totals().posts == 4
    names = {name for each in sent for name in each.threads}
    assert threading.main_thread().name not in names
    assert all(len(each.threads) == 1 for each in sent)


async def test_not_too_much_is_decoded_before_a_transaction(
    aggregate: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await aggregate()
    stream, _ = await here.catalog.create("s", FORM)
    monkeypatch.setattr(committer, "_DECODED_ROWS", 700)
    sent = [Sent(stream, build(seed).to_bytes()) for seed in range(5)]
    posts = [each.post() for each in sent]
    for each in posts[3:]:  # what was decoded before does not count
        each[stream][0].decode()
    await asyncio.gather(*(here.post(each) for each in posts))
    assert isinstance(here.observer, Transactions)
    assert here.observer.posts == [2, 3]
    assert all(len(each.threads) == 1 for each in sent)


async def test_where_nothing_can_be_decoded_nothing_is_begun(
    aggregate: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await aggregate()
    stream, _ = await here.catalog.create("s", FORM)

    def append(*_arguments: Any) -> Any:
        raise StorageError("it was asked")

    monkeypatch.setattr(log, "append", append)
    for _ in range(2):
        with pytest.raises(CorruptSketchError):
            await here.post(Sent(stream, damaged(build(1).to_bytes())).post())
    assert isinstance(here.observer, Transactions)
    assert here.observer.posts == []


async def test_a_fault_is_told_even_if_the_others_cannot_be_written(
    aggregate: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await aggregate()
    stream, _ = await here.catalog.create("s", FORM)

    def append(*_arguments: Any) -> Any:
        raise StorageError("the disk is full")

    monkeypatch.setattr(log, "append", append)
    body = build(1).to_bytes()
    outcomes = await asyncio.gather(
        here.post(Sent(stream, damaged(body)).post()),
        here.post(Sent(stream, body).post()),
        return_exceptions=True,
    )
    assert [type(each) for each in outcomes] == [CorruptSketchError, StorageError]


async def test_a_source_revoked_between_check_and_commit_is_refused(aggregate: Open) -> None:
    """By another process, which this one has not heard of: the catalog of the commit tells."""
    here, there = await aggregate(), await aggregate()
    await here.catalog.create("s", FORM)
    stream = await there.find("s")
    await here.catalog.revoke("s", "a")
    sent = [Sent(stream, build(seed).to_bytes()) for seed in (1, 2)]
    outcomes = await asyncio.gather(
        there.post(sent[0].post("a")),
        there.post(sent[1].post("b")),
        return_exceptions=True,
    )
    assert [type(each).__name__ for each in outcomes] == [RevokedSourceError.__name__, "Receipt"]
    assert [len(each.threads) for each in sent] == [1, 1], "not decoded again for the second try"
    assert stream.source_names == ["b"]


async def test_what_is_drained_is_decoded_and_committed(aggregate: Open) -> None:
    here = await aggregate()
    stream, _ = await here.catalog.create("s", FORM)
    bodies = [build(seed).to_bytes() for seed in range(5)]
    posts = [asyncio.ensure_future(here.post(Sent(stream, body).post())) for body in bodies]
    await asyncio.sleep(0)  # each is in the queue
    await here.drain()
    assert all(each.done() for each in posts)
    assert [type(each.result()).__name__ for each in posts] == ["Receipt"] * 5


async def test_who_leaves_before_the_transaction_is_not_decoded(aggregate: Open) -> None:
    here = await aggregate()
    stream, _ = await here.catalog.create("s", FORM)
    gone, stays = (Sent(stream, build(seed).to_bytes()) for seed in (1, 2))
    leaving = asyncio.ensure_future(here.post(gone.post("a")))
    await asyncio.sleep(0)
    leaving.cancel()
    await here.post(stays.post("a"))
    assert (len(gone.threads), len(stays.threads)) == (0, 1)
    assert stream.totals().posts == 1


async def test_near_a_limit_it_is_decoded_before_and_only_once(aggregate: Open) -> None:
    here = await aggregate(rows=RowLimits(max_sketch_rows=400))
    stream, _ = await here.catalog.create("s", FORM)
    body = build(1).to_bytes()
    first, again, more = (Sent(stream, b) for b in (body, body, build(2).to_bytes()))
    assert (await here.post(first.post("a"))).duplicates == [False]
    assert (await here.post(again.post("a"))).duplicates == [True]
    with pytest.raises(NoRoomError):
        await here.post(more.post("a"))
    with pytest.raises(CorruptSketchError):
        await here.post(Sent(stream, damaged(body)).post())
    assert [len(each.threads) for each in (first, again, more)] == [1, 1, 1]
