"""The journal: every acknowledged post, on disk, in the order it was taken.

Promise: once :meth:`Journal.append` has returned, the body survives the process and the machine
losing power (SQLite in WAL mode with ``synchronous=FULL`` syncs the log at every commit). Equal
bodies from one source are kept once: re-posting does not grow the journal.

A post may say which numbers of its source it holds, as an interval [first, next). The ledger keeps
these, for ever: those of one source never overlap. An interval enters in the transaction that
writes the body, so either both are on disk or neither is.

SQLAlchemy Core, so that another database is a URL away. Times are integers, microseconds since
1970 UTC, because SQLite has no time zones.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from api.errors import IntervalConflictError

__all__ = ["Entry", "Interval", "Journal", "StreamRow"]

_OVERLAPS_NAMED = 10  # intervals that came before, in one refusal

_metadata = sa.MetaData()
# SQLite numbers only INTEGER keys by itself; elsewhere a journal outgrows 32 bits.
_Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")

_streams = sa.Table(
    "streams",
    _metadata,
    sa.Column("id", _Key, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("params", sa.Text, nullable=False),  # Recipe.to_dict() as JSON
    sa.Column("created_us", sa.BigInteger, nullable=False),
    sqlite_autoincrement=True,  # an id is never used twice
)

_journal = sa.Table(
    "journal",
    _metadata,
    sa.Column("seq", _Key, primary_key=True),
    sa.Column("stream_id", _Key, sa.ForeignKey("streams.id"), nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("digest", sa.LargeBinary(32), nullable=False),  # SHA-256 of the body
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("received_us", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("stream_id", "source", "digest"),
    sqlite_autoincrement=True,
)


_ledger = sa.Table(
    "ledger",
    _metadata,
    sa.Column("stream_id", _Key, sa.ForeignKey("streams.id"), primary_key=True),
    sa.Column("source", sa.Text, primary_key=True),
    sa.Column("first", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("next", sa.BigInteger, nullable=False),  # one past the last
    sa.Column("digest", sa.LargeBinary(32), nullable=False),  # of the body, as in the journal
    sa.CheckConstraint("first < next"),
)


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A stream as it was created; ``params`` says of which family."""

    id: int
    name: str
    params: dict[str, Any]
    created_us: int


