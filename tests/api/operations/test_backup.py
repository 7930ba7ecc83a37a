"""Backup, restore and check: what was written is there again, and what is damaged is told."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from databases import KINDS, Database, database, new_database
from transactions import reading, writing

from api.access.keys import Role, mint
from api.access.store import SqlKeyStore
from api.journal import log
from api.journal.log import Interval, Post, SnapshotRow, StreamRow, Totals
from api.journal.sql import SqlStorage
from api.operations import backup as backups
from api.operations.backup import BackupError, backup, check, restore
from api.settings import Settings

__all__ = ["database"]

NOW_US = 1_700_000_000_000_000
HEAVY = bytes(range(256)) * 5000


def url_of(database: Database) -> str:
    return Settings(data=database.url).database_url


def with_storage(database: Database, act: Callable[[SqlStorage], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        storage = await SqlStorage.open(database.url)
        try:
            return await act(storage)
        finally:
            await storage.close()

    return asyncio.run(run())


async def fill(storage: SqlStorage) -> None:
    """Two streams and what each kind of row there is."""
    async with writing(storage) as tx:
        for name in ("gone", "s", "température 🌡"):
            row = StreamRow(
                0, name, f"incarnation of {name}", {"params": {}}, NOW_US, 0.1, b"\0key"
            )
            assert await tx.do(log.create, row) is not None
    async with writing(storage) as tx:
        assert await tx.do(log.delete, 1)
    posts = [
        Post(2, "a", b"first", 1),
        Post(2, "a", HEAVY, 7, Interval(5, 9)),
        Post(3, "Ä\n", b"third", 3),
    ]
    async with writing(storage) as tx:
        head = await tx.lock_head()
        await tx.do(log.append, posts, head.catalog, NOW_US)
    async with writing(storage) as tx:
        head = await tx.lock_head()
        digest = hashlib.sha256(b"merged").digest()
        totals = Totals(1, 5, 1, NOW_US)
        snapshot = SnapshotRow(2, "a", head.generation + 1, 1, digest, b"merged", totals)
        await tx.do(log.compact, head, [snapshot])
    async with writing(storage) as tx:
        await tx.do(log.revoke, (3, "poisoned"))


async def content(storage: SqlStorage) -> list[Any]:
    """Everything a follower reads."""
    async with reading(storage) as tx:
        head = await tx.head()
        return [
            head,
            await tx.streams(),
            await tx.revocations(),
            await tx.rows(0, head.last, 1 << 30),
            await tx.snapshots(0),
        ]


async def create_one(storage: SqlStorage) -> int:
    """The number of a new stream."""
    async with writing(storage) as tx:
        created = await tx.do(log.create, StreamRow(0, "new", "i", {}, NOW_US))
    assert created is not None
    return created.id


def renamed(found: list[Any]) -> list[Any]:
    """The same, with streams that have no incarnation."""
    head, streams, *others = found
    return [head, [replace(stream, incarnation="") for stream in streams], *others]


def incarnations(found: list[Any]) -> set[str]:
    return {stream.incarnation for stream in found[1]}


def put_key(database: Database) -> str:
    """The prefix of a new key."""

    async def run() -> str:
        store = SqlKeyStore(database.url)
        await store.create()
        row, _token = mint(role=Role.READ, scope=["s", "t*"], now_us=NOW_US)
        await store.put(row)
        await store.close()
        return row.prefix

    return asyncio.run(run())


@pytest.fixture
def filled(database: Database) -> Database:
    with_storage(database, fill)
    return database


@pytest.fixture
def sqlite(tmp_path: Path) -> Database:
    database = new_database("sqlite", tmp_path)
    with_storage(database, fill)
    return database


@pytest.mark.parametrize("kind", KINDS)
def test_one_restores_into_the_other(filled: Database, kind: str, tmp_path: Path) -> None:
    prefix = put_key(filled)
    path, target = tmp_path / "backup", new_database(kind, tmp_path)
    written = backup(url_of(filled), path)
    assert {copy.name: copy.rows for copy in written} == {
        "schema_version": 1,
        "head": 1,
        "streams": 2,
        "journal": 3,
        "snapshots": 1,
        "ledger": 1,
        "revocations": 1,
        "access_keys": 1,
        "monitors": 0,
        "monitor_accounts": 0,
        "monitor_states": 0,
        "monitor_groups": 0,
        "monitor_group_states": 0,
        "monitor_outbox": 0,
        "monitor_functions": 0,
        "configured_questions": 0,
        "topk_lists": 0,
        "topk_words": 0,
    }
    assert restore(path, url_of(target)) == written
    before, after = with_storage(filled, content), with_storage(target, content)
    assert renamed(after) == renamed(before)
    assert not incarnations(after) & incarnations(before)
    assert len(incarnations(after)) == len(after[1])
    assert [row[0] for row in target.execute("SELECT prefix FROM access_keys")] == [prefix]
    again = {copy.name: copy for copy in backup(url_of(target), tmp_path / "again")}
    assert [again[copy.name] == copy for copy in written] == [
        copy.name != "streams" for copy in written
    ]
    assert with_storage(target, create_one) == 4


def test_the_file_can_be_served_from(filled: Database, tmp_path: Path) -> None:
    path = tmp_path / "backup.sqlite3"
    backup(url_of(filled), path)
    served = Database("sqlite", f"sqlite:///{path}")
    assert with_storage(served, content) == with_storage(filled, content)
    assert with_storage(served, create_one) == 4


def test_a_database_that_was_opened_and_is_empty_can_be_filled(
    sqlite: Database, database: Database, tmp_path: Path
) -> None:
    async def nothing(_storage: SqlStorage) -> None: ...

    with_storage(database, nothing)
    backup(url_of(sqlite), tmp_path / "backup")
    restore(tmp_path / "backup", url_of(database))
    assert renamed(with_storage(database, content)) == renamed(with_storage(sqlite, content))


def test_the_numbers_of_the_catalog_continue_those_of_the_backup(
    sqlite: Database, database: Database, tmp_path: Path
) -> None:
    """What the emptied database had recorded under its own numbers is forgotten."""

    async def create_and_delete(storage: SqlStorage) -> None:
        for number in range(1, 6):
            async with writing(storage) as tx:
                row = StreamRow(0, "brief", str(number), {}, NOW_US)
                assert await tx.do(log.create, row) is not None
            async with writing(storage) as tx:
                assert await tx.do(log.delete, number)

    with_storage(database, create_and_delete)
    backup(url_of(sqlite), tmp_path / "backup")
    restore(tmp_path / "backup", url_of(database))
    assert with_storage(database, create_one) > 3


def test_it_is_of_one_moment(
    filled: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A post that is committed between two tables is in neither, and waits for nobody."""
    before = with_storage(filled, content)

    async def post(storage: SqlStorage) -> None:
        async with writing(storage) as tx:
            head = await tx.lock_head()
            await tx.do(log.append, [Post(2, "late", b"late", 1)], head.catalog, NOW_US)

    copied = backups._copied

    def copied_while_posts_come(source: Any, sink: Any, table: sa.Table) -> Any:
        if table.name == "streams":
            with_storage(filled, post)
        return copied(source, sink, table)

    monkeypatch.setattr(backups, "_copied", copied_while_posts_come)
    backup(url_of(filled), tmp_path / "backup")
    assert with_storage(Database("sqlite", f"sqlite:///{tmp_path / 'backup'}"), content) == before
    assert with_storage(filled, content)[0].last == before[0].last + 1


