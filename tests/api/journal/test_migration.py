"""Databases that the release before versions wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from databases import Database, new_database
from service import PARAMS, build
from transactions import reading, writing

from api.journal import log
from api.journal.log import Head, Interval, Post, StorageError
from api.journal.sql import SqlStorage

pytestmark = pytest.mark.anyio

# As that release created them.
_TABLES = {
    "sqlite": """
        CREATE TABLE streams (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL,
            params TEXT NOT NULL, created_us BIGINT NOT NULL, UNIQUE (name));
        CREATE TABLE journal (seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
            stream_id INTEGER NOT NULL, source TEXT NOT NULL, digest BLOB NOT NULL,
            body BLOB NOT NULL, received_us BIGINT NOT NULL, UNIQUE (stream_id, source, digest),
            FOREIGN KEY(stream_id) REFERENCES streams (id));
        CREATE TABLE ledger (stream_id INTEGER NOT NULL, source TEXT NOT NULL,
            first BIGINT NOT NULL, next BIGINT NOT NULL, digest BLOB NOT NULL,
            PRIMARY KEY (stream_id, source, first), CHECK (first < next),
            FOREIGN KEY(stream_id) REFERENCES streams (id))""",
    "postgresql": """
        CREATE TABLE streams (id BIGSERIAL NOT NULL PRIMARY KEY, name TEXT NOT NULL,
            params TEXT NOT NULL, created_us BIGINT NOT NULL, UNIQUE (name));
        CREATE TABLE journal (seq BIGSERIAL NOT NULL PRIMARY KEY,
            stream_id BIGINT NOT NULL, source TEXT NOT NULL, digest BYTEA NOT NULL,
            body BYTEA NOT NULL, received_us BIGINT NOT NULL, UNIQUE (stream_id, source, digest),
            FOREIGN KEY(stream_id) REFERENCES streams (id));
        CREATE TABLE ledger (stream_id BIGINT NOT NULL, source TEXT NOT NULL,
            first BIGINT NOT NULL, next BIGINT NOT NULL, digest BYTEA NOT NULL,
            PRIMARY KEY (stream_id, source, first), CHECK (first < next),
            FOREIGN KEY(stream_id) REFERENCES streams (id))""",
}
_RECIPE = {"family": "decay", "params": PARAMS.to_dict()}
_SKETCHES = [build(seed, 100 + seed) for seed in range(40)]
_BODIES = [sketch.to_bytes() for sketch in _SKETCHES]
_ROWS = [
    Post(
        (3, 5)[number % 2],
        "ab"[number % 3 == 0],
        body,
        len(_SKETCHES[number]),
        seq=2 * number + 1,  # that release left gaps
        received_us=10**15 + number,
    )
    for number, body in enumerate(_BODIES)
]

_COLUMNS = ("seq", "stream_id", "source", "digest", "body", "received_us")


@pytest.fixture
def before(database: Database) -> Database:
    """Two streams, the parameters of one as the first release of all wrote them."""
    for statement in _TABLES[database.kind].split(";"):
        database.execute(statement)
    for values in (
        {"id": 3, "name": "s", "params": json.dumps(_RECIPE["params"]), "us": 10**15},
        {"id": 5, "name": "t", "params": json.dumps(_RECIPE), "us": 10**15 + 1},
    ):
        database.execute("INSERT INTO streams VALUES (:id, :name, :params, :us)", values)
    return database


def fill(database: Database) -> None:
    for row in _ROWS:
        database.execute(
            "INSERT INTO journal VALUES (:seq, :stream_id, :source, :digest, :body, :received_us)",
            {name: getattr(row, name) for name in _COLUMNS},
        )
    database.execute(
        "INSERT INTO ledger VALUES (3, 'b', 10, 20, :digest)", {"digest": _ROWS[0].digest}
    )


async def test_all_of_it_is_there(before: Database) -> None:
    fill(before)
    for _ in range(2):
        storage = await SqlStorage.open(before.url)
        async with reading(storage) as tx:
            streams = await tx.streams()
            assert [(each.id, each.name, each.recipe, each.created_us) for each in streams] == [
                (3, "s", _RECIPE, 10**15),
                (5, "t", _RECIPE, 10**15 + 1),
            ]
            assert streams[0].incarnation != streams[1].incarnation
            assert [each.max_clock_skew_s for each in streams] == [None, None]
            assert await tx.rows(0, 2**62, 2**30) == _ROWS
            assert await tx.head() == Head(last=_ROWS[-1].seq)
        await storage.close()


async def test_posting_goes_on_from_there(before: Database) -> None:
    fill(before)
    storage = await SqlStorage.open(before.url)
    first = _ROWS[0]
    again = Post(first.stream_id, first.source, first.body, 1, Interval(10, 20))
    new = Post(5, "a", b"new", 1)
    async with writing(storage) as tx:
        known, added = await tx.do(log.append, [again, new], 0, 10**15)
    assert known == _ROWS[-1].seq
    assert isinstance(added, Post)
    assert added.seq == _ROWS[-1].seq + 1
    async with writing(storage) as tx:
        made = await tx.do(log.create, streams_like(await tx.streams()))
    assert made is not None
    assert made.id == 6
    await storage.close()


def streams_like(streams: list[log.StreamRow]) -> log.StreamRow:
    return log.StreamRow(-1, "u", "another", streams[0].recipe, 10**15)


async def test_the_tables_are_those_of_a_fresh_database(before: Database, tmp_path: Path) -> None:
    fresh = new_database(before.kind, tmp_path)
    for database in (before, fresh):
        await (await SqlStorage.open(database.url)).close()
    described = {
        "sqlite": "SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2",
        "postgresql": "SELECT table_name, column_name, data_type, is_nullable, collation_name "
        "FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2",
    }[before.kind]
    assert before.execute(described) == fresh.execute(described)


async def test_what_cannot_be_read_is_named_and_nothing_is_changed(before: Database) -> None:
    fill(before)
    before.execute("UPDATE journal SET body = :torn WHERE seq = 7", {"torn": _BODIES[3][:50]})
    tables = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'",
        "postgresql": "SELECT table_name FROM information_schema.tables "
        "WHERE table_schema = 'public'",
    }[before.kind]
    with pytest.raises(StorageError, match="entry 7 cannot be read"):
        await SqlStorage.open(before.url)
    assert sorted(before.execute(tables)) == [("journal",), ("ledger",), ("streams",)]
    assert before.execute("SELECT count(*) FROM journal") == [(len(_ROWS),)]
    before.execute(
        "UPDATE streams SET params = :params WHERE id = 5", {"params": '{"family": "x"}'}
    )
    with pytest.raises(StorageError, match="stream 't' cannot be read: family is 'x'"):
        await SqlStorage.open(before.url)
