"""Every error that the library raises on purpose, under one base class.

Each message shows the offending field with both values (given and expected), so that a log line
alone is enough to find the fault. Errors about values also subclass :class:`ValueError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "CapacityError",
    "ConflictingSketchError",
    "CorruptSketchError",
    "DecaySketchError",
    "DisagreeingCopiesWarning",
    "FewSeriesWarning",
    "IncompatibleSketchError",
    "NewestOnlyWarning",
    "ObservationError",
    "OtherTypeError",
    "OtherUnitError",
    "ParameterError",
    "TimeUnitWarning",
    "TimeZoneWarning",
    "UnanswerableQueryError",
    "UnlikelyClockWarning",
]


class DecaySketchError(Exception):
    """Base class of every error raised by this library."""


class ParameterError(DecaySketchError, ValueError):
    """A build or query parameter is outside its domain."""


class OtherUnitError(ParameterError):
    """Times are dates in another unit than the declared one. No row was stored."""


class OtherTypeError(ParameterError):
    """A column that identifies rows has another type than in the rows before. No row was stored.

    Attributes:
        column: its name.
    """

    def __init__(self, column: str, before: str, found: str) -> None:
        self.column = column
        super().__init__(
            f"column {column!r} holds {found}, and held {before} before: they name other things, "
            "also where they look alike"
        )


class ObservationError(DecaySketchError, ValueError):
    """An observation was rejected. No row in its batch was stored.

    Attributes:
        column: name of the offending column (``values``, ``weights``, ``timestamps``, ``ids``).
        row: index of the first offending row, or None if the complete column is at fault.
        value: the offending value, or None if the complete column is at fault.
    """

    def __init__(
        self, message: str, *, column: str, row: int | None = None, value: Any = None
    ) -> None:
        super().__init__(message)
        self.column = column
        self.row = row
        self.value = value


class TimeUnitWarning(UserWarning):
    """Times are unlikely in their declared unit. They are stored all the same."""


class TimeZoneWarning(UserWarning):
    """Times name no zone and no ``time_zone`` was given. They are read as UTC."""


class UnlikelyClockWarning(UserWarning):
    """Some times lie outside the years 1990 to 2099, the others inside. All of them are stored."""


class DisagreeingCopiesWarning(UserWarning):
    """Rows with one id are different readings. The latest of them represents the id all the
    same.
    """


class FewSeriesWarning(UserWarning):
    """A sample of series has few complete devices. Other parameters help."""


class NewestOnlyWarning(UserWarning):
    """A decay gives weight only to the newest instant. It is accepted all the same."""


class IncompatibleSketchError(DecaySketchError, ValueError):
    """Two sketches cannot be merged: they were built with different parameters.

    Args:
        fields: every differing field, as ``{name: (ours, theirs)}``.
        remedy: a sentence that follows, or nothing.

    Attributes:
        fields: the same.
    """

    def __init__(self, fields: Mapping[str, tuple[object, object]], remedy: str = "") -> None:
        self.fields = dict(fields)
        listing = "; ".join(f"{k}: {ours!r} != {theirs!r}" for k, (ours, theirs) in fields.items())
        more = f". {remedy}" if remedy else ""
        super().__init__(f"sketches were built with different parameters: {listing}{more}")


class CorruptSketchError(DecaySketchError, ValueError):
    """Bytes are not a sketch that an honest builder could have written."""


class CapacityError(ParameterError):
    """A merge would exceed the capacity, and none of its data can be dropped.

    Attributes:
        present: the required amount.
        capacity: the permitted amount.
    """

    def __init__(self, present: int, capacity: int) -> None:
        super().__init__(f"{present} entries; the capacity is {capacity}")
        self.present = present
        self.capacity = capacity

    def __reduce__(self) -> tuple[type[CapacityError], tuple[int, int]]:
        return type(self), (self.present, self.capacity)


class ConflictingSketchError(DecaySketchError, ValueError):
    """Two states carry one name, and neither can have become the other: a fork.

    Attributes:
        name: (source, epoch) of both.
        ours, theirs: the data that they have seen, and their digests.
    """

    def __init__(self, name: tuple[object, ...], ours: str, theirs: str) -> None:
        super().__init__(
            f"two states are of {name!r}, and neither goes on from the other: {ours}; {theirs}"
        )
        self.name = name
        self.ours = ours
        self.theirs = theirs

    def __reduce__(self) -> tuple[type[ConflictingSketchError], tuple[Any, ...]]:
        return type(self), (self.name, self.ours, self.theirs)


class UnanswerableQueryError(DecaySketchError, ValueError):
    """The sketch has discarded the data that the query needs, at every level."""
