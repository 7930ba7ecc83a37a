"""Readings of time series, by columns, because there are many readings and few series.

Each has the key ``(series, field, number)``. The series and the field are stored once for all of
their readings, and hashed once. The number is the time, or the number of the period.

If a mapping fills columns, a reading may have several fields. Its key has no field then if the
protocol names several in one line. Columns that all readings of a series share are stored once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from decaysketch.core.ranges import Range
from decaysketch.ingest.readings import Parsed
from decaysketch.ingest.record_columns import Layout

__all__ = ["Points"]


@dataclass
class Points:
    """The result for a body.

    Attributes:
        told: the rejected and skipped parts; its ``readings`` are empty.
        series, fields: the two texts of a key, by code. No field if it is empty.
        layouts: with declared columns: those that a series fills, by code.
        cells: with declared columns: rows and values, by column, in addition to ``values``.
        codes: of each reading; so are the next columns.
        numbers: the last part of the key, within 64 bits for any time.
        times_ns: since 1970-01-01 UTC; any integer.
        values: a number, a range of numbers, or a label; None: the observation has no value.
        weights: integers.
        places: position in the body, a number that begins at 1.
        form: the format, if its texts contain labels (:mod:`decaysketch.ingest.series_rows`).
        starts_ns: by reading, when its counter began to count.
    """

    told: Parsed = field(default_factory=Parsed)
    series: list[str] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)
    layouts: list[Layout] = field(default_factory=list)
    cells: dict[str, tuple[list[int], list[Any]]] = field(default_factory=dict)
    codes: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    times_ns: list[int] = field(default_factory=list)
    values: list[float | int | str | Range | None] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    form: str = ""
    starts_ns: dict[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.codes)

    def enter(self, series: str, name: str, layout: Layout | None = None) -> int:
        """Return a code for a new pair, with the columns that its readings share."""
        self.series.append(series)
        self.fields.append(name)
        if layout is not None:
            self.layouts.append(layout)
        return len(self.series) - 1

    def add(
        self, code: int, number: int, time_ns: int, value: Any, weight: int, place: int
    ) -> None:
        """Add a reading."""
        self.codes.append(code)
        self.numbers.append(number)
        self.times_ns.append(time_ns)
        self.values.append(value)
        self.weights.append(weight)
        self.places.append(place)

    def fill(self, begin: int, columns: Sequence[str], values: Sequence[list[Any]]) -> None:
        """Add column values to some rows, the first one at ``begin``."""
        for name, each in zip(columns, values, strict=True):
            rows, found = self.cells.setdefault(name, ([], []))
            rows += range(begin, begin + len(each))
            found += each

    def key(self, row: int) -> tuple[str | int, ...]:
        """Return the key of a reading: ``observation_ids(*key)`` is its id."""
        code = self.codes[row]
        field = (self.fields[code],) if self.fields[code] else ()
        return self.series[code], *field, self.numbers[row]

    def values_by_column(self) -> dict[str, tuple[Any, list[Any]]]:
        """Return rows and values by column. Rows None: all rows. O(readings)."""
        found: dict[str, tuple[Any, list[Any]]] = dict(self.cells)
        filled = {each.value for each in self.layouts}
        if len(filled) == 1 and (name := filled.pop()):
            found[name] = None, self.values
        elif len(filled) > 1:
            column = [each.value for each in self.layouts]
            for row, code in enumerate(self.codes):
                if name := column[code]:
                    rows, values = found.setdefault(name, ([], []))
                    rows.append(row)
                    values.append(self.values[row])
        return found
