"""The journal: every acknowledged post, on disk, in the order it was taken.

Promise: once :meth:`Journal.append` has returned, the body survives the process and the machine
losing power (SQLite in WAL mode with ``synchronous=FULL`` syncs the log at every commit). Equal
bodies from one source are kept once: re-posting does not grow the journal.

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

__all__ = ["Entry", "Journal", "StreamRow"]

_metadata = sa.MetaData()
# SQLite numbers only INTEGER keys by itself; elsewhere a journal outgrows 32 bits.
_Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")

_streams = sa.Table(
    "streams",
    _metadata,
    sa.Column("id", _Key, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("params", sa.Text, nullable=False),  # SketchParams.to_dict() as JSON
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


@dataclass(frozen=True, slots=True)
class StreamRow:
    """A stream as it was created."""

    id: int
    name: str
    params: dict[str, Any]
    created_us: int


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

    def append(self, stream_id: int, source: str, body: bytes) -> int | None:
        """Keep one post, durably, before it is acknowledged.

        Returns:
            The time at which it was received, or None if this source had posted the same bytes
            before and nothing was written.
        """
        received_us = _now_us()
        row = _journal.insert().values(
            stream_id=stream_id,
            source=source,
            digest=hashlib.sha256(body).digest(),
            body=body,
            received_us=received_us,
        )
        try:
            with self._engine.begin() as connection:
                connection.execute(row)
        except sa.exc.IntegrityError:
            return None  # the unique constraint is the only one that a checked post can meet
        return received_us

    def entries(self) -> Iterator[Entry]:
        """Every post to every stream, in the order taken; bodies are read as they are asked for."""
        columns = _journal.c
        query = sa.select(
            columns.seq, columns.stream_id, columns.source, columns.body, columns.received_us
        ).order_by(columns.seq)
        with self._engine.connect() as connection:
            for row in connection.execution_options(yield_per=64).execute(query):
                yield Entry(row.seq, row.stream_id, row.source, row.body, row.received_us)


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
