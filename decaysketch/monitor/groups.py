"""Thresholds per group: one evaluation, and the states that follow.

:func:`read_groups` evaluates a threshold with ``by`` on a view. All intervals of one evaluation
hold together (:mod:`decaysketch.query.grouped`), so no group fires only because there are many.

:func:`step` is a function on values. It keeps a :class:`Tracked` for at most ``spec.groups``
groups. No I/O, no clock.

* A new group joins while there is space. A group that has reached the threshold replaces one whose
  alert is inactive and that has not reached it: one without rows first, then the one that is
  farthest from the threshold. So no group that fires lacks a state unless all others fire too.
* A group without rows has the count 0, up to the bound for unseen groups. Its mean, quantile or
  share is not defined, which is calm, as for a stream without data.
* After ``spec.group_retention_s`` without rows a group is dropped. If its alert fires, it ends.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from decaysketch.decay.area import area
from decaysketch.monitor.alert import Alert, Verdict
from decaysketch.monitor.hub import Account, Monitor, State
from decaysketch.monitor.spec import Threshold
from decaysketch.query.dispatch import View
from decaysketch.query.estimate import Estimate
from decaysketch.query.group_sums import Estimates
from decaysketch.query.tables import MOST_ONE_BY_ONE, GroupTable, computed_at_once

__all__ = ["GroupsRead", "Left", "Step", "Tracked", "group_key", "group_of", "read_groups", "step"]

Float64Array = npt.NDArray[np.float64]

_NOTHING = Estimate(math.nan, -math.inf, math.inf, math.inf, 0.95, True, 0, 0.0)


def group_key(by: Mapping[str, Any]) -> str:
    """The text that identifies a group: its keys as JSON, in the order of ``by``."""
    return json.dumps(dict(by), ensure_ascii=False)


def group_of(key: str) -> dict[str, Any]:
    """Inverse of :func:`group_key`."""
    found: dict[str, Any] = json.loads(key)
    return found


@dataclass(frozen=True, slots=True)
class GroupsRead:
    """One evaluation.

    Attributes:
        states: of the tracked groups and of ``candidates``, by key.
        rows: retained rows of the groups that have some, of the same keys.
        candidates: groups that are not tracked, those that fire first, then by their distance to
            the threshold. At most ``spec.groups``.
        total: number of groups with a retained row.
        firing: number of groups that have reached the threshold.
        silent: sources without current information.
    """

    states: Mapping[str, State] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    candidates: tuple[str, ...] = ()
    total: int = 0
    firing: int = 0
    silent: tuple[str, ...] = ()

    def untracked(self, groups: Mapping[str, Tracked]) -> tuple[int, int]:
        """Return the number of groups without a state, and how many of them have reached the
        threshold.
        """
        present = [key for key in groups if key in self.rows]
        firing = sum(self.states[key].verdict == "firing" for key in present if key in self.states)
        return max(self.total - len(present), 0), max(self.firing - firing, 0)


def read_groups(
    monitor: Monitor, view: View, tracked: Collection[str], sites: Mapping[str, Account],
    now: float,
) -> GroupsRead:  # fmt: skip
    """Evaluate a threshold for each group.

    An aggregate that is not computed for all groups at once (quantile, median, rank, variance,
    stddev) is computed for the 100 groups with the most rows. The others are without state.

    Args:
        view: of the stream's sketch, under the spec's decay.
        tracked: keys of the groups that have a state.
        sites: accounts of the sources that take part.
        now: the hub's time in seconds.

    Raises:
        ParameterError: more than 10,000 groups.
        UnanswerableQueryError: the sketch has discarded data that the query needs.

    Complexity: O(rows + groups log groups), and O(rows) more for each group of an aggregate that is
    computed group by group.
    """
    spec = monitor.spec
    limit = None if computed_at_once(spec.aggregate) else MOST_ONE_BY_ONE
    wanted = replace(spec.modifiers, limit=limit, order="key")
    table = view.modified(wanted).ask(spec.aggregate, **spec.arguments)
    lower, upper = _ends(table)
    above = spec.above is not None
    reached = lower >= spec.threshold if above else upper <= spec.threshold
    firmness = np.nan_to_num(lower if above else -upper, nan=-math.inf)
    places = {keys: place for place, keys in enumerate(zip(*table.values, strict=True))}
    mine = {key: places.get(tuple(group_of(key).values())) for key in tracked}
    others = np.ones(len(table), np.bool_)
    others[[place for place in mine.values() if place is not None]] = False
    order = np.lexsort((-firmness, ~reached))
    chosen = order[others[order]][: spec.groups]
    named = {_key(table, place): place for place in chosen.tolist()}
    u, silent, _ = monitor.charged(sites, now)
    nothing = _without_rows(spec, table, view)
    found = {key: nothing if at is None else _estimate(table, at) for key, at in mine.items()}
    found |= {key: _estimate(table, place) for key, place in named.items()}
    kept = {key: at for key, at in (mine | named).items() if at is not None}
    return GroupsRead(
        {key: _state(monitor, each, u, silent) for key, each in found.items()},
        {key: int(table.rows[at]) for key, at in kept.items()},
        tuple(named), table.total_groups, int(reached.sum()) if u == 0.0 else 0,
        tuple(silent),
    )  # fmt: skip


def _key(table: GroupTable, place: int) -> str:
    values = (listed[place] for listed in table.values)
    return group_key(dict(zip(table.names, values, strict=True)))


def _ends(table: GroupTable) -> tuple[Float64Array, Float64Array]:
    """Return the bounds of each group."""
    if isinstance(table.answers, Estimates):
        nan = np.isnan(table.answers.value)
        return tuple(
            np.where(nan, np.nan, end) for end in (table.answers.lower, table.answers.upper)
        )  # type: ignore[return-value]
    found = [_estimate(table, place) for place in range(len(table))]
    ends = [(math.nan, math.nan) if math.isnan(e.value) else (e.lower, e.upper) for e in found]
    both = np.array(ends, np.float64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def _estimate(table: GroupTable, place: int) -> Estimate:
    found = table.answers[place]
    estimate: Estimate = found[0] if isinstance(found, list) else found
    return estimate


def _without_rows(spec: Threshold, table: GroupTable, view: View) -> Estimate:
    """Return the result of a group without a retained row."""
    if spec.question not in ("count", "rate", "sum", "total"):
        return _NOTHING
    most = table.unseen_at_most
    if spec.question == "rate":
        assert spec.decay is not None, "checked with the recipe"
        most /= area(spec.decay)
    if spec.question in ("sum", "total") and most > 0.0:
        most = math.inf  # no weight or value bounds it
    least = -most if spec.question == "total" else 0.0
    return Estimate(0.0, least, most, most, 0.95, most == 0.0, 0, 0.0)


def _state(monitor: Monitor, found: Estimate, u: float, silent: Sequence[str]) -> State:
    state = monitor.plain(found)
    if u == 0.0:
        return state
    reason = "silent" if silent else "allowances"
    return replace(
        state, verdict="uncertain", reason=reason, silent=tuple(silent), lower=None, upper=None
    )


# ------------------------------------------------------------------------------------------ states


@dataclass(frozen=True, slots=True)
class Tracked:
    """A group's state and alert.

    Attributes:
        state: its verdict.
        since: when this state began, in seconds.
        alert: its alert.
        began: when the group was first tracked. Names the alert, with the keys.
        gone: since when it has no rows. None while it has some.
        sequence: number of the last message about it.
    """

    state: Verdict
    since: float
    alert: Alert
    began: float
    gone: float | None = None
    sequence: int = 0

    def to_dict(self) -> dict[str, Any]:
        """JSON form, for a database row."""
        found = {each: getattr(self, each) for each in self.__slots__}
        return found | {"alert": self.alert.to_dict()}

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_dict`."""
        return cls(**{**form, "alert": Alert.from_dict(form["alert"])})


