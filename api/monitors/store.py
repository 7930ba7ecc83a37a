"""Rows for monitors and their sites' accounts, and the transactions that change them.

Grants are rows. The reporting post's transaction reads, makes and writes them. It locks the
journal's head from its first statement on, so that no two grants are made from the same charges. A
rejected post grants nothing, and a site learns of no grant before the commit. A server restart
loses none, and therefore changes no epoch.

An *epoch* is its start time in microseconds since 1970, so that none is used twice: not after a
redefinition, and not by a re-created monitor with the same name. It is not used again after a
backup was restored either. Grants may be lost then, and every monitor begins a new epoch.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa

from api.errors import TooManyMonitorsError
from api.journal.monitor_tables import accounts as _accounts
from api.journal.monitor_tables import groups as _groups
from api.journal.monitor_tables import monitors as _monitors
from api.journal.storage import Reader, Writer
from api.monitors import defining, history
from api.monitors.defining import Limit, begin, check_room, named, refused, renewed
from decaysketch.monitor import Account, Alert, Tracked

__all__ = [
    "MonitorRow",
    "accounts_of",
    "define",
    "every",
    "move",
    "of_stream",
    "put_account",
    "put_groups",
    "remove",
    "some",
    "versions",
]

_m, _a, _g = _monitors.c, _accounts.c, _groups.c
_TOGETHER = 500  # monitors of one statement


@dataclass(frozen=True, slots=True)
class MonitorRow:
    """A monitor, as it was defined, and its last reported state.

    Attributes:
        spec: ``Spec.to_dict()``.
        epoch: the epoch for its grants.
        version: changes whenever a later attribute is written.
        state: "calm", "firing" or "uncertain".
        since_us: when this state began.
        alert: its alert phase.
        sequence: the number of the last message about it.
        groups: its groups with their states, by key. Empty without ``by``.
    """

    id: int
    stream_id: int
    name: str
    spec: Mapping[str, Any]
    epoch: int
    version: int
    state: str
    since_us: int
    alert: Alert
    sequence: int
    groups: Mapping[str, Tracked] = field(default_factory=dict)

    @property
    def grouped(self) -> bool:
        """Whether each group has its own state."""
        return "by" in self.spec


def _row(found: Any) -> MonitorRow:
    return MonitorRow(
        found.id,
        found.stream_id,
        found.name,
        json.loads(found.spec),
        found.epoch,
        found.version,
        found.state,
        found.since_us,
        Alert.from_dict(json.loads(found.alert)),
        found.sequence,
    )


def every(rx: Reader) -> list[MonitorRow]:
    """Return all monitors, ordered by stream and name."""
    found = rx.select(sa.select(_monitors).order_by(_m.stream_id, _m.name))
    return [_row(each) for each in found]


def versions(rx: Reader) -> dict[int, tuple[int, int]]:
    """Return every monitor's epoch and version by id. They change with the row."""
    found = rx.select(sa.select(_m.id, _m.epoch, _m.version))
    return {each.id: (each.epoch, each.version) for each in found}


def some(rx: Reader, monitors: Collection[int]) -> list[MonitorRow]:
    """Return the monitors with these ids, where they exist, with their groups."""
    found: list[MonitorRow] = []
    for numbers in _parts(monitors):
        rows = rx.select(sa.select(_monitors).where(_m.id.in_(numbers)))
        found += [_row(each) for each in rows]
    groups = _groups_of(rx, [row.id for row in found if row.grouped])
    return [replace(row, groups=groups[row.id]) if row.grouped else row for row in found]


def _groups_of(rx: Reader, monitors: Collection[int]) -> dict[int, dict[str, Tracked]]:
    found: dict[int, dict[str, Tracked]] = {number: {} for number in monitors}
    for numbers in _parts(found):
        chosen = sa.select(_groups).where(_g.monitor_id.in_(numbers)).order_by(_g.group_key)
        for row in rx.select(chosen):
            found[row.monitor_id][row.group_key] = Tracked.from_dict(json.loads(row.tracked))
    return found


def put_groups(
    tx: Writer, monitor: int, before: Mapping[str, Tracked], after: Mapping[str, Tracked]
) -> None:
    """Write the groups that changed, and delete those that are gone."""
    of_it = _g.monitor_id == monitor
    for key in before.keys() - after.keys():
        tx.execute(_groups.delete().where(of_it, _g.group_key == key))
    for key, group in after.items():
        said = {"tracked": json.dumps(group.to_dict())}
        if key not in before:
            new = {"monitor_id": monitor, "group_key": key}
            tx.execute(_groups.insert().values(**new, **said))
        elif before[key] != group:
            tx.execute(_groups.update().where(of_it, _g.group_key == key).values(**said))


