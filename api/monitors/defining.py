"""Shared parts for definitions: monitors, functions, top-k lists and configured queries."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from api.errors import Fault, InvalidRequestError, UnknownStreamError
from api.journal import tables
from api.journal.storage import Reader, Writer

__all__ = ["Definitions", "Limit", "begin", "check_room", "named", "refused", "remove", "renewed"]


class Limit(NamedTuple):
    """The maximum number of definitions.

    Attributes:
        of_stream, in_all: rows per stream, and in all.
        error: made from the place with too many rows, their number, and the limit.
    """

    of_stream: int
    in_all: int
    error: Callable[[str, int, int], Exception]


def named(table: sa.Table, stream_id: int, name: str) -> sa.ColumnElement[bool]:
    """Return the condition for the row with this name on a stream."""
    return sa.and_(table.c.stream_id == stream_id, table.c.name == name)


def begin(tx: Writer, stream: tuple[int, str]) -> None:
    """Lock the head, and check that the stream still exists.

    Args:
        stream: its id and name.

    Raises:
        UnknownStreamError: the stream was deleted since.
    """
    tx.lock_head()
    if not tx.select(sa.select(tables.streams.c.id).where(tables.streams.c.id == stream[0])):
        raise UnknownStreamError(stream[1])


def renewed(old: Any, now_us: int) -> dict[str, int]:
    """Return the epoch and version for the new definition of a row. No epoch is used twice."""
    return {"epoch": max(old.epoch + 1, now_us), "version": old.version + 1}


@dataclass(frozen=True, slots=True)
class Definitions:
    """The definitions in one table.

    Attributes:
        table: with columns ``stream_id``, ``name``, ``spec``, ``epoch`` and ``version``.
        error: of a :class:`Limit`.
        beginning: columns for a new epoch.
        reports: column of another table with the ids of rows, which loses a row's reports when that
            is redefined.
    """

    table: sa.Table
    error: Callable[[str, int, int], Exception]
    beginning: Mapping[str, Any]
    reports: sa.Column[int] | None = None

    def define(
        self, tx: Writer, stream: tuple[int, str], name: str, spec: Mapping[str, Any], *,
        now_us: int, of_stream: int, in_all: int,
    ) -> bool:  # fmt: skip
        """Add a row, or redefine the one with this name. The same spec again changes nothing.

        Args:
            stream: its id and name.
            spec: as JSON, checked.
            of_stream, in_all: the maximum number of rows.

        Returns:
            Whether it is new.

        Raises:
            UnknownStreamError: the stream was deleted since.
            Exception: ``error``, if there are as many already.
        """
        begin(tx, stream)
        table, mine = self.table, named(self.table, stream[0], name)
        c, values = table.c, {"spec": json.dumps(spec, sort_keys=True), **self.beginning}
        found = tx.select(sa.select(c.id, c.spec, c.epoch, c.version).where(mine))
        if found and found[0].spec == values["spec"]:
            return False
        if found:
            if self.reports is not None:
                tx.execute(self.reports.table.delete().where(self.reports == found[0].id))
            values |= renewed(found[0], now_us)
            tx.execute(table.update().where(mine).values(**values))
            return False
        check_room(tx, table, stream, Limit(of_stream, in_all, self.error))
        begun = {"stream_id": stream[0], "name": name, "epoch": now_us, "version": 0}
        tx.execute(table.insert().values(**begun, **values))
        return True

    def remove(self, tx: Writer, stream_id: int, name: str) -> bool:
        """Delete the row with this name on a stream. Return False if there is none."""
        return remove(tx, self.table, stream_id, name)


def remove(tx: Writer, table: sa.Table, stream_id: int, name: str) -> bool:
    """Delete the row with this name on a stream. Return False if there is none."""
    tx.lock_head()
    return bool(tx.execute(table.delete().where(named(table, stream_id, name))))


def check_room(
    rx: Reader,
    table: sa.Table,
    stream: tuple[int, str],
    limit: Limit,
) -> None:
    """Check whether one more row fits.

    Args:
        table: with a column ``stream_id``.
        stream: its id and name.

    Raises:
        Exception: the limit's error.
    """
    count = sa.select(sa.func.count()).select_from(table)
    mine = count.where(table.c.stream_id == stream[0])
    for where, few, here in zip(
        (f"stream {stream[1]!r} has", "there are"), limit[:2], (mine, count), strict=True
    ):
        (there,) = (rx.select(here))[0]
        if there >= few:
            raise limit.error(where, there, few)


def refused(field: str, reason: str, value: Any, expected: Any = None) -> InvalidRequestError:
    """Return an error about a forbidden part of a definition."""
    fault = Fault(field=field, reason=reason, value=value, expected=expected)
    return InvalidRequestError(f"{field}: {reason}", [fault])
