"""Rows for functions across sources, and the transactions that change them.

A row contains the definition and its hub's complete state as JSON. So any process accepts an
exchange, and a restart loses nothing. A process writes a state by compare-and-set on the version,
before it responds.

An *epoch* is its start time in microseconds since 1970. As with monitors, none is used twice, even
after a function was redefined or a backup was restored.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from api.errors import TooManyFunctionsError
from api.journal.monitor_tables import functions as _functions
from api.journal.storage import Reader, Writer
from api.monitors import outbox
from api.monitors.defining import Definitions, named
from api.monitors.outbox import Alert

__all__ = [
    "FUNCTIONS", "FunctionRow", "alert", "find", "numbers", "of_stream", "some", "step",
]  # fmt: skip

_f = _functions.c

FUNCTIONS = Definitions(_functions, TooManyFunctionsError, {"state": None})


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """A function, as it was defined, and its hub.

    Attributes:
        spec: ``FunctionSpec.to_dict()``.
        epoch: of the definition.
        version: changes whenever the state is written.
        state: the hub's state as JSON text. None: no source was heard in this epoch.
        alerts: those that fire, with the time at which each began, in microseconds since 1970.
    """

    id: int
    stream_id: int
    name: str
    spec: Mapping[str, Any]
    epoch: int
    version: int
    state: str | None
    alerts: Mapping[str, int]

    @property
    def number(self) -> tuple[int, int]:
        """Changes with the definition and the state."""
        return self.epoch, self.version


def _row(found: Any) -> FunctionRow:
    return FunctionRow(
        found.id, found.stream_id, found.name, json.loads(found.spec), found.epoch, found.version,
        found.state, _alerts(found.alerts),
    )  # fmt: skip


def _alerts(text: str | None) -> dict[str, int]:
    found: dict[str, int] = {} if text is None else json.loads(text)
    return found


def numbers(rx: Reader) -> dict[int, tuple[int, int]]:
    """Return each function's :attr:`FunctionRow.number`, by id."""
    found = rx.select(sa.select(_f.id, _f.epoch, _f.version))
    return {each.id: (each.epoch, each.version) for each in found}


def some(rx: Reader, ids: Collection[int]) -> list[FunctionRow]:
    """Return these functions, as far as they are there."""
    return [_row(each) for each in rx.select(sa.select(_functions).where(_f.id.in_(ids)))]


def of_stream(rx: Reader, stream_id: int) -> list[FunctionRow]:
    """Return a stream's functions, by name."""
    mine = sa.select(_functions).where(_f.stream_id == stream_id).order_by(_f.name)
    return [_row(each) for each in rx.select(mine)]


def find(rx: Reader, stream_id: int, name: str) -> FunctionRow | None:
    """Return a function, or None."""
    mine = named(_functions, stream_id, name)
    found = rx.select(sa.select(_functions).where(mine))
    return _row(found[0]) if found else None


def step(tx: Writer, row: FunctionRow, epoch: int, state: str) -> bool:
    """Write another state, and its epoch. Return False if another process did so since the row was
    read.
    """
    tx.lock_head()
    it = sa.and_(_f.id == row.id, _f.version == row.version)
    values = {"epoch": epoch, "state": state, "version": row.version + 1}
    return bool(tx.execute(_functions.update().where(it).values(**values)))


def alert(
    tx: Writer, row: FunctionRow, alerts: Mapping[str, int], messages: Sequence[Alert], now_us: int
) -> int | None:
    """Write the alerts that fire, and the messages about them. Return how many older messages were
    dropped for these, or None if another process has changed the alerts or the definition.
    """
    tx.lock_head()
    before = _f.alerts == json.dumps(row.alerts) if row.alerts else _f.alerts.is_(None)
    it = sa.and_(_f.id == row.id, _f.spec == json.dumps(row.spec, sort_keys=True), before)
    text = json.dumps(alerts) if alerts else None
    if not tx.execute(_functions.update().where(it).values(alerts=text)):
        return None
    return sum([outbox.insert(tx, message, now_us) for message in messages])
