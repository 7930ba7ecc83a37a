"""Transactions over SQLite or PostgreSQL, each on one thread from its begin to its commit.

A transaction is a function of a connection. Handing each statement to a thread takes many times as
long next to threads that compute. One thread writes, a few read.

- SQLite: a writer takes the database's only lock as the transaction begins. This module writes the
  log back, instead of SQLite's own rule. Only the thread that writes does so, since in versions
  before 3.51.3 a checkpoint next to a commit can lose committed data. It waits a little for
  readers, since the log never restarts by itself as long as there is a reader at every moment.
- PostgreSQL: the first statement begins the transaction.

Every fault is a ``StorageError`` with the database's own short words. The faulty connection is
discarded: the next transaction has another one. If the caller stops waiting, the transaction ends
at its next statement, and is not committed unless its commit has begun.

A SQLite file may be replaced or removed while connections have it open. Later writes are gone with
the last connection, so the name must still be that of the opened file.
"""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from api.journal import engines
from api.journal.log import AnotherDatabaseError, StorageError

__all__ = ["Opened", "Threads", "asked"]

T = TypeVar("T")

# Seconds.
_ANSWER_S = 40.0  # for one call to the database, should it be silent altogether

_LOG_BYTES = 64 * 1024 * 1024  # of SQLite, from which on it is written back; read again at a start
_CHECKPOINT_WAIT_MS = 200  # for readers; writers wait as well
_CHECKPOINT_PAUSE_S = 1.0  # after readers were in the way


class Threads:
    """Transactions over a database. One thread writes, and ``engines.READERS`` read.

    Args:
        url: as ``urls.driver_url`` returns it.
        check: called before each transaction, and after a commit.
    """

    def __init__(self, url: sa.URL, check: Callable[[], None] = lambda: None) -> None:
        self._writer = _Pool(url, check, writes=True)
        self._readers = _Pool(url, check, writes=False)

    async def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Run a reading transaction."""
        return await self._readers.call(lambda: self._readers.transaction(work))

    async def write(
        self,
        work: Callable[[sa.Connection], T],
        before: Callable[[], None] | None = None,
        patience_s: float | None = None,
    ) -> T:
        """Run a writing transaction.

        Args:
            work: its statements.
            before: called before it begins. If it raises, there is no transaction.
            patience_s: how long the database may be silent.
        """

        def run() -> T:
            if before is not None:
                _here.call.asked_at = math.inf
                before()
            return self._writer.transaction(work)

        return await self._writer.call(run, patience_s)

    @asynccontextmanager
    async def steps(self) -> AsyncIterator[_Steps]:
        """Run a reading transaction in steps, for a reader with other work in between."""
        steps = _Steps(self._readers)
        try:
            yield steps
        except BaseException:
            self._readers.later(steps.close)  # a step may still run
            raise
        await self._readers.call(steps.close)

    async def close(self) -> None:
        """Wait for running transactions, and close the connections."""
        for pool in (self._writer, self._readers):
            await asyncio.to_thread(pool.close)


class _Pool:
    """The threads and connections of one kind of transaction."""

    def __init__(self, url: sa.URL, check: Callable[[], None], *, writes: bool) -> None:
        self._check = check
        self._writes = writes
        self._is_sqlite = url.get_backend_name() == "sqlite"
        self._log = Path(f"{url.database}-wal")
        self._engine = engines.engine_of(url, writes=writes, check=lambda: _here.call.check())
        sa.event.listen(self._engine, "before_cursor_execute", lambda *_: _here.call.ask())
        sa.event.listen(self._engine, "commit", lambda _connection: _here.call.ask())
        self._executor = ThreadPoolExecutor(
            1 if writes else engines.READERS, thread_name_prefix="journal"
        )
        self._next_checkpoint_s = 0.0

    async def call(self, work: Callable[[], T], patience_s: float | None = None) -> T:
        """Run a function on a thread.

        Raises:
            StorageError: the database is silent for ``patience_s``, or ``_ANSWER_S``.
        """
        call = _Call()
        longest_s = _ANSWER_S if patience_s is None else patience_s
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._executor, call.run, work)
        silence: StorageError | None = None
        timer: asyncio.TimerHandle

        def wait(left_s: float) -> None:
            nonlocal timer
            timer = loop.call_later(left_s, look)

        def look() -> None:
            nonlocal silence
            left_s = min(call.asked_at + longest_s - time.monotonic(), longest_s)
            if left_s > 0:
                wait(left_s)
            elif running.cancel():
                silence = call.silence(longest_s)

        wait(longest_s)
        try:
            return await running
        except BaseException as error:
            call.abandoned = True
            running.cancel()
            task = asyncio.current_task()
            is_wanted = task is None or not task.cancelling()
            if silence is not None and is_wanted and isinstance(error, asyncio.CancelledError):
                raise silence from None
            raise
        finally:
            timer.cancel()

    def later(self, work: Callable[[], None]) -> None:
        """Run a function on a thread, without waiting for it."""
        self._executor.submit(_Call().run, work)

    def transaction(self, work: Callable[[sa.Connection], T]) -> T:
        """Run a transaction. On one of the threads."""
        with (
            _as_storage_error(),
            self.connected() as connection,
            _discarded_if_faulty(connection),
        ):
            self.begin(connection)
            result = work(connection)
            connection.commit()
            if self._writes:
                self._check()  # a replaced file would lose the commit
            return result

    def connected(self) -> sa.Connection:
        """Return a connection."""
        _here.call.ask()
        self._check()
        return self._engine.connect()

    def begin(self, connection: sa.Connection) -> None:
        """Begin a transaction. SQLite's driver begins nothing by itself."""
        if self._is_sqlite and self._writes:
            self._write_back(connection)
        connection.begin()
        if self._is_sqlite and self._writes:
            _take_the_lock(connection)
        elif self._is_sqlite:
            connection.exec_driver_sql("BEGIN")

    def close(self) -> None:
        """Wait for running transactions."""
        self._executor.shutdown()
        self._engine.dispose()

    def _write_back(self, connection: sa.Connection) -> None:
        """Copy SQLite's write-ahead log into the database file if the log is long. Called before
        a transaction.
        """
        if time.monotonic() < self._next_checkpoint_s:
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


