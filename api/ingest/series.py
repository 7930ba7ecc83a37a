"""A body of time series as rows, by the maps of its stream, whichever protocol brings it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from api.errors import InvalidRequestError, TooManyRowsError
from api.ingest.doubts import refuse_other_unit
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.ingest.columns import INT64_LIMIT, Form, Raw, Refusal, points_to_columns
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import RefusedError

__all__ = ["SeriesReader"]


@dataclass
class SeriesReader:
    """Reads one body; what it says besides its readings is in ``points.told``.

    Attributes:
        parse: gives the readings of a body; where there are more than so many, it may stop.
        unit: of time, that the body has its times in.
        check_units: refuse times that are hardly of this unit.
        place: what a place in the body is called, such as "line".
    """

    parse: Callable[[bytes, Form], Points]
    unit: str
    check_units: bool
    place: str
    points: Points = field(default_factory=Points)

    def __call__(self, body: bytes, form: Form) -> Raw:
        """The columns of the readings.

        Raises:
            TooManyRowsError: more readings than one post may have.
            InvalidRequestError: times are dates in another unit, or the body cannot be read.
        """
        try:
            self.points = self.parse(body, form)
        except RefusedError as error:
            raise InvalidRequestError(str(error)) from None
        if len(self.points) > form.max_rows:
            raise TooManyRowsError(len(self.points), form.max_rows)
        if self.check_units:
            length_ns = NANOSECONDS[self.unit]
            stamps = [time // length_ns for time in self.points.times_ns]
            sound = [stamp for stamp in stamps if -INT64_LIMIT <= stamp < INT64_LIMIT]
            cure = "another precision (ns, us, ms, s), or check_units=false"
            refuse_other_unit(self.unit, np.array(sound, dtype=np.int64), cure)
        return points_to_columns(self.points, form)

    def count(self, refusals: list[Refusal]) -> int:
        """Of so many points, lines or samples there are rows that the stream refused."""
        points = self.points
        return len({(points.places[each.row], points.times_ns[each.row]) for each in refusals})

    def told(self, refusals: list[Refusal], most: int) -> list[str]:
        """What was refused, by the parser and by the stream: the first ``most`` of each."""
        points = self.points
        return [f"{where}: {reason}" for where, reason in points.told.refused[:most]] + [
            f"{self.place} {points.places[each.row]} {points.fields[points.codes[each.row]]}: "
            f"{each.field} {each.reason}"
            for each in refusals[:most]
        ]
