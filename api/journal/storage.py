"""A database interface: single statements, within its transactions.

A transaction is a function of a :class:`Reader` or a :class:`Writer`. It runs on a thread, and
waits for nothing but its statements. The transactions themselves are in ``log`` and are the same
over every database. There are two kinds:

- *reading*: every statement sees the database as it was at the first one
- *writing*: all of it is on stable storage when the function has returned, or none if it raises.
  From :meth:`Writer.lock_head` on, no other writer passes its own ``lock_head`` until this
  transaction has ended and its commits are visible.

Every method raises ``StorageError`` if the database is out of reach or reports an error. The
methods that read or lock the head raise ``AnotherDatabaseError`` if it is no longer the opened
database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

from api.journal.log import (
    Head,
    Interval,
    Post,
    PostKey,
    Revocation,
    SnapshotRow,
    SourceKey,
    StreamRow,
)

__all__ = ["Reader", "Step", "Storage", "Writer"]

T = TypeVar("T")


class Reader(Protocol):
    """Statements in a reading transaction."""

    def head(self) -> Head: ...

    def streams(self, ids: Collection[int] | None = None) -> list[StreamRow]:
        """Return every stream, or the existing ones among some ids, ordered by id."""

    def stream_named(self, name: str) -> StreamRow | None:
        """Return the stream with a name."""

    def revocations(self, ids: Collection[int] | None = None) -> list[Revocation]:
        """Return every revocation, or the revocations in some streams, active or not."""

    def rows(self, after: int, upto: int, limit_bytes: int) -> list[Post]:
        """Return journal rows with ``after < seq <= upto``, by rising number: all of them, or as
        many as come to at least ``limit_bytes``.
        """

    def journaled_sources(self, upto: int) -> list[SourceKey]:
        """Return the sources with row numbers up to ``upto``, in order."""

    def snapshots(self, after: int) -> Iterator[list[SnapshotRow]]:
        """Yield portions of the snapshots with ``upto > after``, grouped by source, the newest
        generation first. A portion has a few MB, unless one source has more.
        """

    def select(
        self, query: sa.Select[*tuple[Any, ...]], values: Mapping[str, Any] | None = None
    ) -> Sequence[Any]:
        """Return rows from tables next to the journal's (``monitor_tables``)."""


class Writer(Reader, Protocol):
    """Statements in a writing transaction."""

    def lock_head(self) -> Head:
        """Lock the head until the transaction ends, and return it."""

    def set_head(self, head: Head) -> None: ...

    def prove(self, body: bytes) -> None:
        """Overwrite the previous test bytes. The write tests the disk: the database must sync its
        transaction like any other, but it adds no row.
        """

    def known(self, keys: Collection[PostKey]) -> set[PostKey]:
        """Return the posts among these that the journal contains."""

    def overlapping(
        self, source: SourceKey, interval: Interval, limit: int
    ) -> list[tuple[Interval, bytes]]:
        """Return ledger intervals that share numbers with ``interval``, by rising first number, at
        most ``limit``, each with the digest of its body.
        """

    def insert_interval(self, post: Post) -> None:
        """Enter a post's interval into the ledger."""

    def delete_interval(self, source: SourceKey, interval: Interval) -> None:
        """Take an interval out of the ledger."""

    def insert_rows(self, posts: Sequence[Post]) -> None: ...

    def insert_stream(self, stream: StreamRow) -> StreamRow:
        """Insert a stream and return the row with its id. The given id is ignored."""

    def replace_stream(self, stream: StreamRow) -> None:
        """Write an existing stream's variable attributes."""

    def delete_stream(self, stream_id: int) -> None:
        """Delete a stream with its rows, snapshots, intervals and revocations."""

    def delete_source(self, source: SourceKey) -> None:
        """Delete one source's rows, snapshots and intervals."""

    def put_revocation(self, revocation: Revocation) -> None:
        """Insert a revocation, or replace the one for the same source."""

    def newest_snapshot(self, source: SourceKey) -> SnapshotRow | None: ...

    def insert_snapshot(self, snapshot: SnapshotRow) -> None: ...

    def delete_snapshots(self, source: SourceKey, generations: tuple[int, int]) -> None:
        """Delete snapshots with ``low <= generation < high``."""

    def delete_rows(self, source: SourceKey, upto: int) -> int:
        """Delete a source's rows with numbers up to ``upto``. Return their number."""

    def execute(self, statement: sa.UpdateBase) -> int:
        """Change rows in tables next to the journal's. Return their number."""


class Step(Protocol):
    """Runs some statements of a transaction that has further ones."""

    async def __call__(self, statements: Callable[[Reader], T]) -> T: ...


class Storage(Protocol):
    """A database. A caller that is cancelled does not know whether a transaction was committed."""

    async def read(self, statements: Callable[[Reader], T]) -> T:
        """Run a reading transaction."""

    def steps(self) -> AbstractAsyncContextManager[Step]:
        """Begin a reading transaction in several steps, for a reader that cannot store all that it
        reads. Between two steps it works on the event loop, or waits there. An iterator that one
        step returns continues in the next one.
        """

    async def write(
        self, statements: Callable[[Writer], T], before: Callable[[], None] | None = None
    ) -> T:
        """Run a writing transaction.

        Args:
            statements: the transaction.
            before: called before it begins, on its thread. If it raises, there is no transaction.
        """

    async def close(self) -> None:
        """Close every connection. The storage is not used afterwards."""
