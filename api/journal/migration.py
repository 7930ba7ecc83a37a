"""Databases from the release before versions: streams, a journal with all posts, and a ledger.

They had no head and no snapshots, numbered the journal by the database, and did not record how many
rows a body contains. Each body is decoded once for that.
"""

from __future__ import annotations

import json
import secrets

import sqlalchemy as sa

from api.journal import tables
from api.journal.log import StorageError
from decaysketch.errors import DecaySketchError
from decaysketch.families import Recipe, recipe_from_dict

__all__ = ["migrate"]

_FETCHED = 16  # rows at a time; a body may be long

_before = sa.MetaData()
_streams = sa.Table(
    "streams_before",
    _before,
    sa.Column("id", sa.BigInteger),
    sa.Column("name", sa.Text),
    sa.Column("params", sa.Text),  # a recipe, or where one family was known its parameters
    sa.Column("created_us", sa.BigInteger),
)
_journal = sa.Table(
    "journal_before",
    _before,
    sa.Column("seq", sa.BigInteger),
    sa.Column("stream_id", sa.BigInteger),
    sa.Column("source", sa.Text),
    sa.Column("digest", sa.LargeBinary),
    sa.Column("body", sa.LargeBinary),
    sa.Column("received_us", sa.BigInteger),
)
_ledger = sa.Table(
    "ledger_before",
    _before,
    sa.Column("stream_id", sa.BigInteger),
    sa.Column("source", sa.Text),
    sa.Column("first", sa.BigInteger),
    sa.Column("next", sa.BigInteger),
    sa.Column("digest", sa.LargeBinary),
)


def migrate(connection: sa.Connection) -> None:
    """Replace that release's tables by the present ones, in the open transaction. Takes the time to
    decode every post, and temporarily the journal's space once more.

    Raises:
        StorageError: a stream or a post cannot be read.
    """
    present = sa.inspect(connection).get_table_names()
    moved = [table for table in (_ledger, _journal, _streams) if _now(table) in present]
    for table in moved:
        connection.exec_driver_sql(f"ALTER TABLE {_now(table)} RENAME TO {table.name}")
    tables.create(connection)
    recipes = _move_streams(connection)
    if _journal in moved:
        _move_journal(connection, recipes)
    if _ledger in moved:
        connection.execute(tables.ledger.insert().from_select(_ledger.c.keys(), sa.select(_ledger)))
    for table in moved:
        connection.exec_driver_sql(f"DROP TABLE {table.name}")


def _now(table: sa.Table) -> str:
    return table.name.removesuffix("_before")


def _move_streams(connection: sa.Connection) -> dict[int, Recipe]:
    recipes: dict[int, Recipe] = {}
    for row in connection.execute(sa.select(_streams).order_by(_streams.c.id)).all():
        form = json.loads(row.params)
        try:
            recipe = recipe_from_dict(form if "family" in form else {"params": form})
        except DecaySketchError as error:
            raise StorageError(f"stream {row.name!r} cannot be read: {error}") from error
        recipes[row.id] = recipe
        connection.execute(
            tables.streams.insert().values(
                id=row.id,
                name=row.name,
                incarnation=secrets.token_hex(8),
                recipe=json.dumps(recipe.to_dict(), sort_keys=True),
                created_us=row.created_us,
            )
        )
    if recipes and connection.dialect.name == "postgresql":
        sequence = sa.func.pg_get_serial_sequence(tables.streams.name, "id")
        connection.execute(sa.select(sa.func.setval(sequence, max(recipes))))
    return recipes


def _move_journal(connection: sa.Connection, recipes: dict[int, Recipe]) -> None:
    last = 0
    page = (
        sa.select(_journal)
        .where(_journal.c.seq > sa.bindparam("last"))
        .order_by(_journal.c.seq)
        .limit(_FETCHED)
    )
    while found := connection.execute(page, {"last": last}).all():
        rows = []
        for row in found:
            try:
                held = len(recipes[row.stream_id].decode(row.body))
            except DecaySketchError as error:
                raise StorageError(f"entry {row.seq} cannot be read: {error}") from error
            rows.append({**row._mapping, "rows": held})
        connection.execute(tables.journal.insert(), rows)
        last = found[-1].seq
    connection.execute(tables.head.update().values(last=last))
