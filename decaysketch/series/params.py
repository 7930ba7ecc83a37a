"""Build parameters: those that a ``DecaySketch`` has, and a resolution.

So one record feeds both, by the same columns and on every interface. An id names the series here,
not the row: a row is identified by its series and its time.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from decaysketch.core.params import OPTIONS as SHARED
from decaysketch.core.params import Option, SketchParams, check_integer
from decaysketch.core.sizing import MAX_CAPACITY
from decaysketch.errors import ParameterError
from decaysketch.series._native import TOP
from decaysketch.series.attributes import LEAST_ID_BITS, read_names

__all__ = ["MOST_RESOLUTION", "OPTIONS", "SeriesParams"]

MOST_RESOLUTION = 1 << 62
_KEY_WORDS = 1 << 32  # index of the first of two: ids and keys use those from 0 up
_Z = 1.959963984540054  # the normal quantile of 97.5 %
_SEEN = 0.36  # variance of a total over the bound that `for_accuracy` starts from, as measured


@dataclass(frozen=True)
class SeriesParams(SketchParams):
    """Build parameters of a :class:`~decaysketch.series.SeriesSketch`.

    Args:
        capacity: rows kept for each level, at most 2^20. The error follows from the number of
            *series* that are complete at the beginning of a window. It is between capacity / 2R
            and capacity / R if a series has R rows there. See :meth:`for_accuracy`.
        resolution: the sketch keeps one row of a series in each cell of this length, the latest.
            Cells are counted from time 0, in units of time. 1 unless given. It is the most
            effective setting where a series has many rows: a sample of 200 counters that two
            collectors scrape every 15 s had a sixth of the error with a resolution of 1 minute.
        max_weight: largest weight of an entity, at most 2^31. Entities of larger weight are sampled
            with a higher probability. A weight is rounded down to a power of two.
        id_bits: ids of series and entities are integers in ``[0, 2^id_bits)``.
        attributes: names of texts that each series has, by which queries filter and group: names,
            or one text, ``"job, region"``. At most 32. They need ``id_bits`` of 40 or more.
        seed, time_unit, id_key: as those of :class:`~decaysketch.SketchParams`. All sketches of one
            seed sample the same entities.
        value_type: "float64" (default) or "int64".
        copies: 1.
        id_mix: "keyed".

    Raises:
        ParameterError: a field is outside its domain. The message names the field and the value.
    """

    resolution: int = 1
    attributes: tuple[str, ...] = ()

    def __post_init__(self, accuracy: float | str | None, expected: int | None) -> None:
        super().__post_init__(accuracy, expected)
        check_integer("resolution", self.resolution, 1, MOST_RESOLUTION)
        if self.copies != 1:
            raise ParameterError(f"copies is {self.copies}; expected 1: a sample of series has one")
        if self.value_type == "label":
            raise ParameterError(
                "value_type is 'label'; expected 'float64' or 'int64': number the states of a "
                "machine, such as 0 for off and 1 for on"
            )
        if self.id_mix != "keyed":
            raise ParameterError(f"id_mix is {self.id_mix!r}; expected 'keyed'")
        object.__setattr__(self, "attributes", read_names(self.attributes))
        if self.attributes and self.id_bits < LEAST_ID_BITS:
            raise ParameterError(
                f"id_bits is {self.id_bits}; expected at least {LEAST_ID_BITS}, because attributes "
                "are part of a series id"
            )

    @classmethod
    def for_series(
        cls,
        epsilon: float,
        *,
        rows_per_series: int,
        cv: float = 1.0,
        **fields: Any,  # of the class
    ) -> Self:
        """Return parameters for the smallest sketch with a wanted accuracy.

        With 95 % confidence, the relative error of a total over a window is below ``epsilon``.
        The size rests on measurement (``python -m quality.series``), not on a proof.

        Args:
            epsilon: accuracy, between 0 and 1.
            rows_per_series: rows that a series has in the window, after ``resolution``.
            cv: standard deviation of contributions over their mean.
            fields: other parameters.

        Raises:
            ParameterError: an argument outside its domain, or a capacity above 2^20.

        Example:
            >>> SeriesParams.for_series(0.05, rows_per_series=20).capacity
            44254
        """
        if not isinstance(epsilon, (int, float)) or not 0.0 < epsilon < 1.0:
            raise ParameterError(f"epsilon is {epsilon!r}; expected a number between 0 and 1")
        check_integer("rows_per_series", rows_per_series, 1, MAX_CAPACITY)
        if not isinstance(cv, (int, float)) or not 0.0 <= cv < 1e6:
            raise ParameterError(f"cv is {cv!r}; expected a number from 0 to 10^6")
        capacity = math.ceil(
            2 * rows_per_series * (1.0 + cv * cv) * _SEEN * _Z * _Z / (epsilon * epsilon)
        )
        if capacity > MAX_CAPACITY:
            raise ParameterError(
                f"epsilon is {epsilon!r} and rows_per_series is {rows_per_series}; that takes a "
                f"capacity of {capacity}, expected at most {MAX_CAPACITY}: choose a resolution, so "
                "that a series has fewer rows in the window"
            )
        return cls(capacity=capacity, **fields)

    @property
    def levels(self) -> int:
        """Index of the coarsest level."""
        return TOP

    @cached_property
    def sampling_words(self) -> tuple[int, int]:
        """The two key words that decide which entities are sampled."""
        return self.key_word(_KEY_WORDS), self.key_word(_KEY_WORDS + 1)

    @cached_property
    def fingerprint(self) -> bytes:
        """8 bytes that agree exactly when two sketches may be merged."""
        packed = super().fingerprint + self.resolution.to_bytes(8, "little")
        for name in self.attributes:
            packed += b"\0" + name.encode()
        return hashlib.blake2b(packed, digest_size=8, person=b"ds-series-1").digest()

    def to_dict(self) -> dict[str, Any]:
        form = super().to_dict()
        if attributes := form.pop("attributes"):
            form["attributes"] = ", ".join(attributes)
        return form


_LEFT_OUT = ("copies", "id_mix")

#: The parameters of :class:`SeriesParams`, but for the secret.
OPTIONS = (
    *(
        replace(each, choices=("int64", "float64"), doc="Type of the values.")
        if each.name == "value_type"
        else replace(each, doc="Rows stored for each level of entities.")
        if each.name == "capacity"
        else replace(
            each, doc="Largest weight of an entity. A weight is rounded to a power of two."
        )
        if each.name == "max_weight"
        else each
        for each in SHARED
        if each.name not in _LEFT_OUT
    ),
    Option(
        name="resolution",
        type=int,
        default=1,
        doc="Each series stores one row, the latest, per period of this length.",
        example=60,
    ),
    Option(
        name="attributes",
        type=str,
        default="",
        doc="Names of the texts that describe a series, such as `job, region`. Queries filter and "
        "group by them.",
        example="job, region",
    ),
)
