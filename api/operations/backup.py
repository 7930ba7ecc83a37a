"""Backup, restore and check of the database, for SQLite and PostgreSQL.

A backup is one SQLite file that contains every table as of one moment. Another table lists each
one's row count and digest. SQLite and PostgreSQL are read and filled the same way, so a backup of
one restores into the other, and the aggregator can serve from the file itself. Writing it delays no
other process: a reader of one moment blocks no writer.

A table's digest is the sum modulo 2^256 over its rows' SHA-256, in any order (databases order texts
differently). It detects accidents. An attacker that can write the file can forge it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from tempfile import mkstemp
from typing import Any

import sqlalchemy as sa

import decaysketch
from api.access import store as access
from api.journal import changes, instance, monitor_tables, tables, versions
from api.journal.creation import create_missing
from api.journal.engines import create_private

__all__ = ["BackupError", "Findings", "StreamFindings", "TableCopy", "backup", "check", "restore"]

FORMAT = 1

_SUM = 1 << 256
_BODIES_HELD, _ROWS_HELD = 16, 1000  # rows at a time, with and without bodies
_MONITORS = tuple(monitor_tables.metadata.sorted_tables)  # a backup of a release before has none
_ALL = (*tables.metadata.sorted_tables, *access.metadata.sorted_tables, *_MONITORS)
_OF_EVERY_DATABASE = {tables.head.name, tables.schema_version.name}  # there when it is empty

_manifest_metadata = sa.MetaData()
_manifest = sa.Table(
    "backup_manifest",
    _manifest_metadata,
    sa.Column("table_name", sa.Text, primary_key=True),
    sa.Column("rows", sa.Integer, nullable=False),
    sa.Column("digest", sa.LargeBinary(32), nullable=False),
)
_origin = sa.Table(
    "backup_origin",
    _manifest_metadata,
    sa.Column("format", sa.Integer, primary_key=True),
    sa.Column("version", sa.Text, nullable=False),  # of decaysketch
    sa.Column("written", sa.Text, nullable=False),  # ISO 8601, UTC
)


class BackupError(RuntimeError):
    """The operation is rejected or failed. Nothing is left half done."""


@dataclass(frozen=True, slots=True)
class TableCopy:
    """A table that was copied."""

    name: str
    rows: int
    digest: bytes

    def __str__(self) -> str:
        return f"{self.name} with {self.rows} rows of digest {self.digest.hex()[:16]}"


def backup(database_url: str, path: Path) -> list[TableCopy]:
    """Write every table as of one moment to ``path``.

    Args:
        database_url: as ``Settings.database_url``.
        path: a file that does not exist yet. It appears when it is complete and on disk, and only
            its owner may read it. Until then it is ``PATH.*.unfinished`` next to it, which stays if
            the process is killed.

    Raises:
        BackupError: the database is not there or cannot be read, or the file cannot be written.
    """
    if path.exists():
        raise BackupError(f"{path} exists; a backup replaces no file")
    with _explained("cannot back up"):
        unfinished = _new_private(path)
        try:
            with _reading(_existing(database_url)) as source, _writing(_file(unfinished)) as sink:
                copies = _copy_out(source, sink)
            _sync(unfinished)
            unfinished.rename(path)
            _sync(path.parent)
        finally:
            unfinished.unlink(missing_ok=True)
    return copies


def _copy_out(source: sa.Connection, sink: sa.Connection) -> list[TableCopy]:
    present = _known_tables(source)
    _manifest_metadata.create_all(sink)
    copies = []
    for table in _ALL:
        table.create(sink)
        # The key table may be absent. Later grants and requests would be missing.
        passing = table in (monitor_tables.accounts, monitor_tables.words)
        there = table.name in present and not passing
        copies.append(_copied(source, sink, table) if there else _summed(table, ()))
    sink.execute(
        _manifest.insert(),
        [{"table_name": each.name, "rows": each.rows, "digest": each.digest} for each in copies],
    )
    written = datetime.now(UTC).isoformat(timespec="seconds")
    sink.execute(
        _origin.insert(),
        {"format": FORMAT, "version": decaysketch.__version__, "written": written},
    )
    versions.create_others(sink)  # so that a server can open the file
    instance.renew(sink)
    return copies


def restore(path: Path, database_url: str) -> list[TableCopy]:
    """Verify a backup, fill an empty database from it in one transaction, and read it back. Its
    streams are new incarnations: earlier tokens are rejected.

    Raises:
        BackupError: the file is no backup or is damaged, the database is not empty, or the rows
            read back differ.
    """
    if not path.is_file():
        raise BackupError(f"there is no file {path}")
    with _explained("cannot restore"), _reading(_file(path)) as source:
        expected = _read_manifest(source, path)
        there = [table for table in _ALL if table.name in expected]
        for table in there:
            if (found := _summed(table, _rows(source, table))) != expected[table.name]:
                raise BackupError(
                    f"{path} is damaged: found {found}; expected {expected[table.name]}"
                )
        url = sa.make_url(database_url)
        create_private(url)
        with _writing(url) as sink:
            _make_empty(sink)
            for table in there:
                copied = _copied(source, sink, table)
                written = _summed(table, _rows(sink, table))
                if written != copied:
                    raise BackupError(f"restored {copied}, and read back {written}")
            versions.bring_up_to_date(sink)
            _continue_numbers(sink)
            _rename_streams(sink)
            _renew_monitors(sink)
            instance.renew(sink)  # processes that opened the database before notice the change
    return [expected[table.name] for table in there]


def _read_manifest(source: sa.Connection, path: Path) -> dict[str, TableCopy]:
    if not {_manifest.name, _origin.name} <= _present(source):
        raise BackupError(f"{path} is not a backup")
    (form,) = source.execute(sa.select(_origin.c.format)).scalars().all()
    if form != FORMAT:
        raise BackupError(f"{path} is a backup of format {form}; this release reads {FORMAT}")
    _known_tables(source)
    copies = {row[0]: TableCopy(*row) for row in source.execute(sa.select(_manifest))}
    if missing := {each.name for each in _ALL if each not in _MONITORS} - copies.keys():
        raise BackupError(f"{path} is damaged: it does not name {', '.join(sorted(missing))}")
    return copies


def _make_empty(sink: sa.Connection) -> None:
    """Create the tables, without rows. A server that uses that database waits or is detected."""
    present = _present(sink)
    if tables.schema_version.name not in present:
        if tables.streams.name in present:
            raise BackupError("the database is of an older release, and not empty")
        tables.create(sink)
    create_missing(sink, access.metadata)
    versions.create_others(sink)
    sink.execute(sa.select(tables.head).with_for_update())
    for table in _ALL:
        if table.name in _OF_EVERY_DATABASE:
            continue
        count = sink.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
        if count:
            raise BackupError(f"the database is not empty: {table.name} has {count} rows")
    _known_tables(sink)
    for table in (tables.head, tables.schema_version):
        sink.execute(table.delete())
    changes.forget(sink)  # the catalog numbers continue those of the backup


def _continue_numbers(sink: sa.Connection) -> None:
    """Continue PostgreSQL's numbers after the restored ones. SQLite does so by itself."""
    named = ("monitors", "states", "group_states", "outbox", "lists", "functions")
    numbered = [getattr(monitor_tables, each) for each in named]
    for table in (tables.streams, *numbered):
        highest = sink.execute(sa.select(sa.func.max(table.c.id))).scalar_one()
        if highest is not None and sink.dialect.name == "postgresql":
            sequence = sa.func.pg_get_serial_sequence(table.name, "id")
            sink.execute(sa.select(sa.func.setval(sequence, highest)))


