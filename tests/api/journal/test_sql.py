"""Every statement that is asked of a database, and what transactions promise, over each of them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import replace

import psycopg
import pytest
import sqlalchemy as sa
from databases import Database
from transactions import reading, writing

from api.journal.engines import engine_of
from api.journal.log import (
    Head,
    Interval,
    Post,
    Revocation,
    SnapshotRow,
    StorageError,
    StreamRow,
    Totals,
)
from api.journal.sql import SqlStorage
from api.journal.storage import Writer
from api.journal.urls import driver_url

pytestmark = pytest.mark.anyio
Open = Callable[[], Awaitable[SqlStorage]]


def stream(name: str, **fields: object) -> StreamRow:
    recipe = {"family": "decay", "params": {"seed": 2**63 + 11, "time_unit": "s"}}
    return replace(StreamRow(-1, name, f"made-{name}", recipe, 1_700_000_000_000_000), **fields)


def row(seq: int, stream_id: int, source: str = "a", body: bytes | None = None) -> Post:
    body = b"body %d" % seq if body is None else body
    return Post(stream_id, source, body, seq % 7, seq=seq, received_us=10**15 + seq)


def snapshot(
    stream_id: int, source: str, generation: int, upto: int, body: bytes = b"merged"
) -> SnapshotRow:
    totals = Totals(upto, 2**40, upto * 3, 10**15 + upto)
    return SnapshotRow(
        stream_id, source, generation, upto, hashlib.sha256(body).digest(), body, totals
    )


async def add_streams(storage: SqlStorage, *names: str) -> list[int]:
    async with writing(storage) as tx:
        await tx.lock_head()
        return [(await tx.insert_stream(stream(name))).id for name in names]


# -------------------------------------------------------------------------------------- statements


async def test_a_fresh_database_holds_nothing(storage: SqlStorage) -> None:
    async with reading(storage) as tx:
        assert await tx.head() == Head(0, 0, 0, 0)
        assert await tx.streams() == []
        assert await tx.revocations() == []
        assert await tx.rows(0, 2**62, 2**30) == []
        assert await tx.snapshots(-1) == []


async def test_the_head(storage: SqlStorage, open_storage: Open) -> None:
    head = Head(2**62, 2**61, 2**60, 2**59)
    async with writing(storage) as tx:
        assert await tx.lock_head() == Head()
        await tx.set_head(head)
        assert await tx.head() == head
    async with reading(await open_storage()) as tx:
        assert await tx.head() == head


async def test_streams_come_back_as_they_were_made(storage: SqlStorage) -> None:
    made = [stream("b"), stream("a", max_clock_skew_s=0.1, id_key=bytes(range(32)), bind_keys=True)]
    async with writing(storage) as tx:
        await tx.lock_head()
        stored = [await tx.insert_stream(each) for each in made]
    assert stored == [replace(each, id=new.id) for each, new in zip(made, stored, strict=True)]
    assert 0 < stored[0].id < stored[1].id
    async with reading(storage) as tx:
        assert await tx.streams() == stored


async def test_the_id_of_a_stream_is_never_used_twice(storage: SqlStorage) -> None:
    first, second = await add_streams(storage, "a", "b")
    async with writing(storage) as tx:
        await tx.lock_head()
        await tx.delete_stream(second)
    (third,) = await add_streams(storage, "b")
    assert first < second < third


async def test_a_name_is_given_once(storage: SqlStorage) -> None:
    await add_streams(storage, "a")
    with pytest.raises(StorageError):
        await add_streams(storage, "b", "a")
    async with reading(storage) as tx:
        assert [each.name for each in await tx.streams()] == ["a"]
    assert len(await add_streams(storage, "b")) == 1


async def test_rows_come_by_number_and_no_more_than_asked_for(storage: SqlStorage) -> None:
    (s,) = await add_streams(storage, "s")
    rows = [row(seq, s, "ab"[seq % 2], bytes([seq]) * 10) for seq in (1, 2, 5, 6, 9)]
    async with writing(storage) as tx:
        await tx.lock_head()
        await tx.insert_rows(rows)
    async with reading(storage) as tx:
        assert await tx.rows(0, 9, 1000) == rows
        assert await tx.rows(0, 8, 1000) == rows[:4]
        assert await tx.rows(2, 100, 1000) == rows[2:]
        assert await tx.rows(9, 100, 1000) == []
        for limit, expected in ((1, 1), (10, 1), (11, 2), (20, 2), (49, 5), (50, 5)):
            assert await tx.rows(0, 9, limit) == rows[:expected], limit


async def test_many_rows_are_read_up_to_the_limit(
    storage: SqlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (s,) = await add_streams(storage, "s")
    rows = [row(seq, s, body=seq.to_bytes(4)) for seq in range(1, 2101)]
    async with writing(storage) as tx:
        await tx.lock_head()
        await tx.insert_rows(rows)
    async with reading(storage) as tx:
        assert await tx.rows(0, 2**62, 2**30) == rows
        assert await tx.rows(0, 2**62, 4 * 1024) == rows[:1024]
        assert await tx.rows(0, 2**62, 4 * 1024 + 1) == rows[:1025]
        assert await tx.rows(1, 2**62, 8000) == rows[1:2001]


async def test_which_posts_are_known(storage: SqlStorage) -> None:
    s, t = await add_streams(storage, "s", "t")
    rows = [row(seq, (s, t)[seq % 2], "abc"[seq % 3]) for seq in range(1, 701)]
    async with writing(storage) as tx:
        await tx.lock_head()
        await tx.insert_rows(rows)
    keys = {(each.stream_id, each.source, each.digest) for each in rows}
    strangers = {(stream_id + 1, source, digest) for stream_id, source, digest in keys}
    strangers |= {(stream_id, source + "x", digest) for stream_id, source, digest in keys}
    strangers |= {(stream_id, source, digest[::-1]) for stream_id, source, digest in keys}
    async with writing(storage) as tx:
        assert await tx.known(set()) == set()
        assert await tx.known(keys | strangers - keys) == keys
        assert await tx.known(strangers - keys) == set()


async def test_a_post_is_kept_once(storage: SqlStorage) -> None:
    (s,) = await add_streams(storage, "s")

    async def write() -> None:
        async with writing(storage) as tx:
            await tx.lock_head()
            await tx.insert_rows([row(1, s, "a", b"same"), row(2, s, "a", b"same")])

    with pytest.raises(StorageError):
        await write()
    async with reading(storage) as tx:
        assert await tx.rows(0, 9, 1000) == []


async def test_intervals_that_overlap(storage: SqlStorage) -> None:
    s, t = await add_streams(storage, "s", "t")
    bodies = {Interval(0, 10): b"0", Interval(10, 20): b"1", Interval(30, 2**62): b"3"}
    entries = [(interval, hashlib.sha256(body).digest()) for interval, body in bodies.items()]
    async with writing(storage) as tx:
        await tx.lock_head()
        for interval, body in bodies.items():
            await tx.insert_interval(Post(s, "a", body, 1, interval))
        cases = {
            (0, 1): entries[:1],
            (9, 10): entries[:1],
            (9, 11): entries[:2],
            (10, 20): entries[1:2],
            (15, 16): entries[1:2],
            (19, 31): entries[1:],
            (20, 30): [],
            (0, 2**62): entries,
            (2**62 - 1, 2**62): entries[2:],
        }
        for (first, after), expected in cases.items():
            found = await tx.overlapping((s, "a"), Interval(first, after), 10)
            assert found == expected, (first, after)
        assert await tx.overlapping((s, "a"), Interval(0, 2**62), 2) == entries[:2]
        assert await tx.overlapping((s, "b"), Interval(0, 2**62), 10) == []
        assert await tx.overlapping((t, "a"), Interval(0, 2**62), 10) == []


async def test_snapshots_of_one_source_together_newest_first(storage: SqlStorage) -> None:
    s, t = await add_streams(storage, "s", "t")
    expected = [
        snapshot(s, "B", 3, 30),
        snapshot(s, "B", 1, 10),
        snapshot(s, "a", 2, 20, bytes(5_000_000)),
        snapshot(s, "é", 4, 40, bytes(5_000_000)),
        snapshot(t, "a", 3, 30),
        snapshot(t, "a", 2, 20),
    ]
    async with writing(storage) as tx:
        await tx.lock_head()
        for each in (expected[k] for k in (4, 1, 3, 0, 5, 2)):
            await tx.insert_snapshot(each)
        assert await tx.newest_snapshot((s, "B")) == expected[0]
        assert await tx.newest_snapshot((t, "a")) == expected[4]
        assert await tx.newest_snapshot((t, "B")) is None
    async with reading(storage) as tx:
        assert await tx.snapshots(0) == expected
        assert await tx.snapshots(10) == [expected[0], *expected[2:]]
        assert await tx.snapshots(20) == [expected[k] for k in (0, 3, 4)]
        assert await tx.snapshots(40) == []
    async with writing(storage) as tx:
        await tx.lock_head()
        await tx.delete_snapshots((t, "a"), (0, 3))
        await tx.delete_snapshots((s, "B"), (3, 4))
        await tx.delete_snapshots((s, "a"), (0, 2))
    async with reading(storage) as tx:
        assert await tx.snapshots(0) == [expected[k] for k in (1, 2, 3, 4)]


async def test_rows_are_deleted_up_to_a_number(storage: SqlStorage) -> None:
    s, t = await add_streams(storage, "s", "t")
    rows = [row(seq, (s, t)[seq % 2], "ab"[seq % 3 == 0]) for seq in range(1, 13)]
    async with writing(storage) as tx:
        await tx.lock_head()
        await tx.insert_rows(rows)
        assert await tx.journaled_sources(12) == [(s, "a"), (s, "b"), (t, "a"), (t, "b")]
        assert await tx.journaled_sources(2) == [(s, "a"), (t, "a")]
        assert await tx.delete_rows((t, "b"), 8) == 1
        assert await tx.delete_rows((s, "a"), 8) == 3
        assert await tx.delete_rows((s, "a"), 8) == 0
    async with reading(storage) as tx:
        assert [each.seq for each in await tx.rows(0, 12, 1000)] == [1, 5, 6, 7, 9, 10, 11, 12]


async def test_revocations(storage: SqlStorage) -> None:
    s, t = await add_streams(storage, "s", "t")
    async with writing(storage) as tx:
        await tx.lock_head()
        for each in (
            Revocation(t, "a", 3, active=True),
            Revocation(s, "b", 4, active=True),
            Revocation(t, "a", 3, active=False),
        ):
            await tx.put_revocation(each)
    async with reading(storage) as tx:
        assert await tx.revocations() == [
            Revocation(s, "b", 4, active=True),
            Revocation(t, "a", 3, active=False),
        ]


async def test_deleting_a_source_or_a_stream_takes_all_of_it(
    storage: SqlStorage, database: Database
) -> None:
    s, t = await add_streams(storage, "s", "t")
    async with writing(storage) as tx:
        await tx.lock_head()
        places = [(s, "a"), (s, "b"), (t, "a")]
        for seq, (stream_id, source) in enumerate(places, 1):
            await tx.insert_rows([row(seq, stream_id, source)])
            await tx.insert_snapshot(snapshot(stream_id, source, 1, 1))
            await tx.insert_interval(Post(stream_id, source, b"x", 1, Interval(0, 1)))
            await tx.put_revocation(Revocation(stream_id, source, 1, active=True))
        await tx.delete_source((s, "a"))

    def places_in(table: str) -> list[tuple[int, str]]:
        found = database.execute(f"SELECT stream_id, source FROM {table} ORDER BY 1, 2")
        return [tuple(each) for each in found]

    for table in ("journal", "snapshots", "ledger"):
        assert places_in(table) == places[1:], table
    assert places_in("revocations") == places
    async with writing(storage) as tx:
        await tx.lock_head()
        await tx.delete_stream(s)
    for table in ("journal", "snapshots", "ledger", "revocations"):
        assert places_in(table) == places[2:], table
    async with reading(storage) as tx:
        assert [each.id for each in await tx.streams()] == [t]


# ------------------------------------------------------------------------------------ transactions


async def test_an_exception_takes_everything_back(storage: SqlStorage) -> None:
    (s,) = await add_streams(storage, "s")

    async def fail() -> None:
        async with writing(storage) as tx:
            head = await tx.lock_head()
            await tx.insert_rows([row(1, s)])
            await tx.set_head(replace(head, last=1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with writing(storage) as tx:
        assert await tx.lock_head() == Head()
        assert await tx.rows(0, 9, 1000) == []
        await tx.insert_rows([row(1, s)])


async def test_a_second_writer_waits_for_the_first(storage: SqlStorage, open_storage: Open) -> None:
    other = await open_storage()
    (s,) = await add_streams(storage, "s")
    order = []

    async def write_second() -> None:
        async with writing(other) as tx:
            order.append("second began")
            head = await tx.lock_head()
            order.append(f"second at {head.last}")
            assert [each.seq for each in await tx.rows(0, 9, 1000)] == [1]
            await tx.insert_rows([row(head.last + 1, s)])
            await tx.set_head(replace(head, last=head.last + 1))

    async with writing(storage) as tx:
        head = await tx.lock_head()
        second = asyncio.create_task(write_second())
        await asyncio.sleep(0.3)
        await tx.insert_rows([row(1, s)])
        await tx.set_head(replace(head, last=1))
        async with reading(other) as reader:
            assert await reader.head() == Head()
            assert await reader.rows(0, 9, 1000) == []
        await asyncio.sleep(0.3)
        assert "second at 1" not in order
        order.append("first ends")
    await asyncio.wait_for(second, 300)
    assert [each for each in order if each != "second began"] == ["first ends", "second at 1"]
    async with reading(storage) as tx:
        assert await tx.head() == Head(last=2)
        assert [each.seq for each in await tx.rows(0, 9, 1000)] == [1, 2]


async def test_a_reader_stays_where_it_began(storage: SqlStorage, open_storage: Open) -> None:
    other = await open_storage()
    (s,) = await add_streams(storage, "s")
    async with reading(storage) as reader:
        assert await reader.head() == Head()
        async with writing(other) as tx:
            await tx.set_head(replace(await tx.lock_head(), last=1, generation=1))
            await tx.insert_rows([row(1, s)])
            await tx.insert_snapshot(snapshot(s, "a", 1, 1))
            await tx.insert_stream(stream("t"))
        assert await reader.head() == Head()
        assert await reader.rows(0, 9, 1000) == []
        assert await reader.snapshots(0) == []
        assert [each.name for each in await reader.streams()] == ["s"]
    async with reading(storage) as reader:
        assert await reader.head() == Head(last=1, generation=1)


async def test_a_reader_cannot_write(storage: SqlStorage) -> None:
    with pytest.raises(StorageError, match=r"(?i)read-?only"):
        async with reading(storage) as reader:
            await reader._all(sa.text("UPDATE head SET last = 1 RETURNING last"))


async def test_numbers_appear_in_their_order(storage: SqlStorage, open_storage: Open) -> None:
    """Whoever sees a head sees every row up to it, while several write."""
    writers = [storage, await open_storage(), await open_storage()]
    (s,) = await add_streams(storage, "s")
    posts = 20

    async def write(own: SqlStorage, source: str) -> None:
        for _ in range(posts):
            async with writing(own) as tx:
                head = await tx.lock_head()
                await tx.insert_rows([row(head.last + 1, s, source)])
                await tx.set_head(replace(head, last=head.last + 1))

    async def watch() -> int:
        seen = 0
        while seen < posts * len(writers):
            async with reading(storage) as tx:
                seen = (await tx.head()).last
                numbers = [each.seq for each in await tx.rows(0, 2**62, 2**30)]
            assert numbers == list(range(1, seen + 1))
        return seen

    async with asyncio.timeout(600), asyncio.TaskGroup() as tasks:
        tasks.create_task(watch())
        for own, source in zip(writers, "abc", strict=True):
            tasks.create_task(write(own, source))


async def test_whole_transactions_and_those_of_several_steps_take_turns(
    storage: SqlStorage, open_storage: Open
) -> None:
    other = await open_storage()
    (s,) = await add_streams(storage, "s")

    def append(tx: Writer) -> int:
        head = tx.lock_head()
        tx.insert_rows([row(head.last + 1, s)])
        tx.set_head(replace(head, last=head.last + 1))
        return head.last + 1

    async def in_steps() -> int:
        async with writing(storage) as tx:
            return await tx.do(append)

    async with asyncio.timeout(600):
        numbers = await asyncio.gather(
            *(storage.write(append) for _ in range(20)),
            *(other.write(append) for _ in range(20)),
            *(in_steps() for _ in range(20)),
        )
    assert sorted(numbers) == list(range(1, 61))


async def test_a_whole_transaction_that_fails_leaves_nothing(storage: SqlStorage) -> None:
    def fail(tx: Writer) -> None:
        tx.set_head(replace(tx.lock_head(), last=5))
        raise ValueError("of the caller's own")

    def repeat(tx: Writer) -> None:
        tx.set_head(replace(tx.lock_head(), last=5))
        tx.insert_rows([row(1, 99)])  # of no stream

    with pytest.raises(ValueError, match="of the caller's own"):
        await storage.write(fail)
    with pytest.raises(StorageError, match=r"(?i)foreign key"):
        await storage.write(repeat)
    assert await storage.write(lambda tx: tx.lock_head()) == Head()


async def test_who_stops_waiting_for_a_whole_transaction_holds_up_nobody(
    storage: SqlStorage, open_storage: Open
) -> None:
    other = await open_storage()
    async with writing(other) as tx:
        await tx.lock_head()
        waiting = asyncio.create_task(storage.write(lambda tx: tx.lock_head()))
        await asyncio.sleep(0.2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(600):
                await waiting
    async with asyncio.timeout(600):
        assert await storage.write(lambda tx: tx.lock_head()) == Head()


async def test_a_cancelled_writer_leaves_nothing_and_lets_others_write(
    storage: SqlStorage, open_storage: Open
) -> None:
    other = await open_storage()
    (s,) = await add_streams(storage, "s")
    ready = asyncio.Event()

    async def write_for_ever() -> None:
        async with writing(storage) as tx:
            head = await tx.lock_head()
            seq = head.last
            while True:
                seq += 1
                await tx.insert_rows([row(seq, s, body=bytes(100_000) + seq.to_bytes(4))])
                ready.set()

    for own in (storage, other):
        ready.clear()
        writer = asyncio.create_task(write_for_ever())
        await ready.wait()
        writer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writer
        async with asyncio.timeout(600), writing(own) as tx:
            head = await tx.lock_head()
            assert await tx.rows(0, 2**62, 1) == []
            assert head == Head()


async def test_a_waiting_writer_can_be_cancelled(storage: SqlStorage, open_storage: Open) -> None:
    other = await open_storage()

    async def write() -> None:
        async with writing(other) as tx:
            await tx.lock_head()

    async with writing(storage) as tx:
        await tx.lock_head()
        waiting = asyncio.create_task(write())
        await asyncio.sleep(0.2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(600):
                await waiting
    async with asyncio.timeout(600):
        await write()


async def test_a_writer_does_not_wait_for_ever(
    open_storage: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.journal.engines.LOCK_S", 1)
    storage, other = await open_storage(), await open_storage()
    async with writing(storage) as tx:
        await tx.lock_head()
        with pytest.raises(StorageError, match="lock"):
            async with asyncio.timeout(600), writing(other) as waiting:
                await waiting.lock_head()
    async with writing(other) as tx:
        assert await tx.lock_head() == Head()


# ----------------------------------------------------------------------------------------- opening


async def test_opening_again_keeps_everything(open_storage: Open) -> None:
    for number in range(3):
        storage = await open_storage()
        async with writing(storage) as tx:
            head = await tx.lock_head()
            assert head.last == number
            await tx.set_head(replace(head, last=number + 1))


async def test_two_that_start_together(database: Database) -> None:
    storages = await asyncio.gather(*(SqlStorage.open(database.url) for _ in range(6)))
    for storage in storages:
        async with reading(storage) as tx:
            assert await tx.head() == Head()
    await asyncio.gather(*(storage.close() for storage in storages))
    assert database.execute("SELECT count(*) FROM head") == [(1,)]


async def test_tables_of_another_version(storage: SqlStorage, database: Database) -> None:
    database.execute("UPDATE schema_version SET version = 7")
    with pytest.raises(StorageError, match=r"version \[7\].*reads versions 1 to"):
        await SqlStorage.open(database.url)


async def test_a_database_that_cannot_be(tmp_path: object) -> None:
    with pytest.raises(StorageError, match="unable to open"):
        await SqlStorage.open(f"sqlite:///{tmp_path}/no/such/directory/file")
    with pytest.raises(StorageError, match="'mysql' is not a database"):
        await SqlStorage.open("mysql://root:secret@localhost/x")
    with pytest.raises(StorageError) as refused:
        await SqlStorage.open(f"postgresql://me:secret@/x?host={tmp_path}")
    assert "secret" not in str(refused.value)


def test_a_url_may_set_the_time_for_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def out_of_reach(*_arguments: object, **named: object) -> None:
        given.append(named["connect_timeout"])
        raise psycopg.OperationalError

    monkeypatch.setattr("api.journal.engines._Connection.connect", out_of_reach)
    for query in ("", "?connect_timeout=30"):
        url = driver_url(f"postgresql://user@host/name{query}")
        with pytest.raises(sa.exc.OperationalError):
            engine_of(url, writes=True, check=lambda: None).connect()
    assert given == [5, "30"]


async def test_the_missing_head_is_named(storage: SqlStorage, database: Database) -> None:
    database.execute("DELETE FROM head")
    with pytest.raises(StorageError, match="head of the journal is missing"):
        async with writing(storage) as tx:
            await tx.lock_head()
