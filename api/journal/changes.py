"""The streams that each change of the catalog affected, so that followers read these alone.

The catalog is all streams and revocations. Its number rises with each change. A row here names the
stream that was created, deleted or re-mapped, or whose source was revoked or reinstated. The newest
``KEPT`` rows stay. A follower that is further behind reads the complete catalog, and so does one
that finds a number without its row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from api.journal.creation import create_missing

if TYPE_CHECKING:
    from api.journal.storage import Reader, Writer

__all__ = ["KEPT", "forget", "metadata", "prepare", "record", "since"]

KEPT = 1000

metadata = sa.MetaData()
_table = sa.Table(
    "catalog_changes",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("stream_id", sa.BigInteger, nullable=False),  # which may be deleted
)
_c = _table.c
_since = sa.select(_c.stream_id).where(
    _c.number > sa.bindparam("after"), _c.number <= sa.bindparam("upto")
)


def prepare(connection: sa.Connection) -> None:
    """Create the table if it is not there, in an exclusive writing transaction."""
    create_missing(connection, metadata)


def forget(connection: sa.Connection) -> None:
    """Delete every row: followers read the complete catalog. For numbers that begin again."""
    connection.execute(_table.delete())


def record(tx: Writer, number: int, stream_id: int) -> None:
    """Record the stream of the change that led to this catalog number. O(log KEPT)."""
    tx.execute(_table.delete().where(_c.number <= number - KEPT))
    tx.execute(_table.insert().values(number=number, stream_id=stream_id))


def since(rx: Reader, after: int, upto: int) -> set[int] | None:
    """Return the ids of the streams that changed in between, or None if unknown. O(changes)."""
    if not 0 < upto - after <= KEPT:
        return None
    rows = rx.select(_since, {"after": after, "upto": upto})
    return {row.stream_id for row in rows} if len(rows) == upto - after else None
