"""A time-series body as rows, by its stream's mappings, for every protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from api.errors import InvalidRequestError, TooManyRowsError
from decaysketch.core.plausible_times import in_another_unit
from decaysketch.core.row_check import Refusal
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.ingest.columns import INT64_LIMIT, Form, Raw, points_to_columns
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import RefusedError, Steps

__all__ = ["SeriesReader"]


@dataclass
class SeriesReader:
    """Reads one body. ``points.told`` has its content besides the readings.

    Attributes:
        parse: returns a body's readings, in steps. It may stop after so many.
        unit: the time unit in the body.
        check_times: raises where a body's times are unlikely in this unit. None: no check.
        place: the name for a place in the body, such as "line".
        polled: whether one reading per period stays, by the stream's mappings.
    """

    parse: Callable[[bytes, Form], Steps[Points]]
    unit: str
    check_times: Callable[[npt.NDArray[np.int64]], None] | None
    place: str
    polled: bool = False
    points: Points = field(default_factory=Points)

    def __call__(self, body: bytes, form: Form) -> Steps[Raw]:
        """Return the readings' columns, in steps.

        Raises:
            TooManyRowsError: more readings than one post may have.
            InvalidRequestError: times are dates in another unit, or the body cannot be read.
        """
        try:
            self.points = yield from self.parse(body, form)
        except RefusedError as error:
            raise InvalidRequestError(str(error)) from None
        if len(self.points) > form.max_rows:
            raise TooManyRowsError(len(self.points), form.max_rows)
        yield
        if self.check_times is not None:
            self.check_times(self._stamps())
        raw = points_to_columns(self.points, form)
        raw.polled = self.polled
        return raw

    def _stamps(self) -> npt.NDArray[np.int64]:
        """Return the times that fit in 64 bits, in the body's unit."""
        length_ns, times_ns = NANOSECONDS[self.unit], self.points.columns().times_ns
        if isinstance(times_ns, np.ndarray):
            return times_ns // length_ns
        stamps = [time // length_ns for time in times_ns]
        sound = [stamp for stamp in stamps if -INT64_LIMIT <= stamp < INT64_LIMIT]
        return np.array(sound, dtype=np.int64)

    def count(self, refusals: list[Refusal]) -> int:
        """Return the number of points, lines or samples with a row that the stream rejected."""
        points = self.points
        return len({(points.places[each.row], points.times_ns[each.row]) for each in refusals})

    def told(self, refusals: list[Refusal], most: int) -> list[str]:
        """Return the rejections by the parser and by the stream: the first ``most`` from each."""
        points = self.points
        return [f"{where}: {reason}" for where, reason in points.told.refused[:most]] + [
            f"{self.place} {points.places[each.row]} {points.fields[points.codes[each.row]]}: "
            f"{each.field} {each.reason}{self._unit_of(each)}"
            for each in refusals[:most]
        ]

    def _unit_of(self, refusal: Refusal) -> str:
        """Return an addition for a rejected time that would be a date in a unit other than the
        body's.
        """
        if refusal.field != "time":
            return ""
        stamp = self.points.times_ns[refusal.row] // NANOSECONDS[self.unit]
        other = in_another_unit(self.unit, stamp)
        return f"{other}, and this request says {self.unit}" if other else ""
