"""A database's identity. It differs from every other database's, including copies and backups.

One row. It is not part of the database's content, so no backup has it:

- an *identity*, drawn when the tables are created, and again by every restore. A process keeps to
  the database that it has opened. The same address may lead to another database by now, restored
  next to it. Reading or writing that one as if it were the first would lose data silently.
- a *proof*, overwritten to check whether the database accepts writes. It is synced like a post, and
  adds no row.

A SQLite file may be replaced or removed while connections have it open. Later writes are gone with
the last connection, so the name must still be that of the opened file.
"""

from __future__ import annotations

import secrets
from pathlib import Path

import sqlalchemy as sa

from api.journal.model import AnotherDatabaseError

__all__ = ["Opened", "metadata", "prepare", "renew", "table"]

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
    metadata.create_all(connection)
    found: str | None = connection.execute(sa.select(table.c.identity)).scalar_one_or_none()
    return renew(connection) if found is None else found


def renew(connection: sa.Connection) -> str:
    """Give the database another identity, in the same manner, and return it."""
    metadata.create_all(connection)
    connection.execute(table.delete())
    identity = secrets.token_hex(16)
    connection.execute(table.insert().values(id=1, identity=identity, proof=b""))
    return identity


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
            self._fault = f"{self._path} {is_there} since this process has opened it"
        self._raise()

    def _raise(self) -> None:
        if self._fault is not None:
            raise AnotherDatabaseError(
                f"the database is not the one that was read: {self._fault}; restart it"
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
