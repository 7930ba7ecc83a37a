"""Databases and backups of releases without monitors; what a restore does to those there are."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

from databases import new_database
from service import PARAMS
from transactions import reading, writing

from api.journal import log
from api.journal.log import StreamRow
from api.journal.sql import SqlStorage
from api.monitors import list_rows, store
from api.operations.backup import backup, restore
from api.settings import Settings
from decaysketch.families import recipe_of
from decaysketch.monitor import Account
from decaysketch.topk import Heard, Post

_TABLES = (
    "monitor_functions",
    "topk_words",
    "topk_lists",
    "monitor_groups",
    "monitor_group_states",
    "monitor_accounts",
    "monitor_states",
    "monitor_outbox",
    "monitors",
)


def url_of(path: Path) -> str:
    return Settings(data=str(path)).database_url


async def filled(path: Path) -> store.MonitorRow:
    """A database with a stream and a monitor, whose site has an account."""
    storage = await SqlStorage.open(url_of(path))
    row = StreamRow(0, "s", "i", recipe_of(PARAMS).to_dict(), 1)
    async with writing(storage) as tx:
        stream = await tx.do(log.create, row)
    assert stream is not None
    async with writing(storage) as tx:
        monitor, _ = await tx.do(
            store.define, (stream.id, "s"), "m", {"kind": "x"}, now_us=1, of_stream=1, in_all=1
        )
        await tx.do(store.put_account, monitor.id, "a", Account(inc=1, seq=1))
    async with writing(storage) as tx:
        of = stream.id, "s"
        await tx.do(list_rows.LISTS.define, of, "m", {"k": 1}, now_us=1, of_stream=1, in_all=1)
    async with writing(storage) as tx:
        row = await tx.do(list_rows.find, stream.id, "m")
        assert row is not None
        said = {"rows": [], "certain": False}
        ask = {"as_of": 7, "serial": 3}
        assert await tx.do(list_rows.step, row, asked=ask, opened_us=5, found=said)
        assert not await tx.do(list_rows.step, row, asked=ask, opened_us=6, found=said)
        post = Post(site="a", inc=1, seq=1, as_of=7, asked=None, base=None, entries=(), rest=0)
        assert await tx.do(list_rows.put_word, row, Heard(post, 0), 3, 1) is None
        other = Heard(replace(post, site="b"), 0)
        assert await tx.do(list_rows.put_word, row, other, 3, 1) == 1
    await storage.close()
    return monitor


async def found(path: Path) -> tuple[list[store.MonitorRow], dict[int, Any]]:
    storage = await SqlStorage.open(url_of(path))
    async with reading(storage) as rx:
        monitors = await rx.do(store.every)
        accounts = await rx.do(store.accounts_of, [each.id for each in monitors])
    await storage.close()
    return monitors, accounts


def test_a_restored_monitor_begins_an_epoch_and_vouches_for_nobody(tmp_path: Path) -> None:
    before = asyncio.run(filled(tmp_path / "one"))
    backup(url_of(tmp_path / "one"), tmp_path / "backup")
    restore(tmp_path / "backup", url_of(tmp_path / "other"))
    (after,), accounts = asyncio.run(found(tmp_path / "other"))
    assert (after.name, after.spec) == (before.name, before.spec)
    assert after.epoch > before.epoch
    assert accounts == {after.id: {}}


async def lists(path: Path) -> tuple[list_rows.ListRow, dict[str, Any]]:
    storage = await SqlStorage.open(url_of(path))
    async with reading(storage) as rx:
        (row,) = await rx.do(list_rows.some, await rx.do(list_rows.versions))
        said = await rx.do(list_rows.said, row.id)
    await storage.close()
    return row, said


def test_a_restored_list_begins_an_epoch_and_asks_anew(tmp_path: Path) -> None:
    asyncio.run(filled(tmp_path / "one"))
    before, said = asyncio.run(lists(tmp_path / "one"))
    assert (before.last_as_of, said.keys()) == (7, {"a"})
    backup(url_of(tmp_path / "one"), tmp_path / "backup")
    restore(tmp_path / "backup", url_of(tmp_path / "other"))
    after, said = asyncio.run(lists(tmp_path / "other"))
    assert after.epoch > before.epoch
    assert (after.asked, after.opened_us, said) == (None, 0, {})
    # The list that was found stands, and no round is as of a time that one was.
    assert (after.found, after.last_as_of) == (before.found, 7)


def test_a_database_and_a_backup_without_monitors_are_read(tmp_path: Path) -> None:
    database = new_database("sqlite", tmp_path)
    path = Path(database.url.removeprefix("sqlite:///"))
    asyncio.run(filled(path))
    backup(url_of(path), tmp_path / "backup")
    for file in (path, tmp_path / "backup"):  # as a release before has written them
        connection = sqlite3.connect(file)
        if file == path:  # a backup is verified by digests
            connection.execute("UPDATE schema_version SET version = 1")
        for table in _TABLES:
            connection.execute(f"DROP TABLE {table}")
            if file != path:
                connection.execute("DELETE FROM backup_manifest WHERE table_name = ?", (table,))
        connection.commit()
        connection.close()
    assert asyncio.run(found(path)) == ([], {})
    restore(tmp_path / "backup", url_of(tmp_path / "other"))
    assert asyncio.run(found(tmp_path / "other")) == ([], {})