def _rename_streams(sink: sa.Connection) -> None:
    """Give streams new incarnations. Post numbers assigned after the backup will be used again, and
    no token of such a post may pass for a token of this database.
    """
    for (number,) in sink.execute(sa.select(tables.streams.c.id)).all():
        renamed = tables.streams.update().where(tables.streams.c.id == number)
        sink.execute(renamed.values(incarnation=secrets.token_hex(8)))


def _renew_monitors(sink: sa.Connection) -> None:
    """Begin an unused epoch for every monitor. No grant is in a backup, and sites may still act on
    some. Under the new epoch no site is vouched for before it reports. Every top-k list begins one
    too: sites may have received other queries under the same numbers.
    """
    monitors, now_us = monitor_tables.monitors, time.time_ns() // 1000
    for number, epoch in sink.execute(sa.select(monitors.c.id, monitors.c.epoch)).all():
        it = monitors.update().where(monitors.c.id == number)
        sink.execute(it.values(epoch=max(epoch + 1, now_us), state="uncertain"))
    lists = monitor_tables.lists
    for number, epoch in sink.execute(sa.select(lists.c.id, lists.c.epoch)).all():
        sink.execute(
            lists.update()
            .where(lists.c.id == number)
            .values(epoch=max(epoch + 1, now_us), asked=None, opened_us=0)
        )
    functions = monitor_tables.functions
    for number, epoch in sink.execute(sa.select(functions.c.id, functions.c.epoch)).all():
        it = functions.update().where(functions.c.id == number)
        sink.execute(it.values(epoch=max(epoch + 1, now_us), state=None))


