"""Shared parts for definitions: monitors, functions, top-k lists and configured queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from api.errors import Fault, InvalidRequestError, UnknownStreamError
from api.journal import tables
from api.journal.storage import Reader, Writer

__all__ = ["begin", "check_room", "named", "refused", "remove", "renewed"]


def named(table: sa.Table, stream_id: int, name: str) -> sa.ColumnElement[bool]:
    """Return the condition for the row with this name on a stream."""
    return sa.and_(table.c.stream_id == stream_id, table.c.name == name)


async def begin(tx: Writer, stream: tuple[int, str]) -> None:
    """Lock the head, and check that the stream still exists.

    Args:
        stream: its id and name.

    Raises:
        UnknownStreamError: the stream was deleted since.
    """
    await tx.lock_head()
    if not await tx.select(sa.select(tables.streams.c.id).where(tables.streams.c.id == stream[0])):
        raise UnknownStreamError(stream[1])


def renewed(old: Any, now_us: int) -> dict[str, int]:
    """Return the epoch and version for the new definition of a row. No epoch is used twice."""
    return {"epoch": max(old.epoch + 1, now_us), "version": old.version + 1}


async def remove(tx: Writer, table: sa.Table, stream_id: int, name: str) -> bool:
    """Delete the row with this name on a stream. Return False if there is none."""
    await tx.lock_head()
    return bool(await tx.execute(table.delete().where(named(table, stream_id, name))))


async def check_room(
    rx: Reader,
    table: sa.Table,
    stream: tuple[int, str],
    most: tuple[int, int],
    error: Callable[[str, int, int], Exception],
) -> None:
    """Check whether one more row fits.

    Args:
        table: with a column ``stream_id``.
        stream: its id and name.
        most: rows per stream, and in all.
        error: made from the place with too many rows, their number, and the limit.

    Raises:
        Exception: that error.
    """
    count = sa.select(sa.func.count()).select_from(table)
    mine = count.where(table.c.stream_id == stream[0])
    for where, few, here in zip(
        (f"stream {stream[1]!r} has", "there are"), most, (mine, count), strict=True
    ):
        (there,) = (await rx.select(here))[0]
        if there >= few:
            raise error(where, there, few)


def refused(field: str, reason: str, value: Any, expected: Any = None) -> InvalidRequestError:
    """Return an error about a forbidden part of a definition."""
    fault = Fault(field=field, reason=reason, value=value, expected=expected)
    return InvalidRequestError(f"{field}: {reason}", [fault])