class _Steps:
    """A reading transaction that begins with its first step."""

    def __init__(self, pool: _Pool) -> None:
        self._pool = pool
        self._connection: sa.Connection | None = None
        self._one = threading.Lock()  # an abandoned step may still run when the next one comes

    async def __call__(self, work: Callable[[sa.Connection], T]) -> T:
        return await self._pool.call(lambda: self._step(work))

    def _step(self, work: Callable[[sa.Connection], T]) -> T:
        with self._one, _as_storage_error():
            _here.call.ask()
            if self._connection is None:
                self._connection = self._pool.connected()
                with _discarded_if_faulty(self._connection):
                    self._pool.begin(self._connection)
            with _discarded_if_faulty(self._connection):
                return work(self._connection)

    def close(self) -> None:
        """End it. On one of the threads."""
        with self._one, _as_storage_error():
            if self._connection is not None:
                self._connection.close()


class _Call:
    """A function on a thread, for a caller who may stop waiting for it."""

    def __init__(self) -> None:
        self.abandoned = False
        self.begun = False
        self.asked_at = time.monotonic()  # when the database was last asked

    def run(self, work: Callable[[], T]) -> T:
        _here.call = self
        self.begun = True
        return work()

    def check(self) -> None:
        """Raise if nobody waits for this any more."""
        if self.abandoned:
            raise StorageError("the caller no longer waits for the result")

    def ask(self) -> None:
        """Record that a query to the database begins."""
        self.check()
        self.asked_at = time.monotonic()

    def silence(self, longest_s: float) -> StorageError:
        silent = "the database did not respond" if self.begun else "no connection was free"
        return StorageError(f"{silent} within {longest_s:g} s")


class _Here(threading.local):
    """The call that this thread runs."""

    def __init__(self) -> None:
        self.call = _Call()


_here = _Here()


def asked() -> None:
    """Record that this thread asks the database now. Statements by SQLAlchemy do so by themselves.

    Raises:
        StorageError: nobody waits for the result any more.
    """
    _here.call.ask()


def _take_the_lock(connection: sa.Connection) -> None:
    """Begin to write. SQLite itself polls the lock less and less often, so that one of several
    busy processes may never get it. Its wait cannot be aborted either.
    """
    driver: Any = connection.connection.driver_connection

    def begin() -> None:
        asked()
        driver.execute("BEGIN IMMEDIATE")

    engines.with_lock(begin)


# ------------------------------------------------------------------------------------------ faults

_FAULTS = (StorageError, sa.exc.SQLAlchemyError, sqlite3.Error, OSError)


@contextmanager
def _discarded_if_faulty(connection: sa.Connection) -> Iterator[None]:
    """Discard a connection after a fault: its state is unknown."""
    try:
        yield
    except _FAULTS:
        connection.invalidate()
        raise


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
    elif isinstance(error, OSError) and error.strerror:
        text = error.strerror  # without the path
    elif isinstance(error, sa.exc.TimeoutError):
        text = f"no connection was free within {engines.LOCK_S:g} s"
    else:
        text = type(error).__name__
    return text.strip().partition("\n")[0]


def _words(error: BaseException) -> str:
    """Return the driver's error text, for SQLite with the error name: many disk faults have the
    same text and different names.
    """
    name = getattr(error, "sqlite_errorname", "")
    return f"{error} ({name})" if name.count("_") > 1 else str(error)


# ------------------------------------------------------------------------------------ the database


class Opened:
    """The database that this process has opened. Once a check found another database, every later
    check fails: the content in memory belongs to the first.

    Args:
        url: the database URL.
    """

    def __init__(self, url: sa.URL) -> None:
        name = url.database or ""
        is_file = url.get_backend_name() == "sqlite" and not name.startswith((":memory:", "file:"))
        self._path = Path(name) if is_file and name else None
        self._file: tuple[int, int] | None = None
        self._identity: str | None = None
        self._fault: str | None = None

    def keep_to(self, identity: str) -> None:
        """Require this identity from now on."""
        self._identity = identity
        self._file = self._found()

    def check(self, identity: str | None) -> None:
        """Raise AnotherDatabaseError if this identity, as read, is another one."""
        if self._identity is not None and identity != self._identity:
            self._fault = f"it is database {identity}, and this process has opened {self._identity}"
        self._raise()

    def check_file(self) -> None:
        """Raise AnotherDatabaseError if another file, or none, has the name by now, or if an
        earlier check failed.
        """
        if (
            self._file is not None
            and self._fault is None
            and (found := self._found()) != self._file
        ):
            is_there = "was removed" if found is None else "is another file"
            self._fault = f"{self._path} {is_there} since this process opened it"
        self._raise()

    def _raise(self) -> None:
        if self._fault is not None:
            raise AnotherDatabaseError(
                f"the database changed under this process: {self._fault}; restart it"
            )

    def _found(self) -> tuple[int, int] | None:
        """Return device and number for the file with that name."""
        if self._path is None:
            return None
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino
