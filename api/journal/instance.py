"""A database's identity. It differs from every other database's, including copies and backups.

One row. It is not part of the database's content, so no backup has it:

- an *identity*, drawn when the tables are created, and again by every restore. A process keeps to
  the database that it has opened. The same address may lead to another database by now, restored
  next to it. Reading or writing that one as if it were the first would lose data silently.
- a *proof*, overwritten to check whether the database accepts writes. It is synced like a post, and
  adds no row.
"""

from __future__ import annotations

import secrets

import sqlalchemy as sa

from api.journal.creation import create_missing

__all__ = ["metadata", "prepare", "renew", "table"]

metadata = sa.MetaData()
table = sa.Table(
    "instance",
    metadata,
    sa.Column(
        "id",
        sa.Integer,
        sa.CheckConstraint("id = 1", "ck_instance_one_row"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("identity", sa.Text, nullable=False),
    sa.Column("proof", sa.LargeBinary, nullable=False),
)


def prepare(connection: sa.Connection) -> str:
    """Return the identity, and draw it if there is none. In an exclusive writing transaction, since
    databases of earlier releases have no such table.
    """
    create_missing(connection, metadata)
    found: str | None = connection.execute(sa.select(table.c.identity)).scalar_one_or_none()
    return renew(connection) if found is None else found


def renew(connection: sa.Connection) -> str:
    """Give the database another identity, in the same manner, and return it."""
    create_missing(connection, metadata)
    connection.execute(table.delete())
    identity = secrets.token_hex(16)
    connection.execute(table.insert().values(id=1, identity=identity, proof=b""))
    return identity
