"""The monitor tables, next to the journal's: monitor definitions, the rows that each participating
source may hold unposted, past states, the groups of an alert, and undelivered alerts. For top-k
lists: the last request, and each site's last report. Also the configured queries, to be scraped.

Databases have them from version 2 on, and groups from version 3 on (:mod:`api.journal.versions`).
A row that belongs to a stream or a monitor is deleted with it.

Times are microseconds since 1970 UTC.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from api.journal import tables
from api.journal.creation import create_missing

__all__ = [
    "accounts",
    "functions",
    "group_states",
    "groups",
    "lists",
    "metadata",
    "monitors",
    "outbox",
    "prepare",
    "questions",
    "states",
    "words",
]

metadata = sa.MetaData(naming_convention=tables.metadata.naming_convention)

_Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _of(name: str, table: sa.Table, **options: Any) -> sa.Column[int]:
    """Return a reference to a row's owner in another table. The row is deleted with its owner."""
    return sa.Column(name, _Key, sa.ForeignKey(table.c.id, ondelete="CASCADE"), **options)


monitors = sa.Table(
    "monitors",
    metadata,
    sa.Column("id", _Key, sa.Identity(always=False), primary_key=True),
    _of("stream_id", tables.streams, nullable=False),
    sa.Column("name", _Text, nullable=False),
    sa.Column("spec", sa.Text, nullable=False),  # as JSON
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),  # of what follows: one writer wins
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("since_us", sa.BigInteger, nullable=False),
    sa.Column("alert", sa.Text, nullable=False),  # as JSON: its phase, and since when
    sa.Column("sequence", sa.BigInteger, nullable=False),  # of the last event
    sa.UniqueConstraint("stream_id", "name"),
    sqlite_autoincrement=True,  # an id is never used twice
)

accounts = sa.Table(
    "monitor_accounts",
    metadata,
    _of("monitor_id", monitors, primary_key=True, autoincrement=False),
    sa.Column("source", _Text, primary_key=True),
    sa.Column("account", sa.Text, nullable=False),  # as JSON
)

states = sa.Table(
    "monitor_states",
    metadata,
    sa.Column("id", _Key, sa.Identity(always=False), primary_key=True),
    _of("monitor_id", monitors, nullable=False),
    sa.Column("at_us", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("alert", sa.Text, nullable=False),  # the phase
    sa.Column("found", sa.Text, nullable=False),  # value, bounds and reason, as JSON
    sa.Index("ix_monitor_states_monitor_id_id", "monitor_id", "id"),
    sqlite_autoincrement=True,
)

groups = sa.Table(
    "monitor_groups",
    metadata,
    _of("monitor_id", monitors, primary_key=True, autoincrement=False),
    sa.Column("group_key", _Text, primary_key=True),  # its keys, as JSON
    sa.Column("tracked", sa.Text, nullable=False),  # state and alert, as JSON
)

group_states = sa.Table(
    "monitor_group_states",
    metadata,
    sa.Column("id", _Key, sa.Identity(always=False), primary_key=True),
    _of("monitor_id", monitors, nullable=False),
    sa.Column("group_key", _Text, nullable=False),
    sa.Column("at_us", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("alert", sa.Text, nullable=False),
    sa.Column("found", sa.Text, nullable=False),
    sa.Index("ix_monitor_group_states_group", "monitor_id", "group_key", "id"),
    sqlite_autoincrement=True,
)

outbox = sa.Table(
    "monitor_outbox",
    metadata,
    sa.Column("id", _Key, sa.Identity(always=False), primary_key=True),
    sa.Column("alert", _Text, nullable=False),  # names its monitor, never another one
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("created_us", sa.BigInteger, nullable=False),
    sa.Column("attempts", sa.BigInteger, nullable=False),
    sa.Column("next_us", sa.BigInteger, nullable=False),  # not to be tried before
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("alert", "sequence"),
    sqlite_autoincrement=True,
)

lists = sa.Table(
    "topk_lists",
    metadata,
    sa.Column("id", _Key, sa.Identity(always=False), primary_key=True),
    _of("stream_id", tables.streams, nullable=False),
    sa.Column("name", _Text, nullable=False),
    sa.Column("spec", sa.Text, nullable=False),  # as JSON
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),  # of what follows: one writer wins
    sa.Column("asked", sa.Text, nullable=True),  # of sites, as JSON; nothing yet in this epoch
    sa.Column("last_as_of", sa.BigInteger, nullable=True),  # of any epoch
    sa.Column("opened_us", sa.BigInteger, nullable=False),  # when that round was
    sa.Column("found", sa.Text, nullable=True),  # the list, as JSON
    sa.UniqueConstraint("stream_id", "name"),
    sqlite_autoincrement=True,
)

words = sa.Table(
    "topk_words",
    metadata,
    _of("list_id", lists, primary_key=True, autoincrement=False),
    sa.Column("source", _Text, primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("as_of", sa.BigInteger, nullable=False),  # earlier words are invalid
    sa.Column("inc", sa.BigInteger, nullable=False),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("serial", sa.BigInteger, nullable=False),  # of the ask that it follows
    sa.Column("told", sa.BigInteger, nullable=False),
    sa.Column("post", sa.Text, nullable=False),  # as JSON
)

functions = sa.Table(
    "monitor_functions",
    metadata,
    sa.Column("id", _Key, sa.Identity(always=False), primary_key=True),
    _of("stream_id", tables.streams, nullable=False),
    sa.Column("name", _Text, nullable=False),
    sa.Column("spec", sa.Text, nullable=False),  # as JSON
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),  # of what follows: one writer wins
    sa.Column("state", sa.Text, nullable=True),  # of the hub, as JSON; nothing yet in this epoch
    sa.Column("alerts", sa.Text, nullable=True),  # that fire, as JSON: since when, by key
    sa.UniqueConstraint("stream_id", "name"),
    sqlite_autoincrement=True,
)

questions = sa.Table(
    "configured_questions",
    metadata,
    _of("stream_id", tables.streams, primary_key=True, autoincrement=False),
    sa.Column("name", _Text, primary_key=True),
    sa.Column("set_name", _Text, nullable=False),
    sa.Column("query", sa.Text, nullable=False),  # as JSON
)


def prepare(connection: sa.Connection) -> None:
    """Create missing tables, in an exclusive writing transaction."""
    create_missing(connection, metadata)
