"""The database version: created, raised by numbered steps, or rejected.

One row stores the version. A release raises it when it stores data that the release before cannot
read. So an older release rejects a newer database at its start and changes nothing. Each step runs
in the transaction that opens the database: a start that fails leaves the version before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import sqlalchemy as sa

from api.journal import changes, lease, monitor_tables, tables
from api.journal.log import StorageError
from api.journal.migration import migrate

__all__ = ["bring_up_to_date", "create_others", "prepare"]

_CREATION_LOCK = 0x6465636179  # "decay"; PostgreSQL: held by the process that creates the tables


def prepare(connection: sa.Connection) -> None:
    """Create the tables if there are none, or bring them up to date.

    Args:
        connection: in a writing transaction of its own.

    Raises:
        StorageError: the tables are of a newer version, or a post of an old one cannot be read.
    """
    if connection.dialect.name == "postgresql":
        # Two that create one table at the same time fail there, whether or not it "exists".
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))
    present = sa.inspect(connection).get_table_names()
    if tables.schema_version.name not in present:
        if tables.streams.name in present:
            migrate(connection)
        else:
            tables.create(connection)
        create_others(connection)
    bring_up_to_date(connection)


def bring_up_to_date(connection: sa.Connection) -> None:
    """Run the steps from the version found to the one of this release.

    Raises:
        StorageError: the version found is newer than this release.
    """
    column = tables.schema_version.c.version
    found = connection.execute(sa.select(column)).scalars().all()
    if len(found) != 1 or not 1 <= found[0] <= tables.VERSION:
        raise StorageError(
            f"the tables are of version {found}; this release reads versions 1 to "
            f"{tables.VERSION}. Start the release that wrote them, or a newer one"
        )
    for number in range(found[0], tables.VERSION):
        _STEPS[number](connection)
    if found[0] < tables.VERSION:
        connection.execute(tables.schema_version.update().values(version=tables.VERSION))


def create_others(connection: sa.Connection) -> None:
    """Create the tables of monitors, lists, queries, leases and changes. Between versions 1 and 2
    some of them came without a new version, so they may exist.
    """
    monitor_tables.prepare(connection)
    lease.prepare(connection)
    changes.prepare(connection)


_STEPS: Mapping[int, Callable[[sa.Connection], None]] = MappingProxyType(
    {1: create_others, 2: monitor_tables.prepare}
)
"""The step from each version's database to the next version."""