def of_stream(rx: Reader, stream_id: int) -> list[MonitorRow]:
    """Return the monitors in one stream, ordered by name."""
    chosen = sa.select(_monitors).where(_m.stream_id == stream_id).order_by(_m.name)
    return [_row(each) for each in rx.select(chosen)]


def accounts_of(rx: Reader, monitors: Collection[int]) -> dict[int, dict[str, Account]]:
    """Return the site accounts for these monitors, by monitor id and by source."""
    found: dict[int, dict[str, Account]] = {number: {} for number in monitors}
    for numbers in _parts(found):
        for row in rx.select(sa.select(_accounts).where(_a.monitor_id.in_(numbers))):
            found[row.monitor_id][row.source] = Account.from_dict(json.loads(row.account))
    return found


def _parts(numbers: Collection[int]) -> Iterator[list[int]]:
    listed = list(numbers)
    for first in range(0, len(listed), _TOGETHER):
        yield listed[first : first + _TOGETHER]


def put_account(tx: Writer, monitor: int, source: str, account: Account) -> None:
    """Insert a site's account, or replace it."""
    text = json.dumps(account.to_dict())
    mine = sa.and_(_a.monitor_id == monitor, _a.source == source)
    if not tx.execute(_accounts.update().where(mine).values(account=text)):
        tx.execute(_accounts.insert().values(monitor_id=monitor, source=source, account=text))


def define(
    tx: Writer,
    stream: tuple[int, str],
    name: str,
    spec: Mapping[str, Any],
    *,
    now_us: int,
    of_stream: int,
    in_all: int,
) -> tuple[MonitorRow, bool]:
    """Add a monitor, or redefine the one with this name. The same spec again changes nothing.

    Args:
        stream: its id and name.
        spec: as JSON, checked.
        of_stream, in_all: the maximum number of monitors.

    Returns:
        The monitor, and whether it is new.

    Raises:
        TooManyMonitorsError: there are as many monitors already.
        UnknownStreamError: the stream was deleted since.
        InvalidRequestError: the monitor exists, with other keys in ``by``.
    """
    begin(tx, stream)
    mine = named(_monitors, stream[0], name)
    found = tx.select(sa.select(_monitors).where(mine))
    said: dict[str, Any] = {
        "spec": json.dumps(spec, sort_keys=True),
        "state": "uncertain",
        "since_us": now_us,
    }
    if not found:
        limit = Limit(of_stream, in_all, TooManyMonitorsError)
        check_room(tx, _monitors, stream, limit)
        alert = json.dumps(Alert("inactive", now_us / 1e6).to_dict())
        beginning = {"epoch": now_us, "version": 0, "alert": alert, "sequence": 0}
        of_it = {"stream_id": stream[0], "name": name}
        tx.execute(_monitors.insert().values(**of_it, **beginning, **said))
    elif found[0].spec != said["spec"]:
        _check_keys(name, json.loads(found[0].spec).get("by"), spec.get("by"))
        # The alert continues. Alerts that fire under the new spec did not end.
        changed = said | renewed(found[0], now_us)
        tx.execute(_monitors.update().where(mine).values(**changed))
    (there,) = tx.select(sa.select(_monitors).where(mine))
    row = _row(there)
    if not found or row.epoch != found[0].epoch:
        history.begin(tx, row.id, row.alert, now_us, spec)
    return row, not found


def _check_keys(name: str, old: list[str] | None, new: list[str] | None) -> None:
    """A group's state and alert belong to its keys."""
    if old != new:
        raise refused(
            "by", f"monitor {name!r} has groups by other keys: delete it, with its history, or "
            "choose another name", new, old,
        )  # fmt: skip


def remove(tx: Writer, stream_id: int, name: str) -> bool:
    """Delete a monitor and its sites' accounts. Return False if there is none."""
    return defining.remove(tx, _monitors, stream_id, name)


def move(tx: Writer, before: MonitorRow, after: MonitorRow) -> bool:
    """Change a monitor's state. Return False if another process did so since the row was read,
    or if the monitor was redefined. Its groups are written by :func:`put_groups`.
    """
    tx.lock_head()
    it = sa.and_(_m.id == before.id, _m.version == before.version)
    said = {"state": after.state, "since_us": after.since_us, "sequence": after.sequence}
    said |= {"alert": json.dumps(after.alert.to_dict()), "version": after.version}
    return bool(tx.execute(_monitors.update().where(it).values(**said)))
