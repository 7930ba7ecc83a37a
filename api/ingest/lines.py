"""A body of line protocol as rows, by the maps of its stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from api.errors import TooManyRowsError
from api.ingest.doubts import refuse_other_unit
from decaysketch.ingest.columns import INT64_LIMIT, Form, Raw, points_to_columns
from decaysketch.ingest.line_protocol import PRECISIONS, LineMap, parse
from decaysketch.ingest.points import Points

__all__ = ["UNITS", "LineReader"]

UNITS = {"n": "ns", "u": "us", "m": "min"} | {name: name for name in ("ns", "us", "ms", "s", "h")}
"""Of a precision as clients name it, the unit of time."""


@dataclass
class LineReader:
    """Reads one body; what it says besides its readings is in ``points.told``.

    Attributes:
        maps: of the stream.
        precision: one of ``UNITS``.
        check_units: refuse times that are hardly of this precision.
    """

    maps: Sequence[LineMap]
    precision: str
    check_units: bool
    points: Points = field(default_factory=Points)

    def __call__(self, body: bytes, form: Form) -> Raw:
        """The columns of the readings.

        Raises:
            TooManyRowsError: more readings than one post may have.
            InvalidRequestError: times are dates in another unit.
        """
        length_ns = PRECISIONS[self.precision]
        self.points = parse(body, self.maps, length_ns, form.max_rows)
        if len(self.points) > form.max_rows:
            raise TooManyRowsError(len(self.points), form.max_rows)
        if self.check_units:
            stamps = [time // length_ns for time in self.points.times_ns]
            sound = [stamp for stamp in stamps if -INT64_LIMIT <= stamp < INT64_LIMIT]
            cure = "another precision (ns, us, ms, s), or check_units=false"
            refuse_other_unit(UNITS[self.precision], np.array(sound, dtype=np.int64), cure)
        return points_to_columns(self.points, form)
