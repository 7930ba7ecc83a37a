"""The transactions of the journal, over each database."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from databases import Database
from transactions import reading, writing

from api.errors import IntervalConflictError
from api.journal import log
from api.journal.log import (
    CatalogChangedError,
    Head,
    Interval,
    Post,
    Revocation,
    SnapshotRow,
    StreamRow,
    SupersededError,
    Totals,
)
from api.journal.sql import SqlStorage

pytestmark = pytest.mark.anyio
NOW_US = 1_700_000_000_000_000


@pytest.fixture
async def stream_id(storage: SqlStorage) -> int:
    return await create(storage, "s")


async def create(storage: SqlStorage, name: str) -> int:
    async with writing(storage) as tx:
        made = await tx.do(log.create, StreamRow(-1, name, f"made-{name}", {"family": "x"}, NOW_US))
    assert made is not None
    return made.id


async def append(storage: SqlStorage, *posts: Post, catalog: int = 1) -> list[log.Outcome]:
    async with writing(storage) as tx:
        return await tx.do(log.append, posts, catalog, NOW_US)


async def state(storage: SqlStorage) -> tuple[Head, list[Post], list[SnapshotRow]]:
    async with reading(storage) as tx:
        return (
            await tx.head(),
            await tx.rows(0, 2**62, 2**30),
            await tx.snapshots(-1),
        )


def post(stream_id: int, number: int, source: str = "a", interval: Interval | None = None) -> Post:
    return Post(stream_id, source, b"body %d" % number, number, interval)


def row(seq: int, of: Post) -> Post:
    return replace(of, seq=seq, received_us=NOW_US)


def merged(stream_id: int, generation: int, upto: int, source: str = "a") -> SnapshotRow:
    body = b"merged up to %d" % upto
    return SnapshotRow(
        stream_id, source, generation, upto, hashlib.sha256(body).digest(), body, Totals(upto)
    )


# ------------------------------------------------------------------------------------------ append


async def test_posts_are_numbered_in_their_order(storage: SqlStorage, stream_id: int) -> None:
    posts = [post(stream_id, number, "ba"[number % 2]) for number in range(6)]
    first = await append(storage, *posts[:4])
    second = await append(storage, *posts[4:])
    rows = [row(number, each) for number, each in enumerate(posts, 1)]
    assert first + second == rows
    assert await state(storage) == (Head(last=6, catalog=1), rows, [])


async def test_a_post_is_taken_once(storage: SqlStorage, stream_id: int) -> None:
    a, b = post(stream_id, 1), post(stream_id, 2)
    elsewhere = replace(a, source="b")
    assert await append(storage, a, b, a, elsewhere) == [
        row(1, a),
        row(2, b),
        2,
        row(3, elsewhere),
    ]
    assert await append(storage, b, a) == [3, 3]
    assert await state(storage) == (
        Head(last=3, catalog=1),
        [row(1, a), row(2, b), row(3, elsewhere)],
        [],
    )


async def test_another_catalog_stops_the_post(storage: SqlStorage, stream_id: int) -> None:
    for catalog in (0, 2):
        with pytest.raises(CatalogChangedError):
            await append(storage, post(stream_id, 1), catalog=catalog)
    assert await state(storage) == (Head(catalog=1), [], [])


async def test_intervals_of_a_source_never_overlap(storage: SqlStorage, stream_id: int) -> None:
    def numbered(number: int, first: int, after: int, source: str = "a") -> Post:
        return post(stream_id, number, source, Interval(first, after))

    fine = [numbered(1, 0, 10), numbered(2, 10, 20), numbered(3, 5, 15, "b")]
    taken = await append(storage, *fine)
    assert [each.seq for each in taken] == [1, 2, 3]
    conflict, again, beside, other_bytes, within = await append(
        storage,
        numbered(4, 19, 30),
        fine[1],
        numbered(5, 20, 30),
        numbered(6, 0, 10),
        numbered(7, 25, 26),
    )
    assert (again, beside.seq) == (3, 4)
    for refused, overlapped in (
        (conflict, [(10, 20)]),
        (other_bytes, [(0, 10)]),
        (within, [(20, 30)]),
    ):
        assert isinstance(refused, IntervalConflictError)
        assert str(overlapped[0][0]) in str(refused)
    head, rows, _ = await state(storage)
    assert head == Head(last=4, catalog=1)
    assert [each.digest for each in rows] == [
        *(each.digest for each in fine),
        numbered(5, 20, 30).digest,
    ]


async def test_numbers_that_were_released_may_be_posted_again(
    storage: SqlStorage, stream_id: int
) -> None:
    async def release(source: str, first: int, after: int) -> list[Interval] | None:
        async with writing(storage) as tx:
            return await tx.do(log.release, (stream_id, source), Interval(first, after))

    first = post(stream_id, 1, "a", Interval(0, 10))
    other = post(stream_id, 2, "b", Interval(0, 10))
    later = post(stream_id, 3, "a", Interval(10, 2**40))
    await append(storage, first, other, later)
    before = await state(storage)
    assert await release("a", 0, 11) == [Interval(0, 10), Interval(10, 2**40)]
    assert await release("a", 10, 11) == [Interval(10, 2**40)]
    assert await release("c", 0, 10) == []
    assert await release("a", 10, 2**40) is None
    assert await release("a", 10, 2**40) == []
    assert await state(storage) == before  # the ledger alone
    again = post(stream_id, 4, "a", Interval(10, 20))
    (taken,) = await append(storage, again)
    assert isinstance(taken, Post)
    assert taken == row(4, again)
    for held in (first, other):
        assert await append(storage, held) == [4]


async def test_a_transaction_that_fails_gives_its_numbers_back(
    storage: SqlStorage, stream_id: int
) -> None:
    numbered = post(stream_id, 1, interval=Interval(0, 5))

    async def fail() -> None:
        async with writing(storage) as tx:
            assert (await tx.do(log.append, [numbered], 1, NOW_US))[0].seq == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    other = post(stream_id, 2, interval=Interval(2, 3))
    assert await append(storage, other) == [row(1, other)]


# ----------------------------------------------------------------------------------------- compact


async def compact(storage: SqlStorage, known: Head, *snapshots: SnapshotRow) -> int:
    async with writing(storage) as tx:
        return await tx.do(log.compact, known, snapshots)


async def test_rows_go_when_a_snapshot_that_holds_them_has_stood_the_next_one(
    storage: SqlStorage, stream_id: int
) -> None:
    posts = [post(stream_id, number, "ab"[number % 2]) for number in range(1, 7)]
    await append(storage, *posts)
    rows = [row(number, each) for number, each in enumerate(posts, 1)]
    head = Head(last=6, catalog=1)
    of_b = [each for each in rows if each.source == "b"]
    first = merged(stream_id, 1, 4)
    assert await compact(storage, head, first) == 0
    head = replace(head, generation=1)
    assert await state(storage) == (head, rows, [first])
    second = merged(stream_id, 2, 6)
    assert await compact(storage, head, second) == 2
    head = replace(head, generation=2, deleted=4)
    kept = [each for each in rows if each.source == "b" or each.seq > 4]
    assert await state(storage) == (head, kept, [second, first])
    third = merged(stream_id, 3, 6)
    assert await compact(storage, head, third) == 1
    head = replace(head, generation=3, deleted=6)
    assert await state(storage) == (head, of_b, [third, second])


async def test_a_torn_snapshot_deletes_nothing_but_itself(
    storage: SqlStorage, stream_id: int, database: Database
) -> None:
    posts = [post(stream_id, number) for number in range(1, 7)]
    await append(storage, *posts)
    rows = [row(number, each) for number, each in enumerate(posts, 1)]
    snapshots = [merged(stream_id, generation, 2 * generation) for generation in (1, 2, 3)]
    head = Head(last=6, catalog=1)
    await compact(storage, head, snapshots[0])
    await compact(storage, replace(head, generation=1), snapshots[1])
    database.execute(
        "UPDATE snapshots SET body = :torn WHERE generation = 2", {"torn": b"merged up t\x00 4"}
    )
    head, kept, (torn, intact) = await state(storage)
    assert (torn.intact, intact.intact) == (False, True)
    assert kept == rows[2:]
    assert await compact(storage, head, snapshots[2]) == 0
    assert await state(storage) == (
        replace(head, generation=3),
        rows[2:],
        [snapshots[2], snapshots[0]],
    )
    last = merged(stream_id, 4, 6)
    assert await compact(storage, replace(head, generation=3), last) == 4
    assert (await state(storage))[1:] == ([], [last, snapshots[2]])


async def test_a_compaction_that_was_overtaken_writes_nothing(
    storage: SqlStorage, stream_id: int
) -> None:
    await append(storage, post(stream_id, 1))
    before = await state(storage)
    for known in (
        replace(before[0], generation=1),
        replace(before[0], catalog=2),
        replace(before[0], catalog=0),
    ):
        with pytest.raises(SupersededError):
            await compact(storage, known, merged(stream_id, 1, 1))
    assert await state(storage) == before
    await append(storage, post(stream_id, 2))  # a post is no reason
    assert await compact(storage, before[0], merged(stream_id, 1, 1)) == 0


# ----------------------------------------------------------------------------------------- catalog


async def test_a_name_is_given_once_and_an_id_never_again(storage: SqlStorage) -> None:
    first = await create(storage, "s")
    async with writing(storage) as tx:
        assert await tx.do(log.create, StreamRow(-1, "s", "other", {}, NOW_US)) is None
    async with reading(storage) as tx:
        assert await tx.head() == Head(catalog=1)
    async with writing(storage) as tx:
        assert await tx.do(log.delete, first)
    async with writing(storage) as tx:
        assert not await tx.do(log.delete, first)
    second = await create(storage, "s")
    assert second > first
    async with reading(storage) as tx:
        assert await tx.head() == Head(catalog=3)
        assert [each.id for each in await tx.streams()] == [second]


async def test_a_deleted_stream_takes_its_posts(storage: SqlStorage, stream_id: int) -> None:
    other = await create(storage, "t")
    numbered = post(stream_id, 1, interval=Interval(0, 5))
    await append(storage, numbered, post(other, 2), catalog=2)
    head = (await state(storage))[0]
    await compact(storage, head, merged(stream_id, 1, 2), merged(other, 1, 2))
    async with writing(storage) as tx:
        assert await tx.do(log.delete, stream_id)
    head, rows, snapshots = await state(storage)
    assert head == Head(last=2, generation=1, catalog=3)
    assert ([each.seq for each in rows], snapshots) == ([2], [merged(other, 1, 2)])


async def test_a_source_is_revoked_and_admitted_again(storage: SqlStorage, stream_id: int) -> None:
    numbered = post(stream_id, 1, interval=Interval(0, 5))
    beside = post(stream_id, 1, "b")
    await append(storage, numbered, beside)
    await compact(storage, Head(last=2, catalog=1), merged(stream_id, 1, 2))
    async with writing(storage) as tx:
        await tx.do(log.revoke, (stream_id, "a"))
    head, rows, snapshots = await state(storage)
    assert (head.catalog, rows, snapshots) == (2, [row(2, beside)], [])
    async with reading(storage) as tx:
        assert await tx.revocations() == [Revocation(stream_id, "a", 2, active=True)]
    async with writing(storage) as tx:
        assert not await tx.do(log.reinstate, (stream_id, "b"))
    async with writing(storage) as tx:
        assert await tx.do(log.reinstate, (stream_id, "a"))
    async with writing(storage) as tx:
        assert not await tx.do(log.reinstate, (stream_id, "a"))
    async with reading(storage) as tx:
        assert await tx.revocations() == [Revocation(stream_id, "a", 2, active=False)]
        assert (await tx.head()).catalog == 3
    again = replace(numbered, interval=Interval(3, 7))  # the ledger forgot it as well
    assert await append(storage, again, catalog=3) == [row(3, again)]
    async with writing(storage) as tx:
        await tx.do(log.revoke, (stream_id, "a"))
    async with reading(storage) as tx:
        assert await tx.revocations() == [Revocation(stream_id, "a", 4, active=True)]
