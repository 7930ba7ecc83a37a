"""Pictures of results with their intervals, for notebooks. They need matplotlib.

Every estimate is drawn with its interval. Small groups are pale. If a bound is infinite, an arrow
points that way from the value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from decaysketch.errors import ParameterError
from decaysketch.query.estimate import Estimate
from decaysketch.query.frames import times_of

if TYPE_CHECKING:
    from decaysketch.query.aggregates import Histogram
    from decaysketch.query.over_time import TimeTable
    from decaysketch.query.tables import GroupTable

__all__ = ["groups", "histogram", "times"]

_MOST_LINES = 8
_PALE = 0.35


def groups(table: GroupTable, axes: Any = None, most: int = 30) -> Any:
    """Draw a group table: a point and its interval for each group, in table order from the top.

    Args:
        table: of an aggregate with one estimate per group.
        axes: matplotlib axes. None: new ones.
        most: the maximum number of groups.

    Returns:
        The axes.

    Raises:
        ParameterError: the aggregate has several estimates per group.
        ModuleNotFoundError: matplotlib is not installed.
    """
    rows = [table[number] for number in range(min(len(table), most))]
    estimates = _single([row.answer for row in rows], table.question.name)
    axes = _axes(axes, height=1.2 + 0.28 * len(rows))
    for place, (row, each) in enumerate(zip(rows, estimates, strict=True)):
        _bar(axes, each, place, alpha=_PALE if row.small else 1.0)
    axes.set_yticks(range(len(rows)), [_name(row.by) for row in rows])
    axes.invert_yaxis()
    left = table.total_groups - len(rows)
    more = f", {left:,} more groups" if left else ""
    axes.set_xlabel(f"{table.question.name}, {_percent(estimates)} joint intervals{more}")
    axes.set_ylabel(", ".join(table.names))
    axes.grid(axis="x", alpha=0.3)
    return axes


def times(table: TimeTable, axes: Any = None) -> Any:
    """Draw a time series: a line and its interval band, or one for each of up to eight groups.

    Args:
        table: of an aggregate with one estimate per time, or per time and group.
        axes: matplotlib axes. None: new ones.

    Returns:
        The axes.

    Raises:
        ParameterError: the aggregate has several estimates per time, or there are more groups.
        ModuleNotFoundError: matplotlib is not installed.
    """
    lines = _lines(table)
    axes = _axes(axes)
    moments = times_of(table.times, table.time_unit)
    for name, found in lines.items():
        known = [(at, each) for at, each in zip(moments, found, strict=True) if each is not None]
        at = [moment for moment, _ in known]
        estimates = _single([each for _, each in known], table.question.name)
        (line,) = axes.plot(at, [each.value for each in estimates], label=name or None)
        lower, upper = ([getattr(each, end) for each in estimates] for end in ("lower", "upper"))
        finite = [math.isfinite(a) and math.isfinite(b) for a, b in zip(lower, upper, strict=True)]
        axes.fill_between(at, lower, upper, where=finite, alpha=0.25, color=line.get_color(), lw=0)
    everything = [each for found in lines.values() for each in found if each is not None]
    axes.set_ylabel(f"{table.question.name}, {_percent(everything)} intervals")
    if len(lines) > 1:
        axes.legend()
    axes.tick_params(axis="x", rotation=25)
    axes.grid(alpha=0.3)
    return axes


def histogram(found: Histogram, axes: Any = None) -> Any:
    """Draw the shares of a histogram with their intervals.

    Args:
        found: the histogram.
        axes: matplotlib axes. None: new ones.

    Returns:
        The axes.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    axes = _axes(axes)
    for each in found.bins:
        share, width = each.share, each.high - each.low
        axes.bar(each.low, share.value, width, align="edge", alpha=0.6, color="C0", ec="white")
        middle = each.low + 0.5 * width
        axes.vlines(middle, share.lower, share.upper, color="black", lw=1.2)
    below, above = found.below.value, found.above.value
    confidence = _percent([each.share for each in found.bins])
    axes.set_ylabel(f"share of decayed weight, {confidence} joint intervals")
    axes.set_xlabel(f"value ({below:.1%} below, {above:.1%} above)")
    axes.set_ylim(bottom=0.0)
    return axes


# ------------------------------------------------------------------------------------------ common


def _axes(axes: Any, height: float = 4.0) -> Any:
    if axes is not None:
        return axes
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "plot needs matplotlib: pip install matplotlib", name=error.name
        ) from error
    _, axes = plt.subplots(figsize=(7.0, height), layout="constrained")
    return axes


def _bar(axes: Any, estimate: Estimate, place: int, alpha: float) -> None:
    """Draw a point and its interval, with an arrow for an infinite bound."""
    value = estimate.value
    if not math.isfinite(value):
        return
    ends = [
        end if math.isfinite(end) else value for end in (estimate.lower, estimate.upper)
    ]  # fmt: skip
    axes.hlines(place, *ends, color="C0", lw=2.0, alpha=alpha)
    axes.plot(value, place, "o", color="C0", ms=5, alpha=alpha)
    for end, marker in ((estimate.lower, 0), (estimate.upper, 1)):  # ticks to the left and right
        if not math.isfinite(end):
            axes.plot(value, place, marker=marker, color="C0", ms=12, alpha=alpha)


def _single(answers: Sequence[Any], name: str) -> list[Estimate]:
    found = [each[0] if isinstance(each, list) and len(each) == 1 else each for each in answers]
    if not all(isinstance(each, Estimate) for each in found):
        raise ParameterError(f"{name} has several estimates each; plot one, or use to_frame")
    return found


def _lines(table: TimeTable) -> dict[str, list[Any]]:
    """Return the estimates at each time, by group. None: no such group at that time."""
    if not any(hasattr(answer, "by_key") for answer in table.answers):
        return {"": list(table.answers)}
    each = [{_name(row.by): row.answer for row in answer} for answer in table.answers]
    names = list(dict.fromkeys(name for found in each for name in found))
    if len(names) > _MOST_LINES:
        raise ParameterError(
            f"by gives {len(names)} groups; expected at most {_MOST_LINES} lines: give groups or "
            "where"
        )
    return {name: [found.get(name) for found in each] for name in names}


def _name(by: Mapping[str, Any]) -> str:
    return ", ".join("null" if value is None else str(value) for value in by.values())


def _percent(answers: Sequence[Any]) -> str:
    first = next(iter(answers), None)
    if isinstance(first, list):
        first = next(iter(first), None)
    return f"{100 * getattr(first, 'confidence', 0.95):.4g} %"