# ------------------------------------------------------------------------------------------ check


@dataclass(slots=True)
class StreamFindings:
    """One stream's database content."""

    name: str
    snapshots: int = 0
    posts: int = 0  # in the journal, in no snapshot that could be relied on
    bytes: int = 0


@dataclass(slots=True)
class Findings:
    """The result of a check. ``faults`` is empty if everything is sound."""

    streams: list[StreamFindings] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def check(database_url: str) -> Findings:
    """Read the complete database, and compare every sketch with its digest.

    A sketch was decoded before its digest was stored, so a sketch with this digest is sound.

    Raises:
        BackupError: the database is not there or cannot be read at all.
    """
    findings = Findings()
    with _explained("cannot check"), _reading(_existing(database_url)) as connection:
        _known_tables(connection)
        findings.faults += _faults_of_the_file(connection)
        last = connection.execute(sa.select(tables.head.c.last)).scalar_one()
        streams = {
            row["id"]: StreamFindings(row["name"]) for row in _rows(connection, tables.streams)
        }

        def stream_of(row: sa.RowMapping) -> StreamFindings:
            key = row["stream_id"]
            return streams.setdefault(key, StreamFindings(f"number {key}"))

        for row in _rows(connection, tables.snapshots):
            stream = stream_of(row)
            stream.snapshots += 1
            stream.bytes += len(row["body"])
            where = f"snapshot {row['generation']} of {stream.name}, source {row['source']!r}"
            findings.faults += _faults_of_body(where, row, row["upto"], last)
        for row in _rows(connection, tables.journal):
            stream = stream_of(row)
            stream.posts += 1
            stream.bytes += len(row["body"])
            where = f"journal row {row['seq']} of {stream.name}, source {row['source']!r}"
            findings.faults += _faults_of_body(where, row, row["seq"], last)
    findings.streams += streams.values()
    return findings


def _faults_of_the_file(connection: sa.Connection) -> Iterator[str]:
    """Return faults that SQLite finds in its own pages and references. PostgreSQL maintains the
    latter itself.
    """
    if connection.dialect.name != "sqlite":
        return
    for line in connection.exec_driver_sql("PRAGMA integrity_check").scalars():
        if line != "ok":
            yield line
    for table, row, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        yield f"row {row} of {table} names one of {parent} that is not there"


def _faults_of_body(where: str, row: sa.RowMapping, number: int, last: int) -> Iterator[str]:
    found = hashlib.sha256(row["body"]).hexdigest()
    if found != row["digest"].hex():
        yield f"{where}: the body has the digest {found}; expected {row['digest'].hex()}"
    if number > last:
        yield f"{where}: its number {number} lies after that of the head, {last}"


# ------------------------------------------------------------------------------------------- rows


def _copied(source: sa.Connection, sink: sa.Connection, table: sa.Table) -> TableCopy:
    def inserted() -> Iterator[sa.RowMapping]:
        for batch in _batches(source, table):
            sink.execute(table.insert(), [dict(row) for row in batch])
            yield from batch

    return _summed(table, inserted())


