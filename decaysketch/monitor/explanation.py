"""One sentence for each alert state.

The server sends the sentence with the state, so that dashboard, command line, webhook and history
show the same text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from decaysketch.monitor.groups import GroupsRead, Tracked, group_of
from decaysketch.monitor.hub import State
from decaysketch.monitor.spec import Threshold

__all__ = ["explain", "explain_groups", "group_name", "subject"]

_MOST_NAMES = 5
_SHARES = ("share", "rank", "key_share", "top_key_share")
_SUBJECTS = {
    "count": "The decayed count",
    "rate": "The rate",
    "sum": "The decayed sum of weights",
    "total": "The decayed sum of values",
    "mean": "The mean",
    "median": "The median",
    "variance": "The variance",
    "stddev": "The standard deviation",
    "max": "The maximum",
    "min": "The minimum",
    "key_total": "The decayed count of all keys",
    "top_key_share": "The largest share of one key",
    "self_join": "The self-join size",
}


def subject(spec: Threshold, by: Mapping[str, Any] | None = None) -> str:
    """The aggregate that a spec names, to begin a sentence with. ``by``: of this group."""
    named = _subject(spec)
    if spec.of is not None:
        named = f"{named} of {spec.of}"
    if by is not None:
        named = f"{named} for {group_name(by)}"
    return named if spec.where is None else f"{named} where {spec.where}"


def _subject(spec: Threshold) -> str:
    if spec.question == "share":
        return f"The share of {spec.predicate}"
    if spec.question in ("key_count", "key_share"):
        what = "count" if spec.question == "key_count" else "share"
        return f"The {what} of key {spec.key!r}"
    if spec.question == "rank":
        return f"The share of values up to {_number(spec.value)}"
    if spec.question == "quantile":
        return f"The {_number(spec.q)} quantile"
    return _SUBJECTS[spec.question]


def group_name(by: Mapping[str, Any]) -> str:
    """A group as a text: ``site=a, fw=2.1``."""
    return ", ".join(f"{name}={_key(value)}" for name, value in by.items())


def _key(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


def explain_groups(spec: Threshold, groups: Mapping[str, Tracked], read: GroupsRead) -> str:
    """The states of all groups in one or two sentences."""
    shown, line = "", f"the {_line(spec, None)}"
    firing, uncertain = (
        [key for key, group in groups.items() if group.state == state]
        for state in ("firing", "uncertain")
    )
    if read.silent:
        shown = f"{len(read.silent)} sources have not reported: {_names(read.silent)}."
    elif firing:
        verb = "group has" if len(firing) == 1 else "groups have"
        shown = f"{len(firing)} {verb} reached {line}: {_listed(firing)}."
    elif uncertain:
        verb = "group has" if len(uncertain) == 1 else "groups have"
        shown = f"{len(uncertain)} {verb} an interval that contains {line}: {_listed(uncertain)}."
    else:
        shown = f"No group of {len(groups)} has reached {line}."
    more, of_these = read.untracked(groups)
    if more:
        shown += f" {more} more groups have no state, because the alert has at most {spec.groups}"
        shown += f": {of_these} of them have reached the threshold." if of_these else "."
    return shown


def _listed(keys: Sequence[str]) -> str:
    names = [group_name(group_of(key)) for key in keys]
    shown = "; ".join(names[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def explain(
    spec: Threshold, state: State, unit: str | None = None, by: Mapping[str, Any] | None = None
) -> str:
    """Why the state is as it is, in one sentence.

    Args:
        spec, state: the monitor's.
        unit: the time unit that the stream counts in, which a rate is per.
        by: the keys of the group whose state it is.
    """
    if state.reason == "silent":
        count = len(state.silent)
        verb = "source has" if count == 1 else "sources have"
        return f"{count} {verb} not reported within {spec.lease_s:g} s: {_names(state.silent)}."
    if state.reason == "allowances":
        held = _number(state.pending_at_most)
        return f"Sources may hold back {held}, which could cross the threshold. They post now."
    if state.value is None and state.reason is None:
        return f"{subject(spec, by)} is not defined, because no data counts now."
    if state.value is None:
        return "The sketch no longer contains the data that this decay needs."
    found, line = f"{subject(spec, by)} is {_value(spec, state.value, unit)}", _line(spec, unit)
    if state.verdict == "uncertain":
        ends = f"{_value(spec, state.lower)} to {_value(spec, state.upper)}"
        return f"{found}, and its interval {ends} contains the {line}."
    if state.verdict == "firing":
        reached = state.value >= spec.threshold if spec.above is not None else (
            state.value <= spec.threshold
        )  # fmt: skip
        if not reached:
            return f"{found}, within the tolerance of the {line}."
        return f"{found}, {'at or above' if spec.above is not None else 'at or below'} the {line}."
    return f"{found}, {'below' if spec.above is not None else 'above'} the {line}."


def _line(spec: Threshold, unit: str | None) -> str:
    return f"threshold {_value(spec, spec.threshold, unit)}"


def _value(spec: Threshold, value: float | None, unit: str | None = None) -> str:
    if spec.question in _SHARES and value is not None:
        return f"{_number(100.0 * value)} %"
    text = _number(value)
    return f"{text} per {unit}" if spec.question == "rate" and unit else text


def _number(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "unknown"
    return f"{value:,.0f}" if abs(value) >= 1e5 and abs(value) < 1e15 else f"{value:.5g}"


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
