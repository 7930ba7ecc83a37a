"""One sentence for each alert state.

The server sends the sentence with the state, so that dashboard, command line, webhook and history
show the same text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from decaysketch.monitor.hub import State
from decaysketch.monitor.spec import Threshold

__all__ = ["explain", "subject"]

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


def subject(spec: Threshold) -> str:
    """The aggregate that a spec names, to begin a sentence with."""
    if spec.question == "share":
        return f"The share of {spec.predicate}"
    if spec.question in ("key_count", "key_share"):
        what = "count" if spec.question == "key_count" else "share"
        return f"The {what} of key {spec.key!r}"
    if spec.question == "rank":
        return f"The share of values up to {_number(spec.value)}"
    if spec.question == "quantile":
        return f"The {_number(spec.q)} quantile"
    named = _SUBJECTS[spec.question]
    return named if spec.where is None else f"{named} where {spec.where}"


def explain(spec: Threshold, state: State, unit: str | None = None) -> str:
    """Why the state is as it is, in one sentence.

    Args:
        spec, state: the monitor's.
        unit: the time unit that the stream counts in, which a rate is per.
    """
    if state.reason == "silent":
        count = len(state.silent)
        verb = "source has" if count == 1 else "sources have"
        return f"{count} {verb} not reported within {spec.lease_s:g} s: {_names(state.silent)}."
    if state.reason == "allowances":
        held = _number(state.pending_at_most)
        return f"Sources may hold back {held}, which could cross the threshold. They post now."
    if state.value is None and state.reason is None:
        return f"{subject(spec)} is not defined, because no data counts now."
    if state.value is None:
        return "The sketch no longer contains the data that this decay needs."
    found, line = f"{subject(spec)} is {_value(spec, state.value, unit)}", _line(spec, unit)
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
