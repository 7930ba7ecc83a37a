"""The changes that an evaluation makes to a monitor, written in one transaction.

The change replaces the row whose version it was computed from. If another process has changed that
row, nothing is written. So every change is in the history once, and in the outbox once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from api.journal.storage import Writer
from api.monitors import alerts, history, outbox, store
from api.monitors.history import Entry, Retention
from api.monitors.store import MonitorRow
from decaysketch.monitor import (
    Alert,
    GroupsRead,
    Monitor,
    State,
    Tracked,
    explain,
    explain_groups,
    group_of,
)
from decaysketch.monitor.alert import Phase, Verdict
from decaysketch.monitor.groups import Left, step

__all__ = ["Change", "Named", "grouped", "overall", "plain", "write"]


class Named(NamedTuple):
    """The stream of a monitor, as messages name it.

    Attributes:
        name: the stream's name.
        incarnation: distinguishes it from a deleted stream of the same name.
        unit: its time unit.
    """

    name: str
    incarnation: str
    unit: str


@dataclass(frozen=True, slots=True)
class Change:
    """A row before and after an evaluation, with everything to write.

    Attributes:
        before, after: the row.
        entry: a state for the monitor's history, with its explanation. None: none.
        groups: entries for the histories of groups, with the group's key.
        messages: for the outbox.
        most_groups: the monitor's limit.
    """

    before: MonitorRow
    after: MonitorRow
    entry: tuple[State, str] | None = None
    groups: Sequence[tuple[str, Entry]] = ()
    messages: Sequence[outbox.Alert] = ()
    most_groups: int = 1


def plain(
    row: MonitorRow, stream: Named, monitor: Monitor, state: State, now_us: int
) -> Change | None:
    """Return the changes if a monitor has no groups, or None."""
    spec = monitor.spec
    alert = row.alert.step(
        state.verdict, now_us / 1e6, for_s=spec.for_s, keep_firing_s=spec.keep_firing_s
    )
    if alert == row.alert and state.verdict == row.state:
        return None
    entry = state, explain(spec, state, stream.unit)
    sequence, messages = row.sequence, []
    if _turned(row.alert, alert) and spec.webhook is not None:
        sequence += 1
        identity = f"{stream.incarnation}.{row.id}"
        names = stream.name, row.name
        body = alerts.message(identity, sequence, names, (row.alert, alert), entry)
        messages.append(outbox.Alert(identity, sequence, spec.webhook, body))
    after = _after(row, state.verdict, alert, now_us, sequence=sequence)
    return Change(row, after, entry, messages=messages)


def grouped(
    row: MonitorRow, stream: Named, monitor: Monitor, read: GroupsRead, now_us: int
) -> Change | None:
    """Return the changes if a monitor has groups, or None."""
    spec, now_s = monitor.spec, now_us / 1e6
    stepped = step(row.groups, read, spec, now_s)
    state = overall(monitor, stepped.groups, read)
    alert = _alert_of(row.alert, stepped.groups, now_s)
    same = alert == row.alert and state.verdict == row.state
    if same and stepped.groups == row.groups:
        return None
    after = _after(row, state.verdict, alert, now_us, groups=stepped.groups)
    entries: list[tuple[str, Entry]] = []
    messages: list[outbox.Alert] = []
    turns = _turns(row, stepped.groups, stepped.left, read, monitor, stream, now_s)
    for key, (old, new, found) in turns:
        if new.state != old.state or new.alert.phase != old.alert.phase or key not in row.groups:
            said = history.entry_of(*found)
            entries.append((key, Entry(now_us, None, new.state, new.alert.phase, said)))
        if _turned(old.alert, new.alert) and spec.webhook is not None:
            messages.append(_message(row, stream, key, (old, new), found, spec.webhook))
    entry = None if same else (state, explain_groups(spec, stepped.groups, read))
    return Change(row, after, entry, entries, messages, spec.groups)


def overall(monitor: Monitor, groups: Mapping[str, Tracked], read: GroupsRead) -> State:
    """Return the state of a monitor with groups: it fires if one of its groups does."""
    found = {group.state for group in groups.values()}
    verdict: Verdict = "firing" if "firing" in found or read.untracked(groups)[1] else (
        "uncertain" if "uncertain" in found or read.silent else "calm"
    )  # fmt: skip
    reason = None
    if verdict == "uncertain":
        reason = "silent" if read.silent else "sketch"
    line = monitor.spec.threshold
    return State(verdict, reason, None, None, None, line, 0.0, read.silent)


_Turn = tuple[str, tuple[Tracked, Tracked, tuple[State, str]]]


def _turns(
    row: MonitorRow, groups: Mapping[str, Tracked], left: Mapping[str, Left], read: GroupsRead,
    monitor: Monitor, stream: Named, now_s: float,
) -> Sequence[_Turn]:  # fmt: skip
    """Return each changed group: before, after, its state and the explanation."""
    found: list[_Turn] = []
    spec = monitor.spec
    for key, new in groups.items():
        old = row.groups.get(key)
        if new != old:
            state = read.states[key]
            text = explain(spec, state, stream.unit, group_of(key))
            start = Tracked("uncertain", new.since, Alert("inactive", new.began), new.began)
            found.append((key, (old or start, new, (state, text))))
    for key, (old, reason) in left.items():
        new = replace(old, state="calm", alert=Alert("inactive", now_s), sequence=old.sequence + 1)
        none = State("calm", None, None, None, None, spec.threshold, 0.0)
        found.append((key, (old, new, (none, reason))))
    return found


def _message(
    row: MonitorRow, stream: Named, key: str, turn: tuple[Tracked, Tracked],
    found: tuple[State, str], url: str,
) -> outbox.Alert:  # fmt: skip
    """Return the message about a group. A group that left and came back has another identity."""
    old, new = turn
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    identity = f"{stream.incarnation}.{row.id}.{digest}.{int(new.began * 1e6)}"
    names = stream.name, row.name
    body = alerts.message(
        identity, new.sequence, names, (old.alert, new.alert), found, group_of(key)
    )
    return outbox.Alert(identity, new.sequence, url, body)


def _alert_of(before: Alert, groups: Mapping[str, Tracked], now_s: float) -> Alert:
    """Return the alert of a monitor: the highest phase of its groups."""
    phases = {group.alert.phase for group in groups.values()}
    phase: Phase = "firing" if "firing" in phases else "pending"
    phase = phase if phase in phases else "inactive"
    return before if phase == before.phase else Alert(phase, now_s)


def _after(row: MonitorRow, state: str, alert: Alert, now_us: int, **changes: Any) -> MonitorRow:
    since_us = row.since_us if state == row.state else now_us
    return replace(
        row, state=state, since_us=since_us, alert=alert, version=row.version + 1, **changes
    )


def _turned(before: Alert, after: Alert) -> bool:
    return (before.phase == "firing") != (after.phase == "firing")


def write(tx: Writer, change: Change, now_us: int, kept: Retention) -> int | None:
    """Write a change. Return how many older messages were dropped for its messages, or None if
    another process has changed the row.
    """
    before, after = change.before, change.after
    if not store.move(tx, before, after):
        return None
    store.put_groups(tx, before.id, before.groups, after.groups)
    if change.entry is not None:
        history.insert(tx, before.id, after.alert, now_us, change.entry, kept)
    for key, entry in change.groups:
        history.insert_group(tx, before.id, key, entry, kept, change.most_groups)
    return sum([outbox.insert(tx, message, now_us) for message in change.messages])
