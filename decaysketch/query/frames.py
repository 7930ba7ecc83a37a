"""Results as data frames: a row for each estimate, with its interval and its caveats."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from decaysketch.core.time_units import NANOSECONDS
from decaysketch.query.estimate import Estimate
from decaysketch.query.group_sums import Estimates

if TYPE_CHECKING:
    from decaysketch.query.aggregates import Histogram
    from decaysketch.query.over_time import TimeTable
    from decaysketch.query.shapes import Question
    from decaysketch.query.tables import GroupTable

__all__ = [
    "ESTIMATED",
    "frame_of",
    "frame_of_bins",
    "frame_of_groups",
    "frame_of_times",
    "rows_of",
    "times_of",
]

#: Columns of an estimate. The last is there for comparisons.
ESTIMATED = ("value", "lower", "upper", "stderr", "exact", "rows", "caveats", "changed")


def frame_of(columns: Mapping[str, Any]) -> Any:
    """Return a pandas data frame.

    Raises:
        ModuleNotFoundError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "to_frame needs pandas: pip install pandas", name=error.name
        ) from error
    return pd.DataFrame(columns)


def times_of(times: Sequence[int | None], unit: str) -> Any:
    """Return stream times as datetime64[ns], UTC, with NaT for missing or unrepresentable times. In
    a unit without a clock, times are unchanged.
    """
    if unit not in NANOSECONDS:
        return list(times)
    found = np.full(len(times), "NaT", "datetime64[ns]")
    for row, time in enumerate(times):
        if time is not None and abs(time) * NANOSECONDS[unit] < 1 << 63:
            found[row] = np.datetime64(time * NANOSECONDS[unit], "ns")
    return found


def rows_of(
    question: Question[Any], answer: Any, arguments: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Return a row for each estimate in a result: the columns that identify it, and the columns
    :data:`ESTIMATED`. For an observation, return its value and time.
    """
    parts = question.parts(answer, arguments)
    shape = question.shape
    if shape.rows is not None:
        for row in parts[shape.rows.name]:
            keys = {f"{each.name}_of" if each.name in ESTIMATED and shape.rows.estimates
                    else each.name: row[each.name] for each in shape.rows.keys}  # fmt: skip
            for column in shape.rows.estimates:
                named = {"of": column.name} if len(shape.rows.estimates) > 1 else {}
                yield {**keys, **named, **_columns_of(row[column.name])}
            if not shape.rows.estimates:
                yield keys
    for column in shape.beside:
        if column.kind == "estimate":
            named = {} if shape.rows is None else {"of": column.name}
            yield {**named, **_columns_of(parts[column.name])}


def _columns_of(estimate: Estimate) -> dict[str, Any]:
    found = {name: getattr(estimate, name) for name in ESTIMATED}
    if estimate.changed is None:
        del found["changed"]
    return found | {"caveats": " ".join(estimate.caveats)}


def frame_of_bins(histogram: Histogram) -> Any:
    """See :meth:`~decaysketch.query.aggregates.Histogram.to_frame`."""
    bins = histogram.bins
    lows = [-math.inf, *(each.low for each in bins), bins[-1].high]
    highs = [bins[0].low, *(each.high for each in bins), math.inf]
    shares = [histogram.below, *(each.share for each in bins), histogram.above]
    rows = [_columns_of(share) for share in shares]
    found = {name: [row[name] for row in rows] for name in rows[0]}
    return frame_of({"low": lows, "high": highs, **found})


def frame_of_times(table: TimeTable) -> Any:
    """See :meth:`~decaysketch.query.over_time.TimeTable.to_frame`."""
    rows = [
        {"time": number, **row}
        for number, answer in enumerate(table.answers)
        for row in _rows_at(table, answer)
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    found = {name: [row.get(name) for row in rows] for name in names if name != "time"}
    times = times_of([table.times[row["time"]] for row in rows], table.time_unit)
    return frame_of({"time": times, **found})


def _rows_at(table: TimeTable, answer: Any) -> Iterator[dict[str, Any]]:
    """Return the rows at one time, with the keys of their groups."""
    if not hasattr(answer, "by_key"):
        yield from rows_of(table.question, answer, table.arguments)
        return
    for group in answer:
        for row in rows_of(table.question, group.answer, table.arguments):
            yield {**group.by, **row, "small": group.small}


def frame_of_groups(table: GroupTable) -> Any:
    """See :meth:`~decaysketch.query.tables.GroupTable.to_frame`."""
    small = [row.small for row in table]
    if isinstance(table.answers, Estimates):
        places = np.arange(len(table))
        caveats = [" ".join(table.answers[k].caveats) for k in range(len(table))]
        found: dict[str, Any] = {name: getattr(table.answers, name) for name in ESTIMATED[:-2]}
        found["caveats"] = caveats
    else:
        listed = [
            (number, row)
            for number, answer in enumerate(table.answers)
            for row in rows_of(table.question, answer, table.arguments)
        ]
        places = np.array([number for number, _ in listed], np.intp)
        names = dict.fromkeys(name for _, row in listed for name in row)
        found = {name: [row.get(name) for _, row in listed] for name in names}
    keys: dict[str, Any] = {}
    for name, kind, values in zip(table.names, table.kinds, table.values, strict=True):
        given = [values[place] for place in places]
        keys[name] = times_of(given, table.time_unit) if kind == "time" else given
    found = {name if name not in keys else f"{name}_of": column for name, column in found.items()}
    columns = keys | found | {"small": [small[place] for place in places]}
    if table.certain is not None:
        columns["certain"] = table.certain[places]
    return frame_of(columns)
