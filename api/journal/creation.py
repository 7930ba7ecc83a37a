"""The statements that create tables, compiled once in a process.

To compile them takes longer than to run them, and each engine of SQLAlchemy compiles them again.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.schema import CreateIndex, CreateTable

__all__ = ["create_missing"]

_compiled: dict[tuple[sa.MetaData, str], dict[str, list[str]]] = {}


def create_missing(connection: sa.Connection, metadata: sa.MetaData) -> None:
    """Create the tables that the database does not have, with their indexes.

    Args:
        connection: in an exclusive writing transaction.
        metadata: the tables.
    """
    key = metadata, connection.dialect.name
    if (statements := _compiled.get(key)) is None:
        statements = _compiled[key] = _statements(metadata, connection.dialect)
    present = set(sa.inspect(connection).get_table_names())
    for table, creations in statements.items():
        if table not in present:
            for each in creations:
                connection.exec_driver_sql(each)


def _statements(metadata: sa.MetaData, dialect: sa.Dialect) -> dict[str, list[str]]:
    """The statements by table, in the order of foreign keys."""
    found = {}
    for table in metadata.sorted_tables:
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        found[table.name] = [
            str(CreateTable(table).compile(dialect=dialect)),
            *(str(CreateIndex(index).compile(dialect=dialect)) for index in indexes),
        ]
    return found
