"""Alerts for functions across sources, and the messages about a change.

A function of kind ``frequent`` has an alert for each key. It fires while the key is called
frequent. Other kinds have one. It fires while the value is at the threshold or above. An alert
changes only when the result is certain: a silent source ends no alert.

Every alert has its own identity with its start time. So an alert that comes back is
another one, and each has two messages: it fires, and it is resolved.
"""

from __future__ import annotations

from typing import Final, Literal

from api.monitors import alerts as messages
from api.monitors.changes import Named
from api.monitors.function_rows import FunctionRow
from api.monitors.outbox import Alert as Message
from decaysketch.monitor import Alert, State
from decaysketch.monitor.functions import FunctionSpec, FunctionState

__all__ = ["MOST_ALERTS", "turned"]

MOST_ALERTS: Final = 100
"""Alerts of one function that fire at one time. Other keys have none until one of these is over."""

_ALL = ""  # the key of a function without keys


def turned(
    row: FunctionRow, stream: Named, spec: FunctionSpec, found: FunctionState, now_us: int
) -> tuple[dict[str, int], list[Message]] | None:
    """Return the alerts that fire after a result, with their beginnings, and the messages about
    those that changed. None: nothing changed.
    """
    before = row.alerts
    if spec.webhook is None:
        return ({}, []) if before else None
    if not found.certain:
        return None
    firing = _firing(spec, found)
    kept = {key: since for key, since in before.items() if key in firing}
    new = [key for key in sorted(firing, key=_order) if key not in kept]
    after = kept | dict.fromkeys(new[: MOST_ALERTS - len(kept)], now_us)
    said = [
        _message(row, stream, spec, found, key, (before.get(key), after.get(key)), now_us)
        for key in sorted(before.keys() ^ after.keys(), key=_order)
    ]
    return (after, said) if said else None


def _firing(spec: FunctionSpec, found: FunctionState) -> set[str]:
    if found.frequent is not None:
        return set(map(str, found.frequent))
    assert spec.threshold is not None
    reached = found.value is not None and found.value >= spec.threshold
    return {_ALL} if reached else set()


def _order(key: str) -> tuple[int, str]:
    return len(key), key


def _message(
    row: FunctionRow, stream: Named, spec: FunctionSpec, found: FunctionState, key: str,
    since: tuple[int | None, int | None], now_us: int,
) -> Message:  # fmt: skip
    """The message that an alert fires, or is resolved."""
    began_us, fires = since[0] or since[1] or now_us, since[1] is not None
    verdict: Literal["firing", "calm"] = "firing" if fires else "calm"
    assert spec.threshold is not None
    assert spec.webhook is not None
    state = State(verdict, None, found.value, found.low, found.high, spec.threshold, 0.0)
    before, after = Alert("inactive", began_us / 1e6), Alert("firing", began_us / 1e6)
    if not fires:
        before, after = after, Alert("inactive", now_us / 1e6)
    identity = f"{stream.incarnation}.f{row.id}.{key}.{began_us}"
    names, sequence = (stream.name, row.name), 1 if fires else 2
    group = None if key == _ALL else {"key": int(key)}
    told = state, _explanation(spec, found, key, fires=fires)
    body = messages.message(identity, sequence, names, (before, after), told, group)
    return Message(identity, sequence, spec.webhook, body)


def _explanation(spec: FunctionSpec, found: FunctionState, key: str, *, fires: bool) -> str:
    sources = f"{len(spec.sites)} sources"
    if key != _ALL:
        negation = "" if fires else "no longer "
        return (
            f"key {key} is {negation}frequent over {sources}: the threshold is {spec.threshold:g}, "
            f"within {spec.theta:.0%}"
        )
    if found.value is None:
        return f"{spec.kind} over {sources} has no value"
    side = "at the threshold or above" if fires else "below the threshold"
    return (
        f"{spec.kind} over {sources} is {found.value:g}, {side} of {spec.threshold:g}, within "
        f"{spec.theta:.0%}"
    )
