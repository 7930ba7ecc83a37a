"""The history of monitor states, as database rows.

The transaction that changes a state or an alert phase also writes its row. So the history has every
change once, for any replica that wrote it and any that was killed. Each new row deletes the oldest
rows beyond ``monitor_history``, and states that ended more than ``monitor_history_s`` ago. The
present state always stays.

Each group of an alert has its own history. Groups share the limit of the monitor: each retains the
limit divided by the number of groups that the alert may have, and all together retain the limit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from api.journal.monitor_tables import group_states as _group_states
from api.journal.monitor_tables import states as _states
from api.journal.storage import Reader, Writer
from decaysketch.monitor import Alert, State

__all__ = ["Entry", "Retention", "begin", "entry_of", "insert", "insert_group", "read"]

_s, _g = _states.c, _group_states.c
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


def begin(tx: Writer, monitor: int, alert: Alert, now_us: int, spec: Mapping[str, Any]) -> None:
    """Enter that a monitor was defined, or redefined, and is not evaluated yet."""
    line = spec.get("above", spec.get("below"))
    found = _UNKNOWN | {"threshold": line, "explanation": "The monitor was defined."}
    _put(tx, monitor, now_us, "uncertain", alert, found)


def insert(
    tx: Writer, monitor: int, alert: Alert, now_us: int, found: tuple[State, str], kept: Retention
) -> None:
    """Add a state and its explanation, and delete entries beyond the retention time."""
    state, text = found
    _put(tx, monitor, now_us, state.verdict, alert, entry_of(state, text))
    mine = _s.monitor_id == monitor
    _drop(tx, _states, mine, kept.states)
    # A state ends when the next one begins: the newest that began before the limit is retained.
    newest = sa.select(_s.id).where(mine).order_by(_s.id.desc())
    old = tx.select(newest.where(_s.at_us <= now_us - kept.age_us).limit(1))
    if old:
        tx.execute(_states.delete().where(mine, _s.id < old[0].id))


def entry_of(state: State, text: str) -> dict[str, Any]:
    """Return the history entry for a state, with its explanation."""
    said = state.to_dict()
    return {name: said[name] for name in _KEPT} | {"explanation": text}


def insert_group(
    tx: Writer, monitor: int, key: str, entry: Entry, kept: Retention, groups: int
) -> None:
    """Add a group's state, and delete entries beyond the retention time.

    Args:
        key: of the group.
        entry: the state.
        groups: how many groups the alert may have.
    """
    said = {"at_us": entry.at_us, "state": entry.state, "alert": entry.alert}
    of_it = {"monitor_id": monitor, "group_key": key, "found": json.dumps(entry.found)}
    tx.execute(_group_states.insert().values(**of_it, **said))
    all_of_it = _g.monitor_id == monitor
    each = max(kept.states // groups, 2)
    _drop(tx, _group_states, sa.and_(all_of_it, _g.group_key == key), each)
    _drop(tx, _group_states, all_of_it, each * groups)
    old = sa.and_(all_of_it, _g.at_us <= entry.at_us - kept.age_us)
    tx.execute(_group_states.delete().where(old))


def _drop(tx: Writer, table: sa.Table, mine: Any, states: int) -> None:
    """Delete the oldest rows beyond a number."""
    newest = sa.select(table.c.id).where(mine).order_by(table.c.id.desc())
    if beyond := tx.select(newest.offset(states).limit(1)):
        tx.execute(table.delete().where(mine, table.c.id <= beyond[0].id))


def read(
    rx: Reader, monitor: int, begin_us: int, end_us: int, limit: int, group: str | None = None
) -> tuple[list[Entry], bool]:
    """States that a monitor, or one of its groups, had between ``begin_us`` and before ``end_us``,
    oldest first, at most the newest ``limit``, and whether no older one was cut off."""
    table = _states if group is None else _group_states
    of = table.c
    mine: Any = of.monitor_id == monitor
    if group is not None:
        mine = sa.and_(mine, of.group_key == group)
    last = sa.select(of.id).where(mine).order_by(of.id.desc()).limit(1)
    first = rx.select(last.where(of.at_us <= begin_us))
    within = sa.select(table).where(mine, of.at_us < end_us)
    if first:
        within = within.where(of.id >= first[0].id)
    rows = list(rx.select(within.order_by(of.id.desc()).limit(limit + 1)))
    more = len(rows) > limit
    rows = rows[:limit]
    after = _next(rx, table, mine, rows[0].id) if rows else None
    found: list[Entry] = []
    for row in rows:
        found.append(Entry(row.at_us, after, row.state, row.alert, json.loads(row.found)))
        after = row.at_us
    return found[::-1], not more


def _next(rx: Reader, table: sa.Table, mine: Any, number: int) -> int | None:
    """Return when the row after this one began."""
    later = sa.select(table.c.at_us).where(mine, table.c.id > number)
    rows = rx.select(later.order_by(table.c.id).limit(1))
    return rows[0].at_us if rows else None


def _put(
    tx: Writer, monitor: int, now_us: int, state: str, alert: Alert, found: Mapping[str, Any]
) -> None:
    tx.execute(
        _states.insert().values(
            monitor_id=monitor,
            at_us=now_us,
            state=state,
            alert=alert.phase,
            found=json.dumps(found),
        )
    )
