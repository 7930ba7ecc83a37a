"""Readings of time series, by columns: there are many of them, and few series.

Each has the key ``(series, field, number)``. The series and the field are kept once for all of
their readings, and hashed once; the number is the time, or that of the period that it lies in.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from decaysketch.ingest.readings import Parsed

__all__ = ["Points"]


@dataclass
class Points:
    """What became of a body.

    Attributes:
        told: what was refused and what was skipped of it; its ``readings`` are none.
        series, fields: the two texts of a key, of each code.
        codes: of each reading; so are those that follow.
        numbers: the last part of the key, within 64 bits wherever the time is.
        times_ns: since 1970-01-01 UTC; any integer.
        values: a number, or a label; None: the observation has no value.
        weights: integers.
        places: where in the body, a number that begins at 1.
    """

    told: Parsed = field(default_factory=Parsed)
    series: list[str] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    times_ns: list[int] = field(default_factory=list)
    values: list[float | int | str | None] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.codes)

    def enter(self, series: str, name: str) -> int:
        """The code of a new pair of texts."""
        self.series.append(series)
        self.fields.append(name)
        return len(self.series) - 1

    def key(self, row: int) -> tuple[str, str, int]:
        """What names a reading: ``observation_ids(*key)`` is its id."""
        code = self.codes[row]
        return self.series[code], self.fields[code], self.numbers[row]
