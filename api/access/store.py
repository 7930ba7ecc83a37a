"""Where keys are stored: a table next to the journal, read and written like the journal.
It holds digests, never a key.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Connection,
    Delete,
    Insert,
    LargeBinary,
    MetaData,
    String,
    Table,
    Update,
    delete,
    func,
    insert,
    select,
    update,
)

from api.access.keys import KeyRow, Role
from api.journal.creation import create_missing
from api.journal.threads import Threads
from api.journal.urls import driver_url

__all__ = ["SqlKeyStore", "metadata"]


_CREATION_LOCK = 0x6B657973  # "keys"; PostgreSQL: locked while a process creates the table


metadata = MetaData()
_KEYS = Table(
    "access_keys",
    metadata,
    Column("prefix", String(8), primary_key=True),
    Column("digest", LargeBinary(32), nullable=False),
    Column("label", String(200), nullable=False),
    Column("role", String(8), nullable=False),
    Column("scope", JSON, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("expires_us", BigInteger),
    Column("max_streams", BigInteger),
    Column("previous_digest", LargeBinary(32)),
    Column("previous_until_us", BigInteger),
)


class SqlKeyStore:
    """Keys in SQLite or PostgreSQL.

    Args:
        url: of the database.
    """

    def __init__(self, url: str) -> None:
        self._threads = Threads(driver_url(url))

    async def close(self) -> None:
        """Close its connections."""
        await self._threads.close()

    async def create(self) -> None:
        """Create the table if it is not there."""
        await self._threads.write(_create)

    async def all(self) -> list[KeyRow]:
        """Return every key, in order of creation."""
        return await self._threads.read(_all)

    async def put(self, row: KeyRow) -> None:
        """Add a key with a new prefix."""
        await self._changed(insert(_KEYS).values(_columns(row)))

    async def replace(self, row: KeyRow, other: KeyRow) -> bool:
        """Replace ``row`` with ``other``. Return False if ``row`` has another secret by now, or is
        deleted. So one of two concurrent changes fails, and a key that was revoked meanwhile stays
        revoked.
        """
        is_it = (_KEYS.c.prefix == row.prefix) & (_KEYS.c.digest == row.digest)
        return await self._changed(update(_KEYS).where(is_it).values(_columns(other))) == 1

    async def delete(self, prefix: str) -> bool:
        """Remove a key. Return False if there is none."""
        return await self._changed(delete(_KEYS).where(_KEYS.c.prefix == prefix)) == 1

    async def _changed(self, statement: Insert | Update | Delete) -> int:
        return await self._threads.write(lambda connection: connection.execute(statement).rowcount)


def _create(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        # Two that create one table at the same time fail there, "if not exists" or not.
        connection.execute(select(func.pg_advisory_xact_lock(_CREATION_LOCK)))
    create_missing(connection, metadata)


def _all(connection: Connection) -> list[KeyRow]:
    statement = select(_KEYS).order_by(_KEYS.c.created_us, _KEYS.c.prefix)
    return [
        KeyRow(**dict(row) | {"role": Role(row["role"]), "scope": tuple(row["scope"])})
        for row in connection.execute(statement).mappings()
    ]


def _columns(row: KeyRow) -> dict[str, Any]:
    columns: dict[str, Any] = {column.name: getattr(row, column.name) for column in _KEYS.columns}
    return columns | {"role": row.role.value, "scope": list(row.scope)}
