"""Arguments that name a log's columns, in data frames and engines.

They are the fields of :class:`decaysketch.tables.ColumnMapping`, two of them under shorter names.
The type stands here so that sketches can name it without Arrow.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from decaysketch.errors import ParameterError

__all__ = ["FIELDS", "LogColumnArguments", "check_arguments"]

FIELDS = {"id": "ids", "column_unit": "time_unit"}
"""Fields of a mapping, by their shorter names. All other names are equal."""


class LogColumnArguments(TypedDict, total=False):
    """A log's columns, by their meaning. See :class:`decaysketch.tables.ColumnMapping`.

    Attributes:
        time: the event time.
        value: the measured number, or the label.
        columns: the stream's declared columns or series attributes: names, or the log's column for
            each name.
        id: the column, or columns, that together identify an observation.
        entity: of series: the column, or columns, that together identify the sampled device.
        start: of series: the time at which a counter began.
        key: the column, or columns, of the counted key.
        source, sequence: the source, and its number for an element.
        weight: column with integer weights, or one weight for all rows.
        fallback_time: replaces a null time.
        column_unit: unit of times that are plain numbers. The sketch's unit unless given.
        time_zone: zone of timestamps and texts that name none, such as "Europe/Berlin" or "+02:00".
            UTC, with a warning, unless given.
        time_format: format of times as text, as in ``strptime``.
        decimal, thousands: marks of numbers as text.
        casts: columns that are converted first, to "text" or "int64".
        torn: a column with the text of lines that are no rows.
    """

    time: str
    value: str | None
    columns: str | Sequence[str] | Mapping[str, str]
    id: str | Sequence[str]
    entity: str | Sequence[str]
    start: str | None
    key: str | Sequence[str]
    source: str | None
    sequence: str | None
    weight: str | int | None
    fallback_time: str | None
    column_unit: str | None
    time_zone: str | None
    time_format: str | None
    decimal: str
    thousands: str
    casts: Mapping[str, str]
    torn: str | None


def check_arguments(given: Mapping[str, Any]) -> None:
    """Reject unknown arguments, and a log without a time.

    Raises:
        ParameterError: with the nearest known name.
    """
    known = LogColumnArguments.__annotations__
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise ParameterError(
                f"{name!r} is not an argument; expected one of {', '.join(known)}{meant}"
            )
    if not given.get("time"):
        raise ParameterError("time is None; expected the column of the event time")
