"""Connections to SQLite and PostgreSQL, so that a committed transaction is on stable storage.

Nothing waits for ever:

- SQLite: write-ahead log, ``synchronous=FULL``. A reader has a snapshot and blocks no transaction.
- PostgreSQL: READ COMMITTED to write, REPEATABLE READ READ ONLY to read, ``synchronous_commit`` not
  off. The server ends statements, waits for locks and idle transactions that last too long.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa

from api.journal.log import StorageError

__all__ = [
    "LOCK_S",
    "READERS",
    "create_private",
    "engine_of",
    "require_durability",
    "with_lock",
]

_log = logging.getLogger(__name__)

T = TypeVar("T")

# Seconds.
LOCK_S: float = 10  # until another transaction ends
_LOCK_PAUSE_S = 0.003  # SQLite: between two attempts to take a lock
_CONNECT_S = 5  # PostgreSQL, unless the URL has its own connect_timeout
_STATEMENT_S = 30  # PostgreSQL
_IDLE_WRITER_S = 30  # PostgreSQL: a transaction that holds the head and sends nothing
_IDLE_READER_S = 600

READERS = 8  # threads, and one more connection for a transaction in steps
_PAGE_SIZE = 8192  # of a new SQLite file


def engine_of(url: sa.URL, *, writes: bool, check: Callable[[], None]) -> sa.Engine:
    """Return connections as this module's docstring describes. There is one writing connection.

    Args:
        url: as ``urls.driver_url`` returns it.
        writes: whether transactions may write.
        check: over PostgreSQL called ten times a second while the server is silent. If it raises,
            the wait ends with that exception.
    """
    arguments: dict[str, Any] = {
        "pool_size": 1 if writes else READERS + 1,
        "max_overflow": 0,
        "pool_timeout": LOCK_S,
        "hide_parameters": True,
    }
    make = _sqlite if url.get_backend_name() == "sqlite" else _postgresql
    return make(url, arguments, writes, check)


def create_private(url: sa.URL) -> None:
    """Create a SQLite database's file, if it does not exist, for its owner only. SQLite by
    itself lets all users read it, and gives its log the file's mode.
    """
    path = url.database
    if url.get_backend_name() != "sqlite" or not path or path.startswith((":memory:", "file:")):
        return
    # SQLite's own error about an unusable path is enough. An existing file must not be opened: to
    # close it would end the locks that this process has on it.
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _sqlite(
    url: sa.URL, arguments: dict[str, Any], writes: bool, _check: Callable[[], None]
) -> sa.Engine:
    engine = sa.create_engine(url, connect_args={"timeout": LOCK_S}, **arguments)

    def set_up(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself
        connection.execute(f"PRAGMA page_size={_PAGE_SIZE}")
        # Connections that turn to it at the same time do not wait, despite their timeout.
        with_lock(lambda: connection.execute("PRAGMA journal_mode=WAL"))
        for pragma in (
            "wal_autocheckpoint=0",
            "synchronous=FULL",
            "secure_delete=FAST",  # fully, to delete 2,000 posts is to write all of them once more
            "foreign_keys=ON",
            f"query_only={'OFF' if writes else 'ON'}",
            f"busy_timeout={0 if writes else int(LOCK_S * 1000)}",
        ):
            connection.execute(f"PRAGMA {pragma}")

    sa.event.listen(engine, "do_connect", lambda *_arguments: create_private(url))
    sa.event.listen(engine, "connect", set_up)
    return engine


def with_lock(execute: Callable[[], object]) -> None:
    """Execute a statement that needs SQLite's lock, again until no other connection has it.

    Raises:
        sqlite3.OperationalError: another one has it for ``LOCK_S``, or any other fault.
    """
    deadline = time.monotonic() + LOCK_S
    while True:
        try:
            execute()
        except sqlite3.OperationalError as error:
            is_locked = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
            if not is_locked or time.monotonic() > deadline:
                raise
            time.sleep(_LOCK_PAUSE_S)
        else:
            return


def _postgresql(
    url: sa.URL, arguments: dict[str, Any], writes: bool, check: Callable[[], None]
) -> sa.Engine:
    session = {
        "statement_timeout": f"{_STATEMENT_S}s",
        "lock_timeout": f"{LOCK_S:g}s",
        "idle_in_transaction_session_timeout": f"{_IDLE_WRITER_S if writes else _IDLE_READER_S}s",
        "default_transaction_read_only": "off" if writes else "on",
    }
    given = url.query.get("options", "")
    options = [given if isinstance(given, str) else " ".join(given)]
    options += [f"-c {name}={value}" for name, value in session.items()]
    engine = sa.create_engine(
        url,
        isolation_level="READ COMMITTED" if writes else "REPEATABLE READ",
        pool_pre_ping=True,
        connect_args={
            "connect_timeout": url.query.get("connect_timeout", _CONNECT_S),
            "options": " ".join(options).strip(),
            "application_name": "decaysketch",
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 30_000,
        },
        **arguments,
    )

    def connect(_dialect: Any, _record: Any, given: Any, named: Any) -> psycopg.Connection:
        connection = _Connection.connect(*given, **named)
        connection.check = check
        return connection

    def set_up(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute("SHOW synchronous_commit")
        if cursor.fetchone() == ("off",):
            cursor.execute("SET SESSION synchronous_commit = on")
        cursor.close()
        connection.commit()

    sa.event.listen(engine, "do_connect", connect)
    if writes:
        sa.event.listen(engine, "connect", set_up)
    return engine


class _Connection(psycopg.Connection[Any]):
    """A connection. Its waits end when ``check`` raises."""

    check: Callable[[], None]

    def wait(self, gen: Generator[Any, Any, T], *arguments: Any, **named: Any) -> T:
        return super().wait(_checked(gen, self.check), *arguments, **named)


def _checked(gen: Generator[Any, Any, T], check: Callable[[], None]) -> Generator[Any, Any, T]:
    """Run a generator of the driver. Each of its ``yield`` waits for the server."""
    try:
        awaited = next(gen)
        while True:
            ready = yield awaited
            if not ready:  # nothing came for a tenth of a second
                check()
            awaited = gen.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result


def require_durability(connection: sa.Connection) -> None:
    """Check PostgreSQL's settings.

    Raises:
        StorageError: a commit would not be on stable storage.
    """
    if connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "off":
        raise StorageError("synchronous_commit is off and could not be set")
    if connection.exec_driver_sql("SHOW fsync").scalar() == "off":
        _log.warning("fsync is off in PostgreSQL: acknowledged posts do not survive a power loss")
