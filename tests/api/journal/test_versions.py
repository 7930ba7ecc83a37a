"""The version of a database rises with its schema, and a newer one is refused."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from databases import Database, new_database
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateTable

from api.access import store as access
from api.journal import changes, instance, lease, monitor_tables, tables
from api.journal.log import StorageError, StreamRow
from api.journal.sql import SqlStorage
from api.operations.backup import backup, check, restore
from api.settings import Settings
from decaysketch.families import FAMILIES

pytestmark = pytest.mark.anyio

_SCHEMAS = {2: "d895399e64449162", 3: "67fa75ef248314a3"}
"""Of each version the digest of what it stores. The digest of a released version never changes: a
change of the schema after a release is a new version, with its step in ``api.journal.versions``.
Before the release that has it, replace its digest."""

_OTHERS = ("monitor_groups", "monitor_group_states", "monitor_states", "monitor_accounts",
           "monitor_outbox", "monitor_functions", "topk_words", "monitors", "topk_lists",
           "configured_questions", "leases", "catalog_changes")  # fmt: skip


def _schema() -> str:
    """A digest of every table, the fields of a stream and the families."""
    parts = [
        tables.metadata,
        monitor_tables.metadata,
        lease.metadata,
        changes.metadata,
        instance.metadata,
        access.metadata,
    ]
    statements = [
        str(CreateTable(table).compile(dialect=sqlite.dialect()))
        for metadata in parts
        for table in metadata.sorted_tables
    ]
    text = json.dumps([statements, list(StreamRow.__slots__), sorted(FAMILIES)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_the_version_rises_with_the_schema() -> None:
    assert max(_SCHEMAS) == tables.VERSION
    assert _schema() == _SCHEMAS[tables.VERSION], "see _SCHEMAS"


def _url(database: Database) -> str:
    return Settings(data=database.url).database_url


async def _open(database: Database) -> None:
    await (await SqlStorage.open(database.url)).close()


def _make_version(database: Database, version: int) -> None:
    """As the release that raised it created it."""
    for table in _OTHERS if version == 1 else _OTHERS[:2]:
        database.execute(f"DROP TABLE {table}")
    database.execute(f"UPDATE schema_version SET version = {version}")


@pytest.mark.parametrize("version", [1, 2])
async def test_an_older_database_is_brought_up_to_date(database: Database, version: int) -> None:
    await _open(database)
    _make_version(database, version)
    await _open(database)
    assert database.execute("SELECT version FROM schema_version") == [(tables.VERSION,)]
    for table in _OTHERS:
        assert database.execute(f"SELECT count(*) FROM {table}") == [(0,)]


@pytest.mark.parametrize("versions", [(4,), (0,), (), (1, 2)])
async def test_any_other_version_is_refused_and_stays(
    database: Database, versions: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    await _open(database)
    database.execute("DELETE FROM schema_version")
    for version in versions:
        database.execute(f"INSERT INTO schema_version VALUES ({version})")
    with pytest.raises(StorageError, match="reads versions 1 to 3"):
        await _open(database)
    found = database.execute("SELECT version FROM schema_version ORDER BY 1")
    assert found == [(version,) for version in versions]


async def test_a_backup_of_an_older_version_is_restored(database: Database, tmp_path: Path) -> None:
    await _open(database)
    _make_version(database, 1)
    assert not check(_url(database)).faults
    backup(_url(database), tmp_path / "backup")
    target = new_database("sqlite", tmp_path)
    restore(tmp_path / "backup", _url(target))
    assert target.execute("SELECT version FROM schema_version") == [(tables.VERSION,)]
    await _open(target)
