"""Where keys are kept: a table beside the journal. It holds digests, never a key."""

from __future__ import annotations

from typing import Any, Protocol

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    LargeBinary,
    MetaData,
    String,
    Table,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncEngine

from api.access.keys import KeyRow, Role

__all__ = ["KeyStore", "SqlKeyStore", "metadata"]


class KeyStore(Protocol):
    """Keys that outlive the process and are shared by every replica."""

    async def all(self) -> list[KeyRow]:
        """Every key, in order of creation."""

    async def put(self, row: KeyRow) -> None:
        """Add a key; its prefix is new."""

    async def replace(self, row: KeyRow) -> bool:
        """Change the key of this prefix; False if there is none any more."""

    async def delete(self, prefix: str) -> bool:
        """Remove a key; False if there is none."""


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
        engine: of ``sqlite+aiosqlite`` or ``postgresql+psycopg``.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def create(self) -> None:
        """Create the table if it is not there."""
        async with self._engine.begin() as connection:
            await connection.run_sync(metadata.create_all)

    async def all(self) -> list[KeyRow]:
        """Every key, in order of creation."""
        statement = select(_KEYS).order_by(_KEYS.c.created_us, _KEYS.c.prefix)
        async with self._engine.connect() as connection:
            rows = (await connection.execute(statement)).mappings().all()
        return [
            KeyRow(**dict(row) | {"role": Role(row["role"]), "scope": tuple(row["scope"])})
            for row in rows
        ]

    async def put(self, row: KeyRow) -> None:
        """Add a key; its prefix is new."""
        async with self._engine.begin() as connection:
            await connection.execute(insert(_KEYS).values(_columns(row)))

    async def replace(self, row: KeyRow) -> bool:
        """Change the key of this prefix; False if there is none any more: a key that was revoked
        meanwhile is not brought back."""
        statement = update(_KEYS).where(_KEYS.c.prefix == row.prefix).values(_columns(row))
        async with self._engine.begin() as connection:
            return (await connection.execute(statement)).rowcount == 1

    async def delete(self, prefix: str) -> bool:
        """Remove a key; False if there is none."""
        statement = delete(_KEYS).where(_KEYS.c.prefix == prefix)
        async with self._engine.begin() as connection:
            return (await connection.execute(statement)).rowcount == 1


def _columns(row: KeyRow) -> dict[str, Any]:
    columns: dict[str, Any] = {column.name: getattr(row, column.name) for column in _KEYS.columns}
    return columns | {"role": row.role.value, "scope": list(row.scope)}
