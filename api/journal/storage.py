"""What is asked of a database: single statements, within transactions of its own.

The transactions themselves are in ``log`` and are the same over every database. Two kinds:

- *reading*: every statement sees the database as it was at the first one;
- *writing*: all of it is on stable storage when the context is left, or none is if an exception
  leaves it. One that is given as a whole, as a function, is quicker; it awaits nothing but its own
  statements. From :meth:`Writer.lock_head` on, nobody else is past his own ``lock_head`` until this
  transaction has ended and what it committed is visible.

Every method raises ``StorageError`` if the database cannot be reached or refuses, and those that
read or lock the head ``AnotherDatabaseError`` if it is not the database any more that was opened.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

from api.journal.model import (
    Head,
    Interval,
    NewPost,
    PostKey,
    Revocation,
    Row,
    SnapshotRow,
    SourceKey,
    StreamRow,
)

__all__ = ["Reader", "Storage", "Writer"]

T = TypeVar("T")


class Reader(Protocol):
    """Statements of a reading transaction."""

    async def head(self) -> Head: ...

    async def streams(self, ids: Collection[int] | None = None) -> list[StreamRow]:
        """Every stream, or those of some ids as far as they are there, in order of id."""

    async def stream_named(self, name: str) -> StreamRow | None:
        """The stream of a name."""

    async def revocations(self, ids: Collection[int] | None = None) -> list[Revocation]:
        """Every revocation, or those of some streams, active or not."""

    async def rows(self, after: int, upto: int, limit_bytes: int) -> list[Row]:
        """Rows of the journal with ``after < seq <= upto``, by rising number: all of them, or as
        many as come to at least ``limit_bytes``."""

    async def journaled_sources(self, upto: int) -> list[SourceKey]:
        """Sources with rows of a number up to ``upto``, in order."""

    def snapshots(self, after: int) -> AsyncIterator[SnapshotRow]:
        """Snapshots with ``upto > after``, those of one source together, its newest generation
        first."""

    async def select(
        self, query: sa.Select[*tuple[Any, ...]], values: Mapping[str, Any] | None = None
    ) -> Sequence[Any]:
        """Rows of tables beside the journal's (``monitor_tables``)."""


class Writer(Reader, Protocol):
    """Statements of a writing transaction."""

    async def lock_head(self) -> Head:
        """The head, held until the end of the transaction."""

    async def set_head(self, head: Head) -> None: ...

    async def prove(self, body: bytes) -> None:
        """Write bytes where they stand for nothing, over those of the last time: a transaction that
        does so has to be synced as any other, and adds no row."""

    async def known(self, keys: Collection[PostKey]) -> set[PostKey]:
        """Which of these posts the journal holds."""

    async def overlapping(
        self, source: SourceKey, interval: Interval, limit: int
    ) -> list[tuple[Interval, bytes]]:
        """Intervals of the ledger that share numbers with ``interval``, by rising first number, at
        most ``limit`` of them, each with the digest of its body."""

    async def insert_interval(self, post: NewPost) -> None:
        """Enter the interval of a post into the ledger."""

    async def delete_interval(self, source: SourceKey, interval: Interval) -> None:
        """Take an interval out of the ledger."""

    async def insert_rows(self, rows: Sequence[Row]) -> None: ...

    async def insert_stream(self, stream: StreamRow) -> StreamRow:
        """The row with its id; the one given is disregarded."""

    async def replace_stream(self, stream: StreamRow) -> None:
        """Write what may become another of a stream that is there."""

    async def delete_stream(self, stream_id: int) -> None:
        """With its rows, snapshots, intervals and revocations."""

    async def delete_source(self, source: SourceKey) -> None:
        """The rows, snapshots and intervals of one source."""

    async def put_revocation(self, revocation: Revocation) -> None:
        """Insert, or replace that of the same source."""

    async def newest_snapshot(self, source: SourceKey) -> SnapshotRow | None: ...

    async def insert_snapshot(self, snapshot: SnapshotRow) -> None: ...

    async def delete_snapshots(self, source: SourceKey, generations: tuple[int, int]) -> None:
        """Those of the generations ``low <= generation < high``."""

    async def delete_rows(self, source: SourceKey, upto: int) -> int:
        """Rows of a source with a number up to ``upto``; returns how many there were."""

    async def execute(self, statement: sa.UpdateBase) -> int:
        """Change rows of tables beside the journal's; how many it were."""


class Storage(Protocol):
    """A database."""

    def reading(self) -> AbstractAsyncContextManager[Reader]: ...

    async def head(self) -> Head:
        """The head as it is now, in a transaction of its own."""

    def writing(self) -> AbstractAsyncContextManager[Writer]: ...

    async def write(
        self,
        statements: Callable[[Writer], Coroutine[Any, Any, T]],
        before: Callable[[], None] | None = None,
    ) -> T:
        """A writing transaction as a whole. Who is cancelled meanwhile does not know whether it
        was committed.

        Args:
            statements: awaits nothing but the statements.
            before: called before it begins, on a thread: that of the transaction, where it has one.
                If it raises there is no transaction.
        """

    async def close(self) -> None:
        """Close every connection; the storage is not used afterwards."""
