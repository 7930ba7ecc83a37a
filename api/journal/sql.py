"""SQLite and PostgreSQL, by SQLAlchemy's asyncio engines.

The settings for each, so that a committed transaction is on stable storage and nothing waits for
ever:

- SQLite: write-ahead log, ``synchronous=FULL``. A writer takes the database's only lock as the
  transaction begins. A reader has a snapshot and blocks no transaction. This module writes the log
  back, instead of SQLite's own rule. Only the holder of the writers' lock does so, since in
  versions before 3.51.3 a checkpoint next to a commit can lose committed data. It waits a little
  for readers, since the log never restarts by itself as long as there is a reader at every moment.
- PostgreSQL: READ COMMITTED with the head's row locked to write, REPEATABLE READ READ ONLY to read,
  ``synchronous_commit`` not off. The server ends statements, waits for locks and idle transactions
  that last too long.

A transaction that awaits nothing but its own statements runs in one go, over SQLite on a thread.
Handing each statement to a thread takes many times as long next to threads that compute.

Every fault is a ``StorageError`` with the database's own short words. The faulty connection is
discarded: the next transaction has another one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar
from weakref import WeakKeyDictionary

import aiosqlite
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.util import await_only

from api.journal import instance, tables, versions
from api.journal.model import (
    Head,
    Interval,
    Post,
    PostKey,
    Revocation,
    Row,
    SnapshotRow,
    SourceKey,
    StorageError,
    StreamRow,
    Totals,
)
from api.journal.storage import Writer
from api.journal.urls import async_url

__all__ = ["SqlStorage", "answered", "create_private", "dispose", "engine_of", "transaction"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

# Seconds.
_CONNECT_S = 5
_LOCK_S = 10  # until somebody else's transaction ends
_LOCK_PAUSE_S = 0.003  # SQLite: between two looks for that
_STATEMENT_S = 30  # PostgreSQL
_IDLE_WRITER_S = 30  # PostgreSQL: a transaction that holds the head and asks nothing
_IDLE_READER_S = 600
_ANSWER_S = 40.0  # any of them, should the database be silent altogether
_OPEN_S = 3600.0  # creating the tables, or reading every post of the release before

_READERS = 8  # connections
_KEYS_ASKED = 256  # in one statement
_SIZES_READ = 1024  # in one statement
# Beside the recipe of a stream, as JSON, and only where it is so: a release that does not know it
# refuses the stream, instead of taking observations under other ids.
# Next to a recipe, in its column.
_BIND_KEYS, _INGEST, _VIEW = "bind_keys", "ingest", "view"
_ABOUT, _FROM_LEVEL, _STANDING = "about", "from_level", "standing"

_SNAPSHOT_BYTES = 8 * 1024 * 1024  # read at once, unless one source has more

_PAGE_SIZE = 8192  # of a new SQLite file
_LOG_BYTES = 64 * 1024 * 1024  # of SQLite, from which on it is written back; read again at a start
_CHECKPOINT_WAIT_MS = 200  # for readers; writers wait as well
_CHECKPOINT_PAUSE_S = 1.0  # after readers were in the way


class SqlStorage:
    """A database by its URL: ``sqlite:///PATH`` or ``postgresql://...``. Use :meth:`open`."""

    def __init__(self, url: str) -> None:
        try:
            self._url = async_url(url)
        except ValueError as error:
            raise StorageError(str(error)) from None
        self._opened = instance.Opened(self._url)
        self._writers = engine_of(self._url, writes=True)
        self._readers = engine_of(self._url, writes=False)
        self._threads = (
            {writes: _Thread(self._url, self._opened, writes=writes) for writes in (True, False)}
            if self._is_sqlite
            else {}
        )

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect, and create the tables or update the previous release's tables.

        Raises:
            StorageError: the database is out of reach, does not guarantee the required properties,
                or its tables have another version.
        """
        storage = cls(url)
        try:
            async with asyncio.timeout(_OPEN_S):
                await storage._prepare()
        except TimeoutError:
            await storage.close()
            raise StorageError(f"the tables were not ready after {_OPEN_S:g} s") from None
        except BaseException:
            await storage.close()
            raise
        return storage

    async def close(self) -> None:
        await dispose(self._writers)
        await dispose(self._readers)
        for thread in self._threads.values():
            await asyncio.to_thread(thread.close)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[_Reader]:
        self._opened.check_file()
        async with transaction(self._readers) as connection:
            yield _Reader(_Awaited(connection), self._opened)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[_Writer]:
        self._opened.check_file()
        async with transaction(self._writers) as connection:
            yield _Writer(_Awaited(connection), self._opened)
        self._opened.check_file()

    async def write(
        self,
        statements: Callable[[Writer], Coroutine[Any, Any, T]],
        before: Callable[[], None] | None = None,
    ) -> T:
        if self._is_sqlite:
            return await answered(self._threads[True].run(statements, before))
        if before is not None:
            await asyncio.to_thread(before)
        async with self.writing() as tx:
            return await statements(tx)

    async def head(self) -> Head:
        if self._is_sqlite:
            return await answered(self._threads[False].run(lambda tx: tx.head()))
        async with self.reading() as tx:
            return await tx.head()

    @property
    def _is_sqlite(self) -> bool:
        return self._url.get_backend_name() == "sqlite"

    async def _prepare(self) -> None:
        deadline = time.monotonic() + _LOCK_S
        while True:
            try:
                async with transaction(self._writers) as connection:
                    if not self._is_sqlite:
                        await connection.run_sync(_require_durability)
                    with _as_storage_error():
                        await connection.run_sync(versions.prepare)
                        identity = await connection.run_sync(instance.prepare)
                self._opened.keep_to(identity)
                return
            except StorageError as error:
                # Turning to a write-ahead log does not wait for others that do the same.
                if "database is locked" not in str(error) or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)


class _Thread:
    """Transactions over a SQLite file, one after the other, each in one go.

    A caller that stops waiting for a running transaction does not know whether it will be
    committed.

    Args:
        url: the file URL.
        opened: the opened file's identity.
        writes: whether they may write.
    """

    def __init__(self, url: sa.URL, opened: instance.Opened, *, writes: bool) -> None:
        self._opened = opened
        self._writes = writes
        self._log = Path(f"{url.database}-wal")
        self._engine = sa.create_engine(
            url.set(drivername="sqlite"), **_sqlite_arguments(connections=1)
        )
        _prepare_sqlite(self._engine, url, writes=writes, sleep=time.sleep)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._next_checkpoint_s = 0.0

    def run(
        self,
        statements: Callable[[Writer], Coroutine[Any, Any, T]],
        before: Callable[[], None] | None = None,
    ) -> Awaitable[T]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._executor, self._transaction, statements, before)

    def close(self) -> None:
        """Wait for running transactions. The thread that opened the file closes it."""
        self._executor.submit(self._engine.dispose)
        self._executor.shutdown()

    def _transaction(
        self,
        statements: Callable[[Writer], Coroutine[Any, Any, T]],
        before: Callable[[], None] | None,
    ) -> T:
        if before is not None:
            before()
        self._opened.check_file()
        with _as_storage_error(), self._engine.connect() as connection:
            try:
                self._write_back(connection)
                with connection.begin():
                    result = _result(statements(_FileWriter(connection, self._opened)))
                self._opened.check_file()  # who replaces it meanwhile takes what was committed away
                return result
            except (StorageError, sa.exc.SQLAlchemyError, sqlite3.Error):
                connection.invalidate()  # what it is in the middle of is unknown
                raise

    def _write_back(self, connection: sa.Connection) -> None:
        """Copy SQLite's write-ahead log into the database file if the log is long. Called before
        a transaction.
        """
        if not self._writes or time.monotonic() < self._next_checkpoint_s:
            return
        try:
            length = self._log.stat().st_size
        except FileNotFoundError:
            return
        if length < _LOG_BYTES:
            return
        driver: Any = connection.connection.driver_connection
        driver.execute(f"PRAGMA busy_timeout={_CHECKPOINT_WAIT_MS}")
        busy, *_pages = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        driver.execute("PRAGMA busy_timeout=0")
        if busy:
            self._next_checkpoint_s = time.monotonic() + _CHECKPOINT_PAUSE_S


def _result(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result from a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a transaction awaits something else than its statements")


# ---------------------------------------------------------------------------------------- engines


def engine_of(url: sa.URL, *, writes: bool) -> AsyncEngine:
    """Return connections as this module's docstring describes. There is one writing connection.

    Args:
        url: as ``urls.async_url`` returns it.
        writes: whether a transaction takes the writers' lock as it begins, or may not write.
    """
    return (_sqlite if url.get_backend_name() == "sqlite" else _postgresql)(url, writes=writes)


def create_private(url: sa.URL) -> None:
    """Create a SQLite database's file, if it does not exist, for its owner only. SQLite by
    itself lets all users read it, and gives its log the file's mode.
    """
    path = url.database
    if url.get_backend_name() != "sqlite" or not path or path.startswith((":memory:", "file:")):
        return
    # What SQLite says of a path it cannot use is enough. A file that is there must not be opened:
    # to close it would end the locks that this process has on it.
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _sqlite(url: sa.URL, *, writes: bool) -> AsyncEngine:
    workers: list[threading.Thread] = []

    def begun(*arguments: Any, **named: Any) -> aiosqlite.Connection:
        workers[:] = [each for each in workers if each.is_alive()]
        connection = aiosqlite.connect(*arguments, **named)
        connection._thread.daemon = True
        workers.append(connection._thread)
        return connection

    arguments = _sqlite_arguments(connections=1 if writes else _READERS)
    arguments["connect_args"]["async_creator_fn"] = begun
    engine = create_async_engine(url, **arguments)
    _workers[engine.sync_engine] = workers
    _prepare_sqlite(
        engine.sync_engine, url, writes=writes, sleep=lambda s: await_only(asyncio.sleep(s))
    )
    return engine


_workers: WeakKeyDictionary[sa.Engine, list[threading.Thread]] = WeakKeyDictionary()


async def dispose(engine: AsyncEngine) -> None:
    """Close an engine's connections, and wait until their threads have ended.

    A caller that is cancelled while its connection opens or closes leaves a thread of aiosqlite
    behind. It reports to the event loop, which must not be closed by then.
    """
    await engine.dispose()
    for thread in _workers.get(engine.sync_engine, ()):
        if thread.is_alive():
            await asyncio.to_thread(thread.join, _ANSWER_S)


def _sqlite_arguments(*, connections: int) -> dict[str, Any]:
    return {
        "pool_size": connections,
        "max_overflow": 0,
        "pool_timeout": _LOCK_S,
        "connect_args": {"timeout": _LOCK_S},
        "hide_parameters": True,
    }


def _prepare_sqlite(
    engine: sa.Engine, url: sa.URL, *, writes: bool, sleep: Callable[[float], None]
) -> None:
    """Configure how an engine's connections and transactions begin."""

    def create(*_arguments: Any) -> None:
        create_private(url)
        # A connection of aiosqlite that cannot open its file leaves a thread behind, which reports
        # to a loop that may be gone by then. So what cannot be opened is found here.
        sqlite3.connect(url.database or "").close()

    def set_up(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself
        cursor = connection.cursor()
        for pragma in (
            f"page_size={_PAGE_SIZE}",
            "journal_mode=WAL",
            "wal_autocheckpoint=0",
            "synchronous=FULL",
            "secure_delete=FAST",  # fully, to delete 2,000 posts is to write all of them once more
            "foreign_keys=ON",
            f"query_only={'OFF' if writes else 'ON'}",
            f"busy_timeout={0 if writes else _LOCK_S * 1000}",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    def begin(connection: sa.Connection) -> None:
        if writes:
            _take_the_lock(connection, sleep)
        else:
            connection.exec_driver_sql("BEGIN")

    sa.event.listen(engine, "do_connect", create)
    sa.event.listen(engine, "connect", set_up)
    sa.event.listen(engine, "begin", begin)


def _take_the_lock(connection: sa.Connection, sleep: Callable[[float], None]) -> None:
    """Begin to write. SQLite itself polls the lock less and less often, so that one of several
    busy processes may never get it. Its wait cannot be aborted either.
    """
    deadline = time.monotonic() + _LOCK_S
    while True:
        try:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        except sa.exc.OperationalError as error:
            if not _is_locked(error) or time.monotonic() > deadline:
                raise
            sleep(_LOCK_PAUSE_S)
        else:
            return


def _is_locked(error: sa.exc.OperationalError) -> bool:
    code = getattr(error.orig, "sqlite_errorcode", 0)
    return bool(code & 0xFF == sqlite3.SQLITE_BUSY)


def _postgresql(url: sa.URL, *, writes: bool) -> AsyncEngine:
    session = {
        "statement_timeout": f"{_STATEMENT_S}s",
        "lock_timeout": f"{_LOCK_S}s",
        "idle_in_transaction_session_timeout": f"{_IDLE_WRITER_S if writes else _IDLE_READER_S}s",
        "default_transaction_read_only": "off" if writes else "on",
    }
    given = url.query.get("options", "")
    options = [given if isinstance(given, str) else " ".join(given)]
    options += [f"-c {name}={value}" for name, value in session.items()]
    engine = create_async_engine(
        url,
        isolation_level="READ COMMITTED" if writes else "REPEATABLE READ",
        pool_size=1 if writes else _READERS,
        max_overflow=0,
        pool_timeout=_LOCK_S,
        pool_pre_ping=True,
        connect_args={
            "connect_timeout": _CONNECT_S,
            "options": " ".join(options).strip(),
            "application_name": "decaysketch",
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 30_000,
        },
        hide_parameters=True,
    )

    def set_up(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute("SHOW synchronous_commit")
        if cursor.fetchone() == ("off",):
            cursor.execute("SET SESSION synchronous_commit = on")
        cursor.close()
        connection.commit()

    if writes:
        sa.event.listen(engine.sync_engine, "connect", set_up)
    return engine


def _require_durability(connection: sa.Connection) -> None:
    if connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "off":
        raise StorageError("synchronous_commit is off and could not be set")
    if connection.exec_driver_sql("SHOW fsync").scalar() == "off":
        _log.warning("fsync is off in PostgreSQL: acknowledged posts do not survive a power loss")


# ------------------------------------------------------------------------------------- transactions


@contextmanager
def _as_storage_error() -> Iterator[None]:
    """Convert exceptions from the driver or the pool into ``StorageError``."""
    try:
        yield
    except (sa.exc.SQLAlchemyError, sqlite3.Error, OSError) as error:
        raise StorageError(_cause(error)) from None


def _cause(error: Exception) -> str:
    """Return the first line of the database's error, without statements and their parameters."""
    if isinstance(error, sa.exc.DBAPIError) and error.orig is not None:
        said = getattr(getattr(error.orig, "diag", None), "message_primary", None)
        text = said or _words(error.orig)
    elif isinstance(error, sqlite3.Error):
        text = _words(error)
    elif isinstance(error, OSError) and error.strerror and not isinstance(error, TimeoutError):
        text = error.strerror  # without the path
    elif isinstance(error, sa.exc.TimeoutError):
        text = f"no connection was free within {_LOCK_S} s"
    elif isinstance(error, TimeoutError):
        text = f"the database did not answer within {_ANSWER_S:g} s"
    else:
        text = type(error).__name__
    return text.strip().partition("\n")[0]


def _words(error: BaseException) -> str:
    """Return the driver's error text, for SQLite with the error name: many disk faults have the
    same text and different names.
    """
    name = getattr(error, "sqlite_errorname", "")
    return f"{error} ({name})" if name.count("_") > 1 else str(error)


async def answered(asked: Awaitable[T]) -> T:
    """Return the database's response.

    Raises:
        StorageError: it reports an error, or does not respond for ``_ANSWER_S``.
    """
    with _as_storage_error():
        async with asyncio.timeout(_ANSWER_S):
            return await asked


@asynccontextmanager
async def transaction(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Run a transaction. It is committed at the end, or rolled back if an exception leaves it."""
    connection = engine.connect()
    await answered(connection.start())
    try:
        await answered(connection.begin())
        yield connection
        await answered(connection.commit())
    except (StorageError, asyncio.CancelledError):
        # What it is in the middle of is unknown.
        await answered(connection.invalidate())
        raise
    finally:
        await answered(connection.close())


# -------------------------------------------------------------------------------------- statements

_head = sa.select(
    tables.head.c.last,
    tables.head.c.deleted,
    tables.head.c.generation,
    tables.head.c.catalog,
    sa.select(instance.table.c.identity).scalar_subquery(),
)
_streams = sa.select(tables.streams).order_by(tables.streams.c.id)
_revocations = sa.select(tables.revocations).order_by(
    tables.revocations.c.stream_id, tables.revocations.c.source
)
_j = tables.journal.c
_row_columns = (_j.seq, _j.stream_id, _j.source, _j.digest, _j.body, _j.rows, _j.received_us)
_in_range = sa.and_(_j.seq > sa.bindparam("after"), _j.seq <= sa.bindparam("upto"))
_sizes = (
    sa.select(_j.seq, sa.func.length(_j.body)).where(_in_range).order_by(_j.seq).limit(_SIZES_READ)
)
_rows = sa.select(*_row_columns).where(_in_range).order_by(_j.seq)
_known = sa.select(_j.stream_id, _j.source, _j.digest).where(
    sa.tuple_(_j.stream_id, _j.source, _j.digest).in_(sa.bindparam("keys", expanding=True))
)
_set_head = tables.head.update().values({name: sa.bindparam(name) for name in Head.__slots__})

# The same as text, for SQLite's driver.
_KEY_NAMES = ("stream_id", "source", "digest")


def _text(statement: sa.ClauseElement) -> str:
    return str(statement.compile(dialect=sqlite.dialect(paramstyle="named")))


_HEAD_TEXT = _text(_head)
_SET_HEAD_TEXT = _text(_set_head)
_IS_KNOWN_TEXT = _text(
    sa.select(_j.seq).where(*(_j[name] == sa.bindparam(name) for name in _KEY_NAMES))
)
_INSERT_ROW_TEXT = _text(tables.journal.insert())

_journaled_sources = (
    sa.select(_j.stream_id, _j.source)
    .where(_j.seq <= sa.bindparam("upto"))
    .distinct()
    .order_by(_j.stream_id, _j.source)
)

_s = tables.snapshots.c
_snapshots = sa.select(tables.snapshots).order_by(_s.stream_id, _s.source, _s.generation.desc())
_snapshot_sizes = (
    sa.select(_s.stream_id, _s.source, sa.func.sum(sa.func.length(_s.body)))
    .where(_s.upto > sa.bindparam("after"))
    .group_by(_s.stream_id, _s.source)
    .order_by(_s.stream_id, _s.source)
)
_snapshots_between = _snapshots.where(
    _s.upto > sa.bindparam("after"),
    sa.tuple_(_s.stream_id, _s.source)
    >= sa.tuple_(sa.bindparam("from_id", type_=_s.stream_id.type), sa.bindparam("from_source")),
    sa.tuple_(_s.stream_id, _s.source)
    <= sa.tuple_(sa.bindparam("to_id", type_=_s.stream_id.type), sa.bindparam("to_source")),
)


def _of(table: sa.Table, source: SourceKey) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.stream_id == source[0], table.c.source == source[1])


class _Connection(Protocol):
    async def execute(self, statement: Any, values: Any = None) -> sa.CursorResult[Any]: ...


class _Awaited:
    """A connection for the event loop."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def execute(self, statement: Any, values: Any = None) -> sa.CursorResult[Any]:
        return await answered(self._connection.execute(statement, values))


class _AtOnce:
    """A connection for a thread. Its statements have ended when they are awaited."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    async def execute(self, statement: Any, values: Any = None) -> sa.CursorResult[Any]:
        return self._connection.execute(statement, values)


class _Reader:
    def __init__(self, connection: _Connection, opened: instance.Opened) -> None:
        self._connection = connection
        self._opened = opened

    async def head(self) -> Head:
        return await self._read_head(_head)

    async def streams(self, ids: Collection[int] | None = None) -> list[StreamRow]:
        query = _streams if ids is None else _streams.where(tables.streams.c.id.in_(ids))
        return [_stream(row) for row in await self._all(query)]

    async def stream_named(self, name: str) -> StreamRow | None:
        found = await self._all(_streams.where(tables.streams.c.name == name))
        return _stream(found[0]) if found else None

    async def revocations(self, ids: Collection[int] | None = None) -> list[Revocation]:
        of_streams = tables.revocations.c.stream_id
        query = _revocations if ids is None else _revocations.where(of_streams.in_(ids))
        return [Revocation(*row) for row in await self._all(query)]

    async def rows(self, after: int, upto: int, limit_bytes: int) -> list[Row]:
        last, size, more = after, 0, True
        while size < limit_bytes and more:
            page = await self._all(_sizes, {"after": last, "upto": upto})
            more = len(page) == _SIZES_READ
            for seq, length in page:
                last, size = seq, size + length
                if size >= limit_bytes:
                    break
        if last == after:
            return []
        return [Row(*row) for row in await self._all(_rows, {"after": after, "upto": last})]

    async def journaled_sources(self, upto: int) -> list[SourceKey]:
        return [(row[0], row[1]) for row in await self._all(_journaled_sources, {"upto": upto})]

    async def snapshots(self, after: int) -> AsyncIterator[SnapshotRow]:
        sizes = await self._all(_snapshot_sizes, {"after": after})
        for first, last in _portions(sizes):
            for row in await self._all(
                _snapshots_between,
                {
                    "after": after,
                    "from_id": first[0],
                    "from_source": first[1],
                    "to_id": last[0],
                    "to_source": last[1],
                },
            ):
                yield _snapshot(row)

    async def select(
        self, query: sa.Select[*tuple[Any, ...]], values: Mapping[str, Any] | None = None
    ) -> Sequence[Any]:
        return await self._all(query, values)

    async def _read_head(self, query: sa.Select[*tuple[Any, ...]]) -> Head:
        return self._only_head(await self._all(query))

    def _only_head(self, found: Sequence[Any]) -> Head:
        if not found:
            raise StorageError("the head of the journal is missing")
        *fields, identity = found[0]
        self._opened.check(identity)
        return Head(*fields)

    async def _all(
        self, query: sa.Select[*tuple[Any, ...]], values: Mapping[str, Any] | None = None
    ) -> Sequence[Any]:
        return (await self._connection.execute(query, values)).all()


def _portions(sizes: Sequence[Any]) -> Iterator[tuple[SourceKey, SourceKey]]:
    """Yield the first and last source in each portion that is read together."""
    first: SourceKey | None = None
    total = 0
    for number, (stream_id, source, size) in enumerate(sizes):
        first = first or (stream_id, source)
        total += int(size)  # PostgreSQL sums to a decimal
        if total >= _SNAPSHOT_BYTES or number == len(sizes) - 1:
            yield first, (stream_id, source)
            first, total = None, 0


def _stream(row: Any) -> StreamRow:
    recipe = json.loads(row.recipe)
    bind_keys, ingest = recipe.pop(_BIND_KEYS, False), recipe.pop(_INGEST, None)
    view, about = recipe.pop(_VIEW, None), recipe.pop(_ABOUT, {})
    from_level, standing = recipe.pop(_FROM_LEVEL, 0), recipe.pop(_STANDING, {})
    return StreamRow(
        row.id,
        row.name,
        row.incarnation,
        recipe,
        row.created_us,
        row.max_clock_skew_s,
        row.id_key,
        bind_keys,
        ingest,
        view,
        about,
        from_level,
        standing,
    )


def _recipe(stream: StreamRow) -> str:
    beside: dict[str, Any] = {_BIND_KEYS: True} if stream.bind_keys else {}
    if stream.ingest is not None:
        beside[_INGEST] = stream.ingest
    if stream.view is not None:
        beside[_VIEW] = stream.view
    if stream.about:
        beside[_ABOUT] = dict(stream.about)
    if stream.from_level:
        beside[_FROM_LEVEL] = stream.from_level
    if stream.standing:
        beside[_STANDING] = dict(stream.standing)
    return json.dumps(dict(stream.recipe) | beside, sort_keys=True)


def _snapshot(row: Any) -> SnapshotRow:
    return SnapshotRow(
        row.stream_id,
        row.source,
        row.generation,
        row.upto,
        row.digest,
        row.body,
        Totals(row.posts, row.posted_bytes, row.rows, row.last_received_us),
    )


class _Writer(_Reader):
    async def lock_head(self) -> Head:
        return await self._read_head(_head.with_for_update())

    async def set_head(self, head: Head) -> None:
        await self._do(_set_head, _fields(head))

    async def prove(self, body: bytes) -> None:
        await self._do(instance.table.update().values(proof=body))

    async def known(self, keys: Collection[PostKey]) -> set[PostKey]:
        asked, known = list(keys), set[PostKey]()
        for begin in range(0, len(asked), _KEYS_ASKED):
            some = asked[begin : begin + _KEYS_ASKED]
            known.update(
                (row[0], row[1], row[2]) for row in await self._all(_known, {"keys": some})
            )
        return known

    async def overlapping(
        self, source: SourceKey, interval: Interval, limit: int
    ) -> list[tuple[Interval, bytes]]:
        columns, of_source = tables.ledger.c, _of(tables.ledger, source)
        # They are disjoint, so of those that begin before only the last may reach in: no long scan.
        last_before = (
            sa.select(sa.func.max(columns.first))
            .where(of_source, columns.first <= interval.first)
            .scalar_subquery()
        )
        found = await self._all(
            sa.select(columns.first, columns.next, columns.digest)
            .where(
                of_source,
                columns.first >= sa.func.coalesce(last_before, interval.first),
                columns.first < interval.next,
                columns.next > interval.first,
            )
            .order_by(columns.first)
            .limit(limit)
        )
        return [(Interval(row[0], row[1]), row[2]) for row in found]

    async def insert_interval(self, post: Post) -> None:
        assert post.interval is not None
        await self._do(
            tables.ledger.insert().values(
                stream_id=post.stream_id,
                source=post.source,
                first=post.interval.first,
                next=post.interval.next,
                digest=post.sent,
            )
        )

    async def delete_interval(self, source: SourceKey, interval: Interval) -> None:
        columns = tables.ledger.c
        await self._do(
            tables.ledger.delete().where(
                _of(tables.ledger, source),
                columns.first == interval.first,
                columns.next == interval.next,
            )
        )

    async def insert_rows(self, rows: Sequence[Row]) -> None:
        await self._do(tables.journal.insert(), [_fields(row) for row in rows])

    async def insert_stream(self, stream: StreamRow) -> StreamRow:
        result = await self._do(
            tables.streams.insert().values(
                name=stream.name,
                incarnation=stream.incarnation,
                recipe=_recipe(stream),
                created_us=stream.created_us,
                max_clock_skew_s=stream.max_clock_skew_s,
                id_key=stream.id_key,
            )
        )
        assert result.inserted_primary_key is not None
        return replace(stream, id=result.inserted_primary_key[0])

    async def replace_stream(self, stream: StreamRow) -> None:
        await self._do(
            tables.streams.update()
            .where(tables.streams.c.id == stream.id)
            .values(recipe=_recipe(stream))
        )

    async def delete_stream(self, stream_id: int) -> None:
        for table in (tables.journal, tables.snapshots, tables.ledger, tables.revocations):
            await self._do(table.delete().where(table.c.stream_id == stream_id))
        await self._do(tables.streams.delete().where(tables.streams.c.id == stream_id))

    async def delete_source(self, source: SourceKey) -> None:
        for table in (tables.journal, tables.snapshots, tables.ledger):
            await self._do(table.delete().where(_of(table, source)))

    async def put_revocation(self, revocation: Revocation) -> None:
        source = revocation.stream_id, revocation.source
        await self._do(tables.revocations.delete().where(_of(tables.revocations, source)))
        await self._do(tables.revocations.insert().values(_fields(revocation)))

    async def newest_snapshot(self, source: SourceKey) -> SnapshotRow | None:
        found = await self._all(_snapshots.where(_of(tables.snapshots, source)).limit(1))
        return _snapshot(found[0]) if found else None

    async def insert_snapshot(self, snapshot: SnapshotRow) -> None:
        fields = _fields(snapshot)
        fields.update(_fields(fields.pop("totals")))
        await self._do(tables.snapshots.insert().values(fields))

    async def delete_snapshots(self, source: SourceKey, generations: tuple[int, int]) -> None:
        low, high = generations
        await self._do(
            tables.snapshots.delete().where(
                _of(tables.snapshots, source), _s.generation >= low, _s.generation < high
            )
        )

    async def delete_rows(self, source: SourceKey, upto: int) -> int:
        result = await self._do(
            tables.journal.delete().where(_of(tables.journal, source), _j.seq <= upto)
        )
        return result.rowcount

    async def execute(self, statement: sa.UpdateBase) -> int:
        return (await self._do(statement)).rowcount

    async def _do(self, statement: Any, values: Any = None) -> sa.CursorResult[Any]:
        return await self._connection.execute(statement, values)


class _FileWriter(_Writer):
    """A writer over SQLite, on a thread. The statements that every commit of posts runs go directly
    to the driver. SQLAlchemy takes several times as long for them as SQLite.
    """

    def __init__(self, connection: sa.Connection, opened: instance.Opened) -> None:
        super().__init__(_AtOnce(connection), opened)
        self._driver: Any = connection.connection.driver_connection

    async def lock_head(self) -> Head:
        return self._only_head(self._driver.execute(_HEAD_TEXT).fetchall())

    async def set_head(self, head: Head) -> None:
        self._driver.execute(_SET_HEAD_TEXT, _fields(head))

    async def known(self, keys: Collection[PostKey]) -> set[PostKey]:
        ask = self._driver.execute
        return {
            key
            for key in keys
            if ask(_IS_KNOWN_TEXT, dict(zip(_KEY_NAMES, key, strict=True))).fetchone()
        }

    async def insert_rows(self, rows: Sequence[Row]) -> None:
        self._driver.executemany(_INSERT_ROW_TEXT, [_fields(row) for row in rows])


def _fields(row: Any) -> dict[str, Any]:
    """Return a frozen row's attributes, by name. Unlike ``asdict`` this copies nothing."""
    return {name: getattr(row, name) for name in row.__slots__}
