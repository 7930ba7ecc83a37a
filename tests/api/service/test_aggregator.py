"""What the parts behind the routes do when something is not as it should be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from databases import Database, database
from service import PARAMS, build
from transactions import writing

from api.errors import BusyError, StreamConflictError, UnknownStreamError
from api.journal import log
from api.journal.log import Head, Post, ReplayError, StreamRow
from api.journal.sql import SqlStorage
from api.journal.storage import Reader
from api.service.aggregator import Aggregator, Limits
from api.service.streams import Stream
from api.service.threads import Threads
from decaysketch import DecaySketch, merge
from decaysketch.families import recipe_of

__all__ = ["database"]

FORM = recipe_of(PARAMS).to_dict()
Open = Callable[..., Awaitable[Aggregator]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def aggregate(database: Database) -> AsyncIterator[Open]:
    """Start one more aggregator over the database; no poll comes by itself."""
    async with AsyncExitStack() as stack:

        async def start(**limits: Any) -> Aggregator:
            threads = Threads(2)
            stack.callback(threads.close)
            chosen = Limits(**({"poll_s": 3600.0, "compact_every_s": 3600.0} | limits))
            opened = Aggregator(await SqlStorage.open(database.url), threads, limits=chosen)
            stack.push_async_callback(opened.close)
            await opened.start()
            return opened

        yield start


def decoded(stream: Stream, source: str, body: bytes) -> Post:
    return Post(stream.id, source, body, snapshot=stream.decode(body))


async def post(aggregator: Aggregator, sketch: DecaySketch, source: str = "a") -> str:
    stream = aggregator.stream("s")
    body = sketch.to_bytes()
    receipt = await aggregator.post({stream: [decoded(stream, source, body)]})
    return receipt.token


@pytest.mark.anyio
async def test_a_stream_deleted_since_it_was_found_concerns_nobody_else(aggregate: Open) -> None:
    here, there = await aggregate(), await aggregate()
    for name in ("s", "t"):
        await here.catalog.create(name, FORM)
    await there.find("t")
    old, kept = there.stream("s"), there.stream("t")
    await here.catalog.delete("s")
    body = build(1).to_bytes()
    found = [
        asyncio.ensure_future(there.post({stream: [decoded(stream, "a", body)]}))
        for stream in (kept, old, kept)
    ]
    outcomes = await asyncio.gather(*found, return_exceptions=True)
    assert isinstance(outcomes[1], UnknownStreamError)
    assert [type(each).__name__ for each in (outcomes[0], outcomes[2])] == ["Receipt", "Receipt"]
    # Known here to be gone, it is refused before anything is written.
    with pytest.raises(UnknownStreamError):
        await there.post({old: [decoded(old, "a", body)]})


@pytest.mark.anyio
async def test_who_posts_little_is_taken_while_who_posts_much_is_sent_away(
    aggregate: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await aggregate(backlog_rows=1000)
    await here.catalog.create("s", FORM)
    little, much = build(1, rows=100), build(2, rows=400)
    monkeypatch.setattr("api.service.aggregator._MUCH_ROWS", len(much))
    for backlog, refused in ((500, []), (501, [much]), (1000, [much]), (1001, [little, much])):
        monkeypatch.setattr(Aggregator, "backlog_rows", backlog)
        for sketch in (little, much):
            if sketch in refused:
                with pytest.raises(BusyError):
                    await post(here, sketch)
            else:
                await post(here, sketch)


@pytest.mark.anyio
async def test_a_request_of_many_posts_takes_the_place_of_nobody_who_brings_one(
    aggregate: Open,
) -> None:
    here = await aggregate(queue_posts=40)
    await here.catalog.create("s", FORM)
    stream = here.stream("s")
    bodies = [build(seed).to_bytes() for seed in range(30)]
    many = [decoded(stream, "many", body) for body in bodies]
    waiting = [asyncio.ensure_future(here.post({stream: many}))]
    waiting += [
        asyncio.ensure_future(here.post({stream: [decoded(stream, "one", body)]}))
        for body in bodies[:20]
    ]
    refused = asyncio.ensure_future(here.post({stream: many}))
    outcomes = await asyncio.gather(*waiting, refused, return_exceptions=True)
    assert [type(each).__name__ for each in outcomes[:-1]] == ["Receipt"] * 21
    assert isinstance(outcomes[-1], BusyError)
    await here.post({stream: many})  # nobody waits any more


@pytest.mark.anyio
async def test_requests_of_many_bytes_take_the_place_of_nobody_who_brings_few(
    aggregate: Open,
) -> None:
    here = await aggregate(queue_bytes=2 << 20)
    await here.catalog.create("s", FORM)
    stream = here.stream("s")
    few = [decoded(stream, "few", build(seed).to_bytes()) for seed in range(20)]
    sketch = few[0].snapshot
    bodies = [number.to_bytes(1 << 20, "little") for number in range(3)]
    much = [Post(stream.id, "much", body, snapshot=sketch) for body in bodies]
    waiting = [asyncio.ensure_future(here.post({stream: [each]})) for each in (*much, *few)]
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each).__name__ for each in outcomes] == [
        "Receipt", "BusyError", "BusyError", *["Receipt"] * 20,
    ]  # fmt: skip


@pytest.mark.anyio
async def test_revoking_in_a_stream_that_was_deleted_elsewhere(aggregate: Open) -> None:
    here, there = await aggregate(), await aggregate()
    await here.catalog.create("s", FORM)
    await there.find("s")
    await here.catalog.delete("s")
    with pytest.raises(UnknownStreamError):
        await there.catalog.revoke("s", "a")


@pytest.mark.anyio
async def test_a_stream_of_a_later_release_fails_posts_and_stops_nothing(aggregate: Open) -> None:
    here = await aggregate()
    await here.catalog.create("s", FORM)
    async with writing(here._storage) as tx:
        row = StreamRow(0, "later", "x", {"family": "later"}, 0)
        assert await tx.do(log.create, row) is not None
    for _ in range(2):
        with pytest.raises(ReplayError, match="family is 'later'"):
            await asyncio.wait_for(post(here, build(1)), 300)
    async with writing(here._storage) as tx:
        (later,) = [each for each in await tx.streams() if each.name == "later"]
        await tx.do(log.delete, later.id)
    await asyncio.wait_for(post(here, build(1)), 300)
    assert (await here.ready())["running"] is True


@pytest.mark.anyio
async def test_a_database_that_went_back_is_not_followed(aggregate: Open) -> None:
    """As after a restore under a running process, or a fail-over to a copy that lagged."""
    here = await aggregate(lag_s=0.0)
    await here.catalog.create("s", FORM)
    for seed in range(3):
        await post(here, build(seed))
    async with writing(here._storage) as tx:
        head = await tx.lock_head()
        await tx.set_head(replace(head, last=head.last - 1))
    with pytest.raises(ReplayError, match=r"the database is older than.*restart it"):
        await here._follower.catch_up()
    with pytest.raises(ReplayError):
        await here.compact()
    assert (await here.ready())["caught_up"] is False


@pytest.mark.anyio
async def test_own_posts_that_cannot_be_taken_yet_are_bounded(
    aggregate: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.service.follower._OWN_BYTES", 2_000)
    here, there = await aggregate(), await aggregate()
    await here.catalog.create("s", FORM)
    await there.find("s")
    sketches = [build(seed, 50, first_id=40 * seed) for seed in range(20)]
    await post(there, sketches[0])  # not read here, so nothing after it can be taken
    for sketch in sketches[1:]:
        token = await post(here, sketch)
        assert here._follower._own_bytes < 2_000 + len(sketch.to_bytes())
    await here.reached(token, ["s"])
    assert here.stream("s").snapshot().to_bytes() == merge(sketches).to_bytes()
    assert not here._follower._own


@pytest.mark.anyio
async def test_rows_left_by_short_lives_are_compacted(aggregate: Open) -> None:
    first = await aggregate()
    await first.catalog.create("s", FORM)
    for seed in range(6):
        await post(first, build(seed, 20))
    second = await aggregate(compact_rows=5)
    assert second._compactor.is_due()
    assert not (await aggregate(compact_rows=50))._compactor.is_due()


@pytest.mark.anyio
async def test_many_who_look_share_one_reading(
    aggregate: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await aggregate()
    read, count = here._storage.read, 0

    async def counted(statements: Callable[[Reader], Head]) -> Head:
        nonlocal count
        count += 1
        return await read(statements)

    monkeypatch.setattr(here._storage, "read", counted)
    found = await asyncio.gather(*(here.find("nope") for _ in range(50)), return_exceptions=True)
    assert {type(each) for each in found} == {UnknownStreamError}
    assert 0 < count <= 2


@pytest.mark.anyio
async def test_a_post_is_not_taken_twice_by_its_digest(aggregate: Open) -> None:
    here = await aggregate()
    stream, _ = await here.catalog.create("s", FORM)
    body = build(1).to_bytes()
    several = [decoded(stream, "a", body) for _ in range(3)]
    receipt = await here.post({stream: several})
    assert receipt.duplicates == [False, True, True]
    assert Post(stream.id, "a", body, 1).digest == several[0].digest
    assert stream.totals().posts == 1


@pytest.mark.anyio
async def test_texts_of_a_stream_reach_replicas_and_are_its_admins(aggregate: Open) -> None:
    here, there = await aggregate(), await aggregate()
    await here.catalog.create("s", FORM, about={"unit": "m", "description": ""})
    assert dict((await there.find("s")).row.about) == {"unit": "m"}
    with pytest.raises(StreamConflictError, match="unit is 'm', not 'km'"):
        await here.catalog.create("s", FORM, about={"unit": "km"}, may_change=False)
    await here.catalog.create("s", FORM, about={"unit": "m"}, may_change=False)
    await here.catalog.create("s", FORM, about={"unit": "km"})
    await there._follower.catch_up()
    assert dict(there.stream("s").row.about) == {"unit": "km"}