@dataclass(frozen=True, slots=True)
class Interval:
    """The numbers ``first <= n < next`` of a source."""

    first: int
    next: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One acknowledged post."""

    seq: int
    stream_id: int
    source: str
    body: bytes
    received_us: int


class Journal:
    """Streams and posts in a database. Safe to use from several threads.

    Args:
        url: database URL; for SQLite the file is created if absent, its directory is not.

    Raises:
        sqlalchemy.exc.OperationalError: here or in any method, if the database is out of reach.
    """

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url)
        if self._engine.dialect.name == "sqlite":
            sa.event.listen(self._engine, "connect", _set_up_sqlite)
        try:
            _metadata.create_all(self._engine)
        except sa.exc.SQLAlchemyError:
            self.close()
            raise

    def close(self) -> None:
        """Close every connection; the journal is not used afterwards."""
        self._engine.dispose()

    def create_stream(self, name: str, params: dict[str, Any]) -> StreamRow:
        """Add a stream, durably.

        Raises:
            sqlalchemy.exc.IntegrityError: the name is taken.
        """
        created_us = _now_us()
        text = json.dumps(params, sort_keys=True)
        with self._engine.begin() as connection:
            result = connection.execute(
                _streams.insert().values(name=name, params=text, created_us=created_us)
            )
            (stream_id,) = result.inserted_primary_key or (None,)
        assert stream_id is not None
        return StreamRow(stream_id, name, dict(params), created_us)

    def streams(self) -> list[StreamRow]:
        """Every stream, in order of creation."""
        with self._engine.connect() as connection:
            rows = connection.execute(sa.select(_streams).order_by(_streams.c.id)).all()
        return [StreamRow(row.id, row.name, json.loads(row.params), row.created_us) for row in rows]

    def append(
        self, stream_id: int, source: str, body: bytes, interval: Interval | None = None
    ) -> int | None:
        """Keep one post, durably, before it is acknowledged.

        Args:
            stream_id, source: where it came to, and from whom.
            body: the post.
            interval: the numbers of the source that it holds, if it says so.

        Returns:
            The time at which it was received, or None if this source had posted the same bytes
            before and the body was not written again.

        Raises:
            IntervalConflictError: some of these numbers came before, in another interval or with
                other bytes. Nothing was written.
        """
        received_us, digest = _now_us(), hashlib.sha256(body).digest()
        row = _journal.insert().values(
            stream_id=stream_id, source=source, digest=digest, body=body, received_us=received_us
        )
        if interval is None:
            try:
                with self._engine.begin() as connection:
                    connection.execute(row)
            except sa.exc.IntegrityError:
                return None  # the unique constraint is the only one that a checked post can meet
            return received_us
        with self._engine.connect() as connection:  # rolls back what is not committed
            if not _enter(connection, stream_id, source, interval, digest):
                return None
            new = not _is_journaled(connection, stream_id, source, digest)
            if new:
                connection.execute(row)
            connection.commit()
        return received_us if new else None

    def entries(self) -> Iterator[Entry]:
        """Every post to every stream, in the order taken; bodies are read as they are asked for."""
        columns = _journal.c
        query = sa.select(
            columns.seq, columns.stream_id, columns.source, columns.body, columns.received_us
        ).order_by(columns.seq)
        with self._engine.connect() as connection:
            for row in connection.execution_options(yield_per=64).execute(query):
                yield Entry(row.seq, row.stream_id, row.source, row.body, row.received_us)


def _enter(
    connection: sa.Connection, stream_id: int, source: str, interval: Interval, digest: bytes
) -> bool:
    """Enter an interval into the ledger, to be committed with what is written next; False if it is
    there with this digest."""
    # Whoever writes first waits for others to commit (SQLite: the file, elsewhere: this row), so
    # no interval can come in between looking and entering.
    stream = _streams.c
    connection.execute(
        _streams.update().where(stream.id == stream_id).values(created_us=stream.created_us)
    )
    columns = _ledger.c
    of_source = sa.and_(columns.stream_id == stream_id, columns.source == source)
    # They are disjoint, so of those that begin before only the last may reach in: no long scan.
    last_before = (
        sa.select(sa.func.max(columns.first))
        .where(of_source, columns.first <= interval.first)
        .scalar_subquery()
    )
    overlapping = connection.execute(
        sa.select(columns.first, columns.next, columns.digest)
        .where(
            of_source,
            columns.first >= sa.func.coalesce(last_before, interval.first),
            columns.first < interval.next,
            columns.next > interval.first,
        )
        .order_by(columns.first)
        .limit(_OVERLAPS_NAMED)
    ).all()
    if not overlapping:
        connection.execute(
            _ledger.insert().values(
                stream_id=stream_id,
                source=source,
                first=interval.first,
                next=interval.next,
                digest=digest,
            )
        )
        return True
    found = [(row.first, row.next) for row in overlapping]
    if found == [(interval.first, interval.next)] and overlapping[0].digest == digest:
        return False
    raise IntervalConflictError(source, (interval.first, interval.next), found)


def _is_journaled(connection: sa.Connection, stream_id: int, source: str, digest: bytes) -> bool:
    columns = _journal.c
    query = sa.select(columns.seq).where(
        columns.stream_id == stream_id, columns.source == source, columns.digest == digest
    )
    return connection.execute(query).first() is not None


def _now_us() -> int:
    return time.time_ns() // 1000


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "busy_timeout=10000",
    ):
        connection.execute(f"PRAGMA {pragma}")