# --------------------------------------------------------------------------------------- refusals


def test_a_file_is_not_written_over(sqlite: Database, tmp_path: Path) -> None:
    path = tmp_path / "backup"
    path.write_text("precious")
    with pytest.raises(BackupError, match="backup exists; a backup replaces no file"):
        backup(url_of(sqlite), path)
    assert path.read_text() == "precious"


def test_a_backup_that_fails_leaves_no_file(
    sqlite: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backups, "_sync", full)
    directory = tmp_path / "backups"
    directory.mkdir()
    with pytest.raises(BackupError, match=r"cannot back up: .*No space left on device"):
        backup(url_of(sqlite), directory / "backup")
    assert list(directory.iterdir()) == []


def test_no_database_is_made_by_looking_for_it(tmp_path: Path) -> None:
    absent = tmp_path / "absent.sqlite3"
    for act in (lambda url: backup(url, tmp_path / "backup"), check):
        with pytest.raises(BackupError, match=r"there is no database .*absent\.sqlite3"):
            act(Settings(data=str(absent)).database_url)
    assert not absent.exists()


def test_a_database_that_is_not_empty(sqlite: Database, filled: Database, tmp_path: Path) -> None:
    backup(url_of(sqlite), tmp_path / "backup")
    before = with_storage(filled, content)
    with pytest.raises(BackupError, match="the database is not empty: streams has 2 rows"):
        restore(tmp_path / "backup", url_of(filled))
    assert with_storage(filled, content) == before


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("UPDATE journal SET body = 'f1rst' WHERE seq = 1", "damaged: found journal with 3 rows"),
        ("DELETE FROM snapshots", "damaged: found snapshots with 0 rows of digest 0000"),
        ("UPDATE streams SET max_clock_skew_s = 0.2 WHERE id = 2", "damaged: found streams with 2"),
        ("DELETE FROM backup_manifest WHERE table_name = 'ledger'", "does not name ledger"),
        ("DROP TABLE backup_manifest", "backup is not a backup"),
        ("UPDATE backup_origin SET format = 2", "of format 2; this release reads 1"),
        ("UPDATE schema_version SET version = 7", "of version 7; this release reads versions 1 to"),
        ("PRAGMA user_version", None),
    ],
)
def test_a_damaged_backup_changes_nothing(
    sqlite: Database, database: Database, tmp_path: Path, damage: str, message: str | None
) -> None:
    path = tmp_path / "backup"
    backup(url_of(sqlite), path)
    Database("sqlite", f"sqlite:///{path}").execute(damage)
    if message is None:
        restore(path, url_of(database))
        return
    with pytest.raises(BackupError, match=message):
        restore(path, url_of(database))
    head, *rest = with_storage(database, content)
    assert head.last == 0
    assert rest == [[], [], [], []]


def test_something_else(tmp_path: Path, sqlite: Database) -> None:
    path = tmp_path / "backup"
    path.write_bytes(b"not a database at all" * 100)
    target = url_of(new_database("sqlite", tmp_path))
    with pytest.raises(BackupError, match="cannot restore: file is not a database"):
        restore(path, target)
    with pytest.raises(BackupError, match="there is no file"):
        restore(tmp_path / "absent", target)
    with pytest.raises(BackupError, match="is not a backup"):
        restore(Path(str(sa.make_url(sqlite.url).database)), target)


# ------------------------------------------------------------------------------------------ check


def test_a_sound_database(filled: Database) -> None:
    findings = check(url_of(filled))
    assert findings.faults == []
    found = [(each.name, each.snapshots, each.posts, each.bytes) for each in findings.streams]
    assert sorted(found) == [
        ("s", 1, 2, len(b"first") + len(HEAVY) + len(b"merged")),
        ("température 🌡", 0, 1, len(b"third")),
    ]


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (
            "UPDATE journal SET digest = (SELECT digest FROM snapshots) WHERE seq = 1",
            "journal row 1 of s, source 'a': the body has the digest "
            f"{hashlib.sha256(b'first').hexdigest()}; expected "
            f"{hashlib.sha256(b'merged').hexdigest()}",
        ),
        (
            "UPDATE snapshots SET upto = 99",
            "snapshot 1 of s, source 'a': its number 99 lies after that of the head, 3",
        ),
    ],
)
def test_a_database_with_a_fault(filled: Database, damage: str, fault: str) -> None:
    filled.execute(damage)
    assert check(url_of(filled)).faults == [fault]


def test_a_row_without_its_stream(sqlite: Database) -> None:
    with sqlite3.connect(str(sa.make_url(sqlite.url).database)) as connection:
        connection.execute("DELETE FROM streams WHERE id = 3")
    connection.close()
    faults = check(url_of(sqlite)).faults
    assert any("of journal names one of streams that is not there" in fault for fault in faults)


def test_a_torn_page(sqlite: Database) -> None:
    path = Path(str(sa.make_url(sqlite.url).database))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    whole = bytearray(path.read_bytes())
    at = whole.index(HEAVY[:256] * 4)
    whole[at : at + 8] = b"\0" * 8
    path.write_bytes(whole)
    (fault,) = check(url_of(sqlite)).faults
    assert fault.startswith("journal row 2 of s, source 'a': the body has the digest ")


def test_a_backup_is_for_its_owner_alone_while_it_is_written_too(
    sqlite: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, restored = tmp_path / "backup", tmp_path / "restored.sqlite3"
    copy = backups._copy_out
    seen: list[int] = []

    def copied(source: Any, sink: Any) -> Any:
        seen.extend(each.stat().st_mode & 0o777 for each in tmp_path.glob("backup.*"))
        return copy(source, sink)

    monkeypatch.setattr(backups, "_copy_out", copied)
    earlier = os.umask(0)
    try:
        backup(url_of(sqlite), path)
        restore(path, f"sqlite:///{restored}")
    finally:
        os.umask(earlier)
    assert set(seen) == {0o600}
    assert path.stat().st_mode & 0o777 == restored.stat().st_mode & 0o777 == 0o600


def test_what_a_killed_backup_left_is_in_nobodys_way(sqlite: Database, tmp_path: Path) -> None:
    left = [tmp_path / "backup.unfinished", tmp_path / "backup.abcdefgh.unfinished"]
    for each in left:
        each.write_bytes(b"SQLite format 3\0 and half of it")
    backup(url_of(sqlite), tmp_path / "backup")
    assert not check(f"sqlite:///{tmp_path / 'backup'}").faults
    assert sorted(tmp_path.glob("backup.*")) == sorted(left)
