"""Leases: they choose one among several processes over one database, for work that one process can
do.

A row names the lease holder, and the end by its clock. The holder renews it long before that. If
the holder dies, the lease stays until then. Machine clocks differ, so for a moment two processes
may believe that they have it. Use it for work that does no harm when it is done twice.
"""

from __future__ import annotations

import sqlalchemy as sa

from api.journal.creation import create_missing
from api.journal.storage import Writer

__all__ = ["metadata", "prepare", "release", "take"]

metadata = sa.MetaData()
_table = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.String(100), primary_key=True),
    sa.Column("holder", sa.String(100), nullable=False),
    sa.Column("until_us", sa.BigInteger, nullable=False),
)
_c = _table.c

_AHEAD = 10
"""A lease that lasts so many times longer than it may was set by a wrong clock."""


def prepare(connection: sa.Connection) -> None:
    """Create the table, in an exclusive writing transaction. Databases from earlier releases
    have none.
    """
    create_missing(connection, metadata)


def take(tx: Writer, name: str, holder: str, now_us: int, lasts_us: int) -> bool:
    """Take a lease or renew it. Return False if another process has it."""
    tx.lock_head()
    free = sa.or_(
        _c.holder == holder, _c.until_us <= now_us, _c.until_us > now_us + _AHEAD * lasts_us
    )
    mine = {"holder": holder, "until_us": now_us + lasts_us}
    if tx.execute(_table.update().where(_c.name == name, free).values(**mine)):
        return True
    if tx.select(sa.select(_c.name).where(_c.name == name)):
        return False
    tx.execute(_table.insert().values(name=name, **mine))
    return True


def release(tx: Writer, name: str, holder: str) -> None:
    """Release it to the next process."""
    tx.lock_head()
    tx.execute(_table.delete().where(_c.name == name, _c.holder == holder))