class Left(NamedTuple):
    """A group that is not tracked any more.

    Attributes:
        group: its last state.
        reason: one sentence.
    """

    group: Tracked
    reason: str


class Step(NamedTuple):
    """The groups after an evaluation.

    Attributes:
        groups: the tracked groups, by key.
        left: those that were tracked before and are not now.
    """

    groups: Mapping[str, Tracked]
    left: Mapping[str, Left]


def step(before: Mapping[str, Tracked], read: GroupsRead, spec: Threshold, now: float) -> Step:
    """Return the groups after an evaluation.

    Args:
        before: as the last step returned them.
        read: the evaluation, with a state for each of them.
        now: its time, not before the last one.

    Complexity: O(groups log groups).
    """
    after: dict[str, Tracked] = {}
    left: dict[str, Left] = {}
    for key, group in before.items():
        gone = None if key in read.rows else now if group.gone is None else group.gone
        if gone is not None and now - gone >= spec.group_retention_s:
            because = f"The group has had no rows for {spec.group_retention_s:g} s, and is dropped."
            left[key] = Left(group, because)
        else:
            after[key] = replace(_stepped(group, read.states[key], spec, now), gone=gone)
    idle = sorted(
        (key for key, group in after.items() if _is_idle(group)),
        key=lambda key: (after[key].gone is not None, -_firmness(spec, read.states[key])),
    )

    def make_space() -> None:
        because = f"Another group takes its place, because the alert has at most {spec.groups}."
        last = idle.pop()
        left[last] = Left(after.pop(last), because)

    while idle and len(after) > spec.groups:  # after ``groups`` was lowered
        make_space()
    for key in read.candidates:
        if len(after) >= spec.groups:
            if read.states[key].verdict != "firing" or not idle:
                break
            make_space()
        new = Tracked("uncertain", now, Alert("inactive", now), now)
        after[key] = _stepped(new, read.states[key], spec, now)
    return Step(after, left)


def _stepped(group: Tracked, state: State, spec: Threshold, now: float) -> Tracked:
    alert = group.alert.step(state.verdict, now, for_s=spec.for_s, keep_firing_s=spec.keep_firing_s)
    turned = (alert.phase == "firing") != (group.alert.phase == "firing")
    since = group.since if state.verdict == group.state else now
    sequence = group.sequence + (turned and spec.webhook is not None)
    return replace(group, state=state.verdict, since=since, alert=alert, sequence=sequence)


def _is_idle(group: Tracked) -> bool:
    return group.alert.phase == "inactive" and group.state != "firing"


def _firmness(spec: Threshold, state: State) -> float:
    """Return how close to the threshold, or how far beyond it, a state certainly is."""
    end = state.lower if spec.above is not None else state.upper
    if end is None:
        return -math.inf
    return end if spec.above is not None else -end
