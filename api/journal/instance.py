"""What tells a database from every other one, its own copies and backups included.

One row, which is no part of what the database holds, so that no backup has it:

- an *identity*, drawn when the tables are made, and again by every restore. A process keeps to the
  database that it has opened: under the same address there may be another one by now, restored
  beside it, and to read or write that one as if it were the first would lose something silently.
- a *proof*, written over to see whether the database takes writes: it is synced as a post is, and
  no row comes of it.

A file of SQLite may be replaced or removed under the connections that hold it open. What is written
then is gone with the last of them, so the name must still be that of the file that was opened.
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
    """The identity; it is drawn if there is none. In a writing transaction that nobody else is in,
    since databases of releases before have no such table."""
    metadata.create_all(connection)
    found: str | None = connection.execute(sa.select(table.c.identity)).scalar_one_or_none()
    return renew(connection) if found is None else found


def renew(connection: sa.Connection) -> str:
    """Make it another database than it was, in the same manner; its identity."""
    metadata.create_all(connection)
    connection.execute(table.delete())
    identity = secrets.token_hex(16)
    connection.execute(table.insert().values(id=1, identity=identity, proof=b""))
    return identity


class Opened:
    """The database that this process has opened. Once it was found to be another one it stays so:
    what this process holds in memory is of the first.

    Args:
        url: of the database.
    """

    def __init__(self, url: sa.URL) -> None:
        name = url.database or ""
        is_file = url.get_backend_name() == "sqlite" and not name.startswith((":memory:", "file:"))
        self._path = Path(name) if is_file and name else None
        self._file: tuple[int, int] | None = None
        self._identity: str | None = None
        self._fault: str | None = None

    def keep_to(self, identity: str) -> None:
        """From now on it must be this one."""
        self._identity = identity
        self._file = self._found()

    def check(self, identity: str | None) -> None:
        """Raises AnotherDatabaseError: this identity was read, and is another one."""
        if self._identity is not None and identity != self._identity:
            self._fault = f"it is database {identity}, and this process has opened {self._identity}"
        self._raise()

    def check_file(self) -> None:
        """Raises AnotherDatabaseError: another file, or none, has the name by now; or what was
        found before."""
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
        """Device and number of the file of that name."""
        if self._path is None:
            return None
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino
