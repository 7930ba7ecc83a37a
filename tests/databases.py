"""Databases for tests, each empty: SQLite files, and those of one PostgreSQL server.

The server is started once for a process, at first use.
"""

from __future__ import annotations

import atexit
import itertools
from functools import cache
from pathlib import Path

import pytest

from quality.postgres import Database, PostgresServer, ServerUnavailableError

__all__ = ["KINDS", "Database", "PostgresServer", "database", "new_database", "postgres_server"]

KINDS = ("sqlite", "postgresql")
_numbers = itertools.count(1)
_CONNECT_S = 600  # a busy disk may delay a new connection by more than the 5 s of the product


@cache
def postgres_server() -> PostgresServer:
    """The server of this process, running; the test is skipped where there can be none."""
    try:
        server = PostgresServer()
    except ServerUnavailableError as error:
        pytest.skip(f"no PostgreSQL: {error}")
    atexit.register(server.remove)
    server.start()
    return server


def new_database(kind: str, directory: Path) -> Database:
    """An empty database; a file is made in ``directory``."""
    if kind == "postgresql":
        made = postgres_server().create()
        return Database(kind, f"{made.url}&connect_timeout={_CONNECT_S}")
    return Database(kind, f"sqlite:///{directory / f'journal{next(_numbers)}.sqlite3'}")


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """An empty database of each kind."""
    return new_database(request.param, tmp_path)
