"""Readings of time series, by columns, because there are many readings and few series.

Each has the key ``(series, field, number)``. The series and the field are stored once for all of
their readings, and hashed once. The number is the time, or the number of the period.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from decaysketch.core.ranges import Range
from decaysketch.ingest.readings import Parsed

__all__ = ["Points"]


@dataclass
class Points:
    """The result for a body.

    Attributes:
        told: the rejected and skipped parts; its ``readings`` are empty.
        series, fields: the two texts of a key, by code.
        codes: of each reading; so are the next columns.
        numbers: the last part of the key, within 64 bits for any time.
        times_ns: since 1970-01-01 UTC; any integer.
        values: a number, a range of numbers, or a label; None: the observation has no value.
        weights: integers.
        places: position in the body, a number that begins at 1.
    """

    told: Parsed = field(default_factory=Parsed)
    series: list[str] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    times_ns: list[int] = field(default_factory=list)
    values: list[float | int | str | Range | None] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.codes)

    def enter(self, series: str, name: str) -> int:
        """Return the code of a new pair of texts."""
        self.series.append(series)
        self.fields.append(name)
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

    def key(self, row: int) -> tuple[str, str, int]:
        """Return the key of a reading: ``observation_ids(*key)`` is its id."""
        code = self.codes[row]
        return self.series[code], self.fields[code], self.numbers[row]
