"""Evaluates the monitors on one stream: pure functions, for a thread.

**How long a state holds.** Where nothing arrives, time alone can change a state. A count, rate or
sum only falls, and a mean or quantile under an exponential decay stays: so the state between two
times with the same state is that state. :func:`evaluate` therefore also looks at a later time, and
returns how long the state holds. An idle monitor costs two evaluations in 30 s instead of 60.
Other aggregates under other decays may move either way. Their monitors are evaluated each second.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from decaysketch import Estimate, Snapshot
from decaysketch.core.observations import TIME_LIMIT
from decaysketch.core.time_units import now_in
from decaysketch.decay import Decay, Exponential, none
from decaysketch.errors import DecaySketchError, UnanswerableQueryError
from decaysketch.monitor import Account, GroupsRead, Monitor, Reading, State
from decaysketch.monitor.groups import read_groups

__all__ = ["LONGEST_S", "SHORTEST_S", "UNREAD", "Evaluation", "Task", "evaluate"]

SHORTEST_S, LONGEST_S = 1.0, 30.0
"""A monitor is evaluated again after a time between these, in seconds."""

UNREAD = Reading.of(float("nan"))
"""The reading if no sketch was read. It grants nothing."""

_FALLING = ("count", "rate", "sum")
_STEADY = ("mean", "share", "rank", "quantile", "median", "variance", "stddev")


@dataclass(frozen=True, slots=True)
class Task:
    """One monitor to evaluate.

    Attributes:
        sites: the accounts that belong to sources that take part.
        tracked: keys of the groups that have a state.
        ahead_s: seconds to look ahead. :data:`SHORTEST_S` or less: not at all.
    """

    monitor: Monitor
    sites: Mapping[str, Account]
    ahead_s: float = SHORTEST_S
    tracked: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result that a task has.

    Attributes:
        state: None where there is an error.
        reading: for grants.
        holds_s: so long the state holds while nothing arrives.
        groups: the evaluation of a monitor with ``by``. Its state follows from that of its groups.
    """

    state: State | None
    reading: Reading = UNREAD
    holds_s: float = SHORTEST_S
    error: DecaySketchError | None = None
    groups: GroupsRead | None = None


def evaluate(tasks: list[Task], snapshot: Snapshot, now_us: int) -> list[Evaluation]:
    """Evaluate monitors on one stream.

    Args:
        tasks: one for each monitor.
        snapshot: the stream's, whose time unit has a clock.
        now_us: microseconds since 1970 UTC.

    Complexity: one to six queries for each task, each O(rows).
    """
    found = []
    for task in tasks:
        try:
            found.append(_evaluated(task, snapshot, now_us))
        except DecaySketchError as error:
            found.append(Evaluation(None, error=error))
    return found


def _evaluated(task: Task, snapshot: Snapshot, now_us: int) -> Evaluation:
    monitor = task.monitor
    if monitor.spec.by is not None:
        return _with_groups(task, snapshot, now_us)
    if task.sites:
        return _with_sites(task, snapshot, now_us)
    try:
        found = _asked(monitor, snapshot, now_us)
    except UnanswerableQueryError:
        return Evaluation(_unknown(monitor, monitor.state({}, UNREAD, 0.0)))
    state = monitor.plain(found)
    holds_s = _holds_s(task, snapshot, now_us, state)
    return Evaluation(state, monitor.reading_of(found), holds_s)


def _with_sites(task: Task, snapshot: Snapshot, now_us: int) -> Evaluation:
    monitor, now_s = task.monitor, now_us / 1e6
    try:
        view = snapshot.at(monitor.spec.decay, _now(monitor, snapshot, now_us))
        reading = monitor.read(view)
        state = monitor.state(task.sites, reading, now_s)
        u = monitor.held_back(task.sites, now_s)
        return Evaluation(monitor.shown(view, state, u), reading)
    except UnanswerableQueryError:
        return Evaluation(_unknown(monitor, monitor.state(task.sites, UNREAD, now_s)))


def _with_groups(task: Task, snapshot: Snapshot, now_us: int) -> Evaluation:
    monitor, now_s = task.monitor, now_us / 1e6
    try:
        view = snapshot.at(monitor.spec.decay, _now(monitor, snapshot, now_us))
        read = read_groups(monitor, view, task.tracked, task.sites, now_s)
    except UnanswerableQueryError:
        unknown = _unknown(monitor, monitor.state({}, UNREAD, 0.0))
        read = GroupsRead(dict.fromkeys(task.tracked, unknown), dict.fromkeys(task.tracked, 0))
    steady = monitor.spec.question in _STEADY and _is_steady(monitor.spec.decay)
    newest = snapshot.newest
    future = newest is not None and newest > _now(monitor, snapshot, now_us)
    holds_s = LONGEST_S if steady and not future else SHORTEST_S
    return Evaluation(monitor.state({}, UNREAD, 0.0), holds_s=holds_s, groups=read)


def _asked(monitor: Monitor, snapshot: Snapshot, now_us: int) -> Estimate:
    return monitor.ask(snapshot.at(monitor.spec.decay, _now(monitor, snapshot, now_us)))


def _unknown(monitor: Monitor, state: State) -> State:
    """The state if the sketch has discarded rows that the query needs."""
    return replace(
        state, verdict="uncertain", reason="sketch", value=None, lower=None, upper=None,
        threshold=monitor.spec.threshold, recall=(),
    )  # fmt: skip


def _now(monitor: Monitor, snapshot: Snapshot, now_us: int) -> int:
    """The query time in the stream's unit."""
    now = now_in(snapshot.params.time_unit, now_us * 1000)
    assert now is not None, "checked when the monitor was defined"
    known = [now, snapshot.clock]
    if monitor.spec.question in ("max", "min"):  # which are not known as of earlier times
        known.append(snapshot.newest)
    return min(max(each for each in known if each is not None), TIME_LIMIT)


def _holds_s(task: Task, snapshot: Snapshot, now_us: int, state: State) -> float:
    """Return how long a state holds if nothing arrives, within this module's bounds."""
    monitor, newest = task.monitor, snapshot.newest
    if newest is not None and newest > _now(monitor, snapshot, now_us):
        return SHORTEST_S  # rows that begin to count
    if monitor.spec.question in _STEADY and _is_steady(monitor.spec.decay):
        return LONGEST_S
    if monitor.spec.question not in _FALLING or monitor.spec.decay is None:
        return SHORTEST_S
    ahead_s = min(task.ahead_s, LONGEST_S)
    while ahead_s > SHORTEST_S:
        later = monitor.plain(_asked(monitor, snapshot, now_us + int(ahead_s * 1e6)))
        if later.verdict == state.verdict:
            return ahead_s
        ahead_s /= 2
    return SHORTEST_S


def _is_steady(decay: Decay | None) -> bool:
    """Return whether all weights fall by the same factor, so that their ratios stay."""
    return decay == none() or isinstance(decay, Exponential)
