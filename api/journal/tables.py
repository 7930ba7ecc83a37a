"""The stream tables and the journal tables.

Bodies stand last in their rows: SQLite reads a row from its beginning, and reads the columns before
a body without it. Text is compared byte by byte, so an index does not depend on an operating system
locale. Times are microseconds since 1970 UTC.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from api.journal.creation import create_missing

__all__ = [
    "VERSION",
    "head",
    "journal",
    "ledger",
    "metadata",
    "revocations",
    "snapshots",
    "streams",
]

VERSION = 3
"""Raise it, with a step in ``versions``, when a release stores data that the previous release
cannot read: a table, a column, a field in a stored document, a family."""

metadata = sa.MetaData(
    naming_convention={  # other names than PostgreSQL gives by itself, which releases before had
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

_Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_Digest = sa.LargeBinary(32)


def _stream_key(*, primary: bool = False) -> sa.Column[Any]:
    return sa.Column(
        "stream_id",
        _Key,
        sa.ForeignKey("streams.id"),
        primary_key=primary,
        autoincrement=False,
        nullable=False,
    )


schema_version = sa.Table(
    "schema_version",
    metadata,
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
)

head = sa.Table(
    "head",
    metadata,
    sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1", "one_row"), primary_key=True),
    sa.Column("last", sa.BigInteger, nullable=False),
    sa.Column("deleted", sa.BigInteger, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("catalog", sa.BigInteger, nullable=False),
)

streams = sa.Table(
    "streams",
    metadata,
    sa.Column("id", _Key, sa.Identity(always=False), primary_key=True),
    sa.Column("name", _Text, nullable=False, unique=True),
    sa.Column("incarnation", _Text, nullable=False),
    sa.Column("recipe", sa.Text, nullable=False),  # as JSON, with the other fields of StreamRow
    sa.Column("created_us", sa.BigInteger, nullable=False),
    sa.Column("max_clock_skew_s", sa.Double),
    sa.Column("id_key", sa.LargeBinary),
    sqlite_autoincrement=True,  # an id is never used twice
)

journal = sa.Table(
    "journal",
    metadata,
    sa.Column("seq", _Key, primary_key=True, autoincrement=False),
    _stream_key(),
    sa.Column("source", _Text, nullable=False),
    sa.Column("digest", _Digest, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("received_us", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("stream_id", "source", "digest"),
)

snapshots = sa.Table(
    "snapshots",
    metadata,
    _stream_key(primary=True),
    sa.Column("source", _Text, primary_key=True),
    sa.Column("generation", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("upto", sa.BigInteger, nullable=False),
    sa.Column("digest", _Digest, nullable=False),
    sa.Column("posts", sa.BigInteger, nullable=False),
    sa.Column("posted_bytes", sa.BigInteger, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("last_received_us", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

ledger = sa.Table(
    "ledger",
    metadata,
    _stream_key(primary=True),
    sa.Column("source", _Text, primary_key=True),
    sa.Column("first", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("next", sa.BigInteger, nullable=False),  # one past the last
    sa.Column("digest", _Digest, nullable=False),  # of the body
    sa.CheckConstraint("first < next", "not_empty"),
)

revocations = sa.Table(
    "revocations",
    metadata,
    _stream_key(primary=True),
    sa.Column("source", _Text, primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("active", sa.Boolean, nullable=False),
)


def create(connection: sa.Connection) -> None:
    """Create the tables, with a head that has written nothing. None may exist."""
    create_missing(connection, metadata)
    if connection.dialect.name == "postgresql":
        for table in (journal, snapshots):  # sketches are packed: compressing them gains nothing
            connection.execute(
                sa.text(f"ALTER TABLE {table.name} ALTER COLUMN body SET STORAGE EXTERNAL")
            )
    connection.execute(head.insert().values(id=1, last=0, deleted=0, generation=0, catalog=0))
    connection.execute(schema_version.insert().values(version=VERSION))