def _rows(connection: sa.Connection, table: sa.Table) -> Iterator[sa.RowMapping]:
    return chain.from_iterable(_batches(connection, table))


def _batches(connection: sa.Connection, table: sa.Table) -> Iterator[Sequence[sa.RowMapping]]:
    held = _BODIES_HELD if "body" in table.c else _ROWS_HELD
    found = connection.execute(sa.select(table), execution_options={"yield_per": held})
    return iter(found.mappings().partitions())


def _summed(table: sa.Table, rows: Iterable[sa.RowMapping]) -> TableCopy:
    count, total = 0, 0
    names = [column.name for column in table.c]
    for row in rows:
        count += 1
        digest = hashlib.sha256()
        for name in names:
            for part in _encoded(row[name]):
                digest.update(part)
        total += int.from_bytes(digest.digest())
    return TableCopy(table.name, count, (total % _SUM).to_bytes(32))


def _encoded(value: Any) -> tuple[bytes, bytes]:
    """Return the value after its type and length, so that no two rows are encoded alike."""
    match value:
        case None:
            kind, content = b"n", b""
        case bool() | dict() | list():
            kind, content = b"j", json.dumps(value, sort_keys=True).encode()
        case int():
            kind, content = b"i", str(value).encode()
        case float():
            kind, content = b"f", value.hex().encode()
        case str():
            kind, content = b"s", value.encode()
        case bytes():
            kind, content = b"b", value
        case _:
            raise TypeError(f"there is no encoding of a {type(value).__name__}")
    return kind + len(content).to_bytes(8), content


# -------------------------------------------------------------------------------------- databases


def _present(connection: sa.Connection) -> set[str]:
    return set(sa.inspect(connection).get_table_names())


def _known_tables(connection: sa.Connection) -> set[str]:
    """Return the existing tables' names. Tables have the same columns in every version.

    Raises:
        BackupError: they come from a newer release, or from one before versions.
    """
    present = _present(connection)
    if tables.schema_version.name not in present:
        raise BackupError(
            "the database has no tables of this release; if it is from an older one, start the "
            "aggregator with it once"
        )
    version = connection.execute(sa.select(tables.schema_version.c.version)).scalar_one()
    if not 1 <= version <= tables.VERSION:
        raise BackupError(
            f"the tables are of version {version}; this release reads versions 1 to "
            f"{tables.VERSION}"
        )
    return present


def _new_private(path: Path) -> Path:
    """Create an empty file next to ``path`` that only its owner may read."""
    descriptor, name = mkstemp(".unfinished", f"{path.name}.", path.parent)
    os.close(descriptor)
    return Path(name)


def _file(path: Path) -> sa.URL:
    return sa.URL.create("sqlite", database=str(path))


def _existing(database_url: str) -> sa.URL:
    url = sa.make_url(database_url)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise BackupError(f"there is no database {url.database}")
    return url


def _engine(url: sa.URL, begin: str) -> sa.Engine:
    if url.get_backend_name() != "sqlite":
        return sa.create_engine(
            url, poolclass=sa.NullPool, hide_parameters=True, isolation_level="REPEATABLE READ"
        )
    engine = sa.create_engine(
        url.set(drivername="sqlite"), poolclass=sa.NullPool, hide_parameters=True
    )

    def leave_transactions_to_us(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA synchronous=FULL")

    sa.event.listen(engine, "connect", leave_transactions_to_us)
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


@contextmanager
def _reading(url: sa.URL) -> Iterator[sa.Connection]:
    """Every statement sees the database as it was at the first one."""
    with _engine(url, "BEGIN").connect() as connection, connection.begin():
        yield connection


@contextmanager
def _writing(url: sa.URL) -> Iterator[sa.Connection]:
    """Write all when the context ends without an exception, or nothing."""
    with _engine(url, "BEGIN IMMEDIATE").begin() as connection:
        yield connection


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        raise BackupError(f"{what}: {getattr(error, 'orig', None) or error}") from error
    except OSError as error:
        raise BackupError(f"{what}: {error}") from error


def _sync(path: Path) -> None:
    """Put a file, or the names in a directory, on stable storage."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
