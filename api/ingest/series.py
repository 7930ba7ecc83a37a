"""A body of time series as rows, by the mappings of its stream, for every protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from api.errors import InvalidRequestError, TooManyRowsError
from decaysketch.core.plausible_times import in_another_unit
from decaysketch.core.time_units import NANOSECONDS
from decaysketch.ingest.columns import INT64_LIMIT, Form, Raw, Refusal, points_to_columns
from decaysketch.ingest.points import Points
from decaysketch.ingest.readings import RefusedError, Steps

__all__ = ["SeriesReader"]


@dataclass
class SeriesReader:
    """Reads one body; what it says besides its readings is in ``points.told``.

    Attributes:
        parse: gives the readings of a body, in steps; where there are more than so many, it may
            stop.
        unit: of time, that the body has its times in.
        check_times: raises where those of a body, in this unit, are hardly of it; None: they are.
        place: what a place in the body is called, such as "line".
        polled: whether of periods one reading stays, by the maps of the stream.
    """

    parse: Callable[[bytes, Form], Steps[Points]]
    unit: str
    check_times: Callable[[npt.NDArray[np.int64]], None] | None
    place: str
    polled: bool = False
    points: Points = field(default_factory=Points)

    def __call__(self, body: bytes, form: Form) -> Steps[Raw]:
        """The columns of the readings, in steps.

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
        """Those of the times in the unit of the body that are of 64 bits."""
        length_ns, times_ns = NANOSECONDS[self.unit], self.points.times_ns
        try:
            return np.array(times_ns, dtype=np.int64) // length_ns
        except OverflowError:
            stamps = [time // length_ns for time in times_ns]
            sound = [stamp for stamp in stamps if -INT64_LIMIT <= stamp < INT64_LIMIT]
            return np.array(sound, dtype=np.int64)

    def count(self, refusals: list[Refusal]) -> int:
        """Of so many points, lines or samples there are rows that the stream refused."""
        points = self.points
        return len({(points.places[each.row], points.times_ns[each.row]) for each in refusals})

    def told(self, refusals: list[Refusal], most: int) -> list[str]:
        """What was refused, by the parser and by the stream: the first ``most`` of each."""
        points = self.points
        return [f"{where}: {reason}" for where, reason in points.told.refused[:most]] + [
            f"{self.place} {points.places[each.row]} {points.fields[points.codes[each.row]]}: "
            f"{each.field} {each.reason}{self._unit_of(each)}"
            for each in refusals[:most]
        ]

    def _unit_of(self, refusal: Refusal) -> str:
        """What to add where a time that was refused would be a date in another unit than that of
        the body."""
        if refusal.field != "time":
            return ""
        stamp = self.points.times_ns[refusal.row] // NANOSECONDS[self.unit]
        other = in_another_unit(self.unit, stamp)
        return f"{other}, and this request says {self.unit}" if other else ""
