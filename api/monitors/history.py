"""The history of monitor states, as database rows.

The transaction that changes a state or an alert phase also writes its row. So the history has every
change once, for any replica that wrote it and any that was killed. Each new row deletes the oldest
rows beyond ``monitor_history``, and states that ended more than ``monitor_history_s`` ago. The
present state always stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from api.journal.monitor_tables import states as _states
from api.journal.storage import Reader, Writer
from decaysketch.monitor import Alert, State

__all__ = ["Entry", "Retention", "begin", "insert", "read"]

_s = _states.c
_KEPT = ("reason", "value", "lower", "upper", "threshold")
_UNKNOWN = dict.fromkeys(_KEPT)


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits for the retained history.

    Attributes:
        states: rows for each monitor.
        age_us: age in microseconds. States that ended longer ago are dropped.
    """

    states: int
    age_us: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A state that a monitor had.

    Attributes:
        at_us: when it began, in microseconds since 1970 UTC.
        until_us: when it ended. None: it is the present one.
        alert: the alert's phase.
        found: ``reason``, ``value``, ``lower``, ``upper``, ``threshold`` and ``explanation``.
    """

    at_us: int
    until_us: int | None
    state: str
    alert: str
    found: Mapping[str, Any]


async def begin(
    tx: Writer, monitor: int, alert: Alert, now_us: int, spec: Mapping[str, Any]
) -> None:
    """Enter that a monitor was defined, or redefined, and is not evaluated yet."""
    line = spec.get("above", spec.get("below"))
    found = _UNKNOWN | {"threshold": line, "explanation": "The monitor was defined."}
    await _put(tx, monitor, now_us, "uncertain", alert, found)


async def insert(
    tx: Writer, monitor: int, alert: Alert, now_us: int, found: tuple[State, str], kept: Retention
) -> None:
    """Enter a state and its explanation, and drop what the retention no longer covers."""
    state, text = found
    said = state.to_dict()
    entry = {name: said[name] for name in _KEPT} | {"explanation": text}
    await _put(tx, monitor, now_us, state.verdict, alert, entry)
    mine = _s.monitor_id == monitor
    newest = sa.select(_s.id).where(mine).order_by(_s.id.desc())
    beyond = await tx.select(newest.offset(kept.states).limit(1))
    if beyond:
        await tx.execute(_states.delete().where(mine, _s.id <= beyond[0].id))
    # A state ends when the next one begins: the newest that began before the limit is retained.
    old = await tx.select(newest.where(_s.at_us <= now_us - kept.age_us).limit(1))
    if old:
        await tx.execute(_states.delete().where(mine, _s.id < old[0].id))


async def read(
    rx: Reader, monitor: int, begin_us: int, end_us: int, limit: int
) -> tuple[list[Entry], bool]:
    """States that a monitor had between ``begin_us`` and before ``end_us``, oldest first, at most
    the newest ``limit``, and whether no older one was cut off."""
    mine = _s.monitor_id == monitor
    last = sa.select(_s.id).where(mine).order_by(_s.id.desc()).limit(1)
    first = await rx.select(last.where(_s.at_us <= begin_us))
    within = sa.select(_states).where(mine, _s.at_us < end_us)
    if first:
        within = within.where(_s.id >= first[0].id)
    rows = list(await rx.select(within.order_by(_s.id.desc()).limit(limit + 1)))
    more = len(rows) > limit
    rows = rows[:limit]
    after = await _next(rx, monitor, rows[0].id) if rows else None
    found: list[Entry] = []
    for row in rows:
        found.append(Entry(row.at_us, after, row.state, row.alert, json.loads(row.found)))
        after = row.at_us
    return found[::-1], not more


async def _next(rx: Reader, monitor: int, number: int) -> int | None:
    """Return when the row after this one began."""
    later = sa.select(_s.at_us).where(_s.monitor_id == monitor, _s.id > number)
    rows = await rx.select(later.order_by(_s.id).limit(1))
    return rows[0].at_us if rows else None


async def _put(
    tx: Writer, monitor: int, now_us: int, state: str, alert: Alert, found: Mapping[str, Any]
) -> None:
    await tx.execute(
        _states.insert().values(
            monitor_id=monitor,
            at_us=now_us,
            state=state,
            alert=alert.phase,
            found=json.dumps(found),
        )
    )
